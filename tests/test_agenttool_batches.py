"""
Lines 66 to 86 of another implementation's checklist: batches, `on_dispatch` and records.

Each line has a test whose docstring names it, `AT-66` to `AT-86`: here, or where the rule itself
is tested. The contract overrules some of them, wholly or in part. What holds instead:

- AT-69: not every update is an event. Of each call the newest unread one is kept, in order, the
  last always before `Finished`; the executor's `on_progress` hears the same ones (EXE-8).
- AT-70: there is no error class and no public message of what a tool raised. The call is `Unknown`
  with a reference, and the traceback is in the operator's log; the others go on (FAIL-6).
- AT-71: no call without a tool can be given. A name that nobody has is `Rejected("unknown_tool")`,
  and a tool that is none is refused before any call.
- AT-76: a recorder is given and never found in the surroundings: an executor without one has none,
  also within a call whose executor has one (REC-2).
- AT-78, AT-80: `plan` is a graph and no list of chains, and says nothing of slots: `max_parallel=1`
  leaves it as it is, and the calls still run in the model's order where all may (EXE-2, EXE-3).
- AT-81: a call ends once. What a host gets beside an error is in the error: the `details` of a
  `Failure`, or the evidence of a `CallError` (FAIL-1, FAIL-3).
- AT-82 to AT-86: what is recorded is a `Record`, made of a namespace and JSON; it cannot be made of
  anything else, so nothing is looked for in other values. `has_recorder` says whether records are
  kept.
"""

import logging
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import pytest
from pydantic import BaseModel

from ferrule import (
    Authorization,
    Batch,
    CallError,
    Cancelled,
    Completed,
    Context,
    Event,
    Executor,
    Failed,
    Failure,
    Finished,
    Guard,
    InvalidTool,
    Progress,
    Progressed,
    Record,
    Rejected,
    Result,
    Shared,
    Started,
    Tool,
    ToolCall,
    Unknown,
    record_of,
    tool,
)
from ferrule.testing import MemoryRecorder
from support import calls, echo, raw, raws

pytestmark = pytest.mark.anyio


async def taken(batch: Batch) -> list[Event]:
    """Return all events of a batch."""
    async with batch:
        return [event async for event in batch]


def finals(events: list[Event]) -> list[int]:
    """Return the calls in the order in which they ended."""
    return [event.index for event in events if isinstance(event, Finished)]


# ---- order and bounds ----------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "peak"), [(3, 3), (8, 8), (20, 8)])
async def test_eight_calls_run_at_once_where_nobody_says_otherwise(count: int, peak: int) -> None:
    """AT-67, EXE-2: three meet under the default limit, and of twenty no ninth comes in."""
    met, running, most = anyio.Event(), 0, 0

    async def work(_: dict[str, object], __: Context) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == peak:
            met.set()
        await met.wait()
        await anyio.lowlevel.checkpoint()
        running -= 1

    await Executor(raws(work)).run(calls("work", count))

    assert most == peak


@pytest.mark.parametrize("how", ["executor", "one tool", "one slot"])
async def test_calls_that_run_one_by_one_end_in_the_models_order(how: str) -> None:
    """AT-68, AT-78, EXE-2, EXE-3: though each takes less time than the one before it."""

    async def work(arguments: dict[str, object], _: Context) -> None:
        for _turn in range(10 - int(str(arguments["i"]))):
            await anyio.lowlevel.checkpoint()

    executor = Executor(
        [raw("work", work, sequential=how == "one tool")],
        sequential=how == "executor",
        max_parallel=1 if how == "one slot" else 8,
    )
    events = await taken(executor.batch(calls("work", 6)))

    assert finals(events) == [0, 1, 2, 3, 4, 5]


async def test_a_sequential_tool_that_names_a_state_is_one_chain_with_all_the_others() -> None:
    """AT-78, EXE-3: that it is sequential says more than what it uses."""
    tools = [raw("shell", print, uses="shell", sequential=True), raw("free", print)]
    batch = [ToolCall.of(name) for name in ("free", "shell", "free", "shell")]

    assert (await Executor(tools).plan(batch)).after == ((), (0,), (1,), (2,))


@pytest.mark.parametrize("most", [1, 2, 8])
async def test_a_batch_does_what_its_plan_says(most: int) -> None:
    """AT-80, EXE-3: each call begins once what it waits for has ended; no calls, an empty plan."""
    over: set[int] = set()
    seen: dict[int, set[int]] = {}

    async def work(arguments: dict[str, object], _: Context) -> None:
        index = int(str(arguments["i"]))
        seen[index] = set(over)
        for _turn in range(index % 3):
            await anyio.lowlevel.checkpoint()
        over.add(index)

    def uses(arguments: dict[str, object]) -> str | Shared | None:
        index = int(str(arguments["i"]))
        return [None, "a", Shared("a"), "b", Shared("a")][index % 5]

    executor = Executor([raw("work", work, uses=uses)], max_parallel=most)
    after = (await executor.plan(calls("work", 15))).after
    outcomes = await executor.run(calls("work", 15))

    assert (await executor.plan([])).after == ()
    assert after[:8] == ((), (), (1,), (), (1,), (), (2, 4), (6,))
    assert all(set(after[index]) <= before for index, before in seen.items())
    assert sorted(seen) == list(range(15))
    assert all(isinstance(outcome, Completed) for outcome in outcomes)


# ---- stopping ------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("described", [False, True])
async def test_where_the_caller_was_cancelled_before_every_call_is_cancelled(
    described: bool, guarded: bool
) -> None:
    """AT-73, AUT-2, FAIL-6: no tool runs, no policy and no trait function is asked."""
    asked: list[str] = []

    async def work(_: dict[str, object], __: Context) -> None:
        asked.append("tool")

    def uses(_: dict[str, object]) -> str:
        asked.append("uses")
        return "state"

    async def policy(_: Authorization) -> bool:
        asked.append("policy")
        return True

    made: Tool = raw("work", work, uses=uses if described else None)
    executor = Executor([Guard(made, policy) if guarded else made])
    batch = executor.batch(calls("work", 100))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await taken(batch)
    with anyio.CancelScope() as run_scope:
        run_scope.cancel()
        await executor.run(calls("work", 3))

    assert scope.cancelled_caught
    assert run_scope.cancelled_caught
    assert batch.outcomes == (Cancelled("cancelled", tool="work"),) * 100
    assert asked == []


async def test_updates_of_a_thread_that_outlives_its_call_reach_nobody() -> None:
    """AT-74, EXE-1: the tool has returned and its own thread goes on; no event, and no deadlock."""
    may_tell, told = threading.Event(), threading.Event()
    heard: list[Progress] = []

    def tell(context: Context) -> None:
        may_tell.wait()
        for step in range(3):
            context.progress(step)
        told.set()

    def work(_: dict[str, object], context: Context) -> str:
        threading.Thread(target=tell, args=(context,)).start()
        return "done"

    async def listens(_: Context, update: Progress) -> None:
        heard.append(update)

    batch = Executor(raws(work), on_progress=listens).batch([ToolCall.of("work")])
    events: list[Event] = []
    try:
        async with batch:
            async for event in batch:
                events.append(event)
                if isinstance(event, Finished):
                    may_tell.set()
                    await anyio.to_thread.run_sync(told.wait)
    finally:
        may_tell.set()

    assert [type(event) for event in events] == [Started, Finished]
    assert heard == []
    assert batch.outcomes[0].text == "done"


# ---- on_dispatch ---------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [True, False])
async def test_on_dispatch_is_called_when_a_call_has_slot_and_turn_and_once(plain: bool) -> None:
    """AT-79, EXE-4: never before an earlier call of its chain ended, never for two in one slot."""
    story: list[str] = []

    def noted(context: Context) -> None:
        story.append(f"hook {context.call_id} {context.tool}")

    async def noted_too(context: Context) -> None:
        await anyio.lowlevel.checkpoint()
        noted(context)

    async def work(_: dict[str, object], context: Context) -> None:
        story.append(f"in {context.call_id}")
        await anyio.lowlevel.checkpoint()
        story.append(f"out {context.call_id}")

    tools = [raw("work", work, uses="state"), raw("free", work)]
    executor = Executor(tools, on_dispatch=noted if plain else noted_too, max_parallel=1)
    batch = [ToolCall.of(name, id=f"c{i}") for i, name in enumerate(["work", "work", "free"])]
    await executor.run(batch)

    by_call = [[f"hook {call.id} {call.name}", f"in {call.id}", f"out {call.id}"] for call in batch]
    assert sorted(by_call) == sorted([story[0:3], story[3:6], story[6:9]])
    assert len(story) == 9


async def test_on_dispatch_is_not_called_for_a_call_that_is_cancelled_first() -> None:
    """AT-79, EXE-4: it waits for its turn, for a slot, or for a permit when the block is left."""
    hooked: list[str] = []
    running, asking = anyio.Event(), anyio.Event()

    async def hook(context: Context) -> None:
        hooked.append(context.call_id)

    async def work(_: dict[str, object], __: Context) -> None:
        running.set()
        await anyio.sleep_forever()

    async def policy(_: Authorization) -> bool:
        asking.set()
        await anyio.sleep_forever()
        return True

    tools: list[Tool] = [
        raw("work", work, uses="state"),
        raw("free", work),
        Guard(raw("guarded", work), policy),
    ]
    batch = Executor(tools, on_dispatch=hook, max_parallel=1).batch(
        [ToolCall.of(name, id=name) for name in ("work", "free", "guarded")]
        + [ToolCall.of("work", id="behind")]
    )
    async with batch:
        await running.wait()
        await asking.wait()

    assert hooked == ["work"]
    assert [type(outcome) for outcome in batch.outcomes] == [Unknown, *[Cancelled] * 3]


async def test_an_update_of_on_dispatch_arrives_as_progress() -> None:
    """AT-79, EXE-8: also of a call that it then refuses; the tool hears nothing of it."""

    async def hook(context: Context) -> None:
        context.progress(message=f"about to run {context.call_id}")
        if context.call_id == "no":
            raise RuntimeError("private")

    executor = Executor([echo()], on_dispatch=hook)
    events = await taken(
        executor.batch([ToolCall.of("echo", id="yes"), ToolCall.of("echo", id="no")])
    )

    told = {event.call.id: event.message for event in events if isinstance(event, Progressed)}
    assert told == {"yes": "about to run yes", "no": "about to run no"}
    assert {event.call.id for event in events if isinstance(event, Started)} == {"yes"}
    assert sorted(finals(events)) == [0, 1]


async def test_the_operator_reads_of_which_call_a_hook_broke(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """AT-79, FAIL-4, FAIL-6: the call's id and a traceback that leads to the hook."""

    async def breaking_hook(_: Context) -> None:
        raise RuntimeError("private")

    with caplog.at_level(logging.ERROR, logger="ferrule"):
        [outcome] = await Executor([echo()], on_dispatch=breaking_hook).run(
            [ToolCall.of("echo", id="c7")]
        )

    assert isinstance(outcome, Rejected)
    assert (
        outcome.text == f'Error: tool "echo" is not available now (reference {outcome.reference})'
    )
    assert f'reference {outcome.reference}: tool "echo", call "c7" was not available' in caplog.text
    assert "in breaking_hook" in caplog.text


# ---- what a host gets beside an error ------------------------------------------------------------


async def test_no_traceback_and_no_message_of_what_a_tool_raised_is_read() -> None:
    """AT-70, FAIL-6: one line with a reference, and the error itself for the host."""

    async def breaks(_: dict[str, object], __: Context) -> None:
        raise RuntimeError("oh no")

    outcome, other = await Executor([*raws(breaks), echo()]).run(
        [ToolCall.of("breaks"), ToolCall.of("echo")]
    )

    assert isinstance(outcome, Unknown)
    assert outcome.text == (
        f'Error: tool "breaks" failed; it may have taken effect (reference {outcome.reference})'
    )
    assert repr(outcome.error) == "RuntimeError('oh no')"
    assert isinstance(other, Completed)


async def test_a_call_always_has_a_tool_or_is_refused() -> None:
    """AT-71, ADM-5: a name that nobody has ends that call alone; what is no tool is none before."""
    unknown, known = await Executor([echo()]).run([ToolCall.of("nobody"), ToolCall.of("echo")])

    assert isinstance(unknown, Rejected)
    assert unknown.kind == "unknown_tool"
    assert isinstance(known, Completed)
    with pytest.raises(InvalidTool, match="NoneType is not a tool"):
        Executor([None])  # type: ignore[list-item]  # the mistake


async def test_details_and_evidence_reach_the_reader_of_events() -> None:
    """AT-81, FAIL-1, FAIL-3: in the error, on the event of the call's only ending."""
    handle = object()

    async def fails(_: dict[str, object], __: Context) -> None:
        raise Failure("no", details=handle, terminate=True)

    async def breaks(_: dict[str, object], __: Context) -> None:
        raise CallError(Result.of("half")) from OSError()

    executor = Executor(raws(fails, breaks))
    events = await taken(executor.batch([ToolCall.of("fails"), ToolCall.of("breaks")]))
    ended = {event.call.name: event.outcome for event in events if isinstance(event, Finished)}

    failed, broke = ended["fails"], ended["breaks"]
    assert isinstance(failed, Failed)
    assert (failed.failure.details, failed.terminate) == (handle, True)
    assert isinstance(broke, Unknown)
    assert broke.evidence == Result.of("half")


# ---- records -------------------------------------------------------------------------------------


class Looks:
    """What looks like a record and is none."""

    namespace = "shell:process"
    data = 1


@pytest.mark.parametrize(
    "details",
    [None, Progress(progress=1), 5, "text", {"namespace": "a:b", "data": 1}, Looks(), Record],
    ids=lambda details: type(details).__name__,
)
async def test_details_that_are_no_record_are_recorded_by_nobody(details: object) -> None:
    """AT-82, AT-85, REC-1: nothing is kept and nothing is wrong; the host has them all the same."""
    recorder = MemoryRecorder()

    async def work(_: dict[str, object], __: Context) -> Result:
        return Result(details=details)

    [outcome] = await Executor(raws(work), recorder=recorder).run([ToolCall.of("work")])

    assert record_of(details) is None
    assert recorder.records == []
    assert isinstance(outcome, Completed)
    assert outcome.result.details is details


@dataclass
class Process:
    """A handle, as a dataclass."""

    pid: int
    argv: tuple[str, ...] = ("sh", "é")


class Struct(msgspec.Struct, rename="camel"):
    """A handle that is written under names of its own."""

    process_group: int


class Model(BaseModel):
    """A handle, as a model."""

    pid: int


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (Process(2**60), {"pid": 2**60, "argv": ["sh", "é"]}),
        (Struct(7), {"processGroup": 7}),
        (Model(pid=7), {"pid": 7}),
        ([Process(1, ())], [{"pid": 1, "argv": []}]),
        (None, None),
    ],
    ids=["dataclass", "struct", "model", "nested", "nothing"],
)
@pytest.mark.parametrize("when", ["meanwhile", "at the end", "in a failure"])
async def test_a_record_is_kept_exactly_whenever_it_is_given(
    when: str, data: object, kept: object
) -> None:
    """AT-75, AT-83, REC-1: the same namespace and JSON during the call, and when it ends."""
    recorder = MemoryRecorder()

    async def work(_: dict[str, object], context: Context) -> Result:
        if when == "at the end":
            return Result(details=Record("shell:process", data=data))
        if when == "in a failure":
            raise Failure("no", details=Record("shell:process", data=data))
        await context.record("shell:process", data)
        assert len(recorder.of(context.call_id)) == 1
        return Result()

    [outcome] = await Executor(raws(work), recorder=recorder).run([ToolCall.of("work", id="c1")])

    assert isinstance(outcome, Failed if when == "in a failure" else Completed)
    assert [(one.namespace, one.data) for one in recorder.of("c1")] == [("shell:process", kept)]
    record = Record("shell:process", data=data)
    assert record_of(record) is record


async def test_the_same_namespace_is_kept_meanwhile_and_at_the_end() -> None:
    """AT-75, REC-1: both, in this order; the later describes the end."""
    recorder = MemoryRecorder()

    async def work(_: dict[str, object], context: Context) -> Result:
        await context.record("shell:process", "begun")
        return Result(details=Record("shell:process", data="ended"))

    await Executor(raws(work), recorder=recorder).run([ToolCall.of("work")])

    assert [record.data for record in recorder.records] == ["begun", "ended"]


async def test_a_recorder_is_not_found_in_the_surroundings() -> None:
    """AT-76, AT-86, REC-2: a batch within a call has the recorder of its own executor, or none."""
    outer, inner = MemoryRecorder(), MemoryRecorder()

    async def within(_: dict[str, object], context: Context) -> bool:
        await context.record("test:within", 1)
        return context.has_recorder

    async def around(_: dict[str, object], context: Context) -> list[str]:
        texts = [str(context.has_recorder)]
        for recorder in (None, inner):
            executor = Executor(raws(within), recorder=recorder)
            texts += [outcome.text for outcome in await executor.run([ToolCall.of("within")])]
        await context.record("test:around", 1)
        return texts

    [outcome] = await Executor(raws(around), recorder=outer).run([ToolCall.of("around")])

    assert outcome.text == '["True","false","true"]'
    assert [record.namespace for record in outer.records] == ["test:around"]
    assert [record.namespace for record in inner.records] == ["test:within"]


Recording = Callable[[dict[str, object], Context], object]


def recordings() -> dict[str, Recording]:
    """Return each way in which a tool has something recorded, as tools that handle no error."""

    async def meanwhile(_: dict[str, object], context: Context) -> None:
        await context.record("test:lost", 1)

    def in_thread(_: dict[str, object], context: Context) -> None:
        context.record_blocking("test:lost", 1)

    async def at_the_end(_: dict[str, object], __: Context) -> Result:
        return Result(details=Record("test:lost", data=1))

    async def in_a_failure(_: dict[str, object], __: Context) -> None:
        raise Failure("no", details=Record("test:lost", data=1))

    return {
        function.__name__: function for function in (meanwhile, in_thread, at_the_end, in_a_failure)
    }


@pytest.mark.parametrize("how", recordings())
async def test_a_recorder_that_fails_leaves_its_call_unknown_and_no_other(how: str) -> None:
    """AT-85, FAIL-6, REC-2: `raised`, whoever recorded; the recorder was asked; siblings run."""
    lost: list[object] = []

    async def recorder(context: Context, record: Record) -> None:
        if context.call_id == "bad":
            lost.append(record.data)
            raise OSError("disk full")

    work = recordings()[how]
    executor = Executor([raw("work", work), echo()], recorder=recorder)
    bad, good, other = await executor.run(
        [
            ToolCall.of("work", id="bad"),
            ToolCall.of("work", id="good"),
            ToolCall.of("echo", {"n": 1}, id="other"),
        ]
    )

    assert lost == [1]
    assert isinstance(bad, Unknown)
    assert bad.reason == "raised"
    assert repr(bad.error) == "OSError('disk full')"
    assert "disk full" not in bad.text
    assert isinstance(good, Failed if how == "in_a_failure" else Completed)
    assert other.text == '{"n":1}'


async def test_a_recorder_that_never_ends_is_ended_by_the_time_limit_of_its_call() -> None:
    """FAIL-6, EXE-7: `timed_out`, as anything else that a tool waits for; siblings run."""

    async def recorder(_: Context, __: Record) -> None:
        await anyio.sleep_forever()

    @tool(timeout=0.02)
    async def work(context: Context) -> None:
        await context.record("test:lost", 1)

    late, other = await Executor([work, echo()], recorder=recorder).run(
        [ToolCall.of("work"), ToolCall.of("echo", {"n": 1})]
    )

    assert isinstance(late, Unknown)
    assert late.reason == "timed_out"
    assert other.text == '{"n":1}'


# ---- bad input -----------------------------------------------------------------------------------

MANY = 1_000_000


@pytest.mark.parametrize("plain", [False, True])
async def test_a_million_updates_cost_neither_memory_nor_the_others(plain: bool) -> None:
    """EXE-8: those of a task and of a thread; the last is told, at most one is ever unread."""
    unread: list[int] = []

    def tells(_: dict[str, object], context: Context) -> str:
        for step in range(MANY):
            context.progress(step)
        return "told"

    async def tells_too(arguments: dict[str, object], context: Context) -> str:
        return tells(arguments, context)

    tools = [raw("tells", tells if plain else tells_too), echo()]
    batch = Executor(tools).batch([ToolCall.of("tells"), ToolCall.of("echo", {"n": 1})])
    last: float | None = None
    async with batch:
        async for event in batch:
            unread.append(len(batch._events))
            if isinstance(event, Progressed):
                assert last is None or (event.progress or 0) > last
                last = event.progress

    assert last == MANY - 1
    assert max(unread) <= 4
    assert [outcome.text for outcome in batch.outcomes] == ["told", '{"n":1}']


async def test_progress_that_cannot_be_changes_no_ending() -> None:
    """EXE-8: NaN, infinity, backwards, beyond a double: dropped, and every call completes."""
    odd = (1.0, float("nan"), 0.5, float("-inf"), 10**400, -(10**400))

    def tells(_: dict[str, object], context: Context) -> str:
        for number in odd:
            context.progress(number)
            context.progress(2.0, total=number)
        return "told"

    executor = Executor([raw("tells", tells), echo()])
    events = await taken(executor.batch([ToolCall.of("tells"), ToolCall.of("echo", {"n": 1})]))

    told = [event for event in events if isinstance(event, Progressed)]
    assert {event.progress for event in told} <= {1.0, 2.0}
    assert told[-1].progress == 2.0
    ends = [event.outcome.text for event in events if isinstance(event, Finished)]
    assert sorted(ends) == ["told", '{"n":1}']


LARGE = 100_000_000


def large(how: str) -> object:
    """Return or raise 100 MB."""
    text = "x" * LARGE
    match how:
        case "text":
            return text
        case "structured":
            return {"text": text}
        case "bytes":
            return {"data": text.encode()}
        case "many":
            return ["x" * 1000] * (LARGE // 1000)
        case "failure":
            raise Failure(text)
        case "error":
            raise ValueError(text)
        case _:
            raise AssertionError(how)


@pytest.mark.parametrize(
    ("how", "kind", "reason"),
    [
        ("text", Unknown, "bad_result"),
        ("structured", Unknown, "bad_result"),
        ("bytes", Unknown, "bad_result"),
        ("many", Unknown, "bad_result"),
        ("failure", Failed, ""),
        ("error", Unknown, "raised"),
    ],
)
async def test_an_outcome_of_100_mb_is_its_own_calls_affair(
    how: str, kind: type[Unknown | Failed], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """
    FAIL-6, JSON-3, EXE-11: the ending that it names, a bounded text, and the others complete.

    It takes a few times its own size in memory, and as base64 a third more.
    """
    caplog.set_level(logging.CRITICAL, logger="ferrule")  # What a handler makes of it is its own.
    tools = [raw("large", lambda _, __: large(how)), echo()]
    batch = [ToolCall.of("echo", {"n": 1}), ToolCall.of("large"), ToolCall.of("echo", {"n": 2})]
    tracemalloc.start()
    try:
        before, outcome, after = await Executor(tools).run(batch)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most / LARGE < (7 if how == "bytes" else 5)
    assert type(outcome) is kind
    assert getattr(outcome, "reason", "") == reason
    assert len(outcome.text.encode()) <= 256 * 1024
    assert (before.text, after.text) == ('{"n":1}', '{"n":2}')


# ---- a policy that does not end ------------------------------------------------------------------


async def test_a_policy_that_does_not_end_is_waited_for_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """EXE-6: it swallows its cancellation; its call did not run, and a log line says who it is."""
    asking, ended, ran = anyio.Event(), [], []

    async def stubborn(_: Authorization) -> bool:
        asking.set()
        with anyio.move_on_after(20, shield=True):
            while not any("does not end" in record.message for record in caplog.records):
                await anyio.lowlevel.checkpoint()  # A log line sets no event.
        ended.append(True)
        return True

    executor = Executor([Guard(raw("work", lambda _, __: ran.append(1)), stubborn)])
    executor.registry.grace = 0.01
    batch = executor.batch([ToolCall.of("work", id="x1"), ToolCall.of("work", id="x1")])
    async with batch:
        await asking.wait()

    lines = [record.message for record in caplog.records if "does not end" in record.message]
    assert lines == [
        'a policy of tool "work", call "x1" does not end after it was cancelled; waiting for it'
    ]
    assert ended == [True]
    assert ran == []
    assert [type(outcome) for outcome in batch.outcomes] == [Cancelled, Rejected]


async def test_a_policy_that_ends_when_it_is_told_is_named_by_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """EXE-6: and nobody waits out `grace` for it, which would be a minute here."""
    asking = anyio.Event()

    async def policy(_: Authorization) -> bool:
        asking.set()
        await anyio.sleep_forever()
        return True

    executor = Executor([Guard(echo(), policy)])
    executor.registry.grace = 60
    batch = executor.batch(calls("echo", 3))
    with anyio.fail_after(30):
        async with batch:
            await asking.wait()

    assert [type(outcome) for outcome in batch.outcomes] == [Cancelled] * 3
    assert caplog.records == []


# ---- batches within tools ------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["task", "thread", "events"])
async def test_a_tool_runs_a_batch_of_the_executor_that_runs_it(how: str) -> None:
    """EXE-12: with one slot, taken by the tool itself; from a thread by `run_sync`."""

    async def in_task(_: dict[str, object], __: Context) -> str:
        return (await executor.run([ToolCall.of("echo", {"deep": True})]))[0].text

    def in_thread(_: dict[str, object], __: Context) -> str:
        return executor.run_sync([ToolCall.of("echo", {"deep": True})])[0].text

    async def by_events(_: dict[str, object], __: Context) -> str:
        events = await taken(executor.batch([ToolCall.of("echo", {"deep": True})]))
        return next(event.outcome.text for event in events if isinstance(event, Finished))

    function = {"task": in_task, "thread": in_thread, "events": by_events}[how]
    executor = Executor([raw("outer", function), echo()], max_parallel=1)
    with anyio.fail_after(30):
        outcomes = await executor.run([ToolCall.of("outer"), ToolCall.of("outer")])

    assert [outcome.text for outcome in outcomes] == ['{"deep":true}'] * 2


async def test_run_sync_in_a_tool_of_the_loop_says_what_to_write() -> None:
    """EXE-12, API: the loop is never held; the sentence is the tool's to read."""

    async def outer(_: dict[str, object], __: Context) -> str:
        try:
            Executor([echo()]).run_sync([ToolCall.of("echo")])
        except Exception as error:  # noqa: BLE001  # whatever it is, its text is compared
            return str(error)
        return ""

    [outcome] = await Executor(raws(outer)).run([ToolCall.of("outer")])

    assert outcome.text == "an event loop runs here: use `await executor.run(calls)`"


# ---- cancellations -------------------------------------------------------------------------------


async def cancellation() -> BaseException:
    """Return what the loop tells a task to stop with."""
    caught: list[BaseException] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.lowlevel.checkpoint()
        except BaseException as error:
            caught.append(error)
            raise
    return caught[0]


@pytest.mark.parametrize("plain", [False, True])
async def test_a_cancellation_that_nobody_asked_for_ends_its_call_alone(plain: bool) -> None:
    """FAIL-6, CLO-2: a tool raises one; `crashed`, and neither the batch nor a sibling is told."""
    stray, waiting = await cancellation(), anyio.Event()

    def in_thread(_: dict[str, object], __: Context) -> None:
        raise stray

    async def in_loop(_: dict[str, object], __: Context) -> None:
        raise stray

    async def sibling(_: dict[str, object], __: Context) -> str:
        await waiting.wait()
        await anyio.lowlevel.checkpoint()
        return "not told"

    executor = Executor([raw("stray", in_thread if plain else in_loop), raw("sibling", sibling)])
    batch = executor.batch([ToolCall.of("sibling"), ToolCall.of("stray"), ToolCall.of("sibling")])
    async with batch:
        async for event in batch:
            if isinstance(event, Finished) and event.call.name == "stray":
                waiting.set()

    other, outcome, another = batch.outcomes
    assert isinstance(outcome, Unknown)
    assert outcome.reason == "crashed"
    assert (other.text, another.text) == ("not told", "not told")


@pytest.mark.parametrize("times", [1, 3])
async def test_a_tool_that_swallows_its_cancellation_and_goes_on_is_ended(times: int) -> None:
    """CLO-2, EXE-6: told once or at every await; it completes if it ends in `grace`, as it does."""
    running, swallowed = anyio.Event(), []

    async def deaf(_: dict[str, object], __: Context) -> str:
        for _turn in range(times):
            try:
                running.set()
                await anyio.sleep(0.01)
            except BaseException:  # noqa: BLE001  # that is the fault
                swallowed.append(True)
        return "went on"

    batch = Executor(raws(deaf)).batch([ToolCall.of("deaf")])
    async with batch:
        await running.wait()

    assert swallowed
    assert batch.outcomes[0].text == "went on"


# ---- consumers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [Started, Progressed, Finished])
@pytest.mark.parametrize("plain", [False, True])
async def test_a_consumer_that_raises_at_any_event_leaves_nothing_running(
    at: type[Event], plain: bool
) -> None:
    """EXE-6: its error is raised as itself after every call has ended, and each has its outcome."""
    ended: list[str] = []

    async def in_loop(_: dict[str, object], context: Context) -> None:
        context.progress(1)
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(context.call_id)

    def in_thread(_: dict[str, object], context: Context) -> None:
        context.progress(1)
        while not context.cancelled:
            pass
        ended.append(context.call_id)

    executor = Executor([raw("waits", in_thread if plain else in_loop), echo()], max_parallel=3)
    batch = executor.batch([ToolCall.of("waits"), ToolCall.of("echo"), ToolCall.of("waits")])
    started: list[str] = []

    async def consume() -> None:
        async with batch:
            async for event in batch:
                if isinstance(event, Started) and event.call.name == "waits":
                    started.append(event.call.id)
                if type(event) is at:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await consume()

    assert len(batch.outcomes) == 3
    begun = [outcome for outcome in batch.outcomes if not isinstance(outcome, Cancelled)]
    assert set(started) <= set(ended)
    assert len(begun) == len(ended) + sum(o.text == "{}" for o in batch.outcomes)
    assert not batch._crew


@pytest.mark.parametrize("exits", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["tool", "thread", "block"])
async def test_an_exit_is_its_calls_ending_and_an_interrupt_is_the_users(
    where: str, exits: type[BaseException]
) -> None:
    """FAIL-6, EXE-6: of a tool and of the block; siblings are stopped first and have outcomes."""
    running, cleaned = anyio.Event(), []

    async def sibling(_: dict[str, object], __: Context) -> None:
        running.set()
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append(True)

    def in_thread(_: dict[str, object], __: Context) -> None:
        raise exits

    async def in_loop(arguments: dict[str, object], context: Context) -> None:
        await running.wait()
        in_thread(arguments, context)

    bad = raw("bad", in_thread if where == "thread" else in_loop)
    named = [ToolCall.of("sibling")] + [ToolCall.of("bad")] * (where != "block")
    batch = Executor([bad, raw("sibling", sibling)]).batch(
        [ToolCall(id=f"c{i}", name=call.name) for i, call in enumerate(named)]
    )

    async def consume() -> None:
        async with batch:
            await running.wait()
            async for event in batch:
                if where == "block":
                    raise exits
                if isinstance(event, Finished):
                    return

    if where == "block" or exits is KeyboardInterrupt:
        with pytest.raises(exits):
            await consume()
    else:
        await consume()

    assert cleaned == [True]
    assert [type(outcome) for outcome in batch.outcomes] == [Unknown] * len(named)
    assert getattr(batch.outcomes[-1], "reason", "") == (
        "cancelled" if where == "block" else "crashed"
    )
