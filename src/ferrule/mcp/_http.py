"""An app at an address of this machine."""

import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any

import uvicorn

_GRACE = 3
"""Seconds that open requests have to end once the server is told to."""


async def serve(app: Any, host: str, port: int, started: Callable[[str], object]) -> None:  # noqa: ANN401  # uvicorn types its scopes more narrowly than we do
    """
    Serve an app until the process is told to end.

    Args:
        app: An ASGI app.
        host: Name or address of this machine.
        port: Where to listen; 0 is any free one.
        started: Hears the address once somebody listens there.

    Raises:
        OSError: nobody can listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.create_server((host, port), family=family)) as listening:
        config = uvicorn.Config(
            app,
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=_GRACE,
        )
        bound = listening.getsockname()[1]
        started(f"http://{f'[{host}]' if ':' in host else host}:{bound}")
        await uvicorn.Server(config).serve(sockets=[listening])
