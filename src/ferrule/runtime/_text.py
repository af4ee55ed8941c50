"""
What is kept as text, and read back.

Only what we wrote ourselves is read here, so the standard library reads it: exact in every digit,
and without the rules of the boundary, which a tool's own text need not keep.
"""

import json
from datetime import UTC, datetime
from typing import Final, cast

from ferrule import (
    Cancelled,
    Completed,
    Failed,
    InvalidValue,
    Outcome,
    RawJSON,
    Rejected,
    Shared,
    Suspended,
    Unknown,
    Use,
)

_OUTCOMES: Final[dict[str, type[Outcome]]] = {
    "completed": Completed,
    "failed": Failed,
    "rejected": Rejected,
    "suspended": Suspended,
    "cancelled": Cancelled,
    "unknown": Unknown,
}


def written(value: object) -> str:
    """Return a JSON value as text; floats stay floats and integers keep their digits."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def read(text: str) -> object:
    """Return the value of a text that `written` made."""
    value: object = json.loads(text)
    return value


def outcome_from(text: str) -> Outcome:
    """Return the outcome of a text that was made of its `to_json`."""
    value = cast("dict[str, object]", read(text))
    kind = _OUTCOMES.get(str(value.get("outcome")))
    if kind is None:
        raise InvalidValue("this is no outcome")
    return kind.from_json(value)


def outcome_text(outcome: Outcome) -> str:
    """Return an outcome as text."""
    return written(outcome.to_json())


def answer_text(answer: object) -> str:
    """Return an answer as text: a JSON value, or a `RawJSON` byte for byte."""
    return written({"raw": answer.text} if isinstance(answer, RawJSON) else {"json": answer})


def answer_from(text: str) -> object:
    """Return the answer of a text that `answer_text` made."""
    kept = cast("dict[str, object]", read(text))
    return RawJSON(cast("str", kept["raw"])) if "raw" in kept else kept["json"]


def uses_text(uses: tuple[Use, ...]) -> str:
    """Return what a call uses as text."""
    return written([[u.state, True] if isinstance(u, Shared) else [u, False] for u in uses])


def uses_from(text: str) -> tuple[Use, ...]:
    """Return what a call uses."""
    pairs = cast("list[tuple[str, bool]]", read(text))
    return tuple(Shared(state) if shared else state for state, shared in pairs)


def moment(seconds: float) -> datetime:
    """Return a time that was kept in seconds since 1970, in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def moment_or_none(seconds: float | None) -> datetime | None:
    """Return a time that may not have been kept."""
    return None if seconds is None else moment(seconds)
