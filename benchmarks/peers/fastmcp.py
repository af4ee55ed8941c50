"""FastMCP: `Tool.run` for a call, and the calls of a turn side by side on a server in memory."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import orjson
from fastmcp import FastMCP
from fastmcp.tools import Tool

from ferrule import ToolCall

PACKAGES = ("fastmcp", "mcp")
CALL = "`orjson.loads` and `Tool.run`"
TURN = "`asyncio.gather` over `FastMCP.call_tool`: it has no turn of its own"


def define(function: Callable[..., object]) -> Tool:
    """Make a tool; its schema is made at once."""
    return Tool.from_function(function)


async def caller(tool: Tool) -> Callable[[str], Awaitable[object]]:
    """Return what runs the tool with the arguments of a call."""

    async def call(text: str) -> object:
        return await tool.run(orjson.loads(text))

    return call


async def turn(tool: Tool, calls: Sequence[ToolCall]) -> Callable[[], Awaitable[object]]:
    """Return what calls a server's tools side by side."""
    server = FastMCP("bench")
    server.add_tool(tool)

    async def run() -> object:
        return await asyncio.gather(
            *(server.call_tool(call.name, orjson.loads(call.arguments)) for call in calls)
        )

    return run
