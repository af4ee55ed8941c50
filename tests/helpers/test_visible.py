"""Text of tools and models as a terminal may show it."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.helpers import one_line, visible

SHOWN = {"\u0600", "\u0601", "\u0602", "\u0603", "\u0604", "\u0605", "\u06dd", "\u070f", "\u0890"}
SHOWN |= {"\u0891", "\u08e2", "\U000110bd", "\U000110cd"}
"""Format characters that draw something: signs of Arabic, Syriac and Kaithi."""
GLYPH_JOINERS = {chr(code) for code in range(0x13430, 0x13440)}
"""They arrange Egyptian hieroglyphs, and touch nothing else."""


def test_every_character_that_acts_or_hides_is_written_out() -> None:
    """Terminal: what Unicode calls control, format, separator, surrogate; not tab and line feed."""
    kinds = {"Cc", "Cf", "Zl", "Zp", "Cs"}
    every = map(chr, range(sys.maxunicode + 1))
    acting = {one for one in every if unicodedata.category(one) in kinds}
    kept = {one for one in acting if visible(f"a{one}b") == f"a{one}b"}
    assert {"\t", "\n"} <= kept <= {"\t", "\n"} | SHOWN | GLYPH_JOINERS


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\x1b[31mb", "a⟦U+001B⟧[31mb"),
        ("a\u202eb", "a⟦U+202E⟧b"),
        ("tag\U000e0041", "tag⟦U+E0041⟧"),
        ("a\r\nb\rc", "a\nb⟦U+000D⟧c"),
        ("\u2764\ufe0f ok", "\u2764\ufe0f ok"),
        ("\u2764\ufe0f\ufe0f", "\u2764\ufe0f⟦U+FE0F⟧"),
        ("\ufe0fa \ufe0f", "⟦U+FE0F⟧a ⟦U+FE0F⟧"),
        ("\ufffd", "\ufffd"),
        ("Grüße, 世界\t!", "Grüße, 世界\t!"),
    ],
)
def test_visible_names_what_it_replaces(text: str, seen: str) -> None:
    """Terminal: ordinary text of any script stays, an emoji keeps its selector."""
    assert visible(text) == seen


@given(st.text(max_size=300), st.integers(2, 60))
def test_one_line_is_one_line(text: str, limit: int) -> None:
    """Terminal: no line feed, nothing that acts, and no more than the limit."""
    line = one_line(text, limit)
    assert "\n" not in line
    assert len(line) <= limit
    assert line == visible(line)
