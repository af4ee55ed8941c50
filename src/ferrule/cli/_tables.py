"""Tables for people: as wide as the terminal is, and without codes where there is none."""

import io

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table

from ferrule.cli._streams import ResultStream

WIDEST = 20
"""Columns of a name or a type; the rest of a longer one stands below."""


def new_table() -> Table:
    """Return an empty table in the style of all of them."""
    return Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, expand=True)


def draw(shown: RenderableType, result: ResultStream) -> None:
    """Write for a terminal as wide as it is, or without codes where there is none."""
    text = io.StringIO()
    codes = result.takes_codes
    console = Console(file=text, force_terminal=codes, no_color=not codes, highlight=False)
    console.print(shown)
    lines = text.getvalue().splitlines()
    result.write("".join(f"{line.rstrip()}\n" for line in lines))
