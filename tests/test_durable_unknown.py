"""
What becomes of durable calls that are stopped, lost, late or in doubt, in any home.

A crash here is `home.crash`: nothing more of a runtime is kept, and it counts as lost. Processes
that are really killed are in the crash suite.
"""

import logging
import threading
from collections.abc import Iterable
from typing import Literal, cast

import anyio
import anyio.lowlevel
import pytest

from ferrule import (
    Allow,
    Ask,
    Authorization,
    CallError,
    Cancelled,
    Completed,
    Context,
    Continuation,
    Decision,
    Definition,
    Executor,
    Failed,
    Failure,
    FerruleError,
    InputRequest,
    InvalidValue,
    Leg,
    Outcome,
    RawTool,
    Record,
    Registry,
    Rejected,
    Replay,
    Result,
    Suspended,
    Text,
    Tool,
    ToolCall,
    Traits,
    Unknown,
    tool,
)
from ferrule.errors import AnswerRefused, Fenced, WaitClosed
from ferrule.ports import DurableBatch, DurableCall, Inbox
from ferrule.runtime import Reaper
from ferrule.wire.openresponses import Wire
from homes import (
    PATIENCE,
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
    until_stopped,
)
from support import raw

pytestmark = pytest.mark.anyio


def doors_tool(doors: Doors, *, replay: Replay = "unknown", uses: str | None = None) -> Tool:
    """Return a tool that stands before a door named as its argument."""

    async def function(arguments: dict[str, object], _: Context) -> object:
        return await doors.pass_through(str(arguments["at"]))

    return raw("work", function, replay=replay, uses=uses)


async def one_unknown(inbox: Inbox) -> DurableCall:
    """Return the one call of which nobody knows how it ended."""
    (found,) = await inbox.unknown()
    return found


async def raising(_: dict[str, object], context: Context) -> object:
    """Raise what no tool says it may."""
    await context.record("test:handle", {"pid": 1})
    raise RuntimeError("private")


# ---- cancelling --------------------------------------------------------------------------------


async def test_a_call_that_has_not_begun_never_does(home: Home) -> None:
    """CLO-2, ENGINE: cancelled while it waits for its turn; who comes after it runs."""
    doors = Doors()
    async with home.runtime([doors_tool(doors, uses="repo")]) as runtime:
        batch = await runtime.submit(
            [call("work", f"c{n}", at=f"d{n}") for n in range(3)], batch_id="t1"
        )
        await doors.until("d0")
        await runtime.cancel("t1", "c1", by="ann")
        doors.open("d0", "d1", "d2")
        first, second, third = await settled(batch)
        lines = await home.inbox().history("t1/c1")

    assert (first.text, third.text) == ("d0 done", "d2 done")
    assert isinstance(second, Cancelled)
    assert doors.begun == ["d0", "d2"]
    assert (lines[-1].step, lines[-1].by) == ("cancel", "ann")


async def test_a_running_call_is_told_to_stop(home: Home) -> None:
    """CLO-2, FAIL-6: it may have taken effect, and nothing else is stopped."""
    doors = Doors()
    async with home.runtime([doors_tool(doors)]) as runtime:
        batch = await runtime.submit(
            [call("work", "c0", at="d0"), call("work", "c1", at="d1")], batch_id="t1"
        )
        await doors.until("d0", "d1")
        await runtime.cancel("t1", "c0")
        await seen(batch, "doubt", "t1/c0")
        doors.open("d1")
        stopped, other = await settled(batch)

    assert isinstance(stopped, Unknown)
    assert stopped.reason == "cancelled"
    assert other.text == "d1 done"


async def test_a_running_call_that_ends_in_time_has_its_result(home: Home) -> None:
    """CLO-2: what it returns within grace stands."""
    begun = anyio.Event()
    async with home.runtime([raw("work", until_stopped("cleaned up", begun))]) as runtime:
        batch = await runtime.submit([call("work", "c1")], batch_id="t1")
        await soon(begun.wait())
        await runtime.cancel("t1")
        (outcome,) = await settled(batch)
    assert outcome.text == "cleaned up"


async def test_another_process_cancels_through_what_is_kept(home: Home) -> None:
    """CLO-2, ENGINE: the process that runs the call hears of it."""
    doors = Doors()
    tools = [doors_tool(doors)]
    async with home.runtime(tools) as one, home.runtime(tools) as two:
        batch = await one.submit([call("work", "c1", at="d1")], batch_id="t1")
        await doors.until("d1")
        await two.cancel("t1", by="ann")
        (outcome,) = await settled(batch)
        lines = await home.inbox().history("t1/c1")
    assert isinstance(outcome, Unknown)
    assert outcome.reason == "cancelled"
    assert [(line.step, line.by) for line in lines if line.step == "told"] == [("told", "ann")]


async def test_a_call_that_a_guard_asks_about_is_cancelled(home: Home) -> None:
    """ENGINE, SUS-4: it never ran; its question is closed, and says by whom."""
    tools = Registry([raw("pay", lambda _, __: "paid")]).guarded(lambda _: ask("Pay?"))
    async with home.runtime(tools) as runtime:
        batch = await runtime.submit([call("pay", "c1")], batch_id="t1")
        await at_rest(batch)
        wait = await only_wait(runtime.inbox)
        await runtime.cancel("t1", by="ann")
        (outcome,) = await settled(batch)
        with pytest.raises(WaitClosed) as closed:
            await runtime.inbox.answer(wait.id, True, by="bob")
    assert isinstance(outcome, Cancelled)
    assert (closed.value.how, closed.value.by) == ("cancelled", "ann")


async def test_a_call_whose_tool_asks_has_failed_when_it_is_cancelled(home: Home) -> None:
    """ENGINE, SUS-4: its code has run, so it is not said that it did not."""

    async def function(_: dict[str, object], __: Context) -> object:
        return InputRequest("Which?", schema=True, state=None)

    async with home.runtime([raw("pay", function)]) as runtime:
        batch = await runtime.submit([call("pay", "c1")], batch_id="t1")
        await at_rest(batch)
        await runtime.cancel("t1", "c1", by="ann")
        (outcome,) = await settled(batch)
        assert await runtime.inbox.waits() == []
    assert isinstance(outcome, Failed)
    assert "cancelled" in outcome.text


async def test_cancelling_a_batch_stops_all_that_is_not_settled(home: Home) -> None:
    """CLO-2: what has ended stays as it ended."""
    doors = Doors()
    doors.open("d0")
    async with home.runtime([doors_tool(doors, uses="repo")]) as runtime:
        batch = await runtime.submit(
            [call("work", f"c{n}", at=f"d{n}") for n in range(4)], batch_id="t1"
        )
        await doors.until("d1")
        await runtime.cancel("t1")
        await runtime.cancel("t1")
        outcomes = await settled(batch)
        await runtime.cancel("t1")
        again = await settled(batch)
    assert [outcome.text for outcome in again] == [outcome.text for outcome in outcomes]
    assert [type(outcome) for outcome in outcomes] == [Completed, Unknown, Cancelled, Cancelled]
    assert doors.begun == ["d0", "d1"]


@pytest.mark.parametrize(("batch_id", "call_id"), [("t2", None), ("t1", "c9"), ("t2", "c1")])
async def test_what_is_not_there_cannot_be_cancelled(
    home: Home, batch_id: str, call_id: str | None
) -> None:
    """ENGINE: the error names it."""
    async with home.runtime([raw("work", lambda _, __: "done")]) as runtime:
        await settled(await runtime.submit([call("work", "c1")], batch_id="t1"))
        with pytest.raises(AnswerRefused, match=f"there is no .*{call_id or batch_id}"):
            await runtime.cancel(batch_id, call_id)


async def test_what_was_told_to_stop_is_not_run_again(home: Home) -> None:
    """DUR-2, CLO-2: also when its process ends meanwhile, and a second run would do no harm."""
    begun, told = anyio.Event(), anyio.Event()
    count = [0]

    async def function(_: dict[str, object], __: Context) -> object:
        count[0] += 1
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            told.set()
        return ""

    tools = [raw("work", function, replay="safe")]
    async with home.runtime(tools) as runtime:
        await runtime.submit([call("work", "c1")], batch_id="t1")
        await soon(begun.wait())
        await runtime.cancel("t1")
        await soon(told.wait())
    async with home.runtime(tools) as later:
        batch = await later.submit([call("work", "c1")], batch_id="t1")
        (outcome,) = await settled(batch)
    assert isinstance(outcome, Unknown)
    assert count == [1]


async def test_what_was_told_to_stop_and_then_lost_is_not_run_again(home: Home) -> None:
    """DUR-2, CLO-2: nobody wants it any more, and it may have taken effect."""
    begun, crashed = anyio.Event(), anyio.Event()
    count = [0]

    async def function(_: dict[str, object], __: Context) -> object:
        count[0] += 1
        begun.set()
        with anyio.CancelScope(shield=True):
            await crashed.wait()
        return ""

    tools = [raw("work", function, replay="safe")]
    async with home.runtime(tools) as runtime:
        batch = await runtime.submit([call("work", "c1")], batch_id="t1")
        await soon(begun.wait())
        await runtime.cancel("t1", by="ann")
        await seen(batch, "told")
        await home.crash(runtime)
        crashed.set()
    async with home.runtime(tools) as later:
        (batch,) = await later.recover()
        (outcome,) = await settled(batch)
    assert isinstance(outcome, Unknown)
    assert outcome.reason == "owner_lost"
    assert count == [1]


@pytest.mark.parametrize("how", ["withdrawn", "expired"])
@pytest.mark.parametrize("replay", ["keyed", "safe"])
async def test_a_question_before_another_run_that_nobody_answers_settles_nothing(
    home: Home, replay: Literal["keyed", "safe"], how: str
) -> None:
    """DUR-2, SUS-4: a guard asks after the crash; what ran before it may have taken effect."""
    begun, crashed = anyio.Event(), anyio.Event()
    asks = [False]

    async def function(_: dict[str, object], __: Context) -> object:
        begun.set()
        with anyio.CancelScope(shield=True):
            await crashed.wait()
        return ""

    def policy(_: Authorization) -> Decision:
        expires = 0.001 if how == "expired" else None
        return Ask("Once more?", expires_in=expires) if asks[0] else Allow()

    tools = Registry([raw("work", function, replay=replay)]).guarded(policy)
    async with home.runtime(tools) as runtime:
        await runtime.submit([call("work", "c1")], batch_id="t1")
        await soon(begun.wait())
        await home.crash(runtime)
        asks[0] = True
        crashed.set()
    async with home.runtime(tools) as later:
        (batch,) = await later.recover()
        if how == "withdrawn":
            await at_rest(batch)
            await later.inbox.withdraw((await only_wait(later.inbox)).id, by="ann")
        (outcome,) = await settled(batch)

    assert isinstance(outcome, Unknown if replay == "keyed" else Failed)
    if isinstance(outcome, Unknown):
        assert outcome.reason == "owner_lost"
    else:
        assert "Once more?" in outcome.text


# ---- unknown -----------------------------------------------------------------------------------


async def test_an_unknown_call_is_listed_with_all_that_is_known(home: Home) -> None:
    """DUR-2, FAIL-3: records, evidence, key and state; the private error is in no file."""

    async def function(_: dict[str, object], context: Context) -> object:
        await context.record("test:handle", {"pid": 1})
        raise CallError(Result.of("3 rows")) from RuntimeError("private")

    async with home.runtime([raw("work", function), raw("fine", lambda _, __: "fine")]) as runtime:
        batch = await runtime.submit([call("work", "c1"), call("fine", "c2")], batch_id="t1")
        outcome, other = await settled(batch)

    found = await one_unknown(home.inbox())
    assert other.text == "fine"
    assert (found.id, found.batch_id, found.call.name) == ("t1/c1", "t1", "work")
    assert (found.state, found.leg, found.fence) == ("unknown", 1, 1)
    assert [one.record for one in found.records] == [Record("test:handle", {"pid": 1})]
    assert isinstance(found.outcome, Unknown)
    assert found.outcome.reason == "raised"
    assert found.outcome.reference
    assert found.outcome.evidence == Result.of("3 rows")
    assert found.outcome.text == outcome.text
    assert "private" not in repr(found) + str([line.data for line in await home.inbox().history()])


async def settled_unknown(home: Home, tools: list[Tool]) -> None:
    """Have one call end unknown."""
    async with home.runtime(tools) as runtime:
        (outcome,) = await settled(await runtime.submit([call("work", "c1")], batch_id="t1"))
        assert isinstance(outcome, Unknown)


@pytest.mark.parametrize(
    "resolution",
    [
        Completed(Result.of("paid")),
        Failed(Failure("not paid")),
        Cancelled("cancelled", tool="work"),
    ],
    ids=["completed", "failed", "cancelled"],
)
@pytest.mark.parametrize("name", ["t1/c1", "c1"])
async def test_a_person_says_how_an_unknown_call_ended(
    home: Home, resolution: Outcome, name: str
) -> None:
    """DUR-2: that is its outcome from then on; said again it is no other, and nothing else is."""
    await settled_unknown(home, [raw("work", raising)])
    inbox = home.inbox()
    await inbox.resolve(name, resolution, by="ann")
    before = await inbox.history()
    await inbox.resolve(name, resolution, by="bob")
    with pytest.raises(AnswerRefused, match="only an unknown call"):
        await inbox.resolve(name, Completed(Result.of("something else")), by="bob")
    with pytest.raises(AnswerRefused, match="only an unknown call"):
        await inbox.resolve(name, "retry", by="bob")

    assert await inbox.unknown() == []
    assert await inbox.history() == before
    assert before[-1].by == "ann"
    async with home.runtime([raw("work", raising)]) as later:
        batch = await later.submit([call("work", "c1")], batch_id="t1")
        (outcome,) = await settled(batch)
    assert outcome.text == resolution.text
    assert type(outcome) is type(resolution)


async def test_whoever_settled_a_batch_sees_what_it_was_resolved_to(home: Home) -> None:
    """DUR-2: in the process that ran it, and through the same handle."""
    async with home.runtime([raw("work", raising)]) as runtime:
        batch = await runtime.submit([call("work", "c1")], batch_id="t1")
        assert isinstance((await settled(batch))[0], Unknown)
        await runtime.inbox.resolve("c1", Completed(Result.of("paid")), by="ann")
        assert [outcome.text for outcome in await settled(batch)] == ["paid"]


@pytest.mark.parametrize(
    "resolution",
    [
        Unknown("raised"),
        Rejected("unauthorized"),
        Suspended(InputRequest("?", schema=True)),
        "again",
        None,
    ],
    ids=["unknown", "rejected", "suspended", "text", "nothing"],
)
async def test_an_unknown_call_did_run_and_is_not_resolved_otherwise(
    home: Home, resolution: Outcome
) -> None:
    """FAIL-6: it may have taken effect; nobody says that it was never let in."""
    await settled_unknown(home, [raw("work", raising)])
    with pytest.raises(AnswerRefused, match="Completed, Failed or Cancelled"):
        await home.inbox().resolve("t1/c1", resolution, by="ann")
    assert (await one_unknown(home.inbox())).id == "t1/c1"


async def test_a_resolution_says_who_gives_it_and_of_which_call(home: Home) -> None:
    """DUR-2: nothing is written otherwise."""
    await settled_unknown(home, [raw("work", raising)])
    inbox = home.inbox()
    with pytest.raises(AnswerRefused, match="by="):
        await inbox.resolve("t1/c1", "retry", by=" ")
    with pytest.raises(AnswerRefused, match="there is no call c9"):
        await inbox.resolve("c9", "retry", by="ann")
    assert (await one_unknown(inbox)).id == "t1/c1"


async def test_a_retried_call_runs_again_with_the_same_key(home: Home) -> None:
    """DUR-3: the same leg, another fence; whoever waits for the batch waits for it."""
    keys: list[tuple[int, str]] = []

    async def function(_: dict[str, object], context: Context) -> object:
        keys.append((context.leg, context.idempotency_key))
        if len(keys) == 1:
            raise RuntimeError("private")
        return "this time"

    async with home.runtime([raw("work", function)]) as runtime:
        batch = await runtime.submit([call("work", "c1")], batch_id="t1")
        await settled(batch)
        await runtime.inbox.resolve("t1/c1", "retry", by="ann")
        (outcome,) = await settled(batch)
    kept = await home.call("t1/c1")

    assert outcome.text == "this time"
    assert keys[0] == keys[1]
    assert (kept.leg, kept.fence, kept.state) == (1, 2, "completed")
    assert await steps_of(home.inbox(), "t1/c1") == [
        *("propose", "admit", "allow", "dispatch", "doubt"),
        *("retry", "allow", "dispatch", "complete"),
    ]


async def test_a_retried_call_runs_in_whichever_process_comes_next(home: Home) -> None:
    """DUR-2: also when nobody was there as a person said so."""
    await settled_unknown(home, [raw("work", raising)])
    await home.inbox().resolve("t1/c1", "retry", by="ann")
    async with home.runtime([raw("work", lambda _, __: "this time")]) as later:
        (batch,) = await later.recover()
        assert [outcome.text for outcome in await settled(batch)] == ["this time"]


async def test_a_retried_leg_goes_on_from_its_answer(home: Home) -> None:
    """DUR-2, SUS-2: what a person said is not asked again."""
    answers: list[object] = []

    async def first(_: dict[str, object], __: Context) -> object:
        return InputRequest("Which?", schema={"type": "integer"}, state="s")

    async def resume(_: dict[str, object], __: Context, answered: Continuation) -> object:
        answers.append((answered.state, answered.answer))
        if len(answers) == 1:
            raise RuntimeError("private")
        return "done"

    tools = [RawTool(Definition("work"), first, resume=resume)]
    async with home.runtime(tools) as runtime:
        batch = await runtime.submit([call("work", "c1")], batch_id="t1")
        await at_rest(batch)
        await runtime.inbox.answer((await only_wait(runtime.inbox)).id, 7, by="ann")
        assert isinstance((await settled(batch))[0], Unknown)
        await runtime.inbox.resolve("t1/c1", "retry", by="bob")
        assert [outcome.text for outcome in await settled(batch)] == ["done"]
    assert answers == [("s", 7), ("s", 7)]


# ---- what comes too late -------------------------------------------------------------------------


async def evidence_of(home: Home, batch: DurableBatch, inbox: Inbox) -> list[Outcome]:
    """Wait until evidence of a call was kept; return it."""
    with anyio.fail_after(PATIENCE):
        while not (kept := await home.call(f"{batch.id}/c1")).evidence:
            await anyio.lowlevel.checkpoint()
    assert any(line.step == "evidence" for line in await inbox.history(f"{batch.id}/c1"))
    return [one.outcome for one in kept.evidence]


async def test_the_result_of_a_task_past_its_limit_is_evidence(home: Home) -> None:
    """EXE-7, DUR-1: the outcome stays unknown, and a person sees what came."""
    tools = [raw("work", until_stopped("paid after all"), timeout=0.01)]
    async with home.runtime(tools) as runtime:
        batch = await runtime.submit([call("work", "c1")], batch_id="t1")
        (outcome,) = await settled(batch)
        assert await evidence_of(home, batch, runtime.inbox) == [
            Completed(Result.of("paid after all"))
        ]
    assert isinstance(outcome, Unknown)
    assert outcome.reason == "timed_out"
    assert (await one_unknown(home.inbox())).evidence[0].fence == 1


@pytest.mark.parametrize("ending", ["result", "failure", "error"])
async def test_what_a_thread_says_past_its_limit_is_evidence(home: Home, ending: str) -> None:
    """EXE-7, DUR-1: a thread cannot be stopped; how it ended is kept whatever it was."""
    gate = threading.Event()

    def function(_: dict[str, object], __: Context) -> object:
        gate.wait(PATIENCE)
        if ending == "failure":
            raise Failure("no")
        if ending == "error":
            raise RuntimeError("private")
        return "late"

    async with home.runtime([raw("work", function, timeout=0.01)]) as runtime:
        batch = await runtime.submit([call("work", "c1")], batch_id="t1")
        (outcome,) = await settled(batch)
        gate.set()
        (late,) = await evidence_of(home, batch, runtime.inbox)
    assert isinstance(outcome, Unknown)
    assert type(late) is {"result": Completed, "failure": Failed, "error": Unknown}[ending]


async def test_a_stuck_thread_holds_what_it_works_on(home: Home) -> None:
    """EXE-6, ENGINE: also against the batches of other processes, until it has ended."""
    gate = threading.Event()

    def stuck(_: dict[str, object], __: Context) -> object:
        gate.wait(PATIENCE)
        return "late"

    tools = Registry(
        [
            raw("stuck", stuck, timeout=0.01, uses="repo"),
            raw("go", lambda _, __: "gone", uses="repo"),
        ],
        grace=0.01,
    )
    async with home.runtime(tools) as one, home.runtime(tools) as two:
        first = await one.submit([call("stuck", "c1")], batch_id="t1")
        assert isinstance((await settled(first))[0], Unknown)
        second = await two.submit([call("go", "c1")], batch_id="t2")
        waited = await seen(second, "wait", "t2/c1")
        assert waited.data == {"behind": ["t1/c1"]}
        assert (await home.call("t2/c1")).state == "authorized"
        gate.set()
        assert [outcome.text for outcome in await settled(second)] == ["gone"]


async def test_who_was_taken_for_lost_writes_nothing_but_evidence(home: SqliteHome) -> None:
    """DUR-1: another process has the call by now; a record is refused, and the outcome is late."""
    doors = Doors()
    elsewhere = anyio.Event()
    refused: list[Exception] = []

    async def function(_: dict[str, object], context: Context) -> object:
        name = f"dispatch {len(doors.begun)}"
        try:
            return await doors.pass_through(name)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await elsewhere.wait()
                try:
                    await context.record("test:late", {})
                except Fenced as fenced:
                    refused.append(fenced)
            return Result.of(f"{name} was late")

    tools = [raw("work", function, replay="keyed")]
    async with home.runtime(tools) as one, home.runtime(tools) as two:
        here = await one.submit([call("work", "c1")], batch_id="t1")
        await doors.until("dispatch 0")
        home.run("UPDATE batches SET lease = 0")
        home.run("UPDATE calls SET lease = 0")
        (there,) = await two.recover()
        await doors.until("dispatch 1")
        elsewhere.set()
        late = await evidence_of(home, there, two.inbox)
        doors.open("dispatch 1")
        assert [outcome.text for outcome in await settled(there)] == ["dispatch 1 done"]
        assert [outcome.text for outcome in await settled(here)] == ["dispatch 1 done"]
    kept = await home.call("t1/c1")

    assert late == [Completed(Result.of("dispatch 0 was late"))]
    assert len(refused) == 1
    assert kept.records == ()
    assert (kept.state, kept.fence, kept.evidence[0].fence) == ("completed", 2, 1)


async def test_who_claims_again_what_it_lost_takes_no_leg_for_another(home: SqliteHome) -> None:
    """DUR-1: a guard of the lost leg does not end; that leg and the new one are told apart."""
    doors = Doors()

    async def guard(asked: Authorization) -> Allow:
        name = f"guard {len(doors.begun)}"
        with anyio.CancelScope(shield=True):
            await doors.pass_through(name)
        return Allow()

    async def function(_: dict[str, object], context: Context) -> object:
        await context.record("test:mine", {"fence": 1})
        return await doors.pass_through("work")

    registry = Registry([raw("work", function)]).guarded(guard)
    async with home.runtime(registry) as runtime:
        batch = await runtime.submit([call("work", "c1")], batch_id="t1")
        await doors.until("guard 0")
        home.run("UPDATE batches SET owner = NULL, lease = NULL, fence = fence + 1")
        await doors.until("guard 1")
        doors.open("guard 1")
        await doors.until("work")
        doors.open("guard 0", "work")
        assert [outcome.text for outcome in await settled(batch)] == ["work done"]
    kept = await home.call("t1/c1")

    assert (kept.state, len(kept.records)) == ("completed", 1)
    assert doors.begun == ["guard 0", "guard 1", "work"]


async def test_a_lost_leg_that_ends_late_takes_nothing_from_the_next_here(home: SqliteHome) -> None:
    """DUR-1: both are of one runtime: the late one's end does not let the other's lease lapse."""
    doors = Doors()
    refused: list[Exception] = []

    async def function(_: dict[str, object], context: Context) -> object:
        name = f"dispatch {len(doors.begun)}"
        try:
            await doors.pass_through(name)
            await context.record("test:mine", name)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await doors.pass_through(f"{name} again")
                try:
                    await context.record("test:late", name)
                except Fenced as fenced:
                    refused.append(fenced)
        return Result.of(f"{name} ended")

    async with home.runtime([raw("work", function, replay="keyed")]) as runtime:
        batch = await runtime.submit([call("work", "c1")], batch_id="t1")
        await doors.until("dispatch 0")
        home.run("UPDATE batches SET owner = NULL, lease = NULL, fence = fence + 1")
        await doors.until("dispatch 0 again")
        home.run("UPDATE calls SET owner = NULL, lease = NULL")
        await doors.until("dispatch 2")
        doors.open("dispatch 0 again")
        assert await evidence_of(home, batch, runtime.inbox) == [
            Completed(Result.of("dispatch 0 ended"))
        ]
        assert list(runtime._host.running) == ["t1/c1"]
        doors.open("dispatch 2")
        assert [outcome.text for outcome in await settled(batch)] == ["dispatch 2 ended"]
    kept = await home.call("t1/c1")

    assert len(refused) == 1
    assert [one.record.data for one in kept.records] == ["dispatch 2"]


# ---- records and effects -------------------------------------------------------------------------


async def test_records_are_kept_and_told_to_the_executors_recorder_too(home: Home) -> None:
    """REC-1, REC-2: durable when `record` returns; the details of a result as well."""
    told: list[Record] = []
    seen_inside: list[int] = []

    async def recorder(context: Context, record: Record) -> None:
        told.append(record)

    async def function(_: dict[str, object], context: Context) -> object:
        await context.record("test:one", {"n": 1})
        seen_inside.append(len((await home.call("t1/c1")).records))
        return Result((Text("done"),), details=Record("test:two", {"n": 2}))

    def threaded(_: dict[str, object], context: Context) -> object:
        context.record_blocking("test:thread", 3)
        return "done"

    tools = [raw("work", function), raw("threaded", threaded)]
    async with home.runtime(Executor(tools, recorder=recorder)) as runtime:
        batch = await runtime.submit([call("work", "c1"), call("threaded", "c2")], batch_id="t1")
        await settled(batch)
    first, second = await home.call("t1/c1"), await home.call("t1/c2")

    assert seen_inside == [1]
    assert [one.record for one in first.records] == [
        Record("test:one", {"n": 1}),
        Record("test:two", {"n": 2}),
    ]
    assert [one.record for one in second.records] == [Record("test:thread", 3)]
    assert sorted(one.namespace for one in told) == ["test:one", "test:thread", "test:two"]
    assert all((one.leg, one.fence) == (1, 1) for one in first.records)


async def test_an_error_of_the_executors_recorder_reaches_the_tool(home: Home) -> None:
    """REC-2: the record is kept all the same; it was durable before the other was told."""

    async def recorder(_: Context, __: Record) -> None:
        raise OSError("elsewhere")

    async def function(_: dict[str, object], context: Context) -> object:
        try:
            await context.record("test:one", 1)
        except OSError:
            return "told"
        return "not told"

    async with home.runtime(Executor([raw("work", function)], recorder=recorder)) as runtime:
        (outcome,) = await settled(await runtime.submit([call("work", "c1")], batch_id="t1"))
    assert outcome.text == "told"
    assert len((await home.call("t1/c1")).records) == 1


async def test_begin_effect_is_kept_before_it_returns(home: Home) -> None:
    """DUR-3: it is no record, and it is begun anew with each dispatch."""
    inside: list[bool] = []

    async def function(_: dict[str, object], context: Context) -> object:
        inside.append((await home.call("t1/c1")).effect_begun)
        await context.begin_effect()
        inside.append((await home.call("t1/c1")).effect_begun)
        await context.begin_effect()
        if len(inside) == 2:
            raise RuntimeError("private")
        return "done"

    async with home.runtime([raw("work", function)]) as runtime:
        batch = await runtime.submit([call("work", "c1")], batch_id="t1")
        await settled(batch)
        await runtime.inbox.resolve("t1/c1", "retry", by="ann")
        await settled(batch)
        steps = await steps_of(home.inbox(), "t1/c1")
    assert inside == [False, True, False, True]
    assert steps.count("effect") == 2
    assert (await home.call("t1/c1")).records == ()


@pytest.mark.parametrize("said", [False, True], ids=["before", "after"])
async def test_an_error_before_the_effect_is_a_definite_failure(home: Home, said: bool) -> None:
    """DUR-3, FAIL-6: with `until_effect`; after it nobody knows."""

    async def function(_: dict[str, object], context: Context) -> object:
        if said:
            await context.begin_effect()
        raise RuntimeError("private")

    async with home.runtime([raw("work", function, replay="until_effect")]) as runtime:
        (outcome,) = await settled(await runtime.submit([call("work", "c1")], batch_id="t1"))
    assert type(outcome) is (Unknown if said else Failed)


async def test_a_thread_says_that_its_effect_begins(home: Home) -> None:
    """DUR-3, REC-1: durable before it returns; on the loop it is refused, naming the other one."""

    def in_a_thread(_: dict[str, object], context: Context) -> object:
        context.begin_effect_blocking()
        raise RuntimeError("private")

    async def on_the_loop(_: dict[str, object], context: Context) -> object:
        with pytest.raises(FerruleError, match=r"await context\.begin_effect"):
            context.begin_effect_blocking()
        return "refused"

    tools = [raw(f.__name__, f, replay="until_effect") for f in (in_a_thread, on_the_loop)]
    async with home.runtime(tools) as runtime:
        calls = [call("in_a_thread", "c1"), call("on_the_loop", "c2")]
        thread, loop = await settled(await runtime.submit(calls, batch_id="t1"))
    assert isinstance(thread, Unknown)
    assert loop.text == "refused"
    assert (await home.call("t1/c1")).effect_begun
    assert not (await home.call("t1/c2")).effect_begun


# ---- after a crash -------------------------------------------------------------------------------


async def crashed(home: Home, traits: Traits, *, effect: bool = False) -> tuple[int, DurableCall]:
    """Crash while a call is at work, recover; return how often it began, and how it stands."""
    begun = anyio.Event()
    keys: set[str] = set()
    count = [0]

    async def function(_: dict[str, object], context: Context) -> object:
        count[0] += 1
        keys.add(context.idempotency_key)
        if count[0] > 1:
            return "second time"
        if effect:
            await context.begin_effect()
        begun.set()
        await anyio.sleep_forever()
        return ""

    tools: list[Tool] = [RawTool(Definition("work"), function, traits=traits)]
    async with home.runtime(tools) as runtime:
        await runtime.submit([call("work", "c1")], batch_id="t1")
        await soon(begun.wait())
        await home.crash(runtime)
    async with home.runtime(tools) as later:
        (batch,) = await later.recover()
        await settled(batch)
    assert len(keys) == 1
    return count[0], await home.call("t1/c1")


@pytest.mark.parametrize(
    ("replay", "effect", "begins"),
    [
        ("safe", False, 2),
        ("safe", True, 2),
        ("keyed", False, 2),
        ("keyed", True, 2),
        ("until_effect", False, 2),
        ("until_effect", True, 1),
        ("unknown", False, 1),
        ("unknown", True, 1),
    ],
)
async def test_what_a_lost_call_does_is_for_its_tool_to_say(
    home: Home, replay: Replay, effect: bool, begins: int
) -> None:
    """DUR-2, DUR-3: again with the same key, or unknown until somebody resolves it."""
    count, kept = await crashed(home, Traits(replay=replay), effect=effect)

    assert count == begins
    if begins == 2:
        assert isinstance(kept.outcome, Completed)
        assert (kept.leg, kept.fence) == (1, 2)
        return
    assert isinstance(kept.outcome, Unknown)
    assert kept.outcome.reason == "owner_lost"
    assert kept.effect_begun is effect
    assert [one.id for one in await home.inbox().unknown(reason="owner_lost")] == ["t1/c1"]
    await home.inbox().resolve("t1/c1", Completed(Result.of("it was paid")), by="ann")


async def test_hints_never_stand_in_for_replay(home: Home) -> None:
    """DUR-2, AUT-3: a tool may call itself what it likes."""
    traits = Traits(read_only=True, idempotent=True, destructive=False)
    count, kept = await crashed(home, traits)
    assert count == 1
    assert isinstance(kept.outcome, Unknown)


async def test_replay_is_what_the_arguments_said_when_the_call_was_kept(home: Home) -> None:
    """DUR-2: a function of the arguments is asked once, before anything runs."""

    def replay(arguments: dict[str, object]) -> Replay:
        return "safe" if "n" not in arguments else "unknown"

    count, _ = await crashed(home, Traits(replay=replay))
    assert count == 2


async def lost_with_records(
    home: Home, reapers: dict[str, Reaper], *, replay: Replay
) -> tuple[int, DurableCall]:
    """Crash a call that wrote three records; recover with reapers."""
    begun = anyio.Event()
    count = [0]

    async def function(_: dict[str, object], context: Context) -> object:
        count[0] += 1
        if count[0] > 1:
            return "second time"
        await context.record("test:group", 1)
        await context.record("test:note", "nothing to end")
        await context.record("test:group", 2)
        begun.set()
        await anyio.sleep_forever()
        return ""

    tools: list[Tool] = [raw("work", function, replay=replay)]
    async with home.runtime(tools) as runtime:
        await runtime.submit([call("work", "c1")], batch_id="t1")
        await soon(begun.wait())
        await home.crash(runtime)
    async with home.runtime(tools, reapers=reapers) as later:
        (batch,) = await later.recover()
        await settled(batch)
    return count[0], await home.call("t1/c1")


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_what_a_lost_call_left_behind_is_ended_first(home: Home, kind: str) -> None:
    """DUR-2, REC-1: its records are handles: the newest first, each to who asked for its kind."""
    ended: list[object] = []

    def plain(record: Record) -> None:
        ended.append(record.data)

    async def later(record: Record) -> None:
        ended.append(record.data)

    reapers: dict[str, Reaper] = {"test:group": plain if kind == "plain" else later}
    count, kept = await lost_with_records(home, reapers, replay="safe")
    assert ended == [2, 1]
    assert count == 2
    assert isinstance(kept.outcome, Completed)


async def test_what_could_not_be_ended_is_not_run_again(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    """DUR-2: two of them at once is what nobody asked for; the operator is told why."""

    def reap(_: Record) -> None:
        raise PermissionError("not ours")

    with caplog.at_level(logging.ERROR, logger="ferrule"):
        count, kept = await lost_with_records(home, {"test:group": reap}, replay="safe")
    assert count == 1
    assert isinstance(kept.outcome, Unknown)
    assert kept.outcome.reason == "owner_lost"
    assert "PermissionError" in caplog.text


# ---- the checklist -------------------------------------------------------------------------------


async def test_a_finished_sibling_is_not_repeated_after_a_restart(home: Home) -> None:
    """SC-138: it ran before the call that waits, and stands in its place afterwards."""
    ran: list[str] = []

    def go(arguments: dict[str, object], _: Context) -> object:
        ran.append(str(arguments["n"]))
        return f"went {arguments['n']}"

    async def pay(_: dict[str, object], __: Context) -> object:
        return InputRequest("Pay?", schema={"type": "boolean"}, state=None)

    async def resume(_: dict[str, object], __: Context, answered: Continuation) -> object:
        return f"paid {answered.answer}"

    tools: list[Tool] = [raw("go", go), RawTool(Definition("pay"), pay, resume=resume)]
    calls = [call("go", "c1", n=1), call("pay", "c2"), call("go", "c3", n=3)]
    async with home.runtime(tools) as runtime:
        await at_rest(await runtime.submit(calls, batch_id="t1"))
        await home.crash(runtime)
    async with home.runtime(tools) as later:
        (batch,) = await later.recover()
        await later.inbox.answer((await only_wait(later.inbox)).id, True, by="ann")
        outcomes = await settled(batch)
    assert [outcome.text for outcome in outcomes] == ["went 1", "paid True", "went 3"]
    assert sorted(ran) == ["1", "3"]


async def test_a_question_that_was_kept_is_asked_though_nobody_heard_of_it(home: Home) -> None:
    """SC-139, DUR-1: its process ended right after the commit; the answer gives one result."""
    legs: list[int] = []

    async def pay(_: dict[str, object], context: Context) -> object:
        legs.append(context.leg)
        return InputRequest("Pay?", schema={"type": "boolean"}, state="s")

    async def resume(_: dict[str, object], context: Context, __: Continuation) -> object:
        legs.append(context.leg)
        return "paid"

    tools: list[Tool] = [RawTool(Definition("pay"), pay, resume=resume)]
    async with home.runtime(tools) as runtime:
        batch = await runtime.submit([call("pay", "c1")], batch_id="t1")
        await seen(batch, "suspend")
        await home.crash(runtime)
    wait = await only_wait(home.inbox())
    await home.inbox().answer(wait.id, True, by="ann")
    async with home.runtime(tools) as later:
        (batch,) = await later.recover()
        (outcome,) = await settled(batch)
    assert outcome.text == "paid"
    assert legs == [1, 2]


async def test_an_unknown_call_holds_back_nobody_and_is_never_replayed(home: Home) -> None:
    """SC-140, DUR-2: of three in order the second is in doubt; each runs once, across a crash."""
    ran: list[str] = []
    held = anyio.Event()

    async def function(arguments: dict[str, object], _: Context) -> object:
        ran.append(str(arguments["n"]))
        if arguments["n"] == 2:
            raise RuntimeError("private")
        if arguments["n"] == 3 and ran.count("3") == 1:
            held.set()
            await anyio.sleep_forever()
        return f"{arguments['n']} done"

    tools = Executor([raw("work", function, replay="unknown", uses="repo")], sequential=True)
    calls = [call("work", f"c{n}", n=n) for n in (1, 2, 3)]
    async with home.runtime(tools) as runtime:
        await runtime.submit(calls, batch_id="t1")
        await soon(held.wait())
        await home.crash(runtime)
    async with home.runtime(tools) as later:
        (batch,) = await later.recover()
        await settled(batch)
        assert [one.id for one in await later.inbox.unknown()] == ["t1/c2", "t1/c3"]
        await later.inbox.resolve("t1/c2", Completed(Result.of("2 was done")), by="ann")
        await later.inbox.resolve("t1/c3", "retry", by="ann")
        outcomes = await settled(batch)
    assert [outcome.text for outcome in outcomes] == ["1 done", "2 was done", "3 done"]
    assert ran == ["1", "2", "3", "3"]


@pytest.mark.parametrize("cause", [TimeoutError("late"), KeyboardInterrupt(), None])
async def test_a_failure_is_definite_whatever_caused_it(
    home: Home, cause: BaseException | None
) -> None:
    """SC-141, FAIL-1: a deadline inside it does not make it unknown, and nothing is repeated."""
    ran: list[str] = []

    async def function(_: dict[str, object], __: Context) -> object:
        ran.append("ran")
        raise Failure("no such order", cause=cast("Exception | None", cause))

    async with home.runtime([raw("work", function)]) as runtime:
        batch = await runtime.submit([call("work", "c1")], batch_id="t1")
        await settled(batch)
        await home.crash(runtime)
    async with home.runtime([raw("work", function)]) as later:
        assert await later.recover() == []
        batch = await later.submit([call("work", "c1")], batch_id="t1")
        (outcome,) = await settled(batch)
    assert isinstance(outcome, Failed)
    assert outcome.text == "Error: no such order"
    assert ran == ["ran"]


async def test_a_failure_while_the_process_is_stopped_is_kept(home: Home) -> None:
    """SC-142, CLO-2: it is what the tool says, and no doubt."""
    begun = anyio.Event()

    async def function(_: dict[str, object], __: Context) -> object:
        begun.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            raise Failure("the order was taken back") from None
        return ""

    async with home.runtime([raw("work", function)]) as runtime:
        await runtime.submit([call("work", "c1")], batch_id="t1")
        await soon(begun.wait())
    kept = await home.call("t1/c1")
    assert isinstance(kept.outcome, Failed)
    assert kept.outcome.text == "Error: the order was taken back"
    assert await home.inbox().unknown() == []


@pytest.mark.parametrize("how", ["plain", "wrapped", "caused"])
async def test_an_explicit_rejection_reads_as_it_was_written(home: Home, how: str) -> None:
    """SC-143, FAIL-1, FAIL-2: once, as an error, also wrapped and with a deadline as its cause."""

    async def function(_: dict[str, object], __: Context) -> object:
        refused = Failure.rejected("not for you")
        if how == "wrapped":
            raise RuntimeError("private") from refused
        if how == "caused":
            raise Failure.rejected("not for you", cause=TimeoutError("private"))
        raise refused

    async with home.runtime([raw("work", function)]) as runtime:
        (outcome,) = await settled(await runtime.submit([call("work", "c1")], batch_id="t1"))
    kept = (await home.call("t1/c1")).outcome
    assert isinstance(kept, Failed)
    assert outcome.text == kept.text == "Error: not for you"
    assert kept.failure.kind == "rejected"


async def test_a_call_brings_no_continuation_and_an_outcome_no_question(home: Home) -> None:
    """SC-145: legs are the runtime's; arguments named so are arguments, and settled is settled."""
    made = call("work", "c1", continuation={"answer": True, "state": {}}, resume=1)
    shown: list[object] = []

    async def function(arguments: dict[str, object], _: Context) -> object:
        shown.append(arguments)
        return {"message": "?", "schema": True, "state": None}

    async with home.runtime([raw("work", function)]) as runtime:
        with pytest.raises(InvalidValue, match="ToolCall"):
            await runtime.submit(cast("Iterable[ToolCall]", [Leg(made)]), batch_id="t0")
        (outcome,) = await settled(await runtime.submit([made], batch_id="t1"))
    assert shown == [{"continuation": {"answer": True, "state": {}}, "resume": 1}]
    assert isinstance(outcome, Completed)
    assert await home.inbox().waits() == []


async def test_a_response_without_calls_runs_nothing(home: Home) -> None:
    """SC-149: a turn that ended with words, or was cut off, is an empty batch."""
    message = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Done."}],
    }
    registry = Registry([raw("work", lambda _, __: "ran")])
    calls = Wire(registry).calls({"status": "completed", "output": [message]})
    async with home.runtime(registry) as runtime:
        assert await settled(await runtime.submit(calls, batch_id="t1")) == []
        assert await home.inbox().history() == []


async def test_an_inbox_needs_no_tools_and_lists_what_any_process_left(home: Home) -> None:
    """ENGINE: questions and doubts of tools that this process has never heard of."""

    @tool
    async def pay() -> InputRequest:
        return InputRequest("Pay?", schema=True, state=None)

    async with home.runtime([pay, raw("work", raising)]) as runtime:
        batch = await runtime.submit([call("pay", "c1"), call("work", "c2")], batch_id="t1")
        await at_rest(batch)
    inbox = home.inbox()
    assert [wait.call_id for wait in await inbox.waits()] == ["t1/c1"]
    assert [one.id for one in await inbox.unknown()] == ["t1/c2"]
    with pytest.raises(AnswerRefused):
        await inbox.resolve("t1/c1", "retry", by="ann")
