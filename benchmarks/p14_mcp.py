"""
P14: an MCP call through our client, against the same call through the SDK's own.

One server of the SDK for both, in memory, as a child, and over HTTP on this machine; by the clock
on the wall where another process answers. Ours also reads the arguments as a model writes them,
checks them, and checks the result.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import mcp_add
from _measure import Entered, Loop, Row, ratio
from mcp import Client, StdioServerParameters

from ferrule import Binding, Context, Result, ToolCall, bind
from ferrule.mcp import Address, Command, InProcess, connect

SERVER = str(Path(__file__).with_name("mcp_add.py"))
CALL = ToolCall.of("add", {"a": 1, "b": 2}, id="c1")


def figure(theirs: object, ours: object, clock: Callable[[], float]) -> float:
    """Return how many times the SDK's own call one of ours takes."""
    client: Any = Client(theirs)  # type: ignore[arg-type]  # whichever it takes
    remote = connect(ours)
    both = [Entered(client), Entered(remote)]

    async def bare() -> None:
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.content[0].text == "3"

    with Loop() as loop:
        for one in both:
            loop.run(one.begin())
        found = ratio(loop.runs(called(remote)), loop.runs(bare), clock=clock)
        for one in both:
            loop.run(one.end())
    return found


def called(remote: Any) -> Callable[[], Awaitable[None]]:  # noqa: ANN401  # a Remote
    """Return what runs one call, as a loop of another's own does."""
    bound: list[Binding] = []

    async def call() -> None:
        if not bound:
            bound.append(bind(remote.tools[0]))
        invocation = bound[0].contract.admit(CALL)
        result = await bound[0].call(invocation, Context.of(CALL))
        assert isinstance(result, Result)
        assert result.text == "3"

    return call


@contextmanager
def at_an_address() -> Iterator[str]:
    """Serve over HTTP in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, SERVER, str(port)]) as server:
        try:
            while not _answers(port):
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def rows() -> list[Row]:
    """Measure the row over each transport."""
    child = [sys.executable, SERVER]
    parameters = StdioServerParameters(command=child[0], args=child[1:])
    found = {
        "in memory": figure(mcp_add.server(), InProcess(mcp_add.server()), process_time),
        "stdio": figure(parameters, Command(tuple(child)), perf_counter),
    }
    with at_an_address() as url:
        found["HTTP"] = figure(url, Address(url), perf_counter)
    what = "an MCP call through our client, against the SDK's own"
    return [
        Row(id="P14", what=f"{what}, {how}", ratio=times, goal=1.1) for how, times in found.items()
    ]


if __name__ == "__main__":
    print(*rows(), sep="\n")
