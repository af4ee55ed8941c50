"""What servers of others do when they are called, without anything of the net."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from msgspec import UNSET
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ferrule import (
    Accepted,
    Audio,
    Completed,
    Content,
    Context,
    Executor,
    Failed,
    File,
    Image,
    Link,
    Outcome,
    Progressed,
    Question,
    Registry,
    Rejected,
    Text,
    ToolCall,
    Unknown,
)
from ferrule.mcp import connect
from real_servers import argv, called, command, sent, variables
from serving import free_port

pytestmark = pytest.mark.anyio

Era = Literal["auto", "legacy"]
ERAS: tuple[Era, ...] = ("auto", "legacy")
LOOPS = ("asyncio", "trio")

PNG = b"\x89PNG\r\n\x1a\n made up"
WAV = b"RIFF made up"
BLOB = bytes(range(256))


class Case(msgspec.Struct, frozen=True):
    """
    One call.

    Attributes:
        tool: What is called.
        arguments: What it is given; FOLDER stands for the server's own, in texts of results too.
        ending: How it ends.
        text: What a model reads; a pattern where part of it is chance.
        structured: The structured content, if that is not what the text says.
        content: What else there is beside one text.
    """

    tool: str
    arguments: dict[str, Any]
    ending: type[Outcome]
    text: str | re.Pattern[str]
    structured: Any = UNSET
    content: Sequence[Content | type[Content]] | None = None


def mirrored(tool: str, arguments: dict[str, Any], text: str) -> Case:
    """Return a case of a server that says its text once more as `content`."""
    return Case(tool, arguments, Completed, text, {"content": text})


ANN = {"name": "Ann", "entityType": "person", "observations": ["likes tea"]}
KNOWS = {"from": "Ann", "to": "Ann", "relationType": "knows"}
GRAPH = {"entities": [ANN], "relations": [KNOWS]}
ADDED = "+++ b/a.txt\n@@ -1 +1,2 @@\n one\n+two"
DIFF = f"diff --git a/a.txt b/a.txt\nindex 5626abf..814f4a4 100644\n--- a/a.txt\n{ADDED}"
SECOND = "2e2e086a8cfe3853747875117163d615bea2ad99"
HERE = {"repo_path": "FOLDER"}


def in_words(value: object) -> str:
    """Return a value as these servers write it."""
    return json.dumps(value, indent=2, ensure_ascii=False)


CASES: dict[str, list[Case]] = {
    "everything": [
        Case("echo", {"message": "hällo\n"}, Completed, "Echo: hällo\n"),
        Case("get-sum", {"a": 2.5, "b": -1}, Completed, "The sum of 2.5 and -1 is 1.5."),
        Case(
            "get-sum",
            {"a": "2", "b": 1},
            Rejected,
            "Error: invalid arguments: a: expected number, got string",
        ),
        Case("echo", {}, Rejected, 'Error: invalid arguments: missing required property "message"'),
        Case(
            "get-structured-content",
            {"location": "New York"},
            Completed,
            '{"temperature":33,"conditions":"Cloudy","humidity":82}',
            {"temperature": 33, "conditions": "Cloudy", "humidity": 82},
        ),
        Case(
            "get-structured-content",
            {"location": "Oslo"},
            Rejected,
            "Error: invalid arguments: location: expected one of "
            '"New York", "Chicago", "Los Angeles"',
        ),
        Case(
            "get-annotated-message",
            {"messageType": "error", "includeImage": True},
            Completed,
            "Error: Operation failed",
            content=[Text("Error: Operation failed"), Image],
        ),
        Case(
            "get-tiny-image",
            {},
            Completed,
            "Here's the image you requested:The image above is the MCP logo.",
            content=[
                Text("Here's the image you requested:"),
                Image,
                Text("The image above is the MCP logo."),
            ],
        ),
        Case(
            "get-resource-links",
            {"count": 2},
            Completed,
            "Here are 2 resource links to resources available in this server:",
            content=[
                Text("Here are 2 resource links to resources available in this server:"),
                Link(
                    "demo://resource/dynamic/blob/1",
                    name="Blob Resource 1",
                    mime_type="text/plain",
                    description="Resource 1: plaintext resource",
                ),
                Link(
                    "demo://resource/dynamic/text/2",
                    name="Text Resource 2",
                    mime_type="text/plain",
                    description="Resource 2: plaintext resource",
                ),
            ],
        ),
        Case(
            "get-resource-reference",
            {"resourceType": "Text", "resourceId": 1},
            Completed,
            re.compile(
                r"Returning resource reference for Resource 1:\n"
                r"Resource 1: This is a plaintext resource created at .+\n"
                r"You can access this resource using the URI: demo://resource/dynamic/text/1"
            ),
        ),
        Case(
            "get-resource-reference",
            {"resourceType": "Blob", "resourceId": 1},
            Completed,
            "Returning resource reference for Resource 1:"
            "You can access this resource using the URI: demo://resource/dynamic/blob/1",
            content=[
                Text("Returning resource reference for Resource 1:"),
                File,
                Text("You can access this resource using the URI: demo://resource/dynamic/blob/1"),
            ],
        ),
        Case(
            "get-resource-reference",
            {"resourceType": "Text", "resourceId": 0},
            Failed,
            "Error: Invalid resourceId: 0. Must be a finite positive integer.",
        ),
        Case(
            "trigger-elicitation-request",
            {},
            Completed,
            '⚠️ User cancelled the elicitation dialog.\n\nRaw result: {\n  "action": "cancel"\n}',
        ),
    ],
    "filesystem": [
        mirrored(
            "write_file",
            {"path": "FOLDER/a.txt", "content": "one\ntwo\n"},
            "Successfully wrote to FOLDER/a.txt",
        ),
        mirrored("read_text_file", {"path": "FOLDER/a.txt"}, "one\ntwo\n"),
        mirrored("read_text_file", {"path": "FOLDER/a.txt", "head": 1}, "one"),
        mirrored(
            "edit_file",
            {"path": "FOLDER/a.txt", "edits": [{"oldText": "one", "newText": "1"}]},
            "```diff\nIndex: FOLDER/a.txt\n" + "=" * 67 + "\n--- FOLDER/a.txt\toriginal\n"
            "+++ FOLDER/a.txt\tmodified\n@@ -1,2 +1,2 @@\n-one\n+1\n two\n```\n\n",
        ),
        mirrored("search_files", {"path": "FOLDER", "pattern": "*.txt"}, "FOLDER/a.txt"),
        Case(
            "read_text_file",
            {"path": "FOLDER/none"},
            Failed,
            "Error: ENOENT: no such file or directory, open 'FOLDER/none'",
        ),
        Case(
            "read_text_file",
            {"path": "/etc/passwd"},
            Failed,
            "Error: Access denied - path outside allowed directories: /etc/passwd not in FOLDER",
        ),
        Case(
            "read_text_file",
            {"path": "FOLDER/a.txt", "head": 1, "tail": 1},
            Failed,
            "Error: Cannot specify both head and tail parameters simultaneously",
        ),
        Case(
            "read_text_file",
            {"path": 5},
            Rejected,
            "Error: invalid arguments: path: expected string, got integer",
        ),
        Case(
            "read_media_file",
            {"path": "FOLDER/p.png"},
            Completed,
            "",
            {
                "content": [
                    {"data": "iVBORw0KGgogbWFkZSB1cA==", "mimeType": "image/png", "type": "image"}
                ]
            },
            [Image(data=PNG, mime_type="image/png")],
        ),
    ],
    "memory": [
        Case(
            "create_entities",
            {"entities": [ANN]},
            Completed,
            in_words([ANN]),
            {"entities": [ANN]},
        ),
        Case(
            "create_relations",
            {"relations": [KNOWS]},
            Completed,
            in_words([KNOWS]),
            {"relations": [KNOWS]},
        ),
        Case("search_nodes", {"query": "tea"}, Completed, in_words(GRAPH), GRAPH),
        Case(
            "add_observations",
            {"observations": [{"entityName": "Nobody", "contents": ["x"]}]},
            Failed,
            "Error: Entity with name Nobody not found",
        ),
        Case(
            "create_entities",
            {"entities": [{"name": "Ann"}]},
            Rejected,
            'Error: invalid arguments: entities[0]: missing required property "entityType"; '
            'entities[0]: missing required property "observations"',
        ),
        Case(
            "delete_entities",
            {"entityNames": ["Ann"]},
            Completed,
            "Entities deleted successfully",
            {"success": True, "message": "Entities deleted successfully"},
        ),
        Case(
            "read_graph",
            {},
            Completed,
            in_words({"entities": [], "relations": []}),
            {"entities": [], "relations": []},
        ),
    ],
    "git": [
        Case("git_diff_unstaged", HERE, Completed, f"Unstaged changes:\n{DIFF}"),
        Case("git_add", {**HERE, "files": ["a.txt"]}, Completed, "Files staged successfully"),
        Case("git_diff_staged", HERE, Completed, f"Staged changes:\n{DIFF}"),
        Case(
            "git_commit",
            {**HERE, "message": "Second"},
            Completed,
            f"Changes committed successfully with hash {SECOND}",
        ),
        Case(
            "git_log",
            {**HERE, "max_count": 1},
            Completed,
            f"Commit history:\nCommit: {SECOND}\nAuthor: Ann\n"
            "Date: 2026-01-02 03:04:05+00:00\nMessage: Second\n",
        ),
        Case("git_branch", {**HERE, "branch_type": "local"}, Completed, "* main"),
        Case(
            "git_show",
            {**HERE, "revision": "none"},
            Failed,
            "Error: Error executing tool git_show: Ref 'none' did not resolve to an object",
        ),
        Case(
            "git_status",
            {"repo_path": "/"},
            Failed,
            "Error: Error executing tool git_status: Repository path '/' is outside the allowed "
            "repository 'FOLDER'",
        ),
        Case(
            "git_log",
            {**HERE, "max_count": "many"},
            Rejected,
            "Error: invalid arguments: max_count: expected integer, got string",
        ),
    ],
    "time": [
        Case(
            "get_current_time",
            {"timezone": "Asia/Tokyo"},
            Completed,
            re.compile(
                r'\{\s+"timezone": "Asia/Tokyo",\s+"datetime": "20[0-9T:-]+\+09:00",'
                r'\s+"day_of_week": "[A-Z][a-z]+day",\s+"is_dst": false\s+\}'
            ),
        ),
        Case(
            "convert_time",
            {"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Tokyo"},
            Completed,
            re.compile(r'\{.+"datetime": "20[0-9-]+T21:30:00\+09:00",.+"\+9\.0h"\s\}', re.DOTALL),
        ),
        Case(
            "get_current_time",
            {"timezone": "Mars/Base"},
            Failed,
            "Error: Error executing tool get_current_time: "
            "Invalid timezone: 'No time zone found with key Mars/Base'",
        ),
        Case(
            "convert_time",
            {"source_timezone": "UTC", "time": "25:99", "target_timezone": "UTC"},
            Failed,
            "Error: Error executing tool convert_time: "
            "Invalid time format. Expected HH:MM [24-hour format]",
        ),
        Case(
            "convert_time",
            {"source_timezone": "UTC", "time": "12:30"},
            Rejected,
            'Error: invalid arguments: missing required property "target_timezone"',
        ),
    ],
}

WAYS = [
    *((name, "auto", loop) for name in ("everything", "filesystem", "memory") for loop in LOOPS),
    *((name, era, loop) for name in ("git", "time") for era, loop in zip(ERAS, LOOPS, strict=True)),
]
"""Servers of Python take a second to start: each era on one loop."""


@pytest.fixture
def filled(folder: Path) -> Path:
    """Give a folder with a commit, a change and files of bytes."""
    (folder / "a.txt").write_text("one\n")
    for words in ("add a.txt", "commit -q -m First"):
        subprocess.run(
            ["git", *words.split()], cwd=folder, env=variables("git", folder), check=True
        )
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / "p.png").write_bytes(PNG)
    (folder / "s.wav").write_bytes(WAV)
    (folder / "b.bin").write_bytes(BLOB)
    return folder


def filled_in(value: Any, folder: Path) -> Any:  # noqa: ANN401  # JSON
    """Return a JSON value with the folder where it belongs."""
    return json.loads(json.dumps(value).replace("FOLDER", str(folder)))


class Web(msgspec.Struct):
    """A net of our own: where it is, what it was asked, and with which tokens."""

    url: str = ""
    asked: list[str] = []
    tokens: set[str] = set()

    def app(self) -> Starlette:
        """Return it as a web app."""
        return Starlette(routes=[Route("/{path:path}", self.answer)])

    async def answer(self, request: Request) -> Response:
        """Answer as the services do that these servers are for."""
        path = request.url.path
        self.asked.append(f"{path}?{request.url.query}" if request.url.query else path)
        self.tokens.add(request.headers.get("authorization", ""))
        if path == "/page":
            return PlainTextResponse("a page")
        if path == "/v1/users/me":
            return JSONResponse({"object": "user", "id": "u1"})
        if path == "/v2/libs/search":
            found = {"id": "/example/ferrule", "title": "Ferrule", "description": "Tools."}
            return JSONResponse({"results": [found]})
        return JSONResponse({"object": "error", "message": "no such thing"}, status_code=404)


@pytest.fixture
def web(serve: Callable[..., Any]) -> Web:
    """Serve it."""
    web = Web()
    web.url = serve(web.app).url.removesuffix("/mcp")
    return web


@pytest.mark.parametrize(("name", "era", "anyio_backend"), WAYS)
async def test_calls_end_as_they_should(name: str, era: Era, filled: Path) -> None:
    """MCP-1, AT-90, FAIL-6: texts, images, errors, structured results; nothing wrong is sent."""
    async with Registry([connect(command(name, filled, era=era))]) as registry:
        executor = Executor(registry)
        for case in CASES[name]:
            arguments = filled_in(case.arguments, filled)
            [outcome] = await executor.run([ToolCall.of(case.tool, arguments)])
            check(case, outcome, filled)

    assert called(filled) == [case.tool for case in CASES[name] if case.ending is not Rejected]


def check(case: Case, outcome: Outcome, folder: Path) -> None:
    """Compare how a call ended with how it should."""
    assert type(outcome) is case.ending, outcome
    if isinstance(case.text, str):
        assert outcome.text == case.text.replace("FOLDER", str(folder))
    else:
        assert case.text.fullmatch(outcome.text), outcome.text
    if isinstance(outcome, Completed):
        result = outcome.result
        if case.structured is not UNSET:
            assert result.structured_content == filled_in(case.structured, folder)
        elif result.structured_content is not UNSET:
            assert json.loads(outcome.text) == result.structured_content
        wanted = [Text(outcome.text)] if case.content is None else case.content
        assert len(result.content) == len(wanted)
        for block, one in zip(result.content, wanted, strict=True):
            assert type(block) is one if isinstance(one, type) else block == one


async def test_every_kind_of_file_arrives_byte_for_byte(filled: Path) -> None:
    """AT-99, AT-100, MC-04: audio, and a file of which nothing is known but its bytes."""
    async with Registry([connect(command("filesystem", filled))]) as registry:
        calls = [
            ToolCall.of("read_media_file", {"path": str(filled / name)})
            for name in ("s.wav", "b.bin")
        ]
        sound, other = await Executor(registry).run(calls)

    assert isinstance(sound, Completed)
    assert sound.result.content == (Audio(data=WAV, mime_type="audio/wav"),)
    assert isinstance(other, Completed)
    [file] = other.result.content
    assert isinstance(file, File)
    assert (file.data, file.mime_type) == (BLOB, "application/octet-stream")


async def test_calls_run_side_by_side_on_one_line(folder: Path) -> None:
    """EXE-1, MC-05: a hundred, each with its own answer."""
    async with Registry([connect(command("everything", folder))]) as registry:
        calls = [ToolCall.of("get-sum", {"a": index, "b": index}) for index in range(100)]
        outcomes = await Executor(registry, max_parallel=32).run(calls)

    assert [outcome.text for outcome in outcomes] == [
        f"The sum of {index} and {index} is {2 * index}." for index in range(100)
    ]


async def test_progress_arrives_in_the_numbers_of_the_server(folder: Path) -> None:
    """EXE-8, AT-104: in order, to the last; the result comes after it."""
    call = ToolCall.of("trigger-long-running-operation", {"duration": 0.2, "steps": 4})
    async with Registry([connect(command("everything", folder))]) as registry:
        seen = []
        async with Executor(registry).batch([call]) as batch:
            async for event in batch:
                if isinstance(event, Progressed):
                    seen.append((event.progress, event.total))
        [outcome] = batch.outcomes

    assert seen == sorted(seen)
    assert seen[-1] == (4, 4)
    assert outcome.text == "Long running operation completed. Duration: 0.2 seconds, Steps: 4."


async def test_the_server_is_told_that_nobody_waits(folder: Path) -> None:
    """AT-103, EXE-6: of the very request; a time limit says the same."""
    slow = {"duration": 60, "steps": 600}
    limited = connect(
        command("everything", folder),
        traits={"trigger-long-running-operation": {"timeout": 0.3}},
    )
    async with Registry([limited]) as registry:
        executor = Executor(registry)
        [late] = await executor.run([ToolCall.of("trigger-long-running-operation", slow)])
        async with executor.batch([ToolCall.of("trigger-long-running-operation", slow)]) as batch:
            async for event in batch:
                if isinstance(event, Progressed):
                    break
        [left] = batch.outcomes

    assert isinstance(late, Unknown)
    assert late.reason == "timed_out"
    assert isinstance(left, Unknown)
    assert left.reason == "cancelled"
    messages = sent(folder)
    asked = [one["id"] for one in messages if one.get("method") == "tools/call"]
    told = [
        one["params"]["requestId"]
        for one in messages
        if one.get("method") == "notifications/cancelled"
    ]
    assert len(asked) == 2
    assert told == asked


async def test_what_a_server_asks_reaches_a_person_and_the_answer_the_server(folder: Path) -> None:
    """ASK-1, AT-129, AT-131: a form with its defaults, a page, and a page asked for by an error."""
    asked: list[Question] = []

    async def person(_: Context, question: Question) -> Accepted[Any]:
        asked.append(question)
        return Accepted(None if question.url else {"name": "Ann", "check": True, "integer": 7})

    page = {"url": "https://example.com/pay"}
    async with Registry([connect(command("everything", folder))]) as registry:
        calls = [
            ToolCall.of("trigger-elicitation-request"),
            ToolCall.of("trigger-url-elicitation", page),
            ToolCall.of("trigger-url-elicitation", {**page, "errorPath": True}),
        ]
        executor = Executor(registry, asker=person, sequential=True)
        form, one, other = await executor.run(calls)

    assert "- Name: Ann\n- Agreed to terms: true\n- Favorite Integer: 7\n" in form.text
    assert "- Favorite Number: 3.14\n" in form.text
    assert isinstance(asked[0].schema, dict)
    assert len(asked[0].schema["properties"]) == 13
    for outcome in (one, other):
        assert outcome.text.startswith("✅ User completed the URL elicitation flow.")
    assert [question.url for question in asked[1:]] == [
        page["url"],
        "https://modelcontextprotocol.io",
        page["url"],
    ]


async def test_a_server_sees_no_variable_that_it_was_not_given(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SE-07, AT-97: its own word for it."""
    monkeypatch.setenv("MADE_UP_TOKEN", "secret-1")
    target = command("everything", folder, env={"GIVEN": "yes"})
    async with Registry([connect(target)]) as registry:
        [outcome] = await Executor(registry).run([ToolCall.of("get-env")])

    seen = json.loads(outcome.text)
    assert (seen["GIVEN"], seen["HOME"]) == ("yes", str(folder))
    assert "MADE_UP_TOKEN" not in seen
    assert "secret-1" not in outcome.text


# ---- over HTTP, and to a net of our own ----------------------------------------------------------

# Each starts two servers; what the loops do differently, the tests of `connect` hold.
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])
on_trio = pytest.mark.parametrize("anyio_backend", ["trio"])


@contextmanager
def listening(name: str, folder: Path, *words: str, **env: str) -> Iterator[None]:
    """Start a server over HTTP, and go on when it says that it listens."""
    with subprocess.Popen(
        [*argv(name, folder), *words],
        env=os.environ | variables(name, folder) | env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    ) as server:
        assert server.stderr is not None
        try:
            assert any(re.search("listening|running", line) for line in server.stderr)
            yield
        finally:
            server.kill()


@on_asyncio
async def test_a_server_with_sessions_over_http(folder: Path) -> None:
    """MCP-1, AT-87: the handshake era, answers as a stream of events."""
    port = free_port()
    with listening("everything", folder, "streamableHttp", PORT=str(port)):
        async with Registry([connect(f"http://127.0.0.1:{port}/mcp")]) as registry:
            calls = [
                ToolCall.of("echo", {"message": "over HTTP"}),
                ToolCall.of("get-tiny-image"),
                ToolCall.of("get-sum", {"a": None, "b": 1}),
                ToolCall.of("get-resource-reference", {"resourceType": "Text", "resourceId": -1}),
            ]
            outcomes = await Executor(registry).run(calls)

    assert [type(outcome) for outcome in outcomes] == [Completed, Completed, Rejected, Failed]
    assert outcomes[0].text == "Echo: over HTTP"


@on_asyncio
async def test_a_server_without_a_handshake_over_http(folder: Path, web: Web) -> None:
    """MCP-1, AT-87: the era of 2026-07-28; what it asks of the net it asks of us."""
    port = free_port()
    words = ("--transport", "http", "--port", str(port))
    with listening("context7", folder, *words, CONTEXT7_API_URL=web.url):
        async with Registry([connect(f"http://127.0.0.1:{port}/mcp")]) as registry:
            calls = [
                ToolCall.of("resolve-library-id", {"query": "tools", "libraryName": "ferrule"}),
                ToolCall.of("resolve-library-id", {"query": "tools"}),
            ]
            found, refused = await Executor(registry).run(calls)

    assert isinstance(refused, Rejected)
    assert isinstance(found, Completed), found
    assert "/example/ferrule" in found.text
    assert [path for path in web.asked if "search" in path] == [
        "/v2/libs/search?query=tools&libraryName=ferrule"
    ]


@on_trio
async def test_a_server_of_a_service_calls_the_service(folder: Path, web: Web) -> None:
    """AT-90: Notion's, with the token that we gave it; its service's refusal is its text."""
    target = command("notion", folder, env={"BASE_URL": web.url})
    person = "11111111-2222-4333-8444-555555555555"
    async with Registry([connect(target)]) as registry:
        calls = [
            ToolCall.of("API-get-self"),
            ToolCall.of("API-get-user", {"user_id": person}),
            ToolCall.of("API-get-user"),
        ]
        me, nobody, refused = await Executor(registry).run(calls)

    assert json.loads(me.text) == {"object": "user", "id": "u1"}
    assert json.loads(nobody.text)["message"] == "no such thing"
    assert isinstance(refused, Rejected)
    assert sorted(web.asked) == [f"/v1/users/{person}", "/v1/users/me"]
    assert web.tokens == {"Bearer none"}


@on_asyncio
async def test_a_page_is_fetched(folder: Path, web: Web) -> None:
    """AT-90: as it is, cut where it was asked to be; what is not there is an error."""
    async with Registry([connect(command("fetch", folder))]) as registry:
        calls = [
            ToolCall.of("fetch", {"url": f"{web.url}/page"}),
            ToolCall.of("fetch", {"url": f"{web.url}/page", "max_length": 3}),
            ToolCall.of("fetch", {"url": f"{web.url}/none"}),
            ToolCall.of("fetch", {"url": f"{web.url}/page", "max_length": 0}),
        ]
        whole, cut, none, refused = await Executor(registry).run(calls)

    said = "Content type text/plain; charset=utf-8 cannot be simplified to markdown"
    assert whole.text.startswith(said)
    assert whole.text.endswith(f"Contents of {web.url}/page:\na page")
    assert "a p\n\n<error>Content truncated." in cut.text
    assert none.text == (
        f"Error: Error executing tool fetch: Failed to fetch {web.url}/none - status code 404"
    )
    assert isinstance(refused, Rejected)
