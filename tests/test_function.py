"""`@tool`: from a typed function to a tool that is still the function."""

import contextvars
import functools
import gc
import inspect
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, cast

import anyio
import pytest

from ferrule import (
    Context,
    Executor,
    InvalidValue,
    Registry,
    Rejected,
    Result,
    Tool,
    ToolCall,
    Traits,
    bind,
    tool,
)
from ferrule.testing import MemoryRecorder
from functions import given, properties, run

# ---- names and text ------------------------------------------------------------------------------


def test_name_and_text_come_from_the_function() -> None:
    """Section 4, scope 45: name, description and each parameter's text, whole."""

    @tool
    async def read_file(path: str, max_bytes: int | None = None) -> str:
        """
        Read a file from disk.

        Binary files are refused.

        Args:
            path: Absolute path to read,
                with no links in it.
            max_bytes: Stop after this many bytes.

        Returns:
            The text.
        """
        return f"{path}{max_bytes}"

    definition = read_file.definition

    assert definition.name == "read_file"
    assert definition.description == "Read a file from disk.\n\nBinary files are refused."
    assert (definition.title, definition.strict) == (None, False)
    texts = {name: schema["description"] for name, schema in properties(read_file).items()}
    assert texts == {
        "path": "Absolute path to read,\nwith no links in it.",
        "max_bytes": "Stop after this many bytes.",
    }


def google(a: int) -> int:
    """
    Add one.

    Args:
        a: The number.
    """
    return a


def numpy(a: int) -> int:
    """
    Add one.

    Parameters
    ----------
    a : int
        The number.
    """
    return a


def sphinx(a: int) -> int:
    """
    Add one.

    :param a: The number.
    :returns: One more.
    """
    return a


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_each_style_of_docstring_is_read(function: Callable[[int], int]) -> None:
    """Section 4: Google, NumPy and Sphinx."""
    made = tool(function)

    assert made.definition.description == "Add one."
    assert properties(made)["a"]["description"] == "The number."


def test_what_is_said_in_the_decorator_wins() -> None:
    """API `@tool(...)`: name, title, description and the fields of `Traits`."""

    @tool(name="files/read", title="Read", description="Other.", read_only=True, replay="safe")
    def read(path: str) -> str:
        """Read."""
        return path

    assert read.definition.name == "files/read"
    assert (read.definition.title, read.definition.description) == ("Read", "Other.")
    assert read.traits == Traits(read_only=True, replay="safe")
    assert tool(google).traits == Traits()


def test_a_function_without_a_docstring_has_an_empty_description() -> None:
    """DEF-3: `""` when there is none."""

    def quiet() -> None:
        return None

    assert tool(quiet).definition.description == ""


# ---- still the function --------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_tool_is_still_called_as_its_function() -> None:
    """Section 4: with everything that the function says of itself."""

    async def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    made = tool(add)

    assert await made(1) == await made(1, b=2) == 3
    assert (made.__name__, made.__doc__) == ("add", "Add.")  # type: ignore[attr-defined]  # as `functools.wraps` sets it
    assert inspect.signature(made) == inspect.signature(add)
    assert tool()(google)(1) == 1
    assert isinstance(made, Tool)


class Counter:
    """An object with methods that can be tools."""

    def __init__(self, start: int = 10) -> None:
        self.start = start

    def add(self, n: int) -> int:
        """Add to the start."""
        return self.start + n

    async def __call__(self, n: int) -> int:
        """Call it."""
        return self.start + n

    @classmethod
    def made(cls, n: int) -> int:
        """Make one."""
        return cls(n).start

    @staticmethod
    def double(n: int) -> int:
        """Double it."""
        return 2 * n


def scaled(factor: int, n: int) -> int:
    """Scale it."""
    return factor * n


CALLABLES: dict[str, tuple[Callable[..., object], str, int]] = {
    "function": (Counter.double, "double", 6),
    "bound method": (Counter().add, "add", 13),
    "class method": (Counter.made, "made", 3),
    "callable object": (Counter(), "Counter", 13),
    "partial": (functools.partial(scaled, 5), "scaled", 15),
    "partial of a method": (functools.partial(Counter().add), "add", 13),
    "tool": (tool(Counter.double), "double", 6),
}


@pytest.mark.parametrize("kind", CALLABLES)
def test_every_kind_of_callable_is_a_tool(kind: str) -> None:
    """Section 4, scope 48: and a call of it gives what the callable gives."""
    function, name, value = CALLABLES[kind]
    made = tool(function)

    assert made.definition.name == name
    assert list(properties(made)) == ["n"]
    assert made.definition.description
    assert given(made, n=3) == value


def test_a_tool_tells_its_definition_to_everyone_separately() -> None:
    """Scope 46; DEF-4."""
    made = tool(google)
    properties(made).clear()

    assert list(properties(made)) == ["a"]


# ---- the context ---------------------------------------------------------------------------------


def test_the_context_is_given_and_hidden() -> None:
    """FN-5, agenttool 45: a plain and an async function know the call that runs."""

    @tool
    async def later(context: Context, n: int) -> str:
        assert Context.current() is context
        return f"{context.call_id} {context.tool} {context.leg} {n}"

    @tool
    def in_thread(n: int, *, where: Context) -> str:
        assert Context.current() is where
        return f"{where.call_id} {where.tool} {where.leg} {n}"

    for made in (later, in_thread):
        assert list(properties(made)) == ["n"]
        assert run(made, n=1).text == f"c1 {made.definition.name} 1 1"
        refused = run(made, n=1, context="mine", where="mine")
        assert isinstance(refused, Rejected)


def test_a_context_that_may_be_missing_is_hidden_too() -> None:
    """FN-5: as a function that is also called without a harness declares it."""

    @tool
    def either(n: int, context: Context | None = None) -> str:
        return f"{n} {context.call_id if context else None}"

    assert list(properties(either)) == ["n"]
    assert run(either, n=1).text == "1 c1"
    assert either(1) == "1 None"


def test_progress_and_records_on_a_bare_context_do_nothing() -> None:
    """Agenttool 45, AT-85, AT-86: no executor, no harm."""

    @tool
    async def work(context: Context) -> bool:
        context.progress(1, total=2, message="half")
        await context.record("work:step", {"n": 1})
        return context.has_recorder

    binding = bind(work)
    result = anyio.run(binding.call, binding.contract.admit(ToolCall.of("work")))

    assert result == Result(structured_content=False)


@pytest.mark.parametrize(
    ("namespace", "data"), [("", 1), ("shell", 1), ("shell:process", object())]
)
def test_a_record_that_cannot_be_reaches_no_recorder(namespace: str, data: object) -> None:
    """REC-1, AT-84, AT-85: the tool is told, and nothing was kept."""
    recorder = MemoryRecorder()

    @tool
    async def work(context: Context) -> str:
        with pytest.raises(InvalidValue):
            await context.record(namespace, data)
        await context.record("shell:process", {"pid": 1})
        return "kept"

    [outcome] = Executor([work], recorder=recorder).run_sync([ToolCall.of("work", id="c1")])

    assert outcome.text == "kept"
    assert [record.data for record in recorder.of("c1")] == [{"pid": 1}]


request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="none")


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["async", "thread"])
async def test_context_variables_reach_the_function(where: str) -> None:
    """FN-7, scope 47: what the caller set is seen by an async and by a plain function."""

    async def later() -> str:
        return request_id.get()

    def in_thread() -> str:
        return request_id.get()

    made: Tool = tool(name="t")(later) if where == "async" else tool(name="t")(in_thread)
    request_id.set("r-17")

    [outcome] = await Executor([made]).run([ToolCall.of("t")])

    assert outcome.text == "r-17"


# ---- where it runs -------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("run_in", "is_async", "own_thread"),
    [
        ("auto", False, True),
        ("thread", False, True),
        ("loop", False, False),
        ("auto", True, False),
        ("loop", True, False),
    ],
)
async def test_a_function_runs_where_it_says(
    run_in: Literal["auto", "loop", "thread"], is_async: bool, own_thread: bool
) -> None:
    """FN-7: a plain function in a worker thread, unless it is to run in the loop."""

    async def later() -> int:
        return threading.get_ident()

    def now() -> int:
        return threading.get_ident()

    made: Tool
    made = tool(name="t", run_in=run_in)(later) if is_async else tool(name="t", run_in=run_in)(now)
    [outcome] = await Executor([made]).run([ToolCall.of("t")])

    assert (outcome.text != str(threading.get_ident())) == own_thread


# ---- rules of its own ----------------------------------------------------------------------------


def test_validate_refuses_with_its_sentence_before_the_function_runs() -> None:
    """Scope 64, API `validate=`: on plain, detached arguments."""
    ran: list[int] = []

    def even(arguments: dict[str, object]) -> str | None:
        odd = cast("int", arguments["n"]) % 2
        arguments["n"] = 100
        return "n: expected an even number" if odd else None

    @tool(validate=even)
    def halve(n: int) -> int:
        ran.append(n)
        return n // 2

    assert run(halve, n=3).text == "Error: invalid arguments: n: expected an even number"
    assert given(halve, n=4) == 2
    assert ran == [4]


def test_a_given_schema_replaces_the_generated_one_and_is_enforced() -> None:
    """API `input_schema=`, agenttool 46: served as it is; the types still decide beside it."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 3}}}

    @tool(input_schema=schema)
    def take(n: int = 0) -> int:
        return n

    assert take.definition.input_schema == schema
    assert given(take, n=3) == 3
    assert isinstance(run(take, n=4), Rejected)
    assert isinstance(run(take, n="x"), Rejected)


@pytest.mark.anyio
async def test_close_is_called_once_when_the_registry_closes() -> None:
    """CLO-1, agenttool 51: plain or async."""
    closed: list[str] = []

    async def close_later() -> None:
        closed.append("b")

    tools: list[Tool] = [
        tool(name="a", close=lambda: closed.append("a"))(google),
        tool(name="b", close=close_later)(google),
    ]
    async with Registry(tools) as registry:
        await Executor(registry).run([ToolCall.of("a", {"a": 1})])
        assert closed == []
    for made in tools:
        await cast("Any", made).aclose()

    assert closed == ["a", "b"]


def test_a_contract_keeps_no_function_alive() -> None:
    """ADM-1, scope 23: what the function holds is collected while the contract still admits."""

    class Resource:
        """Stands for a connection."""

    def declared() -> tuple[Tool, "weakref.ref[Resource]"]:
        held = Resource()

        @tool(validate=lambda _: None)
        def use(n: int = 1) -> str:
            return f"{held}{n}"

        return use, weakref.ref(held)

    made, gone = declared()
    contract = bind(made).contract
    assert gone() is not None

    del made
    gc.collect()

    assert gone() is None
    assert contract.admit(ToolCall.of("use", {"n": 2})).arguments == {"n": 2}


def test_calls_from_many_threads_do_not_disturb_each_other() -> None:
    """Scope 61, ADM-1: 32 calls at once, each its own typed arguments."""

    @tool
    def take(numbers: list[int], n: int) -> int:
        return sum(numbers) + n

    binding = bind(take)
    start = threading.Barrier(32)

    def work(number: int) -> object:
        start.wait()
        arguments = {"numbers": [number], "n": number}
        result = anyio.run(binding.call, binding.contract.admit(ToolCall.of("take", arguments)))
        return cast("Result", result).structured_content

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(work, range(32))) == [2 * number for number in range(32)]
