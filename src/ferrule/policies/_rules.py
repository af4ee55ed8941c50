"""A policy in a file of rules: the first that is for a call decides; without one it is denied."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import msgspec

from ferrule import Authorization, Binding, Decision, Deny, Registry
from ferrule.helpers import one_line
from ferrule.policies._invalid import InvalidPolicy
from ferrule.policies._patterns import Pattern
from ferrule.policies._reach import quarrels
from ferrule.policies._reading import LARGEST, read_rules
from ferrule.policies._rule import Decides, Rule


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """
    One way in which calls of a tool may be decided.

    Attributes:
        decide: What is decided.
        rule: The number of the rule that does, or `None`: no rule is for the call.
        line: Where that rule begins, if that can be told.
        certain: Whether every call that comes so far is decided by it.
    """

    decide: Decides
    rule: int | None = None
    line: int | None = None
    certain: bool = True


class Rules:
    """
    An authorizer: rules in order, as read from a TOML file.

    ```toml
    [[rule]]
    tool = "git_*"
    origin = "mcp:git"
    when = { read_only = true }
    where = [{ path = "cmd[0]", in = ["status", "log"] }]
    decide = "allow"
    ```

    Asking them takes no lock, reads no file and raises for no arguments, whatever they hold.
    """

    def __init__(self, rules: Iterable[Rule], source: str) -> None:
        self._rules = tuple(rules)
        self._source = source

    @classmethod
    def read(cls, path: str | Path) -> "Rules":
        """
        Return the rules of a file.

        Raises:
            InvalidPolicy: it cannot be read, or anything in it is wrong: all of that at once.
        """
        try:
            with Path(path).open("rb") as file:
                text = file.read(LARGEST + 1).decode()
        except UnicodeDecodeError:
            raise InvalidPolicy([f"{path}: it is not UTF-8, as TOML is"]) from None
        except (OSError, ValueError) as error:  # the second is a null character in the path
            reason = (error.strerror if isinstance(error, OSError) else None) or "no such path"
            raise InvalidPolicy([f"{path}: it cannot be read: {reason.lower()}"]) from None
        return cls.parse(text, source=str(path))

    @classmethod
    def parse(cls, text: str, *, source: str = "policy") -> "Rules":
        """
        Return the rules of a text.

        Args:
            source: What errors call the text.

        Raises:
            InvalidPolicy: everything in it that is wrong, at once.
        """
        return cls(read_rules(text, one_line(source, 200)), one_line(source, 200))

    def __repr__(self) -> str:
        return f"<Rules of {self._source}: {len(self._rules)}>"

    def __len__(self) -> int:
        return len(self._rules)

    def __call__(self, authorization: Authorization) -> Decision:
        """Decide about one call."""
        arguments = authorization.arguments
        for rule in self._rules:
            if rule.judges(authorization, arguments):
                return rule.decision(authorization, arguments)
        return Deny()

    def outlook(self, binding: Binding) -> list[Outlook]:
        """
        Return how calls of a tool may be decided, in the order in which that is tried.

        The last one is certain. If it is the only one, no argument makes a difference.
        """
        found: list[Outlook] = []
        contract = binding.contract
        for rule in self._rules:
            chance = rule.chance(contract.name, contract.origin, binding.traits)
            if chance is not False:
                certain = chance is True
                found.append(
                    Outlook(decide=rule.decide, rule=rule.number, line=rule.line, certain=certain)
                )
                if certain:
                    return found
        return [*found, Outlook(decide="deny")]

    def warnings(self, tools: Registry) -> list[str]:
        """
        Return what looks like a mistake and need not be one, a sentence each.

        Rules for tools that are not there, rules that quarrel about calls, conditions on arguments
        that no such tool has, and denials that one element of several would escape.
        """
        bindings = [found for name in tools.names if (found := tools.resolve(name)) is not None]
        return [
            f"{self._source}, {sentence}"
            for sentences in (
                self._of_nothing(bindings),
                self._without_argument(bindings),
                self._escaped(),
                self._quarrels(bindings),
            )
            for sentence in sentences
        ]

    def _of_nothing(self, bindings: list[Binding]) -> Iterator[str]:
        """Yield the patterns that match no tool, or no origin of one."""
        names = [one.contract.name for one in bindings]
        origins = sorted({one.contract.origin for one in bindings})
        for rule in self._rules:
            unknown = [
                *(_unknown(rule, "tool", one, names) for one in rule.tool if _lacks(one, names)),
                *(
                    _unknown(rule, "origin", one, origins)
                    for one in rule.origin
                    if _lacks(one, origins)
                ),
            ]
            yield from unknown
            if not unknown and not _meant(rule, bindings):
                yield f"{_named(rule)}: no tool here has such a name and such an origin"

    def _without_argument(self, bindings: list[Binding]) -> Iterator[str]:
        """Yield the conditions on arguments that no tool of the rule may be given."""
        for rule in self._rules:
            meant = _meant(rule, bindings)
            for index, condition in enumerate(rule.where):
                name = condition.steps[0]
                if meant and not any(_may_have(one, str(name)) for one in meant):
                    yield (
                        f"{_named(rule)}, where[{index}].path: no tool that the rule is for takes "
                        f"an argument `{one_line(str(name), 60)}`"
                    )

    def _escaped(self) -> Iterator[str]:
        """Yield the denials that hold only if every element is what they deny."""
        for rule in self._rules:
            for index, condition in enumerate(rule.where):
                if rule.decide == "deny" and None in condition.steps:
                    yield (
                        f"{_named(rule)}, where[{index}].path: [*] holds only if every element "
                        "does, so one other element escapes this denial; allow what is good instead"
                    )

    def _quarrels(self, bindings: list[Binding]) -> Iterator[str]:
        """Yield the pairs of rules that would decide differently about calls of a tool here."""
        meant = {rule.number: set(_names(rule, bindings)) for rule in self._rules}
        for earlier, later in quarrels(self._rules):
            both = sorted(meant[earlier.number] & meant[later.number])
            if both:
                yield (
                    f"{_named(later)}: it decides {later.decide}, but rule {earlier.number} comes "
                    f"first and decides {earlier.decide} about some of the same calls of "
                    f"`{both[0]}`; put the one that is the exception first"
                )


def _named(rule: Rule) -> str:
    return f"rule {rule.number}" if rule.line is None else f"rule {rule.number} (line {rule.line})"


def _lacks(pattern: Pattern, names: list[str]) -> bool:
    return not any(map(pattern.matches, names))


def _unknown(rule: Rule, key: Literal["tool", "origin"], pattern: Pattern, names: list[str]) -> str:
    near = get_close_matches(pattern.text, names, n=1) if pattern.is_literal else []
    hint = f"; did you mean `{one_line(near[0], 60)}`?" if near else ""
    what = "is called" if key == "tool" else "comes from"
    return f"{_named(rule)}, {key}: no tool here {what} `{one_line(pattern.text, 60)}`{hint}"


def _meant(rule: Rule, bindings: list[Binding]) -> list[Binding]:
    """Return the tools that a rule is for, if only some of their calls."""
    return [one for one in bindings if rule.is_for(one.contract.name, one.contract.origin)]


def _names(rule: Rule, bindings: list[Binding]) -> Iterator[str]:
    """Yield the names of the tools that a rule may decide about, as they are here."""
    for one in bindings:
        if rule.chance(one.contract.name, one.contract.origin, one.traits) is not False:
            yield one.contract.name


def _may_have(binding: Binding, name: str) -> bool:
    """Say whether a tool's schema lets an argument of this name in and says so."""
    schema = binding.contract.definition.input_schema
    properties = schema.get("properties")
    closed = schema.get("additionalProperties") is False
    return not closed or (isinstance(properties, dict) and name in properties)
