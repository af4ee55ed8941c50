"""
The published rules of strict function calling, as a checker that knows nothing of Ferrule.

Each rule cites where it is published. Pages change; the day each was last read stands beside it.
How large a schema may be is not here: those numbers are in one table, `ferrule.schema._limits`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

GUIDE = "OpenAI API guide: Structured model outputs, section Supported schemas (2026-02)"
CALLING = "OpenAI API guide: Function calling, section Strict mode (2026-02)"
SDK = "openai/openai-python, issue 1637 and src/openai/lib/_pydantic.py (2026-02)"
AGENTS = "openai/openai-agents-python, issue 1884 and agents/strict_schema.py (2026-02)"
CLAUDE = "Claude API docs: Structured outputs, section JSON Schema limitations (2026-02)"

RULES = {
    "root": ("the root is an object and no union", GUIDE),
    "closed": ("every object says additionalProperties: false", GUIDE),
    "required": ("every property is required", CALLING),
    "type": ("every schema names a type, a union or a reference", GUIDE),
    "keyword": ("only the keywords that are listed as supported stand in it", GUIDE),
    "format": ("only the string formats that are listed as supported", GUIDE),
    "reference": ("a reference leads to a definition of the same schema, or to its root", GUIDE),
    "alone": ("no keyword stands beside $ref", SDK),
    "one_of": ("a union is anyOf, never oneOf", AGENTS),
    "default": ("no default", SDK),
    "scalar": ("an enum or const lists text, numbers, true, false and null", CLAUDE),
}
"""What each rule asks, and where that is published."""

TYPES = {"string", "number", "boolean", "integer", "object", "array", "null"}
FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
ANYWHERE = {"type", "title", "description", "enum", "const", "anyOf", "$ref"}
BY_TYPE = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"pattern", "format"},
    "number": {"multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
}
BY_TYPE["integer"] = BY_TYPE["number"]


@dataclass(frozen=True)
class Breach:
    """One rule that one place of a schema breaks."""

    pointer: str
    rule: str

    def __str__(self) -> str:
        asked, source = RULES[self.rule]
        return f"{self.pointer or '/'}: {asked} [{source}]"


def breaches(root: Mapping[str, object]) -> list[Breach]:
    """Return every rule that a schema breaks."""
    found = [] if root.get("type") == "object" and "anyOf" not in root else [Breach("", "root")]
    definitions = root.get("$defs", {})
    assert isinstance(definitions, dict)
    body = {name: member for name, member in root.items() if name != "$defs"}
    known = {"#"} | {f"#/$defs/{name}" for name in definitions}
    found.extend(_check(body, "", known))
    for name, definition in definitions.items():
        found.extend(_check(definition, f"/$defs/{name}", known))
    return found


def _check(schema: object, pointer: str, known: set[str]) -> Iterator[Breach]:
    """Check one schema and all below it."""
    if not isinstance(schema, dict):
        yield Breach(pointer, "type")
        return
    if "$ref" in schema:
        if schema["$ref"] not in known:
            yield Breach(pointer, "reference")
        if len(schema) > 1:
            yield Breach(pointer, "alone")
        return
    types = _types(schema)
    if not (types or "anyOf" in schema) or not set(types) <= TYPES:
        yield Breach(pointer, "type")
    yield from _check_keywords(schema, types, pointer)
    if "object" in types:
        yield from _check_object(schema, pointer)
    for step, below in _below(schema):
        yield from _check(below, pointer + step, known)


def _types(schema: Mapping[str, object]) -> list[str]:
    named = schema.get("type", [])
    return [str(name) for name in named] if isinstance(named, list) else [str(named)]


def _check_keywords(
    schema: Mapping[str, object], types: list[str], pointer: str
) -> Iterator[Breach]:
    allowed = ANYWHERE.union(*(BY_TYPE.get(name, set()) for name in types))
    for keyword in schema:
        if keyword == "oneOf":
            yield Breach(pointer, "one_of")
        elif keyword == "default":
            yield Breach(pointer, "default")
        elif keyword not in allowed:
            yield Breach(f"{pointer}/{keyword}", "keyword")
    if schema.get("format", "date") not in FORMATS:
        yield Breach(pointer, "format")
    values = [*_list(schema.get("enum")), schema.get("const")]
    if any(isinstance(value, (dict, list)) for value in values):
        yield Breach(pointer, "scalar")


def _check_object(schema: Mapping[str, object], pointer: str) -> Iterator[Breach]:
    if schema.get("additionalProperties") is not False:
        yield Breach(pointer, "closed")
    properties = schema.get("properties")
    if not isinstance(properties, dict) or _list(schema.get("required")) != list(properties):
        yield Breach(pointer, "required")


def _below(schema: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    properties = schema.get("properties")
    if isinstance(properties, dict):
        yield from ((f"/properties/{name}", member) for name, member in properties.items())
    if "items" in schema:
        yield "/items", schema["items"]
    yield from ((f"/anyOf/{i}", one) for i, one in enumerate(_list(schema.get("anyOf"))))


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
