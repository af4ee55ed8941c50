"""A batch on a terminal: a bar for each running call, a line for each that ended."""

import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ferrule import Event, Finished, Outcome, Progressed, Started
from ferrule.cli._board import Board, Running, seconds
from ferrule.helpers import visible

_STANDARD_ERROR = 2
_SHOW_CURSOR = b"\x1b[?25h\n"
_ECHO = len("^C^C")
"""Columns left free: a terminal writes there what is typed, and a line that is full would break."""
_NARROWEST = 20
_REFRESH = 0.1
"""Seconds from one drawing of the bars to the next."""


class Bars:
    """
    Draws a batch on standard error.

    What tools print appears above the bars. While they are shown, a thread of ours draws them,
    whatever holds the loop. It draws when nobody prints, and the other way round: otherwise a line
    would be written where the bars were before they changed. The thread ends with the block.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._turn = threading.RLock()
        self._over = threading.Event()
        self._console = Console(file=sys.stderr, highlight=False)
        self._live = Live(
            get_renderable=self._drawn,
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._thread = threading.Thread(target=self._draw, name="ferrule bars", daemon=True)
        self._streams = sys.stdout, sys.stderr
        self._prints = [_Prints(stream, self.note) for stream in self._streams]

    def __enter__(self) -> Self:
        sys.stdout, sys.stderr = (cast("TextIO", stream) for stream in self._prints)
        self._live.start()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        sys.stdout, sys.stderr = self._streams
        for stream in self._prints:
            stream.end()
        with self._turn:
            self._live.stop()

    def tell(self, event: Event) -> None:
        """Take down what happened; the bars show it when they are drawn next."""
        with self._turn:
            match event:
                case Started():
                    self._board.start(event)
                case Progressed():
                    self._board.progress(event)
                case Finished(index=index, outcome=outcome):
                    self.end(index, outcome)

    def end(self, index: int, outcome: Outcome) -> None:
        """Write how a call ended."""
        with self._turn:
            line = Text.assemble(*self._board.finish(index, outcome))
            self._console.print(line, no_wrap=True, overflow="ellipsis", crop=True)

    def stop(self) -> None:
        """Show that the batch was told to stop."""
        self._board.stopping = True

    def leave(self) -> None:
        """Give the terminal its cursor back, without waiting for who draws."""
        os.write(_STANDARD_ERROR, _SHOW_CURSOR)

    def note(self, text: str) -> None:
        """Write one more line; from any thread."""
        with self._turn:
            self._console.print(Text(visible(text)), soft_wrap=True)

    # ---- drawing -------------------------------------------------------------------------------

    def _draw(self) -> None:
        while not self._over.wait(_REFRESH):
            with self._turn:
                self._live.refresh()

    def _drawn(self) -> Table:
        """Return the bars as they are now: as many as the terminal has room for, and the total."""
        width, height = self._console.size
        grid = Table.grid(padding=(0, 1))
        grid.width = max(width - _ECHO, _NARROWEST)
        grid.add_column(no_wrap=True, overflow="ellipsis", max_width=max(width // 3, 12))
        grid.add_column(width=max(8, min(24, width // 5)))
        grid.add_column(no_wrap=True, justify="right")
        grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        grid.add_column(no_wrap=True, justify="right")
        running = sorted(self._board.running.items())
        room = max(height - 3, 1)
        for index, one in running[:room]:
            grid.add_row(*self._row(index, one))
        if len(running) > room:
            grid.add_row(Text(f"  and {len(running) - room} more", style="dim"))
        grid.add_row(*self._total(len(running)))
        return grid

    def _row(self, index: int, one: Running) -> list[Text | ProgressBar]:
        now = time.monotonic()
        known = one.progress is not None and bool(one.total)
        bar = ProgressBar(
            total=one.total if known else None,
            completed=one.progress or 0,
            pulse=not known,
            animation_time=now,
        )
        return [
            Text(f"  {self._board.label(index).rstrip()}"),
            bar,
            Text(one.amount, style="cyan"),
            Text(one.message),
            Text(seconds(now - one.since), style="dim"),
        ]

    def _total(self, running: int) -> list[Text | ProgressBar]:
        board = self._board
        ended, calls = len(board.ended), len(board.calls)
        waiting = f", {calls - ended - running} waiting" if calls > ended + running else ""
        told = "stopping; Ctrl-C again leaves at once" if board.stopping else ""
        return [
            Text("  total", style="bold"),
            ProgressBar(total=calls, completed=ended),
            Text(f"{ended}/{calls}", style="bold cyan"),
            Text(told or f"{running} running{waiting}", style="yellow" if told else "dim"),
            Text(seconds(time.monotonic() - board.began), style="dim"),
        ]


class _Prints:
    """
    Stands in the place of standard output and error, and gives each whole line on.

    All but `write` is the stream's own: its descriptor, its encoding, its buffer.
    """

    def __init__(self, stream: TextIO, note: Callable[[str], None]) -> None:
        self._stream = stream
        self._note = note
        self._begun = ""
        self._turn = threading.Lock()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Take text, and give on the lines that it completes."""
        with self._turn:
            *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._note(line)
        return len(text)

    def end(self) -> None:
        """Give on a line that was begun and not ended."""
        if self._begun:
            self.write("\n")
