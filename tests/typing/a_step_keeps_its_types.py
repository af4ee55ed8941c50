"""`@tool.step` keeps the types of state, answer and result."""

from typing import assert_type

from ferrule import Context, InputRequest, Step, tool


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


assert_type(approved, Step[Draft, bool, str])
assert_type(asked_again, Step[str, int, int])
assert_type(asked_again.ask("?", "a", expires_in=1.0), InputRequest)
approved.ask("Refund?", "A1")  # error: arg-type | reportArgumentType
