"""A coroutine begun by hand, and what a batch makes of it: workers only where calls wait."""

import contextvars
import datetime as dt
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from ferrule import (
    Accepted,
    Approval,
    Completed,
    Context,
    Event,
    Executor,
    Failure,
    Finished,
    Guard,
    InputRequest,
    Leg,
    Outcome,
    Question,
    Record,
    Registry,
    Started,
    Tool,
    ToolCall,
    Traits,
    Unknown,
    tool,
)
from ferrule._backend import begin
from support import calls, raw, raws

pytestmark = pytest.mark.anyio

NOW = dt.datetime(2026, 12, 1, tzinfo=dt.UTC)


# ---- begun by hand ------------------------------------------------------------------------------


async def test_what_never_waits_has_ended_when_it_was_begun() -> None:
    """EXE-2: nobody else has had a turn, so nobody else need be there."""
    heard: list[str] = []

    async def inner() -> str:
        return "ended"

    async def steps() -> None:
        heard.append(await inner())

    assert begin(steps()) is None
    assert heard == ["ended"]


async def test_what_waits_goes_on_as_if_it_had_been_awaited() -> None:
    """EXE-10: each thing that it waits for comes to the loop, and each answer to it."""
    heard: list[object] = []
    open_now = anyio.Event()
    variable = contextvars.ContextVar("variable", default="nobody's")

    async def steps() -> None:
        variable.set("mine")
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
            heard.append("turn")
        await open_now.wait()
        with anyio.move_on_after(0) as scope:
            await anyio.sleep_forever()
        heard.append(scope.cancelled_caught)

    waiting = begin(steps())
    assert waiting is not None
    assert heard == []
    async with anyio.create_task_group() as group:

        async def opener() -> None:
            open_now.set()

        group.start_soon(opener)
        await waiting
    assert heard == ["turn", "turn", "turn", True]
    assert variable.get() == "mine"  # It ran here, and in no task of its own.


async def test_what_it_raises_is_raised_before_it_waits_and_after() -> None:
    """EXE-5: by `begin`, or where it is awaited."""

    async def at_once() -> None:
        raise ZeroDivisionError

    async def later() -> None:
        await anyio.lowlevel.checkpoint()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        begin(at_once())
    waiting = begin(later())
    assert waiting is not None
    with pytest.raises(ZeroDivisionError):
        await waiting


async def test_a_cancellation_reaches_it_where_it_waits() -> None:
    """CLO-2: it may clean up, as if it had been awaited all along."""
    heard: list[str] = []

    async def steps() -> None:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            heard.append("told")
            raise
        finally:
            heard.append("cleaned")

    with anyio.CancelScope() as scope:
        waiting = begin(steps())
        assert waiting is not None
        scope.cancel()
        await waiting
    assert scope.cancelled_caught
    assert heard == ["told", "cleaned"]


# ---- who runs a batch ---------------------------------------------------------------------------


@pytest.mark.parametrize(("waits", "hired"), [(False, 1), (True, 4)])
async def test_a_worker_hires_another_only_while_its_call_waits(*, waits: bool, hired: int) -> None:
    """EXE-2, P10: calls that never wait are run by one; otherwise there are as many as may be."""
    tasks: set[int] = set()
    all_here = anyio.Event()

    async def work(_: dict[str, object], __: Context) -> None:
        tasks.add(anyio.get_current_task().id)
        if len(tasks) == hired:
            all_here.set()
        if waits:
            await all_here.wait()

    outcomes = await Executor([raw("work", work)], max_parallel=4).run(calls("work", 200))

    assert all(isinstance(outcome, Completed) for outcome in outcomes)
    assert len(tasks) == hired


async def test_a_hook_that_waits_lets_the_next_call_begin() -> None:
    """EXE-2, EXE-4: waiting for the harness is waiting too."""
    both = anyio.Event()
    dispatched: list[str] = []

    async def hook(context: Context) -> None:
        dispatched.append(context.call_id)
        if len(dispatched) == 2:
            both.set()
        await both.wait()

    async def work(_: dict[str, object], __: Context) -> None:
        return None

    executor = Executor([raw("work", work)], on_dispatch=hook)

    assert [outcome.is_error for outcome in await executor.run(calls("work", 2))] == [False, False]
    assert dispatched == ["c0", "c1"]


async def test_others_of_the_loop_have_a_turn_during_a_long_batch() -> None:
    """EXE-12: neither admission nor a worker whose calls never wait holds the loop for long."""
    turns, over = 0, False
    seen: set[int] = set()

    async def other() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async def work(_: dict[str, object], __: Context) -> None:
        seen.add(turns)

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        await anyio.lowlevel.checkpoint()
        await Executor([raw("work", work)]).run(calls("work", 5000))
        over = True

    assert min(seen) > 2  # During admission,
    assert len(seen) > 2  # and while the calls ran.


# ---- with and without a reader ------------------------------------------------------------------


async def ends_well(_: dict[str, object], context: Context) -> str:
    """Give a text and say so on the way."""
    context.progress(1, message="half")
    return "done"


async def waits_first(_: dict[str, object], context: Context) -> dict[str, object]:
    """Wait, then give structure."""
    await anyio.lowlevel.checkpoint()
    return {"id": context.call_id}


async def fails(_: dict[str, object], __: Context) -> None:
    """Fail, for all to read."""
    raise Failure("no")


async def breaks(_: dict[str, object], __: Context) -> None:
    """Break."""
    raise ValueError("private")


async def asks(_: dict[str, object], __: Context) -> InputRequest:
    """Ask a person."""
    return InputRequest("May I?", schema={"type": "boolean"})


def threaded(_: dict[str, object], __: Context) -> str:
    """Run in a thread."""
    return "thread"


KINDS = (ends_well, waits_first, fails, breaks, asks, threaded)


def turn() -> list[ToolCall]:
    """Return calls that end in all ways, some of them never let in."""
    names = [function.__name__ for function in KINDS] * 5
    made = [ToolCall.of(name, {}, id=f"c{place}") for place, name in enumerate(names)]
    return [
        *made,
        ToolCall(id="c0", name="ends_well", arguments="{}"),
        ToolCall(id="broken", name="ends_well", arguments="{"),
        ToolCall.of("nobody", {}, id="nobody"),
    ]


def told(outcome: Outcome) -> tuple[str, str]:
    """Return what can be compared of an outcome: references are new each time."""
    text = outcome.reason if isinstance(outcome, Unknown) else outcome.text
    return type(outcome).__name__, text


async def by_run(executor: Executor) -> list[Outcome]:
    """Run a turn without events."""
    return await executor.run(turn())


async def by_events(executor: Executor) -> list[Outcome]:
    """Run a turn and take every event; each call has one `Finished`, which is its last."""
    batch = executor.batch(turn())
    events: list[Event] = []
    async with batch:
        async for event in batch:
            events.append(event)  # pragma: no branch
    finished = {event.index: event.outcome for event in events if isinstance(event, Finished)}
    assert len([event for event in events if isinstance(event, Finished)]) == len(turn())
    assert [finished[place] for place in range(len(turn()))] == list(batch.outcomes)
    started = {event.index for event in events if isinstance(event, Started)}
    assert started == set(range(5 * len(KINDS)))
    return list(batch.outcomes)


async def nothing(_: Context) -> None:
    """Be a hook."""


async def allows(_: object) -> bool:
    """Be a policy."""
    return True


@pytest.mark.parametrize("run", [by_run, by_events])
@pytest.mark.parametrize("around", ["nothing", "hook", "guard", "order", "time limit"])
async def test_a_call_ends_alike_whatever_goes_on_around_it(
    run: Callable[[Executor], Awaitable[list[Outcome]]], around: str
) -> None:
    """EXE-1, EXE-4, EXE-5, FAIL-6: what a batch leaves out where there is nothing to do."""
    plain = await Executor(raws(*KINDS)).run(turn())
    limit = 60.0 if around == "time limit" else None
    tools: list[Tool] = [raw(kind.__name__, kind, timeout=limit) for kind in KINDS]
    if around == "guard":
        tools = [Guard(one, allows) for one in tools]
    hook = nothing if around == "hook" else None
    executor = Executor(tools, on_dispatch=hook, sequential=around == "order")

    assert [told(one) for one in await run(executor)] == [told(one) for one in plain]
    assert [kind for kind, _ in map(told, plain[: len(KINDS)])] == [
        "Completed", "Completed", "Failed", "Unknown", "Suspended", "Completed",
    ]  # fmt: skip


# ---- what a tool is told ------------------------------------------------------------------------


async def test_a_batch_tells_a_tool_all_that_it_was_told_itself() -> None:
    """EXE-13: its context is the one that `Context.of` would make, field by field."""
    seen: list[Context] = []

    async def recorder(_: Context, __: Record) -> None:
        return None

    async def asker(_: Context, __: Question) -> Accepted[None]:
        return Accepted(None)

    @tool(replay=lambda _: "safe")
    async def look(context: Context) -> None:
        seen.append(context)

    registry = Registry([Guard(look, allows)], inject={"name": "value"})
    executor = Executor(registry, recorder=recorder, asker=asker, hook_timeout=7.0)
    call = ToolCall.of("look", {})
    asked = Approval(
        True, by="Ada", at=NOW, call_id="c", digest="d", fingerprint="f", guard="g", question="q"
    )
    approvals = (asked,)
    leg = Leg(call, number=3, idempotency_key="key", approvals=approvals, session="talk")
    await executor.run([leg], caller="me")
    await executor.run([call], caller="you")

    made = Context.of(
        call,
        recorder=recorder,
        asker=asker,
        inject=registry.inject,
        caller="me",
        session="talk",
        idempotency_key="key",
        number=3,
        approvals=approvals,
    )
    made.patience = 7.0
    kept = {"_ended", "passed", "threads", "traits"}  # By executor and binding, for themselves.
    for field in set(Context.__struct_fields__) - kept:
        assert getattr(seen[0], field) == getattr(made, field), field
    assert seen[0].traits == Traits(replay="safe")
    assert (seen[1].leg, seen[1].caller, seen[1].session) == (1, "you", None)
    assert seen[1].approvals == ()
    assert seen[1].idempotency_key != "key"
