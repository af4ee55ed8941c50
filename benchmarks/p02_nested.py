"""P2: one call of 4 KB nested into dataclasses, against a call that checks and builds nothing."""

import json
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


def text() -> str:
    """Return 4 KB of arguments."""
    cells = [{"column": f"c{n}", "value": n * 1.5, "note": "as measured"} for n in range(6)]
    return json.dumps({"sheet": "a", "lines": [{"number": n, "cells": cells} for n in range(13)]})


def rows() -> list[Row]:
    """Measure the row."""
    arguments = text()
    binding = bind(tool(save))
    call = ToolCall(id="call_1", name="save", arguments=arguments)

    async def floor() -> None:
        for _ in range(CALLS):
            await save(**orjson.loads(arguments))

    async def boundary() -> None:
        for _ in range(CALLS):
            await binding.call(binding.contract.admit(call))

    what = f"admit + call, {len(arguments)} B into dataclasses"
    with Loop() as loop:
        figure = ratio(loop.runs(boundary), loop.runs(floor))
    return [Row(id="P2", what=what, ratio=figure, goal=4)]


if __name__ == "__main__":
    print(*rows(), sep="\n")
