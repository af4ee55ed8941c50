"""What `import ferrule` loads: every process of every user pays for it."""

import json
import subprocess
import sys

import pytest

OPTIONAL = (
    *("agents", "cedarpy", "click", "fastmcp", "jinja2", "json_repair", "langchain_core"),
    *("langgraph", "matplotlib", "mcp", "openai", "opentelemetry", "pydantic", "pydantic_ai"),
    *("pydantic_core", "rich", "starlette", "temporalio", "uvicorn"),
)
"""Libraries of an extra: they may be missing, and must not be waited for."""

HEAVY = ("aiohttp", "docstring_parser", "griffe", "httpx", "requests", "sqlalchemy", "sqlite3")
"""Libraries for networks, databases and docstrings that no tool has asked for yet."""

LOOPS = ("asyncio", "trio")
"""The caller's loop is loaded by the caller; loading asyncio would double the cost of the door."""


@pytest.fixture(scope="module")
def loaded() -> frozenset[str]:
    """Names of the modules in a fresh process that has imported Ferrule and nothing else."""
    program = "import ferrule, json, sys; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return frozenset(json.loads(run.stdout))


@pytest.mark.parametrize("library", [*OPTIONAL, *HEAVY, *LOOPS])
def test_the_door_does_not_load(library: str, loaded: frozenset[str]) -> None:
    """ARCHITECTURE rule 3; issue "the house": no optional, heavy or loop library at the door."""
    assert library not in loaded


def test_the_door_was_really_opened(loaded: frozenset[str]) -> None:
    """ARCHITECTURE rule 3: the other tests would pass if nothing at all were imported."""
    assert "ferrule" in loaded
