"""
Ctrl-C, once and twice.

The first asks: the calls are stopped, waited for and reported. The second does not: the process
ends at once, since a tool that does not let go must not hold the person at the terminal. A handler
of Python's own is used and not one of the loop, because a tool may be holding the loop.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self, TypeAlias

Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BASE = 128
"""What a shell adds to the number of the signal that ended a process."""


class Interruption:
    """
    Watches for signals while its block runs, on an asyncio loop in the main thread.

    Args:
        stop: Called in the loop when the first signal comes.
        leave: Called when the second comes, right before the process ends; in a signal handler,
            so it waits for nothing and takes no lock.

    Attributes:
        exit_code: 0, or what a process ends with that this signal stopped.
    """

    def __init__(self, stop: Callable[[], object], leave: Callable[[], object]) -> None:
        self.exit_code = 0
        self._stop = stop
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._before: list[tuple[signal.Signals, Handler]] = []

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            # What the parent had ignored stays so: a job in the background, under nohup.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before.append((number, signal.signal(number, self._on_signal)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.exit_code:
            self._leave()
            os._exit(self.exit_code)
        self.exit_code = _BASE + number
        self._loop.call_soon_threadsafe(self._stop)
