"""`ferrule serve`: tools for clients of MCP, over standard input and output or HTTP."""

import asyncio
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

from ferrule import Executor, InvalidValue, Registry
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
    tasks: float | None


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
@click.option(
    "--tasks",
    type=float,
    metavar="SECONDS",
    help="Experimental: answer calls with a task that take longer, where clients take tasks.",
)
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
    tasks: float | None,
) -> int:
    """
    Serve tools to clients of MCP, in both eras of the protocol.

    TOOLS is a file with tools, `path.py` or `path.py:name`, or a module, `module:name`; several
    are served as one. So are other people's servers: a command in quotes, a URL, an `mcp.json`.
    What tools print goes to standard error.

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
        tasks=tasks,
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
    """
    Serve until nobody is left to serve; return the code of a signal that came first.

    A signal ends what is served, and never the closing: clients send SIGTERM soon after they closed
    standard input, and servers behind this one have to be ended all the same.
    """
    leaving = _Leaving()
    with Interruption(leaving.stop, leaving.leave) as interruption:
        leaving.interruption = interruption
        async with AsyncExitStack() as stack:
            with leaving.doing:
                for value in values:
                    leaving.parts.append(await stack.enter_async_context(opened(*value)))
                await _served(leaving.parts, asked, result)
            leaving.is_closing.set()
    return interruption.exit_code


async def _served(parts: Sequence[Registry], asked: Asked, result: ResultStream) -> None:
    try:
        server = Server(
            joined(parts, asked.rules),
            runtime=None if asked.journal is None else functools.partial(_kept, asked.journal),
            lock=asked.lock,
            name=asked.name,
            tasks=asked.tasks,
        )
        if asked.address is None:
            with result.opened() as stdout:
                async with server:
                    await server.stdio(stdout=stdout)
        else:
            host, port = asked.address
            await server.http(
                host, port, hosts=asked.hosts, origins=asked.origins, started=_started
            )
    except OSError as error:
        raise Refused(f"cannot serve: {error.strerror or error}") from None
    except (InvalidValue, JournalError) as error:
        raise Refused(str(error)) from None


class _Leaving:
    """
    What a signal does: what is served ends, and then what was opened closes.

    A thread may read standard input, and nothing but its end lets go of it. So after a while what
    was opened is closed in spite of it, and the process ends.
    """

    interruption: Interruption

    def __init__(self) -> None:
        self.doing = anyio.CancelScope()
        self.parts: list[Registry] = []
        self.is_closing = threading.Event()
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """End what is being served; called in the loop."""
        self.doing.cancel()
        impatient = threading.Timer(_PATIENCE, self._leave_in_spite)
        impatient.daemon = True
        impatient.start()

    def leave(self) -> None:
        """Wait for nothing."""

    def _leave_in_spite(self) -> None:
        if self.is_closing.is_set():
            return
        with suppress(RuntimeError):  # The loop may have ended this very moment.
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        os._exit(self.interruption.exit_code)

    async def _close(self) -> None:
        for part in self.parts:
            with suppress(ExceptionGroup):  # Nobody is left who would be told.
                await part.aclose()


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
    dropping = _Dropping(lines)
    dropping.setFormatter(logging.Formatter())  # The message alone: the writer adds the rest.
    logging.basicConfig(level=logging.WARNING, handlers=[dropping])
    logging.handlers.QueueListener(lines, writer).start()
