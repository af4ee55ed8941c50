"""What keywords of JSON Schema ask of one value, and the words for it."""

import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ferrule._near import shown
from ferrule._plain import is_array, is_object

EXACT = 1 << 53
"""Beyond it a float stands for several whole numbers, so an integer's place refuses it."""

_LISTED = 10

_NAMES: Mapping[type, str] = {
    bool: "boolean",
    dict: "object",
    float: "number",
    int: "integer",
    list: "array",
    str: "string",
    tuple: "array",
    type(None): "null",
}


def type_of(value: object) -> str:
    """Return the JSON type of a value as a word."""
    return _NAMES.get(type(value), type(value).__name__)


def is_number(value: object) -> bool:
    """Say whether a JSON value is a number; true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_integer(value: object) -> bool:
    """Say whether a JSON value is a whole number, as in `2` and `2.0`, that is exact."""
    if isinstance(value, float):
        return value.is_integer() and abs(value) <= EXACT
    return isinstance(value, int) and not isinstance(value, bool)


_TYPES: Mapping[str, Callable[[object], bool]] = {
    "array": lambda value: isinstance(value, (list, tuple)),
    "boolean": lambda value: isinstance(value, bool),
    "integer": is_integer,
    "null": lambda value: value is None,
    "number": is_number,
    "object": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
}


def types_in(argument: object) -> list[str]:
    """Return the names that the argument of `type` lists; none if there is no `type`."""
    listed = argument if is_array(argument) else [argument]
    return [name for name in listed if isinstance(name, str)]


def has_type(value: object, argument: object) -> bool:
    """Say whether a value is of one of the types that the argument of `type` lists."""
    return any(name in _TYPES and _TYPES[name](value) for name in types_in(argument))


def given(value: object, argument: object = None) -> str:
    """Return the type of a refused value, in words that say why `type` refused it."""
    name = type_of(value)
    if isinstance(value, float) and "integer" in types_in(argument):
        return f"{name} with a fraction" if value % 1 else f"{name} beyond 2^53 in float form"
    return name


def same(one: object, other: object) -> bool:
    """Say whether two JSON values are equal: numbers by value, and true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if is_array(one) and is_array(other):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def key(value: object) -> object:
    """Return something hashable that two JSON values share exactly if they are equal."""
    if isinstance(value, bool):
        return "boolean", value
    if is_object(value):
        return "object", frozenset((name, key(member)) for name, member in value.items())
    if is_array(value):
        return "array", tuple(map(key, value))
    return value


def joined(words: Iterable[str]) -> str:
    """Return words as a list in a sentence, each once: `a, b or c`."""
    once = list(dict.fromkeys(words))
    if len(once) > _LISTED:
        once = [*once[:_LISTED], f"{len(once) - _LISTED} more"]
    *first, last = once or [""]
    return f"{', '.join(first)} or {last}" if first else last


def literal(value: object) -> str:
    """Return a value of the schema as JSON, shortened."""
    return shown(json.dumps(value, ensure_ascii=False))


def one_of(choices: Sequence[object]) -> str:
    """Return the values of an `enum`, the first of them if there are many."""
    said = ", ".join(map(literal, choices[:_LISTED]))
    return f"{said} and {len(choices) - _LISTED} more" if len(choices) > _LISTED else said


class Bound(msgspec.Struct, frozen=True):
    """A keyword that compares a measure of a value with a number."""

    applies: Callable[[object], bool]
    measure: Callable[[object], float]
    holds: Callable[[float, float], bool]
    words: str
    one: str = ""
    many: str = ""

    def phrase(self, limit: float) -> str:
        """Return what is expected, in words."""
        return f"expected {self.words} {literal(limit)}{self.one if limit == 1 else self.many}"


def _itself(value: object) -> float:
    return value if isinstance(value, (int, float)) else 0


def _size(value: object) -> float:
    return len(value) if isinstance(value, str) or is_array(value) or is_object(value) else 0


_NUMBER = (is_number, _itself)
_TEXT = (_TYPES["string"], _size)
_ARRAY = (_TYPES["array"], _size)
_OBJECT = (_TYPES["object"], _size)

BOUNDS: Mapping[str, Bound] = {
    "minimum": Bound(*_NUMBER, operator.ge, "at least"),
    "maximum": Bound(*_NUMBER, operator.le, "at most"),
    "exclusiveMinimum": Bound(*_NUMBER, operator.gt, "more than"),
    "exclusiveMaximum": Bound(*_NUMBER, operator.lt, "less than"),
    "minLength": Bound(*_TEXT, operator.ge, "at least", " character", " characters"),
    "maxLength": Bound(*_TEXT, operator.le, "at most", " character", " characters"),
    "minItems": Bound(*_ARRAY, operator.ge, "at least", " item", " items"),
    "maxItems": Bound(*_ARRAY, operator.le, "at most", " item", " items"),
    "minProperties": Bound(*_OBJECT, operator.ge, "at least", " property", " properties"),
    "maxProperties": Bound(*_OBJECT, operator.le, "at most", " property", " properties"),
}

_EXAMPLES = {
    "date": "2031-05-17",
    "date-time": "2031-05-17T09:30:00Z",
    "duration": "PT1H30M",
    "email": "name@example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "time": "09:30:00Z",
    "uri": "https://example.org/a",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}


def _format(argument: object) -> str:
    name = str(argument)
    example = f", as in {_EXAMPLES[name]}" if name in _EXAMPLES else ""
    return f"expected text in the format {shown(name)}{example}"


ALONE: Mapping[str, Callable[[object], str]] = {
    "contentEncoding": lambda argument: f"expected text encoded as {shown(str(argument))}",
    "contentMediaType": lambda argument: f"expected text of the type {shown(str(argument))}",
    "format": _format,
    "multipleOf": lambda argument: f"expected a multiple of {literal(argument)}",
    "pattern": lambda argument: f"expected text that matches {shown(str(argument), 100)}",
    "uniqueItems": lambda _argument: "expected items that are all different",
}
"""Keywords that need nothing but their argument: the engine checks them alone."""
