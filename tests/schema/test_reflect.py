"""A declaration that can work is understood, and one that cannot says so where it is written."""

import collections.abc
import dataclasses
import datetime as dt
import enum
import functools
import json
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Required, TypeVar

import annotated_types
import attrs
import msgspec
import pytest
import typing_extensions
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field
from typing_extensions import ReadOnly, TypeAliasType, TypedDict

from ferrule._hidden import Hidden, Inject, Within
from ferrule._secret import Secret
from ferrule.errors import DeclarationError
from ferrule.schema._families import converter
from ferrule.schema._generate import generate
from ferrule.schema._reflect import reflect
from ferrule.schema._shape import Object, Signature
from ferrule.schema._types import shape_of
from support import called

T = TypeVar("T")
Bound = TypeVar("Bound", bound=int)
Either = TypeVar("Either", int, str)


class CallContext(Hidden):
    """What a harness gives."""


def schema_of(hint: object) -> Any:  # noqa: ANN401  # a schema
    """Return the closed schema of a type."""
    return generate(shape_of(hint, where="the type"))


def properties_of(function: Callable[..., object]) -> Any:  # noqa: ANN401  # schemas by name
    """Return the properties of a function's closed schema."""
    return generate(reflect(function))["properties"]


def module(name: str, source: str, *, postponed: bool) -> types.ModuleType:
    """Return a module made from text, with or without postponed annotations."""
    made = types.ModuleType(name)
    sys.modules[name] = made
    future = "from __future__ import annotations\n" if postponed else ""
    code = compile(future + textwrap.dedent(source), name, "exec", dont_inherit=True)
    exec(code, vars(made))
    return made


@pytest.fixture
def modules() -> Iterator[Callable[..., types.ModuleType]]:
    """Give a test `module`, and take its modules away afterwards."""
    before = set(sys.modules)
    yield module
    for name in set(sys.modules) - before:
        if name.startswith("made_"):
            del sys.modules[name]


# ---- names ---------------------------------------------------------------------------------------

SOURCE = """
    import dataclasses
    from pathlib import Path
    from typing import Annotated, Literal, NamedTuple
    import annotated_types
    from typing_extensions import NotRequired, TypedDict

    class Inner(TypedDict):
        b: NotRequired[Annotated[int, annotated_types.Ge(1)]]
        a: "list[Literal['z', 'y']]"

    @dataclasses.dataclass
    class Tree:
        inner: Inner
        next: "Tree | None" = None

    def reserve(
        tree: Tree,
        seats: list[int] | None = None,
        tier: Literal['gold', 'basic'] = 'basic',
        where: Path = Path('.'),
    ) -> str: ...
"""


def test_sg_01_postponed_annotations_give_the_same_bytes(
    modules: Callable[..., types.ModuleType],
) -> None:
    """SG-01, FN-3: the schema of text annotations and of plain ones is byte-equal."""
    plain, text = (
        json.dumps(generate(reflect(modules(name, SOURCE, postponed=postponed).reserve)))
        for name, postponed in (("made_plain", False), ("made_text", True))
    )
    assert plain == text
    assert '"required": ["tree"]' in plain


def test_sg_01_a_name_that_is_not_there_fails_by_name() -> None:
    """SG-01, FN-1: function, parameter and name are told; nothing degrades to a string."""

    def fetch(a: int, q: "list[Nowhere]") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(DeclarationError, match=r"parameter `q` of `fetch`.*`Nowhere`.*import it"):
        reflect(fetch)


def test_c1_types_local_to_a_function_are_found_at_every_depth(
    modules: Callable[..., types.ModuleType],
) -> None:
    """FN-3, C1: in the function, in a class that it names, and in a class that this one names."""
    source = """
        import dataclasses
        from typing import NamedTuple
        from typing_extensions import TypedDict

        def outer(reflect):
            class Leaf(TypedDict):
                value: int

            class Pair(NamedTuple):
                left: Leaf
                right: Leaf

            @dataclasses.dataclass
            class Tree:
                pairs: list[Pair]
                up: Tree | None = None

            def grow(tree: Tree) -> Leaf: ...

            return reflect(grow)
    """
    signature: Signature = modules("made_local", source, postponed=True).outer(reflect)
    schema: Any = generate(signature)
    pair = schema["$defs"]["Tree"]["properties"]["pairs"]["items"]
    assert pair["items"]["properties"] == {"value": {"type": "integer"}}
    assert typing_extensions.is_typeddict(signature.returns)


def test_c1_a_local_type_that_a_function_closes_over_outlives_its_function(
    modules: Callable[..., types.ModuleType],
) -> None:
    """FN-3: what a function uses it keeps; what nothing keeps is refused and named."""
    source = """
        from typing_extensions import TypedDict

        def kept():
            class Leaf(TypedDict):
                value: int

            def grow(leaf: Leaf) -> str:
                return str(Leaf)

            return grow

        def lost():
            class Leaf(TypedDict):
                value: int

            def grow(leaf: Leaf) -> str: ...

            return grow

        def early(reflect):
            def grow(leaf: Leaf) -> str:
                return str(Leaf)

            signature = reflect(grow)
            Leaf = int
            return signature
    """
    made = modules("made_closure", source, postponed=True)
    assert properties_of(made.kept())["leaf"]["required"] == ["value"]
    with pytest.raises(DeclarationError, match="`Leaf`"):
        reflect(made.lost())
    with pytest.raises(DeclarationError, match="`Leaf`"):
        made.early(reflect)


def test_a_local_name_wins_over_one_of_the_module(
    modules: Callable[..., types.ModuleType],
) -> None:
    """FN-3: names are looked up as Python does, also in the fields of a local class."""
    source = """
        import dataclasses
        Unit = str

        def outer(reflect):
            Unit = int

            @dataclasses.dataclass
            class Size:
                unit: Unit

            def grow(size: Size, unit: Unit) -> None: ...

            return reflect(grow)
    """
    signature = modules("made_shadow", source, postponed=True).outer(reflect)
    schema: Any = generate(signature)
    assert schema["properties"]["unit"] == {"type": "integer"}
    assert schema["properties"]["size"]["properties"]["unit"] == {"type": "integer"}
    value: Any = converter(signature)({"size": {"unit": 3}, "unit": 3})
    assert value.p0.unit == value.p1 == 3


def test_names_of_a_class_body_are_known_to_its_methods(
    modules: Callable[..., types.ModuleType],
) -> None:
    """FN-3: a class inside a class, while the body runs and afterwards."""
    source = """
        from typing_extensions import TypedDict

        class Service:
            class Query(TypedDict):
                text: str

            def find(self, query: Query) -> None: ...

            @staticmethod
            def plain(query: Query) -> None: ...

            inside = reflect(plain)
    """
    made = types.ModuleType("made_body")
    sys.modules["made_body"] = made
    vars(made)["reflect"] = reflect
    code = compile(
        "from __future__ import annotations\n" + textwrap.dedent(source), "made_body", "exec"
    )
    exec(code, vars(made))
    for signature in (reflect(made.Service().find), made.Service.inside):
        schema: Any = generate(signature)
        assert list(schema["properties"]["query"]["properties"]) == ["text"]


# ---- what is a tool ------------------------------------------------------------------------------


def send(channel: str, text: str, urgent: bool = False) -> str:
    """Send a text."""
    return f"{channel}{text}{urgent}"


def test_sg_06_a_partial_shows_what_is_still_open() -> None:
    """SG-06: bound positions and keywords are not the model's; name and text stay."""
    first = reflect(functools.partial(send, "ops"))
    second = reflect(functools.partial(send, urgent=True))
    third = reflect(functools.partial(functools.partial(send, "ops"), urgent=True))
    assert [list(generate(s)["properties"]) for s in (first, second, third)] == [  # type: ignore[call-overload]  # a dict
        ["text", "urgent"],
        ["channel", "text"],
        ["text"],
    ]
    assert {(s.name, s.description) for s in (first, second, third)} == {("send", "Send a text.")}


class Service:
    """A service."""

    def find(self, text: str) -> str:
        """Find it."""
        return text

    def __call__(self, text: str) -> str:
        """Ask it."""
        return text

    @classmethod
    def make(cls, size: int) -> str:
        """Make one."""
        return cls.__name__ * size

    @staticmethod
    def check(flag: bool) -> bool:
        """Check it."""
        return flag


def test_sg_06_methods_and_callable_objects_are_functions() -> None:
    """SG-06, section 4: bound, class and static methods, objects that can be called."""
    found = [
        (s.name, s.description, [p.name for p in s.parameters])
        for s in [reflect(f) for f in (Service().find, Service(), Service.make, Service.check)]
    ]
    assert found == [
        ("find", "Find it.", ["text"]),
        ("Service", "Ask it.", ["text"]),
        ("make", "Make one.", ["size"]),
        ("check", "Check it.", ["flag"]),
    ]


def test_a_decorated_function_is_seen_through() -> None:
    """Section 4: `functools.wraps` shows the inner signature, text and names."""

    def twice(function: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(function)
        def inner(*args: object, **kwargs: object) -> str:
            return function(*args, **kwargs) * 2

        return inner

    signature = reflect(twice(send))
    assert (signature.name, signature.description) == ("send", "Send a text.")
    assert [p.name for p in signature.parameters] == ["channel", "text", "urgent"]


def test_a_cached_function_is_seen_through() -> None:
    """Section 4: a wrapper that is no function has the function inside."""
    assert reflect(functools.cache(send)).description == "Send a text."


def test_a_name_of_the_authors_own_wins() -> None:
    """FN-1: a lambda with types can be a tool when it is given a name."""

    def named(text: str) -> None: ...

    named.__name__ = "<lambda>"
    assert reflect(named, name="shout").name == "shout"


# ---- what is not the model's ---------------------------------------------------------------------


def test_sg_10_hidden_parameters_are_in_no_schema() -> None:
    """SG-10, FN-5: the context and what is injected, also when text says so, or None may come."""

    def fetch(
        ctx: "CallContext",
        tenant: Annotated[str, Inject("tenant")],
        q: int,
        region: "Annotated[str | None, Inject('region')]" = None,
        other: "Annotated[object, Inject('other')] | None" = None,
    ) -> None: ...

    signature = reflect(fetch)
    assert list(generate(signature)["properties"]) == ["q"]  # type: ignore[call-overload]  # a dict
    assert [parameter.name for parameter in signature.hidden] == [
        "ctx",
        "tenant",
        "region",
        "other",
    ]
    assert signature.hidden[0].marker is CallContext
    assert signature.hidden[1].marker == Inject("tenant")


def test_sg_10_an_unknown_name_does_not_hide_the_markers_of_others() -> None:
    """SG-10: the one bad annotation is named, and no hidden one is taken for the model's."""

    def fetch(ctx: "CallContext", q: "SomeLocalType | str") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(DeclarationError) as caught:
        reflect(fetch)
    assert "`q`" in str(caught.value)
    assert "ctx" not in str(caught.value)


def test_a_path_within_a_root_is_a_string_to_the_model() -> None:
    """FN-5: `Within` is visible, also when None may come, with its other metadata."""

    def read(
        path: Annotated[Path, Within("root")],
        other: Annotated[Path, Field(description="Other."), Within("root")] | None = None,
    ) -> None: ...

    signature = reflect(read)
    assert generate(signature)["properties"] == {
        "path": {"type": "string"},
        "other": {"type": ["string", "null"], "description": "Other."},
    }
    assert [p.within for p in signature.parameters] == [Within("root"), Within("root")]
    assert signature.hidden == ()


# ---- optional and nullable -----------------------------------------------------------------------


def test_sg_08_nullable_is_not_optional() -> None:
    """SG-08, FN-4, C11, C12: four different things."""

    def f(a: int | None, b: int | None = None, c: int = 5, d: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013  # the point

    schema: Any = generate(reflect(f))
    kinds = {name: part["type"] for name, part in schema["properties"].items()}
    assert schema["required"] == ["a"]
    nullable = ["integer", "null"]
    assert kinds == {"a": nullable, "b": nullable, "c": "integer", "d": nullable}


def test_none_beside_a_type_that_takes_it_changes_nothing() -> None:
    """FN-4: `x: Any = None` stays what it is."""

    def f(
        a: Any = None,  # noqa: ANN401  # the point
        b: Literal["x", None] = None,  # noqa: PYI061  # the point
        c: Chain | None = None,
    ) -> None: ...

    properties = properties_of(f)
    assert properties["a"] == {}
    assert properties["b"] == {"type": ["string", "null"], "enum": ["x", None]}
    assert properties["c"]["anyOf"][1] == {"type": "null"}


def test_a_field_as_default_is_read_as_what_it_says() -> None:
    """FN-2, C2: `n: int = Field(5, ge=1)`, and `...` says required."""

    def f(
        n: int = Field(5, ge=1, description="N."),
        m: int = Field(..., le=9),
        k: list[int] = Field(default_factory=list),  # noqa: B008  # the point
    ) -> None: ...

    schema: Any = generate(reflect(f))
    assert schema["properties"]["n"] == {
        "type": "integer",
        "description": "N.",
        "default": 5,
        "minimum": 1,
    }
    assert schema["properties"]["k"]["default"] == []
    assert schema["required"] == ["m"]


# ---- types ---------------------------------------------------------------------------------------


@dataclasses.dataclass
class Box(Generic[T]):
    """A generic class."""

    item: T
    more: list[T] = dataclasses.field(default_factory=list)


class Base(TypedDict, Generic[T]):
    """A generic base."""

    value: T


class Derived(Base[int], total=False):
    """One that binds it, and has the qualifiers."""

    name: Required[str]
    note: Annotated[NotRequired[str], "x"]
    size: ReadOnly[int]


class Chain(TypedDict):
    """A recursive TypedDict."""

    inner: "Chain | None"


@dataclasses.dataclass
class IntBox(Box[int]):
    """A class that binds the variable of its base."""

    label: str = ""


def test_type_arguments_reach_the_fields() -> None:
    """FN-2: parametrised dataclasses and TypedDicts, through inheritance, nested."""
    assert schema_of(Box[int])["properties"]["item"] == {"type": "integer"}
    assert schema_of(Box[Box[str]])["properties"]["item"]["properties"]["more"]["items"] == {
        "type": "string"
    }
    assert list(schema_of(IntBox)["properties"]) == ["item", "more", "label"]
    assert schema_of(IntBox)["properties"]["more"]["items"] == {"type": "integer"}
    assert schema_of(Derived)["properties"]["value"] == {"type": "integer"}


def test_a_variable_without_an_argument_takes_what_it_may_be() -> None:
    """FN-2: its bound, its constraints, its default, or anything."""
    default = typing_extensions.TypeVar("default", default=bool)
    assert schema_of(Box)["properties"]["item"] == {}
    bound, either = (types.GenericAlias(list, (variable,)) for variable in (Bound, Either))
    assert schema_of(bound) == {"type": "array", "items": {"type": "integer"}}
    assert schema_of(either)["items"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert schema_of(list[default])["items"] == {"type": "boolean"}  # type: ignore[valid-type]  # a variable


def test_qualifiers_of_a_typed_dict_count_wherever_they_stand() -> None:
    """FN-2: `Required`, `NotRequired`, `ReadOnly`, inheritance, `total=False`."""
    schema = schema_of(Derived)
    assert list(schema["properties"]) == ["value", "name", "note", "size"]
    assert schema["required"] == ["value", "name"]


def test_aliases_and_new_types_are_what_they_stand_for() -> None:
    """FN-2: PEP 695 through `TypeAliasType`, generic and recursive ones, `NewType`."""
    alias: Any = TypeAliasType
    new_type: Any = typing.NewType
    json_type = alias("Json", "dict[str, Json] | list[Json] | str | None")
    pair = alias("Pair", types.GenericAlias(tuple, (T, T)), type_params=(T,))
    positive = new_type("Positive", Annotated[int, annotated_types.Gt(0)])
    vars(sys.modules[__name__])["Json"] = json_type
    assert schema_of(pair[int])["items"] == {"type": "integer"}
    assert schema_of(positive) == {"type": "integer", "exclusiveMinimum": 0}
    schema = schema_of(types.GenericAlias(list, (json_type,)))
    assert schema["items"] == {"$ref": "#/$defs/Json"}
    assert schema["$defs"]["Json"]["anyOf"][1] == {
        "type": "array",
        "items": {"$ref": "#/$defs/Json"},
    }


NEW_SYNTAX = """
    import dataclasses

    type Json = dict[str, Json] | list[Json] | str | None
    type Pair[T] = tuple[T, T]

    @dataclasses.dataclass
    class Box[T]:
        item: T
        more: Pair[T]

    def f[N: int](json: Json, box: Box[str], size: N, later: "Pair[N]") -> None: ...
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax of PEP 695 is new in 3.12")
@pytest.mark.parametrize("postponed", [False, True])
def test_the_new_syntax_says_the_same(
    modules: Callable[..., types.ModuleType], postponed: bool
) -> None:
    """FN-2: PEP 695 aliases, generic classes and functions, also in text."""
    made = modules("made_new", NEW_SYNTAX, postponed=postponed)
    schema: Any = generate(reflect(made.f))
    properties = schema["properties"]
    assert properties["json"] == {"$ref": "#/$defs/Json"}
    assert properties["box"]["properties"]["item"] == {"type": "string"}
    assert properties["box"]["properties"]["more"]["items"] == {"type": "string"}
    assert properties["size"] == {"type": "integer"}
    assert properties["later"]["items"] == {"type": "integer"}
    convert = converter(reflect(made.f))
    box = {"item": "a", "more": ["b", "c"]}
    arguments = {"json": {"a": [None]}, "box": box, "size": 1, "later": [1, 2]}
    args, _ = convert.call_parts(convert(arguments))
    assert args == ({"a": [None]}, made.Box("a", ("b", "c")), 1, (1, 2))


def test_what_stands_around_a_type_is_taken_off() -> None:
    """FN-2: `Final`, `InitVar` of a variable, metadata that cannot be hashed."""

    @dataclasses.dataclass
    class Pinned(Generic[T]):
        value: typing.Final[int]
        seed: dataclasses.InitVar[T]

    properties = schema_of(Pinned[str])["properties"]
    assert properties == {"value": {"type": "integer"}, "seed": {"type": "string"}}
    unhashable = Annotated[int, {"not": "ours"}]
    assert schema_of(Box[unhashable])["properties"]["item"] == {"type": "integer"}
    assert schema_of(set[int | str])["uniqueItems"] is True
    examples = Annotated[int, msgspec.Meta(examples=[1], title="N")]
    assert schema_of(examples) == {"type": "integer", "examples": [1], "title": "N"}


def test_the_items_of_a_set_may_be_a_frozen_class() -> None:
    """FN-1, FN-2: hashable is what has a hash."""

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        x: int

    @dataclasses.dataclass
    class Loose:
        x: int

    assert schema_of(set[Frozen])["uniqueItems"] is True
    with pytest.raises(DeclarationError, match="must be hashable"):
        schema_of(set[Loose])


def test_the_names_of_a_model_are_those_it_reads() -> None:
    """FN-2: a choice of aliases gives the first, a path of steps the field's own name."""

    class Model(BaseModel):
        model_config = ConfigDict(validate_by_alias=True)
        first: int = Field(validation_alias=AliasChoices("one", "uno"))
        second: int = Field(validation_alias=AliasPath("two", 0))

    class Plain(BaseModel):
        model_config = ConfigDict(validate_by_alias=False, validate_by_name=True)
        first: int = Field(alias="one")

    assert list(schema_of(Model)["properties"]) == ["one", "second"]
    assert list(schema_of(Plain)["properties"]) == ["first"]


def test_a_model_that_waits_for_a_local_name_is_completed() -> None:
    """FN-3, C1: pydantic asks for names when a class is made; we know them later."""

    class Outer(BaseModel):
        inner: "Later"

    class Later(BaseModel):
        value: int

    assert schema_of(Outer)["properties"]["inner"]["required"] == ["value"]


def test_self_is_the_class_around_it() -> None:
    """FN-2: recursion by `Self`."""

    @dataclasses.dataclass
    class Link:
        value: int
        next: typing.Self | None = None

    schema = schema_of(Link)
    assert schema["$defs"]["Link"]["properties"]["next"]["anyOf"][0] == {"$ref": "#/$defs/Link"}


def test_members_of_each_kind_of_class_are_its_own() -> None:
    """FN-2: what is not for `__init__` is not for a model either; names as JSON has them."""

    @dataclasses.dataclass
    class Data:
        a: int
        seed: dataclasses.InitVar[int] = 3
        made: int = dataclasses.field(init=False, default=9)
        shared: typing.ClassVar[int] = 3
        z: int = dataclasses.field(default=5, kw_only=True)

    class Camel(msgspec.Struct, rename="camel"):
        first_name: str
        last_name: str | msgspec.UnsetType = msgspec.UNSET

    @attrs.define
    class Attrs:
        _hidden: int
        made: int = attrs.field(init=False, default=1)

    @attrs.define
    class Loose:
        anything: Any = attrs.field(default=None)

    class Model(BaseModel):
        name: str = Field(alias="fullName")
        size: int = 3

    found = [list(schema_of(cls)["properties"]) for cls in (Data, Camel, Attrs, Loose, Model)]
    assert found == [
        ["a", "seed", "z"],
        ["firstName", "lastName"],
        ["_hidden"],
        ["anything"],
        ["fullName", "size"],
    ]
    assert schema_of(Camel)["required"] == ["firstName"]


def test_a_signature_keeps_what_the_return_type_means() -> None:
    """FN-6: resolved, and `UNSET` when there is none."""

    def one() -> "list[int]":
        return []

    def two():  # type: ignore[no-untyped-def]  # noqa: ANN202  # the point
        ...

    assert reflect(one).returns == list[int]
    assert reflect(two).returns is msgspec.UNSET


def test_shapes_are_values() -> None:
    """Rule 14: reflecting twice gives equal trees, frozen ones."""
    first, second = (shape_of(IntBox, where="x") for _ in range(2))
    assert first == second
    assert isinstance(first, Object)
    with pytest.raises(AttributeError):
        first.fields = ()  # type: ignore[misc]  # the point


# ---- refusals ------------------------------------------------------------------------------------


def untyped(x): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, D103


def generator(x: int) -> Iterator[int]:  # noqa: D103
    yield x


async def async_generator(x: int) -> collections.abc.AsyncIterator[int]:  # noqa: D103
    yield x


def signed() -> None: ...  # noqa: D103


signed.__signature__ = "nonsense"  # type: ignore[attr-defined]  # read by inspect


class Bare(NamedTuple):
    """A class with something that has no form in JSON."""

    key: complex


def taking(hint: object) -> Callable[..., object]:
    """Return a function with one parameter of a type."""

    def f(x): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202

    f.__annotations__["x"] = hint
    return f


REFUSED: list[tuple[object, str]] = [
    (untyped, "parameter `x` of `untyped` has no type; write one"),
    (generator, "`generator` is a generator.*return a list"),
    (async_generator, "`async_generator` is a generator"),
    (lambda: None, "a lambda has no name; write a `def`"),
    ("name", r"write `@tool\(name='name'\)`"),
    (Service.find, r"`find` is a method without its object.*tool\(obj.find\)"),
    (Service.__dict__["make"], r"`make` is a class method.*tool\(Class.make\)"),
    (Service, "`Service` is a class; write a function"),
    (5, "a tool is made from a function, and this is a int"),
    (dict.fromkeys, "no type|cannot be seen"),
    (signed, "the parameters of `signed` cannot be seen.*wrap it in a `def`"),
    (taking(complex), "parameter `x` of `f`: `complex` has no form in JSON; use a plain type"),
    (taking(list[complex]), "`complex` has no form in JSON"),
    (taking(Bare), "parameter `x` of `f`: field `key` of `Bare`: `complex` has no form"),
    (taking(Callable[[int], str]), "has no form in JSON"),
    (taking(typing.Never), "has no form in JSON"),
    (taking(5), "has no form in JSON"),
    (taking([int]), "has no form in JSON"),
    (taking(Annotated[dt.datetime, msgspec.Meta(tz=False)]), "constraint `tz` means nothing"),
    (taking(Annotated[dt.datetime, annotated_types.Timezone(None)]), "constraint `tz` means"),
    (taking("5 +"), "its annotation is not a type"),
    (taking(dict[int, str]), "keys of an object in JSON are strings"),
    (taking(set[list[int]]), "items of a set must be hashable"),
    (taking(frozenset[dict[str, int]]), "items of a frozenset must be hashable"),
    (taking(Literal[b"x"]), "has no form in JSON"),
    (taking(typing.Self), "`Self` stands outside a class"),
    (taking(Annotated[str, annotated_types.Ge(1)]), "constraint `ge` means nothing for str"),
    (taking(Annotated[bool | None, annotated_types.Len(1)]), "`min_length` means nothing for bool"),
    (taking(Annotated[tuple[int, str], annotated_types.Len(1)]), "means nothing"),
    (
        taking(Annotated[Annotated[int, annotated_types.MultipleOf(2)], Field(multiple_of=3)]),
        "two different values for `multipleOf`",
    ),
    (taking(Annotated[int, annotated_types.Ge("1")]), "`minimum` must be a number"),
    (taking(list[Annotated[str, Inject("a")]]), "`Inject` stands inside a type"),
    (taking(list[Annotated[str, Within("a")]]), "declare it as `Path`"),
    (taking(list[Annotated[Path | None, Within("a")]]), "declare it as `Path`"),
    (taking(Annotated[Path, Within("a"), Within("b")]), "two markers"),
    (taking(list[Annotated[Path, Within("a"), Within("b")]]), "two markers"),
    (taking(Annotated[Path, Within("a"), Inject("b")]), "two markers"),
    (taking(Secret), r"as in `Secret\[str\]`"),
    (taking(Secret[Secret[str]]), "not a secret"),
    (taking(dict[Secret[str], int]), "the keys of an object"),
    (taking(Annotated[str, Within("a")]), "declare it as `Path`"),
    (taking(list[CallContext]), "`CallContext` is given by the harness"),
]


@pytest.mark.parametrize(("subject", "sentence"), REFUSED, ids=called)
def test_a_declaration_that_cannot_work_says_why_and_what_instead(
    subject: Any,  # noqa: ANN401  # anything a caller may decorate
    sentence: str,
) -> None:
    """FN-1: at declaration, with function, parameter, what was found and what would work."""
    with pytest.raises(DeclarationError, match=sentence):
        reflect(subject)


def test_a_second_context_is_refused() -> None:
    """FN-5: one annotated context."""

    def f(a: CallContext, b: CallContext) -> None: ...

    with pytest.raises(DeclarationError, match="parameter `b` of `f`: a second `CallContext`"):
        reflect(f)


def test_a_variadic_parameter_cannot_be_hidden() -> None:
    """FN-5: who gives several of them?"""

    def f(*tenants: Annotated[str, Inject("tenant")]) -> None: ...

    with pytest.raises(DeclarationError, match="variadic parameter cannot be hidden"):
        reflect(f)


def test_an_enum_that_json_cannot_say_is_refused() -> None:
    """FN-2: an enum goes by its values."""

    class Empty(enum.Enum):
        pass

    class Pairs(enum.Enum):
        A = (1, 2)

    for cls, sentence in ((Empty, "has no members"), (Pairs, "has no form in JSON")):
        with pytest.raises(DeclarationError, match=sentence):
            shape_of(cls, where="parameter `x` of `f`")


def test_a_supplied_schema_must_be_an_object() -> None:
    """FN-2: `json_schema()` returns a JSON Schema."""

    class Broken:
        @classmethod
        def json_schema(cls) -> list[str]:
            return ["object"]

    with pytest.raises(DeclarationError, match=r"`Broken.json_schema\(\)` must return a dict"):
        shape_of(Broken, where="parameter `x` of `f`")
