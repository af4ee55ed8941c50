"""Long calls of other servers: followed to their end, and never made twice."""

import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPError, types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server as Lowlevel

from ferrule import (
    Accepted,
    Asker,
    Completed,
    Context,
    Declined,
    Executor,
    Failed,
    InvalidResult,
    Outcome,
    Progress,
    Question,
    Registry,
    Result,
    Tool,
    ToolCall,
    Traits,
    Unknown,
)
from ferrule.mcp import Command, InProcess, Remote, Server, Tasks, connect
from ferrule.mcp import _following as following
from ferrule.mcp import _listing as listing
from ferrule.runtime import SqliteRuntime
from served import TOOLS
from serving import SERVED, Era, at_a_port
from tasking import EXTENSION, Held, Replay

# The SDK leaves generators of its HTTP client to the garbage collector, which trio warns of.
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:Async generator")]

Wire = ServerRequestContext[Any]
AT_ONCE = Tasks(after=0, poll=0.02)
ID = "t1"
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "finished"}]}
FORM: dict[str, Any] = {"type": "object", "properties": {"answer": {"type": "boolean"}}}
ASK: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Well?", "requestedSchema": FORM},
}


async def run(
    remote: Remote, name: str, /, asker: Asker | None = None, **arguments: object
) -> Outcome:
    """Run one call."""
    executor = Executor(remote.tools, asker=asker)
    [outcome] = await executor.run([ToolCall.of(name, arguments)])
    return outcome


# ---- our own server, by every way ----------------------------------------------------------------


@pytest.fixture(params=["memory", "stdio", "http"])
def target(request: pytest.FixtureRequest, anyio_backend: str) -> Iterator[object]:
    """Give our own server, which makes a task of every call, over each transport."""
    server = Server(TOOLS, tasks=AT_ONCE)
    if request.param == "memory":
        yield server.sdk
    elif request.param == "stdio":
        path = {"PYTHONPATH": ":".join(sys.path)}
        yield Command((sys.executable, str(SERVED), anyio_backend), env=path)
    else:
        with at_a_port(server.asgi) as address:
            yield f"{address}/mcp"


async def test_a_call_that_becomes_a_task_ends_as_any_call(target: object) -> None:
    """MCP-1: results, structured ones and failures; the tool knows nothing of it."""
    async with connect(target, tasks=True) as remote:
        summed = await run(remote, "summed", numbers=[1, 2])
        kinds = await run(remote, "kinds")
        refused = await run(remote, "refused")
        broken = await run(remote, "broken_shape")

    assert isinstance(summed, Completed)
    assert summed.result.structured_content == {"total": 3}
    assert isinstance(kinds, Completed)
    assert len(kinds.result.content) == 10
    assert isinstance(refused, Failed)
    assert refused.text == "Error: the file is locked"
    assert isinstance(broken, Unknown)


async def test_what_a_task_asks_goes_to_whoever_the_call_may_ask(target: object) -> None:
    """ASK-1, AT-134: two calls at once; each question is its own call's."""
    asked: dict[str, str] = {}

    async def asker(context: Context, question: Question) -> Accepted[Any] | Declined:
        asked[context.call_id] = question.message
        return Accepted({"answer": context.call_id == "yes"})

    async with connect(target, tasks=True) as remote:
        executor = Executor(remote.tools, asker=asker)
        outcomes = await executor.run(
            [
                ToolCall.of("draft", {"subject": "this"}, id="yes"),
                ToolCall.of("draft", {"subject": "that"}, id="no"),
            ]
        )

    assert asked == {"yes": "Send this?", "no": "Send that?"}
    assert [outcome.text for outcome in outcomes] == ["this sent", "that kept"]


async def test_nobody_to_ask_is_nobody_who_chose(target: object) -> None:
    """ASK-1: the server hears so, and its tool goes on with that."""
    async with connect(target, tasks=True) as remote:
        outcome = await run(remote, "sure")

    assert outcome.text == "Declined(action='cancel')"


async def test_without_the_option_a_server_is_not_told_that_tasks_are_taken(target: object) -> None:
    """MCP-1: off unless it is asked for: such a call is answered as ever."""
    seen: list[Progress] = []

    def hear(_: Context, progress: Progress) -> None:
        seen.append(progress)

    async with connect(target) as remote:
        executor = Executor(remote.tools, on_progress=hear)
        [outcome] = await executor.run([ToolCall.of("steps", {"count": 2})])

    assert outcome.text == "done"
    assert [update.progress for update in seen][-1] == 2  # Tasks have none.


# ---- stopping ------------------------------------------------------------------------------------


@asynccontextmanager
async def remote_of(tools: list[Tool], limit: float | None = None) -> AsyncGenerator[Remote]:
    """Connect to a server of ours in this process."""
    async with (
        Server(tools, tasks=AT_ONCE) as server,
        connect(server.sdk, tasks=True, timeout=limit) as remote,
    ):
        yield remote


async def test_a_call_that_is_cancelled_is_cancelled_at_the_server() -> None:
    """CLO-2: we return at once, and the tool there is stopped."""
    held = Held()
    async with remote_of([held.tool]) as remote:
        async with Executor(remote.tools).batch([ToolCall.of("held")]) as batch:
            await anext(aiter(batch))
            await held.begun.wait()
            await looked(remote)
        [outcome] = batch.outcomes
        with anyio.fail_after(10):
            await held.stopped.wait()

    assert isinstance(outcome, Unknown)
    assert outcome.reason == "cancelled"


async def looked(remote: Remote) -> None:
    """Wait until a call is being followed."""
    [peer] = remote._peers.values()  # nothing public shows it
    with anyio.fail_after(10):
        while not peer._followed:  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def test_a_call_that_takes_too_long_is_cancelled_at_the_server() -> None:
    """EXE-7: reported at its limit; the server is told."""
    held = Held()
    async with remote_of([held.tool], limit=0.3) as remote:
        outcome = await run(remote, "held")
        with anyio.fail_after(10):
            await held.stopped.wait()

    assert isinstance(outcome, Unknown)
    assert outcome.reason == "timed_out"


async def test_a_remote_that_is_closed_tells_the_server_and_ends_its_calls() -> None:
    """CLO-1: nobody comes back for the task any more; it may have had its effect."""
    held, outcomes = Held(), list[Outcome]()
    with at_a_port(Server([held.tool], tasks=Tasks(after=0, poll=30)).asgi) as address:
        async with (
            anyio.create_task_group() as group,
            connect(f"{address}/mcp", tasks=True) as remote,
        ):
            group.cancel_scope.deadline = anyio.current_time() + 20  # Not the 30 of the server.

            async def call() -> None:
                outcomes.append(await run(remote, "held"))

            group.start_soon(call)
            await held_begun(held)
            await looked(remote)
        with anyio.fail_after(10):
            while not held.stopped.is_set():  # noqa: ASYNC110  # it is of another loop
                await anyio.sleep(0.01)

    [outcome] = outcomes
    assert isinstance(outcome, Unknown)
    assert outcome.reason == "raised"


async def held_begun(held: Held) -> None:
    """Wait until a tool in another thread has begun."""
    with anyio.fail_after(10):
        while not held.begun.is_set():  # noqa: ASYNC110  # it is of another loop
            await anyio.sleep(0.01)


async def test_a_proxy_hands_on_tasks_questions_and_endings() -> None:
    """MCP-1: a task of a task; asked through both, ended as it ended."""

    async def asker(_: Context, __: Question) -> Accepted[Any] | Declined:
        return Accepted({"answer": True})

    async with (
        Server(TOOLS, tasks=AT_ONCE) as inner,
        Registry([connect(inner.sdk, tasks=True)]) as between,
        Server(between, tasks=AT_ONCE) as outer,
        connect(outer.sdk, tasks=True) as remote,
    ):
        drafted = await run(remote, "draft", asker, subject="it")
        refused = await run(remote, "refused")

    assert drafted.text == "it sent"
    assert refused.text == "Error: the file is locked"


# ---- a server written by hand --------------------------------------------------------------------


class Params(types.RequestParams):
    """What requests about tasks say."""

    task_id: str
    input_responses: dict[str, Any] | None = None


class Script:
    """
    A server whose one tool becomes a task, and that says of it what is written.

    Attributes:
        told: What it answers, look by look; the last one for ever. An error is raised.
        heard: What was asked of it.
    """

    def __init__(
        self, *told: dict[str, Any] | MCPError, created: dict[str, Any] | None = None
    ) -> None:
        self.told = list(told)
        self.heard: list[str] = []
        self.answers: list[dict[str, Any]] = []
        self.offered: list[object] = []
        self.is_cancelled = anyio.Event()
        self._created = standing("working") if created is None else created
        self.sdk: Lowlevel[Any] = Lowlevel(
            "script", on_list_tools=self.list_tools, on_call_tool=self.call_tool
        )
        self.sdk.extensions[EXTENSION] = {}
        self.sdk.add_request_handler("tasks/get", Params, self.get)
        self.sdk.add_request_handler("tasks/update", Params, self.update)
        self.sdk.add_request_handler("tasks/cancel", Params, self.cancel)

    async def list_tools(self, _: object, __: object) -> types.ListToolsResult:
        """List the one tool."""
        return types.ListToolsResult(
            tools=[types.Tool(name="long", input_schema={"type": "object"})]
        )

    async def call_tool(self, wire: Wire, _: object) -> Any:  # noqa: ANN401  # the SDK has no word for a task
        """Make a task."""
        self.heard.append("tools/call")
        capabilities = wire.session.client_capabilities
        self.offered.append(capabilities and capabilities.extensions)
        return {"resultType": "task", **self._created}

    async def get(self, _: object, params: Params) -> dict[str, Any]:
        """Say what is written."""
        self.heard.append(f"tasks/get {params.task_id}")
        told = self.told.pop(0) if len(self.told) > 1 else self.told[0]
        if isinstance(told, MCPError):
            raise told
        return {"resultType": "complete", **told}

    async def update(self, _: object, params: Params) -> dict[str, Any]:
        """Take answers."""
        self.heard.append("tasks/update")
        self.answers.append(params.input_responses or {})
        return {"resultType": "complete"}

    async def cancel(self, _: object, params: Params) -> dict[str, Any]:
        """Note that somebody wants no more."""
        self.heard.append(f"tasks/cancel {params.task_id}")
        self.is_cancelled.set()
        return {"resultType": "complete"}


def standing(status: object, **more: object) -> dict[str, Any]:
    """Return how the task stands."""
    return {
        "taskId": ID,
        "status": status,
        "createdAt": "2026-12-01T00:00:00Z",
        "lastUpdatedAt": "2026-12-01T00:00:00Z",
        "ttlMs": None,
        "pollIntervalMs": 0,
        **more,
    }


COMPLETED = standing("completed", result=DONE)


@contextmanager
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ask again at once for what got lost."""
    with monkeypatch.context() as patch:
        patch.setattr(following, "AGAIN_SECONDS", (0.0, 0.0, 0.0))
        yield


@asynccontextmanager
async def scripted(script: Script, replay: Replay = "unknown") -> AsyncGenerator[Remote]:
    """Connect to a server written by hand."""
    traits = {"long": Traits(replay=replay)}
    with anyio.fail_after(30):
        async with connect(script.sdk, tasks=True, traits=traits) as remote:
            yield remote


async def told(script: Script, replay: Replay = "unknown") -> Outcome:
    """Return how a call ends at such a server."""
    async with scripted(script, replay) as remote:
        return await run(remote, "long")


async def test_a_task_is_followed_to_its_end() -> None:
    """MCP-1: by its id, as often as it takes; the extension was offered with the request."""
    script = Script(standing("working"), standing("working"), COMPLETED)
    outcome = await told(script)

    assert outcome.text == "finished"
    assert script.offered == [{EXTENSION: {}}]
    assert script.heard == ["tools/call", *[f"tasks/get {ID}"] * 3]


async def test_a_task_that_is_over_when_it_is_made_is_fetched_at_once() -> None:
    """MCP-1: a first status is only that; the result is where it always is."""
    created = standing("completed", pollIntervalMs=10**9)
    assert (await told(Script(COMPLETED, created=created))).text == "finished"


async def test_how_far_a_task_is_is_told_in_words() -> None:
    """EXE-8: what its status says, each time it says something else."""
    half, done = (standing("working", statusMessage=said) for said in ("half\nway", "nearly"))
    script = Script(half, half, half, done, done, COMPLETED)
    seen: list[Progress] = []
    async with scripted(script) as remote, Registry([remote]) as registry:
        binding = registry.resolve("long")
        assert binding is not None
        call = ToolCall.of("long")
        context = Context.of(call, on_progress=lambda _, progress: seen.append(progress))
        await binding.call(binding.contract.admit(call), context)

    assert seen == [Progress(message="half way"), Progress(message="nearly")]


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (standing("failed", error={"code": -32603, "message": "disk full"}), "disk full"),
        (standing("failed", error="broken", statusMessage="at step 3"), "at step 3"),
        (standing("failed"), "its task is failed"),
        (standing("cancelled", statusMessage="by an operator"), "by an operator"),
    ],
)
@pytest.mark.parametrize("replay", ["unknown", "safe"])
async def test_a_task_that_ends_without_a_result_may_have_run(
    ending: dict[str, Any], said: str, replay: Replay, caplog: pytest.LogCaptureFixture
) -> None:
    """FAIL-6: it was begun; what the server says of it is for operators, not for the model."""
    script = Script(ending)
    outcome = await told(script, replay)

    assert isinstance(outcome, Failed if replay == "safe" else Unknown)
    assert said not in outcome.text
    assert said in caplog.text
    assert script.heard == ["tools/call", f"tasks/get {ID}"]


@pytest.mark.parametrize("code", [types.INVALID_PARAMS, types.METHOD_NOT_FOUND])
async def test_a_task_that_is_forgotten_may_have_run_and_is_not_made_again(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """FAIL-6, DUR-2: its time was over, or the server was started anew: nobody knows."""
    script = Script(MCPError(code=code, message="Task has expired"))
    outcome = await told(script)

    assert isinstance(outcome, Unknown)
    assert outcome.reason == "raised"
    assert "its task is forgotten: Task has expired" in caplog.text
    assert script.heard == ["tools/call", f"tasks/get {ID}"]


async def test_a_look_that_fails_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """MCP-1: to look again does nothing; an error in between is not the end of the call."""
    sick = MCPError(code=types.INTERNAL_ERROR, message="out of breath")
    script = Script(sick, standing("working"), sick, sick, COMPLETED)
    with quick(monkeypatch):
        outcome = await told(script)

    assert outcome.text == "finished"
    assert script.heard.count("tools/call") == 1


async def test_who_never_says_how_a_task_stands_is_asked_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """FAIL-6: bounded; the server hears that nobody waits."""
    script = Script(MCPError(code=types.INTERNAL_ERROR, message="out of breath"))
    with quick(monkeypatch):
        async with scripted(script) as remote:
            outcome = await run(remote, "long")
            await script.is_cancelled.wait()

    assert isinstance(outcome, Unknown)
    assert script.heard.count(f"tasks/get {ID}") == 4


NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({**COMPLETED, "taskId": "other"}, "another task"),
    ({**COMPLETED, "taskId": None}, "no taskId"),
    ({**COMPLETED, "status": None}, "none of the five"),
    ({**COMPLETED, "status": "done"}, "none of the five"),
    ({**COMPLETED, "status": ["completed"]}, "none of the five"),
    ({**COMPLETED, "pollIntervalMs": -1}, "pollIntervalMs is no time"),
    ({**COMPLETED, "pollIntervalMs": "soon"}, "pollIntervalMs is no time"),
    ({**COMPLETED, "pollIntervalMs": True}, "pollIntervalMs is no time"),
    ({**COMPLETED, "ttlMs": -5}, "ttlMs is no time"),
    (standing("completed"), "has no result"),
    (standing("completed", result=[1]), "has no result"),
    (standing("completed", result={"content": "text"}), "content is no list"),
    (standing("input_required"), "does not say what"),
    (standing("input_required", inputRequests=["x"]), "does not say what"),
    (standing("input_required", inputRequests={"x": 5}), "not offered"),
    (
        standing("input_required", inputRequests={"x": {"method": "sampling/createMessage"}}),
        "not offered",
    ),
]


@pytest.mark.parametrize(("answer", "said"), NONSENSE)
async def test_nonsense_is_an_error_of_that_call(
    answer: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """FAIL-6: named in the log, and the server is told to stop what it still does."""
    script = Script(answer)
    async with scripted(script) as remote:
        outcome = await run(remote, "long")
        if said not in {"has no result", "content is no list"}:  # Then it has ended.
            await script.is_cancelled.wait()
        script.told = [COMPLETED]
        after = await run(remote, "long")

    assert isinstance(outcome, Unknown)
    assert outcome.reason == "bad_result"
    assert said in caplog.text
    assert after.text == "finished"


@pytest.mark.parametrize("created", [{"taskId": ""}, {"taskId": 5}, {"status": "x"}, {"ttlMs": []}])
async def test_a_task_that_is_none_is_an_error_of_that_call(created: dict[str, Any]) -> None:
    """FAIL-6: the call has begun, and nothing can be asked about it."""
    outcome = await told(Script(COMPLETED, created={**standing("working"), **created}))

    assert isinstance(outcome, Unknown)
    assert outcome.reason == "bad_result"


@pytest.mark.parametrize(("tasks", "era"), [(False, "auto"), (False, "legacy"), (True, "legacy")])
async def test_a_task_that_nobody_takes_is_nonsense(tasks: bool, era: Era) -> None:
    """MCP-1: never offered without the option, and never in the handshake era."""
    script = Script(COMPLETED)
    async with connect(InProcess(script.sdk, era=era), tasks=tasks) as remote:
        outcome = await run(remote, "long")

    assert isinstance(outcome, Unknown)
    assert script.offered == [None]
    assert script.heard == ["tools/call"]


@pytest.mark.parametrize(
    ("interval", "seconds"), [(0, 0.02), (5, 0.02), (250, 0.25), (10**9, 30.0), (None, 1.0)]
)
def test_a_server_is_looked_at_neither_too_often_nor_too_seldom(
    interval: int | None, seconds: float
) -> None:
    """MCP-1: as it says, within bounds; each second where it does not say."""
    assert following.stand_of(standing("working", pollIntervalMs=interval)).seconds == seconds


async def test_a_question_is_asked_once_however_often_it_is_shown() -> None:
    """ASK-1: by its key; a server may take a while to take the answer in."""
    asks = standing("input_required", inputRequests={"k": ASK})
    more = standing("input_required", inputRequests={"k": ASK, "l": ASK})
    script = Script(asks, asks, more, more, COMPLETED)
    asked: list[str] = []

    async def asker(_: Context, question: Question) -> Accepted[Any] | Declined:
        asked.append(question.message)
        return Accepted({"answer": True})

    async with scripted(script) as remote:
        outcome = await run(remote, "long", asker)

    assert outcome.text == "finished"
    assert asked == ["Well?", "Well?"]
    yes = {"action": "accept", "content": {"answer": True}}
    assert script.answers == [{"k": yes}, {"l": yes}]


async def test_a_task_that_asks_for_ever_is_ended() -> None:
    """ASK-1: so many times in one call, as for any."""

    class Endless(Script):
        async def get(self, _: object, params: Params) -> dict[str, Any]:
            asks = standing("input_required", inputRequests={str(len(self.heard)): ASK})
            self.heard.append(params.task_id)
            return asks

    script = Endless()
    async with scripted(script) as remote:
        outcome = await run(remote, "long")
        await script.is_cancelled.wait()

    assert isinstance(outcome, Unknown)
    assert len(script.answers) == following.ROUNDS


async def test_an_asker_that_crashes_ends_the_call_and_the_task() -> None:
    """ASK-1: nobody will answer; the server hears that the call is wanted no more."""
    script = Script(standing("input_required", inputRequests={"k": ASK}))

    async def asker(_: Context, __: Question) -> Accepted[Any] | Declined:
        raise ValueError("no terminal")

    async with scripted(script) as remote:
        outcome = await run(remote, "long", asker)
        await script.is_cancelled.wait()

    assert isinstance(outcome, Unknown)
    assert script.answers == []


# ---- tools that must be tasks --------------------------------------------------------------------


async def test_a_tool_that_only_runs_as_a_task_says_what_would_do() -> None:
    """FAIL-6, -32021: it did not run; with `tasks=True` it does."""
    held = Held()
    held.let_go.set()
    async with Server([held.tool], tasks=Tasks(after=0, poll=0.02, required=("held",))) as server:
        async with connect(server.sdk) as remote:
            refused = await run(remote, "held")
        async with connect(server.sdk, tasks=True) as remote:
            done = await run(remote, "held")

    assert isinstance(refused, Failed)
    assert refused.text.endswith("(say `tasks=True`)")
    assert done.text == "let go"


@pytest.mark.parametrize("tasks", [False, True])
async def test_a_tool_of_2025_that_says_so_is_in_quarantine(tasks: bool) -> None:
    """MC-07: by name, with the reason; such tasks are spoken by nobody any more."""

    class Saying(Script):
        async def list_tools(self, _: object, __: object) -> types.ListToolsResult:
            execution = types.ToolExecution(task_support="required")
            made = types.Tool(name="must", input_schema={"type": "object"}, execution=execution)
            plain = types.Tool(name="long", input_schema={"type": "object"})
            return types.ListToolsResult(tools=[made, plain])

    target = InProcess(Saying(COMPLETED).sdk, era="legacy")
    async with connect(target, tasks=tasks) as remote:
        bad = [(one.name, one.reason) for one in remote.quarantined]

        assert [one.definition.name for one in remote.tools] == ["long"]
    assert bad == [("must", "it can only be called as a task of 2025-11-25, not spoken here")]


@pytest.mark.parametrize("tasks", [False, True])
def test_a_tool_of_2026_that_says_so_can_be_used_where_tasks_are_taken(tasks: bool) -> None:
    """MC-07: the SDK's servers do not say it any more; others may."""
    told = {
        "name": "must",
        "inputSchema": {"type": "object"},
        "execution": {"taskSupport": "required"},
    }
    naming = listing.Naming(origin="o", tasks=tasks)
    before = listing.Snapshot()
    found = listing.sorted_out([told], naming, never, before=before, modern=True)

    bad = [(one.name, one.reason) for one in found.quarantined]
    assert bad == ([] if tasks else [("must", "it can only be called as a task: say `tasks=True`")])
    assert len(found.offered) == int(tasks)


async def never(*_: object) -> Result:
    """Run nothing."""
    raise AssertionError


# ---- servers that are started anew ---------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_kept_task_is_followed_through_a_restart_of_its_server(
    tmp_path: Path, serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DUR-2: the same task, in the journal; looked at until the server is there again."""
    monkeypatch.setattr(following, "AGAIN_SECONDS", (0.1,) * 100)
    first, second = Held(replay="safe"), Held(replay="safe")
    second.let_go.set()

    def made(held: Held) -> Callable[[], object]:
        def runtime(executor: Executor) -> SqliteRuntime:
            return SqliteRuntime(executor, tmp_path / "calls.db")

        keys = [b"k" * 32]
        return Server([held.tool], tasks=AT_ONCE, runtime=runtime, keys=keys).asgi

    outcomes = await through_a_restart(serve, made(first), made(second), first)

    assert [outcome.text for outcome in outcomes] == ["let go"]
    assert (first.runs, second.runs) == (1, 1)


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_task_that_a_restarted_server_does_not_know_may_have_run(
    serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAIL-6: forgotten with its process, and never made anew."""
    monkeypatch.setattr(following, "AGAIN_SECONDS", (0.1,) * 100)
    first, second = Held(), Held()
    outcomes = await through_a_restart(
        serve,
        Server([first.tool], tasks=AT_ONCE).asgi,
        Server([second.tool], tasks=AT_ONCE).asgi,
        first,
    )

    [outcome] = outcomes
    assert isinstance(outcome, Unknown)
    assert outcome.reason == "raised"
    assert (first.runs, second.runs) == (1, 0)


async def through_a_restart(
    serve: Callable[..., Any],
    before: Callable[[], object],
    after: Callable[[], object],
    held: Held,
) -> list[Outcome]:
    """Call `held`, and replace its server while it is followed."""
    serving = serve(before)
    outcomes: list[Outcome] = []
    async with connect(serving.url, tasks=True) as remote, anyio.create_task_group() as group:

        async def call() -> None:
            outcomes.append(await run(remote, "held"))

        group.start_soon(call)
        await held_begun(held)
        await looked(remote)
        await anyio.to_thread.run_sync(serving.stop)
        serve(after, serving.port)
    return outcomes


async def test_a_child_that_dies_takes_its_tasks_with_it() -> None:
    """FAIL-6: the next child does not know of them; the call may have run."""
    path = {"PYTHONPATH": ":".join(sys.path)}
    command = Command((sys.executable, str(Path(__file__).with_name("dying.py"))), env=path)
    async with connect(command, tasks=True) as remote:
        outcome = await run(remote, "die")
        after = await run(remote, "alive")

    assert isinstance(outcome, Unknown)
    assert outcome.reason == "raised"
    assert after.text == "yes"


def test_nonsense_of_a_task_is_a_result_that_is_none() -> None:
    """FAIL-6: by the error that says so."""
    with pytest.raises(InvalidResult, match="no taskId"):
        following.stand_of({})
