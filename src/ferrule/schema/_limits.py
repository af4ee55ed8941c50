"""
What providers allow of a schema they are asked to follow strictly: one table, dated.

The numbers are the providers' and change without notice. Nothing else in Ferrule knows them, and
nothing fails because of them: what breaks one is sent without `strict`, with a finding that says
what was measured. Give `findings` a row of your own where yours knows better.
"""

from collections.abc import Iterator, Mapping

import msgspec

from ferrule._plain import is_array, is_object
from ferrule.schema._document import named_nodes, nodes_of


class ProviderLimits(msgspec.Struct, frozen=True, kw_only=True):
    """
    The limits of one provider; None where it names none.

    Attributes:
        source: Title of the page that says so.
        checked: The day it was last read.
        name: Characters of a tool's name.
        depth: Objects inside each other; the root is the first.
        properties: Properties of all objects together.
        enum_values: Values of all `enum`s together.
        text: Characters of all property names, definition names, `enum` and `const` values.
        long_enum: From how many values on an `enum` of strings counts as long.
        long_enum_text: Characters of the values of a long `enum`.
        unions: Properties with several types.
    """

    source: str
    checked: str
    name: int
    depth: int | None = None
    properties: int | None = None
    enum_values: int | None = None
    text: int | None = None
    long_enum: int | None = None
    long_enum_text: int | None = None
    unions: int | None = None


PROVIDERS: Mapping[str, ProviderLimits] = {
    "openai": ProviderLimits(
        source="OpenAI API guide, Structured model outputs, section Supported schemas",
        checked="2026-02",
        name=64,
        depth=10,
        properties=5_000,
        enum_values=1_000,
        text=120_000,
        long_enum=250,
        long_enum_text=15_000,
    ),
    "anthropic": ProviderLimits(
        source="Claude API docs, Structured outputs, sections JSON Schema and complexity limits",
        checked="2026-02",
        name=64,
        unions=16,
    ),
    "gemini": ProviderLimits(
        source="Gemini API reference, FunctionDeclaration",
        checked="2026-02",
        name=128,
    ),
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """
    Something about a schema that a provider does not allow.

    Attributes:
        path: Where in the arguments, as in `rows[].cell`; empty for the schema as a whole.
        what: What is measured, in words.
        measured: How much there is.
        limit: How much there may be.
    """

    path: str
    what: str
    measured: int
    limit: int

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        return f"{place}{self.measured} {self.what}, and {self.limit} are allowed"


def findings(
    name: str, schema: Mapping[str, object], limits: ProviderLimits
) -> tuple[Finding, ...]:
    """Return every limit of a provider that a tool's name and strict schema break."""
    measured = _Measured(schema)
    totals = (
        ("characters in the name", len(name), limits.name),
        ("properties in all", measured.properties, limits.properties),
        ("enum values in all", measured.enum_values, limits.enum_values),
        ("characters of names and values in all", measured.text, limits.text),
        ("properties with several types", measured.unions, limits.unions),
    )
    found = [
        Finding(path="", what=what, measured=count, limit=limit)
        for what, count, limit in totals
        if limit is not None and count > limit
    ]
    if limits.depth is not None and measured.depth > limits.depth:
        what = "objects inside each other"
        found.append(
            Finding(path=measured.deepest, what=what, measured=measured.depth, limit=limits.depth)
        )
    found.extend(_long_enums(measured, limits))
    return tuple(found)


def _long_enums(measured: "_Measured", limits: ProviderLimits) -> Iterator[Finding]:
    if limits.long_enum is None or limits.long_enum_text is None:
        return
    for path, values in measured.enums:
        length = sum(len(value) for value in values if isinstance(value, str))
        if len(values) > limits.long_enum and length > limits.long_enum_text:
            what = f"characters in an enum of more than {limits.long_enum} values"
            yield Finding(path=path, what=what, measured=length, limit=limits.long_enum_text)


class _Measured:
    """What there is in a strict schema, counted in one walk; references are not followed."""

    def __init__(self, schema: Mapping[str, object]) -> None:
        self.depth = self.properties = self.enum_values = self.text = self.unions = 0
        self.deepest = ""
        self.enums: list[tuple[str, list[object]]] = []
        definitions = named_nodes(schema.get("$defs"))
        self.text += sum(map(len, definitions))
        stack: list[tuple[object, str, int]] = [(schema, "", 0)]
        stack.extend((node, name, 0) for name, node in definitions.items())
        while stack:
            node, path, depth = stack.pop()
            if is_object(node):
                stack.extend(self._count(node, path, depth))

    def _count(
        self, node: dict[str, object], path: str, depth: int
    ) -> Iterator[tuple[object, str, int]]:
        """Count one schema and give those below it, each with its path and depth."""
        if "properties" in node:
            depth += 1
            if depth > self.depth:
                self.depth, self.deepest = depth, path
        if is_array(choices := node.get("enum")):
            self.enum_values += len(choices)
            self.enums.append((path, choices))
            self.text += sum(len(value) for value in choices if isinstance(value, str))
        if isinstance(constant := node.get("const"), str):
            self.text += len(constant)
        for name, member in named_nodes(node.get("properties")).items():
            self.properties += 1
            self.text += len(name)
            several = is_object(member) and ("anyOf" in member or is_array(member.get("type")))
            self.unions += several
            yield member, f"{path}.{name}" if path else name, depth
        yield node.get("items"), f"{path}[]", depth
        for branch in nodes_of(node.get("anyOf")):
            yield branch, path, depth
