"""
The repairs that a tool allows, between what a model wrote and its refusal.

A repair of a text hands text back, which then goes through the one reader like any other. At most
one is made of a text: what is encoded twice and broken too is refused. The repairs of values are
the schema's matter (`schema/_lenient.py`), and what is the same text in better JSON is that of
`_mend.py`; here stands which are asked, and when. Holds nothing of a tool that can run.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import cast

from ferrule._contain import contain
from ferrule._ijson import Limits, read
from ferrule._plain import json_text
from ferrule._traits import Leniency
from ferrule.errors import CallKind, InvalidTool
from ferrule.schema._lenient import Found, Lenient

Mend = Callable[[str], str | None]
"""Returns a text that says the same in better JSON, or `None`."""


class Mender:
    """The repairs of one contract. Safe for concurrent use."""

    __slots__ = ("_leniency", "_lenient", "_limits", "_mend", "_schema")

    def __init__(
        self, leniency: Leniency, schema: Mapping[str, object], limits: Limits, mend: Mend | None
    ) -> None:
        self._leniency = leniency
        self._schema = schema
        self._limits = limits
        self._mend = mend
        self._lenient: Lenient | None = None

    def text(self, text: str, kind: CallKind) -> tuple[str, str] | None:
        """
        Return the name of a repair, and the text that it makes of one that was refused.

        `None` if there is none. What the text is worth is for the reader to say.
        """
        if kind == "invalid_json":
            mended = None if self._mend is None else self._mend(text)
            return None if mended is None else ("broken_json", mended)
        if kind == "too_large" or not self._leniency.double_encoded:
            return None
        inner, _ = read(text, limit=self._limits.argument_bytes, limits=self._limits)
        return ("double_encoded", inner) if isinstance(inner, str) else None

    def arguments(self, arguments: dict[str, object]) -> tuple[str, list[Found]] | None:
        """
        Repair refused arguments where they stand; return their text, and what was done and where.

        `None` if there was nothing to do.
        """
        if self._lenient is None:  # Most calls need none; at worst two threads make the same.
            self._lenient = Lenient(self._schema, self._leniency, limits=self._limits)
        found = self._lenient.repair(arguments)
        text = contain(json_text, arguments) if found else None  # deep, it may not fit the stack
        return (text, found) if isinstance(text, str) else None


def mender(
    leniency: Leniency, name: str, schema: Mapping[str, object], limits: Limits
) -> Mender | None:
    """
    Return the repairs of the tool of this name; `None` where all are off.

    Raises:
        InvalidTool: it allows `broken_json`, and the package is not here.
    """
    if leniency == Leniency():
        return None
    return Mender(leniency, schema, limits, _mend(name) if leniency.broken_json else None)


def _mend(name: str) -> Mend:
    try:
        return cast("Mend", importlib.import_module("ferrule._mend").mended)
    except ModuleNotFoundError as error:
        raise InvalidTool(
            f"tool `{name}` has broken JSON repaired by json-repair, which is not here; "
            "pip install 'ferrule[repair]', or leave out `broken_json` from its leniency"
        ) from error
