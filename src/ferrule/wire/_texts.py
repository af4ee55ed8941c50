"""Text of characters that I-JSON allows."""

import re

_NONCHARACTERS = re.compile(
    "[\ufdd0-\ufdef\ufffe\uffff"
    + "".join(chr((plane << 16) + last) for plane in range(1, 17) for last in (0xFFFE, 0xFFFF))
    + "]"
)


def clean(text: str) -> str:
    """Return `text` with U+FFFD for each noncharacter, which RFC 7493 keeps out of JSON."""
    return text if text.isascii() else _NONCHARACTERS.sub("\ufffd", text)
