"""Where the lab server of `mcp_lab` is found: in memory, as a child, and at an address."""

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Self

import pytest
import uvicorn
from starlette.applications import Starlette

import mcp_lab
from ferrule.mcp import Address, Command, InProcess
from mcp_authority import Authority, Place
from mcp_lab import Lab

Era = Literal["auto", "legacy"]
LAB = str(Path(mcp_lab.__file__))


class Serving:
    """A web server in a thread of this process, which can be stopped and started again."""

    def __init__(
        self,
        make: Callable[[], Starlette],
        port: int = 0,
        *,
        certificate: Path | None = None,
    ) -> None:
        self._listening = socket.socket(proto=socket.IPPROTO_TCP)  # Else asyncio sends late.
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listening.bind(("127.0.0.1", port))
        self._listening.listen()
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        # Made in its thread, as what anyio makes belongs to the loop that runs where it is made.
        config = uvicorn.Config(make, factory=True, log_level="critical", ssl_certfile=certificate)
        config.timeout_graceful_shutdown = 1
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listening]}
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop it, calls and all; a second time does nothing."""
        self._server.should_exit = True
        self._thread.join(10)
        self._listening.close()

    def __exit__(self, *_: object) -> None:
        self.stop()


@pytest.fixture(scope="session")
def web_lab() -> Iterator[tuple[Lab, str]]:
    """Serve a lab for all tests, in a thread of this process."""
    lab = Lab()
    with Serving(lab.server.streamable_http_app) as serving:
        yield lab, serving.url


@pytest.fixture
def serve() -> Iterator[Callable[..., Serving]]:
    """Give what serves a web app on a port, a free one if none is given, to the end of the test."""
    with contextlib.ExitStack() as stack:
        yield lambda make, port=0, **more: stack.enter_context(Serving(make, port, **more))


@pytest.fixture(scope="session")
def quick_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """Give the command line of a lab over stdio that starts at once; see `quick.py`."""
    path = str(tmp_path_factory.mktemp("lab") / "nursery")
    ours = [sys.executable, LAB, path]
    with subprocess.Popen(ours, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        assert nursery.stdout.readline() == b"ready\n"
        yield (sys.executable, "-ISE", str(Path(__file__).with_name("quick.py")), path)
        nursery.stdin.close()


@pytest.fixture(params=["auto", "legacy"])
def era(request: pytest.FixtureRequest) -> Era:
    """Run a test in both eras of the protocol."""
    return "auto" if request.param == "auto" else "legacy"


@pytest.fixture(params=["memory", "stdio", "http"])
def target(request: pytest.FixtureRequest, era: Era) -> Address | Command | InProcess:
    """Run a test over each transport, in both eras."""
    match request.param:
        case "memory":
            return InProcess(Lab().server, era=era)
        case "stdio":
            return Command(request.getfixturevalue("quick_lab"), era=era)
        case _:
            _, url = request.getfixturevalue("web_lab")
            return Address(url, era=era)


@pytest.fixture
def place(serve: Callable[..., Serving], tmp_path: Path) -> Place:
    """Serve what asks for a token, and who gives one."""
    authority = Authority()
    authority.url = serve(authority.app).url.removesuffix("/mcp")
    found: list[Any] = []
    found.append(serve(lambda: authority.guarded(lambda: found[0].port)))
    return Place(authority, found[0].url, tmp_path / "keep" / "tokens.json", [])
