"""Files that are no journal, or none any more: refused with what to do, and not touched."""

import os
import random
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from crash import journal
from ferrule import ToolCall, tool
from ferrule.errors import JournalError
from ferrule.runtime import SqliteInbox, SqliteRuntime

pytestmark = pytest.mark.anyio

LONG = 60
"""Seconds after which something hangs; nothing waits for them."""


@tool
def echo(text: str = "") -> str:
    """Give a text back."""
    return text


CALLS = [ToolCall.of("echo", {"text": "x" * 3000}, id=f"c{number}") for number in range(20)]


async def through_a_runtime(path: Path) -> None:
    """Open a file as a runtime does."""
    async with SqliteRuntime([echo], path) as runtime:
        await runtime.submit(CALLS[:1], batch_id="another")


async def through_an_inbox(path: Path) -> None:
    """Open a file as people do."""
    await SqliteInbox(path).waits()


Open = Callable[[Path], Awaitable[None]]
both = pytest.mark.parametrize("opened", [through_a_runtime, through_an_inbox])


def whole(path: Path) -> None:
    """Make a journal with a turn that has ended, closed."""

    async def run() -> None:
        with anyio.fail_after(LONG):
            async with SqliteRuntime([echo], path) as runtime:
                batch = await runtime.submit(CALLS, batch_id="turn")
                await batch.settled()

    anyio.run(run)
    assert not path.with_name(f"{path.name}-wal").exists()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return what a journal is made of."""
    path = tmp_path_factory.mktemp("sound") / "calls.db"
    whole(path)
    return path.read_bytes()


def cut(part: float) -> Callable[[bytes], bytes]:
    """Return what cuts a file short."""
    return lambda data: data[: int(len(data) * part)]


def overwritten(begin: int, end: int) -> Callable[[bytes], bytes]:
    """Return what writes noise over a part of a file; counted from its end if negative."""

    def write(data: bytes) -> bytes:
        noise = random.Random(6).randbytes(len(data[begin:end]))
        return data[:begin] + noise + data[len(data[:begin]) + len(noise) :]

    return write


def pages_swapped(data: bytes) -> bytes:
    """Return a file with its second and third page in each other's place."""
    size = int.from_bytes(data[16:18], "big")
    return data[:size] + data[2 * size : 3 * size] + data[size : 2 * size] + data[3 * size :]


DAMAGED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut to its half": (cut(0.5), "cut short"),
    "cut by a page": (lambda data: data[:-4096], "cut short"),
    "cut in a page": (lambda data: data[:-1000], "cut short"),
    "cut to one page": (lambda data: data[:4096], "cut short"),
    "cut in its header": (lambda data: data[:50], "no journal"),
    "cut to a byte": (lambda data: data[:1], "no journal"),
    "another header": (overwritten(0, 16), "no journal"),
    "noise in the header": (overwritten(16, 100), "journal|damaged|something else|newer"),
    "noise in the tables": (overwritten(100, 4096), "damaged"),
    "noise in the middle": (overwritten(8192, 40960), "damaged"),
    "noise at the end": (overwritten(-4096, 10**9), "damaged"),
    "pages in another order": (pages_swapped, "damaged"),
    "random bytes": (lambda data: random.Random(6).randbytes(len(data)), "no journal"),
    "a text": (lambda _: b"Dear journal,\n" * 100, "no journal"),
    "zeroes": (lambda data: bytes(len(data)), "no journal|something else"),
}


def beside(path: Path) -> dict[str, bytes]:
    """Return all files beside a journal, and it."""
    return {one.name: one.read_bytes() for one in path.parent.iterdir() if one.is_file()}


async def refuses(opened: Open, path: Path, says: str) -> None:
    """Check that a file is refused, and that nothing was made of it."""
    before = beside(path)
    with anyio.fail_after(LONG), pytest.raises(JournalError, match=says) as refused:
        await opened(path)
    assert path.name in str(refused.value)
    assert not refused.value.passing
    after = beside(path)
    assert {name: after[name] for name in before} == before
    assert all(not after[name] for name in after.keys() - before.keys() if "-shm" not in name)


@both
@pytest.mark.parametrize("damage", DAMAGED)
async def test_what_is_damaged_or_something_else_is_refused_and_not_touched(
    sound: bytes, tmp_path: Path, damage: str, opened: Open
) -> None:
    """DUR-4: a typed error that says what to do, nothing written."""
    changed, says = DAMAGED[damage]
    path = tmp_path / "calls.db"
    path.write_bytes(changed(sound))
    await refuses(opened, path, says)


@both
async def test_a_database_of_another_application_is_refused(tmp_path: Path, opened: Open) -> None:
    """DUR-4: one with tables and one with an id of its own; neither gets ours."""
    for number, statement in enumerate(
        ("CREATE TABLE calls (id)", "PRAGMA application_id = 77", "PRAGMA user_version = 3")
    ):
        path = tmp_path / f"other{number}.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(statement)
        await refuses(opened, path, "something else; name another file")


@both
async def test_a_journal_of_a_newer_ferrule_is_refused(
    sound: bytes, tmp_path: Path, opened: Open
) -> None:
    """DUR-4: it says which version the file has and which we know."""
    path = tmp_path / "calls.db"
    path.write_bytes(sound)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1000")
    await refuses(opened, path, r"written by a newer Ferrule \(its version is 1000, we know 1\)")


@both
async def test_a_directory_is_refused(tmp_path: Path, opened: Open) -> None:
    """DUR-4: what cannot be opened says so."""
    path = tmp_path / "calls.db"
    path.mkdir()
    await refuses(opened, path, "directory")


@both
async def test_a_journal_that_may_not_be_read_is_refused(
    sound: bytes, tmp_path: Path, opened: Open, require: Callable[..., None]
) -> None:
    """DUR-4: permissions are named."""
    require(os.geteuid() != 0, "a user whom permissions hold back: not root", optional=True)
    path = tmp_path / "calls.db"
    path.write_bytes(sound)
    path.chmod(0)
    with pytest.raises(JournalError, match="permissions"):
        await opened(path)
    path.chmod(0o600)
    assert path.read_bytes() == sound


async def test_an_empty_file_becomes_a_journal_for_who_keeps_calls_alone(tmp_path: Path) -> None:
    """DUR-4: who only answers finds no journal in it, and makes none."""
    path = tmp_path / "calls.db"
    path.touch()
    with pytest.raises(JournalError, match="no journal"):
        await SqliteInbox(path).waits()
    assert path.read_bytes() == b""
    await through_a_runtime(path)
    assert journal.read(path).states().total() == 1
    assert await SqliteInbox(path).waits() == []


async def test_a_journal_that_is_not_there_is_not_made_by_who_only_answers(tmp_path: Path) -> None:
    """DUR-4: a mistyped name is no empty inbox."""
    with pytest.raises(JournalError, match=r"no journal calls\.db"):
        await SqliteInbox(tmp_path / "calls.db").waits()
    with pytest.raises(JournalError, match="its directory is not there"):
        await through_a_runtime(tmp_path / "nowhere" / "calls.db")
    assert beside(tmp_path / "calls.db") == {}


def copied(path: Path, to: Path, change: Callable[[bytes], bytes]) -> None:
    """Copy a journal that is open, with its `-wal` changed."""
    (to / path.name).write_bytes(path.read_bytes())
    log = f"{path.name}-wal"
    (to / log).write_bytes(change((path.parent / log).read_bytes()))


@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.7, 0.9, 0.999])
async def test_a_log_that_was_cut_short_loses_its_end_and_no_more(
    tmp_path: Path, part: float
) -> None:
    """DUR-1, DUR-4: what is left of the `-wal` is a journal of some moment before, and goes on."""
    path = tmp_path / "calls.db"
    kept = tmp_path / "kept"
    kept.mkdir()
    async with SqliteRuntime([echo], path, lease=0.1) as runtime:
        batch = await runtime.submit(CALLS, batch_id="turn")
        await batch.settled()
        copied(path, kept, cut(part))
    with anyio.fail_after(LONG):
        async with SqliteRuntime([echo], kept / path.name, lease=0.1) as runtime:
            batch = await runtime.submit(CALLS, batch_id="turn")
            outcomes = await batch.settled()
    assert {type(one).__name__ for one in outcomes} <= {"Completed", "Unknown"}
    assert len(outcomes) == len(CALLS)
    assert journal.read(kept / path.name).states().total() == len(CALLS)


async def test_an_inbox_looks_through_a_file_the_first_time_only(
    sound: bytes, tmp_path: Path
) -> None:
    """DUR-1: that reads all of it, and who follows a history asks five times a second."""
    path = tmp_path / "calls.db"
    path.write_bytes(sound)
    inbox = SqliteInbox(path)
    lines = await inbox.history("turn/c1")
    with path.open("ab") as file:
        file.write(b"\0")  # No whole page: what looks through takes the file for cut.

    assert lines
    assert await inbox.history("turn/c1") == lines
    with pytest.raises(JournalError, match="cut short"):
        await SqliteInbox(path).history("turn/c1")
