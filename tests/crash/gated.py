"""Tools that are held until somebody opens a gate; shared by a test and the processes it stops."""

import functools
from collections.abc import Awaitable, Callable

import anyio

from crash.world import World, named, policy
from ferrule import Context, Registry, Traits
from ferrule.errors import Fenced

CALLS = ("held_safe", "held_once", "held_record", "refund+")
"""A call that runs again, one that does not, one that writes a record late, one that is asked."""

Gate = Callable[[], Awaitable[object]]


async def is_open() -> None:
    """Hold nobody."""


def tools(world: World, gate: Gate = is_open) -> Registry:
    """Return the tools, behind the policy."""

    async def hold(_: Context, __: Traits) -> None:
        await gate()

    async def record(context: Context, _: Traits) -> None:
        with anyio.CancelScope(shield=True):  # It learns that it was taken for lost, and goes on.
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
