"""`ferrule run`: the calls of one response, as one batch."""

import os
import sys
from collections.abc import Sequence

import anyio
import click
import msgspec

from ferrule import Executor, Outcome, Registry, Suspended, ToolCall, digest
from ferrule.cli._board import Board
from ferrule.cli._display import shown
from ferrule.cli._durable import Kept, run_kept
from ferrule.cli._endings import DONE, exit_code, is_stuck, question, watched
from ferrule.cli._journal import faults, printable
from ferrule.cli._loading import load, opened
from ferrule.cli._refused import Refused
from ferrule.cli._streams import ResultStream, result_stream
from ferrule.cli._turn import AUTO, FORMATS, read_turn


class Turn(msgspec.Struct, frozen=True):
    """What the command line asks for."""

    tools: str
    response: dict[str, object]
    form: str
    max_parallel: int
    compact: bool
    by: str | None
    kept: Kept | None


@click.command("run")
@click.argument("tools", metavar="TOOLS")
@click.argument("turn", metavar="TURN.json|-")
@click.option(
    "--in",
    "form",
    type=click.Choice([AUTO, *FORMATS]),
    default=AUTO,
    show_default=True,
    help="The format of the response.",
)
@click.option(
    "--max-parallel",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    metavar="N",
    help="How many calls run at once.",
)
@click.option(
    "--journal",
    metavar="FILE",
    help="Keep the calls in this file: they survive the process, and none runs twice.",
)
@click.option(
    "--batch-id",
    "batch",
    callback=printable,
    metavar="ID",
    help="Names the turn in the journal; by default it is named after what it says.",
)
@click.option(
    "--by", callback=printable, metavar="NAME", help="Who asks for the calls, for policies."
)
@click.option("--json", "compact", is_flag=True, help="Write the outputs on one line.")
def command(  # each by name, as click gives them
    *,
    tools: str,
    turn: str,
    form: str,
    max_parallel: int,
    journal: str | None,
    batch: str | None,
    by: str | None,
    compact: bool,
) -> int:
    """
    Run the calls of a model's response as one batch.

    TOOLS is a file with tools, `path.py` or `path.py:name`, or a module, `module:name`. What it
    names is a tool, a list of tools, a registry, or a function that gives one.

    TURN.json is the response, as the model's provider gave it; `-` reads standard input.

    Standard output gets the outputs in the response's own format, one for each call and in the
    calls' order. How the calls go is told on standard error. Ctrl-C stops the calls and still
    writes the outputs; a second Ctrl-C ends at once.

    With --journal the calls are durable. The same turn again goes on where it was, whatever ended
    the process before: what is settled is told again and never repeated. A call that waits for an
    answer ends the command with exit code 3, and the command that answers it is on standard error;
    after that, run the turn again. Calls that Ctrl-C kept from beginning go on then, too.
    """
    if batch is not None and journal is None:
        raise click.UsageError("--batch-id names a turn in a journal: add --journal FILE")
    with result_stream() as result:
        response, known = read_turn(turn, form)
        value = load(tools)
        kept = None if journal is None else _kept(journal, batch, by, response)
        asked = Turn(tools, response, known, max_parallel, compact, by, kept)
        code, stuck = anyio.run(_run, value, asked, result)
    if stuck:
        # Python would wait for the thread of a call that does not end, perhaps for ever.
        sys.stderr.flush()
        os._exit(code)
    return code


def _kept(journal: str, batch: str | None, by: str | None, response: object) -> Kept:
    """Return where a turn is kept; without a name of its own, what it says is its name."""
    name = batch or f"turn-{digest(response).partition(':')[2][:12]}"
    return Kept(journal, name, batch is not None, by)


async def _run(value: object, asked: Turn, result: ResultStream) -> tuple[int, bool]:
    """Run the batch and write its outputs; say the exit code, and whether a thread is stuck."""
    code, stuck = DONE, False
    try:
        async with opened(value, asked.tools) as registry:
            wire = FORMATS[asked.form](registry)
            calls = wire.calls(asked.response)
            outcomes, interrupted = await _outcomes(registry, calls, asked)
            ended = [one for one in outcomes if one is not None]
            code, stuck = interrupted or exit_code(ended), any(map(is_stuck, ended))
            waits = any(isinstance(outcome, Suspended) for outcome in ended)
            if len(ended) == len(calls) and not waits:
                result.write_json(wire.outputs(calls, ended), compact=asked.compact)
    except Refused as error:
        if code == DONE:
            raise
        error.show()  # The tools did not close; what became of the calls weighs more.
    return code, stuck


async def _outcomes(
    registry: Registry, calls: Sequence[ToolCall], asked: Turn
) -> tuple[Sequence[Outcome | None], int]:
    """Run the calls; say how they ended, and 0 or the code of a signal."""
    if asked.kept is None:
        return await _batch(registry, calls, asked)
    with faults():
        return await run_kept(registry, calls, asked.kept, asked.max_parallel)


async def _batch(
    registry: Registry, calls: Sequence[ToolCall], asked: Turn
) -> tuple[tuple[Outcome, ...], int]:
    """Run the calls before a person's eyes; say how they ended, and 0 or the code of a signal."""
    board = Board(calls)
    batch = Executor(registry, max_parallel=asked.max_parallel).batch(calls, caller=asked.by)
    with shown(board) as display:
        interrupted = await watched(batch, display)
        for index, outcome in enumerate(batch.outcomes):
            if index not in board.ended:
                display.end(index, outcome)
    display.note(board.summary if calls else "the response calls no function")
    for call, outcome in zip(calls, batch.outcomes, strict=True):
        if isinstance(outcome, Suspended):
            display.note(question(call, outcome))
    return batch.outcomes, interrupted
