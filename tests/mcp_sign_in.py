"""
A program that is signed in to a server: `python mcp_sign_in.py BACKEND URL FILE [POLICY]`.

It says `ready`, waits for a line, and makes one call. It says `locking` when it goes for the lock
of its tokens, `locked` when it has it, and how the call ended; `asked` if a person had to sign in,
which ends it, unless POLICY is `visit`: then that person does. If POLICY is `die`, it is killed as
it writes down what it was granted.
"""

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import httpx2

from ferrule import Executor, ToolCall
from ferrule.mcp import Address, SignIn, TokenFile, connect
from serving import free_port


def say(text: str) -> None:
    """Tell the test."""
    print(text, flush=True)  # noqa: T201  # to who started us


class Telling(TokenFile):
    """A file of tokens that says what is done with it."""

    def locked(self) -> AbstractAsyncContextManager[None]:
        """Say when it is wanted, and when it is had."""
        return self._locked()

    @asynccontextmanager
    async def _locked(self) -> AsyncGenerator[None]:
        say("locking")
        async with super().locked():
            say("locked")
            yield


def show(url: str) -> None:
    """Be a person who is asked to sign in."""
    say("asked")
    if sys.argv[4:] != ["visit"]:
        os._exit(1)
    httpx2.get(url, follow_redirects=True)


async def main(url: str, file: str) -> None:
    """Make one call."""
    redirect = f"http://127.0.0.1:{free_port()}/callback"
    sign_in = SignIn(Telling(file), show=show, redirect_uri=redirect)
    async with connect(Address(url, sign_in=sign_in)) as remote:
        [outcome] = await Executor(remote.tools).run([ToolCall.of("add", {"a": 1, "b": 2})])
    say(f"ended {outcome.text}")


def die(fd: object) -> None:
    """End as nothing else does."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    if sys.argv[4:] == ["die"]:
        os.fsync = die
    say("ready")
    sys.stdin.readline()
    anyio.run(main, sys.argv[2], sys.argv[3], backend=sys.argv[1])
