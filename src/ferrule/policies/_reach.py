"""
Which rules can take effect at all, and which of them quarrel.

Whether a rule is ever reached is decided from one earlier rule at a time: the later one is dead
where the earlier is for every call that it is for. Several earlier rules that leave nothing over
only together are not seen: that would take trying all combinations, and one rule too many does no
harm.
"""

from collections.abc import Iterator, Sequence

from ferrule.policies._conditions import together
from ferrule.policies._patterns import Pattern
from ferrule.policies._rule import Confined, Rule

STRICTER = {"allow": 0, "ask": 1, "deny": 2}
"""How strict each decision is."""


def dead(rules: Sequence[Rule]) -> Iterator[tuple[Rule, str, str]]:
    """Yield each rule that can never decide, with the key that says so and a sentence."""
    for index, rule in enumerate(rules):
        fault = _impossible(rule)
        if fault is not None:
            yield rule, *fault
            continue
        earlier = next((one for one in rules[:index] if _covers(one, rule)), None)
        if earlier is not None:
            against = "" if earlier.decide == rule.decide else f", and decides {earlier.decide}"
            sentence = (
                f"it can never match: rule {earlier.number} comes first and matches all that it "
                f"does{against}; move it up, narrow rule {earlier.number}, or delete it"
            )
            yield rule, "tool", sentence


def _impossible(rule: Rule) -> tuple[str, str] | None:
    """Return the key of a rule that no call can satisfy, and why."""
    if rule.when.get("read_only") is True and rule.when.get("destructive") is True:
        return "when", (
            "it can never match: a tool that says it only reads and that it destroys is taken as "
            "one that destroys; leave read_only out"
        )
    if together(rule.where) is None:
        return "where", (
            "it can never match: its conditions contradict one another; "
            "keep those that can hold together"
        )
    return None


def quarrels(rules: Sequence[Rule]) -> Iterator[tuple[Rule, Rule]]:
    """
    Yield pairs of rules that decide differently about some calls, neither being the exception.

    No quarrel is a narrow rule before a wide one, nor a stricter rule for the same tools before a
    laxer one: that is how a policy is written where the first match wins.
    """
    for index, later in enumerate(rules):
        for earlier in rules[:index]:
            if earlier.decide != later.decide and _quarrel(earlier, later):
                yield earlier, later


def _quarrel(earlier: Rule, later: Rule) -> bool:
    if not _meet(earlier, later) or _covers(later, earlier):
        return False
    if STRICTER[earlier.decide] < STRICTER[later.decide]:
        return True
    exception = _all_within(later.tool, earlier.tool) and _all_within(later.origin, earlier.origin)
    return not exception and {earlier.decide, later.decide} == {"allow", "deny"}


def _covers(wide: Rule, narrow: Rule) -> bool:
    """Say whether `wide` surely is for every call that `narrow` is for."""
    return (
        _all_within(narrow.tool, wide.tool)  # The quickest to say no comes first.
        and _all_within(narrow.origin, wide.origin)
        and all(narrow.when.get(hint, ...) is value for hint, value in wide.when.items())
        and _confinement_covers(wide.confined, narrow.confined)
        and all(any(one.covers(other) for other in narrow.where) for one in wide.where)
    )


def _all_within(narrow: Sequence[Pattern], wide: Sequence[Pattern]) -> bool:
    return all(any(one.covers(other) for one in wide) for other in narrow)


def _confinement_covers(wide: Confined, narrow: Confined) -> bool:
    if wide is None:
        return True
    if isinstance(wide, Pattern):
        return isinstance(narrow, Pattern) and wide.covers(narrow)
    return wide is narrow or (wide and isinstance(narrow, Pattern))


def _meet(one: Rule, other: Rule) -> bool:
    """Say whether some call may be for both."""
    return (
        any(a.meets(b) for a in one.tool for b in other.tool)
        and any(a.meets(b) for a in one.origin for b in other.origin)
        and all(other.when.get(hint, value) is value for hint, value in one.when.items())
        and _confinements_meet(one.confined, other.confined)
        and together((*one.where, *other.where)) is not None
    )


def _confinements_meet(one: Confined, other: Confined) -> bool:
    if one is None or other is None:
        return True
    if isinstance(one, Pattern) and isinstance(other, Pattern):
        return one.meets(other)
    return (
        bool(one) is bool(other)
        if isinstance(one, bool) and isinstance(other, bool)
        else (one is not False and other is not False)
    )
