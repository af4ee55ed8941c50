"""
What users' type checkers see: the samples in `tests/typing`, read by mypy and basedpyright.

A sample states types with `assert_type`. A line of misuse ends with `# error: FRAGMENT`: both
checkers must report that line, with FRAGMENT in their message or rule; `A | B` allows each its own
words. Whatever else a checker reports is a failure, so a sample is also what is right.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[1]
SAMPLES = sorted((ROOT / "tests" / "typing").glob("*.py"))
MISUSE = re.compile(r"# error: (.+)$")


class Report(msgspec.Struct, frozen=True):
    """One error that a checker found: where, and its message with the rule."""

    file: str
    line: int
    text: str


def mypy(files: list[Path]) -> list[Report]:
    """Return what mypy --strict says, errors alone."""
    lines = check("mypy", "--strict", "--output", "json", *map(str, files)).splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [
        Report(Path(entry["file"]).name, entry["line"], f"{entry['message']} [{entry['code']}]")
        for entry in found
        if entry["severity"] == "error"
    ]


def basedpyright(files: list[Path]) -> list[Report]:
    """Return what basedpyright says in strict mode, warnings too."""
    said = check("basedpyright", "--outputjson", "--pythonpath", sys.executable, *map(str, files))
    return [
        Report(
            file=Path(entry["file"]).name,
            line=entry["range"]["start"]["line"] + 1,
            text=f"{entry['message']} [{entry.get('rule', '')}]",
        )
        for entry in json.loads(said)["generalDiagnostics"]
    ]


def check(*command: str) -> str:
    """Return what a checker prints, from the root, where its configuration is."""
    run = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode in {0, 1}, f"{command[0]} could not work: {run.stdout}{run.stderr}"
    return run.stdout


def surprises(files: list[Path], reports: list[Report]) -> list[str]:
    """Return what was reported and not expected, and what was expected and not reported."""
    expected = {
        (file.name, number): marked[1].split(" | ")
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if (marked := MISUSE.search(line))
    }
    met = {
        (report.file, report.line)
        for report in reports
        if any(word in report.text for word in expected.get((report.file, report.line), []))
    }
    unmet = [f"{file}:{line}: no such error" for file, line in sorted(expected.keys() - met)]
    unforeseen = [report for report in reports if (report.file, report.line) not in met]
    return unmet + [f"{report.file}:{report.line}: {report.text}" for report in unforeseen]


@pytest.mark.parametrize("checker", [mypy, basedpyright])
def test_the_samples_are_right_and_their_misuse_is_an_error(
    checker: Callable[[list[Path]], list[Report]],
) -> None:
    """STYLE rule 29: both checkers, strict, read the same types and refuse the same lines."""
    found = surprises(SAMPLES, checker(SAMPLES))
    assert not found, "\n".join(["", *found])


@pytest.mark.parametrize(
    ("line", "reported", "count"),
    [
        ("f(1)", None, 0),
        ("f(1)", "arg-type", 1),
        ("f(1)  # error: arg-type", None, 1),
        ("f(1)  # error: arg-type", "bad [call-arg]", 2),
        ("f(1)  # error: arg-type | call-arg", "bad [call-arg]", 0),
    ],
)
def test_a_line_is_as_wrong_as_it_says(
    line: str, reported: str | None, count: int, tmp_path: Path
) -> None:
    """STYLE rule 28: an error too many and an error too few are both found."""
    sample = tmp_path / "sample.py"
    sample.write_text(line, encoding="utf-8")
    reports = [Report("sample.py", 1, reported)] if reported else []
    assert len(surprises([sample], reports)) == count


@pytest.mark.parametrize("checker", [mypy, basedpyright])
def test_a_checker_reports_a_wrong_type(
    checker: Callable[[list[Path]], list[Report]], tmp_path: Path
) -> None:
    """STYLE rule 28: the harness hears what the checkers say."""
    sample = tmp_path / "wrong.py"
    sample.write_text("number: int = 'text'\n", encoding="utf-8")
    assert [(report.file, report.line) for report in checker([sample])] == [("wrong.py", 1)]
