"""
The two streams: standard output holds the result alone, all else goes to standard error.

Tools are other people's code, and so are the programs that they start: any of them may print. So
while a command runs, the file descriptor of standard output *is* standard error, and the real one
is kept aside for the result.
"""

import json
import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

from ferrule.cli._refused import Refused
from ferrule.helpers import HIDDEN

_OUT, _ERROR = 1, 2


class ResultStream:
    """
    The real standard output; made by `result_stream`.

    Text goes out as UTF-8 whatever the locale says. A reader that went away is no error: nobody
    misses the rest.

    Attributes:
        is_read: Whether somebody reads it, as far as was noticed when it was written.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.is_read = True

    @property
    def takes_codes(self) -> bool:
        """Whether it is a terminal that takes escape codes."""
        return takes_codes(self._descriptor)

    @property
    def is_terminal(self) -> bool:
        """Whether a person reads it, on a terminal."""
        return os.isatty(self._descriptor)

    def opened(self) -> TextIO:
        """Return it as a file of its own, for those who write all that goes out."""
        return os.fdopen(os.dup(self._descriptor), "w", encoding="utf-8", newline="\n")

    def write(self, text: str) -> None:
        """Write `text`, all of it."""
        rest = memoryview(text.encode(errors="replace"))
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except BrokenPipeError:
            self.is_read = False

    def write_json(self, value: object, *, compact: bool = False) -> None:
        """
        Write plain JSON values and a line feed.

        Characters that act on a terminal or hide on it are written as escapes, which read the same.
        """
        indent, separators = (None, (",", ":")) if compact else (2, (",", ": "))
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators
        )
        self.write(HIDDEN.sub(_escape, text) + "\n")


def _escape(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


@contextmanager
def result_stream() -> Generator[ResultStream]:
    """
    Keep standard output for the result alone while the block runs.

    Raises:
        Refused: one of the two streams is closed.
    """
    try:
        kept = os.dup(_OUT)
        sys.stdout.flush()
        os.dup2(_ERROR, _OUT)
    except (OSError, AttributeError):
        raise Refused("standard output and standard error must both be open") from None
    try:
        yield ResultStream(kept)
    finally:
        sys.stdout.flush()
        os.dup2(kept, _OUT)
        os.close(kept)


def takes_codes(descriptor: int = _ERROR) -> bool:
    """Return whether a stream, by default standard error, is a terminal that takes escape codes."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "") in {"", "dumb", "unknown"}:
        return False
    return os.isatty(descriptor)
