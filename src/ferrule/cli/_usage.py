"""How one tool is called from the command line: what `ferrule call TOOLS NAME --help` prints."""

import shlex
from collections.abc import Iterator, Mapping

import click

from ferrule import Definition
from ferrule.cli._flags import Flag
from ferrule.cli._schemas import json_line, kind_of
from ferrule.helpers import one_line, visible

_VALUES = {"string": "TEXT", "integer": "INTEGER", "number": "NUMBER"}

_OURS = {
    "json": "Write the output on one line, as `ferrule run --json` does.",
    "help": "Show this, and call nothing.",
}
_ELSEWHERE = {"json": "--json (before TOOLS)", "help": "-h"}
"""How our own flags are written where the tool has a parameter of that name."""


def usage(definition: Definition, flags: Mapping[str, Flag], tools: str) -> str:
    """Return the help for one tool; what the tool says of itself is made visible."""
    formatter = click.HelpFormatter()
    program = shlex.join(["ferrule", "call", tools, definition.name])
    formatter.write(f"Usage: {visible(program)} [--param value ...] [JSON | -]\n\n")
    described = visible(definition.description.strip()) or "It has no description."
    formatter.write("".join(f"  {line}".rstrip() + "\n" for line in described.splitlines()))
    ways = {True: "Parameters", False: "Parameters that are given in JSON"}
    for has_flag, title in ways.items():
        rows = [_row(flag) for flag in flags.values() if flag.has_flag is has_flag]
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)
    with formatter.section("Options"):
        formatter.write_dl(list(_options(flags)))
    return formatter.getvalue()


def _row(flag: Flag) -> tuple[str, str]:
    facts = "; ".join(filter(None, (_presence(flag), _described(flag))))
    if not flag.has_flag:
        return f"{one_line(flag.name, 60)}  {kind_of(flag.schema)}", facts
    if flag.choices:
        return f"{flag.typed} [{one_line('|'.join(flag.choices), 200)}]", facts
    if flag.kind == "boolean":
        return f"{flag.typed} / --no-{flag.typed[2:]}", facts
    return f"{flag.typed} {_VALUES[str(flag.kind)]}", facts


def _presence(flag: Flag) -> str:
    default = flag.schema.get("default")
    if flag.required:
        return "required"
    return "" if default is None else f"default {json_line(default)}"


def _described(flag: Flag) -> str:
    form = flag.schema.get("format")
    said = one_line(str(flag.schema.get("description", "")), 500)
    return " ".join(filter(None, (said, f"({one_line(str(form), 40)})" if form else "")))


def _options(flags: Mapping[str, Flag]) -> Iterator[tuple[str, str]]:
    plain = {"json": "--json", "help": "-h, --help"}
    for name, told in _OURS.items():
        yield (_ELSEWHERE if name in flags else plain)[name], told
