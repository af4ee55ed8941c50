"""The tools that a harness offers: bound once, found by exact name, closed once."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from inspect import getattr_static
from types import TracebackType
from typing import Protocol, Self, TypeAlias, TypeGuard, TypeVar, cast, runtime_checkable

import anyio

from ferrule._backend import is_told_to_stop
from ferrule._binding import Binding, Life, bind_within, preparing
from ferrule._contain import Broke, contain, contain_async, message_of
from ferrule._definition import Definition
from ferrule._guard import Authorizer, Guard
from ferrule._ijson import Limits
from ferrule._tool import Closing, Tool, close_with
from ferrule._wrapper import capability
from ferrule.errors import (
    DeclarationError,
    DuplicateTool,
    FerruleError,
    InvalidTool,
)

T = TypeVar("T")

logger = logging.getLogger("ferrule")


@runtime_checkable
class Source(Protocol):
    """
    Something that has tools once it is open: a registry that holds it opens and closes it.

    Its tools are registered under its origin. One that also has `offered` (tools by origin) and
    `when_changed(told)` may have several origins, and is followed when what it offers changes.
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


@runtime_checkable
class Changing(Protocol):
    """A source whose tools change while it is open, or come from more than one place."""

    @property
    def offered(self) -> Mapping[str, Iterable[Tool]]:
        """What it offers now, by origin; read once it is open, and at each change."""
        ...

    def when_changed(self, told: Callable[[str], None]) -> None:
        """Have `told` called with an origin whenever what comes from there has changed."""
        ...


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
        self._listeners: list[Callable[[], None]] = []
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
        self._tell()

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
            gone = [b for n, b in self._bindings.items() if n not in kept]
            # What owns nothing is not kept: a source may change its tools for ever.
            self._retired += [b for b in gone if capability(b.tool, Closing) is not None]
            self._bindings = joined
        self._tell()

    def when_changed(self, listener: Callable[[], None]) -> Callable[[], None]:
        """
        Have `listener` called after each change of the tools; return what ends that.

        It is called in the thread that made the change, and what it raises comes out there.
        """
        with self._lock:
            self._listeners.append(listener)
        return lambda: self._forget(listener)

    def _forget(self, listener: Callable[[], None]) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener()

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
                self._take_in(source)
            opened.pop_all()
        return self

    def _take_in(self, source: Source) -> None:
        """Register what an open source offers, and go with its changes from now on."""
        if not isinstance(source, Changing):
            self.register(source.tools, origin=source.origin)
            return
        for origin, tools in source.offered.items():
            self.register(tools, origin=origin)
        changing: Changing = source
        source.when_changed(lambda origin: self._follow(changing, origin))

    def _follow(self, source: Changing, origin: str) -> None:
        """Put what an origin offers now in the place of what it did, if that can be."""
        if self._life.closed:
            return
        done = contain(lambda: self.replace(origin, source.offered.get(origin, ())))
        if isinstance(done, Broke):
            logger.error("the tools of `%s` changed and stay as they were: %s", origin, done.error)

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
        with anyio.move_on_after(self.grace, shield=True) as scope:
            try:
                done = await contain_async(close_with(owner.aclose))
            except anyio.get_cancelled_exc_class() as stray:
                # Raised by the owner itself, and not by who cancels us: an error like any other.
                if scope.cancel_called or is_told_to_stop():
                    raise
                done = Broke(stray)
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
                for tool in self._wrapped(given):
                    bound.append(bind_within(tool, origin, self.limits, self._life))
                    self._check_injected(tool, bound[-1].contract.name)
            except DeclarationError as error:
                raise type(error)(f"tools[{index}]: {error}") from error
        return bound

    def _wrapped(self, tool: Tool) -> list[Tool]:
        """Return what the wraps make of a tool, the first of them innermost; or nothing."""
        for wrap in self._wraps:
            made = wrap(tool)
            if made is None:
                return []
            tool = made
        return [tool]

    def _check_injected(self, tool: Tool, name: str) -> None:
        wanting = preparing(tool)
        if wanting is None:
            return
        missing = sorted(wanting.injected - wanting.optional - self.inject.keys())
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
                "give one of them another name with `name=`, a `prefix`, or "
                '`Wrapper(tool, name="…")`'
            )
        joined[name] = binding
    return joined
