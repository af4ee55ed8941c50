"""What every value of Ferrule can do: be written as plain JSON and read back, strictly."""

from collections.abc import Mapping
from typing import NoReturn, Self

import msgspec

from ferrule.errors import InvalidValue


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    A frozen value that can be written as plain JSON and read back.

    Reading is strict and atomic: unknown members and wrong types are refused, and no
    half-read value exists.
    """

    def to_json(self) -> dict[str, object]:
        """Return the value as plain JSON values, detached from it."""
        written: dict[str, object] = msgspec.to_builtins(self, builtin_types=())
        return written

    @classmethod
    def from_json(cls, value: object) -> Self:
        """
        Return the value that `to_json` wrote.

        Raises:
            InvalidValue: `value` is not what `to_json` writes.
        """
        tag = cls.__struct_config__.tag_field
        if tag is not None and not (isinstance(value, Mapping) and tag in value):
            # msgspec does without the tag where the class is known; what we wrote has it.
            raise InvalidValue(f"this is no {cls.__name__}: it lacks the member {tag}")
        try:
            return msgspec.convert(value, cls)
        except msgspec.ValidationError as error:
            raise InvalidValue(refusal(cls.__name__, error)) from None


class Sealed:
    """
    The base of values that one function alone makes.

    Nothing else does: not the class itself, nor `pickle`, `copy` or msgspec, which build no tuple
    of a class that is not theirs and call no class that refuses.
    """

    __slots__ = ()

    def __new__(cls, *_: object, **__: object) -> Self:
        raise TypeError(f"{cls.__name__} is not made by calling it; see where its docstring says")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled; keep what it was made of, and make it again"
        )

    __eq__ = object.__eq__
    __hash__ = object.__hash__


def refusal(name: str, error: msgspec.ValidationError) -> str:
    """Return a sentence that says what was expected and where, without the refused value."""
    text = str(error)
    what, _, place = text.rpartition(" - at ")
    expected = what or text
    if not expected.startswith(("Expected", "Object")):
        expected = "A value is not allowed"
    return f"this is no {name}: {expected}{f' at {place}' if what else ''}"


def type_name(value: object) -> str:
    """Return the name of a value's type, as a sentence says it."""
    return type(value).__name__


def is_span(seconds: object) -> bool:
    """Say whether a value is a number of seconds that is more than nothing and ends."""
    return isinstance(seconds, int | float) and 0 < seconds < float("inf")


def unicode(text: object, *, what: str) -> str:
    """
    Return `text` if it is a string that UTF-8 can carry.

    Raises:
        InvalidValue: it is no string, or holds a lone surrogate.
    """
    if not isinstance(text, str):
        raise InvalidValue(f"{what} is a string, not {type(text).__name__}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidValue(f"{what} holds a lone surrogate, which UTF-8 cannot carry") from None
    return text
