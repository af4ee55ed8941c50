"""A policy made stricter by hints: what tools say of themselves never lets anything pass."""

from collections.abc import Awaitable
from functools import partial
from typing import cast

import pytest

from ferrule import (
    Allow,
    Ask,
    Authorization,
    AuthorizationError,
    Authorizer,
    Completed,
    Decision,
    Deny,
    Executor,
    InputRequest,
    InvalidValue,
    Leg,
    Registry,
    Rejected,
    Suspended,
    ToolCall,
    Traits,
    bind,
)
from ferrule.policies import Risk, by_hints
from policies.facts import facts, message, reason, word
from support import echo, raw

pytestmark = pytest.mark.anyio

HARMLESS = Traits(read_only=True, open_world=False)


def allowing(_: Authorization) -> bool:
    """Allow everything: what hints make of it is seen best."""
    return True


def judged(
    traits: Traits, origin: str = "local", *, ask: tuple[Risk, ...] = ("destructive", "open_world")
) -> Decision:
    """Return what a policy that allows everything decides once hints are looked at."""
    return cast("Decision", by_hints(allowing, ask=ask)(facts(origin=origin, traits=traits)))


# ---- SE-12: hints tighten and never loosen -------------------------------------------------------


def test_se_12_an_untrusted_servers_good_word_counts_for_nothing() -> None:
    """SE-12, AUT-3: wipe_all with readOnlyHint from a server that nobody trusts is asked about."""
    call = facts("wipe_all", origin="mcp:files", traits=HARMLESS)

    asked = by_hints(allowing)(call)

    assert message(asked) == (
        "May `wipe_all` from `mcp:files` run? It may delete or overwrite things and may reach "
        "beyond this system. It says that it only reads and that it stays on this system; "
        "its origin is not trusted."
    )


@pytest.mark.parametrize(
    ("traits", "risk"),
    [
        (Traits(read_only=True, open_world=False), "writes"),
        (Traits(read_only=False, destructive=False), "destructive"),
        (Traits(read_only=True, open_world=False), "open_world"),
    ],
)
def test_se_12_each_good_word_counts_only_from_a_trusted_origin(traits: Traits, risk: Risk) -> None:
    """SE-12: read-only, not destructive and closed world alike."""
    assert word(judged(traits, "local", ask=(risk,))) == "allow"
    assert word(judged(traits, "mcp:files", ask=(risk,))) == "ask"


def test_se_12_a_trusted_servers_good_word_counts() -> None:
    """SE-12: the same tool of a server that the operator named as trusted is let pass."""
    call = facts("wipe_all", origin="mcp:files", traits=HARMLESS)

    assert by_hints(allowing, trusted=("mcp:files",))(call) is True
    assert by_hints(allowing, trusted=["mcp:*"])(call) is True
    assert word(by_hints(allowing, trusted=())(facts(traits=HARMLESS))) == "ask"


def test_se_12_a_tool_that_says_nothing_may_do_anything() -> None:
    """SE-12, AUT-3: unstated is not false: it may write, destroy and reach out."""
    assert word(judged(Traits())) == "ask"
    for risk in ("writes", "destructive", "open_world"):
        assert word(judged(Traits(), ask=(risk,))) == "ask"
    assert message(judged(Traits())).endswith("It says nothing about that.")


@pytest.mark.parametrize(
    ("traits", "risks"),
    [
        (Traits(read_only=False), {"writes", "destructive", "open_world"}),
        (Traits(read_only=False, destructive=False), {"writes", "open_world"}),
        (Traits(destructive=False, open_world=False), {"writes"}),
        (Traits(read_only=True), {"open_world"}),
        (Traits(read_only=True, open_world=True), {"open_world"}),
        (HARMLESS, set()),
        (Traits(read_only=True, idempotent=False, open_world=False), set()),
    ],
)
def test_se_12_each_risk_is_there_unless_it_is_denied(traits: Traits, risks: set[str]) -> None:
    """SE-12: destructiveHint absent is destructive, unless the tool only reads (MCP's meaning)."""
    every: tuple[Risk, ...] = ("writes", "destructive", "open_world")

    assert {risk for risk in every if word(judged(traits, ask=(risk,))) == "ask"} == risks


@pytest.mark.parametrize("origin", ["local", "mcp:files"])
def test_se_12_a_tool_that_contradicts_itself_is_taken_at_its_worst_word(origin: str) -> None:
    """SE-12: read-only and destructive at once is destructive, and writes, whoever says it."""
    both = Traits(read_only=True, destructive=True, open_world=False)

    assert word(judged(both, origin, ask=("destructive",))) == "ask"
    assert word(judged(both, origin, ask=("writes",))) == "ask"
    assert "that it only reads and that it may destroy" in message(judged(both, origin))


def test_se_12_a_bad_word_counts_from_everywhere() -> None:
    """SE-12: a server that is not trusted is believed where it warns of itself."""
    warns = Traits(read_only=False, destructive=True, open_world=True)
    asked = message(judged(warns, "mcp:files"))

    assert "that it changes things and that it may destroy" in asked


# ---- never laxer ---------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [False, Deny("no"), Ask("Really?"), None, 1, "yes"])
def test_what_the_base_does_not_allow_stays_as_it_is(answer: object) -> None:
    """AUT-3: no hint allows; a denial, a question and nonsense are given on unchanged."""

    def base(_: Authorization) -> Decision:
        return cast("Decision", answer)

    assert by_hints(base)(facts(traits=HARMLESS)) is answer


def test_there_is_no_policy_by_hints_alone() -> None:
    """AUT-3: without a base it is no policy."""
    with pytest.raises(InvalidValue, match=r"give it one, as in Rules\.read"):
        by_hints(cast("Authorizer", None))


def test_a_risk_may_be_denied_and_the_model_reads_why() -> None:
    """AUT-8: denying goes before asking; the reason says the tool and the risk, no arguments."""
    policy = by_hints(allowing, deny=("open_world",))
    call = facts("send", {"body": "PLANTED"}, traits=Traits(read_only=True))

    denied = reason(cast("Decision", policy(call)))

    assert denied == 'tool "send" is not authorized: it may reach beyond this system'


@pytest.mark.parametrize("risks", ["writes", ("reads",), ("writes", "all")])
def test_a_risk_that_has_no_such_name_is_refused(risks: object) -> None:
    """STYLE 24: the error names those that exist."""
    named = cast("tuple[Risk, ...]", risks)
    with pytest.raises(InvalidValue, match="ask of by_hints is some of writes, destructive, open_"):
        by_hints(allowing, ask=named)
    with pytest.raises(InvalidValue, match="deny of by_hints"):
        by_hints(allowing, deny=named)
    with pytest.raises(InvalidValue, match="1 to 128 characters"):
        by_hints(allowing, trusted=("",))


def test_a_question_shows_an_origin_that_hides_nothing() -> None:
    """Issue 4, origins: direction and control characters of an origin are made visible."""
    asked = message(judged(Traits(), "mcp:\u202egood\x1b[2K"))

    assert "`mcp:⟦U+202E⟧good⟦U+001B⟧[2K`" in asked


# ---- with the rest of the house ------------------------------------------------------------------


async def test_a_base_may_be_plain_async_or_an_object() -> None:
    """AUT-8: whatever form a policy has, its answer is made stricter."""

    async def later(_: Authorization) -> Decision:
        return Allow()

    class Answers:
        async def __call__(self, _: Authorization) -> Decision:
            return True

    for base in (later, Answers(), partial(later)):
        registry = Registry([raw("echo", lambda _, __: "ran")]).guarded(by_hints(base))
        (outcome,) = await Executor(registry).run([ToolCall.of("echo")])
        assert isinstance(outcome, Suspended)
        answer = await cast("Awaitable[Decision]", by_hints(base)(facts(traits=HARMLESS)))
        assert word(answer) == "allow"


async def test_a_yes_lets_the_call_run_and_a_no_does_not() -> None:
    """AUT-4, AUT-7: the same question again takes the person's yes or no."""
    executor = Executor(Registry([echo()]).guarded(by_hints(allowing)))
    call = ToolCall.of("echo", {"n": 1}, id="c1")
    (first,) = await executor.run([call])
    assert isinstance(first, Suspended)

    endings = []
    for answer in (True, False):
        approval = first.request.approval(answer, by="ann")
        endings += await executor.run([Leg(call, approvals=(approval,))])

    assert [type(one) for one in endings] == [Completed, Rejected]


async def test_nobody_is_asked_twice_about_one_call() -> None:
    """AUT-7: what a person answered to the base is not asked again because of hints."""

    def base(one: Authorization) -> Decision:
        if one.approval is None:
            return Ask("How many?", answer=int)
        return one.approval.answer == 3

    binding = bind(next(iter(Registry([echo()]).guarded(by_hints(base)))))
    call = ToolCall.of("echo", {"n": 1}, id="c1")
    executor = Executor([binding.tool])
    (first,) = await executor.run([call])
    assert isinstance(first, Suspended)
    assert first.request.message == "How many?"

    legs = [Leg(call, approvals=(first.request.approval(n, by="ann"),)) for n in (3, 4)]
    endings = [(await executor.run([leg]))[0] for leg in legs]

    assert [type(one) for one in endings] == [Completed, Rejected]


async def test_a_base_that_raises_is_a_policy_error() -> None:
    """AUT-2: hints do not hide that the policy broke; the tool does not run."""

    def base(_: Authorization) -> Decision:
        raise LookupError("PLANTED")

    binding = bind(next(iter(Registry([echo()]).guarded(by_hints(base)))))
    invocation = binding.contract.admit(ToolCall.of("echo"))

    with pytest.raises(AuthorizationError) as caught:
        await binding.call(invocation)
    assert isinstance(caught.value.cause, LookupError)
    assert "PLANTED" not in str(caught.value)


async def test_se_12_a_call_of_a_harmless_tool_runs_at_once() -> None:
    """SE-12: what is known to be harmless is not asked about."""
    tool = raw("look", lambda _, __: "seen", read_only=True, open_world=False)
    (outcome,) = await Executor(Registry([tool]).guarded(by_hints(allowing))).run(
        [ToolCall.of("look")]
    )

    assert isinstance(outcome, Completed)


async def test_se_12_hints_see_what_the_tool_says_at_its_origin() -> None:
    """SE-12, REG-1: the origin that the registry knows decides whether a good word counts."""
    tool = raw("look", lambda _, __: "seen", read_only=True, open_world=False)
    registry = Registry([tool], origin="mcp:files").guarded(by_hints(allowing))
    binding = registry.resolve("look")
    assert binding is not None
    invocation = binding.contract.admit(ToolCall.of("look"))

    answer = await binding.call(invocation)

    assert isinstance(answer, InputRequest)
    assert "`mcp:files`" in answer.message
