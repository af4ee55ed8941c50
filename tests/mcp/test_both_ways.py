"""A client of ours that calls a server of ours: what both know and MCP has no words for."""

from contextlib import AsyncExitStack
from typing import Literal

import pytest

from ferrule import (
    Completed,
    Executor,
    Failed,
    Failure,
    Outcome,
    Registry,
    ToolCall,
    Unknown,
    tool,
)
from ferrule.mcp import InProcess, Server, connect

pytestmark = pytest.mark.anyio

Era = Literal["auto", "legacy"]


@tool
def charge() -> str:
    """Charge, and break in the middle."""
    raise OSError("the line broke at 10.0.0.7")


@tool
def look() -> str:
    """Fail, and say so."""
    raise Failure("there is no such account")


@tool
def greet() -> str:
    """Greet."""
    return "hello"


async def outcomes_behind(servers: int, era: Era) -> list[Outcome]:
    """Return how three calls end that go through so many servers of ours."""
    async with AsyncExitStack() as stack:
        registry = await stack.enter_async_context(Registry([charge, look, greet]))
        for _ in range(servers):
            server = await stack.enter_async_context(Server(registry))
            remote = connect(InProcess(server.sdk, era=era))
            registry = await stack.enter_async_context(Registry([remote]))
        calls = [ToolCall.of(name) for name in ("charge", "look", "greet")]
        return await Executor(registry).run(calls)


@pytest.mark.parametrize("servers", [1, 3])
async def test_what_may_have_happened_is_not_told_as_a_failure(servers: int, era: Era) -> None:
    """FAIL-3, FAIL-6, MCP-1: behind any number of servers; what was definite stays definite."""
    charged, looked, greeted = await outcomes_behind(servers, era)

    assert isinstance(charged, Unknown)
    assert charged.reason == "raised"
    assert "may have taken effect" in charged.reading(1000)
    assert "10.0.0.7" not in charged.reading(1000)
    assert charged.evidence is not None
    assert "may have taken effect" in charged.evidence.text
    assert "Error: " not in charged.evidence.text
    assert isinstance(looked, Failed)
    assert looked.reading(1000) == "Error: there is no such account"
    assert isinstance(greeted, Completed)
