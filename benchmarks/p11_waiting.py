"""
P11: 1,000 calls that wait 10 ms each, 64 at once, against what waiting alone must take.

By the clock on the wall, which runs on while other programs have the processor: that can only make
a round longer, so the shortest is the one to look at. What the loop itself adds stands beside it.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from time import perf_counter

from _measure import Row

from ferrule import Executor, ToolCall, tool

CALLS = 1000
BOUND = 64
WAIT = 0.010
ROUNDS = 25
LEAST = math.ceil(CALLS / BOUND) * WAIT
"""Seconds that waiting alone must take."""


async def wait(number: int) -> int:
    """Wait."""
    await asyncio.sleep(WAIT)
    return number


async def bare() -> None:
    """Wait as often in as many bare tasks, without a call."""
    left = iter(range(CALLS))

    async def work() -> None:
        for number in left:
            await wait(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(BOUND):
            group.create_task(work())


async def shortest() -> tuple[float, float]:
    """Return the shortest rounds of the executor and of bare tasks, as multiples of `LEAST`."""
    executor = Executor([tool(wait)], max_parallel=BOUND)
    calls = [ToolCall.of("wait", {"number": number}) for number in range(CALLS)]
    rounds = [
        (await seconds(lambda: executor.run(calls)), await seconds(bare)) for _ in range(ROUNDS)
    ]
    ours, loops = (min(taken) / LEAST for taken in zip(*rounds, strict=True))
    return ours, loops


async def seconds(work: Callable[[], Awaitable[object]]) -> float:
    """Return how long it takes."""
    start = perf_counter()
    await work()
    return perf_counter() - start


def rows() -> list[Row]:
    """Measure the row."""
    ours, loops = asyncio.run(shortest())
    what = f"{CALLS:,} calls of {WAIT * 1000:g} ms, {BOUND} at once, against waiting alone"
    what += f" (bare tasks: {loops:.2f})"
    return [Row(id="P11", what=what, ratio=ours, goal=1.10)]


if __name__ == "__main__":
    print(*rows(), sep="\n")
