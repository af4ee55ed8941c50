"""
Questions of durable calls, in any home: approvals, suspension, and who may answer how.

What a question is as a value is in tests/test_suspension.py; here calls wait in a home and go on
from it, in this process or in another.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC

import anyio
import pytest

from ferrule import (
    Accepted,
    Allow,
    Ask,
    Authorization,
    Completed,
    Context,
    Continuation,
    Decision,
    Definition,
    Deny,
    Executor,
    Failed,
    InputRequest,
    Question,
    RawJSON,
    RawTool,
    Registry,
    Rejected,
    Suspended,
    Tool,
    Unknown,
    tool,
)
from ferrule._requests import Asked
from ferrule.errors import AnswerConflict, AnswerRefused, WaitClosed
from ferrule.ports import DurableBatch, Inbox, Runtime, Wait
from homes import (
    Doors,
    Home,
    SqliteHome,
    ask,
    at_rest,
    call,
    only_wait,
    seen,
    settled,
    soon,
    steps_of,
)
from support import raw

pytestmark = pytest.mark.anyio


@dataclass
class Draft:
    """What is to be paid."""

    order: str
    cents: int


def payments(log: list[str]) -> Tool:
    """Return a tool that asks before it pays, and again if the first answer was a no."""

    @tool
    async def pay(order: str, cents: int, context: Context) -> InputRequest:
        log.append(f"begin {order} leg {context.leg}")
        return approved.ask(f"Pay {cents} for {order}?", Draft(order, cents))

    @pay.step
    async def approved(state: Draft, answer: bool, context: Context) -> str | InputRequest:
        log.append(f"{answer} {state.order} leg {context.leg}")
        if not answer:
            return corrected.ask(f"What then, for {state.order}?", state)
        return f"paid {state.cents} for {state.order}"

    @pay.step
    async def corrected(state: Draft, answer: int) -> InputRequest:
        log.append(f"{answer} {state.order}")
        return approved.ask(f"Pay {answer} for {state.order}?", Draft(state.order, answer))

    return pay


class Policy:
    """Answers from a list, then as at last; keeps what it was shown."""

    def __init__(self, *answers: Decision) -> None:
        self._answers = list(answers)
        self.seen: list[Authorization] = []

    def __call__(self, asked: Authorization) -> Decision:
        """Answer."""
        self.seen.append(asked)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def guard(self, tools: list[Tool]) -> Registry:
        """Return the tools, guarded by it."""
        return Registry(tools).guarded(self)


def told(log: list[str], name: str = "pay") -> Tool:
    """Return a tool that notes each run."""

    async def function(arguments: dict[str, object], context: Context) -> object:
        log.append(f"{context.call_id} leg {context.leg}")
        return f"ran {arguments.get('n', '')}".strip()

    return raw(name, function)


async def answered(inbox: Inbox, content: object, *, by: str = "ann") -> Wait:
    """Answer the one question that waits; return it."""
    wait = await only_wait(inbox)
    await inbox.answer(wait.id, content, by=by)
    return wait


async def elsewhere(home: Home, tools: Callable[[], list[Tool] | Registry]) -> list[str]:
    """Have another process take over what is open; return how its calls ended."""
    async with home.runtime(tools()) as runtime:
        return [
            outcome.text for batch in await runtime.recover() for outcome in await settled(batch)
        ]


# ---- approvals ---------------------------------------------------------------------------------


async def test_an_approved_call_runs_once_and_the_approval_says_who_gave_it(home: Home) -> None:
    """AUT-4, AUT-7: the policy runs again on the next leg and sees it; the tool starts anew."""
    log: list[str] = []
    policy = Policy(ask("Pay?"))
    async with home.runtime(policy.guard([told(log)])) as runtime:
        batch = await runtime.submit([call("pay", "c1")], batch_id="t1")
        (outcome,) = await at_rest(batch)
        assert isinstance(outcome, Suspended)
        assert log == []
        wait = await answered(runtime.inbox, True, by="ann@example.org")
        (outcome,) = await settled(batch)

    assert outcome.text == "ran"
    assert log == ["c1 leg 2"]
    assert wait.message == "Pay?"
    assert wait.asked_by.startswith("0:")
    first, second = policy.seen
    assert first.approval is None
    assert second.approval is not None
    assert (second.approval.by, second.approval.answer) == ("ann@example.org", True)
    assert second.approval.digest == first.digest
    assert await steps_of(home.inbox(), "t1/c1") == [
        *("propose", "admit", "ask", "approve", "allow", "dispatch", "complete"),
    ]


async def test_a_declined_call_is_rejected_and_never_runs(home: Home) -> None:
    """AUT-2, FAIL-6: a no is a no."""
    log: list[str] = []
    async with home.runtime(Policy(ask("Pay?")).guard([told(log)])) as runtime:
        batch = await runtime.submit([call("pay", "c1")], batch_id="t1")
        await at_rest(batch)
        await answered(runtime.inbox, False)
        (outcome,) = await settled(batch)

    assert isinstance(outcome, Rejected)
    assert outcome.kind == "unauthorized"
    assert log == []


async def test_one_gated_call_never_holds_back_its_siblings(home: Home) -> None:
    """AUT-6, SUS-4: also where they work on the same state, and it came first."""

    async def gated(_: dict[str, object], __: Context) -> object:
        return "paid"

    tools = Registry([raw("pay", gated, uses="repo"), raw("go", lambda _, __: "went", uses="repo")])
    guarded = tools.guarded(lambda asked: ask("?") if asked.definition.name == "pay" else True)
    async with home.runtime(guarded) as runtime:
        batch = await runtime.submit(
            [call("go", "c1"), call("pay", "c2"), call("go", "c3")], batch_id="t1"
        )
        before = await at_rest(batch)
        assert [outcome.text for outcome in before] == ["went", "", "went"]
        await answered(runtime.inbox, True)
        after = await settled(batch)

    assert [outcome.text for outcome in after] == ["went", "paid", "went"]


async def test_a_call_that_is_approved_before_its_turn_has_its_turn(home: Home) -> None:
    """EXE-3, AUT-6: it asked while others worked, and runs where the model put it."""
    doors = Doors()

    async def work(arguments: dict[str, object], _: Context) -> object:
        return await doors.pass_through(str(arguments["at"]))

    tools = Registry([raw("work", work, uses="repo")]).guarded(
        lambda asked: ask("?") if asked.arguments["at"] == "d2" else True
    )
    async with home.runtime(tools) as runtime:
        batch = await runtime.submit(
            [call("work", f"c{n}", at=f"d{n}") for n in (1, 2, 3)], batch_id="t1"
        )
        await seen(batch, "ask", "t1/c2")
        await doors.until("d1")
        await answered(runtime.inbox, True)
        await seen(batch, "wait", "t1/c2")
        await seen(batch, "wait", "t1/c3")
        doors.open("d1", "d2", "d3")
        await settled(batch)
    assert doors.begun == ["d1", "d2", "d3"]
    assert doors.most == 1


async def test_a_slow_policy_holds_no_slot(home: Home) -> None:
    """AUT-6: permission comes before dispatch, beside whatever runs."""
    doors = Doors()

    async def policy(asked: Authorization) -> bool:
        if asked.definition.name == "pay":
            await doors.pass_through("policy")
        return True

    log: list[str] = []
    tools = Registry([told(log), told(log, "go")]).guarded(policy)
    async with home.runtime(tools) as runtime:
        batch = await runtime.submit([call("pay", "c1"), call("go", "c2")], batch_id="t1")
        await doors.until("policy")
        await seen(batch, "complete", "t1/c2")
        assert (await home.call("t1/c1")).state == "admitted"
        doors.open("policy")
        await settled(batch)
    assert log == ["c2 leg 1", "c1 leg 1"]


async def test_each_guard_that_asks_has_an_approval_of_its_own(home: Home) -> None:
    """AUT-5, AUT-7: outermost first; what answers one goes to no other, and all are kept."""
    log: list[str] = []
    inner, outer = Policy(ask("Really?")), Policy(ask("Pay?"))
    tools = inner.guard([told(log)]).guarded(outer)
    async with home.runtime(tools) as runtime:
        batch = await runtime.submit([call("pay", "c1")], batch_id="t1")
        await at_rest(batch)
        first = await answered(runtime.inbox, True, by="ann")
        await at_rest(batch)
        assert log == []
        second = await answered(runtime.inbox, True, by="bob")
        (outcome,) = await settled(batch)

    assert outcome.text == "ran"
    assert (first.message, second.message) == ("Pay?", "Really?")
    assert first.asked_by != second.asked_by
    assert [one.approval.by for one in outer.seen if one.approval] == ["ann", "ann"]
    assert [one.approval.by for one in inner.seen if one.approval] == ["bob"]
    assert log == ["c1 leg 3"]


async def test_another_question_is_asked_even_after_an_approval(home: Home) -> None:
    """AUT-7: the policy runs again on each leg; the approval answers only what was asked."""
    log: list[str] = []
    policy = Policy(ask("Pay 10?"), ask("Pay 20?"))
    async with home.runtime(policy.guard([told(log)])) as runtime:
        batch = await runtime.submit([call("pay", "c1")], batch_id="t1")
        await at_rest(batch)
        first = await answered(runtime.inbox, True)
        await at_rest(batch)
        assert log == []
        second = await answered(runtime.inbox, True)
        await settled(batch)

    assert (first.message, second.message) == ("Pay 10?", "Pay 20?")
    assert first.id != second.id
    assert log == ["c1 leg 3"]


async def test_a_policy_may_say_no_in_spite_of_an_approval(home: Home) -> None:
    """AUT-7: an approval is a fact that it sees, and no key."""
    log: list[str] = []
    policy = Policy(ask("Pay?"), Deny("the account was closed"))
    async with home.runtime(policy.guard([told(log)])) as runtime:
        batch = await runtime.submit([call("pay", "c1")], batch_id="t1")
        await at_rest(batch)
        await answered(runtime.inbox, True)
        (outcome,) = await settled(batch)

    assert isinstance(outcome, Rejected)
    assert "the account was closed" in outcome.text
    assert log == []


async def test_a_policy_that_breaks_after_the_approval_lets_nothing_run(home: Home) -> None:
    """AUT-2, FAIL-6: the tool did not run, and the reason is not the model's to read."""
    log: list[str] = []

    def policy(asked: Authorization) -> Decision:
        if asked.approval is None:
            return ask("Pay?")
        raise RuntimeError("secret")

    async with home.runtime(Registry([told(log)]).guarded(policy)) as runtime:
        batch = await runtime.submit([call("pay", "c1")], batch_id="t1")
        await at_rest(batch)
        await answered(runtime.inbox, True)
        (outcome,) = await settled(batch)

    assert isinstance(outcome, Rejected)
    assert outcome.kind == "unavailable"
    assert "secret" not in outcome.text
    assert log == []


async def test_a_policy_asks_for_more_than_a_yes(home: Home) -> None:
    """AUT-1, SUS-3: the answer is of the type that was asked for, and the policy judges it."""
    log: list[str] = []

    def policy(asked: Authorization) -> Decision:
        if asked.approval is None:
            return Ask("How much, at most?", answer=int)
        return Allow() if asked.approval.answer == 100 else Deny("too much")

    async with home.runtime(Registry([told(log)]).guarded(policy)) as runtime:
        batch = await runtime.submit([call("pay", "c1")], batch_id="t1")
        await at_rest(batch)
        wait = await only_wait(runtime.inbox)
        assert wait.schema == {"type": "integer"}
        with pytest.raises(AnswerRefused, match="still waits"):
            await runtime.inbox.answer(wait.id, True, by="ann")
        await answered(runtime.inbox, 100)
        (outcome,) = await settled(batch)
    assert outcome.text == "ran"


async def test_an_approval_serves_one_call_and_the_same_arguments_are_asked_about_again(
    home: Home,
) -> None:
    """AUT-7: standing grants are the host's policy, never ours."""
    log: list[str] = []
    async with home.runtime(Policy(ask("Pay?")).guard([told(log)])) as runtime:
        batch = await runtime.submit([call("pay", "c1"), call("pay", "c2")], batch_id="t1")
        await at_rest(batch)
        first, second = await runtime.inbox.waits()
        assert {first.call.id, second.call.id} == {"c1", "c2"}
        await runtime.inbox.answer(first.id, True, by="ann")
        await at_rest(batch)
        assert [wait.id for wait in await runtime.inbox.waits()] == [second.id]
        later = await runtime.submit([call("pay", first.call.id)], batch_id="t2")
        await at_rest(later)
        assert len(await runtime.inbox.waits()) == 2
    assert log == [f"{first.call.id} leg 2"]


async def test_a_replay_asks_nobody_again(home: Home) -> None:
    """AUT-7: an approval holds for every later leg and replay of its call."""
    doors = Doors()
    policy = Policy(ask("Pay?"))

    async def function(_: dict[str, object], context: Context) -> object:
        return await doors.pass_through(f"{context.leg} {len(doors.begun)}")

    tools = policy.guard([raw("pay", function, replay="safe")])
    async with home.runtime(tools) as runtime:
        batch = await runtime.submit([call("pay", "c1")], batch_id="t1")
        await at_rest(batch)
        await answered(runtime.inbox, True)
        await doors.until("2 0")
        await home.crash(runtime)
    doors.open("2 1")
    assert await elsewhere(home, lambda: tools) == ["2 1 done"]
    assert [one.approval is None for one in policy.seen] == [True, False, False]
    assert await home.inbox().waits() == []


async def test_an_approval_is_still_there_when_the_tool_asks_later(home: Home) -> None:
    """AUT-7, SUS-2: the guard sees it on the leg that a tool's own answer begins."""
    log: list[str] = []
    policy = Policy(ask("May it?"))
    async with home.runtime(policy.guard([payments(log)])) as runtime:
        batch = await runtime.submit([call("pay", "c1", order="o1", cents=5)], batch_id="t1")
        await at_rest(batch)
        await answered(runtime.inbox, True, by="ann")
        await at_rest(batch)
        wait = await answered(runtime.inbox, True, by="bob")
        (outcome,) = await settled(batch)

    assert outcome.text == "paid 5 for o1"
    assert wait.asked_by == "tool:pay"
    assert log == ["begin o1 leg 2", "True o1 leg 3"]
    assert [one.approval.by for one in policy.seen if one.approval] == ["ann", "ann"]


async def test_changed_arguments_void_an_approval(home: SqliteHome) -> None:
    """AUT-4: whoever changes what is kept has it asked about again, and nothing runs meanwhile."""
    log: list[str] = []
    policy = Policy(ask("Pay?"))
    tools = policy.guard([told(log)])
    async with home.runtime(tools) as runtime:
        await at_rest(await runtime.submit([call("pay", "c1", n=5)], batch_id="t1"))
    await answered(home.inbox(), True)
    home.run("UPDATE calls SET arguments = ?", '{"n":5000}')
    async with home.runtime(tools) as later:
        (batch,) = await later.recover()
        (outcome,) = await at_rest(batch)
        assert isinstance(outcome, Suspended)
        assert policy.seen[-1].approval is None
        assert log == []
        await answered(later.inbox, True)
        assert [one.text for one in await settled(batch)] == ["ran 5000"]


async def test_a_changed_tool_voids_an_approval(home: Home) -> None:
    """AUT-4: another default is another tool, and is asked about again."""
    policy = Policy(ask("Pay?"))
    ran: list[str] = []

    def made(currency: str) -> Registry:
        @tool
        async def pay(n: int, currency: str = currency) -> str:
            ran.append(f"{n} {currency}")
            return f"paid {n} {currency}"

        return policy.guard([pay])

    async with home.runtime(made("USD")) as runtime:
        await at_rest(await runtime.submit([call("pay", "c1", n=5)], batch_id="t1"))
    await answered(home.inbox(), True)
    async with home.runtime(made("BTC")) as later:
        (batch,) = await later.recover()
        (outcome,) = await at_rest(batch)
        assert isinstance(outcome, Suspended)
        assert ran == []
        await answered(later.inbox, False)
        (outcome,) = await settled(batch)
    assert isinstance(outcome, Rejected)
    assert ran == []


# ---- suspension --------------------------------------------------------------------------------


async def test_a_tool_asks_several_times_in_one_call(home: Home) -> None:
    """SUS-2, SUS-3, SC-129: each question is a wait of its own, and goes on as its leg."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        batch = await runtime.submit([call("pay", "c1", order="o1", cents=5)], batch_id="t1")
        waits = []
        for content in (False, 7, True):
            await at_rest(batch)
            waits.append(await answered(runtime.inbox, content))
        (outcome,) = await settled(batch)

    assert outcome.text == "paid 7 for o1"
    assert log == ["begin o1 leg 1", "False o1 leg 2", "7 o1", "True o1 leg 4"]
    assert len({wait.id for wait in waits}) == 3
    assert [wait.leg for wait in waits] == [1, 2, 3]
    assert [wait.message for wait in waits] == [
        "Pay 5 for o1?",
        "What then, for o1?",
        "Pay 7 for o1?",
    ]


async def test_a_wait_shows_what_a_person_needs_and_never_the_state(home: Home) -> None:
    """SUS-3, SC-130: call, message, schema, since, who asks; of the tool's state nothing."""
    log: list[str] = []
    made = call("pay", "c1", order="o1", cents=5)
    async with home.runtime([payments(log)]) as runtime:
        await at_rest(await runtime.submit([made], batch_id="t1"))
        wait = await only_wait(home.inbox())

    assert (wait.call, wait.call_id, wait.leg) == (made, "t1/c1", 1)
    assert wait.message == "Pay 5 for o1?"
    assert wait.schema == {"type": "boolean"}
    assert wait.since.tzinfo is UTC
    assert wait.expires is None
    assert wait.asked_by == "tool:pay"
    assert not any("state" in name for name in wait.__struct_fields__)
    assert "step" not in repr(wait)


STATE = '{ "n": 9007199254740993, "x": 1.50, "t": "é\\u0000" }'


def exact(heard: list[tuple[object, object]]) -> list[Tool]:
    """Return a raw tool that asks with a state of exact bytes, and keeps what comes back."""

    async def first(_: dict[str, object], __: Context) -> object:
        return InputRequest("Which?", schema={"type": "integer"}, state=RawJSON(STATE))

    async def resume(_: dict[str, object], __: Context, answered: Continuation) -> object:
        state = answered.state
        heard.append((state.text if isinstance(state, RawJSON) else state, answered.answer))
        return "done"

    return [RawTool(Definition("exact"), first, resume=resume)]


async def test_state_and_answer_come_back_exactly_in_another_process(home: Home) -> None:
    """SUS-1, SC-133: the file is closed and opened again between; bytes and digits are the same."""
    heard: list[tuple[object, object]] = []
    async with home.runtime(exact(heard)) as runtime:
        await at_rest(await runtime.submit([call("exact", "c1")], batch_id="t1"))
    await answered(home.inbox(), 9007199254740993)

    assert await elsewhere(home, lambda: exact(heard)) == ["done"]
    assert heard == [(STATE, 9007199254740993)]


async def test_a_raw_answer_is_kept_byte_for_byte(home: Home) -> None:
    """SUS-1: whoever hands over text has the tool get that text."""
    heard: list[tuple[object, object]] = []
    async with home.runtime(exact(heard)) as runtime:
        batch = await runtime.submit([call("exact", "c1")], batch_id="t1")
        await at_rest(batch)
        await answered(runtime.inbox, RawJSON(" 12 "))
        await settled(batch)
    assert heard == [(STATE, RawJSON(" 12 "))]


async def test_a_waiting_call_waits_on_after_a_crash(home: Home) -> None:
    """DUR-2: with the same question under the same id; its code is not run again."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        batch = await runtime.submit([call("pay", "c1", order="o1", cents=5)], batch_id="t1")
        await at_rest(batch)
        before = await only_wait(runtime.inbox)
        await home.crash(runtime)
    async with home.runtime([payments(log)]) as later:
        (batch,) = await later.recover()
        await at_rest(batch)
        assert await only_wait(later.inbox) == before
        await answered(later.inbox, True)
        assert [one.text for one in await settled(batch)] == ["paid 5 for o1"]
    assert log == ["begin o1 leg 1", "True o1 leg 2"]


async def test_an_answer_given_while_nobody_runs_the_call_resumes_it_once(home: Home) -> None:
    """DUR-2: answered, then recovered, then recovered again."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        batch = await runtime.submit([call("pay", "c1", order="o1", cents=5)], batch_id="t1")
        await at_rest(batch)
        await home.crash(runtime)
    await answered(home.inbox(), True)

    assert await elsewhere(home, lambda: [payments(log)]) == ["paid 5 for o1"]
    assert await elsewhere(home, lambda: [payments(log)]) == []
    assert log == ["begin o1 leg 1", "True o1 leg 2"]


async def test_answering_one_of_several_waits_runs_that_call_alone(home: Home) -> None:
    """SUS-4: siblings that ended are never run again, and those that wait go on waiting."""
    log: list[str] = []
    async with home.runtime([payments(log), told(log, "go")]) as runtime:
        batch = await runtime.submit(
            [
                call("pay", "c1", order="o1", cents=1),
                call("go", "c2"),
                call("pay", "c3", order="o3", cents=3),
            ],
            batch_id="t1",
        )
        await at_rest(batch)
        by_call = {wait.call.id: wait for wait in await runtime.inbox.waits()}
        del log[:]
        await runtime.inbox.answer(by_call["c3"].id, True, by="ann")
        first, second, third = await at_rest(batch)

    assert log == ["True o3 leg 2"]
    assert isinstance(first, Suspended)
    assert (second.text, third.text) == ("ran", "paid 3 for o3")


async def test_a_changed_tool_does_not_go_on_with_an_answer(home: Home) -> None:
    """AUT-4, SUS-2, FAIL-6: what was asked by one tool is not answered to another."""
    ran: list[str] = []

    def made(currency: str) -> list[Tool]:
        @tool
        async def pay(n: int, currency: str = currency) -> InputRequest:
            return approved.ask(f"Pay {n} {currency}?", n)

        @pay.step
        async def approved(state: int, answer: bool) -> str:
            ran.append(f"{state} {currency}")
            return "paid"

        return [pay]

    async with home.runtime(made("USD")) as runtime:
        await at_rest(await runtime.submit([call("pay", "c1", n=5)], batch_id="t1"))
    await answered(home.inbox(), True)
    async with home.runtime(made("BTC")) as later:
        (batch,) = await later.recover()
        (outcome,) = await settled(batch)
    assert isinstance(outcome, Rejected)
    assert outcome.kind == "unavailable"
    assert ran == []


async def test_the_idempotency_key_is_the_same_on_every_leg(home: Home) -> None:
    """DUR-3: minted once for a logical call; another call has another."""
    keys: list[str] = []

    async def first(_: dict[str, object], context: Context) -> object:
        keys.append(context.idempotency_key)
        return InputRequest("?", schema=True, state=None)

    async def resume(_: dict[str, object], context: Context, __: Continuation) -> object:
        keys.append(context.idempotency_key)
        return "done"

    tools = [RawTool(Definition("pay"), first, resume=resume)]
    async with home.runtime(tools) as runtime:
        batch = await runtime.submit([call("pay", "c1")], batch_id="t1")
        await at_rest(batch)
        await answered(runtime.inbox, "whatever")
        await settled(batch)
        await at_rest(await runtime.submit([call("pay", "c1")], batch_id="t2"))

    assert keys[0] == keys[1] == (await home.call("t1/c1")).idempotency_key
    assert keys[2] != keys[0]


async def test_a_withdrawn_question_fails_its_call_alone(home: Home) -> None:
    """SUS-4: the model reads why; siblings keep their outcomes."""
    log: list[str] = []
    async with home.runtime([payments(log), told(log, "go")]) as runtime:
        batch = await runtime.submit(
            [call("pay", "c1", order="o1", cents=1), call("go", "c2")], batch_id="t1"
        )
        await at_rest(batch)
        wait = await only_wait(home.inbox())
        await home.inbox().withdraw(wait.id, by="ann")
        first, second = await settled(batch)
        lines = await home.inbox().history("t1/c1")

    assert isinstance(first, Failed)
    assert "withdrawn" in first.text
    assert "Pay 1 for o1?" in first.text
    assert second.text == "ran"
    assert (lines[-1].step, lines[-1].by) == ("withdraw", "ann")


async def test_a_guards_question_that_is_withdrawn_fails_the_call(home: Home) -> None:
    """SUS-4: the tool never ran, and nobody can answer any more."""
    log: list[str] = []
    async with home.runtime(Policy(ask("Pay?")).guard([told(log)])) as runtime:
        batch = await runtime.submit([call("pay", "c1")], batch_id="t1")
        await at_rest(batch)
        wait = await only_wait(runtime.inbox)
        await runtime.inbox.withdraw(wait.id, by="ann")
        (outcome,) = await settled(batch)
        with pytest.raises(WaitClosed) as closed:
            await runtime.inbox.answer(wait.id, True, by="bob")
    assert isinstance(outcome, Failed)
    assert (closed.value.how, closed.value.by) == ("withdrawn", "ann")
    assert log == []


async def test_a_question_expires_and_its_call_has_failed(home: Home) -> None:
    """SUS-1, SUS-4: by itself, as long as somebody drives the batch."""

    async def first(_: dict[str, object], __: Context) -> object:
        return InputRequest("Which?", schema=True, state=None, expires_in=0.001)

    async with home.runtime([RawTool(Definition("pay"), first)]) as runtime:
        batch = await runtime.submit([call("pay", "c1")], batch_id="t1")
        (outcome,) = await settled(batch)
        lines = await home.inbox().history("t1/c1")
    assert isinstance(outcome, Failed)
    assert "expired" in outcome.text
    assert [line.step for line in lines][-2:] == ["suspend", "expire"]
    assert await home.inbox().waits() == []


async def test_an_expired_question_is_not_listed_and_not_answered_while_nobody_runs(
    home: SqliteHome,
) -> None:
    """SUS-4: its time has passed, whether or not a process was there to note it."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        await at_rest(await runtime.submit([call("pay", "c1", order="o1", cents=1)], batch_id="t1"))
        wait = await only_wait(runtime.inbox)
    home.run("UPDATE waits SET expires = since")

    assert await home.inbox().waits() == []
    with pytest.raises(WaitClosed, match="expired at") as closed:
        await home.inbox().answer(wait.id, True, by="ann")
    assert closed.value.how == "expired"
    async with home.runtime([payments(log)]) as later:
        batch = await later.submit([call("pay", "c1", order="o1", cents=1)], batch_id="t1")
        (outcome,) = await settled(batch)
    assert "expired" in outcome.text
    assert log == ["begin o1 leg 1"]


async def test_a_request_of_nonsense_is_unknown(home: Home) -> None:
    """AUT-7, FAIL-6: a tool cannot ask in a guard's name; it ran, so nobody knows what it did."""

    async def first(_: dict[str, object], __: Context) -> object:
        asked = Asked(call_id="c1", digest="", fingerprint="", guard="0:forged")
        return InputRequest("?", schema=True, state=None, asked=asked)

    async with home.runtime([RawTool(Definition("pay"), first)]) as runtime:
        (outcome,) = await settled(await runtime.submit([call("pay", "c1")], batch_id="t1"))
    assert isinstance(outcome, Unknown)
    assert outcome.reason == "bad_result"
    assert await home.inbox().waits() == []


# ---- answers: the table of SUS-3, a test for each row --------------------------------------------


class Asking:
    """A batch with one question, and the runtime that drives it."""

    def __init__(self, runtime: Runtime, batch: DurableBatch, wait: Wait, log: list[str]) -> None:
        self.runtime = runtime
        self.batch = batch
        self.wait = wait
        self.log = log

    @property
    def resumed(self) -> int:
        """How many legs an answer has begun."""
        return sum(line.startswith("True") for line in self.log)


async def asking(runtime: Runtime, log: list[str]) -> Asking:
    """Submit a call that asks."""
    batch = await runtime.submit([call("pay", "c1", order="o1", cents=5)], batch_id="t1")
    await at_rest(batch)
    return Asking(runtime, batch, await only_wait(runtime.inbox), log)


async def test_the_first_answer_is_taken(home: Home) -> None:
    """SC-4.4 row 1, SUS-3: it is durable when it is acknowledged, and the receipt says so."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        here = await asking(runtime, log)
        receipt = await home.inbox().answer(here.wait.id, True, by="ann", answer_id="a-1")
        lines = await home.inbox().history("t1/c1")
        await settled(here.batch)

    assert receipt.first
    assert (receipt.wait_id, receipt.answer_id, receipt.by) == (here.wait.id, "a-1", "ann")
    answer = next(line for line in lines if line.step == "answer")
    assert (answer.by, answer.at) == ("ann", receipt.at)
    assert answer.data == {"wait": here.wait.id, "answer": True}
    assert here.resumed == 1


async def test_the_same_answer_again_has_no_effect_at_any_time(home: Home) -> None:
    """SC-4.4 row 2, SC-136, SUS-3: also after the call has ended, and in another process."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        here = await asking(runtime, log)
        inbox = runtime.inbox
        first = await inbox.answer(here.wait.id, True, by="ann", answer_id="a-1")
        again = await inbox.answer(here.wait.id, True, by="ann", answer_id="a-1")
        await settled(here.batch)
        later = await home.inbox().answer(here.wait.id, True, by="ann", answer_id="a-1")
    lines = await home.inbox().history("t1/c1")

    assert (first.first, again.first, later.first) == (True, False, False)
    assert first.at == again.at == later.at
    assert sum(line.step == "answer" for line in lines) == 1
    assert here.resumed == 1


@pytest.mark.parametrize("other", [False, "yes", 1], ids=["no", "text", "number"])
async def test_the_same_id_with_another_content_is_a_conflict(home: Home, other: object) -> None:
    """SC-4.4 row 3, SUS-3: the first stands; 1 is not true."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        here = await asking(runtime, log)
        await runtime.inbox.answer(here.wait.id, True, by="ann", answer_id="a-1")
        with pytest.raises(AnswerConflict, match="a-1"):
            await runtime.inbox.answer(here.wait.id, other, by="ann", answer_id="a-1")
        (outcome,) = await settled(here.batch)
    assert outcome.text == "paid 5 for o1"


async def test_the_same_id_for_another_wait_is_a_conflict(home: Home) -> None:
    """SC-4.4 row 3, SUS-3: one id names one answer to one question; the other still waits."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        here = await asking(runtime, log)
        await runtime.inbox.answer(here.wait.id, False, by="ann", answer_id="a-1")
        await at_rest(here.batch)
        second = await only_wait(runtime.inbox)
        with pytest.raises(AnswerConflict):
            await runtime.inbox.answer(second.id, False, by="ann", answer_id="a-1")
        assert await only_wait(runtime.inbox) == second


@pytest.mark.parametrize("answer_id", [None, "a-2"])
async def test_another_answer_to_an_answered_wait_is_refused(
    home: Home, answer_id: str | None
) -> None:
    """SC-4.4 row 4, SUS-3: whoever comes second is told who answered, and when."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        here = await asking(runtime, log)
        receipt = await runtime.inbox.answer(here.wait.id, True, by="ann", answer_id="a-1")
        with pytest.raises(WaitClosed, match="answered by ann at") as closed:
            await runtime.inbox.answer(here.wait.id, True, by="bob", answer_id=answer_id)
        await settled(here.batch)
    assert (closed.value.how, closed.value.by, closed.value.at) == ("answered", "ann", receipt.at)
    assert here.resumed == 1


@pytest.mark.parametrize("wait_id", ["", "w-1", "t1/c1", "00000000000000000000000000000000"])
async def test_an_unknown_wait_is_refused(home: Home, wait_id: str) -> None:
    """SC-4.4 row 5, SC-135, SUS-3: nothing is written; what waits goes on waiting."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        here = await asking(runtime, log)
        before = await home.inbox().history()
        with pytest.raises(WaitClosed, match="there is no question") as closed:
            await runtime.inbox.answer(wait_id, True, by="ann", answer_id="a-1")
        with pytest.raises(WaitClosed):
            await runtime.inbox.withdraw(wait_id, by="ann")
        assert closed.value.how == "unknown"
        assert await only_wait(runtime.inbox) == here.wait
        assert await home.inbox().history() == before
        receipt = await runtime.inbox.answer(here.wait.id, True, by="ann", answer_id="a-1")
        assert receipt.first


async def test_a_live_question_is_nobodys_to_answer_from_outside(home: Home) -> None:
    """SC-4.4 row 6, ASK-1: what a running call asks opens no wait; only the asker answers it."""
    asked, answer_now = anyio.Event(), anyio.Event()

    async def asker(_: Context, __: Question) -> Accepted[bool]:
        asked.set()
        await answer_now.wait()
        return Accepted(True)

    @tool
    async def pay(context: Context) -> str:
        return str(await context.ask("Pay?", answer=bool))

    async with home.runtime(Executor([pay], asker=asker)) as runtime:
        batch = await runtime.submit([call("pay", "c1")], batch_id="t1")
        await soon(asked.wait())
        assert await runtime.inbox.waits() == []
        answer_now.set()
        await settled(batch)


async def test_an_answer_after_the_batch_has_settled_is_refused(home: Home) -> None:
    """SC-4.4 row 7, SC-137, SUS-3: the wait is closed, and says so."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        here = await asking(runtime, log)
        await runtime.inbox.answer(here.wait.id, True, by="ann")
        await settled(here.batch)
    with pytest.raises(WaitClosed, match="answered by ann"):
        await home.inbox().answer(here.wait.id, True, by="ann", answer_id="new")
    assert here.resumed == 1


async def test_an_answer_before_its_process_has_heard_of_the_question_is_taken(
    home: Home,
) -> None:
    """SC-4.4 row 8, SUS-3: the wait is open as soon as it is kept, whoever drives the call then."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        batch = await runtime.submit([call("pay", "c1", order="o1", cents=5)], batch_id="t1")
        await seen(batch, "suspend", "t1/c1")
        # Nobody has waited until the batch rests.
        await answered(home.inbox(), True)
        (outcome,) = await settled(batch)
    assert outcome.text == "paid 5 for o1"
    assert log == ["begin o1 leg 1", "True o1 leg 2"]


async def test_an_answer_while_no_process_runs_is_taken_and_used_later(home: Home) -> None:
    """SC-4.4 row 9, SUS-3: through an inbox without tools; the question is not listed any more."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        here = await asking(runtime, log)
    receipt = await home.inbox().answer(here.wait.id, True, by="ann")
    assert receipt.first
    assert await home.inbox().waits() == []
    assert here.resumed == 0
    assert (await home.call("t1/c1")).state == "answered"

    assert await elsewhere(home, lambda: [payments(log)]) == ["paid 5 for o1"]
    assert here.resumed == 1


@pytest.mark.parametrize(
    "content",
    ["yes", 1, 0, None, "true", [], {"answer": True}, RawJSON("1"), object()],
    ids=lambda content: str(getattr(content, "text", type(content).__name__)),
)
async def test_an_answer_outside_the_schema_is_refused_and_the_question_still_waits(
    home: Home, content: object
) -> None:
    """SC-4.4 rows 10 and 11, SUS-3: before anything is written; its id is still free."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        here = await asking(runtime, log)
        before = await home.inbox().history()
        for inbox in (runtime.inbox, home.inbox()):
            with pytest.raises(AnswerRefused, match="the question still waits"):
                await inbox.answer(here.wait.id, content, by="ann", answer_id="a-1")
        assert await home.inbox().history() == before
        assert await only_wait(home.inbox()) == here.wait
        receipt = await runtime.inbox.answer(here.wait.id, True, by="ann", answer_id="a-1")
        assert receipt.first
        await settled(here.batch)
    assert here.resumed == 1


async def test_the_answer_is_checked_again_before_the_tool_goes_on(home: SqliteHome) -> None:
    """SC-4.4 row 11, SUS-2: an answer that somebody changed in the file starts nothing."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        await asking(runtime, log)
    await answered(home.inbox(), True)
    home.run("""UPDATE waits SET answer = '{"json":"whatever"}'""")
    async with home.runtime([payments(log)]) as later:
        (batch,) = await later.recover()
        (outcome,) = await settled(batch)
    assert isinstance(outcome, Rejected)
    assert log == ["begin o1 leg 1"]


@pytest.mark.parametrize("by", ["", " ", "\t"])
async def test_an_answer_says_who_gives_it(home: Home, by: str) -> None:
    """SUS-3, AUT-4: so does who withdraws or resolves; without it nothing is done."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        here = await asking(runtime, log)
        with pytest.raises(AnswerRefused, match="by="):
            await runtime.inbox.answer(here.wait.id, True, by=by)
        with pytest.raises(AnswerRefused, match="by="):
            await runtime.inbox.withdraw(here.wait.id, by=by)
        assert await only_wait(runtime.inbox) == here.wait


async def test_of_two_people_who_answer_at_once_one_wins(home: Home) -> None:
    """SUS-3: the other is told who and when; the call goes on once, from what the first said."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        here = await asking(runtime, log)
        won: list[str] = []
        lost: list[WaitClosed] = []

        async def answer(by: str) -> None:
            try:
                await home.inbox().answer(here.wait.id, True, by=by)
            except WaitClosed as closed:
                lost.append(closed)
            else:
                won.append(by)

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(answer, f"person {number}")
        await settled(here.batch)

    assert len(won) == 1
    assert {(closed.how, closed.by) for closed in lost} == {("answered", won[0])}
    assert len(lost) == 7
    assert len({closed.at for closed in lost}) == 1
    assert here.resumed == 1


async def test_the_inbox_lists_the_oldest_first_and_speaks_of_all_batches(home: Home) -> None:
    """ENGINE: what people work through, without the tools."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        for number in range(3):
            made = call("pay", "c1", order=f"o{number}", cents=number)
            await at_rest(await runtime.submit([made], batch_id=f"t{number}"))
    waits = await home.inbox().waits()
    assert [wait.call_id for wait in waits] == ["t0/c1", "t1/c1", "t2/c1"]
    assert waits == sorted(waits, key=lambda wait: wait.since)
    assert json.loads(waits[2].call.arguments) == {"order": "o2", "cents": 2}


async def test_a_definite_outcome_after_an_answer_is_kept(home: Home) -> None:
    """DUR-1: completed, failed or rejected on a later leg as on the first."""
    log: list[str] = []
    async with home.runtime([payments(log)]) as runtime:
        here = await asking(runtime, log)
        await runtime.inbox.answer(here.wait.id, True, by="ann")
        await settled(here.batch)
    kept = await home.call("t1/c1")
    assert isinstance(kept.outcome, Completed)
    assert (kept.state, kept.leg, kept.fence) == ("completed", 2, 2)
