"""`ferrule diff`: what changed between two sets of tools, and what it means to their callers."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import anyio
import click

from ferrule import Change, Definition, InvalidDefinition, InvalidValue, Limits, diff, read_json
from ferrule.cli._changes import WHOLE, write_changes
from ferrule.cli._loading import load, opened
from ferrule.cli._refused import Refused
from ferrule.cli._streams import result_stream

_ANY_SIZE = Limits(argument_bytes=1 << 30, nodes=1 << 30, depth=512)

Tools = Mapping[str, Definition]


@click.command("diff")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--json", "as_json", is_flag=True, help="For programs: one object per change.")
def command(old: str, new: str, *, as_json: bool) -> int:
    """
    Say what changed from the tools of OLD to those of NEW.

    Each is TOOLS, as for `ferrule list`, or a `.json` file that `ferrule list --format json` wrote.

    \b
    text        only what people and models read
    compatible  nothing that a caller relied on
    widened     the tool may now be given more
    breaking    what worked may be refused, or what comes back may be new to its reader
    """  # noqa: D301  # click reads the character \b: keep these lines
    with result_stream() as result:
        changes = list(_changes(_definitions(old), _definitions(new)))
        if as_json:
            result.write_json([{"tool": name, **change.to_json()} for name, change in changes])
        else:
            write_changes([((name,), change) for name, change in changes], result)
    return 0


def _changes(old: Tools, new: Tools) -> Iterator[tuple[str, Change]]:
    """Yield each change with its tool: a tool that is gone breaks, a new one widens."""
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield name, WHOLE["gone"]
        elif name not in old:
            yield name, WHOLE["new"]
        else:
            yield from ((name, change) for change in diff(old[name], new[name]))


def _definitions(source: str) -> Tools:
    """Return the definitions that a file of JSON holds, or that TOOLS offers."""
    if source.endswith(".json"):
        return _read(source)
    return anyio.run(_offered, load(source), source)


async def _offered(value: object, source: str) -> Tools:
    async with opened(value, source) as registry:
        return {one.name: one for one in registry.definitions()}


def _read(source: str) -> Tools:
    try:
        document = read_json(Path(source).read_bytes(), limits=_ANY_SIZE)
        listed = cast("list[object]", document) if isinstance(document, list) else [document]
        definitions = [Definition.from_json(one) for one in listed]
    except OSError as error:
        raise Refused(f"cannot read {source}: {error.strerror or error}") from None
    except (InvalidValue, InvalidDefinition) as error:
        raise Refused(f"{source} holds no definitions of tools: {error}") from None
    tools = {one.name: one for one in definitions}
    if len(tools) < len(definitions):
        raise Refused(f"{source} names a tool twice; each may stand there once")
    return tools
