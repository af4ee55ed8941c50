"""A journal, read without a line of the product: what its tables say, from a copy of its files."""

import json
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, cast

import msgspec

Data: TypeAlias = dict[str, Any] | None
"""What goes with a step or an outcome."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call; `id` is the journal's, `call` the model's, which no other call of a world has."""

    id: str
    call: str
    batch: str
    position: int
    state: str
    leg: int = 1
    fence: int = 0
    key: str = ""
    outcome: Data = None


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A question, open or closed."""

    id: str
    call: str
    leg: int
    how: str | None = None
    by: str | None = None
    answer_id: str | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the history."""

    seq: int
    call: str
    step: str
    state: str
    leg: int = 1
    fence: int = 0
    by: str = ""
    data: Data = None


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """
    All that a journal says; calls are named as the model named them.

    Attributes:
        calls: The calls, in order.
        waits: The questions.
        steps: The history.
        records: Call, leg and data of each record.
        evidence: Call and fence of each outcome that came too late.
    """

    calls: tuple[Call, ...] = ()
    waits: tuple[Wait, ...] = ()
    steps: tuple[Step, ...] = ()
    records: tuple[tuple[str, int, str], ...] = ()
    evidence: tuple[tuple[str, int], ...] = ()

    def states(self) -> Counter[str]:
        """Count the calls in each state."""
        return Counter(call.state for call in self.calls)

    def of(self, call: str) -> list[Step]:
        """Return the history of one call."""
        return [step for step in self.steps if step.call == call]


def read(path: Path) -> Journal:
    """Return what a journal says; nothing if there is none, or nothing was kept in it."""
    with TemporaryDirectory() as copies:
        copy = Path(copies, path.name)
        for suffix in ("", "-wal"):
            if Path(f"{path}{suffix}").exists():
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        if not copy.exists():
            return Journal()
        with closing(sqlite3.connect(copy)) as connection:
            connection.row_factory = sqlite3.Row
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                return Journal()
            return _read(connection)


def _read(connection: sqlite3.Connection) -> Journal:
    calls = tuple(
        Call(
            id=row["id"],
            call=row["call"] if row["id"].endswith(row["call"]) else row["id"],
            batch=row["batch"],
            position=row["position"],
            state=row["state"],
            leg=row["leg"],
            fence=row["fence"],
            key=row["idempotency_key"],
            outcome=_value(row["outcome"]),
        )
        for row in connection.execute("SELECT * FROM calls ORDER BY rowid")
    )
    names = {call.id: call.call for call in calls}
    return Journal(
        calls=calls,
        waits=tuple(
            Wait(
                id=row["id"],
                call=names[row["call"]],
                leg=row["leg"],
                how=row["how"],
                by=row["by"],
                answer_id=row["answer_id"],
            )
            for row in connection.execute("SELECT * FROM waits ORDER BY rowid")
        ),
        steps=tuple(
            Step(
                seq=row["seq"],
                call=names[row["call"]],
                step=row["step"],
                state=row["state"],
                leg=row["leg"],
                fence=row["fence"],
                by=row["by"],
                data=_value(row["data"]),
            )
            for row in connection.execute("SELECT * FROM history ORDER BY seq")
        ),
        records=tuple(
            (names[row["call"]], row["leg"], str(_value(row["data"])))
            for row in connection.execute("SELECT * FROM records ORDER BY seq")
        ),
        evidence=tuple(
            (names[row["call"]], row["fence"])
            for row in connection.execute("SELECT * FROM evidence ORDER BY seq")
        ),
    )


def _value(text: str | None) -> Data:
    return None if text is None else cast("Data", json.loads(text))
