"""
How every figure here is made: a ratio of two things timed in turn, in one run.

Times are never printed, since machines differ and are shared. The median of ratios, each of two
neighbouring samples, forgives what else the machine does meanwhile, and work that only computes
is measured in the time of its own process. A script has a function `rows() -> list[Row]`, which
`python benchmarks` gathers, and prints them when it is run alone.
"""

import asyncio
import gc
import platform
import statistics
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from time import perf_counter, process_time
from typing import Any, Self, TypeVar

import msgspec

ROUNDS = 25
"""Pairs of samples behind a figure, at least."""

ROW_SECONDS = 1.0
"""How long pairs are taken at least: more of them on a busy machine make a steadier median."""

SAMPLE_SECONDS = 0.002
"""How long a sample is made to take at least, so that the clock's grain does not matter."""

Result = TypeVar("Result")

Work = Callable[[], object]
"""What is timed; what it returns is thrown away."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """
    One figure beside its goal.

    Attributes:
        id: The row of the performance goals it belongs to, as in `P5`.
        what: What was measured.
        ratio: How many times its floor it takes, or how many of another `unit`.
        goal: The greatest figure that is good.
        unit: What stands behind both figures.
    """

    id: str
    what: str
    ratio: float
    goal: float
    unit: str = "×"

    @property
    def figure(self) -> str:
        """The figure with its unit."""
        return f"{self.ratio:.2f}{self.unit}"

    @property
    def bound(self) -> str:
        """The goal with its unit, and whether it was missed."""
        missed = "" if self.ratio <= self.goal else ", missed"
        return f"at most {self.goal:g}{self.unit}{missed}"

    def __str__(self) -> str:
        return f"{self.id:4} {self.figure:>9}  {self.bound:21} {self.what}"


class Loop:
    """An asyncio loop that stays, so that async work is timed without the cost of making one."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def runs(self, work: Callable[[], Awaitable[object]]) -> Work:
        """Return a plain function that runs `work` on the loop."""

        async def awaited() -> None:
            await work()

        return lambda: self._runner.run(awaited())

    def run(self, work: Awaitable[Result]) -> Result:
        """Run `work` on the loop, and return what it returns."""

        async def awaited() -> Result:
            return await work

        return self._runner.run(awaited())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()


class Entered:
    """A context manager in a task of its own, which both enters and leaves it."""

    def __init__(self, manager: AbstractAsyncContextManager[Any]) -> None:
        self._manager = manager
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
        async with self._manager:
            self._ready.set()
            await self._done.wait()


def ratio(subject: Work, floor: Work, *, clock: Callable[[], float] = process_time) -> float:
    """
    Return how many times as long `subject` takes as `floor`.

    What waits for something needs `perf_counter` as its clock.
    """
    return statistics.median(ours / base for ours, base in sampled(subject, floor, clock=clock))


def sampled(
    *works: Work, clock: Callable[[], float] = process_time, rounds: int = ROUNDS
) -> list[tuple[float, ...]]:
    """
    Return what a repetition of each work takes, in rounds: at least so many.

    All are warmed up and sampled in turn. The garbage collector is on, as in a program, but not
    over what was there before. It is told to run between rounds, so that what the last work of one
    leaves behind is not counted against the first work of the next.
    """
    counts = [_repetitions(work, clock) for work in works]
    taken: list[tuple[float, ...]] = []
    gc.collect()
    gc.freeze()
    start = perf_counter()
    while len(taken) < rounds or perf_counter() - start < ROW_SECONDS:
        pairs = zip(works, counts, strict=True)
        taken.append(tuple(_seconds(work, count, clock) / count for work, count in pairs))
        gc.collect()
    gc.unfreeze()
    return taken


def machine() -> str:
    """Return the versions that the figures hold for."""
    packages = ("anyio", "jsonschema-rs", "msgspec", "orjson", "rfc8785")
    python = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    return ", ".join([python, *(f"{package} {version(package)}" for package in packages)])


def _repetitions(work: Work, clock: Callable[[], float]) -> int:
    """Warm up, and return how many repetitions fill a sample even when nothing else runs."""
    count = 1
    while min(_seconds(work, count, clock) for _ in range(3)) < SAMPLE_SECONDS:
        count *= 2
    return count


def _seconds(work: Work, count: int, clock: Callable[[], float]) -> float:
    """Return how long so many repetitions take."""
    start = clock()
    for _ in range(count):
        work()
    return clock() - start
