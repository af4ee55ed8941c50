"""The table of a durable call's states: what it allows, and that nothing else can be done."""

from pathlib import Path
from typing import cast, get_args

import pytest

from ferrule.errors import RuntimeFault
from ferrule.states import (
    MOVES,
    PENDING,
    SETTLED,
    TERMINAL,
    IllegalMove,
    State,
    Step,
    diagram,
    move,
)

STATES: tuple[State, ...] = get_args(State)
STEPS: tuple[Step, ...] = get_args(Step)
BEGINS_ANEW = frozenset[Step](("again", "approve", "answer", "retry", "recall"))
"""Steps that lead back, each with its reason: a lost owner, an answer, a person."""


def reached(start: State, *, without: frozenset[Step] = frozenset()) -> set[State]:
    """Return the states that steps lead to from `start`, one after the other."""
    found: set[State] = set()
    todo = [start]
    while todo:
        here = todo.pop()
        new = {to for (of, step), to in MOVES.items() if of == here and step not in without}
        todo += new - found
        found |= new
    return found


def test_every_state_is_reached_from_a_proposal() -> None:
    """DUR-1: the table has no state that no call comes to, and no call is proposed twice."""
    assert reached("proposed") == set(STATES) - {"proposed"}


def test_every_state_and_step_of_the_types_is_in_the_table() -> None:
    """ENGINE: the types say the same as the table."""
    assert {state for state, _ in MOVES} | set(MOVES.values()) == set(STATES)
    assert {step for _, step in MOVES} == set(STEPS)


def test_nothing_leaves_a_terminal_state() -> None:
    """ENGINE: completed, failed, rejected and cancelled are for good."""
    without_exit = {state for state in STATES if not any((state, step) in MOVES for step in STEPS)}

    assert without_exit == TERMINAL == {"completed", "failed", "rejected", "cancelled"}


def test_every_call_can_be_settled() -> None:
    """DUR-2: from whichever state, steps lead to one in which the model can be told."""
    assert all(reached(state) & SETTLED for state in STATES if state not in SETTLED)


def test_settled_is_what_ends_and_what_nobody_knows() -> None:
    """DUR-2: an unknown call is settled for its batch, and people may still say how it ended."""
    assert {"unknown"} == SETTLED - TERMINAL
    assert {step for state, step in MOVES if state == "unknown"} == {
        "resolve_completed",
        "resolve_failed",
        "resolve_cancelled",
        "retry",
    }


def test_pending_is_where_a_leg_is_to_be_run() -> None:
    """DUR-1: what is pending can be permitted or dispatched, and nothing else can."""
    begins = {state for state, step in MOVES if step in {"allow", "dispatch"}}

    assert begins == PENDING


def test_a_tool_begins_by_a_dispatch_alone() -> None:
    """DUR-1: permission comes before dispatch, and dispatch before the tool."""
    assert {pair for pair, to in MOVES.items() if to == "dispatched"} == {
        ("authorized", "dispatch")
    }
    assert {step for (_, step), to in MOVES.items() if to == "authorized"} == {"allow"}


def test_no_call_is_dispatched_twice_without_a_reason() -> None:
    """DUR-2: a second dispatch needs a lost owner, an answer or a person; the table has no ring."""
    without = BEGINS_ANEW

    assert all(state not in reached(state, without=without) for state in STATES)


def test_only_what_a_person_says_moves_a_question_on() -> None:
    """SUS-3, SUS-4: a question is answered, expires, is withdrawn, or its call is cancelled."""
    moves = {step: to for (state, step), to in MOVES.items() if state == "suspended"}

    assert moves == {
        "approve": "admitted",
        "answer": "answered",
        "expire": "failed",
        "withdraw": "failed",
        "cancel": "cancelled",
        "doubt": "unknown",  # It is cancelled, and may have had an effect before it asked.
    }


@pytest.mark.parametrize("state", STATES)
def test_a_step_leads_where_the_table_says_and_any_other_is_refused(state: State) -> None:
    """ENGINE: an illegal move is an error that says both, and changes nothing."""
    before = dict(MOVES)

    for step in STEPS:
        if (state, step) in MOVES:
            assert move(state, step) == MOVES[state, step]
            continue
        with pytest.raises(IllegalMove, match=f"a call that is {state} cannot") as refused:
            move(state, step)
        assert (refused.value.state, refused.value.step) == (state, step)
        assert isinstance(refused.value, RuntimeFault)
    assert before == MOVES


def test_nobody_changes_the_table() -> None:
    """ENGINE: every home moves calls by one table."""
    with pytest.raises(TypeError):
        cast("dict[object, object]", MOVES)["completed", "retry"] = "admitted"


def test_the_documentation_shows_the_table() -> None:
    """STYLE: the diagram of docs/durable.md is drawn from the table."""
    page = (Path(__file__).parents[1] / "docs" / "durable.md").read_text(encoding="utf-8")

    assert f"```mermaid\n{diagram()}\n```" in page
    assert diagram().count("-->") == len(MOVES) + len(TERMINAL) + 1
