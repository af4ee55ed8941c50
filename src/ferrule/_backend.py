"""What anyio has no word for: the few things said to asyncio or trio themselves."""

import contextvars
import sys
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, Protocol, cast

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


def native_task() -> Task | None:
    """Return the running asyncio task, or `None` on trio; asyncio is never imported by us."""
    asyncio = sys.modules.get("asyncio")
    try:
        return cast("Task | None", asyncio.current_task()) if asyncio is not None else None
    except RuntimeError:
        return None


class Begun:
    """A coroutine that was begun by hand and waits: await this for the rest of it."""

    __slots__ = ("_trap", "close", "send", "throw")

    def __init__(self, steps: Coroutine[Any, Any, None], trap: object) -> None:
        self._trap = trap
        # The loop speaks to the coroutine itself, as it would have done all along.
        self.send, self.throw, self.close = steps.send, steps.throw, steps.close

    def __await__(self) -> Generator[Any, Any, None]:
        return cast("Generator[Any, Any, None]", self)

    def __next__(self) -> object:
        """Give the loop what the coroutine waits for, first of all what it came up with."""
        trap, self._trap = self._trap, _ENDED
        return self.send(None) if trap is _ENDED else trap


def begin(steps: Coroutine[Any, Any, None]) -> Begun | None:
    """
    Run a coroutine until it ends, or waits for the first time: then the rest of it is returned.

    So the caller hears whether it waits, which `await` tells nobody.
    """
    # Not `send`: of an end it makes an exception, which costs as much as a small call. `next` makes
    # none of an end that has no value.
    trap = next(cast("Iterator[object]", steps.__await__()), _ENDED)
    return None if trap is _ENDED else Begun(steps, trap)


_ENDED = object()


class _AsyncioLoop(Protocol):
    def call_soon_threadsafe(self, callback: Callable[[], object], /) -> object: ...


class _TrioToken(Protocol):
    def run_sync_soon(self, callback: Callable[[], object], /) -> object: ...


def clock(token: Token) -> Callable[[], float]:
    """Return what says the time of a loop, in the loop itself; asking anyio costs three times."""
    return getattr(token.native_token, "time", anyio.current_time)


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
