"""
What a call may ask of a person, and what becomes of the answer.

Theory. A question is a value, and so is its answer: what a guard asks is answered by an `Approval`,
what a tool asks by a `Continuation`. Neither is worth anything for another call: a binding notes in
each question which call it is of (`Asked`, `Posed`), the answer keeps the note, and whoever takes
the answer compares. A tool can write no such note, as the binding overwrites what it finds.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Generic, Literal, Self, TypeVar, cast

import msgspec

from ferrule._content import RawJSON
from ferrule._ijson import Limits, digest, read
from ferrule._plain import detached, is_mapping, json_text, plain
from ferrule._value import Sealed, Value, is_span, unicode
from ferrule.errors import InvalidJSON, InvalidSchema, InvalidValue, clip
from ferrule.schema import compile as compile_schema

T = TypeVar("T")


class Posed(Value, frozen=True, kw_only=True):
    """
    Which call asks: what a continuation is bound to.

    Attributes:
        call_id: The logical call.
        digest: Of its arguments.
        fingerprint: Of its tool as it was bound.
    """

    call_id: str
    digest: str
    fingerprint: str


class Asked(Posed, frozen=True, kw_only=True):
    """
    Who asks whether a call may run: what an approval is bound to (CONTRACT AUT-4).

    Attributes:
        guard: Which guard of the tool, by place and policy.
    """

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
    posed: Posed | None = None


class InputRequest(_RequestFacts, frozen=True):
    """
    A call asks for input and stops until it comes: a value that a tool returns (CONTRACT SUS-1).

    Each part is I-JSON of at most `Limits.request_bytes` and is kept exactly: integers with every
    digit, floats as the doubles that they are, the names of an object sorted; a `RawJSON` byte for
    byte. Two requests are equal
    that ask the same, whichever call they are of.

    Attributes:
        message: What a person reads.
        schema: JSON Schema of the answer.
        state: What the tool needs to go on; data, never code. A JSON value or a `RawJSON`.
        expires_in: Seconds until nobody needs to answer any more; `None` is never.
        asked: Which guard asks, about which call; `None` when the tool itself asks.
        posed: Which call's tool asks, as its binding noted; `None` until then, and of a guard's.
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

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InputRequest):
            return NotImplemented
        return _what_it_asks(self) == _what_it_asks(other)

    def __hash__(self) -> int:
        return hash(self.message)

    @property
    def question(self) -> str:
        """The digest of what is asked: the message and the schema of the answer."""
        return digest({"message": self.message, "schema": self.schema})

    def continuation(self, answer: object) -> "Continuation":
        """
        Return what a person answered to the tool, with the state that it goes on from.

        It serves the call that asked, however often that call has to be run again, and no other.

        Args:
            answer: A JSON value of the schema, or a `RawJSON` of one.

        Raises:
            InvalidValue: a guard asks, not the tool itself; or the answer is not of the schema.
        """
        if self.asked is not None:
            raise InvalidValue(
                "this is a guard's question, not the tool's own; answer it with "
                "`request.approval(answer, by=…)`"
            )
        own = msgspec.structs.replace(self)  # Nobody else holds its parts.
        return _continuation(Continuation, (own, self._checked(answer)))

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
        problems = "; ".join(map(str, compile_schema(self.schema).problems(_read(kept))))
        if problems:
            raise InvalidValue(clip(f"the answer is not what was asked for: {problems}"))
        return kept

    def larger_part(self, limit: int) -> str:
        """Return the name of a part of more than `limit` bytes as it is written, or nothing."""
        parts = ("message", "schema", "state")
        return next((name for name in parts if _size(getattr(self, name)) > limit), "")

    def to_json(self) -> dict[str, object]:
        """Return the request as plain JSON values, detached from it."""
        written = super().to_json()
        if isinstance(self.state, RawJSON):
            del written["state"]
            written["raw_state"] = self.state.text
        for name in ("asked", "posed"):
            if written[name] is None:
                del written[name]
        return written

    @classmethod
    def from_json(cls, value: object) -> Self:
        """
        Return the request that `to_json` wrote.

        Raises:
            InvalidValue: `value` is not what `to_json` writes.
        """
        if not is_mapping(value) or not {"message", "schema"} <= value.keys():
            raise InvalidValue("an InputRequest has a message, a schema and a state")
        if ("state" in value) is ("raw_state" in value):
            raise InvalidValue("an InputRequest has a state, either as state or as raw_state")
        members = dict(value)
        if "raw_state" in members:
            members["state"] = RawJSON.from_json({"text": members.pop("raw_state")})
        return super().from_json(members)


class Continuation(Sealed, tuple[InputRequest, object]):
    """
    An answer, and the state that the tool goes on from; `InputRequest.continuation` makes it.

    A tool that is started again finds it in `invocation.continuation`. It is not written anywhere:
    a host keeps request and answer, and makes it again.
    """

    __slots__ = ()

    __match_args__ = ("answer",)

    @property
    def answer(self) -> object:
        """What was answered: a JSON value of the schema, a new copy each time, or a `RawJSON`."""
        return _copied(self[1])

    @property
    def state(self) -> object:
        """The state of the request: a new copy each time, or a `RawJSON`."""
        return _copied(self[0].state)

    @property
    def request(self) -> InputRequest:
        """The request that was answered, a new copy each time."""
        return msgspec.structs.replace(self[0])

    @property
    def posed(self) -> Posed | None:
        """Which call asked, as its binding noted in the request."""
        return self[0].posed

    def is_larger(self, limit: int) -> bool:
        """Say whether the answer has more than `limit` bytes as it is written."""
        return _size(self[1]) > limit

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Continuation) and self[0] == other[0] and self[1] == other[1]

    def __hash__(self) -> int:
        return hash(self[0])

    def __repr__(self) -> str:
        return f"<Continuation of {self[0].message!r}>"


_continuation = cast(
    "Callable[[type[Continuation], tuple[InputRequest, object]], Continuation]",
    vars(tuple)["__new__"],
)


def _what_it_asks(request: InputRequest) -> tuple[object, ...]:
    return (request.message, request.schema, request.state, request.expires_in, request.asked)


def _copied(part: object) -> object:
    return part if isinstance(part, RawJSON) else detached(part)


def _read(part: object) -> object:
    return part.read() if isinstance(part, RawJSON) else part


def _size(part: object) -> int:
    return len((part.text if isinstance(part, RawJSON) else json_text(part)).encode())


def _bounded(value: object, name: str) -> object:
    """
    Return a detached copy of one part, read by the strict reader within its limit.

    Raises:
        InvalidValue: it is no JSON, or too large.
    """
    limits = Limits()
    is_raw = isinstance(value, RawJSON) and name in {"state", "answer"}
    text = cast("RawJSON", value).text if is_raw else json_text(plain(value))
    try:
        part, _ = read(text, limit=limits.request_bytes, limits=limits)
    except InvalidJSON as error:
        raise InvalidValue(f"the {name} of an InputRequest: {error}") from None
    return value if is_raw else part
