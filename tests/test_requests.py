"""An input request: what a call asks for, kept exactly and bounded."""

import math
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import InputRequest, InvalidValue

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
DIGITS = 9007199254740993


def request(**parts: object) -> InputRequest:
    """Return a request that differs from a plain one in some parts."""
    fields = {"message": "Sure?", "schema": {"type": "boolean"}, "state": None} | parts
    return InputRequest(**cast("dict[str, str]", fields))  # type: ignore[arg-type]  # whatever is given


def test_a_request_keeps_its_parts_exactly() -> None:
    """SUS-1, scope 119, 124: every digit of every number."""
    schema = {"type": "object", "properties": {"n": {"const": DIGITS}}}
    made = InputRequest("Sure? é 値", schema=schema, state={"n": [DIGITS, 2**70, 1.5, None]})

    assert (made.message, made.schema) == ("Sure? é 値", schema)
    assert made.state == {"n": [DIGITS, 2**70, 1.5, None]}
    assert InputRequest("Sure?", schema=True) == InputRequest.from_json(
        {"message": "Sure?", "schema": True, "state": None}
    )


def test_a_request_shares_nothing_with_what_it_was_made_of() -> None:
    """SUS-1, DEF-4: state and schema are copied in."""
    schema: dict[str, object] = {"type": "object"}
    state: dict[str, object] = {"step": [1]}
    made = InputRequest("Sure?", schema=schema, state=state)

    schema["type"] = "array"
    cast("list[int]", state["step"]).append(2)

    assert (made.schema, made.state) == ({"type": "object"}, {"step": [1]})


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("message", None),
        ("message", 5),
        ("message", "\ud800"),
        ("message", "\ufffe"),
        ("schema", None),
        ("schema", "object"),
        ("schema", []),
        ("schema", {"type": "strng"}),
        ("schema", {"$ref": "https://example.com/schema"}),
        ("schema", {"$ref": "#/nowhere"}),
        ("schema", {"pattern": "("}),
        ("schema", {"const": math.nan}),
        ("state", object()),
        ("state", math.inf),
        ("state", {"a": "\ud800"}),
        ("state", {"a": "\ufdd0"}),
        ("state", 10**400),
        ("expires_in", 0),
        ("expires_in", -1),
        ("expires_in", math.inf),
        ("expires_in", math.nan),
        ("expires_in", "soon"),
    ],
)
def test_a_part_that_cannot_be_is_refused_by_name(part: str, value: object) -> None:
    """SUS-1, scope 120: an `InvalidValue` that names the part, whatever is wrong with it."""
    with pytest.raises(InvalidValue) as caught:
        request(**{part: value})

    assert part in str(caught.value) or "no JSON form" in str(caught.value)


@pytest.mark.parametrize("part", ["message", "schema", "state"])
def test_each_part_is_bounded(part: str) -> None:
    """SUS-1, JSON-3: 1 MiB as written, and 128 levels."""
    large: object = "x" * (1 << 20)
    fits: object = "x" * ((1 << 20) - 100)
    if part == "schema":
        large, fits = {"description": large}, {"description": fits}

    assert request(**{part: fits})
    with pytest.raises(InvalidValue, match=f"the {part} of an InputRequest: too large"):
        request(**{part: large})


def test_a_state_that_is_too_deep_is_refused() -> None:
    """JSON-3: never a `RecursionError`."""
    deep: object = 1
    for _ in range(200):
        deep = [deep]
    with pytest.raises(InvalidValue, match="too large"):
        request(state=deep)
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidValue):
        request(state=deep)


JSON: st.SearchStrategy[object] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**80), 2**80), TEXT),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@given(TEXT, JSON, st.none() | st.integers(1, 100) | st.floats(0.5, 1e9))
def test_any_request_survives_a_round_trip(
    message: str, state: object, expires_in: float | None
) -> None:
    """SUS-1, DEF-4, scope 121: message, schema and state, in this order."""
    try:
        made = request(message=message, state=state, expires_in=expires_in)
    except InvalidValue as error:
        assert "noncharacter" in str(error)  # noqa: PT017  # most texts have none
        return

    assert list(made.to_json())[:3] == ["message", "schema", "state"]
    assert InputRequest.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    "form",
    [
        None,
        {},
        [],
        {"message": "a", "schema": True},
        {"message": "a", "state": None},
        {"schema": True, "state": None},
        {"message": 5, "schema": True, "state": None},
        {"message": "a", "schema": {"type": "strng"}, "state": None},
        {"message": "a", "schema": True, "state": None, "wait": "w1"},
        {"message": "a", "schema": True, "state": None, "expires_in": "soon"},
    ],
)
def test_what_is_no_request_is_refused(form: object) -> None:
    """DEF-4, scope 122: missing and unknown members, a schema that does not compile."""
    with pytest.raises(InvalidValue):
        InputRequest.from_json(form)
