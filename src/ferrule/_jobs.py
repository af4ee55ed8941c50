"""One call of a batch on its way: let in, described, permitted, dispatched, ended."""

from typing import Literal, cast, final

import anyio
import msgspec

from ferrule._binding import Binding, Leg, Permit
from ferrule._calls import ToolCall, new_call_id
from ferrule._context import Context, Progress
from ferrule._contract import Invocation
from ferrule._near import near, shown
from ferrule._outcome import Outcome, Rejected, outcome_of
from ferrule._registry import Registry
from ferrule._traits import Replay, Traits, Use, replay_of, uses_of
from ferrule.errors import FerruleError, InvalidCall, Problem

_FEW = 12
"""Tools of a registry that a name near none of them is answered with."""


@final
class Job(msgspec.Struct, eq=False):
    """
    One call of a batch; `job_of` makes it.

    Attributes:
        index: Its place in the model's order.
        leg: Which run of the call this is, and what goes with it; `None` for a plain first one.
        permitted: Whether nobody has to be asked any more.
        replay: What a second run would do, as far as the tool has said.
        traits: What the tool says of this call, where a guard is to see it; `None` where no trait
            is a function of the arguments.
        its_turn: Whether no earlier call holds it back.
        behind: The call whose end gave it its turn.
        dispatched: Whether its tool may have begun.
        timer: What ends the watch over its time limit.
        unread: The newest progress that no reader has taken.
        outcome: How it ended, once it has.
    """

    index: int
    call: ToolCall
    leg: Leg | None = None
    binding: Binding | None = None
    invocation: Invocation | None = None
    context: Context | None = None
    permit: Permit | None = None
    traits: Traits | None = None
    replay: Replay = "unknown"
    uses: tuple[Use, ...] | None = ()
    permitted: bool = True
    its_turn: bool = False
    behind: int | None = None
    dispatched: bool = False
    timer: "anyio.CancelScope | None" = None
    unread: Progress | None = None
    outcome: Outcome | None = None

    @property
    def is_described(self) -> bool:
        """Whether no function has to be asked what the call works on."""
        return self.uses is not None

    def admit(self, registry: Registry, seen: set[str]) -> Outcome | None:
        """Let the call in, or return why not."""
        call, name = self.call, self.call.name
        if call.id in seen:
            return _rejected("duplicate_id", "this id was given to an earlier call", name)
        seen.add(call.id)
        binding = registry.resolve(name)
        if binding is None:
            expected, hint = _nearest(name, registry)
            return _rejected("unknown_tool", expected, "", hint)
        try:
            continuation = None if self.leg is None else self.leg.continuation
            self.invocation = binding.contract.admit(call, continuation)
        except InvalidCall as error:
            return outcome_of(error, tool=name, call_id=call.id, dispatched=False)
        self.binding = binding
        if not binding.is_plain:
            self.permitted = not binding.asks
            self.uses = binding.uses
            if self.uses is not None:
                self.replay = cast("Replay", binding.traits.replay)
        return None

    def describe(self) -> None:
        """Ask the tool's functions what this call works on; raises whatever they raise."""
        binding, invocation = self.binding, self.invocation
        if binding is None or invocation is None:
            return
        traits = binding.traits
        if binding.guards:  # They are shown all that the tool says of this call.
            self.traits = traits = traits.settled(lambda: invocation.arguments)
        uses = traits.uses(invocation.arguments) if callable(traits.uses) else traits.uses
        self.uses = uses_of(uses)
        if callable(traits.replay):
            self.replay = replay_of(traits.replay(invocation.arguments))
        else:
            self.replay = traits.replay


def job_of(index: int, given: object) -> Job:
    """Return the call at a place of a batch, with a new id if it has none."""
    if type(given) is ToolCall and given.id:  # What nearly every call is.
        return Job(index, given)
    leg = given if isinstance(given, Leg) else None
    call = given if leg is None else leg.call
    if not isinstance(call, ToolCall):
        raise FerruleError(f"a batch is made of ToolCall or Leg, not of {type(call).__name__}")
    return Job(index, call if call.id else msgspec.structs.replace(call, id=new_call_id()), leg)


def _rejected(
    kind: Literal["duplicate_id", "unknown_tool"], expected: str, tool: str, hint: str = ""
) -> Rejected:
    problem = Problem(path="", rule=kind, expected=expected, hint=hint)
    return Rejected(kind, problems=(problem,), tool=tool)


def _nearest(name: str, registry: Registry) -> tuple[str, str]:
    """Return what to say of a name that no tool has: the nearest ones, never a substitute."""
    names = near(name, registry.names)
    hint = " or ".join(f'"{known}"' for known in names)
    few = registry.names if not names and len(registry) <= _FEW else []
    return f"there is no tool {shown(name)}" + (f"; there is {', '.join(few)}" if few else ""), hint
