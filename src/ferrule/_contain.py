"""
The one place that holds foreign code: validators, hooks, sinks and trait functions.

What other people wrote may raise anything. Here, and nowhere else below the executor, broad
handlers stand; the executor has its own around the tool itself, and `carry` is the half of it that
runs in a tool's thread.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Broke(msgspec.Struct, frozen=True):
    """Foreign code raised; `error` says what, for operators only."""

    error: BaseException


class Threw(msgspec.Struct, frozen=True):
    """A tool's thread raised `error`, whatever that is."""

    error: BaseException


def contain(function: Callable[..., T], *arguments: object) -> T | Broke:
    """
    Call `function` and return what it gave, or that it broke.

    No loop tells a plain function to stop, so nothing but Ctrl-C passes through: the `SystemExit`
    of a parser and the panic of a compiled library are held like any other exception.
    """
    try:
        return function(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Broke(error)


async def contain_async(awaitable: Awaitable[T]) -> T | Broke:
    """Await and return what came, or that it broke; cancellation passes through."""
    try:
        return await awaitable
    except (Exception, SystemExit) as error:
        return Broke(error)


def message_of(error: BaseException) -> str:
    """Return what `error` says, or the name of its type if it says nothing or breaks saying it."""
    told = contain(str, error)
    return type(error).__name__ if isinstance(told, Broke) or not told else told


def carry(function: Callable[[], T]) -> T | Threw:
    """
    Call `function` in a tool's thread and return what happened, to be raised again in the loop.

    A future cannot carry every exception: `GeneratorExit` thrown into a coroutine would close the
    frames that are there to catch it.
    """
    try:
        return function()
    except BaseException as error:
        return Threw(error)
