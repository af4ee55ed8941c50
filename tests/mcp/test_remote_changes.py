"""Tools that change while a remote is open, and questions whose call goes away."""

from collections.abc import Callable
from typing import Any, Literal, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from mcp import MCPError
from mcp import types as wire
from mcp.server.context import ServerRequestContext as Request
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from starlette.applications import Starlette

from ferrule import (
    Accepted,
    Completed,
    Context,
    Declined,
    Executor,
    Failed,
    FerruleError,
    Question,
    Registry,
    ToolCall,
    Unknown,
)
from ferrule.mcp import Address, Command, InProcess, Remote, connect
from mcp_lab import FORM, Lab

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:Async generator")]

Era = Literal["auto", "legacy"]


class Held:
    """A server whose listing can be held up or made to fail, and that tells of changes late."""

    def __init__(self) -> None:
        self.names = ["a"]
        self.listings = 0
        self.fails = False
        self.may_list = anyio.Event()
        self.may_list.set()
        self.listing = anyio.Event()
        self.bus = InMemorySubscriptionBus()
        self.sessions: list[Any] = []
        self.server: Server[Any] = Server(
            "held",
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_subscriptions_listen=ListenHandler(self.bus),
        )

    async def list_tools(self, request: Request[Any], _: object) -> wire.ListToolsResult:
        """List, when it may."""
        self.sessions.append(request.session)
        self.listings += 1
        self.listing.set()
        await self.may_list.wait()
        if self.fails:
            raise MCPError(code=-32000, message="not now")
        hints = wire.ToolAnnotations(read_only_hint=True)
        tools = [
            wire.Tool(
                name=name,
                input_schema={"type": "object"},
                annotations=hints if name.startswith("read") else None,
            )
            for name in self.names
        ]
        return wire.ListToolsResult(tools=tools, ttl_ms=0, cache_scope="private")

    async def call_tool(self, _: object, __: object) -> wire.CallToolResult:
        """Do nothing."""
        return wire.CallToolResult(content=[wire.TextContent(text="done")])

    async def tell(self) -> None:
        """Say that the tools have changed."""
        await self.bus.publish(ToolsListChanged())
        await self.sessions[0].send_tool_list_changed()


def names(remote: Remote) -> list[str]:
    """Return what is offered."""
    return [tool.definition.name for tool in remote.tools]


async def test_what_was_told_before_is_settled_and_the_list_is_current(era: Era) -> None:
    """AT-92, AT-94: nothing pending returns at once; else the new list is there."""
    held = Held()
    async with connect(InProcess(held.server, era=era)) as remote:
        await remote.settled()
        before = held.listings
        held.names = ["a", "b"]
        await held.tell()
        await heard(held, before)
        await remote.settled()

        assert names(remote) == ["a", "b"]


async def heard(held: Held, before: int) -> None:
    """Wait until the server is asked for its tools again."""
    with anyio.fail_after(5):
        while held.listings == before:  # it runs beside us
            await anyio.lowlevel.checkpoint()


async def test_the_list_of_before_stands_while_the_new_one_is_held_up(era: Era) -> None:
    """AT-94: a deadline ends the waiting, not the listing; several notes cost one listing more."""
    held = Held()
    async with connect(InProcess(held.server, era=era)) as remote:
        before = held.listings
        held.names = ["b"]
        held.may_list = anyio.Event()
        for _ in range(5):
            await held.tell()
        await heard(held, before)
        with pytest.raises(TimeoutError), anyio.fail_after(0.05):
            await remote.settled()
        assert names(remote) == ["a"]
        held.may_list.set()
        await remote.settled()

        assert names(remote) == ["b"]
        assert held.listings - before <= 3


async def test_a_list_that_fails_is_an_error_until_one_succeeds(era: Era) -> None:
    """AT-93: the snapshot stays; calls go on."""
    held = Held()
    async with connect(InProcess(held.server, era=era), grace=0) as remote:
        before = held.listings
        held.fails, held.names = True, ["a", "b"]
        await held.tell()
        await heard(held, before)
        with pytest.raises(FerruleError, match="not now"):
            await remote.settled()
        [outcome] = await Executor(remote.tools).run([ToolCall.of("a")])
        with pytest.raises(FerruleError, match="not now"):
            await remote.refresh()
        assert (names(remote), outcome.text) == (["a"], "done")
        held.fails = False
        await remote.refresh()
        await remote.settled()

        assert names(remote) == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "grace", "waits"), [("write", 0.3, True), ("write", 0, False), ("read", 0.3, False)]
)
async def test_only_a_call_that_may_have_changed_them_waits_for_news(
    name: str, grace: float, waits: bool
) -> None:
    """AT-97, AT-98: not a reading one, not without a grace; on trio's own clock."""
    held = Held()
    held.names = ["write", "read"]
    async with connect(InProcess(held.server, era="legacy"), grace=grace) as remote:
        begun = anyio.current_time()
        [outcome] = await Executor(remote.tools).run([ToolCall.of(name)])
        took = anyio.current_time() - begun

        assert outcome.text == "done"
        assert (took >= 0.3) == waits


async def test_a_stream_of_changes_that_breaks_off_is_opened_again(
    serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reference 1.3: what was missed meanwhile is listed anew."""
    monkeypatch.setattr("ferrule.mcp._peer.RELISTEN_SECONDS", (0.01,) * 200)
    labs: list[Lab] = []

    def web() -> Starlette:
        labs.append(Lab())
        if len(labs) == 2:
            tool, run = labs[1].tools["echo"]
            labs[1].tools["newer"] = (tool.model_copy(update={"name": "newer"}), run)
        return labs[-1].server.streamable_http_app()

    serving = serve(web)
    async with connect(Address(serving.url)) as remote:
        assert "newer" not in names(remote)
        await anyio.to_thread.run_sync(serving.stop)
        serve(web, serving.port)
        with anyio.fail_after(10):
            while "newer" not in names(remote):  # noqa: ASYNC110  # it is another thread
                await anyio.sleep(0.01)


# ---- questions -----------------------------------------------------------------------------------


async def events(registry: Registry) -> list[str]:
    """Ask the server what happened to it."""
    [outcome] = await Executor(registry).run([ToolCall.of("events")])
    assert isinstance(outcome, Completed)
    content: Any = outcome.result.structured_content
    return list(content["events"])


async def noted(registry: Registry, before: list[str]) -> bool:
    """Say whether the server has heard, since then, that nobody answers."""
    since = (await events(registry))[len(before) :]
    return not {"heard cancel", "cancelled ask"}.isdisjoint(since)


async def test_a_call_that_is_cancelled_while_it_asks_tells_the_server(target: object) -> None:
    """AT-138, AT-140: at once; the asker is told, and the server hears that nobody chose."""
    asking, told = anyio.Event(), anyio.Event()

    async def asker(_: Context, __: Question) -> Accepted[Any] | Declined:
        asking.set()
        try:
            await anyio.sleep_forever()
        finally:
            told.set()
        raise AssertionError

    async with Registry([connect(target)]) as registry:
        before = await events(registry)
        async with Executor(registry, asker=asker).batch([ToolCall.of("ask")]) as batch:
            await anext(aiter(batch))
            await asking.wait()
        [outcome] = batch.outcomes
        with anyio.fail_after(10):
            while not await noted(registry, before):  # noqa: ASYNC110  # it is elsewhere
                await anyio.sleep(0.01)

    assert isinstance(outcome, Unknown)
    assert told.is_set()


@pytest.mark.parametrize("mistake", ["raises", "shape", "type"])
async def test_an_asker_that_errs_is_the_error_of_that_call(target: object, mistake: str) -> None:
    """AT-134: raised, not of the form, not an answer at all."""

    async def asker(_: Context, __: Question) -> Accepted[Any] | Declined:
        if mistake == "raises":
            raise LookupError("no terminal")
        return Accepted({"name": 5}) if mistake == "shape" else cast("Declined", "yes")

    async with Registry([connect(target)]) as registry:
        executor = Executor(registry, asker=asker, sequential=True)
        outcomes = await executor.run([ToolCall.of("ask"), ToolCall.of("add", {"a": 1, "b": 1})])

    assert isinstance(outcomes[0], Unknown | Failed)
    assert "terminal" not in outcomes[0].text
    assert outcomes[1].text == "2"


async def test_two_calls_are_each_asked_under_their_own_id(quick_lab: tuple[str, ...]) -> None:
    """AT-133: from 2026-07-28 on a question is the call's own answer, so several may ask."""
    asked: dict[str, str] = {}
    both = anyio.Event()

    async def asker(context: Context, _: Question) -> Accepted[Any] | Declined:
        asked[context.call_id] = context.tool
        if len(asked) == 2:
            both.set()
        await both.wait()
        return Accepted({"name": context.call_id})

    async with Registry([connect(Command(quick_lab))]) as registry:
        calls = [ToolCall.of("ask", id="c1"), ToolCall.of("ask", id="c2")]
        outcomes = await Executor(registry, asker=asker).run(calls)

    assert ["'c1'" in outcomes[0].text, "'c2'" in outcomes[1].text] == [True, True]
    assert asked == {"c1": "ask", "c2": "ask"}


async def test_a_call_that_is_refused_until_somebody_went_to_an_address(era: Era) -> None:
    """Reference 1.3, AT-136: asked, and sent again when they did; refused, and failed."""
    went: list[str] = []

    async def call_tool(_: object, __: object) -> wire.CallToolResult:
        if not went:
            page = {
                "mode": "url",
                "message": "Pay",
                "url": "https://x.example/",
                "elicitationId": "1",
            }
            raise MCPError(
                code=wire.URL_ELICITATION_REQUIRED, message="pay", data={"elicitations": [page]}
            )
        return wire.CallToolResult(content=[wire.TextContent(text="paid")])

    async def asker(_: Context, question: Question) -> Accepted[Any] | Declined:
        if willing:
            went.append(str(question.url))
        return Accepted(None) if willing else Declined()

    held = Held()
    held.server.add_request_handler("tools/call", wire.CallToolRequestParams, call_tool)
    async with Registry([connect(InProcess(held.server, era=era))]) as registry:
        willing = False
        [refused] = await Executor(registry, asker=asker).run([ToolCall.of("a")])
        willing = True
        [paid] = await Executor(registry, asker=asker).run([ToolCall.of("a")])

    assert isinstance(refused, Failed)
    assert (paid.text, went) == ("paid", ["https://x.example/"])


async def test_a_server_that_asks_for_ever_is_ended() -> None:
    """AT-147: ten rounds in one call."""
    rounds: list[int] = []

    async def call_tool(_: object, __: object) -> wire.InputRequiredResult:
        rounds.append(1)
        form = wire.ElicitRequestFormParams(message="Again?", requested_schema=FORM)
        return wire.InputRequiredResult(input_requests={"q": wire.ElicitRequest(params=form)})

    held = Held()
    held.server.add_request_handler("tools/call", wire.CallToolRequestParams, call_tool)
    async with Registry([connect(InProcess(held.server))]) as registry:
        [outcome] = await Executor(registry).run([ToolCall.of("a")])

    assert isinstance(outcome, Unknown)
    assert outcome.reason == "bad_result"
    assert len(rounds) == 10


async def test_the_key_of_a_call_goes_with_it_where_that_means_something(target: object) -> None:
    """DUR-3: of a tool whose replay is `keyed`, and of no other."""
    call = ToolCall.of("echo", {"x": 1})
    keyed = connect(target, traits={"echo": {"replay": "keyed"}})
    async with keyed, Registry(keyed.tools) as registry:
        binding = registry.resolve("echo")
        assert binding is not None
        context = Context.of(call, idempotency_key="k-1")
        result: Any = await binding.call(binding.contract.admit(call), context)

        assert result.structured_content["meta"] == {"ferrule/idempotency-key": "k-1"}
