"""
EXE-2 and EXE-3, read word by word and without haste; nothing of Ferrule is imported here.

At most so many calls run. One sequential call makes the batch run in the model's order. Calls that
name one state conflict unless both only share it; those run in the model's order, everything else
beside them. A call that was not let in takes no part.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Said:
    """
    What is known of one call before anything runs.

    `uses` are states, each with whether it is only shared.
    """

    uses: tuple[tuple[str, bool], ...] = ()
    sequential: bool = False
    takes_part: bool = True


def conflict(one: Said, other: Said) -> bool:
    """Say whether two calls name one state that at least one of them has for itself."""
    return any(
        a == b and not (a_shares and b_shares)
        for a, a_shares in one.uses
        for b, b_shares in other.uses
    )


def earlier(batch: Sequence[Said], *, sequential: bool) -> list[set[int]]:
    """Return for each call all that must have ended before it begins, near or far."""
    chain = sequential or any(said.sequential for said in batch if said.takes_part)
    found: list[set[int]] = []
    for i, said in enumerate(batch):
        before: set[int] = set()
        for j in range(i if said.takes_part else 0):
            if batch[j].takes_part and (chain or conflict(batch[j], said)):
                before |= {j} | found[j]
        found.append(before)
    return found


def closed(after: Iterable[Iterable[int]]) -> list[set[int]]:
    """Return all that each call waits for, given what each waits for itself."""
    found: list[set[int]] = []
    for direct in after:
        before = set(direct)
        for j in direct:
            before |= found[j]
        found.append(before)
    return found


class Reading:
    """What may be, and what must be, as calls of one batch are permitted, begin and end."""

    def __init__(self, batch: Sequence[Said], *, sequential: bool, most: int) -> None:
        self.before = earlier(batch, sequential=sequential)
        self.most = most
        self.running: set[int] = set()
        self.over = {i for i, said in enumerate(batch) if not said.takes_part}
        self.permitted: set[int] = set()

    def begin(self, call: int) -> list[str]:
        """Note that a call begins; return what forbids it."""
        waits = sorted(self.before[call] - self.over)
        wrong = [f"{call} begins before {waits} have ended"] if waits else []
        if call in self.running or call in self.over:
            wrong.append(f"{call} begins again")
        if call not in self.permitted:
            wrong.append(f"{call} begins without permission")
        self.running.add(call)
        if len(self.running) > self.most:
            wrong.append(f"{sorted(self.running)} run at once")
        return wrong

    def end(self, call: int) -> None:
        """Note that a running call has ended, or that a waiting one was denied."""
        self.running.discard(call)
        self.over.add(call)

    def idle(self) -> list[str]:
        """Return what is wrong when nothing moves: a call that could run and does not."""
        able = {c for c in self.permitted - self.over if self.before[c] <= self.over}
        due = min(self.most, len(able))
        if len(self.running) == due:
            return []
        return [f"of {sorted(able)}, {due} could run, and {sorted(self.running)} do"]
