"""Small tools for tests."""

import os
import re
import select
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Unpack

import anyio.to_thread

from ferrule import (
    Binding,
    Context,
    Definition,
    Invocation,
    Permit,
    RawTool,
    ToolCall,
    TraitFields,
    Traits,
)

ANYTHING = {"type": "object"}

Function = Callable[[dict[str, object], Context], object]


def raw(name: str, function: Function, **traits: Unpack[TraitFields]) -> RawTool:
    """Return a tool that takes any object."""
    return RawTool(Definition(name, input_schema=ANYTHING), function, traits=Traits(**traits))


def raws(*functions: Function) -> list[RawTool]:
    """Return a tool that takes any object for each function, named as the function."""
    return [raw(function.__name__, function) for function in functions]


def echo(name: str = "echo") -> RawTool:
    """Return a tool that gives its arguments back."""

    async def function(arguments: dict[str, object], _: Context) -> object:
        return arguments

    return raw(name, function)


def calls(name: str, count: int) -> list[ToolCall]:
    """Return calls of one tool; each is given its index as `i`."""
    return [ToolCall.of(name, {"i": index}, id=f"c{index}") for index in range(count)]


def called(value: object) -> str:
    """Return what a parameter is called in a test's id: short, and the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(getattr(value, "__name__", value)))[:50]


@contextmanager
def held_open(pipe: Path) -> Generator[int]:
    """Make a named pipe and open its reading end."""
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield reading
    finally:
        os.close(reading)


async def closed_by_all(reading: int) -> bool:
    """Wait until no process has the writing end of a pipe open; `False` if that never happens."""
    await anyio.to_thread.run_sync(select.select, [reading], [], [], 20)
    try:
        return os.read(reading, 1) == b""
    except BlockingIOError:
        return False


async def permitted(binding: Binding, invocation: Invocation, context: Context) -> Permit:
    """Return the permit of a call that nobody refuses."""
    answer = await binding.authorize(invocation, context)
    assert isinstance(answer, Permit)
    return answer


def steps_of(function: Callable[[], object]) -> int:
    """Count the calls that a function makes, in Python and into C."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count
