"""
Durable calls, as any home of them keeps and runs them: batches, order, what follows live, leaving.

The suite knows no home: `home` makes runtimes and inboxes (tests/homes.py), and what is said here
holds wherever calls live. Questions and answers are in test_durable_waits.py, what nobody knows
and what comes too late in test_durable_unknown.py.
"""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import anyio
import anyio.lowlevel
import pytest

import process_tools
from ferrule import (
    Accepted,
    Completed,
    Context,
    Declined,
    Executor,
    Failed,
    Failure,
    Inject,
    InvalidValue,
    Limits,
    Outcome,
    Progress,
    Question,
    Record,
    Registry,
    Rejected,
    Shared,
    Suspended,
    ToolCall,
    Unknown,
    tool,
)
from ferrule.errors import AnswerRefused, BatchConflict, FerruleError
from ferrule.ports import Runtime
from homes import (
    PATIENCE,
    Doors,
    Home,
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


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def fail(why: str) -> str:
    """Fail, and say why."""
    raise Failure(why)


# ---- submit -------------------------------------------------------------------------------------


async def test_outcomes_are_in_the_order_of_the_calls(home: Home) -> None:
    """DUR-1, WIRE-1: each call has one, also those that were refused beside those that run."""
    doors = Doors()

    @tool
    async def slow(name: str) -> str:
        return await doors.pass_through(name)

    async with home.runtime([slow, add, fail]) as runtime:
        batch = await runtime.submit(
            [
                call("slow", "c1", name="x"),
                call("add", "c2", a=1, b=2),
                call("nothing", "c3"),
                call("add", "c4", a="one", b=2),
                ToolCall(id="c5", name="add", arguments='{"a":1,"a":2,"b":3}'),
                call("fail", "c6", why="no room"),
            ],
            batch_id="t1",
        )
        await seen(batch, "complete", "t1/c2")
        await doors.until("x")
        doors.open("x")
        outcomes = await settled(batch)

    assert [outcome.text for outcome in outcomes[:2]] == ["x done", "3"]
    assert [outcome.kind for outcome in outcomes if isinstance(outcome, Rejected)] == [
        "unknown_tool",
        "invalid_arguments",
        "invalid_json",
    ]
    assert isinstance(outcomes[5], Failed)
    assert outcomes[5].text == "Error: no room"


async def test_a_batch_of_refused_calls_is_settled_at_once(home: Home) -> None:
    """DUR-1, FAIL-6: nothing runs, and what was refused is kept with its reason."""
    async with home.runtime([add]) as runtime:
        batch = await runtime.submit([call("nothing", "c1"), call("add", "c2")], batch_id="t1")
        outcomes = await settled(batch)

        assert [type(outcome) for outcome in outcomes] == [Rejected, Rejected]
        assert await steps_of(home.inbox(), "t1/c1") == ["propose", "refuse"]


async def test_an_empty_batch_is_settled(home: Home) -> None:
    """EXE-1: a turn without calls is a turn."""
    async with home.runtime([add]) as runtime:
        assert await settled(await runtime.submit([], batch_id="t1")) == []
        assert await settled(await runtime.submit([], batch_id="t1")) == []


async def test_the_same_calls_again_are_the_same_batch(home: Home) -> None:
    """ENGINE: nothing is run twice, in this process or in another."""
    ran: list[str] = []

    @tool
    async def note(name: str) -> str:
        ran.append(name)
        return name

    calls = [call("note", "c1", name="x"), call("note", "c2", name="y")]
    async with home.runtime([note]) as runtime:
        batch = await runtime.submit(calls, batch_id="t1")
        again = await runtime.submit(calls, batch_id="t1")
        assert batch.id == again.id == "t1"
        assert await settled(batch) == await settled(again)
    async with home.runtime([note]) as later:
        outcomes = await settled(await later.submit(calls, batch_id="t1"))

    assert [outcome.text for outcome in outcomes] == ["x", "y"]
    assert sorted(ran) == ["x", "y"]


@pytest.mark.parametrize(
    "other",
    [
        [call("add", "c1", a=1, b=3)],
        [call("add", "c2", a=1, b=2)],
        [call("fail", "c1", a=1, b=2)],
        [],
        [call("add", "c1", a=1, b=2), call("add", "c2", a=1, b=2)],
    ],
    ids=["arguments", "id", "name", "none", "one more"],
)
async def test_other_calls_under_the_same_id_are_a_conflict(
    home: Home, other: list[ToolCall]
) -> None:
    """ENGINE: the first stands, the others are not kept, and nothing of them runs."""
    async with home.runtime([add, fail]) as runtime:
        batch = await runtime.submit([call("add", "c1", a=1, b=2)], batch_id="t1")
        with pytest.raises(BatchConflict, match="t1"):
            await runtime.submit(other, batch_id="t1")
        assert [outcome.text for outcome in await settled(batch)] == ["3"]
        assert {line.call_id for line in await home.inbox().history()} == {"t1/c1"}


async def test_another_caller_under_the_same_id_is_a_conflict(home: Home) -> None:
    """ENGINE: who asks belongs to what is asked."""
    calls = [call("add", "c1", a=1, b=2)]
    async with home.runtime([add]) as runtime:
        await settled(await runtime.submit(calls, batch_id="t1", caller={"name": "ann"}))
        with pytest.raises(BatchConflict):
            await runtime.submit(calls, batch_id="t1", caller={"name": "bob"})
        await settled(await runtime.submit(calls, batch_id="t1", caller={"name": "ann"}))


async def test_a_batch_conflicts_after_it_has_settled_and_in_another_process(home: Home) -> None:
    """ENGINE: an id is given once and for ever."""
    async with home.runtime([add]) as runtime:
        await settled(await runtime.submit([call("add", "c1", a=1, b=2)], batch_id="t1"))
    async with home.runtime([add]) as later:
        with pytest.raises(BatchConflict):
            await later.submit([call("add", "c1", a=2, b=2)], batch_id="t1")


async def test_two_batches_may_use_the_same_call_ids(home: Home) -> None:
    """SUS-3: a call is named by its batch and its id; alone, where only one has it."""
    async with home.runtime([add]) as runtime:
        for batch_id in ("t1", "t2"):
            calls = [call("add", "c1", a=1, b=2), call("add", f"only-{batch_id}", a=1, b=2)]
            await settled(await runtime.submit(calls, batch_id=batch_id))
        inbox = runtime.inbox
        with pytest.raises(AnswerRefused, match=r"there are 2 calls c1: t1/c1, t2/c1"):
            await inbox.history("c1")
        assert {line.call_id for line in await inbox.history("only-t2")} == {"t2/only-t2"}
        assert {line.call_id for line in await inbox.history("t2/c1")} == {"t2/c1"}


async def test_a_second_use_of_a_call_id_is_refused_and_the_first_runs(home: Home) -> None:
    """EXE-5: the first stands, and each has an outcome of its own."""
    async with home.runtime([add]) as runtime:
        batch = await runtime.submit(
            [call("add", "c1", a=1, b=2), call("add", "c1", a=5, b=5), call("add", "c2", a=3, b=4)],
            batch_id="t1",
        )
        first, second, third = await settled(batch)

    assert (first.text, third.text) == ("3", "7")
    assert isinstance(second, Rejected)
    assert second.kind == "duplicate_id"


async def test_a_call_without_an_id_is_given_one_and_the_batch_is_the_same_again(
    home: Home,
) -> None:
    """EXE-1, ENGINE: what the model left out does not make it another batch."""
    calls = [
        ToolCall(id="", name="add", arguments='{"a":1,"b":2}'),
        ToolCall(id="", name="add", arguments='{"a":3,"b":4}'),
    ]
    async with home.runtime([add]) as runtime:
        batch = await runtime.submit(calls, batch_id="t1")
        assert [outcome.text for outcome in await settled(batch)] == ["3", "7"]
        again = await runtime.submit(calls, batch_id="t1")
        assert await settled(again) == await settled(batch)

        ids = {line.call_id for line in await runtime.inbox.history()}
    assert len(ids) == 2
    assert all(len(name) > len("t1/") for name in ids)


@pytest.mark.parametrize("batch_id", ["", "a\nb", "\x00"])
async def test_a_batch_needs_an_id_that_people_can_read(home: Home, batch_id: str) -> None:
    """ENGINE: an empty id would be everybody's."""
    async with home.runtime([add]) as runtime:
        with pytest.raises(InvalidValue, match="batch_id"):
            await runtime.submit([call("add", "c1", a=1, b=2)], batch_id=batch_id)


async def test_a_caller_that_is_no_json_is_refused_before_anything_is_kept(home: Home) -> None:
    """DUR-1: it is kept, so that a later leg is asked for by the same."""
    async with home.runtime([add]) as runtime:
        with pytest.raises(InvalidValue, match="caller"):
            await runtime.submit([call("add", "c1", a=1, b=2)], batch_id="t1", caller=object())
        assert await home.inbox().history() == []


async def test_what_is_no_call_is_refused_before_anything_is_kept(home: Home) -> None:
    """DUR-1: legs are the runtime's to make."""
    async with home.runtime([add]) as runtime:
        with pytest.raises(InvalidValue, match="ToolCall"):
            await runtime.submit(["add"], batch_id="t1")  # type: ignore[list-item]
        assert await home.inbox().history() == []


async def test_the_caller_is_shown_to_tool_and_policy_on_every_leg(home: Home) -> None:
    """AUT-1, DUR-1: also by a process that was told nothing of it."""
    told: list[object] = []

    @tool
    async def who(context: Context) -> str:
        told.append(context.caller)
        return "ok"

    def policy(asked: object) -> bool | object:
        told.append(asked.caller)  # type: ignore[attr-defined]
        return ask("May it?")

    registry = Registry([who]).guarded(policy)  # type: ignore[arg-type]
    async with home.runtime(registry) as runtime:
        batch = await runtime.submit([call("who", "c1")], batch_id="t1", caller={"name": "ann"})
        await at_rest(batch)
    await home.inbox().answer((await only_wait(home.inbox())).id, True, by="bob")
    async with home.runtime(registry) as later:
        (batch,) = await later.recover()
        await settled(batch)

    assert told == [{"name": "ann"}] * 3


# ---- order --------------------------------------------------------------------------------------


async def test_calls_that_conflict_run_in_the_models_order(home: Home) -> None:
    """EXE-3: what they work on is fixed when the batch is kept; others run beside them."""
    doors = Doors()

    @tool(uses="repo")
    async def write(name: str) -> str:
        return await doors.pass_through(name)

    @tool
    async def free(name: str) -> str:
        return await doors.pass_through(name)

    async with home.runtime([write, free]) as runtime:
        batch = await runtime.submit(
            [
                call("write", "c1", name="w1"),
                call("write", "c2", name="w2"),
                call("free", "c3", name="f"),
                call("write", "c4", name="w3"),
            ],
            batch_id="t1",
        )
        await doors.until("w1", "f")
        assert "w2" not in doors.begun
        doors.open("w2", "w3", "f")
        await seen(batch, "complete", "t1/c3")
        assert sorted(doors.begun) == ["f", "w1"]
        doors.open("w1")
        await settled(batch)

    assert [name for name in doors.begun if name != "f"] == ["w1", "w2", "w3"]


async def test_readers_run_side_by_side_and_writers_alone(home: Home) -> None:
    """EXE-3: `Shared` state is read by many, and never while somebody writes."""
    doors = Doors()

    @tool(uses=Shared("repo"))
    async def read(name: str) -> str:
        return await doors.pass_through(name)

    @tool(uses="repo")
    async def write(name: str) -> str:
        return await doors.pass_through(name)

    async with home.runtime([read, write]) as runtime:
        batch = await runtime.submit(
            [
                call("read", "c1", name="r1"),
                call("read", "c2", name="r2"),
                call("write", "c3", name="w"),
                call("read", "c4", name="r3"),
            ],
            batch_id="t1",
        )
        await doors.until("r1", "r2")
        doors.open("r1")
        await seen(batch, "complete", "t1/c1")
        assert set(doors.begun) == {"r1", "r2"}
        doors.open("r2")
        await doors.until("w")
        assert "r3" not in doors.begun
        doors.open("w", "r3")
        await settled(batch)

    assert doors.begun[2:] == ["w", "r3"]


async def test_a_sequential_batch_runs_one_call_after_the_other(home: Home) -> None:
    """EXE-3: one sequential tool, or the executor's own word for it."""
    for number, setting in enumerate(("tool", "executor")):
        doors = Doors()
        doors.open("a", "b", "c")

        async def work(arguments: dict[str, object], _: Context, doors: Doors = doors) -> object:
            return await doors.pass_through(str(arguments["name"]))

        tools = [raw("work", work, sequential=setting == "tool")]
        async with home.runtime(Executor(tools, sequential=setting == "executor")) as runtime:
            calls = [call("work", name, name=name) for name in "abc"]
            await settled(await runtime.submit(calls, batch_id=f"t{number}"))

        assert doors.begun == ["a", "b", "c"]
        assert doors.most == 1


async def test_two_batches_share_what_their_calls_work_on(home: Home) -> None:
    """ENGINE: what a call holds is held across batches, in order of arrival."""
    doors = Doors()

    @tool(uses="repo")
    async def write(name: str) -> str:
        return await doors.pass_through(name)

    async with home.runtime([write]) as one, home.runtime([write]) as two:
        first = await one.submit([call("write", "c1", name="a")], batch_id="t1")
        await doors.until("a")
        second = await two.submit([call("write", "c1", name="b")], batch_id="t2")
        waited = await seen(second, "wait", "t2/c1")
        third = await one.submit([call("write", "c1", name="c")], batch_id="t3")
        await seen(third, "wait", "t3/c1")
        assert waited.data == {"behind": ["t1/c1"]}
        assert doors.begun == ["a"]
        doors.open("a", "b", "c")
        for batch in (first, second, third):
            await settled(batch)

    assert doors.begun == ["a", "b", "c"]
    assert doors.most == 1


async def test_a_call_that_waits_for_a_person_holds_nothing(home: Home) -> None:
    """SUS-4, ENGINE: what it works on is free, and so is its slot."""
    registry = Registry(
        [
            raw("ask", lambda _, __: "asked", uses="repo"),
            raw("go", lambda _, __: "gone", uses="repo"),
        ]
    )
    guarded = registry.guarded(lambda asked: ask("?") if asked.definition.name == "ask" else True)
    async with home.runtime(Executor(guarded, max_parallel=1)) as runtime:
        batch = await runtime.submit([call("ask", "c1"), call("go", "c2")], batch_id="t1")
        asked, gone = await at_rest(batch)
        assert isinstance(asked, Suspended)
        assert gone.text == "gone"
        other = await runtime.submit([call("go", "c1")], batch_id="t2")
        assert [outcome.text for outcome in await settled(other)] == ["gone"]


async def test_no_more_calls_run_than_max_parallel(home: Home) -> None:
    """EXE-2: calls that wait hold no slot, and a batch larger than all windows ends."""
    doors = Doors()
    names = [f"n{number}" for number in range(100)]

    @tool
    async def work(name: str) -> str:
        return await doors.pass_through(name)

    async with home.runtime(Executor([work], max_parallel=3)) as runtime:
        batch = await runtime.submit(
            [call("work", name, name=name) for name in names], batch_id="t1"
        )
        await doors.until_count(3)
        doors.open(*names)
        outcomes = await settled(batch)

    assert [outcome.text for outcome in outcomes] == [f"{name} done" for name in names]
    assert doors.most == 3


# ---- what follows live ---------------------------------------------------------------------------


async def test_events_come_from_the_beginning_then_live_and_end(home: Home) -> None:
    """EXE-1, ENGINE: each line once, in order, until every call is settled."""
    doors = Doors()

    @tool
    async def work(name: str) -> str:
        return await doors.pass_through(name)

    async with home.runtime([work]) as runtime:
        batch = await runtime.submit([call("work", "c1", name="x")], batch_id="t1")
        await doors.until("x")
        steps: list[str] = []
        numbers: list[int] = []
        with anyio.fail_after(PATIENCE):
            async for moved in batch.events:
                steps.append(moved.step)
                numbers.append(moved.seq)
                if moved.step == "dispatch":
                    doors.open("x")
            again = [moved.step async for moved in batch.events]

    assert steps == again == ["propose", "admit", "allow", "dispatch", "complete"]
    assert numbers == sorted(set(numbers))


async def test_another_process_follows_a_batch(home: Home) -> None:
    """ENGINE: it sees each line though it drives nothing."""
    doors = Doors()

    @tool
    async def work(name: str) -> str:
        return await doors.pass_through(name)

    calls = [call("work", "c1", name="x")]
    async with home.runtime([work]) as one, home.runtime([work]) as two:
        await one.submit(calls, batch_id="t1")
        await doors.until("x")
        there = await two.submit(calls, batch_id="t1")
        steps: list[str] = []
        with anyio.fail_after(PATIENCE):
            async for moved in there.events:
                steps.append(moved.step)
                if moved.step == "dispatch":
                    doors.open("x")
        assert [outcome.text for outcome in await settled(there)] == ["x done"]

    assert steps[-1] == "complete"
    assert doors.begun == ["x"]


async def test_history_is_read_from_a_line_on(home: Home) -> None:
    """ENGINE: of one call or of all, in one order."""
    async with home.runtime([add]) as runtime:
        await settled(await runtime.submit([call("add", "c1", a=1, b=2)], batch_id="t1"))
        await settled(await runtime.submit([call("add", "c2", a=1, b=2)], batch_id="t2"))
        inbox = home.inbox()
        whole = await inbox.history()

        assert await inbox.history(after=whole[3].seq) == whole[4:]
        assert [line for line in whole if line.call_id == "t2/c2"] == await inbox.history("c2")
        with pytest.raises(AnswerRefused, match="there is no call c9"):
            await inbox.history("c9")


async def test_at_rest_is_when_only_people_are_awaited(home: Home) -> None:
    """ENGINE: what runs is waited for; then the questions stand where the outcomes will."""
    doors = Doors()

    @tool
    async def work(name: str) -> str:
        return await doors.pass_through(name)

    @tool
    async def pay() -> str:
        return "paid"

    registry = Registry([work, pay]).guarded(
        lambda asked: ask("Pay?") if asked.definition.name == "pay" else True
    )
    async with home.runtime(registry) as runtime:
        batch = await runtime.submit(
            [call("work", "c1", name="x"), call("pay", "c2")], batch_id="t1"
        )
        await seen(batch, "ask", "t1/c2")
        await doors.until("x")
        async with anyio.create_task_group() as tasks:
            rested: list[list[Outcome]] = []

            async def rest() -> None:
                rested.append(await at_rest(batch))

            tasks.start_soon(rest)
            await anyio.wait_all_tasks_blocked()
            assert not rested
            doors.open("x")
        ((first, second),) = rested
        assert first.text == "x done"
        assert isinstance(second, Suspended)
        assert second.request.message == "Pay?"
        await runtime.inbox.answer((await only_wait(runtime.inbox)).id, True, by="ann")
        assert [outcome.text for outcome in await settled(batch)] == ["x done", "paid"]


async def test_progress_reaches_the_executors_listener(home: Home) -> None:
    """EXE-8: progress is not kept; who drives the calls hears it."""
    heard: list[tuple[str, float | None]] = []

    @tool
    async def work(context: Context) -> str:
        context.progress(0.5, total=1.0)
        return "done"

    def listen(context: Context, progress: Progress) -> None:
        heard.append((context.call_id, progress.progress))

    async with home.runtime(Executor([work], on_progress=listen)) as runtime:
        await settled(await runtime.submit([call("work", "c1")], batch_id="t1"))

    assert heard == [("c1", 0.5)]


# ---- tools of every kind -------------------------------------------------------------------------


async def test_plain_functions_run_in_threads_and_processes(home: Home) -> None:
    """FN-7, DUR-1: wherever a function runs, its outcome and its records are kept."""
    main = threading.get_ident()

    @tool
    def where(context: Context) -> bool:
        context.record_blocking("test:thread", {"here": 1})
        return threading.get_ident() != main

    async with home.runtime([where, process_tools.length]) as runtime:
        batch = await runtime.submit(
            [call("where", "c1"), call("length", "c2", text="abcd")], batch_id="t1"
        )
        outcomes = await settled(batch)

    assert [outcome.text for outcome in outcomes] == ["true", "4"]
    kept = await home.call("t1/c1")
    assert [one.record for one in kept.records] == [Record("test:thread", {"here": 1})]


async def test_a_time_limit_is_kept_as_unknown(home: Home) -> None:
    """EXE-7, FAIL-6: it may have taken effect, so somebody has to say."""

    @tool(timeout=0.01)
    async def slow() -> str:
        await anyio.sleep_forever()
        return ""

    async with home.runtime([slow]) as runtime:
        (outcome,) = await settled(await runtime.submit([call("slow", "c1")], batch_id="t1"))
        assert isinstance(outcome, Unknown)
        assert outcome.reason == "timed_out"
        assert [one.id for one in await home.inbox().unknown(reason="timed_out")] == ["t1/c1"]
        assert await home.inbox().unknown(reason="raised") == []


async def test_a_batch_inside_a_tool_runs(home: Home) -> None:
    """EXE-12: a tool that has the runtime submits, and waits for no slot of its own parent."""
    runtimes: list[Runtime] = []

    @tool
    async def outer(n: int) -> str:
        batch = await runtimes[0].submit([call("add", "c1", a=n, b=1)], batch_id=f"inner-{n}")
        return (await batch.settled())[0].text

    async with home.runtime(Executor([outer, add], max_parallel=1)) as runtime:
        runtimes.append(runtime)
        batch = await runtime.submit(
            [call("outer", "c1", n=1), call("outer", "c2", n=2)], batch_id="t1"
        )
        assert [outcome.text for outcome in await settled(batch)] == ["2", "3"]


async def test_an_executor_inside_a_tool_keeps_to_itself(home: Home) -> None:
    """EXE-12: a batch that nobody keeps runs inside a call that is kept."""

    @tool
    async def outer() -> str:
        (outcome,) = await Executor([add]).run([call("add", "c1", a=1, b=2)])
        return outcome.text

    async with home.runtime([outer]) as runtime:
        (outcome,) = await settled(await runtime.submit([call("outer", "c1")], batch_id="t1"))
        assert outcome.text == "3"
        assert {line.call_id for line in await home.inbox().history()} == {"t1/c1"}


async def test_two_runtimes_in_one_process_are_two(home: Home) -> None:
    """ENGINE: each drives its own batches, and both know all of them."""
    async with home.runtime([add]) as outer, home.runtime([add]) as inner:
        one = await outer.submit([call("add", "c1", a=1, b=2)], batch_id="t1")
        two = await inner.submit([call("add", "c1", a=3, b=4)], batch_id="t2")
        assert [o.text for o in [*await settled(one), *await settled(two)]] == ["3", "7"]
        same = await inner.submit([call("add", "c1", a=1, b=2)], batch_id="t1")
        assert [outcome.text for outcome in await settled(same)] == ["3"]


async def test_the_registrys_limits_hold(home: Home) -> None:
    """JSON-3: arguments that are too large are refused, and the outcome says so."""
    registry = Registry([raw("take", lambda _, __: "taken")], limits=Limits(argument_bytes=32))
    async with home.runtime(registry) as runtime:
        batch = await runtime.submit(
            [call("take", "c1", text="x" * 100), call("take", "c2", text="x")], batch_id="t1"
        )
        first, second = await settled(batch)

    assert isinstance(first, Rejected)
    assert first.kind == "too_large"
    assert second.text == "taken"


async def test_a_closed_registry_refuses_what_has_not_begun(home: Home) -> None:
    """CLO-1, FAIL-6: the tool did not run."""
    registry = Registry([raw("take", lambda _, __: "taken")]).guarded(lambda _: ask("?"))
    async with home.runtime(registry) as runtime:
        batch = await runtime.submit([call("take", "c1")], batch_id="t1")
        await at_rest(batch)
        await registry.aclose()
        await runtime.inbox.answer((await only_wait(runtime.inbox)).id, True, by="ann")
        (outcome,) = await settled(batch)

        assert isinstance(outcome, Rejected)
        assert outcome.kind == "unavailable"
        later = await runtime.submit([call("take", "c1")], batch_id="t2")
        (outcome,) = await settled(later)
        assert isinstance(outcome, Rejected)


async def test_injected_values_are_given_on_every_leg(home: Home) -> None:
    """FN-5: they come from the registry, never from the journal."""

    @tool
    async def who(tenant: Annotated[str, Inject("tenant")]) -> str:
        return tenant

    async with home.runtime(Registry([who], inject={"tenant": "acme"})) as runtime:
        (outcome,) = await settled(await runtime.submit([call("who", "c1")], batch_id="t1"))
    assert outcome.text == "acme"


# ---- questions of a running call -----------------------------------------------------------------


async def test_a_running_call_asks_the_executors_asker(home: Home) -> None:
    """ASK-1: live, while it runs; nothing is suspended."""

    @tool
    async def pay(context: Context) -> str:
        answer = await context.ask("Pay?", answer=bool)
        return "paid" if answer == Accepted(True) else "not paid"

    async def asker(_: Context, question: Question) -> Accepted[bool] | Declined:
        assert question.message == "Pay?"
        return Accepted(True)

    async with home.runtime(Executor([pay], asker=asker)) as runtime:
        (outcome,) = await settled(await runtime.submit([call("pay", "c1")], batch_id="t1"))
    assert outcome.text == "paid"


async def test_with_nobody_to_ask_a_question_is_a_failure_that_says_so(home: Home) -> None:
    """ASK-1: a durable call has a better way to ask, and the failure names it."""

    @tool
    async def pay(context: Context) -> str:
        await context.ask("Pay?", answer=bool)
        return "paid"

    async with home.runtime([pay]) as runtime:
        (outcome,) = await settled(await runtime.submit([call("pay", "c1")], batch_id="t1"))
    assert isinstance(outcome, Failed)
    assert "InputRequest" in outcome.text


# ---- entering and leaving ------------------------------------------------------------------------


async def test_a_runtime_is_entered_once(home: Home) -> None:
    """CLO-1: a second time is refused with what to do."""
    async with home.runtime([add]) as runtime:
        with pytest.raises(FerruleError, match="entered once"):
            await runtime.__aenter__()  # type: ignore[attr-defined]


async def test_after_its_block_a_runtime_takes_nothing(home: Home) -> None:
    """CLO-1: each use is refused, none hangs."""
    async with home.runtime([add]) as runtime:
        batch = await runtime.submit([call("add", "c1", a=1, b=2)], batch_id="t1")
        await settled(batch)
    for use in (
        lambda: runtime.submit([call("add", "c1", a=1, b=2)], batch_id="t2"),
        runtime.recover,
        lambda: runtime.cancel("t1"),
        runtime.inbox.waits,
    ):
        with pytest.raises(FerruleError, match="closed"):
            await soon(use())


async def test_before_its_block_a_runtime_takes_nothing(home: Home) -> None:
    """CLO-1: who forgot `async with` is told, and does not hang."""
    runtime = home.made([add])
    with pytest.raises(FerruleError, match="async with"):
        await soon(runtime.submit([call("add", "c1", a=1, b=2)], batch_id="t1"))
    with pytest.raises(FerruleError, match="async with"):
        await soon(runtime.inbox.waits())


@asynccontextmanager
async def left_while_running(home: Home, replay: str) -> AsyncIterator[list[tuple[int, str]]]:
    """Leave a runtime in the middle of a call; give what each begin of it saw."""
    begun: list[tuple[int, str]] = []
    started = anyio.Event()

    async def work(_: dict[str, object], context: Context) -> object:
        begun.append((context.leg, context.idempotency_key))
        if len(begun) == 1:
            started.set()
            await anyio.sleep_forever()
        return "second time"

    tools = [raw("work", work, replay=replay)]  # type: ignore[arg-type]
    async with home.runtime(tools) as runtime:
        await runtime.submit([call("work", "c1")], batch_id="t1")
        await soon(started.wait())
    async with home.runtime(tools) as later:
        for batch in await later.recover():
            await settled(batch)
        yield begun


@pytest.mark.parametrize("replay", ["safe", "keyed", "until_effect"])
async def test_leaving_gives_back_what_may_run_again(home: Home, replay: str) -> None:
    """DUR-2: the next process runs it again, the same leg with the same idempotency key."""
    async with left_while_running(home, replay) as begun:
        kept = await home.call("t1/c1")

    assert isinstance(kept.outcome, Completed)
    assert begun[0] == begun[1] == (1, kept.idempotency_key)
    assert kept.fence == 2


async def test_leaving_leaves_what_nobody_knows_unknown(home: Home) -> None:
    """DUR-2, CLO-2: a call that says nothing of a second run is not run again."""
    async with left_while_running(home, "unknown") as begun:
        kept = await home.call("t1/c1")

    assert len(begun) == 1
    assert isinstance(kept.outcome, Unknown)
    assert kept.outcome.reason == "cancelled"
    assert [one.id for one in await home.inbox().unknown()] == ["t1/c1"]


async def test_leaving_leaves_what_has_not_begun_for_the_next_process(home: Home) -> None:
    """DUR-2: not dispatched: it runs once, and the order is kept."""
    ran: list[str] = []
    started = anyio.Event()

    async def work(arguments: dict[str, object], _: Context) -> object:
        ran.append(str(arguments["name"]))
        if len(ran) == 1:
            started.set()
            await anyio.sleep_forever()
        return arguments["name"]

    tools = [raw("work", work, uses="repo")]
    async with home.runtime(tools) as runtime:
        calls = [call("work", name, name=name) for name in "abc"]
        await runtime.submit(calls, batch_id="t1")
        await soon(started.wait())
    async with home.runtime(tools) as later:
        (batch,) = await later.recover()
        first, *others = await settled(batch)

    assert isinstance(first, Unknown)
    assert [outcome.text for outcome in others] == ["b", "c"]
    assert ran == ["a", "b", "c"]


async def test_a_tool_that_ends_when_it_is_stopped_has_its_result(home: Home) -> None:
    """CLO-2: it was told, cleaned up within grace, and what it returned stands."""
    started = anyio.Event()
    async with home.runtime([raw("work", until_stopped("half done", started))]) as runtime:
        await runtime.submit([call("work", "c1")], batch_id="t1")
        await soon(started.wait())
    kept = await home.call("t1/c1")

    assert isinstance(kept.outcome, Completed)
    assert kept.outcome.text == "half done"


async def test_a_runtime_with_other_tools_leaves_a_batch_alone(home: Home) -> None:
    """DUR-2: it would have to refuse what another process can run."""
    registry = Registry([add]).guarded(lambda _: ask("?"))
    async with home.runtime(registry) as runtime:
        await at_rest(await runtime.submit([call("add", "c1", a=1, b=2)], batch_id="t1"))
    async with home.runtime([fail]) as other:
        assert await other.recover() == []
    async with home.runtime(registry) as later:
        assert [batch.id for batch in await later.recover()] == ["t1"]


async def test_what_a_living_process_drives_is_not_taken(home: Home) -> None:
    """DUR-1: one process at a time."""
    doors = Doors()

    @tool
    async def work(name: str) -> str:
        return await doors.pass_through(name)

    async with home.runtime([work]) as one, home.runtime([work]) as two:
        batch = await one.submit([call("work", "c1", name="x")], batch_id="t1")
        await doors.until("x")
        assert await two.recover() == []
        doors.open("x")
        await settled(batch)
        assert await two.recover() == []
    assert doors.begun == ["x"]


async def test_a_crash_before_dispatch_loses_nothing(home: Home) -> None:
    """DUR-2, AUT-6: a crash while a policy thinks leaves the call admitted, and it runs once."""
    asked = anyio.Event()
    ran: list[str] = []
    stuck = [True]

    async def policy(_: object) -> bool:
        asked.set()
        if stuck[0]:
            await anyio.sleep_forever()
        return True

    def work(_: dict[str, object], __: Context) -> object:
        ran.append("ran")
        return "ran"

    registry = Registry([raw("work", work)]).guarded(policy)
    async with home.runtime(registry) as runtime:
        await runtime.submit([call("work", "c1")], batch_id="t1")
        await soon(asked.wait())
        assert (await home.call("t1/c1")).state == "admitted"
        await home.crash(runtime)
    stuck[0] = False
    async with home.runtime(registry) as later:
        (batch,) = await later.recover()
        (outcome,) = await settled(batch)

    assert outcome.text == "ran"
    assert ran == ["ran"]


async def test_submitting_again_takes_over_what_a_crash_left(home: Home) -> None:
    """DUR-2: who has the turn at hand needs no `recover`."""
    started = anyio.Event()
    begun: list[str] = []

    async def work(_: dict[str, object], context: Context) -> object:
        begun.append(context.idempotency_key)
        if len(begun) == 1:
            started.set()
            await anyio.sleep_forever()
        return "done"

    tools = [raw("work", work, replay="keyed")]
    calls = [call("work", "c1")]
    async with home.runtime(tools) as runtime:
        await runtime.submit(calls, batch_id="t1")
        await soon(started.wait())
        await home.crash(runtime)
    async with home.runtime(tools) as later:
        (outcome,) = await settled(await later.submit(calls, batch_id="t1"))

    assert outcome.text == "done"
    assert len(set(begun)) == 1
    assert len(begun) == 2
