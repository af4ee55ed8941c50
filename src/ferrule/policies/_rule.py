"""One rule of a policy: which calls it is for, and what it decides about them."""

import json
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias, get_args

import msgspec

from ferrule import Allow, Ask, Authorization, Decision, Deny, Traits
from ferrule.helpers import one_line
from ferrule.policies._conditions import Condition
from ferrule.policies._paths import found_at
from ferrule.policies._patterns import Pattern
from ferrule.policies._stated import Hint, stated

Decides: TypeAlias = Literal["allow", "deny", "ask"]
DECIDES: tuple[Decides, ...] = get_args(Decides)

Confined: TypeAlias = bool | Pattern | None

_SHOWN = 8
"""Arguments that a question shows at most, so that it stays under a kilobyte."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """
    One `[[rule]]`; it is for the calls that all of its conditions hold for.

    Attributes:
        number: Its place in the file; 1 is the first.
        line: Where it begins, or `None` if that cannot be told.
        tool: Patterns of names, one of which matches.
        origin: Patterns of origins, one of which matches.
        when: What the tool says of itself; `None` is that it says nothing.
        where: What holds of the arguments.
        confined: Whether the call is confined, or by what; `None` does not look.
        decide: What becomes of the call.
        reason: What the model reads of a denial, or a person of a question.
    """

    number: int
    line: int | None
    tool: tuple[Pattern, ...]
    origin: tuple[Pattern, ...]
    when: Mapping[Hint, bool | None]
    where: tuple[Condition, ...]
    confined: Confined
    decide: Decides
    reason: str | None

    def is_for(self, name: str, origin: str) -> bool:
        """Say whether it may be for calls of this tool."""
        return any(one.matches(name) for one in self.tool) and any(
            one.matches(origin) for one in self.origin
        )

    def takes(self, traits: Traits) -> bool:
        """Say whether it is for tools that say this of themselves."""
        if not self.when:
            return True
        hints = stated(traits)
        return all(hints[hint] is value for hint, value in self.when.items())

    def confines(self, confinement: object) -> bool:
        """Say whether it is for calls that this confines."""
        match self.confined:
            case None:
                return True
            case bool(confined):
                return confined is (confinement is not None)
            case pattern:
                return isinstance(confinement, str) and pattern.matches(confinement)

    def judges(self, authorization: Authorization, arguments: Mapping[str, object]) -> bool:
        """Say whether it is the one that decides about this call, if it is asked."""
        return (
            self.is_for(authorization.definition.name, authorization.origin)
            and self.takes(authorization.traits)
            and self.confines(authorization.confinement)
            and all(condition.holds(arguments) for condition in self.where)
        )

    def chance(self, name: str, origin: str, traits: Traits) -> bool | None:
        """Say whether it decides about every call of this tool; `None` is: about some."""
        if not (self.is_for(name, origin) and self.takes(traits)):
            return False
        unsure = bool(self.where)
        if callable(traits.confinement):
            unsure = unsure or self.confined is not None
        elif not self.confines(traits.confinement):
            return False
        return None if unsure else True

    def decision(self, authorization: Authorization, arguments: Mapping[str, object]) -> Decision:
        """Return what it decides about a call that it judges."""
        if self.decide == "allow":
            return Allow()
        if self.decide == "deny":
            return Deny(self.reason)
        return Ask(self.reason or self._question(authorization, arguments))

    def _question(self, authorization: Authorization, arguments: Mapping[str, object]) -> str:
        """Return what a person is asked: the tool, and the arguments that the rule looks at."""
        origin = one_line(authorization.origin, 60)
        head = f"May `{authorization.definition.name}` from `{origin}` run?"
        looks = "; ".join(self._looks_at(arguments))
        return f"{head} Its arguments have {looks}." if looks else head

    def _looks_at(self, arguments: Mapping[str, object]) -> Iterator[str]:
        paths = {one.path: one for one in self.where if not one.absent}
        for path, condition in list(paths.items())[:_SHOWN]:
            values = found_at(condition.steps, arguments) or []
            value = values if None in condition.steps else values[0] if values else None
            written = one_line(json.dumps(value, ensure_ascii=False), 60)
            yield f"{one_line(path, 40)} = {written}"
