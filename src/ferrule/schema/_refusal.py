"""
Why a typed value could not be made, for the few things that a schema lets through.

A leap second, a duration of three thousand years, a class that refuses its own members. msgspec
says where in text only, so the place is found again here: down the shape, into the first part that
cannot be made alone. This runs only when a call is refused.
"""

import re
from collections.abc import Iterator

import msgspec

from ferrule._near import path_of
from ferrule._plain import is_array, is_object
from ferrule.errors import InvalidCall, Problem
from ferrule.schema._native import Natives, convert, whole
from ferrule.schema._shape import Array, Choice, Map, Object, Recursive, Scalar, Shape, Union

Step = str | int


def refusal(
    shape: Shape, value: object, natives: Natives, steps: tuple[Step, ...]
) -> list[Problem]:
    """
    Return what is wrong with `value`, which stands at `steps` and is no `shape`.

    A value of ours is never in the text, and neither is the refused one: a message of the author's
    own class is shown only when it repeats no part of it.
    """
    for step, part, inner in _parts(shape, value):
        if _failure(inner, part, natives) is not None:
            return refusal(inner, part, natives, (*steps, step))
    cause = getattr(_failure(shape, value, natives), "__cause__", None)
    elsewhere = getattr(cause, "__cause__", None)
    if isinstance(elsewhere, InvalidCall):
        return [_below(steps, problem) for problem in elsewhere.problems]
    said = str(cause) if isinstance(cause, ValueError) else ""
    if not said or repeats(said, value):
        said = _expected(shape)
    return [Problem(path=path_of(steps), rule="type", expected=said)]


def _below(steps: tuple[Step, ...], problem: Problem) -> Problem:
    """Return a problem that was found inside a value as one of the whole."""
    around, inside = path_of(steps), problem.path
    joint = "." if around and inside and not inside.startswith("[") else ""
    return msgspec.structs.replace(problem, path=around + joint + inside)


def _failure(shape: Shape, value: object, natives: Natives) -> msgspec.ValidationError | None:
    try:
        convert(whole(value), natives.type_of(shape))
    except msgspec.ValidationError as error:
        return error
    return None


def _parts(shape: Shape, value: object) -> Iterator[tuple[Step, object, Shape]]:
    """Yield the parts of a value that have a shape of their own."""
    match shape:
        case _ if shape.foreign:  # not ours to look into
            return
        case Object(fields=fields) if is_object(value):
            named = {field.name: field.shape for field in fields}
            yield from ((name, part, named[name]) for name, part in value.items() if name in named)
        case Map(values=values) if is_object(value):
            yield from ((name, part, values) for name, part in value.items())
        case Array(prefix=prefix, items=items) if is_array(value):
            rest = [] if items is None else [items] * (len(value) - len(prefix))
            shapes = [*prefix, *rest]
            yield from zip(range(len(value)), value, shapes, strict=False)
        case Union(members=members):
            likely = [member for member in members if _fits(member, value)]
            if len(likely) == 1:
                yield from _parts(likely[0], value)
        case Recursive(cycle=cycle):
            yield from _parts(cycle.target, value)
        case _:
            return


def _fits(shape: Shape, value: object) -> bool:
    """Whether a value has the JSON type of a shape that has parts."""
    if isinstance(shape, Recursive):
        return _fits(shape.cycle.target, value)
    return isinstance(value, dict if isinstance(shape, Object | Map) else list) and isinstance(
        shape, Object | Map | Array
    )


def repeats(sentence: str, value: object) -> bool:
    """Whether a sentence holds a part of a value (CONTRACT JSON-6)."""
    words = set(re.findall(r"\w+", sentence))
    return any(text in words or (len(text) > 1 and text in sentence) for text in _texts(value))


def _texts(value: object) -> Iterator[str]:
    """Yield what a value consists of, as text."""
    if is_object(value):
        for part in value.values():
            yield from _texts(part)
    elif is_array(value):
        for part in value:
            yield from _texts(part)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _expected(shape: Shape) -> str:
    match shape:
        case Scalar(format=format) if format:
            return f"expected a {format} that exists"
        case Scalar(type=kind):
            return f"expected a value of type {kind}"
        case Choice():
            return "expected one of the listed values"
        case Recursive(cycle=cycle):
            return _expected(cycle.target)
        case _:
            name = getattr(shape.hint, "__name__", None)
            return f"expected a valid {name}" if name else "expected a valid value"
