"""`ferrule serve`: tools for clients of MCP, from the command line."""

import json
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client, StdioServerParameters

from cli.command import PATIENCE, Ferrule, Starts
from ferrule.runtime import SqliteInbox
from serving import ERAS, Era, by_http, meta, text_of

TOOLS = """
import os, subprocess, sys, warnings
from ferrule import InputRequest, Registry, tool

print("printed by an import")
os.write(1, b"written by an import\\n")
warnings.warn("at import")

@tool
def noisy() -> str:
    "Print in every way."
    print("printed by a tool")
    os.write(1, b"written by a tool\\n")
    subprocess.run([sys.executable, "-c", "print('printed by a child')"])
    return "quiet"

@tool
async def broken(text: str) -> str:
    "Raise."
    raise RuntimeError(text)

@tool
async def length(text: str) -> int:
    "Count."
    return len(text)

@tool
async def draft(subject: str) -> InputRequest:
    "Ask, and go on with the answer."
    return send.ask(f"Send {subject}?", subject)

@draft.step
async def send(state: str, answer: bool) -> str:
    "Go on."
    return f"{state} {'sent' if answer else 'kept'}"
"""

RULES = """
[[rule]]
tool = "length"
decide = "allow"

[[rule]]
tool = "*"
decide = "deny"
reason = "not today"
"""


@pytest.fixture
def tools(tmp_path: Path) -> str:
    """Return a file with tools that are as loud as tools may be."""
    path = tmp_path / "loud.py"
    path.write_text(TOOLS)
    return str(path)


class Raw:
    """A client that sees every line, as no client should have to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self.count = 0

    def send(self, method: str, params: object) -> None:
        """Send a request."""
        assert self.process.stdin is not None
        self.count += 1
        message = {"jsonrpc": "2.0", "id": self.count, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: object) -> Any:  # noqa: ANN401  # whatever it answers
        """Send a request and return its result; every line on the way is a message."""
        self.send(method, params)
        assert self.process.stdout is not None
        while True:
            message = json.loads(self.process.stdout.readline())
            assert message["jsonrpc"] == "2.0"
            if message.get("id") == self.count:
                return message["result"]

    def begin(self) -> None:
        """Shake hands."""
        assert self.process.stdin is not None
        me = {"name": "raw", "version": "0"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": me}
        self.ask("initialize", hello)
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        self.process.stdin.write(json.dumps(done) + "\n")
        self.process.stdin.flush()


def test_whatever_is_printed_the_protocol_is_clean(starts: Starts, tools: str) -> None:
    """MS-01: by an import, a tool or a child, all of it goes to standard error."""
    process = starts("serve", tools, stdin=subprocess.PIPE)
    client = Raw(process)
    client.begin()
    done = client.ask("tools/call", {"name": "noisy", "arguments": {}})
    out, err = process.communicate(timeout=PATIENCE)

    assert done["content"] == [{"type": "text", "text": "quiet"}]
    assert out == ""
    for who in ("an import", "a tool", "a child"):
        assert f"printed by {who}" in err
    assert process.returncode == 0


def test_a_client_that_never_reads_standard_error_is_served(starts: Starts, tools: str) -> None:
    """MS-05: a full pipe holds nobody up; arguments are not logged, and lines are few."""
    process = starts("serve", tools, stdin=subprocess.PIPE)
    client = Raw(process)
    client.begin()
    for _ in range(200):
        done = client.ask("tools/call", {"name": "broken", "arguments": {"text": "x" * 1000}})
        assert done["isError"]
    large = client.ask("tools/call", {"name": "length", "arguments": {"text": "x" * 1_000_000}})
    client.ask("ping", {})
    process.kill()
    process.communicate(timeout=PATIENCE)

    assert large["content"] == [{"type": "text", "text": "1000000"}]


def test_a_server_by_pipes_can_be_interrupted(starts: Starts, tools: str) -> None:
    """API, exit codes: 130, though standard input is still open and a thread reads it."""
    process = starts("serve", tools, stdin=subprocess.PIPE)
    client = Raw(process)
    client.begin()
    process.send_signal(signal.SIGINT)
    process.wait(timeout=PATIENCE)
    process.communicate()

    assert process.returncode == 130


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("era", ERAS)
async def test_over_http_until_it_is_told_to_stop(era: Era, starts: Starts, tools: str) -> None:
    """API, serve --http: it says where, serves many, and ends with the code of an interrupt."""
    process = starts("serve", tools, "--http", "127.0.0.1:0")
    assert process.stderr is not None
    line = ""
    while "serving at " not in line:
        line = await anyio.to_thread.run_sync(process.stderr.readline)
    address = line.split()[-1].removesuffix("/mcp")
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(by_http(address, era))
        assert text_of(await client.call_tool("length", {"text": "abc"})) == "3"
        if era == "auto":  # A stream that stands open holds nothing up.
            await stack.enter_async_context(client.listen(tools_list_changed=True))
        process.send_signal(signal.SIGINT)
        _, err = await anyio.to_thread.run_sync(process.communicate)

    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_rules_a_journal_and_several_files(tools: str, tmp_path: Path) -> None:
    """API, serve: one server of all tools, behind the rules, with calls that can be answered."""
    (tmp_path / "rules.toml").write_text(RULES)
    (tmp_path / "more.py").write_text(
        "from ferrule import tool\n@tool\nasync def more() -> str:\n    'More.'\n    return ''\n"
    )

    def serving(*options: str) -> StdioServerParameters:
        arguments = ["-m", "ferrule", "serve", tools, str(tmp_path / "more.py"), *options]
        path = {"PYTHONPATH": ":".join(sys.path)}
        return StdioServerParameters(command=sys.executable, args=arguments, env=path)

    async with Client(serving("--policy", str(tmp_path / "rules.toml"))) as client:
        names = [one.name for one in (await client.list_tools()).tools]
        assert names == ["broken", "draft", "length", "more", "noisy"]
        assert text_of(await client.call_tool("length", {"text": "abc"})) == "3"
        assert text_of(await client.call_tool("more")) == "not today"

    journal = tmp_path / "calls.db"
    key = meta(idempotency_key="mail")
    async with Client(serving("--journal", str(journal))) as client:
        waits = await client.call_tool("draft", {"subject": "it"}, meta=key)
        assert waits.is_error
        [wait] = await SqliteInbox(journal).waits()
        await SqliteInbox(journal).answer(wait.id, content=True, by="ann")
    async with Client(serving("--journal", str(journal))) as client:
        done = await client.call_tool("draft", {"subject": "it"}, meta=key)
        assert text_of(done) == "it sent"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--stdio", "--http", "127.0.0.1:0"], "give --stdio or --http, not both"),
        (["--http", "8000"], "is no HOST:PORT"),
        (["--http", "127.0.0.1:99999"], "is no HOST:PORT"),
        (["--http", "192.0.2.1:1"], "cannot serve: "),
        (["--http", "127.0.0.1:0", "--host", "https://x"], "a host is `name` or `name:port`"),
        (["--tasks", "-1"], "tasks: after is 0 or more"),
        (["--policy", "none.toml"], "none.toml"),
        (["--journal", "."], "."),
    ],
)
def test_what_cannot_be_served_is_refused_in_a_sentence(
    options: list[str], sentence: str, ferrule: Ferrule, tools: str
) -> None:
    """API, exit codes: 2, and one line that says what would put it right."""
    done = ferrule("serve", tools, *options)

    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_two_tools_of_one_name_are_refused(ferrule: Ferrule, tools: str, tmp_path: Path) -> None:
    """REG-1: one of them has to be renamed."""
    again = tmp_path / "again.py"
    again.write_text(TOOLS)
    done = ferrule("serve", tools, str(again))

    assert done.returncode == 2
    assert "a tool named `" in done.stderr
