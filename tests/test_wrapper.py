"""Wrappers: what is changed is changed, and everything else shines through (CAP-1)."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Protocol, cast, runtime_checkable

import anyio.lowlevel
import pytest

from ferrule import (
    Context,
    Definition,
    Executor,
    FunctionTool,
    Guard,
    Inject,
    InputRequest,
    InvalidCall,
    InvalidTool,
    InvalidWrappingChain,
    Invocation,
    Limits,
    Problem,
    RawTool,
    Registry,
    Result,
    Shared,
    Tool,
    ToolCall,
    Traits,
    Within,
    Wrapper,
    bind,
    capability,
    tool,
    unwrap,
)
from ferrule._tool import Closing, Preparing, Validating
from support import echo, raw

LAYERS: list[Callable[[Tool], Tool]] = [Wrapper, lambda inner: Guard(inner, lambda _: True)]


@runtime_checkable
class Priced(Protocol):
    """A capability that Ferrule knows nothing of."""

    price: int


class PricedTool(RawTool):
    """A tool with a capability of its own."""

    def __init__(self, name: str = "priced", price: int = 3) -> None:
        super().__init__(Definition(name), lambda _, __: "done")
        self.price = price


class Handmade:
    """A tool that is made of nothing of ours."""

    def __init__(self, wrapped: object = None) -> None:
        self.wrapped = wrapped

    @property
    def definition(self) -> Definition:
        """What a model reads."""
        return Definition("handmade")

    @property
    def traits(self) -> Traits:
        """What a harness reads."""
        return Traits()

    async def call(self, _: Invocation, __: Context) -> Result:
        """Do nothing."""
        return Result()


def wrapped(inner: Tool, count: int) -> Tool:
    """Return a tool in so many wrappers."""
    for _ in range(count):
        inner = Wrapper(inner)
    return inner


# ---- the chain -----------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", LAYERS)
def test_a_capability_is_found_on_the_tool_inside(layer: Callable[[Tool], Tool]) -> None:
    """Scope 37, 38; CAP-1: through two wrappers, and through a guard."""
    inner = PricedTool()

    assert capability(layer(layer(inner)), Priced) is inner
    assert capability(layer(echo()), Priced) is None


def test_the_outermost_that_has_a_capability_is_found() -> None:
    """Scope 42; CAP-1: a wrapper that declares it has the last word."""

    class Dearer(Wrapper):
        price = 9

    inner = PricedTool()
    found = capability(Wrapper(Dearer(inner)), Priced)

    assert found is not None
    assert (found.price, inner.price) == (9, 3)


def test_a_tool_that_wraps_itself_is_refused() -> None:
    """Scope 39; CAP-1: the search ends; what stands before the circle is found all the same."""
    circle = Handmade()
    circle.wrapped = circle

    with pytest.raises(InvalidWrappingChain, match="wraps itself"):
        capability(circle, Priced)
    with pytest.raises(InvalidWrappingChain, match="wraps itself"):
        bind(circle)
    assert capability(circle, Handmade) is circle


def test_two_tools_that_wrap_each_other_are_refused() -> None:
    """Scope 40; CAP-1: and a registry says which of its tools it is."""
    one = Handmade()
    one.wrapped = Handmade(one)

    with pytest.raises(InvalidWrappingChain, match="wraps itself"):
        capability(one, Priced)
    with pytest.raises(InvalidWrappingChain, match=r"tools\[1\]: Handmade wraps itself"):
        Registry([echo(), one])


def test_sixty_four_wrappers_are_the_most() -> None:
    """Scope 41; CAP-1: the tool inside 64 is found and bound; inside 65 it is refused."""
    inner = PricedTool()

    assert capability(wrapped(inner, 64), Priced) is inner
    assert bind(wrapped(inner, 64)).contract.name == "priced"
    with pytest.raises(InvalidWrappingChain, match="more than 64 wrappers"):
        capability(wrapped(inner, 65), Priced)
    with pytest.raises(InvalidTool, match="more than 64 wrappers"):
        bind(wrapped(inner, 65))


@pytest.mark.parametrize("inner", [None, "text", 3, object()])
def test_what_is_no_tool_ends_the_chain(inner: object) -> None:
    """Scope 43; CAP-1: nothing is found, nothing is raised."""
    outer = Handmade(inner)

    assert unwrap(outer) is None
    assert capability(outer, Priced) is None
    assert bind(outer).contract.name == "handmade"


@pytest.mark.parametrize("error", [ValueError("gone"), AttributeError("gone"), SystemExit(3)])
def test_an_unwrap_that_raises_is_contained(error: BaseException) -> None:
    """Scope 44; CAP-1: in `capability` as in `bind`; the cause is kept."""

    class Broken(Wrapper):
        @property
        def wrapped(self) -> Tool:
            raise error

    broken = Broken(echo())

    for walk in (unwrap, bind, lambda outer: capability(outer, Priced)):
        with pytest.raises(InvalidWrappingChain, match="Broken wraps a tool that cannot be") as hit:
            walk(broken)
        assert hit.value.__cause__ is error


def test_unwrap_goes_one_layer_at_a_time() -> None:
    """agenttool 60, 63; CAP-1: twice through two wrappers; a plain tool wraps nothing."""
    inner = echo()
    outer = Wrapper(Wrapper(inner))
    middle = unwrap(outer)

    assert middle is outer.wrapped
    assert middle is not None
    assert unwrap(middle) is inner
    assert unwrap(inner) is None


# ---- what a wrapper lets through -----------------------------------------------------------------


def full_tool(closed: list[str]) -> FunctionTool[..., str]:
    """Return a tool that declares everything a tool can."""

    @tool(
        name="full",
        title="Full",
        description="Everything.",
        read_only=False,
        destructive=True,
        idempotent=True,
        open_world=False,
        sequential=True,
        uses=("a", Shared("b")),
        confinement="container:build",
        replay="keyed",
        failures=(FileNotFoundError,),
        validate=lambda arguments: "no" if arguments["count"] == 13 else None,
        close=lambda: closed.append("full"),
    )
    def full(
        count: int, path: Annotated[Path, Within("root")], tenant: Annotated[str, Inject("tenant")]
    ) -> str:
        return f"{count} {path.name} {tenant}"

    return full


@pytest.mark.anyio
@pytest.mark.parametrize("layer", LAYERS)
async def test_every_reader_reads_a_wrapper_as_the_tool(
    layer: Callable[[Tool], Tool], tmp_path: Path
) -> None:
    """agenttool 60; AUT-5, CAP-1: definition, traits, validation, injection, closing."""
    closed: list[str] = []
    inner = full_tool(closed)
    outer = layer(inner)
    inject = {"root": tmp_path, "tenant": "acme"}

    assert (outer.definition, outer.traits) == (inner.definition, inner.traits)
    assert not callable(outer)
    plain, same = Registry([inner], inject=inject), Registry([outer], inject=inject)
    assert plain.definitions() == same.definitions()
    assert bind(inner).contract.fingerprint == bind(outer).contract.fingerprint
    async with same:
        outcomes = await Executor(same).run(
            [
                ToolCall.of("full", {"count": 1, "path": "a.txt"}),
                ToolCall.of("full", {"count": 13, "path": "a.txt"}),
                ToolCall.of("full", {"count": 1, "path": "../a.txt"}),
                ToolCall.of("full", {"count": 1, "path": "a.txt", "tenant": "other"}),
            ]
        )
    assert [outcome.text for outcome in outcomes] == [
        "1 a.txt acme",
        "Error: invalid arguments: no",
        'Error: invalid arguments: path: expected a path inside the root "root"',
        outcomes[3].text,
    ]
    assert outcomes[3].text.startswith("Error: invalid arguments: ")
    assert closed == ["full"]
    await same.aclose()
    assert closed == ["full"]


@pytest.mark.parametrize("protocol", [Validating, Closing, Preparing])
@pytest.mark.parametrize("layer", LAYERS)
def test_every_optional_protocol_is_found_and_not_made_up(
    layer: Callable[[Tool], Tool], protocol: type[object]
) -> None:
    """agenttool 61, 65; CAP-1: a wrapper has what the tool inside has, and nothing more."""
    inner = full_tool([])

    assert capability(layer(inner), protocol) is inner
    assert capability(layer(Handmade()), protocol) is None


def test_a_registry_asks_a_wrapped_tool_for_what_it_injects() -> None:
    """FN-5, CAP-1: a name that the registry lacks is refused through a wrapper too."""
    with pytest.raises(InvalidTool, match=r"tools\[0\]: tool `full` takes `root`"):
        Registry([Wrapper(full_tool([]))], inject={"tenant": "acme"})


@pytest.mark.anyio
async def test_two_wrappers_run_from_the_outside_in() -> None:
    """agenttool 63; CAP-1: each may act before and after the tool."""
    seen: list[str] = []

    class Noting(Wrapper):
        def __init__(self, inner: Tool, note: str) -> None:
            super().__init__(inner)
            self.note = note

        async def call(self, invocation: Invocation, context: Context, /) -> Result | InputRequest:
            seen.append(self.note)
            result = await super().call(invocation, context)
            seen.append(self.note.upper())
            return result

    outer = Noting(Noting(raw("work", lambda _, __: seen.append("work")), "b"), "a")
    await Executor([outer]).run([ToolCall.of("work")])

    assert seen == ["a", "b", "work", "B", "A"]


@pytest.mark.anyio
async def test_a_wrapper_with_a_name_renames_the_tool() -> None:
    """REG-1: two tools of one name stand side by side once one is renamed."""
    one, other = raw("search", lambda _, __: "web"), raw("search", lambda _, __: "files")
    registry = Registry([one, Wrapper(other, name="search_files")])
    outcomes = await Executor(registry).run(
        [ToolCall.of("search"), ToolCall.of("search_files"), ToolCall.of("search_file")]
    )

    assert [outcome.text for outcome in outcomes[:2]] == ["web", "files"]
    assert "search_files" in outcomes[2].text
    with pytest.raises(InvalidTool, match="the name of a tool is"):
        Wrapper(one, name="se arch")


@pytest.mark.anyio
async def test_a_wrapper_that_shows_another_schema_has_that_one_enforced() -> None:
    """SCH-3, CAP-1: the tool's own typed decoding stays, and is no way round the new schema."""

    @tool
    async def count(to: int) -> int:
        return to

    class Small(Wrapper):
        @property
        def definition(self) -> Definition:
            schema = dict(count.definition.input_schema)
            schema["properties"] = {"to": {"type": "integer", "maximum": 9}}
            return Definition("count", input_schema=schema)

    right, large, text = await Executor([Small(count)]).run(
        [ToolCall.of("count", {"to": to}) for to in (9, 10, "9")]
    )

    assert right.text == "9"
    assert large.text == "Error: invalid arguments: to: expected at most 9"
    assert text.text.startswith("Error: invalid arguments: to: ")


def test_what_is_wrapped_is_read_once_and_frozen() -> None:
    """Scope 70, 71; CAP-1: what was shown is what is bound, however the tool changes later."""
    reads: list[str] = []

    class Growing(Handmade):
        @property
        def definition(self) -> Definition:
            reads.append("definition")
            return Definition("growing", description=f"read {len(reads)}")

    guard = Guard(Growing(), lambda _: True)
    binding = bind(guard)

    assert reads == ["definition"]
    assert binding.contract.definition.description == "read 1"


@pytest.mark.parametrize("thing", [None, "read", print, PricedTool, Registry()])
def test_only_tools_are_wrapped(thing: object) -> None:
    """agenttool 64, scope 69; FN-1: says what was given instead."""
    with pytest.raises(InvalidTool, match="goes around a tool, not "):
        Wrapper(cast("Tool", thing))


def test_a_tool_that_cannot_be_read_cannot_be_wrapped() -> None:
    """FN-1: what its definition raised is the cause."""

    class Unreadable(Handmade):
        @property
        def definition(self) -> Definition:
            raise RuntimeError("no file")

    with pytest.raises(InvalidTool, match="Unreadable cannot be read as a tool: no file") as hit:
        Wrapper(Unreadable())
    assert isinstance(hit.value.__cause__, RuntimeError)


@pytest.mark.anyio
async def test_a_tool_under_two_names_is_closed_once() -> None:
    """CLO-1: the registry closes what owns something, not how often it is offered."""
    closed: list[str] = []
    inner = RawTool(Definition("one"), lambda _, __: None, close=lambda: closed.append("one"))

    class Counting(Handmade):
        async def aclose(self) -> None:
            closed.append("counting")

    counting = Counting()
    async with Registry(
        [inner, Wrapper(inner, name="two"), counting, Wrapper(counting, name="three")]
    ):
        pass

    assert closed == ["one", "counting"]


def test_a_contract_keeps_no_wrapped_tool_alive() -> None:
    """ADM-1: nor its wrappers; the contract still admits."""

    class Plain(Wrapper):
        pass

    outer = Plain(echo())
    contract = bind(outer, limits=Limits()).contract
    gone = weakref.ref(outer)
    del outer
    gc.collect()

    assert gone() is None
    assert contract.admit(ToolCall.of("echo", {"a": 1})).arguments == {"a": 1}


def test_the_validator_of_a_wrapper_has_the_last_word() -> None:
    """Scope 33, 42; CAP-1, ADM-2: it refuses at admission, before any guard is asked."""
    asked: list[str] = []

    def policy(_: object) -> bool:
        asked.append("asked")
        return True

    class Even(Wrapper):
        def validator(self) -> Callable[[dict[str, object]], object]:
            def even(arguments: dict[str, object]) -> object:
                if cast("int", arguments["n"]) % 2:
                    problem = Problem(path="n", rule="even", expected="expected an even number")
                    raise InvalidCall("invalid_arguments", [problem])
                return arguments

            return even

    contract = bind(Guard(Even(echo()), policy)).contract

    assert contract.admit(ToolCall.of("echo", {"n": 2})).value == {"n": 2}
    with pytest.raises(InvalidCall, match="n: expected an even number"):
        contract.admit(ToolCall.of("echo", {"n": 3}))
    assert asked == []


# ---- a registry of wrapped tools -----------------------------------------------------------------


def test_map_wraps_leaves_out_and_keeps_origins() -> None:
    """REG-1: the first registry stays as it is, and what comes later is wrapped alike."""
    first = Registry([echo("read"), echo("write")])
    first.register([echo("query")], origin="mcp:db")
    second = first.map(lambda one: None if one.definition.name == "write" else Wrapper(one))
    second.register([echo("list"), echo("write")], origin="mcp:git")

    assert first.names == ["query", "read", "write"]
    assert second.names == ["list", "query", "read"]
    origins = {name: second.resolve(name) for name in second.names}
    assert {n: b.contract.origin for n, b in origins.items() if b is not None} == {
        "list": "mcp:git",
        "query": "mcp:db",
        "read": "local",
    }
    assert all(isinstance(one, Wrapper) for one in second)


def test_map_says_what_cannot_be() -> None:
    """REG-1: nothing that is no tool, and no two of one name."""
    registry = Registry([echo("a"), echo("b")])

    with pytest.raises(InvalidTool, match="not a tool"):
        registry.map(lambda _: cast("Tool", 3))
    with pytest.raises(Exception, match="a tool named `c` is there already"):
        registry.map(lambda one: Wrapper(one, name="c"))


@pytest.mark.anyio
async def test_a_mapped_registry_opens_wraps_and_closes_its_sources() -> None:
    """REG-1, CLO-1: whichever is entered opens them, once."""
    seen: list[str] = []

    class Files:
        origin = "files"

        @property
        def tools(self) -> list[Tool]:
            return [echo("read"), echo("write")]

        async def __aenter__(self) -> object:
            seen.append("open")
            return self

        async def aclose(self) -> None:
            seen.append("close")

    registry = (
        Registry([Files()])
        .map(lambda one: None if one.definition.name == "write" else one)
        .map(lambda one: Wrapper(one, name=f"files_{one.definition.name}"))
    )
    async with registry:
        assert registry.names == ["files_read"]
        assert seen == ["open"]

    assert seen == ["open", "close"]


@pytest.mark.anyio
async def test_a_wrapper_of_a_sequential_tool_orders_its_batch() -> None:
    """agenttool 62, AT-78; AUT-5, EXE-3: what it uses is kept beside that it is sequential."""
    order: list[str] = []

    async def work(arguments: dict[str, object], _: Context) -> None:
        order.append(f"begin {arguments['i']}")
        await anyio.lowlevel.checkpoint()
        order.append(f"end {arguments['i']}")

    outer = Wrapper(raw("work", work, sequential=True, uses="shell"))
    calls = [ToolCall.of("work", {"i": i}) for i in range(3)]
    await Executor([outer]).run(calls)

    assert (outer.traits.sequential, outer.traits.uses) == (True, ("shell",))
    assert order == [f"{what} {i}" for i in range(3) for what in ("begin", "end")]
    assert (await Executor([outer]).plan(calls)).after == ((), (0,), (1,))
