"""A server in this process: called, or by two streams that carry the context of who sends."""

import contextvars
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.runner import modern_on_request
from mcp.shared.direct_dispatcher import DirectDispatcher, create_direct_dispatcher_pair
from mcp.shared.message import SessionMessage

T = TypeVar("T")
Message = SessionMessage | Exception


class Sending(Generic[T]):
    """The end where messages go in, each with the contextvars of its sender."""

    def __init__(self, inner: MemoryObjectSendStream[tuple[contextvars.Context, T]]) -> None:
        self._inner = inner

    async def send(self, item: T) -> None:
        """Send one message."""
        await self._inner.send((contextvars.copy_context(), item))

    async def aclose(self) -> None:
        """Close this end."""
        self._inner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class Receiving(Generic[T]):
    """
    The end where messages come out.

    Attributes:
        last_context: The contextvars of whoever sent the latest message; the SDK looks there.
    """

    def __init__(self, inner: MemoryObjectReceiveStream[tuple[contextvars.Context, T]]) -> None:
        self._inner = inner
        self.last_context: contextvars.Context | None = None

    async def receive(self) -> T:
        """Wait for the next message."""
        self.last_context, item = await self._inner.receive()
        return item

    async def aclose(self) -> None:
        """Close this end."""
        self._inner.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


def _pipe() -> tuple[Sending[Any], Receiving[Any]]:
    send, receive = anyio.create_memory_object_stream[tuple[contextvars.Context, Any]](0)
    return Sending(send), Receiving(receive)


@asynccontextmanager
async def called(server: Server[Any]) -> AsyncGenerator[DirectDispatcher]:
    """
    Have `server` called in the task of who calls, without any messages between.

    For the protocol without a handshake, which has nothing to say but requests and their answers.
    Twice as quick; but what the server shields from being cancelled holds whoever cancels.
    """
    async with server.lifespan(server) as state, anyio.create_task_group() as group:
        ours, theirs = create_direct_dispatcher_pair(raise_handler_exceptions=False)
        await group.start(theirs.run, modern_on_request(server, state), _unheard)
        try:
            yield ours
        finally:
            theirs.close()
            group.cancel_scope.cancel()


async def _unheard(_: object, __: str, ___: object) -> None:
    """Hear nothing: a client without a handshake tells of nothing."""


@asynccontextmanager
async def in_memory(
    server: Server[Any],
) -> AsyncGenerator[tuple[Receiving[Message], Sending[SessionMessage]]]:
    """Run `server` beside the block; what it raises ends the connection."""
    to_server, from_client = _pipe()
    to_client, from_server = _pipe()

    async def serve() -> None:
        options = server.create_initialization_options(NotificationOptions(tools_changed=True))
        try:
            await server.run(from_client, to_client, options)
        finally:
            await to_client.aclose()
            await from_client.aclose()

    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        try:
            yield from_server, to_server
        finally:
            for end in (to_server, from_server):
                with suppress(anyio.ClosedResourceError):
                    await end.aclose()
            group.cancel_scope.cancel()
