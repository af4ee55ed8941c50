"""One call, through the whole boundary."""

import uuid
from collections.abc import Iterable, Mapping

import msgspec

from ferrule import (
    Executor,
    InputRequest,
    Leg,
    Outcome,
    Recorder,
    Registry,
    Suspended,
    Tool,
    ToolCall,
)
from ferrule.testing._context import NOTHING, people
from ferrule.testing._script import Answers


async def call(
    tool: Tool,
    arguments: Mapping[str, object] | str | None = None,
    *,
    inject: Mapping[str, object] = NOTHING,
    answers: Iterable[object] | Answers = (),
    caller: object = None,
    recorder: Recorder | None = None,
) -> Outcome:
    """
    Call a tool once as a model would: through registry, guards and executor.

    Where the call is suspended it is answered and goes on as its next leg, with the same
    idempotency key: a guard's question is answered with an approval by "test", the tool's own with
    a continuation. When the answers run out, or one declines, the call stays `Suspended`, and a
    question of the running tool is answered `Declined("cancel")`. The tool is not closed.

    Args:
        tool: The tool, guarded or not.
        arguments: The arguments, or their JSON text exactly as a model might write it.
        inject: What the tool's injected parameters and roots get; see `Registry`.
        answers: What people say, in order, whoever asks: `context.ask`, a guard, or the tool with
            an `InputRequest`; see `Answers`.
        caller: Who asks.
        recorder: Makes records durable; as a rule a `MemoryRecorder`.

    Raises:
        DeclarationError: the tool cannot work.
        InvalidValue: an answer is not what was asked for.
    """
    asker = people(answers)
    executor = Executor(Registry([tool], inject=inject), asker=asker, recorder=recorder)
    written = _written(executor.registry.names[0], arguments)
    leg = Leg(written, idempotency_key=str(uuid.uuid4()))
    while True:
        (outcome,) = await executor.run([leg], caller=caller)
        if not isinstance(outcome, Suspended):
            return outcome
        following = _following(leg, outcome.request, asker)
        if following is None:
            return outcome
        leg = following


def _following(leg: Leg, request: InputRequest, people: Answers) -> Leg | None:
    """Return the leg on which an answered call goes on; `None` where nobody answers."""
    number = leg.number + 1
    if request.asked is None:
        continuation = people.continuation(request)
        if continuation is None:
            return None
        return msgspec.structs.replace(leg, number=number, continuation=continuation)
    approval = people.approval(request)
    if approval is None:
        return None
    return msgspec.structs.replace(leg, number=number, approvals=(*leg.approvals, approval))


def _written(name: str, arguments: Mapping[str, object] | str | None) -> ToolCall:
    made = ToolCall.of(name, None if isinstance(arguments, str) else arguments)
    if isinstance(arguments, str):
        return msgspec.structs.replace(made, arguments=arguments)
    return made
