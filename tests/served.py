"""Tools for tests of serving, and the program that serves them over standard input and output."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated, TypedDict

import anyio
from msgspec import Meta

from ferrule import (
    Audio,
    Context,
    Definition,
    Failure,
    File,
    Image,
    InputRequest,
    Link,
    RawTool,
    Record,
    Result,
    Text,
    Tool,
    Traits,
    tool,
)
from ferrule.mcp import Server, Tasks

SECRET = "secret-XYZ"
PNG = b"\x89PNG fake"


class Sum(TypedDict):
    """What `summed` returns."""

    total: int


@tool(title="Adder", read_only=True, open_world=False)
async def add(a: int, b: Annotated[int, Meta(description="The second.")]) -> int:
    """Add two integers."""
    return a + b


@tool
async def summed(numbers: list[int]) -> Sum:
    """Add many integers."""
    return {"total": sum(numbers)}


@tool
async def listed() -> list[int]:
    """Return a list."""
    return [1, 2**60, 3]


@tool
async def kinds() -> list[Text | Image | Audio | File | Link]:
    """Return every kind of content."""
    return [
        Text("a text"),
        Image(data=PNG, mime_type="image/png"),
        Image(url="https://example.com/cat.png", mime_type="image/png"),
        Image(url="data:image/gif;base64,R0lGODlh"),
        Audio(data=b"RIFF", mime_type="audio/wav"),
        Audio(url="https://example.com/a.mp3"),
        File(data=b"\x00\x01", name="notes of mine.bin", mime_type="application/x-notes"),
        File(url="https://example.com/files/x.pdf", mime_type="application/pdf"),
        Link("https://example.com/page", name="the page", description="A page."),
        Link("https://example.com/other/"),
    ]


@tool
async def nothing() -> None:
    """Return nothing."""


@tool
async def refused() -> str:
    """Say no."""
    raise Failure("the file is locked")


@tool
async def broken() -> str:
    """Raise what is nobody's business."""
    raise RuntimeError(f"dsn=postgres://u:{SECRET}@h")


@tool
async def broken_shape() -> Sum:
    """Return another shape than is said."""
    return {"wrong": SECRET}  # type: ignore[typeddict-item]  # that is what is tested


@tool
async def steps(count: int, context: Context) -> str:
    """Say how far it is, step by step."""
    for number in range(count):
        context.progress(number + 1, count, f"step {number + 1}")
        await anyio.sleep(0.02)
    return "done"


@tool
async def sure(context: Context) -> str:
    """Ask while it waits."""
    answer = await context.ask("Are you sure?", bool)
    return repr(answer)


@tool
async def draft(subject: str) -> InputRequest:
    """Ask, and go on with the answer."""
    return send.ask(f"Send {subject}?", subject)


@draft.step
async def send(state: str, answer: bool) -> str:
    """Go on."""
    return f"{state} sent" if answer else f"{state} kept"


@tool
async def noted() -> Result:
    """Return a result with a record."""
    return Result((Text("noted"),), details=RECORD)


@tool
async def noted_failure() -> str:
    """Fail with a record."""
    raise Failure("not noted", details=RECORD)


RECORD = Record("shell:process", data={"z": 2**53 + 1, "a": ["é", 1.5, None]})


@tool
async def whose(context: Context) -> str:
    """Say who calls."""
    return f"{context.session!r} {context.caller!r}"


@tool
async def held(pipe: str) -> str:
    """Write to a pipe and keep it open until told to stop."""
    writing = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(writing, b"x")
        await anyio.sleep_forever()
    finally:
        os.close(writing)
    raise AssertionError


@tool
def held_in_thread(pipe: str, context: Context) -> str:
    """Do the same in a thread, which can only look whether it was told."""
    with Path(pipe).open("wb", buffering=0) as writing:
        writing.write(b"x")
        while not context.cancelled:
            time.sleep(0.005)
    return "stopped"


async def _anything(arguments: dict[str, object], _: Context) -> object:
    return arguments


anything = RawTool(
    Definition(
        "any/thing",
        "Take what another schema says.",
        input_schema={
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "definitions": {"P": {"type": "object", "properties": {"x": {"type": "integer"}}}},
            "properties": {"p": {"$ref": "#/definitions/P"}, "u": {"x-note": 1, "default": None}},
        },
    ),
    _anything,
    traits=Traits(destructive=True, idempotent=False),
)

TOOLS: list[Tool] = [
    *(add, summed, listed, kinds, nothing, refused, broken, broken_shape, steps, sure, draft),
    *(noted, noted_failure, whose, held, held_in_thread, anything),
]


async def main() -> None:
    """Serve until the client closes."""
    server = Server(
        TOOLS, name="tests", instructions="Use wisely.", tasks=Tasks(after=0, poll=0.02)
    )
    await server.stdio()


if __name__ == "__main__":
    anyio.run(main, backend=sys.argv[1])
