"""LangGraph: LangChain's `tool.ainvoke` for a call, and a graph of one `ToolNode` for a turn."""

from collections.abc import Awaitable, Callable, Sequence

from langchain_core.messages import AIMessage
from langchain_core.output_parsers.openai_tools import parse_tool_call
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as declared
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from ferrule import ToolCall

PACKAGES = ("langgraph", "langgraph-prebuilt", "langchain-core")
CALL = "`parse_tool_call` and `tool.ainvoke`"
TURN = "a graph of one `ToolNode`"


def define(function: Callable[..., object]) -> BaseTool:
    """Make a tool, and the schema that a model is sent."""
    made = declared(function)
    assert made.tool_call_schema.model_json_schema()
    return made


def read(name: str, text: str, id: str) -> dict[str, object]:
    """Return a call as a chat model's adapter makes it of what the model wrote."""
    written = {"id": id, "function": {"name": name, "arguments": text}}
    return parse_tool_call(written, return_id=True)


async def caller(tool: BaseTool) -> Callable[[str], Awaitable[object]]:
    """Return what reads a call and invokes the tool with it."""

    async def call(text: str) -> object:
        return await tool.ainvoke(read(tool.name, text, "call_1"))

    return call


async def turn(tool: BaseTool, calls: Sequence[ToolCall]) -> Callable[[], Awaitable[object]]:
    """Return a run of a graph whose only node runs the tools that a message asks for."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([tool]))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    compiled = graph.compile()

    async def run() -> object:
        asked = [read(call.name, call.arguments, call.id) for call in calls]
        message = AIMessage("", tool_calls=asked)
        return await compiled.ainvoke({"messages": [message]})

    return run
