"""
Nothing is lost, doubled or made up, wherever `kill -9` strikes.

The processes that are killed are forks of a program, `crash.storm`, that two workers run here.
`make crash` runs a longer storm.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from crash.storm import Found
from ferrule.states import MOVES

TESTS = Path(__file__).parents[1]
WORKERS = 2
PATIENCE = 600
"""Seconds after which a storm hangs; nothing waits for them."""

STATES = {state for move in MOVES.items() for state in (move[0][0], move[1])}
KILLS = 200


def storm(*options: str, parts: bool = False) -> Found:
    """Run a storm in as many workers as there are; return all that they found."""
    programs = [
        subprocess.Popen(
            [
                *(sys.executable, "-W", "error", "-m", "crash.storm", *options),
                *("--part", str(part), "--parts", str(WORKERS if parts else 1)),
            ],
            cwd=TESTS,
            stdout=subprocess.PIPE,
            text=True,
        )
        for part in range(WORKERS)
    ]
    total = Found()
    for program in programs:
        try:
            out, _ = program.communicate(timeout=PATIENCE)
        finally:
            program.kill()
        found = json.loads(out.splitlines()[-1])
        total.kills += found["kills"]
        total.states += Counter(found["states"])
        total.points += Counter(found["points"])
        total.breaches += found["breaches"]
        assert program.returncode == bool(found["breaches"])
    return total


def tell(capsys: pytest.CaptureFixture[str], what: str, found: Found) -> None:
    """Print where the calls were when their processes were killed."""
    where = ", ".join(f"{found.states[state]} {state}" for state in sorted(STATES))
    with capsys.disabled():
        sys.stdout.write(f"\n{found.kills} kills {what}; calls at the kill: {where}\n")


def test_a_kill_at_any_commit_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """DUR-1, DUR-2, DUR-3, SUS-3, AUT-4, REC-1: right before and right after each commit."""
    found = storm("--commits", parts=True)
    tell(capsys, "at commits", found)
    assert found.breaches == []
    # Not each the same number: a process that is held up for a beat of its lease commits once more.
    assert min(found.points["before"], found.points["after"]) > 60


def test_a_kill_at_any_commit_of_the_recovery_loses_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """DUR-2: whoever takes over may be killed as well, and whoever comes then."""
    found = storm("--again", parts=True)
    tell(capsys, "at commits of a recovery", found)
    assert found.breaches == []
    assert found.points["after"] > 30


def test_a_kill_at_any_moment_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """DUR-1, DUR-2, DUR-3, EXE-2, EXE-3: 200 moments; calls were in every state of the table."""
    found = storm("--moments", str(KILLS // WORKERS))
    tell(capsys, "at random moments", found)
    assert found.breaches == []
    assert found.kills == KILLS
    assert found.states["dispatched"] >= 100
    assert {state for state in STATES if found.states[state]} == STATES
