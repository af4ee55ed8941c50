"""
Process groups that outlive who started them: told apart for certain, and ended.

Theory. A process that is killed leaves its commands behind: their group goes on, and is nobody's
child any more. What is known of it is what was put on record: the number of the group, which is
the process id of its leader. Numbers are given anew, so a number alone may be somebody else's by
now. Nothing is ended that may be:

- The record says when the leader began, and on which boot of the machine and in which space of
  process ids it did. A process of that number which began at another time is a stranger. Then the
  group has ended as well, as no process is given the number of a group that is there.
- If there is no leader, nobody can say whose group it is, if there is one: it is left alone, and
  that is an error which a person reads.
- A group that was ours a moment ago still is: it takes thousands of new processes until a number
  comes again. So once it is known, it is looked for by its number.

Only Linux says all this. Elsewhere nothing is ended.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import anyio
import anyio.to_thread
import msgspec

from ferrule import Failure, InvalidValue, Record

NAMESPACE: Final = "shell:process-group"
"""The record of a process group."""

_PAUSE: Final = 0.02
"""Seconds between two looks at a group."""

_LAST: Final = 10.0
"""Seconds that a group may take to end after SIGKILL, which nothing can refuse."""


class _Group(msgspec.Struct, frozen=True):
    """A process group as it is on record."""

    pgid: Annotated[int, msgspec.Meta(gt=1)]
    began: str = ""
    machine: str = ""


def told(pid: int) -> dict[str, str]:
    """Return what tells a process from one that has its number later; empty texts if nothing."""
    fields = _stat(pid)
    return {"began": fields[_BEGAN] if fields else "", "machine": _machine()}


async def reap(record: Record, *, grace: float = 2.0) -> None:
    """
    End the process group that a record of `run_command` names; returns when it is gone.

    For what a killed process left behind: `SqliteRuntime(…, reapers={"shell:process-group": reap})`
    calls it before it decides about the call. A group that has ended is not missed, and a process
    that has its number by now is left alone.

    Args:
        record: As `run_command` wrote it.
        grace: Seconds between asking the group to stop (SIGTERM) and ending it (SIGKILL).

    Raises:
        Failure: nobody can say for certain whose group it is, so nothing was done; or it did not
            end.
        InvalidValue: this is no record of a process group.
    """
    group = _read(record)
    if not await anyio.to_thread.run_sync(_is_there, group):
        return
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, _LAST)):
        with suppress(ProcessLookupError, PermissionError):  # The look that follows tells.
            os.killpg(group.pgid, number)
        if await _has_ended(group.pgid, seconds):
            return
    raise Failure(f"process group {group.pgid} did not end; see with `ps` what holds it")


def _read(record: Record) -> _Group:
    try:
        if record.namespace == NAMESPACE:
            return msgspec.convert(record.data, _Group)
    except msgspec.ValidationError as error:
        raise InvalidValue(f"this is no record of a process group: {error}") from None
    raise InvalidValue(f"a record of a process group is a {NAMESPACE}; give `reap` no other")


def _is_there(group: _Group) -> bool:
    """
    Say whether a group is there.

    Raises:
        Failure: one is there, or may be, and it may be somebody else's.
    """
    here = _machine()
    if not (here and group.machine and group.began):
        raise _unsure(group, "there is nothing that tells it from another of that number")
    if here.partition(" ")[0] != group.machine.partition(" ")[0]:
        return False  # The machine has been started anew since.
    if here != group.machine:
        raise _unsure(group, "it was begun in another space of process ids, as of a container")
    if group.pgid == os.getpgrp():
        raise _unsure(group, "this very process is in it")
    leader = _stat(group.pgid)
    if leader and leader[_BEGAN] != group.began:
        return False
    alive = _is_alive(group.pgid)
    if alive and not leader:
        raise _unsure(group, "its leader has ended, so it may be another of that number by now")
    return alive


def _unsure(group: _Group, why: str) -> Failure:
    return Failure(
        f"process group {group.pgid} was left alone: {why}; if it is there, see what it is with "
        f"`ps -o pid,lstart,args -g {group.pgid}`, and end it with `kill -- -{group.pgid}`"
    )


async def _has_ended(pgid: int, seconds: float) -> bool:
    """Wait until a group is gone, so long at most; say whether it is."""
    with anyio.move_on_after(seconds):
        # No event tells: it is not our child.
        while await anyio.to_thread.run_sync(_is_alive, pgid):  # noqa: ASYNC110
            await anyio.sleep(_PAUSE)
        return True
    return False


# ---- what Linux says of its processes ------------------------------------------------------------

_PROC = Path("/proc")
_STATE, _PGRP, _BEGAN = 0, 2, 19
"""Places in what follows the name of a process in its `stat`."""


def _machine() -> str:
    """Return what tells this boot and space of process ids from others; empty if nothing does."""
    with suppress(OSError):
        boot = Path(_PROC, "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path(_PROC, 'self/ns/pid').readlink()}"
    return ""


def _stat(pid: int | str) -> list[str]:
    """Return what is said of a process, also of one that has ended and was not waited for yet."""
    with suppress(OSError):
        line = Path(_PROC, f"{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return line.rpartition(")")[2].split()
    return []


def _is_alive(pgid: int) -> bool:
    """Say whether a group has a process that has not ended."""
    numbers = (entry.name for entry in _PROC.iterdir() if entry.name.isdecimal())
    found = (fields for number in numbers if (fields := _stat(number)))
    return any(one[_PGRP] == str(pgid) and one[_STATE] not in "ZX" for one in found)
