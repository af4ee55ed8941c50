"""
The lock of a registry's tools, and the registry that keeps to it.

Theory. A model is shown what was approved, and nothing else. A tool whose fingerprint is the locked
one is offered as it is. One that changed is offered as it was locked, and its calls are refused at
admission: before any policy is asked about them, before anything of it runs, whoever drives them.
One that nobody has locked is not offered, and a call of it is one of a tool that is not there: to
say more would tell a model of what nobody has read yet.
"""

import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

import msgspec

from ferrule import (
    Binding,
    Context,
    Definition,
    InputRequest,
    InvalidCall,
    InvalidValue,
    Invocation,
    Registry,
    Result,
    Tool,
    Traits,
)
from ferrule.lock import _file
from ferrule.lock._drift import Drift, Key, LockedTool, ToolChanged, drifted
from ferrule.lock._file import InvalidLock, PathLike
from ferrule.lock._following import Following, Lent, logger

_MOST_TOLD = 10_000
"""Of how many tools the log remembers what it was told; a server may rename its tools for ever."""


class LockFile(msgspec.Struct, frozen=True):
    """
    Tools as they were approved: made of a registry, kept in a file, compared with a registry.

    Attributes:
        tools: Each tool once, sorted by origin and name.
    """

    tools: tuple[LockedTool, ...] = ()

    def __post_init__(self) -> None:
        known = {tool.key: tool for tool in self.tools}
        if len(known) < len(self.tools):
            raise InvalidValue("a lock has each tool of an origin once")
        ordered = tuple(known[key] for key in sorted(known))
        msgspec.structs.force_setattr(self, "tools", ordered)

    @classmethod
    def of(cls, registry: Registry) -> "LockFile":
        """Lock what a registry offers, as it is now; one with sources has to be open."""
        return cls(tuple(_offered(registry).values()))

    @classmethod
    def read(cls, path: PathLike) -> "LockFile":
        """
        Return the lock that a file holds.

        Raises:
            InvalidLock: it is not there, is something else, was written by a newer Ferrule, or is
                not whole; the sentence says what to do.
        """
        return cls(_file.read(path))

    def write(self, path: PathLike) -> None:
        """
        Put the lock into a file: whole or, if that fails, not at all.

        Raises:
            OSError: it cannot be written.
        """
        _file.write(path, _file.text_of(self.tools))

    def check(self, registry: Registry) -> tuple[Drift, ...]:
        """
        Return how what a registry offers differs from the lock, sorted; nothing if it agrees.

        Of a registry that is behind a lock, what stands behind that is compared.
        """
        behind = registry.behind if isinstance(registry, LockedRegistry) else registry
        locked, offered = self._by_key, _offered(behind)
        found = (_compared(key, locked, offered) for key in sorted(locked.keys() | offered.keys()))
        return tuple(drift for drift in found if drift is not None)

    def renewed(self, registry: Registry) -> "LockFile":
        """
        Return the lock of what a registry offers now.

        Origins of which it offers nothing stay locked as they were: their server may only not have
        been there. See `without`.
        """
        offered = LockFile.of(registry).tools
        origins = {tool.origin for tool in offered}
        return LockFile((*offered, *(one for one in self.tools if one.origin not in origins)))

    def without(self, origin: str) -> "LockFile":
        """Return the lock without the tools of an origin."""
        return LockFile(tuple(tool for tool in self.tools if tool.origin != origin))

    def applied(self, registry: Registry) -> "LockedRegistry":
        """
        Return what a registry offers, as far as it is locked, now and after its tools change.

        See `LockedRegistry`.
        """
        return LockedRegistry(registry, self)

    @property
    def _by_key(self) -> dict[Key, LockedTool]:
        return {tool.key: tool for tool in self.tools}


class LockedRegistry(Following):
    """
    What another registry offers, as far as it is locked; it follows when the tools there change.

    A tool that was changed since is shown as it was locked, and each call of it ends
    `Rejected("unavailable")`, before anybody is asked about it; what changed is in the operator's
    log, under the reference that the model reads. One that is not in the lock is not there. Tools
    that are registered here are registered in the other registry; opening and closing is of both.

    Args:
        registry: Whose tools are offered.
        lock: What was approved; or the path of a file, which is read again when the tools change,
            and by `refresh`.

    Raises:
        InvalidLock: the file cannot be used. Of one that is written later, that is logged, and the
            lock of before stands.
    """

    def __init__(self, registry: Registry, lock: LockFile | PathLike) -> None:
        self._file = None if isinstance(lock, LockFile) else Path(lock)
        self._state_of_file = _state(self._file)
        self._told: dict[Key, tuple[Drift, str]] = {}
        self.lock = lock if isinstance(lock, LockFile) else LockFile.read(lock)
        super().__init__(registry)

    @property
    def lock(self) -> LockFile:
        """What is approved now."""
        return self._lock_now

    @lock.setter
    def lock(self, lock: LockFile) -> None:
        self._lock_now, self._locked = lock, {tool.key: tool for tool in lock.tools}

    def refresh(self) -> None:
        """Take up the file if it was written since it was read."""
        if self._reread():
            self.follow()

    def follow(self) -> None:
        """Show what there is to show now, by the lock as it is now."""
        self._reread()
        super().follow()

    def mark(self, binding: Binding) -> object:
        """Return the tool and what is locked of it."""
        return binding, self._locked.get((binding.contract.origin, binding.contract.name))

    def shown(self, binding: Binding) -> Tool | None:
        """Return the tool, what refuses its calls, or nothing."""
        offered, known = LockedTool.of(binding), self._locked
        drift = _compared(offered.key, known, {offered.key: offered})
        if drift is None:
            return Lent(binding.tool)
        self._log(drift, offered)
        return None if drift.kind == "new" else _Changed(known[offered.key], drift)

    def _log(self, drift: Drift, offered: LockedTool) -> None:
        """Tell the operator, once for each change."""
        if self._told.get(offered.key) != (drift, offered.fingerprint):
            if len(self._told) >= _MOST_TOLD:
                self._told.clear()
            self._told[offered.key] = (drift, offered.fingerprint)
            then = "its calls are refused" if drift.kind == "changed" else "it is not offered"
            logger.warning("%s; %s until it is locked with `ferrule lock`", drift, then)

    def _reread(self) -> bool:
        """Read the file if it is not as it was; say whether there is another lock."""
        state = _state(self._file)
        if self._file is None or state == self._state_of_file:
            return False
        self._state_of_file = state
        try:
            lock = LockFile.read(self._file)
        except InvalidLock as error:
            logger.error("%s; the lock of before stands", error)
            return False
        self.lock = lock
        return True


class _Changed:
    """A tool as it was locked, in the place of one that is another now; every call is refused."""

    def __init__(self, locked: LockedTool, drift: Drift) -> None:
        self._locked = locked
        self._drift = drift

    def __repr__(self) -> str:
        return f"<changed since it was locked: {self._locked.definition.name!r}>"

    @property
    def definition(self) -> Definition:
        """What was locked."""
        return self._locked.definition.copy()

    @property
    def traits(self) -> Traits:
        """The hints that were locked."""
        return self._locked.traits

    def validator(self) -> "functools.partial[NoReturn]":
        """Return what refuses all arguments."""
        return functools.partial(_refuse, self._drift)

    async def call(
        self,
        invocation: Invocation,  # noqa: ARG002  # none is made
        context: Context,  # noqa: ARG002
        /,
    ) -> Result | InputRequest:
        """Refuse."""
        _refuse(self._drift, {})


def _refuse(drift: Drift, _: dict[str, object]) -> NoReturn:
    raise InvalidCall("unavailable") from ToolChanged(drift)


def _offered(registry: Registry) -> dict[Key, LockedTool]:
    bindings: Iterable[Binding | None] = map(registry.resolve, registry.names)
    tools = (LockedTool.of(one) for one in bindings if one is not None)
    return {tool.key: tool for tool in tools}


def _compared(
    key: Key, locked: Mapping[Key, LockedTool], offered: Mapping[Key, LockedTool]
) -> Drift | None:
    origin, name = key
    if key not in locked:
        return Drift(origin=origin, name=name, kind="new")
    if key not in offered:
        return Drift(origin=origin, name=name, kind="gone")
    return drifted(locked[key], offered[key])


def _state(path: Path | None) -> tuple[int, int, int] | None:
    """Return what tells a file from the same file written again."""
    try:
        found = None if path is None else os.stat(path)  # noqa: PTH116  # at each request; twice as quick
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)
