"""P9: what a call costs when there are ten times as many, and what memory it takes meanwhile."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Coroutine

import p09_batches as batches
from _measure import Loop, Row, ratio

from ferrule import Executor, tool

FEW, MANY = 1000, 10_000


def growth() -> Row:
    """Measure a call of many against one of few."""
    executor = Executor([tool(batches.touch)], max_parallel=64)
    many, few = batches.calls(MANY), batches.calls(FEW)

    async def of_many() -> None:
        await executor.run(many)

    async def of_few() -> None:
        for _ in range(MANY // FEW):
            await executor.run(few)

    with Loop() as loop:
        figure = ratio(loop.runs(of_many), loop.runs(of_few))
    what = f"a call of {MANY:,}, against one of {FEW:,}"
    return Row(id="P9", what=what, ratio=figure, goal=1.25)


async def held(run: Callable[[], Coroutine[None, None, object]]) -> float:
    """Return the KB a call that Python holds at the most, beyond the calls and their outcomes."""
    await run()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    outcomes = await run()
    peak = tracemalloc.get_traced_memory()[1]
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert outcomes
    assert after > before
    return (peak - after) / MANY / 1000


def memory() -> Row:
    """Measure the memory of a batch while it runs."""
    executor = Executor([tool(batches.touch)], max_parallel=64)
    calls = batches.calls(MANY)
    what = f"memory of each of {MANY:,} calls, beyond inputs and results"
    figure = asyncio.run(held(lambda: executor.run(calls)))
    return Row(id="P9", what=what, ratio=figure, goal=0.6, unit=" KB")


def rows() -> list[Row]:
    """Measure the rows."""
    return [growth(), memory()]


if __name__ == "__main__":
    print(*rows(), sep="\n")
