"""P1: one call of 66 bytes from JSON text, with all checks, against a call that checks nothing."""

from collections.abc import Awaitable, Callable

import orjson
from _measure import Loop, Row, ratio

from ferrule import Context, Executor, ToolCall, bind, outcome_of, tool

TEXT = '{"path":"/srv/data/report.csv","max_bytes":4096,"encoding":"utf8"}'
CALLS = 2000
"""Calls of one repetition, so that starting it does not count."""


async def read_file(path: str, max_bytes: int = 0, encoding: str = "utf-8") -> str:
    """
    Read a file.

    Args:
        path: Where it is.
        max_bytes: Stop after so many.
        encoding: How its text is written.
    """
    return encoding


def rows() -> list[Row]:
    """Measure the row."""
    declared = tool(read_file)
    binding, executor = bind(declared), Executor([declared])
    call = ToolCall(id="call_1", name="read_file", arguments=TEXT)

    async def floor() -> None:
        for _ in range(CALLS):
            await read_file(**orjson.loads(TEXT))

    async def boundary() -> None:
        admit, run = binding.contract.admit, binding.call
        for _ in range(CALLS):
            await run(admit(call))

    async def whole() -> None:
        admit, authorize, run = binding.contract.admit, binding.authorize, binding.call
        for _ in range(CALLS):
            invocation = admit(call)
            context = Context.of(call)
            permit = await authorize(invocation, context)
            done = await run(invocation, context, permit)  # type: ignore[arg-type]  # none refuses
            outcome_of(done, tool="read_file")

    async def batches() -> None:
        for _ in range(CALLS):
            await executor.run([call])

    with Loop() as loop:

        def against_floor(what: str, work: Callable[[], Awaitable[None]], goal: float) -> Row:
            figure = ratio(loop.runs(work), loop.runs(floor))
            return Row(id="P1", what=what, ratio=figure, goal=goal)

        return [
            against_floor("admit + call, 66 B", boundary, 5),
            against_floor("the same with context, authorize and outcome", whole, 6),
            against_floor("executor.run of one call", batches, 130),
        ]


if __name__ == "__main__":
    print(*rows(), sep="\n")
