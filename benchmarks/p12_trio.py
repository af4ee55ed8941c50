"""P12: the same batch on trio as on asyncio, each in a run of its own loop."""

from collections.abc import Callable

import anyio
import p09_batches as batches
from _measure import Row, ratio

from ferrule import Executor, tool

REPEATS = 4
"""Batches of one repetition, so that starting the loop does not count."""


def running(backend: str, count: int) -> Callable[[], None]:
    """Return what runs a few batches of so many calls under a backend."""
    executor = Executor([tool(batches.touch)], max_parallel=64)
    calls = batches.calls(count)

    async def run() -> None:
        for _ in range(REPEATS):
            outcomes = await executor.run(calls)
            assert not any(outcome.is_error for outcome in outcomes)

    return lambda: anyio.run(run, backend=backend)


def rows(count: int = 1000) -> list[Row]:
    """Measure the row."""
    figure = ratio(running("trio", count), running("asyncio", count))
    return [Row(id="P12", what=f"run of {count:,} on trio, against asyncio", ratio=figure, goal=3)]


if __name__ == "__main__":
    print(*rows(), sep="\n")
