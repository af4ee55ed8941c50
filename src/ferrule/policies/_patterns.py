"""
Patterns of names, as in a shell: `*`, `?`, `[a-z]`, `[!a-z]`; upper and lower case differ.

What a pattern matches is what `fnmatch.fnmatchcase` says. To compare two patterns, each is also
read as a row of tokens: a star, or one character out of a set. A set is written down, or it is all
characters but those written down, so that comparing sets is exact in an alphabet without end.
Comparing rows is exact for `meets`; `covers` may miss that one pattern is wider than another, and
never says so wrongly.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from itertools import starmap, takewhile

import msgspec

from ferrule import InvalidValue

LONGEST = 128
"""Characters of a pattern, and of a tool's name."""

_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./")
"""What the name of a tool is made of (CONTRACT DEF-1)."""

_ASCII = frozenset(map(chr, range(128)))


class One(msgspec.Struct, frozen=True):
    """One character: one of these, or any but these."""

    characters: frozenset[str]
    others: bool = False

    @property
    def is_literal(self) -> bool:
        """Whether it is one character alone."""
        return len(self.characters) == 1 and not self.others

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
    """
    A pattern that was read.

    Attributes:
        text: As it is written.
        tokens: The same, to be compared.
        head: The characters that all that matches begins with.
        tail: And those that it ends with.
    """

    text: str
    tokens: tuple[Token, ...]
    head: str
    tail: str
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
        return all(map(_IN_NAMES.meets, singles))

    def covers(self, narrower: "Pattern") -> bool:
        """Say whether whatever matches `narrower` surely matches this one too."""
        outside = narrower.head.startswith(self.head) and narrower.tail.endswith(self.tail)
        return outside and _covers(self.tokens, narrower.tokens)

    def meets(self, other: "Pattern") -> bool:
        """Say whether some text matches both."""
        return (
            (self.head.startswith(other.head) or other.head.startswith(self.head))
            and (self.tail.endswith(other.tail) or other.tail.endswith(self.tail))
            and _meets(self.tokens, other.tokens)
        )


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
    tokens = tuple(_tokens(text))
    head, tail = _literal(tokens), _literal(tokens[::-1])[::-1]
    return Pattern(text, tokens, head, tail, re.compile(translate(text)))


def _literal(tokens: Iterable[Token]) -> str:
    """Return the characters at the beginning that no other can stand for."""
    sets = takewhile(lambda token: token is not None and token.is_literal, tokens)
    return "".join(character for token in sets if token for character in token.characters)


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


# ---- two patterns compared -----------------------------------------------------------------------


def _covers(wide: tuple[Token, ...], narrow: tuple[Token, ...]) -> bool:
    """Say whether each token of `narrow` stands where `wide` takes whatever it takes."""
    return _aligned(wide, narrow, _within)


def _meets(one: tuple[Token, ...], other: tuple[Token, ...]) -> bool:
    """Say whether some text matches both."""
    if None in one and None in other:
        # What stands between the outer stars finds room: one after the other, between the ends.
        ends = (zip(one, other, strict=False), zip(one[::-1], other[::-1], strict=False))
        return all(all(starmap(_meet, takewhile(all, end))) for end in ends)
    glob, row = (one, other) if None in one else (other, one)
    return _aligned(glob, row, _meet)


def _aligned(
    glob: Sequence[Token], row: Sequence[Token], fits: Callable[[Token, Token], bool]
) -> bool:
    """
    Match a row of tokens as a glob matches characters.

    Only the last star is ever taken back: what an earlier one took could only have been less.
    """
    i = j = begin = 0
    star: int | None = None
    while j < len(row):
        if i < len(glob) and glob[i] is None:
            i, star, begin = i + 1, i, j
        elif i < len(glob) and fits(glob[i], row[j]):
            i, j = i + 1, j + 1
        elif star is not None:
            begin += 1
            i, j = star + 1, begin
        else:
            return False
    return not any(glob[i:])


def _within(wide: Token, narrow: Token) -> bool:
    return wide is not None and narrow is not None and narrow.is_within(wide)


def _meet(one: Token, other: Token) -> bool:
    return one is not None and other is not None and one.meets(other)
