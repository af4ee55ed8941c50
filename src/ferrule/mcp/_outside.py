"""
What other people's code ends with, as a value: servers, transports and sign-ins may raise anything.

A connection that breaks must end as a sentence for the calls that wait for it, never as an error in
a task that nobody awaits. So here, and in no other file of this room, a broad handler stands.
"""

from collections.abc import Awaitable, Iterator
from typing import Generic, TypeVar, cast

import msgspec

from ferrule.helpers import one_line

T = TypeVar("T")


class Gave(msgspec.Struct, Generic[T], frozen=True):
    """It came to its end, and gave this."""

    value: T


class Ended(msgspec.Struct, frozen=True):
    """It broke; `error` says how, for operators only."""

    error: BaseException

    def __str__(self) -> str:
        return told(self.error)


async def held(awaitable: Awaitable[T]) -> Gave[T] | Ended:
    """Await and return what came, or how it broke; a cancellation passes through."""
    try:
        return Gave(await awaitable)
    except Exception as error:
        return Ended(error)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors that a group of groups is made of; one that is no group is its own leaf."""
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(part)
    else:
        yield error


def told(error: BaseException) -> str:
    """Return what an error says, on one line: what its leaves say, the first few of them."""
    said: dict[str, None] = {}
    for leaf in leaves(error):
        said[one_line(str(leaf), 300) or type(leaf).__name__] = None
    return "; ".join(list(said)[:3])
