"""P8: `import ferrule` against the standard library's own floor, both net of a bare python."""

import statistics
import subprocess
import sys
import time

from _measure import Row

ROUNDS = 21
FLOOR = "import typing, inspect, dataclasses, json, asyncio"


def seconds(code: str) -> float:
    """Return how long a python of its own takes for `code`."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
    return time.perf_counter() - start


def rows() -> list[Row]:
    """Measure the row."""
    ratios = []
    for _ in range(ROUNDS):
        bare, floor, ours = seconds("pass"), seconds(FLOOR), seconds("import ferrule")
        ratios.append((ours - bare) / (floor - bare))
    return [Row(id="P8", what="import ferrule", ratio=statistics.median(ratios), goal=2)]


if __name__ == "__main__":
    print(*rows(), sep="\n")
