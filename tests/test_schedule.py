"""The order of a batch, decided from data alone."""

from hypothesis import given
from hypothesis import strategies as st

from ferrule import Shared, Use
from ferrule._schedule import Schedule

STATES = ("repo", "shell", "file")
USES = st.one_of(st.sampled_from(STATES), st.builds(Shared, st.sampled_from(STATES)))
BATCHES = st.lists(st.one_of(st.none(), st.lists(USES, max_size=3).map(tuple)), max_size=14)


def conflict(one: tuple[Use, ...], other: tuple[Use, ...]) -> bool:
    """Read EXE-3 word by word: one state, and at least one of the two has it for itself."""
    for a in one:
        for b in other:
            name_a = a.state if isinstance(a, Shared) else a
            name_b = b.state if isinstance(b, Shared) else b
            if name_a == name_b and not (isinstance(a, Shared) and isinstance(b, Shared)):
                return True
    return False


def reached(after: tuple[tuple[int, ...], ...]) -> list[set[int]]:
    """Return all calls that each call waits for, directly or not."""
    everything: list[set[int]] = []
    for before in after:
        found = set(before)
        for earlier in before:
            found |= everything[earlier]
        everything.append(found)
    return everything


@given(BATCHES)
def test_calls_that_conflict_wait_in_the_models_order_and_no_others_do(
    batch: list[tuple[Use, ...] | None],
) -> None:
    """EXE-3: the linear edges order exactly what a quadratic reading orders."""
    naive = [
        {j for j in range(i) if batch[j] is not None and conflict(batch[j] or (), uses or ())}
        for i, uses in enumerate(batch)
    ]
    closed = reached(tuple(tuple(sorted(before)) for before in naive))

    assert reached(Schedule(batch).after) == closed


@given(BATCHES)
def test_a_call_is_ready_once_and_only_when_all_it_waits_for_have_ended(
    batch: list[tuple[Use, ...] | None],
) -> None:
    """EXE-2: every call that takes part becomes ready exactly once."""
    schedule = Schedule(batch)
    ended: set[int] = set()
    ready = schedule.ready()
    order: list[int] = []
    while ready:
        call = ready.pop()
        assert set(schedule.after[call]) <= ended
        ended.add(call)
        order.append(call)
        ready += schedule.finish(call)

    assert sorted(order) == [index for index, uses in enumerate(batch) if uses is not None]


@given(BATCHES)
def test_a_sequential_batch_is_one_chain_in_the_models_order(
    batch: list[tuple[Use, ...] | None],
) -> None:
    """EXE-3, AT-68, AT-78: each call waits for the one before it."""
    schedule = Schedule(batch, sequential=True)
    order: list[int] = []
    ready = schedule.ready()
    while ready:
        assert len(ready) == 1
        order.append(ready[0])
        ready = schedule.finish(ready[0])

    assert order == [index for index, uses in enumerate(batch) if uses is not None]


def test_groups_as_written_in_the_seed() -> None:
    """AT-78: none alone; shell, plain, shell; shell, restart, other."""
    assert Schedule([(), (), ()]).after == ((), (), ())
    assert Schedule([("shell",), (), ("shell",)]).after == ((), (), (0,))
    assert Schedule([("shell",), ("shell",), ("other",)]).after == ((), (0,), ())


def test_a_call_that_names_a_state_both_ways_has_it_for_itself() -> None:
    """EXE-3: naming a state shared and exclusive at once is exclusive."""
    assert Schedule([("a", Shared("a")), (Shared("a"),)]).after == ((), (0,))


def test_edges_grow_with_the_uses_and_not_with_their_square() -> None:
    """core-idioms I8: a thousand readers and a writer, again and again, stay linear."""
    batch: list[tuple[Use, ...] | None] = []
    for _ in range(10):
        batch += [(Shared("a"),)] * 1000 + [("a",)]

    assert sum(map(len, Schedule(batch).after)) < 2 * len(batch)


def test_finishing_a_call_twice_frees_nobody_twice() -> None:
    """An illegal move changes nothing."""
    schedule = Schedule([("a",), ("a",)])

    assert schedule.finish(0) == [1]
    assert schedule.finish(0) == []
