"""
Files below a root, opened without following a link.

A path that was checked may lead elsewhere by the time it is used: whoever can write below the root
puts a link where a directory was. So each directory is opened inside the one before, by the one
name that it has there, and none of them may be a link.
"""

import errno
import os
import stat
from pathlib import Path
from typing import IO, Any, Final, Literal, TypeAlias, overload

from ferrule import Failure

TextMode: TypeAlias = Literal["r", "w", "a", "x", "r+", "w+", "a+", "x+"]
BinaryMode: TypeAlias = Literal["rb", "wb", "ab", "xb", "r+b", "w+b", "a+b", "x+b"]

_IS_ABLE: Final = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")


@overload
def open_within(
    root: str | os.PathLike[str], path: str | os.PathLike[str], mode: TextMode = "r"
) -> IO[str]: ...


@overload
def open_within(
    root: str | os.PathLike[str], path: str | os.PathLike[str], mode: BinaryMode
) -> IO[bytes]: ...


def open_within(
    root: str | os.PathLike[str],
    path: str | os.PathLike[str],
    mode: TextMode | BinaryMode = "r",
) -> IO[Any]:
    """
    Open a regular file below `root`, and no other, whatever is moved or linked meanwhile.

    Links in `root` itself are followed, and none below it: give the path that a parameter `Within`
    the root arrived as, or one relative to the root. Text is UTF-8. An `OSError` names one step of
    the path and no directory of the host.

    Raises:
        Failure: the path leads out of the root, or is no regular file.
        OSError: it cannot be opened: it is not there, or one of its steps is a link.
        NotImplementedError: the platform cannot open a file inside an open directory.
    """
    if not _IS_ABLE:
        raise NotImplementedError(
            "this platform cannot open a file inside an open directory; check the path with "
            "`Within` and see that nobody else can write below the root"
        )
    *folders, name = _steps(Path(root), Path(path))
    directory = _root(root)
    try:
        for folder in folders:
            above, directory = directory, _opened(folder, os.O_DIRECTORY, directory)
            os.close(above)
        return open(  # a path has no opener
            name,
            mode,
            encoding=None if "b" in mode else "utf-8",
            opener=lambda _, flags: _regular(_opened(name, flags, directory)),
        )
    finally:
        os.close(directory)


def _root(root: str | os.PathLike[str]) -> int:
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise OSError(error.errno, error.strerror, "the root") from None


def _steps(root: Path, path: Path) -> list[str]:
    """Return the names that lead from a root to a path below it."""
    if path.is_absolute():
        base = root.resolve()
        path = path.relative_to(base) if path.is_relative_to(base) else Path("..")
    if not path.parts or ".." in path.parts or "\0" in str(path):
        raise Failure("The path does not lead to a file inside its root.")
    return list(path.parts)


def _opened(name: str, flags: int, directory: int) -> int:
    # A pipe must not make us wait, nor a terminal become ours.
    safe = flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        return os.open(name, safe, 0o666, dir_fd=directory)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}:
            reason = "it is a link, which is not followed here, or no directory"
            raise OSError(error.errno, reason, name) from None
        raise


def _regular(file: int) -> int:
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise Failure("The path leads to something that is no regular file.")
