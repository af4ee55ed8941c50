"""What a schema says, for people: the parameters of a tool and what each may be, in a few words."""

import json
from collections.abc import Mapping
from typing import TypeAlias, cast

from ferrule.helpers import one_line

Schema: TypeAlias = Mapping[str, object]


def properties_of(schema: Schema) -> dict[str, Schema]:
    """Return the parameters by name, each with its schema; one that is no object says nothing."""
    properties = schema.get("properties")
    found = cast("dict[str, object]", properties) if isinstance(properties, dict) else {}
    return {name: object_of(one) for name, one in found.items()}


def required_of(schema: Schema) -> list[str]:
    """Return the names of the parameters that may not be left out."""
    return _strings(schema.get("required"))


def kind_of(schema: Schema) -> str:
    """Return in a few words what a parameter may be."""
    branches = schemas_in(schema.get("anyOf", schema.get("oneOf")))
    if branches:
        return " | ".join(map(kind_of, branches))
    if "enum" in schema:
        return one_line(" | ".join(map(json_line, list_of(schema["enum"]))), 200)
    if "const" in schema:
        return json_line(schema["const"])
    if "$ref" in schema:
        return one_line(str(schema["$ref"]).rpartition("/")[2], 40)
    kinds = schema.get("type", "any")
    named = one_line(" | ".join(_strings(kinds)) or str(kinds), 60)
    form = f" ({one_line(str(schema['format']), 40)})" if "format" in schema else ""
    items = schemas_in([schema.get("items")])
    return named + form + "".join(f" of {kind_of(one)}" for one in items)


def json_line(value: object) -> str:
    """Return a value as JSON in one line."""
    return one_line(json.dumps(value, ensure_ascii=False), 60)


def object_of(value: object) -> Schema:
    """Return it if it is an object, and else one without members."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def list_of(value: object) -> list[object]:
    """Return it if it is a list, and else an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def schemas_in(values: object) -> list[Schema]:
    """Return the objects of a list."""
    return [found for one in list_of(values) if (found := object_of(one)) or one == {}]


def _strings(value: object) -> list[str]:
    return [one for one in list_of(value) if isinstance(one, str)]
