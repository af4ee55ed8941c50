"""
Values made from a schema, by hypothesis-jsonschema.

Its last release counts the members of an object with `many.more()`, which later releases of
Hypothesis replaced by a context manager and a loop. `_Counting` gives it the old call, until it
learns the new one.
"""

import types
from collections.abc import Iterator, Mapping
from typing import cast

from hypothesis import strategies as st
from hypothesis.internal.conjecture import utils
from hypothesis_jsonschema import _from_schema, from_schema

from ferrule._ijson import wide_integers


class _Counting:
    """`utils.many` as it was called before."""

    def __init__(self, data: object, **sizes: float) -> None:
        self._many = utils.many(data, **sizes)  # type: ignore[arg-type]  # passed on as they came
        self._left: Iterator[None] = iter(self._many.__enter__())

    def more(self) -> bool:
        """Say whether another element is to be made."""
        for _ in self._left:
            return True
        self._many.__exit__(None)
        return False

    def reject(self) -> None:
        """Take the last element back."""
        self._many.reject()


if not hasattr(utils.many, "more"):
    vars(_from_schema)["cu"] = types.SimpleNamespace(**vars(utils) | {"many": _Counting})

FORMATS: Mapping[str, st.SearchStrategy[str]] = {
    "duration": st.integers(0, 999).map("PT{}M".format),
    "uuid": st.uuids().map(str),
}
"""Formats that Ferrule asserts and the library does not know."""


def objects_of(schema: Mapping[str, object]) -> st.SearchStrategy[dict[str, object]]:
    """
    Return a strategy for the objects that a schema describes.

    Where a schema takes any value, integers past 64 bits are left out: no call may hold them.
    """
    known = {name: member for name, member in schema.items() if name != "$schema"}
    made = from_schema(known, custom_formats=FORMATS)  # type: ignore[arg-type]  # an object of JSON
    objects = cast("st.SearchStrategy[dict[str, object]]", made)
    return objects.filter(lambda sample: not any(wide_integers(sample)))
