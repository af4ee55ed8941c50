"""`ferrule unknown`: the calls of which nobody knows how they ended, and what is known of each."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime

import click
import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ferrule import Unknown
from ferrule.cli._board import shortly
from ferrule.cli._journal import as_json, journal, typed, visit
from ferrule.cli._streams import result_stream
from ferrule.cli._tables import draw
from ferrule.helpers import one_line
from ferrule.ports import DurableCall

REASONS = (
    *("raised", "bad_result", "timed_out", "crashed"),
    *("still_running", "owner_lost", "cancelled"),
)
"""Why a call may be unknown; the closed list of the contract."""


@click.command("unknown")
@journal
@click.option("--reason", type=click.Choice(REASONS), help="Those of one reason alone.")
@as_json
def command(*, journal: str, reason: str | None, as_json: bool) -> int:
    """
    List the calls of which nobody knows how they ended, oldest first.

    Each with what helps to find out: the idempotency key that the tool may have handed on, what the
    call wrote down while it ran, and what came in too late. Times are in UTC.
    """
    with result_stream() as result:
        calls = visit(journal, lambda inbox: inbox.unknown(reason=reason))
        if as_json:
            result.write_json([_plain(call) for call in calls])
        elif calls:
            draw(_all(calls, journal), result)
        else:
            click.echo("nothing is unknown", err=True)
    return 0


def _reason(call: DurableCall) -> str:
    return call.outcome.reason if isinstance(call.outcome, Unknown) else ""


# ---- for programs --------------------------------------------------------------------------------


def _plain(call: DurableCall) -> dict[str, object]:
    return {
        "id": call.id,
        "batch_id": call.batch_id,
        "call": call.call.to_json(),
        "reason": _reason(call),
        "outcome": None if call.outcome is None else call.outcome.to_json(),
        "leg": call.leg,
        "fence": call.fence,
        "idempotency_key": call.idempotency_key,
        "effect_begun": call.effect_begun,
        "records": [
            {**_when(one.leg, one.fence, one.at), **one.record.to_json()} for one in call.records
        ],
        "evidence": [
            {**_when(one.leg, one.fence, one.at), "outcome": one.outcome.to_json()}
            for one in call.evidence
        ],
    }


def _when(leg: int, fence: int, at: datetime) -> dict[str, object]:
    return {"at": msgspec.to_builtins(at), "leg": leg, "fence": fence}


# ---- for people ----------------------------------------------------------------------------------


def _all(calls: Sequence[DurableCall], path: str) -> RenderableType:
    return Group(*(part for call in calls for part in _told(call, path)))


def _told(call: DurableCall, path: str) -> Iterator[RenderableType]:
    """Yield the parts of what is told of one call."""
    yield Text.assemble((one_line(call.id), "bold"), f"  {one_line(call.call.name)}")
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", min_width=11)
    facts.add_column(overflow="fold")
    for label, text in _facts(call, path):
        facts.add_row(Text(f"  {label}"), Text(text))
    yield facts
    yield Text("")


def _facts(call: DurableCall, path: str) -> Iterator[tuple[str, str]]:
    yield "arguments", one_line(call.call.arguments, 1000)
    effect = ", its effect had begun" if call.effect_begun else ""
    yield "unknown", f"{_reason(call)} in leg {call.leg}, dispatch {call.fence}{effect}"
    yield "key", call.idempotency_key
    for one in call.records:
        data = json.dumps(one.record.data, ensure_ascii=False)
        yield "record", f"{_time(one.at)} {one_line(one.record.namespace)} {one_line(data)}"
    for late in call.evidence:
        kind = type(late.outcome).__name__.lower()
        yield "evidence", f"{_time(late.at)} {kind}: {shortly(late.outcome)}"
    ways = "completed   (or failed, cancelled, retry)"
    yield "resolve", f"{typed('resolve', call.id, '--journal', path)} {ways}"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"
