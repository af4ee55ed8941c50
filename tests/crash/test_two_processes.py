"""Two processes on one journal: what they work on is held across both, the order of each kept."""

import subprocess
import sys
import time
from pathlib import Path

from crash import checks, journal, sharing
from crash.log import lines

TESTS = Path(__file__).parents[1]
LONG = 300
"""Seconds after which a process hangs; nothing waits for them."""

SLOWER = 10
"""How many times as long two processes may take as one with the same calls, at most. They share a
disk and a lock, and look twenty times a second what the other has let go: two to four times."""


def worked(home: Path, shares: list[list[str]]) -> float:
    """Have processes run a share of the turns each; return the seconds it took all of them."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "crash.child", "share", str(home), f"--loop={loop}"],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _, loop in zip(shares, ("asyncio", "trio"), strict=False)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        began = time.perf_counter()
        for process, turns in zip(processes, shares, strict=True):
            assert process.stdin is not None
            process.stdin.write("".join(f"{word}\n" for word in (*turns, "go")))
            process.stdin.flush()
        for process, turns in zip(processes, shares, strict=True):
            out, _ = process.communicate(timeout=LONG)
            assert out.split() == [word for turn in turns for word in (turn, str(sharing.CALLS))]
            assert process.returncode == 0
        return time.perf_counter() - began
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_two_processes_share_eight_states_without_overlap(tmp_path: Path) -> None:
    """EXE-2, EXE-3, DUR-1: 640 calls: no overlap, order kept, all settled, in a bounded time."""
    alone, together = tmp_path / "alone", tmp_path / "together"
    alone.mkdir()
    together.mkdir()
    one = worked(alone, [sharing.TURNS])
    two = worked(together, [sharing.TURNS[::2], sharing.TURNS[1::2]])
    for home in (alone, together):
        kept, log = journal.read(home / "calls.db"), lines(home / "log")
        assert kept.states() == {"completed": 640}
        assert sum(line.what == "begin" for line in log) == 640
        assert checks.breaches(kept, log) == []
    pids = {line.pid for line in lines(together / "log")}
    assert len(pids) == 2
    if two > SLOWER * one:  # Somebody else may have had the machine meanwhile: look once more.
        again = tmp_path / "again"
        again.mkdir()
        one = max(one, worked(again, [sharing.TURNS]))
    assert two < SLOWER * one, (one, two)
