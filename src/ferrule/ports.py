"""
What a home of durable calls does, and the values that people and programs exchange with it.

`Runtime` runs calls that outlive their process, `Inbox` is how people answer them; neither says
where they are kept. `ferrule.runtime` keeps them in a file of SQLite.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

import msgspec

from ferrule import Outcome, Record, ToolCall
from ferrule.states import State, Step

__all__ = (
    "DurableBatch",
    "DurableCall",
    "Evidence",
    "Inbox",
    "Kept",
    "Moved",
    "Note",
    "Receipt",
    "Resolution",
    "Runtime",
    "Wait",
)


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """
    A question that waits for a person; it never shows the tool's state.

    Attributes:
        id: Names the question, and no other of any call; what an answer is addressed to.
        call: The call that waits.
        call_id: Its id among all that the home keeps: `<batch id>/<id of the call>`.
        message: What the person reads.
        schema: JSON Schema of the answer.
        since: When it was asked, in UTC.
        expires: When nobody needs to answer any more; `None` is never.
        asked_by: The guard that asks whether the call may run, or `tool:<name>` where the tool asks
            itself.
        leg: The leg that ended with the question; an answer starts the next one.
    """

    id: str
    call: ToolCall
    call_id: str
    message: str
    schema: Mapping[str, object] | bool
    since: datetime
    expires: datetime | None = None
    asked_by: str = ""
    leg: int = 1


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """
    An answer is kept; it will not be lost.

    Attributes:
        wait_id: What was answered.
        answer_id: The answer's own id, as given or made.
        by: Who answered.
        at: When, in UTC.
        first: Whether this answered the question; not so when the same answer had come before.
    """

    wait_id: str
    answer_id: str
    by: str
    at: datetime
    first: bool


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A record that a call has written."""

    record: Record
    leg: int
    fence: int
    at: datetime


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """
    How a call ended as somebody reported who had no say any more: late, or taken for lost.

    Attributes:
        outcome: What was reported.
        leg: Of which leg.
        fence: Of which dispatch.
        at: When, in UTC.
    """

    outcome: Outcome
    leg: int
    fence: int
    at: datetime


class DurableCall(msgspec.Struct, frozen=True, kw_only=True):
    """
    A call as it is kept.

    Attributes:
        id: `<batch id>/<id of the call>`; the id alone where that is one word.
        batch_id: The batch that it belongs to.
        call: What the model wrote.
        state: Where it is; see `ferrule.states`.
        leg: How many legs were begun or are due.
        fence: How many times it was dispatched.
        idempotency_key: The same for every leg and replay.
        effect_begun: Whether it had said `begin_effect` since its last dispatch.
        outcome: How it ended, once it has.
        records: What it wrote, oldest first.
        evidence: What was reported too late, oldest first.
    """

    id: str
    batch_id: str
    call: ToolCall
    state: State
    leg: int
    fence: int
    idempotency_key: str
    effect_begun: bool = False
    outcome: Outcome | None = None
    records: tuple[Kept, ...] = ()
    evidence: tuple[Evidence, ...] = ()


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """
    One line of the history.

    Attributes:
        seq: Its place; rises by one or more, never falls.
        at: When, in UTC.
        batch_id: Of which batch.
        call_id: Of which call.
        step: What happened: a step of the state table, or a note that moves nothing.
        state: Where the call is since.
        leg: In which leg.
        fence: Under which dispatch.
        by: Who did it, where a person did.
        data: What goes with it, as plain JSON.
    """

    seq: int
    at: datetime
    batch_id: str
    call_id: str
    step: "Step | Note"
    state: State
    leg: int
    fence: int
    by: str = ""
    data: object = None


Note: TypeAlias = Literal["propose", "wait", "record", "effect", "evidence", "told", "changed"]
"""
What a history also has: a call was proposed, began to wait for its turn, wrote a record, said
`begin_effect`, was reported on too late, was told to stop, or found its tool changed.
"""

Resolution: TypeAlias = Outcome | Literal["retry"]
"""What a person says of an unknown call: how it ended, or that it is to run again."""


class DurableBatch(Protocol):
    """The calls of one turn, as they are kept."""

    @property
    def id(self) -> str:
        """The batch's id, as given."""
        ...

    async def settled(self) -> list[Outcome]:
        """Return how each call ended, in order, when all have; people may have to answer first."""
        ...

    async def at_rest(self) -> list[Outcome]:
        """Return as `settled`, but when nothing goes on without a person: some are `Suspended`."""
        ...

    @property
    def events(self) -> AsyncIterator[Moved]:
        """The batch's history from its beginning, then live, until every call is settled."""
        ...


class Inbox(Protocol):
    """Where people answer; needs no tools."""

    async def waits(self) -> list[Wait]:
        """Return the questions that wait, oldest first."""
        ...

    async def answer(
        self, wait_id: str, content: object, *, by: str, answer_id: str | None = None
    ) -> Receipt:
        """
        Answer a question; returns when the answer is durable.

        The same `answer_id` with the same content again has no effect.

        Raises:
            AnswerConflict: the id was given to another answer.
            AnswerRefused: the answer is not of the schema; the question still waits.
            WaitClosed: nothing waits by this id; says since when and through whom.
        """
        ...

    async def withdraw(self, wait_id: str, *, by: str) -> None:
        """
        Take a question back; its call has failed.

        Raises:
            AnswerRefused: nobody takes it back: `by` is empty.
            WaitClosed: nothing waits by this id.
        """
        ...

    async def unknown(self, *, reason: str | None = None) -> list[DurableCall]:
        """Return the calls of which nobody knows how they ended, oldest first."""
        ...

    async def resolve(self, call_id: str, resolution: Resolution, *, by: str) -> None:
        """
        Say how an unknown call ended, or have it run again.

        Raises:
            AnswerRefused: the call is not unknown, or there is none, or it cannot end so.
        """
        ...

    async def batch(self, batch_id: str) -> Sequence[DurableCall]:
        """Return the calls of a batch with all that is kept of them; none of an unknown one."""
        ...

    async def history(self, call_id: str | None = None, *, after: int = 0) -> list[Moved]:
        """Return what happened, to one call or to all, after line `after`."""
        ...


class Runtime(Protocol):
    """Runs calls that outlive their process."""

    @property
    def inbox(self) -> Inbox:
        """Where people answer."""
        ...

    async def submit(
        self, calls: Iterable[ToolCall], *, batch_id: str, caller: object = None
    ) -> DurableBatch:
        """
        Keep the calls of a turn, and run them; returns when they are durable.

        The same id with the same calls again is the same batch: nothing is run twice.

        Raises:
            BatchConflict: the id was given to other calls.
        """
        ...

    async def cancel(self, batch_id: str, call_id: str | None = None, *, by: str = "") -> None:
        """Stop a call, or all of a batch; what has not begun never does."""
        ...

    async def recover(self) -> Sequence[DurableBatch]:
        """Take over what the death of its process left; returns the batches that go on here."""
        ...
