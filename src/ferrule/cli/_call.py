"""`ferrule call`: one call of one tool, with its parameters as flags or as JSON."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping

import anyio
import click
import msgspec

from ferrule import (
    Completed,
    Content,
    Event,
    Executor,
    InvalidValue,
    Outcome,
    Progressed,
    RawJSON,
    Registry,
    Rejected,
    Result,
    Started,
    Suspended,
    Text,
    ToolCall,
)
from ferrule.cli._bars import Bars
from ferrule.cli._board import SHORT, Board, told
from ferrule.cli._display import Display, shown
from ferrule.cli._endings import DONE, exit_code, is_stuck, question, watched
from ferrule.cli._flags import Flag, Typed, flags_of, typed
from ferrule.cli._loading import load, no_such_tool, opened
from ferrule.cli._refused import Refused
from ferrule.cli._streams import ResultStream, result_stream
from ferrule.cli._turn import FORMATS
from ferrule.cli._usage import usage
from ferrule.helpers import one_line, visible


class Asked(msgspec.Struct, frozen=True):
    """What the command line asks for."""

    tools: str
    name: str
    words: tuple[str, ...]
    stdin: str | None
    compact: bool


@click.command(
    "call",
    context_settings={"allow_interspersed_args": False},
    options_metavar="[--json]",
)
@click.argument("tools", metavar="TOOLS")
@click.argument("name", metavar="NAME", required=False)
@click.argument("words", metavar="[--param value ...] [JSON | -]", nargs=-1, type=click.UNPROCESSED)
@click.option("--json", "compact", is_flag=True, help="Write the output for programs, on one line.")
@click.pass_context
def command(
    ctx: click.Context, *, tools: str, name: str | None, words: tuple[str, ...], compact: bool
) -> int:
    """
    Call one tool, and write what it gives.

    TOOLS is what `ferrule list` takes, NAME one of its tools, and what follows the tool's own:
    `ferrule call TOOLS NAME --help` shows its parameters.

    \b
    ferrule call tools.py add --a 1 --b 2
    ferrule call tools.py add '{"a": 1, "b": 2}'
    ferrule call "mcp-server-git --repository ." git_log --repo_path . --max_count 3

    Parameters that are lists or objects are given as JSON, an object of all that is not given by
    flags; `-` reads it from standard input. After NAME a flag is the tool's, if it has such a
    parameter: what is ours goes before TOOLS then.

    Standard output gets the text of the result, or its structure as JSON. Why there is none is
    said on standard error, and the exit code says it too.
    """  # noqa: D301  # click reads the character \b: keep these lines
    if tools in ctx.help_option_names or name in ctx.help_option_names:
        click.echo(ctx.get_help())
        return DONE
    if name is None or name.startswith("-"):
        shows = visible(shlex.join(["ferrule", "list", tools]))
        raise Refused(f"NAME says which tool, right after TOOLS; `{shows}` shows them")
    with result_stream() as result:
        text = _standard_input() if "-" in words else None
        asked = Asked(tools, name, words, text, compact)
        code, stuck = anyio.run(_call, load(tools), asked, result)
    if stuck:
        # Python would wait for the thread of a call that does not end, perhaps for ever.
        sys.stderr.flush()
        os._exit(code)
    return code


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise Refused("standard input is not UTF-8") from None


async def _call(value: object, asked: Asked, result: ResultStream) -> tuple[int, bool]:
    """Make the call and write what came of it; say the exit code, and whether a thread is stuck."""
    code, stuck = DONE, False
    try:
        async with opened(value, asked.tools) as registry:
            binding = registry.resolve(asked.name)
            if binding is None:
                raise no_such_tool(asked.name, registry, asked.tools)
            definition = binding.contract.definition
            flags = flags_of(definition.input_schema)
            given = typed(asked.words, flags, asked.name)
            if given.help:
                result.write(usage(definition, flags, asked.tools))
                return DONE, False
            calling = _Calling(registry, asked, given, flags)
            code = await calling.run(result)
            stuck = is_stuck(calling.outcome)
    except Refused as error:
        if code == DONE:
            raise
        error.show()  # The tools did not close; what became of the call weighs more.
    return code, stuck


class _Calling:
    """One call, from what was typed to what is written."""

    outcome: Outcome

    def __init__(
        self, registry: Registry, asked: Asked, given: Typed, flags: Mapping[str, Flag]
    ) -> None:
        self._registry = registry
        self._asked = asked
        self._given = given
        self._flags = flags
        if given.document == "-":
            given.document = asked.stdin
        try:
            call = ToolCall.of(asked.name)
            self._call = msgspec.structs.replace(call, arguments=given.arguments())
        except InvalidValue as error:
            raise Refused(str(error)) from None

    async def run(self, result: ResultStream) -> int:
        """Run it before a person's eyes, and return the exit code."""
        board = Board([self._call])
        batch = Executor(self._registry).batch([self._call])
        with shown(board) as display:
            interrupted = await watched(batch, display, _quietly(display, board))
            (self.outcome,) = batch.outcomes
            self._tell(display)
        self._write(result)
        return interrupted or exit_code([self.outcome])

    def _tell(self, display: Display) -> None:
        """Say why there is no result, if there is none."""
        outcome = self.outcome
        if isinstance(outcome, Completed):
            return
        if isinstance(outcome, Suspended):
            display.note(question(self._call, outcome))
            return
        if isinstance(outcome, Rejected) and outcome.problems and self._given.document is None:
            display.note(self._refusal(outcome))
            return
        display.end(0, outcome)
        text = visible(outcome.text.removeprefix("Error: "))
        if len(text) > SHORT or "\n" in text:
            display.note(text)

    def _refusal(self, outcome: Rejected) -> str:
        """Return what is wrong with the flags, by their names."""
        missing = [
            flag.typed if flag.has_flag else f'"{one_line(flag.name, 60)}" (in JSON)'
            for flag in self._flags.values()
            if flag.required and flag.name not in self._given.members
        ]
        said = [f"missing {', '.join(missing)}"] if missing else []
        for problem in outcome.problems:
            flag = self._flags.get(problem.path)
            if flag is not None:
                told = msgspec.structs.replace(problem, path=flag.typed)
                said.append(one_line(str(told)))
            elif problem.rule != "required" or not missing:
                said.append(one_line(str(problem)))
        shows = shlex.join(["ferrule", "call", self._asked.tools, self._asked.name, "--help"])
        return f"ferrule: {self._asked.name}: {'; '.join(said)}; see {visible(shows)}"

    def _write(self, result: ResultStream) -> None:
        outcome = self.outcome
        if self._asked.compact or self._given.json:
            if not isinstance(outcome, Suspended):
                wire = FORMATS["openresponses"](self._registry)
                result.write_json(wire.outputs([self._call], [outcome]), compact=True)
        elif isinstance(outcome, Completed):
            _write_result(outcome.result, result)


def _quietly(display: Display, board: Board) -> Callable[[Event], None]:
    """Return what shows how far a call is, and no lines about its beginning and its end."""

    def tell(event: Event) -> None:
        if isinstance(event, Progressed) or isinstance(display, Bars):
            if not isinstance(event, Progressed | Started):
                return
            display.tell(event)
        elif isinstance(event, Started):
            board.start(event)

    return tell


def _write_result(given: Result, result: ResultStream) -> None:
    structured = given.structured_content
    if given.content or isinstance(structured, RawJSON | msgspec.UnsetType):
        text = "".join(_lines(given))
        result.write(visible(text) if result.is_terminal else text)
    else:
        result.write_json(structured)


def _lines(given: Result) -> Iterator[str]:
    """Yield each block of a result, and what ends its line if it does not."""
    for text in map(_shown, given.content) if given.content else [given.text]:
        yield text
        if text and not text.endswith("\n"):
            yield "\n"


def _shown(block: Content) -> str:
    return block.text if isinstance(block, Text) else told(block)
