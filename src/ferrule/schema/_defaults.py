"""The default of a parameter or field, as JSON has it."""

import datetime as dt
import math
import uuid
from collections.abc import Callable, Collection, Iterable
from pathlib import PurePath

import msgspec
from typing_extensions import TypeIs

from ferrule._plain import is_object
from ferrule.schema._shape import Anything, Array, Choice, Map, Scalar, Shape, Union

TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}
"""What a plain value is in JSON."""


def json_default(shape: Shape, value: object) -> object:
    """
    Return a default as JSON has it, or `UNSET` where it has no such form.

    None is not written: that a parameter may be null says so already.
    """
    if value is None or value is msgspec.UNSET:
        return msgspec.UNSET
    match shape:
        case Scalar():
            return _scalar_default(shape, value)
        case Choice(values=values, members=members):
            pairs = zip(values, members, strict=True)
            same = (given for given, member in pairs if _is_same(value, given, member))
            return next(same, msgspec.UNSET)
        case Array(items=items) if _is_several(value):
            parts = list(value)
            shapes = shape.prefix or [items or Anything(hint=None)] * len(parts)
            return _all_defaults(zip(shapes, parts, strict=False), list)
        case Map(values=inner) if is_object(value) and all(type(name) is str for name in value):
            names = list(value)
            return _all_defaults(
                ((inner, part) for part in value.values()),
                lambda forms: dict(zip(names, forms, strict=True)),
            )
        case Union(members=members):
            forms = (json_default(member, value) for member in members)
            return next((form for form in forms if form is not msgspec.UNSET), msgspec.UNSET)
        case Anything() if type(value) in TYPES:
            return value
        case _:
            pass
    return msgspec.UNSET


def _is_same(value: object, given: object, member: object) -> bool:
    return value is member or (value == given and type(value) is type(given))


def _is_several(value: object) -> TypeIs[Collection[object]]:
    return isinstance(value, list | tuple | set | frozenset)


def _all_defaults(
    parts: Iterable[tuple[Shape, object]], gather: Callable[[list[object]], object]
) -> object:
    forms = [part if part is None else json_default(shape, part) for shape, part in parts]
    return msgspec.UNSET if msgspec.UNSET in forms else gather(forms)


def _scalar_default(shape: Scalar, value: object) -> object:
    kind = type(value)
    if shape.type == "number":
        number = isinstance(value, int | float) and kind is not bool and math.isfinite(value)
        return value if number else msgspec.UNSET
    if shape.measured:
        if isinstance(value, PurePath) and shape.type == "string":
            return str(value)
        return value if TYPES.get(kind) == shape.type else msgspec.UNSET
    # A time without a zone and a duration with a fraction are values, but not in these formats.
    return msgspec.to_builtins(value) if kind in (dt.date, uuid.UUID, bytes) else msgspec.UNSET
