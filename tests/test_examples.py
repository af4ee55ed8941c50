"""The examples do what they say: on real files, real processes and a real database."""

import functools
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import anyio
import anyio.to_thread
import jsonschema_rs
import msgspec
import pytest

from ferrule import (
    Completed,
    Context,
    Executor,
    Failed,
    Finished,
    Image,
    Outcome,
    Progressed,
    Record,
    Registry,
    Rejected,
    Started,
    Text,
    ToolCall,
    Unknown,
)
from ferrule.wire.openresponses import Wire
from support import closed_by_all, held_open

EXAMPLES = Path(__file__).parent.parent / "examples"

Workspace: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Registry]]


@functools.cache
def loaded() -> ModuleType:
    """Load `examples/workspace.py` once."""
    spec = importlib.util.spec_from_file_location("workspace", EXAMPLES / "workspace.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def example(require: Callable[..., None]) -> ModuleType:
    """Give the example, which needs matplotlib."""
    require(importlib.util.find_spec("matplotlib"), "matplotlib, from the extra `examples`")
    return loaded()


@pytest.fixture
def workspace(example: ModuleType) -> Workspace:
    """Give the function that makes a registry of the six tools on a directory."""
    made: Workspace = example.workspace
    return made


@pytest.fixture
def prepared(example: ModuleType, tmp_path: Path) -> Path:
    """Give a directory that has all the files of the example."""
    directory = tmp_path / "workspace"
    example.prepare(directory)
    return directory


def turn(name: str) -> dict[str, Any]:
    """Read one of the turns."""
    read: dict[str, Any] = json.loads((EXAMPLES / "turns" / f"{name}.json").read_text())
    return read


def calls_of(name: str, registry: Registry) -> list[ToolCall]:
    """Return the calls of a turn."""
    return Wire(registry).calls(turn(name))


def files_below(directory: Path) -> dict[str, bytes]:
    """Return every file below a directory with what is in it."""
    return {
        str(f.relative_to(directory)): f.read_bytes() for f in directory.rglob("*") if f.is_file()
    }


async def ran(
    workspace: Workspace, directory: Path, name: str, arguments: dict[str, object]
) -> Outcome:
    """Run one call."""
    async with workspace(directory) as registry:
        return (await Executor(registry).run([ToolCall.of(name, arguments)]))[0]


# ---- turns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["parallel", "mistakes", "failing", "slow", "refunds"])
def test_a_turn_holds_calls_as_a_provider_sends_them(name: str) -> None:
    """WIRE-1: each has every member that the format requires, beside items that are no calls."""
    items = turn(name)["output"]
    calls = [item for item in items if item["type"] == "function_call"]
    assert 4 <= len(calls) < len(items)
    for call in calls:
        jsonschema_rs.validate(schema_of("FunctionCall"), call)


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["parallel", "mistakes", "failing"])
async def test_every_call_of_a_turn_gets_one_output_in_the_turns_order(
    workspace: Workspace, tmp_path: Path, name: str
) -> None:
    """EXE-1, WIRE-1, WIRE-2, FAIL-5: whatever the others do, and without a path of the host."""
    written = [item["call_id"] for item in turn(name)["output"] if item["type"] == "function_call"]
    async with workspace(tmp_path) as registry:
        wire = Wire(registry)
        calls = wire.calls(turn(name))
        outputs = wire.outputs(calls, await Executor(registry).run(calls))
    assert [output["call_id"] for output in outputs] == written
    for output in outputs:
        jsonschema_rs.validate(schema_of("FunctionCallOutputItemParam"), output)
    assert str(tmp_path) not in json.dumps(outputs)


def schema_of(item: str) -> Any:  # noqa: ANN401  # a schema is any JSON
    """Return the schema of an item of Open Responses."""
    document = Path(__file__).parent / "corpus/openresponses/tool-items.json"
    return json.loads(document.read_text())["schemas"][item]


@pytest.mark.anyio
async def test_the_parallel_turn_completes_and_its_notes_are_in_order(
    workspace: Workspace, tmp_path: Path
) -> None:
    """EXE-3: a read of what was written waits for both writes, however its path is spelt."""
    async with workspace(tmp_path) as registry:
        held = LetsOthersPass("call_note_2")
        outcomes = await Executor(registry, on_dispatch=held).run(calls_of("parallel", registry))
    assert all(isinstance(outcome, Completed) for outcome in outcomes)
    notes = outcomes[-1].text.splitlines()
    assert [note[:2] for note in notes] == ["1.", "2."]


@pytest.mark.anyio
async def test_the_plot_is_a_picture_and_is_saved_under_the_path_that_is_named(
    workspace: Workspace, tmp_path: Path
) -> None:
    """FN-6: content blocks reach the model as they are."""
    async with workspace(tmp_path) as registry:
        call = next(call for call in calls_of("parallel", registry) if call.name == "plot")
        outcome = (await Executor(registry).run([call]))[0]
    assert isinstance(outcome, Completed)
    text, image = outcome.result.content
    assert isinstance(text, Text)
    assert isinstance(image, Image)
    assert image.mime_type == "image/png"
    assert "plots/revenue-by-month.png" in text.text
    assert (tmp_path / "plots/revenue-by-month.png").read_bytes() == image.data
    colours = colours_of(image.data or b"")
    assert len(colours) > 2, "background, text and bars"


def colours_of(picture: bytes) -> set[tuple[float, ...]]:
    """Decode a PNG and return the colours in it."""
    image = importlib.import_module("matplotlib.image")
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    return {
        tuple(pixel) for row in image.imread(io.BytesIO(picture), format="png") for pixel in row
    }


@pytest.mark.anyio
async def test_two_writes_to_one_file_land_in_the_models_order_every_time(
    workspace: Workspace, tmp_path: Path
) -> None:
    """EXE-3: 200 runs, in each of which the first write would be overtaken if it could be."""
    async with workspace(tmp_path / "names") as registry:
        calls = [c for c in calls_of("parallel", registry) if c.name == "write_file"]
    assert len({json.loads(call.arguments)["path"] for call in calls}) == len(calls) == 2
    expected = "".join(json.loads(call.arguments)["text"] for call in calls)
    for number in range(200):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / "shop.db").touch()  # no need for a database
        async with workspace(directory) as registry:
            await Executor(registry, on_dispatch=LetsOthersPass(calls[0].id)).run(calls)
        assert (directory / "notes/today.txt").read_text() == expected


class LetsOthersPass:
    """Holds one call back when it is dispatched, for as long as others have something to do."""

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id

    async def __call__(self, context: Context) -> None:
        """Give way often enough for a sibling to be dispatched and to write."""
        if context.call_id == self.call_id:
            for _ in range(10):
                await anyio.to_thread.run_sync(int)


@pytest.mark.anyio
async def test_calls_with_mistakes_are_refused_and_leave_nothing_behind(
    workspace: Workspace, prepared: Path
) -> None:
    """ADM-2, ADM-5: the good calls beside them run, and the refused ones touch no file."""
    before = files_below(prepared)
    async with workspace(prepared) as registry:
        calls = calls_of("mistakes", registry)
        outcomes = await Executor(registry).run(calls)
    assert [
        (c.id, o.kind if isinstance(o, Rejected) else "")
        for c, o in zip(calls, outcomes, strict=True)
    ] == [
        ("call_plan", ""),
        ("call_missing", "invalid_arguments"),
        ("call_unknown", "unknown_tool"),
        ("call_misspelt", "invalid_arguments"),
        ("call_broken", "invalid_json"),
        ("call_plan", "duplicate_id"),
        ("call_stock", ""),
    ]
    assert "mode" in outcomes[3].text, "the near name"
    assert files_below(prepared) == before


@pytest.mark.anyio
async def test_a_failing_tool_says_what_went_wrong_and_its_siblings_complete(
    workspace: Workspace, tmp_path: Path
) -> None:
    """FAIL-4, EXE-5: a missing file is a failure that a model can read, and not unknown."""
    async with workspace(tmp_path) as registry:
        calls = calls_of("failing", registry)
        outcomes = await Executor(registry).run(calls)
    failed = {c.id: o.text for c, o in zip(calls, outcomes, strict=True) if isinstance(o, Failed)}
    assert failed == {
        "call_last_week": "Error: `notes/last-week.txt` cannot be opened: "
        "no such file or directory",
        "call_check": "Error: It ended with exit status 3.\n2 of 3 checks passed",
        "call_column": "Error: no such column: amount",
        "call_delete": "Error: Only statements that read are allowed here: write one SELECT.",
        "call_outside": "Error: `../../etc/passwd` cannot be opened: it is not in the workspace; "
        "give a path relative to it",
    }
    good = [
        call.id
        for call, outcome in zip(calls, outcomes, strict=True)
        if isinstance(outcome, Completed)
    ]
    assert good == ["call_suppliers", "call_cancelled"]


@pytest.mark.anyio
async def test_twelve_slow_calls_run_four_at_a_time_and_tell_how_far_they_are(
    workspace: Workspace, tmp_path: Path
) -> None:
    """EXE-2, EXE-8: the last progress of each call is seen before its end."""
    last: dict[int, Progressed] = {}
    running: set[int] = set()
    most = 0
    async with workspace(tmp_path) as registry:
        calls = [without_waiting(call) for call in calls_of("slow", registry)]
        async with Executor(registry, max_parallel=4).batch(calls) as batch:
            async for event in batch:
                match event:
                    case Started(index=index):
                        running.add(index)
                        most = max(most, len(running))
                    case Progressed(index=index):
                        last[index] = event
                    case Finished(index=index):
                        running.remove(index)
                        assert (last[index].progress, last[index].total) == (10, 10)
    assert len(calls) == len(batch.outcomes) == 12
    assert all(isinstance(outcome, Completed) for outcome in batch.outcomes)
    assert most == 4


def without_waiting(call: ToolCall) -> ToolCall:
    """Return a slow call that does the same at once."""
    return msgspec.structs.replace(
        call, arguments=re.sub(r"sleep\([0-9.]+\)", "sleep(0)", call.arguments)
    )


# ---- files ---------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(
    "path",
    [
        "../kept.txt",
        "notes/../../kept.txt",
        "link/kept.txt",
        "{outside}/kept.txt",
        "{outside}/workspace/README.txt",
        "loop",
    ],
)
@pytest.mark.parametrize("name", ["read_file", "write_file", "search_text"])
async def test_a_path_that_leads_out_of_the_workspace_is_a_failure(
    workspace: Workspace, prepared: Path, name: str, path: str
) -> None:
    """FAIL-4, FAIL-5: parent steps, links and absolute paths; the sentence says what to do."""
    outside = prepared.parent
    (outside / "kept.txt").write_text("kept\n")
    (prepared / "link").symlink_to(outside)
    (prepared / "loop").symlink_to("loop")
    path = path.format(outside=outside)
    arguments: dict[str, dict[str, object]] = {
        "read_file": {"path": path},
        "write_file": {"path": path, "text": "changed"},
        "search_text": {"directory": path, "text": "kept"},
    }
    outcome = await ran(workspace, prepared, name, arguments[name])
    assert isinstance(outcome, Failed)
    assert outcome.text.startswith(f"Error: `{path}` cannot be opened: ")
    assert (outside / "kept.txt").read_text() == "kept\n"
    if not path.startswith("/"):
        assert str(outside) not in outcome.text


@pytest.mark.anyio
async def test_a_search_follows_no_link_out_of_the_workspace(
    workspace: Workspace, prepared: Path
) -> None:
    """FAIL-5: what is outside stays unread."""
    (prepared.parent / "secret.txt").write_text("needle\n")
    (prepared / "folder").symlink_to(prepared.parent)
    (prepared / "secret.txt").symlink_to(prepared.parent / "secret.txt")
    (prepared / "hay.txt").write_text("a Needle\n")
    outcome = await ran(workspace, prepared, "search_text", {"text": "NEEDLE", "case": "ignore"})
    assert outcome.text == "hay.txt:1: a Needle"


def test_a_file_is_one_state_however_its_path_is_spelt(example: ModuleType, prepared: Path) -> None:
    """EXE-3: `uses` is computed from the validated path; a link to a file is that file."""
    (prepared / "link.txt").symlink_to("a.txt")
    root = example.Root(prepared)
    spellings = ["a.txt", "./a.txt", "notes/../a.txt", "missing/../a.txt", "link.txt"]
    assert {root.states(path) for path in spellings} == {("file:a.txt",)}
    assert root.states("../a.txt") == ()


@pytest.mark.anyio
async def test_the_modes_of_a_write_differ_where_the_file_exists(
    workspace: Workspace, tmp_path: Path
) -> None:
    """FAIL-4: `create` touches nothing that is there."""
    calls = [
        ToolCall.of("write_file", {"path": "a.txt", "text": "x", "mode": mode})
        for mode in ("create", "append", "create", "overwrite", "append")
    ]
    async with workspace(tmp_path) as registry:
        outcomes = await Executor(registry).run(calls)
    assert [type(outcome) for outcome in outcomes] == [
        Completed,
        Completed,
        Failed,
        Completed,
        Completed,
    ]
    assert outcomes[2].text == "Error: `a.txt` cannot be opened: file exists"
    assert (tmp_path / "a.txt").read_text() == "xx"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("notes", "it is no regular file; `search_text` looks into directories"),
        ("pipe", "it is no regular file; `search_text` looks into directories"),
        ("README.txt/x", "not a directory"),
        ("large.txt", "it has more than 1048576 bytes; use `search_text`"),
        ("null\0.txt", "it leads nowhere"),
        ("x" * 300, "file name too long"),
    ],
)
async def test_what_is_no_text_file_is_not_read(
    workspace: Workspace, prepared: Path, path: str, reason: str
) -> None:
    """FAIL-4: a pipe, whose reading may never end, is not even opened."""
    os.mkfifo(prepared / "pipe")
    (prepared / "large.txt").write_bytes(b" " * (2**20 + 1))
    outcome = await ran(workspace, prepared, "read_file", {"path": path})
    assert outcome.text == f"Error: `{path}` cannot be opened: {reason}"


@pytest.mark.anyio
async def test_a_file_is_read_from_a_line_for_some_lines(
    workspace: Workspace, tmp_path: Path
) -> None:
    """FN-4: what is left out has its default."""
    (tmp_path / "lines.txt").write_text("one\ntwo\nthree\nfour\n")
    some = await ran(
        workspace, tmp_path, "read_file", {"path": "lines.txt", "first_line": 2, "lines": 2}
    )
    every = await ran(workspace, tmp_path, "read_file", {"path": "lines.txt"})
    assert (some.text, every.text) == ("two\nthree\n", "one\ntwo\nthree\nfour\n")


# ---- commands ------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_cancelled_command_is_gone_with_its_whole_process_group(
    workspace: Workspace, prepared: Path
) -> None:
    """CLO-2, EXE-6: the command and what it started hold a pipe until they die."""
    command = ["sh", "-c", "exec 9>alive; sleep 1000 & echo started; wait"]
    with held_open(prepared / "alive") as alive:
        async with workspace(prepared) as registry:
            call = ToolCall.of("run_command", {"command": command, "seconds": 20})
            async with Executor(registry).batch([call]) as batch:
                async for event in batch:
                    if isinstance(event, Progressed) and event.message == "started":
                        break
        assert await closed_by_all(alive)
    outcome = batch.outcomes[0]
    assert isinstance(outcome, Unknown)
    assert outcome.reason == "cancelled"


@pytest.mark.anyio
async def test_what_a_command_leaves_in_the_background_ends_with_it(
    workspace: Workspace, prepared: Path
) -> None:
    """CLO-2: a command that ends does not wait for what it started, and nothing stays."""
    command = ["sh", "-c", "exec 9>alive; sleep 1000 & echo started"]
    with held_open(prepared / "alive") as alive:
        arguments: dict[str, object] = {"command": command, "seconds": 20}
        outcome = await ran(workspace, prepared, "run_command", arguments)
        assert await closed_by_all(alive)
    assert outcome.text == "started\n"


@pytest.mark.anyio
async def test_a_process_group_is_on_record_before_the_command_runs(
    workspace: Workspace, prepared: Path
) -> None:
    """REC-1: while the record is being kept the group exists, and the command does nothing yet."""
    seen: list[tuple[Record, bool, bool]] = []

    async def keep(_: Context, record: Record) -> None:
        await anyio.run_process([sys.executable, "-c", ""])  # time enough to run, if it could
        assert isinstance(record.data, dict)
        group = record.data["pgid"]
        seen.append((record, os.getpgid(group) == group, (prepared / "made").exists()))

    async with workspace(prepared) as registry:
        call = ToolCall.of("run_command", {"command": ["touch", "made"]})
        outcomes = await Executor(registry, recorder=keep).run([call])
    assert isinstance(outcomes[0], Completed)
    assert (prepared / "made").exists()
    ((record, group_exists, command_ran),) = seen
    assert record.namespace == "shell:process-group"
    assert isinstance(record.data, dict)
    assert record.data["command"] == ["touch", "made"]
    assert (group_exists, command_ran) == (True, False)


@pytest.mark.anyio
async def test_a_command_that_cannot_be_recorded_never_runs(
    workspace: Workspace, prepared: Path
) -> None:
    """REC-2: the recorder's error reaches the tool, which ends the group at its gate."""

    async def refuse(_: Context, __: Record) -> None:
        raise OSError("the disk is full")

    with held_open(prepared / "alive") as alive:
        async with workspace(prepared) as registry:
            call = ToolCall.of("run_command", {"command": ["sh", "-c", "echo ran >alive"]})
            outcomes = await Executor(registry, recorder=refuse).run([call])
        assert os.read(alive, 1) == b"", "nothing was written, and nobody is left who could"
    assert isinstance(outcomes[0], Unknown)


@pytest.mark.anyio
async def test_progress_comes_from_lines_that_count(workspace: Workspace, prepared: Path) -> None:
    """EXE-8: the last is delivered before the end; a count that goes back counts for nothing."""
    script = "echo 1/3 first; echo 3/3 last; echo 2/3 again; echo done"
    said: list[Progressed] = []
    async with workspace(prepared) as registry:
        call = ToolCall.of("run_command", {"command": ["sh", "-c", script]})
        async with Executor(registry).batch([call]) as batch:
            async for event in batch:
                if isinstance(event, Progressed):
                    said.append(event)
    assert (said[-1].progress, said[-1].total, said[-1].message) == (3, 3, "done")
    assert batch.outcomes[0].text == "1/3 first\n3/3 last\n2/3 again\ndone\n"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("command", "text"),
    [
        (
            ["no-such-command", "x"],
            "Error: there is no command `no-such-command` here; no shell reads the list",
        ),
        (
            ["./missing.sh"],
            "Error: there is no command `./missing.sh` here; no shell reads the list",
        ),
        (["echo", "a\0b"], "Error: A command cannot carry a null character."),
        (["echo", "$HOME", "; ls", "*"], "$HOME ; ls *\n"),
        (["cat"], "It printed nothing."),
        (["sh", "-c", "yes | head -1"], "y\n"),  # signals are as in a shell
        (
            ["sh", "-c", "echo out; echo err >&2; exit 3"],
            "Error: It ended with exit status 3.\nout\nerr",
        ),
        (["sh", "-c", "kill -9 $$"], "Error: It ended by signal 9."),
    ],
)
async def test_a_command_is_a_list_that_no_shell_reads(
    workspace: Workspace, tmp_path: Path, command: list[str], text: str
) -> None:
    """FAIL-4: what could not be run, or ended badly, is a failure with a sentence."""
    assert (await ran(workspace, tmp_path, "run_command", {"command": command})).text == text


@pytest.mark.anyio
async def test_a_command_sees_little_of_our_environment(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAIL-5: no value of the environment reaches a model through a command that prints them."""
    monkeypatch.setenv("PLANTED_TOKEN", "planted")
    outcome = await ran(workspace, tmp_path, "run_command", {"command": ["env"]})
    names = {line.partition("=")[0] for line in outcome.text.splitlines()}
    assert names <= {"PATH", "LANG", "LC_ALL", "TZ", "PWD", "LC_CTYPE"}


@pytest.mark.anyio
async def test_of_a_long_output_the_first_and_the_last_are_kept(
    workspace: Workspace, tmp_path: Path
) -> None:
    """EXE-11: what a model reads is bounded, and says what was left out."""
    outcome = await ran(workspace, tmp_path, "run_command", {"command": ["seq", "200000"]})
    assert outcome.text.startswith("1\n2\n")
    assert outcome.text.endswith("\n200000\n")
    size = sum(len(f"{number}\n") for number in range(1, 200_001))
    assert f"[{size - 32 * 1024} bytes are left out here]" in outcome.text


@pytest.mark.anyio
async def test_a_command_that_takes_too_long_is_stopped(
    workspace: Workspace, tmp_path: Path
) -> None:
    """FAIL-1: it was killed, which is a definite end."""
    command = ["sh", "-c", "echo begun; sleep 1000"]
    outcome = await ran(workspace, tmp_path, "run_command", {"command": command, "seconds": 1})
    assert outcome.text == "Error: It was stopped after 1 s.\nbegun"


# ---- data ----------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_query_gives_structure(workspace: Workspace, tmp_path: Path) -> None:
    """FN-6: a dataclass is structured content, and a model reads it as JSON."""
    sql = "SELECT name, price FROM products ORDER BY price DESC"
    outcome = await ran(workspace, tmp_path, "query_database", {"sql": sql, "limit": 1})
    assert isinstance(outcome, Completed)
    assert json.loads(outcome.text) == {
        "columns": ["name", "price"],
        "rows": [["Electric grinder", 149]],
        "more": True,
    }


@pytest.mark.anyio
@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM orders",
        "UPDATE products SET price = 0",
        "INSERT INTO orders VALUES (1, 1, 1, 1, 'paid', '2024-01-01')",
        "REPLACE INTO products VALUES (1, 'x', 'x', 0, 0)",
        "DROP TABLE orders",
        "CREATE TABLE t (x)",
        "CREATE TEMP TABLE t (x)",
        "ATTACH 'new.db' AS new",
        "VACUUM INTO 'new.db'",
        "PRAGMA user_version = 7",
        "BEGIN",
    ],
)
async def test_sql_that_writes_is_refused(workspace: Workspace, prepared: Path, sql: str) -> None:
    """FAIL-1: with a sentence, before SQLite runs a step of it."""
    before = files_below(prepared)
    outcome = await ran(workspace, prepared, "query_database", {"sql": sql})
    assert outcome.text == "Error: Only statements that read are allowed here: write one SELECT."
    assert files_below(prepared) == before


@pytest.mark.anyio
async def test_the_database_is_opened_for_reading_alone(
    workspace: Workspace, example: ModuleType, prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAIL-1: were the statement let through, SQLite would still refuse to write."""
    monkeypatch.setattr(example.OnlyReads, "__call__", lambda *_: 0)
    outcome = await ran(workspace, prepared, "query_database", {"sql": "DELETE FROM orders"})
    assert outcome.text == "Error: attempt to write a readonly database"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT amount FROM products", "no such column: amount"),
        ("SELECT 1; SELECT 2", "You can only execute one statement at a time."),
        ("SELECT load_extension('x')", "not authorized"),
        ("SELECT zeroblob(1000000000)", "string or blob too big"),
    ],
)
async def test_sqlites_own_sentences_reach_the_model(
    workspace: Workspace, tmp_path: Path, sql: str, text: str
) -> None:
    """FAIL-4: they are among the tool's `failures`."""
    outcome = await ran(workspace, tmp_path, "query_database", {"sql": sql})
    assert isinstance(outcome, Failed)
    assert outcome.text == f"Error: {text}"


@pytest.mark.anyio
async def test_a_query_that_never_ends_is_stopped(
    workspace: Workspace, example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAIL-1: SQLite asks between its steps whether it may go on."""
    monkeypatch.setattr(example.Shop, "seconds", 0.0)
    sql = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT sum(x) FROM n"
    outcome = await ran(workspace, tmp_path, "query_database", {"sql": sql})
    assert outcome.text == "Error: The query was stopped; it may run for 0 s."


@pytest.mark.anyio
async def test_values_that_json_cannot_carry_are_said_in_words(
    workspace: Workspace, tmp_path: Path
) -> None:
    """FN-6: nothing that a query can give makes the call `Unknown`."""
    sql = (
        "SELECT 9e999, x'00ff', NULL, -9223372036854775808, replace(hex(zeroblob(9999)), '0', 'a')"
    )
    outcome = await ran(workspace, tmp_path, "query_database", {"sql": sql})
    assert json.loads(outcome.text)["rows"] == [["inf", "<2 bytes>", None, -(2**63), "a" * 2000]]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["bar", "line", "scatter"])
async def test_each_kind_of_chart_is_drawn_and_its_title_is_no_formula(
    workspace: Workspace, tmp_path: Path, kind: str
) -> None:
    """FN-2: the function receives the dataclass at its depth, with what was left out."""
    chart = {"kind": kind, "title": r"from 5 $ to \frac{ $"}
    arguments: dict[str, object] = {
        "sql": "SELECT id, price FROM products",
        "chart": chart,
        "name": kind,
    }
    outcome = await ran(workspace, tmp_path, "plot", arguments)
    assert isinstance(outcome, Completed)
    assert len(colours_of((tmp_path / f"plots/{kind}.png").read_bytes())) > 2


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("sql", "text"),
    [
        (
            "SELECT id FROM products",
            "A plot needs a query that gives two columns and 1 to 500 rows.",
        ),
        ("SELECT 1, 2 WHERE 0", "A plot needs a query that gives two columns and 1 to 500 rows."),
        (
            "SELECT a.id, b.id FROM orders a, orders b",
            "A plot needs a query that gives two columns and 1 to 500 rows.",
        ),
        ("SELECT id, name FROM products", "The second column, `name`, is not all numbers."),
    ],
)
async def test_what_cannot_be_drawn_is_a_failure_and_leaves_no_picture(
    workspace: Workspace, tmp_path: Path, sql: str, text: str
) -> None:
    """FAIL-1: the sentence says what a query must give."""
    arguments: dict[str, object] = {
        "sql": sql,
        "chart": {"kind": "bar", "title": "t"},
        "name": "none",
    }
    assert (await ran(workspace, tmp_path, "plot", arguments)).text == f"Error: {text}"
    assert not (tmp_path / "plots").exists()


# ---- the whole -----------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_every_tool_states_its_hints_and_its_text(
    workspace: Workspace, tmp_path: Path
) -> None:
    """AUT-3: unstated is not false, so all four are stated; each parameter has its text."""
    async with workspace(tmp_path) as registry:
        assert registry.names == [
            "plot",
            "query_database",
            "read_file",
            "run_command",
            "search_text",
            "write_file",
        ]
        for offered in registry:
            assert len(offered.traits.hints) == 4
            properties = offered.definition.input_schema["properties"]
            assert isinstance(properties, dict)
            assert all("description" in schema for schema in properties.values())


@pytest.mark.anyio
async def test_what_is_in_the_workspace_already_stays(
    workspace: Workspace, example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLO-1: the default entry makes `./workspace` once and never again."""
    monkeypatch.chdir(tmp_path)
    async with example.tools():
        pass
    made = tmp_path / "workspace"
    (made / "README.txt").unlink()
    assert (made / "shop.db").stat().st_size > 0
    for name in ("notes/plan.txt", "shop.db"):
        (made / name).write_text("mine")
    before = files_below(made)
    async with example.tools():
        pass
    assert files_below(made) == before


def test_the_first_example_prints_what_it_says() -> None:
    """JSON-1, ADM-2: the example of the README, as a program of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "hello.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == (
        "6 rows\n"
        'Error: invalid arguments: unexpected property "hours"; accepted: hours_back, limit '
        "(did you mean hours_back?)\n"
        "Error: invalid json: limit: a member name is repeated\n"
    )


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_loop_of_ones_own_runs_calls_as_an_executor_does(backend: str) -> None:
    """EXE-13: with `Leg`, `Context.of`, `authorize`, `call` and `Schedule`, and no more."""
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            f"import anyio, own_loop; anyio.run(own_loop.main, backend={backend!r})",
        ],
        cwd=Path(__file__).parents[1] / "examples",
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "booked 1",
        "Suspended",
        "Error: invalid arguments: amount: expected integer, got string",
        "booked 1000",
    ]
