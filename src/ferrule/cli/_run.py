"""`ferrule run`: the calls of one response, as one batch."""

import json
import logging
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import anyio
import click
import msgspec

from ferrule import (
    Batch,
    Cancelled,
    Completed,
    Executor,
    Failed,
    Outcome,
    Registry,
    Rejected,
    Suspended,
    ToolCall,
    Unknown,
)
from ferrule.cli._bars import Bars
from ferrule.cli._blame import explained
from ferrule.cli._board import Board
from ferrule.cli._lines import Lines
from ferrule.cli._loading import load, opened
from ferrule.cli._refused import Refused
from ferrule.cli._signals import Interruption
from ferrule.cli._streams import ResultStream, result_stream, takes_codes
from ferrule.cli._turn import AUTO, FORMATS, read_turn
from ferrule.helpers import one_line

Display: TypeAlias = Bars | Lines

INTERRUPTED = 130
UNKNOWN, NEEDS_ANSWER, FAILED, DONE = 4, 3, 1, 0
"""Exit codes by what became of the calls; of several, the first of these that occurs."""

CODES: Mapping[type[Outcome], int] = {
    Completed: DONE,
    Failed: FAILED,
    Rejected: FAILED,
    Cancelled: FAILED,
    Suspended: NEEDS_ANSWER,
    Unknown: UNKNOWN,
}


class Turn(msgspec.Struct, frozen=True):
    """What the command line asks for."""

    tools: str
    response: dict[str, object]
    form: str
    max_parallel: int
    compact: bool


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
@click.option("--json", "compact", is_flag=True, help="Write the outputs on one line.")
def command(tools: str, turn: str, form: str, max_parallel: int, *, compact: bool) -> int:
    """
    Run the calls of a model's response as one batch.

    TOOLS is a file with tools, `path.py` or `path.py:name`, or a module, `module:name`. What it
    names is a tool, a list of tools, a registry, or a function that gives one.

    TURN.json is the response, as the model's provider gave it; `-` reads standard input.

    Standard output gets the outputs in the response's own format, one for each call and in the
    calls' order. How the calls go is told on standard error. Ctrl-C stops the calls and still
    writes the outputs; a second Ctrl-C ends at once.
    """
    with result_stream() as result:
        response, known = read_turn(turn, form)
        value = load(tools)
        asked = Turn(tools, response, known, max_parallel, compact)
        code, stuck = anyio.run(_run, value, asked, result)
    if stuck:
        # Python would wait for the thread of a call that does not end, perhaps for ever.
        sys.stderr.flush()
        os._exit(code)
    return code


async def _run(value: object, asked: Turn, result: ResultStream) -> tuple[int, bool]:
    """Run the batch and write its outputs; say the exit code, and whether a thread is stuck."""
    code, stuck = DONE, False
    try:
        async with opened(value, asked.tools) as registry:
            wire = FORMATS[asked.form](registry)
            calls = wire.calls(asked.response)
            outcomes, interrupted = await _batch(registry, calls, asked.max_parallel)
            code, stuck = interrupted or _exit_code(outcomes), any(map(_is_stuck, outcomes))
            if not any(isinstance(outcome, Suspended) for outcome in outcomes):
                result.write_json(wire.outputs(calls, outcomes), compact=asked.compact)
    except Refused as error:
        if code == DONE:
            raise
        error.show()  # The tools did not close; what became of the calls weighs more.
    return code, stuck


def _is_stuck(outcome: Outcome) -> bool:
    return isinstance(outcome, Unknown) and outcome.reason == "still_running"


async def _batch(
    registry: Registry, calls: Sequence[ToolCall], max_parallel: int
) -> tuple[tuple[Outcome, ...], int]:
    """Run the calls before a person's eyes; say how they ended, and 0 or the code of a signal."""
    board = Board(calls)
    batch = Executor(registry, max_parallel=max_parallel).batch(calls)
    with Bars(board) if takes_codes() else Lines(board) as display, _logged_to(display):
        interrupted = await _watched(batch, display)
        for index, outcome in enumerate(batch.outcomes):
            if index not in board.ended:
                display.end(index, outcome)
    display.note(board.summary if calls else "the response calls no function")
    for call, outcome in zip(calls, batch.outcomes, strict=True):
        if isinstance(outcome, Suspended):
            display.note(_question(call, outcome))
    return batch.outcomes, interrupted


async def _watched(batch: Batch, display: Display) -> int:
    """Show a batch until it has ended or a signal stopped it; return 0 or the signal's code."""
    reading = anyio.CancelScope()

    def stop() -> None:
        display.stop()
        reading.cancel()

    try:
        with Interruption(stop, display.leave) as interruption, reading:
            async with batch:
                async for event in batch:
                    display.tell(event)
    except KeyboardInterrupt:  # A tool raised it: its siblings were stopped as for a signal.
        return INTERRUPTED
    return interruption.exit_code


def _question(call: ToolCall, outcome: Suspended) -> str:
    request = outcome.request
    schema = one_line(json.dumps(request.schema, ensure_ascii=False))
    message = one_line(request.message)
    return f"{one_line(call.name)} ({one_line(call.id)}) needs an answer: {message} as {schema}"


def _exit_code(outcomes: Sequence[Outcome]) -> int:
    codes = {CODES[type(outcome)] for outcome in outcomes}
    return next((code for code in (UNKNOWN, NEEDS_ANSWER, FAILED) if code in codes), DONE)


class _Log(logging.Handler):
    """Shows what the executor logs for operators: here that is the person at the terminal."""

    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record as one line; a whole traceback is for handlers that a module sets up."""
        error = record.exc_info[1] if record.exc_info else None
        cause = "" if error is None else f": {explained(error)}"
        self._display.note(f"! {one_line(record.getMessage() + cause, 1000)}")


@contextmanager
def _logged_to(display: Display) -> Generator[None]:
    logger, handler = logging.getLogger("ferrule"), _Log(display)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
