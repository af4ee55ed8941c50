"""
The story of five refunds whose process is killed in the middle, told as it happens.

```sh
python examples/refunds_story.py
```

It starts the payment server and, one after the other, the processes of `refunds.py`; it kills the
first one with SIGKILL, and leaves nothing behind. Each line that it prints is read from the journal
or asked of the server. With `--directory DIR` the journal (`calls.db`) and the ledger (`ledger.db`)
stay there; with `--hold before` the process is killed before the server has booked; with
`--forgets` the server takes no notice of idempotency keys, and the story ends badly.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.to_thread
from anyio.abc import Process

import refunds
from ferrule import ToolCall
from ferrule.ports import DurableCall
from ferrule.runtime import SqliteInbox
from ferrule.states import SETTLED
from payments import Line, Served, When, serving

CUT_OFF = "A-103"
"""The order whose refund is under way when the process is killed."""

SECONDS = 60.0
"""How long anything may take before it is given up."""


# ---- the story -----------------------------------------------------------------------------------


async def tell(turn: "Turn", server: Served, when: When) -> bool:
    """Tell it; say whether no refund was booked twice."""
    await killed_in_the_middle(turn, server, when)
    await run_again(turn, server)
    await answered(turn)
    server.release()  # What the process asked that was killed is let go, late as it is.
    return shown(server.ledger())


async def killed_in_the_middle(turn: "Turn", server: Served, when: When) -> None:
    """Run the turn until the server has a refund and has not answered, and kill it there."""
    server.make_trouble(CUT_OFF, "hold", when)
    async with turn.running() as process:
        await anyio.to_thread.run_sync(server.until_held)
        await turn.until_one_is_at_work()
        print(
            f"A model asks for {len(turn)} refunds in one turn; above {refunds.LIMIT} € a person is"
            f" asked.\nProcess {process.pid} runs it, and comes so far:"
        )
        booked = any(line.bookings for line in lines_of(server))
        done = "has booked it" if booked else "was asked, has not booked it"
        await turn.show(instead=f"the server {done}, and does not answer yet")
        process.kill()
        status = await process.wait()
    print(f"\nProcess {process.pid} is killed here with SIGKILL: it ended by signal {-status}.")


async def run_again(turn: "Turn", server: Served) -> None:
    """Run the same turn again, to where only people are waited for."""
    async with turn.running() as process:
        status = await process.wait()
    call = next(one for one in await turn.calls() if refund_of(one.call).order == CUT_OFF)
    lines, waits = lines_of(server), await turn.inbox.waits()
    asked, booked = sum(one.requests for one in lines), sum(one.bookings for one in lines)
    print(
        f"Process {process.pid} goes on with the turn. {CUT_OFF} was begun {times(call.fence)}, "
        f"and is {call.state}:\nthe server was asked {times(asked)} under {len(lines)} idempotency "
        f"key, and booked {times(booked)}.\n{len(waits)} refunds wait for people, in the journal "
        f"and in no process: this one has ended (exit {status})."
    )


async def answered(turn: "Turn") -> None:
    """Answer one question with yes and one with no, and run what that allows."""
    yes, no = sorted(await turn.inbox.waits(), key=lambda wait: refund_of(wait.call).order)
    for wait, answer, by in ((yes, True, "ann"), (no, False, "bob")):
        receipt = await turn.inbox.answer(wait.id, answer, by=by)
        print(f"{receipt.by} says {'yes' if answer else 'no'}: {wait.message}")
    async with turn.running() as process:
        status = await process.wait()
    print(f"Process {process.pid} carries that out (exit {status}), and the model reads:")
    await turn.show(only_since_it_was_killed=True)


def shown(ledger: list[Line]) -> bool:
    """Show the server's ledger; say whether it has no refund twice."""
    twice = [line.order for line in ledger if line.bookings > 1]
    print(f"\nThe payment server's ledger (booked more than once: {', '.join(twice) or 'none'}):")
    print("  order  amount  asked  booked  idempotency key")
    for line in ledger:
        counts = f"{line.requests:5}  {line.bookings:6}"
        print(f"  {line.order}  {line.amount:4} €  {counts}  {line.key}")
    return not twice


# ---- what it is about ----------------------------------------------------------------------------


class Turn:
    """
    The turn as it stands, and how it is run.

    Args:
        journal: Where its calls are kept.
        port: Where the payment server listens.
    """

    def __init__(self, journal: Path, port: int) -> None:
        self.inbox = SqliteInbox(journal)
        self._command = [sys.executable, refunds.__file__, str(journal), str(port)]
        self._ids = [f"{refunds.BATCH}/{call.id}" for call in refunds.calls(refunds.offered(port))]

    def __len__(self) -> int:
        return len(self._ids)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Process]:
        """Start a process that runs the turn; it is gone with the block."""
        with anyio.fail_after(SECONDS):
            process = await anyio.open_process(self._command, stdin=None, stdout=None, stderr=None)
            async with process:
                yield process

    async def calls(self) -> list[DurableCall]:
        """Return its calls as the journal has them."""
        return [await self.inbox.call(name) for name in self._ids]

    async def until_one_is_at_work(self) -> None:
        """Wait until every other call has ended or waits for a person."""
        while sum(call.state not in AT_REST for call in await self.calls()) > 1:  # noqa: ASYNC110
            await anyio.sleep(0.02)  # Another process writes the journal: no event tells.

    async def show(self, *, instead: str = "", only_since_it_was_killed: bool = False) -> None:
        """Print a line for each call: where it is, and what somebody reads of it."""
        questions = {wait.call_id: wait.message for wait in await self.inbox.waits()}
        for call in await self.calls():
            asked = refund_of(call.call)
            if asked.order < CUT_OFF and only_since_it_was_killed:
                continue
            said = call.outcome.text if call.outcome else questions.get(call.id, instead)
            print(f"  {asked.order}  {asked.amount:4} €  {call.state:10}  {said}")


AT_REST = SETTLED | {"suspended"}
"""States of calls that need no process."""


class Refund(NamedTuple):
    """What a call asks for."""

    order: str
    amount: int


def refund_of(call: ToolCall) -> Refund:
    """Return what a call asks for."""
    return Refund(**json.loads(call.arguments))


def lines_of(server: Served) -> list[Line]:
    """Return what the server knows of the refund that was cut off: a line for each key."""
    return [line for line in server.ledger() if line.order == CUT_OFF]


def times(count: int) -> str:
    """Return a number in words, as far as a story needs it."""
    return {0: "not once", 1: "once", 2: "twice"}.get(count, f"{count} times")


def main() -> int:
    """Tell the story; return 1 if a refund was booked twice."""
    parser = argparse.ArgumentParser(description="Five refunds, and a process that is killed.")
    parser.add_argument("--directory", type=Path, help="where journal and ledger stay")
    parser.add_argument("--hold", choices=("before", "after"), default="after")
    parser.add_argument("--forgets", action="store_true", help="the server forgets what it booked")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as gone:
        directory = given.directory or Path(gone)
        with serving(directory / "ledger.db", forgets=given.forgets) as server:
            turn = Turn(directory / "calls.db", server.port)
            return 0 if anyio.run(tell, turn, server, given.hold) else 1


if __name__ == "__main__":
    sys.exit(main())
