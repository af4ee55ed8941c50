"""Calls on eight states, of two kinds: those that need a state alone, and those that share it."""

import random
from pathlib import Path

import anyio.lowlevel

from crash.log import Log
from ferrule import Context, Definition, RawTool, Shared, ToolCall, Traits, Use

STATES = [f"state{number}" for number in range(8)]
TURNS = [f"turn{number}" for number in range(8)]
CALLS = 80
"""Calls of a turn."""


def uses(arguments: dict[str, object]) -> tuple[Use, ...]:
    """Return what a call works on: one state, or two, each alone or shared."""
    rng = random.Random(str(arguments["seed"]))
    states = rng.sample(STATES, 1 + (rng.random() < 0.3))
    return tuple(Shared(state) if rng.random() < 0.4 else state for state in states)


def calls(turn: str) -> list[ToolCall]:
    """Return the calls of a turn."""
    ids = [f"{turn}.{number}" for number in range(CALLS)]
    return [ToolCall.of("work", {"seed": one}, id=one) for one in ids]


def tools(home: Path) -> list[RawTool]:
    """Return the tool, which notes when it begins and ends and what it holds meanwhile."""
    log = Log(home / "log")

    async def work(arguments: dict[str, object], context: Context) -> str:
        held = [
            (use.state, True) if isinstance(use, Shared) else (use, False)
            for use in uses(arguments)
        ]
        facts = {"call": context.call_id, "leg": 1, "key": context.idempotency_key, "uses": held}
        log.write("begin", **facts)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        log.write("end", **facts)
        return "done"

    schema = {"type": "object", "properties": {"seed": {"type": "string"}}}
    return [RawTool(Definition("work", input_schema=schema), work, traits=Traits(uses=uses))]
