"""
What the fuzz programs have in common: batches of made-up inputs, a limit of CPU, what was seen.

An input is spelled out of random bytes (see `Speller`), so that Hypothesis shrinks a failing one
by shrinking its bytes. What proves that nothing hangs is a timer of the kernel: where an input
takes more CPU time than any may, the program shows where it is and ends.
"""

import argparse
import copy
import faulthandler
import json
import math
import signal
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fuzz_ijson import INSERTIONS, Speller

S = TypeVar("S", bound=Speller)
T = TypeVar("T")

BATCH = 10
SMALL = 20
"""Batches that an ordinary test makes: 200 inputs."""

SECONDS = 30
"""CPU time that one input may take; the dearest take a part of a second."""

Check = Callable[[T], str]
"""Raises `AssertionError` where a rule is broken; else says in a word what came of an input."""


class Changer(Speller):
    """Changes documents, a few places at a time, and texts of them."""

    def changed(self, document: object, parts: tuple[object, ...], most: int) -> object:
        """Return a copy with up to `most` places put otherwise; `parts` is what may come there."""
        whole = [copy.deepcopy(document)]
        for _ in range(self.below(most + 1)):
            self.change(whole, parts)
        return whole[0]

    def change(self, whole: list[object], parts: tuple[object, ...]) -> None:
        """Change one place of a document."""
        places = list(places_of(whole))
        box, key = places[self.number() % len(places)]
        kind = self.below(8)
        if kind == 0 and box is not whole:
            del box[key]
        elif kind == 1 and isinstance(box, dict):
            box[self.key(parts)] = box[key]
        elif kind == 2 and isinstance(box, list) and box is not whole:
            box.insert(key, copy.deepcopy(box[key]))
        elif kind == 3:
            box[key] = [box[key]]
        elif kind == 4:
            box[key] = {self.key(parts): box[key]}
        elif kind == 5:
            other, name = places[self.number() % len(places)]
            box[key] = copy.deepcopy(other[name])
        else:
            box[key] = copy.deepcopy(parts[self.number() % len(parts)])

    def key(self, parts: tuple[object, ...]) -> str:
        """Return a name from among the parts."""
        found = [part for part in parts if isinstance(part, str)]
        return found[self.number() % len(found)]

    def number(self) -> int:
        """Return a number of two bytes."""
        return self.below(256) * 256 + self.below(256)

    def written(self, document: object) -> str:
        """Return a document as JSON, seldom with a few characters broken."""
        text = json.dumps(document, ensure_ascii=bool(self.below(2)))
        for _ in range(max(0, self.below(8) - 5)):
            at = self.number() % (len(text) + 1)
            text = text[:at] + self.one_of(INSERTIONS) + text[at + self.below(4) :]
        return text


def places_of(whole: list[object]) -> Iterator[tuple[Any, Any]]:
    """Yield every place of a document: what holds it, and under which name or index."""
    todo: list[Any] = [whole]
    while todo:
        box = todo.pop()
        for key in list(box) if isinstance(box, dict) else range(len(box)):
            yield box, key
            if isinstance(box[key], dict | list):
                todo.append(box[key])


def made_by(speller: type[S], make: Callable[[S], T], size: int) -> st.SearchStrategy[list[T]]:
    """Return a strategy for batches of inputs, each spelled out of about `size` bytes."""

    def batch(entropy: bytes) -> list[T]:
        one = speller(entropy)
        return [make(one) for _ in range(BATCH)]

    return st.binary(min_size=size * BATCH // 4, max_size=size * BATCH).map(batch)


def run(batches: st.SearchStrategy[list[T]], check: Check[T], most: int) -> Counter[str]:
    """Check at most `most` batches, each time others; return how often each thing came of one."""
    seen: Counter[str] = Counter()

    @settings(
        max_examples=most,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(batches)
    def try_all(batch: list[T]) -> None:
        for one in batch:
            seen[check(one)] += 1

    try_all()
    return seen


def main(
    what: str, batches: st.SearchStrategy[list[T]], check: Check[T], more: Callable[[], str]
) -> int:
    """Fuzz, print what was seen, and return 1 if a rule was broken."""
    parser = argparse.ArgumentParser(description=f"Try made-up {what}.")
    parser.add_argument("--texts", type=int, default=50_000, help="how many to make")
    wanted: int = parser.parse_args().texts
    faulthandler.register(signal.SIGPROF, chain=True)  # Also while compiled code runs.
    try:
        seen = run(batches, partial(timed, check), math.ceil(wanted / BATCH))
    except AssertionError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    told = ", ".join(f"{count:,} {name}" for name, count in seen.most_common())
    sys.stdout.write(f"{seen.total():,} {what}: {told}; {more()}\n")
    return 0


def timed(check: Check[T], one: T) -> str:
    """Check one input; the timer's signal ends a program in which that never ends."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return check(one)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def peak_of(function: Callable[[], object]) -> int:
    """Return the most bytes that Python had allocated at once while a function ran."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        function()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
