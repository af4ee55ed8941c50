"""A batch in plain lines: for logs, pipes, and terminals that want no codes."""

import sys
import time
from types import TracebackType
from typing import Self

from ferrule import Event, Finished, Outcome, Progressed, Started
from ferrule.cli._board import Board

_BETWEEN = 1.0
"""Seconds between two lines about the progress of one call."""


class Lines:
    """Tells a batch line by line on standard error."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def tell(self, event: Event) -> None:
        """Write what happened, if it is worth a line."""
        match event:
            case Started(index=index):
                self._board.start(event)
                self.note(f"> {self._board.label(index)} started")
            case Progressed():
                self._progressed(event)
            case Finished(index=index, outcome=outcome):
                self.end(index, outcome)

    def end(self, index: int, outcome: Outcome) -> None:
        """Write how a call ended."""
        self.note("".join(text for text, _ in self._board.finish(index, outcome)))

    def stop(self) -> None:
        """Write that the batch was told to stop."""
        self._board.stopping = True
        self.note("stopping; Ctrl-C again leaves at once")

    def leave(self) -> None:
        """Do nothing: lines leave a terminal as it was."""

    def note(self, text: str) -> None:
        """Write one more line."""
        sys.stderr.write(f"{text.rstrip()}\n")
        sys.stderr.flush()

    def _progressed(self, event: Progressed) -> None:
        running, now = self._board.progress(event), time.monotonic()
        if now - running.told >= _BETWEEN:
            running.told = now
            self.note(f". {self._board.label(event.index)} {running.amount} {running.message}")
