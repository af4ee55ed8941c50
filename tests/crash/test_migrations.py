"""A journal of an older Ferrule, opened by a newer one: brought to its version whole, or not."""

import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from crash import journal
from ferrule import ToolCall, tool
from ferrule.errors import JournalError
from ferrule.runtime import SqliteRuntime
from ferrule.runtime._file import MIGRATIONS, connect

TESTS = Path(__file__).parents[1]
LONG = 60
"""Seconds after which something hangs; nothing waits for them."""

NEXT = """
CREATE TABLE newer (id TEXT PRIMARY KEY, what TEXT NOT NULL);
INSERT INTO newer SELECT id, name FROM calls;
ALTER TABLE calls ADD COLUMN newer TEXT NOT NULL DEFAULT 'as before';
"""
"""What the Ferrule after this one may do."""

BROKEN = f"{NEXT}\nINSERT INTO nowhere VALUES (1);"
"""The same, and a mistake at its end."""


@tool
def echo(text: str = "") -> str:
    """Give a text back."""
    return text


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a journal of this version, with a turn in it."""
    made = tmp_path / "calls.db"

    async def run() -> None:
        with anyio.fail_after(LONG):
            async with SqliteRuntime([echo], made) as runtime:
                calls = [ToolCall.of("echo", {"text": str(number)}) for number in range(10)]
                await (await runtime.submit(calls, batch_id="turn")).settled()

    anyio.run(run)
    return made


def version(path: Path) -> int:
    """Return the version that a journal says it has."""
    with closing(sqlite3.connect(path)) as connection:
        found: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return found


def content(path: Path) -> list[str]:
    """Return all that is in a journal."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def opened(path: Path, migrations: Sequence[str]) -> None:
    """Open a journal as a Ferrule with these migrations does."""
    connect(path, create=True, migrations=migrations).close()


def test_an_older_journal_is_brought_to_the_newer_version_once(path: Path) -> None:
    """DUR-4: its calls are as they were; a second opening changes nothing."""
    before = journal.read(path)
    opened(path, (*MIGRATIONS, NEXT))
    assert version(path) == len(MIGRATIONS) + 1
    assert journal.read(path) == before
    after = content(path)
    assert sum('INTO "newer"' in line or "INTO newer" in line for line in after) == 10
    opened(path, (*MIGRATIONS, NEXT))
    assert content(path) == after


def test_a_migration_that_fails_leaves_version_and_content(path: Path) -> None:
    """DUR-4: a migration is one transaction, its statements and its version."""
    before = content(path)
    with pytest.raises(JournalError, match=r"calls\.db"):
        opened(path, (*MIGRATIONS, BROKEN))
    assert version(path) == len(MIGRATIONS)
    assert content(path) == before
    opened(path, MIGRATIONS)
    opened(path, (*MIGRATIONS, NEXT))
    assert version(path) == len(MIGRATIONS) + 1


def test_a_journal_that_is_newer_by_then_is_refused_by_the_older(path: Path) -> None:
    """DUR-4: the Ferrule that was does not write into what it does not know."""
    opened(path, (*MIGRATIONS, NEXT))
    after = content(path)
    with pytest.raises(JournalError, match="written by a newer Ferrule"):
        opened(path, MIGRATIONS)
    assert content(path) == after


OPEN = """
import sys
from pathlib import Path
from crash.test_migrations import NEXT, opened
from ferrule.runtime._file import MIGRATIONS
print("ready", flush=True)
sys.stdin.readline()
opened(Path(sys.argv[1]), (*MIGRATIONS, NEXT))
"""


@pytest.mark.parametrize("is_new", [True, False])
def test_several_processes_that_open_a_journal_at_once_migrate_it_once(
    tmp_path: Path, path: Path, *, is_new: bool
) -> None:
    """DUR-4: whoever comes second finds it done; also where there was none before."""
    where = tmp_path / "new.db" if is_new else path
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, str(where)],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            process.communicate(timeout=LONG)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * 4
    assert version(where) == len(MIGRATIONS) + 1
    assert len(journal.read(where).calls) == (0 if is_new else 10)
