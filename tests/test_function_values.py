"""What a function takes and what it returns: the declared types, both ways."""

import dataclasses
import enum
import inspect
from typing import Annotated, Any, Literal, TypedDict, cast

import msgspec
import pydantic
import pytest

from ferrule import (
    Completed,
    Image,
    InputRequest,
    InvalidCall,
    RawJSON,
    Rejected,
    Result,
    Suspended,
    Text,
    ToolCall,
    Unknown,
    bind,
    tool,
)
from functions import given, properties, run

PICTURE = Image(url="https://example.com/a.png")


# ---- parameters ----------------------------------------------------------------------------------


class Colour(enum.Enum):
    """An enum by value."""

    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Inner:
    """A nested class with a default."""

    colour: Colour
    weight: float = 1.5


class Options(TypedDict, total=False):
    """A typed dictionary."""

    deep: bool


class Struct(msgspec.Struct):
    """A struct."""

    inner: Inner
    tags: set[str] = msgspec.field(default_factory=set)


def test_the_function_receives_the_declared_types_at_every_depth() -> None:
    """FN-2, scope 52: never a dictionary where a class was declared; defaults of classes apply."""
    seen: list[object] = []

    @tool
    def take(
        struct: Struct,
        many: list[Inner],
        named: dict[str, Inner],
        pair: tuple[int, Colour],
        options: Options,
        data: bytes,
        mode: Literal["a", "b"] = "a",
    ) -> None:
        seen.extend([struct, many, named, pair, options, data, mode])

    red, heavy = {"colour": "red"}, {"colour": "blue", "weight": 2}
    outcome = run(
        take,
        struct={"inner": red, "tags": ["x", "y"]},
        many=[red, heavy],
        named={"k": red},
        pair=[1, "blue"],
        options={"deep": True},
        data="aGk=",
    )

    assert isinstance(outcome, Completed), outcome.text
    assert seen == [
        Struct(Inner(Colour.RED), {"x", "y"}),
        [Inner(Colour.RED), Inner(Colour.BLUE, 2.0)],
        {"k": Inner(Colour.RED)},
        (1, Colour.BLUE),
        {"deep": True},
        b"hi",
        "a",
    ]
    assert type(cast("list[Inner]", seen[1])[1].weight) is float


def test_optional_and_nullable_are_different() -> None:
    """FN-4: required, optional, nullable, and `x: int = None`."""
    seen: list[tuple[object, ...]] = []

    @tool
    def take(
        required: int,
        nullable: int | None,
        optional: int = 5,
        implicit: int = None,  # type: ignore[assignment]  # noqa: RUF013  # the contract reads it
    ) -> None:
        seen.append((required, nullable, optional, implicit))

    assert take.definition.input_schema["required"] == ["required", "nullable"]
    run(take, required=1, nullable=None)
    run(take, required=1, nullable=2, optional=3, implicit=None)

    assert seen == [(1, None, 5, None), (1, 2, 3, None)]
    for wrong in (
        {"required": 1},
        {"required": None, "nullable": 1},
        {"required": 1, "nullable": 1, "optional": None},
    ):
        assert isinstance(run(take, **wrong), Rejected)


def test_a_mutable_default_is_new_for_each_call() -> None:
    """FN-4: what one call does to it, the next does not see; the function's own stays empty."""

    @tool
    def collect(
        item: str,
        into: list[str] = [],  # noqa: B006  # that is the habit under test
        deep: dict[str, list[str]] = {"a": []},  # noqa: B006
    ) -> list[str]:
        into.append(item)
        deep["a"].append(item)
        return into + deep["a"]

    assert given(collect, item="a") == ["a", "a"]
    assert given(collect, item="b") == ["b", "b"]
    assert inspect.signature(collect).parameters["into"].default == []


def test_parameters_may_have_any_name() -> None:
    """FN-3: names that frameworks keep for themselves."""

    @tool
    def one(schema: int, json: int, copy: int, model_config: int, self_: int, _x: int) -> int:
        return schema + json + copy + model_config + self_ + _x

    @tool
    def other(arguments: int, value: int, call: int, definition: int, context: str) -> int:
        return arguments + value + call + definition + len(context)

    assert list(properties(one)) == ["schema", "json", "copy", "model_config", "self_", "_x"]
    assert given(one, **dict.fromkeys(properties(one), 1)) == 6
    assert given(other, arguments=1, value=1, call=1, definition=1, context="c") == 5


def test_every_kind_of_parameter_is_passed_as_it_is_declared() -> None:
    """FN-3: positional-only, `*args`, keyword-only and `**kwargs`."""
    seen: list[object] = []

    @tool
    def take(first: int, /, second: int = 2, *rest: int, flag: bool = False, **more: int) -> None:
        seen.append((first, second, rest, flag, more))

    schema = take.definition.input_schema
    run(take, first=1)
    run(take, first=1, second=3, rest=[4, 5], flag=True, extra=6)

    assert schema["additionalProperties"] == {"type": "integer"}
    assert seen == [(1, 2, (), False, {}), (1, 3, (4, 5), True, {"extra": 6})]
    assert isinstance(run(take, first=1, extra="x"), Rejected)


@pytest.mark.parametrize(
    ("arguments", "admitted"),
    [
        ({"small": -128}, True),
        ({"small": 127}, True),
        ({"small": 128}, False),
        ({"small": -129}, False),
        ({"small": 1.5}, False),
        ({"big": 2**64 - 1}, True),
        ({"big": 2**64}, False),
        ({"big": -1}, False),
        ({"ratio": 1.25}, True),
        ({"ratio": "1.25"}, False),
        ({"data": "aGk="}, True),
        ({"data": "!"}, False),
        ({"data": "aGk"}, False),
        ({"word": "ab"}, True),
        ({"word": "a"}, False),
        ({"word": "xb"}, False),
        ({"free": {"a": [None]}}, True),
        ({"unknown": 1}, False),
        ({}, True),
    ],
)
def test_constraints_are_in_the_schema_and_enforced(
    arguments: dict[str, object], admitted: bool
) -> None:
    """FN-2, scope 49, 54, 62, 63: at the boundary, before the function runs."""
    ran: list[object] = []

    @tool
    def take(
        small: Annotated[int, msgspec.Meta(ge=-128, le=127)] = 0,
        big: Annotated[int, msgspec.Meta(ge=0)] = 0,
        ratio: float = 0.0,
        data: bytes = b"",
        word: Annotated[str, msgspec.Meta(min_length=2, pattern="^a")] = "ab",
        free: Any = None,  # noqa: ANN401  # a free-typed parameter is what is tested
    ) -> None:
        ran.append((small, big, ratio, data, word, free))

    outcome = run(take, **arguments)

    assert isinstance(outcome, Completed if admitted else Rejected), outcome.text
    assert len(ran) == admitted


# ---- returns -------------------------------------------------------------------------------------


class Model(pydantic.BaseModel):
    """A pydantic model."""

    n: int = 1


RETURNS: dict[str, tuple[object, object]] = {
    "text": ("verbatim \n {", Result((Text("verbatim \n {"),))),
    "empty text": ("", Result()),
    "nothing": (None, Result()),
    "a block": (PICTURE, Result((PICTURE,))),
    "blocks": ([Text("a"), PICTURE], Result((Text("a"), PICTURE))),
    "a result": (Result.of("a"), Result.of("a")),
    "a number": (5, Result(structured_content=5)),
    "false": (False, Result(structured_content=False)),
    "a list": ([1, "a"], Result(structured_content=[1, "a"])),
    "no items": ([], Result(structured_content=[])),
    "a mapping": ({"b": 1, "a": 2}, Result(structured_content={"a": 2, "b": 1})),
    "a dataclass": (Inner(Colour.RED), Result(structured_content={"colour": "red", "weight": 1.5})),
    "a model": (Model(), Result(structured_content={"n": 1})),
    "raw JSON": (RawJSON(' {"a":1.0}'), Result(structured_content=RawJSON(' {"a":1.0}'))),
}


@pytest.mark.parametrize("kind", RETURNS)
@pytest.mark.parametrize("is_async", [True, False])
def test_what_a_function_returns_is_its_result(kind: str, is_async: bool) -> None:
    """FN-6, agenttool 42: one table for plain and async functions."""
    value, result = RETURNS[kind]

    async def later() -> Any:  # noqa: ANN401  # whatever the table has
        return value

    def now() -> Any:  # noqa: ANN401  # whatever the table has
        return value

    outcome = run(tool(name="t")(later) if is_async else tool(name="t")(now))

    assert outcome == Completed(cast("Result", result))


def test_an_input_request_suspends() -> None:
    """FN-6, SUS-1: a value, never an exception."""
    question = InputRequest("Sure?", schema={"type": "boolean"})

    @tool
    def ask() -> InputRequest:
        return question

    assert run(ask) == Suspended(question)


@pytest.mark.parametrize("value", [object(), float("nan"), {"a": {1j}}, "\ud800", iter([1])])
def test_a_value_that_cannot_be_encoded_came_after_the_effect(value: object) -> None:
    """FN-6, scope 60, EX-10: the function did run, so nobody can say."""
    ran: list[bool] = []

    @tool(replay="safe")
    def work() -> Any:  # noqa: ANN401  # whatever the table has
        ran.append(True)
        return value

    outcome = run(work)

    assert isinstance(outcome, Unknown)
    assert (outcome.reason, ran) == ("bad_result", [True])


def test_arguments_that_the_types_refuse_never_reach_the_function() -> None:
    """ADM-2, FN-2: a refusal at admission, by hand too."""

    @tool
    def take(n: int) -> int:
        raise AssertionError

    with pytest.raises(InvalidCall, match="n: expected integer"):
        bind(take).contract.admit(ToolCall.of("take", {"n": "1"}))
