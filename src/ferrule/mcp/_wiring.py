"""
What goes to one server and comes from it, as it is.

The SDK reads a listing as a whole and refuses it as a whole, and it refuses a result of a kind that
it does not know. Here the answer as it came is put aside, and the SDK gets what it takes.
"""

import contextvars
from collections.abc import Callable, Mapping
from typing import Any, cast

import anyio
import mcp_types as types
from anyio.abc import TaskStatus
from mcp import MCPError
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
from ferrule.mcp._listing import usable
from ferrule.mcp._shapes import Wire, is_number, list_of, object_of
from ferrule.mcp._soft import Verdict
from ferrule.mcp._targets import Lane

OnProgress = Callable[[float, float | None, str | None], None]
Heard = Callable[[str], None]


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


ANSWERS: contextvars.ContextVar[list[Wire]] = contextvars.ContextVar("ferrule_mcp_answers")
"""Where the answer to the request that is being sent here goes, as it came."""

_LOOKED_AT = {"tools/list", "tools/call", "tasks/get", "tasks/update", "tasks/cancel"}
"""What is asked with a place for the answer as it came."""

OVER = ""
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
        box = ANSWERS.get(None)
        if box is None or method not in _LOOKED_AT:
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
            self._heard(OVER)

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
        if method != "tools/list":
            return lambda _: plain
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
