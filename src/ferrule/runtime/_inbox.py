"""Where people answer: the journal's questions and unknown calls, with no tools in sight."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import anyio.to_thread

from ferrule.ports import DurableCall, Moved, Receipt, Resolution, Wait
from ferrule.runtime import _history as reading
from ferrule.runtime import _waits as waiting
from ferrule.runtime._store import Store, Transaction

T = TypeVar("T")


class Access(Protocol):
    """A journal, as an inbox reads and writes it."""

    async def read(self, function: Callable[[Transaction], T]) -> T:
        """Run work that writes nothing."""
        ...

    async def write(self, function: Callable[[Transaction], T]) -> T:
        """Run work in a transaction of its own."""
        ...

    def hear(self) -> None:
        """Have whoever drives calls here look at what was written."""
        ...


class JournalInbox:
    """An inbox on a journal that is open elsewhere; see `ferrule.ports.Inbox`."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def waits(self) -> list[Wait]:
        """Return the questions that wait, oldest first."""
        return await self._access.read(waiting.waits)

    async def wait(self, wait_id: str) -> Wait:
        """
        Return a question, also one that is closed.

        Raises:
            WaitClosed: there never was one of this id.
        """
        return await self._access.read(functools.partial(waiting.wait_of, wait_id=wait_id))

    async def wait_ids(self, beginning: str = "") -> list[str]:
        """Return the ids of all questions, closed ones too, that begin so, sorted."""
        return await self._access.read(functools.partial(waiting.wait_ids, beginning=beginning))

    async def answer(
        self, wait_id: str, content: object, *, by: str, answer_id: str | None = None
    ) -> Receipt:
        """
        Answer a question; returns when the answer is durable.

        The same `answer_id` with the same content again has no effect.

        Args:
            wait_id: What is answered.
            content: A JSON value of the question's schema; a guard's plain question takes `True`
                and `False`, and nothing that is merely true.
            by: Who answers; not empty.
            answer_id: Names the answer, so that it may be sent again.

        Raises:
            AnswerConflict: the id was given to another answer.
            AnswerRefused: the answer is not of the schema; the question still waits.
            WaitClosed: nothing waits by this id; says how it was closed, when and by whom.
            JournalError: the journal cannot be written; the question still waits.
        """
        receipt = await self._access.write(
            functools.partial(
                waiting.answer, wait_id=wait_id, content=content, by=by, answer_id=answer_id
            )
        )
        self._access.hear()
        return receipt

    async def withdraw(self, wait_id: str, *, by: str) -> None:
        """
        Take a question back; its call has failed.

        Raises:
            AnswerRefused: nobody takes it back: `by` is empty.
            WaitClosed: nothing waits by this id.
        """
        await self._access.write(functools.partial(waiting.withdraw, wait_id=wait_id, by=by))
        self._access.hear()

    async def unknown(self, *, reason: str | None = None) -> list[DurableCall]:
        """Return the calls of which nobody knows how they ended; those of one reason, if given."""
        return await self._access.read(functools.partial(reading.unknown, reason=reason))

    async def resolve(self, call_id: str, resolution: Resolution, *, by: str) -> None:
        """
        Say how an unknown call ended, or have it run again.

        Args:
            call_id: The call's id among all, or the model's where only one call has it.
            resolution: `Completed`, `Failed`, `Cancelled`, or `"retry"`, with the same idempotency
                key.
            by: Who says so; not empty.

        Raises:
            AnswerRefused: the call is not unknown, or there is none, or it cannot end so.
        """
        await self._access.write(
            functools.partial(reading.resolve, name=call_id, resolution=resolution, by=by)
        )
        self._access.hear()

    async def history(
        self, call_id: str | None = None, *, batch_id: str | None = None, after: int = 0
    ) -> list[Moved]:
        """Return what happened, to one call, one batch, or all, after line `after`."""

        def look(tx: Transaction) -> list[Moved]:
            call = None if call_id is None else reading.find(tx, call_id).id
            return reading.history(tx, batch=batch_id, call=call, after=after)

        return await self._access.read(look)

    async def batch(self, batch_id: str) -> list[DurableCall]:
        """Return the calls of a batch with all that is kept of them; none of an unknown one."""
        return await self._access.read(functools.partial(reading.batch, name=batch_id))

    async def call(self, call_id: str) -> DurableCall:
        """
        Return a call with all that is kept of it.

        Raises:
            AnswerRefused: there is none of this id, or more than one.
        """
        return await self._access.read(lambda tx: reading.durable(tx, reading.find(tx, call_id)))


class _Visits:
    """Opens the journal for each piece of work; nobody has to close it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = False

    async def read(self, function: Callable[[Transaction], T]) -> T:
        return await anyio.to_thread.run_sync(self._visit, function, Store.read)

    async def write(self, function: Callable[[Transaction], T]) -> T:
        return await anyio.to_thread.run_sync(self._visit, function, Store.write)

    def hear(self) -> None:
        """Do nothing: whoever drives the calls is another process, and looks."""

    def _visit(
        self,
        function: Callable[[Transaction], T],
        how: Callable[[Store, Callable[[Transaction], T]], T],
    ) -> T:
        store = Store(self._path, create=False, known=self._known)
        self._known = True
        try:
            return how(store, function)
        finally:
            store.close()


class SqliteInbox(JournalInbox):
    """
    The inbox of a journal on SQLite, for people and without the tools.

    Args:
        path: The journal's file; it is opened for each question asked, and left alone between.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(_Visits(Path(path)))
