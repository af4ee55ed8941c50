"""
A process for each call: `run_in="process"`, seen from the process that asks for it.

Theory. The child is Python again, finds the tool by module and name, lets the arguments in again
and runs the function: see `_child`. The two talk in lines through the child's input and output.
Down go the order, then `more` for each update of progress that was taken, and `cancelled` once. Up
come progress, of which one line at a time is on its way, and at the end one answer. When the
parent is gone, the child reads the end of its input and kills its group; when the child is gone,
the parent reads the end of its output and asks how it died. So neither is left behind.

A call that is told to stop is told so through the pipe. When nobody waits for it any more, its
process group is killed: this is what a process can do and a thread cannot.
"""

import contextlib
import inspect
import json
import os
import signal
import sys
from typing import TypeAlias, cast

import anyio
import msgspec

from ferrule._content import RawJSON, Result
from ferrule._context import Context, Progress, Threads, watched
from ferrule._contract import Invocation
from ferrule._failure import CallError, Failure
from ferrule._ijson import Limits
from ferrule._outcome import Crashed
from ferrule._plain import json_text
from ferrule._requests import Continuation, InputRequest
from ferrule._value import Value
from ferrule.errors import DeclarationError, FerruleError, InvalidResult, clip

GRACE = 5.0
"""Seconds for a child to end after it was told, where no executor counts them, and to leave."""

MORE = b"more"
CANCELLED = b"cancelled"

# The child looks for nothing in the working directory that its parent would not find there; `-m`
# would look there first, and for Ferrule itself.
_START = """
import sys
sys.path[:] = sys.argv[1:]
del sys.argv[1:]
from ferrule._child import main
main()
"""

_WIDEST = 8
"""Bytes of a line for each byte that a result may have: an escape takes six."""


class Order(Value, frozen=True, kw_only=True):
    """
    What a child is to do.

    Attributes:
        module: The module that holds the tool.
        name: The tool's name in it.
        call_id: The id of the call.
        tool: The name that the model called.
        arguments: JSON text, let in already by the parent.
        leg: Which run of the call this is.
        idempotency_key: That of the call.
        limits: Those of the registry.
        request: What the call asked, if it goes on with an answer, as JSON.
        answer: The answer, as JSON; an exact text as `{"text": …}` where `is_raw` says so.
        is_raw: Whether the answer is kept as its text.
    """

    module: str
    name: str
    call_id: str
    tool: str
    arguments: str
    leg: int
    idempotency_key: str
    limits: Limits
    request: object = None
    answer: object = None
    is_raw: bool = False

    @property
    def continuation(self) -> Continuation | None:
        """What the call goes on with, made again."""
        if self.request is None:
            return None
        answer = RawJSON.from_json(self.answer) if self.is_raw else self.answer
        return InputRequest.from_json(self.request).continuation(answer)


class Told(Value, frozen=True, kw_only=True, tag="progress", tag_field="says"):
    """How far the function is."""

    progress: Progress


class Gave(Value, frozen=True, kw_only=True, tag="result", tag_field="says"):
    """What the function gave, as JSON."""

    result: object


class Asked(Value, frozen=True, kw_only=True, tag="request", tag_field="says"):
    """What the function wants to be asked, as JSON."""

    request: object


class Refused(Value, frozen=True, kw_only=True, tag="failure", tag_field="says"):
    """How the function failed, as JSON, and what lies behind it, for operators."""

    failure: object
    trace: str = ""


class Bad(Value, frozen=True, kw_only=True, tag="bad_result", tag_field="says"):
    """Why what the function gave cannot be given on."""

    message: str


class Raised(Value, frozen=True, kw_only=True, tag="raised", tag_field="says"):
    """What the function raised, for operators; and what was seen before, as JSON."""

    message: str
    trace: str
    is_exit: bool = False
    evidence: object = None


Answer: TypeAlias = Gave | Asked | Refused | Bad | Raised


class ChildError(FerruleError):
    """
    The function raised in its process; the text is that of its exception.

    The traceback of the child stands below it in an operator's log, as a note.
    """


class Lines:
    """Bytes as they come, as the lines they make; each is joined once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` ends; `size` is what it leaves open."""
        first, *others = chunk.split(b"\n")
        self._parts.append(first)
        self.size += len(first)
        if not others:
            return []
        whole = [b"".join(self._parts), *others[:-1]]
        self._parts, self.size = [others[-1]], len(others[-1])
        return whole


class Elsewhere:
    """
    Where the function of a tool runs: in a process for each call, found by module and name.

    Raises:
        DeclarationError: no other process could find the function.
    """

    def __init__(self, function: object, tool: str) -> None:
        if os.name != "posix":
            raise DeclarationError(f'`{tool}`: run_in="process" needs POSIX; use "thread" here')
        self.module = str(getattr(function, "__module__", None))
        self.name = str(getattr(function, "__qualname__", None))
        reason = _unfindable(function, self.module, self.name)
        if reason:
            raise DeclarationError(
                f"`{tool}` runs in a process, which finds it by module and name: {reason}; put a "
                "plain `def` with @tool above it at the top of a module that can be imported"
            )

    @property
    def found(self) -> object:
        """What module and name lead to in this process, or `None`."""
        found: object = sys.modules.get(self.module)
        for step in self.name.split("."):
            found = getattr(found, step, None)
        return found

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"

    def check_step(self, name: str, function: object, *, takes_more: bool) -> None:
        """
        Refuse a step that a process would not have, or could give nothing.

        Raises:
            DeclarationError: says where to write it instead.
        """
        module, qualified = (
            getattr(function, "__module__", None),
            getattr(function, "__qualname__", ""),
        )
        if module != self.module or "<locals>" in qualified:
            raise DeclarationError(
                f"step `{name}` runs in a process, which imports `{self.module}` and no more; "
                "write it at the top of that module"
            )
        if takes_more:
            raise DeclarationError(
                f"step `{name}` runs in a process, where no harness injects anything; write "
                'run_in="thread", or keep in the state what leads to it'
            )

    async def run(self, invocation: Invocation, context: Context) -> Result | InputRequest:
        """
        Run one call in a process of its own.

        Raises:
            Failure: the function did, or raised one of the tool's `failures`.
            InvalidResult: what it gave cannot be given on.
            ChildError: it raised something else.
            Crashed: its process died, or was left.
            StillRunning: an executor gave up waiting; the process was killed.
        """
        limits = invocation[0].limits
        order = Order(
            module=self.module,
            name=self.name,
            call_id=context.call_id,
            tool=context.tool,
            arguments=invocation[2],
            leg=context.leg,
            idempotency_key=context.idempotency_key,
            limits=limits,
        )
        if invocation.continuation is not None:
            order = _going_on(order, invocation.continuation)
        child = _Child(order, context, limits.output_bytes * _WIDEST)
        context.when_stopped(child.stopped.set)
        try:
            await watched(context, child.live)
        finally:
            context.when_stopped(None)
        return child.outcome()


def _going_on(order: Order, continuation: Continuation) -> Order:
    # Without the note of which call asked: the child's contract is its own, and not that of the
    # binding that has compared it.
    request = msgspec.structs.replace(continuation.request, posed=None)
    answer = continuation.answer
    is_raw = isinstance(answer, RawJSON)
    return msgspec.structs.replace(
        order,
        request=request.to_json(),
        answer=answer.to_json() if isinstance(answer, RawJSON) else answer,
        is_raw=is_raw,
    )


def _unfindable(function: object, module: str, name: str) -> str:
    """Return why no other process finds a function, or nothing if one may."""
    if not inspect.isfunction(function):
        return "this is a bound method, a partial or an object, not a function"
    if module == "__main__":
        return "the program that was started is no module to others"
    if "<locals>" in name:
        return "it is local to a function"
    return "a lambda has no name" if "<lambda>" in name else ""


class _Child:
    """
    One process and what it says.

    Attributes:
        stopped: Set when the call is told to stop.
    """

    def __init__(self, order: Order, context: Context, limit: int) -> None:
        self.stopped = anyio.Event()
        self._order = order
        self._context = context
        self._limit = limit
        self._lines = Lines()
        self._answer: Answer | None = None
        self._fault: Bad | None = None
        self._status: int | None = None
        self._sending = anyio.Lock()

    async def live(self, threads: Threads | None) -> None:
        """Start the process, hear it out, and see it gone, whatever happens."""
        process = await _started()
        try:
            await self._converse(process)
        except anyio.get_cancelled_exc_class():
            if threads is None:  # An executor has told it, and waited, before it cancels.
                await self._told_to_stop(process)
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await self._seen_gone(process)

    def outcome(self) -> Result | InputRequest:
        """Return what the function gave, or raise what it said instead."""
        match self._fault or self._answer:
            case Gave(result=result):
                return Result.from_json(result)
            case Asked(request=request):
                return InputRequest.from_json(request)
            case Refused(failure=written, trace=trace):
                failure = Failure.from_json(written)
                failure.cause = _noted(ChildError(str(failure)), trace) if trace else None
                raise failure
            case Bad(message=message):
                raise InvalidResult(message)
            case Raised() as raised:
                raise _error(raised)
            case None:
                raise Crashed(f"the process of the call {_how(self._status)}")

    async def _converse(self, process: "anyio.abc.Process") -> None:
        async with anyio.create_task_group() as group:
            await self._say(process, json_text(self._order.to_json()).encode())
            group.start_soon(self._pass_on_stop, process)
            while self._answer is None and self._fault is None:
                said = await self._heard(process)
                if said is None:
                    break
                for line in said:
                    await self._take(process, line)
            group.cancel_scope.cancel()

    async def _heard(self, process: "anyio.abc.Process") -> list[bytes] | None:
        """Return the lines that have come, or `None` when the child is gone."""
        if process.stdout is None:
            raise AssertionError("it was started with a pipe")
        try:
            said = self._lines.feed(await process.stdout.receive())
        except anyio.EndOfStream:
            return None
        if self._lines.size > self._limit:
            self._fault = Bad(message="the process of the call gave more than output_bytes allows")
        return said

    async def _take(self, process: "anyio.abc.Process", line: bytes) -> None:
        said = _read(line)
        if isinstance(said, Told):
            self._hear(said.progress)
            await self._say(process, MORE)
        elif said is None:
            self._fault = Bad(message="the process of the call gave a line that is no answer")
        else:
            self._answer = said

    def _hear(self, told: Progress) -> None:
        self._context.progress(told.progress, told.total, told.message, told.content)

    async def _pass_on_stop(self, process: "anyio.abc.Process") -> None:
        await self.stopped.wait()
        await self._say(process, CANCELLED)

    async def _told_to_stop(self, process: "anyio.abc.Process") -> None:
        """Tell it, and wait for it to end by itself."""
        with anyio.move_on_after(GRACE, shield=True):
            await self._say(process, CANCELLED)
            while await self._heard(process) is not None:
                pass

    async def _say(self, process: "anyio.abc.Process", line: bytes) -> None:
        """Send a line; one that is dead does not hear it, and is found to be dead elsewhere."""
        if process.stdin is None:
            raise AssertionError("it was started with a pipe")
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            async with self._sending:
                await process.stdin.send(line + b"\n")

    async def _seen_gone(self, process: "anyio.abc.Process") -> None:
        """Let it leave if it has answered, kill it and what it started if not, and reap it."""
        if self._answer is not None:
            with anyio.move_on_after(GRACE):
                await process.wait()
        if self._answer is None or process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # Nobody is left.
                os.killpg(process.pid, signal.SIGKILL)
        self._status = await process.wait()
        await process.aclose()


async def _started() -> "anyio.abc.Process":
    """Start a child, in a session of its own, so that it and what it starts are one group."""
    command = [sys.executable, "-c", _START, *sys.path]
    reason = ""
    try:
        with anyio.CancelScope(shield=True):  # Half started it could be lost.
            return await anyio.open_process(command, stderr=None, start_new_session=True)
    except OSError as error:
        reason = str(error)
    # Not `from error`: the tool may have said that the text of such errors is public.
    raise FerruleError(f"the process of the call could not be started: {reason}")


def _read(line: bytes) -> Told | Answer | None:
    """Return what a line says, or `None` if it is none of ours."""
    # Not `_ijson`: the child is our own code, and what a tool returns may be any finite number.
    try:
        return cast("Told | Answer", msgspec.convert(json.loads(line), _SAID))
    except ValueError:
        return None


_SAID: object = Told | Gave | Asked | Refused | Bad | Raised


def _error(raised: Raised) -> FerruleError:
    kind = Crashed if raised.is_exit else ChildError
    error = kind(raised.message)
    _noted(error, raised.trace)
    if raised.evidence is None:
        return error
    seen = CallError(Result.from_json(raised.evidence))
    seen.__cause__ = error
    return seen


def _noted(error: FerruleError, trace: str) -> FerruleError:
    error.add_note(clip(trace, 65_536))
    return error


def _how(status: int | None) -> str:
    """Say how a process ended."""
    if status is not None and status < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-status).name}"
        return f"was ended by signal {-status}"
    return f"ended with status {status} and without an answer"
