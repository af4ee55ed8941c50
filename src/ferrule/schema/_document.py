"""
A schema document: its subschemas, and where its references lead.

JSON Schema has five dialects that differ in where schemas may stand and in how they name each
other. This room knows both, once: whoever walks a schema (to count, to compile, to explain, to
convert) asks here. A reference leads to a place inside the document or the document is refused.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias
from urllib.parse import quote, unquote, urldefrag, urljoin

from typing_extensions import TypeIs

from ferrule._near import near, shown
from ferrule._plain import is_array, is_object
from ferrule.errors import InvalidSchema

Node: TypeAlias = dict[str, object] | bool
"""A schema or a subschema."""

Steps: TypeAlias = tuple[str | int, ...]
"""The way from a schema to one right below it: a keyword, and a name or an index."""


class Draft(enum.IntEnum):
    """The dialects of JSON Schema, in their order."""

    DRAFT_4 = 4
    DRAFT_6 = 6
    DRAFT_7 = 7
    DRAFT_2019_09 = 19
    DRAFT_2020_12 = 20


def is_node(value: object) -> TypeIs[Node]:
    """Say whether a JSON value can be a schema."""
    return isinstance(value, (dict, bool))


def node_of(value: object) -> Node:
    """Return the schema that a keyword holds alone, as the argument of `not`."""
    return value if is_node(value) else True


def nodes_of(value: object) -> Sequence[Node]:
    """Return the schemas that a list holds, as the argument of `allOf`."""
    return [item for item in value if is_node(item)] if is_array(value) else ()


def named_nodes(value: object) -> Mapping[str, Node]:
    """Return the schemas that an object holds by name, as the argument of `properties`."""
    if not is_object(value):
        return {}
    return {name: item for name, item in value.items() if is_node(item)}


def pointer_of(steps: Sequence[str | int]) -> str:
    """Return steps as a JSON pointer."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


# ---- where schemas stand -------------------------------------------------------------------------

REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
DEFINITIONS = frozenset({"$defs", "definitions"})
IN_PLACE = frozenset(
    {"allOf", "anyOf", "dependencies", "dependentSchemas", "else", "if", "not", "oneOf", "then"}
)
"""Keywords whose schemas look at the same value once more."""

_ONE, _LIST, _NAMED = 1, 2, 4
_HOLD = {
    "$defs": _NAMED,
    "additionalItems": _ONE,
    "additionalProperties": _ONE,
    "allOf": _LIST,
    "anyOf": _LIST,
    "contains": _ONE,
    "contentSchema": _ONE,
    "definitions": _NAMED,
    "dependencies": _NAMED,
    "dependentSchemas": _NAMED,
    "else": _ONE,
    "if": _ONE,
    "items": _ONE | _LIST,
    "not": _ONE,
    "oneOf": _LIST,
    "patternProperties": _NAMED,
    "prefixItems": _LIST,
    "properties": _NAMED,
    "propertyNames": _ONE,
    "then": _ONE,
    "unevaluatedItems": _ONE,
    "unevaluatedProperties": _ONE,
}
"""What keywords hold: a schema, a list of schemas, schemas by name."""


def subschemas(node: Mapping[str, object], draft: Draft) -> Iterator[tuple[Steps, Node]]:
    """
    Find the schemas right below `node`, each with the steps that lead to it.

    Up to draft-07 nothing beside a `$ref` counts, except as what others refer to.
    """
    only_definitions = "$ref" in node and draft <= Draft.DRAFT_7
    for keyword, member in node.items():
        hold = _HOLD.get(keyword, 0)
        if not hold or (only_definitions and keyword not in DEFINITIONS):
            continue
        if hold & _ONE and is_node(member):
            yield (keyword,), member
        elif hold & _NAMED and is_object(member):
            yield from (((keyword, name), item) for name, item in member.items() if is_node(item))
        elif hold & _LIST and is_array(member):
            yield from (((keyword, i), item) for i, item in enumerate(member) if is_node(item))


def walk(root: Node, draft: Draft) -> Iterator[dict[str, object]]:
    """Find every subschema that is an object, without following references; the root first."""
    stack = [root]
    while stack:
        node = stack.pop()
        if not isinstance(node, bool):
            yield node
            if not _HOLD.keys().isdisjoint(node):  # Most schemas hold no other.
                stack.extend(child for _, child in subschemas(node, draft))


# ---- where references lead -----------------------------------------------------------------------


class Document:
    """
    A schema whose references all lead to places inside it.

    It holds the schema it is given, and writes its references as addresses are written; whoever
    makes one changes the schema no more.

    Attributes:
        root: The schema.
        draft: Its dialect.
        text: The same as JSON text, from which it can be made again.
        nodes: Every subschema that is an object, the root first.

    Raises:
        InvalidSchema: a reference leads out of the document, or to nothing in it.
    """

    __slots__ = ("_targets", "draft", "nodes", "root", "text")

    def __init__(self, root: Node, draft: Draft, text: str) -> None:
        self.root = root
        self.draft = draft
        self.text = text
        self.nodes = list(walk(root, draft))
        self._targets: dict[tuple[int, str], Node] = {}
        if any(not REFERENCES.isdisjoint(node) for node in self.nodes):
            index = _Index(root, draft)
            self.nodes = index.nodes
            self._targets = index.targets

    @property
    def refers(self) -> bool:
        """Whether there is a reference at all."""
        return bool(self._targets)

    def target(self, node: Mapping[str, object], keyword: str = "$ref") -> Node:
        """Return the schema that a reference of `node` leads to."""
        return self._targets[id(node), keyword]

    def targets(self, node: Mapping[str, object]) -> Iterator[Node]:
        """Find the schemas that `node` refers to."""
        if self._targets:
            for keyword in REFERENCES:
                if (id(node), keyword) in self._targets:
                    yield self._targets[id(node), keyword]

    def in_place(self, node: Mapping[str, object]) -> Iterator[Node]:
        """Find the schemas by which `node` looks at the same value once more."""
        yield from self.targets(node)
        yield from (child for steps, child in self.subschemas(node) if steps[0] in IN_PLACE)

    def subschemas(self, node: Mapping[str, object]) -> Iterator[tuple[Steps, Node]]:
        """Find the schemas right below `node`, each with the steps that lead to it."""
        return subschemas(node, self.draft)

    def pointers(self) -> dict[int, str]:
        """Return where each of `nodes` stands, by `id`."""
        return _Index(self.root, self.draft).pointers


class _Site:
    """A schema with the pointer to it and the address from which its references start."""

    __slots__ = ("base", "node", "pointer")

    def __init__(self, node: Node, pointer: str, base: str) -> None:
        self.node = node
        self.pointer = pointer
        self.base = base


class _Index:
    """The names by which parts of a document can be referred to, and what each reference finds."""

    def __init__(self, root: Node, draft: Draft) -> None:
        self._draft = draft
        self._root = _Site(root, "", "")
        self._resources: dict[str, _Site] = {"": self._root}
        self._anchors: dict[tuple[str, str], _Site] = {}
        self._waiting: list[tuple[dict[str, object], _Site]] = []
        self.nodes: list[dict[str, object]] = []
        self.pointers: dict[int, str] = {}
        self.targets: dict[tuple[int, str], Node] = {}
        self._visit(self._root)
        while self._waiting:
            self._resolve(*self._waiting.pop())

    def _visit(self, start: _Site) -> None:
        """Register every schema from `start` down, unless that was done."""
        stack = [start]
        while stack:
            site = stack.pop()
            node = site.node
            if isinstance(node, bool) or id(node) in self.pointers:
                continue
            self.pointers[id(node)] = site.pointer
            self.nodes.append(node)
            self._name(node, site)
            if not REFERENCES.isdisjoint(node):
                self._waiting.append((node, site))
            stack.extend(
                _Site(child, site.pointer + pointer_of(steps), site.base)
                for steps, child in subschemas(node, self._draft)
            )

    def _name(self, node: Mapping[str, object], site: _Site) -> None:
        """Note the names that a schema gives itself; an address also moves its base."""
        if self._draft <= Draft.DRAFT_7 and "$ref" in node:
            return
        address = node.get("id" if self._draft == Draft.DRAFT_4 else "$id")
        if isinstance(address, str):
            uri, anchor = _address(site.base, address)
            if not address.startswith("#"):
                site.base = uri
                self._resources.setdefault(uri, site)
            if anchor:
                self._anchors.setdefault((site.base, anchor), site)
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = node.get(keyword)
            if isinstance(name, str):
                self._anchors.setdefault((site.base, name), site)

    def _resolve(self, node: dict[str, object], site: _Site) -> None:
        for keyword in REFERENCES & node.keys():
            reference = node[keyword]
            if isinstance(reference, str):
                # An address is ASCII, and the engine insists; people write `#/$defs/Größe`.
                node[keyword] = quote(reference, safe=_IN_ADDRESSES)
                found = self._find(reference, site)
                self.targets[id(node), keyword] = found.node
                self._visit(found)

    def _find(self, reference: str, site: _Site) -> _Site:
        uri, fragment = _address(site.base, reference)
        at = f"at {shown(site.pointer, 200)}: " if site.pointer else ""
        resource = self._resources.get(uri)
        if resource is None:
            raise InvalidSchema(
                f'{at}the reference "{shown(reference)}" leaves the document, and nothing is '
                "fetched; put what it names under `$defs` and refer to it there"
            )
        if not fragment:
            return resource
        if fragment.startswith("/"):
            found = _follow(resource, unquote(fragment))
        else:
            found = self._anchors.get((resource.base, fragment))
        if found is None:
            raise InvalidSchema(
                f'{at}the reference "{shown(reference)}" names nothing in the schema; '
                + self._hint(fragment)
            )
        return found

    def _hint(self, fragment: str) -> str:
        """Return which definition was meant."""
        root = self._root.node
        held = [] if isinstance(root, bool) else [root.get(keyword) for keyword in DEFINITIONS]
        names = [name for definitions in held for name in named_nodes(definitions)]
        close = near(fragment.rpartition("/")[2], names, 1)
        return f"did you mean {shown(close[0])}?" if close else "define it under `$defs`"


_IN_ADDRESSES = "!#$%&'()*+,/:;=?@~"


def _follow(resource: _Site, pointer: str) -> _Site | None:
    """Return the schema that a JSON pointer leads to, if it leads to one."""
    value: object = resource.node
    for token in pointer[1:].split("/"):
        name = token.replace("~1", "/").replace("~0", "~")
        if is_object(value) and name in value:
            value = value[name]
        elif is_array(value) and name in map(str, range(len(value))):
            value = value[int(name)]
        else:
            return None
    return _Site(value, resource.pointer + pointer, resource.base) if is_node(value) else None


def _address(base: str, reference: str) -> tuple[str, str]:
    """
    Return the address that a reference names, and the fragment after it.

    Raises:
        InvalidSchema: it is no address at all.
    """
    try:
        uri, fragment = urldefrag(_join(base, reference))
    except ValueError:
        raise InvalidSchema(
            f'"{shown(reference)}" is no address; refer to a schema inside the document, '
            "as in `#/$defs/name`"
        ) from None
    return uri, fragment


def _join(base: str, reference: str) -> str:
    """Return the address that a reference names; unlike `urljoin`, for any scheme."""
    if not reference or reference.startswith("#"):
        return base + reference
    return urljoin(base, reference)
