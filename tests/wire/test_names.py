"""Tool names on their way to a provider and back."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.wire import _names
from ferrule.wire._names import Names

ALLOWED = "A-Za-z0-9_-"
LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")

tool_names = st.text(string.ascii_letters + string.digits + "_-./", min_size=1, max_size=128)


def names(*given_names: str, longest: int = 64) -> Names:
    """Return these names under the rule of Open Responses."""
    return Names(given_names, allowed=ALLOWED, longest=longest)


@given(st.sets(tool_names, max_size=30))
def test_names_go_out_legal_and_come_back(known: set[str]) -> None:
    """WIRE-1: names map one to one and back."""
    mapped = names(*known)
    sent = {name: mapped.outward(name) for name in known}
    assert all(LEGAL.fullmatch(name) for name in sent.values())
    assert len(set(sent.values())) == len(known)
    assert {mapped.inward(name) for name in sent.values()} == known


@given(st.lists(tool_names, unique=True, max_size=12))
def test_order_changes_nothing(known: list[str]) -> None:
    """WIRE-1: deterministic: a name never depends on the order of registration."""
    turned = list(reversed(known))
    assert [names(*known).outward(n) for n in known] == [names(*turned).outward(n) for n in known]


def test_a_legal_name_is_itself() -> None:
    """WIRE-1: what a provider takes is not changed."""
    longest = "a" * 64
    mapped = names("read_file", "Read-File", longest)
    assert [mapped.outward(n) for n in ("read_file", "Read-File", longest)] == [
        "read_file",
        "Read-File",
        longest,
    ]


def test_an_illegal_name_stays_readable() -> None:
    """WIRE-1: a model should still know what the tool is called."""
    assert re.fullmatch(r"files_read_[0-9a-f]{8}", names("files.read").outward("files.read"))


def test_other_tools_do_not_change_a_name() -> None:
    """WIRE-1: one more tool in the registry does not rename the others in a conversation."""
    assert names("a.b").outward("a.b") == names("a.b", "a/b", "c.d", "a_b").outward("a.b")


def test_a_name_that_looks_like_a_changed_one_keeps_it() -> None:
    """WIRE-1: collision-free even against a tool that took the changed name itself."""
    taken = names("files.read").outward("files.read")
    mapped = names("files.read", taken)
    assert mapped.outward(taken) == taken
    assert mapped.outward("files.read") != taken
    assert mapped.inward(mapped.outward("files.read")) == "files.read"


def test_names_alike_up_to_the_limit_stay_apart() -> None:
    """WIRE-1: two names that differ behind the provider's limit are still two."""
    one, other = "x" * 70 + "a", "x" * 70 + "b"
    mapped = names(one, other)
    assert mapped.outward(one) != mapped.outward(other)


def test_a_name_that_nobody_sent_stays() -> None:
    """WIRE-1: a made-up name is refused under the name that the model wrote."""
    assert names("files.read").inward("made.up") == "made.up"


def test_names_whose_digests_are_the_same_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """WIRE-1: collision-free, and the order of registration does not decide who gives way."""
    monkeypatch.setattr(_names, "_DIGEST", 2)
    known = [f"a{chr(code)}b" for code in range(0x100, 0x164)]
    mapped, turned = names(*known), names(*known[::-1])
    sent = [mapped.outward(name) for name in known]
    assert len(set(sent)) == len(known)
    assert sent == [turned.outward(name) for name in known]
