"""Calls that no tool may let in, each wrong in one way."""

import json
from collections.abc import Iterator, Mapping

import msgspec

from ferrule import ToolCall
from ferrule.schema import Validator
from ferrule.testing._samples import is_array, is_object


class Wrong(msgspec.Struct, frozen=True):
    """
    Arguments that are wrong.

    Attributes:
        what: How, as it stands in a sentence: "a call with …".
        text: As a model might write them.
    """

    what: str
    text: str


_DEEP = 600
"""Arrays inside each other: more than any `Limits` allow."""

_OF_ANOTHER_TYPE = ({"wrong": "wrong"}, ["wrong"], "wrong", 0.5, True)
"""Values of each type, such as no leniency takes for another one; null may stand for a default."""

_UNKNOWN = "no_such_argument"


def wrong_texts(sample: Mapping[str, object]) -> Iterator[Wrong]:
    """Yield texts that no schema is needed to refuse."""
    written = _text(sample)
    name, value = next(iter(sample.items()), ("a", 1))
    member = f"{json.dumps(name)}:{json.dumps(value)}"
    twice = written[:-1] + f",{member}}}" if sample else f"{{{member},{member}}}"
    rest = _text({other: part for other, part in sample.items() if other != name})[1:]
    joint = "" if rest == "}" else ","
    nan = f"{{{json.dumps(name)}:NaN{joint}{rest}"
    deep = f"{{{json.dumps(name)}:{'[' * _DEEP}{']' * _DEEP}{joint}{rest}"
    yield Wrong(f'the name "{name}" twice', twice)
    yield Wrong("a NaN", nan)
    yield Wrong(f"{_DEEP} arrays inside each other", deep)
    yield Wrong("half of its text", written[:-1])
    yield Wrong("null in the place of an object", "null")
    yield Wrong("an array in the place of an object", "[]")


def wrong_arguments(
    sample: Mapping[str, object], schema: Mapping[str, object], accepts: Validator
) -> Iterator[Wrong]:
    """Yield changed arguments that the schema refuses, which a tool therefore must."""
    for what, changed in _changed(sample, schema, accepts):
        if accepts.problems(changed):
            yield Wrong(what, _text(changed))


def _changed(
    sample: Mapping[str, object], schema: Mapping[str, object], accepts: Validator
) -> Iterator[tuple[str, dict[str, object]]]:
    required, known = schema.get("required"), schema.get("properties")
    for name in required if is_array(required) else ():
        yield f'no "{name}"', {key: part for key, part in sample.items() if key != name}
    yield "an unknown name", {**sample, _UNKNOWN: 1}
    for name in known if is_object(known) else ():
        tries = ({**sample, name: value} for value in _OF_ANOTHER_TYPE)
        refused = next((changed for changed in tries if accepts.problems(changed)), None)
        if refused is not None:
            yield f'a "{name}" of another type', refused


def _text(arguments: Mapping[str, object]) -> str:
    return ToolCall.of("x", arguments).arguments
