"""`ferrule call`: from flags and JSON to one call, and what of it stands on which stream."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cli.command import ESCAPES, PATIENCE, Ferrule, Starts, read_until
from ferrule.cli._flags import flags_of, typed
from ferrule.cli._refused import Refused

CALLED = str(Path(__file__).with_name("tools_called.py"))
FAKE = str(Path(__file__).parents[1] / "mcp" / "fake.py")

SCALARS: dict[str, Any] = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "ratio": {"type": "number"},
    "on": {"type": "boolean"},
    "no_cache": {"type": "boolean"},
    "maybe": {"type": ["integer", "null"]},
    "perhaps": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
    "either": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    "color": {"enum": ["red", "blue"]},
    "size": {"$ref": "#/$defs/Size"},
    "fixed": {"anyOf": [{"const": "a"}, {"const": True}, {"const": None}]},
    "whole": {"allOf": [{"$ref": "#/$defs/Size"}]},
    "max_count": {"type": "integer"},
    "maxDepth": {"type": "integer"},
    "two": {"type": ["string", "integer"]},
    "any": {},
    "never": False,
    "items": {"type": "array", "items": {"type": "string"}},
    "loop": {"$ref": "#/properties/loop"},
    "far": {"$ref": "http://nowhere.example/"},
    "a=b": {"type": "string"},
    "-c": {"type": "string"},
    "d e": {"type": "string"},
    "x_y": {"type": "string"},
    "x-y": {"type": "string"},
}
SCHEMA = {
    "type": "object",
    "properties": SCALARS,
    "required": ["text"],
    "$defs": {"Size": {"enum": [1, 2, "2", "big", None]}},
}
FLAGS = flags_of(SCHEMA)


def arguments(*words: str) -> str:
    """Return the arguments that words on the command line make."""
    return typed(words, FLAGS, "told").arguments()


ARGUMENTS = [
    ([], "{}"),
    (["--text", "hi"], '{"text":"hi"}'),
    (["--text=hi"], '{"text":"hi"}'),
    (["--text", ""], '{"text":""}'),
    (["--text", "5"], '{"text":"5"}'),
    (["--text", "null"], '{"text":"null"}'),
    (["--text", "-5 °"], '{"text":"-5 °"}'),
    (["--text=--x=1"], '{"text":"--x=1"}'),
    (["--text=-"], '{"text":"-"}'),
    (["--text", 'a "b"\n'], '{"text":"a \\"b\\"\\n"}'),
    (["--count", "3"], '{"count":3}'),
    (["--count", "-3"], '{"count":-3}'),
    (["--count", "+5"], '{"count":5}'),
    (["--count", "007"], '{"count":7}'),
    (["--count", "-000"], '{"count":-0}'),
    (["--count", "1e3"], '{"count":1e3}'),
    (["--count", "1.5"], '{"count":1.5}'),
    (["--count", str(2**60 + 1)], f'{{"count":{2**60 + 1}}}'),
    (["--count", str(2**80)], f'{{"count":{2**80}}}'),
    (["--ratio", "1E-5"], '{"ratio":1E-5}'),
    (["--ratio", "0.10"], '{"ratio":0.10}'),
    (["--on"], '{"on":true}'),
    (["--no-on"], '{"on":false}'),
    (["--on=no"], '{"on":false}'),
    (["--on=True"], '{"on":true}'),
    (["--no-cache"], '{"no_cache":true}'),
    (["--no-no-cache"], '{"no_cache":false}'),
    (["--maybe", "null"], '{"maybe":null}'),
    (["--maybe", "4"], '{"maybe":4}'),
    (["--perhaps", "2026-12-01"], '{"perhaps":"2026-12-01"}'),
    (["--either", "2.5"], '{"either":2.5}'),
    (["--color", "blue"], '{"color":"blue"}'),
    (["--size", "1"], '{"size":1}'),
    (["--size", "2"], '{"size":"2"}'),
    (["--size", "null"], '{"size":null}'),
    (["--whole", "big"], '{"whole":"big"}'),
    (["--fixed", "true"], '{"fixed":true}'),
    (["--max-count", "3"], '{"max_count":3}'),
    (["--max_count=3"], '{"max_count":3}'),
    (["--x-y", "1", "--x_y", "2"], '{"x-y":"1","x_y":"2"}'),
    (['{"text": 1.0,  "n":[ ]}'], '{"text": 1.0,  "n":[ ]}'),
    (['{"n": 1.0} ', "--text", "a"], '{"n": 1.0,"text":"a"}'),
    (["--text", "a", "{ }"], '{ "text":"a"}'),
    (["--text", "a", "--", '{"n":1}'], '{"n":1,"text":"a"}'),
    (['{"n":1,"n":2}', "--text", "a"], '{"n":1,"n":2}'),
    (["[1]", "--text", "a"], "[1]"),
]


@pytest.mark.parametrize(("words", "text"), ARGUMENTS)
def test_flags_are_the_json_that_a_model_would_send(words: list[str], text: str) -> None:
    """AT-150 to AT-155, JSON-2, JSON-5: by declared type, digits as typed, JSON as written."""
    assert arguments(*words) == text


REFUSED = [
    (["--text"], "--text needs a value"),
    (["--text", "--on"], "--text needs a value; if it is --on, write --text=…"),
    (["--text", "-"], "--text needs a value; if it is -, write --text=…"),
    (["--text", "a", "--text", "a"], "--text is given more than once"),
    (["--on", "--no-on"], "--on is given more than once"),
    (["--max-count", "1", "--max_count", "2"], "--max_count is given more than once"),
    (['{"text": "a"}', "--text", "a"], "`text` is given by its flag and in JSON"),
    (["--count", "x"], "--count takes a whole number"),
    (["--count", "NaN"], "--count takes a whole number"),
    (["--count", "1_000"], "--count takes a whole number"),
    (["--count", "٣"], "--count takes a whole number"),
    (["--count", "null"], "--count takes a whole number"),
    (["--ratio", "inf"], "--ratio takes a number"),
    (["--ratio", "NaN"], "--ratio takes a number"),
    (["--ratio", "1e400"], "--ratio is beyond what a number of JSON may be"),
    (["--ratio", "9" * 400], "--ratio is beyond what a number of JSON may be"),
    (["--on=maybe"], "--on is yes or no: write --on or --no-on"),
    (["--no-on=true"], "--no-on takes no value"),
    (["--no-text"], "has no flag --no-text"),
    (["--color", "blu"], "--color takes red or blue; did you mean blue?"),
    (["--maxcount", "1"], "`told` has no flag --maxcount; did you mean --max_count?"),
    (["--max-depth", "1"], "did you mean --maxDepth?"),
    (["--zzz", "1"], "`told` has no flag --zzz; it has --text, --count"),
    (["--x.y", "1"], "`told` has no flag --x.y; did you mean"),
    (["--items", "a"], "`items` has no flag: give it in the JSON argument, as in '{\"items\": …}'"),
    (["--two", "a"], "`two` has no flag"),
    (["--any", "a"], "`any` has no flag"),
    (["--never", "a"], "`never` has no flag"),
    (["--loop", "a"], "`loop` has no flag"),
    (["--far", "a"], "`far` has no flag"),
    (["--d e", "a"], "`d e` has no flag"),
    (["-c", "a"], "`-c` is no flag: a flag begins with two hyphens"),
    (["-5"], "`-5` is no flag"),
    (["hello"], "`hello` is not understood; arguments are given as a flag"),
    (["{}", "{}"], "there is one JSON argument"),
    (["--text", "\udcff"], "the value of --text is not UTF-8"),
    (['{"a": "\udcff"}'], "the JSON argument is not UTF-8"),
    (["--\x1b[31m", "1"], "no flag --⟦U+001B⟧[31m"),
]


@pytest.mark.parametrize(("words", "sentence"), REFUSED)
def test_what_is_no_argument_is_refused_in_a_sentence(words: list[str], sentence: str) -> None:
    """CL-04, AT-152 to AT-155: the flag is named, the nearest too, and how JSON says it."""
    with pytest.raises(Refused) as caught:
        arguments(*words)
    assert sentence in caught.value.message
    assert caught.value.code == 2


def test_a_flag_that_could_be_two_is_refused() -> None:
    """STYLE 10: hyphens and underscores are alike, unless the tool has both."""
    flags = flags_of({"properties": {"a_b_c": {"type": "string"}, "a-b-c": {"type": "string"}}})
    with pytest.raises(Refused, match="may be --a_b_c or --a-b-c"):
        typed(["--a-b_c", "1"], flags, "t")


# ---- the command ---------------------------------------------------------------------------------


def test_flags_and_json_make_one_call(ferrule: Ferrule) -> None:
    """API, call: the structured result is JSON on standard output, and nothing else anywhere."""
    words = ["--text", "hi", "--max-count", "3", "--ratio", "1e3", "--loud", "--color=blue"]
    done = ferrule("call", CALLED, "told", *words, "--until", "2026-12-01", '{"tags": ["a"]}')

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "text": "hi", "max_count": 3, "ratio": 1000.0, "color": "blue", "size": 1,
        "until": "2026-12-01", "tags": ["a"], "loud": True,
    }  # fmt: skip


def test_json_comes_from_standard_input(ferrule: Ferrule) -> None:
    """AT-150: `-` is standard input, beside flags too."""
    done = ferrule("call", CALLED, "add", "-", "--b", "40", stdin='{"a": 2}\n')

    assert (done.returncode, done.stdout) == (0, "42\n")


OUTPUTS = [
    (["lines", "--text", "as it is"], "as it is\n"),
    (["lines", "--text", "ends itself\n"], "ends itself\n"),
    (["lines", "--text", "\x1b[31mé\u202e"], "\x1b[31mé\u202e\n"),
    (["lines", "--text", ""], ""),
    (["blocks"], "one\n[image/png, 4 B]\ntwo\n"),
    (["nothing"], ""),
    (["exact"], '{"n": 1.0,  "big": 1208925819614629174706176}\n'),
    (["add", "--a", str(2**60)], f"{2**60 + 1}\n"),
    (["add", '{"a": -5}', "--b=0"], "-5\n"),
    (["add", "--b", "2", "--", '{"a": 1}'], "3\n"),
    (["big", "--n", str(2**80)], f"{2**80}\n"),
    (["owned", "--json", "a", "--help", "b", "--no-cache"], "a b True\n"),
]


@pytest.mark.parametrize(("words", "output"), OUTPUTS, ids=[" ".join(w)[:20] for w, _ in OUTPUTS])
def test_a_result_stands_alone_on_standard_output(
    words: list[str], output: str, ferrule: Ferrule
) -> None:
    """API, call; AT-150, AT-162: text as it is, with one line feed at its end; JSON as it is."""
    done = ferrule("call", CALLED, *words)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == output


ENDINGS = [
    (["add", "--b", "3"], 1, "ferrule: add: missing --a; see ferrule call "),
    (["add", "--a", "1.5"], 1, "ferrule: add: --a: expected integer"),
    (["add", "--a", "1", "--b", "-1"], 1, "ferrule: add: --b: expected "),
    (["pack"], 1, 'ferrule: pack: missing "items" (in JSON), --into; see ferrule call '),
    (["add", "--", "--a"], 2, "`--a` is no flag here: after -- comes the JSON argument"),
    (["add", "--a", str(2**80)], 1, "--a: expected an integer within 64 bits"),
    (["add", '{"a": 1, "c": 2}'], 1, "c"),
    (["add", '{"a": 1, "a": 2}'], 1, "invalid json"),
    (["add", "[1]"], 1, "expected a JSON object"),
    (["breaks"], 4, "it may have taken effect (reference "),
    (["draft", "--subject", "it"], 3, "needs an answer: Send it? as "),
    (["add", "--a", "x"], 2, "ferrule: --a takes a whole number"),
    (["ad", "--a", "1"], 2, "ferrule: there is no tool `ad`; did you mean `add`?"),
    (["--json", "add"], 2, "ferrule: NAME says which tool, right after TOOLS"),
    ([], 2, "ferrule: NAME says which tool"),
]


@pytest.mark.parametrize(("words", "code", "sentence"), ENDINGS)
def test_what_gives_no_result_says_why_on_standard_error(
    words: list[str], code: int, sentence: str, ferrule: Ferrule
) -> None:
    """API, exit codes: 1, 2, 3, 4; problems by the names of their flags."""
    done = ferrule("call", CALLED, *words)

    assert (done.returncode, done.stdout) == (code, "")
    assert sentence in done.stderr
    assert "a private sentence" not in done.stdout


def test_a_guard_that_asks_ends_the_command(ferrule: Ferrule) -> None:
    """AUT-7, API exit codes: 3, with what is asked, as `ferrule run` says it."""
    done = ferrule("call", f"{CALLED}:guarded_add", "add", "--a", "1")

    assert (done.returncode, done.stdout) == (3, "")
    assert 'needs an answer: May add run? as {"type": "boolean"}' in done.stderr


def test_a_failure_is_told_whole_and_visibly(ferrule: Ferrule) -> None:
    """FAIL-1: one line that is short, then all of it; nothing in it acts on the terminal."""
    done = ferrule("call", CALLED, "fails")

    assert (done.returncode, done.stdout) == (1, "")
    first, *rest = done.stderr.splitlines()
    assert first.startswith("✗ 1 fails failed")
    assert rest[0] == "the file is locked"
    assert rest[1].startswith("by ⟦U+001B⟧[31msomebody else")
    assert "Error: " not in done.stderr


def test_for_programs_the_output_is_as_run_writes_it(ferrule: Ferrule) -> None:
    """API, call --json: one item of a response, before TOOLS and after NAME alike."""
    before = ferrule("call", "--json", CALLED, "add", "--a", "1")
    after = ferrule("call", CALLED, "add", "--a", "1", "--json")
    failed = ferrule("call", CALLED, "fails", "--json")
    [item] = json.loads(before.stdout)

    assert (item["type"], item["output"]) == ("function_call_output", "2")
    assert before.stdout.count("\n") == 1
    assert json.loads(after.stdout)[0]["output"] == "2"
    assert failed.returncode == 1
    assert json.loads(failed.stdout)[0]["output"].startswith("Error: the file is locked")


def test_a_tool_explains_itself(ferrule: Ferrule) -> None:
    """API, call: what each flag takes, what may be left out, and what is given in JSON."""
    done = ferrule("call", CALLED, "told", "--help")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]

    assert (done.returncode, done.stderr) == (0, "")
    assert lines[0].startswith("Usage: ferrule call ")
    for line in (
        "Tell what was given.",
        "--text TEXT required; What is told.",
        "--max_count INTEGER default 10; How often, at most.",
        "--ratio NUMBER default 0.5",
        "--loud / --no-loud default false",
        '--color [red|blue] default "red"',
        "--size [1|2|big] default 1",
        "--until TEXT (date)",
        "Parameters that are given in JSON:",
        "tags array of string default []; Labels.",
        "-h, --help Show this, and call nothing.",
    ):
        assert line in lines


def test_help_that_is_a_parameter_is_no_help(ferrule: Ferrule) -> None:
    """AT-162: the tool's own come first; `-h` and what stands before TOOLS are always ours."""
    explained = ferrule("call", CALLED, "owned", "-h")
    general = ferrule("call", "--help")

    assert "--json (before TOOLS)" in explained.stdout
    assert "--help TEXT" in explained.stdout
    assert "Usage: ferrule call [--json] TOOLS NAME" in general.stdout
    assert explained.returncode == general.returncode == 0


def test_progress_is_told_on_standard_error(ferrule: Ferrule) -> None:
    """EXE-8: as a line where it is no terminal; neither a beginning nor an end is told."""
    done = ferrule("call", CALLED, "steps")

    assert done.stdout == "done\n"
    assert done.stderr == ". 1 steps 3/10 counting\n"


def test_ctrl_c_stops_the_call_and_says_so(starts: Starts, tmp_path: Path) -> None:
    """EXE-6, API exit codes: 130, and what is known of the call."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with starts("call", CALLED, "waits", "--path", str(pipe)) as process:
        assert pipe.read_text() == "x"
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=PATIENCE)

    assert (process.returncode, out) == (130, "")
    assert "stopping; Ctrl-C again leaves at once" in error
    assert 'tool "waits" was stopped; it may have taken effect' in error
    assert "Traceback" not in error


def test_ctrl_c_while_standard_input_is_read_is_no_traceback(starts: Starts) -> None:
    """API, exit codes: 130, at any time."""
    with starts("call", CALLED, "add", "-", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(" " * 200_000)  # More than a pipe holds: what is written was read.
        process.stdin.flush()
        while process.returncode is None:  # One that comes between two reads is seen by neither.
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)
        assert process.stderr is not None
        assert process.stderr.read().strip() == "ferrule: interrupted"
    assert process.returncode == 130


def test_on_a_terminal_a_bar_is_shown_and_nothing_acts(
    starts: Starts, terminal: tuple[int, int], tmp_path: Path
) -> None:
    """Terminal: a bar while it runs; text that a person reads is made visible."""
    ours, theirs = terminal
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with starts("call", CALLED, "waits", "--path", str(pipe), stderr=theirs) as process:
        assert pipe.read_text() == "x"
        assert "1/2 half" in ESCAPES.sub("", read_until(ours, "1/2 half"))
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
    with starts("call", CALLED, "lines", "--text", "\x1b[31mred", stdout=theirs) as process:
        process.wait(PATIENCE)

    with starts("call", CALLED, "add", "--a", "1", stderr=theirs) as process:
        process.wait(PATIENCE)
    os.write(theirs, b"the end")

    shown = ESCAPES.sub("", read_until(ours, "the end"))
    assert "⟦U+001B⟧[31mred" in shown
    assert "✓" not in shown


def test_a_tool_of_a_server_is_called_as_any_other(ferrule: Ferrule) -> None:
    """API, TOOLS: a command in quotes; its arguments are checked here before they are sent."""
    server = f"{sys.executable} {FAKE} odd"
    done = ferrule("call", server, "fine")
    refused = ferrule("call", server, "untyped", "--x", "1.5")

    assert (done.returncode, done.stdout) == (0, "fine\n")
    assert "`no type` of mcp:" in done.stderr
    assert "give it another with `rename`" in done.stderr
    assert refused.returncode == 1
    assert "ferrule: untyped: --x: expected integer" in refused.stderr
