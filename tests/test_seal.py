"""A request that leaves the house comes back unchanged, in time, or not at all (CONTRACT SUS-5)."""

import base64
import secrets
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import (
    Ask,
    Executor,
    Guard,
    InputRequest,
    InvalidValue,
    Leg,
    RawJSON,
    Rejected,
    RuntimeFault,
    SealBroken,
    SealExpired,
    Suspended,
    Tool,
    ToolCall,
    seal,
    tool,
    unseal,
)
from ferrule._seal import _id_of, _signature, _text

KEY, OLD, OTHER = (bytes([n]) * 32 for n in (1, 2, 3))
NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
REQUEST = InputRequest("Sure?", schema={"type": "boolean"}, state={"n": 2.0, "id": 2**70})
SEALED = seal(REQUEST, KEY)

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=8)
STATES = st.recursive(
    st.none() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab:", max_size=2), inner),
    max_leaves=6,
)


@tool
async def pay(amount: int) -> str | InputRequest:
    """Pay."""
    return paid.ask(f"Pay {amount}?", amount)


@pay.step
async def paid(state: int, answer: bool) -> str:
    """Go on."""
    return f"{state} {answer}"


def asked(one: Tool, call: ToolCall) -> InputRequest:
    """Return what a call asks."""
    (outcome,) = Executor([one]).run_sync([call])
    assert isinstance(outcome, Suspended)
    return outcome.request


# ---- whole ---------------------------------------------------------------------------------------


@given(TEXT, STATES, st.none() | st.floats(0.5, 1e9), st.binary(min_size=32, max_size=80))
def test_any_request_comes_back_as_it_was(
    message: str, state: object, expires_in: float | None, key: bytes
) -> None:
    """SUS-5, SUS-1: every digit of it, under any key, in text that goes anywhere."""
    request = InputRequest(message, schema=True, state=state, expires_in=expires_in)
    text = seal(request, key, now=NOON)
    back = unseal(text, keys=[key], now=NOON)

    assert back == request
    assert repr(back.state) == repr(request.state)
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


@pytest.mark.parametrize("state", [RawJSON(' {"n": 1.0000000000000000001} '), "x" * 1_000_000])
def test_what_is_exact_or_large_comes_back_too(state: object) -> None:
    """SUS-1: a text byte for byte, and a request of the largest size."""
    request = InputRequest("\x01" * 1_000, schema={"enum": [True]}, state=state)

    assert unseal(seal(request, KEY), keys=[KEY]).to_json() == request.to_json()


def test_a_deep_request_comes_back() -> None:
    """JSON-3: the limit is the request's, not that of the text around it."""
    deep: object = 1
    for _ in range(127):
        deep = [deep]
    request = InputRequest("?", schema=True, state=deep)

    assert unseal(seal(request, KEY), keys=[KEY]) == request


def test_which_call_asked_is_sealed_with_it() -> None:
    """SUS-5, SUS-2: two requests that come back swapped are found out."""
    one, other = (ToolCall.of("pay", {"amount": 5}, id=f"c{n}") for n in (1, 2))
    back = unseal(seal(asked(pay, one), KEY), keys=[KEY]).continuation(answer=True)
    right, wrong = (
        Executor([pay]).run_sync([Leg(call, continuation=back, number=2)])[0]
        for call in (one, other)
    )

    assert right.text == "5 True"
    assert isinstance(wrong, Rejected)


def test_a_guards_question_can_be_sealed() -> None:
    """SUS-5, AUT-4: its approval is still bound to the call."""
    request = asked(Guard(pay, lambda _: Ask("May it?")), ToolCall.of("pay", {"amount": 5}))
    back = unseal(seal(request, KEY), keys=[KEY])

    assert back.approval(answer=True, by="ann").call_id == request.approval(True, by="b").call_id


def test_it_is_signed_and_not_hidden() -> None:
    """SUS-5: what the docstring warns of, so that nobody takes a seal for a cover."""
    payload = SEALED.split(".")[2]

    assert b'"message":"Sure?"' in base64.urlsafe_b64decode(payload + "==")


# ---- changed -------------------------------------------------------------------------------------


@given(st.integers(0, len(SEALED) - 1), st.characters())
def test_any_changed_character_breaks_the_seal(index: int, character: str) -> None:
    """SUS-5: in version, key id, payload and seal, also where base64 has some slack."""
    changed = SEALED[:index] + character + SEALED[index + 1 :]
    if changed == SEALED:
        return
    with pytest.raises(SealBroken):
        unseal(changed, keys=[KEY, OLD])


@given(st.data())
def test_any_part_that_is_missing_or_too_much_breaks_the_seal(data: st.DataObject) -> None:
    """SUS-5: cut short, prolonged, doubled."""
    start = data.draw(st.integers(0, len(SEALED)))
    end = data.draw(st.integers(start, len(SEALED)))
    more = data.draw(st.sampled_from(["", "=", "A", ".", "\n", SEALED]))
    changed = SEALED[:start] + SEALED[end:] + more
    if changed == SEALED:
        return
    with pytest.raises(SealBroken):
        unseal(changed, keys=[KEY])


BROKEN: list[tuple[object, str]] = [
    ("", "form"),
    (None, "form"),
    (SEALED.encode(), "form"),
    ("f1.é.a.b", "form"),
    (SEALED + ".", "form"),
    (SEALED.replace("f1", "f2", 1), "version"),
    (seal(REQUEST, OTHER), "key"),
    (SEALED[:-1], "seal"),
    (".".join([*SEALED.split(".")[:2], *seal(REQUEST, OTHER).split(".")[2:]]), "seal"),
]


@pytest.mark.parametrize(("text", "reason"), BROKEN)
def test_what_does_not_fit_is_named(text: object, reason: str) -> None:
    """STYLE 20: a fact, and never a piece of the text."""
    with pytest.raises(SealBroken) as caught:
        unseal(cast("str", text), keys=[KEY])

    assert caught.value.reason == reason
    assert isinstance(caught.value, RuntimeFault)


def test_a_parts_swap_breaks_the_seal() -> None:
    """SUS-5: the payload of one with the seal of another, both of one key."""
    other = seal(InputRequest("Other?", schema=True), KEY).split(".")
    version, key, payload, _ = SEALED.split(".")
    with pytest.raises(SealBroken):
        unseal(".".join([version, key, payload, other[3]]), keys=[KEY])


def test_what_the_key_sealed_for_something_else_is_no_request() -> None:
    """SUS-5, DEF-4: a whole seal is no reason to believe what is in it."""
    for payload in (b"{}", b"[]", b"1 2", b'{"request":{}}', b'{"request":{},"more":1}'):
        signed = f"f1.{_id_of(KEY)}.{_text(payload)}"
        text = f"{signed}.{_signature(signed, KEY)}"
        with pytest.raises(SealBroken, match="version"):
            unseal(text, keys=[KEY])


# ---- in time -------------------------------------------------------------------------------------


def test_a_request_that_expires_is_refused_from_then_on() -> None:
    """SUS-5: it counts from the sealing; the last moment before is in time."""
    text = seal(InputRequest("?", schema=True, expires_in=60), KEY, now=NOON)
    last = NOON + timedelta(seconds=59.9)

    assert unseal(text, keys=[KEY], now=last).expires_in == 60
    for late in (60, 61, 1e8):
        with pytest.raises(SealExpired) as caught:
            unseal(text, keys=[KEY], now=NOON + timedelta(seconds=late))
        assert caught.value.at == NOON + timedelta(seconds=60)


def test_the_current_time_counts_where_none_is_given() -> None:
    """SUS-5: sealed long ago, it is too late; sealed now, it is not."""
    request = InputRequest("?", schema=True, expires_in=3600)

    assert unseal(seal(request, KEY), keys=[KEY]) == request
    with pytest.raises(SealExpired):
        unseal(seal(request, KEY, now=datetime(2001, 1, 1, tzinfo=UTC)), keys=[KEY])


@pytest.mark.parametrize("expires_in", [None, 1e300, 1.7e308])
def test_what_never_expires_never_does(expires_in: float | None) -> None:
    """SUS-1: also where the seconds are more than a date can say."""
    text = seal(InputRequest("?", schema=True, expires_in=expires_in), KEY, now=NOON)

    assert unseal(text, keys=[KEY], now=datetime.max.replace(tzinfo=UTC))


def test_a_broken_seal_is_told_before_a_late_one() -> None:
    """SUS-5: nothing that was changed is looked at, not even its time."""
    text = seal(InputRequest("?", schema=True, expires_in=1), KEY, now=NOON)
    with pytest.raises(SealBroken):
        unseal(text[:-1], keys=[KEY], now=NOON + timedelta(days=1))


def test_a_time_without_a_zone_is_refused() -> None:
    """STYLE 24: it would mean another moment on another machine."""
    request = InputRequest("?", schema=True, expires_in=1)
    with pytest.raises(InvalidValue, match=r"datetime\.now\(UTC\)"):
        seal(request, KEY, now=datetime(2026, 1, 1))  # noqa: DTZ001  # what is tested
    with pytest.raises(InvalidValue, match=r"datetime\.now\(UTC\)"):
        unseal(seal(request, KEY), keys=[KEY], now=datetime(2026, 1, 1))  # noqa: DTZ001


# ---- keys ----------------------------------------------------------------------------------------


def test_an_old_key_still_opens_while_it_is_given() -> None:
    """SUS-5: keys rotate; each text says which one sealed it, and tells nothing of it."""
    old, new = seal(REQUEST, OLD), seal(REQUEST, KEY)

    for keys in ([KEY, OLD], [OLD, KEY], (key for key in (KEY, OLD))):
        assert unseal(old, keys=keys) == REQUEST
    assert unseal(new, keys=[OLD, KEY]) == REQUEST
    assert old.split(".")[1] != new.split(".")[1]
    with pytest.raises(SealBroken) as caught:
        unseal(old, keys=[KEY])
    assert caught.value.reason == "key"


@pytest.mark.parametrize("key", [b"", b"x" * 31, "x" * 32, None, 5, bytearray(32)])
def test_a_key_that_is_none_is_refused_and_not_repeated(key: object) -> None:
    """STYLE 24: too short, or text; the sentence says how to make one."""
    for attempt in (
        lambda: seal(REQUEST, cast("bytes", key)),
        lambda: unseal(SEALED, keys=[KEY, cast("bytes", key)]),
    ):
        with pytest.raises(InvalidValue, match=r"secrets\.token_bytes\(32\)") as caught:
            attempt()
        assert "xxx" not in str(caught.value)


@pytest.mark.parametrize("keys", [[], KEY, "key"])
def test_keys_are_several(keys: object) -> None:
    """STYLE 24: one key alone would be read as its bytes."""
    with pytest.raises(InvalidValue, match=r"keys=\[key\]"):
        unseal(SEALED, keys=cast("list[bytes]", keys))


def test_a_request_is_sealed_and_nothing_else() -> None:
    """STYLE 24: a dictionary of one is not one."""
    with pytest.raises(InvalidValue, match="an InputRequest is sealed, not dict"):
        seal(cast("InputRequest", REQUEST.to_json()), KEY)


def test_a_random_key_is_long_enough() -> None:
    """SUS-5: what the sentence names works."""
    key = secrets.token_bytes(32)
    assert unseal(seal(REQUEST, key), keys=[key]) == REQUEST
