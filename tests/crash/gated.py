"""Tools that are held until somebody opens a gate; shared by a test and the processes it stops."""

import functools
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from crash.world import World, named, policy, turn
from ferrule import Context, Registry, ToolCall, Traits
from ferrule.errors import Fenced

CALLS = ("held_safe", "held_once", "held_record", "refund+")
"""A call that runs again, one that does not, one that writes a record late, one that is asked."""

HELD = CALLS[:3]
"""Those that begin at once."""


def turns() -> dict[str, list[ToolCall]]:
    """Return two turns; nobody has to be asked in the first."""
    return {"held": turn("held", HELD), "turn": turn("turn", CALLS)}


Gate = Callable[[], Awaitable[object]]


async def is_open() -> None:
    """Hold nobody."""


def tools(world: World, gate: Gate = is_open) -> Registry:
    """Return the tools, behind the policy."""

    async def hold(_: Context, __: Traits) -> None:
        await gate()

    async def record(context: Context, _: Traits) -> None:
        with anyio.CancelScope(shield=True):  # It learns that it was taken for lost, and goes on.
            with suppress(anyio.get_cancelled_exc_class()):  # asyncio's tasks know no shield.
                await gate()
            try:
                await context.record("crash:note", f"{context.call_id} late")
            except Fenced:
                world.say("fenced", call=context.call_id)

    made = [
        named(world, "held_safe", hold, replay="safe"),
        named(world, "held_once", hold),
        named(world, "held_record", record),
        named(world, "refund"),
    ]
    return Registry(made).guarded(functools.partial(policy, world))
