"""What `ferrule run` and `ferrule call` share: a batch until it ended, and what to say of that."""

import json
from collections.abc import Callable, Mapping, Sequence

import anyio

from ferrule import (
    Batch,
    Cancelled,
    Completed,
    Event,
    Failed,
    Outcome,
    Rejected,
    Suspended,
    ToolCall,
    Unknown,
)
from ferrule.cli._display import Display
from ferrule.cli._refused import INTERRUPTED
from ferrule.cli._signals import Interruption
from ferrule.helpers import one_line

UNKNOWN, NEEDS_ANSWER, FAILED, DONE = 4, 3, 1, 0
"""Exit codes by what became of the calls; of several, the first of these that occurs."""

CODES: Mapping[type[Outcome], int] = {
    Completed: DONE,
    Failed: FAILED,
    Rejected: FAILED,
    Cancelled: FAILED,
    Suspended: NEEDS_ANSWER,
    Unknown: UNKNOWN,
}


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """Return what a process ends with whose calls ended so."""
    codes = {CODES[type(outcome)] for outcome in outcomes}
    return next((code for code in (UNKNOWN, NEEDS_ANSWER, FAILED) if code in codes), DONE)


def is_stuck(outcome: Outcome) -> bool:
    """Return whether something still runs that Python would wait for at its end."""
    return isinstance(outcome, Unknown) and outcome.reason == "still_running"


def question(call: ToolCall, outcome: Suspended) -> str:
    """Return what a call that waits wants to know, in a line."""
    request = outcome.request
    schema = one_line(json.dumps(request.schema, ensure_ascii=False))
    message = one_line(request.message)
    return f"{one_line(call.name)} ({one_line(call.id)}) needs an answer: {message} as {schema}"


async def watched(
    batch: Batch, display: Display, tell: Callable[[Event], None] | None = None
) -> int:
    """
    Show a batch until it has ended or a signal stopped it; return 0 or the signal's code.

    Args:
        batch: The calls.
        display: Where they are shown.
        tell: Is told what happens, if not the display.
    """
    reading = anyio.CancelScope()

    def stop() -> None:
        display.stop()
        reading.cancel()

    try:
        with Interruption(stop, display.leave) as interruption, reading:
            async with batch:
                async for event in batch:
                    (tell or display.tell)(event)
    except KeyboardInterrupt:  # A tool raised it: its siblings were stopped as for a signal.
        return INTERRUPTED
    return interruption.exit_code
