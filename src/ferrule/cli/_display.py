"""Where a batch is shown while it runs: bars on a terminal, lines elsewhere, the log between."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeAlias

from ferrule.cli._bars import Bars
from ferrule.cli._blame import explained
from ferrule.cli._board import Board
from ferrule.cli._lines import Lines
from ferrule.cli._streams import takes_codes
from ferrule.helpers import one_line

Display: TypeAlias = Bars | Lines


@contextmanager
def shown(board: Board) -> Generator[Display]:
    """Show a batch on standard error while the block runs, and what is logged of it."""
    with Bars(board) if takes_codes() else Lines(board) as display, _logged_to(display):
        yield display


class _Log(logging.Handler):
    """Shows what is logged for operators: here that is the person at the terminal."""

    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record as one line; a whole traceback is for handlers that a module sets up."""
        error = record.exc_info[1] if record.exc_info else None
        cause = "" if error is None else f": {explained(error)}"
        self._display.note(f"! {one_line(record.getMessage() + cause, 1000)}")


@contextmanager
def _logged_to(display: Display) -> Generator[None]:
    logger, handler = logging.getLogger("ferrule"), _Log(display)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
