"""What a change of a definition means to those who relied on it."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import Change, Definition, diff
from ferrule.schema import compile

Schema = dict[str, object]


def changed(old: Mapping[str, object], new: Mapping[str, object]) -> set[tuple[str, str]]:
    """Return the changes of one property's schema."""

    def definition(schema: Mapping[str, object]) -> Definition:
        return Definition("t", input_schema={"type": "object", "properties": {"p": schema}})

    prefix = "input_schema.properties.p."
    return {(c.path.removeprefix(prefix), c.kind) for c in diff(definition(old), definition(new))}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"description": "a"}, {"description": "b"}, {("description", "text")}),
        ({"type": "integer"}, {"type": "number"}, {("type", "widened")}),
        ({"type": "number"}, {"type": "integer"}, {("type", "breaking")}),
        ({"type": "string"}, {"type": ["string", "null"]}, {("type", "widened")}),
        ({}, {"type": "string"}, {("type", "breaking")}),
        ({"enum": ["a", "b"]}, {"enum": ["b", "c"]}, {("enum", "breaking"), ("enum", "widened")}),
        ({"enum": ["a"]}, {}, {("enum", "widened")}),
        ({"maximum": 5}, {"maximum": 9}, {("maximum", "widened")}),
        ({"maximum": 5}, {}, {("maximum", "widened")}),
        ({"minLength": 1}, {"minLength": 2}, {("minLength", "breaking")}),
        ({"multipleOf": 2}, {"multipleOf": 4}, {("multipleOf", "breaking")}),
        ({"multipleOf": 4}, {"multipleOf": 2}, {("multipleOf", "widened")}),
        ({"multipleOf": 0}, {"multipleOf": 2}, {("multipleOf", "breaking")}),
        ({"multipleOf": 2}, {"multipleOf": 0.0}, {("multipleOf", "breaking")}),
        ({"uniqueItems": True}, {"uniqueItems": False}, {("uniqueItems", "widened")}),
        ({"$ref": f"#/required/{'9' * 5_000}"}, {}, {("input_schema", "compatible")}),
        ({"pattern": "a"}, {"pattern": "b"}, {("pattern", "breaking"), ("pattern", "widened")}),
        ({"default": 1}, {"default": 2}, {("default", "compatible")}),
        (
            {"items": {"type": "integer"}},
            {"items": {"type": "number"}},
            {("items.type", "widened")},
        ),
        ({"not": {"type": "null"}}, {}, {("not", "breaking"), ("not", "widened")}),
        (
            {"anyOf": [{"type": "null"}]},
            {"anyOf": [{"type": "null"}, {"type": "string"}]},
            {("anyOf", "widened")},
        ),
        (
            {"type": "object", "additionalProperties": False},
            {"type": "object", "properties": {"q": {}}, "additionalProperties": False},
            {("properties.q", "widened")},
        ),
        (
            {"type": "object"},
            {"type": "object", "properties": {"q": {"type": "null"}}},
            {("properties.q", "breaking")},
        ),
        (
            {"type": "object", "additionalProperties": False},
            {"type": "object"},
            {("additionalProperties", "widened")},
        ),
        ({"required": ["a"]}, {"required": ["a", "b"]}, {("required", "breaking")}),
    ],
)
def test_a_changed_keyword_is_read_for_what_it_takes(
    old: Schema, new: Schema, expected: set[tuple[str, str]]
) -> None:
    """DEF-3, API `diff`: each change has its place and its kind."""
    assert changed(old, new) == expected


def test_what_only_people_read_is_text_and_a_new_name_is_breaking() -> None:
    """API `diff`: description and title are text; a caller finds a tool by its name."""
    old = Definition("a", description="one", title="A")
    new = Definition("b", description="two", title="B")

    assert diff(old, new) == [
        Change(path="name", kind="breaking"),
        Change(path="description", kind="text"),
        Change(path="title", kind="text"),
    ]


def test_nothing_changed_is_no_change() -> None:
    """API `diff`: equal definitions give an empty list."""
    assert diff(Definition("a"), Definition("a")) == []


def test_written_otherwise_and_the_same_is_compatible() -> None:
    """API `diff`: a definition that is not the same is never said to be unchanged."""
    old = {"type": "object", "required": ["a", "b"]}
    new = {"type": "object", "required": ["b", "a"]}

    assert [
        c.kind for c in diff(Definition("t", input_schema=old), Definition("t", input_schema=new))
    ] == ["compatible"]


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        (None, {"type": "object"}, {"compatible"}),
        ({"type": "object"}, None, {"breaking"}),
        ({"type": "integer"}, {"type": "number"}, {"breaking"}),
        ({"type": "number"}, {"type": "integer"}, {"compatible"}),
        ({"not": {}}, {"not": {"type": "null"}}, {"breaking", "compatible"}),
    ],
)
def test_what_a_tool_returns_is_read_the_other_way_round(
    old: Schema | None, new: Schema | None, kinds: set[str]
) -> None:
    """API `diff`: a reader breaks on values that could not come before."""
    before = Definition("t", output_schema=old)
    after = Definition("t", output_schema=new)

    assert {c.kind for c in diff(before, after)} == kinds


def test_references_are_followed_and_a_recursive_schema_ends() -> None:
    """SCH-1: a change inside `$defs` is found where it is used, and a circle is walked once."""

    def tree(kind: str) -> Definition:
        node = {
            "type": "object",
            "properties": {"value": {"type": kind}, "next": {"$ref": "#/$defs/node"}},
        }
        schema = {
            "type": "object",
            "properties": {"root": {"$ref": "#/$defs/node"}},
            "$defs": {"node": node},
        }
        return Definition("t", input_schema=schema)

    assert diff(tree("integer"), tree("number")) == [
        Change(path="input_schema.properties.root.properties.value.type", kind="widened")
    ]


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "a", "bb"]))
SCHEMAS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "integer", "number", "null", ["string", "null"]]),
        "enum": st.lists(SCALARS, min_size=1, max_size=3, unique_by=repr),
        "minimum": st.integers(-2, 2),
        "maximum": st.integers(-2, 2),
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(0, 2),
        "multipleOf": st.sampled_from([1, 2]),
    },
)
OBJECTS = st.fixed_dictionaries(
    {"type": st.just("object")},
    optional={
        "properties": st.dictionaries(st.sampled_from(["a", "b"]), SCHEMAS, max_size=2),
        "required": st.lists(st.sampled_from(["a", "b"]), unique=True),
        "additionalProperties": st.one_of(st.booleans(), SCHEMAS),
        "anyOf": st.lists(
            st.fixed_dictionaries({"properties": st.dictionaries(st.just("a"), SCHEMAS)}),
            min_size=1,
            max_size=2,
        ),
    },
)
VALUES = st.dictionaries(st.sampled_from(["a", "b", "c"]), SCALARS)


@given(OBJECTS, OBJECTS, VALUES)
def test_what_is_not_breaking_refuses_nothing_and_what_is_not_widened_takes_nothing_new(
    old: Schema, new: Schema, value: dict[str, object]
) -> None:
    """API `diff`: held against the validator itself."""
    kinds = {
        c.kind for c in diff(Definition("t", input_schema=old), Definition("t", input_schema=new))
    }
    before, after = compile(old).is_valid(value), compile(new).is_valid(value)

    if "breaking" not in kinds and before:
        assert after
    if "widened" not in kinds and after:
        assert before
