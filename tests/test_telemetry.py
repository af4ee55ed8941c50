"""Spans and metrics of calls, as a real SDK exports them, and without an SDK."""

import importlib.util
import inspect
import json
import logging
import runpy
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import cast

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    InMemoryMetricReader,
    NumberDataPoint,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import SpanKind, StatusCode

from ferrule import (
    Ask,
    Authorization,
    CallError,
    Context,
    Decision,
    Definition,
    Deny,
    Executor,
    Failure,
    FerruleError,
    Finished,
    InputRequest,
    Invocation,
    Leg,
    Permit,
    RawTool,
    Registry,
    Result,
    Started,
    Text,
    ToolCall,
    Traits,
    Wrapper,
    telemetry,
    tool,
)
from ferrule.telemetry import traced
from ferrule.testing import MemoryRecorder
from support import ANYTHING, calls, echo, raw, raws

pytestmark = pytest.mark.anyio

MARKER = "marker-7f3a9c"


class Seen:
    """What reaches the exporters of one host."""

    def __init__(self, *, sampled: bool = True) -> None:
        self._spans = InMemorySpanExporter()
        self.tracers = TracerProvider(sampler=ALWAYS_ON if sampled else ALWAYS_OFF)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])

    def executor(self, executor: Executor, *, content: bool = False) -> Executor:
        """Return a traced executor that reports here."""
        return traced(
            executor, tracer_provider=self.tracers, meter_provider=self.meters, content=content
        )

    def registry(self, registry: Registry) -> Registry:
        """Return a traced registry that reports here."""
        return traced(registry, tracer_provider=self.tracers, meter_provider=self.meters)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """Spans that have ended, in the order of their ends."""
        return self._spans.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the ended spans of one name."""
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """Return the only ended span of this name."""
        (span,) = self.named(name)
        return span

    def points(self, metric: str) -> list[NumberDataPoint | HistogramDataPoint]:
        """Return the data points of one metric."""
        data = self._reader.get_metrics_data()
        found = [
            each
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for each in scope.metrics
            if each.name == metric
        ]
        return [
            point
            for each in found
            for point in cast("list[NumberDataPoint | HistogramDataPoint]", each.data.data_points)
        ]

    @property
    def durations(self) -> list[HistogramDataPoint]:
        """The data points of the duration of tools."""
        found = self.points("gen_ai.execute_tool.duration")
        return [point for point in found if isinstance(point, HistogramDataPoint)]

    @property
    def counts(self) -> dict[tuple[object, ...], int]:
        """How often each outcome was counted: by tool, outcome and type of error."""
        keys = ("gen_ai.tool.name", "ferrule.outcome", "error.type")
        found = self.points("ferrule.tool.calls")
        return {
            tuple(_labels(point.attributes).get(key) for key in keys): int(point.value)
            for point in found
            if isinstance(point, NumberDataPoint)
        }

    @property
    def exported(self) -> str:
        """Everything, as text."""
        data = self._reader.get_metrics_data()
        spans = [span.to_json() or "" for span in self.spans]
        return "\n".join([*spans, "" if data is None else data.to_json()])


def _labels(attributes: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", attributes or {})


def problem(span: ReadableSpan) -> object:
    """Return the type of error of a span; its status agrees, and says nothing more."""
    found = _labels(span.attributes).get("error.type")
    assert span.status.status_code is (StatusCode.UNSET if found is None else StatusCode.ERROR)
    assert span.status.description is None
    assert span.events == ()
    return found


def parent_of(span: ReadableSpan) -> int | None:
    """Return the id of a span's parent."""
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    """Return the id of a span."""
    context = span.get_span_context()
    assert context is not None
    return context.span_id


# ---- one run of a tool ---------------------------------------------------------------------------


async def test_a_run_of_a_tool_is_a_span_as_the_conventions_name_it() -> None:
    """EXE-13, issue 5: GenAI conventions 0.1.0, and nothing that was not asked for."""
    seen = Seen()

    @tool
    async def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    call = ToolCall.of("add", {"a": 2, "b": 3}, id="c1")
    (outcome,) = await seen.executor(Executor([add])).run([call])

    assert outcome.text == "5"
    span = seen.one("execute_tool add")
    assert span.kind is SpanKind.INTERNAL
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "ferrule"
    assert problem(span) is None
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Add two integers.",
        "gen_ai.tool.call.id": "c1",
        "ferrule.outcome": "completed",
    }


async def test_the_duration_of_a_tool_is_that_of_its_span() -> None:
    """GenAI conventions, gen_ai.execute_tool.duration: the same value, in seconds."""
    seen = Seen()

    await seen.executor(Executor([echo()])).run(calls("echo", 1))

    span, (point,) = seen.one("execute_tool echo"), seen.durations
    assert span.start_time is not None
    assert span.end_time is not None
    assert point.sum == pytest.approx((span.end_time - span.start_time) / 1e9, abs=1e-12)
    assert point.count == 1
    assert dict(point.attributes or {}) == {
        "gen_ai.tool.name": "echo",
        "gen_ai.tool.type": "function",
    }
    assert point.explicit_bounds[:3] == (0.01, 0.02, 0.04)


@pytest.mark.parametrize("in_loop", [True, False], ids=["async", "thread"])
async def test_a_tools_own_spans_are_children_of_its_run(*, in_loop: bool) -> None:
    """Issue 5: the current span reaches a tool, in the loop and in its thread."""
    seen = Seen()
    tracer = trace.get_tracer("mine", tracer_provider=seen.tracers)

    async def asynchronous(arguments: dict[str, object], context: Context) -> str:
        with tracer.start_as_current_span("inner"):
            return "done"

    def plain(arguments: dict[str, object], context: Context) -> str:
        with tracer.start_as_current_span("inner"):
            return "done"

    tools = [raw("work", asynchronous if in_loop else plain)]
    await seen.executor(Executor(tools)).run(calls("work", 1))

    assert parent_of(seen.one("inner")) == id_of(seen.one("execute_tool work"))


async def test_a_second_leg_says_which_it_is() -> None:
    """SUS-2: the runs of one logical call can be told apart."""
    seen = Seen()

    await seen.executor(Executor([echo()])).run([Leg(ToolCall.of("echo", id="c1"), number=2)])

    assert _labels(seen.one("execute_tool echo").attributes)["ferrule.call.leg"] == 2


# ---- how calls end -------------------------------------------------------------------------------


class Missing(Exception):
    """An error that a tool declares."""


async def asks(arguments: dict[str, object], context: Context) -> InputRequest:
    """Ask a person."""
    return InputRequest("Which?", schema={"type": "string"}, state={})


async def fails(arguments: dict[str, object], context: Context) -> str:
    """Fail definitely."""
    raise Failure("the file is locked")


async def misses(arguments: dict[str, object], context: Context) -> str:
    """Fail in a declared way."""
    raise Missing("no such file")


async def raises(arguments: dict[str, object], context: Context) -> str:
    """Raise a private error."""
    raise ValueError("private")


async def observes(arguments: dict[str, object], context: Context) -> str:
    """Raise with evidence."""
    raise CallError(Result((Text("seen"),))) from ValueError("private")


async def exits(arguments: dict[str, object], context: Context) -> str:
    """End as nobody expects."""
    raise SystemExit(3)


async def works(arguments: dict[str, object], context: Context) -> str:
    """Do nothing."""
    return "done"


class Nonsense(Wrapper):
    """A tool that gives what no tool may give."""

    async def call(self, invocation: Invocation, context: Context, /) -> Result | InputRequest:
        """Give a number."""
        return cast("Result", 42)


ENDINGS = [
    pytest.param(raw("t", works), "completed", None, None, id="completed"),
    pytest.param(raw("t", asks), "suspended", None, None, id="suspended"),
    pytest.param(raw("t", fails), "failed", "failed", None, id="failure"),
    pytest.param(
        *(raw("t", misses, failures=(Missing,)), "failed", "failed"),
        f"{Missing.__module__}.Missing",
        id="declared",
    ),
    pytest.param(raw("t", raises, replay="safe"), "failed", "failed", "ValueError", id="safe"),
    pytest.param(raw("t", raises), "unknown", "unknown:raised", "ValueError", id="raised"),
    pytest.param(
        *(raw("t", observes), "unknown", "unknown:raised"), "ferrule.CallError", id="evidence"
    ),
    pytest.param(raw("t", exits), "unknown", "unknown:crashed", "SystemExit", id="crashed"),
    pytest.param(Nonsense(raw("t", works)), "unknown", "unknown:bad_result", None, id="bad_result"),
]


@pytest.mark.parametrize(("ends", "name", "kind", "error"), ENDINGS)
async def test_span_duration_and_count_agree_on_how_a_call_ended(
    ends: RawTool | Wrapper, name: str, kind: str | None, error: str | None
) -> None:
    """FAIL-6: one mapping; the span has the kind of the outcome and an error's type, no text."""
    seen = Seen()

    (outcome,) = await seen.executor(Executor([ends])).run([ToolCall.of("t")])

    assert type(outcome).__name__.lower() == name
    span = seen.one("execute_tool t")
    assert problem(span) == kind
    assert _labels(span.attributes)["ferrule.outcome"] == name
    found = cast("str | None", _labels(span.attributes).get("exception.type"))
    assert found == error or (error == "ferrule.CallError" and (found or "").endswith("CallError"))
    assert seen.counts == {("t", name, kind): 1}
    assert [_labels(point.attributes).get("error.type") for point in seen.durations] == [kind]


async def deny(authorization: Authorization) -> Decision:
    """Say no."""
    return Deny("not today")


async def ask(authorization: Authorization) -> Decision:
    """Have a person asked."""
    return Ask("Really?")


async def break_down(authorization: Authorization) -> Decision:
    """Fail to decide."""
    raise ValueError(MARKER)


def guarded(policy: Callable[..., object]) -> Registry:
    """Return one tool behind a policy."""
    return Registry([echo()]).guarded(cast("Callable[[Authorization], Decision]", policy))


NEVER = [
    pytest.param(Registry([echo()]), ToolCall.of(MARKER), None, "rejected:unknown_tool"),
    pytest.param(
        *(
            Registry([echo()]),
            ToolCall(id="c", name="echo", arguments="{"),
            "echo",
            "rejected:invalid_json",
        ),
    ),
    pytest.param(
        *(
            Registry([echo()]),
            ToolCall(id="c", name="echo", arguments="[]"),
            "echo",
            "rejected:invalid_arguments",
        ),
    ),
    pytest.param(guarded(deny), ToolCall.of("echo"), "echo", "rejected:unauthorized"),
    pytest.param(guarded(break_down), ToolCall.of("echo"), "echo", "rejected:unavailable"),
    pytest.param(guarded(ask), ToolCall.of("echo"), "echo", None),
]


@pytest.mark.parametrize(("tools", "call", "name", "kind"), NEVER)
async def test_a_call_whose_tool_never_ran_is_counted_and_has_no_span(
    tools: Registry, call: ToolCall, name: str | None, kind: str | None
) -> None:
    """FAIL-6: rejected and suspended calls too; a name that no tool has is recorded nowhere."""
    seen = Seen()

    await seen.executor(Executor(tools)).run([call])

    outcome = "suspended" if kind is None else "rejected"
    assert seen.counts == {(name, outcome, kind): 1}
    assert [span.name for span in seen.spans] == ["ferrule.batch"]
    assert _labels(seen.one("ferrule.batch").attributes) == {
        "ferrule.batch.size": 1,
        f"ferrule.batch.{outcome}": 1,
    }
    assert problem(seen.one("ferrule.batch")) is None
    assert seen.durations == []
    assert MARKER not in seen.exported


async def test_the_operator_has_one_entry_of_a_private_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """FAIL-4: a span looks at how a run ended and writes no entry of its own."""
    with caplog.at_level(logging.ERROR, logger="ferrule"):
        (outcome,) = await Seen().executor(Executor([raw("t", raises)])).run([ToolCall.of("t")])

    (entry,) = caplog.records
    reference = outcome.to_json()["reference"]
    assert f"reference {reference}:" in entry.getMessage()


# ---- what is recorded ----------------------------------------------------------------------------


class Secretive(Exception):
    """An error whose text is nobody's business."""


@tool(failures=(Secretive,), description="Plain.")
async def leak(way: str, secret: str) -> Result:
    """Show a secret wherever a tool can show one."""
    match way:
        case "failure":
            raise Failure(f"public {secret}", cause=ValueError(secret), details=secret)
        case "declared":
            raise Secretive(secret)
        case "raised":
            raise ValueError(secret) from RuntimeError(secret)
        case "evidence":
            raise CallError(Result((Text(secret),))) from ValueError(secret)
        case _:
            return Result((Text(secret),), structured_content={"a": secret}, details=secret)


WAYS = ("failure", "declared", "raised", "evidence", "result")


def leaking() -> list[ToolCall]:
    """Return one call for each way out, and some that are refused."""
    given = [ToolCall.of("leak", {"way": way, "secret": MARKER}, id=way) for way in WAYS]
    refused = [f'{{"way": "{MARKER}"}}', f'"{MARKER}', f'{{"{MARKER}": 1, "{MARKER}": 1}}']
    return [
        *given,
        *(ToolCall(id=f"r{n}", name="leak", arguments=text) for n, text in enumerate(refused)),
    ]


async def test_nothing_of_arguments_results_and_errors_is_exported() -> None:
    """FAIL-5, issue 5: not in spans, not in metrics, unless asked."""
    seen = Seen()
    registry = Registry([leak], inject={"unused": MARKER})

    outcomes = await seen.executor(Executor(registry)).run(leaking(), caller=MARKER)

    assert MARKER in outcomes[0].text  # The plant works: the model reads it.
    assert len(seen.named("execute_tool leak")) == len(WAYS)
    assert sum(seen.counts.values()) == len(leaking())
    assert MARKER not in seen.exported


async def test_content_that_was_asked_for_is_arguments_and_results_of_success_alone() -> None:
    """GenAI conventions: both are opt-in; the text of an error is never recorded."""
    seen = Seen()

    await seen.executor(Executor([leak]), content=True).run(leaking())

    for span in seen.named("execute_tool leak"):
        attributes = _labels(span.attributes)
        way = attributes["gen_ai.tool.call.id"]
        written = json.loads(str(attributes["gen_ai.tool.call.arguments"]))
        assert written == {"way": way, "secret": MARKER}
        content = {"gen_ai.tool.call.arguments", "gen_ai.tool.call.result"}
        assert MARKER not in str({k: v for k, v in attributes.items() if k not in content})
        assert attributes.get("gen_ai.tool.call.result") == (MARKER if way == "result" else None)
    assert MARKER not in str(seen.one("ferrule.batch").to_json())


async def test_a_span_that_is_not_sampled_costs_no_content_and_metrics_go_on() -> None:
    """Issue 5: what nobody records is not written out."""
    seen = Seen(sampled=False)

    await seen.executor(Executor([echo()]), content=True).run(calls("echo", 2))

    assert seen.spans == ()
    assert seen.counts == {("echo", "completed", None): 2}
    assert [point.count for point in seen.durations] == [2]


# ---- batches -------------------------------------------------------------------------------------


async def test_a_batch_is_a_span_around_its_calls_and_linked_to_them() -> None:
    """Issue 5: links from a batch to its calls; its own parent is where it was run."""
    seen = Seen()
    executor = seen.executor(Executor([echo()]))

    with trace.get_tracer("mine", tracer_provider=seen.tracers).start_as_current_span("turn"):
        await executor.run([*calls("echo", 3), ToolCall.of("nothing")])

    batch, runs = seen.one("ferrule.batch"), seen.named("execute_tool echo")
    assert batch.kind is SpanKind.INTERNAL
    assert parent_of(batch) == id_of(seen.one("turn"))
    assert {parent_of(run) for run in runs} == {id_of(batch)}
    assert {link.context.span_id for link in batch.links} == {id_of(run) for run in runs}
    linked = [_labels(link.attributes)["gen_ai.tool.call.id"] for link in batch.links]
    assert sorted(map(str, linked)) == ["c0", "c1", "c2"]
    assert _labels(batch.attributes) == {
        "ferrule.batch.size": 4,
        "ferrule.batch.completed": 3,
        "ferrule.batch.rejected": 1,
    }


async def test_a_batch_inside_a_tool_has_links_of_its_own() -> None:
    """EXE-12: whoever runs calls inside a call is traced below it and linked apart."""
    seen = Seen()
    inner = seen.executor(Executor([echo()]))
    direct = inner.registry.resolve("echo")
    assert direct is not None

    async def outer(arguments: dict[str, object], context: Context) -> str:
        await inner.run([ToolCall.of("echo", id="inner")])
        await direct.call(direct.contract.admit(ToolCall.of("echo", id="direct")))
        return "done"

    await seen.executor(Executor([raw("outer", outer)])).run([ToolCall.of("outer", id="outer")])

    batches = {
        tuple(str(_labels(link.attributes)["gen_ai.tool.call.id"]) for link in batch.links): batch
        for batch in seen.named("ferrule.batch")
    }
    assert set(batches) == {("inner",), ("outer",)}
    run = seen.one("execute_tool outer")
    assert parent_of(batches["inner",]) == id_of(run)
    by_call = {
        _labels(span.attributes)["gen_ai.tool.call.id"]: parent_of(span)
        for span in seen.named("execute_tool echo")
    }
    assert by_call == {"inner": id_of(batches["inner",]), "direct": id_of(run)}


async def test_the_events_of_a_traced_batch_are_those_of_any_batch() -> None:
    """EXE-8: started and finished, and the block's own spans stay where they were."""
    seen = Seen()
    tracer = trace.get_tracer("mine", tracer_provider=seen.tracers)
    kinds: list[type] = []

    async with seen.executor(Executor([echo()])).batch(calls("echo", 1)) as batch:
        with tracer.start_as_current_span("mine"):
            async for event in batch:
                kinds.append(type(event))

    assert kinds == [Started, Finished]
    assert parent_of(seen.one("mine")) is None
    assert len(batch.outcomes) == 1


async def test_leaving_a_batch_closes_the_spans_of_what_was_stopped() -> None:
    """EXE-5: a cancelled run ends as its outcome does; what never ran is counted."""
    seen = Seen()

    async def waits(arguments: dict[str, object], context: Context) -> str:
        await anyio.sleep_forever()
        return "never"

    executor = seen.executor(Executor([raw("waits", waits)], max_parallel=1))
    async with executor.batch(calls("waits", 2)) as batch:
        async for event in batch:
            assert isinstance(event, Started)
            break

    span = seen.one("execute_tool waits")
    assert problem(span) == "unknown:cancelled"
    assert seen.counts == {
        ("waits", "unknown", "unknown:cancelled"): 1,
        ("waits", "cancelled", "cancelled"): 1,
    }
    assert problem(seen.one("ferrule.batch")) is None


async def test_a_thread_that_was_given_up_does_not_hold_its_span_open() -> None:
    """EXE-6, TH: the span ends when the batch stops waiting for the thread, and says so."""
    seen = Seen()
    go_on = threading.Event()

    def stuck(arguments: dict[str, object], context: Context) -> str:
        go_on.wait()
        return "late"

    executor = seen.executor(Executor(Registry([raw("stuck", stuck)], grace=0.01)))
    try:
        async with executor.batch(calls("stuck", 1)) as batch:
            async for _ in batch:
                break
    finally:
        go_on.set()

    assert problem(seen.one("execute_tool stuck")) == "unknown:still_running"
    assert seen.counts == {("stuck", "unknown", "unknown:still_running"): 1}


@pytest.mark.parametrize("ends", ["stopped", "raising", "in its thread", "late"])
async def test_a_run_that_its_time_limit_ended_says_so_as_the_call_does(ends: str) -> None:
    """EXE-7, FAIL-6: span, duration and counter say `timed_out`; one that ended late did end."""
    seen = Seen()
    go_on = threading.Event()

    async def waits(arguments: dict[str, object], context: Context) -> str:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            if ends == "stopped":
                raise
            if ends == "raising":
                raise ValueError(MARKER) from None
        return "late"

    def waits_in_thread(arguments: dict[str, object], context: Context) -> str:
        go_on.wait()
        return "too late for anybody"

    function = waits_in_thread if ends == "in its thread" else waits
    registry = Registry([raw("slow", function, timeout=0.02), echo()], grace=0.02)
    try:
        outcomes = await seen.executor(Executor(registry)).run(
            [*calls("slow", 1), ToolCall.of("echo")]
        )
    finally:
        go_on.set()

    span = seen.one("execute_tool slow")
    kind = None if ends == "late" else "unknown:timed_out"
    assert [getattr(outcome, "reason", None) for outcome in outcomes] == ["timed_out", None]
    assert (_labels(span.attributes)["ferrule.outcome"], problem(span)) == (
        ("completed", None) if ends == "late" else ("unknown", kind)
    )
    labels = [_labels(point.attributes) for point in seen.durations]
    assert {each["gen_ai.tool.name"]: each.get("error.type") for each in labels} == {
        "slow": kind,
        "echo": None,
    }
    assert seen.counts == {
        ("slow", "unknown", "unknown:timed_out"): 1,
        ("echo", "completed", None): 1,
    }
    assert MARKER not in seen.exported


async def test_a_batch_of_a_caller_who_was_cancelled_before_is_counted() -> None:
    """EXE-5, FAIL-6: no tool ran, so there is no span of one; each call is `cancelled`."""
    seen = Seen()

    with anyio.CancelScope() as scope:
        scope.cancel()
        await seen.executor(Executor([echo()])).run(calls("echo", 3))

    assert scope.cancelled_caught
    assert [span.name for span in seen.spans] == ["ferrule.batch"]
    assert str(problem(seen.one("ferrule.batch"))).endswith(("CancelledError", "Cancelled"))
    assert _labels(seen.one("ferrule.batch").attributes)["ferrule.batch.cancelled"] == 3
    assert seen.counts == {("echo", "cancelled", "cancelled"): 3}


async def test_a_run_that_is_cancelled_from_outside_is_counted_all_the_same() -> None:
    """EXE-5: every call has its outcome; the batch names what ended it by type alone."""
    seen = Seen()
    begun = anyio.Event()

    async def waits(arguments: dict[str, object], context: Context) -> str:
        begun.set()
        await anyio.sleep_forever()
        return "never"

    executor = seen.executor(Executor([raw("waits", waits)]))
    async with anyio.create_task_group() as group:
        group.start_soon(executor.run, calls("waits", 1))
        await begun.wait()
        group.cancel_scope.cancel()

    assert seen.counts == {("waits", "unknown", "unknown:cancelled"): 1}
    assert str(problem(seen.one("ferrule.batch"))).endswith(("CancelledError", "Cancelled"))


async def test_what_a_block_raises_is_named_by_type_alone() -> None:
    """FAIL-5: a batch that somebody's error ended says which type it was."""
    seen = Seen()

    with pytest.raises(Secretive, match=MARKER):
        async with seen.executor(Executor([echo()])).batch(calls("echo", 1)):
            raise Secretive(MARKER)

    assert problem(seen.one("ferrule.batch")) == f"{__name__}.Secretive"
    assert MARKER not in seen.exported
    assert sum(seen.counts.values()) == 1


async def test_a_batch_that_cannot_be_entered_ends_its_span() -> None:
    """STYLE 24: entering twice is refused as ever, and leaves no span open."""
    seen = Seen()
    batch = seen.executor(Executor([echo()])).batch(calls("echo", 1))

    async with batch:
        with pytest.raises(FerruleError, match="entered once"):
            await batch.__aenter__()
        async for _ in batch:
            pass

    refused, ended = seen.named("ferrule.batch")
    assert str(problem(refused)).endswith("FerruleError")
    assert problem(ended) is None
    assert seen.counts == {("echo", "completed", None): 1}


def test_calls_are_traced_where_no_loop_runs() -> None:
    """EXE-1: `run_sync` is the same run."""
    seen = Seen()

    seen.executor(Executor([echo()])).run_sync(calls("echo", 1))

    assert [span.name for span in seen.spans] == ["execute_tool echo", "ferrule.batch"]


# ---- what a host gives ---------------------------------------------------------------------------


async def test_a_loop_of_its_own_needs_only_a_traced_registry() -> None:
    """EXE-13: whoever drives bindings gets the spans of the tools, below its own."""
    seen = Seen()
    registry = seen.registry(Registry([echo()]))
    binding = registry.resolve("echo")
    assert binding is not None

    invocation = binding.contract.admit(ToolCall.of("echo", {"i": 1}, id="c1"))
    context = Context.of(invocation.call)
    permit = await binding.authorize(invocation, context)
    assert isinstance(permit, Permit)
    with trace.get_tracer("mine", tracer_provider=seen.tracers).start_as_current_span("loop"):
        await binding.call(invocation, context, permit)

    loop = seen.one("loop")
    assert parent_of(seen.one("execute_tool echo")) == id_of(loop)
    assert not loop.links
    assert [point.count for point in seen.durations] == [1]


async def test_a_tool_is_traced_once_however_often_it_is_asked_for() -> None:
    """CAP-1: a traced tool is known through what stands around it."""
    seen = Seen()
    registry = seen.registry(Registry([echo()])).guarded(lambda _: True)

    await seen.executor(seen.executor(Executor(registry))).run(calls("echo", 1))

    assert len(seen.named("execute_tool echo")) == 1
    assert len(seen.named("ferrule.batch")) == 1
    assert seen.counts == {("echo", "completed", None): 1}


async def test_tracing_changes_nothing_that_a_model_or_a_policy_sees() -> None:
    """CAP-1, AUT-2: definitions, fingerprints and guards shine through."""
    asked: list[str] = []

    async def policy(authorization: Authorization) -> bool:
        asked.append(authorization.fingerprint)
        return True

    plain = Registry([echo(), *raws(works)], origin="mcp:git").guarded(policy)
    seen = Seen()
    executor = seen.executor(Executor(plain))

    for name in ("echo", "works"):
        before, after = plain.resolve(name), executor.registry.resolve(name)
        assert before is not None
        assert after is not None
        assert after.contract.fingerprint == before.contract.fingerprint
        assert after.contract.definition == before.contract.definition
        assert after.traits == before.traits
        assert after.guards == before.guards
    await executor.run(calls("echo", 1))
    assert len(asked) == 1


async def test_a_traced_executor_is_like_the_one_it_was_made_of() -> None:
    """STYLE 11: every option of an executor is carried, also those that come later."""

    def given(*_: object) -> None:
        return None

    options: dict[str, object] = {
        "max_parallel": 3,
        "sequential": True,
        "recorder": MemoryRecorder(),
        "asker": given,
        "on_dispatch": given,
        "turn": given,
        "on_late": given,
        "on_progress": given,
        "hook_timeout": 7.0,
        "errors": "message",
    }
    names = set(inspect.signature(Executor.__init__).parameters) - {"self", "tools"}
    assert names == set(options)
    make = cast("Callable[..., Executor]", Executor)

    executor = traced(make([echo()], **options))

    assert {name: getattr(executor, name) for name in names} == options
    assert (await executor.plan(calls("echo", 2))).after == ((), (0,))


async def test_progress_reaches_the_listener_of_a_traced_executor() -> None:
    """EXE-8: `run` reads the batch, as it does where somebody listens."""
    heard: list[float | None] = []

    async def works_long(arguments: dict[str, object], context: Context) -> str:
        context.progress(1.0)
        return "done"

    async def listen(_: Context, progress: object) -> None:
        heard.append(cast("float | None", getattr(progress, "progress", None)))

    await Seen().executor(Executor([raw("t", works_long)], on_progress=listen)).run(calls("t", 1))

    assert heard == [1.0]


def test_only_tools_that_run_can_be_traced() -> None:
    """STYLE 24: the sentence says what to write."""
    with pytest.raises(FerruleError, match=r"not list: traced\(Executor\(tools\)\)"):
        traced(cast("Registry", [echo()]))


def test_a_tool_without_a_description_has_none_in_its_span() -> None:
    """GenAI conventions: `if available`."""
    seen = Seen()
    bare = RawTool(Definition("bare", input_schema=ANYTHING), works, traits=Traits())

    seen.executor(Executor([bare])).run_sync([ToolCall.of("bare")])

    assert "gen_ai.tool.description" not in _labels(seen.one("execute_tool bare").attributes)


# ---- what is installed ---------------------------------------------------------------------------

HIDDEN = """
import sys
from importlib.machinery import PathFinder

class Others(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if (name + ".").startswith({hidden!r} + "."):
            return None
        return super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Others
"""


def fresh(hidden: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that cannot import one library."""
    code = HIDDEN.format(hidden=hidden) + program
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )


def test_without_an_sdk_calls_run_and_nothing_is_recorded() -> None:
    """Issue 5: the API alone is enough."""
    done = fresh(
        "opentelemetry.sdk",
        """
from ferrule import Executor, ToolCall, tool
from ferrule.telemetry import traced

@tool
async def add(a: int, b: int) -> int:
    "Add."
    return a + b

executor = traced(Executor([add]), content=True)
print([outcome.text for outcome in executor.run_sync([ToolCall.of("add", {"a": 2, "b": 3})])])
try:
    import opentelemetry.sdk
except ModuleNotFoundError:
    print("no sdk")
""",
    )

    assert done.stdout.splitlines() == ["['5']", "no sdk"], done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("hidden", ["opentelemetry.trace", "opentelemetry"])
def test_a_missing_package_says_what_to_install(hidden: str) -> None:
    """ARCHITECTURE rule 5: also where another package has left the name behind."""
    done = fresh(hidden, "import ferrule\nimport ferrule.telemetry\n")

    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "pip install 'ferrule[otel]'" in last


def test_the_package_is_looked_for_before_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """ARCHITECTURE rule 5: the sentence comes first, in a process that has the package too."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    with pytest.raises(ModuleNotFoundError, match=r"pip install 'ferrule\[otel\]'"):
        runpy.run_path(str(telemetry.__file__))
