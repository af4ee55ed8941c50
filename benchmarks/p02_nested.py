"""P2: one call of 4 KB nested into dataclasses, with all checks, against building them unchecked."""

import json
from dataclasses import dataclass

import orjson
from _measure import Row, row, show

from ferrule import ToolCall, bind, tool

CALLS = 10


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
    return [row("P2", what, boundary, floor, goal=4)]


if __name__ == "__main__":
    show(rows(), "msgspec", "jsonschema-rs", "orjson")
