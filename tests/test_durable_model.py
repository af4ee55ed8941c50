"""
A durable runtime beside a plain model of it, step by step (DUR-1 to DUR-3, SUS-3, SUS-4, EXE-3).

Random turns are submitted, answered, withdrawn, cancelled, resolved, left and crashed; after each
step every call stands where the model says: state, leg, how often it was dispatched, how it ended,
what waits and what nobody knows. The model is dictionaries and loops; it imports nothing that moves
calls. A crash is `home.crash`: the crash suite kills processes.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import ClassVar, cast

import anyio
import anyio.lowlevel
import msgspec
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ferrule import (
    Allow,
    Ask,
    Authorization,
    Cancelled,
    Completed,
    Context,
    Continuation,
    Decision,
    Definition,
    Failed,
    Failure,
    InputRequest,
    Outcome,
    RawTool,
    Registry,
    Replay,
    Result,
    Shared,
    ToolCall,
    Traits,
    Use,
)
from ferrule.errors import AnswerConflict, AnswerRefused, BatchConflict, WaitClosed
from ferrule.ports import DurableCall
from ferrule.runtime import SqliteRuntime
from ferrule.states import MOVES, State, Step
from homes import PATIENCE, SqliteHome

HOUR = 3600.0
MANY = 8
"""Calls that are not settled, beside which no more are submitted."""


class Spec(msgspec.Struct, frozen=True):
    """
    What a made-up call does.

    Attributes:
        plan: What it does at its first begin, its second, and so on; then it returns. `r` returns,
            `f` fails, `x` raises, `X` raises after `begin_effect`, `q` asks, `h` is at work until
            it is let go, `E` likewise after `begin_effect`.
        replay: As its tool says.
        uses: What it works on: `w` has it alone, `s` shares it, `-` is nothing.
        gate: Whether a person is asked first.
        timed: Whether what it asks expires.
    """

    plan: str
    replay: Replay
    uses: str
    gate: bool
    timed: bool


SPECS = st.builds(
    Spec,
    plan=st.text("qqrfxXhhE", min_size=1, max_size=3),
    replay=st.sampled_from(["safe", "keyed", "unknown", "until_effect"]),
    uses=st.sampled_from("wws-"),
    gate=st.sampled_from([False, False, True]),
    timed=st.booleans(),
)


# ---- the model ---------------------------------------------------------------------------------


class Call:
    """One call of the model."""

    def __init__(self, batch: str, position: int, spec: Spec) -> None:
        self.id = f"{batch}/c{position}"
        self.batch = batch
        self.position = position
        self.spec = spec
        self.state = "admitted"
        self.leg = 1
        self.begins = 0
        self.ended = ""
        self.effect = False
        self.may_have_run = False
        self.approved: bool | None = None
        self.asks = ""

    def __repr__(self) -> str:
        return f"{self.id} {self.state} leg {self.leg} begun {self.begins} {self.ended}"

    @property
    def is_pending(self) -> bool:
        """Whether its next leg is to be run."""
        return self.state in {"admitted", "authorized", "answered"}

    @property
    def is_settled(self) -> bool:
        """Whether the model can be told how it ended."""
        return self.state in {"completed", "failed", "rejected", "cancelled", "unknown"}

    @property
    def runs_again(self) -> bool:
        """Whether a second run does no harm."""
        replay = self.spec.replay
        return replay in {"safe", "keyed"} or (replay == "until_effect" and not self.effect)

    def conflicts(self, other: "Call") -> bool:
        """Say whether both work on the same, and one of them alone."""
        both = self.spec.uses + other.spec.uses
        return self is not other and "-" not in both and "w" in both

    def end(self, state: str, ended: str) -> None:
        """Have it settled."""
        self.state, self.ended, self.asks = state, ended, ""

    def doubt(self, reason: str) -> None:
        """Have nobody know how it ended."""
        self.end("unknown", reason)

    def begin(self) -> None:
        """Do what the plan says."""
        action = self.spec.plan[self.begins : self.begins + 1] or "r"
        self.begins += 1
        self.effect = action in "XE"
        if action == "r":
            self.end("completed", "done")
        elif action == "f":
            self.end("failed", "no")
        elif action == "q":
            self.state, self.asks = "suspended", "tool"
        elif action in "xX" and (
            self.spec.replay == "safe" or (self.spec.replay == "until_effect" and not self.effect)
        ):
            self.end("failed", "reference")
        elif action in "xX":
            self.doubt("raised")
        else:
            self.state = "dispatched"


class Turn:
    """One batch of the model."""

    def __init__(self, calls: list[Call]) -> None:
        self.calls = calls
        self.in_order = list(calls)
        self.tickets: list[Call] = []

    @property
    def is_open(self) -> bool:
        """Whether somebody drives it."""
        return not all(call.is_settled for call in self.calls)

    def take(self) -> None:
        """Have another process drive it: what is to be run is lined up anew."""
        self.tickets = []
        self.in_order = [one for one in self.calls if one.is_pending or one.state == "dispatched"]
        for call in self.calls:
            if call.state == "authorized":
                call.state = "admitted"

    def run(self) -> None:
        """Go on until only people, and calls that are at work, are awaited."""
        self._forget()
        while [call for call in self.calls if self._advance(call)]:
            pass
        self._forget()

    def _forget(self) -> None:
        """Have nobody wait for what has ended."""
        # Who ended before its turn came takes its turn all the same: what is behind it is in order.
        for call in list(self.in_order):
            ended = not call.is_pending and call.state != "dispatched"
            if ended and not self._is_behind(call):
                self.in_order.remove(call)
        self.tickets = [one for one in self.tickets if one.is_pending]

    def _is_behind(self, call: Call) -> bool:
        """Say whether the turn of a call has still to come."""
        before = self.in_order[: self.in_order.index(call)] if call in self.in_order else []
        return any(call.conflicts(other) for other in before)

    def _advance(self, call: Call) -> bool:
        """Take one step of a call, if it can."""
        if not call.is_pending:
            return False
        if call.spec.gate and call.approved is None:
            call.state, call.asks = "suspended", "guard"
        elif call.spec.gate and not call.approved:
            call.end("rejected", "not approved")
        elif self._waits(call):
            return False
        else:
            call.begin()
        self._forget()
        return True

    def _waits(self, call: Call) -> bool:
        if self._is_behind(call):
            call.state = "authorized"
            return True
        mine = self.tickets.index(call) if call in self.tickets else None
        ahead = [*self.tickets[:mine], *(one for one in self.calls if one.state == "dispatched")]
        if not any(call.conflicts(other) for other in ahead):
            return False
        call.state = "authorized"
        if mine is None:
            self.tickets.append(call)
        return True


# ---- the tools ---------------------------------------------------------------------------------


class World:
    """What the tools do to the outside, which outlives every process."""

    def __init__(self) -> None:
        self.plans: dict[str, str] = {}
        self.begun: dict[str, list[tuple[int, str]]] = {}
        self.at_work: dict[str, tuple[str, str]] = {}
        self.doors: dict[str, anyio.Event] = {}
        self.overlaps: list[str] = []
        self.answers: dict[str, list[object]] = {}

    def registry(self) -> Registry:
        """Return the one tool, guarded."""
        traits = Traits(
            replay=lambda arguments: cast("Replay", arguments["replay"]),
            uses=_uses,
        )
        tool = RawTool(Definition("work"), self._work, traits=traits, resume=self._resume)
        return Registry([tool], grace=0.05).guarded(_policy)

    async def _resume(
        self, arguments: dict[str, object], context: Context, answered: Continuation
    ) -> object:
        key = str(arguments["key"])
        self.answers.setdefault(key, []).append((answered.state, answered.answer))
        return await self._work(arguments, context)

    async def _work(self, arguments: dict[str, object], context: Context) -> object:
        key, uses = str(arguments["key"]), str(arguments["uses"])
        begun = self.begun.setdefault(key, [])
        begun.append((context.leg, context.idempotency_key))
        action = str(arguments["plan"])[len(begun) - 1 : len(begun)] or "r"
        for other, (batch, theirs) in self.at_work.items():
            if batch == arguments["batch"] and "-" not in uses + theirs and "w" in uses + theirs:
                self.overlaps.append(f"{key} beside {other}")
        self.at_work[key] = str(arguments["batch"]), uses
        try:
            return await self._do(action, key, context, timed=bool(arguments["timed"]))
        finally:
            del self.at_work[key]

    async def _do(self, action: str, key: str, context: Context, *, timed: bool) -> object:
        if action in "XE":
            await context.begin_effect()
        if action == "f":
            raise Failure("no")
        if action in "xX":
            raise RuntimeError("private")
        if action == "q":
            expires_in = HOUR if timed else None
            return InputRequest(
                "Which?", schema={"type": "integer"}, state=f"s{context.leg}", expires_in=expires_in
            )
        if action in "hE":
            await self.doors.setdefault(key, anyio.Event()).wait()
        return "done"


def _uses(arguments: dict[str, object]) -> list[Use]:
    kind, state = arguments["uses"], f"state of {arguments['batch']}"
    if kind == "-":
        return []
    return [state if kind == "w" else Shared(state)]


def _policy(asked: Authorization) -> Decision:
    if not asked.arguments["gate"]:
        return Allow()
    return Ask("May it?", expires_in=HOUR if asked.arguments["timed"] else None)


# ---- both, side by side --------------------------------------------------------------------------


class Beside(RuleBasedStateMachine):
    """Takes each step in both, and compares."""

    backend: ClassVar[str] = "asyncio"
    portal: ClassVar[BlockingPortal]

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        directory = self._stack.enter_context(tempfile.TemporaryDirectory())
        self.home = SqliteHome(Path(directory) / "calls.db")
        self.world = World()
        self.turns: dict[str, Turn] = {}
        self.submitted: dict[str, list[ToolCall]] = {}
        self.answers: list[tuple[str, str, object]] = []
        self.closed: list[str] = []
        self.ahead = 0.0
        self.is_moved = True
        self.names = (f"t{number}" for number in itertools.count())

    @property
    def calls(self) -> list[Call]:
        """All calls of the model."""
        return [one for turn in self.turns.values() for one in turn.calls]

    def some(self, which: Callable[[Call], bool]) -> list[Call]:
        """Return the calls of which something holds."""
        return [one for one in self.calls if which(one)]

    def waits(self) -> dict[str, str]:
        """Return the ids of what waits, by call."""
        return {one.call_id: one.id for one in self.portal.call(self.runtime.inbox.waits)}

    # ---- processes -------------------------------------------------------------------------------

    @initialize(specs=st.lists(SPECS, min_size=2, max_size=4))
    def start(self, specs: list[Spec]) -> None:
        """Enter a runtime, and submit a turn."""
        self._enter()
        self.submit(specs)

    def _enter(self) -> None:
        entered: AbstractContextManager[SqliteRuntime] = self.portal.wrap_async_context_manager(
            self.home.runtime(self.world.registry())
        )
        self.runtime = entered.__enter__()
        self._leave = entered
        self.runtime._host._store._clock = lambda: time.time() + self.ahead

    @precondition(lambda self: self.is_moved and self.some(lambda one: not one.is_settled))
    @rule()
    def crash(self) -> None:
        """Lose the process, and have the next one recover."""
        self.portal.call(self.home.crash, self.runtime)
        self._next("owner_lost")

    @precondition(lambda self: self.is_moved and self.some(lambda one: not one.is_settled))
    @rule()
    def leave(self) -> None:
        """End the process as one should, and have the next one recover."""
        self._next("cancelled")

    def _next(self, reason: str) -> None:
        self.is_moved = False
        self._leave.__exit__(None, None, None)
        for turn in self.turns.values():
            lined_up = [one for one in turn.calls if one.state == "dispatched"]
            for call in lined_up:
                if call.runs_again:
                    call.state = "admitted"
                    call.may_have_run |= call.spec.replay == "keyed"
                elif reason == "cancelled":
                    call.doubt(reason)
            turn.take()
            for call in lined_up:
                if call.state == "dispatched":
                    call.doubt(reason)
        self._enter()
        self.portal.call(self.runtime.recover)
        for turn in self.turns.values():
            turn.run()

    # ---- batches ---------------------------------------------------------------------------------

    @precondition(lambda self: len(self.some(lambda one: not one.is_settled)) < MANY)
    @rule(specs=st.lists(SPECS, min_size=2, max_size=4))
    def submit(self, specs: list[Spec]) -> None:
        """Submit a turn."""
        name = next(self.names)
        turn = Turn([Call(name, place, spec) for place, spec in enumerate(specs)])
        made = [
            ToolCall.of(
                "work",
                {**msgspec.to_builtins(one.spec), "key": one.id, "batch": name},
                id=f"c{place}",
            )
            for place, one in enumerate(turn.calls)
        ]
        self.turns[name], self.submitted[name] = turn, made
        self.is_moved = True
        self._submit(name, made)
        turn.run()

    def _submit(self, name: str, calls: list[ToolCall]) -> None:
        async def submit() -> None:
            await self.runtime.submit(calls, batch_id=name)

        self.portal.call(submit)

    @precondition(lambda self: self.turns)
    @rule(data=st.data())
    def submit_again(self, data: st.DataObject) -> None:
        """Submit the same turn again, which changes nothing; and another of its name."""
        name = data.draw(st.sampled_from(sorted(self.turns)))
        self._submit(name, self.submitted[name])
        with pytest.raises(BatchConflict):
            self._submit(name, [*self.submitted[name], ToolCall.of("work", id="more")])

    @precondition(lambda self: self.some(lambda one: one.state == "dispatched"))
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        """Have a call that is at work end."""
        call = data.draw(st.sampled_from(self.some(lambda one: one.state == "dispatched")))
        door = self.world.doors.pop(call.id)
        self.portal.call(door.set)
        call.end("completed", "done")
        self.turns[call.batch].run()

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Cancel a call, wherever it is."""
        call = data.draw(st.sampled_from(self.calls))

        async def cancel() -> None:
            await self.runtime.cancel(call.batch, call.id, by="ann")

        wait = self.waits().get(call.id)
        self.portal.call(cancel)
        if call.is_settled:
            return
        if call.state == "dispatched":
            self.world.doors.pop(call.id)
            call.doubt("cancelled")
        elif call.asks == "tool":
            call.end("failed", "cancelled while it waited")
        elif call.may_have_run:
            call.doubt("cancelled")
        else:
            call.end("cancelled", "did not run")
        self.closed += [] if wait is None else [wait]
        self.turns[call.batch].run()

    # ---- questions -------------------------------------------------------------------------------

    def _answer(self, wait: str, content: object, answer_id: str) -> bool:
        async def answer() -> bool:
            receipt = await self.runtime.inbox.answer(wait, content, by="ann", answer_id=answer_id)
            return receipt.first

        return self.portal.call(answer)

    @precondition(lambda self: self.some(lambda one: one.asks == "guard"))
    @rule(data=st.data(), yes=st.booleans())
    def answer_a_guard(self, data: st.DataObject, yes: bool) -> None:
        """Say whether a call may run."""
        call = data.draw(st.sampled_from(self.some(lambda one: one.asks == "guard")))
        self._answer_first(call, yes)

    @precondition(lambda self: self.some(lambda one: one.asks == "tool"))
    @rule(data=st.data(), number=st.integers(0, 2**60))
    def answer_a_tool(self, data: st.DataObject, number: int) -> None:
        """Say what a call asks."""
        call = data.draw(st.sampled_from(self.some(lambda one: one.asks == "tool")))
        self._answer_first(call, number)

    def _answer_first(self, call: Call, content: object) -> None:
        """Answer what waits, after an answer that is none."""
        wait = self.waits()[call.id]
        answer_id = f"a{len(self.answers)}"
        with pytest.raises(AnswerRefused):
            self._answer(wait, "neither", answer_id)
        assert self._answer(wait, content, answer_id)
        self.answers.append((wait, answer_id, content))
        self.closed.append(wait)
        if call.asks == "guard":
            call.approved, call.state = content is True, "admitted"
        else:
            call.state = "answered"
        call.leg, call.asks = call.leg + 1, ""
        self.is_moved = True
        self.turns[call.batch].run()

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def answer_again(self, data: st.DataObject) -> None:
        """Answer again what was answered: the same has no effect, anything else is refused."""
        wait, answer_id, content = data.draw(st.sampled_from(self.answers))
        assert not self._answer(wait, content, answer_id)
        with pytest.raises(AnswerConflict):
            self._answer(wait, 2**61, answer_id)
        with pytest.raises(WaitClosed):
            self._answer(wait, content, "another")
        with pytest.raises(WaitClosed):
            self._answer(data.draw(st.sampled_from(self.closed)), True, "late")

    @precondition(lambda self: self.some(lambda one: bool(one.asks)))
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        """Take a question back."""
        call = data.draw(st.sampled_from(self.some(lambda one: bool(one.asks))))
        wait = self.waits()[call.id]

        async def withdraw() -> None:
            await self.runtime.inbox.withdraw(wait, by="ann")

        self.portal.call(withdraw)
        self.closed.append(wait)
        call.end("failed", "withdrawn")
        self.turns[call.batch].run()

    @precondition(lambda self: self.some(lambda one: bool(one.asks) and one.spec.timed))
    @rule()
    def wait_long(self) -> None:
        """Have an hour pass: what expires has failed, whoever asks."""
        due = self.some(lambda one: bool(one.asks) and one.spec.timed)
        waits = self.waits()
        self.ahead += 2 * HOUR
        for call in due:
            self.closed.append(waits[call.id])
            call.end("failed", "expired")

    # ---- doubt -----------------------------------------------------------------------------------

    @precondition(lambda self: self.some(lambda one: one.state == "unknown"))
    @rule(
        data=st.data(),
        resolution=st.sampled_from(
            [Completed(Result.of("done")), Failed(Failure("no")), Cancelled(tool="work")]
        ),
    )
    def resolve(self, data: st.DataObject, resolution: Outcome) -> None:
        """Say how a call ended that nobody knows of."""
        call = data.draw(st.sampled_from(self.some(lambda one: one.state == "unknown")))

        async def resolve(said: Outcome) -> None:
            await self.runtime.inbox.resolve(call.id, said, by="ann")

        self.portal.call(resolve, resolution)
        self.portal.call(resolve, resolution)
        with pytest.raises(AnswerRefused):
            self.portal.call(resolve, Completed(Result.of("something else")))
        state = type(resolution).__name__.lower()
        call.end(state, {"completed": "done", "failed": "no"}.get(state, "did not run"))

    @precondition(lambda self: self.some(lambda one: one.state == "unknown"))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        """Have a call run again of which nobody knows."""
        call = data.draw(st.sampled_from(self.some(lambda one: one.state == "unknown")))
        turn = self.turns[call.batch]
        was_open = turn.is_open

        async def retry() -> None:
            await self.runtime.inbox.resolve(call.id, "retry", by="ann")
            await self.runtime.recover()

        self.portal.call(retry)
        call.state, call.ended = "admitted", ""
        call.may_have_run |= call.spec.replay != "safe"
        self.is_moved = True
        if not was_open:
            turn.take()
        turn.run()

    # ---- comparing -------------------------------------------------------------------------------

    @invariant()
    def both_are_the_same(self) -> None:
        """Every call stands where the model says, and so does all that people see."""
        if self.turns:
            self.portal.call(self._compare)

    async def _compare(self) -> None:
        expected = {one.id: (one.state, one.leg, one.begins) for one in self.calls}
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up and not (await self._stands(expected)):
            await anyio.lowlevel.checkpoint()
        assert await self._found() == expected, self._story()
        assert not self.world.overlaps
        inbox = self.home.inbox()
        for call in self.calls:
            self._compare_outcome(call, await inbox.call(call.id))
        waits = {one.call_id for one in await self.runtime.inbox.waits()}
        assert waits == {one.id for one in self.calls if one.asks}
        unknown = {one.id for one in await inbox.unknown()}
        assert unknown == {one.id for one in self.calls if one.state == "unknown"}

    async def _stands(self, expected: Mapping[str, object]) -> bool:
        """Say whether all calls are where they should be, and stay there."""
        for _ in range(4):
            if await self._found() != expected:
                return False
            await self.runtime._host.read(lambda _: None)  # What was given to the journal is done.
            await anyio.wait_all_tasks_blocked()
        return True

    def _story(self) -> str:
        """Return what happened, for who reads a failure."""
        lines = self.home.look(
            "SELECT call, step, state, leg, fence, data FROM history ORDER BY seq"
        )
        specs = [f"{one!r} {one.spec}" for one in self.calls]
        return "\n".join([*specs, *map(str, lines)])

    async def _found(self) -> dict[str, tuple[object, object, object]]:
        rows = self.home.look("SELECT id, state, leg, fence FROM calls ORDER BY rowid")
        return {str(row[0]): (row[1], row[2], row[3]) for row in rows}

    def _compare_outcome(self, call: Call, kept: DurableCall) -> None:
        begun = self.world.begun.get(call.id, [])
        assert len(begun) == call.begins
        assert {key for _, key in begun} <= {kept.idempotency_key}
        assert (kept.outcome is None) is not call.is_settled, call
        if kept.outcome is None:
            return
        if call.state == "unknown":
            assert getattr(kept.outcome, "reason", None) == call.ended
        else:
            assert type(kept.outcome).__name__.lower() == call.state
            assert call.ended in kept.outcome.text

    def teardown(self) -> None:
        """Leave; what was written is a way through the table, from proposal to where it ended."""
        if hasattr(self, "_leave"):
            self._leave.__exit__(None, None, None)
            self._read_history()
        self._stack.close()

    def _read_history(self) -> None:
        states: dict[object, str] = {}
        for call, step, state in self.home.look(
            "SELECT call, step, state FROM history ORDER BY seq"
        ):
            if step == "propose":
                states[call] = "proposed"
            elif step in NOTES:
                assert states[call] == state
            else:
                moved = MOVES[cast("State", states[call]), cast("Step", step)]
                assert moved == state
                states[call] = moved
        assert states == dict(
            cast("list[tuple[str, str]]", self.home.look("SELECT id, state FROM calls"))
        )


NOTES = {"wait", "record", "effect", "evidence", "told", "changed"}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_runtime_does_as_the_model(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    """DUR-1 to DUR-3, SUS-3, SUS-4, EXE-3: after each of some hundred random steps."""
    caplog.set_level("CRITICAL", logger="ferrule")
    with start_blocking_portal(backend) as portal:

        class Machine(Beside):
            pass

        Machine.portal = portal
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=20,
                stateful_step_count=16,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                # A step that hangs takes its time: the story is told instead of made shorter.
                phases=[Phase.explicit, Phase.reuse, Phase.generate],
            ),
        )
