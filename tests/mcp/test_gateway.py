"""
The gateway: `ferrule serve mcp.json tools.py --policy … --journal …`, seen from outside.

The gateway is a process, and so are the servers behind it; clients are the SDK's own.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client, StdioServerParameters, types
from mcp.client.subscriptions import ToolsListChanged

from ferrule.runtime import SqliteInbox
from serving import PATIENCE, Era, by_http, meta, text_of
from tasking import Taking, called, until

pytestmark = [
    pytest.mark.anyio,
    # uvicorn runs on asyncio alone, and so does the command line.
    pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True),
]

HERE = Path(__file__).parent
FAKE = str(HERE / "fake.py")
LEDGER = str(HERE / "gateway_ledger.py")

TOOLS = """
from ferrule import Failure, tool

@tool(read_only=True)
async def ours(text: str) -> int:
    "Count the letters."
    return len(text)

@tool
async def refused() -> str:
    "Fail."
    raise Failure("not today")
"""

RULES = """
[[rule]]
tool = "refuse"
decide = "deny"
reason = "nobody refuses here"

[[rule]]
tool = ["echo", "booked"]
decide = "ask"

[[rule]]
tool = "*"
decide = "allow"
"""

WAYS = [("stdio", "legacy"), ("stdio", "auto"), ("http", "legacy"), ("http", "auto")]


class Files:
    """The files of a gateway, and the command that serves it."""

    def __init__(self, folder: Path, lab: tuple[str, ...]) -> None:
        self.folder = folder
        self.journal = folder / "calls.db"
        self.ledger = folder / "ledger"
        self.pipe = folder / "pipe"
        os.mkfifo(self.pipe)
        self.servers: dict[str, object] = {
            "lab": {"command": lab[0], "args": lab[1:]},
            "side": {"command": sys.executable, "args": [FAKE, "pages"], "prefix": "side"},
            "dead": {"command": sys.executable, "args": [FAKE, "die-start"]},
        }
        (folder / "tools.py").write_text(TOOLS)
        (folder / "policy.toml").write_text(RULES)

    def with_ledger(self) -> None:
        """Have the server that books behind the gateway, and no other."""
        words = [LEDGER, str(self.ledger), str(self.pipe)]
        self.servers = {"ledger": {"command": sys.executable, "args": words}}

    def command(self, *options: str) -> list[str]:
        """Return the words that serve all of it."""
        file = self.folder / "mcp.json"
        file.write_text(json.dumps({"mcpServers": self.servers}))
        policy = ["--policy", str(self.folder / "policy.toml")]
        served = [str(file), str(self.folder / "tools.py"), *policy, *options]
        return [sys.executable, "-m", "ferrule", "serve", *served]

    def kept(self) -> list[str]:
        """Return the options that keep calls."""
        return ["--journal", str(self.journal)]

    def ferrule(self, *words: str) -> str:
        """Run the command in a process of its own, and return what it writes."""
        command = [sys.executable, "-m", "ferrule", *words, "--journal", str(self.journal)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)
        return done.stdout


ENVIRONMENT = {**os.environ, "PYTHONPATH": ":".join(sys.path)}


@pytest.fixture
def files(tmp_path: Path, quick_lab: tuple[str, ...]) -> Files:
    """Give a gateway of two servers that are there, one that is not, and tools of ours."""
    return Files(tmp_path, quick_lab)


@asynccontextmanager
async def connected(
    files: Files,
    way: tuple[str, Era],
    *options: str,
    **more: Any,  # noqa: ANN401  # of the client
) -> AsyncGenerator[Client]:
    """Give a client of the gateway, over its pipes or over HTTP."""
    kind, era = way
    if kind == "stdio":
        first, *rest = files.command(*options)
        target = StdioServerParameters(command=first, args=rest, env=ENVIRONMENT)
        with anyio.fail_after(PATIENCE):
            async with Client(target, mode=era, **more) as client:
                yield client
        return
    words = [*files.command(*options), "--http", "127.0.0.1:0"]
    with running(words) as process:
        assert process.stderr is not None
        lines = [""]
        while "serving at " not in lines[-1]:
            lines.append(await anyio.to_thread.run_sync(process.stderr.readline))
        try:
            async with by_http(lines[-1].split()[-1].removesuffix("/mcp"), era, **more) as client:
                yield client
        finally:
            process.send_signal(signal.SIGINT)
            _, later = await anyio.to_thread.run_sync(process.communicate)
    if "dead" in files.servers:  # A thread writes the log, and may come to it later.
        told = "".join(lines) + later
        assert "WARNING ferrule.mcp: the server `dead` is not there: " in told


@contextmanager
def running(words: list[str]) -> Generator["subprocess.Popen[str]"]:
    """Run a gateway; all three of its streams are pipes."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=ENVIRONMENT
    ) as process:
        yield process


@pytest.mark.parametrize("way", WAYS, ids="-".join)
async def test_one_server_of_all_tools(way: tuple[str, Era], files: Files) -> None:
    """MCP-1, FAIL-6: one list, a call to each; denied and failed, with one `Error: ` at most."""
    async with connected(files, way) as client:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        added = await client.call_tool("add", {"a": 1, "b": 2})
        wrong = await client.call_tool("add", {"a": "x"})
        others = [await client.call_tool("side__a"), await client.call_tool("ours", {"text": "b"})]
        failures = [await client.call_tool(name) for name in ("fail", "refuse", "boom", "refused")]
        await as_they_are(client)

    adder = tools["add"]
    assert {"steps", "ours", "refused", "side__a", "side__b", "side__c"} <= tools.keys()
    assert not any("dead" in name for name in tools)
    assert (adder.title, adder.input_schema["additionalProperties"]) == ("Adder", False)
    assert adder.annotations is not None
    assert (adder.annotations.read_only_hint, adder.annotations.idempotent_hint) == (True, None)
    assert (text_of(added), added.structured_content) == ("3", {"sum": 3})
    assert [text_of(one) for one in others] == ["a", "1"]
    assert text_of(wrong) == (
        'invalid arguments: missing required property "b"; a: expected integer, got string'
    )
    assert all(one.is_error for one in (wrong, *failures))
    *said, boom, ours = [text_of(one) for one in failures]
    assert [*said, ours] == ["the file is locked", "nobody refuses here", "not today"]
    assert boom.startswith('tool "boom" failed; it may have taken effect (reference ')


async def as_they_are(client: Client) -> None:
    """Look at what passes through: numbers of progress, and records with every digit."""
    heard: list[tuple[float, float | None, str | None]] = []
    all_heard = anyio.Event()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))
        if progress == 30:
            all_heard.set()

    assert text_of(await client.call_tool("steps", progress_callback=hear)) == "done"
    await all_heard.wait()
    assert heard == [(10, 30, "step 1"), (20, 30, "step 2"), (30, 30, "step 3")]
    for failing in (False, True):
        result = await client.call_tool("record", {"fail": failing})
        assert (result.is_error, text_of(result)) == (failing, "recorded")
        assert result.meta is not None
        told = result.meta["ferrule/record"]
        assert told == {"namespace": "lab:row", "data": '{"a":[1,2.5],"b":9007199254740993}'}


@pytest.mark.parametrize("way", WAYS[1:3], ids="-".join)
async def test_what_waits_is_answered_from_another_process(
    way: tuple[str, Era], files: Files
) -> None:
    """AUT-4, SUS-3, DUR-2: parked in the journal; with the answer the call runs, once."""
    files.with_ledger()
    key = meta(idempotency_key="payment-7")
    async with connected(files, way, *files.kept()) as client:
        waits = await client.call_tool("booked", {"cents": 5}, meta=key)
        [wait] = json.loads(await anyio.to_thread.run_sync(files.ferrule, "waits", "--json"))
        ledger = files.ledger.exists()
        await anyio.to_thread.run_sync(files.ferrule, "answer", wait["id"], "yes", "--by", "ann")
        done = await client.call_tool("booked", {"cents": 5}, meta=key)
        again = await client.call_tool("booked", {"cents": 5}, meta=key)
        history = await SqliteInbox(files.journal).history()

    assert waits.is_error
    assert wait["id"] in text_of(waits)
    assert not ledger
    assert text_of(done) == text_of(again) == "booked 5"
    assert files.ledger.read_text() == "5\n"
    assert [line.by for line in history if line.step == "approve"] == ["ann"]


async def test_a_client_that_can_be_asked_is(files: Files) -> None:
    """AUT-4: the policy's question about another server's tool reaches the client."""
    asked: list[str] = []

    async def answer(_: object, question: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(question.message)
        return types.ElicitResult(action="accept", content={"answer": len(asked) == 1})

    async with connected(files, ("stdio", "auto"), elicitation_callback=answer) as client:
        allowed = await client.call_tool("echo", {"x": 1})
        refused = await client.call_tool("echo", {"x": 2})

    assert asked == ["May `echo` from `mcp:lab` run?"] * 2
    assert allowed.structured_content["arguments"] == {"x": 1}
    assert refused.is_error


@pytest.mark.parametrize("way", WAYS[:2], ids="-".join)
async def test_a_server_whose_tools_change_reaches_the_client(
    way: tuple[str, Era], files: Files
) -> None:
    """AT-92, MCP-1: the change is told in the client's own era, and the new tool is guarded."""
    told = anyio.Event()

    async def hear(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    async with connected(files, way, message_handler=hear) as client:
        if way[1] == "auto":
            async with client.listen(tools_list_changed=True) as changes:
                await client.call_tool("grow")
                assert await anext(aiter(changes)) == ToolsListChanged()
        else:
            await client.list_tools()
            await client.call_tool("grow")
            await told.wait()
        names = [one.name for one in (await client.list_tools(cache_mode="refresh")).tools]
        [new] = [name for name in names if name.startswith("new")]
        assert text_of(await client.call_tool(new)) == "new"


async def test_a_server_that_is_there_later_comes_in(files: Files) -> None:
    """MC-08, MCP-1: it is tried again by itself, its tools are told of, and they are guarded."""
    there = files.folder / "there"
    script = f"[ -e {there} ] || exit 1; exec {sys.executable} {FAKE} pages"
    late = {"command": "sh", "args": ["-c", script], "era": "legacy", "prefix": "late"}
    files.servers["late"] = late
    with (files.folder / "policy.toml").open("r+") as policy:
        policy.write('[[rule]]\ntool = "late__b"\ndecide = "deny"\nreason = "no b"\n' + RULES)
    async with connected(files, ("stdio", "auto")) as client:
        async with client.listen(tools_list_changed=True) as changes:
            before = [one.name for one in (await client.list_tools()).tools]
            there.touch()
            assert await anext(aiter(changes)) == ToolsListChanged()
        after = [one.name for one in (await client.list_tools(cache_mode="refresh")).tools]
        done = [await client.call_tool(f"late__{letter}") for letter in "ab"]

    assert sorted(set(after) - set(before)) == ["late__a", "late__b", "late__c"]
    assert [text_of(one) for one in done] == ["a", "no b"]


LONG = """
import anyio
from ferrule import tool
from ferrule.mcp import Server, Tasks

@tool
async def long() -> str:
    "Take long."
    return "done"

anyio.run(Server([long], tasks=Tasks(after=0, poll=0.02, required=("long",))).stdio)
"""


async def test_long_calls_become_tasks_before_it_and_behind_it(files: Files) -> None:
    """MCP-1: `--tasks`, and `tasks` in an entry; the call can only be made so, behind it."""
    (files.folder / "long.py").write_text(LONG)
    words: dict[str, object] = {"command": sys.executable, "args": [str(files.folder / "long.py")]}
    words["env"] = {"PYTHONPATH": ENVIRONMENT["PYTHONPATH"]}
    files.servers = {
        "long": {**words, "tasks": True},
        "plain": {**words, "prefix": "plain"},
    }
    options = ["--tasks", "0"]
    async with connected(files, ("stdio", "auto"), *options, extensions=[Taking()]) as client:
        created = [await called(client, name) for name in ("long", "plain__long")]
        ended = [await until(client, one["taskId"], "completed") for one in created]

    assert [one["resultType"] for one in created] == ["task", "task"]
    assert [one["result"]["isError"] for one in ended] == [False, True]
    done, refused = [one["result"]["content"][0]["text"] for one in ended]
    assert done == "done"
    assert refused.endswith("(say `tasks=True`)")


async def test_a_server_that_dies_in_a_call_costs_that_call_alone(files: Files) -> None:
    """FAIL-6, MC-05: what it may have done is unknown; it is there again for the next call."""
    async with connected(files, ("stdio", "auto")) as client:
        died = await client.call_tool("die")
        side = await client.call_tool("side__a")
        after = await client.call_tool("add", {"a": 1, "b": 2})

    assert died.is_error
    assert text_of(died).startswith('tool "die" failed; it may have taken effect (reference ')
    assert (text_of(side), text_of(after)) == ("a", "3")


@pytest.mark.parametrize("options", [[], ["--http", "127.0.0.1:0"]], ids=["stdio", "http"])
async def test_a_server_that_does_not_end_by_itself_is_ended(
    options: list[str], files: Files
) -> None:
    """CLO-1: SIGTERM ends what is served, and then the servers behind it, come what may."""
    noted = files.folder / "pid"
    script = f"echo $$ > {noted}; {sys.executable} {FAKE} pages; exec sleep 1000"
    files.servers = {"stubborn": {"command": "sh", "args": ["-c", script], "era": "legacy"}}
    with running(files.command(*options)) as process:
        if options:
            assert process.stderr is not None
            assert "serving at" in await anyio.to_thread.run_sync(process.stderr.readline)
        else:
            send(process, "initialize", HELLO)
            assert process.stdout is not None
            assert "result" in await anyio.to_thread.run_sync(process.stdout.readline)
        process.send_signal(signal.SIGTERM)
        code = await anyio.to_thread.run_sync(process.wait)

    assert code == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(noted.read_text()), 0)


async def test_the_example_is_a_gateway(tmp_path: Path) -> None:
    """Examples: two servers whose tools would meet, and a tool of ours, behind rules."""
    example = [str(EXAMPLE / name) for name in ("mcp.json", "tools.py")]
    words = ["serve", *example, "--policy", str(EXAMPLE / "policy.toml")]
    words += ["--journal", str(tmp_path / "calls.db")]
    env = {**ENVIRONMENT, "PYTHON": sys.executable}
    target = StdioServerParameters(command=sys.executable, args=["-m", "ferrule", *words], env=env)
    with anyio.fail_after(PATIENCE):
        async with Client(target) as client:
            names = [one.name for one in (await client.list_tools()).tools]
            milk = {"name": "milk"}
            read = [await client.call_tool(n, milk) for n in ("read_note", "archive__read_note")]
            refused = await client.call_tool("archive__delete_note", milk)
            waits = await client.call_tool("write_note", {"name": "eggs", "text": "Buy eggs."})
            counted = await client.call_tool("count_words", {"text": "a b c"})
    [wait] = await SqliteInbox(tmp_path / "calls.db").waits()

    kinds = ("delete_note", "read_note", "write_note")
    assert names == [*(f"archive__{kind}" for kind in kinds), "count_words", *kinds]
    assert [text_of(one) for one in read] == ["Buy milk (notes).", "Buy milk (archive)."]
    assert text_of(refused) == "Notes are kept; write a new one."
    assert wait.id in text_of(waits)
    assert text_of(counted) == "3"


EXAMPLE = HERE.parents[1] / "examples" / "gateway"


async def test_a_gateway_that_is_killed_sends_nothing_twice(files: Files) -> None:
    """DUR-2: what was at a server when the process ended is unknown, listed, and resolved once."""
    files.with_ledger()
    name = "payment-8"
    key = meta(idempotency_key=name)
    words = files.command(*files.kept())
    with running(words) as process:
        send(process, "initialize", HELLO)
        send(process, "notifications/initialized", {}, is_request=False)
        _meta = {"ferrule/idempotency-key": name}
        send(process, "tools/call", {"name": "charge", "arguments": {"cents": 9}, "_meta": _meta})
        assert await anyio.to_thread.run_sync(files.pipe.read_text) == "charged"
        process.kill()
    async with connected(files, ("stdio", "auto"), *files.kept()) as client:
        again = await client.call_tool("charge", {"cents": 9}, meta=key)
    [unknown] = json.loads(files.ferrule("unknown", "--json"))
    files.ferrule("resolve", unknown["id"], "completed", "--text", "charged 9")
    async with connected(files, ("stdio", "legacy"), *files.kept()) as client:
        resolved = await client.call_tool("charge", {"cents": 9}, meta=key)

    assert again.is_error
    assert "may have taken effect" in text_of(again)
    assert unknown["outcome"]["reason"] == "owner_lost"
    assert files.ledger.read_text() == "9\n"
    assert text_of(resolved) == "charged 9"


HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "0"},
}


def send(
    process: "subprocess.Popen[str]", method: str, params: object, *, is_request: bool = True
) -> None:
    """Send a message, and read no answer: the process is going to be killed."""
    assert process.stdin is not None
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    process.stdin.write(json.dumps(message | ({"id": method} if is_request else {})) + "\n")
    process.stdin.flush()
