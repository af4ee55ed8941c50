"""One running call: what its tool may do meanwhile, and where its function runs."""

import contextvars
import functools
import importlib
import inspect
import logging
import math
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast, overload

import anyio
import anyio.to_thread
import msgspec

from ferrule._calls import ToolCall
from ferrule._contain import Threw, carry
from ferrule._content import Content, Record, blocks
from ferrule._decode import decode, schema_of
from ferrule._hidden import Hidden
from ferrule._near import shown
from ferrule._outcome import StillRunning
from ferrule._requests import Accepted, Approval, Declined, Question
from ferrule._traits import Traits
from ferrule._value import Value, unicode
from ferrule.errors import FerruleError, InvalidCall, InvalidValue

T = TypeVar("T")

logger = logging.getLogger("ferrule")


class Progress(Value, frozen=True, kw_only=True):
    """
    How far a running call is.

    Attributes:
        progress: Done so far, in the tool's own unit; finite and never less than before.
        total: What `progress` will be at the end, if that is known.
        message: A line for people.
        content: Blocks to show meanwhile.
    """

    progress: float | None = None
    total: float | None = None
    message: str | None = None
    content: tuple[Content, ...] = ()


class Thread(Generic[T]):
    """
    A plain function in a thread, which nobody can stop.

    Called in the thread; `then` has something done when it ends, whoever still waits for it.

    Attributes:
        done: What it gave, or what it raised, once it has ended.
    """

    __slots__ = ("_ended", "_function", "_listeners", "_lock", "done")

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._ended = False
        self._listeners: list[Callable[[], None]] = []
        self.done: T | Threw | None = None

    def __call__(self) -> T | Threw:
        """Run the function and say that it has ended."""
        self.done = done = carry(self._function)
        with self._lock:
            self._ended = True
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()
        return done

    def then(self, listener: Callable[[], None]) -> None:
        """Have `listener` called when the thread ends, in that thread; at once if it has."""
        with self._lock:
            if not self._ended:
                self._listeners.append(listener)
                return
        listener()


class Threads:
    """
    How an executor watches a call that runs in a thread.

    Attributes:
        limiter: Gives what bounds how many threads there are.
        scope: What ends the waiting for the thread of the call, while one runs.
        running: The thread of the call, once it runs in one.
        abandoned: The thread that was given up waiting for, if one was.
    """

    __slots__ = ("abandoned", "limiter", "running", "scope")

    def __init__(self, limiter: "Callable[[], anyio.CapacityLimiter]") -> None:
        self.limiter = limiter
        self.scope: anyio.CancelScope | None = None
        self.running: Thread[Any] | None = None
        self.abandoned: Thread[Any] | None = None


class Bridge(Protocol):
    """How a thread that is not anyio's waits for the loop of the call that it runs."""

    def __call__(self, function: Callable[..., Awaitable[T]], /, *arguments: object) -> T:
        """Return what `function` gives in the loop; raise what it raises."""
        ...


class Here(threading.local):
    """
    What is said of one thread alone.

    Attributes:
        bridge: The way to the loop, while this thread runs a call; `None` elsewhere.
    """

    # No contextvar: a context is copied into whatever the thread starts, the loop's side as well.
    bridge: Bridge | None = None


here = Here()

_NOTHING: Mapping[str, object] = MappingProxyType({})

_EFFECT = "ferrule:effect"
"""The record that says that a call may have an effect from now on."""


class Context(msgspec.Struct, Hidden, eq=False, weakref=True):
    """
    One running call, as its tool sees it; made by `Context.of`.

    A parameter annotated with `Context` receives it and is not part of the schema.

    Attributes:
        call: The call as the model wrote it.
        leg: 1 for the first run of this logical call, one more for each answer.
        caller: Who asked for the batch, as the host said.
        session: What the host calls the conversation, as it said.
        threads: How an executor watches the call when it runs in a thread.
        inject: What a harness gives its tools: each name a value, or a function of the context.
        approvals: What people answered to the guards of this call.
        patience: Seconds that each policy, provider and trait function may take.
        traits: What the tool says of itself for these arguments, if its functions were asked.
        given: What a binding made of `inject` for this call, by the parameter's name.
        passed: The guards that a permit says have allowed this leg.
        effect_begun: Whether the call has said that it may have an effect from now on.
    """

    call: ToolCall
    leg: int = 1
    caller: object = None
    session: object = None
    inject: Mapping[str, object] = _NOTHING
    _idempotency_key: str | None = None
    _on_progress: "OnProgress | None" = None
    _recorder: "Recorder | None" = None
    _asker: "Asker | None" = None
    approvals: tuple[Approval, ...] = ()
    patience: float = 30.0
    threads: Threads | None = None
    traits: Traits | None = None
    given: Mapping[str, object] = _NOTHING
    passed: tuple[object, ...] = ()
    effect_begun: bool = False
    _cancelled: bool = False
    _timed_out: bool = False
    _ended: bool = False
    _last: float | None = None
    _on_stop: Callable[[], object] | None = None

    @classmethod
    def of(  # noqa: PLR0913  # each by keyword; a context is what a call is told of
        cls,
        call: ToolCall,
        *,
        on_progress: "OnProgress | None" = None,
        recorder: "Recorder | None" = None,
        asker: "Asker | None" = None,
        inject: Mapping[str, object] = _NOTHING,
        caller: object = None,
        session: object = None,
        idempotency_key: str | None = None,
        number: int = 1,
        approvals: tuple[Approval, ...] = (),
    ) -> "Context":
        """
        Return the context of one leg of `call`, for those who drive calls themselves.

        Args:
            call: The call.
            on_progress: Gets every update, in order, on the tool's side: `(context, progress)`.
            recorder: Makes records durable; without one, `record` does nothing.
            asker: Asks people; without one, `ask` finds nobody.
            inject: What the tool's injected parameters get; see `Registry`.
            caller: Who asks.
            session: What conversation this is.
            idempotency_key: The same for every leg and replay of a logical call; made if left out.
            number: Which leg this is.
            approvals: What people answered to the guards of this call.
        """
        return cls(
            call,
            number,
            caller,
            session,
            inject,
            idempotency_key,
            on_progress,
            recorder,
            asker,
            approvals,
        )

    def __repr__(self) -> str:
        return f"<Context of leg {self.leg} of call {self.call_id!r} to {self.tool!r}>"

    @classmethod
    def current(cls) -> "Context":
        """
        Return the context of the call that is running here.

        Raises:
            LookupError: no call is running here.
        """
        try:
            return running.get()
        except LookupError:
            raise LookupError("no call is running here") from None

    @property
    def call_id(self) -> str:
        """The id of the call."""
        return self.call.id

    @property
    def tool(self) -> str:
        """The name of the tool."""
        return self.call.name

    @property
    def idempotency_key(self) -> str:
        """The same for every leg and replay of this logical call, and for no other call."""
        if self._idempotency_key is None:
            self._idempotency_key = str(uuid.uuid4())
        return self._idempotency_key

    def keep_key(self, key: str | None) -> None:
        """Have the idempotency key that this logical call has had since its first leg."""
        self._idempotency_key = key

    @property
    def cancelled(self) -> bool:
        """Whether the call was told to stop: what a tool in a thread asks now and then."""
        return self._cancelled

    @property
    def timed_out(self) -> bool:
        """Whether it was told to stop as its time is up; a process of a tool's own never hears."""
        return self._timed_out

    @property
    def has_recorder(self) -> bool:
        """Whether records of this call are kept."""
        return self._recorder is not None

    def progress(
        self,
        progress: float | None = None,
        total: float | None = None,
        message: str | None = None,
        content: str | Content | Iterable[Content] = (),
    ) -> None:
        """
        Say how far the call is; a plain call that works from any thread and never waits.

        A number that is not finite, or less than the last, drops the update with a log line.
        After the call has ended nothing is delivered.
        """
        if self._on_progress is None or self._ended:
            return
        if not self._goes_on(progress, total):
            logger.warning(
                'tool "%s", call "%s": progress that is not finite or goes backwards was dropped',
                self.tool,
                shown(self.call_id),
            )
            return
        line = None if message is None else unicode(message, what="the message of a progress")
        update = Progress(progress=progress, total=total, message=line, content=blocks(content))
        self._on_progress(self, update)

    def _goes_on(self, progress: float | None, total: float | None) -> bool:
        if total is not None and not _is_finite(total):
            return False
        if progress is None:
            return True
        if not _is_finite(progress) or (self._last is not None and progress < self._last):
            return False
        self._last = progress
        return True

    async def record(self, namespace: str, data: object = None) -> None:
        """
        Keep `data` for the host; returns when it is durable. Without a recorder, does nothing.

        Args:
            namespace: `owner:kind`, as in `shell:process-group`.
            data: A JSON value; kept as it is now.

        Raises:
            InvalidValue: the namespace or the data cannot be.
            Exception: what the recorder raised.
        """
        await self.keep(Record(namespace, data=data))

    async def keep(self, record: Record) -> None:
        """Keep a record that is made already; as `record`."""
        if self._recorder is not None:
            await self._recorder(self, record)

    def record_blocking(self, namespace: str, data: object = None) -> None:
        """
        Do as `record` does, from a tool that runs in a thread.

        Raises:
            FerruleError: this is not such a thread; `await context.record(…)` is for the loop.
        """
        record = Record(namespace, data=data)
        bridge = _bridge("record")
        if self._recorder is not None:
            bridge(self.keep, record)

    async def begin_effect(self) -> None:
        """
        Say that the call may have an effect from now on; returns when that is durable.

        A tool with `replay="until_effect"` says it before it touches anything: an exception or a
        crash before that is known to have changed nothing, so the one is a definite failure and
        after the other the call runs again (CONTRACT DUR-3). It is kept as a record
        `ferrule:effect`, once.

        Raises:
            Exception: what the recorder raised; the call counts as begun all the same.
        """
        if not self.effect_begun:
            self.effect_begun = True
            await self.keep(Record(_EFFECT))

    def begin_effect_blocking(self) -> None:
        """
        Do as `begin_effect` does, from a tool that runs in a thread.

        Raises:
            FerruleError: this is not such a thread; `await context.begin_effect()` is for the loop.
        """
        _bridge("begin_effect")(self.begin_effect)

    @overload
    async def ask(self, message: str, answer: type[T]) -> Accepted[T] | Declined: ...

    @overload
    async def ask(self, message: str, answer: object = bool) -> Accepted[Any] | Declined: ...

    @overload
    async def ask(self, message: str, *, url: str) -> Accepted[None] | Declined: ...

    async def ask(
        self, message: str, answer: object = bool, *, url: str | None = None
    ) -> Accepted[Any] | Declined:
        """
        Ask a person while the call waits; `Declined("cancel")` where nobody is there.

        Args:
            message: What the person reads.
            answer: The type of the answer: whatever a parameter of a tool may be.
            url: Where the person goes instead; there is no answer then but that they went.

        Raises:
            InvalidValue: the message or the url cannot be, or the answer is not of the type.
            DeclarationError: the type has no JSON form.
            Exception: what the asker raised.
        """
        return await self._asked(message, answer, url)

    async def _asked(
        self, message: str, answer: object, url: str | None
    ) -> Accepted[Any] | Declined:
        schema = None if url is not None else schema_of(answer, where="the answer")
        question = Question(message, schema=schema, url=url)
        if self._asker is None:
            return Declined("cancel")
        given = await self._asker(self, question)
        if isinstance(given, Declined):
            return given
        if not isinstance(given, Accepted):
            raise FerruleError(
                f"an asker gives Accepted(…) or Declined(…), not {type(given).__name__}"
            )
        return Accepted(None) if schema is None else Accepted(_checked(given.content, answer))

    @overload
    def ask_blocking(self, message: str, answer: type[T]) -> Accepted[T] | Declined: ...

    @overload
    def ask_blocking(self, message: str, answer: object = bool) -> Accepted[Any] | Declined: ...

    @overload
    def ask_blocking(self, message: str, *, url: str) -> Accepted[None] | Declined: ...

    def ask_blocking(
        self, message: str, answer: object = bool, *, url: str | None = None
    ) -> Accepted[Any] | Declined:
        """
        Do as `ask` does, from a tool that runs in a thread.

        Raises:
            FerruleError: this is not such a thread; `await context.ask(…)` is for the loop.
        """
        return _bridge("ask")(self._asked, message, answer, url)

    def stop(self, *, timed_out: bool = False) -> None:
        """Tell the call to stop: `cancelled` is true from now on."""
        self._timed_out = self._timed_out or timed_out
        self._cancelled = True
        if self._on_stop is not None:
            self._on_stop()

    def when_stopped(self, told: Callable[[], object] | None) -> None:
        """Have `told` called when the call is told to stop, at once if it was; `None` ends that."""
        self._on_stop = told
        if told is not None and self._cancelled:
            told()

    def end(self) -> None:
        """Say that the call has ended: nothing more is delivered from it."""
        self._ended = True


def _bridge(what: str) -> Bridge:
    """Return the way to the loop, if this is a thread that a tool was given."""
    if here.bridge is not None:
        return here.bridge
    blocking = importlib.import_module("ferrule._blocking")
    if not blocking.is_given():
        raise FerruleError(
            f"{what}_blocking is for tools that run in a thread; here use `await context.{what}(…)`"
        )
    return cast("Bridge", blocking.run)


def _checked(content: object, kind: object) -> object:
    """Return what a person answered as a value of the type that was asked for."""
    try:
        return decode(content, cast("type[object]", kind))
    except InvalidCall as error:
        problems = "; ".join(map(str, error.problems))
        raise InvalidValue(f"the answer is not what was asked for: {problems}") from None


def _is_finite(number: float) -> bool:
    """Say whether a number is finite as a double; an integer beyond that is not."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


OnProgress: TypeAlias = Callable[[Context, Progress], None]
"""What hears of progress."""

Recorder: TypeAlias = Callable[[Context, Record], Awaitable[None]]
"""
What makes records durable: returns when they are. Safe for concurrent use; given to an executor
and never found in the environment. What it raises reaches the tool.
"""

Asker: TypeAlias = Callable[[Context, Question], Awaitable[Accepted[Any] | Declined]]
"""
What asks people: returns when somebody has answered or declined. Given to an executor and never
found in the environment; nothing but the call's own time limit bounds it. What it raises reaches
the tool.
"""

running: contextvars.ContextVar[Context] = contextvars.ContextVar("ferrule_context")
"""The call that runs here; a binding sets it around its tool."""


async def in_thread(context: Context, function: Callable[[], T]) -> T:
    """
    Run a plain function in a worker thread, with the contextvars of the call.

    Raises:
        StillRunning: an executor gave up waiting for the thread, which may still be at work.
    """
    done = await watched(context, functools.partial(_carried, function))
    if isinstance(done, Threw):
        raise done.error
    return done


async def _carried(function: Callable[[], T], threads: Threads | None) -> T | Threw:
    # In a tuple, as trio takes a coroutine that comes out of a thread for a mistake of ours.
    if threads is None:
        (done,) = await anyio.to_thread.run_sync(lambda: (carry(function),))
        return done
    threads.running = thread = Thread(function)
    (done,) = await anyio.to_thread.run_sync(
        lambda: (thread(),), abandon_on_cancel=True, limiter=threads.limiter()
    )
    return done


async def awaited(value: object) -> object:
    """Return what a plain function gave: an awaitable, as of a wrapped async one, is awaited."""
    return await value if inspect.isawaitable(value) else value


async def watched(context: Context, wait: Callable[[Threads | None], Awaitable[T]]) -> T:
    """
    Wait for what runs elsewhere, in a thread or a process, as the executor of the call wants it.

    `wait` is cancelled when an executor gives up; where there is none (`None`), when its caller is.

    Raises:
        StillRunning: an executor gave up waiting.
    """
    threads = context.threads
    if threads is None:
        return await wait(None)
    threads.running = None
    try:
        with anyio.CancelScope(shield=True) as threads.scope:
            return await wait(threads)
    finally:
        threads.scope = None
    threads.abandoned = threads.running
    raise StillRunning
