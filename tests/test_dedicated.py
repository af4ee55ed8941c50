"""A thread of a tool's own: `run_in="dedicated"`."""

import contextvars
import gc
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator

import anyio
import pytest

from ferrule import (
    Accepted,
    Context,
    Declined,
    Executor,
    Failed,
    Outcome,
    Question,
    Record,
    Registry,
    Started,
    Tool,
    ToolCall,
    Unknown,
    bind,
    tool,
)
from ferrule.errors import DeclarationError, FerruleError, InvalidCall

pytestmark = pytest.mark.anyio

PATIENCE = 30.0
"""Seconds after which a test that waits for a thread gives up."""


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Let a function go that waits for it, at the latest when the test is over."""
    event = threading.Event()
    yield event
    event.set()


def text_of(outcomes: list[Outcome]) -> list[str]:
    """Return what a model reads of each."""
    return [outcome.text for outcome in outcomes]


async def test_the_calls_of_a_tool_run_in_one_thread_one_at_a_time_in_their_order() -> None:
    """FN-7: that thread is no worker's and not the loop's; `max_parallel` does not change it."""
    seen: list[tuple[int, int]] = []
    busy = threading.Lock()

    @tool(run_in="dedicated")
    def note(number: int) -> str:
        assert busy.acquire(blocking=False)
        seen.append((number, threading.get_ident()))
        busy.release()
        return str(number)

    calls = [ToolCall.of("note", {"number": number}) for number in range(20)]
    async with Registry([note]) as registry:
        outcomes = await Executor(registry).run([*calls])
        again = await Executor(registry).run(calls[:1])

    assert text_of(outcomes) == [str(number) for number in range(20)]
    assert text_of(again) == ["0"]
    assert [number for number, _ in seen] == [*range(20), 0]
    assert len({thread for _, thread in seen} - {threading.get_ident()}) == 1


async def test_the_thread_starts_with_the_first_call_and_has_ended_when_the_tool_is_closed() -> (
    None
):
    """FN-7, CLO-1: no thread for a tool that nobody calls, and none that outlives its owner."""
    threads: list[threading.Thread] = []

    @tool(run_in="dedicated")
    def where() -> None:
        threads.append(threading.current_thread())

    before = set(threading.enumerate())
    async with Registry([where]) as registry:
        assert not any(thread.name == "ferrule where" for thread in threading.enumerate())
        await Executor(registry).run([ToolCall.of("where")])
        assert threads[0].is_alive()
        assert threads[0] not in before

    assert threads[0].name == "ferrule where"
    assert not threads[0].is_alive()


async def test_what_belongs_to_the_thread_is_made_used_and_closed_there() -> None:
    """FN-7, CLO-1: a connection to SQLite refuses every other thread."""
    connections: list[sqlite3.Connection] = []
    closed: list[str] = []

    def close() -> None:
        connections[0].close()
        closed.append(threading.current_thread().name)

    @tool(run_in="dedicated", close=close)
    def count(name: str) -> int:
        if not connections:
            connections.append(sqlite3.connect(":memory:"))
            connections[0].execute("create table names (name)")
        connections[0].execute("insert into names values (?)", [name])
        found: int = connections[0].execute("select count(*) from names").fetchone()[0]
        return found

    async with Registry([count]) as registry:
        calls = [ToolCall.of("count", {"name": name}) for name in "abc"]
        outcomes = await Executor(registry).run(calls)

    assert text_of(outcomes) == ["1", "2", "3"]
    assert closed == ["ferrule count"]


async def test_an_async_close_is_awaited_in_the_loop() -> None:
    """CLO-1: only what it calls itself runs in the thread."""
    closed: list[bool] = []

    async def close() -> None:
        await anyio.lowlevel.checkpoint()
        closed.append(threading.current_thread() is threading.main_thread())

    @tool(run_in="dedicated", close=close)
    def work() -> None:
        pass

    async with Registry([work]) as registry:
        await Executor(registry).run([ToolCall.of("work")])

    assert closed == [True]


async def test_a_tool_that_was_never_called_is_closed_once_without_a_thread() -> None:
    """CLO-1: closing twice does nothing."""
    closed: list[str] = []

    @tool(run_in="dedicated", close=lambda: closed.append(threading.current_thread().name))
    def work() -> None:
        pass

    await work.aclose()
    await work.aclose()

    assert closed == [threading.current_thread().name]


async def test_a_close_that_raises_says_so_when_its_thread_has_ended() -> None:
    """CLO-1: the error is the owner's to hear."""
    threads: list[threading.Thread] = []

    def close() -> None:
        raise OSError("it does not close")

    @tool(run_in="dedicated", close=close)
    def work() -> None:
        threads.append(threading.current_thread())

    await called(work)
    with pytest.raises(OSError, match="it does not close"):
        await work.aclose()

    assert not threads[0].is_alive()


async def test_a_call_after_the_tool_was_closed_does_not_run() -> None:
    """CLO-1: it is unavailable, and no thread starts again for it."""

    @tool(run_in="dedicated")
    def work() -> None:
        raise AssertionError("it ran")

    await work.aclose()

    with pytest.raises(InvalidCall, match="available"):
        await called(work)


VARIABLE = contextvars.ContextVar("VARIABLE", default="nothing")


async def test_a_call_sees_its_contextvars_and_leaves_none_behind() -> None:
    """FN-7: each call has a copy of its own task's."""

    @tool(run_in="dedicated")
    def exchange(mine: str) -> str:
        found = VARIABLE.get()
        VARIABLE.set(mine)
        return f"{found} {Context.current().tool}"

    VARIABLE.set("outer")
    first = await called(exchange, mine="a")
    VARIABLE.set("later")
    second = await called(exchange, mine="b")
    await exchange.aclose()

    assert [first, second] == ["outer exchange", "later exchange"]
    assert VARIABLE.get() == "later"


async def test_a_function_may_run_a_loop_of_its_own() -> None:
    """FN-7, EXE-10: nothing in its thread says that a loop runs there already."""

    async def inner() -> str:
        await anyio.lowlevel.checkpoint()
        return "done"

    @tool(run_in="dedicated")
    def work() -> str:
        return anyio.run(inner)

    assert await called(work) == "done"
    await work.aclose()


async def test_a_call_that_runs_asks_whether_it_is_cancelled_and_its_result_stands() -> None:
    """FN-7, CLO-2: what it returns within `grace` is the outcome."""
    begun = threading.Event()

    @tool(run_in="dedicated")
    def wait(context: Context) -> str:
        begun.set()
        pause = threading.Event()
        while not context.cancelled:
            pause.wait(0.001)
        return "put away"

    executor = Executor(Registry([wait], grace=PATIENCE))
    async with executor.batch([ToolCall.of("wait")]) as batch:
        await anyio.to_thread.run_sync(begun.wait, PATIENCE)
    await wait.aclose()

    assert batch.outcomes[0].text == "put away"


async def test_a_call_cancelled_while_it_waits_never_runs_and_is_told_so(
    release: threading.Event,
) -> None:
    """FN-7, EXE-6: it holds nothing; the one that runs and does not end is still running."""
    ran: list[str] = []
    held = threading.Event()

    @tool(run_in="dedicated")
    def work(name: str) -> None:
        ran.append(name)
        held.set()
        release.wait(PATIENCE)

    calls = [ToolCall.of("work", {"name": name}) for name in ("stuck", "waiting")]
    registry = Registry([work], grace=0.05)
    async with Executor(registry).batch(calls) as batch:
        async for event in batch:
            if isinstance(event, Started) and event.index == 1:
                break
        await anyio.to_thread.run_sync(held.wait, PATIENCE)

    stuck, waiting = batch.outcomes
    assert isinstance(stuck, Unknown)
    assert stuck.reason == "still_running"
    assert isinstance(waiting, Failed)
    assert 'tool "work" did not run' in waiting.text
    release.set()
    await work.aclose()
    assert ran == ["stuck"]


async def test_a_stuck_call_holds_the_later_calls_until_it_ends(release: threading.Event) -> None:
    """EXE-6: those of other batches too; the thread is one and goes on."""
    ran: list[str] = []
    held = threading.Event()

    @tool(run_in="dedicated")
    def work(name: str) -> None:
        held.set()
        if name == "stuck":
            release.wait(PATIENCE)
        ran.append(name)

    executor = Executor(Registry([work], grace=0.05))
    async with executor.batch([ToolCall.of("work", {"name": "stuck"})]) as batch:
        await anext(batch)
        await anyio.to_thread.run_sync(held.wait, PATIENCE)
    async with executor.batch([ToolCall.of("work", {"name": "later"})]) as after:
        await anext(after)
        assert ran == []
        release.set()
        await after.ended()

    assert ran == ["stuck", "later"]
    assert after.outcomes[0].text == ""
    await work.aclose()


async def test_a_call_that_was_told_to_stop_before_does_not_run() -> None:
    """FN-7: not even where the thread is free."""
    ran: list[str] = []

    @tool(run_in="dedicated")
    def work(name: str) -> None:
        ran.append(name)

    binding = bind(work)
    call = ToolCall.of("work", {"name": "stopped"})
    context = Context.of(call)
    context.stop()
    with pytest.raises(FerruleError, match="did not run"):
        await binding.call(binding.contract.admit(call), context)
    await work.aclose()

    assert ran == []


async def test_two_loops_in_two_threads_share_the_one_thread(anyio_backend: str) -> None:
    """FN-7, EXE-10: their calls do not overlap, and each loop gets its own answers."""
    busy = threading.Lock()
    threads: set[int] = set()

    @tool(run_in="dedicated")
    def work(number: int) -> str:
        assert busy.acquire(blocking=False)
        threads.add(threading.get_ident())
        busy.release()
        return str(number)

    together = threading.Barrier(2, timeout=PATIENCE)
    answers: dict[int, list[str]] = {}

    def loop(offset: int) -> None:
        async def run() -> None:
            together.wait()
            calls = [ToolCall.of("work", {"number": offset + n}) for n in range(50)]
            answers[offset] = text_of(await Executor([work]).run(calls))

        anyio.run(run, backend=anyio_backend)

    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, loop, 0)
        group.start_soon(anyio.to_thread.run_sync, loop, 100)
    await work.aclose()

    assert answers == {offset: [str(offset + n) for n in range(50)] for offset in (0, 100)}
    assert len(threads) == 1


async def test_the_thread_outlives_a_loop_that_ended_before_its_call(
    release: threading.Event, anyio_backend: str
) -> None:
    """FN-7: what a function gives when nobody can hear it harms no later call."""
    held = threading.Event()

    @tool(run_in="dedicated")
    def work(name: str) -> str:
        if name == "stuck":
            held.set()
            release.wait(PATIENCE)
        return name

    async def give_up() -> None:
        executor = Executor(Registry([work], grace=0.01))
        async with executor.batch([ToolCall.of("work", {"name": "stuck"})]) as batch:
            await anext(batch)
            await anyio.to_thread.run_sync(held.wait, PATIENCE)

    def loop() -> None:
        anyio.run(give_up, backend=anyio_backend)

    await anyio.to_thread.run_sync(loop)
    release.set()

    assert await called(work, name="next") == "next"
    await work.aclose()


async def test_records_and_questions_work_from_the_thread() -> None:
    """REC-1, ASK-1: the blocking twins wait for the loop of the call."""
    kept: list[object] = []

    async def recorder(_: Context, record: Record) -> None:
        await anyio.lowlevel.checkpoint()
        kept.append((record.namespace, record.data, threading.get_ident()))

    async def asker(_: Context, question: Question) -> Accepted[object] | Declined:
        await anyio.lowlevel.checkpoint()
        return Accepted(question.message == "7?")

    @tool(run_in="dedicated")
    def work(context: Context) -> str:
        context.record_blocking("test:note", [1])
        return str(context.ask_blocking("7?"))

    outcomes = await Executor([work], recorder=recorder, asker=asker).run([ToolCall.of("work")])
    await work.aclose()

    assert text_of(outcomes) == ["Accepted(content=True)"]
    assert kept == [("test:note", [1], threading.get_ident())]


async def test_an_error_of_a_recorder_reaches_the_function() -> None:
    """REC-2: it can be caught there."""

    async def recorder(_: Context, __: Record) -> None:
        raise OSError("the disk is full")

    @tool(run_in="dedicated")
    def work(context: Context) -> str:
        try:
            context.record_blocking("test:note")
        except OSError as error:
            return str(error)
        return "kept"

    outcomes = await Executor([work], recorder=recorder).run([ToolCall.of("work")])
    await work.aclose()

    assert text_of(outcomes) == ["the disk is full"]


async def test_a_thread_that_the_function_starts_is_not_the_calls() -> None:
    """REC-1: each twin checks that it is on the right side of the loop."""

    @tool(run_in="dedicated")
    def work(context: Context) -> str:
        said: list[str] = []

        def other() -> None:
            try:
                context.record_blocking("test:note")
            except FerruleError as error:
                said.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return said[0]

    assert "for tools that run in a thread" in await called(work)
    await work.aclose()


async def test_a_question_of_a_call_that_is_given_up_ends_and_so_does_the_call() -> None:
    """EXE-6, ASK-1: nothing of the call is left in the loop, and the thread is free again."""
    asked = anyio.Event()
    ended: list[str] = []

    async def asker(_: Context, __: Question) -> Declined:
        try:
            asked.set()
            await anyio.sleep_forever()
        finally:
            ended.append("asker")
        raise AssertionError("it never ends by itself")

    @tool(run_in="dedicated")
    def work(context: Context) -> None:
        for _ in range(2):  # The second is not even asked.
            try:
                context.ask_blocking("really?")
            except FerruleError as error:
                ended.append(str(error))

    registry = Registry([work], grace=0.01)
    async with Executor(registry, asker=asker).batch([ToolCall.of("work")]) as batch:
        await asked.wait()

    assert isinstance(batch.outcomes[0], Unknown)
    assert batch.outcomes[0].reason == "still_running"
    await work.aclose()
    assert ended == ["asker", *["nobody waits for this call any more"] * 2]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError])
async def test_whatever_a_function_raises_is_its_calls_and_the_thread_lives_on(
    kind: type[BaseException],
) -> None:
    """FN-7, FAIL-6: the exits of a thread are no exits of ours."""
    threads: set[int] = set()

    @tool(run_in="dedicated")
    def work(breaks: bool) -> str:
        threads.add(threading.get_ident())
        if breaks:
            raise kind("away")
        return "well"

    with pytest.raises(kind, match="away"):
        await called(work, breaks=True)
    assert await called(work, breaks=False) == "well"
    await work.aclose()

    assert len(threads) == 1


async def test_without_an_executor_a_cancelled_call_is_waited_for(release: threading.Event) -> None:
    """FN-7, EXE-13: as with any thread, nobody goes on while the function runs."""
    ended: list[bool] = []
    held = anyio.Event()
    native = anyio.lowlevel.current_token()

    @tool(run_in="dedicated")
    def work() -> None:
        anyio.from_thread.run_sync(held.set, token=native)
        release.wait(PATIENCE)
        ended.append(True)

    async with anyio.create_task_group() as group:
        group.start_soon(called, work)
        await held.wait()
        group.cancel_scope.cancel()
        release.set()

    assert ended == [True]
    await work.aclose()


async def test_without_an_executor_a_waiting_call_is_withdrawn(release: threading.Event) -> None:
    """FN-7, CLO-2: cancelling it ends the waiting at once, and it never runs."""
    ran: list[str] = []
    held = threading.Event()

    @tool(run_in="dedicated")
    def work(name: str) -> None:
        ran.append(name)
        held.set()
        release.wait(PATIENCE)

    async def call(name: str) -> None:
        await called(work, name=name)

    async with anyio.create_task_group() as group:
        group.start_soon(call, "first")
        await anyio.to_thread.run_sync(held.wait, PATIENCE)
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(call, "second")
            await anyio.wait_all_tasks_blocked()
            waiting.cancel_scope.cancel()
        assert not release.is_set()
        release.set()
    await work.aclose()

    assert ran == ["first"]


async def test_a_tool_that_nobody_has_any_more_ends_its_thread() -> None:
    """ARCHITECTURE rule 6: no background thread that nobody owns."""
    threads: list[threading.Thread] = []

    @tool(run_in="dedicated")
    def work() -> None:
        threads.append(threading.current_thread())

    await called(work)
    del work
    gc.collect()
    await anyio.to_thread.run_sync(threads[0].join, PATIENCE)

    assert not threads[0].is_alive()


PROGRAM = """
import threading
import anyio
from ferrule import Executor, Registry, ToolCall, tool

begun = threading.Event()

@tool(run_in="dedicated")
def work() -> None:
    begun.set()
    threading.Event().wait()

async def main():
    async with Executor(Registry([work], grace=0.01)).batch([ToolCall.of("work")]) as batch:
        await anyio.to_thread.run_sync(begun.wait)
    print(batch.outcomes[0].reason)

anyio.run(main, backend="BACKEND")
"""


async def test_a_process_that_closes_nothing_does_not_hang_for_the_thread(
    anyio_backend: str,
) -> None:
    """FN-7: a stuck call holds no process."""
    program = PROGRAM.replace("BACKEND", anyio_backend)

    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=False, timeout=PATIENCE
        )
    )

    assert done.returncode == 0
    assert done.stdout == b"still_running\n"


def test_an_async_function_cannot_have_a_thread() -> None:
    """FN-1, FN-7: it says what to write instead."""
    with pytest.raises(DeclarationError, match="make it a plain `def`, or leave out run_in"):

        @tool(run_in="dedicated")
        async def work() -> None:
            pass


async def called(made: Tool, **arguments: object) -> str:
    """Return what one call gives, without an executor."""
    binding = bind(made)
    result = await binding.call(
        binding.contract.admit(ToolCall.of(binding.contract.name, arguments))
    )
    return str(getattr(result, "text", result))
