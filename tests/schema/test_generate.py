"""Three forms of one shape: what a schema says, in which order, and what has no strict form."""

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import annotated_types
import msgspec
import pytest
from pydantic import BaseModel, Field, HttpUrl, SecretStr
from typing_extensions import Doc

from ferrule.schema import compile
from ferrule.schema._generate import Form, NotStrictError, generate
from ferrule.schema._reflect import reflect
from ferrule.schema._types import shape_of
from support import called


def schema_of(hint: object, form: Form = "closed", *, widen_optional: bool = True) -> Any:  # noqa: ANN401
    """Return the schema of a type."""
    shape = shape_of(hint, where="the type")
    return generate(shape, form=form, widen_optional=widen_optional)


class Role(enum.Enum):
    """Strings."""

    ADMIN = "admin"
    GUEST = "guest"


class Level(enum.IntEnum):
    """Integers, not in order."""

    HIGH = 3
    LOW = 1


class Point(NamedTuple):
    """Two numbers and a name."""

    x: float
    y: float
    name: str = ""


@dataclasses.dataclass
class Node:
    """A class that contains itself."""

    value: int
    children: list["Node"] = dataclasses.field(default_factory=list)


class Car(BaseModel):
    """One of two."""

    kind: Literal["car"]
    doors: int


class Bike(BaseModel):
    """The other."""

    kind: Literal["bike"]
    gears: int


class Get(msgspec.Struct, tag="get"):
    """One of two structs with a tag."""

    key: str


class Put(msgspec.Struct, tag="put"):
    """The other."""

    key: str
    value: int


TABLE: list[tuple[object, dict[str, object]]] = [
    (bool, {"type": "boolean"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (str, {"type": "string"}),
    (None, {"type": "null"}),
    (Any, {}),
    (Path, {"type": "string"}),
    (dt.datetime, {"type": "string", "format": "date-time"}),
    (dt.date, {"type": "string", "format": "date"}),
    (dt.time, {"type": "string", "format": "time"}),
    (uuid.UUID, {"type": "string", "format": "uuid"}),
    (Literal["b", "a"], {"type": "string", "enum": ["b", "a"]}),
    (Literal[True], {"type": "boolean", "enum": [True]}),
    (
        Literal["a", None, 1],  # noqa: PYI061  # None among the values is the point
        {"type": ["string", "integer", "null"], "enum": ["a", 1, None]},
    ),
    (Role, {"type": "string", "enum": ["admin", "guest"]}),
    (Level, {"type": "integer", "enum": [3, 1]}),
    (int | None, {"type": ["integer", "null"]}),
    (Role | None, {"type": ["string", "null"], "enum": ["admin", "guest", None]}),
    (Any | None, {}),
    (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    (
        int | None | str,
        {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
    ),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (list, {"type": "array", "items": {}}),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
    (
        tuple[int, int],
        {"type": "array", "items": {"type": "integer"}, "maxItems": 2, "minItems": 2},
    ),
    (
        tuple[int, str],
        {
            "type": "array",
            "maxItems": 2,
            "minItems": 2,
            "prefixItems": [{"type": "integer"}, {"type": "string"}],
        },
    ),
    (tuple[()], {"type": "array", "maxItems": 0, "minItems": 0}),
    (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (Mapping[str, Any], {"type": "object", "additionalProperties": {}}),
    (
        dict[Role, int],
        {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "propertyNames": {"type": "string", "enum": ["admin", "guest"]},
        },
    ),
    (
        Point,
        {
            "type": "array",
            "maxItems": 3,
            "minItems": 2,
            "prefixItems": [{"type": "number"}, {"type": "number"}, {"type": "string"}],
        },
    ),
]


@pytest.mark.parametrize(("hint", "schema"), TABLE, ids=called)
def test_a_type_has_one_schema(hint: object, schema: dict[str, object]) -> None:
    """FN-2, SCH-5: each type in its one form, with its members in the one order."""
    made = schema_of(hint)
    assert made == schema
    assert list(made) == list(schema)


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (decimal.Decimal, ["1", "-1.50", ".5", "1e9"], ["NaN", "Infinity", "1_0", " 1", "", 1.5]),
        (bytes, ["", "aGk=", "QUJD"], ["aGk", "aGl=", "a=Gk", "_-8=", "aG k="]),
        (dt.timedelta, ["PT1H", "P1DT2H3M4S", "P3D"], ["P1Y", "P1M", "P1W", "5", 5, "P0.5D", "P"]),
    ],
)
def test_a_text_form_is_as_narrow_as_its_decoder(
    hint: object, good: list[object], bad: list[object]
) -> None:
    """SCH-3: what a pattern can say is in the schema, and not found out by the decoder."""
    validator = compile(schema_of(hint))
    assert [value for value in good if not validator.is_valid(value)] == []
    assert [value for value in bad if validator.is_valid(value)] == []


def test_members_of_a_schema_stand_in_one_order() -> None:
    """SCH-5: type, description, format, enum, properties, required, items, then the rest sorted."""
    hint = Annotated[
        Role,
        msgspec.Meta(
            description="d", title="T", extra_json_schema={"examples": ["admin"], "$id": "x"}
        ),
    ]
    assert list(schema_of(hint)) == ["type", "description", "enum", "$id", "examples", "title"]


def test_properties_and_required_stand_in_declaration_order() -> None:
    """SCH-5, agenttool 4: also when an optional one comes between."""

    def move(z: int, a: int = 1, *, m: str, b: bool = False) -> None: ...

    schema: Any = generate(reflect(move))
    assert list(schema["properties"]) == ["z", "a", "m", "b"]
    assert schema["required"] == ["z", "m"]


def test_no_arguments_has_one_shape_per_form() -> None:
    """DEF-2: open, closed and strict differ in `additionalProperties` alone."""

    def ping() -> None: ...

    bare = {"type": "object", "properties": {}, "required": []}
    closed = {**bare, "additionalProperties": False}
    signature = reflect(ping)
    assert generate(signature, form="open") == bare
    assert generate(signature) == generate(signature, form="strict") == closed


def test_the_closed_form_closes_every_depth_and_the_open_form_none() -> None:
    """SCH-4: objects made from a class, in lists, maps and unions."""

    class Inner(TypedDict):
        a: int

    class Outer(TypedDict):
        many: list[Inner]
        by_name: dict[str, Inner]
        maybe: Inner | None

    closed, opened = (json.dumps(schema_of(Outer, form)) for form in ("closed", "open"))
    assert closed.count('"additionalProperties": false') == 4
    assert "false" not in opened


def test_a_default_is_in_the_schema_where_json_can_say_it() -> None:
    """SCH-4: plain, enum, list and path defaults; None and a time without a zone are not."""

    def make(  # noqa: PLR0913, PLR0917  # one of each
        count: int = 3,
        role: Role = Role.GUEST,
        names: list[str] = ["a"],  # noqa: B006  # a mutable default is the point
        where: Path = Path("x"),
        day: dt.date = dt.date(2031, 5, 17),
        when: dt.datetime = dt.datetime(2031, 5, 17),  # noqa: DTZ001  # without a zone is the point
        limit: int | None = None,
        wrong: int = "auto",  # type: ignore[assignment]  # the point
        by_name: dict[str, int] = {"a": 1},  # noqa: B006  # a mutable default is the point
        ratio: float = float("inf"),
        other: Role = "nobody",  # type: ignore[assignment]  # the point
        free: Any = "x",  # noqa: ANN401  # the point
        deep: list[Any] = [1, object()],  # noqa: B006, B008  # a mutable default is the point
    ) -> None: ...

    properties: Any = generate(reflect(make))["properties"]
    found = {name: part["default"] for name, part in properties.items() if "default" in part}
    assert found == {
        "count": 3,
        "role": "guest",
        "names": ["a"],
        "where": "x",
        "day": "2031-05-17",
        "by_name": {"a": 1},
        "free": "x",
    }
    assert "default" not in json.dumps(
        generate(reflect(functools.partial(make, by_name={})), form="strict")
    )


def test_a_default_is_not_shared_with_the_schema() -> None:
    """DEF-4: who changes a schema changes nothing else."""

    def make(names: list[str] = ["a"]) -> list[str]:  # noqa: B006  # a mutable default is the point
        return names

    signature = reflect(make)
    first: Any = generate(signature)
    first["properties"]["names"]["default"].append("b")
    first["required"].append("x")
    second: Any = generate(signature)
    assert second["properties"]["names"]["default"] == ["a"]
    assert second["required"] == []


def test_generating_twice_gives_the_same_bytes() -> None:
    """SCH-5: deterministic, also of recursive types."""
    assert json.dumps(schema_of(Node)) == json.dumps(schema_of(Node))


# ---- recursion -----------------------------------------------------------------------------------


def test_a_recursive_type_is_written_once_and_its_root_is_an_object() -> None:
    """SCH-5, DEF-2, C16: `$defs` only for recursion; the root says its type itself."""
    schema = schema_of(Node)
    assert schema["type"] == "object"
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert list(schema["$defs"]) == ["Node"]
    validator = compile(schema)
    assert validator.is_valid({"value": 1, "children": [{"value": 2, "children": []}]})
    assert not validator.is_valid({"value": 1, "children": [{"value": "2"}]})


def test_a_class_used_twice_is_written_twice() -> None:
    """SCH-5: classes are inlined unless recursive."""

    class Pair(TypedDict):
        left: Point
        right: Point

    assert "$ref" not in json.dumps(schema_of(Pair))


def test_two_recursive_classes_of_one_name_have_two_names() -> None:
    """SCH-5: the second gets a number, in order of appearance."""

    def other() -> type:
        @dataclasses.dataclass
        class Node:
            next: "Node | None" = None

        return Node

    found = other()

    @dataclasses.dataclass
    class Both:
        first: Node
        second: found  # type: ignore[valid-type]  # made at run time

    schema = schema_of(Both)
    assert list(schema["$defs"]) == ["Node", "Node_2"]
    assert schema["properties"]["second"] == {"$ref": "#/$defs/Node_2"}


# ---- constraints ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "keywords"),
    [
        (Annotated[int, annotated_types.Ge(1), annotated_types.Lt(9)], (1, 8, 0, 9)),
        (Annotated[int, annotated_types.Interval(ge=1, le=8)], (1, 8, 0, 9)),
        (Annotated[int, Field(ge=1, le=8)], (1, 8, 0, 9)),
        (Annotated[int, msgspec.Meta(gt=0, lt=9)], (1, 8, 0, 9)),
        (Annotated[float, annotated_types.MultipleOf(0.5)], (1.5, 2, 0.3, 0.7)),
        (Annotated[str, annotated_types.Len(2, 3)], ("ab", "abc", "a", "abcd")),
        (Annotated[str, Field(min_length=2, pattern="^a")], ("ab", "abc", "a", "ba")),
        (Annotated[list[int], annotated_types.MinLen(1)], ([1], [1, 2], [], [])),
        (Annotated[dict[str, int], Field(max_length=1)], ({}, {"a": 1}, {"a": 1, "b": 2}, 1)),
        (Annotated[int | None, annotated_types.Ge(1)], (1, None, 0, -1)),
    ],
    ids=called,
)
def test_a_constraint_is_in_the_schema_and_enforced(
    hint: object, keywords: tuple[object, ...]
) -> None:
    """FN-2, C7: `annotated_types`, `pydantic.Field` and `msgspec.Meta` alike."""
    validator = compile(schema_of(hint))
    good, bad = keywords[:2], keywords[2:]
    assert all(validator.is_valid(value) for value in good)
    assert not any(validator.is_valid(value) for value in bad)


def test_constraints_of_several_layers_add_up() -> None:
    """FN-2: the narrower of two bounds holds."""
    positive = Annotated[int, annotated_types.Ge(0)]
    schema = schema_of(Annotated[positive, annotated_types.Ge(-5), annotated_types.Le(3)])
    assert schema == {"type": "integer", "maximum": 3, "minimum": 0}


def test_constraints_are_in_the_schema_at_every_depth() -> None:
    """FN-2: in a list of a union in a class."""

    class Box(TypedDict):
        sizes: list[Annotated[int, annotated_types.Gt(0)] | None]

    items = schema_of(Box)["properties"]["sizes"]["items"]
    assert items == {"type": ["integer", "null"], "exclusiveMinimum": 0}


def test_text_beside_a_type_is_its_description() -> None:
    """SCH-5: `Doc`, `Field` and `Meta`; the annotation wins over the docstring."""

    def f(
        a: Annotated[int, Doc("A.")],
        b: Annotated[int, Field(description="B.")],
        c: Annotated[int, msgspec.Meta(description="C.")],
        d: int,
    ) -> None:
        """
        Do.

        Args:
            a: Not this.
            d: D.
        """

    properties: Any = generate(reflect(f))["properties"]
    assert [part["description"] for part in properties.values()] == ["A.", "B.", "C.", "D."]


# ---- the strict form -----------------------------------------------------------------------------


def test_st_01_a_described_enum_has_no_reference_and_no_sibling() -> None:
    """ST-01: the target is inlined, its text kept, no default, no unused definition."""

    def set_role(role: Annotated[Role, Doc("new role")] = Role.GUEST) -> None: ...

    assert generate(reflect(set_role), form="strict") == {
        "type": "object",
        "properties": {
            "role": {
                "type": ["string", "null"],
                "description": "new role",
                "enum": ["admin", "guest", None],
            }
        },
        "required": ["role"],
        "additionalProperties": False,
    }


def test_st_01_a_described_recursive_class_keeps_its_text_beside_no_reference() -> None:
    """ST-01: the reference is wrapped where it cannot be inlined."""

    def grow(root: Annotated[Node, Doc("the root")]) -> None: ...

    schema: Any = generate(reflect(grow), form="strict")
    root = schema["properties"]["root"]
    assert root == {"description": "the root", "anyOf": [{"$ref": "#/$defs/Node"}]}
    assert schema["$defs"]["Node"]["required"] == ["value", "children"]


def test_st_03_a_discriminated_union_is_one_of_and_in_strict_any_of() -> None:
    """ST-03: nested in a list; `discriminator` nowhere."""

    def park(items: list[Annotated[Car | Bike, Field(discriminator="kind")]]) -> None: ...

    signature = reflect(park)
    closed: Any = generate(signature)
    strict: Any = generate(signature, form="strict")
    assert len(closed["properties"]["items"]["items"]["oneOf"]) == 2
    assert len(strict["properties"]["items"]["items"]["anyOf"]) == 2
    assert "oneOf" not in json.dumps(strict)
    assert "discriminator" not in json.dumps([closed, strict])
    assert not compile(closed).is_valid({"items": [{"kind": "car", "gears": 1}]})


def test_tagged_structs_are_told_apart_by_their_tag() -> None:
    """FN-2: a tagged union of structs is disjoint, and says its tag."""
    schema = schema_of(Get | Put)
    assert [branch["properties"]["type"]["enum"] for branch in schema["oneOf"]] == [
        ["get"],
        ["put"],
    ]
    assert schema["oneOf"][1]["required"] == ["type", "key", "value"]


@pytest.mark.parametrize(
    ("hint", "path"),
    [
        (dict[str, Any], "x"),
        (list[dict[str, int]], "x[]"),
        (Node | dict[str, int], "x"),
        (tuple[int, dict[str, int]], "x[1]"),
    ],
)
def test_st_04_a_map_has_no_strict_form_and_says_where(hint: object, path: str) -> None:
    """ST-04: never a silently closed empty object."""

    class Holder(TypedDict):
        x: hint  # type: ignore[valid-type]  # made at run time

    with pytest.raises(NotStrictError, match="free names") as caught:
        schema_of(Holder, "strict")
    assert caught.value.path == path
    assert path in str(caught.value)


def test_st_04_further_keyword_arguments_have_no_strict_form() -> None:
    """ST-04, FN-3: `**labels: str` opens the root."""

    def label(**labels: str) -> None: ...

    with pytest.raises(NotStrictError, match="further names") as caught:
        generate(reflect(label), form="strict")
    assert caught.value.path == ""
    assert "at the root" in str(caught.value)


def test_st_05_every_object_of_the_strict_form_is_closed_and_requires_all() -> None:
    """ST-05: in unions, lists and definitions; what was optional may be null."""

    class Inner(TypedDict, total=False):
        x: str

    class Outer(TypedDict, total=False):
        inner: Inner | None
        many: list[Inner]

    schema = schema_of(Outer, "strict")
    inner = {
        "type": "object",
        "properties": {"x": {"type": ["string", "null"]}},
        "required": ["x"],
        "additionalProperties": False,
    }
    assert schema == {
        "type": "object",
        "properties": {
            "inner": {**inner, "type": ["object", "null"]},
            "many": {"type": ["array", "null"], "items": inner},
        },
        "required": ["inner", "many"],
        "additionalProperties": False,
    }


def test_an_optional_property_is_widened_only_when_asked() -> None:
    """SCH-4, SCH-5: goldens of elsewhere do not widen."""

    def read(limit: int = 5) -> None: ...

    signature = reflect(read)
    wide: Any = generate(signature, form="strict")
    narrow: Any = generate(signature, form="strict", widen_optional=False)
    assert wide["properties"]["limit"] == {"type": ["integer", "null"]}
    assert narrow["properties"]["limit"] == {"type": "integer"}


# ---- schemas that a class supplies ---------------------------------------------------------------


class Supplier:
    """A class with references in its own schema."""

    @classmethod
    def json_schema(cls) -> dict[str, object]:
        """Return a schema with a definition of its own."""
        return {"$ref": "#/$defs/Name", "$defs": {"Name": {"type": "string", "minLength": 1}}}


def test_a_supplied_schema_is_served_as_it_is() -> None:
    """FN-2, agenttool 8: at the root nothing is changed, and the class's own dict is not given."""
    assert schema_of(Supplier) == Supplier.json_schema()


def test_a_supplied_schema_works_where_it_comes_to_stand() -> None:
    """FN-2, SCH-3: its references are moved with it, also beside null and in a list."""

    class Holder(TypedDict):
        one: Supplier
        maybe: Supplier | None
        many: list[Supplier]

    validator = compile(schema_of(Holder))
    assert validator.is_valid({"one": "a", "maybe": None, "many": ["b"]})
    assert not validator.is_valid({"one": "", "maybe": None, "many": ["b"]})
    assert not validator.is_valid({"one": "a", "maybe": "", "many": ["b"]})
    assert not validator.is_valid({"one": "a", "maybe": "x", "many": [""]})


class Named(msgspec.Struct):
    """A struct that brings its schema."""

    name: str

    @classmethod
    def json_schema(cls) -> dict[str, object]:
        """Return a schema with a list in it."""
        properties = {"name": {"type": "string", "enum": ["a", {"$ref": "#"}]}}
        return {"type": "object", "properties": properties, "required": ["name"]}


def test_a_supplied_schema_may_have_lists_in_it() -> None:
    """FN-2: nothing but references changes, and what a class is made of is known as well."""
    schema = schema_of(list[Named])
    assert schema["items"]["required"] == ["name"]
    assert schema["items"]["properties"]["name"]["enum"][0] == "a"


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (Annotated[Any, Doc("D.")] | None, {"description": "D."}),
        (
            Annotated[int | str, Doc("D.")] | None,
            {
                "description": "D.",
                "anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}],
            },
        ),
        (
            Literal["a", None] | None,  # noqa: PYI061  # None twice is the point
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        (int | Annotated[int, "not ours"], {"type": "integer"}),
        (SecretStr | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
    ],
    ids=called,
)
def test_null_is_let_in_once(hint: object, schema: dict[str, object]) -> None:
    """SCH-4: and the text stays where it says something."""
    made = schema_of(hint)
    for branch in made.get("anyOf", []):
        for name in ("format", "writeOnly"):
            branch.pop(name, None)
    assert made == schema


def test_an_optional_union_is_widened_by_one_branch() -> None:
    """SCH-4: null is the last alternative, not one around the others."""

    def read(limit: int | str = 5) -> None: ...

    strict: Any = generate(reflect(read), form="strict")
    branches = strict["properties"]["limit"]["anyOf"]
    assert [branch["type"] for branch in branches] == ["integer", "string", "null"]


def test_two_recursive_types_that_name_each_other_are_both_written() -> None:
    """SCH-5: a definition that only another definition needs is there."""

    @dataclasses.dataclass
    class Leaf:
        """Contains itself, and is met inside a definition alone."""

        next: "Leaf | None" = None

    @dataclasses.dataclass
    class Branch:
        """Contains itself, and the other."""

        leaf: Leaf | None = None
        next: "Branch | None" = None

    schema = schema_of(list[Branch])
    assert list(schema["$defs"]) == ["Branch", "Leaf"]
    compile(schema)


class Row(msgspec.Struct, array_like=True, tag="row"):
    """A struct that is an array, with a tag."""

    x: int
    y: int = 2


def test_a_struct_that_is_an_array_is_one() -> None:
    """FN-2: `array_like`, its tag first, its defaults at the end."""
    assert schema_of(Row) == {
        "type": "array",
        "maxItems": 3,
        "minItems": 2,
        "prefixItems": [
            {"type": "string", "enum": ["row"]},
            {"type": "integer"},
            {"type": "integer"},
        ],
    }


def test_what_only_pydantic_knows_has_pydantics_schema() -> None:
    """FN-2: without the title that pydantic makes up."""
    assert schema_of(HttpUrl) == {
        "type": "string",
        "format": "uri",
        "maxLength": 2083,
        "minLength": 1,
    }


def test_null_beside_a_composed_schema_is_an_alternative() -> None:
    """SCH-3: one more type is not one more alternative."""
    hint = Annotated[int, msgspec.Meta(extra_json_schema={"not": {"const": 3}})] | None
    validator = compile(schema_of(hint))
    assert validator.is_valid(None)
    assert validator.is_valid(4)
    assert not validator.is_valid(3)
