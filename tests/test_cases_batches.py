"""
Faults of batches, threads and stopping that people reported of comparable projects, retold.

Each test is named by its case. Where the contract decides otherwise, the test says so.
"""

import asyncio
import contextlib
import contextvars
import functools
import os
import select
import threading
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import cast
from uuid import UUID

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

from ferrule import (
    Cancelled,
    Completed,
    Context,
    Executor,
    Finished,
    InputRequest,
    Outcome,
    Progress,
    Progressed,
    Registry,
    Result,
    Suspended,
    ToolCall,
    Unknown,
    tool,
)
from ferrule.helpers import run_command
from support import closed_by_all, echo, held_open, raw

pytestmark = pytest.mark.anyio


def texts(outcomes: list[Outcome] | tuple[Outcome, ...]) -> list[str]:
    """Return what a model reads of each."""
    return [outcome.text for outcome in outcomes]


# ---- batches -------------------------------------------------------------------------------------


async def test_ex_02_a_host_that_leaves_stops_what_runs_and_starts_no_more() -> None:
    """EX-02, AT-72, openai/openai-agents-python#4185: stop-on-error is the host's (CONTRACT 13)."""
    appended: list[str] = []
    running = anyio.Event()

    @tool
    async def bad() -> None:
        await running.wait()
        raise ValueError

    @tool(uses="state")
    async def slow() -> None:
        running.set()
        try:
            await anyio.sleep_forever()
            appended.append("slow")
        finally:
            appended.append("cleaned")

    third = raw("third", lambda _, __: appended.append("third"), uses="state")
    executor = Executor([bad, slow, third], max_parallel=2)
    calls = [ToolCall.of(name) for name in ("bad", "slow", "third")]
    async with executor.batch(calls) as batch:
        async for event in batch:
            if isinstance(event, Finished) and event.outcome.is_error:
                break

    assert appended == ["cleaned"]
    assert [type(outcome) for outcome in batch.outcomes] == [Unknown, Unknown, Cancelled]
    assert cast("Unknown", batch.outcomes[1]).reason == "cancelled"


async def test_ex_04_results_stand_in_request_order_and_events_say_whose_they_are() -> None:
    """EX-04, strands-agents/harness-sdk#4425: also with a suspended call in the middle."""
    turns = [anyio.Event() for _ in range(4)]

    @tool
    async def index(i: int) -> int | InputRequest:
        await turns[i].wait()
        return InputRequest("?", schema=True) if i == 1 else i

    @tool
    def plain(i: int) -> int:
        return i

    calls = [ToolCall.of("index", {"i": i}, id=f"c{i}") for i in range(4)]
    calls.append(ToolCall.of("plain", {"i": 4}, id="c4"))
    ended: list[tuple[int, str]] = []
    async with Executor([index, plain]).batch(calls) as batch:
        async for event in batch:
            if isinstance(event, Finished):
                ended.append((event.index, event.call.id))
                if len(ended) < 5:
                    turns[3 - (len(ended) - 1)].set()

    assert ended == [(4, "c4"), (3, "c3"), (2, "c2"), (1, "c1"), (0, "c0")]
    assert texts(batch.outcomes) == ["0", "", "2", "3", "4"]
    assert isinstance(batch.outcomes[1], Suspended)


async def test_ex_06_edits_of_one_file_are_all_there_however_it_is_spelt(tmp_path: Path) -> None:
    """EX-06, OpenHands/software-agent-sdk#2560: in call order; another file beside them."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("x y w z")
    order: list[str] = []
    met = threading.Barrier(2)

    def uses(arguments: dict[str, object]) -> str:
        if arguments["path"] == "bad":
            raise ValueError("no such path")
        return str((tmp_path / str(arguments["path"])).resolve())

    @tool(uses=uses)
    def edit(path: str, old: str, new: str) -> None:
        if old in {"x", "z"}:
            met.wait()  # `b.txt` is edited beside the first edit of `a.txt`.
        file = (tmp_path / path).resolve()
        text = file.read_text()
        file.write_text(text.replace(old, new))
        order.append(old)

    (tmp_path / "sub").mkdir()
    edits = [("a.txt", "x"), ("./a.txt", "y"), ("b.txt", "z"), ("sub/../a.txt", "w"), ("bad", "q")]
    outcomes = await Executor([edit]).run(
        [ToolCall.of("edit", {"path": path, "old": old, "new": old.upper()}) for path, old in edits]
    )

    assert (tmp_path / "a.txt").read_text() == "X Y W z"
    assert (tmp_path / "b.txt").read_text() == "x y w Z"
    assert [old for old in order if old != "z"] == ["x", "y", "w"]
    assert [outcome.is_error for outcome in outcomes] == [False] * 4 + [True]


class OddError(BaseException):
    """An exception that breaks when it is asked what it says."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        SystemExit(2),
        StopIteration(),
        GeneratorExit(),
        MemoryError(),
        ExceptionGroup("several", [ValueError()]),
        OddError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_ex_09_whatever_a_tool_raises_is_that_calls_ending(
    error: BaseException, plain: bool
) -> None:
    """EX-09, HKUDS/nanobot#4788: one rule, the same in a thread and in the loop; no hang."""

    def raises(_: dict[str, object], __: Context) -> None:
        raise error

    async def raises_too(arguments: dict[str, object], context: Context) -> None:
        raises(arguments, context)

    outcomes = await Executor([raw("bad", raises if plain else raises_too), echo()]).run(
        [ToolCall.of("bad"), ToolCall.of("echo", {"n": 1})]
    )

    assert isinstance(outcomes[0], Unknown)
    assert texts(outcomes)[1] == '{"n":1}'


@pytest.mark.parametrize("plain", [True, False])
async def test_ex_09_an_interrupt_is_raised_after_the_siblings_were_settled(plain: bool) -> None:
    """EX-09, FAIL-6: `KeyboardInterrupt` is the user's, not a call's."""
    settled: list[str] = []
    waiting = anyio.Event()

    def interrupts(_: dict[str, object], __: Context) -> None:
        raise KeyboardInterrupt

    async def interrupts_too(arguments: dict[str, object], context: Context) -> None:
        await waiting.wait()
        interrupts(arguments, context)

    @tool
    async def sibling() -> None:
        waiting.set()
        try:
            await anyio.sleep_forever()
        finally:
            settled.append("sibling")

    executor = Executor([raw("bad", interrupts if plain else interrupts_too), sibling])
    with pytest.raises(KeyboardInterrupt):
        await executor.run([ToolCall.of("sibling"), ToolCall.of("bad")])

    assert settled == ["sibling"]


class Colour(Enum):
    """A colour."""

    RED = "red"


@dataclass
class Model:
    """A model."""

    a: int = 1


async def test_ex_10_known_types_have_one_form_and_others_are_told_by_their_place() -> None:
    """EX-10, microsoft/agent-framework#2219: no repr is ever sent as a success."""
    known: dict[str, object] = {
        "t": datetime(2026, 1, 2, tzinfo=UTC),
        "d": Decimal("0.10"),
        "u": UUID(int=1),
        "s": {2, 1},
        "b": b"\xff",
        "e": Colour.RED,
        "m": Model(),
    }
    good = raw("good", lambda _, __: known)
    odd = raw("odd", lambda _, __: {"a": [1, object()]})
    fine, broken = await Executor([good, odd]).run([ToolCall.of("good"), ToolCall.of("odd")])

    assert fine.text == (
        '{"b":"/w==","d":"0.10","e":"red","m":{"a":1},"s":[1,2],'
        '"t":"2026-01-02T00:00:00Z","u":"00000000-0000-0000-0000-000000000001"}'
    )
    assert isinstance(broken, Unknown)
    assert (broken.reason, str(broken.error)) == (
        "bad_result",
        "the value at $.a[1] has no JSON form",
    )
    assert "object at 0x" not in broken.text


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
async def test_ex_12_no_number_without_a_json_form_is_ever_sent(number: float) -> None:
    """EX-12, modelcontextprotocol/python-sdk#3385: the error names the path."""

    @tool
    def stats() -> dict[str, float]:
        return {"mean": number}

    (outcome,) = await Executor([stats]).run([ToolCall.of("stats")])

    assert isinstance(outcome, Unknown)
    assert outcome.reason == "bad_result"
    assert "$.mean" in str(outcome.error)
    assert not any(word in f"{outcome.text}{outcome.to_json()}" for word in ("NaN", "nan", "inf"))


async def test_ex_12_a_large_outcome_is_that_calls_affair_alone() -> None:
    """JSON-3, FAIL-6, EXE-11: 100 MB are over `output_bytes`; nothing of the others is lost."""
    large = raw("large", lambda _, __: "x" * 100_000_000)
    outcomes = await Executor([large, echo()]).run(
        [ToolCall.of("large"), ToolCall.of("echo", {"n": 1})]
    )

    assert isinstance(outcomes[0], Unknown)
    assert outcomes[0].reason == "bad_result"
    assert len(outcomes[0].text) < 300
    assert texts(outcomes)[1] == '{"n":1}'


# ---- stopping ------------------------------------------------------------------------------------


async def test_ca_01_a_limit_does_not_leak_into_an_inner_batch() -> None:
    """CA-01, pydantic/pydantic-ai#7692: what the inner call did is known, and it is waited for."""
    with held_open_gate() as (entered, go):
        inner_ended: list[str] = []

        @tool
        def inner() -> str:
            entered.set()
            go.wait()
            inner_ended.append("inner")
            return "done"

        within = Executor(Registry([inner], grace=60))

        @tool(timeout=0.02)
        async def outer() -> None:
            try:
                await within.run([ToolCall.of("inner")])
            finally:
                inner_ended.append(f"left with {len(within.stuck)}")

        executor = Executor(Registry([outer], grace=60))
        async with executor.batch([ToolCall.of("outer")]) as batch:
            async for event in batch:
                if isinstance(event, Finished):
                    assert cast("Unknown", event.outcome).reason == "timed_out"
                    go.set()

    # The inner batch was told to stop, and waited for its thread, which ended in its grace.
    assert inner_ended == ["inner", "left with 0"]


@contextlib.contextmanager
def held_open_gate() -> Generator[tuple[threading.Event, threading.Event]]:
    """Give two events, and set both at the end."""
    entered, go = threading.Event(), threading.Event()
    try:
        yield entered, go
    finally:
        entered.set()
        go.set()


async def test_ca_02_threads_that_nobody_can_stop_are_counted() -> None:
    """CA-02, NousResearch/hermes-agent#17428: told, reported, and never more than the slots."""
    seen: list[bool] = []
    with held_open_gate() as (_, go):

        @tool(timeout=0.02)
        def slow(context: Context) -> None:
            go.wait()
            seen.append(context.cancelled)

        executor = Executor(Registry([slow], grace=0.02), max_parallel=4)
        reasons: list[str] = []
        for index in range(10):
            outcomes = await executor.run([ToolCall.of("slow", id=f"c{index}")])
            reasons += [cast("Unknown", outcome).reason for outcome in outcomes]

        assert reasons == ["timed_out"] * 4 + ["not_reached"] * 6
        assert len(executor.stuck) == 4
        go.set()
        while len(executor.stuck):  # They end on their own; each says so.
            await anyio.lowlevel.checkpoint()
    assert seen == [True] * 4
    assert isinstance((await executor.run([ToolCall.of("slow")]))[0], Completed)


async def test_ca_04_a_tool_that_answers_a_cancellation_does_not_keep_the_batch_alive() -> None:
    """CA-04, kolega-ai/kolega-code#637: the batch ends cancelled; the result stands (CLO-2)."""
    begun = anyio.Event()
    ran: list[str] = []

    @tool
    async def stubborn() -> str:
        begun.set()
        try:
            await anyio.sleep_forever()
        except BaseException:  # noqa: BLE001  # that is the fault
            return "cleaned up"
        return ""

    next_one = raw("next", lambda _, __: ran.append("next"))
    executor = Executor([stubborn, next_one], sequential=True)
    batch = executor.batch([ToolCall.of("stubborn"), ToolCall.of("next")])
    ended_itself = False
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_after, begun, scope)
            async with batch:
                await anyio.sleep_forever()
        ended_itself = True

    assert (scope.cancelled_caught, ended_itself) == (True, False)
    assert texts(batch.outcomes) == ["cleaned up", 'Error: tool "next" did not run: cancelled']
    assert ran == []


async def _cancel_after(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def test_ca_05_a_child_process_ends_with_its_call(tmp_path: Path) -> None:
    """CA-05, HKUDS/nanobot#2765: with its own children; the clean-up is waited for."""
    cleaned: list[str] = []
    with held_open(tmp_path / "fifo") as reading:
        script = f"exec 3>{tmp_path / 'fifo'}; echo up >&3; sleep 1000 & wait"

        @tool
        async def shell(context: Context) -> Result:
            try:
                return await run_command(["sh", "-c", script], cwd=tmp_path, context=context)
            finally:
                cleaned.append("shell")

        async with Executor(Registry([shell], grace=30)).batch([ToolCall.of("shell")]) as batch:
            await anyio.to_thread.run_sync(select.select, [reading], [], [])
            assert os.read(reading, 3) == b"up\n"
        assert await closed_by_all(reading)

    assert cleaned == ["shell"]
    assert isinstance(batch.outcomes[0], Unknown)


# ---- threads -------------------------------------------------------------------------------------


async def test_th_01_plain_functions_do_not_hold_the_loop() -> None:
    """TH-01, openai/openai-agents-python#2387: five at once, beside a loop that goes on."""
    together = threading.Barrier(6)
    threads: list[int] = []

    @tool
    def slow(i: int) -> int:
        threads.append(threading.get_ident())
        together.wait()  # Passes when all five are here, and the loop has come as well.
        return i

    outcomes: list[Outcome] = []

    async def run() -> None:
        outcomes.extend(
            await Executor([slow]).run([ToolCall.of("slow", {"i": i}) for i in range(5)])
        )

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await anyio.to_thread.run_sync(together.wait)

    assert texts(outcomes) == ["0", "1", "2", "3", "4"]
    assert threading.get_ident() not in threads
    assert len(set(threads)) == 5


TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")


async def test_th_02_a_thread_sees_the_variables_of_its_batch_and_changes_only_its_own() -> None:
    """TH-02, pydantic/pydantic-ai#1576: two batches side by side are never mixed."""

    @tool
    def tenant(sets: str = "") -> str:
        seen = TENANT.get()
        if sets:
            TENANT.set(sets)
        return seen

    executor = Executor([tenant], max_parallel=2)
    seen: dict[str, list[str]] = {}

    async def batch(name: str) -> None:
        TENANT.set(name)
        calls = [ToolCall.of("tenant", {"sets": f"{name}-{i}"}) for i in range(6)]
        seen[name] = texts(await executor.run(calls))

    async with anyio.create_task_group() as group:
        group.start_soon(batch, "t1")
        group.start_soon(batch, "t2")

    assert seen == {"t1": ["t1"] * 6, "t2": ["t2"] * 6}
    assert TENANT.get() == "none"


def test_th_05_one_executor_serves_one_loop_after_another_and_two_at_once() -> None:
    """TH-05, PrefectHQ/fastmcp#4471: nothing of it is bound to a loop; never a hang."""
    executor = Executor([echo()], max_parallel=2)
    calls = [ToolCall.of("echo", {"i": i}) for i in range(5)]
    expected = [f'{{"i":{i}}}' for i in range(5)]

    for _ in range(2):
        assert texts(asyncio.run(executor.run(calls))) == expected
    both: list[list[str]] = []
    start = threading.Barrier(2)

    def use() -> None:
        start.wait()
        both.append(texts(executor.run_sync(calls)))

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert both == [expected, expected]


async def one() -> int:
    """Give one."""
    await anyio.lowlevel.checkpoint()
    return 1


class Called:
    """An object that is called like an async function."""

    async def __call__(self) -> int:
        """Give one."""
        return await one()


def wrapped() -> Callable[[], Awaitable[int]]:
    """Return a plain function that looks like the async one it calls."""

    @functools.wraps(one)
    def wrapper() -> Awaitable[int]:
        return one()

    return wrapper


SHAPES: dict[str, Callable[[], object]] = {
    "partial": functools.partial(one),
    "decorated": wrapped(),
    "object": Called(),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
async def test_th_07_whatever_hides_that_it_is_async_is_awaited(
    shape: Callable[[], object],
) -> None:
    """TH-07, anthropics/anthropic-sdk-python#1853: 1, and no coroutine that nobody awaits."""
    hidden = tool(name="hidden")(shape)
    (outcome,) = await Executor([hidden]).run([ToolCall.of("hidden")])

    assert outcome.text == "1"


# ---- progress ------------------------------------------------------------------------------------


async def test_pr_03_ten_thousand_notices_and_a_large_answer_neither_grow_nor_hang() -> None:
    """PR-03, modelcontextprotocol/python-sdk#1143: the last is kept; a listener may raise."""

    @tool
    async def chatty(context: Context) -> str:
        for step in range(10_000):
            context.progress(step)
        return "x" * 1_000_000

    async def listens(_: Context, __: Progress) -> None:
        raise RuntimeError

    silent = await Executor([chatty], on_progress=listens).run([ToolCall.of("chatty")])
    async with Executor([chatty]).batch([ToolCall.of("chatty")]) as batch:
        events = [event async for event in batch]

    assert len(cast("Completed", silent[0]).result.text) == 1_000_000
    progress = [event for event in events if isinstance(event, Progressed)]
    assert progress[-1].progress == 9_999
    assert len(progress) < 10
    assert isinstance(events[-1], Finished)


async def test_pr_04_progress_never_extends_the_limit() -> None:
    """PR-04, modelcontextprotocol/typescript-sdk#461: there is one time limit (CONTRACT 14)."""

    @tool(timeout=0.05)
    async def busy(context: Context) -> None:
        step = 0
        while True:
            step += 1
            context.progress(step)
            await anyio.lowlevel.checkpoint()

    (outcome,) = await Executor([busy]).run([ToolCall.of("busy")])

    assert cast("Unknown", outcome).reason == "timed_out"
