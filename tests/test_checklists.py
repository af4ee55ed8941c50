"""
Lines of two checklists of other implementations of the contract that no other file holds.

They are named as theirs are: `agenttool` and `scope`, each with the number of its line. A line
that the contract overrules is not among them.
"""

from typing import cast

import pytest

from ferrule import (
    CallError,
    Completed,
    Context,
    Definition,
    Executor,
    Failed,
    Failure,
    InputRequest,
    InvalidTool,
    Invocation,
    Leniency,
    Progress,
    RawTool,
    Registry,
    Replay,
    Result,
    Shared,
    Tool,
    ToolCall,
    Traits,
    Unknown,
    ValidatorCrash,
    bind,
    classify,
    tool,
)
from probe import call
from support import raw, raws

# ---- scope: validators ---------------------------------------------------------------------------


def test_a_rule_that_raises_what_is_no_exception_has_the_interpreters_own_as_its_cause() -> None:
    """Scope 36, ADM-3: Python lets nothing else be raised, and the crash keeps what it raises."""

    def rule(_: dict[str, object]) -> str | None:
        raise cast("Exception", "no")

    binding = bind(RawTool(Definition("probe"), lambda _, __: None, validate=rule))
    with pytest.raises(ValidatorCrash) as caught:
        binding.contract.admit(call("{}"))

    assert type(caught.value.__cause__) is TypeError


# ---- scope: failures and evidence ----------------------------------------------------------------


@pytest.mark.anyio
async def test_an_outer_failure_stands_before_a_failure_among_its_causes() -> None:
    """Scope 89, FAIL-2: of a failure whose cause joins a deadline and another, the outer one."""
    inner = Failure.rejected("not yours", terminate=True)
    outer = Failure("The shop is closed.", cause=ExceptionGroup("", [TimeoutError(), inner]))

    async def close(_: dict[str, object], __: Context) -> object:
        raise outer

    [outcome] = await Executor(raws(close)).run([ToolCall.of("close")])

    assert classify(outer) is outer
    assert isinstance(outcome, Failed)
    assert outcome.failure is outer
    assert (outcome.text, outcome.failure.kind) == ("Error: The shop is closed.", "failed")
    assert outcome.terminate is False
    assert outer.__cause__ is None


@pytest.mark.anyio
async def test_a_deadline_of_the_tools_own_is_seen_through_its_evidence() -> None:
    """Scope 96, FAIL-3: the cause and what caused it are in the chain; the evidence is a copy."""
    seen: dict[str, list[int]] = {"written": [1]}

    async def write(_: dict[str, object], __: Context) -> object:
        half = OSError("half")
        half.__cause__ = TimeoutError("two seconds")
        raise CallError(Result.of(seen)) from half

    [outcome] = await Executor(raws(write)).run([ToolCall.of("write")])
    seen["written"].append(2)

    assert isinstance(outcome, Unknown)
    assert outcome.reason == "raised"
    assert outcome.evidence == Result.of({"written": [1]})
    assert isinstance(outcome.error, CallError)
    assert isinstance(outcome.error.__cause__, OSError)
    assert isinstance(outcome.error.__cause__.__cause__, TimeoutError)
    assert classify(outcome.error) is None


# ---- agenttool: typed tools, definitions, sets ---------------------------------------------------


@pytest.mark.anyio
async def test_an_update_reaches_its_listener_once_and_with_its_call() -> None:
    """Agenttool 45, EXE-8: from a function that was called by hand."""
    heard: list[tuple[str, Progress]] = []

    @tool
    async def work(context: Context) -> str:
        context.progress(1, total=2, message="half")
        return "done"

    binding = bind(work)
    invocation = binding.contract.admit(ToolCall.of("work", id="c1"))
    context = Context.of(
        invocation.call, on_progress=lambda context, update: heard.append((context.call_id, update))
    )
    await binding.call(invocation, context)

    assert heard == [("c1", Progress(progress=1, total=2, message="half"))]


def test_three_tools_are_listed_and_none_gives_an_empty_list() -> None:
    """Agenttool 48, REG-1: by name, hit and miss, and the size of nothing."""
    registry = Registry([raw(name, lambda _, __: None) for name in ("c", "a", "b")])

    assert [one.name for one in registry.definitions()] == ["a", "b", "c"]
    assert registry.resolve("b") is not None
    assert registry.resolve("d") is None
    assert (Registry().definitions(), len(Registry())) == ([], 0)


TRAITS = Traits(
    read_only=True,
    destructive=False,
    idempotent=True,
    open_world=False,
    sequential=True,
    uses=("shell:one", Shared("repo:main")),
    confinement="container:build",
    replay="keyed",
    timeout=60,
    leniency=Leniency.COMMON,
    failures=(FileNotFoundError,),
)
DEFINITION = Definition(
    "everything",
    "Say every property.",
    input_schema={
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    },
    title="Everything",
)


class ByHand:
    """A tool that declares everything itself."""

    definition = DEFINITION
    traits = TRAITS

    async def call(self, invocation: Invocation, _: Context, /) -> Result | InputRequest:
        """Give the number back."""
        return Result.of(str(invocation.arguments["n"]))


@tool(title="Everything", **{name: getattr(TRAITS, name) for name in Traits.__struct_fields__})
async def everything(n: int) -> str:
    """Say every property."""
    return str(n)


async def function(arguments: dict[str, object], _: Context) -> str:
    """Give the number back."""
    return str(arguments["n"])


@pytest.mark.parametrize("made", [everything, RawTool(DEFINITION, function, traits=TRAITS)])
def test_a_tool_with_every_option_reads_like_one_that_was_written_by_hand(made: Tool) -> None:
    """Agenttool 51, 54: property by property, and to a contract, a registry and a call."""
    by_hand = ByHand()
    assert isinstance(by_hand, Tool)

    for name in Traits.__struct_fields__:
        assert getattr(made.traits, name) == getattr(by_hand.traits, name), name
    assert made.definition == by_hand.definition
    assert bind(made).contract.fingerprint == bind(by_hand).contract.fingerprint
    assert [
        Executor([one]).run_sync([ToolCall.of("everything", {"n": 5})]) for one in (made, by_hand)
    ] == [[Completed(Result.of("5"))]] * 2


def test_every_option_is_set_to_something_that_is_not_its_default() -> None:
    """Agenttool 51: a trait that is added is added to the test above."""
    assert all(
        getattr(TRAITS, name) != getattr(Traits(), name) for name in Traits.__struct_fields__
    )


@pytest.mark.anyio
async def test_replay_is_what_the_tool_says_of_each_call() -> None:
    """Agenttool 56, DUR-2, FAIL-6: by the arguments; any other word is unavailable."""
    ran: list[object] = []

    async def fail(arguments: dict[str, object], _: Context) -> object:
        ran.append(arguments["as"])
        raise RuntimeError

    said = raw("fail", fail, replay=lambda given: cast("Replay", given["as"]))
    outcomes = await Executor([said]).run(
        [ToolCall.of("fail", {"as": word}) for word in ("safe", "keyed", "unknown", "often")]
    )

    assert [type(outcome).__name__ for outcome in outcomes] == [
        "Failed", "Unknown", "Unknown", "Rejected",
    ]  # fmt: skip
    assert sorted(map(str, ran)) == ["keyed", "safe", "unknown"]


@pytest.mark.parametrize("given", [None, 5, "text", Traits()])
def test_a_function_that_is_none_fails_when_it_is_declared(given: object) -> None:
    """Agenttool 50, FN-8: the sentence names the tool and what its function takes."""
    with pytest.raises(InvalidTool, match=r"`everything` takes \(arguments, context\)"):
        RawTool(DEFINITION, given)  # type: ignore[arg-type]  # the mistake
