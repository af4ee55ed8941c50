"""Served calls that a runtime keeps: answered by their client, or by anybody, now or days later."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError, types
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import TypeAdapter

from ferrule import Allow, Ask, Context, Executor, Progress, Registry, ToolCall, tool
from ferrule.mcp import Server
from ferrule.runtime import SqliteInbox, SqliteRuntime
from served import TOOLS
from serving import ERAS, Era, at_a_port, by_http, in_memory, meta, text_of

pytestmark = pytest.mark.anyio

KEY = "ferrule/idempotency-key"
EITHER: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)


def kept(tools: Any, path: Path, **options: Any) -> Server:  # noqa: ANN401  # of a server
    """Return a server whose calls are kept in a file."""
    return Server(tools, runtime=lambda executor: SqliteRuntime(executor, path), **options)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where calls are kept."""
    return tmp_path / "calls.db"


def answering(content: dict[str, Any] | None, action: Any = "accept") -> Any:  # noqa: ANN401
    """Return a person who always answers the same."""

    async def answer(_: object, __: object) -> types.ElicitResult:
        return types.ElicitResult(action=action, content=content)

    return answer


@pytest.mark.parametrize("era", ERAS)
async def test_calls_are_kept_and_their_client_answers(era: Era, path: Path) -> None:
    """DUR-1, SUS-3: a call that asks goes on with the answer, and the file says whose it was."""
    async with in_memory(
        kept(TOOLS, path), era, elicitation_callback=answering({"answer": True})
    ) as client:
        assert text_of(await client.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert text_of(await client.call_tool("draft", {"subject": "it"})) == "it sent"

    steps = [(line.step, line.by) for line in await SqliteInbox(path).history()]
    assert ("answer", "mcp connection") in steps
    assert len([step for step, _ in steps if step == "complete"]) == 2


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_nobody_can_be_asked_about_waits_for_anybody(
    era: Era, path: Path
) -> None:
    """DUR-2, SUS-3: answered elsewhere, it goes on; the same call again tells how it ended."""
    async with in_memory(kept(TOOLS, path), era) as client:
        waits = await client.call_tool(
            "draft", {"subject": "it"}, meta=meta(idempotency_key="mail-7")
        )
        [wait] = await SqliteInbox(path).waits()
        still = await client.call_tool(
            "draft", {"subject": "it"}, meta=meta(idempotency_key="mail-7")
        )
        await SqliteInbox(path).answer(wait.id, content=True, by="ann")
        done = await client.call_tool(
            "draft", {"subject": "it"}, meta=meta(idempotency_key="mail-7")
        )

    assert waits.is_error
    assert wait.id in text_of(waits)
    assert waits.meta is not None
    assert waits.meta[KEY] == "mail-7"
    assert text_of(still) == text_of(waits)
    assert text_of(done) == "it sent"


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_is_made_twice_runs_once(era: Era, path: Path) -> None:
    """DUR-3: the key names the call; another call cannot have it, another key is another call."""
    runs: list[str] = []

    @tool
    async def once(name: str) -> str:
        """Run."""
        runs.append(name)
        return f"{name} {len(runs)}"

    async with in_memory(kept([once], path), era) as client:
        first = await client.call_tool("once", {"name": "a"}, meta=meta(idempotency_key="k"))
        again = await client.call_tool("once", {"name": "a"}, meta=meta(idempotency_key="k"))
        other = await client.call_tool("once", {"name": "b"}, meta=meta(idempotency_key="k"))
        fresh = await client.call_tool("once", {"name": "a"})

    assert text_of(first) == text_of(again) == "a 1"
    assert other.is_error
    assert text_of(fresh) == "a 2"
    assert runs == ["a", "a"]


@pytest.mark.parametrize("era", ERAS)
async def test_who_declines_ends_the_call_and_who_does_not_choose_leaves_it(
    era: Era, path: Path
) -> None:
    """SUS-4: a no is a no; a closed window leaves the question for somebody else."""
    inbox = SqliteInbox(path)
    async with in_memory(
        kept(TOOLS, path), era, elicitation_callback=answering(None, "decline")
    ) as client:
        declined = await client.call_tool("draft", {"subject": "it"})
        assert await inbox.waits() == []
    async with in_memory(
        kept(TOOLS, path), era, elicitation_callback=answering(None, "cancel")
    ) as client:
        closed = await client.call_tool("draft", {"subject": "it"})
        [wait] = await inbox.waits()

    assert "was withdrawn" in text_of(declined)
    assert wait.id in text_of(closed)


@pytest.mark.parametrize("era", ERAS)
async def test_a_guard_asks_through_the_client(era: Era, path: Path) -> None:
    """AUT-4: the approval is kept with who gave it."""
    tools = Registry(TOOLS).guarded(lambda it: Allow() if it.approval else Ask("May it?"))
    said = answering({"answer": True})
    async with in_memory(kept(tools, path), era, elicitation_callback=said) as client:
        assert text_of(await client.call_tool("add", {"a": 1, "b": 2})) == "3"

    assert [line.by for line in await SqliteInbox(path).history() if line.step == "approve"] == [
        "mcp connection"
    ]


@pytest.mark.parametrize("era", ERAS)
async def test_running_calls_ask_and_tell_their_client(era: Era, path: Path) -> None:
    """ASK-1, EXE-8: as without a runtime, since the server made the executor."""
    heard: list[float] = []
    all_heard = anyio.Event()

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)
        if progress == 2:
            all_heard.set()

    async def told(_: Context, update: Progress) -> None:
        to_host.append(update.progress)

    def told_plainly(_: Context, update: Progress) -> None:
        assert threading.current_thread() is not threading.main_thread()
        to_host.append(update.progress)

    to_host: list[float | None] = []
    said = answering({"answer": True})
    sink = told if era == "legacy" else told_plainly
    tools = Executor(TOOLS, on_progress=sink)
    async with in_memory(kept(tools, path), era, elicitation_callback=said) as client:
        assert text_of(await client.call_tool("sure")) == "Accepted(content=True)"
        await client.call_tool("steps", {"count": 2}, progress_callback=listen)
        await all_heard.wait()

    assert heard == to_host == [1, 2]


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_stops_a_kept_call_stops_it_for_good(era: Era, path: Path) -> None:
    """CLO-2: it is not left for the next process to run."""
    begun, stopped = anyio.Event(), anyio.Event()

    @tool
    async def waits() -> None:
        """Wait."""
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    async with in_memory(kept([waits], path), era) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "waits")
            await begun.wait()
            group.cancel_scope.cancel()
        await stopped.wait()
        inbox = SqliteInbox(path)
        while not await inbox.unknown():  # noqa: ASYNC110  # a file has no event
            await anyio.sleep(0.01)

    [call] = await inbox.unknown()
    assert call.state == "unknown"


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_goes_away_leaves_its_call_to_the_runtime(era: Era, path: Path) -> None:
    """DUR-2: what takes no harm from it runs again, and its ending is there for the same key."""
    begun, go_on = anyio.Event(), anyio.Event()

    @tool(replay="safe")
    async def waits() -> str:
        """Wait."""
        begun.set()
        await go_on.wait()
        return "done"

    async with kept([waits], path) as server, anyio.create_task_group() as group:
        async with Client(server.sdk, mode=era) as client:

            async def call() -> None:
                with suppress(MCPError, anyio.ClosedResourceError):
                    await client.call_tool("waits", meta=meta(idempotency_key="k"))

            group.start_soon(call)
            await begun.wait()
        group.cancel_scope.cancel()
    assert "told" not in {line.step for line in await SqliteInbox(path).history()}
    go_on.set()
    async with in_memory(kept([waits], path), era) as client:
        done = await client.call_tool("waits", meta=meta(idempotency_key="k"))

    assert text_of(done) == "done"


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_wrong_with_a_journal_is_private(
    era: Era, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """FAIL-6, MS-02: the tool did not run; the client reads a reference, the log has the rest."""
    registry = Registry(TOOLS)
    async with SqliteRuntime(registry, path) as runtime:
        pass
    async with in_memory(Server(registry, runtime=runtime), era) as client:
        done = await client.call_tool("add", {"a": 1, "b": 2})

    assert done.is_error
    assert str(path) not in text_of(done)
    assert "(reference " in text_of(done)
    assert caplog.records


async def test_a_call_goes_on_after_the_server_was_started_anew(path: Path) -> None:
    """DUR-2: its client still has what it carried, and the file what it asked."""
    key = b"k" * 32

    async def request(client: Client, **more: Any) -> Any:  # noqa: ANN401  # either kind of result
        params = types.CallToolRequestParams(name="draft", arguments={"subject": "it"}, **more)
        return await client.session.send_request(types.CallToolRequest(params=params), EITHER)

    said = answering(None, "cancel")
    async with in_memory(
        kept(TOOLS, path, keys=[key]), "auto", elicitation_callback=said
    ) as client:
        asked = await request(client)
    async with in_memory(
        kept(TOOLS, path, keys=[key]), "auto", elicitation_callback=said
    ) as client:
        yes = types.ElicitResult(action="accept", content={"answer": True})
        done = await request(
            client, input_responses={"question": yes}, request_state=asked.request_state
        )

    assert text_of(done) == "it sent"


@pytest.mark.parametrize("era", ERAS)
async def test_a_runtime_of_the_hosts_own_is_left_open(era: Era, path: Path) -> None:
    """CLO-1: a server closes what it opened; what runs asks whom the runtime's executor asks."""
    registry = Registry(TOOLS)
    async with SqliteRuntime(Executor(registry), path) as runtime:
        said = answering({"answer": True})
        async with in_memory(
            Server(registry, runtime=runtime), era, elicitation_callback=said
        ) as client:
            asked = await client.call_tool("draft", {"subject": "it"})
            waited = await client.call_tool("sure")
        assert await runtime.inbox.waits() == []

    assert text_of(asked) == "it sent"
    assert "nobody can be asked while this call runs" in text_of(waited)


async def test_a_tool_that_asks_after_its_server_is_gone_is_told_so(path: Path) -> None:
    """ASK-1: another process that runs the call has no client to ask."""
    begun = anyio.Event()

    @tool(replay="safe")
    async def asks(context: Context) -> str:
        """Ask, once somebody may."""
        begun.set()
        return repr(await context.ask("Well?", bool))

    server = kept([asks], path)
    async with server, SqliteRuntime([asks], path) as runtime:
        batch = await runtime.submit([ToolCall.of("asks")], batch_id="b")
        [outcome] = await batch.settled()

    assert "nobody can be asked" in outcome.text


class Anybody:
    """Takes every token for the name of who brings it."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return whose a token is."""
        return AccessToken(token=token, client_id="app", scopes=[], subject=token)


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("era", ERAS)
async def test_a_key_is_of_the_one_who_says_it(era: Era, path: Path) -> None:
    """DUR-3: what the server said is what brings the ending, and to nobody else."""
    auth = AuthSettings.model_validate(
        {
            "issuer_url": "https://issuer.example",
            "resource_server_url": "http://127.0.0.1/mcp",
            "validate_token_resource": False,
        }
    )
    server = kept(TOOLS, path)

    def made() -> object:
        return server.asgi(tokens=Anybody(), auth=auth)

    async def draft(address: str, who: str, **said: str) -> types.CallToolResult:
        headers = {"Authorization": f"Bearer {who}"}
        async with by_http(address, era, headers) as client:
            return await client.call_tool("draft", {"subject": "it"}, meta=meta(**said))

    with at_a_port(made) as address:
        waits = await draft(address, "alice")
        assert waits.meta is not None
        said = {"idempotency_key": waits.meta[KEY]}
        [wait] = await SqliteInbox(path).waits()
        await SqliteInbox(path).answer(wait.id, content=True, by="ann")
        done = await draft(address, "alice", **said)
        other = await draft(address, "bob", **said)

    assert text_of(done) == "it sent"
    assert "waits for an answer" in text_of(other)
