"""Text of tools and models as a terminal may show it: nothing in it acts, and nothing hides."""

import re

HIDDEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but for tab and line feed
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, joiners, fillers
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero width, line separators, direction
    "\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"  # fillers, variation, byte order
    "\ud800-\udfff\ufdd0-\ufdef"  # lone surrogates, noncharacters
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # shorthand and musical controls
    "\U000e0000-\U000e0fff\U000f0000-\U0010ffff"  # tags, variation, private planes
    "]"
    # The two common emoji selectors only where they select: once, after something that shows.
    "|(?:(?<=[\\s\ufe0e\ufe0f])|^)[\ufe0e\ufe0f]",
    re.MULTILINE,
)
"""Characters that control, turn or hide text. One pattern, since 5 MB must not take a second."""

_BREAKS = re.compile(r"[\t\n]")
_SPACES = re.compile(r"[ \t\r\n]+")


def visible(text: str) -> str:
    """Return `text` with what would act or hide in it written out, as in `⟦U+202E⟧`."""
    return HIDDEN.sub(_named, text.replace("\r\n", "\n"))


def one_line(text: str, limit: int = 400) -> str:
    """Return the beginning of `text` as one visible line of at most `limit` characters."""
    beginning = visible(_SPACES.sub(" ", text[: 4 * limit]).strip())
    whole = len(text) <= 4 * limit and len(beginning) <= limit
    return beginning if whole else f"{beginning[: limit - 1]}…"


def spelt(text: str) -> str:
    """Return all of `text` in one visible line: tabs and line feeds are written out as well."""
    return _BREAKS.sub(_named, HIDDEN.sub(_named, text))


def _named(found: re.Match[str]) -> str:
    return f"⟦U+{ord(found[0]):04X}⟧"
