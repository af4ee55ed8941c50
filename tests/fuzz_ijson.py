"""
A differential fuzz of the JSON reader: `python tests/fuzz_ijson.py --texts 200000`.

Three readers see each text: `read` with its fast path, the exact path alone, and a third one,
written here from the RFCs character by character, with nothing of either in it. They must agree
on the value, to the order of members and the sign of zero, or all refuse.

A text is spelled out of random bytes. That way Hypothesis can shrink a failing text by shrinking
its bytes, and makes thousands of texts a second.
"""

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ferrule import _ijson
from ferrule.errors import InvalidJSON

LIMITS = _ijson.Limits()
BATCH = 20


def words(text: str) -> tuple[str, ...]:
    """Return the parts of a text between spaces."""
    return tuple(text.split(" "))


LITERALS = ("null", "true", "false", "{}", "[]", '""', " [ ] ", r'"\u003a"', r'"\u003A"')
NUMBERS = (
    *words("0 -0 1 -1 12 0.0 -0.0 1.5 2.0 1e5 1E+2 1e16 1e-7 123e+30 4e+1 9007199254740993"),
    *words("9223372036854775807 -9223372036854775808 -9223372036854775809 99999999999999999999"),
    *words("18446744073709551615 18446744073709551616 1e400 -1e400 5e-324 1e-400"),
    *words("1.7976931348623157e308 1.7976931348623159e308"),
    *("9" * 308, "1" + "0" * 308, "9" * 309, "1" * 310, "1" * 5000, "0." + "1" * 400),
)
NOT_NUMBERS = words("NaN Infinity -Infinity 01 +1 1. .5 - 1e 0x1 1_0 \uff11")
PIECES = (
    *words("a b : e+ [ ] { } , é 漢 😀 \x7f 1e+20 0000000000000000000"),
    *(" ", "\u2028", "\ufeff", "\u1ffe", "\u1fff", "\ufdf0", "\ufffd", "\U0001fffd"),
    *words(r"\n \" \\ \/ \u0061 \u003a \u003A \u003b \\u003a \u0000 \u00e9 \\ufffe"),
    *words(r"\ud83d\ude00 \ud800 \udc00 \ude00\ud83d \uD83D\u0061 \ud83d\ud83d\ude00"),
    *words(r"\ufffe \uFFFF \ufdd0 \uFDEF \ufdf0 \ufdcf \ud83f\udfff"),
    *("\ufffe", "\uffff", "\ufdd0", "\ufdef", "\U0001fffe", "\U0010ffff", "\ud800", "\udfff"),
    *("\t", "\n", "\x00", r"\x", r"\u12", r"\u+123", r"\U0061", "\\u\uff10\uff1061", "\\", '"'),
)
NAMES = (*words(r"a b \u0061 \u0062 a:b é \u00e9 e+ \ud83d\ude00 😀"), "")
SPACES = ("", "", "", "", "", " ", "\n", "\t\r ", "\f", "\u00a0", "\ufeff", "\u2003")
INSERTIONS = ("", " ", "\x00", *words(r""" " , : [ { ] } \ 0 - . e // """))

ESCAPES = dict(zip('"\\/bfnrt', '"\\/\b\f\n\r\t', strict=True))


class Refused(Exception):
    """The reference does not take a text for I-JSON."""


class Reference:
    """A third reader, slow and plain, that shares nothing with the two it judges."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def document(self) -> object:
        """Read the whole text."""
        value = self.value()
        self.space()
        if self.at != len(self.text):
            raise Refused
        return value

    def value(self) -> object:
        """Read one value and the space before it."""
        self.space()
        for word, meaning in (("null", None), ("true", True), ("false", False)):
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return meaning
        if self.take("["):
            return self.array()
        if self.take("{"):
            return self.object()
        return self.string() if self.take('"') else self.number()

    def array(self) -> list[object]:
        """Read what follows an opening bracket."""
        items: list[object] = []
        self.space()
        if self.take("]"):
            return items
        while True:
            items.append(self.value())
            self.space()
            if self.take("]"):
                return items
            self.must(",")

    def object(self) -> dict[str, object]:
        """Read what follows an opening brace."""
        members: dict[str, object] = {}
        self.space()
        if self.take("}"):
            return members
        while True:
            self.space()
            self.must('"')
            name = self.string()
            if name in members:
                raise Refused
            self.space()
            self.must(":")
            members[name] = self.value()
            self.space()
            if self.take("}"):
                return members
            self.must(",")

    def string(self) -> str:
        """Read what follows an opening quote."""
        units: list[int] = []  # of UTF-16, so that halves of a pair find each other
        while not self.take('"'):
            character = self.next()
            if character == "\\":
                units.append(self.escape())
            elif character < " " or 0xD800 <= ord(character) < 0xE000:
                raise Refused
            else:
                encoded = character.encode("utf-16-be")
                units += [int.from_bytes(encoded[i : i + 2]) for i in range(0, len(encoded), 2)]
        try:
            string = b"".join(unit.to_bytes(2) for unit in units).decode("utf-16-be")
        except UnicodeDecodeError:
            raise Refused from None
        for character in string:
            point = ord(character)
            if point & 0xFFFE == 0xFFFE or 0xFDD0 <= point <= 0xFDEF:
                raise Refused
        return string

    def escape(self) -> int:
        """Read what follows a backslash."""
        letter = self.next()
        if letter != "u":
            if letter not in ESCAPES:
                raise Refused
            return ord(ESCAPES[letter])
        digits = "".join(self.next() for _ in range(4))
        if not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise Refused
        return int(digits, 16)

    def number(self) -> int | float:
        """Read a number that is finite as a double."""
        start = self.at
        self.take("-")
        if not self.take("0"):
            self.digits()
        whole = True
        if self.take("."):
            whole = False
            self.digits()
        if self.take("e") or self.take("E"):
            whole = False
            if not self.take("+"):
                self.take("-")
            self.digits()
        spelled = self.text[start : self.at]
        if math.isinf(float(spelled)):
            raise Refused
        return int(spelled) if whole else float(spelled)

    def digits(self) -> None:
        """Pass one digit or more."""
        start = self.at
        while self.text[self.at : self.at + 1] in tuple("0123456789"):
            self.at += 1
        if self.at == start:
            raise Refused

    def space(self) -> None:
        """Pass white space."""
        while self.text[self.at : self.at + 1] in (" ", "\t", "\n", "\r"):
            self.at += 1

    def next(self) -> str:
        """Pass one character and return it."""
        if self.at >= len(self.text):
            raise Refused
        self.at += 1
        return self.text[self.at - 1]

    def take(self, character: str) -> bool:
        """Pass a character if it is next."""
        found = self.text.startswith(character, self.at)
        self.at += found
        return found

    def must(self, character: str) -> None:
        """Pass a character that must be next."""
        if not self.take(character):
            raise Refused


class Speller:
    """Spells a text out of bytes: each choice takes one byte, and zero is the plainest choice."""

    def __init__(self, entropy: bytes) -> None:
        self.entropy = iter(entropy)

    def below(self, bound: int) -> int:
        """Return a number from 0 to below `bound`."""
        return next(self.entropy, 0) % bound

    def one_of(self, choices: tuple[str, ...]) -> str:
        """Return one of the choices."""
        return choices[self.below(len(choices))]

    def text(self) -> str | bytes:
        """Return a text that may be I-JSON, nearly I-JSON or broken, as characters or bytes."""
        text = self.space() + self.value(4) + self.space()
        for _ in range(max(0, self.below(8) - 5)):
            text = self.mutated(text)
        form = self.below(16)
        if form < 8:
            return text
        data = text.encode("utf-8", "surrogatepass")
        if form == 15:
            return text.encode("utf-16", "surrogatepass")
        if form == 14 and data:
            at = self.below(len(data))
            return data[:at] + bytes([self.below(256)]) + data[at + 1 :]
        return data

    def mutated(self, text: str) -> str:
        """Return the text with a few characters cut out and a few others put in."""
        at = self.below(len(text) + 1)
        return text[:at] + self.one_of(INSERTIONS) + text[at + self.below(4) :]

    def space(self) -> str:
        """Return white space, seldom of the wrong kind."""
        return self.one_of(SPACES) if self.below(4) == 3 else ""

    def value(self, room: int) -> str:
        """Return a value with at most `room` levels of containers."""
        kind = self.below(16)
        if room and kind >= 10:
            parts = [
                self.member(room) if kind >= 13 else self.item(room) for _ in range(self.below(5))
            ]
            inside = ",".join(parts)
            return f"{{{inside}}}" if kind >= 13 else f"[{inside}]"
        if kind >= 6:
            return self.string()
        if kind >= 2:
            return self.one_of(NUMBERS)
        if kind == 1 and self.below(8) == 7:
            return self.one_of(NOT_NUMBERS)
        return self.one_of(LITERALS)

    def item(self, room: int) -> str:
        """Return a value with space around it."""
        return f"{self.space()}{self.value(room - 1)}{self.space()}"

    def member(self, room: int) -> str:
        """Return a member; few names there are, so that some are repeated."""
        name = f'"{self.one_of(NAMES)}"' if self.below(8) < 7 else self.string()
        return f"{self.space()}{name}{self.space()}:{self.item(room)}"

    def string(self) -> str:
        """Return a string of a few pieces."""
        return f'"{"".join(self.one_of(PIECES) for _ in range(self.below(4)))}"'


def batches() -> st.SearchStrategy[list[str | bytes]]:
    """Return a strategy for texts of all kinds, many at a time, since an example costs more."""

    def batch(entropy: bytes) -> list[str | bytes]:
        speller = Speller(entropy)
        return [speller.text() for _ in range(BATCH)]

    return st.binary(min_size=24 * BATCH, max_size=100 * BATCH).map(batch)


def answer(reader: Callable[[], object]) -> str:
    """Return a reader's value as text, with order, types and signs, or that it refused."""
    try:
        return repr(reader())
    except (InvalidJSON, Refused):
        return "refused"


def reference(text: str | bytes) -> object:
    """Read a text by the reference."""
    try:
        return Reference(text if isinstance(text, str) else text.decode()).document()
    except UnicodeDecodeError:
        raise Refused from None


def difference(text: str | bytes) -> str:
    """Return how the readers disagree on a text; nothing if they agree."""
    wide = False

    def by_both_paths() -> object:
        nonlocal wide
        value, wide = _ijson.read(text, limit=LIMITS.argument_bytes, limits=LIMITS)
        return value

    answers = {
        "read": answer(by_both_paths),
        "exact": answer(lambda: _ijson._read_exactly(text, vouched=False)),
        "reference": answer(lambda: reference(text)),
    }
    if len(set(answers.values())) > 1:
        return f"{text!r}: {answers}"
    if answers["read"] != "refused" and not wide and any(_ijson.wide_integers(reference(text))):
        return f"{text!r}: an integer outside 64 bits was not announced"
    return ""


def is_fast(text: str | bytes) -> bool:
    """Say whether a text is read without the exact path."""
    exactly = _ijson._read_exactly
    fast = True

    def noted(text: str | bytes, *, vouched: bool) -> object:
        nonlocal fast
        fast = False
        return exactly(text, vouched=vouched)

    _ijson._read_exactly = noted
    try:
        _ijson.read(text, limit=LIMITS.argument_bytes, limits=LIMITS)
    except InvalidJSON:
        pass
    finally:
        _ijson._read_exactly = exactly
    return fast


def main() -> int:
    """Fuzz, print what was seen, and return 1 if the readers disagreed."""
    parser = argparse.ArgumentParser(description="Compare three readers of JSON on made-up texts.")
    parser.add_argument("--texts", type=int, default=200_000, help="how many texts to make")
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
    def compare(batch: list[str | bytes]) -> None:
        for text in batch:
            found = difference(text)
            assert not found, found
            seen["texts"] += 1
            seen["refused"] += answer(partial(_ijson.read_json, text)) == "refused"
            seen["fast"] += is_fast(text)

    try:
        compare()
    except AssertionError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    read = seen["texts"] - seen["refused"]
    sys.stdout.write(
        f"{seen['texts']:,} texts: {read:,} read, {seen['fast']:,} of them on the fast path,"
        f" {seen['refused']:,} refused; no difference\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
