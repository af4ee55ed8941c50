"""`ferrule policy check`: what a file of rules decides about each tool, before anything runs."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

import anyio
import click
from rich.text import Text

from ferrule import Binding, Registry
from ferrule.cli._loading import load, opened
from ferrule.cli._refused import Refused
from ferrule.cli._streams import ResultStream, result_stream
from ferrule.cli._tables import WIDEST, draw, new_table
from ferrule.helpers import one_line
from ferrule.policies import InvalidPolicy, Outlook, Rules

Found: TypeAlias = tuple[Binding, Sequence[Outlook]]
"""A tool, and how its calls may be decided."""

_STYLES = {"allow": "green", "ask": "yellow", "deny": "red"}


@click.group("policy")
def command() -> None:
    """Read policies: files of rules that say which calls may run."""


@command.command("check", short_help="Say what rules decide about each tool.")
@click.argument("file", metavar="FILE")
@click.argument("tools", metavar="TOOLS")
@click.option("--json", "as_json", is_flag=True, help="For programs: one object per tool.")
def check(file: str, tools: str, *, as_json: bool) -> int:
    """
    Say what the rules in FILE decide about each tool that TOOLS offers.

    Where the arguments of a call make a difference, the rules that may decide are named in the
    order in which they are tried. What looks like a mistake goes to standard error; what is one
    ends the command, with every fault of the file on a line of its own.

    TOOLS is a file with tools, `path.py` or `path.py:name`, or a module, `module:name`.
    """
    with result_stream() as result:
        rules = _read(file)
        write = _write_json if as_json else _write_table
        anyio.run(_check, load(tools), tools, rules, partial(write, result))
    return 0


def _read(file: str) -> Rules:
    """
    Return the rules of a file; its faults are on standard error by the time it is refused.

    Raises:
        Refused: something in it is wrong. The command line named no policy: exit 2.
    """
    try:
        return Rules.read(file)
    except InvalidPolicy as error:
        problems = error.problems
    if len(problems) == 1:
        raise Refused(problems[0])
    for problem in problems:
        _complain(problem)
    raise Refused(f"{file} has {len(problems)} faults and decides nothing until they are gone")


def _complain(sentence: str) -> None:
    sys.stderr.write(f"{one_line(sentence, 1000)}\n")


async def _check(
    value: object, tools: str, rules: Rules, write: Callable[[Sequence[Found]], None]
) -> None:
    async with opened(value, tools) as registry:
        for warning in rules.warnings(registry):
            _complain(f"warning: {warning}")
        write([(binding, rules.outlook(binding)) for binding in _bindings(registry)])


def _bindings(registry: Registry) -> Iterator[Binding]:
    """Yield the tools, sorted by name."""
    for name in registry.names:
        binding = registry.resolve(name)
        if binding is not None:
            yield binding


def _decision(outlook: Sequence[Outlook]) -> str:
    """Return what is decided about every call, or that it depends."""
    decisions = {one.decide for one in outlook}
    return outlook[0].decide if len(decisions) == 1 else "depends"


# ---- for programs --------------------------------------------------------------------------------


def _write_json(result: ResultStream, found: Sequence[Found]) -> None:
    result.write_json([_plain(binding, outlook) for binding, outlook in found])


def _plain(binding: Binding, outlook: Sequence[Outlook]) -> dict[str, object]:
    return {
        "tool": binding.contract.name,
        "origin": binding.contract.origin,
        "decision": _decision(outlook),
        "rules": [
            {"decide": one.decide, "rule": one.rule, "line": one.line, "certain": one.certain}
            for one in outlook
        ],
    }


# ---- for people ----------------------------------------------------------------------------------


def _write_table(result: ResultStream, found: Sequence[Found]) -> None:
    table = new_table()
    table.add_column("tool", style="bold", overflow="fold", max_width=WIDEST)
    table.add_column("origin", overflow="fold", max_width=WIDEST, style="dim")
    table.add_column("decision", no_wrap=True)
    table.add_column("by", overflow="fold", ratio=1)
    for binding, outlook in found:
        decision = _decision(outlook)
        table.add_row(
            Text(binding.contract.name),
            Text(one_line(binding.contract.origin, 60)),
            Text(decision, style=_STYLES.get(decision, "")),
            Text(_by(outlook)),
        )
    draw(table, result)


def _by(outlook: Sequence[Outlook]) -> str:
    """Return which rules decide: the only one, or what each does where it is for a call."""
    if len(outlook) == 1:
        return _rule(outlook[0])
    *maybe, last = outlook
    chances = "; ".join(f"{one.decide} ({_rule(one)})" for one in maybe)
    return f"on the arguments: {chances}; else {last.decide} ({_rule(last)})"


def _rule(one: Outlook) -> str:
    if one.rule is None:
        return "no rule"
    return f"rule {one.rule}" if one.line is None else f"rule {one.rule}, line {one.line}"
