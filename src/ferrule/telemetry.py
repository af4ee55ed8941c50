"""
OpenTelemetry spans and metrics of calls (`pip install 'ferrule[otel]'`).

```python
from ferrule import Executor
from ferrule.telemetry import traced

executor = traced(Executor(tools))
outcomes = await executor.run(calls)
```

Names follow the GenAI semantic conventions 0.1.0, which are in development; what they have no name
for begins with `ferrule.`. Only the API of OpenTelemetry is needed: where no SDK is set up, nothing
is recorded. What people wrote stays here: arguments and results are recorded only with
`content=True`, the text of an exception never.

A span tells what the tool did and ends when the tool does. An outcome tells what that means for the
call (CONTRACT FAIL-6), which only the batch knows; so outcomes are counted when a batch is left.
"""

import functools
import json
import time
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from types import TracebackType
from typing import Self, assert_never, overload

from ferrule import (
    Batch,
    Cancelled,
    Completed,
    Context,
    Executor,
    Failed,
    Failure,
    FerruleError,
    InputRequest,
    Invocation,
    Leg,
    Outcome,
    Registry,
    Rejected,
    Result,
    Suspended,
    Tool,
    ToolCall,
    Unknown,
    Wrapper,
    capability,
    outcome_of,
)

# `opentelemetry` alone is a namespace, which is there when any of its packages is.
if find_spec("opentelemetry") is None or find_spec("opentelemetry.trace") is None:
    raise ModuleNotFoundError(
        "OpenTelemetry is not installed: pip install 'ferrule[otel]'", name="opentelemetry"
    )

from opentelemetry import context as surroundings
from opentelemetry import metrics, trace

__all__ = ("traced",)

_BATCH = surroundings.create_key("ferrule-batch")
"""Under which a context keeps the span of the batch that it belongs to."""

_BOUNDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Seconds: the buckets that the conventions give to the other durations of GenAI operations."""


@overload
def traced(
    tools: Executor,
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    content: bool = False,
) -> Executor: ...


@overload
def traced(
    tools: Registry,
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    content: bool = False,
) -> Registry: ...


def traced(
    tools: Executor | Registry,
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    content: bool = False,
) -> Executor | Registry:
    """
    Return an executor, or a registry, like this one, with spans and metrics.

    Each run of a tool is a span, `execute_tool NAME`, and a duration. The batches of an executor
    are spans too, around those of their calls and linked to them, and every outcome is counted,
    also of a call whose tool never ran. A registry is for those who drive calls themselves. A tool
    that is traced already is left as it is. As of `Registry.map`, what is registered later in the
    registry that was given is not seen.

    Args:
        tools: What to trace.
        tracer_provider: Makes the spans; the one of the process if left out.
        meter_provider: Makes the metrics; the one of the process if left out.
        content: Record arguments and results in the spans. They may hold secrets, and they are as
            long as they are: see the SDK's limits of attributes.

    Raises:
        FerruleError: that is neither an executor nor a registry.
    """
    signals = _Signals(tracer_provider, meter_provider, content=content)
    if isinstance(tools, Executor):
        return _TracedExecutor(tools, signals)
    if isinstance(tools, Registry):
        return tools.map(signals.around)
    raise FerruleError(
        f"an Executor or a Registry can be traced, not {type(tools).__name__}: "
        "traced(Executor(tools))"
    )


class _Signals:
    """Where the spans and metrics of one `traced` go."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None,
        meter_provider: metrics.MeterProvider | None,
        *,
        content: bool,
    ) -> None:
        self.content = content
        self.tracer = trace.get_tracer("ferrule", tracer_provider=tracer_provider)
        meter = metrics.get_meter("ferrule", meter_provider=meter_provider)
        self.durations = meter.create_histogram(
            "gen_ai.execute_tool.duration",
            unit="s",
            description="The duration of a single tool execution.",
            explicit_bucket_boundaries_advisory=_BOUNDS,
        )
        self.outcomes = meter.create_counter(
            "ferrule.tool.calls",
            unit="{call}",
            description="Calls that have ended, by outcome; also those whose tool did not run.",
        )

    def around(self, tool: Tool) -> Tool:
        """Return a tool with spans around its runs, unless it has them already."""
        return _TracedTool(tool, self) if capability(tool, _TracedTool) is None else tool


# ---- one run of a tool ---------------------------------------------------------------------------


class _TracedTool(Wrapper):
    """A tool whose every run is a span."""

    def __init__(self, tool: Tool, signals: _Signals) -> None:
        super().__init__(tool)
        definition = self.definition
        self.signals = signals
        self.labels = {"gen_ai.tool.name": definition.name, "gen_ai.tool.type": "function"}
        self.facts = {"gen_ai.operation.name": "execute_tool", **self.labels}
        if definition.description:
            self.facts["gen_ai.tool.description"] = definition.description

    async def call(self, invocation: Invocation, context: Context, /) -> Result | InputRequest:
        """Run one admitted call by the wrapped tool, as a span."""
        with _Run(self, invocation, context) as run:
            gave = run.gave = await super().call(invocation, context)
        return gave


class _Run:
    """
    One run of a tool, from its first step to its last.

    The span is the current one meanwhile, in the tool's thread too, so that spans of the tool's own
    become its children. Time is measured once, by a clock that nobody sets: the duration that is
    recorded is that of the span.
    """

    __slots__ = (
        "_began", "_clock", "_context", "_records_content", "_span", "_token", "_tool", "gave",
    )  # fmt: skip

    def __init__(self, tool: _TracedTool, invocation: Invocation, context: Context) -> None:
        facts: dict[str, str | int] = {**tool.facts, "gen_ai.tool.call.id": context.call_id}
        if context.leg > 1:
            facts["ferrule.call.leg"] = context.leg
        self.gave: Result | InputRequest | None = None
        self._tool = tool
        self._context = context
        self._began, self._clock = time.time_ns(), time.perf_counter_ns()
        name = f"execute_tool {facts['gen_ai.tool.name']}"
        self._span = tool.signals.tracer.start_span(name, attributes=facts, start_time=self._began)
        self._records_content = tool.signals.content and self._span.is_recording()
        if self._records_content:
            arguments = json.dumps(invocation.arguments, ensure_ascii=False)
            self._span.set_attribute("gen_ai.tool.call.arguments", arguments)

    def __enter__(self) -> Self:
        batch = surroundings.get_value(_BATCH)
        if isinstance(batch, trace.Span):
            link = {"gen_ai.tool.call.id": self._context.call_id}
            batch.add_link(self._span.get_span_context(), link)
        # A call that the tool makes itself is none of this batch.
        apart = surroundings.set_value(_BATCH, None)
        self._token = surroundings.attach(trace.set_span_in_context(self._span, apart))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        elapsed = time.perf_counter_ns() - self._clock
        outcome = self._outcome(self.gave if error is None else error)
        problem = _problem_of(outcome)
        self._tool.signals.durations.record(elapsed / 1e9, {**self._tool.labels, **problem})
        surroundings.detach(self._token)
        self._span.set_attributes({"ferrule.outcome": _name_of(outcome), **problem})
        if problem:
            self._span.set_status(trace.StatusCode.ERROR)
        if kind is not None and not issubclass(kind, Failure):
            self._span.set_attribute("exception.type", _type_name(kind))
        if self._records_content and isinstance(outcome, Completed):
            self._span.set_attribute("gen_ai.tool.call.result", outcome.result.text)
        self._span.end(self._began + elapsed)

    def _outcome(self, ended: object) -> Outcome:
        """Return what the run alone establishes; the executor writes the operator's entry."""
        traits = self._context.traits or self._tool.traits
        outcome = outcome_of(
            ended,
            tool=self._context.tool,
            replay="unknown" if callable(traits.replay) else traits.replay,
            failures=traits.failures,
            stopped=self._context.cancelled,
            log=False,
        )
        return self._at_the_limit(outcome) if self._context.timed_out else outcome

    @staticmethod
    def _at_the_limit(outcome: Outcome) -> Outcome:
        """Return what a run is that its time limit ended; one that ended late is as it ended."""
        match outcome:
            case Unknown(reason="cancelled" | "still_running"):
                return Unknown("timed_out", tool=outcome.tool)
            case _:
                return outcome


# ---- a batch of calls ----------------------------------------------------------------------------


class _TracedExecutor(Executor):
    """An executor like another, whose batches are spans."""

    def __init__(self, executor: Executor, signals: _Signals) -> None:
        super().__init__(executor.registry.map(signals.around))
        self.adopt(executor)
        self._signals = signals

    async def run(self, calls: Iterable[ToolCall | Leg], *, caller: object = None) -> list[Outcome]:
        """Run the calls as a span; see `Executor.run`."""
        batch = self.batch(calls, caller=caller)
        async with batch:
            async for _ in batch:
                pass
        return list(batch.outcomes)

    def batch(self, calls: Iterable[ToolCall | Leg], *, caller: object = None) -> Batch:
        """Return a batch that is a span; see `Executor.batch`."""
        return _TracedBatch(self, calls, caller=caller, signals=self._signals)


class _TracedBatch(Batch):
    """
    A batch that is a span, from entering it to leaving it.

    The span is the current one for the calls and not for the block: events may be taken anywhere,
    also in a generator, and a context must be left where it was entered.
    """

    def __init__(
        self,
        executor: Executor,
        calls: Iterable[ToolCall | Leg],
        *,
        caller: object,
        signals: _Signals,
    ) -> None:
        given = list(calls)
        super().__init__(executor, given, caller=caller, listening=True)
        self._given = given
        self._tools = executor.registry
        self._signals = signals
        self._span: trace.Span = trace.INVALID_SPAN
        self._counted = False

    async def __aenter__(self) -> Self:
        span = self._signals.tracer.start_span(
            "ferrule.batch", attributes={"ferrule.batch.size": len(self._given)}
        )
        with ExitStack() as undo:
            undo.push(functools.partial(_end, span, None))
            undo.callback(self._count, span)
            with _inside(span):
                await super().__aenter__()
            undo.pop_all()
        self._span = span
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with ExitStack() as left:
            left.push(functools.partial(_end, self._span, kind))
            left.callback(self._count, self._span)
            await super().__aexit__(kind, error, traceback)

    def _count(self, span: trace.Span) -> None:
        """Count how each call ended, once, also of a batch that could not be entered."""
        if self._counted or len(self.outcomes) < len(self._given):
            return
        self._counted = True
        ended = Counter[str]()
        within = trace.set_span_in_context(span)
        for given, outcome in zip(self._given, self.outcomes, strict=True):
            name = given.call.name if isinstance(given, Leg) else given.name
            ended[_name_of(outcome)] += 1
            labels = {"ferrule.outcome": _name_of(outcome), **_problem_of(outcome)}
            if name in self._tools:  # What else a model writes there has no bound.
                labels["gen_ai.tool.name"] = name
            self._signals.outcomes.add(1, labels, within)
        span.set_attributes({f"ferrule.batch.{name}": count for name, count in ended.items()})


@contextmanager
def _inside(batch: trace.Span) -> Generator[None]:
    """Make a batch's span the current one for what is started here."""
    within = trace.set_span_in_context(batch, surroundings.set_value(_BATCH, batch))
    token = surroundings.attach(within)
    try:
        yield
    finally:
        surroundings.detach(token)


def _end(
    span: trace.Span,
    block: type[BaseException] | None,
    left: type[BaseException] | None,
    *_: object,
) -> None:
    """End a batch's span; what went through its block, or came of leaving it, is named by type."""
    broke = left or block
    if broke is not None:
        span.set_attribute("error.type", _type_name(broke))
        span.set_status(trace.StatusCode.ERROR)
    span.end()


# ---- words ---------------------------------------------------------------------------------------


def _name_of(outcome: Outcome) -> str:
    return type(outcome).__name__.lower()


def _problem_of(outcome: Outcome) -> dict[str, str]:
    """Return `error.type`, from the closed list of CONTRACT FAIL-6, or nothing for no error."""
    name = _name_of(outcome)
    match outcome:
        case Completed() | Suspended():
            return {}
        case Failed():
            return {"error.type": name}
        case Rejected(kind=reason) | Cancelled(reason=reason) | Unknown(reason=reason):
            return {"error.type": name if reason == name else f"{name}:{reason}"}
        case _:
            assert_never(outcome)


def _type_name(kind: type[BaseException]) -> str:
    place = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return place + kind.__qualname__
