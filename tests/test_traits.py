"""Traits: one frozen value, checked when it is made."""

import sys
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import Definition as Named
from ferrule import InvalidValue, RawTool, Replay, Shared, TraitFields, Traits, Use

HINTS = ("read_only", "destructive", "idempotent", "open_world")


def made(**fields: object) -> Traits:
    """Return traits of whatever a caller without a type checker gives."""
    return Traits(**cast("TraitFields", fields))


def test_every_trait_has_a_default() -> None:
    """Section 1, agenttool 52, 54, 56: nothing is stated, and hints never stand in for replay."""
    silent, hinted = Traits(), Traits(read_only=True, idempotent=True)

    assert [getattr(silent, hint) for hint in HINTS] == [None] * 4
    assert (silent.sequential, silent.uses, silent.replay, silent.failures) == (
        False,
        None,
        "unknown",
        (),
    )
    assert hinted.replay == "unknown"


def test_the_fields_of_the_decorator_are_the_traits() -> None:
    """API: `@tool(...)` takes exactly the fields of `Traits`."""
    assert set(TraitFields.__annotations__) == set(Traits.__struct_fields__)


@pytest.mark.parametrize("hint", HINTS)
@pytest.mark.parametrize("value", ["yes", 1, 0, [], {}, "true", object()])
def test_a_hint_is_true_false_or_unstated(hint: str, value: object) -> None:
    """AUT-3: three values and no others; 1 is not `True`, since a fingerprint tells them apart."""
    with pytest.raises(InvalidValue, match=f"{hint} is True, False or None"):
        made(**{hint: value})


def test_hints_have_mcps_names_and_only_those_that_are_stated() -> None:
    """AUT-3, agenttool 54: unstated is not false."""
    assert Traits().hints == {}
    assert Traits(read_only=False, open_world=True).hints == {
        "readOnlyHint": False,
        "openWorldHint": True,
    }


@pytest.mark.parametrize(
    ("uses", "kept"),
    [
        (None, None),
        ((), None),
        ("shell:session", ("shell:session",)),
        (Shared("repo"), (Shared("repo"),)),
        (["a", Shared("b"), "a"], ("a", Shared("b"))),
        ((use for use in ("a", "b")), ("a", "b")),
    ],
)
def test_uses_are_kept_as_a_tuple_without_repeats(
    uses: object, kept: tuple[Use, ...] | None
) -> None:
    """EXE-3: one name, `Shared`, or several."""
    assert made(uses=uses).uses == kept


@pytest.mark.parametrize("uses", ["", [""], 5, [5], [None], Shared(""), [["a"]], [{}], b"a"])
def test_uses_that_name_nothing_are_refused(uses: object) -> None:
    """EXE-3: nonsense fails when it is declared."""
    with pytest.raises(InvalidValue, match="uses is a name"):
        made(uses=uses)


@pytest.mark.parametrize("replay", ["never", "", None, True, 5, ["safe"]])
def test_replay_is_one_of_four_words(replay: object) -> None:
    """DUR-2, agenttool 56."""
    with pytest.raises(
        InvalidValue, match='replay is "unknown", "safe", "keyed" or "until_effect"'
    ):
        made(replay=replay)


@pytest.mark.parametrize(
    "failures", [ValueError, [ValueError], ("ValueError",), (ValueError(),), (BaseException,), (5,)]
)
def test_failures_are_exception_types(failures: object) -> None:
    """FAIL-4: `KeyboardInterrupt` and its kin are no failures."""
    with pytest.raises(InvalidValue, match="failures is a tuple of exception types"):
        made(failures=failures)


@pytest.mark.parametrize("sequential", ["yes", 1, None])
def test_sequential_is_true_or_false(sequential: object) -> None:
    """EXE-3."""
    with pytest.raises(InvalidValue, match="sequential is True or False"):
        made(sequential=sequential)


def test_traits_leave_the_definition_as_it_was() -> None:
    """Section 1, agenttool 53: what a harness reads is nothing that a model reads."""
    definition = Named("a")
    tool = RawTool(
        definition,
        lambda _, __: None,
        traits=Traits(read_only=True, sequential=True, uses="a", replay="safe"),
    )

    assert tool.definition == definition
    assert tool.definition.digest == definition.digest


USES = st.lists(
    st.one_of(st.text("ab", min_size=1), st.builds(Shared, st.text("ab", min_size=1))), max_size=4
)
THREE = st.sampled_from([None, True, False])
REPLAYS: st.SearchStrategy[Replay] = st.sampled_from(["unknown", "safe", "keyed"])


@given(THREE, THREE, st.booleans(), USES, REPLAYS)
def test_any_traits_survive_a_round_trip(
    read_only: bool | None,
    destructive: bool | None,
    sequential: bool,
    uses: list[Use],
    replay: Replay,
) -> None:
    """DEF-4: equal afterwards; what is at its default is not written."""
    traits = Traits(
        read_only=read_only,
        destructive=destructive,
        sequential=sequential,
        uses=uses,
        replay=replay,
    )

    assert Traits.from_json(traits.to_json()) == traits
    assert Traits().to_json() == {}


@pytest.mark.parametrize(
    "traits",
    [
        Traits(uses=lambda _: "a"),
        Traits(replay=lambda _: "safe"),
        Traits(failures=(FileNotFoundError,)),
    ],
)
def test_traits_that_are_code_do_not_travel(traits: Traits) -> None:
    """DEF-4: what cannot be written says so, and is not left out in silence."""
    with pytest.raises(InvalidValue, match="JSON cannot carry"):
        traits.to_json()


@pytest.mark.parametrize(
    "form",
    [
        None,
        [],
        {"readOnly": True},
        {"read_only": "yes"},
        {"uses": "a"},
        {"uses": [{"state": 5}]},
        {"uses": [{"state": "a", "more": 1}]},
        {"replay": "never"},
        {"failures": []},
    ],
)
def test_what_are_no_traits_is_refused(form: object) -> None:
    """DEF-4: unknown members and wrong types."""
    with pytest.raises(InvalidValue):
        Traits.from_json(form)


def test_traits_are_one_frozen_value() -> None:
    """Section 1: a wrapper forwards all of it by forwarding one attribute."""
    with pytest.raises(AttributeError):
        Traits().sequential = True  # type: ignore[misc]  # that is the mistake under test

    assert Traits(uses=["a"]) == Traits(uses="a")
    assert sys.getsizeof(Traits()) < 200
