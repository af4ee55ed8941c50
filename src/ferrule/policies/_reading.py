"""
From the text of a policy to its rules: everything that is wrong is found in one reading.

What a table holds is taken out key by key; each fault becomes a sentence with file, rule, line and
key, and reading goes on. What is left over at the end is a key that nobody knows.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Literal, TypeVar, cast

from ferrule import InvalidValue
from ferrule.helpers import one_line
from ferrule.policies._conditions import Condition, Number
from ferrule.policies._invalid import InvalidPolicy
from ferrule.policies._paths import read_path
from ferrule.policies._patterns import Pattern, read_pattern
from ferrule.policies._reach import dead
from ferrule.policies._rule import DECIDES, Confined, Decides, Rule
from ferrule.policies._stated import HINTS, Hint

T = TypeVar("T")

LARGEST = 1 << 18
"""Bytes of a policy."""

MOST_RULES = 250
MOST_PATTERNS = 32
"""Patterns of one key."""

MOST_ITEMS = 1000
"""Values of `in`, entries of `where`."""

MOST_DOTS = 64
"""Dots on one line: TOML reads a dotted key in a time that grows with the square of its parts."""

MOST_DOTS_IN_ALL = 10_000
"""And each part of one becomes a table."""

DEEPEST = 16
"""Levels of a value that an argument is compared with."""

_REASON = 1000
"""Bytes of a reason: a model or a person reads it."""

_HEADER = re.compile(r"""^[ \t]*\[\[[ \t]*(?:rule|"rule"|'rule')[ \t]*\]\]""", re.MULTILINE)


def read_rules(text: str, source: str) -> tuple[Rule, ...]:
    """
    Return the rules of a policy, in order.

    Raises:
        InvalidPolicy: with everything that is wrong.
    """
    problems: list[str] = []
    document = _Table(_document(text, source), source, "", problems)
    entries = document.taken("rule", _entries) or []
    if not entries and not problems:
        document.fault("rule", 'it has no rule; write [[rule]], and decide = "deny" to deny all')
    document.no_more()
    lines = [text.count("\n", 0, found.start()) + 1 for found in _HEADER.finditer(text)]
    known = len(lines) == len(entries)  # Otherwise some of them stand in a text, or in no header.
    read = [
        _rule(_Table(entry, f"{source}, {place(number, line)}", "", problems), number, line)
        for number, (entry, line) in enumerate(
            zip(entries, lines if known else [None] * len(entries), strict=True), 1
        )
    ]
    rules = tuple(rule for rule in read if rule is not None)
    problems += [
        f"{source}, {place(rule.number, rule.line)}, {key}: {sentence}"
        for rule, key, sentence in dead(rules)
    ]
    if problems:
        raise InvalidPolicy(problems)
    return rules


def place(number: int, line: int | None) -> str:
    """Return where a rule stands."""
    return f"rule {number}" if line is None else f"rule {number} (line {line})"


def _document(text: str, source: str) -> dict[str, object]:
    """
    Return the TOML document.

    Raises:
        InvalidPolicy: it is none, or too large.
    """
    if len(text.encode(errors="replace")) > LARGEST:
        raise InvalidPolicy([f"{source}: it is over {LARGEST} bytes; split it"])
    _check_dots(text, source)
    try:
        return tomllib.loads(text)
    except RecursionError:
        fault = "its values are nested too deep"
    except tomllib.TOMLDecodeError as error:
        fault = f"it is not TOML: {one_line(str(error), 200)}"
    except ValueError:
        fault = "it holds a number of more digits than can be read"
    raise InvalidPolicy([f"{source}: {fault}"])


def _check_dots(text: str, source: str) -> None:
    """
    Do nothing if a text has few dots, most of all on each line.

    Raises:
        InvalidPolicy: it has too many.
    """
    dots = [line.count(".") for line in text.split("\n")]
    if max(dots) > MOST_DOTS:
        line = next(number for number, count in enumerate(dots, 1) if count > MOST_DOTS)
        raise InvalidPolicy([f"{source}: line {line} has over {MOST_DOTS} dots; break the line"])
    if sum(dots) > MOST_DOTS_IN_ALL:
        raise InvalidPolicy([f"{source}: it has over {MOST_DOTS_IN_ALL} dots; split it"])


class _Table:
    """A table of the policy: gives what is asked for, keeps what is wrong."""

    def __init__(
        self, members: Mapping[str, object], place: str, within: str, problems: list[str]
    ) -> None:
        self._members = dict(members)
        self._there = frozenset(members)
        self._place = place
        self._within = within
        self._problems = problems
        self._known: list[str] = []
        self.is_whole = True

    def fault(self, key: str, sentence: str) -> None:
        """Keep what is wrong with a key."""
        where = f"{self._within}.{key}" if self._within and key else self._within or key
        self._problems.append(f"{self._place}, {where}: {sentence}")
        self.is_whole = False

    def taken(self, key: str, read: Callable[[object], T]) -> T | None:
        """Return what a key holds, read; `None` if it is not there or is wrong."""
        self._known.append(key)
        if key not in self._members:
            return None
        try:
            return read(self._members.pop(key))
        except InvalidValue as error:
            self.fault(key, str(error))
            return None

    def has(self, key: str) -> bool:
        """Say whether a key that was asked for was there."""
        return key in self._there

    def inner(self, members: Mapping[str, object], key: str) -> "_Table":
        """Return the view of a table inside this one."""
        return _Table(members, self._place, key, self._problems)

    def no_more(self) -> None:
        """Refuse every key that was not asked for."""
        for key in self._members:
            near = get_close_matches(key, self._known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(self._known)}"
            self.fault(one_line(key, 60), f"there is no such key; {hint}")


# ---- a rule --------------------------------------------------------------------------------------


def _rule(table: _Table, number: int, line: int | None) -> Rule | None:
    """Return one rule, or `None` if something is wrong with it."""
    rule = Rule(
        number=number,
        line=line,
        tool=table.taken("tool", _tool_patterns) or (Pattern.of("*"),),
        origin=table.taken("origin", _patterns) or (Pattern.of("*"),),
        when=_when(table, table.taken("when", _table) or {}),
        where=tuple(_where(table, table.taken("where", _tables) or [])),
        confined=table.taken("confined", _confined),
        decide=_decide(table),
        reason=table.taken("reason", _reason),
    )
    table.no_more()
    if table.is_whole and _is_by_hints_alone(rule):
        table.fault(
            "when",
            "it would allow by hints alone, and a tool can say of itself what it likes; "
            "name a tool, an origin or a path in `where`",
        )
    return rule if table.is_whole else None


def _is_by_hints_alone(rule: Rule) -> bool:
    """Say whether nothing but what tools say of themselves would make it allow (AUT-3)."""
    named = rule.where or rule.confined is not None
    everything = any(one.is_everything for one in rule.tool) and any(
        one.is_everything for one in rule.origin
    )
    return rule.decide == "allow" and bool(rule.when) and everything and not named


def _decide(table: _Table) -> Decides:
    decide = table.taken("decide", _decides)
    if not table.has("decide"):
        table.fault("decide", 'it decides nothing; write decide = "allow", "deny" or "ask"')
    return decide or "deny"


def _decides(value: object) -> Decides:
    for decides in DECIDES:
        if value == decides:
            return decides
    raise InvalidValue('write "allow", "deny" or "ask"')


def _patterns(value: object) -> tuple[Pattern, ...]:
    values = [value] if isinstance(value, str) else _several(value)
    if not 0 < len(values) <= MOST_PATTERNS:
        raise InvalidValue(f"a list of patterns has 1 to {MOST_PATTERNS}; leave it out for any")
    return tuple(map(read_pattern, values))


def _tool_patterns(value: object) -> tuple[Pattern, ...]:
    patterns = _patterns(value)
    for pattern in patterns:
        if not pattern.can_be_a_tool:
            raise InvalidValue(
                f"`{one_line(pattern.text, 60)}` can never match: a tool's name has 1 to 128 of "
                "A-Z a-z 0-9 _ - . /"
            )
    return patterns


def _when(table: _Table, hints: Mapping[str, object]) -> dict[Hint, bool | None]:
    inner = table.inner(hints, "when")
    when: dict[Hint, bool | None] = {}
    for hint in HINTS:
        value = inner.taken(hint, _hint)
        if value is not None:
            when[hint] = None if value == "unstated" else value
    inner.no_more()
    table.is_whole = table.is_whole and inner.is_whole
    return when


def _hint(value: object) -> bool | Literal["unstated"]:
    if isinstance(value, bool):
        return value
    if value == "unstated":
        return "unstated"
    raise InvalidValue('write true, false or "unstated"')


def _confined(value: object) -> Confined:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return Pattern.of(value)
    raise InvalidValue("write true, false, or a pattern for the name of what confines the call")


def _reason(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidValue("write a sentence, or leave it out")
    if len(value.encode()) > _REASON:
        raise InvalidValue(f"a reason is read in full; write at most {_REASON} bytes")
    return value


# ---- where ---------------------------------------------------------------------------------------


def _where(table: _Table, entries: Sequence[Mapping[str, object]]) -> Iterator[Condition]:
    for index, entry in enumerate(entries):
        inner = table.inner(entry, f"where[{index}]")
        condition = _condition(inner)
        table.is_whole = table.is_whole and inner.is_whole
        if condition is not None and inner.is_whole:
            yield condition


def _condition(table: _Table) -> Condition | None:
    steps = table.taken("path", lambda value: (str(value), read_path(value)))
    equals = table.taken("equals", lambda value: (_json(value),))
    among = table.taken("in", _among)
    condition = Condition(
        path="" if steps is None else steps[0],
        steps=() if steps is None else steps[1],
        among=equals if among is None else among,
        matches=table.taken("matches", read_pattern),
        least=table.taken("min", _number),
        most=table.taken("max", _number),
        absent=bool(table.taken("absent", _absent)),
    )
    table.no_more()
    if not table.is_whole:
        return None
    if steps is None:
        table.fault("path", 'it looks at no argument; write path = "name"')
    _check(table, condition, both=equals is not None and among is not None)
    return condition


def _check(table: _Table, condition: Condition, *, both: bool) -> None:
    """Refuse a condition that says nothing, too much, or what nothing can satisfy."""
    asks = [
        one
        for one in (condition.among, condition.matches, condition.least, condition.most)
        if one is not None
    ]
    if both:
        table.fault("equals", "it is one of `in` already; keep one of the two")
    elif condition.absent and asks:
        table.fault("absent", "it can never match: what is absent has no value; keep one of them")
    elif condition.absent and None in condition.steps:
        table.fault("path", "`absent` asks for one place; write an index or a name, not [*]")
    elif not condition.absent and not asks:
        table.fault("", "it asks nothing; write in, equals, matches, min, max or absent = true")
    elif not condition.absent and not condition.is_possible:
        table.fault("", "it can never match: no value satisfies all of it; keep what can hold")


def _among(value: object) -> tuple[object, ...]:
    values = tuple(map(_json, _several(value)))
    if not values:
        raise InvalidValue("it can never match: the list is empty; name the values that may be")
    return values


def _json(value: object, room: int = DEEPEST) -> object:
    """Return a TOML value that an argument can equal: all but times, infinities and NaN."""
    match value:
        case str() | bool() | int():
            return value
        case float() if math.isfinite(value):
            return value
        case list() | dict() if room == 0:
            raise InvalidValue(f"it is nested more than {DEEPEST} deep; name a deeper path instead")
        case list():
            return [_json(one, room - 1) for one in cast("list[object]", value)]
        case dict():
            members = cast("dict[str, object]", value)
            return {name: _json(one, room - 1) for name, one in members.items()}
        case _:
            raise InvalidValue("an argument is JSON: write text, a number, true, false, [] or {}")


def _number(value: object) -> Number:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    raise InvalidValue("write a number")


def _absent(value: object) -> bool:
    if value is True:
        return True
    raise InvalidValue("write true, or leave it out")


# ---- shapes --------------------------------------------------------------------------------------


def _several(value: object) -> list[object]:
    if not isinstance(value, list):
        raise InvalidValue('write a list, as in ["a", "b"]')
    values = cast("list[object]", value)
    if len(values) > MOST_ITEMS:
        raise InvalidValue(f"it has more than {MOST_ITEMS} entries; write several rules")
    return values


def _table(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise InvalidValue("write a table, as in { read_only = true }")
    return cast("dict[str, object]", value)


def _entries(value: object) -> list[dict[str, object]]:
    entries = _tables(value)
    if len(entries) > MOST_RULES:
        raise InvalidValue(f"it has more than {MOST_RULES} rules; join some with patterns")
    return entries


def _tables(value: object) -> list[dict[str, object]]:
    values = _several(value)
    if not all(isinstance(one, dict) for one in values):
        raise InvalidValue("write a list of tables")
    return cast("list[dict[str, object]]", values)
