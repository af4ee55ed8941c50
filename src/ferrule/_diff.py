"""
What changed between two definitions of a tool, and what it means to those who relied on the first.

Theory. A change of the arguments' schema is read keyword by keyword: does the new one take values
that the old one refused (*widened*: the tool may now be given more), or refuse some that the old
one took (*breaking*)? What does neither is *compatible*, and what only people and models read is
*text*. For what a tool returns it is the other way round: a reader breaks on values that could
not come before, and never on fewer. Where a keyword is too entangled to be read this way, a change
of it is breaking: a person looks at it, and nothing is let through by mistake.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

from ferrule._definition import Definition
from ferrule._ijson import canonical
from ferrule._plain import is_object, is_sequence
from ferrule._value import Value

ChangeKind: TypeAlias = Literal["text", "compatible", "widened", "breaking"]
"""What a change means; see `diff`."""


class Change(Value, frozen=True, kw_only=True):
    """
    One change.

    Attributes:
        path: Where, as in `input_schema.properties.limit.maximum`.
        kind: What it means.
    """

    path: str
    kind: ChangeKind

    def __str__(self) -> str:
        return f"{self.kind}: {self.path}"


def diff(old: Definition, new: Definition) -> list[Change]:
    """
    Return what changed from `old` to `new`, each change with its place and what it means.

    `"text"`: only what people and models read. `"compatible"`: nothing that a caller relied on.
    `"widened"`: the tool may now be given more. `"breaking"`: what worked may be refused, or what
    comes back may be new to its reader. Nothing changed gives an empty list.
    """
    changes = [Change(path=path, kind=kind) for path, kind in _facts(old, new)]
    changes += _compared("input_schema", old.input_schema, new.input_schema)
    match old.output_schema, new.output_schema:
        case None, None:
            pass
        case None, _:
            changes.append(Change(path="output_schema", kind="compatible"))
        case _, None:
            changes.append(Change(path="output_schema", kind="breaking"))
        case before, after:
            found = _compared("output_schema", before, after)
            changes += [msgspec.structs.replace(c, kind=_RETURNED[c.kind]) for c in found]
    if not changes and not _same(old.to_json(), new.to_json()):
        # Written otherwise, and the same: the order of `required`, a keyword at its default.
        changes.append(Change(path="input_schema", kind="compatible"))
    return changes


def _facts(old: Definition, new: Definition) -> Iterator[tuple[str, ChangeKind]]:
    if old.name != new.name:
        yield "name", "breaking"
    if old.description != new.description:
        yield "description", "text"
    if old.title != new.title:
        yield "title", "text"
    if old.strict != new.strict:
        yield "strict", "compatible"


_RETURNED: dict[ChangeKind, ChangeKind] = {
    "text": "text",
    "compatible": "compatible",
    "widened": "breaking",
    "breaking": "compatible",
}
"""What a change of the arguments' kind means where it is about what a tool returns."""


def _compared(path: str, old: Mapping[str, object], new: Mapping[str, object]) -> list[Change]:
    return list(_Comparison(old, new).schemas(path, old, new))


Found: TypeAlias = Iterator[Change]


_Schema: TypeAlias = dict[str, object]


class _Comparison:
    """One comparison of two schema documents; references are followed, each pair once."""

    def __init__(self, old: Mapping[str, object], new: Mapping[str, object]) -> None:
        self._roots = (old, new)
        self._seen: set[tuple[str, str]] = set()

    def schemas(self, path: str, old: object, new: object) -> Iterator[Change]:
        """Compare two schemas at one place; what is neither object nor boolean takes anything."""
        before_name, before = _followed(self._roots[0], old)
        after_name, after = _followed(self._roots[1], new)
        if before_name or after_name:
            if (before_name, after_name) in self._seen:
                return
            self._seen.add((before_name, after_name))
        if isinstance(before, bool) or isinstance(after, bool):
            yield from _changes(
                path, _takes(before) - _takes(after), _takes(after) - _takes(before)
            )
            return
        for keyword in dict.fromkeys([*before, *after]):
            if keyword not in _ELSEWHERE:
                yield from self._keyword(f"{path}.{keyword}", keyword, before, after)

    def _keyword(self, path: str, keyword: str, old: _Schema, new: _Schema) -> Iterator[Change]:
        before, after = old.get(keyword), new.get(keyword)
        if keyword in _TEXT:
            if not _same(before, after):
                yield Change(path=path, kind="text")
        elif keyword == "default":
            if not _same(before, after):  # Neither more nor less is taken.
                yield Change(path=path, kind="compatible")
        elif keyword == "properties":
            yield from self._properties(path, old, new)
        elif keyword == "additionalProperties" or (
            keyword == "items" and not is_sequence(before) and not is_sequence(after)
        ):
            yield from self.schemas(path, old.get(keyword, True), new.get(keyword, True))
        elif keyword in _BRANCHES:
            yield from self._branches(path, keyword, _list(before), _list(after))
        elif not _same(before, after):
            lost, gained = _READ.get(keyword, _entangled)(before, after)
            yield from _changes(path, lost, gained)

    def _properties(self, path: str, old: _Schema, new: _Schema) -> Iterator[Change]:
        before, after = _object(old.get("properties")), _object(new.get("properties"))
        for name in dict.fromkeys([*before, *after]):
            place = f"{path}.{name}"
            # A property that is not named is judged by `additionalProperties`.
            then = before.get(name, old.get("additionalProperties", True))
            now = after.get(name, new.get("additionalProperties", True))
            yield from self.schemas(place, then, now)

    def _branches(
        self, path: str, keyword: str, old: list[object], new: list[object]
    ) -> Iterator[Change]:
        gone, come = _others(old, new), _others(new, old)
        if len(gone) == len(come):
            for index, (before, after) in enumerate(zip(gone, come, strict=True)):
                yield from self.schemas(f"{path}[{index}]", before, after)
        elif not old or not new or keyword == "allOf":
            # Without the keyword everything is taken; every branch of `allOf` takes something away.
            yield from _changes(
                path, lost=not old or len(come) > 0, gained=not new or len(gone) > 0
            )
        else:
            yield from _changes(path, lost=bool(gone), gained=bool(come))


_INDEX = re.compile("[0-9]{1,9}")

_ELSEWHERE = {"$defs", "definitions", "$schema", "$id", "$anchor"}
"""Keywords that say nothing of a value by themselves."""

_TEXT = {"title", "description", "$comment", "examples", "deprecated", "readOnly", "writeOnly"}

_BRANCHES = {"anyOf", "oneOf", "allOf"}


def _changes(path: str, lost: object, gained: object) -> Iterator[Change]:
    """Say what it means that values are no longer taken, or newly taken."""
    if lost:
        yield Change(path=path, kind="breaking")
    if gained:
        yield Change(path=path, kind="widened")


def _followed(root: Mapping[str, object], schema: object) -> tuple[str, _Schema | bool]:
    """Follow references inside the document; return the last one's name and where it leads."""
    names: list[str] = []
    while is_object(schema) and isinstance(schema.get("$ref"), str):
        name = str(schema["$ref"])
        if name in names:
            break
        names.append(name)
        schema = _pointed(root, name)
    found = schema if isinstance(schema, bool) or is_object(schema) else {}
    return (names[-1] if names else ""), found


def _pointed(root: object, reference: str) -> object:
    """Return what a JSON pointer leads to; an anchor or a broken pointer leads to nothing known."""
    found = root
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if is_object(found):
            found = found.get(name)
        elif is_sequence(found) and _INDEX.fullmatch(name) and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


def _takes(schema: object) -> set[str]:
    """Return what a schema takes, as far as booleans go: nothing, something, anything."""
    if schema is False:
        return set()
    return {"some"} if schema and schema is not True else {"some", "any"}


def _object(value: object) -> _Schema:
    return value if is_object(value) else {}


def _list(value: object) -> list[object]:
    return list(value) if is_sequence(value) else []


def _same(old: object, new: object) -> bool:
    return canonical(old) == canonical(new)


def _others(branches: list[object], known: list[object]) -> list[object]:
    """Return the branches that are not among the known ones; each is written once."""
    texts = _texts(known)
    return [branch for branch in branches if canonical(branch) not in texts]


def _entangled(_old: object, _new: object) -> tuple[bool, bool]:
    """Read no keyword that is entangled with others: anything may be lost or gained."""
    return True, True


def _types(old: object, new: object) -> tuple[bool, bool]:
    before, after = _type_set(old), _type_set(new)
    return bool(before - after), bool(after - before)


_EVERY = {"null", "boolean", "integer", "number", "string", "array", "object"}


def _type_set(types: object) -> set[str]:
    listed = {types} if isinstance(types, str) else {str(one) for one in _list(types)} or _EVERY
    return listed | {"integer"} if "number" in listed else listed


def _values(old: object, new: object) -> tuple[bool, bool]:
    if old is None or new is None:
        return old is None, new is None
    before, after = _texts(old), _texts(new)
    return bool(before - after), bool(after - before)


def _texts(values: object) -> set[bytes]:
    return {canonical(value) for value in _list(values)}


def _names(old: object, new: object) -> tuple[bool, bool]:
    before, after = _texts(old), _texts(new)
    return bool(after - before), bool(before - after)


def _least(old: object, new: object) -> tuple[bool, bool]:
    """Compare lower bounds; without one everything is taken."""
    if not isinstance(old, int | float) or not isinstance(new, int | float):
        return new is not None, old is not None and new is None
    return new > old, new < old


def _most(old: object, new: object) -> tuple[bool, bool]:
    """Compare upper bounds; without one everything is taken."""
    lost, gained = _least(old, new)
    return (lost, gained) if old is None or new is None else (gained, lost)


def _flag(old: object, new: object) -> tuple[bool, bool]:
    return new is True, old is True


def _steps(old: object, new: object) -> tuple[bool, bool]:
    """Compare steps; one of zero is none, and no schema with it compiles."""
    if not (isinstance(old, int | float) and isinstance(new, int | float) and old and new):
        return new is not None, new is None
    return old % new != 0, new % old != 0


def _texture(old: object, new: object) -> tuple[bool, bool]:
    """Compare a pattern or a format: another one may take and refuse anything."""
    return new is not None, old is not None


_READ: dict[str, Callable[[object, object], tuple[bool, bool]]] = {
    "type": _types,
    "enum": _values,
    "required": _names,
    "minimum": _least,
    "exclusiveMinimum": _least,
    "minLength": _least,
    "minItems": _least,
    "minProperties": _least,
    "maximum": _most,
    "exclusiveMaximum": _most,
    "maxLength": _most,
    "maxItems": _most,
    "maxProperties": _most,
    "multipleOf": _steps,
    "uniqueItems": _flag,
    "pattern": _texture,
    "format": _texture,
}
"""How a keyword's change is read: whether values are no longer taken, and whether new ones are."""
