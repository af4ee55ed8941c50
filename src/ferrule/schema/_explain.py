"""
Why a value was refused: problems with a path, worded for a model that will try again.

The engine alone decides whether a value is valid. It could also list its errors, but that list of
a hostile value costs more than anyone has: it holds every alternative of every union, and a copy
of the refused value in every line. So this module walks the schema beside the value itself: with
an explicit stack; into one alternative of a union, the one that was most likely meant; asking the
engine, which remembers, about the others. Its cost is linear in the value, and it ends after
`MOST` problems. What it says of a value is its type and place; of a name, the name. Never more.

Of each schema a `Plan` is made once, which also knows for which types of value there is nothing to
do. Most values of a large document are passed over by that alone.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from jsonschema_rs import Registry

from ferrule._near import near, path_of, shown
from ferrule._plain import is_array, is_object
from ferrule.errors import Problem, ValidatorCrash
from ferrule.schema._document import Document, Draft, Node, is_node, node_of, nodes_of
from ferrule.schema._engine import Builder, Engine, judged
from ferrule.schema._plan import DEPENDENT, Members, Plan
from ferrule.schema._unions import agreeing, common_tag, described, may_mean, nearest
from ferrule.schema._words import (
    ALONE,
    BOUNDS,
    given,
    has_type,
    joined,
    key,
    one_of,
)

MOST = 20
"""Problems that one refusal names."""

STEPS = 100_000
"""Pairs of schema and value that one explanation looks at."""

_NAMES_LISTED = 12

Place: TypeAlias = "tuple[Place, str | int, int] | None"
"""Where a value stands: (where the one around it stands, name or index, position in it)."""

Schema: TypeAlias = Mapping[str, object]


class Explainer:
    """
    What it takes to explain refusals by one schema.

    It keeps plans and compiled parts of the schema once they have been needed. Safe for concurrent
    use: what is kept depends on the schema alone, so at worst two threads make the same thing.
    """

    __slots__ = (
        "_alone",
        "_builder",
        "_parts",
        "_plans",
        "_pointers",
        "_registry",
        "_unions",
        "document",
    )

    def __init__(self, document: Document, builder: Builder) -> None:
        self.document = document
        self._builder = builder
        self._alone: dict[tuple[str, object], Engine] = {}
        self._parts: dict[int, Engine] = {}
        self._unions: dict[tuple[int, str], Engine] = {}
        self._plans: dict[int, Plan] = {}
        self._pointers: dict[int, str] | None = None
        self._registry: Registry | None = None

    def problems(self, value: object) -> tuple[Problem, ...]:
        """
        Return what is wrong with a refused value, in the order of the value; at least one thing.

        Raises:
            ValidatorCrash: a pattern ran into its step limit, so nobody can say.
        """
        found = _Walk(self).problems(value)
        if found:
            return found
        if self.may_give_up:
            raise ValidatorCrash
        return (Problem(path="", rule="schema", expected="expected what the whole schema accepts"),)

    @property
    def may_give_up(self) -> bool:
        """Whether a pattern of the schema may run into a step limit."""
        return self._builder.backtracks

    def plan(self, node: dict[str, object]) -> Plan:
        """Return the plan of a subschema of the document."""
        plan = self._plans.get(id(node))
        if plan is None:
            plan = self._plans[id(node)] = Plan(node, self.document)
        return plan

    def accepts(self, node: Node, value: object) -> bool:
        """Say whether a subschema of the document accepts a value."""
        if isinstance(node, bool):
            return node
        if type(value) in self.plan(node).settled:
            return True
        engine = self._parts.get(id(node))
        if engine is None:
            pointers, registry = self._whole()
            engine = self._parts[id(node)] = self._builder.part(pointers[id(node)], registry)
        return engine.is_valid(value)

    def accepts_of(self, node: dict[str, object], branches: str, value: object, how: str) -> bool:
        """Say whether any (`anyOf`) or exactly one (`oneOf`) of the `branches` accepts a value."""
        place = id(node[branches])
        engine = self._unions.get((place, how))
        if engine is None:
            pointers, registry = self._whole()
            pointer = f"{pointers[id(node)]}/{branches}"
            places = [f"{pointer}/{index}" for index in range(len(nodes_of(node[branches])))]
            engine = self._unions[place, how] = self._builder.union(how, places, registry)
        return engine.is_valid(value)

    def _whole(self) -> tuple[Mapping[int, str], Registry]:
        """Return where each subschema stands, and the document for the engine."""
        if self._pointers is None or self._registry is None:
            self._pointers = self.document.pointers()
            self._registry = self._builder.registry(self.document.root)
        return self._pointers, self._registry

    def accepts_alone(self, keyword: str, argument: object, value: object) -> bool:
        """
        Say whether one keyword by itself accepts a value.

        Raises:
            ValidatorCrash: a pattern ran into its step limit.
        """
        engine = self._alone.get((keyword, argument))
        if engine is None:
            engine = self._builder.build({keyword: argument})
            self._alone[keyword, argument] = engine
        return judged(engine, value) if self.may_give_up else engine.is_valid(value)


class _Walk:
    """One walk along one refused value. Its methods report problems and push what is to be seen."""

    __slots__ = ("_document", "_doubts", "_explainer", "_found", "_left", "_stack")

    def __init__(self, explainer: Explainer) -> None:
        self._explainer = explainer
        self._document = explainer.document
        self._found: list[tuple[Place, Problem]] = []
        self._doubts: list[tuple[Place, str]] = []
        self._left = STEPS
        self._stack: list[tuple[Plan, object, Place]] = []

    def problems(self, value: object) -> tuple[Problem, ...]:
        """Return the problems of `value`, those of the first places first."""
        stack, found = self._stack, self._found
        self._push(self._document.root, value, None)
        while stack and self._left > 0 and len(found) < MOST:
            self._left -= 1
            plan, item, place = stack.pop()
            first = len(stack)
            self._visit(plan, item, place)
            stack[first:] = reversed(stack[first:])
        for place, keyword in () if found else self._doubts:
            self._report(place, keyword, _LEFTOVERS[keyword])
        if len(found) > 1:
            found.sort(key=lambda pair: _positions(pair[0]))
        return tuple(dict.fromkeys(problem for _, problem in found))

    def _push(self, node: Node, value: object, place: Place) -> None:
        """Remember to look at `value` with `node`, if there is anything to see."""
        if isinstance(node, bool):
            if not node:
                self._report(place, "false schema", "expected this to be left out")
            return
        plan = self._explainer.plan(node)
        if type(value) not in plan.settled:
            self._stack.append((plan, value, place))

    def _report(
        self, place: Place, rule: str, expected: str, *, hint: str = "", order: Place = None
    ) -> None:
        """Note a problem at `place`; among its siblings it stands where `order` says."""
        path = path_of(_steps(place)) if place else ""
        problem = Problem(path=path, rule=rule, expected=expected, hint=hint)
        self._found.append((order or place, problem))

    def _visit(self, plan: Plan, value: object, place: Place) -> None:
        node = plan.node
        for target in plan.again:
            self._push(target, value, place)
        if self._is_another(plan, value, place):
            return
        for keyword in plan.keywords:
            _CHECKS[keyword](self, node, keyword, value, place)
        if is_object(value):
            if plan.of_object:
                self._object(node, value, place)
            if plan.members:
                self._members(plan.members, value, place)
        elif plan.of_array and is_array(value):
            self._array(node, value, place)
        if plan.leftovers and not self._explainer.accepts(node, value):
            self._doubts.append((place, plan.leftovers))

    # -- the value itself

    def _is_another(self, plan: Plan, value: object, place: Place) -> bool:
        """Report a value that is none of those listed, or of another type: then nothing else."""
        if plan.choices is not None and key(value) not in plan.choices:
            self._unlisted(plan, value, place)
            return True
        if type(value) not in plan.exactly and plan.types and not has_type(value, plan.types):
            expected = f"expected {joined(plan.types)}, got {given(value, plan.types)}"
            self._report(place, "type", expected)
            return True
        return False

    def _unlisted(self, plan: Plan, value: object, place: Place) -> None:
        if "const" in plan.node:
            self._report(place, "const", f"expected {one_of(plan.listed)}")
            return
        names = (choice for choice in plan.listed if isinstance(choice, str))
        close = near(value, names, 1) if isinstance(value, str) else []
        hint = shown(close[0]) if close else ""
        self._report(place, "enum", f"expected one of {one_of(plan.listed)}", hint=hint)

    def bound(self, node: Schema, keyword: str, value: object, place: Place) -> None:
        """Check a keyword that compares with a number."""
        limit = node[keyword]
        exclusive = f"exclusive{keyword[0].upper()}{keyword[1:]}"
        bound = BOUNDS[exclusive if node.get(exclusive) is True else keyword]  # true in draft-04
        if (
            isinstance(limit, (int, float))
            and not isinstance(limit, bool)
            and bound.applies(value)
            and not bound.holds(bound.measure(value), limit)
        ):
            self._report(place, keyword, bound.phrase(limit))

    def alone(self, node: Schema, keyword: str, value: object, place: Place) -> None:
        """Check a keyword that the engine can check by itself."""
        argument = node[keyword]
        if not self._explainer.accepts_alone(keyword, argument, value):
            self._report(place, keyword, ALONE[keyword](argument))

    # -- schemas for the same value

    def all_of(self, node: Schema, keyword: str, value: object, place: Place) -> None:
        """Push every part."""
        for part in nodes_of(node[keyword]):
            self._push(part, value, place)

    def negation(self, node: Schema, keyword: str, value: object, place: Place) -> None:
        """Check `not`."""
        refused = node_of(node[keyword])
        if self._explainer.accepts(refused, value):
            words = described(self._document, refused)
            self._report(place, keyword, f"expected anything but {words}")

    def condition(self, node: Schema, keyword: str, value: object, place: Place) -> None:
        """Push `then` or `else`."""
        holds = self._explainer.accepts(node_of(node[keyword]), value)
        self._push(node_of(node.get("then" if holds else "else")), value, place)

    def union(self, node: dict[str, object], keyword: str, value: object, place: Place) -> None:
        """Check `anyOf` and `oneOf`; go into the alternative that was most likely meant."""
        if self._explainer.accepts_of(node, keyword, value, keyword):
            return
        branches = nodes_of(node[keyword])
        if keyword == "oneOf" and self._explainer.accepts_of(node, keyword, value, "anyOf"):
            if self._explainer.may_give_up and self._count(branches, value) == 1:
                raise ValidatorCrash  # one accepts, and a pattern of another gave up
            expected = "expected what exactly one alternative accepts, and several accept this"
            self._report(place, keyword, expected)
            return
        meant: Sequence[Node] = [
            branch for branch in branches if may_mean(self._document, branch, value)
        ]
        if is_object(value) and len(meant) > 1:
            meant = self._tagged(meant, keyword, value, place)
        elif not meant or (len(meant) > 1 and not is_array(value)):
            words = joined(described(self._document, branch) for branch in branches)
            self._report(place, keyword, f"expected {words}, got {given(value)}")
            return
        if meant:
            self._push(nearest(self._document, meant, value), value, place)

    def _count(self, branches: Sequence[Node], value: object) -> int:
        return sum(self._explainer.accepts(branch, value) for branch in branches)

    def _tagged(
        self, branches: Sequence[Node], keyword: str, value: Schema, place: Place
    ) -> Sequence[Node]:
        """
        Return the branches that the value's tag names, or all of them if they have no tag.

        A tag is a property that every branch fixes. If the value has none, or an unknown one, that
        is the problem: it is reported, and no branch is returned.
        """
        tag = common_tag(self._document, branches)
        if tag is None:
            return branches
        name, offers = tag
        said = one_of([choice for _, choices in offers for choice in choices])
        if name not in value:
            expected = f'missing required property "{shown(name)}": one of {said}'
            self._report(place, "required", expected)
            return ()
        chosen = agreeing(offers, value[name])
        if not chosen:
            inner = (place, name, list(value).index(name))
            self._report(inner, keyword, f"expected one of {said}")
        return chosen

    # -- objects

    def _object(self, node: Schema, value: Schema, place: Place) -> None:
        if "required" in node:
            self._required(node["required"], value, place)
        for keyword in DEPENDENT & node.keys():
            self._dependent(node[keyword], value, place)
        if "propertyNames" in node:
            self._names(node_of(node["propertyNames"]), value, place)

    def _required(self, names: object, value: Schema, place: Place, beside: str = "") -> None:
        for name in names if is_array(names) else ():
            if isinstance(name, str) and name not in value:
                expected = f'missing required property "{shown(name)}"{beside}'
                self._report(place, "required", expected)
                if len(self._found) >= MOST:
                    return

    def _dependent(self, rules: object, value: Schema, place: Place) -> None:
        for name in value if is_object(rules) else ():
            rule = rules.get(name) if is_object(rules) else None
            if is_node(rule):
                self._push(rule, value, place)
            elif is_array(rule):
                self._required(rule, value, place, f', needed beside "{shown(name)}"')

    def _names(self, rule: Node, value: Schema, place: Place) -> None:
        for position, name in enumerate(value):
            if not self._explainer.accepts(rule, name):
                words = described(self._document, rule)
                expected = f'property name "{shown(name)}" is not accepted; expected {words}'
                self._report(place, "propertyNames", expected, order=(place, name, position))
                if len(self._found) >= MOST:
                    return

    def _members(self, members: Members, value: Schema, place: Place) -> None:
        """Push each member with the schemas that apply; report those that nothing accepts."""
        properties, found = members.properties, self._found
        self._left -= len(members.patterns) * len(value)
        if self._left < 0:
            return
        for position, (name, item) in enumerate(value.items()):
            known = name in members.spoken_of
            inner = (place, name, position)
            if name in properties:
                known = True
                self._push(properties[name], item, inner)
            for pattern, schema in members.patterns:
                if self._explainer.accepts_alone("pattern", pattern, name):
                    known = True
                    self._push(schema, item, inner)
            if not known:
                if members.rest is False:
                    self._unexpected(name, members, inner)
                else:
                    self._push(members.rest, item, inner)
            if len(found) >= MOST:
                return

    def _unexpected(self, name: str, members: Members, inner: tuple[Place, str, int]) -> None:
        """Report a name that nothing accepts; the first of an object says which are accepted."""
        place, known = inner[0], members.properties
        expected = f'unexpected property "{shown(name)}"'
        if not any(order and order[0] is place for order, _ in reversed(self._found)):
            names = [shown(one) for one in islice(known, _NAMES_LISTED)]
            more = f" and {len(known) - _NAMES_LISTED} more" if len(known) > _NAMES_LISTED else ""
            expected += f"; accepted: {', '.join(names)}{more}" if names else "; none is accepted"
        close = near(name, known, 1)
        hint = shown(close[0]) if close else ""
        self._report(place, members.keyword, expected, hint=hint, order=inner)

    # -- arrays

    def _array(self, node: Schema, value: list[object], place: Place) -> None:
        items = node.get("items")
        modern = self._document.draft >= Draft.DRAFT_2020_12
        prefix = nodes_of(node.get("prefixItems") if modern else items)
        rest = node.get("additionalItems") if is_array(items) else items
        if rest is False and len(value) > len(prefix):
            self._report(place, "items", BOUNDS["maxItems"].phrase(len(prefix)))
        for index, schema in enumerate(prefix[: len(value)]):
            self._push(schema, value[index], (place, index, index))
        if is_object(rest):
            for index in range(len(prefix), len(value)):
                self._push(rest, value[index], (place, index, index))

    def contains(self, node: Schema, keyword: str, value: object, place: Place) -> None:
        """Check `contains` and its two counts."""
        wanted = node_of(node[keyword])
        if not is_array(value):
            return
        count = sum(self._explainer.accepts(wanted, item) for item in value)
        least, most = node.get("minContains", 1), node.get("maxContains", count)
        words = described(self._document, wanted)
        if isinstance(least, (int, float)) and count < least:
            self._report(place, keyword, f"{BOUNDS['minItems'].phrase(least)} like {words}")
        elif isinstance(most, (int, float)) and count > most:
            self._report(place, "maxContains", f"{BOUNDS['maxItems'].phrase(most)} like {words}")


_Check: TypeAlias = Callable[[_Walk, dict[str, object], str, object, Place], None]

_CHECKS: Mapping[str, _Check] = {
    **dict.fromkeys(BOUNDS, _Walk.bound),
    **dict.fromkeys(ALONE, _Walk.alone),
    "allOf": _Walk.all_of,
    "anyOf": _Walk.union,
    "contains": _Walk.contains,
    "if": _Walk.condition,
    "not": _Walk.negation,
    "oneOf": _Walk.union,
}

_LEFTOVERS: Mapping[str, str] = {
    "unevaluatedItems": "expected no items but those that the schema describes",
    "unevaluatedProperties": "expected no properties but those that the schema describes",
}
"""Reported if nothing else was, since they depend on what all other keywords found."""


def _steps(place: Place) -> list[str | int]:
    steps: list[str | int] = []
    while place is not None:
        place, step, _ = place
        steps.append(step)
    return steps[::-1]


def _positions(place: Place) -> list[int]:
    positions: list[int] = []
    while place is not None:
        place, _, position = place
        positions.append(position)
    return positions[::-1]
