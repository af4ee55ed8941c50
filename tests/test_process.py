"""A process for each call: `run_in="process"`."""

import functools
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, cast

import anyio
import anyio.to_thread
import pytest

import ferrule._process
import process_tools
from ferrule import (
    Completed,
    Context,
    Executor,
    Failed,
    Image,
    Inject,
    Invocation,
    Limits,
    Link,
    Outcome,
    Progressed,
    RawJSON,
    Record,
    Registry,
    Result,
    Suspended,
    Text,
    Tool,
    ToolCall,
    Unknown,
    Within,
    bind,
    tool,
)
from ferrule._process import Lines
from ferrule.errors import DeclarationError, FerruleError, InvalidTool
from ferrule.testing import MemoryRecorder

pytestmark = pytest.mark.anyio

PATIENCE = 60.0
"""Seconds after which a test that waits for a process gives up."""


async def outcome(made: Tool, arguments: object = None, **limits: int) -> Outcome:
    """Return how one call ended."""
    registry = Registry([made], limits=Limits(**limits))
    call = ToolCall.of(made.definition.name, arguments, id="c1")
    return (await Executor(registry).run([call]))[0]


async def given(made: Tool, arguments: object = None, **limits: int) -> Result:
    """Return what one call gave."""
    ended = await outcome(made, arguments, **limits)
    assert isinstance(ended, Completed), ended
    return ended.result


# ---- what goes down, and what comes up -----------------------------------------------------------


async def test_the_function_runs_in_another_process_with_its_declared_types(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """FN-7, FN-2: typed there again; environment and path are ours; a `print` breaks nothing."""
    monkeypatch.setenv("FERRULE_TEST", "inherited")

    arguments = {"place": {"city": "Kiel", "since": "1242-01-01"}, "rest": [1, 2], "days": 7}
    seen = cast(
        "dict[str, object]", (await given(process_tools.visit, arguments)).structured_content
    )

    assert seen["pid"] != os.getpid()
    assert seen["pid"] == seen["group"]
    assert seen["place"] == "Place Kiel 1242 (1, 2) 7"
    assert seen["input"] == ""
    assert seen["call"] == "c1"
    assert seen["variable"] == "inherited"
    assert seen["main"] is True
    assert seen["path"] == sys.path
    assert seen["arguments"] == ["-c"]
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == "this would break the line to the parent\n"


async def test_a_wrapper_around_the_tool_runs_it() -> None:
    """FN-7, CAP-1: what the process finds is the tool inside, under its own name."""
    seen = (await given(process_tools.renamed, {"place": {"city": "Rom"}})).structured_content

    assert cast("dict[str, object]", seen)["place"] == "Place Rom 2000 () 3"


async def test_arguments_are_let_in_again_as_they_were_here() -> None:
    """SCH-4, ADM-2: strict form, repairs and the registry's limits hold in the process too."""
    assert (await given(process_tools.strict, {"name": "a", "count": None})).text == "a 5"
    assert (await given(process_tools.lenient, {"count": "7"})).text == "7"
    text = "x" * (2 << 20)
    assert (await given(process_tools.length, {"text": text}, argument_bytes=3 << 20)).text == str(
        2 << 20
    )


GIFTS = {
    "text": Result((Text("grüße\n\u2028"),)),
    "nothing": Result(),
    "picture": Result((Text("see"), Image(data=b"\x00\xff", mime_type="image/png"))),
    "raw": Result((Link("https://example.org"),), structured_content=RawJSON("[1.0, 2]")),
    "wide": Result(structured_content={"wide": 2**70, "float": 1e300}),
    "details": Result((Text("kept"),), details=Record("test:kept", [1]), terminate=True),
}


@pytest.mark.parametrize("kind", GIFTS)
async def test_what_the_function_gives_arrives_as_it_was(kind: str) -> None:
    """FN-6, FN-7, DEF-5: content, structure, numbers, details and `terminate`."""
    assert await given(process_tools.give, {"kind": kind}) == GIFTS[kind]


async def test_what_is_nested_deep_arrives() -> None:
    """FN-6: as deep as a result may be, deeper than a model may send."""
    result = await given(process_tools.give, {"kind": "deep"})

    assert result.text == '{"nested":' + "[" * 201 + "]" * 201 + "}"


async def test_a_record_among_the_details_is_kept_here_once() -> None:
    """REC-1: the process has no recorder, its parent has."""
    recorder = MemoryRecorder()

    await Executor([process_tools.give], recorder=recorder).run(
        [ToolCall.of("give", {"kind": "details"})]
    )

    assert [(kept.namespace, kept.data) for kept in recorder.records] == [("test:kept", [1])]


async def test_a_process_may_suspend_its_call() -> None:
    """SUS-1: the question is a value and travels like any other."""
    ended = await outcome(process_tools.give, {"kind": "question"})

    assert isinstance(ended, Suspended)
    assert (ended.request.message, ended.request.state) == ("really?", {"n": 1})


BAD = {
    "not a number": "has no JSON form",
    "coroutine": "has no JSON form",
    "huge": "larger than output_bytes allows",
    "babble": "a line that is no answer",
    "flood": "more than output_bytes allows",
}


@pytest.mark.parametrize("kind", BAD)
async def test_what_cannot_be_given_on_is_a_bad_result(kind: str) -> None:
    """FN-6, FN-7, FAIL-6: also what is no answer of ours, or too long to be read at all."""
    ended = await outcome(process_tools.give, {"kind": kind}, output_bytes=9000)

    assert isinstance(ended, Unknown)
    assert ended.reason == "bad_result"
    assert BAD[kind] in str(ended.error)


# ---- how it fails --------------------------------------------------------------------------------


async def test_a_failure_comes_back_as_one(caplog: pytest.LogCaptureFixture) -> None:
    """FAIL-1, FN-7: content, details and `terminate`; what is behind it stays with the operator."""
    ended = await outcome(process_tools.fail, {"how": "failure"})

    assert isinstance(ended, Failed)
    assert ended.text == "Error: It is locked."
    assert (ended.failure.details, ended.terminate) == ({"lock": 7}, True)
    assert "OSError: private cause" in noted(ended.failure.cause)
    assert caplog.text == ""


async def test_a_failure_with_nothing_behind_it_has_no_cause() -> None:
    """FAIL-1: none is made up on the way."""
    ended = await outcome(process_tools.fail, {"how": "bare"})

    assert isinstance(ended, Failed)
    assert (ended.text, ended.failure.cause) == ("Error: No.", None)


async def test_a_rejection_comes_back_as_one() -> None:
    """FAIL-1: it says so by its kind."""
    ended = await outcome(process_tools.fail, {"how": "rejected"})

    assert isinstance(ended, Failed)
    assert (ended.failure.kind, ended.text) == ("rejected", "Error: Not you.")
    assert "private cause" in noted(ended.failure.cause)


@pytest.mark.parametrize("how", ["own", "wrapped"])
async def test_what_the_tool_lists_in_failures_is_public(how: str) -> None:
    """FAIL-4: with its own message, also where something wraps it."""
    ended = await outcome(process_tools.fail, {"how": how})

    assert isinstance(ended, Failed)
    assert ended.text == "Error: There is no such thing."


async def test_any_other_exception_is_private_and_its_traceback_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """FAIL-4, FAIL-5: the operator sees where in the process it was raised."""
    ended = await outcome(process_tools.fail, {"how": "private"})

    assert isinstance(ended, Unknown)
    assert ended.reason == "raised"
    assert "private words" not in ended.text
    assert str(ended.error) == "private words"
    log = logging.Formatter().format(caplog.records[0])
    assert 'raise ValueError("private words")' in log
    assert ended.reference is not None
    assert ended.reference in log


async def test_an_exception_is_a_failure_where_a_second_run_is_safe() -> None:
    """FAIL-6: as in any thread."""
    ended = await outcome(process_tools.safe)

    assert isinstance(ended, Failed)
    assert "private words" not in ended.text


async def test_evidence_comes_back_beside_the_error() -> None:
    """FAIL-3: it is no result, and the host has it."""
    ended = await outcome(process_tools.fail, {"how": "evidence"})

    assert isinstance(ended, Unknown)
    assert ended.evidence == Result((Text("half"),))
    assert "half" not in ended.text


CRASHES = {
    "exit": "SystemExit: 3",
    "interrupt": "KeyboardInterrupt: KeyboardInterrupt",
    "0": "ended with status 0 and without an answer",
    "7": "ended with status 7 and without an answer",
    "fork": "ended with status 9 and without an answer",
    "SIGSEGV": "was ended by SIGSEGV",
    "SIGKILL": "was ended by SIGKILL",
    "SIGTERM": "was ended by SIGTERM",
}


@pytest.mark.parametrize("how", CRASHES)
async def test_a_process_that_dies_says_how(how: str) -> None:
    """FAIL-6, FN-7: by which signal or status; the model reads no more than of any crash."""
    ended = await outcome(process_tools.fail, {"how": how})

    assert isinstance(ended, Unknown)
    assert ended.reason == "crashed"
    assert CRASHES[how] in str(ended.error)
    assert ended.text.startswith('Error: tool "fail" failed; it may have taken effect (reference')


@pytest.mark.parametrize("how", ["record", "ask"])
async def test_a_process_can_neither_record_nor_ask(how: str) -> None:
    """FN-7: it says so when it tries, and where it could."""
    ended = await outcome(process_tools.fail, {"how": how})

    assert isinstance(ended, Unknown)
    assert 'neither record nor ask; run_in="thread" can' in str(ended.error)


async def test_a_process_that_cannot_be_started_is_a_private_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """FAIL-5: no `failures` of a tool make it public, whatever its type."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    ended = await outcome(process_tools.length, {"text": ""})

    assert isinstance(ended, Unknown)
    assert type(ended.error) is FerruleError
    assert ended.error.__cause__ is ended.error.__context__ is None
    assert "could not be started" in str(ended.error)


async def test_a_module_that_the_process_cannot_import_is_a_private_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """FN-7: the call ends, and the operator reads why."""
    monkeypatch.setattr(sys, "path", [p for p in sys.path if Path(p) != Path(__file__).parent])

    ended = await outcome(process_tools.length, {"text": ""})

    assert isinstance(ended, Unknown)
    assert "No module named 'process_tools'" in str(ended.error)


async def test_a_module_that_is_another_one_there_is_a_private_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """FN-7: what has the name and is no tool is not run."""
    (tmp_path / "process_tools.py").write_text("def length(text): return 'not let in'")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    ended = await outcome(process_tools.length, {"text": ""})

    assert isinstance(ended, Unknown)
    assert "`process_tools.length` is no tool" in str(ended.error)


# ---- progress and being told to stop -------------------------------------------------------------


async def test_progress_comes_through_the_pipe_in_order_and_the_last_before_the_end() -> None:
    """EXE-8, FN-7: the newest of what was not taken; numbers, message and content."""
    seen: list[Progressed] = []
    async with Executor([process_tools.count]).batch([ToolCall.of("count", {"to": 5000})]) as batch:
        async for event in batch:
            if isinstance(event, Progressed):
                seen.append(event)

    numbers = [event.progress for event in seen if event.progress is not None]
    assert numbers == sorted(numbers)
    last = seen[-1]
    assert (last.progress, last.total, last.message) == (5000, 5000, "at 5000")
    assert last.content == (Text("5000"),)
    assert batch.outcomes[0].text == "done"


async def test_a_process_that_is_told_to_stop_may_end_with_a_result(tmp_path: Path) -> None:
    """FN-7, CLO-2, EXE-8: told through the pipe; its newest progress came before, on its own."""
    registry = Registry([process_tools.obedient], grace=PATIENCE)
    call = ToolCall.of("obedient", {"note": str(tmp_path / "note")})
    with anyio.fail_after(PATIENCE):
        async with Executor(registry).batch([call]) as batch:
            async for event in batch:
                if isinstance(event, Progressed) and event.progress == 2:
                    break

    assert isinstance(batch.outcomes[0], Completed)
    assert batch.outcomes[0].text == "put away"


@asynccontextmanager
async def held(tmp_path: Path) -> AsyncIterator[tuple[Path, Callable[[], bytes]]]:
    """Give a pipe to hold open, and what returns when nobody does any more."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reading, True)  # positional only
    try:
        yield pipe, functools.partial(os.read, reading, 1)
    finally:
        os.close(reading)


async def test_a_process_that_does_not_end_is_killed_with_what_it_started(tmp_path: Path) -> None:
    """EXE-6, FN-7: after `grace`; nobody is left who holds the pipe."""
    async with held(tmp_path) as (pipe, everybody_is_gone):
        registry = Registry([process_tools.deaf], grace=0.05)
        call = ToolCall.of("deaf", {"pipe": str(pipe)})
        async with Executor(registry).batch([call]) as batch:
            async for event in batch:
                if isinstance(event, Progressed):
                    break
        assert isinstance(batch.outcomes[0], Unknown)
        assert batch.outcomes[0].reason == "still_running"
        assert await in_time(everybody_is_gone) == b""


async def test_without_an_executor_a_cancelled_process_is_told_and_may_end(tmp_path: Path) -> None:
    """FN-7, EXE-13: cancelling is heard, and the process is gone before anybody goes on."""
    progressed = anyio.Event()
    note = tmp_path / "note"

    async with anyio.create_task_group() as group:
        group.start_soon(called, process_tools.obedient, {"note": str(note)}, progressed)
        await progressed.wait()
        group.cancel_scope.cancel()

    assert note.read_text() == "put away"  # a few bytes, after the fact


async def test_without_an_executor_a_process_that_does_not_listen_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FN-7: after a grace of our own."""
    monkeypatch.setattr(ferrule._process, "GRACE", 0.05)
    progressed = anyio.Event()

    async with held(tmp_path) as (pipe, everybody_is_gone):
        async with anyio.create_task_group() as group:
            group.start_soon(called, process_tools.deaf, {"pipe": str(pipe)}, progressed)
            await progressed.wait()
            group.cancel_scope.cancel()
        assert await in_time(everybody_is_gone) == b""


async def test_a_process_that_has_answered_and_does_not_leave_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FN-7: a thread that it left behind costs the grace, and not the result."""
    monkeypatch.setattr(ferrule._process, "GRACE", 0.05)

    async with held(tmp_path) as (pipe, everybody_is_gone):
        arguments = {"pipe": str(pipe), "answers": True, "detached": True}
        result = await given(process_tools.deaf, arguments)
        assert result.text == "answered"
        assert await in_time(everybody_is_gone) == b""


PROGRAM = """
import sys
import anyio
import process_tools
from ferrule import Executor, ToolCall

async def main():
    calls = [ToolCall.of("deaf", {"pipe": sys.argv[1]})]
    async with Executor([process_tools.deaf]).batch(calls) as batch:
        async for event in batch:
            print(type(event).__name__, flush=True)

anyio.run(main, backend=sys.argv[2])
"""


async def test_a_process_ends_with_the_one_that_asked_for_it(
    tmp_path: Path, anyio_backend: str
) -> None:
    """FN-7: when its parent is killed, it is not left behind, nor is what it started."""
    async with held(tmp_path) as (pipe, everybody_is_gone):
        parent = await anyio.open_process(
            [sys.executable, "-c", PROGRAM, str(pipe), anyio_backend],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=None,
        )
        async with parent:
            assert parent.stdout is not None
            said = b""
            while b"Progressed" not in said:
                said += await parent.stdout.receive()
            parent.kill()
        assert parent.returncode == -signal.SIGKILL
        assert await in_time(everybody_is_gone) == b""


async def test_calls_run_side_by_side_each_in_its_own_process() -> None:
    """FN-7, EXE-2: one process for one call."""
    calls = [ToolCall.of("visit", {"place": {"city": "Kiel"}}, id=str(n)) for n in range(4)]

    outcomes = await Executor([process_tools.visit]).run(calls)

    results = [cast("Completed", ended).result.structured_content for ended in outcomes]
    seen = cast("list[dict[str, object]]", results)
    assert [one["call"] for one in seen] == ["0", "1", "2", "3"]
    assert len({one["pid"] for one in seen}) == 4


# ---- what is refused when it is declared ---------------------------------------------------------


async def later() -> None:
    """Be async."""


def injected(tenant: Annotated[str, Inject("tenant")]) -> None:
    """Want something of the harness."""


def rooted(path: Annotated[Path, Within("root")]) -> None:
    """Want a root of the harness."""


class Shop:
    """Something with a method."""

    def sell(self) -> None:
        """Sell."""

    def __call__(self) -> None:
        """Sell."""


def local() -> Callable[[], None]:
    """Return a function that no other process finds."""

    def inner() -> None:
        pass

    return inner


def of_the_program() -> Callable[[], None]:
    """Return a function of the program that was started."""

    def main() -> None:
        pass

    main.__module__, main.__qualname__ = "__main__", "main"
    return main


MISTAKES = {
    "async": (later, "make it a plain `def`"),
    "injected": (injected, "its parameter `tenant`"),
    "rooted": (rooted, "its parameter `path`"),
    "method": (Shop().sell, "bound method, a partial or an object"),
    "object": (Shop(), "bound method, a partial or an object"),
    "partial": (functools.partial(rooted, Path()), "bound method, a partial or an object"),
    "local": (local(), "local to a function"),
    "lambda": (lambda: None, "a lambda has no name"),
    "program": (of_the_program(), "no module to others"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_no_process_could_run_is_refused_when_it_is_declared(mistake: str) -> None:
    """FN-1, FN-7: it says why, and what to do."""
    function, reason = MISTAKES[mistake]

    with pytest.raises(DeclarationError) as caught:
        tool(name="made", run_in="process")(cast("Callable[[], None]", function))

    assert reason in str(caught.value)
    assert "`made`" in str(caught.value)


def test_where_there_is_no_posix_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """FN-7: a group of processes is what is killed."""
    monkeypatch.setattr(ferrule._process, "os", SimpleNamespace(name="nt"))

    with pytest.raises(DeclarationError, match='needs POSIX; use "thread"'):
        tool(run_in="process")(process_tools.plain)


@pytest.mark.parametrize("module", ["process_tools", "process_tools_that_is_gone"])
def test_a_name_that_leads_elsewhere_is_refused_when_the_tool_is_bound(module: str) -> None:
    """FN-1, FN-7: the process would find another thing there, or nothing."""

    def function() -> None:
        pass

    function.__module__, function.__qualname__ = module, "plain"
    made = tool(run_in="process")(function)

    with pytest.raises(InvalidTool, match="is not this tool; write @tool above the function"):
        bind(made)


# ---- small things --------------------------------------------------------------------------------


def test_lines_are_the_same_however_they_come() -> None:
    """FN-7: what a pipe cuts is put together again."""
    text = b"one\n\ntwo two\nthree"
    for size in range(1, len(text) + 1):
        lines = Lines()
        found: list[bytes] = []
        for start in range(0, len(text), size):
            found += lines.feed(text[start : start + size])
        assert found == [b"one", b"", b"two two"]
        assert lines.size == len(b"three")


# ---- helpers -------------------------------------------------------------------------------------


async def called(made: Tool, arguments: object, progressed: anyio.Event) -> None:
    """Run one call without an executor; say when its function has begun."""
    binding = bind(made)
    call = ToolCall.of(binding.contract.name, arguments)
    invocation: Invocation = binding.contract.admit(call)
    context = Context.of(call, on_progress=lambda _, __: progressed.set())
    await binding.call(invocation, context)


async def in_time(function: Callable[[], bytes]) -> bytes:
    """Return what a function that waits gives, in time."""
    with anyio.fail_after(PATIENCE):
        return await anyio.to_thread.run_sync(function, abandon_on_cancel=True)


def noted(error: BaseException | None) -> str:
    """Return the notes of an error."""
    return "\n".join(getattr(error, "__notes__", ()))
