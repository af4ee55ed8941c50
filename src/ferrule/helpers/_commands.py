"""
Commands as tools run them: a list of words that no shell reads, gone with all that it started.

Theory. A command gets a process group of its own, and the group exists before the command does: its
leader waits at a *gate*, for one byte. Meanwhile the group is put on record, so that whoever comes
after a crash can end it. If we end before that, the pipe closes and nothing runs at all. However a
call ends, the group is asked to end, then made to, and only then does the call go on. What a
command moves into another group (`setsid`) is out of reach: only a sandbox could hold it.
"""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias, cast

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from ferrule import Context, Failure, InvalidValue, Result, Secret, Text
from ferrule.helpers._groups import NAMESPACE, told
from ferrule.helpers._printed import Printed
from ferrule.helpers._rules import CommandRule, words_of
from ferrule.helpers._visible import one_line

ENVIRONMENT: Final = ("LANG", "LC_ALL", "LC_CTYPE", "PATH", "TZ")
"""
What every command sees of our environment, where it is set; keys and tokens are not among it.

Of PATH it sees the absolute directories alone, so that no file beside the work is taken for `git`.
"""

Variables: TypeAlias = Mapping[str, str | Secret[str]]
"""Environment variables by name; a secret is revealed to the command alone."""


class CommandLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    How much a command may take.

    Attributes:
        seconds: When it is stopped; `None` is never.
        output_bytes: What is kept of its output: half from the beginning, half from the end.
        grace: Seconds between asking it to stop (SIGTERM) and ending it (SIGKILL).
    """

    seconds: float | None = 120.0
    output_bytes: int = 32 * 1024
    grace: float = 2.0

    def __post_init__(self) -> None:
        seconds = 1 if self.seconds is None else self.seconds
        bounds = (seconds, self.output_bytes, 1 if self.grace == 0 else self.grace)
        numbers = all(isinstance(bound, int | float) for bound in bounds)
        if not numbers or not all(0 < bound < float("inf") for bound in bounds):
            raise InvalidValue("the limits of a command are finite and positive; grace may be 0")


_LIMITS: Final = CommandLimits()


async def run_command(  # each by keyword
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str],
    env: Variables | None = None,
    inherit: Iterable[str] = (),
    limits: CommandLimits = _LIMITS,
    context: Context | None = None,
    allow: Iterable[CommandRule] | None = None,
) -> Result:
    """
    Run a command and return what it printed; nothing that it started goes on after that.

    No shell reads the words, nothing is typed in, and standard error stands between the lines of
    standard output. Its process group is on record (`shell:process-group`) before it begins, and
    its lines are shown as progress. Cancelling the call stops it with its children.

    Args:
        argv: The executable, as PATH or a path below `cwd` leads to it, and its arguments.
        cwd: The directory to run in.
        env: Variables that it sees beside those of `ENVIRONMENT`.
        inherit: Names of our own variables that it sees as well.
        limits: How long it may run, and how much of its output is kept.
        context: The running call: for the record, and for progress.
        allow: What may run; `None` is anything. A command that no rule matches is refused.

    Raises:
        Failure: it could not be started, or ended otherwise than with exit status 0; with what it
            printed, and `details` that say how: `exit_status`, `signal` or `timed_out`.
        InvalidValue: a variable cannot be.
        NotImplementedError: the platform has no process groups.
    """
    if not hasattr(os, "killpg"):
        raise NotImplementedError(
            "run_command needs process groups, which this platform has not; run it on Linux, or "
            "start the process yourself"
        )
    words = _checked(argv)
    if allow is not None and not any(rule.matches(words) for rule in allow):
        raise Failure.rejected("This command is not among those that are allowed here.")
    seen = _environment(env or {}, inherit)
    printed = Printed(limits.output_bytes, context)
    with anyio.move_on_after(limits.seconds):
        executable = await anyio.to_thread.run_sync(_found, words[0], Path(cwd), seen.get("PATH"))
        process = await _at_the_gate([executable, *words], cwd, seen)
        running = _Running(process, printed, limits.grace)
        status = await running.to_its_end(words, context)
        return _result(status, printed.text)
    said = f"It was stopped after {limits.seconds:g} s.\n{printed.text}".rstrip()
    raise Failure(said, details={"timed_out": True})


def _checked(argv: object) -> list[str]:
    """Return the words of a command that a system can take."""
    words = words_of(argv)
    if not words or not words[0]:
        raise Failure(
            "A command is a list of texts: the executable, then each argument as one text; "
            "no shell reads it."
        )
    if any("\0" in word for word in words):
        raise Failure("A command cannot carry a null character.")
    with suppress(UnicodeEncodeError):
        "".join(words).encode()
        return words
    raise Failure("A command cannot carry half a character (a lone surrogate).")


def _environment(env: Variables, inherit: Iterable[str]) -> dict[str, str]:
    """Return the variables that the command sees."""
    if isinstance(inherit, str):
        raise InvalidValue("inherit is a list of names; put the one name into brackets")
    ours = {n: os.environ[n] for n in (*ENVIRONMENT, *inherit) if n in os.environ}
    given = {n: v.reveal() if isinstance(v, Secret) else v for n, v in env.items()}
    for name, value in given.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise InvalidValue("the name of a variable is a text without = and null characters")
        if not isinstance(value, str) or "\0" in value:
            raise InvalidValue(f"the variable {name} is a text without null characters")
    seen = {**ours, **given}
    if "PATH" in seen:
        seen["PATH"] = os.pathsep.join(filter(os.path.isabs, seen["PATH"].split(os.pathsep)))
    return seen


def _found(name: str, directory: Path, path: str | None) -> str:
    """Return the path of an executable."""
    if os.sep in name:
        found = shutil.which(str(directory.absolute() / name))
    else:
        found = shutil.which(name, path=os.defpath if path is None else path)
    if found is None:
        raise Failure(f"there is no command `{one_line(name, 60)}` here; no shell reads the list")
    return found


def _result(status: int, text: str) -> Result:
    """Return what a command that ended well printed."""
    if status == 0:
        return Result((Text(text or "It printed nothing."),))
    how = f"with exit status {status}" if status > 0 else f"by signal {-status}"
    details = {"exit_status": status} if status > 0 else {"signal": -status}
    raise Failure(f"It ended {how}.\n{text}".rstrip(), details=details)


_REST: Final = 2.0
"""Seconds for what is left in the pipe when all who could print are gone."""

_GATE = """
import os, signal, sys

if os.read(0, 1):
    for changed in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and what we run inherits it
        signal.signal(changed, signal.SIG_DFL)
    try:
        os.execv(sys.argv[1], sys.argv[2:])
    except OSError as error:
        sys.exit(f"{sys.argv[2]}: {error.strerror}")
"""


async def _at_the_gate(
    command: Sequence[str], directory: str | os.PathLike[str], environment: dict[str, str]
) -> Process:
    """Start the leader of a process group of its own, which will become the command."""
    try:
        return await anyio.open_process(
            [sys.executable, "-I", "-S", "-c", _GATE, *command],
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        long = error.errno == errno.E2BIG
        reason = "it is too long" if long else "its directory cannot be entered"
        raise Failure(f"The command could not be started: {reason}.", cause=error) from error


class _Running:
    """A command from its gate to its end."""

    def __init__(self, process: Process, printed: Printed, grace: float) -> None:
        self._process = process
        self._printed = printed
        self._grace = grace
        self._reading = anyio.CancelScope(shield=True)
        self._read = anyio.Event()

    async def to_its_end(self, words: list[str], context: Context | None) -> int:
        """Put the group on record, let it run, and return its exit status; nothing is left."""
        try:
            if context is not None:
                pid = self._process.pid
                await context.record(NAMESPACE, {"pgid": pid, "command": words, **told(pid)})
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep_reading)
                try:
                    await self._open_gate()
                    await self._process.wait()
                finally:
                    await self._stop()
            return await self._process.wait()
        finally:
            if self._process.returncode is None:
                self._signal(signal.SIGKILL)
            with anyio.CancelScope(shield=True):
                await self._process.aclose()

    async def _keep_reading(self) -> None:
        """Read also while it is being stopped: who cannot print cannot end in good order."""
        with self._reading:
            await self._printed.read(cast("ByteReceiveStream", self._process.stdout))
        self._read.set()

    async def _open_gate(self) -> None:
        gate = cast("ByteSendStream", self._process.stdin)
        with suppress(anyio.BrokenResourceError):  # it was killed at its gate
            await gate.send(b"\n")
        await gate.aclose()

    async def _stop(self) -> None:
        """Ask the group to end, make it end, and read what is left of its output."""
        try:
            with anyio.move_on_after(self._grace, shield=True):
                if self._process.returncode is None:
                    self._signal(signal.SIGTERM)
                    await self._process.wait()
                    await self._read.wait()  # its children, as long as they hold its output
        finally:
            self._signal(signal.SIGKILL)
            # Who left the group may hold the output open for ever.
            with anyio.move_on_after(_REST, shield=True):
                await self._read.wait()
            self._reading.cancel()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
