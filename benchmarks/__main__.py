"""Run every benchmark, print its rows, and write them to RESULTS.md."""

import datetime as dt
import importlib
from pathlib import Path

from _measure import ROUNDS, Row, machine

HERE = Path(__file__).parent


def main() -> None:
    """Run all; a goal that was missed is said, and is no failure of the run."""
    rows: list[Row] = []
    for script in [*sorted(HERE.glob("p[0-9]*.py")), HERE / "soak.py"]:
        for row in importlib.import_module(script.stem).rows():
            print(row, flush=True)
            rows.append(row)
    (HERE / "RESULTS.md").write_text(page(rows), encoding="utf-8")


def page(rows: list[Row]) -> str:
    """Return the results as a page."""
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    lines = [
        "# What the checks cost",
        "",
        "Each figure but memory is a ratio: how much longer ours took than a floor that checks",
        f"nothing, timed in turn in one run, the median of {ROUNDS} pairs or more. `make bench`",
        "writes this page anew.",
        "",
        "Floor of a call: `await f(**orjson.loads(text))`; of a refused one, with the arguments as",
        "they should have been. Floor of a batch: an",
        "`asyncio.TaskGroup` and a `Semaphore(64)` over the bare function. Floor of the import:",
        "`typing, inspect, dataclasses, json, asyncio` of the standard library. Floor of a reader:",
        "`orjson.loads`, which takes repeated names.",
        "",
        f"{today}, {machine()}.",
        "",
        "| row | what | figure | goal |",
        "| --- | --- | ---: | ---: |",
    ]
    lines += [f"| {row.id} | {row.what} | {row.figure} | {row.bound} |" for row in rows]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
