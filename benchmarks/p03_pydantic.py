"""P3: one call of the same 4 KB into pydantic models, against a call that checks nothing."""

from _measure import Row
from p02_nested import against_floor, text
from pydantic import BaseModel


class Cell(BaseModel):
    """One cell."""

    column: str
    value: float
    note: str


class Line(BaseModel):
    """One line of cells."""

    number: int
    cells: list[Cell]


async def save(sheet: str, lines: list[Line], overwrite: bool = False) -> str:
    """Save lines."""
    return sheet


def rows() -> list[Row]:
    """Measure the row."""
    arguments = text()
    what = f"admit + call, {len(arguments):,} B into pydantic models"
    return [Row(id="P3", what=what, ratio=against_floor(save, arguments), goal=4.6)]


if __name__ == "__main__":
    print(*rows(), sep="\n")
