"""MCP servers as TOOLS: what is taken for one, and how it is said that there is none."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import anyio
import pytest

from cli.command import PATIENCE, Ferrule, WritesTurn
from ferrule.cli._loading import load, opened
from ferrule.cli._outside import Servers
from ferrule.cli._refused import Refused

FAKE = str(Path(__file__).parents[1] / "mcp" / "fake.py")
TOOLS = "from ferrule import tool\n@tool\ndef ours() -> str:\n    'Ours.'\n    return ''\n"


def python(*modes: str, **more: object) -> dict[str, object]:
    """Return the entry of a server that misbehaves as it is told to."""
    return {"command": sys.executable, "args": [FAKE, *modes], "era": "legacy", **more}


def written(folder: Path, **servers: object) -> str:
    """Write an mcp.json, and return its path."""
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return str(path)


def command(*modes: str) -> str:
    """Return the command line of a server that misbehaves as it is told to."""
    return f"{sys.executable} {FAKE} {' '.join(modes)}".strip()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put a program on the PATH that is a server, and return its name."""
    path = tmp_path / "bin" / "some-server"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\nexec {command('pages')}\n")
    path.chmod(0o755)
    (path.parent / "json").symlink_to(path)
    (path.parent / "shelf").symlink_to(path)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    return path.name


# ---- what is taken for a server ------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        *("some-server", "shelf", "some-server --option x", " some-server  ", "./some-server"),
        *("python server.py", "https://x.example/mcp", "http://x.example/tools.py"),
    ],
)
@pytest.mark.usefixtures("program")
def test_what_is_nothing_of_pythons_is_a_server(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """API, TOOLS: a URL, several words, or one word that is a program."""
    monkeypatch.chdir(tmp_path / "bin")
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    assert isinstance(load(target), Servers)


@pytest.mark.usefixtures("program")
def test_what_may_be_pythons_is_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """API, TOOLS: a module goes before a program of its name, a file before a command."""
    monkeypatch.chdir(tmp_path)
    before, path = set(sys.modules), list(sys.path)
    (tmp_path / "shelf.py").write_text(TOOLS)
    (tmp_path / "python tools.py").write_text(TOOLS)
    (tmp_path / "some-server").mkdir()  # A folder is neither.
    try:
        with pytest.raises(Refused, match="json defines no tool"):
            load("json")
        for target in ("shelf", "python tools.py", "python tools.py:ours"):
            assert not isinstance(load(target), Servers)
        assert isinstance(load("some-server"), Servers)
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            del sys.modules[name]


def test_a_command_that_needs_no_server_loads_no_sdk(tmp_path: Path) -> None:
    """ARCHITECTURE rule 5, API TOOLS: `ferrule list file.py` is as quick as ever."""
    (tmp_path / "tools.py").write_text(TOOLS)
    program = (
        "import sys\nfrom ferrule.cli._app import main\n"
        "try:\n    main(['{0}', 'tools.py', *sys.argv[1:]])\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        "loaded = {{n.partition('.')[0] for n in sys.modules}}\n"
        "assert not loaded & {{'mcp', 'pydantic', 'httpx2'}}, loaded\n"
    )
    for name, rest in (("list", []), ("call", ["ours"])):
        words = [sys.executable, "-c", program.format(name), *rest]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_without_the_sdk_it_is_said_what_to_install(tmp_path: Path, ferrule: Ferrule) -> None:
    """ARCHITECTURE rule 5: a missing extra is a sentence."""
    blocked = "import sys, importlib.util as u\nfind = u.find_spec\n"
    blocked += "u.find_spec = lambda name, *a: None if name == 'mcp' else find(name, *a)\n"
    blocked += f"from ferrule.cli._app import main\nmain(['list', {command()!r}])\n"
    words = [sys.executable, "-c", blocked]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ferrule: MCP needs more: pip install 'ferrule[mcp]'\n"
    assert ferrule("list", command("pages")).returncode == 0  # It would be found otherwise.


# ---- wherever TOOLS is taken ---------------------------------------------------------------------


@pytest.mark.usefixtures("program")
def test_every_command_takes_servers(ferrule: Ferrule, tmp_path: Path, turn: WritesTurn) -> None:
    """API, TOOLS: list, run, call, diff and policy check, of a program, a command and a file."""
    file = written(tmp_path, one=python("pages"))
    (tmp_path / "policy.toml").write_text('[[rule]]\norigin = "mcp:one"\ndecide = "allow"\n')

    listed = ferrule("list", "some-server", "--format", "json")
    (tmp_path / "before.json").write_text(listed.stdout.replace('"c"', '"d"'))
    ran = ferrule("run", command("pages"), turn("b"), "--json")
    called = ferrule("call", file, "c")
    diff = ferrule("diff", str(tmp_path / "before.json"), file)
    checked = ferrule("policy", "check", str(tmp_path / "policy.toml"), file, "--json")

    assert [one["name"] for one in json.loads(listed.stdout)] == ["a", "b", "c"]
    assert json.loads(ran.stdout)[0]["output"] == "b"
    assert called.stdout == "c\n"
    assert diff.stdout.split() == ["widened", "c", "added", "breaking", "d", "removed"]
    assert {(one["origin"], one["decision"]) for one in json.loads(checked.stdout)} == {
        ("mcp:one", "allow")
    }
    for done in (listed, ran, called, diff, checked):
        assert done.returncode == 0
    for done in (listed, called, diff):
        assert done.stderr == ""


def test_a_file_says_what_its_tools_are_called_and_what_they_are(
    ferrule: Ferrule, tmp_path: Path
) -> None:
    """MCP-1: `prefix`, `rename` and `traits` of an entry; a bad one costs its server alone."""
    file = written(
        tmp_path,
        one=python("pages", prefix="one", rename={"a": "alpha"}, traits={"b": {"uses": "disk"}}),
        two=python("pages", traits={"b": {"replay": "keyed", "read_only": True}}),
        odd=python("odd", rename={"no type": "typed"}, traits={}, prefix="odd"),
        bad=python("pages", prefix=5),
        worse=python("pages", rename=["a"]),
        worst=python("pages", traits={"a": {"uze": "disk"}}),
        none=python("pages", traits=[]),
    )
    done = ferrule("list", file, "--format", "json")
    names = {one["name"] for one in json.loads(done.stdout)}
    uses = ferrule("list", file, "one__b").stdout
    replay = ferrule("list", file, "b").stdout

    assert done.returncode == 0
    assert {"alpha", "one__b", "one__c", "a", "b", "c", "typed", "odd__fine"} <= names
    assert "uses    disk" in uses
    assert "read only" in replay
    assert "replay  keyed" in replay
    for sentence in (
        'the server `bad` is not there: its "prefix" is a text',
        'the server `worse` is not there: its "rename" is an object of names: ours by theirs',
        'the server `worst` is not there: its "traits" of `a`: ',
        'the server `none` is not there: its "traits" is an object',
    ):
        assert sentence in done.stderr


def test_servers_that_are_not_there_are_named_and_the_others_go_on(
    ferrule: Ferrule, tmp_path: Path
) -> None:
    """MC-08, AT-103: each is a warning with its reason; the last lines of a child are in it."""
    file = written(
        tmp_path,
        good=python("pages"),
        dead=python("die-start"),
        gone={"command": "no-such-program"},
        lost=python("pages", cwd="nowhere"),
        unset={"command": "${LAB_NOT_SET}"},
    )
    done = ferrule("call", file, "a")

    assert (done.returncode, done.stdout) == (0, "a\n")
    for sentence in (
        "the server `dead` is not there: ",
        "its process ended with 7; it wrote: cannot start: LAB_SECRET_NAME is not set",
        "the server `gone` is not there: there is no program `no-such-program`",
        "the server `lost` is not there: ",
        "there is no folder ",
        "the server `unset` is not there: the variable LAB_NOT_SET is not set",
    ):
        assert sentence in done.stderr
    assert "good" not in done.stderr


def test_a_command_can_tell_what_is_missing_from_what_is_gone(tmp_path: Path) -> None:
    """MC-08: a server that is not there is named by the origin that its tools would have."""
    servers = load(written(tmp_path, good=python("pages"), dead=python("die-start"), odd={}))
    assert isinstance(servers, Servers)

    async def missing() -> dict[str, str]:
        async with opened(servers, "mcp.json") as registry:
            assert registry.names == ["a", "b", "c"]
            remote = servers.remote
            return {f"{remote.origin}:{name}": why for name, why in remote.failed.items()}

    found = anyio.run(missing)
    assert sorted(found) == ["mcp:dead", "mcp:odd"]
    assert "ended with 7" in found["mcp:dead"]


# ---- nobody there --------------------------------------------------------------------------------


class Answering(BaseHTTPRequestHandler):
    """Answers each path in a way that no server of MCP does."""

    def do_POST(self) -> None:
        """Answer."""
        self.rfile.read(int(self.headers["content-length"]))
        kind = "text/html" if self.path != "/json" else "application/json"
        code = {"/401": 401, "/500": 500}.get(self.path, 200)
        self.send_response(code)
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(b"<html>secret" if kind == "text/html" else b'{"a": [')

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve nonsense, and return where."""
    server = HTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(PATIENCE)
    server.server_close()


NOBODY = [
    (command("die-start"), 1, "its process ended with 7; it wrote: cannot start: LAB_SECRET_NAME"),
    (command("nonsense-start"), 1, "cannot connect to "),
    (command("die-list"), 1, "its process ended with 4"),
    (command("no-list"), 1, "cannot be listed"),
    ("sh -c 'exit 3'", 1, "its process ended with 3"),
    ("no-such-program --x", 2, "there is no program `no-such-program` on the PATH"),
    ("sh -c 'unbalanced", 2, "the command `sh -c 'unbalanced` cannot be read"),
    ("http://127.0.0.1:1/mcp", 1, "cannot connect to http://127.0.0.1:1/mcp: "),
    ("http://", 1, "cannot connect to http://: "),
    ("{address}/html", 1, "cannot connect to {address}/html: it answered with HTTP 200"),
    ("{address}/json", 1, "cannot connect to {address}/json: "),
    ("{address}/401", 1, "HTTP 401; it wants to know who asks: name it in an mcp.json"),
    ("{address}/500", 1, "it answered with HTTP 500"),
    ("missing.json", 2, "there is no file `missing.json`"),
    ("list.json", 2, 'list.json is no mcp.json: it has no object "mcpServers"'),
    ("broken.json", 2, "broken.json cannot be read as an mcp.json"),
    ("none.json", 2, "none.json names no server"),
    ("dead.json", 1, "no server of dead.json is there"),
    ("two.json", 2, "the servers `one` and `two` of two.json both have a tool `a`"),
    ("empty.json", 2, "empty.json offers no tool that can be used"),
]


@pytest.mark.parametrize(("target", "code", "sentence"), NOBODY)
def test_what_gives_no_tools_is_a_sentence(
    target: str,
    code: int,
    sentence: str,
    tmp_path: Path,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """API, exit codes: 2 for what is no target, 1 for a target where nobody is."""
    monkeypatch.chdir(tmp_path)
    files = {
        "list.json": "[]",
        "broken.json": '{"mcpServers": {',
        "none.json": '{"mcpServers": {"off": {"command": "x", "disabled": true}}}',
        "dead.json": json.dumps({"servers": {"a": python("die-start"), "b": {}}}),
        "two.json": json.dumps({"servers": {"one": python("pages"), "two": python("pages")}}),
        "empty.json": json.dumps({"servers": {"one": python("no-tools")}}),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    named = target.format(address=address)

    async def given() -> None:
        async with opened(load(named), named):
            pass

    with pytest.raises(Refused) as caught:
        anyio.run(given)

    assert sentence.format(address=address) in caught.value.message
    assert caught.value.code == code
    assert "secret" not in caught.value.message


def test_servers_that_are_refused_are_hung_up(tmp_path: Path) -> None:
    """CLO-1: what was started for nothing has ended when that is said."""
    noted = tmp_path / "pids"
    entry = {"command": "sh", "args": ["-c", f"echo $$ >> {noted}; exec {command('pages')}"]}
    file = written(tmp_path, one=entry, two=entry)

    async def given() -> list[int]:
        with pytest.raises(Refused, match="both have a tool"):
            async with opened(load(file), file):
                pass
        return [pid for pid in map(int, noted.read_text().split()) if is_there(pid)]

    assert anyio.run(given) == []
    assert len(noted.read_text().split()) == 2


def is_there(pid: int) -> bool:
    """Return whether a process of ours has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("target", [command("die-start"), "{address}/json"])
def test_that_nobody_is_there_is_one_line(target: str, ferrule: Ferrule, address: str) -> None:
    """API, exit codes: on standard error alone, without a traceback of anybody's."""
    done = ferrule("list", target.format(address=address))

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("ferrule: cannot connect to ")
    assert done.stderr.count("\n") == 1


def test_names_that_meet_say_how_a_prefix_is_given(ferrule: Ferrule, tmp_path: Path) -> None:
    """REG-1: within one file, and between a file and tools of ours."""
    twice = ferrule("list", written(tmp_path, one=python("pages"), two=python("pages")))
    (tmp_path / "tools.py").write_text(TOOLS.replace("ours", "a"))
    both = ferrule("serve", written(tmp_path, one=python("pages")), "tools.py")

    assert 'give one of them a prefix in its entry, as in "prefix": "two"' in twice.stderr
    assert (twice.returncode, both.returncode) == (2, 2)
    assert "a tool named `a` is there already, from origin `mcp:one`" in both.stderr
    assert "a `prefix`" in both.stderr
