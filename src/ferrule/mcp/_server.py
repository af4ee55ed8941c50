"""Any tools, served over MCP: in both eras, over standard input and output, HTTP and in memory."""

import functools
import inspect
import json
import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.metadata import version as version_of
from types import TracebackType
from typing import Any, Self, TextIO, TypeVar

import anyio
import anyio.to_thread
from mcp import MCPError, types
from mcp.server.auth.provider import TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.lowlevel import NotificationOptions
from mcp.server.lowlevel import Server as Lowlevel
from mcp.server.models import InitializationOptions
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings

from ferrule import (
    Accepted,
    Asker,
    Binding,
    Context,
    Declined,
    Executor,
    Failure,
    InputRequest,
    InvalidValue,
    Leg,
    Problem,
    Progress,
    Question,
    Registry,
    Rejected,
    Sink,
    Source,
    Tool,
    ToolCall,
    outcome_of,
)
from ferrule.helpers import one_line
from ferrule.lock import LockedRegistry, LockFile
from ferrule.mcp._answers import leg_of, read, ticket_of
from ferrule.mcp._calls import GONE, Answer, Bounds, Call, contained
from ferrule.mcp._durable import DurableCall
from ferrule.mcp._forms import Form
from ferrule.mcp._http import serve
from ferrule.mcp._lives import Life, living
from ferrule.mcp._long import Keeper, TaskParams, Tasks, Told, UpdateParams, incapable, tasks_of
from ferrule.mcp._request import Request, Wire, is_modern, keep_level, takes_tasks
from ferrule.mcp._security import App, Doorkeeper
from ferrule.mcp._shapes import TASKS, object_of
from ferrule.mcp._tickets import Ticket
from ferrule.mcp._to_mcp import error_of, result_of, tool_of
from ferrule.mcp._who import Kind, Session
from ferrule.ports import Runtime

R = TypeVar("R")
RuntimeFrom = Callable[[Executor], AbstractAsyncContextManager[Runtime]]
"""Makes a runtime of the server's executor, as `lambda executor: SqliteRuntime(executor, path)`."""


class Server:
    """
    Serves tools over MCP; behind it stands every rule of the contract.

    Enter it with `async with` to serve clients in this process; `stdio` and `asgi` do so
    themselves. It opens and closes the registry that it makes of given tools, and no other.

    Args:
        tools: A registry, an executor whose settings are used (recorder, hooks, asker), or tools
            and sources to make a registry of.
        runtime: Where calls are kept so that they outlive the process: a runtime of the same tools,
            or what makes one of the server's executor, so that what running calls ask and how far
            they are reaches the client too.
        lock: What was approved of the tools, or the path of its file, which is taken up at the next
            request when it was written again. A tool that changed since is listed as it was locked
            and its calls are refused; one that is not in the lock is not there. It is for tools of
            this server's executor: a runtime is then given as what makes one.
        name: What clients call the server.
        title: What people call it.
        instructions: What a model is told of all the tools together.
        keys: What seals the state that clients carry between two requests of a call, 32 bytes or
            more each: the first seals, all open. Left out, one is made that only this server has.
        patience: Seconds that a call waits for its client to answer.
        rounds: How many requests a client makes of one call at most.
        tasks: Experimental. Seconds after which a call is answered with a task, if its client takes
            tasks; a `Tasks` says more. Left out, no call is.

    Raises:
        InvalidLock: there is no lock that can be used in the file.
        InvalidValue: a lock is for tools that an open runtime has not, or `tasks` is no time.
    """

    def __init__(  # noqa: PLR0913  # each by keyword; all that a server may be given
        self,
        tools: Executor | Registry | Iterable[Tool | Source],
        *,
        runtime: Runtime | RuntimeFrom | None = None,
        lock: LockFile | str | os.PathLike[str] | None = None,
        name: str = "ferrule",
        title: str | None = None,
        instructions: str | None = None,
        keys: Sequence[bytes] = (),
        patience: float = 1800.0,
        rounds: int = 10,
        tasks: Tasks | float | None = None,
    ) -> None:
        given = tools if isinstance(tools, Executor) else Executor(tools)
        self._lock = None if lock is None else LockedRegistry(given.registry, lock)
        if self._lock is not None:
            if runtime is not None and not callable(runtime):
                raise InvalidValue(
                    "a runtime that is open has tools of its own, which this lock is not for; give "
                    "what makes one: runtime=lambda executor: SqliteRuntime(executor, path)"
                )
            given = _over(self._lock, given)
        self._owns = not isinstance(tools, Executor | Registry)
        self._given = given
        self._executor = _again(given, given.on_progress, self._ask)
        self._registry = given.registry
        self._runtime = runtime
        self._kept: Runtime | None = None
        self._names = (name, title, instructions)
        self._bounds = Bounds(
            patience=patience,
            rounds=rounds,
            parked=_PARKED,
            keys=tuple(keys) or (secrets.token_bytes(32),),
        )
        said = tasks_of(tasks)
        made = None if said is None else Keeper(said, self._bounds.keys, self._new, self._start)
        self._long = made
        self._calls: dict[str, Call] = {}
        self._lives: set[Life] = set()
        self._used: dict[str, None] = {}
        self._listed: dict[bool, list[types.Tool]] = {}
        self._is_open = False
        self._entered = AsyncExitStack()
        self._registry.when_changed(self._forget)

    def __repr__(self) -> str:
        return f"<Server {self._names[0]!r} of {len(self._registry)} tools>"

    # ---- opening and closing ---------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._entered.enter_async_context(self._opened())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._entered.__aexit__(kind, error, traceback)

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[None]:
        """Hold open what the server opens itself, unless it is open already."""
        if self._is_open:
            yield
            return
        self._is_open = True
        async with AsyncExitStack() as opened:
            if self._owns:
                await opened.enter_async_context(self._registry)
            if callable(self._runtime):
                executor = _again(self._given, self._heard, self._ask_or_say)
                self._kept = await opened.enter_async_context(self._runtime(executor))
            else:
                self._kept = self._runtime
            if self._long is not None:
                self._long.runtime = self._kept
            yield
        self._is_open = False

    # ---- transports ------------------------------------------------------------------------------

    @functools.cached_property
    def sdk(self) -> Lowlevel[Life]:
        """
        The server as the SDK knows it, for clients in this process: `Client(server.sdk)`.

        Each client is a connection of its own.
        """
        return self._made("connection")

    async def stdio(self, *, stdout: TextIO | None = None) -> None:
        """
        Serve one client over standard input and output until it closes them.

        What tools print, and programs that they start, goes to standard error meanwhile.

        Args:
            stdout: The way to the client, where a program has put it aside before others print.
        """
        sdk = self._made("process")
        kept = None if stdout is None else anyio.wrap_file(stdout)
        async with stdio_server(stdout=kept) as (reading, writing), self._opened():
            await sdk.run(reading, writing, sdk.create_initialization_options())

    def asgi(
        self,
        path: str = "/mcp",
        *,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        tokens: TokenVerifier | None = None,
        auth: AuthSettings | None = None,
    ) -> App:
        """
        Return an app that serves many clients over streamable HTTP; run it with its lifespan.

        Args:
            path: Where it answers.
            hosts: Names that the server has beside those of this machine itself, `name` or
                `name:port`. `*` is for a server behind a proxy that looks at the name.
            origins: Web pages that may talk to it beside its own.
            tokens: Says whose a bearer token is; with it, a request without one is refused.
            auth: Who issues the tokens and what for: what clients are told where to get one.
        """
        sdk = self._made(None)
        app = sdk.streamable_http_app(
            streamable_http_path=path,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            token_verifier=tokens,
            auth=auth,
        )
        inner = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan(_: object) -> AsyncGenerator[None]:
            async with self._opened(), inner(app):
                yield

        app.router.lifespan_context = lifespan
        return Doorkeeper(app, hosts, origins)

    async def http(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        path: str = "/mcp",
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        started: Callable[[str], object] = str,
    ) -> None:
        """
        Serve many clients over streamable HTTP until the process is told to end; on asyncio.

        Args:
            host: Name or address to listen at; its own name where it is not every address.
            port: Where to listen; 0 is any free one.
            path: As of `asgi`, like the next two.
            hosts: More names that the server has.
            origins: Web pages that may talk to it.
            started: Hears the address, as in `http://127.0.0.1:8000/mcp`.

        Raises:
            OSError: nobody can listen there.
        """
        own = () if host in _EVERYWHERE else (f"[{host}]" if ":" in host else host,)
        app = self.asgi(path, hosts=(*own, *hosts), origins=origins)
        async with self._opened():
            await serve(
                app,
                host,
                port,
                started=lambda address: started(f"{address}{path}"),
                ending=self._hush,
            )

    def _hush(self) -> None:
        """Let go of who listens for changes."""
        for life in self._lives:
            life.hush()

    def _made(self, kind: Kind | None) -> "_Lowlevel":
        """Return a server of the SDK for one kind of transport."""
        name, title, instructions = self._names
        sdk = _Lowlevel(
            name,
            version=version_of("ferrule"),
            title=title,
            instructions=instructions,
            lifespan=functools.partial(self._life, kind),
            get_tool_input_schema=self._schema_of,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_prompts=_no_prompts,
            on_list_resources=_no_resources,
            on_list_resource_templates=_no_templates,
            on_subscriptions_listen=self._listen,
        )
        sdk.add_notification_handler("notifications/initialized", types.NotificationParams, _greet)
        sdk.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _set_level)
        if self._long is not None:
            sdk.extensions[TASKS] = {}
            sdk.add_request_handler("tasks/get", TaskParams, self._long.get)
            sdk.add_request_handler("tasks/update", UpdateParams, self._long.update)
            sdk.add_request_handler("tasks/cancel", TaskParams, self._long.cancel)
        return sdk

    def _life(self, kind: Kind | None, _: Lowlevel[Life]) -> AbstractAsyncContextManager[Life]:
        session = None if kind is None else Session(kind, secrets.token_urlsafe(16))
        return living(session, self._registry, self._lives)

    def _forget(self) -> None:
        self._listed = {}  # Another: who makes a list of what was there may still be at it.

    # ---- what clients ask for --------------------------------------------------------------------

    def _schema_of(self, name: str) -> Mapping[str, Any] | None:
        binding = self._registry.resolve(name)
        return None if binding is None else binding.contract.definition.input_schema

    async def _list_tools(
        self, wire: Wire, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        if params is not None and params.cursor is not None:
            raise MCPError(
                code=types.INVALID_PARAMS, message="Invalid cursor: the list is one page"
            )
        if self._lock is not None:
            self._lock.refresh()
        modern, known = is_modern(wire), self._listed
        if modern not in known:
            bindings = map(self._registry.resolve, self._registry.names)
            known[modern] = [tool_of(one, modern=modern) for one in bindings if one is not None]
        return types.ListToolsResult(tools=list(known[modern]))

    async def _call_tool(self, wire: Wire, params: types.CallToolRequestParams) -> Any:  # noqa: ANN401  # the SDK has no word for a task
        if self._lock is not None:
            self._lock.refresh()
        binding = self._registry.resolve(params.name)
        if binding is None:
            raise MCPError(
                code=types.INVALID_PARAMS, message=f"Unknown tool: {one_line(params.name, 128)}"
            )
        life: Life = wire.lifespan_context
        request = Request(wire, params, life.session)
        return await contained(
            self._served(life, request, binding), functools.partial(_told, request)
        )

    async def _served(self, life: Life, request: Request, binding: Binding) -> Answer | Told:
        name = binding.contract.name
        refusal = None if self._long is None else self._long.refusal(request)
        if refusal is not None:
            return refusal
        try:
            proposed = _proposed(name, request.params.arguments)
        except (InvalidValue, ValueError) as error:
            problem = Problem(path="", rule="invalid_json", expected=str(error))
            refused = Rejected("invalid_json", problems=(problem,), tool=name)
            return result_of(refused, modern=request.modern, limit=_SENTENCE)
        if request.params.request_state is None:
            return await self._begun(self._new(life, request, proposed), request)
        ticket = ticket_of(request, self._bounds.keys)
        if ticket is None or not self._takes(ticket):
            return error_of(GONE)
        if ticket.request is None and not ticket.batch:
            return await self._resumed(life, request, ticket)
        return await self._gone_on(life, request, ticket, proposed)

    async def _listen(
        self, wire: Wire, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Tell of changed tools; who has tasks comes back for them, and is told of none."""
        wanted = object_of(object_of(wire.params).get("notifications"))
        if self._long is not None and "taskIds" in wanted and not takes_tasks(wire):
            raise incapable("Missing required client capability")
        life: Life = wire.lifespan_context
        return await life.listen(wire, params)

    # ---- new calls, and calls that go on ---------------------------------------------------------

    async def _begun(self, call: Call, request: Request) -> Answer | Told:
        call.may_be_task = self._long is not None and request.takes_tasks
        if call.needs_task:
            self._start(call)
            return await self._stood_by(call, request)
        self._calls[call.leg.call.id] = call
        return await self._known(call, call.serve_alone)

    def _start(self, call: Call) -> None:
        self._calls[call.leg.call.id] = call
        call.life.tasks.start_soon(self._known, call, call.run)

    async def _stood_by(self, call: Call, request: Request) -> Answer | Told:
        if self._long is None or not request.takes_tasks:
            return await call.serve(request)
        return await self._long.served(call, request)

    async def _resumed(self, life: Life, request: Request, ticket: Ticket) -> Answer | Told:
        """Give a call that waits what its client answers, and wait for more of it."""
        call = life.parked.pop(ticket.nonce, None)
        if not isinstance(call, Call):
            return error_of(GONE)
        call.resume(request.answers)
        return await self._stood_by(call, request)

    async def _known(self, call: Call, work: Callable[[], Awaitable[R]]) -> R:
        """Do some work of a call, which can be found by its id meanwhile."""
        try:
            return await work()
        finally:
            if self._calls.get(call.leg.call.id) is call:
                del self._calls[call.leg.call.id]

    def _new(self, life: Life, request: Request, proposed: ToolCall, name: str = "") -> Call:
        key = name or request.key
        if self._kept is None:
            leg = Leg(proposed, idempotency_key=key, session=request.session)
            return Call(self._executor, self._bounds, life, request, leg)
        leg = Leg(ToolCall(id=f"{key}:call", name=proposed.name, arguments=proposed.arguments))
        return DurableCall(self._kept, self._executor, self._bounds, life, request, leg, key)

    def _takes(self, ticket: Ticket) -> bool:
        """Say whether a ticket is taken for the first time; it serves once."""
        if ticket.nonce in self._used:
            return False
        self._used[ticket.nonce] = None
        while len(self._used) > _REMEMBERED:
            del self._used[next(iter(self._used))]
        return True

    async def _gone_on(
        self, life: Life, request: Request, ticket: Ticket, proposed: ToolCall
    ) -> Answer | Told:
        """Go on with a call that had ended its leg with a question."""
        call = self._new(life, request, proposed, name=ticket.batch)
        call.round = ticket.round + 1
        if isinstance(call, DurableCall):
            await call.take(ticket.wait, request.answers)
            return await self._begun(call, request)
        asked = InputRequest.from_json(ticket.request)
        call.leg, call.answered = leg_of(ticket, call.leg)
        form = Form(asked.message, asked.schema)
        given = read(form, request.answers.get(form.file))
        if given is None:
            return call.handed_out(asked)
        following = call.following(asked, given)
        if not isinstance(following, Leg):
            return call.result(following)
        call.leg = following
        return await self._begun(call, request)

    # ---- what running calls ask and tell ---------------------------------------------------------

    async def _ask(self, context: Context, question: Question) -> Accepted[Any] | Declined:
        """Ask the client of a call, else whom the executor asks."""
        call = self._calls.get(context.call_id)
        if call is not None and call.can_ask(question):
            return await call.ask(question)
        if self._given.asker is None:
            return Declined("cancel")
        return await self._given.asker(context, question)

    async def _ask_or_say(self, context: Context, question: Question) -> Accepted[Any] | Declined:
        """Do as `_ask` for a call that a runtime runs, whose client may be gone."""
        if context.call_id not in self._calls and self._given.asker is None:
            raise Failure(
                "nobody can be asked while this call runs; a tool that needs an answer returns an "
                f"InputRequest and goes on later ({question.message})"
            )
        return await self._ask(context, question)

    async def _heard(self, context: Context, update: Progress) -> None:
        """Tell the client of a call that a runtime runs how far it is."""
        call = self._calls.get(context.call_id)
        if call is not None:
            call.progressed(update)
        sink = self._given.on_progress
        if sink is None:
            return
        if inspect.iscoroutinefunction(sink):
            await sink(context, update)
        else:
            await anyio.to_thread.run_sync(sink, context, update)


_EVERYWHERE = {"0.0.0.0", "::", ""}  # noqa: S104  # compared with, and not listened at
_PARKED = 256
_REMEMBERED = 100_000
_SENTENCE = 4096
"""Bytes of an error that no tool is behind."""


class _Lowlevel(Lowlevel[Life]):
    """Says of every transport that the list of tools may change, and that it alone does."""

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        """Return what the server has."""
        found = super().get_capabilities(
            notification_options,
            experimental_capabilities,
            extensions,
            protocol_version=protocol_version,
        )
        empty = {
            "prompts": types.PromptsCapability(list_changed=False),
            "resources": types.ResourcesCapability(subscribe=False, list_changed=False),
        }
        return found.model_copy(update=empty)

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return what a connection of the handshake era is told of the server."""
        return super().create_initialization_options(
            notification_options or NotificationOptions(tools_changed=True),
            experimental_capabilities,
            extensions,
        )


def _again(given: Executor, sink: Sink | None, asker: Asker) -> Executor:
    """Return an executor like the given one, but for who hears and who is asked."""
    made = _over(given.registry, given)
    made.on_progress, made.asker = sink, asker
    return made


def _over(registry: Registry, given: Executor) -> Executor:
    """Return an executor like the given one, over other tools."""
    made = Executor(registry)
    made.adopt(given)
    return made


def _proposed(name: str, arguments: dict[str, Any] | None) -> ToolCall:
    """
    Return a call with the text of what the SDK has read already.

    Raises:
        InvalidValue, ValueError: a number is not finite, or a text is none.
    """
    text = _WRITTEN(arguments or {})
    return ToolCall(id=f"call_{secrets.token_hex(12)}", name=name, arguments=text)


# `json.dumps` makes one for each text that is not written its own way.
_WRITTEN = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _told(request: Request, error: Exception) -> Answer | Told:
    """Return what a client reads of an error that is not a tool's: ours to mend, not its to see."""
    if isinstance(error, MCPError):
        raise error
    outcome = outcome_of(error, tool=request.params.name)
    return result_of(outcome, modern=request.modern, limit=_SENTENCE)


# Clients ask for these whatever a server says it has, and show the error. That it has none is an
# answer, and one that it may announce.


async def _no_prompts(_: Wire, __: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=[])


async def _no_resources(
    _: Wire, __: types.PaginatedRequestParams | None
) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[])


async def _no_templates(
    _: Wire, __: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(resource_templates=[])


async def _greet(wire: Wire, params: types.NotificationParams) -> None:
    life: Life = wire.lifespan_context
    await life.greet(wire, params)


async def _set_level(wire: Wire, params: types.SetLevelRequestParams) -> types.EmptyResult:
    keep_level(wire, params.level)
    return types.EmptyResult()
