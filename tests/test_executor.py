"""One batch of calls: order, endings, stopping. Each test runs on asyncio and on trio."""

import logging
import threading
from collections.abc import Callable
from typing import cast

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

from ferrule import (
    Accepted,
    Cancelled,
    Completed,
    Context,
    Declined,
    Executor,
    Failed,
    Failure,
    FerruleError,
    Finished,
    InputRequest,
    InvalidValue,
    Progress,
    Progressed,
    Question,
    Record,
    Registry,
    Rejected,
    Replay,
    Result,
    Shared,
    Started,
    Suspended,
    ToolCall,
    Unknown,
    Use,
    tool,
)
from ferrule.testing import MemoryRecorder
from support import calls, echo, raw, raws

pytestmark = pytest.mark.anyio


async def test_outcomes_come_in_call_order_and_events_as_calls_end() -> None:
    """EXE-1, AT-66, EX-04: the slow first call ends last and stands first."""
    ended = anyio.Event()

    async def slow(_: dict[str, object], __: Context) -> str:
        await ended.wait()
        return "slow"

    async def fast(_: dict[str, object], __: Context) -> str:
        ended.set()
        return "fast"

    batch = Executor(raws(slow, fast)).batch([ToolCall.of("slow"), ToolCall.of("fast")])
    finished = []
    async with batch:
        async for event in batch:
            if isinstance(event, Finished):
                finished.append(event.index)

    assert [outcome.text for outcome in batch.outcomes] == ["slow", "fast"]
    assert finished == [1, 0]


@pytest.mark.parametrize(("limit", "count"), [(3, 3), (2, 4), (8, 30), (1, 3)])
async def test_at_most_max_parallel_calls_run_at_once(limit: int, count: int) -> None:
    """EXE-2, AT-67: the peak is the limit, never more."""
    running, peak = 0, 0
    full = anyio.Event()

    async def work(_: dict[str, object], __: Context) -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        if running == min(limit, count):
            full.set()
        await full.wait()
        await anyio.lowlevel.checkpoint()
        running -= 1

    outcomes = await Executor(raws(work), max_parallel=limit).run(calls("work", count))

    assert peak == min(limit, count)
    assert all(isinstance(outcome, Completed) for outcome in outcomes)


@pytest.mark.parametrize("how", ["executor", "one tool"])
async def test_a_sequential_batch_runs_one_call_at_a_time_in_order(how: str) -> None:
    """EXE-3, AT-68: peak 1, ends in the model's order."""
    running, order = 0, []

    async def work(arguments: dict[str, object], _: Context) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await anyio.lowlevel.checkpoint()
        order.append(arguments["i"])
        running -= 1

    tools = [raw("work", work), raw("chain", work, sequential=how == "one tool")]
    batch = [*calls("work", 3), ToolCall.of("chain", {"i": 3}), ToolCall.of("work", {"i": 4})]
    outcomes = await Executor(tools, sequential=how == "executor").run(batch)

    assert order == [0, 1, 2, 3, 4]
    assert all(isinstance(outcome, Completed) for outcome in outcomes)


async def test_calls_that_share_a_state_keep_order_while_others_run_beside_them() -> None:
    """EXE-3, AT-77: two shell calls in order while three reads meet at a barrier."""
    met, arrived, order = anyio.Event(), 0, []

    async def read(_: dict[str, object], __: Context) -> None:
        nonlocal arrived
        arrived += 1
        if arrived == 3:
            met.set()
        await met.wait()

    async def shell(arguments: dict[str, object], _: Context) -> None:
        order.append(("in", arguments["i"]))
        await met.wait()
        order.append(("out", arguments["i"]))

    tools = [raw("read", read), raw("shell", shell, uses="shell:session")]
    batch = [
        ToolCall.of("shell", {"i": 0}),
        *(ToolCall.of("read") for _ in range(3)),
        ToolCall.of("shell", {"i": 1}),
    ]
    await Executor(tools).run(batch)

    assert order == [("in", 0), ("out", 0), ("in", 1), ("out", 1)]


async def test_readers_of_a_shared_state_run_side_by_side_and_a_writer_waits_for_them() -> None:
    """EXE-3: `Shared` calls meet; the exclusive one comes after both."""
    met, reading, seen = anyio.Event(), 0, []

    async def read(_: dict[str, object], __: Context) -> None:
        nonlocal reading
        reading += 1
        if reading == 2:
            met.set()
        await met.wait()
        reading -= 1

    async def write(_: dict[str, object], __: Context) -> None:
        seen.append(reading)

    tools = [raw("read", read, uses=Shared("repo")), raw("write", write, uses="repo")]
    await Executor(tools).run([ToolCall.of("read"), ToolCall.of("read"), ToolCall.of("write")])

    assert seen == [0]


async def test_uses_are_computed_from_validated_arguments() -> None:
    """EXE-3, EX-06: the tool's own normalisation decides what conflicts."""
    order = []

    async def edit(arguments: dict[str, object], _: Context) -> None:
        order.append(arguments["path"])
        await anyio.lowlevel.checkpoint()
        order.append(arguments["path"])

    def file(arguments: dict[str, object]) -> str:
        return f"file:{str(arguments['path']).removeprefix('./')}"

    batch = [ToolCall.of("edit", {"path": path}) for path in ("a", "./a", "b")]
    outcomes = await Executor([raw("edit", edit, uses=file)]).run(batch)

    assert all(isinstance(outcome, Completed) for outcome in outcomes)
    assert [path for path in order if path != "b"] == ["a", "a", "./a", "./a"]


@pytest.mark.parametrize("answer", [RuntimeError, 7, [""], object()])
async def test_a_uses_function_that_breaks_refuses_its_call_alone(answer: object) -> None:
    """FAIL-6: raised or nonsense is `unavailable`; the tool did not run, the others did."""
    ran = []

    def uses(arguments: dict[str, object]) -> Use | None:
        if arguments["i"] != 1:
            return None
        if answer is RuntimeError:
            raise RuntimeError("private")
        return cast("Use", answer)

    async def work(arguments: dict[str, object], _: Context) -> None:
        ran.append(arguments["i"])

    outcomes = await Executor([raw("work", work, uses=uses)]).run(calls("work", 3))

    assert ran == [0, 2]
    assert isinstance(outcomes[1], Rejected)
    assert outcomes[1].kind == "unavailable"
    assert "private" not in outcomes[1].text
    assert outcomes[1].reference is not None


async def test_a_uses_function_that_never_ends_refuses_its_call_alone() -> None:
    """FAIL-6: past `hook_timeout` the call is `unavailable`, and the others go on."""
    forever, ran = threading.Event(), []

    def uses(arguments: dict[str, object]) -> str:
        if arguments["i"] == 1:
            forever.wait()
        return "state"

    async def work(arguments: dict[str, object], _: Context) -> None:
        ran.append(arguments["i"])

    tools = Executor([raw("work", work, uses=uses)], hook_timeout=0.05)
    try:
        outcomes = await tools.run(calls("work", 3))
    finally:
        forever.set()

    assert ran == [0, 2]
    assert [type(outcome) for outcome in outcomes] == [Completed, Rejected, Completed]
    assert cast("Rejected", outcomes[1]).kind == "unavailable"


async def test_one_failing_call_leaves_its_siblings_alone() -> None:
    """EXE-5, EX-01, AT-70: four outcomes in order; the batch does not raise."""

    async def ok(arguments: dict[str, object], _: Context) -> object:
        await anyio.lowlevel.checkpoint()
        return arguments["i"]

    async def bad(_: dict[str, object], __: Context) -> None:
        raise ValueError("nope")

    batch = [
        ToolCall.of("ok", {"i": 1}),
        ToolCall.of("bad"),
        ToolCall.of("ok", {"i": 2}),
        ToolCall.of("ok", {"i": 3}),
    ]
    outcomes = await Executor(raws(ok, bad)).run(batch)

    assert [outcome.text for outcome in outcomes if isinstance(outcome, Completed)] == list("123")
    assert isinstance(outcomes[1], Unknown)
    assert outcomes[1].reason == "raised"
    assert "nope" not in outcomes[1].text


async def test_a_repeated_call_id_runs_once_and_the_later_call_is_refused() -> None:
    """EXE-5, ADM-5: the first stands."""
    batch = [ToolCall.of("echo", {"n": n}, id="same") for n in (1, 2)]
    outcomes = await Executor([echo()]).run(batch)

    assert outcomes[0].text == '{"n":1}'
    assert isinstance(outcomes[1], Rejected)
    assert outcomes[1].kind == "duplicate_id"


async def test_only_the_exact_name_runs_and_near_names_are_told() -> None:
    """EX-08, ADM-5: nothing but `get_sites` runs; the nearest real names are listed."""
    names = ("list_sites", "functions.get_sites", "get_sites<|channel|>json", "GET_SITES")
    tools = [echo("get_sites"), echo("get_tools")]
    batch = [ToolCall.of(name) for name in (*names, "get_sites")]
    outcomes = await Executor(tools).run(batch)

    assert [type(outcome) for outcome in outcomes] == [Rejected] * 4 + [Completed]
    for outcome in outcomes[:4]:
        assert isinstance(outcome, Rejected)
        assert outcome.kind == "unknown_tool"
        assert '"get_sites"' in outcome.text


async def test_a_name_near_none_is_answered_with_the_names_that_there_are() -> None:
    """EX-08: as long as they are few, so that a model does not guess again."""
    outcomes = await Executor([echo("one"), echo("two")]).run([ToolCall.of("xyzzy")])
    many = Executor([echo(f"tool_{index}") for index in range(50)])
    refused = (await many.run([ToolCall.of("xyzzy")]))[0]

    assert outcomes[0].text == "Error: unknown tool: there is no tool xyzzy; there is one, two"
    assert refused.text == "Error: unknown tool: there is no tool xyzzy"


async def test_an_empty_batch_has_no_outcomes_and_no_events() -> None:
    """AT-73: nothing in, nothing out."""
    async with Executor(raws()).batch([]) as batch:
        events = [event async for event in batch]

    assert events == []
    assert batch.outcomes == ()
    assert batch.termination == "none"


async def test_an_empty_id_is_given_one() -> None:
    """EXE-1: each event carries the id that the call was given."""
    batch = Executor([echo()]).batch([ToolCall(id="", name="echo")])
    async with batch:
        ids = {event.call.id async for event in batch}

    assert len(ids) == 1
    assert ids != {""}


async def test_started_comes_after_on_dispatch_and_finished_once_and_last() -> None:
    """EXE-1, EXE-4, AT-79: hook, `Started`, tool, `Finished`."""
    story: list[str] = []

    async def hook(context: Context) -> None:
        story.append(f"hook {context.call_id}")

    async def work(_: dict[str, object], context: Context) -> None:
        story.append(f"tool {context.call_id}")

    batch = Executor(raws(work), on_dispatch=hook).batch([ToolCall.of("work", id="a")])
    async with batch:
        async for event in batch:
            story.append(type(event).__name__)

    assert story.index("hook a") < story.index("tool a")
    assert [part for part in story if part[0].isupper()] == ["Started", "Finished"]


@pytest.mark.parametrize("plain", [True, False])
async def test_a_hook_that_raises_refuses_the_call_before_the_tool(plain: bool) -> None:
    """EXE-4, FAIL-6, AT-79: `unavailable`, and the tool never ran."""
    ran = []

    async def work(arguments: dict[str, object], _: Context) -> None:
        ran.append(str(arguments["i"]))

    def plain_hook(context: Context) -> None:
        if context.call_id == "c1":
            raise RuntimeError("private")

    async def async_hook(context: Context) -> None:
        plain_hook(context)

    hook = plain_hook if plain else async_hook
    outcomes = await Executor(raws(work), on_dispatch=hook).run(calls("work", 3))

    assert sorted(ran) == ["0", "2"]
    assert isinstance(outcomes[1], Rejected)
    assert outcomes[1].kind == "unavailable"
    assert "private" not in outcomes[1].text


async def test_a_hook_that_never_ends_refuses_the_call() -> None:
    """FAIL-6: a hook past `hook_timeout` is `unavailable`."""

    async def hook(_: Context) -> None:
        await anyio.sleep_forever()

    outcomes = await Executor([echo()], on_dispatch=hook, hook_timeout=0.01).run(calls("echo", 1))

    assert isinstance(outcomes[0], Rejected)
    assert outcomes[0].kind == "unavailable"


async def test_progress_arrives_in_order_and_the_last_before_finished() -> None:
    """EXE-8, AT-69: what is unread is replaced by what is newer; the last always comes."""

    async def work(_: dict[str, object], context: Context) -> None:
        for step in range(5):
            context.progress(step, 5, f"step {step}")
            await anyio.lowlevel.checkpoint()

    events = []
    async with Executor(raws(work)).batch([ToolCall.of("work")]) as batch:
        async for event in batch:
            events.append(event)

    steps = [event.progress or 0 for event in events if isinstance(event, Progressed)]
    assert steps == sorted(steps)
    assert steps[-1] == 4
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    assert isinstance(events[-2], Progressed)
    assert events[-2].message == "step 4"


async def test_progress_of_a_plain_function_comes_from_its_thread() -> None:
    """EXE-8, FN-7: a reader that waits is woken by an update from a thread."""
    seen = threading.Event()

    def work(_: dict[str, object], context: Context) -> str:
        context.progress(1, 2)
        assert seen.wait(20)
        return "done"

    events = []
    async with Executor(raws(work)).batch([ToolCall.of("work")]) as batch:
        async for event in batch:
            events.append(event)
            if isinstance(event, Progressed):
                seen.set()

    assert [type(event) for event in events] == [Started, Progressed, Finished]


async def test_progress_that_is_not_finite_or_goes_back_is_dropped_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """EXE-8: NaN, infinity and less than before never arrive."""

    async def work(_: dict[str, object], context: Context) -> None:
        for number in (1.0, float("nan"), 0.5, float("inf"), 2.0):
            context.progress(number)
            await anyio.lowlevel.checkpoint()

    steps = []
    async with Executor(raws(work)).batch([ToolCall.of("work")]) as batch:
        async for event in batch:
            if isinstance(event, Progressed):
                steps.append(event.progress)

    assert set(steps) <= {1.0, 2.0}
    assert steps[-1] == 2.0
    assert sum("dropped" in record.message for record in caplog.records) == 3


async def test_updates_after_the_call_has_ended_are_not_delivered() -> None:
    """EXE-1, AT-74: nothing for a call after its `Finished`, and no deadlock."""
    contexts = []

    async def work(_: dict[str, object], context: Context) -> None:
        contexts.append(context)

    async with Executor(raws(work)).batch([ToolCall.of("work")]) as batch:
        events = [event async for event in batch]
        contexts[0].progress(1)
        more = [event async for event in batch]

    assert [type(event) for event in events] == [Started, Finished]
    assert more == []


async def test_records_are_kept_while_the_tool_still_runs() -> None:
    """REC-1, AT-75: the record is there when `record` returns, exactly as given."""
    recorder = MemoryRecorder()

    async def work(arguments: dict[str, object], context: Context) -> bool:
        await context.record("test:made", {"n": 2**60 + 1, "arguments": arguments})
        return len(recorder.of(context.call_id)) == 1

    outcomes = await Executor(raws(work), recorder=recorder).run(
        [ToolCall.of("work", {"a": 1}, id="x")]
    )

    assert outcomes[0].text == "true"
    assert recorder.records[0].data == {"n": 2**60 + 1, "arguments": {"a": 1}}


async def test_a_thread_records_with_the_blocking_twin_and_each_checks_its_side() -> None:
    """REC-1: `record_blocking` works in a thread and refuses the loop with a sentence."""
    recorder = MemoryRecorder()

    def thread(_: dict[str, object], context: Context) -> bool:
        context.record_blocking("test:thread", 1)
        return len(recorder.records) == 1

    async def loop(_: dict[str, object], context: Context) -> str:
        with pytest.raises(FerruleError, match=r"await context\.record"):
            context.record_blocking("test:loop", 1)
        return "refused"

    batch = [ToolCall.of("thread"), ToolCall.of("loop")]
    outcomes = await Executor(raws(thread, loop), recorder=recorder).run(batch)

    assert [outcome.text for outcome in outcomes] == ["true", "refused"]
    assert [kept.namespace for kept in recorder.records] == ["test:thread"]


async def test_a_recorders_error_reaches_the_tool() -> None:
    """REC-2, AT-85: what the recorder raises, `record` raises."""

    async def recorder(_: Context, __: object) -> None:
        raise OSError("disk full")

    async def work(_: dict[str, object], context: Context) -> str:
        with pytest.raises(OSError, match="disk full"):
            await context.record("test:lost")
        return "saw it"

    outcomes = await Executor(raws(work), recorder=recorder).run([ToolCall.of("work")])

    assert outcomes[0].text == "saw it"


async def test_without_a_recorder_a_record_does_nothing() -> None:
    """REC-1, AT-85, AT-86: a tool need not know whether records are kept."""

    async def work(_: dict[str, object], context: Context) -> bool:
        await context.record("test:nothing", 1)
        return context.has_recorder

    outcomes = await Executor(raws(work)).run([ToolCall.of("work")])

    assert outcomes[0].text == "false"


async def test_details_that_are_a_record_are_recorded_when_the_call_ends() -> None:
    """REC-1, AT-75: of a result and of a failure."""
    recorder = MemoryRecorder()

    async def good(_: dict[str, object], __: Context) -> Result:
        return Result(details=Record("test:good", data=1))

    async def bad(_: dict[str, object], __: Context) -> Result:
        raise Failure("no", details=Record("test:bad", data=2))

    await Executor(raws(good, bad), recorder=recorder).run(
        [ToolCall.of("good"), ToolCall.of("bad")]
    )

    assert sorted(kept.namespace for kept in recorder.records) == ["test:bad", "test:good"]


async def test_leaving_the_block_stops_what_runs_and_reports_every_call() -> None:
    """EXE-6, AT-72: cancelled and awaited; `outcomes` has them all."""
    cleaned: list[int] = []

    async def slow(arguments: dict[str, object], _: Context) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append(int(str(arguments["i"])))

    async def first(_: dict[str, object], __: Context) -> str:
        return "first"

    tools = Executor(raws(first, slow), max_parallel=3)
    batch = tools.batch([ToolCall.of("first"), *calls("slow", 6)])
    started = 0
    async with batch:
        async for event in batch:
            started += isinstance(event, Started) and event.call.name == "slow"
            if started == 2:
                break

    kinds = [type(outcome) for outcome in batch.outcomes]
    assert kinds[0] is Completed
    assert len(kinds) == 7
    assert sorted(cleaned) == sorted(
        index - 1 for index, kind in enumerate(kinds) if kind is Unknown
    )
    assert Cancelled in kinds
    assert set(kinds[1:]) == {Unknown, Cancelled}


async def test_an_error_in_the_block_stays_itself_and_stops_the_calls() -> None:
    """EXE-6, AT-72: the consumer's own exception is raised, not wrapped, after the calls ended."""
    cleaned = []

    async def slow(_: dict[str, object], __: Context) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append(True)

    batch = Executor(raws(slow)).batch([ToolCall.of("slow")])

    async def consume() -> None:
        async with batch:
            async for _ in batch:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await consume()

    assert cleaned == [True]
    assert isinstance(batch.outcomes[0], Unknown)
    assert batch.outcomes[0].reason == "cancelled"
    assert batch.outcomes[0].text == 'Error: tool "slow" was stopped; it may have taken effect'


async def test_cancelling_run_from_outside_stops_the_calls_first() -> None:
    """EXE-6, CLO-2: when `run` has been cancelled nothing runs any more."""
    running, cleaned = anyio.Event(), []

    async def slow(_: dict[str, object], __: Context) -> None:
        try:
            running.set()
            await anyio.sleep_forever()
        finally:
            cleaned.append(True)

    async with anyio.create_task_group() as group:
        group.start_soon(Executor(raws(slow)).run, [ToolCall.of("slow")])
        await running.wait()
        group.cancel_scope.cancel()

    assert cleaned == [True]


async def test_a_result_given_after_the_call_was_told_to_stop_stands() -> None:
    """CLO-2, scope 66: a tool may catch the cancellation and still give a result."""
    running = anyio.Event()

    async def slow(_: dict[str, object], __: Context) -> str:
        try:
            running.set()
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return "half of it"
        return "never"

    batch = Executor(raws(slow)).batch([ToolCall.of("slow")])
    async with batch:
        await running.wait()

    assert batch.outcomes[0].text == "half of it"


async def test_a_thread_that_asks_whether_it_is_cancelled_can_end_in_time() -> None:
    """FN-7: `context.cancelled` turns true in the thread."""
    running = threading.Event()

    def slow(_: dict[str, object], context: Context) -> str:
        running.set()
        while not context.cancelled:
            threading.Event().wait(0.001)
        return "ended early"

    batch = Executor(raws(slow)).batch([ToolCall.of("slow")])
    async with batch:
        await anyio.to_thread.run_sync(running.wait)

    assert batch.outcomes[0].text == "ended early"


async def test_a_thread_that_does_not_end_is_reported_and_not_waited_for() -> None:
    """EXE-6: after `grace` it is `Unknown("still_running")`."""
    running, release = threading.Event(), threading.Event()

    def stuck(_: dict[str, object], __: Context) -> None:
        running.set()
        release.wait()

    registry = Registry([raw("stuck", stuck)], grace=0.01)
    batch = Executor(registry).batch([ToolCall.of("stuck")])
    try:
        async with batch:
            await anyio.to_thread.run_sync(running.wait)
        assert isinstance(batch.outcomes[0], Unknown)
        assert batch.outcomes[0].reason == "still_running"
    finally:
        release.set()


async def test_a_task_that_does_not_end_is_reported_named_and_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """EXE-6: a shielded task is `still_running` after `grace`; leaving waits and says for whom."""
    running, ended = anyio.Event(), []

    async def stubborn(_: dict[str, object], __: Context) -> None:
        try:
            running.set()
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                while not any("does not end" in record.message for record in caplog.records):
                    await anyio.lowlevel.checkpoint()  # A log line sets no event.
            ended.append(True)

    registry = Registry([raw("stubborn", stubborn)], grace=0.01)
    batch = Executor(registry).batch([ToolCall.of("stubborn", id="x1")])
    async with batch:
        await running.wait()

    assert ended == [True]
    assert isinstance(batch.outcomes[0], Unknown)
    assert batch.outcomes[0].reason == "still_running"
    assert any('"stubborn", call "x1"' in record.message for record in caplog.records)


async def test_a_call_that_was_not_reached_says_that_it_did_not_run() -> None:
    """FAIL-6: cancelled before dispatch."""
    running = anyio.Event()

    async def slow(_: dict[str, object], __: Context) -> None:
        running.set()
        await anyio.sleep_forever()

    batch = Executor(raws(slow), max_parallel=1).batch(calls("slow", 2))
    async with batch:
        await running.wait()

    assert isinstance(batch.outcomes[1], Cancelled)
    assert batch.outcomes[1].text == 'Error: tool "slow" did not run: cancelled'


async def test_keyboard_interrupt_of_a_tool_is_raised_after_the_siblings_ended() -> None:
    """FAIL-6: siblings are stopped as when the block is left, then it is raised."""
    running, cleaned = anyio.Event(), []

    async def slow(_: dict[str, object], __: Context) -> None:
        try:
            running.set()
            await anyio.sleep_forever()
        finally:
            cleaned.append(True)

    async def interrupt(_: dict[str, object], __: Context) -> None:
        await running.wait()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await Executor(raws(slow, interrupt)).run([ToolCall.of("slow"), ToolCall.of("interrupt")])

    assert cleaned == [True]


async def test_keyboard_interrupt_of_a_function_that_says_what_a_call_uses_is_raised() -> None:
    """FAIL-6: it comes out as itself, in no group, and nothing of the batch has run."""
    ran = []

    def uses(_: dict[str, object]) -> list[Use]:
        raise KeyboardInterrupt

    async def tool(_: dict[str, object], __: Context) -> None:
        ran.append(True)

    with pytest.raises(KeyboardInterrupt):
        await Executor([raw("tool", tool, uses=uses)]).run([ToolCall.of("tool")])

    assert ran == []


async def test_keyboard_interrupt_ends_a_batch_whose_other_calls_still_wait() -> None:
    """FAIL-6, EXE-1: a reader gets one `Finished` for each call, and then the interrupt."""

    async def interrupt(_: dict[str, object], __: Context) -> None:
        raise KeyboardInterrupt

    finished = []

    async def consume() -> None:
        batch = Executor(raws(interrupt), max_parallel=1).batch(calls("interrupt", 3))
        async with batch:
            async for event in batch:
                if isinstance(event, Finished):
                    finished.append(type(event.outcome))

    with pytest.raises(KeyboardInterrupt):
        await consume()
    with pytest.raises(KeyboardInterrupt):
        await Executor(raws(interrupt), max_parallel=1).run(calls("interrupt", 3))

    assert sorted(kind.__name__ for kind in finished) == ["Cancelled", "Cancelled", "Unknown"]


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, MemoryError, StopIteration])
@pytest.mark.parametrize("plain", [True, False])
async def test_whatever_a_tool_raises_ends_that_call_alone(
    kind: type[BaseException], plain: bool
) -> None:
    """FAIL-6, EX-09: contained alike in the loop and in a thread."""

    def in_thread(_: dict[str, object], __: Context) -> None:
        raise kind

    async def in_loop(_: dict[str, object], __: Context) -> None:
        raise kind

    bad = raw("bad", in_thread if plain else in_loop)
    outcomes = await Executor([bad, echo()]).run([ToolCall.of("bad"), ToolCall.of("echo")])

    assert isinstance(outcomes[0], Unknown)
    assert isinstance(outcomes[1], Completed)


@pytest.mark.parametrize("replay", ["safe", lambda _: "safe"])
async def test_replay_safe_makes_a_private_error_a_failure(
    replay: Replay | Callable[[dict[str, object]], Replay],
) -> None:
    """FAIL-6: what may run again has not half happened; a word, or a function that says it."""

    async def read(_: dict[str, object], __: Context) -> None:
        raise RuntimeError("private")

    tools = [raw("read", read, replay=replay)]
    outcomes = await Executor(tools).run([ToolCall.of("read")])

    assert isinstance(outcomes[0], Failed)
    assert outcomes[0].text.startswith('Error: tool "read" failed (reference ')


async def test_errors_message_shows_private_text_to_the_model() -> None:
    """FAIL-4: for development only."""

    async def bad(_: dict[str, object], __: Context) -> None:
        raise RuntimeError("the reason")

    outcomes = await Executor(raws(bad), errors="message").run([ToolCall.of("bad")])

    assert "the reason" in outcomes[0].text


async def test_an_input_request_suspends_its_call_and_holds_nobody_back() -> None:
    """FAIL-6, EXE-5: a suspended call is no error and has nothing to read yet."""
    request = InputRequest("Go on?", schema={"type": "boolean"}, state={"n": 1})

    async def ask(_: dict[str, object], __: Context) -> InputRequest:
        return request

    tools = Executor([raw("ask", ask), echo()])
    outcomes = await tools.run([ToolCall.of("ask"), ToolCall.of("echo")])

    assert outcomes[0] == Suspended(request)
    assert outcomes[0].text == ""
    assert not outcomes[0].is_error
    assert isinstance(outcomes[1], Completed)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [((True, True), "all"), ((True, False), "some"), ((False, False), "none")],
)
async def test_terminate_stops_a_loop_only_when_every_call_asks(
    asked: tuple[bool, bool], expected: str
) -> None:
    """EXE-9."""

    async def work(arguments: dict[str, object], _: Context) -> Result:
        return Result(terminate=asked[int(str(arguments["i"]))])

    batch = Executor(raws(work)).batch(calls("work", 2))
    async with batch:
        async for _ in batch:
            pass

    assert batch.termination == expected


async def test_a_slow_reader_holds_the_workers_and_not_a_queue() -> None:
    """core-idioms I1: the queue of unread events stays bounded."""
    batch = Executor([echo()], max_parallel=2).batch(calls("echo", 500))
    most = 0
    async with batch:
        async for _ in batch:
            await anyio.lowlevel.checkpoint()
            most = max(most, len(batch._events))

    assert most <= 2 * 2 + 2 * 2
    assert len(batch.outcomes) == 500


async def test_a_batch_inside_a_tool_does_not_wait_for_its_parents_slot() -> None:
    """EXE-12."""
    inner = Executor([echo()], max_parallel=1)

    async def outer(_: dict[str, object], __: Context) -> str:
        return (await inner.run([ToolCall.of("echo", {"deep": True})]))[0].text

    outcomes = await Executor(raws(outer), max_parallel=1).run([ToolCall.of("outer")])

    assert outcomes[0].text == '{"deep":true}'


async def test_the_current_context_is_the_call_that_runs() -> None:
    """AT-75, API: `Context.current()` is the running call, in loop and thread; nothing outside."""

    async def in_loop(_: dict[str, object], context: Context) -> bool:
        return Context.current() is context

    def in_thread(_: dict[str, object], context: Context) -> bool:
        return Context.current() is context

    outcomes = await Executor(raws(in_loop, in_thread)).run(
        [ToolCall.of("in_loop"), ToolCall.of("in_thread")]
    )

    assert [outcome.text for outcome in outcomes] == ["true", "true"]
    with pytest.raises(LookupError):
        Context.current()


async def test_run_sync_where_a_loop_runs_names_what_to_write() -> None:
    """API: one sentence that names `await executor.run`."""
    with pytest.raises(FerruleError, match=r"await executor\.run"):
        Executor(raws()).run_sync([])


async def test_the_idempotency_key_belongs_to_one_call() -> None:
    """DUR-3: the same each time it is asked for, another for another call."""

    async def work(_: dict[str, object], context: Context) -> str:
        assert context.idempotency_key == context.idempotency_key
        return context.idempotency_key

    outcomes = await Executor(raws(work)).run(calls("work", 2))

    assert outcomes[0].text != outcomes[1].text


async def test_a_batch_leaves_no_task_behind() -> None:
    """EXE-6: what was started has ended when the block is left."""
    batch = Executor([echo()]).batch(calls("echo", 100))
    async with batch:
        async for _ in batch:
            pass

    assert not batch._crew
    assert batch._workers == 0


def test_run_sync_runs_where_no_loop_runs(caplog: pytest.LogCaptureFixture) -> None:
    """API: and a private error is written for the operator with its reference (FAIL-4)."""

    async def bad(_: dict[str, object], __: Context) -> None:
        raise RuntimeError("private")

    with caplog.at_level(logging.ERROR, logger="ferrule"):
        outcomes = Executor(raws(bad)).run_sync([ToolCall.of("bad", id="c9")])

    entry = caplog.records[0]
    assert isinstance(outcomes[0], Unknown)
    assert outcomes[0].reference is not None
    assert outcomes[0].reference in entry.getMessage()
    assert "c9" in entry.getMessage()
    assert entry.exc_info is not None
    assert "private" in str(entry.exc_info[1])


# ---- the plan ------------------------------------------------------------------------------------


async def test_a_plan_says_who_waits_for_whom_and_runs_nothing() -> None:
    """EXE-3, AT-80: computed from validated arguments; what is refused takes no part."""
    ran: list[str] = []
    shell = raw("shell", lambda _, __: ran.append("shell"), uses="shell")
    read = raw("read", lambda _, __: ran.append("read"), uses=lambda a: Shared(str(a["path"])))
    write = raw("write", lambda _, __: ran.append("write"), uses=lambda a: str(a["path"]))
    calls = [
        ToolCall.of("shell"),
        ToolCall.of("read", {"path": "a"}),
        ToolCall.of("nobody"),
        ToolCall.of("read", {"path": "a"}),
        ToolCall.of("write", {"path": "a"}),
        ToolCall.of("shell"),
        ToolCall.of("read", {"path": "b"}),
    ]

    plan = await Executor([shell, read, write]).plan(calls)
    chain = await Executor([shell, read, write], sequential=True).plan(calls)

    assert plan.after == ((), (), (), (), (1, 3), (0,), ())
    assert chain.after == ((), (0,), (), (1,), (3,), (4,), (5,))
    assert (await Executor([shell]).plan([])).after == ()
    assert ran == []


async def test_a_sequential_call_that_is_refused_makes_no_chain() -> None:
    """EXE-3: it takes no part, whether its arguments or what it says of itself refuse it."""

    def broken(_: dict[str, object]) -> str:
        raise ValueError

    async def work(_: dict[str, object], __: Context) -> None:
        raise AssertionError("a plan runs nothing")

    tools = [raw("chained", work, sequential=True, uses=broken), raw("free", work)]
    turn = [ToolCall.of("free"), ToolCall.of("chained"), ToolCall.of("free")]
    cut_off = ToolCall(id="cut", name="chained", arguments="{")

    assert (await Executor(tools).plan([*turn, cut_off])).after == ((), (), (), ())


async def test_started_says_how_long_a_call_waited_and_for_which() -> None:
    """EXE-3: the call whose end gave it its turn; nobody where it waited for a slot alone."""
    work = raw("work", lambda _, __: None, uses="state")
    executor = Executor([work, raw("free", lambda _, __: None)], max_parallel=1)
    calls = [ToolCall.of("work"), ToolCall.of("free"), ToolCall.of("work")]
    async with executor.batch(calls) as batch:
        started = {event.index: event async for event in batch if isinstance(event, Started)}

    assert [started[index].behind for index in range(3)] == [None, None, 0]
    assert 0 <= started[0].waited <= started[1].waited <= started[2].waited


# ---- listening -----------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [True, False])
async def test_progress_goes_to_the_executors_own_listener(plain: bool) -> None:
    """EXE-8, EXE-12, AT-69: in order, the last before the end, from `run` as from `batch`."""
    heard: list[tuple[str, float | None]] = []

    def listens(context: Context, progress: Progress) -> None:
        heard.append((context.call_id, progress.progress))

    async def listens_too(context: Context, progress: Progress) -> None:
        listens(context, progress)

    async def steps(_: dict[str, object], context: Context) -> str:
        for step in range(3):
            context.progress(step)
            await anyio.lowlevel.checkpoint()
        context.progress(3)
        return "done"

    executor = Executor([raw("steps", steps)], on_progress=listens if plain else listens_too)
    (outcome,) = await executor.run([ToolCall.of("steps", id="c1")])

    assert outcome.text == "done"
    assert [step for _, step in heard] == sorted({step for _, step in heard if step is not None})
    assert heard[-1] == ("c1", 3)


async def test_a_listener_that_raises_fails_no_call(caplog: pytest.LogCaptureFixture) -> None:
    """EXE-8, PR-03: it is logged, and the tool hears nothing of it."""

    async def steps(_: dict[str, object], context: Context) -> str:
        context.progress(1)
        return "done"

    async def listens(_: Context, __: Progress) -> None:
        raise RuntimeError("no screen")

    (outcome,) = await Executor([raw("steps", steps)], on_progress=listens).run(
        [ToolCall.of("steps")]
    )

    assert outcome.text == "done"
    assert any("on_progress broke" in record.getMessage() for record in caplog.records)


# ---- questions -----------------------------------------------------------------------------------


async def test_a_tool_asks_a_person_while_it_waits() -> None:
    """ASK-1: the answer comes checked and typed; a no and nobody are told apart."""
    questions: list[Question] = []

    async def asker(_: Context, question: Question) -> Accepted[object] | Declined:
        questions.append(question)
        if question.url is not None:
            return Accepted("ignored")
        return Accepted(3) if question.schema == {"type": "integer"} else Declined()

    answers: list[object] = []

    @tool
    async def asks(context: Context) -> None:
        answers.append(await context.ask("How many?", int))
        answers.append(await context.ask("Sure?"))
        answers.append(await context.ask("Sign in.", url="https://example.org/in"))

    @tool
    def asks_in_thread(context: Context) -> None:
        answers.append(context.ask_blocking("How many?", int))

    async def nobody() -> list[object]:
        await Executor([asks]).run([ToolCall.of("asks")])
        return answers[-3:]

    executor = Executor([asks, asks_in_thread], asker=asker)
    await executor.run([ToolCall.of("asks")])
    await executor.run([ToolCall.of("asks_in_thread")])

    assert answers == [Accepted(3), Declined("decline"), Accepted(None), Accepted(3)]
    assert questions[1] == Question("Sure?", schema={"type": "boolean"})
    assert questions[2] == Question("Sign in.", url="https://example.org/in")
    assert await nobody() == [Declined("cancel")] * 3


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (Accepted("many"), "the answer is not what was asked for: expected integer, got string"),
        (3, "an asker gives Accepted(…) or Declined(…), not int"),
        (RuntimeError("no line"), "no line"),
    ],
    ids=["type", "no answer", "raises"],
)
async def test_what_an_asker_gets_wrong_reaches_the_tool(given: object, says: str) -> None:
    """ASK-1: as an error in the tool, which may handle it."""

    async def asker(_: Context, __: Question) -> Accepted[object] | Declined:
        if isinstance(given, Exception):
            raise given
        return cast("Accepted[object]", given)

    @tool
    async def asks(context: Context) -> str:
        try:
            await context.ask("How many?", int)
        except Exception as error:  # noqa: BLE001  # whatever it is, its text is compared
            return str(error)
        return ""

    (outcome,) = await Executor([asks], asker=asker).run([ToolCall.of("asks")])

    assert outcome.text == says


async def test_a_question_that_cannot_be_is_refused_where_it_is_asked() -> None:
    """ASK-1: no message, no web address; and from the wrong side of the loop."""
    for message, url in (("", None), ("a", "file:///etc/passwd")):
        with pytest.raises(InvalidValue, match="a Question"):
            Question(message, url=url)
    with pytest.raises(FerruleError, match=r"here use `await context.ask\(…\)`"):
        Context.of(ToolCall.of("a")).ask_blocking("Sure?")


async def test_a_record_on_a_wrapped_failure_is_kept() -> None:
    """REC-1, FAIL-2: as on the failure itself; another error's is not looked for."""
    recorder = MemoryRecorder()

    async def wraps(_: dict[str, object], __: Context) -> None:
        raise ValueError from Failure("no", details=Record("a:b", data=1))

    (outcome,) = await Executor([raw("wraps", wraps)], recorder=recorder).run(
        [ToolCall.of("wraps")]
    )

    assert outcome.text == "Error: no"
    assert [(kept.namespace, kept.data) for kept in recorder.records] == [("a:b", 1)]
