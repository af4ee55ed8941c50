"""Commands as tools run them: real processes, real signals, real pipes."""

import os
import sys
import tracemalloc
from collections.abc import Callable, Coroutine
from pathlib import Path

import anyio
import pytest

from ferrule import Context, Failure, InvalidValue, Progress, Record, ToolCall
from ferrule.helpers import (
    ANY,
    ENVIRONMENT,
    CommandLimits,
    CommandRule,
    Secret,
    run_command,
)
from support import closed_by_all, held_open

pytestmark = pytest.mark.anyio

CALL = ToolCall(id="c", name="run")


async def failed(argv: object, cwd: Path, **limits: float) -> Failure:
    """Run a command that fails and return how."""
    with pytest.raises(Failure) as caught:
        await run_command(argv, cwd=cwd, limits=CommandLimits(**limits))  # type: ignore[arg-type]  # what a model may send
    return caught.value


@pytest.mark.parametrize(
    "argv", ["git status", "", [], [""], ["echo", 5], [b"echo"], None, {"echo": 1}], ids=ascii
)
async def test_se_14_what_is_no_list_of_texts_is_a_failure_with_a_sentence(
    argv: object, tmp_path: Path
) -> None:
    """SE-14: a text is never split; the sentence says what would be a command."""
    assert "a list of texts" in str(await failed(argv, tmp_path))


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["echo", "a\0b"], "null character"),
        (["echo", "a\ud800b"], "half a character"),
        (["no-such-command"], "there is no command `no-such-command` here"),
        (["./none.sh"], "there is no command `./none.sh` here"),
        (["sub"], "there is no command `sub` here"),
        (["./sub"], "there is no command `./sub` here"),
        (["a\x1b[2J" + "x" * 5000], "there is no command `a⟦U+001B⟧[2Jxxx"),
        (["echo", "x" * 5_000_000], "it is too long"),
        (["sh", "-c", "echo out; echo err >&2; exit 3"], "exit status 3.\nout\nerr"),
        (["sh", "-c", "kill -9 $$"], "It ended by signal 9."),
        (["./text"], "Exec format error"),
    ],
    ids=lambda value: ascii(value)[:40],
)
async def test_what_cannot_run_or_ends_badly_is_a_failure(
    argv: list[str], sentence: str, tmp_path: Path
) -> None:
    """FAIL-1, FAIL-5, JSON-6: definite, short, with the output, and with no path of the host."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "text").write_bytes(b"\x7fELF no program")
    (tmp_path / "text").chmod(0o755)
    text = str(await failed(argv, tmp_path))
    assert sentence in text
    assert str(tmp_path) not in text
    assert len(text) < 1024


async def test_how_a_command_ended_is_in_the_details(tmp_path: Path) -> None:
    """FAIL-1: for the host, which may take exit status 1 of `grep` for an answer."""
    assert (await failed(["false"], tmp_path)).details == {"exit_status": 1}
    assert (await failed(["sh", "-c", "kill -15 $$"], tmp_path)).details == {"signal": 15}
    slow = await failed(["sh", "-c", "echo begun; sleep 1000"], tmp_path, seconds=0.5)
    assert slow.details == {"timed_out": True}
    assert str(slow) == "It was stopped after 0.5 s.\nbegun"


async def test_a_directory_that_is_not_there_is_a_failure_without_its_path(tmp_path: Path) -> None:
    """FAIL-5: where it was looked for is for the operator, in the cause."""
    failure = await failed(["true"], tmp_path / "gone")
    assert str(failure) == "The command could not be started: its directory cannot be entered."
    assert isinstance(failure.cause, FileNotFoundError)


async def test_se_14_no_shell_reads_the_words_and_nothing_is_typed_in(tmp_path: Path) -> None:
    """SE-14: every word arrives as it is, and who reads its input finds the end."""
    words = ["$HOME", "; ls", "*", "`id`", "a\nb", "-n", "ß"]
    done = await run_command(["printf", "%s|", *words], cwd=tmp_path)
    assert done.text == "".join(f"{word}|" for word in words)
    assert (await run_command(["cat"], cwd=tmp_path)).text == "It printed nothing."


async def test_signals_are_as_a_shell_leaves_them(tmp_path: Path) -> None:
    """Python ignores SIGPIPE; what it starts must not."""
    assert (await run_command(["sh", "-c", "yes | head -1"], cwd=tmp_path)).text == "y\n"


# ---- what it sees --------------------------------------------------------------------------------


async def environment(tmp_path: Path, **keywords: object) -> dict[str, str]:
    """Return the environment that a command sees."""
    done = await run_command(["env", "-0"], cwd=tmp_path, **keywords)  # type: ignore[arg-type]  # as below
    return dict(line.partition("=")[::2] for line in done.text.split("\0") if line)


async def test_a_command_sees_a_short_list_and_what_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SE-17: no key of ours, also not when variables are given; a named one, and a secret."""
    monkeypatch.setenv("API_KEY", "planted")
    monkeypatch.setenv("VIRTUAL_ENV", "venv")
    monkeypatch.setenv("PYTHONSTARTUP", "planted")
    monkeypatch.setenv("LANG", "C.UTF-8")
    assert set(await environment(tmp_path)) <= {*ENVIRONMENT}
    token = Secret("t-0")
    seen = await environment(
        tmp_path, env={"TOKEN": token, "LANG": "C"}, inherit=["VIRTUAL_ENV", "NOT_SET"]
    )
    assert seen.items() >= {"TOKEN": "t-0", "LANG": "C", "VIRTUAL_ENV": "venv"}.items()
    assert set(seen) <= {*ENVIRONMENT, "TOKEN", "VIRTUAL_ENV"}


async def test_se_14_a_file_beside_the_work_is_not_taken_for_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SE-14: PATH may name the directory that a model writes to; only absolute ones count."""
    for place in (tmp_path, tmp_path / "bin"):
        place.mkdir(exist_ok=True)
        (place / "git-look").write_text("#!/bin/sh\necho attacked\n")
        (place / "git-look").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.pathsep}bin{os.pathsep}{os.environ['PATH']}")
    assert "there is no command" in str(await failed(["git-look"], tmp_path))
    assert all(map(os.path.isabs, (await environment(tmp_path))["PATH"].split(os.pathsep)))
    assert (await run_command(["./git-look"], cwd=tmp_path)).text == "attacked\n"


async def test_without_a_path_the_systems_own_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may have no PATH at all."""
    monkeypatch.delenv("PATH")
    assert (await run_command(["echo", "here"], cwd=tmp_path)).text == "here\n"


@pytest.mark.parametrize(
    ("env", "inherit"),
    [
        ({"A=B": "planted"}, ()),
        ({"": "planted"}, ()),
        ({"A\0": "planted"}, ()),
        ({5: "planted"}, ()),
        ({"A": "planted\0"}, ()),
        ({"A": 5}, ()),
        ({"A": Secret(5)}, ()),
        ({}, "HOME"),
    ],
)
async def test_a_variable_that_cannot_be_is_refused_without_its_value(
    tmp_path: Path, env: dict[str, str], inherit: tuple[str, ...]
) -> None:
    """JSON-6: it is the author's mistake, and the value may be a key."""
    with pytest.raises(InvalidValue) as caught:
        await run_command(["true"], cwd=tmp_path, env=env, inherit=inherit)
    assert "planted" not in str(caught.value)


# ---- how it ends ---------------------------------------------------------------------------------


class Heard:
    """What a command tells: each line of progress, and when a given one came."""

    def __init__(self, awaited: str = "") -> None:
        self.lines: list[Progress] = []
        self.came = anyio.Event()
        self._awaited = awaited

    def __call__(self, _: Context, progress: Progress) -> None:
        """Hear one update."""
        self.lines.append(progress)
        if progress.message == self._awaited:
            self.came.set()


async def cancelled_after(line: str, run: Callable[[Context], Coroutine[None, None, None]]) -> None:
    """Cancel a command when it has printed a line."""
    heard = Heard(line)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, Context.of(CALL, on_progress=heard))
        with anyio.fail_after(20):
            await heard.came.wait()
        tasks.cancel_scope.cancel()


TREE = "exec 9>alive; (sh -c 'sleep 1000 & wait' & wait) & echo started; wait"
STUBBORN = "exec 9>alive; trap '' TERM; (trap '' TERM; sleep 1000) & echo started; sleep 1000"


@pytest.mark.parametrize("script", [TREE, STUBBORN], ids=["tree", "stubborn"])
async def test_a_cancelled_command_is_gone_with_all_that_it_started(
    tmp_path: Path, script: str
) -> None:
    """CLO-2: the pipe closes when the last of them is dead, also of those that ignore SIGTERM."""

    async def run(context: Context) -> None:
        limits = CommandLimits(seconds=None, grace=0.2)
        await run_command(["sh", "-c", script], cwd=tmp_path, limits=limits, context=context)

    with held_open(tmp_path / "alive") as alive:
        await cancelled_after("started", run)
        assert await closed_by_all(alive)


async def test_a_command_that_is_stopped_may_clean_up_and_so_may_its_children(
    tmp_path: Path,
) -> None:
    """CLO-2: SIGTERM first; a full pipe does not keep it from ending in good order."""
    child = "trap 'head -c 300000 /dev/zero; echo >child; exit' TERM; echo started; read x <never"
    script = f"mkfifo never; sh -c \"{child}\" & trap 'echo >parent; exit' TERM; wait"

    async def run(context: Context) -> None:
        limits = CommandLimits(seconds=None, grace=20)
        await run_command(["sh", "-c", script], cwd=tmp_path, limits=limits, context=context)

    await cancelled_after("started", run)
    assert (tmp_path / "parent").exists()
    assert (tmp_path / "child").exists()


async def test_what_a_command_leaves_in_the_background_ends_with_it(tmp_path: Path) -> None:
    """CLO-2: a command that ends does not wait for what it started, and nothing stays."""
    script = "exec 9>alive; sleep 1000 & echo started"
    with held_open(tmp_path / "alive") as alive:
        done = await run_command(["sh", "-c", script], cwd=tmp_path)
        assert await closed_by_all(alive)
    assert done.text == "started\n"


async def test_the_time_limit_stops_a_command_with_its_children(tmp_path: Path) -> None:
    """CLO-2: as cancelling does."""
    with held_open(tmp_path / "alive") as alive:
        await failed(["sh", "-c", TREE], tmp_path, seconds=0.5)
        assert await closed_by_all(alive)


async def test_who_leaves_the_group_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the output open for ever, and only a sandbox could end it: we go on all the same."""
    monkeypatch.setattr("ferrule.helpers._commands._REST", 0.1)
    os.mkfifo(tmp_path / "left")
    script = "setsid sh -c 'exec 9>alive; echo $$ >left; exec sleep 1000' & cat left"
    with held_open(tmp_path / "alive") as alive:
        done = await run_command(["sh", "-c", script], cwd=tmp_path)
        os.kill(int(done.text), 9)
        assert await closed_by_all(alive)


async def test_a_group_is_on_record_before_its_command_runs(tmp_path: Path) -> None:
    """REC-1: while the record is being kept the group exists, and the command does nothing yet."""
    seen: list[tuple[Record, bool, bool]] = []

    async def keep(_: Context, record: Record) -> None:
        await anyio.run_process([sys.executable, "-c", ""])  # time enough to run, if it could
        assert isinstance(record.data, dict)
        group = record.data["pgid"]
        seen.append((record, os.getpgid(group) == group, (tmp_path / "made").exists()))

    context = Context.of(CALL, recorder=keep)
    await run_command(["touch", "made"], cwd=tmp_path, context=context)
    ((record, group_exists, command_ran),) = seen
    assert record.namespace == "shell:process-group"
    assert isinstance(record.data, dict)
    assert record.data["command"] == ["touch", "made"]
    assert (group_exists, command_ran) == (True, False)
    assert (tmp_path / "made").exists()


async def test_a_command_that_cannot_be_recorded_never_runs(tmp_path: Path) -> None:
    """REC-2: the recorder's error is raised as it is, and the group ends at its gate."""

    async def refuse(_: Context, __: Record) -> None:
        raise OSError("the disk is full")

    with held_open(tmp_path / "alive") as alive:
        with pytest.raises(OSError, match="the disk is full"):
            await run_command(
                ["sh", "-c", "echo ran >alive"],
                cwd=tmp_path,
                context=Context.of(CALL, recorder=refuse),
            )
        assert os.read(alive, 1) == b"", "nothing was written, and nobody is left who could"


async def test_a_command_that_is_killed_at_its_gate_ended_by_a_signal(tmp_path: Path) -> None:
    """FAIL-1: who finds the record may end the group before it begins."""

    async def kill(_: Context, record: Record) -> None:
        assert isinstance(record.data, dict)
        os.killpg(record.data["pgid"], 9)

    with pytest.raises(Failure, match="It ended by signal 9"):
        await run_command(["true"], cwd=tmp_path, context=Context.of(CALL, recorder=kill))


async def test_a_command_whose_record_takes_too_long_never_runs(tmp_path: Path) -> None:
    """REC-1: the time limit counts from the beginning, and ends it at its gate."""

    async def keep(_: Context, __: Record) -> None:
        await anyio.sleep_forever()

    with held_open(tmp_path / "alive") as alive:
        with pytest.raises(Failure, match=r"It was stopped after 0\.3 s"):
            await run_command(
                ["sh", "-c", "echo ran >alive"],
                cwd=tmp_path,
                limits=CommandLimits(seconds=0.3),
                context=Context.of(CALL, recorder=keep),
            )
        assert os.read(alive, 1) == b""


async def test_where_there_are_no_process_groups_nothing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLO-2: what could not be stopped is not started."""
    monkeypatch.delattr(os, "killpg")
    with pytest.raises(NotImplementedError, match="needs process groups"):
        await run_command(["touch", "made"], cwd=tmp_path)
    assert not (tmp_path / "made").exists()


# ---- what it prints ------------------------------------------------------------------------------


async def test_lines_are_progress_and_a_count_says_how_far(tmp_path: Path) -> None:
    """EXE-8: a count that goes back counts for nothing; a line without an end is no line."""
    heard = Heard()
    script = "echo 1/3 first; echo 3/3 last; echo 2/3 again; echo done; printf rest"
    done = await run_command(
        ["sh", "-c", script], cwd=tmp_path, context=Context.of(CALL, on_progress=heard)
    )
    assert [(one.progress, one.total, one.message) for one in heard.lines] == [
        (1, 3, "1/3 first"),
        (3, 3, "3/3 last"),
        (3, 3, "2/3 again"),
        (3, 3, "done"),
    ]
    assert done.text == "1/3 first\n3/3 last\n2/3 again\ndone\nrest"


@pytest.mark.parametrize(
    ("kept", "text"),
    [
        (16, "0123456789abcdef"),
        (10, "01234\n[6 bytes are left out here]\nbcdef"),
        (1, "0\n[15 bytes are left out here]\n"),
    ],
)
async def test_of_a_long_output_both_ends_are_kept(tmp_path: Path, kept: int, text: str) -> None:
    """EXE-11: bounded, and it says what was left out."""
    limits = CommandLimits(output_bytes=kept)
    done = await run_command(["printf", "0123456789abcdef"], cwd=tmp_path, limits=limits)
    assert done.text == text


async def test_an_output_is_cut_between_characters(tmp_path: Path) -> None:
    """EXE-11: half a character is no character, at either end of the cut."""
    limits = CommandLimits(output_bytes=11)
    done = await run_command(["printf", "€" * 10], cwd=tmp_path, limits=limits)
    assert done.text == "€€\n[19 bytes are left out here]\n€"
    odd = await run_command(["printf", r"\377a"], cwd=tmp_path)
    assert odd.text == "\ufffda", "what is no text is shown as such"


async def test_output_without_end_takes_no_memory(tmp_path: Path) -> None:
    """EXE-11: 30 MB in one line go by."""
    script = "head -c 30000000 /dev/zero | tr '\\0' x"
    heard = Heard()
    tracemalloc.start()
    try:
        done = await run_command(
            ["sh", "-c", script], cwd=tmp_path, context=Context.of(CALL, on_progress=heard)
        )
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(done.text) < 33_000
    assert most < 3_000_000


# ---- what may run --------------------------------------------------------------------------------


async def test_se_14_a_command_that_no_rule_matches_never_starts(tmp_path: Path) -> None:
    """SE-14, FAIL-1: refused before anything begins, without its words."""
    rules = [CommandRule("touch", ANY)]
    with pytest.raises(Failure, match="not among those that are allowed") as caught:
        await run_command(["touch", "planted", "other"], cwd=tmp_path, allow=rules)
    assert caught.value.kind == "rejected"
    assert "planted" not in str(caught.value)
    assert not (tmp_path / "planted").exists()
    await run_command(["touch", "made"], cwd=tmp_path, allow=rules)
    assert (tmp_path / "made").exists()
    with pytest.raises(Failure, match="not among"):
        await run_command(["true"], cwd=tmp_path, allow=())


@pytest.mark.parametrize(
    "limits",
    [
        {"seconds": 0},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"output_bytes": 0},
        {"grace": -1},
        {"grace": None},
        {"seconds": "5"},
    ],
    ids=str,
)
def test_limits_that_bound_nothing_are_refused(limits: dict[str, float]) -> None:
    """STYLE 23: when they are made."""
    with pytest.raises(InvalidValue, match="finite and positive"):
        CommandLimits(**limits)  # type: ignore[arg-type]  # numbers
