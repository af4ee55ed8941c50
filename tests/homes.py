"""
Homes of durable calls, as the suites of tests/test_durable*.py use them.

Those suites say what any home must do. A home makes runtimes and inboxes, reads a call as it is
kept, and lets a runtime crash: from then on nothing that it does is kept, and it counts as lost.
"""

import contextlib
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import anyio

from ferrule import Ask, Context, Executor, Outcome, Registry, Result, Source, Tool, ToolCall
from ferrule.errors import JournalError
from ferrule.ports import DurableBatch, DurableCall, Inbox, Moved, Runtime, Wait
from ferrule.runtime import Reaper, SqliteInbox, SqliteRuntime
from ferrule.runtime._store import Work

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds after which whatever hangs becomes a failure; nothing waits for them otherwise."""

LEASE = 10 * PATIENCE
"""Seconds of a lease: whoever waits for one to run out has waited too long."""

Tools = Executor | Registry | Iterable[Tool | Source]


class Home(Protocol):
    """Where durable calls live."""

    def runtime(
        self, tools: Tools, *, reapers: dict[str, Reaper] | None = None
    ) -> AbstractAsyncContextManager[Runtime]:
        """Return a runtime to enter; each is a process of its own, as far as the home knows."""
        ...

    def made(self, tools: Tools) -> Runtime:
        """Return a runtime that nobody has entered."""
        ...

    def inbox(self) -> Inbox:
        """Return an inbox that has no tools."""
        ...

    async def call(self, call_id: str) -> DurableCall:
        """Return a call as it is kept."""
        ...

    async def crash(self, runtime: Runtime) -> None:
        """Have nothing kept any more of what `runtime` does, and others know that it is lost."""
        ...


class _Gone:
    """What a crashed runtime has for a journal: nothing can be read or written."""

    def __init__(self, close: Callable[[], None]) -> None:
        self.close = close

    def do(self, works: Sequence[Work[object]]) -> None:
        for work in works:
            work.error = JournalError("the process of this runtime is gone")

    def write(self, _: Callable[..., object]) -> object:
        raise JournalError("the process of this runtime is gone")

    read = write

    def version(self) -> int:
        raise JournalError("the process of this runtime is gone")


class SqliteHome:
    """Keeps calls in a file of SQLite."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._crashed: list[SqliteRuntime] = []

    @asynccontextmanager
    async def runtime(
        self, tools: Tools, *, reapers: dict[str, Reaper] | None = None
    ) -> AsyncGenerator[SqliteRuntime]:
        """Enter a runtime; one that crashed may say so when it is left."""
        runtime = SqliteRuntime(tools, self.path, reapers=reapers or {}, lease=LEASE, poll=0.01)
        try:
            async with runtime:
                yield runtime
        except JournalError:
            if runtime not in self._crashed:
                raise

    def made(self, tools: Tools) -> SqliteRuntime:
        """Return a runtime that nobody has entered."""
        return SqliteRuntime(tools, self.path)

    def inbox(self) -> SqliteInbox:
        """Return an inbox that has no tools."""
        return SqliteInbox(self.path)

    async def call(self, call_id: str) -> DurableCall:
        """Return a call as it is kept."""
        return await SqliteInbox(self.path).call(call_id)

    async def crash(self, runtime: Runtime) -> None:
        """Have nothing kept any more of what `runtime` does, and its leases lapse."""
        assert isinstance(runtime, SqliteRuntime)
        host = runtime._host
        self._crashed.append(runtime)
        host._store = _Gone(host._store.close)  # type: ignore[assignment]
        with contextlib.suppress(JournalError):
            await host.read(lambda _: None)  # What its thread had begun is done.
        self.run("UPDATE batches SET lease = 0 WHERE owner = ?", host.owner.id)
        self.run("UPDATE calls SET lease = 0 WHERE owner = ?", host.owner.id)

    def run(self, sql: str, *values: object) -> None:
        """Change the file behind everybody's back."""
        with contextlib.closing(sqlite3.connect(self.path, timeout=PATIENCE)) as connection:
            connection.execute(sql, values)
            connection.commit()

    def look(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """Read the file."""
        with contextlib.closing(sqlite3.connect(self.path, timeout=PATIENCE)) as connection:
            return connection.execute(sql, values).fetchall()


class Doors:
    """Async tools stand before it until a test opens it; it notes who began, and how many."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.at_once = 0
        self.most = 0
        self._changed = anyio.Event()
        self._open: dict[str, anyio.Event] = {}

    async def pass_through(self, name: str) -> str:
        """Wait until `name` may pass."""
        self.begun.append(name)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        self._tell()
        try:
            await self._open.setdefault(name, anyio.Event()).wait()
        finally:
            self.at_once -= 1
        self.ended.append(name)
        return f"{name} done"

    def open(self, *names: str) -> None:
        """Let these pass, now or when they come."""
        for name in names:
            self._open.setdefault(name, anyio.Event()).set()

    async def until(self, *names: str) -> None:
        """Wait until all of these have begun."""
        with anyio.fail_after(PATIENCE):
            while not set(names) <= set(self.begun):
                await self._changed.wait()

    async def until_count(self, count: int) -> None:
        """Wait until so many have begun."""
        with anyio.fail_after(PATIENCE):
            while len(self.begun) < count:
                await self._changed.wait()

    def _tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


def until_stopped(
    text: str, begun: anyio.Event | None = None
) -> Callable[[dict[str, object], Context], Awaitable[object]]:
    """Return what a tool does that waits until it is stopped, and has a result then."""

    async def function(_: dict[str, object], __: Context) -> object:
        if begun is not None:
            begun.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            pass
        return Result.of(text)

    return function


# ---- waiting, so that what hangs fails -------------------------------------------------------


async def soon(awaitable: Awaitable[T]) -> T:
    """Return what is awaited, or fail."""
    with anyio.fail_after(PATIENCE):
        return await awaitable


async def settled(batch: DurableBatch) -> list[Outcome]:
    """Return how each call ended."""
    return await soon(batch.settled())


async def at_rest(batch: DurableBatch) -> list[Outcome]:
    """Return how each call ended or what it asks."""
    return await soon(batch.at_rest())


async def seen(batch: DurableBatch, step: str, call: str | None = None) -> Moved:
    """Wait until the history of a batch has a step, of one call or of any."""
    with anyio.fail_after(PATIENCE):
        async for moved in batch.events:
            if moved.step == step and call in {None, moved.call_id}:
                return moved
    raise AssertionError(f"the batch ended without {step}")


async def steps_of(inbox: Inbox, call_id: str) -> list[str]:
    """Return the steps of a call, in order."""
    return [moved.step for moved in await inbox.history(call_id)]


async def only_wait(inbox: Inbox) -> Wait:
    """Return the one question that waits."""
    (wait,) = await inbox.waits()
    return wait


def call(name: str, call_id: str, /, **arguments: object) -> ToolCall:
    """Return a call of a tool."""
    return ToolCall.of(name, arguments, id=call_id)


def ask(message: str) -> Ask:
    """Return what a policy says that wants a person to be asked."""
    return Ask(message)
