"""Arguments made from a schema are of it, small, and the same each time."""

import enum
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypedDict
from uuid import UUID

import pytest
from annotated_types import Ge, Gt, Len, Lt, MultipleOf
from msgspec import Meta

from ferrule.schema import compile as compile_schema
from ferrule.schema import schema_for
from ferrule.testing._samples import NoSample, made_from


class Colour(enum.Enum):
    """A colour."""

    RED = "red"


@dataclass
class Tree:
    """A tree."""

    name: str
    children: list["Tree"]


class Point(NamedTuple):
    """A point."""

    x: int
    y: float = 0.0


class Options(TypedDict, total=False):
    """Options."""

    deep: bool


def everything(  # noqa: PLR0913, PLR0917  # every type there is
    flag: bool,
    count: Annotated[int, Ge(3), MultipleOf(5)],
    share: Annotated[float, Gt(0), Lt(1)],
    name: Annotated[str, Meta(min_length=7, max_length=9)],
    code: Annotated[str, Meta(pattern="^[0-9]{5}$")],
    mode: Literal["a", "b"],
    colour: Colour,
    when: datetime,
    day: date,
    hour: time,
    long: timedelta,
    price: Decimal,
    key: UUID,
    file: Path,
    raw: bytes,
    names: Annotated[set[str], Len(3)],
    numbers: Annotated[frozenset[int], Len(2)],
    pair: tuple[int, str],
    point: Point,
    tree: Tree,
    options: Options,
    rest: dict[str, int],
    either: int | str | None,
    nothing: None,
    many: Annotated[list[int], Len(2)],
    flags: Annotated[dict[Colour, int], Len(1)],
    tail: float = 0.5,
) -> None:
    """Take everything."""


@pytest.mark.parametrize("form", ["open", "closed"])
def test_every_declared_type_has_samples(form: Literal["open", "closed"]) -> None:
    """FN-2, SCH-4: with what is required, and with all there is, the same each time."""
    schema = schema_for(everything, form=form)
    small, large = made_from(schema)

    assert isinstance(small, dict)
    assert isinstance(large, dict)
    assert compile_schema(schema).problems(small) == ()
    assert compile_schema(schema).problems(large) == ()
    assert "tail" in large.keys() - small.keys()
    assert [small, large] == list(made_from(schema))


OBJECTS: list[dict[str, object]] = [
    {"properties": {"a": {"const": None}}, "required": ["a"]},
    {"properties": {"a": {"examples": [7]}}, "required": ["a"]},
    {"properties": {"a": {"type": "integer", "maximum": -5}}, "required": ["a"]},
    {"properties": {"a": {"type": "number", "maximum": -5}}, "required": ["a"]},
    {"properties": {"a": {"type": "number", "minimum": 5}}, "required": ["a"]},
    {"properties": {"a": {"type": "integer", "multipleOf": 0.5}}, "required": ["a"]},
    {"properties": {"a": {"minItems": 2}}, "required": ["a"]},
    {"properties": {"a": {"type": ["null", "boolean"]}}, "required": ["a"]},
    {"properties": {"a": True}, "required": ["a", "b"]},
    {"minProperties": 3, "propertyNames": {"enum": ["x", "y", "z"]}},
    {"minProperties": 2, "additionalProperties": {"type": "integer"}},
    {"allOf": [{"properties": {"a": {"type": "null"}}, "required": ["a"]}], "required": ["b"]},
    {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"properties": {"c": True}, "required": ["c"]}}},
    {"properties": {"a": {"$ref": "#/oneOf/0"}}, "oneOf": [{"type": "object"}]},
    {"properties": {"a": {"oneOf": [{"type": "null"}, False, {"type": "string"}]}}},
    {"properties": {"a": {"type": "array", "items": False}}, "required": ["a"]},
    {"properties": {"a": {"type": "array", "maxItems": 0}}, "required": ["a"]},
    {"properties": {"a": {"type": "array", "uniqueItems": True, "minItems": 2,
                          "items": {"type": "boolean"}}}, "required": ["a"]},
    {"properties": {"a": {"pattern": "(?<!", "default": "x"}}},
]  # fmt: skip


@pytest.mark.parametrize("schema", OBJECTS)
def test_schemas_from_elsewhere_have_samples(schema: dict[str, object]) -> None:
    """SCH-1: bounds, references, alternatives and what has no type."""
    if schema.get("properties") == {"a": {"pattern": "(?<!", "default": "x"}}:
        (small, _) = made_from(schema)
        assert small == {}
        return
    whole = {"type": "object", **schema}
    for made in made_from(whole):
        assert isinstance(made, dict)
        assert compile_schema(whole).problems(made) == ()


def test_tuples_of_an_old_draft_have_samples() -> None:
    """SCH-1: `items` as a list, and bounds that exclude by a bool."""
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": [{"type": "integer"}], "minItems": 2,
                  "additionalItems": {"type": "string"}},
            "b": {"type": "integer", "minimum": 3, "exclusiveMinimum": True},
        },
        "required": ["a", "b"],
    }  # fmt: skip

    assert next(made_from(schema)) == {"a": [0, "text1"], "b": 4}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"required": ["a"], "properties": {"a": False}}, "a: its schema accepts nothing"),
        ({"required": ["a"], "additionalProperties": False}, "a: its schema accepts nothing"),
        ({"required": ["a"], "properties": {"a": {"type": "date"}}}, "a: its type is none of"),
        ({"required": ["a"], "properties": {"a": {"$ref": "#b"}}}, "a: its reference is no poi"),
        ({"required": ["a"], "properties": {"a": {"$ref": "#/b"}}}, "a: its reference leads now"),
        ({"required": ["a"], "properties": {"a": {"anyOf": []}}}, "a: it has no branches"),
        ({"required": ["a"], "properties": {"a": {"$ref": "#"}}}, "goes on without end"),
        (
            {"required": ["a"], "properties": {"a": {"type": "array", "minItems": 1,
             "items": {"pattern": "(?<!"}}}},
            "a[0]: no text of its pattern",
        ),
    ],
)  # fmt: skip
def test_where_no_sample_can_be_made_it_is_said(schema: dict[str, object], reason: str) -> None:
    """STYLE 24: where, and why."""
    made = next(made_from({"type": "object", **schema}))

    assert isinstance(made, NoSample)
    assert reason in str(made)


def test_what_may_be_left_out_and_cannot_be_made_is_left_out() -> None:
    """SCH-4: only what is required needs a sample."""
    assert list(made_from({"properties": {"a": False, "b": {"const": 1}}})) == [{}, {"b": 1}]
    assert list(made_from({"type": "array"})) == []
