"""The door to batches: run calls, plan them, or take their events one by one."""

import functools
from collections.abc import Iterable

import anyio

from ferrule._backend import loop_runs
from ferrule._batch import Batch, Plan
from ferrule._binding import Leg
from ferrule._calls import ToolCall
from ferrule._harness import Harness
from ferrule._outcome import Outcome
from ferrule.errors import FerruleError


class Executor(Harness):
    """
    Runs batches of calls.

    Args:
        tools: A registry, or tools to make one from.
        max_parallel: How many calls of a batch run at once.
        sequential: Run every batch in the model's order, one call at a time.
        recorder: Makes records durable; see `Recorder`.
        asker: Asks people while a call waits; see `Asker`.
        on_dispatch: Called before each tool, once it has its permit; a call whose hook raises is
            `Rejected("unavailable")`. A plain function costs a thread hop a call.
        turn: Awaited before `on_dispatch`, however long it takes; see `Turn`.
        on_late: Hears of what comes after a call was reported; see `OnLate`. It is logged anyway.
        on_progress: Called with the newest progress of each call while the batch is read; see
            `Sink`.
        hook_timeout: Seconds that each policy, hook and trait function may take, each for itself.
        errors: `"message"` shows the text of private exceptions to the model; for development.
    """

    async def run(self, calls: Iterable[ToolCall | Leg], *, caller: object = None) -> list[Outcome]:
        """
        Run the calls and return their outcomes in the calls' order.

        Never raises for what a call does. Cancelled from outside, it stops the calls first.
        """
        listening = self.on_progress is not None
        batch = Batch(self, calls, caller=caller, listening=listening)
        async with batch:
            if listening:
                async for _ in batch:
                    pass
            await batch.ended()
        return list(batch.outcomes)

    def run_sync(self, calls: Iterable[ToolCall | Leg], *, caller: object = None) -> list[Outcome]:
        """
        Do as `run` does, where no event loop runs.

        Raises:
            FerruleError: an event loop runs in this thread.
        """
        if loop_runs():
            raise FerruleError("an event loop runs here: use `await executor.run(calls)`")
        return anyio.run(functools.partial(self.run, calls, caller=caller))

    async def plan(self, calls: Iterable[ToolCall | Leg]) -> Plan:
        """
        Return which calls would wait for which, without running any.

        Lets the calls in and asks the tools' functions what they work on, as a batch would; a call
        that is refused waits for nobody and holds nobody back. No guard is asked. A host that keeps
        calls finds in it what there is to keep; see `Planned`.
        """
        return await Batch(self, calls, caller=None, listening=False).planned()

    def batch(self, calls: Iterable[ToolCall | Leg], *, caller: object = None) -> Batch:
        """
        Return a batch to enter with `async with` and to take events from with `async for`.

        Leaving the block stops what still runs, waits for it, and reports it.
        """
        return Batch(self, calls, caller=caller, listening=True)
