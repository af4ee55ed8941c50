"""
Where a value stands in the arguments: `cmd[0]`, `files[*].name`, `headers["content type"]`.

A name, then names after dots, indexes from 0, `[*]` for every element, names in quotes where they
are no plain words. A path leads somewhere or it does not; it never raises, whatever the arguments.
"""

import json
import re
from collections.abc import Sequence
from typing import TypeAlias, cast

from ferrule import InvalidValue

Step: TypeAlias = str | int | None
"""A member's name, an element's index, or `None`: every element."""

MOST = 32
"""Steps of a path."""

_PLAIN = r"[A-Za-z_$][A-Za-z0-9_$-]*"
_QUOTED = r'"(?:[^"\\\x00-\x1f]|\\.)*"'
_STEP = re.compile(
    rf"\.(?P<name>{_PLAIN})|\[(?:(?P<every>\*)|(?P<index>[0-9]{{1,6}})|(?P<quoted>{_QUOTED}))\]",
    re.ASCII,
)
_HOW = 'write it as in `cmd[0]`, `files[*].name` or `headers["content type"]`'


def read_path(value: object) -> tuple[Step, ...]:
    """
    Return the steps of a path.

    Raises:
        InvalidValue: it is none; the sentence says from which character on.
    """
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"a path is a text that is not empty; {_HOW}")
    text = value if value.startswith("[") else f".{value}"
    steps: list[Step] = []
    at = 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None or len(steps) == MOST:
            place = at - (len(text) - len(value)) + 1
            raise InvalidValue(f"it is no path from character {max(place, 1)} on; {_HOW}")
        steps.append(_step(found))
        at = found.end()
    if not isinstance(steps[0], str):
        raise InvalidValue(f"the arguments are an object: a path begins with a name; {_HOW}")
    return tuple(steps)


def _step(found: re.Match[str]) -> Step:
    if found["every"]:
        return None
    if found["index"]:
        return int(found["index"])
    return found["name"] or _unquoted(found["quoted"])


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        raise InvalidValue(f"a quoted name is written as in JSON; {_HOW}") from None


def found_at(steps: Sequence[Step], arguments: object) -> list[object] | None:
    """
    Return the values at a path: one, or several where it says `[*]`; `None` if it leads nowhere.

    It leads nowhere if one step of it does: for one element of several, or for an empty array.
    """
    values = [arguments]
    for step in steps:
        following: list[object] = []
        for value in values:
            inner = _inside(value, step)
            if not inner:
                return None
            following += inner
        values = following
    return values


def _inside(value: object, step: Step) -> Sequence[object]:
    """Return what one step leads to, nothing if it does not."""
    if isinstance(step, str):
        if not isinstance(value, dict):
            return []
        members = cast("dict[str, object]", value)
        return [members[step]] if step in members else []
    if not isinstance(value, list):
        return []
    elements = cast("list[object]", value)
    return elements if step is None else elements[step : step + 1]
