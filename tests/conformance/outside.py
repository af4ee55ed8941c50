"""Programs of others that check ours: where they are, and how they are run."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from conftest import require_or_skip

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
INSTALLED = ROOT / ".mcp" / "node_modules"
PATIENCE = 240


def environment() -> dict[str, str]:
    """Return our environment with the node that was installed for them, if there is one here."""
    found = [str(path.parent) for path in INSTALLED.glob("node-*/bin/node")]
    return os.environ | {"PATH": os.pathsep.join([*found, os.environ["PATH"]])}


def run(name: str, *arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that `make conformance` has installed."""
    program = INSTALLED / ".bin" / name
    require_or_skip(program.exists(), f"{name} (`make conformance` installs it with npm)")
    return subprocess.run(
        [program, *map(str, arguments)],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


@contextmanager
def served() -> Generator[str]:
    """Serve the tools that the suite calls; give the address."""
    command = [sys.executable, str(HERE / "served.py")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
