"""
Transactions on a journal: each whole or not at all, and one sync to disk for all that wait.

Theory. A commit costs a sync of the disk, and that is nearly all it costs. So whoever comes while
one is under way joins the next: it leaves its work, waits for its turn, and finds either that
somebody before it has done the work already, or does all that has gathered. Within the transaction
each piece stands between savepoints of its own: one that raises takes back what it wrote, and
nothing of the others. Work is done before its caller hears of it; if the commit fails, nobody's is.
"""

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar, cast

from ferrule.errors import FerruleError, JournalError
from ferrule.runtime._file import connect, fault

T = TypeVar("T")


class Transaction:
    """
    One transaction, as the work within it sees it.

    Attributes:
        at: When it began, in seconds since 1970; what is written in it has this time.
    """

    __slots__ = ("_connection", "at")

    def __init__(self, connection: sqlite3.Connection, at: float) -> None:
        self._connection = connection
        self.at = at

    def run(self, sql: str, *values: object) -> sqlite3.Cursor:
        """Run one statement."""
        return self._connection.execute(sql, values)

    def rows(self, sql: str, *values: object) -> list[sqlite3.Row]:
        """Return all rows of a query."""
        return self._connection.execute(sql, values).fetchall()

    def row(self, sql: str, *values: object) -> sqlite3.Row | None:
        """Return the first row of a query, if it has one."""
        found: sqlite3.Row | None = self._connection.execute(sql, values).fetchone()
        return found


class _Work(Generic[T]):
    """A piece of work that waits for its transaction."""

    __slots__ = ("done", "error", "function", "result")

    def __init__(self, function: Callable[[Transaction], T]) -> None:
        self.function = function
        self.done = False
        self.result: T | None = None
        self.error: FerruleError | None = None


class Store:
    """
    An open journal; safe between threads.

    Args:
        path: The file.
        create: Whether a file that is not there becomes a journal.
        patience: Seconds to wait for a lock that another process has.
        clock: Gives the time, in seconds since 1970.
    """

    def __init__(
        self,
        path: Path,
        *,
        create: bool,
        patience: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self._clock = clock
        self._connection = connect(path, create=create, patience=patience)
        self._connection.row_factory = sqlite3.Row
        self._turn = threading.Lock()
        self._gathered: list[_Work[object]] = []
        self._gathering = threading.Lock()
        self._closed = False

    def write(self, function: Callable[[Transaction], T]) -> T:
        """
        Run `function` in a transaction; return what it returns once that is on disk.

        Raises:
            JournalError: the journal cannot be written; nothing was.
            Exception: what `function` raised; nothing of it was written.
        """
        work = _Work(function)
        with self._gathering:
            self._gathered.append(cast("_Work[object]", work))
        with self._turn:
            if not work.done:
                self._do_all()
        if work.error is not None:
            raise work.error
        return cast("T", work.result)

    def read(self, function: Callable[[Transaction], T]) -> T:
        """
        Run `function` on one state of the journal; it writes nothing.

        Raises:
            JournalError: the journal cannot be read.
            Exception: what `function` raised.
        """
        with self._turn:
            self._open()
            try:
                self._connection.execute("BEGIN")
                try:
                    return function(Transaction(self._connection, self._clock()))
                finally:
                    self._end("ROLLBACK")
            except sqlite3.Error as error:
                raise fault(error, self.path) from None

    def version(self) -> int:
        """Return a number that is another one once another process has written."""
        with self._turn:
            self._open()
            try:
                found: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
            except sqlite3.Error as error:
                raise fault(error, self.path) from None
        return found

    def close(self) -> None:
        """Close the file; what comes later is told so."""
        with self._turn:
            self._closed = True
            self._connection.close()

    def _open(self) -> None:
        if self._closed:
            raise JournalError(f"{self.path.name} was closed here")

    def _do_all(self) -> None:
        """Do all the work that has gathered, in one transaction."""
        with self._gathering:
            works, self._gathered = self._gathered, []
        failed: sqlite3.Error | None = None
        committed = False
        try:
            self._open()
            self._connection.execute("BEGIN IMMEDIATE")
            transaction = Transaction(self._connection, self._clock())
            for work in works:
                self._do(work, transaction)
            self._connection.execute("COMMIT")
            committed = True
        except sqlite3.Error as error:
            failed = error
        finally:
            if not committed:
                self._end("ROLLBACK")
            for work in works:
                work.done = True
                if not committed:
                    work.error = self._why(failed)

    def _do(self, work: _Work[object], transaction: Transaction) -> None:
        self._connection.execute("SAVEPOINT work")
        try:
            work.result = work.function(transaction)
        except FerruleError as error:
            work.error = error
            self._connection.execute("ROLLBACK TO work")
        self._connection.execute("RELEASE work")

    def _why(self, failed: sqlite3.Error | None) -> JournalError:
        if failed is not None:
            return fault(failed, self.path)
        return JournalError(f"{self.path.name} was not written: it was closed, or a write broke")

    def _end(self, how: str) -> None:
        """End a transaction, if SQLite has not ended it itself."""
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute(how)
