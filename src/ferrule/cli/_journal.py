"""What the commands on a journal share: their options, who speaks, and how a journal says no."""

import getpass
import shlex
import socket
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import anyio
import click

from ferrule.cli._refused import USAGE, Refused
from ferrule.errors import JournalError, RuntimeFault
from ferrule.helpers import one_line
from ferrule.ports import Wait
from ferrule.runtime import SqliteInbox

T = TypeVar("T")

REFUSED = 1
"""Exit code: the command line was understood, and what it asks for cannot be done."""

_SHORTEST = 8
"""Characters that are shown of a question's id, at least; `SqliteInbox` has the whole."""

_LISTED = 5
"""How many questions are named where the beginning of an id could be of several."""


def printable(
    ctx: click.Context,  # noqa: ARG001  # click gives it
    param: click.Parameter,  # noqa: ARG001
    value: str | None,
) -> str | None:
    """
    Return a name as it was typed.

    Raises:
        BadParameter: it is blank, or has characters that do not print.
    """
    if value is None or (value.strip() and value.isprintable()):
        return value
    raise click.BadParameter("is blank or has characters that do not print")


journal = click.option(
    "--journal",
    required=True,
    metavar="FILE",
    help="Where the calls are kept: the file that `ferrule run --journal` made.",
)
by = click.option(
    "--by",
    callback=printable,
    metavar="NAME",
    help="Who says so, as it is kept; by default you, as user@host.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="For programs.")


def speaker(name: str | None) -> str:
    """
    Return who speaks: the name that was given, else the user of this system as `user@host`.

    It is kept with what was said. It is what somebody said of themselves, and proves nothing.
    """
    if name is not None:
        return name
    with suppress(OSError, ImportError, KeyError):  # The last two before Python 3.13.
        return f"{getpass.getuser()}@{socket.gethostname()}"
    raise Refused("this user has no name here; say who speaks: --by NAME")


@contextmanager
def faults() -> Generator[None]:
    """
    Have what a journal refuses end the command with one sentence.

    A file that is no journal of ours, or not there, was named by mistake: exit 2, as for any file
    on the command line. What is refused of an answer or a call, or may work later, is exit 1.
    """
    try:
        yield
    except JournalError as error:
        raise Refused(str(error), REFUSED if error.passing else USAGE) from None
    except RuntimeFault as error:
        raise Refused(str(error), REFUSED) from None


def visit(path: str, function: Callable[[SqliteInbox], Awaitable[T]]) -> T:
    """
    Run `function` on the inbox of a journal, and return what it returns.

    Raises:
        Refused: there is no such journal, or what was said cannot be taken.
    """
    with faults():
        return anyio.run(function, SqliteInbox(path))


# ---- naming a question ---------------------------------------------------------------------------


async def find_wait(inbox: SqliteInbox, beginning: str) -> Wait:
    """
    Return the one question whose id begins so, among all that were ever asked.

    Also among closed ones: what once named a question never comes to name another.

    Raises:
        Refused: there is none, or more than one.
    """
    found = await inbox.wait_ids(beginning)
    if beginning in found or len(found) == 1:
        return await inbox.wait(beginning if beginning in found else found[0])
    if not found:
        raise Refused(f"there is no question {beginning}; `ferrule waits` lists them", REFUSED)
    waiting = {wait.id for wait in await inbox.waits()}
    told = [
        f"{id} ({await _said(inbox, id)}{'' if id in waiting else ', closed'})"
        for id in sorted(found, key=lambda one: one not in waiting)[:_LISTED]
    ]
    more = f", and {len(found) - len(told)} more" if len(found) > len(told) else ""
    raise Refused(
        f"{beginning} begins the id of {len(found)} questions, type more of one: "
        f"{', '.join(told)}{more}",
        REFUSED,
    )


async def _said(inbox: SqliteInbox, wait_id: str) -> str:
    wait = await inbox.wait(wait_id)
    return f"{wait.call.name}: {one_line(wait.message, 60)}"


def shortened(wait_id: str, ids: Sequence[str]) -> str:
    """Return the beginning of an id that no other of `ids` has, a few more than that takes."""
    lengths = range(_SHORTEST, len(wait_id))
    own = (n for n in lengths if sum(id.startswith(wait_id[:n]) for id in ids) == 1)
    return wait_id[: next(own, len(wait_id))]


def typed(*words: str) -> str:
    """Return a command as a person types it in a shell."""
    return shlex.join(["ferrule", *words])
