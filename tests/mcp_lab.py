"""
An MCP server made with the SDK alone, to test our client with; it notes what happens to it.

`python mcp_lab.py` speaks over stdio, `python mcp_lab.py PORT` over HTTP on 127.0.0.1, and
`python mcp_lab.py SOCKET` forks a server over stdio for each `mcp/quick.py` that asks there. Its
tool `events` tells what it noted, so that every transport can be asked the same.
"""

import array
import base64
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypedDict, Unpack

import anyio
import anyio.to_thread
import uvicorn
from mcp import MCPError
from mcp import types as wire
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

BYTES = b"\x89PNG made up"
OBJECT: dict[str, Any] = {"type": "object"}
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name"},
        "times": {"type": "integer", "default": 3},
    },
    "required": ["name"],
}
PAGE = 5

Request = ServerRequestContext[Any]
Questions = dict[str, wire.CreateMessageRequest | wire.ListRootsRequest | wire.ElicitRequest]
Answer = wire.CallToolResult | wire.InputRequiredResult
Run = Callable[["Lab", Request, wire.CallToolRequestParams], Awaitable[Answer]]

TOOLS: dict[str, tuple[wire.Tool, Run]] = {}


class ToolFacts(TypedDict, total=False):
    """What else a tool says of itself."""

    description: str
    title: str
    annotations: wire.ToolAnnotations
    output_schema: dict[str, Any]


class ResultFacts(TypedDict, total=False):
    """What else a result says."""

    is_error: bool
    structured_content: Any
    _meta: dict[str, Any]


def offer(
    name: str, schema: dict[str, Any] = OBJECT, **facts: Unpack[ToolFacts]
) -> Callable[[Run], Run]:
    """Offer what is decorated as a tool."""

    def decorate(run: Run) -> Run:
        TOOLS[name] = (wire.Tool(name=name, input_schema=schema, **facts), run)
        return run

    return decorate


def said(text: str, **facts: Unpack[ResultFacts]) -> wire.CallToolResult:
    """Return a result of one text."""
    return wire.CallToolResult(content=[wire.TextContent(text=text)], **facts)


class Lab:
    """One server, and what happened to it."""

    def __init__(self, *, page: int = PAGE) -> None:
        self.events: list[str] = []
        self.bus = InMemorySubscriptionBus()
        self.tools = dict(TOOLS)
        self.page = page
        self.release = threading.Event()
        self.server: Server[Any] = Server(
            "lab",
            version="1.2",
            instructions="Use it wisely.",
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_subscriptions_listen=ListenHandler(self.bus),
        )

    async def list_tools(
        self, _: Request, params: wire.PaginatedRequestParams | None
    ) -> wire.ListToolsResult:
        """Give one page."""
        names = sorted(self.tools)
        start = int(params.cursor) if params and params.cursor else 0
        end = start + self.page
        return wire.ListToolsResult(
            tools=[self.tools[name][0] for name in names[start:end]],
            next_cursor=str(end) if end < len(names) else None,
            ttl_ms=0,
            cache_scope="private",
        )

    async def call_tool(self, request: Request, params: wire.CallToolRequestParams) -> Answer:
        """Run one of them."""
        if params.name not in self.tools:
            raise MCPError(code=wire.INVALID_PARAMS, message=f"Unknown tool: {params.name}")
        self.events.append(f"call {params.name}")
        return await self.tools[params.name][1](self, request, params)

    async def grow(self, request: Request, name: str) -> None:
        """Offer one tool more, and tell everybody."""
        hints = wire.ToolAnnotations(read_only_hint=True)
        self.tools[name] = (wire.Tool(name=name, input_schema=OBJECT, annotations=hints), _new)
        await self.bus.publish(ToolsListChanged())
        await request.session.send_tool_list_changed()


@offer(
    "add",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    description="Add two integers.",
    title="Adder",
    annotations=wire.ToolAnnotations(read_only_hint=True, destructive_hint=False, title="no"),
    output_schema={
        "type": "object",
        "properties": {"sum": {"type": "integer"}},
        "required": ["sum"],
    },
)
async def _add(_: Lab, __: Request, params: wire.CallToolRequestParams) -> Answer:
    arguments = params.arguments or {}
    total = arguments["a"] + arguments["b"]
    return said(str(total), structured_content={"sum": total}, _meta={"lab.example/trace": "t1"})


@offer("echo", annotations=wire.ToolAnnotations(read_only_hint=True))
async def _echo(_: Lab, request: Request, params: wire.CallToolRequestParams) -> Answer:
    meta = {key: value for key, value in (request.meta or {}).items() if "ferrule/" in key}
    return said("echo", structured_content={"arguments": params.arguments, "meta": meta})


@offer("kinds", annotations=wire.ToolAnnotations(read_only_hint=True))
async def _kinds(_: Lab, __: Request, ___: wire.CallToolRequestParams) -> Answer:
    data = base64.b64encode(BYTES).decode()
    text = wire.TextResourceContents(uri="lab://a", text="hello", mime_type="text/plain")
    blob = wire.BlobResourceContents(uri="lab://b.pdf", blob=data, mime_type="application/pdf")
    return wire.CallToolResult(
        content=[
            wire.TextContent(text="t"),
            wire.ImageContent(data=data, mime_type="image/png"),
            wire.AudioContent(data=data, mime_type="audio/wav"),
            wire.EmbeddedResource(resource=text),
            wire.EmbeddedResource(resource=blob),
            wire.ResourceLink(uri="file:///x.rs", name="x.rs", mime_type="text/x-rust"),
        ]
    )


@offer("lines", annotations=wire.ToolAnnotations(read_only_hint=True))
async def _lines(_: Lab, __: Request, ___: wire.CallToolRequestParams) -> Answer:
    return wire.CallToolResult(content=[wire.TextContent(text=line) for line in ("one", "two")])


@offer("fail")
async def _fail(_: Lab, __: Request, ___: wire.CallToolRequestParams) -> Answer:
    return said("the file is locked", is_error=True)


@offer("silent")
async def _silent(_: Lab, __: Request, ___: wire.CallToolRequestParams) -> Answer:
    return wire.CallToolResult(content=[], is_error=True)


@offer("boom")
async def _boom(_: Lab, __: Request, ___: wire.CallToolRequestParams) -> Answer:
    raise ValueError("secret /etc/passwd")


@offer("refuse")
async def _refuse(_: Lab, __: Request, ___: wire.CallToolRequestParams) -> Answer:
    raise MCPError(code=wire.INVALID_PARAMS, message="no such row")


@offer("mismatch", output_schema={"type": "object", "properties": {"n": {"type": "integer"}}})
async def _mismatch(_: Lab, __: Request, ___: wire.CallToolRequestParams) -> Answer:
    return said("kept", structured_content={"n": "none"})


@offer("scalar")
async def _scalar(_: Lab, __: Request, ___: wire.CallToolRequestParams) -> Answer:
    return said("five", structured_content=[5, 2**53 + 1, 0.5])


@offer("record")
async def _record(_: Lab, __: Request, params: wire.CallToolRequestParams) -> Answer:
    data = '{"b":9007199254740993,"a":[1,2.5]}'
    failed = bool((params.arguments or {}).get("fail"))
    meta = {"ferrule/record": {"namespace": "lab:row", "data": data}}
    return said("recorded", is_error=failed, _meta=meta)


@offer("steps")
async def _steps(_: Lab, request: Request, params: wire.CallToolRequestParams) -> Answer:
    for step in (1, 2, 3):
        await request.session.report_progress(step * 10, 30, f"step {step}")
    return said("done")


@offer("wait")
async def _wait(lab: Lab, _: Request, __: wire.CallToolRequestParams) -> Answer:
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        lab.events.append("cancelled wait")
        raise
    return said("never")


@offer("wait_thread")
async def _wait_thread(lab: Lab, _: Request, __: wire.CallToolRequestParams) -> Answer:
    try:
        await anyio.to_thread.run_sync(lab.release.wait, 20, abandon_on_cancel=True)
    except anyio.get_cancelled_exc_class():
        lab.events.append("cancelled wait_thread")
        raise
    return said("released")


@offer("ask")
async def _ask(lab: Lab, request: Request, params: wire.CallToolRequestParams) -> Answer:
    form = wire.ElicitRequestFormParams(message="Who is it?", requested_schema=FORM)
    if request.protocol_version >= "2026-07-28":
        answer = (params.input_responses or {}).get("q")
        if answer is None:
            asked: Questions = {"q": wire.ElicitRequest(params=form)}
            return wire.InputRequiredResult(input_requests=asked, request_state="s1")
        assert params.request_state == "s1"
    else:
        try:
            answer = await request.session.elicit_form(
                form.message, FORM, related_request_id=request.request_id
            )
        except anyio.get_cancelled_exc_class():
            lab.events.append("cancelled ask")
            raise
    assert isinstance(answer, wire.ElicitResult)
    lab.events.append(f"heard {answer.action}")
    return said(f"{answer.action} {sorted((answer.content or {}).items())}")


@offer("ask_url")
async def _ask_url(lab: Lab, request: Request, params: wire.CallToolRequestParams) -> Answer:
    url = "https://example.com/pay"
    if request.protocol_version >= "2026-07-28":
        answer = (params.input_responses or {}).get("u")
        if answer is None:
            page = wire.ElicitRequestURLParams(message="Pay", url=url)
            asked: Questions = {"u": wire.ElicitRequest(params=page)}
            return wire.InputRequiredResult(input_requests=asked)
    else:
        answer = await request.session.elicit_url(
            "Pay", url, "e-1", related_request_id=request.request_id
        )
    assert isinstance(answer, wire.ElicitResult)
    lab.events.append(f"heard {answer.action}")
    return said(answer.action)


@offer("grow")
async def _grow(lab: Lab, request: Request, _: wire.CallToolRequestParams) -> Answer:
    await lab.grow(request, f"new{len(lab.tools)}")
    return said("grown")


async def _new(_: Lab, __: Request, ___: wire.CallToolRequestParams) -> Answer:
    return said("new")


@offer("die")
async def _die(_: Lab, __: Request, ___: wire.CallToolRequestParams) -> Answer:
    os._exit(3)


@offer("where", annotations=wire.ToolAnnotations(read_only_hint=True))
async def _where(_: Lab, __: Request, ___: wire.CallToolRequestParams) -> Answer:
    return said("here", structured_content={"pid": os.getpid(), "env": dict(os.environ)})


@offer("events", annotations=wire.ToolAnnotations(read_only_hint=True))
async def _events(lab: Lab, __: Request, ___: wire.CallToolRequestParams) -> Answer:
    return said("events", structured_content={"events": lab.events})


async def serve(lab: Lab) -> None:
    """Speak over stdio."""
    options = lab.server.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (read, write):
        await lab.server.run(read, write, options)


def fork_for(asking: socket.socket) -> None:
    """Be a server on the streams that were sent, and tell who sent them how it ended."""
    _, ancillary, _, _ = asking.recvmsg(1, socket.CMSG_SPACE(3 * 4))
    streams = array.array("i")
    streams.frombytes(ancillary[0][2])
    child = os.fork()
    if child == 0:
        for place, stream in enumerate(streams):
            os.dup2(stream, place)
        for stream in (*streams, asking.fileno()):
            os.close(stream)
        anyio.run(serve, Lab())
        os._exit(0)
    for stream in streams:
        os.close(stream)
    threading.Thread(target=_tell_its_end, args=(child, asking)).start()


def _tell_its_end(child: int, asking: socket.socket) -> None:
    _, status = os.waitpid(child, 0)
    with asking, suppress(OSError):
        asking.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "little", signed=True))


def nursery(path: str) -> None:
    """Fork servers for whoever asks, until our standard input closes."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(16)
        print("ready", flush=True)  # noqa: T201  # to who started us
        while True:
            fork_for(listening.accept()[0])


if __name__ == "__main__":
    if len(sys.argv) == 1:
        anyio.run(serve, Lab())
    elif sys.argv[1].isdecimal():
        app = Lab().server.streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
    else:
        nursery(sys.argv[1])
