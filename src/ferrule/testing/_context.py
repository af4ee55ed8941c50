"""A context for calling a tool's function by hand."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import cast

import msgspec

from ferrule import Context, InputRequest, Progress, Question, Record, ToolCall
from ferrule.testing._recorder import MemoryRecorder
from ferrule.testing._script import Answers

NOTHING: Mapping[str, object] = MappingProxyType({})


class KeptContext(Context):
    """
    A context that keeps what its tool told; made by `context`.

    Attributes:
        updates: The progress, in order; what goes backwards or is not finite is dropped, as ever.
    """

    updates: list[Progress] = msgspec.field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        """What the tool recorded, in order."""
        return [kept.record for kept in cast("MemoryRecorder", self._recorder).records]

    @property
    def asked(self) -> list[Question | InputRequest]:
        """What the tool asked, in order."""
        return cast("Answers", self._asker).asked


def context(
    *,
    call: ToolCall | None = None,
    answers: Iterable[object] | Answers = (),
    inject: Mapping[str, object] = NOTHING,
    caller: object = None,
    session: object = None,
    idempotency_key: str | None = None,
) -> KeptContext:
    """
    Return a context to give to a tool's function by hand.

    It keeps what the function tells: `updates` of progress, `records`, and what it `asked`.
    `context.stop()` tells the function to stop: `cancelled` is true from then on. Nothing is
    checked, converted or guarded when a function is called by hand; `call` does all of that.
    `record_blocking` and `ask_blocking` work in a thread alone, as in
    `await anyio.to_thread.run_sync(function, …)`.

    Args:
        call: The call that runs; one of a tool "test" if left out.
        answers: What people say to `ask`, in order; see `Answers`.
        inject: What the harness gives its tools.
        caller: Who asks.
        session: What conversation this is.
        idempotency_key: The same for every leg and replay of a logical call; made if left out.
    """
    made = KeptContext.of(
        ToolCall.of("test") if call is None else call,
        on_progress=_keep,
        recorder=MemoryRecorder(),
        asker=people(answers),
        inject=inject,
        caller=caller,
        session=session,
        idempotency_key=idempotency_key,
    )
    return cast("KeptContext", made)


def people(answers: Iterable[object] | Answers) -> Answers:
    """Return who gives these answers."""
    if isinstance(answers, Answers):
        return answers
    return Answers(*([answers] if isinstance(answers, str) else answers))


def _keep(context: Context, progress: Progress) -> None:
    cast("KeptContext", context).updates.append(progress)
