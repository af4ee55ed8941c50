"""Ways from a client of the SDK to a server of ours: in memory, by pipe, by HTTP; in both eras."""

import socket
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, cast

import anyio
import httpx2
import pytest
import uvicorn
from mcp import Client, StdioServerParameters, types
from mcp.client.streamable_http import streamable_http_client

from ferrule.mcp import Server

Era = Literal["legacy", "auto"]
ERAS: tuple[Era, ...] = ("legacy", "auto")
TRIO_BY_PIPE = [pytest.param("trio", ("stdio", era), id=f"trio-stdio-{era}") for era in ERAS]
WAYS = [
    pytest.param(backend, (kind, era), id=f"{backend}-{kind}-{era}")
    # uvicorn runs on asyncio alone, and the SDK's HTTP client leaves generators open on trio.
    for backend, kind in (
        *(("asyncio", "memory"), ("asyncio", "stdio"), ("asyncio", "http"), ("trio", "memory")),
    )
    for era in ERAS
]
"""For `parametrize("anyio_backend, way", WAYS, indirect=["anyio_backend"])`."""
PATIENCE = 30
SERVED = Path(__file__).parent / "served.py"


class Options(TypedDict, total=False):
    """What a client of the SDK may be given."""

    elicitation_callback: Any
    message_handler: Any
    extensions: Any


@asynccontextmanager
async def in_memory(server: Server, era: Era, **options: Unpack[Options]) -> AsyncGenerator[Client]:
    """Give a client in this process."""
    with anyio.fail_after(PATIENCE):
        async with server, Client(server.sdk, mode=era, **options) as client:
            yield client


@asynccontextmanager
async def by_pipe(era: Era, backend: str, **options: Unpack[Options]) -> AsyncGenerator[Client]:
    """Give a client of the tools in `served.py`, in a process of their own."""
    target = StdioServerParameters(
        command=sys.executable, args=[str(SERVED), backend], env={"PYTHONPATH": ":".join(sys.path)}
    )
    with anyio.fail_after(PATIENCE):
        async with Client(target, mode=era, **options) as client:
            yield client


def free_port() -> int:
    """Return a port of this machine that nobody has."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def at_a_port(make: Callable[[], object]) -> Generator[str]:
    """Serve an app, made in the thread that serves it, on a free port; give its address."""
    config = uvicorn.Config(
        make,
        factory=True,
        host="127.0.0.1",
        port=0,
        log_level="error",
        timeout_graceful_shutdown=2,
        ws="none",
    )
    served = uvicorn.Server(config)
    thread = threading.Thread(target=served.run)
    thread.start()
    try:
        while not served.started and thread.is_alive():
            thread.join(0.01)
        port = served.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        served.should_exit = True
        thread.join(PATIENCE)


@asynccontextmanager
async def by_http(
    address: str, era: Era, headers: dict[str, str] | None = None, **options: Unpack[Options]
) -> AsyncGenerator[Client]:
    """Give a client of what is served at an address."""
    with anyio.fail_after(PATIENCE):
        async with (
            httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http,
            Client(
                streamable_http_client(f"{address}/mcp", http_client=http), mode=era, **options
            ) as client,
        ):
            yield client


@asynccontextmanager
async def along(
    way: tuple[str, Era], server: Server, backend: str, **options: Unpack[Options]
) -> AsyncGenerator[Client]:
    """Give a client of the tools in `served.py`, whichever way."""
    kind, era = way
    if kind == "memory":
        async with in_memory(server, era, **options) as client:
            yield client
    elif kind == "stdio":
        async with by_pipe(era, backend, **options) as client:
            yield client
    else:
        with at_a_port(server.asgi) as address:
            async with by_http(address, era, **options) as client:
                yield client


def meta(**members: str) -> types.RequestParamsMeta:
    """Return the `_meta` of a call: a member `a_b` is `ferrule/a-b`."""
    named = {f"ferrule/{name.replace('_', '-')}": value for name, value in members.items()}
    return cast("types.RequestParamsMeta", named)


def text_of(result: types.CallToolResult) -> str:
    """Return the one text of a result."""
    [block] = result.content
    assert isinstance(block, types.TextContent)
    return block.text
