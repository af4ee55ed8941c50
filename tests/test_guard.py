"""Guards: who is asked, when, and what the answer is bound to (CONTRACT section 6)."""

import logging
import pickle
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, cast

import anyio
import anyio.lowlevel
import msgspec
import pytest

from ferrule import (
    Allow,
    Approval,
    Ask,
    Authorization,
    AuthorizationError,
    Authorizer,
    Binding,
    Cancelled,
    Completed,
    Context,
    Decision,
    Definition,
    Deny,
    Executor,
    Failed,
    Failure,
    ForeignInvocation,
    Guard,
    InputRequest,
    InvalidTool,
    InvalidValue,
    Invocation,
    Leg,
    Leniency,
    Outcome,
    Permit,
    Registry,
    Rejected,
    Result,
    Shared,
    Suspended,
    Tool,
    ToolCall,
    Traits,
    Unknown,
    Within,
    Wrapper,
    bind,
    classify,
    outcome_of,
    tool,
)
from support import echo, raw

pytestmark = pytest.mark.anyio

CALL = ToolCall.of("echo", {"n": 1}, id="c1")


class Policy:
    """A policy that notes what it saw and answers what it was told to."""

    def __init__(self, answer: object = True) -> None:
        self.answer = answer
        self.saw: list[Authorization] = []

    def __call__(self, authorization: Authorization) -> Decision:
        """Answer."""
        self.saw.append(authorization)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return cast("Decision", self.answer)


class Counted:
    """A tool that counts its runs."""

    def __init__(self) -> None:
        self.runs = 0
        self.tool = raw("echo", self._run)

    def _run(self, arguments: dict[str, object], _: Context) -> object:
        self.runs += 1
        return arguments


def guarded(inner: Tool, policy: object) -> Binding:
    """Return the binding of a tool behind a policy."""
    return bind(Guard(inner, cast("Authorizer", policy)))


async def answered(binding: Binding, context: Context | None = None) -> object:
    """Admit the call and ask for a permit; return it, or what was raised."""
    invocation = binding.contract.admit(CALL)
    try:
        return await binding.authorize(invocation, context or Context.of(CALL))
    except AuthorizationError as error:
        return error


# ---- what a guard is -----------------------------------------------------------------------------


async def test_a_guard_needs_a_tool_and_a_policy() -> None:
    """Scope 69, 80; AUT-1: says what was given instead."""
    with pytest.raises(InvalidTool, match=r"a Guard needs a policy: .*not str"):
        Guard(echo(), cast("Authorizer", "allow"))
    with pytest.raises(InvalidTool, match=r"a Guard needs a policy: .*not NoneType"):
        Guard(echo(), cast("Authorizer", None))
    with pytest.raises(InvalidTool, match="Guard goes around a tool, not NoneType"):
        Guard(cast("Tool", None), lambda _: True)
    with pytest.raises(InvalidTool, match="goes around a tool"):
        Registry([echo()]).map(lambda _: Guard(cast("Tool", 3), lambda _: True))


async def test_a_schema_that_cannot_compile_asks_nobody() -> None:
    """Scope 71; ADM-1: a guard around it can be made; binding it fails."""
    policy = Policy()
    broken = Definition("a", input_schema={"type": "object", "properties": {"x": {"type": "z"}}})
    guard = Guard(raw_of(broken), policy)

    with pytest.raises(InvalidTool, match="the input_schema of tool `a`"):
        bind(guard)
    assert policy.saw == []


def raw_of(definition: Definition) -> Tool:
    """Return a tool of a definition that nobody has checked."""

    class Given:
        traits = Traits()

        def __init__(self) -> None:
            self.definition = definition

        async def call(self, _: Invocation, __: Context) -> Result:
            return Result()

    return Given()


@pytest.mark.parametrize("answer", [True, Allow()])
async def test_an_allowed_call_runs_once_and_the_policy_saw_what_it_is(answer: object) -> None:
    """Scope 72; AUT-1: definition, arguments, digest, fingerprint, origin, traits, caller."""
    policy, counted = Policy(answer), Counted()
    registry = Registry(origin="mcp:files")
    registry.register([counted.tool])
    outcomes = await Executor(registry.guarded(policy)).run([CALL], caller="ann")
    binding = registry.resolve("echo")

    assert isinstance(outcomes[0], Completed)
    assert counted.runs == 1
    assert binding is not None
    (saw,) = policy.saw
    invocation = binding.contract.admit(CALL)
    assert saw.definition == binding.contract.definition
    assert saw.arguments == {"n": 1}
    assert saw.digest == invocation.digest
    assert saw.fingerprint == binding.contract.fingerprint
    assert (saw.origin, saw.call_id, saw.caller) == ("mcp:files", "c1", "ann")
    assert (saw.confinement, saw.approval, saw.repairs) == (None, None, ())
    assert saw.traits == Traits()


async def test_what_a_policy_sees_can_run_nothing() -> None:
    """AUT-1: functions among the traits are replaced by what they say of these arguments."""
    policy = Policy()

    asked: list[object] = []

    def uses(arguments: dict[str, object]) -> list[Shared]:
        asked.append(arguments["path"])
        return [Shared(f"file:{arguments['path']}")]

    @tool(
        uses=uses,
        confinement=lambda arguments: "container" if arguments["path"] == "a" else None,
        replay=lambda arguments: "safe",
    )
    async def read(path: str) -> str:
        return path

    calls = [ToolCall.of("read", {"path": path}) for path in ("a", "b")]
    await Executor(Registry([read]).guarded(policy), max_parallel=1).run(calls)
    assert asked == ["a", "b"]  # Once for order and policy alike.
    direct = bind(Guard(read, policy))
    await direct.call(direct.contract.admit(calls[0]))

    traits = [saw.traits for saw in policy.saw]
    assert [one.uses for one in traits] == [
        (Shared("file:a"),),
        (Shared("file:b"),),
        (Shared("file:a"),),
    ]
    assert [saw.confinement for saw in policy.saw] == ["container", None, "container"]
    assert all(one.replay == "safe" for one in traits)
    for saw in policy.saw:
        fields = [getattr(saw, name) for name in saw.__struct_fields__]
        of_traits = [getattr(saw.traits, name) for name in saw.traits.__struct_fields__]
        assert not [value for value in (*fields, *of_traits) if callable(value)]


async def test_what_one_policy_does_to_the_facts_reaches_nobody() -> None:
    """Scope 73; AUT-1: neither the next guard, nor the tool, nor the next call."""
    seen: list[object] = []

    def spoils(authorization: Authorization) -> bool:
        authorization.arguments["n"] = 666
        cast("dict[str, object]", authorization.definition.input_schema)["type"] = "array"
        return True

    def looks(authorization: Authorization) -> bool:
        seen.append((authorization.arguments, authorization.definition.input_schema["type"]))
        return True

    executor = Executor(Registry([echo()]).guarded(looks).guarded(spoils))
    outcomes = await executor.run([CALL, ToolCall.of("echo", {"n": 1}, id="c2")])

    assert [outcome.text for outcome in outcomes] == ['{"n":1}', '{"n":1}']
    assert seen == [({"n": 1}, "object")] * 2


# ---- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (False, 'Error: tool "echo" is not authorized'),
        (Deny(), 'Error: tool "echo" is not authorized'),
        (Deny("only on weekdays"), "Error: only on weekdays"),
    ],
)
async def test_a_denied_call_is_rejected_and_runs_nothing(answer: object, text: str) -> None:
    """Scope 74; AUT-2, AUT-8, FAIL-6: the model reads the reason; the siblings run on."""
    counted = Counted()
    registry = Registry([counted.tool]).guarded(Policy(answer))
    registry.register([Wrapper(echo("other"))])
    outcomes = await Executor(
        Registry(
            [
                *registry.map(lambda one: one if one.definition.name == "echo" else None),
                echo("other"),
            ]
        )
    ).run([CALL, ToolCall.of("other", {"n": 2})])

    assert isinstance(outcomes[0], Rejected)
    assert (outcomes[0].kind, outcomes[0].text) == ("unauthorized", text)
    assert outcomes[1].text == '{"n":2}'
    assert counted.runs == 0


async def test_a_direct_call_is_guarded_too() -> None:
    """Scope 74; AUT-6: a denial is raised as `Failure.rejected`, without a cause."""
    counted = Counted()
    binding = guarded(counted.tool, Policy(Deny("no")))

    with pytest.raises(Failure) as hit:
        await binding.call(binding.contract.admit(CALL))

    assert (hit.value.kind, str(hit.value), hit.value.cause) == ("rejected", "no", None)
    assert classify(hit.value) is hit.value
    assert isinstance(outcome_of(hit.value, tool="echo"), Failed)
    assert counted.runs == 0


async def test_a_guard_that_is_called_past_its_binding_asks_all_the_same() -> None:
    """AUT-6: the tool of a binding, taken out and called, is behind its policy still."""
    counted, denies = Counted(), Policy(False)
    guard = Guard(counted.tool, denies)
    invocation = bind(guard).contract.admit(CALL)

    with pytest.raises(Failure, match="not authorized"):
        await guard.call(invocation, Context.of(CALL))
    with pytest.raises(Failure, match="not authorized"):
        await Wrapper(guard).call(invocation, Context.of(CALL))
    denies.answer = True
    await guard.call(invocation, Context.of(CALL))

    assert (len(denies.saw), counted.runs) == (3, 1)


@pytest.mark.parametrize(
    "answer", [None, 1, 0, "yes", "", [], object(), Exception, Ask, Failure("no")]
)
async def test_an_answer_is_judged_by_type_and_never_by_truth(answer: object) -> None:
    """AUT-1, FAIL-6: what is no decision is a policy error, and the tool does not run."""
    counted = Counted()

    class Odd(Policy):
        def __call__(self, authorization: Authorization) -> Decision:
            return cast("Decision", answer)

    (outcome,) = await Executor([Guard(counted.tool, Odd())]).run([CALL])

    assert isinstance(outcome, Rejected)
    assert outcome.kind == "unavailable"
    assert outcome.text.startswith('Error: tool "echo" is not available now (reference ')
    assert counted.runs == 0


async def test_guards_are_asked_from_the_outside_in_until_one_refuses() -> None:
    """AUT-5, AUT-6: each for itself; the inner one is not asked what the outer one refused."""
    asked: list[str] = []

    def policy(name: str, answer: Decision) -> Authorizer:
        def judge(_: Authorization) -> Decision:
            asked.append(name)
            return answer

        return judge

    inner = Guard(echo(), policy("inner", True))
    middle = Wrapper(Guard(inner, policy("middle", Deny("middle"))))
    both = Executor([Guard(Wrapper(inner), policy("outer", True))])
    refused = Executor([Guard(middle, policy("outer", True))])

    assert [outcome.text for outcome in await both.run([CALL])] == ['{"n":1}']
    assert asked == ["outer", "inner"]
    asked.clear()
    assert [outcome.text for outcome in await refused.run([CALL])] == ["Error: middle"]
    assert asked == ["outer", "middle"]


async def test_a_plain_policy_runs_in_a_thread_and_an_async_one_in_the_loop() -> None:
    """AUT-8: and a plain function that gives an awaitable is awaited."""
    threads: dict[str, int] = {}

    def plain(_: Authorization) -> bool:
        threads["plain"] = threading.get_ident()
        return True

    async def native(_: Authorization) -> bool:
        threads["async"] = threading.get_ident()
        await anyio.lowlevel.checkpoint()
        return True

    def later(authorization: Authorization) -> Awaitable[Decision]:
        return native(authorization)

    binding = bind(Guard(Guard(Guard(echo(), plain), native), later))

    assert isinstance(await answered(binding), Permit)
    assert threads["async"] == threading.get_ident() != threads["plain"]


# ---- a policy that breaks, and cancellation ------------------------------------------------------

DEADLINE = TimeoutError("deadline of secret-XYZ")
WITHIN = Failure("a public failure of secret-XYZ")
ERRORS: dict[str, Exception] = {
    "plain": RuntimeError("secret-XYZ"),
    "failure": WITHIN,
    "wrapped failure": ValueError("secret-XYZ"),
    "deadline": DEADLINE,
    "several": ExceptionGroup("secret-XYZ", [DEADLINE, WITHIN]),
}
ERRORS["wrapped failure"].__cause__ = WITHIN


@pytest.mark.parametrize("cancels", [False, True])
@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
async def test_a_policy_that_raises_is_sealed_whether_cancelled_or_not(
    error: Exception, cancels: bool
) -> None:
    """Scope 76 to 78, 81, 95; AUT-2: the cause is in `.cause` alone; the tool never runs."""
    counted = Counted()

    async def policy(_: Authorization) -> bool:
        if cancels:
            scope.cancel()
        raise error

    binding = guarded(counted.tool, policy)
    invocation = binding.contract.admit(CALL)
    found: list[AuthorizationError] = []
    with anyio.CancelScope() as scope:
        try:
            await binding.call(invocation, Context.of(CALL))
        except AuthorizationError as raised:
            found.append(raised)
        await anyio.lowlevel.checkpoint()

    (sealed,) = found
    assert sealed.cause is error
    assert (sealed.__cause__, sealed.__context__) == (None, None)
    assert classify(sealed) is None
    assert "XYZ" not in f"{sealed} {sealed!r} {sealed.args}"
    assert scope.cancelled_caught is cancels
    assert counted.runs == 0


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
async def test_the_model_reads_nothing_of_what_a_policy_raised(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """AUT-2, FAIL-5, FAIL-6: a reference; the operator finds it with the policy's traceback."""
    with caplog.at_level(logging.ERROR, logger="ferrule"):
        outcomes = await Executor([Guard(echo(), Policy(error)), echo("other")]).run(
            [CALL, ToolCall.of("other", {})]
        )

    refused = outcomes[0]
    assert isinstance(refused, Rejected)
    assert (refused.kind, outcomes[1].is_error) == ("unavailable", False)
    assert "XYZ" not in f"{refused.text} {refused.to_json()}"
    (entry,) = caplog.records
    assert refused.reference is not None
    assert refused.reference in refused.text
    assert refused.reference in entry.getMessage()
    assert entry.exc_info is not None
    assert entry.exc_info[1] is error


@pytest.mark.parametrize("answer", [True, Allow(), False, Deny("no"), Ask("sure?"), "nonsense"])
async def test_cancelled_meanwhile_comes_before_any_answer(answer: object) -> None:
    """Scope 79, 82; AUT-2: a policy that cancels and allows, or denies: cancelled, nothing ran."""
    counted = Counted()

    async def policy(_: Authorization) -> Decision:
        scope.cancel()
        return cast("Decision", answer)

    binding = guarded(counted.tool, policy)
    invocation = binding.contract.admit(CALL)
    came = False
    with anyio.CancelScope() as scope:
        await binding.call(invocation, Context.of(CALL))
        came = True

    assert scope.cancelled_caught
    assert (came, counted.runs) == (False, 0)


@pytest.mark.parametrize("plain", [False, True])
async def test_a_call_that_is_cancelled_already_asks_nobody(plain: bool) -> None:
    """Scope 75; AUT-2: neither in a thread nor in the loop."""
    policy, counted = Policy(), Counted()

    async def native(authorization: Authorization) -> Decision:
        return policy(authorization)

    binding = guarded(counted.tool, policy if plain else native)
    invocation = binding.contract.admit(CALL)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await binding.call(invocation, Context.of(CALL))

    assert scope.cancelled_caught
    assert (policy.saw, counted.runs) == ([], 0)


async def test_leaving_a_batch_ends_the_asking_and_the_call_did_not_run() -> None:
    """AUT-2, AUT-6, FAIL-6: a policy that never answers is told to stop, async or in a thread."""
    counted, held = Counted(), threading.Event()
    begun = anyio.Event()
    ended: list[str] = []

    async def slow(_: Authorization) -> bool:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("slow")
        return True

    def stuck(_: Authorization) -> bool:
        return held.wait()

    executor = Executor([Guard(counted.tool, slow), Guard(echo("other"), stuck)])
    try:
        async with executor.batch([CALL, ToolCall.of("other", {})]) as batch:
            await begun.wait()
    finally:
        held.set()

    assert [type(outcome) for outcome in batch.outcomes] == [Cancelled, Cancelled]
    assert batch.outcomes[0].text == 'Error: tool "echo" did not run: cancelled'
    assert (ended, counted.runs) == (["slow"], 0)


async def test_a_policy_that_does_not_answer_in_time_is_a_policy_error() -> None:
    """FAIL-6: `hook_timeout` bounds each policy for itself, in a thread as in the loop."""
    held = threading.Event()
    counted = Counted()

    def stuck(_: Authorization) -> bool:
        return held.wait()

    async def sleeps(_: Authorization) -> bool:
        await anyio.sleep_forever()
        return True

    tools = [Guard(echo("a"), stuck), Guard(echo("b"), sleeps), Guard(counted.tool, Policy())]
    try:
        outcomes = await Executor(tools, hook_timeout=0.01).run(
            [ToolCall.of("a", {}), ToolCall.of("b", {})]
        )
    finally:
        held.set()

    assert [cast("Rejected", outcome).kind for outcome in outcomes] == ["unavailable"] * 2


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
async def test_a_policy_that_ends_the_program_does_not_run_the_tool(error: BaseException) -> None:
    """AUT-2, FAIL-6: `sys.exit` in a policy refuses the call; Ctrl-C is raised as itself."""
    counted = Counted()
    executor = Executor([Guard(counted.tool, Policy(error))])

    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            await executor.run([CALL])
    else:
        (outcome,) = await executor.run([CALL])
        assert cast("Rejected", outcome).kind == "unavailable"
    assert counted.runs == 0


# ---- permission comes before dispatch ------------------------------------------------------------


async def test_no_policy_holds_a_slot_or_a_sibling() -> None:
    """AUT-6: one slot, and three calls behind policies that wait, break and ask; the last runs."""
    go = anyio.Event()
    order: list[str] = []

    def work(name: str) -> Tool:
        return raw(name, lambda _, __: order.append(name))

    async def waits(_: Authorization) -> bool:
        await go.wait()
        return True

    async def breaks(_: Authorization) -> bool:
        raise RuntimeError

    async def asks(_: Authorization) -> Decision:
        return Ask("really?")

    free = raw("free", lambda _, __: order.append("free"))

    @tool
    async def opens() -> None:
        order.append("opens")
        go.set()

    executor = Executor(
        [Guard(work("a"), waits), Guard(work("b"), breaks), Guard(work("c"), asks), free, opens],
        max_parallel=1,
    )
    # One asker at a time: the first is held until `opens` has run, beside it.
    outcomes = await executor.run([ToolCall.of(name) for name in ("a", "b", "c", "free", "opens")])

    assert order == ["free", "opens", "a"]
    assert [type(one) for one in outcomes] == [Completed, Rejected, Suspended, Completed, Completed]


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_at_most_max_parallel_policies_are_asked_at_a_time(limit: int) -> None:
    """AUT-6: beside the calls that run; here every slot is taken meanwhile."""
    asking, most = 0, 0
    full = anyio.Event()

    async def policy(authorization: Authorization) -> bool:
        nonlocal asking, most
        asking += 1
        most = max(most, asking)
        if asking == limit:
            full.set()
        await full.wait()
        asking -= 1
        return True

    async def holds(_: dict[str, object], __: Context) -> None:
        await full.wait()

    executor = Executor([Guard(echo(), policy), raw("hold", holds)], max_parallel=limit)
    calls = [ToolCall.of("hold", id=f"h{i}") for i in range(limit)]
    calls += [ToolCall.of("echo", {"i": i}, id=f"c{i}") for i in range(limit * 4)]
    outcomes = await executor.run(calls)

    assert most == limit
    assert all(isinstance(outcome, Completed) for outcome in outcomes)


async def test_a_permit_is_one_more_thing_to_wait_for_and_changes_no_order() -> None:
    """AUT-6, EXE-3: a call that is allowed early still waits for the one before it."""
    allowed = {name: anyio.Event() for name in "abc"}
    asked = anyio.Event()
    order: list[str] = []

    async def policy(authorization: Authorization) -> Decision:
        name = str(authorization.arguments["name"])
        if name == "c":
            asked.set()
        await allowed[name].wait()
        return Deny() if name == "b" else True

    def write(arguments: dict[str, object], _: Context) -> None:
        order.append(str(arguments["name"]))

    executor = Executor([Guard(raw("write", write, uses="file"), policy)])
    calls = [ToolCall.of("write", {"name": name}) for name in "abc"]
    async with executor.batch(calls) as batch:
        await asked.wait()
        allowed["c"].set()
        allowed["b"].set()
        # `b` is refused while it is not its turn, and `c` waits for `a` all the same.
        async for event in batch:
            assert event.index == 1
            break
        assert order == []
        allowed["a"].set()
        rest = [type(event).__name__ async for event in batch]

    assert order == ["a", "c"]
    assert rest == ["Started", "Finished", "Started", "Finished"]
    assert [type(outcome) for outcome in batch.outcomes] == [Completed, Rejected, Completed]


async def test_nobody_is_asked_about_a_path_that_leads_out(tmp_path: Path) -> None:
    """AUT-6, FN-5: the call is refused as its arguments are, before any guard."""
    policy = Policy(Ask("Read it?"))

    @tool
    async def read(path: Annotated[Path, Within("root")]) -> str:
        return str(path)

    registry = Registry([read], inject={"root": tmp_path}).guarded(policy)
    (outcome,) = await Executor(registry).run([ToolCall.of("read", {"path": "../x"})])

    assert cast("Rejected", outcome).kind == "invalid_arguments"
    assert policy.saw == []


async def test_a_path_is_looked_at_again_when_the_call_begins(tmp_path: Path) -> None:
    """AUT-6, FN-5, SE-13: a call before it in order made a link; what leads out now is refused."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    asked = anyio.Event()
    ran: list[str] = []

    async def policy(authorization: Authorization) -> bool:
        asked.set()
        return True

    @tool(uses="files")
    async def link() -> None:
        await asked.wait()
        (root / "a").symlink_to(outside)

    @tool(uses="files")
    async def read(path: Annotated[Path, Within("root")]) -> None:
        ran.append(str(path))

    registry = Registry([link, Guard(read, policy)], inject={"root": root})
    outcomes = await Executor(registry).run(
        [ToolCall.of("link"), ToolCall.of("read", {"path": "a/secret.txt"})]
    )

    assert isinstance(outcomes[0], Completed)
    assert isinstance(outcomes[1], Rejected)
    assert outcomes[1].kind == "invalid_arguments"
    assert ran == []


async def test_a_hook_hears_only_of_calls_that_may_run() -> None:
    """EXE-4, AUT-6: first the permit, then `on_dispatch`, then the tool."""
    order: list[str] = []

    def policy(authorization: Authorization) -> bool:
        order.append(f"ask {authorization.call_id}")
        return authorization.call_id != "c2"

    async def hook(context: Context) -> None:
        order.append(f"dispatch {context.call_id}")

    work = raw("echo", lambda _, context: order.append(f"run {context.call_id}"))
    executor = Executor([Guard(work, policy)], sequential=True, on_dispatch=hook)
    await executor.run([CALL, ToolCall.of("echo", {}, id="c2")])

    assert [entry for entry in order if entry.endswith("c1")] == [
        "ask c1",
        "dispatch c1",
        "run c1",
    ]
    assert [entry for entry in order if entry.endswith("c2")] == ["ask c2"]


async def test_a_tool_that_is_closed_while_its_policy_thinks_does_not_run() -> None:
    """AUT-6, CLO-1: the permit comes too late; nothing ran."""
    counted = Counted()
    thinking, go = anyio.Event(), anyio.Event()

    async def policy(_: Authorization) -> bool:
        thinking.set()
        await go.wait()
        return True

    registry = Registry([counted.tool]).guarded(policy)
    async with Executor(registry).batch([CALL]) as batch:
        await thinking.wait()
        await registry.aclose()
        go.set()
        async for _ in batch:
            pass

    assert cast("Rejected", batch.outcomes[0]).kind == "unavailable"
    assert counted.runs == 0


# ---- permits -------------------------------------------------------------------------------------


async def test_a_permit_serves_one_leg_of_one_invocation_once() -> None:
    """AUT-6: not another invocation, leg or binding, and not a second time."""
    counted = Counted()
    binding, other = guarded(counted.tool, Policy()), guarded(counted.tool, Policy())
    invocation, again = binding.contract.admit(CALL), binding.contract.admit(CALL)
    context = Context.of(CALL)
    permit = cast("Permit", await binding.authorize(invocation, context))
    foreign = cast("Permit", await other.authorize(other.contract.admit(CALL), context))

    refused: list[tuple[Invocation, Context, object]] = [
        (again, context, permit),
        (invocation, Context.of(CALL, number=2), permit),
        (invocation, context, foreign),
        (invocation, context, Deny()),
        (invocation, context, tuple(permit)),
    ]
    for one, leg, wrong in refused:
        with pytest.raises(ForeignInvocation, match="ask `authorize` for one"):
            await binding.call(one, leg, cast("Permit", wrong))
    assert counted.runs == 0
    await binding.call(invocation, context, permit)
    with pytest.raises(ForeignInvocation, match="it was used"):
        await binding.call(invocation, context, permit)
    assert counted.runs == 1


async def test_only_authorize_makes_a_permit() -> None:
    """AUT-6: no call of the class, no copy that is another one, no pickle."""
    with pytest.raises(TypeError, match="Permit is not made by calling it"):
        Permit(cast("Binding", None))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert((1, 2, 3, 4), Permit)
    permit = await answered(bind(echo()))
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(permit)


# ---- asking a person -----------------------------------------------------------------------------


async def asked(executor: Executor, call: ToolCall, *approvals: Approval, leg: int = 1) -> Outcome:
    """Run one leg of a call."""
    (outcome,) = await executor.run([Leg(call, number=leg, approvals=approvals)])
    return outcome


def request_of(outcome: Outcome) -> InputRequest:
    """Return what a suspended call asks."""
    assert isinstance(outcome, Suspended)
    assert (outcome.text, outcome.is_error) == ("", False)
    return outcome.request


async def test_a_question_suspends_the_call_and_a_yes_lets_it_go_on() -> None:
    """AUT-4, AUT-7: the tool starts once, as a new call; the policy runs again and sees the yes."""
    counted, policy = Counted(), Policy(Ask("Echo it?", expires_in=60))
    executor = Executor([Guard(counted.tool, policy)])

    request = request_of(await asked(executor, CALL))
    assert (request.message, request.schema, request.expires_in) == (
        "Echo it?",
        {"type": "boolean"},
        60,
    )
    assert counted.runs == 0
    approval = request.approval(True, by="ann")
    assert (approval.answer, approval.by, approval.call_id) == (True, "ann", "c1")
    assert approval.at.tzinfo is not None
    outcome = await asked(executor, CALL, approval, leg=2)

    assert outcome.text == '{"n":1}'
    assert counted.runs == 1
    assert [saw.approval for saw in policy.saw] == [None, approval]


async def test_a_no_denies_the_call() -> None:
    """AUT-4, FAIL-6: the model reads that it was not approved; nothing ran."""
    counted = Counted()
    executor = Executor([Guard(counted.tool, Policy(Ask("Echo it?")))])
    request = request_of(await asked(executor, CALL))
    outcome = await asked(executor, CALL, request.approval(False, by="ann"))

    assert isinstance(outcome, Rejected)
    assert (outcome.kind, outcome.text) == ("unauthorized", 'Error: tool "echo" was not approved')
    assert counted.runs == 0


async def test_another_question_is_asked_for_itself() -> None:
    """AUT-7: a policy that wants a second person asks something else, and decides itself."""

    def two(authorization: Authorization) -> Decision:
        if authorization.approval is None:
            return Ask("First person?")
        if authorization.approval.by == "ann":
            return Ask("Second person, not ann?")
        return Allow()

    executor = Executor([Guard(echo(), two)])
    first = request_of(await asked(executor, CALL)).approval(True, by="ann")
    second = request_of(await asked(executor, CALL, first))

    assert second.message == "Second person, not ann?"
    done = await asked(executor, CALL, second.approval(True, by="ben"))
    assert isinstance(done, Completed)


async def test_any_other_answer_is_the_policys_to_judge() -> None:
    """AUT-1, AUT-7: a typed answer comes checked; the same question again is asked again."""

    def limit(authorization: Authorization) -> Decision:
        approval = authorization.approval
        if approval is None or approval.answer == 0:
            return Ask("Up to how much?", answer=int)
        return cast("int", approval.answer) >= 10

    executor = Executor([Guard(echo(), limit)])
    request = request_of(await asked(executor, CALL))

    assert request.schema == {"type": "integer"}
    with pytest.raises(
        InvalidValue, match="the answer is not what was asked for: expected integer"
    ):
        request.approval("a lot", by="ann")
    assert isinstance(await asked(executor, CALL, request.approval(10, by="ann")), Completed)
    assert isinstance(await asked(executor, CALL, request.approval(9, by="ann")), Rejected)
    assert isinstance(await asked(executor, CALL, request.approval(0, by="ann")), Suspended)


@pytest.mark.parametrize(
    "changed",
    [
        ToolCall.of("echo", {"n": 2}, id="c1"),
        ToolCall.of("echo", {"n": 1}, id="c9"),
        ToolCall.of("echo", {"n": 1, "m": None}, id="c1"),
    ],
    ids=["arguments", "call", "one more argument"],
)
async def test_an_approval_is_for_one_call_and_its_very_arguments(changed: ToolCall) -> None:
    """AUT-4, B8 of the peers: edited after the approval, it is asked again and does not run."""
    counted, policy = Counted(), Policy(Ask("Echo it?"))
    executor = Executor([Guard(counted.tool, policy)])
    approval = request_of(await asked(executor, CALL)).approval(True, by="ann")

    again = request_of(await asked(executor, changed, approval, leg=2))
    assert again.asked is not None
    assert again.asked.call_id == changed.id
    assert policy.saw[-1].approval is None
    assert counted.runs == 0
    same = ToolCall(id="c1", name="echo", arguments='{ "n" : 1 }')
    assert isinstance(await asked(executor, same, approval), Completed)


@pytest.mark.parametrize("change", ["description", "hint", "origin", "default"])
async def test_an_approval_is_void_when_the_tool_is_another_one(change: str) -> None:
    """AUT-4, DEF-3, B11 of the peers: whatever a person relied on is in the fingerprint."""
    ran: list[str] = []

    def executor(change: str = "") -> Executor:
        @tool(
            read_only=change == "hint",
            description="Pays more." if change == "description" else "Pays.",
        )
        async def pay(amount: int, currency: str = "BTC" if change == "default" else "USD") -> str:
            ran.append(currency)
            return currency

        origin = "mcp:bank" if change == "origin" else "local"
        return Executor(Registry([pay], origin=origin).guarded(Policy(Ask("Pay?"))))

    call = ToolCall.of("pay", {"amount": 5}, id="c1")
    approval = request_of(await asked(executor(), call)).approval(True, by="ann")

    assert isinstance(await asked(executor(change), call, approval), Suspended)
    assert ran == []
    assert isinstance(await asked(executor(), call, approval), Completed)


async def test_each_guard_that_asks_has_an_approval_of_its_own() -> None:
    """AUT-7: it goes to the guard that asked and to no other; all of them are kept."""

    def outer(_: Authorization) -> Decision:
        return Ask("Outer?")

    saw: list[Approval | None] = []

    def inner(authorization: Authorization) -> Decision:
        saw.append(authorization.approval)
        return Ask("Inner?")

    executor = Executor([Guard(Guard(echo(), inner), outer)])
    first = request_of(await asked(executor, CALL)).approval(True, by="ann")
    second = request_of(await asked(executor, CALL, first, leg=2))

    assert second.message == "Inner?"
    assert saw == [None]
    both = (first, second.approval(True, by="ben"))
    assert isinstance(await asked(executor, CALL, *both, leg=3), Completed)
    assert isinstance(await asked(executor, CALL, both[1], leg=3), Suspended)


async def test_a_resumed_call_is_asked_about_again() -> None:
    """Scope 83; AUT-7: the policy runs on each leg, and may have changed its mind."""
    counted, policy = Counted(), Policy(Ask("Echo it?"))
    executor = Executor([Guard(counted.tool, policy)])
    approval = request_of(await asked(executor, CALL)).approval(True, by="ann")
    policy.answer = Deny("the door was shut meanwhile")
    outcome = await asked(executor, CALL, approval, leg=2)

    assert outcome.text == "Error: the door was shut meanwhile"
    assert (len(policy.saw), counted.runs) == (2, 0)


async def test_a_question_that_cannot_be_asked_is_a_policy_error() -> None:
    """FAIL-6: an answer of a type that JSON cannot carry."""
    error = await answered(guarded(echo(), Policy(Ask("Well?", answer=object()))))

    assert isinstance(error, AuthorizationError)
    assert error.cause is not None
    for message, seconds in (("", 1), ("a", 0), ("a\ud800", 1)):
        with pytest.raises(InvalidValue):
            Ask(message, expires_in=seconds)
    with pytest.raises(InvalidValue):
        Deny("")


async def test_a_tools_own_question_takes_no_approval_and_a_guards_is_not_forged() -> None:
    """AUT-7: a tool that returns what a guard would ask has given no result."""
    own = InputRequest("Which one?", schema={"type": "string"})
    with pytest.raises(InvalidValue, match="the tool's own question"):
        own.approval("a", by="ann")
    request = request_of(await asked(Executor([Guard(echo(), Policy(Ask("?")))]), CALL))
    with pytest.raises(InvalidValue, match="who gave it"):
        request.approval(True, by="")

    outcome = await asked(Executor([raw("echo", lambda _, __: request)]), CALL)
    assert isinstance(outcome, Unknown)
    assert outcome.reason == "bad_result"


async def test_questions_and_approvals_survive_as_json() -> None:
    """DEF-4, AUT-4: read again they are equal; what cannot be is refused."""
    outcome = await asked(Executor([Guard(echo(), Policy(Ask("?", expires_in=5)))]), CALL)
    request = request_of(outcome)
    approval = request.approval(True, by="ann")

    assert (
        Suspended.from_json(msgspec.json.decode(msgspec.json.encode(outcome.to_json()))) == outcome
    )
    assert (
        Approval.from_json(msgspec.json.decode(msgspec.json.encode(approval.to_json()))) == approval
    )
    assert "asked" not in InputRequest("?", schema=True).to_json()
    with pytest.raises(InvalidValue):
        Approval.from_json({**approval.to_json(), "extra": 1})
    with pytest.raises(InvalidValue):
        InputRequest.from_json({**request.to_json(), "asked": {"call_id": "c1"}})


@pytest.mark.parametrize(
    "broken",
    [
        lambda: Leg(cast("ToolCall", "c1")),
        lambda: Leg(CALL, number=0),
        lambda: Leg(CALL, approvals=cast("tuple[Approval, ...]", (True,))),
        lambda: Leg(CALL, approvals=cast("tuple[Approval, ...]", [])),
    ],
)
async def test_a_leg_that_cannot_be_says_why(broken: Callable[[], Leg]) -> None:
    """DEF-4: before anything runs."""
    with pytest.raises(InvalidValue, match="Leg"):
        broken()


async def test_a_leg_carries_number_key_and_session_to_the_tool() -> None:
    """DUR-3, EXE-1: what the caller keeps of a logical call is what its tool sees."""
    seen: list[tuple[object, ...]] = []

    def work(_: dict[str, object], context: Context) -> None:
        seen.append((context.leg, context.idempotency_key, context.session, context.caller))

    await Executor([raw("work", work)]).run(
        [Leg(ToolCall.of("work"), number=3, idempotency_key="k", session="s")], caller="ann"
    )

    assert seen == [(3, "k", "s", "ann")]


async def test_a_context_and_an_authorization_show_no_secrets() -> None:
    """SE-10: neither arguments nor what is injected is in a repr."""
    policy = Policy()
    call = ToolCall.of("echo", {"password": "hunter2-XYZ"})
    contexts: list[Context] = []
    inner = raw("echo", lambda _, context: contexts.append(context))
    await Executor(Registry([inner], inject={"token": "XYZ"}).guarded(policy)).run([call])

    assert "XYZ" not in f"{policy.saw} {contexts} {contexts[0]}"
    assert "echo" in repr(policy.saw[0])


async def test_what_confines_a_call_is_what_its_tool_says_of_these_arguments() -> None:
    """agenttool 55; AUT-1: nothing where it is silent; a name; or what a function says."""
    policy = Policy()

    def confined(arguments: dict[str, object]) -> str | None:
        return None if "escape" in arguments else "seatbelt"

    tools = [
        raw("silent", lambda _, __: None),
        raw("boxed", lambda _, __: None, confinement="seatbelt"),
        raw("asked", lambda _, __: None, confinement=confined),
        raw("odd", lambda _, __: None, confinement=lambda _: cast("str", 3)),
    ]
    calls = [ToolCall.of("silent"), ToolCall.of("boxed"), ToolCall.of("asked")]
    calls += [ToolCall.of("asked", {"escape": True}), ToolCall.of("odd")]
    outcomes = await Executor(Registry(tools).guarded(policy), max_parallel=1).run(calls)

    assert [saw.confinement for saw in policy.saw] == [None, "seatbelt", "seatbelt", None]
    assert cast("Rejected", outcomes[4]).kind == "unavailable"
    with pytest.raises(InvalidValue, match="confinement is the name of what confines"):
        Traits(confinement="")


async def test_a_policy_sees_the_arguments_as_they_were_repaired_and_how() -> None:
    """ADM-2, AUT-1, AR-08: what is approved is what runs, and the repair is told."""
    policy = Policy(Ask("Pay?"))
    paid: list[int] = []

    @tool(leniency=Leniency.COMMON)
    async def pay(amount: int) -> None:
        paid.append(amount)

    executor = Executor([Guard(pay, policy)])
    call = ToolCall.of("pay", {"amount": "5"}, id="c1")
    approval = request_of(await asked(executor, call)).approval(True, by="ann")
    same = ToolCall.of("pay", {"amount": 5}, id="c1")

    assert [(saw.arguments, [r.name for r in saw.repairs]) for saw in policy.saw] == [
        ({"amount": 5}, ["numbers_in_string"])
    ]
    assert isinstance(await asked(executor, call, approval, leg=2), Completed)
    assert isinstance(await asked(executor, same, approval, leg=2), Completed)
    assert paid == [5, 5]
