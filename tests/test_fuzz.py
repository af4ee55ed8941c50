"""A little of each fuzz program in every run of the tests; `make fuzz` makes many times as many."""

from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings

import fuzz_arguments
import fuzz_schemas
import fuzz_turns
from fuzzing import SMALL

READERS = [fuzz_arguments, fuzz_schemas, fuzz_turns]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: str(reader.__name__))
def test_a_reader_takes_or_refuses_whatever_comes(reader: ModuleType) -> None:
    """ADM-2, SCH-1, SCH-2, SCH-6, WIRE-1, JSON-6: 200 inputs, no ending but the declared ones."""
    seen: set[str] = set()

    @settings(
        max_examples=SMALL,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(reader.batches())
    def try_all(batch: list[object]) -> None:
        seen.update(reader.check(one) for one in batch)

    try_all()
    assert len(seen) > 1  # Some were taken and some were not, or nothing was tried.


@pytest.mark.parametrize("name", ["plain", "deep", "anything", "names", "strict"])
def test_large_arguments_cost_what_their_size_allows(name: str) -> None:
    """JSON-3, P6: steps in calls, and memory beside the parser's own, are linear in the text."""
    samples = [fuzz_arguments.Sample(name, make(900)) for make in fuzz_arguments.LARGE]
    samples += [fuzz_arguments.Sample(name, make(10_000)) for make in fuzz_arguments.LARGE[4:8]]

    for sample in samples:
        fuzz_arguments.check_cost(sample)


def test_large_schemas_cost_what_their_size_allows() -> None:
    """SCH-2: compiling, converting, binding and comparing, counted in calls."""
    for schema in fuzz_schemas.large(400):
        fuzz_schemas.check_cost(schema)


def test_large_turns_cost_what_their_size_allows() -> None:
    """WIRE-1: reading, counted in calls."""
    for data in fuzz_turns.large(2_000):
        fuzz_turns.check_cost(data)
