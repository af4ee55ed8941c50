"""
A fuzz of the reader of rules: `python tests/fuzz_policies.py --texts 20000`.

Each text is a policy, nearly one, or broken. Reading it gives rules or `InvalidPolicy`, and takes
little memory. Calls that are made up too are then judged by the rules and by a second reading,
written here from the documentation with nothing of the first in it: both must decide alike. Where
reading says that a rule can never match, taking that rule's word against the others', no call may
be found that it is the first for.
"""

import argparse
import json
import math
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import cast

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ferrule import Authorization, Definition, Traits, canonical
from ferrule.policies import InvalidPolicy, Rules
from fuzz_ijson import Speller, words
from fuzzing import peak_of
from policies.facts import word

BATCH = 10
CALLS = 12

NAMES = ("git_log", "git_push", "read", "a", "b/c", "x.y-z")
ORIGINS = ("local", "mcp:git", "mcp:é", "")
ORIGIN_PATTERNS = (*ORIGINS[:3], "mcp:*", "*", "[lm]*")
TOOLS = (*NAMES[:4], *words("* git_* *_log ?* ? [ab] [!a]* *a* g[a-z]t_* b/*"))
NO_TOOLS = ("", *words("[a [] [z-a] [!] [é] é* ** a%"))
PATHS = (*words("a b a.b a[0] a[*] a[*].b a[1][*]"), '["a b"]')
NO_PATHS = ("", *words("[0] a. a..b a[-1] é $a a[0"))
VALUES = (
    *words('1 1.0 2 -1 true false "a" "b" "ab" 0.5 "\\u0061" 1e3 "*" 9223372036854775808'),
    *words("[] [1] [1,[1]] {} {b=1} {b=[true]} [{b=1},{b=2}]"),
)
NO_VALUES = words("inf nan 1979-05-27 12:00:00 01 'a")
DECIDES = ('"allow"', '"deny"', '"ask"')
CONFINED = ("true", "false", '"*"', '"jail:*"')
ODDITIES = ("reason = ''", "reason = 'r'", "foo = 1", "when = 1", "confined = 1", "where = 'a'")
JSON: tuple[object, ...] = (
    *(1, 1.0, 2, -1, True, False, "a", "b", "ab", 0.5, None, "", 1000, 2**63, "é"),
    *([], [1], [1, [1]], {}, {"b": 1}, {"b": [True]}, [{"b": 1}, {"b": 2}], [[1, 1]], ["a", "a"]),
)
HINTS = ("read_only", "destructive", "idempotent", "open_world")
BREAKS = ("", "", '"', "[", "]", "{", "}", "=", "\n", "#", ".", "\x00", "é", "'''", "[[rule]]\n")


class PolicySpeller(Speller):
    """Spells policies, and calls that they are for."""

    def policy(self) -> str:
        """Return a policy: most are whole, some have a few characters too many or too few."""
        text = "".join(self.rule() for _ in range(self.below(4) + 1))
        for _ in range(max(0, self.below(8) - 6)):
            at = self.below(256) * (len(text) + 1) // 256
            text = text[:at] + self.one_of(BREAKS) + text[at + self.below(3) :]
        return text

    def rule(self) -> str:
        """Return one rule."""
        lines = [f"decide = {self.mostly(DECIDES, ('1', 'allow'))}"]
        if self.below(3):
            lines.append(f"tool = {self.listed(TOOLS, NO_TOOLS)}")
        if not self.below(3):
            lines.append(f"origin = {self.listed(ORIGIN_PATTERNS, NO_TOOLS)}")
        if not self.below(3):
            lines.append(f"when = {{{self.hint()}}}")
        if self.below(2):
            lines.append(f"where = [{', '.join(self.where() for _ in range(self.below(3)))}]")
        if not self.below(4):
            lines.append(f"confined = {self.one_of(CONFINED)}")
        if self.seldom():
            lines.append(self.one_of(ODDITIES))
        return "\n".join(["[[rule]]", *lines, ""])

    def seldom(self) -> bool:
        """Say yes now and then."""
        return self.below(64) == 63

    def mostly(self, good: tuple[str, ...], bad: tuple[str, ...]) -> str:
        """Return one that is good, now and then a bad one."""
        return self.one_of(bad if self.seldom() else good)

    def listed(self, good: tuple[str, ...], bad: tuple[str, ...]) -> str:
        """Return a pattern, or a list of them."""
        patterns = [self.mostly(good, bad) for _ in range(self.below(3))]
        few = [json.dumps(pattern, ensure_ascii=False) for pattern in patterns]
        return few[0] if len(few) == 1 else f"[{', '.join(few)}]" if few else '"*"'

    def hint(self) -> str:
        """Return one or two hints."""
        values = ("true", "false", '"unstated"')
        hints = dict.fromkeys(self.one_of(HINTS) for _ in range(self.below(2) + 1))
        return ", ".join(f"{hint} = {self.one_of(values)}" for hint in hints)

    def where(self) -> str:
        """Return one condition."""
        value, other = (self.mostly(VALUES, NO_VALUES) for _ in range(2))
        number = self.mostly(("0", "1", "1.5", "-1"), VALUES)
        text = json.dumps(self.mostly(TOOLS, NO_TOOLS), ensure_ascii=False)
        asks = (
            *(f"equals = {value}", f"in = [{value}, {other}]", f"matches = {text}"),
            *(f"min = {number}", f"max = {number}", "absent = true"),
        )
        few = dict.fromkeys(self.one_of(asks) for _ in range(2 if self.seldom() else 1))
        path = json.dumps(self.mostly(PATHS, NO_PATHS), ensure_ascii=False)
        return f"{{path = {path}, {', '.join(few)}}}"

    def call(self) -> Authorization:
        """Return a call."""
        hints = [(None, True, False)[self.below(3)] for _ in HINTS]
        arguments = {name: JSON[self.below(len(JSON))] for name in ("a", "b", "a b")}
        return Authorization(
            definition=Definition(self.one_of(NAMES)),
            arguments={name: value for name, value in arguments.items() if self.below(4)},
            origin=self.one_of(ORIGINS),
            traits=Traits(
                read_only=hints[0], destructive=hints[1], idempotent=hints[2], open_world=hints[3]
            ),
            confinement=(None, "jail:1", "other")[self.below(3)],
        )


# ---- a second reading ----------------------------------------------------------------------------


def decided(text: str, call: Authorization) -> str:
    """Return what a policy decides, read the plain way."""
    for rule in tomllib.loads(text)["rule"]:
        if is_for(rule, call):
            return str(rule["decide"])
    return "deny"


def is_for(rule: dict[str, object], call: Authorization) -> bool:
    """Say whether all of a rule holds."""
    names = ((rule.get("tool", "*"), call.definition.name), (rule.get("origin", "*"), call.origin))
    confined = rule.get("confined")
    is_confined = call.confinement is not None
    return (
        all(any(fnmatchcase(text, one) for one in several(given)) for given, text in names)
        and all(said(call.traits, hint) == value for hint, value in members(rule.get("when", {})))
        and (
            confined in (None, is_confined)
            if not isinstance(confined, str)
            else is_confined and fnmatchcase(str(call.confinement), confined)
        )
        and all(holds(one, call.arguments) for one in cast("list[object]", rule.get("where", [])))
    )


def several(given: object) -> list[str]:
    """Return a pattern or a list of them as a list."""
    return [given] if isinstance(given, str) else cast("list[str]", given)


def members(table: object) -> list[tuple[str, object]]:
    """Return what a table holds."""
    return list(cast("dict[str, object]", table).items())


def said(traits: Traits, hint: str) -> object:
    """Return a hint as a policy names it."""
    if hint == "read_only" and traits.read_only and traits.destructive:
        return False
    value = getattr(traits, hint)
    return "unstated" if value is None else value


def holds(condition: object, arguments: object) -> bool:
    """Say whether one condition holds."""
    asks = dict(members(condition))
    path = str(asks.pop("path"))
    steps = re.findall(r'\[\*\]|\[[0-9]+\]|\["[^"]*"\]|[^.\[\]]+', path)
    try:
        values = list(reach(steps, arguments))
    except LookupError:
        return set(asks) == {"absent"}
    return "absent" not in asks and all(
        satisfies(value, ask, wanted) for value in values for ask, wanted in asks.items()
    )


def reach(steps: list[str], value: object) -> Iterator[object]:
    """Yield what a path leads to; raises where it leads nowhere."""
    if not steps:
        yield value
        return
    step, *rest = steps
    if step == "[*]":
        if not isinstance(value, list) or not value:
            raise LookupError
        for element in value:
            yield from reach(rest, element)
    elif step.startswith("[") and step[1].isdigit():
        if not isinstance(value, list):
            raise LookupError
        yield from reach(rest, value[int(step[1:-1])])
    else:
        if not isinstance(value, dict):
            raise LookupError
        yield from reach(rest, value[step.strip('[]"')])


def satisfies(value: object, ask: str, wanted: object) -> bool:
    """Say whether a value is what one operator asks for."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match ask:
        case "equals":
            return canonical(value) == canonical(wanted)
        case "in":
            return any(satisfies(value, "equals", one) for one in cast("list[object]", wanted))
        case "matches":
            return isinstance(value, str) and fnmatchcase(value, str(wanted))
        case "min":
            return number and cast("float", value) >= cast("float", wanted)
        case "max":
            return number and cast("float", value) <= cast("float", wanted)
        case _:
            raise AssertionError(ask)


# ---- the two compared ----------------------------------------------------------------------------


def fault(text: str, calls: list[Authorization]) -> str:
    """Return what is wrong with how a text is read or judged; nothing if all is well."""
    try:
        rules = Rules.parse(text)
    except InvalidPolicy as error:
        return undead(text, error, calls)
    for call in calls:
        first, second = word(rules(call)), decided(text, call)
        if first != second:
            return f"{text}\n{call.definition.name} {call.arguments}: {first}, not {second}"
    return ""


def undead(text: str, error: InvalidPolicy, calls: list[Authorization]) -> str:
    """Return a call that is for a rule which was said to be dead; nothing if there is none."""
    dead = [re.search(r"rule (\d+).* it can never match", problem) for problem in error.problems]
    if not error.problems or not all(dead):
        return "" if error.problems and str(error) else f"{text}\nwas refused without a word"
    rules = tomllib.loads(text)["rule"]
    for number in (int(found[1]) for found in dead if found):
        for call in calls:
            if is_for(rules[number - 1], call) and not any(
                is_for(rule, call) for rule in rules[: number - 1]
            ):
                return f"{text}\nrule {number} is alive: {call.definition.name} {call.arguments}"
    return ""


def memory(text: str) -> int:
    """Return how many bytes more than it should reading a text takes at its height."""

    def read() -> None:
        with suppress(InvalidPolicy):
            Rules.parse(text)

    return peak_of(read) - 8 * len(text.encode()) - 2**20


def batches() -> st.SearchStrategy[list[tuple[str, list[Authorization]]]]:
    """Return a strategy for policies and calls, many at a time, since an example costs more."""

    def batch(entropy: bytes) -> list[tuple[str, list[Authorization]]]:
        speller = PolicySpeller(entropy)
        return [(speller.policy(), [speller.call() for _ in range(CALLS)]) for _ in range(BATCH)]

    return st.binary(min_size=200 * BATCH, max_size=500 * BATCH).map(batch)


def main() -> int:
    """Fuzz, print what was seen, and return 1 if something was wrong."""
    parser = argparse.ArgumentParser(description="Read and judge by made-up policies.")
    parser.add_argument("--texts", type=int, default=20_000, help="how many policies to make")
    wanted: int = parser.parse_args().texts
    seen: Counter[str] = Counter()

    @settings(
        max_examples=math.ceil(wanted / BATCH),
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(batches())
    def compare(batch: list[tuple[str, list[Authorization]]]) -> None:
        for text, calls in batch:
            found = fault(text, calls)
            assert not found, found
            seen["texts"] += 1
            try:
                rules = Rules.parse(text)
                seen.update(word(rules(call)) for call in calls)
            except InvalidPolicy as error:
                seen["refused"] += 1
                seen["dead"] += "can never match" in str(error)
        assert memory(batch[0][0]) <= 0, batch[0][0]

    try:
        compare()
    except AssertionError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    words_seen = ", ".join(f"{seen[one]:,} {one}" for one in ("allow", "ask", "deny"))
    sys.stdout.write(
        f"{seen['texts']:,} policies: {seen['refused']:,} refused, {seen['dead']:,} of them for a"
        f" rule that is dead; calls judged: {words_seen}; no difference\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
