"""Arguments arrive as their declared types, at every depth, and nothing is guessed."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import gc
import json
import sys
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypeVar

import annotated_types
import attrs
import msgspec
import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    HttpUrl,
    RootModel,
    StringConstraints,
    Tag,
    ValidationInfo,
    create_model,
    field_validator,
)
from typing_extensions import TypedDict

from ferrule._hidden import Hidden, Inject, Within
from ferrule.errors import DeclarationError, InvalidCall
from ferrule.schema import compile
from ferrule.schema._families import convert_to, converter
from ferrule.schema._generate import generate
from ferrule.schema._reflect import reflect
from ferrule.schema._types import shape_of
from support import called

T = TypeVar("T")


class Context(Hidden):
    """What a harness gives."""


def admitted(hint: object, value: object) -> object:
    """Return a value as its type, once its schema has let it in."""
    schema = generate(shape_of(hint, where="the type"))
    assert compile(schema).is_valid(value), schema
    return convert_to(hint)(value)


def call(function: Callable[..., Any], arguments: dict[str, object], **hidden: object) -> Any:  # noqa: ANN401
    """Call a function with arguments that a model sent."""
    signature = reflect(function)
    assert compile(generate(signature)).is_valid(arguments)
    convert = converter(signature)
    args, kwargs = convert.call_parts(convert(arguments), hidden)
    return function(*args, **kwargs)


def problems(hint: object, value: object) -> list[tuple[str, str]]:
    """Return path and phrase of what a type refuses."""
    with pytest.raises(InvalidCall) as caught:
        convert_to(hint)(value)
    assert caught.value.kind == "invalid_arguments"
    return [(problem.path, problem.expected) for problem in caught.value.problems]


# ---- every type of FN-2 --------------------------------------------------------------------------


class Color(enum.Enum):
    """Strings."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    """Integers."""

    LOW = 1
    HIGH = 3


class Mixed(enum.Enum):
    """Values of several kinds, which msgspec does not take."""

    HALF = 0.5
    ALL = "all"
    NONE = None
    YES = True
    ONE_AND_A_BIT = 1.25


@dataclasses.dataclass
class Edit:
    """A dataclass."""

    old: str
    new: str = "x"
    color: Color = Color.RED


class Point(NamedTuple):
    """A NamedTuple."""

    x: float
    label: str = ""


class Options(TypedDict):
    """A TypedDict."""

    size: int
    edit: NotRequired[Edit]


class Query(msgspec.Struct, rename="camel"):
    """A struct."""

    page_size: int
    edits: list[Edit] = []


def positive(number: int) -> int:
    """Return a number without its sign."""
    return abs(number)


@attrs.define
class Range:
    """An attrs class with a converter and a validator."""

    _low: int = attrs.field(validator=attrs.validators.ge(0))
    high: int = attrs.field(converter=positive, default=-7)


@dataclasses.dataclass
class Box(Generic[T]):
    """A generic dataclass."""

    item: T


@dataclasses.dataclass
class Tree:
    """A recursive dataclass."""

    value: int
    children: list["Tree"] = dataclasses.field(default_factory=list)


class Address(BaseModel):
    """A pydantic model."""

    street: str
    raw: bytes = b""
    since: dt.date | None = None
    neighbours: list["Address"] = []


class Painted(BaseModel):
    """A model with members of an enum."""

    color: Literal[Color.RED, 3]


class Get(msgspec.Struct, tag="get"):
    """One of two tagged structs."""

    key: str


class Put(msgspec.Struct, tag="put"):
    """The other."""

    key: str


class Temperature:
    """A class that brings its schema, and takes one value."""

    def __init__(self, degrees: float) -> None:
        self.degrees = degrees

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Temperature) and other.degrees == self.degrees

    __hash__ = None  # type: ignore[assignment]  # not needed

    @classmethod
    def json_schema(cls) -> dict[str, object]:
        """Return its schema."""
        return {"type": "number", "minimum": -273.15}


class Area(Temperature):
    """A class that brings its schema, and takes members."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__(width * height)

    @classmethod
    def json_schema(cls) -> dict[str, object]:
        """Return its schema."""
        number = {"type": "number"}
        return {"type": "object", "properties": {"width": number, "height": number}}


SEVERAL = Literal["a", 1, True, None]  # noqa: PYI061  # None among the values is the point


class Row(msgspec.Struct, array_like=True, tag="row"):
    """A struct that is an array, with a tag."""

    x: int
    y: int = 2


Untyped = collections.namedtuple("Untyped", ["a", "b"])  # noqa: PYI024  # no types is the point


class Named(msgspec.Struct):
    """A struct that brings its schema."""

    name: str

    @classmethod
    def json_schema(cls) -> dict[str, object]:
        """Return its schema."""
        return {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


UTC = dt.UTC
WHEN = dt.datetime(2031, 5, 17, 9, 30, tzinfo=UTC)
ID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
EDIT = {"old": "a", "new": "b", "color": "blue"}
EDITED = Edit("a", "b", Color.BLUE)

ARRIVES: list[tuple[object, object, object]] = [
    (bool, True, True),
    (int, 5, 5),
    (int, -(2**63), -(2**63)),
    (float, 5, 5.0),
    (str, "5", "5"),
    (None, None, None),
    (Any, {"a": [1]}, {"a": [1]}),
    (SEVERAL, True, True),
    (SEVERAL, 1, 1),
    (SEVERAL, None, None),
    (Literal[Color.RED, "x"], "red", Color.RED),
    (Color, "blue", Color.BLUE),
    (Level, 3, Level.HIGH),
    (Mixed, 0.5, Mixed.HALF),
    (Mixed, None, Mixed.NONE),
    (Mixed, True, Mixed.YES),
    (int | None, None, None),
    (int | str, "5", "5"),
    (list[Edit], [EDIT], [EDITED]),
    (Sequence[Edit], [EDIT], [EDITED]),
    (tuple[Edit, ...], [EDIT], (EDITED,)),
    (tuple[int, Edit], [1, EDIT], (1, EDITED)),
    (tuple[()], [], ()),
    (tuple[int, Mixed], [1, "all"], (1, Mixed.ALL)),
    (set[Color], ["red"], {Color.RED}),
    (frozenset[tuple[int, str]], [[1, "a"]], frozenset({(1, "a")})),
    (set, ["a", 1], {"a", 1}),
    (dict[str, Edit], {"k": EDIT}, {"k": EDITED}),
    (Mapping[str, list[Edit]], {"k": [EDIT]}, {"k": [EDITED]}),
    (dict[Color, int], {"red": 1}, {Color.RED: 1}),
    (dict[Literal["a"], int], {"a": 1}, {"a": 1}),
    (Edit | None, EDIT, EDITED),
    (Edit, {"old": "a"}, Edit("a")),
    (Options, {"size": 1, "edit": EDIT}, {"size": 1, "edit": EDITED}),
    (Point, [1, "a"], Point(1.0, "a")),
    (Point, [1], Point(1.0)),
    (Query, {"pageSize": 1, "edits": [EDIT]}, Query(1, [EDITED])),
    (Range, {"_low": 1}, Range(1, -7)),
    (Box[Edit], {"item": EDIT}, Box(EDITED)),
    (Tree, {"value": 1, "children": [{"value": 2}]}, Tree(1, [Tree(2)])),
    (Get | Put, {"type": "put", "key": "a"}, Put("a")),
    (Temperature, -3, Temperature(-3)),
    (list[Area | None], [{"width": 2, "height": 3}, None], [Area(2, 3), None]),
    (dt.datetime, "2031-05-17T09:30:00Z", dt.datetime(2031, 5, 17, 9, 30, tzinfo=UTC)),
    (dt.date, "2031-05-17", dt.date(2031, 5, 17)),
    (dt.time, "09:30:00Z", dt.time(9, 30, tzinfo=UTC)),
    (dt.timedelta, "P1DT1H", dt.timedelta(days=1, hours=1)),
    (decimal.Decimal, "1.10", decimal.Decimal("1.10")),
    (uuid.UUID, str(ID), ID),
    (Path, "a/b", Path("a/b")),
    (list[Path | None], ["a", None], [Path("a"), None]),
    (bytes, "aGk=", b"hi"),
    (bytearray, "aGk=", bytearray(b"hi")),
    (Annotated[int, annotated_types.Ge(1)], 1, 1),
    (
        Address,
        {"street": "a", "raw": "aGk=", "neighbours": [{"street": "b", "since": "2031-05-17"}]},
        Address(
            street="a", raw=b"hi", neighbours=[Address(street="b", since=dt.date(2031, 5, 17))]
        ),
    ),
    (Painted, {"color": "red"}, Painted(color=Color.RED)),
    (dict[str, Address | None], {"k": {"street": "a"}}, {"k": Address(street="a")}),
    (RootModel[list[int]], [1, 2], RootModel[list[int]]([1, 2])),
    (str | Path, "a", "a"),
    (dict[str, Any | None], {"k": None}, {"k": None}),
    (list[Row], [["row", 1]], [Row(1)]),
    (HttpUrl, "https://example.org/", HttpUrl("https://example.org/")),
    (Annotated[str, Field(pattern="^a", max_length=2)], "ab", "ab"),
    (Annotated[float, annotated_types.Le(float("inf"))], 1.5, 1.5),
    (Annotated[Path, msgspec.Meta(min_length=1)], "a", Path("a")),
    (list[Annotated[Path, msgspec.Meta(min_length=1)]], ["a"], [Path("a")]),
    (Named, {"name": "a"}, Named("a")),
    (Untyped, [1, "a"], Untyped(1, "a")),
    (Annotated[dt.datetime, annotated_types.Timezone(...)], "2031-05-17T09:30:00Z", WHEN),
    (list[int] | set[int], [1, 1], [1, 1]),
]


@pytest.mark.parametrize(("hint", "value", "expected"), ARRIVES, ids=called)
def test_sg_03_a_value_arrives_as_its_declared_type(
    hint: object, value: object, expected: object
) -> None:
    """SG-03, FN-2, C8, C13, C15: never a bare dict in the place of a class."""
    done = admitted(hint, value)
    assert done == expected
    assert type(done) is type(expected)


def test_sg_03_nested_positions_arrive_as_declared_types() -> None:
    """SG-03: a list, the values of a map, an optional one."""

    def apply(edits: list[Edit], by_name: dict[str, Edit], one: Edit | None = None) -> Any:  # noqa: ANN401
        return edits[0].old, by_name["k"].new, one

    assert call(apply, {"edits": [EDIT], "by_name": {"k": EDIT}}) == ("a", "b", None)


REFUSES: list[tuple[object, object]] = [
    (int, "5"),
    (int, True),
    (int, 5.5),
    (int, 2.0**60),
    (float, "5"),
    (bool, 1),
    (bool, "true"),
    (str, 5),
    (None, "null"),
    (int | None, "null"),
    (bytes, "not base64"),
    (dt.datetime, 5),
    (dt.datetime, "5"),
    (dt.datetime, "2031-05-17T23:59:60Z"),
    (Literal[5, "5"], 5.5),
    (Level, "3"),
    (Mixed, 1),
    (Mixed, "half"),
    (Mixed, [1]),
    (Color, "RED"),
    (tuple[int, str], [1]),
    (Path, 5),
    (Edit, ["a"]),
    (Range, {"_low": -1}),
    (Address, {"street": 5}),
    (Address, {"street": "a", "since": 5}),
    (Annotated[dt.date, annotated_types.Ge(dt.date(2031, 1, 1))], "2030-01-01"),
]


@pytest.mark.parametrize(("hint", "value"), REFUSES, ids=called)
def test_nothing_is_guessed(hint: object, value: object) -> None:
    """I4, C14: strict; no text for a number, no number for a date, no name for an enum."""
    assert problems(hint, value)


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, 2.0, 2),
        (int, -(2.0**53), -(2**53)),
        (list[int | None], [1.0, None, 2], [1, None, 2]),
        (dict[str, Level], {"a": 3.0}, {"a": Level.HIGH}),
        (Address | int, 2.0, 2),
        (Mixed, 1.25, Mixed.ONE_AND_A_BIT),
        (float, 2.0, 2.0),
    ],
    ids=called,
)
def test_a_whole_float_is_an_integer(hint: object, value: object, expected: object) -> None:
    """JSON-2, AR-08: `2.0` where an integer is declared, up to 2^53."""
    done = convert_to(hint)(value)
    assert done == expected
    assert type(done) is type(expected)


# ---- unions --------------------------------------------------------------------------------------


@dataclasses.dataclass
class Left:
    """One of two dataclasses."""

    x: int
    y: int = 0


@dataclasses.dataclass
class Right:
    """The other."""

    x: int
    z: int = 0


class Car(BaseModel):
    """One of two models."""

    kind: Literal["car"]
    doors: int


class Bike(BaseModel):
    """The other."""

    kind: Literal["bike"]
    gears: int


@pytest.mark.parametrize("z", [2, 2.0])
def test_two_dataclasses_are_told_apart_as_the_schema_does(z: float) -> None:
    """FN-2, SCH-3: a branch that the schema closes is closed when the value is made, too."""
    assert admitted(Left | Right, {"x": 1, "z": z}) == Right(1, 2)
    assert admitted(list[Left | Right], [{"x": 1, "y": 2}]) == [Left(1, 2)]

    @dataclasses.dataclass
    class Holder:
        side: Left | Right
        data: bytes

    assert admitted(Holder, {"side": {"x": 1, "z": z}, "data": "aGk="}) == Holder(
        Right(1, 2), b"hi"
    )


def test_a_discriminated_union_is_told_apart_by_its_tag() -> None:
    """FN-2, ST-03: also as a default field, nested in a list."""
    hint = list[Annotated[Car | Bike, Field(discriminator="kind")]]
    assert admitted(hint, [{"kind": "bike", "gears": 3.0}]) == [Bike(kind="bike", gears=3)]
    assert problems(hint, [{"kind": "car", "doors": "2"}]) == [
        ("[0].doors", "Input should be a valid integer")
    ]


def test_a_union_told_apart_by_a_function_is_pydantics() -> None:
    """FN-2: a callable discriminator."""

    def kind(value: Any) -> str:  # noqa: ANN401  # as pydantic says
        return "car" if "doors" in value else "bike"

    hint = Annotated[
        Annotated[Car, Tag("car")] | Annotated[Bike, Tag("bike")],
        Field(discriminator=Discriminator(kind)),
    ]
    assert admitted(hint, {"kind": "bike", "gears": 3}) == Bike(kind="bike", gears=3)


def test_an_array_struct_that_msgspec_cannot_read_is_refused() -> None:
    """FN-1: neither library knows all its parts."""

    class Odd(msgspec.Struct, array_like=True):
        x: Mixed

    with pytest.raises(DeclarationError, match=r"neither msgspec nor pydantic.*Odd"):
        convert_to(Odd)


def test_what_pydantic_alone_can_do_is_pydantics() -> None:
    """FN-2: validators and transformations in `Annotated` are not dropped."""
    double = Annotated[int, AfterValidator(lambda value: value * 2)]
    assert admitted(double, 2) == 4
    assert admitted(Annotated[str, StringConstraints(strip_whitespace=True)], " a ") == "a"


def test_a_model_keeps_its_own_configuration() -> None:
    """FN-2: aliases, and members beyond the declared ones when the class asks for them."""

    class Loose(BaseModel):
        model_config = ConfigDict(extra="allow")
        name: str = Field(alias="fullName")

    done: Any = admitted(Loose, {"fullName": "a", "more": 1})
    assert (done.name, done.model_extra) == ("a", {"more": 1})


@pytest.mark.parametrize("name", ["type", "schema_ref", "cls", "config"])
def test_a_model_may_have_a_member_named_as_a_part_of_pydantics_schema(name: str) -> None:
    """FN-3: what only looks like pydantic's own table of a type is a table of members."""
    members: dict[str, Any] = {name: (int, ...), "other": (dict, {"type": "literal"})}
    made: Any = create_model("Made", **members)
    done: Any = admitted(made, {name: 1})
    assert (getattr(done, name), done.other) == (1, {"type": "literal"})


class Leaf(BaseModel):
    """What is made of a value as it is of text."""

    exact: float
    words: Literal["a", "b"] = "a"
    flags: dict[str, list[bool | None]] = {}
    anything: Any = None
    below: "list[Leaf]" = []


class Timed(BaseModel):
    """What only text can say."""

    day: dt.date
    levels: tuple[int, ...]
    ones: Literal[1, 2]


def test_a_model_reads_a_value_as_it_reads_its_text() -> None:
    """FN-2, JSON-2: whole floats and dates are made as of text, whichever way is taken."""
    leaf = {"exact": 1, "flags": {"2": [True, None]}, "anything": [1.0], "below": [{"exact": 2.5}]}
    done: Any = admitted(list[Leaf], [leaf])[0]  # type: ignore[index]  # a list
    assert done == Leaf.model_validate_json(json.dumps(leaf), strict=True)
    assert type(done.exact) is float
    timed = {"day": "2031-05-17", "levels": [1, 2.0], "ones": 1.0}
    assert admitted(Timed, timed) == Timed(day=dt.date(2031, 5, 17), levels=(1, 2), ones=1)


def test_a_models_validators_hear_that_json_is_read() -> None:
    """FN-2: a validator of the author's sees the mode that it always saw."""
    modes = []

    class Told(BaseModel):
        x: int

        @field_validator("x", mode="before")
        @classmethod
        def note(cls, value: object, info: ValidationInfo) -> object:
            modes.append(info.mode)
            return value

    assert admitted(Told, {"x": 1}) == Told.model_validate_json('{"x": 1}')
    assert modes == ["json", "json"]


def test_a_type_that_nobody_can_make_is_refused_at_declaration() -> None:
    """FN-1: an attrs class beside a model, which neither library can tell apart."""

    def f(x: Range | Car) -> None: ...

    with pytest.raises(
        DeclarationError, match="parameter `x` of `f`: neither msgspec nor pydantic"
    ):
        converter(reflect(f))


def test_a_model_inside_a_class_that_pydantic_does_not_know_is_made() -> None:
    """FN-2: attrs, structs and both kinds of TypedDict, at every depth, with the whole path."""

    @attrs.define
    class Place:
        address: Address
        double: Annotated[int, AfterValidator(lambda value: value * 2)] = 1

    class Places(msgspec.Struct):
        all: dict[str, list[Place | None]]

    raw = {"address": {"street": "a", "raw": "aGk="}, "double": 2.0}
    place = Place(Address(street="a", raw=b"hi"), 4)
    assert admitted(Places, {"all": {"k": [None, raw]}}) == Places({"k": [None, place]})
    bad = {"all": {"k": [None, {"address": {"street": 5}}]}}
    assert problems(Places, bad) == [("all.k[1].address.street", "Input should be a valid string")]


def test_a_missing_pydantic_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """ARCHITECTURE 5: with function, parameter, and what to install."""
    monkeypatch.setitem(sys.modules, "ferrule.schema._pydantic", None)

    def f(x: Left | Right) -> None: ...

    with pytest.raises(DeclarationError, match=r"`x` of `f`.*pip install 'ferrule\[pydantic\]'"):
        converter(reflect(f))
    convert_to(list[Left])


# ---- from arguments to a call --------------------------------------------------------------------


def test_sg_07_every_kind_of_parameter_is_passed_as_the_function_takes_it() -> None:
    """SG-07, FN-3, C3, C5: positional-only by position, `*rest` one array, `**labels` the rest."""

    def mix(
        a: int, b: int = 2, /, *rest: int, scale: float = 1.0, **labels: str
    ) -> tuple[Any, ...]:
        return (a, b, rest, scale, labels)

    assert call(mix, {"a": 1}) == (1, 2, (), 1.0, {})
    arguments: dict[str, object] = {"a": 1, "b": 3, "rest": [4, 5.0], "scale": 2, "z": "q"}
    assert call(mix, arguments) == (1, 3, (4, 5), 2.0, {"z": "q"})
    assert list(arguments) == ["a", "b", "rest", "scale", "z"]


def test_each_set_of_parameters_is_passed_alone() -> None:
    """FN-3: by keyword only, with the rest of the names, with keys that are more than text."""

    def named(a: int, *, b: dict[Color, int]) -> tuple[Any, ...]:
        return a, b

    def plain(*, c: dict[str, int]) -> dict[str, int]:
        return c

    def rest(a: int, **more: int) -> tuple[Any, ...]:
        return a, more

    assert call(named, {"a": 1, "b": {"red": 2}}) == (1, {Color.RED: 2})
    assert call(plain, {"c": {"k": 2.0}}) == {"k": 2}
    assert call(rest, {"a": 1, "b": 2, "**": 3}) == (1, {"b": 2, "**": 3})


def test_c2_awkward_names_work() -> None:
    """FN-3, C2, C4: names that other libraries keep for themselves."""

    def f(  # one of each
        schema: int,
        json: int,
        copy: int,
        model_config: int,
        self_: int,
        _x: int,
        validate: int = 7,
        __struct_fields__: int = 8,
        p0: int = 9,
    ) -> list[int]:
        return [schema, json, copy, model_config, self_, _x, validate, __struct_fields__, p0]

    names = ["schema", "json", "copy", "model_config", "self_", "_x", "__struct_fields__", "p0"]
    arguments: dict[str, object] = {name: index for index, name in enumerate(names)}
    assert call(f, arguments) == [0, 1, 2, 3, 4, 5, 7, 6, 7]


def test_sg_08_what_is_left_out_has_its_default_and_null_is_none() -> None:
    """SG-08, FN-4."""

    def f(a: int | None, b: int | None = None, c: int = 5, d: int = None) -> tuple[Any, ...]:  # type: ignore[assignment]  # noqa: RUF013  # the point
        return (a, b, c, d)

    assert call(f, {"a": None}) == (None, None, 5, None)
    assert call(f, {"a": 1, "d": None, "b": None}) == (1, None, 5, None)


def test_c10_a_mutable_default_is_each_calls_own() -> None:
    """FN-4, C10: a list, a nested dict, an instance; an immutable one is the same object."""
    marker = object()

    def f(
        xs: list[int] = [],  # noqa: B006  # the point
        deep: dict[str, list[int]] = {"a": []},  # noqa: B006  # the point
        edit: Edit = Edit("a"),  # noqa: B008  # the point
        queue: list[int] = collections.deque([1]),  # type: ignore[assignment]  # noqa: B006  # the point
        other: int = marker,  # type: ignore[assignment]  # the point
    ) -> tuple[Any, ...]:
        xs.append(1)
        deep["a"].append(1)
        edit.new += "!"
        queue.append(2)
        return xs, deep, edit, queue, other

    first, second = call(f, {}), call(f, {})
    assert first == second
    assert first[:3] == ([1], {"a": [1]}, Edit("a", "x!"))
    assert first[4] is second[4] is marker


def test_a_default_that_cannot_be_copied_is_refused_at_declaration() -> None:
    """FN-1, FN-4."""
    lock: Any = [sys.stdout]

    def f(x: list[int] = lock) -> None: ...

    with pytest.raises(
        DeclarationError, match="parameter `x` of `f`: its default cannot be copied"
    ):
        converter(reflect(f))


def test_defaults_of_nested_classes_apply_and_are_not_shared() -> None:
    """FN-2, C9: a default is a value, never its text."""

    def f(tree: Tree, query: Query) -> tuple[Any, ...]:
        return tree, query

    first = call(f, {"tree": {"value": 1}, "query": {"pageSize": 1}})
    first[0].children.append(1)
    assert call(f, {"tree": {"value": 1}, "query": {"pageSize": 1}})[0].children == []


def test_sg_10_hidden_values_stand_where_the_function_takes_them() -> None:
    """SG-10, FN-5: by position, by keyword, and their own defaults."""

    def f(  # one of each
        a: int,
        ctx: Context,
        tenant: Annotated[str, Inject("tenant")],
        b: int = 2,
        *rest: int,
        region: Annotated[str, Inject("region")] = "eu",
        other: Annotated[str, Inject("other")],
        c: int,
    ) -> tuple[Any, ...]:
        return a, ctx, tenant, b, rest, region, other, c

    hidden = {"ctx": "CTX", "tenant": "T", "other": "O"}
    arguments: dict[str, object] = {"a": 1, "rest": [3], "c": 4}
    assert call(f, arguments, **hidden) == (1, "CTX", "T", 2, (3,), "eu", "O", 4)
    with pytest.raises(LookupError, match="nobody gave the hidden parameter `tenant`"):
        call(f, arguments, ctx="CTX")


@pytest.mark.parametrize("name", ["ctx", "tenant", "urgent"])
def test_a_name_that_is_not_the_models_is_refused_as_unknown(name: str) -> None:
    """FN-5, SG-06: also where `**labels` would take every name."""

    def f(
        ctx: Context, tenant: Annotated[str, Inject("t")], urgent: bool, **labels: str
    ) -> None: ...

    convert = converter(reflect(functools.partial(f, urgent=True)))
    assert convert({"a": "x"})
    with pytest.raises(InvalidCall, match=f"`{name}` is no argument") as caught:
        convert({name: "x"})
    assert "`x`" not in str(caught.value)


def test_a_converter_holds_no_function_and_no_arguments() -> None:
    """ADM-1: a contract keeps no tool alive."""

    def f(x: list[Edit]) -> None: ...

    convert = converter(reflect(f))
    seen = weakref.ref(f)
    value = convert({"x": [EDIT]})
    del f
    gc.collect()
    assert seen() is None
    assert value == convert({"x": [EDIT]})


def test_a_typed_value_is_frozen() -> None:
    """Rule 11: nobody changes what was admitted."""

    def f(x: int) -> None: ...

    value: Any = converter(reflect(f))({"x": 1})
    with pytest.raises(AttributeError):
        value.p0 = 2


# ---- local types ---------------------------------------------------------------------------------


def test_c1_local_types_arrive_as_declared_at_every_depth() -> None:
    """FN-3, C1: each kind of class, with names that only this function knows."""

    class Local(TypedDict):
        value: "Inner"

    class Listed(NamedTuple):
        inner: "Inner"
        size: int = 3

    class Struct(msgspec.Struct):
        inner: "Inner"

    @attrs.define
    class Attrs:
        inner: "Inner"

    @dataclasses.dataclass
    class Inner:
        value: int
        up: "Inner | None" = None

    def f(a: Local, b: Listed, c: Struct, d: Attrs, e: dict[str, Inner]) -> tuple[Any, ...]:
        return a, b, c, d, e

    one = {"value": 1, "up": {"value": 2.0}}
    inner = Inner(1, Inner(2))
    done = call(
        f,
        {
            "a": {"value": one},
            "b": [one],
            "c": {"inner": one},
            "d": {"inner": one},
            "e": {"k": one},
        },
    )
    assert done == ({"value": inner}, Listed(inner), Struct(inner), Attrs(inner), {"k": inner})


def test_what_only_init_knows_reaches_it() -> None:
    """FN-2: an `InitVar` is given, and a field that is not for `__init__` is made."""

    @dataclasses.dataclass
    class Seeded:
        base: int
        seed: dataclasses.InitVar[int] = 3
        total: int = dataclasses.field(init=False)

        def __post_init__(self, seed: int) -> None:
            self.total = self.base + seed

    done: Any = admitted(list[Seeded], [{"base": 1, "seed": 2}, {"base": 1}])
    assert [seeded.total for seeded in done] == [3, 4]


# ---- constraints beyond JSON Schema --------------------------------------------------------------


def test_a_bound_that_the_schema_cannot_say_is_asked_of_the_value() -> None:
    """FN-2, SCH-3: dates, decimals, the length of bytes, predicates; at every depth."""
    day = Annotated[
        dt.date, msgspec.Meta(description="Day."), annotated_types.Ge(dt.date(2031, 1, 1))
    ]
    hints: list[tuple[Any, object, object]] = [
        (day, "2031-01-01", "2030-12-31"),
        (Annotated[decimal.Decimal, Field(gt=0)], "0.01", "0"),
        (Annotated[bytes, annotated_types.MaxLen(2)], "aGk=", "aGlo"),
        (
            Annotated[dt.timedelta, annotated_types.Interval(le=dt.timedelta(hours=1))],
            "PT1H",
            "PT2H",
        ),
        (Annotated[int, annotated_types.Predicate(lambda value: value % 2 == 0)], 2, 3),
    ]
    for hint, good, bad in hints:
        admitted(dict[str, list[hint]], {"k": [good]})  # type: ignore[valid-type]  # at run time
        maybe = dict[str, list[hint | None]]  # type: ignore[valid-type]  # made at run time
        found = problems(maybe, {"k": [None, bad]})
        assert [path for path, _ in found] == ["k[1]"]


def test_a_bound_inside_a_class_is_enforced() -> None:
    """FN-2: the class is still made."""

    @dataclasses.dataclass
    class Trip:
        start: Annotated[dt.date, annotated_types.Ge(dt.date(2031, 1, 1))]
        name: str = "trip"

    assert admitted(Trip, {"start": "2031-01-01"}) == Trip(dt.date(2031, 1, 1))
    assert problems(Trip, {"start": "2030-01-01"}) == [("start", "expected at least 2031-01-01")]


# ---- what a refusal says -------------------------------------------------------------------------


class Interval(msgspec.Struct):
    """A class with a rule of its own."""

    low: int
    high: int
    strict: bool = True

    def __post_init__(self) -> None:
        """Refuse what is upside down."""
        if self.low > self.high:
            raise ValueError("low must not be above high")
        if self.low == self.high:
            raise ValueError(f"an interval of {self.low} is empty")


def test_a_refusal_says_where_and_in_the_authors_words() -> None:
    """JSON-6: path, and the rule of the class itself."""
    value = {"k": [{"low": 2, "high": 1, "strict": False}]}
    assert problems(dict[str, list[Interval]], value) == [("k[0]", "low must not be above high")]


class Chatty(BaseModel):
    """A model whose rule repeats what it refuses."""

    name: str

    @field_validator("name")
    @classmethod
    def check(cls, name: str) -> str:
        """Refuse, with the name."""
        raise ValueError(f"{name} is taken")


def test_a_refusal_repeats_no_value() -> None:
    """JSON-6: an author's message with the value in it is not shown."""
    assert problems(Chatty, {"name": "secret"}) == [("name", "expected a valid value")]
    found = problems(list[Interval], [{"low": 7777, "high": 7777}])
    assert found == [("[0]", "expected a valid Interval")]


@pytest.mark.parametrize(
    ("hint", "value", "path", "phrase"),
    [
        (list[dt.datetime], ["2031-05-17T23:59:60Z"], "[0]", "expected a date-time that exists"),
        (Tree, {"value": 1, "children": [{"value": "x"}]}, "children[0].value", "expected a value"),
        (tuple[int, Edit], [1, {"old": 5}], "[1].old", "expected a value of type string"),
        (Edit | None, {"old": 5}, "old", "expected a value of type string"),
        (Tree | int, {"value": "x"}, "value", "expected a value of type integer"),
        (dict[str, Literal["a"]], {"b c": "z"}, '["b c"]', "expected one of the listed values"),
        (list[Tree | None], ["x"], "[0]", "expected a valid"),
        (list[Tree], ["x"], "[0]", "expected a valid Tree"),
        (list[Row], [["row"]], "[0]", "expected a valid Row"),
        (Address, {"neighbours": []}, "street", "Field required"),
        (list[Address], [{"street": "a", "x": 1}], "[0].x", "Extra inputs are not permitted"),
    ],
)
def test_a_refusal_names_the_innermost_place(
    hint: object, value: object, path: str, phrase: str
) -> None:
    """JSON-6: the place that cannot be made alone."""
    (found,) = problems(hint, value)
    assert found[0] == path
    assert found[1].startswith(phrase)


def test_arguments_that_no_schema_has_seen_are_refused_too() -> None:
    """ADM-2: a missing argument is no crash, even without a schema before it."""

    def f(x: int, y: list[Edit]) -> None: ...

    convert = converter(reflect(f))
    with pytest.raises(InvalidCall, match="arguments that fit the schema"):
        convert({"y": []})
    with pytest.raises(InvalidCall) as caught:
        convert({"x": "a", "y": [{"old": 1}]})
    assert [problem.path for problem in caught.value.problems] == ["x", "y[0].old"]


def test_a_class_that_breaks_is_no_refusal() -> None:
    """ADM-3: only ValueError and TypeError mean that a value is bad."""

    @dataclasses.dataclass
    class Broken:
        x: int

        def __post_init__(self) -> None:
            raise LookupError("a bug")

    with pytest.raises(LookupError, match="a bug"):
        convert_to(Broken)({"x": 1})


def test_a_path_within_a_root_arrives_as_a_path() -> None:
    """FN-5: resolving it is the harness's, once it knows the root."""

    def read(
        path: Annotated[Path, Within("root")], other: Annotated[Path, Within("root")] | None = None
    ) -> Any:  # noqa: ANN401
        return path, other

    assert call(read, {"path": "a/b"}) == (Path("a/b"), None)


# ---- within a root -------------------------------------------------------------------------------


def test_a_path_within_its_root_is_resolved(tmp_path: Path) -> None:
    """FN-5: relative, absolute, not there yet; parents and links are followed first."""
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    within = Within("root")
    root = tmp_path.resolve()
    for path, expected in (
        ("a/new/file.txt", "a/new/file.txt"),
        ("a/../b", "b"),
        ("link/x", "a/x"),
        (".", "."),
        (str(root / "a"), "a"),
    ):
        assert within.resolve(Path(path), tmp_path, parameter="path") == root / expected


def test_a_path_that_leaves_its_root_is_refused(tmp_path: Path) -> None:
    """FN-5: by parents, by an absolute path, through a link, a loop of links, a null character."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    (root / "loop").symlink_to(root / "loop")
    for path in ("..", "../root2", "a/../../x", "/etc/passwd", "out/x", "loop/x", "a\0b"):
        with pytest.raises(InvalidCall, match='path: expected a path inside the root "root"'):
            Within("root").resolve(Path(path), root, parameter="path")
