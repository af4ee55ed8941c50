"""`ferrule resolve`: how an unknown call ended, as a person found out; or once more."""

import click

from ferrule import Cancelled, Completed, Failed, Failure, Result
from ferrule.cli._journal import as_json, by, journal, printable, speaker, visit
from ferrule.cli._streams import result_stream
from ferrule.helpers import one_line
from ferrule.ports import DurableCall, Resolution
from ferrule.runtime import SqliteInbox

COMPLETED, FAILED, CANCELLED, RETRY = "completed", "failed", "cancelled", "retry"

_FAILED = "it failed, as was found out later"


@click.command("resolve")
@click.argument("call", metavar="CALL", callback=printable)
@click.argument(
    "resolution",
    metavar="completed|failed|cancelled|retry",
    type=click.Choice([COMPLETED, FAILED, CANCELLED, RETRY]),
)
@journal
@click.option(
    "--text", metavar="TEXT", help="What the model reads: the result, or why the call failed."
)
@by
@as_json
def command(
    *, call: str, resolution: str, journal: str, text: str | None, by: str | None, as_json: bool
) -> int:
    """
    Say how an unknown call ended, or have it run again.

    CALL is its id as `ferrule unknown` lists it, or the model's own where no other call has that.

    \b
    completed  it took effect; --text is its result, else that is empty
    failed     it did not; --text says why
    cancelled  it did not, as it was stopped
    retry      it runs again, with the same idempotency key, when its turn is run again
    """  # noqa: D301  # click reads the character \b: keep these lines
    if text is not None and resolution in {CANCELLED, RETRY}:
        raise click.UsageError(f"--text goes with {COMPLETED} and {FAILED}")
    with result_stream() as result:
        speaks = speaker(by)
        known = visit(journal, lambda inbox: _resolve(inbox, call, (resolution, text), speaks))
        if as_json:
            result.write_json({"id": known.id, "state": known.state, "by": speaks})
        else:
            name = f"{one_line(known.call.name)} ({one_line(known.id)})"
            said = "runs again with its turn" if resolution == RETRY else f"is {known.state}"
            result.write(f"{name} {said}, by {one_line(speaks)}\n")
    return 0


async def _resolve(
    inbox: SqliteInbox, name: str, said: tuple[str, str | None], by: str
) -> DurableCall:
    call = await inbox.call(name)
    await inbox.resolve(call.id, _resolution(*said, call.call.name), by=by)
    return await inbox.call(call.id)


def _resolution(kind: str, text: str | None, tool: str) -> Resolution:
    if kind == RETRY:
        return "retry"
    if kind == COMPLETED:
        return Completed(Result.of(text) if text else Result())
    if kind == FAILED:
        return Failed(Failure(text or _FAILED), tool=tool)
    return Cancelled("cancelled", tool=tool)
