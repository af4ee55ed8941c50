"""`ferrule history`: what happened to the calls of a journal, once or as it happens."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import anyio
import click
import msgspec
from rich.table import Table
from rich.text import Text

from ferrule.cli._journal import REFUSED, as_json, journal, printable, visit
from ferrule.cli._refused import Refused
from ferrule.cli._signals import INTERRUPTED
from ferrule.cli._streams import ResultStream, result_stream
from ferrule.cli._tables import WIDEST, draw, new_table
from ferrule.helpers import one_line
from ferrule.ports import Moved
from ferrule.runtime import SqliteInbox
from ferrule.states import SETTLED

_BETWEEN = 0.2
"""Seconds between two looks at the journal."""

_SHORT = 8
"""Characters of a question's id in a line of the history."""


class Asked(msgspec.Struct, frozen=True):
    """What the command line asks for."""

    call: str | None
    batch: str | None
    as_json: bool
    follow: bool


@click.command("history")
@click.argument("call", metavar="[CALL]", callback=printable, required=False)
@journal
@click.option("--batch", metavar="ID", callback=printable, help="The calls of one batch alone.")
@as_json
@click.option("--follow", is_flag=True, help="Go on as it happens.")
def command(
    *, call: str | None, journal: str, batch: str | None, as_json: bool, follow: bool
) -> int:
    """
    Tell what happened to the calls of a journal, oldest first; to one CALL, or one batch.

    CALL is its id, or the model's own where no other call has that. With --follow the command goes
    on as it happens, until Ctrl-C; with a batch or a call that is named, until that is settled.
    --json is a list, and with --follow an object a line. Times are in UTC.
    """
    with result_stream() as result:
        asked = Asked(call, batch, as_json, follow)
        try:
            visit(journal, lambda inbox: _tell(inbox, asked, result))
        except KeyboardInterrupt:
            return INTERRUPTED
    return 0


async def _tell(inbox: SqliteInbox, asked: Asked, result: ResultStream) -> None:
    lines = await inbox.history(asked.call, batch_id=asked.batch)
    if asked.follow:
        await _follow(inbox, asked, result, lines)
    elif asked.as_json:
        result.write_json(msgspec.to_builtins(lines))
    elif lines:
        draw(_Rows(asked).table(lines), result)
    elif asked.batch is not None:
        raise Refused(f"there is no batch {asked.batch}; `ferrule history` has them all", REFUSED)
    else:
        click.echo("nothing has happened", err=True)


async def _follow(
    inbox: SqliteInbox, asked: Asked, result: ResultStream, lines: Sequence[Moved]
) -> None:
    """Write what happens until all that was named is settled, or nobody reads any more."""
    rows, states, last = _Rows(asked), dict[str, str](), 0
    is_named = asked.call is not None or asked.batch is not None
    while result.is_read:
        for line in lines:
            states[line.call_id], last = line.state, line.seq
        if asked.as_json:
            for line in lines:
                result.write_json(msgspec.to_builtins(line), compact=True)
        elif lines:
            draw(rows.table(lines), result)
        if is_named and states and SETTLED.issuperset(states.values()):
            return
        await anyio.sleep(_BETWEEN)
        lines = await inbox.history(asked.call, batch_id=asked.batch, after=last)


class _Rows:
    """Makes tables of lines, each going on where the last one ended."""

    def __init__(self, asked: Asked) -> None:
        self._is_short = asked.call is not None or asked.batch is not None
        self._follows = asked.follow
        self._day = ""

    def table(self, lines: Sequence[Moved]) -> Table:
        """Return the next lines; the first time below a heading."""
        table = new_table()
        table.padding = (0, 1, 0, 0)
        table.show_header = not self._day
        # What follows must stand below what was drawn before, so that no width may depend on it.
        widths = (16, 10) if self._follows else (None, None)
        table.add_column("time", style="dim", width=8)
        table.add_column("call", overflow="fold", width=widths[0], max_width=WIDEST)
        table.add_column("step", overflow="fold", width=9)
        table.add_column("state", width=10)
        table.add_column("leg", justify="right", width=3)
        table.add_column("by", overflow="fold", width=widths[1], max_width=16)
        table.add_column("detail", overflow="fold", ratio=1)
        for line in lines:
            self._add(table, line)
        return table

    def _add(self, table: Table, line: Moved) -> None:
        day = f"{line.at:%Y-%m-%d}"
        if day != self._day:
            table.add_row("", Text(day, style="dim"))
            self._day = day
        call = line.call_id.removeprefix(f"{line.batch_id}/") if self._is_short else line.call_id
        table.add_row(
            Text(f"{line.at:%H:%M:%S}"),
            Text(one_line(call)),
            Text(line.step.replace("_", " ")),
            Text(line.state),
            Text(str(line.leg)),
            Text(one_line(line.by)),
            Text("; ".join(_details(line))),
        )


def _details(line: Moved) -> Iterator[str]:
    """Yield what goes with a line, in words, but for what its state says."""
    if not isinstance(line.data, Mapping):
        return
    for name, value in cast("Mapping[str, object]", line.data).items():
        if name == "wait":
            yield f"question {str(value)[:_SHORT]}"
        elif (name, value) != ("outcome", line.state):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"{name} {one_line(text, 200)}"
