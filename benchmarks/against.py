"""
Measure one peer beside Ferrule, in an environment that has both: `python against.py mcp`.

Prints one line of JSON. `make bench-peers` makes the environments, runs this in each, and gathers.
A module in `peers` holds what is particular to a peer; here is what all have in common: the work,
the floors, and the rounds in which floor, Ferrule and peer are timed in turn.
"""

import contextlib
import importlib
import inspect
import statistics
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, Protocol, get_type_hints

import msgspec
import orjson
import p01_one_call as one
import p02_nested as large
import p07_define as definitions
import p09_batches as batches
from _measure import ROUNDS, Loop, Work, sampled

from ferrule import Executor, ToolCall, bind, tool

SMALL, LARGE = 2000, 200
"""Calls of one repetition, of 66 B and of 4 KB, so that entering the loop does not count."""

SLOW_ROUNDS = 7
"""Rounds of the batch of 10,000, one of which takes some peers many seconds."""

Run = Callable[[], Awaitable[object]]
Function = Callable[..., Awaitable[object]]


class Peer(Protocol):
    """What a module in `peers` has."""

    PACKAGES: Sequence[str]
    """Whose versions the figures hold for."""
    CALL: str
    """What runs one call."""
    TURN: str
    """What runs the calls of a turn."""

    def define(self, function: Callable[..., object], /) -> object:
        """Make a tool, with the schema that a model would be sent."""

    async def caller(  # each module has a class of its own for tools
        self,
        defined: Any,  # noqa: ANN401
        /,
    ) -> Callable[[str], Awaitable[object]]:
        """Return what runs a call of the tool from the text that a model wrote."""

    async def turn(self, defined: Any, calls: Sequence[ToolCall], /) -> Run:  # noqa: ANN401
        """Return what runs all calls of the tool; called many times."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """
    One row of one peer.

    Attributes:
        row: Of PERFORMANCE, as in `P1`.
        what: What was measured.
        ours: How many times its floor Ferrule takes.
        theirs: How many times the same floor the peer takes.
        times: How many times Ferrule the peer takes.
    """

    row: str
    what: str
    ours: float
    theirs: float
    times: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """
    All of one peer.

    Attributes:
        versions: Of its packages.
        call: What ran one call.
        turn: What ran a turn.
        refuses: What it refuses of `MISTAKES`.
        builds: Whether the function got an object of the class it declares.
        figures: What was measured.
        failures: Rows that could not be, each with why.
    """

    versions: dict[str, str]
    call: str
    turn: str
    refuses: list[str]
    builds: bool
    figures: list[Figure]
    failures: dict[str, str]


MISTAKES = {
    "a repeated name": '{"path":"a","path":"b"}',
    '"12" for a number': '{"path":"a","times":"12"}',
    "true for a number": '{"path":"a","times":true}',
    "an unknown name": '{"path":"a","other":1}',
}


# ---- what is measured ----------------------------------------------------------------------------


def small_call(peer: Peer, loop: Loop) -> Figure:
    """Measure a call of 66 B."""
    what = f"one call of {len(one.TEXT)} B"
    return one_call(peer, loop, SMALL, ("P1", what), one.read_file, one.TEXT)


def large_call(peer: Peer, loop: Loop) -> Figure:
    """Measure a call of 4 KB."""
    text = large.text()
    return one_call(peer, loop, LARGE, ("P2", f"one call of {len(text):,} B"), large.save, text)


def one_call(
    peer: Peer, loop: Loop, times: int, row: tuple[str, str], function: Function, text: str
) -> Figure:
    """Measure one call, from the text of its arguments to what the function returned."""
    binding = bind(tool(function))
    call = ToolCall(id="call_1", name=function.__name__, arguments=text)
    their = loop.run(peer.caller(peer.define(function)))

    async def floor() -> None:
        for _ in range(times):
            await function(**orjson.loads(text))

    async def ours() -> None:
        for _ in range(times):
            await binding.call(binding.contract.admit(call))

    async def theirs() -> None:
        for _ in range(times):
            await their(text)

    return figure(*row, loop.runs(floor), loop.runs(ours), loop.runs(theirs))


def defined(
    what: str, function: Callable[..., object], classes: tuple[type, ...], peer: Peer, _: Loop
) -> Figure:
    """Measure a definition; its floor reads the hints of the classes in it too."""

    def floor() -> None:
        inspect.signature(function)
        for declared in (function, *classes):
            get_type_hints(declared, include_extras=True)

    def ours() -> None:
        bind(tool(function))

    return figure("P7", what, floor, ours, lambda: peer.define(function))


def turn_of_one(peer: Peer, loop: Loop) -> Figure:
    """Measure a turn of one call of 66 B."""
    call = ToolCall(id="call_1", name="read_file", arguments=one.TEXT)
    executor = Executor([tool(one.read_file)])
    their = loop.run(peer.turn(peer.define(one.read_file), [call]))

    run, text = one.read_file, one.TEXT

    async def floor() -> None:
        for _ in range(SMALL):
            await run(**orjson.loads(text))

    works = (floor, repeated(lambda: executor.run([call]), SMALL), repeated(their, SMALL // 100))
    return figure("P1", "a turn of 1 call", *map(loop.runs, works), counts=(1, 1, 100))


def turn_of(count: int, peer: Peer, loop: Loop) -> Figure:
    """Measure a turn of many trivial calls."""
    calls = batches.calls(count)
    executor = Executor([tool(batches.touch)], max_parallel=64)
    their = loop.run(peer.turn(peer.define(batches.touch), calls))
    many, few = max(1, 2000 // count), max(1, 200 // count)
    works = (
        repeated(lambda: batches.floor(calls), many),
        repeated(lambda: executor.run(calls), many),
        repeated(their, few),
    )
    return figure(
        "P10" if count < 1000 else "P9",
        f"a turn of {count:,} calls",
        *map(loop.runs, works),
        counts=(1, 1, many / few),
        rounds=SLOW_ROUNDS if count >= 10_000 else ROUNDS,
    )


def repeated(run: Run, times: int) -> Run:
    """Return `run` so many times over."""

    async def over() -> None:
        for _ in range(times):
            await run()

    return over


def figure(
    row: str,
    what: str,
    floor: Work,
    ours: Work,
    theirs: Work,
    *,
    counts: tuple[float, float, float] = (1, 1, 1),
    rounds: int = ROUNDS,
) -> Figure:
    """Measure the three in turn; each count says how much more of the work the others hold."""
    taken = [
        tuple(second * count for second, count in zip(seconds, counts, strict=True))
        for seconds in sampled(floor, ours, theirs, rounds=rounds)
    ]
    return Figure(
        row=row,
        what=what,
        ours=statistics.median(mine / base for base, mine, _ in taken),
        theirs=statistics.median(other / base for base, _, other in taken),
        times=statistics.median(other / mine for _, mine, other in taken),
    )


MEASURED: dict[str, Callable[[Peer, Loop], Figure]] = {
    "one call of 66 B": small_call,
    "one call of 4 KB": large_call,
    "define, flat": partial(defined, "define, flat", definitions.flat, ()),
    "define, nested": partial(
        defined,
        "define, nested",
        definitions.nested,
        (definitions.Item, definitions.Address),
    ),
    "a turn of 1 call": turn_of_one,
    **{f"a turn of {count:,} calls": partial(turn_of, count) for count in (8, 64, 1000, 10_000)},
}


# ---- what is looked at: that the work was done ---------------------------------------------------


def watched() -> tuple[Function, list[object]]:
    """Return a function named `touch`, and the list of what it was called with."""
    seen: list[object] = []

    async def touch(path: str, times: int = 1) -> str:
        """Touch a file."""
        seen.append((path, times))
        return path

    return touch, seen


def check_turn(peer: Peer, loop: Loop) -> None:
    """Refuse to measure a turn that does not run each call once, twice over."""
    function, seen = watched()
    run = loop.run(peer.turn(peer.define(function), batches.calls(64)))
    for _ in range(2):
        seen.clear()
        loop.run(run())
        assert sorted(map(str, seen)) == sorted(str((f"f{n}", n)) for n in range(64)), seen


def refused(
    caller: Callable[[Function], Callable[[str], Awaitable[object]]], loop: Loop
) -> list[str]:
    """Return the mistakes after which the function did not run."""
    function, seen = watched()
    call = caller(function)

    refusals: list[str] = []
    for mistake, text in MISTAKES.items():
        seen.clear()
        with contextlib.suppress(Exception):  # a refusal is whatever a peer makes of it
            loop.run(call(text))
        if not seen:
            refusals.append(mistake)
    return refusals


def admitted(function: Function) -> Callable[[str], Awaitable[object]]:
    """Return what runs a call of the function in Ferrule."""
    binding = bind(tool(function))

    async def call(text: str) -> object:
        written = ToolCall(id="call_1", name=function.__name__, arguments=text)
        return await binding.call(binding.contract.admit(written))

    return call


def builds(peer: Peer, loop: Loop) -> bool:
    """Return whether a function that declares a class gets an object of it."""
    seen: list[object] = []

    async def save(sheet: str, lines: list[large.Line], overwrite: bool = False) -> str:
        """Save lines."""
        seen.extend(lines)
        return sheet

    call = loop.run(peer.caller(peer.define(save)))
    loop.run(call(large.text()))
    assert len(seen) == 13
    return isinstance(seen[0], large.Line)


# ---- all of it -----------------------------------------------------------------------------------


def report(peer: Peer) -> Report:
    """Measure all rows; one that fails says why, and the others go on."""
    figures: list[Figure] = []
    failures: dict[str, str] = {}
    with Loop() as loop:
        check_turn(peer, loop)
        refuses = refused(lambda function: loop.run(peer.caller(peer.define(function))), loop)
        built = builds(peer, loop)
        for what, measure in MEASURED.items():
            try:
                figures.append(measure(peer, loop))
            except Exception as error:  # noqa: BLE001  # other people's code, in other versions
                failures[what] = f"{type(error).__name__}: {error}"[:300]
            print(what, figures[-1:], failures.get(what, ""), file=sys.stderr, flush=True)
    return Report(
        versions={package: version(package) for package in peer.PACKAGES},
        call=peer.CALL,
        turn=peer.TURN,
        refuses=refuses,
        builds=built,
        figures=figures,
        failures=failures,
    )


def main() -> None:
    """Measure the peer that the command line names."""
    peer: Peer = importlib.import_module(f"peers.{sys.argv[1]}")
    print(msgspec.json.encode(report(peer)).decode())


if __name__ == "__main__":
    main()
