"""
Real definitions and calls of a public benchmark (Berkeley Function Calling Leaderboard, v4).

Its schemas say `dict`, `float`, `tuple` and `any` where JSON Schema says `object`, `number`,
`array` and nothing; they are mapped here. Its answers list alternatives for every value, also
inside objects: the first is taken, and an empty text or list first means that it may be left out.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from ferrule import (
    Completed,
    Context,
    Definition,
    Executor,
    InvalidCall,
    RawTool,
    Registry,
    Rejected,
    ToolCall,
    bind,
)

CORPUS = Path(__file__).parent / "corpus" / "bfcl"
Node = dict[str, object]

REFUSED: dict[tuple[object, str], str] = {
    ("parallel_multiple_21", "linear_regression_fit"): (
        # The answer is a piece of Python where the schema says array.
        "invalid arguments: x: expected array, got string; y: expected array, got string"
    ),
    ("parallel_multiple_52", "game_of_life.play"): (
        # A two-dimensional answer whose first alternative is empty, of a required argument.
        'invalid arguments: missing required property "start_board"'
    ),
    ("parallel_multiple_94", "sort_list"): (
        # The schema says integers, and the question is about fruit.
        "invalid arguments: elements[0]: expected integer, got string; "
        "elements[1]: expected integer, got string; elements[2]: expected integer, got string; "
        "elements[3]: expected integer, got string; elements[4]: expected integer, got string"
    ),
    ("simple_python_200", "calculate_emissions"): (
        # The first alternative of a required argument is empty.
        'invalid arguments: missing required property "fuel_efficiency"'
    ),
    ("live_simple_71-35-0", "extract_parameters_v1"): (
        # The schema says array and lists what its items may be as what the array may be.
        'invalid arguments: metrics: expected one of "favorability", "admired employer", "buzz", '
        '"community impact", "purchasing consideration", "trust", "usage frequency", "value", '
        '"promoter", "view"'
    ),
    ("live_simple_106-63-0", "record"): (
        # Required arguments have no alternative at all, here and in the next.
        'invalid arguments: missing required property "auto_loan_payment_start"; '
        'missing required property "bank_hours_start"'
    ),
    ("live_simple_112-68-0", "record"): (
        'invalid arguments: missing required property "acc_routing_start"; '
        'missing required property "atm_finder_start"; '
        'missing required property "faq_link_accounts_start"; '
        'missing required property "get_balance_start"; '
        'missing required property "get_transactions_start"'
    ),
    ("live_parallel_multiple_2-2-0", "ControlAppliance.execute"): (
        # The answer is none of the texts that the schema lists.
        'invalid arguments: command: expected one of "거실, 에어컨, 실행", '
        '", 에어컨, 냉방 실행", "다용도실, 통돌이, 중지"'
    ),
}
"""Calls that the benchmark holds for right and its own schemas refuse, with what a model reads."""


def listed(kind: str) -> dict[tuple[object, str], str]:
    """Return the part of `REFUSED` that is of one file."""
    of_this = re.compile(rf"{kind}_\d")
    return {key: text for key, text in REFUSED.items() if of_this.match(str(key[0]))}


MISSPELT = {"dict": "object", "float": "number", "tuple": "array"}


def lines(name: str) -> list[Node]:
    """Return the objects of one file, one a line."""
    text = (CORPUS / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def mapped(schema: object) -> object:
    """Return a schema of the benchmark in the words of JSON Schema."""
    if isinstance(schema, list):
        return [mapped(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    node = cast("Node", schema)
    if isinstance(kind := node.get("type"), str):
        node = {key: value for key, value in node.items() if (key, value) != ("type", "any")}
        node |= {"type": MISSPELT.get(kind, kind)} if "type" in node else {}
    named = {
        key: {name: mapped(member) for name, member in cast("Node", value).items()}
        for key, value in node.items()
        if key == "properties"
    }
    return {key: mapped(value) for key, value in node.items()} | named


def chosen(alternatives: Node) -> Node:
    """Return the arguments of an answer: of each the first alternative, unless it is empty."""
    firsts = {name: options[0] for name, options in pairs(alternatives) if options}
    return {name: inside(value) for name, value in firsts.items() if value not in ("", [])}


def pairs(alternatives: Node) -> Iterator[tuple[str, list[object]]]:
    """Yield each name with its alternatives."""
    for name, options in alternatives.items():
        yield name, cast("list[object]", options)


def inside(value: object) -> object:
    """Return a value without the alternatives in its objects."""
    if isinstance(value, dict):
        return chosen(cast("Node", value))
    return [inside(item) for item in value] if isinstance(value, list) else value


async def echo(arguments: dict[str, object], _: Context) -> object:
    """Give the arguments back."""
    return arguments


def tools_of(turn: Node) -> list[RawTool]:
    """Return the tools that a turn offers."""
    return [
        RawTool(
            Definition(
                cast("str", function["name"]),
                description=cast("str", function["description"]),
                input_schema=cast("Node", mapped(function["parameters"])),
            ),
            echo,
        )
        for function in cast("list[Node]", turn["function"])
    ]


def calls_of(answer: Node) -> list[tuple[str, Node]]:
    """Return the calls of an answer: names and arguments, in order."""
    return [
        (name, chosen(cast("Node", alternatives)))
        for call in cast("list[Node]", answer["ground_truth"])
        for name, alternatives in call.items()
    ]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("kind", "turns", "calls"), [("parallel", 200, 540), ("parallel_multiple", 200, 607)]
)
async def test_every_turn_runs_as_one_batch(kind: str, turns: int, calls: int) -> None:
    """
    EXE-1, ADM-2, ADM-5: one outcome a call, in order, beside the refused ones.

    No turn offers two tools of one name: its registry would refuse the turn (REG-1).
    """
    answers = {line["id"]: line for line in lines(f"possible_answer/BFCL_v4_{kind}.json")}
    refused: dict[tuple[object, str], str] = {}
    ran = 0
    questions = lines(f"BFCL_v4_{kind}.json")
    for turn in questions:
        wanted = calls_of(answers[turn["id"]])
        executor = Executor(Registry(tools_of(turn)))
        outcomes = await executor.run([ToolCall.of(name, given) for name, given in wanted])
        for (name, given), outcome in zip(wanted, outcomes, strict=True):
            ran += 1
            if isinstance(outcome, Rejected):
                refused[turn["id"], name] = outcome.text
                continue
            assert isinstance(outcome, Completed)
            assert outcome.result.structured_content == given

    assert (len(questions), ran) == (turns, calls)
    assert refused == {key: f"Error: {text}" for key, text in listed(kind).items()}
    assert len(refused) <= 3


@pytest.mark.parametrize(
    "kind", ["multiple", "simple_python", "live_simple", "live_parallel", "live_parallel_multiple"]
)
def test_every_right_call_of_the_other_files_is_let_in(kind: str) -> None:
    """ADM-1, ADM-2: every definition binds, every right call is admitted or on the list."""
    refused: dict[tuple[object, str], str] = {}
    answers = {line["id"]: line for line in lines(f"possible_answer/BFCL_v4_{kind}.json")}
    for turn in lines(f"BFCL_v4_{kind}.json"):
        contracts = {tool.definition.name: bind(tool).contract for tool in tools_of(turn)}
        for name, given in calls_of(answers[turn["id"]]):
            try:
                contracts[name].admit(ToolCall.of(name, given))
            except InvalidCall as error:
                refused[turn["id"], name] = str(error)

    assert refused == listed(kind)
