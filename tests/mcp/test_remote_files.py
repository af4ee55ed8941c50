"""What can be given as a target, and files that name several servers."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, cast

import anyio
import anyio.to_thread
import pytest
from mcp.server import MCPServer

from ferrule import Executor, FerruleError, InvalidValue, Registry, Secret, ToolCall
from ferrule.mcp import Address, Command, InProcess, SignIn, connect
from ferrule.mcp._file import entries_in
from ferrule.mcp._targets import target_of
from mcp_lab import Lab
from serving import free_port

FAKE = str(Path(__file__).with_name("fake.py"))
SERVER = Path(FAKE).read_text()

PATIENCE = 60
"""Seconds after which a test hangs; nothing waits for them."""


def written(path: Path, servers: object) -> Path:
    """Write an mcp.json."""
    file = path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


class Pipe:
    """A pipe with a name, which other processes write lines to and never wait for."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._end = os.fdopen(os.open(path, os.O_RDWR), "rb", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()

    async def line(self) -> bytes:
        """Return the next line that somebody writes."""
        with anyio.fail_after(PATIENCE):
            return await anyio.to_thread.run_sync(self._end.readline, abandon_on_cancel=True)


def python(*modes: str, **more: object) -> dict[str, object]:
    """Return the entry of a server that speaks the older protocol."""
    return {"command": sys.executable, "args": [FAKE, *modes], "era": "legacy", **more}


@pytest.mark.anyio
async def test_a_file_of_several_connects_them_and_says_which_failed(tmp_path: Path) -> None:
    """MC-08, AT-103: one that fails does not stop the others; each has an origin of its own."""
    servers = {
        "one": python("pages"),
        "dead": python("die-start"),
        "two": python("pages"),
        "gone": {"command": "/nowhere/at/all"},
        "odd": {"args": []},
        "old": {"type": "sse", "url": "http://127.0.0.1:1/sse"},
        "off": {"command": "/nowhere", "disabled": True},
    }
    remote = connect(written(tmp_path, servers), prefix="{server}")
    async with Registry([remote]) as registry:
        origins = {registry.resolve(n).contract.origin for n in registry.names}  # type: ignore[union-attr]  # they are there
        outcomes = await Executor(registry).run([ToolCall.of("one__a"), ToolCall.of("two__b")])

        assert registry.names == [f"{s}__{t}" for s in ("one", "two") for t in "abc"]
        assert origins == {"mcp:one", "mcp:two"}
        assert [outcome.text for outcome in outcomes] == ["a", "b"]
        assert sorted(remote.failed) == ["dead", "gone", "odd", "old"]
        assert "ended with 7" in remote.failed["dead"]
        assert 'neither a "command" nor a "url"' in remote.failed["odd"]
        assert "sse" in remote.failed["old"]
        assert remote.server_info is None
        assert {name: info and info["name"] for name, info in remote.servers.items()} == {
            "one": "fake", "dead": None, "two": "fake", "gone": None,
        }  # fmt: skip


@pytest.mark.anyio
async def test_a_server_that_is_there_later_comes_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """MC-08, AT-103: it is tried again by itself; the reason is told once, and when it is there."""
    monkeypatch.setattr("ferrule.mcp._remote.AGAIN_SECONDS", (0.0, 0.01))
    late, pipe = tmp_path / "late.py", tmp_path / "tried"
    late.write_text(f"print(file=open({str(pipe)!r}, 'w')); raise SystemExit(3)")
    servers = {
        "one": python("pages"),
        "late": {**python(), "args": [str(late), "pages"]},
        "odd": {"args": []},
    }
    remote = connect(written(tmp_path, servers), prefix="{server}")
    with Pipe(pipe) as tried:
        async with Registry([remote]) as registry:
            changed = anyio.Event()
            registry.when_changed(changed.set)
            before = registry.names
            for _ in range(3):  # Once as it was opened, and twice by itself.
                await tried.line()
            assert sorted(remote.failed) == ["late", "odd"]
            await anyio.Path(late).write_text(SERVER)
            await changed.wait()
            outcomes = await Executor(registry).run([ToolCall.of("late__b"), ToolCall.of("one__a")])

            assert before == [f"one__{t}" for t in "abc"]
            assert registry.names == [f"{s}__{t}" for s in ("late", "one") for t in "abc"]
            assert [outcome.text for outcome in outcomes] == ["b", "a"]
            assert sorted(remote.failed) == ["odd"]
    told = [r.getMessage() for r in caplog.records if "`late`" in r.getMessage()]
    assert [line.partition(":")[0] for line in told] == [
        "the server `late` is not there", "the server `late` is there now"
    ]  # fmt: skip


@pytest.mark.anyio
async def test_one_that_a_person_signs_in_to_is_not_tried_again_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Callable[..., Any]
) -> None:
    """AT-108: a browser would open each time; `refresh` tries it."""
    monkeypatch.setattr("ferrule.mcp._remote.AGAIN_SECONDS", (0.0,))
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    file = written(
        tmp_path,
        {
            "mine": {"url": url, "sign_in": {"tokens": "tokens.json"}, "prefix": "mine"},
            "open": {"url": url, "prefix": "open"},
        },
    )
    remote = connect(file)
    async with Registry([remote]) as registry:
        assert sorted(remote.failed) == ["mine", "open"]
        serve(Lab().server.streamable_http_app, port)
        await remote._tried.wait()  # Whoever is tried again is there.
        assert list(remote.failed) == ["mine"]
        await remote.refresh()
        assert not remote.failed
        assert {"mine__add", "open__add"} <= set(registry.names)


@pytest.mark.anyio
async def test_nobody_is_tried_again_once_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLO-1: neither while it waits for the next try, nor in the middle of one."""
    monkeypatch.setattr("ferrule.mcp._remote.AGAIN_SECONDS", (0.0,))
    held, pipe = tmp_path / "held", tmp_path / "pid"
    script = f"[ -e {held} ] || {{ > {held}; exit 1; }}; echo $$ > {pipe}; exec sleep 1000"
    waiting = {"sh": {"command": "sh", "args": ["-c", script], "era": "legacy"}}
    with Pipe(pipe) as noted:
        async with connect(written(tmp_path, {**waiting, "one": python("pages")})) as remote:
            process = int(await noted.line())
            assert list(remote.failed) == ["sh"]
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)

    monkeypatch.setattr("ferrule.mcp._remote.AGAIN_SECONDS", (1000.0,))
    held.unlink()
    async with connect(written(tmp_path, {**waiting, "one": python("pages")})) as remote:
        assert list(remote.failed) == ["sh"]


@pytest.mark.anyio
async def test_names_that_meet_are_refused_until_one_is_renamed(tmp_path: Path) -> None:
    """REG-1: no server's tool stands in the place of another's."""
    file = written(tmp_path, {"one": python("pages"), "two": python("pages")})
    with pytest.raises(FerruleError, match="a tool named `a` is there already"):
        await Registry([connect(file)]).__aenter__()
    names = {f"two/{name}": f"{name}2" for name in "abc"}
    async with Registry([connect(file, rename=names)]) as registry:
        assert registry.names == ["a", "a2", "b", "b2", "c", "c2"]


def test_a_file_is_read_with_our_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SE-17: where they are named, and one that is missing is named."""
    monkeypatch.setenv("LAB_TOKEN", "XYZ")
    monkeypatch.setenv("VIRTUAL_ENV", "/venv")
    monkeypatch.setenv("API_KEY", "ABC")
    servers = {
        "run": {"command": "serve", "args": ["${LAB_DIR:-/srv}"], "env": {"T": "${LAB_TOKEN}"},
                "inherit": ["VIRTUAL_ENV"], "cwd": "sub"},
        "web": {"url": "https://x.example/mcp", "headers": {"A": "Bearer ${env:LAB_TOKEN}"}},
        "none": {"command": "serve", "args": ["${LAB_MISSING}"]},
        "bad": {"command": 5},
        "worse": {"command": "serve", "args": "x"},
        "worst": {"url": "ftp://x"},
        "long": {"command": "serve", "tasks": "yes"},
    }  # fmt: skip
    found = {n: one.target for n, one in entries_in(written(tmp_path, servers)).items()}
    run, web = found["run"], found["web"]

    assert isinstance(run, Command)
    assert run.argv == ("serve", "/srv")
    assert run.cwd == tmp_path / "sub"
    assert (run.variables["T"], run.variables["VIRTUAL_ENV"]) == ("XYZ", "/venv")
    assert "API_KEY" not in run.variables
    assert web == Address("https://x.example/mcp", headers={"A": Secret("Bearer XYZ")})
    assert "XYZ" not in repr(found)
    reasons: dict[str, Any] = {
        n: getattr(found[n], "reason", "") for n in ("none", "bad", "worse", "long")
    }
    assert reasons == {
        "none": "the variable LAB_MISSING is not set",
        "bad": 'its "command" is a text',
        "worse": 'its "args" is a list of texts',
        "long": 'its "tasks" is true or false',
    }
    assert "http" in getattr(found["worst"], "reason", "")


def test_a_file_says_how_to_sign_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SE-17: where tokens are kept is seen from the file's folder; what cannot be is named."""
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("LAB_PORT", "8123")
    url = "https://x.example/mcp"
    asked: dict[str, object] = {
        "near": {"tokens": "kept/tokens.json"},
        "home": {
            "tokens": "~/tokens.json",
            "scope": "read",
            "redirect_uri": "http://127.0.0.1:${LAB_PORT}/back",
        },
        "true": True,
        "none": {},
        "more": {"tokens": "x", "client_secret": "y"},
        "number": {"tokens": 5},
        "away": {"tokens": "x", "redirect_uri": "https://x.example/back"},
        "nobody": {"tokens": "~nobody-at-all/x"},
    }
    servers = {name: {"url": url, "sign_in": said} for name, said in asked.items()}
    found = {n: one.target for n, one in entries_in(written(tmp_path, servers)).items()}

    near, home = (cast("Address", found.pop(name)).sign_in for name in ("near", "home"))
    assert isinstance(near, SignIn)
    assert isinstance(home, SignIn)
    assert (repr(near.tokens), near.scope, near.redirect_uri) == (
        f"TokenFile({str(tmp_path / 'kept' / 'tokens.json')!r})",
        None,
        "http://127.0.0.1:8790/callback",
    )
    assert (repr(home.tokens), home.scope, home.redirect_uri) == (
        "TokenFile('/home/ann/tokens.json')", "read", "http://127.0.0.1:8123/back"
    )  # fmt: skip
    members = (
        'its "sign_in" is an object: "tokens", the file to keep them in, and maybe "scope" and '
        '"redirect_uri"'
    )
    away = "without `back`, the redirect_uri is here, as in http://127.0.0.1:8790/callback"
    reasons = {name: getattr(one, "reason", "") for name, one in found.items()}
    assert reasons == {
        "true": members,
        "none": members,
        "more": members,
        "number": 'in its "sign_in": its "tokens" is a text',
        "away": f'in its "sign_in": {away}',
        "nobody": 'in its "sign_in": Could not determine home directory.',
    }


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"mcpServers": []}', "{'a': 1}"])
def test_a_file_of_something_else_is_named(tmp_path: Path, text: str) -> None:
    """JSON-1: the strict reader reads it, and the sentence names the file."""
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(FerruleError, match=r"x\.json"):
        entries_in(tmp_path / "x.json")


def test_what_a_target_may_be() -> None:
    """MCP-1: a URL, a command line or its words, a file, a server object, or what says more."""
    lab = Lab().server
    assert target_of("https://x.example/mcp") == Address("https://x.example/mcp")
    assert target_of("serve --dir 'a b'") == Command(("serve", "--dir", "a b"))
    assert target_of(["serve", "x"]) == Command(("serve", "x"))
    assert target_of("conf/mcp.json") == Path("conf/mcp.json")
    assert target_of(Path("x")) == Path("x")
    assert target_of(lab) == InProcess(lab)
    assert target_of("serve", ["A"]) == Command(("serve",), inherit=("A",))
    assert target_of("serve", {"A": "1"}) == Command(("serve",), env={"A": "1"})
    assert connect("https://u:p@x.example/mcp?k=v").origin == "mcp:https://x.example/mcp"
    assert connect("serve").origin == "mcp:serve"
    assert connect("serve", origin="mine").origin == "mine"


@pytest.mark.parametrize(
    "give",
    [
        lambda: connect(5),
        lambda: connect(""),
        lambda: connect("serve 'a"),
        lambda: connect([]),
        lambda: connect("http://x/", env=["A"]),
        lambda: connect("serve", env="TOKEN"),
        lambda: connect("serve", grace=-1),
        lambda: Address("ftp://x"),
    ],
)
def test_what_is_no_target_is_refused_when_it_is_given(give: Any) -> None:  # noqa: ANN401  # lambdas
    """FN-1: with a sentence that says what may be."""
    with pytest.raises(InvalidValue, match=r"\w+ \w+"):
        give()


@pytest.mark.anyio
async def test_a_server_of_the_sdks_other_kind() -> None:
    """MCP-1: `MCPServer` too, in this process."""
    server = MCPServer("made")

    @server.tool()
    def double(number: int) -> int:
        """Double it."""
        return 2 * number

    async with Registry([connect(server)]) as registry:
        [outcome] = await Executor(registry).run([ToolCall.of("double", {"number": 4})])

    assert outcome.text == "8"
