"""An error's facts have types, so that nobody needs to read its text."""

from typing import assert_type

from ferrule.errors import CallKind, InvalidCall, Problem


def reads(error: InvalidCall) -> None:
    """What an `except InvalidCall` can rely on."""
    assert_type(error.kind, CallKind)
    assert_type(error.problems, tuple[Problem, ...])


def misuse() -> None:
    """Kinds are a closed list, and a problem's fields are given by name."""
    InvalidCall("bad_call")  # error: arg-type | reportArgumentType
    Problem("a", "required", "a")  # error: call-arg | misc | reportCallIssue
