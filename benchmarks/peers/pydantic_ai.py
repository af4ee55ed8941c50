"""Pydantic AI: `ToolManager` for a call, and an agent whose model is a function for a turn."""

from collections.abc import Awaitable, Callable, Sequence

from pydantic_ai import Agent, FunctionToolset, RunContext, RunUsage, Tool
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tool_manager import ToolManager

from ferrule import ToolCall

PACKAGES = ("pydantic-ai-slim",)
CALL = "`ToolManager.handle_call`"
TURN = "`Agent.run` with a `FunctionModel`"


def define(function: Callable[..., object]) -> Tool:
    """Make a tool, and its definition, which holds the schema."""
    made = Tool(function)
    assert made.tool_def.parameters_json_schema
    return made


async def caller(tool: Tool) -> Callable[[str], Awaitable[object]]:
    """Return what hands a call to a manager of tools that is ready for its step."""
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage(), run_step=1)
    manager = await ToolManager(FunctionToolset([tool])).for_run_step(context)

    async def call(text: str) -> object:
        return await manager.handle_call(ToolCallPart(tool.name, text, tool_call_id="call_1"))

    return call


async def turn(tool: Tool, calls: Sequence[ToolCall]) -> Callable[[], Awaitable[object]]:
    """Return a run whose model asks for the calls, and then says that it is done."""
    asked = [ToolCallPart(call.name, call.arguments, tool_call_id=call.id) for call in calls]

    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        first = len([message for message in messages if isinstance(message, ModelRequest)]) == 1
        return ModelResponse(parts=asked if first else [TextPart("Done.")])

    agent = Agent(FunctionModel(model), tools=[tool])

    async def run() -> object:
        return await agent.run("Begin.")

    return run
