"""A compiled schema says yes quickly, is exact at the edges, and says no in words to act on."""

import copy
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule import Limits
from ferrule._near import near, path_of, shown
from ferrule.errors import InvalidSchema, Problem, ValidatorCrash
from ferrule.schema import compile
from support import steps_of

LOOK_AROUND = "^(a|aa)+(?=x)$"
"""A pattern that only the engine that backtracks takes, and that backtracks for ever."""

FORM: dict[str, object] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "level": {"type": "string", "enum": ["low", "high"]},
        "count": {"type": "integer", "enum": [1, 2]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "nested": {
            "type": "object",
            "properties": {"deep": {"type": "boolean"}},
            "required": ["deep"],
        },
        "ratio": {"type": "number"},
        "limit": {"type": ["integer", "null"]},
        "mode": {"type": ["string", "null"], "enum": ["a", None]},
        "strict_mode": {"type": ["string", "null"], "enum": ["a"]},
        "anything": {},
    },
    "required": ["path"],
}


def words(schema: object, value: object) -> list[str]:
    """Return the problems of a value, each as a sentence."""
    assert isinstance(schema, (dict, bool))
    return [str(problem) for problem in compile(schema).problems(value)]


def problem(schema: dict[str, object], value: object) -> Problem:
    """Return the one problem of a value."""
    (only,) = compile(schema).problems(value)
    return only


# ---- the checklist of validation -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "arguments", "expected"),
    [
        (26, {"path": "/x"}, []),
        (26, {"path": "/x", "level": "low", "count": 1, "tags": ["a"], "ratio": 1}, []),
        (27, {}, ['missing required property "path"']),
        (28, {"level": "low"}, ['missing required property "path"']),
        (29, {"path": 1}, ["path: expected string, got integer"]),
        (30, {"path": "/x", "level": "mid"}, ['level: expected one of "low", "high"']),
        (31, {"path": "/x", "count": 3}, ["count: expected one of 1, 2"]),
        (31, {"path": "/x", "count": 2.0}, []),
        (31, {"path": "/x", "count": 1.5}, ["count: expected one of 1, 2"]),
        (32, {"path": "/x", "tags": ["a", 2]}, ["tags[1]: expected string, got integer"]),
        (
            33,
            {"path": "/x", "nested": {"deep": "y"}},
            ["nested.deep: expected boolean, got string"],
        ),
        (33, {"path": "/x", "nested": {}}, ['nested: missing required property "deep"']),
        (34, {"path": "/x", "ratio": "high"}, ["ratio: expected number, got string"]),
        (35, {"path": "/x", "bogus": 1}, []),
        (36, {"path": None}, ["path: expected string, got null"]),
        (37, [1], ["expected object, got array"]),
        (39, {"path": "/x", "mode": None}, []),
        (39, {"path": "/x", "strict_mode": None}, ['strict_mode: expected one of "a"']),
        (40, {"path": "/x", "anything": [{"deep": None}]}, []),
    ],
)
def test_validation_follows_the_checklist(
    line: int, arguments: object, expected: list[str]
) -> None:
    """agenttool.md 26-40, with the type of a refused value in the place of the value (JSON-6)."""
    assert words(FORM, arguments) == expected, f"line {line}"


def test_a_closed_object_refuses_what_it_does_not_list() -> None:
    """agenttool.md 35: an unknown name is ignored by an open schema and refused by a closed one."""
    closed = FORM | {"additionalProperties": False}
    (said,) = words(closed, {"path": "/x", "bogus": 1})
    assert said.startswith('unexpected property "bogus"; accepted: path, level, count')


def test_strict_form_asks_for_every_property_and_takes_null() -> None:
    """agenttool.md 38: what strict form requires is missing; what it makes nullable is accepted."""
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "count": {"type": ["integer", "null"]}},
        "required": ["path", "count"],
        "additionalProperties": False,
    }
    assert words(schema, {"path": "/x"}) == ['missing required property "count"']
    assert words(schema, {"path": "/x", "count": None}) == []


def test_null_is_its_own_type() -> None:
    """agenttool.md 40: type "null" accepts null alone."""
    assert words({"type": "null"}, None) == []
    assert words({"type": "null"}, "x") == ["expected null, got string"]


def test_a_misspelt_type_does_not_compile() -> None:
    """agenttool.md 40 as SCH-1 overrules it: the meta-schema refuses, and the near name is told."""
    with pytest.raises(
        InvalidSchema, match=r'at /properties/a/type: "strng" \(did you mean string'
    ):
        compile({"properties": {"a": {"type": "strng"}}})


# ---- problems ------------------------------------------------------------------------------------


def test_a_misspelt_name_is_told_with_the_accepted_ones_and_the_nearest() -> None:
    """AR-09: both unknown names, the accepted names, and the near one as the hint."""
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"hours_back": {"type": "integer"}, "limit": {"type": "integer"}},
        "additionalProperties": False,
    }
    first, second = compile(schema).problems({"hours": 1, "status_filter": "failed"})
    assert first == Problem(
        path="",
        rule="additionalProperties",
        expected='unexpected property "hours"; accepted: hours_back, limit',
        hint="hours_back",
    )
    assert second.expected == 'unexpected property "status_filter"'
    assert second.hint == ""


def test_the_same_holds_inside_a_nested_closed_object() -> None:
    """AR-09: a closed object inside speaks of its own names, under its own path."""
    inner = {"type": "object", "properties": {"since": {}}, "additionalProperties": False}
    schema: dict[str, object] = {"properties": {"filters": {"type": "array", "items": inner}}}
    assert words(schema, {"filters": [{"sinse": 1}]}) == [
        'filters[0]: unexpected property "sinse"; accepted: since (did you mean since?)'
    ]


def test_problems_come_in_the_order_of_the_value() -> None:
    """ADM-2: what is missing first, then what was given, as it was given."""
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}, "z": {"type": "string"}},
        "required": ["z"],
        "additionalProperties": False,
    }
    assert words(schema, {"b": 1, "x": 0, "a": 1}) == [
        'missing required property "z"',
        "b: expected string, got integer",
        'unexpected property "x"; accepted: a, b, z',
        "a: expected string, got integer",
    ]


def test_at_most_twenty_problems_are_named() -> None:
    """ADM-2, JSON-6: a refusal is to be read, however much is wrong."""
    problems = compile({"items": {"type": "integer"}}).problems(["x"] * 1000)
    assert [problem.path for problem in problems] == [f"[{index}]" for index in range(20)]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"required": [f"r{i}" for i in range(40)]}, {}),
        ({"propertyNames": {"maxLength": 2}}, {f"name{i}": 1 for i in range(40)}),
        ({"additionalProperties": False}, {f"name{i}": 1 for i in range(40)}),
    ],
)
def test_one_object_alone_has_at_most_twenty_problems(
    schema: dict[str, object], value: object
) -> None:
    """ADM-2: the bound holds within one place too."""
    assert len(compile(schema).problems(value)) == 20


def test_an_explanation_that_would_take_too_long_is_a_short_one() -> None:
    """P6: of too many names and patterns nothing is compared; the refusal stands all the same."""
    schema: dict[str, object] = {"patternProperties": {f"^a{i}$": False for i in range(1500)}}
    (only,) = compile(schema).problems({f"b{i}": 1 for i in range(100)} | {"a7": 1})
    assert only == Problem(
        path="", rule="schema", expected="expected what the whole schema accepts"
    )


MANY = "expected 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 or 2 more, got string"
LONG = {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(12)} | {"12": {"type": "integer"}}
MORE_THAN_ONE = "expected at most 1 item like null"


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"minimum": 1}, 0, "expected at least 1"),
        ({"exclusiveMaximum": 1.5}, 2, "expected less than 1.5"),
        ({"multipleOf": 5}, 7, "expected a multiple of 5"),
        ({"minLength": 1}, "", "expected at least 1 character"),
        ({"maxLength": 2}, "abc", "expected at most 2 characters"),
        ({"pattern": "^a$"}, "b", "expected text that matches ^a$"),
        ({"format": "date"}, "x", "expected text in the format date, as in 2031-05-17"),
        ({"minItems": 2}, [1], "expected at least 2 items"),
        ({"maxProperties": 1}, {"a": 1, "b": 2}, "expected at most 1 property"),
        ({"uniqueItems": True}, [1, 1.0], "expected items that are all different"),
        ({"const": "on"}, "off", 'expected "on"'),
        ({"contains": {"type": "string"}}, [1], "expected at least 1 item like string"),
        ({"not": {"type": "string"}}, "x", "expected anything but string"),
        ({"not": {"enum": [1, 2]}}, 1, "expected anything but 1, 2"),
        ({"not": {"properties": {}}}, {}, "expected anything but object"),
        ({"not": {"minimum": 1}}, 2, "expected anything but another value"),
        ({"not": True}, 2, "expected anything but any value"),
        ({"contains": {"type": "null"}, "maxContains": 1}, [None, None], MORE_THAN_ONE),
        ({"enum": []}, 1, "expected one of "),
        ({"contains": {"type": "null"}, "minProperties": 1}, {}, "expected at least 1 property"),
        ({"anyOf": [{"const": i} for i in range(12)]}, "x", MANY),
        (
            {"$defs": LONG, "anyOf": [{"$ref": "#/$defs/0"}, {"const": 1}]},
            "x",
            "expected another value or 1, got string",
        ),
        ({"prefixItems": [{}], "items": False}, [1, 2], "expected at most 1 item"),
        ({"properties": {"a": False}}, {"a": 1}, "a: expected this to be left out"),
        (
            {"dependentRequired": {"a": ["b"]}},
            {"a": 1},
            'missing required property "b", needed beside "a"',
        ),
        (
            {"propertyNames": {"pattern": "^[a-z]+$"}},
            {"A b": 1},
            'property name "A b" is not accepted; expected string (pattern ^[a-z]+$)',
        ),
        (
            {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
            {"a": 1},
            'missing required property "b"',
        ),
        (
            {"properties": {"a": {}}, "unevaluatedProperties": False},
            {"b": 1},
            'unexpected property "b"; accepted: a',
        ),
    ],
)
def test_every_keyword_says_what_was_expected(
    schema: dict[str, object], value: object, expected: str
) -> None:
    """ADM-2: rule, path and what would have been accepted, in words to act on."""
    assert words(schema, value) == [expected]


def test_a_union_of_types_names_the_types() -> None:
    """ADM-2: the alternatives when none was meant."""
    schema: dict[str, object] = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert words(schema, 3) == ["expected string or null, got integer"]


def test_a_union_explains_the_alternative_that_was_meant() -> None:
    """ADM-2: one alternative has the value's type, so its problems are the problems."""
    item: dict[str, object] = {"type": "object", "properties": {"n": {"type": "integer"}}}
    schema: dict[str, object] = {"anyOf": [{"type": "null"}, item]}
    assert words(schema, {"n": "x"}) == ["n: expected integer, got string"]


def test_a_list_is_meant_for_the_alternative_that_is_a_list() -> None:
    """ADM-2: the type of what was given picks the alternative, not its place."""
    items: dict[str, object] = {"type": "array", "items": {"type": "integer"}}
    schema: dict[str, object] = {"anyOf": [{"type": "null"}, items]}
    assert words(schema, [1, "x"]) == ["[1]: expected integer, got string"]


@pytest.mark.parametrize(
    "schema",
    [
        {
            "properties": {"a": {"type": "string"}},
            "allOf": [{"patternProperties": {"^b": {}}}],
            "unevaluatedProperties": False,
        },
        {
            "$id": "https://example.org/derived",
            "$ref": "base",
            "$defs": {
                "more": {"$dynamicAnchor": "more", "properties": {"b": {"type": "string"}}},
                "base": {
                    "$id": "base",
                    "properties": {"a": {"type": "string"}},
                    "$dynamicRef": "#more",
                    "unevaluatedProperties": False,
                    "$defs": {"none": {"$dynamicAnchor": "more"}},
                },
            },
        },
    ],
)
def test_a_name_that_another_part_accepts_is_not_called_unexpected(
    schema: dict[str, object],
) -> None:
    """ADM-2: what depends on every other keyword is said only when nothing else is wrong."""
    assert compile(schema).is_valid({"a": "x", "b": "y"})
    assert words(schema, {"a": 1, "b": "y"}) == ["a: expected string, got integer"]
    (said,) = words(schema, {"a": "x", "b": "y", "c": 1})
    assert said == "expected no properties but those that the schema describes"


def test_a_tagged_union_explains_the_tag_or_the_branch_that_it_names() -> None:
    """ADM-2: a constant property says which alternative is meant."""
    branches = [
        {
            "type": "object",
            "properties": {"kind": {"const": kind}, part: {"type": "integer"}},
            "required": ["kind", part],
        }
        for kind, part in (("car", "doors"), ("bike", "gears"))
    ]
    schema: dict[str, object] = {"oneOf": branches}
    assert words(schema, {"kind": "bike"}) == ['missing required property "gears"']
    assert words(schema, {"kind": "boat"}) == ['kind: expected one of "car", "bike"']
    assert words(schema, {}) == ['missing required property "kind": one of "car", "bike"']


def test_a_tag_is_what_every_alternative_fixes() -> None:
    """ADM-2: a constant that only one alternative has says nothing about the others."""
    one: dict[str, object] = {"properties": {"v": {"const": 1}, "op": {"const": "add"}}}
    other: dict[str, object] = {
        "properties": {"op": {"const": "drop"}, "n": {"type": "integer"}},
        "required": ["n"],
    }
    schema: dict[str, object] = {"anyOf": [one, other]}
    assert words(schema, {"op": "drop"}) == ['missing required property "n"']


def test_without_a_tag_the_names_say_which_alternative_is_meant() -> None:
    """ADM-2: the alternative that knows most of the names and lacks the fewest."""
    point: dict[str, object] = {
        "properties": {"x": {"type": "integer"}, "y": True, "unit": {"enum": ["m"]}},
        "required": ["x", "y"],
    }
    named: dict[str, object] = {"properties": {"name": {"type": "string"}}, "required": ["name"]}
    schema: dict[str, object] = {"anyOf": [named, point, {"type": "object", "maxProperties": 0}]}
    assert words(schema, {"x": "1", "y": 2}) == ["x: expected integer, got string"]
    assert words(schema, {"name": 7}) == ["name: expected string, got integer"]


def test_one_of_says_when_several_alternatives_fit() -> None:
    """ADM-2: too much agreement is told apart from none."""
    schema: dict[str, object] = {"oneOf": [{"type": "integer"}, {"minimum": 0}]}
    (said,) = words(schema, 3)
    assert "exactly one alternative" in said


@pytest.mark.parametrize(
    ("steps", "path"),
    [
        ([], ""),
        (["items", 0, "name"], "items[0].name"),
        ([0, "a"], "[0].a"),
        (["content-type"], "content-type"),
        (["content type"], '["content type"]'),
        (["a", "b.c"], 'a["b.c"]'),
        (["a\u200b\n"], '["a\\u200b\\n"]'),
        (["x" * 100], '["' + "x" * 59 + '…"]'),
    ],
)
def test_a_path_is_short_and_shows_what_hides(steps: list[str | int], path: str) -> None:
    """JSON-6: a name in a path cannot hide, nor reach over the end of a sentence."""
    assert path_of(steps) == path


def test_an_unknown_name_is_clipped_and_made_visible() -> None:
    """JSON-6: of a name that did not pass, sixty visible characters are shown."""
    (said,) = words({"additionalProperties": False}, {"a\u202eb" + "c" * 1000: 1})
    assert said.startswith('unexpected property "a\\u202ebccc')
    assert len(said) < 120


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(secret=st.text("abc", min_size=12, max_size=20), value=JSON, number=st.integers(10**9))
@settings(max_examples=200)
def test_no_problem_repeats_a_value_that_was_refused(
    secret: str, value: object, number: int
) -> None:
    """JSON-6: whatever is refused, wherever, its text and digits are not in the problems."""
    held: dict[str, object] = {"text": f"<{secret}>", "number": number, "list": [secret, value]}
    schema: dict[str, object] = {
        "properties": {
            "text": {"type": "string", "maxLength": 3, "pattern": "^x", "format": "date"},
            "number": {"enum": [1], "multipleOf": 7},
            "list": {"items": {"anyOf": [{"type": "boolean"}, {"const": 3}]}, "uniqueItems": True},
        },
        "additionalProperties": {"type": "null"},
    }
    said = " ".join(words(schema, held))
    assert secret not in said
    assert str(number) not in said


LEAVES: st.SearchStrategy[dict[str, object]] = st.sampled_from(
    [
        {},
        {"type": "string", "minLength": 2},
        {"type": ["integer", "null"], "minimum": 1},
        {"enum": ["a", 1, None, [], {"a": 1}]},
        {"const": False},
        {"multipleOf": 2},
        {"maxItems": 1, "uniqueItems": True},
        {"required": ["a"], "maxProperties": 1},
        {"pattern": "a", "format": "date"},
        {"type": ["array", "object"]},
    ]
)


def composed(inner: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    """Return a strategy for schemas made of others, one or two keywords each."""
    several = st.lists(inner, min_size=1, max_size=2)
    named = st.dictionaries(st.sampled_from(["a", "b", ""]), inner, min_size=1)
    keywords: dict[str, st.SearchStrategy[object]] = {
        "items": inner,
        "prefixItems": several,
        "contains": inner,
        "properties": named,
        "additionalProperties": inner,
        "patternProperties": st.dictionaries(st.just("^a"), inner, min_size=1),
        "propertyNames": inner,
        "dependentSchemas": named,
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
    }
    picked = st.lists(st.sampled_from(sorted(keywords)), min_size=1, max_size=3, unique=True)
    return picked.flatmap(
        lambda names: st.fixed_dictionaries({name: keywords[name] for name in names})
    )


SCHEMAS = st.recursive(LEAVES | st.booleans(), composed, max_leaves=6).filter(
    lambda schema: isinstance(schema, dict)
)


@given(schema=SCHEMAS, value=JSON)
@settings(max_examples=400)
def test_whatever_is_refused_something_in_it_is_named(
    schema: dict[str, object], value: object
) -> None:
    """ADM-2: the engine decides; of what it refuses, the explanation always finds a reason."""
    validator = compile(schema)
    problems = validator.problems(value)
    assert bool(problems) is not validator.is_valid(value)
    assert all(problem.rule != "schema" for problem in problems)


def test_near_names_are_near_in_letters_not_in_case_or_style() -> None:
    """ADM-2: the hint finds slips, other spellings and shortened names, and is silent otherwise."""
    assert near("hours", ["limit", "hours_back"]) == ["hours_back"]
    assert near("maxBytes", ["path", "max_bytes"]) == ["max_bytes"]
    assert near("read_fle", ["write_file", "read_file", "read_files"], 2) == [
        "read_file",
        "read_files",
    ]
    assert near("colour", ["path"]) == []
    assert shown("tab\there") == "tab\\there"


# ---- numbers -------------------------------------------------------------------------------------

EXACT = 1 << 53


@pytest.mark.parametrize(
    ("value", "is_integer"),
    [
        (2, True),
        (2.0, True),
        (-2.0, True),
        (1.5, False),
        (True, False),
        ("2", False),
        (EXACT, True),
        (float(EXACT), True),
        (float(-EXACT), True),
        (float(EXACT + 2), False),
        (1e300, False),
        (EXACT + 1, True),
        (2**64 - 1, True),
        (10**300, True),
    ],
)
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer"},
        {"type": ["integer", "null"]},
        {"anyOf": [{"type": "integer"}, {"type": "boolean", "const": "never"}]},
        {"oneOf": [{"type": "integer"}, {"type": "null"}]},
        {"not": {"not": {"type": "integer"}}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"},
    ],
)
def test_a_place_for_integers_takes_floats_as_far_as_they_are_exact(
    schema: dict[str, object], value: object, *, is_integer: bool
) -> None:
    """JSON-2: whole floats are integers within 2^53 and none beyond, wherever the type stands."""
    validator = compile(schema)
    assert validator.is_valid(value) is is_integer
    assert bool(validator.problems(value)) is not is_integer


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"type": "integer"}},
        {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        {"if": {"type": "integer"}, "then": False},
        {"contains": {"type": "integer"}, "minContains": 0, "maxContains": 0},
    ],
)
def test_a_place_for_integers_refuses_large_ones_where_the_schema_turns_it_around(
    schema: dict[str, object],
) -> None:
    """JSON-2, SCH-3: no shortcut makes the whole accept more where a part accepts less."""
    integer: object = [2**60] if "contains" in schema else 2**60
    floating: object = [1e300] if "contains" in schema else 1e300
    assert compile(schema).problems(integer)
    assert compile(schema).is_valid(floating)


def test_a_float_that_is_too_large_to_be_an_integer_is_told_so() -> None:
    """JSON-2: the reason is not that it has a fraction."""
    schema: dict[str, object] = {"properties": {"n": {"type": "integer"}}}
    assert words(schema, {"n": 1e300}) == [
        "n: expected integer, got number beyond 2^53 in float form"
    ]
    assert words(schema, {"n": 1.5}) == ["n: expected integer, got number with a fraction"]


@pytest.mark.parametrize("keyword", ["const", "enum", "maximum", "minimum"])
def test_integers_are_compared_digit_by_digit(keyword: str) -> None:
    """JSON-2: two integers that share a double are still two."""
    large = 2**60 + 1
    validator = compile({keyword: [large] if keyword == "enum" else large})
    assert validator.is_valid(large)
    assert not validator.is_valid(large - 1 if keyword != "maximum" else large + 1)


def test_a_number_beside_the_integers_may_be_any_number() -> None:
    """JSON-2: only an integer's place refuses a large float."""
    schema: dict[str, object] = {"properties": {"n": {"type": "integer"}, "x": {"type": "number"}}}
    assert words(schema, {"n": 2**60, "x": 1e300}) == []


def test_compiling_leaves_no_trace_of_its_narrower_schema() -> None:
    """SCH-3: what is enforced is what was given, and `schema` says so."""
    given_schema: dict[str, object] = {"type": "integer", "minimum": 3, "maximum": 2**60}
    validator = compile(given_schema)
    assert validator.schema == given_schema == {"type": "integer", "minimum": 3, "maximum": 2**60}
    assert validator.is_valid(2**59)


# ---- dialects, formats, patterns -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "schema", "good", "bad"),
    [
        ("http://json-schema.org/draft-04/schema#", {"maximum": 3, "exclusiveMaximum": True}, 2, 3),
        ("http://json-schema.org/draft-06/schema#", {"exclusiveMaximum": 3}, 2, 3),
        ("http://json-schema.org/draft-07/schema", {"items": [{"type": "string"}]}, ["a"], [1]),
        (
            "https://json-schema.org/draft-07/schema#",
            {"$ref": "#/a", "a": {"type": "null"}},
            None,
            1,
        ),
        (
            "https://json-schema.org/draft/2019-09/schema",
            {"items": [{"type": "string"}], "additionalItems": False},
            ["a"],
            ["a", 1],
        ),
        (
            "https://json-schema.org/draft/2020-12/schema#",
            {"prefixItems": [{"const": 1}]},
            [1],
            [2],
        ),
    ],
)
def test_the_dialect_is_the_one_that_the_schema_names(
    address: str, schema: dict[str, object], good: object, bad: object
) -> None:
    """SCH-1: draft-04 to 2020-12 by `$schema`, however its address is spelt."""
    validator = compile({"$schema": address} | schema)
    assert validator.is_valid(good)
    assert validator.problems(bad)


@pytest.mark.parametrize(
    "draft", ["draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12"]
)
def test_format_is_asserted_in_every_dialect(draft: str) -> None:
    """SCH-1: `format` is a promise, in draft 2020-12 too; an unknown format is none."""
    schema = {"$schema": f"http://json-schema.org/{draft}/schema#", "format": "date-time"}
    assert compile(schema).problems("yesterday")[0].rule == "format"
    assert compile(schema).is_valid("2031-05-17T09:30:00Z")
    assert compile(schema | {"format": "colour"}).is_valid("green")


def test_beside_a_reference_an_old_dialect_reads_nothing() -> None:
    """SCH-1: up to draft-07 a `$ref` stands alone; since then it does not."""
    schema: dict[str, object] = {
        "$ref": "#/definitions/a",
        "maxLength": 1,
        "definitions": {"a": {}},
    }
    assert compile({"$schema": "http://json-schema.org/draft-07/schema#"} | schema).is_valid("ab")
    assert not compile(schema).is_valid("ab")


def test_a_pattern_runs_in_linear_time_wherever_it_can() -> None:
    """SCH-2: what backtracks elsewhere is refused at once, however long the text."""
    assert not compile({"pattern": "^(a+)+$"}).is_valid("a" * 200_000 + "b")


def test_a_pattern_that_has_to_backtrack_breaks_at_its_limit() -> None:
    """SCH-2: the breach is a `ValidatorCrash`; nobody can say what the pattern would have said."""
    validator = compile({"properties": {"a": {"pattern": LOOK_AROUND}, "b": {"type": "string"}}})
    assert not validator.is_valid({"a": "a" * 60})
    with pytest.raises(ValidatorCrash):
        validator.problems({"a": "a" * 60})
    assert [one.path for one in validator.problems({"b": 1})] == ["b"]


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"pattern": LOOK_AROUND}},
        {"patternProperties": {LOOK_AROUND: False}},
        {"oneOf": [{"pattern": LOOK_AROUND}, {"type": "string"}]},
    ],
)
def test_a_breach_never_lets_a_value_in(schema: dict[str, object]) -> None:
    """SCH-2: where "does not match" would mean "valid", a breach still does not."""
    value = {"a" * 60: 1} if "patternProperties" in schema else "a" * 60
    assert not compile(schema).is_valid(value)
    with pytest.raises(ValidatorCrash):
        compile(schema).problems(value)


def test_look_around_works_within_its_limit() -> None:
    """SCH-2: a pattern of the other engine is as good as any, on an ordinary text."""
    validator = compile({"pattern": r"^(?!tmp)[a-z]+$"})
    assert validator.is_valid("home")
    assert validator.problems("tmpdir")[0].rule == "pattern"
    beside = compile({"properties": {"a": {"pattern": "^(?!x)"}, "b": {"type": "string"}}})
    assert [problem.path for problem in beside.problems({"a": "ok", "b": 1})] == ["b"]


# ---- what cannot be compiled ---------------------------------------------------------------------


def deep(levels: int) -> dict[str, object]:
    """Return a schema inside itself, many times."""
    schema: dict[str, object] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


def test_any_mapping_will_do() -> None:
    """API: `compile` takes a mapping, at every depth."""
    inner = MappingProxyType({"type": "integer"})
    schema = MappingProxyType({"properties": MappingProxyType({"n": inner})})
    assert compile(schema).problems({"n": "x"})


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (["not", "a schema"], "a JSON Schema is an object, true or false, not array"),
        ({"default": {1, 2}}, "the schema is not JSON"),
        ({"const": float("nan")}, "the schema is not JSON"),
        ({"title": "\ud800"}, "surrogate"),
        ({"properties": []}, "at /properties: `properties` is object in a JSON Schema"),
        ({"required": None}, "at /required: `required` is array in a JSON Schema"),
        ({"minLength": -1}, 'breaks the rule "minimum" of dialect 2020-12'),
        ({"pattern": "("}, "at /pattern: the pattern is not a regular expression"),
        ({"$schema": "https://example.org/mine"}, "supported are draft-04"),
        ({"$schema": 7}, "`$schema` is integer"),
        ({"$ref": "#/$defs/Nod", "$defs": {"Node": {}}}, "did you mean Node?"),
        ({"$ref": "#/$defs/x"}, "define it under `$defs`"),
        ({"$ref": "#nowhere"}, "names nothing in the schema"),
        ({"$ref": "#/$defs/a%", "$defs": {"a%": {}}}, "a reference cannot be resolved"),
        ({"$ref": 5}, "at /$ref: `$ref` is string in a JSON Schema"),
        ({"type": "integer", "minimum": "x"}, "at /minimum: `minimum` is number"),
        ({"enum": [[i] for i in range(300)]}, "more than 256 lists or objects"),
        (deep(5000), "nested deeper than 128 levels"),
        ({"$ref": "#"}, "lead back to where they start"),
        (
            {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}},
            "lead",
        ),
    ],
)
def test_a_schema_that_cannot_be_is_refused_with_what_would_fix_it(
    schema: dict[str, object], said: str
) -> None:
    """SCH-1, SCH-2: one sentence that says where, what, and what to write."""
    with pytest.raises(InvalidSchema) as refusal:
        compile(schema)
    assert said in str(refusal.value)
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": r"(\p{L}{1,1000}\d?){1,30}"},
        {"properties": {f"p{i}": {"pattern": r"\p{L}{1,30}"} for i in range(1000)}},
    ],
)
def test_patterns_are_refused_that_take_too_much_once_compiled(schema: dict[str, object]) -> None:
    """SCH-2: one pattern or many, what they take together is bounded."""
    with pytest.raises(InvalidSchema, match="simplify it"):
        compile(schema)


def test_mc_02_true_and_false_are_schemas() -> None:
    """MC-02: a boolean is the schema of everything, or of nothing."""
    assert compile(True).is_valid({"a": [1]})
    assert compile(False).problems(1)


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (Limits(schema_bytes=100), "100 bytes"),
        (Limits(nodes=20), "20 values"),
        (Limits(depth=3), "3 levels"),
    ],
)
def test_a_schema_over_a_limit_is_refused(limits: Limits, what: str) -> None:
    """SCH-2, JSON-3: bytes, values and depth are those of `Limits`, and can be raised there."""
    compile(FORM)
    with pytest.raises(InvalidSchema, match=what):
        compile(FORM, limits=limits)


@pytest.mark.parametrize(
    "address",
    ["weather.json", "/a", "?x", "//x/y", "", "http://example.com/a.json", "urn:a:b", "document"],
)
def test_a_document_that_has_an_address_is_explained_like_any_other(address: str) -> None:
    """SCH-1, ADM-2: a relative `$id` too, where parts of the document are asked alone."""
    schema: dict[str, object] = {
        "$id": address,
        "anyOf": [{"properties": {"a": {"minLength": 3}}}, {"required": ["b"]}],
        "if": {"required": ["a"]},
        "then": {"required": ["b"]},
    }
    validator = compile(schema)

    assert 'missing required property "b"' in [str(one) for one in validator.problems({"a": "x"})]
    assert validator.problems({"b": "x"}) == ()


@pytest.mark.parametrize("address", ["http://[", "//[::1/a"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    """SCH-1, SCH-2: as what it is, and not as a library's error."""
    for part in ({"$ref": address}, {"$id": address, "$ref": "#/$defs/a"}):
        with pytest.raises(InvalidSchema):
            compile({"properties": {"p": part}, "$defs": {"a": {}}})


# ---- what a hostile schema or value costs --------------------------------------------------------


def doubling(levels: int) -> dict[str, object]:
    """Return a schema in which each definition names the next one twice."""
    names = [f"A{level}" for level in range(levels)]
    definitions: dict[str, object] = {
        name: {
            "anyOf": [
                {"properties": {"x": {"$ref": f"#/$defs/A{level + 1}"}}, "required": ["x"]},
                {"properties": {"x": {"$ref": f"#/$defs/A{level + 1}"}}, "minProperties": 1},
            ]
        }
        for level, name in enumerate(names)
    }
    return {"$ref": "#/$defs/A0", "$defs": definitions | {f"A{levels}": {"type": "integer"}}}


def inside(levels: int, value: object) -> object:
    """Return a value in objects inside each other."""
    for _ in range(levels):
        value = {"x": value}
    return value


def inside_lists(levels: int, value: object) -> object:
    """Return a value in lists inside each other."""
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("levels", [12, 30, 64, 1000])
def test_references_that_multiply_are_refused_before_they_are_walked(levels: int) -> None:
    """SCH-2: the expansion is counted along the graph, so counting it costs no expansion."""
    with pytest.raises(InvalidSchema, match="multiplies into more than"):
        compile(doubling(levels))


def test_references_may_repeat_where_a_value_goes_one_way() -> None:
    """SCH-2: two properties of the same type double the schema and not the work."""
    definitions: dict[str, object] = {
        f"A{level}": {
            "properties": {name: {"$ref": f"#/$defs/A{level + 1}"} for name in ("x", "y")}
        }
        for level in range(60)
    }
    schema = {"$ref": "#/$defs/A0", "$defs": definitions | {"A60": {"type": "integer"}}}
    assert compile(schema).is_valid(inside(60, 1))
    assert not compile(schema).is_valid(inside(60, "a"))


def test_no_hostile_schema_or_value_takes_the_machine() -> None:
    """SCH-2, JSON-3: all of them within twenty seconds of CPU and two gigabytes, none a crash."""
    program = Path(__file__).with_name("hostile.py")
    run = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout.strip()) == (0, "done"), run.stderr[-2000:]


TREE = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/t"}}, {"type": "string"}]}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"type": "integer"}}, lambda n: [*([1] * n), "x"]),
        ({"additionalProperties": False}, lambda n: {f"k{i}": i for i in range(n)}),
        ({"items": {"anyOf": [{"type": "object"}, {"type": "null"}]}}, lambda n: [*([{}] * n), 1]),
        ({"$ref": "#/$defs/t", "$defs": {"t": TREE}}, lambda n: inside_lists(n // 10, 1)),
    ],
)
def test_the_cost_of_an_explanation_grows_no_faster_than_the_value(
    schema: dict[str, object], value: Callable[[int], object]
) -> None:
    """PERFORMANCE P6: counted in calls, not in time; ten times the value, at most eleven times."""
    validator = compile(schema)
    small, large = value(100), value(1000)
    validator.problems(small)
    assert steps_of(lambda: validator.problems(large)) < 11 * steps_of(
        lambda: validator.problems(small)
    )


# ---- one validator, many users -------------------------------------------------------------------


def test_a_schema_is_taken_over_and_given_out_as_copies() -> None:
    """DEF-4: neither what was passed in nor what is given out is a way into the validator."""
    schema: dict[str, object] = copy.deepcopy(FORM)
    validator = compile(schema)
    schema.clear()
    taken = validator.schema
    assert taken == FORM
    assert isinstance(taken, dict)
    taken.clear()
    assert validator.schema == FORM
    assert validator.problems({})


def test_a_validator_serves_many_threads_at_once() -> None:
    """ADM-1: what it keeps for later depends on the schema alone."""
    validator = compile(FORM)
    barrier = threading.Barrier(8)

    def ask(index: int) -> tuple[bool, list[str]]:
        barrier.wait()
        return validator.is_valid({"path": index}), [
            str(one) for one in validator.problems({"path": index, "limit": 1e300})
        ]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert len({json.dumps(answer) for answer in answers}) == 1
