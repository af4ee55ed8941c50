"""
Who has a call: who is alive, and who is taken for lost.

Theory. A process that drives calls says every few seconds that it lives, and of which calls: a
lease on each, by the clock that all processes of a machine share. A lease that has run out means
that its owner is lost, as far as anybody can tell: a process that was stopped and wakes later finds
its calls given to somebody else, and itself fenced. Two things are cheaper to get wrong than that:

- Who was away itself (stopped, or its disk was) must not take everybody else for lost on its
  return: they could not be heard. It waits one full lease first.
- A process that certainly is not there needs no lease to run out. On Linux the same machine since
  the same boot, in the same space of process ids, says for certain whether a process is.
"""

import os
import time
import uuid
from contextlib import suppress
from pathlib import Path

from ferrule.runtime._store import Transaction

_CENTURY = 3_200_000_000.0
"""Seconds; no lease is longer."""


class Owner:
    """
    One runtime, as the journal knows it.

    Attributes:
        id: Its name; no other runtime, now or ever, has it.
        seconds: How long what it has is its own after it last said so.
    """

    def __init__(self, seconds: float) -> None:
        self.id = uuid.uuid4().hex
        self.seconds = seconds
        self._heard: float | None = None
        self._patient_until = 0.0
        self._machine = machine()

    def lease(self) -> float:
        """Return until when what is said now holds."""
        return now() + self.seconds

    def introduce(self, tx: Transaction) -> None:
        """Keep what others need to know whether this process is there."""
        tx.run(
            "INSERT OR IGNORE INTO owners (id, pid, began, machine) VALUES (?, ?, ?, ?)",
            *(self.id, os.getpid(), began(os.getpid()), self._machine),
        )

    def beat(self) -> None:
        """Note that the journal could be written just now."""
        moment = now()
        self._notice(moment)
        self._heard = moment

    def _notice(self, moment: float) -> None:
        """Be patient after a time in which this process was away, and heard of nobody."""
        if self._heard is not None and moment - self._heard > self.seconds:
            self._patient_until = moment + self.seconds

    def has_lost(self, tx: Transaction, owner: str | None, lease: float | None) -> bool:
        """Say whether whoever has something is lost to it."""
        if owner is None or lease is None:
            return True
        until: float = lease
        if owner == self.id:
            return False
        if self._is_gone(tx, owner):
            return True
        moment = now()
        self._notice(moment)  # Whoever asks may be the first to know, before the next beat.
        holds = moment <= until < moment + _CENTURY
        return moment >= self._patient_until and not holds

    def _is_gone(self, tx: Transaction, owner: str) -> bool:
        """Say whether a process is certainly not there any more."""
        row = tx.row("SELECT pid, began, machine FROM owners WHERE id = ?", owner)
        if row is None or not row["machine"] or not self._machine:
            return False
        theirs, ours = row["machine"].split(), self._machine.split()
        if theirs[0] != ours[0]:
            return True  # The machine has been started anew since.
        return theirs == ours and began(row["pid"]) != str(row["began"])


def now() -> float:
    """Return the time by which leases run: the same for every process of a machine."""
    return time.monotonic()


def machine() -> str:
    """Return what tells this boot and space of process ids from others; empty if nothing does."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def began(pid: int) -> str:
    """Return when a process began, as its system says; empty if it is not there, or has ended."""
    with suppress(OSError, IndexError):
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        fields = line.rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    return ""
