"""
What only pydantic can: its models, and unions that it alone can tell apart.

A type goes to pydantic as a whole, and is read from JSON text in pydantic's strict mode, which is
JSON's own: `"5"` is no number and `5` is no date, but a date is text. What a type declares is kept;
three things are set everywhere in it, as for every other type here: an object takes no unknown
members, unless its class asks for them, `bytes` are base64, and an enum member is read by its
value also in a `Literal`.

Where text says nothing of a type that the value itself does not say, the value is read and no text
is written first: that takes two thirds of the time.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaValidator, core_schema

from ferrule._hidden import Within
from ferrule._near import path_of
from ferrule._plain import is_array, is_object, json_text
from ferrule.errors import DeclarationError, InvalidCall, Problem
from ferrule.schema._refusal import repeats

MOST = 20
"""Problems that one refusal names."""

CONFIGURED = {"model", "dataclass", "typed-dict"}
CLOSED = {"model-fields", "dataclass-args", "typed-dict"}
"""Parts of pydantic's own schema that have a configuration, and that list an object's members."""

SAME = {
    *("any", "bool", "float", "int", "literal", "none", "str"),
    *("default", "definition-ref", "definitions", "dict", "list", "nullable"),
    *("model", "model-field", "model-fields"),
}
"""Parts that make the same of a value as of its text, both strictly; a literal, of text."""


def reader(hint: object, name: str, roots: frozenset[str]) -> Callable[[object], object]:
    """
    Return what makes values of `hint` from what was read from JSON; `name` begins its paths.

    Args:
        hint: The type.
        name: What the paths of problems begin with.
        roots: What is known of the roots that paths in it stay below.

    Raises:
        TypeError: pydantic knows no such type.
        DeclarationError: a path in it has a root that is not known.
    """
    rewriting = _Rewriting()
    core: Any = rewriting.of(_adapter(hint).core_schema)
    if hidden := rewriting.roots - roots:
        raise DeclarationError(
            f"`{getattr(hint, '__name__', hint)}`: a path in it is within the root "
            f'"{min(hidden)}", which only pydantic sees; declare it as a field of a model'
        )
    # A model inside would be read by the validator that it was built with, unless told not to.
    validator = SchemaValidator(core, _use_prebuilt=not rewriting.reads_otherwise)
    needs_text = rewriting.needs_text
    steps = (name,) if name else ()

    def read(value: object) -> object:
        if not needs_text:
            with suppress(ValidationError):  # Then the text is refused as well, and words it.
                return validator.validate_python(value, strict=True)
        try:
            return validator.validate_json(json_text(value), strict=True)
        except ValidationError as error:
            problems = list(_problems(error, value, steps))
            raise InvalidCall("invalid_arguments", problems) from None

    return read


def schema(hint: object) -> dict[str, object]:
    """Return the JSON Schema of a type that only pydantic knows, without its generated title."""
    written = _adapter(hint).json_schema()
    written.pop("title", None)
    return written


def _adapter(hint: Any) -> TypeAdapter[Any]:  # noqa: ANN401  # a hint
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
    except PydanticUserError as error:
        raise TypeError(error.message.partition("\n")[0]) from error
    return adapter


class _Rewriting:
    """Copies pydantic's schema of a type, and sets what holds everywhere."""

    def __init__(self) -> None:
        self.reads_otherwise = False
        self.roots: set[str] = set()
        self.needs_text = False

    def of(self, part: object) -> object:
        """Return a copy of one part."""
        if is_array(part):
            return [self.of(item) for item in part]
        if isinstance(part, Within):
            self.roots.add(part.root)
        if not is_object(part):
            return part
        copied = {name: self.of(item) for name, item in part.items()}
        kind = copied.get("type")
        if not isinstance(kind, str):  # No part: one of its tables, perhaps with a member `type`.
            return copied
        self.needs_text |= kind not in SAME or bool(copied.get("custom_init"))
        if kind == "literal":
            members = _listed(copied)
            self.needs_text |= any(type(value) is not str for value in members)
            if any(isinstance(value, Enum) for value in members):
                self.reads_otherwise = True
                return _by_value(members)
        config = copied.get("config")
        configured = config if is_object(config) else {}
        self.reads_otherwise |= kind == "bytes"
        if kind in CONFIGURED:
            copied["config"] = {**configured, "val_json_bytes": "base64"}
        if kind in CLOSED:
            copied.setdefault("extra_behavior", configured.get("extra_fields_behavior", "forbid"))
        return copied


def _listed(literal: dict[str, object]) -> list[object]:
    """Return the members of pydantic's schema of a `Literal`."""
    expected = literal.get("expected")  # Not in a default that only looks like one.
    return expected if is_array(expected) else []


def _by_value(members: list[object]) -> object:
    """Return the schema of a `Literal` that is read by the values of the enum members in it."""
    values: list[object] = [
        member.value if isinstance(member, Enum) else member for member in members
    ]
    table: dict[object, object] = {
        (type(value), value): member for value, member in zip(values, members, strict=True)
    }
    return core_schema.no_info_after_validator_function(
        lambda value: table[type(value), value], core_schema.literal_schema(values)
    )


def _problems(error: ValidationError, value: object, steps: tuple[str, ...]) -> Iterator[Problem]:
    """Yield what pydantic found, in words that repeat no part of what was refused."""
    for detail in error.errors(include_url=False, include_input=False)[:MOST]:
        inner, refused = _followed(detail["loc"], value)
        message = detail["msg"].removeprefix("Value error, ")
        if repeats(message, refused):
            message = "expected a valid value"
        yield Problem(path=path_of((*steps, *inner)), rule=detail["type"], expected=message)


def _followed(loc: tuple[int | str, ...], value: object) -> tuple[list[int | str], object]:
    """Return the steps of a place that are steps of the value, and what stands there."""
    steps: list[int | str] = []
    for index, step in enumerate(loc):
        if _has(value, step):
            value = _part(value, step)
        elif not (is_object(value) and index == len(loc) - 1):  # the name of a union's member
            continue  # and not that of a missing member
        steps.append(step)
    return steps, value


def _has(value: object, step: int | str) -> bool:
    if isinstance(step, int):
        return is_array(value) and step < len(value)
    return is_object(value) and step in value


def _part(value: Any, step: int | str) -> object:  # noqa: ANN401  # an array or an object
    part: object = value[step]
    return part
