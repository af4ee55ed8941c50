"""Processes that share a journal with a test, as a program: `python -m crash.child --help`."""

import argparse
import logging
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.lowlevel

from crash import sharing
from crash.gated import tools, turns
from crash.world import World
from ferrule.runtime import SqliteRuntime


class Words:
    """What is said to this process on its standard input: each word sets an event of its name."""

    def __init__(self) -> None:
        self._events: dict[str, anyio.Event] = {}

    def event(self, word: str) -> anyio.Event:
        """Return what is set once `word` was said."""
        return self._events.setdefault(word, anyio.Event())

    async def listen(self) -> None:
        """Listen, for ever."""
        token = anyio.lowlevel.current_token()

        def read() -> None:
            for line in sys.stdin:
                anyio.from_thread.run_sync(
                    lambda word: self.event(word).set(), line.strip(), token=token
                )

        threading.Thread(target=read, daemon=True).start()
        await anyio.sleep_forever()


def say(word: str) -> None:
    """Say a word to whoever started this process."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def drive(home: Path, lease: float, words: Words) -> None:
    """Run a turn whose calls are held until “go” is said; say how they ended."""
    world = World(home)
    held = tools(world, words.event("go").wait)
    async with SqliteRuntime(held, home / "calls.db", lease=lease) as runtime:
        batches = [await runtime.submit(calls, batch_id=name) for name, calls in turns().items()]
        say("submitted")
        for batch in batches:
            say(" ".join(type(outcome).__name__ for outcome in await batch.settled()))
        await words.event("leave").wait()


async def watch(home: Path, lease: float, words: Words) -> None:
    """Take over what is lost, again and again, and say each time what was taken."""
    world = World(home)
    held = tools(world, words.event("go").wait)
    async with SqliteRuntime(held, home / "calls.db", lease=lease) as runtime:
        while not words.event("leave").is_set():
            began = time.monotonic()
            taken = await runtime.recover()
            say(f"{began} {' '.join(batch.id for batch in taken) or 'nothing'}")
            await anyio.sleep(0.01)


async def share(home: Path, lease: float, words: Words) -> None:
    """Run a share of the calls on a few states: each turn's name on a line, then “go”."""
    async with SqliteRuntime(sharing.tools(home), home / "calls.db", lease=lease) as runtime:
        say("ready")
        await words.event("go").wait()
        batches = [
            await runtime.submit(sharing.calls(name), batch_id=name)
            for name in sharing.TURNS
            if words.event(name).is_set()
        ]
        for batch in batches:
            outcomes = await batch.settled()
            say(f"{batch.id} {sum(not outcome.is_error for outcome in outcomes)}")


HOW: dict[str, Callable[[Path, float, Words], Awaitable[None]]] = {
    "drive": drive,
    "watch": watch,
    "share": share,
}


async def live(how: str, home: Path, lease: float) -> None:
    """Do one of these, and listen meanwhile."""
    logging.getLogger("ferrule").addHandler(logging.FileHandler(home / f"{how}.log"))
    words = Words()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(words.listen)
        await HOW[how](home, lease, words)
        tasks.cancel_scope.cancel()


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", choices=HOW)
    parser.add_argument("home", type=Path)
    parser.add_argument("--lease", type=float, default=10.0)
    parser.add_argument("--loop", choices=("asyncio", "trio"), default="asyncio")
    given = parser.parse_args()
    anyio.run(live, given.how, given.home, given.lease, backend=given.loop)


if __name__ == "__main__":
    main()
