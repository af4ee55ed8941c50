"""What served calls ask of their clients: while they wait, and as they end a leg; in both eras."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack

import anyio
import anyio.lowlevel
import pytest
from mcp import Client, MCPError, types
from pydantic import TypeAdapter

from ferrule import (
    Accepted,
    Allow,
    Ask,
    Authorization,
    Context,
    Declined,
    Definition,
    Deny,
    Executor,
    InputRequest,
    Question,
    RawTool,
    Registry,
    tool,
)
from ferrule.mcp import Server
from served import TOOLS
from serving import ERAS, WAYS, Era, along, in_memory, text_of

pytestmark = pytest.mark.anyio

Callback = Callable[[Any, Any], Awaitable[types.ElicitResult]]
Content = dict[str, str | int | float | bool | list[str] | None]


def says(
    action: Literal["accept", "decline", "cancel"], content: Content | None = None
) -> Callback:
    """Return a person who always answers the same."""

    async def answer(_: object, __: object) -> types.ElicitResult:
        return types.ElicitResult(action=action, content=content)

    return answer


def says_in_turn(*answers: Content) -> tuple[Callback, list[Any]]:
    """Return a person who answers in turn, and what they were asked."""
    asked: list[Any] = []

    async def answer(_: object, params: object) -> types.ElicitResult:
        asked.append(params)
        return types.ElicitResult(action="accept", content=answers[len(asked) - 1])

    return answer, asked


@pytest.mark.parametrize(("anyio_backend", "way"), WAYS, indirect=["anyio_backend"])
async def test_a_tool_that_waits_is_answered(way: tuple[str, Era], anyio_backend: str) -> None:
    """AT-130, AT-142, AT-143, ASK-1: one running tool, though its request may end meanwhile."""
    async with along(
        way, Server(TOOLS), anyio_backend, elicitation_callback=says("accept", {"answer": True})
    ) as client:
        done = await client.call_tool("sure")

    assert text_of(done) == "Accepted(content=True)"


@pytest.mark.parametrize(("anyio_backend", "way"), WAYS, indirect=["anyio_backend"])
async def test_a_tool_that_ended_with_a_question_goes_on(
    way: tuple[str, Era], anyio_backend: str
) -> None:
    """SUS-2: the answer starts the step; in the later era its state travels with the client."""
    async with along(
        way, Server(TOOLS), anyio_backend, elicitation_callback=says("accept", {"answer": False})
    ) as client:
        done = await client.call_tool("draft", {"subject": "a mail"})

    assert text_of(done) == "a mail kept"


@dataclass
class Address:
    """What one question asks for."""

    street: str
    number: int = 1


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_is_a_form_that_people_can_fill(era: Era) -> None:
    """AT-144, AT-149: flat objects as they are, a value as one field, all else as JSON text."""
    seen: list[object] = []

    @tool
    async def asks(context: Context) -> str:
        """Ask three times."""
        for kind in (Address, int, list[Address]):
            given = await context.ask("What?", kind)
            assert isinstance(given, Accepted)
            seen.append(given.content)
        return ""

    callback, asked = says_in_turn(
        {"street": "Main", "number": 7},
        {"answer": 3},
        {"answer": '[{"street":"Side","number":2}]'},
    )
    async with in_memory(Server([asks]), era, elicitation_callback=callback) as client:
        done = await client.call_tool("asks")

    assert not done.is_error
    assert seen == [Address("Main", 7), 3, [Address("Side", 2)]]
    form, field, text = [params.requested_schema for params in asked]
    assert set(form["properties"]) == {"street", "number"}
    assert field["properties"] == {"answer": {"type": "integer"}}
    assert text["properties"]["answer"]["type"] == "string"
    assert "street" in text["properties"]["answer"]["description"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_person_is_sent_to_an_address(era: Era) -> None:
    """AT-136, AT-142: no form, and nothing comes back but that they went."""
    went: list[Any] = []

    @tool
    async def asks(context: Context) -> str:
        """Ask to log in."""
        return repr(await context.ask("Log in.", url="https://example.com/login"))

    async def answer(_: object, params: Any) -> types.ElicitResult:  # noqa: ANN401  # either kind
        went.append(params)
        return types.ElicitResult(action="accept")

    async with in_memory(Server([asks]), era, elicitation_callback=answer) as client:
        done = await client.call_tool("asks")

    assert text_of(done) == "Accepted(content=None)"
    assert (went[0].mode, went[0].url) == ("url", "https://example.com/login")
    assert bool(went[0].elicitation_id) == (era == "legacy")  # Gone since 2026-07-28.


@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize("era", ERAS)
async def test_a_person_may_say_no(era: Era, action: Literal["decline", "cancel"]) -> None:
    """AT-142, SUS-4: who waits hears it, and a leg that needs an answer ends without."""
    async with in_memory(Server(TOOLS), era, elicitation_callback=says(action)) as client:
        waited = await client.call_tool("sure")
        ended = await client.call_tool("draft", {"subject": "it"})

    assert text_of(waited) == f"Declined(action='{action}')"
    assert ended.is_error
    assert "Send it?" in text_of(ended)


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_of_another_shape_is_asked_for_again(era: Era) -> None:
    """AT-144, SUS-3: refused, and the question stays open."""
    callback, asked = says_in_turn(
        {"answer": "maybe"}, {}, {"answer": True}, {"answer": 1}, {"answer": True}
    )
    async with in_memory(Server(TOOLS), era, elicitation_callback=callback) as client:
        waited = await client.call_tool("sure")
        ended = await client.call_tool("draft", {"subject": "it"})

    assert text_of(waited) == "Accepted(content=True)"
    assert text_of(ended) == "it sent"
    assert len(asked) == 5


@pytest.mark.parametrize("era", ERAS)
async def test_several_questions_each_get_their_answer(era: Era) -> None:
    """AT-133, AT-142: asked side by side, one by one, and of two calls at once."""

    @tool
    async def asks(names: list[str], context: Context) -> dict[str, str]:
        """Ask for each, at once."""
        got: dict[str, str] = {}

        async def ask(name: str) -> None:
            given = await context.ask(f"What is {name}?", str)
            assert isinstance(given, Accepted)
            got[name] = given.content

        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(ask, name)
        await ask("more")
        return got

    async def answer(_: object, params: Any) -> types.ElicitResult:  # noqa: ANN401  # a form
        name = params.message.removeprefix("What is ").removesuffix("?")
        return types.ElicitResult(action="accept", content={"answer": name.upper()})

    done: dict[str, object] = {}
    async with in_memory(Server([asks]), era, elicitation_callback=answer) as client:

        async def call(name: str) -> None:
            given = {"names": [name, f"{name}2"]}
            done[name] = (await client.call_tool("asks", given)).structured_content

        async with anyio.create_task_group() as group:
            group.start_soon(call, "a")
            group.start_soon(call, "b")

    assert done == {
        name: {name: name.upper(), f"{name}2": f"{name}2".upper(), "more": "MORE"}
        for name in ("a", "b")
    }


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_cannot_ask_is_not_asked(era: Era) -> None:
    """AT-131, AT-143: the tool finds nobody, or whom the executor asks; never a broken request."""

    async def someone(_: Context, question: Question) -> Accepted[Any] | Declined:
        return Accepted(content=question.message == "Are you sure?")

    async with in_memory(Server(TOOLS), era) as client:
        nobody = await client.call_tool("sure")
        if era == "legacy":
            ended = await client.call_tool("draft", {"subject": "it"})
            assert ended.is_error
            assert "this client cannot ask: Send it?" in text_of(ended)
        else:  # As 2026-07-28 wants it.
            with pytest.raises(MCPError) as caught:
                await client.call_tool("draft", {"subject": "it"})
            assert caught.value.error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
            assert caught.value.error.data == {
                "requiredCapabilities": {"elicitation": {"form": {}}}
            }
    async with in_memory(Server(Executor(TOOLS, asker=someone)), era) as client:
        host = await client.call_tool("sure")

    assert text_of(nobody) == "Declined(action='cancel')"
    assert text_of(host) == "Accepted(content=True)"


@pytest.mark.parametrize("era", ERAS)
async def test_a_guard_may_ask_too(era: Era) -> None:
    """AUT-4, AUT-7: approved it runs, else not; the approval says who gave it."""
    approvals: list[object] = []

    def policy(authorization: Authorization) -> Allow | Ask | Deny:
        if authorization.approval is None:
            return Ask("May it?")
        approvals.append(authorization.approval)
        return Allow() if authorization.approval.answer else Deny("a person said no")

    tools = Registry(TOOLS).guarded(policy)
    told: list[str] = []
    for callback in (
        says("accept", {"answer": True}),
        says("accept", {"answer": False}),
        says("decline"),
        says("cancel"),
    ):
        async with in_memory(Server(tools), era, elicitation_callback=callback) as client:
            told.append(text_of(await client.call_tool("add", {"a": 1, "b": 2})))

    assert told[:3] == ["3", "a person said no", "a person said no"]
    assert "was not answered: May it?" in told[3]
    assert [(one.answer, one.by) for one in approvals] == [  # type: ignore[attr-defined]  # Approval
        (True, "mcp connection"),
        (False, "mcp connection"),
        (False, "mcp connection"),
    ]


@pytest.mark.parametrize("era", ERAS)
async def test_a_guard_and_the_tool_may_ask_in_one_call(era: Era) -> None:
    """AUT-7: the guard is asked again on each leg and finds the approval; the tool its answer."""
    callback, asked = says_in_turn({"answer": True}, {"answer": True})
    tools = Registry(TOOLS).guarded(lambda it: Allow() if it.approval else Ask("May it?"))
    async with in_memory(Server(tools), era, elicitation_callback=callback) as client:
        done = await client.call_tool("draft", {"subject": "it"})

    assert text_of(done) == "it sent"
    assert [params.message for params in asked] == ["May it?", "Send it?"]


# ---- what a client carries, since 2026-07-28 -----------------------------------------------------

EITHER: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)


class Answers(TypedDict, total=False):
    """What a client sends with the next request of a call."""

    input_responses: dict[str, types.InputResponse]
    request_state: str


async def request(client: Client, name: str, given: object = None, **more: Unpack[Answers]) -> Any:  # noqa: ANN401  # either kind of result
    """Make one request of a call, as a client does that answers by hand."""
    params = types.CallToolRequestParams(name=name, arguments=given, **more)  # type: ignore[arg-type]  # it is an object
    return await client.session.send_request(types.CallToolRequest(params=params), EITHER)


def yes(asked: types.InputRequiredResult, content: Content | None = None) -> Answers:
    """Return what a client sends after a person has answered the one question."""
    [name] = asked.input_requests or {}
    answer = types.ElicitResult(action="accept", content=content or {"answer": True})
    return {"input_responses": {name: answer}, "request_state": asked.request_state or ""}


@pytest.mark.parametrize(("name", "given"), [("sure", None), ("draft", {"subject": "it"})])
async def test_a_state_serves_once(name: str, given: object) -> None:
    """AT-145, SUS-5: replayed it is stale, changed it is refused, and nothing runs twice."""
    async with in_memory(Server(TOOLS), "auto", elicitation_callback=says("cancel")) as client:
        asked = await request(client, name, given)
        for changed in ("invented", asked.request_state + "x", asked.request_state[:-1]):
            answers = yes(asked)
            answers["request_state"] = changed
            with pytest.raises(MCPError) as caught:
                await request(client, name, given, **answers)
            assert caught.value.error.code == types.INVALID_PARAMS
        with pytest.raises(MCPError):
            await request(client, "add", {"a": 1, "b": 2}, **yes(asked))
        done = await request(client, name, given, **yes(asked))
        again = await request(client, name, given, **yes(asked))

    assert not done.is_error
    assert again.is_error
    assert "no longer waits" in text_of(again)


async def test_a_state_is_of_one_server_unless_they_share_a_key() -> None:
    """SUS-5: a server that was started anew, or another one, goes on with what it can open."""
    key = b"k" * 32
    async with in_memory(
        Server(TOOLS, keys=[key]), "auto", elicitation_callback=says("cancel")
    ) as client:
        asked = await request(client, "draft", {"subject": "it"})
    async with in_memory(
        Server(TOOLS, keys=[b"n" * 32, key]), "auto", elicitation_callback=says("cancel")
    ) as client:
        done = await request(client, "draft", {"subject": "it"}, **yes(asked))
    async with in_memory(Server(TOOLS), "auto", elicitation_callback=says("cancel")) as client:
        with pytest.raises(MCPError):
            await request(client, "draft", {"subject": "it"}, **yes(asked))

    assert text_of(done) == "it sent"


async def test_what_is_left_out_is_asked_again() -> None:
    """AT-144, MCP-1: as 2026-07-28 says, with a new state, and names that are not ours ignored."""
    async with in_memory(Server(TOOLS), "auto", elicitation_callback=says("cancel")) as client:
        for name, given in (("sure", None), ("draft", {"subject": "it"})):
            asked = await request(client, name, given)
            wrong: dict[str, types.InputResponse] = {
                "else": types.ElicitResult(action="accept", content={"answer": True})
            }
            again = await request(
                client, name, given, input_responses=wrong, request_state=asked.request_state
            )
            assert isinstance(again, types.InputRequiredResult)
            assert again.request_state != asked.request_state
            assert not (await request(client, name, given, **yes(again))).is_error


async def test_a_question_with_a_name_can_be_answered_beforehand() -> None:
    """MCP-1: a client may repeat the whole call with its answers, and keep no state at all."""
    schema = {"title": "user_name", "type": "object", "properties": {"name": {"type": "string"}}}

    async def asks(_: dict[str, object], __: Context) -> InputRequest:
        return InputRequest("Who?", schema=schema, state=None)

    async def greets(_: dict[str, object], __: Context, given: Any) -> str:  # noqa: ANN401  # of a continuation
        return f"Hello, {given.answer['name']}!"

    greeter = RawTool(Definition("greet", input_schema={"type": "object"}), asks, resume=greets)
    async with in_memory(Server([greeter]), "auto", elicitation_callback=says("cancel")) as client:
        answer = types.ElicitResult(action="accept", content={"name": "Ada"})
        done = await request(client, "greet", {}, input_responses={"user_name": answer})
        asked = await request(client, "greet", {}, input_responses={"else": answer})

    assert text_of(done) == "Hello, Ada!"
    assert list(asked.input_requests) == ["user_name"]


async def test_what_a_guard_asks_is_never_answered_beforehand() -> None:
    """AUT-4: what nobody was shown, nobody has approved, whatever name the question has."""

    class Sure:
        """A yes or no with a name."""

        @classmethod
        def json_schema(cls) -> dict[str, object]:
            """Return it."""
            return {"title": "sure", "type": "boolean"}

    tools = Registry(TOOLS).guarded(
        lambda it: Allow() if it.approval else Ask("May it?", answer=Sure)
    )
    yes_ = types.ElicitResult(action="accept", content={"answer": True})
    async with in_memory(Server(tools), "auto", elicitation_callback=says("cancel")) as client:
        asked = await request(client, "add", {"a": 1, "b": 2}, input_responses={"sure": yes_})
        done = await request(client, "add", {"a": 1, "b": 2}, **yes(asked))

    assert list(asked.input_requests) == ["sure"]
    assert text_of(done) == "3"


async def test_a_client_is_asked_so_often_and_no_more() -> None:
    """AT-147: with the last request nobody is asked any more, and the tool still gives a result."""

    @tool
    async def nags(context: Context) -> str:
        """Ask for ever."""
        count = 0
        while isinstance(await context.ask("Again?", bool), Accepted):
            count += 1
        return str(count)

    async with in_memory(
        Server([nags]), "auto", elicitation_callback=says("accept", {"answer": True})
    ) as client:
        done = await client.call_tool("nags")

    assert text_of(done) == "9"


async def test_a_call_that_nobody_comes_back_for_is_stopped() -> None:
    """AT-146: after the server's patience; its tool is told to stop, and its state is stale."""
    stopped = anyio.Event()

    @tool
    async def waits(context: Context) -> str:
        """Wait for an answer."""
        try:
            return repr(await context.ask("Well?", bool))
        finally:
            stopped.set()

    async with in_memory(
        Server([waits], patience=0.05), "auto", elicitation_callback=says("cancel")
    ) as client:
        await request(client, "waits")
        await stopped.wait()


@pytest.mark.parametrize("answered", [0, 1, 2])
async def test_a_call_that_ended_while_its_client_was_away_is_told_of(answered: int) -> None:
    """SUS-3, EXE-7: a tool that does not wait for its answer has an ending for the next request."""
    gone_on = anyio.Event()

    @tool
    async def impatient(context: Context) -> str:
        """Ask, and wait a moment alone in the end."""
        for _ in range(answered):
            await context.ask("Well?", bool)
        with anyio.move_on_after(0.01):
            await context.ask("Well?", bool)
        gone_on.set()
        return "went on alone"

    async with in_memory(
        Server([impatient]), "auto", elicitation_callback=says("cancel")
    ) as client:
        asked = await request(client, "impatient")
        for _ in range(answered):
            asked = await request(client, "impatient", **yes(asked))
        await gone_on.wait()
        for _ in range(100):  # So that the call has ended, and nobody was told.
            await anyio.lowlevel.checkpoint()
        done = await request(client, "impatient", **yes(asked))

    assert text_of(done) == "went on alone"


@pytest.mark.parametrize("era", ERAS)
async def test_a_guard_that_asks_in_the_middle_keeps_what_the_tool_was_answered(era: Era) -> None:
    """AUT-7: the tool's own answer waits for the guard's, and starts the step then."""
    legs: list[bool] = []

    def policy(authorization: Authorization) -> Allow | Ask:
        legs.append(authorization.approval is not None)
        return Ask("Go on?") if len(legs) > 1 and authorization.approval is None else Allow()

    callback, asked = says_in_turn({"answer": True}, {"answer": True})
    tools = Registry(TOOLS).guarded(policy)
    async with in_memory(Server(tools), era, elicitation_callback=callback) as client:
        done = await client.call_tool("draft", {"subject": "it"})

    assert text_of(done) == "it sent"
    assert [params.message for params in asked] == ["Send it?", "Go on?"]
    assert legs == [False, False, True]


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_never_answers_right_is_given_up(era: Era) -> None:
    """AT-144, AT-147: after so many wrong answers nobody has chosen."""
    async with in_memory(
        Server(TOOLS, rounds=3), era, elicitation_callback=says("accept", {"answer": "x"})
    ) as client:
        waited = await client.call_tool("sure")
        ended = await client.call_tool("draft", {"subject": "it"})

    assert text_of(waited) == "Declined(action='cancel')"
    assert ended.is_error
    assert "Send it?" in text_of(ended)


@pytest.mark.parametrize("given", ['{"street"', '"Main"', "3"])
async def test_json_text_that_is_none_is_no_answer(given: str) -> None:
    """SUS-3: neither broken JSON nor JSON of another shape."""

    @tool
    async def asks(context: Context) -> str:
        """Ask for what no form can say."""
        return repr(await context.ask("Where?", list[Address]))

    person = says("accept", {"answer": given})
    number = says("accept", {"answer": 3})
    for callback in (person, number):
        async with in_memory(
            Server([asks], rounds=2), "auto", elicitation_callback=callback
        ) as client:
            assert text_of(await client.call_tool("asks")) == "Declined(action='cancel')"


async def test_a_state_is_bounded_and_runs_out() -> None:
    """SUS-1, SUS-5: what is too large is not handed out, and what is too late is stale."""

    async def asks(arguments: dict[str, object], _: Context) -> InputRequest:
        state = "x" * int(str(arguments["size"]))
        return InputRequest("Well?", schema={"type": "boolean"}, state=state, expires_in=0.001)

    async def goes_on(_: dict[str, object], __: Context, ___: object) -> str:
        raise AssertionError

    numbers = {"type": "object", "properties": {"size": {"type": "integer"}}}
    asker = RawTool(Definition("asks", input_schema=numbers), asks, resume=goes_on)
    async with in_memory(Server([asker]), "auto", elicitation_callback=says("cancel")) as client:
        large = await request(client, "asks", {"size": (1 << 20) - 10})
        asked = await request(client, "asks", {"size": 1})
        await anyio.sleep(0.01)
        late = await request(client, "asks", {"size": 1}, **yes(asked))

    assert "too large to be handed" in text_of(large)
    assert "no longer waits" in text_of(late)


async def test_so_many_calls_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """SUS-1: clients that never come back cannot fill a server; who asks then finds nobody."""
    monkeypatch.setattr("ferrule.mcp._server._PARKED", 2)
    async with in_memory(Server(TOOLS), "auto", elicitation_callback=says("cancel")) as client:
        for _ in range(2):
            assert isinstance(await request(client, "sure"), types.InputRequiredResult)
        assert text_of(await request(client, "sure")) == "Declined(action='cancel')"
