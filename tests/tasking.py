"""A tool that takes long, and a client of the SDK that shows tasks as they came."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import anyio
from mcp import Client, types
from mcp.client import ClaimContext, ClientExtension, ResultClaim
from pydantic import ConfigDict

from ferrule import tool

EXTENSION = "io.modelcontextprotocol/tasks"
Told = dict[str, Any]
Replay = Literal["unknown", "safe"]


class Held:
    """A tool that runs until it is let go, and notes what happens to it."""

    def __init__(self, replay: Replay = "unknown") -> None:
        self.begun, self.let_go, self.stopped = anyio.Event(), anyio.Event(), anyio.Event()
        self.runs = 0

        @tool(replay=replay)
        async def held() -> str:
            """Wait."""
            self.runs += 1
            self.begun.set()
            try:
                await self.let_go.wait()
            finally:
                self.stopped.set()
            return "let go"

        self.tool = held


class Shown(types.Result):
    """Any result, with whatever is in it."""

    model_config = ConfigDict(extra="allow")


class Created(Shown):
    """A task that a call was answered with."""

    result_type: Literal["task"] = "task"


class Plain(types.Request[dict[str, Any], str]):
    """Any request."""


class About(Plain):
    """A request about a task."""

    name_param = "taskId"


async def _unresolved(_: Created, __: ClaimContext) -> types.CallToolResult:
    raise AssertionError


class Taking(ClientExtension):
    """Says that tasks are taken."""

    identifier = EXTENSION

    def claims(self) -> tuple[ResultClaim[Created]]:
        """Return what is taken."""
        return (ResultClaim(result_type="task", model=Created, resolve=_unresolved),)


async def called(client: Client, name: str, /, **arguments: object) -> Told:
    """Return what a call was answered with."""
    answer = await client.session.call_tool(
        name, arguments, allow_claimed=True, allow_input_required=True
    )
    return answer.model_dump(by_alias=True, mode="json")


async def asked(client: Client, method: str, task_id: str, **more: object) -> Told:
    """Return what a server says about a task."""
    request = About(method=method, params={"taskId": task_id, **more})
    answer = await client.session.send_request(request, Shown)
    return answer.model_dump(by_alias=True, mode="json")


async def got(client: Client, task_id: str) -> Told:
    """Return how a task stands."""
    return await asked(client, "tasks/get", task_id)


async def until(client: Client, task_id: str, *statuses: str) -> Told:
    """Return how a task stands as soon as that is one of these."""
    return await when(lambda: got(client, task_id), lambda told: told["status"] in statuses)


async def when(look: Callable[[], Awaitable[Told]], is_so: Callable[[Told], bool]) -> Told:
    """Look again and again, until it is so."""
    while not is_so(told := await look()):  # noqa: ASYNC110  # a server has no event of ours
        await anyio.sleep(0.01)
    return told
