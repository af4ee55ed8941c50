"""`ferrule diff` and `ferrule list --digest`: who a tool is, and what changed."""

import json
from pathlib import Path

import pytest

from cli.command import ENDINGS, Ferrule

TOOLS = """
from ferrule import tool

@tool
def seek(text: str, limit: int = 3) -> str:
    \"\"\"Find a text.\"\"\"
    return text
"""


def test_a_file_of_definitions_and_the_tools_themselves_are_compared_alike(
    ferrule: Ferrule, tmp_path: Path
) -> None:
    """DEF-3, `diff`: what `list --format json` wrote is the same as what it was made from."""
    (tmp_path / "old.json").write_text(ferrule("list", ENDINGS, "--format", "json").stdout)
    done = ferrule("diff", "old.json", ENDINGS)

    assert (done.returncode, done.stdout, done.stderr) == (0, "nothing changed\n", "")


def test_each_change_is_named_with_its_kind(ferrule: Ferrule, tmp_path: Path) -> None:
    """DEF-3, `diff`: text, compatible, widened and breaking; added and removed tools."""
    (tmp_path / "old.py").write_text(TOOLS)
    changed = TOOLS.replace("limit: int = 3", "limit: float = 4").replace("a text.", "one.")
    changed += "\n@tool\ndef fresh() -> None:\n    pass\n"
    (tmp_path / "new.py").write_text(changed)

    assert ferrule("diff", "old.py", "new.py").stdout.splitlines() == [
        "widened     fresh  added",
        "text        seek   description",
        "widened     seek   input_schema.properties.limit.type",
        "compatible  seek   input_schema.properties.limit.default",
    ]
    assert json.loads(ferrule("diff", "new.py", "old.py", "--json").stdout)[0] == {
        "tool": "fresh",
        "path": "",
        "kind": "breaking",
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot read given.json"),
        ("{", "given.json holds no definitions of tools: not valid JSON"),
        ("[1]", "given.json holds no definitions of tools"),
        ('[{"name": "a b"}]', "the name of a tool is"),
        ('[{"name": "a"}, {"name": "a"}]', "names a tool twice"),
    ],
)
def test_a_file_that_holds_no_definitions_is_one_sentence(
    ferrule: Ferrule, tmp_path: Path, text: str | None, sentence: str
) -> None:
    """API, exit 2: the command line was not understood."""
    if text is not None:
        (tmp_path / "given.json").write_text(text)
    done = ferrule("diff", "given.json", ENDINGS)

    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_digests_are_one_line_a_tool(ferrule: Ferrule) -> None:
    """DEF-3, `list --digest`: name, digest, fingerprint; the same each time."""
    lines = [line.split() for line in ferrule("list", ENDINGS, "--digest").stdout.splitlines()]

    assert all(len(line) == 3 for line in lines)
    assert all(one.startswith("sha256:") and len(one) == 71 for line in lines for one in line[1:])
    assert lines == [
        line.split() for line in ferrule("list", ENDINGS, "--digest").stdout.splitlines()
    ]
    one = json.loads(ferrule("list", ENDINGS, lines[0][0], "--digest", "--format", "json").stdout)
    assert list(one.values()) == lines[0]


def test_digests_do_not_go_with_a_providers_format(ferrule: Ferrule) -> None:
    """API, exit 2."""
    done = ferrule("list", ENDINGS, "--digest", "--format", "openresponses")

    assert done.returncode == 2
    assert "--digest goes with a table or with JSON" in done.stderr
