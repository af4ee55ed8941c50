"""
An MCP server of somebody else, made with the SDK alone: notes in memory.

`python notes_server.py [SHELF]` serves over standard input and output; see `mcp.json`.
"""

import sys

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

SHELF = sys.argv[1] if len(sys.argv) > 1 else "notes"
NOTES = {"milk": f"Buy milk ({SHELF})."}

server = MCPServer(SHELF)


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def read_note(name: str) -> str:
    """Read a note."""
    if name not in NOTES:
        raise ToolError(f"there is no note {name}; there are {', '.join(NOTES)}")
    return NOTES[name]


@server.tool(annotations=ToolAnnotations(read_only_hint=False, open_world_hint=False))
def write_note(name: str, text: str) -> str:
    """Write a note, or write it anew."""
    NOTES[name] = text
    return f"{len(text)} characters written"


@server.tool(annotations=ToolAnnotations(destructive_hint=True, open_world_hint=False))
def delete_note(name: str) -> str:
    """Delete a note for good."""
    del NOTES[name]
    return "deleted"


if __name__ == "__main__":
    server.run()
