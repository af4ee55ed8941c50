"""Which commands may run without a question: rules that match whole lists of words."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ferrule import (
    Allow,
    Ask,
    Completed,
    Context,
    Deny,
    Executor,
    InvalidValue,
    Leg,
    Registry,
    Rejected,
    Result,
    Suspended,
    ToolCall,
    tool,
)
from ferrule.helpers import ANY, REST, CommandRule, commands, run_command

STATUS = CommandRule("git", "status")

OTHERS = [
    ["git status"],
    ["git status && rm -rf x"],
    ["git", "status && rm -rf x"],
    ["git", "status", "&&", "rm", "-rf", "x"],
    ["git", "status", "|", "sh"],
    ["git", "status", ">", "f"],
    ["git", "status", "$(id)"],
    ["git", "status\nrm x"],
    ["git", "status", "\n", "rm", "x"],
    ["X=1", "git", "status"],
    ["env", "X=1", "git", "status"],
    ["git", "-c", "core.pager=sh", "status"],
    ["git", "-C", "/elsewhere", "status"],
    ["git", "status", "; rm"],
    ["git", "status", ""],
    ["git"],
    ["git", ""],
    ["git", "Status"],
    ["git", "status "],
    ["git", "stat\u200bus"],
    ["git", "ѕtatus"],  # noqa: RUF001  # a Cyrillic letter that looks like ours
    ["./git", "status"],
    ["/tmp/git", "status"],
    ["sh", "-c", "git status"],
    [],
]


@pytest.mark.parametrize("argv", OTHERS, ids=ascii)
def test_se_14_nothing_but_the_very_command_of_a_rule_matches_it(argv: list[str]) -> None:
    """SE-14: chained, piped, redirected, substituted, prefixed or look-alike commands do not."""
    assert STATUS.matches(["git", "status"])
    assert not STATUS.matches(argv)


@pytest.mark.parametrize(
    ("rule", "argv", "matches"),
    [
        (CommandRule("git", "log", ANY), ["git", "log", "main"], True),
        (CommandRule("git", "log", ANY), ["git", "log"], False),
        (CommandRule("git", "log", ANY), ["git", "log", "a", "b"], False),
        (CommandRule("git", "log", ANY), ["git", "log", "--output=/etc/passwd"], False),
        (CommandRule("git", "log", ANY), ["git", "log", "-p"], False),
        (CommandRule("git", "log", ANY), ["git", "log", ""], False),
        (CommandRule("git", "log", ANY), ["git", "log", "a\nb"], False),
        (CommandRule("git", "log", ANY), ["git", "log", "a\x1b[2Jb"], False),
        (CommandRule("git", "log", ANY), ["git", "log", "a\u202eb"], False),
        (CommandRule("git", "log", ANY, "--stat"), ["git", "log", "main", "--stat"], True),
        (CommandRule("cat", REST), ["cat"], True),
        (CommandRule("cat", REST), ["cat", "a", "b", "c d"], True),
        (CommandRule("cat", REST), ["cat", "a", "--help"], False),
        (CommandRule("find", ".", REST), ["find", ".", "-exec", "rm", "x"], False),
        (CommandRule("./run.sh", "check"), ["./run.sh", "check"], True),
        (CommandRule("./run.sh", "check"), ["run.sh", "check"], False),
        (CommandRule("/opt/my app/run"), ["/opt/my app/run"], True),
    ],
    ids=ascii,
)
def test_se_14_what_a_rule_leaves_open_is_never_an_option(
    rule: CommandRule, argv: list[str], *, matches: bool
) -> None:
    """SE-14: an option can make a harmless command do something else."""
    assert rule.matches(argv) is matches


def test_a_rule_that_could_never_match_is_refused() -> None:
    """STYLE 23: a command as one text, something after the rest, a word that is no text."""
    with pytest.raises(InvalidValue, match=r'CommandRule\("git", "status"\)'):
        CommandRule("git status")
    with pytest.raises(InvalidValue, match="begins with the name"):
        CommandRule("")
    with pytest.raises(InvalidValue, match="begins with the name"):
        CommandRule(ANY)  # type: ignore[arg-type]  # no executable is any
    with pytest.raises(InvalidValue, match="REST stands last"):
        CommandRule("git", REST, "x")
    with pytest.raises(InvalidValue, match="texts, ANY and REST"):
        CommandRule("git", 5)  # type: ignore[arg-type]  # what a caller without types gives


def test_a_rule_is_a_value() -> None:
    """STYLE 11: equal by what it says, readable, and it does not change."""
    rule = CommandRule("git", "log", ANY, REST)
    assert {rule} == {CommandRule("git", "log", ANY, REST)} != {STATUS}
    assert rule != "git"
    assert repr(rule) == "CommandRule('git', 'log', ANY, REST)"
    with pytest.raises(AttributeError, match="does not change"):
        rule.words = ("rm",)


def asked(command: object, name: str = "command") -> Any:  # noqa: ANN401  # what is looked at of it
    """Return what an authorizer is asked about, as far as `commands` looks at it."""
    return SimpleNamespace(arguments={name: command})


def test_se_14_a_command_of_a_rule_is_allowed_and_any_other_is_asked_about() -> None:
    """SE-14, AUT-1: on the validated arguments; the person sees each word quoted and visible."""
    judge = commands([STATUS])
    assert judge(asked(["git", "status"])) == Allow()
    assert judge(asked(["git", "status", "; rm"])) == Ask(
        "May this command run?\ngit status '; rm'"
    )
    assert judge(asked(["sh", "-c", "a\n\tb\u202e\x1b[0m"])) == Ask(
        "May this command run?\nsh -c 'a⟦U+000A⟧⟦U+0009⟧b⟦U+202E⟧⟦U+001B⟧[0m'"
    )
    assert commands([STATUS], argument="argv")(asked(["git", "status"], "argv")) == Allow()
    assert isinstance(commands([])(asked(["git", "status"])), Ask)


def test_a_command_too_long_to_be_read_is_denied() -> None:
    """AUT-4: nobody is asked to approve what is not shown."""
    decision = commands([STATUS])(asked(["sh", "-c", "x" * 10_000]))
    assert isinstance(decision, Deny)
    assert "too long" in (decision.reason or "")


@pytest.mark.parametrize("command", [None, "git status", 5, {"a": 1}, ["git", 5]])
def test_an_authorizer_beside_another_tool_says_what_to_write(command: object) -> None:
    """STYLE 24: it judges nothing that it does not understand, and a text is not a list."""
    with pytest.raises(InvalidValue, match=r"commands\(rules, argument=…\)") as caught:
        commands([STATUS])(asked(command))
    assert "git status" not in str(caught.value)


def test_se_14_a_guarded_tool_runs_what_a_rule_allows_and_what_a_person_approved(
    tmp_path: Path,
) -> None:
    """SE-14, AUT-4, AUT-7: an approval is of the very command that was shown."""

    @tool
    async def shell(command: list[str], context: Context) -> Result:
        """Run a command."""
        return await run_command(command, cwd=tmp_path, context=context)

    executor = Executor(Registry([shell]).guarded(commands([CommandRule("echo", "ok")])))
    other = ToolCall.of("shell", {"command": ["touch", "made"]}, id="other")
    allowed, held = executor.run_sync([ToolCall.of("shell", {"command": ["echo", "ok"]}), other])
    assert allowed.text == "ok\n"
    assert isinstance(held, Suspended)
    assert held.request.message == "May this command run?\ntouch made"
    no = Leg(other, approvals=(held.request.approval(answer=False, by="ann"),), number=2)
    assert isinstance(executor.run_sync([no])[0], Rejected)
    yes = (held.request.approval(answer=True, by="ann"),)
    changed = ToolCall.of("shell", {"command": ["touch", "made", "more"]}, id="other")
    assert isinstance(executor.run_sync([Leg(changed, approvals=yes, number=2)])[0], Suspended)
    assert [*tmp_path.iterdir()] == []
    assert isinstance(executor.run_sync([Leg(other, approvals=yes, number=2)])[0], Completed)
    assert [file.name for file in tmp_path.iterdir()] == ["made"]
