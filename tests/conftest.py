"""
What every test may ask for.

- `anyio_backend`: an async test marked `anyio` runs once on asyncio and once on trio.
- `require`: a test that needs something of the machine (a server, node, a browser) asks for it.
  Without it the test is skipped and the summary says why. Under `FERRULE_REQUIRE_ALL=1`, as
  `.ci/run` sets it, the same is a failure: a check that silently did not run is no check.
- `home`: where durable calls live; a suite that asks for it runs once for each home there is.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from homes import SqliteHome

settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile(
    "ci",
    deadline=None,
    print_blob=True,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run an async test on both loops (EXE-10)."""
    return str(request.param)


def require_or_skip(condition: object, reason: str, *, optional: bool = False) -> None:
    """
    Go on if `condition` holds; else skip with `reason`, or fail where everything is required.

    `optional` is for what no machine must have, such as a newer Python on PATH: its absence is
    only reported.
    """
    if condition:
        return
    if os.environ.get("FERRULE_REQUIRE_ALL") == "1" and not optional:
        pytest.fail(f"FERRULE_REQUIRE_ALL=1, and this test needs what is not here: {reason}")
    pytest.skip(reason)


@pytest.fixture
def require() -> Callable[..., None]:
    """Give a test `require(condition, reason)`: see `require_or_skip`."""
    return require_or_skip


@pytest.fixture(params=["sqlite"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteHome:
    """Give a test a home of durable calls, with nothing in it (DUR-4)."""
    return SqliteHome(tmp_path / "calls.db")
