"""The tools that a harness offers: bound once, found by exact name, closed once."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from inspect import getattr_static
from types import TracebackType
from typing import Protocol, Self, TypeGuard, TypeVar, cast, runtime_checkable

import anyio

from ferrule._asking import called
from ferrule._contain import Broke, contain, contain_async, message_of
from ferrule._content import Record, Result
from ferrule._contract import Contract, Decode, Invocation, Sealed
from ferrule._definition import Definition
from ferrule._failure import Failure
from ferrule._ijson import Limits
from ferrule._requests import InputRequest
from ferrule._tool import (
    Closing,
    Context,
    Preparing,
    Tool,
    Validating,
    close_with,
    running,
)
from ferrule._traits import Traits
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


class Permit(Sealed, tuple["Binding", Invocation, int, dict[str, object]]):
    """One leg of one invocation may run; `Binding.authorize` alone makes it."""

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
    """

    __slots__ = ("_life", "_preparing", "asks", "contract", "tool", "traits")

    asks: bool
    """Whether `authorize` runs code of a harness, and so may take its time."""

    def __init__(self, contract: Contract, tool: Tool, traits: Traits, life: Life) -> None:
        self.contract = contract
        self.tool = tool
        self.traits = traits
        self._life = life
        self._preparing = _preparing(tool)
        self.asks = self._preparing is not None

    def __repr__(self) -> str:
        return f"<Binding of {self.contract.name!r} from {self.contract.origin!r}>"

    async def authorize(self, invocation: Invocation, context: Context) -> Permit:
        """
        Return a permit for this leg of `invocation`; where there is nothing to ask, at once.

        Raises:
            ForeignInvocation: another contract made the invocation.
            InvalidCall: `"unavailable"`: the tool was closed, or what its parameters are to be
                given is not to be had; or a path that leaves its root.
        """
        self.check(invocation)
        given = await self._given(invocation, context) if self.asks else _NOTHING
        return _new(Permit, (self, invocation, context.leg, given))

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
            ForeignInvocation: invocation or permit belong to another binding, call or leg.
            InvalidCall: `"unavailable"`: the tool was closed.
            InvalidResult: what the tool returned cannot be given on; the tool did run.
        """
        if permit is None or context is None:
            self.check(invocation)
        if context is None:
            context = Context(invocation.call)
        if permit is None and self.asks:
            permit = await self.authorize(invocation, context)
        if permit is not None:
            context.given = self._granted(permit, invocation, context)
        token = running.set(context)
        try:
            result = await self.tool.call(invocation, context)
        except Failure as failure:
            if isinstance(failure.details, Record):
                await context.keep(failure.details)
            raise
        finally:
            running.reset(token)
        if isinstance(result, Result):
            self.contract.check_result(result)
            if isinstance(result.details, Record):
                await context.keep(result.details)
        elif not isinstance(result, InputRequest):
            raise InvalidResult(
                f"a tool gives a Result or an InputRequest, not {type(result).__name__}"
            )
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

    def _granted(
        self, permit: Permit, invocation: Invocation, context: Context
    ) -> dict[str, object]:
        """Return what goes with a permit, if it is for this leg of this invocation."""
        if (
            type(permit) is Permit
            and permit[0] is self
            and permit[1] is invocation
            and permit[2] == context.leg
        ):
            if self._life.closed:
                raise InvalidCall("unavailable")
            return permit[3]
        raise ForeignInvocation(
            f'this permit is not for this leg of this call of tool "{self.contract.name}"; '
            "ask `authorize` for one"
        )

    async def _given(self, invocation: Invocation, context: Context) -> dict[str, object]:
        """Ask the harness for what the tool's parameters are to be given."""
        tool = self._preparing
        if tool is None:
            return {}
        injected: dict[str, object] = {}
        for name in sorted(tool.injected & context.inject.keys()):
            value = await contain_async(_provided(context.inject[name], context))
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
    return tool if _is_preparing(tool) and tool.injected else None


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
    if not callable(getattr(type(tool), "call", None)):
        raise InvalidTool(_no_tool(tool))
    done = contain(_facts, tool)
    if isinstance(done, Broke):
        if isinstance(done.error, DeclarationError):
            raise done.error
        what = f"{type(tool).__name__} cannot be read as a tool"
        raise InvalidTool(f"{what}: {message_of(done.error)}") from done.error
    definition, traits, decode = done
    contract = Contract(
        definition,
        decode=decode,
        hints=traits.hints,
        leniency=traits.leniency,
        origin=origin,
        limits=limits,
    )
    return Binding(contract, tool, traits, life)


def _facts(tool: Tool) -> tuple[Definition, Traits, Decode | None]:
    definition, traits = tool.definition, tool.traits
    if not isinstance(definition, Definition):
        raise InvalidTool(f"the definition of a {type(tool).__name__} is no Definition")
    if not isinstance(traits, Traits):
        raise InvalidTool(f"the traits of tool `{definition.name}` are no Traits")
    decode = tool.validator() if _is_validating(tool) else None
    if decode is not None and not callable(decode):
        raise InvalidTool(f"the validator of tool `{definition.name}` is no function")
    return definition, traits, decode


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
        owners: list[tuple[str, object]] = [(f"tool `{b.contract.name}`", b.tool) for b in bindings]
        owners += [(f"source `{source.origin}`", source) for source in self._sources]
        errors: list[Exception] = []
        closed: set[int] = set()  # A tool that was bound twice, as `replace` may do, closes once.
        for what, owner in owners:
            if id(owner) in closed:
                continue
            closed.add(id(owner))
            if isinstance(owner, Closing):
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
        for index, tool in enumerate(_listed(tools)):
            try:
                bound.append(_bind(tool, origin, self.limits, self._life))
                self._check_injected(tool, bound[-1].contract.name)
            except DeclarationError as error:
                raise type(error)(f"tools[{index}]: {error}") from error
        return bound

    def _check_injected(self, tool: Tool, name: str) -> None:
        wanted = tool.injected if _is_preparing(tool) else frozenset[str]()
        missing = sorted(wanted - self.inject.keys())
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
                "give one of them another name with `name=`"
            )
        joined[name] = binding
    return joined
