"""
Suspension: a call asks, waits, and goes on with the answer (CONTRACT section 10).

What a request may hold is in test_requests.py, what leaves the house sealed in test_seal.py.
"""

import copy
import json
import os
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Literal, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import process_tools
from ferrule import (
    Ask,
    Binding,
    Completed,
    Context,
    Continuation,
    DeclarationError,
    Definition,
    Executor,
    Guard,
    Inject,
    InputRequest,
    InvalidCall,
    InvalidTool,
    InvalidValue,
    Invocation,
    Leg,
    Limits,
    Outcome,
    RawJSON,
    RawTool,
    Registry,
    Rejected,
    Result,
    Secret,
    Suspended,
    Tool,
    ToolCall,
    Unknown,
    Within,
    Wrapper,
    bind,
    tool,
)
from ferrule.testing import Decisions
from support import ANYTHING, echo, raw

pytestmark = pytest.mark.anyio

YES_OR_NO = {"type": "boolean"}
WIDE = (9007199254740993, 18446744073709551615, -(2**63), 2**80)


@dataclass
class Draft:
    """A refund that waits."""

    order: str
    cents: int
    day: date = date(2026, 1, 2)


@tool
async def refund(order: str, cents: int) -> str | InputRequest:
    """Refund an order."""
    if cents <= 100:
        return "refunded at once"
    return approved.ask(f"Refund {cents}?", Draft(order, cents))


@refund.step
async def approved(state: Draft, answer: bool, context: Context) -> str | InputRequest:
    """Go on with a yes or no."""
    if not answer:
        return "not refunded"
    return explained.ask("Why?", state, expires_in=60)


@refund.step
def explained(state: Draft, answer: str, context: Context) -> str:
    """Go on with the reason, in a thread."""
    assert threading.current_thread() is not threading.main_thread()
    return f"{state.order} {state.cents} {state.day.year} because {answer}, leg {context.leg}"


CALL = ToolCall(id="c1", name="refund", arguments='{"order": "A1", "cents": 500}')


async def run(one: Tool, given: ToolCall | Leg, **inject: object) -> Outcome:
    """Run one call or leg."""
    (outcome,) = await Executor(Registry([one], inject=inject)).run([given])
    return outcome


def asked(outcome: Outcome) -> InputRequest:
    """Return what a call waits for."""
    assert isinstance(outcome, Suspended)
    return outcome.request


def question(**parts: object) -> InputRequest:
    """Return a request that differs from a plain one in some parts."""
    fields = {"message": "Sure?", "schema": YES_OR_NO, "state": None} | parts
    return InputRequest(**cast("dict[str, str]", fields))  # type: ignore[arg-type]  # whatever is given


# ---- a continuation ------------------------------------------------------------------------------


def test_a_continuation_is_the_answer_and_the_state_and_no_more() -> None:
    """SUS-2, SC-125: exactly these two."""
    made = question(state={"record": "draft"}).continuation(answer=True)

    assert (made.answer, made.state) == (True, {"record": "draft"})
    assert made.request == question(state={"record": "draft"})
    assert made.posed is None


@pytest.mark.parametrize("number", [*WIDE, 1.5, -0.0, 2.0, 5e-324])
def test_every_digit_of_a_number_survives(number: float) -> None:
    """SUS-1, JSON-2, SC-119: in schema, state and answer, and on the way through JSON."""
    request = question(schema={"const": number}, state=[number])
    made = InputRequest.from_json(request.to_json()).continuation(number)

    assert repr((made.answer, made.state, request.schema)) == repr(
        (number, [number], {"const": number})
    )


def test_a_text_is_kept_byte_for_byte() -> None:
    """SUS-1, DEF-5, SC-119: what Python's numbers cannot hold is given as `RawJSON`."""
    state, answer = RawJSON('{"n": 1.234567890123456789}'), RawJSON(' [1.0, "\\u0041"] ')
    request = InputRequest.from_json(question(schema=True, state=state).to_json())
    made = request.continuation(answer)

    assert (made.state, made.answer) == (state, answer)
    assert list(request.to_json())[:2] == ["message", "schema"]


def test_an_answer_is_compared_by_every_digit() -> None:
    """SC-124, SUS-3: the neighbour of an integer is another one."""
    request = question(schema={"const": 9007199254740993})

    assert request.continuation(9007199254740993).answer == 9007199254740993
    assert request.continuation(RawJSON("9007199254740993"))
    for other in (9007199254740992, RawJSON("9007199254740992"), 9007199254740992.0):
        with pytest.raises(InvalidValue, match="not what was asked for"):
            request.continuation(other)


@pytest.mark.parametrize("answer", [None, "yes", 1, {"a": True}, object(), float("nan"), "\ud800"])
def test_an_answer_outside_the_schema_is_refused_and_not_repeated(answer: object) -> None:
    """SUS-3, JSON-6: and nothing of the request has changed."""
    request = question(state={"n": 1})
    with pytest.raises(InvalidValue) as caught:
        request.continuation(answer)

    assert "yes" not in str(caught.value)
    assert len(str(caught.value).encode()) <= 1024
    assert request == question(state={"n": 1})


def test_state_and_answer_are_bounded_to_the_byte() -> None:
    """SUS-1, SC-120, SC-128: 1 MiB as written is taken, one byte more is not."""
    most = (1 << 20) - 2
    assert question(state="x" * most, schema=True).continuation("y" * most)
    assert question(state=RawJSON(f'"{"x" * most}"'))
    for large in ("x" * (most + 1), RawJSON(f'"{"x" * (most + 1)}"'), RawJSON(" " * most + "123")):
        with pytest.raises(InvalidValue, match="the state of an InputRequest: too large"):
            question(state=large)
        with pytest.raises(InvalidValue, match="the answer of an InputRequest: too large"):
            question(schema=True).continuation(large)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "1 2", '"\\ud800"', "", "1e400", "NaN"])
def test_a_text_that_is_no_document_is_refused(text: str) -> None:
    """SC-120, SC-128, JSON-1: by the one reader, before it is part of any request."""
    with pytest.raises(InvalidValue):
        question(state=RawJSON(text))


def test_null_is_a_state() -> None:
    """SC-128: a state may be null, and is then there all the same."""
    assert question().continuation(answer=False).state is None
    assert question().to_json()["state"] is None


def test_the_form_has_message_schema_and_state_in_this_order() -> None:
    """SC-121: the round trip is equal, and what was written does not change what was read."""
    request = question(state={"n": [1]})
    written = request.to_json()
    back = InputRequest.from_json(written)
    cast("dict[str, list[int]]", written["state"])["n"].clear()

    assert list(request.to_json())[:3] == ["message", "schema", "state"]
    assert back == request


BAD_FORMS = [
    None, {}, {"message": "a", "schema": True}, {"message": "a", "state": 1},
    {"message": "a", "schema": True, "state": 1, "raw_state": "1"},
    {"message": "a", "schema": True, "raw_state": "1 2"},
    {"message": "a", "schema": True, "raw_state": 1},
    {"message": "a", "schema": True, "state": 1, "wait": "w"},
    {"message": "a", "schema": True, "state": 1, "posed": {"call_id": "c1"}},
]  # fmt: skip


@pytest.mark.parametrize("form", BAD_FORMS)
def test_what_is_no_request_is_refused_whole(form: object) -> None:
    """SC-122, SC-123, DEF-4: a member too few, one too many, a state that is there twice."""
    with pytest.raises(InvalidValue):
        InputRequest.from_json(form)


def test_a_continuation_shares_nothing() -> None:
    """SUS-2: it is frozen: what its maker or its reader changes reaches nobody."""
    request = question(state={"n": [1]}, schema=True)
    made = request.continuation({"m": [2]})
    for part in (request.state, made.state, made.request.state):
        cast("dict[str, list[int]]", part)["n"].append(9)
    cast("dict[str, list[int]]", made.answer)["m"].append(9)

    assert (made.state, made.answer) == ({"n": [1]}, {"m": [2]})


def test_continuations_are_equal_that_answer_alike() -> None:
    """API: values have equality; a continuation is no other kind of pair."""
    one, other = question().continuation(answer=True), question().continuation(answer=False)
    assert question() not in (question(message="Really?"), question(state=1), "Sure?", one)

    assert one == question().continuation(answer=True)
    assert hash(one) == hash(question().continuation(answer=True))
    assert one not in (other, (one.request, True))
    match one:
        case Continuation(answer):
            assert answer is True


def test_a_request_alone_makes_a_continuation() -> None:
    """SUS-2, STYLE 12: no other way round leads to one."""
    made = question().continuation(answer=True)
    for forge in (
        lambda: Continuation(question(), 1),
        lambda: msgspec.convert([question().to_json(), 1], Continuation),
        lambda: pickle.dumps(made),
    ):
        with pytest.raises((TypeError, msgspec.ValidationError)):
            forge()

    assert copy.deepcopy(made) is made
    assert "draft" not in repr(question(state="draft").continuation(answer=True))


async def test_a_guards_question_has_no_continuation_and_a_tools_no_approval() -> None:
    """AUT-7: the two answers never stand for each other."""
    guards = asked(await run(Guard(refund, Decisions(Ask("May it?"))), CALL))
    tools = asked(await run(refund, CALL))

    with pytest.raises(InvalidValue, match=r"a guard's question.*request\.approval"):
        guards.continuation(answer=True)
    with pytest.raises(InvalidValue, match="not a guard's"):
        tools.approval(answer=True, by="ann")


PARTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text("ab'\"\\é", max_size=4)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=6,
)  # fmt: skip


@given(PARTS, PARTS)
def test_any_state_and_answer_come_back_as_they_went_in(state: object, answer: object) -> None:
    """SUS-1, SUS-2: through a request, its JSON, a continuation, and an admission."""
    request = InputRequest.from_json(question(schema=True, state=state).to_json())
    invocation = bind(Going()).contract.admit(ToolCall.of("going"), request.continuation(answer))
    found = invocation.continuation

    assert found is not None
    assert json.dumps([found.state, found.answer]) == json.dumps([state, answer], sort_keys=True)


# ---- raw -----------------------------------------------------------------------------------------


class Going:
    """A tool written by hand, which asks twice and reads its continuation."""

    def __init__(self) -> None:
        self.definition = Definition("going", input_schema=ANYTHING)
        self.traits = echo().traits
        self.seen: list[Continuation | None] = []

    async def call(self, invocation: Invocation, context: Context) -> Result | InputRequest:
        """Ask, ask again, and say what was answered."""
        found = invocation.continuation
        self.seen.append(found)
        if found is None:
            return InputRequest("First?", schema={"type": "integer"}, state=[])
        answers = [*cast("list[int]", found.state), found.answer]
        if len(answers) < 2:
            return InputRequest("Second?", schema={"type": "integer"}, state=answers)
        return Result.of(answers)


async def test_a_tool_written_by_hand_reads_its_continuation() -> None:
    """SUS-2, SC-126, SC-129: a new call has none; each answer reaches the leg after it."""
    going = Going()
    call = ToolCall.of("going", id="c1")
    first = asked(await run(going, call))
    second = asked(await run(going, Leg(call, continuation=first.continuation(7), number=2)))
    done = await run(going, Leg(call, continuation=second.continuation(WIDE[0]), number=3))

    assert (first.message, second.message) == ("First?", "Second?")
    assert done.text == f"[7,{WIDE[0]}]"
    assert [None if one is None else one.answer for one in going.seen] == [None, 7, WIDE[0]]


async def test_none_always_is_a_new_call() -> None:
    """SUS-2, SC-126: whatever was asked before, and whatever the context has."""
    binding = bind(Going())
    call = ToolCall.of("going", id="c1")
    assert binding.contract.admit(call).continuation is None
    assert binding.contract.admit(call, None).continuation is None

    context = Context.of(call, number=5)
    again = await binding.call(binding.contract.admit(call), context)
    assert isinstance(again, InputRequest)
    assert again.message == "First?"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_raw_tool_goes_on_in_its_resume(is_async: bool) -> None:
    """FN-8, SUS-2: with the arguments, the context and the answer, never from the top."""
    begun: list[str] = []

    async def start(_: dict[str, object], __: Context) -> InputRequest:
        begun.append("start")
        return question(state={"n": 1})

    def go_on(arguments: dict[str, object], context: Context, answer: Continuation) -> object:
        return [arguments, context.leg, answer.answer, answer.state]

    async def go_on_later(
        arguments: dict[str, object], context: Context, answer: Continuation
    ) -> object:
        return go_on(arguments, context, answer)

    resume = go_on_later if is_async else go_on
    asking = RawTool(Definition("ask", input_schema=ANYTHING), start, resume=resume)
    call = ToolCall.of("ask", {"a": 1}, id="c1")
    request = asked(await run(asking, call))
    done = await run(asking, Leg(call, continuation=request.continuation(answer=True), number=2))

    assert done.text == '[{"a":1},2,true,{"n":1}]'
    assert begun == ["start"]


async def test_a_tool_that_cannot_go_on_is_refused_before_it_runs() -> None:
    """SUS-2, FAIL-6: a raw tool without `resume`, and a function without steps, never run again."""
    runs: list[str] = []

    async def ask(_: dict[str, object], __: Context) -> InputRequest:
        runs.append("raw")
        return question()

    @tool
    async def asking() -> InputRequest:
        """Ask."""
        runs.append("function")
        return question()

    for one, name in ((raw("ask", ask), "ask"), (asking, "asking")):
        call = ToolCall.of(name)
        request = asked(await run(one, call))
        outcome = await run(one, Leg(call, continuation=request.continuation(answer=True)))
        assert isinstance(outcome, Rejected)
        assert outcome.kind == "unavailable"
        assert outcome.text.startswith(f'Error: tool "{name}" is not available now (reference ')
        with pytest.raises(InvalidCall, match="goes on with an answer"):
            bind(one).contract.admit(call, request.continuation(answer=True))

    assert runs == ["raw", "function"]


def test_a_resume_that_cannot_be_called_is_refused() -> None:
    """FN-1: when the tool is declared."""
    with pytest.raises(InvalidTool, match=r"resume of tool `ask` takes \(arguments, context, con"):
        RawTool(Definition("ask"), lambda _, __: None, resume=cast("Callable[..., object]", 1))


async def test_an_outermost_layer_has_the_last_word_on_answers() -> None:
    """CAP-1: a wrapper that asks for itself says so, and what it lets through reaches the tool."""

    class Confirming(Wrapper):
        """Asks before every call."""

        def resumer(self) -> None:
            """Take every answer."""

        async def call(self, invocation: Invocation, context: Context, /) -> Result | InputRequest:
            """Ask, or go on."""
            found = invocation.continuation
            if found is None:
                return question(message="Really?", state="mine")
            return Result.of(f"{found.state} {found.answer}")

    call = ToolCall.of("refund", {"order": "A1", "cents": 5})
    request = asked(await run(Confirming(refund), call))
    done = await run(Confirming(refund), Leg(call, continuation=request.continuation(answer=True)))

    assert done.text == "mine True"


def test_a_resumer_that_is_none_is_refused_when_bound() -> None:
    """ADM-1: whatever cannot be asked later."""

    class Odd(Wrapper):
        """Has something else in its place."""

        def resumer(self) -> object:
            """Return nonsense."""
            return 5

    class Broken(Wrapper):
        """Has nothing to give."""

        def resumer(self) -> object:
            """Break."""
            raise ValueError("gone")

    with pytest.raises(InvalidTool, match="the resumer of tool `echo` is no function"):
        bind(Odd(echo()))
    with pytest.raises(InvalidTool, match="the resumer of tool `echo` cannot be had: gone"):
        bind(Broken(echo()))


async def test_a_resumer_that_breaks_refuses(caplog: pytest.LogCaptureFixture) -> None:
    """FAIL-6: the operator reads why; the model reads a reference."""

    class Breaking(Wrapper):
        """Cannot read what it kept."""

        def resumer(self) -> Callable[[Continuation], object]:
            """Return what breaks."""
            return lambda _: cast("dict[str, object]", {})["gone"]

    outcome = await run(
        Breaking(echo()), Leg(ToolCall.of("echo"), continuation=question().continuation(True))
    )

    assert isinstance(outcome, Rejected)
    assert (outcome.kind, "gone" in outcome.text) == ("unavailable", False)
    assert "KeyError: 'gone'" in caplog.text


# ---- typed ---------------------------------------------------------------------------------------


async def test_a_step_goes_on_with_typed_state_and_answer_and_may_ask_again() -> None:
    """SUS-2, SC-129: several in one call, an async one and a plain one, all of them typed."""
    first = asked(await run(refund, CALL))
    second = asked(await run(refund, Leg(CALL, continuation=first.continuation(True), number=2)))
    done = await run(refund, Leg(CALL, continuation=second.continuation("broken"), number=3))

    assert (first.message, first.schema) == ("Refund 500?", YES_OR_NO)
    assert (second.message, second.schema, second.expires_in) == ("Why?", {"type": "string"}, 60)
    assert done.text == "A1 500 2026 because broken, leg 3"
    no = await run(refund, Leg(CALL, continuation=first.continuation(False), number=2))
    assert no.text == "not refunded"


async def test_a_step_may_ask_for_itself_until_it_knows_enough() -> None:
    """SUS-2: as often as it likes; the state is what is new."""

    @tool
    async def total() -> InputRequest:
        """Add up numbers."""
        return one_more.ask("A number?", [])

    @total.step
    async def one_more(state: list[int], answer: int) -> object:
        """Add one."""
        if answer == 0:
            return sum(state)
        return one_more.ask("Another?", [*state, answer])

    call = ToolCall.of("total")
    outcome = await run(total, call)
    for number, answer in enumerate((1, 20, 300, 0), start=2):
        continuation = asked(outcome).continuation(answer)
        outcome = await run(total, Leg(call, continuation=continuation, number=number))

    assert outcome.text == "321"


async def test_a_call_that_waits_holds_nobody_back_and_no_sibling_runs_again() -> None:
    """SUS-4, EXE-5: answering one of several waits runs that call alone."""
    runs: list[object] = []

    async def note(arguments: dict[str, object], _: Context) -> str:
        runs.append(arguments)
        return "noted"

    executor = Executor([refund, raw("note", note)])
    other = msgspec.structs.replace(CALL, id="c2", arguments='{"order": "B2", "cents": 600}')
    turn = await executor.run([CALL, ToolCall.of("note", {"n": 1}), other])
    answered = asked(turn[0]).continuation(answer=False)
    (done,) = await executor.run([Leg(CALL, continuation=answered, number=2)])

    assert [type(one) for one in turn] == [Suspended, Completed, Suspended]
    assert done.text == "not refunded"
    assert runs == [{"n": 1}]
    assert asked(turn[2]).message == "Refund 600?"


async def test_a_step_gets_what_a_harness_injects() -> None:
    """FN-5, SUS-2: by annotation, wherever it stands; what a step alone takes has to be there."""

    @tool
    async def pay(amount: int, bank: Annotated[str, Inject("bank")]) -> str | InputRequest:
        """Pay."""
        return done.ask(f"Pay at {bank}?", amount)

    @pay.step
    async def done(
        state: int,
        context: Context,
        answer: bool,
        *,
        tenant: Annotated[str, Inject("tenant")],
        desk: Annotated[int, Inject("desk")] = 3,
    ) -> str:
        """Say all of it."""
        return f"{state} {answer} {tenant} {desk} leg {context.leg}"

    given = {"bank": "hers", "tenant": lambda context: f"t{context.leg}"}
    call = ToolCall.of("pay", {"amount": 5})
    request = asked(await run(pay, call, **given))
    leg = Leg(call, continuation=request.continuation(answer=True), number=2)

    assert request.message == "Pay at hers?"
    assert (await run(pay, leg, **given)).text == "5 True t2 3 leg 2"
    assert (await run(pay, leg, **given, desk=9)).text == "5 True t2 9 leg 2"
    with pytest.raises(InvalidTool, match="tenant"):
        Registry([pay], inject={"bank": "hers"})
    with pytest.raises(DeclarationError, match=r"`late`.*declare every step first"):

        @pay.step
        async def late(state: int, answer: bool, tenant: Annotated[str, Inject("tenant")]) -> str:
            """Come after the registration."""
            return tenant


async def test_an_answer_may_be_secret_and_a_text_may_be_its_json() -> None:
    """FN-2, SUS-2: whatever a parameter may be, an answer may be; the state may not be a secret."""

    @tool
    async def login() -> InputRequest:
        """Log in."""
        return entered.ask("The code?", None)

    @login.step
    async def entered(state: None, answer: Secret[str]) -> str:
        """Look at it."""
        return f"{state} {answer} {len(answer.reveal())}"

    call = ToolCall.of("login")
    request = asked(await run(login, call))
    for answer in ("1234", RawJSON('"1234"')):
        done = await run(login, Leg(call, continuation=request.continuation(answer)))
        assert done.text.endswith(" 4")
        assert "1234" not in done.text


class Even(msgspec.Struct):
    """A number that its type alone knows to be even."""

    n: int

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError("an odd number is refused")


@tool
async def count() -> InputRequest:
    """Count."""
    return counted.ask("How many?", Draft("A1", 1))


@count.step
async def counted(state: Draft, answer: Even) -> str:
    """Say it."""
    RUNS.append(answer)
    return f"{state.order} {answer.n}"


RUNS: list[object] = []

STATES = [
    (None, "not one that a step of tool `count` made"),
    ("counted", "not one that a step"),
    ({"step": "counted"}, "not one that a step"),
    ({"step": "counted", "state": 1, "more": 1}, "not one that a step"),
    ({"step": 5, "state": {}}, "not one that a step"),
    ({"step": "countd", "state": {}}, "has no step countd; there is `counted`"),
    ({"step": "xyz", "state": {}}, "has no step xyz$"),
    ({"step": "counted", "state": None}, r"state: expected object, got null"),
    ({"step": "counted", "state": {"order": "A1"}}, 'state: missing required property "cents"'),
    ({"step": "counted", "state": {"order": 4711, "cents": 1}}, "state.order: expected string"),
]


@pytest.mark.parametrize(("state", "why"), STATES)
async def test_a_state_that_no_step_can_read_is_refused_and_nothing_runs(
    state: object, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SUS-2, FAIL-6, JSON-6: "unavailable", as of a tool that changed; the log says which part."""
    made = InputRequest("How many?", schema=True, state=state).continuation({"n": 2})
    call = ToolCall.of("count")
    with pytest.raises(InvalidCall, match=why) as caught:
        bind(count).contract.admit(call, made)
    outcome = await run(count, Leg(call, continuation=made))

    assert (caught.value.kind, RUNS) == ("unavailable", [])
    assert isinstance(outcome, Rejected)
    assert (outcome.kind, "4711" in caplog.text) == ("unavailable", False)
    assert str(caught.value) in caplog.text


@pytest.mark.parametrize("answer", [{"n": 3}, {"n": "2"}, None, {"n": 2, "m": 1}])
async def test_an_answer_that_is_not_of_the_type_is_refused_and_nothing_runs(
    answer: object,
) -> None:
    """SUS-2, SCH-3: also where only the type knows, and where the question was another one."""
    state = {"step": "counted", "state": {"order": "A1", "cents": 1}}
    made = InputRequest("How many?", schema=True, state=state).continuation(answer)
    with pytest.raises(InvalidCall) as caught:
        bind(count).contract.admit(ToolCall.of("count"), made)

    assert caught.value.kind == "unavailable"
    assert caught.value.problems[0].path.startswith("answer")
    assert RUNS == []


@dataclass
class Picky:
    """Something whose own check breaks."""

    name: str

    def __post_init__(self) -> None:
        raise LookupError(self.name)


async def test_a_type_that_breaks_refuses_and_nothing_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """ADM-3, FAIL-6: what it raised is for the operator alone."""

    @tool
    async def pick() -> InputRequest:
        """Pick."""
        return picked.ask("Which?", 1)

    @pick.step
    async def picked(state: int, answer: Picky) -> str:
        """Never come here."""
        return f"{state}{answer}"

    call = ToolCall.of("pick")
    request = asked(await run(pick, call))
    outcome = await run(pick, Leg(call, continuation=request.continuation({"name": "gone-4711"})))

    assert isinstance(outcome, Rejected)
    assert (outcome.kind, "gone-4711" in outcome.text) == ("unavailable", False)
    assert "LookupError: gone-4711" in caplog.text


async def test_state_and_answer_are_made_anew_for_each_run() -> None:
    """SUS-2: what one run does to its state, no other run sees."""

    @tool
    async def collect() -> InputRequest:
        """Collect."""
        return added.ask("What?", ["a"])

    @collect.step
    async def added(state: list[str], answer: list[str]) -> object:
        """Change both."""
        state.extend(answer)
        answer.clear()
        return state

    call = ToolCall.of("collect")
    binding = bind(collect)
    request = asked(await run(collect, call))
    invocation = binding.contract.admit(call, request.continuation(["b"]))
    results = [await binding.call(invocation) for _ in range(2)]

    assert [cast("Result", one).structured_content for one in results] == [["a", "b"]] * 2


# ---- declared ------------------------------------------------------------------------------------


def test_a_step_that_could_not_go_on_is_refused_when_declared() -> None:
    """FN-1, SUS-2: a state or an answer without a JSON form, a root, a secret, a generator."""

    def declare(function: Callable[..., object]) -> None:
        refund.step(function)

    def no_type(state, answer):  # type: ignore[no-untyped-def]  # what is tested  # noqa: ANN001, ANN202
        return state, answer

    def no_form(state: threading.Thread, answer: bool) -> str:
        return f"{state}{answer}"

    def no_answer(state: int, answer: Callable[[], int]) -> str:
        return f"{state}{answer}"

    def a_secret(state: Secret[str], answer: bool) -> str:
        return f"{state}{answer}"

    def a_root(state: int, answer: Annotated[Path, Within("home")]) -> str:
        return f"{state}{answer}"

    def generator(state: int, answer: bool) -> object:
        yield state, answer

    def too_many(state: int, answer: bool, more: int) -> str:
        return f"{state}{answer}{more}"

    wrong = {
        no_type: "parameter `state` of `no_type` has no type",
        no_form: "parameter `state` of `no_form`",
        no_answer: "parameter `answer` of `no_answer`",
        a_secret: "a Secret never is",
        a_root: "nobody gives step `a_root` a root",
        generator: "`generator` is a generator",
        too_many: r"takes a state and an answer, and the context if it likes: \(state: Draft",
    }
    for function, why in cast("dict[Callable[..., object], str]", wrong).items():
        with pytest.raises(DeclarationError, match=why):
            declare(function)

    assert list(refund.steps) == ["approved", "explained"]


def test_a_step_gives_what_its_tool_promises() -> None:
    """FN-1, FN-6: text where structured content is promised would be unknown, after the effect."""

    @tool
    async def charge(cents: int) -> dict[str, int]:
        """Charge."""
        return {"cents": cents}

    with pytest.raises(DeclarationError, match=r"step `told` returns no structured content.*`char"):

        @charge.step
        async def told(state: int, answer: bool) -> str | None:
            """Say so in words."""
            return f"{state}{answer}"

    @charge.step
    async def charged(state: int, answer: bool) -> dict[str, int] | InputRequest:
        """Give what was promised, or ask."""
        return {"cents": state * answer}

    @charge.step
    async def whatever(state: int, answer: bool):  # type: ignore[no-untyped-def]  # what is tested  # noqa: ANN202
        """Promise nothing."""
        return {"cents": state * answer}

    assert list(charge.steps) == ["charged", "whatever"]


# ---- where a step runs ---------------------------------------------------------------------------


Place = Literal["loop", "thread", "dedicated", "auto"]
PLACES: tuple[Place, ...] = ("loop", "thread", "dedicated", "auto")


async def test_a_plain_step_runs_where_its_tool_runs() -> None:
    """FN-7, SUS-2: the loop, a worker thread, the tool's own thread."""
    seen: dict[str, object] = {}

    def declared(run_in: Place) -> Tool:
        @tool(name=run_in, run_in=run_in)
        def asking() -> InputRequest:
            """Ask."""
            seen[run_in] = threading.current_thread()
            return on.ask("?", None)

        @asking.step
        def on(state: None, answer: bool, context: Context) -> str:
            """Look where this is."""
            same = seen[run_in] is threading.current_thread()
            here = Context.current() is context
            is_main = threading.current_thread() is threading.main_thread()
            return f"{same} {is_main} {here} {answer} {state}"

        return asking

    texts: dict[str, str] = {}
    for run_in in PLACES:
        made, call = declared(run_in), ToolCall.of(run_in)
        async with Registry([made]) as registry:
            executor = Executor(registry)
            (outcome,) = await executor.run([call])
            leg = Leg(call, continuation=asked(outcome).continuation(answer=True))
            (outcome,) = await executor.run([leg])
            texts[run_in] = outcome.text

    assert texts["loop"] == "True True True True None"
    assert texts["dedicated"] == "True False True True None"
    for text in (texts["thread"], texts["auto"]):
        assert text.endswith("False True True None")


def test_an_async_step_needs_the_loop() -> None:
    """FN-1, FN-7: a tool that runs elsewhere by its own word has no async steps."""

    @tool(run_in="thread")
    def asking() -> str:
        """Ask."""
        return ""

    with pytest.raises(DeclarationError, match=r'step `on` is async.*run_in="thread" of tool `ask'):

        @asking.step
        async def on(state: int, answer: bool) -> str:
            """Go on."""
            return f"{state}{answer}"


async def test_a_step_of_a_tool_in_a_process_runs_in_a_process() -> None:
    """FN-7, SUS-2: state and answer travel as JSON and arrive typed; it may ask again there."""
    posted = Wrapper(process_tools.send, name="post")  # Its process knows the tool as it is inside.
    call = ToolCall.of("post", {"to": "Ann"}, id="c1")
    first = asked(await run(posted, call))
    leg = Leg(call, continuation=first.continuation("again"), number=2)
    second = asked(await run(posted, leg))
    leg = Leg(call, continuation=second.continuation(RawJSON('"sent"')), number=3)
    done = await run(posted, leg)

    assert (first.message, second.message) == ("Send it to Ann?", "Really?")
    assert done.text.startswith("sent to Ann on 3 in leg 3 by ")
    assert not done.text.endswith(f" {os.getpid()}")


def test_a_step_that_a_process_would_not_have_is_refused() -> None:
    """FN-1, FN-7: it imports the module of the tool and no more, and nothing is injected there."""
    with pytest.raises(DeclarationError, match=r"step `local` runs in a process.*process_tools"):

        @process_tools.send.step
        def local(state: int, answer: bool) -> str:
            """Stand in another module."""
            return f"{state}{answer}"

    def injected(state: int, answer: bool, tenant: Annotated[str, Inject("tenant")]) -> str:
        return f"{state}{answer}{tenant}"

    injected.__module__, injected.__qualname__ = "process_tools", "injected"
    with pytest.raises(DeclarationError, match=r"no harness injects anything.*thread"):
        process_tools.send.step(injected)


# ---- whose answer it is --------------------------------------------------------------------------


async def waiting(call: ToolCall = CALL) -> Continuation:
    """Return the yes to what a call of `refund` asks."""
    return asked(await run(refund, call)).continuation(answer=True)


STRAYS: list[tuple[str, ToolCall]] = [
    ("another call asked", msgspec.structs.replace(CALL, id="c2")),
    ("the arguments are not", msgspec.structs.replace(CALL, arguments='{"order":"A1","cents":9}')),
]


@pytest.mark.parametrize(("why", "other"), STRAYS)
async def test_an_answer_serves_the_call_that_asked_and_no_other(why: str, other: ToolCall) -> None:
    """SUS-2, ADM-4, AUT-4: not one beside it, and not the same one with edited arguments."""
    continuation = await waiting()
    outcome = await run(refund, Leg(other, continuation=continuation, number=2))

    assert isinstance(outcome, Rejected)
    assert outcome.kind == "unavailable"
    with pytest.raises(InvalidCall, match=why):
        bind(refund).contract.admit(other, continuation)


async def test_arguments_that_are_spelt_otherwise_are_the_same() -> None:
    """JSON-4: identity is the canonical digest, not the text."""
    respelt = msgspec.structs.replace(CALL, arguments='{"cents":500.0, "order":"\\u0041\\u0031"}')
    assert bind(refund).contract.admit(respelt, await waiting()).continuation


async def test_an_answer_for_another_tool_or_a_changed_one_is_refused() -> None:
    """SUS-2, FAIL-6, DEF-3: another origin, another text, a tool of the same name and steps."""
    continuation = await waiting()

    @tool(name="refund", description="Pay twice.")
    async def changed(order: str, cents: int) -> str | InputRequest:
        """Refund."""
        return approved.ask(order, Draft(order, cents))

    changed.step(approved.function)
    for binding in (bind(refund, origin="elsewhere"), bind(changed)):
        with pytest.raises(InvalidCall, match="another tool asked, or this one before"):
            binding.contract.admit(CALL, continuation)

    assert bind(refund).contract.admit(CALL, continuation).continuation is not None


async def test_an_answer_comes_after_all_that_is_wrong_with_the_call() -> None:
    """ADM-2: the name first, then the arguments, then the continuation."""
    contract, continuation = bind(refund).contract, await waiting()
    for call, kind in (
        (ToolCall.of("pay"), "unknown_tool"),
        (ToolCall.of("refund", {"order": 1}), "invalid_arguments"),
        (ToolCall.of("refund", {"order": "B", "cents": 1}), "unavailable"),
    ):
        with pytest.raises(InvalidCall) as caught:
            contract.admit(call, continuation)
        assert caught.value.kind == kind


async def test_a_tool_cannot_say_whose_question_it_is() -> None:
    """SUS-2, AUT-7: what a tool writes there is overwritten; the call that asked is noted."""
    stolen = asked(await run(refund, msgspec.structs.replace(CALL, id="c9")))

    @tool
    async def thief() -> InputRequest:
        """Give another call's question."""
        return stolen

    call = ToolCall.of("thief", id="c1")
    request = asked(await run(thief, call))

    assert request == stolen
    assert request.posed != stolen.posed
    assert request.posed is not None
    assert request.posed.call_id == "c1"


async def test_whose_question_it_is_travels_with_it() -> None:
    """DEF-4, SUS-4: a request that was stored serves the same call, and still no other."""
    stored = InputRequest.from_json(asked(await run(refund, CALL)).to_json())
    continuation = stored.continuation(answer=False)
    other = msgspec.structs.replace(CALL, id="c2")

    assert (await run(refund, Leg(CALL, continuation=continuation))).text == "not refunded"
    assert isinstance(await run(refund, Leg(other, continuation=continuation)), Rejected)


async def test_a_binding_that_is_called_directly_goes_on_too() -> None:
    """EXE-13: a loop of one's own needs `bind`, `admit` and `call`."""
    binding: Binding = bind(refund)
    first = await binding.call(binding.contract.admit(CALL))
    assert isinstance(first, InputRequest)
    again = binding.contract.admit(CALL, first.continuation(answer=False))

    assert again.continuation == first.continuation(answer=False)
    assert await binding.call(again) == Result.of("not refunded")


@pytest.mark.parametrize("wrong", [True, "yes", {"answer": True}, question()])
def test_what_is_no_continuation_is_refused(wrong: object) -> None:
    """STYLE 24: where it is given, with what to write instead."""
    with pytest.raises(InvalidValue, match=r"request\.continuation\(answer\)"):
        Leg(CALL, continuation=cast("Continuation", wrong))
    with pytest.raises(InvalidValue, match=r"request\.continuation\(answer\)"):
        bind(refund).contract.admit(CALL, cast("Continuation", wrong))


async def test_a_registry_may_allow_less_than_a_request_may_be() -> None:
    """JSON-3, SUS-1: a question that is too large is a bad result, an answer is not let in."""
    limits = Limits(request_bytes=100)

    async def ask(arguments: dict[str, object], _: Context) -> InputRequest:
        return question(schema=True, state="x" * cast("int", arguments["n"]))

    def go_on(_: dict[str, object], __: Context, answer: Continuation) -> object:
        return answer.answer

    asking = RawTool(Definition("ask", input_schema=ANYTHING), ask, resume=go_on)
    executor = Executor(Registry([asking], limits=limits))
    small, large = (ToolCall.of("ask", {"n": n}) for n in (98, 99))
    (waits,) = await executor.run([small])
    (bad,) = await executor.run([large])
    legs = [Leg(small, continuation=asked(waits).continuation("y" * length)) for length in (98, 99)]
    (fits,), (over,) = [await executor.run([leg]) for leg in legs]

    assert isinstance(bad, Unknown)
    assert bad.reason == "bad_result"
    assert "the state of the request is larger" in str(bad.error)
    assert isinstance(fits, Completed)
    assert isinstance(over, Rejected)
    assert over.kind == "too_large"


# ---- guards --------------------------------------------------------------------------------------


async def test_a_guard_is_asked_again_on_each_leg_and_sees_its_approval() -> None:
    """AUT-6, AUT-7: the tool starts new after the approval; the answer to the tool is another."""
    policy = Decisions(Ask("May it?"))
    guarded = Guard(refund, policy)
    may = asked(await run(guarded, CALL))
    yes = may.approval(answer=True, by="ann")
    first = asked(await run(guarded, Leg(CALL, number=2, approvals=(yes,))))
    continuation = first.continuation(answer=False)
    without = await run(guarded, Leg(CALL, continuation=continuation, number=3))
    done = await run(guarded, Leg(CALL, continuation=continuation, number=4, approvals=(yes,)))

    assert (may.message, first.message) == ("May it?", "Refund 500?")
    assert asked(without).asked is not None
    assert done.text == "not refunded"
    assert [one.approval is None for one in policy.seen] == [True, False, True, False]


async def test_a_guard_that_says_no_meanwhile_stops_the_answered_call() -> None:
    """AUT-6: an answer is no permission."""
    allowed = [True]
    guarded = Guard(refund, lambda _: allowed[0])
    request = asked(await run(guarded, CALL))
    allowed[0] = False
    outcome = await run(guarded, Leg(CALL, continuation=request.continuation(answer=True)))

    assert isinstance(outcome, Rejected)
    assert outcome.kind == "unauthorized"


async def test_a_result_beside_a_question_is_neither() -> None:
    """SC-127, FN-6: a call ends with one of the two."""

    async def both(_: dict[str, object], __: Context) -> object:
        return Result.of("done"), question()

    outcome = await run(raw("both", both), ToolCall.of("both"))

    assert isinstance(outcome, Unknown)
    assert outcome.reason == "bad_result"
    assert str(outcome.error) == "a tool gives a result or a question, not both"
