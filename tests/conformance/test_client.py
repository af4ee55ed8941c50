"""Our client, checked by the conformance suite of MCP's own project."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import require_or_skip

HERE = Path(__file__).parent
INSTALLED = HERE.parents[1] / ".mcp" / "node_modules"

SCENARIOS = {
    "2025-11-25": (
        *("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"),
        "json-schema-2020-12-preservation",
    ),
    "2026-07-28": (
        *("tools_call", "request-metadata", "sep-2322-client-request-state"),
        *("http-standard-headers", "http-custom-headers", "http-invalid-tool-headers"),
        *("json-schema-ref-no-deref", "json-schema-2020-12-preservation"),
    ),
}
"""Every scenario of a client outside `auth/`."""


@pytest.mark.parametrize(
    ("revision", "scenario"), [(r, name) for r, names in SCENARIOS.items() for name in names]
)
def test_a_scenario_of_the_conformance_suite_passes(
    revision: str, scenario: str, tmp_path: Path
) -> None:
    """MCP-1: no check of it fails."""
    program = INSTALLED / ".bin" / "conformance"
    require_or_skip(program.exists(), "the conformance suite (`make conformance` installs it)")
    nodes = [str(path.parent) for path in INSTALLED.glob("node*/bin/node")]
    client = f"{sys.executable} {HERE / 'connected.py'}"
    done = subprocess.run(
        [
            *(program, "client", "--command", client, "--scenario", scenario),
            *("--spec-version", revision, "--timeout", "60000", "-o", tmp_path),
        ],
        cwd=tmp_path,
        env={**os.environ, "PATH": os.pathsep.join([*nodes, os.environ["PATH"]])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )

    counts = re.search(r"Passed: (\d+)/(\d+), (\d+) failed", done.stdout)
    assert done.returncode == 0, done.stdout[-4000:]
    assert counts is not None, done.stdout[-2000:]
    assert counts[3] == "0"
    assert int(counts[1]) > 0
