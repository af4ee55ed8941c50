"""A schema from elsewhere is taken as it is meant, is refused alone, and is never fetched."""

import builtins
import io
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from ferrule import Context, Definition, Limits, RawTool, Registry, ToolCall, bind
from ferrule.errors import InvalidSchema, InvalidTool
from ferrule.schema import compile
from ferrule.schema._document import Draft
from ferrule.schema._engine import Builder
from ferrule.schema._foreign import foreign
from schema.samples import objects_of

SERVERS = Path(__file__).parents[1] / "corpus" / "mcp-tools"


def tools() -> Iterator[tuple[str, dict[str, object]]]:
    """Find every tool of the eleven servers: its full name and its schema."""
    for path in sorted(SERVERS.glob("*.json")):
        for tool in json.loads(path.read_text(encoding="utf-8"))["tools"]:
            yield f"{path.stem}/{tool['name']}", tool["inputSchema"]


TOOLS = dict(tools())


def never(_arguments: dict[str, object], _context: Context) -> str:
    """Stand in for a tool whose arguments alone are looked at."""
    raise AssertionError


# ---- real servers --------------------------------------------------------------------------------


def test_the_servers_are_there() -> None:
    """Nothing below passes because a file is missing."""
    assert len({name.partition("/")[0] for name in TOOLS}) == 11
    assert len(TOOLS) == 129


@pytest.mark.parametrize("name", TOOLS)
def test_a_real_tool_compiles_and_admits_what_its_schema_describes(name: str) -> None:
    """SCH-1, ADM-2: a sample made from the schema by another library is let in."""
    schema = foreign(TOOLS[name])
    contract = bind(RawTool(Definition("tool", input_schema=schema), never)).contract
    admitted: list[object] = []

    @given(objects_of(schema))
    @settings(
        max_examples=3,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def admit(sample: dict[str, object]) -> None:
        admitted.append(contract.admit(ToolCall.of("tool", sample)).arguments)

    admit()
    assert admitted


# ---- roots ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_schema", "expected"),
    [
        (None, {"type": "object", "properties": {}, "required": []}),
        (True, {"type": "object"}),
        ({}, {"type": "object"}),
        ({"type": "object"}, {"type": "object"}),
        ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
        ({"type": ["object", "null"]}, {"type": "object"}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {}}}, None),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, None),
        (
            {"type": "object", "properties": {}, "required": None},
            {"type": "object", "properties": {}},
        ),
        ({"type": "object", "properties": []}, {"type": "object"}),
        ({"type": "object", "properties": None}, {"type": "object"}),
    ],
)
def test_mc_01_a_root_says_that_it_is_an_object(
    given_schema: object, expected: dict[str, object] | None
) -> None:
    """MC-01, DEF-2: no schema, no type, several types, and absences as other languages write."""
    before = json.dumps(given_schema)
    made = foreign(given_schema)
    assert isinstance(given_schema, dict) or expected is not None
    assert made == (
        expected if expected is not None else {"type": "object"} | dict_of(given_schema)
    )
    assert made["type"] == "object"
    assert compile(made).is_valid({"a": 1})
    assert json.dumps(given_schema) == before


def dict_of(value: object) -> dict[str, object]:
    """Return a value that is known to be an object."""
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("schema", [{"type": "array"}, {"type": ["string", "null"]}, False, 7, []])
def test_mc_01_a_root_that_can_be_no_object_is_refused(schema: object) -> None:
    """MC-01: an impossible form is reported, with what would be possible."""
    with pytest.raises(InvalidSchema, match=r"object"):
        foreign(schema)


@pytest.mark.parametrize(
    "properties", [{"a": {"type": "strng"}}, {"a": {"$ref": "#/nowhere"}}, {"a": {"pattern": "("}}]
)
def test_one_bad_schema_refuses_one_tool(properties: dict[str, object]) -> None:
    """SCH-2: the tool is named, and the registry and its other tools are untouched."""
    good = RawTool(Definition("good"), never)
    schema: dict[str, object] = {"type": "object", "properties": properties}
    registry = Registry([good])
    with pytest.raises(InvalidTool, match="bad"):
        registry.register([RawTool(Definition("bad", input_schema=schema), never)])
    assert [definition.name for definition in registry.definitions()] == ["good"]


# ---- subschemas and references -------------------------------------------------------------------


def test_boolean_subschemas_are_schemas() -> None:
    """MC-02: true accepts anything, false must be absent, at every depth."""
    validator = compile(
        {
            "type": "object",
            "properties": {
                "refresh": True,
                "never": False,
                "rows": {"type": "array", "items": True},
            },
            "additionalProperties": False,
        }
    )
    assert validator.is_valid({"refresh": {"any": [1, None]}, "rows": [1, "a", {}]})
    assert [problem.path for problem in validator.problems({"never": 1})] == ["never"]


def test_mc_04_definitions_and_defs_may_stand_side_by_side() -> None:
    """MC-04: draft-07 `definitions`, type lists and tuple items keep their meaning."""
    validator = compile(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {
                "p": {"$ref": "#/definitions/P"},
                "q": {"type": ["string", "null"]},
                "r": {"$ref": "#/$defs/P"},
                "t": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
            },
            "definitions": {
                "P": {
                    "type": "object",
                    "properties": {"n": {"type": "string"}},
                    "required": ["n"],
                }
            },
            "$defs": {"P": {"type": "boolean"}},
        }
    )
    assert validator.is_valid({"p": {"n": "x"}, "q": None, "r": True, "t": ["a", 1, "more"]})
    paths = [problem.path for problem in validator.problems({"p": {}, "r": 1, "t": ["a", "b"]})]
    assert paths == ["p", "r", "t[1]"]


RECURSIVE: dict[str, object] = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/N"}, "v": {"$ref": "#/$defs/J"}},
    "$defs": {
        "N": {
            "type": "object",
            "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/N"}}},
        },
        "J": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/J"}}]},
        "A": {"$ref": "#/$defs/B"},
        "B": {"$ref": "#/$defs/A"},
    },
}


def test_a_recursive_schema_is_enforced_at_full_depth() -> None:
    """MC-05: the reference that leads back is followed as deep as the value goes."""
    validator = compile(RECURSIVE)
    value: object = {"kids": 1}
    for _ in range(60):
        value = {"kids": [value]}
    (problem,) = validator.problems({"root": value, "v": ["a", ["b"]]})
    assert problem.expected == "expected array, got integer"
    assert validator.problems({"v": ["a", [1]]})


def test_references_that_only_lead_to_each_other_are_reported_when_they_are_used() -> None:
    """MC-05: the loop A → B → A describes nothing; unused it hurts nobody."""
    assert compile(RECURSIVE).is_valid({})
    with pytest.raises(InvalidSchema, match=r"/\$defs/A → /\$defs/B → /\$defs/A"):
        compile(RECURSIVE | {"properties": {"a": {"$ref": "#/$defs/A"}}})


@pytest.mark.parametrize(
    "reference",
    [
        "#/$defs/a~1b",
        "#/$defs/a%7E1b",
        "#name",
        "#/properties/y",
        "item",
        "https://example.org/tools/item",
        "https://example.org/tools/main#name",
    ],
)
def test_a_reference_finds_its_target_by_pointer_anchor_and_address(reference: str) -> None:
    """SCH-1: pointers with escapes, anchors, embedded resources and the document's own address."""
    schema: dict[str, object] = {
        "$id": "https://example.org/tools/main",
        "properties": {"x": {"$ref": reference}, "y": {"type": "integer"}},
        "$defs": {
            "a/b": {"type": "integer"},
            "named": {"$anchor": "name", "type": "integer"},
            "embedded": {"$id": "item", "type": "integer"},
        },
    }
    validator = compile(schema)
    assert validator.is_valid({"x": 1})
    assert [problem.path for problem in validator.problems({"x": "a"})] == ["x"]


def test_draft_04_names_its_parts_with_id() -> None:
    """SCH-1: there `id` is an address, or an anchor when it begins with `#`."""
    validator = compile(
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "id": "https://example.org/main",
            "properties": {"x": {"$ref": "#part"}, "y": {"$ref": "other"}},
            "definitions": {
                "a": {"id": "#part", "type": "integer"},
                "b": {"id": "other", "type": "string"},
            },
        }
    )
    assert [problem.path for problem in validator.problems({"x": "a", "y": 1})] == ["x", "y"]


def test_draft_2019_09_recurs_by_name() -> None:
    """SCH-1: `$recursiveRef` leads back to the root."""
    validator = compile(
        {
            "$schema": "https://json-schema.org/draft/2019-09/schema",
            "$recursiveAnchor": True,
            "properties": {"kid": {"$recursiveRef": "#"}, "n": {"type": "integer"}},
        }
    )
    (problem,) = validator.problems({"kid": {"kid": {"n": "x"}}})
    assert problem.path == "kid.kid.n"


@pytest.mark.parametrize("name", ["Größe", "a b", "参数", "a%b", "[x]"])
def test_a_reference_may_be_written_as_people_write_names(name: str) -> None:
    """SCH-1: addresses are ASCII; a definition's name in a reference need not be."""
    reference = "#/$defs/" + name.replace("%", "%25")
    schema: dict[str, object] = {
        "properties": {"x": {"anyOf": [{"$ref": reference}, {"type": "null"}]}},
        "$defs": {name: {"type": "integer"}},
    }
    validator = compile(schema)
    assert validator.is_valid({"x": 1})
    assert validator.problems({"x": "a"})[0].expected == "expected integer or null, got string"
    assert validator.schema == schema


def test_beside_a_reference_an_old_dialect_reads_no_other() -> None:
    """SCH-1: up to draft-07 what stands beside a `$ref` is no schema, so it refers to nothing."""
    schema: dict[str, object] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": "#/definitions/a",
        "properties": {"x": {"$ref": "#/definitions/none"}},
        "definitions": {"a": {"type": "object"}},
    }
    assert compile(schema).is_valid({"x": 1})


def test_a_value_that_looks_like_a_reference_is_none() -> None:
    """SCH-1: `const`, `enum`, `default` and a property called `$ref` hold values and names."""
    looks = {"$ref": "https://example.org/elsewhere"}
    schema: dict[str, object] = {
        "properties": {"$ref": {"type": "string"}, "a": {"const": looks}, "b": {"enum": [looks]}},
        "default": looks,
    }
    assert compile(schema).is_valid({"$ref": "x", "a": looks, "b": looks})


# ---- nothing is fetched, nothing is opened -------------------------------------------------------


@pytest.fixture
def sealed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse every socket and every file that Python would open."""

    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError("something was opened")

    for owner, name in (
        (builtins, "open"),
        (io, "open"),
        (os, "open"),
        (socket, "socket"),
        (socket, "create_connection"),
        (socket, "getaddrinfo"),
    ):
        monkeypatch.setattr(owner, name, refuse)
    yield
    monkeypatch.undo()


@pytest.fixture
def listener() -> Iterator[tuple[str, list[bool]]]:
    """Give an address that someone listens at, and a list that notes who came."""
    came: list[bool] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def wait() -> None:
            try:
                server.accept()
            except OSError:
                return
            came.append(True)

        thread = threading.Thread(target=wait)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/schema.json", came
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


REFERRING: list[dict[str, object]] = [
    {"$ref": "@"},
    {"properties": {"a": {"$ref": "@#/$defs/x"}}},
    {"$dynamicRef": "@#x"},
    {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "@"},
    {"$schema": "http://json-schema.org/draft-07/schema#", "$id": "@", "$ref": "other.json"},
    {"$schema": "http://json-schema.org/draft-04/schema#", "items": {"$ref": "@"}},
    {"$id": "@", "$ref": "https://json-schema.org/draft/2020-12/schema"},
    {"$schema": "@"},
    {"properties": {"a": {"$id": "@", "$ref": "more.json"}}},
    {"$defs": {"a": {"$id": "https://example.org/a", "$schema": "@", "type": "string"}}},
]


def at(address: str, schema: dict[str, object]) -> dict[str, object]:
    """Write an address into a schema."""
    written: dict[str, object] = json.loads(json.dumps(schema).replace("@", address))
    return written


@pytest.mark.parametrize("schema", REFERRING)
@pytest.mark.usefixtures("sealed")
def test_a_reference_out_of_the_document_opens_nothing_in_python(schema: dict[str, object]) -> None:
    """SCH-1: refused with every socket and `open` taken away."""
    with pytest.raises(InvalidSchema):
        compile(at("file:///etc/hostname", schema))


@pytest.mark.parametrize("schema", REFERRING)
def test_a_reference_out_of_the_document_reaches_no_server(
    schema: dict[str, object], listener: tuple[str, list[bool]]
) -> None:
    """SCH-1: the engine is not written in Python, so here someone listens; nobody comes."""
    address, came = listener
    with pytest.raises(InvalidSchema):
        compile(at(address, schema))
    assert came == []


def test_the_engine_by_itself_reaches_no_server(listener: tuple[str, list[bool]]) -> None:
    """SCH-1: should a reference ever get past the check before it, it is not followed."""
    address, came = listener
    with pytest.raises(ValueError, match="Retrieval is disabled"):
        Builder(Draft.DRAFT_2020_12).build({"$ref": address})
    assert came == []


@pytest.mark.parametrize("schema", REFERRING)
def test_a_reference_out_of_the_document_reads_no_file(
    schema: dict[str, object], tmp_path: Path
) -> None:
    """SCH-1: the file is there and would do; it is refused all the same."""
    for name in ("schema.json", "other.json", "more.json"):
        (tmp_path / name).write_text('{"$defs": {"x": true}}', encoding="utf-8")
    with pytest.raises(InvalidSchema):
        compile(at((tmp_path / "schema.json").as_uri(), schema))


@pytest.mark.usefixtures("sealed")
def test_compiling_and_explaining_open_nothing() -> None:
    """SCH-1: nor does a schema that stays inside itself."""
    validator = compile(RECURSIVE)
    assert validator.problems({"root": 1, "v": [1]})


# ---- budgets -------------------------------------------------------------------------------------


def test_the_limits_of_the_registry_hold_for_schemas() -> None:
    """SCH-2, JSON-3: a breach refuses that tool when it is bound, by name."""
    schema: dict[str, object] = {"type": "object", "description": "x" * 2000}
    tool = RawTool(Definition("wordy", input_schema=schema), never)
    bind(tool)
    with pytest.raises(InvalidTool, match=r"wordy.*1000 bytes"):
        bind(tool, limits=Limits(schema_bytes=1000))
