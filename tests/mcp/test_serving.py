"""Any tools served over MCP: what clients are told, and what they get."""

import base64
import json
import logging
from typing import Any, Literal

import httpx2
import pytest
from mcp import MCPError, types

from ferrule import Definition, Leniency, RawTool, Result, Text, Traits, tool
from ferrule.mcp import Server
from served import PNG, SECRET, TOOLS
from serving import ERAS, TRIO_BY_PIPE, WAYS, Era, along, at_a_port, in_memory, text_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("anyio_backend", "way"), [*WAYS, *TRIO_BY_PIPE], indirect=["anyio_backend"]
)
async def test_tools_are_listed_and_called_whichever_way(
    way: tuple[str, Era], anyio_backend: str
) -> None:
    """MCP-1: one server, in both eras, in memory, over pipes and over HTTP."""
    async with along(way, Server(TOOLS, name="tests"), anyio_backend) as client:
        names = [one.name for one in (await client.list_tools()).tools]
        done = await client.call_tool("add", {"a": 2, "b": 3})
        refused = await client.call_tool("refused")

        assert client.server_info is not None
        assert client.server_info.name == "tests"

    assert names == sorted(one.definition.name for one in TOOLS)
    assert text_of(done) == "5"
    assert not done.is_error
    assert (text_of(refused), refused.is_error) == ("the file is locked", True)


@pytest.mark.parametrize("era", ERAS)
async def test_a_listing_says_what_the_tools_say(era: Era) -> None:
    """AT-110, AT-116, MS-07: schemas whole, hints three-valued, what is not stated left out."""
    async with in_memory(Server(TOOLS), era) as client:
        listed = {one.name: one for one in (await client.list_tools()).tools}

    for one in TOOLS:
        definition = one.definition
        assert listed[definition.name].input_schema == definition.input_schema
        assert (listed[definition.name].description or "") == definition.description
    add = listed["add"].model_dump(by_alias=True, exclude_none=True)
    assert add["title"] == "Adder"
    assert add["annotations"] == {"title": "Adder", "readOnlyHint": True, "openWorldHint": False}
    stated = listed["any/thing"].annotations
    assert stated is not None
    assert (stated.destructive_hint, stated.idempotent_hint) == (True, False)
    assert (stated.read_only_hint, stated.open_world_hint) == (None, None)
    assert listed["kinds"].annotations is None
    assert listed["kinds"].title is None


@pytest.mark.parametrize("era", ERAS)
async def test_what_a_server_has_none_of_is_listed_as_empty_and_never_changes(era: Era) -> None:
    """MCP-1: clients ask for prompts and resources whatever is announced, and show the error."""
    async with in_memory(Server(TOOLS), era) as client:
        said = client.server_capabilities
        prompts = await client.list_prompts()
        resources = await client.list_resources()
        templates = await client.list_resource_templates()

    assert (prompts.prompts, resources.resources, templates.resource_templates) == ([], [], [])
    assert said is not None
    assert said.prompts == types.PromptsCapability(list_changed=False)
    assert said.resources == types.ResourcesCapability(subscribe=False, list_changed=False)


async def test_only_objects_are_structured_in_the_handshake_era() -> None:
    """MCP-1: an output that the earlier era cannot carry is left out, schema and value alike."""
    seen: dict[str, list[tuple[object, object]]] = {}
    for era in ERAS:
        async with in_memory(Server(TOOLS), era) as client:
            listed = {one.name: one for one in (await client.list_tools()).tools}
            for name, given in (("summed", {"numbers": [1, 2]}), ("listed", {})):
                done = await client.call_tool(name, given)
                told = (listed[name].output_schema, done.structured_content)
                seen.setdefault(name, []).append(told)
                assert json.loads(text_of(done)) == (
                    [1, 2**60, 3] if name == "listed" else {"total": 3}
                )

    (schema, value), (again, same) = seen["summed"]
    assert schema == again == TOOLS[1].definition.output_schema
    assert value == same == {"total": 3}
    assert seen["listed"][0] == (None, None)
    assert seen["listed"][1] == (TOOLS[2].definition.output_schema, [1, 2**60, 3])


@pytest.mark.parametrize("era", ERAS)
async def test_every_kind_of_content_has_its_block(era: Era) -> None:
    """AT-114, AT-115: bytes travel as bytes, addresses as links, a file under its name."""
    async with in_memory(Server(TOOLS), era) as client:
        done = await client.call_tool("kinds")
        empty = await client.call_tool("nothing")

    blocks = [block.model_dump(by_alias=True, exclude_none=True) for block in done.content]
    png = base64.b64encode(PNG).decode()
    assert blocks == [
        {"type": "text", "text": "a text"},
        {"type": "image", "data": png, "mimeType": "image/png"},
        {
            "type": "resource_link",
            "name": "image",
            "uri": "https://example.com/cat.png",
            "mimeType": "image/png",
        },
        {"type": "image", "data": "R0lGODlh", "mimeType": "image/gif"},
        {"type": "audio", "data": base64.b64encode(b"RIFF").decode(), "mimeType": "audio/wav"},
        {"type": "resource_link", "name": "audio", "uri": "https://example.com/a.mp3"},
        {
            "type": "resource",
            "resource": {
                "uri": "file:///notes%20of%20mine.bin",
                "blob": base64.b64encode(b"\x00\x01").decode(),
                "mimeType": "application/x-notes",
            },
        },
        {
            "type": "resource_link",
            "name": "x.pdf",
            "uri": "https://example.com/files/x.pdf",
            "mimeType": "application/pdf",
        },
        {
            "type": "resource_link",
            "name": "the page",
            "uri": "https://example.com/page",
            "description": "A page.",
        },
        {"type": "resource_link", "name": "other", "uri": "https://example.com/other/"},
    ]
    assert text_of(empty) == ""


@pytest.mark.parametrize("era", ERAS)
async def test_what_a_tool_raises_stays_here(era: Era, caplog: pytest.LogCaptureFixture) -> None:
    """MS-02, SE-10, FAIL-4: a private error is a reference in both eras; the log has the rest."""
    with caplog.at_level(logging.ERROR, logger="ferrule"):
        async with in_memory(Server(TOOLS), era) as client:
            done = await client.call_tool("broken")

    assert done.is_error
    assert SECRET not in done.model_dump_json()
    assert "(reference " in text_of(done)
    assert not text_of(done).startswith("Error: ")
    assert SECRET in str(caplog.records[0].exc_info)


@pytest.mark.parametrize("era", ERAS)
async def test_a_result_that_breaks_its_schema_is_an_error(era: Era) -> None:
    """MS-04: the client reads that it failed, and never a value of another shape."""
    async with in_memory(Server(TOOLS), era) as client:
        done = await client.call_tool("broken_shape")

    assert done.is_error
    assert done.structured_content is None
    assert SECRET not in done.model_dump_json()


@pytest.mark.parametrize("era", ERAS)
async def test_bad_arguments_are_told_to_the_model(era: Era) -> None:
    """MS-02, AT-111, AT-120: all problems at once, as a result that hosts show to the model."""
    async with in_memory(Server(TOOLS), era) as client:
        wrong = await client.call_tool("add", {"a": "x", "c": 1})
        none = await client.call_tool("add")

    for done in (wrong, none):
        assert done.is_error
        assert text_of(done).startswith("invalid arguments: ")
    assert "expected integer" in text_of(wrong)
    assert 'missing required property "b"' in text_of(wrong)
    assert '"c"' in text_of(wrong)


class OddParams(types.CallToolRequestParams):
    """Parameters of no request of MCP."""

    arguments: Any = None


class Odd(types.Request[OddParams, Literal["tools/call"]]):
    """A request that is none."""

    method: Literal["tools/call"] = "tools/call"
    params: OddParams


@pytest.mark.parametrize("era", ERAS)
async def test_an_unknown_tool_is_an_error_of_the_protocol(era: Era) -> None:
    """MS-02: as every revision up to 2026-07-28 has it."""
    async with in_memory(Server(TOOLS), era) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("no such")
        with pytest.raises(MCPError) as malformed:
            await client.session.send_request(
                Odd(params=OddParams(name="add", arguments=[1])), types.CallToolResult
            )
        with pytest.raises(MCPError) as paged:
            await client.list_tools(cursor="2")

    assert caught.value.error.code == types.INVALID_PARAMS
    assert caught.value.error.message == "Unknown tool: no such"
    assert malformed.value.error.code == types.INVALID_PARAMS
    assert paged.value.error.code == types.INVALID_PARAMS


@pytest.mark.parametrize("era", ERAS)
async def test_every_rule_of_the_boundary_stands_behind_it(era: Era) -> None:
    """ADM-2, JSON-3: leniency as the tool allows, limits as the registry has them."""

    async def function(arguments: dict[str, object], _: object) -> object:
        return arguments

    number = {"type": "object", "properties": {"n": {"type": "integer"}}}
    kind = Traits(leniency=Leniency(numbers_in_string=True))
    lenient = RawTool(Definition("lenient", input_schema=number), function, traits=kind)
    strict = RawTool(Definition("strict", input_schema=number), function)
    async with in_memory(Server([lenient, strict]), era) as client:
        repaired = await client.call_tool("lenient", {"n": "5"})
        refused = await client.call_tool("strict", {"n": "5"})
        huge = await client.call_tool("strict", {"n": 10**400})
        large = await client.call_tool("strict", {"t": "x" * (2 << 20)})

    assert text_of(repaired) == '{"n":5}'
    assert refused.is_error
    assert huge.is_error
    assert large.is_error
    assert "too large" in text_of(large)


@pytest.mark.parametrize("era", ERAS)
async def test_what_a_model_reads_is_bounded(era: Era) -> None:
    """EXE-11: texts are cut with a notice, and pictures beside them stay."""

    @tool
    async def long() -> Result:
        """Return much."""
        return Result((Text("a" * 200_000), Text("b" * 200_000)))

    async with in_memory(Server([long]), era) as client:
        done = await client.call_tool("long")

    assert len(text_of(done)) <= 256 << 10
    assert "of 400000 bytes are shown" in text_of(done)


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e400", r'"\ud800"', str(10**400)])
async def test_what_is_no_json_of_ours_is_refused(value: str) -> None:
    """JSON-1, MS-02: the SDK's reader over HTTP lets it in, and our boundary does not."""
    meta = (
        '{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
        '"io.modelcontextprotocol/clientCapabilities":{}}'
    )
    params = f'{{"name":"any/thing","arguments":{{"u":{value}}},"_meta":{meta}}}'
    body = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "any/thing",
    }
    with at_a_port(Server(TOOLS).asgi) as address:
        async with httpx2.AsyncClient() as http:
            answer = await http.post(f"{address}/mcp", content=body, headers=headers)

    told = answer.json()
    if "error" in told:
        assert told["error"]["code"] == types.INVALID_PARAMS
    else:
        assert told["result"]["isError"], told
        assert value not in str(told)


def test_a_server_says_what_it_is() -> None:
    """STYLE 25: in a log, it is known by its name."""
    assert repr(Server(TOOLS, name="tests")) == f"<Server 'tests' of {len(TOOLS)} tools>"
