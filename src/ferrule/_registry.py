"""The tools that a harness offers: bound once, found by exact name, closed once."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from inspect import getattr_static
from types import TracebackType
from typing import Protocol, Self, TypeAlias, TypeGuard, TypeVar, cast, runtime_checkable

import anyio
import msgspec

from ferrule._asking import called, in_time
from ferrule._calls import ToolCall
from ferrule._contain import Broke, contain, contain_async, message_of
from ferrule._content import Record, Result
from ferrule._contract import Contract, Decode, Invocation, Sealed
from ferrule._decisions import Deny
from ferrule._definition import Definition
from ferrule._failure import Failure
from ferrule._guard import Authorizer, Guard, refusal, rejected
from ferrule._ijson import Limits, canonical
from ferrule._requests import Approval, InputRequest
from ferrule._tool import (
    Closing,
    Context,
    Preparing,
    Rules,
    Tool,
    Validating,
    close_with,
    running,
)
from ferrule._traits import Traits, uses_of
from ferrule._wrapper import capability, facts_of, is_tool, layers
from ferrule.errors import (
    DeclarationError,
    DuplicateTool,
    FerruleError,
    ForeignInvocation,
    InvalidCall,
    InvalidResult,
    InvalidTool,
)

T = TypeVar("T")


class _LegFacts(msgspec.Struct, frozen=True, kw_only=True):
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
        number: Which leg: 1 is the first.
        idempotency_key: The same for every leg of one logical call; made for the first if `None`.
        approvals: What people answered to the guards of this call, all of them so far.
        session: What the host calls the conversation.
    """

    call: ToolCall


class Permit(Sealed, tuple["Binding", Invocation, int, list[dict[str, object]]]):
    """One leg of one invocation may run, once; `Binding.authorize` alone makes it."""

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
        uses: What every call works on, or `None` if that is to be asked for each.
    """

    __slots__ = ("_life", "_preparing", "asks", "contract", "guards", "tool", "traits", "uses")

    def __init__(self, contract: Contract, tool: Tool, traits: Traits, life: Life) -> None:
        self.contract = contract
        self.tool = tool
        self.traits = traits
        self.guards = tuple(layer for layer in layers(tool) if isinstance(layer, Guard))
        self.uses = uses_of(traits.uses) if traits.is_settled else None
        self._life = life
        self._preparing = _preparing(tool)
        self.asks = self._preparing is not None or bool(self.guards)

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
        self.check(invocation)
        given = _NOTHING
        if self.asks:
            given = await self._given(invocation, context)
            if self.guards:
                refused = await refusal(self.guards, invocation, context, self.traits)
                if refused is not None:
                    return refused
        return _new(Permit, (self, invocation, context.leg, [given]))

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
            InvalidCall: `"unavailable"`: the tool was closed.
            InvalidResult: what the tool returned cannot be given on; the tool did run.
            Failure: no permit was given, and a guard denied the call.
        """
        if permit is None or context is None:
            self.check(invocation)
        if context is None:
            context = Context(invocation.call)
        if permit is None and self.asks:
            answer = await self.authorize(invocation, context)
            if not isinstance(answer, Permit):
                return self._refused(answer)
            permit = answer
        if permit is not None:
            context.given = self._granted(permit, invocation, context)
            context.passed = self.guards
        token = running.set(context)
        try:
            result = await self.tool.call(invocation, context)
        except Failure as failure:
            if isinstance(failure.details, Record):
                await context.keep(failure.details)
            raise
        finally:
            running.reset(token)
        if not isinstance(result, Result):
            return self._question(result)
        self.contract.check_result(result)
        if isinstance(result.details, Record):
            await context.keep(result.details)
        return result

    def check(self, invocation: Invocation) -> None:
        """
        Do nothing if `invocation` may run here now.

        Raises:
            ForeignInvocation: another contract made it.
            InvalidCall: `"unavailable"`: the tool was closed.
        """
        # The class is compared exactly: a subclass is nothing that a contract made.
        ours = type(invocation) is Invocation and invocation[0] is self.contract
        if ours and not self._life.closed:
            return
        if ours:
            raise InvalidCall("unavailable")
        raise ForeignInvocation(
            f'this is no invocation of tool "{self.contract.name}" as bound here; '
            "admit the call with this binding's contract"
        )

    def _refused(self, answer: Deny | InputRequest) -> InputRequest:
        """Return what a guard wants to be asked; a denial is raised."""
        if isinstance(answer, Deny):
            raise rejected(answer, self.contract.name)
        return answer

    def _question(self, result: object) -> InputRequest:
        """Return what a tool gave in the place of a result, if it is a question."""
        if not isinstance(result, InputRequest):
            raise InvalidResult(
                f"a tool gives a Result or an InputRequest, not {type(result).__name__}"
            )
        if result.asked is not None:
            raise InvalidResult("a tool asks its own questions; what a guard asks is not its own")
        return result

    def _granted(
        self, permit: Permit, invocation: Invocation, context: Context
    ) -> dict[str, object]:
        """Return what goes with a permit, if it is for this leg of this invocation; only once."""
        if (
            type(permit) is Permit
            and permit[0] is self
            and permit[1] is invocation
            and permit[2] == context.leg
            and permit[3]
        ):
            if self._life.closed:
                raise InvalidCall("unavailable")
            return permit[3].pop()
        raise ForeignInvocation(
            f'this permit is not for this leg of this call of tool "{self.contract.name}", or it '
            "was used; ask `authorize` for one"
        )

    async def _given(self, invocation: Invocation, context: Context) -> dict[str, object]:
        """Ask the harness for what the tool's parameters are to be given."""
        tool = self._preparing
        if tool is None:
            return _NOTHING
        injected: dict[str, object] = {}
        for name in sorted(tool.injected & context.inject.keys()):
            provider = _provided(context.inject[name], context)
            value = await in_time(context.patience, provider)
            if isinstance(value, Broke):
                raise InvalidCall("unavailable") from value.error
            injected[name] = value
        given = contain(tool.prepare, invocation, injected)
        if not isinstance(given, Broke):
            return given
        if isinstance(given.error, InvalidCall):
            raise given.error
        raise InvalidCall("unavailable") from given.error


async def _provided(value: object, context: Context) -> object:
    """Return a value, or what a function of the context gives."""
    return await called(value, context) if callable(value) else value


def _preparing(tool: Tool) -> Preparing | None:
    """Return the layer of a tool that wants something of the harness."""
    found = next(filter(_is_preparing, layers(tool)), None)
    return found if found is not None and found.injected else None


# A protocol's own `isinstance` reads every member each time; one name tells these apart.


def _is_validating(tool: object) -> TypeGuard[Validating]:
    return callable(getattr(tool, "validator", None))


def _is_preparing(tool: object) -> TypeGuard[Preparing]:
    return callable(getattr(tool, "prepare", None))


def bind(tool: Tool, *, origin: str = "local", limits: Limits = Limits()) -> Binding:
    """
    Bind a tool to a contract of its own.

    Reads the definition once and freezes it, compiles its schemas, takes the validator once.

    Raises:
        InvalidTool: the tool cannot work; says why.
    """
    return _bind(tool, origin, limits, Life())


def _bind(tool: Tool, origin: str, limits: Limits, life: Life) -> Binding:
    if not is_tool(tool):
        raise InvalidTool(_no_tool(tool))
    definition, traits = facts_of(tool)
    decode = contain(_decode, tool, definition)
    if isinstance(decode, Broke):
        if isinstance(decode.error, DeclarationError):
            raise decode.error
        what = f"the validator of tool `{definition.name}` cannot be had"
        raise InvalidTool(f"{what}: {message_of(decode.error)}") from decode.error
    contract = Contract(definition, decode=decode, hints=traits.hints, origin=origin, limits=limits)
    return Binding(contract, tool, traits, life)


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


@runtime_checkable
class Source(Protocol):
    """
    Something that has tools once it is open: a registry that holds it opens and closes it.

    Its tools are registered under its origin.
    """

    @property
    def origin(self) -> str:
        """Where its tools come from, as in `mcp:git`."""
        ...

    @property
    def tools(self) -> Iterable[Tool]:
        """What it offers; read once it is open."""
        ...

    async def __aenter__(self) -> object:
        """Open it."""
        ...

    async def aclose(self) -> None:
        """Close it; a second time does nothing."""
        ...


def _is_source(thing: "Tool | Source") -> TypeGuard[Source]:
    """Say whether `thing` is a source, without reading its tools: it is not open yet."""
    names = ("origin", "tools", "__aenter__", "aclose")
    has_all = all(getattr_static(thing, name, None) is not None for name in names)
    return has_all and not isinstance(thing, type)


Wrap: TypeAlias = Callable[[Tool], Tool | None]
"""Gives what stands in the place of a tool: a wrapper of it most often, `None` for nothing."""


class Registry:
    """
    The tools that a harness offers, by name, each with its origin.

    Safe between threads. Entered with `async with`, it opens the sources it holds and closes
    sources and tools at the end.

    Args:
        tools: Tools and sources to begin with.
        origin: Where the tools come from, for those that are given without another origin.
        inject: What injected parameters and the roots of paths get, by name: a value, or a function
            of the call's context, plain or async.
        limits: What calls to these tools may weigh.
        grace: Seconds for each tool to close, and for a running call to end after it was told.
    """

    def __init__(
        self,
        tools: "Iterable[Tool | Source]" = (),
        *,
        origin: str = "local",
        inject: Mapping[str, object] | None = None,
        limits: Limits = Limits(),
        grace: float = 5.0,
    ) -> None:
        self.origin = origin
        self.inject = dict(inject or {})
        self.limits = limits
        self.grace = grace
        self._lock = threading.Lock()
        self._life = Life()
        self._bindings: dict[str, Binding] = {}
        self._retired: list[Binding] = []
        self._wraps: tuple[Wrap, ...] = ()
        given = _listed(tools)
        self._sources = [source for source in given if _is_source(source)]
        self.register([cast("Tool", tool) for tool in given if not _is_source(tool)])

    def register(self, tools: Iterable[Tool], *, origin: str | None = None) -> None:
        """
        Add tools: all of them, or none.

        Raises:
            InvalidTool: one cannot work; the sentence says which, by position.
            DuplicateTool: a name is taken; the first conflict in the order given.
        """
        bound = self._bound(tools, self.origin if origin is None else origin)
        with self._lock:
            self._bindings = _joined(self._bindings, bound)

    def replace(self, origin: str, tools: Iterable[Tool]) -> None:
        """
        Put `tools` in the place of all that came from `origin`, at once.

        Calls that were admitted already finish on the tool that they were admitted for.

        Raises:
            InvalidTool: one cannot work; nothing was replaced.
            DuplicateTool: a name is taken by another origin; nothing was replaced.
        """
        bound = self._bound(tools, origin)
        with self._lock:
            kept = {n: b for n, b in self._bindings.items() if b.contract.origin != origin}
            joined = _joined(kept, bound)
            self._retired += [b for n, b in self._bindings.items() if n not in kept]
            self._bindings = joined

    def resolve(self, name: str) -> Binding | None:
        """Return the binding of exactly this name, the same one each time, or `None`."""
        return self._bindings.get(name)

    def map(self, wrap: Wrap) -> "Registry":
        """
        Return a registry of what `wrap` makes of each tool; `None` leaves the tool out.

        It has the tools that are here now, and the sources: whichever of the two registries is
        entered opens them, and what they bring is wrapped alike. Neither sees what the other
        registers later.

        Raises:
            InvalidTool: `wrap` made something that cannot work.
            DuplicateTool: it gave two tools one name.
        """
        made = Registry(
            origin=self.origin, inject=self.inject, limits=self.limits, grace=self.grace
        )
        made._wraps = (wrap,)
        for binding in self._bindings.values():
            made.register([binding.tool], origin=binding.contract.origin)
        made._wraps = (*self._wraps, wrap)
        made._sources = list(self._sources)
        return made

    def guarded(self, authorizer: Authorizer) -> "Registry":
        """Return a registry of these tools, each behind the policy; see `map` and `Guard`."""
        return self.map(lambda tool: Guard(tool, authorizer))

    def definitions(self) -> list[Definition]:
        """Return what a model may read: detached, sorted by name."""
        bindings = self._bindings
        return [bindings[name].contract.definition for name in sorted(bindings)]

    def __iter__(self) -> Iterator[Tool]:
        return iter([binding.tool for binding in self._bindings.values()])

    def __len__(self) -> int:
        return len(self._bindings)

    def __contains__(self, name: object) -> bool:
        return name in self._bindings

    @property
    def names(self) -> list[str]:
        """The names, sorted."""
        return sorted(self._bindings)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            opened.push_async_callback(self.aclose)
            for source in self._sources:
                await source.__aenter__()
                self.register(source.tools, origin=source.origin)
            opened.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """
        Close every tool and source once, in order; a call after it is `Rejected("unavailable")`.

        Goes on after an error, and past one that does not end within `grace`. Closing twice does
        nothing.

        Raises:
            ExceptionGroup: what went wrong, naming the tools.
        """
        with self._lock:
            if self._life.closed:
                return
            self._life.closed = True
            bindings = [*self._bindings.values(), *self._retired]
        owners = [(f"tool `{b.contract.name}`", capability(b.tool, Closing)) for b in bindings]
        owners += [(f"source `{source.origin}`", source) for source in self._sources]
        errors: list[Exception] = []
        closed: set[int] = set()  # A tool that was bound twice, as `replace` may do, closes once.
        for what, owner in owners:
            if owner is not None and id(owner) not in closed:
                closed.add(id(owner))
                errors += await self._close(what, owner)
        if errors:
            raise ExceptionGroup("some tools did not close", errors)

    async def _close(self, what: str, owner: Closing) -> list[Exception]:
        with anyio.move_on_after(self.grace, shield=True):
            done = await contain_async(close_with(owner.aclose))
            if not isinstance(done, Broke):
                return []
            error = FerruleError(f"{what} did not close: {message_of(done.error)}")
            error.__cause__ = done.error
            return [error]
        return [FerruleError(f"{what} did not close within {self.grace:g} s")]

    def _bound(self, tools: Iterable[Tool], origin: str) -> list[Binding]:
        bound: list[Binding] = []
        for index, given in enumerate(_listed(tools)):
            try:
                tool = self._wrapped(given)
                if tool is None:
                    continue
                bound.append(_bind(tool, origin, self.limits, self._life))
                self._check_injected(tool, bound[-1].contract.name)
            except DeclarationError as error:
                raise type(error)(f"tools[{index}]: {error}") from error
        return bound

    def _wrapped(self, tool: Tool) -> Tool | None:
        """Return what the wraps make of a tool, the first of them innermost."""
        made: Tool | None = tool
        for wrap in self._wraps:
            made = None if made is None else wrap(made)
        return made

    def _check_injected(self, tool: Tool, name: str) -> None:
        wanting = _preparing(tool)
        missing = [] if wanting is None else sorted(wanting.injected - self.inject.keys())
        if missing:
            raise InvalidTool(
                f"tool `{name}` takes `{missing[0]}` from the registry, which has no such name; "
                f'write Registry(..., inject={{"{missing[0]}": ...}})'
            )


def _listed(tools: Iterable[T]) -> list[T]:
    if not isinstance(tools, Iterable):
        raise InvalidTool(f"give a list of tools, not one {type(tools).__name__}")
    return list(tools)


def _joined(present: dict[str, Binding], added: list[Binding]) -> dict[str, Binding]:
    joined = dict(present)
    for index, binding in enumerate(added):
        name, origin = binding.contract.name, binding.contract.origin
        other = joined.get(name)
        if other is not None:
            raise DuplicateTool(
                f"tools[{index}]: a tool named `{name}` is there already, from origin "
                f"`{other.contract.origin}`, and origin `{origin}` brings another; "
                'give one of them another name with `name=`, or with `Wrapper(tool, name="…")`'
            )
        joined[name] = binding
    return joined
