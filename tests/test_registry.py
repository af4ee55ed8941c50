"""A registry: whole batches or none, exact names, and everything closed once."""

import functools
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Self, cast

import anyio
import pytest
import trio
import trio.testing

from ferrule import (
    Context,
    Definition,
    DuplicateTool,
    Executor,
    FerruleError,
    InvalidCall,
    InvalidTool,
    RawTool,
    Registry,
    Rejected,
    Result,
    Tool,
    ToolCall,
    outcome_of,
)
from support import echo, permitted, raw


def named(*names: str, text: str = "") -> list[RawTool]:
    """Return a tool that returns nothing for each name."""
    return [RawTool(Definition(name, description=text), lambda _, __: None) for name in names]


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_tools_are_listed_by_name_and_found_by_exact_name() -> None:
    """Scope 99, 106, agenttool 48; REG-1: sorted, the same binding each time, a call works."""
    registry = Registry()
    registry.register([echo("zeta"), echo("alpha"), echo("Beta")])

    assert [definition.name for definition in registry.definitions()] == ["Beta", "alpha", "zeta"]
    assert registry.resolve("beta") is None
    assert registry.resolve("alpha ") is None
    assert ("zeta" in registry, "gamma" in registry, len(registry)) == (True, False, 3)
    assert {tool.definition.name for tool in registry} == {"zeta", "alpha", "Beta"}
    binding = registry.resolve("zeta")
    assert binding is not None
    assert binding is registry.resolve("zeta")
    given = await binding.call(binding.contract.admit(ToolCall.of("zeta", {"a": 1})))
    assert given == Result(structured_content={"a": 1})


def test_a_definition_that_was_listed_is_nobody_elses() -> None:
    """Scope 100; REG-1: changing it changes neither the next listing nor what is enforced."""
    registry = Registry([echo()])
    cast("dict[str, object]", registry.definitions()[0].input_schema)["type"] = "array"

    assert registry.definitions()[0].input_schema == {"type": "object"}


@pytest.mark.parametrize("batch", [("new", "old"), ("new", "new"), ("new", "newer", "newer")])
def test_a_batch_with_a_taken_name_registers_nothing(batch: tuple[str, ...]) -> None:
    """Scope 101, 102, agenttool 48; REG-1: all of a batch or none; it says what would fix it."""
    registry = Registry(named("old"))

    with pytest.raises(DuplicateTool, match=f"`{batch[-1]}` is there already.*give one of them"):
        registry.register(named(*batch))

    assert registry.names == ["old"]


def test_the_first_conflict_in_batch_order_is_told() -> None:
    """Scope 103; REG-1: the same one in 32 of 32 repeats, whatever order the names came in."""
    taken = named(*"abcdefgh")
    for repeat in range(32):
        registry = Registry(taken[repeat % 8 :] + taken[: repeat % 8])
        with pytest.raises(DuplicateTool) as caught:
            registry.register(named("new", *"hgfedcba"))
        assert str(caught.value).startswith("tools[1]: a tool named `h` is there already")


def test_a_batch_with_a_tool_that_cannot_work_registers_nothing() -> None:
    """Scope 104; REG-1, SCH-2: the sentence says which of the batch it is."""
    broken = RawTool(
        Definition("broken", input_schema={"type": "object", "properties": {"a": {"$ref": "#/b"}}}),
        lambda _, __: None,
    )
    registry = Registry()

    with pytest.raises(InvalidTool, match=r"tools\[1\].*`broken`"):
        registry.register([*named("fine"), broken])
    with pytest.raises(InvalidTool, match=r"tools\[0\].*NoneType"):
        registry.register([cast("Tool", None)])

    assert len(registry) == 0


def test_one_tool_where_a_list_belongs_is_told() -> None:
    """Scope 104: the most common slip says what to write."""
    with pytest.raises(InvalidTool, match="give a list of tools"):
        Registry(cast("Iterable[Tool]", echo()))


def test_an_equal_name_of_another_origin_is_a_duplicate() -> None:
    """REG-1: a name belongs to (origin, name); both origins are named."""
    registry = Registry(named("read"), origin="local")

    with pytest.raises(DuplicateTool, match="origin `local`, and origin `mcp:git`"):
        registry.register(named("read"), origin="mcp:git")


# ---- replacing -----------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_replacing_puts_new_tools_in_place_and_admitted_calls_finish_on_the_old() -> None:
    """REG-1: what was admitted keeps its binding; a name that is gone is unknown."""
    registry = Registry(named("kept"))
    registry.register([raw("a", lambda _, __: "old"), *named("gone")], origin="mcp:x")
    old = registry.resolve("a")
    assert old is not None
    admitted = old.contract.admit(ToolCall.of("a"))

    registry.replace("mcp:x", [raw("a", lambda _, __: "new"), *named("more")])

    assert registry.names == ["a", "kept", "more"]
    assert registry.resolve("a") is not old
    assert await old.call(admitted) == Result.of("old")
    assert [o.text for o in await Executor(registry).run([ToolCall.of("a")])] == ["new"]


@pytest.mark.parametrize("bad", ["duplicate", "broken"])
def test_a_replacement_that_fails_leaves_everything_as_it_was(bad: str) -> None:
    """REG-1: `replace` is atomic; another origin's name is a duplicate."""
    registry = Registry(named("kept"))
    registry.register(named("a"), origin="mcp:x")
    before = registry.resolve("a")
    worse: list[Tool] = [*named("b"), *named("kept")]

    with pytest.raises(DuplicateTool if bad == "duplicate" else InvalidTool):
        registry.replace("mcp:x", worse if bad == "duplicate" else [cast("Tool", None)])

    assert registry.names == ["a", "kept"]
    assert registry.resolve("a") is before


# ---- threads -------------------------------------------------------------------------------------


def side_by_side(count: int, work: Callable[[int], object]) -> list[object]:
    """Return what `work` gives in as many threads, all let go at once."""
    barrier = threading.Barrier(count)

    def started(number: int) -> object:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(started, range(count)))


def test_of_batches_that_compete_for_a_name_one_is_registered_whole() -> None:
    """REG-1: safe between threads; the others leave nothing behind."""
    registry = Registry()

    def compete(number: int) -> bool:
        try:
            registry.register(named(f"own{number}", "prize", f"more{number}"))
        except DuplicateTool:
            return False
        return True

    won = side_by_side(16, compete)

    assert won.count(True) == 1
    winner = won.index(True)
    assert registry.names == [f"more{winner}", f"own{winner}", "prize"]


def test_a_reader_never_sees_half_of_a_replacement() -> None:
    """REG-1: the two tools that are replaced together are listed together."""
    registry = Registry(named("a", "b", text="0"))

    def work(number: int) -> bool:
        if number < 4:
            for version in range(25):
                registry.replace("local", named("a", "b", text=f"{number}.{version}"))
            return True
        listings = [registry.definitions() for _ in range(200)]
        return all(a.description == b.description for a, b in listings)

    assert all(side_by_side(8, work))


# ---- closing -------------------------------------------------------------------------------------


def closing(name: str, close: Callable[[], object]) -> RawTool:
    """Return a tool that owns something."""
    return RawTool(Definition(name), lambda _, __: None, close=cast("Callable[[], None]", close))


class Owner(RawTool):
    """A tool whose own `aclose` does what it is told to."""

    def __init__(self, name: str, close: Callable[[], object]) -> None:
        super().__init__(Definition(name), lambda _, __: None)
        self.close = close

    async def aclose(self) -> None:
        """Do it."""
        self.close()


class Careless(Owner):
    """A tool whose `aclose` is a plain function."""

    def aclose(self) -> None:  # type: ignore[override]  # that is the mistake under test
        """Do it."""
        self.close()


@pytest.mark.anyio
async def test_each_tool_is_closed_once_and_in_order() -> None:
    """CLO-1, scope, agenttool 51, 58: plain and async, twice closed, twice bound."""
    closed: list[str] = []

    async def close_later() -> None:
        await anyio.lowlevel.checkpoint()
        closed.append("b")

    again = Owner("d", lambda: closed.append("d"))
    owner = closing("a", lambda: closed.append("a"))
    registry = Registry([owner, closing("b", close_later), *named("c")])
    registry.register([again], origin="other")
    registry.replace("other", [again])
    async with registry:
        assert closed == []
    await registry.aclose()
    await owner.aclose()

    assert closed == ["a", "b", "d"]


class Unprintable(Exception):
    """An error that breaks when it is asked what it says."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.anyio
async def test_closing_goes_on_after_errors_and_names_the_tools() -> None:
    """CLO-1, agenttool 58: one `ExceptionGroup`; each cause is the tool's own error."""
    closed: list[str] = []
    errors = [ValueError("the lock is gone"), SystemExit(3), Unprintable()]

    def raising(error: BaseException) -> Callable[[], object]:
        def close() -> None:
            raise error

        return close

    tools = [
        closing("a", raising(errors[0])),
        Owner("b", raising(errors[1])),
        Careless("c", raising(errors[2])),
        Careless("d", lambda: closed.append("d")),
        closing("e", lambda: closed.append("e")),
    ]
    with pytest.raises(ExceptionGroup) as caught:
        await Registry(tools).aclose()

    assert closed == ["d", "e"]
    assert [str(error) for error in caught.value.exceptions] == [
        "tool `a` did not close: the lock is gone",
        "tool `b` did not close: 3",
        "tool `c` did not close: Unprintable",
    ]
    assert [error.__cause__ for error in caught.value.exceptions] == errors


def test_closing_waits_for_each_tool_at_most_grace() -> None:
    """CLO-1: two that never end cost `grace` each, and the next is closed all the same."""
    closed: list[str] = []

    async def main() -> tuple[float, tuple[Exception, ...]]:
        stuck = [closing(name, trio.sleep_forever) for name in "ab"]
        registry = Registry([*stuck, closing("c", lambda: closed.append("c"))], grace=30)
        begun = trio.current_time()
        with pytest.raises(ExceptionGroup) as caught:
            await registry.aclose()
        return trio.current_time() - begun, caught.value.exceptions

    virtual, errors = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

    assert virtual == 60
    assert closed == ["c"]
    assert [str(error) for error in errors] == [
        "tool `a` did not close within 30 s",
        "tool `b` did not close within 30 s",
    ]


@pytest.mark.anyio
async def test_closing_goes_on_when_it_is_cancelled_from_outside() -> None:
    """CLO-1: what a tool owns is released even while the program is being stopped."""
    closed: list[str] = []

    async def close(name: str) -> None:
        await anyio.lowlevel.checkpoint()
        closed.append(name)

    tools = [closing(name, functools.partial(close, name)) for name in "ab"]
    with anyio.CancelScope() as scope:
        scope.cancel()
        await Registry(tools).aclose()

    assert closed == ["a", "b"]


@pytest.mark.anyio
async def test_a_call_after_closing_is_rejected_as_unavailable() -> None:
    """CLO-1, FAIL-6: in a batch, and for what was admitted or permitted before."""
    ran: list[str] = []
    registry = Registry([raw("a", lambda _, __: ran.append("a"))])
    binding = registry.resolve("a")
    assert binding is not None
    invocation = binding.contract.admit(ToolCall.of("a"))
    context = Context.of(invocation.call)
    permit = await permitted(binding, invocation, context)

    await registry.aclose()
    [outcome] = await Executor(registry).run([ToolCall.of("a")])
    with pytest.raises(InvalidCall) as caught:
        await binding.call(invocation, context, permit)

    assert isinstance(outcome, Rejected)
    assert (outcome.kind, ran) == ("unavailable", [])
    assert outcome.text.startswith('Error: tool "a" is not available now')
    assert outcome_of(caught.value, tool="a", dispatched=False).text == outcome.text


@pytest.mark.anyio
@pytest.mark.parametrize("plain", [True, False])
async def test_a_tool_that_was_closed_while_a_hook_ran_did_not_run(plain: bool) -> None:
    """CLO-1, FAIL-6: nothing took effect, so it is `Rejected` and not `Unknown`."""
    ran: list[str] = []
    registry = Registry([raw("a", lambda _, __: ran.append("a"))])

    async def close(_: Context) -> None:
        await registry.aclose()

    def close_too(context: Context) -> Awaitable[None]:
        return close(context)

    hook = close_too if plain else close
    [outcome] = await Executor(registry, on_dispatch=hook).run([ToolCall.of("a")])

    assert isinstance(outcome, Rejected)
    assert (outcome.kind, ran) == ("unavailable", [])


@pytest.mark.anyio
async def test_an_executor_closes_nothing_that_it_did_not_open() -> None:
    """CLO-1: the registry's owner closes it."""
    closed: list[str] = []
    registry = Registry([closing("a", lambda: closed.append("a"))])

    await Executor(registry).run([ToolCall.of("a")])
    assert closed == []
    async with registry:
        pass
    assert closed == ["a"]


@pytest.mark.anyio
async def test_stopping_a_call_closes_nothing() -> None:
    """CLO-2, agenttool 59: what a tool owns beyond the call stays, and is closed with the rest."""
    closed: list[str] = []
    begun = anyio.Event()

    async def work(_: dict[str, object], __: Context) -> str:
        begun.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return f"what there was so far, {closed} closed"
        raise AssertionError

    tool = RawTool(Definition("a"), work, close=lambda: closed.append("a"))
    async with Registry([tool]) as registry:
        async with Executor(registry).batch([ToolCall.of("a")]) as batch:
            await begun.wait()
        assert [outcome.text for outcome in batch.outcomes] == ["what there was so far, [] closed"]
        assert closed == []

    assert closed == ["a"]


# ---- sources -------------------------------------------------------------------------------------


class Server:
    """A source that tells what was done to it."""

    def __init__(self, name: str, log: list[str], *, error: Exception | None = None) -> None:
        self.origin = f"mcp:{name}"
        self._name, self._log, self._error = name, log, error
        self._open = False

    @property
    def tools(self) -> Iterable[Tool]:
        """One tool, once it is open."""
        if not self._open:
            raise FerruleError("not open")
        return [echo(f"{self._name}_read")]

    async def __aenter__(self) -> object:
        """Open, or fail."""
        self._log.append(f"open {self._name}")
        if self._error is not None:
            raise self._error
        self._open = True
        return self

    async def aclose(self) -> None:
        """Close."""
        self._log.append(f"close {self._name}")
        self._open = False


@pytest.mark.anyio
async def test_a_registry_opens_and_closes_the_sources_it_holds() -> None:
    """CLO-1: in order, their tools under their own origin, each closed once."""
    log: list[str] = []
    one, two = Server("git", log), Server("web", log)
    registry = Registry([one, echo("own"), two])
    assert registry.names == ["own"]

    async with registry:
        assert registry.names == ["git_read", "own", "web_read"]
        binding = registry.resolve("git_read")
        assert binding is not None
        assert binding.contract.origin == "mcp:git"
        [outcome] = await Executor(registry).run([ToolCall.of("web_read", {"a": 1})])
        assert outcome.text == '{"a":1}'

    assert log == ["open git", "open web", "close git", "close web"]


@pytest.mark.anyio
async def test_a_source_that_cannot_be_opened_closes_what_was_opened_before() -> None:
    """CLO-1: its own error comes out, and nothing stays open."""
    log: list[str] = []
    closed: list[str] = []
    refusal = ConnectionError("nobody listens")
    registry = Registry(
        [
            Server("git", log),
            Server("web", log, error=refusal),
            Server("never", log),
            closing("own", lambda: closed.append("own")),
        ]
    )
    with pytest.raises(ConnectionError) as caught:
        async with registry:
            raise AssertionError

    assert caught.value is refusal
    assert [line for line in log if line.startswith("open")] == ["open git", "open web"]
    assert "close git" in log
    assert closed == ["own"]


class Places:
    """A source of several origins, whose tools change."""

    origin = "places"

    def __init__(self, **offered: str) -> None:
        self.offered = {f"at:{place}": named(*names) for place, names in offered.items()}
        self.told: list[Callable[[str], None]] = []

    @property
    def tools(self) -> list[RawTool]:
        """All of them."""
        return [tool for tools in self.offered.values() for tool in tools]

    def when_changed(self, told: Callable[[str], None]) -> None:
        """Remember who wants to know."""
        self.told.append(told)

    def change(self, place: str, *names: str) -> None:
        """Offer something else, and tell everybody."""
        self.offered[f"at:{place}"] = named(*names)
        for told in self.told:
            told(f"at:{place}")

    async def __aenter__(self) -> Self:
        return self

    async def aclose(self) -> None:
        """Close."""


@pytest.mark.anyio
async def test_a_source_that_changes_is_followed_origin_by_origin() -> None:
    """CLO-1, REG-1, agenttool 92: what was added is there, what was removed is gone."""
    source = Places(a="xy", b="z")
    async with Registry([source, *named("m")]) as registry:
        before = registry.resolve("x")
        source.change("a", "x", "w")
        origins = {b.contract.origin for b in map(registry.resolve, "xz") if b is not None}

        assert registry.names == ["m", "w", "x", "z"]
        assert registry.resolve("x") is not before
        assert origins == {"at:a", "at:b"}
    source.change("a")
    assert registry.names == ["m", "w", "x", "z"]


@pytest.mark.anyio
async def test_a_change_that_cannot_be_leaves_what_was_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """REG-1: a name that is another's; the operator reads of it, and nothing was replaced."""
    source = Places(a="xy")
    async with Registry([source, *named("m")]) as registry:
        source.change("a", "m")

        assert registry.names == ["m", "x", "y"]
    assert "the tools of `at:a` changed and stay as they were" in caplog.text


@pytest.mark.anyio
async def test_closing_goes_on_when_an_owner_raises_a_cancellation_of_its_own() -> None:
    """CLO-1: nobody cancelled us; it is that tool's error, and the others are closed."""
    closed: list[str] = []

    async def stray() -> None:
        raise anyio.get_cancelled_exc_class()

    tools = [closing("a", stray), closing("b", lambda: closed.append("b"))]
    if anyio.get_cancelled_exc_class().__module__.startswith("trio"):
        return  # Nobody but trio makes its cancellation.
    with pytest.raises(ExceptionGroup) as caught:
        await Registry(tools).aclose()

    assert closed == ["b"]
    assert [str(error) for error in caught.value.exceptions] == [
        "tool `a` did not close: CancelledError"
    ]


def test_who_listens_hears_of_each_change_until_it_wants_no_more() -> None:
    """REG-1: what offers the tools to others can tell them; a change that failed is none."""
    registry = Registry(named("one"))
    heard: list[list[str]] = []
    forget = registry.when_changed(lambda: heard.append(registry.names))
    registry.register(named("two"))
    with pytest.raises(DuplicateTool):
        registry.register(named("two"))
    registry.replace("local", named("three"))
    forget()
    forget()
    registry.register(named("four"))

    assert heard == [["one", "two"], ["three"]]
