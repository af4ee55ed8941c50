"""What a killed process left behind is ended, and nothing else: real groups, real signals."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

import command_tools
from ferrule import (
    Completed,
    Context,
    Failure,
    InvalidValue,
    Outcome,
    Record,
    Replay,
    ToolCall,
    Unknown,
)
from ferrule.helpers import reap, run_command
from ferrule.runtime import Reaper, SqliteRuntime
from support import held_open

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _linux(require: Callable[..., None]) -> None:
    require(Path("/proc/self/stat").exists(), "Linux's /proc, which tells processes apart")


NAMESPACE = "shell:process-group"
HERE = Path(__file__).parents[1]


# ---- groups to end, or to leave alone ------------------------------------------------------------


@contextmanager
def group(script: str, directory: Path) -> Generator[subprocess.Popen[bytes]]:
    """Start a shell as the leader of a group of its own; it has said that it began."""
    with subprocess.Popen(
        ["sh", "-c", script], cwd=directory, stdout=subprocess.PIPE, start_new_session=True
    ) as leader:
        try:
            assert leader.stdout is not None
            assert leader.stdout.readline() == b"begun\n"
            yield leader
        finally:
            with suppress(ProcessLookupError):
                os.killpg(leader.pid, signal.SIGKILL)


def began(leader: subprocess.Popen[bytes]) -> str:
    """Return when a process began, as its system says."""
    return Path(f"/proc/{leader.pid}/stat").read_text().rpartition(")")[2].split()[19]


async def told(directory: Path) -> dict[str, object]:
    """Return what `run_command` puts on record here."""
    records: list[Record] = []

    async def keep(_: Context, record: Record) -> None:
        records.append(record)

    context = Context.of(ToolCall(id="c", name="run"), recorder=keep)
    await run_command(["true"], cwd=directory, context=context)
    (record,) = records
    assert isinstance(record.data, dict)
    return record.data


async def record_of(leader: subprocess.Popen[bytes], directory: Path, **other: object) -> Record:
    """Return the record of a group; `other` stands in it instead."""
    data = {**await told(directory), "pgid": leader.pid, "began": began(leader)}
    return Record(NAMESPACE, {**data, **other})


FOR_EVER = "exec 9>alive; (sleep 1000 & wait) & echo begun; exec >/dev/null; wait"
STUBBORN = (
    "exec 9>alive; trap '' TERM; (trap '' TERM; sleep 1000) & echo begun; exec >/dev/null; "
    "sleep 1000; sleep 1000"
)


def is_alive(alive: int) -> bool:
    """Say whether somebody still has the writing end of the pipe."""
    try:
        return os.read(alive, 1) != b""
    except BlockingIOError:
        return True


@pytest.mark.parametrize("script", [FOR_EVER, STUBBORN], ids=["tree", "stubborn"])
async def test_a_group_that_was_left_is_ended_with_all_its_processes(
    tmp_path: Path, script: str
) -> None:
    """DUR-2, CLO-2: gone when `reap` returns, also those that ignore SIGTERM."""
    with held_open(tmp_path / "alive") as alive, group(script, tmp_path) as leader:
        await reap(await record_of(leader, tmp_path), grace=0.3)
        assert not is_alive(alive)
        await reap(Record(NAMESPACE, {**await told(tmp_path), "pgid": leader.pid, "began": "1"}))


async def test_a_group_may_end_in_good_order(tmp_path: Path) -> None:
    """CLO-2: SIGTERM comes first, and who answers it is waited for."""
    script = "trap 'echo done >ended; exit' TERM; echo begun; exec >/dev/null; sleep 1000 & wait"
    with group(script, tmp_path) as leader:
        await reap(await record_of(leader, tmp_path), grace=60)
    assert (tmp_path / "ended").read_text() == "done\n"


async def test_a_leader_that_nobody_waited_for_tells_whose_its_group_is(tmp_path: Path) -> None:
    """DUR-2: it has ended and keeps its number, so what it left is its own, and it is gone."""
    script = "exec 9>alive; sleep 1000 >/dev/null & echo begun"
    with held_open(tmp_path / "alive") as alive, group(script, tmp_path) as leader:
        options = os.WEXITED | os.WNOWAIT
        await anyio.to_thread.run_sync(os.waitid, os.P_PID, leader.pid, options)
        assert is_alive(alive)
        await reap(await record_of(leader, tmp_path))
        assert not is_alive(alive)


async def test_what_does_not_end_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DUR-2: who goes on as if it had ended would have two of them."""
    monkeypatch.setattr("ferrule.helpers._groups._LAST", 0.1)
    with group(FOR_EVER.replace("9>alive", "9>&1"), tmp_path) as leader:
        record = await record_of(leader, tmp_path)
        with monkeypatch.context() as unarmed:
            unarmed.setattr(os, "killpg", lambda *_: None)
            with pytest.raises(Failure, match="did not end"):
                await reap(record, grace=0)


# ---- what may be somebody else's -----------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [{"began": "1"}, {"machine": "another-boot pid:[4026531836]"}],
    ids=["number given anew", "other boot"],
)
async def test_a_group_that_ended_is_not_missed_and_a_stranger_is_left_alone(
    tmp_path: Path, other: dict[str, object]
) -> None:
    """DUR-2: the number is another process's by now; the group itself is gone for certain."""
    with held_open(tmp_path / "alive") as alive, group(FOR_EVER, tmp_path) as stranger:
        await reap(await record_of(stranger, tmp_path, **other), grace=0)
        assert is_alive(alive)


async def test_a_group_whose_number_nobody_has_is_gone(tmp_path: Path) -> None:
    """DUR-2: nothing is left to end."""
    await reap(Record(NAMESPACE, await told(tmp_path)))


async def test_whose_group_nobody_can_tell_is_left_alone_and_a_person_told(tmp_path: Path) -> None:
    """DUR-2: another space of process ids, no leader, nothing on record: an error each."""
    boot = str((await told(tmp_path))["machine"]).partition(" ")[0]
    with held_open(tmp_path / "alive") as alive, group(FOR_EVER, tmp_path) as leader:
        for other, why in (
            ({"machine": f"{boot} pid:[1]"}, "another space of process ids"),
            ({"machine": ""}, "nothing that tells it"),
            ({"began": ""}, "nothing that tells it"),
        ):
            with pytest.raises(Failure, match=why) as caught:
                await reap(await record_of(leader, tmp_path, **other), grace=0)
            assert f"kill -- -{leader.pid}" in str(caught.value)
        record = await record_of(leader, tmp_path)
        leader.kill()
        leader.wait()
        with pytest.raises(Failure, match="its leader has ended"):
            await reap(record, grace=0)
        assert is_alive(alive)


async def test_where_processes_cannot_be_told_apart_nothing_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DUR-2: as on a system without /proc; its records say so, too."""
    with held_open(tmp_path / "alive") as alive, group(FOR_EVER, tmp_path) as leader:
        record = await record_of(leader, tmp_path)
        monkeypatch.setattr("ferrule.helpers._groups._PROC", tmp_path)
        with pytest.raises(Failure, match="nothing that tells it"):
            await reap(record, grace=0)
        assert (await told(tmp_path)).items() >= {"began": "", "machine": ""}.items()
        assert is_alive(alive)


async def test_nobody_ends_the_group_that_it_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DUR-2: a harness may run in a command's group itself."""
    with held_open(tmp_path / "alive") as alive, group(FOR_EVER, tmp_path) as leader:
        record = await record_of(leader, tmp_path)
        monkeypatch.setattr(os, "getpgrp", lambda: leader.pid)
        with pytest.raises(Failure, match="this very process is in it"):
            await reap(record, grace=0)
        assert is_alive(alive)


@pytest.mark.parametrize(
    "record",
    [
        Record("container:build", {"pgid": 4242}),
        *(Record(NAMESPACE, {"pgid": pgid}) for pgid in (0, 1, -4, "7", True, None)),
        Record(NAMESPACE, []),
        Record(NAMESPACE, {"pgid": 4242, "began": 17}),
    ],
    ids=str,
)
async def test_what_is_no_record_of_a_group_is_refused(record: Record) -> None:
    """REC-1: 0 would be our own group, and -1 everybody."""
    with pytest.raises(InvalidValue, match="record of a process group"):
        await reap(record)


# ---- after a crash -------------------------------------------------------------------------------


async def left_by_a_killed_process(directory: Path, alive: int, replay: Replay) -> None:
    """Have a process run a command under a runtime, and kill it in the middle with -9."""
    program = [sys.executable, str(HERE / "command_tools.py"), str(directory), replay]
    async with await anyio.open_process(program, stdout=None, stderr=None) as process:
        with anyio.fail_after(60):
            await anyio.wait_readable(alive)
            assert os.read(alive, 6) == b"begun\n"
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert is_alive(alive), "the command goes on: it is in a group of its own"


async def recovered(directory: Path, replay: Replay, reaper: Reaper) -> tuple[Outcome, list[str]]:
    """Return how the call ended in the process that comes after, and the steps that led there."""
    runtime = SqliteRuntime(
        command_tools.registry(directory, replay),
        directory / "calls.db",
        reapers={NAMESPACE: reaper},
    )
    async with runtime:
        (batch,) = await runtime.recover()
        with anyio.fail_after(60):
            (outcome,) = await batch.settled()
        return outcome, [line.step for line in await runtime.inbox.history()]


@pytest.mark.parametrize("replay", ["safe", "unknown"])
async def test_what_a_killed_process_ran_is_ended_before_its_call_runs_again(
    tmp_path: Path, replay: Replay
) -> None:
    """DUR-2: the group is gone; the call runs again if that is safe, and else it is unknown."""
    gone: list[bool] = []

    async def reaping(record: Record) -> None:
        await reap(record)
        gone.append(not is_alive(alive))

    with held_open(tmp_path / "alive") as alive:
        await left_by_a_killed_process(tmp_path, alive, replay)
        outcome, steps = await recovered(tmp_path, replay, reaping)
    assert gone == [True]
    begun = ["propose", "admit", "allow", "dispatch", "record"]
    if replay == "safe":
        assert isinstance(outcome, Completed)
        assert outcome.text == "again\n"
        assert steps == [*begun, "again", "allow", "dispatch", "record", "complete"]
    else:
        assert isinstance(outcome, Unknown)
        assert outcome.reason == "owner_lost"
        assert steps == [*begun, "doubt"]


def broken(_: Record) -> None:
    """Break, as a reaper may."""
    raise OSError("the disk is gone")


async def unsure(_: Record) -> None:
    """Say that nobody knows."""
    raise Failure("it was left alone")


@pytest.mark.parametrize(
    ("reaper", "said"), [(broken, "the disk is gone"), (unsure, "it was left alone")]
)
async def test_a_call_whose_leavings_were_not_ended_is_unknown(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    reaper: Callable[[Record], Awaitable[None] | None],
    said: str,
) -> None:
    """DUR-2: it is safe, and yet does not run beside what is left of it; the log has why."""
    with held_open(tmp_path / "alive") as alive:
        await left_by_a_killed_process(tmp_path, alive, "safe")
        with caplog.at_level(logging.ERROR, logger="ferrule"):
            outcome, _ = await recovered(tmp_path, "safe", reaper)
        assert isinstance(outcome, Unknown)
        assert said in caplog.text
        assert is_alive(alive)
        async with SqliteRuntime([], tmp_path / "calls.db") as runtime:
            (kept,) = (await runtime.inbox.call("c")).records
        await reap(kept.record)
        assert not is_alive(alive)
