"""
A thread of a tool's own: `run_in="dedicated"`.

For libraries that belong to one thread, as a connection to SQLite or a GUI does. The calls of a
tool run there one at a time, in the order they come, from however many event loops. The thread
starts with the first call. It ends when the tool is closed, or is no longer there to be called; a
process does not wait for it to end, since a call that is stuck would then hold the process, and a
tool that nobody closed is no reason for that.
"""

import contextlib
import importlib
import inspect
import queue
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, cast

import anyio
import anyio.lowlevel

from ferrule._backend import call_soon, variables_for_a_thread
from ferrule._contain import Threw
from ferrule._context import (
    Bridge,
    Context,
    Thread,
    Threads,
    here,
    watched,
)
from ferrule._failure import Failure
from ferrule._tool import Close, close_with
from ferrule.errors import FerruleError, InvalidCall

T = TypeVar("T")


class Dedicated:
    """One thread for all calls of a tool, given the tool's name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._errands: queue.SimpleQueue[_Errand[object] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def run(self, context: Context, function: Callable[[], T]) -> T:
        """
        Run `function` when the calls before it have ended, with the contextvars of its call.

        Raises:
            Failure: the call was told to stop before its turn; the function did not run.
            StillRunning: an executor gave up waiting for a call that has begun.
            InvalidCall: the tool was closed.
        """
        errand = _Errand(function, context.tool)
        context.when_stopped(errand.withdraw)  # At once, if it was told to stop before.
        try:
            self._send(cast("_Errand[object]", errand))
            await watched(context, errand.wait)
        finally:
            context.when_stopped(None)
        return errand.given()

    async def aclose(self, close: Close | None) -> None:
        """
        End the thread when all calls have ended, and return when it has.

        `close` is called there, as the last thing: what belongs to the thread is released there.
        """
        with self._lock:
            thread, self._thread = self._thread, None
            self._closed = True
        if thread is None:
            await close_with(close)
            return
        errand = _Errand(close or _nothing, self._name)
        self._errands.put(cast("_Errand[object]", errand))
        self._errands.put(None)
        await errand.ended.wait()
        thread.join()  # It has nothing left to do.
        closing = errand.given()
        if inspect.isawaitable(closing):
            await closing

    def _send(self, errand: "_Errand[object]") -> None:
        with self._lock:
            if self._closed:
                raise InvalidCall("unavailable")
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_serve, args=(self._errands,), name=f"ferrule {self._name}", daemon=True
                )
                self._thread.start()
                weakref.finalize(self, self._errands.put, None)
            self._errands.put(errand)


def _serve(errands: "queue.SimpleQueue[_Errand[object] | None]") -> None:
    """Be the thread; holds its queue and nothing of the tool."""
    while (errand := errands.get()) is not None:
        errand.run()
        del errand  # What it gave is not kept until the next one comes.


def _nothing() -> None:
    """Stand for a close function where there is none."""


class _Errand(Generic[T]):
    """
    One function on its way through the thread, and what is known of it in its loop.

    Attributes:
        ended: Set in its loop when it was run or withdrawn.
    """

    def __init__(self, function: Callable[[], T], tool: str) -> None:
        self.ended = anyio.Event()
        self._thread = Thread(function)
        self._tool = tool
        self._variables = variables_for_a_thread()
        self._token = anyio.lowlevel.current_token()
        self._lock = threading.Lock()
        self._taken = False
        self._done: T | Threw | None = None
        self._given_up = False
        self._asking: anyio.CancelScope | None = None

    # ---- in its loop ---------------------------------------------------------------------------

    async def wait(self, threads: Threads | None) -> None:
        """Wait until it has ended; when cancelled, only for what an executor does not watch."""
        try:
            await self.ended.wait()
        finally:
            if not self.ended.is_set() and not self.withdraw():
                if threads is not None:
                    threads.running = self._thread
                    self._give_up()
                else:
                    with anyio.CancelScope(shield=True):
                        await self.ended.wait()

    def withdraw(self) -> bool:
        """Have it not run, if it has not begun, and say whether it has not."""
        if not self._take():
            return False
        told = f'tool "{self._tool}" did not run: it was stopped before its thread had come to it'
        self._end(Threw(Failure(told)))
        return True

    def given(self) -> T:
        """Return what the function gave, or raise what it raised."""
        if isinstance(self._done, Threw):
            raise self._done.error
        return cast("T", self._done)

    def _give_up(self) -> None:
        self._given_up = True
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self, function: Callable[..., Awaitable[T]], arguments: tuple[object, ...]) -> T:
        """Do in the loop what the function waits for, unless nobody waits for the function."""
        with anyio.CancelScope() as self._asking:
            if not self._given_up:
                return await function(*arguments)
        raise FerruleError("nobody waits for this call any more")

    # ---- in the thread -------------------------------------------------------------------------

    def run(self) -> None:
        """Call the function, unless it was withdrawn."""
        if not self._take():
            return
        here.bridge = cast("Bridge", self._wait_for)
        done = self._variables.run(self._thread)
        here.bridge = None
        self._end(done)

    def _wait_for(self, function: Callable[..., Awaitable[T]], /, *arguments: object) -> T:
        blocking = importlib.import_module("ferrule._blocking")
        return cast("T", blocking.run(self._ask, function, arguments, token=self._token))

    # ---- in either -----------------------------------------------------------------------------

    def _take(self) -> bool:
        """Say whether nobody has taken it before: the thread to run it, the loop to withdraw it."""
        with self._lock:
            taken, self._taken = self._taken, True
        return not taken

    def _end(self, done: T | Threw) -> None:
        self._done = done
        with contextlib.suppress(RuntimeError):  # The loop has ended meanwhile.
            call_soon(self._token, self.ended.set)
