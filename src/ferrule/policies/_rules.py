"""A policy in a file of rules: the first that is for a call decides; without one it is denied."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from ferrule import Authorization, Binding, Decision, Deny, Registry
from ferrule.helpers import one_line
from ferrule.policies._invalid import InvalidPolicy
from ferrule.policies._reading import LARGEST, place, read_rules
from ferrule.policies._rule import Decides, Rule
from ferrule.policies._warnings import warnings


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
            f"{self._source}, {place(rule.number, rule.line)}{sentence}"
            for rule, sentence in warnings(self._rules, bindings)
        ]
