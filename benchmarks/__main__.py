"""Run every benchmark of Ferrule alone, print its rows, and write them to RESULTS.md."""

import datetime as dt
import importlib

import pages
from _data import HERE, RESULTS, Results, save
from _measure import Row, machine


def main() -> None:
    """Run all; a goal that was missed is said, and is no failure of the run."""
    rows: list[Row] = []
    for script in [*sorted(HERE.glob("p[0-9]*.py")), HERE / "soak.py"]:
        for row in importlib.import_module(script.stem).rows():
            print(row, flush=True)
            rows.append(row)
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    save(RESULTS, Results(day=today, machine=machine(), rows=rows))
    pages.main()


if __name__ == "__main__":
    main()
