"""
A call that a server answered with a task, followed until it has ended. Experimental.

Theory. Whoever gave us a task has begun the call. So from here on nothing is sent again but what
asks: how the task stands. An answer to that may get lost, on a connection that broke or at a server
that is being started anew, and is asked for again, a few times, on whatever connection there is
then. A server that does not know the task any more has forgotten what became of the call, and
nobody else knows. However we leave, unless the task has ended: the server is told to stop it.
"""

import math
from collections.abc import Awaitable, Callable

import anyio
import mcp_types as types
import msgspec

from ferrule import InvalidResult
from ferrule.helpers import one_line
from ferrule.mcp._asking import Calling
from ferrule.mcp._connection import Connection
from ferrule.mcp._outside import held
from ferrule.mcp._session import Closed, Unreachable
from ferrule.mcp._shapes import Wire, is_number, is_object, object_of
from ferrule.mcp._wiring import Broken

SHORTEST, LONGEST, UNSAID = 0.02, 30.0, 1.0
"""Seconds between two looks: at least, at most, and where the server does not say."""

AGAIN_SECONDS = (0.1, 0.5, 2.0, 5.0, 10.0)
"""How long to wait before asking again for an answer that got lost, each time in a row."""

LAST_WORD_SECONDS = 5.0
"""What it may take to tell a server to stop."""

ROUNDS = 10
"""How often one task may come up with questions."""

_STATUSES = frozenset({"working", "input_required", "completed", "failed", "cancelled"})
_ENDED = frozenset({"completed", "failed", "cancelled"})
_FORGOTTEN = frozenset(
    {types.INVALID_PARAMS, types.METHOD_NOT_FOUND, types.MISSING_REQUIRED_CLIENT_CAPABILITY}
)
"""Errors that say of a question after a task that there will never be an answer."""

Dial = Callable[[], Awaitable[Connection]]
Ask = Callable[[Calling, object], Awaitable[Wire]]


class Stand(msgspec.Struct, frozen=True, kw_only=True):
    """
    How a task stands, as its server says.

    Attributes:
        id: Names it.
        status: One of five words.
        seconds: When to look again.
        said: How far it is, in words, or nothing.
        fields: Everything else, as it came.
    """

    id: str
    status: str
    seconds: float
    said: str
    fields: Wire


def stand_of(answer: Wire, task_id: str | None = None) -> Stand:
    """
    Return how a task stands.

    Raises:
        InvalidResult: that is nonsense, or of another task.
    """
    found, status = answer.get("taskId"), answer.get("status")
    if not isinstance(found, str) or not found:
        raise _nonsense("it has no taskId")
    if task_id is not None and found != task_id:
        raise _nonsense("it is another task than was asked after")
    if not isinstance(status, str) or status not in _STATUSES:
        raise _nonsense("its status is none of the five")
    if not _is_time(answer.get("ttlMs")):
        raise _nonsense("its ttlMs is no time")
    said = answer.get("statusMessage")
    return Stand(
        id=found,
        status=status,
        seconds=_seconds(answer.get("pollIntervalMs")),
        said=one_line(said, 400) if isinstance(said, str) else "",
        fields=answer,
    )


def _seconds(interval: object) -> float:
    if not _is_time(interval):
        raise _nonsense("its pollIntervalMs is no time")
    return min(max(interval / 1000, SHORTEST), LONGEST) if is_number(interval) else UNSAID


def _is_time(value: object) -> bool:
    return value is None or (is_number(value) and math.isfinite(value) and value >= 0)


def _nonsense(said: str) -> InvalidResult:
    return InvalidResult(f"the task that the server answered with: {said}")


class Following:
    """
    One call, followed at its server.

    Args:
        created: What the call was answered with.
        connection: Where that came from.
        dial: Returns the connection that is there, or another one if it is over.
        calling: The call.
        ask: Puts a question of the server's to whoever the call may ask.
    """

    def __init__(
        self, created: Wire, connection: Connection, dial: Dial, calling: Calling, ask: Ask
    ) -> None:
        self._stand = stand_of(created)
        self._connection = connection
        self._dial = dial
        self._calling = calling
        self._ask = ask
        self._answered: set[str] = set()
        self._round = 0
        self._told = self._stand.said
        self._is_over = False

    async def ended(self) -> Wire:
        """
        Return what the call gave, once it has ended.

        Raises:
            Broken: nobody knows what became of it, or it has failed; it may have run.
            InvalidResult: the server says what cannot be.
            Exception: what whoever was asked raised.
        """
        try:
            if self._stand.status not in _ENDED:
                await self._pause()
            while True:
                self._stand = stand_of(await self._heard("tasks/get"), self._stand.id)
                if self._stand.status in _ENDED:
                    self._is_over = True
                    return self._end(self._stand)
                await self._go_on(self._stand)
        finally:
            if not self._is_over:
                self._connection.beside(self.stop, LAST_WORD_SECONDS)

    async def stop(self) -> None:
        """Tell the server to stop; what it says to that changes nothing any more."""
        if not (self._is_over or self._connection.is_over):
            self._is_over = True
            params = {"taskId": self._stand.id}
            await held(self._connection.task("tasks/cancel", params))

    async def _go_on(self, stand: Stand) -> None:
        if stand.status == "input_required":
            await self._answer(stand)
        elif stand.said != self._told:
            self._told = stand.said
            self._calling.context.progress(message=stand.said)
        await self._pause()

    async def _pause(self) -> None:
        with anyio.move_on_after(self._stand.seconds):
            await self._connection.done.wait()

    async def _answer(self, stand: Stand) -> None:
        """Have the questions answered that were not yet."""
        asked = stand.fields.get("inputRequests")
        if not is_object(asked):
            raise _nonsense("it asks for something and does not say what")
        new = {key: asked[key] for key in asked if key not in self._answered}
        if not new:
            return
        self._round += 1
        if self._round > ROUNDS:
            raise InvalidResult(f"the server asked more than {ROUNDS} times in one call")
        given = {key: await self._ask(self._calling, request) for key, request in new.items()}
        self._answered |= given.keys()
        await self._heard("tasks/update", inputResponses=given)

    async def _heard(self, method: str, **more: object) -> Wire:
        """Return what the server says of the task; asked again while the answer gets lost."""
        params: Wire = {"taskId": self._stand.id, **more}
        lost: Exception | None = None
        for pause in (0.0, *AGAIN_SECONDS):
            await anyio.sleep(pause)
            try:
                self._connection = await self._dial()
                return await self._connection.task(method, params)
            except Closed as error:
                raise Broken("lost", str(error)) from None
            except Unreachable as error:
                lost = error
            except Broken as broken:
                if broken.error is not None and broken.error.code in _FORGOTTEN:
                    self._is_over = True
                    raise Broken("lost", f"its task is forgotten: {broken.said}") from broken
                lost = broken
        raise Broken("lost", f"nothing is heard of its task any more: {lost}") from lost

    def _end(self, stand: Stand) -> Wire:
        if stand.status == "completed":
            result = stand.fields.get("result")
            if not is_object(result):
                raise _nonsense("it is completed and has no result")
            return result
        said = stand.said
        if stand.status == "failed":
            said = str(object_of(stand.fields.get("error")).get("message") or said)
        raise Broken("lost", one_line(f"its task is {stand.status}: {said}", 400))
