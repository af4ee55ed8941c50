"""Soak: resident memory after 100,000 calls in batches of 1 to 1,000, against that after 10,000."""

import asyncio
import gc
import logging
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from random import Random

from _measure import Row

from ferrule import Authorization, Context, Executor, Failure, Guard, Registry, ToolCall, tool

FEW, MANY = 10_000, 100_000
LARGEST = 1000
NAMES = ("plain", "using", "progressing", "guarded", "failing", "breaking", "threaded")
STATUS = Path("/proc/self/status")


@tool
async def plain(text: str, n: int = 0) -> str:
    """Give a text back."""
    return text


@tool(uses=lambda arguments: f"state {arguments['n']}")
async def using(text: str, n: int = 0) -> dict[str, object]:
    """Work on one of a few states."""
    return {"text": text, "n": n}


@tool
async def progressing(text: str, context: Context, n: int = 0) -> str:
    """Say how far it is."""
    for done in range(3):
        context.progress(done, total=3, message=text)
    return text


@tool
async def guarded(text: str, n: int = 0) -> str:
    """Stand behind a policy."""
    return text


@tool
async def failing(text: str, n: int = 0) -> str:
    """Fail."""
    raise Failure(text)


@tool
async def breaking(text: str, n: int = 0) -> str:
    """Break in a way that nobody foresaw."""
    raise RuntimeError(text)


@tool
def threaded(text: str, n: int = 0) -> str:
    """Run in a thread."""
    return text


async def policy(authorization: Authorization) -> bool:
    """Allow most calls."""
    return authorization.arguments["n"] != 0


def batches() -> Iterator[list[ToolCall]]:
    """
    Yield batches of every size, the largest first, twice for each way of running them.

    So the memory that one batch takes for a while is taken before the first look.
    """
    random = Random(5)
    sizes = chain([LARGEST] * 6, iter(lambda: int(LARGEST ** random.random()), None))
    for size in sizes:
        yield [call(random) for _ in range(size)]


def call(random: Random) -> ToolCall:
    """Return a call, or now and then one that is refused."""
    name = random.choice((*NAMES, "plain", "plain", "unknown"))
    n = random.choice((0, 1, 2, 3, "no number"))
    return ToolCall.of(name, {"text": random.randbytes(20).hex(), "n": n})


async def soak() -> float:
    """Run all calls; return how many times as much memory there is at the end."""
    tools = Registry(
        [plain, using, progressing, Guard(guarded, policy), failing, breaking, threaded]
    )
    executor = Executor(tools, max_parallel=16)
    done, before = 0, 0
    for index, calls in enumerate(batches()):
        if index % 2:
            await executor.run(calls)
        else:
            await every_event(executor, calls, leaves=index % 10 == 0)
        done += len(calls)
        if done >= FEW and not before:
            before = resident()
        if done >= MANY:
            return resident() / before
    raise AssertionError("there is no last batch")


async def every_event(executor: Executor, calls: list[ToolCall], *, leaves: bool) -> None:
    """Read the events of a batch, of some only the first half."""
    seen = 0
    async with executor.batch(calls) as batch:
        async for _ in batch:
            seen += 1
            if leaves and seen > len(calls):
                break


def resident() -> int:
    """Return the resident memory of this process, in kilobytes, of what is in use."""
    gc.collect()
    lines = STATUS.read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def rows() -> list[Row]:
    """Measure the row, in a process of its own; nothing where no /proc tells the memory."""
    if not STATUS.exists():
        return []
    command = [sys.executable, __file__, "here"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    what = f"resident memory after {MANY:,} calls in batches, against {FEW:,}"
    return [Row(id="soak", what=what, ratio=float(told), goal=1.05)]


if __name__ == "__main__":
    if sys.argv[1:] == ["here"]:
        logging.disable()
        print(asyncio.run(soak()))
    else:
        print(*rows(), sep="\n")
