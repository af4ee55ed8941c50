"""Where the lab server of `mcp_lab` is found: in memory, as a child, and at an address."""

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import uvicorn
from starlette.applications import Starlette

import mcp_lab
from ferrule.mcp import Address, Command, InProcess
from mcp_lab import Lab

Era = Literal["auto", "legacy"]
LAB = str(Path(mcp_lab.__file__))


@contextlib.contextmanager
def at_an_address(app: Starlette) -> Iterator[str]:
    """Serve an ASGI app on a free port of this machine, in a thread, to the end of the block."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()


@pytest.fixture(scope="session")
def web_lab() -> Iterator[tuple[Lab, str]]:
    """Serve a lab for all tests, in a thread of this process."""
    lab = Lab()
    with at_an_address(lab.server.streamable_http_app()) as url:
        yield lab, url


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
