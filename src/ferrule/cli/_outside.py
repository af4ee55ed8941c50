"""
TOOLS that are other people's servers: a command, an address, or a file of several.

They are connected to when they are opened. A server of a file that is not there, and a tool that
cannot be used, is a warning on standard error, which `ferrule.mcp` logs; the others go on.
"""

import logging
import shlex
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType

from ferrule import FerruleError, Registry
from ferrule.cli._refused import USAGE, Refused
from ferrule.helpers import one_line
from ferrule.mcp import Command, Remote, connect

NOT_THERE = 1
"""Exit code: the command line was understood, and there is nobody where it says."""


def servers(target: str) -> "Servers":
    """
    Return what TOOLS names, not connected yet.

    Raises:
        Refused: there is no such file or program.
    """
    # What breaks is told by us, as the end of a call or of a connection; the SDK logs tracebacks.
    logging.getLogger("mcp.client").setLevel(logging.CRITICAL)
    if target.startswith(("http://", "https://")):
        return Servers(target, connect(target))
    if target.endswith(".json") and (Path(target).is_file() or " " not in target):
        if not Path(target).is_file():
            raise Refused(f"there is no file `{one_line(target)}`; TOOLS may be an mcp.json")
        return Servers(target, connect(Path(target)), is_file=True)
    return Servers(target, connect(_command(target)))


def _command(text: str) -> Command:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise Refused(f"the command `{one_line(text)}` cannot be read: {error}") from None
    if shutil.which(words[0]) is None:
        hint = "TOOLS in several words is a server's command"
        raise Refused(f"there is no program `{one_line(words[0], 100)}` on the PATH; {hint}")
    return Command(tuple(words))


class Servers:
    """
    Servers that give a registry of their tools while they are open.

    Attributes:
        remote: The connections; what of a file could not be connected to is in its `failed`.
    """

    def __init__(self, target: str, remote: Remote, *, is_file: bool = False) -> None:
        self.remote = remote
        self._target = one_line(target, 200)
        self._is_file = is_file
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Registry:
        """
        Connect, and return the tools.

        Raises:
            Refused: there is nothing to be had, or two servers have a tool of one name.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.remote.aclose)
            await self._connect()
            self._check()
            registry = await stack.enter_async_context(Registry([self.remote]))
            self._stack = stack.pop_all()
        return registry

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _connect(self) -> None:
        try:
            await self.remote.__aenter__()
        except FerruleError as error:
            if self._is_file:  # It cannot be read: of servers that are not there it says nothing.
                raise Refused(str(error)) from None
            why = str(error.__cause__ or error)
            if why.endswith("HTTP 401"):
                why += "; it wants to know who asks: name it in an mcp.json, "
                why += "with `headers` or `sign_in`"
            raise Refused(f"cannot connect to {self._target}: {why}", NOT_THERE) from None

    def _check(self) -> None:
        remote = self.remote
        if remote.failed and remote.failed.keys() >= remote.servers.keys():
            raise Refused(f"no server of {self._target} is there", NOT_THERE)
        if not remote.tools:
            names = "names no server" if not remote.servers else "offers no tool that can be used"
            raise Refused(f"{self._target} {names}", USAGE)
        owners: dict[str, str] = {}
        for origin, tools in remote.offered.items():
            for name in (tool.definition.name for tool in tools):
                if owners.setdefault(name, origin) != origin:
                    raise self._met(name, owners[name], origin)

    def _met(self, name: str, one: str, other: str) -> Refused:
        first, second = (one_line(origin.partition(":")[2], 60) for origin in (one, other))
        return Refused(
            f"the servers `{first}` and `{second}` of {self._target} both have a tool `{name}`; "
            f'give one of them a prefix in its entry, as in "prefix": "{second}"'
        )
