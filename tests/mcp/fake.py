"""
A server written by hand that misbehaves: `python fake.py MODE…`; JSON-RPC over stdio, one era.

It imports nothing but the standard library, so that it starts at once, and speaks the handshake era
unless told otherwise. What it is asked to do wrong is in its arguments.
"""

import contextlib
import json
import os
import signal
import sys
from typing import Any

Message = dict[str, Any]

MODES = set(sys.argv[1:])
EMPTY: dict[str, Any] = {"type": "object"}
ODD: list[Any] = [
    {"name": "fine", "inputSchema": EMPTY, "vendor": {"z": 1}},
    {"name": "no type", "inputSchema": EMPTY},
    {"name": "", "inputSchema": EMPTY},
    {"name": "nothing"},
    {"name": "null", "inputSchema": None},
    {"name": "untyped", "inputSchema": {"properties": {"x": {"type": "integer"}}}},
    {"name": "boolean", "inputSchema": True},
    {"name": "list", "inputSchema": {"type": ["object", "null"]}},
    {"name": "required", "inputSchema": {"type": "object", "required": None}},
    {"name": "properties", "inputSchema": {"type": "object", "properties": []}},
    {"name": "fine", "inputSchema": EMPTY, "description": "the same name once more"},
    {"name": "far", "inputSchema": {"type": "object", "$ref": "http://169.254.169.254/latest"}},
    {"name": "file", "inputSchema": {"type": "object", "$ref": "file:///etc/passwd"}},
    {"name": "dynamic", "inputSchema": {"type": "object", "$dynamicRef": "http://evil.test/#m"}},
    {
        "name": "round",
        "inputSchema": {
            "type": "object",
            "$ref": "#/$defs/A",
            "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}},
        },
    },
    {"name": "out", "inputSchema": EMPTY, "outputSchema": {"type": 5}},
    {"name": "text", "inputSchema": EMPTY, "description": 5},
    {"name": "task", "inputSchema": EMPTY, "execution": {"taskSupport": "required"}},
    {"name": "bool", "inputSchema": {"type": "object", "properties": {"x": True, "never": False}}},
    {
        "name": "hints",
        "inputSchema": EMPTY,
        "annotations": {"readOnlyHint": "yes", "destructiveHint": False, "vendorHint": 5},
    },
    "no tool at all",
    None,
]
ANSWERS: dict[str, Any] = {
    "nocontent": {"structuredContent": {"a": 1}},
    "empty": {"content": []},
    "video": {"content": [{"type": "video", "data": "x"}]},
    "extra": {"content": [{"type": "text", "text": "t", "vendor": 1}], "weird": 2},
    "nomime": {"content": [{"type": "image", "data": "aGk="}]},
    "nullerror": {"content": [{"type": "text", "text": "t"}], "isError": None},
    "base64": {
        "content": [
            {"type": "text", "text": "seen"},
            {"type": "image", "data": "!!!", "mimeType": "image/png"},
        ]
    },
    "neither": {"content": [{"type": "resource", "resource": {"uri": "x:y"}}]},
    "nolist": {"content": "text"},
    "notext": {"content": [{"type": "text", "text": 5}]},
    "noblock": {"content": [7]},
    "maybe": {"content": [], "isError": "maybe"},
    "nothing": {},
    "number": 5,
    "array": [1, 2],
}


def send(message: object) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(call: Message, result: object) -> None:
    """Answer a request."""
    send({"jsonrpc": "2.0", "id": call["id"], "result": result})


def fail(call: Message, code: int, message: object) -> None:
    """Answer a request with an error."""
    send({"jsonrpc": "2.0", "id": call["id"], "error": {"code": code, "message": message}})


def list_tools(call: Message, count: int) -> None:
    """List, in whatever way was asked for."""
    cursor = (call.get("params") or {}).get("cursor")
    many = [{"name": f"t{count}_{index}", "inputSchema": EMPTY} for index in range(3000)]
    named = [{"name": name, "inputSchema": EMPTY} for name in (*ANSWERS, *CALLS, "hang")]
    pages = {None: ("a", ""), "": ("b", "c"), "c": ("c", None)}
    lists: dict[str, dict[str, object]] = {
        "same-cursor": {"tools": [], "nextCursor": "same"},
        "two-cursors": {"tools": [], "nextCursor": "x" if cursor == "y" else "y"},
        "empty-cursor": {"tools": [], "nextCursor": ""},
        "for-ever": {"tools": [], "nextCursor": str(count)},
        "many": {"tools": many, "nextCursor": str(count)},
        "no-list": {"tools": "none"},
        "no-tools": {"tools": []},
        "odd": {"tools": ODD},
    }
    if "die-list" in MODES:
        os._exit(4)
    if "pages" in MODES:
        name, following = pages[cursor]
        more = {} if following is None else {"nextCursor": following}
        answer(call, {"tools": [{"name": name, "inputSchema": EMPTY}], **more})
    elif "silent-list" not in MODES:
        modes = [mode for mode in lists if mode in MODES]
        answer(call, lists[modes[0]] if modes else {"tools": named})


def die(_: Message) -> None:
    """End, without an answer."""
    os.kill(os.getpid(), signal.SIGKILL)


def half(call: Message) -> None:
    """Begin an answer and end."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": {}})[:20])
    sys.stdout.flush()
    os._exit(5)


def deaf(_: Message) -> None:
    """Close the standard output, and live on."""
    os.close(1)
    signal.pause()


def long(_: Message) -> None:
    """Write a line that has no end."""
    with contextlib.suppress(BrokenPipeError):
        while True:
            os.write(1, b"x" * 65536)


def flood(call: Message) -> None:
    """Write more to the standard error than a pipe holds."""
    for _ in range(64):
        os.write(2, b"noise " * 4096)
    answer(call, {"content": [{"type": "text", "text": "through"}]})


def noise(call: Message) -> None:
    """Write lines that are no messages, and an answer with a byte order mark and CRLF."""
    sys.stdout.write("Starting up...\n{\n\n[]\n\x00\n")
    done = {"jsonrpc": "2.0", "id": call["id"], "result": {"content": []}}
    sys.stdout.write("\ufeff" + json.dumps(done) + "\r\n")
    sys.stdout.flush()


def twice(call: Message) -> None:
    """Answer twice, in one write."""
    done = json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": {"content": []}})
    sys.stdout.write(f"{done}\n{done}\n")
    sys.stdout.flush()


def custom(call: Message) -> None:
    """Answer with an error of its own."""
    fail(call, -32000, "custom secret")


def unnamed(call: Message) -> None:
    """Answer with an error whose message is none."""
    fail(call, -32000, None)


def other(_: Message) -> None:
    """Answer a call that nobody made."""
    send({"jsonrpc": "2.0", "id": 987654, "result": {}})
    send({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "x"}})
    send({"jsonrpc": "2.0", "method": "notifications/unheard-of"})


def late(call: Message) -> None:
    """Answer, and ask a question afterwards."""
    answer(call, {"content": []})
    ask({"id": "late"})


def ask(call: Message) -> None:
    """Ask a question; what is answered goes to the next call of `heard`."""
    params = {"message": "Well?", "requestedSchema": {"type": "object", "properties": {}}}
    name = f"ask-{call['id']}"
    send({"jsonrpc": "2.0", "id": name, "method": "elicitation/create", "params": params})
    ASKED[name] = call


def progress(call: Message) -> None:
    """Tell of progress that is none, and of some that is."""
    token = ((call.get("params") or {}).get("_meta") or {}).get("progressToken")
    for done in ("x", None, True, [1], 1e400, 5, 4, 6):
        params = {"progressToken": token, "progress": done, "total": "y", "message": 7}
        send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 99}})
    answer(call, {"content": []})


def heard(call: Message) -> None:
    """Say what was answered to questions."""
    answer(call, {"content": [{"type": "text", "text": json.dumps(HEARD)}]})


CALLS = {
    one.__name__: one
    for one in (
        *(die, half, deaf, long, flood, noise, twice, custom, unnamed),
        *(other, late, ask, progress, heard),
    )
}
ASKED: dict[str, Any] = {}
HEARD: list[object] = []


def call_tool(call: Message) -> None:
    """Run a tool."""
    name = call["params"]["name"]
    if name in CALLS:
        CALLS[name](call)
    elif name in ANSWERS:
        answer(call, ANSWERS[name])
    elif name != "hang":
        answer(call, {"content": [{"type": "text", "text": name}]})


def respond(message: Message) -> None:
    """Take what was answered to a question of ours."""
    HEARD.append(message.get("result", {}).get("action", "error"))
    call = ASKED.get(message["id"], {"id": "late"})
    if call["id"] != "late":
        answer(call, {"content": [{"type": "text", "text": str(HEARD[-1])}]})


def initialize(message: Message) -> None:
    """Shake hands, or do not."""
    if "die-start" in MODES:
        sys.stderr.write("cannot start: LAB_SECRET_NAME is not set\n")
        sys.exit(7)
    if "chatter" in MODES:
        sys.stdout.write("y\n" * 1000)
    if "silent-start" in MODES:
        return
    if "nonsense-start" in MODES:
        answer(message, {"protocolVersion": 5})
        return
    version = message["params"]["protocolVersion"]
    info = {"name": "fake", "version": "0"}
    capabilities = {"tools": {"listChanged": "changing" in MODES}}
    done = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
    answer(message, done)


def main() -> None:
    """Answer until nobody asks."""
    listings = 0
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if method is None:
            respond(message)
        elif method == "initialize":
            initialize(message)
        elif method == "tools/list":
            listings += 1
            list_tools(message, listings)
        elif method == "tools/call":
            call_tool(message)
        elif "id" in message:
            fail(message, -32601, "nope")


main()
