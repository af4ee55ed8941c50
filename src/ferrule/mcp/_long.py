"""
Long calls as tasks: the extension `io.modelcontextprotocol/tasks` (SEP-2663), experimental.

Theory
======

*Which calls.* A call is answered with a task if its client takes tasks (it says so with each
request) and the call is not over, and asks nothing, `after` so many seconds. What is quick is
answered at once, and what asks at once is asked for as ever, so that nothing changes for calls that
were no burden.

*Whose.* A task is found by an id that nobody can guess, in the life of the server that made it, and
by the session that made it where there is one. Another caller hears what one hears of an id that
was never given out.

*How long.* A task is kept for `ttl` seconds from its beginning, and stopped then if it still runs.
Calls that a runtime keeps are in its journal instead: their ids name them there, under the server's
key, so that another process with that key finds them, and nothing is thrown away.
"""

import base64
import binascii
import hashlib
import hmac
import math
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import anyio
import msgspec
from mcp import MCPError, types
from mcp.types import MISSING_REQUIRED_CLIENT_CAPABILITY

from ferrule import Cancelled, InvalidValue, Outcome, ToolCall, Unknown
from ferrule.mcp._calls import Answer, Call, Standing
from ferrule.mcp._durable import DurableCall, batch_of
from ferrule.mcp._lives import Life
from ferrule.mcp._request import Request, Wire, check_name, is_modern, takes_tasks
from ferrule.mcp._shapes import TASKS, is_number
from ferrule.mcp._to_mcp import error_of
from ferrule.mcp._who import Session
from ferrule.ports import Runtime
from ferrule.states import SETTLED

Told = dict[str, Any]
Make = Callable[[Life, Request, ToolCall, str], Call]
"""Makes a call of the server's anew, by what the journal calls it."""
Start = Callable[[Call], None]
"""Has a call run, or watched, in a task of its own."""


class Tasks(msgspec.Struct, frozen=True, kw_only=True):
    """
    How a server makes tasks of long calls. Experimental: the extension is a draft.

    Attributes:
        after: Seconds after which a call is answered with a task; 0 makes one of every call.
        ttl: Seconds that a task is kept from its beginning; one that still runs then is stopped. A
            call that a runtime keeps is kept there, without end.
        poll: Seconds after which a client is told to look again.
        most: Tasks that a session has at a time, those that ended and are kept included; callers
            that nothing tells apart have them together. Further calls are waited for as ever.
        required: Names of tools whose calls only clients that take tasks can make.
    """

    after: float = 5.0
    ttl: float = 3600.0
    poll: float = 1.0
    most: int = 64
    required: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        times = (self.after, self.ttl, self.poll, self.most)
        fit = all(is_number(one) and math.isfinite(one) and one >= 0 for one in times)
        if not fit or self.ttl == 0 or self.poll == 0 or self.most == 0:
            raise InvalidValue("tasks: after is 0 or more; ttl, poll and most are more than 0")
        if isinstance(self.required, str):
            raise InvalidValue("tasks: required is names of tools, as ('one',)")


def tasks_of(given: Tasks | float | None) -> Tasks | None:
    """
    Return how long calls become tasks, of what a server was given.

    Raises:
        InvalidValue: it is nothing that can be.
    """
    if given is None or isinstance(given, Tasks):
        return given
    if not is_number(given):
        raise InvalidValue("tasks is seconds, or a Tasks(…) that says more")
    return Tasks(after=given)


class TaskParams(types.RequestParams):
    """What `tasks/get` and `tasks/cancel` say."""

    task_id: str


class UpdateParams(TaskParams):
    """What `tasks/update` says."""

    input_responses: dict[str, Any]


class Task:
    """A call that its client comes back for."""

    def __init__(self, task_id: str, call: Call, owner: Session | None, tasks: Tasks) -> None:
        self.id = task_id
        self.call = call
        self.owner = owner
        self._tasks = tasks

    def stop(self) -> None:
        """Stop its call."""
        self.call.stop()

    async def told(self) -> Told:
        """Return how it stands, as `tasks/get` has it."""
        standing = await self.call.standing()
        return {**self._head(standing), **self._body(standing)}

    async def created(self) -> Told:
        """Return what a call is answered with that became this task."""
        standing = await self.call.standing()
        return {**self._head(standing), "status": "working", "resultType": "task"}

    def _head(self, standing: Standing) -> Told:
        kept_for_ever = isinstance(self.call, DurableCall)
        told: Told = {
            "resultType": "complete",
            "taskId": self.id,
            "status": "input_required" if standing.asks else "working",
            "createdAt": _moment(standing.since),
            "lastUpdatedAt": _moment(standing.moved),
            "ttlMs": None if kept_for_ever else max(1, round(self._tasks.ttl * 1000)),
            "pollIntervalMs": max(1, round(self._tasks.poll * 1000)),
        }
        return {**told, "statusMessage": standing.said} if standing.said else told

    def _body(self, standing: Standing) -> Told:
        if standing.asks:
            return {"inputRequests": {name: _plain(ask) for name, ask in standing.asks.items()}}
        outcome = standing.outcome
        if outcome is None:
            return {}
        if _was_cancelled(outcome):
            return {"status": "cancelled", "statusMessage": outcome.text.removeprefix("Error: ")}
        try:
            answer = self.call.ended_with(outcome)
        except MCPError as error:
            said = error.error.message
            return {"status": "failed", "error": _plain(error.error), "statusMessage": said}
        return {"status": "completed", "result": _plain(answer)}


class Keeper:
    """
    The tasks of a server.

    Args:
        tasks: How calls become tasks.
        keys: What ids of tasks in a journal are made with; the first makes them, all read them.
        make: Makes a call of a journal that is not driven here.
        start: Drives it here, if nobody does.
    """

    def __init__(self, tasks: Tasks, keys: Sequence[bytes], make: Make, start: Start) -> None:
        self.tasks = tasks
        self.runtime: Runtime | None = None
        self._keys = keys
        self._make = make
        self._start = start

    async def served(self, call: Call, request: Request) -> Answer | Told:
        """Stand by a request until there is an answer, or until its call is a task."""

        def has_room() -> bool:
            theirs = [one for one in call.life.long.values() if _owner(one) == request.session]
            return len(theirs) < self.tasks.most

        answer = await call.serve_within(request, self.tasks.after, has_room)
        return await self._kept(call, request).created() if answer is None else answer

    def refusal(self, request: Request) -> Answer | None:
        """
        Return the answer to a call that must be able to become a task, and cannot.

        Raises:
            MCPError: the same, as 2026-07-28 says it.
        """
        name = request.params.name
        if name not in self.tasks.required or request.takes_tasks:
            return None
        said = f'tool "{name}" may take long: it is for clients that take tasks ({TASKS})'
        if request.modern:
            raise incapable(said)
        return error_of(said)

    def _kept(self, call: Call, request: Request) -> Task:
        """Make a task known, at once."""
        if isinstance(call, DurableCall):
            task_id = _id_in_journal(call.name, request.who, self._keys[0])
        else:
            task_id = secrets.token_urlsafe(24)
        return self._held(Task(task_id, call, request.session, self.tasks))

    def _held(self, task: Task) -> Task:
        life = task.call.life
        life.long[task.id] = task
        life.tasks.start_soon(self._expire, task)
        return task

    async def _expire(self, task: Task) -> None:
        """Forget a task in its time; one of a journal, when it is not driven here any more."""
        if isinstance(task.call, DurableCall):
            await task.call.over.wait()
        else:
            await anyio.sleep(self.tasks.ttl)
            task.stop()
        if task.call.life.long.get(task.id) is task:
            del task.call.life.long[task.id]

    # ---- what clients come back with -------------------------------------------------------------

    async def get(self, wire: Wire, params: TaskParams) -> Told:
        """Tell how a task stands."""
        task = await self._found(wire, params)
        return await task.told()

    async def update(self, wire: Wire, params: UpdateParams) -> Told:
        """Give a task what its client answers."""
        task = await self._found(wire, params)
        await task.call.update({name: _read(one) for name, one in params.input_responses.items()})
        return {"resultType": "complete"}

    async def cancel(self, wire: Wire, params: TaskParams) -> Told:
        """Stop a task; one that has ended stays as it is."""
        task = await self._found(wire, params)
        await task.call.cancel()
        return {"resultType": "complete"}

    async def _found(self, wire: Wire, params: TaskParams) -> Task:
        """
        Return the task that a request is for.

        Raises:
            MCPError: there is none, or none of this caller's; or the request is none that can be.
        """
        if not is_modern(wire):
            raise MCPError(code=types.METHOD_NOT_FOUND, message="Method not found")
        if not takes_tasks(wire):
            raise incapable("Missing required client capability")
        check_name(wire, params.task_id)
        life: Life = wire.lifespan_context
        request = Request(wire, types.CallToolRequestParams(name=""), life.session)
        task = life.long.get(params.task_id)
        if isinstance(task, Task) and task.owner == request.session:
            return task
        found = None if task is not None else await self._in_journal(life, request, params.task_id)
        if found is None:
            raise MCPError(
                code=types.INVALID_PARAMS,
                message="No such task: it is not yours, was never there, or is kept no longer",
            )
        return found

    async def _in_journal(self, life: Life, request: Request, task_id: str) -> Task | None:
        """Return a task that a runtime keeps; one that nobody drives goes on here."""
        name = _name_in_journal(task_id, request.who, self._keys)
        if name is None or self.runtime is None:
            return None
        kept = await self.runtime.inbox.batch(batch_of(name))
        if not kept:
            return None
        call = self._make(life, request, kept[0].call, name)
        call.become_task()
        task = Task(task_id, call, request.session, self.tasks)
        if kept[0].state in SETTLED:
            return task
        self._start(call)
        return self._held(task)


def _owner(task: object) -> Session | None:
    return task.owner if isinstance(task, Task) else None


def _was_cancelled(outcome: Outcome) -> bool:
    stopped = isinstance(outcome, Unknown) and outcome.reason in {"cancelled", "still_running"}
    return stopped or isinstance(outcome, Cancelled)


def _read(response: object) -> types.ElicitResult | None:
    """Return what was answered; nothing that can be used, if it is no answer."""
    try:
        return types.ElicitResult.model_validate(response, by_name=False)
    except ValueError:
        return None


def _plain(value: Any) -> Told:  # noqa: ANN401  # any model of the SDK's
    told: Told = value.model_dump(by_alias=True, exclude_none=True, mode="json")
    return told


def _moment(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def incapable(message: str) -> MCPError:
    """Return how a client is refused that takes no tasks."""
    needed = types.ClientCapabilities(extensions={TASKS: {}})
    data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=needed)
    return MCPError(code=MISSING_REQUIRED_CLIENT_CAPABILITY, message=message, data=_plain(data))


# ---- ids of what a journal keeps -----------------------------------------------------------------


def _id_in_journal(name: str, who: str, key: bytes) -> str:
    """Return an id that says where a call is kept; nobody without the key can make one."""
    said = base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")
    return f"{said}.{_mark(name, who, key)}"


def _name_in_journal(task_id: str, who: str, keys: Sequence[bytes]) -> str | None:
    """Return what the journal calls a task of this caller; nothing if the id is not of ours."""
    said, _, mark = task_id.partition(".")
    try:
        name = base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)).decode()
    except (binascii.Error, ValueError):
        return None
    ours = any(hmac.compare_digest(_mark(name, who, key), mark) for key in keys)
    return name if ours else None


def _mark(name: str, who: str, key: bytes) -> str:
    text = msgspec.json.encode(["task", who, name])
    return hmac.new(key, text, hashlib.sha256).hexdigest()[:40]
