"""`ferrule policy check`: what a policy decides, before anything runs."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from cli.command import ENDINGS, ESCAPES, PATIENCE, Ferrule, Starts, read_until

EXAMPLES = Path(__file__).parents[2] / "examples"
TOOLS = """
from ferrule import Registry, tool

@tool(read_only=True)
def look(path: str) -> str:
    return path

@tool
def send(to: list[str]) -> str:
    return "sent"

registry = Registry([look], origin="mcp:\\u202efiles")
registry.register([send], origin="local")
"""
POLICY = """
[[rule]]
tool = "look"
decide = "allow"

[[rule]]
tool = "send"
where = [{ path = "to[*]", matches = "*@example.com" }]
decide = "ask"
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder with two tools and a policy for them."""
    (tmp_path / "tools.py").write_text(TOOLS, encoding="utf-8")
    (tmp_path / "policy.toml").write_text(POLICY, encoding="utf-8")
    return tmp_path


@pytest.mark.usefixtures("files")
def test_each_tool_has_a_line_with_what_decides_it(ferrule: Ferrule) -> None:
    """Issue 4, `policy check`: sorted; decision, rule and line; nothing hides in an origin."""
    done = ferrule("policy", "check", "policy.toml", "tools.py")

    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(maxsplit=3) for line in done.stdout.splitlines()[2:]] == [
        ["look", "mcp:⟦U+202E⟧files", "allow", "rule 1, line 2"],
        ["send", "local", "depends", "on the arguments: ask (rule 2, line 6);"],
        ["else", "deny", "(no", "rule)"],
    ]


@pytest.mark.usefixtures("files")
def test_the_same_for_programs(ferrule: Ferrule) -> None:
    """Issue 4, `policy check --json`: one object per tool, on standard output alone."""
    done = ferrule("policy", "check", "policy.toml", "tools.py", "--json")

    look, send = json.loads(done.stdout)
    first = {"decide": "allow", "rule": 1, "line": 2, "certain": True}
    assert look == {
        "tool": "look",
        "origin": "mcp:\u202efiles",
        "decision": "allow",
        "rules": [first],
    }
    assert (send["decision"], send["rules"]) == (
        "depends",
        [
            {"decide": "ask", "rule": 2, "line": 6, "certain": False},
            {"decide": "deny", "rule": None, "line": None, "certain": True},
        ],
    )


def test_rules_that_agree_are_no_dependence(ferrule: Ferrule, files: Path) -> None:
    """Issue 4, `policy check`: where all that may decide say the same, it is decided."""
    (files / "policy.toml").write_text(POLICY.replace('"ask"', '"deny"'), encoding="utf-8")
    done = ferrule("policy", "check", "policy.toml", "tools.py", "--json")

    assert [one["decision"] for one in json.loads(done.stdout)] == ["allow", "deny"]


def test_warnings_go_to_standard_error_and_change_nothing(ferrule: Ferrule, files: Path) -> None:
    """Issue 4, rules: unknown tools and quarrels are warnings; exit 0."""
    more = '\n[[rule]]\ntool = "sedn"\ndecide = "allow"\n'
    (files / "policy.toml").write_text(POLICY + more, encoding="utf-8")
    done = ferrule("policy", "check", "policy.toml", "tools.py", "--json")

    assert done.returncode == 0
    assert len(json.loads(done.stdout)) == 2
    assert done.stderr == (
        "warning: policy.toml, rule 3 (line 11), tool: no tool here is called `sedn`; "
        "did you mean `send`?\n"
    )


def test_every_fault_of_a_policy_is_a_line(ferrule: Ferrule, files: Path) -> None:
    """API, exit 2: FILE is no policy, so the command line was not understood."""
    (files / "policy.toml").write_text(
        '[[rule]]\ntool = "a b"\ndecide = "no"\n"x\\u202Ey" = 1\n', encoding="utf-8"
    )
    done = ferrule("policy", "check", "policy.toml", "tools.py")

    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "policy.toml, rule 1 (line 1), tool",
        "policy.toml, rule 1 (line 1), decide",
        "policy.toml, rule 1 (line 1), x⟦U+202E⟧y",
        "ferrule",
    ]
    assert lines[-1].endswith("policy.toml has 3 faults and decides nothing until they are gone")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("check", "none.toml", ENDINGS), "none.toml: it cannot be read: no such file"),
        (("check", "policy.toml", "none.py"), "there is no file `none.py`"),
        (("check", "tools.py", "tools.py"), "tools.py: it is not TOML"),
        (("check", "policy.toml"), "Missing argument 'TOOLS'"),
        (("chek",), "No such command 'chek'"),
        ((), "check  Say what rules decide about each tool."),
    ],
)
@pytest.mark.usefixtures("files")
def test_what_is_not_understood_is_said(
    ferrule: Ferrule, arguments: tuple[str, ...], sentence: str
) -> None:
    """API, exit 2: a sentence on standard error, never a traceback."""
    done = ferrule("policy", *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr


def test_the_examples_policy_is_right(ferrule: Ferrule) -> None:
    """Issue 4: the policy of examples/workspace.py decides what its comments say, unwarned."""
    policy, tools = str(EXAMPLES / "policy.toml"), str(EXAMPLES / "workspace.py")
    done = ferrule("policy", "check", policy, tools, "--json")

    assert (done.returncode, done.stderr) == (0, "")
    found = {one["tool"]: (one["decision"], one["rules"]) for one in json.loads(done.stdout)}
    assert {name: decision for name, (decision, _) in found.items()} == {
        "plot": "allow",
        "query_database": "allow",
        "read_file": "allow",
        "run_command": "depends",
        "search_text": "allow",
        "write_file": "depends",
    }
    assert [one["decide"] for one in found["run_command"][1]] == ["allow", "ask"]
    assert [one["decide"] for one in found["write_file"][1]] == ["deny", "allow", "ask"]


@pytest.mark.usefixtures("files")
def test_a_table_on_a_terminal_has_colours_and_fits_it(
    starts: Starts, terminal: tuple[int, int]
) -> None:
    """Issue 4, `policy check`: as wide as the terminal, each decision in its colour."""
    ours, theirs = terminal
    with starts(
        "policy", "check", "policy.toml", "tools.py", stdout=theirs, stderr=subprocess.DEVNULL
    ) as process:
        os.close(theirs)
        shown = read_until(ours, "no such text")
        assert process.wait(PATIENCE) == 0
    assert "\x1b[32mallow" in shown
    assert "\u202e" not in shown
    assert max(len(line) for line in ESCAPES.sub("", shown).splitlines()) <= 80
