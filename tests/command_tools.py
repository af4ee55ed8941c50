"""Tools that run commands, in a durable runtime of a process that is killed: see its test."""

import sys
from pathlib import Path
from typing import cast

import anyio

from ferrule import Context, Registry, Replay, Result, ToolCall, tool
from ferrule.helpers import CommandLimits, run_command
from ferrule.runtime import SqliteRuntime

SCRIPT = """
if mkdir first 2>/dev/null
then exec 9>alive; (sleep 1000 & wait) & echo begun >&9; wait
else echo again
fi
"""
"""Goes on for ever with a child of its own the first time, and ends at once the second time."""


def registry(directory: Path, replay: Replay) -> Registry:
    """Return the registry of the one tool, which works in `directory`."""

    @tool(replay=replay)
    async def build(context: Context) -> Result:
        """Run the script."""
        limits = CommandLimits(seconds=None)
        return await run_command(
            ["sh", "-c", SCRIPT], cwd=directory, limits=limits, context=context
        )

    return Registry([build])


async def main(directory: Path, replay: Replay) -> None:
    """Run one call, for ever."""
    async with SqliteRuntime(registry(directory, replay), directory / "calls.db") as runtime:
        batch = await runtime.submit([ToolCall.of("build", id="c")], batch_id="t")
        await batch.settled()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), cast("Replay", sys.argv[2]))
