"""
The line to one server: dialled by a task of its own, kept, and dialled again when it broke.

Theory. A connection of the SDK must be entered and left in one task, and whoever calls is in
another. So each line has an owner: a task that dials when it is asked to, stays inside the
connection until that is over or nobody wants it any more, and then waits to be asked again. Callers
send from their own tasks, so that cancelling one of them cancels its request and nothing else. What
is known of a request that got no answer is one of four things (see `_soft`), and only what was
certainly not run is ever sent again.
"""

import asyncio
import contextvars
import logging
import math
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Protocol, cast

import anyio
import anyio.lowlevel
from mcp import MCPError
from mcp.client.session import ElicitationFnT

from ferrule import FerruleError
from ferrule.mcp._connection import Connection
from ferrule.mcp._outside import Ended, held, told
from ferrule.mcp._targets import Target
from ferrule.mcp._wiring import Heard

logger = logging.getLogger("ferrule.mcp")

DIAL_SECONDS = 30.0
"""What a server may take to be there."""

HANG_UP_SECONDS = 10.0
"""What a connection may take to end."""


class Unreachable(FerruleError):
    """A server cannot be connected to; the sentence says why."""


class Closed(FerruleError):
    """The connection was closed by us."""

    def __str__(self) -> str:
        return "the connection to the server was closed"


class Dial:
    """One attempt to connect, which several callers may wait for."""

    def __init__(self) -> None:
        self.settled = anyio.Event()
        self.connection: Connection | None = None
        self.error: BaseException | None = None

    def settle(self, connection: Connection | None, error: BaseException | None = None) -> None:
        """Say how it went; the first to say so is right."""
        if not self.settled.is_set():
            self.connection, self.error = connection, error
            self.settled.set()

    @property
    def failure(self) -> FerruleError:
        """Why there is no connection, anew for each who waited."""
        error = self.error
        made = Closed() if isinstance(error, Closed) else Unreachable(told(error or TimeoutError()))
        made.__cause__ = error
        return made


class Tender(Protocol):
    """What goes on beside a connection for as long as it lasts."""

    def __call__(self, connection: Connection, /) -> Awaitable[None]:
        """Run, until cancelled."""
        ...


class Line:
    """
    The line to one server: there when it is needed, from any task of one loop.

    Args:
        target: The server.
        answer: What answers questions of the server's own.
        heard: Hears the method of each notification, in the order they come.
        tend: What goes on beside each connection.
        tasks: Whether tasks are taken for answers.
    """

    def __init__(
        self,
        target: Target,
        *,
        answer: ElicitationFnT,
        heard: Heard,
        tend: Tender,
        tasks: bool = False,
    ) -> None:
        self._target = target
        self._answer = answer
        self._heard = heard
        self._tend = tend
        self._tasks = tasks
        self._wanted = anyio.Event()
        self._dial: Dial | None = None
        self._owned = False
        self._ended = anyio.Event()
        self._closing = False
        self._latest: Connection | None = None
        self._scope: anyio.CancelScope | None = None

    async def connection(self) -> Connection:
        """
        Return the connection that is there, or another one if it is over.

        Raises:
            Unreachable: there is none to be had.
            Closed: nobody is to be connected any more.
        """
        latest = self._latest
        if not self._closing and latest is not None and not latest.is_over:
            return latest
        if self._closing:
            raise Closed
        dial = self._dial
        if dial is None or dial.settled.is_set():
            self._latest = None
            dial = self._dial = Dial()
            self._want()
        await dial.settled.wait()
        if dial.connection is None:
            raise dial.failure
        return dial.connection

    async def aclose(self) -> None:
        """End the connection and its owner; a second time waits for the same."""
        self._closing = True
        if not self._owned:
            return
        self._wanted.set()
        if self._dial is not None and not self._dial.settled.is_set():
            self._dial.settle(None, Closed())
            if self._scope is not None:
                self._scope.cancel()
        if self._latest is not None:
            self._latest.done.set()
        await self._ended.wait()

    def _want(self) -> None:
        self._wanted.set()
        if not self._owned:
            self._owned = True
            self._ended = anyio.Event()
            spawn(self._own)

    async def _own(self) -> None:
        """Be the task that connections are entered and left in."""
        try:
            while not self._closing:
                self._wanted = anyio.Event()
                dial = self._dial
                if dial is not None and not dial.settled.is_set():
                    await self._through(dial)
                    continue
                await self._wanted.wait()
        finally:
            self._owned = False
            self._ended.set()
            if self._dial is not None:
                self._dial.settle(None, Closed())

    async def _through(self, dial: Dial) -> None:
        """Go through one connection, from dialling to its end."""
        seconds = DIAL_SECONDS + self._target.more_seconds
        with anyio.CancelScope(deadline=anyio.current_time() + seconds) as self._scope:
            ended = await held(self._connected(dial))
            if isinstance(ended, Ended):
                logger.debug("a connection to %s ended: %s", self._target.label, ended)
                dial.settle(None, ended.error)
        dial.settle(None, TimeoutError(f"it did not answer within {seconds:g} s"))
        if self._latest is dial.connection:
            self._latest = None

    async def _connected(self, dial: Dial) -> None:
        async with AsyncExitStack() as stack:
            lane = await self._target.open(stack)
            connection = Connection(lane, self._answer, self._heard, tasks=self._tasks)
            await stack.enter_async_context(connection.session)
            try:
                await connection.negotiate(self._target)
            except (MCPError, RuntimeError, ValueError, FerruleError) as error:
                why = lane.how_it_ended()
                dial.settle(None, Unreachable(f"{told(error)}: {why}" if why else told(error)))
                return
            self._latest = connection
            dial.settle(connection)
            if self._scope is not None:
                self._scope.deadline = math.inf
            await self._until_over(connection)
            connection.hang_up()
            if self._scope is not None:
                self._scope.deadline = anyio.current_time() + HANG_UP_SECONDS

    async def _until_over(self, connection: Connection) -> None:
        async with anyio.create_task_group() as group:
            connection.group = group
            group.start_soon(self._tended, connection)
            await connection.until_over()
            connection.group = None
            group.cancel_scope.cancel()

    async def _tended(self, connection: Connection) -> None:
        done = await held(self._tend(connection))
        if isinstance(done, Ended):
            logger.warning("what looks after %s broke: %s", self._target.label, done)


_owners: set["asyncio.Task[None]"] = set()


def spawn(function: Callable[[], Awaitable[None]]) -> None:
    """
    Start a task that belongs to no block, with none of our contextvars.

    Whoever starts it ends it, and waits for its end when it is closed.
    """
    native = anyio.lowlevel.current_token().native_token
    if hasattr(native, "run_sync_soon"):
        cast("Any", sys.modules["trio"]).lowlevel.spawn_system_task(function)
        return
    task = asyncio.get_running_loop().create_task(
        cast("Any", function()), context=contextvars.Context()
    )
    _owners.add(task)
    task.add_done_callback(_owners.discard)
