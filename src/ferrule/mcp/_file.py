"""
Several servers in one file: what editors and assistants call an `mcp.json`.

An entry says where a server is, and may say what its tools are called here and what MCP cannot say
of them. One that cannot be read costs itself and no other.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ferrule import FerruleError, InvalidValue, Secret, Traits, read_json
from ferrule.errors import InvalidJSON
from ferrule.helpers import one_line
from ferrule.mcp._oauth import REDIRECT_URI, SignIn
from ferrule.mcp._shapes import Wire, is_list, is_object, object_of
from ferrule.mcp._targets import Address, Command, Era, Target
from ferrule.mcp._tokens import TokenFile


class Unread(msgspec.Struct, frozen=True):
    """A server that its file names and that cannot be connected to; `reason` says why."""

    reason: str


class _EntryFacts(msgspec.Struct, frozen=True, kw_only=True):
    prefix: str | None = None
    rename: Mapping[str, str] = {}
    traits: Mapping[str, Traits] = {}
    tasks: bool = False


class Entry(_EntryFacts, frozen=True):
    """
    A server as its file has it.

    Attributes:
        target: Where it is.
        prefix: What stands before the names of its tools, or nothing.
        rename: Names of ours by theirs.
        traits: What MCP cannot say of its tools, by either name.
        tasks: Whether it may answer calls with tasks.
    """

    target: Target | Unread


def entries_in(path: Path) -> dict[str, Entry]:
    """
    Return the servers that a file names, in its order; those that cannot be, with the reason.

    The file is an object `mcpServers` (or `servers`) of a `command` with `args`, `env`, `cwd` and
    `inherit`, or of a `url` with `headers` and `sign_in`; either with `prefix`, `rename`,
    `traits` and `tasks`. In every text that says where a server is, `${NAME}` and
    `${NAME:-otherwise}` stand for a variable of ours.

    Raises:
        FerruleError: the file cannot be read, or is something else.
    """
    try:
        read = read_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, InvalidJSON) as error:
        raise FerruleError(f"{path} cannot be read as an mcp.json: {error}") from None
    document = object_of(read)
    servers = document.get("mcpServers", document.get("servers"))
    if not is_object(servers):
        raise FerruleError(f'{path} is no mcp.json: it has no object "mcpServers"')
    there = {name: object_of(entry) for name, entry in servers.items()}
    return {n: _entry(fields, path) for n, fields in there.items() if not _is_off(fields)}


def _is_off(fields: Wire) -> bool:
    return fields.get("disabled") is True


def _entry(fields: Wire, path: Path) -> Entry:
    try:
        return Entry(
            _target(fields, path),
            prefix=_prefix(fields),
            rename=_names(fields),
            traits=_traits(fields),
            tasks=_tasks(fields),
        )
    except InvalidValue as error:
        return Entry(Unread(str(error)))


def _target(fields: Wire, path: Path) -> Target:
    if "command" in fields:
        return _command(fields, path)
    if "url" in fields:
        return _address(fields, path)
    raise InvalidValue('it has neither a "command" nor a "url"')


def _command(fields: Wire, path: Path) -> Command:
    words = [_text(fields, "command"), *_texts(fields, "args")]
    cwd = _text(fields, "cwd") if "cwd" in fields else None
    return Command(
        tuple(words),
        env=_table(fields, "env"),
        inherit=tuple(_texts(fields, "inherit")),
        cwd=None if cwd is None else path.parent / cwd,
        era=_era(fields),
    )


def _address(fields: Wire, path: Path) -> Address:
    if fields.get("type") == "sse":
        raise InvalidValue(
            '"sse" is an old transport that is not spoken here; is there one of type "http"?'
        )
    return Address(
        _text(fields, "url"),
        headers=_table(fields, "headers"),
        sign_in=_sign_in(fields, path),
        era=_era(fields),
    )


def _sign_in(fields: Wire, path: Path) -> SignIn | None:
    said = fields.get("sign_in")
    if said is None:
        return None
    if not is_object(said) or "tokens" not in said or not said.keys() <= _SIGN_IN:
        raise InvalidValue(
            'its "sign_in" is an object: "tokens", the file to keep them in, and maybe "scope" and '
            '"redirect_uri"'
        )
    try:
        return SignIn(
            TokenFile(path.parent / Path(_text(said, "tokens")).expanduser()),
            scope=_text(said, "scope") if "scope" in said else None,
            redirect_uri=_text(said, "redirect_uri") if "redirect_uri" in said else REDIRECT_URI,
        )
    except (InvalidValue, RuntimeError) as error:  # The latter: nobody knows where home is.
        raise InvalidValue(f'in its "sign_in": {error}') from None


_SIGN_IN = {"tokens", "scope", "redirect_uri"}


def _prefix(fields: Wire) -> str | None:
    prefix = fields.get("prefix")
    if prefix is not None and not isinstance(prefix, str):
        raise InvalidValue('its "prefix" is a text')
    return prefix


def _names(fields: Wire) -> dict[str, str]:
    names = fields.get("rename", {})
    if not is_object(names) or not all(isinstance(one, str) for one in names.values()):
        raise InvalidValue('its "rename" is an object of names: ours by theirs')
    return names


def _traits(fields: Wire) -> dict[str, Traits]:
    given = fields.get("traits", {})
    if not is_object(given):
        raise InvalidValue('its "traits" is an object: what is known of a tool by its name')
    return {name: _traits_of(name, said) for name, said in given.items()}


def _traits_of(name: str, said: object) -> Traits:
    uses = object_of(said).get("uses")
    whole = {**said, "uses": [uses]} if is_object(said) and isinstance(uses, str) else said
    try:
        return Traits.from_json(whole)
    except InvalidValue as error:
        raise InvalidValue(f'its "traits" of `{one_line(name, 100)}`: {error}') from None


def _tasks(fields: Wire) -> bool:
    tasks = fields.get("tasks", False)
    if not isinstance(tasks, bool):
        raise InvalidValue('its "tasks" is true or false')
    return tasks


def _era(fields: Wire) -> Era:
    era = fields.get("era", "auto")
    if era not in {"auto", "legacy"}:
        raise InvalidValue('its "era" is "auto" or "legacy"')
    return "auto" if era == "auto" else "legacy"


def _text(fields: Wire, name: str) -> str:
    value = fields[name]
    if not isinstance(value, str) or not value:
        raise InvalidValue(f'its "{name}" is a text')
    return _filled(value)


def _texts(fields: Wire, name: str) -> list[str]:
    value = fields.get(name, [])
    if not is_list(value) or not all(isinstance(one, str) for one in value):
        raise InvalidValue(f'its "{name}" is a list of texts')
    return [_filled(one) for one in value]


def _table(fields: Wire, name: str) -> dict[str, str | Secret[str]]:
    value = fields.get(name, {})
    if not is_object(value) or not all(isinstance(one, str) for one in value.values()):
        raise InvalidValue(f'its "{name}" is an object of texts')
    return {key: Secret(_filled(one)) for key, one in value.items()}


def _filled(text: str) -> str:
    """Return a text with our variables in their places."""
    return _PLACE.sub(_value, text)


_PLACE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def _value(found: re.Match[str]) -> str:
    otherwise: str | None = found[2]
    value = os.environ.get(found[1], otherwise)
    if value is None:
        raise InvalidValue(f"the variable {found[1]} is not set")
    return value
