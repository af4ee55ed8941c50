"""
What a schema says once its references and parts are put together, and which schemas exclude others.

A foreign schema says one thing in many ways: through a reference with a description beside it,
through `allOf`, through a type that only its keywords imply. The strict form has one way, so before
a schema is converted it is made into one that says everything itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice

import msgspec

from ferrule._plain import is_array, is_object
from ferrule.schema._document import DEFINITIONS, Document, Draft, Node, named_nodes, nodes_of
from ferrule.schema._unions import followed, tags
from ferrule.schema._words import key, same, type_of, types_in


class Dropped(msgspec.Struct, frozen=True):
    """
    What the strict form does not say and the schema still enforces.

    Attributes:
        path: Where in the arguments, as in `rows[].name`.
        keyword: The keyword that was left out.
    """

    path: str
    keyword: str


class InexpressibleError(Exception):
    """Something at `path` has no strict form; `reason` says what, and what would have one."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason


ANNOTATIONS = frozenset({"title", "description"})
UNIONS = frozenset({"anyOf", "oneOf"})
DESCRIBING = frozenset(
    {
        "additionalProperties", "anyOf", "const", "enum", "items", "oneOf", "patternProperties",
        "prefixItems", "properties", "required", "type", "unevaluatedProperties",
    }
)  # fmt: skip
"""Keywords that say what a value is made of."""

WEAKENED = frozenset(
    {
        "additionalItems", "contains", "contentEncoding", "contentMediaType", "dependencies",
        "dependentRequired", "dependentSchemas", "else", "exclusiveMaximum", "exclusiveMinimum",
        "format", "if", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum",
        "minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "not",
        "pattern", "propertyNames", "then", "unevaluatedItems", "uniqueItems",
    }
)  # fmt: skip
"""Keywords that refuse values; one that is not kept is listed as dropped."""

_IMPLIED = {
    "properties": "object",
    "items": "array",
    "prefixItems": "array",
    "pattern": "string",
    "format": "string",
    "minLength": "string",
    "maxLength": "string",
    "minimum": "number",
    "maximum": "number",
    "multipleOf": "number",
}
"""The type that a schema without one means."""

NOTHING = "a place that accepts nothing has no strict form; leave it out"

_PARTS = 100
"""Parts that one schema may be put together from, and alternatives that are compared in pairs."""

_COMPOSED = frozenset({"$ref", "allOf", *DEFINITIONS})


class Shapes:
    """
    The shapes of the schemas of one document.

    Attributes:
        dropped: What was said twice, and is now said once.
        inlined: The definitions that the shape in work is made of, by `id`; who makes shapes inside
            shapes takes away what was added.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self.dropped: list[Dropped] = []
        self.inlined: list[int] = []

    def merged(self, node: Mapping[str, object], path: str) -> dict[str, object]:
        """Return a schema as one that says itself what its `$ref` and `allOf` say."""
        parts = list(islice(self._parts(node, path), _PARTS + 1))
        if len(parts) > _PARTS:
            reason = f"more than {_PARTS} parts have no strict form; write them as one schema"
            raise InexpressibleError(path, reason)
        merged = dict(parts[0])
        for part in parts[1:]:
            for keyword, argument in part.items():
                if keyword not in merged:
                    merged[keyword] = argument
                elif not same(merged[keyword], argument):
                    merged[keyword] = self._both(keyword, merged[keyword], argument, path)
        return merged

    def _parts(self, node: Mapping[str, object], path: str) -> Iterator[dict[str, object]]:
        """Find the schemas that `node` is made of, its own words first."""
        only_annotations = "$ref" in node and self._document.draft <= Draft.DRAFT_7
        yield {
            keyword: argument
            for keyword, argument in node.items()
            if keyword not in _COMPOSED and (keyword in ANNOTATIONS or not only_annotations)
        }
        if "$dynamicRef" in node or "$recursiveRef" in node:
            raise InexpressibleError(path, "a dynamic reference has no strict form; use `$ref`")
        below = [] if only_annotations else list(nodes_of(node.get("allOf")))
        if "$ref" in node:
            target = self._document.target(node)
            self.inlined.append(id(target))
            below.insert(0, target)
        for part in below:
            if isinstance(part, bool):
                if not part:
                    raise InexpressibleError(path, NOTHING)
            else:
                yield from self._parts(part, path)

    def _both(self, keyword: str, one: object, other: object, path: str) -> object:
        """Return the argument of a keyword that says what two parts of a schema say."""
        if keyword == "required" and is_array(one) and is_array(other):
            return list(dict.fromkeys((*types_in(one), *types_in(other))))
        if keyword == "properties" and is_object(one) and is_object(other):
            shared = {
                name: {"allOf": [one[name], other[name]]}
                for name in one.keys() & other.keys()
                if not same(one[name], other[name])
            }
            return one | other | shared
        if keyword == "type":
            types = [name for name in types_in(one) if _covers(other, name)]
            types += [name for name in types_in(other) if _covers(one, name) and name not in types]
            if types:
                return types[0] if len(types) == 1 else types
        if keyword == "enum" and is_array(one) and is_array(other):
            return [value for value in one if any(same(value, rest) for rest in other)]
        if keyword in DESCRIBING:
            raise InexpressibleError(
                path,
                f"two parts that say different things in `{keyword}` have no strict form; write "
                "them as one schema",
            )
        if keyword in WEAKENED:
            self.dropped.append(Dropped(path, keyword))
        return one

    def are_disjoint(self, branches: Sequence[Node], path: str) -> bool:
        """Say whether no value can fit two of the branches."""
        shapes: list[dict[str, object]] = []
        for branch in branches:
            mark = len(self.inlined)
            schema = followed(self._document, branch)
            if isinstance(schema, bool):
                return False
            shapes.append(self.merged(schema, path))
            del self.inlined[mark:]
        listed = [_values_of(shape) for shape in shapes]
        if all(values is not None for values in listed):
            keys = [key(value) for values in listed for value in values or ()]
            return len(set(keys)) == len(keys)
        return len(shapes) <= _PARTS and all(
            self._exclude(one, other) for one, other in combinations(shapes, 2)
        )

    def _exclude(self, one: dict[str, object], other: dict[str, object]) -> bool:
        values, others = _values_of(one), _values_of(other)
        if values is not None and others is not None:
            return not any(same(value, rest) for value in values for rest in others)
        types, rest = _widened(one), _widened(other)
        if types and rest and types.isdisjoint(rest):
            return True
        asked, asked_there = (set(types_in(shape.get("required"))) for shape in (one, other))
        known, known_there = (named_nodes(shape.get("properties")).keys() for shape in (one, other))
        if asked - known_there and asked_there - known:
            return True  # once both are closed, neither can hold what the other requires
        fixed, fixed_there = tags(self._document, one), tags(self._document, other)
        return any(
            not any(same(value, there) for value in fixed[name] for there in fixed_there[name])
            for name in asked & asked_there & fixed.keys() & fixed_there.keys()
        )


def annotations_of(shape: Mapping[str, object]) -> dict[str, object]:
    """Return what a schema tells a reader and does not ask of a value."""
    return {name: shape[name] for name in shape if name in ANNOTATIONS}


def types_of(shape: Mapping[str, object]) -> list[str]:
    """Return the types that a schema says or means; none if it means any."""
    if "type" in shape:
        return types_in(shape["type"])
    return [_IMPLIED[keyword] for keyword in shape if keyword in _IMPLIED][:1]


def _covers(argument: object, name: str) -> bool:
    """Say whether the argument of `type` accepts what is of the type `name`."""
    types = types_in(argument)
    return name in types or (name == "integer" and "number" in types)


def _values_of(shape: Mapping[str, object]) -> list[object] | None:
    """Return the values that a schema lists; null is one if that is its only type."""
    if "const" in shape:
        return [shape["const"]]
    listed = shape.get("enum")
    return listed if is_array(listed) else None


def _widened(shape: Mapping[str, object]) -> set[str]:
    """Return the types of a schema, a number counting as an integer too."""
    values = _values_of(shape)
    types = set(types_of(shape) if values is None else map(type_of, values))
    return types | {"integer"} if "number" in types else types
