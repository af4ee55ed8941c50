"""
How a call ends: CONTRACT FAIL-6 row by row, and the outcomes as values.

Each row of the table is run twice: through an executor, as a harness does it, and through
`outcome_of`, as those do who call bindings themselves. Everything private has `MARKER` in it.
"""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple, cast

import anyio
import pytest

from ferrule import (
    AuthorizationError,
    CallError,
    Cancelled,
    Completed,
    Context,
    Definition,
    Executor,
    Failed,
    Failure,
    ForeignInvocation,
    Image,
    InputRequest,
    InvalidCall,
    Limits,
    OnDispatch,
    Outcome,
    RawJSON,
    RawTool,
    Registry,
    Rejected,
    Result,
    Suspended,
    Text,
    ToolCall,
    TraitFields,
    Traits,
    Unknown,
    bind,
    outcome_of,
)

MARKER = "sk-secret-4711 /home/user/.env"
REFERENCE = re.compile(r"\(reference ([0-9a-f]{8})\)")
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
LIMITS = Limits(argument_bytes=1000, output_bytes=1000)

Function = Callable[[dict[str, object], Context], object]


PRIVATE = ValueError(MARKER)
EXIT = SystemExit(MARKER)


class Declared(Exception):
    """An exception that a tool declares in `failures`."""


class Odd(BaseException):
    """An exception of the kind that nobody catches."""


ODD = Odd(MARKER)


class Speechless(Exception):
    """An exception that breaks when it is asked what it says."""

    def __str__(self) -> str:
        raise RuntimeError(MARKER)


class Locked(Failure):
    """A tool's own kind of failure, which says more than it should."""

    def __str__(self) -> str:
        return MARKER


class Question(InputRequest, frozen=True):
    """A tool's own kind of request."""


class Paragraph(Text, frozen=True):
    """A tool's own kind of text."""


def raising(error: BaseException, cause: BaseException | None = None) -> Function:
    """Return a tool's function that raises, explicitly `from` a cause if there is one."""

    async def function(_: dict[str, object], __: Context) -> object:
        raise error from cause

    return function


def giving(value: object) -> Function:
    """Return a tool's function that returns."""

    async def function(_: dict[str, object], __: Context) -> object:
        return value

    return function


# ---- after the tool began ------------------------------------------------------------------------


class After(NamedTuple):
    """What a tool did, and the outcome it comes to."""

    function: Function
    kind: type[Outcome]
    reason: str
    text: str
    """What the model reads; `REF` stands for the reference of the log entry."""
    traits: TraitFields = {}  # noqa: RUF012  # a typed dictionary that nobody changes
    output_schema: dict[str, object] | None = None


COUNTED: dict[str, object] = {"type": "object", "properties": {"count": {"type": "integer"}}}
MAY_HAVE = 'Error: tool "t" failed; it may have taken effect (reference REF)'
FAILED = 'Error: tool "t" failed (reference REF)'
GROUP = ExceptionGroup(MARKER, [Failure("one"), Failure("two")])

AFTER: dict[str, After] = {
    "text": After(giving("done"), Completed, "", "done"),
    "nothing": After(giving(None), Completed, "", ""),
    "structure": After(giving({"b": 1, "a": [2.0]}), Completed, "", '{"a":[2.0],"b":1}'),
    "Failure": After(raising(Failure("Locked.")), Failed, "failed", "Error: Locked."),
    "Failure with a private cause": After(
        raising(Failure("Locked.", cause=ValueError(MARKER))), Failed, "failed", "Error: Locked."
    ),
    "Failure.rejected": After(
        raising(Failure.rejected("Not yours.")), Failed, "rejected", "Error: Not yours."
    ),
    "Failure, wrapped": After(
        raising(RuntimeError(MARKER), Failure("Locked.")), Failed, "failed", "Error: Locked."
    ),
    "Failure, wrapped twice": After(
        raising(RuntimeError(MARKER), ExceptionGroup(MARKER, [Failure("Locked.")])),
        Failed, "failed", "Error: Locked.",
    ),
    "Failure in a group of one": After(
        raising(ExceptionGroup(MARKER, [ExceptionGroup(MARKER, [Failure("Locked.")])])),
        Failed, "failed", "Error: Locked.",
    ),
    "Failure of its own kind": After(
        raising(Locked("Locked.")), Failed, "failed", "Error: Locked."
    ),
    "declared": After(
        raising(Declared("no such file: a.txt")), Failed, "failed",
        "Error: no such file: a.txt", {"failures": (KeyError, Declared)},
    ),
    "declared, wrapped": After(
        raising(ValueError(MARKER), Declared("no such file: a.txt")), Failed, "failed",
        "Error: no such file: a.txt", {"failures": (Declared,)},
    ),
    "declared, without a text": After(
        raising(Declared()), Failed, "failed", "Error: Declared", {"failures": (Declared,)}
    ),
    "other and safe": After(raising(PRIVATE), Failed, "failed", FAILED, {"replay": "safe"}),
    "other, safe by its arguments": After(
        raising(PRIVATE), Failed, "failed", FAILED, {"replay": lambda _: "safe"}
    ),
    "other": After(raising(PRIVATE), Unknown, "raised", MAY_HAVE),
    "other and keyed": After(raising(PRIVATE), Unknown, "raised", MAY_HAVE, {"replay": "keyed"}),
    "other, hints are no replay": After(
        raising(PRIVATE), Unknown, "raised", MAY_HAVE,
        {"read_only": True, "idempotent": True},
    ),
    "other than declared": After(
        raising(PRIVATE), Unknown, "raised", MAY_HAVE, {"failures": (KeyError,)}
    ),
    "a group of several": After(raising(GROUP), Unknown, "raised", MAY_HAVE),
    "a group of several, wrapped": After(
        raising(ValueError(MARKER), GROUP), Unknown, "raised", MAY_HAVE
    ),
    "without words": After(raising(Speechless()), Unknown, "raised", MAY_HAVE),
    "a mistake of its own": After(
        raising(InvalidCall("unavailable")), Unknown, "raised", MAY_HAVE
    ),
    "another's policy": After(
        raising(AuthorizationError("other", cause=Failure(MARKER))), Unknown, "raised", MAY_HAVE
    ),
    "its own policy": After(
        raising(AuthorizationError("t", cause=Failure(MARKER))), Rejected, "unavailable",
        'Error: tool "t" is not available now (reference REF)',
    ),
    "evidence": After(
        raising(CallError(Result.of(MARKER)), ValueError(MARKER)), Unknown, "raised", MAY_HAVE
    ),
    "SystemExit": After(raising(EXIT), Unknown, "crashed", MAY_HAVE),
    "GeneratorExit": After(raising(GeneratorExit(MARKER)), Unknown, "crashed", MAY_HAVE),
    "an odd exception": After(raising(Odd(MARKER)), Unknown, "crashed", MAY_HAVE),
    "SystemExit and safe": After(
        raising(EXIT), Unknown, "crashed", MAY_HAVE, {"replay": "safe"}
    ),
    "a cancellation nobody asked for": After(
        raising(asyncio.CancelledError(MARKER)), Unknown, "crashed", MAY_HAVE
    ),
    "no JSON": After(giving({MARKER: object()}), Unknown, "bad_result", MAY_HAVE),
    "not finite": After(giving([float("nan")]), Unknown, "bad_result", MAY_HAVE),
    "not finite, and safe": After(
        giving([float("inf")]), Unknown, "bad_result", MAY_HAVE, {"replay": "safe"}
    ),
    "no Unicode": After(giving(f"{MARKER}\ud800"), Unknown, "bad_result", MAY_HAVE),
    "a coroutine's generator": After(giving(iter([MARKER])), Unknown, "bad_result", MAY_HAVE),
    "too large": After(giving(MARKER * 100), Unknown, "bad_result", MAY_HAVE),
    "a picture too large": After(
        giving(Image(data=b"x" * 2000, mime_type="image/png")), Unknown, "bad_result", MAY_HAVE
    ),
    "as its own schema says": After(
        giving({"count": 1}), Completed, "", '{"count":1}', {}, COUNTED
    ),
    "against its own schema": After(
        giving({"count": MARKER}), Unknown, "bad_result", MAY_HAVE, {}, COUNTED
    ),
    "raw, against its own schema": After(
        giving(RawJSON('{"count":"1"}')), Unknown, "bad_result", MAY_HAVE, {}, COUNTED
    ),
    "text where structure was promised": After(
        giving("one"), Unknown, "bad_result", MAY_HAVE, {}, COUNTED
    ),
    "text of its own kind": After(giving(Paragraph("done")), Completed, "", "done"),
    "a question of its own kind": After(giving(Question("Sure?", schema=True)), Suspended, "", ""),
    "a question": After(giving(InputRequest("Sure?", schema=True)), Suspended, "", ""),
}  # fmt: skip


def tool_of(row: After) -> RawTool:
    """Return the tool of one row."""
    definition = Definition("t", input_schema=SCHEMA, output_schema=row.output_schema)
    return RawTool(definition, row.function, traits=Traits(**row.traits))


def reason_of(outcome: Outcome) -> str:
    """Return the word that says why."""
    match outcome:
        case Completed() | Suspended():
            return ""
        case Failed(failure=failure):
            return failure.kind
        case Rejected(kind=kind):
            return kind
        case Cancelled(reason=reason) | Unknown(reason=reason):
            return reason


def check(outcome: Outcome, kind: type[Outcome], reason: str, text: str) -> str:
    """Check what an outcome says; return its reference."""
    found = REFERENCE.search(outcome.text)
    reference = found[1] if found else ""
    assert (type(outcome), reason_of(outcome)) == (kind, reason)
    assert outcome.text == text.replace("REF", reference)
    assert outcome.is_error is not (kind in {Completed, Suspended})
    assert MARKER not in outcome.text
    if not isinstance(outcome, Unknown) or outcome.evidence is None:
        assert MARKER not in str(outcome.to_json())
    return reference


def check_log(caplog: pytest.LogCaptureFixture, reference: str, error: object = None) -> None:
    """Check that the operator's entry is there if the model got a reference, and only then."""
    if not reference:
        assert caplog.records == []
        return
    [entry] = caplog.records
    said = entry.getMessage()
    assert (entry.name, entry.levelno) == ("ferrule", logging.ERROR)
    assert reference in said
    assert '"t"' in said
    assert '"c1"' in said
    assert entry.exc_info is not None
    assert entry.exc_info[1] is not None
    if error is not None:
        assert entry.exc_info[1] is error
    assert "Traceback" in caplog.text or entry.exc_info[1].__traceback__ is None


@pytest.mark.anyio
@pytest.mark.parametrize("name", AFTER)
async def test_what_a_tool_did_comes_to_its_outcome_in_a_batch(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """FAIL-1, -4, -5, -6, FN-6, agenttool 49: class, reason, text, log entry; nothing private."""
    row = AFTER[name]
    registry = Registry([tool_of(row)], limits=LIMITS)

    [outcome] = await Executor(registry).run([ToolCall.of("t", {"path": "a"}, id="c1")])

    check_log(caplog, check(outcome, row.kind, row.reason, row.text))


@pytest.mark.anyio
@pytest.mark.parametrize("name", AFTER)
async def test_what_a_tool_did_comes_to_the_same_outcome_by_hand(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """FAIL-6, EXE-13: `binding.call` and `outcome_of` come to what an executor comes to."""
    row = AFTER[name]
    binding = bind(tool_of(row), limits=LIMITS)
    invocation = binding.contract.admit(ToolCall.of("t", {"path": "a"}, id="c1"))
    replay = row.traits.get("replay", "unknown")
    ended: object = None
    try:
        ended = await binding.call(invocation)
    except BaseException as error:  # noqa: BLE001  # the rows raise whatever there is
        ended = error

    outcome = outcome_of(
        ended,
        tool="t",
        call_id="c1",
        replay=replay(invocation.arguments) if callable(replay) else replay,
        failures=row.traits.get("failures", ()),
    )

    sealed = ended.cause if isinstance(ended, AuthorizationError) else ended
    check_log(caplog, check(outcome, row.kind, row.reason, row.text), sealed)
    if isinstance(outcome, Unknown):
        assert outcome.error is ended


@pytest.mark.parametrize("thing", [None, "text", {"a": 1}, object(), Result])
def test_what_is_no_result_is_a_bad_result(thing: object, caplog: pytest.LogCaptureFixture) -> None:
    """FAIL-6: a hand-written tool that gives anything else did run."""
    outcome = outcome_of(thing, tool="t", call_id="c1")

    check_log(caplog, check(outcome, Unknown, "bad_result", MAY_HAVE))


@pytest.mark.anyio
async def test_evidence_is_kept_and_is_no_result() -> None:
    """FAIL-3, scope 65: the host has it, and a model never reads it."""
    seen = Result.of("two files were written")
    row = AFTER["evidence"]._replace(function=raising(CallError(seen), OSError(MARKER)))

    [outcome] = await Executor([tool_of(row)]).run([ToolCall.of("t", {"path": "a"})])

    assert isinstance(outcome, Unknown)
    assert outcome.evidence == seen
    assert "two files" not in outcome.text
    assert Unknown.from_json(outcome.to_json()).evidence == seen


# ---- before the tool began -----------------------------------------------------------------------


class Before(NamedTuple):
    """What happened to a call that never reached its tool."""

    call: ToolCall
    kind: str
    said: str
    options: dict[str, object] = {}  # noqa: RUF012  # nobody changes it


def hooked(error: BaseException) -> OnDispatch:
    """Return a hook that raises."""

    async def hook(_: Context) -> None:
        raise error

    return hook


def broken(error: BaseException) -> Callable[[dict[str, object]], str]:
    """Return a trait function or a rule that raises."""

    def function(_: dict[str, object]) -> str:
        raise error

    return function


def nonsense(value: object) -> Callable[[dict[str, object]], str]:
    """Return a trait function that answers what it may not."""
    return lambda _: cast("str", value)


def call(arguments: str, name: str = "t", id: str = "c1") -> ToolCall:
    """Return a call as a model may write it."""
    return ToolCall(id=id, name=name, arguments=arguments)


GOOD = call('{"path": "a"}')
UNAVAILABLE = 'Error: tool "t" is not available now (reference REF)'
BEFORE: dict[str, Before] = {
    "unknown name": Before(call("{}", name="tt"), "unknown_tool", "there is no tool tt"),
    "second use of an id": Before(
        call("{}", id="c0"), "duplicate_id", "this id was given to an earlier call"
    ),
    "bad JSON": Before(call('{"path": "a"'), "invalid_json", "at position 12"),
    "too large": Before(call('{"path": "' + "x" * 1000 + '"}'), "too_large", "bytes"),
    "too deep": Before(call('{"path": ' + "[" * 200 + "]" * 200 + "}"), "too_large", "nesting"),
    "no object": Before(call("null"), "invalid_arguments", "object"),
    "bad arguments": Before(call('{"path": 1}'), "invalid_arguments", "path: "),
    "near name": Before(call('{"pth": "a"}'), "invalid_arguments", "did you mean path?"),
    "validator refuses": Before(
        GOOD, "invalid_arguments", "the path is taken", {"validate": nonsense("the path is taken")}
    ),
    "validator crashes": Before(
        GOOD, "invalid_arguments", "Error: invalid arguments: the arguments could not be checked",
        {"validate": broken(PRIVATE)},
    ),
    "validator panics": Before(
        GOOD, "invalid_arguments", "the arguments could not be checked", {"validate": broken(ODD)}
    ),
    "validator exits": Before(
        GOOD, "invalid_arguments", "the arguments could not be checked",
        {"validate": broken(EXIT)},
    ),
    "hook raises": Before(GOOD, "unavailable", UNAVAILABLE, {"on_dispatch": hooked(PRIVATE)}),
    "hook fails": Before(
        GOOD, "unavailable", UNAVAILABLE, {"on_dispatch": hooked(Failure(MARKER))}
    ),
    "hook exits": Before(GOOD, "unavailable", UNAVAILABLE, {"on_dispatch": hooked(EXIT)}),
    "hook panics": Before(GOOD, "unavailable", UNAVAILABLE, {"on_dispatch": hooked(ODD)}),
    "hook's generator ends": Before(
        GOOD, "unavailable", UNAVAILABLE, {"on_dispatch": hooked(GeneratorExit(MARKER))}
    ),
    "hook's policy": Before(
        GOOD, "unavailable", UNAVAILABLE,
        {"on_dispatch": hooked(AuthorizationError("t", cause=ValueError(MARKER)))},
    ),
    "uses raises": Before(GOOD, "unavailable", UNAVAILABLE, {"uses": broken(PRIVATE)}),
    "uses exits": Before(GOOD, "unavailable", UNAVAILABLE, {"uses": broken(EXIT)}),
    "uses panics": Before(GOOD, "unavailable", UNAVAILABLE, {"uses": broken(ODD)}),
    "uses talks nonsense": Before(GOOD, "unavailable", UNAVAILABLE, {"uses": nonsense(5)}),
    "replay raises": Before(GOOD, "unavailable", UNAVAILABLE, {"replay": broken(PRIVATE)}),
    "replay talks nonsense": Before(
        GOOD, "unavailable", UNAVAILABLE, {"replay": nonsense("never")}
    ),
}  # fmt: skip
UNLOGGED = {
    "unknown name", "second use of an id", "bad JSON", "too large", "too deep", "no object",
    "bad arguments", "near name", "validator refuses",
}  # fmt: skip


@pytest.mark.anyio
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("name", BEFORE)
async def test_what_stops_a_call_before_its_tool_is_rejected_and_runs_nothing(
    name: str, plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """FAIL-6, ADM-5, EX-08: kind, text and log entry; the sibling is as it was."""
    row, ran = BEFORE[name], list[object]()

    async def work(arguments: dict[str, object], context: Context) -> str:
        ran.append(context.call_id)
        return "done"

    traits = {key: row.options[key] for key in ("uses", "replay") if key in row.options}
    broken_one = RawTool(
        Definition("t", input_schema=SCHEMA),
        work,
        traits=Traits(**cast("TraitFields", traits)),
        validate=cast("Callable[[dict[str, object]], str | None]", row.options.get("validate")),
    )
    fine = RawTool(Definition("fine"), work)
    hook = cast("Callable[[Context], Awaitable[None]] | None", row.options.get("on_dispatch"))

    async def for_one(context: Context) -> None:
        if hook is not None and context.tool == "t":
            await hook(context)

    def in_thread(context: Context) -> None:
        if context.tool == "t":
            anyio.run(for_one, context)

    chosen = (in_thread if plain else for_one) if hook else None
    executor = Executor(Registry([broken_one, fine], limits=LIMITS), on_dispatch=chosen)
    outcomes = await executor.run([call("", name="fine", id="c0"), row.call])

    assert [outcomes[0].text, ran] == ["done", ["c0"]]
    outcome = outcomes[1]
    assert isinstance(outcome, Rejected)
    assert outcome.kind == row.kind
    said = row.said.replace("REF", outcome.reference or "")
    assert said in outcome.text
    assert outcome.text.startswith("Error: ")
    assert outcome.text.count("Error: ") == 1
    assert MARKER not in outcome.text + str(outcome.to_json())
    assert (outcome.reference is None) == (name in UNLOGGED)
    check_log(caplog, outcome.reference or "")


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (InvalidCall("unknown_tool"), "unknown_tool", "Error: unknown tool"),
        (InvalidCall("unavailable"), "unavailable", 'Error: tool "t" is not available now'),
        (ForeignInvocation(MARKER), "unavailable", UNAVAILABLE),
        (AuthorizationError("t", cause=Failure(MARKER)), "unavailable", UNAVAILABLE),
        (ValueError(MARKER), "unavailable", UNAVAILABLE),
        (SystemExit(MARKER), "unavailable", UNAVAILABLE),
    ],
)
def test_nothing_took_effect_before_dispatch(error: BaseException, kind: str, text: str) -> None:
    """FAIL-6, EXE-13: by hand, with `dispatched=False`."""
    outcome = outcome_of(error, tool="t", call_id="c1", dispatched=False)

    check(outcome, Rejected, kind, text)


@pytest.mark.parametrize(
    ("dispatched", "kind", "text"),
    [
        (False, Cancelled, 'Error: tool "t" did not run: cancelled'),
        (True, Unknown, 'Error: tool "t" was stopped; it may have taken effect'),
    ],
)
def test_a_cancellation_is_told_by_whether_the_tool_began(
    dispatched: bool, kind: type[Outcome], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """FAIL-6: before dispatch it did not run; afterwards nobody can say. Neither is logged."""
    outcome = outcome_of(
        asyncio.CancelledError(MARKER), tool="t", dispatched=dispatched, stopped=True
    )

    check_log(caplog, check(outcome, kind, "cancelled", text))


@pytest.mark.anyio
async def test_cancelled_before_and_after_dispatch_in_a_batch() -> None:
    """FAIL-6: the one that ran, the one that gave a result, and the one that never began."""
    begun = anyio.Event()

    async def work(arguments: dict[str, object], _: Context) -> str:
        begun.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            if arguments["path"] != "gives":
                raise
        return "saved what there was"

    tool = RawTool(Definition("t", input_schema=SCHEMA), work, traits=Traits(uses="one"))
    other = RawTool(Definition("u", input_schema=SCHEMA), work)
    calls = [
        ToolCall.of("t", {"path": "a"}),
        ToolCall.of("t", {"path": "b"}),
        ToolCall.of("u", {"path": "gives"}),
    ]
    async with Executor([tool, other]).batch(calls) as batch:
        await begun.wait()
        await anyio.wait_all_tasks_blocked()

    assert [(type(outcome), reason_of(outcome)) for outcome in batch.outcomes] == [
        (Unknown, "cancelled"),
        (Cancelled, "cancelled"),
        (Completed, ""),
    ]
    assert [outcome.text for outcome in batch.outcomes] == [
        'Error: tool "t" was stopped; it may have taken effect',
        'Error: tool "t" did not run: cancelled',
        "saved what there was",
    ]


def test_a_call_behind_one_that_never_ended_was_not_reached() -> None:
    """FAIL-6: in words, not in the reason's own spelling."""
    assert Cancelled("not_reached", tool="t").text == 'Error: tool "t" did not run: not reached'


# ---- how much a model reads ----------------------------------------------------------------------


def test_what_a_model_reads_is_bounded_and_the_host_keeps_the_whole() -> None:
    """EXE-11: 100 MB of text are cut between characters, and say so; the result has them all."""
    whole = "é" * 50_000_000
    outcome = Completed(Result.of(whole))

    assert len(outcome.text.encode()) <= 256 * 1024
    assert outcome.text.endswith(f" of {100_000_000} bytes are shown]")
    assert outcome.result.text == whole
    assert len(outcome.reading(1000).encode()) <= 1000


def test_json_is_never_cut_into_broken_json() -> None:
    """EXE-11: it becomes JSON that tells its beginning."""
    outcome = Completed(Result.of({"rows": ["x" * 1000] * 1000}))
    read = json.loads(outcome.text)

    assert read["beginning"].startswith('{"rows":["xxx')
    assert len(outcome.text.encode()) <= 256 * 1024
    assert Completed(Result.of({"a": 1})).text == '{"a":1}'


def test_errors_are_bounded_too() -> None:
    """EXE-11: a failure as long as a book, and a denial."""
    failed = Failed(Failure("x" * 10_000_000))
    denied = Rejected("unauthorized", message="y" * 1_000_000)

    assert failed.text.startswith("Error: xxx")
    assert all(len(one.text.encode()) <= 256 * 1024 for one in (failed, denied))
    assert len(str(failed.failure)) == 10_000_000
    assert Suspended(InputRequest("?", schema=True)).reading(5) == ""
