"""
A fuzz of what reads schemas: `python tests/fuzz_schemas.py --texts 50000`.

Schemas of real tools, changed in a few places, are compiled, brought into strict form, bound and
compared. They are taken, or refused by an `InvalidSchema` or an `InvalidDefinition` (bound: by an
`InvalidTool`, which both are), and by nothing else; a strict form there is, or a `NotStrict`. What
compiles answers about any value, in at most twenty problems (or a `ValidatorCrash`, where a
pattern is one that no linear engine takes). Converting changes no input, gives what compiles, and
is idempotent. The work, counted in calls, is bounded by the schema's size.
"""

import contextlib
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple, cast

from ferrule import (
    Definition,
    InvalidDefinition,
    InvalidSchema,
    InvalidTool,
    RawTool,
    ValidatorCrash,
    bind,
    diff,
)
from ferrule.schema import PROVIDERS, Converted, Validator, compile, findings, to_strict
from ferrule.schema._foreign import foreign
from fuzz_ijson import words
from fuzzing import Changer, made_by, main
from support import steps_of

Schema = dict[str, object]

CORPUS = Path(__file__).parent / "corpus"
REAL: tuple[Schema, ...] = tuple(
    one["inputSchema"]
    for path in sorted((CORPUS / "mcp-tools").glob("*.json"))
    for one in json.loads(path.read_text(encoding="utf-8"))["tools"]
)
TREE: Schema = {
    "type": "object",
    "properties": {
        "tree": {"$ref": "#/$defs/tree"},
        "kind": {"oneOf": [{"const": "a"}, {"type": "integer", "multipleOf": 2}, {"type": "null"}]},
        "rows": {"type": "array", "items": {"type": "string", "pattern": "^a", "maxLength": 3}},
    },
    "required": ["tree"],
    "additionalProperties": False,
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {
                "name": {"enum": ["a", "b", None]},
                "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
            },
            "required": ["name", "children"],
            "additionalProperties": False,
        }
    },
}
LISTED: Schema = {
    "type": "object",
    "properties": {
        "a": {"allOf": [{"$ref": "#/definitions/n"}, {"minimum": 1}], "default": 2},
        "b": {"anyOf": [{"type": ["string", "null"]}, {"type": "object", "properties": {}}]},
        "c": {"type": "array", "prefixItems": [{"type": "number"}], "items": False},
    },
    "patternProperties": {"^x-": {"format": "date-time"}},
    "definitions": {"n": {"type": "number", "exclusiveMaximum": 1e3}},
    "if": {"required": ["a"]},
    "then": {"minProperties": 2},
}

KEYWORDS = (
    *words(
        "type properties required items additionalProperties $ref $defs definitions anyOf oneOf"
    ),
    *words("allOf not if then else enum const minimum maximum exclusiveMinimum multipleOf"),
    *words(
        "pattern patternProperties propertyNames minItems maxItems uniqueItems contains prefixItems"
    ),
    *words("minLength format default description title nullable $id $anchor $dynamicRef $schema"),
    *words("unevaluatedProperties dependentRequired dependentSchemas minContains maxProperties"),
)
PARTS: tuple[object, ...] = (
    *KEYWORDS,
    *words("string integer number boolean object array null strng a b #/$defs/tree"),
    *words("#/definitions/n # #/properties/a #/nowhere other.json http://evil.test/ #m date-time"),
    "email",
    *words("^a+$ ^(a|b)*$ (?=x)a [ (a{1,100}){1,100} http://json-schema.org/draft-07/schema#"),
    "", "é", "\ud800", "https://json-schema.org/draft/2020-12/schema", "x" * 3_000,
    True, False, None, 0, 1, -1, 2, 0.5, 1.0, 1e308, 2**63, 2**70, 10**400, 1e-9, [], {}, [[]],
    ["a"], ["a", "a"], [1, "a", None], ["object", "null"], {"a": {}}, {"a": False},
    {"type": "string"}, {"type": "object"}, {"$ref": "#"}, {"$ref": "#/$defs/tree"},
    {"$defs": {"tree": {"$ref": "#/$defs/tree"}}}, [{"type": "string"}, {"type": "null"}],
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"const": 2**70}, {"enum": [{"a": [1]}, 1.0, "é"]}, float("nan"), (), b"x",
    float("-inf"), {1: 2},
)  # fmt: skip

VALUES: tuple[object, ...] = (
    None, True, 0, 2, -1, 1.0, 0.5, 2**70, "", "a", "aaaa", "é", [], {}, [1], ["a", "a"], {"a": 1},
    {"a": None, "b": None, "c": []}, {"tree": {"name": "a", "children": []}, "rows": ["b"]},
    {"tree": {"name": "a", "children": [{"name": None, "children": None}]}, "kind": None},
    {"x-1": "2026-11-30T00:00:00Z", "path": "a", "a": {"a": {"a": []}}}, [[[[{}]]]],
)  # fmt: skip


class Pair(NamedTuple):
    """A schema, and what became of it."""

    old: Schema
    new: Schema


class SchemaChanger(Changer):
    """Makes pairs of schemas."""

    def pair(self) -> Pair:
        """Return a schema that is nearly a real one, and the same changed once more."""
        seeds = (TREE, LISTED, *REAL)
        seed = seeds[self.below(2) or self.number() % len(seeds)]
        old = self.changed(seed, PARTS, 5)
        new = self.changed(old, PARTS, 3)
        return Pair(cast("Schema", old), cast("Schema", new))


def batches() -> Any:  # noqa: ANN401  # a strategy for lists of pairs
    """Return a strategy for pairs of schemas."""
    return made_by(SchemaChanger, SchemaChanger.pair, 50)


# ---- what must hold ------------------------------------------------------------------------------


def check(pair: Pair) -> str:
    """Hold both schemas to the rules; say what came of the first."""
    shown = repr(pair)
    made = [check_one(schema) for schema in pair]
    definitions = [defined(schema) for schema in pair]
    check_diff(*definitions)
    assert repr(pair) == shown
    return made[0]


def check_one(schema: Schema) -> str:
    """Hold one schema to the rules; say what came of it."""
    with contextlib.suppress(InvalidSchema):
        taken = foreign(schema)
        assert taken["type"] == "object", schema
    try:
        validator = compile(schema)
    except InvalidSchema as error:
        said = refused(error)
    else:
        check_answers(validator, schema)
        said = "compiled"
    with contextlib.suppress(InvalidSchema):
        converted = to_strict(schema)
        assert said == "compiled", schema
        if isinstance(converted, Converted):
            check_strict(converted)
            said = "compiled with a strict form"
    return said


def refused(error: Exception) -> str:
    """Hold a refusal to the rules."""
    assert 0 < len(str(error).encode()) <= 1024, str(error)[:500]
    return "refused"


def check_answers(validator: Validator, schema: Schema) -> None:
    """Hold what a compiled schema says of any value to the rules."""
    for value in VALUES:
        try:
            problems = validator.problems(value)
        except ValidatorCrash:
            assert "(?=x)" in repr(schema), schema
        else:
            assert len(problems) <= 20, schema
            assert bool(problems) != validator.is_valid(value), (schema, value)
            assert all(0 < len(str(one).encode()) <= 1024 for one in problems), (schema, value)


def check_strict(converted: Converted) -> None:
    """Hold a strict form to the rules."""
    compile(converted.schema)
    for provider in PROVIDERS.values():
        assert all(map(str, findings("t", converted.schema, provider)))
    again = to_strict(converted.schema)
    assert isinstance(again, Converted), (converted.schema, again)
    assert again.schema == converted.schema, converted.schema
    for value in VALUES:
        if isinstance(value, dict):
            shown = repr(value)
            converted.restore(value)
            assert repr(value) == shown


def defined(schema: Schema) -> Definition | None:
    """Return a definition with this schema, which binds or is refused."""
    try:
        definition = Definition("t", input_schema=schema)
    except InvalidDefinition as error:
        refused(error)
        return None
    try:
        bind(RawTool(definition, lambda _, __: None))
    except InvalidTool as error:
        refused(error)
    return definition


def check_diff(old: Definition | None, new: Definition | None) -> None:
    """Hold the comparison of two definitions to the rules."""
    if old is not None:
        assert diff(old, old) == [], old
    if old is not None and new is not None:
        changes = diff(old, new)
        assert bool(changes) == (old.digest != new.digest), (old, new)


# ---- what it costs -------------------------------------------------------------------------------

STEPS = 500_000
STEPS_A_BYTE = 100
"""
What a schema may cost, counted in calls: so many, and so many more for each byte.

The first is for the alternatives of a `oneOf`, which the strict form compares with each other as
long as they are about a hundred.
"""


def check_cost(schema: Schema) -> float:
    """Hold one schema to its bound; return its steps as a part of what it may have."""
    size = len(json.dumps(schema))
    steps = steps_of(lambda: check(Pair(schema, schema))) / (STEPS + STEPS_A_BYTE * size)
    assert steps <= 1, (str(schema)[:300], size, steps)
    return steps


def large(size: int) -> list[Schema]:
    """Return schemas that are dear for their size."""
    names = [f"A{at}" for at in range(size)]
    following = zip(names, [*names[1:], names[0]], strict=True)
    twice = {
        f"A{at}": {"anyOf": [{"$ref": f"#/$defs/A{at + 1}"}] * 2} for at in range(min(size, 40))
    }
    deep: object = {}
    for _ in range(min(size, 200)):
        deep = {"type": "object", "properties": {"a": deep}}
    schemas: list[Schema] = [
        {"properties": {name: {"type": "string"} for name in names}},
        {"properties": {name: {"enum": names[:10]} for name in names}, "required": names},
        {"$defs": {one: {"$ref": f"#/$defs/{other}"} for one, other in following}},
        {"$ref": "#/$defs/A0", "$defs": twice | {f"A{len(twice)}": {"type": "null"}}},
        {"properties": {"a": {"enum": names}}},
        {"properties": {"a": {"anyOf": [{"const": name} for name in names]}}},
        {"properties": {"a": {"oneOf": [{"type": "object", "required": [n]} for n in names]}}},
        {"patternProperties": {f"^{name}$": {"type": "null"} for name in names}},
        {"properties": {"a": deep}},
        {"description": "x" * size * 20},
    ]
    return [{"type": "object"} | schema for schema in schemas]


def costs() -> str:
    """Hold the large schemas to their bounds, and say how near the nearest came."""
    parts = [check_cost(schema) for size in (30, 1_000) for schema in large(size)]
    return f"{len(parts)} large ones took at most {max(parts):.0%} of their steps"


if __name__ == "__main__":
    sys.exit(main("pairs of schemas", batches(), check, costs))
