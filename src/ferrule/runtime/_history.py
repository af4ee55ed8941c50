"""What is read of a journal: what happened, what is unknown, how the calls of a batch stand."""

import sqlite3

from ferrule import Outcome, Record, Suspended
from ferrule.errors import AnswerRefused
from ferrule.ports import DurableCall, Evidence, Kept, Moved, Resolution
from ferrule.runtime._calls import Row, calls_where, step
from ferrule.runtime._store import Transaction
from ferrule.runtime._text import moment, outcome_from, outcome_text, read
from ferrule.runtime._waits import request_of
from ferrule.states import SETTLED, Step


def history(
    tx: Transaction, *, batch: str | None = None, call: str | None = None, after: int = 0
) -> list[Moved]:
    """Return the lines of the history after one, of a batch, a call, or all."""
    return [
        _moved(row)
        for row in tx.rows(
            "SELECT * FROM history WHERE seq > ? AND (? IS NULL OR batch = ?) "
            "AND (? IS NULL OR call = ?) ORDER BY seq",
            *(after, batch, batch, call, call),
        )
    ]


def _moved(row: sqlite3.Row) -> Moved:
    return Moved(
        seq=row["seq"],
        at=moment(row["at"]),
        batch_id=row["batch"],
        call_id=row["call"],
        step=row["step"],
        state=row["state"],
        leg=row["leg"],
        fence=row["fence"],
        by=row["by"],
        data=None if row["data"] is None else read(row["data"]),
    )


def durable(tx: Transaction, row: Row) -> DurableCall:
    """Return a call with all that is kept of it."""
    return DurableCall(
        id=row.id,
        batch_id=row.batch,
        call=row.call,
        state=row.state,
        leg=row.leg,
        fence=row.fence,
        idempotency_key=row.idempotency_key,
        effect_begun=row.effect,
        outcome=row.outcome,
        records=tuple(kept(tx, row.id)),
        evidence=tuple(
            Evidence(
                outcome=outcome_from(one["outcome"]),
                leg=one["leg"],
                fence=one["fence"],
                at=moment(one["at"]),
            )
            for one in tx.rows("SELECT * FROM evidence WHERE call = ? ORDER BY seq", row.id)
        ),
    )


def batch(tx: Transaction, name: str) -> list[DurableCall]:
    """Return the calls of a batch, in their order."""
    return [durable(tx, row) for row in calls_where(tx, "batch = ?", name)]


def kept(tx: Transaction, call: str) -> list[Kept]:
    """Return the records of a call, oldest first."""
    return [
        Kept(
            record=Record(one["namespace"], data=read(one["data"])),
            leg=one["leg"],
            fence=one["fence"],
            at=moment(one["at"]),
        )
        for one in tx.rows("SELECT * FROM records WHERE call = ? ORDER BY seq", call)
    ]


def unknown(tx: Transaction, reason: str | None) -> list[DurableCall]:
    """Return the calls of which nobody knows how they ended."""
    found = [durable(tx, row) for row in calls_where(tx, "state = 'unknown'")]
    return [one for one in found if reason in {None, getattr(one.outcome, "reason", None)}]


def outcomes(tx: Transaction, batch: str) -> list[Outcome | None]:
    """Return how each call of a batch stands: ended, waiting for a person, or neither."""
    return [_standing(tx, row) for row in calls_where(tx, "batch = ?", batch)]


def _standing(tx: Transaction, row: Row) -> Outcome | None:
    return row.outcome if row.state in SETTLED else asked_by(tx, row)


def asked_by(tx: Transaction, row: Row) -> Suspended | None:
    """Return what a call asks, if it waits for an answer."""
    wait = tx.row("SELECT * FROM waits WHERE call = ? AND open", row.id)
    return None if wait is None else Suspended(request_of(wait))


def find(tx: Transaction, name: str) -> Row:
    """
    Return the call of an id: its own among all, or the model's where only one call has it.

    Raises:
        AnswerRefused: there is none, or more than one.
    """
    exact = calls_where(tx, "id = ?", name)
    found = exact or calls_where(tx, "call = ?", name)
    if len(found) == 1:
        return found[0]
    if not found:
        raise AnswerRefused(f"there is no call {name}; `history` lists them")
    names = ", ".join(row.id for row in found[:5])
    raise AnswerRefused(f"there are {len(found)} calls {name}: {names}; name one of them in full")


_RESOLUTIONS: dict[str, Step] = {
    "completed": "resolve_completed",
    "failed": "resolve_failed",
    "cancelled": "resolve_cancelled",
}


def resolve(tx: Transaction, name: str, resolution: Resolution, by: str) -> None:
    """Say how an unknown call ended; see `ferrule.ports.Inbox.resolve`."""
    if not by.strip():
        raise AnswerRefused("a resolution says who gives it: by=…")
    row = find(tx, name)
    if resolution == "retry":
        _needs_unknown(row)
        step(tx, row, "retry", by=by, outcome=None, told=0)
        return
    kind = type(resolution).__name__.lower()
    if kind not in _RESOLUTIONS:
        raise AnswerRefused(
            "an unknown call is resolved as Completed, Failed or Cancelled, or by “retry”"
        )
    text = outcome_text(resolution)
    if row.outcome is not None and row.state != "unknown" and outcome_text(row.outcome) == text:
        return  # Said before.
    _needs_unknown(row)
    step(tx, row, _RESOLUTIONS[kind], by=by, data={"outcome": kind}, outcome=text)


def _needs_unknown(row: Row) -> None:
    if row.state != "unknown":
        raise AnswerRefused(f"call {row.id} is {row.state}; only an unknown call is resolved")
