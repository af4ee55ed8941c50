"""
A server of the SDK for tests of the gateway: it books in a file what it ran, and then hangs.

`python gateway_ledger.py LEDGER PIPE`: `charge` writes a line to the ledger, opens the pipe, which
somebody reads, and never answers; `booked` answers at once.
"""

import sys
from pathlib import Path

import anyio
from mcp.server import MCPServer

LEDGER, PIPE = Path(sys.argv[1]), Path(sys.argv[2])

server = MCPServer("ledger")


def book(cents: int) -> None:
    """Write a line."""
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{cents}\n")


@server.tool(structured_output=False)
async def charge(cents: int) -> str:
    """Charge, and never say so."""
    book(cents)
    await anyio.to_thread.run_sync(PIPE.write_text, "charged")
    await anyio.sleep_forever()
    return "never"


@server.tool(structured_output=False)
async def booked(cents: int) -> str:
    """Charge, and say so."""
    book(cents)
    return f"booked {cents}"


server.run()
