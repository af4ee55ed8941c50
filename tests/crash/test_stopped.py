"""
A process that is stopped for longer than its lease, and wakes.

Its calls are somebody else's by then: it writes nothing but evidence, and says how they ended
there. And who was away itself does not take the others for lost on its return.
"""

import functools
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from crash import gated, journal
from crash.log import lines
from crash.world import World
from ferrule import Completed, Unknown
from ferrule.runtime import SqliteRuntime, _owners
from ferrule.runtime._store import Store

TESTS = Path(__file__).parents[1]
LONG = 120
"""Seconds after which something hangs; nothing waits for them."""

LEASE = 1.0


class Child:
    """A process of `crash.child`, and what it says."""

    def __init__(self, how: str, home: Path, *, lease: float, loop: str = "asyncio") -> None:
        command = (sys.executable, "-m", "crash.child", how, home, f"--lease={lease}")
        self.process = subprocess.Popen(
            [*map(str, command), f"--loop={loop}"],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.heard: list[str] = []

    async def hears(self) -> str:
        """Return the next line that it says; empty at the end."""
        assert self.process.stdout is not None
        line = (await anyio.to_thread.run_sync(self.process.stdout.readline)).strip()
        self.heard.append(line)
        return line

    async def looks(self, since: float, times: int) -> None:
        """Wait until it has looked so often for what is lost since a moment."""
        while times:
            times -= float((await self.hears()).split()[0]) > since

    def tell(self, *words: str) -> None:
        """Say something to it, also while it is stopped."""
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{word}\n" for word in words))
        self.process.stdin.flush()

    async def stop(self) -> None:
        """Stop it, and wait until it is."""
        self.process.send_signal(signal.SIGSTOP)
        flags = os.WSTOPPED | os.WNOWAIT
        await anyio.to_thread.run_sync(os.waitid, os.P_PID, self.process.pid, flags)

    def wake(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    async def ends(self) -> int:
        """Wait for its end."""
        return await anyio.to_thread.run_sync(self.process.wait, LONG)


@asynccontextmanager
async def child(
    how: str, home: Path, *, lease: float = LEASE, loop: str = "asyncio"
) -> AsyncIterator[Child]:
    """Start a process; it ends with the block."""
    started = Child(how, home, lease=lease, loop=loop)
    try:
        with anyio.fail_after(LONG):
            yield started
    finally:
        started.process.kill()
        started.process.communicate()


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so; whoever calls bounds it."""
    while not condition():  # noqa: ASYNC110  # other processes make it so
        await anyio.sleep(0.01)


def leases(path: Path) -> dict[str, float]:
    """Return the leases that a journal has now, of batches and calls."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return dict(
            connection.execute(
                "SELECT id, lease FROM batches WHERE lease IS NOT NULL "
                "UNION SELECT id, lease FROM calls WHERE lease IS NOT NULL"
            )
        )


def everything(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of a journal but evidence and history."""
    tables = ("owners", "batches", "calls", "holds", "waits", "records")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return {name: list(connection.execute(f"SELECT * FROM {name}")) for name in tables}


def begun(home: Path) -> set[str]:
    """Return the calls that have begun, as they said so."""
    return {line.call for line in lines(home / "log") if line.what == "begin"}


def have_begun(home: Path, many: int) -> bool:
    """Say whether so many calls have begun."""
    return len(begun(home)) == many


ENDED = {
    "held": [Completed, Unknown, Unknown],
    "turn": [Completed, Unknown, Unknown, Completed],
}
"""How the calls end where their process is lost."""


async def taken_over(home: Path, stopped: Child) -> None:
    """Drive the turns of a process that is stopped to their end."""
    world = World(home)
    async with SqliteRuntime(gated.tools(world), world.path, lease=LEASE) as runtime:
        taken = await runtime.recover()
        while len(taken) < len(ENDED):
            assert stopped.process.poll() is None
            await anyio.sleep(0.01)
            taken += await runtime.recover()
        for batch in taken:
            await batch.at_rest()
        for wait in await runtime.inbox.waits():
            await runtime.inbox.answer(wait.id, True, by="ann")
        outcomes = {batch.id: await batch.settled() for batch in taken}
    for name, ended in ENDED.items():
        assert [type(outcome) for outcome in outcomes[name]] == ended
        assert outcomes[name][1].to_json()["reason"] == "owner_lost"


@pytest.mark.anyio
async def test_who_wakes_after_its_lease_writes_nothing_but_evidence(
    tmp_path: Path, anyio_backend: str
) -> None:
    """DUR-1, DUR-2: ENGINE 3: it finds itself fenced, says so, and follows the other's outcome."""
    async with child("drive", tmp_path, loop=anyio_backend) as first:
        assert await first.hears() == "submitted"
        await until(functools.partial(have_begun, tmp_path, 6))
        await first.stop()
        await taken_over(tmp_path, first)
        path = tmp_path / "calls.db"
        before, kept = journal.read(path), everything(path)
        first.tell("go", "leave")
        first.wake()
        for ended in ENDED.values():
            assert await first.hears() == " ".join(outcome.__name__ for outcome in ended)
        assert await first.ends() == 0
    after = journal.read(path)
    assert everything(path) == kept
    late = after.steps[len(before.steps) :]
    assert {step.step for step in late} == {"evidence"}
    assert {call for call, fence in after.evidence if fence == 1} == begun(tmp_path) - {
        "turn.3.refund+"
    }
    said = (tmp_path / "drive.log").read_text()
    assert "is not this process's any more" in said
    assert said.count("ended here after it was taken for lost") == 6
    assert {line.call for line in lines(tmp_path / "log") if line.what == "fenced"} == {
        "held.2.held_record",
        "turn.2.held_record",
    }


@pytest.mark.anyio
async def test_who_waits_for_the_calls_of_another_takes_them_over_when_that_is_killed(
    tmp_path: Path, anyio_backend: str
) -> None:
    """DUR-2: who submits the same turn and waits, waits for its end, whoever brings it there."""
    async with child("drive", tmp_path, loop=anyio_backend) as first:
        assert await first.hears() == "submitted"
        await until(functools.partial(have_begun, tmp_path, 6))
        world = World(tmp_path)
        async with SqliteRuntime(gated.tools(world), world.path, lease=LEASE) as runtime:
            batch = await runtime.submit(gated.turns()["turn"], batch_id="turn")
            assert await runtime.recover() == []
            [wait] = await runtime.inbox.waits()
            await runtime.inbox.answer(wait.id, True, by="ann")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_killed_later, first, tmp_path)
                outcomes = await batch.settled()
    assert [type(outcome) for outcome in outcomes] == ENDED["turn"]


async def _killed_later(first: Child, home: Path) -> None:
    """Kill a process after its last write was seen, so that nothing wakes whoever waits for it."""
    await until(lambda: journal.read(home / "calls.db").states()["completed"])
    seen = leases(home / "calls.db")
    await until(lambda: leases(home / "calls.db").items() - seen.items())
    await anyio.sleep(LEASE / 8)
    first.process.kill()


Outage = Callable[[Child, Child, Path], Awaitable[float]]


async def both_stopped(driving: Child, watching: Child, path: Path) -> float:
    """Stop both for longer than a lease; let the one that watches wake first."""
    await driving.stop()
    await watching.stop()
    lapsed = max(*leases(path).values(), time.monotonic() + AWAY)
    await until(lambda: time.monotonic() > lapsed)
    before = leases(path)
    woke = time.monotonic()
    watching.wake()
    await watching.looks(woke, 5)
    driving.wake()
    await until(lambda: leases(path).items() - before.items())
    return time.monotonic() - woke


async def locked(_: Child, watching: Child, path: Path) -> float:
    """Lock the journal for longer than a lease."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        before = leases(path)
        lapsed = max(*before.values(), time.monotonic() + AWAY)
        await until(lambda: time.monotonic() > lapsed)
        woke = time.monotonic()
        connection.execute("COMMIT")
    await until(lambda: leases(path).items() - before.items())
    return time.monotonic() - woke


AWAY = 2.0
"""The lease of those two tests, in seconds."""


@pytest.mark.anyio
@pytest.mark.parametrize("outage", [both_stopped, locked])
async def test_who_was_away_itself_waits_a_lease_before_it_declares_others_lost(
    tmp_path: Path, outage: Outage, anyio_backend: str
) -> None:
    """DUR-2: ENGINE 2: after an outage of its own, nobody is taken for lost who lives."""
    for attempt in range(5):
        home = tmp_path / str(attempt)
        home.mkdir()
        async with (
            child("drive", home, lease=AWAY, loop=anyio_backend) as driving,
            child("watch", home, lease=AWAY, loop=anyio_backend) as watching,
        ):
            assert await driving.hears() == "submitted"
            await until(functools.partial(have_begun, home, 6))
            await watching.looks(0.0, 1)
            seconds = await outage(driving, watching, home / "calls.db")
            await watching.looks(time.monotonic(), 5)
            if seconds < AWAY:  # Else the machine was away for so long that the other had to be.
                assert {line.partition(" ")[2] for line in watching.heard} == {"nothing"}
                return
    pytest.fail("this machine is too slow to tell one who is away from one who is lost")


def are_renewed(path: Path, seen: dict[str, float]) -> bool:
    """Say whether every lease is a later one but of the call that nobody runs."""
    return all(
        lease > seen[name] for name, lease in leases(path).items() if not name.endswith("refund+")
    )


@pytest.mark.anyio
async def test_a_heartbeat_names_what_really_runs(tmp_path: Path) -> None:
    """DUR-2: ENGINE 1: a call that its process knows nothing of does not look alive for ever."""
    async with child("drive", tmp_path, lease=LEASE) as driving:
        assert await driving.hears() == "submitted"
        await until(functools.partial(have_begun, tmp_path, 6))
        path = tmp_path / "calls.db"
        with closing(sqlite3.connect(path, isolation_level=None, timeout=LONG)) as connection:
            # As if the leg had ended and the write that says so had failed.
            connection.execute(
                "UPDATE calls SET state = 'dispatched', fence = 1, lease = 1.0, "
                "owner = (SELECT owner FROM batches) WHERE call LIKE '%refund+'"
            )
        running = leases(path)
        assert running["turn/turn.3.refund+"] == 1.0
        for _ in range(2):
            await until(functools.partial(are_renewed, path, leases(path)))
        assert leases(path)["turn/turn.3.refund+"] == 1.0


def test_who_asks_before_its_next_beat_is_patient_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """DUR-2: ENGINE 2: the first work after an outage may come before any heartbeat."""
    moment = 1000.0
    monkeypatch.setattr(_owners, "now", lambda: moment)
    ours, theirs = _owners.Owner(10.0), _owners.Owner(10.0)
    with closing(Store(tmp_path / "calls.db", create=True)) as store:
        store.write(theirs.introduce)
        ours.beat()
        lease = theirs.lease()
        lost = functools.partial(ours.has_lost, owner=theirs.id, lease=lease)
        moment += 9.0
        ours.beat()
        assert not store.read(lost)
        moment += 2.0
        assert store.read(lost)
        moment += 60.0
        assert not store.read(lost)
        ours.beat()
        moment += 9.0
        ours.beat()
        assert not store.read(lost)
        moment += 2.0
        assert store.read(lost)
