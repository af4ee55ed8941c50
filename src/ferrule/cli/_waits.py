"""`ferrule waits`: the questions that wait for a person, and how to answer them."""

from collections.abc import Sequence

import click
import msgspec
from rich.table import Table
from rich.text import Text

from ferrule.cli._answers import takes
from ferrule.cli._journal import as_json, journal, shortened, visit
from ferrule.cli._streams import result_stream
from ferrule.cli._tables import WIDEST, draw, new_table
from ferrule.helpers import one_line
from ferrule.ports import Wait
from ferrule.runtime import SqliteInbox


@click.command("waits")
@journal
@as_json
def command(journal: str, *, as_json: bool) -> int:
    """
    List the questions that wait for a person, oldest first.

    `ferrule answer` takes an id as it is shown, or any beginning of it that is no other's. The
    arguments of each call are shown, as an answer may let it run; --json has them whole. Nothing
    of what the tool keeps for itself is shown. Times are in UTC.
    """
    with result_stream() as result:
        waits, ids = visit(journal, _waiting)
        if as_json:
            result.write_json(msgspec.to_builtins(waits))
        elif waits:
            draw(_table(waits, ids), result)
        else:
            click.echo("nothing waits", err=True)
    return 0


async def _waiting(inbox: SqliteInbox) -> tuple[list[Wait], list[str]]:
    """Return what waits, and the ids of all questions that there ever were."""
    return await inbox.waits(), await inbox.wait_ids()


def _table(waits: Sequence[Wait], ids: Sequence[str]) -> Table:
    table = new_table()
    table.padding = (0, 1, 0, 0)
    table.add_column("id", style="bold", no_wrap=True)
    table.add_column("since", style="dim", width=10)
    table.add_column("call", overflow="fold", ratio=3)
    table.add_column("question", overflow="fold", ratio=3)
    table.add_column("takes", overflow="fold", max_width=2 * WIDEST, ratio=2)
    for wait in waits:
        table.add_row(
            Text(shortened(wait.id, ids)),
            Text(f"{wait.since:%Y-%m-%d %H:%M:%S}"),
            _call(wait),
            _question(wait),
            Text(takes(wait)),
        )
    return table


def _call(wait: Wait) -> Text:
    call = Text(one_line(wait.call.name))
    call.append(f" {one_line(wait.call.arguments, 1000)}\n")
    return call.append(one_line(wait.call_id), style="dim")


def _question(wait: Wait) -> Text:
    question = Text(f"{one_line(wait.message, 1000)}\n")
    question.append(f"asked by {one_line(wait.asked_by)}", style="dim")
    if wait.expires is not None:
        question.append(f"\nexpires {wait.expires:%Y-%m-%d %H:%M:%S}", style="yellow")
    return question
