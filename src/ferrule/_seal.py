"""
A request that leaves the house, and comes back unchanged or not at all (CONTRACT SUS-5).

Theory. Whoever keeps a suspended call for us (a client, a form, a mail) keeps the request as text
and may do to it what they like. So the text is signed: a version, the id of the key, the payload
and, over those three as they stand, an HMAC. Nothing is decoded before that holds, and what is
decoded then is our own writing, read again by the strict reader and by `InputRequest`.

The payload is the request as compact JSON, not in canonical form: that writes 2.0 as 2, and a state
is kept exactly. Nobody has to write it again to check it, as the bytes themselves travel. Each part
is compared as text, so that no second spelling of the same bytes (base64 has some) passes.
"""

import base64
import hmac
from collections.abc import Iterable
from datetime import UTC, datetime

from ferrule._ijson import DEPTH_CEILING, Limits, read
from ferrule._plain import json_text
from ferrule._requests import InputRequest
from ferrule._value import Value, type_name
from ferrule.errors import InvalidValue, SealBroken, SealExpired

_VERSION = "f1"
_SHORTEST = 32
_PARTS = 4

# Our own writing, so that the limits are what three parts of a request can come to.
_OWN = Limits(argument_bytes=64 << 20, depth=DEPTH_CEILING, nodes=10 * Limits().nodes)


class _Payload(Value, frozen=True):
    request: object
    expires: float | None = None


def seal(request: InputRequest, key: bytes, *, now: datetime | None = None) -> str:
    """
    Return a request as text that can be handed outside: `unseal` refuses it if it was changed.

    It is signed and not hidden: who has the text can read message, schema and state. Keep in the
    state what leads to a secret and never the secret. Nor is it for once: that one answer is used
    once is for whoever keeps the waits. `expires_in` counts from here.

    Args:
        request: What a call asks, as in `outcome.request`: it then names the call, and is of no use
            for another.
        key: At least 32 bytes that nobody else has, as of `secrets.token_bytes(32)`.
        now: When it is sealed; the current time if left out.

    Raises:
        InvalidValue: that is no request, or no such key.
    """
    if not isinstance(request, InputRequest):
        raise InvalidValue(f"an InputRequest is sealed, not {type_name(request)}")
    _check_key(key)
    expires = None if request.expires_in is None else _seconds(now) + request.expires_in
    payload = _Payload(request.to_json(), expires)
    signed = f"{_VERSION}.{_id_of(key)}.{_text(json_text(payload.to_json()).encode())}"
    return f"{signed}.{_signature(signed, key)}"


def unseal(text: str, *, keys: Iterable[bytes], now: datetime | None = None) -> InputRequest:
    """
    Return the request that `seal` wrote with one of the keys.

    Args:
        text: What came back.
        keys: The key in use, and those before it for as long as what they sealed may come back.
        now: When it came back; the current time if left out.

    Raises:
        SealBroken: it was changed, cut short, or sealed with another key or in another version.
        SealExpired: it is whole, and too late.
        InvalidValue: there is no key, or one is no key.
    """
    written = _opened(text, _by_id(keys))
    try:
        payload = _Payload.from_json(read(written, limit=_OWN.argument_bytes, limits=_OWN)[0])
        request = InputRequest.from_json(payload.request)
    except InvalidValue:  # Whole, and yet nothing that we write.
        raise SealBroken("version") from None
    if payload.expires is not None and payload.expires <= _seconds(now):
        raise SealExpired(datetime.fromtimestamp(payload.expires, UTC))
    return request


def _opened(text: object, known: dict[str, bytes]) -> bytes:
    """Return what was sealed, if the seal is whole."""
    parts = text.split(".") if isinstance(text, str) and text.isascii() else []
    if len(parts) != _PARTS:
        raise SealBroken("form")
    version, key_id, payload, signature = parts
    if version != _VERSION:
        raise SealBroken("version")
    if key_id not in known:
        raise SealBroken("key")
    expected = _signature(f"{version}.{key_id}.{payload}", known[key_id])
    if not hmac.compare_digest(signature, expected):
        raise SealBroken("seal")
    return base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))


def _by_id(keys: Iterable[bytes]) -> dict[str, bytes]:
    if isinstance(keys, bytes | str):
        raise InvalidValue("keys are several: write keys=[key]")
    known = list(keys)
    for key in known:
        _check_key(key)
    if not known:
        raise InvalidValue("a seal is looked at with a key: keys=[key]")
    return {_id_of(key): key for key in known}


def _check_key(key: object) -> None:
    if not isinstance(key, bytes) or len(key) < _SHORTEST:
        raise InvalidValue(
            f"a key is at least {_SHORTEST} bytes that nobody can guess, as "
            f"`secrets.token_bytes({_SHORTEST})` gives them"
        )


def _id_of(key: bytes) -> str:
    """Return what a key is called in what it sealed; tells nothing of the key."""
    return _text(hmac.digest(key, b"ferrule: the id of this key", "sha256")[:6])


def _signature(signed: str, key: bytes) -> str:
    return _text(hmac.digest(key, signed.encode(), "sha256"))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _seconds(now: datetime | None) -> float:
    if now is None:
        return datetime.now(UTC).timestamp()
    if now.tzinfo is None:
        raise InvalidValue("`now` is a time with a zone, as `datetime.now(UTC)` gives it")
    return now.timestamp()
