"""One connection to a server: what is asked of it, and what an answer that is none means."""

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from itertools import count
from typing import Any, Literal

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp import MCPError
from mcp.client import ClaimContext, ClientSession, ResultClaim
from mcp.client.session import ElicitationFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ferrule.helpers import one_line
from ferrule.mcp._outside import held
from ferrule.mcp._shapes import TASKS, Wire
from ferrule.mcp._targets import Lane, Target
from ferrule.mcp._wiring import ANSWERS, OVER, Broken, Heard, OnProgress, Wiring

LINGER_SECONDS = 2.0
"""What requests of a session that the server does not know any more have to be told so."""

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


class _Created(types.Result):
    """A task, for the SDK: what it really is, `Wiring` has put aside."""

    result_type: Literal["task"] = "task"


class _AboutTask(types.Request[dict[str, Any], str]):
    """A request about a task; its id stands in a header too."""

    name_param = "taskId"


async def _unresolved(_: _Created, __: ClaimContext) -> types.CallToolResult:
    raise AssertionError  # pragma: no cover  # nothing is ever called through the SDK's client


_CLAIMS = {TASKS: (ResultClaim(result_type="task", model=_Created, resolve=_unresolved),)}
"""That tasks are taken for answers; without it the SDK says so to servers of the handshake era."""


class Connection:
    """
    One connection to a server, from its handshake to its end.

    Attributes:
        session: The SDK's side of it.
        done: Set when it is over, or is to be.
        ready: Set when changes of the tools are heard of, or never will be.
        group: What goes on beside it, while it lasts.
    """

    def __init__(
        self, lane: Lane, answer: ElicitationFnT, heard: Heard, *, tasks: bool = False
    ) -> None:
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
            extensions={TASKS: {}} if tasks else None,
            result_claims=_CLAIMS if tasks else None,
            client_info=types.Implementation(name="ferrule", version=version("ferrule")),
        )

    def _version(self) -> str | None:
        return self.session.protocol_version

    def _hear(self, method: str) -> None:
        if method == OVER:
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

    async def task(self, method: str, params: Wire) -> Wire:
        """
        Return what the server says about a task, as it came.

        Raises:
            Broken: it says nothing, or refuses to.
        """
        request = _AboutTask(method=method, params=params)
        return await self._answered(lambda: self.session.send_request(request, types.EmptyResult))

    def beside(self, send: Callable[[], Awaitable[object]], seconds: float) -> None:
        """Send something beside everything else, within so many seconds; nobody waits for it."""

        async def sent() -> None:
            with anyio.move_on_after(seconds):
                await held(send())

        if self.group is not None:
            self.group.start_soon(sent)

    async def _answered(self, send: Callable[[], Awaitable[object]]) -> Wire:
        box: list[Wire] = []
        token = ANSWERS.set(box)
        with anyio.CancelScope() as scope:
            self._in_flight.add(scope)
            try:
                await send()
            except MCPError as error:
                raise self.broken(error) from error
            finally:
                ANSWERS.reset(token)
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
