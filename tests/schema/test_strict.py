"""The strict form is what providers ask for, says why where there is none, and has a way back."""

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ferrule import Definition
from ferrule.errors import InvalidSchema
from ferrule.schema import compile
from ferrule.schema._foreign import foreign
from ferrule.schema._limits import PROVIDERS, Finding, ProviderLimits, findings
from ferrule.schema._strict import Converted, NotStrict, to_strict
from schema.samples import objects_of
from schema.strict_rules import RULES, breaches

CORPUS = Path(__file__).parents[1] / "corpus"


def strict(schema: dict[str, object]) -> Converted:
    """Convert a schema that has a strict form."""
    converted = to_strict(schema)
    assert isinstance(converted, Converted), converted
    return converted


def refused(schema: dict[str, object]) -> NotStrict:
    """Convert a schema that has none."""
    reason = to_strict(schema)
    assert isinstance(reason, NotStrict), reason
    return reason


def form(properties: Mapping[str, object], *required: str, **more: object) -> dict[str, object]:
    """Return an object schema."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
    } | more


def closed(properties: Mapping[str, object], **more: object) -> dict[str, object]:
    """Return an object schema in strict form."""
    return form(properties, *properties, additionalProperties=False) | more


CAR = form({"kind": {"const": "car"}, "doors": {"type": "integer"}}, "kind", "doors")
BIKE = form({"kind": {"const": "bike"}, "gears": {"type": "integer"}}, "kind", "gears")


# ---- the form ------------------------------------------------------------------------------------


def test_every_property_is_required_and_what_was_optional_may_be_null() -> None:
    """SCH-4: no default, null added where a property could be left out, and nowhere else."""
    schema = form(
        {
            "path": {"type": "string"},
            "limit": {"type": "integer", "default": 3, "minimum": 1},
            "mode": {"type": ["string", "null"], "description": "How."},
        },
        "path",
    )
    assert strict(schema).schema == closed(
        {
            "path": {"type": "string"},
            "limit": {"type": ["integer", "null"], "minimum": 1},
            "mode": {"type": ["string", "null"], "description": "How."},
        }
    )


@pytest.mark.parametrize(
    ("optional", "expected"),
    [
        (
            {"type": "string", "enum": ["a", "b"]},
            {"type": ["string", "null"], "enum": ["a", "b", None]},
        ),
        ({"enum": ["a", 1]}, {"type": ["string", "integer", "null"], "enum": ["a", 1, None]}),
        (
            {"const": "x", "description": "d"},
            {"anyOf": [{"type": "string", "const": "x"}, {"type": "null"}], "description": "d"},
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
        ),
        (
            {"type": "array", "items": {"type": "string"}},
            {"type": ["array", "null"], "items": {"type": "string"}},
        ),
        ({"type": "string", "format": "date"}, {"type": ["string", "null"], "format": "date"}),
        ({"enum": [None, "a"]}, {"type": ["null", "string"], "enum": ["a", None]}),
    ],
)
def test_null_joins_every_kind_of_schema(
    optional: dict[str, object], expected: dict[str, object]
) -> None:
    """SCH-4: in the type, last in the enum, one branch more in a union; the text stays outside."""
    assert strict(form({"a": optional})).schema == closed({"a": expected})


def test_nothing_stands_beside_a_reference() -> None:
    """ST-01: a described reference is written out with its description; unused ones are gone."""
    role = {"type": "string", "enum": ["admin", "guest"]}
    schema = form(
        {
            "role": {"$ref": "#/$defs/Role", "description": "new role", "default": "guest"},
            "old": {"$ref": "#/$defs/Role"},
        },
        "role",
        "old",
    ) | {"$defs": {"Role": role, "Unused": {"type": "object"}}}
    assert strict(schema).schema == closed(
        {"role": role | {"description": "new role"}, "old": {"$ref": "#/$defs/Role"}},
        **{"$defs": {"Role": role}},
    )


def test_one_of_over_disjoint_alternatives_becomes_any_of() -> None:
    """ST-03: in items and definitions, `discriminator` dropped; one-and-only-one holds locally."""
    items = {
        "oneOf": [{"$ref": "#/$defs/Car"}, {"$ref": "#/$defs/Bike"}],
        "discriminator": {"propertyName": "kind"},
    }
    schema = form({"items": {"type": "array", "items": items}}, "items")
    schema |= {"$defs": {"Car": CAR, "Bike": BIKE}}
    converted = strict(schema).schema
    written = json.dumps(converted)
    assert "oneOf" not in written
    assert "discriminator" not in written
    assert converted["properties"] == {
        "items": {
            "type": "array",
            "items": {"anyOf": [{"$ref": "#/$defs/Car"}, {"$ref": "#/$defs/Bike"}]},
        }
    }
    both = {"kind": "car", "doors": 4, "gears": 3}
    assert compile(schema).is_valid({"items": [both]})
    assert not compile(schema).is_valid({"items": [{"kind": "boat"}]})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"type": "string"}, {"type": "integer"}),
        ({"const": "a"}, {"const": "b"}),
        ({"enum": ["a", "b"]}, {"enum": ["c"]}),
        ({"const": "a"}, {"type": "integer"}),
        (CAR, BIKE),
        (form({"a": {"type": "string"}}, "a"), form({"b": {"type": "string"}}, "b")),
        ({"const": "a"}, form({"a": {"type": "string"}}, "a")),
    ],
)
def test_alternatives_are_disjoint_by_type_value_tag_or_names(
    one: dict[str, object], other: dict[str, object]
) -> None:
    """SCH-4: `oneOf` over them is `anyOf`, since no value of the strict form fits both."""
    assert "anyOf" in json.dumps(strict(form({"u": {"oneOf": [one, other]}}, "u")).schema)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"type": "integer"}, {"type": "number"}),
        ({"enum": ["a", "b"]}, {"enum": ["b"]}),
        (form({"a": {"type": "string"}}, "a"), form({"a": {"type": "string"}}, "a")),
        ({"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "a$"}),
    ],
)
def test_one_of_over_alternatives_that_overlap_has_no_strict_form(
    one: dict[str, object], other: dict[str, object]
) -> None:
    """ST-03: rewriting it would say something else, so the place is named instead."""
    reason = refused(form({"u": {"oneOf": [one, other]}}))
    assert reason.path == "u"
    assert "oneOf" in reason.reason


def test_every_object_is_closed_wherever_it_hides() -> None:
    """ST-05: a root without a type, a list of types, a union branch, items, definitions."""
    schema: dict[str, object] = {
        "properties": {
            "a": {"type": ["object", "null"], "properties": {"x": {"type": "string"}}},
            "u": {"anyOf": [form({"y": {"type": "integer"}}), {"type": "null"}]},
            "l": {"items": {"properties": {"z": {"type": "boolean"}}}},
            "d": {"$ref": "#/$defs/D"},
        },
        "required": ["a", "u", "l", "d"],
        "$defs": {"D": {"properties": {"w": {"type": "number"}}, "required": ["w"]}},
    }
    assert strict(schema).schema == closed(
        {
            "a": closed({"x": {"type": ["string", "null"]}}) | {"type": ["object", "null"]},
            "u": {"anyOf": [closed({"y": {"type": ["integer", "null"]}}), {"type": "null"}]},
            "l": {"type": "array", "items": closed({"z": {"type": ["boolean", "null"]}})},
            "d": {"$ref": "#/$defs/D"},
        },
        **{"$defs": {"D": closed({"w": {"type": "number"}})}},
    )


def test_a_recursive_schema_keeps_its_references() -> None:
    """MC-05, SCH-4: described or not, a reference that leads back stays one."""
    node = form({"kids": {"type": "array", "items": {"$ref": "#/$defs/N", "description": "k"}}})
    schema = form({"root": {"$ref": "#/$defs/N"}}, "root") | {"$defs": {"N": node}}
    definition = strict(schema).schema["$defs"]
    assert breaches(strict(schema).schema) == []
    assert "#/$defs/N" in json.dumps(definition)


@pytest.mark.parametrize(
    "kid",
    [
        {"$ref": "#/$defs/N", "description": "k"},
        {"allOf": [{"$ref": "#/$defs/N"}], "description": "k"},
        {"$ref": "#/$defs/N", "minProperties": 1, "description": "k"},
    ],
)
def test_a_reference_back_keeps_what_it_says_of_itself(kid: dict[str, object]) -> None:
    """MC-05, ST-01: it is wrapped rather than written out; what it asks more of is dropped."""
    node = form({"kid": kid, "n": {"type": "integer"}}, "n")
    schema = form({"top": {"$ref": "#/$defs/N", "description": "t"}}, "top")
    converted = strict(schema | {"$defs": {"N": node}})
    back = {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}], "description": "k"}
    written = closed({"kid": back, "n": {"type": "integer"}})
    assert converted.schema == closed(
        {"top": written | {"description": "t"}}, **{"$defs": {"N": written}}
    )
    assert ("minProperties" in kid) is bool(converted.dropped)


def test_parts_are_put_together() -> None:
    """SCH-4: `allOf` is what its parts say, with the outer description."""
    base = form({"id": {"type": "integer"}}, "id")
    schema = form(
        {"a": {"allOf": [base, form({"n": {"type": "string"}}, "n")], "description": "A"}}, "a"
    )
    assert strict(schema).schema == closed(
        {"a": closed({"id": {"type": "integer"}, "n": {"type": "string"}}, description="A")}
    )


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (
            [form({"x": {"type": "number"}}, "x"), form({"x": {"type": ["integer", "null"]}})],
            closed({"x": {"type": "integer"}}),
        ),
        (
            [{"enum": ["a", "b", "c"]}, {"enum": ["b", "c", "d"]}],
            {"type": "string", "enum": ["b", "c"]},
        ),
        (
            [{"type": ["string", "null"]}, {"type": ["null", "string"]}],
            {"type": ["string", "null"]},
        ),
        ([{"type": "string", "pattern": "^a"}, True], {"type": "string", "pattern": "^a"}),
        (
            [{"type": "string", "description": "one"}, {"description": "other"}],
            {"type": "string", "description": "one"},
        ),
        (
            [form({"x": True}), form({"x": {"type": ["null", "string"]}})],
            closed({"x": {"type": ["null", "string"]}}),
        ),
        (
            [{"type": "string", "pattern": "^a"}, {"pattern": "b$"}],
            {"type": "string", "pattern": "^a"},
        ),
    ],
)
def test_parts_that_overlap_say_what_they_have_in_common(
    parts: list[object], expected: dict[str, object]
) -> None:
    """SCH-4: the types, values and properties that both accept; a second pattern is dropped."""
    converted = strict(form({"a": {"allOf": parts}}, "a"))
    assert converted.schema == closed({"a": expected})


def test_mc_04_definitions_of_one_name_stay_two() -> None:
    """MC-04: `definitions` and `$defs` may both have a `P`; in strict form they are told apart."""
    schema = form({"p": {"$ref": "#/definitions/P"}, "q": {"$ref": "#/$defs/P"}}, "p", "q")
    schema |= {"definitions": {"P": {"type": "string"}}, "$defs": {"P": {"type": "integer"}}}
    assert strict(schema).schema["$defs"] == {"P": {"type": "string"}, "P_2": {"type": "integer"}}


def test_mc_05_a_reference_to_the_root_stays_one() -> None:
    """MC-05: the arguments may contain themselves, described or not."""
    schema = form({"kid": {"$ref": "#", "description": "k"}, "twin": {"$ref": "#"}}, "twin")
    assert strict(schema).schema == closed(
        {
            "kid": {"anyOf": [{"$ref": "#"}, {"type": "null"}], "description": "k"},
            "twin": {"$ref": "#"},
        }
    )
    assert strict(schema).restore({"kid": {"kid": None}}) == {"kid": {}}


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        (
            {"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]},
            {
                "anyOf": [
                    {"type": "string", "title": "A", "const": "a"},
                    {"type": "string", "const": "b"},
                ]
            },
        ),
        ({"anyOf": [{"type": "string"}, False]}, {"type": "string"}),
        (
            form({"x": {"type": "integer"}}, "x") | {"anyOf": [True]},
            closed({"x": {"type": "integer"}}),
        ),
        (
            form({"x": {"type": "integer"}}, "x") | {"oneOf": [{"required": ["x"]}]},
            closed({"x": {"type": "integer"}}),
        ),
        (
            {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}},
            {"type": "array", "items": {"type": "string"}},
        ),
        (
            {"type": "array", "prefixItems": [{"type": "null"}, CAR], "maxItems": 2},
            {"type": "array", "items": {"anyOf": [{"type": "null"}, strict(CAR).schema]}}
            | {"maxItems": 2},
        ),
        ({"pattern": "^a"}, {"type": "string", "pattern": "^a"}),
        (
            form({"x": {"type": "integer"}}, "x") | {"anyOf": [form({"y": {"type": "null"}}, "y")]},
            closed({"x": {"type": "integer"}, "y": {"type": "null"}}),
        ),
        (
            {"oneOf": [{"const": 1}, {"const": 2}, {"type": "null"}]},
            {
                "anyOf": [
                    {"type": "integer", "const": 1},
                    {"type": "integer", "const": 2},
                    {"type": "null"},
                ]
            },
        ),
    ],
)
def test_what_can_be_said_more_simply_is(
    member: dict[str, object], expected: dict[str, object]
) -> None:
    """SCH-4: types that are implied, unions that are none, lists whose places differ."""
    assert strict(form({"a": member}, "a")).schema == closed({"a": expected})


def test_places_of_a_list_have_their_own_way_back() -> None:
    """SCH-4: what stands for "left out" depends on the place."""
    pair = {"type": "array", "prefixItems": [form({"x": {"type": "null"}}), form({"x": CAR})]}
    schema = form({"pair": pair | {"items": form({"x": {"type": "string"}})}}, "pair")
    restored = strict(schema).restore({"pair": [{"x": None}, {"x": None}, {"x": None}]})
    assert restored == {"pair": [{"x": None}, {}, {}]}


def test_no_arguments_have_one_shape() -> None:
    """DEF-2: the open empty object becomes the closed one; a root that lists nothing stays open."""
    assert strict({"type": "object", "properties": {}, "required": []}).schema == closed({})
    assert refused({"type": "object"}).path == ""


def test_mc_02_a_property_that_must_be_absent_is_left_out() -> None:
    """MC-02: in a closed object, what `false` forbids is forbidden by not being there."""
    assert strict(form({"never": False, "n": {"type": "integer"}}, "n")).schema == closed(
        {"n": {"type": "integer"}}
    )


def test_what_the_form_says_more_weakly_is_listed() -> None:
    """SCH-3, SCH-4: the strict form asks for less, and the list says where; all is enforced."""
    schema = form(
        {
            "name": {"type": "string", "minLength": 2, "format": "uri", "pattern": "^[a-z]"},
            "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}
            | {"items": False, "uniqueItems": True},
        },
        "name",
        "pair",
        anyOf=[{"required": ["name"]}, {"required": ["pair"]}],
    )
    converted = strict(schema)
    assert {(dropped.path, dropped.keyword) for dropped in converted.dropped} == {
        ("", "anyOf"),
        ("name", "minLength"),
        ("name", "format"),
        ("pair", "prefixItems"),
        ("pair", "uniqueItems"),
    }
    assert converted.schema["properties"] == {
        "name": {"type": "string", "pattern": "^[a-z]"},
        "pair": {
            "type": "array",
            "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "maxItems": 2,
        },
    }


# ---- what has no strict form ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "member"),
    [
        ("attrs", {"type": "object", "description": "any keys"}),
        ("meta", {"type": "object", "additionalProperties": True}),
        ("counts", {"type": "object", "additionalProperties": {"type": "integer"}}),
        ("a", {"type": "object", "properties": {}}),
        ("a", {"type": "object", "patternProperties": {"^x": {"type": "string"}}}),
        ("a", form({"x": {"type": "string"}}, additionalProperties=True)),
        ("a", form({"x": {"type": "string"}}, patternProperties={"^y": {"type": "string"}})),
        ("a.b", form({"b": {"type": "object"}})),
        ("a[]", {"type": "array", "items": {"type": "object"}}),
        ("a[].b", {"type": "array", "items": form({"b": {"type": "object"}})}),
        ("a", {"anyOf": [{"type": "string"}, {"type": "object"}]}),
        ("a", {"type": ["object", "string"]}),
        ("a", {}),
        ("a", True),
        ("a", {"type": "array"}),
        ("a", {"type": "array", "items": True}),
        ("a", {"enum": [{"x": 1}]}),
        ("a", {"allOf": [{"type": "string"}, {"type": "integer"}]}),
        ("a", {"allOf": [{"type": "string"}, False]}),
        ("a", {"allOf": [{"type": "string"} for _ in range(200)]}),
        ("a", {"anyOf": [False]}),
        ("a", {"oneOf": [True, {"type": "string"}]}),
        ("a", {"$dynamicRef": "#"}),
        ("a", {"$ref": "#", "properties": {"x": {"type": "string"}}}),
        ("a.y", form({"x": {"type": "integer"}}) | {"anyOf": [form({"y": {"type": "object"}})]}),
        ("a", {"type": "array", "prefixItems": [{"type": "string"}]}),
        ("a", {"oneOf": [form({f"p{i}": {"type": "string"}}, f"p{i}") for i in range(101)]}),
        ("a", {"oneOf": [{"type": "integer"}, {"type": "number"}]}),
        ('["odd name"]', {"type": "object"}),
    ],
)
def test_what_the_form_cannot_say_is_refused_with_its_path(path: str, member: object) -> None:
    """ST-04: never a silently closed empty object; the path and what would have a form are told."""
    name = path.partition(".")[0].partition("[]")[0].strip('["]')
    reason = refused(form({"target": {"type": "string"}, name: member}, "target", name))
    assert reason.path == path
    assert "no strict form" in reason.reason
    assert ";" in reason.reason
    assert str(reason) == f"{path}: {reason.reason}"


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [CAR, BIKE]},
        {"type": "object", "oneOf": [CAR, BIKE]},
        {"type": "string"},
        form({"a": {"type": "string"}}, "a", "b"),
        form({"never": False}, "never"),
        True,
    ],
)
def test_a_root_that_is_no_plain_object_has_no_strict_form(schema: dict[str, object]) -> None:
    """SCH-4: the arguments of a strict tool are one object, and it lists what it requires."""
    reason = to_strict(schema)
    assert isinstance(reason, NotStrict)
    assert reason.reason


def test_what_grows_too_large_when_written_out_is_refused() -> None:
    """SCH-2, SCH-4: described references are written out, and so could be without end."""
    definitions: dict[str, object] = {
        f"A{level}": form(
            {
                name: {"$ref": f"#/$defs/A{level + 1}", "description": name}
                for name in ("x", "y", "z")
            },
        )
        for level in range(40)
    }
    definitions["A40"] = {"type": "string"}
    reason = refused(form({"a": {"$ref": "#/$defs/A0"}}) | {"$defs": definitions})
    assert "grows too large" in reason.reason


def test_what_nests_too_deep_when_written_out_is_refused() -> None:
    """SCH-2, SCH-4: a chain of described references ends in a reason, not in a stack."""
    definitions: dict[str, object] = {
        f"A{level}": form({"x": {"$ref": f"#/$defs/A{level + 1}", "description": "x"}})
        for level in range(900)
    }
    definitions["A900"] = {"type": "string"}
    reason = refused(form({"a": {"$ref": "#/$defs/A0"}}) | {"$defs": definitions})
    assert "grows too large" in reason.reason


def test_a_schema_that_cannot_be_read_is_an_error() -> None:
    """SCH-1: that a schema is wrong is another thing than that it has no strict form."""
    for member in ({"$ref": "https://example.org/a"}, {"type": "strng"}, {"pattern": "("}):
        with pytest.raises(InvalidSchema):
            to_strict(form({"a": member}))


# ---- the way back --------------------------------------------------------------------------------

BACK = form(
    {
        "path": {"type": "string"},
        "limit": {"type": "integer"},
        "mode": {"type": ["string", "null"]},
        "deep": form({"x": {"type": "integer"}, "y": {"anyOf": [{"type": "null"}]}}),
        "rows": {"type": "array", "items": form({"cell": {"type": "string"}})},
        "tree": {"$ref": "#/$defs/T"},
        "pet": {"anyOf": [CAR | {"required": ["kind"]}, BIKE | {"required": ["kind"]}]},
    },
    "path",
) | {"$defs": {"T": form({"kids": {"type": "array", "items": {"$ref": "#/$defs/T"}}})}}


def test_the_nulls_that_stand_for_left_out_are_taken_away_and_no_other() -> None:
    """SCH-4: where the schema itself accepts null, null is a value and stays."""
    restore = strict(BACK).restore
    arguments: dict[str, object] = {
        "path": "a",
        "limit": None,
        "mode": None,
        "deep": {"x": None, "y": None},
        "rows": [{"cell": None}, {"cell": "c"}],
        "tree": {"kids": [{"kids": None}]},
        "pet": {"kind": "bike", "gears": None},
    }
    before = copy.deepcopy(arguments)
    assert restore(arguments) == {
        "path": "a",
        "mode": None,
        "deep": {"y": None},
        "rows": [{}, {"cell": "c"}],
        "tree": {"kids": [{}]},
        "pet": {"kind": "bike"},
    }
    assert arguments == before
    assert restore.left_out(arguments) == (
        "limit",
        "deep.x",
        "rows[0].cell",
        "tree.kids[0].kids",
        "pet.gears",
    )
    assert compile(BACK).is_valid(restore(arguments))


def test_arguments_that_need_no_way_back_come_back_as_they_are() -> None:
    """SCH-4: a repair is recorded only when there was one."""
    restore = strict(BACK).restore
    assert restore({"path": "a", "mode": None}) == {"path": "a", "mode": None}
    assert restore.left_out({"path": "a", "mode": None}) == ()
    assert restore({"path": 1, "rows": "x", "other": None}) == {
        "path": 1,
        "rows": "x",
        "other": None,
    }


def test_arguments_that_fit_no_branch_are_taken_for_the_likeliest() -> None:
    """SCH-4: a provider may not keep to the form; what can be taken back is, and nothing breaks."""
    bike = BIKE | {"required": ["kind"]}
    nested = {"anyOf": [{"type": "boolean"}, {"type": "null"}]}
    member = {"anyOf": [nested, {"enum": ["x"]}, CAR, {"$ref": "#/$defs/B"}]}
    restore = strict(form({"u": member}, "u") | {"$defs": {"B": bike}}).restore
    assert restore({"u": {"kind": "bike", "gears": None, "bell": 1}}) == {
        "u": {"kind": "bike", "bell": 1}
    }
    assert restore({"u": 7}) == {"u": 7}
    assert restore({"u": "y"}) == {"u": "y"}


def test_the_branch_of_a_union_is_found_by_its_names() -> None:
    """SCH-4: the same null is a value in one alternative and "left out" in the other."""
    one = form({"a": {"type": "string"}, "n": {"type": ["integer", "null"]}}, "a", "n")
    other = form({"b": {"type": "string"}, "n": {"type": "integer"}}, "b")
    wider = form({"a": {"type": "string"}, "n": {"type": "integer"}, "w": {"type": "null"}}, "a")
    restore = strict(form({"u": {"anyOf": [wider, one, other]}}, "u")).restore
    assert restore({"u": {"a": "x", "n": None}}) == {"u": {"a": "x", "n": None}}
    assert restore({"u": {"b": "x", "n": None}}) == {"u": {"b": "x"}}


# ---- converting itself ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        BACK,
        form({"x": form({}, additionalProperties=True), "y": {"type": "string"}}),
        form({"a": {"$ref": "#/$defs/D", "description": "d"}}, "a")
        | {"$defs": {"D": form({"b": {"type": "integer", "default": 1}})}},
    ],
)
def test_st_07_converting_never_changes_its_input_nor_itself(schema: dict[str, object]) -> None:
    """ST-07, SCH-6: the input is untouched, also by a failure; two conversions are equal."""
    before = copy.deepcopy(schema)
    first, second = to_strict(schema), to_strict(schema)
    assert schema == before
    assert first == second
    if isinstance(first, Converted):
        again = strict(first.schema)
        assert again.schema == first.schema
        assert again.dropped == ()


def test_a_definition_may_be_called_anything() -> None:
    """SCH-4: a reference in strict form needs no escapes, and no two definitions become one."""
    names = ("a/b", "a~b", "a b", "ä")
    schema = form({str(i): {"$ref": "#/$defs/" + escaped(name)} for i, name in enumerate(names)})
    schema |= {"$defs": {name: form({"x": {"const": name}}, "x") for name in names}}
    converted = strict(schema).schema
    assert breaches(converted) == []
    assert isinstance(converted["$defs"], dict)
    assert len(converted["$defs"]) == 4
    assert compile(converted).is_valid({"0": {"x": "a/b"}, "1": {"x": "a~b"}, "2": None, "3": None})


def escaped(name: str) -> str:
    """Return a name as it stands in a pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def test_what_is_done_to_the_form_does_not_reach_the_way_back() -> None:
    """DEF-4: the schema may be edited for a provider; restoring does not depend on it."""
    converted = strict(BACK)
    spoil(converted.schema)
    assert converted.restore({"path": "a", "pet": {"kind": "bike", "gears": None}}) == {
        "path": "a",
        "pet": {"kind": "bike"},
    }


def spoil(value: object) -> None:
    """Empty a JSON value and everything in it."""
    if isinstance(value, (dict, list)):
        for item in list(value.values() if isinstance(value, dict) else value):
            spoil(item)
        value.clear()


def test_st_07_two_tools_that_share_definitions_stay_apart() -> None:
    """ST-07, SCH-6: what one conversion makes of a shared definition, the other does not see."""
    shared: dict[str, object] = {"D": form({"b": {"type": "integer"}})}
    one = form({"a": {"$ref": "#/$defs/D"}}, "a") | {"$defs": shared}
    other = form({"z": {"$ref": "#/$defs/D"}}) | {"$defs": shared}
    made = strict(one).schema
    made["$defs"] = "spoiled"
    assert strict(other).schema["$defs"] == {"D": closed({"b": {"type": ["integer", "null"]}})}
    assert shared == {"D": form({"b": {"type": "integer"}})}


SCALARS: st.SearchStrategy[dict[str, object]] = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer", "minimum": 0},
        {"type": ["number", "null"]},
        {"type": "boolean", "description": "b"},
        {"enum": ["a", "b"]},
        {"const": 1},
        {"type": "string", "format": "date", "minLength": 1},
    ]
)
NAMES = st.sampled_from(["a", "b", "c d", "e"])


def objects(members: st.SearchStrategy[dict[str, object]]) -> st.SearchStrategy[dict[str, object]]:
    """Return a strategy for object schemas with some of their properties required."""
    properties = st.dictionaries(NAMES, members, min_size=1)
    return st.builds(
        lambda known, picked: form(known, *(name for name in known if name in picked)),
        properties,
        st.sets(NAMES),
    )


SCHEMAS = objects(
    st.recursive(
        SCALARS,
        lambda inner: (
            objects(inner)
            | st.builds(lambda items: {"type": "array", "items": items}, inner)
            | st.builds(lambda one: {"anyOf": [one, {"type": "null"}]}, inner)
        ),
        max_leaves=6,
    )
)


@given(schema=SCHEMAS, data=st.data())
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_what_strict_form_describes_comes_back_as_what_the_schema_describes(
    schema: dict[str, object], data: st.DataObject
) -> None:
    """SCH-3, SCH-4: every value of the strict form is, once restored, valid for the original."""
    converted = strict(schema)
    assert breaches(converted.schema) == []
    sample = data.draw(objects_of(converted.schema))
    restored = converted.restore(sample)
    assert compile(converted.schema).is_valid(sample)
    remaining = compile(schema).problems(restored)
    assert {problem.rule for problem in remaining} <= {"minLength", "format"}
    full = {name: sample.get(name) for name in sample}
    assert (restored == full) is not bool(converted.restore.left_out(sample))


# ---- real tools ----------------------------------------------------------------------------------


def test_every_rule_of_the_checker_can_be_broken() -> None:
    """The checker itself: each rule finds what it is for."""
    broken: dict[str, object] = closed(
        {
            "open": form({"x": {"type": "string"}}, "x"),
            "optional": form({"x": {"type": "string"}}, additionalProperties=False),
            "any": {},
            "long": {"type": "string", "minLength": 2},
            "uri": {"type": "string", "format": "uri", "default": "x"},
            "away": {"$ref": "https://example.org"},
            "beside": {"$ref": "#", "description": "d"},
            "one": {"oneOf": [{"type": "string"}]},
            "fixed": {"type": "object", "const": {}} | closed({}),
        }
    )
    found = {breach.rule for breach in breaches(broken | {"anyOf": []})}
    assert found == set(RULES)


def server_tools() -> Iterator[tuple[str, dict[str, object]]]:
    """Find every tool of the eleven servers."""
    for path in sorted((CORPUS / "mcp-tools").glob("*.json")):
        for tool in json.loads(path.read_text(encoding="utf-8"))["tools"]:
            yield f"{path.stem}/{tool['name']}", foreign(tool["inputSchema"])


def benchmark_tools() -> Iterator[tuple[str, dict[str, object]]]:
    """Find every distinct definition of the benchmark, its types named as JSON Schema does."""
    seen: set[str] = set()
    for path in sorted((CORPUS / "bfcl").glob("*.json")):
        for line in path.read_text(encoding="utf-8").splitlines():
            for function in json.loads(line)["function"]:
                written = json.dumps(function, sort_keys=True)
                if written not in seen:
                    seen.add(written)
                    yield function["name"], standard(function["parameters"])


TYPES = {"dict": "object", "float": "number", "tuple": "array"}


def standard(node: object) -> dict[str, object]:
    """Return a schema of the benchmark with standard type names; "any" is no type at all."""
    assert isinstance(node, dict)
    schema: dict[str, object] = {}
    for name, member in node.items():
        if name == "type":
            if member != "any":
                schema[name] = TYPES.get(member, member)
        elif name == "properties":
            schema[name] = {inner: standard(one) for inner, one in member.items()}
        elif name in {"items", "additionalProperties"} and isinstance(member, dict):
            schema[name] = standard(member)
        elif name != "optional":
            schema[name] = member
    return schema


ALL = (*server_tools(), *benchmark_tools())


def test_the_corpora_are_there() -> None:
    """Nothing below passes because a file is missing."""
    assert len([name for name, _ in ALL if "/" in name]) == 129
    assert len(ALL) == 129 + 1374


def test_every_real_tool_has_a_strict_form_that_the_rules_accept_or_a_reason() -> None:
    """SCH-4: the published rules accept each form; each reason names the shape that has none."""
    forms = 0
    for name, schema in ALL:
        converted = to_strict(schema)
        if isinstance(converted, NotStrict):
            assert inexpressible(schema, converted.path), (name, converted)
        else:
            forms += 1
            assert breaches(converted.schema) == [], name
            assert strict(converted.schema).schema == converted.schema, name
    assert forms > 1_300


def test_a_definition_keeps_its_digest_through_every_conversion() -> None:
    """DEF-3, SCH-6: converting reads; what is identified by the schema stays what it was."""
    for name, schema in ALL:
        definition = Definition("tool", name, input_schema=schema)
        before = definition.digest
        to_strict(definition.input_schema)
        compile(definition.input_schema)
        assert definition.digest == before
        assert Definition.from_json(definition.to_json()).digest == before


@pytest.mark.parametrize(
    ("name", "schema"), list(server_tools()), ids=lambda value: str(value)[:60]
)
def test_a_sample_of_a_real_strict_form_comes_back_valid(
    name: str, schema: dict[str, object]
) -> None:
    """SCH-4: what a provider may send for a real tool is what the tool takes, once restored."""
    converted = to_strict(schema)
    if isinstance(converted, NotStrict):
        return
    validator = compile(schema)
    weaker = {dropped.keyword for dropped in converted.dropped}
    if not weaker.isdisjoint({"anyOf", "dependentRequired", "else", "if", "then"}):
        weaker |= {"required"}  # what a dropped condition asks for

    @given(objects_of(converted.schema))
    @settings(
        max_examples=3,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def check(sample: dict[str, object]) -> None:
        problems = validator.problems(converted.restore(sample))
        assert {problem.rule for problem in problems} <= weaker, name

    check()


def inexpressible(schema: Mapping[str, object], path: str) -> bool:
    """Say whether the shape at a path is one that SCH-4 cannot express."""
    return any(map(has_no_form, places(schema, schema, path.replace("[]", ".[]").split("."))))


def places(
    root: Mapping[str, object], node: object, steps: list[str], hops: int = 20
) -> Iterator[Mapping[str, object]]:
    """Find the schemas that a path may mean, through references and alternatives."""
    if not isinstance(node, dict) or hops == 0:
        return
    if isinstance(reference := node.get("$ref"), str):
        target: object = root
        for token in reference.removeprefix("#/").split("/"):
            assert isinstance(target, dict)
            target = target[token]
        yield from places(root, target, steps, hops - 1)
    for keyword in ("anyOf", "oneOf", "allOf"):
        for branch in node.get(keyword, ()):
            yield from places(root, branch, steps, hops - 1)
    if not steps or steps == [""]:
        yield node
    elif steps[0] == "[]":
        yield from places(root, node.get("items"), steps[1:], hops - 1)
    else:
        members = node.get("properties", {})
        yield from places(root, members.get(steps[0]), steps[1:], hops - 1)


def has_no_form(node: Mapping[str, object]) -> bool:
    """Say whether a schema is a map, free-form, a list of anything, any value, or overlaps."""
    types = node.get("type")
    named = types if isinstance(types, list) else [types]
    if "oneOf" in node:
        return True
    if "object" in named:
        return node.get("additionalProperties", not node.get("properties")) is not False
    if "array" in named:
        return "items" not in node
    return not node.keys() & {"type", "enum", "const", "anyOf", "$ref", "allOf", "properties"}


# ---- limits --------------------------------------------------------------------------------------


def nested(levels: int) -> dict[str, object]:
    """Return a strict schema with objects inside each other."""
    schema: dict[str, object] = closed({"leaf": {"type": "string"}})
    for _ in range(levels - 1):
        schema = closed({"x": schema})
    return schema


def row(**limits: int | None) -> ProviderLimits:
    """Return a row of the table for a provider of our own."""
    return ProviderLimits(source="here", checked="today", name=64, **limits)


@pytest.mark.parametrize(
    ("limits", "schema", "finding"),
    [
        (row(depth=5), nested(5), None),
        (
            row(depth=5),
            nested(6),
            Finding(path="x.x.x.x.x", what="objects inside each other", measured=6, limit=5),
        ),
        (row(properties=100), closed({f"p{i}": {"type": "null"} for i in range(100)}), None),
        (
            row(properties=100),
            closed({f"p{i}": {"type": "null"} for i in range(101)}),
            Finding(path="", what="properties in all", measured=101, limit=100),
        ),
        (
            row(enum_values=3),
            closed({"a": {"enum": [1, 2]}, "b": {"enum": [3, 4]}}),
            Finding(path="", what="enum values in all", measured=4, limit=3),
        ),
        (
            row(long_enum=2, long_enum_text=5),
            closed({"a": {"type": "array", "items": {"enum": ["ab", "cd", "ef"]}}}),
            Finding(
                path="a[]",
                what="characters in an enum of more than 2 values",
                measured=6,
                limit=5,
            ),
        ),
        (row(long_enum=3, long_enum_text=5), closed({"a": {"enum": ["ab", "cd", "ef"]}}), None),
        (
            row(depth=1),
            closed({"a": {"anyOf": [closed({"b": {"type": "null"}}), {"type": "null"}]}}),
            Finding(path="a", what="objects inside each other", measured=2, limit=1),
        ),
        (
            row(unions=0),
            closed({"a": {"type": ["string", "null"]}}),
            Finding(path="", what="properties with several types", measured=1, limit=0),
        ),
        (
            row(text=5),
            closed({"ab": {"const": "cd"}, "ef": {"enum": ["g"]}}),
            Finding(path="", what="characters of names and values in all", measured=7, limit=5),
        ),
    ],
)
def test_a_breach_of_a_limit_is_a_finding(
    limits: ProviderLimits, schema: dict[str, object], finding: Finding | None
) -> None:
    """ST-08: path, what was measured and the limit; the table is data and can be overridden."""
    assert findings("tool", schema, limits) == (() if finding is None else (finding,))


def test_st_08_a_name_that_a_provider_cannot_take_is_a_finding() -> None:
    """ST-08: the length of the name is one of the limits."""
    (finding,) = findings("n" * 100, closed({}), PROVIDERS["openai"])
    assert str(finding) == "100 characters in the name, and 64 are allowed"


def test_st_08_the_table_is_dated_and_says_where_its_numbers_are_from() -> None:
    """ST-08: a number without a source and a day is a rumour."""
    assert {"openai", "anthropic", "gemini"} <= PROVIDERS.keys()
    assert all(limits.source and limits.checked for limits in PROVIDERS.values())


def test_st_08_definitions_count_once() -> None:
    """ST-08: measuring follows no reference, so it is linear in the schema."""
    schema = closed({"a": {"$ref": "#/$defs/D"}, "b": {"$ref": "#/$defs/D"}}) | {
        "$defs": {"D": closed({"x": {"type": "string"}})}
    }
    assert findings("tool", schema, row(properties=2))[0].measured == 3
