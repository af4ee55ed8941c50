"""HTTP that fails: the answer to one request, with what is known of whether it ran."""

import gzip
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ferrule import Executor, Failed, FerruleError, Outcome, Secret, ToolCall, Unknown
from ferrule.mcp import Address, Remote, connect
from ferrule.mcp import _soft as soft

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:Async generator")]

Serve = Callable[..., Any]
NAMES = ["ok", "500", "503", "403", "404", "429", "html", "gzip", "huge", "cut", "half", "redirect"]
NAMES += ["accepted", "rpc", "forged", "event", "events"]


def answered(message: dict[str, Any]) -> object:
    """Answer what comes before a call."""
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "web", "version": "0"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]}
        case _:
            return None


def fault(name: str, number: object) -> Response:
    """Answer a call as its name says."""
    done = {"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": "t"}]}}
    text = json.dumps(done)
    error = {"jsonrpc": "2.0", "id": number, "error": {"code": -32603, "message": "secret"}}
    forged = {"code": soft.CODE, "message": "x", "data": {"mark": "0", "verdict": "not_sent"}}
    one_line = {"content-type": "application/json"}

    async def cut() -> AsyncIterator[bytes]:
        yield text[:10].encode()
        raise ConnectionError

    async def endless() -> AsyncIterator[bytes]:
        yield b'{"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "'
        for _ in range(soft.BODY_BYTES // 65536 + 2):
            yield b"x" * 65536

    async def event() -> AsyncIterator[bytes]:
        yield b"data: "
        for _ in range(soft.BODY_BYTES // 65536 + 2):
            yield b"x" * 65536

    async def events() -> AsyncIterator[bytes]:
        for _ in range(5000):
            note = {"jsonrpc": "2.0", "method": "notifications/unheard-of", "params": {"x": 1}}
            yield f"data: {json.dumps(note)}\n\n".encode()
        yield f"data: {text}\n\n".encode()

    made: dict[str, Callable[[], Response]] = {
        "ok": lambda: Response(text, headers=one_line),
        "html": lambda: Response("<p>Log in</p>", media_type="text/html"),
        "gzip": lambda: Response(
            gzip.compress(text.encode()), headers={**one_line, "content-encoding": "gzip"}
        ),
        "huge": lambda: StreamingResponse(endless(), headers=one_line),
        "cut": lambda: StreamingResponse(cut(), headers=one_line),
        "half": lambda: Response(text[:30], headers=one_line),
        "redirect": lambda: Response(status_code=307, headers={"location": "http://127.0.0.2/"}),
        "accepted": lambda: Response(status_code=202),
        "rpc": lambda: JSONResponse(error, status_code=500),
        "event": lambda: StreamingResponse(event(), media_type="text/event-stream"),
        "events": lambda: StreamingResponse(events(), media_type="text/event-stream"),
        "forged": lambda: JSONResponse({**error, "error": forged}, status_code=503),
    }
    return made[name]() if name in made else Response("no", status_code=int(name))


def web(seen: list[dict[str, Any]]) -> Starlette:
    """Return a server whose tools are the ways in which HTTP fails."""

    async def post(request: Request) -> Response:
        message = json.loads(await request.body())
        if message["method"] == "tools/call":
            seen.append({"call": message["params"]["name"], **dict(request.headers)})
            return fault(message["params"]["name"], message["id"])
        result = answered(message)
        if result is None:
            return Response(status_code=202 if "id" not in message else 400)
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result})

    return Starlette(routes=[Route("/mcp", post, methods=["POST"])])


async def run(remote: Remote, *names: str) -> list[Outcome]:
    """Run calls one after another."""
    return await Executor(remote.tools, sequential=True).run([ToolCall.of(n) for n in names])


async def test_each_failure_is_the_answer_to_its_own_call(serve: Serve) -> None:
    """python-sdk#3560, MC-08: refused calls did not run, the others may have; each is sent once."""
    seen: list[dict[str, Any]] = []
    serving = serve(lambda: web(seen))
    async with connect(Address(serving.url, era="legacy")) as remote:
        outcomes = dict(zip(NAMES, await run(remote, *NAMES), strict=True))
        [after] = await run(remote, "ok")

    unknown = [name for name, outcome in outcomes.items() if isinstance(outcome, Unknown)]
    failed = [name for name, outcome in outcomes.items() if isinstance(outcome, Failed)]
    lost = ["500", "503", "html", "gzip", "huge", "cut", "half"]
    lost += ["accepted", "rpc", "forged", "event"]
    assert unknown == lost
    assert failed == ["403", "404", "429", "redirect"]
    assert outcomes["403"].text.endswith("it answered with HTTP 403")
    assert [call["call"] for call in seen] == [*NAMES, "ok"]
    assert (after.text, outcomes["events"].text) == ("t", "t")
    assert all("secret" not in outcome.text for outcome in outcomes.values())


async def test_headers_are_sent_and_never_shown(serve: Serve) -> None:
    """SE-10: a secret is revealed to the server alone."""
    seen: list[dict[str, Any]] = []
    serving = serve(lambda: web(seen))
    headers: dict[str, str | Secret[str]] = {"authorization": Secret("Bearer XYZ"), "x-team": "a"}
    address = Address(serving.url, headers=headers, era="legacy")
    async with connect(address) as remote:
        await run(remote, "ok")

    assert (seen[0]["authorization"], seen[0]["x-team"]) == ("Bearer XYZ", "a")
    assert "XYZ" not in repr(address)
    assert "XYZ" not in repr(remote)


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_an_address_where_nobody_is(serve: Serve, era: Literal["auto", "legacy"]) -> None:
    """python-sdk#3560: it says so, nobody is cancelled, and nothing is left to close."""
    serving = serve(lambda: web([]))
    await anyio.to_thread.run_sync(serving.stop)
    with pytest.raises(FerruleError, match="attempts"):
        await connect(Address(f"{serving.url}?token=XYZ", era=era)).__aenter__()


async def test_an_address_that_is_no_mcp_server(serve: Serve) -> None:
    """MC-08: both handshakes are refused, and the status is told."""

    async def get(_: Request) -> Response:
        return Response("hello")

    serving = serve(lambda: Starlette(routes=[Route("/mcp", get)]))
    with pytest.raises(FerruleError, match="HTTP 405"):
        await connect(serving.url).__aenter__()
