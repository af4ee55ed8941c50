r"""
Broken JSON in, text of the same content out: json_repair proposes, this room decides.

A repair that guesses is worse than a refusal: of a text that breaks off it makes a call with fewer
arguments, and of `{'a', 'b'}` a list. So the rule is what a person could check by eye. A repair may
change how a text is written and never what it says. Both texts are cut into tokens: brackets,
colons, commas, strings, numbers, `true`, `false` and `null`. They must be the same, one by one and
in order, where

- a string is its characters, whatever quotes and escapes it stands in; a plain word is one where a
  member's name stands;
- `True`, `False` and `None` are how Python spells the three;
- white space, also as a literal `\n`, and a fence of Markdown around the whole say nothing;
- a comma may go in front of a closing bracket, and may come between two members of an object.

What is no token (a byte string, a set, a complex number, a call, a string without an end, `NaN`)
is not repaired. What breaks off lacks a bracket, and what repeats a name loses one: neither is
repaired. Nothing is evaluated.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain, repeat
from typing import TypeAlias

import json_repair

from ferrule._contain import Broke, contain

LONGEST = 1 << 16
"""Characters of a text that is repaired: a quarter of a second of json_repair at the worst."""

Token: TypeAlias = tuple[str, object]
"""A kind, and what the token says."""


def mended(text: str) -> str | None:
    """
    Return a text that says the same as `text` in better JSON; `None` if nobody can be sure.

    Whether it is JSON, the one reader says.
    """
    written = None if len(text) > LONGEST else _tokens(_unfenced(text))
    if written is None:
        return None
    proposed = contain(_proposed, text)
    if isinstance(proposed, Broke):
        return None
    given = _tokens(proposed)
    return proposed if given is not None and _say_the_same(written, given) else None


def _proposed(text: str) -> str:
    return json_repair.repair_json(text)


_FENCE = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL)


def _unfenced(text: str) -> str:
    fenced = _FENCE.fullmatch(text)
    return fenced[1] if fenced else text


# ---- what a text says ----------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""
      (?P<space> (?: [ \t\r\n] | \\[nrt] )++ )
    | (?P<mark> [\[\]{},:] )
    | (?P<string> "[^"\\]*+(?:\\.[^"\\]*+)*+" | '[^'\\]*+(?:\\.[^'\\]*+)*+' )
    | (?P<number> -?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+ (?![\w.+-]) )
    | (?P<word> [A-Za-z_$][A-Za-z0-9_$]*+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_LITERALS: Mapping[str, Token] = {
    "true": ("literal", True),
    "True": ("literal", True),
    "false": ("literal", False),
    "False": ("literal", False),
    "null": ("literal", None),
    "None": ("literal", None),
}
_COMMA: Token = ("mark", ",")
_COLON: Token = ("mark", ":")
_OPENERS = (("mark", "{"), ("mark", "["))
_CLOSERS = (("mark", "}"), ("mark", "]"))
_DIGITS = 400
"""Characters of a number; what is finite as a double needs fewer, if it is written sensibly."""


def _tokens(text: str) -> list[Token] | None:
    """Return what a text says; `None` if a part of it is no token."""
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            return None
        position = found.end()
        kind = found.lastgroup or ""
        token = None if kind == "space" else _token(kind, found[0])
        if token is not None:
            tokens.append(token)
        elif kind != "space":
            return None
    return _settled(tokens)


def _token(kind: str, written: str) -> Token | None:
    if kind == "mark":
        return kind, written
    if kind == "word":
        return _LITERALS.get(written, (kind, written))
    if kind == "string":
        characters = _characters(written)
        return None if characters is None else (kind, characters)
    if len(written) > _DIGITS:
        return None
    return ("integer", int(written)) if written.lstrip("-").isdigit() else ("float", float(written))


def _settled(tokens: list[Token]) -> list[Token] | None:
    """Read words as names, and leave out commas in front of closers; no other word has a place."""
    settled: list[Token] = []
    nothing: Token = ("end", None)
    for before, token, after in zip(
        [nothing, *tokens], tokens, [*tokens[1:], nothing], strict=False
    ):
        kind, said = token
        if token == _COMMA and after in _CLOSERS and before not in (*_OPENERS, _COMMA):
            continue
        if kind == "word" and after != _COLON:
            return None
        settled.append(("string", said) if kind == "word" else token)
    return settled


_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'"}


def _characters(written: str) -> str | None:
    """Return the characters of a string in either quotes; `None` if an escape has two readings."""
    escapes = _ESCAPES | {"/": "/"} if written[0] == '"' else _ESCAPES
    parts: list[str] = []
    position, end = 1, len(written) - 1
    for found in _ESCAPED.finditer(written, position, end):
        code = found[1]
        character = chr(int(code[1:], 16)) if len(code) > 1 else escapes.get(code)
        if character is None:
            return None
        parts += (written[position : found.start()], character)
        position = found.end()
    text = "".join((*parts, written[position:end]))
    # Two escapes that are a pair of surrogates are one character.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


# ---- whether two texts say the same --------------------------------------------------------------


def _say_the_same(written: list[Token], given: list[Token]) -> bool:
    """Say whether `given` has the tokens of `written`, and besides only commas between members."""
    ours = _with_next(written)
    token, after = next(ours)
    for other in given:
        if token == other:
            token, after = next(ours)
        elif not (other == _COMMA and token[0] == "string" and after == _COLON):
            return False
    return token == _END


_END: Token = ("end", None)


def _with_next(tokens: list[Token]) -> Iterator[tuple[Token, Token]]:
    return zip(chain(tokens, repeat(_END)), chain(tokens[1:], repeat(_END)), strict=False)
