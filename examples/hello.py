"""One tool, and three calls to it as a model might write them: good, misspelt, and ambiguous."""

from ferrule import Executor, ToolCall, tool


@tool(read_only=True)
async def log_rows(hours_back: int = 24, limit: int = 100) -> str:
    """
    Count the rows of the log.

    Args:
        hours_back: How far to look back.
        limit: Stop after this many rows.
    """
    return f"{min(limit, hours_back * 2)} rows"


calls = [
    ToolCall.of("log_rows", {"hours_back": 3}),
    ToolCall.of("log_rows", {"hours": 3}),
    ToolCall(id="call_3", name="log_rows", arguments='{"limit": 5, "limit": 50}'),
]
for outcome in Executor([log_rows]).run_sync(calls):
    print(outcome.text)
