"""
P14: an MCP call through our client or to our server, against the same call on the SDK alone.

In memory, as a child, and over HTTP on this machine; by the clock on the wall where another process
answers. Our client also reads the arguments as a model writes them, checks them, and checks the
result, and our server does so beside running the tool under an executor; the SDK's own client and
its low-level server check neither.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import mcp_add
import mcp_served
from _measure import Entered, Loop, Row, ratio
from mcp import Client, StdioServerParameters

from ferrule import Binding, Context, Result, ToolCall, bind
from ferrule.mcp import Address, Command, InProcess, connect

SERVER = str(Path(__file__).with_name("mcp_add.py"))
OURS = str(Path(__file__).with_name("mcp_served.py"))
CALL = ToolCall.of("add", {"a": 1, "b": 2}, id="c1")


def of_client(theirs: object, ours: object, clock: Callable[[], float]) -> float:
    """Return how many times the SDK's own call one through our client takes."""
    client: Any = Client(theirs)  # type: ignore[arg-type]  # whichever it takes
    remote = connect(ours)
    return figure(bare(client), called(remote), [client, remote], clock)


def of_server(theirs: object, ours: object, clock: Callable[[], float], *first: object) -> float:
    """Return how many times a call to the SDK's own server one to ours takes; `first` is begun."""
    clients: list[Any] = [Client(theirs), Client(ours)]  # type: ignore[arg-type]  # whichever
    return figure(bare(clients[0]), bare(clients[1]), [*first, *clients], clock)


def figure(
    floor: Callable[[], Awaitable[None]],
    subject: Callable[[], Awaitable[None]],
    managers: list[Any],
    clock: Callable[[], float],
) -> float:
    """Return how many times as long `subject` takes as `floor`, while the managers are entered."""
    entered = [Entered(manager) for manager in managers]
    with Loop() as loop:
        for one in entered:
            loop.run(one.begin())
        found = ratio(loop.runs(subject), loop.runs(floor), clock=clock)
        for one in reversed(entered):
            loop.run(one.end())
        return found


def bare(client: Any) -> Callable[[], Awaitable[None]]:  # noqa: ANN401  # a Client
    """Return what runs one call as the SDK does."""

    async def call() -> None:
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.content[0].text == "3"

    return call


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
def at_an_address(program: str) -> Iterator[str]:
    """Serve over HTTP in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, program, str(port)]) as server:
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
    """Measure the row over each transport, for either side."""
    child = [sys.executable, SERVER]
    theirs = StdioServerParameters(command=child[0], args=child[1:])
    ours = StdioServerParameters(command=sys.executable, args=[OURS])
    served = mcp_served.server()
    client = {
        "in memory": of_client(mcp_add.server(), InProcess(mcp_add.server()), process_time),
        "stdio": of_client(theirs, Command(tuple(child)), perf_counter),
    }
    server = {
        "in memory": of_server(mcp_add.server(), served.sdk, process_time, served),
        "stdio": of_server(theirs, ours, perf_counter),
    }
    with ExitStack() as stack:
        one, other = [stack.enter_context(at_an_address(program)) for program in (SERVER, OURS)]
        client["HTTP"] = of_client(one, Address(one), perf_counter)
        server["HTTP"] = of_server(one, other, perf_counter)
    sides = (
        ("through our client, against the SDK's own", client),
        ("to our server, against the SDK's own", server),
    )
    return [
        Row(id="P14", what=f"an MCP call {side}, {how}", ratio=times, goal=1.1)
        for side, found in sides
        for how, times in found.items()
    ]


if __name__ == "__main__":
    print(*rows(), sep="\n")
