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
from collections import deque
from collections.abc import Iterable
from typing import Protocol

import anyio

from ferrule import (
    Batch,
    Cancelled,
    Executor,
    Finished,
    Leg,
    Outcome,
    Record,
    Rejected,
    Schedule,
    Suspended,
    Unknown,
)
from ferrule.errors import Fenced
from ferrule.runtime._batches import (
    Behind,
    Claim,
    authorize,
    dispatch,
    free,
    lose,
    lost,
    release,
    runs_again,
)
from ferrule.runtime._calls import (
    Ending,
    Row,
    call_of,
    calls_where,
    end_early,
    end_leg,
    keep_record,
    step,
)
from ferrule.runtime._history import kept
from ferrule.runtime._host import Host, logger
from ferrule.runtime._store import Transaction
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
        row: Its call as it was when the leg began.
        fence: Under which dispatch the tool is at work; `None` before.
        scope: What stops it.
        void: Whether it must not begin after all, and nothing is to be kept of it.
    """

    def __init__(self, drive: "Drive", row: Row) -> None:
        self.drive = drive
        self.row = row
        self.fence: int | None = None
        self.scope = anyio.CancelScope()
        self.void = False
        self.has_slot = False
        self.is_kept = False
        self.writing: anyio.Event | None = None
        self.answer: int | Behind | None = None
        self.outcome: Outcome | None = None


class Drive:
    """One batch that this process drives."""

    def __init__(
        self,
        host: Host,
        executor: Executor,
        claim: Claim,
        caller: object,
        reaping: Reaping,
        by_key: dict[str, "Running"],
    ) -> None:
        self._host = host
        self._executor = executor
        self._claim = claim
        self._caller = caller
        self._reap = reaping
        self._by_key = by_key
        self._slots = anyio.Semaphore(executor.max_parallel)
        self._window = max(_WINDOW, 4 * executor.max_parallel)
        self._due: deque[Row] = deque()
        self._first: dict[str, int] = {}
        self._turns: dict[int, anyio.Event] = {}
        self._open: set[str] = set()
        self._recent: set[str] = set()
        self.running: dict[str, Running] = {}

    # ---- the batch -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Drive the batch until each call is settled, or somebody else has it."""
        try:
            async with anyio.create_task_group() as self._tasks:
                await self._begin()
                while self._open:
                    news = self._host.news
                    await self._look()
                    if self._open:
                        await news.wait()
        except* Fenced as fenced:
            logger.warning("%s; it goes on there", fenced.exceptions[0])
        finally:
            self._host.claims.pop(self._claim.batch, None)
            with anyio.CancelScope(shield=True):
                await self._host.insist(
                    functools.partial(release, claim=self._claim, owner=self._host.owner)
                )
            self._host.tell()

    async def _begin(self) -> None:
        """Read the calls and fix their order; those that are further already hold nobody back."""
        rows = await self._host.read(lambda tx: calls_where(tx, "batch = ?", self._claim.batch))
        self._open = {row.id for row in rows if row.state not in SETTLED}
        inside = [row.state in {*PENDING, "dispatched"} for row in rows]
        self._schedule = Schedule(
            [row.uses if here else None for row, here in zip(rows, inside, strict=True)]
        )
        self._names = [row.id for row in rows]
        for row, here in zip(rows, inside, strict=True):
            if here:
                self._first[row.id] = row.position
                self._turns[row.position] = anyio.Event()
        for position in self._schedule.ready():
            self._turns[position].set()
        self._due.extend(row for row in rows if row.state in PENDING)
        self._start()

    async def _look(self) -> None:
        """Do what the journal says is to be done: answers, cancellations, owners that were lost."""
        if await self._host.read(self._is_fenced):
            raise Fenced(f"batch {self._claim.batch} is not this process's any more")
        for row in await self._host.read(
            functools.partial(lost, claim=self._claim, owner=self._host.owner)
        ):
            await self._lose(row)
        self._recent.clear()
        rows = await self._host.read(self._moving)
        self._open = {row.id for row in rows}
        self._due = deque(row for row in self._due if row.id in self._open)
        queued = {row.id for row in self._due} | self._recent  # What is read may be older than it.
        for row in rows:
            running = self.running.get(row.id)
            if running is not None:
                if row.told:
                    running.scope.cancel()
            elif row.state in PENDING and row.id not in queued:
                self._due.append(row)
        for call_id in set(self.running) - self._open:
            self.running[call_id].scope.cancel()  # Cancelled before it began.
        for call_id in set(self._first) - self._open - set(self.running):
            self._pass_on(call_id)
        self._start()

    def _is_fenced(self, tx: Transaction) -> bool:
        row = tx.row("SELECT owner, fence FROM batches WHERE id = ?", self._claim.batch)
        mine = (self._host.owner.id, self._claim.fence)
        return row is None or (row["owner"], row["fence"]) != mine

    def _moving(self, tx: Transaction) -> list[Row]:
        return calls_where(
            tx,
            "batch = ? AND state NOT IN ('completed', 'failed', 'rejected', 'cancelled') "
            "AND state != 'unknown'",
            self._claim.batch,
        )

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
                claim=self._claim,
                owner=self._host.owner,
                row=row,
                again=again,
                reference=reference,
            )
        )

    # ---- legs ----------------------------------------------------------------------------------

    def _start(self) -> None:
        """Begin the legs that are due, as many as may be under way."""
        while self._due and len(self.running) < self._window and not self._host.closing:
            row = self._due.popleft()
            running = self.running[row.id] = Running(self, row)
            self._by_key[row.idempotency_key] = running
            self._tasks.start_soon(self._leg, running)

    async def _leg(self, running: Running) -> None:
        row = running.row
        try:
            leg = await self._leg_of(row)
            await self._run_leg(running, self._executor.batch([leg], caller=self._caller))
        finally:
            self._recent.add(row.id)
            self.running.pop(row.id, None)
            self._by_key.pop(row.idempotency_key, None)
            self._host.running.pop(row.id, None)
            if running.has_slot:
                self._slots.release()
            if running.is_kept:
                self._pass_on(row.id)
            self._start()
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

    async def _leg_of(self, row: Row) -> Leg:
        if row.leg == 1:
            return Leg(row.call, idempotency_key=row.idempotency_key)
        return await self._host.read(functools.partial(leg_of, row=row))

    def _pass_on(self, call_id: str) -> None:
        """Let those have their turn that waited for a call which needs its own no more."""
        position = self._first.pop(call_id, None)
        if position is not None:
            self._turns[position].set()
            for following in self._schedule.finish(position):
                self._turns[following].set()

    # ---- when a leg may begin ------------------------------------------------------------------

    async def turn(self, running: Running) -> None:
        """Wait until a leg that is permitted may begin, and keep that it does."""
        await self._in_order(running)
        while True:
            news = self._host.news
            await self._slots.acquire()
            running.has_slot = True
            answer = await self._dispatch(running)
            if isinstance(answer, int):
                return
            if answer is None:
                await self._give_up(running)
            running.has_slot = False
            self._slots.release()
            await news.wait()

    async def _in_order(self, running: Running) -> None:
        """Wait for the turn of a call in its batch; that it waits, and for whom, is kept."""
        position = self._first.get(running.row.id)
        if position is None or self._turns[position].is_set():
            return
        before = self._schedule.after[position]
        behind = [self._names[one] for one in before if self._names[one] in self._first]
        await self._host.insist(
            functools.partial(
                authorize,
                claim=self._claim,
                owner=self._host.owner,
                call_id=running.row.id,
                behind=behind,
            )
        )
        await self._turns[position].wait()

    async def _dispatch(self, running: Running) -> int | Behind | None:
        # By a task of the batch: a worker that is told to stop would not hear what was kept.
        running.writing = anyio.Event()
        self._tasks.start_soon(self._write_dispatch, running)
        await running.writing.wait()
        return running.answer

    async def _write_dispatch(self, running: Running) -> None:
        try:
            with anyio.CancelScope(shield=True):
                running.answer = await self._host.insist(
                    functools.partial(
                        dispatch,
                        claim=self._claim,
                        owner=self._host.owner,
                        call_id=running.row.id,
                    )
                )
            if isinstance(running.answer, int):
                running.fence = running.answer
                self._host.running[running.row.id] = running.answer
        finally:
            if running.writing is not None:
                running.writing.set()

    async def _give_up(self, running: Running) -> None:
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
            if running.writing is not None:
                await running.writing.wait()
            if running.fence is not None:
                await self._keep_end(running, running.fence, outcome)
            elif not (isinstance(outcome, Cancelled) and (running.void or self._is_leaving)):
                await self._host.insist(
                    functools.partial(self._end_early, running=running, outcome=outcome)
                )
                running.is_kept = True
            if not isinstance(outcome, Suspended) and running.is_kept:
                self._open.discard(running.row.id)

    @property
    def _is_leaving(self) -> bool:
        """Whether what has not begun is left for whoever drives the batch next."""
        return self._host.closing or self._tasks.cancel_scope.cancel_called

    def _end_early(self, tx: Transaction, running: Running, outcome: Outcome) -> None:
        row = call_of(tx, running.row.id)
        if row.state not in PENDING or row.leg != running.row.leg:
            return  # It was cancelled, and that is kept.
        if isinstance(outcome, Suspended):
            wait = open_wait(tx, row, outcome.request)
            row = self._without_permission(tx, row)
            step(tx, row, "ask", data={"wait": wait, "message": outcome.request.message})
        elif isinstance(outcome, Rejected | Cancelled):
            end_early(tx, row.id, outcome)

    @staticmethod
    def _without_permission(tx: Transaction, row: Row) -> Row:
        """Return a call that asks, which had no permission then."""
        return step(tx, row, "recall") if row.state == "authorized" else row

    async def _keep_end(self, running: Running, fence: int, outcome: Outcome) -> None:
        again = self._is_leaving and isinstance(outcome, Unknown) and outcome.reason == "cancelled"
        work = functools.partial(self._end, running=running, fence=fence, outcome=outcome)
        if again:
            work = functools.partial(self._give_back, running=running, fence=fence, outcome=outcome)
        ending = await self._host.insist(work)
        running.is_kept = True
        if ending == "evidence":
            logger.warning(
                'tool "%s", call "%s" ended here after it was taken for lost',
                *(running.row.call.name, running.row.id),
            )

    def _end(self, tx: Transaction, running: Running, fence: int, outcome: Outcome) -> Ending:
        row = call_of(tx, running.row.id)
        if isinstance(outcome, Suspended) and row.state == "dispatched" and row.fence == fence:
            open_wait(tx, row, outcome.request)
        # Who was given up may be at work still.
        still = isinstance(outcome, Unknown) and outcome.reason in {"timed_out", "still_running"}
        return end_leg(tx, row.id, fence, running.row.leg, outcome, still=still)

    def _give_back(self, tx: Transaction, running: Running, fence: int, outcome: Outcome) -> Ending:
        """Let the next process run a call again that was stopped here and takes no harm from it."""
        row = call_of(tx, running.row.id)
        if row.state == "dispatched" and row.fence == fence and runs_again(row) and not row.told:
            step(tx, row, "again", owner=None, lease=None)
            tx.run("DELETE FROM holds WHERE call = ?", row.id)
            return "kept"
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

    async def record(self, running: Running, record: Record) -> None:
        """Keep a record of a running call."""
        if running.fence is None:
            raise Fenced(f"call {running.row.id} has not begun")
        await self._host.write(
            functools.partial(
                keep_record, call_id=running.row.id, fence=running.fence, record=record
            )
        )
