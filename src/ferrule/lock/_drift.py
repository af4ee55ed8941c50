"""What is locked of one tool, and how a tool that is offered differs from it."""

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

from ferrule import Binding, Change, Contract, Definition, FerruleError, Limits, Traits, diff
from ferrule.helpers import one_line

Key: TypeAlias = tuple[str, str]
"""Origin and name: tools of one name may come from two places."""

DriftKind: TypeAlias = Literal["changed", "new", "gone"]

HINTS = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}
"""The hints by MCP's names, as fingerprints have them, and by ours."""

_ANY_SIZE = Limits(schema_bytes=1 << 30, nodes=1 << 30)
"""What was locked was bound once, under whichever limits."""

_LONGEST = 4000
"""Characters of what an operator reads of one tool."""


class LockedTool(msgspec.Struct, frozen=True, kw_only=True):
    """
    A tool as it was approved.

    Attributes:
        origin: Where it comes from, as in `mcp:git`.
        definition: What a model read of it.
        hints: What it said of itself, by MCP's names; what was not stated is missing.
        fingerprint: The identity of all that.
    """

    origin: str
    definition: Definition
    hints: Mapping[str, bool] = {}
    fingerprint: str

    @classmethod
    def of(cls, binding: Binding) -> "LockedTool":
        """Return what there is to lock of a tool that is bound."""
        contract = binding.contract
        return cls(
            origin=contract.origin,
            definition=contract.definition,
            hints=binding.traits.hints,
            fingerprint=contract.fingerprint,
        )

    @property
    def key(self) -> Key:
        """Its origin and its name."""
        return self.origin, self.definition.name

    @property
    def traits(self) -> Traits:
        """The hints, as traits."""
        stated = {HINTS[name]: value for name, value in self.hints.items()}
        return msgspec.structs.replace(Traits(), **stated)

    def computed(self) -> str:
        """
        Return the fingerprint that definition, hints and origin have.

        Raises:
            InvalidTool: no tool can have that definition.
        """
        contract = Contract(
            self.definition, hints=self.traits.hints, origin=self.origin, limits=_ANY_SIZE
        )
        return contract.fingerprint


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """
    How what is offered differs from what is locked, for one tool.

    Attributes:
        origin: Where the tool comes from.
        name: Its name.
        kind: It is another now, it is not in the lock, or it is offered no more.
        changes: What changed and what that means, as `diff` says it. Hints are at
            `hints.readOnlyHint` and the like: `"breaking"` where what was stated is not any more,
            `"compatible"` where something is stated newly.
    """

    origin: str
    name: str
    kind: DriftKind
    changes: tuple[Change, ...] = ()

    def __str__(self) -> str:
        tool = f"tool `{one_line(self.name, 128)}` of `{one_line(self.origin, 200)}`"
        if self.kind == "new":
            return f"{tool} is not in the lock"
        if self.kind == "gone":
            return f"{tool} is in the lock and is not offered"
        found = "; ".join(f"{c.kind} {one_line(c.path, 200)}" for c in self.changes)
        return f"{tool} is not what was locked: {one_line(found, _LONGEST)}"

    def to_json(self) -> dict[str, object]:
        """Return the facts as plain JSON."""
        written: dict[str, object] = {
            "kind": self.kind,
            "origin": self.origin,
            "tool": self.name,
        }
        if self.changes:
            written["changes"] = [change.to_json() for change in self.changes]
        return written


class ToolChanged(FerruleError):
    """
    A tool was called that is not what was locked; for operators, and never read by a model.

    Attributes:
        drift: What changed.
    """

    def __init__(self, drift: Drift) -> None:
        super().__init__(drift)
        self.drift = drift

    def __str__(self) -> str:
        return f"{self.drift}; look at it, and lock it again with `ferrule lock`"


def drifted(locked: LockedTool, offered: LockedTool) -> Drift | None:
    """Return how a tool differs from what was locked under its origin and name."""
    if locked.fingerprint == offered.fingerprint:
        return None
    return Drift(
        origin=locked.origin,
        name=locked.definition.name,
        kind="changed",
        changes=(
            *diff(locked.definition, offered.definition),
            *_hints(locked.hints, offered.hints),
        ),
    )


def _hints(old: Mapping[str, bool], new: Mapping[str, bool]) -> Iterator[Change]:
    """Say what changed of the hints: who relied on what was stated is let down without it."""
    for name in HINTS:
        before, after = old.get(name), new.get(name)
        if before is not after:
            kind: Literal["compatible", "breaking"]
            kind = "compatible" if before is None else "breaking"
            yield Change(path=f"hints.{name}", kind=kind)
