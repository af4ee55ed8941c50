"""`ferrule withdraw`: a question taken back."""

import click

from ferrule.cli._journal import as_json, by, find_wait, journal, printable, speaker, visit
from ferrule.cli._streams import result_stream
from ferrule.helpers import one_line
from ferrule.ports import Wait
from ferrule.runtime import SqliteInbox


@click.command("withdraw")
@click.argument("wait", metavar="WAIT", callback=printable)
@journal
@by
@as_json
def command(*, wait: str, journal: str, by: str | None, as_json: bool) -> int:
    """
    Take a question back: nobody can answer it any more, and its call has failed.

    WAIT is the question's id, or a beginning of it that no other question of the journal has;
    `ferrule waits` lists them.
    """
    with result_stream() as result:
        speaks = speaker(by)
        asked = visit(journal, lambda inbox: _withdraw(inbox, wait, speaks))
        if as_json:
            result.write_json({"wait_id": asked.id, "call_id": asked.call_id, "by": speaks})
        else:
            call = f"{one_line(asked.call.name)} ({one_line(asked.call.id)})"
            result.write(f"{call} asked: {one_line(asked.message)}\n")
            result.write(f"withdrawn, by {one_line(speaks)}\n")
    return 0


async def _withdraw(inbox: SqliteInbox, beginning: str, by: str) -> Wait:
    wait = await find_wait(inbox, beginning)
    await inbox.withdraw(wait.id, by=by)
    return wait
