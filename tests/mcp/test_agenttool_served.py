"""
The checklist of another implementation of the contract, as far as it is about serving over MCP.

Each line has a test whose docstring names it, `AT-110` to `AT-122` and `AT-128` to `AT-149`: here,
or where the rule itself is tested (`test_serving`, `test_running`, `test_questions`,
`test_security`). Where ours differs:

- AT-112: of each call the newest unread updates are kept, and a number follows the last one.
- AT-114: a `Link` stays a link and audio stays audio (CONTRACT 14, AT-90 and AT-99).
- AT-118: nobody asks for a session outside a call; `context.session` is `None` where none is.
- AT-122: a `Record` is JSON from the start, so there is none that cannot be recorded.
- AT-128: a second tool of one name is refused when it is registered (REG-1).
- AT-144, AT-145: what is off the schema or left out is asked again, as 2026-07-28 says; a state
  that was invented or changed is an error of the protocol, and a stale one is told to the model.
- AT-147: with its last request nobody is asked any more, and the tool hears that nobody chose.
- AT-149: a yes or no is a form with one field, so that its answer can be checked.
"""

import json
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from mcp import Client, types
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage

from ferrule import (
    Context,
    Definition,
    DuplicateTool,
    Failure,
    File,
    Image,
    InvalidTool,
    RawTool,
    Record,
    Registry,
    Result,
    Text,
    Tool,
    Traits,
    tool,
)
from ferrule.mcp import Server
from served import RECORD, TOOLS
from serving import ERAS, Era, in_memory, text_of

pytestmark = pytest.mark.anyio


# ---- a proxy of a proxy --------------------------------------------------------------------------


def proxied(client: Client, listed: list[types.Tool]) -> list[RawTool]:
    """Return the tools of a server as tools that call it; texts are all that the test needs."""
    return [_proxy(client, one) for one in listed]


def _proxy(client: Client, remote: types.Tool) -> RawTool:
    async def function(arguments: dict[str, object], context: Context) -> Result:
        async def listen(progress: float, total: float | None, message: str | None) -> None:
            context.progress(progress, total, message)

        done = await client.call_tool(remote.name, arguments, progress_callback=listen)
        told = (done.meta or {}).get("ferrule/record")
        kept = told and Record(told["namespace"], data=json.loads(told["data"]))
        if done.is_error:
            raise Failure(text_of(done), details=kept)
        return Result(
            (Text(text_of(done)),), structured_content=done.structured_content, details=kept
        )

    stated = remote.annotations or types.ToolAnnotations()
    definition = Definition(
        remote.name,
        remote.description or "",
        input_schema=remote.input_schema,
        output_schema=remote.output_schema,
        title=remote.title,
    )
    traits = Traits(
        read_only=stated.read_only_hint,
        destructive=stated.destructive_hint,
        idempotent=stated.idempotent_hint,
        open_world=stated.open_world_hint,
    )
    return RawTool(definition, function, traits=traits)


@pytest.mark.parametrize("era", ERAS)
async def test_a_proxy_of_a_proxy_keeps_all_that_a_client_sees(era: Era) -> None:
    """AT-113, AT-110, AT-111: schema, hints, numbers, records, and one `Error: ` at most."""
    heard_first = anyio.Event()
    heard: list[tuple[float, float | None, str | None]] = []

    @tool(read_only=True, idempotent=True, title="Half way")
    async def halfway(context: Context) -> dict[str, int]:
        """Go half way, and on."""
        context.progress(10, 40, "half way")
        await heard_first.wait()
        context.progress(40, 40)
        return {"done": 40}

    @tool
    async def summed(numbers: list[int]) -> dict[str, int]:
        """Add."""
        return {"total": sum(numbers)}

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))
        (all_heard if len(heard) == 2 else heard_first).set()

    all_heard = anyio.Event()
    given: list[Tool] = [
        halfway,
        summed,
        *(one for one in TOOLS if one.definition.name.startswith("noted")),
    ]
    refused = next(one for one in TOOLS if one.definition.name == "refused")
    async with AsyncExitStack() as stack:
        tools: list[Tool] = [*given, refused]
        listings: list[list[types.Tool]] = []
        clients: list[Client] = []
        for _ in range(3):
            clients.append(await stack.enter_async_context(in_memory(Server(tools), era)))
            listings.append((await clients[-1].list_tools()).tools)
            tools = list(proxied(clients[-1], listings[-1]))

        client = clients[-1]
        done = await client.call_tool("halfway", progress_callback=listen)
        total = await client.call_tool("summed", {"numbers": [1, 2]})
        wrong = await client.call_tool("summed", {"numbers": "1"})
        failed = await client.call_tool("refused")
        kept = await client.call_tool("noted")
        not_kept = await client.call_tool("noted_failure")
        await all_heard.wait()

    assert listings[0] == listings[1] == listings[2]
    assert heard == [(10, 40, "half way"), (40, 40, None)]
    assert done.structured_content == {"done": 40}
    assert total.structured_content == {"total": 3}
    assert text_of(wrong).startswith("invalid arguments: ")
    assert (text_of(failed), failed.is_error) == ("the file is locked", True)
    for one, is_error in ((kept, False), (not_kept, True)):
        assert one.is_error is is_error
        assert one.meta is not None
        assert one.meta["ferrule/record"] == {
            "namespace": RECORD.namespace,
            "data": '{"a":["é",1.5,null],"z":9007199254740993}',
        }


# ---- what is served ------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_no_arguments_are_one_shape(era: Era) -> None:
    """AT-119, MC-01: the same object whether a schema was given or not; called without any."""
    bare = RawTool(Definition("bare"), lambda arguments, _: arguments)

    @tool(form="open")
    async def typed() -> dict[str, int]:
        """Take nothing."""
        return {}

    async with in_memory(Server([bare, typed]), era) as client:
        listed = {one.name: one.input_schema for one in (await client.list_tools()).tools}
        assert text_of(await client.call_tool("bare")) == "{}"
        assert text_of(await client.call_tool("typed", {})) == "{}"

    assert listed["bare"] == listed["typed"] == {"type": "object", "properties": {}, "required": []}


@pytest.mark.parametrize("era", ERAS)
async def test_what_more_is_sent_is_as_the_tools_form_has_it(era: Era) -> None:
    """AT-120: refused where the schema is closed, ignored where it is open, else taken."""

    async def closed(a: int = 0) -> str:
        return str(a)

    async def opened(a: int = 0) -> str:
        return str(a)

    anything = RawTool(
        Definition("anything", input_schema={"type": "object"}), lambda arguments, _: arguments
    )
    tools: list[Tool] = [tool(closed), tool(form="open")(opened), anything]
    async with in_memory(Server(tools), era) as client:
        refused = await client.call_tool("closed", {"b": 1})
        ignored = await client.call_tool("opened", {"a": 2, "b": 1})
        taken = await client.call_tool("anything", {"b": [1]})

    assert refused.is_error
    assert text_of(ignored) == "2"
    assert text_of(taken) == '{"b":[1]}'


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "$schema": "https://example.com/none"},
        {"type": "object", "properties": {"a": {"type": 5}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}},
        {"type": "object", "properties": {"a": {"$ref": "http://169.254.169.254/meta"}}},
        {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
    ],
)
def test_a_schema_that_cannot_be_is_refused_before_anything_is_served(
    schema: dict[str, object],
) -> None:
    """AT-121, SE-07: by the tool's name, and nothing is fetched; none of its batch is served."""
    registry = Registry()
    bad = RawTool(Definition("bad", input_schema=schema), lambda _, __: None)
    with pytest.raises(InvalidTool, match="bad"):
        Server([*TOOLS, bad])
    with pytest.raises(InvalidTool, match="bad"):
        registry.register([*TOOLS, bad])
    assert registry.names == []


def test_a_misspelt_hint_and_a_second_name_are_refused() -> None:
    """AT-128, MS-07, REG-1: when they are declared, and not in silence when they are served."""
    with pytest.raises(TypeError, match="readOnlyHnt"):
        Traits(readOnlyHnt=True)  # type: ignore[call-arg]  # that is what is tested
    with pytest.raises(DuplicateTool):
        Server([*TOOLS, TOOLS[0]])


@pytest.mark.parametrize("era", ERAS)
async def test_content_that_has_no_place_of_its_own_becomes_a_link_or_text(era: Era) -> None:
    """AT-114, AT-115: data that is none stays an address; no type is said as octets."""

    @tool
    async def odd() -> list[Image | File]:
        """Return odd things."""
        return [
            Image(url="data:image/png;base64,%%%", mime_type="image/png"),
            Image(url="data:;base64,AAA="),
            File(url="data:text/plain,a%20b", name="a.txt"),
            File(data=b"x", mime_type="text/plain"),
        ]

    async with in_memory(Server([odd]), era) as client:
        link, octets, text, unnamed = (await client.call_tool("odd")).content

    assert isinstance(link, types.ResourceLink)
    assert isinstance(octets, types.ImageContent)
    assert (octets.data, octets.mime_type) == ("AAA=", "application/octet-stream")
    for block, uri, kind, data in (
        (text, "file:///a.txt", "text/plain", "YSBi"),
        (unnamed, "file:///file", "text/plain", "eA=="),
    ):
        assert isinstance(block, types.EmbeddedResource)
        assert isinstance(block.resource, types.BlobResourceContents)
        assert (block.resource.uri, block.resource.mime_type) == (uri, kind)
        assert block.resource.blob == data


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_no_member_is_sent_that_is_not_stated(version: str) -> None:
    """MS-07: in every revision, no null, and no list where an object belongs."""
    async with (
        Server(TOOLS) as server,
        anyio.create_task_group() as group,
        create_client_server_memory_streams() as ((reading, writing), theirs),
    ):
        group.start_soon(server.sdk.run, *theirs, server.sdk.create_initialization_options())

        async def ask(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
            asked = types.JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=params)
            await writing.send(SessionMessage(asked))
            answer = await reading.receive()
            assert isinstance(answer, SessionMessage)
            sent: dict[str, Any] = answer.message.model_dump(by_alias=True, mode="json")
            return dict(sent["result"])

        hello = {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "raw", "version": "0"},
        }
        assert (await ask(1, "initialize", hello))["protocolVersion"] == version
        listed = (await ask(2, "tools/list", {}))["tools"]
        group.cancel_scope.cancel()

    assert len(listed) == len(TOOLS)
    for one in listed:
        assert isinstance(one["inputSchema"], dict)
        assert isinstance(one["inputSchema"].get("properties", {}), dict)
        assert None not in (value for name, value in one.items())
        assert None not in one.get("annotations", {}).values()


# ---- who is asked --------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_who_stops_a_call_that_asks_stops_its_tool(era: Era) -> None:
    """AT-138, AT-148: with a question open the tool is told at once."""
    asked, stopped = anyio.Event(), anyio.Event()

    @tool
    async def asks(context: Context) -> None:
        """Ask for ever."""
        try:
            await context.ask("Well?", bool)
        finally:
            stopped.set()

    async def never(_: object, __: object) -> types.ElicitResult:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    # A call of the later era waits for its client without a request: it is stopped for patience.
    patience = 30 if era == "legacy" else 0.2
    server = Server([asks], patience=patience)
    async with in_memory(server, era, elicitation_callback=never) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "asks")
            await asked.wait()
            group.cancel_scope.cancel()
        await stopped.wait()


@pytest.mark.parametrize("era", ERAS)
async def test_an_asker_that_breaks_is_one_that_did_not_choose(era: Era) -> None:
    """AT-134: the tool hears `cancel` or the client its own error; nothing else breaks."""

    async def breaks(_: object, __: object) -> types.ErrorData:
        return types.ErrorData(code=types.INTERNAL_ERROR, message="no")

    async with in_memory(Server(TOOLS), era, elicitation_callback=breaks) as client:
        if era == "legacy":
            assert text_of(await client.call_tool("sure")) == "Declined(action='cancel')"
        else:
            with pytest.raises(Exception, match="no"):
                await client.call_tool("sure")
        assert text_of(await client.call_tool("add", {"a": 1, "b": 1})) == "2"


async def test_state_is_kept_by_the_session(anyio_backend: str) -> None:
    """AT-117: one tool value, and a working folder for each client."""
    folders: dict[object, str] = {}

    @tool
    async def cd(context: Context, to: str | None = None) -> str:
        """Change the folder."""
        if to is not None:
            folders[context.session] = to
        return folders.get(context.session, "/")

    async with Server([cd]) as server, Client(server.sdk) as one, Client(server.sdk) as two:
        await one.call_tool("cd", {"to": "/one"})
        await two.call_tool("cd", {"to": "/two"})
        assert text_of(await one.call_tool("cd", {"to": None})) == "/one"
        assert text_of(await two.call_tool("cd", {"to": None})) == "/two"
