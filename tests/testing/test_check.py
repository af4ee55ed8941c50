"""A tool is checked against the contract: each way to be wrong is found, and right ones pass."""

import importlib.util
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

from ferrule import (
    Context,
    Definition,
    FerruleError,
    Guard,
    InputRequest,
    InvalidCall,
    Invocation,
    Leniency,
    RawTool,
    Registry,
    Result,
    Tool,
    Traits,
    Wrapper,
    tool,
)
from ferrule.testing import BrokenTool, Decisions, check_tool

EXAMPLES = Path(__file__).parents[2] / "examples"
CORPUS = Path(__file__).parents[1] / "corpus" / "mcp-tools"

TWO = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
    "required": ["path"],
    "additionalProperties": False,
}


class Hand:
    """A tool that somebody wrote by hand, right in everything that a test does not make wrong."""

    def __init__(
        self,
        *,
        definition: Callable[[], Definition] = lambda: Definition("hand", input_schema=TWO),
        traits: Callable[[], Traits] = Traits,
        validator: Callable[[], object] = lambda: None,
        close: Callable[[], object] = lambda: None,
    ) -> None:
        self._definition = definition
        self._traits = traits
        self._validator = validator
        self._close = close

    @property
    def definition(self) -> Definition:
        """What the test says."""
        return self._definition()

    @property
    def traits(self) -> Traits:
        """What the test says."""
        return self._traits()

    def validator(self) -> object:
        """Return what the test says."""
        return self._validator()

    async def call(self, _invocation: Invocation, _context: Context, /) -> Result | InputRequest:
        """Never run by a check."""
        raise AssertionError("a check runs no tool")

    async def aclose(self) -> None:
        """Do what the test says."""
        done = self._close()
        if done is not None:
            await done  # type: ignore[misc]  # the awaitable of a test


async def function(_arguments: dict[str, object], _context: Context) -> None:
    """Never run by a check."""
    raise AssertionError("a check runs no tool")


def of_schema(**schema: object) -> RawTool:
    """Return a tool with this schema."""
    return RawTool(Definition("of_schema", input_schema={"type": "object", **schema}), function)


def faults(subject: Tool, **options: object) -> list[str]:
    """Return what is wrong with a tool."""
    with pytest.raises(BrokenTool) as caught:
        check_tool(subject, **options)  # type: ignore[arg-type]  # options of this very function
    assert [str(fault) in str(caught.value) for fault in caught.value.faults]
    return [str(fault) for fault in caught.value.faults]


def in_turn(*answers: object) -> Callable[..., Any]:
    """Return a function that gives each answer once, the last for ever; exceptions are raised."""
    left: Iterator[object] = itertools.chain(answers, itertools.repeat(answers[-1]))

    def give(*_: object) -> object:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return give


# ---- right ones ----------------------------------------------------------------------------------


def loaded(name: str) -> ModuleType:
    """Load one of the examples."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_first_example_keeps_the_contract() -> None:
    """DEF-3, DEF-4, ADM-1, ADM-2: nothing is found of it."""
    assert check_tool(loaded("hello").log_rows) == ()


def test_the_tools_of_the_workspace_keep_the_contract(
    tmp_path: Path, require: Callable[..., None]
) -> None:
    """DEF-3, DEF-4, ADM-1, ADM-2: six real tools, with computed uses and replay."""
    require(importlib.util.find_spec("matplotlib"), "matplotlib, from the extra `examples`")
    module = loaded("workspace")

    async def offered() -> Registry:
        async with module.workspace(tmp_path) as registry:
            return registry  # type: ignore[no-any-return]  # a module that is loaded by path

    tools = list(anyio.run(offered))

    assert len(tools) == 6
    assert [check_tool(one) for one in tools] == [()] * 6


def test_the_tools_of_real_servers_keep_the_contract_and_have_samples() -> None:
    """SCH-1, SCH-4: every schema gives arguments; some have no strict form, with a reason."""
    listed = [
        definition
        for file in sorted(CORPUS.glob("*.json"))
        for definition in json.loads(file.read_text(encoding="utf-8"))["tools"]
    ]
    found = [
        finding
        for one in listed
        for finding in check_tool(
            RawTool(Definition(one["name"], input_schema=one["inputSchema"]), function)
        )
    ]

    assert len(listed) > 100
    assert found
    assert all(finding.message.startswith("it has no strict form: ") for finding in found)


def test_all_leniency_at_once_lets_no_wrong_call_in() -> None:
    """ADM-2: a repair makes nothing right of a call that is wrong in one way."""
    every = dict.fromkeys(Leniency.__struct_fields__, True)

    @tool(leniency=Leniency(**every))
    async def lenient(a: int, b: list[str], c: str = "x", d: bool = True) -> None: ...

    assert check_tool(lenient) == ()


def test_tools_in_every_form_and_behind_guards_keep_the_contract() -> None:
    """SCH-4, CAP-1: the open form takes unknown names, the strict one nulls; guards may be."""

    async def seek(text: str, limit: int = 3, where: str | None = None) -> None: ...

    for form in ("open", "closed", "strict"):
        assert check_tool(tool(form=form)(seek)) == ()
    assert check_tool(Guard(Wrapper(tool(seek), name="find"), Decisions(False))) == ()


def test_a_check_runs_in_no_loop() -> None:
    """STYLE 24: the sentence says what to write instead."""

    async def main() -> None:
        check_tool(Hand())

    with pytest.raises(FerruleError, match="from a plain `def` test"):
        anyio.run(main)


def test_what_is_worth_knowing_comes_with_the_faults() -> None:
    """STYLE 20: facts in fields; the sentence has the faults alone."""
    wrong = of_schema(properties={"a": {"type": "integer", "default": "x"}, "b": {}})

    with pytest.raises(AssertionError, match="the default is refused") as caught:
        check_tool(wrong)

    assert isinstance(caught.value, BrokenTool)
    assert [finding.check for finding in caught.value.findings] == ["schema"]


# ---- wrong ones ----------------------------------------------------------------------------------


def test_what_is_no_tool_is_a_fault_at_once() -> None:
    """ADM-1: what cannot be bound cannot be checked further."""

    def plain() -> None: ...

    assert faults(plain) == [  # type: ignore[arg-type]  # no tool at all
        "binding: `plain` is a plain function, not a tool; write `@tool` above it"
    ]


def test_a_definition_that_changes_is_found() -> None:
    """DEF-3, ADM-1: its digest would not stay."""
    counted = itertools.count()
    subject = Hand(definition=lambda: Definition("hand", f"Version {next(counted)}."))

    found = faults(subject)

    assert found[0].startswith("definition: it reads differently each time")
    assert "wrapping: a wrapper around it has another fingerprint" in found


def test_a_definition_that_is_shared_is_found_and_left_as_it_was() -> None:
    """DEF-4: who changes what was read must not change the tool."""
    shared = Definition("hand", input_schema=TWO)

    assert faults(Hand(definition=lambda: shared)) == [
        "definition: who changes what was read changes the tool; give a copy: definition.copy()"
    ]
    assert shared.input_schema == TWO


def test_a_definition_that_cannot_be_read_again_is_found() -> None:
    """ADM-1: what raises, what never answers: each is a fault and ends no check."""
    good = Definition("hand", input_schema=TWO)
    raising = Hand(definition=in_turn(good, ValueError("gone")))
    never = threading.Event()

    def stuck() -> Definition:
        if stuck.reads:  # type: ignore[attr-defined]  # a counter
            never.wait()
        stuck.reads += 1  # type: ignore[attr-defined]  # a counter
        return good.copy()

    stuck.reads = 0  # type: ignore[attr-defined]  # a counter

    assert faults(raising)[0] == "definition: it cannot be read a second time: ValueError: gone"
    found = faults(Hand(definition=stuck, close=never.set), patience=0.01)
    never.set()
    assert found[0].startswith("definition: it cannot be read a second time: FerruleError: it did")


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"default": "x", "type": "integer"}, "a: the default is refused: expected integer"),
        ({"examples": [1, 3], "maximum": 2}, "a: the example is refused: expected at most 2"),
        (
            {"type": "array", "items": {"enum": [1], "default": 2}},
            "a[]: the default is refused: expected",
        ),
        (
            {"$ref": "#/$defs/T", "default": 1},
            "a: the default is refused: expected string",
        ),
        (
            {"anyOf": [{"type": "string", "default": 1}, {"type": "integer"}]},
            "a: the default is refused: expected string",
        ),
    ],
)
def test_a_default_or_an_example_that_the_schema_refuses_is_found(
    schema: dict[str, object], fault: str
) -> None:
    """SCH-3: at every depth, through references."""
    subject = of_schema(properties={"a": schema}, **{"$defs": {"T": {"type": "string"}}})

    assert any(found.startswith(f"defaults: {fault}") for found in faults(subject))


def test_defaults_that_cannot_be_checked_apart_are_worth_knowing() -> None:
    """SCH-1: a reference into the whole document leads nowhere in a part of it."""
    a = {"type": "integer"}
    subject = of_schema(properties={"a": a, "b": {"$ref": "#/properties/a", "default": 1}})

    assert [str(found) for found in check_tool(subject)] == [
        "defaults: those of b cannot be checked apart from the schema"
    ]


class Quick:
    """A validator that promises to be as strict as the schema, and is not."""

    quick = dict

    def __call__(self, arguments: dict[str, object]) -> object:
        """Let in whatever comes."""
        return arguments


def test_calls_that_are_let_in_and_should_not_be_are_found() -> None:
    """ADM-2: what is missing, unknown or of another type."""
    assert faults(Hand(validator=Quick)) == [
        'calls: a call with no "path" is let in',
        "calls: a call with an unknown name is let in",
        'calls: a call with a "path" of another type is let in',
        'calls: a call with a "lines" of another type is let in',
    ]


def test_a_validator_that_breaks_is_found() -> None:
    """ADM-3: on right arguments, which is the worst, and on wrong ones."""

    def validate(arguments: dict[str, object]) -> str | None:
        return "no" if arguments["mode"] else None

    subject = RawTool(Definition("mode"), function, validate=validate)

    assert faults(subject) == [
        "calls: its validator broke on sample arguments: KeyError: 'mode'",
        "calls: its validator broke on sample arguments: KeyError: 'mode'",
    ]
    assert faults(subject, samples=[{"mode": ""}])[0] == (
        "calls: its validator broke on sample arguments: KeyError: 'mode'"
    )


def test_samples_that_are_given_and_refused_are_found() -> None:
    """ADM-2: what a test says is right must be."""
    assert faults(of_schema(**TWO), samples=[{"path": "a"}, {"path": 1}]) == [
        "samples: samples[1] is refused: invalid arguments: path: expected string, got integer"
    ]


def test_a_tool_that_no_sample_satisfies_says_so_and_can_be_given_some() -> None:
    """ADM-2: its own rules, or a pattern that luck does not find."""
    subject = RawTool(
        Definition("odd", input_schema=TWO),
        function,
        validate=lambda arguments: None if arguments["path"] == "odd" else "an odd path only",
    )
    pattern = of_schema(properties={"a": {"pattern": "^z{9}q$"}}, required=["a"])
    give = "give some: check_tool(tool, samples=[{…}])"

    assert [str(found) for found in check_tool(subject)] == [
        f"samples: no sample arguments could be made: invalid arguments: an odd path only; {give}"
    ]
    assert check_tool(subject, samples=[{"path": "odd"}]) == ()
    assert [found.message for found in check_tool(pattern) if found.check == "samples"] == [
        f"no sample arguments could be made: a: no text of its pattern was found; {give}"
    ]


def test_traits_that_change_or_cannot_be_read_again_are_found() -> None:
    """ADM-1: they are read once when bound, so a change would never be seen."""
    changing = Hand(traits=in_turn(Traits(), Traits(read_only=True)))
    raising = Hand(traits=in_turn(Traits(), OSError()))
    renewed = Hand(traits=lambda: Traits(uses=lambda _: "repo"))

    assert faults(changing)[0] == "traits: they read differently each time"
    assert faults(raising)[0] == "traits: it cannot be read a second time: OSError"
    assert check_tool(renewed) == ()


@pytest.mark.parametrize(
    ("answers", "fault"),
    [
        ([LookupError("nobody knows")], "broke on sample arguments with path: LookupError: nobody"),
        ([17], "broke on sample arguments with path: InvalidValue: uses is a name"),
        (["a", "b", "c"], "answers differently for the same arguments"),
    ],
)
def test_a_trait_function_that_breaks_is_found(answers: list[object], fault: str) -> None:
    """EXE-3, FAIL-6: what it raises, nonsense, and answers by luck."""
    give = in_turn(*answers)
    subject = RawTool(Definition("uses", input_schema=TWO), function, traits=Traits(uses=give))

    assert faults(subject)[0].startswith(f"traits: a trait function {fault}")


def test_a_trait_function_that_never_answers_is_found() -> None:
    """EXE-12: it holds its thread and not the check."""
    never = threading.Event()
    subject = RawTool(
        Definition("uses"),
        function,
        traits=Traits(replay=lambda _: str(never.wait())),  # type: ignore[arg-type, return-value]  # never
    )

    found = faults(subject, patience=0.01)
    never.set()

    late = "traits: a trait function broke on no arguments: FerruleError: it did not answer"
    assert any(fault.startswith(late) for fault in found)


def test_trait_functions_that_nobody_could_ask_are_worth_knowing() -> None:
    """EXE-3: without sample arguments there is nothing to ask about."""
    subject = RawTool(
        Definition("never"), function, traits=Traits(uses=lambda _: "a"), validate=lambda _: "no"
    )

    assert [found.check for found in check_tool(subject)] == ["samples", "traits"]


def test_a_tool_that_can_be_bound_only_once_is_found() -> None:
    """CAP-1, ADM-1: each registry binds a tool for itself."""
    gone = InvalidCall("unavailable")
    subject = Hand(validator=in_turn(None, gone))

    assert faults(subject)[0].startswith("wrapping: it cannot be bound a second time: ")


def test_a_tool_whose_validator_is_another_one_each_time_is_found() -> None:
    """CAP-1: a wrapper lets in what the tool lets in."""

    def refuse(_: dict[str, object]) -> object:
        raise InvalidCall("invalid_arguments")

    subject = Hand(validator=in_turn(None, refuse))

    assert faults(subject)[0] == (
        "wrapping: a wrapper around it refuses a sample: invalid arguments"
    )


class Callable_(Wrapper):  # noqa: N801  # the word itself is taken
    """A wrapper that can be called past the boundary."""

    def __call__(self) -> None:
        """Run nothing."""


class Forgetful(Wrapper):
    """A wrapper that forgets what it wraps."""

    @property
    def traits(self) -> Traits:
        """Nothing of what was said."""
        return Traits()


def test_a_wrapper_that_is_callable_or_hides_traits_is_found() -> None:
    """CAP-1: the first is a fault, the second may be meant."""

    @tool(read_only=True, uses="repo")
    async def look() -> None: ...

    assert faults(Callable_(look)) == [
        "wrapping: a wrapper is not callable as a function; take `__call__` away"
    ]
    assert [str(found) for found in check_tool(Forgetful(look))] == [
        "wrapping: it shows other traits than what it wraps: read_only, uses"
    ]


def test_a_tool_that_does_not_close_is_found() -> None:
    """CLO-1: the first time, the second time, never."""
    twice = in_turn(None, RuntimeError("closed already"))
    once = Hand(close=in_turn(OSError("busy")))

    assert faults(Hand(close=twice)) == [
        "closing: closing it a second time breaks: RuntimeError: closed already"
    ]
    assert faults(once) == ["closing: it does not close: OSError: busy"]
    found = faults(Hand(close=anyio.sleep_forever), patience=0.01)
    # On a busy machine so short a patience may end before other answers, too.
    assert found[-1] == "closing: it does not close: FerruleError: it did not answer within 0.01 s"


def test_a_tool_is_closed_once_checked_unless_it_is_still_needed() -> None:
    """CLO-1: `close=False` leaves open what another test uses."""
    closed: list[str] = []

    @tool(close=partial(closed.append, "closed"))
    async def owner() -> None: ...

    check_tool(owner, close=False)
    assert closed == []
    check_tool(owner)
    assert closed == ["closed"]
