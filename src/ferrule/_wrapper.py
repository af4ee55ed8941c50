"""
Tools around tools: a wrapper changes one thing and lets everything else through.

What a tool can do beyond `Tool` is found by walking from the outermost wrapper inwards, so a
wrapper need not know what the one it wraps can do, and cannot forget to pass it on (CONTRACT
CAP-1). A wrapper that declares a capability itself has the last word on it.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar, cast

import msgspec

from ferrule._contain import Broke, contain, message_of
from ferrule._content import Result
from ferrule._context import Context
from ferrule._contract import Invocation
from ferrule._definition import Definition
from ferrule._requests import InputRequest
from ferrule._tool import Described, Tool
from ferrule._traits import Traits
from ferrule.errors import DeclarationError, InvalidTool, InvalidWrappingChain

T = TypeVar("T")

MOST = 64
"""Wrappers around one tool, at most."""


class Wrapper(Described):
    """
    A tool around another: subclass it and override what is to be different, most often `call`.

    Definition and traits are read once, when it is made: what is shown and approved is what was
    wrapped. `Wrapper(tool, name="other")` alone renames a tool. A wrapper is not callable as a
    function.

    Args:
        tool: The tool to wrap.
        name: The name under which a model sees it; the tool's own if left out.

    Raises:
        InvalidTool: that is no tool, or its definition cannot be read.
    """

    def __init__(self, tool: Tool, *, name: str | None = None) -> None:
        if not is_tool(tool):
            raise InvalidTool(f"{type(self).__name__} goes around a tool, not {_kind(tool)}")
        definition, traits = facts_of(tool)
        if name is not None:
            definition = msgspec.structs.replace(definition, name=name)
        super().__init__(definition, traits)
        self._wrapped = tool

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._wrapped!r})"

    @property
    def wrapped(self) -> Tool:
        """The tool one layer further in."""
        return self._wrapped

    async def call(self, invocation: Invocation, context: Context, /) -> Result | InputRequest:
        """Run one admitted call by the wrapped tool."""
        return await self._wrapped.call(invocation, context)


def unwrap(tool: Tool) -> Tool | None:
    """
    Return the tool that `tool` wraps, one layer further in, or `None` if it wraps none.

    Whatever has a tool in its attribute `wrapped` is a wrapper.

    Raises:
        InvalidWrappingChain: the attribute raised.
    """
    kind = type(tool)
    if not hasattr(kind, "wrapped") and "wrapped" not in getattr(tool, "__dict__", ()):
        return None
    inner = contain(getattr, tool, "wrapped")
    if isinstance(inner, Broke):
        raise InvalidWrappingChain(
            f"{kind.__name__} wraps a tool that cannot be read: {message_of(inner.error)}"
        ) from inner.error
    return cast("Tool", inner) if is_tool(inner) else None


def layers(tool: Tool) -> Iterator[Tool]:
    """
    Yield `tool` and what it wraps, from the outermost inwards.

    Raises:
        InvalidWrappingChain: it comes round to itself, or has more than 64 wrappers.
    """
    seen: set[int] = set()
    layer: Tool | None = tool
    while layer is not None:
        if id(layer) in seen:
            raise InvalidWrappingChain(f"{type(tool).__name__} wraps itself, through others")
        if len(seen) > MOST:
            raise InvalidWrappingChain(f"{type(tool).__name__} has more than {MOST} wrappers")
        seen.add(id(layer))
        yield layer
        layer = unwrap(layer)


def capability(tool: Tool, kind: Callable[..., T]) -> T | None:
    """
    Return the outermost layer of `tool` that is a `kind`, or `None`.

    Args:
        tool: A tool, wrapped or not.
        kind: A class, or a protocol that is `runtime_checkable`.

    Raises:
        InvalidWrappingChain: the layers cannot be walked to where one would be.
    """
    # Its type is the one under which a checker takes a protocol for a class that makes a `T`.
    wanted = cast("type[T]", kind)
    return next((layer for layer in layers(tool) if isinstance(layer, wanted)), None)


def is_tool(thing: object) -> bool:
    """Say whether `thing` can be called as a tool is."""
    return callable(getattr(type(thing), "call", None))


def facts_of(tool: Tool) -> tuple[Definition, Traits]:
    """
    Read definition and traits of a tool, once.

    Raises:
        InvalidTool: they cannot be read, or are something else.
    """
    facts = contain(_facts, tool)
    if not isinstance(facts, Broke):
        return facts
    if isinstance(facts.error, DeclarationError):
        raise facts.error
    what = f"{type(tool).__name__} cannot be read as a tool"
    raise InvalidTool(f"{what}: {message_of(facts.error)}") from facts.error


def _facts(tool: Tool) -> tuple[Definition, Traits]:
    definition, traits = tool.definition, tool.traits
    if not isinstance(definition, Definition):
        raise InvalidTool(f"the definition of a {type(tool).__name__} is no Definition")
    if not isinstance(traits, Traits):
        raise InvalidTool(f"the traits of tool `{definition.name}` are no Traits")
    return definition, traits


def _kind(thing: object) -> str:
    return f"the class `{thing.__name__}`" if isinstance(thing, type) else type(thing).__name__
