"""
The process of one call: `run_in="process"`, seen from inside; `_process` is the other side.

The function runs in the main thread, as no loop is needed here; another thread hears what the
parent says. What a tool prints goes to the parent's standard error, so that nothing but lines of
ours is in the pipe.
"""

import contextlib
import functools
import json
import os
import pkgutil
import signal
import threading
import traceback
from collections.abc import Iterator
from typing import NoReturn, cast

from ferrule._binding import bind
from ferrule._calls import ToolCall
from ferrule._contain import Threw, carry, message_of
from ferrule._context import Bridge, Context, Progress, here, running
from ferrule._failure import Failure, chain, classify, evidence_of
from ferrule._function import FunctionTool
from ferrule._plain import json_text
from ferrule._process import (
    CANCELLED,
    MORE,
    Answer,
    Asked,
    Bad,
    Gave,
    Lines,
    Order,
    Raised,
    Refused,
    Told,
)
from ferrule._requests import InputRequest
from ferrule._tool import Tool
from ferrule._wrapper import layers
from ferrule.errors import FerruleError, InvalidResult, clip


def main() -> None:
    """Do what the parent orders, answer, and end."""
    line = _Line(*_pipes())
    order = Order.from_json(json.loads(line.first()))
    answer = carry(functools.partial(_answer, order, line))
    line.answer(_raised(answer.error) if isinstance(answer, Threw) else answer)


def _pipes() -> tuple[int, int]:
    """Take input and output away from the tool, and return them."""
    up, down = os.dup(1), os.dup(0)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # A process that the tool forks would hold the pipe open, and seem to be us.
    os.register_at_fork(after_in_child=functools.partial(os.close, up))
    return down, up


class _Line:
    """The line to the parent: what it says, and one update of progress at a time up to it."""

    def __init__(self, down: int, up: int) -> None:
        self._heard = _lines(down)
        self._up = up
        self._lock = threading.Lock()
        self._is_free = True
        self._unsent: Progress | None = None
        self._answered = False

    def first(self) -> bytes:
        """Return the order."""
        return next(self._heard)

    def listen(self, context: Context) -> None:
        """Hear from now on, in a thread, what the parent says of the call."""
        threading.Thread(target=self._listen, args=(context,), daemon=True).start()

    def tell(self, _: Context, progress: Progress) -> None:
        """Send an update when the last one was taken; the newest is the one that waits."""
        with self._lock:
            self._unsent = progress
            if self._is_free:
                self._send_progress()

    def answer(self, answer: Answer) -> None:
        """Send the newest update, if one waits, and the answer."""
        with self._lock:
            self._send_progress()
            self._answered = True
            self._write(answer)

    def _listen(self, context: Context) -> None:
        for line in self._heard:
            if line == CANCELLED:
                context.stop()
            elif line == MORE:
                with self._lock:
                    self._is_free = True
                    self._send_progress()
        if not self._answered:
            os.killpg(0, signal.SIGKILL)  # Nobody waits any more, for us or for what we started.

    def _send_progress(self) -> None:
        unsent, self._unsent = self._unsent, None
        if unsent is not None and not self._answered:
            self._is_free = False
            self._write(Told(progress=unsent))

    def _write(self, said: Told | Answer) -> None:
        data = memoryview(json_text(said.to_json()).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):  # The parent is gone; `_listen` hears of it.
            while data:
                data = data[os.write(self._up, data) :]


def _lines(down: int) -> Iterator[bytes]:
    """Yield what the parent says, until it is gone."""
    lines = Lines()
    while chunk := os.read(down, 65_536):
        yield from lines.feed(chunk)


def _answer(order: Order, line: _Line) -> Answer:
    """Let the call in again and run it."""
    tool = _found(order)
    contract = bind(tool, limits=order.limits).contract
    call = ToolCall(id=order.call_id, name=contract.name, arguments=order.arguments)
    invocation = contract.admit(call, order.continuation)
    context = Context.of(
        ToolCall(id=order.call_id, name=order.tool, arguments=order.arguments),
        on_progress=line.tell,
        recorder=_refusing,
        asker=_refusing,
        idempotency_key=order.idempotency_key,
        number=order.leg,
    )
    line.listen(context)
    running.set(context)
    here.bridge = cast("Bridge", _no_way)
    given = carry(functools.partial(tool.run_here, invocation, context))
    context.end()
    if isinstance(given, Threw):
        return _told(given.error, tool.traits.failures)
    try:
        if isinstance(given, InputRequest):
            return Asked(request=given.to_json())
        contract.check_result(given)
        return Gave(result=given.to_json())
    except InvalidResult as error:
        return Bad(message=str(error))


def _found(order: Order) -> FunctionTool[..., object]:
    """Return the tool that the parent means."""
    found = pkgutil.resolve_name(f"{order.module}:{order.name}")
    for layer in layers(cast("Tool", found)):
        if isinstance(layer, FunctionTool):
            return cast("FunctionTool[..., object]", layer)
    raise FerruleError(f"`{order.module}.{order.name}` is no tool in the process of the call")


async def _refusing(_: Context, __: object) -> NoReturn:
    raise FerruleError(_NO_WAY)


def _no_way(*_: object) -> NoReturn:
    raise FerruleError(_NO_WAY)


_NO_WAY = (
    'a tool that runs in a process can neither record nor ask; run_in="thread" can, and a process '
    "may return an InputRequest"
)


def _told(error: BaseException, failures: tuple[type[Exception], ...]) -> Answer:
    """Return what an exception of the tool says to the parent."""
    failure = classify(error)
    if failure is not None:
        behind = failure.cause or failure.__cause__
        trace = "" if behind is None else _trace(behind)
        return Refused(failure=failure.to_json(), trace=trace)
    if isinstance(error, InvalidResult):
        return Bad(message=str(error))
    for link in chain(error):
        if isinstance(link, failures):
            public = Failure(clip(message_of(link), 4096))
            return Refused(failure=public.to_json(), trace=_trace(error))
    return _raised(error)


def _raised(error: BaseException) -> Raised:
    evidence = evidence_of(error)
    is_exit = not isinstance(error, Exception)
    said = clip(message_of(error), 4096)
    return Raised(
        message=f"{type(error).__name__}: {said}" if is_exit else said,
        trace=_trace(error),
        is_exit=is_exit,
        evidence=None if evidence is None else evidence.to_json(),
    )


def _trace(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error))
    return text.encode("utf-8", "replace").decode()
