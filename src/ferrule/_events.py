"""What a batch tells while it runs."""

from typing import TypeAlias

import msgspec

from ferrule._calls import ToolCall
from ferrule._content import Content
from ferrule._outcome import Outcome


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """
    A call was dispatched: its tool runs now.

    Attributes:
        index: Its place in the model's order.
        call: The call.
        waited: Seconds since the batch was submitted.
        behind: Index of the call that it waited for last, or `None`: it waited for its permit, for
            a slot, or for nothing.
    """

    index: int
    call: ToolCall
    waited: float = 0.0
    behind: int | None = None


class Progressed(msgspec.Struct, frozen=True, kw_only=True):
    """A running call said how far it is; see `Progress`."""

    index: int
    call: ToolCall
    progress: float | None = None
    total: float | None = None
    message: str | None = None
    content: tuple[Content, ...] = ()


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """A call has ended; nothing more comes of it."""

    index: int
    call: ToolCall
    outcome: Outcome


Event: TypeAlias = Started | Progressed | Finished
"""What a batch tells while it runs; `match` over it is exhaustive."""
