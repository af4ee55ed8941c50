"""Which alternative of a union a value was meant for, and what a schema accepts in a few words."""

from collections.abc import Mapping, Sequence

from ferrule._near import shown
from ferrule._plain import is_array, is_object
from ferrule.schema._document import Document, Node, named_nodes
from ferrule.schema._words import has_type, is_number, joined, literal, one_of, same, types_in

_HOPS = 8
"""References that are followed to find out what a schema describes."""


def followed(document: Document, node: Node) -> Node:
    """Return the schema at the end of plain references."""
    for _ in range(_HOPS):
        if isinstance(node, bool) or "$ref" not in node:
            break
        node = document.target(node)
    return node


def described(document: Document, node: Node) -> str:
    """Return what a schema accepts, in a few words."""
    schema = followed(document, node)
    if isinstance(schema, bool):
        return "any value" if schema else "nothing"
    if "const" in schema:
        return literal(schema["const"])
    choices, types = schema.get("enum"), joined(types_in(schema.get("type")))
    if is_array(choices):
        return one_of(choices)
    for keyword in ("format", "pattern"):
        if isinstance(argument := schema.get(keyword), str):
            return f"{types or 'string'} ({keyword} {shown(argument)})"
    if types:
        return types
    return "object" if "properties" in schema else "another value"


def may_mean(document: Document, branch: Node, value: object) -> bool:
    """Say whether a value of this type can be meant for a branch."""
    schema = followed(document, branch)
    if isinstance(schema, bool):
        return schema
    if "type" in schema:
        names = types_in(schema["type"])
        return has_type(value, names) or (is_number(value) and "integer" in names)
    fixes = "const" in schema or "enum" in schema
    return not (fixes and (is_object(value) or is_array(value)))


def tags(document: Document, branch: Node) -> dict[str, list[object]]:
    """Return the properties that a branch fixes to some values, with these values."""
    schema = followed(document, branch)
    fixed: dict[str, list[object]] = {}
    members = None if isinstance(schema, bool) else schema.get("properties")
    for name, member in named_nodes(members).items():
        rule = followed(document, member)
        if isinstance(rule, bool):
            continue
        if "const" in rule:
            fixed[name] = [rule["const"]]
        elif is_array(choices := rule.get("enum")):
            fixed[name] = choices
    return fixed


def common_tag(
    document: Document, branches: Sequence[Node]
) -> tuple[str, list[tuple[Node, list[object]]]] | None:
    """Return a property that every branch fixes, with each branch and its values of it."""
    fixed = [tags(document, branch) for branch in branches]
    for name in fixed[0]:
        if all(name in one for one in fixed):
            return name, [(branch, one[name]) for branch, one in zip(branches, fixed, strict=True)]
    return None


def agreeing(offers: Sequence[tuple[Node, list[object]]], value: object) -> list[Node]:
    """Return the branches that fix a property to `value`."""
    return [branch for branch, choices in offers if any(same(one, value) for one in choices)]


def nearest(document: Document, branches: Sequence[Node], value: object) -> Node:
    """Return the branch that the names of an object fit best; the first of those that do."""

    def overlap(branch: Node) -> int:
        schema = followed(document, branch)
        if isinstance(schema, bool) or not is_object(value):
            return 0
        required = schema.get("required")
        missing = sum(name not in value for name in required) if is_array(required) else 0
        return len(_names(schema) & value.keys()) - missing

    return max(branches, key=overlap)


def _names(schema: Mapping[str, object]) -> frozenset[str]:
    return frozenset(named_nodes(schema.get("properties")))
