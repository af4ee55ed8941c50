"""The examples of the README and the docs: each runs, and prints what stands below it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"^```python\n(.*?)^```\n(?:[^`#]*?^```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [
    pytest.param(*found.groups(), id=f"{page.relative_to(ROOT)}-{index}")
    for page in PAGES
    for index, found in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize(("code", "printed"), EXAMPLES)
def test_an_example_prints_what_it_says(code: str, printed: str | None, tmp_path: Path) -> None:
    """STYLE 29: what a stranger copies works, with warnings as errors and in an empty directory."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == (printed or "")


def test_there_are_examples() -> None:
    """Otherwise the test above would say nothing."""
    assert len(EXAMPLES) >= 5
