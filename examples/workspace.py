"""
Six tools of a coding or data agent: real files, real processes, a real SQLite database.

`workspace(root)` prepares a directory and gives the registry of its tools. Every path that a
model writes, and every path that it reads, is relative to that directory. A command is not
confined: it may do what the user may who started this program.

```sh
ferrule list examples/workspace.py
ferrule run examples/workspace.py examples/turns/parallel.json
```
"""

# Matplotlib's types leave its keyword arguments open.
# pyright: reportUnknownMemberType=false

import csv
import fnmatch
import io
import itertools
import math
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypedDict

import anyio
import anyio.to_thread
import matplotlib as mpl
from matplotlib.figure import Figure
from msgspec import Meta

from ferrule import Context, Failure, Image, Registry, Result, Shared, Text, Tool, tool
from ferrule.helpers import CommandLimits, run_command

DATA = Path(__file__).parent / "data"


class Hints(TypedDict):
    """MCP's four hints, all of them stated."""

    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool


LOOKS: Hints = {"read_only": True, "destructive": False, "idempotent": True, "open_world": False}
DRAWS: Hints = {"read_only": False, "destructive": False, "idempotent": True, "open_world": False}
WRITES: Hints = {"read_only": False, "destructive": True, "idempotent": False, "open_world": False}
RUNS: Hints = {"read_only": False, "destructive": True, "idempotent": False, "open_world": True}

PathText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1024)]
Argument: TypeAlias = Annotated[str, Meta(max_length=20_000)]
SQL: TypeAlias = Annotated[str, Meta(min_length=1, max_length=10_000)]


# ---- the directory -------------------------------------------------------------------------------


class NotOpened(Exception):
    """
    A file could not be opened, so nothing was read and nothing was written.

    Attributes:
        path: The file, as the model named it. Where the directory stands is the host's affair.
        reason: What the file system said.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"`{self.path}` cannot be opened: {self.reason}"


class Root:
    """The directory that every path of a model stays below."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()

    def find(self, path: str) -> Path:
        """
        Return where `path` leads, with links and parent steps followed.

        Raises:
            NotOpened: it is absolute, or it leads out of the directory.
        """
        try:
            found = (self.directory / path).resolve()
        except (OSError, RuntimeError, ValueError):  # a loop of links, or a null character
            raise NotOpened(path, "it leads nowhere") from None
        if Path(path).is_absolute() or not found.is_relative_to(self.directory):
            raise NotOpened(path, "it is not in the workspace; give a path relative to it")
        return found

    def name(self, file: Path) -> str:
        """Return how a model names `file`."""
        return file.relative_to(self.directory).as_posix()

    def states(self, path: object) -> tuple[str, ...]:
        """
        Return the state that a call to `path` works on: one name, however the path is spelt.

        A path that leads out has none; the call itself will say so.
        """
        try:
            return (f"file:{self.name(self.find(str(path)))}",)
        except NotOpened:
            return ()

    @contextmanager
    def opening(self, path: str) -> Generator[Path]:
        """Find a file; errors while it is opened become `NotOpened`."""
        try:
            yield self.find(path)
        except (OSError, ValueError) as error:  # the second is a null character in the path
            reason = error.strerror if isinstance(error, OSError) else None
            raise NotOpened(path, (reason or "it leads nowhere").lower()) from error


# ---- files ---------------------------------------------------------------------------------------


class Files:
    """Tools that read and write text files."""

    largest = 2**20
    """Bytes of a file that is read or searched at most."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def tools(self) -> list[Tool]:
        """Return the tools with what a harness may know of each."""
        reads = tool(
            **LOOKS,
            uses=lambda arguments: map(Shared, self._root.states(arguments["path"])),
            replay="safe",
            failures=(NotOpened, UnicodeError),
        )
        # It names no state: beside a write it sees the file before or after.
        searches = tool(**LOOKS, replay="safe", failures=(NotOpened,))
        writes = tool(
            **WRITES,
            uses=lambda arguments: self._root.states(arguments["path"]),
            # A second run of `append` writes twice; of `create`, it finds what the first one wrote.
            replay=lambda arguments: "safe" if _overwrites(arguments) else "unknown",
            failures=(NotOpened,),
        )
        return [reads(self.read_file), searches(self.search_text), writes(self.write_file)]

    def read_file(
        self,
        path: PathText,
        first_line: Annotated[int, Meta(ge=1)] = 1,
        lines: Annotated[int, Meta(ge=1, le=2000)] = 500,
    ) -> str:
        """
        Read a text file of the workspace.

        Args:
            path: File to read, relative to the workspace, as in `notes/plan.txt`.
            first_line: Line to begin with; 1 is the first.
            lines: How many lines to give at most.
        """
        with self._root.opening(path) as file:
            self._check(file, path)
            opened = file.open(encoding="utf-8")
        with opened:
            return "".join(itertools.islice(opened, first_line - 1, first_line - 1 + lines))

    def search_text(
        self,
        text: Annotated[str, Meta(min_length=1, max_length=200)],
        context: Context,
        directory: PathText = ".",
        files: Annotated[str, Meta(min_length=1, max_length=100)] = "*",
        case: Literal["exact", "ignore"] = "exact",
        limit: Annotated[int, Meta(ge=1, le=500)] = 50,
    ) -> str:
        """
        Find the lines that contain a text, in the text files of the workspace.

        Args:
            text: Text to look for, as it is; no pattern.
            directory: Where to look, with everything below it.
            files: Names of the files to look in, as in `*.log`.
            case: Whether upper and lower case differ.
            limit: How many lines to give at most.
        """
        with self._root.opening(directory) as below:
            below.stat()
        found = itertools.islice(self._matches(text, below, files, case, context), limit)
        return "\n".join(found) or "No line contains it."

    def write_file(
        self,
        path: PathText,
        text: str,
        mode: Literal["overwrite", "append", "create"] = "overwrite",
    ) -> str:
        """
        Write a text file of the workspace; directories are made as needed.

        Args:
            path: File to write, relative to the workspace.
            text: What to write.
            mode: `create` refuses to touch a file that exists.
        """
        with self._root.opening(path) as file:
            file.parent.mkdir(parents=True, exist_ok=True)
            opened = file.open(_FLAGS[mode], encoding="utf-8", newline="")
        with opened:
            opened.write(text)
        return f"Wrote {len(text.encode())} bytes to {self._root.name(file)}."

    def _check(self, file: Path, path: str) -> None:
        size = file.stat().st_size
        if not file.is_file():  # opening a pipe or a device may never end
            raise NotOpened(path, "it is no regular file; `search_text` looks into directories")
        if size > self.largest:
            raise NotOpened(path, f"it has more than {self.largest} bytes; use `search_text`")

    def _matches(
        self, text: str, below: Path, files: str, case: str, context: Context
    ) -> Iterator[str]:
        fold = str.casefold if case == "ignore" else str
        sought = fold(text)
        for done, file in enumerate(self._text_files(below, files)):
            if context.cancelled:
                raise Failure("The search was stopped.")
            context.progress(done, message=self._root.name(file))
            try:
                lines = file.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeError):  # gone meanwhile, not ours to read, or no text
                continue
            for number, line in enumerate(lines, 1):
                if sought in fold(line):
                    yield f"{self._root.name(file)}:{number}: {line.strip()[:200]}"

    def _text_files(self, below: Path, pattern: str) -> Iterator[Path]:
        for folder, folders, names in os.walk(below):  # follows no links
            folders.sort()
            for file in (Path(folder, name) for name in sorted(fnmatch.filter(names, pattern))):
                if file.is_symlink() or not file.is_file():
                    continue
                if file.stat().st_size <= self.largest:
                    yield file


_FLAGS: dict[str, Literal["w", "a", "x"]] = {"overwrite": "w", "append": "a", "create": "x"}


def _overwrites(arguments: dict[str, object]) -> bool:
    return arguments.get("mode", "overwrite") == "overwrite"


# ---- commands ------------------------------------------------------------------------------------


class Shell:
    """A tool that runs commands: lists of arguments that no shell reads."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def tools(self) -> list[Tool]:
        """Return the tool with what a harness may know of it."""
        runs = tool(**RUNS, replay="unknown")
        return [runs(self.run_command)]

    async def run_command(
        self,
        command: Annotated[list[Argument], Meta(min_length=1, max_length=200)],
        context: Context,
        seconds: Annotated[int, Meta(ge=1, le=3600)] = 120,
    ) -> Result:
        """
        Run a command in the workspace and return what it printed.

        Nothing is typed into it, and nothing that it started goes on once it has ended.

        Args:
            command: The command and its arguments, each one text; no shell reads them.
            seconds: When to stop it.
        """
        limits = CommandLimits(seconds=seconds)
        return await run_command(command, cwd=self._root.directory, limits=limits, context=context)


# ---- data ----------------------------------------------------------------------------------------

Cell: TypeAlias = str | int | float | None


@dataclass(frozen=True)
class Rows:
    """
    What a query gave.

    Attributes:
        columns: Their names.
        rows: A list of values for each row.
        more: Whether there are more rows than were asked for.
    """

    columns: list[str]
    rows: list[list[Cell]]
    more: bool


@dataclass(frozen=True)
class Chart:
    """
    How a plot looks.

    Attributes:
        kind: What stands for a row.
        title: What it shows.
        x_label: What the first column is; its name if left out.
        y_label: What the second column is, with its unit; its name if left out.
    """

    kind: Literal["bar", "line", "scatter"]
    title: Annotated[str, Meta(max_length=100)]
    x_label: Annotated[str, Meta(max_length=60)] | None = None
    y_label: Annotated[str, Meta(max_length=60)] | None = None


class Shop:
    """Tools that read the shop's database."""

    seconds = 10.0
    """How long a query may run."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self.database = root.directory / "shop.db"

    def tools(self) -> list[Tool]:
        """Return the tools with what a harness may know of each."""
        asks = tool(**LOOKS, replay="safe", failures=(sqlite3.Error, sqlite3.Warning))
        draws = tool(
            **DRAWS,
            uses=lambda arguments: self._root.states(f"plots/{arguments['name']}.png"),
            replay="safe",
            failures=(NotOpened, sqlite3.Error, sqlite3.Warning),
        )
        return [asks(self.query_database), draws(self.plot)]

    def query_database(
        self, sql: SQL, context: Context, limit: Annotated[int, Meta(ge=1, le=500)] = 50
    ) -> Rows:
        """
        Ask the shop's SQLite database; one statement that reads.

        Its tables are customers(id, name, city, country, joined_on), products(id, name, category,
        price, stock) and orders(id, customer_id, product_id, quantity, status, ordered_on).
        Prices are in euro, dates are text such as 2024-03-31, and the status of an order is paid,
        shipped, delivered, returned or cancelled.

        Args:
            sql: The statement, in SQLite's dialect.
            limit: How many rows to give at most.
        """
        return self._ask(sql, limit, context)

    def plot(
        self,
        sql: SQL,
        chart: Chart,
        name: Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9-]{0,59}$")],
        context: Context,
    ) -> list[Text | Image]:
        """
        Draw the result of a query on the shop's database and save the picture in the workspace.

        Args:
            sql: A statement that reads and gives two columns: x, then y as numbers.
            chart: How the plot looks.
            name: What to save it as: `revenue` is saved as `plots/revenue.png`.
        """
        found = self._ask(sql, 500, context)
        picture = _drawn(*_axes(found), chart, found.columns)
        path = f"plots/{name}.png"
        with self._root.opening(path) as file:
            file.parent.mkdir(exist_ok=True)
            opened = file.open("wb")
        with opened:
            opened.write(picture)
        return [
            Text(f"Drew {len(found.rows)} rows and saved the picture as {path}."),
            Image(data=picture, mime_type="image/png"),
        ]

    def _ask(self, sql: str, limit: int, context: Context) -> Rows:
        until = time.monotonic() + self.seconds
        only_reads = OnlyReads()
        with closing(sqlite3.connect(f"{self.database.as_uri()}?mode=ro", uri=True)) as connection:
            connection.set_authorizer(only_reads)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
            connection.set_progress_handler(
                lambda: context.cancelled or time.monotonic() > until, 10_000
            )
            try:
                cursor = connection.execute(sql)
                rows = cursor.fetchmany(limit + 1)
            except sqlite3.Error as error:
                if only_reads.refused:
                    sentence = "Only statements that read are allowed here: write one SELECT."
                    raise Failure(sentence, cause=error) from error
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                    sentence = f"The query was stopped; it may run for {self.seconds:g} s."
                    raise Failure(sentence, cause=error) from error
                raise
        columns = [column[0] for column in cursor.description or ()]
        return Rows(columns, [[_cell(v) for v in row] for row in rows[:limit]], len(rows) > limit)


class OnlyReads:
    """Lets SQLite compile statements that read, and no others: no ATTACH, no PRAGMA."""

    reads = (
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
    )

    def __init__(self) -> None:
        self.refused = False

    def __call__(self, action: int, *_: object) -> int:
        """Answer SQLite's question about one step of a statement."""
        if action in self.reads:
            return sqlite3.SQLITE_OK
        self.refused = True
        return sqlite3.SQLITE_DENY


def _cell(value: object) -> Cell:
    """Return a value of SQLite as JSON can carry it."""
    match value:
        case str():
            return value[:2000]
        case bytes():
            return f"<{len(value)} bytes>"
        case float() if not math.isfinite(value):
            return str(value)
        case None | int() | float():
            return value
        case _:
            return str(value)


def _axes(found: Rows) -> tuple[list[str] | list[float], list[float]]:
    """Return x and y of a result; numbers stay numbers, anything else is a label."""
    match found:
        case Rows(columns=[_, _], rows=[_, *_], more=False):
            x, y = zip(*found.rows, strict=True)
        case _:
            raise Failure("A plot needs a query that gives two columns and 1 to 500 rows.")
    heights = [float(value) for value in y if isinstance(value, int | float)]
    if len(heights) < len(y):
        raise Failure(f"The second column, `{found.columns[1]}`, is not all numbers.")
    numbers = [float(value) for value in x if isinstance(value, int | float)]
    return numbers if len(numbers) == len(x) else [str(value) for value in x], heights


_drawing = threading.Lock()
"""Matplotlib is not safe between threads, and two batches may draw at once."""


def _drawn(
    x: list[str] | list[float], y: list[float], chart: Chart, columns: Sequence[str]
) -> bytes:
    """Return the PNG of a chart."""
    written = io.BytesIO()
    # A title is text: without this, two `$` in it would be TeX.
    with _drawing, mpl.rc_context({"text.parse_math": False}):
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot()
        match chart.kind:
            case "bar":
                axes.bar(x, y)
            case "line":
                axes.plot(x, y)
            case "scatter":
                axes.scatter(x, y)
        axes.set(
            title=chart.title,
            xlabel=columns[0] if chart.x_label is None else chart.x_label,
            ylabel=columns[1] if chart.y_label is None else chart.y_label,
        )
        figure.autofmt_xdate()
        figure.savefig(written, format="png")
    return written.getvalue()


# ---- the workspace -------------------------------------------------------------------------------


@asynccontextmanager
async def workspace(directory: Path) -> AsyncGenerator[Registry]:
    """
    Give the registry of the six tools on `directory`.

    A directory that is missing or empty gets a few files to work on, and the database is made
    where there is none. What is there already stays as it is.
    """
    await anyio.to_thread.run_sync(prepare, directory)
    root = Root(directory)
    offered = [*Files(root).tools(), *Shell(root).tools(), *Shop(root).tools()]
    async with Registry(offered) as registry:
        yield registry


def tools() -> AbstractAsyncContextManager[Registry]:
    """Give the tools that the command line runs: those on `./workspace`."""
    return workspace(Path("workspace"))


def prepare(directory: Path) -> None:
    """Make `directory` what the tools expect, from the data beside this file."""
    directory.mkdir(parents=True, exist_ok=True)
    if not any(directory.iterdir()):
        shutil.copytree(DATA / "files", directory, dirs_exist_ok=True)
    if not (directory / "shop.db").exists():
        _make_database(directory / "shop.db")


_ROWS = {
    "customers": "INSERT INTO customers VALUES (?, ?, ?, ?, ?)",
    "products": "INSERT INTO products VALUES (?, ?, ?, ?, ?)",
    "orders": "INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?)",
}


def _make_database(path: Path) -> None:
    """Make the database from the tables in `data`: whole, or not at all."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as beside:
        unfinished = Path(beside, path.name)
        with closing(sqlite3.connect(unfinished)) as connection, connection:
            connection.executescript((DATA / "shop.sql").read_text(encoding="utf-8"))
            for table, insert in _ROWS.items():
                with (DATA / f"{table}.csv").open(encoding="utf-8", newline="") as file:
                    connection.executemany(insert, itertools.islice(csv.reader(file), 1, None))
        unfinished.replace(path)
