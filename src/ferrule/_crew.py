"""
Who runs calls: the workers of a batch, and the threads that nobody waits for any more.

A worker runs one call at a time and can be told to stop it. A thread cannot: one that does not end
is left behind. It still counts: until it ends, the executor has one slot less, and what the call
works on is taken (CONTRACT EXE-6).
"""

import threading
from collections.abc import Callable, Iterable

import anyio

from ferrule._backend import native_task
from ferrule._context import Thread, Threads
from ferrule._jobs import Job
from ferrule._traits import Shared, Use


class Worker:
    """
    One hired worker: what it runs and how it is told to stop.

    Attributes:
        told: Whether it was told to stop: it takes no further call then.
    """

    __slots__ = ("job", "shield", "task", "threads", "told")

    def __init__(
        self, shield: "anyio.CancelScope", limiter: "Callable[[], anyio.CapacityLimiter]"
    ) -> None:
        self.job: Job | None = None
        self.shield = shield
        self.task = native_task()
        self.threads = Threads(limiter)
        self.told = False

    def stop(self, grace: float) -> None:
        """Tell the running call to stop, as its backend does; after `grace` for good."""
        if self.told:
            return
        self.told = True
        deadline = anyio.current_time() + grace
        if self.job is not None and self.threads.scope is not None:
            self.threads.scope.deadline = deadline
        elif self.job is None or self.task is None:
            self.shield.cancel()
        else:
            self.task.cancel()
            self.shield.deadline = deadline


class Stuck:
    """
    The threads of an executor that were left behind, with what their calls work on.

    Safe between threads. `len` says how many slots they take.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Thread[object], tuple[Use, ...]] = {}
        self._listeners: dict[Thread[object], list[Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def leave(self, thread: Thread[object], uses: tuple[Use, ...]) -> None:
        """Leave a thread behind; it is forgotten when it ends."""
        with self._lock:
            self._held[thread] = uses
        thread.then(lambda: self._forget(thread))

    def when_free(self, thread: Thread[object], listener: Callable[[], None]) -> None:
        """
        Have `listener` called once what a thread held is free, in that thread; at once if it is.

        Not before: who looks then must not find it taken, as nobody would tell it again.
        """
        with self._lock:
            if thread in self._held:
                self._listeners.setdefault(thread, []).append(listener)
                return
        listener()

    def holds(self, uses: Iterable[Use]) -> bool:
        """Say whether a thread works on something that a call cannot have beside it."""
        wanted = {_state(use): isinstance(use, Shared) for use in uses}
        with self._lock:
            held = [use for taken in self._held.values() for use in taken]
        return any(
            not (wanted[_state(use)] and isinstance(use, Shared))
            for use in held
            if _state(use) in wanted
        )

    def threads(self) -> list[Thread[object]]:
        """Return the threads that have not ended."""
        with self._lock:
            return list(self._held)

    def _forget(self, thread: Thread[object]) -> None:
        with self._lock:
            self._held.pop(thread, None)
            listeners = self._listeners.pop(thread, [])
        for listener in listeners:
            listener()


def _state(use: Use) -> str:
    return use.state if isinstance(use, Shared) else use
