"""The three forms of a tool's arguments, as its caller meets them."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from ferrule import (
    Completed,
    DeclarationError,
    Executor,
    InvalidTool,
    Rejected,
    Repair,
    ToolCall,
    bind,
    canonical,
    tool,
)
from ferrule.schema import Converted, schema_for, to_strict


@dataclass
class Part:
    """A part."""

    name: str
    count: int = 1
    tags: list[str] = field(default_factory=list)


def order(
    item: str,
    amount: int = 2,
    note: str | None = None,
    parts: list[Part] | None = None,
    speed: Literal["slow", "fast"] = "slow",
) -> dict[str, object]:
    """Order an item."""
    return {"amount": amount, "note": note, "parts": parts, "speed": speed}


STRICT = tool(form="strict", run_in="loop")(order)
OPEN = tool(form="open", run_in="loop")(order)
CLOSED = tool(run_in="loop")(order)


def test_the_strict_form_requires_everything_and_says_so() -> None:
    """SCH-4: every property required, every object closed, `strict` in the definition."""
    schema = STRICT.definition.input_schema

    assert STRICT.definition.strict
    assert schema["required"] == ["item", "amount", "note", "parts", "speed"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["amount"] == {"type": ["integer", "null"]}  # type: ignore[index]  # a dict
    assert schema["properties"]["speed"]["enum"] == ["slow", "fast", None]  # type: ignore[index]  # a dict


def test_nulls_that_stand_for_left_out_are_taken_away_and_recorded() -> None:
    """SCH-4: `null` is `None` where the type accepts it, otherwise "left out": `strict_null`."""
    arguments = {
        "item": "a",
        "amount": None,
        "note": None,
        "parts": [{"name": "p", "count": None, "tags": None}],
        "speed": None,
    }
    invocation = bind(STRICT).contract.admit(ToolCall.of("order", arguments))

    assert invocation.arguments == {"item": "a", "note": None, "parts": [{"name": "p"}]}
    assert invocation.repairs == tuple(
        Repair("strict_null", path)
        for path in ("amount", "parts[0].count", "parts[0].tags", "speed")
    )
    outcome = Executor([STRICT]).run_sync([ToolCall.of("order", arguments)])[0]
    assert isinstance(outcome, Completed)
    assert outcome.result.structured_content == {
        "amount": 2,
        "note": None,
        "parts": [{"count": 1, "name": "p", "tags": []}],
        "speed": "slow",
    }


def test_what_was_sent_strict_is_enforced_strict() -> None:
    """SCH-3: a property that is missing is refused, since the sent schema requires it."""
    outcome = Executor([STRICT]).run_sync([ToolCall.of("order", {"item": "a"})])[0]

    assert isinstance(outcome, Rejected)
    assert "amount" in outcome.text


def test_the_open_form_passes_over_unknown_names_and_the_closed_form_refuses_them() -> None:
    """SCH-4: open only because it was asked for."""
    call = ToolCall.of("order", {"item": "a", "zzz": 1})

    assert isinstance(Executor([OPEN]).run_sync([call])[0], Completed)
    assert isinstance(Executor([CLOSED]).run_sync([call])[0], Rejected)
    assert "additionalProperties" not in OPEN.definition.input_schema


def test_a_tool_without_a_strict_form_is_refused_with_the_path() -> None:
    """SCH-4, ST-04: never a silently closed empty object."""

    def meta(fields: dict[str, Any]) -> None: ...

    with pytest.raises(InvalidTool, match="`meta` has no strict form: fields"):
        tool(form="strict")(meta)


def test_a_supplied_schema_under_strict_must_be_strict_itself() -> None:
    """CONTRACT section 14, line 25."""
    loose = {"type": "object", "properties": {"item": {"type": "string"}}}

    with pytest.raises(InvalidTool, match="not in strict form"):
        tool(form="strict", input_schema=loose)(order)


def test_an_unknown_form_is_refused() -> None:
    """FN-1: says which there are."""
    with pytest.raises(DeclarationError, match='"closed", "open" or "strict"'):
        tool(form="loose")(order)  # type: ignore[call-overload]  # it is what is tested


@pytest.mark.parametrize("subject", [order, Part])
def test_both_ways_to_the_strict_form_meet(subject: object) -> None:
    """SCH-4: generated from the shape, and converted from the closed schema."""
    converted = to_strict(schema_for(subject))

    assert isinstance(converted, Converted)
    assert canonical(converted.schema) == canonical(schema_for(subject, form="strict"))
