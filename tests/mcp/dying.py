"""A server over standard input and output that makes a task of every call, and can die of one."""

import os

import anyio

from ferrule import tool
from ferrule.mcp import Server, Tasks


@tool
async def die() -> str:
    """Die, when the call is a task already."""
    await anyio.sleep(0.1)
    os._exit(7)


@tool
async def alive() -> str:
    """Say so."""
    return "yes"


if __name__ == "__main__":
    anyio.run(Server([die, alive], tasks=Tasks(after=0, poll=0.02)).stdio)
