"""
Where a process may be killed: at each commit of its journal, which it counts itself.

Only a process that is to be killed is changed so: its connections are of a class that counts what
is committed, and ends the process by SIGKILL right before or right after the n-th. Nothing of it is
caught, flushed or closed: that is what `kill -9` is.
"""

import os
import signal
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

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

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if sql == "COMMIT" and self.writes:
                fault.before_commit()
                cursor = super().execute(sql, parameters)
                fault.after_commit()
                return cursor
            if sql.startswith(("BEGIN", "ROLLBACK")) and " TO " not in sql:
                self.writes = sql == "BEGIN IMMEDIATE"
            return super().execute(sql, parameters)

        def __exit__(self, *raised: Any) -> Any:
            if raised[0] is not None or not self.writes:
                return super().__exit__(*raised)
            fault.before_commit()
            super().__exit__(*raised)
            fault.after_commit()
            return False

    connect = sqlite3.connect

    def counting(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return connect(*arguments, **{**options, "factory": Counting})

    sqlite3.connect = cast("Any", counting)
    if one_by_one:
        _split()


def _split() -> None:
    together = Store.do

    def one_by_one(self: Store, works: Sequence[Work[object]]) -> None:
        for work in works:
            together(self, [work])

    Store.do = one_by_one  # type: ignore[method-assign]
