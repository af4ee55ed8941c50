"""
Attacks that people reported of comparable projects, retold: each test is named by its case.

Where the contract decides otherwise than a case asked, the test says so.
"""

import builtins
import io
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from ferrule import (
    Context,
    Definition,
    Executor,
    InvalidSchema,
    Limits,
    Outcome,
    RawTool,
    Registry,
    Rejected,
    ToolCall,
    Unknown,
    bind,
    tool,
)
from ferrule.schema import compile, to_strict

pytestmark = pytest.mark.anyio

PROGRAM = Path(__file__).with_name("hostile_calls.py")


def kinds(outcomes: list[Outcome]) -> list[str]:
    """Return for each call its text, or the kind of its refusal."""
    return [
        f"<{outcome.kind}>" if isinstance(outcome, Rejected) else outcome.text
        for outcome in outcomes
    ]


# ---- SE-03: patterns -----------------------------------------------------------------------------


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the hostile calls in a process of their own, under a limit of CPU time."""
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_se_03_no_pattern_freezes_the_process_and_the_loop_turns() -> None:
    """SE-03, apify/apify-mcp-server#991; SCH-2: each call is answered, beside a loop that turns."""
    ran = program()

    refused = ["local", "nested", "looking", "combined"] * 2
    lines = [*(f"{name} invalid_arguments" for name in refused), "names ran", "nested ran"]
    assert (ran.returncode, ran.stdout.splitlines()) == (0, [*lines, "turned"]), ran.stderr[-900:]
    assert "a" * 30 not in ran.stderr  # What a crash wrote to the log does not repeat the argument.
    assert "Max limit for backtracking count exceeded" in ran.stderr


def test_se_03_the_same_pattern_does_freeze_an_engine_that_backtracks() -> None:
    """SE-03: the attack works where nothing holds it, so that the test above proves something."""
    assert program("--control").returncode in {-signal.SIGXCPU, -signal.SIGKILL}


# ---- SE-05: depth, width, size -------------------------------------------------------------------

LARGE = Limits(argument_bytes=1 << 30)


def nested(levels: int) -> str:
    """Return a text with so many objects inside each other."""
    return '{"x":' * levels + "0" + "}" * levels


def wide(members: int) -> str:
    """Return a text of one object with so many members."""
    return "{" + ",".join(f'"k{at}":0' for at in range(members)) + "}"


class Size(NamedTuple):
    """A text that is made when it is needed, what it is measured by, and how its call ends."""

    text: Callable[[], str]
    ending: str
    limits: Limits = Limits()


TOO_LARGE = "<too_large>"
SIZES = {
    "100 deep": Size(lambda: nested(100), "ran"),
    "128 deep": Size(lambda: nested(128), "ran"),
    "129 deep": Size(lambda: nested(129), TOO_LARGE),
    "1,000 deep": Size(lambda: nested(1_000), TOO_LARGE),
    "5,000 deep": Size(lambda: nested(5_000), TOO_LARGE),
    "100,000 deep": Size(lambda: nested(100_000), TOO_LARGE),
    "unclosed": Size(lambda: '{"x":' * 100_000, TOO_LARGE),
    "a million lists": Size(lambda: "[" * 1_000_000, TOO_LARGE),
    "a million lists of any size": Size(lambda: "[" * 1_000_000, TOO_LARGE, LARGE),
    "200 MB of text": Size(lambda: f'{{"x":"{"y" * 200_000_000}"}}', TOO_LARGE),
    "200 MB of digits": Size(lambda: f'{{"x":{"9" * 200_000_000}}}', TOO_LARGE),
    "a million names": Size(lambda: wide(1_000_000), TOO_LARGE),
    "a million names of any size": Size(lambda: wide(1_000_000), TOO_LARGE, LARGE),
    "100,000 values": Size(lambda: f'{{"x":[{"0," * 99_997}0]}}', "ran"),
    "100,001 values": Size(lambda: f'{{"x":[{"0," * 99_998}0]}}', TOO_LARGE),
}


@pytest.mark.parametrize("name", SIZES)
async def test_se_05_what_is_too_large_is_refused_and_nobody_sees_it(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SE-05, openai/openai-agents-python#4772; JSON-3: no rule, hook or log; the others run."""
    seen: list[str] = []

    def rule(arguments: dict[str, object]) -> str | None:
        seen.append(f"rule {len(arguments)}")
        return None

    async def function(arguments: dict[str, object], _: Context) -> str:
        return "ran"

    async def hook(context: Context) -> None:
        seen.append(f"hook {context.call_id}")

    raw = RawTool(Definition("take", input_schema={"type": "object"}), function, validate=rule)
    texts = ["{}", SIZES[name].text(), "{}"]
    calls = [ToolCall(id=f"c{at}", name="take", arguments=one) for at, one in enumerate(texts)]
    registry = Registry([raw], limits=SIZES[name].limits)
    outcomes = await Executor(registry, on_dispatch=hook).run(calls)

    assert kinds(outcomes) == ["ran", SIZES[name].ending, "ran"]
    assert len(outcomes[1].text.encode()) <= 1024
    if SIZES[name].ending != "ran":
        assert sorted(seen) == ["hook c0", "hook c2", "rule 0", "rule 0"]
    assert not caplog.records


# ---- SE-07: references that leave the document ---------------------------------------------------

EXTERNAL: dict[str, dict[str, object]] = {
    "address": {"$ref": "http://169.254.169.254/latest/meta-data/"},
    "file": {"$ref": "file:///etc/passwd"},
    "relative": {"$ref": "other.json#/x"},
    "own base": {"$id": "http://evil.test/", "$ref": "#/$defs/a"},
    "other base": {"$id": "http://evil.test/a.json", "$ref": "b.json"},
    "dynamic": {"$dynamicRef": "http://evil.test/#m"},
    "beside others": {"type": "string", "$ref": "https://evil.test/a.json#/x"},
    "in a branch": {"anyOf": [{"type": "null"}, {"items": {"$ref": "//evil.test/a"}}]},
    "no network": {"$ref": "urn:evil:a"},
}


class Blocked(Exception):
    """Something opened a file, a socket or a name."""


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Give a function after which nothing opens a file, a socket or a name."""

    def refuse(*arguments: object, **_: object) -> None:
        raise Blocked(arguments)

    def close() -> None:
        for room, name in [
            (socket, "socket"), (socket, "create_connection"), (socket, "getaddrinfo"),
            (builtins, "open"), (io, "open"), (os, "open"), (Path, "read_text"), (Path, "open"),
        ]:  # fmt: skip
            monkeypatch.setattr(room, name, refuse)

    yield close
    monkeypatch.undo()


def below(subschema: object) -> dict[str, object]:
    """Return the schema of a tool with one property."""
    return {"type": "object", "properties": {"p": subschema}, "required": ["p"]}


@pytest.mark.parametrize("name", EXTERNAL)
def test_se_07_a_reference_that_leaves_the_document_is_refused_and_nothing_is_fetched(
    name: str, closed: Callable[[], None]
) -> None:
    """SE-07, PrefectHQ/fastmcp#3502; SCH-1: at import and conversion, with all doors shut."""
    schema = below(EXTERNAL[name])
    raw = RawTool(Definition("import", input_schema=schema), lambda _, __: None)
    closed()

    for use in (compile, to_strict, lambda _: bind(raw), lambda _: Registry([raw])):
        with pytest.raises(InvalidSchema, match=r"leaves the document|names nothing") as caught:
            use(schema)
        assert len(str(caught.value).encode()) <= 1024
    with pytest.raises(Blocked):
        open("/etc/passwd")  # noqa: PTH123, SIM115  # that it raises is the point
    with pytest.raises(Blocked):
        socket.create_connection(("127.0.0.1", 1))


@pytest.mark.parametrize("way", ["$ref", "$dynamicRef", "$schema"])
def test_se_07_neither_a_server_nor_a_file_that_exists_is_asked(way: str, tmp_path: Path) -> None:
    """SE-07, SCH-1: the engine is compiled code, so a real server waits, and nobody comes."""
    there = tmp_path / "there.json"
    there.write_text('{"$schema": "https://json-schema.org/draft/2020-12/schema"}')
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = cast("int", server.getsockname()[1])
        for address in (f"http://127.0.0.1:{port}/there.json", there.as_uri()):
            with pytest.raises(InvalidSchema):
                compile(below({way: address}) if way != "$schema" else {way: address})
        with pytest.raises(BlockingIOError):
            server.accept()


async def test_se_07_what_looks_like_a_reference_in_a_value_is_a_value() -> None:
    """SE-07: a model cannot smuggle one in by its arguments, and the tool gets what was written."""

    @tool
    async def keep(value: dict[str, str]) -> str:
        return value["$ref"]

    [outcome] = await Executor([keep]).run(
        [ToolCall.of("keep", {"value": {"$ref": "http://evil.test/"}})]
    )

    assert outcome.text == "http://evil.test/"


# ---- SE-10: what errors say ----------------------------------------------------------------------


@tool
async def login(user: str, password: str, pin: int) -> str:
    """Fail with secrets in the exception and in its cause."""
    try:
        os.environ["TOK-XYZ"]
    except KeyError as error:
        raise RuntimeError(f"dsn=postgres://{user}:{password}@host-XYZ") from error
    return ""


@tool
async def profile(user: str) -> dict[str, int]:
    """Return what was not promised."""
    return cast("dict[str, int]", {"age": f"out-XYZ {user}"})


@tool(replay="safe")
def look(user: str) -> str:
    """Fail in a thread, without any effect."""
    raise OSError(f"/home/XYZ/{user}")


SECRET = {"user": "u-XYZ", "password": "hunter2-XYZ"}


@pytest.mark.parametrize(
    ("call", "logged"),
    [
        (ToolCall.of("login", SECRET | {"pin": "notanumber-XYZ"}), None),
        (ToolCall(id="", name="login", arguments='{"pin": 1, "user": "u-XYZ", XYZ'), None),
        (ToolCall.of("login", SECRET | {"pin": 1}), ["TOK-XYZ", "hunter2-XYZ@host-XYZ"]),
        (ToolCall.of("profile", {"user": "u-XYZ"}), ["breaks the output_schema"]),
        (ToolCall.of("look", {"user": "u-XYZ"}), ["/home/XYZ/u-XYZ"]),
    ],
    ids=["refused", "broken", "raised", "output", "thread"],
)
async def test_se_10_no_error_tells_a_model_what_is_private(
    call: ToolCall, logged: list[str] | None, caplog: pytest.LogCaptureFixture
) -> None:
    """SE-10, openai/openai-agents-python#4012; FAIL-4, -5, JSON-6: the operator's log has it."""
    [outcome] = await Executor([login, profile, look]).run([call])

    assert outcome.is_error
    assert "XYZ" not in outcome.text + repr(outcome) + repr(outcome.to_json())
    assert "Traceback" not in outcome.text
    assert bool(caplog.records) == (logged is not None)
    assert all(secret in caplog.text for secret in logged or [])


async def test_se_10_the_plants_are_what_a_model_would_read_otherwise() -> None:
    """SE-10: shown on purpose, for development, the same error does tell; the cause is kept."""
    call = ToolCall.of("login", SECRET | {"pin": 1})

    [shown] = await Executor([login], errors="message").run([call])

    assert "hunter2-XYZ" in shown.text
    assert isinstance(shown, Unknown)
    assert isinstance(shown.error, RuntimeError)
    assert "TOK-XYZ" in str(shown.error.__cause__)
