"""Anthropic's SDK: `beta_async_tool.call` for a call, and its tool runner for a turn."""

from collections.abc import Awaitable, Callable, Sequence

import httpx2
import orjson
from anthropic import AsyncAnthropic, beta_async_tool
from anthropic.lib.tools import BetaAsyncFunctionTool

from ferrule import ToolCall

PACKAGES = ("anthropic",)
CALL = "`orjson.loads` and `beta_async_tool(…).call`"
TURN = "`tool_runner` with a transport that answers in memory; one call after another"

Tool = BetaAsyncFunctionTool[Callable[..., Awaitable[object]]]


def define(function: Callable[..., Awaitable[object]]) -> Tool:
    """Make a tool, and its definition, which holds the schema."""
    made = beta_async_tool(function)
    assert made.to_dict()
    return made


async def caller(tool: Tool) -> Callable[[str], Awaitable[object]]:
    """Return what calls the tool with the arguments of a call."""

    async def call(text: str) -> object:
        return await tool.call(orjson.loads(text))

    return call


def answer(content: Sequence[dict[str, object]], reason: str) -> bytes:
    """Return a message of a model, as it is sent."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    kind = {"id": "msg_1", "type": "message", "role": "assistant", "model": "bench"}
    stop = {"stop_reason": reason, "stop_sequence": None, "usage": usage}
    return orjson.dumps({**kind, "content": content, **stop})


async def turn(tool: Tool, calls: Sequence[ToolCall]) -> Callable[[], Awaitable[object]]:
    """Return a run whose model asks for the calls, and then says that it is done."""
    uses = [
        {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": orjson.loads(call.arguments),
        }
        for call in calls
    ]
    asks = answer(uses, "tool_use")
    says = answer([{"type": "text", "text": "Done."}], "end_turn")

    def model(request: httpx2.Request) -> httpx2.Response:
        content = says if b'"tool_result"' in request.content else asks
        return httpx2.Response(200, content=content, headers={"content-type": "application/json"})

    transport = httpx2.AsyncClient(transport=httpx2.MockTransport(model))
    client = AsyncAnthropic(api_key="none", base_url="http://model.invalid", http_client=transport)

    async def run() -> object:
        runner = client.beta.messages.tool_runner(
            model="bench",
            max_tokens=1000,
            messages=[{"role": "user", "content": "Begin."}],
            tools=[tool],
        )
        return await runner.until_done()

    return run
