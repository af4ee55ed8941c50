"""What a function returns, as a schema (CONTRACT FN-6)."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

import msgspec

from ferrule._content import CONTENT, RawJSON, Result
from ferrule._plain import is_mapping, is_sequence
from ferrule._requests import InputRequest
from ferrule.errors import DeclarationError
from ferrule.schema._generate import generate
from ferrule.schema._shape import holds_secret
from ferrule.schema._types import shape_of


def returned_schema(hint: object, name: str) -> dict[str, object] | None:
    """
    Return the schema of a function's structured content, or `None` where it gives none.

    It is open, as what comes back may grow; and it asserts no format of dates and times, since
    Python's own may be without a zone, which RFC 3339 does not know.

    Raises:
        DeclarationError: what the function returns has no JSON form.
    """
    if hint is msgspec.UNSET or any(map(_is_no_structure, _alternatives(hint))):
        return None
    shape = shape_of(hint, where=f"what `{name}` returns")
    if holds_secret(shape):
        raise DeclarationError(
            f"what `{name}` returns: a Secret is never shown to a model; return something else"
        )
    return cast("dict[str, object]", _without_times(generate(shape, form="open")))


def is_unstructured(hint: object) -> bool:
    """Say whether what a function returns, unless it asks, is never structured content."""
    if hint is msgspec.UNSET:
        return False
    ends = [one for one in _alternatives(hint) if one is not InputRequest]
    return bool(ends) and all(map(_is_text_or_content, ends))


def _is_text_or_content(hint: object) -> bool:
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if bare in {None, type(None)}:
        return True
    return isinstance(bare, type) and issubclass(bare, (str, *CONTENT))


def _alternatives(hint: object) -> Iterator[object]:
    """Yield the members of a union; of a list of content, what it holds."""
    arguments = get_args(hint)
    if get_origin(hint) in {Union, UnionType}:
        for member in arguments:
            yield from _alternatives(member)
    elif get_origin(hint) in {list, tuple} and any(map(_is_content, arguments)):
        yield from arguments
    elif get_origin(hint) is list and arguments:
        yield hint
        yield from filter(_is_content, _alternatives(arguments[0]))
    else:
        yield hint


def _is_no_structure(hint: object) -> bool:
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if bare in {None, type(None), Any, object}:
        return True
    return isinstance(bare, type) and issubclass(
        bare, (str, Result, InputRequest, RawJSON, *CONTENT)
    )


def _is_content(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, CONTENT)


def _without_times(schema: object) -> object:
    if is_mapping(schema):
        timed = schema.get("type") == "string" and schema.get("format") in _TIMES
        return {
            name: _without_times(part)
            for name, part in schema.items()
            if not (timed and name in {"format", "pattern"})
        }
    return [_without_times(part) for part in schema] if is_sequence(schema) else schema


_TIMES = {"date-time", "time", "duration"}
