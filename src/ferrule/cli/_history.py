"""`ferrule history`: what happened to the calls of a journal, once or as it happens."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import cast

import anyio
import click
import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ferrule.cli._journal import REFUSED, as_json, journal, printable, visit
from ferrule.cli._refused import INTERRUPTED, Refused
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
        draw(_Rows(follows=False).drawn(lines), result)
    elif asked.batch is not None:
        raise Refused(f"there is no batch {asked.batch}; `ferrule history` has them all", REFUSED)
    else:
        click.echo("nothing has happened", err=True)


async def _follow(
    inbox: SqliteInbox, asked: Asked, result: ResultStream, lines: Sequence[Moved]
) -> None:
    """Write what happens until all that was named is settled, or nobody reads any more."""
    rows, states, last = _Rows(follows=True), dict[str, str](), 0
    is_named = asked.call is not None or asked.batch is not None
    while result.is_read:
        for line in lines:
            states[line.call_id], last = line.state, line.seq
        if asked.as_json:
            for line in lines:
                result.write_json(msgspec.to_builtins(line), compact=True)
        elif lines:
            draw(rows.drawn(lines), result)
        if is_named and states and SETTLED.issuperset(states.values()):
            return
        await anyio.sleep(_BETWEEN)
        lines = await inbox.history(asked.call, batch_id=asked.batch, after=last)


class _Rows:
    """Makes tables of lines, each going on where the last one ended."""

    def __init__(self, *, follows: bool) -> None:
        self._follows = follows
        self._heading = ""
        self._widths = (0, 0)

    def drawn(self, lines: Sequence[Moved]) -> RenderableType:
        """Return the next lines: a table for each day and batch, the first below its heading."""
        parts: list[RenderableType] = []
        for heading, group in groupby(lines, _heading):
            rows = list(group)
            if heading != self._heading:
                parts.append(Text(heading, style="bold"))
            parts.append(self._table(rows, lines))
            self._heading = heading
        return Group(*parts)

    def _table(self, rows: Sequence[Moved], lines: Sequence[Moved]) -> Table:
        table = new_table()
        table.padding = (0, 1, 0, 0)
        table.show_header = not self._heading
        call, by = self._widths = self._widths if self._heading else self._measured(lines)
        table.add_column("time", style="dim", width=8)
        table.add_column("call", overflow="fold", width=call)
        table.add_column("step", overflow="fold", width=9)
        table.add_column("state", width=10)
        table.add_column("leg", justify="right", width=3)
        table.add_column("by", overflow="fold", width=by)
        table.add_column("detail", overflow="fold", ratio=1)
        for line in rows:
            table.add_row(
                Text(f"{line.at:%H:%M:%S}"),
                Text(_call(line)),
                Text(line.step.replace("_", " ")),
                Text(line.state),
                Text(str(line.leg)),
                Text(one_line(line.by)),
                Text("; ".join(_details(line))),
            )
        return table

    def _measured(self, lines: Sequence[Moved]) -> tuple[int, int]:
        """Return how wide calls and people are; of those who come later, nobody knows yet."""
        call = max([4, *(len(_call(line)) for line in lines)])
        by = max([10 if self._follows else 2, *(len(one_line(line.by)) for line in lines)])
        return min(call, WIDEST), min(by, 16)


def _heading(line: Moved) -> str:
    return f"{line.at:%Y-%m-%d}  {one_line(line.batch_id)}"


def _call(line: Moved) -> str:
    """Return a call's id within its batch."""
    return one_line(line.call_id.removeprefix(f"{line.batch_id}/"))


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
