"""People and policies that say what a test has written down for them, in order."""

from typing import Any, TypeGuard

from ferrule import (
    Accepted,
    Approval,
    Authorization,
    Context,
    Continuation,
    Decision,
    Declined,
    InputRequest,
    Question,
)
from ferrule.errors import FerruleError


class Answers:
    """
    An asker that answers from a list: each question takes the next answer, whoever asks.

    An answer is a plain JSON value, `Accepted(value)`, `Declined(…)`, or an exception to raise. One
    to a question with a url says only that the person went there. When none is left, nobody is
    there: `Declined("cancel")`.

    Attributes:
        asked: What was asked, in order: a `Question` of a running call, or the `InputRequest` with
            which a guard or the tool itself suspended it.
        left: The answers that nobody has asked for yet.
    """

    def __init__(self, *answers: object) -> None:
        self.asked: list[Question | InputRequest] = []
        self.left: list[object] = list(answers)

    async def __call__(self, _: Context, question: Question) -> Accepted[Any] | Declined:
        """Answer what a running call asks."""
        return self._next(question)

    def approval(self, request: InputRequest) -> Approval | None:
        """
        Return what a person said to a guard, by "test"; `None` where nobody did, or declined.

        Raises:
            InvalidValue: the answer is not what the guard asked for.
        """
        said = self._next(request)
        return request.approval(said.content, by="test") if isinstance(said, Accepted) else None

    def continuation(self, request: InputRequest) -> Continuation | None:
        """
        Return what a person said to a tool that waits; `None` where nobody did, or declined.

        Raises:
            InvalidValue: the answer is not what the tool asked for.
        """
        said = self._next(request)
        return request.continuation(said.content) if isinstance(said, Accepted) else None

    def _next(self, asked: Question | InputRequest) -> Accepted[Any] | Declined:
        self.asked.append(asked)
        said = self.left.pop(0) if self.left else Declined("cancel")
        if isinstance(said, BaseException):
            raise said
        return said if _is_said(said) else Accepted(said)


class Decisions:
    """
    An authorizer that decides from a list; the last decision stands for every later call.

    So `Decisions(Deny())` denies always, and `Decisions(Ask("Pay?"))` asks until somebody has
    approved. An exception in the list is raised, as by a policy that breaks.

    Attributes:
        seen: What the policy was shown, in order.
    """

    def __init__(self, *decisions: Decision | Exception) -> None:
        if not decisions:
            raise FerruleError("Decisions needs one decision at least, as in Decisions(Allow())")
        self.seen: list[Authorization] = []
        self._decisions = decisions

    async def __call__(self, authorization: Authorization) -> Decision:
        """Decide about one leg of a call."""
        decision = self._decisions[min(len(self.seen), len(self._decisions) - 1)]
        self.seen.append(authorization)
        if isinstance(decision, Exception):
            raise decision
        return decision


def _is_said(answer: object) -> TypeGuard[Accepted[Any] | Declined]:
    return isinstance(answer, Accepted | Declined)
