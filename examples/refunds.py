"""
Refunds: calls that cost money, that a person may have to allow, and that outlive their process.

- Above a limit `refund` asks a person. The answer may come next week: the call waits in a file and
  in no process. The tool asks itself, by its own step, and not a guard (`Ask`): that large refunds
  need a person is what a refund is in this shop, whoever hosts the tool. So what waits and what is
  answered have types, and a refusal is this tool's own sentence. A guard is for a host's rules.
- `replay="keyed"`: the payment server books once what comes under the same idempotency key. So a
  call that was cut off in the middle runs again and does no harm.
- Only what the server says is definite (`failures`). Any other error leaves the call unknown, even
  that nobody is there: this may be the second run, and the first may have booked. A person finds
  the key in the call's record, which is written before the server is asked: to look it up in the
  server's ledger, or to have the call run again under the same key (`resolve(…, "retry")`).

As a program, `python refunds.py JOURNAL PORT`, it runs the turn of `turns/refunds.json` against the
payment server at that port, and goes on with it when it is started again. `refunds_story.py` starts
both and kills one of them.
"""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import anyio
from msgspec import Meta

from ferrule import (
    Context,
    Failure,
    Inject,
    InputRequest,
    Registry,
    Suspended,
    ToolCall,
    Unknown,
    tool,
)
from ferrule.runtime import SqliteRuntime
from ferrule.wire.openresponses import Wire
from payments import ask, serving

LIMIT = 100
"""Up to so many euro nobody is asked."""

# ---- the tool ------------------------------------------------------------------------------------


class Refused(Exception):
    """The payment server has said no: nothing is booked under the key."""


@dataclass(frozen=True)
class Account:
    """
    The payment server, as a tool sees it.

    Attributes:
        port: Where it listens.
    """

    port: int

    def refund(self, order: str, amount: int, key: str) -> int:
        """
        Have a refund booked, and return the number of the booking.

        Raises:
            Refused: the server does not book it.
            OSError: it did not answer; it may have booked.
        """
        body = {"order": order, "amount": amount}
        status, said = ask(self.port, "POST", "/refunds", body, key=key)
        if "booking" not in said:
            raise Refused(f"The payment server refuses it ({status}): {said['why']}.")
        return int(said["booking"])


@dataclass(frozen=True)
class Draft:
    """A refund that waits for a person: what was asked, so that what is allowed is just that."""

    order: str
    amount: int


@tool(
    destructive=True,
    idempotent=False,
    open_world=True,
    replay="keyed",
    failures=(Refused,),
)
def refund(
    order: Annotated[str, Meta(pattern="^[A-Z]-[0-9]+$")],
    amount: Annotated[int, Meta(ge=1, le=10_000)],
    account: Annotated[Account, Inject("account")],
    context: Context,
) -> str | InputRequest:
    """
    Give a customer money back.

    Args:
        order: The order, as in `A-101`.
        amount: How much, in whole euro.
    """
    if amount > LIMIT:
        return approved.ask(f"Refund {amount} € of order {order}?", Draft(order, amount))
    return _pay(order, amount, account, context)


@refund.step
def approved(
    state: Draft,
    answer: bool,  # noqa: FBT001  # what a person says
    account: Annotated[Account, Inject("account")],
    context: Context,
) -> str:
    """Go on with what a person said."""
    if not answer:
        raise Failure(f"A person refused to refund {state.amount} € of order {state.order}.")
    return _pay(state.order, state.amount, account, context)


def _pay(order: str, amount: int, account: Account, context: Context) -> str:
    key = context.idempotency_key  # The same for each leg and each replay of this call.
    context.record_blocking("shop:refund", {"order": order, "amount": amount, "key": key})
    booking = account.refund(order, amount, key)
    return f"Refunded {amount} € of order {order}: booking {booking}."


def offered(port: int) -> Registry:
    """Return the registry of the one tool, which asks the payment server at `port`."""
    return Registry([refund], inject={"account": Account(port)})


@asynccontextmanager
async def tools() -> AsyncGenerator[Registry]:
    """Give the tool that the command line runs: with a payment server whose ledger is here."""
    with serving(Path("refunds-ledger.db")) as server:
        yield offered(server.port)


# ---- a process that runs a turn ------------------------------------------------------------------

TURN = Path(__file__).parent / "turns" / "refunds.json"
BATCH = "turn-7"
"""What the host calls the turn: started again with the same id, it is the same turn."""

WAITING, UNKNOWN = 3, 4
"""What a process ends with when a person is to answer, or to find out; as `ferrule run` does."""


def calls(known: Registry) -> list[ToolCall]:
    """Return the five calls of the turn, from a model's response."""
    return Wire(known).calls(json.loads(TURN.read_text(encoding="utf-8")))


async def run(journal: Path, port: int) -> int:
    """Run the turn until nothing goes on without a person; return what the process ends with."""
    known = offered(port)
    async with SqliteRuntime(known, journal) as runtime:
        batch = await runtime.submit(calls(known), batch_id=BATCH)
        outcomes = await batch.at_rest()
    kinds = {type(outcome) for outcome in outcomes}
    return UNKNOWN if Unknown in kinds else WAITING if Suspended in kinds else 0


if __name__ == "__main__":
    sys.exit(anyio.run(run, Path(sys.argv[1]), int(sys.argv[2])))
