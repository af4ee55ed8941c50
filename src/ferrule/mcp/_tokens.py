"""
Where tokens are kept: a file that nobody else may read, or a keyring.

A token's time is kept as the moment at which it ends, since "3600 seconds" says nothing after a
restart. Whoever renews a token holds a lock meanwhile, across processes: a server that rotates its
refresh tokens takes the second use of one for theft, and ends the whole grant.
"""

import os
import sqlite3
import stat
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import anyio.to_thread
import msgspec

from ferrule import FerruleError, Limits, read_json
from ferrule.errors import InvalidJSON
from ferrule.mcp._shapes import Wire, is_object

_LIMITS = Limits()
LOCK_SECONDS = 30.0
"""What another process may take to renew a token."""

_POLL = 0.05


class Grant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    What a server has granted us.

    Attributes:
        access_token: Goes with each request.
        refresh_token: Gets another one, where that was granted.
        expires_at: When the access token ends, in seconds of the epoch, if the server said so.
        scope: What it is for.
        token_endpoint: Where it is renewed.
        resource: The resource it is for, as it was asked for.
        client: Who we are to the authorization server, as the SDK writes it.
    """

    access_token: str
    refresh_token: str | None = None
    expires_at: float | None = None
    scope: str | None = None
    token_endpoint: str | None = None
    resource: str | None = None
    client: Wire | None = None


class Tokens(Protocol):
    """Keeps grants, by the URL of their server."""

    async def read(self, url: str) -> Grant | None:
        """Return what is kept of a server, if anything is."""
        ...

    async def write(self, url: str, grant: Grant | None) -> None:
        """Keep it; `None` forgets what was kept."""
        ...

    def locked(self) -> AbstractAsyncContextManager[None]:
        """Have it for oneself, among all processes."""
        ...


class TokenFile:
    """
    Tokens in a file with mode 0600, written whole or not at all.

    Args:
        path: Where; the file and its directory are made when there is something to keep. Beside it
            stands a file with `.lock` at its end.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path).expanduser()

    def __repr__(self) -> str:
        return f"TokenFile({str(self._path)!r})"

    async def read(self, url: str) -> Grant | None:
        """
        Return what is kept of a server.

        Raises:
            FerruleError: others may read the file, or it is something else.
        """
        kept = await anyio.to_thread.run_sync(self._kept)
        return _grant(kept.get(url), str(self._path))

    async def write(self, url: str, grant: Grant | None) -> None:
        """Keep it, beside what is kept of other servers."""
        await anyio.to_thread.run_sync(self._write, url, grant)

    def locked(self) -> AbstractAsyncContextManager[None]:
        """Have the file for oneself."""
        return locked(self._path.with_name(f"{self._path.name}.lock"))

    def _kept(self) -> Wire:
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        if sys.platform != "win32" and stat.S_IMODE(self._path.stat().st_mode) & 0o077:
            raise FerruleError(f"others may read {self._path}: chmod 600 it, and sign in again")
        try:
            kept = read_json(text)
        except InvalidJSON as error:
            raise FerruleError(f"{self._path} is no file of tokens: {error}") from None
        if not is_object(kept):
            raise FerruleError(f"{self._path} is no file of tokens")
        return kept

    def _write(self, url: str, grant: Grant | None) -> None:
        kept = self._kept()
        kept.pop(url, None)
        if grant is not None:
            kept[url] = msgspec.to_builtins(grant)
        directory = self._path.parent
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A new file has mode 0600 and no other name that anybody could have opened.
        handle, name = tempfile.mkstemp(dir=directory, prefix=f".{self._path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(kept))
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path)
        finally:
            Path(name).unlink(missing_ok=True)


class KeyringTokens:
    """
    Tokens in the keyring of the operating system: `KeyringTokens(keyring, lock=path)`.

    Args:
        keyring: The module `keyring`, or what has its three functions.
        lock: A file that stands for the lock.
        service: What the entries are called.
    """

    def __init__(self, keyring: Any, *, lock: str | Path, service: str = "ferrule") -> None:  # noqa: ANN401  # the module itself
        self._keyring = keyring
        self._lock = Path(lock).expanduser()
        self._service = service

    async def read(self, url: str) -> Grant | None:
        """Return what is kept of a server."""
        text = await anyio.to_thread.run_sync(self._keyring.get_password, self._service, url)
        if text is None:
            return None
        try:
            return _grant(read_json(text), "the keyring's entry")
        except InvalidJSON:
            raise FerruleError("the keyring's entry is no grant") from None

    async def write(self, url: str, grant: Grant | None) -> None:
        """Keep it."""
        if grant is not None:
            text = msgspec.json.encode(grant).decode()
            await anyio.to_thread.run_sync(self._keyring.set_password, self._service, url, text)
        elif await self.read(url) is not None:
            await anyio.to_thread.run_sync(self._keyring.delete_password, self._service, url)

    def locked(self) -> AbstractAsyncContextManager[None]:
        """Have it for oneself."""
        return locked(self._lock)


@asynccontextmanager
async def locked(path: Path) -> AsyncGenerator[None]:
    """
    Hold a lock among processes; it ends with its process, however that ends.

    Raises:
        FerruleError: another process has held it for too long.
    """
    # SQLite's own lock is one on every platform, and nothing is ever written.
    lock: sqlite3.Connection | None = None
    for _ in range(int(LOCK_SECONDS / _POLL)):
        with anyio.CancelScope(shield=True):
            lock = await anyio.to_thread.run_sync(_lock, path)
        if lock is not None:
            break
        await anyio.sleep(_POLL)
    if lock is None:
        raise FerruleError(f"{path} is held by another process")
    try:
        yield
    finally:
        lock.close()


def _lock(path: Path) -> sqlite3.Connection | None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    lock = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        lock.close()
        return None
    return lock


def _grant(kept: object, where: str) -> Grant | None:
    if kept is None:
        return None
    try:
        return msgspec.convert(kept, Grant)
    except msgspec.ValidationError:
        raise FerruleError(f"{where} is no grant; delete it, and sign in again") from None
