"""The line to a server: opened and closed from any task, and dialled again when it broke."""

import gc
import sys
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.to_thread
import pytest
from mcp.server.lowlevel import Server
from mcp.types import CallToolResult
from starlette.applications import Starlette

from ferrule import (
    Accepted,
    Completed,
    Context,
    Declined,
    Executor,
    FerruleError,
    Outcome,
    Question,
    Registry,
    ToolCall,
    Unknown,
)
from ferrule.mcp import Address, Command, InProcess, Remote, connect
from ferrule.mcp._stdio import child
from mcp_lab import Lab

Era = Literal["auto", "legacy"]
Serve = Callable[..., Any]

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:Async generator")]

FAKE = str(Path(__file__).with_name("fake.py"))


async def run(registry: Registry | Remote, *calls: ToolCall) -> list[Outcome]:
    """Run calls side by side."""
    tools = registry.tools if isinstance(registry, Remote) else registry
    return await Executor(tools).run(calls)


def fake(*modes: str) -> Remote:
    """Return a child that starts at once."""
    return connect(Command((sys.executable, FAKE, *modes), era="legacy"))


def web(labs: list[Lab] | None = None) -> Starlette:
    """Return a lab as a web app; it is put into `labs`."""
    lab = Lab()
    if labs is not None:
        labs.append(lab)
    return lab.server.streamable_http_app()


async def pid(registry: Registry) -> int:
    """Return the process that the server runs in."""
    [outcome] = await run(registry, ToolCall.of("where"))
    assert isinstance(outcome, Completed)
    content: Any = outcome.result.structured_content
    return int(content["pid"])


TALKS = """
import sys
print('{"jsonrpc": "2.0", "method": "notifications/message", "params": {}}\\n' * 99, flush=True)
sys.stdin.read()
"""


async def test_hanging_up_on_a_server_that_still_speaks_leaves_nothing() -> None:
    """CLO-1: its reader ends its generator itself, or trio warns of it."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        async with child([sys.executable, "-c", TALKS], env={}, cwd=None) as (_, (messages, _)):
            await messages.receive()
        gc.collect()

    assert [str(one.message) for one in seen if "generator" in str(one.message)] == []


async def test_a_remote_is_opened_and_closed_from_other_tasks(target: object) -> None:
    """MC-10: the opener, the caller and the closer are three tasks."""
    remote = connect(target)
    outcomes: list[Outcome] = []

    async def use() -> None:
        outcomes.extend(await run(remote, ToolCall.of("add", {"a": 1, "b": 2})))

    for step in (remote.__aenter__, use, remote.aclose, remote.aclose):
        async with anyio.create_task_group() as group:
            group.start_soon(step)

    assert [outcome.text for outcome in outcomes] == ["3"]


async def test_several_are_closed_in_any_order() -> None:
    """MC-10: A, then C, then B; none disturbs another."""
    remotes = [fake() for _ in "ABC"]
    for remote in remotes:
        await remote.__aenter__()
    for index in (0, 2):
        await remotes[index].aclose()
    [outcome] = await run(remotes[1], ToolCall.of("extra"))
    await remotes[1].aclose()

    assert outcome.text == "t"


@pytest.mark.parametrize("name", ["wait", "ask"])
async def test_closing_ends_the_calls_and_the_questions_in_flight(
    target: object, name: str
) -> None:
    """AT-104, AT-105, AT-141, MC-10: at once; the asker is told; a later call did not run."""
    asking, told = anyio.Event(), anyio.Event()

    async def asker(_: Context, __: Question) -> Accepted[Any] | Declined:
        asking.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            told.set()
            raise
        raise AssertionError

    remote = connect(target)
    async with remote:
        executor = Executor(remote.tools, asker=asker)
        async with executor.batch([ToolCall.of(name)]) as batch:
            await anext(aiter(batch))
            if name == "ask":
                await asking.wait()
            with anyio.fail_after(5):
                await remote.aclose()
                async for _ in batch:
                    pass
        [outcome] = batch.outcomes
        [later] = await run(remote, ToolCall.of("add", {"a": 1, "b": 1}))

    assert isinstance(outcome, Completed if name == "ask" else Unknown)
    assert name != "ask" or outcome.text == "cancel []"
    assert later.text == "Error: the server did not run the call: the connection to it was closed"
    assert told.is_set() == (name == "ask")


async def test_a_closed_remote_cannot_be_opened_again() -> None:
    """CLO-1: it says what to do."""
    remote = fake()
    async with remote:
        pass
    with pytest.raises(FerruleError, match="make another with `connect`"):
        await remote.__aenter__()


async def test_a_cancelled_opening_leaves_nothing_behind() -> None:
    """MC-10: closing afterwards ends the child that was being started."""
    remote = fake("silent-start")
    with anyio.move_on_after(0.2):
        await remote.__aenter__()
    with anyio.fail_after(5):
        await remote.aclose()


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_dead_child_is_started_again(era: Era, quick_lab: tuple[str, ...]) -> None:
    """MC-08: the call that was there is unknown; the next goes to a new process."""
    async with Registry([connect(Command(quick_lab, era=era))]) as registry:
        first = await pid(registry)
        lost = await run(registry, ToolCall.of("die"), ToolCall.of("wait"))
        second = await pid(registry)

    assert [type(outcome) for outcome in lost] == [Unknown, Unknown]
    assert first != second


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_server_that_was_started_anew_is_found_again(era: Era, serve: Serve) -> None:
    """MC-08, python-sdk#1676: while it is down, calls did not run; then they do."""
    serving = serve(web)
    async with connect(Address(serving.url, era=era)) as remote:
        [before] = await run(remote, ToolCall.of("add", {"a": 1, "b": 1}))
        await anyio.to_thread.run_sync(serving.stop)
        [down] = await run(remote, ToolCall.of("add", {"a": 1, "b": 1}))
        labs: list[Lab] = []
        serve(lambda: web(labs), serving.port)
        again = await run(remote, *[ToolCall.of("add", {"a": 1, "b": n}) for n in range(4)])

    assert before.text == "2"
    assert down.text == "Error: the server did not run the call: it cannot be reached"
    assert [outcome.text for outcome in again] == ["1", "2", "3", "4"]
    assert labs[0].events == ["call add"] * 4


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_server_that_goes_down_in_a_call_leaves_it_unknown(era: Era, serve: Serve) -> None:
    """MC-08, python-sdk#3560: nobody is cancelled, and nothing is sent twice."""
    labs: list[Lab] = []
    serving = serve(lambda: web(labs))
    async with connect(Address(serving.url, era=era)) as remote:
        async with Executor(remote.tools).batch([ToolCall.of("wait")]) as batch:
            await anext(aiter(batch))
            while "call wait" not in labs[0].events:  # noqa: ASYNC110  # it is another thread
                await anyio.sleep(0.01)
            await anyio.to_thread.run_sync(serving.stop)
            with anyio.fail_after(10):
                async for _ in batch:
                    pass
        [outcome] = batch.outcomes

    assert isinstance(outcome, Unknown)
    assert outcome.reason == "raised"
    assert labs[0].events.count("call wait") == 1


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_tool_that_a_new_server_has_changed_is_not_called(era: Era, serve: Serve) -> None:
    """SE-08: what was approved is not what would run."""
    labs: list[Lab] = []

    def changed() -> Starlette:
        app = web(labs)
        echo = labs[0].tools["echo"][0].model_copy(update={"description": "new"})
        labs[0].tools["echo"] = (echo, _never)
        del labs[0].tools["fail"]
        return app

    serving = serve(web)
    async with connect(Address(serving.url, era=era)) as remote:
        tools = remote.tools
        await anyio.to_thread.run_sync(serving.stop)
        serve(changed, serving.port)
        await remote.refresh()
        async with Registry(tools) as registry:
            outcomes = await run(registry, ToolCall.of("echo"), ToolCall.of("fail"))

    said = "Error: the server did not run the call: it does not offer this tool any more, or has"
    assert [outcome.text.startswith(said) for outcome in outcomes] == [True, True]
    assert labs[0].events == []


async def _never(*_: object) -> CallToolResult:
    raise AssertionError


async def test_a_server_in_this_process_that_breaks_is_an_error_of_the_call() -> None:
    """MC-08: whatever its lifespan raises."""

    @asynccontextmanager
    async def lifespan(_: Server[Any]) -> AsyncIterator[None]:
        raise LookupError("no database")
        yield

    server: Server[Any] = Server("broken", lifespan=lifespan)
    with pytest.raises(FerruleError, match="no database"):
        await connect(InProcess(server)).__aenter__()
