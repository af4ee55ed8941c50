"""
One served call, from its first request to its end.

Theory
======

*A task of its own.* A call that may outlive its request runs in a task of the server's life: since
2026-07-28 a call that asks ends its request and goes on with the next one. The request waits for
news of it: how far it is, what it asks, how it ended. A request that is cancelled stops its call
and waits no longer: a thread that cannot be stopped holds nobody up. A task costs as much as a
small call, so a call that nobody can be asked about so, and whose progress nobody wants to hear of,
runs in the task of its request.

*Two kinds of questions.* A tool that *waits* (`context.ask`) is asked for while it runs: in the
handshake era its client is asked at once, later it is parked until the next request brings the
answer. A leg that *ended* with a question (a tool's `InputRequest`, a guard's `Ask`) needs no task:
in the later era all that it needs to go on is in the ticket that the client carries.

*Tasks.* A call whose client takes tasks, and that is not over when the server's patience with its
request is, goes on without one (`become_task`). Then both kinds of questions wait in the call, and
its client comes back to see them, to answer, and for the end; see `_long`.

*Bounds.* A parked call waits `patience` seconds and is stopped then; a client makes at most
`rounds` requests of a call; what it has not answered by then, nobody answers.
"""

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Container, Mapping
from datetime import UTC, datetime
from typing import TypeVar, cast

import anyio
import anyio.lowlevel
import msgspec
from mcp import MCPError, types
from mcp.types import MISSING_REQUIRED_CLIENT_CAPABILITY

from ferrule import (
    Cancelled,
    Declined,
    Executor,
    Failed,
    Failure,
    InputRequest,
    InvalidValue,
    Leg,
    Outcome,
    Progress,
    Progressed,
    Question,
    Suspended,
    outcome_of,
)
from ferrule.helpers import one_line
from ferrule.mcp._answers import (
    NO,
    Given,
    asking_for,
    form_of,
    is_no,
    next_leg,
    read,
    without_answer,
)
from ferrule.mcp._forms import Form
from ferrule.mcp._lives import Life
from ferrule.mcp._request import Request
from ferrule.mcp._tickets import Ticket, digest_of, new_nonce
from ferrule.mcp._to_mcp import error_of, result_of

R = TypeVar("R")
Answer = types.CallToolResult | types.InputRequiredResult

logger = logging.getLogger("ferrule")

GONE = "the call that these answers belong to no longer waits for them; call the tool again"
_UNREAD = 64


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """
    How long and how often a server waits for its clients.

    Attributes:
        patience: Seconds that a call waits for an answer.
        rounds: Requests that a client makes of one call at most.
        parked: Calls that wait at a time, of all clients of a life.
        keys: What seals what clients carry; the first seals, all open.
    """

    patience: float
    rounds: int
    parked: int
    keys: tuple[bytes, ...]


async def contained(work: Awaitable[R], otherwise: Callable[[Exception], R]) -> R:
    """Return what `work` gives, or what `otherwise` makes of an exception, which the SDK tells."""
    try:
        return await work
    except Exception as error:
        return otherwise(error)


class Open:
    """A question of a running call that waits for the next request of its client."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self.given: Given | None = None
        self.answered = anyio.Event()

    def answer(self, given: Given) -> None:
        """Let the tool go on."""
        self.given = given
        self.answered.set()


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """
    How a call stands that became a task.

    Attributes:
        asks: What its client has to answer, by what the answers are called.
        outcome: How it ended, if it has.
        said: How far it is, in words; what it waits for.
        since: When it was made.
        moved: When any of this changed last.
    """

    asks: Mapping[str, types.ElicitRequest]
    outcome: Outcome | None
    said: str
    since: datetime
    moved: datetime


class Call:
    """
    One call, driven by an executor; see `_durable` for one that a runtime drives.

    Attributes:
        may_be_task: Whether its client takes a task for an answer, and the server makes some.
        is_task: Whether it goes on without a request.
    """

    def __init__(
        self, executor: Executor, bounds: Bounds, life: Life, request: Request, leg: Leg
    ) -> None:
        self.may_be_task = self.is_task = False
        self.executor = executor
        self.bounds = bounds
        self.life = life
        self.first = request
        self.leg = leg
        self.answered: tuple[InputRequest, object] | None = None
        self.round = 1
        self.outcome: Outcome | None = None
        self._left: Outcome | None = None
        self._said = ""
        self._since = self._moved = now()
        self._names: set[str] = set()
        self._early = dict(request.answers)
        self._scope = anyio.CancelScope()
        self._updates: deque[Progress] = deque(maxlen=_UNREAD)
        self._number = 0.0
        self._open: dict[str, Open] = {}
        self._nonce = ""
        # An event costs as much as reading the arguments: most calls need neither.
        self._resumed: anyio.Event | None = None
        self._news: anyio.Event | None = None

    @property
    def tool(self) -> str:
        """The name of its tool."""
        return self.leg.call.name

    # ---- the task of the call --------------------------------------------------------------------

    async def run(self) -> None:
        """Run it to its end, whatever it does."""
        await self._to_its_end()
        self._tell()
        if self._resumed is not None and self._nonce in self.life.parked:
            # It ended while its client had its questions.
            with anyio.move_on_after(self.bounds.patience):
                await self._resumed.wait()
            self.life.parked.pop(self._nonce, None)

    async def _to_its_end(self) -> None:
        with self._scope:
            self.outcome = await contained(self._drive(), self._broke)
        if self.outcome is None:
            left = self._left
            ended = left is not None and not isinstance(left, Suspended)
            self.outcome = left if ended else Cancelled(tool=self.tool)

    def stop(self) -> None:
        """Stop it; nobody waits for it any more."""
        self._scope.cancel()

    def _broke(self, error: Exception) -> Outcome:
        return outcome_of(error, tool=self.tool, call_id=self.leg.call.id)

    async def _drive(self) -> Outcome:
        outcome = await self._run_leg()
        while isinstance(outcome, Suspended):
            following = await self._after(outcome.request)
            if following is None:
                break
            if not isinstance(following, Leg):
                return following
            self.leg = following
            outcome = await self._run_leg()
        return outcome

    @property
    def needs_task(self) -> bool:
        """Whether it may outlive its request, or has to be heard of while it runs."""
        may_ask = self.first.modern and self.first.may_ask
        return self.may_be_task or may_ask or self.first.wants_progress

    async def serve_alone(self) -> Answer:
        """Run it to its end in the task of its one request; cancelled, it stops its tool first."""
        self.life.alone.add(self)
        try:
            await self._to_its_end()
        finally:
            self.life.alone.discard(self)
        await self.life.announce()
        return self.ending()

    async def _run_leg(self) -> Outcome:
        if not (self.first.wants_progress or self.may_be_task):
            [outcome] = await self.executor.run([self.leg], caller=self.first.caller)
            return outcome
        batch = self.executor.batch([self.leg], caller=self.first.caller)
        try:
            async with batch:
                async for event in batch:
                    if isinstance(event, Progressed):
                        self.progressed(
                            Progress(
                                progress=event.progress,
                                total=event.total,
                                message=event.message,
                                content=event.content,
                            )
                        )
        finally:
            self._left = next(iter(batch.outcomes), None)  # Also of one that is stopped.
        return batch.outcomes[0]

    def progressed(self, update: Progress) -> None:
        """Have an update sent, the newest of many."""
        self._updates.append(update)
        self._said = one_line(update.message or "", 400) or self._said
        self._tell()

    def _tell(self) -> None:
        self._moved = now()
        news, self._news = self._news, None
        if news is not None:
            news.set()

    # ---- what a running tool asks ----------------------------------------------------------------

    def can_ask(self, question: Question) -> bool:
        """Say whether its client can be asked this."""
        return self.first.can_ask(form_of(question))

    async def ask(self, question: Question) -> Given:
        """Ask its client while the tool waits."""
        form = form_of(question)
        if not self.first.modern:
            return await self.elicited(form)
        crowded = not self.is_task and len(self.life.parked) >= self.bounds.parked
        if self.round >= self.bounds.rounds or crowded:
            logger.warning('tool "%s" asks once too often, or too many calls wait', self.tool)
            return Declined("cancel")
        return await self._answered_to(form)

    async def _answered_to(self, form: Form) -> Given:
        """Show a question until it is answered; stop the call if nobody does."""
        waiting = Open(form)
        self._show(waiting)
        self._tell()
        try:
            with anyio.move_on_after(self.bounds.patience):
                await waiting.answered.wait()
        finally:
            self._hide(waiting)
        if waiting.given is None:
            logger.warning('tool "%s" was stopped: nobody answered what it asked', self.tool)
            self.stop()
            await anyio.sleep_forever()
        return cast("Given", waiting.given)

    def _show(self, waiting: Open) -> None:
        """Show a question under a name; in a task, under one that no question of it ever had."""
        name = _free(waiting.form.file, self._names if self.is_task else self._open)
        self._names.add(name)
        self._open[name] = waiting

    def _hide(self, waiting: Open) -> None:
        for name in [name for name, one in self._open.items() if one is waiting]:
            del self._open[name]

    async def elicited(self, form: Form) -> Given:
        """Ask the client at once, and again while its answer is not what was asked for."""
        with anyio.move_on_after(self.bounds.patience):
            for _ in range(self.bounds.rounds):
                given = read(form, await contained(self.first.ask(form), _nobody))
                if given is not None:
                    return given
        return Declined("cancel")

    # ---- what a leg asked as it ended ------------------------------------------------------------

    async def _after(self, asked: InputRequest) -> Leg | Outcome | None:
        """Return what follows: a leg, an ending, or nothing before the client's next request."""
        form = Form(asked.message, asked.schema)
        if not self.first.can_ask(form):
            if self.first.modern:
                return None
            return _failed(
                self.tool, f"it needs an answer, and this client cannot ask: {form.message}"
            )
        if self.first.modern:
            given = self._early_answer(form) if asked.asked is None else None
            if given is None and self.is_task:
                given = await self._answered_to(form)
        else:
            given = await self.elicited(form)
        return None if given is None else self.following(asked, given)

    def _early_answer(self, form: Form) -> Given | None:
        """Return what the first request has brought for a question that says its name."""
        response = self._early.pop(form.name, None) if form.name else None
        return None if response is None else read(form, response)

    def following(self, asked: InputRequest, given: Given) -> Leg | Outcome:
        """Return the leg that goes on with an answer, or how the call ends without one."""
        if isinstance(given, Declined):
            if not (is_no(given, asked.schema) and asked.asked is not None):
                return _failed(self.tool, without_answer(given, asked.message))
            given = NO
        if asked.asked is None:
            self.answered = (asked, given.content)
            return next_leg(self.leg, self.answered, self.leg.approvals)
        approval = asked.approval(given.content, by=self.first.by)
        return next_leg(self.leg, self.answered, (*self.leg.approvals, approval))

    # ---- the request of a client -----------------------------------------------------------------

    async def serve(self, request: Request) -> Answer:
        """Stand by a request until there is an answer for it; stop the call if it is cancelled."""
        return cast("Answer", await self.serve_within(request, math.inf, _never))

    async def serve_within(
        self, request: Request, seconds: float, may_go_on: Callable[[], bool]
    ) -> Answer | None:
        """Do as `serve`, but give nothing after so many seconds, if the call may be a task then."""
        stands_by = True
        try:
            answer: Answer | None = None
            if seconds > 0:
                with anyio.move_on_after(seconds):
                    answer = await self._news_of(request)
            answer = answer or await self._answer()
            if answer is None and may_go_on():
                self.become_task()
                await self.until_kept()
            else:
                answer = answer or await self._news_of(request)
                await self.life.announce()
            stands_by = False
        finally:
            if stands_by:
                self.stop()
        return answer

    async def _news_of(self, request: Request) -> Answer:
        """Wait until there is an answer; tell meanwhile how far the call is."""
        while True:
            news = self._news = self._news or anyio.Event()
            await self._report(request)
            answer = await self._answer()
            if answer is not None:
                return answer
            await news.wait()

    async def _report(self, request: Request) -> None:
        while self._updates:
            update = self._updates.popleft()
            self._number = self._number + 1 if update.progress is None else update.progress
            await request.report(self._number, update)

    async def _answer(self) -> Answer | None:
        if self.outcome is None and self._open:
            for _ in range(_TOGETHER):  # So that what a tool asks side by side is asked at once.
                await anyio.lowlevel.checkpoint()
            return self._park()
        return None if self.outcome is None else self.ending()

    # ---- a call that goes on without a request ---------------------------------------------------

    async def until_kept(self) -> None:
        """Wait until it would be found again."""

    def become_task(self) -> None:
        """Go on without a request; what it asks waits for who comes back."""
        self.is_task = True

    async def standing(self) -> Standing:
        """Return how it stands."""
        asks = {name: asking_for(waiting.form) for name, waiting in self._open.items()}
        if self.outcome is not None:
            asks = {}
        return Standing(
            asks=asks,
            outcome=self.outcome,
            said=self._said,
            since=self._since,
            moved=self._moved,
        )

    async def update(self, responses: Mapping[str, object]) -> None:
        """Take what its client answers; what was not asked for is asked again by another name."""
        known = [name for name in responses if name in self._open]
        self.round += bool(known)
        for name in known:
            waiting = self._open.pop(name)
            given = read(waiting.form, responses[name])
            if given is None and self.round >= self.bounds.rounds:
                given = Declined("cancel")
            if given is None:
                self._show(waiting)
            else:
                waiting.answer(given)
        self._tell()

    async def cancel(self) -> None:
        """Stop it, as its client wants."""
        self.stop()

    def ending(self) -> Answer:
        """Return what the client gets of a call that goes on no more without it."""
        return self.ended_with(self.outcome or Cancelled(tool=self.tool))

    def ended_with(self, outcome: Outcome) -> Answer:
        """
        Return what the client gets of an ending, or of a leg that ended with a question.

        Raises:
            MCPError: it does not say that it can ask people, and so it cannot make this call.
        """
        if isinstance(outcome, Suspended):
            return self.handed_out(outcome.request)
        return self.result(outcome)

    def result(self, outcome: Outcome) -> types.CallToolResult:
        """Return an ending as the client's era says it."""
        limit = self.executor.registry.limits.model_bytes
        return result_of(outcome, modern=self.first.modern, limit=limit)

    def _park(self) -> types.InputRequiredResult:
        ticket = self.ticket()
        self._nonce = ticket.nonce
        self._resumed = anyio.Event()
        self.life.parked[ticket.nonce] = self
        return types.InputRequiredResult(
            input_requests={name: asking_for(waiting.form) for name, waiting in self._open.items()},
            request_state=ticket.sealed(self.bounds.keys[0], self.bounds.patience),
        )

    def handed_out(self, asked: InputRequest) -> Answer:
        """
        Return what the client has to answer, and what it carries until then.

        Raises:
            MCPError: it does not say that it can ask people, and so it cannot make this call.
        """
        if not self.first.can_ask(Form(asked.message, asked.schema)):
            raise _incapable(self.tool)
        if self.round >= self.bounds.rounds:
            return error_of(f"it asks more often than a client answers: {asked.message}")
        form = Form(asked.message, asked.schema)
        pending = [] if self.answered is None else [self.answered[0].to_json(), self.answered[1]]
        ticket = self.ticket(
            request=asked.to_json(),
            leg=self.leg.number,
            key=self.leg.idempotency_key or "",
            approvals=[approval.to_json() for approval in self.leg.approvals],
            pending=pending,
        )
        patience = min(self.bounds.patience, asked.expires_in or self.bounds.patience)
        try:
            state = ticket.sealed(self.bounds.keys[0], patience)
        except InvalidValue:
            return error_of("what it needs to go on is too large to be handed to a client")
        return types.InputRequiredResult(
            input_requests={form.file: asking_for(form)}, request_state=state
        )

    def ticket(self, **more: object) -> Ticket:
        """Return what the client carries until its next request."""
        known = Ticket(
            nonce=new_nonce(),
            who=self.first.who,
            call=digest_of(self.tool, self.first.params.arguments or {}),
            round=self.round,
            call_id=self.leg.call.id,
        )
        return msgspec.structs.replace(known, **more)

    def resume(self, responses: Mapping[str, object]) -> None:
        """Take what the next request has brought; what it left out is asked again, or given up."""
        self.round += 1
        if self._resumed is not None:
            self._resumed.set()
        for name, waiting in list(self._open.items()):
            given = read(waiting.form, responses.get(name))
            if given is None and self.round >= self.bounds.rounds:
                given = Declined("cancel")
            if given is not None:
                del self._open[name]  # Its tool may not have come to its turn before we look.
                waiting.answer(given)


def _never() -> bool:
    return False


def now() -> datetime:
    """Return the time of day, for people."""
    return datetime.now(UTC)


_TOGETHER = 4
"""Breaths that a call is given after it asked, so that it may ask more."""


def _free(name: str, taken: Container[str]) -> str:
    """Return what a question is filed under: what it calls itself, if nothing else is."""
    found = name
    number = 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found


def _nobody(error: Exception) -> types.ElicitResult:
    logger.warning("a client could not be asked: %s", one_line(str(error), 200))
    return types.ElicitResult(action="cancel")


def _incapable(tool: str) -> MCPError:
    needed = types.ClientCapabilities(
        elicitation=types.ElicitationCapability(form=types.FormElicitationCapability())
    )
    data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=needed)
    return MCPError(
        code=MISSING_REQUIRED_CLIENT_CAPABILITY,
        message=f'tool "{tool}" needs an answer, and this client cannot ask',
        data=data.model_dump(mode="json", by_alias=True, exclude_none=True),
    )


def _failed(tool: str, sentence: str) -> Failed:
    return Failed(Failure(f'tool "{tool}" did not go on: {sentence}'), tool=tool)
