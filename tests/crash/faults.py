"""
Where a process may be killed: at each commit of its journal, which it counts itself.

Only a process that is to be killed is changed so: its connections are of a class that counts what
is committed, and ends the process by SIGKILL right before or right after the n-th. Nothing of it is
caught, flushed or closed: that is what `kill -9` is.
"""

import functools
import os
import signal
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn, cast

import msgspec

from ferrule.runtime._store import Store, Work


class Fault(msgspec.Struct, kw_only=True):
    """
    When a process ends itself.

    Attributes:
        at: The commit at which it does, counted from 1; 0 is never.
        after: Whether right after the commit, or right before.
        tick: Told of each commit.
        count: Commits so far.
    """

    at: int = 0
    after: bool = False
    tick: Callable[[str], object] = len
    count: int = 0

    def before_commit(self) -> None:
        """Count a commit that is about to be made."""
        self.count += 1
        if self.count == self.at and not self.after:
            kill()

    def after_commit(self) -> None:
        """Note that it was made."""
        if self.count == self.at and self.after:
            kill()
        self.tick("commit")


def kill() -> NoReturn:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process goes on after SIGKILL")


def install(fault: Fault, *, one_by_one: bool) -> None:
    """
    Have this process count its commits, and be killed at one of them.

    Args:
        fault: Which.
        one_by_one: Whether each piece of work is a transaction of its own, so that every commit
            that could be is one; else what has gathered shares one, as it does in earnest.
    """

    class Counting(sqlite3.Connection):
        writes = False

        def execute(self, sql: str, parameters: object = (), /) -> sqlite3.Cursor:
            if sql == "COMMIT" and self.writes:
                fault.before_commit()
                cursor = super().execute(sql, cast("Any", parameters))
                fault.after_commit()
                return cursor
            if sql.startswith(("BEGIN", "ROLLBACK")) and " TO " not in sql:
                self.writes = sql == "BEGIN IMMEDIATE"
            return super().execute(sql, cast("Any", parameters))

        def __exit__(self, *raised: object) -> Literal[False]:
            commits = raised[0] is None and self.writes
            if commits:
                fault.before_commit()
            super().__exit__(*cast("Any", raised))
            if commits:
                fault.after_commit()
            return False

    sqlite3.connect = cast("Any", functools.partial(sqlite3.connect, factory=Counting))
    if one_by_one:
        _split()


def _split() -> None:
    together = Store.do

    def one_by_one(self: Store, works: Sequence[Work[object]]) -> None:
        for work in works:
            together(self, [work])

    Store.do = one_by_one  # type: ignore[method-assign]
