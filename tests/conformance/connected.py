"""
Our client, as the conformance suite of MCP starts it: `python connected.py URL`.

It lists the tools and calls each: as the suite says, where it says how, and else with the least
that the schema asks for. Whoever is asked something accepts what stands there.
"""

import json
import os
import sys
from typing import Any

import anyio

from ferrule import Accepted, Context, Declined, Executor, Leniency, Question, Registry, ToolCall
from ferrule.mcp import Address, Remote, connect

SAMPLES: dict[str, object] = {"string": "us-west1", "boolean": True, "object": {}, "array": []}
NUMBERS = (5, 3, 1, 2)


def sample(schema: dict[str, Any]) -> dict[str, object]:
    """Return the least that a schema asks for."""
    properties = schema.get("properties", {})
    numbers = iter(NUMBERS)
    made: dict[str, object] = {}
    for name in schema.get("required", []):
        kind = properties.get(name, {}).get("type")
        made[name] = SAMPLES[kind] if kind in SAMPLES else next(numbers)
    return made


def calls(remote: Remote) -> list[ToolCall]:
    """Return what to call."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    told = [ToolCall.of(call["name"], call["arguments"]) for call in context.get("toolCalls", [])]
    schemas: dict[str, Any] = {
        tool.definition.name: tool.definition.input_schema for tool in remote.tools
    }
    if "json_schema_echo" in schemas:
        return [ToolCall.of("json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]})]
    return told or [ToolCall.of(name, sample(schema)) for name, schema in schemas.items()]


async def agree(_: Context, __: Question) -> Accepted[Any] | Declined:
    """Accept what stands there."""
    return Accepted({})


async def main(url: str) -> None:
    """Connect, list, call."""
    # A model that writes null for what it leaves out is understood.
    traits = {"test_custom_headers_null": {"leniency": Leniency(null_is_default=True)}}
    era: Any = "auto"
    if os.environ.get("MCP_CONFORMANCE_SCENARIO") in {"initialize", "sse-retry"}:
        era = "legacy"
    remote = connect(Address(url, era=era), traits=traits)  # type: ignore[arg-type]  # a plain dict
    async with Registry([remote]) as registry:
        for bad in remote.quarantined:
            print(f"quarantined {bad.name}: {bad.reason}")  # noqa: T201  # what the suite shows
        for outcome in await Executor(registry, asker=agree).run(calls(remote)):
            print(type(outcome).__name__, outcome.text[:200])  # noqa: T201  # what the suite shows


anyio.run(main, sys.argv[1])
