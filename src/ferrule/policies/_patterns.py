"""
Patterns of names, as in a shell: `*`, `?`, `[a-z]`, `[!a-z]`; upper and lower case differ.

What a pattern matches is what `fnmatch.fnmatchcase` says. To compare two patterns, each is also
read as a row of tokens: a star, or one character out of a set. A set is written down, or it is all
characters but those written down, so that comparing sets is exact in an alphabet without end.
Comparing rows is exact for `meets`; `covers` may miss that one pattern is wider than another, and
never says so wrongly.
"""

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase, translate
from functools import lru_cache

import msgspec

from ferrule import InvalidValue

LONGEST = 256
"""Characters of a pattern."""

_NAME_LENGTH = 128
_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./")
"""What the name of a tool is made of (CONTRACT DEF-1)."""

_ASCII = frozenset(map(chr, range(128)))


class One(msgspec.Struct, frozen=True):
    """One character: one of these, or any but these."""

    characters: frozenset[str]
    others: bool = False

    def is_within(self, wider: "One") -> bool:
        """Say whether each character that it takes, `wider` takes too."""
        match self.others, wider.others:
            case False, False:
                return self.characters <= wider.characters
            case False, True:
                return not self.characters & wider.characters
            case True, True:
                return wider.characters <= self.characters
            case _:
                return False

    def meets(self, other: "One") -> bool:
        """Say whether both take some character."""
        if self.others or other.others:
            few, many = (other, self) if self.others else (self, other)
            return few.others or bool(few.characters - many.characters)
        return bool(self.characters & other.characters)


Token = One | None
"""One character, or `None`: a star."""

_ANY = One(frozenset(), others=True)
_IN_NAMES = One(_NAME)


class Pattern(msgspec.Struct, frozen=True):
    """A pattern that was read: its text, its tokens, and what matches it."""

    text: str
    tokens: tuple[Token, ...]
    _regex: re.Pattern[str]

    @classmethod
    def of(cls, text: str) -> "Pattern":
        """
        Read a pattern.

        Raises:
            InvalidValue: it is empty, too long, or nothing can match it.
        """
        if not 0 < len(text) <= LONGEST:
            raise InvalidValue(f"a pattern has 1 to {LONGEST} characters")
        return _read(text)

    def matches(self, text: str) -> bool:
        """Say whether the whole of `text` matches."""
        return self._regex.match(text) is not None

    @property
    def is_everything(self) -> bool:
        """Whether every text that is not empty matches."""
        singles = [token for token in self.tokens if token is not None]
        return None in self.tokens and singles in ([], [_ANY])

    @property
    def is_literal(self) -> bool:
        """Whether one text alone matches: there is nothing in it that stands for another."""
        return not set(self.text) & set("*?[")

    @property
    def can_be_a_tool(self) -> bool:
        """Whether some legal name of a tool matches."""
        singles = [token for token in self.tokens if token is not None]
        return len(singles) <= _NAME_LENGTH and all(map(_IN_NAMES.meets, singles))

    def covers(self, narrower: "Pattern") -> bool:
        """Say whether whatever matches `narrower` surely matches this one too."""
        return _covers(self.tokens, narrower.tokens)

    def meets(self, other: "Pattern") -> bool:
        """Say whether some text matches both."""
        return _meets(self.tokens, other.tokens)


def read_pattern(value: object) -> Pattern:
    """
    Return a pattern that stands in a policy.

    Raises:
        InvalidValue: it is no text, or no pattern.
    """
    if not isinstance(value, str):
        raise InvalidValue('write a pattern in quotes, as in "git_*"')
    return Pattern.of(value)


@lru_cache(maxsize=4096)
def _read(text: str) -> Pattern:
    return Pattern(text, tuple(_tokens(text)), re.compile(translate(text)))


def _tokens(text: str) -> Iterator[Token]:
    """Yield the tokens, taking brackets for what `fnmatch` takes them."""
    at, star = 0, False
    while at < len(text):
        part = _part(text, at)
        at += len(part)
        if part == "*":
            if not star:
                yield None
        else:
            yield _one(part)
        star = part == "*"


def _part(text: str, at: int) -> str:
    """Return the token's text at a place: a character, or a bracket with its end."""
    first = at + 2 if text.startswith("!", at + 1) else at + 1
    end = text.find("]", first + 1) if text[at] == "[" else -1
    return text[at : end + 1] if end >= 0 else text[at]


def _one(part: str) -> One:
    if part == "?":
        return _ANY
    if len(part) == 1:
        return One(frozenset(part))
    if not part.isascii():
        raise InvalidValue("a [bracket] holds ASCII characters only; write ? for any character")
    taken = frozenset(character for character in _ASCII if fnmatchcase(character, part))
    if part.startswith("[!"):
        return One(_ASCII - taken, others=True)
    if not taken:
        raise InvalidValue(f"no character matches `{part}`; write the lower end of a range first")
    return One(taken)


Step = Callable[[int, int, list[list[bool]]], bool]


def _table(rows: int, columns: int, step: Step) -> bool:
    """Fill a table from its end, each field from the fields after it; return the first field."""
    fields = [[False] * (columns + 1) for _ in range(rows + 1)]
    for row in range(rows, -1, -1):
        for column in range(columns, -1, -1):
            fields[row][column] = step(row, column, fields)
    return fields[0][0]


@lru_cache(maxsize=65536)
def _covers(wide: tuple[Token, ...], narrow: tuple[Token, ...]) -> bool:
    if wide == narrow:
        return True

    def step(i: int, j: int, fields: list[list[bool]]) -> bool:
        if i == len(wide):
            return j == len(narrow)
        token = wide[i]
        if token is None:  # A star takes nothing, or whatever is next.
            return fields[i + 1][j] or (j < len(narrow) and fields[i][j + 1])
        other = narrow[j] if j < len(narrow) else None
        return other is not None and other.is_within(token) and fields[i + 1][j + 1]

    return _table(len(wide), len(narrow), step)


@lru_cache(maxsize=65536)
def _meets(one: tuple[Token, ...], other: tuple[Token, ...]) -> bool:
    def step(i: int, j: int, fields: list[list[bool]]) -> bool:
        ended, others_ended = i == len(one), j == len(other)
        if not ended and one[i] is None:
            return fields[i + 1][j] or (not others_ended and fields[i][j + 1])
        if not others_ended and other[j] is None:
            return fields[i][j + 1] or (not ended and fields[i + 1][j])
        if ended or others_ended:
            return ended and others_ended
        a, b = one[i], other[j]
        return a is not None and b is not None and a.meets(b) and fields[i + 1][j + 1]

    return _table(len(one), len(other), step)
