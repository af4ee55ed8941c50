"""Write RESULTS.md, PEERS.md and the chart from what the last runs left: `python pages.py`."""

from collections.abc import Iterable, Iterator, Sequence

import chart
from _data import HERE, PEERS, Measured, Results, beside, find, goal, kinds, ours, results, shown
from _measure import ROUNDS
from against import MISTAKES, SLOW_ROUNDS, Report


def main() -> None:
    """Write all."""
    alone, together = results(), beside()
    (HERE / "RESULTS.md").write_text(lines_of(alone_page(alone)), encoding="utf-8")
    (HERE / "PEERS.md").write_text(lines_of(beside_page(together)), encoding="utf-8")
    chart.draw(together)


def lines_of(lines: Iterable[str]) -> str:
    """Return the lines as a text."""
    return "\n".join([*lines, ""])


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> Iterator[str]:
    """Yield the lines of a table whose first columns hold words, and the others figures."""
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * left}{' ---: |' * (len(head) - left)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


# ---- RESULTS.md ----------------------------------------------------------------------------------


def alone_page(run: Results) -> Iterator[str]:
    """Yield the page of Ferrule alone."""
    yield f"""\
# What the checks cost

Each figure but memory is a ratio: how much longer ours took than a floor that checks
nothing, timed in turn in one run, the median of {ROUNDS} pairs or more. `make bench`
writes this page anew. [PEERS.md](PEERS.md) has the same work done by other frameworks.

Floor of a call: `await f(**orjson.loads(text))`; of a refused one, with the arguments as they
should have been. Floor of a batch: an `asyncio.TaskGroup` and a `Semaphore(64)` over the bare
function. Floor of the import: `typing, inspect, dataclasses, json, asyncio` of the standard
library. Floor of a reader: `orjson.loads`, which takes repeated names.

{run.day}, {run.machine}.
"""
    rows = ([row.id, row.what, row.figure, row.bound] for row in run.rows)
    yield from table(["row", "what", "figure", "goal"], rows, left=2)


# ---- PEERS.md ------------------------------------------------------------------------------------


def beside_page(run: Measured) -> Iterator[str]:
    """Yield the page of Ferrule beside its peers."""
    yield from heading(run)
    yield from against_floor(run)
    yield from against_ours(run)
    yield from habits_of_all(run)
    yield from sources(run)


def heading(run: Measured) -> Iterator[str]:
    """Say what was measured and how."""
    yield f"""\
# Ferrule beside its peers

![How many times its floor each takes, on a logarithmic scale](results.png)

In an environment of its own for each peer, floor, Ferrule and peer do the same work in turn,
in one process. Each figure is the median of the rounds' ratios: {ROUNDS} rounds or more, and
{SLOW_ROUNDS} of a turn of 10,000 calls. Ratios and not times, since machines differ and are shared.

The floor checks nothing: `await f(**orjson.loads(text))` for a call, an `asyncio.TaskGroup` and
a `Semaphore(64)` over the bare function for a turn, the function's signature and type hints for
a definition. Everything runs offline: where a peer needs a model, one that is scripted asks for
the calls.

{run.day}, {run.machine}. To run it again: `make bench-peers`, or
`.venv/bin/python benchmarks/bench_peers.py NAME` for one peer. It is part of no test.
"""


def against_floor(run: Measured) -> Iterator[str]:
    """Yield the table of ratios to the floor."""
    yield """\
## How many times its floor each takes

Ferrule's figure is the median over all environments: `Contract.admit` and `Binding.call` for a
call, `Executor.run` for a turn, `bind(tool(f))` for a definition.
"""
    head = ["row", "what", "**Ferrule**", *(PEERS[name][0] for name in run.reports)]
    yield from table(head, floor_rows(run), left=2)
    yield ""


def floor_rows(run: Measured) -> Iterator[list[str]]:
    """Yield a row of the table for each thing that was measured."""
    for row, what in kinds(run):
        figures = {name: find(report, what) for name, report in run.reports.items()}
        theirs = [shown(figure.theirs) if figure else "failed" for figure in figures.values()]
        yield [row, what, f"**{shown(ours(run, what))}**", *theirs]


def against_ours(run: Measured) -> Iterator[str]:
    """Yield the table of ratios to Ferrule, with the goals that were missed."""
    yield """\
## How many times Ferrule each takes

Under 1, the peer is the faster one. A goal stands in brackets, and says when it was missed.
"""
    rows = (
        [row, what, *(cell(name, report, what) for name, report in run.reports.items())]
        for row, what in kinds(run)
    )
    names = (PEERS[name][0] for name in run.reports)
    yield from table(["row", "what", *names], rows, left=2)
    yield """
FastMCP and the MCP SDK answer requests and have no turn: their rows gather bare calls, all at
once and without order, bound or outcome, and carry no goal. Anthropic's runner takes one call
after another, so that nothing of a turn overlaps; it has no task to pay for either.
"""


def cell(name: str, report: Report, what: str) -> str:
    """Return one cell: how many times Ferrule, and the goal."""
    figure = find(report, what)
    if figure is None:
        return "failed"
    bound = goal(name, what)
    if bound is None:
        return shown(figure.times)
    missed = "" if figure.times >= bound else ", missed"
    return f"{shown(figure.times)} (≥ {bound:.2g}×{missed})"


def habits_of_all(run: Measured) -> Iterator[str]:
    """Yield what each does with mistakes, which is what the time buys."""
    yield """\
## What the time buys

Arguments that are not what the schema says, sent to a function of `path: str` and `times: int`:
refused, or run all the same. The last column says whether a function that declares dataclasses
gets them. Peers that take arguments already read, which are those with `orjson.loads` below,
leave a repeated name to whoever reads it.
"""
    rows = [habits("**Ferrule**", run.refuses, builds=True), *peer_habits(run)]
    yield from table(["", *MISTAKES, "builds dataclasses"], rows, left=len(MISTAKES) + 2)
    yield ""


def sources(run: Measured) -> Iterator[str]:
    """Yield what was measured of each peer, and what could not be."""
    yield "## What was measured"
    yield ""
    rows = (
        [PEERS[name][0], versions(report), report.call, report.turn]
        for name, report in run.reports.items()
    )
    yield from table(["peer", "versions", "one call", "a turn"], rows, left=4)
    for name, reason in run.missing.items():
        yield f"\n{PEERS[name][0]} {reason}."
    for name, report in run.reports.items():
        for what, reason in report.failures.items():
            yield f"\n{PEERS[name][0]}, {what}: {reason}"


def peer_habits(run: Measured) -> Iterator[list[str]]:
    """Yield what each peer does with mistakes."""
    for name, report in run.reports.items():
        yield habits(PEERS[name][0], report.refuses, builds=report.builds)


def habits(name: str, refuses: Sequence[str], *, builds: bool) -> list[str]:
    """Return a row of what one does with mistakes."""
    cells = ("refused" if mistake in refuses else "ran" for mistake in MISTAKES)
    return [name, *cells, "yes" if builds else "no"]


def versions(report: Report) -> str:
    """Return the versions in a line."""
    return ", ".join(f"{package} {version}" for package, version in report.versions.items())


if __name__ == "__main__":
    main()
