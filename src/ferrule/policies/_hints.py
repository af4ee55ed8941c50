"""A policy made stricter by what tools say of themselves, and never laxer."""

import inspect
from collections.abc import Awaitable, Iterable, Iterator
from typing import Literal, TypeAlias, cast, get_args

import msgspec

from ferrule import (
    Allow,
    Ask,
    Authorization,
    Authorizer,
    Decision,
    Deny,
    InputRequest,
    InvalidValue,
    Traits,
)
from ferrule.helpers import one_line
from ferrule.policies._patterns import Pattern
from ferrule.policies._stated import contradicts_itself
from ferrule.schema import schema_for

Risk: TypeAlias = Literal["writes", "destructive", "open_world"]
"""What a call may do that a host may not want: change, destroy, reach beyond this system."""

_RISKS: tuple[Risk, ...] = get_args(Risk)


def by_hints(
    base: Authorizer,
    *,
    ask: Iterable[Risk] = ("destructive", "open_world"),
    deny: Iterable[Risk] = (),
    trusted: Iterable[str] = ("local",),
) -> Authorizer:
    """
    Return a policy that is `base`, made stricter by hints.

    `base` is asked first. Only where it allows is the tool looked at, and what is allowed then
    may become a question or a denial: no hint ever allows anything (CONTRACT AUT-3). What is not
    said is taken for the worst: a tool may write, destroy and reach out unless it says that it
    does not. One that says it only reads and destroys is taken for one that destroys. A good word
    counts only from a trusted origin; a bad one counts from everywhere.

    Where `base` asks a person, that is the answer: nobody is asked twice about one call.

    Args:
        base: What may run at all; plain or async.
        ask: Risks for which a person is asked.
        deny: Risks for which the call is denied.
        trusted: Patterns of the origins whose good word counts, as in `"mcp:git"`.

    Raises:
        InvalidValue: there is no base, a risk has no such name, or a pattern is none.
    """
    if not callable(base):
        raise InvalidValue("by_hints makes a policy stricter: give it one, as in Rules.read(path)")
    hints = _Hints(_named(ask, "ask"), _named(deny, "deny"), tuple(map(Pattern.of, trusted)))

    async def decide_later(facts: Authorization) -> Decision:
        return hints.judge(await cast("Awaitable[Decision]", base(facts)), facts)

    def decide(facts: Authorization) -> Decision | Awaitable[Decision]:
        answer = base(facts)
        if inspect.isawaitable(answer):
            return _then(answer, hints, facts)
        return hints.judge(answer, facts)

    return decide_later if inspect.iscoroutinefunction(base) else decide


async def _then(answer: Awaitable[Decision], hints: "_Hints", facts: Authorization) -> Decision:
    return hints.judge(await answer, facts)


def _named(risks: Iterable[Risk], what: str) -> tuple[Risk, ...]:
    named = () if isinstance(risks, str) else tuple(risks)
    if isinstance(risks, str) or not set(named) <= set(_RISKS):
        raise InvalidValue(f"{what} of by_hints is some of {', '.join(_RISKS)}, in a list or tuple")
    return tuple(risk for risk in _RISKS if risk in named)


class _Hints(msgspec.Struct, frozen=True):
    """What a host makes of hints."""

    ask: tuple[Risk, ...]
    deny: tuple[Risk, ...]
    trusted: tuple[Pattern, ...]

    def judge(self, answer: Decision, facts: Authorization) -> Decision:
        """Return what `base` answered, or something stricter."""
        if not (answer is True or isinstance(answer, Allow)):
            return answer
        risks = self._risks(facts)
        denied: list[Risk] = [risk for risk in self.deny if risk in risks]
        if denied:
            what = " and ".join(_MAY[risk] for risk in denied)
            return Deny(f'tool "{facts.definition.name}" is not authorized: it {what}')
        asked: list[Risk] = [risk for risk in self.ask if risk in risks]
        if not asked:
            return answer
        question = Ask(_question(facts, asked, trusted=self._trusts(facts.origin)))
        return answer if _answers_another(facts, question) else question

    def _risks(self, facts: Authorization) -> list[Risk]:
        return list(_risks(_believed(facts.traits, trusted=self._trusts(facts.origin))))

    def _trusts(self, origin: str) -> bool:
        return any(one.matches(origin) for one in self.trusted)


def _answers_another(facts: Authorization, question: Ask) -> bool:
    """Say whether a person was asked about this call already, by `base`, and it allows it."""
    if facts.approval is None:
        return False
    request = InputRequest(question.message, schema=schema_for(bool))
    return facts.approval.question != request.question


def _believed(traits: Traits, *, trusted: bool) -> Traits:
    """Return what a tool says of itself, as far as it is believed."""
    if contradicts_itself(traits):
        return msgspec.structs.replace(traits, read_only=False)
    if trusted:
        return traits
    return msgspec.structs.replace(
        traits,
        read_only=traits.read_only and None,
        destructive=traits.destructive or None,
        open_world=traits.open_world or None,
    )


def _risks(traits: Traits) -> Iterator[Risk]:
    """Yield what a tool may do; one that only reads destroys nothing, as MCP has it."""
    if traits.read_only is not True:
        yield "writes"
        if traits.destructive is not False:
            yield "destructive"
    if traits.open_world is not False:
        yield "open_world"


# ---- what a person reads -------------------------------------------------------------------------

_MAY: dict[Risk, str] = {
    "writes": "may change things",
    "destructive": "may delete or overwrite things",
    "open_world": "may reach beyond this system",
}

_SAYS = (
    ("read_only", "that it only reads", "that it changes things"),
    ("destructive", "that it may destroy", "that it destroys nothing"),
    ("open_world", "that it reaches beyond this system", "that it stays on this system"),
)


def _question(facts: Authorization, risks: list[Risk], *, trusted: bool) -> str:
    origin = one_line(facts.origin, 100)
    may = " and ".join(_MAY[risk] for risk in risks)
    says = [
        true if getattr(facts.traits, hint) else false
        for hint, true, false in _SAYS
        if getattr(facts.traits, hint) is not None
    ]
    said = f"It says {' and '.join(says)}" if says else "It says nothing about that"
    doubt = "" if trusted or not says else "; its origin is not trusted"
    return f"May `{facts.definition.name}` from `{origin}` run? It {may}. {said}{doubt}."
