"""
The journal as a file: what it is made of, and how one is opened.

A file of SQLite with an application id of its own and the version of its tables in
`user_version`. Each migration leads from one version to the next, in one transaction; a version is
never changed once it was released. What is not a journal, is newer, or is damaged, is refused
before anything is written.
"""

import functools
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from ferrule.errors import JournalError

APPLICATION: Final = 0x4665_7275
"""What SQLite keeps in the file to say whose it is (`Feru`)."""

MIGRATIONS: Final[tuple[str, ...]] = (
    """
    CREATE TABLE owners (
        id TEXT PRIMARY KEY, pid INTEGER NOT NULL, began TEXT NOT NULL, machine TEXT NOT NULL
    );
    CREATE TABLE batches (
        id TEXT PRIMARY KEY, digest TEXT NOT NULL, caller TEXT NOT NULL, since REAL NOT NULL,
        sequential INTEGER NOT NULL, open INTEGER NOT NULL,
        owner TEXT, fence INTEGER NOT NULL DEFAULT 0, lease REAL
    );
    CREATE INDEX open_batches ON batches (id) WHERE open;
    CREATE TABLE calls (
        id TEXT PRIMARY KEY, batch TEXT NOT NULL REFERENCES batches, position INTEGER NOT NULL,
        call TEXT NOT NULL, name TEXT NOT NULL, arguments TEXT NOT NULL,
        idempotency_key TEXT NOT NULL UNIQUE, digest TEXT NOT NULL, fingerprint TEXT NOT NULL,
        uses TEXT NOT NULL, replay TEXT NOT NULL,
        state TEXT NOT NULL, leg INTEGER NOT NULL DEFAULT 1, fence INTEGER NOT NULL DEFAULT 0,
        owner TEXT, lease REAL, effect INTEGER NOT NULL DEFAULT 0,
        told INTEGER NOT NULL DEFAULT 0, asked TEXT, outcome TEXT,
        UNIQUE (batch, position)
    );
    CREATE INDEX moving_calls ON calls (batch, position)
        WHERE state NOT IN ('completed', 'failed', 'rejected', 'cancelled');
    CREATE INDEX unknown_calls ON calls (id) WHERE state = 'unknown';
    CREATE TABLE holds (
        state TEXT NOT NULL, call TEXT NOT NULL REFERENCES calls, shared INTEGER NOT NULL,
        ticket INTEGER, PRIMARY KEY (state, call)
    ) WITHOUT ROWID;
    CREATE TABLE waits (
        id TEXT PRIMARY KEY, call TEXT NOT NULL REFERENCES calls, leg INTEGER NOT NULL,
        request TEXT NOT NULL, since REAL NOT NULL, expires REAL, open INTEGER NOT NULL DEFAULT 1,
        how TEXT, by TEXT, closed REAL, answer TEXT, answer_id TEXT UNIQUE, approval TEXT
    );
    CREATE INDEX open_waits ON waits (since) WHERE open;
    CREATE INDEX waits_of_calls ON waits (call);
    CREATE TABLE records (
        seq INTEGER PRIMARY KEY, call TEXT NOT NULL REFERENCES calls, leg INTEGER NOT NULL,
        fence INTEGER NOT NULL, at REAL NOT NULL, namespace TEXT NOT NULL, data TEXT NOT NULL
    );
    CREATE INDEX records_of_calls ON records (call);
    CREATE TABLE evidence (
        seq INTEGER PRIMARY KEY, call TEXT NOT NULL REFERENCES calls, leg INTEGER NOT NULL,
        fence INTEGER NOT NULL, at REAL NOT NULL, outcome TEXT NOT NULL
    );
    CREATE INDEX evidence_of_calls ON evidence (call);
    CREATE TABLE history (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, batch TEXT NOT NULL,
        call TEXT NOT NULL, step TEXT NOT NULL, state TEXT NOT NULL, leg INTEGER NOT NULL,
        fence INTEGER NOT NULL, by TEXT NOT NULL, data TEXT
    );
    CREATE INDEX holds_of_calls ON holds (call);
    CREATE INDEX history_of_calls ON history (call);
    """,
)
"""What leads from each version to the next; the first makes the tables."""


def connect(
    path: Path,
    *,
    create: bool,
    patience: float = 5.0,
    migrations: Sequence[str] = MIGRATIONS,
    known: bool = False,
) -> sqlite3.Connection:
    """
    Open a journal, and bring it to this version.

    Args:
        path: The file; beside it stand `-wal` and `-shm`, which belong to it.
        create: Whether a file that is not there, or is empty, becomes a journal.
        patience: Seconds to wait for a lock that somebody else has.
        migrations: What leads from each version to the next.
        known: Whether it was looked through before: that reads the whole file.

    Raises:
        JournalError: there is none, it is something else, newer, damaged, or cannot be opened.
    """
    _look_at(path, create=create)
    try:
        connection = sqlite3.connect(
            path, timeout=patience, isolation_level=None, check_same_thread=False
        )
        with ExitStack() as failed:
            failed.callback(connection.close)
            prepare = functools.partial(_prepare, connection, path, migrations, known=known)
            _in_time(prepare, path, patience)
            failed.pop_all()
    except sqlite3.Error as error:
        raise fault(error, path) from None
    return connection


def _look_at(path: Path, *, create: bool) -> None:
    """Refuse what SQLite would take for a database that is empty, or has no words for."""
    if path.is_dir():
        raise JournalError(f"{path.name} is a directory; name a file")
    if not path.parent.is_dir():
        raise JournalError(f"{path.name} cannot be made: its directory is not there")
    size = path.stat().st_size if path.exists() else 0
    if 0 < size < _SMALLEST:
        raise JournalError(f"{path.name} is no journal; name another file")
    if size == 0 and not create:
        raise JournalError(f"there is no journal {path.name}; `submit` and `ferrule run` make one")


_SMALLEST = 512
"""Bytes; no database of SQLite is smaller, and it would write over a file that is."""


def _in_time(prepare: Callable[[], None], path: Path, patience: float) -> None:
    """
    Prepare a journal, and try again while others do so at the same moment.

    SQLite waits for a lock, but not where two change how one file is kept (WAL) at once.
    """
    until = time.monotonic() + patience
    while True:
        try:
            return prepare()
        except sqlite3.OperationalError as error:
            if not fault(error, path).passing or time.monotonic() > until:
                raise
        time.sleep(_PAUSE)


_PAUSE = 0.02
"""Seconds between two tries to prepare a journal that others prepare."""


def _prepare(
    connection: sqlite3.Connection, path: Path, migrations: Sequence[str], *, known: bool
) -> None:
    version = _version(connection, path, len(migrations))
    if version and not known:
        _look_through(connection, path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    if version < len(migrations):
        _migrate(connection, path, migrations)


def _version(connection: sqlite3.Connection, path: Path, ours: int) -> int:
    """Return the version of a journal, 0 for a file with nothing in it; refuse what is no other."""
    application, version, tables = _facts(connection)
    empty = tables == 0
    if application != APPLICATION and not (empty and application == version == 0):
        raise JournalError(f"{path.name} is a database of something else; name another file")
    if version > ours:
        raise JournalError(
            f"{path.name} was written by a newer Ferrule (its version is {version}, we know "
            f"{ours}); use that one, or name another file"
        )
    return version


def _facts(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Return whose a file is, its version, and how many tables it has; all of one moment."""
    within = connection.in_transaction
    if not within:
        connection.execute("BEGIN")
    try:
        tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        return _pragma(connection, "application_id"), _pragma(connection, "user_version"), tables
    finally:
        if not within:
            connection.execute("ROLLBACK")


def _look_through(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that was cut short or damaged, before anything is made of it."""
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    log = path.with_name(f"{path.name}-wal")
    is_whole = path.stat().st_size % _pragma(connection, "page_size") == 0
    has_log = log.exists() and log.stat().st_size > 0  # It may have what the file misses.
    if found != "ok" or not (is_whole or has_log):
        raise damaged(path)


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> None:
    with connection:  # Commits; or rolls back, and what was raised goes on.
        connection.execute("BEGIN IMMEDIATE")
        # Somebody else may have been here while we waited for the lock.
        version = _version(connection, path, len(migrations))
        for migration in migrations[version:]:
            for statement in _statements(migration):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")


def _statements(migration: str) -> list[str]:
    """Return the statements of a migration, as `executescript` would commit halfway."""
    statements: list[str] = []
    left = ""
    for line in migration.splitlines(keepends=True):
        left += line
        if sqlite3.complete_statement(left):
            statements.append(left)
            left = ""
    return statements


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    with closing(connection.execute(f"PRAGMA {name}")) as rows:
        value: int = rows.fetchone()[0]
    return value


def damaged(path: Path) -> JournalError:
    """Return what to say of a file that SQLite cannot make sense of."""
    return JournalError(
        f"{path.name} is damaged or was cut short; nothing was written. Copy it with its -wal "
        "file, and restore a backup, or save what is readable with `sqlite3 … .recover`"
    )


def is_locked(error: sqlite3.Error) -> bool:
    """Say whether somebody else holds a lock, so that nobody may write just now."""
    return _primary(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _primary(error: sqlite3.Error) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else None


def fault(error: sqlite3.Error, path: Path) -> JournalError:
    """Return what to say of an error of SQLite: what happened, and what would mend it."""
    primary = _primary(error)
    if is_locked(error):
        return JournalError(
            f"{path.name} is locked by another process; nothing was written. Try again",
            passing=True,
        )
    if primary == sqlite3.SQLITE_FULL:
        return JournalError(
            f"there is no room left for {path.name}; nothing was written. Free some space",
            passing=True,
        )
    if primary == sqlite3.SQLITE_NOTADB:
        return JournalError(f"{path.name} is no journal; name another file")
    if primary == sqlite3.SQLITE_CORRUPT:
        return damaged(path)
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return JournalError(f"{path.name} cannot be written here; mind its permissions")
    return JournalError(
        f"{path.name} cannot be read or written just now ({error}); nothing was written",
        passing=primary == sqlite3.SQLITE_IOERR,
    )
