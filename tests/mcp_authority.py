"""A server that asks for a token, and the authorization server that gives one, both local."""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlencode

import anyio
import httpx2
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ferrule.mcp import Address, Remote, SignIn, TokenFile, Tokens, connect
from mcp_lab import Lab
from serving import free_port


class Gate:
    """Holds back who asks for another token, until the test has seen what it waits for."""

    def __init__(self) -> None:
        self.came = threading.Semaphore(0)
        self.opened = threading.Event()

    async def passed(self, request: Request) -> bool:
        """Wait at the gate; say whether who asked is still there."""
        self.came.release()
        while not self.opened.is_set():
            if await request.is_disconnected():
                return False
            await anyio.sleep(0.01)
        return not await request.is_disconnected()


class Authority:
    """An authorization server: codes by PKCE, and refresh tokens that are good for once."""

    def __init__(self) -> None:
        self.url = ""
        self.seconds: int | None = 3600
        self.refuses_all = False
        self.wants_more = False
        self.codes: dict[str, dict[str, str]] = {}
        self.valid: set[str] = set()
        self.refresh: set[str] = set()
        self.log: list[str] = []
        self.lock = threading.Lock()
        self.gate: Gate | None = None

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
        self.wants_more = False
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
            if self.gate is not None and not await self.gate.passed(request):
                self.log.append("hung up")
                return Response(status_code=499)
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

    def refuses(self, token: str) -> bool:
        """Say whether the server takes no call with this token."""
        return self.refuses_all or token not in self.valid

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
            if self.authority.wants_more:
                challenge = 'Bearer error="insufficient_scope", scope="more"'
                await Response("", 403, {"www-authenticate": challenge})(scope, receive, send)
                return
            token = dict(scope["headers"]).get(b"authorization", b"").decode()
            if self.authority.refuses(token.removeprefix("Bearer ")):
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
            redirect_uri=f"http://127.0.0.1:{free_port()}/callback",
            seconds=seconds,
        )
        async with connect(Address(self.url, sign_in=sign_in)) as remote:
            yield remote

    def end(self) -> None:
        """Have the stored token end."""
        kept = json.loads(self.file.read_text())
        kept[self.url]["expires_at"] = time.time() - 1
        self.file.write_text(json.dumps(kept))
