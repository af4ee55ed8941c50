"""What anyio has no word for: the few things said to asyncio or trio themselves."""

import contextvars
import sys
from collections.abc import Callable
from typing import Protocol, cast

import anyio
import anyio.lowlevel

Token = anyio.lowlevel.EventLoopToken
"""Names one running loop; may be used from any thread."""


def loop_runs() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        anyio.lowlevel.current_token()
    except RuntimeError:
        return False
    return True


class Task(Protocol):
    """A task of asyncio, as far as it is told to stop."""

    def cancel(self) -> object:
        """Raise `CancelledError` in it, once."""
        ...

    def cancelling(self) -> int:
        """Return how many times somebody has done so, and not taken it back."""
        ...


def native_task() -> Task | None:
    """Return the running asyncio task, or `None` on trio; asyncio is never imported by us."""
    asyncio = sys.modules.get("asyncio")
    try:
        return cast("Task | None", asyncio.current_task()) if asyncio is not None else None
    except RuntimeError:
        return None


def is_told_to_stop() -> bool:
    """Return whether somebody cancels the running asyncio task itself; on trio nobody can."""
    task = native_task()
    return task is not None and task.cancelling() > 0


class _AsyncioLoop(Protocol):
    def call_soon_threadsafe(self, callback: Callable[[], object], /) -> object: ...


class _TrioToken(Protocol):
    def run_sync_soon(self, callback: Callable[[], object], /) -> object: ...


def call_soon(token: Token, callback: Callable[[], object]) -> None:
    """Have the loop of `token` call `callback` soon; from any thread, without waiting for it."""
    native = token.native_token
    if hasattr(native, "call_soon_threadsafe"):
        cast("_AsyncioLoop", native).call_soon_threadsafe(callback)
    else:
        cast("_TrioToken", native).run_sync_soon(callback)


def variables_for_a_thread() -> contextvars.Context:
    """Return a copy of this task's contextvars for a thread of our own, where no loop runs."""
    variables = contextvars.copy_context()
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:  # Which would say that our loop runs there too.
        variables.run(sniffio.current_async_library_cvar.set, None)
    return variables
