"""Files opened below a root, whatever is put there meanwhile."""

import os
import socket
from pathlib import Path

import pytest

from ferrule import Failure
from ferrule.helpers import open_within


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root with a file, a directory, links out of it, and a secret beside it."""
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "a.txt").write_text("ä\n", encoding="utf-8")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key").write_text("secret")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "key").symlink_to(tmp_path / "outside" / "key")
    (root / "in").symlink_to("sub")
    return root


def test_se_13_a_file_is_read_written_appended_and_made(root: Path, tmp_path: Path) -> None:
    """SE-13: as `open` does, text as UTF-8; the path may be the absolute one of `Within`."""
    with open_within(root, "sub/a.txt") as file:
        assert file.read() == "ä\n"
    with open_within(str(root), root.resolve() / "sub/a.txt", "rb") as file:
        assert file.read() == "ä\n".encode()
    with open_within(root, Path("new.txt"), "x") as file:
        file.write("one\n")
    with open_within(root, "new.txt", "ab") as file:
        file.write(b"two\n")
    with open_within(root, "./new.txt") as file:
        assert file.read() == "one\ntwo\n"
    with open_within(root, "new.txt", "w") as file:
        file.write("three\n")
    assert (root / "new.txt").read_text() == "three\n"
    with pytest.raises(FileExistsError):
        open_within(root, "new.txt", "x")
    (tmp_path / "alias").symlink_to(root)
    with open_within(tmp_path / "alias", "sub/a.txt") as file:
        assert file.read() == "ä\n", "links in the root are the host's"


@pytest.mark.parametrize("mode", ["r", "w", "ab"])
@pytest.mark.parametrize(
    "path", ["out/key", "out/new", "key", "in/a.txt", "sub/../key", "..", "../outside/key"]
)
def test_se_13_no_link_is_followed_and_nothing_outside_is_touched(
    root: Path, path: str, mode: str
) -> None:
    """SE-13: what was a directory when it was checked may be a link now."""
    with pytest.raises((OSError, Failure)) as caught:
        open_within(root, path, mode)  # type: ignore[call-overload]  # each of the modes
    assert str(root.parent) not in str(caught.value)
    outside = root.parent / "outside"
    assert [file.name for file in outside.iterdir()] == ["key"]
    assert (outside / "key").read_text() == "secret"
    assert (root / "sub" / "a.txt").read_text(encoding="utf-8") == "ä\n"


@pytest.mark.parametrize("path", ["/etc/passwd", "{outside}/key", ".", "", "..", "a\0b"])
def test_se_13_a_path_that_leads_out_or_nowhere_is_a_failure(root: Path, path: str) -> None:
    """SE-13, FAIL-5: with a sentence, and without a path of the host."""
    with pytest.raises(Failure, match="does not lead to a file inside its root"):
        open_within(root, path.format(outside=root.parent / "outside"))


def test_an_error_names_one_step_of_the_path(root: Path) -> None:
    """FAIL-5: its text may be shown to a model."""
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: 'none'$"):
        open_within(root, "sub/none")
    with pytest.raises(OSError, match=r"is not followed here, or no directory: 'out'$"):
        open_within(root, "out/key")
    with pytest.raises(OSError, match=r"is not followed here, or no directory: 'a.txt'$"):
        open_within(root, "sub/a.txt/x")
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: 'the root'$"):
        open_within(root / "gone", "x")


@pytest.mark.parametrize("mode", ["r", "w", "r+"])
def test_se_13_what_is_no_regular_file_is_not_opened(
    root: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SE-13: a pipe would make the tool wait, and a directory cannot be read."""
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(root)  # its name may be short only
        listening.bind("socket")
    for name in ("pipe", "sub", "socket"):
        with pytest.raises((OSError, Failure)):
            open_within(root, name, mode)  # type: ignore[call-overload]  # each of the modes


def descriptors() -> int:
    """Return how many files this process has open, if the system says."""
    listed = Path("/proc/self/fd")
    return len([*listed.iterdir()]) if listed.exists() else 0


def test_nothing_stays_open_when_it_goes_wrong(root: Path) -> None:
    """No descriptor is lost, whatever is refused on the way."""
    before = descriptors()
    os.mkfifo(root / "pipe")
    for path in ("sub/none", "out/key", "pipe", "sub/a.txt/x", "../x"):
        with pytest.raises((OSError, Failure)):
            open_within(root, path)
    with open_within(root, "sub/a.txt"):
        pass
    assert descriptors() == before


def test_where_the_platform_cannot_it_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STYLE 24: it never opens by the whole path instead."""
    monkeypatch.setattr("ferrule.helpers._opening._IS_ABLE", False)
    with pytest.raises(NotImplementedError, match="check the path with `Within`"):
        open_within(root, "sub/a.txt")
