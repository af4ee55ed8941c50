"""
What really happened, as those said it who did it: a file that outlives every process.

Tools, policies and drivers write a line at each point that matters. A line is one `write` to a file
opened with O_APPEND: lines of several processes stand in the order in which they were written, and
one that was written is there, whoever is killed next. The invariants (see `checks`) are between
this file and the journal, and neither knows of the other.
"""

import os
from pathlib import Path
from typing import Final

import msgspec


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    One line.

    Attributes:
        what: What happened: "begin", "effect", "end", "recorded", "killed", "answered", …
        pid: In which process; of "killed", the process that was.
        call: The call's id, as the model gave it.
        leg: The leg of the call.
        key: Its idempotency key.
        tool: The tool's name.
        replay: What the tool declares a second run to do.
        uses: What it works on: names of states, each with whether it is shared.
        name: A wait, a batch, a record; whatever else has a name.
        by: Who answered.
        calls: Ids of the calls of a batch, in order, or how each ended.
    """

    what: str
    pid: int = 0
    call: str = ""
    leg: int = 0
    key: str = ""
    tool: str = ""
    replay: str = ""
    uses: tuple[tuple[str, bool], ...] = ()
    name: str = ""
    by: str = ""
    calls: tuple[str, ...] = ()


class Log:
    """A log that this process writes; made in the process that writes, not before a fork."""

    def __init__(self, path: Path) -> None:
        self._file: Final = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, what: str, **facts: object) -> None:
        """Write a line; it stands when this returns."""
        line = msgspec.convert({"what": what, "pid": os.getpid(), **facts}, Line)
        text = msgspec.json.encode(line) + b"\n"
        written = os.write(self._file, text)
        assert written == len(text)


def lines(path: Path) -> list[Line]:
    """Return the lines of a log, in the order in which they were written."""
    if not path.exists():
        return []
    return [msgspec.json.decode(text, type=Line) for text in path.read_bytes().splitlines()]
