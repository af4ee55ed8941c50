"""Leniency: named repairs of a model's arguments; none by default, none that guesses."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, cast

import pytest
from annotated_types import Ge, MinLen
from hypothesis import given
from hypothesis import strategies as st

from ferrule import (
    Contract,
    Definition,
    Executor,
    InvalidCall,
    InvalidTool,
    InvalidValue,
    Invocation,
    Leniency,
    Limits,
    RawTool,
    Registry,
    Rejected,
    Repair,
    Tool,
    ToolCall,
    Traits,
    bind,
    digest,
    tool,
)
from ferrule.schema import compile
from support import raw

NAMES = Leniency.__struct_fields__
EVERYTHING = Leniency(**dict.fromkeys(NAMES, True))


def only(name: str) -> Leniency:
    """Return the leniency that makes one repair."""
    return Leniency(**{name: True})


def all_but(name: str) -> Leniency:
    """Return the leniency that makes all repairs but one."""
    return Leniency(**{one: one != name for one in NAMES})


def contract_of(
    schema: Mapping[str, object], leniency: Leniency, limits: Limits = Limits()
) -> Contract:
    """Return the contract of a tool from elsewhere with this schema."""
    traits = Traits(leniency=leniency)
    foreign = RawTool(
        Definition("foreign", input_schema=dict(schema)), lambda _, __: None, traits=traits
    )
    return bind(foreign, limits=limits).contract


def admitted(contract: Contract, arguments: object) -> Invocation:
    """Return a call that was let in; arguments that are no text are written as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return contract.admit(ToolCall(id="c1", name=contract.name, arguments=text))


def refused(contract: Contract, arguments: object) -> str:
    """Return what a model reads of a call that was not let in."""
    with pytest.raises(InvalidCall) as caught:
        admitted(contract, arguments)
    return str(caught.value)


def properties(**schemas: object) -> dict[str, object]:
    """Return the schema of an object with these properties, all of them optional."""
    return {"type": "object", "properties": schemas, "additionalProperties": False}


INTEGER: dict[str, object] = {"type": "integer"}
NUMBER: dict[str, object] = {"type": "number"}
BOOLEAN: dict[str, object] = {"type": "boolean"}
STRING: dict[str, object] = {"type": "string"}
INTEGERS: dict[str, object] = {"type": "array", "items": INTEGER}


# ---- the value -----------------------------------------------------------------------------------


def test_nothing_is_repaired_by_default() -> None:
    """ADM-2: off by default; the usual ones have one name, and broken JSON is not among them."""
    assert not any(getattr(Leniency(), name) for name in NAMES)
    assert [name for name in NAMES if not getattr(Leniency.COMMON, name)] == ["broken_json"]
    assert Traits().leniency == Leniency()


def test_a_leniency_is_a_frozen_value_that_travels() -> None:
    """DEF-4: what is off is not written; what is unknown or no truth value is refused."""
    traits = Traits(leniency=Leniency.COMMON)

    assert traits.to_json() == {"leniency": dict.fromkeys(NAMES[:-1], True)}
    assert Traits.from_json(traits.to_json()) == traits
    assert Leniency.from_json(EVERYTHING.to_json()) == EVERYTHING
    nonsense: object
    for nonsense in ({"numbers": True}, {"broken_json": "yes"}, [], None):
        with pytest.raises(InvalidValue):
            Leniency.from_json(nonsense)
    with pytest.raises(InvalidValue, match="broken_json of a Leniency is True or False"):
        Leniency(broken_json=cast("bool", 1))
    with pytest.raises(InvalidValue, match=r"leniency is a Leniency, as in Leniency\.COMMON"):
        Traits(leniency=cast("Leniency", True))
    with pytest.raises(AttributeError):
        Leniency.COMMON.broken_json = True  # type: ignore[misc]  # that is the mistake under test


# ---- the cases -----------------------------------------------------------------------------------

TWICE = r'"{\"pattern\": \"*.md\"}"'


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        (TWICE, True),
        (f" {TWICE}\n", True),
        (json.dumps(TWICE), False),  # a second layer
        ('"*.md"', False),
        ('"[1]"', False),
        ('"null"', False),
        ('""', False),
        (r'"{\"pattern\": \"*.md\""', False),  # broken inside
        (r'"{\"pattern\": \"a\", \"pattern\": \"b\"}"', False),
        (r'["{\"pattern\": \"*.md\"}"]', False),
    ],
)
def test_ar_04_one_extra_layer_of_encoding_comes_off(text: str, accepted: bool) -> None:
    """AR-04, justrach/codegraff2#141: exactly one, only from an object, and it is recorded."""
    schema = properties(pattern=STRING)

    for strict in (Leniency(), all_but("double_encoded")):
        assert refused(contract_of(schema, strict), text) == (
            "invalid arguments: expected a JSON object"
        )
    contract = contract_of(schema, only("double_encoded"))
    if accepted:
        invocation = admitted(contract, text)
        assert invocation.arguments == {"pattern": "*.md"}
        assert invocation.repairs == (Repair("double_encoded"),)
        assert invocation.text == text
    else:
        assert refused(contract, text) == "invalid arguments: expected a JSON object"


PYTHON = r"""{'q': 'it\'s', 'deep': True, 'tags': None}"""


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (PYTHON, {"q": "it's", "deep": True, "tags": None}),
        ('{"q": "x", }', {"q": "x"}),
        (r'{"q": "x",\n "n": 1}', {"q": "x", "n": 1}),
    ],
)
def test_ar_07_text_that_says_the_same_in_other_spelling_is_repaired(
    text: str, arguments: dict[str, object]
) -> None:
    """AR-07, waybarrios/vllm-mlx#63: exactly the right value; without the repair, a position."""
    for strict in (Leniency(), all_but("broken_json")):
        assert re.search(r"^invalid json: .* at position \d+$", refused(open_to(strict), text))
    invocation = admitted(open_to(only("broken_json")), text)

    assert invocation.arguments == arguments
    assert [type(value) for value in invocation.arguments.values()] == [
        type(value) for value in arguments.values()
    ]
    assert invocation.repairs == (Repair("broken_json"),)
    assert invocation.text == text


def open_to(leniency: Leniency) -> Contract:
    """Return a contract that takes any arguments."""
    return contract_of({"type": "object"}, leniency)


MADE: list[str] = []


@pytest.mark.parametrize(
    "text",
    [
        "{'a', 'b'}",
        "{'a': {'b', 'c'}}",
        "{'a': b'x'}",
        "{'a': 1+2j}",
        "{'a': 3j}",
        "{'a': (1, 2)}",
        "{'a': set()}",
        "dict(a=1)",
        "{'a': __import__('tests.test_leniency').MADE.append('x')}",
        "{'a': [x for x in (1, 2)]}",
        "{'a': f'{1}'}",
        "{'a': 'b' 'c'}",
        "{'a': 1_000}",
        "{'a': 0x10}",
        "{'a': +5}",
        "{'a': 05}",
        "{'a': .5}",
        "{'a': 1 000}",
        r"{'a': '\x41'}",
        r"{'a': 'x\/y'}",
        r"{'a': 'C:\dir'}",
        "{True: 1}",
        "{1: 2}",
        "{'a': yes}",
        "{'a': undefined}",
        "{'a': TRUE}",
    ],
)
def test_ar_07_what_is_no_json_in_other_spelling_is_refused(text: str) -> None:
    """AR-07: no code is run; sets, bytes, complex numbers and words of no meaning stay refused."""
    said = refused(open_to(EVERYTHING), text)

    assert said.startswith("invalid json: ")
    assert said == refused(open_to(Leniency()), text)
    assert MADE == []


def publish_of(leniency: Leniency) -> Contract:
    """Return the contract of the tool of AR-08."""

    @tool(leniency=leniency)
    def publish(draft: bool = True, count: int = 1, flag: bool | str = False) -> None:
        """Publish."""

    return bind(publish).contract


@pytest.mark.parametrize(
    ("arguments", "strictly", "leniently"),
    [
        ({"draft": "false"}, None, {"draft": False}),
        ({"draft": "no"}, None, None),
        ({"draft": 0}, None, None),
        ({"count": "5"}, None, {"count": 5}),
        ({"count": 5.0}, {"count": 5}, {"count": 5}),
        ({"count": 5.5}, None, None),
        ({"count": True}, None, None),
        ({"flag": "false"}, {"flag": "false"}, {"flag": "false"}),
    ],
)
def test_ar_08_text_is_never_true_for_being_there(
    arguments: dict[str, object], strictly: object, leniently: object
) -> None:
    """AR-08, guardrails-ai/guardrails#1620: what is refused names the parameter."""
    (name,) = arguments
    for leniency, expected in ((Leniency(), strictly), (EVERYTHING, leniently)):
        contract = publish_of(leniency)
        if expected is None:
            assert refused(contract, arguments).startswith(f"invalid arguments: {name}: expected ")
        else:
            invocation = admitted(contract, arguments)
            assert invocation.arguments == expected
            assert bool(invocation.repairs) == (expected != arguments)


# ---- each repair ---------------------------------------------------------------------------------

REPAIRED: list[tuple[str, object, object, object]] = [
    ("json_in_string", INTEGERS, "[1, 2]", [1, 2]),
    ("json_in_string", INTEGERS, " [] ", []),
    ("json_in_string", {"type": "object"}, '{"a": {"b": []}}', {"a": {"b": []}}),
    ("json_in_string", {"type": ["object", "null"]}, "{}", {}),
    ("json_in_string", {"anyOf": [INTEGERS, {"type": "null"}]}, "[3]", [3]),
    ("numbers_in_string", INTEGER, "5", 5),
    ("numbers_in_string", INTEGER, "-7", -7),
    ("numbers_in_string", INTEGER, "5.0", 5.0),
    ("numbers_in_string", INTEGER, "9223372036854775807", 2**63 - 1),
    ("numbers_in_string", NUMBER, "5", 5),
    ("numbers_in_string", NUMBER, "5.5", 5.5),
    ("numbers_in_string", NUMBER, "-1.5e-3", -0.0015),
    ("numbers_in_string", {"type": ["null", "number"]}, "0", 0),
    ("numbers_in_string", {"enum": [1, 2]}, "2", 2),
    ("numbers_in_string", {"type": "integer", "enum": [5.0]}, "5", 5),
    ("numbers_in_string", {"anyOf": [INTEGER, {"const": "auto"}]}, "5", 5),
    ("numbers_in_string", {"anyOf": [False, INTEGER]}, "5", 5),
    ("numbers_in_string", {"enum": [2**70]}, str(2**70), 2**70),
    ("booleans_in_string", BOOLEAN, "true", True),
    ("booleans_in_string", BOOLEAN, "false", False),
    ("booleans_in_string", {"anyOf": [BOOLEAN, INTEGER]}, "false", False),
]


@pytest.mark.parametrize(("name", "schema", "written", "meant"), REPAIRED)
def test_a_text_becomes_the_declared_value(
    name: str, schema: object, written: object, meant: object
) -> None:
    """ADM-2: where the repair is on, and recorded; where all others are on, refused."""
    declared = properties(x=schema)
    invocation = admitted(contract_of(declared, only(name)), {"x": written})

    assert invocation.arguments == {"x": meant}
    assert type(invocation.arguments["x"]) is type(meant)
    assert invocation.repairs == (Repair(name, "x"),)
    assert refused(contract_of(declared, all_but(name)), {"x": written}) == refused(
        contract_of(declared, Leniency()), {"x": written}
    )


NOT_REPAIRED: list[tuple[object, object]] = [
    *((INTEGER, text) for text in ("", " 5", "5 ", "+5", "0x5", "1_0", "05", "5.", ".5", "\u0665")),
    *((INTEGER, text) for text in ("five", "true", "null", "[5]", "{}")),
    *((NUMBER, text) for text in ("NaN", "Infinity", "-inf", "1e400", "1,5", "0b1")),
    *((BOOLEAN, text) for text in ("True", "FALSE", "yes", "no", "0", "1", "", " true", "on")),
    *((BOOLEAN, number) for number in (0, 1, 0.0)),
    *((INTEGER, number) for number in (5.5, True, False)),
    *((INTEGERS, text) for text in ("1, 2", "[1, 2", "[1,]", "['1']", "{}", "null", "[1] 2", "")),
    (INTEGERS, json.dumps("[1]")),
    ({"type": "object"}, "[]"),
    ({"type": "object"}, '{"a": 1, "a": 2}'),
    ({"type": "object"}, '{"a": NaN}'),
    (STRING, 5),
    (STRING, True),
    ({"type": "array"}, {"0": 1}),
    (INTEGER, None),
]


@pytest.mark.parametrize(("schema", "written"), NOT_REPAIRED)
def test_what_is_not_exactly_the_json_of_it_is_refused(schema: object, written: object) -> None:
    """ADM-2, JSON-1: the grammar of JSON and no other; only text and null are ever repaired."""
    declared = properties(x=schema) | {"required": ["x"]}

    said = refused(contract_of(declared, EVERYTHING), {"x": written})
    assert said.startswith("invalid arguments: x: expected ")
    assert said == refused(contract_of(declared, Leniency()), {"x": written})


@pytest.mark.parametrize("written", ["5.5", "1e-1", "9007199254740994.0"])
def test_ar_08_a_number_in_text_is_judged_as_the_number(written: str) -> None:
    """JSON-2, AR-08: an integer is whole and exact, and a model reads why its number is not."""
    contract = contract_of(properties(x=INTEGER), EVERYTHING)

    assert refused(contract, {"x": written}) == refused(contract, f'{{"x": {written}}}')


def test_text_in_text_is_read_once() -> None:
    """ADM-2: one layer; a number in what was read is still repaired."""
    contract = contract_of(properties(x={"type": "array", "items": INTEGERS}), EVERYTHING)
    invocation = admitted(contract, {"x": '[["1"], [2]]'})

    assert invocation.arguments == {"x": [[1], [2]]}
    assert invocation.repairs == (
        Repair("json_in_string", "x"),
        Repair("numbers_in_string", "x[0][0]"),
    )
    assert admitted(contract, {"x": ["[1]", [2]]}).arguments == {"x": [[1], [2]]}
    assert refused(contract, {"x": '["[1]", [2]]'}) == (
        "invalid arguments: x[0]: expected array, got string"
    )


def test_a_null_is_taken_away_where_a_default_stands() -> None:
    """ADM-2: at every depth, only for a declared member that is optional and may not be null."""

    @dataclass
    class Place:
        city: str
        zoom: int = 3

    @tool(leniency=only("null_is_default"))
    def show(place: Place, days: int = 7, note: str | None = "none", more: list[int] = []) -> str:  # noqa: B006  # FN-4
        """Show a place."""
        return f"{place} {days} {note} {more}"

    contract = bind(show).contract
    arguments = {"place": {"city": "Kiel", "zoom": None}, "days": None, "note": None, "more": None}
    invocation = admitted(contract, arguments)

    assert invocation.arguments == {"place": {"city": "Kiel"}, "note": None}
    assert invocation.repairs == tuple(
        Repair("null_is_default", path) for path in ("place.zoom", "days", "more")
    )
    outcome = Executor([show]).run_sync([ToolCall.of("show", arguments)])[0]
    assert outcome.text.endswith("Place(city='Kiel', zoom=3) 7 None []")
    assert refused(contract, {"place": None}) == (
        "invalid arguments: place: expected object, got null"
    )
    assert refused(contract, {"place": {"city": None}}) == (
        "invalid arguments: place.city: expected string, got null"
    )
    assert "days: expected integer, got null" in refused(
        contract_of(contract.definition.input_schema, all_but("null_is_default")), arguments
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": INTEGER},
        {"type": "object", "patternProperties": {"^x$": INTEGER}},
        properties(y=INTEGER),
        properties(x=False),
        properties(x={"type": "array", "items": INTEGER}) | {"required": ["x"]},
    ],
)
def test_a_null_of_no_optional_parameter_stays(schema: dict[str, object]) -> None:
    """ADM-2: a name of a map is no parameter, and what must not be there is not left out."""
    refused(contract_of(schema, EVERYTHING), {"x": None})
    refused(contract_of(schema, EVERYTHING), {"x": [None]})


# ---- never where the declared type accepts the value ---------------------------------------------

TEXTS = ("5", "false", "[1]", "{}", '{"n": "5"}')
ALSO_TEXT: list[object] = [
    {},
    True,
    STRING,
    {"type": ["integer", "boolean", "array", "object", "string"]},
    {"anyOf": [INTEGER, BOOLEAN, {"type": "object"}, INTEGERS, STRING]},
    {"oneOf": [{"type": ["integer", "boolean", "object", "array"]}, {"$ref": "#/$defs/text"}]},
    {"anyOf": [INTEGER, {"allOf": [{}, {"$ref": "#/$defs/text"}]}]},
    {"anyOf": [INTEGER, True]},
    {"not": INTEGER},
    {"$ref": "#/$defs/text"},
    {"enum": [5, False, *TEXTS]},
]


@pytest.mark.parametrize("schema", ALSO_TEXT)
@pytest.mark.parametrize("text", TEXTS)
def test_ar_08_a_text_that_may_be_text_stays_text(schema: object, text: str) -> None:
    """ADM-2, AR-08: whatever else may stand there, and though something else is repaired."""
    declared = properties(x=schema, y=INTEGER) | {"$defs": {"text": STRING}}
    contract = contract_of(declared, EVERYTHING)

    assert admitted(contract, {"x": text}).repairs == ()
    invocation = admitted(contract, {"x": text, "y": "7"})
    assert invocation.arguments == {"x": text, "y": 7}
    assert invocation.repairs == (Repair("numbers_in_string", "y"),)


def test_types_of_python_keep_what_they_accept() -> None:
    """ADM-2: unions of a signature; text of a shape is for text, and stays to be refused."""

    @tool(leniency=EVERYTHING)
    def mixed(
        a: int | str = 0,
        b: dict[str, int] | str = "",
        c: Literal["5", 6] = 6,
        d: int | Annotated[str, MinLen(3)] = 0,
    ) -> None:
        """Take unions."""

    contract = bind(mixed).contract
    assert admitted(contract, {"a": "5", "b": '{"x": 1}', "c": "5"}).repairs == ()
    assert admitted(contract, {"c": "6"}).arguments == {"c": 6}
    refused(contract, {"d": "5"})


@dataclass
class Circle:
    """One alternative."""

    kind: Literal["circle"]
    size: int


@dataclass
class Label:
    """Another, whose size is a text."""

    kind: Literal["label"]
    size: str
    bold: bool = False


def test_in_a_union_the_alternative_that_is_left_decides() -> None:
    """ADM-2: by what the others refuse: a fixed value, a missing or an unknown name, a type."""

    @tool(leniency=EVERYTHING)
    def draw(shape: Circle | Label, shapes: list[Circle | Label] | int = 0) -> None:
        """Draw."""

    contract = bind(draw).contract
    circle = {"kind": "circle", "size": "5"}
    label = {"kind": "label", "size": "5", "bold": "true"}

    assert admitted(contract, {"shape": circle}).arguments == {"shape": circle | {"size": 5}}
    assert admitted(contract, {"shape": label}).arguments == {"shape": label | {"bold": True}}
    both = admitted(contract, {"shape": label, "shapes": json.dumps([circle, label])})
    assert both.arguments["shapes"] == [circle | {"size": 5}, label | {"bold": True}]
    assert refused(contract, {"shape": {"kind": "square", "size": "5"}}).endswith(
        'shape.kind: expected one of "circle", "label"'
    )


def test_where_two_alternatives_are_left_nothing_is_repaired() -> None:
    """ADM-2: nobody knows which was meant, so neither is made of it."""
    one = {"type": "object", "properties": {"n": INTEGER, "m": INTEGER}}
    two = {"type": "object", "properties": {"n": STRING, "m": BOOLEAN}, "required": ["n"]}
    contract = contract_of(properties(x={"anyOf": [one, two]}), EVERYTHING)

    refused(contract, {"x": {"n": "5", "m": "6"}})
    assert admitted(contract, {"x": {"m": "6"}}).arguments == {"x": {"m": 6}}


def test_an_alternative_goes_only_if_it_surely_refuses() -> None:
    """ADM-2: a closed one takes no other names, but for those that its patterns take."""
    closed = properties(n=INTEGER)
    other = properties(n=STRING, m=BOOLEAN)
    contract = contract_of(properties(x={"anyOf": [closed, other]}), EVERYTHING)
    assert admitted(contract, {"x": {"n": "5", "m": "true"}}).arguments == {
        "x": {"n": "5", "m": True}
    }

    anything = {"anyOf": [closed, {"$ref": "#/$defs/any", "required": ["z"]}]}
    contract = contract_of(properties(x=anything) | {"$defs": {"any": True}}, EVERYTHING)
    assert refused(contract, {"x": {"n": "5"}})

    patterned = closed | {"patternProperties": {"^p": INTEGER}}
    needing = {"type": "object", "required": ["z"]}
    contract = contract_of(properties(x={"anyOf": [patterned, needing]}), EVERYTHING)
    assert admitted(contract, {"x": {"p1": "5"}}).arguments == {"x": {"p1": 5}}


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (properties(x={"$ref": "#/$defs/n"}), "x"),
        (properties(x={"$ref": "#/$defs/n", "description": "a number"}), "x"),
        (properties(x={"$ref": "#/$defs/list"}), "x[0]"),
        (properties(x={"type": "array", "prefixItems": [INTEGER], "items": STRING}), "x[0]"),
        ({"type": "object", "additionalProperties": INTEGER}, "x"),
        ({"type": "object", "patternProperties": {"^x": INTEGER, "^y": STRING}}, "x"),
        ({"type": "object", "allOf": [{"properties": {"x": INTEGER}}, properties(x={})]}, "x"),
        (properties(x={"allOf": [{"minimum": 0}, INTEGER]}), "x"),
        (properties(x={"type": "object", "properties": {"y": {"$ref": "#/$defs/tree"}}}), "x.y.v"),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "object",
                "properties": {"x": {"type": "array", "items": [INTEGER, {"type": "string"}]}},
            },
            "x[0]",
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "object",
                "properties": {"x": {"$ref": "#/definitions/n", "anyOf": [STRING]}},
                "definitions": {"n": INTEGER},
            },
            "x",
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-04/schema#",
                "type": "object",
                "properties": {"x": {"$ref": "#/definitions/n", "type": "string"}},
                "definitions": {"n": INTEGER},
            },
            "x",
        ),
    ],
)
def test_the_schema_of_a_place_is_found_wherever_it_stands(
    schema: dict[str, object], path: str
) -> None:
    """ADM-2: references, lists, maps, parts, older dialects: foreign schemas as generated ones."""
    definitions = {"n": INTEGER, "list": INTEGERS, "tree": properties(v=INTEGER)}
    declared = schema if "$schema" in schema else schema | {"$defs": definitions}
    shapes: dict[str, tuple[object, object]] = {
        "x": ("5", 5),
        "x[0]": (["5"], [5]),
        "x.y.v": ({"y": {"v": "5"}}, {"y": {"v": 5}}),
    }
    written, meant = shapes[path]
    invocation = admitted(contract_of(declared, EVERYTHING), {"x": written})

    assert invocation.arguments == {"x": meant}
    assert invocation.repairs == (Repair("numbers_in_string", path),)


def test_repairs_are_told_in_the_order_of_the_arguments() -> None:
    """ADM-2: each recorded, wherever it was made."""
    item = properties(a=INTEGER, b=BOOLEAN)
    contract = contract_of(properties(x={"type": "array", "items": item}, y=NUMBER), EVERYTHING)
    invocation = admitted(contract, {"x": [{"b": "true", "a": "1"}, {"a": None}], "y": "2"})

    assert [(repair.name, repair.path) for repair in invocation.repairs] == [
        ("booleans_in_string", "x[0].b"),
        ("numbers_in_string", "x[0].a"),
        ("null_is_default", "x[1].a"),
        ("numbers_in_string", "y"),
    ]


# ---- what is repaired is what runs ---------------------------------------------------------------


def test_the_digest_is_that_of_the_repaired_arguments() -> None:
    """ADM-2, ADM-4, AUT-4: what is approved is what runs; the text stays as the model wrote it."""
    contract = publish_of(EVERYTHING)
    text = r"""{'count': '5', "draft": "false", }"""
    invocation = admitted(contract, text)

    assert invocation.arguments == {"count": 5, "draft": False}
    assert invocation.arguments is not invocation.arguments
    assert invocation.digest == digest({"count": 5, "draft": False})
    assert invocation.digest == admitted(contract, {"draft": False, "count": 5}).digest
    assert invocation.text == invocation.call.arguments == text
    assert [repair.name for repair in invocation.repairs] == [
        "broken_json",
        "numbers_in_string",
        "booleans_in_string",
    ]


def test_the_function_and_its_traits_get_the_repaired_arguments() -> None:
    """ADM-2, EXE-3: the typed function, and `uses`, as if the model had written it so."""
    seen: list[object] = []

    @tool(leniency=Leniency.COMMON, uses=seen.append)
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    outcome = Executor([add]).run_sync([ToolCall.of("add", {"a": "2", "b": "3"})])[0]

    assert outcome.text == "5"
    assert seen == [{"a": 2, "b": 3}]


def test_what_is_still_wrong_is_told_of_the_repaired_arguments() -> None:
    """ADM-2: a model is told what it has to mend, not what is mended for it."""
    schema = properties(x={"type": "integer", "maximum": 7}, y=INTEGER)
    contract = contract_of(schema, EVERYTHING)

    assert refused(contract, {"x": "9", "y": "5", "z": 1}) == (
        'invalid arguments: x: expected at most 7; unexpected property "z"; accepted: x, y'
    )
    wide = refused(contract, {"y": str(2**64)})
    assert wide == "invalid arguments: y: expected an integer within 64 bits"


def test_the_repaired_arguments_are_within_the_limits() -> None:
    """JSON-3: a text in a text goes no deeper and holds no more than the whole may."""
    schema: dict[str, object] = properties(x={"type": "array"})
    limits = Limits(depth=4, nodes=20)
    contract = contract_of(schema, EVERYTHING, limits)

    assert admitted(contract, {"x": "[[[]]]"}).arguments == {"x": [[[]]]}
    assert refused(contract, {"x": "[[[[]]]]"}) == (
        "invalid arguments: x: expected array, got string"
    )
    nested = contract_of(properties(x={"$ref": "#"}), EVERYTHING, Limits(depth=3))
    assert admitted(nested, {"x": {"x": "{}"}}).arguments == {"x": {"x": {}}}
    assert refused(nested, {"x": {"x": {"x": "{}"}}}) == (
        "invalid arguments: x.x.x: expected object, got string"
    )
    assert len(cast("list[int]", admitted(contract, {"x": f"[{'0,' * 17}0]"}).arguments["x"])) == 18
    assert refused(contract, {"x": f"[{'0,' * 18}0]"}).startswith("too large: ")
    assert refused(contract, json.dumps({"x": "[" * 50})).startswith("invalid arguments: x: ")


def test_the_strict_form_is_restored_after_repairs() -> None:
    """SCH-4, ADM-2: text is repaired by the strict schema, then nulls stand for "left out"."""

    @tool(form="strict", leniency=EVERYTHING)
    def seek(text: str, limit: int = 10, tags: list[str] | None = None) -> str:
        """Seek."""
        return f"{limit} {tags}"

    arguments = {"text": "a", "limit": None, "tags": '["5"]'}
    invocation = admitted(bind(seek).contract, arguments)

    assert invocation.arguments == {"text": "a", "tags": ["5"]}
    assert invocation.repairs == (Repair("json_in_string", "tags"), Repair("strict_null", "limit"))
    assert invocation.digest == digest({"text": "a", "tags": ["5"]})
    assert admitted(bind(seek).contract, arguments | {"limit": "3"}).arguments["limit"] == 3
    assert Executor([seek]).run_sync([ToolCall.of("seek", arguments)])[0].text == "10 ['5']"


def test_a_typed_decoder_judges_the_repaired_arguments() -> None:
    """ADM-2, SCH-3: leniency comes before the schema, and the tool's own validator after it."""

    @tool(leniency=EVERYTHING, validate=lambda arguments: "no" if arguments["n"] == 13 else None)
    def pick(n: Annotated[int, Ge(1)]) -> None:
        """Pick a number."""

    contract = bind(pick).contract
    assert admitted(contract, {"n": "12"}).arguments == {"n": 12}
    assert refused(contract, {"n": "13"}) == "invalid arguments: no"
    assert refused(contract, {"n": "0"}) == "invalid arguments: n: expected at least 1"


# ---- broken JSON ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{\'a\': \'say "hi"\', "b": "it\'s"}', {"a": 'say "hi"', "b": "it's"}),
        ('{a: 1, _b2: "c"}', {"a": 1, "_b2": "c"}),
        ('{"a": 1 "b": 2}', {"a": 1, "b": 2}),
        ('{"a": [1, 2, ], "b": {"c": null, }, }', {"a": [1, 2], "b": {"c": None}}),
        (r'{"a": "x\/y", }', {"a": "x/y"}),
        ('{"a": "x\ny\tz"}', {"a": "x\ny\tz"}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        (r'{\n  "a": "x\ny"\n}', {"a": "x\ny"}),
        (
            r"{'a': 'tab\t, quote\", apostrophe\', é, \u00e9, \ud83d\ude00'}",
            {"a": ("tab\t, quote\", apostrophe', é, é, 😀")},
        ),
        (
            "{'a': -1.50, 'b': 1e3, 'c': 123456789012345678}",
            {"a": -1.5, "b": 1000.0, "c": 123456789012345678},
        ),
        ("{'a': 'f(x): {1, 2}, [3]', 'b': 'None'}", {"a": "f(x): {1, 2}, [3]", "b": "None"}),
    ],
)
def test_what_is_said_stays_and_how_it_is_written_changes(
    text: str, arguments: dict[str, object]
) -> None:
    """ADM-2, JSON-1: quotes, escapes, Python's literals, commas, white space, a fence."""
    assert admitted(open_to(only("broken_json")), text).arguments == arguments


@pytest.mark.parametrize(
    "text",
    [
        '{"path": "/srv/a", "for\'',
        '{"path": "/srv/a", "for"',
        '{"path": "/srv/a", "force": tr',
        '{"path": "/srv/a", ',
        '{"path": "/srv/a"',
        '{"path": "/srv/',
        '{"path": ["a", "b"',
        "{'path': '/srv/a'",
        "{",
        '{"path": }',
        '{"path": , "n": 1}',
        '{"path": "/srv/a", : 1}',
        '{"path"}',
        '{"path": "/srv/a"}}',
        '{"path": "/srv/a"} {"path": "/"}',
        'Here you are: {"path": "/srv/a"}',
        '{"path": "/srv/a"} // done',
        '{"path": ["a", , "b"]}',
        '{"path": [, "a"]}',
        '{"path": [,]}',
        '{, "path": "a"}',
        '{"path": ["a" "b"]}',
        '{"path": "say "hi" now"}',
        '{"path": "say ""hi": 1}',
        '{"path": "say "hi: 1}',
        '{"path": "/a", "path": "/b"}',
        "{'path': '/a', 'path': '/b'}",
        "{'path': NaN}",
        "{'path': 1e400}",
        "{'path': " + "9" * 400 + "}",
        "{'path': " + "9" * 5_000 + "}",
        r"{'path': '\ud800'}",
        "\ufeff{'path': 'a'}",
        "{'path': 'a'; 'b': 1}",
        "['path']",
        "'path'",
    ],
)
def test_ar_07_nothing_is_invented_and_nothing_is_lost(text: str) -> None:
    """AR-01, AR-07, JSON-1: what breaks off or could be read in two ways is refused as before."""
    ran: list[object] = []

    def wipe(arguments: dict[str, object], _: object) -> None:
        ran.append(arguments)

    declared = RawTool(Definition("wipe"), wipe, traits=Traits(leniency=EVERYTHING))
    outcome = Executor([declared]).run_sync([ToolCall(id="1", name="wipe", arguments=text)])[0]

    assert isinstance(outcome, Rejected)
    assert outcome.text.removeprefix("Error: ") == refused(open_to(Leniency()), text)
    assert ran == []


def test_what_is_too_large_is_not_repaired() -> None:
    """JSON-3: a breach of a limit is no broken JSON; a broken text has a limit of its own."""
    limits = Limits(argument_bytes=100, depth=3)
    contract = contract_of({"type": "object"}, EVERYTHING, limits)

    assert refused(contract, f"{{'a': '{'x' * 100}'}}").startswith("too large: ")
    assert refused(contract, "{'a': [[[1]]]}").startswith("too large: ")
    assert refused(contract, f"{{'a': {' ' * 100} 1}}").startswith("too large: ")
    assert refused(open_to(EVERYTHING), f"{{'a': '{'x' * (1 << 15)}'}}").startswith("invalid json")
    assert admitted(open_to(EVERYTHING), f"{{'a': '{'x' * 30_000}'}}").repairs
    deep = contract_of({"type": "object"}, EVERYTHING, Limits(depth=512))
    assert refused(deep, f'{{"a": 1 "b": {"[" * 500}{"]" * 500}}}').startswith("invalid json: ")


def test_without_the_package_a_tool_that_needs_it_is_refused_when_bound() -> None:
    """ADM-1, ARCHITECTURE rule 5: the sentence says what to install; other repairs need nothing."""
    code = """
import sys
sys.modules["json_repair"] = None
from ferrule import InvalidTool, Leniency, ToolCall, bind, tool

@tool(leniency=Leniency.COMMON)
def common(n: int) -> None: "Take a number."

@tool(leniency=Leniency(broken_json=True))
def broken(n: int) -> None: "Take a number."

call = ToolCall.of("common", {"n": "5"})
print(bind(common).contract.admit(call).arguments)
try:
    bind(broken)
except InvalidTool as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )

    assert done.stderr == ""
    first, second = done.stdout.splitlines()
    assert first == "{'n': 5}"
    assert second == (
        "tool `broken` has broken JSON repaired by json-repair, which is not here; "
        "pip install 'ferrule[repair]', or leave out `broken_json` from its leniency"
    )


def test_the_package_is_asked_for_at_the_bind_that_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ARCHITECTURE rule 8: the late import stands there, and a registry names the tool by place."""
    monkeypatch.setitem(sys.modules, "json_repair", None)
    monkeypatch.delitem(sys.modules, "ferrule._mend", raising=False)
    tools = [raw("a", lambda _, __: None), raw("b", lambda _, __: None, leniency=EVERYTHING)]

    with pytest.raises(
        InvalidTool, match=r"^tools\[1\]: tool `b` .*pip install 'ferrule\[repair\]'"
    ):
        Registry(tools)
    assert len(Registry(tools[:1])) == 1


# ---- for any arguments ---------------------------------------------------------------------------


@tool(leniency=EVERYTHING)
def generated(
    i: int,
    f: float = 1.0,
    b: bool = False,
    either: bool | str = "",
    numbers: list[int] | None = None,
    table: dict[str, float] | int = 0,
    shape: Circle | Label | None = None,
) -> None:
    """Take all kinds of things."""


def foreign(form: Literal["open", "recursive"]) -> Tool:
    """Return a tool with a schema that nobody generated."""
    tree: dict[str, object] = {
        "type": "object",
        "properties": {"i": INTEGER, "b": {"$ref": "#"}, "f": {"oneOf": [INTEGER, BOOLEAN]}},
    }
    open_one: dict[str, object] = {
        "type": "object",
        "properties": {"i": {"allOf": [{"minimum": 0}, INTEGER]}, "numbers": INTEGERS},
        "patternProperties": {"^[bf]$": {"type": ["boolean", "number"]}},
        "additionalProperties": {"anyOf": [INTEGER, {"enum": ["5", "true"]}, INTEGERS]},
        "required": ["i"],
    }
    schema = tree if form == "recursive" else open_one
    return RawTool(
        Definition(form, input_schema=schema),
        lambda _, __: None,
        traits=Traits(leniency=EVERYTHING),
    )


TOOLS: list[Tool] = [generated, foreign("open"), foreign("recursive")]
CONTRACTS = [bind(declared).contract for declared in TOOLS]
VALIDATORS = {one.name: compile(one.definition.input_schema) for one in CONTRACTS}
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**54), 2**54),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "5", "5.0", "-1e2", "true", "false", "null", "[1]", '["2"]', "{}", "a"]),
    st.sampled_from(["circle", "label", '{"kind": "circle", "size": "1"}', '{"i": "1", "b": {}}']),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["i", "b", "f", "kind", "size", "bold"]), inner, max_size=4
        ),
    ),
    max_leaves=5,
)
NAMED = ["i", "f", "b", "either", "numbers", "table", "shape", "x"]
ARGUMENTS = st.dictionaries(st.sampled_from(NAMED), VALUES, max_size=5)


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.name)
@given(arguments=ARGUMENTS)
def test_what_comes_out_is_valid_and_what_was_valid_is_untouched(
    contract: Contract, arguments: dict[str, object]
) -> None:
    """ADM-2, SCH-3: for any arguments, and the same each time they are read."""
    valid = VALIDATORS[contract.name].is_valid(arguments)
    try:
        invocation = admitted(contract, arguments)
    except InvalidCall:
        assert not valid
        return

    assert VALIDATORS[contract.name].is_valid(invocation.arguments)
    assert valid == (not invocation.repairs)
    assert json.loads(invocation.text) == arguments
    if valid:
        assert invocation.arguments == arguments
    again = admitted(contract, arguments)
    assert repr(invocation.arguments) == repr(invocation.arguments) == repr(again.arguments)
    assert invocation.digest == again.digest == digest(invocation.arguments)
    assert invocation.repairs == again.repairs
    # What was repaired is let in as it is: a second time there is nothing to do.
    assert admitted(contract, invocation.arguments).repairs == ()


PLAIN = st.text("ab 1{}[]:é", max_size=4)
PLAIN_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-99, 99), PLAIN),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)
PLAIN_ARGUMENTS = st.dictionaries(st.sampled_from("abc"), PLAIN_VALUES, max_size=3)
PIECES = ["'", '"', ",", ":", "{", "}", "[", "]", " ", "\\n", "\\", "1", "a", "True", "None", "//"]


@given(arguments=PLAIN_ARGUMENTS)
def test_ar_07_what_python_prints_is_what_python_meant(arguments: dict[str, object]) -> None:
    """AR-07: `repr` of plain values, and nothing else, comes back as these values."""
    assert admitted(open_to(EVERYTHING), repr(arguments)).arguments == arguments


@given(arguments=PLAIN_ARGUMENTS, write=st.sampled_from([repr, json.dumps]), data=st.data())
def test_a_text_that_breaks_off_never_runs(
    arguments: dict[str, object], write: object, data: st.DataObject
) -> None:
    """AR-01: whatever is missing at its end."""
    text = repr(arguments) if write is repr else json.dumps(arguments)
    end = data.draw(st.integers(1, len(text) - 1))

    refused(open_to(EVERYTHING), text[:end])


def essence(text: str) -> str:
    """Return what a text says, roughly: without what may be written in another way."""
    text = text.replace("\\n", "").replace("None", "null").replace("True", "true")
    return re.sub(r"[\s,'\"\\]", "", text.replace("False", "false"))


@given(arguments=PLAIN_ARGUMENTS, write=st.sampled_from([repr, json.dumps]), data=st.data())
def test_ar_07_what_is_repaired_says_the_same(
    arguments: dict[str, object], write: object, data: st.DataObject
) -> None:
    """AR-07, JSON-1: of a text with pieces put in or cut out, all that it says, in order."""
    text = repr(arguments) if write is repr else json.dumps(arguments, ensure_ascii=False)
    for _ in range(data.draw(st.integers(1, 2))):
        start = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 3))
        text = text[:start] + data.draw(st.sampled_from(["", *PIECES])) + text[start + cut :]
    try:
        invocation = admitted(open_to(only("broken_json")), text)
    except InvalidCall:
        return
    if invocation.repairs:
        again = json.dumps(invocation.arguments, ensure_ascii=False)
        assert essence(again) == essence(text)


# ---- hostile schemas and arguments ---------------------------------------------------------------


def test_hostile_arguments_end() -> None:
    """SCH-2: nested unions, many alternatives and deep texts cost steps, and steps are counted."""
    nested: dict[str, object] = INTEGER
    for _ in range(50):
        nested = {"anyOf": [{"type": "null"}, nested]}
    contract = contract_of({"type": "object", "additionalProperties": nested}, EVERYTHING)
    many = {f"k{index}": "5" for index in range(5_000)}
    assert set(admitted(contract, many).arguments.values()) == {5}

    tree = properties(x={"$ref": "#"}, v=INTEGER)
    deep: dict[str, object] = {"v": "5"}
    for _ in range(120):
        deep = {"v": "5", "x": deep}
    assert len(admitted(contract_of(tree, EVERYTHING), deep).repairs) == 121

    branches = [
        {"type": "object", "properties": {"k": {"const": index}, "n": INTEGER}, "required": ["k"]}
        for index in range(500)
    ]
    wide = contract_of(properties(x={"type": "array", "items": {"anyOf": branches}}), EVERYTHING)
    tagged = [{"k": index % 500, "n": "5"} for index in range(5_000)]
    assert len(admitted(wide, {"x": tagged[:100]}).repairs) == 100
    assert refused(wide, {"x": tagged}).startswith("invalid arguments: ")

    patterns: dict[str, object] = {f"^x{index}": INTEGER for index in range(100)}
    patterned = contract_of({"type": "object", "patternProperties": patterns}, EVERYTHING)
    names = {f"x{index}": "5" for index in range(5_000)}
    assert len(admitted(patterned, dict(list(names.items())[:1_000])).repairs) == 1_000
    assert refused(patterned, names).startswith("invalid arguments: ")

    parts = [{"items": INTEGER}] * 10
    listed = contract_of(properties(x={"type": "array", "allOf": parts}), EVERYTHING)
    assert len(admitted(listed, {"x": ["5"] * 10_000}).repairs) == 10_000
    assert refused(listed, {"x": ["5"] * 30_000}).startswith("invalid arguments: ")
