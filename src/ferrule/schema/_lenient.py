"""
Values that were meant otherwise than they were written: the named repairs below the text.

Each is made only where the schema shows that the value as written can never be right, and only if
the value meant is of a type that is declared there. So the walk along the arguments knows, of every
place, the schemas that surely look at it: those below references, `properties`, `items`, `allOf`,
and of a union the one alternative that is left when all those are gone that refuse the value
around the place anyway (by type, names, or a fixed value). If several are left, nobody knows which
was meant, and below there nothing is repaired. Conditions and `not` are passed over: knowing fewer
schemas means fewer repairs. Whether all of it is right in the end is for the validator to say.

The cost is linear: one alternative, no trying out, and an end after `STEPS`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ferrule._ijson import DEFAULT_LIMITS, Limits, Trail
from ferrule._ijson import read as read_text
from ferrule._near import path_of
from ferrule._plain import is_array, is_object
from ferrule._traits import Leniency
from ferrule.errors import InvalidJSON
from ferrule.schema._document import Draft, Node, is_node, named_nodes, nodes_of
from ferrule.schema._engine import compiled
from ferrule.schema._explain import Explainer
from ferrule.schema._foreign import read
from ferrule.schema._plan import Members
from ferrule.schema._unions import followed, tags
from ferrule.schema._words import key, type_of, types_in

STEPS = 200_000
"""Pairs of schema and value that one repair looks at."""

Found = tuple[str, str]
"""The name of a repair and the path where it was made."""

_ALL = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_NONE = frozenset[str]()
_NUMBERS = frozenset({"integer", "number"})
_BOOLEANS = {"false": False, "true": True}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+")


class Lenient:
    """
    The repairs that one schema allows; holds nothing that can run, and is safe to share.

    What it keeps is a function of the schema alone, so at worst two threads make the same thing.
    """

    __slots__ = ("_document", "_explainer", "_facts", "_types", "leniency", "limits")

    def __init__(
        self,
        schema: Mapping[str, object],
        leniency: Leniency,
        *,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._document = read(schema, limits)
        _, builder = compiled(self._document)
        self._explainer = Explainer(self._document, builder)
        self._types: dict[int, frozenset[str]] = {}
        self._facts: dict[int, _Facts] = {}
        self.leniency = leniency
        self.limits = limits

    def repair(self, arguments: dict[str, object]) -> list[Found]:
        """Repair `arguments` where they stand and say what was done, in their order."""
        return _Walk(self).repair(arguments)

    @property
    def root(self) -> Node:
        """The schema of the arguments."""
        return self._document.root

    def accepts(self, nodes: Sequence[Node], value: object) -> bool:
        """Say whether all of `nodes` accept a value."""
        return all(self._explainer.accepts(node, value) for node in nodes)

    def types(self, nodes: Iterable[Node]) -> frozenset[str]:
        """
        Return the JSON types that `nodes` together leave a value.

        Single words do not make a place one for text: of a list of choices only the types of the
        others count.
        """
        left = _ALL
        for node in nodes:
            left &= self._types_of(node)
        return left

    def parts(self, node: Mapping[str, object]) -> tuple[list[Node], list[Sequence[Node]]]:
        """Return the schemas that all look at the same value, and the unions of which one does."""
        refers = isinstance(node.get("$ref"), str)
        parts = [self._document.target(node)] if refers else []
        if refers and self._document.draft <= Draft.DRAFT_7:
            return parts, []
        unions = [nodes_of(node[word]) for word in ("anyOf", "oneOf") if word in node]
        return [*parts, *nodes_of(node.get("allOf"))], unions

    def may_be(self, branch: Node, value: object) -> bool:
        """Say whether an alternative may accept a list or an object, as far as can be seen."""
        if type_of(value) not in self.types((branch,)):
            return False
        if isinstance(branch, bool) or not is_object(value):
            return True
        facts = self._facts.get(id(branch))
        if facts is None:
            facts = self._facts[id(branch)] = self._facts_of(branch)
        return facts.allow(value)

    def members(self, nodes: Iterable[dict[str, object]]) -> list[Members]:
        """Return what schemas say of the members of an object."""
        plans = (self._explainer.plan(node) for node in nodes)
        return [plan.members for plan in plans if plan.members is not None]

    def member(self, members: Members, name: str) -> list[Node]:
        """Return the schemas that one schema of an object has for the member of this name."""
        own = [members.properties[name]] if name in members.properties else []
        own += [
            schema
            for pattern, schema in members.patterns
            if self._explainer.accepts_alone("pattern", pattern, name)
        ]
        return own or ([members.rest] if members.keyword == "additionalProperties" else [])

    def items(self, node: Mapping[str, object]) -> tuple[Sequence[Node], Node]:
        """Return the schemas of the first items of a list, and that of the rest."""
        items = node.get("items")
        modern = self._document.draft >= Draft.DRAFT_2020_12
        first = nodes_of(node.get("prefixItems") if modern else items)
        rest = node.get("additionalItems") if is_array(items) else items
        return first, rest if is_node(rest) else True

    # -- what is known of one schema

    def _types_of(self, node: Node) -> frozenset[str]:
        """Return the types that a schema leaves; what is below it is looked at first."""
        if isinstance(node, bool):
            return _ALL if node else frozenset()
        stack = [node]
        while stack:
            parts, unions = self.parts(stack[-1])
            below = [*parts, *(branch for union in unions for branch in union)]
            waiting = [one for one in below if is_object(one) and id(one) not in self._types]
            if waiting:
                stack += waiting
                continue
            top = stack.pop()
            left = self._own_types(top)
            for part in parts:
                left &= self._known(part)
            for union in unions:
                left &= frozenset().union(*map(self._known, union))
            self._types[id(top)] = left
        return self._types[id(node)]

    def _own_types(self, node: Mapping[str, object]) -> frozenset[str]:
        """Return the types that the keywords of a schema itself leave."""
        if "$ref" in node and self._document.draft <= Draft.DRAFT_7:
            return _ALL
        named = types_in(node.get("type"))
        left = frozenset(named) | (_NUMBERS if "number" in named else _NONE) if named else _ALL
        choices = [node["const"]] if "const" in node else node.get("enum")
        if is_array(choices):
            listed = {type_of(one) for one in choices if not isinstance(one, str)}
            left &= listed | (_NUMBERS if listed & _NUMBERS else _NONE)
        return left

    def _known(self, node: Node) -> frozenset[str]:
        if isinstance(node, bool):
            return _ALL if node else frozenset()
        return self._types[id(node)]

    def _facts_of(self, branch: Node) -> "_Facts":
        schema = followed(self._document, branch)
        if isinstance(schema, bool):
            return _Facts()
        names = frozenset(named_nodes(schema.get("properties")))
        closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
        fixed = tags(self._document, schema)
        return _Facts(
            required=frozenset(types_in(schema.get("required"))),
            names=names if closed else None,
            fixed={name: frozenset(map(key, choices)) for name, choices in fixed.items()},
        )


class _Facts(msgspec.Struct, frozen=True):
    """What of an alternative can be seen at once: names it requires, all it takes, fixed values."""

    required: frozenset[str] = frozenset()
    names: frozenset[str] | None = None
    fixed: Mapping[str, frozenset[object]] = {}

    def allow(self, value: Mapping[str, object]) -> bool:
        """Say whether an object has the names and the fixed values."""
        if not self.required <= value.keys():
            return False
        if self.names is not None and not value.keys() <= self.names:
            return False
        return not any(
            name in value
            and not isinstance(value[name], (dict, list))
            and key(value[name]) not in choices
            for name, choices in self.fixed.items()
        )


class _Place(msgspec.Struct, frozen=True):
    """
    One place of the arguments.

    Attributes:
        holder: The list or the object around it.
        step: Its index or name there.
        schemas: The schemas that look at it.
        trail: Where it stands.
        optional: Whether it is a declared member that may be left out.
        in_text: Whether it was inside a text that has been read as JSON.
    """

    holder: Any
    step: int | str
    schemas: Sequence[Node]
    trail: Trail = None
    optional: bool = False
    in_text: bool = False


class _Walk:
    """One walk along the arguments of one call; its stack is its own, so depth is no recursion."""

    def __init__(self, lenient: Lenient) -> None:
        self._lenient = lenient
        self._leniency = lenient.leniency
        meanings = {
            "booleans_in_string": _boolean,
            "numbers_in_string": self._number,
            "json_in_string": self._json,
        }
        self._meanings = [
            (name, meaning) for name, meaning in meanings.items() if getattr(lenient.leniency, name)
        ]
        self._found: list[Found] = []
        self._left = STEPS
        self._stack: list[_Place] = []

    def repair(self, arguments: dict[str, object]) -> list[Found]:
        """Repair what is in `arguments`."""
        self._stack.append(_Place([arguments], 0, (self._lenient.root,)))
        while self._stack and self._left > 0:
            self._left -= 1
            self._visit(self._stack.pop())
        return self._found

    def _visit(self, place: _Place) -> None:
        value: object = place.holder[place.step]
        in_text = place.in_text
        if value is None:
            if self._is_left_out(place):
                del place.holder[place.step]
                self._note("null_is_default", place)
            return
        if isinstance(value, str):
            meant = self._meant(value, place)
            if meant is None:
                return
            name, value = meant
            place.holder[place.step] = value
            self._note(name, place)
            in_text = True
        first = len(self._stack)
        if is_object(value):
            self._object(value, place, in_text=in_text)
        elif is_array(value):
            self._array(value, place, in_text=in_text)
        self._stack[first:] = reversed(self._stack[first:])

    def _note(self, name: str, place: _Place) -> None:
        self._found.append((name, path_of(_steps(place.trail))))

    # -- one value

    def _is_left_out(self, place: _Place) -> bool:
        """Say whether a null stands for a member that may be left out and may not be null."""
        if not (self._leniency.null_is_default and place.optional):
            return False
        types = self._lenient.types(place.schemas)
        return bool(types) and "null" not in types

    def _meant(self, text: str, place: _Place) -> tuple[str, object] | None:
        """Return what a text was meant to be where no text can stand, and which repair that is."""
        types = self._lenient.types(place.schemas)
        if "string" in types:
            return None
        for name, meaning in self._meanings:
            value = meaning(text, types, place)
            if value is not None:
                is_listed = self._lenient.accepts(place.schemas, text)
                return None if is_listed else (name, value)
        return None

    def _number(self, text: str, types: frozenset[str], _: _Place) -> object:
        if not types & _NUMBERS or not _NUMBER.fullmatch(text):
            return None
        return self._read(text, self._lenient.limits)

    def _json(self, text: str, types: frozenset[str], place: _Place) -> object:
        if place.in_text or not text.lstrip(" \t\r\n").startswith(("[", "{")):
            return None
        limits = self._lenient.limits
        left = limits.depth - len(_steps(place.trail))
        if left < 1:
            return None
        value = self._read(text, msgspec.structs.replace(limits, depth=left))
        return value if type_of(value) in types else None

    def _read(self, text: str, limits: Limits) -> object:
        try:
            return read_text(text, limit=limits.argument_bytes, limits=limits)[0]
        except InvalidJSON:
            return None

    # -- what is inside

    def _object(self, value: dict[str, object], place: _Place, *, in_text: bool) -> None:
        nodes = self._looking(place.schemas, value)
        members = self._lenient.members(nodes)
        self._left -= sum(len(each.patterns) for each in members) * len(value)
        if self._left <= 0 or not members:
            return
        required = {name for node in nodes for name in types_in(node.get("required"))}
        for name, item in value.items():
            schemas = [one for each in members for one in self._lenient.member(each, name)]
            optional = name not in required and any(name in each.properties for each in members)
            self._push(item, _Place(value, name, schemas, (place.trail, name), optional, in_text))

    def _array(self, value: list[object], place: _Place, *, in_text: bool) -> None:
        nodes = self._looking(place.schemas, value)
        rules = [self._lenient.items(node) for node in nodes]
        self._left -= max(len(rules) - 1, 0) * len(value)
        if self._left <= 0:
            return
        for index, item in enumerate(value):
            schemas = [first[index] if index < len(first) else rest for first, rest in rules]
            self._push(item, _Place(value, index, schemas, (place.trail, index), in_text=in_text))

    def _push(self, item: object, place: _Place) -> None:
        """Remember to look at a place, if there is anything to see."""
        if place.schemas and (item is None or isinstance(item, (str, dict, list))):
            self._stack.append(place)

    def _looking(self, schemas: Iterable[Node], value: object) -> list[dict[str, object]]:
        """Return the schemas that surely look at a list or an object, starting from `schemas`."""
        found: dict[int, dict[str, object]] = {}
        stack = list(schemas)
        while stack and self._left > 0:
            node = stack.pop()
            if isinstance(node, bool) or id(node) in found:
                continue
            found[id(node)] = node
            parts, unions = self._lenient.parts(node)
            stack += parts
            for union in unions:
                self._left -= len(union)
                meant = [branch for branch in union if self._lenient.may_be(branch, value)]
                stack += meant if len(meant) == 1 else []
        self._left -= len(found)
        return list(found.values())


def _boolean(text: str, types: frozenset[str], _: _Place) -> object:
    return _BOOLEANS.get(text) if "boolean" in types else None


def _steps(trail: Trail) -> list[str | int]:
    steps: list[str | int] = []
    while trail is not None:
        trail, step = trail
        steps.append(step)
    return steps[::-1]
