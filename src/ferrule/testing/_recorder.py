"""A recorder that keeps records in memory."""

import msgspec

from ferrule import Context, Record


class Recorded(msgspec.Struct, frozen=True):
    """One record and the call that made it."""

    call_id: str
    record: Record

    @property
    def namespace(self) -> str:
        """The record's namespace."""
        return self.record.namespace

    @property
    def data(self) -> object:
        """The record's data."""
        return self.record.data


class MemoryRecorder:
    """
    Keeps the records of an executor's calls in memory, in the order they came.

    Attributes:
        records: What was recorded so far.
    """

    def __init__(self) -> None:
        self.records: list[Recorded] = []

    async def __call__(self, context: Context, record: Record) -> None:
        """Keep one record; what is kept cannot change any more."""
        self.records.append(Recorded(context.call_id, record))

    def of(self, call_id: str) -> list[Record]:
        """Return the records of one call, in order."""
        return [kept.record for kept in self.records if kept.call_id == call_id]
