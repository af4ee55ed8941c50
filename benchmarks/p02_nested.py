"""P2: one call of 4 KB nested into dataclasses, against a call that checks and builds nothing."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import orjson
from _measure import Loop, Row, ratio

from ferrule import ToolCall, bind, tool

CALLS = 200


@dataclass
class Cell:
    """One cell."""

    column: str
    value: float
    note: str


@dataclass
class Line:
    """One line of cells."""

    number: int
    cells: list[Cell]


async def save(sheet: str, lines: list[Line], overwrite: bool = False) -> str:
    """Save lines."""
    return sheet


def text(lines: int = 13) -> str:
    """Return arguments with so many lines: 4 KB, if nothing else is said."""
    cells = [{"column": f"c{n}", "value": n * 1.5, "note": "as measured"} for n in range(6)]
    written = [{"number": n, "cells": cells} for n in range(lines)]
    return json.dumps({"sheet": "a", "lines": written})


def against_floor(function: Callable[..., Awaitable[str]], arguments: str) -> float:
    """Return how many times a call that checks and builds nothing a checked one takes."""
    binding = bind(tool(function))
    call = ToolCall(id="call_1", name=binding.contract.name, arguments=arguments)
    calls = max(1, CALLS * 4000 // len(arguments))  # so that entering the loop does not count

    async def floor() -> None:
        for _ in range(calls):
            await function(**orjson.loads(arguments))

    async def boundary() -> None:
        for _ in range(calls):
            await binding.call(binding.contract.admit(call))

    with Loop() as loop:
        return ratio(loop.runs(boundary), loop.runs(floor))


def rows() -> list[Row]:
    """Measure the row."""
    arguments = text()
    what = f"admit + call, {len(arguments):,} B into dataclasses"
    return [Row(id="P2", what=what, ratio=against_floor(save, arguments), goal=4)]


if __name__ == "__main__":
    print(*rows(), sep="\n")
