"""
What a server asks people while a call runs, put to whoever the call may ask.

Theory. From 2026-07-28 on, a question is the answer to the call itself, and so it is plain whose it
is. Before, it is a request of the server's own, which names no call. Most often the context in
which it arrives is that of the call's own request; where it is not, it is put to the one call that
is in flight, and with two of them to nobody: a question in front of the wrong person is worse than
none. A call that has ended asks nothing any more.
"""

import contextvars
import logging
from collections.abc import Mapping
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.client import ClientRequestContext

from ferrule import Accepted, Context, DeclarationError, Declined, FerruleError
from ferrule.helpers import one_line, visible
from ferrule.mcp._outside import Ended, held, told
from ferrule.mcp._shapes import Wire, is_object, object_of

logger = logging.getLogger("ferrule.mcp")

CALLING: contextvars.ContextVar["Calling"] = contextvars.ContextVar("ferrule_mcp_calling")
"""The call whose request is being sent here."""


class Calling:
    """
    One call of a remote tool, for as long as it runs.

    Attributes:
        context: The call as its tool knows it.
        line: Of which connection it is; to tell calls apart that run inside one another.
        is_deaf: Whether nobody answers its questions any more.
    """

    def __init__(self, context: Context, line: object) -> None:
        self.context = context
        self.line = line
        self.is_deaf = False
        self._over: anyio.Event | None = None
        self._is_over = False
        self._open: set[anyio.CancelScope] = set()

    async def ask(self, params: Mapping[str, object]) -> Wire:
        """
        Put a question to the call's asker, and return what the server is told.

        Raises:
            FerruleError: it cannot be asked, or was answered with what it did not ask for.
            Exception: what the asker raised.
        """
        if self.is_deaf:
            return _CANCEL
        with anyio.CancelScope() as scope:
            self._open.add(scope)
            try:
                return await _asked(self.context, params)
            finally:
                self._open.discard(scope)
        return _CANCEL

    def end(self) -> None:
        """Say that the call is over."""
        self.hang_up()
        self._is_over = True
        if self._over is not None:
            self._over.set()

    async def until_over(self) -> None:
        """Wait until it is."""
        if not self._is_over:
            self._over = self._over or anyio.Event()
            await self._over.wait()

    def hang_up(self) -> bool:
        """Have nobody answer any more, and who is asked told so; say whether somebody was."""
        self.is_deaf = True
        for scope in self._open:
            scope.cancel()
        return bool(self._open)


_CANCEL: Wire = {"action": "cancel"}


class Router:
    """Who of the calls in flight a question of the server's is for."""

    def __init__(self) -> None:
        self._calls: set[Calling] = set()

    def begin(self, context: Context) -> Calling:
        """Note that a call begins."""
        calling = Calling(context, self)
        self._calls.add(calling)
        return calling

    def end(self, calling: Calling) -> None:
        """Note that it is over."""
        self._calls.discard(calling)
        calling.end()

    def hang_up(self) -> list[Calling]:
        """Have nobody answer any more; return the calls of which somebody was asked something."""
        return [calling for calling in self._calls if calling.hang_up()]

    async def answer(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Answer a question that came as a request of its own; `context` does not say whose."""
        del context
        calling = self._asking()
        if calling is None:
            return types.ElicitResult(action="cancel")
        plain = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        done = await held(calling.ask(plain))
        if isinstance(done, Ended):
            logger.warning("a question could not be asked: %s", done)
            return types.ErrorData(code=types.INTERNAL_ERROR, message="the question was not asked")
        return types.ElicitResult(**done.value)

    def _asking(self) -> Calling | None:
        calling = CALLING.get(None)
        if calling is not None and calling.line is self:
            return calling  # Also one that has ended: its questions are for nobody else.
        return next(iter(self._calls)) if len(self._calls) == 1 else None


async def _asked(context: Context, params: Mapping[str, object]) -> Wire:
    message = visible(str(params.get("message") or "")) or "The tool asks you to confirm."
    url = params.get("url")
    if params.get("mode") == "url" or url is not None:
        answer = await context.ask(message, url=str(url))
        return {"action": "accept" if isinstance(answer, Accepted) else answer.action}
    schema = cast("dict[str, Any]", params.get("requestedSchema") or {"type": "object"})
    try:
        form = await context.ask(message, form_of(schema))
    except DeclarationError as error:
        raise FerruleError(f"the form of a question cannot be: {one_line(told(error))}") from error
    if isinstance(form, Declined):
        return {"action": form.action}
    return {"action": "accept", "content": {**_defaults(schema), **form.content.fields}}


def form_of(schema: dict[str, Any]) -> type["Form"]:
    """Return a class of the answers that a schema describes."""
    return cast("type[Form]", type("Answer", (Form,), {"schema": schema}))


class Form:
    """
    What a person filled in.

    Attributes:
        schema: What was asked for.
        fields: What was answered.
    """

    schema: Mapping[str, Any] = {}

    def __init__(self, /, **fields: object) -> None:
        self.fields = fields

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the schema that the server wrote, which is enforced as it is."""
        return dict(cls.schema)


def _defaults(schema: Mapping[str, Any]) -> Wire:
    """Return what stands in a form before anybody writes."""
    fields = object_of(schema.get("properties"))
    return {
        name: field["default"]
        for name, field in fields.items()
        if is_object(field) and "default" in field
    }
