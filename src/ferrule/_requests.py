"""What a call may ask of a person, and what a person's yes or no is bound to."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Generic, Literal, Self, TypeVar

import msgspec

from ferrule._ijson import Limits, digest, read
from ferrule._plain import is_mapping, json_text, plain
from ferrule._value import Value, is_span, unicode
from ferrule.errors import InvalidJSON, InvalidSchema, InvalidValue
from ferrule.schema import compile as compile_schema

T = TypeVar("T")


class Asked(Value, frozen=True, kw_only=True):
    """
    Who asks whether a call may run: what an approval is bound to (CONTRACT AUT-4).

    Attributes:
        call_id: The logical call.
        digest: Of its arguments.
        fingerprint: Of its tool as it was bound.
        guard: Which guard of the tool, by place and policy.
    """

    call_id: str
    digest: str
    fingerprint: str
    guard: str


class _ApprovalFacts(Value, frozen=True, kw_only=True):
    by: str
    at: datetime
    call_id: str
    digest: str
    fingerprint: str
    guard: str
    question: str = ""


class Approval(_ApprovalFacts, frozen=True):
    """
    What a person answered to a guard's question; made by `InputRequest.approval`.

    It holds for every leg and replay of the one call that it names, as long as arguments and tool
    are the same, and goes to the guard that asked and to no other (CONTRACT AUT-7).

    Attributes:
        answer: The answer itself; `True` and `False` where a yes or no was asked for.
        by: Who gave it, as the host knows people.
        at: When it was given, in UTC.
        call_id: The call it is for.
        digest: Of the arguments that were shown.
        fingerprint: Of the tool that was shown.
        guard: The guard that asked.
        question: Digest of what was asked.
    """

    answer: object

    def holds(self, asked: Asked) -> bool:
        """Say whether it answers this guard about this very call."""
        return (self.call_id, self.digest, self.fingerprint, self.guard) == (
            asked.call_id,
            asked.digest,
            asked.fingerprint,
            asked.guard,
        )


class Question(Value, frozen=True):
    """
    What a running call asks while it waits (CONTRACT ASK-1); what an asker is given.

    Attributes:
        message: What a person reads.
        schema: JSON Schema of the answer, or `None` where a person only goes to `url`.
        url: Where a person goes, or `None`; never followed by us.
    """

    message: str
    schema: Mapping[str, object] | bool | None = None
    url: str | None = None

    def __post_init__(self) -> None:
        if not unicode(self.message, what="the message of a Question"):
            raise InvalidValue("a Question says what a person is asked; give it a sentence")
        url = self.url
        if url is not None and not unicode(url, what="the url of a Question").startswith(_WEB):
            raise InvalidValue("the url of a Question begins with https:// or http://")


_WEB = ("https://", "http://")


class Accepted(msgspec.Struct, Generic[T], frozen=True):
    """A person answered; `content` is of the type that was asked for."""

    content: T


class Declined(Value, frozen=True):
    """
    A person did not answer.

    Attributes:
        action: `"decline"` is a no; `"cancel"` says that nobody chose, or nobody is there.
    """

    action: Literal["decline", "cancel"] = "decline"


class _RequestFacts(Value, frozen=True, kw_only=True):
    schema: Mapping[str, object] | bool
    state: object = None
    expires_in: float | None = None
    asked: Asked | None = None


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
        asked: Which guard asks, about which call; `None` when the tool itself asks.
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
        if self.expires_in is not None and not is_span(self.expires_in):
            raise InvalidValue("expires_in of an InputRequest is seconds, more than 0")

    @property
    def question(self) -> str:
        """The digest of what is asked: the message and the schema of the answer."""
        return digest({"message": self.message, "schema": self.schema})

    def approval(self, answer: object, *, by: str) -> Approval:
        """
        Return what a person answered to a guard, bound to the call that it asked about.

        Args:
            answer: A JSON value of the schema: for a plain `Ask`, `True` or `False`.
            by: Who gave it; not empty.

        Raises:
            InvalidValue: the tool itself asks, not a guard; the answer is not of the schema; or
                nobody gave it.
        """
        asked = self.asked
        if asked is None:
            raise InvalidValue(
                "this is the tool's own question, not a guard's; its answer is no approval"
            )
        if not unicode(by, what="`by` of an approval"):
            raise InvalidValue("an approval says who gave it: by=…")
        return Approval(
            self._checked(answer),
            by=by,
            at=datetime.now(UTC),
            call_id=asked.call_id,
            digest=asked.digest,
            fingerprint=asked.fingerprint,
            guard=asked.guard,
            question=self.question,
        )

    def _checked(self, answer: object) -> object:
        """Return an answer, detached, if it is of the schema."""
        kept = _bounded(answer, "answer")
        problems = "; ".join(map(str, compile_schema(self.schema).problems(kept)))
        if problems:
            raise InvalidValue(f"the answer is not what was asked for: {problems}")
        return kept

    def to_json(self) -> dict[str, object]:
        """Return the request as plain JSON values, detached from it."""
        written = super().to_json()
        if self.asked is None:
            del written["asked"]
        return written

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
    """
    Return a detached copy of one part, read by the strict reader within its limit.

    Raises:
        InvalidValue: it is no JSON, or too large.
    """
    limits = Limits()
    try:
        part, _ = read(json_text(plain(value)), limit=limits.request_bytes, limits=limits)
    except InvalidJSON as error:
        raise InvalidValue(f"the {name} of an InputRequest: {error}") from None
    return part
