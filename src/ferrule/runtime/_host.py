"""
What the batches of one runtime share: the journal, the clock of leases, and who is told of changes.

Theory. The journal is read and written in threads, so that no sync of a disk holds the loop. Three
things go on beside the calls: a thread of its own says that this process lives, whatever the loop
is busy with; a task looks whether another process has written; and questions that are past their
time are ended. Everybody who waits for a change of any kind waits for one event, and looks again.
"""

import functools
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from ferrule import Outcome
from ferrule.errors import Fenced, JournalError
from ferrule.runtime._batches import Claim, beat, free
from ferrule.runtime._calls import keep_evidence
from ferrule.runtime._owners import Owner
from ferrule.runtime._store import Store, Transaction
from ferrule.runtime._waits import expire, next_expiry

T = TypeVar("T")

logger = logging.getLogger("ferrule")

_THREADS = 32
"""Pieces of work on the journal that wait at a time; those that wait share a sync."""

_PAUSE = 0.05
"""Seconds between two tries to write, at first; twice as many each time, up to a second."""


class Host:
    """
    The journal of one runtime while it is entered.

    Attributes:
        store: The journal.
        owner: This runtime, as the journal knows it.
        claims: The batches that are driven here, by id.
        running: The calls that are at work here, with their fences.
        closing: Whether no further leg begins.
    """

    def __init__(self, path: Path, *, lease: float, poll: float, patience: float) -> None:
        self._path = path
        self._poll = poll
        self._patience = patience
        self.owner = Owner(lease)
        self.claims: dict[str, Claim] = {}
        self.running: dict[str, int] = {}
        self.closing = False
        self._heard = False
        self._left: dict[str, tuple[int, Callable[[], bool]]] = {}

    async def open(self, on_change: Callable[[], Awaitable[None]]) -> None:
        """
        Open the journal, and begin to say that this process lives.

        Args:
            on_change: Awaited when another process has written, or a person has answered.
        """
        self._on_change = on_change
        self._limiter = anyio.CapacityLimiter(_THREADS)
        self._news = anyio.Event()
        self.store = await anyio.to_thread.run_sync(
            functools.partial(Store, self._path, create=True, patience=self._patience)
        )
        self._done = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="ferrule-leases", daemon=True)
        self._heart.start()

    async def close(self) -> None:
        """End what goes on beside the calls, and close the journal."""
        self._done.set()
        await anyio.to_thread.run_sync(self._heart.join)
        self.store.close()

    # ---- reading and writing -------------------------------------------------------------------

    async def read(self, function: Callable[[Transaction], T]) -> T:
        """Do as `Store.read` does, in a thread."""
        return await anyio.to_thread.run_sync(self.store.read, function, limiter=self._limiter)

    async def write(self, function: Callable[[Transaction], T]) -> T:
        """Do as `Store.write` does, in a thread."""
        return await anyio.to_thread.run_sync(self.store.write, function, limiter=self._limiter)

    async def insist(self, function: Callable[[Transaction], T]) -> T:
        """
        Write, and try again as long as the journal is away: what is to be kept is not dropped.

        Raises:
            JournalError: it cannot be written; or it was away for as long as this process may wait
                when it ends.
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
        """Have everybody look again who waits for a change."""
        news, self._news = self._news, anyio.Event()
        news.set()

    def hear(self) -> None:
        """Have everybody look again, as a person has said something."""
        self._heard = True
        self.tell()

    @property
    def news(self) -> anyio.Event:
        """What is set at the next change; taken before one looks, awaited after."""
        return self._news

    async def watch(self) -> None:
        """Look for what other processes write, and for questions past their time; for ever."""
        seen = None
        quiet = 0.0
        while True:
            try:
                version = await anyio.to_thread.run_sync(self.store.version, limiter=self._limiter)
                await self._expire()
            except JournalError:
                version = seen  # Who writes will say so.
            await self._free()
            quiet += self._poll
            if version != seen or self._heard or quiet > self.owner.seconds / 2:
                seen, quiet, self._heard = version, 0.0, False
                self.tell()
                await self._on_change()
            await anyio.sleep(self._poll)

    async def _expire(self) -> None:
        if await self.read(next_expiry) == 0.0:
            await self.write(expire)
            self.tell()

    # ---- what goes on after a call was reported --------------------------------------------------

    def left(self, call_id: str, fence: int, is_at_work: Callable[[], bool]) -> None:
        """Hold what a call uses that is at work still, until it has ended."""
        self._left[call_id] = fence, is_at_work

    async def _free(self) -> None:
        for call_id, (fence, is_at_work) in list(self._left.items()):
            if not is_at_work():
                await self.insist(functools.partial(free, call_id=call_id, fence=fence))
                self._left.pop(call_id, None)
                self.tell()

    def file(self, call_id: str, fence: int, leg: int, outcome: Outcome) -> None:
        """Keep what came too late; from any thread, which it does not hold for long."""
        work = functools.partial(
            keep_evidence, call_id=call_id, fence=fence, leg=leg, outcome=outcome
        )
        threading.Thread(target=self._file, args=(work,), name="ferrule-evidence").start()

    def _file(self, work: Callable[[Transaction], None]) -> None:
        try:
            self.store.write(work)
        except (JournalError, Fenced) as error:
            logger.warning("evidence could not be kept: %s", error)

    # ---- leases --------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Say that this process lives, until it ends; in a thread of its own."""
        while not self._done.wait(self.owner.seconds / 4):
            claims = list(self.claims.values())
            at_work = list(self.running.items())
            at_work += [(call, fence) for call, (fence, _) in list(self._left.items())]
            try:
                self.store.write(
                    lambda tx, claims=claims, at_work=at_work: beat(tx, self.owner, claims, at_work)
                )
                self.owner.beat()
            except JournalError as error:
                logger.warning("the leases of this process could not be kept: %s", error)
