"""
A world that a process drives until it is killed, and the next one drives on: tools, calls, answers.

Everything that a call may be is in a turn: safe, keyed, unknown, until its effect; asked about by a
policy, by the tool, by both; exclusive and shared; failed, broken, refused, denied, cancelled. What
each does stands in the world's log. `live` is one life of the process that drives: it can be ended
anywhere, and the next one says the same again.
"""

import functools
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, cast

import anyio
import anyio.lowlevel
import msgspec

from crash.log import Log, lines
from ferrule import (
    Allow,
    Ask,
    Authorization,
    Completed,
    Context,
    Continuation,
    Decision,
    Definition,
    Deny,
    Executor,
    Failure,
    InputRequest,
    RawTool,
    Registry,
    Result,
    Shared,
    Tool,
    ToolCall,
    Traits,
    Use,
    tool,
)
from ferrule.errors import WaitClosed
from ferrule.ports import Moved
from ferrule.runtime import SqliteBatch, SqliteRuntime

LEASE = 5.0
"""Seconds; where a system does not say that a process is gone, the next one waits for so long."""

Function = Callable[..., Awaitable[object]]


class World:
    """
    A journal, a log, and the tools.

    Args:
        home: Their directory.
        holds: Whether calls that may be held are held, until the process is killed.
        tick: Told of each line of the log.

    Attributes:
        path: The journal.
        answered: Calls that were answered, or are about to be.
        resolved: Calls that were resolved, or are about to be.
    """

    def __init__(
        self, home: Path, *, holds: bool = False, tick: Callable[[str], object] = len
    ) -> None:
        self.path = home / "calls.db"
        self.log = Log(home / "log")
        self.holds = holds
        self._tick = tick
        before = lines(home / "log")
        self.answered = {line.call for line in before if line.what == "answered"}
        self.resolved = {line.call for line in before if line.what == "resolved"}
        self._sync = functools.partial(threading.Event().wait, 600)

    def say(self, what: str, **facts: object) -> None:
        """Write a line of the log, and let whoever watches know."""
        self.log.write(what, **facts)
        self._tick(what)

    def note(self, what: str, context: Context, traits: Traits) -> None:
        """Write a line about a running call."""
        self.say(
            what,
            call=context.call_id,
            leg=context.leg,
            key=context.idempotency_key,
            tool=context.tool,
            replay=traits.replay,
            uses=_uses(traits.uses),
        )

    async def hold(self) -> None:
        """Wait for the end of the process, if calls are held."""
        if self.holds:
            await anyio.sleep_forever()

    def hold_blocking(self) -> None:
        """Do so in a thread."""
        if self.holds:
            self._sync()


def _uses(uses: object) -> list[tuple[str, bool]]:
    given = (uses,) if isinstance(uses, str | Shared) else cast("tuple[Use, ...]", uses or ())
    return [(use.state, True) if isinstance(use, Shared) else (use, False) for use in given]


# ---- the tools -------------------------------------------------------------------------------


def tools(world: World) -> Registry:
    """Return every tool, behind the policy."""
    made: list[Tool] = [
        *_plain_tools(world),
        *_effect_tools(world),
        *_using_tools(world),
        *_asking_tools(world),
        *_failing_tools(world),
        *_held_tools(world),
    ]
    return Registry(made).guarded(functools.partial(policy, world))


def named(
    world: World,
    name: str,
    work: Callable[[Context, Traits], Awaitable[object]] | None = None,
    **traits: object,
) -> Tool:
    """Return a tool that notes its beginning and end, and does `work` between."""
    its_traits = Traits(**traits)  # type: ignore[arg-type]

    async def function(_: dict[str, object], context: Context) -> object:
        world.note("begin", context, its_traits)
        try:
            if work is not None:
                await work(context, its_traits)
        except (Failure, OSError):
            world.note("raise", context, its_traits)
            raise
        world.note("end", context, its_traits)
        return name

    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    return RawTool(Definition(name, input_schema=schema), function, traits=its_traits)


def _plain_tools(world: World) -> list[Tool]:
    async def record(context: Context, traits: Traits) -> None:
        for number in range(2):
            await context.record("crash:note", f"{context.call_id} {number}")
            world.say("recorded", call=context.call_id, leg=context.leg, name=str(number))
        world.note("effect", context, traits)

    async def pause(_: Context, __: Traits) -> None:
        await anyio.lowlevel.checkpoint()

    @tool(replay="keyed", name="pay", run_in="thread")
    def pay(context: Context) -> str:
        """Pay, from a thread."""
        traits = Traits(replay="keyed")
        world.note("begin", context, traits)
        context.record_blocking("crash:note", f"{context.call_id} 0")
        world.say("recorded", call=context.call_id, leg=context.leg, name="0")
        world.note("effect", context, traits)
        world.note("end", context, traits)
        return "paid"

    return [
        named(world, "look", pause, replay="safe"),
        named(world, "send", record),
        pay,
    ]


def _effect_tools(world: World) -> list[Tool]:
    async def effect(context: Context, traits: Traits) -> None:
        await context.begin_effect()
        world.note("effect", context, traits)

    async def nothing(_: Context, __: Traits) -> None:
        await anyio.lowlevel.checkpoint()

    return [
        named(world, "move", effect, replay="until_effect"),
        named(world, "draft", nothing, replay="until_effect"),
    ]


def _using_tools(world: World) -> list[Tool]:
    async def effect(context: Context, traits: Traits) -> None:
        world.note("effect", context, traits)

    async def turn(_: Context, __: Traits) -> None:
        for _i in range(3):
            await anyio.lowlevel.checkpoint()

    return [
        named(world, "till", turn, uses="till"),
        named(world, "peek", turn, uses=Shared("till"), replay="safe"),
        named(world, "charge", effect, uses=("till", "card"), replay="keyed"),
        named(world, "swipe", turn, uses="card", replay="until_effect"),
    ]


class Draft(msgspec.Struct, frozen=True):
    """What a step goes on from."""

    number: int


def _asking_tools(world: World) -> list[Tool]:
    return [
        _form(world, "form", Traits(uses="shelf")),
        _form(world, "slow_form", Traits()),
        named(world, "refund"),
        _order(world),
    ]


def _form(world: World, name: str, traits: Traits) -> Tool:
    """Return a raw tool that asks, and goes on with the answer."""

    async def form(_: dict[str, object], context: Context) -> InputRequest:
        world.note("begin", context, traits)
        if context.leg > 1:
            world.note("restarted", context, traits)
        world.note("ask", context, traits)
        return InputRequest("Fill in the form?", schema={"type": "boolean"}, state={"page": 1})

    async def filled(_: dict[str, object], context: Context, said: Continuation) -> object:
        world.note("begin", context, traits)
        assert said.state == {"page": 1}
        world.note("effect", context, traits)
        world.note("end", context, traits)
        return said.answer

    return RawTool(Definition(name), form, traits=traits, resume=filled)


def _order(world: World) -> Tool:
    traits = Traits(replay="keyed", uses="shelf")

    @tool(replay="keyed", uses="shelf")
    async def order(context: Context, amount: int = 0) -> InputRequest:
        """Order, once a person has looked at the draft, twice."""
        world.note("begin", context, traits)
        world.note("ask", context, traits)
        return approved.ask("Is the draft right?", Draft(number=1))

    @order.step
    async def approved(state: Draft, answer: bool, context: Context) -> InputRequest | str:
        world.note("begin", context, traits)
        if state.number == 1:
            world.note("ask", context, traits)
            return approved.ask("Still?", Draft(number=2))
        world.note("effect", context, traits)
        world.note("end", context, traits)
        return f"ordered: {answer}"

    return order


def _failing_tools(world: World) -> list[Tool]:
    async def fail(_: Context, __: Traits) -> None:
        raise Failure("no such thing")

    async def break_(_: Context, __: Traits) -> None:
        raise OSError("broken")

    async def break_once(context: Context, __: Traits) -> None:
        if context.call_id not in world.resolved:
            raise OSError("broken")

    return [
        named(world, "fails", fail, replay="safe"),
        named(world, "breaks", break_),
        named(world, "breaks_safely", break_, replay="safe"),
        named(world, "mends", break_once),
        named(world, "denied"),
    ]


def _held_tools(world: World) -> list[Tool]:
    async def hold(_: Context, __: Traits) -> None:
        await world.hold()

    async def begin_and_hold(context: Context, traits: Traits) -> None:
        await context.begin_effect()
        world.note("effect", context, traits)
        await world.hold()

    def held_thread(context: Context) -> str:
        """Be held, in a thread."""
        world.note("begin", context, Traits())
        world.hold_blocking()
        world.note("end", context, Traits())
        return "held"

    return [
        named(world, "held_safe", hold, replay="safe"),
        named(world, "held_once", hold, replay="unknown"),
        named(world, "held_draft", hold, replay="until_effect", uses="shelf"),
        named(world, "held_move", begin_and_hold, replay="until_effect"),
        named(world, "held_vault", hold, replay="keyed", uses="vault"),
        named(world, "vault", uses="vault", replay="keyed"),
        named(world, "vault_cancelled", uses="vault", replay="keyed"),
        tool(run_in="thread")(held_thread),
        named(world, "slow_policy"),
    ]


async def policy(world: World, asked: Authorization) -> Decision:
    """Ask a person about amounts over 100; deny one tool, and be slow about others."""
    name = asked.definition.name
    if name == "denied":
        return Deny("not here")
    if name == "slow_policy" or (name == "slow_form" and asked.call_id in world.answered):
        await world.hold()
    if cast("int", asked.arguments.get("amount", 0)) <= 100:
        return Allow()
    if asked.approval is not None:
        assert asked.approval.call_id == asked.call_id
        world.say("approved", call=asked.call_id, by=asked.approval.by)
    return Ask("So much?")


# ---- the calls -------------------------------------------------------------------------------

CALM = (
    *("look", "send", "pay", "move", "draft", "till", "peek", "peek", "charge", "till", "swipe"),
    *("refund", "refund+", "form", "order+", "fails", "breaks", "breaks_safely", "mends", "denied"),
    *("look!", "nobody", "peek", "till", "look="),
)
"""A turn that goes to its end by itself; `+` is asked about, `!` is wrong, `=` has an id twice."""

HELD = (
    *("held_vault", "vault", "vault_cancelled", "vault", "held_safe", "held_once"),
    *("form", "held_draft", "held_move", "held_thread", "slow_policy", "slow_form", "refund+"),
    *("look", "breaks", "till", "fails", "denied"),
)
"""A turn of which some calls are under way until their process is killed."""


def turn(batch: str, kinds: tuple[str, ...]) -> list[ToolCall]:
    """Return the calls of a turn; no other turn of the world has their ids."""
    made: list[ToolCall] = []
    for number, kind in enumerate(kinds):
        name = kind.rstrip("+!=")
        arguments = {"+": '{"amount":101}', "!": '{"amount":"much"}'}.get(kind[-1], "{}")
        call_id = made[0].id if kind.endswith("=") else f"{batch}.{number}.{kind}"
        made.append(ToolCall(id=call_id, name=name, arguments=arguments))
    return made


# ---- one life of the process that drives -----------------------------------------------------


async def live(world: World, turns: dict[str, tuple[str, ...]]) -> None:
    """Drive a world to its end, from wherever the processes before have left it."""
    executor = Executor(tools(world), max_parallel=8)
    async with SqliteRuntime(executor, world.path, lease=LEASE) as runtime:
        world.say("open")
        for batch in await runtime.recover():
            world.say("recovered", name=batch.id)
        async with anyio.create_task_group() as tasks:
            for name, kinds in turns.items():
                calls = turn(name, kinds)
                world.say("submitting", name=name, calls=[call.id for call in calls])
                batch = await runtime.submit(calls, batch_id=name, caller="crash")
                world.say("submitted", name=name)
                tasks.start_soon(_see_to, world, runtime, batch)
                tasks.start_soon(_report, world, batch)


async def _see_to(world: World, runtime: SqliteRuntime, batch: SqliteBatch) -> None:
    """Answer what a batch asks, cancel what is to be cancelled, resolve what nobody knows."""
    while True:
        async for moved in batch.events:
            if moved.state == "suspended":
                await _answer(world, runtime, moved)
            if _is_to_stop(moved):
                await runtime.cancel(batch.id, moved.call_id, by="crash")
                world.say("cancelled", call=moved.call_id.partition("/")[2])
        await _report(world, batch)
        if not await _resolve(world, runtime, batch):
            break


async def _report(world: World, batch: SqliteBatch) -> None:
    """Say how the calls of a batch have ended, as soon as that is known."""
    outcomes = await batch.settled()
    said = [type(outcome).__name__ for outcome in outcomes]
    world.say("settled", name=batch.id, calls=said)


def _is_to_stop(moved: Moved) -> bool:
    """Say whether a call is to be cancelled now: as it waits, or as it is about to run again."""
    if moved.step == "wait":
        return moved.call_id.endswith("vault_cancelled")
    return moved.step == "again" and moved.call_id.endswith("charge")


async def _answer(world: World, runtime: SqliteRuntime, moved: Moved) -> None:
    """Answer what a call asks, if it still does."""
    for wait in await runtime.inbox.waits():
        if wait.call_id == moved.call_id:
            world.answered.add(wait.call.id)
            receipt = await runtime.inbox.answer(wait.id, True, by="ann", answer_id=f"a-{wait.id}")
            world.say("answered", call=wait.call.id, name=wait.id, leg=wait.leg, by=receipt.by)
            with suppress(WaitClosed):  # Who comes second is told, and changes nothing.
                receipt = await runtime.inbox.answer(wait.id, True, by="eve")
                world.say("answered", call=wait.call.id, name=wait.id, leg=wait.leg, by=receipt.by)


async def _resolve(world: World, runtime: SqliteRuntime, batch: SqliteBatch) -> bool:
    """Say what became of calls that broke; say whether there was one."""
    done = False
    for call in await runtime.inbox.unknown(reason="raised"):
        if call.batch_id == batch.id and call.call.name in {"breaks", "mends"}:
            how: Literal["retry"] | Completed = "retry"
            if call.call.name == "breaks":
                how = Completed(Result.of("a person has seen it"))
            world.resolved.add(call.call.id)
            await runtime.inbox.resolve(call.id, how, by="bob")
            world.say("resolved", call=call.call.id, tool=call.call.name, by="bob")
            done = True
    return done
