"""
Time limits, and threads that nobody can stop (EXE-6, EXE-7).

Nothing here looks at a clock: a tool that is to be late waits for an event, or for ever. Where the
time itself matters it is trio's mock clock, which jumps when nothing else can happen.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import anyio
import anyio.lowlevel
import pytest
import trio.testing

from ferrule import (
    Cancelled,
    Completed,
    Context,
    Event,
    Executor,
    Failed,
    Failure,
    Finished,
    InvalidValue,
    Outcome,
    Registry,
    Result,
    Shared,
    Started,
    ToolCall,
    Traits,
    Unknown,
    tool,
)
from support import echo, raw

SOON = 0.02
"""Seconds that nothing in these tests keeps to: whatever is to be late is late without end."""


class Gate:
    """Threads wait at it until a test lets them go."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._over = threading.Semaphore(0)
        self.entered = threading.Semaphore(0)
        self.passed: list[str] = []

    def wait(self, name: str) -> str:
        """Wait, and note who passed."""
        self.entered.release()
        self._open.wait()
        self.passed.append(name)
        self._over.release()
        return name

    def open(self) -> None:
        """Let all go."""
        self._open.set()

    async def gone(self, count: int = 1) -> None:
        """Wait until so many have passed."""
        for _ in range(count):
            await anyio.to_thread.run_sync(self._over.acquire)


@contextmanager
def gate() -> Iterator[Gate]:
    """Give a gate, and open it at the end, however that comes."""
    made = Gate()
    try:
        yield made
    finally:
        made.open()


def reasons(outcomes: list[Outcome] | tuple[Outcome, ...]) -> list[str]:
    """Return for each call how it ended."""
    return [
        outcome.reason if isinstance(outcome, (Unknown, Cancelled)) else type(outcome).__name__
        for outcome in outcomes
    ]


def stuck_tool(held: Gate, name: str = "stuck", **traits: object) -> object:
    """Return a tool whose thread waits at a gate."""
    return raw(name, lambda _, __: held.wait(name), timeout=SOON, **traits)  # type: ignore[arg-type]


# ---- at the limit --------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_call_is_reported_at_its_limit_and_its_siblings_run_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """EXE-7, FAIL-6: unknown, with a reference; it was told to stop and cleaned up."""
    cleaned: list[str] = []

    @tool(timeout=SOON)
    async def slow(context: Context) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append(f"cancelled={context.cancelled}")

    with caplog.at_level(logging.ERROR, logger="ferrule"):
        outcomes = await Executor([slow, echo()]).run(
            [ToolCall.of("slow"), ToolCall.of("echo", {"n": 1})]
        )

    late = cast("Unknown", outcomes[0])
    assert reasons(outcomes) == ["timed_out", "Completed"]
    assert late.text == (
        f'Error: tool "slow" failed; it may have taken effect (reference {late.reference})'
    )
    assert str(late.error) == f"the call did not end within {SOON:g} s"
    assert cleaned == ["cancelled=True"]
    assert late.reference is not None
    assert late.reference in caplog.text


@pytest.mark.anyio
async def test_a_call_that_is_told_to_stop_can_ask_whether_its_time_is_up() -> None:
    """EXE-7, CLO-2: it is at its limit, and not when the block is left."""
    told: dict[str, tuple[bool, bool]] = {}
    running = anyio.Event()

    async def waits(_: dict[str, object], context: Context) -> None:
        assert not context.timed_out
        running.set()
        try:
            await anyio.sleep_forever()
        finally:
            told[context.tool] = (context.cancelled, context.timed_out)

    executor = Executor([raw("late", waits, timeout=SOON), raw("left", waits, timeout=60)])
    await executor.run([ToolCall.of("late")])
    running = anyio.Event()
    async with executor.batch([ToolCall.of("left")]):
        await running.wait()

    assert told == {"late": (True, True), "left": (True, False)}


@pytest.mark.anyio
async def test_it_is_reported_before_it_has_ended_and_once() -> None:
    """EXE-7: never late; what it works on is taken until it has ended."""
    told, go = anyio.Event(), anyio.Event()
    order: list[str] = []

    @tool(timeout=SOON, uses="state")
    async def slow() -> str:
        try:
            await anyio.sleep_forever()
        except BaseException:
            with anyio.CancelScope(shield=True):
                told.set()
                await go.wait()
            order.append("ended")
            raise
        return ""

    @tool(uses="state")
    async def after() -> None:
        order.append("after")

    events: list[Event] = []
    registry = Registry([slow, after], grace=60)
    async with Executor(registry).batch([ToolCall.of("slow"), ToolCall.of("after")]) as batch:
        async for event in batch:
            events.append(event)
            if isinstance(event, Finished) and event.index == 0:
                assert reasons([event.outcome]) == ["timed_out"]
                await told.wait()
                assert order == []
                go.set()

    assert order == ["ended", "after"]
    assert [(type(event), event.index) for event in events] == [
        (Started, 0),
        (Finished, 0),
        (Started, 1),
        (Finished, 1),
    ]


@pytest.mark.anyio
async def test_what_comes_after_the_limit_is_logged_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """EXE-7: a result that is late is evidence, and no outcome."""

    @tool(timeout=SOON)
    async def stubborn() -> str:
        try:
            await anyio.sleep_forever()
        except BaseException:  # noqa: BLE001  # it answers though it was told to stop
            return "done all the same"
        return ""

    (outcome,) = await Executor([stubborn]).run([ToolCall.of("stubborn")])

    assert reasons([outcome]) == ["timed_out"]
    assert "ended after it was given up: completed" in caplog.text


@pytest.mark.anyio
async def test_a_call_that_ends_in_time_is_none_of_the_limits_business() -> None:
    """EXE-7: neither is a failure; and the limit of one call is not that of the next."""

    @tool(timeout=60)
    async def quick(fails: bool) -> str:
        await anyio.lowlevel.checkpoint()
        if fails:
            raise Failure("no")
        return "yes"

    calls = [ToolCall.of("quick", {"fails": fails}) for fails in (False, True)]
    outcomes = await Executor([quick], max_parallel=1).run(calls)

    assert [type(outcome) for outcome in outcomes] == [Completed, Failed]


def test_the_limit_counts_from_dispatch() -> None:
    """EXE-7: not from when the batch began; a hook and a call before it take what they take."""

    @tool(timeout=10, uses="state")
    async def eight() -> float:
        await trio.sleep(8)
        return trio.current_time()

    @tool(timeout=10)
    async def twelve() -> None:
        await trio.sleep(12)

    async def hook(_: Context) -> None:
        await trio.sleep(5)

    async def run() -> tuple[list[Outcome], float]:
        executor = Executor([eight, twelve], on_dispatch=hook)
        calls = [ToolCall.of("eight"), ToolCall.of("eight"), ToolCall.of("twelve")]
        return await executor.run(calls), trio.current_time()

    outcomes, _ = trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))

    assert reasons(outcomes) == ["Completed", "Completed", "timed_out"]


def test_it_is_reported_at_the_very_limit() -> None:
    """EXE-7: without `grace`, which is for cancelling; the batch ends when the tool has."""

    @tool(timeout=10)
    async def slow() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)

    seen: list[float] = []

    async def run() -> float:
        begin = trio.current_time()
        async with Executor(Registry([slow], grace=5)).batch([ToolCall.of("slow")]) as batch:
            async for event in batch:
                if isinstance(event, Finished):
                    seen.append(trio.current_time() - begin)
        return trio.current_time() - begin

    whole = trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))

    assert seen == pytest.approx([10])
    assert whole == pytest.approx(13)


def test_a_task_that_does_not_end_after_its_limit_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """EXE-6, EXE-7: leaving waits for a task, with a line that says for which."""

    @tool(timeout=10)
    async def endless() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(100)

    async def run() -> list[Outcome]:
        return await Executor(Registry([endless], grace=5)).run([ToolCall.of("endless", id="c1")])

    outcomes = trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))

    assert reasons(outcomes) == ["timed_out"]
    assert 'tool "endless", call "c1" does not end after it was cancelled' in caplog.text


# ---- threads -------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_thread_is_reported_at_its_limit_told_and_not_waited_for() -> None:
    """EXE-6, EXE-7, CA-02: one that looks at `cancelled` can end; others are left."""
    looked: list[bool] = []
    with gate() as held:

        @tool(timeout=SOON)
        def looks(context: Context) -> None:
            while not context.cancelled:
                pass
            looked.append(True)

        executor = Executor(Registry([looks, stuck_tool(held)], grace=SOON))  # type: ignore[list-item]
        outcomes = await executor.run([ToolCall.of("looks"), ToolCall.of("stuck")])

        assert reasons(outcomes) == ["timed_out", "timed_out"]
        assert looked == [True]
        assert held.passed == []


@pytest.mark.anyio
async def test_what_waits_for_a_thread_that_does_not_end_is_not_reached() -> None:
    """EXE-6, FAIL-6: and what waits for that; what conflicts with nothing runs."""
    with gate() as held:
        after = raw("after", lambda _, __: "ran", uses=["state", "other"])
        last = raw("last", lambda _, __: "ran", uses="other")
        tools = [stuck_tool(held, uses="state"), after, last, echo()]
        executor = Executor(Registry(tools, grace=SOON))  # type: ignore[arg-type]
        outcomes = await executor.run(
            [ToolCall.of("stuck"), ToolCall.of("after"), ToolCall.of("last"), ToolCall.of("echo")]
        )

    assert reasons(outcomes) == ["timed_out", "not_reached", "not_reached", "Completed"]
    assert outcomes[1].text == 'Error: tool "after" did not run: not reached'


@pytest.mark.anyio
async def test_what_waits_runs_when_the_thread_ends_in_time() -> None:
    """EXE-6: the state is free as soon as the thread has ended, and not before."""
    order: list[str] = []
    with gate() as held:
        after = raw("after", lambda _, __: order.append(f"after {held.passed}"), uses="state")
        tools = [stuck_tool(held, uses="state"), after]
        executor = Executor(Registry(tools, grace=60))  # type: ignore[arg-type]
        async with executor.batch([ToolCall.of("stuck"), ToolCall.of("after")]) as batch:
            async for event in batch:
                if isinstance(event, Finished) and event.index == 0:
                    assert order == []
                    held.open()

    assert reasons(batch.outcomes) == ["timed_out", "Completed"]
    assert order == ["after ['stuck']"]


@pytest.mark.anyio
async def test_a_thread_that_was_left_counts_against_later_batches() -> None:
    """EXE-6, CA-02: its slot is not handed out twice; when it has ended, it is free again."""
    with gate() as held:
        executor = Executor(Registry([stuck_tool(held), echo()], grace=SOON), max_parallel=2)  # type: ignore[list-item]
        first = await executor.run([ToolCall.of("stuck", id=f"c{i}") for i in range(2)])
        none = await executor.run([ToolCall.of("echo"), ToolCall.of("stuck")])
        before = len(executor.stuck)
        held.open()
        await held.gone(2)
        while len(executor.stuck):  # The thread says so right after it has passed.
            await anyio.lowlevel.checkpoint()
        again = await executor.run([ToolCall.of("echo")])

    assert reasons(first) == ["timed_out"] * 2
    assert reasons(none) == ["not_reached"] * 2
    assert before == 2
    assert reasons(again) == ["Completed"]


@pytest.mark.anyio
async def test_many_calls_that_get_stuck_make_no_more_threads_than_slots() -> None:
    """CA-02: fifty calls, a pool of four: four threads, and the rest did not run."""
    with gate() as held:
        executor = Executor(Registry([stuck_tool(held)], grace=SOON), max_parallel=4)  # type: ignore[list-item]
        outcomes = await executor.run([ToolCall.of("stuck", id=f"c{i}") for i in range(50)])

        assert len(executor.stuck) == 4
    assert reasons(outcomes) == ["timed_out"] * 4 + ["not_reached"] * 46


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("held_use", "wanted", "expected"),
    [
        ("state", "state", "not_reached"),
        ("state", Shared("state"), "not_reached"),
        (Shared("state"), "state", "not_reached"),
        (Shared("state"), Shared("state"), "Completed"),
        ("state", "other", "Completed"),
    ],
)
async def test_what_a_thread_works_on_is_taken_in_later_batches(
    held_use: str | Shared, wanted: str | Shared, expected: str
) -> None:
    """EXE-6: for who cannot have it beside the thread."""
    with gate() as held:
        tools = [stuck_tool(held, uses=held_use), raw("next", lambda _, __: "ran", uses=wanted)]
        executor = Executor(Registry(tools, grace=SOON))  # type: ignore[arg-type]
        await executor.run([ToolCall.of("stuck")])
        outcomes = await executor.run([ToolCall.of("next")])

    assert reasons(outcomes) == [expected]


@pytest.mark.anyio
async def test_a_later_batch_goes_on_when_the_thread_ends() -> None:
    """EXE-6: one that waits for the state of an earlier batch, and one that waits for a slot."""
    with gate() as held:
        tools = [stuck_tool(held, uses="state"), raw("next", lambda _, __: "ran", uses="state")]
        short = Executor(Registry(tools, grace=SOON), max_parallel=1)  # type: ignore[arg-type]
        await short.run([ToolCall.of("stuck")])
        short.registry.grace = 60
        async with short.batch([ToolCall.of("next")]) as batch:
            held.open()
            async for _ in batch:
                pass

    assert reasons(batch.outcomes) == ["Completed"]


@pytest.mark.anyio
async def test_leaving_while_others_wait_for_a_thread_cancels_them() -> None:
    """EXE-6: they did not run, and nobody is waited for."""
    with gate() as held:
        tools = [stuck_tool(held, uses="state"), raw("next", lambda _, __: "ran", uses="state")]
        executor = Executor(Registry(tools, grace=60))  # type: ignore[arg-type]
        executor.registry.grace = SOON
        async with executor.batch([ToolCall.of("stuck"), ToolCall.of("next")]) as batch:
            async for event in batch:
                if isinstance(event, Finished):
                    break

    assert reasons(batch.outcomes)[0] == "timed_out"
    assert reasons(batch.outcomes)[1] in {"cancelled", "not_reached"}


@pytest.mark.anyio
async def test_a_limit_of_an_outer_call_is_not_that_of_an_inner_batch() -> None:
    """CA-01: the inner call is stopped with its parent, and says so; nothing is lost in silence."""
    inner: list[Outcome] = []
    ran: list[str] = []

    @tool
    async def waits() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ran.append("cleaned")

    within = Executor([waits])

    @tool(timeout=SOON)
    async def outer() -> None:
        async with within.batch([ToolCall.of("waits")]) as batch:
            try:
                async for _ in batch:
                    pass
            finally:
                pass
        inner.extend(batch.outcomes)

    outcomes = await Executor([outer]).run([ToolCall.of("outer")])

    assert reasons(outcomes) == ["timed_out"]
    assert ran == ["cleaned"]


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), True, "5"])
def test_a_limit_is_seconds(seconds: object) -> None:
    """FN-1: more than nothing, and not without end."""
    with pytest.raises(InvalidValue, match="timeout is seconds, more than 0"):
        Traits(timeout=cast("float", seconds))


def test_a_limit_travels_as_json() -> None:
    """DEF-4: and is left out where there is none."""
    assert Traits.from_json(Traits(timeout=2.5).to_json()) == Traits(timeout=2.5)
    assert Traits().to_json() == {}
    assert isinstance(Result(), Result)


@pytest.mark.anyio
async def test_a_dedicated_thread_that_does_not_end_holds_its_tool_and_a_slot() -> None:
    """EXE-6, EXE-7, FN-7: reported at the limit; the next call has to wait, and is given up."""
    with gate() as held:

        @tool(run_in="dedicated", timeout=SOON, uses="connection")
        def query() -> str:
            return held.wait("query")

        executor = Executor(Registry([query, echo()], grace=SOON))
        outcomes = await executor.run(
            [ToolCall.of("query"), ToolCall.of("query"), ToolCall.of("echo", {"n": 1})]
        )

        assert reasons(outcomes) == ["timed_out", "not_reached", "Completed"]
        assert len(executor.stuck) == 1
        held.open()
        await held.gone()
        await query.aclose()
    assert held.passed == ["query"]
