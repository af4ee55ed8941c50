"""A server of the SDK with one small tool, for P14: over stdio, or over HTTP on a port."""

import sys
from typing import Any

import anyio
import uvicorn
from mcp import types as wire
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

TOOL = wire.Tool(
    name="add",
    input_schema={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
    annotations=wire.ToolAnnotations(read_only_hint=True),
)


async def list_tools(_: Any, __: Any) -> wire.ListToolsResult:  # noqa: ANN401  # the SDK's own
    """List the tool."""
    return wire.ListToolsResult(tools=[TOOL], ttl_ms=0, cache_scope="private")


async def call_tool(_: Any, params: wire.CallToolRequestParams) -> wire.CallToolResult:  # noqa: ANN401  # the SDK's own
    """Add."""
    arguments = params.arguments or {}
    text = str(arguments["a"] + arguments["b"])
    return wire.CallToolResult(content=[wire.TextContent(text=text)])


def server() -> Server[Any]:
    """Return it."""
    return Server("add", on_list_tools=list_tools, on_call_tool=call_tool)


async def speak() -> None:
    """Speak over stdio."""
    made = server()
    async with stdio_server() as (read, write):
        await made.run(read, write, made.create_initialization_options())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        app = server().streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
    else:
        anyio.run(speak)
