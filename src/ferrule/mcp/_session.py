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
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from importlib.metadata import version
from itertools import count
from typing import Any, Protocol, cast

import anyio
import anyio.lowlevel
import mcp_types as types
from anyio.abc import TaskGroup, TaskStatus
from mcp.client import ClientSession
from mcp.client.session import ElicitationFnT
from mcp.shared.dispatcher import (
    CallOptions,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    run_notify_intercept,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ferrule import FerruleError
from ferrule.helpers import one_line
from ferrule.mcp._listing import usable
from ferrule.mcp._outside import Ended, held, told
from ferrule.mcp._shapes import Wire, is_number, list_of, object_of
from ferrule.mcp._soft import Verdict
from ferrule.mcp._targets import Lane, Target
from mcp import MCPError

logger = logging.getLogger("ferrule.mcp")

DIAL_SECONDS = 30.0
"""What a server may take to be there."""

HANG_UP_SECONDS = 10.0
"""What a connection may take to end."""

LINGER_SECONDS = 2.0
"""What requests of a session that the server does not know any more have to be told so."""

OnProgress = Callable[[float, float | None, str | None], None]
Heard = Callable[[str], None]


class Unreachable(FerruleError):
    """A server cannot be connected to; the sentence says why."""


class Closed(FerruleError):
    """The connection was closed by us."""

    def __str__(self) -> str:
        return "the connection to the server was closed"


class Broken(FerruleError):
    """
    A request that got no result.

    Attributes:
        verdict: Whether it may have run: only `lost` may.
        said: What the server, or its transport, said of it.
        error: What the SDK made of it.
    """

    def __init__(self, verdict: Verdict, said: str, error: MCPError | None = None) -> None:
        super().__init__(verdict, said)
        self.verdict: Verdict = verdict
        self.said = said
        self.error = error

    def __str__(self) -> str:
        return self.said


_REFUSALS = frozenset(
    {
        types.INVALID_REQUEST,
        types.METHOD_NOT_FOUND,
        types.INVALID_PARAMS,
        types.HEADER_MISMATCH,
        types.MISSING_REQUIRED_CLIENT_CAPABILITY,
        types.UNSUPPORTED_PROTOCOL_VERSION,
        types.URL_ELICITATION_REQUIRED,
    }
)
"""Errors that say of a request that it was not begun."""

_ANSWERS: contextvars.ContextVar[list[Wire]] = contextvars.ContextVar("ferrule_mcp_answers")
"""Where the answer to the request that is being sent here goes, as it came."""

_OVER = ""
"""What is heard, in the place of a method, once nothing comes any more."""


class Wiring:
    """
    What goes to one server and comes from it; its answers come back as they are.

    The SDK reads a listing as a whole and refuses it as a whole, and it refuses a result of a kind
    that it does not know. So the answer as it came is put aside, and the SDK gets what it takes.
    Progress is handed on where it is read, so that none comes after the result.

    Attributes:
        progress: Who hears of the progress of which request.
    """

    def __init__(self, lane: Lane, heard: Heard, version_of: Callable[[], str | None]) -> None:
        self._way = lane.dispatcher
        self.progress: dict[str, OnProgress] = {}
        self._heard = heard
        self._version_of = version_of

    @property
    def is_over(self) -> bool:
        """Whether nothing can be sent any more; true before any who waited hears of it."""
        return bool(cast("Any", self._way)._closed)  # noqa: SLF001  # nothing public says it

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Tell the server something."""
        await self._way.notify(method, params, opts)

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
    ) -> dict[str, Any]:
        """Ask the server something, and return its answer, or what the SDK takes for one."""
        if self.is_over:
            raise Broken("not_sent", "the connection to the server is not there any more")
        answer = await self._way.send_raw_request(method, params, self._heard_of(params, opts))
        box = _ANSWERS.get(None)
        if box is None or method not in {"tools/list", "tools/call"}:
            return answer
        box.append(answer)
        return self._palatable(method)(answer)

    def _heard_of(
        self, params: Mapping[str, Any] | None, opts: CallOptions | None
    ) -> CallOptions | None:
        """Hear of progress from a server that is called, which sends none."""
        if params is None or isinstance(self._way, JSONRPCDispatcher):
            return opts
        on_progress = self.progress.get(object_of(params.get("_meta")).get("progressToken", ""))
        if on_progress is None:
            return opts

        async def heard(progress: float, total: float | None, message: str | None) -> None:
            on_progress(progress, total, message)

        return {**(opts or {}), "on_progress": heard}

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Take what comes, until nothing does any more."""

        def listened(method: str, params: Mapping[str, Any] | None) -> bool:
            if method == "notifications/progress" and params is not None:
                self._progressed(params)
                return True
            if run_notify_intercept(on_notify_intercept, method, params):
                return True
            self._heard(method)
            return False

        try:
            await self._way.run(on_request, on_notify, listened, task_status=task_status)
        finally:
            self._heard(_OVER)

    def _progressed(self, params: Mapping[str, Any]) -> None:
        token, done, total = (
            params.get("progressToken"),
            params.get("progress"),
            params.get("total"),
        )
        on_progress = self.progress.get(token) if isinstance(token, str) else None
        if on_progress is None or not is_number(done):
            return
        message = params.get("message")
        said = message if isinstance(message, str) else None
        on_progress(done, total if is_number(total) else None, said)

    def _palatable(self, method: str) -> Callable[[Wire], Wire]:
        protocol = self._version_of() or ""
        plain: Wire = {"resultType": "complete"} if protocol in MODERN_PROTOCOL_VERSIONS else {}
        if method == "tools/call":
            return lambda _: {**plain, "content": []}
        if plain:
            plain |= {"ttlMs": 0, "cacheScope": "private"}

        def palatable(answer: Wire) -> Wire:
            found = answer.get("tools")
            good = [
                tool
                for tool in usable(list_of(found))
                if _taken(protocol, {**plain, "tools": [tool]})
            ]
            return {**plain, "tools": good}

        return palatable


def _taken(protocol: str, answer: Wire) -> bool:
    try:
        methods.validate_server_result("tools/list", protocol, answer)
        types.ListToolsResult.model_validate(answer, by_name=False)
    except (ValueError, KeyError):
        return False
    return True


class Connection:
    """
    One connection to a server, from its handshake to its end.

    Attributes:
        session: The SDK's side of it.
        done: Set when it is over, or is to be.
        ready: Set when changes of the tools are heard of, or never will be.
        group: What goes on beside it, while it lasts.
    """

    def __init__(self, lane: Lane, answer: ElicitationFnT, heard: Heard) -> None:
        self._lane = lane
        self._tokens = count(1)
        self._heard = heard
        self._wiring = Wiring(lane, self._hear, self._version)
        self.done = anyio.Event()
        self.ready = anyio.Event()
        self.group: TaskGroup | None = None
        self._gone = anyio.Event()
        self._in_flight: set[anyio.CancelScope] = set()
        self.session = ClientSession(
            dispatcher=self._wiring,
            elicitation_callback=answer,
            client_info=types.Implementation(name="ferrule", version=version("ferrule")),
        )

    def _version(self) -> str | None:
        return self.session.protocol_version

    def _hear(self, method: str) -> None:
        if method == _OVER:
            self.done.set()
        else:
            self._heard(method)

    @property
    def is_modern(self) -> bool:
        """Whether it speaks a protocol without a handshake."""
        return self._version() in MODERN_PROTOCOL_VERSIONS

    @property
    def is_over(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._wiring.is_over or self.done.is_set() or self._gone.is_set()

    async def until_over(self) -> None:
        """Wait for its end; what the server knows nothing of ends when nothing is under way."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._linger)
            await self.done.wait()
            group.cancel_scope.cancel()

    async def _linger(self) -> None:
        await self._gone.wait()
        await anyio.sleep(LINGER_SECONDS)
        self.done.set()

    @property
    def tells_of_changes(self) -> bool:
        """Whether the server says that it tells when its tools change."""
        capabilities = self.session.server_capabilities
        tools = None if capabilities is None else capabilities.tools
        return tools is not None and bool(tools.list_changed)

    async def negotiate(self, target: Target) -> None:
        """Agree on a protocol: the newest, unless the target says otherwise."""
        if target.era == "auto":
            try:
                await self.session.discover()
            except MCPError as error:
                if self._lane.verdict_of(error) == "not_sent":
                    raise
            except (ValueError, RuntimeError):
                pass
            else:
                return
        try:
            await self.session.initialize()
        except MCPError as error:
            # A probe that took too long may have been heard after all, and settled the era.
            if target.era == "legacy" or error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
                raise
            await self.session.discover()

    async def page(self, cursor: str | None) -> Wire:
        """
        Return one page of the server's tools, as it came.

        Raises:
            Broken: there is none.
        """
        params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
        return await self._answered(lambda: self.session.list_tools(params=params))

    async def call(self, params: Wire, on_progress: OnProgress | None = None) -> Wire:
        """
        Return what a call of a tool gave, as it came.

        Raises:
            Broken: it got no answer, or an error for one.
        """
        token = f"call-{next(self._tokens)}"
        meta = {**params.get("_meta", {}), "progressToken": token}
        request = types.CallToolRequest(
            params=types.CallToolRequestParams.model_validate(
                {**params, "_meta": meta}, by_name=False
            )
        )
        if on_progress is not None:
            self._wiring.progress[token] = on_progress
        try:
            return await self._answered(
                lambda: self.session.send_request(request, types.CallToolResult)
            )
        finally:
            self._wiring.progress.pop(token, None)

    def beside(self, send: Callable[[], Awaitable[object]], seconds: float) -> None:
        """Send something beside everything else, within so many seconds; nobody waits for it."""

        async def sent() -> None:
            with anyio.move_on_after(seconds):
                await held(send())

        if self.group is not None:
            self.group.start_soon(sent)

    async def _answered(self, send: Callable[[], Awaitable[object]]) -> Wire:
        box: list[Wire] = []
        token = _ANSWERS.set(box)
        with anyio.CancelScope() as scope:
            self._in_flight.add(scope)
            try:
                await send()
            except MCPError as error:
                raise self.broken(error) from error
            finally:
                _ANSWERS.reset(token)
                self._in_flight.discard(scope)
                if self._gone.is_set() and not self._in_flight:
                    self.done.set()
        if scope.cancelled_caught:
            raise Broken("lost", "the connection to the server was closed")
        return box[0]

    def hang_up(self) -> None:
        """End what is under way: a server that is called runs in the tasks of who calls."""
        for scope in self._in_flight:
            scope.cancel()

    def broken(self, error: MCPError) -> Broken:
        """Return what an error means for the request that it came of."""
        verdict = self._lane.verdict_of(error)
        if verdict is None:
            verdict = "refused" if error.code in _REFUSALS else "lost"
        if verdict == "gone" or _is_unknown_session(error):
            verdict = "gone"
            self._gone.set()
        said = one_line(error.error.message, 400) or f"error {error.code}"
        if error.code == types.CONNECTION_CLOSED:
            why = self._lane.how_it_ended()
            said = f"{said}: {why}" if why else said
        return Broken(verdict, said, error)


def _is_unknown_session(error: MCPError) -> bool:
    return error.code == types.INVALID_REQUEST and error.error.message in _GONE


_GONE = frozenset({"Session not found", "Session terminated"})


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
    """

    def __init__(
        self, target: Target, *, answer: ElicitationFnT, heard: Heard, tend: Tender
    ) -> None:
        self._target = target
        self._answer = answer
        self._heard = heard
        self._tend = tend
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
            connection = Connection(lane, self._answer, self._heard)
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

    Whoever starts it ends it: it is the owner of a line, which `aclose` waits for.
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
