"""What batches run under: the tools, and everybody who is asked or told."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Literal, TypeAlias

from ferrule._context import Asker, Context, Progress, Recorder
from ferrule._crew import Stuck
from ferrule._registry import Registry, Source
from ferrule._tool import Tool
from ferrule.errors import FerruleError

OnDispatch: TypeAlias = Callable[[Context], Awaitable[None] | None]
"""Called when a call has its permit, its slot and its turn, before the tool; it may refuse."""

Sink: TypeAlias = Callable[[Context, Progress], Awaitable[None] | None]
"""
Hears of progress, the newest of each call, when the batch is read: one update at a time, a plain
function in a thread. What it raises is logged; it delays no tool.
"""

Turn: TypeAlias = Callable[[Context], Awaitable[None]]
"""
Awaited when a call may run and has its slot and its turn, before `on_dispatch`, however long it
takes; what it raises refuses the call. For a host whose calls wait for more than their batch, or
who must keep that a tool begins before it does.
"""

OnLate: TypeAlias = Callable[[Context, object], None]
"""
Hears how a call ended that had been reported before: a result, a question, or an exception; from
whichever thread it ended in. It is evidence, and changes no outcome (CONTRACT EXE-7).
"""

Errors: TypeAlias = Literal["reference", "message"]


class Harness:
    """What batches run under; `Executor` says what each part is."""

    def __init__(  # noqa: PLR0913  # each by keyword; all that a harness may give
        self,
        tools: Registry | Iterable[Tool | Source],
        *,
        max_parallel: int = 8,
        sequential: bool = False,
        recorder: Recorder | None = None,
        asker: Asker | None = None,
        on_dispatch: OnDispatch | None = None,
        turn: Turn | None = None,
        on_late: OnLate | None = None,
        on_progress: Sink | None = None,
        hook_timeout: float = 30.0,
        errors: Errors = "reference",
    ) -> None:
        if max_parallel < 1:
            raise FerruleError("max_parallel is the number of calls that run at once: 1 or more")
        self.registry = tools if isinstance(tools, Registry) else Registry(tools)
        self.max_parallel = max_parallel
        self.sequential = sequential
        self.recorder = recorder
        self.asker = asker
        self.on_dispatch = on_dispatch
        self.turn = turn
        self.on_late = on_late
        self.on_progress = on_progress
        self.hook_timeout = hook_timeout
        self.errors: Errors = errors
        self.stuck = Stuck()

    def adopt(self, other: "Harness") -> None:
        """Have every setting of another harness, and count its threads as ours; the tools stay."""
        own = vars(self)
        kept = own.keys() - {"registry"}
        own.update((name, value) for name, value in vars(other).items() if name in kept)
