"""
The calls of a journal: read, and moved by the table of `ferrule.states`.

Each function is work of one transaction. Whoever moves a call says under which fence it thinks
that it has it; who is wrong about that is `Fenced`, and nothing is changed.
"""

from typing import Literal, TypeAlias, cast

import msgspec

from ferrule import (
    Cancelled,
    Completed,
    Failed,
    Outcome,
    Record,
    Rejected,
    Replay,
    Suspended,
    ToolCall,
    Unknown,
    Use,
)
from ferrule.errors import Fenced
from ferrule.ports import Note
from ferrule.runtime._store import Transaction
from ferrule.runtime._text import outcome_from, outcome_text, uses_from, written
from ferrule.states import SETTLED, State, Step, move


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """
    One call as it stands in the journal.

    Attributes:
        id: Its id among all calls.
        batch: Its batch.
        position: Its place in the batch.
        call: What the model wrote.
        idempotency_key: The same for every leg and replay.
        fingerprint: Of its tool when it was last let in.
        uses: What it works on.
        replay: What a second run would do.
        state: Where it is.
        leg: The leg that runs, or is due.
        fence: How many times it was dispatched.
        owner: Who dispatched it last.
        lease: Until when it is that owner's.
        effect: Whether it has said `begin_effect` since it was dispatched.
        told: Whether it is told to stop.
        asked: The wait whose answer the leg goes on from, if it does.
        outcome: How it ended, once it has.
    """

    id: str
    batch: str
    position: int
    call: ToolCall
    idempotency_key: str
    fingerprint: str
    uses: tuple[Use, ...]
    replay: Replay
    state: State
    leg: int = 1
    fence: int = 0
    owner: str | None = None
    lease: float | None = None
    effect: bool = False
    told: bool = False
    asked: str | None = None
    outcome: Outcome | None = None


_COLUMNS = (
    "id, batch, position, call, name, arguments, idempotency_key, fingerprint, uses, replay, "
    "state, leg, fence, owner, lease, effect, told, asked, outcome"
)


def calls_where(tx: Transaction, condition: str, *values: object) -> list[Row]:
    """Return the calls that a condition of ours holds for, in the order of their batch."""
    found = tx.rows(
        f"SELECT {_COLUMNS} FROM calls WHERE {condition} ORDER BY rowid",  # noqa: S608  # ours
        *values,
    )
    return [
        Row(
            id=row["id"],
            batch=row["batch"],
            position=row["position"],
            call=ToolCall(id=row["call"], name=row["name"], arguments=row["arguments"]),
            idempotency_key=row["idempotency_key"],
            fingerprint=row["fingerprint"],
            uses=uses_from(row["uses"]),
            replay=row["replay"],
            state=row["state"],
            leg=row["leg"],
            fence=row["fence"],
            owner=row["owner"],
            lease=row["lease"],
            effect=bool(row["effect"]),
            told=bool(row["told"]),
            asked=row["asked"],
            outcome=None if row["outcome"] is None else outcome_from(row["outcome"]),
        )
        for row in found
    ]


def call_of(tx: Transaction, call_id: str) -> Row:
    """
    Return one call.

    Raises:
        Fenced: there is none.
    """
    found = calls_where(tx, "id = ?", call_id)
    if not found:
        raise Fenced(f"the journal has no call {call_id}")
    return found[0]


def last_seq(tx: Transaction) -> int:
    """Return the last line of the history."""
    row = tx.row("SELECT max(seq) AS last FROM history")
    return 0 if row is None else row["last"] or 0


def note(  # what a line of the history is made of
    tx: Transaction,
    row: Row,
    what: Step | Note,
    *,
    state: State | None = None,
    leg: int | None = None,
    fence: int | None = None,
    by: str = "",
    data: object = None,
) -> None:
    """Write a line of the history."""
    tx.run(
        "INSERT INTO history (at, batch, call, step, state, leg, fence, by, data) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        *(tx.at, row.batch, row.id, what, state or row.state, leg or row.leg),
        *(row.fence if fence is None else fence, by, None if data is None else written(data)),
    )


def step(
    tx: Transaction, row: Row, what: Step, *, by: str = "", data: object = None, **changes: object
) -> Row:
    """
    Move a call by one step, and return it as it is then.

    Args:
        tx: The transaction, in which `row` was read.
        row: The call.
        what: The step.
        by: Who did it, if a person did.
        data: What goes with it in the history.
        changes: Other columns that change with it.

    Raises:
        IllegalMove: it cannot be taken from where the call is.
    """
    state = move(row.state, what)
    values = {"state": state, **changes}
    columns = ", ".join(f"{name} = ?" for name in values)
    tx.run(f"UPDATE calls SET {columns} WHERE id = ?", *values.values(), row.id)  # noqa: S608
    leg = cast("int", changes.get("leg", row.leg))
    fence = cast("int", changes.get("fence", row.fence))
    note(tx, row, what, state=state, leg=leg, fence=fence, by=by, data=data)
    if (state in SETTLED) != (row.state in SETTLED):
        _open_or_close(tx, row.batch)
    return msgspec.structs.replace(row, state=state, leg=leg, fence=fence)


def _open_or_close(tx: Transaction, batch: str) -> None:
    """Note whether a batch has calls that are not settled; nobody drives one that has none."""
    left = tx.row(
        "SELECT 1 FROM calls WHERE batch = ? AND state NOT IN ('completed', 'failed', 'rejected', "
        "'cancelled') AND state != 'unknown' LIMIT 1",
        batch,
    )
    if left is None:
        tx.run("UPDATE batches SET open = 0, owner = NULL, lease = NULL WHERE id = ?", batch)
    else:
        tx.run("UPDATE batches SET open = 1 WHERE id = ? AND NOT open", batch)


# ---- what a running call says ----------------------------------------------------------------


def keep_record(tx: Transaction, call_id: str, fence: int, record: Record) -> None:
    """
    Keep a record of a running call.

    Raises:
        Fenced: somebody else has the call, or it was reported already.
    """
    row = _running(tx, call_id, fence)
    if record.namespace == EFFECT:
        tx.run("UPDATE calls SET effect = 1 WHERE id = ?", call_id)
        note(tx, row, "effect")
        return
    tx.run(
        "INSERT INTO records (call, leg, fence, at, namespace, data) VALUES (?, ?, ?, ?, ?, ?)",
        *(call_id, row.leg, fence, tx.at, record.namespace, written(record.data)),
    )
    note(tx, row, "record", data=record.to_json())


EFFECT = "ferrule:effect"
"""The record by which a call says that it may have an effect from now on."""


def _running(tx: Transaction, call_id: str, fence: int) -> Row:
    row = call_of(tx, call_id)
    if row.state != "dispatched" or row.fence != fence:
        raise Fenced(f"call {call_id} is not this process's any more: it is {row.state}")
    return row


def keep_evidence(tx: Transaction, call_id: str, fence: int, leg: int, outcome: Outcome) -> None:
    """Keep how a call ended as somebody says who has no say any more; the same only once."""
    text = outcome_text(outcome)
    known = tx.row(
        "SELECT 1 FROM evidence WHERE call = ? AND fence = ? AND outcome = ?", call_id, fence, text
    )
    if known is None:
        tx.run(
            "INSERT INTO evidence (call, leg, fence, at, outcome) VALUES (?, ?, ?, ?, ?)",
            *(call_id, leg, fence, tx.at, text),
        )
        note(tx, call_of(tx, call_id), "evidence", data=outcome.to_json(), fence=fence, leg=leg)


# ---- how a leg ends --------------------------------------------------------------------------

Ending: TypeAlias = Outcome | Literal["evidence", "given back"]
"""
What became of an outcome: what is kept of it as the call's; or it came too late and is evidence; or
it is nothing, and the call runs again elsewhere.
"""


def end_leg(
    tx: Transaction, row: Row, fence: int, leg: int, outcome: Outcome, *, still: bool = False
) -> Ending:
    """
    Keep how a dispatched leg ended.

    Saying the same again under the same fence changes nothing: an acknowledgement was lost.

    Args:
        tx: The transaction.
        row: The call as it is.
        fence: The dispatch that ended.
        leg: Its leg.
        outcome: How; a `Suspended` opens a wait elsewhere first.
        still: Whether it may still be at work, so that what it uses is not free.
    """
    outcome = as_known(tx, row, outcome)
    if row.state == "dispatched" and row.fence == fence:
        what, kept = _after_dispatch(outcome)
        step(tx, row, what, data=summary(outcome), outcome=kept)
        if row.uses and not still:
            tx.run("DELETE FROM holds WHERE call = ?", row.id)
        return outcome
    known = row.outcome if row.fence == fence else None
    if known is not None and outcome_text(known) == outcome_text(outcome):
        return known
    keep_evidence(tx, row.id, fence, leg, outcome)
    return "evidence"


def _after_dispatch(outcome: Outcome) -> tuple[Step, str | None]:
    what: Step
    match outcome:
        case Completed():
            what = "complete"
        case Failed():
            what = "fail"
        case Unknown():
            what = "doubt"
        case Suspended():
            return "suspend", None
        case Rejected():
            what = "spare"
        case Cancelled():
            what = "spare_cancelled"
    return what, outcome_text(outcome)


def end_early(tx: Transaction, row: Row, outcome: Rejected | Cancelled, *, by: str = "") -> Outcome:
    """Keep that a call ended without having been dispatched in this leg; return what is kept."""
    known = as_known(tx, row, outcome)
    what: Step = "refuse" if isinstance(outcome, Rejected) else "cancel"
    if known is not outcome:
        what = "doubt"
    step(tx, row, what, by=by, data=summary(known), outcome=outcome_text(known))
    tx.run("DELETE FROM holds WHERE call = ?", row.id)
    return known


def as_known(tx: Transaction, row: Row, outcome: Outcome) -> Outcome:
    """Return how a leg ended as it is to be kept; see `without_running`."""
    if isinstance(outcome, Rejected | Cancelled):
        return without_running(tx, row, outcome)
    return outcome


def without_running(tx: Transaction, row: Row, outcome: Rejected | Cancelled | Failed) -> Outcome:
    """Return how a call ended that did not run now: nobody knows, if it may have run before."""
    if not _may_have_run(tx, row):
        return outcome
    if isinstance(outcome, Cancelled):
        return Unknown("cancelled", tool=row.call.name)
    reference = outcome.reference if isinstance(outcome, Rejected) else None
    return Unknown("owner_lost", tool=row.call.name, reference=reference)


def _may_have_run(tx: Transaction, row: Row) -> bool:
    """Say whether an earlier run of a call that has to begin again may have had an effect."""
    if row.replay == "safe" or not row.fence:
        return False
    ran = tx.row(
        "SELECT 1 FROM history WHERE call = ? AND (step = 'retry' OR (step = 'again' AND ?))",
        *(row.id, row.replay == "keyed"),
    )
    return ran is not None


def summary(outcome: Outcome | None) -> object:
    """Return what the history says of an outcome; the whole is with the call."""
    if outcome is None:
        return None
    if isinstance(outcome, Suspended):
        return {"message": outcome.request.message}
    said: dict[str, object] = {"outcome": type(outcome).__name__.lower()}
    if isinstance(outcome, Unknown | Cancelled):
        said["reason"] = outcome.reason
    if isinstance(outcome, Rejected):
        said["kind"] = outcome.kind
    reference = getattr(outcome, "reference", None)
    if reference is not None:
        said["reference"] = reference
    return said
