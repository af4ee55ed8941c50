"""
What the batches of one runtime share: the journal, its thread, and who is told of changes.

Theory. One thread has the journal, so that no sync of a disk holds the loop and a busy loop loses
no lease. It does whatever has gathered in one transaction. Between, it says that this process
lives, ends questions that are past their time, and looks whether another process has written. What
it does for the loop it hands back to the loop: a piece of work is told there that it is done, also
when nobody waits for it any more, so that what was kept is always known.
"""

import functools
import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar, cast

import anyio
import anyio.lowlevel
import anyio.to_thread

from ferrule import Outcome
from ferrule.errors import FerruleError, JournalError
from ferrule.runtime._batches import Claim, beat, free
from ferrule.runtime._calls import keep_evidence
from ferrule.runtime._owners import Owner
from ferrule.runtime._store import Store, Transaction, Work
from ferrule.runtime._waits import expire, is_due

T = TypeVar("T")

logger = logging.getLogger("ferrule")

_PAUSE = 0.05
"""Seconds between two tries to write, at first; twice as many each time, up to a second."""


class _Loop(Protocol):
    """A loop of asyncio or trio, as far as another thread may speak to it."""

    def call_soon_threadsafe(self, callback: Callable[[], object], /) -> object: ...
    def run_sync_soon(self, callback: Callable[[], object], /) -> object: ...


class Host:
    """
    The journal of one runtime while it is entered.

    Attributes:
        owner: This runtime, as the journal knows it.
        claims: The batches that are driven here, by id.
        running: The calls that are at work here, with their fences.
        closing: Whether no further leg begins.
        interrupt: What a tool raised that ends the program, and not its call alone.
    """

    def __init__(self, path: Path, *, lease: float, poll: float, patience: float) -> None:
        self._path = path
        self._poll = poll
        self._patience = patience
        self.owner = Owner(lease)
        self.claims: dict[str, Claim] = {}
        self.running: dict[str, int] = {}
        self.closing = False
        self.interrupt: KeyboardInterrupt | None = None
        self._is_served = False
        self._loop: _Loop | None = None
        self._left: dict[str, tuple[int, Callable[[], bool]]] = {}
        self._work: queue.SimpleQueue[Work[object] | None] = queue.SimpleQueue()

    async def open(self) -> None:
        """
        Open the journal.

        Raises:
            JournalError: it cannot be opened.
        """
        self._loop = cast("_Loop", anyio.lowlevel.current_token().native_token)
        self._news: anyio.Event | None = None
        self._growth: anyio.Event | None = None
        self._changes = anyio.Event()
        self._store = await anyio.to_thread.run_sync(
            functools.partial(Store, self._path, create=True, patience=self._patience)
        )
        await anyio.to_thread.run_sync(self._store.write, self.owner.introduce)
        self._is_served = True
        self._thread = threading.Thread(target=self._serve, name="ferrule-journal", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Do what work is left, and close the journal."""
        self._work.put(None)
        await anyio.to_thread.run_sync(self._thread.join)

    # ---- reading and writing -------------------------------------------------------------------

    async def read(self, function: Callable[[Transaction], T]) -> T:
        """
        Run `function` on one state of the journal, and return what it returns.

        Raises:
            JournalError: it cannot be read.
            FerruleError: what `function` raised.
        """
        return await self._done(function, writes=False)

    async def write(self, function: Callable[[Transaction], T]) -> T:
        """
        Run `function` in a transaction; return what it returns once that is on disk.

        It is not taken back when the caller is cancelled meanwhile.

        Raises:
            JournalError: it cannot be written; nothing was.
            FerruleError: what `function` raised; nothing of it was written.
        """
        return await self._done(function, writes=True)

    async def _done(self, function: Callable[[Transaction], T], *, writes: bool) -> T:
        done = anyio.Event()
        work = Work(function, writes=writes, then=lambda _: done.set())
        self.post(work)
        with anyio.CancelScope(shield=True):
            await done.wait()
        return work.result

    def post(self, work: Work[T]) -> None:
        """Have a piece of work done; from any thread, without waiting for it."""
        if self._loop is None:
            raise JournalError(f"{self._path.name} is not open here; use `async with` the runtime")
        self._work.put(cast("Work[object]", work))
        if not self._is_served:
            self._refuse()

    async def insist(self, function: Callable[[Transaction], T]) -> T:
        """
        Write, and try again as long as the journal is away: what is to be kept is not dropped.

        Raises:
            JournalError: it cannot be written; or it was away for as long as this process may wait
                when it ends.
            FerruleError: what `function` raised.
        """
        pause = _PAUSE
        while True:
            try:
                return await self.write(function)
            except JournalError as error:
                if not error.passing or (self.closing and pause > 1):
                    raise
                logger.warning("the journal is away, and is tried again: %s", error)
            await anyio.sleep(min(pause, 1.0))
            pause *= 2

    # ---- changes -------------------------------------------------------------------------------

    def tell(self) -> None:
        """Have everybody look again who waits for a change of any kind."""
        news, self._news = self._news, None
        if news is not None:
            news.set()
        self._grow()

    def _grow(self) -> None:
        growth, self._growth = self._growth, None
        if growth is not None:
            growth.set()

    def hear(self) -> None:
        """Have the journal looked at: it was written from elsewhere, or a person spoke."""
        self._changes.set()
        self.tell()

    @property
    def news(self) -> anyio.Event:
        """What is set at the next change; taken before one looks, awaited after."""
        if self._news is None:
            self._news = anyio.Event()
        return self._news

    @property
    def growth(self) -> anyio.Event:
        """What is set when the history may have a new line; taken before one looks."""
        if self._growth is None:
            self._growth = anyio.Event()
        return self._growth

    async def changed(self) -> None:
        """Wait until the journal is to be looked at."""
        await self._changes.wait()
        self._changes = anyio.Event()

    # ---- what goes on after a call was reported --------------------------------------------------

    def left(self, call_id: str, fence: int, is_at_work: Callable[[], bool]) -> None:
        """Hold what a call uses that is at work still, until it has ended."""
        self._left[call_id] = fence, is_at_work

    def file(self, call_id: str, fence: int, leg: int, outcome: Outcome) -> None:
        """Keep what came too late; from any thread, without waiting for it."""
        work = functools.partial(
            keep_evidence, call_id=call_id, fence=fence, leg=leg, outcome=outcome
        )
        self.post(Work(work, writes=True, then=_note_evidence))

    # ---- the thread ----------------------------------------------------------------------------

    def _serve(self) -> None:
        """Do what is given, and what is due, until the end is said."""
        try:
            self._serve_all()
        finally:
            self._is_served = False
            self._store.close()
            self._refuse()

    def _refuse(self) -> None:
        """Tell whoever still wants something that it is not done."""
        works = self._gather(0.0)[0]
        for work in works:
            work.error = JournalError(f"{self._path.name} was closed here")
        if works:
            self._call(functools.partial(self._answer, works))

    def _serve_all(self) -> None:
        beat_at = look_at = time.monotonic()
        seen: int | None = None
        while True:
            works, is_last = self._gather(min(beat_at, look_at) - time.monotonic())
            if works:
                try:
                    self._store.do(works)
                finally:
                    self._call(functools.partial(self._answer, works))
            if is_last:
                break
            now = time.monotonic()
            if now >= beat_at:
                beat_at = now + self.owner.seconds / 4
                self._beat()
            if now >= look_at:
                look_at = now + self._poll
                seen = self._look(seen)

    def _gather(self, patience: float) -> tuple[list[Work[object]], bool]:
        """Return the work that has gathered, and whether it is the last."""
        works: list[Work[object]] = []
        with suppress(queue.Empty):
            work = self._work.get(timeout=max(0.0, patience))
            while work is not None:
                works.append(work)
                work = self._work.get_nowait()
            return works, True
        return works, False

    def _beat(self) -> None:
        """Say that this process lives, and which of its calls are at work."""
        claims = list(self.claims.values())
        at_work = list(self.running.items())
        at_work += [(call, fence) for call, (fence, _) in list(self._left.items())]
        try:
            # Also with nothing to say: who cannot write has not heard of others either.
            self._store.write(
                functools.partial(beat, owner=self.owner, claims=claims, running=at_work)
            )
            self.owner.beat()
        except JournalError as error:
            logger.warning("the leases of this process could not be kept: %s", error)

    def _look(self, seen: int | None) -> int | None:
        """Look what is due, and whether somebody else has written; say so, if it is so."""
        try:
            is_new = self._store.read(is_due) and bool(self._store.write(expire))
            for call_id, (fence, is_at_work) in list(self._left.items()):
                if not is_at_work():
                    self._store.write(functools.partial(free, call_id=call_id, fence=fence))
                    self._left.pop(call_id, None)
                    is_new = True
            version = self._store.version()
        except JournalError:
            return seen  # Who writes will be told.
        if is_new or version != seen:
            self._call(self.hear)
        return version

    def _answer(self, works: list[Work[object]]) -> None:
        """Say in the loop what became of work."""
        for work in works:
            if work.then is not None:
                work.then(work)
        if any(work.writes for work in works):
            self._grow()

    def _call(self, callback: Callable[[], object]) -> None:
        """Have the loop call something soon, unless it has ended."""
        loop = cast("_Loop", self._loop)
        with suppress(RuntimeError):
            if hasattr(loop, "call_soon_threadsafe"):
                loop.call_soon_threadsafe(callback)
            else:
                loop.run_sync_soon(callback)


def _note_evidence(work: Work[None]) -> None:
    if isinstance(work.error, FerruleError):
        logger.warning("evidence could not be kept: %s", work.error)
