"""`ferrule list`: what a file or module offers, for people, for programs, for a request."""

import sys
from collections.abc import Iterator
from typing import cast

import anyio
import click
import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ferrule import Definition, Registry, Shared, Traits
from ferrule.cli._loading import load, no_such_tool, opened
from ferrule.cli._schemas import json_line, kind_of, properties_of, required_of
from ferrule.cli._streams import ResultStream, result_stream
from ferrule.cli._tables import WIDEST, draw, new_table
from ferrule.cli._turn import FORMATS
from ferrule.helpers import one_line, visible

TABLE, JSON = "table", "json"

_HINTS = (
    ("read_only", "read only", "changes things"),
    ("destructive", "destructive", "not destructive"),
    ("idempotent", "idempotent", "not idempotent"),
    ("open_world", "open world", "closed world"),
)
"""Each hint, and how it is said when it is true and when it is false."""


class Asked(msgspec.Struct, frozen=True):
    """What the command line asks for."""

    tools: str
    name: str | None
    form: str
    losses: bool
    digest: bool


@click.command("list")
@click.argument("tools", metavar="TOOLS")
@click.argument("name", metavar="[NAME]", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice([TABLE, JSON, *FORMATS]),
    default=TABLE,
    show_default=True,
    help="A table, the definitions, or the `tools` of a request in a provider's format.",
)
@click.option(
    "--losses", is_flag=True, help="Tell on standard error what the provider's format cannot say."
)
@click.option(
    "--digest",
    is_flag=True,
    help="The digest of each definition, and the fingerprint that locks it.",
)
def command(tools: str, name: str | None, form: str, *, losses: bool, digest: bool) -> int:
    """
    Show the tools that TOOLS offers, or the one called NAME in full.

    TOOLS is a file with tools, `path.py` or `path.py:name`, or a module, `module:name`. What it
    names is a tool, a list of tools, a registry, or a function that gives one. A file without a
    name offers what it calls `registry` or `tools`, else every tool at its top level.

    TOOLS is also an MCP server, as its command in quotes or its URL, or a file of several, an
    `mcp.json`: "mcp-server-git --repository .".
    """
    if losses and form not in FORMATS:
        raise click.UsageError(f"--losses needs a provider's format: --format {'|'.join(FORMATS)}")
    if digest and form in FORMATS:
        raise click.UsageError("--digest goes with a table or with JSON: --format table|json")
    with result_stream() as result:
        anyio.run(_list, load(tools), Asked(tools, name, form, losses, digest), result)
    return 0


async def _list(value: object, asked: Asked, result: ResultStream) -> None:
    async with opened(value, asked.tools) as registry:
        name = asked.name
        if name is not None and name not in registry:
            raise no_such_tool(name, registry, asked.tools)
        if asked.digest:
            _write_digests(registry, asked, result)
        elif asked.form == TABLE:
            draw(_overview(registry) if name is None else _detail(registry, name), result)
        elif asked.form == JSON:
            written = {one.name: one.to_json() for one in registry.definitions()}
            result.write_json(list(written.values()) if name is None else written[name])
        else:
            _write_request(registry, asked, result)


def _write_request(registry: Registry, asked: Asked, result: ResultStream) -> None:
    """Write the `tools` of a request, or one entry of them."""
    chosen = [tool for tool in registry if asked.name in {None, tool.definition.name}]
    wire = FORMATS[asked.form](registry if asked.name is None else chosen)
    result.write_json(wire.tools if asked.name is None else wire.tools[0])
    for loss in wire.losses if asked.losses else ():
        sys.stderr.write(f"loss: {one_line(str(loss))}\n")


def _write_digests(registry: Registry, asked: Asked, result: ResultStream) -> None:
    """Write who each tool is: one line a tool, or JSON."""
    bindings = [registry.resolve(one) for one in registry.names if asked.name in {None, one}]
    rows = [
        {"name": one.contract.name, "digest": digest, "fingerprint": one.contract.fingerprint}
        for one in bindings
        if one is not None and (digest := one.contract.definition.digest)
    ]
    if asked.form == JSON:
        result.write_json(rows if asked.name is None else rows[0])
        return
    widest = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        result.write(f"{row['name']:<{widest}}  {row['digest']}  {row['fingerprint']}\n")


# ---- for people ----------------------------------------------------------------------------------


def _overview(registry: Registry) -> Table:
    table = new_table()
    table.add_column("tool", style="bold", overflow="fold", max_width=WIDEST)
    table.add_column("hints", overflow="fold", style="dim")
    table.add_column("parameters", overflow="fold", ratio=2)
    table.add_column("description", overflow="fold", ratio=3)
    for definition, traits in _told(registry):
        table.add_row(
            Text(definition.name),
            Text("\n".join(_told_hints(traits)) or "unstated"),
            Text(", ".join(_parameters(definition)) or "none"),
            Text(_first_sentence(definition.description)),
        )
    return table


def _told(registry: Registry) -> Iterator[tuple[Definition, Traits]]:
    """Yield what there is to tell of each tool, in the registry's order: by name."""
    for definition in registry.definitions():
        binding = registry.resolve(definition.name)
        if binding is not None:
            yield definition, binding.traits


def _hints(traits: Traits) -> Iterator[str]:
    for field, true, false in _HINTS:
        stated: bool | None = getattr(traits, field)
        if stated is not None:
            yield true if stated else false


def _told_hints(traits: Traits) -> Iterator[str]:
    """Yield the hints that say something: what only reads neither destroys nor repeats."""
    plain = {"destructive": None, "idempotent": None} if traits.read_only else {}
    yield from _hints(msgspec.structs.replace(traits, **plain))


def _parameters(definition: Definition) -> Iterator[str]:
    """Yield the names of the parameters; one that may be left out ends in a question mark."""
    required = required_of(definition.input_schema)
    for name in properties_of(definition.input_schema):
        yield one_line(name, 60) + ("" if name in required else "?")


def _first_sentence(description: str) -> str:
    paragraph = description.strip().partition("\n\n")[0]
    sentence, stop, _ = paragraph.partition(". ")
    return one_line(sentence + stop.strip(), 200)


def _detail(registry: Registry, name: str) -> Group:
    definition, traits = next(one for one in _told(registry) if one[0].name == name)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    for label, text in _facts(definition, traits):
        facts.add_row(label, Text(text))
    described = Text(visible(definition.description.strip()) or "It has no description.")
    parts: list[RenderableType] = [Text(name, style="bold"), Padding(described, (0, 0, 1, 2))]
    parts.append(Padding(facts, (0, 0, 1, 2)))
    parts.append(
        _parameter_table(definition)
        if properties_of(definition.input_schema)
        else Text("no parameters")
    )
    return Group(*parts)


def _facts(definition: Definition, traits: Traits) -> Iterator[tuple[str, str]]:
    """Yield what a harness knows of a tool."""
    if definition.title is not None:
        yield "title", one_line(definition.title)
    yield "hints", ", ".join(_hints(traits)) or "unstated"
    if traits.sequential:
        yield "runs", "one call of a batch at a time"
    if traits.uses is not None:
        yield "uses", _said(traits.uses)
    yield "replay", _said(traits.replay)
    if traits.failures:
        yield "fails with", ", ".join(kind.__name__ for kind in traits.failures)


def _said(trait: object) -> str:
    """Return a trait in words: a name, several, or that the arguments decide."""
    if callable(trait):
        return "depends on the arguments"
    if isinstance(trait, Shared):
        return f"{one_line(trait.state)} (shared)"
    if isinstance(trait, tuple):
        return ", ".join(_said(one) for one in cast("tuple[object, ...]", trait))
    return one_line(str(trait))


def _parameter_table(definition: Definition) -> Table:
    table = new_table()
    table.add_column("parameter", style="bold", overflow="fold", max_width=WIDEST)
    table.add_column("type", overflow="fold", max_width=WIDEST)
    table.add_column("", overflow="fold", style="dim", max_width=WIDEST)
    table.add_column("description", overflow="fold", ratio=1)
    required = required_of(definition.input_schema)
    for name, schema in properties_of(definition.input_schema).items():
        default = f"default {json_line(schema['default'])}" if "default" in schema else "optional"
        table.add_row(
            Text(one_line(name)),
            Text(kind_of(schema)),
            Text("required" if name in required else default),
            Text(one_line(str(schema.get("description", "")))),
        )
    return table
