"""`connect`: the tools of MCP servers as tools of ours."""

import functools
import logging
from collections.abc import Callable, Mapping
from itertools import chain, repeat
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types as types

from ferrule import FerruleError, InvalidValue, Tool, TraitFields, Traits
from ferrule.helpers import one_line
from ferrule.mcp._file import Entry, Unread, entries_in
from ferrule.mcp._listing import Naming, Quarantined
from ferrule.mcp._outside import Ended, held
from ferrule.mcp._peer import Peer
from ferrule.mcp._session import Unreachable, spawn
from ferrule.mcp._targets import Environment, Target, target_of

logger = logging.getLogger("ferrule.mcp")

AGAIN_SECONDS = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)
"""How long to wait before a server of a file that was not there is tried again, each time."""


def connect(  # noqa: PLR0913  # each by keyword; what a host may say of a server
    target: object,
    *,
    prefix: str | None = None,
    origin: str | None = None,
    traits: Mapping[str, TraitFields | Traits] = {},
    rename: Mapping[str, str] = {},
    grace: float = 0.05,
    timeout: float | None = None,
    env: Environment = (),
    tasks: bool = False,
) -> "Remote":
    """
    Return the tools of a server, or of all that an `mcp.json` names, as a source.

    A plain call that connects nobody: a registry that holds the source opens and closes it, and
    follows when its tools change; or enter it with `async with`, from whichever task.

    Args:
        target: A URL, a command line or its words, the path of an `mcp.json`, a server object of
            the SDK; or a `Command`, an `Address`, an `InProcess`, which say more.
        prefix: Stands before each name, as in `fs__read`; `{server}` is the server's name in its
            file. It goes before what an entry of a file says, as `rename` and `traits` do.
        origin: Where the tools come from, as fingerprints have it; made of the target if left out.
            A file's servers are `mcp:NAME`, each.
        traits: What MCP cannot say, by a tool's name there or here: `uses`, `sequential`,
            `confinement`, `replay`, `timeout`. It stands above what the server says.
        rename: Names of ours by theirs, also as `server/name`: for those that no tool may have.
        grace: Seconds that a call waits for the news that it changed the tools, if it may have.
        timeout: Seconds that each call may take, unless `traits` says otherwise.
        env: Names of our variables that a child gets beside a few, or a mapping with values.
        tasks: Experimental. Whether a server may answer a call with a task, which is then followed
            to its end; see docs/mcp.md. Such a call tells no progress but in words.

    Raises:
        InvalidValue: that is no target.
    """
    found = target_of(target, env)
    if grace < 0:
        raise InvalidValue("grace is seconds, 0 or more")
    naming = Naming(
        origin=origin or ("mcp" if isinstance(found, Path) else f"mcp:{found.label}"),
        prefix=prefix,
        rename=dict(rename),
        traits=dict(traits),
        timeout=timeout,
        tasks=tasks,
    )
    return Remote(found, naming, grace=grace)


class Remote:
    """
    The tools of one server or of several; a `Source`.

    Open, it is connected, and connects again when a server was started anew: a call that certainly
    did not run goes there, one that may have run is never sent twice. One of a file that was not
    there is tried again, ever more rarely, until it comes in; one that a person signs in to is by
    `refresh` alone. Made by `connect`.
    """

    def __init__(self, target: Target | Path, naming: Naming, *, grace: float) -> None:
        self._target = target
        self._naming = naming
        self._grace = grace
        self._peers: dict[str, Peer] = {}
        self._failed: dict[str, str] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._lock = anyio.Lock()
        self._is_open = self._is_closed = False
        self._attended: set[str] = set()
        self._trying: anyio.CancelScope | None = None
        self._tried = anyio.Event()

    def __repr__(self) -> str:
        return f"<Remote {self.origin!r}>"

    @property
    def origin(self) -> str:
        """Where the tools come from; of several servers, what they have in common."""
        return self._naming.origin

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What is offered now, server by server; nothing before it is open."""
        return tuple(tool for tools in self.offered.values() for tool in tools)

    @property
    def offered(self) -> dict[str, tuple[Tool, ...]]:
        """What is offered now, by the origin of each server."""
        return {
            peer.naming.origin: tuple(one.tool for one in peer.snapshot.offered.values())
            for peer in self._peers.values()
        }

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """What is listed and cannot be used, each with the reason."""
        return tuple(bad for peer in self._peers.values() for bad in peer.snapshot.quarantined)

    @property
    def failed(self) -> dict[str, str]:
        """The servers of a file that are not there, by name, each with the latest reason."""
        return dict(self._failed)

    @property
    def server_info(self) -> dict[str, Any] | None:
        """What the server says that it is, as MCP writes it; of several, nothing."""
        infos = list(self.servers.values())
        return infos[0] if len(infos) == 1 else None

    @property
    def servers(self) -> dict[str, dict[str, Any] | None]:
        """What each server says that it is, by its name in the file, or by its origin."""
        return {name: _plain(peer.server) for name, peer in self._peers.items()}

    @property
    def instructions(self) -> str | None:
        """What the servers say of their use, for a system prompt: other people's text."""
        said = {name: peer.instructions for name, peer in self._peers.items()}
        if len(said) == 1:
            return next(iter(said.values()))
        return "\n\n".join(f"{name}: {text}" for name, text in said.items() if text) or None

    def when_changed(self, told: Callable[[str], None]) -> None:
        """Have `told` called with an origin whenever what is offered from there has changed."""
        self._listeners.append(told)

    async def __aenter__(self) -> Self:
        """
        Connect and list, all servers side by side; once more does nothing.

        Raises:
            FerruleError: the one server cannot be connected to; of several, each that cannot is in
                `failed`, and the others are there.
        """
        async with self._lock:
            if self._is_closed:
                raise FerruleError("this source was closed; make another with `connect`")
            if not self._is_open:
                await self._open()
                self._is_open = True
                self._try_again()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Hang up, everywhere; running calls end. From any task; a second time does nothing."""
        self._is_closed = True
        if self._trying is not None:
            self._trying.cancel()
            await self._tried.wait()
        async with anyio.create_task_group() as group:
            for peer in self._peers.values():
                group.start_soon(peer.aclose)

    async def refresh(self) -> None:
        """
        List everything anew; servers of a file that had failed are tried again at once.

        Raises:
            FerruleError: the one server cannot be listed; of several, see `failed`.
        """
        await self._all(Peer.refresh)

    async def settled(self) -> None:
        """
        Wait until every change that was told of is in `tools`.

        Raises:
            FerruleError: the latest listing of a server failed.
        """
        for peer in self._peers.values():
            await peer.settled()

    async def _open(self) -> None:
        whole = self._target
        entries = entries_in(whole) if isinstance(whole, Path) else {"": Entry(whole)}
        for name, entry in entries.items():
            if isinstance(entry.target, Unread):
                self._failed[name] = entry.target.reason
                _warn_of(name, entry.target.reason)
            else:
                self._peers[name] = Peer(
                    entry.target, self._named(name, entry), grace=self._grace, changed=self._tell
                )
                if entry.target.more_seconds:
                    self._attended.add(name)
        await self._all(Peer.open)

    def _named(self, name: str, entry: Entry) -> Naming:
        naming = self._naming
        if not isinstance(self._target, Path):
            return naming
        return Naming(
            origin=f"{naming.origin}:{name}",
            server=name,
            prefix=entry.prefix if naming.prefix is None else naming.prefix,
            rename={**entry.rename, **naming.rename},
            traits={**entry.traits, **naming.traits},
            timeout=naming.timeout,
            tasks=naming.tasks or entry.tasks,
        )

    async def _all(self, do: Callable[[Peer], Any]) -> None:
        async def one(name: str) -> None:
            error = await self._one(name, do)
            if error is not None:
                errors.append(error)

        errors: list[BaseException] = []
        async with anyio.create_task_group() as group:
            for name in self._peers:
                group.start_soon(one, name)
        if errors and not isinstance(self._target, Path):
            self._failed.clear()
            (error,) = errors
            await self._given_up()
            if isinstance(error, FerruleError):
                raise Unreachable(f"{self.origin}: {error}") from error
            raise error

    async def _one(self, name: str, do: Callable[[Peer], Any]) -> BaseException | None:
        """Do it with one server; note that it is there, or why not, and return that."""
        done = await held(do(self._peers[name]))
        is_news = self._failed.pop(name, None) is None
        if not isinstance(done, Ended):
            return None
        self._failed[name] = str(done)
        if isinstance(self._target, Path) and is_news:
            _warn_of(name, self._failed[name])
        return done.error

    async def _given_up(self) -> None:
        """Leave nothing behind of a connection that was never there."""
        if not self._is_open:
            await self.aclose()

    def _tell(self, peer: Peer) -> None:
        for told in self._listeners:
            told(peer.naming.origin)

    # ---- those that are not there yet ------------------------------------------------------------

    def _try_again(self) -> None:
        """
        Go on trying those that are not there, in a task that `aclose` ends.

        Not those that a person signs in to: their browser would open again and again.
        """
        absent = (self._failed.keys() & self._peers.keys()) - self._attended
        if absent:
            self._trying = anyio.CancelScope()
            spawn(functools.partial(self._awaited, absent, self._trying))

    async def _awaited(self, absent: set[str], scope: anyio.CancelScope) -> None:
        try:
            with scope:
                async with anyio.create_task_group() as group:
                    for name in absent:
                        group.start_soon(self._await, name)
        finally:
            self._tried.set()

    async def _await(self, name: str) -> None:
        for seconds in chain(AGAIN_SECONDS, repeat(AGAIN_SECONDS[-1])):
            await anyio.sleep(seconds)
            if name in self._failed:  # Else somebody had it tried meanwhile.
                await self._one(name, Peer.refresh)
            if name not in self._failed:
                logger.warning("the server `%s` is there now", one_line(name, 100))
                return


def _warn_of(name: str, reason: str) -> None:
    logger.warning("the server `%s` is not there: %s", one_line(name, 100), reason)


def _plain(info: types.Implementation | None) -> dict[str, Any] | None:
    return None if info is None else info.model_dump(by_alias=True, exclude_none=True, mode="json")
