"""The command line in a process of its own, for the tests beside this file."""

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.command import PATIENCE, Ferrule, Starts, WritesTurn


@pytest.fixture
def environment() -> dict[str, str]:
    """Return an environment in which nothing of the caller's terminal shows."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # A job in the background: not inherited.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    foreign = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    return {k: v for k, v in os.environ.items() if k not in foreign} | {"TERM": "xterm-256color"}


@pytest.fixture
def starts(tmp_path: Path, environment: dict[str, str]) -> Starts:
    """Give a test `starts(*arguments)`: the command as a process that runs."""

    def start(
        *arguments: str,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        env: dict[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "ferrule", *arguments],
            cwd=tmp_path,
            env=environment | (env or {}),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            encoding="utf-8",
        )

    return start


@pytest.fixture
def ferrule(starts: Starts) -> Ferrule:
    """Give a test `ferrule(*arguments, stdin="")`: the command, run to its end."""

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        with starts(*arguments, stdin=subprocess.PIPE) as process:
            out, error = process.communicate(stdin, timeout=PATIENCE)
        assert "Traceback" not in error
        return subprocess.CompletedProcess(process.args, process.returncode, out, error)

    return run


@pytest.fixture
def turn(tmp_path: Path) -> WritesTurn:
    """Give a test `turn("name", ("name", arguments), …)`: a response in a file, by its path."""

    def write(*calls: str | tuple[str, object]) -> str:
        pairs = [(call, {}) if isinstance(call, str) else call for call in calls]
        output = [
            {
                "type": "function_call",
                "call_id": f"c{index}",
                "name": name,
                "arguments": text if isinstance(text, str) else json.dumps(text),
            }
            for index, (name, text) in enumerate(pairs)
        ]
        path = tmp_path / "turn.json"
        path.write_text(json.dumps({"object": "response", "output": output}), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Return the two ends of a terminal of 80 columns and 24 lines: ours, and the command's."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    yield ours, theirs
    os.close(ours)
