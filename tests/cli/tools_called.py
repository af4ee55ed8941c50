"""Tools for tests of `ferrule call`: a parameter of each kind, and each kind of result."""

from datetime import date
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import anyio
import anyio.lowlevel
from msgspec import Meta

from ferrule import (
    Ask,
    Context,
    Definition,
    Failure,
    Guard,
    Image,
    InputRequest,
    RawJSON,
    RawTool,
    Result,
    Text,
    tool,
)


class Color(Enum):
    """Colours."""

    RED = "red"
    BLUE = "blue"


@tool
def told(
    text: str,
    max_count: int = 10,
    ratio: float = 0.5,
    color: Color = Color.RED,
    size: Literal[1, 2, "big"] = 1,
    until: date | None = None,
    tags: list[str] = [],  # noqa: B006  # copied for each call
    *,
    loud: bool = False,
) -> dict[str, object]:
    """
    Tell what was given.

    Args:
        text: What is told.
        max_count: How often, at most.
        tags: Labels.
    """
    return {
        "text": text,
        "max_count": max_count,
        "ratio": ratio,
        "color": color.value,
        "size": size,
        "until": str(until),
        "tags": tags,
        "loud": loud,
    }


@tool
def add(a: int, b: Annotated[int, Meta(ge=0)] = 1) -> int:
    """Add two numbers."""
    return a + b


@tool
def owned(json: str, help: str = "", no_cache: bool = False) -> str:  # names that are ours
    """Have parameters that are called as options of ours are."""
    return f"{json} {help} {no_cache}"


@tool
def lines(text: str) -> str:
    """Give a text back as it is."""
    return text


@tool
def blocks() -> list[Text | Image]:
    """Give several blocks."""
    return [Text("one"), Image(data=b"\x89PNG", mime_type="image/png"), Text("two\n")]


@tool
def pack(items: list[str], into: str) -> str:
    """Pack a list."""
    return f"{into} {items}"


@tool
def nothing() -> None:
    """Give nothing."""


@tool
def exact() -> Result:
    """Give JSON as it is written."""
    return Result(structured_content=RawJSON('{"n": 1.0,  "big": 1208925819614629174706176}'))


@tool
async def fails() -> str:
    """Fail at length."""
    raise Failure("the file is locked\nby \x1b[31msomebody " + "else " * 50)


@tool
async def breaks() -> str:
    """Raise."""
    raise ValueError("a private sentence")


@tool
async def draft(subject: str) -> InputRequest:
    """Ask, and go on with the answer."""
    return send.ask(f"Send {subject}?", subject)


@draft.step
async def send(state: str, answer: bool) -> str:  # the answer
    """Go on."""
    return f"{state} {answer}"


guarded = Guard(add, lambda it: Ask(f"May {it.definition.name} run?"))


@tool
async def steps(context: Context) -> str:
    """Say how far it is."""
    context.progress(3, 10, "counting")
    await anyio.lowlevel.checkpoint()
    return "done"


@tool
async def waits(path: str, context: Context) -> str:
    """Wait for ever, and say so by opening a pipe."""
    context.progress(1, 2, "half")
    await anyio.to_thread.run_sync(Path(path).write_text, "x")
    await anyio.sleep_forever()
    raise AssertionError


big = RawTool(
    Definition(
        "big",
        input_schema={"type": "object", "properties": {"n": {"enum": [2**80, 7]}}},
    ),
    lambda arguments, _: str(arguments["n"]),
)
guarded_add = [guarded]
tools = [
    *(told, add, owned, lines, blocks, pack, nothing, exact, fails, breaks, draft, steps, waits),
    big,
]
