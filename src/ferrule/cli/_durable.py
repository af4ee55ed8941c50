"""
`ferrule run --journal`: the calls of one response, kept in a file and never run twice.

The batch is named after the response, so that the same turn again is the same batch: what was
settled is told again, what waits still waits, and what the end of a process left goes on.
"""

from collections.abc import AsyncIterator, Mapping, Sequence

import anyio
import msgspec

from ferrule import (
    Context,
    Executor,
    Finished,
    InputRequest,
    InvalidValue,
    Outcome,
    Progress,
    Progressed,
    Registry,
    Started,
    Suspended,
    ToolCall,
    Unknown,
)
from ferrule.cli._answers import how_to_answer, schema_line
from ferrule.cli._board import Board
from ferrule.cli._display import Display, shown
from ferrule.cli._journal import REFUSED, shortened, typed
from ferrule.cli._refused import INTERRUPTED, USAGE, Refused
from ferrule.cli._signals import Interruption
from ferrule.errors import BatchConflict, JournalError
from ferrule.helpers import one_line, reap
from ferrule.ports import DurableCall, Moved, Wait
from ferrule.runtime import Reaper, SqliteInbox, SqliteRuntime
from ferrule.runtime.sqlite import leaf
from ferrule.states import MOVES, SETTLED

REAPERS: Mapping[str, Reaper] = {"shell:process-group": reap}
"""By the namespace of a record, what ends what a lost call left behind."""

_STEPS = frozenset(step for _, step in MOVES)


class Kept(msgspec.Struct, frozen=True):
    """
    Where a turn is kept.

    Attributes:
        path: The journal.
        batch: The batch's id.
        named: Whether a person named the batch; else it is named after the turn.
        by: Who asks for the calls, as policies see it.
    """

    path: str
    batch: str
    named: bool
    by: str | None


async def run_kept(
    registry: Registry, calls: Sequence[ToolCall], kept: Kept, max_parallel: int
) -> tuple[list[Outcome | None], int]:
    """
    Run a turn until nothing goes on without a person, before a person's eyes.

    Returns:
        How each call ended, or what it asks, or `None` if it goes on at another time; and 0, or
        the code of a signal.

    Raises:
        Refused: the journal cannot be used, or has other calls by the name of these.
    """
    board = Board(calls)
    with shown(board) as display:
        showing = _Showing(calls, board, display)
        running = _Running(registry, kept, max_parallel, showing)
        code = await running.to_rest()
        outcomes = running.outcomes or await _standing(kept, len(calls))
        showing.end(outcomes)
    await _sum_up(display, board, kept, outcomes)
    return outcomes, code


class _Running:
    """A turn that is driven here, and what is known of it when that ends."""

    def __init__(
        self, registry: Registry, kept: Kept, max_parallel: int, showing: "_Showing"
    ) -> None:
        self.outcomes: list[Outcome | None] = []
        self._registry = registry
        self._kept = kept
        self._showing = showing
        self._max_parallel = max_parallel
        self._is_kept = False

    async def to_rest(self) -> int:
        """Drive it until it rests, or a signal stops it; return 0 or the signal's code."""
        stopping = anyio.CancelScope()

        def stop() -> None:
            self._showing.display.stop()
            stopping.cancel()

        code, fault = 0, None
        try:
            with Interruption(stop, self._showing.display.leave) as interruption:
                async with self._runtime() as runtime:
                    with stopping:
                        await self._rest(runtime)
            code = interruption.exit_code
        except* JournalError as group:
            fault = leaf(group)
        except* KeyboardInterrupt:  # A tool raised it: its siblings were stopped as for a signal.
            code = INTERRUPTED
        if fault is not None:
            raise self._refused(fault)
        return code

    def _refused(self, error: JournalError) -> Refused:
        """Return what to say of a journal; a file that was named by mistake is the person's."""
        began = self._is_kept or error.passing
        return Refused(str(error), REFUSED if began else USAGE)

    def _runtime(self) -> SqliteRuntime:
        executor = Executor(
            self._registry, max_parallel=self._max_parallel, on_progress=self._showing.progress
        )
        return SqliteRuntime(executor, self._kept.path, reapers=REAPERS)

    async def _rest(self, runtime: SqliteRuntime) -> None:
        kept, inbox = self._kept, runtime.inbox
        before = await inbox.batch(kept.batch)
        history = await inbox.history(batch_id=kept.batch)
        try:
            batch = await runtime.submit(self._showing.calls, batch_id=kept.batch, caller=kept.by)
        except BatchConflict:
            raise Refused(_conflict(kept), REFUSED) from None
        except InvalidValue as error:
            raise Refused(str(error)) from None
        self._is_kept = True
        self._showing.begin(await inbox.batch(kept.batch), before)
        if any(one.state not in SETTLED for one in before) and not await runtime.take(batch.id):
            self._showing.display.note("another process runs this turn; this is how it goes there")
        async with anyio.create_task_group() as tasks:
            last = history[-1].seq if history else 0
            tasks.start_soon(self._showing.follow, runtime, batch.events, last)
            self.outcomes = [*await batch.at_rest()]
            tasks.cancel_scope.cancel()


def _conflict(kept: Kept) -> str:
    if kept.named:
        return (
            f"batch {kept.batch} is kept with other calls, or for another --by; give this turn "
            "another --batch-id"
        )
    return (
        "this turn is kept for another caller; run it with the same --by as before, or give it a "
        "--batch-id to run it as another turn"
    )


# ---- before a person's eyes ----------------------------------------------------------------------


class _Showing:
    """
    Shows a durable batch as its history tells it.

    Attributes:
        calls: The calls of the turn.
        display: Where it is shown.
    """

    def __init__(self, calls: Sequence[ToolCall], board: Board, display: Display) -> None:
        self.calls = calls
        self.display = display
        self._board = board
        self._index: dict[str, int] = {}
        self._first = {call.id: index for index, call in reversed(list(enumerate(calls)))}

    def begin(self, calls: Sequence[DurableCall], before: Sequence[DurableCall]) -> None:
        """Learn by which ids the calls are kept; show those that were settled before."""
        self._index = {call.id: index for index, call in enumerate(calls)}
        for index, call in enumerate(before):
            if call.state == "suspended" or call.state in SETTLED:
                self._board.earlier.add(index)
            if call.state in SETTLED and call.outcome is not None:
                self.display.end(index, call.outcome)

    def progress(self, context: Context, progress: Progress) -> None:
        """Show how far a call is that runs here."""
        index = self._first.get(context.call_id)
        if index is not None:
            told = {name: getattr(progress, name) for name in ("progress", "total", "message")}
            self.display.tell(Progressed(index=index, call=self.calls[index], **told))

    async def follow(self, runtime: SqliteRuntime, events: AsyncIterator[Moved], last: int) -> None:
        """Show what happens after a line of the history, wherever it happens."""
        async for line in events:
            if line.seq > last and line.step in _STEPS:
                await self._tell(line, runtime)

    def end(self, outcomes: Sequence[Outcome | None]) -> None:
        """Show how the calls ended, or what they ask, of which that was not shown yet."""
        for index, outcome in enumerate(outcomes):
            if outcome is None or type(self._board.ended.get(index)) is type(outcome):
                continue
            if not isinstance(outcome, Suspended):
                self._board.earlier.discard(index)
            self.display.end(index, outcome)

    async def _tell(self, line: Moved, runtime: SqliteRuntime) -> None:
        index = self._index[line.call_id]
        if line.step == "dispatch":
            self.display.tell(Started(index=index, call=self.calls[index]))
        elif line.step == "again":
            label = self._board.label(index).strip()
            self.display.note(f"> {label} runs again: the process that ran it is gone")
        elif line.state == "suspended" or line.state in SETTLED:
            outcome = await _outcome(line, runtime)
            if outcome is not None:
                self._board.earlier.discard(index)
                self.display.tell(Finished(index=index, call=self.calls[index], outcome=outcome))


async def _outcome(line: Moved, runtime: SqliteRuntime) -> Outcome | None:
    """Return how a call stands that has ended or asks; nothing if it has gone on since."""
    if line.state in SETTLED:
        return (await runtime.inbox.call(line.call_id)).outcome
    return next((_asked(w) for w in await runtime.inbox.waits() if w.call_id == line.call_id), None)


def _asked(wait: Wait) -> Suspended:
    return Suspended(InputRequest(wait.message, schema=wait.schema))


async def _standing(kept: Kept, count: int) -> list[Outcome | None]:
    """Return how the calls of a turn stand that was stopped."""
    calls = await SqliteInbox(kept.path).batch(kept.batch)
    ended = [call.outcome if call.state in SETTLED else None for call in calls]
    return ended or [None] * count


async def _sum_up(
    display: Display, board: Board, kept: Kept, outcomes: Sequence[Outcome | None]
) -> None:
    """Say how the calls ended, and what a person has to do now."""
    if not outcomes:
        display.note("the response calls no function")
        return
    display.note(f"{board.summary}; kept as {one_line(kept.batch)}")
    left = sum(outcome is None for outcome in outcomes)
    if left:
        calls = "1 call has" if left == 1 else f"{left} calls have"
        display.note(f"{calls} not ended: the same command goes on")
    if any(isinstance(outcome, Unknown) for outcome in outcomes):
        command = typed("unknown", "--journal", kept.path)
        display.note(f"what is unknown is for a person to resolve: {command}")
    if any(isinstance(outcome, Suspended) for outcome in outcomes):
        await _tell_waits(display, kept)


async def _tell_waits(display: Display, kept: Kept) -> None:
    """Say what each waiting call needs, and the command that gives it."""
    inbox = SqliteInbox(kept.path)
    mine = {call.id for call in await inbox.batch(kept.batch)}
    ids = await inbox.wait_ids()
    for wait in await inbox.waits():
        if wait.call_id in mine:
            call = f"{one_line(wait.call.name)} ({one_line(wait.call.id)})"
            message = one_line(wait.message)
            display.note(f"{call} needs an answer: {message} as {schema_line(wait)}")
            display.note(f"  {how_to_answer(wait, shortened(wait.id, ids), kept.path)}")
