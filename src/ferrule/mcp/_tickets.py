"""
What a client carries between two requests of one call, since 2026-07-28.

Theory. That era has no sessions: a call that asks ends its request, and the next one brings the
answers and, as `requestState`, whatever the server gave it to carry. A client may do with that text
what it likes, so it is sealed, it says whose it is and of which call, and it serves once.
"""

import hashlib
import secrets
from collections.abc import Sequence

import msgspec

from ferrule import InputRequest, canonical, seal, unseal


class Ticket(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    How a call goes on.

    Attributes:
        nonce: Serves once; what a call that waits here is found by.
        who: Whose the call is; empty where nothing tells callers apart.
        call: Digest of its tool's name and its arguments.
        round: How many requests it took so far.
        request: What its tool or a guard asked, where the call itself has ended its leg.
        call_id: The id of the call.
        leg: Which leg asked.
        key: The idempotency key of the call.
        approvals: What its guards were answered so far.
        pending: What people had answered the tool itself when a guard asked.
        batch: Where a runtime keeps the call.
        wait: What waits there.
    """

    nonce: str
    who: str
    call: str
    round: int
    request: dict[str, object] | None = None
    call_id: str = ""
    leg: int = 1
    key: str = ""
    approvals: list[dict[str, object]] = []
    pending: list[object] = []
    batch: str = ""
    wait: str = ""

    def sealed(self, key: bytes, patience: float) -> str:
        """
        Return the ticket as a client may have it.

        Raises:
            InvalidValue: it is too large to be handed outside.
        """
        state = msgspec.to_builtins(self)
        return seal(InputRequest("", schema=True, state=state, expires_in=patience), key)


def new_nonce() -> str:
    """Return what nobody can guess."""
    return secrets.token_urlsafe(16)


def opened(text: str, keys: Sequence[bytes]) -> Ticket:
    """
    Return the ticket that was handed out as `text`.

    Raises:
        SealBroken: it was changed, or is not ours.
        SealExpired: it is ours, and too late.
    """
    return msgspec.convert(unseal(text, keys=keys).state, Ticket)


def digest_of(name: str, arguments: object) -> str:
    """Return what tells one call from another: its tool and its arguments."""
    return hashlib.sha256(name.encode() + b"\0" + canonical(arguments)).hexdigest()
