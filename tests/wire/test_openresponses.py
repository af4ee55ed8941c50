"""Open Responses: tools out, calls in, outputs out; held against the format's own schemas."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import (
    Audio,
    Cancelled,
    Completed,
    Content,
    Definition,
    Executor,
    Failed,
    Failure,
    File,
    Image,
    InputRequest,
    InvalidValue,
    Limits,
    Link,
    Outcome,
    RawJSON,
    RawTool,
    Registry,
    Rejected,
    Result,
    Suspended,
    Text,
    ToolCall,
    Traits,
    Unknown,
    canonical,
    read_json,
)
from ferrule.wire import Loss
from ferrule.wire.openresponses import Wire
from support import echo, raw

CORPUS = Path(__file__).parents[1] / "corpus" / "openresponses" / "tool-items.json"
SCHEMAS = json.loads(CORPUS.read_text(encoding="utf-8"))["schemas"]
ROOMY = Limits(argument_bytes=1 << 30, nodes=1 << 30, depth=512)


def check(value: object, schema: str) -> None:
    """Hold a rendered value against a schema of the format, and its text against I-JSON."""
    jsonschema_rs.validator_for(SCHEMAS[schema]).validate(value)
    text = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    assert read_json(text, limits=ROOMY) == value


def call(item_id: str = "c1", name: str = "echo", arguments: object = "{}") -> dict[str, object]:
    """Return a function call as a model's response has it."""
    return {
        "type": "function_call",
        "id": f"fc_{item_id}",
        "call_id": item_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def response(*items: object) -> dict[str, object]:
    """Return a response with these output items."""
    return {"id": "resp_1", "object": "response", "status": "completed", "output": list(items)}


def output(outcome: Outcome, *, limits: Limits = ROOMY) -> tuple[object, tuple[Loss, ...]]:
    """Render one outcome, hold the item against the schema, return its output and the losses."""
    wire = Wire(Registry([echo()], limits=limits))
    (item,) = wire.outputs([ToolCall(id="c1", name="echo")], [outcome])
    check(item, "FunctionCallOutputItemParam")
    assert (item["type"], item["call_id"]) == ("function_call_output", "c1")
    return item["output"], wire.losses


def completed(*content: Content, structured: object = None) -> Completed:
    """Return a completed call with this content, and structured content if any is given."""
    result = (
        Result(content) if structured is None else Result(content, structured_content=structured)
    )
    return Completed(result)


# ---- tools ---------------------------------------------------------------------------------------


def test_tools_are_what_a_request_takes() -> None:
    """WIRE-1, WIRE-2: each definition as a `FunctionToolParam`, sorted by name."""
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"n": {"type": "integer", "enum": [2**60 + 1]}},
        "required": ["n"],
    }
    plain = RawTool(Definition("b", "Says b.", schema), lambda _a, _c: None)
    strict = RawTool(Definition("a", strict=True), lambda _a, _c: None)
    tools = Wire([plain, strict]).tools
    for tool in tools:
        check(tool, "FunctionToolParam")
    assert [tool["name"] for tool in tools] == ["a", "b"]
    assert [tool["strict"] for tool in tools] == [True, False]
    assert tools[1]["parameters"] == schema
    assert (tools[1]["description"], tools[0]["description"]) == ("Says b.", "")


def test_tools_do_not_depend_on_the_order_of_registration() -> None:
    """WIRE-1: deterministic, so that a provider's cache of the prompt holds."""
    tools = [echo("c.d"), echo("a"), echo("c/d"), echo("b" * 80)]
    assert canonical(Wire(tools).tools) == canonical(Wire(tools[::-1]).tools)


def test_a_name_the_format_does_not_take_comes_back_as_the_tools_own() -> None:
    """WIRE-1, DEF-1: names map one to one and back."""
    wire = Wire([echo("files.read"), echo("files/read")])
    sent = [str(tool["name"]) for tool in wire.tools]
    for tool in wire.tools:
        check(tool, "FunctionToolParam")
    found = wire.calls(response(*(call(f"c{i}", name) for i, name in enumerate(sent))))
    assert [one.name for one in found] == ["files.read", "files/read"]


def test_a_change_to_the_registry_shows() -> None:
    """REG-1: a wire of a registry says what the registry offers now."""
    registry = Registry([echo("a")])
    wire = Wire(registry)
    registry.register([echo("b")])
    assert [tool["name"] for tool in wire.tools] == ["a", "b"]


def test_title_and_output_schema_are_losses_and_hints_are_not() -> None:
    """WIRE-1: what the format cannot say is listed; traits are never for a model."""
    definition = Definition("a", title="A", output_schema={"type": "object"})
    tool = RawTool(definition, lambda _a, _c: None, traits=Traits(read_only=True))
    assert [loss.path for loss in Wire([tool, echo("b")]).losses] == [
        "tools.a.title",
        "tools.a.output_schema",
    ]


# ---- calls ---------------------------------------------------------------------------------------


def test_calls_are_the_function_calls_in_order() -> None:
    """WIRE-1: calls by call_id, arguments as written; every other item is passed over."""
    message = {"type": "message", "role": "assistant", "content": []}
    given_response = response(
        message, call("c2", arguments='{"a": 1.0}'), {"type": "new"}, call("c1")
    )
    assert Wire([echo()]).calls(given_response) == [
        ToolCall(id="c2", name="echo", arguments='{"a": 1.0}'),
        ToolCall(id="c1", name="echo", arguments="{}"),
    ]


class Model:
    """An object as a pydantic model of an SDK is one."""

    def __init__(self, **members: object) -> None:
        self.__dict__.update(members)

    def model_dump(
        self, *, mode: str, by_alias: bool, exclude_none: bool, warnings: bool
    ) -> dict[str, object]:
        """Return the members that have a value."""
        assert (mode, by_alias, exclude_none, warnings) == ("json", True, True, False)
        return {name: value for name, value in vars(self).items() if value is not None}


@pytest.mark.parametrize("kind", [dict, Model, SimpleNamespace])
def test_an_sdks_objects_read_as_dicts_do(kind: Callable[..., object]) -> None:
    """WIRE-1: plain dicts or the SDK's objects in, plain dicts out, no SDK needed."""
    given_response = kind(**response(kind(type="reasoning", summary=[]), kind(**call())))
    wire = Wire([echo()])
    assert wire.calls(given_response) == [ToolCall(id="c1", name="echo", arguments="{}")]
    reply = wire.reply(given_response, [completed(Text("hi"))])
    assert reply == [
        {"type": "reasoning", "summary": []},
        call(),
        {"type": "function_call_output", "call_id": "c1", "output": "hi"},
    ]


def test_members_without_a_value_are_not_sent_back() -> None:
    """WIRE-2: a provider refuses some members that are null, which an SDK's object always has."""
    given_response = SimpleNamespace(output=[Model(**call(), namespace=None)])
    assert Wire([echo()]).reply(given_response, [completed()])[0] == call()


@pytest.mark.parametrize("arguments", ["", None])
def test_left_out_arguments_are_empty(arguments: object) -> None:
    """JSON-5, AR-02: no arguments are the empty text, which admission reads as `{}`."""
    assert Wire([echo()]).calls(response(call(arguments=arguments)))[0].arguments == ""


@pytest.mark.parametrize("status", ["incomplete", "in_progress"])
def test_a_call_that_was_cut_off_before_its_arguments_does_not_run(status: str) -> None:
    """AR-01, JSON-5: cut-off arguments never become "no arguments"."""
    ran: list[object] = []
    tool = raw("wipe", lambda arguments, _: ran.append(arguments))
    cut = call("c1", "wipe", "") | {"status": status}
    (outcome,) = Executor([tool]).run_sync(Wire([tool]).calls(response(cut)))
    assert isinstance(outcome, Rejected)
    assert (outcome.kind, ran) == ("invalid_json", [])


@pytest.mark.parametrize("status", [[], {}, ["incomplete"], 1, None, "completed"])
def test_a_status_that_says_nothing_leaves_the_call_as_it_is(status: object) -> None:
    """WIRE-1: whatever stands there, a response is read or refused as `InvalidValue`."""
    one = call("c1", "echo", "") | {"status": status}

    assert Wire([echo()]).calls(response(one))[0].arguments == ""


def test_a_lone_surrogate_costs_its_own_call_alone() -> None:
    """JSON-1, ADM-5: a call-level problem never ends a batch."""
    bad = call("c1", "echo", '{"a": "\ud800"}')
    worse = call("c2", "ec\udfffho")
    wire = Wire([echo()])
    outcomes = Executor([echo()]).run_sync(wire.calls(response(bad, worse, call("c3"))))
    kinds = [one.kind if isinstance(one, Rejected) else type(one) for one in outcomes]
    assert kinds == ["invalid_json", "unknown_tool", Completed]


NO_RESPONSE = [
    (None, "no `output`"),
    ("output", "no `output`"),
    ([call()], "no `output`"),
    ({}, "no `output`"),
    ({"output": None}, "no `output`"),
    ({"output": "text"}, "no `output`"),
    ({"output": {"type": "function_call"}}, "no `output`"),
    ({"error": {"message": "quota"}}, "no `output`"),
    (response(1), "output[0] has no `type`"),
    (response(call(), {"name": "x"}), "output[1] has no `type`"),
    (response({"type": 5}), "output[0] has no `type`"),
    (response(call() | {"call_id": None}), "output[0].call_id"),
    (response(call() | {"call_id": ""}), "output[0].call_id"),
    (response(call() | {"call_id": "x" * 65}), "output[0].call_id"),
    (response(call() | {"call_id": "\ud800"}), "output[0].call_id"),
    (response(call() | {"call_id": "\uffff"}), "output[0].call_id"),
    (response(call() | {"name": None}), "output[0].name"),
    (response(call(), call() | {"arguments": {"a": 1}}), "output[1].arguments"),
    (response(call() | {"arguments": 1}), "output[0].arguments"),
]


@pytest.mark.parametrize(("given_response", "says"), NO_RESPONSE)
def test_what_is_no_response_is_refused_and_says_where(given_response: object, says: str) -> None:
    """WIRE-1: a sentence that says what and where; nothing is half done."""
    wire = Wire([echo()])
    with pytest.raises(InvalidValue) as caught:
        wire.calls(given_response)
    assert says in str(caught.value)


# ---- outputs -------------------------------------------------------------------------------------

OUTCOMES: list[tuple[Outcome, str]] = [
    (completed(Text("a"), Text("b")), "ab"),
    (completed(), ""),
    (completed(structured={"n": 2**70, "s": "é"}), f'{{"n":{2**70},"s":"é"}}'),
    (completed(structured=RawJSON('{ "a" : 1.0 }')), '{ "a" : 1.0 }'),
    (completed(structured=[]), "[]"),
    (Failed(Failure("locked"), tool="echo"), "Error: locked"),
    (
        Rejected("invalid_arguments", message="invalid arguments: x", tool="echo"),
        "Error: invalid arguments: x",
    ),
    (Cancelled("cancelled", tool="echo"), 'Error: tool "echo" did not run: cancelled'),
    (
        Unknown("raised", tool="echo", reference="r1"),
        'Error: tool "echo" failed; it may have taken effect (reference r1)',
    ),
]


@pytest.mark.parametrize(("outcome", "text"), OUTCOMES)
def test_what_is_text_is_said_as_text(outcome: Outcome, text: str) -> None:
    """FAIL-6, FN-6, WIRE-2: errors begin with `Error: ` once; structured content is JSON text."""
    assert output(outcome) == (text, ())


PNG = b"\x89PNG\r\n\x1a\n"
PARTS: list[tuple[Content, dict[str, object]]] = [
    (
        Image(data=PNG, mime_type="image/png"),
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
    ),
    (Image(url="https://a/b.png"), {"type": "input_image", "image_url": "https://a/b.png"}),
    (
        File(data=b"x,y", name="t.csv", mime_type="text/csv"),
        {"type": "input_file", "filename": "t.csv", "file_data": "eCx5"},
    ),
    (
        File(data=b"%PDF", mime_type="application/pdf"),
        {"type": "input_file", "filename": "file.pdf", "file_data": "JVBERg=="},
    ),
    (
        File(data=b"?", name="odd", mime_type="application/vnd.some-thing+xml"),
        {"type": "input_file", "filename": "odd.bin", "file_data": "Pw=="},
    ),
    (
        File(url="https://a/b.pdf", name="b.pdf"),
        {"type": "input_file", "file_url": "https://a/b.pdf", "filename": "b.pdf"},
    ),
    (
        Audio(data=b"ID3", mime_type="audio/mpeg"),
        {"type": "input_file", "filename": "audio.mp3", "file_data": "SUQz"},
    ),
    (Audio(url="https://a/b.mp3"), {"type": "input_file", "file_url": "https://a/b.mp3"}),
    (
        Link("repo://x", name="x", mime_type="text/plain", description="The file."),
        {"type": "input_text", "text": "x: repo://x (text/plain), The file."},
    ),
    (Link("https://a"), {"type": "input_text", "text": "https://a"}),
]


@pytest.mark.parametrize(("block", "part"), PARTS)
def test_what_is_more_than_text_is_said_in_parts(block: Content, part: dict[str, object]) -> None:
    """WIRE-1, WIRE-2: pictures, files, sound and links as the parts that the format has."""
    parts, _ = output(completed(Text("before"), block, Text("after")))
    assert parts == [
        {"type": "input_text", "text": "before"},
        part,
        {"type": "input_text", "text": "after"},
    ]


def test_a_failure_with_a_picture_says_error_once() -> None:
    """FAIL-6: `Error: ` is added once, at the boundary; what stands beside the text is kept."""
    picture = Image(data=PNG, mime_type="image/png")
    parts, _ = output(Failed(Failure([picture, Text("No such "), Text("page.")])))
    assert parts == [
        {"type": "input_text", "text": "Error: No such page."},
        {"type": "input_image", "image_url": picture.data_url},
    ]


LOSSES: list[tuple[Completed, list[str]]] = [
    (completed(Text("a"), structured=1), ["outputs[0].structured_content"]),
    (completed(Audio(url="https://a")), ["outputs[0].content[0]"]),
    (
        completed(Text("a"), File(data=b"", name="a.bin", mime_type="x/y")),
        ["outputs[0].content[1].mime_type"],
    ),
    (completed(Image(url="https://a")), []),
]


@pytest.mark.parametrize(("outcome", "paths"), LOSSES)
def test_what_an_output_cannot_say_is_listed(outcome: Completed, paths: list[str]) -> None:
    """WIRE-1: what a provider cannot say is listed as a `Loss`, never dropped in silence."""
    _, losses = output(outcome)
    assert [loss.path for loss in losses] == paths


def test_losses_are_those_of_the_outputs_rendered_last() -> None:
    """WIRE-1: a long conversation does not pile them up."""
    wire = Wire([echo()])
    calls = [ToolCall(id="c1", name="echo")]
    wire.outputs(calls, [completed(Audio(url="https://a"))])
    assert [str(loss) for loss in wire.losses] == ["outputs[0].content[0]: sound is sent as a file"]
    wire.outputs(calls, [completed(Text("a"))])
    assert wire.losses == ()


def test_long_text_is_cut_with_a_notice() -> None:
    """EXE-11: what a model reads of a call is bounded, errors too; the cut is listed."""
    limits = Limits(model_bytes=1000)
    for outcome in (completed(Text("é" * 5000)), Failed(Failure("é" * 5000))):
        text, losses = output(outcome, limits=limits)
        assert isinstance(text, str)
        assert len(text.encode()) <= 1000
        assert "bytes are shown]" in text
        assert [loss.path for loss in losses] == ["outputs[0].content"]


def test_long_parts_share_one_bound() -> None:
    """EXE-11: `model_bytes` is for a call, not for each of its texts."""
    content: list[Content] = [
        Text("x" * 600),
        Image(url="https://a"),
        Text("y" * 600),
        Text("z" * 600),
    ]
    parts, losses = output(completed(*content), limits=Limits(model_bytes=1000))
    assert isinstance(parts, list)
    assert (
        sum(str(part.get("text", "")).count(letter) for part in parts for letter in "xyz") <= 1000
    )
    assert [loss.path for loss in losses] == ["outputs[0].content[2]", "outputs[0].content[3]"]


def test_long_json_is_not_cut_into_broken_json() -> None:
    """EXE-11: a model still gets JSON, with the beginning in it."""
    rows = [{"text": 'quote " and \\ backslash'}] * 200
    text, losses = output(completed(structured=rows), limits=Limits(model_bytes=1000))
    assert isinstance(text, str)
    assert len(text.encode()) <= 1000
    assert json.loads(text)["beginning"].startswith('[{"text":"quote')
    assert [loss.path for loss in losses] == ["outputs[0].structured_content"]


def test_the_formats_own_limit_holds_whatever_the_registrys_is() -> None:
    """WIRE-2: a text of the format has at most 10,485,760 characters."""
    text, _ = output(completed(Text("x" * 11_000_000)), limits=Limits(model_bytes=1 << 40))
    assert len(str(text)) <= 10_485_760


def test_a_picture_or_file_that_is_too_large_is_left_out_whole() -> None:
    """WIRE-2, EXE-11: base64 is never cut; the model reads that something is missing."""
    picture = Image(data=bytes(15_730_000), mime_type="image/png")
    file = File(data=bytes(25_170_000), name="a.bin", mime_type="application/octet-stream")
    parts, losses = output(completed(picture, file))
    assert parts == [
        {"type": "input_text", "text": "[a picture is left out: it is too large to be sent]"},
        {"type": "input_text", "text": "[the file a.bin is left out: it is too large to be sent]"},
    ]
    assert [loss.path for loss in losses] == ["outputs[0].content[0]", "outputs[0].content[1]"]


def test_every_call_gets_one_output_in_call_order() -> None:
    """WIRE-1: paired by call id, in call order, a repeated id included."""
    wire = Wire([echo()])
    turn = response(call("c2"), call("c1", "nope"), call("c2"), call("c3", arguments="{"))
    calls = wire.calls(turn)
    items = wire.outputs(calls, Executor([echo()]).run_sync(calls))
    assert [item["call_id"] for item in items] == ["c2", "c1", "c2", "c3"]
    assert [str(item["output"]).startswith("Error: ") for item in items] == [
        False,
        True,
        True,
        True,
    ]


def test_nothing_is_rendered_while_a_call_waits() -> None:
    """WIRE-1, SUS-4: the sentence names the calls that wait; a settled one is rendered later."""
    wire = Wire([echo()])
    calls = wire.calls(response(call("c1"), call("c2")))
    waits = Suspended(InputRequest("Pay?", schema={"type": "boolean"}))
    with pytest.raises(InvalidValue, match="'c2' of 'echo'"):
        wire.outputs(calls, [completed(), waits])
    assert len(wire.outputs(calls, [completed(), completed()])) == 2


def test_outcomes_must_be_those_of_the_calls() -> None:
    """WIRE-1: no call without an output and no output without a call."""
    calls = [ToolCall(id="c1", name="echo")]
    for outcomes in ([], [completed(), completed()]):
        with pytest.raises(InvalidValue, match=r"1 calls and [02] outcomes"):
            Wire([echo()]).outputs(calls, outcomes)


def test_a_reply_does_not_change_the_response() -> None:
    """WIRE-1: what was given stays as it was."""
    given_response = response(call())
    before = json.dumps(given_response)
    reply = Wire([echo()]).reply(given_response, [completed(Text("hi"))])
    reply[0]["name"] = "other"
    assert json.dumps(given_response) == before


unicode = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
anything = st.lists(unicode | st.sampled_from(["\ufdd0", "\uffff"]), max_size=3).map("".join)
media = st.binary(max_size=20)
content = st.one_of(
    st.builds(Text, anything),
    st.builds(Image, data=media, mime_type=anything),
    st.builds(Audio, data=media, mime_type=anything),
    st.builds(File, data=media, mime_type=anything, name=st.none() | anything),
    st.builds(File, url=anything, name=st.none() | anything),
    st.builds(Link, anything, name=st.none() | anything, description=st.none() | anything),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(anything, inner),
    max_leaves=10,
)


@given(st.lists(content, max_size=4), st.none() | values, st.integers(1, 400))
def test_whatever_a_tool_says_is_rendered_as_the_format_takes_it(
    blocks: list[Content], structured: object, room: int
) -> None:
    """WIRE-2: a rendered body is always strict UTF-8 JSON that the provider's types accept."""
    limits = Limits(model_bytes=room)
    rendered, _ = output(completed(*blocks, structured=structured), limits=limits)
    for part in rendered if isinstance(rendered, list) else []:
        if "file_data" in part:
            base64.b64decode(part["file_data"], validate=True)
    if blocks:
        output(Failed(Failure(blocks)), limits=limits)
