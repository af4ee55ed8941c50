"""One call in a test: by hand with a context that keeps, and through the whole boundary."""

import threading
from typing import Annotated

import anyio.to_thread
import pytest

from ferrule import (
    Accepted,
    Ask,
    Completed,
    Context,
    Declined,
    Deny,
    Failed,
    Failure,
    FerruleError,
    Guard,
    Inject,
    InputRequest,
    InvalidTool,
    InvalidValue,
    Progress,
    Question,
    Rejected,
    Suspended,
    ToolCall,
    Unknown,
    tool,
)
from ferrule.testing import Answers, Decisions, MemoryRecorder, call, context

pytestmark = pytest.mark.anyio


@tool
async def pay(amount: int, context: Context) -> str:
    """Pay, if a person confirms it."""
    context.progress(1, total=2, message="asking")
    said = await context.ask(f"Pay {amount}?")
    if isinstance(said, Declined):
        raise Failure(f"not paid: {said.action}")
    await context.record("bank:payment", {"amount": amount})
    return "paid" if said.content else "kept"


# ---- by hand -------------------------------------------------------------------------------------


async def test_a_context_by_hand_keeps_all_that_a_function_tells() -> None:
    """EXE-8, REC-1, ASK-1: progress, records and questions, in order."""
    kept = context(answers=[True], caller="ann", session="s1", inject={"bank": 1})

    assert await pay(5, context=kept) == "paid"
    assert kept.updates == [Progress(progress=1, total=2, message="asking")]
    assert [(record.namespace, record.data) for record in kept.records] == [
        ("bank:payment", {"amount": 5})
    ]
    assert kept.asked == [Question("Pay 5?", schema={"type": "boolean"})]
    assert (kept.caller, kept.session, kept.inject, kept.tool) == ("ann", "s1", {"bank": 1}, "test")


async def test_a_context_by_hand_is_of_the_call_and_the_key_that_were_given() -> None:
    """DUR-3: a function that uses its key can be tested with one that is known."""
    kept = context(call=ToolCall.of("pay", {"amount": 1}, id="c1"), idempotency_key="k")

    assert (kept.tool, kept.call_id, kept.idempotency_key) == ("pay", "c1", "k")


async def test_a_context_by_hand_can_be_told_to_stop() -> None:
    """FN-7: a function in a thread asks `cancelled`."""
    kept = context()

    def work(context: Context) -> bool:
        return context.cancelled

    assert not work(kept)
    kept.stop()
    assert work(kept)


async def test_the_blocking_twins_work_in_a_thread() -> None:
    """REC-1: each checks its side of the loop, and is kept all the same."""
    kept = context(answers=["blue"])

    def work() -> object:
        said = kept.ask_blocking("Which?", str)
        kept.record_blocking("test:thread", threading.get_ident())
        return said

    assert await anyio.to_thread.run_sync(work) == Accepted("blue")
    assert kept.records[0].data != threading.get_ident()


async def test_two_contexts_share_nothing() -> None:
    """DEF-4: what one test keeps is not another's."""
    one, other = context(), context()
    one.progress(1)
    await one.record("a:b")

    assert (other.updates, other.records, other.asked) == ([], [], [])


# ---- through the boundary ------------------------------------------------------------------------


async def test_a_call_passes_the_whole_boundary() -> None:
    """ADM-2: arguments as a model writes them, as values or as text."""
    recorder = MemoryRecorder()

    done = await call(pay, {"amount": 5}, answers=[True], recorder=recorder)
    blank = await call(pay)
    twice = await call(pay, '{"amount": 1, "amount": 2}')

    assert done.text == "paid"
    assert recorder.records[0].data == {"amount": 5}
    assert blank.text == 'Error: invalid arguments: missing required property "amount"'
    assert isinstance(twice, Rejected)
    assert twice.kind == "invalid_json"


async def test_a_question_with_no_answer_left_finds_nobody() -> None:
    """ASK-1: `cancel` says that nobody chose; `decline` is a no."""
    assert (await call(pay, {"amount": 5})).text == "Error: not paid: cancel"
    declined = await call(pay, {"amount": 5}, answers=[Declined("decline")])
    assert declined.text == "Error: not paid: decline"


async def test_an_answer_of_another_type_or_an_asker_that_breaks_reaches_the_tool() -> None:
    """ASK-1: content is checked; what the asker raises is raised there."""
    wrong = await call(pay, {"amount": 5}, answers=["yes"])
    broken = await call(pay, {"amount": 5}, answers=[OSError("gone")])

    assert isinstance(wrong, Unknown)
    assert isinstance(wrong.error, InvalidValue)
    assert isinstance(broken, Unknown)
    assert isinstance(broken.error, OSError)


async def test_a_guard_that_asks_is_answered_and_the_call_goes_on() -> None:
    """AUT-4, AUT-7: the approval is by "test", for that guard; then the tool asks its own."""
    policy = Decisions(Ask("May it pay?"))
    answers = Answers(True, Accepted(content=True), "never asked for")

    done = await call(Guard(pay, policy), {"amount": 5}, answers=answers, caller="ann")

    assert done.text == "paid"
    assert [asked.message for asked in answers.asked] == ["May it pay?", "Pay 5?"]
    assert answers.left == ["never asked for"]
    first, second = policy.seen
    assert first.approval is None
    assert second.approval is not None
    assert (second.approval.by, second.approval.answer) == ("test", True)
    assert first.caller == "ann"


async def test_every_guard_takes_an_answer_of_its_own() -> None:
    """AUT-5, AUT-7: outermost first; each approval stays for the later legs."""
    inner, outer = Decisions(Ask("inner?")), Decisions(Ask("outer?"))
    answers = Answers(True, True, True)

    done = await call(Guard(Guard(pay, inner), outer), {"amount": 5}, answers=answers)

    assert done.text == "paid"
    assert [asked.message for asked in answers.asked] == ["outer?", "inner?", "Pay 5?"]


async def test_a_guard_that_nobody_answers_leaves_the_call_suspended() -> None:
    """AUT-7: with no answer left, or one that declines; a no is a denial."""
    guarded = Guard(pay, Decisions(Ask("May it?")))

    for answers in ((), (Declined(),)):
        left = await call(guarded, {"amount": 5}, answers=answers)
        assert isinstance(left, Suspended)
        assert left.request.message == "May it?"
    refused = await call(guarded, {"amount": 5}, answers=[False])
    assert isinstance(refused, Rejected)
    assert refused.kind == "unauthorized"


async def test_an_answer_that_a_guard_did_not_ask_for_is_the_tests_mistake() -> None:
    """AUT-7: it is told at once, and not to the model."""
    with pytest.raises(InvalidValue, match="the answer is not what was asked for"):
        await call(Guard(pay, Decisions(Ask("May it?"))), {"amount": 5}, answers=["yes"])


async def test_a_text_is_one_answer() -> None:
    """ASK-1: and not as many as it has characters."""

    @tool
    async def name(context: Context) -> str:
        said = await context.ask("Who?", str)
        return said.content if isinstance(said, Accepted) else "nobody"

    assert (await call(name, answers="ann")).text == "ann"


@tool
async def transfer(amount: int) -> str | InputRequest:
    """Move an amount, if a person says so and says why."""
    return allowed.ask(f"Move {amount}?", amount)


@transfer.step
async def allowed(state: int, answer: bool, context: Context) -> str | InputRequest:
    """Ask for a reason."""
    KEYS.append(context.idempotency_key)
    return explained.ask("Why?", state) if answer else "kept"


@transfer.step
async def explained(state: int, answer: str, context: Context) -> str:
    """Move it."""
    KEYS.append(context.idempotency_key)
    return f"{state} moved for {answer}, leg {context.leg}"


KEYS: list[str] = []


async def test_what_a_tool_asks_is_answered_leg_by_leg() -> None:
    """SUS-2, DUR-3: guards and tool take the answers in turn, under one idempotency key."""
    KEYS.clear()
    policy = Decisions(Ask("May it?"))
    answers = Answers(True, True, "rent", "never asked for")
    done = await call(Guard(transfer, policy), {"amount": 5}, answers=answers)

    assert done.text == "5 moved for rent, leg 4"
    assert [asked.message for asked in answers.asked] == ["May it?", "Move 5?", "Why?"]
    assert answers.left == ["never asked for"]
    assert len(KEYS) == 2
    assert len(set(KEYS)) == 1
    assert len(policy.seen) == 4
    assert (await call(transfer, {"amount": 5}, answers=[False])).text == "kept"


async def test_a_tool_that_nobody_answers_stays_suspended() -> None:
    """SUS-1: with no answer left, or one that declines; the question is the one that is open."""
    for answers, message in (((), "Move 5?"), ((True,), "Why?"), ((Declined(),), "Move 5?")):
        left = await call(transfer, {"amount": 5}, answers=answers)
        assert isinstance(left, Suspended)
        assert left.request.message == message


async def test_an_answer_that_a_tool_did_not_ask_for_is_the_tests_mistake() -> None:
    """SUS-3: it is told at once, and the tool does not run."""
    with pytest.raises(InvalidValue, match="the answer is not what was asked for"):
        await call(transfer, {"amount": 5}, answers=["yes"])


async def test_a_tool_that_asks_and_cannot_go_on_is_found_out() -> None:
    """SUS-2: a question of which nothing can come, when it is answered."""

    @tool
    async def wait() -> InputRequest:
        return InputRequest("How many?", schema={"type": "integer"})

    left = await call(wait, answers=[3])

    assert isinstance(left, Rejected)
    assert left.kind == "unavailable"


async def test_what_a_harness_gives_is_given() -> None:
    """FN-5: and a tool that wants what is not there cannot be called."""

    @tool
    async def whose(tenant: Annotated[str, Inject("tenant")]) -> str:
        return tenant

    assert (await call(whose, inject={"tenant": "acme"})).text == "acme"
    with pytest.raises(InvalidTool, match="takes `tenant` from the registry"):
        await call(whose)


async def test_each_leg_of_a_call_has_the_same_key_and_the_tool_stays_open() -> None:
    """DUR-3, CLO-1: one logical call; closing is for who owns the tool."""
    keys: list[str] = []
    closed: list[bool] = []

    @tool(close=lambda: closed.append(True))
    async def keyed(context: Context) -> str:
        keys.append(context.idempotency_key)
        return f"leg {context.leg}"

    def policy(authorization: object) -> Ask:
        return Ask("May it?")

    assert (await call(Guard(keyed, policy), answers=[True])).text == "leg 2"
    assert (await call(keyed)).text == "leg 1"
    assert keys[0] != keys[1]
    assert closed == []


# ---- decisions -----------------------------------------------------------------------------------


async def test_decisions_come_in_order_and_the_last_one_stands() -> None:
    """AUT-1: an authorizer for tests, which keeps what it was shown."""
    policy = Decisions(True, Deny("enough"))

    @tool
    async def touch(path: str) -> str:
        return path

    guarded = Guard(touch, policy)
    outcomes = [await call(guarded, {"path": name}) for name in "abc"]

    assert isinstance(outcomes[0], Completed)
    assert [outcome.text for outcome in outcomes[1:]] == ["Error: enough"] * 2
    assert [seen.arguments["path"] for seen in policy.seen] == ["a", "b", "c"]


async def test_an_exception_among_the_decisions_is_a_policy_that_breaks() -> None:
    """AUT-2: the tool does not run."""
    outcome = await call(Guard(pay, Decisions(OSError("no policy here"))), {"amount": 1})

    assert isinstance(outcome, Rejected)
    assert outcome.kind == "unavailable"


async def test_no_decision_is_refused() -> None:
    """STYLE 24: the sentence says what to write."""
    with pytest.raises(FerruleError, match=r"as in Decisions\(Allow\(\)\)"):
        Decisions()


async def test_a_failure_comes_as_it_is() -> None:
    """FAIL-1: the outcome has it."""

    @tool
    async def fail() -> None:
        raise Failure("no")

    outcome = await call(fail)

    assert isinstance(outcome, Failed)
    assert str(outcome.failure) == "no"
