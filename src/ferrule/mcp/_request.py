"""One request of a client: what it says, whom it comes from, and what can be sent back."""

import secrets
from collections.abc import Mapping
from typing import Any, TypeAlias

from mcp import types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from ferrule import Progress, digest
from ferrule.mcp._forms import Form
from ferrule.mcp._meta import KEY
from ferrule.mcp._who import Session, caller, principal

Wire: TypeAlias = ServerRequestContext[Any, Any]
"""What the SDK tells of a request."""

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_LEVEL = "ferrule/level"
_PER_REQUEST = "io.modelcontextprotocol/logLevel"
_SESSION = "mcp-session-id"
_LONGEST = 128


def is_modern(wire: Wire) -> bool:
    """Say whether the request is of the era without handshake and sessions."""
    return wire.protocol_version in MODERN_PROTOCOL_VERSIONS


def connection_of(wire: Wire) -> Connection:
    """Return what lasts as long as the connection of the handshake era does."""
    # SDK 2.3 has no public way to hear that a connection ended: its exit stack is the only one.
    return wire.session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def keep_level(wire: Wire, level: str) -> None:
    """Keep from which level on a connection wants to read logs."""
    connection_of(wire).state[_LEVEL] = level


class Request:
    """
    One `tools/call`.

    Attributes:
        session: Whom it comes from, if anything tells; see `Session`.
        caller: Who its token names.
        who: The same as one text, to be compared; empty if nobody.
        modern: Whether it is of the era without handshake and sessions.
        params: What it asks for.
        said: The idempotency key that the client has given the call, or one that was made.
        key: The same, as it is used: of this caller and no other.
    """

    def __init__(
        self, wire: Wire, params: types.CallToolRequestParams, life: Session | None
    ) -> None:
        self._wire = wire
        self.params = params
        self.modern = is_modern(wire)
        self.who = principal()
        self.caller = caller()
        self.session = self._session(life)
        self.said = self._said()
        # Where callers are told apart, what one of them says is never what another says.
        self.key = digest([self.who, self.said]) if self.who else self.said

    def _session(self, life: Session | None) -> Session | None:
        headers = getattr(self._wire.request, "headers", {})
        known: str | None = None if self.modern else headers.get(_SESSION)
        if known:
            return Session("connection", known)
        return Session("principal", self.who) if self.who else life

    @property
    def by(self) -> str:
        """Who answers what is asked, for the record."""
        if self.caller is not None:
            return str(self.caller.get("subject") or self.caller["client"])
        return "mcp client" if self.session is None else f"mcp {self.session.kind}"

    @property
    def answers(self) -> Mapping[str, object]:
        """What the client answers, by the names of the questions."""
        return self.params.input_responses or {}

    @property
    def meta(self) -> Mapping[str, object]:
        """What the client says beside the call."""
        return self._wire.meta or {}

    def _said(self) -> str:
        given = self.meta.get(KEY)
        fits = isinstance(given, str) and given.isprintable() and 0 < len(given) <= _LONGEST
        return given if isinstance(given, str) and fits else secrets.token_hex(16)

    def can_ask(self, form: Form) -> bool:
        """Say whether the client offers to ask such a question."""
        capabilities = self._wire.session.client_capabilities
        offered = None if capabilities is None else capabilities.elicitation
        if offered is None:
            return False
        if form.url is not None:
            return offered.url is not None
        return offered.form is not None or offered.url is None

    @property
    def may_ask(self) -> bool:
        """Whether the client offers to ask anything at all."""
        capabilities = self._wire.session.client_capabilities
        return capabilities is not None and capabilities.elicitation is not None

    @property
    def wants_progress(self) -> bool:
        """Whether anybody wants to hear how far the call is."""
        if "progress_token" in self.meta or self._wants_logs():
            return True
        # In one process the SDK 2.3 needs no token: its channel has the client's function itself.
        channel = self._wire.session._request_outbound  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        inner = getattr(channel, "_inner", channel)
        return getattr(inner, "_on_progress", None) is not None

    async def ask(self, form: Form) -> types.ElicitResult:
        """Ask the client at once, as the handshake era does; raises as the SDK does."""
        session, params = self._wire.session, form.params()
        if isinstance(params, types.ElicitRequestURLParams):
            return await session.elicit_url(
                params.message,
                params.url,
                params.elicitation_id or "",
                related_request_id=self._wire.request_id,
            )
        return await session.elicit_form(
            params.message, params.requested_schema, related_request_id=self._wire.request_id
        )

    async def report(self, number: float, update: Progress) -> None:
        """Tell how far the call is; as a log line where only those are wanted."""
        message = update.message or None
        if "progress_token" in self.meta or not self._wants_logs():
            await self._wire.session.report_progress(number, update.total, message)
        elif message is not None:
            line = types.LoggingMessageNotificationParams(
                level="info", logger=self.params.name, data=message
            )
            await self._wire.session.send_notification(
                types.LoggingMessageNotification(params=line),
                related_request_id=self._wire.request_id,
            )

    def _wants_logs(self) -> bool:
        own = self.meta.get(_PER_REQUEST)
        level = own if self.modern else connection_of(self._wire).state.get(_LEVEL)
        return level in LEVELS and LEVELS.index(level) <= LEVELS.index("info")
