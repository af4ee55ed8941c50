"""
What must hold between what really happened and what the journal says, whenever who was killed.

Each check takes a journal and a log, and returns a sentence for each breach. `test_checks` shows of
each of them that it can find one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from crash.journal import Call, Journal, Step
from crash.log import Line
from ferrule.states import MOVES, SETTLED

TABLE = cast("Mapping[tuple[str, str], str]", MOVES)

NOTES = frozenset(("propose", "wait", "record", "effect", "evidence", "told", "changed"))
"""Lines of a history that move nothing."""

BY_PEOPLE = frozenset(("resolve_completed", "resolve_failed", "resolve_cancelled", "retry"))
"""Steps that people take: what they say of a call need not be what its tool did."""


def nothing_lost(journal: Journal, log: Sequence[Line]) -> Iterator[str]:
    """DUR-1: every call of every batch that was kept has an outcome, and is settled."""
    kept = Counter(call.batch for call in journal.calls)
    for line in log:
        if line.what == "submitting" and kept[line.name] not in {0, len(line.calls)}:
            yield f"batch {line.name}: {kept[line.name]} of {len(line.calls)} calls are kept"
    for call in journal.calls:
        if call.state not in SETTLED or call.outcome is None:
            yield f"{call.call} is {call.state}, with {call.outcome and call.outcome['outcome']}"


def none_twice(journal: Journal, log: Sequence[Line]) -> Iterator[str]:
    """DUR-2: no leg of an unknown call begins twice, none that has begun its effect once more."""
    may = _retries(journal)
    began = Counter(_leg(line) for line in log if line.what == "begin")
    effects = Counter(_leg(line) for line in log if line.what == "effect")
    for (call, leg, replay), times in began.items():
        if replay == "unknown" and times > 1 + may[call]:
            yield f"{call} began {times} times, leg {leg}"
    for (call, leg, replay), times in effects.items():
        if replay in {"unknown", "until_effect"} and times > 1 + may[call]:
            yield f"{call} began its effect {times} times, leg {leg}"


def _leg(line: Line) -> tuple[str, int, str]:
    return line.call, line.leg, line.replay


def _retries(journal: Journal) -> Counter[str]:
    return Counter(step.call for step in journal.steps if step.step == "retry")


def runs_again(journal: Journal, log: Sequence[Line]) -> Iterator[str]:
    """
    DUR-2: a call whose second run does no harm is not unknown because its owner was lost.

    One that was told to stop is: nobody wants it any more.
    """
    replays = {line.call: line.replay for line in log if line.what == "begin"}
    for call in journal.calls:
        reason = None if call.outcome is None else call.outcome.get("reason")
        if call.state != "unknown" or reason != "owner_lost":
            continue
        replay = replays.get(call.call, "unknown")
        notes = {step.step for step in journal.of(call.call)}
        has_begun = "effect" in notes
        if "told" in notes:
            continue
        if replay in {"safe", "keyed"} or (replay == "until_effect" and not has_begun):
            yield f"{call.call} is unknown, and could have run again"


def one_key(journal: Journal, log: Sequence[Line]) -> Iterator[str]:
    """DUR-3: a call has one idempotency key, in every leg and replay, and no other call has it."""
    keys: defaultdict[str, set[str]] = defaultdict(set)
    for line in log:
        if line.key:
            keys[line.call].add(line.key)
    kept = {call.call: call.key for call in journal.calls}
    for name, found in keys.items():
        if found != {kept.get(name)}:
            yield f"{name} ran with the keys {found}, and is kept with {kept.get(name)}"
    for key, times in Counter(kept.values()).items():
        if times > 1:
            yield f"{times} calls share the key {key}"


def done_is_done(journal: Journal, log: Sequence[Line]) -> Iterator[str]:
    """DUR-1: a call reported completed has ended its leg; one reported failed has begun it."""
    seen = {(line.what, line.call, line.leg) for line in log}
    for call in journal.calls:
        last = _last_move(journal, call)
        if last == "complete" and ("end", call.call, call.leg) not in seen:
            yield f"{call.call} is reported completed, and leg {call.leg} never ended"
        if last in {"complete", "fail"} and ("begin", call.call, call.leg) not in seen:
            yield f"{call.call} is reported {call.state}, and leg {call.leg} never began"


def not_done_is_not_done(journal: Journal, log: Sequence[Line]) -> Iterator[str]:
    """
    FAIL-6: no call that is said not to have run has begun an effect, or may have.

    One whose runs do no harm, or that had not said that it begins its effect, may have begun.
    """
    began = {
        (line.call, line.leg)
        for line in log
        if line.what == "begin" and line.replay in {"unknown", "keyed"}
    }
    effects = {line.call for line in log if line.what == "effect"}
    for call in journal.calls:
        said = None if call.outcome is None else call.outcome["outcome"]
        if said not in {"cancelled", "rejected"} or _last_move(journal, call) in BY_PEOPLE:
            continue
        if (call.call, call.leg) in began:
            yield f"{call.call} is reported {said}, and leg {call.leg} has begun"
        if call.call in effects:
            yield f"{call.call} is reported {said}, and has begun its effect"


def _last_move(journal: Journal, call: Call) -> str:
    moves = [step.step for step in journal.of(call.call) if step.step not in NOTES]
    return moves[-1] if moves else ""


def answers_once(journal: Journal, log: Sequence[Line]) -> Iterator[str]:
    """SUS-3, AUT-4: each answer starts one leg of its call; no leg is started by anything else."""
    used = Counter(
        (step.call, step.data["wait"])
        for step in journal.steps
        if step.step in {"answer", "approve"} and step.data is not None
    )
    answered = {(wait.call, wait.id) for wait in journal.waits if wait.how == "answered"}
    for one, times in used.items():
        if times > 1 or one not in answered:
            yield f"the answer to {one[1]} of {one[0]} was used {times} times"
    for one in answered - used.keys():
        yield f"the answer to {one[1]} of {one[0]} was not used"
    given = Counter(call for call, _ in answered)
    for call in journal.calls:
        if call.leg != 1 + given[call.call]:
            yield f"{call.call} is in leg {call.leg} after {given[call.call]} answers"
    for line in log:
        if line.what == "restarted":
            yield f"{line.call} began anew in leg {line.leg}, and its answer was not used"
        if line.what == "begin" and line.leg > 1 + given[line.call]:
            yield f"{line.call} began leg {line.leg} after {given[line.call]} answers"


def asked_first(_: Journal, log: Sequence[Line]) -> Iterator[str]:
    """AUT-4: a call that a policy asks about begins after a person has agreed, and not before."""
    approved: set[str] = set()
    for line in log:
        if line.what == "approved":
            approved.add(line.call)
        if line.what == "begin" and line.call.endswith("+") and line.call not in approved:
            yield f"{line.call} began leg {line.leg}, and nobody had agreed"


def records_kept(journal: Journal, log: Sequence[Line]) -> Iterator[str]:
    """REC-1: a record that returned is in the journal."""
    kept = set(journal.records)
    for line in log:
        if line.what == "recorded":
            record = (line.call, line.leg, f"{line.call} {line.name}")
            if record not in kept:
                yield f"the record {record} is not kept"


def acknowledged(journal: Journal, log: Sequence[Line]) -> Iterator[str]:
    """DUR-1, SUS-3: what was acknowledged is there: batches, answers, cancellations, outcomes."""
    batches = {call.batch for call in journal.calls}
    waits = {wait.id: wait for wait in journal.waits}
    done = {(step.call, step.step) for step in journal.steps}
    for line in log:
        match line.what:
            case "submitted" if line.name not in batches:
                yield f"batch {line.name} was acknowledged, and is not there"
            case "answered":
                wait = waits.get(line.name)
                if wait is None or (wait.how, wait.by) != ("answered", line.by):
                    yield f"the answer of {line.by} to {line.name} was acknowledged, and is {wait}"
            case "resolved" if not any((line.call, step) in done for step in BY_PEOPLE):
                yield f"what {line.by} said of {line.call} was acknowledged, and is not there"
            case "settled":
                yield from _as_reported(journal, line)
            case _:
                pass


def _as_reported(journal: Journal, line: Line) -> Iterator[str]:
    """What people said since of an unknown call counts, and not what was reported before."""
    resolved = {step.call for step in journal.steps if step.step in BY_PEOPLE}
    calls = [call for call in journal.calls if call.batch == line.name]
    for call, said in zip(calls, line.calls, strict=True):
        now = call.outcome and call.outcome["outcome"]
        if now != said.lower() and call.call not in resolved:
            yield f"{call.call} was reported {said}, and is {now}"


def moves_legal(journal: Journal, _: Sequence[Line]) -> Iterator[str]:
    """DUR-1: every history is a walk through the table, and the fence rises with each dispatch."""
    histories: defaultdict[str, list[Step]] = defaultdict(list)
    for step in journal.steps:
        histories[step.call].append(step)
    for call in journal.calls:
        yield from _walk(call, histories[call.call])


def _walk(call: Call, steps: list[Step]) -> Iterator[str]:
    state, fence = "proposed", 0
    for step in steps:
        if step.step in NOTES:
            continue
        now = TABLE.get((state, step.step))
        fence += step.step == "dispatch"
        if (now, fence) != (step.state, step.fence):
            there = f"{step.state} ({step.fence})"
            yield f"{call.call} was {state} ({fence}), then {step.step}: {there}"
            return
        state = step.state
    if (state, fence) != (call.state, call.fence):
        yield f"{call.call} is {call.state} ({call.fence}); by its history {state} ({fence})"


def never_overlapping(_: Journal, log: Sequence[Line]) -> Iterator[str]:
    """EXE-3: of two calls that conflict never both are at work, in whatever process."""
    at_work: dict[tuple[str, int], Line] = {}
    for line in log:
        match line.what:
            case "begin":
                for other in at_work.values():
                    if other.call != line.call and _conflict(other, line):
                        yield f"{line.call} began while {other.call} was at work"
                    if other.call == line.call:
                        yield f"{line.call} began while it was at work"
                at_work[line.call, line.leg] = line
            case "end" | "ask" | "raise":
                at_work.pop((line.call, line.leg), None)
            case "killed":
                gone = [key for key, one in at_work.items() if one.pid == line.pid]
                for key in gone:
                    del at_work[key]
            case _:
                pass


def _conflict(one: Line, other: Line) -> bool:
    mine = dict(one.uses)
    return any(state in mine and not (shared and mine[state]) for state, shared in other.uses)


def in_order(journal: Journal, log: Sequence[Line]) -> Iterator[str]:
    """
    EXE-2: of two calls of a batch that conflict the earlier one begins first, and again first.

    A call that a person had run again, or that asked, comes when it comes.
    """
    free = set(_retries(journal)) | {wait.call for wait in journal.waits}
    places = {call.call: (call.batch, call.position) for call in journal.calls}
    last: dict[str, Line] = {}
    first: dict[str, int] = {}
    final: dict[str, int] = {}
    for number, line in enumerate(log):
        if line.what == "begin" and line.uses and line.call not in free and line.call in places:
            last[line.call] = line
            first.setdefault(line.call, number)
            final[line.call] = number
    for one, other in _pairs_in_order(last, places):
        if _conflict(last[one], last[other]) and first[other] < final[one]:
            yield f"{other} began before {one} did"


def _pairs_in_order(
    names: Iterable[str], places: dict[str, tuple[str, int]]
) -> Iterator[tuple[str, str]]:
    ordered = sorted(names, key=lambda name: places[name])
    for at, one in enumerate(ordered):
        for other in ordered[at + 1 :]:
            if places[one][0] != places[other][0]:
                break
            yield one, other


CHECKS = (
    nothing_lost,
    none_twice,
    runs_again,
    one_key,
    done_is_done,
    not_done_is_not_done,
    answers_once,
    asked_first,
    records_kept,
    acknowledged,
    moves_legal,
    never_overlapping,
    in_order,
)


def breaches(journal: Journal, log: Sequence[Line], *, settled: bool = True) -> list[str]:
    """
    Return every breach of every invariant.

    Args:
        journal: What is kept.
        log: What happened.
        settled: Whether everything should have ended; not so of a process that was just killed.
    """
    return [
        f"{check.__name__}: {breach}"
        for check in CHECKS
        if settled or check is not nothing_lost
        for breach in check(journal, log)
    ]
