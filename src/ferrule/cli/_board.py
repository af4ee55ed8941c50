"""
What a person is told of a batch while it runs, and in which words.

`Board` keeps what is known and writes it as lines of styled pieces; who draws them is another
file's business. Everything that comes from tools and models is made visible here, once.
"""

import time
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias, assert_never

import msgspec

from ferrule import (
    Cancelled,
    Completed,
    Failed,
    Outcome,
    Progressed,
    Rejected,
    Started,
    Suspended,
    Text,
    ToolCall,
    Unknown,
)
from ferrule.helpers import one_line

Pieces: TypeAlias = list[tuple[str, str]]
"""One line: texts with the style of each."""

_LONGEST_NAME = 24
SHORT = 160
"""Characters of what came of a call, on its line."""
_LONG = 1e9
_THOUSAND = 1000
_MINUTE = 60


class Manner(msgspec.Struct, frozen=True):
    """How one kind of ending is shown: never by its colour alone."""

    sign: str
    word: str
    style: str


DONE = Manner("✓", "done", "green")
MANNERS: dict[type[Outcome], Manner] = {
    Completed: DONE,
    Failed: Manner("✗", "failed", "red"),
    Rejected: Manner("⊘", "refused", "red"),
    Suspended: Manner("?", "waits", "yellow"),
    Cancelled: Manner("-", "stopped", "yellow"),
    Unknown: Manner("‽", "unknown", "magenta"),
}


class Running(msgspec.Struct):
    """One call that runs: since when, and how far it says it is."""

    since: float
    progress: float | None = None
    total: float | None = None
    message: str = ""
    told: float = 0.0

    @property
    def amount(self) -> str:
        """How far, as in `3/10`; empty where the tool gives no number."""
        if self.progress is None:
            return ""
        return _number(self.progress) + (f"/{_number(self.total)}" if self.total else "")


class Board:
    """
    What is known of a batch: which calls run, how the others ended, since when.

    Attributes:
        earlier: Calls that ended, or began to wait, before the batch was shown here.
    """

    def __init__(self, calls: Sequence[ToolCall]) -> None:
        self.calls = calls
        self.began = time.monotonic()
        self.running: dict[int, Running] = {}
        self.ended: dict[int, Outcome] = {}
        self.earlier: set[int] = set()
        self.stopping = False
        self._names = [one_line(call.name, _LONGEST_NAME) for call in calls]
        self._digits = len(str(len(calls)))
        self._width = max(map(len, self._names), default=0)

    def start(self, event: Started) -> None:
        """Take down that a call began, unless its progress was heard of before that."""
        self.ended.pop(event.index, None)
        self.earlier.discard(event.index)
        self.running.setdefault(event.index, Running(time.monotonic()))

    def progress(self, event: Progressed) -> Running:
        """Take down how far a call is; a number or message that is not told again stands."""
        running = self.running.setdefault(event.index, Running(time.monotonic()))
        if event.progress is not None:
            running.progress, running.total = event.progress, event.total
        if event.message is not None:
            running.message = one_line(event.message)
        return running

    def finish(self, index: int, outcome: Outcome) -> Pieces:
        """Take down how a call ended and return its line."""
        running = self.running.pop(index, None)
        self.ended[index] = outcome
        manner = MANNERS[type(outcome)]
        took = "earlier" if index in self.earlier else ""
        if running is not None:
            took = seconds(time.monotonic() - running.since)
        return [
            (f"{manner.sign} {self.label(index)} ", manner.style),
            (f"{manner.word:<7} {took:>7}  ", "dim"),
            (shortly(outcome), ""),
        ]

    def label(self, index: int) -> str:
        """Return the number and the tool of a call, as wide as that of any other."""
        return f"{index + 1:>{self._digits}} {self._names[index]:<{self._width}}"

    @property
    def counts(self) -> str:
        """How many calls ended in which way, as in `9 done, 1 failed`."""
        count = Counter(type(outcome) for outcome in self.ended.values())
        told = [f"{count[kind]} {manner.word}" for kind, manner in MANNERS.items() if count[kind]]
        return ", ".join(told) or "none ended"

    @property
    def summary(self) -> str:
        """The last line: how many calls, how they ended, how long it took."""
        calls = f"{len(self.calls)} call{'' if len(self.calls) == 1 else 's'}"
        return f"{calls}: {self.counts} ({seconds(time.monotonic() - self.began)})"


def shortly(outcome: Outcome) -> str:
    """Return what came of a call as one short line."""
    match outcome:
        case Completed(result=result):
            others = [told(block) for block in result.content if not isinstance(block, Text)]
            return " ".join([one_line(outcome.text, SHORT), *others]).strip() or "(nothing)"
        case Suspended(request=request):
            return f"needs an answer: {one_line(request.message, SHORT)}"
        case Rejected(kind="invalid_arguments" | "unknown_tool"):
            # What follows says it all, and the line is short.
            return one_line(outcome.text.removeprefix("Error: ").partition(": ")[2], SHORT)
        case Failed() | Rejected() | Cancelled() | Unknown():
            return one_line(outcome.text.removeprefix("Error: "), SHORT)
        case _:
            assert_never(outcome)


def told(block: object) -> str:
    """Return what a block is, as in `[image/png, 12 kB]`."""
    data = getattr(block, "data", None)
    kind = getattr(block, "mime_type", None) or type(block).__name__.lower()
    if isinstance(data, bytes):
        return f"[{one_line(kind, 60)}, {size(len(data))}]"
    return f"[{one_line(kind, 60)}: {one_line(getattr(block, 'url', None) or '', SHORT)}]"


def size(count: int) -> str:
    """Return a number of bytes for people, as in `12.0 kB`."""
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB"):
        if amount >= _THOUSAND:
            amount, unit = amount / _THOUSAND, larger
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def seconds(duration: float) -> str:
    """Return a duration for people, as in `12 ms`, `1.20 s` or `3:05 m`."""
    if duration < 1:
        return f"{duration * _THOUSAND:.0f} ms"
    if duration < _MINUTE:
        return f"{duration:.2f} s"
    minutes, rest = divmod(round(duration), _MINUTE)
    return f"{minutes}:{rest:02} m"


def _number(value: float) -> str:
    """Return a number of a progress: whole ones without a point, and none too long."""
    return f"{value:.0f}" if value == int(value) and abs(value) < _LONG else f"{value:.4g}"
