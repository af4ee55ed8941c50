"""Draw Ferrule beside its peers, from the data of the last run: `python chart.py`."""

import textwrap

import matplotlib as mpl
import matplotlib.pyplot as plt
from _data import FLOOR_GOALS, HERE, PEERS, TURNS, Measured, beside, find, kinds, ours, shown
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

OURS, THEIRS, BARE, GOAL, INK = "#0072B2", "#B0B0B0", "#E3E3E3", "#D55E00", "#333333"
"""Blue and vermilion of the palette of Okabe and Ito, which the colour-blind tell apart."""

COLUMNS = 3
RIGHT = 60_000
"""Where every scale ends, so that panels can be compared and the longest bar has its figure."""


def draw(run: Measured) -> None:
    """Write the chart as PNG and SVG; the same data give the same files."""
    mpl.rcParams.update({"font.family": "DejaVu Sans", "svg.hashsalt": "ferrule"})
    whats = [what for _, what in kinds(run)]
    lines = -(-len(whats) // COLUMNS)
    figure, axes = plt.subplots(
        lines, COLUMNS, figsize=(13, 2.6 * lines + 1.1), sharex=True, sharey=True, squeeze=False
    )
    for place, what in zip(axes.flat, whats, strict=False):
        panel(place, run, what)
    for place in list(axes.flat)[len(whats) :]:
        place.set_visible(False)
    frame(figure, run)
    for ending in ("png", "svg"):
        figure.savefig(HERE / f"results.{ending}", dpi=130, metadata=undated(ending))
    plt.close(figure)


def panel(place: Axes, run: Measured, what: str) -> None:
    """Draw one row of the page: a bar for each, from the floor at 1."""
    names = ["Ferrule", *(PEERS[name][0] for name in run.reports)]
    bound = FLOOR_GOALS.get(what)
    bar(place, 0, ours(run, what), OURS, beyond=bound or 1)
    for height, (name, report) in enumerate(run.reports.items(), start=1):
        figure = find(report, what)
        bare = "turn" in what and name not in TURNS
        bar(place, height, figure.theirs if figure else None, BARE if bare else THEIRS)
    if bound:
        place.plot([bound, bound], [-0.52, 0.52], color=GOAL, linewidth=2)
        note = f"goal: at most {bound:g}×"
        place.set_title(note, fontsize=8.5, loc="right", color=GOAL)
    place.set_title(what, fontsize=10.5, loc="left", color=INK)
    place.set_yticks(range(len(names)), names, fontsize=9)
    place.set_xscale("log")
    place.set_xlim(1, RIGHT)
    place.set_ylim(len(names) - 0.4, -0.6)
    tidy(place)


def bar(place: Axes, height: int, ratio: float | None, color: str, *, beyond: float = 1) -> None:
    """Draw one bar and its figure, which stands beyond the goal's mark too."""
    if ratio is None:
        place.text(1.15, height, "failed", va="center", fontsize=8.5, color=INK)
        return
    place.barh(height, ratio - 1, left=1, height=0.72, color=color)
    mine = color == OURS
    place.text(
        max(ratio, beyond) * 1.15,
        height,
        shown(ratio),
        va="center",
        fontsize=8.5,
        weight="bold" if mine else "normal",
        color=OURS if mine else INK,
    )


def tidy(place: Axes) -> None:
    """Leave of a panel's frame what is read."""
    place.set_xticks([1, 10, 100, 1000, 10_000], ["1×", "10×", "100×", "1,000×", "10,000×"])
    place.tick_params(axis="x", labelsize=8.5, labelbottom=True)
    place.tick_params(axis="both", which="both", length=0)
    place.grid(axis="x", which="major", color="#E4E4E4", linewidth=0.8)
    place.set_axisbelow(True)
    for label in place.get_yticklabels()[:1]:  # only the leftmost panel of a line has names
        label.set_fontweight("bold")
    for side in ("top", "right", "bottom"):
        place.spines[side].set_visible(False)


def frame(figure: Figure, run: Measured) -> None:
    """Say above the panels what they show, and below where it comes from."""
    figure.suptitle(
        "The same work, as multiples of a floor that checks nothing (logarithmic; less is better)",
        fontsize=13,
        x=0.012,
        ha="left",
        weight="bold",
        color=INK,
    )
    figure.legend(
        handles=[
            Patch(color=OURS, label="Ferrule"),
            Patch(color=THEIRS, label="peers"),
            Patch(color=BARE, label="bare calls, gathered: it has no turn"),
            Line2D([], [], color=GOAL, linewidth=2, label="Ferrule's goal, at most"),
        ],
        loc="upper right",
        ncols=4,
        frameon=False,
        fontsize=9.5,
        bbox_to_anchor=(0.995, 0.965),
    )
    origin = textwrap.fill(f"{run.day}, {run.machine}. {sources(run)}.", 200)
    figure.text(0.012, 0.008, origin, fontsize=7.5, color=INK)
    figure.tight_layout(rect=(0, 0.035, 1, 0.95))


def sources(run: Measured) -> str:
    """Return the versions of the peers in a line."""
    found = {
        package: v for report in run.reports.values() for package, v in report.versions.items()
    }
    return ", ".join(f"{package} {version}" for package, version in found.items())


def undated(ending: str) -> dict[str, str | None]:
    """Return what keeps the date and the library's version out of a file."""
    return {"Date": None} if ending == "svg" else {"Software": None}


if __name__ == "__main__":
    draw(beside())
