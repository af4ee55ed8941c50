"""Who reaches a server over HTTP, and as whom."""

import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError, types
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import TypeAdapter

from ferrule import Authorization, Context, Deny, InvalidValue, Registry, tool
from ferrule.mcp import Server
from served import TOOLS
from serving import ERAS, Era, at_a_port, by_http, text_of

pytestmark = pytest.mark.anyio

HERE = "http://127.0.0.1:8000/mcp"
GOOD = [
    "127.0.0.1:8000",
    "localhost",
    "localhost:9",
    "LOCALHOST:8000",
    "localhost.:8000",
    "[::1]:8000",
    "[::1]",
]
BAD = [
    *("evil.test:8000", "127.0.0.1.evil.test", "localhost.evil.test:8000", "evil.test", ""),
    *("127.0.0.1@evil.test", "evil.test#127.0.0.1", "127.0.0.1:x", "10.0.0.1", "[::2]", "a b"),
]
GOOD_ORIGINS = ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:1"]
BAD_ORIGINS = [
    "http://evil.test",
    "null",
    "http://127.0.0.1.evil.test:8000",
    "localhost",
    "file://",
]


async def answered(
    *headers: tuple[bytes, bytes],
    kind: str = "http",
    **options: Any,  # noqa: ANN401  # of `asgi`
) -> list[dict[str, Any]]:
    """Return what the app of a server says to a request; its body is never to be read."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        raise AssertionError("the body was read")

    async def send(message: Any) -> None:  # noqa: ANN401  # of ASGI
        sent.append(dict(message))

    app = Server(TOOLS).asgi(**options)
    scope = {"type": kind, "method": "POST", "path": "/else", "headers": list(headers)}
    with contextlib.suppress(AssertionError):
        await app(scope, receive, send)
    return sent


async def status(host: str, origin: str | None = None, **options: Any) -> int:  # noqa: ANN401
    """Return the status of a request; 404 says that it came through, as nothing is there."""
    headers = [(b"host", host.encode())] + (
        [] if origin is None else [(b"origin", origin.encode())]
    )
    code: int = (await answered(*headers, **options))[0]["status"]
    return code


@pytest.mark.parametrize("host", GOOD)
async def test_the_names_of_this_machine_are_served(host: str) -> None:
    """SE-01: whatever the port, and as names may be written."""
    assert await status(host) == 404
    for origin in GOOD_ORIGINS:
        assert await status(host, origin) == 404


@pytest.mark.parametrize("host", BAD)
async def test_no_other_name_is_served(host: str) -> None:
    """SE-01: a page that had its own name lead here is refused before its body is read."""
    assert await status(host) == 403


@pytest.mark.parametrize("origin", BAD_ORIGINS)
async def test_no_other_page_is_served(origin: str) -> None:
    """SE-01: a good Host alone is not enough for who says that a page sends it."""
    assert await status("localhost:8000", origin) == 403


async def test_what_is_said_twice_is_refused() -> None:
    """SE-01: two readers of a request could each take another of them."""
    host, origin = (b"host", b"localhost"), (b"origin", b"http://localhost")
    assert (await answered())[0]["status"] == 403
    assert (await answered(host, (b"host", b"evil.test")))[0]["status"] == 403
    assert (await answered(host, origin, origin))[0]["status"] == 403
    assert (await answered((b"host", b"evil.test"), kind="websocket"))[0][
        "type"
    ] == "websocket.close"


async def test_more_names_and_pages_are_served_if_they_are_named() -> None:
    """SE-01: opening up is explicit, name by name, or all of it for who stands behind a proxy."""
    named: dict[str, Any] = {"hosts": ["Tools.Example", "other.example:8443"]}
    assert await status("tools.example:1", **named) == 404
    assert await status("other.example:8443", **named) == 404
    assert await status("other.example:1", **named) == 403
    assert await status("tools.example", "https://tools.example", **named) == 404
    assert (
        await status("localhost", "https://chat.example", origins=["https://Chat.example/"]) == 404
    )
    assert (
        await status("localhost", "https://chat.example.evil", origins=["https://chat.example"])
        == 403
    )
    assert await status("any.example", hosts=["*"]) == 404
    assert await status("any.example", "https://any.example", hosts=["*"]) == 404
    assert await status("any.example", "https://evil.test", hosts=["*"]) == 403
    with pytest.raises(InvalidValue, match="a host is `name` or `name:port`"):
        Server(TOOLS).asgi(hosts=["https://tools.example"])


# ---- bearer tokens -------------------------------------------------------------------------------


class Verifier:
    """Knows two people."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return whose a token is."""
        if token not in {"alice", "bob", "late"}:
            return None
        until = int(time.time()) + (-60 if token == "late" else 600)
        return AccessToken(
            token=token,
            client_id="the-app",
            scopes=["use"] if token != "bob" else ["use", "more"],
            subject=token,
            expires_at=until,
            claims={"iss": "https://issuer.example"},
        )


def auth() -> AuthSettings:
    """Return who issues tokens, and what for."""
    return AuthSettings.model_validate(
        {
            "issuer_url": "https://issuer.example",
            "resource_server_url": HERE,
            "required_scopes": ["use"],
            "validate_token_resource": False,
        }
    )


@contextlib.asynccontextmanager
async def known(server: Server, era: Era, token: str, **options: Any) -> AsyncGenerator[Client]:  # noqa: ANN401
    """Give a client that brings a token."""
    with at_a_port(lambda: server.asgi(tokens=Verifier(), auth=auth())) as address:
        headers = {"Authorization": f"Bearer {token}"}
        async with by_http(address, era, headers, **options) as client:
            yield client


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("era", ERAS)
async def test_a_token_says_who_calls(era: Era) -> None:
    """MCP-1: the caller of each call, for policies and tools; and a session by principal."""
    seen: list[tuple[object, object]] = []

    @tool
    async def whose(context: Context) -> str:
        """Note who calls."""
        seen.append((context.caller, context.session))
        return ""

    def policy(authorization: Authorization) -> bool | Deny:
        caller = authorization.caller
        return (isinstance(caller, dict) and caller["subject"] == "bob") or Deny("not you")

    server = Registry([whose])
    for token in ("alice", "bob"):
        async with known(Server(server.guarded(policy)), era, token) as client:
            done = await client.call_tool("whose")
            assert text_of(done) == ("not you" if token == "alice" else "")

    [(caller, session)] = seen
    assert caller == {
        "client": "the-app",
        "issuer": "https://issuer.example",
        "subject": "bob",
        "scopes": ["use", "more"],
    }
    assert getattr(session, "kind", None) == ("connection" if era == "legacy" else "principal")


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_without_a_good_token_nobody_is_served() -> None:
    """MCP-1: 401 says where to get one, and the metadata of the resource who issues them."""
    app = Server(TOOLS)
    with at_a_port(lambda: app.asgi(tokens=Verifier(), auth=auth())) as address:
        async with httpx2.AsyncClient() as http:
            for header in ({}, {"Authorization": "Bearer eve"}, {"Authorization": "Bearer late"}):
                refused = await http.post(f"{address}/mcp", json={}, headers=header)
                assert refused.status_code == 401
                assert (
                    'resource_metadata="http://127.0.0.1:8000/.well-known/oauth-protected-resource/mcp"'
                    in refused.headers["www-authenticate"]
                )
            told = await http.get(f"{address}/.well-known/oauth-protected-resource/mcp")

    assert told.json()["resource"] == HERE
    assert told.json()["authorization_servers"] == ["https://issuer.example"]
    assert told.json()["scopes_supported"] == ["use"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize(("name", "given"), [("sure", None), ("draft", {"subject": "it"})])
async def test_what_one_client_carries_is_of_no_use_to_another(name: str, given: Any) -> None:  # noqa: ANN401
    """SUS-5: a state is of the one whose call it is."""
    either: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)

    async def nobody(_: object, __: object) -> types.ElicitResult:
        return types.ElicitResult(action="cancel")

    server = Server(TOOLS)
    with at_a_port(lambda: server.asgi(tokens=Verifier(), auth=auth())) as address:

        async def request(token: str, **more: Any) -> Any:  # noqa: ANN401  # either kind of result
            headers = {"Authorization": f"Bearer {token}"}
            async with by_http(address, "auto", headers, elicitation_callback=nobody) as client:
                params = types.CallToolRequestParams(name=name, arguments=given, **more)
                return await client.session.send_request(
                    types.CallToolRequest(params=params), either
                )

        asked = await request("alice")
        yes = types.ElicitResult(action="accept", content={"answer": True})
        answers = {"question": yes}
        with pytest.raises((MCPError, BaseExceptionGroup)) as caught:
            await request("bob", input_responses=answers, request_state=asked.request_state)
        done = await request("alice", input_responses=answers, request_state=asked.request_state)

    leaf: BaseException = caught.value
    while isinstance(leaf, BaseExceptionGroup):
        leaf = leaf.exceptions[0]
    assert isinstance(leaf, MCPError)
    assert leaf.error.code == types.INVALID_PARAMS
    assert not done.is_error
