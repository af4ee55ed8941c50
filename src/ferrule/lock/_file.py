"""
A lock as text: made to be read in a review, one tool a block, the same bytes for the same tools.

Everything is sorted, a description stands line by line, and what would hide in an editor or act on
a terminal is written as an escape, which reads the same.
"""

import json
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TypeAlias, TypeGuard, cast

from ferrule import Definition, FerruleError, InvalidValue
from ferrule.helpers import HIDDEN, one_line
from ferrule.lock._drift import HINTS, LockedTool

VERSION = 1
MARK = "ferrule_lock"
_LARGEST = 1 << 28
"""Bytes of a lock; more is something else."""

_AGAIN = "take the file from version control again, or remove it and lock anew"

PathLike: TypeAlias = str | os.PathLike[str]


class InvalidLock(InvalidValue):
    """A file is no lock that can be used; the sentence says why, and what to do."""


# ---- writing -------------------------------------------------------------------------------------


def text_of(tools: Iterable[LockedTool]) -> str:
    """Return the text of a lock."""
    by_origin: dict[str, dict[str, object]] = {}
    for tool in tools:
        by_origin.setdefault(tool.origin, {})[tool.definition.name] = _written(tool)
    text = json.dumps(
        {MARK: VERSION, "tools": by_origin},
        ensure_ascii=False,
        allow_nan=False,
        indent=2,
        sort_keys=True,
    )
    return HIDDEN.sub(_escape, text) + "\n"


def _written(tool: LockedTool) -> dict[str, object]:
    definition = tool.definition.to_json()
    del definition["name"]
    lines = tool.definition.description.split("\n")
    if len(lines) > 1:
        definition["description"] = lines
    hints = {"hints": dict(tool.hints)} if tool.hints else {}
    return {"definition": definition, "fingerprint": tool.fingerprint, **hints}


def _escape(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


def write(path: PathLike, text: str) -> None:
    """
    Put `text` in the place of what the file held, all of it or nothing.

    A link stays a link, the file keeps its mode, and what is there already is not written again.

    Raises:
        OSError: it cannot be written; what was there is still there.
    """
    target, data = Path(path).resolve(), text.encode()
    with suppress(OSError):
        if target.read_bytes() == data:
            return
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            beside.chmod(stat.S_IMODE(target.stat().st_mode))
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


# ---- reading -------------------------------------------------------------------------------------


def read(path: PathLike) -> tuple[LockedTool, ...]:
    """
    Return what a file has locked.

    Raises:
        InvalidLock: it is not there, or no lock of this version, whole and unchanged.
    """
    name = one_line(os.fspath(path), 200)
    try:
        text = _text(Path(path))
    except FileNotFoundError:
        raise InvalidLock(f"there is no lock `{name}`; `ferrule lock` makes one") from None
    except OSError as error:
        raise InvalidLock(f"cannot read the lock `{name}`: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InvalidLock(f"`{name}` is no lock of Ferrule, and no text; name another") from None
    try:
        return tuple(_tools(_document(text)))
    except InvalidLock as error:
        raise InvalidLock(f"`{name}` {error}") from None


def _text(path: Path) -> str:
    if path.exists() and not path.is_file():
        raise OSError(None, "it is no file")
    with path.open("rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise OSError(None, "it is too large to be one")
    return data.decode()


def _document(text: str) -> Mapping[str, object]:
    if not text.strip():
        raise InvalidLock(f"is empty: it was cut short; {_AGAIN}")
    try:
        # The standard library reads it, as a journal: a tool's own text may hold what the
        # boundary refuses.
        found: object = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}"
        raise InvalidLock(
            f"is no JSON ({where}: {error.msg}): no lock, or cut short or badly merged; {_AGAIN}"
        ) from None
    except (ValueError, RecursionError):
        raise InvalidLock(f"is no JSON that Ferrule writes; {_AGAIN}") from None
    if not _is_object(found) or MARK not in found:
        raise InvalidLock("is no lock of Ferrule; name another file")
    version = found[MARK]
    if isinstance(version, int) and version > VERSION:
        raise InvalidLock(
            f"was written by a newer Ferrule (version {version} of the lock, and this one reads "
            f"{VERSION}); update ferrule"
        )
    if type(version) is not int or version != VERSION:
        raise InvalidLock("is no lock of Ferrule; name another file")
    return found


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidLock(f"says `{one_line(twice, 128)}` twice: it was badly merged; {_AGAIN}")
    return found


def _no_number(_: str) -> NoReturn:
    raise ValueError


def _tools(document: Mapping[str, object]) -> Iterator[LockedTool]:
    origins = document.get("tools")
    if not _is_object(origins) or set(document) != {MARK, "tools"}:
        raise InvalidLock(f"has other members than a lock has; {_AGAIN}")
    for origin, tools in origins.items():
        if not _is_object(tools):
            raise InvalidLock(f"is broken at `{one_line(origin, 200)}`; {_AGAIN}")
        for name, written in tools.items():
            yield _tool(origin, name, written)


def _tool(origin: str, name: str, written: object) -> LockedTool:
    """Return one tool, if it is what it was when it was locked."""
    what = f"tool `{one_line(name, 128)}` of `{one_line(origin, 200)}`"
    try:
        tool = _read(origin, name, written)
        is_whole = tool.computed() == tool.fingerprint
    except FerruleError as error:
        raise InvalidLock(f"is broken at {what} ({one_line(str(error), 300)}); {_AGAIN}") from None
    if not is_whole:
        raise InvalidLock(
            f"was changed by hand at {what}: its fingerprint is of another definition; {_AGAIN}"
        )
    return tool


def _read(origin: str, name: str, written: object) -> LockedTool:
    if not _is_object(written) or not set(written) <= {"definition", "fingerprint", "hints"}:
        raise InvalidValue("it has other members than a tool has")
    definition, hints = written.get("definition"), written.get("hints", {})
    if not _is_object(definition) or "name" in definition:
        raise InvalidValue("it has no definition")
    if not _is_object(hints) or not set(hints) <= HINTS.keys():
        raise InvalidValue("its hints are not those of MCP")
    if not all(isinstance(value, bool) for value in hints.values()):
        raise InvalidValue("a hint is true or false")
    described = definition.get("description", "")
    if isinstance(described, list):
        described = _joined(cast("list[object]", described))
    return LockedTool(
        origin=origin,
        definition=Definition.from_json({**definition, "name": name, "description": described}),
        hints=cast("dict[str, bool]", hints),
        fingerprint=str(written.get("fingerprint")),
    )


def _joined(lines: list[object]) -> str:
    if not all(isinstance(line, str) for line in lines):
        raise InvalidValue("the lines of a description are texts")
    return "\n".join(cast("list[str]", lines))


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)
