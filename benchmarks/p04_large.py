"""P4: one call of 1 MB, just within the limits, against a call that checks and builds nothing."""

import p02_nested
import p03_pydantic
from _measure import Row

LINES = 2900
"""Lines of cells that make 1 MB: the most that the limits of a call allow, or nearly."""


def rows() -> list[Row]:
    """Measure the rows; that of pydantic has no goal of its own, and gets the same."""
    arguments = p02_nested.text(LINES)
    kinds = (("dataclasses", p02_nested.save), ("pydantic models", p03_pydantic.save))
    return [
        Row(
            id="P4",
            what=f"admit + call, {len(arguments):,} B into {kind}",
            ratio=p02_nested.against_floor(save, arguments),
            goal=4.5,
        )
        for kind, save in kinds
    ]


if __name__ == "__main__":
    print(*rows(), sep="\n")
