"""One server and its tools: listed, called, and listed again when they change."""

from collections.abc import Callable
from itertools import count

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.client.subscriptions import listen

from ferrule import Context, Failure, FerruleError, InvalidResult, Result
from ferrule.helpers import one_line
from ferrule.mcp._asking import CALLING, Calling, Router
from ferrule.mcp._connection import Connection
from ferrule.mcp._from_mcp import checked, result_of
from ferrule.mcp._listing import Naming, Offered, Snapshot, Unlisted, listed, sorted_out
from ferrule.mcp._meta import KEY
from ferrule.mcp._outside import Ended, held
from ferrule.mcp._session import Closed, Line
from ferrule.mcp._shapes import Wire, list_of, object_of
from ferrule.mcp._targets import Target
from ferrule.mcp._wiring import Broken

ROUNDS = 10
"""How often one call may come back with a question."""

CHANGED = "notifications/tools/list_changed"

SETTLE_SECONDS = 5.0
"""What a new listing may hold up the call that brought it about."""

GOODBYE_SECONDS = 0.8
"""What calls that ask something have to end, when the connection is being closed."""

LAST_WORD_SECONDS = 5.0
"""What it may take to tell a server that nobody will answer it."""

READY_SECONDS = 2.0
"""What a server may take to begin telling of changes, before it is asked for its tools."""

PAUSE_SECONDS = 0.02
"""How long a server that tells of changes without end is left alone between two listings."""

RELISTEN_SECONDS = (0.1, 0.5, 2.0, 10.0, 60.0)
"""How long to wait before listening again, each time that it broke off."""


class Peer:
    """
    One server, what its tools are called here, and the line to it.

    Attributes:
        naming: What its tools are called.
        snapshot: What it offers, by the latest listing that there was.
        error: Why the latest listing failed, if it did.
    """

    def __init__(
        self, target: Target, naming: Naming, *, grace: float, changed: Callable[["Peer"], None]
    ) -> None:
        self.naming = naming
        self.snapshot = Snapshot()
        self.error: FerruleError | None = None
        self._grace = grace
        self._changed = changed
        self._router = Router()
        self._line = Line(target, answer=self._router.answer, heard=self._hear, tend=self._tend)
        self._lock = anyio.Lock()
        self._heard = 0
        self._settled = 0
        self._news = anyio.Event()
        self._quiet = anyio.Event()
        self._listed: Connection | None = None
        self._listening = False

    @property
    def server(self) -> types.Implementation | None:
        """What the server says that it is, when it is connected."""
        return None if self._listed is None else self._listed.session.server_info

    @property
    def instructions(self) -> str | None:
        """What the server says of its use, when it is connected."""
        return None if self._listed is None else self._listed.session.instructions

    async def open(self) -> None:
        """
        Connect, and list the tools.

        Raises:
            FerruleError: there is no connection, or no list.
        """
        await self.refresh()

    async def aclose(self) -> None:
        """Hang up; a server that asks something hears before that nobody will answer."""
        asking = self._router.hang_up()
        with anyio.move_on_after(GOODBYE_SECONDS):
            for calling in asking:
                await calling.until_over()
        await self._line.aclose()

    async def refresh(self) -> None:
        """
        List the tools anew; those of before stay if that fails.

        Raises:
            FerruleError: there is no connection, or no list.
        """
        async with self._lock:
            connection = await self._line.connection()
            try:
                await self._list(connection)
            except Unlisted:
                if not connection.is_over:
                    raise
                await self._list(await self._line.connection())

    async def settled(self) -> None:
        """
        Wait until every change that was told of before is in the list, or cannot be.

        Raises:
            FerruleError: the latest listing failed.
        """
        target = self._heard
        while self._settled < target:
            await self._quiet.wait()
        if self.error is not None:
            raise self.error

    async def call(
        self, offered: Offered, arguments: dict[str, object], context: Context
    ) -> Result:
        """Run one admitted call at the server."""
        heard = self._heard
        calling = self._router.begin(context)
        token = CALLING.set(calling)
        try:
            answer = await self._called(offered, arguments, calling)
        finally:
            CALLING.reset(token)
            self._router.end(calling)
        await self._in_grace(offered, heard)
        return checked(result_of(answer), offered.binding.contract.check_result)

    # ---- one call --------------------------------------------------------------------------------

    async def _called(
        self, offered: Offered, arguments: dict[str, object], calling: Calling
    ) -> Wire:
        params: Wire = {"name": offered.name, "arguments": arguments}
        if offered.tool.traits.replay == "keyed":
            params["_meta"] = {KEY: calling.context.idempotency_key}
        answers: Wire = {}
        for _ in range(ROUNDS):
            answer = await self._sent(offered, {**params, **answers}, calling)
            if answer.get("resultType") != "input_required":
                return answer
            answers = await self._answers(answer, calling, {**params, **answers})
        raise InvalidResult(f"the server asked more than {ROUNDS} times in one call")

    async def _sent(self, offered: Offered, params: Wire, calling: Calling) -> Wire:
        """Send a call, and send it again only when it is certain that it was not run."""
        for attempt in (1, 2):
            connection = await self._ready(offered)
            try:
                return await connection.call(params, calling.context.progress)
            except Broken as broken:
                match broken.verdict:
                    case "lost":
                        raise
                    case "refused":
                        if not await self._may_go_on(broken, calling, attempt):
                            raise Failure(self._sentence(broken.said), cause=broken) from None
                    case "not_sent" | "gone":
                        if attempt > 1 or (broken.verdict == "not_sent" and not connection.is_over):
                            raise Failure(
                                self._sentence("it cannot be reached"), cause=broken
                            ) from None
        raise AssertionError  # pragma: no cover  # the second attempt returns or raises

    async def _ready(self, offered: Offered) -> Connection:
        """Return a connection whose server still has the tool as it was listed."""
        try:
            connection = await self._line.connection()
            if connection is not self._listed:
                async with self._lock:
                    if connection is not self._listed:
                        await self._list(connection)
        except Closed:
            raise Failure(self._sentence("the connection to it was closed")) from None
        except FerruleError as error:
            raise Failure(self._sentence("it cannot be reached"), cause=error) from None
        latest = self.snapshot.offered.get(offered.name)
        if latest is not offered and (latest is None or latest.told != offered.told):
            raise Failure(self._sentence("it does not offer this tool any more, or has changed it"))
        return connection

    async def _may_go_on(self, broken: Broken, calling: Calling, attempt: int) -> bool:
        """Do what a refused call asks to be done first; say whether it may be sent again."""
        if broken.error is None or attempt > 1:
            return False
        error = broken.error.error
        if error.code == types.HEADER_MISMATCH:
            await self.refresh()
            return True
        if error.code != types.URL_ELICITATION_REQUIRED:
            return False
        asked = list_of(object_of(error.data).get("elicitations"))
        for question in asked:
            answer = await calling.ask({"mode": "url", **object_of(question)})
            if answer["action"] != "accept":
                return False
        return bool(asked)

    async def _answers(self, answer: Wire, calling: Calling, params: Wire) -> Wire:
        """Return what people say to what a call asks; if nobody does, the server hears that."""
        asked = object_of(answer.get("inputRequests"))
        state = {k: answer[k] for k in ("requestState",) if k in answer}
        if not asked:
            await anyio.sleep(0.1)
            return state
        given: Wire = {}
        try:
            for key in asked:
                given[key] = await self._said(calling, asked[key])
        finally:
            if len(given) < len(asked):  # Nobody will answer the rest any more.
                self._take_leave({**params, **state, "inputResponses": _nobody(asked)})
        return {**state, "inputResponses": given}

    async def _said(self, calling: Calling, request: object) -> Wire:
        fields = object_of(request)
        if fields.get("method") != "elicitation/create":
            raise InvalidResult(
                f"the server asks for {one_line(str(fields.get('method')), 80)}: not offered"
            )
        return await calling.ask(object_of(fields.get("params")))

    def _take_leave(self, params: Wire) -> None:
        """Tell the server, beside everything else, that nobody will answer."""
        if self._listed is not None and not self._listed.is_over:
            connection = self._listed
            connection.beside(lambda: connection.call(params), LAST_WORD_SECONDS)

    def _sentence(self, said: str) -> str:
        return f"the server did not run the call: {said}"

    # ---- the list --------------------------------------------------------------------------------

    async def _list(self, connection: Connection) -> None:
        with anyio.move_on_after(READY_SECONDS):
            await connection.ready.wait()  # So that no change falls between list and listening.
        heard = self._heard
        done = await held(listed(connection.page))
        if isinstance(done, Ended):
            self.error = Unlisted(f"the tools of `{self.naming.origin}` cannot be listed: {done}")
            self.error.__cause__ = done.error
            self._settle(heard)
            raise self.error
        before = self.snapshot
        self.snapshot = sorted_out(
            done.value, self.naming, self.call, before=before, modern=connection.is_modern
        )
        self._listed, self.error = connection, None
        self._settle(heard)
        if before.offered != self.snapshot.offered:
            self._changed(self)

    def _settle(self, heard: int) -> None:
        self._settled = max(self._settled, heard)
        quiet, self._quiet = self._quiet, anyio.Event()
        quiet.set()

    def _hear(self, method: str) -> None:
        if method == CHANGED:
            self._heard += 1
            news, self._news = self._news, anyio.Event()
            news.set()

    async def _in_grace(self, offered: Offered, heard: int) -> None:
        """Let a call that changed the tools return when the list says so, within bounds."""
        if self._heard == heard and not self._may_bring_news(offered):
            return
        # Shielded: the call has its result, which a cancellation now must not take away.
        with anyio.move_on_after(SETTLE_SECONDS, shield=True):
            if self._heard == heard:
                with anyio.move_on_after(self._grace):
                    await self._news.wait()
            if self._heard != heard:
                await held(self.settled())

    def _may_bring_news(self, offered: Offered) -> bool:
        if self._grace <= 0 or offered.tool.traits.read_only is True or self._listed is None:
            return False
        return self._listening if self._listed.is_modern else self._listed.tells_of_changes

    # ---- beside the connection -------------------------------------------------------------------

    async def _tend(self, connection: Connection) -> None:
        """List anew whenever the tools change, for as long as the connection lasts."""
        try:
            async with anyio.create_task_group() as group:
                if connection.is_modern and connection.tells_of_changes:
                    group.start_soon(self._listen, connection)
                else:
                    connection.ready.set()
                while True:
                    news = self._news
                    if self._settled < self._heard:
                        await self._catch_up(connection)
                    else:
                        await news.wait()
        finally:
            if self._settled < self._heard:
                self.error = Unlisted(f"the connection to `{self.naming.origin}` has ended")
                self._settle(self._heard)

    async def _catch_up(self, connection: Connection) -> None:
        async with self._lock:
            if self._settled < self._heard:
                await held(self._list(connection))
        await anyio.sleep(PAUSE_SECONDS)

    async def _listen(self, connection: Connection) -> None:
        """Keep the one stream open on which a modern server tells of changes."""
        for attempt in count():
            done = await held(self._listened(connection, again=attempt > 0))
            self._listening = False
            connection.ready.set()
            if isinstance(done, Ended) and _is_refused(connection, done.error):
                return
            await anyio.sleep(RELISTEN_SECONDS[min(attempt, len(RELISTEN_SECONDS) - 1)])

    async def _listened(self, connection: Connection, *, again: bool) -> None:
        async with listen(connection.session, tools_list_changed=True) as events:
            self._listening = True
            connection.ready.set()
            if again:
                self._hear(CHANGED)  # What was missed meanwhile is not told again.
            async for _ in events:
                pass  # Heard already, in its order, as the notification that it is.


def _is_refused(connection: Connection, error: BaseException) -> bool:
    return isinstance(error, MCPError) and connection.broken(error).verdict == "refused"


def _nobody(asked: Wire) -> Wire:
    return {key: {"action": "cancel"} for key in asked}
