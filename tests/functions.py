"""One call of a tool, for tests of what its function takes and gives."""

from typing import cast

from ferrule import (
    Completed,
    Executor,
    Outcome,
    Tool,
    ToolCall,
)


def run(made: Tool, /, **arguments: object) -> Outcome:
    """Return the outcome of one call."""
    name = made.definition.name
    [outcome] = Executor([made]).run_sync([ToolCall.of(name, arguments, id="c1")])
    return outcome


def given(made: Tool, /, **arguments: object) -> object:
    """Return the structured content of one call that completes."""
    outcome = run(made, **arguments)
    assert isinstance(outcome, Completed), outcome.text
    return outcome.result.structured_content


def properties(made: Tool) -> dict[str, dict[str, object]]:
    """Return the schemas of a tool's parameters."""
    return cast("dict[str, dict[str, object]]", made.definition.input_schema["properties"])
