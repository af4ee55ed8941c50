"""Where the typed conversion alone lets a call in, it takes nothing that the schema refuses."""

from typing import Any, Literal, Optional

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import FunctionTool, InvalidCall, Limits, Tool, ToolCall, bind, tool
from ferrule._tool import Validating
from ferrule.errors import InvalidSchema
from ferrule.schema import _engine, compile
from ferrule.schema._document import Document
from ferrule.schema._engine import Builder, Engine


@tool
async def scalars(s: str, i: int, f: float = 1.0, b: bool = False, n: None = None) -> None:
    """Take JSON's own values."""


@tool
async def nested(
    texts: list[str],
    table: dict[str, int] | None = None,
    choice: Literal["a", "b"] = "a",
    anything: Any = None,  # noqa: ANN401  # it is what is tested
    either: Optional[list[float]] = None,  # noqa: UP045  # as older code writes it
) -> None:
    """Take lists, maps and choices of them."""


@tool
async def inexact(when: bytes, pair: tuple[int, int] = (1, 2)) -> None:
    """Take what JSON has no form of its own for."""


def quick_of(declared: Tool) -> type | None:
    """Return the type that a tool's arguments may be converted to at once, if it has one."""
    assert isinstance(declared, Validating)
    quick: type | None = getattr(declared.validator(), "quick", None)
    return quick


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**54), 2**54),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "a", "b", "c", "aGk="]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=4,
)
NAMES = ["s", "i", "f", "b", "n", "texts", "table", "choice", "anything", "either", "when", "x"]
ARGUMENTS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6)


@pytest.mark.parametrize("declared", [scalars, nested])
def test_these_tools_have_a_quick_way_in(declared: FunctionTool[..., object]) -> None:
    """SCH-3: otherwise the next test would say nothing."""
    assert quick_of(declared) is not None


def test_what_only_the_schema_refuses_has_no_quick_way_in() -> None:
    """SCH-3: a type whose conversion is not exactly its schema asks the schema."""

    @tool(validate=lambda arguments: None)
    async def ruled(i: int) -> None:
        """Have a rule."""

    @tool(input_schema={"type": "object", "properties": {"i": {"type": "integer", "maximum": 1}}})
    async def replaced(i: int) -> None:
        """Have another schema."""

    assert quick_of(inexact) is None
    assert quick_of(ruled) is None
    assert quick_of(replaced) is None


@pytest.mark.parametrize("declared", [scalars, nested])
@given(arguments=ARGUMENTS)
def test_the_quick_way_takes_nothing_that_the_schema_refuses(
    declared: FunctionTool[..., object], arguments: dict[str, object]
) -> None:
    """SCH-3: what is enforced is never weaker than what was sent."""
    quick = quick_of(declared)
    assert quick is not None
    valid = compile(declared.definition.input_schema).is_valid(arguments)
    try:
        msgspec.convert(arguments, quick)
    except msgspec.ValidationError:
        return
    assert valid


@pytest.mark.parametrize("declared", [scalars, nested])
@given(arguments=ARGUMENTS)
def test_a_call_is_let_in_just_when_its_schema_takes_it(
    declared: FunctionTool[..., object], arguments: dict[str, object]
) -> None:
    """ADM-2, SCH-3: the quick way changes what a call costs and nothing else."""
    contract = bind(declared).contract
    valid = compile(declared.definition.input_schema).is_valid(arguments)
    call = ToolCall.of(declared.definition.name, arguments)
    if valid:
        assert contract.admit(call).arguments == arguments
    else:
        with pytest.raises(InvalidCall):
            contract.admit(call)


def test_its_schema_is_compiled_at_the_first_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """PERFORMANCE P7: what is never asked is never made; and a refusal says what it always says."""
    made: list[object] = []

    def compiled(document: Document) -> tuple[Engine, Builder]:
        made.append(document)
        return _engine.compiled(document)

    monkeypatch.setattr("ferrule.schema._compile.compiled", compiled)
    contract = bind(scalars).contract
    contract.admit(ToolCall.of("scalars", {"s": "a", "i": 1}))
    before = len(made)
    for _ in range(2):
        with pytest.raises(InvalidCall, match="s: expected string, got integer"):
            contract.admit(ToolCall.of("scalars", {"s": 5, "i": 1}))

    assert (before, len(made)) == (0, 1)


@given(value=VALUES)
def test_a_schema_that_is_compiled_later_is_the_same(value: object) -> None:
    """SCH-3: whichever is asked first of it, and whether numbers are watched or narrowed."""
    for schema in ({"type": "integer"}, {"not": {"type": "integer"}}, {"enum": ["a", 1]}):
        one = compile(schema)
        assert compile(schema, later=True).is_valid(value) == one.is_valid(value)
        assert compile(schema, later=True).problems(value) == one.problems(value)
        assert compile(schema, later=True).schema == one.schema


def test_a_schema_over_its_budget_is_refused_at_once() -> None:
    """JSON-3: also where it is compiled later."""

    async def chooses(name: str) -> None:
        """Choose."""

    chooses.__annotations__["name"] = Literal[tuple(f"choice {n}" for n in range(100))]
    chooser = tool(chooses)

    assert quick_of(chooser) is not None
    with pytest.raises(InvalidSchema, match="more than 50 values"):
        bind(chooser, limits=Limits(nodes=50))
