"""A tool for each way a call can end, and for what tools do besides."""

import contextlib
import os
import sys
from pathlib import Path

import anyio

from ferrule import Context, Definition, Failure, Image, InputRequest, RawTool, Text, Traits

NUMBER = {
    "type": "object",
    "properties": {"hours_back": {"type": "integer", "description": "How far to look back."}},
    "required": ["hours_back"],
    "additionalProperties": False,
}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}


async def _ok(arguments: dict[str, object], _: Context) -> object:
    return f"looked back {arguments['hours_back']}"


async def _fails(_arguments: dict[str, object], _: Context) -> object:
    raise Failure("The file is locked.")


async def _breaks(_arguments: dict[str, object], _: Context) -> object:
    raise ValueError("a private sentence")


async def _asks(_arguments: dict[str, object], _: Context) -> object:
    return InputRequest("Delete [bold]all[/bold]?\x1b[31m", schema={"type": "boolean"})


async def _shows(_arguments: dict[str, object], _: Context) -> object:
    return [
        Text("\u202edrawn\x1b]0;title\x07"),
        Image(data=b"\x89PNG" * 500, mime_type="image/png"),
    ]


async def _prints(_arguments: dict[str, object], _: Context) -> object:
    print("printed to standard output")  # noqa: T201  # as tools do
    os.write(1, b"written to descriptor one\n")
    sys.stdout.write("without a line feed")
    sys.stdout.flush()
    return "printed"


async def _goes_on(_arguments: dict[str, object], context: Context) -> object:
    context.progress(3, 10, "counting [red]sheep[/red]\x1b[2J")
    await anyio.sleep_forever()
    return None


async def _holds_on(_arguments: dict[str, object], context: Context) -> object:
    context.progress(message="holding on")
    while True:
        with contextlib.suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep_forever()


def _waits_for_file(arguments: dict[str, object], context: Context) -> object:
    """End when somebody writes to the pipe at the path that `text` says."""
    context.progress(7, 10, "seven of ten")
    return Path(str(arguments["text"])).read_text(encoding="utf-8")


def _echo(arguments: dict[str, object], _: Context) -> object:
    return str(arguments["text"])[:20]


tools = [
    RawTool(
        Definition("look_back", "Look back. In time.", NUMBER, title="Look"),
        _ok,
        traits=Traits(read_only=True, open_world=False),
    ),
    RawTool(Definition("fails"), _fails),
    RawTool(Definition("breaks"), _breaks),
    RawTool(Definition("asks"), _asks),
    RawTool(Definition("shows"), _shows),
    RawTool(Definition("prints"), _prints),
    RawTool(Definition("goes_on"), _goes_on),
    RawTool(Definition("holds_on"), _holds_on),
    RawTool(Definition("waits_for_file", input_schema=TEXT), _waits_for_file),
    RawTool(Definition("echo", input_schema=TEXT), _echo),
]
