"""The tool of `mcp_add` behind our server, for P14: over stdio, or over HTTP on a port."""

import sys

import anyio

from ferrule import Text, tool
from ferrule.mcp import Server


@tool(read_only=True)
async def add(a: int, b: int) -> Text:
    """Add two integers."""
    return Text(str(a + b))


def server() -> Server:
    """Return it."""
    return Server([add], name="add")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        anyio.run(lambda: server().http(port=int(sys.argv[1])))
    else:
        anyio.run(server().stdio)
