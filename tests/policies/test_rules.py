"""Rules in a file: what they are for, what they decide, and what is refused before they do."""

from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule import (
    Authorization,
    Completed,
    Context,
    Deny,
    Executor,
    InputRequest,
    InvalidValue,
    Leg,
    Permit,
    RawTool,
    Registry,
    Rejected,
    Suspended,
    ToolCall,
    Traits,
    bind,
    tool,
)
from ferrule.policies import InvalidPolicy, Outlook, Rules
from ferrule.policies._patterns import Pattern
from fuzz_policies import batches, fault, memory
from policies.facts import facts, message, reason, word
from support import echo, raw

pytestmark = pytest.mark.anyio

ISSUE = """
[[rule]]
tool = "git_*"
origin = "mcp:git"
when = { read_only = true }
where = [{ path = "cmd[0]", in = ["status", "log"] }]
confined = true
decide = "allow"
reason = "Looking is fine."
"""


def rule(text: str, decide: str = "allow") -> Rules:
    """Return a policy of one rule."""
    return Rules.parse(f'[[rule]]\ndecide = "{decide}"\n{text}')


def problems(text: str) -> list[str]:
    """Return what is wrong with a policy."""
    with pytest.raises(InvalidPolicy) as caught:
        Rules.parse(text, source="policy.toml")
    return list(caught.value.problems)


def problem(text: str, decide: str = "allow") -> str:
    """Return the one thing that is wrong with a policy of one rule."""
    (found,) = problems(f'[[rule]]\ndecide = "{decide}"\n{text}')
    return found


# ---- what a rule is for --------------------------------------------------------------------------


def issue_call(**changed: object) -> Authorization:
    """Return the call that the rule of the issue is for, with something changed."""
    given: dict[str, object] = {
        "name": "git_log",
        "arguments": {"cmd": ["log", "-1"]},
        "origin": "mcp:git",
        "traits": Traits(read_only=True),
        "confinement": "container:git",
    }
    return facts(**(given | changed))  # type: ignore[arg-type]  # each test gives what it takes


def test_a_rule_is_for_the_calls_that_all_of_it_holds_for() -> None:
    """Issue 4, rules: each part alone takes the call away; what no rule is for is denied."""
    policy = Rules.parse(ISSUE)

    assert word(policy(issue_call())) == "allow"
    changes: list[dict[str, object]] = [
        {"name": "log"},
        {"name": "Git_log"},
        {"origin": "mcp:git2"},
        {"traits": Traits()},
        {"traits": Traits(read_only=True, destructive=True)},
        {"arguments": {"cmd": ["push"]}},
        {"arguments": {"cmd": "status"}},
        {"arguments": {}},
        {"confinement": None},
    ]
    for changed in changes:
        decision = policy(issue_call(**changed))
        assert (word(decision), reason(decision)) == ("deny", None), changed


def test_the_first_rule_that_is_for_a_call_decides() -> None:
    """Issue 4, rules: first match wins; a reason is for the one who is told no, or asked."""
    policy = Rules.parse("""
        [[rule]]
        tool = ["git_push", "git_reset"]
        decide = "deny"
        reason = "Nothing leaves this machine."
        [[rule]]
        tool = "git_commit"
        decide = "ask"
        reason = "Commit this?"
        [[rule]]
        tool = "git_*"
        decide = "allow"
    """)

    assert reason(policy(facts("git_reset"))) == "Nothing leaves this machine."
    assert message(policy(facts("git_commit"))) == "Commit this?"
    assert word(policy(facts("git_log"))) == "allow"
    assert (word(policy(facts("rm"))), len(policy)) == ("deny", 3)


@pytest.mark.parametrize(
    ("condition", "traits", "holds"),
    [
        ("read_only = true", Traits(read_only=True), True),
        ("read_only = true", Traits(), False),
        ("read_only = false", Traits(), False),
        ("read_only = false", Traits(read_only=False), True),
        ('read_only = "unstated"', Traits(), True),
        ('read_only = "unstated"', Traits(read_only=False), False),
        ('open_world = false, destructive = "unstated"', Traits(open_world=False), True),
        ("idempotent = true, open_world = false", Traits(idempotent=True), False),
        ("read_only = false", Traits(read_only=True, destructive=True), True),
    ],
)
def test_se_12_unstated_is_not_false(condition: str, traits: Traits, holds: bool) -> None:
    """AUT-3, SE-12: a hint is true, false or unstated; a contradiction is its worst word."""
    policy = rule(f'tool = "git_*"\nwhen = {{ {condition} }}')

    assert (word(policy(facts(traits=traits))) == "allow") is holds


@pytest.mark.parametrize(
    ("confined", "confinement", "holds"),
    [
        ("true", "container:build", True),
        ("true", None, False),
        ("false", None, True),
        ("false", "container:build", False),
        ('"container:*"', "container:build", True),
        ('"container:*"', "chroot", False),
        ('"*"', None, False),
    ],
)
def test_a_rule_may_ask_what_confines_a_call(
    confined: str, confinement: str | None, holds: bool
) -> None:
    """Issue 4, rules: true, false, or a pattern for the name of what confines it."""
    policy = rule(f"confined = {confined}")

    assert (word(policy(facts(confinement=confinement))) == "allow") is holds


@pytest.mark.parametrize(
    ("condition", "arguments", "holds"),
    [
        ('path = "a", equals = 1', {"a": 1}, True),
        ('path = "a", equals = 1', {"a": 1.0}, True),
        ('path = "a", equals = 1', {"a": True}, False),
        ('path = "a", equals = true', {"a": 1}, False),
        ('path = "a", equals = false', {"a": None}, False),
        ('path = "a", equals = "1"', {"a": 1}, False),
        ('path = "a", equals = [1, { b = 2 }]', {"a": [1.0, {"b": 2}]}, True),
        ('path = "a", equals = [1]', {"a": [1, 1]}, False),
        ('path = "a", equals = { b = 1 }', {"a": {"b": 1, "c": 2}}, False),
        ('path = "a", in = ["x", 2]', {"a": 2}, True),
        ('path = "a", in = ["x", 2]', {"a": "y"}, False),
        ('path = "a", matches = "src/*.py"', {"a": "src/x/y.py"}, True),
        ('path = "a", matches = "SRC/*"', {"a": "src/x"}, False),
        ('path = "a", matches = "*"', {"a": 1}, False),
        ('path = "a", matches = "*"', {"a": ["x"]}, False),
        ('path = "a", min = 1, max = 5', {"a": 5}, True),
        ('path = "a", min = 1, max = 5', {"a": 5.5}, False),
        ('path = "a", min = 1', {"a": True}, False),
        ('path = "a", max = 5', {"a": "3"}, False),
        ('path = "a", absent = true', {}, True),
        ('path = "a", absent = true', {"a": None}, False),
        ('path = "a.b", absent = true', {"a": "text"}, True),
        ('path = "a.b[1].c", equals = 1', {"a": {"b": [0, {"c": 1}]}}, True),
        ('path = "a[2]", equals = 1', {"a": [1, 1]}, False),
        ('path = "a[0]", equals = "x"', {"a": "x"}, False),
        ('path = "a.length", equals = 1', {"a": [1]}, False),
        ('path = "a[*]", in = [1, 2]', {"a": [1, 2, 1]}, True),
        ('path = "a[*]", in = [1, 2]', {"a": [1, 3]}, False),
        ('path = "a[*]", in = [1, 2]', {"a": []}, False),
        ('path = "a[*].n", equals = 1', {"a": [{"n": 1}, {}]}, False),
        ('path = "a[*][*]", equals = 1', {"a": [[1], [1, 1]]}, True),
        ('path = "a[*][*]", equals = 1', {"a": [[1], []]}, False),
        ("path = 'a[\"b c\"]', equals = 1", {"a": {"b c": 1}}, True),
        ("path = '[\"b.c\"][0]', equals = 1", {"b.c": [1]}, True),
        ('path = \'["\\""]\', equals = 1', {'"': 1}, True),
        ('path = "$a-b_1", equals = 1', {"$a-b_1": 1}, True),
    ],
)
def test_a_condition_holds_of_json_values(
    condition: str, arguments: dict[str, object], holds: bool
) -> None:
    """Issue 4, rules: paths, JSON's equality, and no match where a path leads nowhere."""
    policy = rule(f"where = [{{ {condition} }}]")

    assert (word(policy(facts(arguments=arguments))) == "allow") is holds


def test_all_conditions_must_hold() -> None:
    """Issue 4, rules: `where` is a list of which nothing may fail."""
    policy = rule('where = [{ path = "a", min = 1 }, { path = "b", matches = "x*" }]')

    assert word(policy(facts(arguments={"a": 1, "b": "xy"}))) == "allow"
    assert word(policy(facts(arguments={"a": 0, "b": "xy"}))) == "deny"
    assert word(policy(facts(arguments={"a": 1, "b": "y"}))) == "deny"


def test_se_12_a_question_shows_the_tool_and_what_the_rule_looks_at() -> None:
    """AUT-4, SE-12: a person sees the arguments that decide, with nothing hidden in them."""
    text = 'where = [{ path = "cmd[0]", matches = "*" }, { path = "n", min = 1 }, '
    policy = rule(f'{text}{{ path = "to[*]", matches = "*@*" }}]', "ask")
    arguments = {"cmd": ["rm\u202e\x1b[2K"], "n": 2, "to": ["a@x", "b@y"], "secret": "PLANTED"}

    asked = message(policy(facts("run", arguments, origin="mcp:\u200bgit")))

    assert asked == (
        "May `run` from `mcp:⟦U+200B⟧git` run? Its arguments have "
        'cmd[0] = "rm⟦U+202E⟧\\u001b[2K"; n = 2; to[*] = ["a@x", "b@y"].'
    )
    assert message(rule("", "ask")(facts("run", arguments))) == "May `run` from `local` run?"


def test_a_question_and_a_denial_are_short_whatever_the_arguments() -> None:
    """AUT-8: a denial never repeats an argument; a question is at most 1 KB of them."""
    text = ", ".join(f'{{ path = "a{index}", matches = "*" }}' for index in range(20))
    arguments: dict[str, object] = {f"a{index}": "PLANTED" * 5000 for index in range(20)}

    asked = message(rule(f"where = [{text}]", "ask")(facts("n" * 128, arguments, origin="é" * 999)))
    denied = rule(f"where = [{text}]", "deny")(facts(arguments=arguments))

    assert len(asked.encode()) <= 1024
    assert denied == Deny()


# ---- what is refused -----------------------------------------------------------------------------


def test_all_that_is_wrong_is_said_at_once() -> None:
    """Issue 4, rules: unknown keys are errors; each says file, rule, line, key and the way out."""
    found = problems("""
colour = 1

[[rule]]
tool = "git_*"
desc = 1
decide = "deny"

[[rule]]
when = { destructiv = true }
where = [{ path = "a..b", equals = 1 }, { path = "a", equal = 1 }]
""")
    how = 'write it as in `cmd[0]`, `files[*].name` or `headers["content type"]`'

    assert [one.removeprefix("policy.toml, ") for one in found] == [
        "colour: there is no such key; known are rule",
        "rule 1 (line 4), desc: there is no such key; did you mean decide?",
        "rule 2 (line 9), when.destructiv: there is no such key; did you mean destructive?",
        f"rule 2 (line 9), where[0].path: it is no path from character 2 on; {how}",
        "rule 2 (line 9), where[1].equal: there is no such key; did you mean equals?",
        'rule 2 (line 9), decide: it decides nothing; write decide = "allow", "deny" or "ask"',
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("tool = 1", "tool: write a list"),
        ("tool = [1]", "tool: write a pattern in quotes"),
        ("tool = []", "tool: a list of patterns has 1 to 32"),
        ('tool = ""', "tool: a pattern has 1 to 128 characters"),
        (f'tool = "{"a" * 129}"', "tool: a pattern has 1 to 128 characters"),
        ('tool = "a b"', "tool: `a b` can never match: a tool's name has 1 to 128 of"),
        ('tool = ["a", "é*"]', "tool: `é*` can never match"),
        ('tool = "[%&]"', "tool: `[%&]` can never match"),
        ('origin = "[z-a]"', "origin: no character matches `[z-a]`"),
        ('origin = "[é]"', "origin: a [bracket] holds ASCII characters only"),
        ("when = 1", "when: write a table"),
        ('when = { read_only = "true" }', 'when.read_only: write true, false or "unstated"'),
        ("where = 1", "where: write a list"),
        ("where = [1]", "where: write a list of tables"),
        ("confined = 1", "confined: write true, false, or a pattern"),
        ('confined = ""', "confined: a pattern has"),
        ('reason = " "', "reason: write a sentence"),
        (f'reason = "{"é" * 501}"', "reason: a reason is read in full; write at most 1000 bytes"),
        ("where = [{ equals = 1 }]", "where[0].path: it looks at no argument"),
        ('where = [{ path = "a" }]', "where[0]: it asks nothing; write in, equals, matches"),
        ("where = [{ path = 1, equals = 1 }]", "where[0].path: a path is a text"),
        ('where = [{ path = "", equals = 1 }]', "where[0].path: a path is a text"),
        ('where = [{ path = "[0]", equals = 1 }]', "a path begins with a name"),
        ('where = [{ path = "a[-1]", equals = 1 }]', "it is no path from character 2 on"),
        ('where = [{ path = "é", equals = 1 }]', "it is no path from character 1 on"),
        ("where = [{ path = 'a[\"\\x\"]', equals = 1 }]", "a quoted name is written as in JSON"),
        (f'where = [{{ path = "a{"[0]" * 32}", equals = 1 }}]', "it is no path from character"),
        ('where = [{ path = "a", in = 1 }]', "where[0].in: write a list"),
        (f'where = [{{ path = "a", in = {[1] * 1001} }}]', "in: it has more than 1000 entries"),
        ('where = [{ path = "a", equals = inf }]', "where[0].equals: an argument is JSON"),
        ('where = [{ path = "a", equals = 1979-05-27 }]', "where[0].equals: an argument is JSON"),
        (f'where = [{{ path = "a", equals = {"[" * 20}{"]" * 20} }}]', "nested more than 16 deep"),
        ('where = [{ path = "a", min = "1" }]', "where[0].min: write a number"),
        ('where = [{ path = "a", min = true }]', "where[0].min: write a number"),
        ('where = [{ path = "a", max = nan }]', "where[0].max: write a number"),
        ('where = [{ path = "a", matches = 1 }]', "where[0].matches: write a pattern in quotes"),
        ('where = [{ path = "a", absent = false }]', "where[0].absent: write true, or leave it"),
        ('where = [{ path = "a", in = [1], equals = 1 }]', "it is one of `in` already"),
        ('where = [{ path = "a[*]", absent = true }]', "`absent` asks for one place"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, sentence: str) -> None:
    """Issue 4, rules: a fault is an error with its key, never a rule that silently does less."""
    assert sentence in problem(text)
    assert problem(text).startswith("policy.toml, rule 1 (line 1), ")


@pytest.mark.parametrize(
    "text",
    [
        'where = [{ path = "a", in = [] }]',
        'where = [{ path = "a", min = 2, max = 1 }]',
        'where = [{ path = "a", min = 2, matches = "*" }]',
        'where = [{ path = "a", in = [1, "x"], min = 2 }]',
        'where = [{ path = "a", equals = "x", matches = "y*" }]',
        'where = [{ path = "a", absent = true, equals = 1 }]',
        'where = [{ path = "a", equals = 1 }, { path = "a", equals = 2 }]',
        'where = [{ path = "a", equals = 1 }, { path = "a", absent = true }]',
        'where = [{ path = "a", absent = true }, { path = "a.b", equals = 1 }]',
        'where = [{ path = "a", min = 2 }, { path = "a", max = 1 }]',
        'where = [{ path = "a", matches = "x*" }, { path = "a", matches = "y*" }]',
        'where = [{ path = "a", matches = "x*" }, { path = "a", min = 1 }]',
        'where = [{ path = "a", in = [1, 2] }, { path = \'["a"]\', in = [3] }]',
        "when = { read_only = true, destructive = true }",
    ],
)
def test_a_rule_that_contradicts_itself_is_refused(text: str) -> None:
    """Issue 4, rules: a rule that can never match is an error."""
    assert "it can never match" in problem(f'tool = "git_*"\n{text}')


ABC = [
    ("", 'tool = "git_log"'),
    ('tool = "git_*"', 'tool = "git_log"'),
    ('tool = "git_*"', 'tool = "git_l?g*"'),
    ('tool = "*git_log**"', 'tool = "git_log"'),
    ('tool = "git_[a-z]*"', 'tool = "git_[lm]og"'),
    ('tool = ["git_*", "hg_*"]', 'tool = ["hg_log", "git_log"]'),
    ('origin = "mcp:*"', 'origin = "mcp:git"\ntool = "x"'),
    ('tool = "a"\nwhen = { read_only = true }', 'tool = "a"\nwhen = { read_only = true }'),
    (
        'tool = "a"\nwhen = { open_world = false }',
        'tool = "a"\nwhen = { open_world = false, read_only = true }\nconfined = true',
    ),
    ("confined = true", 'confined = "container:*"'),
    ('confined = "c*"', 'confined = "container:*"'),
    ("confined = false", "confined = false"),
    (
        'where = [{ path = "a", in = [1, 2, 3] }]',
        'where = [{ path = "a", in = [1, 3] }, { path = "b", equals = 1 }]',
    ),
    ('where = [{ path = "a", in = [1, 2] }]', 'where = [{ path = "a", equals = 2.0 }]'),
    ('where = [{ path = "a", matches = "x*" }]', 'where = [{ path = "a", equals = "xy" }]'),
    ('where = [{ path = "a", matches = "x*" }]', 'where = [{ path = "a", matches = "xy*" }]'),
    ('where = [{ path = "a", min = 1 }]', 'where = [{ path = "a", min = 2, max = 3 }]'),
    ('where = [{ path = "a", absent = true }]', 'where = [{ path = "a", absent = true }]'),
]


@pytest.mark.parametrize(("wide", "narrow"), ABC)
def test_a_rule_behind_one_that_takes_all_of_its_calls_is_refused(wide: str, narrow: str) -> None:
    """Issue 4, rules: shadowed rules are errors; the other way round both have their use."""
    pair = '[[rule]]\ndecide = "ask"\n{}\n[[rule]]\ndecide = "deny"\n{}\n'
    (found,) = problems(pair.format(wide, narrow))

    assert "rule 2" in found
    assert "rule 1 comes first and matches all that it does, and decides ask" in found
    if wide != narrow:
        assert len(Rules.parse(pair.format(narrow, wide))) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('tool = "git_*"', 'tool = ["git_log", "hg_log"]'),
        ('tool = "git_?og"', 'tool = "git_*"'),
        ('tool = "[a-c]"', 'tool = "[b-d]"'),
        ('tool = "[!a]"', 'tool = "?"'),
        ('tool = "a"\nwhen = { read_only = true }', 'tool = "a"'),
        ('tool = "a"\nwhen = { read_only = true }', 'tool = "a"\nwhen = { read_only = false }'),
        ("confined = true", "confined = false"),
        ('confined = "c"', "confined = true"),
        ("confined = false", 'confined = "c"'),
        ('where = [{ path = "a", in = [1] }]', 'where = [{ path = "a", in = [1, 2] }]'),
        ('where = [{ path = "a", equals = 1 }]', 'where = [{ path = "a", equals = true }]'),
        ('where = [{ path = "a", equals = 1 }]', 'where = [{ path = "b", equals = 1 }]'),
        ('where = [{ path = "a", min = 2 }]', 'where = [{ path = "a", min = 1 }]'),
        ('where = [{ path = "a", matches = "x*" }]', 'where = [{ path = "a", min = 1 }]'),
        ('where = [{ path = "a", absent = true }]', 'where = [{ path = "a", min = 1 }]'),
    ],
)
def test_a_rule_that_still_has_calls_of_its_own_is_kept(first: str, second: str) -> None:
    """Issue 4, rules: nothing is called dead that may live."""
    pair = f'[[rule]]\ndecide = "deny"\n{first}\n[[rule]]\ndecide = "deny"\n{second}\n'

    assert len(Rules.parse(pair)) == 2


@pytest.mark.parametrize("names", ["", 'tool = "*"', 'tool = ["x", "?*"]\norigin = "*?"'])
def test_se_12_a_rule_that_would_allow_by_hints_alone_is_refused(names: str) -> None:
    """AUT-3, SE-12: whoever writes a tool writes its hints."""
    text = f"{names}\nwhen = {{ read_only = true }}"

    assert "when: it would allow by hints alone" in problem(text)
    assert len(rule(text, "deny")) == len(rule(text, "ask")) == 1


@pytest.mark.parametrize(
    "named", ['tool = "git_*"', 'origin = "local"', 'where = [{ path = "a", equals = 1 }]']
)
def test_hints_may_narrow_what_something_else_names(named: str) -> None:
    """AUT-3: the operator named a tool, an origin or an argument."""
    assert len(rule(f"{named}\nwhen = {{ read_only = true }}")) == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "it has no rule; write [[rule]], and decide = "),
        ("[[rule", "it is not TOML: "),
        ("a = " + "[" * 100_000, "its values are nested too deep"),
        ("a = " + "1" * 5000, "it holds a number of more digits than can be read"),
        ("# é" + " " * (1 << 18), "it is over 262144 bytes"),
        ("a" + ".a" * 65 + " = 1", "line 1 has over 64 dots; break the line"),
        (("a" + ".a" * 60 + " = 1\n") * 200, "it has over 10000 dots"),
        ("rule = 1", "rule: write a list"),
        ("[rule]\ndecide = 'deny'", "rule: write a list"),
        ("[[rule]]\ndecide = 'deny'\n" * 251, "it has more than 250 rules"),
    ],
)
def test_a_text_that_is_no_policy_is_one_sentence(text: str, sentence: str) -> None:
    """Issue 4, bad input: bounded, and no exception but the declared one."""
    assert sentence in problems(text)[0]


def test_the_sentence_of_many_faults_is_short_and_counts_the_rest() -> None:
    """JSON-6: at most 1 KB; every fault is in `problems`."""
    with pytest.raises(InvalidPolicy) as caught:
        Rules.parse("[[rule]]\ndecide = 'no'\n" * 100, source="é" * 2000)

    assert len(caught.value.problems) == 100
    assert len(str(caught.value).encode()) <= 1024
    assert isinstance(caught.value, InvalidValue)
    with pytest.raises(InvalidPolicy, match=r"; and 8\d more$"):
        Rules.parse("[[rule]]\ndecide = 'no'\n" * 100)


def test_lines_are_told_only_where_they_can_be() -> None:
    """Issue 4, rules: a wrong line is worse than none."""
    inline = "rule = [{ decide = 'no' }]"
    quoted = "[['rule']]\ndecide = 'no'"
    in_text = "[[rule]]\ndecide = 'no'\nreason = '''\n[[rule]]\n'''"

    assert [problems(text)[0].partition(":")[0] for text in (inline, quoted, in_text)] == [
        "policy.toml, rule 1, decide",
        "policy.toml, rule 1 (line 1), decide",
        "policy.toml, rule 1, decide",
    ]


def test_a_policy_is_read_from_a_file(tmp_path: Path) -> None:
    """Issue 4, rules: `Rules.read`; a file that cannot be read is the same declared error."""
    (tmp_path / "policy.toml").write_text(ISSUE, encoding="utf-8")
    (tmp_path / "latin.toml").write_bytes("# é".encode("latin-1"))

    assert word(Rules.read(tmp_path / "policy.toml")(issue_call())) == "allow"
    for name, sentence in (
        ("none.toml", "none.toml: it cannot be read: no such file or directory"),
        (".", "it cannot be read: is a directory"),
        ("a\0b", "it cannot be read: no such path"),
        ("latin.toml", "latin.toml: it is not UTF-8"),
    ):
        with pytest.raises(InvalidPolicy, match=sentence):
            Rules.read(tmp_path / name)
    assert repr(Rules.parse(ISSUE, source="x\u202e.toml")) == "<Rules of x⟦U+202E⟧.toml: 1>"


# ---- patterns ------------------------------------------------------------------------------------

PIECES = st.sampled_from(["a", "b", "*", "?", "[ab]", "[!a]", "[a-b]", "[", "]", "!"])
TEXTS = ["".join(each) for size in range(4) for each in product("ab]!c[*?-", repeat=size)]


@settings(max_examples=300)
@given(st.lists(PIECES, min_size=1, max_size=5), st.lists(PIECES, min_size=1, max_size=5))
def test_patterns_are_compared_as_what_they_match(one: list[str], other: list[str]) -> None:
    """Issue 4, rules: `covers` is never wrong, `meets` never wrong either way."""
    try:
        a, b = Pattern.of("".join(one)), Pattern.of("".join(other))
    except InvalidValue:
        return
    matched_a = {text for text in TEXTS if fnmatchcase(text, a.text)}
    matched_b = {text for text in TEXTS if fnmatchcase(text, b.text)}

    assert matched_a == {text for text in TEXTS if a.matches(text)}
    assert matched_b <= matched_a or not a.covers(b)
    assert a.meets(b) or not matched_a & matched_b
    assert a.meets(b) is b.meets(a)
    shortest = sum(token is not None for pattern in (a, b) for token in pattern.tokens)
    assert not a.meets(b) or matched_a & matched_b or shortest > 3
    assert a.covers(a)


@pytest.mark.parametrize(
    ("text", "is_it"),
    [
        ("*", True),
        ("?*", True),
        ("**?", True),
        ("*a", False),
        ("?", False),
        ("??*", False),
        ("[!%]*", False),
    ],
)
def test_a_pattern_that_is_everything_is_known(text: str, is_it: bool) -> None:
    """AUT-3: so that no spelling of it hides that a rule names nothing."""
    assert Pattern.of(text).is_everything is is_it


@settings(max_examples=100)
@given(batches())
def test_two_readings_decide_alike(batch: list[tuple[str, list[Authorization]]]) -> None:
    """Issue 4, fuzz: no exception but `InvalidPolicy`, bounded memory (more in `make fuzz`)."""
    for text, calls in batch:
        assert not fault(text, calls)
    assert memory(batch[0][0]) <= 0


# ---- beside tools --------------------------------------------------------------------------------


@tool(read_only=True)
def git_log(count: int = 1) -> str:
    """Read the log."""
    return "a" * count


@tool(destructive=True, confinement=lambda arguments: str(arguments["where"]))
def git_push(where: str, refs: list[str]) -> str:
    """Send it away."""
    return f"{where}: {refs}"


def outlook(policy: str, what: RawTool | object) -> list[tuple[str, int | None, bool]]:
    """Return how calls of a tool may be decided."""
    binding = bind(what)  # type: ignore[arg-type]  # a FunctionTool of any signature
    found = Rules.parse(policy).outlook(binding)
    return [(one.decide, one.rule, one.certain) for one in found]


def test_what_a_policy_may_decide_is_known_beforehand() -> None:
    """Issue 4, `policy check`: certain where no argument matters, else all that may decide."""
    policy = """
        [[rule]]
        tool = "git_push"
        where = [{ path = "refs[*]", matches = "wip/*" }]
        decide = "allow"
        [[rule]]
        confined = "container:*"
        decide = "allow"
        [[rule]]
        when = { destructive = true }
        decide = "ask"
    """

    assert outlook(policy, git_log) == [("deny", None, True)]
    assert outlook(policy, git_push) == [
        ("allow", 1, False),
        ("allow", 2, False),
        ("ask", 3, True),
    ]
    confined = raw("x", lambda _, __: 1, confinement="container:x")
    assert outlook(policy, confined) == [("allow", 2, True)]
    first = Rules.parse(policy).outlook(bind(confined))[0]
    assert first == Outlook(decide="allow", rule=2, line=6, certain=True)


def warned(policy: str) -> list[str]:
    """Return the warnings of a policy beside two tools."""
    return Rules.parse(policy, source="p").warnings(Registry([git_log, git_push]))


def test_rules_for_tools_that_are_not_there_are_warned_of() -> None:
    """Issue 4, rules: unknown tools, with the nearest name; unknown origins; the two together."""
    found = warned("""
        [[rule]]
        tool = ["git_lgo", "git_push"]
        decide = "allow"
        [[rule]]
        tool = "hg_*"
        origin = "mcp:hg"
        decide = "allow"
    """)

    assert found == [
        "p, rule 1 (line 2), tool: no tool here is called `git_lgo`; did you mean `git_log`?",
        "p, rule 2 (line 5), tool: no tool here is called `hg_*`",
        "p, rule 2 (line 5), origin: no tool here comes from `mcp:hg`",
    ]
    both = Registry([git_log])
    both.register([echo()], origin="mcp:x")
    mixed = rule('tool = "git_log"\norigin = "mcp:x"')
    assert mixed.warnings(both) == [
        "policy, rule 1 (line 1): no tool here has such a name and such an origin"
    ]


def test_conditions_on_arguments_that_are_not_there_are_warned_of() -> None:
    """Issue 4, rules: a path that no tool of the rule takes; an open schema may take any."""
    policy = '[[rule]]\ntool = "git_*"\nwhere = [{ path = "ref[0]", equals = 1 }]\ndecide = "ask"'

    assert warned(policy) == [
        "p, rule 1 (line 1), where[0].path: no tool that the rule is for takes an argument `ref`"
    ]
    assert rule('where = [{ path = "x", equals = 1 }]').warnings(Registry([echo()])) == []


def test_a_denial_that_one_element_escapes_is_warned_of() -> None:
    """Issue 4, rules: [*] means every element, which is what an allowance wants."""
    policy = '[[rule]]\nwhere = [{{ path = "refs[*]", equals = "main" }}]\ndecide = "{}"'

    assert "escapes this denial" in warned(policy.format("deny"))[0]
    assert warned(policy.format("allow")) == []


@pytest.mark.parametrize(
    ("first", "second", "quarrel"),
    [
        ('tool = "git_*"|allow', 'tool = "*_push"|deny', True),
        ('tool = "git_*"|deny', 'tool = "*_push"|allow', True),
        ('tool = "git_*"|deny', 'tool = "*_push"|ask', False),
        ('tool = "git_*"|allow', 'tool = "*_push"|allow', False),
        ('tool = "git_*"|allow', 'tool = "*_pull"|deny', False),
        ('tool = "git_push"|allow', 'tool = "git_*"|deny', False),
        ("when = { destructive = true }|deny", 'tool = "git_*"|allow', False),
        ("when = { destructive = true }|ask", 'tool = "git_*"|allow', False),
        ('tool = "git_*"\nwhen = { read_only = true }|allow', 'tool = "*_push"|deny', False),
        (
            'where = [{ path = "where", equals = "a" }]|allow',
            'where = [{ path = "where", equals = "b" }]|deny',
            False,
        ),
        (
            'where = [{ path = "where", in = ["a", "c"] }]|allow',
            'where = [{ path = "where", in = ["b", "c"] }]|deny',
            True,
        ),
        ("confined = true|allow", "confined = false|deny", False),
        ('confined = "a*"|allow', 'confined = "*b"|deny', True),
    ],
)
def test_rules_that_decide_differently_about_the_same_calls_are_warned_of(
    first: str, second: str, quarrel: bool
) -> None:
    """Issue 4, rules: no warning for an exception before its rule, nor for caution first."""
    parts = [one.partition("|") for one in (first, second)]
    policy = "\n".join(f'[[rule]]\n{text}\ndecide = "{decide}"' for text, _, decide in parts)

    assert any("comes first and decides" in one for one in warned(policy)) is quarrel


async def test_a_policy_guards_a_registry() -> None:
    """AUT-2, AUT-6, AUT-8: allow, deny and ask as a permit, a denial and a request; then a run."""
    policy = Rules.parse("""
        [[rule]]
        tool = "git_push"
        where = [{ path = "refs[*]", matches = "wip/*" }]
        decide = "ask"
        [[rule]]
        tool = "git_push"
        decide = "deny"
        reason = "Only wip/ may be pushed."
        [[rule]]
        tool = "git_log"
        origin = "local"
        when = { read_only = true }
        decide = "allow"
    """)
    registry = Registry([git_log, git_push, echo()]).guarded(policy)
    calls = [
        ToolCall.of("git_log", {"count": 2}, id="1"),
        ToolCall.of("git_push", {"where": "o", "refs": ["wip/a", "main"]}, id="2"),
        ToolCall.of("git_push", {"where": "o", "refs": ["wip/a"]}, id="3"),
        ToolCall.of("echo", id="4"),
    ]

    log, main, wip, other = await Executor(registry).run(calls)

    assert (log.text, main.text) == ("aa", "Error: Only wip/ may be pushed.")
    assert isinstance(log, Completed)
    assert isinstance(main, Rejected)
    assert main.kind == "unauthorized"
    assert other.text == 'Error: tool "echo" is not authorized'
    assert isinstance(wip, Suspended)
    approval = wip.request.approval(answer=True, by="ann")
    (done,) = await Executor(registry).run([Leg(calls[2], approvals=(approval,))])
    assert done.text == "o: ['wip/a']"


async def test_a_binding_says_what_the_rules_decide() -> None:
    """AUT-6: `authorize` gives a permit, a denial or a request."""
    from_rule = {"allow": Permit, "deny": Deny, "ask": InputRequest}
    for decide, kind in from_rule.items():
        guarded = Registry([echo()]).guarded(rule("", decide)).resolve("echo")
        assert guarded is not None
        call = ToolCall.of("echo", {"a": 1})
        answer = await guarded.authorize(guarded.contract.admit(call), Context.of(call))
        assert isinstance(answer, kind)
