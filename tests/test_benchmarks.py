"""What the benchmarks promise: what is not measured is not shown, and pages are their data."""

from collections.abc import Awaitable, Callable, Iterator, Sequence

import against
import chart
import pages
import pytest
from _data import HERE, Measured, beside, results
from _measure import Loop
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ferrule import Executor, Tool, ToolCall, tool


class Peer:
    """A peer that is Ferrule itself."""

    PACKAGES: Sequence[str] = ("ferrule",)
    CALL = "`admit` and `call`"
    TURN = "`run`"

    def define(self, function: Callable[..., object]) -> Tool:
        """Make a tool."""
        return tool(function)

    async def caller(self, defined: Tool) -> Callable[[str], Awaitable[object]]:
        """Return what runs one call."""

        async def call(text: str) -> object:
            named = ToolCall(id="c", name=defined.definition.name, arguments=text)
            return await Executor([defined]).run([named])

        return call

    async def turn(self, defined: Tool, calls: Sequence[ToolCall]) -> against.Run:
        """Return what runs the calls."""
        executor = Executor([defined])

        async def run() -> object:
            return await executor.run(calls)

        return run


class Lazy(Peer):
    """A peer that runs all calls of a turn but the last."""

    async def turn(self, defined: Tool, calls: Sequence[ToolCall]) -> against.Run:
        """Return what runs too few calls."""
        return await super().turn(defined, calls[:-1])


@pytest.fixture
def loop() -> Iterator[Loop]:
    """Give the loop that benchmarks run on."""
    with Loop() as running:
        yield running


def figure(row: str, what: str, times: float) -> against.Figure:
    """Return a figure made up."""
    return against.Figure(row=row, what=what, ours=2.0, theirs=2.0 * times, times=times)


def measured(**failures: str) -> Measured:
    """Return a run of one peer, made up: a goal is missed, and a row failed."""
    report = against.Report(
        versions={"strands-agents": "1.0"},
        call="`a`",
        turn="`b`",
        refuses=["an unknown name"],
        builds=False,
        figures=[figure("P10", "a turn of 8 calls", 9.0), figure("P9", "a turn of 1,000 calls", 3)],
        failures=failures,
    )
    return Measured(
        day="2026-01-01",
        machine="a machine",
        refuses=list(against.MISTAKES),
        reports={"strands": report},
        missing={"mcp": "could not be installed: exit code 2"},
    )


def test_a_turn_that_leaves_a_call_out_is_not_measured(loop: Loop) -> None:
    """P9: the figures of a peer count only if each call of its turn ran once."""
    against.check_turn(Peer(), loop)
    with pytest.raises(AssertionError):
        against.check_turn(Lazy(), loop)


def test_every_mistake_of_the_table_is_refused_by_ferrule(loop: Loop) -> None:
    """P1: what the time buys is looked at, not written down."""
    assert against.refused(against.admitted, loop) == list(against.MISTAKES)


def test_a_row_that_fails_says_why_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """PERFORMANCE: a peer whose interface changed costs a row, not the run."""

    def broken(*_: object) -> against.Figure:
        raise AttributeError("it has another name by now")

    def works(*_: object) -> against.Figure:
        return figure("P1", "the other", 2.0)

    monkeypatch.setattr(against, "MEASURED", {"one": broken, "the other": works})
    report = against.report(Peer())
    assert report.failures == {"one": "AttributeError: it has another name by now"}
    assert [each.what for each in report.figures] == ["the other"]


def test_the_page_says_what_was_missed_and_what_could_not_be_measured() -> None:
    """PERFORMANCE: a goal that was missed stands in the table, and so does what is not there."""
    page = pages.lines_of(pages.beside_page(measured(define="TypeError: no")))
    assert "9.00× (≥ 7×)" in page
    assert "3.00× (≥ 15×, missed)" in page
    assert "MCP SDK could not be installed: exit code 2." in page
    assert "Strands, define: TypeError: no" in page


def test_the_pages_that_stand_here_are_those_of_the_data_beside_them() -> None:
    """PERFORMANCE: RESULTS.md and PEERS.md are made from the run, not by hand."""
    assert (HERE / "RESULTS.md").read_text("utf-8") == pages.lines_of(pages.alone_page(results()))
    assert (HERE / "PEERS.md").read_text("utf-8") == pages.lines_of(pages.beside_page(beside()))


def test_every_bar_of_the_chart_has_its_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """PERFORMANCE: the chart is drawn from the data, ours and theirs."""
    written: list[str] = []

    def kept(place: object, x: float, y: float, text: str, **_: object) -> None:
        written.append(text)

    monkeypatch.setattr(Axes, "text", kept)
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: None)
    chart.draw(measured())
    assert written == ["2.00×", "18.0×", "2.00×", "6.00×"]
