"""Any value a tool may return, as plain JSON values: one documented form for each type."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Protocol, cast, runtime_checkable

import msgspec
import orjson
from typing_extensions import TypeIs

from ferrule._contain import Broke, contain
from ferrule._secret import Secret
from ferrule.errors import InvalidResult

_DEPTH = 500

_LARGE = 16 * 1024**2
"""Bytes of JSON from which on the thirteenfold memory that orjson reads with is too much."""


@runtime_checkable
class _PydanticModel(Protocol):
    def model_dump(self, *, mode: str, by_alias: bool) -> dict[str, object]: ...


def plain(value: object) -> object:
    """
    Return `value` as detached plain JSON values.

    Dataclasses, attrs classes, structs, typed dictionaries and pydantic models become objects;
    mappings objects sorted by key, sets sorted arrays, enums their values, `bytes` base64,
    dates, durations, `Decimal`, `UUID` and paths strings. Integers keep every digit.

    Raises:
        InvalidResult: something has no JSON form (NaN and infinity have none); says where.
    """
    if value is None or isinstance(value, bool):
        return value
    done = contain(_convert, value)
    if isinstance(done, Broke):
        if isinstance(done.error, RecursionError):  # Looking for the place would take very long.
            raise InvalidResult("the value at $ is nested too deep, or in itself, for a JSON form")
        found = contain(_without_json, value)
        place, secret = ("$", False) if isinstance(found, Broke) else found
        if secret:
            raise InvalidResult(
                f"the value at {place} is a Secret, which is never written; if it shall be known "
                "there, give what its `.reveal()` returns"
            )
        raise InvalidResult(f"the value at {place} has no JSON form") from done.error
    return done


def _convert(value: object) -> object:
    whole = _complete(value)
    built = msgspec.to_builtins(whole, str_keys=True, order="deterministic", enc_hook=_known)
    # The standard library's writer is the one that refuses NaN and keeps every integer's digits.
    text = json.dumps(built, allow_nan=False, ensure_ascii=False).encode()
    if len(text) > _LARGE:
        return json.loads(text)
    try:
        back: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)
    # orjson reads an integer beyond 64 bits as a float: only then is the exact reader needed.
    return json.loads(text) if _may_be_wide(text) else back


def _complete(value: object) -> object:
    """
    Return `value` with its dataclasses as dictionaries of all their fields.

    msgspec writes what is in `__dict__`, and leaves out of it what it filled in from a default.
    """
    if type(value) is dict:
        return _completed_mapping(cast("dict[object, object]", value))
    if type(value) is list or type(value) is tuple:
        return [_complete(part) for part in cast("list[object]", value)]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _complete(getattr(value, field.name)) for field in fields(value)}
    return value


def _completed_mapping(value: dict[object, object]) -> dict[object, object]:
    done = {name: _complete(part) for name, part in value.items()}
    if any(type(name) is not str for name in done):
        names = [name if type(name) is str else msgspec.json.encode(name) for name in done]
        texts = {n.decode().strip('"') if isinstance(n, bytes) else n for n in names}
        if len(texts) < len(done):
            raise ValueError("two keys read the same in JSON")
    return done


def _may_be_wide(text: bytes) -> bool:
    return b"1" * 19 in text.translate(_DIGITS_AS_ONE)


_DIGITS_AS_ONE = bytes(ord("1") if chr(code) in "0123456789" else ord(" ") for code in range(256))


def _known(value: object) -> object:
    """Return what msgspec does not know as something it knows."""
    if isinstance(value, PurePath):
        return str(value)
    if is_mapping(value):
        return dict(value)
    # A string or a number of another library is written as what it is.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, _PydanticModel):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(type(value).__name__)


def _without_json(value: object) -> tuple[str, bool]:
    return _first_without_json(_complete(value), "$", 0)


def _first_without_json(value: object, path: str, depth: int) -> tuple[str, bool]:
    """Return the path of the innermost value that cannot be written; whether it is a secret."""
    if depth < _DEPTH:
        for step, item in _members(value):
            if isinstance(contain(_convert, item), Broke):
                return _first_without_json(item, path + step, depth + 1)
    return path, isinstance(value, Secret)


def _members(value: object) -> list[tuple[str, object]]:
    if is_mapping(value):
        return [(f".{key}"[:80], item) for key, item in value.items()]
    if is_sequence(value):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    return []


def detached(value: object) -> object:
    """Return plain JSON values as a copy that shares nothing with them."""
    copied: object = msgspec.to_builtins(value)  # Integers of any size stay what they are.
    return copied


def is_object(value: object) -> TypeIs[dict[str, object]]:
    """Say whether a value that was read from JSON is an object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeIs[list[object]]:
    """Say whether a value that was read from JSON is an array."""
    return isinstance(value, list)


def is_mapping(value: object) -> TypeIs[Mapping[object, object]]:
    """Say whether a value is a mapping, of whatever."""
    return isinstance(value, Mapping)


def is_sequence(value: object) -> TypeIs[list[object] | tuple[object, ...]]:
    """Say whether a value is a list or a tuple, of whatever."""
    return isinstance(value, list | tuple)


def json_text(value: object) -> str:
    """Return a plain JSON value as compact text; integers of any size keep their digits."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
