"""
Other people's code, asked as a policy is: contained, and within a time.

What a tool's properties and functions raise is a finding and must not end a check. The boundary
contains and bounds what a policy does; so each question is put as a policy, and no handler of our
own stands here.
"""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio.to_thread
import msgspec

from ferrule import Authorization, Context, Definition, Guard, RawTool, ToolCall, bind
from ferrule.errors import AuthorizationError

T = TypeVar("T")


class Broken(msgspec.Struct, frozen=True):
    """What was asked raised, or took too long."""

    error: BaseException | None

    def __str__(self) -> str:
        error = self.error
        return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class Given(msgspec.Struct, Generic[T], frozen=True):
    """What was asked gave an answer."""

    answer: T


async def asked(question: Callable[[], Awaitable[T]], seconds: float) -> Given[T] | Broken:
    """Return what `question` gives, or how it broke."""
    answers: list[T] = []

    async def policy(_: Authorization) -> bool:
        answers.append(await question())
        return True

    binding = bind(Guard(_NOBODY, policy))
    written = ToolCall.of("nobody")
    context = Context.of(written)
    context.patience = seconds
    try:
        await binding.authorize(binding.contract.admit(written), context)
    except AuthorizationError as error:
        return Broken(error.cause)
    return Given(answers[0])


async def asked_in_thread(question: Callable[[], T], seconds: float) -> Given[T] | Broken:
    """Return what a plain `question` gives, or how it broke; it may hold its thread."""

    async def hop() -> T:
        return await anyio.to_thread.run_sync(question, abandon_on_cancel=True)

    return await asked(hop, seconds)


def _nothing(_arguments: dict[str, object], _context: Context) -> None:
    """Stand in for a tool; only what guards it is asked."""


_NOBODY = RawTool(Definition("nobody"), _nothing)
