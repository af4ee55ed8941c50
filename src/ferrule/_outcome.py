"""
How one call ended: six endings, and the one place that says how each reads to a model.

The mapping is CONTRACT FAIL-6 and it is closed. What happened goes in as a result or an
exception; what comes out tells a model what it may know and a host what it must know. An
exception's own text is private unless the tool declared its type in `failures`: the model reads a
reference, and the logger `ferrule` has the reference, the tool, the call and the traceback.
"""

import logging
import secrets
import sys
from typing import ClassVar, Literal, Self, TypeAlias

import msgspec

from ferrule._contain import message_of
from ferrule._content import Result
from ferrule._cut import cut_json, cut_text
from ferrule._decisions import Deny
from ferrule._failure import Failure, chain, classify, evidence_of
from ferrule._ijson import Limits
from ferrule._near import shown
from ferrule._requests import InputRequest
from ferrule._traits import Replay
from ferrule._value import Value, type_name
from ferrule.errors import (
    AuthorizationError,
    CallKind,
    FerruleError,
    ForeignInvocation,
    InvalidCall,
    InvalidResult,
    Problem,
    ValidatorCrash,
    clip,
    sentence,
)

logger = logging.getLogger("ferrule")

MODEL_BYTES = Limits().model_bytes
"""Bytes that a model reads of one outcome, where nobody has said otherwise."""

CancelledReason: TypeAlias = Literal["cancelled", "not_reached"]
UnknownReason: TypeAlias = Literal[
    "raised", "bad_result", "timed_out", "crashed", "still_running", "owner_lost", "cancelled"
]


class _Ending(Value, frozen=True, tag_field="outcome"):
    """What every outcome can say."""

    is_error: ClassVar[bool] = True

    @property
    def terminate(self) -> bool:
        """Whether the call asks that the agent loop stop."""
        return False

    @property
    def text(self) -> str:
        """What a model reads as text, at most 256 KiB; an error begins with `Error: `, once."""
        return self.reading(MODEL_BYTES)

    def reading(self, limit: int) -> str:
        """
        Return what a model reads as text, cut to `limit` bytes of UTF-8 (CONTRACT EXE-11).

        Text is cut between characters, with a notice of what is shown and what there is; JSON
        becomes JSON that tells its beginning. The host keeps the whole in the outcome itself.
        """
        return cut_text(f"Error: {self._public}", limit)

    @property
    def _public(self) -> str:
        return ""


class _Named(_Ending, frozen=True, kw_only=True):
    """An ending whose sentence names the tool and may name a log entry."""

    tool: str = ""
    reference: str | None = None

    def _sentence(self, what: str) -> str:
        subject = f'tool "{self.tool}"' if self.tool else "the tool"
        reference = f" (reference {self.reference})" if self.reference else ""
        return f"{subject} {what}{reference}"


class Completed(_Ending, frozen=True, tag="completed"):
    """The tool gave a result."""

    is_error: ClassVar[bool] = False

    result: Result

    @property
    def terminate(self) -> bool:
        """Whether the result asks that the agent loop stop."""
        return self.result.terminate

    def reading(self, limit: int) -> str:
        """Return what a model reads of the result as text, cut to `limit` bytes of UTF-8."""
        is_text = self.result.content or self.result.structured_content is msgspec.UNSET
        return (cut_text if is_text else cut_json)(self.result.text, limit)

    def to_json(self) -> dict[str, object]:
        """Return the outcome as plain JSON."""
        return {"outcome": "completed", "result": self.result.to_json()}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """
        Return the outcome that `to_json` wrote.

        Raises:
            InvalidValue: `value` is not what `to_json` writes.
        """
        return cls(Result.from_json(_WrittenCompleted.from_json(value).result))


class Failed(_Named, frozen=True, tag="failed"):
    """The call definitely did not succeed, and the model may know why."""

    failure: Failure

    @property
    def terminate(self) -> bool:
        """Whether the failure asks that the agent loop stop."""
        return self.failure.terminate

    @property
    def _public(self) -> str:
        return Failure.__str__(self.failure)  # A subclass's own text is not public.

    def to_json(self) -> dict[str, object]:
        """Return the outcome as plain JSON; the cause stays in this process."""
        return _with_names({"outcome": "failed", "failure": self.failure.to_json()}, self)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """
        Return the outcome that `to_json` wrote.

        Raises:
            InvalidValue: `value` is not what `to_json` writes.
        """
        read = _WrittenFailed.from_json(value)
        failure = Failure.from_json(read.failure)
        return cls(failure, tool=read.tool, reference=read.reference)


class _Refusal(_Named, frozen=True, kw_only=True):
    message: str = ""
    problems: tuple[Problem, ...] = ()


class Rejected(_Refusal, frozen=True, tag="rejected"):
    """
    The call was not let in or not permitted; the tool did not run.

    Attributes:
        kind: Which of the closed list of CONTRACT FAIL-6.
        message: What a model reads; made from kind and problems where it is left out.
        problems: What is wrong with the arguments.
    """

    kind: CallKind

    @property
    def _public(self) -> str:
        return self.message or sentence(self.kind, self.problems)


class Suspended(_Ending, frozen=True, tag="suspended"):
    """The call waits for an answer; there is nothing for a model to read yet."""

    is_error: ClassVar[bool] = False

    request: InputRequest

    def reading(self, limit: int) -> str:  # noqa: ARG002  # of nothing, whatever the limit
        """Return nothing: there is nothing to read yet."""
        return ""

    def to_json(self) -> dict[str, object]:
        """Return the outcome as plain JSON."""
        return {"outcome": "suspended", "request": self.request.to_json()}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """
        Return the outcome that `to_json` wrote.

        Raises:
            InvalidValue: `value` is not what `to_json` writes.
        """
        return cls(InputRequest.from_json(_WrittenSuspended.from_json(value).request))


class Cancelled(_Named, frozen=True, tag="cancelled"):
    """The call was stopped before the tool ran."""

    reason: CancelledReason = "cancelled"

    @property
    def _public(self) -> str:
        return self._sentence(f"did not run: {self.reason.replace('_', ' ')}")


class _Doubt(_Named, frozen=True, kw_only=True):
    error: BaseException | None = None
    evidence: Result | None = None
    message: str = ""


class Unknown(_Doubt, frozen=True, tag="unknown"):
    """
    The tool ran and nobody can say what took effect.

    Attributes:
        reason: Which of the closed list of CONTRACT FAIL-6.
        error: What was raised; stays in this process.
        evidence: What a `CallError` observed before that; no result.
    """

    reason: UnknownReason

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"Unknown({said})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        # A repr gets into other people's logs, and what a private error says is private.
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return [
            (name, type(value) if isinstance(value, BaseException) else value)
            for name, value in fields
        ]

    @property
    def _public(self) -> str:
        verb = "was stopped" if self.reason == "cancelled" else "failed"
        return self._sentence(f"{verb}; it may have taken effect") + self.message

    def to_json(self) -> dict[str, object]:
        """Return the outcome as plain JSON; the error stays in this process."""
        written: dict[str, object] = {"outcome": "unknown", "reason": self.reason}
        if self.evidence is not None:
            written["evidence"] = self.evidence.to_json()
        if self.message:
            written["message"] = self.message
        return _with_names(written, self)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """
        Return the outcome that `to_json` wrote.

        Raises:
            InvalidValue: `value` is not what `to_json` writes.
        """
        read = _WrittenUnknown.from_json(value)
        evidence = None if read.evidence is None else Result.from_json(read.evidence)
        return cls(
            read.reason,
            tool=read.tool,
            reference=read.reference,
            evidence=evidence,
            message=read.message,
        )


Outcome: TypeAlias = Completed | Failed | Rejected | Suspended | Cancelled | Unknown
"""How one call ended; `match` over it is exhaustive."""


class StillRunning(FerruleError):
    """A thread was told to stop and did not end in time; it may still be at work."""

    def __str__(self) -> str:
        return "the thread or process of the call did not end in time"


class Crashed(FerruleError):
    """The process of a call ended without a word, or by `SystemExit` and the like."""


class TimedOut(FerruleError):
    """A call did not end within its tool's time limit."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        return f"the call did not end within {self.seconds:g} s"


def outcome_of(  # noqa: PLR0913  # each by keyword; all that decides how a call ended
    ended: object,
    *,
    tool: str,
    call_id: str = "",
    replay: Replay = "unknown",
    failures: tuple[type[Exception], ...] = (),
    errors: Literal["reference", "message"] = "reference",
    dispatched: bool = True,
    stopped: bool = False,
    log: bool = True,
) -> Outcome:
    """
    Return the outcome that a result, a request or an exception establishes (CONTRACT FAIL-6).

    Args:
        ended: What `Binding.authorize` refused with, or what it or `Binding.call` raised or gave.
        tool: The tool's name, for the sentence.
        call_id: For the log entry of a private error.
        replay: What a second run would do: decides between `Failed` and `Unknown`.
        failures: Exceptions whose own message is public.
        errors: `"message"` shows every exception's message to the model; for development.
        dispatched: Whether the tool may have begun. Before that nothing took effect.
        stopped: Whether somebody asked the call to stop.
        log: Write the operator's entry of a private error. Once a call is enough: whoever only
            looks at how it went says `False`, and gets a reference to no entry.
    """
    if isinstance(ended, Result):  # What nearly every call gives; a `case` takes longer to see it.
        return Completed(ended)
    match ended:
        case InputRequest():
            return Suspended(ended)
        case Deny(reason=reason):
            message = reason or f'tool "{tool}" is not authorized'
            return Rejected("unauthorized", message=message, tool=tool)
        case BaseException():
            found = _Raised(ended, tool, call_id, errors, log)
            if not dispatched:
                return found.before_dispatch()
            return found.after_dispatch(replay, failures, stopped=stopped)
        case _:
            error = InvalidResult(
                f"a tool gives a Result or an InputRequest, not {type_name(ended)}"
            )
            return _Raised(error, tool, call_id, errors, log).unknown("bad_result")


class _Raised(msgspec.Struct, frozen=True):
    """An exception on its way to an outcome."""

    error: BaseException
    tool: str
    call_id: str
    errors: Literal["reference", "message"]
    log: bool

    def before_dispatch(self) -> Outcome:
        match self.error:
            case ValidatorCrash(kind=kind, problems=problems):
                reference = self._logged("was not let in")
                message = f"{sentence(kind, problems)} (reference {reference})"
                return Rejected(
                    kind, message=message, problems=problems, tool=self.tool, reference=reference
                )
            case ForeignInvocation():
                return self._unavailable()
            case InvalidCall(kind="unavailable", problems=(), __cause__=None):
                return Rejected("unavailable", message=self._not_available(None), tool=self.tool)
            case InvalidCall(kind="unavailable"):
                return self._unavailable()
            case InvalidCall(kind=kind, problems=problems):
                return Rejected(kind, problems=problems, tool=self.tool)
            case KeyboardInterrupt():
                return Cancelled("cancelled", tool=self.tool)
            case error if _is_cancellation(error):
                return Cancelled("cancelled", tool=self.tool)
            case _:
                return self._unavailable()

    def after_dispatch(
        self, replay: Replay, failures: tuple[type[Exception], ...], *, stopped: bool
    ) -> Outcome:
        error = self.error
        failure = classify(error)
        if failure is not None:
            return Failed(failure, tool=self.tool)
        if isinstance(error, AuthorizationError) and error.tool == self.tool:
            return self._unavailable()  # Of this very call: the policy broke, the tool never ran.
        for kind, reason in _OURS:
            if isinstance(error, kind):
                return self.unknown(reason)
        for link in chain(error):
            if isinstance(link, failures):
                return Failed(Failure(_message(link), cause=error), tool=self.tool)
        if stopped:
            return self.unknown("cancelled")
        if isinstance(error, Crashed) or not isinstance(error, Exception):
            return self.unknown("crashed")
        if replay == "safe":
            return self._private_failure()
        return self.unknown("raised")

    def unknown(self, reason: UnknownReason) -> Unknown:
        reference = None if reason == "cancelled" else self._logged("ended unknown")
        return Unknown(
            reason,
            error=self.error,
            evidence=evidence_of(self.error),
            message=self._shown(),
            tool=self.tool,
            reference=reference,
        )

    def _unavailable(self) -> Rejected:
        reference = self._logged("was not available")
        message = self._not_available(reference) + self._shown()
        return Rejected("unavailable", message=message, tool=self.tool, reference=reference)

    def _not_available(self, reference: str | None) -> str:
        named = f" (reference {reference})" if reference else ""
        return f'tool "{self.tool}" is not available now{named}'

    def _private_failure(self) -> Failed:
        reference = self._logged("failed")
        text = f'tool "{self.tool}" failed (reference {reference}){self._shown()}'
        return Failed(Failure(text, cause=self.error), tool=self.tool, reference=reference)

    def _shown(self) -> str:
        return f": {_message(self.error)}" if self.errors == "message" else ""

    def _logged(self, what: str) -> str:
        """Write the operator's entry, unless nobody wants it, and return its reference."""
        reference = secrets.token_hex(4)
        if not self.log:
            return reference
        logger.error(
            'reference %s: tool "%s", call "%s" %s',
            reference,
            self.tool,
            shown(self.call_id),
            what,
            exc_info=_unsealed(self.error),
        )
        return reference


_OURS: tuple[tuple[type[Exception], UnknownReason], ...] = (
    (InvalidResult, "bad_result"),
    (StillRunning, "still_running"),
    (TimedOut, "timed_out"),
)
"""Errors of ours about a call that ran, and the reason that each is."""


def _unsealed(error: BaseException) -> BaseException:
    """Return what a policy raised, which a traceback of the chain does not show; else `error`."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        policies = (link for link in chain(error) if isinstance(link, AuthorizationError))
        error = next((policy.cause for policy in policies if policy.cause), error)
    return error


def _is_cancellation(error: BaseException) -> bool:
    """Say whether a loop tells a task to stop with `error`; no loop is imported to find out."""
    kinds = (("asyncio", "CancelledError"), ("trio", "Cancelled"))
    return any(isinstance(error, getattr(sys.modules.get(room), kind, ())) for room, kind in kinds)


def _message(error: BaseException) -> str:
    """Return an exception's own message, bounded, as UTF-8 can carry it."""
    return clip(message_of(error), 4096)


def _with_names(written: dict[str, object], ending: _Named) -> dict[str, object]:
    if ending.tool:
        written["tool"] = ending.tool
    if ending.reference is not None:
        written["reference"] = ending.reference
    return written


class _Written(Value, frozen=True, kw_only=True, tag_field="outcome"):
    tool: str = ""
    reference: str | None = None


class _WrittenCompleted(Value, frozen=True, kw_only=True, tag="completed", tag_field="outcome"):
    result: object


class _WrittenFailed(_Written, frozen=True, kw_only=True, tag="failed"):
    failure: object


class _WrittenSuspended(Value, frozen=True, kw_only=True, tag="suspended", tag_field="outcome"):
    request: object


class _WrittenUnknown(_Written, frozen=True, kw_only=True, tag="unknown"):
    reason: UnknownReason
    evidence: object = None
    message: str = ""
