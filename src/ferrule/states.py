"""
The states of a durable call: one table, by which every home of durable calls moves them.

Theory
======

A call goes from proposed to settled, and each step is kept before the next one shows. The table
says which step may follow which; an illegal one is an error that changes nothing.

- *Proposed* is what a model wrote. *Admitted*: its arguments are right. *Authorized*: every guard
  has allowed this leg. *Dispatched* is the one state in which code of the tool may be at work: it
  is entered before the tool begins and left when it is known how the leg ended.
- A *suspension* ends a leg: nobody waits for the person, no slot, no thread, no state is held. An
  answer starts the next leg. The answer to a guard goes to the guard (*approve*: the call is
  admitted again and the guards are asked, with the approval); the answer to the tool goes to the
  tool (*answer*), whose guards are asked for the new leg first.
- Permission does not outlive who had it: *recall* takes it back when the owner is gone before the
  dispatch, so that the next owner asks again.
- When the owner of a dispatched call is lost, what follows is for the tool to say: *again* where a
  second run does no harm, else *doubt*, and the call is *unknown*.
- A call that runs again (*again*, *retry*) may have had its effect already. If it is then refused
  or cancelled before it has begun once more, nobody can say that it did not run: *doubt* as well.
- *Spare* is for a call that was dispatched and is known not to have begun: it was stopped, or its
  tool was closed, between the one and the other.
- *Unknown* is settled for the batch, as the model must be told something; a person may still
  *resolve* it, as what it was, or have it run again (*retry*).

Every dispatch raises the call's fence, a number that records, questions and outcomes carry. Who
comes with an older one was taken for lost meanwhile: it writes nothing but evidence.
"""

from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from ferrule.errors import RuntimeFault

__all__ = (
    "MOVES",
    "PENDING",
    "SETTLED",
    "TERMINAL",
    "IllegalMove",
    "State",
    "Step",
    "diagram",
    "move",
)

State: TypeAlias = Literal[
    "proposed", "admitted", "authorized", "dispatched", "suspended", "answered",
    "completed", "failed", "rejected", "cancelled", "unknown",
]  # fmt: skip

Step: TypeAlias = Literal[
    "admit", "refuse", "allow", "ask", "cancel", "recall", "dispatch", "complete", "fail",
    "suspend", "doubt", "again", "spare", "spare_cancelled", "approve", "answer", "expire",
    "withdraw", "resolve_completed", "resolve_failed", "resolve_cancelled", "retry",
]  # fmt: skip

MOVES: Final = MappingProxyType[tuple[State, Step], State](
    {
        ("proposed", "admit"): "admitted",
        ("proposed", "refuse"): "rejected",
        ("admitted", "allow"): "authorized",
        ("admitted", "refuse"): "rejected",
        ("admitted", "ask"): "suspended",
        ("admitted", "cancel"): "cancelled",
        ("authorized", "dispatch"): "dispatched",
        ("authorized", "refuse"): "rejected",
        ("authorized", "cancel"): "cancelled",
        ("authorized", "recall"): "admitted",
        ("dispatched", "complete"): "completed",
        ("dispatched", "fail"): "failed",
        ("dispatched", "suspend"): "suspended",
        ("dispatched", "doubt"): "unknown",
        ("dispatched", "again"): "admitted",
        ("admitted", "doubt"): "unknown",
        ("authorized", "doubt"): "unknown",
        ("answered", "doubt"): "unknown",
        ("suspended", "doubt"): "unknown",
        ("dispatched", "spare"): "rejected",
        ("dispatched", "spare_cancelled"): "cancelled",
        ("suspended", "approve"): "admitted",
        ("suspended", "answer"): "answered",
        ("suspended", "expire"): "failed",
        ("suspended", "withdraw"): "failed",
        ("suspended", "cancel"): "cancelled",
        ("answered", "allow"): "authorized",
        ("answered", "refuse"): "rejected",
        ("answered", "ask"): "suspended",
        ("answered", "cancel"): "cancelled",
        ("unknown", "resolve_completed"): "completed",
        ("unknown", "resolve_failed"): "failed",
        ("unknown", "resolve_cancelled"): "cancelled",
        ("unknown", "retry"): "admitted",
    }
)
"""Where each step leads; what is not here cannot be done."""

TERMINAL: Final = frozenset[State](("completed", "failed", "rejected", "cancelled"))
"""States that no step leaves."""

SETTLED: Final = TERMINAL | {"unknown"}
"""States in which a batch need not wait for the call: the model can be told how it ended."""

PENDING: Final = frozenset[State](("admitted", "authorized", "answered"))
"""States in which the next leg of a call is to be run."""


class IllegalMove(RuntimeFault):
    """
    A step that no row of the table has; nothing was changed.

    Attributes:
        state: Where the call is.
        step: What was tried.
    """

    def __init__(self, state: State, step: Step) -> None:
        super().__init__(f"a call that is {state} cannot {step.replace('_', ' ')}")
        self.state = state
        self.step = step


def move(state: State, step: Step) -> State:
    """
    Return the state that `step` leads to from `state`.

    Raises:
        IllegalMove: the table has no such step.
    """
    try:
        return MOVES[state, step]
    except KeyError:
        raise IllegalMove(state, step) from None


def diagram() -> str:
    """Return the table as a Mermaid state diagram, as the documentation shows it."""
    lines = ["stateDiagram-v2", "    [*] --> proposed"]
    lines += [f"    {before} --> {after}: {step}" for (before, step), after in MOVES.items()]
    lines += [f"    {state} --> [*]" for state in sorted(TERMINAL)]
    return "\n".join(lines)
