"""Who calls: a connection, a principal or a process, and never several as one by accident."""

import json
from typing import Literal, TypeAlias

import msgspec
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import principal_components

Kind: TypeAlias = Literal["connection", "principal", "process"]


class Session(msgspec.Struct, frozen=True):
    """
    Whom a call comes from; what a served tool finds in `context.session`.

    Equal for the calls of one caller and for no other, so that a tool can keep state by it. Where
    nothing tells callers apart, as on HTTP since 2026-07-28 without tokens, `context.session` is
    `None`.

    Attributes:
        kind: `"connection"`: a session of the handshake era, or a client in this process;
            `"principal"`: whoever a token names; `"process"`: the one client at the other end of
            standard input and output.
        id: Tells one from another; unguessable, except that of a principal.
    """

    kind: Kind
    id: str


def principal() -> str:
    """Return who the token of this request names, as one text; empty without a token."""
    token = get_access_token()
    return "" if token is None else json.dumps(principal_components(token), ensure_ascii=False)


def caller() -> dict[str, object] | None:
    """Return who the token of this request names, for policies: `context.caller`."""
    token = get_access_token()
    if token is None:
        return None
    client, issuer, subject = principal_components(token)
    told = {"client": client, "issuer": issuer, "subject": subject, "scopes": list(token.scopes)}
    return {name: value for name, value in told.items() if value is not None}
