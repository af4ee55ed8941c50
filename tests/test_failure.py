"""Saying no: failures, evidence, and which of them an exception establishes."""

import copy
import pickle
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import (
    AuthorizationError,
    CallError,
    Content,
    Failure,
    Image,
    InvalidValue,
    Record,
    Result,
    Text,
    classify,
)

MARKER = "sk-secret-4711"
PICTURE = Image(url="https://example.com/a.png")


# ---- the value -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "blocks", "said"),
    [
        ("Locked.", (Text("Locked."),), "Locked."),
        (Text("Locked."), (Text("Locked."),), "Locked."),
        ([Text("a"), PICTURE, Text("b")], (Text("a"), PICTURE, Text("b")), "ab"),
        ((part for part in [Text("a")]), (Text("a"),), "a"),
        (PICTURE, (PICTURE,), ""),
    ],
)
def test_the_content_is_public_and_is_its_text(
    content: object, blocks: tuple[Content, ...], said: str
) -> None:
    """FAIL-1: `str()` is what a model may read."""
    failure = Failure(cast("str", content))

    assert (failure.content, str(failure), failure.kind) == (blocks, said, "failed")
    assert (failure.cause, failure.details, failure.terminate) == (None, None, False)


@pytest.mark.parametrize("content", ["", [], (), None, 5, b"a", {"a": 1}, [5], ["a"], [None]])
def test_a_failure_says_something_that_a_model_can_read(content: object) -> None:
    """FAIL-1, scope 86, 87: an empty one, or one of other things, is no failure."""
    with pytest.raises(InvalidValue):
        Failure(cast("str", content))


def test_a_failure_is_unicode() -> None:
    """Scope 117."""
    with pytest.raises(InvalidValue):
        Failure("\ud800")


@pytest.mark.parametrize("cause", ["text", ValueError, 5, Text("a")])
def test_the_cause_is_an_exception(cause: object) -> None:
    """FAIL-1, scope 86, 87."""
    with pytest.raises(InvalidValue, match="the cause of a Failure is an exception"):
        Failure("Locked.", cause=cast("BaseException", cause))


def test_the_cause_is_for_operators_only() -> None:
    """FAIL-1, scope 85: not in the text, not in the chain, not in JSON; the identical object."""
    cause = ValueError(MARKER)
    failure = Failure("Locked.", cause=cause)

    assert failure.cause is cause
    assert failure.__cause__ is None
    assert MARKER not in str(failure) + str(failure.to_json())


@pytest.mark.parametrize("make", [Failure, Failure.rejected])
def test_details_and_terminate_reach_the_host(make: Callable[..., Failure]) -> None:
    """FAIL-1, AT-81: beside the error, for both kinds."""
    details = object()
    failure = make("No.", cause=OSError(), details=details, terminate=True)

    assert failure.kind == ("failed" if make is Failure else "rejected")
    assert (failure.details, failure.terminate) == (details, True)


def test_the_content_is_a_copy() -> None:
    """Scope 84, DEF-4: changing the list that was given changes nothing."""
    given_parts: list[Content] = [Text("a")]
    failure = Failure(given_parts)
    given_parts.clear()

    assert failure.content == (Text("a"),)


@pytest.mark.parametrize("copied", [copy.copy, lambda f: pickle.loads(pickle.dumps(f))])
def test_a_copied_failure_says_the_same(copied: Callable[[Failure], Failure]) -> None:
    """FAIL-1: as `concurrent.futures` and process pools copy exceptions."""
    failure = Failure.rejected([Text("a"), PICTURE], details={"a": 1}, terminate=True)

    assert copied(failure).to_json() == failure.to_json()


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(
    st.lists(st.builds(Text, TEXTS) | st.just(PICTURE), min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
    st.none() | st.integers() | st.dictionaries(TEXTS, st.booleans(), max_size=2),
)
def test_any_failure_survives_a_round_trip(
    content: list[Content], rejected: bool, terminate: bool, details: object
) -> None:
    """DEF-4."""
    make = Failure.rejected if rejected else Failure
    failure = make(content, details=details, terminate=terminate)
    back = Failure.from_json(failure.to_json())

    assert (back.content, back.kind, back.details, back.terminate) == (
        failure.content,
        failure.kind,
        failure.details,
        failure.terminate,
    )
    assert back.to_json() == failure.to_json()


def test_details_that_are_a_record_travel_as_one() -> None:
    """DEF-4, REC-1."""
    failure = Failure("No.", details=Record("shell:process", data={"pid": 1}))

    assert Failure.from_json(failure.to_json()).details == failure.details


@pytest.mark.parametrize(
    "form",
    [
        None,
        [],
        {},
        {"kind": "failed"},
        {"kind": "failed", "content": []},
        {"kind": "other", "content": [{"type": "text", "text": "a"}]},
        {"content": [{"type": "text", "text": "a"}]},
        {"kind": "failed", "content": "a"},
        {"kind": "failed", "content": [{"type": "text", "text": "a"}], "cause": "b"},
        {"kind": "failed", "content": [{"type": "text", "text": "a"}], "terminate": 1},
    ],
)
def test_what_is_no_failure_is_refused(form: object) -> None:
    """DEF-4: unknown members, missing ones, wrong types."""
    with pytest.raises(InvalidValue):
        Failure.from_json(form)


# ---- what an exception establishes ---------------------------------------------------------------

FAILURE = Failure("Locked.")


def caused(error: BaseException, cause: BaseException) -> BaseException:
    """Return `error` as `raise error from cause` leaves it."""
    error.__cause__ = cause
    return error


def beside(error: BaseException, context: BaseException) -> BaseException:
    """Return `error` as it is when it was raised while another was handled."""
    error.__context__ = context
    return error


ESTABLISHED: dict[str, BaseException] = {
    "itself": FAILURE,
    "wrapped": caused(ValueError(), FAILURE),
    "wrapped twice": caused(KeyError(), caused(ValueError(), FAILURE)),
    "wrapped beside another": beside(caused(KeyError(), FAILURE), Failure("other")),
    "group of one": ExceptionGroup("", [FAILURE]),
    "groups of one": BaseExceptionGroup("", [ExceptionGroup("", [FAILURE])]),
    "wrapped group of one": caused(ValueError(), ExceptionGroup("", [FAILURE])),
    "not caught by `except Exception`": caused(KeyboardInterrupt(), FAILURE),
    "beside its cause": Failure("Locked.", cause=Failure("inner")),
}


@pytest.mark.parametrize("name", ESTABLISHED)
def test_explicit_wrapping_is_followed_to_a_failure(name: str) -> None:
    """FAIL-2, scope 89, 92: one parent at a time; the outermost failure is the one."""
    error = ESTABLISHED[name]
    found = classify(error)

    assert found is (error if isinstance(error, Failure) else FAILURE)


SEALED = AuthorizationError("t", cause=FAILURE)
NOTHING: dict[str, BaseException | None] = {
    "nothing": None,
    "ordinary": ValueError(MARKER),
    "context alone": beside(ValueError(), FAILURE),
    "two leaves": ExceptionGroup("", [FAILURE, ValueError()]),
    "two failures": ExceptionGroup("", [FAILURE, Failure("other")]),
    "two leaves, wrapped": caused(ValueError(), ExceptionGroup("", [FAILURE, ValueError()])),
    "two leaves in one": ExceptionGroup("", [ExceptionGroup("", [FAILURE, ValueError()])]),
    "two leaves with a cause": caused(ExceptionGroup("", [ValueError(), KeyError()]), FAILURE),
    "sealed": SEALED,
    "sealed, wrapped": caused(ValueError(), SEALED),
    "sealed, and raised from it": caused(AuthorizationError("t"), FAILURE),
    "evidence of an ordinary error": caused(CallError(Result()), ValueError()),
}


@pytest.mark.parametrize("name", NOTHING)
def test_joined_implicit_and_sealed_errors_establish_nothing(name: str) -> None:
    """FAIL-2, AUT-2, scope 91, 93, 94, 95."""
    assert classify(NOTHING[name]) is None


def test_a_chain_that_goes_in_a_circle_has_an_end() -> None:
    """FAIL-2: two exceptions that cause each other, one that causes itself, a very long chain."""
    one, other = ValueError(), KeyError()
    caused(one, caused(other, one))
    assert classify(one) is None
    assert classify(caused(ValueError(), one)) is None
    assert classify(caused(other, other)) is None

    long: BaseException = FAILURE
    for _ in range(20_000):
        long = caused(ValueError(), long)
    assert classify(long) is FAILURE


# ---- evidence ------------------------------------------------------------------------------------


def test_evidence_is_no_failure_and_no_outcome() -> None:
    """FAIL-3, scope 65, 96: intact, beside the error that goes on."""
    seen = Result.of({"written": 2})
    with pytest.raises(CallError) as caught:
        raise CallError(seen) from OSError("disk full")

    assert caught.value.evidence is seen
    assert str(caught.value) == "disk full"
    assert isinstance(caught.value.__cause__, OSError)
    assert classify(caught.value) is None
    assert str(CallError(seen)) == "the call went wrong after something was observed"


@pytest.mark.parametrize("evidence", [None, "two files", {"content": []}, Text("a"), Result])
def test_evidence_is_a_result(evidence: object) -> None:
    """FAIL-3, scope 97."""
    with pytest.raises(InvalidValue, match="the evidence of a CallError is a Result"):
        CallError(cast("Result", evidence))


def test_the_cause_of_a_broken_policy_is_sealed() -> None:
    """AUT-2, scope 78, 81: given by `.cause`, and reachable in no other way."""
    cause = ValueError(MARKER)
    error = AuthorizationError("wipe", cause)

    assert error.cause is cause
    assert (error.__cause__, error.__context__) == (None, None)
    assert str(error) == 'the authorization of tool "wipe" failed'
