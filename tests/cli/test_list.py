"""`ferrule list`: the tools for people, for programs, and for a request."""

import json
from pathlib import Path

import pytest

from cli.command import ENDINGS, Ferrule

HOSTILE = """
from ferrule import Definition, RawTool
schema = {"type": "object", "properties": {
    "\\x1b[31mred": {"type": "string"},
    "mode": {"enum": ["fast", "slow"], "default": "fast", "description": "[bold]How[/bold]."},
    "where": {"anyOf": [{"type": "string", "format": "uri"}, {"type": "null"}]},
    "rows": {"type": "array", "items": {"type": "object"}}, "odd": True}}
tools = [
    RawTool(Definition("a" * 128, "word " * 100 + ". More.", schema), lambda a, c: None),
    RawTool(Definition("b", "[red]Not red[/red]\\x1b[2J \\u202eturned"), lambda a, c: None),
]
"""


def test_the_table_says_what_there_is(ferrule: Ferrule) -> None:
    """API, `list`: name, hints, parameters and description of each tool, sorted by name."""
    done = ferrule("list", ENDINGS)
    assert (done.returncode, done.stderr) == (0, "")
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[2:] if line[:1].strip()}
    assert list(rows) == sorted(rows)
    assert len(rows) == 10
    assert "read only" in rows["look_back"]
    assert "hours_back" in rows["look_back"]
    assert "Look back." in rows["look_back"]
    assert "unstated" in rows["fails"]
    assert "text?" in rows["echo"]


def test_a_piped_table_has_eighty_columns_and_no_codes(ferrule: Ferrule, tmp_path: Path) -> None:
    """API, `list`: sane widths when piped, whatever the names are; nothing is interpreted."""
    (tmp_path / "hostile.py").write_text(HOSTILE, encoding="utf-8")
    written = ferrule("list", "hostile.py").stdout
    assert "word word" in written  # The longest name leaves room for what it means.
    for name in ("a" * 128, "b"):
        written += ferrule("list", "hostile.py", name).stdout
    assert max(map(len, written.splitlines())) <= 80
    assert not any(hidden in written for hidden in ("\x1b", "\u202e"))
    assert "[red]Not red[/red]⟦U+001B⟧[2J ⟦U+202E⟧turned" in written


def test_one_tool_is_told_in_full(ferrule: Ferrule, tmp_path: Path) -> None:
    """API, `list TOOLS NAME`: parameters with type, need and text."""
    done = ferrule("list", ENDINGS, "look_back")
    for text in ("Look back. In time.", "Look", "read only", "integer", "required", "How far"):
        assert text in done.stdout
    (tmp_path / "hostile.py").write_text(HOSTILE, encoding="utf-8")
    told = ferrule("list", "hostile.py", "a" * 128).stdout
    for text in ('"fast" | "slow"', "default", "string (uri)", "array of object", "[bold]How"):
        assert text in told


def test_json_is_the_definitions(ferrule: Ferrule) -> None:
    """API, `--format json`: what a model reads, and one definition for NAME."""
    every = json.loads(ferrule("list", ENDINGS, "--format", "json").stdout)
    one = json.loads(ferrule("list", ENDINGS, "look_back", "--format", "json").stdout)
    assert [definition["name"] for definition in every] == sorted(d["name"] for d in every)
    assert one in every
    assert one["input_schema"]["required"] == ["hours_back"]


def test_openresponses_is_the_tools_of_a_request(ferrule: Ferrule) -> None:
    """API, `--format openresponses`: ready for a request, losses on standard error if asked."""
    done = ferrule("list", ENDINGS, "--format", "openresponses", "--losses")
    tools = json.loads(done.stdout)
    assert {tool["type"] for tool in tools} == {"function"}
    assert done.stderr.startswith("loss: tools.look_back.title: ")
    one = ferrule("list", ENDINGS, "look_back", "--format", "openresponses")
    assert json.loads(one.stdout) in tools
    assert one.stderr == ""


def test_losses_are_those_of_a_format(ferrule: Ferrule) -> None:
    """API: a table loses nothing, so `--losses` asks for a format."""
    done = ferrule("list", ENDINGS, "--losses")
    assert done.returncode == 2
    assert "--format openresponses" in done.stderr


@pytest.mark.parametrize(("name", "hint"), [("look_bak", "look_back"), ("zzz", "ferrule list")])
def test_an_unknown_name_is_answered_with_the_nearest(
    ferrule: Ferrule, name: str, hint: str
) -> None:
    """STYLE 24: an error ends with what would fix it."""
    done = ferrule("list", ENDINGS, name)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no tool `{name}`" in done.stderr
    assert hint in done.stderr
