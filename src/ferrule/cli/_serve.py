"""`ferrule serve`: tools for clients of MCP, over standard input and output or HTTP."""

import functools
import logging
import logging.handlers
import os
import queue
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import anyio
import click
import msgspec

from ferrule import Executor, InvalidValue
from ferrule.cli._joined import joined
from ferrule.cli._loading import load, opened
from ferrule.cli._refused import Refused
from ferrule.cli._signals import Interruption
from ferrule.cli._streams import ResultStream, result_stream
from ferrule.errors import JournalError
from ferrule.helpers import one_line, reap
from ferrule.mcp import Server
from ferrule.policies import InvalidPolicy, Rules
from ferrule.runtime import SqliteRuntime

_LINES = 1000
"""Lines of log that wait while nobody reads standard error; what comes then is lost."""

_PATIENCE = 2.0
"""Seconds after Ctrl-C for which the end of standard input is waited for."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    tools: tuple[str, ...]
    address: tuple[str, int] | None
    rules: Rules | None
    journal: str | None
    lock: str | None
    hosts: tuple[str, ...]
    origins: tuple[str, ...]
    name: str


@click.command("serve")
@click.argument("tools", metavar="TOOLS...", nargs=-1, required=True)
@click.option("--stdio", "by_pipe", is_flag=True, help="Serve one client by pipes; the default.")
@click.option("--http", "address", metavar="HOST:PORT", help="Serve many clients over HTTP.")
@click.option("--policy", metavar="FILE", help="Ask these rules before each call.")
@click.option("--journal", metavar="FILE", help="Keep the calls, so that they outlive the process.")
@click.option(
    "--lock", metavar="FILE", help="Offer what this lock has, as `ferrule lock` wrote it."
)
@click.option("--host", "hosts", metavar="NAME", multiple=True, help="One more name of the server.")
@click.option("--origin", "origins", metavar="URL", multiple=True, help="A page that may call it.")
@click.option("--name", default="ferrule", show_default=True, help="What clients call the server.")
def command(  # noqa: PLR0913  # one for each option
    tools: tuple[str, ...],
    *,
    by_pipe: bool,
    address: str | None,
    policy: str | None,
    journal: str | None,
    lock: str | None,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    name: str,
) -> int:
    """
    Serve tools to clients of MCP, in both eras of the protocol.

    TOOLS is a file with tools, `path.py` or `path.py:name`, or a module, `module:name`; several
    are served as one. What tools print goes to standard error.

    Over HTTP the server answers at /mcp, to its own names alone: those of this machine, HOST, and
    what --host says. With --journal, a call that waits for an answer waits there too: see `ferrule
    waits` and `ferrule answer`. With --lock, a tool that changed since is listed as it was, and its
    calls are refused; one that nobody has locked is not there: see `ferrule lock`.
    """
    if by_pipe and address is not None:
        raise Refused("a server is reached by pipes or over HTTP: give --stdio or --http, not both")
    asked = Asked(
        tools=tools,
        address=None if address is None else _address(address),
        rules=None if policy is None else _rules(policy),
        journal=journal,
        lock=lock,
        hosts=hosts,
        origins=origins,
        name=name,
    )
    _log_without_waiting()
    with result_stream() as result:
        values = [(load(target), target) for target in tools]
        return anyio.run(_serve, values, asked, result)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > _HIGHEST:
        raise Refused(f"`{one_line(text, 100)}` is no HOST:PORT, {_LIKE}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


_HIGHEST = 65535
_LIKE = "as in 127.0.0.1:8000 or [::1]:0"


def _rules(file: str) -> Rules:
    try:
        return Rules.read(file)
    except InvalidPolicy as error:
        problems = "; ".join(error.problems)
        raise Refused(f"{problems}; `ferrule policy check` says more") from None


# ---- serving -------------------------------------------------------------------------------------


async def _serve(values: Sequence[tuple[object, str]], asked: Asked, result: ResultStream) -> int:
    async with AsyncExitStack() as stack:
        parts = [await stack.enter_async_context(opened(*value)) for value in values]
        try:
            server = Server(
                joined(parts, asked.rules),
                runtime=None if asked.journal is None else functools.partial(_kept, asked.journal),
                lock=asked.lock,
                name=asked.name,
            )
            if asked.address is None:
                return await _by_pipe(server, result)
            host, port = asked.address
            await server.http(
                host, port, hosts=asked.hosts, origins=asked.origins, started=_started
            )
        except OSError as error:
            raise Refused(f"cannot serve: {error.strerror or error}") from None
        except (InvalidValue, JournalError) as error:
            raise Refused(str(error)) from None
    return 0


async def _by_pipe(server: Server, result: ResultStream) -> int:
    """Serve until the client closes standard input; return the code of a signal that came first."""
    serving = anyio.CancelScope()

    def leave() -> None:
        os._exit(_INTERRUPTED)

    def stop() -> None:
        serving.cancel()
        # A thread reads standard input, and nothing but its end lets go of it.
        impatient = threading.Timer(_PATIENCE, leave)
        impatient.daemon = True
        impatient.start()

    with Interruption(stop, leave) as interruption, result.opened() as stdout, serving:
        async with server:
            await server.stdio(stdout=stdout)
    return interruption.exit_code


_INTERRUPTED = 130


@asynccontextmanager
async def _kept(path: str, executor: Executor) -> AsyncGenerator[SqliteRuntime]:
    """Keep calls in a journal, and go on with those that the death of a process left there."""
    async with SqliteRuntime(executor, path, reapers={"shell:process-group": reap}) as runtime:
        await runtime.recover()
        yield runtime


def _started(address: str) -> None:
    click.echo(f"ferrule: serving at {address}", err=True)


# ---- what is logged ------------------------------------------------------------------------------


class _Dropping(logging.handlers.QueueHandler):
    """Hands lines to whoever writes them; where they are too many, they are lost."""

    def enqueue(self, record: logging.LogRecord) -> None:
        """Wait for nobody."""
        with suppress(queue.Full):
            self.queue.put_nowait(record)


def _log_without_waiting() -> None:
    """Have what is logged written by a thread: a client may never read our standard error."""
    lines: queue.Queue[logging.LogRecord] = queue.Queue(_LINES)
    writer = logging.StreamHandler()
    writer.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[_Dropping(lines)])
    logging.handlers.QueueListener(lines, writer).start()
