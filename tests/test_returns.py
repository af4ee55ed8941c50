"""What a function returns, as the output schema says and as it is checked."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypedDict

import msgspec
import pytest

from ferrule import (
    Completed,
    DeclarationError,
    Executor,
    Image,
    InputRequest,
    RawJSON,
    Result,
    Text,
    ToolCall,
    Unknown,
    tool,
)


@dataclass
class Point:
    """A point."""

    x: int
    y: float = 0.0


class Table(TypedDict):
    """Rows."""

    rows: list[list[int | str | None]]


class Pair(NamedTuple):
    """Two."""

    a: int
    b: str


def returns(hint: object) -> Callable[[], object]:
    """Return a function that declares to return `hint`."""

    def function() -> object: ...

    function.__annotations__["return"] = hint
    return function


@pytest.mark.parametrize(
    "hint",
    [
        *(str, None, Text, Result, InputRequest, RawJSON, Any, object),
        *(list[Text], list[Text | Image], str | None, str | InputRequest, Result | InputRequest),
        *(Annotated[str, "as text"], list[Image] | str),
    ],
)
def test_text_content_results_and_requests_have_no_output_schema(hint: object) -> None:
    """FN-6: `str`, `None`, content, `Result` and `InputRequest` give none."""
    assert tool(returns(hint)).definition.output_schema is None


def test_a_function_that_says_nothing_of_its_return_has_no_output_schema() -> None:
    """FN-6: no annotation, no promise."""

    @tool
    def quiet():  # type: ignore[no-untyped-def]  # noqa: ANN202  # it is what is tested
        """Say nothing."""
        return {"a": 1}

    assert quiet.definition.output_schema is None


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int, {"type": "integer"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (
            Point,
            {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "number", "default": 0.0}},
                "required": ["x"],
            },
        ),
        (dt.datetime, {"type": "string"}),
    ],
)
def test_the_return_annotation_gives_the_output_schema(hint: object, schema: object) -> None:
    """FN-6: open, and without the formats of times, which Python's own may lack a zone for."""
    found = tool(returns(hint)).definition.output_schema
    if isinstance(found, dict):
        found.pop("description", None)

    assert found == schema


@pytest.mark.parametrize(
    ("hint", "value", "text"),
    [
        (Point, Point(1, 2.5), '{"x":1,"y":2.5}'),
        (Table, {"rows": [[1, "a", None]]}, '{"rows":[[1,"a",null]]}'),
        (Pair, Pair(1, "b"), '[1,"b"]'),
        (set[int], {3, 1, 2}, "[1,2,3]"),
        (dt.datetime, dt.datetime(2026, 1, 2), '"2026-01-02T00:00:00"'),  # noqa: DTZ001  # naive
        (dt.timedelta, dt.timedelta(seconds=1.5), '"PT1.5S"'),
        (bytes, b"\xff", '"/w=="'),
        (dict[str, bool], {"b": True, "a": False}, '{"a":false,"b":true}'),
        (Point | None, None, ""),
        (bool, True, "true"),
    ],
)
def test_a_value_of_its_declared_type_is_structured_content(
    hint: object, value: object, text: str
) -> None:
    """FN-6, EX-10: one documented form for each type, and it fits its own schema."""
    function = returns(hint)
    given = tool(run_in="loop")(_giving(function, value))
    outcome = Executor([given]).run_sync([ToolCall.of("giving")])[0]

    assert isinstance(outcome, Completed), outcome
    assert outcome.text == text
    if text:
        assert outcome.result.structured_content is not msgspec.UNSET


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, "five"),
        (Point, {"y": 1}),
        (list[int], [1, "2"]),
        (dict[str, float], {"a": float("nan")}),
    ],
)
def test_a_value_that_breaks_the_output_schema_leaves_the_call_unknown(
    hint: object, value: object
) -> None:
    """FN-6, FAIL-6: the tool did run; `bad_result`."""
    given = tool(run_in="loop")(_giving(returns(hint), value))
    outcome = Executor([given]).run_sync([ToolCall.of("giving")])[0]

    assert isinstance(outcome, Unknown)
    assert outcome.reason == "bad_result"


def test_a_return_type_without_a_json_form_is_refused_when_declared() -> None:
    """FN-1: it could not work when called."""
    with pytest.raises(DeclarationError, match="what `function` returns"):
        tool(returns(complex))


def _giving(declared: Callable[[], object], value: object) -> Callable[[], object]:
    def giving() -> object:
        return value

    giving.__annotations__["return"] = declared.__annotations__["return"]
    return giving
