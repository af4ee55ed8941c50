"""
Transactions on a journal: each whole or not at all.

Theory. A commit costs a sync of the disk, and that is nearly all it costs. So several pieces of
work that have gathered share one transaction. Within it each piece stands between savepoints of its
own: one that raises takes back what it wrote, and nothing of the others. If the whole cannot be
done, each is tried by itself: nobody's work fails for want of what another's needs.
"""

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar, cast

from ferrule.errors import FerruleError, JournalError
from ferrule.runtime._file import connect, fault, is_locked

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

    def run(self, sql: str, *values: object) -> None:
        """Run one statement."""
        self._connection.execute(sql, values)

    def rows(self, sql: str, *values: object) -> list[sqlite3.Row]:
        """Return all rows of a query."""
        return self._connection.execute(sql, values).fetchall()

    def row(self, sql: str, *values: object) -> sqlite3.Row | None:
        """Return the first row of a query, if it has one."""
        found: sqlite3.Row | None = self._connection.execute(sql, values).fetchone()
        return found


class Work(Generic[T]):
    """
    A piece of work, and what became of it.

    Attributes:
        function: What is done within the transaction; it raises what is not to be done.
        writes: Whether it writes.
        error: Why it is not done, if it is not.
        then: Told that it is done, by whoever does the work.
    """

    __slots__ = ("_result", "error", "function", "then", "writes")

    def __init__(
        self,
        function: Callable[[Transaction], T],
        *,
        writes: bool,
        then: Callable[["Work[T]"], None] | None = None,
    ) -> None:
        self.function = function
        self.writes = writes
        self.then = then
        self.error: FerruleError | None = None
        self._result: T | None = None

    def do(self, transaction: Transaction) -> None:
        """Do it, and keep what it returns."""
        self._result = self.function(transaction)

    @property
    def result(self) -> T:
        """What it returned; raises why it was not done."""
        if self.error is not None:
            raise self.error
        return cast("T", self._result)


class Store:
    """
    An open journal, for one thread at a time.

    Args:
        path: The file.
        create: Whether a file that is not there becomes a journal.
        patience: Seconds to wait for a lock that another process has.
        clock: Gives the time, in seconds since 1970.
        known: Whether the file was looked through before.
    """

    def __init__(
        self,
        path: Path,
        *,
        create: bool,
        patience: float = 5.0,
        clock: Callable[[], float] = time.time,
        known: bool = False,
    ) -> None:
        self.path = path
        self._clock = clock
        self._connection = connect(path, create=create, patience=patience, known=known)
        self._connection.row_factory = sqlite3.Row

    def write(self, function: Callable[[Transaction], T]) -> T:
        """
        Run `function` in a transaction; return what it returns once that is on disk.

        Raises:
            JournalError: the journal cannot be written; nothing was.
            FerruleError: what `function` raised; nothing of it was written.
        """
        work = Work(function, writes=True)
        self.do([cast("Work[object]", work)])
        return work.result

    def read(self, function: Callable[[Transaction], T]) -> T:
        """
        Run `function` on one state of the journal; it writes nothing.

        Raises:
            JournalError: the journal cannot be read.
            FerruleError: what `function` raised.
        """
        work = Work(function, writes=False)
        self.do([cast("Work[object]", work)])
        return work.result

    def version(self) -> int:
        """Return a number that is another one once somebody else has written."""
        try:
            found: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error as error:
            raise fault(error, self.path) from None
        return found

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def do(self, works: Sequence[Work[object]]) -> None:
        """
        Do all of `works` in one transaction, if it can be; each says what became of it.

        Where it cannot, what only reads is done all the same; and each of the others by itself,
        unless nobody may write just now: one may need more room than there is.
        """
        failed = self._together(works)
        if failed is None or len(works) == 1:
            return
        reads = [work for work in works if not work.writes]
        if reads:
            self._together(reads)
        if not is_locked(failed):
            for work in works:
                if work.writes:
                    self._together([work])

    def _together(self, works: Sequence[Work[object]]) -> sqlite3.Error | None:
        """Do all of `works` in one transaction, or none; return what SQLite said if it failed."""
        failed: sqlite3.Error | None = None
        committed = False
        try:
            writes = any(work.writes for work in works)
            self._connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            transaction = Transaction(self._connection, self._clock())
            for work in works:
                work.error = None
                self._do(work, transaction, alone=len(works) == 1)
            self._connection.execute("COMMIT")
            committed = True
        except sqlite3.Error as error:
            failed = error
        finally:
            if not committed:
                self._roll_back()
                for work in works:
                    work.error = self._why(failed)
        return failed

    def _do(self, work: Work[object], transaction: Transaction, *, alone: bool) -> None:
        if alone:
            try:
                work.do(transaction)
            except FerruleError as error:
                work.error = error
                self._connection.execute("ROLLBACK")
                self._connection.execute("BEGIN")
            return
        self._connection.execute("SAVEPOINT work")
        try:
            work.do(transaction)
        except FerruleError as error:
            work.error = error
            self._connection.execute("ROLLBACK TO work")
        self._connection.execute("RELEASE work")

    def _why(self, failed: sqlite3.Error | None) -> JournalError:
        if failed is not None:
            return fault(failed, self.path)
        return JournalError(f"{self.path.name} was not written: what was to be written broke")

    def _roll_back(self) -> None:
        """Roll back, unless SQLite has done so itself."""
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
