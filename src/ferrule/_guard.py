"""
May it run? Whoever is to be asked is asked before the tool is, and says yes, no, or ask a person.

Theory. A guard is a wrapper with a policy. `Binding.authorize` asks every guard of a tool, from
the outermost inwards, and makes a permit that names them; a guard's `call` lets pass what such a
permit covers. A guard that is called in any other way asks first itself. So there is no way to the
tool past its guards, whoever drives the call (CONTRACT AUT-2, AUT-5, AUT-6).

A policy is other people's code: it may be slow, raise, or answer nonsense. Nothing of that is an
answer, so all of it is an `AuthorizationError`, and what the policy raised is sealed in it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, cast

import anyio.lowlevel
import msgspec

from ferrule._asking import called, in_time
from ferrule._contain import Broke, contain
from ferrule._content import Result
from ferrule._context import Context
from ferrule._contract import Invocation, Repair
from ferrule._decisions import Allow, Ask, Decision, Deny
from ferrule._decode import schema_of
from ferrule._definition import Definition
from ferrule._failure import Failure
from ferrule._requests import Approval, Asked, InputRequest
from ferrule._tool import Tool
from ferrule._traits import Traits
from ferrule._value import type_name
from ferrule._wrapper import Wrapper
from ferrule.errors import AuthorizationError, FerruleError, InvalidCall, InvalidTool


class Authorization(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a policy sees of one leg of a call: facts, and nothing that can run (CONTRACT AUT-1).

    Each policy gets its own; what it does to the arguments reaches nobody.

    Attributes:
        definition: The tool as the model sees it, frozen when it was bound.
        arguments: The validated arguments as plain JSON values, with repairs.
        repairs: What was changed in what the model wrote.
        digest: Of the arguments; what an approval is bound to.
        fingerprint: Of the tool as a whole; what an approval is bound to.
        origin: Where the tool comes from, as in `mcp:git`.
        traits: What the tool says of itself for these arguments; hints are hints.
        confinement: The name of what confines this call, or `None`: nothing does.
        caller: Who asked for the batch, as the host said.
        call_id: The logical call.
        approval: What a person answered to this guard about this very call, or `None`.
    """

    definition: Definition
    arguments: dict[str, object] = {}  # msgspec copies an empty default
    repairs: tuple[Repair, ...] = ()
    digest: str = ""
    fingerprint: str = ""
    origin: str = "local"
    traits: Traits = Traits()
    confinement: str | None = None
    caller: object = None
    call_id: str = ""
    approval: Approval | None = None

    def __repr__(self) -> str:
        return f"<Authorization of {self.definition.name!r} for call {self.call_id!r}>"


Authorizer: TypeAlias = Callable[[Authorization], Decision | Awaitable[Decision]]
"""
A policy: plain or async; a plain one runs in a thread, at one hop a call. It answers `Allow()`,
`Deny(…)`, `Ask(…)` or a bool; anything else, an exception or silence is a policy error, and the
tool does not run.
"""


class Guard(Wrapper):
    """
    A tool that may run only when a policy allows it.

    Guards nest: each asks for itself, the outermost first.

    Args:
        tool: The tool to guard.
        authorizer: The policy; see `Authorizer`.

    Raises:
        InvalidTool: that is no tool, or no policy.
    """

    def __init__(self, tool: Tool, authorizer: Authorizer) -> None:
        if not callable(authorizer):
            raise InvalidTool(
                "a Guard needs a policy: a function that takes an Authorization and answers "
                f"Allow(), Deny(…), Ask(…) or a bool, not {type_name(authorizer)}"
            )
        super().__init__(tool)
        self.authorizer = authorizer

    @property
    def policy(self) -> str:
        """What the policy is called: its module and its name, or those of its class."""
        policy = self.authorizer
        named = policy if hasattr(policy, "__qualname__") else type(policy)
        return f"{named.__module__}.{named.__qualname__}"

    async def call(self, invocation: Invocation, context: Context, /) -> Result | InputRequest:
        """
        Run one call that the policy has allowed; asks first where nobody has yet.

        Raises:
            Failure: the policy denies it.
            AuthorizationError: the policy could not decide.
        """
        if not any(guard is self for guard in context.passed):
            refused = await refusal((self,), invocation, context, self.traits)
            if isinstance(refused, Deny):
                raise rejected(refused, context.tool)
            if refused is not None:
                return refused
        return await super().call(invocation, context)


async def refusal(
    guards: Sequence[Guard], invocation: Invocation, context: Context, traits: Traits
) -> Deny | InputRequest | None:
    """
    Ask each guard in turn; return what stands against the call, or `None` if nothing does.

    Args:
        guards: From the outermost inwards.
        invocation: The call.
        context: The leg; each policy may take its `patience`.
        traits: Of the tool; functions among them are asked here if nobody has yet.

    Raises:
        AuthorizationError: a policy raised, answered nonsense, or took too long.
        InvalidCall: `"unavailable"`: a trait function did.
    """
    await anyio.lowlevel.checkpoint()  # A call that is cancelled already asks nobody.
    facts = _Facts(invocation, context, await _settled(traits, invocation, context))
    for place, guard in enumerate(guards):
        decision = await facts.decision(guard, f"{place}:{guard.policy}")
        if decision is not None:
            return decision
    return None


def rejected(denied: Deny, tool: str) -> Failure:
    """Return a denial as what is raised where a tool is called directly."""
    return Failure.rejected(denied.reason or f'tool "{tool}" is not authorized')


async def _settled(traits: Traits, invocation: Invocation, context: Context) -> Traits:
    """Return what the tool says of itself for this call."""
    if context.traits is not None or traits.is_settled:
        return context.traits or traits
    answer = await in_time(context.patience, called(traits.settled, lambda: invocation.arguments))
    if isinstance(answer, Broke):
        raise InvalidCall("unavailable") from answer.error
    return cast("Traits", answer)


class _Facts:
    """What is the same for every guard of one leg."""

    def __init__(self, invocation: Invocation, context: Context, traits: Traits) -> None:
        self._invocation = invocation
        self._context = context
        self._traits = traits
        self._contract = invocation[0]
        self._digest = invocation.digest
        self._fingerprint = self._contract.fingerprint

    async def decision(self, guard: Guard, name: str) -> Deny | InputRequest | None:
        """Ask one guard; `None` is yes."""
        asked = Asked(
            call_id=self._context.call_id,
            digest=self._digest,
            fingerprint=self._fingerprint,
            guard=name,
        )
        # The newest: a guard may have asked one thing after another.
        approvals = reversed(self._context.approvals)
        approval = next((one for one in approvals if one.holds(asked)), None)
        facts = self._authorization(asked, approval)
        answer = await in_time(self._context.patience, called(guard.authorizer, facts))
        if isinstance(answer, Broke):
            raise self._broke(answer.error)
        await anyio.lowlevel.checkpoint()  # Cancelled meanwhile: that comes before any answer.
        if isinstance(answer, Ask):
            return self._asks(answer, asked, approval)
        if answer is True or isinstance(answer, Allow):
            return None
        if answer is False:
            return Deny()
        if isinstance(answer, Deny):
            return answer
        nonsense = f"a policy answers Allow(), Deny(…), Ask(…) or a bool, not {type_name(answer)}"
        raise self._broke(FerruleError(nonsense))

    def _authorization(self, asked: Asked, approval: Approval | None) -> Authorization:
        return Authorization(
            definition=self._contract.definition,
            arguments=self._invocation.arguments,
            repairs=self._invocation.repairs,
            digest=asked.digest,
            fingerprint=asked.fingerprint,
            origin=self._contract.origin,
            traits=self._traits,
            confinement=cast("str | None", self._traits.confinement),
            caller=self._context.caller,
            call_id=asked.call_id,
            approval=approval,
        )

    def _asks(
        self, ask: Ask, asked: Asked, approval: Approval | None
    ) -> Deny | InputRequest | None:
        """Return the question for a person, unless it is the one that was answered already."""
        request = contain(_request, ask, asked)
        if isinstance(request, Broke):
            raise self._broke(request.error)
        if approval is not None and approval.question == request.question:
            if approval.answer is True:
                return None
            if approval.answer is False:
                return Deny(f'tool "{self._contract.name}" was not approved')
        return request

    def _broke(self, cause: BaseException) -> AuthorizationError:
        return AuthorizationError(self._contract.name, cause)


def _request(ask: Ask, asked: Asked) -> InputRequest:
    schema = schema_of(ask.answer, where="the answer of an Ask")
    return InputRequest(ask.message, schema=schema, expires_in=ask.expires_in, asked=asked)
