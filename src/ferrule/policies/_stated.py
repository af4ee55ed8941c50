"""What a tool says of itself, read by the strictest reading (CONTRACT AUT-3)."""

from typing import Literal, get_args

from ferrule import Traits

Hint = Literal["read_only", "destructive", "idempotent", "open_world"]
HINTS: tuple[Hint, ...] = get_args(Hint)

Hints = dict[Hint, bool | None]
"""Each hint: true, false, or `None` where nothing was said."""


def stated(traits: Traits) -> Hints:
    """
    Return what a tool says of itself.

    One that says that it only reads and that it destroys is taken at its worst word.
    """
    hints: Hints = {hint: getattr(traits, hint) for hint in HINTS}
    if contradicts_itself(traits):
        hints["read_only"] = False
    return hints


def contradicts_itself(traits: Traits) -> bool:
    """Say whether a tool says both that it only reads and that it destroys."""
    return traits.read_only is True and traits.destructive is True
