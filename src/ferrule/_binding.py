"""One contract and its tool: who may run it, once, and how that run is called."""

from collections.abc import Callable
from typing import TypeGuard, TypeVar, cast

import msgspec

from ferrule._asking import called, in_time
from ferrule._calls import ToolCall
from ferrule._contain import Broke, contain, message_of
from ferrule._content import Record, Result
from ferrule._context import Context, running
from ferrule._contract import Contract, Decode, Invocation, Resume
from ferrule._decisions import Deny
from ferrule._definition import Definition
from ferrule._failure import classify
from ferrule._guard import Guard, refusal, rejected
from ferrule._ijson import Limits, canonical
from ferrule._requests import Approval, Continuation, InputRequest, Posed
from ferrule._tool import Preparing, Resuming, Rules, Tool, Validating
from ferrule._traits import Traits, uses_of
from ferrule._value import Sealed
from ferrule._wrapper import facts_of, is_tool, layers
from ferrule.errors import (
    DeclarationError,
    ForeignInvocation,
    InvalidCall,
    InvalidResult,
    InvalidTool,
    InvalidValue,
)

T = TypeVar("T")


class _LegFacts(msgspec.Struct, frozen=True, kw_only=True):
    continuation: Continuation | None = None
    number: int = 1
    idempotency_key: str | None = None
    approvals: tuple[Approval, ...] = ()
    session: object = None


class Leg(_LegFacts, frozen=True):
    """
    One run of a tool's code for a call, for those who drive calls themselves.

    The first leg of a call is the call itself; one more comes for each answer.

    Attributes:
        call: The call as the model wrote it.
        continuation: What a person answered to the tool's latest question; `None` is a new call.
        number: Which leg: 1 is the first.
        idempotency_key: The same for every leg of one logical call; made for the first if `None`.
        approvals: What people answered to the guards of this call, all of them so far.
        session: What the host calls the conversation.
    """

    call: ToolCall

    def __post_init__(self) -> None:
        if not isinstance(self.call, ToolCall):
            raise InvalidValue(f"a Leg is of a ToolCall, not of a {type(self.call).__name__}")
        if not isinstance(self.number, int) or self.number < 1:
            raise InvalidValue("the number of a Leg is 1 for the first, then 2, 3, …")
        if self.continuation is not None and type(self.continuation) is not Continuation:
            raise InvalidValue(
                "the continuation of a Leg is what `request.continuation(answer)` returns"
            )
        approvals = self.approvals
        if not isinstance(approvals, tuple) or not all(isinstance(a, Approval) for a in approvals):
            raise InvalidValue(
                "the approvals of a Leg are a tuple: (request.approval(answer, by=…),)"
            )


class Permit(Sealed, tuple["Binding", Invocation, int, list[dict[str, object]]]):
    """One leg of one invocation may run, once; `Binding.authorize` alone makes it."""

    # Last comes a list with what the harness injects; it is empty once the permit was used.

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Permit of leg {self[2]} of {self[1]!r}>"


_NOTHING: dict[str, object] = {}
_new: Callable[[type[Permit], tuple[object, ...]], Permit] = vars(tuple)["__new__"]


class Life:
    """Whether the owner of some bindings has closed them."""

    __slots__ = ("closed",)

    def __init__(self) -> None:
        self.closed = False


class Binding:
    """
    One contract and the tool that executes it; made by `bind`.

    Calls may run side by side as far as the tool allows it.

    Attributes:
        asks: Whether `authorize` runs code of a harness, and so may take its time.
        guards: The guards of the tool, from the outermost inwards.
        life: Whether its owner has closed it.
        uses: What every call works on, or `None` if that is to be asked for each.
        is_plain: Whether nobody is asked, nothing is worked on, and nothing said of a second run.
    """

    __slots__ = (
        "_preparing", "asks", "contract", "guards", "is_plain", "life", "tool", "traits", "uses",
    )  # fmt: skip

    def __init__(self, contract: Contract, tool: Tool, traits: Traits, life: Life) -> None:
        self.contract = contract
        self.tool = tool
        self.traits = traits
        self.guards = tuple(layer for layer in layers(tool) if isinstance(layer, Guard))
        self.uses = uses_of(traits.uses) if traits.is_settled else None
        self.life = life
        self._preparing = preparing(tool)
        self.asks = self._preparing is not None or bool(self.guards)
        self.is_plain = not self.asks and self.uses == () and traits.replay == "unknown"

    def __repr__(self) -> str:
        return f"<Binding of {self.contract.name!r} from {self.contract.origin!r}>"

    async def authorize(
        self, invocation: Invocation, context: Context
    ) -> Permit | InputRequest | Deny:
        """
        Ask whoever is to be asked whether this leg of `invocation` may run.

        Every guard is asked, the outermost first, until one says no or wants a person to be asked:
        its `Deny` or its request is returned. Otherwise a permit is, for this leg and once; where
        there is nothing to ask, at once. What the tool's parameters are to be given is made ready
        first, so that nobody is asked about a path that leads out.

        Raises:
            ForeignInvocation: another contract made the invocation.
            InvalidCall: `"unavailable"`: the tool was closed, or what its parameters are to be
                given is not to be had; or a path that leaves its root.
            AuthorizationError: a policy could not decide.
        """
        ours = type(invocation) is Invocation and invocation[0] is self.contract
        if not ours or self.life.closed:
            self.check(invocation)  # Says why not; looked at here, as most tools have no more.
        injected = _NOTHING
        if self.asks:
            injected = await self._injected(context)
            self._given(invocation, injected)
        if self.guards:
            refused = await refusal(self.guards, invocation, context, self.traits)
            if refused is not None:
                return refused
        return _new(Permit, (self, invocation, context.leg, [injected]))

    async def call(
        self,
        invocation: Invocation,
        context: Context | None = None,
        permit: Permit | None = None,
    ) -> Result | InputRequest:
        """
        Run one leg of an admitted call, asking for a permit first if none is given.

        What the tool raises is raised as it is; `outcome_of` says what it means.

        Raises:
            ForeignInvocation: invocation or permit belong to another binding, call or leg, or the
                permit was used.
            InvalidCall: `"unavailable"`: the tool was closed; or a path leaves its root, which is
                looked at again as the call begins. `check` says so before.
            InvalidResult: what the tool returned cannot be given on; the tool did run.
            Failure: no permit was given, and a guard denied the call.
        """
        if (permit is None or context is None) and (
            type(invocation) is not Invocation
            or invocation[0] is not self.contract
            or self.life.closed
        ):
            self.check(invocation)  # Says why not; looked at here, as nearly every call is right.
        if context is None:
            context = Context(invocation.call)
        if permit is None and self.asks:
            answer = await self.authorize(invocation, context)
            if not isinstance(answer, Permit):
                return self._refused(answer)
            permit = answer
        if permit is not None:
            self._redeem(permit, invocation, context)
        token = running.set(context)
        try:
            result = await self.tool.call(invocation, context)
        except Exception as error:
            failure = classify(error)
            if failure is not None and isinstance(failure.details, Record):
                await context.keep(failure.details)
            raise
        finally:
            running.reset(token)
        if not isinstance(result, Result):
            return self._question(invocation, result)
        self.contract.check_result(result)
        if result.details is not None and isinstance(result.details, Record):
            await context.keep(result.details)
        return result

    def check(self, invocation: Invocation, permit: Permit | None = None) -> None:
        """
        Do nothing if `invocation` may run here now, with this permit.

        Raises:
            ForeignInvocation: another contract made it.
            InvalidCall: `"unavailable"`: the tool was closed; or a path leaves its root, as links
                may lead elsewhere than when the permit was given.
        """
        # The class is compared exactly: a subclass is nothing that a contract made.
        if type(invocation) is not Invocation or invocation[0] is not self.contract:
            raise ForeignInvocation(
                f'this is no invocation of tool "{self.contract.name}" as bound here; '
                "admit the call with this binding's contract"
            )
        if self.life.closed:
            raise InvalidCall("unavailable")
        if permit is not None and permit[3]:
            self._given(invocation, permit[3][0])

    def _refused(self, answer: Deny | InputRequest) -> InputRequest:
        """Return what a guard wants to be asked; a denial is raised."""
        if isinstance(answer, Deny):
            raise rejected(answer, self.contract.name)
        return answer

    def _question(self, invocation: Invocation, result: object) -> InputRequest:
        """Return what a tool gave in the place of a result, if it is a question, as this call's."""
        if not isinstance(result, InputRequest):
            raise InvalidResult(
                f"a tool gives a Result or an InputRequest, not {type(result).__name__}"
            )
        if result.asked is not None:
            raise InvalidResult("a tool asks its own questions; what a guard asks is not its own")
        self.contract.check_request(result)
        posed = Posed(
            call_id=invocation.call.id,
            digest=invocation.digest,
            fingerprint=self.contract.fingerprint,
        )
        return msgspec.structs.replace(result, posed=posed)

    def _redeem(self, permit: Permit, invocation: Invocation, context: Context) -> None:
        """Give the call what goes with its permit, if that is for this leg of it; only once."""
        if (
            type(permit) is not Permit
            or permit[0] is not self
            or permit[1] is not invocation
            or permit[2] != context.leg
            or not permit[3]
        ):
            raise ForeignInvocation(
                f'this permit is not for this leg of this call of tool "{self.contract.name}", or '
                "it was used; ask `authorize` for one"
            )
        if self.life.closed:
            raise InvalidCall("unavailable")
        injected = permit[3].pop()
        if self.asks:
            context.given = self._given(invocation, injected)
            context.passed = self.guards

    async def _injected(self, context: Context) -> dict[str, object]:
        """Ask the harness for what the tool's parameters are to be given."""
        if self._preparing is None:
            return _NOTHING
        injected: dict[str, object] = {}
        for name in sorted(self._preparing.injected & context.inject.keys()):
            provider = _provided(context.inject[name], context)
            value = await in_time(context.patience, provider)
            if isinstance(value, Broke):
                raise InvalidCall("unavailable") from value.error
            injected[name] = value
        return injected

    def _given(self, invocation: Invocation, injected: dict[str, object]) -> dict[str, object]:
        """Return what the tool's parameters get, or raise `InvalidCall`."""
        if self._preparing is None:
            return _NOTHING
        given = contain(self._preparing.prepare, invocation, injected)
        if not isinstance(given, Broke):
            return given
        if isinstance(given.error, InvalidCall):
            raise given.error
        raise InvalidCall("unavailable") from given.error


async def _provided(value: object, context: Context) -> object:
    """Return a value, or what a function of the context gives."""
    return await called(value, context) if callable(value) else value


def preparing(tool: Tool) -> Preparing | None:
    """Return the layer of a tool that wants something of the harness."""
    found = next(filter(_is_preparing, layers(tool)), None)
    return found if found is not None and found.injected else None


# A protocol's own `isinstance` reads every member each time; one name tells these apart.


def _is_validating(tool: object) -> TypeGuard[Validating]:
    return callable(getattr(tool, "validator", None))


def _is_preparing(tool: object) -> TypeGuard[Preparing]:
    return callable(getattr(tool, "prepare", None))


def _is_resuming(tool: object) -> TypeGuard[Resuming]:
    return callable(getattr(tool, "resumer", None))


def bind(tool: Tool, *, origin: str = "local", limits: Limits = Limits()) -> Binding:
    """
    Bind a tool to a contract of its own.

    Reads the definition once and freezes it, compiles its schemas, takes the validator once.

    Raises:
        InvalidTool: the tool cannot work; says why.
    """
    return bind_within(tool, origin, limits, Life())


def bind_within(tool: Tool, origin: str, limits: Limits, life: Life) -> Binding:
    """Do as `bind` does, for an owner who closes the binding."""
    if not is_tool(tool):
        raise InvalidTool(_no_tool(tool))
    definition, traits = facts_of(tool)
    decode = _had(contain(_decode, tool, definition), f"the validator of tool `{definition.name}`")
    resume = _had(contain(_resume, tool, definition), f"the resumer of tool `{definition.name}`")
    contract = Contract(
        definition,
        decode=decode,
        resume=resume,
        hints=traits.hints,
        leniency=traits.leniency,
        origin=origin,
        limits=limits,
    )
    return Binding(contract, tool, traits, life)


def _had(part: T | Broke, what: str) -> T:
    """Return a part of a tool; raise why it cannot be had."""
    if not isinstance(part, Broke):
        return part
    if isinstance(part.error, DeclarationError):
        raise part.error
    raise InvalidTool(f"{what} cannot be had: {message_of(part.error)}") from part.error


def _decode(tool: Tool, definition: Definition) -> Decode | None:
    """Return the validator of the outermost layer that has one, taken once."""
    for layer in layers(tool):
        if not _is_validating(layer):
            continue
        decode = layer.validator()
        if decode is None:
            return None
        if not callable(decode):
            raise InvalidTool(f"the validator of tool `{definition.name}` is no function")
        # It knows the schema of its own layer; where a wrapper shows another one, that is asked.
        differ = _differ(cast("Tool", layer), tool, definition)
        return Rules(decode, None) if differ else decode
    return None


def _resume(tool: Tool, definition: Definition) -> Resume | None:
    """Return what the outermost layer that knows says of answers, taken once."""
    layer = next(filter(_is_resuming, layers(tool)), None)
    resume = None if layer is None else layer.resumer()
    if resume is not None and not callable(resume):
        raise InvalidTool(f"the resumer of tool `{definition.name}` is no function")
    return resume


def _differ(own: Tool, tool: Tool, shown: Definition) -> bool:
    """Say whether a layer of a tool has another schema than the tool shows."""
    if own is tool:
        return False
    return canonical(own.definition.input_schema) != canonical(shown.input_schema)


def _no_tool(tool: object) -> str:
    if isinstance(tool, type):
        return f"`{tool.__name__}` is a class, not a tool; give an object of it"
    if callable(tool):
        name = getattr(tool, "__name__", type(tool).__name__)
        return f"`{name}` is a plain function, not a tool; write `@tool` above it"
    return f"{type(tool).__name__} is not a tool: it has no `definition`, `traits` and `call`"
