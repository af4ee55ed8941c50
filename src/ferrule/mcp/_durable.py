"""
A served call that a runtime keeps: what waits for an answer can wait for days, and for anybody.

The client that made the call is asked as ever. If it cannot be, or goes away, the question stays in
the runtime's inbox; the call goes on when somebody answers there, and whoever makes the same call
with the same `ferrule/idempotency-key` in its `_meta` gets how it ended.
"""

from collections.abc import Mapping
from contextlib import suppress

import anyio
import msgspec
from mcp import types

from ferrule import (
    BatchConflict,
    Declined,
    Executor,
    JournalError,
    Leg,
    Outcome,
    Rejected,
    Suspended,
    outcome_of,
)
from ferrule.errors import AnswerRefused, WaitClosed
from ferrule.helpers import one_line
from ferrule.mcp._answers import NO, Given, asking_for, is_no, read
from ferrule.mcp._calls import Answer, Bounds, Call, Standing, contained
from ferrule.mcp._forms import Form
from ferrule.mcp._lives import Life
from ferrule.mcp._meta import KEY
from ferrule.mcp._request import Request
from ferrule.mcp._to_mcp import error_of
from ferrule.ports import Runtime, Wait
from ferrule.states import SETTLED

_PAUSE = 0.02
_MOMENT = 0.05


def batch_of(name: str) -> str:
    """Return the id of the batch that keeps a call."""
    return f"mcp:{name}"


class DurableCall(Call):
    """
    One call, driven by a runtime.

    Attributes:
        over: Set when it is driven here no more.
    """

    def __init__(  # what a call has, and where it is kept
        self,
        runtime: Runtime,
        executor: Executor,
        bounds: Bounds,
        life: Life,
        request: Request,
        leg: Leg,
        name: str,
    ) -> None:
        super().__init__(executor, bounds, life, request, leg)
        self._runtime = runtime
        self._name = name
        self._wait: Wait | None = None
        self._given: tuple[str, Given] | None = None
        self.over = anyio.Event()
        self._kept = anyio.Event()
        self._tries: dict[str, int] = {}
        self._left_alone: set[str] = set()

    @property
    def needs_task(self) -> bool:
        """Whether it may outlive its request: it always may, since it is kept."""
        return True

    @property
    def name(self) -> str:
        """What the journal calls its batch."""
        return self._name

    @property
    def _batch(self) -> str:
        return batch_of(self._name)

    async def take(self, wait_id: str, responses: Mapping[str, object]) -> None:
        """Have a question answered, if the client has, before the call goes on."""
        wait = next((one for one in await self._runtime.inbox.waits() if one.id == wait_id), None)
        if wait is not None:
            form = Form(wait.message, wait.schema)
            given = read(form, responses.get(form.file))
            self._given = None if given is None else (wait_id, given)

    async def run(self) -> None:
        """
        Run it to its end; a client that stops it stops it in the runtime too.

        One that goes away does not: the call goes on where the runtime goes on. Both look alike
        here, but for the end of this life that follows in a moment.
        """
        try:
            await super().run()
        finally:
            self.over.set()
        if self._scope.cancel_called:
            await anyio.sleep(_MOMENT)
            with anyio.CancelScope(shield=True):
                await contained(self._runtime.cancel(self._batch, by=self.first.by), lambda _: None)

    async def _drive(self) -> Outcome:
        try:
            return await self._driven()
        except BatchConflict:
            message = f"`{KEY}` is that of another call; give each call one of its own"
            return Rejected("duplicate_id", message=message, tool=self.tool)
        except JournalError as error:
            return outcome_of(error, tool=self.tool, call_id=self.leg.call.id, dispatched=False)

    async def _driven(self) -> Outcome:
        if self._given is not None:
            await self._put(*self._given)
        batch = await self._runtime.submit(
            [self.leg.call], batch_id=self._batch, caller=self.first.caller
        )
        self._kept.set()
        while True:
            [outcome] = await (batch.settled() if self.is_task else batch.at_rest())
            if not isinstance(outcome, Suspended):
                return outcome
            self._wait = await self._find()
            if self._wait is None:  # It was answered meanwhile, and goes on in a moment.
                await anyio.sleep(_PAUSE)
            elif not await self._ask_for(self._wait) and not self.is_task:
                return outcome

    async def _find(self) -> Wait | None:
        waits = await self._runtime.inbox.waits()
        return next((wait for wait in waits if wait.call.id == self.leg.call.id), None)

    async def _ask_for(self, wait: Wait) -> bool:
        """Ask the client at once, if its era does so; say whether something was answered."""
        form = Form(wait.message, wait.schema)
        if self.first.modern or not self.first.can_ask(form):
            return False
        return await self._put(wait.id, await self.elicited(form))

    async def _put(self, wait_id: str, given: Given) -> bool:
        """Answer a question; say whether it is one no more."""
        inbox, by = self._runtime.inbox, self.first.by
        if isinstance(given, Declined) and given.action == "cancel":
            return False
        wait = next((one for one in await inbox.waits() if one.id == wait_id), None)
        if wait is None:
            return True
        if isinstance(given, Declined) and not wait.asked_by.startswith("tool:"):
            given = NO if is_no(given, wait.schema) else given
        try:
            if isinstance(given, Declined):
                await inbox.withdraw(wait_id, by=by)
            else:
                await inbox.answer(wait_id, given.content, by=by)
        except WaitClosed:
            return True
        except AnswerRefused:
            return False
        return True

    # ---- a call that goes on without a request ---------------------------------------------------

    async def until_kept(self) -> None:
        """Wait until another process would find it too, or it has ended."""
        while self.outcome is None and not self._kept.is_set():
            with anyio.move_on_after(_MOMENT):
                await self._kept.wait()

    async def standing(self) -> Standing:
        """Return how it stands in the journal, with what its tool asks here while it waits."""
        live = await super().standing()
        calls = await self._runtime.inbox.batch(self._batch)
        if not calls:
            return live
        [kept] = calls
        history = await self._runtime.inbox.history(kept.id)
        moved = max(live.moved, history[-1].at)
        told = msgspec.structs.replace(live, since=history[0].at, moved=moved)
        if kept.state in SETTLED:
            return msgspec.structs.replace(told, asks={}, outcome=kept.outcome)
        asks, said = dict(live.asks), live.said
        for wait in await self._waits():
            form = Form(wait.message, wait.schema)
            if wait.id in self._left_alone or not self.first.can_ask(form):
                said = f"waits for an answer to question {wait.id}: {wait.message}"
            else:
                asks[self._key(wait)] = asking_for(form)
        return msgspec.structs.replace(told, asks=asks, outcome=None, said=one_line(said, 400))

    def _key(self, wait: Wait) -> str:
        """Return what the answer to a question is called: another name each time it is asked."""
        tries = self._tries.get(wait.id, 0)
        return f"{wait.id}.{tries + 1}" if tries else wait.id

    async def _waits(self) -> list[Wait]:
        return [one for one in await self._runtime.inbox.waits() if one.call.id == self.leg.call.id]

    async def update(self, responses: Mapping[str, object]) -> None:
        """Take what its client answers; who does not choose leaves the question to others."""
        await super().update(responses)
        for wait in await self._waits():
            if self._key(wait) not in responses:
                continue
            given = read(Form(wait.message, wait.schema), responses[self._key(wait)])
            self._tries[wait.id] = self._tries.get(wait.id, 0) + 1
            chose_nothing = isinstance(given, Declined) and given.action == "cancel"
            if chose_nothing or (given is None and self._tries[wait.id] >= self.bounds.rounds):
                self._left_alone.add(wait.id)
            elif given is not None:
                await self._put(wait.id, given)

    async def cancel(self) -> None:
        """Stop it, wherever it runs."""
        with suppress(AnswerRefused):
            await self._runtime.cancel(self._batch, by=self.first.by)

    async def _answer(self) -> Answer | None:
        if isinstance(self.outcome, Suspended) and self._wait is not None:
            return self._waiting(self._wait)
        return await super()._answer()

    def _waiting(self, wait: Wait) -> Answer:
        """Return what the client has to answer, or how it learns later what became of the call."""
        form = Form(wait.message, wait.schema)
        can_ask = self.first.modern and self.first.can_ask(form)
        if not can_ask or self.round >= self.bounds.rounds:
            return error_of(
                f'tool "{self.tool}" waits for an answer that has to be given elsewhere, '
                f"to question {wait.id}: {wait.message}",
                {KEY: self.first.said},
            )
        ticket = self.ticket(batch=self._name, wait=wait.id)
        state = ticket.sealed(self.bounds.keys[0], self.bounds.patience)
        asked: types.InputRequests = {form.file: asking_for(form)}
        return types.InputRequiredResult(input_requests=asked, request_state=state)
