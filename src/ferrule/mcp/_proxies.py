"""
Whether a request goes through a proxy, and through which: what the environment says.

Nothing that goes to this machine does. A proxy elsewhere would reach itself under such a name, and
would be shown what was meant to stay here.
"""

import ipaddress
import socket
from collections.abc import Mapping
from urllib.request import getproxies_environment

import httpx2
import msgspec
from typing_extensions import override

from ferrule import FerruleError


class Proxies(msgspec.Struct, frozen=True):
    """
    The proxies of an environment.

    Attributes:
        by_scheme: What a scheme's requests go through; `all` is for those that are not named.
        exempt: What goes through none, as `NO_PROXY` writes it.
    """

    by_scheme: Mapping[str, str] = {}
    exempt: tuple[str, ...] = ()

    def of(self, scheme: str, host: str, port: int) -> str | None:
        """Return the URL of the proxy that a request goes through, if any."""
        host = host.lower().rstrip(".")
        address = _address(host)
        if address is None:
            is_here = host == "localhost" or host.endswith(".localhost")
        else:
            is_here = address.is_loopback or address.is_unspecified
        if is_here or any(_names(entry, host, port) for entry in self.exempt):
            return None
        return self.by_scheme.get(scheme) or self.by_scheme.get("all") or None


def of_environment() -> Proxies:
    """
    Return what `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` say now.

    In small letters too, which count more. `HTTP_PROXY` says nothing in a CGI script, where it is
    a header of whoever asks.
    """
    found = getproxies_environment()
    by_scheme: dict[str, str] = {
        name: _with_scheme(found[name]) for name in ("http", "https", "all") if name in found
    }
    exempt = (entry.strip().lower() for entry in found.get("no", "").split(","))
    return Proxies(by_scheme, tuple(entry for entry in exempt if entry))


def _with_scheme(url: str) -> str:
    return url if not url or "://" in url else f"http://{url}"


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return _short(host)
    inner = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return found if inner is None else inner


def _short(host: str) -> ipaddress.IPv4Address | None:
    """Return an address that is written as few write it and every resolver reads it: `127.1`."""
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def _names(entry: str, host: str, port: int) -> bool:
    """Say whether an entry of `NO_PROXY` is about a host: a name, an address or a range of them."""
    if entry == "*":
        return True
    if (found := _in_range(entry, host)) is not None:
        return found
    name, colon, number = entry.rpartition(":")
    if colon and number.isdecimal():
        return int(number) == port and _names(name, host, port)
    suffix = entry.removeprefix("*").lstrip(".")
    return bool(suffix) and (host == suffix or host.endswith(f".{suffix}"))


def _in_range(entry: str, host: str) -> bool | None:
    """Say whether a host is in a range of addresses; nothing if the entry is none."""
    try:
        network = ipaddress.ip_network(entry.replace("[", "").replace("]", ""), strict=False)
    except ValueError:
        return None
    address = _address(host)
    return address is not None and address in network


class Routed(httpx2.AsyncBaseTransport):
    """
    A transport that goes to each server directly or through its proxy.

    What `SSL_CERT_FILE` or `SSL_CERT_DIR` name is believed instead of the system's certificates.

    Raises:
        FerruleError: those cannot be read.
    """

    def __init__(self, proxies: Proxies) -> None:
        self._proxies = proxies
        try:
            self._certificates = httpx2.create_ssl_context(trust_env=True)
        except OSError:
            raise FerruleError(
                "the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read"
            ) from None
        self._ways: dict[str | None, httpx2.AsyncHTTPTransport] = {}

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        proxy = self._proxies.of(url.scheme, url.host, port)
        way = self._way(proxy)
        try:
            return await way.handle_async_request(request)
        except httpx2.ProxyError as error:
            named = "the proxy" if proxy is None else _named(proxy)
            raise httpx2.ProxyError(f"{named} refused: {_said(error)}") from error
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            through = "" if proxy is None else f" (through {_named(proxy)})"
            raise httpx2.ConnectError(f"{_said(error)}{through}") from error

    @override
    async def aclose(self) -> None:
        for way in self._ways.values():
            await way.aclose()

    def _way(self, proxy: str | None) -> httpx2.AsyncHTTPTransport:
        if proxy not in self._ways:
            through = None if proxy is None else _proxy(proxy)
            try:
                way = httpx2.AsyncHTTPTransport(verify=self._certificates, proxy=through)
            except ImportError:
                raise httpx2.ProxyError(
                    "the environment names a SOCKS proxy, which needs more: pip install socksio"
                ) from None
            self._ways[proxy] = way
        return self._ways[proxy]


def _proxy(url: str) -> httpx2.Proxy:
    """Return a proxy; one that is none is not shown, as it may hold a password."""
    try:
        found = httpx2.Proxy(url)
    except (ValueError, httpx2.InvalidURL):
        found = None
    if found is None or not found.url.host:
        raise httpx2.ProxyError(
            "the proxy that the environment names is none: it is a URL of http, https or socks5, "
            "as in http://proxy.example.com:3128"
        )
    return found


def _named(url: str) -> str:
    """Return what to call a proxy, without who we are to it."""
    parts = httpx2.URL(url)
    return f"the proxy {parts.host}{'' if parts.port is None else f':{parts.port}'}"


def _said(error: BaseException) -> str:
    """Return what an error says, or else what brought it about: trio's own say nothing."""
    found: BaseException | None = error
    while found is not None and not str(found):
        found = found.__cause__ or found.__context__
    return type(error).__name__ if found is None else str(found)
