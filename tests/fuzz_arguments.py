"""
A fuzz of the boundary: `python tests/fuzz_arguments.py --texts 200000`.

Texts that a model might write, half valid and broken, meet the contracts of many tools. Each is
admitted or refused by an `InvalidCall` (a `ValidatorCrash` only where a schema has a pattern that
no linear engine takes), and by nothing else. A refusal is at most 1 KB and repeats no value. What
is admitted is what an independent reading of the text gives. The work, counted in calls, is linear
in the text; and memory, beside what the parser itself takes for the text, is bounded by it.
"""

import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import json
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import msgspec
import orjson

from ferrule import (
    Contract,
    Definition,
    InvalidCall,
    RawTool,
    Tool,
    ToolCall,
    ValidatorCrash,
    bind,
    digest,
    read_json,
    tool,
)
from ferrule.schema import compile
from fuzz_ijson import INSERTIONS, NAMES, Reference, Speller, words
from fuzzing import made_by, main, peak_of
from support import steps_of

SECRET = "zq4711"
"""Stands in values, and in no name: no refusal may have it."""

# ---- the tools -----------------------------------------------------------------------------------


class Color(enum.Enum):
    """By value."""

    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Tree:
    """Goes down as far as a text does."""

    name: str
    children: list["Tree"] = dataclasses.field(default_factory=list)
    weight: Annotated[float, msgspec.Meta(ge=0)] = 1.0


@tool
def plain(a: int, b: str = "b", c: float | None = None, d: bool = False) -> None:
    """Take scalars."""


@tool
def kinds(
    day: dt.date,
    at: dt.datetime | None = None,
    span: dt.timedelta | None = None,
    price: decimal.Decimal | None = None,
    key: uuid.UUID | None = None,
    data: bytes = b"",
    path: Path = Path(),
) -> None:
    """Take what JSON spells as text."""


@tool
def deep(tree: Tree, color: Color = Color.RED, mode: Literal["a", 1] | None = None) -> None:
    """Take a tree."""


@tool
def many(
    items: list[int | str | None],
    pairs: dict[str, tuple[int, float]],
    names: Annotated[set[str], msgspec.Meta(max_length=3)] | None = None,
) -> None:
    """Take collections."""


@tool(form="open")
def loose(a: int = 1, b: dict[str, int] | None = None) -> None:
    """Take other names too."""


@tool(form="strict")
def strict(a: int, b: str = "x", c: list[str] | None = None, tree: Tree | None = None) -> None:
    """Take what providers enforce."""


@tool
def rest(*args: int, **kwargs: str | float) -> None:
    """Take any names."""


def foreign(name: str, schema: dict[str, object]) -> Tool:
    """Return a tool with a schema from elsewhere."""
    return RawTool(Definition(name, input_schema={"type": "object"} | schema), lambda _, __: None)


CHOICES: list[object] = [
    {"type": "integer", "multipleOf": 3},
    {"type": "string", "pattern": "^a+$", "maxLength": 9},
    {"const": 2**64 + 12},
    {"enum": [None, "é", [1], {"a": 1.0}]},
]
TOOLS: list[Tool] = [
    plain, kinds, deep, many, loose, strict, rest,
    foreign("anything", {}),
    foreign("choices", {"properties": {"a": {"oneOf": CHOICES}, "b": {"anyOf": CHOICES}}}),
    foreign(
        "names",
        {
            "patternProperties": {"^[ab]": {"type": "number"}},
            "additionalProperties": {"$ref": "#"},
            "propertyNames": {"maxLength": 8},
        },
    ),
    foreign(
        "conditions",
        {
            "properties": {"a": {"type": "array", "uniqueItems": True, "contains": {"const": 1}}},
            "if": {"required": ["a"]},
            "then": {"required": ["b"]},
            "else": {"maxProperties": 1},
            "dependentRequired": {"b": ["a:b"]},
            "unevaluatedProperties": False,
        },
    ),
    foreign("looking", {"properties": {"a": {"type": "string", "pattern": "^(a|aa)+(?=x)$"}}}),
]  # fmt: skip
CONTRACTS: dict[str, Contract] = {one.definition.name: bind(one).contract for one in TOOLS}
UNSURE = frozenset({"looking"})
"""Those whose pattern may give up."""


# ---- the texts -----------------------------------------------------------------------------------


class Sample(NamedTuple):
    """A text, and which tool it is for."""

    name: str
    text: str


LIKELY = (
    *words('1 2.0 -3 0.5 true false null "a" "aaa" "b" "red" "x" [] {} [1] [1,2.5] ["a",null]'),
    *words('"2026-11-30" "2026-11-30T10:00:00Z" "PT5M" "1.50" "aGk=" "../a" "P1D" "12:00:60"'),
    '{"name":"n"}', '{"name":"n","children":[{"name":"m","weight":2}]}', f'"{SECRET}"',
    '"00000000-0000-0000-0000-000000000000"', '{"a":[1,2.5]}', "18446744073709551628", '{"a":1.0}',
    '"' + "a" * 3_000 + 'b"', '{"name":"n","children":{}}', f'{{"a":"{SECRET}"}}',
)  # fmt: skip
LEAF = f'{{"name":"{SECRET}"}}'
LARGE: tuple[Callable[[int], str], ...] = (
    lambda n: f'{{"a":{"[" * n}{"]" * n}}}',
    lambda n: '{"a":' * n,
    lambda n: f'{{"a":[{"1," * n}1]}}',
    lambda n: f'{{"a":[{"1.5," * n}1]}}',
    lambda n: f'{{"items":[{"[]," * n}1]}}',
    lambda n: f'{{"items":[{"{}," * n}1]}}',
    lambda n: f'{{"tree":{{"name":"","children":[{",".join([LEAF] * n)}]}}}}',
    lambda n: "{" + ",".join(f'"{at:x}":"{SECRET}"' for at in range(n)) + "}",
    lambda n: f'{{"b":"{"é" * n}","a":{"9" * n}}}',
    lambda n: f'{{"b":"{"y" * n}\\ud800"}}',
    lambda n: '{"b":"' + "\\u003a" * n + '"}',
    lambda n: f'{{"a":[{{"a":1}}{",1" * n}],"a":1}}',
    lambda n: '{"a":"' + "\\\\" * n,
    lambda n: " " * n + "{}",
)


def fitting_of(contract: Contract) -> dict[str, tuple[str, ...]]:
    """Return the likely values that each of a tool's arguments takes."""
    schema = contract.definition.input_schema
    shared = {name: schema[name] for name in ("$defs",) if name in schema}
    properties = cast("dict[str, dict[str, object]]", schema.get("properties", {}))
    return {
        name: tuple(text for text in LIKELY if compile(one | shared).is_valid(read_json(text)))
        for name, one in properties.items()
    }


FITTING = {name: fitting_of(contract) for name, contract in CONTRACTS.items()}


class ArgumentSpeller(Speller):
    """Spells the arguments of one of the tools."""

    def sample(self) -> Sample:
        """Return a text for a tool: mostly nearly right, seldom very large."""
        name = self.one_of(tuple(CONTRACTS))
        if self.below(32) == 31:
            size = 1 << self.below(12) if self.below(8) else 1 << 5 + self.below(12)
            return Sample(name, LARGE[self.below(len(LARGE))](size))
        members = [self.argument(name, key) for key in FITTING[name] if self.below(8) < 6]
        members += [self.argument(name, self.one_of(NAMES)) for _ in range(self.below(8) // 7)]
        text = "{" + ",".join(members) + "}" if self.below(32) else self.value(3)
        for _ in range(max(0, self.below(8) - 5)):
            text = self.mutated(text)
        return Sample(name, text)

    def argument(self, name: str, key: str) -> str:
        """Return one member, with a value that mostly fits its name."""
        fitting = FITTING[name].get(key) or LIKELY
        kind = self.below(16)
        value = self.one_of(fitting if kind < 14 else LIKELY) if kind < 15 else self.value(3)
        return f'{self.space()}"{key}":{value}'

    def mutated(self, text: str) -> str:
        """Return the text with one place of it broken."""
        at = self.below(256) * (len(text) + 1) // 256
        return text[:at] + self.one_of(INSERTIONS) + text[at + self.below(4) :]


def batches() -> Any:  # noqa: ANN401  # a strategy for lists of samples
    """Return a strategy for texts of all kinds."""
    return made_by(ArgumentSpeller, ArgumentSpeller.sample, 60)


# ---- what must hold ------------------------------------------------------------------------------


def check(sample: Sample) -> str:
    """Hold one text to the rules; say what came of it."""
    contract = CONTRACTS[sample.name]
    call = ToolCall(id="c", name=sample.name, arguments=as_utf8(sample.text))
    try:
        invocation = contract.admit(call)
    except InvalidCall as error:
        check_refusal(sample, error)
        return "could not be checked" if isinstance(error, ValidatorCrash) else error.kind
    read = Reference(invocation.text).document()
    arguments = invocation.arguments
    assert isinstance(read, dict), sample
    assert repr(arguments) == repr(read) or invocation.repairs, sample
    assert invocation.digest == digest(arguments), sample
    return "admitted"


def check_refusal(sample: Sample, error: InvalidCall) -> None:
    """Hold a refusal to the rules."""
    expected = (InvalidCall, ValidatorCrash) if sample.name in UNSURE else (InvalidCall,)
    assert type(error) in expected, (sample, error)
    assert error.problems, sample
    said = str(error) + repr(error.problems)
    assert len(str(error).encode()) <= 1024, sample
    assert SECRET not in said or SECRET in names_in(sample.text), (sample, said)


def as_utf8(text: str) -> str:
    """Return a text that a call can have: without the halves of pairs."""
    return text.encode(errors="replace").decode()


def names_in(text: str) -> str:
    """Return the names of a text that is JSON; a fault may have made a value into one."""
    names: list[str] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        names.extend(name for name, _ in pairs)

    with contextlib.suppress(ValueError, RecursionError):
        json.JSONDecoder(object_pairs_hook=note).decode(text)
    return " ".join(names)


# ---- what it costs -------------------------------------------------------------------------------

STEPS = 2_000
STEPS_A_BYTE = 10
"""What a text may cost, counted in calls: so many, and so many more for each byte."""

MEMORY = 1 << 20
MEMORY_A_BYTE = 8
"""What a text may take beside the parser: so many bytes, and so many more for each of its own."""


def admitted(contract: Contract, call: ToolCall) -> object:
    """Admit a call, or give the refusal."""
    try:
        return contract.admit(call)
    except InvalidCall as error:
        return error


def parsed(text: str) -> object:
    """Read a text with the parser and write it, and do nothing else."""
    with contextlib.suppress(orjson.JSONDecodeError, orjson.JSONEncodeError):
        return orjson.dumps(orjson.loads(text))
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def check_cost(sample: Sample) -> tuple[float, float]:
    """Hold one text to its bounds; return its steps and its memory as parts of what it may have."""
    contract = CONTRACTS[sample.name]
    call = ToolCall(id="c", name=sample.name, arguments=as_utf8(sample.text))
    size = len(call.arguments.encode())
    # What is made at the first refusal is no part of a text's cost, and neither are the objects of
    # the declared classes, which are as large as Python makes them.
    is_typed = not isinstance(getattr(admitted(contract, call), "value", {}), dict)
    steps = steps_of(lambda: admitted(contract, call)) / (STEPS + STEPS_A_BYTE * size)
    beside = peak_of(lambda: admitted(contract, call)) - peak_of(lambda: parsed(call.arguments))
    memory = 0 if is_typed else beside / (MEMORY + MEMORY_A_BYTE * size)
    assert steps <= 1, (sample.name, sample.text[:200], size, steps)
    assert memory <= 1, (sample.name, sample.text[:200], size, memory)
    return steps, memory


def largest() -> list[Sample]:
    """Return the texts that are dear for their size, about as large as a call's may be."""
    samples = [
        Sample(name, make(size)) for make in LARGE for size in (900, 40_000) for name in CONTRACTS
    ]
    return [sample for sample in samples if len(sample.text) < 1 << 20]


def costs() -> str:
    """Hold the large texts to their bounds, and say how near the nearest came."""
    parts = [check_cost(sample) for sample in largest()]
    steps, memory = (max(one[at] for one in parts) for at in (0, 1))
    return (
        f"{len(parts)} large ones took at most {steps:.0%} of their steps, {memory:.0%} of memory"
    )


if __name__ == "__main__":
    sys.exit(main("argument texts", batches(), check, costs))
