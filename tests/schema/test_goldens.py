"""Fourteen argument shapes, as Python types, give the schemas of another implementation."""

import datetime as dt
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

import msgspec
import pytest
from typing_extensions import TypedDict

from ferrule.schema._generate import Form, NotStrictError, generate
from ferrule.schema._types import shape_of

CORPUS = Path(__file__).parents[1] / "corpus" / "schema"
FIXTURES: list[dict[str, Any]] = json.loads((CORPUS / "manifest.json").read_text())["fixtures"]
SCALARS: dict[str, type] = {"string": str, "integer": int, "number": float, "boolean": bool}

Builder = Callable[[str, list[dict[str, Any]]], Any]


def type_of(field: Mapping[str, Any], build: Builder) -> Any:  # noqa: ANN401  # a type
    """Return the Python type of one field of the manifest."""
    match field["type"]:
        case "any":
            kind: Any = Any
        case "object":
            kind = build("Nested", field["fields"])
        case "map":
            kind = dict[str, type_of(field["values"], build)]  # type: ignore[misc]  # at run time
        case "array":
            kind = list[type_of(field["items"], build)]  # type: ignore[misc]  # made at run time
        case _ if "enum" in field:
            kind = Literal[tuple(field["enum"])]
        case "string" if field.get("format") == "date-time":
            kind = dt.datetime
        case name:
            kind = SCALARS[name]
    return kind


def typed(field: Mapping[str, Any], build: Builder, *, strict: bool) -> Any:  # noqa: ANN401
    """Return the type with text and null; only the strict goldens say that null may come."""
    kind = type_of(field, build)
    if strict and field.get("nullable"):
        kind = kind | None
    if "description" in field:
        kind = Annotated[kind, msgspec.Meta(description=field["description"])]
    return kind


def typed_dict(*, strict: bool) -> Builder:
    """Return what builds a `TypedDict`."""

    def build(name: str, fields: list[dict[str, Any]]) -> Any:  # noqa: ANN401  # a type
        members: dict[str, Any] = {}
        for field in fields:
            kind = typed(field, build, strict=strict)
            members[field["name"]] = NotRequired[kind] if field.get("optional") else kind
        make: Any = TypedDict
        return make(name, members)

    return build


def struct(*, strict: bool) -> Builder:
    """Return what builds a struct."""

    def build(name: str, fields: list[dict[str, Any]]) -> Any:  # noqa: ANN401  # a type
        members: list[Any] = []
        for field in fields:
            kind = typed(field, build, strict=strict)
            optional = (kind | msgspec.UnsetType, msgspec.UNSET) if field.get("optional") else ()
            members.append((field["name"], *(optional or (kind,))))
        return msgspec.defstruct(name, members, kw_only=True)

    return build


class Custom:
    """A class that brings its schema."""

    @classmethod
    def json_schema(cls) -> dict[str, object]:
        """Return the schema of the fixture `custom`."""
        return {"type": "object", "properties": {"x": {"type": "string"}}}


def built(fixture: Mapping[str, Any], builder: Callable[..., Builder]) -> Any:  # noqa: ANN401
    """Return the type of one fixture."""
    if "supplied" in fixture:
        return Custom
    return builder(strict=fixture["strict"])("Arguments", fixture["fields"])


@pytest.mark.parametrize("builder", [typed_dict, struct])
@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: str(fixture["name"]))
def test_a_fixture_gives_its_golden(
    fixture: Mapping[str, Any], builder: Callable[..., Builder]
) -> None:
    """SCH-5, agenttool 1-10, 17, 20-22: equal to the golden, and in the same order of members."""
    shape = shape_of(built(fixture, builder), where="the fixture")
    form: Form = "strict" if fixture["strict"] else "open"
    schema = generate(shape, form=form, widen_optional=False)
    golden = (CORPUS / f"{fixture['name']}.json").read_text()
    assert json.dumps(schema, indent=2) == golden.rstrip("\n")


def test_the_manifest_and_the_goldens_name_the_same_fixtures() -> None:
    """agenttool 18: no golden without a fixture, no fixture twice."""
    names = [fixture["name"] for fixture in FIXTURES]
    goldens = {path.stem for path in CORPUS.glob("*.json")} - {"manifest"}
    assert len(names) == len(set(names)) == 14
    assert set(names) == goldens


def test_a_map_has_no_strict_form() -> None:
    """agenttool 19, 23: the fixture `everything` is refused in the strict form, at its map."""
    everything = next(fixture for fixture in FIXTURES if fixture["name"] == "everything")
    shape = shape_of(built(everything, typed_dict), where="the fixture")
    with pytest.raises(NotStrictError) as caught:
        generate(shape, form="strict")
    assert caught.value.path == "labels"
