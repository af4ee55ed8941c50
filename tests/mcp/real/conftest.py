"""A folder for a server."""

import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import require_or_skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a server a folder of its own, with room beside it for what it was sent."""
    require_or_skip(shutil.which("git"), "git")
    place = tmp_path / "home"
    subprocess.run(["git", "init", "-q", "-b", "main", place], check=True)
    return place
