"""For random signatures, what a schema lets in arrives as the declared types."""

import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import inspect
import json
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired

import annotated_types
import attrs
import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings, target
from hypothesis import strategies as st
from pydantic import PydanticSchemaGenerationError, create_model
from typing_extensions import TypedDict

from ferrule.errors import InvalidCall
from ferrule.schema import Converted, compile, to_strict
from ferrule.schema._families import converter
from ferrule.schema._generate import NotStrictError, generate
from ferrule.schema._reflect import reflect


class Color(enum.Enum):
    """Strings."""

    RED = "red"
    BLUE = "blue"


class Mixed(enum.Enum):
    """Values of several kinds."""

    HALF = 0.5
    ALL = "all"


class Kind(msgspec.Struct, frozen=True):
    """A random type, and how to tell that a value is of it."""

    hint: Any
    fits: Callable[[Any], bool]
    hashable: bool = False


def exactly(*types: type) -> Callable[[Any], bool]:
    """Return whether a value is of one of some types, and of no subclass."""
    return lambda value: type(value) in types


LEAVES = [
    Kind(bool, exactly(bool), hashable=True),
    Kind(int, exactly(int), hashable=True),
    Kind(float, exactly(float), hashable=True),
    Kind(str, exactly(str), hashable=True),
    Kind(Literal["b", "a", 3], lambda value: value in ("b", "a", 3), hashable=True),
    Kind(Literal[Color.RED, None], lambda value: value in (Color.RED, None), hashable=True),  # noqa: PYI061  # as it is
    Kind(Color, exactly(Color), hashable=True),
    Kind(Mixed, exactly(Mixed), hashable=True),
    Kind(dt.datetime, exactly(dt.datetime), hashable=True),
    Kind(dt.date, exactly(dt.date), hashable=True),
    Kind(dt.time, exactly(dt.time), hashable=True),
    Kind(dt.timedelta, exactly(dt.timedelta), hashable=True),
    Kind(decimal.Decimal, exactly(decimal.Decimal), hashable=True),
    Kind(uuid.UUID, exactly(uuid.UUID), hashable=True),
    Kind(Path, exactly(type(Path())), hashable=True),
    Kind(bytes, exactly(bytes), hashable=True),
    Kind(Annotated[int, annotated_types.Interval(ge=-3, lt=9)], lambda value: -3 <= value < 9),
    Kind(Annotated[str, annotated_types.Len(1, 3)], lambda value: 1 <= len(value) <= 3),
    Kind(Any, lambda _: True),
]
FORMATS: dict[object, st.SearchStrategy[str]] = {
    "date-time": st.datetimes(timezones=st.timezones()).map(
        lambda when: when.replace(microsecond=0).isoformat()[:25]
    ),
    "date": st.dates().map(dt.date.isoformat),
    "time": st.times().map(lambda time: time.isoformat() + "Z"),
    "duration": st.from_regex(r"\AP[0-9]{1,8}D(T[0-9]{1,6}H([0-9]{1,7}M([0-9]{1,7}S)?)?)?\Z"),
    "uuid": st.uuids().map(str),
}
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
"""JSON values of any kind."""


def values(schema: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401  # a schema of ours
    """Return the values that one of our schemas lets in, whole floats among the integers."""
    if "anyOf" in schema:
        return st.one_of(list(map(values, schema["anyOf"])))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema.get("type", "any")
    several = [kinds] if isinstance(kinds, str) else kinds
    return st.one_of([values_of(kind, schema) for kind in several])


def values_of(kind: str, schema: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401  # a schema of ours
    """Return the values of one JSON type that a schema lets in."""
    match kind:
        case "integer":
            least, most = schema.get("minimum", -(2**63)), schema.get("exclusiveMaximum", 2**63)
            whole = st.integers(least, most - 1)
            return whole | whole.filter(lambda number: abs(number) < 2**53).map(float)
        case "number":
            return st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5)
        case "string":
            return texts(schema)
        case "array":
            return arrays(schema)
        case "object":
            return objects(schema)
        case _:
            return {"boolean": st.booleans(), "null": st.none(), "any": ANYTHING}[kind]


def texts(schema: Any) -> st.SearchStrategy[str]:  # noqa: ANN401  # a schema of ours
    """Return the text that a schema lets in."""
    if "format" in schema:
        return FORMATS[schema["format"]]
    if "pattern" in schema:
        return st.from_regex(schema["pattern"].replace("$", r"\Z"))
    size = schema.get("minLength", 0), schema.get("maxLength", 8)
    return st.text(st.characters(codec="utf-8"), min_size=size[0], max_size=size[1])


def arrays(schema: Any) -> st.SearchStrategy[list[Any]]:  # noqa: ANN401  # a schema of ours
    """Return the arrays that a schema lets in."""
    if "prefixItems" in schema:
        return st.tuples(*map(values, schema["prefixItems"])).map(list)
    unique = json.dumps if schema.get("uniqueItems") else None
    size = schema.get("minItems", 0), schema.get("maxItems", 3)
    return st.lists(values(schema["items"]), min_size=size[0], max_size=size[1], unique_by=unique)


def objects(schema: Any) -> st.SearchStrategy[dict[str, Any]]:  # noqa: ANN401  # a schema of ours
    """Return the objects that a schema lets in."""
    if "properties" not in schema:
        names = values(schema.get("propertyNames", {"type": "string"}))
        return st.dictionaries(names, values(schema["additionalProperties"]), max_size=3)
    parts = {name: values(part) for name, part in schema["properties"].items()}
    required = {name: parts.pop(name) for name in schema["required"]}
    return st.fixed_dictionaries(required, optional=parts)


FIELDS = ["alpha", "schema", "json", "copy_", "x1"]


def lists(inner: Kind) -> Kind:
    """Return a list of a type."""
    return Kind(list[inner.hint], lambda v: type(v) is list and all(map(inner.fits, v)))  # type: ignore[name-defined]  # at run time


def tuples(first: Kind, second: Kind) -> Kind:
    """Return a tuple of two types."""
    return Kind(
        tuple[first.hint, second.hint],  # type: ignore[name-defined]  # made at run time
        lambda v: type(v) is tuple and first.fits(v[0]) and second.fits(v[1]),
        hashable=first.hashable and second.hashable,
    )


def sets(inner: Kind) -> Kind:
    """Return a set, or a frozen one."""
    return Kind(
        frozenset[inner.hint],  # type: ignore[name-defined]  # made at run time
        lambda v: type(v) is frozenset and all(map(inner.fits, v)),
        hashable=True,
    )


def maps(inner: Kind, *, named: bool) -> Kind:
    """Return a map by text or by an enum."""
    key = Color if named else str
    return Kind(
        dict[key, inner.hint],  # type: ignore[name-defined, valid-type]  # made at run time
        lambda v: all(type(k) is key and inner.fits(part) for k, part in v.items()),
    )


def optional(inner: Kind) -> Kind:
    """Return a type or None."""
    return Kind(inner.hint | None, lambda v: v is None or inner.fits(v), hashable=inner.hashable)


def classes(family: str, parts: dict[str, Kind]) -> Kind:
    """Return a class of one of six families, whose last member may be left out."""
    hints = {name: part.hint for name, part in parts.items()}
    *_, last = parts

    def fits(value: Any) -> bool:  # noqa: ANN401  # anything
        given = value if family == "typeddict" else {n: getattr(value, n) for n in parts}
        if not isinstance(value, dict if family == "typeddict" else made):
            return False
        return all(part.fits(given[n]) for n, part in parts.items() if n != last or n in given)

    make: Any = TypedDict
    match family:
        case "dataclass":
            made: Any = dataclasses.make_dataclass("Data", list(hints.items()))
        case "typeddict":
            made = make("Dict", {**hints, last: NotRequired[hints[last]]})
        case "namedtuple":
            named: Any = NamedTuple
            made = named("Tuple", list(hints.items()))
        case "attrs":
            made = attrs.make_class("Attrs", {n: attrs.field(type=h) for n, h in hints.items()})
        case "pydantic":
            fields: Any = {f"{n}_": (h, ...) for n, h in hints.items()}
            try:
                made = create_model("Model", **fields)
            except PydanticSchemaGenerationError:  # it takes no attrs classes and no structs
                return classes("dataclass", parts)
            parts = {f"{n}_": part for n, part in parts.items()}
            last = f"{last}_"
        case _:
            made = msgspec.defstruct("Struct", list(hints.items()))
    return Kind(made, fits)


def kinds_around(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    """Return types that have other types inside."""
    families = ["dataclass", "typeddict", "namedtuple", "attrs", "pydantic", "struct"]
    members = st.dictionaries(st.sampled_from(FIELDS), inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(lists),
        st.builds(tuples, inner, inner),
        inner.filter(lambda kind: kind.hashable).map(sets),
        st.builds(maps, inner, named=st.booleans()),
        inner.map(optional),
        st.builds(classes, st.sampled_from(families), members),
    )


KINDS = st.recursive(st.sampled_from(LEAVES), kinds_around, max_leaves=4)
PARAMETERS = st.lists(
    st.tuples(
        KINDS,
        st.booleans(),
        st.sampled_from([inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.KEYWORD_ONLY]),
    ),
    min_size=1,
    max_size=3,
)


def function(parameters: list[tuple[Kind, bool, Any]]) -> Any:  # noqa: ANN401  # a function
    """Return a function with the given parameters, each optional or not."""

    def f(*args: object, **kwargs: object) -> list[object]:
        return [*args, *kwargs.values()]

    made = [
        inspect.Parameter(
            f"p{index}",
            inspect.Parameter.KEYWORD_ONLY if kind is not parameters[0][2] else kind,
            default=None if has_default else inspect.Parameter.empty,
            annotation=typed.hint,
        )
        for index, (typed, has_default, kind) in enumerate(parameters)
    ]
    first = [p for p in made if p.kind is inspect.Parameter.POSITIONAL_ONLY]
    rest = [p for p in made if p.kind is not inspect.Parameter.POSITIONAL_ONLY]
    ordered = sorted(first, key=lambda p: p.default is None) + rest
    f.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]  # read by inspect
    return f


NAMES = st.sampled_from(["p0", "p1", "p2"])
SEEN = {"admitted": 0, "dropped": 0}


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(data=st.data(), parameters=PARAMETERS)
def test_what_the_schema_lets_in_arrives_as_declared(data: Any, parameters: Any) -> None:  # noqa: ANN401
    """FN-2, SCH-3: for every value that hypothesis makes from the schema."""
    tool = function(parameters)
    signature = reflect(tool)
    schema = generate(signature)
    arguments = data.draw(values(schema), label="arguments")
    validator = compile(schema)
    if not validator.is_valid(arguments):
        event("a value that only hypothesis takes for valid")
        return
    convert = converter(signature)
    try:
        args, kwargs = convert.call_parts(convert(arguments))
    except InvalidCall:
        SEEN["dropped"] += 1
        raise
    SEEN["admitted"] += 1
    target(float(len(json.dumps(arguments))))
    given_values = dict(zip([p.name for p in signature.parameters], args, strict=False)) | kwargs
    for index, (kind, has_default, _) in enumerate(parameters):
        value = given_values[f"p{index}"]
        assert (has_default and value is None) or kind.fits(value), (kind.hint, value)


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(parameters=PARAMETERS)
def test_every_form_is_deterministic_and_compiles(parameters: Any) -> None:  # noqa: ANN401
    """SCH-4, SCH-5: equal bytes twice, in each form; the strict one is what converting gives."""
    signature = reflect(function(parameters))
    for form in ("closed", "open", "strict"):
        try:
            first, second = (generate(signature, form=form) for _ in range(2))
        except NotStrictError:
            assert form == "strict"
            continue
        assert json.dumps(first) == json.dumps(second)
        compile(first)
        converted = to_strict(generate(signature))
        if form == "strict" and isinstance(converted, Converted) and not converted.dropped:
            assert converted.schema == first


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(parameters=PARAMETERS, arguments=st.dictionaries(NAMES, ANYTHING))
def test_any_arguments_are_made_or_refused(parameters: Any, arguments: Any) -> None:  # noqa: ANN401
    """ADM-2: there is a value or an `InvalidCall`, and never another exception."""
    convert = converter(reflect(function(parameters)))
    with contextlib.suppress(InvalidCall):
        convert(arguments)


def test_little_is_left_to_the_decoder() -> None:
    """SCH-3: of what the schema let in, the decoder dropped less than one in twenty."""
    if not SEEN["admitted"]:
        pytest.skip("the property test did not run in this process")
    share = SEEN["dropped"] / sum(SEEN.values())
    sys.stdout.write(f"dropped by the decoder: {share:.1%} of {sum(SEEN.values())}\n")
    assert share < 0.05
