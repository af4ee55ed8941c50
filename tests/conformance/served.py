"""
The tools that the conformance suite of MCP calls by name, served over HTTP.

    python tests/conformance/served.py [PORT]

It prints its address, and serves until its standard input is closed.
"""

import base64
import sys
import threading
from typing import Annotated, TypedDict

import anyio
import uvicorn
from msgspec import Meta

from ferrule import (
    Accepted,
    Audio,
    Context,
    Continuation,
    Declined,
    Definition,
    Failure,
    File,
    Image,
    InputRequest,
    RawTool,
    Registry,
    Text,
    tool,
)
from ferrule.mcp import Server, Tasks

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WAV = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=")

LONG = 0.3
"""Seconds that a call takes which is to become a task."""

TASKS = Tasks(after=LONG / 3, poll=0.1, required=("failing_job",))

registry = Registry()


@tool
async def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@tool
async def test_image_content() -> Image:
    """Return a picture."""
    return Image(data=PNG, mime_type="image/png")


@tool
async def test_audio_content() -> Audio:
    """Return a sound."""
    return Audio(data=WAV, mime_type="audio/wav")


@tool
async def test_embedded_resource() -> File:
    """Return a file."""
    data = b"This is an embedded resource content."
    return File(data=data, name="embedded-resource", mime_type="text/plain")


@tool
async def test_multiple_content_types() -> list[Text | Image | File]:
    """Return a text, a picture and a file."""
    return [
        Text("Multiple content types test:"),
        Image(data=PNG, mime_type="image/png"),
        File(data=b'{"test":"data","value":123}', name="mixed.json", mime_type="application/json"),
    ]


@tool
async def test_error_handling() -> str:
    """Fail."""
    raise Failure("This tool intentionally returns an error for testing")


@tool
async def test_tool_with_progress(context: Context) -> str:
    """Say how far it is, three times."""
    for done in (0, 50, 100):
        context.progress(done, 100)
        await anyio.sleep(0.05)
    return "done"


@tool
async def test_tool_with_logging(context: Context) -> str:
    """Say what it does, three times."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        context.progress(message=line)
        await anyio.sleep(0.05)
    return "done"


@tool
async def test_logging_tool(context: Context) -> str:
    """Say what it does."""
    context.progress(message="working")
    return "done"


@tool
async def test_trigger_tool_change() -> str:
    """Change the tools that are offered."""
    name = "test_changed"
    registry.replace("changed", [] if name in registry else [_echo(name, {"type": "object"})])
    return "changed"


# ---- questions -----------------------------------------------------------------------------------


def _asking(name: str, message: str, properties: dict[str, object], title: str = "") -> RawTool:
    """Return a tool that asks for an object once, and tells what came back."""
    schema: dict[str, object] = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }
    if title:
        schema["title"] = title

    async def ask(_: dict[str, object], __: Context) -> InputRequest:
        return InputRequest(message, schema=schema, state={"asked": name})

    async def go_on(_: dict[str, object], __: Context, given: Continuation) -> str:
        return f"state-ok: action=accept, content={given.answer}"

    definition = Definition(name, f"Ask: {message}", input_schema={"type": "object"})
    return RawTool(definition, ask, resume=go_on)


class User(TypedDict):
    """What `test_elicitation` asks for."""

    username: Annotated[str, Meta(description="User's response")]
    email: Annotated[str, Meta(description="User's email address")]


@tool
async def test_elicitation(message: str, context: Context) -> str:
    """Ask while it waits."""
    match await context.ask(message, User):
        case Accepted(content=content):
            return f"User response: action=accept, content={content}"
        case Declined(action=action):
            return f"User response: action={action}"


DEFAULTS: dict[str, object] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
OPTIONS = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
ENUMS: dict[str, object] = {
    "untitledSingle": {"type": "string", "enum": OPTIONS},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}
NAME: dict[str, object] = {"name": {"type": "string"}}
OK: dict[str, object] = {"ok": {"type": "boolean"}}
PREFIX = "test_input_required_result_"


@tool(name=f"{PREFIX}multi_round")
async def multi_round() -> InputRequest:
    """Ask for a name, then for a colour."""
    return named.ask("Step 1: What is your name?", "")


class Named(TypedDict):
    """The first answer."""

    name: str


class Colored(TypedDict):
    """The second answer."""

    color: str


@multi_round.step
async def named(state: str, answer: Named) -> InputRequest:
    """Ask for more."""
    return colored.ask("Step 2: What is your favorite color?", answer["name"])


@multi_round.step
async def colored(state: str, answer: Colored) -> str:
    """Tell what was answered."""
    return f"{state}, {answer['color']}"


# ---- long calls ----------------------------------------------------------------------------------


@tool
async def greet(name: str) -> str:
    """Greet, at once."""
    return f"Hello, {name}!"


@tool
async def slow_compute(seconds: float, label: str = "") -> str:
    """Take as long as it is told."""
    await anyio.sleep(seconds)
    return f"computed {label}"


@tool
async def failing_job() -> str:
    """Fail, after a while."""
    await anyio.sleep(LONG)
    raise Failure("the job failed")


@tool
async def confirm_delete(filename: str, context: Context) -> str:
    """Look for a file, and ask whether it may be deleted."""
    await anyio.sleep(LONG)
    match await context.ask(f"Delete {filename}?", Confirmed):
        case Accepted(content=content) if content["confirm"]:
            return f"deleted {filename}"
        case _:
            return f"kept {filename}"


class Confirmed(TypedDict):
    """What `confirm_delete` asks for."""

    confirm: bool


class Signed(Confirmed):
    """What `multi_input` asks for."""

    name: str


@tool
async def multi_input(context: Context) -> str:
    """Ask two things side by side."""
    await anyio.sleep(LONG)
    async with anyio.create_task_group() as group:
        group.start_soon(context.ask, "Whose is it?", Signed)
        group.start_soon(context.ask, "Who looks after it?", Signed)
    return "both answered"


@tool
async def test_tool_with_task() -> InputRequest:
    """Ask for a name, and take long with it."""
    return with_task.ask("What is your name?", "")


class UserName(TypedDict):
    """What `test_tool_with_task` asks for."""

    name: str


@test_tool_with_task.step
async def with_task(state: str, answer: UserName) -> str:
    """Take long."""
    await anyio.sleep(LONG)
    return f"Hello, {answer['name']}!"


# ---- schemas -------------------------------------------------------------------------------------

SCHEMA_2020: dict[str, object] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
HEADED: dict[str, object] = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}


def _echo(name: str, schema: dict[str, object]) -> RawTool:
    async def function(arguments: dict[str, object], _: Context) -> object:
        return arguments

    return RawTool(Definition(name, "Return its arguments.", input_schema=schema), function)


registry.register(
    [
        *(test_simple_text, test_image_content, test_audio_content, test_embedded_resource),
        *(test_multiple_content_types, test_error_handling, test_tool_with_progress),
        *(test_tool_with_logging, test_logging_tool, test_trigger_tool_change, test_elicitation),
        _asking("test_elicitation_sep1034_defaults", "Who are you?", DEFAULTS),
        _asking("test_elicitation_sep1330_enums", "Choose.", ENUMS),
        _asking("test_missing_capability", "May it?", OK),
        _asking("test_streaming_elicitation", "May it?", OK),
        _asking(f"{PREFIX}elicitation", "What is your name?", NAME, "user_name"),
        _asking(f"{PREFIX}request_state", "Please confirm", OK, "confirm"),
        _asking(f"{PREFIX}tampered_state", "Please confirm", OK),
        multi_round,
        _echo("json_schema_2020_12_tool", SCHEMA_2020),
        _echo("test_x_mcp_header", HEADED),
        *(greet, slow_compute, failing_job, confirm_delete, multi_input, test_tool_with_task),
    ]
)


def main() -> None:
    """Serve until standard input is closed."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    config = uvicorn.Config(
        Server(registry, name="conformance", tasks=TASKS).asgi(),
        port=port,
        log_level="error",
        timeout_graceful_shutdown=1,
        ws="none",
    )
    served = uvicorn.Server(config)

    def watch() -> None:
        while not served.started:
            threading.Event().wait(0.01)
        address, bound = served.servers[0].sockets[0].getsockname()[:2]
        print(f"http://{address}:{bound}/mcp", flush=True)  # noqa: T201  # that is its word
        sys.stdin.read()
        served.should_exit = True

    threading.Thread(target=watch, daemon=True).start()
    served.run()


if __name__ == "__main__":
    main()
