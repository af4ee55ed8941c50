"""
Who may reach a server over HTTP: only requests that were meant for it.

A web page can have its own name resolve to 127.0.0.1 and then talk to whatever listens there, as
the person whose browser it is. What gives it away is the name: `Host` is the page's, and so is
`Origin`. So a request for a name that is not ours is refused before its body is read.
"""

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from ferrule import InvalidValue

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

ANY = "*"
_FORBIDDEN = 403


class Doorkeeper:
    """
    Stands before an app and lets in what was meant for it.

    Names of this machine itself (`localhost`, 127.0.0.1, [::1]) are always its names, with any
    port. No `Origin` is fine, as only browsers send one.

    Args:
        app: What is behind the door.
        hosts: More names that it has, `name` or `name:port`; `*` says that whatever stands before
            it has looked at the name already.
        origins: Pages that may talk to it beside its own, as in `https://chat.example`.
    """

    def __init__(self, app: App, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        self._app = app
        self._hosts = {host if host == ANY else _written(host) for host in hosts}
        self._origins = {origin.lower().rstrip("/") for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        refusal = self._refusal(scope) if scope["type"] in {"http", "websocket"} else ""
        if not refusal:
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = [(b"content-type", b"text/plain; charset=utf-8")]
        await send({"type": "http.response.start", "status": _FORBIDDEN, "headers": headers})
        await send({"type": "http.response.body", "body": refusal.encode()})

    def _refusal(self, scope: Scope) -> str:
        hosts = _header(scope, b"host")
        origins = _header(scope, b"origin")
        if len(hosts) != 1 or len(origins) > 1:
            return "a request has one Host and at most one Origin"
        if not self._is_ours(hosts[0]):
            return "this Host is not served here; add it to `hosts` if it is to be"
        if origins and not self._is_welcome(origins[0], hosts[0]):
            return "this Origin may not talk to this server; add it to `origins` if it may"
        return ""

    def _is_ours(self, host: str) -> bool:
        parts = _parts(host)
        if parts is None:
            return False
        name, port = parts
        wanted = {ANY, name, f"{name}:{port}"}
        return _is_loopback(name) or bool(self._hosts & wanted)

    def _is_welcome(self, origin: str, host: str) -> bool:
        if origin.lower() in self._origins:
            return True
        scheme, separator, place = origin.partition("://")
        parts = _parts(place) if separator and scheme.lower() in {"http", "https"} else None
        if parts is None:
            return False
        name, port = parts
        if _is_loopback(name):
            return True
        if ANY in self._hosts:
            return _written(place) == _written(host)
        return bool(self._hosts & {name, f"{name}:{port}"})


def _header(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for known, value in scope["headers"] if known == name]


def _parts(host: str) -> tuple[str, str] | None:
    """Return name and port of a `Host`, as they are compared; nothing if it is none."""
    if not host or any(character in host for character in "/?#@\\, \t"):
        return None
    try:
        split = urlsplit(f"//{host}")
        name, port = split.hostname, split.port
    except ValueError:
        return None
    if not name:
        return None
    return name.rstrip(".").lower(), "" if port is None else str(port)


def _written(host: str) -> str:
    """
    Return a name as it is compared.

    Raises:
        InvalidValue: it is no name.
    """
    parts = _parts(host)
    if parts is None:
        raise InvalidValue(f"a host is `name` or `name:port`, not {host!r}")
    name, port = parts
    return f"{name}:{port}" if port else name


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
