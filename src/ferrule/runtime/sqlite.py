"""
Durable calls on one machine: one file of SQLite, shared by as many processes as need it.

What is kept is kept with `synchronous=FULL`: when a step shows, it is on disk. Who drives a batch
says every few seconds that it lives; when it does not any more, another runtime on the same file
may take over (`recover`, or `submit` of the same batch).
"""

import functools
import inspect
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio

from ferrule import (
    Accepted,
    Completed,
    Context,
    Declined,
    Definition,
    Executor,
    Failed,
    Failure,
    FerruleError,
    InvalidValue,
    Outcome,
    Question,
    RawTool,
    Record,
    Registry,
    Source,
    Suspended,
    Tool,
    ToolCall,
)
from ferrule.errors import AnswerRefused, JournalError
from ferrule.ports import Moved
from ferrule.runtime._batches import (
    Claim,
    caller_text,
    cancel,
    claim,
    digest_of,
    propose,
    release,
)
from ferrule.runtime._calls import Row, calls_where
from ferrule.runtime._drive import Drive
from ferrule.runtime._history import asked_by, find, history, outcomes
from ferrule.runtime._host import Host, logger
from ferrule.runtime._inbox import JournalInbox
from ferrule.runtime._owners import Owner
from ferrule.runtime._store import Transaction
from ferrule.runtime._text import read

__all__ = (
    "Reaper",
    "SqliteBatch",
    "SqliteRuntime",
)

_PAUSE = 0.5
"""Seconds until a journal is looked at again that could not be."""

Reaper = Callable[[Record], Awaitable[None] | None]
"""Ends what a lost call left behind, of which it wrote a record: a process group, a container."""


class SqliteRuntime:
    """
    Runs calls that outlive their process, kept in a file of SQLite.

    Enter it with `async with`; leaving it stops what runs, leaves what waits, and closes nothing
    that it did not open. Calls that have not begun go on in whichever runtime has the batch next.

    Args:
        tools: A registry, or an executor whose settings are used; tools to make a registry from.
        path: The journal; made if it is not there.
        reapers: By the namespace of a record, what ends what a lost call left behind.
        lease: Seconds after which a process that was not heard of is taken for lost.
        poll: Seconds between two looks at what other processes wrote.
        patience: Seconds to wait for a lock on the file.
    """

    def __init__(
        self,
        tools: Executor | Registry | Iterable[Tool | Source],
        path: str | Path,
        *,
        reapers: Mapping[str, Reaper] | None = None,
        lease: float = 10.0,
        poll: float = 0.05,
        patience: float = 5.0,
    ) -> None:
        given = tools if isinstance(tools, Executor) else Executor(tools)
        self._executor = Executor(given.registry)
        self._executor.adopt(given)
        self._executor.asker = given.asker or _nobody_to_ask
        self._reapers = dict(reapers or {})
        self._host = Host(Path(path), lease=lease, poll=poll, patience=patience)
        self._drives: dict[str, Drive] = {}
        self._seen: set[str] = set()
        self._entered = False

    @property
    def inbox(self) -> JournalInbox:
        """Where people answer; what they say here is heard at once."""
        return JournalInbox(self._host)

    async def __aenter__(self) -> Self:
        if self._entered:
            raise FerruleError("a runtime is entered once; make another on the same file")
        self._entered = True
        await self._host.open()
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._look)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._host.closing = True
        self._tasks.cancel_scope.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)
        except* JournalError as group:
            raise leaf(group) from None
        finally:
            with anyio.CancelScope(shield=True):
                await self._leave()
        if self._host.interrupt is not None:
            raise self._host.interrupt

    async def _leave(self) -> None:
        """Let others have what is not settled, and close the journal."""
        try:
            for left in list(self._host.claims.values()):
                await self._host.insist(
                    functools.partial(release, claim=left, owner=self._host.owner)
                )
        finally:
            await self._host.close()

    # ---- batches -------------------------------------------------------------------------------

    async def submit(
        self, calls: Iterable[ToolCall], *, batch_id: str, caller: object = None
    ) -> "SqliteBatch":
        """
        Keep the calls of a turn, and run them; returns when they are durable.

        The same id with the same calls again is the same batch: nothing is run twice, and what the
        death of a process left is taken over.

        Args:
            calls: The calls of one turn.
            batch_id: Names the turn; no other turn has it.
            caller: Who asks, as the host knows people: a JSON value, since it is kept.

        Raises:
            BatchConflict: the id was given to other calls, or to another caller.
            InvalidValue: the caller is no JSON value, or the id is empty.
            JournalError: the journal cannot be written; nothing was kept, and nothing runs.
        """
        given = _checked(calls, batch_id)
        asker = caller_text(caller)
        its_digest = digest_of(given, asker)
        if not await self._propose(given, batch_id, its_digest, asker):
            await self.take(batch_id)
        return SqliteBatch(self, self._host, batch_id)

    async def _propose(
        self, calls: list[ToolCall], batch_id: str, its_digest: str, caller: str
    ) -> bool:
        """Keep a batch, and drive it; say whether it was not kept before."""
        plan = await self._executor.plan(calls)
        keys = [str(uuid.uuid4()) for _ in calls]
        made = await self._host.write(
            functools.partial(
                propose,
                batch=batch_id,
                its_digest=its_digest,
                plan=plan,
                keys=keys,
                caller=caller,
                owner=self._host.owner,
            )
        )
        if made is None:
            return False
        self._drive(*made, {}, read(caller))
        return True

    async def take(self, batch_id: str) -> bool:
        """Drive a batch here, if nobody who lives does; say whether it is driven here."""
        if batch_id in self._drives:
            return True
        made = await self._host.write(functools.partial(_claimed, batch_id, self._host.owner))
        if made is None:
            return False
        self._drive(*made)
        self._host.hear()  # Its calls may have been at work when their owner was lost.
        return True

    def _drive(
        self, made: Claim, rows: list[Row], asked: Mapping[str, Suspended], caller: object
    ) -> None:
        self._host.claims[made.batch] = made
        drive = self._drives[made.batch] = Drive(
            self._host,
            self._executor,
            self._tasks,
            made,
            caller=caller,
            reaping=self._reap,
            on_end=self._ended,
        )
        self._seen.add(made.batch)
        drive.begin(rows, asked)

    def _ended(self, drive: Drive) -> None:
        if self._drives.get(drive.claim.batch) is drive:
            del self._drives[drive.claim.batch]
            self._host.claims.pop(drive.claim.batch, None)
            self._host.tell()

    async def _look(self) -> None:
        """Look at the journal whenever it may have changed; for ever."""
        while True:
            with anyio.move_on_after(self._host.owner.seconds / 2):
                await self._host.changed()
            try:
                await self._look_once()
            except JournalError as error:
                if not error.passing:
                    raise
                logger.warning("the journal is away, and is looked at again: %s", error)
                await anyio.sleep(_PAUSE)
                self._host.hear()

    async def _look_once(self) -> None:
        for drive in list(self._drives.values()):
            await drive.look()
        idle = self._seen - self._drives.keys()
        if idle:
            for batch_id in idle & set(await self._host.read(_open_batches)):
                await self.take(batch_id)
        self._host.tell()  # Who waits for another process's batch looks whether that is lost.

    def drive_of(self, batch_id: str) -> Drive | None:
        """Return what drives a batch here, if it is driven here."""
        return self._drives.get(batch_id)

    async def recover(self) -> list["SqliteBatch"]:
        """
        Take over the batches that no living process drives; return those that go on here.

        A batch with a tool that is not here is left for a process that has it.
        """
        found = await self._host.read(_open_batches)
        taken: list[SqliteBatch] = []
        for batch_id, names in found.items():
            known = all(name in self._executor.registry for name in names)
            if known and await self.take(batch_id):
                taken.append(SqliteBatch(self, self._host, batch_id))
        return taken

    async def cancel(self, batch_id: str, call_id: str | None = None, *, by: str = "") -> None:
        """
        Stop a call, or all of a batch; what has not begun never does.

        A call that runs, here or in another process, is told to stop.

        Raises:
            AnswerRefused: there is no such batch, or no such call in it.
        """

        def work(tx: Transaction) -> None:
            for row in _meant(tx, batch_id, call_id):
                cancel(tx, row, by)

        await self._host.write(work)
        self._host.hear()

    # ---- what lost calls left behind -------------------------------------------------------------

    async def _reap(self, records: Iterable[Record]) -> bool:
        """End what the records name, newest first; say whether all could be ended."""
        return all(
            [
                await self._reaped(self._reapers[record.namespace], record)
                for record in reversed(list(records))
                if record.namespace in self._reapers
            ]
        )

    async def _reaped(self, reaper: Reaper, record: Record) -> bool:
        # As a tool, as an executor contains whatever it does and logs it with a reference.
        async def reap(_: dict[str, object], __: Context) -> str:
            done = reaper(record)
            if inspect.isawaitable(done):
                await done
            return ""

        tool = RawTool(Definition(f"reaper/{record.namespace.replace(':', '.')}"), reap)
        outcome = (await Executor([tool]).run([ToolCall.of(tool.definition.name)]))[0]
        if isinstance(outcome, Failed):  # Any other error the executor logs; this one is for us.
            logger.error("a %s was not ended: %s", record.namespace, outcome.failure)
        return isinstance(outcome, Completed)


class SqliteBatch:
    """The calls of one turn, as the journal has them; see `ferrule.ports.DurableBatch`."""

    def __init__(self, runtime: SqliteRuntime, host: Host, batch_id: str) -> None:
        self._runtime = runtime
        self._host = host
        self._id = batch_id

    def __repr__(self) -> str:
        return f"<SqliteBatch {self._id!r}>"

    @property
    def id(self) -> str:
        """The batch's id, as given."""
        return self._id

    async def settled(self) -> list[Outcome]:
        """
        Return how each call ended, in the calls' order, when all have.

        People may have to answer first, here or in another process: see `at_rest`.
        """
        return await self._wait(through_questions=True)

    async def at_rest(self) -> list[Outcome]:
        """Return as `settled`, but when nothing goes on without a person: some are `Suspended`."""
        return await self._wait(through_questions=False)

    async def _wait(self, *, through_questions: bool) -> list[Outcome]:
        drive: Drive | None = None
        while True:
            news = self._host.news
            here = self._runtime.drive_of(self._id)
            drive = here or drive
            if drive is not None and drive.is_settled:
                return drive.standing
            if here is None or (here.rests and not through_questions):
                # What was answered, here or elsewhere, may be known to the journal alone.
                standing = await self._host.read(functools.partial(outcomes, batch=self._id))
                known = [one for one in standing if one is not None]
                waits = through_questions and any(isinstance(one, Suspended) for one in known)
                if len(known) == len(standing) and not waits:
                    return known
                await self._runtime.take(self._id)
            await news.wait()

    @property
    def events(self) -> AsyncIterator[Moved]:
        """The batch's history from its beginning, then live, until every call is settled."""
        return _Events(self._runtime, self._host, self._id)


class _Events:
    """The history of a batch, followed; no generator, so that who stops reading leaves nothing."""

    def __init__(self, runtime: SqliteRuntime, host: Host, batch_id: str) -> None:
        self._runtime = runtime
        self._host = host
        self._id = batch_id
        self._lines: deque[Moved] = deque()
        self._last = 0
        self._is_open = True
        self._news: anyio.Event | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Moved:
        growth: anyio.Event | None = None
        while not self._lines:
            if not self._is_open:
                raise StopAsyncIteration
            if growth is not None:
                await self._take()
                await growth.wait()
            growth = self._host.growth
            lines, self._is_open = await self._host.read(self._since)
            self._lines.extend(lines)
        line = self._lines.popleft()
        self._last = line.seq
        return line

    async def _take(self) -> None:
        """Drive the batch here if nobody does; looked at again only when something has changed."""
        if self._news is None or self._news.is_set():
            self._news = self._host.news
            await self._runtime.take(self._id)

    def _since(self, tx: Transaction) -> tuple[list[Moved], bool]:
        row = tx.row("SELECT open FROM batches WHERE id = ?", self._id)
        return history(tx, batch=self._id, after=self._last), row is not None and bool(row["open"])


def _claimed(
    batch_id: str, owner: Owner, tx: Transaction
) -> tuple[Claim, list[Row], dict[str, Suspended], object] | None:
    """Claim a batch; return it with its calls and who asked for them."""
    made = claim(tx, batch_id, owner)
    row = tx.row("SELECT caller FROM batches WHERE id = ?", batch_id)
    if made is None or row is None:
        return None
    rows = calls_where(tx, "batch = ?", batch_id)
    asking = ((one.id, asked_by(tx, one)) for one in rows if one.state == "suspended")
    asked = {call_id: request for call_id, request in asking if request is not None}
    return made, rows, asked, read(row["caller"])


def _open_batches(tx: Transaction) -> dict[str, set[str]]:
    """Return the batches that are not settled, each with the tools that its calls still need."""
    found: dict[str, set[str]] = {}
    for row in tx.rows(
        "SELECT b.id, c.name FROM batches b JOIN calls c ON c.batch = b.id WHERE b.open "
        "AND c.state NOT IN ('completed', 'failed', 'rejected', 'cancelled') ORDER BY b.rowid"
    ):
        found.setdefault(row["id"], set()).add(row["name"])
    return found


def leaf(group: BaseExceptionGroup[JournalError]) -> JournalError:
    """Return one error of a group: they say the same of one file."""
    one = group.exceptions[0]
    return leaf(one) if isinstance(one, BaseExceptionGroup) else one


def _checked(calls: Iterable[ToolCall], batch_id: str) -> list[ToolCall]:
    if not batch_id or not batch_id.isprintable():
        raise InvalidValue("a batch has an id of printable characters: batch_id=…")
    given = list(calls)
    if not all(isinstance(call, ToolCall) for call in given):
        raise InvalidValue("a durable batch is made of ToolCall; its legs are the runtime's")
    return given


def _meant(tx: Transaction, batch_id: str, call_id: str | None) -> list[Row]:
    if call_id is not None:
        row = find(tx, call_id if call_id.startswith(f"{batch_id}/") else f"{batch_id}/{call_id}")
        return [row]
    rows = calls_where(tx, "batch = ?", batch_id)
    if not rows:
        raise AnswerRefused(f"there is no batch {batch_id}")
    return rows


async def _nobody_to_ask(_: Context, question: Question) -> Accepted[Any] | Declined:
    raise Failure(
        "nobody can be asked while this call runs; a tool that needs an answer returns an "
        f"InputRequest and goes on later ({question.message})"
    )
