"""
One batch of calls: side by side where they may, in order where they must, each ending once.

Theory
======

*Workers, not a task a call.* A task costs more than all checks of a small call together. So a few
workers, at most `max_parallel`, take calls from a queue of ready ones. A worker hires the next
one only while calls wait; one that finds the queue empty goes home. The caller's task is never a
worker: its cancellation would become a call's.

*The shield.* A worker runs under a shield, so that nothing outside cancels a tool half way: the
batch alone tells a call to stop. On asyncio that is one `task.cancel()`, as asyncio's own code
would do, and after `grace` every await is cancelled; on trio cancelling is a state. A thread
cannot be told; the batch waits `grace` for it and then goes on without it.

*Events.* A reader that is slow holds the workers, not the tools: a worker that ended a call waits
while more than twice `max_parallel` events are unread. Of progress only the newest unread update
of each call is kept, so nothing grows without bound.

*One `Finished` per call.* `_settle` is the only place that gives a call its outcome, and it takes
the first.
"""

import functools
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Literal, Self, TypeAlias

import anyio
import anyio.lowlevel
import msgspec

from ferrule._asking import Asking, called
from ferrule._backend import call_soon, loop_runs, native_task
from ferrule._calls import ToolCall, new_call_id
from ferrule._contain import Broke
from ferrule._content import Content, Result
from ferrule._contract import Invocation
from ferrule._near import near, shown
from ferrule._outcome import (
    Cancelled,
    Completed,
    Outcome,
    Rejected,
    StillRunning,
    Unknown,
    logger,
    outcome_of,
)
from ferrule._registry import Binding, Permit, Registry, Source
from ferrule._schedule import Schedule
from ferrule._tool import Context, Progress, Recorder, Threads, Tool
from ferrule._traits import Replay, Use, replay_of, uses_of
from ferrule.errors import FerruleError, InvalidCall, Problem

OnDispatch: TypeAlias = Callable[[Context], Awaitable[None] | None]
"""Called when a call has its permit, its slot and its turn, before the tool; it may refuse."""

_FEW = 12
"""Tools of a registry that a name near none of them is answered with."""

_BREATH = 64
"""Calls after which a worker, or admission, lets other tasks of the loop run."""


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A call was dispatched: its tool runs now."""

    index: int
    call: ToolCall


class Progressed(msgspec.Struct, frozen=True, kw_only=True):
    """A running call said how far it is; see `Progress`."""

    index: int
    call: ToolCall
    progress: float | None = None
    total: float | None = None
    message: str | None = None
    content: tuple[Content, ...] = ()


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """A call has ended; nothing more comes of it."""

    index: int
    call: ToolCall
    outcome: Outcome


Event: TypeAlias = Started | Progressed | Finished
"""What a batch tells while it runs; `match` over it is exhaustive."""

Errors: TypeAlias = Literal["reference", "message"]


class Executor:
    """
    Runs batches of calls.

    Args:
        tools: A registry, or tools to make one from.
        max_parallel: How many calls of a batch run at once.
        sequential: Run every batch in the model's order, one call at a time.
        recorder: Makes records durable; see `Recorder`.
        on_dispatch: Called before each tool; a call whose hook raises is
            `Rejected("unavailable")`. A plain function costs a thread hop a call.
        hook_timeout: Seconds that each hook and each trait function may take.
        errors: `"message"` shows the text of private exceptions to the model; for development.
    """

    def __init__(
        self,
        tools: Registry | Iterable[Tool | Source],
        *,
        max_parallel: int = 8,
        sequential: bool = False,
        recorder: Recorder | None = None,
        on_dispatch: OnDispatch | None = None,
        hook_timeout: float = 30.0,
        errors: Errors = "reference",
    ) -> None:
        if max_parallel < 1:
            raise FerruleError("max_parallel is the number of calls that run at once: 1 or more")
        self.registry = tools if isinstance(tools, Registry) else Registry(tools)
        self.max_parallel = max_parallel
        self.sequential = sequential
        self.recorder = recorder
        self.on_dispatch = on_dispatch
        self.hook_timeout = hook_timeout
        self.errors: Errors = errors

    async def run(self, calls: Iterable[ToolCall], *, caller: object = None) -> list[Outcome]:
        """
        Run the calls and return their outcomes in the calls' order.

        Never raises for what a call does. Cancelled from outside, it stops the calls first.
        """
        batch = Batch(self, calls, caller=caller, listening=False)
        async with batch:
            await batch.ended()
        return list(batch.outcomes)

    def run_sync(self, calls: Iterable[ToolCall], *, caller: object = None) -> list[Outcome]:
        """
        Do as `run` does, where no event loop runs.

        Raises:
            FerruleError: an event loop runs in this thread.
        """
        if loop_runs():
            raise FerruleError("an event loop runs here: use `await executor.run(calls)`")
        return anyio.run(functools.partial(self.run, calls, caller=caller))

    def batch(self, calls: Iterable[ToolCall], *, caller: object = None) -> "Batch":
        """
        Return a batch to enter with `async with` and to take events from with `async for`.

        Leaving the block stops what still runs, waits for it, and reports it.
        """
        return Batch(self, calls, caller=caller, listening=True)


class _Job:
    """One call of a batch on its way."""

    __slots__ = (
        "binding", "call", "context", "dispatched", "index", "invocation", "outcome", "replay",
        "unread", "uses",
    )  # fmt: skip

    def __init__(self, index: int, call: ToolCall) -> None:
        self.index = index
        self.call = call
        self.binding: Binding | None = None
        self.invocation: Invocation | None = None
        self.context: Context | None = None
        self.uses: tuple[Use, ...] = ()
        self.replay: Replay = "unknown"
        self.dispatched = False
        self.unread: Progress | None = None
        self.outcome: Outcome | None = None


class _Worker:
    """One hired worker: what it runs and how it is told to stop."""

    __slots__ = ("job", "shield", "task", "threads")

    def __init__(
        self, shield: anyio.CancelScope, limiter: Callable[[], anyio.CapacityLimiter]
    ) -> None:
        self.job: _Job | None = None
        self.shield = shield
        self.task = native_task()
        self.threads = Threads(limiter)

    def stop(self, grace: float) -> None:
        """Tell the running call to stop, as its backend does."""
        deadline = anyio.current_time() + grace
        if self.job is not None and self.threads.scope is not None:
            self.threads.scope.deadline = deadline
        elif self.job is None or self.task is None:
            self.shield.cancel()
        else:
            self.task.cancel()
            self.shield.deadline = deadline


class Batch:
    """
    One batch, made by `Executor.batch`: enter it once, take its events, leave it.

    Attributes:
        outcomes: How each call ended, in the calls' order; complete once the block is left.
    """

    def __init__(
        self, executor: Executor, calls: Iterable[ToolCall], *, caller: object, listening: bool
    ) -> None:
        self._executor = executor
        self._calls = list(calls)
        self._caller = caller
        self._listening = listening
        self._jobs: list[_Job] = []
        self._ready: deque[_Job] = deque()
        self._events: deque[Event | _Job] = deque()
        self._room = 2 * executor.max_parallel
        self._lock = threading.Lock()
        self._crew: set[_Worker] = set()
        self._workers = 0
        self._hiring = False
        self._stopping = False
        self._interrupt: KeyboardInterrupt | None = None
        self._unsettled = 0
        self._more: anyio.Event | None = None
        self._space: anyio.Event | None = None
        self._watching: anyio.CancelScope | None = None
        self._limiter: anyio.CapacityLimiter | None = None
        self._schedule: Schedule | None = None
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
        await self._admit_all()
        await self._ask_traits()
        self._schedule = self._ordered()
        self._token = anyio.lowlevel.current_token() if self._listening else None
        self._thread = threading.get_ident()
        self._ready.extend(self._jobs[index] for index in self._schedule.ready())
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
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
            for job in self._jobs:
                if job.outcome is None:
                    self._settle(job, Cancelled("cancelled", tool=job.call.name))
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
            if not isinstance(event, _Job):
                return event
            progressed = self._taken(event)
            if progressed is not None:
                return progressed

    async def ended(self) -> None:
        """Wait until every call has its outcome."""
        while self._unsettled:
            self._more = anyio.Event()
            await self._more.wait()

    # ---- before anything runs ------------------------------------------------------------------

    async def _admit_all(self) -> None:
        seen: set[str] = set()
        for index, call in enumerate(self._calls):
            if not isinstance(call, ToolCall):
                raise FerruleError(f"a batch is made of ToolCall, not of {type(call).__name__}")
            job = _Job(index, call if call.id else msgspec.structs.replace(call, id=new_call_id()))
            self._jobs.append(job)
            self._unsettled += 1
            refused = self._refused(job, seen)
            seen.add(job.call.id)
            if refused is not None:
                self._settle(job, refused)
            if index % _BREATH == _BREATH - 1:
                await anyio.lowlevel.checkpoint()

    def _refused(self, job: _Job, seen: set[str]) -> Outcome | None:
        """Admit one call, or return why not."""
        name = job.call.name
        if job.call.id in seen:
            return _rejected("duplicate_id", "this id was given to an earlier call", name)
        binding = self._executor.registry.resolve(name)
        if binding is None:
            expected, hint = _nearest(name, self._executor.registry)
            return _rejected("unknown_tool", expected, "", hint)
        try:
            job.invocation = binding.contract.admit(job.call)
        except InvalidCall as error:
            return outcome_of(error, tool=name, call_id=job.call.id, dispatched=False)
        job.binding = binding
        return None

    async def _ask_traits(self) -> None:
        """Give each call its `uses` and `replay`; one whose functions break is refused alone."""
        open_jobs = [job for job in self._jobs if job.outcome is None and not _constant(job)]
        questions = [functools.partial(_computed, job) for job in open_jobs]
        answers = await Asking(questions, self._executor.hook_timeout).answers()
        for job, answer in zip(open_jobs, answers, strict=True):
            if isinstance(answer, Broke):
                self._settle(job, self._outcome(job, answer.error))
            else:
                job.uses, job.replay = answer

    def _ordered(self) -> Schedule:
        open_jobs = [job for job in self._jobs if job.outcome is None]
        chain = self._executor.sequential or any(
            job.binding is not None and job.binding.traits.sequential for job in open_jobs
        )
        uses = [job.uses if job.outcome is None else None for job in self._jobs]
        return Schedule(uses, sequential=chain)

    # ---- workers -------------------------------------------------------------------------------

    def _hire(self) -> None:
        if self._ready and not self._hiring and self._workers < self._executor.max_parallel:
            self._workers += 1
            self._hiring = True  # Until the new one begins: it will hire the next itself.
            self._tasks.start_soon(self._work)

    async def _work(self) -> None:
        with anyio.CancelScope(shield=True) as shield:
            worker = _Worker(shield, self._thread_limiter)
            self._crew.add(worker)
            self._hiring = False
            try:
                await self._work_through(worker)
            finally:
                self._crew.discard(worker)
                self._workers -= 1
                if self._watching is not None and not self._crew:
                    self._watching.cancel()

    def _thread_limiter(self) -> anyio.CapacityLimiter:
        """Return what bounds the threads of this batch; made for the first that needs one."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._executor.max_parallel)
        return self._limiter

    async def _work_through(self, worker: _Worker) -> None:
        done = 0
        while self._ready and not self._stopping:
            job = self._ready.popleft()
            self._hire()
            await self._run(job, worker)
            done += 1
            if self._listening:
                await self._wait_for_room()
            if done % _BREATH == 0:
                await anyio.lowlevel.cancel_shielded_checkpoint()

    async def _run(self, job: _Job, worker: _Worker) -> None:
        worker.job = job
        job.context = context = Context.of(
            job.call,
            on_progress=functools.partial(self._progressed, job) if self._listening else None,
            recorder=self._executor.recorder,
            inject=self._executor.registry.inject,
            caller=self._caller,
        )
        context.threads = worker.threads
        ended: object
        try:
            ended = await self._dispatched(job, context)
        except BaseException as error:
            ended = error
            if isinstance(error, KeyboardInterrupt):
                self._interrupt = error
        worker.job = None
        context.end()
        self._settle(job, Completed(ended) if type(ended) is Result else self._outcome(job, ended))
        if self._interrupt is not None:
            self._stop()

    async def _dispatched(self, job: _Job, context: Context) -> object:
        binding, invocation = job.binding, job.invocation
        if binding is None or invocation is None:
            raise AssertionError("a call that was not admitted is never ready")
        permit = None
        if binding.asks or self._executor.on_dispatch is not None:
            permit = await self._permitted(binding, invocation, context)
        binding.check(invocation)  # It may have been closed meanwhile; then the tool does not run.
        job.dispatched = True
        if self._listening:
            self._tell(Started(index=job.index, call=job.call))
        return await binding.call(invocation, context, permit)

    async def _permitted(
        self, binding: Binding, invocation: Invocation, context: Context
    ) -> Permit:
        """Ask whoever is to be asked before the tool runs, each within `hook_timeout`."""
        seconds = self._executor.hook_timeout
        with anyio.fail_after(seconds):
            permit = await binding.authorize(invocation, context)
        if self._executor.on_dispatch is not None:
            with anyio.fail_after(seconds):
                await called(self._executor.on_dispatch, context)
        return permit

    def _outcome(self, job: _Job, ended: object) -> Outcome:
        return outcome_of(
            ended,
            tool=job.call.name,
            call_id=job.call.id,
            replay=job.replay,
            failures=job.binding.traits.failures if job.binding is not None else (),
            errors=self._executor.errors,
            dispatched=job.dispatched,
            stopped=self._stopping,
        )

    def _settle(self, job: _Job, outcome: Outcome) -> None:
        """Give a call its outcome; only the first counts, a later one is logged as evidence."""
        with self._lock:
            if job.outcome is not None:
                first = False
            else:
                first, job.outcome = True, outcome
        if not first:
            self._log_late(job, outcome)
            return
        self._unsettled -= 1
        if not self._unsettled:
            self._make_room()
        if self._schedule is not None and not self._stopping:
            self._ready.extend(self._jobs[index] for index in self._schedule.finish(job.index))
        job.invocation = job.binding = job.context = None
        if self._listening:
            self._tell(Finished(index=job.index, call=job.call, outcome=outcome))
        elif not self._unsettled:
            self._wake()

    def _log_late(self, job: _Job, outcome: Outcome) -> None:
        if isinstance(job.outcome, Unknown) and job.outcome.reason == "still_running":
            logger.warning(
                'tool "%s", call "%s" ended after it was given up: %s',
                job.call.name,
                shown(job.call.id),
                type(outcome).__name__.lower(),
            )

    # ---- stopping ------------------------------------------------------------------------------

    def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._ready.clear()
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
        if self._crew:
            self._tasks.start_soon(self._watch, grace)

    async def _watch(self, grace: float) -> None:
        """After `grace`, report the calls that have not ended, and name those waited for."""
        with anyio.CancelScope(shield=True) as self._watching:
            if self._crew:
                await anyio.sleep(grace)
        for worker in self._crew:
            job = worker.job
            if job is None or job.outcome is not None:
                continue
            if worker.threads.scope is None:
                logger.error(
                    'tool "%s", call "%s" does not end after it was cancelled; waiting for it',
                    job.call.name,
                    shown(job.call.id),
                )
            self._settle(job, self._outcome(job, StillRunning()))

    # ---- events --------------------------------------------------------------------------------

    def _tell(self, event: "Event | _Job") -> None:
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

    def _progressed(self, job: _Job, _: Context, progress: Progress) -> None:
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

    def _taken(self, job: _Job) -> Progressed | None:
        with self._lock:
            update, job.unread = job.unread, None
        if update is None:
            return None
        return Progressed(
            index=job.index,
            call=job.call,
            progress=update.progress,
            total=update.total,
            message=update.message,
            content=update.content,
        )


def _constant(job: _Job) -> bool:
    """Give a call its `uses` and `replay` where no function has to be asked."""
    if job.binding is None:
        return True
    traits = job.binding.traits
    if callable(traits.uses) or callable(traits.replay):
        return False
    job.uses, job.replay = uses_of(traits.uses), traits.replay
    return True


def _computed(job: _Job) -> tuple[tuple[Use, ...], Replay]:
    if job.binding is None or job.invocation is None:
        return (), "unknown"
    traits, invocation = job.binding.traits, job.invocation
    uses = traits.uses(invocation.arguments) if callable(traits.uses) else traits.uses
    replay = traits.replay(invocation.arguments) if callable(traits.replay) else traits.replay
    return uses_of(uses), replay_of(replay)


def _rejected(
    kind: Literal["duplicate_id", "unknown_tool"], expected: str, tool: str, hint: str = ""
) -> Rejected:
    problem = Problem(path="", rule=kind, expected=expected, hint=hint)
    return Rejected(kind, problems=(problem,), tool=tool)


def _nearest(name: str, registry: Registry) -> tuple[str, str]:
    """Return what to say of a name that no tool has: the nearest ones, never a substitute."""
    names = near(name, registry.names)
    hint = " or ".join(f'"{known}"' for known in names)
    few = registry.names if not names and len(registry) <= _FEW else []
    return f"there is no tool {shown(name)}" + (f"; there is {', '.join(few)}" if few else ""), hint
