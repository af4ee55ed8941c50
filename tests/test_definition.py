"""A definition: its name, its schemas, what it is as JSON, and the identities taken of it."""

import hashlib
from types import MappingProxyType
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import Definition, InvalidDefinition, InvalidValue, RawTool, TraitFields, Traits, bind

SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "Where, é 値 😀."}},
    "required": ["path"],
}
FULL = Definition(
    "files/read.v1",
    description="Read a file.",
    input_schema=SCHEMA,
    output_schema={"type": "array", "items": {"enum": [1, 2**70, "x", None]}},
    title="Read file é",
    strict=True,
)


@pytest.mark.parametrize(
    "name", ["read", "mcp__read-1", "1_lookup", "files/read.v1", ".hidden", "A", "x" * 128]
)
def test_names_of_the_wide_rule_are_taken(name: str) -> None:
    """DEF-1: 1 to 128 of letters, digits and `_ - . /`."""
    assert Definition(name).name == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "bad name",
        "read\n",
        "\nread",
        "read\x00",
        "rea\u200bd",
        "rea\u00add",
        "\u202edaer",
        "read\ufeff",
        "rea\u034fd",
        "réad",
        "\uff52ead",
        "\u0661",
        "read!",
        "a:b",
        "x" * 129,
        None,
        5,
        b"read",
    ],
)
def test_other_names_are_refused_and_shown_with_nothing_hidden(name: object) -> None:
    """DEF-1: empty, white, control, invisible and look-alike characters."""
    with pytest.raises(InvalidDefinition) as caught:
        Definition(cast("str", name))

    said = str(caught.value)
    assert "the name of a tool is 1 to 128 of" in said
    assert said.isprintable()
    assert "\u034f" not in said
    assert len(said) < 300


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("description", "\ud800"),
        ("description", None),
        ("title", "\udfff"),
        ("title", 5),
        ("input_schema", None),
        ("input_schema", []),
        ("input_schema", {}),
        ("input_schema", {"type": "array"}),
        ("output_schema", []),
        ("output_schema", "object"),
    ],
)
def test_a_field_that_cannot_be_is_refused_by_name(field: str, value: object) -> None:
    """DEF-2, scope 108: the sentence names tool and field."""
    with pytest.raises(InvalidDefinition, match=f"{field} of (a )?tool `read`"):
        Definition("read", **cast("dict[str, Any]", {field: value}))


def nested(levels: int) -> dict[str, object]:
    """Return a schema of so many objects in each other."""
    schema: dict[str, object] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        nested(100_000),
        {"type": "object", "properties": MappingProxyType({"a": {}})},
        {"type": "object", "maxProperties": 2**1024},
    ],
    ids=["too deep", "not JSON", "without a digest"],
)
def test_a_schema_that_cannot_be_copied_is_an_invalid_definition(schema: dict[str, object]) -> None:
    """ADM-1: no `RecursionError` or `TypeError` comes out of a declaration."""
    with pytest.raises(InvalidDefinition, match="input_schema of tool `read`"):
        Definition("read", input_schema=schema)


def test_a_tool_without_arguments_has_one_shape() -> None:
    """DEF-2, agenttool 47: the same for every definition without a schema, and never null."""
    assert Definition("a").input_schema == {"type": "object", "properties": {}, "required": []}
    assert Definition("a").input_schema is not Definition("a").input_schema


def test_a_definition_shares_nothing_with_what_it_was_made_of() -> None:
    """DEF-4, scope 107: the schema is copied in, and a copy is independent."""
    schema: dict[str, object] = {"type": "object", "properties": {"a": {"type": "string"}}}
    definition = Definition("read", input_schema=schema)
    before, copied = definition.digest, definition.copy()

    cast("dict[str, object]", schema["properties"]).clear()
    cast("dict[str, object]", copied.input_schema).clear()

    assert definition.digest == before
    assert definition == Definition.from_json(definition.to_json())


# ---- identity ------------------------------------------------------------------------------------


def test_the_digest_is_that_of_the_canonical_text_alone() -> None:
    """DEF-3: exactly these members, in RFC 8785's order, `strict` only when it is asked."""
    text = '{"description":"","name":"a","parameters":{"type":"object"},"type":"function"}'
    loose = Definition("a", input_schema={"type": "object"})
    asked = Definition("a", input_schema={"type": "object"}, strict=True)
    strict = text.replace(',"type":"function"', ',"strict":true,"type":"function"')

    assert loose.digest == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert asked.digest == "sha256:" + hashlib.sha256(strict.encode()).hexdigest()


def test_title_and_output_schema_are_not_in_the_digest() -> None:
    """DEF-3: what a model does not read of every provider is the fingerprint's business."""
    bare = Definition("a", input_schema=SCHEMA)
    more = Definition("a", input_schema=SCHEMA, title="A", output_schema={"type": "object"})

    assert bare.digest == more.digest
    assert bare.digest != Definition("a", input_schema=SCHEMA, description="A").digest
    assert bare.digest != Definition("b", input_schema=SCHEMA).digest


@pytest.mark.parametrize(
    ("change", "origin", "hints"),
    [
        ({"description": "B"}, "local", {}),
        ({"title": "B"}, "local", {}),
        ({"output_schema": {"type": "object"}}, "local", {}),
        ({"strict": True}, "local", {}),
        ({"input_schema": {"type": "object"}}, "local", {}),
        ({}, "mcp:x", {}),
        ({}, "local", {"read_only": True}),
        ({}, "local", {"destructive": False}),
    ],
)
def test_the_fingerprint_covers_all_that_a_person_relied_on(
    change: dict[str, object], origin: str, hints: dict[str, bool]
) -> None:
    """DEF-3: origin, title, output schema and hints too; unstated is not false (AUT-3)."""

    def fingerprint(origin: str, hints: dict[str, bool], **fields: object) -> str:
        made = Definition(**cast("dict[str, Any]", {"name": "a", "title": "A"} | fields))
        tool = RawTool(made, lambda _, __: None, traits=Traits(**cast("TraitFields", hints)))
        return bind(tool, origin=origin).contract.fingerprint

    base = fingerprint("local", {})

    assert fingerprint("local", {}) == base
    assert fingerprint(origin, hints, **change) != base


# ---- as JSON -------------------------------------------------------------------------------------


def test_a_definition_goes_to_json_and_back() -> None:
    """DEF-4, scope 107: equal after a round trip; what is at its default is not written."""
    assert Definition.from_json(FULL.to_json()) == FULL
    assert Definition("a", input_schema=SCHEMA).to_json() == {"name": "a", "input_schema": SCHEMA}


@pytest.mark.parametrize(
    "change",
    [
        {"name": None},
        {"name": "bad name"},
        {"description": 5},
        {"input_schema": None},
        {"input_schema": {"type": "string"}},
        {"output_schema": 5},
        {"title": 5},
        {"strict": "yes"},
        {"strict": 1},
        {"parameters": {}},
        {"Name": "a"},
    ],
)
def test_what_is_no_definition_is_refused_whole(change: dict[str, object]) -> None:
    """DEF-4, scope 110: wrong types and unknown members; no value comes of it."""
    with pytest.raises((InvalidValue, InvalidDefinition)):
        Definition.from_json(FULL.to_json() | change)


@pytest.mark.parametrize("form", [None, [], "a", {}, {"input_schema": SCHEMA}, 5])
def test_what_has_no_name_is_no_definition(form: object) -> None:
    """DEF-4, scope 110."""
    with pytest.raises(InvalidValue):
        Definition.from_json(form)


DESCRIPTIONS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
LITERALS = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), FINITE)


@given(DESCRIPTIONS, st.one_of(st.none(), DESCRIPTIONS), st.lists(LITERALS), st.booleans())
def test_any_definition_survives_a_round_trip(
    description: str, title: str | None, literals: list[object], strict: bool
) -> None:
    """DEF-4: equal, and of one digest."""
    schema = {"type": "object", "properties": {description: {"enum": literals}}}
    definition = Definition(
        "a", description=description, input_schema=schema, title=title, strict=strict
    )
    back = Definition.from_json(definition.to_json())

    assert back == definition
    assert back.to_json() == definition.to_json()
