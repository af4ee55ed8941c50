r"""
Broken JSON in, text of the same content out: json_repair proposes, this room decides.

A repair that guesses is worse than a refusal: of a text that breaks off it makes a call with fewer
arguments, and of `{'a', 'b'}` a list. So the rule is what a person could check by eye. A repair may
change how a text is written and never what it says. A text is cut into tokens (brackets, colons,
commas, strings, numbers, `true`, `false`, `null`), json_repair is given them in JSON's spelling,
and what it proposes must have the same tokens, one by one and in order, where

- a string is its characters, whatever quotes and escapes it stands in; a plain word is one where a
  member's name stands;
- `True`, `False` and `None` are how Python spells the three;
- white space, also as a literal `\n`, and a fence of Markdown around the whole say nothing;
- a comma may go in front of a closing bracket, and may come between two members that stand apart.

What is no token (a byte string, a complex number, a call, a comment, a string without an end, an
escape that JSON and Python read differently, `NaN`) is not repaired. A text that breaks off lacks
a bracket, a set lacks colons, and of a repeated name one is lost: not the same tokens, so none is
repaired. Nothing is evaluated.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain, repeat
from typing import TypeAlias

import json_repair

from ferrule._contain import Broke, contain

LONGEST = 1 << 15
"""Characters of a text that is repaired: half a second at the worst that was found."""

Token: TypeAlias = tuple[str, str | float | bool | None]
"""
A kind, and what the token says.

The kind tells apart what is equal in Python: `1`, `1.0` and `True`.
"""


def mended(text: str) -> str | None:
    """
    Return a text that says the same as `text` in better JSON; `None` if nobody can be sure.

    Whether it is JSON, the one reader says.
    """
    written = None if len(text) > LONGEST else _tokens(_unfenced(text))
    if written is None:
        return None
    proposed = contain(_proposed, " ".join(map(_spelt, written)))
    if isinstance(proposed, Broke):
        return None
    given = _tokens(proposed)
    return proposed if given is not None and _say_the_same(written, given) else None


def _proposed(text: str) -> str:
    return json_repair.repair_json(text)


def _spelt(token: Token) -> str:
    """Return a token as JSON spells it: of other quotes json_repair makes its strangest guesses."""
    kind, said = token
    return str(said) if kind == "mark" else json.dumps(said, ensure_ascii=False)


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
_END: Token = ("end", None)
_COMMA: Token = ("mark", ",")
_COLON: Token = ("mark", ":")
_OPEN = (("mark", "{"), ("mark", "["), _COMMA)
_CLOSERS = (("mark", "}"), ("mark", "]"))
_BETWEEN = ("mark", "space")
_DIGITS = 400
"""Characters of a number; what is finite as a double needs fewer, if it is written sensibly."""


def _tokens(text: str) -> list[Token] | None:
    """Return what a text says; `None` if a part of it is no token, or two of them touch."""
    tokens: list[Token] = []
    position, before = 0, "space"
    while position < len(text):
        found = _TOKEN.match(text, position)
        kind = (found and found.lastgroup) or ""
        if found is None or not (kind in _BETWEEN or before in _BETWEEN):
            return None
        position, before = found.end(), kind
        token = _token(kind, found[0])
        if token is None:
            return None
        if kind != "space":
            tokens.append(token)
    return _named(_needed(tokens))


def _token(kind: str, written: str) -> Token | None:
    if kind in _BETWEEN:
        return kind, written
    if kind == "word":
        return _LITERALS.get(written, (kind, written))
    if kind == "string":
        characters = _characters(written)
        return None if characters is None else (kind, characters)
    if len(written) > _DIGITS:
        return None
    return ("integer", int(written)) if written.lstrip("-").isdigit() else ("float", float(written))


def _named(tokens: list[Token]) -> list[Token] | None:
    """Read words as names; `None` if one stands elsewhere."""
    named: list[Token] = []
    for token, after in _with_next(tokens):
        kind, said = token
        if kind == "word" and after != _COLON:
            return None
        named.append(("string", said) if kind == "word" else token)
    return named


def _needed(tokens: list[Token]) -> list[Token]:
    """Leave out commas between a value and a closing bracket."""
    before = [_END, *tokens]
    return [
        token
        for (token, after), last in zip(_with_next(tokens), before, strict=False)
        if not (token == _COMMA and after in _CLOSERS and last not in _OPEN)
    ]


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
    ours = chain(_with_next(written), repeat((_END, _END)))
    token, after = next(ours)
    for other in given:
        if token == other:
            token, after = next(ours)
        elif not (other == _COMMA and token[0] == "string" and after == _COLON):
            return False
    return token == _END


def _with_next(tokens: list[Token]) -> Iterator[tuple[Token, Token]]:
    return zip(tokens, [*tokens[1:], _END], strict=False)
