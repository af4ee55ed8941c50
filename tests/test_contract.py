"""The boundary: which calls a contract lets in, what it keeps, and what it says of the others."""

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import anyio
import pytest

from ferrule import (
    Binding,
    Context,
    Definition,
    InvalidCall,
    InvalidDefinition,
    InvalidTool,
    Problem,
    RawTool,
    Result,
    Tool,
    Traits,
    ValidatorCrash,
    bind,
)
from probe import Probe, call, of, refusal
from support import echo

MARKER = "sk-secret-4711"

# ---- binding -------------------------------------------------------------------------------------


def undecorated(path: str) -> str:
    """Return the path: a function that nobody made a tool."""
    return path


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        (None, "NoneType is not a tool: it has no `definition`, `traits` and `call`"),
        ("read_file", "str is not a tool: it has no `definition`, `traits` and `call`"),
        (undecorated, "`undecorated` is a plain function, not a tool; write `@tool` above it"),
        (Probe, "`Probe` is a class, not a tool"),
    ],
)
def test_only_a_tool_can_be_bound(thing: object, said: str) -> None:
    """Scope 1, 2, 104; ADM-1: the sentence says what it is, and what to write."""
    with pytest.raises(InvalidTool) as caught:
        bind(cast("Tool", thing))

    assert said in str(caught.value)


@pytest.mark.parametrize(
    "schema", [[], "object", None, {}, {"type": "array"}, {"type": ["object"]}]
)
def test_a_schema_that_is_no_object_schema_is_refused_when_declared(schema: object) -> None:
    """Scope 3, 108; DEF-2: the root says that it is an object."""
    with pytest.raises(InvalidDefinition, match="input_schema of tool `probe`"):
        bind(Probe(cast("dict[str, object]", schema)))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "strng"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.com/a"}}},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
        {"type": "object", "properties": {"a": {"enum": [float("nan")]}}},
        {"type": "object", "properties": {"a": {"const": {1, 2}}}},
    ],
)
def test_a_schema_that_does_not_compile_refuses_the_tool_by_name(schema: dict[str, object]) -> None:
    """ADM-1, SCH-1: the failure is `InvalidTool`, and its sentence names the tool."""
    with pytest.raises(InvalidTool, match="`probe`"):
        bind(Probe(schema))


def test_definition_traits_and_validator_are_read_once() -> None:
    """Scope 4, 28; ADM-1: however often the contract is used afterwards."""
    tool = Probe(of(a={"type": "integer"}), lambda arguments: arguments)
    contract = bind(tool).contract

    for _ in range(3):
        contract.admit(call('{"a": 1}'))
        refusal(contract, '{"a": "1"}')
        assert contract.definition.name == "probe"
        assert contract.fingerprint.startswith("sha256:")

    assert tool.read == {"definition": 1, "traits": 1, "validator": 1, "call": 0}


def test_a_tool_that_changes_after_it_was_bound_changes_nothing() -> None:
    """Scope 5; ADM-1: the definition is frozen, its schema too."""
    tool = Probe(of(a={"type": "integer"}))
    contract = bind(tool).contract

    tool.name = "other"
    cast("dict[str, object]", tool.schema["properties"]).clear()

    assert contract.definition.name == contract.name == "probe"
    assert contract.admit(call('{"a": 1}')).arguments == {"a": 1}


def test_a_definition_that_was_read_is_nobody_elses() -> None:
    """Scope 6, 100; DEF-4: changing one reading leaves the next as it was."""
    contract = bind(Probe(of(a={"type": "integer"}))).contract
    before = contract.definition.digest

    cast("dict[str, object]", contract.definition.input_schema["properties"]).clear()
    cast("dict[str, object]", contract.definition.input_schema)["type"] = "array"

    assert contract.definition.digest == before
    assert refusal(contract, '{"a": "x"}').kind == "invalid_arguments"


class Generous(Probe):
    """A tool that gives everyone the one definition it has."""

    kept = Definition("probe", input_schema=of(a={"type": "integer"}))

    @property
    def definition(self) -> Definition:
        """Give it away."""
        return self.kept


def test_a_contract_has_a_definition_of_its_own() -> None:
    """Scope 5; ADM-1: whoever else holds the tool's definition cannot reach the contract's."""
    tool = Generous({})
    contract = bind(tool).contract
    before = contract.definition.digest

    cast("dict[str, object]", tool.kept.input_schema).clear()

    assert contract.definition.digest == before


class Broken(Probe):
    """A tool whose parts raise what `error` is."""

    def __init__(self, part: str, error: BaseException) -> None:
        super().__init__(of())
        self.part, self.error = part, error

    @property
    def definition(self) -> Definition:
        """Raise, if it is this part's turn."""
        self._raise("definition")
        return super().definition

    @property
    def traits(self) -> Traits:
        """Raise, if it is this part's turn."""
        self._raise("traits")
        return super().traits

    def validator(self) -> Callable[[dict[str, object]], object] | None:
        """Raise, if it is this part's turn."""
        self._raise("validator")
        return super().validator()

    def _raise(self, part: str) -> None:
        if part == self.part:
            raise self.error

    def __repr__(self) -> str:
        raise RuntimeError("not even this works")


class Speechless(Exception):
    """An error that breaks when it is asked what it says."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("part", ["definition", "traits", "validator"])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("the disk is gone"), "the disk is gone"),
        (SystemExit(2), "2"),
        (Speechless(), "Speechless"),
    ],
)
def test_a_tool_that_breaks_while_it_is_bound_is_an_invalid_tool(
    part: str, error: BaseException, said: str
) -> None:
    """Scope 30, 32; ADM-1: the sentence has what it said, the chain the error itself."""
    with pytest.raises(InvalidTool) as caught:
        bind(Broken(part, error))

    assert said in str(caught.value)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("validator", [5, "rule", {"a": 1}])
def test_a_validator_that_is_no_function_is_refused_when_bound(validator: object) -> None:
    """ADM-1: what cannot work fails before a model calls it."""
    with pytest.raises(InvalidTool, match="the validator of tool `probe`"):
        bind(Probe(of(), validator))


def test_a_contract_keeps_no_tool_alive_and_still_admits() -> None:
    """Scope 23; ADM-1: the resource that the function holds is collected."""

    class Resource:
        """Stands for a connection."""

    held = Resource()

    async def use(arguments: dict[str, object], _: Context, kept: Resource = held) -> str:
        return f"{kept}{arguments}"

    tool = RawTool(Definition("probe", input_schema=of()), use, validate=lambda _: None)
    gone, tool_gone = weakref.ref(held), weakref.ref(tool)
    contract = bind(tool).contract
    invocation = contract.admit(call("{}"))

    del tool, use, held
    gc.collect()

    assert gone() is None
    assert tool_gone() is None
    assert invocation.arguments == contract.admit(call(" ")).arguments == {}


def test_what_a_contract_holds_can_run_no_tool() -> None:
    """Scope 24, ARCHITECTURE rule 4: no reachable object has a `call`, and none is the tool."""
    tool = echo("probe")
    contract = bind(tool).contract
    seen: list[object] = []
    todo: list[object] = [contract, contract.admit(call("{}"))]
    while todo:
        thing = todo.pop()
        if isinstance(thing, type) or any(thing is other for other in seen):
            continue
        seen.append(thing)
        if type(thing).__module__.startswith("ferrule"):
            slots = getattr(type(thing), "__slots__", ()) or getattr(thing, "__struct_fields__", ())
            todo += [getattr(thing, name) for name in slots if hasattr(thing, name)]

    assert len(seen) > 5
    assert not any(isinstance(thing, Tool | Binding) for thing in seen)


# ---- validators ----------------------------------------------------------------------------------


def even(arguments: dict[str, object]) -> object:
    """Refuse odd numbers, as the rule of a tool."""
    if cast("int", arguments.get("n", 0)) % 2:
        problem = Problem(path="n", rule="even", expected="expected an even number")
        raise InvalidCall("invalid_arguments", [problem])
    return arguments


def test_a_validator_refuses_at_admission_and_its_value_reaches_the_tool() -> None:
    """Scope 29, 33, 64; ADM-2: nothing runs, and the refusal is the validator's own."""
    tool = Probe(of(n={"type": "integer"}), lambda arguments: ("decoded", even(arguments)))
    contract = bind(tool).contract

    assert refusal(contract, '{"n": 3}').problems[0].rule == "even"
    assert contract.admit(call('{"n": 4}')).value == ("decoded", {"n": 4})
    assert tool.read["call"] == 0


def test_a_validator_is_not_asked_about_what_the_schema_refuses() -> None:
    """Scope 34, 35; ADM-2: schema first; without a validator the schema alone decides."""
    asked: list[object] = []
    contract = bind(Probe(of(n={"type": "integer"}), asked.append)).contract

    refusal(contract, '{"n": "x"}')
    assert asked == []
    assert bind(Probe(of())).contract.admit(call("{}")).value == {}


@pytest.mark.parametrize(
    "error",
    [ValueError(MARKER), SystemExit(MARKER), RecursionError(), MemoryError(), StopIteration()],
)
def test_a_validator_that_breaks_is_told_apart_from_bad_input(error: BaseException) -> None:
    """Scope 31, 32; ADM-3: the cause is in the chain and not in the text."""

    def broken(_: dict[str, object]) -> object:
        raise error

    with pytest.raises(ValidatorCrash) as caught:
        bind(Probe(of(), broken)).contract.admit(call("{}"))

    assert caught.value.kind == "invalid_arguments"
    assert caught.value.__cause__ is error
    assert str(caught.value) == "invalid arguments: the arguments could not be checked"


@pytest.mark.parametrize("answer", [True, False, "", 0, ["no"], object()])
def test_a_validate_that_answers_nonsense_is_a_crash(answer: object) -> None:
    """ADM-3: a sentence refuses, `None` lets in, and anything else is the author's mistake."""
    tool = RawTool(
        Definition("probe", input_schema=of()),
        lambda _, __: None,
        validate=lambda _: cast("str | None", answer),
    )
    with pytest.raises(ValidatorCrash):
        bind(tool).contract.admit(call("{}"))


def test_a_validate_gets_arguments_of_its_own() -> None:
    """ADM-4: what a rule does to them changes nothing for the tool."""

    def rule(arguments: dict[str, object]) -> str | None:
        cast("list[int]", arguments["a"]).append(9)
        return None

    tool = RawTool(Definition("probe"), lambda _, __: None, validate=rule)
    invocation = bind(tool).contract.admit(call('{"a": [1]}'))

    assert invocation.arguments == invocation.value == {"a": [1]}


# ---- concurrency ---------------------------------------------------------------------------------


def test_calls_from_many_threads_do_not_disturb_each_other() -> None:
    """Scope 61; ADM-1: 32 threads admit and run on one binding at once, each its own arguments."""
    binding = bind(echo("probe"))
    start = threading.Barrier(32)

    def work(number: int) -> bool:
        start.wait()
        for _ in range(20):
            invocation = binding.contract.admit(call(f'{{"n": {number}}}'))
            result = anyio.run(binding.call, invocation)
            if not isinstance(result, Result) or result.structured_content != {"n": number}:
                return False
            refusal(binding.contract, f'{{"n": {number}')
        return True

    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(work, range(32)))
