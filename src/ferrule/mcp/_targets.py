"""What can be connected to: a command, an address, a server in this process."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, cast
from urllib.parse import urlsplit

import httpx2
import msgspec
from mcp import MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.server import MCPServer
from mcp.server.lowlevel import Server
from mcp.shared.direct_dispatcher import DirectDispatcher
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext

from ferrule import FerruleError, InvalidValue, Secret
from ferrule.helpers import one_line
from ferrule.mcp._memory import called, in_memory
from ferrule.mcp._oauth import SignIn
from ferrule.mcp._soft import BODY_BYTES, SoftClient, Verdict
from ferrule.mcp._stdio import Child, child

Era: TypeAlias = Literal["auto", "legacy"]
"""`auto` asks a server for the newest protocol it speaks; `legacy` goes for a handshake at once."""

_WINDOWS = (
    *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "SYSTEMDRIVE"),
    *("SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE"),
)
_POSIX = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM"),
    *("TMPDIR", "TZ", "USER"),
)
INHERITED = _WINDOWS if sys.platform == "win32" else _POSIX
"""What every child sees of our environment, where it is set; keys and tokens are not among it."""

Variables: TypeAlias = Mapping[str, str | Secret[str]]

Framed = JSONRPCDispatcher[TransportContext]
Ways: TypeAlias = Framed | DirectDispatcher
"""Messages over two streams, or calls in the task of who calls."""


class Lane(Protocol):
    """
    A way to one server, open.

    Attributes:
        dispatcher: What sends requests on it, and knows whether it is at its end.
    """

    dispatcher: Ways

    def verdict_of(self, error: MCPError) -> Verdict | None:
        """Say what an error of the transport's own means for its request."""
        ...

    def how_it_ended(self) -> str:
        """Say what is known of why it is no more; nothing if nothing is."""
        ...


class Target(Protocol):
    """Something that can be connected to."""

    @property
    def era(self) -> Era:
        """Which protocol to begin with."""
        ...

    @property
    def label(self) -> str:
        """What it is called where nobody gave it a name."""
        ...

    @property
    def more_seconds(self) -> float:
        """What connecting may take beside what any server may: a person signs in."""
        ...

    async def open(self, stack: AsyncExitStack) -> Lane:
        """Open a way to it, which `stack` closes."""
        ...


class _CommandFacts(msgspec.Struct, frozen=True, kw_only=True):
    env: Variables = {}
    inherit: tuple[str, ...] = ()
    cwd: str | Path | None = None
    era: Era = "auto"


class Command(_CommandFacts, frozen=True):
    """
    A server that is started as a child process and spoken to over its standard streams.

    Attributes:
        argv: The program and its arguments; no shell reads them.
        env: Variables that it gets.
        inherit: Names of our own variables that it gets beside the few that every child does.
        cwd: Where it runs.
        era: Which protocol to begin with.
    """

    argv: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.argv or not all(isinstance(word, str) for word in self.argv):
            raise InvalidValue("the argv of a Command is a program and its arguments, as strings")

    @property
    def label(self) -> str:
        """The command line."""
        return one_line(shlex.join(self.argv), 100)

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the child."""
        names = (*INHERITED, *self.inherit)
        passed = {name: os.environ[name] for name in names if name in os.environ}
        return passed | {n: v.reveal() if isinstance(v, Secret) else v for n, v in self.env.items()}

    @property
    def more_seconds(self) -> float:
        """Nothing."""
        return 0.0

    async def open(self, stack: AsyncExitStack) -> Lane:
        """
        Start the child.

        Raises:
            FerruleError: it cannot be started; the sentence says why.
        """
        env = self.variables
        try:
            running, streams = await stack.enter_async_context(
                child(self.argv, env=env, cwd=self.cwd)
            )
        except OSError as error:
            raise FerruleError(self._unstarted(error)) from error
        return _ChildLane(Framed(*streams), running, env)

    def _unstarted(self, error: OSError) -> str:
        program = one_line(self.argv[0], 100)
        if self.cwd is not None and not Path(self.cwd).is_dir():
            return f"`{program}` cannot be started: there is no folder {one_line(str(self.cwd))}"
        if isinstance(error, FileNotFoundError):
            return f"there is no program `{program}`; is it installed, and on the PATH?"
        return f"`{program}` cannot be started: {error.strerror or error}"


class _ChildLane(msgspec.Struct):
    dispatcher: Ways
    child: Child
    env: dict[str, str]

    def verdict_of(self, error: MCPError) -> Verdict | None:  # noqa: ARG002  # none is its own
        return None

    def how_it_ended(self) -> str:
        return self.child.how_it_ended(self.env)


class _AddressFacts(msgspec.Struct, frozen=True, kw_only=True):
    headers: Variables = {}
    sign_in: SignIn | httpx2.Auth | None = None
    era: Era = "auto"


class Address(_AddressFacts, frozen=True):
    """
    A server at a URL, spoken to over streamable HTTP.

    Attributes:
        url: Its endpoint, as in `https://example.com/mcp`.
        headers: Headers of every request; a `Secret` is revealed to the server alone.
        sign_in: How to get a token, or an `httpx2.Auth` of your own.
        era: Which protocol to begin with.
    """

    url: str

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise InvalidValue("the url of an Address begins with https:// or http://")

    @property
    def label(self) -> str:
        """The address, without what may be secret in it."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def more_seconds(self) -> float:
        """What a person has to sign in."""
        return self.sign_in.seconds if isinstance(self.sign_in, SignIn) else 0.0

    async def open(self, stack: AsyncExitStack) -> Lane:
        """Make a client; nothing is sent before the first message."""
        sign_in = self.sign_in
        auth = sign_in.auth(self.url) if isinstance(sign_in, SignIn) else sign_in
        headers = {n: v.reveal() if isinstance(v, Secret) else v for n, v in self.headers.items()}
        client = await stack.enter_async_context(SoftClient(headers=headers, auth=auth))
        transport = streamable_http_client(
            self.url, http_client=client, max_sse_event_size=BODY_BYTES
        )
        return _WebLane(Framed(*await stack.enter_async_context(transport)), client)


class _WebLane(msgspec.Struct):
    dispatcher: Ways
    client: SoftClient

    def verdict_of(self, error: MCPError) -> Verdict | None:
        return self.client.verdict_of(error)

    def how_it_ended(self) -> str:
        return ""


class _InProcessFacts(msgspec.Struct, frozen=True, kw_only=True):
    era: Era = "auto"


class InProcess(_InProcessFacts, frozen=True):
    """
    A server object of the SDK in this process.

    In the era without a handshake it is called in the task of who calls, without any messages; what
    it shields from being cancelled then holds whoever cancels.

    Attributes:
        server: The server; it runs for as long as the connection does.
        era: Which protocol to begin with.
    """

    server: Any

    @property
    def label(self) -> str:
        """The server's own name."""
        return one_line(str(self.server.name), 100)

    @property
    def more_seconds(self) -> float:
        """Nothing."""
        return 0.0

    async def open(self, stack: AsyncExitStack) -> Lane:
        """Run the server beside the connection."""
        server = self.server
        if isinstance(server, MCPServer):
            server = cast("Any", server)._lowlevel_server  # noqa: SLF001  # its only way in
        if self.era == "auto":
            return _MemoryLane(await stack.enter_async_context(called(server)))
        return _MemoryLane(Framed(*await stack.enter_async_context(in_memory(server))))


class _MemoryLane(msgspec.Struct):
    dispatcher: Ways

    def verdict_of(self, error: MCPError) -> Verdict | None:  # noqa: ARG002  # none is its own
        return None

    def how_it_ended(self) -> str:
        return ""


Environment: TypeAlias = Variables | Sequence[str]
"""Variables with their values, or names of our own that a child gets as well."""


def target_of(target: object, env: Environment = ()) -> Target | Path:
    """
    Return what `target` means: a target, or the file that names several.

    Raises:
        InvalidValue: it means nothing; the sentence says what may be given.
    """
    if isinstance(target, Command | Address | InProcess):
        return _with(target, env)
    if isinstance(target, Server | MCPServer):
        return _with(InProcess(target), env)
    if isinstance(target, Path):
        return target
    if isinstance(target, str):
        return _of_text(target.strip(), env)
    if isinstance(target, list | tuple):
        return _with(Command(tuple(cast("Sequence[str]", target))), env)
    raise InvalidValue(
        "a target is a URL, a command line, a list of words, the path of an mcp.json, a server of "
        f"the SDK, a Command, an Address or an InProcess, not {type(target).__name__}"
    )


def _of_text(text: str, env: Environment) -> Target | Path:
    if text.startswith(("http://", "https://")):
        return _with(Address(text), env)
    if text.endswith(".json") and " " not in text:
        return Path(text)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidValue(f"the command line cannot be read: {error}") from None
    if not words:
        raise InvalidValue("a target that is text is a URL, a command line or the path of a file")
    return _with(Command(tuple(words)), env)


def _with(target: Target, env: Environment) -> Target:
    """Return a target with the variables of the child that it starts."""
    if not env:
        return target
    if not isinstance(target, Command):
        raise InvalidValue("`env` is for a server that is started as a command")
    if isinstance(env, Mapping):
        return msgspec.structs.replace(target, env={**target.env, **env})
    if isinstance(env, str) or not all(isinstance(name, str) for name in env):
        raise InvalidValue('`env` is names of variables, as in ["TOKEN"], or a mapping with values')
    return msgspec.structs.replace(target, inherit=(*target.inherit, *env))
