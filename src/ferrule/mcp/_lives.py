"""What lasts as long as a connection, or as the app where connections come and go."""

import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
import anyio.abc
import anyio.from_thread
import anyio.lowlevel
from mcp import types
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

from ferrule import Registry
from ferrule.mcp._request import Wire, connection_of
from ferrule.mcp._who import Session


class Stoppable(Protocol):
    """A call of this life."""

    def stop(self) -> None:
        """Stop it."""
        ...


class Life:
    """
    One life of a server: from the opening of a transport to its end.

    Attributes:
        session: Whom all its calls come from, where it has one client alone.
        tasks: What runs calls; all of them are stopped at the end.
        parked: Calls that wait for the next request of their client.
        alone: Calls that run in the tasks of their requests.
        long: Calls that became tasks, which their clients come back for.
        ending: Whether it is over, and not a client that stops its calls.
    """

    def __init__(self, session: Session | None, tasks: anyio.abc.TaskGroup) -> None:
        self.session = session
        self.tasks = tasks
        self.parked: dict[str, Stoppable] = {}
        self.alone: set[Stoppable] = set()
        self.long: dict[str, Stoppable] = {}
        self.ending = False
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self._connections: dict[Connection, ServerSession] = {}
        self._changed = anyio.Event()
        self._token = anyio.lowlevel.current_token()
        self._thread = threading.get_ident()

    # ---- changed tools ---------------------------------------------------------------------------

    def note(self) -> None:
        """Note that the tools changed, from any thread."""
        if threading.get_ident() == self._thread:
            self._changed.set()
        elif not self.ending:
            anyio.from_thread.run_sync(self._changed.set, token=self._token)

    async def listen(
        self, wire: Wire, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Tell one client of changes as long as it listens."""
        return await self._listen(wire, params)

    async def greet(self, wire: Wire, _: types.NotificationParams) -> None:
        """Tell a connection of the handshake era of changes from now on."""
        connection = connection_of(wire)
        self._connections[connection] = wire.session
        connection.exit_stack.callback(self._connections.pop, connection, None)

    async def announce(self) -> None:
        """Tell of a change that was noted; returns when it is on its way."""
        if self._changed.is_set():
            self._changed = anyio.Event()
            await self._bus.publish(ToolsListChanged())
            for session in list(self._connections.values()):
                await session.send_tool_list_changed()

    async def keep_announcing(self) -> None:
        """Tell of every change; for ever."""
        while True:
            await self._changed.wait()
            await self.announce()

    def hush(self) -> None:
        """Let go of who listens for changes."""
        self._listen.close()

    def end(self) -> None:
        """Stop what runs."""
        self.ending = True
        self.hush()
        for call in list(self.alone):
            call.stop()
        self.tasks.cancel_scope.cancel()


@asynccontextmanager
async def living(
    session: Session | None, registry: Registry, lives: set[Life]
) -> AsyncGenerator[Life]:
    """Give a life to what is served while the block runs; it is among `lives` as long."""
    async with anyio.create_task_group() as tasks:
        life = Life(session, tasks)
        forget: Callable[[], None] = registry.when_changed(life.note)
        tasks.start_soon(life.keep_announcing)
        lives.add(life)
        try:
            yield life
        finally:
            forget()
            lives.discard(life)
            life.end()
