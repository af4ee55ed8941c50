"""The refunds: real processes, real kills, and the ledger of a real server as the judge."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from ferrule import Completed, Executor, Leg, Outcome, Record, Result, Suspended, ToolCall, Unknown
from ferrule.ports import DurableCall, Moved
from ferrule.runtime import SqliteInbox, SqliteRuntime
from payments import Ledger, Line, Served, When, ask, serving
from refunds import Account, Refused, offered

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[1] / "examples"
CUT_OFF = "turn-7/call_103"


def told(directory: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    """Tell the story, as a program of its own, and keep its files."""
    return subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            EXAMPLES / "refunds_story.py",
            "--directory",
            directory,
            *more,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def ledger(directory: Path, name: str = "ledger.db") -> list[Line]:
    """Read the server's ledger, whether it runs or not."""
    with closing(Ledger(directory / name)) as opened:
        return opened.lines()


def steps(history: list[Moved]) -> list[str]:
    """Return the steps of a history."""
    return [line.step for line in history]


# ---- the story -----------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_turn_that_is_killed_in_the_middle_books_each_refund_once(
    when: When, tmp_path: Path
) -> None:
    """DUR-2, DUR-3: killed before or after the server has booked, the ledger is the same."""
    done = told(tmp_path, "--hold", when)
    assert (done.returncode, done.stderr) == (0, "")
    lines = {line.order: line for line in ledger(tmp_path)}
    assert {order: line.bookings for order, line in lines.items()} == dict.fromkeys(
        ("A-101", "A-102", "A-103", "A-104"), 1
    ), "each once, and what was refused not at all"
    assert {order: line.requests for order, line in lines.items()} == {
        **dict.fromkeys(("A-101", "A-102", "A-104"), 1),
        "A-103": 2,
    }
    calls, history = anyio.run(read, tmp_path / "calls.db")
    assert [one.state for one in calls] == [*["completed"] * 4, "failed"]
    for kept in calls:
        order = json.loads(kept.call.arguments)["order"]
        if order in lines:
            assert lines[order].key == kept.idempotency_key
    assert (CUT_OFF, "dispatched") in {
        (before.call_id, before.state) for before, after in pairs(history) if after.step == "again"
    }, "that is where it was killed"
    assert steps([line for line in history if line.call_id == CUT_OFF]) == [
        *("propose", "admit", "allow", "dispatch", "record"),
        *("again", "allow", "dispatch", "record", "complete"),
    ]
    assert [line.call_id for line in history if line.step == "again"] == [CUT_OFF]


def pairs(history: list[Moved]) -> list[tuple[Moved, Moved]]:
    """Return each line of a history with the one before it of the same call."""
    last: dict[str, Moved] = {}
    found = []
    for line in history:
        if line.call_id in last:
            found.append((last[line.call_id], line))
        last[line.call_id] = line
    return found


async def read(journal: Path) -> tuple[list[DurableCall], list[Moved]]:
    """Return the calls of the turn and their history."""
    inbox = SqliteInbox(journal)
    names = [f"turn-7/call_{number}" for number in range(101, 106)]
    return [await inbox.call(name) for name in names], await inbox.history()


def test_what_is_told_is_short_and_true(tmp_path: Path) -> None:
    """API.md: what the journal says of each call, and who answered, in 25 lines."""
    done = told(tmp_path)
    lines = done.stdout.splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 100
    calls, history = anyio.run(read, tmp_path / "calls.db")
    for kept in calls[2:]:
        assert kept.outcome is not None
        assert f"{kept.state:10}  {kept.outcome.text}" in done.stdout
    for line in ledger(tmp_path):
        assert f"{line.requests:5}  {line.bookings:6}  {line.key}" in done.stdout
    assert "dispatched  the server has booked it" in done.stdout
    assert "is killed here with SIGKILL: it ended by signal 9." in done.stdout
    said = {line.by: line.data for line in history if line.step == "answer"}
    assert {by: data["answer"] for by, data in said.items()} == {"ann": True, "bob": False}  # type: ignore[index]  # ours
    assert "(booked more than once: none)" in done.stdout


def test_a_server_that_forgets_its_keys_books_twice_and_the_story_says_so(tmp_path: Path) -> None:
    """DUR-2: what `keyed` relies on; without it the same story ends badly."""
    done = told(tmp_path, "--forgets")
    assert done.returncode == 1
    assert "(booked more than once: A-103)" in done.stdout
    bookings = {line.order: line.bookings for line in ledger(tmp_path)}
    assert bookings == {"A-101": 1, "A-102": 1, "A-103": 2, "A-104": 1}


def test_without_a_directory_nothing_stays(tmp_path: Path) -> None:
    """CLO-1: neither files nor processes."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / "refunds_story.py"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert b"none" in done.stdout
    assert list(tmp_path.iterdir()) == []


# ---- the server dies -----------------------------------------------------------------------------


REFUND = ToolCall.of("refund", {"order": "A-1", "amount": 30}, id="c")


async def refunded(
    directory: Path, server: Served, *, retried_by: str | None = None
) -> tuple[Outcome, DurableCall]:
    """Run the one refund, or run it again for somebody, and return how it ended."""
    async with SqliteRuntime(offered(server.port), directory / "calls.db") as runtime:
        if retried_by is not None:
            await runtime.inbox.resolve("c", "retry", by=retried_by)
        batch = await runtime.submit([REFUND], batch_id="t")
        with anyio.fail_after(60):
            (outcome,) = await batch.settled()
        return outcome, await runtime.inbox.call("c")


def booked(directory: Path) -> list[tuple[str, int, int]]:
    """Return the key, the requests and the bookings of each line of the ledger."""
    lines = ledger(directory)
    return [(line.key, line.requests, line.bookings) for line in lines]


@pytest.mark.parametrize(("when", "bookings"), [("before", 0), ("after", 1)])
async def test_a_server_that_dies_leaves_the_call_unknown_and_its_key_on_record(
    tmp_path: Path, when: When, bookings: int
) -> None:
    """FAIL-6, REC-1, DUR-3: the record leads to the ledger, and a retry is no risk."""
    with serving(tmp_path / "ledger.db") as server:
        server.make_trouble("A-1", "die", when)
        outcome, kept = await refunded(tmp_path, server)
    assert isinstance(outcome, Unknown)
    assert outcome.reason == "raised"
    key = kept.idempotency_key
    assert [one.record for one in kept.records] == [
        Record("shop:refund", {"order": "A-1", "amount": 30, "key": key})
    ]
    assert booked(tmp_path) == [(key, 1, bookings)]
    with serving(tmp_path / "ledger.db") as server:
        outcome, kept = await refunded(tmp_path, server, retried_by="ann")
    assert isinstance(outcome, Completed)
    assert outcome.text == "Refunded 30 € of order A-1: booking 1."
    assert booked(tmp_path) == [(key, 2, 1)]


async def test_what_the_ledger_says_of_a_key_resolves_an_unknown_call(tmp_path: Path) -> None:
    """DUR-2: a person who looks it up says how it ended, and nothing runs again."""
    with serving(tmp_path / "ledger.db") as server:
        server.make_trouble("A-1", "die", "after")
        await refunded(tmp_path, server)
    inbox = SqliteInbox(tmp_path / "calls.db")
    (unknown,) = await inbox.unknown(reason="raised")
    (kept,) = unknown.records
    assert isinstance(kept.record.data, dict)
    assert booked(tmp_path) == [(kept.record.data["key"], 1, 1)]
    await inbox.resolve(unknown.id, Completed(Result.of("Refunded.")), by="ann")
    with serving(tmp_path / "ledger.db") as server:
        outcome, _ = await refunded(tmp_path, server)
    assert outcome.text == "Refunded."
    assert booked(tmp_path) == [(unknown.idempotency_key, 1, 1)]


async def test_that_nobody_is_there_is_not_definite(tmp_path: Path) -> None:
    """FAIL-6: it may be a second run whose first has booked; the model must not ask anew."""
    with serving(tmp_path / "ledger.db") as server:
        pass
    outcome, kept = await refunded(tmp_path, server)
    assert isinstance(outcome, Unknown)
    assert len(kept.records) == 1
    with serving(tmp_path / "ledger.db") as server:
        outcome, _ = await refunded(tmp_path, server, retried_by="ann")
    assert isinstance(outcome, Completed)
    assert booked(tmp_path) == [(kept.idempotency_key, 1, 1)]


# ---- the tool and the server ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "answer", "text"),
    [
        (100, None, "Refunded 100 € of order A-1: booking 1."),
        (101, True, "Refunded 101 € of order A-1: booking 1."),
        (101, False, "Error: A person refused to refund 101 € of order A-1."),
    ],
)
async def test_above_the_limit_a_person_is_asked(
    tmp_path: Path, amount: int, answer: bool | None, text: str
) -> None:
    """SUS-2: the answer's step goes on with what was asked; a no is the tool's own sentence."""
    with serving(tmp_path / "ledger.db") as server:
        executor = Executor(offered(server.port))
        call = ToolCall.of("refund", {"order": "A-1", "amount": amount})
        (outcome,) = await executor.run([call])
        if answer is not None:
            assert isinstance(outcome, Suspended)
            assert server.ledger() == []
            continuation = outcome.request.continuation(answer)
            (outcome,) = await executor.run([Leg(call, continuation=continuation, number=2)])
        assert outcome.text == text
        paid = [(line.amount, line.bookings) for line in server.ledger()]
    assert paid == ([] if answer is False else [(amount, 1)])


async def test_a_key_books_one_refund_and_no_other(tmp_path: Path) -> None:
    """DUR-3: the same again is the same booking; another refund under the key is refused."""
    with serving(tmp_path / "ledger.db") as server:
        account = Account(server.port)
        assert [account.refund("A-1", 30, key) for key in "aab"] == [1, 1, 2]
        with pytest.raises(Refused, match=r"\(422\): under this key another refund is booked"):
            account.refund("A-1", 31, "a")
        with pytest.raises(Refused, match="more than nothing"):
            account.refund("A-1", 0, "c")
        assert ask(server.port, "POST", "/refunds", {"order": "A-1", "amount": 1})[0] == 422
        assert server.ledger() == [Line("a", "A-1", 30, 3, 1), Line("b", "A-1", 30, 1, 1)]
    with serving(tmp_path / "ledger.db") as server:
        assert Account(server.port).refund("A-1", 30, "a") == 1, "the ledger survives the server"


async def test_two_requests_at_once_under_one_key_are_booked_once(tmp_path: Path) -> None:
    """DUR-3: the one that was held before it was booked comes late, and finds it booked."""
    with serving(tmp_path / "ledger.db") as server:
        server.make_trouble("A-1", "hold", "before")
        numbers: list[int] = []

        def refund() -> None:
            numbers.append(Account(server.port).refund("A-1", 30, "a"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, refund)
            await anyio.to_thread.run_sync(server.until_held)
            await anyio.to_thread.run_sync(refund)
            server.release()
        assert numbers == [1, 1]
        assert server.ledger() == [Line("a", "A-1", 30, 2, 1)]


def test_the_server_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """CLO-1: also when that is killed."""
    program = (
        "import pathlib, sys, payments\n"
        "with payments.serving(pathlib.Path(sys.argv[1])) as server:\n"
        "    print(server.port, flush=True)\n"
        "    sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "ledger.db")]
    with subprocess.Popen(
        command, cwd=EXAMPLES, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as starter:
        assert starter.stdout is not None
        port = int(starter.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            starter.kill()
            with suppress(ConnectionResetError):  # Gone before it took the connection.
                assert connection.recv(1) == b""


def test_the_command_line_runs_the_turn_with_a_server_of_its_own(
    tmp_path: Path, require: Callable[..., None]
) -> None:
    """API.md: exit 3, as two calls wait for an answer."""
    require(importlib.util.find_spec("click"), "click, from the extra `cli`")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ferrule", "run"),
            *(EXAMPLES / "refunds.py", EXAMPLES / "turns" / "refunds.json"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 3, done.stderr
    lines = ledger(tmp_path, "refunds-ledger.db")
    assert {line.order: line.bookings for line in lines} == {"A-101": 1, "A-102": 1, "A-103": 1}
