"""Ctrl-C: asked once, the calls stop and are reported; asked twice, the process ends."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from cli.command import ENDINGS, PATIENCE, Starts, WritesTurn


def read_until(process: subprocess.Popen[str], part: str) -> str:
    """Read standard error up to a line with `part` in it; what was read comes back."""
    assert process.stderr is not None
    read = ""
    for line in process.stderr:
        read += line
        if part in line:
            return read
    raise AssertionError(f"{part!r} never came: {read}")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_stops_the_calls_and_reports_them(
    starts: Starts, turn: WritesTurn, number: signal.Signals, code: int
) -> None:
    """EXE-6, CLO-2: running calls are cancelled, each call has one output, no traceback."""
    calls = turn("fails", "goes_on", "prints")
    with starts("run", ENDINGS, calls, "--json", "--max-parallel", "1") as process:
        error = read_until(process, "counting")
        process.send_signal(number)
        out, rest = process.communicate(timeout=PATIENCE)
    error += rest
    assert process.returncode == code
    assert [item["output"] for item in json.loads(out)] == [
        "Error: The file is locked.",
        'Error: tool "goes_on" was stopped; it may have taken effect',
        'Error: tool "prints" did not run: cancelled',
    ]
    assert "3/10 counting [red]sheep[/red]⟦U+001B⟧[2J" in error
    assert "stopping; Ctrl-C again leaves at once" in error
    assert error.splitlines()[-1].startswith("3 calls: 1 failed, 1 stopped, 1 unknown (")
    assert "Traceback" not in error


def test_a_second_interruption_ends_the_process_at_once(starts: Starts, turn: WritesTurn) -> None:
    """EXE-6: a tool that does not let go does not hold the person at the terminal."""
    with starts("run", ENDINGS, turn("holds_on")) as process:
        read_until(process, "holding on")
        process.send_signal(signal.SIGINT)
        read_until(process, "stopping")
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, error) == (130, "", "")


def test_an_interruption_while_tools_are_loaded_is_no_traceback(
    starts: Starts, turn: WritesTurn, tmp_path: Path
) -> None:
    """API, exit codes: 130 at any time."""
    os.mkfifo(tmp_path / "pipe")
    module = "print('loading', flush=True)\nopen('pipe').read()\n"
    (tmp_path / "slow.py").write_text(module, encoding="utf-8")
    with starts("run", "slow.py", turn("fails")) as process:
        read_until(process, "loading")
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert error.strip() == "ferrule: interrupted"
