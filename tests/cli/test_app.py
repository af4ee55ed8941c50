"""The command itself: help, version, what it loads, and what it needs."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint, version
from pathlib import Path

import pytest

from cli.command import ENDINGS, PATIENCE, Ferrule, Starts
from ferrule.cli import main

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def python(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh process."""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=False
    )


def test_help_says_what_the_commands_do(ferrule: Ferrule) -> None:
    """API, exit codes: help names every command and every code, on standard output."""
    done = ferrule("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for text in ("list ", "run ", "130  interrupted", "4    an outcome is unknown"):
        assert text in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("name", ["run", "list"])
def test_each_command_explains_itself(ferrule: Ferrule, name: str) -> None:
    """API: what TOOLS may be is said where it is needed."""
    done = ferrule(name, "--help")
    assert done.returncode == 0
    assert "TOOLS" in done.stdout
    assert "`module:name`" in done.stdout


def test_version_is_the_packages(ferrule: Ferrule) -> None:
    """API: `ferrule --version`."""
    assert ferrule("--version").stdout == f"ferrule {version('ferrule')}\n"


def test_the_entry_point_is_the_same_command() -> None:
    """API: `ferrule` and `python -m ferrule` are one."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    script = EntryPoint("ferrule", project["scripts"]["ferrule"], "console_scripts")
    assert script.load() is main


def test_help_loads_no_command() -> None:
    """ARCHITECTURE rule 8, performance: a command's file is loaded when it is called."""
    program = (
        "import sys\nfrom ferrule.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted({'rich', 'asyncio', 'ferrule.cli._run'} & set(sys.modules)), file=sys.stderr)"
    )
    assert python(program).stderr == "[]\n"


@pytest.mark.parametrize("library", ["click", "rich"])
def test_a_missing_library_is_named_with_its_extra(library: str) -> None:
    """ARCHITECTURE rule 5: one sentence, exit 2."""
    program = (
        f"import sys\nsys.modules['{library}'] = None\nfrom ferrule.cli import main\n"
        f"main(['list', {ENDINGS!r}])"
    )
    done = python(program)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ferrule: the command line needs more: pip install 'ferrule[cli]'\n"


def test_another_missing_library_is_not_blamed_on_the_extra() -> None:
    """ARCHITECTURE rule 5: a fault of ours is not hidden behind advice that does not help."""
    program = "import sys\nsys.modules['difflib'] = None\nfrom ferrule.cli import main\nmain([])"
    done = python(program)
    assert "difflib" in done.stderr
    assert "ferrule[cli]" not in done.stderr


@pytest.mark.parametrize(("name", "hint"), [("lisst", "did you mean `list`?"), ("zzz", "`run`")])
def test_an_unknown_command_is_answered_with_the_nearest(
    ferrule: Ferrule, name: str, hint: str
) -> None:
    """CL-04: exit 2, naming the nearest."""
    done = ferrule(name)
    assert done.returncode == 2
    assert hint in done.stderr


def test_an_unknown_option_before_the_command_runs_nothing(ferrule: Ferrule) -> None:
    """CL-04: a misspelt flag is never passed over."""
    done = ferrule("--dryrun", "list", ENDINGS)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--dryrun" in done.stderr


def test_a_reader_that_went_away_is_no_error(starts: Starts) -> None:
    """CL-03: output piped to `head` ends without a traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    with starts("list", ENDINGS, stdout=writer) as process:
        os.close(writer)
        _, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, error) == (0, "")


def test_a_closed_standard_output_is_refused() -> None:
    """API: a result that cannot be written anywhere is not produced."""
    program = (
        "import os, sys\nos.close(1)\nsys.stdout = None\nfrom ferrule.cli import main\n"
        f"main(['list', {ENDINGS!r}])"
    )
    done = python(program)
    assert done.returncode == 2
    assert "must both be open" in done.stderr
