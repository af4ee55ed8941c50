"""What a command printed: bounded in memory, both ends kept, and progress from its lines."""

import codecs
import re

from anyio.abc import ByteReceiveStream

from ferrule import Context

_LONGEST = 4096
"""Bytes of a line without an end that are looked at."""

_COUNT = re.compile(r"([0-9]{1,9})/([0-9]{1,9})\b")


class Printed:
    """
    The first and the last bytes of an output, however long it is.

    Each line is shown as progress; one that begins with `3/10` says how far the command is.
    """

    def __init__(self, limit: int, context: Context | None) -> None:
        self._context = context
        self._first_limit = limit - limit // 2
        self._last_limit = limit // 2
        self._first = bytearray()
        self._last = bytearray()
        self._line = b""
        self._size = 0
        self._done: int | None = None
        self._total: int | None = None

    @property
    def text(self) -> str:
        """What a model reads of it, with a notice of what was left out between the two ends."""
        left_out = self._size - len(self._first) - len(self._last)
        if not left_out:
            return (self._first + self._last).decode(errors="replace")
        # Not final: half a character at the cut is withheld, not replaced.
        first = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._first))
        last = bytes(self._last)
        begins = next((i for i, byte in enumerate(last[:3]) if byte & 0xC0 != 0x80), 0)  # noqa: PLR2004  # UTF-8's bits
        rest = last[begins:].decode(errors="replace")
        return f"{first}\n[{left_out} bytes are left out here]\n{rest}"

    async def read(self, stream: ByteReceiveStream) -> None:
        """Read until nobody can print any more."""
        async for chunk in stream:
            self._keep(chunk)
            if self._context is not None:
                self._look_at(chunk, self._context)

    def _keep(self, chunk: bytes) -> None:
        self._size += len(chunk)
        room = self._first_limit - len(self._first)
        self._first += chunk[:room]
        self._last += chunk[room:]
        del self._last[: max(0, len(self._last) - self._last_limit)]

    def _look_at(self, chunk: bytes, context: Context) -> None:
        *lines, rest = (self._line + chunk).split(b"\n")
        self._line = rest[:_LONGEST]
        for line in lines[-20:]:  # of a flood, what people can read
            self._tell(line.decode(errors="replace").strip()[:200], context)

    def _tell(self, line: str, context: Context) -> None:
        count = _COUNT.match(line)
        if count is not None and int(count[1]) >= (self._done or 0):
            self._done, self._total = int(count[1]), int(count[2])
        context.progress(self._done, total=self._total, message=line)
