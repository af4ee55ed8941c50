"""Strands Agents: the decorated tool's `stream` for a call, and an agent's run for a turn."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

import orjson
from strands import Agent, tool
from strands.models import Model
from strands.telemetry import EventLoopMetrics
from strands.tools.decorator import DecoratedFunctionTool

from ferrule import ToolCall

PACKAGES = ("strands-agents",)
CALL = "`orjson.loads` and the tool's `stream`"
TURN = "`Agent.invoke_async` with a model that is scripted"

Event = dict[str, object]


class Scripted(Model):
    """A model that asks for the calls, and when it has read their results says that it is done."""

    def __init__(self, calls: Sequence[ToolCall]) -> None:
        self.calls = calls

    def update_config(self, **_: object) -> None:
        """Do nothing: there is nothing to configure."""

    def get_config(self) -> dict[str, object]:
        """Return nothing."""
        return {}

    def structured_output(self, *_: object, **__: object) -> object:
        """Never called."""
        raise NotImplementedError

    async def stream(
        self, messages: Sequence[object], *_: object, **__: object
    ) -> AsyncGenerator[Event, None]:
        """Answer by how far the conversation is."""
        yield {"messageStart": {"role": "assistant"}}
        asked = len(messages) == 1
        blocks = map(use, self.calls) if asked else [({}, {"text": "Done."})]
        for start, delta in blocks:
            yield {"contentBlockStart": {"start": start}}
            yield {"contentBlockDelta": {"delta": delta}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if asked else "end_turn"}}


def use(call: ToolCall) -> tuple[Event, Event]:
    """Return how a call begins, and what follows."""
    return (
        {"toolUse": {"toolUseId": call.id, "name": call.name}},
        {"toolUse": {"input": call.arguments}},
    )


def define(function: Callable[..., object]) -> DecoratedFunctionTool:
    """Make a tool; its schema is made at once."""
    return tool(function)


async def caller(tool: DecoratedFunctionTool) -> Callable[[str], Awaitable[object]]:
    """Return what streams a call to its end."""

    async def call(text: str) -> object:
        asked = {"toolUseId": "call_1", "name": tool.tool_name, "input": orjson.loads(text)}
        return [event async for event in tool.stream(asked, {})]

    return call


async def turn(
    tool: DecoratedFunctionTool, calls: Sequence[ToolCall]
) -> Callable[[], Awaitable[object]]:
    """Return a run whose model asks for the calls, and then says that it is done."""
    agent = Agent(model=Scripted(calls), tools=[tool], callback_handler=None)

    async def run() -> None:
        await agent.invoke_async("Begin.")
        agent.messages.clear()  # the next run is another conversation's, and nothing piles up
        agent.event_loop_metrics = EventLoopMetrics()

    return run
