"""What a rule asks of one argument, and whether anything can satisfy what it asks."""

from collections.abc import Callable, Iterable
from typing import TypeAlias, cast

import msgspec

from ferrule.policies._paths import Step, found_at
from ferrule.policies._patterns import Pattern

Number: TypeAlias = int | float


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """
    One entry of `where`: all that it says must hold of each value at its path.

    Attributes:
        path: As it is written in the policy.
        steps: The same, read.
        among: Values, one of which it must be; `None` is no such wish.
        matches: A pattern for text.
        least: The smallest number that holds.
        most: The largest.
        absent: The path must lead nowhere.
    """

    path: str
    steps: tuple[Step, ...]
    among: tuple[object, ...] | None = None
    matches: Pattern | None = None
    least: Number | None = None
    most: Number | None = None
    absent: bool = False

    def holds(self, arguments: object) -> bool:
        """Say whether the arguments satisfy it; never raises."""
        values = found_at(self.steps, arguments)
        if values is None or self.absent:
            return values is None and self.absent
        return all(map(self.takes, values))

    def takes(self, value: object) -> bool:
        """Say whether one value at its path is what it asks for."""
        if self.among is not None and not any(same(value, one) for one in self.among):
            return False
        if self.matches is not None and not (
            isinstance(value, str) and self.matches.matches(value)
        ):
            return False
        if self.least is None and self.most is None:
            return True
        number = _number(value)
        return number is not None and self._spans(number)

    def _spans(self, number: Number) -> bool:
        return (self.least is None or self.least <= number) and (
            self.most is None or number <= self.most
        )

    def with_(self, other: "Condition") -> "Condition | None":
        """Return what asks both of the same path; `None` if nothing can satisfy it."""
        if self.absent or other.absent:
            return self if self.absent and other.absent else None
        both = msgspec.structs.replace(
            self,
            least=_further(max, self.least, other.least),
            most=_further(min, self.most, other.most),
            matches=self.matches or other.matches,
        )
        if self.matches and other.matches and not self.matches.meets(other.matches):
            return None
        listed = self.among if self.among is not None else other.among
        if listed is not None:
            left = tuple(one for one in listed if self.takes(one) and other.takes(one))
            both = msgspec.structs.replace(both, among=left)
        return both if both.is_possible else None

    @property
    def is_possible(self) -> bool:
        """Whether some value satisfies it."""
        ranged = self.least is not None or self.most is not None
        if self.among is not None:
            return any(map(self.takes, self.among))
        if ranged and self.matches is not None:
            return False  # A number is no text.
        return self.least is None or self.most is None or self.least <= self.most

    def covers(self, narrower: "Condition") -> bool:
        """Say whether whatever satisfies `narrower` surely satisfies this one."""
        if self.steps != narrower.steps:
            return False
        if self.absent or narrower.absent:
            return self.absent and narrower.absent
        if narrower.among is not None:
            return all(self.takes(one) for one in narrower.among if narrower.takes(one))
        if self.among is not None:
            return False
        if self.matches is not None and not (
            narrower.matches is not None and self.matches.covers(narrower.matches)
        ):
            return False
        least = self.least is None or (narrower.least is not None and narrower.least >= self.least)
        most = self.most is None or (narrower.most is not None and narrower.most <= self.most)
        return least and most


def same(one: object, other: object) -> bool:
    """Say whether two JSON values are equal: `1` and `1.0` are, `true` and `1` are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return _same_elements(cast("list[object]", one), cast("list[object]", other))
    if isinstance(one, dict) and isinstance(other, dict):
        return _same_members(cast("dict[str, object]", one), cast("dict[str, object]", other))
    return not isinstance(one, list | dict) and one == other


def _same_elements(one: list[object], other: list[object]) -> bool:
    return len(one) == len(other) and all(map(same, one, other))


def _same_members(one: dict[str, object], other: dict[str, object]) -> bool:
    return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)


def together(conditions: Iterable[Condition]) -> dict[tuple[Step, ...], Condition] | None:
    """Return one condition for each path; `None` if no arguments can satisfy them all."""
    joined: dict[tuple[Step, ...], Condition] = {}
    for condition in conditions:
        earlier = joined.get(condition.steps)
        both = condition if earlier is None else earlier.with_(condition)
        if both is None:
            return None
        joined[condition.steps] = both
    absent = {steps for steps, condition in joined.items() if condition.absent}
    leads_through = any(
        steps[:length] in absent
        for steps in joined
        for length in range(1, len(steps))
        if not joined[steps].absent
    )
    return None if leads_through else joined


def _number(value: object) -> Number | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _further(
    choose: Callable[[Number, Number], Number], one: Number | None, other: Number | None
) -> Number | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)
