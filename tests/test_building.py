"""What frameworks get wrong when they make a tool of a function, each done right."""

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Optional

import attrs
import msgspec
import pydantic
import pytest
from annotated_types import Ge, Le

from ferrule import (
    Completed,
    DeclarationError,
    Executor,
    Outcome,
    Rejected,
    ToolCall,
    Unknown,
    tool,
)


def run(function: Callable[..., object], arguments: object) -> Outcome:
    """Run one call of a function as a tool."""
    made = tool(run_in="loop")(function)
    return Executor([made]).run_sync([ToolCall.of(made.definition.name, arguments)])[0]


def seen(function: Callable[..., object], arguments: object) -> object:
    """Return what the tool gave as structured content, or as text."""
    outcome = run(function, arguments)
    assert isinstance(outcome, Completed), outcome.text
    content = outcome.result.structured_content
    return outcome.text if content is msgspec.UNSET else content


@dataclass
class Data:
    """A dataclass with a default."""

    a: int
    b: str = "x"


class Pair(NamedTuple):
    """A named tuple."""

    a: int
    b: str


@attrs.define
class Attrs:
    """An attrs class."""

    a: int


class Struct(msgspec.Struct):
    """A msgspec struct."""

    a: int


class Model(pydantic.BaseModel):
    """A pydantic model."""

    a: int


class Tree(pydantic.BaseModel):
    """A model that contains itself."""

    value: int
    children: list["Tree"] = []


def test_c2_and_c4_awkward_names_are_names_like_others() -> None:
    """C2, C4, FN-3: `schema`, `json`, `copy`, `model_config`, `self_` and `_a`."""

    def take(
        schema: int, json: int, copy: int, model_config: int, self_: int, _a: int
    ) -> list[int]:
        return [schema, json, copy, model_config, self_, _a]

    names = ["schema", "json", "copy", "model_config", "self_", "_a"]
    assert seen(take, {name: index for index, name in enumerate(names)}) == [0, 1, 2, 3, 4, 5]


def test_c3_and_c5_positional_only_and_variadic_parameters_are_called_as_declared() -> None:
    """C3, C5, FN-3, SG-07: by position, as one array, as further names."""

    def take(a: int, b: int = 2, /, *args: int, c: int = 3, **kw: int) -> list[object]:
        return [a, b, list(args), c, kw]

    assert seen(take, {"a": 1}) == [1, 2, [], 3, {}]
    assert seen(take, {"a": 1, "b": 5, "args": [6, 7], "c": 8, "z": 9}) == [
        1,
        5,
        [6, 7],
        8,
        {"z": 9},
    ]
    assert isinstance(run(take, {"a": 1, "z": "no"}), Rejected)


def test_c6_a_map_has_no_strict_form_and_says_where() -> None:
    """C6, SCH-4: the sentence names the parameter, and what to take instead."""

    def take(d: dict[str, int]) -> None: ...

    with pytest.raises(DeclarationError, match=r"strict form: d: .*list its properties"):
        tool(form="strict")(take)


@pytest.mark.parametrize("bound", [(Ge(1), Le(10)), (pydantic.Field(ge=1, le=10),)])
def test_c7_bounds_are_sent_and_enforced(bound: tuple[object, ...]) -> None:
    """C7, FN-2: of annotated_types and of pydantic alike."""

    def take(n: int) -> int:
        return n

    take.__annotations__["n"] = Annotated[(int, *bound)]
    assert tool(take).definition.input_schema["properties"] == {
        "n": {"type": "integer", "maximum": 10, "minimum": 1}
    }
    assert seen(take, {"n": 10}) == 10
    assert isinstance(run(take, {"n": 11}), Rejected)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(Data, {"a": 1}), (Pair, [1, "x"]), (Attrs, {"a": 1}), (Struct, {"a": 1}), (Model, {"a": 1})],
)
def test_c8_c9_and_c15_a_class_arrives_as_itself_with_its_own_defaults(
    kind: type, value: object
) -> None:
    """C8, C9, C15, SG-03: dataclass, named tuple, attrs, struct and model."""

    def take(x: object) -> list[object]:
        return [type(x) is kind, getattr(x, "a", None), getattr(x, "b", "x")]

    take.__annotations__["x"] = kind
    assert seen(take, {"x": value}) == [True, 1, "x"]


def test_c10_a_mutable_default_belongs_to_one_call() -> None:
    """C10, FN-4: what one call puts into it, the next does not find."""

    def take(xs: list[int] = []) -> int:  # noqa: B006  # it is what is tested
        xs.append(1)
        return len(xs)

    assert [seen(take, {}), seen(take, {})] == [1, 1]


def test_c11_and_c12_a_default_of_none_takes_null_and_says_so() -> None:
    """C11, C12, FN-4: the schema does not contradict itself."""

    def implicit(n: int = None) -> bool:  # type: ignore[assignment]  # noqa: RUF013  # what is tested
        return n is None

    def optional(n: Optional[int] = None) -> bool:  # noqa: UP045  # as older code writes it
        return n is None

    for take in (implicit, optional):
        schema = tool(take).definition.input_schema
        assert schema["properties"] == {"n": {"type": ["integer", "null"]}}
        assert seen(take, {"n": None}) is True
        assert seen(take, {}) is True


def test_c13_bytes_are_base64_and_decoded() -> None:
    """C13, FN-2: both ways."""

    def take(b: bytes) -> bytes:
        assert b == b"hi"
        return b

    assert seen(take, {"b": "aGk="}) == "aGk="
    assert isinstance(run(take, {"b": "not base64"}), Rejected)


def test_c14_a_number_is_no_date() -> None:
    """C14: refused, not read as seconds since 1970."""

    def take(when: dt.datetime) -> str:
        return when.isoformat()

    assert isinstance(run(take, {"when": 5}), Rejected)
    assert seen(take, {"when": "2026-01-02T03:04:05Z"}) == "2026-01-02T03:04:05+00:00"


def test_c16_the_root_of_a_recursive_model_is_an_object() -> None:
    """C16, DEF-2: `type` object, and the model below it arrives whole."""

    def take(tree: Tree) -> int:
        return tree.children[0].value

    assert tool(take).definition.input_schema["type"] == "object"
    assert seen(take, {"tree": {"value": 1, "children": [{"value": 2}]}}) == 2


class Weird:
    """Something that has no form in JSON."""


@pytest.mark.parametrize("value", [math.nan, Weird(), "\ud800", {"a": [math.inf]}])
def test_c17_what_cannot_be_given_on_is_an_unknown_outcome(value: object) -> None:
    """C17, FN-6: never a repr, never null in its place, and no error after the call."""

    def take() -> Any:  # noqa: ANN401  # it is what is tested
        return value

    outcome = run(take, {})
    assert isinstance(outcome, Unknown)
    assert outcome.reason == "bad_result"
    assert "Weird" not in outcome.text


def test_c17_sets_and_bytes_have_one_form() -> None:
    """C17, EX-10: sets in order, bytes in base64."""

    def take() -> dict[str, object]:
        return {"set": {3, 1, 2}, "bytes": b"\xff"}

    assert seen(take, {}) == {"set": [1, 2, 3], "bytes": "/w=="}


def test_c18_a_result_that_breaks_its_declared_type_is_an_unknown_outcome() -> None:
    """C18, FN-6: the tool did run; nobody downstream has to find out."""

    def take() -> int:
        return "notint"  # type: ignore[return-value]  # it is what is tested

    outcome = run(take, {})
    assert isinstance(outcome, Unknown)
    assert outcome.reason == "bad_result"
