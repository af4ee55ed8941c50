"""What the tests of the command line share: names for their fixtures, and the tools they run."""

import os
import re
import select
import subprocess
from pathlib import Path
from typing import Protocol

ENDINGS = str(Path(__file__).with_name("tools_endings.py"))
"""A file with a tool for each way a call can end."""

PATIENCE = 60
"""Seconds after which a process that should have ended is a failure; nothing waits for them."""


ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
"""The codes that a terminal takes."""


class Ferrule(Protocol):
    """Runs the command to its end."""

    def __call__(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Return its exit code and what it wrote."""
        ...


class Starts(Protocol):
    """Starts the command."""

    def __call__(
        self,
        *arguments: str,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        env: dict[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """Return the process that runs."""
        ...


class WritesTurn(Protocol):
    """Writes a response with these calls: names, or names with arguments."""

    def __call__(self, *calls: str | tuple[str, object]) -> str:
        """Return the path of the file."""
        ...


def read_until(descriptor: int, part: str) -> str:
    """Read a terminal until `part` was on it, or to its end; or until nothing comes any more."""
    read = ""
    while part not in ESCAPES.sub("", read) and select.select([descriptor], [], [], PATIENCE)[0]:
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # On Linux, the end of a terminal whose other side was closed.
            data = b""
        if not data:
            return read
        read += data.decode(errors="replace")
    return read
