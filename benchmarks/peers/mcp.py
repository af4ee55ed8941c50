"""The MCP SDK: `MCPServer.call_tool` in memory, one call or the calls of a turn side by side."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import orjson
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool

from ferrule import ToolCall

PACKAGES = ("mcp",)
CALL = "`orjson.loads` and `MCPServer.call_tool`"
TURN = "`asyncio.gather` over `MCPServer.call_tool`: it has no turn of its own"


def define(function: Callable[..., object]) -> Tool:
    """Make a tool; its schema is made at once."""
    return Tool.from_function(function)


async def caller(tool: Tool) -> Callable[[str], Awaitable[object]]:
    """Return what hands a call to a server that has the tool."""
    server = MCPServer("bench")
    server.add_tool(tool.fn)

    async def call(text: str) -> object:
        return await server.call_tool(tool.name, orjson.loads(text))

    return call


async def turn(tool: Tool, calls: Sequence[ToolCall]) -> Callable[[], Awaitable[object]]:
    """Return what calls a server's tools side by side."""
    server = MCPServer("bench")
    server.add_tool(tool.fn)

    async def run() -> object:
        return await asyncio.gather(
            *(server.call_tool(call.name, orjson.loads(call.arguments)) for call in calls)
        )

    return run
