"""What in a policy looks like a mistake, beside the tools that it is for, and need not be one."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from ferrule import Binding
from ferrule.helpers import one_line
from ferrule.policies._patterns import Pattern
from ferrule.policies._reach import quarrels
from ferrule.policies._rule import Rule

Warned = tuple[Rule, str]
"""A rule, and what is odd about it: the key if one says it, and a sentence."""


def warnings(rules: Sequence[Rule], bindings: Sequence[Binding]) -> list[Warned]:
    """Return all warnings, rule by rule."""
    found = [
        *_of_nothing(rules, bindings),
        *_without_argument(rules, bindings),
        *_escaped(rules),
        *_quarrelling(rules, bindings),
    ]
    return sorted(found, key=lambda warned: warned[0].number)


def _of_nothing(rules: Sequence[Rule], bindings: Sequence[Binding]) -> Iterator[Warned]:
    """Yield the rules with patterns that match no tool, or no origin of one."""
    names = sorted({one.contract.name for one in bindings})
    origins = sorted({one.contract.origin for one in bindings})
    for rule in rules:
        unknown = [
            *(f", tool: no tool here is called {shown}" for shown in _unknown(rule.tool, names)),
            *(
                f", origin: no tool here comes from {shown}"
                for shown in _unknown(rule.origin, origins)
            ),
        ]
        yield from ((rule, sentence) for sentence in unknown)
        if not unknown and not _meant(rule, bindings):
            yield rule, ": no tool here has such a name and such an origin"


def _unknown(patterns: Sequence[Pattern], names: list[str]) -> Iterator[str]:
    """Yield each pattern that matches none of the names, with the nearest of them."""
    for pattern in patterns:
        if any(map(pattern.matches, names)):
            continue
        near = get_close_matches(pattern.text, names, n=1) if pattern.is_literal else []
        hint = f"; did you mean `{one_line(near[0], 60)}`?" if near else ""
        yield f"`{one_line(pattern.text, 60)}`{hint}"


def _without_argument(rules: Sequence[Rule], bindings: Sequence[Binding]) -> Iterator[Warned]:
    """Yield the conditions on arguments that no tool of the rule may be given."""
    for rule in rules:
        meant = _meant(rule, bindings)
        for index, condition in enumerate(rule.where):
            name = str(condition.steps[0])
            if meant and not any(_may_have(one, name) for one in meant):
                shown = one_line(name, 60)
                told = f"no tool that the rule is for takes an argument `{shown}`"
                yield rule, f", where[{index}].path: {told}"


def _may_have(binding: Binding, name: str) -> bool:
    """Say whether a tool's schema may let an argument of this name in."""
    schema = binding.contract.definition.input_schema
    properties = schema.get("properties")
    closed = schema.get("additionalProperties") is False
    return not closed or (isinstance(properties, dict) and name in properties)


def _escaped(rules: Sequence[Rule]) -> Iterator[Warned]:
    """Yield the denials that hold only if every element is what they deny."""
    told = (
        "[*] holds only if every element does, so one other element escapes this denial; "
        "allow what is good instead"
    )
    for rule in rules:
        for index, condition in enumerate(rule.where):
            if rule.decide == "deny" and None in condition.steps:
                yield rule, f", where[{index}].path: {told}"


def _quarrelling(rules: Sequence[Rule], bindings: Sequence[Binding]) -> Iterator[Warned]:
    """Yield the later of each two rules that decide differently about calls of a tool here."""
    tools = {rule.number: set(_judged(rule, bindings)) for rule in rules}
    for earlier, later in quarrels(rules):
        both = sorted(tools[earlier.number] & tools[later.number])
        if both:
            told = (
                f"it decides {later.decide}, but rule {earlier.number} comes first and decides "
                f"{earlier.decide} about some of the same calls of `{both[0]}`; put the one that "
                "is the exception first"
            )
            yield later, f": {told}"


def _judged(rule: Rule, bindings: Sequence[Binding]) -> Iterator[str]:
    """Yield the names of the tools that a rule may decide about, as they describe themselves."""
    for one in bindings:
        if rule.chance(one.contract.name, one.contract.origin, one.traits) is not False:
            yield one.contract.name


def _meant(rule: Rule, bindings: Sequence[Binding]) -> list[Binding]:
    """Return the tools that a rule is for by name, if only some of their calls."""
    return [one for one in bindings if rule.is_for(one.contract.name, one.contract.origin)]
