"""
A policy in Cedar's language, decided by Cedar's own engine (`pip install 'ferrule[cedar]'`).

```cedar
@ask("Send this mail?")
permit (principal in Group::"staff", action == Action::"call", resource == Tool::"send_mail")
when { context.to like "*@example.com" };
```

A call is the request `principal`, `Action::"call"`, `Tool::"name"`, with its arguments as context.
The tool has the attributes `origin`, those of `read_only`, `destructive`, `idempotent` and
`open_world` that it states, and `confinement` where something confines the call.

Cedar knows fewer values than JSON does. What it has no word for is given as an entity that nothing
but itself equals and no comparison takes, never left out: a rule that looks at it cannot pass it
over. `null` is `JSON::Null::"null"`; a fraction of more than four decimal places is
`JSON::Number::"0.12345"`, and so is a whole number beyond 64 bits. Other whole numbers are longs,
`2.0` too, and other fractions are decimals. An object with a member that Cedar would read as an
entity or an extension cannot be said at all, and then nobody can decide.

Where Cedar could not evaluate a policy, it goes on without it; a `forbid` that was skipped so
would let a call pass. So a call is allowed only if nothing went wrong, and denied only if a
`forbid` says so or nothing went wrong; in between, nobody could decide: the tool does not run, and
what went wrong is in the `AuthorizationError`.
"""

# The types of cedarpy leave its dicts open.
# pyright: reportUnknownMemberType=false

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from importlib.util import find_spec
from typing import Any, cast

from ferrule import Allow, Ask, Authorization, Decision, Deny, FerruleError, InvalidValue
from ferrule.helpers import one_line
from ferrule.policies._invalid import InvalidPolicy
from ferrule.policies._stated import HINTS

if find_spec("cedarpy") is None:
    raise ModuleNotFoundError(
        "Cedar's engine is not installed: pip install 'ferrule[cedar]'", name="cedarpy"
    )

import cedarpy

__all__ = ("Cedar",)

Entity = Mapping[str, object]
Principal = Callable[[Authorization], tuple[str, str]]
"""Names the caller: the type of an entity and its id, as in `("User", "ann")`."""

_RESERVED = frozenset({"__entity", "__extn", "__expr"})
"""Members by which Cedar tells entities and extensions from plain objects."""

_LONG = 1 << 63
_PLACES = 4
"""Decimal places of Cedar's decimals, which are 64-bit integers of ten-thousandths."""

_ACTION: Entity = {"type": "Action", "id": "call"}


def _nobody(_: Authorization) -> tuple[str, str]:
    return "Caller", "anonymous"


class Cedar:
    """
    An authorizer: policies in Cedar's language.

    A permit with `@ask("…")` does not allow but asks a person, whatever else permits the call. A
    forbid may say why to the model by `@reason("…")`. Policies, entities and schema are read once.

    Args:
        policies: Their text. Templates are refused, since nothing here would fill them.
        principal: Names who calls; by default `Caller::"anonymous"`.
        entities: What else policies speak of, in Cedar's JSON. An entity of type `Tool` adds
            parents and attributes to that tool; what the tool says of itself has the last word.
        schema: Cedar's schema in its own syntax; policies, entities and each request must fit it.
        context: Gives the context in the place of the arguments: JSON values, mapped as those are.

    Raises:
        InvalidPolicy: something of that cannot be read, or does not fit the schema.
    """

    def __init__(
        self,
        policies: str,
        *,
        principal: Principal = _nobody,
        entities: Sequence[Entity] = (),
        schema: str | None = None,
        context: Callable[[Authorization], Mapping[str, object]] | None = None,
    ) -> None:
        self._principal = principal
        self._context = context
        try:
            self._policies = cedarpy.PolicySet.from_str(policies)
            self._schema = None if schema is None else cedarpy.Schema.from_str(schema)
            self._annotations = _annotations(policies)
            self._tools, others = _parted(entities)
            self._entities = cedarpy.Entities.from_json_str(json.dumps(others), self._schema)
        except (ValueError, TypeError) as error:
            raise InvalidPolicy([f"Cedar cannot read this: {one_line(str(error), 300)}"]) from None
        problems = [*_misplaced(self._annotations), *self._misfits(policies)]
        if problems:
            raise InvalidPolicy(problems)

    def __call__(self, authorization: Authorization) -> Decision:
        """
        Decide about one call.

        Raises:
            FerruleError: Cedar could not decide: the request cannot be said, or a policy broke.
        """
        answer = self._answer(authorization)
        reasons, errors = answer.diagnostics.reasons, answer.diagnostics.errors
        if answer.decision is cedarpy.Decision.Deny and (reasons or not errors):
            return Deny(self._said("reason", reasons) or None)
        if errors or answer.decision is not cedarpy.Decision.Allow:
            raise FerruleError(f"Cedar could not decide: {'; '.join(errors)}")
        if any("ask" in self._annotations[reason] for reason in reasons):
            question = self._said("ask", reasons)
            return Ask(question or f"May `{authorization.definition.name}` run?")
        return Allow()

    def _answer(self, authorization: Authorization) -> cedarpy.AuthzResult:
        kind, name = self._principal(authorization)
        context = authorization.arguments if self._context is None else self._context(authorization)
        request = {
            "principal": {"type": kind, "id": name},
            "action": _ACTION,
            "resource": {"type": "Tool", "id": authorization.definition.name},
            "context": json.dumps(_record(context)),
        }
        entities = self._entities.with_added_json_str(
            json.dumps([self._tool(authorization)]), self._schema
        )
        return cedarpy.is_authorized(request, self._policies, entities, self._schema)

    def _tool(self, authorization: Authorization) -> dict[str, object]:
        """Return the entity of the tool: what the host says of it, then what is so."""
        name = authorization.definition.name
        attributes, parents = self._tools.get(name, ({}, []))
        traits = authorization.traits
        facts: dict[str, object] = {hint: getattr(traits, hint) for hint in HINTS}
        facts["confinement"] = authorization.confinement
        facts["origin"] = authorization.origin
        kept = {key: value for key, value in attributes.items() if key not in facts}
        said = {key: value for key, value in facts.items() if value is not None}
        return {"uid": {"type": "Tool", "id": name}, "attrs": kept | said, "parents": parents}

    def _said(self, annotation: str, reasons: Sequence[str]) -> str:
        """Return what the policies that decided say, in the order of the text."""
        decided = [self._annotations[one] for one in self._annotations if one in reasons]
        return "\n".join(filter(None, (one.get(annotation) for one in decided)))

    def _misfits(self, policies: str) -> list[str]:
        """Return what of the policies does not fit the schema."""
        if self._schema is None:
            return []
        checked = cedarpy.validate_policies(policies, self._schema)
        return [f"it does not fit the schema: {one_line(str(one), 300)}" for one in checked.errors]


def _annotations(policies: str) -> dict[str, dict[str, str]]:
    """
    Return the annotations of each policy by Cedar's name for it, in the order of the text.

    Raises:
        ValueError: there is a template.
    """
    written = json.loads(cedarpy.policies_to_json_str(policies))
    if written["templates"]:
        raise ValueError("a template permits nothing until it is filled; write the entity itself")
    names: list[str] = sorted(written["staticPolicies"], key=lambda name: (len(name), name))
    found: dict[str, dict[str, str]] = {}
    for name in names:
        policy = written["staticPolicies"][name]
        given = {key: value or "" for key, value in policy.get("annotations", {}).items()}
        found[name] = given | {"": policy["effect"]}
    return found


def _misplaced(annotations: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return what annotations say where nobody would hear it."""
    return [
        f"policy {number}: @{annotation} stands on a {policy['']}, where it does nothing; "
        f"only a {effect} has it"
        for number, policy in enumerate(annotations.values(), 1)
        for annotation, effect in (("ask", "permit"), ("reason", "forbid"))
        if annotation in policy and policy[""] != effect
    ]


_Tools = dict[str, tuple[dict[str, object], list[object]]]


def _parted(entities: Sequence[Entity]) -> tuple[_Tools, list[Entity]]:
    """
    Return attributes and parents of the tools among the entities, and the other entities.

    Raises:
        ValueError: an entity has another form.
    """
    tools: _Tools = {}
    others: list[Entity] = []
    for entity in entities:
        match entity:
            case {"uid": {"type": "Tool", "id": str(name)}, "attrs": dict(), "parents": list()}:
                attributes = cast("dict[str, object]", entity["attrs"])
                tools[name] = (attributes, cast("list[object]", entity["parents"]))
            case {"uid": {"type": str(kind), "id": str()}} if kind != "Tool":
                others.append(entity)
            case _:
                example = '{"uid": {"type": "User", "id": "ann"}, "attrs": {}, "parents": []}'
                raise ValueError(f"an entity is as in {example}")
    return tools, others


# ---- from JSON to Cedar --------------------------------------------------------------------------


def _record(members: Mapping[str, object]) -> dict[str, object]:
    """
    Return an object as Cedar reads it from JSON.

    Raises:
        InvalidValue: a member is named as Cedar names what is no plain object.
    """
    if not _RESERVED.isdisjoint(members):
        raise InvalidValue("Cedar would take an object with such a member for something else")
    return {name: _value(value) for name, value in members.items()}


def _value(value: object) -> object:
    match value:
        case str() | bool():
            return value
        case int() | float():
            return _number(value)
        case list():
            return [_value(one) for one in cast("list[object]", value)]
        case dict():
            return _record(cast("dict[str, Any]", value))
        case _:
            return _unsayable("Null", "null")


def _number(number: float) -> object:
    """Return a long, a decimal, or an entity that stands for the number."""
    if number == int(number):
        whole = int(number)
        return whole if -_LONG <= whole < _LONG else _unsayable("Number", str(whole))
    exact = Decimal(repr(number))
    scaled = exact.scaleb(_PLACES)
    if scaled == int(scaled) and -_LONG <= scaled < _LONG:
        return {"__extn": {"fn": "decimal", "arg": f"{exact:f}"}}
    return _unsayable("Number", repr(number))


def _unsayable(kind: str, name: str) -> object:
    return {"__entity": {"type": f"JSON::{kind}", "id": name}}
