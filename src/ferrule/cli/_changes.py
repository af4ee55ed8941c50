"""Changes of tools for people: what each means, whose it is, and where it is."""

from collections.abc import Sequence

from ferrule import Change
from ferrule.cli._streams import ResultStream
from ferrule.helpers import one_line

WHOLE: dict[str, Change] = {
    "new": Change(path="", kind="widened"),
    "gone": Change(path="", kind="breaking"),
}
"""A tool that is new gives callers more; one that is gone breaks them."""

Row = tuple[tuple[str, ...], Change]
"""Whose change it is, a column for each part, and the change."""


def write_changes(rows: Sequence[Row], result: ResultStream) -> None:
    """Write a line a change, in columns."""
    if not rows:
        result.write("nothing changed\n")
        return
    whose = [tuple(one_line(part, 60) for part in row) for row, _ in rows]
    widths = [max(map(len, column)) for column in zip(*whose, strict=True)]
    for (_, change), parts in zip(rows, whose, strict=True):
        where = one_line(change.path, 200) or ("removed" if change.kind == "breaking" else "added")
        columns = "  ".join(f"{part:<{width}}" for part, width in zip(parts, widths, strict=True))
        result.write(f"{change.kind:<10}  {columns}  {where}\n")
