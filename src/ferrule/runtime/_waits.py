"""
What waits for people: opened with the end of a leg, closed once.

Each function is work of one transaction. An answer is kept with who gave it before anybody hears
that it was, and moves its call in the same breath: who comes second finds the wait closed, and is
told by whom and when.
"""

import sqlite3
import uuid
from typing import Literal, cast

from ferrule import (
    Approval,
    Continuation,
    Failed,
    Failure,
    FerruleError,
    InputRequest,
    InvalidValue,
    Leg,
    RawJSON,
    digest,
    read_json,
)
from ferrule.errors import AnswerConflict, AnswerRefused, WaitClosed
from ferrule.ports import Receipt, Wait
from ferrule.runtime._calls import Row, call_of, step, without_running
from ferrule.runtime._store import Transaction
from ferrule.runtime._text import (
    answer_from,
    answer_text,
    moment,
    moment_or_none,
    outcome_text,
    read,
    written,
)
from ferrule.states import Step


def open_wait(tx: Transaction, row: Row, request: InputRequest) -> str:
    """Keep a question of a call that ended its leg with it; return the wait's id."""
    wait = uuid.uuid4().hex
    expires = None if request.expires_in is None else tx.at + request.expires_in
    tx.run(
        "INSERT INTO waits (id, call, leg, request, since, expires) VALUES (?, ?, ?, ?, ?, ?)",
        *(wait, row.id, row.leg, written(request.to_json()), tx.at, expires),
    )
    return wait


def waits(tx: Transaction) -> list[Wait]:
    """Return what waits and can still be answered, oldest first."""
    return [
        _wait(tx, row)
        for row in tx.rows(
            "SELECT * FROM waits WHERE open AND (expires IS NULL OR expires > ?) "
            "ORDER BY since, rowid",
            tx.at,
        )
    ]


def wait_of(tx: Transaction, wait_id: str) -> Wait:
    """
    Return a question, also one that is closed.

    Raises:
        WaitClosed: there never was one of this id.
    """
    row = tx.row("SELECT * FROM waits WHERE id = ?", wait_id)
    if row is None:
        raise _unheard_of(wait_id)
    return _wait(tx, row)


def wait_ids(tx: Transaction, beginning: str) -> list[str]:
    """Return the ids of all questions, closed ones too, that begin so."""
    found = tx.rows(
        "SELECT id FROM waits WHERE substr(id, 1, ?) = ? ORDER BY id", len(beginning), beginning
    )
    return [row["id"] for row in found]


def _unheard_of(wait_id: str) -> WaitClosed:
    return WaitClosed(f"there is no question {wait_id}; `waits` lists those that wait")


def _wait(tx: Transaction, row: sqlite3.Row) -> Wait:
    request = request_of(row)
    call = call_of(tx, row["call"])
    return Wait(
        id=row["id"],
        call=call.call,
        call_id=call.id,
        message=request.message,
        schema=request.schema,
        since=moment(row["since"]),
        expires=moment_or_none(row["expires"]),
        asked_by=f"tool:{call.call.name}" if request.asked is None else request.asked.guard,
        leg=row["leg"],
    )


def request_of(row: sqlite3.Row) -> InputRequest:
    return InputRequest.from_json(read(row["request"]))


# ---- answering -------------------------------------------------------------------------------


def answer(
    tx: Transaction, wait_id: str, content: object, by: str, answer_id: str | None
) -> Receipt:
    """Answer a wait; see `ferrule.ports.Inbox.answer`."""
    if not by.strip():
        raise AnswerRefused("an answer says who gives it: by=…")
    row = tx.row("SELECT * FROM waits WHERE id = ?", wait_id)
    if answer_id is not None:
        known = _known(tx, wait_id, content, answer_id)
        if known is not None:
            return known
    if row is None:
        raise _unheard_of(wait_id)
    if not row["open"]:
        raise _closed(row)
    if row["expires"] is not None and row["expires"] <= tx.at:
        raise WaitClosed(
            f"the question has expired at {moment(row['expires']):%Y-%m-%d %H:%M:%S} UTC",
            how="expired",
            at=moment(row["expires"]),
        )
    answer_id = uuid.uuid4().hex if answer_id is None else answer_id
    _take(tx, row, content, by, answer_id)
    return Receipt(wait_id=wait_id, answer_id=answer_id, by=by, at=moment(tx.at), first=True)


def _known(tx: Transaction, wait_id: str, content: object, answer_id: str) -> Receipt | None:
    """Return the receipt of an answer that came before under this id."""
    row = tx.row("SELECT * FROM waits WHERE answer_id = ?", answer_id)
    if row is None:
        return None
    if row["id"] != wait_id or _digest(answer_from(row["answer"])) != _digest(content):
        raise AnswerConflict(
            f"answer {answer_id} was given before with another content, or to another question; "
            "give this one another id",
            by=row["by"],
            at=moment(row["closed"]),
        )
    at = moment(row["closed"])
    return Receipt(wait_id=wait_id, answer_id=answer_id, by=row["by"], at=at, first=False)


def _digest(content: object) -> str:
    """Return what tells one answer from another; nothing for what is no JSON."""
    try:
        return digest(read_json(content.text) if isinstance(content, RawJSON) else content)
    except FerruleError:
        return ""


def _closed(row: sqlite3.Row) -> WaitClosed:
    at = moment(row["closed"])
    by = f" by {row['by']}" if row["by"] else ""
    return WaitClosed(
        f"the question was {row['how']}{by} at {at:%Y-%m-%d %H:%M:%S} UTC",
        how=row["how"],
        by=row["by"],
        at=at,
    )


def _take(tx: Transaction, row: sqlite3.Row, content: object, by: str, answer_id: str) -> None:
    request = request_of(row)
    approval: Approval | None = None
    try:
        if request.asked is None:
            kept = request.continuation(content).answer
        else:
            approval = request.approval(content, by=by)
            kept = approval.answer
    except InvalidValue as error:
        raise AnswerRefused(f"{error}; the question still waits") from None
    tx.run(
        "UPDATE waits SET open = 0, how = 'answered', by = ?, closed = ?, answer = ?, "
        "answer_id = ?, approval = ? WHERE id = ?",
        *(by, tx.at, answer_text(kept), answer_id),
        *(None if approval is None else written(approval.to_json()), row["id"]),
    )
    call = call_of(tx, row["call"])
    data = {"wait": row["id"], "answer": kept.text if isinstance(kept, RawJSON) else kept}
    if approval is None:
        step(tx, call, "answer", by=by, data=data, leg=call.leg + 1, asked=row["id"])
    else:
        step(tx, call, "approve", by=by, data=data, leg=call.leg + 1)


# ---- ending without an answer ----------------------------------------------------------------


def withdraw(tx: Transaction, wait_id: str, by: str) -> None:
    """Take a question back; see `ferrule.ports.Inbox.withdraw`."""
    if not by.strip():
        raise AnswerRefused("who takes a question back says so: by=…")
    row = tx.row("SELECT * FROM waits WHERE id = ?", wait_id)
    if row is None:
        raise _unheard_of(wait_id)
    if not row["open"]:
        raise _closed(row)
    _end(tx, row, "withdrawn", by)


def expire(tx: Transaction) -> list[str]:
    """End every question that is past its time; return the calls that asked them."""
    rows = tx.rows("SELECT * FROM waits WHERE open AND expires <= ?", tx.at)
    for row in rows:
        _end(tx, row, "expired", "")
    return [row["call"] for row in rows]


def is_due(tx: Transaction) -> bool:
    """Say whether a question is past its time."""
    return tx.row("SELECT 1 FROM waits WHERE open AND expires <= ?", tx.at) is not None


def _end(tx: Transaction, row: sqlite3.Row, how: Literal["withdrawn", "expired"], by: str) -> None:
    tx.run(
        "UPDATE waits SET open = 0, how = ?, by = ?, closed = ? WHERE id = ?",
        *(how, by, tx.at, row["id"]),
    )
    call = call_of(tx, row["call"])
    said = "was withdrawn" if how == "withdrawn" else "expired before anybody answered"
    request = request_of(row)
    failed = Failed(Failure(f"the question {said}: {request.message}"))
    # What a guard asks, it asks before a run; and there may have been one before that.
    known = failed if request.asked is None else without_running(tx, call, failed)
    what: Step = "withdraw" if how == "withdrawn" else "expire"
    if known is not failed:
        what = "doubt"
    step(tx, call, what, by=by, data={"wait": row["id"]}, outcome=outcome_text(known))


# ---- going on --------------------------------------------------------------------------------


def leg_of(tx: Transaction, row: Row) -> Leg:
    """Return the next leg of a call, with all that people answered to it."""
    return Leg(
        row.call,
        number=row.leg,
        idempotency_key=row.idempotency_key,
        approvals=tuple(
            Approval.from_json(read(wait["approval"]))
            for wait in tx.rows(
                "SELECT approval FROM waits WHERE call = ? AND approval IS NOT NULL ORDER BY rowid",
                row.id,
            )
        ),
        continuation=None if row.asked is None else _continuation(tx, row.asked),
    )


def _continuation(tx: Transaction, wait_id: str) -> Continuation:
    row = cast("sqlite3.Row", tx.row("SELECT * FROM waits WHERE id = ?", wait_id))
    return request_of(row).continuation(answer_from(row["answer"]))
