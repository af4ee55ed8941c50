"""Several processes that share one file of tokens."""

import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

import mcp_sign_in
from mcp_authority import Gate, Place

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:Async generator")]

PROGRAM = str(Path(mcp_sign_in.__file__))
PATIENCE = 60
ONCE = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""Processes take seconds to start: what says nothing new on the other loop runs on one."""


class Signed:
    """A process that is signed in, and has said that it is ready."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.said: list[str] = []
        self.until("ready")

    @property
    def _out(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def go(self) -> None:
        """Let it make its call."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def until(self, word: str) -> None:
        """Read what it says, up to a word."""
        for line in self._out:
            self.said.append(line.strip())
            if self.said[-1] == word:
                return
        raise AssertionError(f"it ended without saying {word}: {self.said}")

    def kill(self) -> None:
        """End it as nothing else ends it."""
        self._process.kill()
        self._process.wait(PATIENCE)

    def ended(self) -> list[str]:
        """Wait for its end, and return what it said."""
        self.said += [line.strip() for line in self._out]
        self._process.wait(PATIENCE)
        return self.said


@contextmanager
def processes(place: Place, backend: str, *policies: str) -> Iterator[list[Signed]]:
    """Start programs that are signed in, and have them ready."""
    with ExitStack() as stack:
        started = []
        for policy in policies:
            words = [sys.executable, PROGRAM, backend, place.url, str(place.file), policy]
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            stack.callback(process.kill)
            stack.enter_context(process)
            started.append(process)
        yield [Signed(process) for process in started]


@pytest.fixture
async def signed_in(place: Place) -> Place:
    """Give a place whose token was granted, and has ended."""
    async with place.remote():
        pass
    place.end()
    place.authority.log.clear()
    return place


@pytest.fixture
def gate(signed_in: Place) -> Gate:
    """Give what holds back who asks for another token."""
    gate = signed_in.authority.gate = Gate()
    return gate


def kept(place: Place, *, one_died: bool = False) -> dict[str, str]:
    """Return what the file keeps of the server; it is whole, and nobody else may read it."""
    files = sorted(place.file.parent.iterdir())
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * len(files)
    left_behind = tuple([".tokens.json.", "tokens.json.lock-journal"] if one_died else [])
    names = [file.name for file in files if not file.name.startswith(left_behind)]
    assert names == ["tokens.json", "tokens.json.lock"]
    grant: dict[str, str] = json.loads(place.file.read_text())[place.url]
    return grant


async def test_of_two_processes_one_renews_and_both_go_on(
    signed_in: Place, gate: Gate, anyio_backend: str
) -> None:
    """AT-108, python-sdk#3250: one refresh reaches the authorization server; nobody is asked."""
    authority = signed_in.authority
    with processes(signed_in, anyio_backend, "", "") as (one, other):
        one.go()
        assert gate.came.acquire(timeout=PATIENCE)  # It holds the lock, and waits for its answer.
        other.go()
        other.until("locking")
        gate.opened.set()
        said = [one.ended(), other.ended()]

    for each in said:
        assert each[:3] == ["ready", "locking", "locked"]
        assert each[3:] == ["ended 3"]
    assert authority.log == ["refresh_token"]
    assert kept(signed_in)["access_token"] in authority.valid
    assert kept(signed_in)["refresh_token"] in authority.refresh


@ONCE
async def test_many_processes_at_once(signed_in: Place, gate: Gate, anyio_backend: str) -> None:
    """AT-108: whoever comes first, as often as it is tried."""
    gate.opened.set()
    with processes(signed_in, anyio_backend, *[""] * 3) as all_of_them:
        for one in all_of_them:
            one.go()
        said = [one.ended()[-1] for one in all_of_them]

    assert said == ["ended 3"] * 3
    assert signed_in.authority.log == ["refresh_token"]
    assert kept(signed_in)["refresh_token"] in signed_in.authority.refresh


async def test_one_is_killed_before_its_token_was_renewed(
    signed_in: Place, gate: Gate, anyio_backend: str
) -> None:
    """AT-108: its lock ends with it; the other renews the token and goes on."""
    authority = signed_in.authority
    with processes(signed_in, anyio_backend, "", "") as (one, other):
        one.go()
        assert gate.came.acquire(timeout=PATIENCE)
        other.go()
        other.until("locking")
        one.kill()
        assert gate.came.acquire(timeout=PATIENCE)  # The other has the lock now.
        gate.opened.set()
        said = [one.ended(), other.ended()]

    assert said == [
        ["ready", "locking", "locked"],
        ["ready", "locking", "locked", "ended 3"],
    ]
    assert sorted(authority.log) == ["hung up", "refresh_token", "refresh_token"]
    assert kept(signed_in)["access_token"] in authority.valid


@ONCE
async def test_one_is_killed_as_it_writes_what_it_was_granted(
    signed_in: Place, gate: Gate, anyio_backend: str
) -> None:
    """AT-108: that is lost with it, so the other asks a person, once; the file was always whole."""
    authority = signed_in.authority
    gate.opened.set()
    before = kept(signed_in)
    with processes(signed_in, anyio_backend, "die", "visit") as (one, other):
        one.go()
        assert one.ended() == ["ready", "locking", "locked"]
        assert kept(signed_in, one_died=True) == before
        other.go()
        said = other.ended()

    assert said[:3] == ["ready", "locking", "locked"]
    assert said.count("asked") == 1
    assert said[-1] == "ended 3"
    assert authority.log[:3] == ["refresh_token", "refresh_token", "stolen"]
    assert kept(signed_in, one_died=True)["access_token"] in authority.valid
