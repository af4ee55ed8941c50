"""
Signing in to a server: asked once, renewed without asking, across restarts and processes.

Theory. The SDK knows the whole of the sign-in. What it does not know is what happened before it was
started: when a stored token ends, where it is renewed, and that another process may be renewing it
now. So what is kept is looked at here, before each request: a token that has ended, or that its
server refuses, is renewed under a lock, by whoever comes first, and the others find the new one.
Only what cannot be renewed goes to the SDK, which asks a person.
"""

import logging
import time
import webbrowser
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from http import HTTPStatus
from typing import Protocol, TypeAlias
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
import httpx2
import msgspec
from anyio.abc import SocketStream
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from typing_extensions import override

from ferrule import FerruleError, InvalidValue
from ferrule.mcp._tokens import Grant, Tokens

logger = logging.getLogger("ferrule.mcp")

EARLY_SECONDS = 10.0
"""How long before its end a token is renewed."""

REDIRECT_URI = "http://127.0.0.1:8790/callback"

Show: TypeAlias = Callable[[str], object]


class Back(Protocol):
    """Where the browser comes back to."""

    def __call__(self) -> Awaitable[str]:
        """Return the address that it was sent to, with what stands after the question mark."""
        ...


def in_browser(url: str) -> None:
    """Open a browser at an address; where there is none, the log says where to sign in."""
    if not webbrowser.open(url):
        logger.warning("sign in at %s", url)


class SignIn:
    """
    How to sign in to a server that asks for it, with OAuth.

    ```python
    connect(Address("https://example.com/mcp", sign_in=SignIn(TokenFile("~/.ferrule/tokens.json"))))
    ```

    Args:
        tokens: Where what was granted is kept.
        show: Shows a person the address where they sign in; if left out, a browser opens, and if
            there is none the log has it.
        back: Waits until they have, and returns the address that their browser was sent to; if left
            out, we wait for it at `redirect_uri` ourselves.
        redirect_uri: Where the browser is sent; on this machine.
        scope: What to ask for; what the server says, if left out.
        client_name: What the person reads of who asks.
        seconds: How long a person may take.
    """

    def __init__(  # each by keyword
        self,
        tokens: Tokens,
        *,
        show: Show = in_browser,
        back: Back | None = None,
        redirect_uri: str = REDIRECT_URI,
        scope: str | None = None,
        client_name: str = "Ferrule",
        seconds: float = 300.0,
    ) -> None:
        if back is None and not _is_here(redirect_uri):
            raise InvalidValue(f"without `back`, the redirect_uri is here, as in {REDIRECT_URI}")
        self.tokens = tokens
        self.show = show
        self.back = back
        self.redirect_uri = redirect_uri
        self.scope = scope
        self.client_name = client_name
        self.seconds = seconds

    def __repr__(self) -> str:
        return f"SignIn({self.tokens!r})"

    def auth(self, url: str) -> httpx2.Auth:
        """Return what signs the requests to a server."""
        return _Signed(url, self)


def _is_here(address: str) -> bool:
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return False
    return parts.hostname in {"127.0.0.1", "localhost"} and parts.scheme == "http" and port != 0


class _Signed(httpx2.Auth):
    """Signs requests with what is kept, and keeps it fresh."""

    def __init__(self, url: str, how: SignIn) -> None:
        self._url = url
        self._how = how
        self._lock = anyio.Lock()

    @override
    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        grant = await self._how.tokens.read(self._url)
        tried: Grant | None = None
        for may_renew in (True, False):
            if grant is None or grant == tried:
                break
            if not _has_ended(grant):
                tried = grant
                response = yield _signed(request, grant)
                if not _is_unsigned(response):
                    return
                if response.status_code != HTTPStatus.UNAUTHORIZED:
                    break  # Another token for the same would not do.
            if may_renew:  # It has ended, maybe earlier than was said, or nobody said when.
                async with aclosing(self._renewed(grant)) as renewing:
                    outgoing = await anext(renewing, None)
                    while outgoing is not None:
                        outgoing = await _next(renewing, (yield outgoing))
                grant = await self._how.tokens.read(self._url)
        async with self._lock:
            latest = await self._how.tokens.read(self._url)
            if latest is not None and latest != tried and not _has_ended(latest):
                # Somebody has signed in while we were waiting.
                yield _signed(request, latest)
                return
            async with aclosing(self._asked().async_auth_flow(request)) as flow:
                outgoing = await anext(flow, None)
                while outgoing is not None:
                    outgoing = await _next(flow, (yield outgoing))

    async def _renewed(self, stale: Grant) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Renew a grant, if nobody has meanwhile; one that cannot be is kept for the SDK to see."""
        tokens = self._how.tokens
        async with tokens.locked():
            grant = await tokens.read(self._url)
            if grant is None or (grant != stale and not _has_ended(grant)):
                return
            request = _renewal(grant)
            if request is None:
                return
            response = yield request
            if response.status_code != HTTPStatus.OK:
                return
            try:
                token = OAuthToken.model_validate_json(await response.aread())
            except ValueError:
                return
            await tokens.write(self._url, _granted(token, grant))

    def _asked(self) -> OAuthClientProvider:
        """Return the SDK's sign-in, which asks a person."""
        how = self._how
        storage = _Storage(self._url, how.tokens)
        visit = _Visit(how)
        storage.provider = OAuthClientProvider(
            self._url,
            OAuthClientMetadata.model_validate(
                {
                    "redirect_uris": [how.redirect_uri],
                    "client_name": how.client_name,
                    "scope": how.scope,
                }
            ),
            storage,
            redirect_handler=visit.begin,
            callback_handler=visit.end,
        )
        return storage.provider


async def _next(
    flow: AsyncGenerator[httpx2.Request, httpx2.Response], response: httpx2.Response
) -> httpx2.Request | None:
    try:
        return await flow.asend(response)
    except StopAsyncIteration:
        return None


def _signed(request: httpx2.Request, grant: Grant) -> httpx2.Request:
    request.headers["authorization"] = f"Bearer {grant.access_token}"
    return request


def _has_ended(grant: Grant) -> bool:
    return grant.expires_at is not None and time.time() > grant.expires_at - EARLY_SECONDS


def _is_unsigned(response: httpx2.Response) -> bool:
    """Say whether a server wants another token than it got."""
    if response.status_code == HTTPStatus.UNAUTHORIZED:
        return True
    challenge = response.headers.get("www-authenticate", "")
    return response.status_code == HTTPStatus.FORBIDDEN and "insufficient_scope" in challenge


def _renewal(grant: Grant) -> httpx2.Request | None:
    """Return what asks for another token, if there is anything to ask with."""
    client = grant.client or {}
    if not (grant.refresh_token and grant.token_endpoint and client.get("client_id")):
        return None
    form = {
        "grant_type": "refresh_token",
        "refresh_token": grant.refresh_token,
        "client_id": str(client["client_id"]),
    }
    if grant.resource:
        form["resource"] = grant.resource
    secret, method = client.get("client_secret"), client.get("token_endpoint_auth_method")
    request = httpx2.Request("POST", grant.token_endpoint, data=form)
    if secret and method == "client_secret_basic":
        basic = httpx2.BasicAuth(form["client_id"], str(secret))
        return next(basic.auth_flow(request))
    if secret and method == "client_secret_post":
        form["client_secret"] = str(secret)
        return httpx2.Request("POST", grant.token_endpoint, data=form)
    return request


def _granted(token: OAuthToken, before: Grant) -> Grant:
    """Return a grant with a new token; what the server left out stays as it was."""
    seconds = token.expires_in
    return msgspec.structs.replace(
        before,
        access_token=token.access_token,
        refresh_token=token.refresh_token or before.refresh_token,
        expires_at=None if seconds is None else time.time() + seconds,
        scope=token.scope or before.scope,
    )


class _Storage:
    """What the SDK's sign-in reads and writes: a grant, with what renewing it takes."""

    provider: OAuthClientProvider

    def __init__(self, url: str, tokens: Tokens) -> None:
        self._url = url
        self._tokens = tokens
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """Return what is kept; the SDK sends it once more, and hears that it is none."""
        grant = await self._tokens.read(self._url)
        if grant is None:
            return None
        return OAuthToken(access_token=grant.access_token, scope=grant.scope)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep what was granted."""
        context = self.provider.context
        metadata = context.oauth_metadata
        client = self._client or context.client_info
        grant = Grant(
            access_token=tokens.access_token,
            token_endpoint=None if metadata is None else str(metadata.token_endpoint),
            resource=context.get_resource_url(),
            client=None if client is None else client.model_dump(mode="json", exclude_none=True),
        )
        # Under the lock, as who renews the token of another server reads and writes the same file.
        async with self._tokens.locked():
            await self._tokens.write(self._url, _granted(tokens, grant))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return who we are to the authorization server, if we are anybody."""
        grant = await self._tokens.read(self._url)
        if grant is None or grant.client is None:
            return None
        return OAuthClientInformationFull.model_validate(grant.client)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep it with what will be granted."""
        self._client = client_info


class _Visit:
    """A person who signs in, from where they go to where they come back."""

    def __init__(self, how: SignIn) -> None:
        self._how = how
        self._url = ""

    async def begin(self, url: str) -> None:
        """Take where they go; it is shown when we are ready for them to come back."""
        self._url = url

    async def end(self) -> AuthorizationCodeResult:
        """
        Show them where to go, and wait until they come back.

        Raises:
            FerruleError: they did not, or not with a code.
        """
        came: list[str] = []
        with anyio.move_on_after(self._how.seconds):
            came.append(await self._back())
        if not came:
            raise FerruleError(f"nobody signed in within {self._how.seconds:g} s")
        said = {name: values[0] for name, values in parse_qs(urlsplit(came[0]).query).items()}
        if "code" not in said:
            raise FerruleError(f"signing in ended with {said.get('error', 'no code')!r}")
        return AuthorizationCodeResult(
            code=said["code"], state=said.get("state"), iss=said.get("iss")
        )

    async def _back(self) -> str:
        back = self._how.back
        if back is not None:
            await self._show()
            return await back()
        port = urlsplit(self._how.redirect_uri).port or 80
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
        found: list[str] = []
        async with listener, anyio.create_task_group() as group:
            group.start_soon(self._show)
            await listener.serve(partial(self._serve, found, group.cancel_scope.cancel), group)
        return found[0]

    async def _show(self) -> None:
        await anyio.to_thread.run_sync(self._how.show, self._url, abandon_on_cancel=True)

    async def _serve(
        self, found: list[str], enough: Callable[[], object], stream: SocketStream
    ) -> None:
        """Answer one request; the one with which the browser comes back is enough."""
        async with stream:
            with anyio.move_on_after(_BROWSER_SECONDS), suppress(*_BROKEN):
                head = await stream.receive(_HEAD)
                target = head.split(b" ", 2)[1].decode("ascii", "replace")
                is_it = urlsplit(target).path == urlsplit(self._how.redirect_uri).path
                await stream.send(_THANKS if is_it else _NOTHING)
                if is_it:
                    found.append(target)
                    enough()


_BROKEN = (anyio.BrokenResourceError, anyio.EndOfStream, IndexError, ValueError)
_BROWSER_SECONDS = 10.0
_HEAD = 16 * 1024
_PAGE = b"<!doctype html><title>Ferrule</title><p>Signed in. You may close this page."
_THANKS = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_PAGE), _PAGE)
)
_NOTHING = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
