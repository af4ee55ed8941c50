"""How a tool says no: a definite failure, or an ordinary error with what was seen before it."""

from collections.abc import Iterable, Iterator
from typing import Literal, Self, cast

from ferrule._content import (
    Content,
    Result,
    Text,
    Written,
    blocks,
    read_written,
    write_details,
)
from ferrule._value import type_name
from ferrule.errors import AuthorizationError, FerruleError, InvalidValue


class Failure(FerruleError):
    """
    A definite unsuccessful outcome of this call; its content is public.

    Raise it for what a model should know: the file is locked, the order is closed. It may tell of
    effects that did happen. Its cause is for operators: it is not in the text and not in the
    chain that `except` follows.

    Attributes:
        content: What a model reads.
        kind: `"failed"`, or `"rejected"` when the call was refused permission.
        cause: The error behind it, or `None`.
        details: For the host alone; a `Record` is recorded when the call ends.
        terminate: The tool asks that the agent loop stop.
    """

    def __init__(
        self,
        content: str | Content | Iterable[Content],
        *,
        cause: BaseException | None = None,
        details: object = None,
        terminate: bool = False,
    ) -> None:
        made = blocks(content)
        if not made:
            raise InvalidValue("a Failure says what went wrong; give it a sentence")
        if cause is not None and not isinstance(cause, BaseException):
            raise InvalidValue(f"the cause of a Failure is an exception, not {type_name(cause)}")
        super().__init__(made)
        self.content = made
        self.kind: Literal["failed", "rejected"] = "failed"
        self.cause = cause
        self.details = details
        self.terminate = terminate

    @classmethod
    def rejected(
        cls,
        content: str | Content | Iterable[Content],
        *,
        cause: BaseException | None = None,
        details: object = None,
        terminate: bool = False,
    ) -> Self:
        """Return a failure that says the call was refused permission."""
        failure = cls(content, cause=cause, details=details, terminate=terminate)
        failure.kind = "rejected"
        return failure

    def __str__(self) -> str:
        return "".join(block.text for block in self.content if isinstance(block, Text))

    def to_json(self) -> dict[str, object]:
        """Return the failure as plain JSON; causes and other details stay in this process."""
        written: dict[str, object] = {
            "kind": self.kind,
            "content": [block.to_json() for block in self.content],
        }
        write_details(written, self.details)
        if self.terminate:
            written["terminate"] = True
        return written

    @classmethod
    def from_json(cls, value: object) -> Self:
        """
        Return the failure that `to_json` wrote.

        Raises:
            InvalidValue: `value` is not what `to_json` writes.
        """
        read = read_written(value, _WrittenFailure, "Failure")
        make = cls.rejected if read.kind == "rejected" else cls
        return make(read.content, details=read.all_details, terminate=read.terminate)


class _WrittenFailure(Written, frozen=True, kw_only=True):
    kind: Literal["failed", "rejected"]


class CallError(FerruleError):
    """
    An ordinary error with evidence: what was seen before it happened.

    It is no outcome, and its evidence is never sent to a model as a result. Raise it `from` the
    error that it accompanies.

    Attributes:
        evidence: What was observed; the absence of evidence proves nothing.
    """

    def __init__(self, evidence: Result) -> None:
        if not isinstance(evidence, Result):
            raise InvalidValue(
                f"the evidence of a CallError is a Result, not {type_name(evidence)}"
            )
        super().__init__(evidence)
        self.evidence = evidence

    def __str__(self) -> str:
        return str(self.__cause__ or "the call went wrong after something was observed")


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """
    Yield `error` and what it explicitly wraps, one parent at a time.

    A group of one leaf is that leaf; a group of more ends the chain, as joined errors establish
    nothing together. An implicit `__context__` is never followed.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        leaf = _only_leaf(error)
        if leaf is error:
            yield error
            # What a policy raised is sealed, however it was attached.
            leaf = None if isinstance(error, AuthorizationError) else error.__cause__
        error = leaf


def _only_leaf(error: BaseException) -> BaseException | None:
    """Return what a group of one holds, `None` for a group of more, and any other error itself."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = cast("BaseExceptionGroup[BaseException]", error).exceptions
    return leaves[0] if len(leaves) == 1 else None


def classify(error: BaseException | None) -> Failure | None:
    """
    Return the failure that `error` establishes, if it does (CONTRACT FAIL-2).

    Follows explicit wrapping (`raise … from`); a group of more than one leaf, an implicit
    `__context__` and a sealed error establish nothing.
    """
    return next((link for link in chain(error) if isinstance(link, Failure)), None)


def evidence_of(error: BaseException | None) -> Result | None:
    """Return what the outermost `CallError` of the chain observed, if there is one."""
    return next((link.evidence for link in chain(error) if isinstance(link, CallError)), None)
