"""
From flags on the command line to the arguments of a call, as JSON text that a model would send.

Theory. A flag is made of a parameter's schema, and so is how its value is read: `5` is a text for
one tool and a number for another. What is written is text and never a value, so that a number of
any size stays as it was typed, and it is admission, not this file, that says whether it may pass.
Only what cannot be written as JSON of the parameter's type is refused here.
"""

import json
import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Literal, TypeAlias

import msgspec

from ferrule import InvalidJSON, read_json
from ferrule.cli._refused import Refused
from ferrule.cli._schemas import (
    Schema,
    list_of,
    object_of,
    properties_of,
    required_of,
    schemas_in,
)
from ferrule.helpers import one_line

Kind: TypeAlias = Literal["string", "integer", "number", "boolean"]

_STEPS = 16
"""How deep schemas are followed through references and branches."""

_NUMBER = re.compile(r"([+-]?)0*(\d+)((?:\.\d+)?(?:[eE][+-]?\d+)?)", re.ASCII)
_FLAG = re.compile(r"[^\s=-][^\s=]*")
_WORDS = {"true": "true", "yes": "true", "false": "false", "no": "false"}


class _FlagFacts(msgspec.Struct, frozen=True, kw_only=True):
    schema: Schema
    required: bool = False
    kind: Kind | None = None
    choices: Mapping[str, str] = {}
    nullable: bool = False


class Flag(_FlagFacts, frozen=True):
    """
    A parameter of a tool, as it is typed.

    Attributes:
        name: The parameter's own name.
        schema: What the tool says of it.
        required: Whether it may not be left out.
        kind: The one type that its values have; `None` if it can be given in JSON alone.
        choices: What may be typed, with the JSON that it stands for; empty if it is not one of few.
        nullable: Whether it may be null as well.
    """

    name: str

    @property
    def typed(self) -> str:
        """The flag as a person types it."""
        return f"--{one_line(self.name, 60)}"

    @property
    def has_flag(self) -> bool:
        """Whether it can be given as a flag."""
        return (self.kind is not None or bool(self.choices)) and bool(_FLAG.fullmatch(self.name))


def flags_of(schema: Schema) -> dict[str, Flag]:
    """Return the parameters of a tool by name, in its order; see `Flag`."""
    required = required_of(schema)
    return {
        name: _flag(name, one, schema, required=name in required)
        for name, one in properties_of(schema).items()
    }


def _flag(name: str, schema: Schema, root: Schema, *, required: bool) -> Flag:
    found = list(_branches(schema, root, _STEPS))
    kinds = {one for one in found if isinstance(one, str)} - {"null"}
    if kinds == {"integer", "number"}:
        kinds = {"number"}
    constants = [one.value for one in found if isinstance(one, _Constant)]
    is_choice = bool(constants) and not kinds
    kind = next(iter(kinds)) if len(kinds) == 1 and not constants else None
    return Flag(
        name,
        schema=schema,
        required=required,
        kind=_KINDS.get(kind or ""),
        choices=_choices(constants) if is_choice else {},
        nullable="null" in found or any(one is None for one in constants),
    )


_KINDS: Mapping[str, Kind] = {
    "string": "string",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
}


class _Constant(msgspec.Struct, frozen=True):
    value: object


def _branches(schema: Schema, root: Schema, steps: int) -> Iterator[str | _Constant]:
    """Yield what a value may be: names of types, and values; `other` for what has no flag."""
    if steps == 0:
        yield "other"
    elif "$ref" in schema:
        yield from _branches(_referred(str(schema["$ref"]), root), root, steps - 1)
    elif "const" in schema:
        yield from _constants([schema["const"]])
    elif "enum" in schema:
        yield from _constants(list_of(schema["enum"]))
    elif branches := schemas_in(schema.get("anyOf", schema.get("oneOf"))):
        for one in branches:
            yield from _branches(one, root, steps - 1)
    elif len(whole := schemas_in(schema.get("allOf"))) == 1:
        yield from _branches(whole[0], root, steps - 1)
    else:
        named = list_of(schema.get("type")) or [schema.get("type")]
        yield from (one if one in {*_KINDS, "null"} else "other" for one in map(str, named))


def _constants(values: Iterable[object]) -> Iterator[str | _Constant]:
    for value in values:
        yield "other" if isinstance(value, dict | list) else _Constant(value)


def _referred(reference: str, root: Schema) -> Schema:
    """Return what a reference inside the document means; an empty schema for any other."""
    place: object = root
    for step in reference.removeprefix("#").split("/")[1:]:
        place = object_of(place).get(step.replace("~1", "/").replace("~0", "~"))
    return object_of(place) if reference.startswith("#/") else {}


def _choices(values: Sequence[object]) -> dict[str, str]:
    """Return what is typed for each value; a text goes before a number that reads the same."""
    written = {json.dumps(one): json.dumps(one) for one in values if not isinstance(one, str)}
    return written | {one: json.dumps(one) for one in values if isinstance(one, str)}


# ---- what was typed ------------------------------------------------------------------------------


class Typed(msgspec.Struct):
    """
    What stands on the command line after a tool's name.

    Attributes:
        members: JSON by parameter, of those that were given as flags.
        document: The JSON argument, or `-` for standard input.
        help: Whether the tool is to be explained, and not called.
        json: Whether the output is for programs.
    """

    members: dict[str, str] = {}
    document: str | None = None
    help: bool = False
    json: bool = False

    def arguments(self) -> str:
        """
        Return the arguments as text: the JSON as it was written, with the flags in it.

        What is no JSON object is returned as it is, for admission to refuse.

        Raises:
            Refused: a parameter is given both ways.
        """
        given = ",".join(f"{json.dumps(name)}:{text}" for name, text in self.members.items())
        document = self.document
        if document is None or not document.strip():
            return f"{{{given}}}"
        if not self.members:
            return document
        try:
            read = read_json(document)
        except InvalidJSON:
            return document
        if not isinstance(read, dict):
            return document
        for name in self.members:
            if name in read:
                raise Refused(
                    f"`{one_line(name, 60)}` is given by its flag and in JSON; give it once"
                )
        return f"{document.rstrip()[:-1]}{',' if read else ''}{given}}}"


def typed(words: Sequence[str], flags: Mapping[str, Flag], tool: str) -> Typed:
    """
    Return what was typed after a tool's name.

    Raises:
        Refused: something is no flag of the tool, has no value or two, or cannot be read.
    """
    given, rest = Typed(members={}), deque(words)
    given.help = "-h" in words or ("--help" in words and "help" not in flags)
    while rest and not given.help:
        word = rest.popleft()
        if word == "--":
            for last in rest:
                _take_document(given, last)
            break
        if not word.startswith("--"):
            _take_document(given, word)
        elif word == "--json" and "json" not in flags:
            given.json = True
        else:
            _take_flag(given, word, rest, _Flags(flags, tool))
    return given


def _take_document(given: Typed, word: str) -> None:
    if word.startswith("--"):
        raise Refused(f"`{one_line(word, 60)}` is no flag here: after -- comes the JSON argument")
    if word.startswith("-") and word != "-":
        raise Refused(f"`{one_line(word, 60)}` is no flag: a flag begins with two hyphens")
    if given.document is not None:
        raise Refused("there is one JSON argument; put words that belong together in quotes")
    if word != "-" and not word.lstrip().startswith(("{", "[", '"')):
        hint = "a flag, as in `--name value`, or an object of JSON in quotes"
        raise Refused(f"`{one_line(word, 60)}` is not understood; arguments are given as {hint}")
    try:
        word.encode()
    except UnicodeEncodeError:
        raise Refused("the JSON argument is not UTF-8") from None
    given.document = word


def _take_flag(given: Typed, word: str, rest: deque[str], flags: "_Flags") -> None:
    name, equals, value = word[2:].partition("=")
    flag, no = flags.find(name)
    if flag.name in given.members:
        raise Refused(f"{flag.typed} is given more than once")
    if flag.kind == "boolean" and not equals:
        text = "false" if no else "true"
    elif no:
        raise Refused(f"--{one_line(name, 60)} takes no value")
    else:
        text = _value(flag, value if equals else _next(flag, rest))
    given.members[flag.name] = text


def _next(flag: Flag, rest: deque[str]) -> str:
    if not rest or rest[0] == "-" or rest[0].startswith("--"):
        like = f"; if it is {one_line(rest[0], 60)}, write {flag.typed}=…" if rest else ""
        raise Refused(f"{flag.typed} needs a value{like}")
    return rest.popleft()


class _Flags(msgspec.Struct, frozen=True):
    """The flags of one tool."""

    all: Mapping[str, Flag]
    tool: str

    def find(self, name: str) -> tuple[Flag, bool]:
        """
        Return the parameter that a flag is for, and whether it says no.

        Raises:
            Refused: there is none, or it has no flag.
        """
        flag, no = self._named(name), False
        if flag is None and name.startswith("no-"):
            flag, no = self._named(name.removeprefix("no-")), True
            flag = flag if flag is not None and flag.kind == "boolean" else None
        if flag is None:
            raise Refused(self._unknown(name))
        if not flag.has_flag:
            raise Refused(
                f"`{one_line(flag.name, 60)}` has no flag: give it in the JSON argument, as in "
                f"'{{{json.dumps(one_line(flag.name, 60))}: …}}'"
            )
        return flag, no

    def _named(self, name: str) -> Flag | None:
        """Return the parameter of this name, else the one that differs in hyphens alone."""
        if name in self.all:
            return self.all[name]
        alike = [one for one in self.all if one.replace("_", "-") == name.replace("_", "-")]
        if len(alike) > 1:
            both = " or ".join(self.all[one].typed for one in alike)
            raise Refused(f"--{one_line(name, 60)} may be {both}; write it as the tool does")
        return self.all[alike[0]] if alike else None

    def _unknown(self, name: str) -> str:
        known = [one for one, flag in self.all.items() if flag.has_flag]
        close = get_close_matches(name.replace("-", "_"), known, n=1)
        if close:
            hint = f"did you mean {self.all[close[0]].typed}?"
        elif known:
            hint = f"it has {', '.join(self.all[one].typed for one in known[:8])}"
        else:
            hint = "it takes none" if not self.all else "its arguments are given as JSON"
        return f"`{self.tool}` has no flag --{one_line(name, 60)}; {hint}"


# ---- values --------------------------------------------------------------------------------------


def _value(flag: Flag, text: str) -> str:
    """Return the JSON of a value; see the theory."""
    if flag.choices:
        if text not in flag.choices:
            raise Refused(f"{flag.typed} takes {_one_of(flag.choices)}{_near(text, flag.choices)}")
        return flag.choices[text]
    if flag.kind == "string":
        return _text(flag, text)
    if flag.nullable and text == "null":
        return "null"
    if flag.kind == "boolean":
        if text.lower() not in _WORDS:
            no = f"--no-{flag.typed[2:]}"
            raise Refused(f"{flag.typed} is yes or no: write {flag.typed} or {no}")
        return _WORDS[text.lower()]
    return _number(flag, text)


def _text(flag: Flag, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused(f"the value of {flag.typed} is not UTF-8") from None
    return json.dumps(text, ensure_ascii=False)


def _number(flag: Flag, text: str) -> str:
    found = _NUMBER.fullmatch(text)
    if found is None:
        what = "a whole number" if flag.kind == "integer" else "a number"
        raise Refused(f"{flag.typed} takes {what}, as in {flag.typed} 3")
    sign, digits, rest = found.groups()
    written = f"{'-' if sign == '-' else ''}{digits}{rest}"
    if math.isinf(float(written)):
        raise Refused(f"{flag.typed} is beyond what a number of JSON may be")
    return written


def _one_of(choices: Iterable[str]) -> str:
    *others, last = (one_line(one, 40) for one in choices)
    return f"{', '.join(others)} or {last}" if others else last


def _near(text: str, choices: Iterable[str]) -> str:
    close = get_close_matches(text, choices, n=1)
    return f"; did you mean {one_line(close[0], 40)}?" if close else ""
