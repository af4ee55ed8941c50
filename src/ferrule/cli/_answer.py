"""`ferrule answer`: what a person says to a question, kept before it is acknowledged."""

import sys

import click
import msgspec

from ferrule.cli._answers import content_of, shown, takes
from ferrule.cli._journal import REFUSED, as_json, by, find_wait, journal, printable, speaker, visit
from ferrule.cli._refused import Refused
from ferrule.cli._streams import ResultStream, result_stream
from ferrule.helpers import one_line
from ferrule.ports import Receipt, Wait
from ferrule.runtime import SqliteInbox


class Answer(msgspec.Struct, frozen=True):
    """What the command line says."""

    wait: str
    text: str | None
    by: str
    id: str | None


@click.command("answer")
@click.argument("wait", metavar="WAIT", callback=printable)
@click.argument("answer", metavar="[yes|no|JSON|-]", required=False)
@journal
@by
@click.option(
    "--answer-id",
    callback=printable,
    metavar="ID",
    help="Names the answer: the same again has no effect, and another by this name is refused.",
)
@as_json
def command(
    *,
    wait: str,
    answer: str | None,
    journal: str,
    by: str | None,
    answer_id: str | None,
    as_json: bool,
) -> int:
    """
    Answer a question that a call waits with; `ferrule waits` lists them.

    WAIT is the question's id, or a beginning of it that no other question of the journal has.

    The answer is JSON; `-` reads it from standard input. A question for a yes or no takes `yes` and
    `no`. A question for a text takes a word that is no JSON as that text; a text that would be JSON
    stands in quotes, as in '"5"'. What begins with a hyphen comes after `--`.

    The first answer stands: who comes second is told who answered, and when. The call goes on at
    once where a process runs its turn, else when the turn is run again.
    """
    with result_stream() as result:
        text = _read() if answer == "-" else answer
        said = Answer(wait, text, speaker(by), answer_id)
        asked, content, receipt = visit(journal, lambda inbox: _answer(inbox, said))
        if as_json:
            told = {"call_id": asked.call_id, "answer": content}
            result.write_json(msgspec.to_builtins(receipt) | told)
        else:
            _write(asked, content, receipt, result)
    return 0


def _read() -> str:
    """Return what standard input has, without the line feed that ends its last line."""
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise Refused("the answer on standard input is not UTF-8", REFUSED) from None


async def _answer(inbox: SqliteInbox, said: Answer) -> tuple[Wait, object, Receipt]:
    wait = await find_wait(inbox, said.wait)
    if said.text is None:
        raise Refused(f"say what to answer, {takes(wait)}: {wait.message}")
    content = content_of(said.text, wait)
    return wait, content, await inbox.answer(wait.id, content, by=said.by, answer_id=said.id)


def _write(wait: Wait, content: object, receipt: Receipt, result: ResultStream) -> None:
    call = f"{one_line(wait.call.name)} ({one_line(wait.call.id)})"
    before = "" if receipt.first else f" had been said at {receipt.at:%Y-%m-%d %H:%M:%S} UTC"
    result.write(f"{call} asked: {one_line(wait.message)}\n")
    result.write(f"{shown(content)}, by {one_line(receipt.by)}{before}\n")
