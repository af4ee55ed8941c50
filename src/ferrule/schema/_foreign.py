"""
A schema from elsewhere, made safe to compile: within budgets, of a known dialect, self-contained.

A schema may come from a server that nobody here has met, so nothing about it is believed before
it is read. `detached` takes it over within its budgets. `Document` resolves its references, and
refuses one that leaves the document. Then what a validator would walk is
counted: references make a document into a graph, and a small graph can hold more paths than
anyone can walk. Thirty definitions that each name the next one twice are a billion steps. The
count goes along the graph, so it costs no more than the graph is large.
"""

import json
from graphlib import CycleError, TopologicalSorter

from ferrule._ijson import DEFAULT_LIMITS, Limits
from ferrule._ijson import read as read_text
from ferrule._near import shown
from ferrule._plain import is_array, is_mapping, is_object
from ferrule.errors import InvalidJSON, InvalidSchema
from ferrule.schema._document import DEFINITIONS, IN_PLACE, Document, Draft, Node, is_node
from ferrule.schema._words import type_of

EXPANSION = 2_000
"""
How many schemas may look at one place of a value, counted along every reference.

The largest real schemas that were measured have about a hundred; eleven doublings have more than
this. It bounds what the check of a value costs: that many steps for each place in it.
"""


_CONTAINERS = 256
"""Lists and objects that one `enum` may list; of text and numbers it may list any count."""


# ---- the arguments of a tool, as others describe them --------------------------------------------


def foreign(schema: object) -> dict[str, object]:
    """
    Return the argument schema of a tool from elsewhere, with a root that says what it is.

    `None`, the way some servers say "no arguments", is the open empty object. A root that leaves
    out `type` gets `"object"`, since arguments are one; so does one that lists `"object"` among
    others. A `null`, or an empty list as `properties`, is how some languages write an absent
    member, and is taken away. Nothing else changes, and the input never does.

    Raises:
        InvalidSchema: the schema is no object, or its root can never be one.
    """
    if schema is None:
        return {"type": "object", "properties": {}, "required": []}
    if schema is True:
        return {"type": "object"}
    if not is_mapping(schema):
        raise InvalidSchema(
            "the schema of a tool's arguments is a JSON object that describes an object, "
            f'not {type_of(schema)}; a tool without arguments has {{"type": "object"}}'
        )
    root = {str(name): item for name, item in schema.items() if not _is_left_out(name, item)}
    types = root.get("type", "object")
    if types != "object" and not (is_array(types) and "object" in types):
        raise InvalidSchema(
            'the root of a tool\'s schema says `"type": "object"`, and this one describes '
            "something else; wrap it as a property of an object"
        )
    return {"type": "object"} | root | {"type": "object"}


def _is_left_out(name: object, member: object) -> bool:
    """Say whether a member of the root stands for its own absence."""
    if name == "properties" and is_array(member):
        return not member
    return name in {"properties", "required"} and member is None


# ---- budgets -------------------------------------------------------------------------------------


def detached(schema: object, limits: Limits = DEFAULT_LIMITS) -> tuple[Node, str]:
    """
    Return a copy of a schema that shares nothing with it, and the text it was made from.

    The copy is read from JSON text by the one reader of such text: what it refuses from a model is
    refused in a schema too, and its limits hold here with `schema_bytes` for the length.

    Raises:
        InvalidSchema: it is not JSON, or larger, deeper or with more values than `limits` allow.
    """
    _check_size(schema, limits)
    try:
        text = _write(schema)
        copied, _ = read_text(text, limit=limits.schema_bytes, limits=limits)
    except InvalidJSON as error:
        fix = "; make it smaller, or raise the limit in `Limits`" * (error.kind == "too_large")
        raise InvalidSchema(f"the schema is {error}{fix}") from None
    except RecursionError:
        raise _too_deep(limits) from None
    except (TypeError, ValueError) as error:
        raise InvalidSchema(
            f"the schema is not JSON ({shown(str(error), 100)}); it holds objects, lists, text, "
            "finite numbers, true, false and null"
        ) from None
    if is_node(copied):
        return copied, text
    raise InvalidSchema(
        f"a JSON Schema is an object, true or false, not {type_of(schema)}; "
        "give the schema itself, as parsed JSON"
    )


def _check_size(schema: object, limits: Limits) -> None:
    """
    Refuse a value that is too large to be written, before it is.

    Python lets one object stand in many places, so a few objects can be billions of values; and
    how deep its writer goes before it gives up is another number in each version.
    """
    left, length, depth = limits.nodes, limits.schema_bytes, 0
    level = [schema]
    while level:
        depth += 1
        left -= len(level)
        below: list[object] = []
        for item in level:
            if isinstance(item, str):
                length -= len(item)
            elif is_object(item):
                below.extend(item.values())
            elif is_array(item):
                below.extend(item)
            else:
                continue
            if len(below) > left:
                break
        if len(below) > left or length < 0:
            most = f"{limits.schema_bytes} bytes" if length < 0 else f"{limits.nodes} values"
            raise InvalidSchema(
                f"the schema has more than {most}; make it smaller, or raise the limit in `Limits`"
            )
        if depth > limits.depth and any(isinstance(item, dict | list) for item in level):
            raise _too_deep(limits)
        level = below


def _too_deep(limits: Limits) -> InvalidSchema:
    return InvalidSchema(
        f"the schema is nested deeper than {limits.depth} levels, or inside itself; "
        "describe what repeats once under `$defs`"
    )


def _as_dict(value: object) -> object:
    """Return a mapping as what JSON can write."""
    if is_mapping(value):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


_write = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_as_dict).encode


# ---- dialect -------------------------------------------------------------------------------------

_DIALECTS = {
    "json-schema.org/draft-04/schema": Draft.DRAFT_4,
    "json-schema.org/draft-06/schema": Draft.DRAFT_6,
    "json-schema.org/draft-07/schema": Draft.DRAFT_7,
    "json-schema.org/draft/2019-09/schema": Draft.DRAFT_2019_09,
    "json-schema.org/draft/2020-12/schema": Draft.DRAFT_2020_12,
}


def dialect(root: Node) -> Draft:
    """
    Return which dialect a schema is written in; 2020-12 when it does not say.

    Raises:
        InvalidSchema: `$schema` names a dialect that is not supported.
    """
    said = None if isinstance(root, bool) else root.get("$schema")
    if said is None:
        return Draft.DRAFT_2020_12
    address = said.rstrip("#").partition("://")[2] if isinstance(said, str) else ""
    if address not in _DIALECTS:
        name = f'"{shown(said)}"' if isinstance(said, str) else type_of(said)
        raise InvalidSchema(
            f"`$schema` is {name}; supported are draft-04, draft-06, draft-07, 2019-09 and "
            '2020-12, as in "https://json-schema.org/draft/2020-12/schema"'
        )
    return _DIALECTS[address]


# ---- what a validator would walk -----------------------------------------------------------------


def read(schema: object, limits: Limits = DEFAULT_LIMITS) -> Document:
    """
    Read a schema from anywhere as a document that is safe to compile.

    Raises:
        InvalidSchema: it is not JSON, breaks a budget, is written in an unknown dialect, refers
            outside itself, to nothing, or to itself without end.
    """
    root, text = detached(schema, limits)
    document = Document(root, dialect(root), text)
    _check_nodes(document)
    if document.refers:
        _check_loops(document)
        _check_expansion(document)
    return document


def _check_nodes(document: Document) -> None:
    """
    Refuse a part in an unknown dialect, and an enum of many lists or objects.

    Every value is compared with each list and object of an enum, and that adds up.
    """
    for node in document.nodes:
        if "$schema" in node:
            dialect(node)
        choices = node.get("enum")
        if (
            is_array(choices)
            and len(choices) > _CONTAINERS
            and sum(isinstance(choice, (dict, list)) for choice in choices) > _CONTAINERS
        ):
            raise InvalidSchema(
                f"an enum lists more than {_CONTAINERS} lists or objects; "
                "describe them by their parts"
            )


def _check_loops(document: Document) -> None:
    """Refuse references that lead back to themselves before any value is looked at."""
    graph: dict[int, list[int]] = {}
    stack = [document.root]
    while stack:
        node = stack.pop()
        if isinstance(node, bool) or id(node) in graph:
            continue
        here = list(document.in_place(node))
        graph[id(node)] = [id(child) for child in here if not isinstance(child, bool)]
        stack.extend(here)
        stack.extend(
            child for steps, child in document.subschemas(node) if steps[0] not in DEFINITIONS
        )
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pointers = document.pointers()
        loop = " → ".join(pointers[node] or "the root" for node in reversed(error.args[1]))
        raise InvalidSchema(
            f"the references {shown(loop, 200)} lead back to where they start and describe "
            "nothing; give one of them a type"
        ) from None


def _check_expansion(document: Document) -> None:
    """Refuse a schema whose references multiply into more than can be walked."""
    weights: dict[int, int] = {}
    stack: list[tuple[Node, bool]] = [(document.root, False)]
    while stack:
        node, is_done_below = stack.pop()
        if isinstance(node, bool):
            continue
        if is_done_below:
            weights[id(node)] = _weight(document, node, weights)
            if weights[id(node)] > EXPANSION:
                raise _multiplies(document, node)
        elif id(node) not in weights:
            weights[id(node)] = 1  # what a reference back to a node that is still open counts
            stack.append((node, True))
            stack.extend((child, False) for _, child in document.subschemas(node))
            stack.extend((child, False) for child in document.targets(node))


def _weight(document: Document, node: dict[str, object], weights: dict[int, int]) -> int:
    """
    Return how many schemas may look at one place of a value, from `node` down.

    What looks at the same value adds up. Of the ways into a value it goes one at a time, so there
    the heaviest counts.
    """
    total = 1 + sum(weights.get(id(child), 1) for child in document.targets(node))
    member = item = 0
    for steps, child in document.subschemas(node):
        weight = weights.get(id(child), 1)
        if steps[0] in IN_PLACE or steps[0] in {"patternProperties", "contains"}:
            total += weight
        elif steps[0] in {"properties", "propertyNames"} or "Properties" in str(steps[0]):
            member = max(member, weight)
        elif steps[0] not in DEFINITIONS:
            item = max(item, weight)
    return total + max(member, item)


def _multiplies(document: Document, node: Node) -> InvalidSchema:
    place = document.pointers()[id(node)] or "the root"
    return InvalidSchema(
        f"{shown(place, 200)} multiplies into more than {EXPANSION} schemas for one place of a "
        "value; refer to what is shared once, not from several alternatives"
    )
