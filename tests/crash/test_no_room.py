"""
A journal that cannot be written for a while: no room on the disk, or somebody else's lock.

What was not kept did not happen, and says so; what has happened is kept as soon as there is room.
"""

import logging
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from crash import journal
from ferrule import (
    Ask,
    Completed,
    Context,
    Definition,
    InputRequest,
    Outcome,
    RawTool,
    Registry,
    Suspended,
    Tool,
    ToolCall,
    Traits,
)
from ferrule.errors import JournalError
from ferrule.runtime import SqliteRuntime
from ferrule.runtime._store import Store, Work

LONG = 60
"""Seconds after which something hangs; nothing waits for them."""

MUCH = "much" * 50_000
"""More than there is room for."""

PATIENCE = 0.05
"""Seconds that a runtime waits for somebody else's lock, here."""


class Tools:
    """Tools that may need much room, each once it is let go on."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.gate = anyio.Event()
        self.errors: list[BaseException] = []

    def registry(self) -> Registry:
        """Return the tools."""
        made: list[Tool] = [
            self._raw("talks", self._talk),
            self._raw("records", self._record),
            RawTool(Definition("asks"), self._ask, resume=self._answered),
            self._raw("asked", self._talk),
        ]
        return Registry(made).guarded(
            lambda asked: Ask("May it?") if asked.definition.name == "asked" else True
        )

    @staticmethod
    def _raw(name: str, function: Callable[[dict[str, object], Context], object]) -> RawTool:
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        return RawTool(Definition(name, input_schema=schema), function, traits=Traits(uses="state"))

    async def _talk(self, _: dict[str, object], __: Context) -> str:
        self.begun.set()
        await self.gate.wait()
        return MUCH

    async def _record(self, _: dict[str, object], context: Context) -> str:
        self.begun.set()
        await self.gate.wait()
        try:
            await context.record("crash:note", MUCH)
        except JournalError as error:
            self.errors.append(error)
            return "not recorded"
        return "recorded"

    async def _ask(self, _: dict[str, object], __: Context) -> InputRequest:
        return InputRequest("How?", schema={"type": "string"}, state=None)

    async def _answered(self, _: dict[str, object], __: Context, said: object) -> str:
        return "answered"


# ---- outages ---------------------------------------------------------------------------------


class Away(logging.Handler):
    """Knows when a runtime has said that the journal is away."""

    def __init__(self) -> None:
        super().__init__()
        self.said = anyio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Note it."""
        if "the journal is away" in record.getMessage():
            self.said.set()


@pytest.fixture
def away(anyio_backend: str) -> Iterator[Away]:
    """Watch what the runtime says."""
    handler = Away()
    logging.getLogger("ferrule").addHandler(handler)
    yield handler
    logging.getLogger("ferrule").removeHandler(handler)


async def limit(runtime: SqliteRuntime, pages: str) -> None:
    """Bound how many pages the journal has: SQLite's own way to be out of room."""
    await runtime._host.read(lambda tx: tx.rows(f"PRAGMA max_page_count = {pages}"))


@asynccontextmanager
async def full(runtime: SqliteRuntime, home: Path) -> AsyncIterator[None]:
    """Let there be no room for another page."""
    await limit(runtime, "1")  # Never less than there are.
    try:
        yield
    finally:
        await limit(runtime, "4294967294")


@asynccontextmanager
async def no_space(runtime: SqliteRuntime, home: Path) -> AsyncIterator[None]:
    """Fill the disk that the journal is on."""
    ballast = home / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    assert shutil.disk_usage(home).free == 0
    try:
        yield
    finally:
        ballast.unlink()


LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


@asynccontextmanager
async def locked(runtime: SqliteRuntime, home: Path) -> AsyncIterator[None]:
    """Have another process hold a lock."""
    command = [sys.executable, "-c", LOCK, str(home / "calls.db")]
    async with await anyio.open_process(command, stderr=None) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        await BufferedByteReceiveStream(other.stdout).receive_until(b"\n", 100)
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await other.stdin.aclose()
                await other.wait()


OUTAGES = {"full": full, "no_space": no_space, "locked": locked}
SAYS = {"full": "no room left", "no_space": "no room left", "locked": "locked by another process"}


@pytest.fixture(params=OUTAGES)
def outage(request: pytest.FixtureRequest) -> str:
    """Have a test go through each outage."""
    return str(request.param)


@pytest.fixture
def home(outage: str, tmp_path: Path, require: Callable[..., None]) -> Iterator[Path]:
    """Return a directory; one of a small disk of its own where a disk is to be full."""
    if outage != "no_space":
        yield tmp_path
        return
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    require(mount and os.geteuid() == 0, "a disk of its own: root, and mount", optional=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)]
    done = subprocess.run(command, check=False, capture_output=True)
    require(done.returncode == 0, "a disk of its own: mount is not allowed", optional=True)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@asynccontextmanager
async def entered(tools: Tools, home: Path) -> AsyncIterator[SqliteRuntime]:
    """Enter a runtime on a journal that was made before, bounded."""
    with anyio.fail_after(LONG):
        async with SqliteRuntime(
            tools.registry(), home / "calls.db", patience=PATIENCE, lease=LONG
        ) as runtime:
            yield runtime


# ---- what holds ------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_turn_that_cannot_be_kept_is_refused_and_did_not_happen(
    home: Path, outage: str
) -> None:
    """DUR-1: submit says what is wrong; nothing was written, nothing runs; later it is kept."""
    tools = Tools()
    tools.gate.set()
    calls = [ToolCall.of("talks", {"text": MUCH}, id="a")]
    async with entered(tools, home) as runtime:
        async with OUTAGES[outage](runtime, home):
            with pytest.raises(JournalError, match=SAYS[outage]) as refused:
                await runtime.submit(calls, batch_id="turn")
            assert refused.value.passing
            assert "nothing was written" in str(refused.value)
            assert journal.read(home / "calls.db").calls == ()
        assert not tools.begun.is_set()
        batch = await runtime.submit(calls, batch_id="turn")
        assert [outcome.text for outcome in await batch.settled()] == [MUCH]


@pytest.mark.anyio
async def test_an_outcome_that_cannot_be_kept_is_kept_when_there_is_room(
    home: Path, outage: str, away: Away
) -> None:
    """DUR-1: ENGINE 5: it shows to nobody before, and is written again until it is kept."""
    tools = Tools()
    shown: list[Outcome] = []
    async with entered(tools, home) as runtime, anyio.create_task_group() as tasks:
        calls = [ToolCall.of("talks", id="a"), ToolCall.of("talks", id="b")]
        batch = await runtime.submit(calls, batch_id="turn")

        async def settle() -> None:
            shown.extend(await batch.settled())

        tasks.start_soon(settle)
        await tools.begun.wait()
        async with OUTAGES[outage](runtime, home):
            tools.gate.set()
            await away.said.wait()
            states = journal.read(home / "calls.db").states()
            assert states["dispatched"] == 1
            assert states["admitted"] + states["authorized"] == 1
            assert shown == []
    assert [type(outcome) for outcome in shown] == [Completed, Completed]
    assert {outcome.text for outcome in shown} == {MUCH}
    assert journal.read(home / "calls.db").states() == {"completed": 2}


@pytest.mark.anyio
async def test_an_answer_that_cannot_be_kept_leaves_its_question_open(
    home: Path, outage: str
) -> None:
    """SUS-3: who answers is told; the question waits, and can be answered later, once."""
    async with entered(Tools(), home) as runtime:
        batch = await runtime.submit([ToolCall.of("asks", id="a")], batch_id="turn")
        assert [type(outcome) for outcome in await batch.at_rest()] == [Suspended]
        [wait] = await runtime.inbox.waits()
        async with OUTAGES[outage](runtime, home):
            with pytest.raises(JournalError, match=SAYS[outage]):
                await runtime.inbox.answer(wait.id, MUCH, by="ann", answer_id="one")
            assert [one.how for one in journal.read(home / "calls.db").waits] == [None]
        assert [one.id for one in await runtime.inbox.waits()] == [wait.id]
        receipt = await runtime.inbox.answer(wait.id, MUCH, by="bob", answer_id="one")
        assert receipt.first
        assert [outcome.text for outcome in await batch.settled()] == ["answered"]


@pytest.mark.anyio
async def test_a_record_that_cannot_be_kept_is_the_tool_s_to_know(home: Path, outage: str) -> None:
    """REC-1, REC-2: the error reaches the tool, which may go on; the record is not there."""
    tools = Tools()
    async with entered(tools, home) as runtime, anyio.create_task_group() as tasks:
        batch = await runtime.submit([ToolCall.of("records", id="a")], batch_id="turn")
        await tools.begun.wait()
        async with OUTAGES[outage](runtime, home):
            tools.gate.set()
            while not tools.errors:  # noqa: ASYNC110  # the tool says so
                await anyio.sleep(0.01)
        assert [outcome.text for outcome in await batch.settled()] == ["not recorded"]
        tasks.cancel_scope.cancel()
    assert SAYS[outage] in str(tools.errors[0])
    assert journal.read(home / "calls.db").records == ()


@pytest.mark.anyio
@pytest.mark.parametrize("outage", ["locked"], indirect=True)
async def test_leaving_while_the_journal_is_away_says_so_and_loses_nothing(
    home: Path, outage: str
) -> None:
    """DUR-2: the process may end; what it could not say is found out by the next one."""
    tools = Tools()
    async with locked_at_the_end(tools, home):
        await tools.begun.wait()
    kept = journal.read(home / "calls.db")
    assert kept.states() == {"dispatched": 1, "suspended": 1}
    with closing(sqlite3.connect(home / "calls.db")) as connection:
        connection.execute("UPDATE calls SET lease = 1.0")  # Its lease has run out since.
        connection.execute("UPDATE batches SET lease = 1.0")
        connection.commit()
    async with entered(Tools(), home) as runtime:
        [batch] = await runtime.recover()
        outcomes = await batch.at_rest()
        while not outcomes[0].is_error:
            outcomes = await batch.at_rest()
    assert [outcome.to_json()["outcome"] for outcome in outcomes] == ["unknown", "suspended"]


@asynccontextmanager
async def locked_at_the_end(tools: Tools, home: Path) -> AsyncIterator[None]:
    """Leave a runtime with two calls while another process holds a lock."""
    with anyio.fail_after(LONG):
        runtime = SqliteRuntime(tools.registry(), home / "calls.db", patience=PATIENCE)
        await runtime.__aenter__()
        calls = [ToolCall.of("talks", id="a"), ToolCall.of("asks", id="b")]
        batch = await runtime.submit(calls, batch_id="turn")
        async for moved in batch.events:
            if moved.step == "suspend":
                break
        yield
        async with locked(runtime, home):
            with pytest.raises(JournalError, match="locked by another process"):
                await runtime.__aexit__(None, None, None)


def test_what_needs_too_much_room_takes_nobody_with_it(tmp_path: Path) -> None:
    """DUR-1: what shares a transaction is done by itself where the whole cannot be."""
    with closing(Store(tmp_path / "calls.db", create=True)) as store:
        store.write(lambda tx: tx.run("INSERT INTO owners VALUES ('a', 1, '', '')"))
        store.read(lambda tx: tx.rows("PRAGMA max_page_count = 1"))
        works: list[Work[object]] = [
            Work(lambda tx: tx.run("UPDATE owners SET pid = 2"), writes=True),
            Work(lambda tx: tx.run("UPDATE owners SET began = ?", MUCH), writes=True),
            Work(lambda tx: tx.rows("SELECT id FROM owners")[0]["id"], writes=False),
            Work(lambda tx: tx.run("UPDATE owners SET machine = 'm'"), writes=True),
        ]
        store.do(works)
        assert [work.error is None for work in works] == [True, False, True, True]
        assert works[2].result == "a"
        row = store.read(lambda tx: tuple(tx.rows("SELECT * FROM owners")[0]))
    assert row == ("a", 2, "", "m")
