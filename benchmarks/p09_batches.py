"""P9 and P10: batches of trivial calls with all checks, against a task group and a semaphore."""

import asyncio
from collections.abc import Awaitable, Callable

import orjson
from _measure import Loop, Row, ratio

from ferrule import Executor, ToolCall, tool

Run = Callable[[list[ToolCall]], Awaitable[object]]


async def touch(path: str, times: int = 1) -> str:
    """Touch a file."""
    return path


def uses(arguments: dict[str, object]) -> str:
    """Name the file that a call works on."""
    return str(arguments["path"])


def calls(count: int) -> list[ToolCall]:
    """Return so many calls, each of another file."""
    return [ToolCall.of("touch", {"path": f"f{n}", "times": n}, id=f"c{n}") for n in range(count)]


async def floor(batch: list[ToolCall]) -> None:
    """Run the bare function in a task a call, at most 64 at once."""
    slots = asyncio.Semaphore(64)

    async def one(call: ToolCall) -> None:
        async with slots:
            await touch(**orjson.loads(call.arguments))

    async with asyncio.TaskGroup() as group:
        for call in batch:
            group.create_task(one(call))


def rows() -> list[Row]:
    """Measure the rows."""
    plain = Executor([tool(touch)], max_parallel=64)
    using = Executor([tool(uses=uses)(touch)], max_parallel=64)

    async def events(batch: list[ToolCall]) -> None:
        async with plain.batch(batch) as running:
            async for _ in running:
                pass

    with Loop() as loop:

        def measured(what: str, run: Run, count: int, goal: float) -> Row:
            batch = calls(count)

            times = max(1, 2000 // count)  # so that entering the loop does not count

            async def subject() -> None:
                for _ in range(times):
                    await run(batch)

            async def base() -> None:
                for _ in range(times):
                    await floor(batch)

            id = "P9" if count >= 1000 else "P10"
            figure = ratio(loop.runs(subject), loop.runs(base))
            return Row(id=id, what=what, ratio=figure, goal=goal)

        return [
            measured("run of 1,000", plain.run, 1000, 1.1),
            measured("run of 10,000", plain.run, 10_000, 1.1),
            measured("every event of 1,000", events, 1000, 1.5),
            measured("run of 1,000 with computed uses", using.run, 1000, 1.9),
            measured("run of 64", plain.run, 64, 1.4),
            measured("run of 8", plain.run, 8, 3),
        ]


if __name__ == "__main__":
    print(*rows(), sep="\n")
