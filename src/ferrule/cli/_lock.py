"""`ferrule lock`: what was approved of tools, kept in a file and compared with what they are."""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack

import anyio
import click
import msgspec

from ferrule import Registry
from ferrule.cli._changes import WHOLE, Row, write_changes
from ferrule.cli._joined import joined
from ferrule.cli._loading import load, opened
from ferrule.cli._refused import Refused
from ferrule.cli._streams import ResultStream, result_stream
from ferrule.helpers import one_line
from ferrule.lock import Drift, InvalidLock, LockFile


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    file: str
    check: bool
    forgotten: tuple[str, ...]
    as_json: bool


@click.command("lock")
@click.argument("tools", metavar="TOOLS...", nargs=-1, required=True)
@click.option(
    "--lock", "file", metavar="FILE", default="ferrule.lock", show_default=True, help="The lock."
)
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if the tools are not as locked.")
@click.option(
    "--forget",
    "forgotten",
    metavar="ORIGIN",
    multiple=True,
    help="Unlock all that came from there.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs: one object per tool.")
def command(
    tools: tuple[str, ...], *, file: str, check: bool, forgotten: tuple[str, ...], as_json: bool
) -> int:
    """
    Lock TOOLS as they are: the file is what was approved of them.

    Shows what changed since they were locked before, as `ferrule diff` does. The file is made to be
    read in a review and kept in version control: `ferrule serve TOOLS --lock FILE` refuses calls of
    what is another tool by then. What came from a server that offers nothing now stays locked.
    """
    asked = Asked(file=file, check=check, forgotten=forgotten, as_json=as_json)
    if check and forgotten:
        raise click.UsageError(
            "--check writes nothing, so it forgets nothing: leave one of them out"
        )
    before = _before(asked)
    with result_stream() as result:
        values = [(load(target), target) for target in tools]
        return anyio.run(_lock, values, before, asked, result)


def _before(asked: Asked) -> LockFile:
    """Return the lock that there is; a first one begins with nothing."""
    if not asked.check and not os.path.lexists(asked.file):
        return LockFile()
    try:
        return LockFile.read(asked.file)
    except InvalidLock as error:
        raise Refused(str(error)) from None


async def _lock(
    values: Sequence[tuple[object, str]], before: LockFile, asked: Asked, result: ResultStream
) -> int:
    async with AsyncExitStack() as stack:
        parts = [await stack.enter_async_context(opened(*value)) for value in values]
        registry = joined(parts)
        drift = before.check(registry)
        if asked.check:
            _write(drift, asked, result)
            return _told(drift, asked)
        absent = _absent(before, registry)
        _check_forgotten(asked.forgotten, absent)
        kept = [origin for origin in absent if origin not in asked.forgotten]
        _write([one for one in drift if one.origin not in kept], asked, result)
        after = _renewed(before, registry, asked.forgotten)
        _put(after, asked.file)
        if after != before:
            _say(f"{_counted(after.tools)} locked in `{asked.file}`")
        for origin in kept:
            _tell_kept(origin, before)
    return 0


def _absent(before: LockFile, registry: Registry) -> list[str]:
    """Return the origins that are locked and of which nothing is offered now."""
    present = {tool.origin for tool in LockFile.of(registry).tools}
    locked = dict.fromkeys(tool.origin for tool in before.tools)
    return [origin for origin in locked if origin not in present]


def _check_forgotten(forgotten: Sequence[str], absent: Sequence[str]) -> None:
    for origin in forgotten:
        if origin not in absent:
            there = ", ".join(f"`{one_line(one, 100)}`" for one in absent) or "there is none"
            raise Refused(
                f"`{one_line(origin, 200)}` is no locked origin that offers nothing now; {there}"
            )


def _renewed(before: LockFile, registry: Registry, forgotten: Sequence[str]) -> LockFile:
    after = before.renewed(registry)
    for origin in forgotten:
        after = after.without(origin)
    return after


def _put(lock: LockFile, file: str) -> None:
    try:
        lock.write(file)
    except OSError as error:
        why = error.strerror or error
        raise Refused(f"cannot write the lock `{file}`: {why}; it is as it was") from None


# ---- what is said --------------------------------------------------------------------------------


def _write(drift: Sequence[Drift], asked: Asked, result: ResultStream) -> None:
    if asked.as_json:
        result.write_json([one.to_json() for one in drift])
    else:
        write_changes(list(_rows(drift)), result)


def _rows(drift: Sequence[Drift]) -> Iterator[Row]:
    for one in drift:
        for change in one.changes or (WHOLE[one.kind],):
            yield (one.origin, one.name), change


def _told(drift: Sequence[Drift], asked: Asked) -> int:
    """Say what to do about what is not as locked, and return the exit code."""
    if not drift:
        return 0
    _say(
        f"{_counted(drift)} not as `{asked.file}` has it; to lock what there is now, "
        "leave out --check"
    )
    return 1


def _tell_kept(origin: str, before: LockFile) -> None:
    kept = [tool for tool in before.tools if tool.origin == origin]
    _say(
        f"{_counted(kept)} still locked of `{origin}`, which offers nothing now; "
        f"{shlex.join(['--forget', origin])} takes them out"
    )


def _counted(tools: Sequence[object]) -> str:
    return "1 tool is" if len(tools) == 1 else f"{len(tools)} tools are"


def _say(sentence: str) -> None:
    click.echo(f"ferrule: {one_line(sentence)}", err=True)
