"""
The trust boundary beside its peers: one input for all, what each of them does, and what we do.

A row says in a few words what other Python tool layers did with an input when they were tried in
November 2026 (pydantic-ai 2.68, openai-agents 0.24, fastmcp 4.2, LangGraph 1.1, google-adk 2.13,
strands 1.62, anthropic 2.14, inspect_ai 0.3.285, smolagents 1.26, haystack 3.4, agent-framework
1.23 and toolregistry), and then how a call with that input ends here: which refusal, what a model
reads of it, and that the tool did not run, while the calls beside it did.
"""

import dataclasses
from typing import Annotated, Literal, NamedTuple

import pytest

from ferrule import (
    Context,
    Definition,
    Executor,
    Inject,
    RawTool,
    Registry,
    Rejected,
    Tool,
    ToolCall,
    tool,
)

pytestmark = pytest.mark.anyio


@dataclasses.dataclass
class Node:
    """An argument with members of its own."""

    v: int


class Probe(NamedTuple):
    """
    One input, and what comes of it.

    Attributes:
        peers: What the others do.
        name: Our tool that is called.
        arguments: The text that a model wrote.
        good: A text that the same tool takes.
        given: What its function gets then.
        kind: Why ours refuses the input.
        told: What the model reads, among other things.
        never: What it does not read: the value that was refused.
    """

    peers: str
    name: str
    arguments: str
    good: str
    given: object
    kind: str
    told: str
    never: str


DIGITS = "9" * 5_001

PROBES = {
    "A1 repeated member": Probe(
        "all twelve keep the last and run with 2",
        "count", '{"n": 1, "n": 2}', '{"n": 1}', 1,
        "invalid_json", "member name is repeated", "2",
    ),
    "A2 NaN": Probe(
        "fastmcp refuses it; the others run with a value that equals nothing",
        "measure", '{"x": NaN}', '{"x": 1.5}', 1.5,
        "invalid_json", "NaN", "",
    ),
    "A2 beyond a double": Probe(
        "fastmcp refuses it; the others run with infinity",
        "measure", '{"x": 1e999}', '{"x": 1e9}', 1e9,
        "invalid_json", "beyond the range of a double", "1e999",
    ),
    "A3 not a number, as text": Probe(
        "the pydantic ones run with NaN, google-adk and haystack with the string; two refuse",
        "measure", '{"x": "nan"}', '{"x": 0}', 0.0,
        "invalid_arguments", "x: expected number, got string", "nan",
    ),
    "A4 thirty-one digits": Probe(
        "all run; other languages read another number from the same text",
        "count", '{"n": 1000000000000000000000000000000}', '{"n": 1000000000000000000}', 10**18,
        "invalid_arguments", "n: expected an integer within 64 bits", "1000000000",
    ),
    "A5 five thousand digits": Probe(
        "pydantic-ai repeats every digit to the model; in four others a ValueError escapes",
        "count", f'{{"n": {DIGITS}}}', f'{{"n": {"9" * 15}}}', 999_999_999_999_999,
        "invalid_json", "beyond the range of a double", "99",
    ),
    "A6 deep nesting": Probe(
        "pydantic-ai and inspect refuse; in four others a RecursionError ends the run",
        "gather", f'{{"items": {"[" * 20_000}{"]" * 20_000}}}', '{"items": [[[]]]}', [[[]]],
        "too_large", "nesting", "[[",
    ),
    "A7 lone surrogate": Probe(
        "reaches the tool in ten; ends the run of openai-agents, which cannot send it back",
        "say", '{"s": "\\ud800"}', '{"s": "\\ud83d\\ude00"}', "😀",
        "invalid_json", "surrogate", "ud800",
    ),
    "A8 true for a number": Probe(
        "eight run with 1, two with True; inspect and smolagents refuse",
        "count", '{"n": true}', '{"n": 1}', 1,
        "invalid_arguments", "n: expected integer, got boolean", "true",
    ),
    "A9 text for a number": Probe(
        "most run with 5, three with the string; inspect and smolagents refuse",
        "count", '{"n": "5"}', '{"n": 5}', 5,
        "invalid_arguments", "n: expected integer, got string", "5",
    ),
    "A10 unknown name": Probe(
        "half of them drop it in silence, openai-agents against the schema it sent",
        "count", '{"n": 1, "zzz": "v-4711"}', '{"n": 1}', 1,
        "invalid_arguments", 'unexpected property "zzz"', "v-4711",
    ),
    "A11 unknown name inside": Probe(
        "all drop it but inspect, even where the schema that was sent is closed",
        "plant", '{"node": {"v": 1, "zzz": "v-4711"}}', '{"node": {"v": 1}}', Node(1),
        "invalid_arguments", 'node: unexpected property "zzz"', "v-4711",
    ),
    "A12 missing name": Probe(
        "openai-agents and agent-framework do not say which; pydantic-ai repeats the input",
        "count", "{}", '{"n": 1}', 1,
        "invalid_arguments", 'missing required property "n"', "",
    ),
    "A13 null": Probe(
        "four take it for no arguments and run; google-adk dies of an AttributeError",
        "limited", "null", "{}", 5,
        "invalid_arguments", "expected a JSON object", "null",
    ),
    "A13 a list": Probe(
        "four take it for no arguments and run; google-adk dies of an AttributeError",
        "limited", "[]", " ", 5,
        "invalid_arguments", "expected a JSON object", "[]",
    ),
    "A14 null for what has a default": Probe(
        "google-adk, haystack and smolagents run with None where an int was declared",
        "limited", '{"n": null}', '{"n": 7}', 7,
        "invalid_arguments", "n: expected integer, got null", "",
    ),
    "A15 a schema from elsewhere": Probe(
        "LangChain checks nothing where the schema came as a dict: both values reach the tool",
        "query", '{"n": "DROP TABLE", "evil": 1}', '{"n": 1}', {"n": 1},
        "invalid_arguments", 'unexpected property "evil"', "DROP",
    ),
    "A16 an injected argument": Probe(
        "LangGraph overwrites what the model made up, and does not say so",
        "whose", '{"user": "alice-4711"}', "{}", "bob",
        "invalid_arguments", 'unexpected property "user"', "4711",
    ),
    "A17 outside a Literal": Probe(
        "google-adk and haystack run",
        "choose", '{"c": "z-4711"}', '{"c": "b"}', ("b", 1),
        "invalid_arguments", 'c: expected one of "a", "b"', "z-4711",
    ),
    "A17 a fraction for an int": Probe(
        "google-adk and haystack run",
        "choose", '{"c": "a", "n": 3.7}', '{"c": "a", "n": 3.0}', ("a", 3),
        "invalid_arguments", "n: expected integer, got number", "3.7",
    ),
}  # fmt: skip


def tools(ran: list[object]) -> list[Tool]:
    """Return the tools; each notes what its function was given."""

    @tool
    async def count(n: int) -> None:
        ran.append(n)

    @tool
    async def measure(x: float) -> None:
        ran.append(x)

    @tool
    async def gather(items: list[object]) -> None:
        ran.append(items)

    @tool
    async def say(s: str) -> None:
        ran.append(s)

    @tool
    async def plant(node: Node) -> None:
        ran.append(node)

    @tool
    async def limited(n: int = 5) -> None:
        ran.append(n)

    @tool
    async def whose(user: Annotated[str, Inject("user")]) -> None:
        ran.append(user)

    @tool
    async def choose(c: Literal["a", "b"], n: int = 1) -> None:
        ran.append((c, n))

    return [count, measure, gather, say, plant, limited, whose, choose, query(ran)]


def query(ran: list[object]) -> Tool:
    """Return a tool whose schema came from elsewhere."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "additionalProperties": False,
    }

    async def function(arguments: dict[str, object], _: Context) -> None:
        ran.append(arguments)

    return RawTool(Definition("query", input_schema=schema), function)


@pytest.mark.parametrize("probe", PROBES)
async def test_what_peers_let_through_is_refused_here_and_its_siblings_run(probe: str) -> None:
    """ADM-2, ADM-5, JSON-1, JSON-2, JSON-3, JSON-6, FN-5, FN-8; peers A1 to A17."""
    row = PROBES[probe]
    ran: list[object] = []
    texts = [row.good, row.arguments, row.good]
    batch = [ToolCall(id=f"c{at}", name=row.name, arguments=text) for at, text in enumerate(texts)]

    before, refused, after = await Executor(Registry(tools(ran), inject={"user": "bob"})).run(batch)

    assert isinstance(refused, Rejected), refused
    assert refused.kind == row.kind
    assert row.told in refused.text
    assert not row.never or row.never not in refused.text + repr(refused.problems)
    assert len(refused.text.encode()) <= 1024
    assert (before.is_error, after.is_error) == (False, False)
    assert ran == [row.given] * 2
    assert [type(value) for value in ran] == [type(row.given)] * 2


def test_every_probe_has_a_row() -> None:
    """All seventeen inputs that peers were tried with are tried here."""
    assert {name.split()[0] for name in PROBES} == {f"A{number}" for number in range(1, 18)}
    assert all(row.peers for row in PROBES.values())
