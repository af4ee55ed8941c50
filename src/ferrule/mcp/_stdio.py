"""
A server that is a child process: one JSON-RPC message a line, and everything it does is bounded.

The SDK's own transport keeps a line that has no end until memory is gone, and gives a child's
standard error to ours. Here a line has a limit, standard error is drained into a short tail, and an
answer that is none comes back as the error of the one call that waits for it.
"""

import json
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import anyio
import mcp_types as types
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from ferrule import FerruleError, Limits
from ferrule.helpers import one_line
from ferrule.mcp._shapes import object_of

Message = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Message], MemoryObjectSendStream[SessionMessage]]

logger = logging.getLogger("ferrule.mcp")

LINE_BYTES = 4 * Limits().output_bytes
"""Bytes of one message; a result of `output_bytes` fits in as base64, with its text beside it."""

_TAIL = 4 * 1024
"""Bytes of standard error that are kept, for the sentence that says why a server did not start."""

_QUIT, _TERM, _KILL = 2.0, 2.0, 2.0
"""Seconds that a child has after its input was closed, after SIGTERM, and after SIGKILL."""

_LAST_WORDS = 0.5
"""Seconds that a child has to end after it closed its output."""

_POLL = 0.01

_TOLD = 10
"""Lines of one child that are no messages and that are logged as such."""


class TooLong(FerruleError):
    """A server wrote a line that is longer than a message may be."""

    def __str__(self) -> str:
        return f"the server wrote a message of more than {LINE_BYTES} bytes"


class Child:
    """
    A child process that speaks MCP.

    Attributes:
        tail: The end of what it wrote to standard error.
        broke: Why we ended the connection, if it was us.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.tail = b""
        self.broke: Exception | None = None
        self._odd = 0

    @property
    def said(self) -> str:
        """What it said last on standard error, on one line."""
        lines = self.tail.decode("utf-8", "replace").strip().splitlines()
        return one_line(" ".join(lines[-3:]), 300)

    def how_it_ended(self, passed: Mapping[str, str]) -> str:
        """Say what is known of its end; with the variables that it may have missed."""
        code = self.process.returncode
        parts = [str(self.broke)] if self.broke else []
        if code is not None and not self.broke:
            parts.append(f"its process ended with {code}")
        if self.said:
            parts.append(f"it wrote: {self.said}")
        if missed := _missed(self.tail.decode("utf-8", "replace"), passed):
            names = ", ".join(missed)
            parts.append(f"it names {names}, set here and not passed on: give it in `env`")
        return "; ".join(parts)

    async def drain(self) -> None:
        """Read standard error to its end, and keep the last of it."""
        assert self.process.stderr is not None  # noqa: S101  # it was opened with a pipe
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            async for chunk in self.process.stderr:
                self.tail = (self.tail + chunk)[-_TAIL:]
                logger.debug(
                    "server %d: %s", self.process.pid, one_line(chunk.decode("utf-8", "replace"))
                )

    async def read(self, to_session: MemoryObjectSendStream[Message]) -> None:
        """Hand on what it writes, message for message, to the end or to a line without one."""
        assert self.process.stdout is not None  # noqa: S101  # it was opened with a pipe
        async with to_session:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                try:
                    # A cancelled reader leaves its generator to nobody: trio warns of that.
                    async with aclosing(_lines(self.process.stdout)) as lines:
                        async for line in lines:
                            if (message := _parsed(line, self._tell_odd)) is not None:
                                await to_session.send(message)
                    await self._has_ended(_LAST_WORDS)  # So that its code can be told.
                except TooLong as error:
                    self.broke = error
                    logger.warning("server %d: %s", self.process.pid, error)

    def _tell_odd(self, line: bytes) -> None:
        """Log a line that is no message, for as long as there are few of them."""
        self._odd += 1
        if self._odd <= _TOLD:
            text = one_line(line[:200].decode("utf-8", "replace"))
            more = "; further ones are not told" if self._odd == _TOLD else ""
            logger.warning("a line of a server is no message: %s%s", text, more)

    async def write(
        self,
        from_session: MemoryObjectReceiveStream[SessionMessage],
        to_session: MemoryObjectSendStream[Message],
    ) -> None:
        """Hand what the session says to the child; a child that takes nothing ends the session."""
        assert self.process.stdin is not None  # noqa: S101  # it was opened with a pipe
        try:
            async with from_session:
                async for item in from_session:
                    text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await self.process.stdin.send(f"{text}\n".encode())
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            await self._has_ended(_LAST_WORDS)  # So that its code can be told.
            await to_session.aclose()

    async def stop(self) -> None:
        """End the process and all that it started: asked first, then made to."""
        process = self.process
        assert process.stdin is not None  # noqa: S101  # it was opened with a pipe
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await process.stdin.aclose()
        for signal_number, seconds in ((None, _QUIT), (signal.SIGTERM, _TERM), (_HARD, _KILL)):
            if signal_number is not None:
                self._signal(signal_number)
            if await self._has_ended(seconds):
                break
        self._signal(_HARD)  # What it started may have outlived it.
        self._let_go()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self.process.kill()
            else:
                os.killpg(self.process.pid, number)

    async def _has_ended(self, seconds: float) -> bool:
        # `wait()` would also wait for the pipes, which what the child started may hold open.
        deadline = anyio.current_time() + seconds
        while self.process.returncode is None:
            if anyio.current_time() >= deadline:
                return False
            await anyio.sleep(_POLL)
        return True

    def _let_go(self) -> None:
        """Close asyncio's transport, which else stays open as long as a pipe does."""
        inner = getattr(getattr(self.process, "_process", None), "_transport", None)
        if inner is not None:
            with suppress(PermissionError, ProcessLookupError):
                inner.close()


_HARD = getattr(signal, "SIGKILL", signal.SIGTERM)


@asynccontextmanager
async def child(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: str | Path | None
) -> AsyncGenerator[tuple[Child, Streams]]:
    """
    Run a server as a child process beside the block.

    Raises:
        OSError: it cannot be started.
    """
    process = await anyio.open_process(
        list(argv), env=dict(env), cwd=cwd, start_new_session=sys.platform != "win32"
    )
    running = Child(process)
    to_session, for_session = anyio.create_memory_object_stream[Message](0)
    from_us, to_child = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as group:
        group.start_soon(running.drain)
        group.start_soon(running.read, to_session)
        group.start_soon(running.write, to_child, to_session)
        try:
            yield running, (for_session, from_us)
        finally:
            with anyio.CancelScope(shield=True):
                for end in (for_session, from_us):
                    end.close()
                await running.stop()
                for stream in (process.stdout, process.stderr):
                    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                        assert stream is not None  # noqa: S101  # they were opened with pipes
                        await stream.aclose()
            group.cancel_scope.cancel()
    for end in (to_session, to_child):
        end.close()


async def _lines(stream: ByteReceiveStream) -> AsyncGenerator[bytes]:
    """Yield the lines of a stream, without what ends them; the last one may lack it."""
    parts: list[bytes] = []
    size = 0
    async for chunk in stream:
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            if size + len(line) > LINE_BYTES:
                raise TooLong
            yield b"".join([*parts, line])
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > LINE_BYTES:
            raise TooLong
    yield b"".join(parts)


def _parsed(line: bytes, tell: Callable[[bytes], None]) -> SessionMessage | None:
    """Return the message of a line; what is none is told, and is an error to who waits for it."""
    text = line.removeprefix(b"\xef\xbb\xbf").strip()
    if not text:
        return None
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValueError as error:
        tell(text)
        return _as_error(text, error)


def _as_error(text: bytes, error: ValueError) -> SessionMessage | None:
    """Return an answer that is none as the error of the request that it names."""
    try:
        read: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    named = object_of(read).get("id")
    if not isinstance(named, str | int) or isinstance(named, bool):
        return None
    said = types.ErrorData(
        code=types.PARSE_ERROR, message=f"the answer is none: {one_line(str(error))}"
    )
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=named, error=said))


def _missed(text: str, passed: Mapping[str, str]) -> list[str]:
    """Return the variables that a text names, that are set here, and that a child did not get."""
    named = dict.fromkeys(_VARIABLE.findall(text))
    return [name for name in _known(named) if name not in passed][:5]


def _known(names: Mapping[str, object]) -> Iterator[str]:
    return (name for name in names if name in os.environ)


_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9_]{2,}\b")
