"""What explaining a refusal has to do about one schema, found out once."""

from collections.abc import Mapping

from ferrule._plain import is_array
from ferrule.schema._document import Document, Draft, Node, is_node, named_nodes
from ferrule.schema._words import ALONE, BOUNDS, key, types_in

CHECKED = frozenset({*BOUNDS, *ALONE, "allOf", "anyOf", "contains", "if", "not", "oneOf"})
"""Keywords that are checked one by one."""

LEFTOVERS = ("unevaluatedItems", "unevaluatedProperties")
"""Keywords that depend on what all others found."""

DEPENDENT = frozenset({"dependentRequired", "dependentSchemas", "dependencies"})

_REST = ("additionalProperties", "unevaluatedProperties")
_MEMBERS = frozenset({"properties", "patternProperties", *_REST})
_DYNAMIC = frozenset({"$dynamicRef", "$recursiveRef"})
_UNLISTED = frozenset({"patternProperties", *_DYNAMIC, *_REST})
_OF_OBJECTS = frozenset({"required", "propertyNames", *DEPENDENT})
_OF_ARRAYS = frozenset({"items", "prefixItems", "additionalItems", "unevaluatedItems"})


class Plan:
    """
    What is to be done about one schema.

    Attributes:
        node: The schema.
        again: The schemas it refers to.
        listed: The values it lists.
        choices: The same as keys; None if it lists none.
        types: The types it lists.
        exactly: The Python types whose every value is of one of them.
        keywords: Those of its keywords that are checked one by one.
        members: What to do about the members of an object; None if nothing.
        of_object: Whether there is anything else to do about an object.
        of_array: Whether there is anything to do about the items of a list.
        leftovers: Its keyword that depends on what all others found, if it has one.
        settled: The Python types for whose values there is nothing to do at all.
    """

    __slots__ = (
        "again",
        "choices",
        "exactly",
        "keywords",
        "leftovers",
        "listed",
        "members",
        "node",
        "of_array",
        "of_object",
        "settled",
        "types",
    )

    def __init__(self, node: dict[str, object], document: Document) -> None:
        self.node = node
        self.again = tuple(document.targets(node))
        self.keywords: list[str] = []
        self.listed: list[object] = []
        self.choices: frozenset[object] | None = None
        self.types: list[str] = []
        self.exactly: frozenset[type] = frozenset()
        self.members: Members | None = None
        self.of_array = self.of_object = False
        self.leftovers = ""
        self.settled: frozenset[type] = frozenset()
        if document.draft <= Draft.DRAFT_7 and "$ref" in node:
            return
        self.keywords = [keyword for keyword in node if keyword in CHECKED]
        listed = [node["const"]] if "const" in node else node.get("enum")
        self.listed = listed if is_array(listed) else []
        self.choices = frozenset(map(key, self.listed)) if is_array(listed) else None
        self.types = types_in(node.get("type"))
        self.exactly = frozenset().union(*(_EXACTLY[one] for one in self.types or _EXACTLY))
        self.members = None if _MEMBERS.isdisjoint(node) else Members(node, document)
        self.of_object = not _OF_OBJECTS.isdisjoint(node)
        self.of_array = not _OF_ARRAYS.isdisjoint(node)
        self.leftovers = next((keyword for keyword in LEFTOVERS if keyword in node), "")
        if not (self.again or self.keywords or self.choices is not None):
            unsettled = {list} if self.of_array else set[type]()
            unsettled |= {dict} if self.of_object or self.members else set[type]()
            self.settled = self.exactly - unsettled


class Members:
    """
    Which schemas apply to the members of an object.

    Attributes:
        properties: Those for single names.
        patterns: Those for names that match.
        keyword: The keyword that says what of all other names.
        rest: What it says; false if it accepts none.
        spoken_of: Names that it does not count among the others.
    """

    __slots__ = ("keyword", "patterns", "properties", "rest", "spoken_of")

    def __init__(self, node: Mapping[str, object], document: Document) -> None:
        self.properties = named_nodes(node.get("properties"))
        self.patterns = tuple(named_nodes(node.get("patternProperties")).items())
        self.keyword = next((keyword for keyword in _REST if keyword in node), "")
        self.spoken_of: frozenset[str] = frozenset()
        rest = node.get(self.keyword)
        if self.keyword == "unevaluatedProperties":
            spoken_of = _spoken_of(node, document)
            self.spoken_of, rest = (
                (spoken_of, rest) if spoken_of is not None else (frozenset(), True)
            )
        self.rest: Node = rest if is_node(rest) else True


def _spoken_of(node: Mapping[str, object], document: Document) -> frozenset[str] | None:
    """
    Return the names that schemas for the same object speak of, whether they hold or not.

    None if one of them speaks of names that it does not list.
    """
    if not _DYNAMIC.isdisjoint(node):
        return None
    names = set(named_nodes(node.get("properties")))
    seen: set[int] = set()
    stack = list(document.in_place(node))
    while stack:
        schema = stack.pop()
        if isinstance(schema, bool) or id(schema) in seen:
            continue
        if not _UNLISTED.isdisjoint(schema):
            return None
        seen.add(id(schema))
        names.update(named_nodes(schema.get("properties")))
        stack.extend(document.in_place(schema))
    return frozenset(names)


_EXACTLY: Mapping[str, frozenset[type]] = {
    "array": frozenset({list}),
    "boolean": frozenset({bool}),
    "integer": frozenset({int}),
    "null": frozenset({type(None)}),
    "number": frozenset({int, float}),
    "object": frozenset({dict}),
    "string": frozenset({str}),
}
"""The Python types whose every value is of a JSON type."""
