"""Steps: what happens with an answer, declared; and `decode`, for raw tools."""

from dataclasses import dataclass

import pytest

from ferrule import (
    Context,
    DeclarationError,
    Executor,
    InputRequest,
    InvalidCall,
    InvalidValue,
    Suspended,
    ToolCall,
    decode,
    tool,
)


@dataclass
class Draft:
    """A refund that waits."""

    order: str
    cents: int


@tool
async def refund(order: str, cents: int) -> str | InputRequest:
    """Refund an order."""
    if cents <= 100:
        return "done"
    return approved.ask(f"Refund {cents}?", Draft(order, cents), expires_in=60)


@refund.step
async def approved(state: Draft, answer: bool, context: Context) -> str:
    """Go on with the answer."""
    return f"{state.order} {answer} {context.call_id}"


def test_a_step_asks_with_its_state_and_the_schema_of_its_answer() -> None:
    """SUS-2: the request holds what the step needs and what a person is asked for."""
    outcome = Executor([refund]).run_sync([ToolCall.of("refund", {"order": "A1", "cents": 500})])[0]

    assert outcome == Suspended(
        InputRequest(
            "Refund 500?",
            schema={"type": "boolean"},
            state={"step": "approved", "state": {"order": "A1", "cents": 500}},
            expires_in=60,
        )
    )


def test_a_step_keeps_its_name_and_its_function() -> None:
    """SUS-2: a tool knows its steps by name."""
    assert list(refund.steps) == ["approved"]
    assert refund.steps["approved"] is approved
    assert approved.takes_context


def test_a_state_that_is_not_what_the_step_takes_is_refused_when_asked() -> None:
    """SUS-2: state and answer are checked when asked."""
    with pytest.raises(InvalidValue, match="cents"):
        approved.ask("?", Draft("A1", "many"))  # type: ignore[arg-type]  # it is what is tested
    with pytest.raises(InvalidValue, match="no JSON form"):
        approved.ask("?", object())  # type: ignore[arg-type]  # it is what is tested


def test_a_step_that_cannot_work_says_what_to_write() -> None:
    """FN-1, SUS-2: names tool and step."""
    with pytest.raises(DeclarationError, match=r"step `alone` of tool `refund`.*answer: bool"):

        @refund.step  # type: ignore[arg-type]  # it is what is tested
        async def alone(state: Draft) -> str:
            return ""

    with pytest.raises(DeclarationError, match=r"step `by_name`"):

        @refund.step  # type: ignore[arg-type]  # it is what is tested
        async def by_name(state: Draft, *, answer: bool) -> str:
            return ""

    with pytest.raises(DeclarationError, match="two steps named `approved`"):
        refund.step(approved.function)


def test_decode_gives_the_declared_type_and_enforces_what_a_parameter_would() -> None:
    """API `decode`: plain JSON values in, a typed value out."""
    assert decode({"order": "A1", "cents": 5}, Draft) == Draft("A1", 5)
    assert decode([1, 2.0], list[int]) == [1, 2]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"order": "A1"}, ""),
        ({"order": 1, "cents": 5}, "order"),
        ({"order": "", "cents": 5, "x": 1}, ""),
    ],
)
def test_decode_refuses_with_every_problem(value: object, path: str) -> None:
    """API `decode`: the same problems that a model reads."""
    with pytest.raises(InvalidCall) as refused:
        decode(value, Draft)

    assert refused.value.kind == "invalid_arguments"
    assert [problem.path for problem in refused.value.problems] == [path]
