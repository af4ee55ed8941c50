"""
Cases of other projects, and lines of another implementation's checklist, about a client of MCP.

Each test names the case (`MC-04`) or the line (`AT-101`) that it holds.
"""

import importlib.util
import json
import runpy
import sys
from pathlib import Path
from typing import Any, Literal, cast

import anyio
import pytest
from mcp import types as wire
from mcp.server.lowlevel import Server

import ferrule.mcp
from ferrule import (
    Audio,
    Binding,
    Completed,
    Context,
    Executor,
    Failed,
    Failure,
    InvalidCall,
    InvalidResult,
    Record,
    Registry,
    Rejected,
    Result,
    Shared,
    Text,
    ToolCall,
    TraitFields,
    Traits,
    Unknown,
)
from ferrule.mcp import Command, InProcess, Remote, connect
from ferrule.mcp._from_mcp import definition_of, result_of, traits_of
from mcp_lab import Lab

pytestmark = pytest.mark.anyio

Era = Literal["auto", "legacy"]
CORPUS = Path(__file__).parents[1] / "corpus" / "mcp-tools"
LISTS = {file.stem: file.read_text(encoding="utf-8") for file in CORPUS.glob("*.json")}
FAKE = str(Path(__file__).with_name("fake.py"))


def serving(*tools: dict[str, Any]) -> Server[Any]:
    """Return a server that lists tools as they are written, and says what it was called with."""

    async def list_tools(_: object, __: object) -> wire.ListToolsResult:
        listed = [wire.Tool.model_validate(tool, by_name=False) for tool in tools]
        return wire.ListToolsResult(tools=listed, ttl_ms=0, cache_scope="private")

    async def call_tool(_: object, params: wire.CallToolRequestParams) -> wire.CallToolResult:
        text = json.dumps([params.name, params.arguments], sort_keys=True)
        return wire.CallToolResult(content=[wire.TextContent(text=text)])

    return Server("written", on_list_tools=list_tools, on_call_tool=call_tool)


def tool(name: str, schema: dict[str, Any], **facts: object) -> dict[str, Any]:
    """Return a tool as it is listed."""
    return {"name": name, "inputSchema": schema, **facts}


def bound(registry: Registry, name: str) -> Binding:
    """Return the binding of a tool that is there."""
    binding = registry.resolve(name)
    assert binding is not None
    return binding


async def fingerprint(told: dict[str, Any], **options: Any) -> str:  # noqa: ANN401  # of `connect`
    """Return the fingerprint under which a tool is approved or locked."""
    async with Registry([connect(serving(told), **options)]) as registry:
        return bound(registry, registry.names[0]).contract.fingerprint


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """ARCHITECTURE rule 5: before it is imported."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    with pytest.raises(ModuleNotFoundError, match=r"pip install 'ferrule\[mcp\]'"):
        runpy.run_path(str(ferrule.mcp.__file__))


# ---- what real servers list ----------------------------------------------------------------------


@pytest.mark.parametrize("file", sorted(LISTS))
async def test_every_tool_of_a_real_server_can_be_used(file: str, era: Era) -> None:
    """MC-01, MC-02, MC-04, AT-87: schemas as they were written, drafts and references and all."""
    told = json.loads(LISTS[file])["tools"]
    async with connect(InProcess(serving(*told), era=era)) as remote:
        offered = {one.definition.name: one.definition for one in remote.tools}
        bad = {one.name: one.reason for one in remote.quarantined}

    assert set(offered) | set(bad) == {one["name"] for one in told}
    assert all("task" in reason for reason in bad.values()), bad
    for one in told:
        if one["name"] in offered:
            assert offered[one["name"]].input_schema == one["inputSchema"]
            assert offered[one["name"]].description == one.get("description", "")


# ---- schemas -------------------------------------------------------------------------------------


async def test_shared_types_of_an_older_draft_are_enforced() -> None:
    """MC-04, google/adk-python#5941: `definitions`, a list of types, a tuple."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "p": {"$ref": "#/definitions/P"},
            "q": {"type": ["string", "null"]},
            "t": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
        },
        "definitions": {
            "P": {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}
        },
    }
    async with Registry([connect(serving(tool("a", schema)))]) as registry:
        given = [{"p": {}}, {"p": {"n": "x"}, "q": None, "t": ["x", 1]}, {"t": [1]}]
        outcomes = await Executor(registry).run([ToolCall.of("a", one) for one in given])

    assert [type(outcome) for outcome in outcomes] == [Rejected, Completed, Rejected]


async def test_boolean_schemas_are_schemas() -> None:
    """MC-02, googleapis/python-genai#2393: `true` takes anything, `false` nothing."""
    schema = {
        "type": "object",
        "properties": {"refresh": True, "never": False, "rows": {"type": "array", "items": True}},
        "additionalProperties": False,
    }
    async with Registry([connect(serving(tool("a", schema)))]) as registry:
        given = [{"refresh": {"x": 1}, "rows": [1, "x"]}, {"never": 1}]
        outcomes = await Executor(registry).run([ToolCall.of("a", one) for one in given])

    assert [type(outcome) for outcome in outcomes] == [Completed, Rejected]


async def test_types_that_hold_themselves_are_enforced_at_every_depth() -> None:
    """MC-05, OpenHands#1955: a tree; a pure circle is in quarantine (see the odd list)."""
    schema = {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/N"}},
        "$defs": {
            "N": {
                "type": "object",
                "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/N"}}},
            }
        },
    }
    async with Registry([connect(serving(tool("a", schema)))]) as registry:
        given = [{"root": {"kids": [{"kids": [{}]}]}}, {"root": {"kids": [{"kids": [5]}]}}]
        outcomes = await Executor(registry).run([ToolCall.of("a", one) for one in given])

    assert [type(outcome) for outcome in outcomes] == [Completed, Rejected]


async def test_no_arguments_are_an_empty_object() -> None:
    """MC-01, openai/openai-agents-python#454: sent as `{}`; the original is kept."""
    async with Registry([connect(serving(tool("ping", {"type": "object"})))]) as registry:
        [outcome] = await Executor(registry).run([ToolCall(id="c", name="ping")])

        assert outcome.text == '["ping", {}]'
        assert bound(registry, "ping").contract.definition.input_schema == {"type": "object"}


async def test_what_changed_since_it_was_approved_has_another_fingerprint() -> None:
    """SE-08, vercel/ai#16902: text, schema, hints, server; the order of keys alone is no change."""
    schema = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
    told = tool("send", schema, description="Send it.")
    before = await fingerprint(told, origin="mcp:mail")
    wider = {**schema, "properties": {"to": {"type": "string"}, "bcc": {"type": "string"}}}
    others = [
        {**told, "description": "Send it. Also to me."},
        {**told, "title": "Mail"},
        {**told, "inputSchema": wider},
        {**told, "outputSchema": {"type": "object"}},
        {**told, "annotations": {"readOnlyHint": True}},
        {**told, "name": "post"},
    ]
    turned = dict(reversed([*schema.items()]))

    assert await fingerprint({**told, "inputSchema": turned}, origin="mcp:mail") == before
    assert before not in [await fingerprint(other, origin="mcp:mail") for other in others]
    assert await fingerprint(told, origin="mcp:other") != before


# ---- what the host says --------------------------------------------------------------------------


async def test_what_the_host_says_of_a_tool_is_found_under_either_name() -> None:
    """AT-88, AT-89: `uses`, a confinement for each call, order; one that is not named has none."""

    def inside(arguments: dict[str, Any]) -> str | None:
        return "box" if arguments.get("path") == "/in" else None

    traits: dict[str, TraitFields | Traits] = {
        "fs__read": {"uses": Shared("disk"), "confinement": inside},
        "write": Traits(uses="disk", sequential=True),
    }
    told = [tool(name, {"type": "object"}) for name in ("read", "write", "other")]
    async with connect(serving(*told), prefix="fs", traits=traits) as remote:
        found = {one.definition.name: one.traits for one in remote.tools}

    assert found["fs__read"].settled(lambda: {"path": "/in"}).confinement == "box"
    assert found["fs__read"].settled(lambda: {"path": "/out"}).confinement is None
    assert found["fs__read"].uses == (Shared("disk"),)
    assert (found["fs__write"].uses, found["fs__write"].sequential) == (("disk",), True)
    assert found["fs__other"] == Traits()


async def test_calls_that_use_the_same_state_wait_for_one_another(
    quick_lab: tuple[str, ...],
) -> None:
    """AT-88, EXE-3: what MCP cannot say orders the calls of a batch."""
    traits: dict[str, TraitFields | Traits] = {"echo": {"uses": "disk"}, "add": {"uses": "disk"}}
    async with Registry([connect(Command(quick_lab), traits=traits)]) as registry:
        calls = [ToolCall.of("echo"), ToolCall.of("add", {"a": 1, "b": 1}), ToolCall.of("kinds")]
        plan = await Executor(registry).plan(calls)

    assert [list(after) for after in plan.after] == [[], [0], []]


def test_hints_are_what_is_stated_and_no_more() -> None:
    """AT-101, AUT-3: no block, explicit falses, nonsense; the tool's own title is the title."""
    written: dict[str, Any] = {"readOnlyHint": False, "openWorldHint": None, "idempotentHint": 1}
    assert traits_of({}, None, None).hints == {}
    assert traits_of({"annotations": written}, None, None).hints == {"readOnlyHint": False}
    assert traits_of({"annotations": "x"}, None, None).hints == {}
    assert traits_of({}, None, 5.0).timeout == 5.0
    assert traits_of({}, {"timeout": 1.0}, 5.0).timeout == 1.0
    assert traits_of({"annotations": {"idempotentHint": True}}, None, None).replay == "unknown"
    titles = {"title": "own", "annotations": {"title": "other"}}
    assert definition_of(titles, name="a").title == "own"
    assert definition_of({"annotations": {"title": "other"}}, name="a").title == "other"


# ---- results -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        None,
        5,
        {},
        {"namespace": "a:b"},
        {"namespace": "a:b", "data": {"x": 1}},
        {"namespace": "a:b", "data": "{"},
        {"namespace": "nocolon", "data": "1"},
        {"data": "1"},
        {"error": "could not be recorded"},
    ],
)
def test_what_is_no_record_stays_what_it_is(record: object) -> None:
    """AT-102: another shape under the key, and other keys, are `_meta` for the host."""
    result = result_of({"content": [], "_meta": {"ferrule/record": record, "x/y": 1}})

    assert result.details == {"_meta": {"ferrule/record": record, "x/y": 1}}


def test_a_record_is_a_record_on_failure_too() -> None:
    """AT-102, REC-1: every digit of it."""
    meta = {"ferrule/record": {"namespace": "a:b", "data": '{"z":9007199254740993}'}}
    with pytest.raises(Failure) as caught:
        result_of({"isError": True, "content": [], "_meta": meta})

    assert caught.value.details == Record("a:b", data={"z": 2**53 + 1})
    assert str(caught.value) == "tool call failed"


def test_sound_stays_sound() -> None:
    """AT-99: with the type that it says, or none that is known."""
    block = {"type": "audio", "data": "aGk="}
    assert result_of({"content": [block]}).content == (
        Audio(data=b"hi", mime_type="application/octet-stream"),
    )
    lined = {**block, "data": "aG\nk=", "mimeType": "Audio/MPEG; codecs=x"}
    assert result_of({"content": [lined]}).content == (
        Audio(data=b"hi", mime_type="Audio/MPEG; codecs=x"),
    )


def test_an_error_that_is_itself_nonsense_is_unknown() -> None:
    """AT-100, FAIL-6: nobody can say what it tells."""
    with pytest.raises(InvalidResult, match=r"content\[0\]"):
        result_of({"isError": True, "content": [{"type": "text"}]})


async def test_a_result_that_is_too_large_is_unknown() -> None:
    """JSON-3, MC-11: 100 MB end the connection at its limit; the next call has another one."""
    async with Registry([connect(Command((sys.executable, FAKE), era="legacy"))]) as registry:
        executor = Executor(registry, sequential=True)
        outcomes = await executor.run([ToolCall.of("long"), ToolCall.of("extra")])

    assert isinstance(outcomes[0], Unknown)
    assert isinstance(outcomes[1], Completed)
    assert "33554432" in str(outcomes[0].error)


async def test_an_answer_for_a_remote_tool_is_refused() -> None:
    """SUS-2: it asks while it runs, and is never started again with an answer."""
    async with connect(serving(tool("a", {"type": "object"}))) as remote:
        resume = cast("Any", remote.tools[0]).resumer()
        with pytest.raises(InvalidCall) as caught:
            resume(None)

    assert caught.value.kind == "unavailable"


# ---- lists ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_server_that_tells_a_little_late_is_waited_for(era: Era) -> None:
    """AT-96: ten milliseconds after the result, as Go's SDK does."""
    lab = Lab()

    async def later(_: Lab, request: Any, __: object) -> wire.CallToolResult:  # noqa: ANN401  # the SDK's own
        async def tell() -> None:
            await anyio.sleep(0.01)
            await lab.grow(request, "late")

        group.start_soon(tell)
        return wire.CallToolResult(content=[wire.TextContent(text="soon")])

    lab.tools["later"] = (wire.Tool(name="later", input_schema={"type": "object"}), later)
    remote = connect(InProcess(lab.server, era=era), grace=5.0)
    async with anyio.create_task_group() as group, Registry([remote]) as registry:
        [outcome] = await Executor(registry).run([ToolCall.of("later")])
        assert outcome.text == "soon"
        assert "late" in registry


async def test_two_servers_are_told_apart() -> None:
    """AT-103, REG-1: each has its own name, origin and binding."""
    remotes = [
        connect(serving(tool("a", {"type": "object"})), prefix=name, origin=f"mcp:{name}")
        for name in ("x", "y")
    ]
    async with Registry(remotes) as registry:
        origins = [bound(registry, name).contract.origin for name in ("x__a", "y__a")]
        outcomes = await Executor(registry).run([ToolCall.of(name) for name in registry.names])

    assert origins == ["mcp:x", "mcp:y"]
    assert [outcome.text for outcome in outcomes] == ['["a", {}]'] * 2


async def test_a_remote_that_is_not_open_has_no_tools() -> None:
    """CLO-1: and says what it is."""
    remote = connect("serve --all", origin="mcp:serve")

    assert (remote.tools, remote.quarantined, remote.server_info) == ((), (), None)
    assert repr(remote) == "<Remote 'mcp:serve'>"
    await remote.aclose()


async def test_a_call_of_a_remote_is_a_call_like_any_other() -> None:
    """EXE-13: bind, admit and call, for a loop of one's own."""
    async with Registry([remote := connect(serving(tool("a", {"type": "object"})))]) as registry:
        binding = bound(registry, "a")
        call = ToolCall.of("a", {"x": 1})
        result = await binding.call(binding.contract.admit(call), Context.of(call))

    assert result == Result((Text('["a", {"x": 1}]'),))
    assert repr(remote.tools[0]) == "<RemoteTool 'a'>"
    assert isinstance(remote, Remote)


async def test_a_call_after_closing_did_not_run() -> None:
    """AT-104: a definite failure."""
    async with connect(serving(tool("a", {"type": "object"}))) as remote:
        tools = remote.tools
    [outcome] = await Executor(tools).run([ToolCall.of("a")])

    assert isinstance(outcome, Failed)
    assert outcome.text.endswith("the connection to it was closed")
