"""
A fuzz of what a model's response is read by: `python tests/fuzz_turns.py --texts 100000`.

Turns that are nearly right meet the reader of the command line, as bytes, and the wire, as the
plain values that an SDK gives. The first says no with `Refused`, the second with `InvalidValue`,
and neither with anything else. Of what they take, every call is admitted or refused, and a reply
has exactly one output for each of them, in order, that is JSON.
"""

import contextlib
import io
import json
import sys
import types
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from ferrule import (
    Completed,
    Context,
    Definition,
    InvalidCall,
    InvalidValue,
    Outcome,
    RawTool,
    Registry,
    Result,
    ToolCall,
    outcome_of,
    read_json,
)
from ferrule.cli._refused import Refused
from ferrule.cli._turn import read_turn
from ferrule.wire.openresponses import Wire
from fuzzing import Changer, made_by, main
from support import steps_of

TURNS = [
    json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parents[1] / "examples" / "turns").glob("*.json"))
]
CALL = {"type": "function_call", "call_id": "c1", "name": "read_file", "arguments": '{"path":"a"}'}
SMALLEST = {
    "output": [
        CALL,
        {"type": "function_call", "call_id": "c2", "name": "a.b", "arguments": ""},
        {"type": "reasoning", "summary": [], "encrypted_content": None},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "é"}]},
    ]
}
LONG = "x" * 70_000
PARTS: tuple[object, ...] = (
    "type", "output", "call_id", "name", "arguments", "function_call", "status", "incomplete",
    "in_progress", "read_file", "a_b", "a.b", "", " ", "\u2003", "null", "{", '{"path":"a"}', "é",
    "\ufffe", "\ud800", "\x00", "c1", LONG, "x" * 65, None, True, 0, -1.5, 1e308, 2**70, [], {},
    [[]], {"type": "function_call"}, {"type": 1}, {"output": []},
)  # fmt: skip
STRANGE: tuple[object, ...] = (
    *PARTS, float("nan"), float("inf"), b"output", (), ("type",), object(), ..., {1: 2}, {None: 0},
    types.SimpleNamespace(type="function_call", call_id="c9", name="a.b", arguments=None), set,
)  # fmt: skip


def taking(name: str) -> RawTool:
    """Return a tool that takes a path."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}

    async def function(arguments: dict[str, object], _: Context) -> object:
        return arguments

    return RawTool(Definition(name, input_schema=schema), function)


REGISTRY = Registry([taking("read_file"), taking("a.b")])
WIRE = Wire(REGISTRY)


class Turn(NamedTuple):
    """A response as bytes, and as an SDK's values."""

    data: bytes
    values: object


class TurnChanger(Changer):
    """Makes turns that are nearly right."""

    def turn(self) -> Turn:
        """Return one."""
        turn = (SMALLEST, SMALLEST, *TURNS)[self.below(2 + len(TURNS))]
        data = self.written(self.changed(turn, PARTS, 4)).encode("utf-8", "surrogatepass")
        if data and self.below(16) == 15:
            at = self.number() % len(data)
            data = data[:at] + bytes([self.below(256)]) + data[at + 1 :]
        return Turn(data, self.changed(turn, STRANGE, 3))


def batches() -> Any:  # noqa: ANN401  # a strategy for lists of turns
    """Return a strategy for turns."""
    return made_by(TurnChanger, TurnChanger.turn, 60)


# ---- what must hold ------------------------------------------------------------------------------


def check(turn: Turn) -> str:
    """Hold one turn to the rules; say what came of its bytes."""
    check_values(turn.values)
    try:
        response, form = read(turn.data)
    except Refused as error:
        return refused(error.message)
    assert form == "openresponses"
    assert check_values(response), turn.data[:500]
    return "read"


def read(data: bytes) -> tuple[dict[str, object], str]:
    """Read a turn as the command line does from standard input."""
    with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")):
        return read_turn("-", "auto")


def refused(sentence: str) -> str:
    """Hold a refusal to the rules."""
    assert 0 < len(sentence.encode()) <= 1024, sentence[:500]
    return "refused"


def check_values(response: object) -> bool:
    """Hold a response to the rules; say whether it was one."""
    try:
        calls = WIRE.calls(response)
    except InvalidValue as error:
        return not refused(str(error))
    outputs = WIRE.outputs(calls, [outcome(call) for call in calls])
    assert [item["call_id"] for item in outputs] == [call.id for call in calls]
    assert read_json(json.dumps(outputs)) == outputs
    return True


def outcome(call: ToolCall) -> Outcome:
    """Return how a call would end whose tool gives its arguments back."""
    binding = REGISTRY.resolve(call.name)
    if binding is None:
        return outcome_of(InvalidCall("unknown_tool"), tool=call.name, dispatched=False)
    try:
        return Completed(Result.of(binding.contract.admit(call).arguments))
    except InvalidCall as error:
        return outcome_of(error, tool=call.name, dispatched=False)


STEPS = 10_000
STEPS_A_BYTE = 1
"""What reading a turn may cost, counted in calls: so many, and so many more for each byte."""


def check_cost(data: bytes) -> float:
    """Hold one turn to its bound; return its steps as a part of what it may have."""

    def reading() -> None:
        with contextlib.suppress(Refused):
            read(data)

    steps = steps_of(reading) / (STEPS + STEPS_A_BYTE * len(data))
    assert steps <= 1, (data[:200], len(data), steps)
    return steps


def large(size: int) -> list[bytes]:
    """Return turns that are dear for their size."""
    call = json.dumps(CALL)
    return [
        b'{"output":[' + b",".join([call.encode()] * size) + b"]}",
        b'{"output":[' + b"{}," * size + b"{}]}",
        b'{"output":' + b"[" * size + b"]" * size + b"}",
        b'{"output":' * size,
        b'{"output":[' + b'{"type":"a"},' * size + b"1]}",
        b'{"output":[{"type":"' + b"\xff" * size + b'"}]}',
        b"\n" * size + b"{",
        b'{"output":[{"type":"function_call","call_id":"' + b"\\ud800" * size + b'"}]}',
    ]


def costs() -> str:
    """Hold the large turns to their bounds, and say how near the nearest came."""
    parts = [check_cost(data) for size in (100, 20_000) for data in large(size)]
    return f"{len(parts)} large ones took at most {max(parts):.0%} of their steps"


if __name__ == "__main__":
    sys.exit(main("turns", batches(), check, costs))
