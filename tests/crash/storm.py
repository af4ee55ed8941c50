"""
A storm of `kill -9` over worlds of durable calls, as a program: `python -m crash.storm --help`.

It imports everything once and forks each process that is to be killed, so that a kill costs a tenth
of a second. It never runs a loop or a thread itself. What it found is one line of JSON at its end.
"""

import argparse
import faulthandler
import json
import logging
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import anyio._backends._asyncio
import anyio._backends._trio
import msgspec

from crash import checks, faults, journal, world
from crash.log import Log, lines
from crash.processes import Process

LIVES = 5
"""Processes that drive one world at random moments; the last goes on to the end."""

TICKS = 110
"""Ticks (commits, and lines of the log) after which a process is killed at the latest."""

MIDDLE = 25
"""Commits after which much is under way."""

QUIET = 0.15
"""Seconds without a tick after which a process is killed all the same: all is held."""


class Found(msgspec.Struct):
    """
    What a storm found.

    Attributes:
        kills: How many processes were killed.
        states: How many calls were in each state when their process was killed.
        points: At how many commits a process was killed; right before and right after.
        breaches: What did not hold, with the world it did not hold in.
    """

    kills: int = 0
    states: Counter[str] = msgspec.field(default_factory=Counter)
    points: Counter[str] = msgspec.field(default_factory=Counter)
    breaches: list[str] = msgspec.field(default_factory=list)

    def look(self, home: Path, where: str) -> None:
        """Count where the calls of a world are whose process was killed; check what must hold."""
        self.kills += 1
        kept = journal.read(home / "calls.db")
        found = checks.breaches(kept, lines(home / "log"), settled=False)
        self.breaches += [f"{where}: {breach}" for breach in found]
        self.states += kept.states()
        there = {call.batch for call in kept.calls}
        for line in lines(home / "log"):
            if line.what == "submitting" and line.name not in there:
                self.states["proposed"] += len(line.calls)
                there.add(line.name)

    def check(self, home: Path, where: str) -> None:
        """Check everything that must hold of a world that was driven to its end."""
        found = checks.breaches(journal.read(home / "calls.db"), lines(home / "log"))
        self.breaches += [f"{where}: {breach}" for breach in found]


Turns = dict[str, tuple[str, ...]]


def life(
    home: Path,
    turns: Turns,
    *,
    holds: bool = False,
    fault: faults.Fault | None = None,
    loop: str = "asyncio",
) -> Process:
    """Start one life of the process that drives a world."""

    def run(say: Callable[[str], object]) -> None:
        faulthandler.enable()
        logging.getLogger("ferrule").addHandler(logging.FileHandler(home / "ferrule.log"))
        logging.getLogger("ferrule").propagate = False
        its_fault = faults.Fault() if fault is None else fault
        its_fault.tick = say
        faults.install(its_fault, one_by_one=fault is not None)
        its_world = world.World(home, holds=holds, tick=say)
        anyio.run(world.live, its_world, turns, backend=loop)

    return Process(run)


def buried(home: Path, process: Process) -> None:
    """Note in the log of a world that a process is gone."""
    Log(home / "log").write("killed", pid=process.pid)


def finish(home: Path, turns: Turns, found: Found, where: str, *, loop: str = "asyncio") -> None:
    """Drive a world to its end, and check it."""
    code = life(home, turns, loop=loop).run_out()
    if code != 0:
        found.breaches.append(f"{where}: the last process ended with {code}")
        return
    found.check(home, where)


# ---- at every commit -------------------------------------------------------------------------


def at_every_commit(base: Path, found: Found, *, part: int, parts: int) -> None:
    """Kill a process right before and right after each of its commits, in a world each."""
    turns: Turns = {"calm": world.CALM}
    for after in (False, True):
        for point in range(1 + part, 10_000, parts):
            where = f"{'after' if after else 'before'} commit {point}"
            home = base / where.replace(" ", "-")
            home.mkdir()
            fault = faults.Fault(at=point, after=after)
            process = life(home, turns, fault=fault, loop=_loop(point))
            code = process.run_out()
            if code == -signal.SIGKILL:
                buried(home, process)
                found.look(home, where)
                found.points["after" if after else "before"] += 1
                finish(home, turns, found, where, loop=_loop(point + 1))
            elif code:
                found.breaches.append(f"{where}: the process ended with {code}")
            else:
                found.check(home, where)
            shutil.rmtree(home)
            if code == 0:
                break


def at_every_commit_of_a_recovery(base: Path, found: Found, *, part: int, parts: int) -> None:
    """Kill a process in the middle, and the one after it at each of its commits."""
    turns: Turns = {"calm": world.CALM}
    for point in range(1 + part, 10_000, parts):
        home = base / f"again-{point}"
        home.mkdir()
        codes = []
        for at in (MIDDLE + point % 5, point):
            process = life(home, turns, fault=faults.Fault(at=at, after=True), loop=_loop(point))
            codes.append(process.run_out())
            buried(home, process)
        found.look(home, f"recovery, commit {point}")
        if codes == [-signal.SIGKILL, -signal.SIGKILL]:
            found.points["after"] += 1
        elif codes != [-signal.SIGKILL, 0]:
            found.breaches.append(f"recovery, commit {point}: the processes ended with {codes}")
        finish(home, turns, found, f"recovery, commit {point}", loop=_loop(point + 1))
        shutil.rmtree(home)
        if codes[1] == 0:
            break


def _loop(number: int) -> str:
    return ("asyncio", "trio")[number // 3 % 2]


# ---- at random moments -----------------------------------------------------------------------


def at_random_moments(base: Path, found: Found, *, kills: int, seed: int) -> None:
    """Kill the processes of worlds at moments made up from a seed, until there were enough."""
    for number in range(kills):  # Far more than are needed.
        if found.kills >= kills:
            break
        home = base / f"world-{number}"
        home.mkdir()
        rng = random.Random(seed * 10_000 + number)
        _storm(home, found, rng, most=kills - found.kills, where=f"seed {seed}, world {number}")
        shutil.rmtree(home)


def _storm(home: Path, found: Found, rng: random.Random, *, most: int, where: str) -> None:
    turns: Turns = {}
    for number in range(min(LIVES - 1, most)):
        turns[f"turn{number}"] = world.HELD if number % 2 == 0 else world.CALM
        process = life(home, turns, holds=True, loop=rng.choice(("asyncio", "trio")))
        if not _killed(process, rng):
            found.breaches.append(f"{where}: process {number} ended with {process.end()}")
            return
        buried(home, process)
        found.look(home, where)
    finish(home, turns, found, where, loop=rng.choice(("asyncio", "trio")))


def _killed(process: Process, rng: random.Random) -> bool:
    """Kill a process after so many ticks and a little more, or as it hands in a turn."""
    left = rng.randrange(1, TICKS)
    last_words = {"submitting"} if rng.random() < 0.1 else set()
    while left > 0:
        word = process.hear(QUIET)
        if word is None or word in last_words:
            break
        if not word:
            return False
        left -= 1
    end = time.perf_counter() + rng.random() * 0.002
    while time.perf_counter() < end and not last_words:
        pass
    return process.kill()


def _fastest() -> Path | None:
    """Return a directory in memory, if there is one: a killed process needs no disk to be kept."""
    memory = Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else None


# ---- the program -----------------------------------------------------------------------------


def main() -> int:
    """Run a part of a storm, and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=0, help="kills at random moments")
    parser.add_argument("--commits", action="store_true", help="kills at every commit")
    parser.add_argument("--again", action="store_true", help="kills at every commit of a recovery")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--home", type=Path, default=_fastest(), help="where worlds are made")
    given = parser.parse_args()
    found = Found()
    with TemporaryDirectory(dir=given.home) as base:
        if given.commits:
            at_every_commit(Path(base), found, part=given.part, parts=given.parts)
        if given.again:
            at_every_commit_of_a_recovery(Path(base), found, part=given.part, parts=given.parts)
        if given.moments:
            seed = given.seed + given.part
            at_random_moments(Path(base), found, kills=given.moments, seed=seed)
    sys.stdout.write(f"{json.dumps(msgspec.to_builtins(found))}\n")
    return 1 if found.breaches else 0


if __name__ == "__main__":
    sys.exit(main())
