"""Outcomes as values: what is written of them, what is shown, and what is read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import (
    Cancelled,
    Completed,
    Failed,
    Failure,
    InputRequest,
    InvalidValue,
    Outcome,
    Problem,
    Record,
    Rejected,
    Result,
    Suspended,
    Text,
    Unknown,
    outcome_of,
)

MARKER = "sk-secret-4711"


class Speechless(Exception):
    """An exception that breaks when it is asked what it says."""

    def __str__(self) -> str:
        raise RuntimeError(MARKER)


@pytest.mark.parametrize("how", ["reference", "message"])
def test_private_words_are_shown_in_development_alone(how: str) -> None:
    """FAIL-4: `errors="message"` shows every message, bounded, and still the reference."""
    shown = outcome_of(
        ValueError("é" * 5000), tool="t", errors="message" if how == "message" else "reference"
    )

    assert isinstance(shown, Unknown)
    assert ("é" in shown.text) == (how == "message")
    assert len(shown.text.encode()) < 5000
    assert shown.reference is not None
    assert shown.reference in shown.text
    assert Unknown.from_json(shown.to_json()).text == shown.text


@pytest.mark.parametrize("error", [Speechless(), ValueError("\ud800"), ValueError()])
def test_words_that_cannot_be_shown_are_replaced(error: Exception) -> None:
    """FAIL-4, WIRE-2: a message that breaks, is not Unicode or is empty ends no batch."""
    text = outcome_of(error, tool="t", errors="message").text

    assert text.encode()
    assert text.endswith((": Speechless", ": ?", ": ValueError"))


NAMES = st.text("abc", max_size=4)
PROBLEM = st.builds(Problem, path=NAMES, rule=st.just("type"), expected=NAMES)
PROBLEMS = st.lists(PROBLEM, max_size=3).map(tuple)
REFERENCES = st.none() | st.just("0a1b2c3d")
RESULTS = st.builds(
    lambda text, terminate: Result((Text(text),), structured_content=[1], terminate=terminate),
    st.text("é ", max_size=4),
    st.booleans(),
)
OUTCOMES: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Completed, RESULTS),
    st.builds(
        lambda text, rejected, terminate, tool, reference: Failed(
            (Failure.rejected if rejected else Failure)(text, terminate=terminate),
            tool=tool,
            reference=reference,
        ),
        st.text("é", min_size=1, max_size=4),
        st.booleans(),
        st.booleans(),
        NAMES,
        REFERENCES,
    ),
    st.builds(
        Rejected,
        st.sampled_from(["unknown_tool", "invalid_arguments", "unavailable", "unauthorized"]),
        problems=PROBLEMS,
        message=NAMES,
        tool=NAMES,
        reference=REFERENCES,
    ),
    st.builds(Suspended, st.builds(InputRequest, NAMES, schema=st.booleans(), state=st.just([1]))),
    st.builds(Cancelled, st.sampled_from(["cancelled", "not_reached"]), tool=NAMES),
    st.builds(
        Unknown,
        st.sampled_from(["raised", "bad_result", "timed_out", "crashed", "still_running"]),
        evidence=st.none() | RESULTS,
        message=NAMES,
        tool=NAMES,
        reference=REFERENCES,
    ),
)


@given(OUTCOMES)
def test_any_outcome_survives_a_round_trip(outcome: Outcome) -> None:
    """DEF-4: the same class, the same words, the same wish to stop, the same JSON."""
    back = type(outcome).from_json(outcome.to_json())

    assert type(back) is type(outcome)
    assert back.to_json() == outcome.to_json()
    assert (back.text, back.terminate, back.is_error) == (
        outcome.text,
        outcome.terminate,
        outcome.is_error,
    )
    if not isinstance(outcome, Failed):  # A failure is an exception, equal to itself alone.
        assert back == outcome


def test_what_stays_in_the_process_is_not_written() -> None:
    """DEF-4: causes, exceptions and private details."""
    failed = Failed(Failure("Locked.", cause=ValueError(MARKER), details=ValueError(MARKER)))
    unknown = Unknown("raised", error=ValueError(MARKER))
    kept = Failed(Failure("Locked.", details=Record("shell:process", data=1)))

    assert MARKER not in str(failed.to_json())
    assert MARKER not in str(unknown.to_json())
    assert Failed.from_json(kept.to_json()).failure.details == Record("shell:process", data=1)


TEXT = {"type": "text", "text": "a"}
REQUEST = {"message": "a", "schema": True, "state": None}
WRITTEN: list[tuple[type[Outcome], dict[str, object]]] = [
    (Completed, {"outcome": "completed", "result": {"content": []}}),
    (Failed, {"outcome": "failed", "failure": {"kind": "failed", "content": [TEXT]}}),
    (Rejected, {"outcome": "rejected", "kind": "unavailable"}),
    (Suspended, {"outcome": "suspended", "request": REQUEST}),
    (Cancelled, {"outcome": "cancelled", "reason": "cancelled"}),
    (Unknown, {"outcome": "unknown", "reason": "raised"}),
]


@pytest.mark.parametrize(("kind", "written"), WRITTEN)
@pytest.mark.parametrize(
    "change",
    [
        {"outcome": "other"},
        {"more": 1},
        {"reason": "bored"},
        {"kind": "bored"},
        {"result": 5},
        {"failure": {"kind": "failed", "content": []}},
        {"request": {"message": "a"}},
        {"tool": 5},
        {"problems": [{"path": 1}]},
        {"evidence": {"more": 1}},
    ],
)
def test_what_is_no_outcome_is_refused_whole(
    kind: type[Outcome], written: dict[str, object], change: dict[str, object]
) -> None:
    """DEF-4: unknown members, other endings, wrong words; the unchanged form is read."""
    assert kind.from_json(written).to_json()
    if change.keys() <= {"outcome", "more"} or change.keys() & written.keys():
        with pytest.raises(InvalidValue):
            kind.from_json(written | change)


@pytest.mark.parametrize("kind", [kind for kind, _ in WRITTEN])
@pytest.mark.parametrize("form", [None, [], "completed", {}, 5])
def test_what_is_no_object_is_no_outcome(kind: type[Outcome], form: object) -> None:
    """DEF-4."""
    with pytest.raises(InvalidValue):
        kind.from_json(form)
