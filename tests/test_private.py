"""
What is private stays private: every public exception, from every place that foreign code runs in.

Each exception of the door is provoked as its reader would meet it, with a secret among what was
refused. Then a tool, a rule, a hook, a trait function, a provider or a recorder raises it from an
error that is full of secrets: of the arguments it was given, of the environment, of its own. The
model reads none of them and no record has them; and the operator's log has them all, or the cause
that the error keeps, so that the plants are known to have worked.
"""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, NamedTuple, cast

import anyio
import pytest

import ferrule
from ferrule import (
    AnswerConflict,
    AnswerRefused,
    Authorization,
    AuthorizationError,
    BatchConflict,
    CallError,
    Context,
    DeclarationError,
    Definition,
    DuplicateTool,
    Executor,
    Failure,
    Fenced,
    FerruleError,
    ForeignInvocation,
    Guard,
    Inject,
    InputRequest,
    InvalidCall,
    InvalidDefinition,
    InvalidJSON,
    InvalidResult,
    InvalidSchema,
    InvalidTool,
    InvalidValue,
    InvalidWrappingChain,
    JournalError,
    OnDispatch,
    Outcome,
    RawTool,
    Record,
    Recorder,
    Registry,
    Result,
    RuntimeFault,
    SealBroken,
    SealExpired,
    Tool,
    ToolCall,
    ValidatorCrash,
    WaitClosed,
    Wrapper,
    bind,
    read_json,
    seal,
    tool,
    unseal,
)
from ferrule.schema import compile
from ferrule.testing import MemoryRecorder
from support import echo

ARGUMENT, VARIABLE, OWN = "argument-4711", "variable-4711", "own-4711"
PLANTS = (ARGUMENT, VARIABLE, OWN)


class LeakError(Exception):
    """An error of a library, which says all that it knows."""

    def __init__(self, given: object) -> None:
        super().__init__(f"{OWN}: {given!r} {os.environ['FERRULE_SECRET']}")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRULE_SECRET", VARIABLE)


# ---- each exception, as it is met ----------------------------------------------------------------


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def of_a_contract(arguments: str) -> None:
    """Have a call refused."""
    bind(pay).contract.admit(ToolCall(id="c1", name="pay", arguments=arguments))


def elsewhere() -> None:
    """Run an invocation on a binding that did not admit it."""
    invocation = bind(echo("pay")).contract.admit(ToolCall.of("pay", {"amount": ARGUMENT}))
    anyio.run(bind(echo("pay")).call, invocation)


def crashing() -> None:
    """Admit a call whose rule breaks."""

    def rule(arguments: dict[str, object]) -> str | None:
        raise LeakError(arguments)

    raw = RawTool(Definition("pay"), lambda _, __: None, validate=rule)
    bind(raw).contract.admit(ToolCall.of("pay", {"amount": ARGUMENT}))


def stepless() -> None:
    """Declare a step that takes nothing."""

    @pay.step  # type: ignore[arg-type]  # the mistake
    def approved(answer: str = ARGUMENT) -> str:
        return answer


def raising(error: BaseException) -> None:
    """Raise `error`."""
    raise error


class Circle(Wrapper):
    """A wrapper of itself, with something private about it."""

    secret = ARGUMENT

    @property
    def wrapped(self) -> Tool:
        """Itself."""
        return self


def in_a_circle() -> None:
    """Bind a tool that wraps itself."""
    bind(Circle(pay))


def undecided() -> None:
    """Have a policy break."""

    def policy(authorization: Authorization) -> bool:
        raise LeakError(authorization.arguments)

    binding = bind(Guard(echo("pay"), policy))
    anyio.run(binding.call, binding.contract.admit(ToolCall.of("pay", {"amount": ARGUMENT})))


NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
KEY = ARGUMENT.encode() * 3


def unsealed(text: str = "") -> None:
    """Have a request come back a day late, or something else in its place."""
    request = InputRequest(ARGUMENT, schema=True, state=ARGUMENT, expires_in=60)
    unseal(text or seal(request, KEY, now=NOON), keys=[KEY], now=NOON + timedelta(days=1))


class Met(NamedTuple):
    """How an exception is met, and its whole text."""

    provoke: Callable[[], object]
    text: str


MISSPELT = {"type": "object", "properties": {"a": {"type": "strng", "const": ARGUMENT}}}

EXCEPTIONS: dict[type[FerruleError], Met] = {
    FerruleError: Met(
        lambda: Executor([pay]).run_sync(cast("list[ToolCall]", [ARGUMENT])),
        "a batch is made of ToolCall or Leg, not of str",
    ),
    DeclarationError: Met(
        stepless,
        "step `approved` of tool `pay` takes a state and an answer, and the context if it likes: "
        "(state: Draft, answer: bool, context: Context)",
    ),
    InvalidTool: Met(
        lambda: bind(cast("Tool", ARGUMENT)),
        "str is not a tool: it has no `definition`, `traits` and `call`",
    ),
    InvalidDefinition: Met(
        lambda: Definition("pay", f"{ARGUMENT}\ud800"),
        "the description of tool `pay` holds a lone surrogate, which UTF-8 cannot carry",
    ),
    InvalidSchema: Met(
        lambda: compile(MISSPELT),
        'at /properties/a/type: "strng" (did you mean string?) is not a JSON Schema type; '
        "use one of array, boolean, integer, null, number, object, string",
    ),
    DuplicateTool: Met(
        lambda: Registry([pay, pay]),
        "tools[1]: a tool named `pay` is there already, from origin `local`, and origin `local` "
        "brings another; give one of them another name with `name=`, a `prefix`, or "
        '`Wrapper(tool, name="…")`',
    ),
    InvalidWrappingChain: Met(in_a_circle, "Circle wraps itself, through others"),
    InvalidValue: Met(
        lambda: ToolCall.from_json({"id": 1, "name": ARGUMENT, "arguments": ARGUMENT}),
        "this is no ToolCall: Expected `str`, got `int` at `$.id`",
    ),
    InvalidJSON: Met(
        lambda: read_json(f'{{"a": "{ARGUMENT}" {ARGUMENT}}}'),
        "not valid JSON at position 22: a comma or a closing bracket is expected",
    ),
    InvalidResult: Met(
        lambda: Result.of({"a": LeakError(ARGUMENT)}), "the value at $.a has no JSON form"
    ),
    InvalidCall: Met(
        lambda: of_a_contract(f'{{"amount": "{ARGUMENT}"}}'),
        "invalid arguments: amount: expected integer, got string",
    ),
    ForeignInvocation: Met(
        elsewhere,
        'this is no invocation of tool "pay" as bound here; '
        "admit the call with this binding's contract",
    ),
    ValidatorCrash: Met(crashing, "invalid arguments: the arguments could not be checked"),
    Failure: Met(
        lambda: raising(Failure("The order is closed.", cause=LeakError(ARGUMENT))),
        "The order is closed.",
    ),
    CallError: Met(
        lambda: raising(CallError(Result.of({"seen": 1}))),
        "the call went wrong after something was observed",
    ),
    AuthorizationError: Met(undecided, 'the authorization of tool "pay" failed'),
    RuntimeFault: Met(lambda: raising(RuntimeFault("the server is gone")), "the server is gone"),
    JournalError: Met(
        lambda: raising(JournalError("calls.db is no journal")), "calls.db is no journal"
    ),
    Fenced: Met(
        lambda: raising(Fenced("another owner drives call c1")), "another owner drives call c1"
    ),
    BatchConflict: Met(
        lambda: raising(BatchConflict("batch turn-1 was given other calls")),
        "batch turn-1 was given other calls",
    ),
    AnswerConflict: Met(
        lambda: raising(AnswerConflict("answer a-1 was given before", by="ann", at=NOON)),
        "answer a-1 was given before",
    ),
    AnswerRefused: Met(
        lambda: raising(AnswerRefused("n: expected integer")), "n: expected integer"
    ),
    WaitClosed: Met(
        lambda: raising(WaitClosed("it was answered by ann", how="answered", by="ann", at=NOON)),
        "it was answered by ann",
    ),
    SealBroken: Met(
        lambda: unsealed(f"f1.{ARGUMENT}.a.b"),
        "this is no request that was sealed here: no key that was given sealed it",
    ),
    SealExpired: Met(unsealed, "this request was to be answered before 2026-03-04T12:01:00+00:00"),
}


def met(kind: type[FerruleError]) -> FerruleError:
    """Return the exception as it is met."""
    with pytest.raises(kind) as caught:
        EXCEPTIONS[kind].provoke()
    assert type(caught.value) is kind
    return caught.value


def test_every_public_exception_has_a_row() -> None:
    """FAIL-5: one that is added to the door is added here."""
    public = [getattr(ferrule, name) for name in ferrule.__all__]
    errors = {one for one in public if isinstance(one, type) and issubclass(one, BaseException)}

    assert errors == set(EXCEPTIONS)


@pytest.mark.parametrize("kind", EXCEPTIONS)
def test_an_exception_says_what_is_wrong_and_repeats_nothing(kind: type[FerruleError]) -> None:
    """JSON-6, FAIL-1, FAIL-5: its whole text, at most 1 KB; a problem has no value either."""
    error = met(kind)

    assert str(error) == EXCEPTIONS[kind].text
    assert len(str(error).encode()) <= 1024
    assert not planted(str(error), repr(error), repr(getattr(error, "problems", ())))


# ---- each place that it may come from ------------------------------------------------------------


def leaking(error: Exception, given: object) -> Exception:
    """Return `error` as it leaves foreign code that was `given` something, full of secrets."""
    leak = LeakError(given)
    if isinstance(error, LeakError):
        return leak
    if isinstance(error, AuthorizationError):
        error.cause = leak  # Sealed, and all that an operator has.
    else:
        error.__cause__ = leak  # As `raise error from leak` leaves it.
    return error


def planted(*texts: str) -> set[str]:
    """Return the secrets that are in the texts."""
    return {plant for plant in PLANTS if any(plant in text for text in texts)}


class Place(NamedTuple):
    """A harness in which an error is raised: its tool, and what else it is made of."""

    tool: Tool
    hook: OnDispatch | None = None
    recorder: Recorder | None = None
    inject: dict[str, object] = {}  # noqa: RUF012  # nobody changes it


def in_a_tool(error: Exception) -> Place:
    """Raise it in an async function."""

    @tool(name="pay")
    async def function(amount: str, context: Context) -> str:
        await context.record("shop:step", {"step": 1})
        raise leaking(error, amount)

    return Place(function)


def in_a_thread(error: Exception) -> Place:
    """Raise it in a plain function."""

    @tool(name="pay")
    def function(amount: str, context: Context) -> str:
        context.record_blocking("shop:step", {"step": 1})
        raise leaking(error, amount)

    return Place(function)


def without_effect(error: Exception) -> Place:
    """Raise it in a tool that may be run again."""

    @tool(name="pay", replay="safe")
    async def function(amount: str) -> str:
        raise leaking(error, amount)

    return Place(function)


def declared(error: Exception) -> Place:
    """Raise it in a tool that declares its own errors of another kind."""

    @tool(name="pay", failures=(FileNotFoundError,))
    async def function(amount: str) -> str:
        raise leaking(error, amount)

    return Place(function)


def in_a_rule(error: Exception) -> Place:
    """Raise it in the tool's own rule."""

    def rule(arguments: dict[str, object]) -> str | None:
        raise leaking(error, arguments)

    return Place(RawTool(Definition("pay"), lambda _, __: None, validate=rule))


def in_a_trait(error: Exception) -> Place:
    """Raise it in a trait function."""

    def uses(arguments: dict[str, object]) -> str:
        raise leaking(error, arguments)

    @tool(name="pay", uses=uses)
    async def function(amount: str) -> str:
        return amount

    return Place(function)


def in_a_provider(error: Exception) -> Place:
    """Raise it in what gives an injected value."""

    def tenant(context: Context) -> str:
        raise leaking(error, context.call.arguments)

    @tool(name="pay")
    async def function(amount: str, tenant: Annotated[str, Inject("tenant")]) -> str:
        return amount + tenant

    return Place(function, inject={"tenant": tenant})


def in_a_hook(error: Exception) -> Place:
    """Raise it when the call is about to be dispatched."""

    async def hook(context: Context) -> None:
        raise leaking(error, context.call.arguments)

    return Place(echo("pay"), hook=hook)


def in_a_policy(error: Exception) -> Place:
    """Raise it where the call was to be permitted."""

    def policy(authorization: Authorization) -> bool:
        raise leaking(error, authorization.arguments)

    return Place(Guard(echo("pay"), policy))


def in_a_recorder(error: Exception) -> Place:
    """Raise it where a record was to be made durable."""

    async def recorder(context: Context, record: Record) -> None:
        raise leaking(error, record.data)

    @tool(name="pay")
    async def function(amount: str, context: Context) -> str:
        await context.record("shop:step", {"amount": amount})
        return amount

    return Place(function, recorder=recorder)


PLACES = [
    in_a_tool, in_a_thread, without_effect, declared, in_a_rule, in_a_trait, in_a_provider,
    in_a_hook, in_a_policy, in_a_recorder,
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", [*EXCEPTIONS, LeakError])
def test_no_model_and_no_record_is_told_what_is_private(
    kind: type[Exception],
    place: Callable[[Exception], Place],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """FAIL-1, -4, -5, AUT-2, ADM-3, REC-1: the operator's log, or the kept cause, has it all."""
    error = met(kind) if issubclass(kind, FerruleError) else kind("")
    made, recorder = place(error), MemoryRecorder()
    executor = Executor(
        Registry([made.tool], inject=made.inject),
        on_dispatch=made.hook,
        recorder=made.recorder or recorder,
    )

    [outcome] = executor.run_sync([ToolCall.of("pay", {"amount": ARGUMENT})])

    assert outcome.is_error
    assert not planted(outcome.text, repr(outcome), repr(outcome.to_json()), repr(recorder.records))
    assert not planted(repr(getattr(outcome, "problems", ())))
    assert len(outcome.text.encode()) <= 1024
    assert set(PLANTS) == planted(operators(outcome, error, caplog))


def operators(outcome: Outcome, error: Exception, caplog: pytest.LogCaptureFixture) -> str:
    """Return what an operator reads of a call: its log entry, or the cause of a definite ending."""
    reference = getattr(outcome, "reference", None)
    if reference is None:
        return str(error.__cause__)
    [entry] = [one for one in caplog.records if reference in one.getMessage()]
    assert (entry.name, entry.levelname) == ("ferrule", "ERROR")
    return caplog.text


def test_what_is_recorded_on_purpose_is_recorded() -> None:
    """REC-1: the recorder that had nothing above keeps what a tool gives it."""

    @tool(name="pay")
    async def function(amount: str, context: Context) -> str:
        await context.record("shop:step", {"amount": amount})
        return "paid"

    recorder = MemoryRecorder()
    [outcome] = Executor([function], recorder=recorder).run_sync(
        [ToolCall.of("pay", {"amount": ARGUMENT})]
    )

    assert outcome.text == "paid"
    assert planted(repr(recorder.records)) == {ARGUMENT}


def test_a_harness_in_development_may_show_a_model_everything() -> None:
    """FAIL-4: `errors="message"` tells what the tests above look for, so they would see it."""

    @tool(name="pay")
    async def function(amount: str) -> str:
        raise LeakError(amount)

    [outcome] = Executor([function], errors="message").run_sync(
        [ToolCall.of("pay", {"amount": ARGUMENT})]
    )

    assert planted(outcome.text) == set(PLANTS)
