"""
The one reader of JSON text (RFC 7493, I-JSON), the canonical form (RFC 8785) and the digest.

Why the fast path is exact. orjson reads a text and writes the value back, and the colons of both
are counted. orjson takes the grammar of JSON and nothing else, refuses lone surrogates and numbers
that are not finite, and of two members with one name keeps the last. It writes one colon for each
member it kept and leaves colons inside strings alone; so what it writes has as many colons as the
text, or fewer if a member was dropped. Three things remain, and each leaves a trace to look for:

- a colon that the text spells as an escape and orjson writes plainly: its first characters;
- an integer outside 64 bits, which orjson makes a float so large that it is written with `e+`:
  that, and nineteen digits in a row in the text;
- a noncharacter: its UTF-8 in what was written, where no escape hides it.

A text that is what orjson writes, to the byte, has lost nothing, and is not even looked at. One
that shows a trace, or that orjson refuses, is read again on the standard library's scanner,
and that exact path alone decides and words the refusal. Looking for too much costs time and is
never a wrong answer. Limits are checked on the text, before either path, so that they differ
neither between the two nor between versions of Python.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import accumulate, chain, count, repeat
from json.encoder import encode_basestring as quoted
from operator import sub
from typing import TypeAlias, cast

import msgspec
import orjson

from ferrule.errors import InvalidJSON, InvalidValue, clip

DEPTH_CEILING = 512
"""Levels of nesting that every supported Python can read: the greatest `Limits.depth`."""

Json: TypeAlias = "dict[str, Json] | list[Json] | tuple[Json, ...] | str | float | bool | None"
"""What a text can say, once somebody has looked; until then it is an `object`."""

Trail: TypeAlias = "tuple[Trail, str | int] | None"
"""Where a value stands: its name or index, linked to where its container stands."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """
    How large a thing from outside may be; a breach refuses that thing as `too_large`.

    Attributes:
        argument_bytes: A call's arguments, and any text given to `read_json`, in bytes of UTF-8.
        depth: Containers inside each other; `[]` is 1. More than 512 becomes 512.
        nodes: Values of one document: every object, array, string, number, `true`, `false` and
            `null` is one, the outermost too; member names are none.
        schema_bytes: A JSON Schema document, in bytes of UTF-8.
        request_bytes: Each part of an input request, in bytes of UTF-8.
        output_bytes: A whole result as the host keeps it, in bytes of UTF-8.
        model_bytes: What a model reads of one call, in bytes of UTF-8.
    """

    argument_bytes: int = 1 << 20
    depth: int = 128
    nodes: int = 100_000
    schema_bytes: int = 1 << 20
    request_bytes: int = 1 << 20
    output_bytes: int = 8 << 20
    model_bytes: int = 256 << 10

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise InvalidValue(f"Limits.{name} must be a whole number of at least 1")
        if self.depth > DEPTH_CEILING:
            msgspec.structs.force_setattr(self, "depth", DEPTH_CEILING)


DEFAULT_LIMITS = Limits()


def read_json(text: str | bytes, *, limits: Limits = DEFAULT_LIMITS) -> object:
    """
    Read one I-JSON document of at most `limits.argument_bytes`; integers of any size are exact.

    Raises:
        InvalidJSON: For everything that is wrong with the text; it never repeats a value of it.
    """
    return read(text, limit=limits.argument_bytes, limits=limits)[0]


def read(text: str | bytes, *, limit: int, limits: Limits) -> tuple[object, bool]:
    """
    Read one I-JSON document of at most `limit` bytes of UTF-8.

    The second part of the answer says whether an integer outside 64 bits may be inside; if so,
    `wide_integers` finds it.
    """
    size = len(text)
    if size > limit:
        raise _too_large(limit, "bytes")
    try:
        data = text.encode() if isinstance(text, str) else text
        if size > limits.depth or size > limits.nodes or len(data) > size:
            _check_limits(data, limit, limits)
        value: object = orjson.loads(data)
        dump = orjson.dumps(value)
    except (UnicodeEncodeError, orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass  # Not answered here, lest orjson's error, which keeps the text, hangs on ours.
    else:
        if dump == data and data.isascii():
            return value, False
        return _judged(text, data, value, dump)
    return _read_exactly(text, vouched=False), True


def _judged(text: str | bytes, data: bytes, value: object, dump: bytes) -> tuple[object, bool]:
    """Return what orjson read if it lost nothing on the way, or what the exact path reads."""
    # On short texts every step of Python's counts. `58 in data` costs a tenth of `b":" in data`,
    # which first tries its operand as a number: one byte is looked for as a number, before two.
    odd = not dump.isascii() and _holds_noncharacter(dump)
    wide = _PLUS in dump and b"e+" in dump and _LONG in data.translate(_DIGITS_ALIKE)
    if (
        odd
        or wide
        or data.count(b":") != dump.count(b":")
        or (_BACKSLASH in data and b"\\u003" in data)
    ):
        return _read_exactly(text, vouched=not odd), wide
    return value, False


def blank(text: str) -> bool:
    """Say whether a text is empty or nothing but Unicode white space."""
    return not text.strip(_WHITE_SPACE)


def wide_integers(value: object) -> Iterator[tuple[str, int]]:
    """Find the integers outside 64 bits (below -2**63, from 2**64 on), each with its path."""
    for trail, item in _walk(cast("Json", value)):
        if type(item) is int and not -(1 << 63) <= item < 1 << 64:
            yield path_text(trail), item


def canonical(value: object) -> bytes:
    """
    Write the canonical form: RFC 8785, but an integer beyond 2**53 keeps its digits.

    Raises:
        InvalidValue: For what JSON cannot say, with its path: a number that is not finite, a lone
            surrogate, a name that is no string, nesting past 512, any type that `read_json` does
            not make (only a tuple counts as an array).
    """
    try:
        return "".join(_canonical_parts(cast("Json", value))).encode()
    except (_UnwritableError, TypeError, UnicodeEncodeError):
        raise _unwritable(cast("Json", value)) from None


def digest(value: object) -> str:
    """Return a value's digest: `sha256:` and the hexadecimal hash of its canonical form."""
    return "sha256:" + hashlib.sha256(canonical(value)).hexdigest()


def path_text(trail: Trail) -> str:
    """Return a trail as text, as in `$.a[0]`: short, and with nothing invisible in it."""
    steps: list[str] = []
    while trail is not None:
        trail, step = trail
        steps.append(_step_text(step))
    return clip("$" + "".join(reversed(steps)), 300)


_NAME_SHOWN = 60
"""Characters of one name that a path shows."""

_WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""Unicode's White_Space; `str.isspace` takes four control characters more."""

_JSON_SPACE = " \t\n\r"
_BACKSLASH = ord("\\")
_PLUS = ord("+")
_LONG = b"0" * 19
_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"000000000")
_EF, _BF = 0xEF, 0xBF
_ARABIC_ALIKE = bytes.maketrans(bytes(range(0x90, 0xB0)), b"\x90" * 32)
_ASTRAL = range(0xF0, 0xF5)
_ASTRAL_NONCHARACTER = re.compile(rb"[\xf0-\xf4][\x8f\x9f\xaf\xbf]\xbf[\xbe\xbf]")


def _step_text(step: str | int) -> str:
    """Return one step of a path; a name that is not plain is quoted, odd characters escaped."""
    if isinstance(step, int):
        return f"[{step}]"
    name = step if len(step) <= _NAME_SHOWN else step[:_NAME_SHOWN] + "…"
    if name.isascii() and name.isidentifier():
        return f".{name}"
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return f'["{"".join(shown)}"]'


def _holds_noncharacter(utf8: bytes) -> bool:
    """Say whether a noncharacter is inside; nearly all texts lack the bytes one is made of."""
    if _EF in utf8:
        if b"\xef\xbf\xbe" in utf8 or b"\xef\xbf\xbf" in utf8:
            return True
        # U+FDD0 to U+FDEF, among Arabic letters
        if b"\xef\xb7" in utf8 and b"\xef\xb7\x90" in utf8.translate(_ARABIC_ALIKE):
            return True
    return (
        _BF in utf8
        and (b"\xbf\xbe" in utf8 or b"\xbf\xbf" in utf8)
        and any(lead in utf8 for lead in _ASTRAL)
        and _ASTRAL_NONCHARACTER.search(utf8) is not None
    )


# Limits, on the text itself.

_STRINGS = re.compile(rb'"[^"]*"?')
_ESCAPES = b"\\/bfnrtu"
_NOT_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{},"'))
_STEPS = bytes.maketrans(b"[]{}", b"\2\0\2\0")
_QUICK_ROUNDS = 8


def _too_large(limit: int, unit: str) -> InvalidJSON:
    """Return the refusal of what breaks a limit."""
    return InvalidJSON(f"more than {limit} {unit}", kind="too_large")


def _check_limits(data: bytes, limit: int, limits: Limits) -> None:
    """Refuse a text that is too long, too deep or has too many values; look closer only if near."""
    if len(data) > limit:
        raise _too_large(limit, "bytes")
    depth, nodes = limits.depth, limits.nodes
    # A text of n values has 2n - 1 bytes or more, and n is at most 1 + commas + openers.
    small = len(data) <= 2 * nodes
    if small and data.count(b"[") + data.count(b"{") <= depth:
        return
    signs = data.translate(None, _NOT_STRUCTURE)  # To count in these is quicker than in all.
    openers = signs.count(b"[") + signs.count(b"{")
    many = not small and openers + signs.count(b",") >= nodes
    if many or openers > depth:
        structure = _outside_strings(data, signs, _NOT_STRUCTURE if many else _NOT_BRACKETS)
        if many and _has_more_nodes(data, structure, nodes):
            raise _too_large(nodes, "values")
        if _is_deeper(structure, depth):
            raise _too_large(depth, "levels of nesting")


def _outside_strings(data: bytes, signs: bytes, dropped: bytes) -> bytes:
    """
    Return a text without its strings and the bytes of `dropped`, at the speed of C.

    `signs` are its brackets, commas and quotes. In a faulty text what is returned holds up to the
    fault, which is as far as a parser goes.
    """
    if _BACKSLASH in data:
        # What may follow a backslash stays until all pairs are gone.
        signs = _unescaped(data.translate(None, dropped.translate(None, _ESCAPES)))
    signs = signs.translate(None, dropped)
    if 2 * signs.count(b'""') == signs.count(b'"'):  # All strings are empty, as in most texts.
        return signs.translate(None, b'"')
    return _STRINGS.sub(b"", signs.replace(b'""', b""))


def _is_deeper(structure: bytes, depth: int) -> bool:
    """
    Say whether brackets nest deeper than `depth`.

    Each round takes away the innermost pairs: a text has as many levels as it takes rounds. After
    a few of them what is left is counted step by step, so that depth times length is never spent.
    A text that breaks off is closed first.
    """
    steps = structure.translate(_STEPS, b",")
    if b"\2" * (depth + 1) in steps:
        return True
    steps += bytes(steps.count(2) - steps.count(0))
    for _ in range(min(depth, _QUICK_ROUNDS)):
        before = len(steps)
        steps = steps.replace(b"\2\0", b"")
        if len(steps) == before:
            return False
        depth -= 1
    # An opener counts 2 and a closer 0, so the sum less the number of steps is the level.
    return max(map(sub, accumulate(steps), count(1)), default=0) > depth


def _has_more_nodes(data: bytes, structure: bytes, nodes: int) -> bool:
    """
    Say whether a text has more than `nodes` values.

    They are one, one for each comma, and one for each container that is not empty. Whether it is
    empty cannot be seen in the structure; in the text strings are in the way. So strings are taken
    out of it only if that decides.
    """
    most = 1 + len(structure) - structure.count(b"]") - structure.count(b"}")
    if most <= nodes or most - _count_empty(data) > nodes:
        return most > nodes
    return most - _count_empty(_STRINGS.sub(b"0", _unescaped(data))) > nodes


def _count_empty(data: bytes) -> int:
    """Count the pairs of brackets with nothing between them."""
    solid = data.translate(None, _JSON_SPACE.encode())
    return solid.count(b"[]") + solid.count(b"{}")


def _unescaped(data: bytes) -> bytes:
    """Drop escaped backslashes and quotes, so that the quotes left are those around strings."""
    return data.replace(b"\\\\", b"").replace(b'\\"', b"")


# The exact path.

_FORBIDDEN = re.compile(
    "[\ud800-\udfff\ufdd0-\ufdef"
    + "".join(
        chr(plane | last) for plane in range(0, 17 << 16, 1 << 16) for last in (0xFFFE, 0xFFFF)
    )
    + "]"
)
"""Surrogates and noncharacters."""

_SURROGATE = re.compile("[\ud800-\udfff]")

_RULES = {
    "Expecting value": "a value is expected",
    "Expecting property name": "a member name in double quotes is expected",
    "Expecting ':'": "a colon is expected",
    "Expecting ','": "a comma or a closing bracket is expected",
    "Illegal trailing comma": "a comma has nothing after it",
    "Unterminated string": "a string does not end",
    "Invalid control character": "a control character in a string is not escaped",
    "Invalid \\": "an escape is not one of JSON's",
    "Extra data": "something follows the document",
}
"""How the standard library's messages begin; some of them repeat the text, so ours are our own."""


class _Fault(msgspec.Struct, frozen=True):
    """Stands in a value where the text broke a rule, so that a walk can tell its path."""

    rule: str


_NOT_FINITE = _Fault("a number is beyond the range of a double")


class _RepeatedError(ValueError):
    """Two members of one object have the same name."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make an object of members with different names."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _RepeatedError
    return members


def _marked(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make an object; a fault stands for each name that is repeated."""
    members: dict[str, object] = {}
    for name, value in pairs:
        members[name] = _Fault("a member name is repeated") if name in members else value
    return members


def _finite_integer(digits: str) -> int | _Fault:
    """Read an integer that is finite as a double; one of any length is refused in linear time."""
    return _NOT_FINITE if math.isinf(float(digits)) else int(digits)


def _finite_float(digits: str) -> float | _Fault:
    """Read a number that is finite."""
    number = float(digits)
    return _NOT_FINITE if math.isinf(number) else number


def _constant(_name: str) -> _Fault:
    """Mark what the standard library takes for a number and JSON does not."""
    return _Fault("NaN and Infinity are not JSON")


_QUICK = json.JSONDecoder(object_pairs_hook=_unique)
_CAREFUL = json.JSONDecoder(
    object_pairs_hook=_marked,
    parse_int=_finite_integer,
    parse_float=_finite_float,
    parse_constant=_constant,
)


def _read_exactly(text: str | bytes, *, vouched: bool) -> object:
    """
    Read a text within limits on the standard library's scanner, or refuse it for good.

    `vouched` means that orjson read the text and that no noncharacter is in it.
    """
    try:
        string = text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError as error:
        raise InvalidJSON("the bytes are not UTF-8", position=error.start) from None
    return _read_vouched(string) if vouched else _read_carefully(string)


def _read_vouched(string: str) -> object:
    """Read what orjson has vouched for: only the names are left to compare."""
    with suppress(ValueError, RecursionError):
        return _QUICK.raw_decode(string.strip(_JSON_SPACE))[0]
    return _read_carefully(string)


def _read_carefully(string: str) -> object:
    """Read a text, checking all of it; the one place that words what is wrong."""
    if string.startswith("\ufeff"):
        raise InvalidJSON("a byte order mark is not JSON", position=0)
    if (found := _forbidden(string)) is not None:
        raise InvalidJSON(_character_rule(found[0]), position=found.start())
    try:
        value: Json = _CAREFUL.decode(string)
    except json.JSONDecodeError as error:
        raise _syntax_refusal(string, error) from None
    except RecursionError:
        rule = "more levels of nesting than are left on the program's stack"
        raise InvalidJSON(rule, kind="too_large") from None
    _refuse_faults(value)
    return value


def _syntax_refusal(string: str, error: json.JSONDecodeError) -> InvalidJSON:
    """Return our refusal for the library's, the same in every version of Python."""
    before = string[: error.pos].rstrip(_JSON_SPACE)
    if before.endswith(",") and string[error.pos : error.pos + 1] in ("]", "}"):
        # Python 3.13 says so itself, and of the comma; older ones speak of the bracket.
        return InvalidJSON(_RULES["Illegal trailing comma"], position=len(before) - 1)
    rule = next((rule for start, rule in _RULES.items() if error.msg.startswith(start)), "not JSON")
    return InvalidJSON(rule, position=error.pos)


def _refuse_faults(value: Json) -> None:
    """Refuse a value that holds a fault or a character that I-JSON forbids, naming the path."""
    for trail, item in _walk(value):
        if isinstance(item, _Fault):
            raise InvalidJSON(item.rule, path=path_text(trail))
        if (found := _forbidden(_own_text(item))) is not None:
            within = "a member name holds " if isinstance(item, dict) else ""
            raise InvalidJSON(within + _character_rule(found[0]), path=path_text(trail))


def _forbidden(text: str) -> re.Match[str] | None:
    """Find the first character that I-JSON forbids; none of ASCII is one."""
    return None if text.isascii() else _FORBIDDEN.search(text)


def _own_text(item: Json) -> str:
    """Return the characters of a string, or of an object's names."""
    if isinstance(item, dict):
        return "".join(item)
    return item if isinstance(item, str) else ""


def _character_rule(character: str) -> str:
    """Return what is wrong with a forbidden character."""
    is_surrogate = "\ud800" <= character <= "\udfff"
    return "a surrogate without its pair" if is_surrogate else "a noncharacter"


def _walk(value: Json) -> Iterator[tuple[Trail, Json]]:
    """
    Visit every value in the order it stands in, without recursion.

    What is below `DEPTH_CEILING` is not visited, so that a value inside itself has an end.
    """
    stack: list[Iterator[tuple[Trail, Json]]] = [iter(((None, value),))]
    while stack:
        for trail, item in stack[-1]:
            yield trail, item
            if isinstance(item, dict | list | tuple) and len(stack) <= DEPTH_CEILING:
                stack.append(_children(trail, item))
                break
        else:
            stack.pop()


def _children(
    trail: Trail, item: dict[str, Json] | list[Json] | tuple[Json, ...]
) -> Iterator[tuple[Trail, Json]]:
    """Visit what is directly in a container."""
    steps: Iterable[tuple[str | int, Json]]
    steps = item.items() if isinstance(item, dict) else enumerate(item)
    for step, child in steps:
        yield (trail, step), child


# The canonical form.

_EXPONENT_FROM = 21
_EXPONENT_TO = -7
"""Powers of ten that ECMAScript writes as an exponent: from the first up, to the second down."""


class _UnwritableError(ValueError):
    """Somewhere in the value is something that JSON cannot say."""


def _canonical_parts(value: Json) -> list[str]:
    """
    Write a value in pieces that, joined, are its canonical text.

    The stack holds what is left of the containers around, so that depth costs no recursion.
    """
    parts: list[str] = []
    add = parts.append
    items: Iterator[tuple[str, Json]] = iter((("", value),))
    closer = ""
    stack: list[tuple[Iterator[tuple[str, Json]], str]] = []
    while True:
        for before, item in items:
            add(before)
            if type(item) is str:
                add(quoted(item))
            elif type(item) is dict:
                stack.append((items, closer))
                add("{")
                items, closer = _members(item), "}"
                break
            elif type(item) is list or type(item) is tuple:
                stack.append((items, closer))
                add("[")
                items, closer = zip(chain(("",), repeat(",")), item, strict=False), "]"
                break
            else:
                add(_scalar_text(item))
        else:
            add(closer)
            if not stack:
                return parts
            items, closer = stack.pop()
        if len(stack) > DEPTH_CEILING:
            raise _UnwritableError


def _members(members: dict[str, Json]) -> Iterator[tuple[str, Json]]:
    """Return an object's members in the order of UTF-16, each with the text before its value."""
    # Joining refuses a name that is no string; below U+D800 code points sort as UTF-16 does.
    names = sorted(members) if "".join(members).isascii() else sorted(members, key=_utf16)
    for index, name in enumerate(names):
        yield f"{',' if index else ''}{quoted(name)}:", members[name]


def _utf16(name: str) -> bytes:
    """Return what RFC 8785 sorts names by."""
    return name.encode("utf-16-be")


def _scalar_text(item: Json) -> str:
    """Write a number or a literal."""
    if item is None:
        return "null"
    if type(item) is bool:
        return "true" if item else "false"
    if type(item) is int and _is_finite(item):
        return repr(item)
    if type(item) is float and math.isfinite(item):
        return _float_text(item)
    raise _UnwritableError


def _is_finite(number: float) -> bool:
    """Say whether a number is finite as a double."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def _float_text(number: float) -> str:
    """Write a float as ECMAScript does: shortest digits, an exponent from 1e21 and below 1e-6."""
    if number == 0:
        return "0"
    mantissa, _, exponent = repr(number).partition("e")
    if not exponent:
        return mantissa.removesuffix(".0")
    power = int(exponent)
    sign = "-" if number < 0 else ""
    digits = mantissa.removeprefix("-").replace(".", "")
    if 0 < power < _EXPONENT_FROM:
        return sign + digits.ljust(power + 1, "0")
    if _EXPONENT_TO < power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    return f"{mantissa}e{power:+d}"


def _unwritable(value: Json) -> InvalidValue:
    """Return the error that says where a value cannot be written, and why."""
    for trail, item in _walk(value):
        if reason := _unwritable_reason(item):
            return InvalidValue(clip(f"{path_text(trail)}: {reason}"))
    return InvalidValue(f"$: nested deeper than {DEPTH_CEILING} levels")


def _unwritable_reason(item: Json) -> str:
    """Return why a value cannot be written, or nothing if it can."""
    if type(item) is dict and not all(isinstance(name, str) for name in item):
        return "the names of an object's members must be strings"
    if type(item) in (dict, str):
        return "a surrogate without its pair" if _SURROGATE.search(_own_text(item)) else ""
    if type(item) is int or type(item) is float:
        return "" if _is_finite(item) else "a number is not finite as a double"
    if item is None or type(item) in (bool, list, tuple):
        return ""
    return f"JSON has no form for the type {type(item).__name__}"
