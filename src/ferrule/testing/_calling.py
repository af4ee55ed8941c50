"""One call, through the whole boundary."""

import uuid
from collections.abc import Iterable, Mapping

import msgspec

from ferrule import Executor, Leg, Outcome, Recorder, Registry, Suspended, Tool, ToolCall
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

    A guard that asks is answered with an approval by "test", and the call goes on as its next leg.
    When the answers run out, or one declines, a guard's question leaves the call `Suspended`, and a
    question of the running tool is answered `Declined("cancel")`. The tool is not closed.

    Args:
        tool: The tool, guarded or not.
        arguments: The arguments, or their JSON text exactly as a model might write it.
        inject: What the tool's injected parameters and roots get; see `Registry`.
        answers: What people say, in order, to `context.ask` and to guards; see `Answers`.
        caller: Who asks.
        recorder: Makes records durable; as a rule a `MemoryRecorder`.

    Raises:
        DeclarationError: the tool cannot work.
        InvalidValue: an answer is not what a guard asked for.
    """
    asker = people(answers)
    executor = Executor(Registry([tool], inject=inject), asker=asker, recorder=recorder)
    written = _written(executor.registry.names[0], arguments)
    leg = Leg(written, idempotency_key=str(uuid.uuid4()))
    while True:
        (outcome,) = await executor.run([leg], caller=caller)
        if not isinstance(outcome, Suspended) or outcome.request.asked is None:
            return outcome
        approval = asker.approval(outcome.request)
        if approval is None:
            return outcome
        approvals = (*leg.approvals, approval)
        leg = msgspec.structs.replace(leg, number=leg.number + 1, approvals=approvals)


def _written(name: str, arguments: Mapping[str, object] | str | None) -> ToolCall:
    made = ToolCall.of(name, None if isinstance(arguments, str) else arguments)
    if isinstance(arguments, str):
        return msgspec.structs.replace(made, arguments=arguments)
    return made
