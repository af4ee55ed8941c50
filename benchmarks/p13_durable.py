"""
P13: a durable call on SQLite, against the three commits that it cannot do without.

By the clock on the wall, since waiting for the disk is what a commit costs. Both write to the same
directory, in turn.
"""

import itertools
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from _measure import Entered, Loop, Row, ratio

from ferrule import Completed, ToolCall, tool
from ferrule.runtime import SqliteRuntime


@tool
async def touch(number: int) -> int:
    """Give a number back."""
    return number


def bare(path: Path) -> Callable[[], None]:
    """Return what makes three commits of a small row each, synced to disk."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE steps (number INTEGER, what TEXT)")

    def commits() -> None:
        for number in range(3):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO steps VALUES (?, ?)", (number, "x" * 200))
            connection.execute("COMMIT")

    return commits


def figure(directory: Path) -> float:
    """Return how many times three commits one durable call takes."""
    numbers = itertools.count()
    runtime = SqliteRuntime([touch], directory / "calls.db")
    entered = Entered(runtime)

    async def call() -> None:
        made = ToolCall.of("touch", {"number": 1}, id="c1")
        batch = await runtime.submit([made], batch_id=str(next(numbers)))
        (outcome,) = await batch.settled()
        assert isinstance(outcome, Completed)

    with Loop() as loop:
        loop.run(entered.begin())
        found = ratio(loop.runs(call), bare(directory / "bare.db"), clock=perf_counter)
        loop.run(entered.end())
    return found


def rows() -> list[Row]:
    """Measure the row."""
    with tempfile.TemporaryDirectory() as directory:
        found = figure(Path(directory))
    what = "a durable call (proposal, dispatch, outcome), against three commits"
    return [Row(id="P13", what=what, ratio=found, goal=1.5)]


if __name__ == "__main__":
    print(*rows(), sep="\n")
