"""Signing in: asked once, renewed without asking, across restarts and processes."""

import json
import logging
import os
import stat
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import msgspec
import pytest

from ferrule import Executor, FerruleError, InvalidValue, ToolCall
from ferrule.mcp import Address, Grant, KeyringTokens, Remote, SignIn, TokenFile, connect
from mcp_authority import Place
from serving import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:Async generator")]


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


@pytest.mark.parametrize("seconds", [3600, None])
async def test_a_token_that_its_server_refuses_is_renewed(
    place: Place, seconds: int | None
) -> None:
    """AT-108: it ended before its time, or nobody said when it would; nobody is asked."""
    place.authority.seconds = seconds
    async with place.remote() as remote:
        await add(remote)
        place.authority.valid.clear()
        assert await add(remote) == "3"

    assert place.authority.log[3:] == ["refresh_token"]
    assert len(place.shown) == 1


async def test_a_token_that_its_server_never_takes_is_renewed_once(place: Place) -> None:
    """AT-108: then a person is asked, once; what they sign in to is tried once more."""
    async with place.remote() as remote:
        await add(remote)
        place.authority.refuses_all = True
        outcome = await add(remote)

    assert outcome == "Error: the server did not run the call: it answered with HTTP 401"
    assert place.authority.log[3:].count("refresh_token") == 1
    assert len(place.shown) == 2


async def test_a_token_that_is_for_too_little_is_not_renewed(place: Place) -> None:
    """AT-108: another one for the same would not do; a person is asked for more."""
    async with place.remote() as remote:
        await add(remote)
        place.authority.wants_more = True
        assert await add(remote) == "3"

    assert place.authority.log[3:] == ["authorize", "authorization_code"]
    assert "scope=more" in place.shown[-1]


async def test_calls_side_by_side_ask_a_person_once(place: Place) -> None:
    """AT-108: who waited for the sign-in of another call takes what it brought."""
    async with place.remote() as remote:
        await add(remote)
        place.authority.refresh.clear()
        place.authority.valid.clear()
        calls = [ToolCall.of("add", {"a": 1, "b": number}) for number in range(4)]
        outcomes = await Executor(remote.tools).run(calls)

    assert [outcome.text for outcome in outcomes] == ["1", "2", "3", "4"]
    assert len(place.shown) == 2


class Watched(TokenFile):
    """A file of tokens that notes who writes without the lock."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_held = False
        self.log: list[bool] = []

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[None]:
        """Have it."""
        async with super().locked():
            self.is_held = True
            yield
            self.is_held = False

    async def write(self, url: str, grant: Grant | None) -> None:
        """Note it."""
        self.log.append(self.is_held)
        await super().write(url, grant)


async def test_nothing_is_written_without_the_lock(place: Place) -> None:
    """AT-108: a file keeps many servers; what another process writes of one is not lost."""
    tokens = Watched(place.file)
    async with place.remote(tokens) as remote:
        await add(remote)
    place.end()
    async with place.remote(tokens) as remote:
        await add(remote)

    assert tokens.log == [True, True]


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


@pytest.mark.parametrize(
    "address",
    [
        "https://example.com/callback",
        "127.0.0.1:80",
        "http://127.0.0.1:99999/",
        "http://[::1/x",
        "",
    ],
)
def test_an_address_that_nobody_comes_back_to_is_refused(address: str) -> None:
    """FN-1: without `back` we listen ourselves, on this machine."""
    with pytest.raises(InvalidValue, match=r"127\.0\.0\.1"):
        SignIn(TokenFile("x"), redirect_uri=address)
    assert urlsplit(SignIn(TokenFile("x")).redirect_uri).port == 8790


VISIT = "import sys, httpx2; httpx2.get(sys.argv[1], follow_redirects=True)"
BROWSER = f"{sys.executable} -c '{VISIT}' %s"
"""A browser whose person says yes at once."""


def command(folder: Path, place: Place, browser: str) -> "subprocess.CompletedProcess[str]":
    """Call a tool of a file's server from the command line."""
    back = f"http://127.0.0.1:{free_port()}/callback"
    entry = {"url": place.url, "sign_in": {"tokens": "kept/tokens.json", "redirect_uri": back}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"lab": entry}}))
    words = ["call", str(folder / "mcp.json"), "add", "--a", "1", "--b", "2"]
    env = {**os.environ, "PYTHONPATH": ":".join(sys.path), "BROWSER": browser}
    line = [sys.executable, "-m", "ferrule", *words]
    return subprocess.run(line, capture_output=True, text=True, env=env, check=False)


def test_a_file_may_say_that_its_server_is_signed_in_to(place: Place, tmp_path: Path) -> None:
    """AT-108: `sign_in` in an entry, from any folder; once, and after that nobody is asked."""
    first = command(tmp_path, place, BROWSER)
    again = command(tmp_path, place, "false")
    place.file = tmp_path / "kept" / "tokens.json"
    place.end()
    renewed = command(tmp_path, place, "false")

    assert [one.stdout for one in (first, again, renewed)] == ["3\n"] * 3
    assert [one.stderr for one in (first, again, renewed)] == [""] * 3
    assert place.authority.log == [
        "register", "authorize", "authorization_code", "refresh_token"
    ]  # fmt: skip
    assert stat.S_IMODE(place.file.stat().st_mode) == 0o600


class Reader(logging.Handler):
    """A person who reads the log, and goes where it says."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place

    def emit(self, record: logging.LogRecord) -> None:
        """Go there; the log is written by the thread that would have opened a browser."""
        self.place.show(record.getMessage().removeprefix("sign in at "))


async def test_where_there_is_no_browser_the_log_says_where_to_sign_in(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AT-108: a person opens one themselves."""
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    reader = Reader(place)
    logging.getLogger("ferrule.mcp").addHandler(reader)
    try:
        back = f"http://127.0.0.1:{free_port()}/callback"
        sign_in = SignIn(TokenFile(place.file), redirect_uri=back, seconds=20)
        async with connect(Address(place.url, sign_in=sign_in)) as remote:
            assert await add(remote) == "3"
    finally:
        logging.getLogger("ferrule.mcp").removeHandler(reader)
    assert len(place.shown) == 1
