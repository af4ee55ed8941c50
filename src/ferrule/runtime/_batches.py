"""
The batches of a journal: kept, claimed by who drives them, and their calls dispatched in order.

Theory. One process drives a batch at a time; each claim raises the batch's fence, so that who drove
it before writes nothing more. Within a batch the order is the model's. Across batches and processes
what a call works on is held in the journal, from its dispatch to the end of its leg; who comes
while it is held draws a ticket, and tickets are served in order, so that nobody waits for ever. A
ticket is drawn only when the call's turn in its batch has come: it then waits for calls that run,
and these wait for nothing. So nobody waits in a circle.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from ferrule import (
    Cancelled,
    Failed,
    Failure,
    FerruleError,
    Plan,
    Shared,
    ToolCall,
    Unknown,
    Use,
    canonical,
)
from ferrule.errors import BatchConflict, Fenced, InvalidValue
from ferrule.runtime._calls import (
    Row,
    call_of,
    calls_where,
    end_early,
    last_seq,
    note,
    step,
    summary,
)
from ferrule.runtime._owners import Owner
from ferrule.runtime._store import Transaction
from ferrule.runtime._text import outcome_text, read, uses_text, written
from ferrule.states import PENDING, move


class Claim(msgspec.Struct, frozen=True):
    """
    A batch that somebody drives.

    Attributes:
        batch: Its id.
        fence: The claim's number; a later one makes this one void.
        seq: The last line of the history when it was made.
    """

    batch: str
    fence: int
    seq: int


# ---- proposing -------------------------------------------------------------------------------


def digest_of(calls: Iterable[ToolCall], caller: str) -> str:
    """Return what tells whether a batch was given the same calls again, by the same caller."""
    text = written([caller, [[call.id, call.name, call.arguments] for call in calls]])
    return hashlib.sha256(text.encode()).hexdigest()


def caller_text(caller: object) -> str:
    """
    Return who asks for a batch as text.

    Raises:
        InvalidValue: it is no JSON value, and so nobody could say later who it was.
    """
    if caller is None:
        return "null"
    try:
        return canonical(caller).decode()
    except FerruleError as error:
        raise InvalidValue(
            f"the caller of a durable batch is a JSON value, as it is kept: {error}"
        ) from None


def is_known(tx: Transaction, batch: str, its_digest: str) -> bool:
    """
    Say whether a batch is kept already.

    Raises:
        BatchConflict: it is, with other calls.
    """
    row = tx.row("SELECT digest FROM batches WHERE id = ?", batch)
    if row is not None and row["digest"] != its_digest:
        raise BatchConflict(f"batch {batch} was given other calls before; give these another id")
    return row is not None


def propose(
    tx: Transaction,
    batch: str,
    its_digest: str,
    plan: Plan,
    keys: Sequence[str],
    caller: str,
    owner: Owner,
) -> tuple[Claim, list[Row]] | None:
    """Keep a batch and its calls, claimed by `owner`; return nothing if it is kept already."""
    if is_known(tx, batch, its_digest):
        return None
    is_open = any(planned.refused is None for planned in plan.calls)
    holder = (owner.id, 1, owner.lease()) if is_open else (None, 1, None)
    tx.run(
        "INSERT INTO batches (id, digest, caller, since, sequential, open, owner, fence, lease) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        *(batch, its_digest, caller, tx.at, plan.sequential, is_open, *holder),
    )
    chain: tuple[Use, ...] = (f"ferrule:batch/{batch}",) if plan.sequential else ()
    rows: dict[str, Row] = {}
    for position, (planned, key) in enumerate(zip(plan.calls, keys, strict=True)):
        call_id = f"{batch}/{planned.call.id}"
        if call_id in rows:  # It was refused as it repeats an id, and needs one of its own here.
            call_id = f"{call_id}#{position}"
        row = Row(
            id=call_id,
            batch=batch,
            position=position,
            call=planned.call,
            idempotency_key=key,
            fingerprint=planned.fingerprint,
            uses=(*planned.uses, *chain),
            replay=planned.replay,
            state="admitted" if planned.refused is None else "rejected",
            outcome=planned.refused,
        )
        rows[call_id] = row
        _keep(tx, row, planned.digest)
    return Claim(batch, 1, last_seq(tx)), list(rows.values())


def _keep(tx: Transaction, row: Row, its_digest: str) -> None:
    call, refused = row.call, row.outcome
    tx.run(
        "INSERT INTO calls (id, batch, position, call, name, arguments, idempotency_key, digest, "
        "fingerprint, uses, replay, state, outcome) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        *(row.id, row.batch, row.position, call.id, call.name, call.arguments),
        *(row.idempotency_key, its_digest, row.fingerprint, uses_text(row.uses), row.replay),
        *(row.state, None if refused is None else outcome_text(refused)),
    )
    note(tx, row, "propose", state="proposed")
    note(tx, row, "admit" if refused is None else "refuse", data=summary(refused))


# ---- who drives ------------------------------------------------------------------------------


def claim(tx: Transaction, batch: str, owner: Owner) -> Claim | None:
    """Have `owner` drive a batch, if it is open and nobody who lives does."""
    row = tx.row("SELECT open, owner, lease, fence FROM batches WHERE id = ?", batch)
    if row is None or not row["open"]:
        return None
    if row["owner"] == owner.id or not owner.has_lost(tx, row["owner"], row["lease"]):
        return None
    fence = row["fence"] + 1
    tx.run(
        "UPDATE batches SET owner = ?, fence = ?, lease = ? WHERE id = ?",
        *(owner.id, fence, owner.lease(), batch),
    )
    for call in calls_where(tx, "batch = ? AND state = 'authorized'", batch):
        step(tx, call, "recall")
        tx.run("DELETE FROM holds WHERE call = ?", call.id)
    return Claim(batch, fence, last_seq(tx))


def release(tx: Transaction, claim: Claim, owner: Owner) -> None:
    """Drive a batch no more: whoever comes may claim it."""
    tx.run(
        "UPDATE batches SET owner = NULL, lease = NULL WHERE id = ? AND owner = ? AND fence = ?",
        *(claim.batch, owner.id, claim.fence),
    )


def check(tx: Transaction, claim: Claim, owner: Owner) -> None:
    """
    Do nothing if a claim holds.

    Raises:
        Fenced: somebody else drives the batch.
    """
    row = tx.row("SELECT owner, fence FROM batches WHERE id = ?", claim.batch)
    if row is None or row["owner"] != owner.id or row["fence"] != claim.fence:
        raise Fenced(f"batch {claim.batch} is not this process's any more")


def beat(
    tx: Transaction, owner: Owner, claims: Iterable[Claim], running: Iterable[tuple[str, int]]
) -> None:
    """
    Say that a process lives and of which batches and legs: of those alone that really run here.

    Whoever was taken for lost meanwhile changes nothing by it.
    """
    lease = owner.lease()
    for one in claims:
        tx.run(
            "UPDATE batches SET lease = ? WHERE id = ? AND owner = ? AND fence = ?",
            *(lease, one.batch, owner.id, one.fence),
        )
    for call_id, fence in running:
        tx.run(
            "UPDATE calls SET lease = ? WHERE id = ? AND owner = ? AND fence = ?",
            *(lease, call_id, owner.id, fence),
        )


# ---- dispatch --------------------------------------------------------------------------------


class Behind(msgspec.Struct, frozen=True):
    """
    A call cannot begin yet: others hold what it works on, or came before it.

    Attributes:
        calls: Those others.
    """

    calls: tuple[str, ...]


def authorize(tx: Transaction, claim: Claim, owner: Owner, call_id: str, behind: list[str]) -> None:
    """Keep that a call may run and waits for its turn in its batch."""
    check(tx, claim, owner)
    row = call_of(tx, call_id)
    row = step(tx, row, "allow")
    note(tx, row, "wait", data={"behind": behind})


def dispatch(tx: Transaction, claim: Claim, owner: Owner, call_id: str) -> int | Behind | None:
    """
    Keep that a call begins, before it does.

    Returns:
        The call's fence; or whom it waits for; or `None` if it must not begin, as it was cancelled
        or is elsewhere by now.

    Raises:
        Fenced: somebody else drives the batch.
    """
    check(tx, claim, owner)
    row = call_of(tx, call_id)
    if row.told or row.state not in PENDING:
        return None
    behind = _behind(tx, row, owner) if row.uses else ()
    if behind:
        if row.state != "authorized":
            row = step(tx, row, "allow")
        if _draw(tx, row):
            note(tx, row, "wait", data={"behind": list(behind)})
        return Behind(behind)
    if row.state != "authorized":
        row = step(tx, row, "allow")
    fence = row.fence + 1
    step(
        tx,
        row,
        "dispatch",
        fence=fence,
        owner=owner.id,
        lease=owner.lease(),
        effect=0,
        outcome=None,
    )
    tx.run("DELETE FROM holds WHERE call = ?", row.id)
    _insert(tx, row, None)
    return fence


def permitted(tx: Transaction, row: Row) -> Row:
    """Note that a call was allowed which is dispatched in the same breath."""
    row = msgspec.structs.replace(row, state=move(row.state, "allow"))
    note(tx, row, "allow")
    return row


def _strongest(uses: Iterable[Use]) -> dict[str, bool]:
    """Return each state once, with whether it is shared: who names one both ways has it alone."""
    shared: dict[str, bool] = {}
    for use in uses:
        name, is_shared = (use.state, True) if isinstance(use, Shared) else (use, False)
        shared[name] = shared.get(name, True) and is_shared
    return shared


def _behind(tx: Transaction, row: Row, owner: Owner) -> tuple[str, ...]:
    """Return the calls that hold what `row` works on, or have an earlier ticket for it."""
    mine = tx.row("SELECT ticket FROM holds WHERE call = ? AND ticket IS NOT NULL", row.id)
    ticket = mine["ticket"] if mine is not None else None
    before: dict[str, None] = {}
    for state, shared in _strongest(row.uses).items():
        for other in tx.rows(
            "SELECT h.call, h.shared, h.ticket, c.state, b.owner, b.lease, "
            "c.owner AS runner, c.lease AS running FROM holds h "
            "JOIN calls c ON c.id = h.call JOIN batches b ON b.id = c.batch "
            "WHERE h.state = ? AND h.call != ? AND (h.ticket IS NULL OR ? IS NULL OR h.ticket < ?)",
            *(state, row.id, ticket, ticket),
        ):
            if shared and other["shared"]:
                continue
            if not _goes_on(tx, other, owner):
                continue
            before[other["call"]] = None
    return tuple(before)


def _goes_on(tx: Transaction, other: sqlite3.Row, owner: Owner) -> bool:
    """Say whether a call that holds or awaits a state will let it go one day by itself."""
    if other["ticket"] is not None:  # Nobody would run it; whoever claims its batch draws anew.
        return not owner.has_lost(tx, other["owner"], other["lease"])
    if other["state"] == "dispatched":  # Whoever claims its batch finds out.
        return True
    # It was reported, and was at work still: until it ends, or its process does.
    return other["runner"] == owner.id or not owner.has_lost(tx, other["runner"], other["running"])


def _draw(tx: Transaction, row: Row) -> bool:
    """Give a call a ticket, unless it has one; say whether it is new."""
    if tx.row("SELECT 1 FROM holds WHERE call = ?", row.id) is not None:
        return False
    last = tx.row("SELECT max(ticket) AS last FROM holds")
    _insert(tx, row, 1 + (cast("int", last["last"] or 0) if last is not None else 0))
    return True


def _insert(tx: Transaction, row: Row, ticket: int | None) -> None:
    for state, shared in _strongest(row.uses).items():
        tx.run(
            "INSERT INTO holds (state, call, shared, ticket) VALUES (?, ?, ?, ?)",
            *(state, row.id, shared, ticket),
        )


def free(tx: Transaction, call_id: str, fence: int) -> None:
    """Let others have what a call held whose thread has ended at last."""
    row = call_of(tx, call_id)
    if row.fence == fence and row.state != "dispatched":
        tx.run("DELETE FROM holds WHERE call = ?", call_id)


# ---- owners that were lost -------------------------------------------------------------------


def lost(tx: Transaction, claim: Claim, owner: Owner) -> list[Row]:
    """
    Return the calls of a batch that were dispatched by somebody who is lost to it.

    Raises:
        Fenced: somebody else has claimed the batch since. One that is settled is nobody's.
    """
    row = tx.row("SELECT fence FROM batches WHERE id = ?", claim.batch)
    if row is None or row["fence"] != claim.fence:
        raise Fenced(f"batch {claim.batch} is not this process's any more")
    running = calls_where(tx, "batch = ? AND state = 'dispatched'", claim.batch)
    return [row for row in running if owner.has_lost(tx, row.owner, row.lease)]


def lose(  # each by name
    tx: Transaction, claim: Claim, owner: Owner, row: Row, *, again: bool, reference: str | None
) -> None:
    """Keep that the owner of a dispatched call is lost: it runs again, or nobody knows."""
    check(tx, claim, owner)
    current = call_of(tx, row.id)
    if current.state != "dispatched" or current.fence != row.fence:
        return  # It was heard of after all.
    tx.run("DELETE FROM holds WHERE call = ?", row.id)
    if again and not current.told:
        step(tx, current, "again", owner=None, lease=None)
        return
    outcome = Unknown("owner_lost", tool=row.call.name, reference=reference)
    step(
        tx,
        current,
        "doubt",
        data={"outcome": "unknown", "reason": "owner_lost", "owner": current.owner},
        outcome=outcome_text(outcome),
        owner=None,
        lease=None,
    )


def runs_again(row: Row) -> bool:
    """
    Say whether a call is run a second time (CONTRACT DUR-2); hints are not asked.

    It is where that does no harm, unless it was told to stop: nobody wants it any more.
    """
    harmless = row.replay in {"safe", "keyed"} or (row.replay == "until_effect" and not row.effect)
    return harmless and not row.told


# ---- cancelling ------------------------------------------------------------------------------


def cancel(tx: Transaction, row: Row, by: str) -> bool:
    """Stop one call; return whether its process is to be told."""
    if row.state == "dispatched":
        tx.run("UPDATE calls SET told = 1 WHERE id = ?", row.id)
        note(tx, row, "told", by=by)
        return True
    if row.state == "suspended":
        wait = tx.row("SELECT id, request FROM waits WHERE call = ? AND open", row.id)
        if wait is not None:
            close_wait(tx, wait["id"], "cancelled", by)
        asked = wait is not None and cast("dict[str, object]", read(wait["request"])).get("asked")
        if not asked:  # Its tool has run already, and only its question is taken back.
            failed = Failed(Failure("it was cancelled while it waited for an answer"))
            step(tx, row, "withdraw", by=by, outcome=outcome_text(failed))
            return False
    if row.state in PENDING or row.state == "suspended":
        end_early(tx, row, Cancelled("cancelled", tool=row.call.name), by=by)
    return False


def close_wait(tx: Transaction, wait: str, how: str, by: str) -> None:
    """Close a wait: nobody can answer it any more."""
    tx.run(
        "UPDATE waits SET open = 0, how = ?, by = ?, closed = ? WHERE id = ?", how, by, tx.at, wait
    )
