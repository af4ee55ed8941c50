"""Cedar's language as a policy: what a call is to Cedar, and what its answer is to us."""

import importlib
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule import (
    AuthorizationError,
    Executor,
    FerruleError,
    InvalidValue,
    Leg,
    Registry,
    Rejected,
    Suspended,
    ToolCall,
    Traits,
    bind,
)
from ferrule.policies import InvalidPolicy
from ferrule.policies.cedar import Cedar
from policies.facts import facts, message, reason, word
from support import echo

pytestmark = pytest.mark.anyio

PERMIT = "permit (principal, action, resource)"
ANN = {"uid": {"type": "User", "id": "ann"}, "attrs": {}, "parents": [{"type": "Team", "id": "a"}]}


def when(condition: str) -> Cedar:
    """Return a policy that permits under one condition."""
    return Cedar(f"{PERMIT} when {{ {condition} }};")


def permits(condition: str, arguments: dict[str, object], **given: object) -> bool:
    """Say whether a condition holds of a call."""
    call = facts(arguments=arguments, **given)  # type: ignore[arg-type]  # each test gives its own
    return word(when(condition)(call)) == "allow"


# ---- what a call is ------------------------------------------------------------------------------


def test_a_call_is_a_principal_an_action_and_a_tool() -> None:
    """Issue 4, Cedar: `Action::"call"` on `Tool::"name"` by whom the host names."""
    policy = Cedar(
        'permit (principal in Team::"a", action == Action::"call", resource == Tool::"git_log");',
        principal=lambda one: ("User", str(one.caller)),
        entities=[ANN],
    )

    assert word(policy(facts(caller="ann"))) == "allow"
    assert word(policy(facts(caller="bob"))) == "deny"
    assert word(policy(facts("git_push", caller="ann"))) == "deny"
    assert word(policy(facts(caller='ann"\n'))) == "deny"
    assert permits('principal == Caller::"anonymous"', {})


def test_a_tool_has_its_origin_its_hints_and_its_confinement() -> None:
    """AUT-3: unstated is absent, not false; so is being unconfined."""
    says = Traits(read_only=True, open_world=False)

    assert permits('resource.origin == "mcp:git"', {}, origin="mcp:git")
    assert permits("resource.read_only && !resource.open_world", {}, traits=says)
    assert not permits("resource has destructive || resource has idempotent", {}, traits=says)
    assert not permits("resource has confinement", {})
    assert permits('resource.confinement like "box:*"', {}, confinement="box:1")
    with pytest.raises(FerruleError, match="does not have the attribute `read_only`"):
        permits("resource.read_only", {})


def test_an_entity_adds_to_a_tool_and_never_contradicts_it() -> None:
    """AUT-1: groups and attributes of the host; what the tool is stays what it is."""
    given = {"cost": 3, "read_only": True, "origin": "local", "confinement": "none"}
    kit = {"uid": {"type": "Tool", "id": "git_log"}, "attrs": given, "parents": []}
    kit = kit | {"parents": [{"type": "Kit", "id": "git"}]}

    def judged(condition: str) -> str:
        policy = Cedar(f"{PERMIT} when {{ {condition} }};", entities=[kit])
        return word(policy(facts(origin="mcp:x")))

    assert judged('resource in Kit::"git" && resource.cost == 3') == "allow"
    assert judged('resource.origin == "mcp:x"') == "allow"
    assert judged("resource has read_only || resource has confinement") == "deny"


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ('context.x == "text"', "text"),
        ("context.x", True),
        ("context.x == 3", 3),
        ("context.x == 3", 3.0),
        ("context.x == 0", -0.0),
        ("context.x == -9223372036854775808", -(2**63)),
        ('context.x == decimal("1.5")', 1.5),
        ('context.x == decimal("-0.0001")', -0.0001),
        ('context.x == JSON::Number::"0.12345"', 0.12345),
        ('context.x == JSON::Number::"1e-09"', 1e-9),
        ('context.x == JSON::Number::"9223372036854775808"', 2**63),
        (f'context.x == JSON::Number::"1{"0" * 22}"', 1e22),
        ('context.x == JSON::Number::"922337203685478.5"', 922337203685478.5),
        ('context.x == JSON::Null::"null"', None),
        ("context.x == [2, 1]", [1, 2, 2]),
        ('context.x.y == [JSON::Null::"null"]', {"y": [None]}),
        ('context.x["a b"] == 1', {"a b": 1}),
    ],
)
def test_each_json_value_is_a_value_of_cedar(condition: str, value: object) -> None:
    """Issue 4, Cedar: no value is left out, and none becomes another."""
    assert permits(condition, {"x": value})


@pytest.mark.parametrize("value", [None, 2**63, 0.12345, 1.5, "4"])
def test_a_rule_that_cannot_compare_a_value_does_not_pass_it_over(value: object) -> None:
    """AUT-2: a `forbid` that Cedar skipped is no permission; nobody could decide."""
    policy = Cedar(f"{PERMIT}; forbid (principal, action, resource) when {{ context.n > 3 }};")

    with pytest.raises(FerruleError, match=r"Cedar could not decide: .*type error"):
        policy(facts(arguments={"n": value}))
    with pytest.raises(FerruleError, match="does not have the attribute `n`"):
        policy(facts())


@pytest.mark.parametrize("name", ["__entity", "__extn", "__expr"])
def test_a_model_makes_no_entities(name: str) -> None:
    """Issue 4, Cedar: what Cedar would read as more than plain data is refused, at every depth."""
    inner: dict[str, object] = {name: {"type": "User", "id": "root"}}
    hidden: list[dict[str, object]] = [inner, {"x": inner}, {"x": [[inner]]}]
    for arguments in hidden:
        with pytest.raises(InvalidValue, match="take an object with such a member for something"):
            Cedar(f"{PERMIT};")(facts(arguments=arguments))


def test_a_host_may_say_what_the_context_is() -> None:
    """Issue 4, Cedar: where fractions are to be compared, the host gives whole numbers."""
    policy = Cedar(
        f"{PERMIT} when {{ context.cents <= 1000 }};",
        context=lambda one: {"cents": round(float(str(one.arguments["euro"])) * 100)},
    )

    assert word(policy(facts(arguments={"euro": 9.999}))) == "allow"
    assert word(policy(facts(arguments={"euro": 10.01}))) == "deny"


UNICODE = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = UNICODE.filter(lambda name: not name.startswith("__"))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | UNICODE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
ANYTHING = Cedar(f"{PERMIT};")


@settings(max_examples=300)
@given(st.dictionaries(NAMES, JSON, max_size=4))
def test_whatever_the_arguments_a_policy_that_does_not_look_decides(
    arguments: dict[str, object],
) -> None:
    """Issue 4, bad input: every JSON object can be said, but for the reserved names."""
    assert word(ANYTHING(facts(arguments=arguments))) == "allow"


# ---- what an answer is ---------------------------------------------------------------------------


def test_only_an_explicit_permit_allows() -> None:
    """AUT-3: without one the call is denied; a forbid has the last word, and may say why."""
    forbid = "forbid (principal, action, resource) when"
    text = f"""
        {PERMIT} unless {{ context has no }};
        @reason("Not on Sundays.") {forbid} {{ context has sunday }};
        @reason("Not at night.") {forbid} {{ context has night }};
        {forbid} {{ context has silent }};
    """
    policy = Cedar(text)

    assert word(policy(facts())) == "allow"
    assert reason(policy(facts(arguments={"no": 1}))) is None
    assert reason(policy(facts(arguments={"silent": 1}))) is None
    assert reason(policy(facts(arguments={"night": 1, "silent": 1}))) == "Not at night."
    assert reason(policy(facts(arguments={"night": 1, "sunday": 1}))) == (
        "Not on Sundays.\nNot at night."
    )


def test_a_forbid_stands_whatever_else_broke() -> None:
    """AUT-2: who forbids has decided, even where another policy could not be evaluated."""
    text = f"{PERMIT} when {{ context.x > 1 }}; forbid (principal, action, resource);"

    assert word(Cedar(text)(facts())) == "deny"


def test_a_permit_may_ask_a_person() -> None:
    """AUT-4: an @ask asks, whatever else permits; the questions stand in the order of the text."""
    policy = Cedar(f"""
        {PERMIT};
        @ask("Much?") {PERMIT} when {{ context has n && context.n > 10 }};
        @ask {PERMIT} when {{ context has m }};
        @ask("Very much?") {PERMIT} when {{ context has n && context.n > 100 }};
        forbid (principal, action, resource) when {{ context has n && context.n > 1000 }};
    """)

    assert word(policy(facts(arguments={"n": 1}))) == "allow"
    assert message(policy(facts(arguments={"n": 11}))) == "Much?"
    assert message(policy(facts(arguments={"n": 101}))) == "Much?\nVery much?"
    assert message(policy(facts(arguments={"m": 1}))) == "May `git_log` run?"
    assert word(policy(facts(arguments={"n": 1001}))) == "deny"


def test_the_annotations_of_many_policies_are_not_mixed_up() -> None:
    """AUT-4: the tenth policy is not the second one."""
    text = "".join(f'@ask("{n}") {PERMIT} when {{ context.n == {n} }};' for n in range(25))
    policy = Cedar(text)

    assert [message(policy(facts(arguments={"n": n}))) for n in range(25)] == [
        str(n) for n in range(25)
    ]


# ---- what is refused -----------------------------------------------------------------------------

SCHEMA = """
    entity Caller; entity Tool { origin: String, read_only?: Bool };
    action call appliesTo { principal: Caller, resource: Tool, context: { n: Long } };
"""


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Cedar("permit ("), "Cedar cannot read this: unexpected end of input"),
        (
            lambda: Cedar("permit (principal == ?principal, action, resource);"),
            "a template permits",
        ),
        (lambda: Cedar(f'@reason("x") {PERMIT};'), "policy 1: @reason stands on a permit"),
        (lambda: Cedar(f"{PERMIT}; @ask forbid (principal, action, resource);"), "policy 2: @ask"),
        (lambda: Cedar(f"{PERMIT};", schema="entity"), "Cedar cannot read this"),
        (lambda: Cedar(f"{PERMIT} when {{ context.m > 1 }};", schema=SCHEMA), "fit the schema"),
        (lambda: Cedar(f"{PERMIT};", entities=[{}]), "an entity is as in "),
        (lambda: Cedar(f"{PERMIT};", entities=[{"uid": {"type": "Tool", "id": "x"}}]), "as in "),
        (lambda: Cedar(f"{PERMIT};", entities=[ANN | {"attrs": {"x": None}}]), "Cedar cannot read"),
        (lambda: Cedar(f"{PERMIT};", entities=[ANN | {"attrs": {"x": {1}}}]), "Cedar cannot read"),
    ],
)
def test_what_cannot_be_read_is_refused_when_it_is_given(
    make: Callable[[], Cedar], sentence: str
) -> None:
    """STYLE 23: a bad policy fails when it is made, not when a call comes."""
    with pytest.raises(InvalidPolicy) as caught:
        make()
    assert sentence in str(caught.value)


def test_a_schema_holds_for_each_request() -> None:
    """AUT-2: a request that does not fit is no denial: nobody could decide."""
    policy = Cedar(f"{PERMIT} when {{ context.n > 1 }};", schema=SCHEMA)

    assert word(policy(facts(arguments={"n": 2}))) == "allow"
    misfits: list[dict[str, object]] = [{}, {"n": "2"}, {"n": 2, "m": 1}]
    for arguments in misfits:
        with pytest.raises(FerruleError, match="could not decide: failed to build request"):
            policy(facts(arguments=arguments))


def test_a_missing_engine_says_what_brings_it() -> None:
    """ARCHITECTURE rule 5: the other policies go on without it."""
    program = (
        "import sys\nsys.modules['cedarpy'] = None\nimport ferrule.policies\n"
        "try: import ferrule.policies.cedar\nexcept ModuleNotFoundError as e: print(e, e.name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.stderr == ""
    assert done.stdout == (
        "Cedar's engine is not installed: pip install 'ferrule[cedar]' cedarpy\n"
    )


def test_a_missing_engine_is_seen_in_a_running_process_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ARCHITECTURE rule 5: the same sentence, wherever the import stands."""
    monkeypatch.delitem(sys.modules, "ferrule.policies.cedar")
    monkeypatch.setitem(sys.modules, "cedarpy", None)

    with pytest.raises(ModuleNotFoundError, match=r"pip install 'ferrule\[cedar\]'"):
        importlib.import_module("ferrule.policies.cedar")


# ---- in the house --------------------------------------------------------------------------------


async def run(policy: Cedar, calls: Sequence[ToolCall | Leg]) -> list[object]:
    """Run calls of a tool behind a policy."""
    return list(await Executor(Registry([echo()]).guarded(policy)).run(calls))


async def test_cedar_guards_a_registry() -> None:
    """AUT-2, AUT-7: permits, denials, questions and an approval, by the executor."""
    policy = Cedar(f"""
        {PERMIT} when {{ context.n < 5 }};
        @ask("Five or more?") {PERMIT} when {{ context.n >= 5 && context.n < 9 }};
    """)
    calls = [ToolCall.of("echo", {"n": n}, id=f"c{n}") for n in (1, 5, 9)]

    ran, asked, denied = await run(policy, calls)

    assert getattr(ran, "text", "") == '{"n":1}'
    assert isinstance(denied, Rejected)
    assert denied.kind == "unauthorized"
    assert isinstance(asked, Suspended)
    approval = asked.request.approval(answer=True, by="ann")
    (done,) = await run(policy, [Leg(calls[1], approvals=(approval,))])
    assert getattr(done, "text", "") == '{"n":5}'


async def test_a_policy_that_broke_keeps_its_details_from_the_model() -> None:
    """AUT-2, FAIL-6: what Cedar said is the operator's; the model reads a reference."""
    policy = when("context.n > 1")
    call = ToolCall.of("echo", {"n": "PLANTED"})
    (outcome,) = await run(policy, [call])

    assert isinstance(outcome, Rejected)
    assert outcome.kind == "unavailable"
    assert "Cedar" not in outcome.text
    binding = bind(next(iter(Registry([echo()]).guarded(policy))))
    with pytest.raises(AuthorizationError) as caught:
        await binding.call(binding.contract.admit(call))
    assert "type error" in str(caught.value.cause)
