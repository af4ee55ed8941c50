"""What a call may ask of a person: for now the request alone, as a value."""

from collections.abc import Mapping
from typing import Self

import msgspec

from ferrule._ijson import Limits, read
from ferrule._plain import is_mapping, json_text, plain
from ferrule._value import Value, unicode
from ferrule.errors import InvalidJSON, InvalidSchema, InvalidValue
from ferrule.schema import compile as compile_schema


class _RequestFacts(Value, frozen=True, kw_only=True):
    schema: Mapping[str, object] | bool
    state: object = None
    expires_in: float | None = None


class InputRequest(_RequestFacts, frozen=True):
    """
    A call asks for input and stops until it comes: a value that a tool returns (CONTRACT SUS-1).

    Each part is I-JSON of at most `Limits.request_bytes` and is kept exactly. It names no call
    and no wait: the runtime that keeps it does.

    Attributes:
        message: What a person reads.
        schema: JSON Schema of the answer.
        state: What the tool needs to go on; data, never code.
        expires_in: Seconds until nobody needs to answer any more; `None` is never.
    """

    message: str

    def __post_init__(self) -> None:
        unicode(self.message, what="the message of an InputRequest")
        for name in ("message", "schema", "state"):
            value = getattr(self, name)
            msgspec.structs.force_setattr(self, name, _bounded(value, name))
        if not isinstance(self.schema, dict | bool):
            raise InvalidValue(
                "the schema of an InputRequest is a JSON Schema: an object or a bool"
            )
        try:
            compile_schema(self.schema)
        except InvalidSchema as error:
            raise InvalidValue(f"the schema of an InputRequest: {error}") from None
        seconds = self.expires_in
        if seconds is not None and not (
            isinstance(seconds, int | float) and 0 < seconds < float("inf")
        ):
            raise InvalidValue("expires_in of an InputRequest is seconds, more than 0")

    @classmethod
    def from_json(cls, value: object) -> Self:
        """
        Return the request that `to_json` wrote.

        Raises:
            InvalidValue: `value` is not what `to_json` writes.
        """
        if not is_mapping(value) or not {"message", "schema", "state"} <= value.keys():
            raise InvalidValue("an InputRequest has a message, a schema and a state")
        return super().from_json(value)


def _bounded(value: object, name: str) -> object:
    """Return a detached copy of one part, read by the strict reader within its limit."""
    limits = Limits()
    try:
        part, _ = read(json_text(plain(value)), limit=limits.request_bytes, limits=limits)
    except InvalidJSON as error:
        raise InvalidValue(f"the {name} of an InputRequest: {error}") from None
    return part
