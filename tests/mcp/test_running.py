"""Calls that are under way: how far they are, how they are stopped, whose they are."""

import json
import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx2
import pytest
import uvicorn
from mcp import Client, MCPError, types

from ferrule import Context, Executor, Failure, Record, Registry, tool
from ferrule.mcp import Server, Session
from ferrule.mcp._http import listening
from ferrule.testing import MemoryRecorder
from served import RECORD, TOOLS
from serving import ERAS, WAYS, Era, Options, along, at_a_port, by_http, by_pipe, in_memory, text_of
from support import closed_by_all, held_open

pytestmark = pytest.mark.anyio

Update = tuple[float, float | None, str | None]


@pytest.mark.parametrize(("anyio_backend", "way"), WAYS, indirect=["anyio_backend"])
async def test_each_caller_hears_how_far_its_own_call_is(
    way: tuple[str, Era], anyio_backend: str
) -> None:
    """AT-112, PR-01: in order, before the result, and of nobody else's call."""
    heard: dict[int, list[Update]] = {2: [], 3: []}
    all_heard = anyio.Event()

    def listener(count: int) -> Callable[[float, float | None, str | None], object]:
        async def listen(progress: float, total: float | None, message: str | None) -> None:
            heard[count].append((progress, total, message))
            if [len(updates) for updates in heard.values()] == [2, 3]:
                all_heard.set()

        return listen

    async with along(way, Server(TOOLS), anyio_backend) as client:

        async def call(count: int) -> None:
            done = await client.call_tool(
                "steps",
                {"count": count},
                progress_callback=listener(count),  # type: ignore[arg-type]  # it is async
            )
            assert text_of(done) == "done"

        async with anyio.create_task_group() as group:
            group.start_soon(call, 2)
            group.start_soon(call, 3)
        await all_heard.wait()  # The SDK's client may hand on the last one after the result.

    for count, updates in heard.items():
        assert updates == [(n, count, f"step {n}") for n in range(1, count + 1)]


@pytest.mark.parametrize("era", ERAS)
async def test_updates_without_numbers_are_numbered(era: Era) -> None:
    """AT-112: MCP wants a number that grows; a line of text alone gets the next one."""
    heard: list[Update] = []
    more = anyio.Event()

    @tool
    async def told(context: Context) -> str:
        """Say a line, then a number, then a line."""
        context.progress(message="one")
        await anyio.lowlevel.checkpoint()
        context.progress(10, 40, "two")
        await anyio.lowlevel.checkpoint()
        context.progress(message="three")
        await more.wait()
        return ""

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))
        if message == "three":
            more.set()

    async with in_memory(Server([told]), era) as client:
        await client.call_tool("told", progress_callback=listen)

    assert heard[-1] == (heard[-2][0] + 1 if len(heard) > 1 else 1, None, "three")
    assert [number for number, _, _ in heard] == sorted(number for number, _, _ in heard)


async def test_without_a_token_a_line_of_progress_is_a_log_line_for_who_wants_logs() -> None:
    """MCP-1: in the handshake era from `info` on, once the client has said so."""
    lines: list[str] = []
    both = anyio.Event()

    async def listen(message: object) -> None:
        if isinstance(message, types.LoggingMessageNotification):
            lines.append(str(message.params.data))
            if len(lines) == 2:
                both.set()

    for level in (None, "warning", "info"):
        async with in_memory(Server(TOOLS), "legacy", message_handler=listen) as client:
            if level is not None:
                request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=level))
                await client.session.send_request(request, types.EmptyResult)
            await client.call_tool("steps", {"count": 2})
            if level == "info":
                await both.wait()
        assert lines == ([] if level != "info" else ["step 1", "step 2"])


# ---- stopping ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["held", "held_in_thread"])
@pytest.mark.parametrize(("anyio_backend", "way"), WAYS, indirect=["anyio_backend"])
async def test_a_client_that_stops_a_call_stops_its_tool(
    way: tuple[str, Era], anyio_backend: str, name: str, tmp_path: Path
) -> None:
    """AT-139, AT-148, CLO-2: a task or a thread, whichever way the client came."""

    async def asked(_: object, __: object) -> types.ElicitResult:
        raise AssertionError

    # A call whose client can be asked runs in a task of its own, and any other one does not.
    can_ask: Options = {"elicitation_callback": asked} if name == "held" else {}
    pipe = tmp_path / "pipe"
    with held_open(pipe) as reading:
        async with along(way, Server(TOOLS), anyio_backend, **can_ask) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, name, {"pipe": str(pipe)})
                await anyio.to_thread.run_sync(select.select, [reading], [], [], 20)
                assert os.read(reading, 1) == b"x"
                group.cancel_scope.cancel()

            assert await closed_by_all(reading)
            assert text_of(await client.call_tool("add", {"a": 1, "b": 1})) == "2"


@pytest.mark.parametrize("era", ERAS)
async def test_a_thread_that_does_not_stop_holds_no_client_up(era: Era) -> None:
    """EXE-6: who cancels is free at once, and the next call is served."""
    begun, go_on = anyio.Event(), threading.Event()
    token = anyio.lowlevel.current_token()

    @tool
    def deaf() -> str:
        """Hear nothing."""
        anyio.from_thread.run_sync(begun.set, token=token)
        go_on.wait(PATIENCE)
        return ""

    async with in_memory(Server(Registry([deaf, *TOOLS], grace=0.05)), era) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "deaf")
            await begun.wait()
            group.cancel_scope.cancel()
        assert not go_on.is_set()
        assert text_of(await client.call_tool("add", {"a": 1, "b": 1})) == "2"
        go_on.set()


PATIENCE = 20


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_leaves_stops_its_calls(era: Era, tmp_path: Path) -> None:
    """AT-146: the end of a connection is the end of what runs for it."""
    pipe = tmp_path / "pipe"
    with held_open(pipe) as reading:
        async with Server(TOOLS) as server, anyio.create_task_group() as group:
            async with Client(server.sdk, mode=era) as client:

                async def call() -> None:
                    with suppress(MCPError, anyio.ClosedResourceError):
                        await client.call_tool("held", {"pipe": str(pipe)})

                group.start_soon(call)
                await anyio.to_thread.run_sync(select.select, [reading], [], [], 20)
                assert os.read(reading, 1) == b"x"
            assert await closed_by_all(reading)
            group.cancel_scope.cancel()


# ---- records -------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_record_travels_byte_for_byte(era: Era) -> None:
    """AT-122: in the `_meta` of a result and of a failure, and never in what a model reads."""
    async with in_memory(Server(TOOLS), era) as client:
        kept = await client.call_tool("noted")
        failed = await client.call_tool("noted_failure")
        none = await client.call_tool("add", {"a": 1, "b": 1})

    for done, is_error in ((kept, False), (failed, True)):
        assert done.is_error is is_error
        assert done.meta is not None
        told = done.meta["ferrule/record"]
        assert told["namespace"] == RECORD.namespace
        assert told["data"] == '{"a":["é",1.5,null],"z":9007199254740993}'
        assert json.loads(told["data"]) == RECORD.data
    assert "ferrule/record" not in (none.meta or {})


@pytest.mark.parametrize("era", ERAS)
async def test_what_a_call_records_goes_to_the_servers_recorder(era: Era) -> None:
    """REC-1, REC-2: in the middle of a call and at its end; what the recorder raises is private."""

    @tool
    async def writes(context: Context, ends: bool) -> str:
        """Record and go on."""
        await context.record("test:middle", {"has": context.has_recorder})
        if ends:
            raise Failure("ended", details=Record("test:end", data=1))
        return "went on"

    recorder = MemoryRecorder()
    async with in_memory(Server(Executor([writes], recorder=recorder)), era) as client:
        assert text_of(await client.call_tool("writes", {"ends": False})) == "went on"
        assert text_of(await client.call_tool("writes", {"ends": True})) == "ended"

    assert [record.namespace for record in recorder.records] == [
        "test:middle",
        "test:middle",
        "test:end",
    ]
    assert recorder.records[0].data == {"has": True}


# ---- who calls -----------------------------------------------------------------------------------


def sessions() -> tuple[Server, list[object]]:
    """Return a server of a tool that notes whom its calls come from."""
    seen: list[object] = []

    @tool
    async def noted(context: Context) -> None:
        """Note it."""
        seen.append(context.session)

    return Server([noted]), seen


@pytest.mark.parametrize("era", ERAS)
async def test_clients_in_memory_are_connections_of_their_own(era: Era) -> None:
    """AT-117, AT-118: one for all calls of a client, another for another client."""
    server, seen = sessions()
    async with server:
        for _ in range(2):
            async with Client(server.sdk, mode=era) as client:
                await client.call_tool("noted")
                await client.call_tool("noted")

    assert all(isinstance(one, Session) and one.kind == "connection" for one in seen)
    assert seen[0] == seen[1]
    assert seen[2] == seen[3]
    assert seen[0] != seen[2]


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_over_pipes_is_a_process(era: Era, anyio_backend: str) -> None:
    """AT-117: there is one, whatever the era says of sessions."""
    async with by_pipe(era, anyio_backend) as client:
        first, again = [text_of(await client.call_tool("whose")) for _ in range(2)]

    assert first == again
    assert "kind='process'" in first


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_over_http_a_session_is_a_connection_and_without_one_nobody() -> None:
    """AT-117: since 2026-07-28 nothing tells callers apart, and then none shares a session."""
    server, seen = sessions()
    with at_a_port(server.asgi) as address:
        for era in ERAS:
            for _ in range(2):
                async with by_http(address, era) as client:
                    await client.call_tool("noted")

    first, second, *none = seen
    assert isinstance(first, Session)
    assert isinstance(second, Session)
    assert first.kind == second.kind == "connection"
    assert first != second
    assert none == [None, None]


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_an_answer_over_http_is_sent_at_once() -> None:
    """P14: its second packet waits for nobody to confirm the first, which takes 40 ms."""
    found: list[int] = []

    async def app(_: object, receive: object, send: Callable[[dict[str, object]], Any]) -> None:
        connection = cast("Any", receive).__self__.transport.get_extra_info("socket")
        found.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    config = uvicorn.Config(app, lifespan="off", ws="none", log_level="error")
    server = uvicorn.Server(config)
    with closing(listening("127.0.0.1", 0)) as sockets:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sockets]})
        thread.start()
        try:
            port = sockets.getsockname()[1]
            response = await anyio.to_thread.run_sync(httpx2.get, f"http://127.0.0.1:{port}/")
        finally:
            server.should_exit = True
            thread.join(30)

    assert response.status_code == 204
    assert found == [1]
