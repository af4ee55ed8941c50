"""What a run leaves behind, of Ferrule alone and beside its peers, and how it is read."""

import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec
from _measure import Row
from against import Figure, Report

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
BESIDE = HERE / "peers.json"

PEERS = {
    "pydantic_ai": ("Pydantic AI", ["pydantic-ai-slim"]),
    "openai_agents": ("OpenAI Agents", ["openai-agents"]),
    "langgraph": ("LangGraph", ["langgraph"]),
    "fastmcp": ("FastMCP", ["fastmcp"]),
    "mcp": ("MCP SDK", ["mcp"]),
    "anthropic": ("Anthropic SDK", ["anthropic"]),
    "strands": ("Strands", ["strands-agents"]),
}
"""By module in `peers`: the name for people, and what is installed."""


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """
    One run of Ferrule alone.

    Attributes:
        day: When, as in `2026-11-30`.
        machine: What the figures hold for.
        rows: What was measured.
    """

    day: str
    machine: str
    rows: list[Row]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """
    One run: what was measured, and of which peers nothing could be.

    Attributes:
        day: When, as in `2026-11-30`.
        machine: What the figures hold for.
        refuses: What Ferrule refuses of the mistakes.
        reports: By peer.
        missing: Peers without a report, each with why.
    """

    day: str
    machine: str
    refuses: list[str]
    reports: dict[str, Report]
    missing: dict[str, str]


class Goal(msgspec.Struct, frozen=True):
    """How many times as long as Ferrule a peer is expected to take, at least."""

    what: str
    peers: Sequence[str]
    times: float


TURNS = ("pydantic_ai", "openai_agents", "langgraph", "anthropic", "strands")
"""Peers that run the calls of a turn. The others answer requests, which a harness would gather."""

GOALS = (
    Goal("one call of 66 B", ["pydantic_ai", "fastmcp"], 6),
    Goal("one call of 66 B", ["langgraph"], 50),
    Goal("one call of 66 B", ["anthropic"], 1 / 1.2),
    Goal("define, flat", ["pydantic_ai"], 2.5),
    Goal("define, nested", ["pydantic_ai"], 2.5),
    Goal("a turn of 1 call", TURNS, 3),
    Goal("a turn of 8 calls", TURNS, 7),
    Goal("a turn of 64 calls", TURNS, 15),
    Goal("a turn of 1,000 calls", TURNS, 15),
    Goal("a turn of 10,000 calls", TURNS, 25),
)


FLOOR_GOALS = {
    "one call of 66 B": 5,
    "one call of 4,656 B": 4,
    "define, flat": 20,
    "define, nested": 25,
    "a turn of 1 call": 130,
    "a turn of 8 calls": 3,
    "a turn of 64 calls": 1.4,
    "a turn of 1,000 calls": 1.1,
    "a turn of 10,000 calls": 1.1,
}
"""How many times its floor Ferrule may take, at most."""


# ---- reading a run -------------------------------------------------------------------------------


def kinds(run: Measured) -> list[tuple[str, str]]:
    """Return what was measured of any peer, in order: row and name."""
    found = [(each.row, each.what) for report in run.reports.values() for each in report.figures]
    return list(dict.fromkeys(found))


def find(report: Report, what: str) -> Figure | None:
    """Return one figure of a peer."""
    return next((figure for figure in report.figures if figure.what == what), None)


def ours(run: Measured, what: str) -> float:
    """Return Ferrule's ratio to the floor: the median over all environments."""
    found = (find(report, what) for report in run.reports.values())
    return statistics.median(figure.ours for figure in found if figure)


def goal(name: str, what: str) -> float | None:
    """Return how many times Ferrule a peer is expected to take at least."""
    return next((each.times for each in GOALS if each.what == what and name in each.peers), None)


def save(path: Path, run: Results | Measured) -> None:
    """Write a run, to be read by people too."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run)) + b"\n")


def results() -> Results:
    """Return the last run of Ferrule alone."""
    return msgspec.json.decode(RESULTS.read_bytes(), type=Results)


def beside() -> Measured:
    """Return the last run beside the peers."""
    return msgspec.json.decode(BESIDE.read_bytes(), type=Measured)


def shown(ratio: float) -> str:
    """Return a ratio with two or three digits that say something."""
    digits = 2 if ratio < 10 else 1 if ratio < 100 else 0
    return f"{ratio:,.{digits}f}×"
