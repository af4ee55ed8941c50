"""
Where other people's code went wrong, as one phrase for its author.

A module with tools may raise anything at all while it is loaded. `TheirCode` is the one place of
the command line that takes it: what would be a traceback is one sentence with file and line.
"""

import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import cast

import ferrule
from ferrule import FerruleError
from ferrule.cli._refused import USAGE, Refused

_OURS = Path(ferrule.__file__).parent
_LIBRARY = Path(os.__file__).parent
_INSTALLED = "site-packages"


class TheirCode:
    """
    A block that runs other people's code: what that raises becomes `Refused`.

    An interruption and a cancellation go through.

    Args:
        what: The beginning of the sentence, as in `cannot load tools.py`.
        code: What the process ends with.
    """

    def __init__(self, what: str, code: int = USAGE) -> None:
        self._what = what
        self._code = code

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception | SystemExit) and not isinstance(error, Refused):
            raise Refused(f"{self._what}: {explained(error)}", self._code) from None


def explained(error: BaseException) -> str:
    """Return what an exception says and where it comes from, as one phrase."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return "; ".join(map(explained, group.exceptions))
    place = _place(error)
    return f"{_said(error)} ({place})" if place else _said(error)


def _said(error: BaseException) -> str:
    match error:
        case FerruleError():
            return str(error)
        case SystemExit():
            return f"it called sys.exit({error.code!r})"
        case SyntaxError():
            return f"{type(error).__name__}: {error.msg}"
        case _:
            text = str(error)
            return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place(error: BaseException) -> str:
    """Return file and line: the innermost of the author's own, else the innermost not ours."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_shown(Path(error.filename))}, line {error.lineno}"
    frames = [(path, line) for path, line in _frames(error) if not path.is_relative_to(_OURS)]
    own = [(path, line) for path, line in frames if _is_own(path)]
    for path, line in reversed(own or frames):
        return f"{_shown(path)}, line {line}"
    return ""


def _is_own(path: Path) -> bool:
    return not path.is_relative_to(_LIBRARY) and _INSTALLED not in path.parts


def _frames(error: BaseException) -> Iterator[tuple[Path, int]]:
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        if not name.startswith("<"):
            yield Path(name), line


def _shown(path: Path) -> str:
    """Return a path as a person here would write it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
