"""Calls that are kept: run again, answered, resolved and told of, each by a process of its own."""

import getpass
import json
import os
import re
import shlex
import signal
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.command import ESCAPES, PATIENCE, Ferrule, Starts, WritesTurn, read_until
from ferrule.cli._journal import faults, shortened
from ferrule.cli._refused import Refused
from ferrule.cli._unknown import REASONS
from ferrule.errors import JournalError
from support import held_open

KEPT = str(Path(__file__).with_name("tools_kept.py"))

ASKS = ("refund", {"order": "A", "amount": 500})
PAYS = ("refund", {"order": "B", "amount": 5})

Done = subprocess.CompletedProcess[str]
Runs = Callable[..., Done]


@pytest.fixture
def run(ferrule: Ferrule) -> Runs:
    """Give a test `run(turn, *more)`: the turn, kept in the journal of the test."""

    def go(turn: str, *more: str) -> Done:
        return ferrule("run", KEPT, turn, "--journal", "calls.db", "--json", *more)

    return go


@pytest.fixture
def kept(ferrule: Ferrule) -> Runs:
    """Give a test `kept(command, *more)`: a command on the journal of the test."""

    def go(command: str, *more: str, stdin: str = "") -> Done:
        return ferrule(command, "--journal", "calls.db", *more, stdin=stdin)

    return go


def outputs(text: str) -> list[object]:
    """Return what each item of the printed outputs says."""
    return [item["output"] for item in json.loads(text)]


def begun(folder: Path) -> list[str]:
    """Return which tools began, as they noted themselves."""
    return [line.split()[0] for line in (folder / "begun.log").read_text("utf-8").splitlines()]


@contextmanager
def bounded(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill a process that should have gone on long ago, so that who reads it does not hang."""
    timer = threading.Timer(PATIENCE, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def told_until(process: subprocess.Popen[str], *parts: str) -> str:
    """Read standard error until each part was in some line."""
    assert process.stderr is not None
    read = ""
    with bounded(process):
        while not all(part in read for part in parts):
            line = process.stderr.readline()
            assert line, f"{parts} never came: {read}"
            read += line
    return read


def asked(kept: Runs) -> dict[str, dict[str, Any]]:
    """Return the questions that wait, by the calls' ids as the model has them, sorted."""
    waits = json.loads(kept("waits", "--json").stdout)
    return {wait["call"]["id"]: wait for wait in sorted(waits, key=lambda one: one["call_id"])}


def waiting(kept: Runs) -> list[str]:
    """Return the ids of the questions that wait, in the calls' order."""
    return [wait["id"] for wait in asked(kept).values()]


# ---- running again -------------------------------------------------------------------------------


def test_a_killed_turn_goes_on_and_repeats_nothing(
    starts: Starts, run: Runs, kept: Runs, turn: WritesTurn, tmp_path: Path
) -> None:
    """DUR-1, DUR-2: what is settled stays; by `replay`, what was at work; the rest begins once."""
    names = ("safely", "keyed", "once")
    gates = [(name, {"gate": f"{name}.gate"}) for name in names]
    path = turn(PAYS, *gates, ("after", {"order": "C"}))
    with starts("run", KEPT, path, "--journal", "calls.db") as process:
        told_until(process, "✓ 1", "at safely.gate", "at keyed.gate", "at once.gate")
        process.kill()
        process.communicate(timeout=PATIENCE)
    assert sorted(begun(tmp_path)) == sorted(["refund", *names])
    for name in names:
        (tmp_path / f"{name}.gate").touch()
    done = run(path)
    assert done.returncode == 4
    said = outputs(done.stdout)
    assert said[:3] == ["refunded 5 for B", "safely passed safely.gate", "keyed passed keyed.gate"]
    assert str(said[3]).startswith('Error: tool "once" failed; it may have taken effect')
    assert said[4] == "counted C"
    again = begun(tmp_path)
    assert sorted(again) == ["after", "keyed", "keyed", "once", "refund", "safely", "safely"]
    keys = set((tmp_path / "begun.log").read_text("utf-8").splitlines())
    assert sum(line.startswith("keyed ") for line in keys) == 1
    assert "✓ 1 refund done    earlier  refunded 5 for B" in done.stderr
    assert "2 safely runs again: the process that ran it is gone" in done.stderr
    assert "ferrule unknown --journal calls.db" in done.stderr
    kept("resolve", "c3", "completed", "--text", "it was paid")
    last = run(path)
    assert (last.returncode, outputs(last.stdout)[3]) == (0, "it was paid")
    assert begun(tmp_path) == again


def test_the_same_turn_in_another_file_is_the_same_batch(
    run: Runs, turn: WritesTurn, tmp_path: Path
) -> None:
    """DUR-1: a turn is named after what it says; only `--batch-id` makes another of it."""
    path = Path(turn(PAYS))
    first = run(str(path))
    other = tmp_path / "other.json"
    other.write_text(json.dumps(json.loads(path.read_text("utf-8")), indent=3), encoding="utf-8")
    assert run(str(other)).stdout == first.stdout
    assert begun(tmp_path) == ["refund"]
    named = run(str(other), "--batch-id", "another")
    assert (named.stdout, named.stderr.splitlines()[-1][-15:]) == (first.stdout, "kept as another")
    assert begun(tmp_path) == ["refund", "refund"]


def test_a_batch_of_other_calls_or_callers_is_refused(
    run: Runs, turn: WritesTurn, tmp_path: Path
) -> None:
    """DUR-1: one id is one turn of one caller; the sentence says which option helps."""
    path = turn(PAYS)
    run(path, "--batch-id", "one")
    run(path)
    by = run(path, "--by", "bob")
    assert (by.returncode, by.stdout) == (1, "")
    assert "run it with the same --by" in by.stderr
    other = run(turn(PAYS, PAYS), "--batch-id", "one")
    assert (other.returncode, other.stdout) == (1, "")
    assert "give this turn another --batch-id" in other.stderr
    assert begun(tmp_path) == ["refund", "refund"]


def test_an_interrupted_turn_goes_on(
    starts: Starts, run: Runs, turn: WritesTurn, tmp_path: Path
) -> None:
    """EXE-6, DUR-2: Ctrl-C stops what runs; what has not begun goes on at the next run."""
    gates = [(name, {"gate": "open"}) for name in ("safely", "once")]
    path = turn(*gates, ("after", {"order": "C"}))
    with starts("run", KEPT, path, "--journal", "calls.db") as process:
        told_until(process, "1 safely  at open", "2 once    at open")
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert "2 calls have not ended: the same command goes on" in error
    assert "‽ 2 once   unknown" in error
    assert "Traceback" not in error
    (tmp_path / "open").touch()
    done = run(path)
    assert done.returncode == 4
    assert outputs(done.stdout)[::2] == ["safely passed open", "counted C"]
    assert sorted(begun(tmp_path)) == ["after", "once", "safely", "safely"]


def test_what_a_killed_process_left_is_ended(
    starts: Starts, run: Runs, turn: WritesTurn, tmp_path: Path, require: Callable[..., None]
) -> None:
    """DUR-2, CLO-2: the process group that `run_command` put on record, before all else goes on."""
    require(Path("/proc/self/stat").exists(), "Linux's /proc, which tells processes apart")
    path = turn("commands")
    with held_open(tmp_path / "alive") as alive:
        with starts("run", KEPT, path, "--journal", "calls.db") as process:
            told_until(process, "commands", "begun")
            process.kill()
            process.communicate(timeout=PATIENCE)
        with pytest.raises(BlockingIOError):
            os.read(alive, 1)
        assert run(path).returncode == 4
        assert os.read(alive, 1) == b""  # Nobody has it open any more.


def test_a_second_process_watches_a_turn_that_runs(
    starts: Starts, turn: WritesTurn, tmp_path: Path
) -> None:
    """DUR-1: a batch is driven by one process; who comes second tells what becomes of it."""
    arguments = ("run", KEPT, turn(("once", {"gate": "open"})), "--journal", "calls.db", "--json")
    with starts(*arguments) as first:
        told_until(first, "at open")
        with starts(*arguments) as second:
            told_until(second, "another process runs this turn")
            (tmp_path / "open").touch()
            said = [process.communicate(timeout=PATIENCE)[0] for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0)
    assert [outputs(one) for one in said] == [["once passed open"]] * 2
    assert begun(tmp_path) == ["once"]


def test_a_tool_that_ends_the_program_leaves_a_turn_that_goes_on(
    starts: Starts, run: Runs, turn: WritesTurn, tmp_path: Path
) -> None:
    """FAIL-6: a KeyboardInterrupt stops its siblings, and then the command, as Ctrl-C does."""
    path = turn("interrupts", ("safely", {"gate": "open"}))
    first = run(path)
    assert (first.returncode, first.stdout) == (130, "")
    (tmp_path / "open").touch()
    done = run(path)
    assert (done.returncode, outputs(done.stdout)[1]) == (4, "safely passed open")


def test_a_turn_without_calls_is_done(ferrule: Ferrule, tmp_path: Path) -> None:
    """API, exit codes: a model that only answered asks for nothing, kept or not."""
    text = '{"output": [{"type": "message", "role": "assistant", "content": []}]}'
    (tmp_path / "turn.json").write_text(text, encoding="utf-8")
    done = ferrule("run", KEPT, "turn.json", "--journal", "calls.db", "--json")
    assert (done.returncode, done.stdout) == (0, "[]\n")
    assert done.stderr == "the response calls no function\n"


# ---- answers -------------------------------------------------------------------------------------


def test_the_command_that_is_printed_answers_the_question(
    ferrule: Ferrule, run: Runs, turn: WritesTurn, tmp_path: Path
) -> None:
    """SUS-3, DUR-2: exit 3 with what is needed; the answer of another process resumes once."""
    path = turn(ASKS, PAYS)
    first = run(path)
    assert (first.returncode, first.stdout) == (3, "")
    assert begun(tmp_path) == ["refund"]
    assert 'refund (c0) needs an answer: Refund 500 for A? as {"type": "boolean"}' in first.stderr
    (line,) = [line for line in first.stderr.splitlines() if line.startswith("  ferrule answer ")]
    answered = ferrule(*shlex.split(line.removesuffix("   (or no)"))[1:])
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    said = f"refund (c0) asked: Refund 500 for A?\nyes, by {by}\n"
    assert (answered.returncode, answered.stdout) == (0, said)
    for _ in range(2):
        done = run(path)
        assert done.returncode == 0
        assert outputs(done.stdout) == ["refunded 500 for A", "refunded 5 for B"]
    assert begun(tmp_path) == ["refund", "refund"]


def test_a_no_refuses_the_call(run: Runs, kept: Runs, turn: WritesTurn) -> None:
    """AUT-4: the call ends as not approved, and its sibling is what it was."""
    path = turn(ASKS, PAYS)
    run(path)
    assert kept("answer", *waiting(kept), "no", "--by", "ann").returncode == 0
    done = run(path)
    assert done.returncode == 1
    assert outputs(done.stdout) == ['Error: tool "refund" was not approved', "refunded 5 for B"]


ANSWERS = [
    ("word", "blue", "blue"),
    ("word", "two words", "two words"),
    ("word", '"5"', "5"),
    ("word", "yes", "yes"),
    ("colour", "red", "red"),
    ("colour", '"blue"', "blue"),
    ("sum", "12", "12"),
    ("person", '{"name": "Ann"}', "Ann"),
]


def test_what_is_typed_is_what_is_meant(run: Runs, kept: Runs, turn: WritesTurn) -> None:
    """SUS-2, SUS-3: JSON is JSON; a word that is none is a text where a text is asked for."""
    path = turn(*(("chooses", {"what": what}) for what, _, _ in ANSWERS))
    run(path)
    waits = asked(kept)
    for index, (_, typed, _) in enumerate(ANSWERS):
        wait, piped = waits[f"c{index}"]["id"], index % 2 == 0
        more = {"stdin": f"{typed}\n"} if piped else {}
        assert kept("answer", wait, "-" if piped else typed, **more).returncode == 0
    done = run(path)
    assert done.returncode == 0
    assert outputs(done.stdout) == [f"the {what} is {said}" for what, _, said in ANSWERS]


BAD_ANSWERS = [
    (ASKS, "maybe", "this question takes yes or no"),
    (ASKS, "1", "expected boolean"),
    (ASKS, '"yes"', "expected boolean"),
    (ASKS, "null", "expected boolean"),
    (("chooses", {"what": "word"}), "5", "expected string"),
    (("chooses", {"what": "word"}), '"broken', "no JSON"),
    (("chooses", {"what": "colour"}), "green", "red"),
    (("chooses", {"what": "sum"}), "yes", "this question takes a whole number"),
    (("chooses", {"what": "person"}), '{"name": "a", "name": "b"}', "repeated"),
]


def test_an_answer_that_is_none_leaves_the_question(
    run: Runs, kept: Runs, turn: WritesTurn
) -> None:
    """SUS-3, bad input: one sentence, exit 1, nothing written, and the question still waits."""
    run(turn(*(call for call, _, _ in BAD_ANSWERS)))
    waits = asked(kept)
    for index, (_, typed, says) in enumerate(BAD_ANSWERS):
        done = kept("answer", waits[f"c{index}"]["id"], typed)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert says in done.stderr
    assert sorted(waiting(kept)) == sorted(wait["id"] for wait in waits.values())


def test_an_answer_that_is_left_out_is_asked_for(run: Runs, kept: Runs, turn: WritesTurn) -> None:
    """API, exit codes: the command line was not understood; it says what the question takes."""
    run(turn(ASKS))
    done = kept("answer", *waiting(kept))
    assert done.returncode == 2
    assert done.stderr == "ferrule: say what to answer, yes or no: Refund 500 for A?\n"


def test_a_closed_question_says_who_closed_it_and_when(
    run: Runs, kept: Runs, turn: WritesTurn
) -> None:
    """SUS-3, SUS-4: whoever comes second is told by whom and when; a withdrawn call has failed."""
    path = turn(ASKS, ("refund", {"order": "C", "amount": 300}))
    run(path)
    first, second = waiting(kept)
    kept("answer", first, "yes", "--by", "ann")
    assert kept("withdraw", second, "--by", "bob").stdout.endswith("withdrawn, by bob\n")
    for wait, how in ((first, "answered by ann"), (second, "withdrawn by bob")):
        for late in (kept("answer", wait, "no"), kept("withdraw", wait)):
            assert (late.returncode, late.stdout) == (1, "")
            assert re.search(f"the question was {how} at [-0-9]+ [:0-9]+ UTC", late.stderr)
    done = run(path)
    assert done.returncode == 1
    assert outputs(done.stdout) == [
        "refunded 500 for A",
        "Error: the question was withdrawn: Refund 300 for C?",
    ]


def test_an_answer_with_an_id_may_be_sent_again(run: Runs, kept: Runs, turn: WritesTurn) -> None:
    """SUS-3: the same id and content again has no effect; another content is a conflict."""
    run(turn(ASKS))
    (wait,) = waiting(kept)
    said = [kept("answer", wait, "yes", "--answer-id", "a-1", "--by", "ann") for _ in range(2)]
    assert [one.returncode for one in said] == [0, 0]
    assert said[0].stdout.endswith("yes, by ann\n")
    assert "yes, by ann had been said at" in said[1].stdout
    other = kept("answer", wait, "no", "--answer-id", "a-1", "--by", "ann")
    assert (other.returncode, other.stdout) == (1, "")
    assert "answer a-1 was given before" in other.stderr


# ---- naming a question ---------------------------------------------------------------------------


def test_the_beginning_of_an_id_names_a_question(run: Runs, kept: Runs, turn: WritesTurn) -> None:
    """CLI: what no other question of the journal begins with; else both are named, nothing done."""
    run(turn(*[("refund", {"order": str(one), "amount": 200 + one}) for one in range(17)]))
    ids = waiting(kept)
    several = next(id[0] for id in ids if sum(one[0] == id[0] for one in ids) > 1)
    done = kept("answer", several, "yes")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{several} begins the id of " in done.stderr
    assert [one for one in ids if one in done.stderr and one[0] != several] == []
    assert len([one for one in ids if one in done.stderr]) > 1
    chosen = next(one for one in ids if one[0] == several)
    length = next(n for n in range(1, 33) if sum(one.startswith(chosen[:n]) for one in ids) == 1)
    assert kept("answer", chosen[:length], "yes").returncode == 0
    assert sorted(waiting(kept)) == sorted(set(ids) - {chosen})
    again = kept("withdraw", chosen[:length])
    assert "answered by" in again.stderr
    assert kept("withdraw", several).returncode == 1


def test_a_shown_id_is_longer_where_two_begin_alike() -> None:
    """CLI: short enough to type, and never another question's."""
    first, second, third = "a" * 32, "a" * 9 + "b" * 23, "c" * 32
    ids = [first, second, third]
    assert [shortened(one, ids) for one in ids] == [first[:10], second[:10], third[:8]]
    assert shortened(first, [first, f"{first}b"]) == first


def test_a_question_that_never_was_is_refused(run: Runs, kept: Runs, turn: WritesTurn) -> None:
    """SUS-3: an unknown wait; nothing of the name is a pattern."""
    run(turn(ASKS))
    for name in ("zzz", "%", "*"):
        done = kept("answer", name, "yes")
        assert done.returncode == 1
        assert done.stderr == f"ferrule: there is no question {name}; `ferrule waits` lists them\n"


# ---- lists ---------------------------------------------------------------------------------------


def test_waits_shows_what_is_asked_and_of_which_call(
    run: Runs, kept: Runs, turn: WritesTurn
) -> None:
    """SUS-3: id, call with its arguments, question, who asks, what it takes; never the state."""
    run(turn(ASKS, ("chooses", {"what": "word"})))
    table = kept("waits").stdout
    told = list(asked(kept).values())
    assert [wait["call_id"].partition("/")[2] for wait in told] == ["c0", "c1"]
    assert [wait["message"] for wait in told] == ["Refund 500 for A?", "Which word?\u202e"]
    assert [wait["schema"] for wait in told] == [{"type": "boolean"}, {"type": "string"}]
    assert told[0]["call"] == {"id": "c0", "name": "refund", "arguments": json.dumps(ASKS[1])}
    assert sorted(told[0]) == sorted(
        ("id", "call", "call_id", "message", "schema", "since", "expires", "asked_by", "leg")
    )
    words = " ".join(table.split())
    for part in (told[0]["id"][:8], told[1]["id"][:8], "yes or no", "a text", "⟦U+202E⟧"):
        assert part in words
    assert "secret" not in table + json.dumps(told)
    assert max(map(len, table.splitlines())) <= 80


def test_unknown_shows_what_helps_to_find_out(
    starts: Starts, run: Runs, kept: Runs, turn: WritesTurn
) -> None:
    """DUR-2: reason, key, records and what to type, for people and for programs."""
    path = turn(("once", {"gate": "shut"}), "breaks")
    with starts("run", KEPT, path, "--journal", "calls.db") as process:
        told_until(process, "at shut", "‽ 2")
        process.kill()
        process.communicate(timeout=PATIENCE)
    run(path)
    lost, broke = json.loads(kept("unknown", "--json").stdout)
    assert (lost["reason"], broke["reason"]) == ("owner_lost", "raised")
    (record,) = lost["records"]
    assert record["namespace"] == "shop:paying"
    assert record["data"] == {"gate": "shut", "to": "\x1b[31mred"}
    assert (record["leg"], record["fence"], lost["evidence"]) == (1, 1, [])
    text = kept("unknown").stdout
    assert lost["idempotency_key"] in text
    assert "shop:paying" in text
    assert "\x1b" not in text
    assert f"ferrule resolve {lost['id']} --journal calls.db completed" in " ".join(text.split())
    (one,) = json.loads(kept("unknown", "--json", "--reason", "raised").stdout)
    assert one["id"] == broke["id"]
    assert kept("unknown", "--reason", "nonsense").returncode == 2


def test_every_reason_may_be_asked_for() -> None:
    """FAIL-6: the closed list of reasons is the contract's."""
    listed = "raised bad_result timed_out crashed still_running owner_lost cancelled"
    assert set(REASONS) == set(listed.split())


RESOLVED = [
    (["completed", "--text", "paid"], "paid"),
    (["completed"], ""),
    (["failed", "--text", "it bounced"], "Error: it bounced"),
    (["failed"], "Error: it failed, as was found out later"),
    (["cancelled"], 'Error: tool "breaks" did not run: cancelled'),
]


def test_an_unknown_call_is_resolved_once(run: Runs, kept: Runs, turn: WritesTurn) -> None:
    """DUR-2: what a person found out is what the model reads; a retry runs it again."""
    path = turn(*["breaks"] * (len(RESOLVED) + 1))
    before = outputs(run(path).stdout)
    for index, (said, _) in enumerate(RESOLVED):
        assert kept("resolve", f"c{index}", *said, "--by", "ann").returncode == 0
    assert kept("resolve", "c5", "retry").stdout.startswith("breaks (turn-")
    done = run(path)
    *resolved, again = outputs(done.stdout)
    assert (done.returncode, resolved) == (4, [output for _, output in RESOLVED])
    assert "may have taken effect" in str(again)
    assert again != before[-1]  # Another reference: it ran again.
    late = kept("resolve", "c0", "failed", "--text", "another")
    assert (late.returncode, late.stdout) == (1, "")
    assert "only an unknown call is resolved" in late.stderr


def test_what_is_no_unknown_call_is_not_resolved(run: Runs, kept: Runs, turn: WritesTurn) -> None:
    """DUR-2: a settled call, one that is not there, one that two have; nothing is changed."""
    run(turn(PAYS))
    run(turn(PAYS), "--batch-id", "other")
    for name, says in (("other/c0", "is completed"), ("c9", "no call c9"), ("c0", "2 calls c0")):
        done = kept("resolve", name, "failed")
        assert (done.returncode, done.stdout) == (1, "")
        assert says in done.stderr


def test_what_is_said_is_json_for_programs(run: Runs, kept: Runs, turn: WritesTurn) -> None:
    """API: `--json` of what a person says: which call, what, by whom."""
    run(turn(ASKS, ("refund", {"order": "C", "amount": 300}), "breaks"), "--batch-id", "t")
    first, second = waiting(kept)
    answer = json.loads(kept("answer", first, "yes", "--by", "ann", "--json").stdout)
    assert answer.pop("at")
    assert len(answer.pop("answer_id")) == 32
    assert answer == {
        "wait_id": first, "by": "ann", "first": True, "call_id": "t/c0", "answer": True,
    }  # fmt: skip
    told = json.loads(kept("withdraw", second, "--by", "bob", "--json").stdout)
    assert told == {"wait_id": second, "call_id": "t/c1", "by": "bob"}
    told = json.loads(kept("resolve", "c2", "failed", "--by", "ann", "--json").stdout)
    assert told == {"id": "t/c2", "state": "failed", "by": "ann"}


def test_nothing_to_list_is_said_beside_the_result(run: Runs, kept: Runs, turn: WritesTurn) -> None:
    """API: standard output holds the result alone: an empty list, or nothing."""
    run(turn(PAYS))
    for command, says in (("waits", "nothing waits\n"), ("unknown", "nothing is unknown\n")):
        assert (kept(command).stdout, kept(command).stderr) == ("", says)
        assert kept(command, "--json").stdout == "[]\n"


# ---- history -------------------------------------------------------------------------------------


def test_history_tells_every_step(run: Runs, kept: Runs, turn: WritesTurn) -> None:
    """DUR-1: time, call, step, state, leg, by, detail; of all, one batch, or one call."""
    path = turn(ASKS, PAYS)
    run(path, "--batch-id", "t")
    kept("answer", *waiting(kept), "yes", "--by", "ann")
    run(path, "--batch-id", "t")
    lines = json.loads(kept("history", "c0", "--json").stdout)
    assert [line["step"] for line in lines] == [
        *("propose", "admit", "ask", "approve", "allow", "dispatch", "complete")
    ]
    assert sorted(lines[0]) == sorted(
        ("seq", "at", "batch_id", "call_id", "step", "state", "leg", "fence", "by", "data")
    )
    assert [line["by"] for line in lines if line["by"]] == ["ann"]
    everything = json.loads(kept("history", "--json").stdout)
    assert everything == json.loads(kept("history", "--json", "--batch", "t").stdout)
    assert [line for line in everything if line["call_id"] == "t/c0"] == lines
    table = kept("history").stdout
    assert re.search(r"c0 +approve +admitted +2 +ann +question [0-9a-f]{8}; answer", table)
    assert table.count("dispatched") == 2
    assert max(map(len, table.splitlines())) <= 80
    for more, says in ((["nope"], "no call nope"), (["--batch", "nope"], "no batch nope")):
        done = kept("history", *more)
        assert (done.returncode, done.stdout) == (1, "")
        assert says in done.stderr


@pytest.mark.parametrize("named", [["--batch", "t"], ["c0"]])
def test_following_ends_when_what_was_named_is_settled(
    starts: Starts, run: Runs, kept: Runs, turn: WritesTurn, named: list[str]
) -> None:
    """DUR-1: each line once, in order, as it happens, an object a line."""
    path = turn(ASKS)
    run(path, "--batch-id", "t")
    follow = ("history", "--journal", "calls.db", "--follow", "--json", *named)
    with starts(*follow) as process, bounded(process):
        assert process.stdout is not None
        told = [json.loads(process.stdout.readline()) for _ in range(3)]
        kept("answer", *waiting(kept), "yes")
        run(path, "--batch-id", "t")
        out, error = process.communicate(timeout=PATIENCE)
    told += map(json.loads, out.splitlines())
    assert (process.returncode, error) == (0, "")
    assert told == json.loads(kept("history", "--json").stdout)


def test_following_everything_ends_at_an_interruption(
    starts: Starts, run: Runs, kept: Runs, turn: WritesTurn
) -> None:
    """API, exit codes: 130, without a word; what came later stands below what was there."""
    run(turn(ASKS), "--batch-id", "t")
    with starts("history", "--journal", "calls.db", "--follow") as process, bounded(process):
        assert process.stdout is not None
        shown = "".join(process.stdout.readline() for _ in range(6))
        kept("withdraw", *waiting(kept), "--by", "ann")
        while "withdraw" not in shown:
            shown += process.stdout.readline() or "withdraw: never came"
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, error) == (130, "", "")
    rows = [line for line in shown.splitlines() if re.match(r"[:0-9]{8} ", line)]
    steps = [(row.split()[2], row.split()[3]) for row in rows]
    assert steps == [
        ("propose", "proposed"),
        ("admit", "admitted"),
        ("ask", "suspended"),
        ("withdraw", "failed"),
    ]
    assert len({row.index(state) for row, (_, state) in zip(rows, steps, strict=True)}) == 1
    assert shown.count("time ") == 1


def test_following_ends_when_nobody_reads(
    starts: Starts, run: Runs, kept: Runs, turn: WritesTurn
) -> None:
    """CL-03: a reader that went away is no error."""
    run(turn(ASKS), "--batch-id", "t")
    with (
        starts("history", "--journal", "calls.db", "--follow", "--json") as process,
        bounded(process),
    ):
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        kept("withdraw", *waiting(kept))
        assert process.wait(PATIENCE) == 0


# ---- bad input -----------------------------------------------------------------------------------


def other_database(path: Path) -> None:
    """Write a database of something else."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (a)")
    database.close()


def newer(path: Path) -> None:
    """Write a journal of a version that is to come."""
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA application_id = 1181053557")
        database.execute("PRAGMA user_version = 99")
        database.execute("CREATE TABLE t (a)")
    database.close()


def text(path: Path) -> None:
    """Write what is no database."""
    path.write_text("call me\n" * 200, encoding="utf-8")


BAD_FILES = [
    (Path.mkdir, "calls.db"),
    (text, "is no journal"),
    (other_database, "something else"),
    (newer, "newer Ferrule"),
]
COMMANDS = [
    ["waits"],
    ["answer", "a", "yes"],
    ["withdraw", "a"],
    ["unknown"],
    ["resolve", "c", "failed"],
    ["history"],
    ["history", "--follow"],
]


@pytest.mark.parametrize(("make", "says"), BAD_FILES)
def test_a_file_that_is_no_journal_is_refused_and_left_alone(
    run: Runs, kept: Runs, turn: WritesTurn, tmp_path: Path,
    make: Callable[[Path], object], says: str,
) -> None:  # fmt: skip
    """Bad input: one sentence that says what to do, exit 2, nothing written, nothing run."""
    path = tmp_path / "calls.db"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    for done in (kept("waits"), kept("history", "--follow"), run(turn(PAYS))):
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert says in done.stderr
    assert before == (path.read_bytes() if path.is_file() else b"")
    assert not (tmp_path / "begun.log").exists()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_journal_that_is_not_there_is_not_made(
    kept: Runs, tmp_path: Path, command: list[str]
) -> None:
    """Bad input: a misspelt file is named, exit 2; only `ferrule run` makes one."""
    done = kept(*command)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ferrule: there is no journal calls.db")
    assert not (tmp_path / "calls.db").exists()


def test_what_may_work_later_is_not_the_command_lines_fault() -> None:
    """API, exit codes: a journal that is locked or full is 1, one that is none is 2."""
    for passing, code in ((True, 1), (False, 2)):
        with pytest.raises(Refused) as caught, faults():
            raise JournalError("it is so", passing=passing)
        assert caught.value.code == code


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", KEPT, "turn.json", "--batch-id", "x"], "add --journal"),
        (["run", KEPT, "turn.json", "--journal", "calls.db", "--batch-id", " "], "is blank"),
        (["waits"], "--journal"),
        (["waits", "--jurnal", "calls.db"], "--journal"),
        (["answer", "--journal", "calls.db", "", "yes"], "is blank"),
        (["answer", "--journal", "calls.db", "a", "yes", "--by", "\n"], "is blank"),
        (["answer", "--journal", "calls.db", "a", "yes", "no"], "no"),
        (["resolve", "--journal", "calls.db", "a", "perhaps"], "completed"),
        (["resolve", "--journal", "calls.db", "a", "retry", "--text", "x"], "--text goes with"),
    ],
)
def test_a_command_line_that_is_not_understood_does_nothing(
    ferrule: Ferrule, turn: WritesTurn, tmp_path: Path, arguments: list[str], says: str
) -> None:
    """CL-04: exit 2, before a journal is made or opened."""
    turn(PAYS)
    done = ferrule(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert not (tmp_path / "calls.db").exists()


# ---- on a terminal -------------------------------------------------------------------------------


def test_a_turn_that_goes_on_is_shown_on_a_terminal(
    starts: Starts,
    run: Runs,
    kept: Runs,
    turn: WritesTurn,
    terminal: tuple[int, int],
    tmp_path: Path,
) -> None:
    """API, `run`: a bar where a call runs, a line where it ended, and what to type."""
    path = turn(PAYS, ("once", {"gate": "open"}), ASKS)
    ours, theirs = terminal
    arguments = ("run", KEPT, path, "--journal", "calls.db")
    with starts(*arguments, stderr=theirs) as process:
        os.close(theirs)
        shown = read_until(ours, "at open")
        (tmp_path / "open").touch()
        shown += read_until(ours, "no such text")
        assert process.wait(PATIENCE) == 3
    plain = ESCAPES.sub("", shown)
    assert re.search(r"2 once +━+.*at open", plain)
    assert re.search(r"\? 3 refund waits", plain)
    assert re.search(r"  ferrule answer [0-9a-f]{8} yes --journal calls.db   \(or no\)", plain)
