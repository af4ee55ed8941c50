"""
One batch, driven: its legs run, in order where they must, each step kept before the next one shows.

Theory. Each leg is a batch of one call on the executor, which brings everything that a running
call needs: checks, guards, time limits, stopping, threads that never end. What is ours is when it
may begin. The executor asks its guards at once; then it waits for us (`turn`): until its turn in
the batch has come, a slot is free, and the journal says that nobody holds what it works on. The
dispatch is kept, and only then does the tool begin. How it ended is kept before whoever waits for
it may begin. A leg that ends in a question ends here as well: what it held is free, and no task
waits. When an answer is in the journal, whoever drives the batch finds it and starts the next leg.

What a process that is ending does: a call that has not begun is left for the next one. One that has
begun is told to stop; if it ends without an outcome and runs again without harm, it is given back,
else it is unknown.
"""

import functools
import secrets
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from ferrule import (
    Batch,
    Cancelled,
    Completed,
    Context,
    Executor,
    Failed,
    Failure,
    Finished,
    Leg,
    Outcome,
    Record,
    Rejected,
    Result,
    Schedule,
    Suspended,
    Unknown,
    outcome_of,
)
from ferrule.errors import Fenced, InvalidValue, JournalError
from ferrule.runtime._batches import (
    Behind,
    Claim,
    authorize,
    check,
    dispatch,
    free,
    lose,
    lost,
    runs_again,
)
from ferrule.runtime._calls import (
    Ending,
    Row,
    call_of,
    end_early,
    end_leg,
    keep_record,
    last_seq,
    step,
)
from ferrule.runtime._history import asked_by, kept
from ferrule.runtime._host import Host, logger
from ferrule.runtime._store import Transaction, Work
from ferrule.runtime._waits import leg_of, open_wait
from ferrule.states import PENDING, SETTLED

_WINDOW = 64
"""Legs of a batch that are under way at a time, at least; those in order, and so none waits in vain
for one that is not."""


class Reaping(Protocol):
    """What ends what a lost call left behind."""

    async def __call__(self, records: Iterable[Record]) -> bool:
        """Return whether everything was ended that the records name."""
        ...


class Running:
    """
    One leg under way.

    Attributes:
        drive: What drives its batch.
        row: Its call as it was when the leg began.
        fence: Under which dispatch the tool is at work; `None` before.
        scope: What stops it.
        void: Whether it must not begin after all, and nothing is to be kept of it.
        has_slot: Whether it has a slot of its batch.
        is_kept: Whether it is kept how it ended.
        written: Set when it is known whether its dispatch was kept; `None` before that is tried.
        outcome: How it ended, once it has.
    """

    __slots__ = (
        "drive", "fence", "has_slot", "is_kept", "outcome", "row", "scope", "void", "written",
    )  # fmt: skip

    def __init__(self, drive: "Drive", row: Row) -> None:
        self.drive = drive
        self.row = row
        self.fence: int | None = None
        self.scope = anyio.CancelScope()
        self.void = False
        self.has_slot = False
        self.is_kept = False
        self.written: anyio.Event | None = None
        self.outcome: Outcome | None = None


class Drive:
    """
    One batch that this process drives.

    Args:
        host: The journal.
        executor: What runs the legs, by its settings; what it hears of calls, it hears after us.
        tasks: Where they run.
        claim: The batch.
        caller: Who asked for it.
        reaping: Ends what lost calls left behind.
        on_end: Called once it is not driven here any more.
    """

    def __init__(  # each by keyword; what a batch is driven with
        self,
        host: Host,
        executor: Executor,
        tasks: TaskGroup,
        claim: Claim,
        *,
        caller: object,
        reaping: Reaping,
        on_end: "Callable[[Drive], None]",
    ) -> None:
        self._host = host
        self._given = executor
        # Each drive has its own: a batch that this process lost and has claimed again may have
        # two legs of one call under way, of which one is to be heard no more.
        self._executor = Executor(executor.registry)
        self._executor.adopt(executor)
        self._executor.turn, self._executor.recorder = self._turn, self._record
        self._executor.on_late = self._late
        self._by_key: dict[str, Running] = {}
        self._contexts: weakref.WeakKeyDictionary[Context, Running] = weakref.WeakKeyDictionary()
        self._tasks = tasks
        self.claim = claim
        self._caller = caller
        self._reap = reaping
        self._on_end = on_end
        self._slots = anyio.Semaphore(executor.max_parallel)
        self._window = max(_WINDOW, 4 * executor.max_parallel)
        self._due: deque[Row] = deque()
        self._first: dict[str, int] = {}
        self._turns: dict[int, anyio.Event] = {}
        self._passing: set[int] = set()
        self._open: set[str] = set()
        self._asking: set[str] = set()
        self._recent: set[str] = set()
        self._ended: dict[str, Outcome] = {}
        self._running: dict[str, Running] = {}
        self._seq = claim.seq
        self._is_lost = False

    # ---- the batch -----------------------------------------------------------------------------

    def begin(self, rows: list[Row], asked: Mapping[str, Suspended]) -> None:
        """
        Fix the order of the calls, and start; those that are further hold nobody back.

        Args:
            rows: The calls, in order.
            asked: What those ask that wait for an answer.
        """
        self._open = {row.id for row in rows if row.state not in SETTLED}
        self._ended = {row.id: row.outcome for row in rows if row.outcome and row.state in SETTLED}
        self._ended |= asked
        self._asking = set(asked)
        inside = [row.state in {*PENDING, "dispatched"} for row in rows]
        self._schedule = Schedule(
            [row.uses if here else None for row, here in zip(rows, inside, strict=True)]
        )
        self._names = [row.id for row in rows]
        self._first = {row.id: row.position for row, here in zip(rows, inside, strict=True) if here}
        for position in self._schedule.ready():
            self._turn_of(position).set()
        self._due.extend(row for row in rows if row.state in PENDING)
        self._start()
        self._end_if_settled()

    def _turn_of(self, position: int) -> anyio.Event:
        return self._turns.setdefault(position, anyio.Event())

    def _end_if_settled(self) -> None:
        if not self._open and not self._running:
            self._on_end(self)

    @property
    def is_settled(self) -> bool:
        """Whether all calls are settled."""
        return not self._open

    @property
    def rests(self) -> bool:
        """Whether nothing goes on before a person has answered; or all are settled."""
        return len(self._open) == len(self._asking)

    @property
    def standing(self) -> list[Outcome]:
        """How each call ended or what it asks, in order; complete when the batch rests."""
        return [self._ended[row] for row in self._names if row in self._ended]

    async def look(self) -> None:
        """Do what the journal says is to be done: answers, cancellations, owners that were lost."""
        try:
            await self._look()
        except Fenced as fenced:
            self.lose(fenced)

    def lose(self, fenced: Fenced) -> None:
        """Drive the batch no more: somebody else does."""
        if self._is_lost:
            return
        self._is_lost = True
        logger.warning("%s; it goes on there", fenced)
        self._due.clear()
        for running in self._running.values():
            running.scope.cancel()
        self._on_end(self)

    async def _look(self) -> None:
        if await self._host.read(self._is_fenced):
            raise Fenced(f"batch {self.claim.batch} is not this process's any more")
        for row in await self._host.read(self._lost):
            await self._lose(row)
        self._recent.clear()
        seq, changed = await self._host.read(self._changed)
        if self._recent.isdisjoint(row.id for row, _ in changed):
            self._seq = seq
        else:  # What was read may be older than what has ended here since: read it again.
            self._host.hear()
        for row, asked in changed:
            if row.id not in self._recent:
                self._take(row, asked)
        self._start()
        self._end_if_settled()
        self._host.tell()

    def _take(self, row: Row, asked: Suspended | None) -> None:
        """Do what the state of one call asks for."""
        running = self._running.get(row.id)
        self._asking.discard(row.id)
        if row.state in SETTLED and row.outcome is not None:
            self._open.discard(row.id)
            self._ended[row.id] = row.outcome
        else:
            self._open.add(row.id)
        if running is not None:
            if row.told or row.state in SETTLED:
                running.scope.cancel()
            return
        self._due = deque(other for other in self._due if other.id != row.id)
        if row.state in PENDING:
            self._due.append(row)
        elif row.state in SETTLED:
            self._pass_on(row.id)
        elif asked is not None:
            self._asking.add(row.id)
            self._ended[row.id] = asked

    def _is_fenced(self, tx: Transaction) -> bool:
        row = tx.row("SELECT open, owner, fence FROM batches WHERE id = ?", self.claim.batch)
        mine = (self._host.owner.id, self.claim.fence)
        return row is None or (bool(row["open"]) and (row["owner"], row["fence"]) != mine)

    def _lost(self, tx: Transaction) -> list[Row]:
        return lost(tx, self.claim, self._host.owner)

    def _changed(self, tx: Transaction) -> tuple[int, list[tuple[Row, Suspended | None]]]:
        """Return the calls of which the history has said something since it was last read."""
        found = tx.rows(
            "SELECT DISTINCT call FROM history WHERE seq > ? AND batch = ?",
            *(self._seq, self.claim.batch),
        )
        rows = (call_of(tx, line["call"]) for line in found)
        return last_seq(tx), [
            (row, asked_by(tx, row) if row.state == "suspended" else None) for row in rows
        ]

    async def _lose(self, row: Row) -> None:
        """Have a call whose owner is lost run again, or be unknown."""
        records = await self._host.read(functools.partial(kept, call=row.id))
        mine = [one.record for one in records if one.fence == row.fence]
        again = await self._reap(mine) and runs_again(row)
        reference = None if again else secrets.token_hex(4)
        if reference is not None:
            logger.error(
                'reference %s: tool "%s", call "%s": its owner was lost after it was dispatched',
                *(reference, row.call.name, row.id),
            )
        await self._host.insist(
            functools.partial(
                lose,
                claim=self.claim,
                owner=self._host.owner,
                row=row,
                again=again,
                reference=reference,
            )
        )

    # ---- legs ----------------------------------------------------------------------------------

    def _start(self) -> None:
        """Begin the legs that are due, as many as may be under way."""
        while self._due and len(self._running) < self._window and not self._is_leaving:
            row = self._due.popleft()
            self._asking.discard(row.id)
            self._passing.discard(row.position)  # It asked before its turn, and is to have it now.
            running = self._running[row.id] = Running(self, row)
            self._by_key[row.idempotency_key] = running
            self._tasks.start_soon(self._leg, running)

    async def _leg(self, running: Running) -> None:
        row = running.row
        try:
            leg = await self._leg_of(row)
            if isinstance(leg, InvalidValue):
                outcome = outcome_of(leg, tool=row.call.name, call_id=row.id, dispatched=False)
                await self._keep(running, outcome)
            else:
                await self._run_leg(running, self._executor.batch([leg], caller=self._caller))
        except Fenced as fenced:
            self.lose(fenced)
        except KeyboardInterrupt as interrupt:  # Whoever entered the runtime is to have it.
            self._host.interrupt = interrupt
            self._host.closing = True
            self._tasks.cancel_scope.cancel()
        finally:
            del self._running[row.id]
            del self._by_key[row.idempotency_key]
            if self._host.running.get(row.id) == running.fence:
                self._host.running.pop(row.id, None)
            if running.has_slot:
                self._slots.release()
            if running.is_kept or row.id not in self._open:
                self._pass_on(row.id)
            self._start()
            self._end_if_settled()
            self._host.tell()

    async def _run_leg(self, running: Running, batch: Batch) -> None:
        try:
            with running.scope:
                async with batch:
                    async for event in batch:
                        if isinstance(event, Finished):
                            await self._keep(running, event.outcome)
        finally:
            with anyio.CancelScope(shield=True):
                for outcome in batch.outcomes:
                    await self._keep(running, outcome)
                await self._leave(running)

    async def _leg_of(self, row: Row) -> Leg | InvalidValue:
        """Return the leg to run; or why what is kept makes none, as somebody changed it."""
        if row.leg == 1:
            return Leg(row.call, idempotency_key=row.idempotency_key)
        try:
            return await self._host.insist(functools.partial(leg_of, row=row))
        except InvalidValue as broken:
            return broken

    def _pass_on(self, call_id: str) -> None:
        """
        Let those have their turn that waited for a call which needs its own no more.

        A call that ended before its turn came takes it all the same when it comes: who waits for
        it waits through it for those before.
        """
        ended = [call_id]
        while ended:
            name = ended.pop()
            position = self._first.get(name)
            if position is None:
                continue
            if not self._turn_of(position).is_set():
                self._passing.add(position)
                continue
            del self._first[name]
            for following in self._schedule.finish(position):
                self._turn_of(following).set()
                if following in self._passing:
                    ended.append(self._names[following])

    # ---- when a leg may begin ------------------------------------------------------------------

    async def _turn(self, context: Context) -> None:
        """Wait until a leg that is permitted may begin, and keep that it does."""
        running = self._contexts[context] = self._by_key[context.idempotency_key]
        if self._given.turn is not None:
            await self._given.turn(context)
        try:
            await self._in_order(running)
            await self._begin_leg(running)
        except Fenced as fenced:
            self.lose(fenced)
            await self._give_up(running)

    async def _in_order(self, running: Running) -> None:
        """Wait for the turn of a call in its batch; that it waits, and for whom, is kept."""
        position = self._first.get(running.row.id)
        if position is None or self._turn_of(position).is_set():
            return
        before = self._schedule.after[position]
        behind = [self._names[one] for one in before if self._names[one] in self._first]
        await self._host.insist(
            functools.partial(
                authorize,
                claim=self.claim,
                owner=self._host.owner,
                call_id=running.row.id,
                behind=behind,
            )
        )
        await self._turn_of(position).wait()

    async def _begin_leg(self, running: Running) -> None:
        """Wait for a slot and for what the call works on, and keep that it begins."""
        while True:
            if self._slots.value:
                self._slots.acquire_nowait()
            else:
                await self._slots.acquire()
            running.has_slot = True
            news = self._host.news if running.row.uses else None
            answer = await self._dispatch(running)
            if isinstance(answer, int):
                return
            if answer is None:
                await self._give_up(running)
            running.has_slot = False
            self._slots.release()
            if news is not None:
                await news.wait()

    async def _dispatch(self, running: Running) -> int | Behind | None:
        pause = 0.05
        while True:
            written = running.written = anyio.Event()
            work: Work[int | Behind | None] = Work(
                functools.partial(
                    dispatch,
                    claim=self.claim,
                    owner=self._host.owner,
                    call_id=running.row.id,
                ),
                writes=True,
                # Also when the worker was told to stop meanwhile: what is kept must be known.
                then=functools.partial(self._dispatched, running, written),
            )
            self._host.post(work)
            await written.wait()
            if not isinstance(work.error, JournalError) or not work.error.passing:
                return work.result
            await anyio.sleep(pause)
            pause = min(2 * pause, 1.0)

    def _dispatched(
        self, running: Running, written: anyio.Event, work: Work[int | Behind | None]
    ) -> None:
        if work.error is None and isinstance(work.result, int):
            running.fence = self._host.running[running.row.id] = work.result
        written.set()

    @staticmethod
    async def _give_up(running: Running) -> None:
        """Have a leg end that must not begin: it was cancelled, or is elsewhere by now."""
        running.void = True
        running.scope.cancel()
        await anyio.sleep_forever()

    # ---- how a leg ends ------------------------------------------------------------------------

    async def _keep(self, running: Running, outcome: Outcome) -> None:
        """Keep how a leg ended; only the first time."""
        if running.outcome is not None:
            return
        running.outcome = outcome
        with anyio.CancelScope(shield=True):
            if running.written is not None:
                await running.written.wait()
            kept: Outcome | None = None
            if running.fence is not None:
                kept = await self._keep_end(running, running.fence, outcome)
            elif not (isinstance(outcome, Cancelled) and (running.void or self._is_leaving)):
                kept = await self._host.insist(
                    functools.partial(self._end_early, running=running, outcome=outcome)
                )
                running.is_kept = True
            if kept is not None:
                self._note(running.row.id, kept)
            if isinstance(outcome, Unknown):
                self._host.tell()  # Its thread may go on for as long as it likes.

    def _note(self, call_id: str, outcome: Outcome) -> None:
        """Note how a call stands now."""
        self._recent.add(call_id)
        self._ended[call_id] = outcome
        if isinstance(outcome, Suspended):
            self._asking.add(call_id)
            return
        self._open.discard(call_id)

    @property
    def _is_leaving(self) -> bool:
        """Whether what has not begun is left for whoever drives the batch next."""
        return self._host.closing or self._is_lost

    def _end_early(self, tx: Transaction, running: Running, outcome: Outcome) -> Outcome | None:
        """Keep that a leg ended before it was dispatched; return what is kept."""
        check(tx, self.claim, self._host.owner)
        row = call_of(tx, running.row.id)
        if row.state not in PENDING or row.leg != running.row.leg:
            return row.outcome  # It was cancelled, and that is kept.
        if isinstance(outcome, Suspended):
            wait = open_wait(tx, row, outcome.request)
            row = self._without_permission(tx, row)
            step(tx, row, "ask", data={"wait": wait, "message": outcome.request.message})
        elif isinstance(outcome, Rejected | Cancelled):
            return end_early(tx, row, outcome)
        return outcome

    @staticmethod
    def _without_permission(tx: Transaction, row: Row) -> Row:
        """Return a call that asks, which had no permission then."""
        return step(tx, row, "recall") if row.state == "authorized" else row

    async def _keep_end(self, running: Running, fence: int, outcome: Outcome) -> Outcome | None:
        """Keep how a dispatched leg ended; return what is kept, unless it is evidence."""
        again = self._is_leaving and isinstance(outcome, Unknown) and outcome.reason == "cancelled"
        how = self._give_back if again else self._end
        ending = await self._host.insist(
            functools.partial(how, running=running, fence=fence, outcome=outcome)
        )
        running.is_kept = ending != "given back"
        if ending == "evidence":
            logger.warning(
                'tool "%s", call "%s" ended here after it was taken for lost',
                *(running.row.call.name, running.row.id),
            )
            self._host.hear()
        return None if isinstance(ending, str) else ending

    def _end(self, tx: Transaction, running: Running, fence: int, outcome: Outcome) -> Ending:
        row = call_of(tx, running.row.id)
        if isinstance(outcome, Suspended) and row.state == "dispatched" and row.fence == fence:
            open_wait(tx, row, outcome.request)
        # Who was given up may be at work still.
        still = isinstance(outcome, Unknown) and outcome.reason in {"timed_out", "still_running"}
        return end_leg(tx, row, fence, running.row.leg, outcome, still=still)

    def _give_back(self, tx: Transaction, running: Running, fence: int, outcome: Outcome) -> Ending:
        """Let the next process run a call again that was stopped here and takes no harm from it."""
        row = call_of(tx, running.row.id)
        if row.state == "dispatched" and row.fence == fence and runs_again(row):
            step(tx, row, "again", owner=None, lease=None)
            tx.run("DELETE FROM holds WHERE call = ?", row.id)
            return "given back"
        return self._end(tx, running, fence, outcome)

    async def _leave(self, running: Running) -> None:
        """Hold what a call works on that was reported and has not ended; else let it go."""
        outcome, fence = running.outcome, running.fence
        if fence is None or not isinstance(outcome, Unknown) or not running.row.uses:
            return
        if outcome.reason not in {"timed_out", "still_running"}:
            return
        is_at_work = functools.partial(self._executor.stuck.holds, running.row.uses)
        if is_at_work():
            self._host.left(running.row.id, fence, is_at_work)
        else:
            await self._host.insist(functools.partial(free, call_id=running.row.id, fence=fence))

    # ---- what a running call says --------------------------------------------------------------

    async def _record(self, context: Context, record: Record) -> None:
        running = self._contexts[context]
        if running.fence is None:
            raise Fenced(f"call {running.row.id} has not begun")
        await self._host.write(
            functools.partial(
                keep_record, call_id=running.row.id, fence=running.fence, record=record
            )
        )
        if self._given.recorder is not None:
            await self._given.recorder(context, record)

    def _late(self, context: Context, ended: object) -> None:
        running = self._contexts.get(context)
        fence = running.fence if running is not None else None
        if running is not None and fence is not None:
            self._host.file(running.row.id, fence, running.row.leg, _evidence(ended, context.tool))
        if self._given.on_late is not None:
            self._given.on_late(context, ended)


def _evidence(ended: object, tool: str) -> Outcome:
    if isinstance(ended, Result):
        return Completed(ended)
    if isinstance(ended, Failure):
        return Failed(ended, tool=tool)
    error = ended if isinstance(ended, BaseException) else None
    return Unknown("raised", error=error, tool=tool)
