"""
Arguments made from a schema: small, the same each time, and only a proposal.

What is made is put to the schema itself afterwards, so this need not understand every keyword: it
reads those that most schemas are made of and leaves the rest to luck. Where it knows that it can
make nothing, it says where and why.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard
from urllib.parse import unquote

import msgspec

from ferrule.errors import FerruleError

_DEEPEST = 16
"""Schemas inside each other; what goes on from there has no end."""

_WHOLE = 4
"""Levels down to which what may be left out is put in."""


class NoSample(FerruleError):
    """
    No sample can be made of a schema.

    Attributes:
        path: Where.
        reason: What stands in the way.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


class _At(msgspec.Struct, frozen=True):
    """Where a value is made, and which of several different ones it is to be."""

    path: str = ""
    depth: int = 0
    nth: int = 0

    def below(self, name: str, nth: int = 0) -> "_At":
        path = f"{self.path}.{name}" if self.path else name
        return _At(path, self.depth + 1, nth)

    def item(self, index: int, nth: int) -> "_At":
        return _At(f"{self.path}[{index}]", self.depth + 1, nth)

    def deeper(self) -> "_At":
        return _At(self.path, self.depth + 1, self.nth)


def is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    """Say whether a JSON value is an object."""
    return isinstance(value, Mapping)


def is_array(value: object) -> TypeGuard[Sequence[object]]:
    """Say whether a JSON value is an array."""
    return isinstance(value, list | tuple)


def made_from(schema: Mapping[str, object]) -> Iterator[dict[str, object] | NoSample]:
    """Yield arguments with what is required, then with all there is, or why there are none."""
    for whole in (False, True):
        try:
            made = _Sampler(schema, whole=whole).value(schema, _At())
        except NoSample as error:
            yield error
            continue
        if is_object(made):
            yield dict(made)


class _Sampler:
    def __init__(self, root: Mapping[str, object], *, whole: bool) -> None:
        self._root = root
        self._whole = whole

    def value(self, schema: object, at: _At) -> object:
        """Return a value that a schema most likely accepts."""
        if schema is True:
            return f"text{at.nth or ''}"
        if not is_object(schema):
            raise NoSample(at.path, "its schema accepts nothing")
        if at.depth > _DEEPEST:
            raise NoSample(at.path, "its schema goes on without end")
        listed = self._listed(schema, at)
        if listed:
            return listed[at.nth % len(listed)]
        for word in ("$ref", "allOf"):
            if word in schema:
                return self.value(self._joined(schema, word, at), at.deeper())
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self._first(schema, word, at)
        return self._made(_kind(schema), schema, at)

    def _made(self, kind: str, schema: Mapping[str, object], at: _At) -> object:
        match kind:
            case "object":
                return self._object(schema, at)
            case "array":
                return self._array(schema, at)
            case "string":
                return self._string(schema, at)
            case "integer":
                return int(_number(schema, at.nth, step=1))
            case "number":
                return _number(schema, at.nth, step=0.5)
            case "boolean":
                return at.nth % 2 == 0
            case "null":
                return None
            case _:
                raise NoSample(at.path, "its type is none of JSON's")

    def _listed(self, schema: Mapping[str, object], at: _At) -> Sequence[object]:
        """Return the values that a schema names itself."""
        if "const" in schema:
            return (schema["const"],)
        if is_array(schema.get("enum")):
            return _array(schema["enum"])
        if "default" in schema and not at.nth:
            return (schema["default"],)
        return () if at.nth else _array(schema.get("examples"))

    def _joined(self, schema: Mapping[str, object], word: str, at: _At) -> Mapping[str, object]:
        """Return a schema as one without `$ref` or `allOf`."""
        beside = {name: part for name, part in schema.items() if name != word}
        parts = [self._found(schema[word], at)] if word == "$ref" else _array(schema[word])
        for part in parts:
            beside = _merged(beside, part if is_object(part) else {})
        return beside

    def _found(self, reference: object, at: _At) -> object:
        found: object = self._root
        if not isinstance(reference, str) or not re.match(r"#(/|$)", reference):
            raise NoSample(at.path, "its reference is no pointer into the schema")
        for step in reference.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if is_array(found) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif is_object(found) and name in found:
                found = found[name]
            else:
                raise NoSample(at.path, "its reference leads nowhere")
        return found

    def _first(self, schema: Mapping[str, object], word: str, at: _At) -> object:
        """Return a value of the first branch that has one, of null last."""
        beside = {name: part for name, part in schema.items() if name != word}
        branches = [part for part in _array(schema[word]) if is_object(part)]
        failed = NoSample(at.path, "it has no branches")
        for branch in sorted(branches, key=lambda part: part.get("type") == "null"):
            try:
                return self.value(_merged(beside, branch), at.deeper())
            except NoSample as error:
                failed = error
        raise failed

    def _object(self, schema: Mapping[str, object], at: _At) -> dict[str, object]:
        known = _mapping(schema.get("properties"))
        required = [str(name) for name in _array(schema.get("required"))]
        others = schema.get("additionalProperties", True)
        made: dict[str, object] = {}
        for name, part in known.items():
            if name in required:
                made[name] = self.value(part, at.below(name))
            elif self._whole and at.depth < _WHOLE:
                made |= self._optional(name, part, at)
        for name in required:
            if name not in made:
                made[name] = self.value(others, at.below(name))
        return made | self._more(schema, at, len(made))

    def _optional(self, name: str, part: object, at: _At) -> dict[str, object]:
        try:
            return {name: self.value(part, at.below(name))}
        except NoSample:
            return {}

    def _more(self, schema: Mapping[str, object], at: _At, count: int) -> dict[str, object]:
        """Return further members, as many as are missing, with names that are allowed."""
        names = schema.get("propertyNames", True)
        others = schema.get("additionalProperties", True)
        return {
            str(self.value(names, _At(at.path, at.depth + 1, nth))): self.value(
                others, at.below("*", nth)
            )
            for nth in range(_whole(schema.get("minProperties"), 0) - count)
        }

    def _array(self, schema: Mapping[str, object], at: _At) -> list[object]:
        items = schema.get("items", True)
        first = items if is_array(items) else _array(schema.get("prefixItems"))
        rest = schema.get("additionalItems", True) if is_array(items) else items
        least = _whole(schema.get("minItems"), 0)
        most = _whole(schema.get("maxItems"), least + 1)
        wanted = max(least, min(len(first), most))
        if self._whole and not wanted and most and rest is not False and at.depth < _WHOLE:
            wanted = 1
        made: list[object] = []
        for index in range(wanted):
            part = first[index] if index < len(first) else rest
            made.append(self.value(part, at.item(index, index if index >= len(first) else 0)))
        return made

    def _string(self, schema: Mapping[str, object], at: _At) -> str:
        least = _whole(schema.get("minLength"), 0)
        most = _whole(schema.get("maxLength"), max(least, 1000))
        pattern = schema.get("pattern")
        tries = _texts(str(schema.get("format")), str(schema.get("contentEncoding")), at.nth)
        if not isinstance(pattern, str):
            text = next(tries)
            return text if text in _FORMATS.values() else text.ljust(least, "x")[:most]
        fitting = (text for text in tries if least <= len(text) <= most)
        found = [text for text in fitting if _matches(pattern, text)]
        if not found:
            raise NoSample(at.path, "no text of its pattern was found")
        return found[at.nth % len(found)]


# ---- reading a schema --------------------------------------------------------------------------


def _kind(schema: Mapping[str, object]) -> str:
    """Return the type to make: of several the first that is not null; without one, a guess."""
    told = schema.get("type")
    kinds = [str(kind) for kind in (told if is_array(told) else [told]) if kind is not None]
    if kinds:
        return next((kind for kind in kinds if kind != "null"), "null")
    return next((kind for word, kind in _TELLING.items() if word in schema), "string")


_TELLING = {
    "properties": "object",
    "required": "object",
    "additionalProperties": "object",
    "items": "array",
    "prefixItems": "array",
    "minItems": "array",
    "minimum": "number",
    "maximum": "number",
    "multipleOf": "number",
}
"""Keywords that say of which type a schema without a type speaks."""


def _merged(one: Mapping[str, object], other: Mapping[str, object]) -> dict[str, object]:
    merged = {**one, **other}
    for word in ("properties", "$defs"):
        if is_object(one.get(word)) and is_object(other.get(word)):
            merged[word] = {**_mapping(one[word]), **_mapping(other[word])}
    if "required" in one and "required" in other:
        merged["required"] = [*_array(one["required"]), *_array(other["required"])]
    return merged


def _mapping(value: object) -> Mapping[str, object]:
    return value if is_object(value) else {}


def _array(value: object) -> Sequence[object]:
    return value if is_array(value) else ()


def _whole(value: object, otherwise: int) -> int:
    return int(value) if isinstance(value, int | float) else otherwise


# ---- texts and numbers -------------------------------------------------------------------------

_FORMATS = {
    "date-time": "2024-01-31T12:00:00Z",
    "date": "2024-01-31",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "someone@example.org",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "json-pointer": "/a",
    "regex": "a",
    "uri": "https://example.org/",
    "uri-reference": "/a",
    "uuid": "00000000-0000-4000-8000-000000000000",
}

_TRIED = (
    *("a1", "A1", "A-1", "a-1", "a_b", "a.b", "a/b", "/a", "a b", "Aa", "abc-123", "ABC-123"),
    *("1.5", "1,5", "+1", "#000000", "v1.0.0", "1.0.0", "en-US", "en", "EUR", "*"),
)


def _texts(format: str, encoding: str, nth: int) -> Iterator[str]:
    """Yield texts, the likeliest first."""
    if format in _FORMATS and not nth:
        yield _FORMATS[format]
    if encoding == "base64":
        yield "AAAA" * (nth + 1)
    yield f"text{nth or ''}"
    yield from _FORMATS.values()
    yield from _TRIED
    for length in range(41):
        yield from (letter * length for letter in "a0A")


def _matches(pattern: str, text: str) -> bool:
    """Say whether a text has the pattern; it has none that `re` cannot read."""
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return False


def _number(schema: Mapping[str, object], nth: int, *, step: float) -> float:
    """Return a number within bounds that is a multiple of what it must be."""
    low, high = _bound(schema, "minimum", step, 1), _bound(schema, "maximum", step, -1)
    unit = schema.get("multipleOf")
    whole = float(unit) if isinstance(unit, int | float) else step
    if step == 1 and whole != int(whole):
        whole = 1
    if isinstance(unit, int | float) or step == 1:
        start = 0.0 if low is None else math.ceil(low / whole) * whole
        if low is None and high is not None and high < 0:
            start = math.floor(high / whole) * whole
        return start + nth * whole
    if low is not None and high is not None:
        return (low + high) / 2
    start = low if low is not None else min(high if high is not None else step, step)
    return start + nth * step


def _bound(schema: Mapping[str, object], word: str, step: float, way: int) -> float | None:
    """Return the least or the greatest number, an excluded one moved by a step."""
    limit = schema.get(word)
    beyond = schema.get(f"exclusiveM{word[1:]}")
    if beyond is True and isinstance(limit, int | float):
        return limit + way * step
    if isinstance(beyond, int | float) and not isinstance(beyond, bool):
        return beyond + way * step
    return float(limit) if isinstance(limit, int | float) else None
