"""An app at an address of this machine."""

import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any

import uvicorn

_GRACE = 3
"""Seconds that open requests have to end once the server is told to."""


class _Server(uvicorn.Server):
    """Says that it is to end before it waits for open streams, which end by nothing else."""

    def __init__(self, config: uvicorn.Config, ending: Callable[[], object]) -> None:
        super().__init__(config)
        self._ending = ending

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let go of who listens, and end."""
        self._ending()
        await super().shutdown(sockets)


async def serve(
    app: Any,  # noqa: ANN401  # uvicorn types its scopes more narrowly than we do
    host: str,
    port: int,
    *,
    started: Callable[[str], object],
    ending: Callable[[], object],
) -> None:
    """
    Serve an app until the process is told to end.

    Args:
        app: An ASGI app.
        host: Name or address of this machine.
        port: Where to listen; 0 is any free one.
        started: Hears the address once somebody listens there.
        ending: Called when the server is told to end; lets go of streams that stand open.

    Raises:
        OSError: nobody can listen there.
    """
    with closing(listening(host, port)) as sockets:
        config = uvicorn.Config(
            app,
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=_GRACE,
        )
        bound = sockets.getsockname()[1]
        started(f"http://{f'[{host}]' if ':' in host else host}:{bound}")
        await _Server(config, ending).serve(sockets=[sockets])


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens there, and whose connections send at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.create_server((host, port), family=family)
    # It does not say that it speaks TCP, and asyncio lets only what does so send at once: else each
    # answer, whose head and body are two packets, waits 40 ms for a client to confirm the first.
    return socket.socket(made.family, made.type, socket.IPPROTO_TCP, fileno=made.detach())
