"""A call as a model wrote it: untrusted, kept as written."""

import math
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import InvalidValue, ToolCall, read_json

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def test_a_call_keeps_what_was_written() -> None:
    """Section 1, JSON-5: broken JSON and blanks too; reading them is admission's business."""
    call = ToolCall(id="", name="no such tool", arguments=' {"a": 1.0,, \n')

    assert (call.id, call.name, call.arguments) == ("", "no such tool", ' {"a": 1.0,, \n')
    assert ToolCall(id="c", name="a").arguments == ""


@pytest.mark.parametrize("field", ["id", "name", "arguments"])
@pytest.mark.parametrize("value", [None, 5, b"a", ["a"], "\ud800", "a\udc00b"])
def test_a_field_that_is_no_unicode_text_is_refused_by_name(field: str, value: object) -> None:
    """Scope 117, DEF-4: a lone surrogate has no UTF-8; `value-é-値` has."""
    fields = {"id": "value-é-値", "name": "value-é-値", "arguments": "value-é-値"}
    assert ToolCall(**fields).name == "value-é-値"

    with pytest.raises(InvalidValue, match=f"the {field} of a ToolCall"):
        ToolCall(**(fields | {field: cast("str", value)}))


def test_a_call_made_in_code_has_an_id_and_json_of_its_own() -> None:
    """API `ToolCall.of`: ids differ, a given one is kept, and no arguments are no text."""
    one, other = ToolCall.of("a"), ToolCall.of("a")

    assert one.id
    assert one.id != other.id
    assert one.arguments == ""
    assert ToolCall.of("a", {"b": [1, "é"]}, id="c1") == ToolCall(
        id="c1", name="a", arguments='{"b":[1,"é"]}'
    )


@pytest.mark.parametrize("value", [2**64, -(2**70), 1.0, "値", True, None, [[]], {"a": {}}])
def test_arguments_made_in_code_read_back_exactly(value: object) -> None:
    """JSON-2: integers of any size keep their digits."""
    read = read_json(ToolCall.of("a", {"x": value}).arguments)

    assert read == {"x": value}
    assert type(cast("dict[str, object]", read)["x"]) is type(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), "\ud800", [1, {2j}]])
def test_arguments_without_a_json_form_are_refused(value: object) -> None:
    """JSON-1, DEF-4: nothing that is not JSON leaves as JSON."""
    with pytest.raises(InvalidValue, match=r"at \$\.x.* has no JSON form"):
        ToolCall.of("a", {"x": value})


@given(st.builds(ToolCall, id=TEXT, name=TEXT, arguments=TEXT))
def test_any_call_survives_a_round_trip(call: ToolCall) -> None:
    """DEF-4."""
    assert ToolCall.from_json(call.to_json()) == call


@pytest.mark.parametrize(
    "form",
    [
        None,
        [],
        "c1",
        {"id": "c1"},
        {"name": "a"},
        {"id": "c1", "name": "a", "arguments": {"b": 1}},
        {"id": 1, "name": "a"},
        {"id": "c1", "name": "a", "type": "function"},
        {"id": "c1", "name": "a", "arguments": None},
        {"id": "c1", "name": "\ud800"},
    ],
)
def test_what_is_no_call_is_refused(form: object) -> None:
    """DEF-4: unknown members, missing ones, wrong types."""
    with pytest.raises(InvalidValue):
        ToolCall.from_json(form)


def test_a_refusal_does_not_repeat_the_value() -> None:
    """JSON-6: which member and what was expected are enough."""
    with pytest.raises(InvalidValue) as caught:
        ToolCall.from_json({"id": "c1", "name": ["sk-secret"]})

    assert "name" in str(caught.value)
    assert "sk-secret" not in str(caught.value)


def test_a_call_cannot_be_changed() -> None:
    """STYLE 11: frozen, with equality."""
    call = ToolCall(id="c1", name="a")
    with pytest.raises(AttributeError):
        call.name = "b"  # type: ignore[misc]  # that is the mistake under test

    assert call == ToolCall(id="c1", name="a")
    assert hash(call) == hash(ToolCall(id="c1", name="a"))
