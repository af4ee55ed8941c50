"""The invariants of the crash suite can fail: each finds its breach in a log that was made up."""

import msgspec
import pytest

from crash import checks
from crash.journal import Call, Journal, Step, Wait
from crash.log import Line

DONE = {"outcome": "completed"}
LOST = {"outcome": "unknown", "reason": "owner_lost"}


def line(what: str, call: str = "a", leg: int = 1, **facts: object) -> Line:
    """Return a line of the log about a leg of a call."""
    key = f"key-{call}" if call else ""
    given = {"what": what, "pid": 1, "call": call, "leg": leg, "key": key, **facts}
    return msgspec.convert(given, Line)


def call(name: str = "a", state: str = "completed", **facts: object) -> Call:
    """Return a call as a journal keeps it."""
    one = Call(
        id=f"b/{name}",
        call=name,
        batch="b",
        position=0,
        state=state,
        fence=1,
        key=f"key-{name}",
        outcome=DONE,
    )
    return msgspec.structs.replace(one, **facts)


def steps(name: str, *moves: tuple[str, str, int]) -> tuple[Step, ...]:
    """Return a history: steps, each with the state and the fence after it."""
    return tuple(
        Step(seq=number, call=name, step=step, state=state, fence=fence)
        for number, (step, state, fence) in enumerate(moves, 1)
    )


ROAD = (
    *(("propose", "proposed", 0), ("admit", "admitted", 0), ("allow", "authorized", 0)),
    *(("dispatch", "dispatched", 1), ("complete", "completed", 1)),
)
RAN = Journal(calls=(call(),), steps=steps("a", *ROAD))
"""One call that ran to its end."""

HEARD = (
    line("submitting", "", name="b", calls=["a"]),
    line("submitted", "", name="b"),
    line("begin", uses=[("till", False)]),
    line("recorded", name="0"),
    line("effect"),
    line("end"),
    line("settled", "", name="b", calls=["Completed"]),
)
"""What it said of itself."""


def changed(**parts: object) -> Journal:
    """Return the journal of one call that ran, with other parts."""
    return msgspec.structs.replace(RAN, **parts)


KEPT = changed(records=(("a", 1, "a 0"),))


def test_a_call_that_ran_breaches_nothing() -> None:
    """DUR-1: the checks find nothing where all is well."""
    assert checks.breaches(KEPT, HEARD) == []


def ended(how: str, last: str) -> Journal:
    """Return the journal of a call that is said to have ended in some other way."""
    road = (*ROAD[:-1], (last, how, 1))
    outcome = {"outcome": how}
    return changed(calls=(call(state=how, outcome=outcome),), steps=steps("a", *road))


ASKED = (Wait(id="w", call="a", leg=1, how="answered", by="ann", answer_id="x"),)
ANSWERED = Step(seq=9, call="a", step="answer", state="answered", leg=2, data={"wait": "w"})
TWO = (call("a", position=0), call("b", position=1))
TILL = [("till", False)]
SHARED = [("till", True)]

BREACHES: dict[str, tuple[str, Journal, tuple[Line, ...]]] = {
    "a call has no outcome": ("nothing_lost", changed(calls=(call(outcome=None),)), HEARD),
    "a call never ended": ("nothing_lost", changed(calls=(call(state="dispatched"),)), HEARD),
    "a call of a batch is missing": (
        "nothing_lost",
        KEPT,
        (line("submitting", "", name="b", calls=["a", "b"]),),
    ),
    "an unknown call began twice": (
        "none_twice",
        KEPT,
        (line("begin", replay="unknown"), line("begin", replay="unknown")),
    ),
    "an effect was begun twice": (
        "none_twice",
        KEPT,
        (line("effect", replay="until_effect"), line("effect", replay="until_effect")),
    ),
    "a safe call was given up": (
        "runs_again",
        changed(calls=(call(state="unknown", outcome=LOST),)),
        (line("begin", replay="safe"),),
    ),
    "a call was given up before its effect": (
        "runs_again",
        changed(calls=(call(state="unknown", outcome=LOST),)),
        (line("begin", replay="until_effect"),),
    ),
    "an answer was forgotten": ("answers_once", KEPT, (line("restarted", leg=2),)),
    "a replay had another key": ("one_key", KEPT, (line("begin"), line("begin", key="other"))),
    "two calls share a key": ("one_key", changed(calls=(call(), call("b", key="key-a"))), ()),
    "completed without an end": ("done_is_done", KEPT, (line("begin"),)),
    "failed without a beginning": ("done_is_done", ended("failed", "fail"), ()),
    "cancelled, and began": (
        "not_done_is_not_done",
        ended("cancelled", "spare_cancelled"),
        (line("begin", replay="keyed"),),
    ),
    "rejected, and had an effect": (
        "not_done_is_not_done",
        ended("rejected", "spare"),
        (line("effect", replay="safe"),),
    ),
    "an answer was used twice": (
        "answers_once",
        changed(waits=ASKED, steps=(ANSWERED, ANSWERED), calls=(call(leg=2),)),
        (),
    ),
    "an answer was not used": ("answers_once", changed(waits=ASKED, calls=(call(leg=2),)), ()),
    "an answer was used that nobody gave": ("answers_once", changed(steps=(ANSWERED,)), ()),
    "a leg too many is kept": ("answers_once", changed(calls=(call(leg=2),)), ()),
    "a leg too many began": ("answers_once", KEPT, (line("begin", leg=2),)),
    "a call began before anybody agreed": (
        "asked_first",
        KEPT,
        (line("begin", "a+"), line("approved", "a+")),
    ),
    "a record is not kept": ("records_kept", RAN, HEARD),
    "a batch is not kept": ("acknowledged", Journal(), HEARD[:2]),
    "an answer is not kept": ("acknowledged", KEPT, (line("answered", name="w", by="ann"),)),
    "an answer is somebody else's": (
        "acknowledged",
        changed(waits=ASKED),
        (line("answered", name="w", by="bob"),),
    ),
    "a resolution is not kept": ("acknowledged", KEPT, (line("resolved", by="bob"),)),
    "an outcome was another one": (
        "acknowledged",
        KEPT,
        (line("settled", "", name="b", calls=["Unknown"]),),
    ),
    "a step is not in the table": (
        "moves_legal",
        changed(steps=steps("a", *ROAD[:2], ("dispatch", "dispatched", 1))),
        (),
    ),
    "the fence did not rise": (
        "moves_legal",
        changed(steps=steps("a", *ROAD[:3], ("dispatch", "dispatched", 0))),
        (),
    ),
    "the history ends elsewhere": ("moves_legal", changed(calls=(call(state="failed"),)), ()),
    "two calls had the till": (
        "never_overlapping",
        KEPT,
        (line("begin", uses=TILL), line("begin", "b", uses=TILL)),
    ),
    "one shared it with one who did not": (
        "never_overlapping",
        KEPT,
        (line("begin", uses=SHARED), line("begin", "b", uses=TILL)),
    ),
    "a call began beside itself": ("never_overlapping", KEPT, (line("begin"), line("begin"))),
    "the later call began first": (
        "in_order",
        changed(calls=TWO),
        (line("begin", "b", uses=TILL), line("end", "b", uses=TILL), line("begin", uses=TILL)),
    ),
    "the later call began before the earlier one did again": (
        "in_order",
        changed(calls=TWO),
        (line("begin", uses=TILL), line("begin", "b", uses=SHARED), line("begin", uses=TILL)),
    ),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_each_invariant_can_be_breached(breach: str) -> None:
    """DUR-1, DUR-2, DUR-3: a check that cannot fail checks nothing."""
    check, journal, log = BREACHES[breach]
    found = checks.breaches(journal, log)
    assert any(one.startswith(f"{check}: ") for one in found), found


def test_every_check_is_shown_to_fail() -> None:
    """DUR-1: no invariant was left out above."""
    assert {check.__name__ for check in checks.CHECKS} == {row[0] for row in BREACHES.values()}


ALLOWED: dict[str, tuple[Journal, tuple[Line, ...]]] = {
    "a safe call began twice": (KEPT, (line("begin", replay="safe"), line("killed", pid=2))),
    "a person had a call run again": (
        changed(steps=(*RAN.steps, Step(seq=9, call="a", step="retry", state="admitted"))),
        (line("begin", replay="unknown"), line("raise"), line("begin", replay="unknown")),
    ),
    "a call was told to stop before its owner was lost": (
        changed(
            calls=(call(state="unknown", outcome=LOST),),
            steps=(Step(seq=9, call="a", step="told", state="dispatched"),),
        ),
        (line("begin", replay="keyed"),),
    ),
    "the one that had the till was killed": (
        changed(calls=TWO),
        (line("begin", uses=TILL), line("killed", ""), line("begin", "b", uses=TILL)),
    ),
    "two share": (
        changed(calls=TWO),
        (line("begin", uses=SHARED), line("begin", "b", uses=SHARED)),
    ),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_what_is_allowed_is_no_breach(case: str) -> None:
    """DUR-2, EXE-3: what the contract allows is not held against the product."""
    journal, log = ALLOWED[case]
    found = [
        *checks.none_twice(journal, log),
        *checks.runs_again(journal, log),
        *checks.never_overlapping(journal, log),
        *checks.in_order(journal, log),
    ]
    assert found == []
