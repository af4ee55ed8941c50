"""
A program: calls whose arguments and patterns are made to freeze a process (case SE-03).

It is run by `test_cases_security.py` under a limit of CPU time. It prints how each call ended and
whether the loop turned meanwhile. With `--control` the same text meets one of the patterns in the
standard library's engine, which a limit has to end.
"""

import re
import resource
import sys
from typing import Annotated

import anyio
import msgspec

from ferrule import Context, Definition, Executor, RawTool, Rejected, Tool, ToolCall, tool

SECONDS = 10
CONTROL_SECONDS = 2
PATTERN = "((a+)+)+$"
TEXT = "a" * 60 + "!"
LONG = "a" * 500_000 + "!"


@tool
async def local(s: Annotated[str, msgspec.Meta(pattern=f"^{PATTERN}")]) -> str:
    """Take a text by a pattern of our own."""
    return "ran"


def foreign(name: str, schema: dict[str, object]) -> Tool:
    """Return a tool with a schema from elsewhere."""

    async def function(_: dict[str, object], __: Context) -> str:
        return "ran"

    return RawTool(Definition(name, input_schema={"type": "object"} | schema), function)


TOOLS = [
    local,
    foreign("nested", {"properties": {"s": {"pattern": f"^{PATTERN}"}}}),
    foreign("names", {"patternProperties": {"^(x+x+)+y$": {"type": "null"}}}),
    foreign("looking", {"properties": {"s": {"pattern": "^(a|aa)+(?=x)$"}}}),
    foreign("combined", {"properties": {"s": {"allOf": [{"anyOf": [{"pattern": PATTERN}]}] * 9}}}),
]
CALLS = [
    *(ToolCall.of(name, {"s": TEXT}) for name in ("local", "nested", "looking", "combined")),
    *(ToolCall.of(name, {"s": LONG}) for name in ("local", "nested", "looking", "combined")),
    ToolCall.of("names", {"x" * 5_000: 1}),
    ToolCall.of("nested", {"s": "aaa"}),
]
MANY = 20
"""Times that all calls are in the batch, so that the loop has occasion to turn."""


async def main() -> None:
    """Run the batch beside a task that counts how often it gets its turn."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(count)
        outcomes = await Executor(TOOLS).run(
            [msgspec.structs.replace(one, id="") for one in CALLS * MANY]
        )
        group.cancel_scope.cancel()
    for call, outcome in zip(CALLS, outcomes, strict=False):
        ending = outcome.kind if isinstance(outcome, Rejected) else outcome.text
        print(call.name, ending)  # noqa: T201  # what the test reads
    print("turned" if turns > len(outcomes) / 64 else f"{turns} turns")  # noqa: T201  # the same


if __name__ == "__main__":
    control = "--control" in sys.argv
    seconds = CONTROL_SECONDS if control else SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    if control:
        re.search(PATTERN, TEXT)
    else:
        anyio.run(main)
