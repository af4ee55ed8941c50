"""
HTTP that fails softly: whatever goes wrong with one request is the answer to that request.

Theory. The SDK's transport takes a refused connection for the end of everything: the caller sees
itself cancelled, and the client is dead for good. Here nothing but an answer ever comes back. What
the answer says decides what may be done next, and so it says one of three things: the request was
*not sent*, it was *refused* before it ran, or it was *lost* and may have run. Beside them stands
*gone*: the server does not know our session any more, and did not run the request for that reason.
An answer of ours carries a mark that no server knows, so that none can say such a thing for us.
"""

import json
import logging
import secrets
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, Literal, cast

import httpx2
from mcp import MCPError
from mcp.client.auth import OAuthFlowError
from typing_extensions import override

from ferrule import FerruleError, Limits
from ferrule.mcp._outside import told
from ferrule.mcp._proxies import Routed, of_environment
from ferrule.mcp._shapes import object_of

logger = logging.getLogger("ferrule.mcp")

Verdict = Literal["not_sent", "refused", "lost", "gone"]

BODY_BYTES = 4 * Limits().output_bytes
"""Bytes of one answer, or of one event of a stream."""

CODE = -32099
"""The code of an answer of ours; the mark tells it from a server's own."""

_UNSENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)
"""What happens before the first byte of a request has left."""

_REFUSALS = frozenset(
    {400, 401, 402, 403, 404, 405, 406, 407, 410, 411, 413, 414, 415, 421, 422, 426, 429, 431}
)
"""Statuses that say a request was not taken; any other from 400 on says nothing of that."""

_SESSION = "mcp-session-id"


class SoftClient(httpx2.AsyncClient):
    """
    An HTTP client for the SDK's transport; each failure is an answer with a verdict.

    It goes through the proxies that the environment names when it is made.

    Attributes:
        mark: What stands in each answer of ours.

    Raises:
        FerruleError: certificates that the environment names cannot be read.
    """

    def __init__(self, *, headers: dict[str, str], auth: httpx2.Auth | None) -> None:
        # No limit on reading: a call may be silent for as long as its own time limit says.
        super().__init__(
            transport=_Bounded(Routed(of_environment())),
            headers={**headers, "accept-encoding": "identity"},
            auth=auth,
            timeout=httpx2.Timeout(30.0, read=None),
            trust_env=False,  # Its proxies would go past the bounds above.
        )
        self.mark = secrets.token_hex(8)

    @override
    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            response = await super().send(request, **options)
        except _UNSENT as error:
            return self._answer(request, 503, "not_sent", told(error))
        except (OAuthFlowError, FerruleError) as error:
            logger.warning("signing in to %s failed: %s", request.url.host, told(error))
            return self._answer(request, 401, "refused", "signing in to it failed")
        except httpx2.HTTPError as error:
            return self._answer(request, 503, "lost", told(error))
        verdict = _verdict(request, response)
        if verdict is None:
            return response
        await response.aclose()
        said = f"it answered with HTTP {response.status_code}"
        return self._answer(request, max(response.status_code, 400), verdict, said)

    def verdict_of(self, error: MCPError) -> Verdict | None:
        """Return what an error of ours says of its request; `None` of a server's own."""
        data = error.error.data
        if error.code != CODE or object_of(data).get("mark") != self.mark:
            return None
        return cast("Verdict", data["verdict"])

    def _answer(
        self, request: httpx2.Request, status: int, verdict: Verdict, said: str
    ) -> httpx2.Response:
        data = {"mark": self.mark, "verdict": verdict}
        error = {"code": CODE, "message": said, "data": data}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error})
        headers = {"content-type": "application/json"}
        return httpx2.Response(status, headers=headers, content=body.encode(), request=request)


def _verdict(request: httpx2.Request, response: httpx2.Response) -> Verdict | None:
    """Say what a response that is no answer means; `None` for one that the SDK is to read."""
    status, kind = response.status_code, response.headers.get("content-type", "").lower()
    if status == HTTPStatus.NOT_FOUND and _SESSION in request.headers:
        return "gone"
    if status >= HTTPStatus.BAD_REQUEST:
        if kind.startswith("application/json"):
            return None
        return "refused" if status in _REFUSALS else "lost"
    if "content-encoding" in response.headers:
        return "lost"  # We asked for none; and what unpacks to more than memory is not read.
    if request.method != "POST":
        return None
    if status == HTTPStatus.ACCEPTED:
        return "lost" if _wants_an_answer(request) else None
    return "lost" if status == HTTPStatus.OK and not kind.startswith(_KINDS) else None


def _wants_an_answer(request: httpx2.Request) -> bool:
    """Say whether it is a request of JSON-RPC, and not a note or an answer of ours."""
    message = object_of(json.loads(request.content))
    return "id" in message and "method" in message


_KINDS = ("application/json", "text/event-stream")


class _Bounded(httpx2.AsyncBaseTransport):
    """A transport whose bodies end: at their limit, and where the connection breaks."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        body = cast("httpx2.AsyncByteStream", response.stream)
        is_stream = response.headers.get("content-type", "").lower().startswith(_KINDS[1])
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Body(body, None if is_stream else BODY_BYTES),
            extensions=response.extensions,
        )

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()


class _Body(httpx2.AsyncByteStream):
    """
    The body of a response; it stops short where it is too long or breaks off.

    What is cut is no JSON any more, and a stream that is cut has no answer: both are errors of the
    one request, where an exception in the SDK's reader would be the end of the connection.
    """

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int | None) -> None:
        self._inner = inner
        self._limit = limit

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for chunk in self._inner:
                size += len(chunk)
                if self._limit is not None and size > self._limit:
                    return
                yield chunk
        except httpx2.TransportError:
            return

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()
