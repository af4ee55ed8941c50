"""Text as a model may read it."""

import json

from hypothesis import given
from hypothesis import strategies as st

from ferrule import cut_json, cut_text, read_json
from ferrule.wire._texts import clean

unicode = st.text(st.characters(exclude_categories=["Cs"]), max_size=150)
texts = st.lists(unicode | st.sampled_from(["\ufdd0", "\uffff"]), max_size=4).map("".join)


@given(texts, st.integers(0, 500))
def test_a_cut_text_keeps_to_its_limit(text: str, limit: int) -> None:
    """EXE-11: text is cut between characters, with a notice of shown and whole size."""
    shown = cut_text(text, limit)
    if len(text.encode()) <= limit:
        assert shown == text
        return
    beginning, _, notice = shown.rpartition("\n")
    assert text.startswith(beginning)
    assert notice == (
        f"[the first {len(beginning.encode())} of {len(text.encode())} bytes are shown]"
    )
    assert len(shown.encode()) <= max(limit, 80)


@given(st.recursive(texts, st.lists, max_leaves=20), st.integers(0, 500))
def test_cut_json_is_json(value: object, limit: int) -> None:
    """EXE-11: JSON is never cut into broken JSON."""
    text = json.dumps(value, ensure_ascii=False)
    shown = cut_json(text, limit)
    if len(text.encode()) <= limit:
        assert shown == text
        return
    told = json.loads(shown)
    assert text.startswith(told["beginning"])
    assert told["cut"].endswith(f"of {len(text.encode())} bytes are shown")
    assert len(shown.encode()) <= max(limit, 160)


@given(texts)
def test_clean_text_can_stand_in_json(text: str) -> None:
    """WIRE-2, JSON-1: noncharacters become U+FFFD, and the strict reader takes the rest."""
    cleaned = clean(text)
    assert read_json(json.dumps(cleaned, ensure_ascii=False)) == cleaned
    assert len(cleaned) == len(text)


def test_noncharacters_are_replaced() -> None:
    """JSON-1: all 66 of them, and their neighbours not."""
    last = ["\ufdd0", "\ufdef", "\ufffe", "\uffff", "\U0001fffe", "\U0010ffff"]
    assert clean("".join(last)) == "\ufffd" * len(last)
    assert clean("\ufdcf\ufdf0\ufffd\U0001fffd") == "\ufdcf\ufdf0\ufffd\U0001fffd"
