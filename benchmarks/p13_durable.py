"""
P13: a durable call on SQLite, against the three commits that it cannot do without.

By the clock on the wall, since waiting for the disk is what a commit costs. Both write to the same
directory, in turn.
"""

import asyncio
import itertools
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from _measure import Loop, Row, ratio

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


class Running:
    """A runtime in a task of its own, which both enters and leaves it."""

    def __init__(self, path: Path) -> None:
        self.runtime = SqliteRuntime([touch], path)
        self._ready, self._done = asyncio.Event(), asyncio.Event()

    async def begin(self) -> None:
        """Return when it is entered."""
        self._task = asyncio.create_task(self._run())
        await self._ready.wait()

    async def end(self) -> None:
        """Return when it is left."""
        self._done.set()
        await self._task

    async def _run(self) -> None:
        async with self.runtime:
            self._ready.set()
            await self._done.wait()


def figure(directory: Path) -> float:
    """Return how many times three commits one durable call takes."""
    numbers = itertools.count()
    running = Running(directory / "calls.db")

    async def call() -> None:
        made = ToolCall.of("touch", {"number": 1}, id="c1")
        batch = await running.runtime.submit([made], batch_id=str(next(numbers)))
        (outcome,) = await batch.settled()
        assert isinstance(outcome, Completed)

    with Loop() as loop:
        loop.run(running.begin())
        found = ratio(loop.runs(call), bare(directory / "bare.db"), clock=perf_counter)
        loop.run(running.end())
    return found


def rows() -> list[Row]:
    """Measure the row."""
    with tempfile.TemporaryDirectory() as directory:
        found = figure(Path(directory))
    what = "a durable call (proposal, dispatch, outcome), against three commits"
    return [Row(id="P13", what=what, ratio=found, goal=1.5)]


if __name__ == "__main__":
    print(*rows(), sep="\n")
