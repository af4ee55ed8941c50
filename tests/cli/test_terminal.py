"""What a person sees: bars on a terminal, plain lines elsewhere."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from cli.command import ENDINGS, ESCAPES, PATIENCE, Starts, WritesTurn, read_until

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
CODES = re.compile(r"(\x1b\[\??(\d*)(?:;\d+)*([a-zA-Z]))|(.)", re.DOTALL)


def screen(written: str) -> list[str]:
    """Return what a terminal shows after all that was written: the few codes that bars need."""
    lines: list[list[str]] = [[]]
    row = column = 0
    for code, count, letter, character in CODES.findall(written):
        if letter == "A":
            row = max(row - int(count or 1), 0)
        elif letter == "K":
            lines[row] = []
        elif character == "\r":
            column = 0
        elif character == "\n":
            row += 1
            lines += [[]] * (row == len(lines))
        elif not code:
            lines[row] += [" "] * (column - len(lines[row]))
            lines[row][column : column + 1] = character
            column += 1
    return ["".join(line).rstrip() for line in lines]


def run_on(
    terminal: tuple[int, int], starts: Starts, *arguments: str, pipe: Path, **env: str
) -> tuple[str, str, int]:
    """Run the command with standard error on a terminal; let its tool end once it is shown."""
    ours, theirs = terminal
    with starts(*arguments, stderr=theirs, env=env) as process:
        os.close(theirs)
        shown = read_until(ours, "seven of ten")
        pipe.write_text("released", encoding="utf-8")
        shown += read_until(ours, "no such text")
        assert process.stdout is not None
        return shown, process.stdout.read(), process.wait(PATIENCE)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """Return a pipe whose reader waits until somebody writes."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_running_call_has_a_bar_on_a_terminal(
    starts: Starts, turn: WritesTurn, terminal: tuple[int, int], pipe: Path
) -> None:
    """API, `run`: a bar with progress, total and message, a total line, a line per outcome."""
    calls = turn(("waits_for_file", {"text": str(pipe)}), "fails", "breaks")
    shown, out, code = run_on(terminal, starts, "run", ENDINGS, calls, pipe=pipe)
    text = ESCAPES.sub("", shown)
    assert HIDE_CURSOR in shown
    assert shown.rfind(SHOW_CURSOR) > shown.rfind(HIDE_CURSOR)
    assert re.search(r"1 waits_for_file +━+.*7/10 seven of ten", text)
    assert re.search(r"total +━+.*/3 +1 running", text)
    assert re.search(r"✗ 2 fails .*The file is locked\.", text)
    assert re.search(r"✓ 1 waits_for_file .*released", text)
    assert "ValueError: a private sentence" in text
    assert re.search(r"3 calls: 1 done, 1 failed, 1 unknown \(", text)
    assert (code, [len(item) for item in json.loads(out)]) == (4, [3, 3, 3])


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_that_wants_no_codes_gets_plain_lines(
    starts: Starts, turn: WritesTurn, terminal: tuple[int, int], pipe: Path, env: dict[str, str]
) -> None:
    """API, `run`: plain lines without escape codes where a terminal says so."""
    calls = turn(("waits_for_file", {"text": str(pipe)}))
    shown, _, code = run_on(terminal, starts, "run", ENDINGS, calls, pipe=pipe, **env)
    assert code == 0
    assert "\x1b" not in shown
    assert re.search(r"✓ 1 waits_for_file .*released", shown)


def test_text_of_tools_does_nothing_on_a_terminal(
    starts: Starts, turn: WritesTurn, terminal: tuple[int, int]
) -> None:
    """Terminal: neither escape codes nor markup in texts of tools are interpreted."""
    ours, theirs = terminal
    with starts("run", ENDINGS, turn("shows", "asks"), stderr=theirs) as process:
        os.close(theirs)
        shown = read_until(ours, "no such text")
        process.wait(PATIENCE)
    text = ESCAPES.sub("", shown)
    assert "⟦U+202E⟧drawn⟦U+001B⟧]0;title⟦U+0007⟧" in text
    assert text.count("Delete [bold]all[/bold]?⟦U+001B⟧[31m") == 2  # Its line, and the question.
    assert "\x1b]0;" not in shown
    assert "\u202e" not in shown


def test_what_a_tool_prints_stands_above_the_bars(
    starts: Starts, turn: WritesTurn, terminal: tuple[int, int], pipe: Path
) -> None:
    """API: standard output holds the result alone, on a terminal too."""
    calls = turn(("waits_for_file", {"text": str(pipe)}), "prints")
    shown, out, code = run_on(terminal, starts, "run", ENDINGS, calls, "--json", pipe=pipe)
    left = screen(shown)
    assert "printed to standard output" in left
    assert "without a line feed" in left
    assert (code, out.count("\n")) == (0, 1)


def test_nothing_of_the_bars_is_left_and_no_line_is_lost(
    starts: Starts, turn: WritesTurn, terminal: tuple[int, int]
) -> None:
    """API, `run`: twelve calls that end at once each leave their line, and the bars nothing."""
    ours, theirs = terminal
    calls = turn(*["goes_on"] * 12)
    with starts("run", ENDINGS, calls, "--max-parallel", "12", stderr=theirs) as process:
        os.close(theirs)
        shown = read_until(ours, "counting")
        process.send_signal(signal.SIGINT)
        shown += read_until(ours, "no such text")
        process.wait(PATIENCE)
    left = [line for line in screen(shown) if line]
    assert [line.split()[:4] for line in left[:-1]] == [
        ["‽", str(number), "goes_on", "unknown"] for number in range(1, 13)
    ]
    assert left[-1].startswith("12 calls: 12 unknown (")


def test_a_table_on_a_terminal_fits_it(starts: Starts, terminal: tuple[int, int]) -> None:
    """API, `list`: as wide as the terminal is, and no wider."""
    ours, theirs = terminal
    with starts("list", ENDINGS, stdout=theirs, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        shown = read_until(ours, "no such text")
        assert process.wait(PATIENCE) == 0
    assert "\x1b[1m" in shown
    assert max(len(line) for line in ESCAPES.sub("", shown).splitlines()) <= 80
