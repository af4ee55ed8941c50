"""
One batch of calls: side by side where they may, in order where they must, each ending once.

Theory
======

*Workers, not a task a call.* A task costs more than all checks of a small call together. So a few
workers, at most `max_parallel`, take calls from a queue of ready ones. A worker begins its call by
hand, and hires the next worker when that call waits for the first time: while it does not, nobody
else would have had a turn, and a batch whose calls never wait is run by one. A worker that finds
the queue empty goes home. The caller's task is never a worker: its cancellation would become a
call's.

*Permission before dispatch.* Who has to be asked about a call is asked by askers, which are no
workers: at most `max_parallel` of them, from the beginning of the batch, beside whatever runs. A
call is ready when it may and when it is its turn. So a policy that is slow, asks a person or
breaks holds no slot; and as a call that was refused early still takes its turn, what conflicts
with the calls before it does not slip past them.

*The shield.* A worker runs under a shield, so that nothing outside cancels a tool half way: the
batch alone tells a call to stop. On asyncio that is one `task.cancel()`, as asyncio's own code
would do, and after `grace` every await is cancelled; on trio cancelling is a state. A thread
cannot be told; the batch waits `grace` for it and then goes on without it.

*Time.* At its limit a call is reported, not a moment later; what it still does is evidence. It is
told to stop, keeps its slot and what it works on until it has ended, and its worker goes home. A
thread that does not end within `grace` is left behind (see `_crew`), and the calls that wait for
it, or for a slot when all are taken so, are given up: `Cancelled("not_reached")`.

*Events.* A reader that is slow holds the workers, not the tools: a worker that ended a call waits
while more than twice `max_parallel` events are unread. Of progress only the newest unread update
of each call is kept, so nothing grows without bound.

*One `Finished` per call.* `_settle` is the only place that gives a call its outcome, and it takes
the first.
"""

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from time import monotonic
from types import TracebackType
from typing import Any, Literal, Self, cast

import anyio
import anyio.lowlevel
import msgspec

from ferrule._asking import Asking, called, in_time
from ferrule._backend import Token, begin, call_soon, clock
from ferrule._binding import Binding, Leg, Permit
from ferrule._calls import ToolCall
from ferrule._contain import Broke, Threw, contain
from ferrule._content import Result
from ferrule._context import Context, Progress, Thread, Threads
from ferrule._crew import Worker
from ferrule._events import Event, Finished, Progressed, Started
from ferrule._harness import Harness, Sink
from ferrule._jobs import Job, job_of
from ferrule._near import shown
from ferrule._outcome import (
    Cancelled,
    Completed,
    Outcome,
    StillRunning,
    TimedOut,
    logger,
    outcome_of,
)
from ferrule._requests import InputRequest
from ferrule._schedule import Schedule
from ferrule._traits import Replay, Use
from ferrule.errors import FerruleError

_BREATH = 0.002
"""Seconds after which a worker, an asker or admission lets other tasks of the loop run."""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """
    What is known of a call before it runs; what a host keeps that keeps calls.

    Attributes:
        call: The call; one without an id was given one.
        refused: How it ended already, if it was not let in.
        digest: Of its arguments, repaired where its tool allows that; empty if it was refused.
        fingerprint: Of its tool as it was bound; empty if it was refused.
        uses: What it works on.
        replay: What a second run would do, as its tool says.
    """

    call: ToolCall
    refused: Outcome | None = None
    digest: str = ""
    fingerprint: str = ""
    uses: tuple[Use, ...] = ()
    replay: Replay = "unknown"


class Plan(msgspec.Struct, frozen=True):
    """
    The order of a batch.

    Attributes:
        after: For each call the indices of those it waits for itself; what those wait for in turn
            is not repeated.
        calls: What is known of each.
        sequential: Whether they run one at a time, in order.
    """

    after: tuple[tuple[int, ...], ...]
    calls: tuple[Planned, ...] = ()
    sequential: bool = False


class Batch:
    """
    One batch, made by `Executor.batch`: enter it once, take its events, leave it.

    Attributes:
        outcomes: How each call ended, in the calls' order; complete once the block is left.
    """

    def __init__(
        self,
        executor: Harness,
        calls: Iterable[ToolCall | Leg],
        *,
        caller: object,
        listening: bool,
    ) -> None:
        self._executor = executor
        self._calls = list(calls)
        self._caller = caller
        self._listening = listening
        self._is_held = executor.turn is not None or executor.on_dispatch is not None
        self._jobs: list[Job] = []
        self._ready: deque[Job] = deque()
        self._to_ask: deque[Job] = deque()
        self._askers = 0
        self._asking: dict[anyio.CancelScope, Job] = {}
        self._left: dict[Thread[object], Job] = {}
        self._freed: list[Thread[object]] = []
        self._behind: list[Job] = []
        self._news: anyio.Event | None = None
        self._patience: anyio.CancelScope | None = None
        self._events: deque[Event | Job] = deque()
        self._room = 2 * executor.max_parallel
        self._lock = threading.Lock()
        self._crew: set[Worker] = set()
        self._workers = 0
        self._hiring = False
        self._stopping = False
        self._interrupt: KeyboardInterrupt | None = None
        self._unsettled = 0
        self._more: anyio.Event | None = None
        self._space: anyio.Event | None = None
        self._watching: anyio.CancelScope | None = None
        self._limiter: anyio.CapacityLimiter | None = None
        self._bindings: set[Binding] = set()
        self._schedule: Schedule | None = None
        self._is_ordered = False
        self._entered = False

    # ---- what a caller sees --------------------------------------------------------------------

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """How each call ended, in the calls' order; those that have not are missing until then."""
        return tuple(job.outcome for job in self._jobs if job.outcome is not None)

    @property
    def termination(self) -> Literal["all", "some", "none"]:
        """Whether all calls that ended ask that the agent loop stop, some of them, or none."""
        asked = [outcome.terminate for outcome in self.outcomes]
        if asked and all(asked):
            return "all"
        return "some" if any(asked) else "none"

    async def __aenter__(self) -> Self:
        if self._entered:
            raise FerruleError("a batch is entered once; make another with `executor.batch(calls)`")
        self._entered = True
        try:
            self._schedule = schedule = await self._submit()
        finally:
            if self._schedule is None:
                self._give_up()
        self._is_ordered = any(schedule.after)
        self._to_ask.extend(self._asked_about())
        self._token = anyio.lowlevel.current_token() if self._listening else None
        self._thread = threading.get_ident()
        self._clock = clock(self._token) if self._token is not None else anyio.current_time
        self._submitted = self._clock() if self._listening else 0.0
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._line_up(schedule.ready())
        self._call_asker()
        self._hire()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._unsettled:
            self._stop()
        try:
            # The block's own error is not given to the task group, which would wrap it.
            await self._tasks.__aexit__(None, None, None)
        finally:
            self._give_up()
        if self._interrupt is not None:
            raise self._interrupt

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while True:
            while not self._events:
                if not self._unsettled:
                    raise StopAsyncIteration
                self._make_room()
                self._more = anyio.Event()
                await self._more.wait()
            event = self._events.popleft()
            if type(event) is not Job:
                return event
            update = self._taken(event)
            if update is None:
                continue
            if self._executor.on_progress is not None:
                await self._sink(event, update)
            return Progressed(
                index=event.index,
                call=event.call,
                progress=update.progress,
                total=update.total,
                message=update.message,
                content=update.content,
            )

    async def ended(self) -> None:
        """Wait until every call has its outcome."""
        while self._unsettled:
            self._more = anyio.Event()
            await self._more.wait()

    async def planned(self) -> Plan:
        """Return the order, and run nothing."""
        schedule = await self._submit()
        return Plan(
            schedule.after,
            calls=tuple(map(_planned, self._jobs)),
            sequential=self._is_sequential(),
        )

    # ---- before anything runs ------------------------------------------------------------------

    async def _submit(self) -> Schedule:
        """Let the calls in and fix their order."""
        await self._admit_all()
        self._bindings = self._bound()
        if any(binding.uses is None for binding in self._bindings):
            await self._ask_traits()
            self._bindings = self._bound()
        return self._ordered()

    async def _admit_all(self) -> None:
        seen: set[str] = set()
        self._jobs = [job_of(index, given) for index, given in enumerate(self._calls)]
        self._unsettled = len(self._jobs)
        # Workers are shielded: nothing below would see that the caller was cancelled before.
        await anyio.lowlevel.checkpoint_if_cancelled()
        registry = self._executor.registry
        breath = monotonic() + _BREATH
        for job in self._jobs:
            refused = job.admit(registry, seen)
            if refused is not None:
                self._settle(job, refused)
            if monotonic() > breath:
                await anyio.lowlevel.checkpoint()
                breath = monotonic() + _BREATH

    async def _ask_traits(self) -> None:
        """Have each call described; one whose functions break is refused alone."""
        open_jobs = [job for job in self._open_jobs() if not job.is_described]
        questions = [job.describe for job in open_jobs]
        answers = await Asking(questions, self._executor.hook_timeout).answers()
        for job, answer in zip(open_jobs, answers, strict=True):
            if isinstance(answer, Broke):
                self._settle(job, self._outcome(job, answer.error))

    def _ordered(self) -> Schedule:
        uses = [job.uses if job.outcome is None else None for job in self._jobs]
        return Schedule(uses, sequential=self._is_sequential())

    def _is_sequential(self) -> bool:
        return self._executor.sequential or any(
            binding.traits.sequential for binding in self._bindings
        )

    def _bound(self) -> set[Binding]:
        """Return the bindings of the calls that were let in and have not ended."""
        return {job.binding for job in self._jobs if job.binding is not None}

    def _asked_about(self) -> list[Job]:
        """Return the calls that somebody is to be asked about, in order."""
        if not any(binding.asks for binding in self._bindings):
            return []
        return [job for job in self._open_jobs() if not job.permitted]

    def _open_jobs(self) -> list[Job]:
        """Return the calls that have not ended, in order."""
        return [job for job in self._jobs if job.outcome is None] if self._unsettled else []

    # ---- whose turn it is, and who may ---------------------------------------------------------

    def _line_up(self, indices: Iterable[int], behind: int | None = None) -> None:
        """Let calls run whose turn it is, once they may; pass over those that have ended."""
        turns, free = deque(indices), not len(self._executor.stuck)
        while turns:
            job = self._jobs[turns.popleft()]
            job.its_turn = True
            if behind is not None:
                job.behind = behind
            if job.outcome is not None and self._schedule is not None:
                turns.extend(self._schedule.finish(job.index))
            elif job.permitted and free:
                self._ready.append(job)
            elif job.permitted:
                self._make_ready(job)

    def _make_ready(self, job: Job) -> None:
        """Have a call run that may and whose turn it is, unless a thread works on what it needs."""
        if len(self._executor.stuck) and self._executor.stuck.holds(job.uses or ()):
            self._behind.append(job)
            self._await_threads()
        else:
            self._ready.append(job)

    def _call_asker(self) -> None:
        """Have one more asker go to the guards, if there is a call to ask about."""
        if self._to_ask and self._askers < self._executor.max_parallel:
            self._askers += 1
            self._tasks.start_soon(self._ask)

    async def _ask(self) -> None:
        with anyio.CancelScope(shield=True) as scope:
            breath = monotonic() + _BREATH
            while self._to_ask and not self._stopping:
                self._asking[scope] = job = self._to_ask.popleft()
                self._call_asker()
                await self._ask_for(job)
                if monotonic() > breath:
                    await anyio.lowlevel.cancel_shielded_checkpoint()
                    breath = monotonic() + _BREATH
            self._asking.pop(scope, None)
        self._askers -= 1
        self._end_watch()

    async def _ask_for(self, job: Job) -> None:
        """Ask whether one call may run; holds no slot and nobody back but what waits for it."""
        ended: object
        try:
            ended = await self._answer(job)
        except BaseException as error:
            ended = error
            if isinstance(error, KeyboardInterrupt):
                self._interrupt = error
        if job.outcome is None and type(ended) is Permit:
            job.permit, job.permitted = ended, True
            if job.its_turn:
                self._make_ready(job)
        elif job.outcome is None:
            self._end(job, self._outcome(job, ended))
        self._hire()
        if self._interrupt is not None:
            self._stop()

    async def _answer(self, job: Job) -> object:
        if job.binding is None or job.invocation is None:
            raise AssertionError("only a call that was admitted is asked about")
        job.context = self._context(job)
        return await job.binding.authorize(job.invocation, job.context)

    def _context(self, job: Job, threads: Threads | None = None) -> Context:
        """Return the context of a call, for its guards and its tool alike."""
        harness = self._executor
        hears = functools.partial(self._progressed, job) if self._listening else None
        # By position: one is made for each call.
        context = Context(
            job.call,
            1,
            self._caller,
            None,
            harness.registry.inject,
            None,
            hears,
            harness.recorder,
            harness.asker,
            (),
            harness.hook_timeout,
            threads,
            job.traits,
        )
        if job.leg is not None:
            context.leg = job.leg.number
            context.session = job.leg.session
            context.approvals = job.leg.approvals
            context.keep_key(job.leg.idempotency_key)
        return context

    # ---- workers -------------------------------------------------------------------------------

    def _hire(self) -> None:
        if not self._ready or self._hiring or self._stopping:
            return
        if self._free_slots() > 0:
            self._workers += 1
            self._hiring = True  # Until the new one begins: it will hire the next itself.
            self._tasks.start_soon(self._work)
        elif not self._workers:
            self._await_threads()  # All slots are taken by threads that were left behind.

    async def _work(self) -> None:
        with anyio.CancelScope(shield=True) as shield:
            worker = Worker(shield, self._thread_limiter)
            self._crew.add(worker)
            self._hiring = False
            try:
                await self._work_through(worker)
            finally:
                self._crew.discard(worker)
                self._workers -= 1
                self._hire()  # One that was told to stop leaves calls behind.
                self._end_watch()

    def _thread_limiter(self) -> "anyio.CapacityLimiter":
        """Return what bounds the threads of this batch; made for the first that needs one."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._executor.max_parallel)
        return self._limiter

    async def _work_through(self, worker: Worker) -> None:
        events, room = self._events, self._room
        breath = monotonic() + _BREATH
        while self._ready and not self._stopping:
            waiting = begin(self._run(self._ready.popleft(), worker))
            if waiting is not None:
                self._hire()  # Only now: before, nobody else would have had a turn.
                await waiting
                breath = monotonic() + _BREATH
            if worker.told:
                return
            if len(events) > room:
                await self._wait_for_room()
            if monotonic() > breath:
                await anyio.lowlevel.cancel_shielded_checkpoint()
                breath = monotonic() + _BREATH

    async def _run(self, job: Job, worker: Worker) -> None:
        worker.job = job
        context = job.context
        if context is None:
            job.context = context = self._context(job, worker.threads)
        else:
            context.threads = worker.threads
        ended: object
        try:
            if self._is_held:
                await self._let_begin(context)
            ended = await self._dispatched(job, context, worker)
        except BaseException as error:
            ended = error
            if isinstance(error, KeyboardInterrupt):
                self._interrupt = error
        worker.job = None
        context.end()
        if type(ended) is Result and job.outcome is None:  # How nearly every call ends.
            self._settle(job, Completed(ended))
        else:
            self._ended(job, context, ended)
        if job.timer is not None:
            job.timer.cancel()
        thread = worker.threads.abandoned
        if thread is not None:
            worker.threads.abandoned = None
            self._leave(job, thread, context)
        elif self._is_ordered:
            self._release(job)
        if self._interrupt is not None:
            self._stop()

    async def _let_begin(self, context: Context) -> None:
        """Wait until a harness lets a call begin, and tell it so; raises what refuses the call."""
        if self._executor.turn is not None:
            await self._executor.turn(context)
        if self._executor.on_dispatch is not None:
            hook = called(self._executor.on_dispatch, context)
            told = await in_time(self._executor.hook_timeout, hook)
            if isinstance(told, Broke):
                raise told.error

    def _dispatched(
        self, job: Job, context: Context, worker: Worker
    ) -> Coroutine[Any, Any, Result | InputRequest]:
        """Dispatch a call; return the run of its tool."""
        binding, invocation = job.binding, job.invocation
        if binding is None or invocation is None:
            raise AssertionError("a call that was not admitted is never ready")
        if binding.life.closed or job.permit is not None:
            # Closed meanwhile, or a link moved; then the tool does not run.
            binding.check(invocation, job.permit)
        job.dispatched = True
        if binding.traits.timeout is not None:
            job.timer = anyio.CancelScope(shield=True)
            self._tasks.start_soon(self._time, job, worker, binding.traits.timeout, job.timer)
        if self._listening:
            waited = self._clock() - self._submitted
            self._tell(Started(index=job.index, call=job.call, waited=waited, behind=job.behind))
        return binding.call(invocation, context, job.permit)

    def _ended(self, job: Job, context: Context, ended: object) -> None:
        """Settle a call that has ended, unless it was given up before."""
        if job.outcome is None:
            self._settle(job, self._outcome(job, ended))
        else:
            self._hear_late(job.call, context, ended)

    def _outcome(self, job: Job, ended: object) -> Outcome:
        return outcome_of(
            ended,
            tool=job.call.name,
            call_id=job.call.id,
            replay=_replay(job),
            failures=job.binding.traits.failures if job.binding is not None else (),
            errors=self._executor.errors,
            dispatched=job.dispatched,
            stopped=self._stopping,
        )

    def _settle(self, job: Job, outcome: Outcome) -> None:
        """Give a call its outcome; only the first counts."""
        if job.outcome is not None:
            return
        if self._listening:
            with self._lock:  # Progress comes from threads too, and none may come after this.
                job.outcome = outcome
            self._events.append(Finished(index=job.index, call=job.call, outcome=outcome))
        else:
            job.outcome = outcome
        self._unsettled -= 1
        job.invocation = job.binding = job.permit = None
        if job.unread is None:
            job.context = None
        if not self._unsettled:
            self._make_room()
        if self._more is not None and (self._listening or not self._unsettled):
            self._wake()

    def _release(self, job: Job) -> None:
        """Let the calls have their turn that waited for this one, if it had its own."""
        if job.its_turn and self._schedule is not None and not self._stopping:
            following = self._schedule.finish(job.index)
            if following:
                self._line_up(following, job.index)

    def _end(self, job: Job, outcome: Outcome) -> None:
        """Give an outcome to a call whose tool does not run."""
        self._settle(job, outcome)
        self._release(job)

    def _give_up(self) -> None:
        """Give an outcome to every call that has none, when the batch is over."""
        for job in self._open_jobs():
            self._settle(job, Cancelled("cancelled", tool=job.call.name))

    def _hear_late(self, call: ToolCall, context: Context, ended: object) -> None:
        """Log how a call ended that had been reported before, and have a host hear of it."""
        if isinstance(ended, StillRunning) or not isinstance(ended, Exception | Result):
            return  # It was told to stop, and did; or nobody knows yet.
        error = ended if isinstance(ended, Exception) else None
        logger.warning(
            'tool "%s", call "%s" ended after it was given up: %s',
            call.name,
            shown(call.id),
            "completed" if error is None else f"raised {type(error).__name__}",
            exc_info=error,
        )
        if self._executor.on_late is not None:
            heard = contain(self._executor.on_late, context, ended)
            if isinstance(heard, Broke):
                logger.warning("on_late broke", exc_info=heard.error)

    # ---- stopping ------------------------------------------------------------------------------

    def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._ready.clear()
        self._to_ask.clear()
        self._make_room()
        running = {worker.job for worker in self._crew}
        for job in self._jobs:
            if job.outcome is None and job not in running:
                self._settle(job, Cancelled("cancelled", tool=job.call.name))
        grace = self._executor.registry.grace
        for worker in self._crew:
            if worker.job is not None and worker.job.context is not None:
                worker.job.context.stop()
            worker.stop(grace)
        for scope in self._asking:
            scope.cancel()
        if self._patience is not None:
            self._patience.cancel()
        if self._crew or self._asking:
            self._tasks.start_soon(self._watch, grace)

    async def _watch(self, grace: float) -> None:
        """After `grace`, report the calls that have not ended, and name those waited for."""
        with anyio.CancelScope(shield=True) as self._watching:
            if self._crew or self._asking:
                await anyio.sleep(grace)
        for asked in self._asking.values():
            self._log_endless(asked, who="a policy of ")
        for worker in self._crew:
            job = worker.job
            if job is None or job.outcome is not None:
                continue
            if worker.threads.scope is None:
                self._log_endless(job)
            self._settle(job, self._outcome(job, StillRunning()))

    def _end_watch(self) -> None:
        """Watch no longer once nobody is waited for."""
        if self._watching is not None and not self._crew and not self._asking:
            self._watching.cancel()

    def _log_endless(self, job: Job, *, who: str = "") -> None:
        logger.error(
            '%stool "%s", call "%s" does not end after it was cancelled; waiting for it',
            who,
            job.call.name,
            shown(job.call.id),
        )

    # ---- time limits, and threads that were left behind ------------------------------------------

    async def _time(
        self, job: Job, worker: Worker, seconds: float, timer: "anyio.CancelScope"
    ) -> None:
        """At its limit, report a call and tell it to stop; what it works on is still taken."""
        grace = self._executor.registry.grace
        with timer:
            await anyio.sleep(seconds)
            if worker.job is not job or job.outcome is not None:
                return
            if job.context is not None:
                job.context.stop(timed_out=True)
            self._settle(job, self._outcome(job, TimedOut(seconds)))
            worker.stop(grace)
            await anyio.sleep(grace)
            threads = worker.threads
            if worker.job is job and threads.scope is None and threads.abandoned is None:
                self._log_endless(job)

    def _leave(self, job: Job, thread: Thread[object], context: Context) -> None:
        """Leave a thread behind: its slot and what it works on are free when it ends."""
        thread.then(functools.partial(self._thread_ended, job.call, context, thread))
        self._executor.stuck.leave(thread, job.uses or ())
        self._left[thread] = job
        self._hear_of(thread)
        if not self._stopping:
            self._await_threads()

    def _thread_ended(self, call: ToolCall, context: Context, thread: Thread[object]) -> None:
        """Hear how a thread ended that was left behind; in that thread."""
        done = thread.done
        ended = done.error if isinstance(done, Threw) else contain(Result.of, done)
        self._hear_late(call, context, ended.error if isinstance(ended, Broke) else ended)

    def _await_threads(self) -> None:
        """Have somebody wait for the threads that were left behind, if nobody does."""
        if self._news is None:
            self._news = anyio.Event()
            self._tasks.start_soon(self._wait_for_threads)

    async def _wait_for_threads(self) -> None:
        """Give the threads `grace` to end; then give up the calls that need them to."""
        for thread in self._executor.stuck.threads():
            if thread not in self._left:  # Of another batch.
                self._hear_of(thread)
        self._let_go()  # One may have ended before anybody listened.
        with anyio.CancelScope(shield=True) as self._patience:
            with anyio.move_on_after(self._executor.registry.grace):
                while self._held_up() and self._news is not None:
                    await self._news.wait()
                    self._news = anyio.Event()
                    self._let_go()
            self._news = None
            for job in self._held_up():
                self._settle(job, Cancelled("not_reached", tool=job.call.name))
            self._ready = deque(job for job in self._ready if job.outcome is None)
            self._behind = [job for job in self._behind if job.outcome is None]

    def _hear_of(self, thread: Thread[object]) -> None:
        """Have the loop of this batch hear when a thread has ended."""
        token, ended = anyio.lowlevel.current_token(), functools.partial(self._heard, thread)
        self._executor.stuck.when_free(thread, functools.partial(_tell, token, ended))

    def _heard(self, thread: Thread[object]) -> None:
        """Note that a thread has ended; what follows is for a task, which this callback is not."""
        self._freed.append(thread)
        if self._news is not None:
            self._news.set()

    def _let_go(self) -> None:
        """Let those run that waited for threads which have ended."""
        if self._stopping:
            return
        freed, self._freed = self._freed, []
        for job in [self._left.pop(thread) for thread in freed if thread in self._left]:
            self._release(job)
        behind, self._behind = self._behind, []
        for job in behind:
            self._make_ready(job)
        self._hire()

    def _held_up(self) -> list[Job]:
        """Return the calls that cannot run before a thread ends."""
        if self._stopping or self._schedule is None:
            return []
        blocked = {job.index for job in self._behind}
        if not self._workers and self._free_slots() <= 0:
            blocked.update(job.index for job in self._ready)
        blocked |= self._schedule.waiting_for(
            [*blocked, *(job.index for job in self._left.values())]
        )
        jobs = (self._jobs[index] for index in sorted(blocked))
        return [job for job in jobs if job.outcome is None]

    def _free_slots(self) -> int:
        """Return how many workers may be hired, as threads left behind take slots too."""
        return self._executor.max_parallel - len(self._executor.stuck) - self._workers

    # ---- events --------------------------------------------------------------------------------

    def _tell(self, event: "Event | Job") -> None:
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._more is not None:
            self._more.set()
            self._more = None

    def _make_room(self) -> None:
        if self._space is not None:
            self._space.set()
            self._space = None

    async def _wait_for_room(self) -> None:
        while len(self._events) > self._room and self._unsettled and not self._stopping:
            self._space = self._space or anyio.Event()
            await self._space.wait()

    def _progressed(self, job: Job, _: Context, progress: Progress) -> None:
        """Keep the newest update of a call until the reader takes it; from any thread."""
        with self._lock:
            if job.outcome is not None:
                return
            waiting, job.unread = job.unread, progress
            if waiting is not None:
                return
            self._events.append(job)
        if threading.get_ident() == self._thread:
            self._wake()
        elif self._token is not None:
            call_soon(self._token, self._wake)

    def _taken(self, job: Job) -> Progress | None:
        with self._lock:
            update, job.unread = job.unread, None
        return update

    async def _sink(self, job: Job, update: Progress) -> None:
        """Give an update to the executor's own listener; what that raises is its own affair."""
        heard = called(cast("Sink", self._executor.on_progress), job.context, update)
        done = await in_time(self._executor.hook_timeout, heard)
        if isinstance(done, Broke):
            logger.warning("on_progress broke", exc_info=done.error)


def _planned(job: Job) -> Planned:
    if job.outcome is not None or job.invocation is None or job.binding is None:
        return Planned(call=job.call, refused=job.outcome)
    return Planned(
        call=job.call,
        digest=job.invocation.digest,
        fingerprint=job.binding.contract.fingerprint,
        uses=job.uses or (),
        replay=job.replay,
    )


def _replay(job: Job) -> Replay:
    """Return what a second run would do, now that it is known whether an effect was begun."""
    if job.replay != "until_effect":
        return job.replay
    return "unknown" if job.context is None or job.context.effect_begun else "safe"


def _tell(token: Token, callback: Callable[[], object]) -> None:
    """Have a loop call something soon, from any thread, unless it was closed meanwhile."""
    with contextlib.suppress(RuntimeError):
        call_soon(token, callback)
