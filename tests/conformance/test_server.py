"""Our server, checked by the programs of MCP's own project."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.outside import HERE, ROOT, run, served

TOOLS = HERE.parent / "served.py"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_conformance_suite_passes_but_for_what_the_baseline_says(
    revision: str, tmp_path: Path
) -> None:
    """MCP-1: every scenario of tools; what fails has a reason in the baseline."""
    with served() as address:
        done = run(
            "conformance",
            *("server", "--url", address, "--suite", "all", "--spec-version", revision),
            *("-o", tmp_path, "--expected-failures", HERE / "baseline.yml"),
            folder=tmp_path,
        )

    _, _, summary = done.stdout.partition("=== SUMMARY ===")
    assert done.returncode == 0, summary or done.stdout[-4000:]
    assert "✓ tools-list" in summary


TASKS = (
    *("capability-negotiation", "dispatch-and-envelope", "lifecycle", "mrtr-composition"),
    *("mrtr-input", "request-headers", "request-state-removal", "required-task-error"),
    *("status-notifications", "wire-fields"),
)
"""Every scenario of the tasks extension; of notifications the suite only says that it has none."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve the tools for several tests."""
    with served() as address:
        yield address


@pytest.mark.parametrize("scenario", TASKS)
def test_a_scenario_of_the_tasks_extension_passes(
    scenario: str, address: str, tmp_path: Path
) -> None:
    """MCP-1: long calls; no check of it fails but what the baseline says."""
    done = run(
        "conformance",
        *("server", "--url", address, "--scenario", f"tasks-{scenario}"),
        *("-o", tmp_path, "--expected-failures", HERE / "baseline.yml"),
        folder=tmp_path,
    )

    assert done.returncode == 0, done.stdout[-4000:]


def inspected(*arguments: str, target: list[str], folder: Path) -> tuple[int, dict[str, object]]:
    """Return how the Inspector ended, and what it wrote."""
    done = run("mcp-inspector", "--cli", "--format", "json", *target, *arguments, folder=folder)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"result"')]
    return done.returncode, json.loads(lines[-1])["result"] if lines else {"said": done.stdout}


@pytest.mark.parametrize("era", ["legacy", "auto", "modern"])
@pytest.mark.parametrize("way", ["stdio", "http"])
def test_the_inspector_lists_and_calls(era: str, way: str, tmp_path: Path) -> None:
    """MCP-1: `tools/list`, strictly, and `tools/call`, right and wrong."""
    with served() as address:
        if way == "http":
            name, given = "test_x_mcp_header", "region=here"
            target = ["--server-url", address, "--transport", "http"]
        else:
            name, given = "any/thing", "u=here"
            variable = f"PYTHONPATH={ROOT / 'src'}"
            target = ["-e", variable, sys.executable, str(TOOLS), "asyncio"]
        target = ["--protocol-era", era, *target]
        code, listed = inspected(
            "--strict", "--method", "tools/list", target=target, folder=tmp_path
        )
        assert code == 0, listed
        assert name in str(listed)
        call = ("--method", "tools/call", "--tool-name", name, "--tool-arg")
        code, called = inspected(*call, given, target=target, folder=tmp_path)
        assert code == 0, called
        assert called["isError"] is False
        code, refused = inspected(
            *call, "region=1" if way == "http" else "p=1", target=target, folder=tmp_path
        )
        assert (code, refused.get("isError")) == (5, True), refused
        assert "invalid arguments: " in str(refused)
