"""
A schema from elsewhere in the form that providers follow to the letter, with the way back.

The strict form knows no "left out": every object is closed and lists every property as required.
So a property that may be left out is sent as one that may be null, and a null that comes back is
taken away again before the schema itself is enforced, unless that schema accepts null there. What
the form cannot say at all (an object with any names, a value of any type, …) has no strict form,
and the answer says where. What it can say only more weakly (a length, a condition) is left out of
what is sent, and listed; it is still enforced here.

Converting makes the new schema and the plan of the way back in one walk. The input is read into a
detached copy first, so nothing happens to it, nor to what it shares with another schema.
"""

import copy
import re
from collections.abc import Mapping, Sequence

import msgspec

from ferrule._ijson import DEFAULT_LIMITS, Limits
from ferrule._near import path_of
from ferrule._plain import is_array, is_object
from ferrule.schema._document import Document, Draft, Node, is_node, named_nodes, nodes_of
from ferrule.schema._engine import Builder, compiled
from ferrule.schema._explain import Explainer
from ferrule.schema._foreign import read
from ferrule.schema._restore import Choice, Items, Members, Named, Plan, Restore
from ferrule.schema._shapes import (
    ANNOTATIONS,
    DESCRIBING,
    NOTHING,
    UNIONS,
    WEAKENED,
    Dropped,
    InexpressibleError,
    Shapes,
    annotations_of,
    types_of,
)
from ferrule.schema._words import key, same, type_of, types_in

_MOST = 20_000
"""Schemas that a strict form may consist of; a provider takes a few thousand."""

_DEEPEST = 50
"""Schemas inside each other; a provider takes ten or so."""


class Converted(msgspec.Struct, frozen=True):
    """
    A strict form.

    Attributes:
        schema: What is sent.
        restore: Takes away the nulls that stand for "left out"; to be called before the original
            schema is enforced.
        dropped: What the strict form says more weakly than the original.
    """

    schema: dict[str, object]
    restore: Restore
    dropped: tuple[Dropped, ...] = ()


class NotStrict(msgspec.Struct, frozen=True):
    """
    That there is no strict form.

    Attributes:
        path: Where in the arguments, as in `rows[].cell`; empty for the arguments themselves.
        reason: What the form cannot express there, and what would.
    """

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


def to_strict(
    schema: Mapping[str, object], *, limits: Limits = DEFAULT_LIMITS
) -> Converted | NotStrict:
    """
    Return the strict form of an argument schema and the way back, or why there is none.

    The input stays as it is, and so does a schema that already is in strict form.

    Raises:
        InvalidSchema: the schema cannot be read, as `compile` would say.
    """
    document = read(schema, limits)
    _, builder = compiled(document)
    try:
        return _Conversion(document, builder).run()
    except InexpressibleError as error:
        return NotStrict(error.path, error.reason)


_ANY_NAMES = (
    "an object with any property names has no strict form; list its properties, or take a list of "
    "objects with a name and a value"
)
_ANY_VALUE = "a value of any type has no strict form; say which types it may have"
_ANY_ITEMS = "a list of anything has no strict form; say what its items are"
_EXTENDED = (
    "a recursive reference that is described further has no strict form; describe what it adds as "
    "a definition of its own"
)
_OVERLAP = (
    "`oneOf` whose alternatives may both fit has no strict form; give each a property with a "
    "constant of its own, or write `anyOf`"
)

# What the strict form of OpenAI's function calling says it supports; see `PROVIDERS["openai"]`.
_KEPT = {
    "string": frozenset({"pattern", "format"}),
    "number": frozenset(
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    ),
    "array": frozenset({"minItems", "maxItems"}),
}
_KEPT["integer"] = _KEPT["number"]
_FORMATS = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"}
)
_ODD = re.compile(r"[^A-Za-z0-9_.-]+")
"""What stands in no name of a definition, so that a reference needs no escapes."""

Form = tuple[dict[str, object], Plan]
"""A strict schema and the plan of the way back."""


class _Conversion:
    """One conversion of one document."""

    def __init__(self, document: Document, builder: Builder) -> None:
        self._document = document
        self._explainer = Explainer(document, builder)
        self._pointers = document.pointers()
        self._shapes = Shapes(document)
        self._references: dict[int, str] = {}
        self._schemas: dict[str, dict[str, object]] = {}
        self._plans: dict[str, Plan] = {}
        self._left = _MOST
        self._depth = 0

    def run(self) -> Converted:
        """Convert the root and everything it refers to."""
        root = self._document.root
        if isinstance(root, bool):
            raise InexpressibleError("", _ANY_NAMES)
        self._references[id(root)] = "#"
        shape = self._shapes.merged(root, "")
        for keyword in UNIONS & shape.keys():
            if not self._only_constrains(shape, keyword, ""):
                reason = "alternatives at the root have no strict form; wrap them as a property"
                raise InexpressibleError("", reason)
        if types_in(shape.get("type", "object")) == ["object"] and shape.get("properties") == {}:
            shape = shape | {"additionalProperties": False}
        types = [name for name in types_in(shape.get("type", "object")) if name != "null"]
        if types != ["object"]:
            raise InexpressibleError("", "arguments are one object; wrap this as a property")
        schema, plan = self._object(shape | {"type": "object"}, "")
        self._schemas["#"], self._plans["#"] = schema, plan
        definitions = {
            reference.removeprefix("#/$defs/"): node
            for reference, node in self._schemas.items()
            if reference != "#"
        }
        if definitions:
            schema["$defs"] = definitions
        dropped = tuple(dict.fromkeys(self._shapes.dropped))
        restore = Restore(plan, self._schemas, self._plans)
        return Converted(copy.deepcopy(schema), restore, dropped)

    # -- any schema

    def _form(self, node: Node, path: str) -> Form:
        """Convert a schema."""
        self._left -= 1
        if self._left < 0 or self._depth > _DEEPEST:
            raise InexpressibleError(path, "what it refers to grows too large when written out")
        if isinstance(node, bool):
            raise InexpressibleError(path, _ANY_VALUE if node else NOTHING)
        mark = len(self._shapes.inlined)
        self._depth += 1
        form = self._referred(node, path) or self._described(self._shapes.merged(node, path), path)
        self._depth -= 1
        del self._shapes.inlined[mark:]
        return form

    def _referred(self, node: Mapping[str, object], path: str) -> Form | None:
        """Convert a reference; one with more beside it is written out, unless it is recursive."""
        referring = _referring(node)
        if referring is None:
            return None
        beside = node.keys() & (ANNOTATIONS | DESCRIBING | WEAKENED)
        target = self._document.target(referring)
        recursive = id(target) in self._shapes.inlined or target is self._document.root
        if beside and not recursive:
            return None
        if beside & DESCRIBING:
            raise InexpressibleError(path, _EXTENDED)
        self._shapes.dropped.extend(Dropped(path, keyword) for keyword in beside - ANNOTATIONS)
        reference = self._defined(target, path)
        form: dict[str, object] = {"$ref": reference}
        if beside & ANNOTATIONS:
            form = {"anyOf": [form]} | annotations_of(node)
        return form, Named(reference)

    def _defined(self, target: Node, path: str) -> str:
        """Return the reference to the strict form of a definition."""
        known = self._references.get(id(target))
        if known is not None:
            return known
        name = _ODD.sub("_", self._pointers.get(id(target), "").rpartition("/")[2]) or "value"
        reference, number = f"#/$defs/{name}", 1
        while reference in self._schemas:
            number += 1
            reference = f"#/$defs/{name}_{number}"
        self._references[id(target)] = reference
        self._schemas[reference] = {}  # holds the place while the definition is converted
        self._schemas[reference], self._plans[reference] = self._form(target, path)
        return reference

    def _described(self, shape: dict[str, object], path: str) -> Form:
        """Convert a schema without `$ref` and `allOf`."""
        for keyword in sorted(UNIONS & shape.keys()):
            return self._union(shape, keyword, path)
        if "enum" in shape or "const" in shape:
            return self._listed(shape, path), None
        types = types_of(shape)
        if not types:
            raise InexpressibleError(path, _ANY_VALUE)
        several = [name for name in types if name != "null"]
        if len(several) > 1 and not {"object", "array"}.isdisjoint(several):
            rest = {name: shape[name] for name in shape if name not in ANNOTATIONS}
            split = {"anyOf": [rest | {"type": name} for name in types]}
            return self._union(split | annotations_of(shape), "anyOf", path)
        shape = shape | {"type": types[0] if len(types) == 1 else types}
        if "object" in types:
            return self._object(shape, path)
        if "array" in types:
            return self._array(shape, path)
        return self._kept(shape, several, path), None

    # -- values

    def _kept(
        self, shape: Mapping[str, object], types: Sequence[str], path: str
    ) -> dict[str, object]:
        """Return the keywords of a schema that the strict form keeps; list those it drops."""
        kept: dict[str, object] = {"type": shape["type"]} | annotations_of(shape)
        allowed = frozenset[str]().union(*(_KEPT.get(name, ()) for name in types))
        for keyword, argument in shape.items():
            if keyword not in WEAKENED:
                continue
            is_flag = keyword.startswith("exclusive") and isinstance(argument, bool)
            is_unknown = keyword == "format" and argument not in _FORMATS
            if keyword in allowed and not is_flag and not is_unknown:
                kept[keyword] = argument
            else:
                self._shapes.dropped.append(Dropped(path, keyword))
        return kept

    def _listed(self, shape: Mapping[str, object], path: str) -> dict[str, object]:
        """Convert a schema that lists its values; null comes last."""
        listed = shape["enum"] if "enum" in shape else [shape["const"]]
        values = listed if is_array(listed) else []
        if "const" in shape:
            values = [value for value in values if same(value, shape["const"])]
        if not values or any(is_object(value) or is_array(value) for value in values):
            raise InexpressibleError(
                path, "a list or object as a constant has no strict form; describe its parts"
            )
        types = types_in(shape.get("type")) or list(dict.fromkeys(map(type_of, values)))
        form: dict[str, object] = {"type": types[0] if len(types) == 1 else types}
        form |= annotations_of(shape)
        if "enum" in shape:
            return form | {"enum": sorted(values, key=lambda value: value is None)}
        return form | {"const": shape["const"]}

    # -- unions

    def _union(self, shape: dict[str, object], keyword: str, path: str) -> Form:
        """Convert `anyOf` and `oneOf`; one that only asks for combinations is dropped."""
        own = {name: shape[name] for name in shape if name not in {keyword, *ANNOTATIONS}}
        if self._only_constrains(shape, keyword, path):
            return self._described(own | annotations_of(shape), path)
        branches = [branch for branch in nodes_of(shape[keyword]) if branch is not False]
        own = {name: own[name] for name in own if name in WEAKENED | DESCRIBING}
        joint: list[Node] = [{"allOf": [own, branch]} if own else branch for branch in branches]
        if keyword == "oneOf" and not self._shapes.are_disjoint(joint, path):
            raise InexpressibleError(path, _OVERLAP)
        forms = [self._form(branch, path) for branch in joint]
        if not forms:
            raise InexpressibleError(path, NOTHING)
        if len(forms) == 1 and not annotations_of(shape):
            return forms[0]
        choice = Choice([(form, plan) for form, plan in forms])
        plan = choice if any(below is not None for _, below in forms) else None
        return {"anyOf": [form for form, _ in forms]} | annotations_of(shape), plan

    def _only_constrains(self, shape: Mapping[str, object], keyword: str, path: str) -> bool:
        """Say whether a union only asks for combinations of what is described; drop it then."""
        properties = named_nodes(shape.get("properties"))
        for branch in nodes_of(shape[keyword]):
            if isinstance(branch, bool) or not properties:
                return False
            says = branch.keys() - {"properties", "required", *ANNOTATIONS, *WEAKENED}
            if not all(same(branch[one], shape.get(one)) for one in says):
                return False
            if not named_nodes(branch.get("properties")).keys() <= properties.keys():
                return False
        self._shapes.dropped.append(Dropped(path, keyword))
        return True

    # -- objects and lists

    def _object(self, shape: Mapping[str, object], path: str) -> Form:
        """Convert an object: closed, every property required."""
        rest = shape.get("additionalProperties", shape.get("unevaluatedProperties"))
        members = named_nodes(shape.get("properties"))
        is_open = rest is not None and rest is not False
        if is_open or shape.get("patternProperties") or not (members or rest is False):
            raise InexpressibleError(path, _ANY_NAMES)
        required = types_in(shape.get("required"))
        for name in required:
            if members.get(name, True) is True:
                raise InexpressibleError(_below(path, name), _ANY_VALUE)
        forms: dict[str, object] = {}
        left_out: set[str] = set()
        inner: dict[str, Plan] = {}
        for name, member in members.items():
            if member is False and name not in required:
                continue  # what must be absent is absent from a closed object
            forms[name], plan = self._form(member, _below(path, name))
            if plan is not None:
                inner[name] = plan
            if name not in required and not self._takes_null(member):
                left_out.add(name)
                forms[name] = _nullable(forms[name])
        form = self._kept(shape, ("object",), path)
        form |= {"properties": forms, "required": list(forms), "additionalProperties": False}
        return form, Members(frozenset(left_out), inner) if left_out or inner else None

    def _array(self, shape: Mapping[str, object], path: str) -> Form:
        """Convert a list; one whose places differ becomes a list of any of them."""
        items = shape.get("items")
        modern = self._document.draft >= Draft.DRAFT_2020_12
        first = nodes_of(shape.get("prefixItems") if modern else items)
        rest = shape.get("additionalItems") if is_array(items) else items
        form = self._kept(shape, ("array",), path)
        if first and not is_node(rest) and _at_most(shape, len(first)):
            rest = False
        if not is_node(rest) or rest is True or (rest is False and not first):
            raise InexpressibleError(path, _ANY_ITEMS)
        if not first:
            form["items"], plan = self._form(rest, f"{path}[]")
            return form, Items((), plan) if plan is not None else None
        self._shapes.dropped.append(Dropped(path, "prefixItems"))
        places = [self._form(place, f"{path}[{index}]") for index, place in enumerate(first)]
        others = [self._form(rest, f"{path}[]")] if rest is not False else []
        distinct = list({key(place): place for place, _ in (*places, *others)}.values())
        form["items"] = distinct[0] if len(distinct) == 1 else {"anyOf": distinct}
        if not others:
            form["maxItems"] = len(first)
        plans = [plan for _, plan in places]
        tail = others[0][1] if others else None
        return form, Items(plans, tail) if any(plans) or tail else None

    def _takes_null(self, node: Node) -> bool:
        """Say whether the original schema accepts null."""
        if isinstance(node, bool):
            return node
        types = types_in(node.get("type"))
        if types and "null" not in types and "$ref" not in node:
            return False
        if id(node) in self._pointers:
            return self._explainer.accepts(node, None)
        return all(self._takes_null(part) for part in nodes_of(node.get("allOf")))


def _referring(node: Mapping[str, object]) -> Mapping[str, object] | None:
    """Return the schema whose `$ref` a schema is: itself, or the only part of its `allOf`."""
    if "allOf" not in node:
        return node if "$ref" in node else None
    parts = nodes_of(node["allOf"])
    if "$ref" in node or len(parts) > 1 or isinstance(parts[0], bool):
        return None
    return parts[0] if parts[0].keys() == {"$ref"} else None


def _below(path: str, name: str) -> str:
    """Return the path of a property."""
    step = path_of((name,))
    return f"{path}.{step}" if path and not step.startswith("[") else path + step


def _at_most(shape: Mapping[str, object], count: int) -> bool:
    most = shape.get("maxItems")
    return isinstance(most, (int, float)) and most <= count


def _nullable(form: object) -> dict[str, object]:
    """Return a strict schema that also accepts null."""
    schema = dict(form) if is_object(form) else {}
    null: dict[str, object] = {"type": "null"}
    branches = schema.get("anyOf")
    if is_array(branches):
        return schema | {"anyOf": [*branches, null]}
    if "$ref" in schema or "const" in schema:
        rest = {name: schema[name] for name in schema if name not in ANNOTATIONS}
        return {"anyOf": [rest, null]} | annotations_of(schema)
    if is_array(choices := schema.get("enum")):
        schema["enum"] = [*(value for value in choices if value is not None), None]
    types = [name for name in types_in(schema["type"]) if name != "null"]
    return schema | {"type": [*types, "null"]}
