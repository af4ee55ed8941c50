"""P7: define and bind a tool from a typed function, against reading its signature and hints."""

import gc
import inspect
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_type_hints

from _measure import Row, ratio

from ferrule import bind, tool

TOOLS = 1000


@dataclass
class Item:
    """One item."""

    name: str
    count: int = 1
    tags: list[str] | None = None


@dataclass
class Address:
    """Where to."""

    street: str
    city: str
    country: Literal["de", "fr", "it"] = "de"


async def flat(path: str, max_bytes: int = 0, encoding: str = "utf-8") -> str:
    """Read a file."""
    return path


async def nested(customer: int, items: list[Item], to: Address, note: str | None = None) -> str:
    """
    Order items for a customer, to be sent to an address.

    The order is taken whole or not at all. What is out of stock is refused with its name, and a
    customer who owes money gets nothing until that is settled.

    Args:
        customer: Number of the customer, as in the table of customers.
        items: What to send:
            - each item once
            - none with a count of zero
        to: Where to send it.
        note: What the packer reads.

    Returns:
        The number of the order.
    """
    return note or to.city


def defining(
    function: Callable[..., object], what: str, goal: float, classes: tuple[type, ...] = ()
) -> Row:
    """Measure one definition; its floor reads the hints of the classes in it too."""

    def subject() -> None:
        bind(tool(function))

    def floor() -> None:
        inspect.signature(function)
        for declared in (function, *classes):
            get_type_hints(declared, include_extras=True)

    return Row(id="P7", what=f"define and bind, {what}", ratio=ratio(subject, floor), goal=goal)


def memory() -> Row:
    """Measure what a defined and bound tool holds, in KB as Python counts them."""
    bind(tool(nested))
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [bind(tool(nested)) for _ in range(TOOLS)]
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    what = f"memory of each of {len(kept):,} tools, nested"
    return Row(id="P7", what=what, ratio=held / TOOLS / 1000, goal=25, unit=" KB")


def rows() -> list[Row]:
    """Measure the rows."""
    return [
        defining(flat, "flat", 20),
        defining(nested, "nested, long docstring", 25, (Item, Address)),
        memory(),
    ]


if __name__ == "__main__":
    print(*rows(), sep="\n")
