"""`@tool.step` keeps the types of state, answer and result."""

from typing import Annotated, assert_type

from ferrule import Context, Continuation, Inject, InputRequest, Step, tool


class Draft:
    """What waits for an answer."""

    def __init__(self, order: str) -> None:
        self.order = order


@tool
async def refund(order: str) -> str | InputRequest:
    """Refund an order."""
    return approved.ask("Refund?", Draft(order))


@refund.step
def approved(state: Draft, answer: bool, context: Context) -> str:
    """Go on."""
    return f"{state.order} {answer} {context.call_id}"


@refund.step
def asked_again(state: str, answer: int) -> int:
    """Go on without the context."""
    return len(state) + answer


@refund.step
async def booked(state: str, answer: float, *, bank: Annotated[str, Inject("bank")]) -> str:
    """Go on with what a harness injects."""
    return f"{state} {answer} {bank}"


assert_type(approved, Step[Draft, bool, str])
assert_type(asked_again, Step[str, int, int])
assert_type(asked_again.ask("?", "a", expires_in=1.0), InputRequest)
approved.ask("Refund?", "A1")  # error: arg-type | reportArgumentType
assert_type(booked.ask("?", "a").continuation(1.5), Continuation)
approved.ask("Refund?", "A1", expires_in="soon")  # error: arg-type | reportArgumentType
