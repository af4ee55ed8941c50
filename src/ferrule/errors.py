"""
Every error that Ferrule raises, in one tree.

```
FerruleError
├── DeclarationError             the author of a tool made a mistake: the tool cannot work
│   ├── InvalidTool              one tool cannot be bound or registered
│   │   ├── InvalidDefinition    its name, description or schema document
│   │   ├── InvalidSchema        its schema does not compile, or breaks a budget
│   │   └── InvalidWrappingChain what it wraps comes round to itself, or has no end
│   └── DuplicateTool            two tools claim one name
├── InvalidValue                 a value (Result, Failure, ToolCall, …) that cannot be
│   ├── InvalidJSON              a text that is not I-JSON, or over a limit
│   └── InvalidResult            what a tool returned cannot be given on
├── InvalidCall                  the model made a mistake: the call was not let in
│   ├── ForeignInvocation        an invocation or permit of another binding
│   └── ValidatorCrash           the tool's own validator broke: nobody can say
├── Failure                      a tool's definite unsuccessful outcome   (ferrule._failure)
├── CallError                    evidence beside an ordinary error        (ferrule._failure)
├── AuthorizationError           a policy broke; its cause is sealed
└── RuntimeFault                 what waits or runs durably is not what somebody took it for
    ├── JournalError             the journal cannot be used: locked, full, newer, something else
    ├── Fenced                   another owner drives the call, or the batch, by now
    ├── BatchConflict            one batch id, other calls
    ├── AnswerConflict           one answer id, two contents
    ├── AnswerRefused            an answer, or a resolution, that cannot be taken
    │   └── WaitClosed           nobody waits for this answer (any more)
    ├── SealBroken               a sealed request was changed, or is none of ours
    └── SealExpired              a sealed request came back too late
```

Whose fault it is stands in the type. An error carries facts; its sentence is built when it is
printed, is at most one kilobyte, and never repeats a value that was refused (CONTRACT JSON-6).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

__all__ = (
    "AnswerConflict",
    "AnswerRefused",
    "AuthorizationError",
    "BatchConflict",
    "CallKind",
    "DeclarationError",
    "DuplicateTool",
    "Fenced",
    "FerruleError",
    "ForeignInvocation",
    "InvalidCall",
    "InvalidDefinition",
    "InvalidJSON",
    "InvalidResult",
    "InvalidSchema",
    "InvalidTool",
    "InvalidValue",
    "InvalidWrappingChain",
    "JournalError",
    "Problem",
    "RuntimeFault",
    "SealBroken",
    "SealExpired",
    "ValidatorCrash",
    "WaitClosed",
)

TEXT_LIMIT = 1000
"""Characters of an error's sentence; with UTF-8's expansion clipped again to 1,024 bytes."""

CallKind = Literal[
    "unknown_tool",
    "duplicate_id",
    "invalid_json",
    "too_large",
    "invalid_arguments",
    "unauthorized",
    "unavailable",
]
"""Why a call did not run: the closed list of CONTRACT FAIL-6."""


def clip(text: str, limit: int = 1024) -> str:
    """Return `text` cut between characters to at most `limit` bytes of UTF-8."""
    if len(text) <= limit and text.isascii():
        return text
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode()
    return data[: limit - len("…".encode())].decode("utf-8", "ignore") + "…"


class FerruleError(Exception):
    """The root of every error that Ferrule raises."""


class DeclarationError(FerruleError):
    """
    A tool cannot work as it was declared.

    Raised where the tool is written or registered, never when a model calls it.
    The sentence names the function and the parameter, and what to write instead.
    """


class InvalidTool(DeclarationError):
    """A tool cannot be bound or registered."""


class InvalidDefinition(InvalidTool):
    """A definition's name, description or schema document cannot be."""


class InvalidSchema(InvalidTool):
    """A JSON Schema does not compile, refers outside itself, or breaks a budget."""


class InvalidWrappingChain(InvalidTool):
    """What a tool wraps cannot be walked: it comes round to itself, is too deep, or raises."""


class DuplicateTool(DeclarationError):
    """Two tools claim one name; nothing of the batch was registered."""


class InvalidValue(FerruleError):
    """A value that cannot be: a wrong type, an unknown member, text that is not Unicode."""


class InvalidJSON(InvalidValue):
    """
    A text is not I-JSON (RFC 7493), or breaks a limit.

    Attributes:
        kind: `"invalid_json"`, or `"too_large"` for a breach of `Limits`.
        rule: Which rule was broken, in a few words; never a piece of the text.
        position: Index of the character (of the byte, in bytes that are not UTF-8), if known.
        path: Where in the document, as in `$.a[0]`; empty if the text could not be read so far.
    """

    def __init__(
        self,
        rule: str,
        *,
        kind: Literal["invalid_json", "too_large"] = "invalid_json",
        position: int | None = None,
        path: str = "",
    ) -> None:
        super().__init__(rule)
        self.kind: Literal["invalid_json", "too_large"] = kind
        self.rule = rule
        self.position = position
        self.path = path

    def __str__(self) -> str:
        place = f" at position {self.position}" if self.position is not None else ""
        within = f" in {self.path}" if self.path else ""
        head = "too large" if self.kind == "too_large" else "not valid JSON"
        return clip(f"{head}{place}{within}: {self.rule}")


class InvalidResult(InvalidValue):
    """
    What a tool returned cannot be given on: it has no JSON form, or is too large.

    The tool did run; its effects stand (CONTRACT FAIL-6, `bad_result`).
    """


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """
    One thing that is wrong with a call's arguments.

    Attributes:
        path: Where, as in `items[0].name`; empty for the arguments as a whole.
        rule: The JSON Schema keyword or the check that refused, as in `required`.
        expected: What would have been accepted, as a phrase; never the refused value.
        hint: The nearest name that exists, or empty.
    """

    path: str
    rule: str
    expected: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        hint = f" (did you mean {self.hint}?)" if self.hint else ""
        return f"{place}{self.expected}{hint}"


class InvalidCall(FerruleError):
    """
    A call was not let in; no code of the tool ran.

    Attributes:
        kind: Why, as in CONTRACT FAIL-6.
        problems: Everything found, in the order of the document.
    """

    def __init__(self, kind: CallKind, problems: Sequence[Problem] = ()) -> None:
        super().__init__(kind)
        self.kind: CallKind = kind
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return sentence(self.kind, self.problems)


class ForeignInvocation(InvalidCall):
    """An invocation was not made by this binding's contract, or a permit is for another one."""

    def __init__(self, expected: str) -> None:
        super().__init__("unavailable", (Problem(path="", rule="identity", expected=expected),))

    def __str__(self) -> str:
        return self.problems[0].expected


class ValidatorCrash(InvalidCall):
    """
    The tool's own validator broke, so nobody can say whether the arguments are right.

    The broken validator's exception is the `__cause__`: for operators, never for a model.
    """

    def __init__(self) -> None:
        problem = Problem(path="", rule="validator", expected="the arguments could not be checked")
        super().__init__("invalid_arguments", (problem,))


class AuthorizationError(FerruleError):
    """
    A policy could not decide; the tool did not run.

    Attributes:
        tool: Name of the tool that was asked about.
        cause: The policy's own exception. Sealed: it is not in the chain that `except` or
            `classify` follows, nor in the text.
    """

    def __init__(self, tool: str, cause: BaseException | None = None) -> None:
        super().__init__(tool)
        self.tool = tool
        self.cause = cause

    def __str__(self) -> str:
        return f'the authorization of tool "{self.tool}" failed'


class RuntimeFault(FerruleError):
    """
    What waits or runs durably is not what somebody took it for; what was asked for was not done.

    Nothing was written, and calls that wait still wait.
    """


class JournalError(RuntimeFault):
    """
    The journal cannot be used; the sentence says why and what to do.

    It cannot be opened, locked, read or written, it is of a newer version than this Ferrule, or it
    is another kind of file. What was committed before stands: mend the cause and recover.

    Attributes:
        passing: Whether it may work later as it is: the file is locked, or the disk is full.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(clip(message))
        self.passing = passing


class Fenced(RuntimeFault):
    """
    Another owner drives the call or the batch by now, and what this one had to say changed nothing.

    Raised to an owner that was taken for lost: stop driving, and read how it stands. How a call
    ended here is kept as evidence.
    """


class BatchConflict(RuntimeFault):
    """
    A batch id was given to other calls, or to another caller, before.

    The first ones stand. Who means another turn uses another id; who only repeats what may have
    been lost repeats it exactly.
    """


class _OfAnswer(RuntimeFault):
    def __init__(self, message: str, *, by: str = "", at: datetime | None = None) -> None:
        super().__init__(clip(message))
        self.by = by
        self.at = at


class AnswerConflict(_OfAnswer):
    """
    An answer came under an id that was used before, for another content or another wait.

    The first one stands. Who means to answer something else uses a new id; who only repeats what
    may have been lost repeats it exactly.

    Attributes:
        by: Who gave the first one.
        at: When.
    """


class AnswerRefused(_OfAnswer):
    """
    What was said cannot be taken, and the question, or the call, is as it was: say it otherwise.

    Attributes:
        by: Who was first, where somebody was.
        at: When that was.
    """


class WaitClosed(AnswerRefused):
    """
    Nobody waits for this answer: it was not taken, and what closed the wait stands.

    List the waits that are open, and answer one of those.

    Attributes:
        how: What became of it; `"unknown"` where no such wait was ever opened.
        by: Who closed it, if a person did.
        at: When, if it is known.
    """

    def __init__(
        self,
        message: str,
        *,
        how: Literal["answered", "withdrawn", "expired", "cancelled", "unknown"] = "unknown",
        by: str = "",
        at: datetime | None = None,
    ) -> None:
        super().__init__(message, by=by, at=at)
        self.how: Literal["answered", "withdrawn", "expired", "cancelled", "unknown"] = how


class SealBroken(RuntimeFault):
    """
    A sealed request was changed outside, cut short, sealed with a key that is not here, or is none.

    Nothing of it was read. Take it as an attack or as a mistake of whoever kept it, and never as an
    answer: the call still waits, where somebody keeps it. After a change of keys, give the old one
    among the keys for as long as requests that it sealed may come back.

    Attributes:
        reason: What does not fit: the form of the text, its version, the key, or the seal.
    """

    def __init__(self, reason: Literal["form", "version", "key", "seal"]) -> None:
        super().__init__(reason)
        self.reason: Literal["form", "version", "key", "seal"] = reason

    def __str__(self) -> str:
        return f"this is no request that was sealed here: {_BROKEN[self.reason]}"


_BROKEN = {
    "form": "it has not the form of one",
    "version": "it is of a version that is not known here",
    "key": "no key that was given sealed it",
    "seal": "it was changed after it was sealed",
}


class SealExpired(RuntimeFault):
    """
    A sealed request came back after the time in which it was to be answered.

    It is whole, and it is too late: the tool has to ask again, in a new call or a new leg.

    Attributes:
        at: When it expired.
    """

    def __init__(self, at: datetime) -> None:
        super().__init__(at)
        self.at = at

    def __str__(self) -> str:
        return f"this request was to be answered before {self.at.isoformat(timespec='seconds')}"


def sentence(kind: CallKind, problems: Sequence[Problem]) -> str:
    """
    Return what a model reads of a refused call, at most 1 KB.

    When not all problems fit, the sentence ends with how many were left out.
    """
    head = kind.replace("_", " ")
    parts: list[str] = []
    left = TEXT_LIMIT - 24 - len(head)
    for problem in problems:
        part = clip(str(problem), 600)
        left -= 2 + len(part.encode())
        if left < 0:
            parts.append(f"and {len(problems) - len(parts)} more")
            break
        parts.append(part)
    return f"{head}: {'; '.join(parts)}" if parts else head
