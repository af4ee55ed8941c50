"""What a policy may answer: yes, no, or that a person is to be asked."""

from typing import TypeAlias

from ferrule._value import Value, is_span, type_name, unicode
from ferrule.errors import InvalidValue


class Allow(Value, frozen=True):
    """The call may run, as far as this policy is concerned."""


class Deny(Value, frozen=True):
    """
    The call may not run.

    Attributes:
        reason: Why: public, the model reads it. `None` says only that it is not authorized.
    """

    reason: str | None = None

    def __post_init__(self) -> None:
        if self.reason is not None and not unicode(self.reason, what="the reason of a Deny"):
            raise InvalidValue("the reason of a Deny is a sentence, or None")


class _Terms(Value, frozen=True, kw_only=True):
    answer: object = bool
    expires_in: float | None = None


class Ask(_Terms, frozen=True):
    """
    The call may run if a person says so; until then it is suspended (CONTRACT AUT-4).

    The policy is asked again on every leg and finds what the person said in
    `authorization.approval`. Where it then asks the very same question, a yes or no stands for
    itself: `True` allows, `False` denies. Any other answer is the policy's to judge: it returns
    `Allow()` or `Deny(…)`, or asks something else.

    Attributes:
        message: What the person reads.
        answer: The type of the answer: whatever a parameter of a tool may be.
        expires_in: Seconds until nobody needs to answer any more; `None` is never.
    """

    message: str

    def __post_init__(self) -> None:
        if not unicode(self.message, what="the message of an Ask"):
            raise InvalidValue("an Ask says what a person is asked; give it a sentence")
        seconds = self.expires_in
        if seconds is not None and not is_span(seconds):
            raise InvalidValue(f"expires_in of an Ask is seconds, not {type_name(seconds)}")


Decision: TypeAlias = Allow | Deny | Ask | bool
"""`True` and `False` are `Allow()` and `Deny()`; judged by type, never by truth."""
