"""OpenAI Agents SDK: a function tool's own `on_invoke_tool`, and a run of an agent for a turn."""

from collections.abc import Awaitable, Callable, Sequence

from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from agents.testing import assistant_message, function_call
from agents.tool_context import ToolContext

from ferrule import ToolCall

PACKAGES = ("openai-agents",)
CALL = "`FunctionTool.on_invoke_tool`"
TURN = "`Runner.run` with a model that is scripted"

set_tracing_disabled(disabled=True)


class Scripted(Model):
    """A model that asks for the calls, and when it has read their results says that it is done."""

    def __init__(self, calls: Sequence[ToolCall]) -> None:
        self.asks = [function_call(call.name, call.arguments, call_id=call.id) for call in calls]
        self.says = [assistant_message("Done.")]

    async def get_response(
        self, *_: object, input: str | list[object], **__: object
    ) -> ModelResponse:
        """Answer by how far the run is."""
        output = self.asks if isinstance(input, str) or len(input) == 1 else self.says
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_: object, **__: object) -> object:
        """Never called."""
        raise NotImplementedError


def define(function: Callable[..., object]) -> FunctionTool:
    """Make a tool; its schema is made at once."""
    return function_tool(function)


async def caller(tool: FunctionTool) -> Callable[[str], Awaitable[object]]:
    """Return what invokes the tool in a context of its own, as a run does."""

    async def call(text: str) -> object:
        context = ToolContext(
            context=None, tool_name=tool.name, tool_call_id="call_1", tool_arguments=text
        )
        return await tool.on_invoke_tool(context, text)

    return call


async def turn(tool: FunctionTool, calls: Sequence[ToolCall]) -> Callable[[], Awaitable[object]]:
    """Return a run whose model asks for the calls, and then says that it is done."""
    agent = Agent(name="bench", tools=[tool], model=Scripted(calls))
    config = RunConfig(tracing_disabled=True)

    async def run() -> object:
        return await Runner.run(agent, "Begin.", run_config=config)

    return run
