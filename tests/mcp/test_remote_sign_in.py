"""Signing in: asked once, renewed without asking, across restarts and processes."""

import base64
import hashlib
import json
import secrets
import stat
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import httpx2
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ferrule import Executor, FerruleError, InvalidValue, ToolCall
from ferrule.mcp import Address, Grant, KeyringTokens, Remote, SignIn, TokenFile, Tokens, connect
from mcp_lab import Lab

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:Async generator")]

Serve = Callable[..., Any]


class Authority:
    """An authorization server: codes by PKCE, and refresh tokens that are good for once."""

    def __init__(self) -> None:
        self.url = ""
        self.seconds = 3600
        self.codes: dict[str, dict[str, str]] = {}
        self.valid: set[str] = set()
        self.refresh: set[str] = set()
        self.log: list[str] = []
        self.lock = threading.Lock()

    def app(self) -> Starlette:
        """Return it as a web app."""
        return Starlette(
            routes=[
                Route("/.well-known/oauth-authorization-server", self.metadata),
                Route("/register", self.register, methods=["POST"]),
                Route("/authorize", self.authorize),
                Route("/token", self.token, methods=["POST"]),
            ]
        )

    async def metadata(self, _: Request) -> Response:
        """Say what there is."""
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "registration_endpoint": f"{self.url}/register",
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
            }
        )

    async def register(self, request: Request) -> Response:
        """Register a client."""
        self.log.append("register")
        asked = await request.json()
        made = {**asked, "client_id": "c-1", "token_endpoint_auth_method": "none"}
        return JSONResponse(made, status_code=201)

    async def authorize(self, request: Request) -> Response:
        """Sign a person in, who says yes at once."""
        self.log.append("authorize")
        query = dict(request.query_params)
        code = secrets.token_hex(8)
        self.codes[code] = query
        back = {"code": code, "state": query["state"]}
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode(back)}", status_code=302)

    async def token(self, request: Request) -> Response:
        """Give a token, for a code or for a refresh token that was not used yet."""
        form = {k: v[0] for k, v in parse_qs((await request.body()).decode()).items()}
        self.log.append(form["grant_type"])
        if form["grant_type"] == "refresh_token":
            with self.lock:
                if form["refresh_token"] not in self.refresh:
                    self.log.append("stolen")
                    return JSONResponse({"error": "invalid_grant"}, status_code=400)
                self.refresh.discard(form["refresh_token"])
        else:
            challenge = hashlib.sha256(form["code_verifier"].encode()).digest()
            expected = base64.urlsafe_b64encode(challenge).decode().rstrip("=")
            if self.codes.pop(form["code"])["code_challenge"] != expected:
                return JSONResponse({"error": "invalid_grant"}, status_code=400)
        access, refresh = secrets.token_hex(8), secrets.token_hex(8)
        self.valid = {access}
        self.refresh.add(refresh)
        return JSONResponse(
            {
                "access_token": access,
                "token_type": "Bearer",
                "expires_in": self.seconds,
                "refresh_token": refresh,
            }
        )

    def guarded(self, port: Callable[[], int]) -> Starlette:
        """Return a lab that takes none but our tokens."""
        app = Lab().server.streamable_http_app()

        async def resource(_: Request) -> Response:
            place = f"http://127.0.0.1:{port()}/mcp"
            return JSONResponse({"resource": place, "authorization_servers": [self.url]})

        app.router.routes.insert(0, Route("/.well-known/oauth-protected-resource/mcp", resource))
        app.add_middleware(_Gate, authority=self)
        return app


class _Gate:
    """Refuses what comes without a token."""

    def __init__(self, app: ASGIApp, authority: Authority) -> None:
        self.app = app
        self.authority = authority

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/mcp":
            token = dict(scope["headers"]).get(b"authorization", b"").decode()
            if token.removeprefix("Bearer ") not in self.authority.valid:
                refusal = Response("", 401, {"www-authenticate": 'Bearer error="invalid_token"'})
                await refusal(scope, receive, send)
                return
        await self.app(scope, receive, send)


class Place(msgspec.Struct):
    """A server that asks for a token, who gives one, and where we keep it."""

    authority: Authority
    url: str
    file: Path
    shown: list[str]

    def show(self, url: str) -> None:
        """Be the browser of a person."""
        self.shown.append(url)
        httpx2.get(url, follow_redirects=True)

    @asynccontextmanager
    async def remote(
        self, tokens: Tokens | None = None, *, seconds: float = 20.0
    ) -> AsyncIterator[Remote]:
        """Connect, as a program that was just started does."""
        sign_in = SignIn(
            tokens or TokenFile(self.file),
            show=self.show,
            redirect_uri="http://127.0.0.1:18791/callback",
            seconds=seconds,
        )
        async with connect(Address(self.url, sign_in=sign_in)) as remote:
            yield remote

    def end(self) -> None:
        """Have the stored token end."""
        kept = json.loads(self.file.read_text())
        kept[self.url]["expires_at"] = time.time() - 1
        self.file.write_text(json.dumps(kept))


@pytest.fixture
def place(serve: Serve, tmp_path: Path) -> Place:
    """Serve both."""
    authority = Authority()
    authority.url = serve(authority.app).url.removesuffix("/mcp")
    found: list[Any] = []
    found.append(serve(lambda: authority.guarded(lambda: found[0].port)))
    return Place(authority, found[0].url, tmp_path / "keep" / "tokens.json", [])


async def add(remote: Remote) -> str:
    """Run one call."""
    [outcome] = await Executor(remote.tools).run([ToolCall.of("add", {"a": 1, "b": 2})])
    return outcome.text


async def test_a_person_signs_in_once_and_never_again(place: Place) -> None:
    """AT-108: a code by PKCE; after a restart nobody is asked, and nothing is renewed."""
    async with place.remote() as remote:
        assert await add(remote) == "3"
    async with place.remote() as remote:
        assert await add(remote) == "3"

    assert place.authority.log == ["register", "authorize", "authorization_code"]
    assert len(place.shown) == 1
    kept = json.loads(place.file.read_text())[place.url]
    assert kept["expires_at"] == pytest.approx(time.time() + 3600, abs=60)
    assert stat.S_IMODE(place.file.stat().st_mode) == 0o600


async def test_a_token_that_ended_is_renewed_and_not_asked_for(place: Place) -> None:
    """AT-108, python-sdk#3250: after a restart, where the authorization server says, rotated."""
    async with place.remote() as remote:
        await add(remote)
    for _ in range(2):
        place.end()
        async with place.remote() as remote:
            assert await add(remote) == "3"

    assert place.authority.log[3:] == ["refresh_token", "refresh_token"]
    assert len(place.shown) == 1


async def test_two_processes_renew_one_token_once(place: Place) -> None:
    """AT-108: the second finds what the first was given; no refresh token is used twice."""
    async with place.remote() as remote:
        await add(remote)
    place.end()
    async with place.remote() as one, place.remote() as other:
        place.end()
        texts: list[str] = []

        async def call(remote: Remote) -> None:
            texts.append(await add(remote))

        async with anyio.create_task_group() as group:
            for remote in (one, other, one, other):
                group.start_soon(call, remote)

    assert texts == ["3"] * 4
    assert "stolen" not in place.authority.log
    assert place.authority.log.count("refresh_token") == 2
    assert len(place.shown) == 1


async def test_what_cannot_be_renewed_is_asked_for_again(place: Place) -> None:
    """AT-108: a refresh token that was taken back; the client stays registered."""
    async with place.remote() as remote:
        await add(remote)
    place.end()
    place.authority.refresh.clear()
    place.authority.valid.clear()
    async with place.remote() as remote:
        assert await add(remote) == "3"

    assert place.authority.log.count("register") == 1
    assert len(place.shown) == 2


async def test_nobody_signs_in(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """MC-08: after a time it says so; nothing was kept."""
    monkeypatch.setattr(Place, "show", lambda self, url: self.shown.append(url))
    with pytest.raises(FerruleError, match="signing in to it failed"):
        await place.remote(seconds=0.3).__aenter__()

    assert not place.file.exists()


async def test_a_file_that_others_may_read_is_refused(place: Place) -> None:
    """SE-10: fails closed, and says what to do."""
    async with place.remote() as remote:
        await add(remote)
    place.file.chmod(0o644)
    with pytest.raises(FerruleError, match="chmod 600"):
        await TokenFile(place.file).read(place.url)


@pytest.mark.parametrize("text", ["", "[]", '{"u": 5}', '{"u": {"access": "x"}}'])
async def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    """JSON-1: and what it holds is not in the sentence."""
    file = tmp_path / "t.json"
    file.touch(0o600)
    file.write_text(text)
    with pytest.raises(FerruleError, match=r"no file of tokens|no grant"):
        await TokenFile(file).read("u")


class Ring:
    """What has the three functions of the module `keyring`."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, name: str) -> str | None:
        """Return one."""
        return self.entries.get((service, name))

    def set_password(self, service: str, name: str, password: str) -> None:
        """Keep one."""
        self.entries[service, name] = password

    def delete_password(self, service: str, name: str) -> None:
        """Forget one."""
        del self.entries[service, name]


async def test_tokens_in_a_keyring(tmp_path: Path, place: Place) -> None:
    """AT-108: the same, where the operating system keeps them."""
    ring = Ring()
    tokens = KeyringTokens(ring, lock=tmp_path / "lock")
    async with place.remote(tokens=tokens) as remote:
        assert await add(remote) == "3"
    grant = await tokens.read(place.url)
    assert grant is not None
    await tokens.write(place.url, msgspec.structs.replace(grant, expires_at=0.0))
    async with place.remote(tokens=tokens) as remote:
        assert await add(remote) == "3"

    assert place.authority.log[3:] == ["refresh_token"]
    assert list(ring.entries) == [("ferrule", place.url)]
    await tokens.write(place.url, None)
    assert await tokens.read(place.url) is None
    await tokens.write(place.url, None)


async def test_a_lock_is_had_by_one_at_a_time(tmp_path: Path) -> None:
    """AT-108: the second waits for the first, and goes on when it is free."""
    tokens = TokenFile(tmp_path / "t.json")
    log: list[str] = []

    async def hold(name: str) -> None:
        async with tokens.locked():
            log.append(f"{name} in")
            await anyio.sleep(0.1)
            log.append(f"{name} out")

    async with anyio.create_task_group() as group:
        group.start_soon(hold, "a")
        group.start_soon(hold, "b")

    assert [line[-2:] for line in log] == ["in", "ut", "in", "ut"]
    await tokens.write("u", Grant(access_token="a"))
    assert await tokens.read("u") == Grant(access_token="a")


def test_an_address_that_nobody_comes_back_to_is_refused() -> None:
    """FN-1: without `back` we listen ourselves, on this machine."""
    with pytest.raises(InvalidValue, match=r"127\.0\.0\.1"):
        SignIn(TokenFile("x"), redirect_uri="https://example.com/callback")
    assert urlsplit(SignIn(TokenFile("x")).redirect_uri).port == 8790
