"""`ferrule run`: what it prints, what it answers, and what it refuses."""

import json
from pathlib import Path

import pytest

from cli.command import ENDINGS, Ferrule, WritesTurn
from ferrule.cli._refused import Refused
from ferrule.cli._turn import AUTO, read_turn

LOOK = ("look_back", {"hours_back": 2})


def outputs(text: str) -> list[object]:
    """Return what each item of the printed outputs says."""
    return [item["output"] for item in json.loads(text)]


CODES = [
    ([LOOK], 0),
    ([LOOK, "fails"], 1),
    ([("look_back", {"hours": 2})], 1),
    (["no_such_tool", LOOK], 1),
    ([("look_back", "{broken"), LOOK], 1),
    ([LOOK, "asks"], 3),
    (["fails", "asks"], 3),
    (["breaks", LOOK], 4),
    (["fails", "breaks", "asks"], 4),
]


@pytest.mark.parametrize(("calls", "code"), CODES)
def test_the_exit_code_says_what_became_of_the_calls(
    ferrule: Ferrule, turn: WritesTurn, calls: list[str | tuple[str, object]], code: int
) -> None:
    """API, exit codes: of several outcomes the first that occurs in 4, 3, 1, 0."""
    assert ferrule("run", ENDINGS, turn(*calls)).returncode == code


def test_every_call_gets_one_output_in_the_turns_order(ferrule: Ferrule, turn: WritesTurn) -> None:
    """EXE-1, WIRE-1: whatever the others do; a repeated id and broken JSON beside good calls."""
    done = ferrule("run", ENDINGS, turn("fails", LOOK, ("look_back", {"hours": 1}), "shows"))
    items = json.loads(done.stdout)
    assert [item["call_id"] for item in items] == ["c0", "c1", "c2", "c3"]
    assert {item["type"] for item in items} == {"function_call_output"}
    said = outputs(done.stdout)
    assert said[:2] == ["Error: The file is locked.", "looked back 2"]
    assert "hours_back" in str(said[2])
    assert [part["type"] for part in items[3]["output"]] == ["input_text", "input_image"]


def test_standard_output_holds_the_result_alone(ferrule: Ferrule, turn: WritesTurn) -> None:
    """API: everything else goes to standard error, what tools and their programs print too."""
    done = ferrule("run", ENDINGS, turn("prints", "breaks"))
    assert outputs(done.stdout)[0] == "printed"
    assert "printed to standard output\n" in done.stderr
    assert "written to descriptor one\n" in done.stderr


def test_json_is_one_line_for_programs(ferrule: Ferrule, turn: WritesTurn) -> None:
    """API: `--json` is the same outputs, compact; without it they are indented for people."""
    path = turn(LOOK)
    compact, indented = (ferrule("run", ENDINGS, path, *more).stdout for more in (["--json"], []))
    assert compact.count("\n") == 1
    assert indented.count("\n") > 1
    assert json.loads(compact) == json.loads(indented)


def test_a_turn_comes_from_standard_input_too(ferrule: Ferrule, turn: WritesTurn) -> None:
    """API: `-` in the place of TURN.json."""
    done = ferrule("run", ENDINGS, "-", stdin=Path(turn(LOOK)).read_text(encoding="utf-8"))
    assert outputs(done.stdout) == ["looked back 2"]


def test_a_call_that_waits_says_what_it_needs(ferrule: Ferrule, turn: WritesTurn) -> None:
    """WIRE-1: nothing is rendered while a call waits; the question is on standard error."""
    done = ferrule("run", ENDINGS, turn(LOOK, "asks"))
    assert (done.returncode, done.stdout) == (3, "")
    assert "asks (c1) needs an answer: Delete [bold]all[/bold]?⟦U+001B⟧[31m" in done.stderr
    assert '{"type": "boolean"}' in done.stderr


def test_the_operator_reads_what_the_model_does_not(ferrule: Ferrule, turn: WritesTurn) -> None:
    """FAIL-4: the private sentence, its type, file and line, under the model's reference."""
    done = ferrule("run", ENDINGS, turn("breaks"))
    (said,) = outputs(done.stdout)
    reference = str(said).partition("(reference ")[2].partition(")")[0]
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("! ")]
    assert reference
    assert reference in line
    assert "ValueError: a private sentence" in line
    assert "tools_endings.py, line " in line
    assert "private" not in done.stdout


def test_each_call_has_its_line_and_the_batch_its_total(ferrule: Ferrule, turn: WritesTurn) -> None:
    """API, plain lines: a line per outcome with sign and word, and a total; no escape codes."""
    done = ferrule("run", ENDINGS, turn(LOOK, "fails", ("look_back", {"hours": 1}), "shows"))
    lines = done.stderr.splitlines()
    ended = {line[0]: line for line in lines if line[0] in "✓✗⊘" and "shows" not in line}
    assert "look_back" in ended["✓"]
    assert "looked back 2" in ended["✓"]
    assert "The file is locked." in ended["✗"]
    assert "hours_back" in ended["⊘"]
    assert lines[-1].startswith("4 calls: 2 done, 1 failed, 1 refused (")
    assert "\x1b" not in done.stderr


def test_what_hides_in_a_result_is_made_visible(ferrule: Ferrule, turn: WritesTurn) -> None:
    """Terminal: control and direction characters do nothing on either stream, and lose nothing."""
    done = ferrule("run", ENDINGS, turn("shows"))
    assert "⟦U+202E⟧drawn⟦U+001B⟧]0;title⟦U+0007⟧ [image/png, 2.0 kB]" in done.stderr
    assert "\\u202edrawn\\u001b]0;title\\u0007" in done.stdout
    assert json.loads(done.stdout)[0]["output"][0]["text"] == "\u202edrawn\x1b]0;title\x07"


def test_a_huge_and_a_deep_call_are_refused_and_the_others_run(
    ferrule: Ferrule, turn: WritesTurn
) -> None:
    """JSON-3: 10 MB of arguments, or nested 100,000 deep, cost their own call alone."""
    huge = ("echo", {"text": "x" * 10_000_000})
    deep = ("echo", '{"text":' + "[" * 100_000 + "]" * 100_000 + "}")
    done = ferrule("run", ENDINGS, turn(huge, ("echo", {"text": "small"}), deep), "--json")
    said = [str(one) for one in outputs(done.stdout)]
    assert done.returncode == 1
    assert said[0].startswith("Error: too large")
    assert said[1] == "small"
    assert said[2].startswith("Error: too large")


BAD_TURNS = [
    ("", "turn.json is empty"),
    (" \n", "turn.json is empty"),
    ("{", "turn.json is not valid JSON at line 1, column 2"),
    ('{"output": [],\n "output": []}', "not valid JSON"),
    ('{"a":\n NaN}', "not valid JSON in $.a"),
    ("\ufeff{}", "not valid JSON"),
    ("[" * 1000 + "]" * 1000, "too large"),
    ("[]", "turn.json is no response"),
    ('"text"', "turn.json is no response"),
    ('{"error": {}}', "turn.json is no response"),
    ('{"output": {}}', "turn.json is no response"),
    ('{"output": []}', "turn.json is empty"),
    ('{"output": [1]}', "output[0] has no `type`"),
    ('{"output": [{"type": "function_call", "name": "x"}]}', "output[0].call_id"),
]


@pytest.mark.parametrize(("text", "says"), BAD_TURNS)
def test_a_turn_that_is_none_is_refused(tmp_path: Path, text: str, says: str) -> None:
    """Bad input: not JSON, not a response, or empty; the sentence says what and where."""
    path = tmp_path / "turn.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(Refused) as caught:
        read_turn(str(path), AUTO)
    assert says in caught.value.message


@pytest.mark.parametrize("text", ["", "{", '{"output": []}'])
def test_a_refused_turn_is_one_sentence_and_nothing_is_loaded(
    ferrule: Ferrule, tmp_path: Path, text: str
) -> None:
    """Bad input: on standard error, exit 2, no traceback, before the tools are touched."""
    (tmp_path / "turn.json").write_text(text, encoding="utf-8")
    (tmp_path / "tools.py").write_text("raise SystemExit('loaded')", encoding="utf-8")
    done = ferrule("run", "tools.py", "turn.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ferrule: turn.json is ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("path", ["missing.json", "."])
def test_a_turn_that_cannot_be_read_is_refused(ferrule: Ferrule, path: str) -> None:
    """Bad input: no such file, a folder."""
    done = ferrule("run", ENDINGS, path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"ferrule: cannot read {path}: ")


def test_a_turn_without_calls_is_done(ferrule: Ferrule, tmp_path: Path) -> None:
    """API, exit codes: a model that only answered asks for nothing."""
    text = '{"output": [{"type": "message", "role": "assistant", "content": []}]}'
    (tmp_path / "turn.json").write_text(text, encoding="utf-8")
    done = ferrule("run", ENDINGS, "turn.json", "--json")
    assert (done.returncode, done.stdout) == (0, "[]\n")
    assert done.stderr == "the response calls no function\n"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--max-parallel", "0"], "--max-parallel"),
        (["--max-paralel", "2"], "--max-parallel"),
        (["--in", "smoke-signals"], "openresponses"),
        (["extra"], "extra"),
    ],
)
def test_a_command_line_that_is_not_understood_runs_nothing(
    ferrule: Ferrule, turn: WritesTurn, more: list[str], says: str
) -> None:
    """CL-04: a usage error names the option and the nearest one; nothing is executed."""
    done = ferrule("run", ENDINGS, turn("prints"), *more)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "printed" not in done.stderr
