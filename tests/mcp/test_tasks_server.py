"""Long calls, served: a task for an answer, which its client comes back for."""

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError, types
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings

from ferrule import Allow, Ask, Context, InputRequest, InvalidValue, Registry, tool
from ferrule.mcp import Server, Tasks
from ferrule.runtime import SqliteInbox, SqliteRuntime
from served import TOOLS
from serving import Era, along, at_a_port, by_http, in_memory, meta, text_of
from tasking import EXTENSION, Held, Plain, Taking, Told, asked, called, got, until, when

pytestmark = pytest.mark.anyio

AT_ONCE = Tasks(after=0, poll=0.02)
NEVER = Tasks(after=10_000)
MODERN = [
    pytest.param(backend, (kind, "auto"), id=f"{backend}-{kind}")
    for backend, kind in (
        *(("asyncio", "memory"), ("asyncio", "stdio"), ("asyncio", "http")),
        *(("trio", "memory"), ("trio", "stdio")),
    )
]
YES = {"action": "accept", "content": {"answer": True}}
NEEDED: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


async def nobody(_: object, __: object) -> types.ElicitResult:
    """Answer nothing: what a task asks goes another way."""
    raise AssertionError


@asynccontextmanager
async def taking(tools: Any, tasks: Any = AT_ONCE, **options: Any) -> AsyncGenerator[Client]:  # noqa: ANN401  # of a server
    """Give a client in this process that takes tasks and can be asked."""
    server = Server(tools, tasks=tasks, **options)
    async with in_memory(
        server, "auto", extensions=[Taking()], elicitation_callback=nobody
    ) as client:
        yield client


def text_in(told: Told) -> str:
    """Return the one text of a task's result."""
    [block] = told["result"]["content"]
    return str(block["text"])


# ---- which calls, and how they end ---------------------------------------------------------------


@pytest.mark.parametrize(("anyio_backend", "way"), MODERN, indirect=["anyio_backend"])
async def test_a_long_call_is_answered_with_a_task_and_its_end_is_fetched(
    way: tuple[str, Era], anyio_backend: str
) -> None:
    """MCP-1: in memory, over pipes and over HTTP; found at once, and the same each time."""
    server = Server(TOOLS, tasks=AT_ONCE)
    async with along(way, server, anyio_backend, extensions=[Taking()]) as client:
        created = await called(client, "summed", numbers=[1, 2])
        seen = await got(client, created["taskId"])
        ended = await until(client, created["taskId"], "completed")
        again = await got(client, created["taskId"])

    assert created["resultType"] == "task"
    assert created["status"] == "working"
    assert (created["ttlMs"], created["pollIntervalMs"]) == (3_600_000, 20)
    assert not created.keys() & {"result", "error", "inputRequests", "requestState", "task"}
    assert STAMP.fullmatch(created["createdAt"])
    assert STAMP.fullmatch(created["lastUpdatedAt"])
    assert seen["taskId"] == ended["taskId"] == created["taskId"]
    assert seen["createdAt"] == ended["createdAt"]
    assert ended["resultType"] == "complete"
    assert ended["result"]["structuredContent"] == {"total": 3}
    assert ended["result"]["isError"] is False
    assert again["result"] == ended["result"]


async def test_a_quick_call_is_answered_as_ever() -> None:
    """MCP-1: what is done in time is no task; nor is what asks in time."""
    async with taking(TOOLS, NEVER) as client:
        done = await called(client, "add", a=1, b=2)
        asks = await called(client, "draft", subject="it")

    assert (done["resultType"], done["structuredContent"]) == ("complete", 3)
    assert (asks["resultType"], "taskId" in asks) == ("input_required", False)


@pytest.mark.parametrize("era", ["legacy", "auto"])
@pytest.mark.parametrize("options", [{}, {"elicitation_callback": nobody}])
async def test_who_takes_no_tasks_is_given_none(era: Era, options: Any) -> None:  # noqa: ANN401  # of a client
    """MCP-1: each request says it anew; in the handshake era there is no such thing at all."""
    async with in_memory(Server(TOOLS, tasks=AT_ONCE), era, **options) as client:
        offered = client.server_capabilities.extensions
        done = await client.call_tool("add", {"a": 1, "b": 2})
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            with pytest.raises(MCPError) as refused:
                await asked(client, method, "x", inputResponses={})
            if era == "legacy":
                assert refused.value.code == types.METHOD_NOT_FOUND
            else:
                assert refused.value.code == -32021
                assert refused.value.error.data == NEEDED

    assert text_of(done) == "3"
    assert offered == (None if era == "legacy" else {EXTENSION: {}})


async def test_a_server_without_tasks_knows_nothing_of_them() -> None:
    """MCP-1: off unless it is asked for."""
    async with taking(TOOLS, None) as client:
        done = await called(client, "add", a=1, b=2)
        with pytest.raises(MCPError) as refused:
            await got(client, "x")

        assert client.server_capabilities.extensions is None
    assert done["resultType"] == "complete"
    assert refused.value.code == types.METHOD_NOT_FOUND


@pytest.mark.parametrize("name", ["refused", "broken", "broken_shape", "add"])
async def test_what_goes_wrong_with_a_tool_is_a_completed_task(name: str) -> None:
    """FAIL-6, MCP-1: failure, crash, nonsense, bad arguments: the texts that any client gets."""
    async with taking(TOOLS) as client:
        created = await called(client, name)
        ended = await until(client, created["taskId"], "completed", "failed", "cancelled")
    async with in_memory(Server(TOOLS), "auto") as client:
        plain = await client.call_tool(name)

    assert ended["status"] == "completed"
    assert ended["result"]["isError"] is True
    without = re.compile(r"\(reference \w+\)")
    assert without.sub("", text_in(ended)) == without.sub("", text_of(plain))


async def test_records_reach_the_client_of_a_task() -> None:
    """REC-1, MS-05: in the `_meta` of the result, as ever."""
    async with taking(TOOLS) as client:
        created = await called(client, "noted")
        ended = await until(client, created["taskId"], "completed")

    assert ended["result"]["_meta"]["ferrule/record"]["namespace"] == "shell:process"


async def test_how_far_a_task_is_stands_in_its_status_message() -> None:
    """EXE-8: tasks have no progress, but words; the newest."""
    held, told = Held(), anyio.Event()

    @tool
    async def works(context: Context) -> str:
        """Work."""
        context.progress(1, 2, "half\nway")
        told.set()
        await held.let_go.wait()
        return "done"

    async with taking([works]) as client:
        created = await called(client, "works")
        await told.wait()
        seen = await when(
            lambda: got(client, created["taskId"]), lambda one: "statusMessage" in one
        )
        held.let_go.set()
        await until(client, created["taskId"], "completed")

    assert seen["status"] == "working"
    assert seen["statusMessage"] == "half way"


# ---- questions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("anyio_backend", "way"), MODERN, indirect=["anyio_backend"])
@pytest.mark.parametrize(
    ("name", "arguments", "ending"),
    [("sure", {}, "Accepted(content=True)"), ("draft", {"subject": "it"}, "it sent")],
)
async def test_a_task_that_asks_goes_on_with_the_answer(
    way: tuple[str, Era], anyio_backend: str, name: str, arguments: Told, ending: str
) -> None:
    """ASK-1, SUS-2: a tool that waits and a leg that ended, by the same road."""
    server = Server(TOOLS, tasks=AT_ONCE)
    options: Any = {"extensions": [Taking()], "elicitation_callback": nobody}
    async with along(way, server, anyio_backend, **options) as client:
        task_id = (await called(client, name, **arguments))["taskId"]
        asks = await until(client, task_id, "input_required")
        [key] = asks["inputRequests"]
        done = await asked(client, "tasks/update", task_id, inputResponses={key: YES})
        ended = await until(client, task_id, "completed")

    question = asks["inputRequests"][key]
    assert question["method"] == "elicitation/create"
    assert question["params"]["requestedSchema"]["properties"] == {"answer": {"type": "boolean"}}
    assert done["resultType"] == "complete"
    assert not done.keys() & {"taskId", "status", "result", "inputRequests"}
    assert text_in(ended) == ending


async def test_an_answer_that_is_none_is_asked_for_by_another_name() -> None:
    """SUS-3: no key of a task ever means two questions; what nobody asked is not heard."""
    async with taking(TOOLS) as client:
        task_id = (await called(client, "sure"))["taskId"]
        [first] = (await until(client, task_id, "input_required"))["inputRequests"]
        wrong = {first: {"action": "accept", "content": {"answer": "perhaps"}}, "else": YES}
        await asked(client, "tasks/update", task_id, inputResponses=wrong)
        [second] = (await until(client, task_id, "input_required"))["inputRequests"]
        nonsense = {second: "yes", first: YES}
        await asked(client, "tasks/update", task_id, inputResponses=nonsense)
        [third] = (await until(client, task_id, "input_required"))["inputRequests"]
        await asked(client, "tasks/update", task_id, inputResponses={third: YES})
        ended = await until(client, task_id, "completed")

    assert len({first, second, third}) == 3
    assert text_in(ended) == "Accepted(content=True)"


async def test_a_task_asks_no_more_often_than_a_client_answers() -> None:
    """ASK-1: `rounds`, here as for any call; then nobody has chosen."""
    async with taking(TOOLS, rounds=2) as client:
        task_id = (await called(client, "sure"))["taskId"]
        [key] = (await until(client, task_id, "input_required"))["inputRequests"]
        await asked(client, "tasks/update", task_id, inputResponses={key: None})
        ended = await until(client, task_id, "completed")

    assert text_in(ended) == "Declined(action='cancel')"


async def test_questions_side_by_side_are_answered_one_by_one() -> None:
    """ASK-1: what is answered is asked no more, and the other still is."""

    @tool
    async def two(context: Context) -> str:
        """Ask two things."""
        answers: dict[int, object] = {}

        async def ask(number: int) -> None:
            answers[number] = await context.ask(f"{number}?", bool)

        async with anyio.create_task_group() as group:
            group.start_soon(ask, 1)
            group.start_soon(ask, 2)
        return str(sorted(answers))

    async with taking([two]) as client:
        task_id = (await called(client, "two"))["taskId"]
        both = await when(
            lambda: got(client, task_id), lambda told: len(told.get("inputRequests", {})) == 2
        )
        first, second = both["inputRequests"]
        await asked(client, "tasks/update", task_id, inputResponses={first: YES})
        one = await got(client, task_id)
        await asked(client, "tasks/update", task_id, inputResponses={second: YES})
        ended = await until(client, task_id, "completed")

    assert one["status"] == "input_required"
    assert list(one["inputRequests"]) == [second]
    assert text_in(ended) == "[1, 2]"


@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
async def test_a_guard_asks_in_a_task(action: str) -> None:
    """AUT-4, AUT-7: who declines a yes or no has said no; the approval is the client's."""
    tools = Registry(TOOLS).guarded(
        lambda it: Ask("May it?") if it.approval is None else it.approval.answer is True
    )
    async with taking(tools) as client:
        task_id = (await called(client, "add", a=1, b=2))["taskId"]
        [key] = (await until(client, task_id, "input_required"))["inputRequests"]
        said = {"action": action, "content": {"answer": True} if action == "accept" else None}
        await asked(client, "tasks/update", task_id, inputResponses={key: said})
        ended = await until(client, task_id, "completed")

    expected = {
        "accept": "3",
        "decline": 'tool "add" is not authorized',
        "cancel": 'tool "add" did not go on: what it asked was not answered: May it?',
    }
    assert text_in(ended) == expected[action]


async def test_a_task_whose_client_cannot_be_asked_has_failed() -> None:
    """MCP-1: the one error of the protocol that a call can end with, as it would without a task."""
    server = Server(TOOLS, tasks=AT_ONCE)
    async with in_memory(server, "auto", extensions=[Taking()]) as client:
        task_id = (await called(client, "draft", subject="it"))["taskId"]
        ended = await until(client, task_id, "failed", "completed")

    assert ended["status"] == "failed"
    assert ended["error"]["code"] == -32021
    assert ended["statusMessage"] == ended["error"]["message"]
    assert "elicitation" in ended["error"]["data"]["requiredCapabilities"]
    assert "result" not in ended


async def test_a_call_that_asks_first_and_takes_long_then_is_a_task_then() -> None:
    """SUS-2: the question of the first request as ever; the rest of the call without one."""
    held = Held()

    @tool
    async def first_asks() -> InputRequest:
        """Ask."""
        return goes_on.ask("Well?", "x")

    @first_asks.step
    async def goes_on(state: str, answer: bool) -> str:
        """Take long."""
        held.begun.set()
        await held.let_go.wait()
        return f"{state} {answer}"

    async with taking([first_asks], Tasks(after=0.2, poll=0.02)) as client:
        first = await called(client, "first_asks")
        created = await client.session.call_tool(
            "first_asks",
            {},
            input_responses={"question": types.ElicitResult.model_validate(YES)},
            request_state=first["requestState"],
            allow_claimed=True,
            allow_input_required=True,
        )
        told = created.model_dump(by_alias=True)
        held.let_go.set()
        ended = await until(client, told["taskId"], "completed")

    assert first["resultType"] == "input_required"
    assert (told["resultType"], "requestState" in told) == ("task", False)
    assert text_in(ended) == "x True"


# ---- stopping, forgetting, bounds ----------------------------------------------------------------


async def test_a_client_that_cancels_a_task_stops_its_tool() -> None:
    """CLO-2: acknowledged at once; then it is cancelled, and that may be said twice."""
    held = Held()
    async with taking([held.tool]) as client:
        task_id = (await called(client, "held"))["taskId"]
        await held.begun.wait()
        done = await asked(client, "tasks/cancel", task_id)
        await held.stopped.wait()
        ended = await until(client, task_id, "cancelled", "completed", "failed")
        again = await asked(client, "tasks/cancel", task_id)
        still = await got(client, task_id)

    assert done.keys() - {"_meta"} == {"resultType"}
    assert ended["status"] == still["status"] == "cancelled"
    assert ended["statusMessage"] == 'tool "held" was stopped; it may have taken effect'
    assert again["resultType"] == "complete"
    assert "result" not in ended


async def test_a_tool_that_finishes_although_it_was_told_to_stop_has_finished() -> None:
    """CLO-2: the work was done before the cancelling could take effect."""
    begun = anyio.Event()

    @tool
    async def stubborn() -> str:
        """Finish."""
        begun.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return "finished"
        raise AssertionError

    async with taking([stubborn]) as client:
        task_id = (await called(client, "stubborn"))["taskId"]
        await begun.wait()
        await asked(client, "tasks/cancel", task_id)
        ended = await until(client, task_id, "cancelled", "completed")

    assert ended["status"] == "completed"
    assert text_in(ended) == "finished"


async def test_a_task_that_asks_can_be_cancelled() -> None:
    """CLO-2: whether its tool waits or its leg has ended."""
    async with taking(TOOLS) as client:
        for name, arguments in (("sure", {}), ("draft", {"subject": "it"})):
            task_id = (await called(client, name, **arguments))["taskId"]
            await until(client, task_id, "input_required")
            await asked(client, "tasks/cancel", task_id)
            ended = await until(client, task_id, "cancelled", "completed", "failed")
            assert ended["status"] == "cancelled"


async def test_a_task_is_forgotten_in_its_time_and_stopped_if_it_still_runs() -> None:
    """MCP-1: kept from its beginning, and no longer; nobody would fetch what comes then."""
    held = Held()
    async with taking([held.tool], Tasks(after=0, ttl=0.1)) as client:
        created = await called(client, "held")
        await held.stopped.wait()
        gone = await when(lambda: told_or_refused(client, created["taskId"]), is_refused)

    assert created["ttlMs"] == 100
    assert gone == {"refused": "No such task", "code": types.INVALID_PARAMS}


async def test_a_session_has_so_many_tasks_and_its_further_calls_are_waited_for() -> None:
    """MCP-1: ended tasks count while they are kept; an answer is never lost for it."""
    async with taking(TOOLS, Tasks(after=0, most=2)) as client:
        first = await called(client, "add", a=1, b=1)
        await until(client, first["taskId"], "completed")
        second = await called(client, "add", a=1, b=2)
        third = await called(client, "add", a=1, b=3)

    assert second["resultType"] == "task"
    assert (third["resultType"], third["structuredContent"]) == ("complete", 4)


async def told_or_refused(client: Client, task_id: str) -> Told:
    """Return how a task stands, or how the server refuses to say."""
    try:
        return await got(client, task_id)
    except MCPError as error:
        return {"refused": error.error.message.partition(":")[0], "code": error.code}


def is_refused(told: Told) -> bool:
    """Say whether the server refused."""
    return "refused" in told


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_tool_that_must_be_a_task_is_for_clients_that_take_them(era: Era) -> None:
    """MCP-1: -32021 names what is missing; earlier clients read why."""
    held = Held()
    tasks = Tasks(after=0, required=("held",))
    async with taking([held.tool], tasks) as client:
        assert (await called(client, "held"))["resultType"] == "task"
    async with in_memory(Server([held.tool], tasks=tasks), era) as client:
        if era == "auto":
            with pytest.raises(MCPError) as refused:
                await client.call_tool("held")
            assert refused.value.code == -32021
            assert refused.value.error.data == NEEDED
        else:
            answer = await client.call_tool("held")
            assert answer.is_error
            assert "take tasks" in text_of(answer)


@pytest.mark.parametrize(
    "wrong", [{"after": -1}, {"ttl": 0}, {"poll": 0}, {"most": 0}, {"after": float("nan")}]
)
def test_times_and_bounds_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    """Bad input: by the one sentence that says what would do."""
    with pytest.raises(InvalidValue, match="after is 0 or more"):
        Tasks(**wrong)


def test_tasks_are_seconds_or_a_value_that_says_more() -> None:
    """Bad input: `True` says neither when nor how long."""
    Server([], tasks=2.5)
    with pytest.raises(InvalidValue, match="tasks is seconds"):
        Server([], tasks=True)
    with pytest.raises(InvalidValue, match="tasks is seconds"):
        Server([], tasks="5")  # type: ignore[arg-type]  # that is what is tested


async def test_who_wants_to_be_told_of_tasks_has_to_take_them() -> None:
    """MCP-1: nobody is told here, but who asks without the extension is refused all the same."""
    wanted = {"notifications": {"taskIds": ["x"]}}
    request = Plain(method="subscriptions/listen", params=wanted)
    async with in_memory(Server(TOOLS, tasks=AT_ONCE), "auto") as client:
        with pytest.raises(MCPError) as refused:
            await client.session.send_request(request, types.EmptyResult)

    assert refused.value.code == -32021


# ---- whose they are ------------------------------------------------------------------------------


async def test_a_task_of_another_connection_is_none() -> None:
    """MCP-1: nobody learns of it, whatever it is asked for."""
    async with Server(TOOLS, tasks=AT_ONCE) as server:
        options: Any = {"mode": "auto", "extensions": [Taking()]}
        async with Client(server.sdk, **options) as ann, Client(server.sdk, **options) as bob:
            task_id = (await called(ann, "add", a=1, b=2))["taskId"]
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                with pytest.raises(MCPError, match="No such task") as refused:
                    await asked(bob, method, task_id, inputResponses={})
                assert refused.value.code == types.INVALID_PARAMS
            assert text_in(await until(ann, task_id, "completed")) == "3"


class Anybody:
    """Takes every token for the name of who brings it."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return whose a token is."""
        return AccessToken(token=token, client_id="app", scopes=[], subject=token)


def guarded(server: Server) -> Callable[[], object]:
    """Return what makes an app that knows people by their tokens."""
    auth = AuthSettings.model_validate(
        {
            "issuer_url": "https://issuer.example",
            "resource_server_url": "http://127.0.0.1/mcp",
            "validate_token_resource": False,
        }
    )
    return lambda: server.asgi(tokens=Anybody(), auth=auth)


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("is_kept", [False, True])
async def test_a_task_is_of_whom_the_token_names(
    is_kept: bool,
    tmp_path: Path,
) -> None:
    """MCP-1: also from another connection, and to nobody else; in a journal too."""
    runtime = (lambda executor: SqliteRuntime(executor, tmp_path / "j")) if is_kept else None
    with at_a_port(guarded(Server(TOOLS, tasks=AT_ONCE, runtime=runtime))) as address:

        @asynccontextmanager
        async def client_of(who: str) -> AsyncGenerator[Client]:
            headers = {"Authorization": f"Bearer {who}"}
            async with by_http(address, "auto", headers, extensions=[Taking()]) as client:
                yield client

        async with client_of("ann") as client:
            task_id = (await called(client, "add", a=1, b=2))["taskId"]
        async with client_of("bob") as client:
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                with pytest.raises(MCPError, match="No such task"):
                    await asked(client, method, task_id, inputResponses={})
        async with client_of("ann") as client:
            ended = await until(client, task_id, "completed")

    assert text_in(ended) == "3"


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("named", ["another", None])
async def test_a_header_that_names_another_task_is_refused(named: str | None) -> None:
    """SEP-2243: what stands in front of the server would have sent it elsewhere."""
    headers = {
        "mcp-method": "tasks/get",
        "mcp-protocol-version": "2026-07-28",
        "accept": "application/json, text/event-stream",
    } | ({} if named is None else {"mcp-name": named})
    envelope = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}},
    }
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tasks/get",
        "params": {"taskId": "mine", "_meta": envelope},
    }
    with at_a_port(Server(TOOLS, tasks=AT_ONCE).asgi) as address:
        async with httpx2.AsyncClient() as http:
            wrong = await http.post(f"{address}/mcp", json=body, headers=headers)
            right = await http.post(
                f"{address}/mcp", json=body, headers={**headers, "mcp-name": "mine"}
            )

    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, -32020)
    assert right.json()["error"]["code"] == types.INVALID_PARAMS


# ---- tasks that outlive their process ------------------------------------------------------------

KEY = b"k" * 32


@asynccontextmanager
async def kept(tools: Any, path: Path, **options: Any) -> AsyncGenerator[Client]:  # noqa: ANN401  # of a server
    """Give a client of a server whose calls are kept in a file."""
    given = {"keys": [KEY], **options}
    async with taking(tools, runtime=lambda it: SqliteRuntime(it, path), **given) as client:
        yield client


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where calls are kept."""
    return tmp_path / "calls.db"


async def test_the_end_of_a_kept_task_is_there_for_another_process(path: Path) -> None:
    """DUR-1: by the id alone, under the same key; nothing is ever thrown away."""
    async with kept(TOOLS, path) as client:
        created = await called(client, "add", a=1, b=2)
        ended = await until(client, created["taskId"], "completed")
    async with kept(TOOLS, path, keys=[b"n" * 32, KEY]) as client:
        again = await got(client, created["taskId"])
    async with kept(TOOLS, path, keys=[b"n" * 32]) as client:
        with pytest.raises(MCPError, match="No such task"):
            await got(client, created["taskId"])

    assert created["ttlMs"] is None
    assert text_in(ended) == "3"
    assert again["result"] == ended["result"]
    assert again["createdAt"] == ended["createdAt"]


@pytest.mark.parametrize("task_id", ["", ".", "x", "bm9uZQ.0000", "bm9u\u00e9.00", "=.="])
async def test_an_id_that_was_never_given_out_is_none(task_id: str, path: Path) -> None:
    """MCP-1: whatever it looks like."""
    async with kept(TOOLS, path) as client:
        with pytest.raises(MCPError, match="No such task") as refused:
            await got(client, task_id)

    assert refused.value.code == types.INVALID_PARAMS


async def test_a_kept_task_goes_on_in_the_next_process(path: Path) -> None:
    """DUR-2: what takes no harm from it runs again, when its client comes back."""
    begun, let_go = anyio.Event(), anyio.Event()

    @tool(replay="safe")
    async def waits() -> str:
        """Wait."""
        begun.set()
        await let_go.wait()
        return "done"

    async with kept([waits], path) as client:
        task_id = (await called(client, "waits"))["taskId"]
        await begun.wait()
    let_go.set()
    async with kept([waits], path) as client:
        ended = await until(client, task_id, "completed", "failed", "cancelled")

    assert text_in(ended) == "done"


async def test_what_was_lost_with_its_process_may_have_taken_effect(path: Path) -> None:
    """DUR-2, FAIL-6: the client reads so; nothing runs twice."""
    held = Held()
    async with kept([held.tool], path) as client:
        task_id = (await called(client, "held"))["taskId"]
        await held.begun.wait()
    held.begun = anyio.Event()
    async with kept([held.tool], path) as client:
        ended = await until(client, task_id, "completed", "failed", "cancelled")

    assert "may have taken effect" in str(ended)
    assert not held.begun.is_set()


async def test_a_kept_task_is_answered_by_its_client_or_by_anybody(path: Path) -> None:
    """SUS-3: by what the journal calls the question; the next process asks the same."""
    async with kept(TOOLS, path) as client:
        task_id = (await called(client, "draft", subject="it"))["taskId"]
        other_id = (await called(client, "draft", subject="that"))["taskId"]
        [key] = (await until(client, task_id, "input_required"))["inputRequests"]
        await until(client, other_id, "input_required")
    async with kept(TOOLS, path) as client:
        [same] = (await until(client, task_id, "input_required"))["inputRequests"]
        wrong = {same: {"action": "accept", "content": {"answer": "x"}}}
        await asked(client, "tasks/update", task_id, inputResponses=wrong)
        [new] = (await until(client, task_id, "input_required"))["inputRequests"]
        await asked(client, "tasks/update", task_id, inputResponses={new: YES})
        ended = await until(client, task_id, "completed")
        [wait] = await SqliteInbox(path).waits()
        await SqliteInbox(path).answer(wait.id, content=False, by="ann")
        other = await until(client, other_id, "completed")

    assert same == key
    assert new != same
    assert (text_in(ended), text_in(other)) == ("it sent", "that kept")


async def test_who_does_not_choose_leaves_a_kept_question_to_others(path: Path) -> None:
    """SUS-4: the task says whom it waits for; a no takes the question back."""
    async with kept(TOOLS, path) as client:
        task_id = (await called(client, "draft", subject="it"))["taskId"]
        [key] = (await until(client, task_id, "input_required"))["inputRequests"]
        closed = {key: {"action": "cancel"}}
        await asked(client, "tasks/update", task_id, inputResponses=closed)
        waits = await got(client, task_id)
        [wait] = await SqliteInbox(path).waits()
        await SqliteInbox(path).answer(wait.id, content=True, by="ann")
        ended = await until(client, task_id, "completed")
        refused_id = (await called(client, "draft", subject="no"))["taskId"]
        [key] = (await until(client, refused_id, "input_required"))["inputRequests"]
        no = {key: {"action": "decline"}}
        await asked(client, "tasks/update", refused_id, inputResponses=no)
        refused = await until(client, refused_id, "completed")

    assert waits["status"] == "working"
    assert wait.id in waits["statusMessage"]
    assert text_in(ended) == "it sent"
    assert "was withdrawn" in text_in(refused)


async def test_a_kept_tool_that_waits_asks_through_the_task(path: Path) -> None:
    """ASK-1: for as long as its process lives."""
    async with kept(TOOLS, path) as client:
        task_id = (await called(client, "sure"))["taskId"]
        [key] = (await until(client, task_id, "input_required"))["inputRequests"]
        await asked(client, "tasks/update", task_id, inputResponses={key: YES})
        ended = await until(client, task_id, "completed")

    assert text_in(ended) == "Accepted(content=True)"


async def test_a_kept_task_is_cancelled_for_good(path: Path) -> None:
    """CLO-2: whether it runs or waits for a person; also from the next process."""
    held = Held()
    async with kept([*TOOLS[:-6], held.tool], path) as client:
        running = (await called(client, "held"))["taskId"]
        waiting = (await called(client, "draft", subject="it"))["taskId"]
        await held.begun.wait()
        await until(client, waiting, "input_required")
        await asked(client, "tasks/cancel", running)
        await held.stopped.wait()
        stopped = await until(client, running, "cancelled", "completed", "failed")
    async with kept(TOOLS, path) as client:
        await asked(client, "tasks/cancel", waiting)
        ended = await until(client, waiting, "cancelled", "completed", "failed")

    assert stopped["status"] == "cancelled"
    assert text_in(ended) == "it was cancelled while it waited for an answer"
    assert await SqliteInbox(path).waits() == []


async def test_the_same_call_by_its_key_is_the_same_task(path: Path) -> None:
    """DUR-3: it runs once, and its client has lost nothing."""
    held = Held()
    async with kept([held.tool], path) as client:

        async def call() -> str:
            answer = await client.session.call_tool(
                "held",
                {},
                meta=meta(idempotency_key="k"),
                allow_claimed=True,
            )
            return str(answer.model_dump(by_alias=True)["taskId"])

        first, second = await call(), await call()
        held.let_go.set()
        ended = await until(client, first, "completed")

    assert first == second
    assert text_in(ended) == "let go"


async def test_allow_is_no_question() -> None:
    """AUT-2: a guard that lets a call pass changes nothing about its task."""
    async with taking(Registry(TOOLS).guarded(lambda _: Allow())) as client:
        task_id = (await called(client, "add", a=1, b=2))["taskId"]
        assert text_in(await until(client, task_id, "completed")) == "3"
