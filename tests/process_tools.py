"""Tools that run in processes of their own: a process finds them in a module, by name."""

import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Le

from ferrule import (
    CallError,
    Context,
    Failure,
    Image,
    InputRequest,
    Leniency,
    Link,
    RawJSON,
    Record,
    Result,
    Text,
    Wrapper,
    tool,
)

LONG = 1000.0
"""Seconds that no test waits."""


@dataclass
class Place:
    """Somewhere."""

    city: str
    since: date = date(2000, 1, 1)


@tool(run_in="process")
def visit(place: Place, *rest: int, days: Annotated[int, Le(7)] = 3) -> dict[str, object]:
    """Say what arrived, and where."""
    print("this would break the line to the parent")  # noqa: T201  # what is tested
    return {
        "pid": os.getpid(),
        "group": os.getpgid(0),
        "place": f"{type(place).__name__} {place.city} {place.since.year} {rest} {days}",
        "input": sys.stdin.read(),
        "call": Context.current().call_id,
        "variable": os.environ.get("FERRULE_TEST"),
        "main": threading.current_thread() is threading.main_thread(),
        "path": sys.path,
        "arguments": sys.argv,
    }


renamed = Wrapper(visit, name="travel")


@tool(run_in="process", form="strict")
def strict(name: str, count: int = 5) -> str:
    """Say what arrived."""
    return f"{name} {count}"


@tool(run_in="process", leniency=Leniency.COMMON)
def lenient(count: int) -> int:
    """Say what arrived."""
    return count


@tool(run_in="process")
def length(text: str) -> int:
    """Say how long a text is."""
    return len(text)


Kind = Literal[
    "text", "nothing", "picture", "raw", "wide", "details", "question", "end", "deep", "huge",
    "not a number", "babble", "flood", "coroutine",
]  # fmt: skip


@tool(run_in="process")
def give(kind: Kind) -> object:
    """Give something back."""
    return _gifts(kind)


def _gifts(kind: Kind) -> object:
    match kind:
        case "text":
            return "grüße\n\u2028"
        case "nothing":
            return None
        case "picture":
            return [Text("see"), Image(data=b"\x00\xff", mime_type="image/png")]
        case "raw":
            return Result((Link("https://example.org"),), structured_content=RawJSON("[1.0, 2]"))
        case "wide":
            return {"wide": 2**70, "float": 1e300}
        case "details":
            return Result((Text("kept"),), details=Record("test:kept", [1]), terminate=True)
        case "question":
            return InputRequest("really?", schema={"type": "boolean"}, state={"n": 1})
        case "not a number":
            return float("nan")
        case _:
            return _odd(kind)


def _odd(kind: Kind) -> object:
    if kind == "huge":
        return "x" * 10_000
    if kind == "deep":
        nested: object = []
        for _ in range(200):
            nested = [nested]
        return {"nested": nested}
    if kind == "coroutine":
        return (number for number in range(3))
    pipe = _pipe()
    if kind == "babble":
        os.write(pipe, b"what is no answer\n")
    else:
        os.write(pipe, b"x" * 60_000)
        os.write(pipe, b"x" * 60_000)
    threading.Event().wait(LONG)
    return None


def _pipe() -> int:
    """Find what only our own code should write to."""
    for number in range(3, 20):
        try:
            os.write(number, b"")
        except OSError:
            continue
        return number
    raise AssertionError("there is no pipe")


class OwnError(Exception):
    """An error of the tool's own."""


@tool(run_in="process", failures=(OwnError,))
def fail(how: str, context: Context) -> str:
    """End badly."""
    match how:
        case "failure":
            private = OSError("private cause")
            raise Failure("It is locked.", details={"lock": 7}, terminate=True) from private
        case "bare":
            raise Failure("No.")
        case "rejected":
            raise Failure.rejected("Not you.", cause=OSError("private cause"))
        case "own":
            raise OwnError("There is no such thing.")
        case "wrapped":
            raise ValueError("private") from OwnError("There is no such thing.")
        case "private":
            raise ValueError("private words")
        case "evidence":
            raise CallError(Result((Text("half"),))) from OSError("private words")
        case "record":
            context.record_blocking("test:note")
        case "ask":
            context.ask_blocking("really?")
        case _:
            _die(how)
    raise AssertionError(how)


def _die(how: str) -> None:
    if how == "exit":
        sys.exit(3)
    if how == "interrupt":
        raise KeyboardInterrupt
    if how.isdecimal():
        os._exit(int(how))
    if how == "fork":
        # What it forked holds no pipe of ours open.
        if os.fork() == 0:
            threading.Event().wait(LONG)
        os._exit(9)
    os.kill(os.getpid(), signal.Signals[how])
    threading.Event().wait(LONG)


@tool(run_in="process", replay="safe")
def safe() -> None:
    """Raise where nothing took effect."""
    raise ValueError("private words")


@tool(run_in="process")
def count(to: int, context: Context) -> str:
    """Count, and say how far it is."""
    for number in range(to + 1):
        context.progress(number, to, f"at {number}", Text(str(number)))
    return "done"


@tool(run_in="process")
def obedient(note: Path, context: Context) -> str:
    """Go on until told to stop, and leave a note."""
    context.progress(1)
    context.progress(2)
    pause = threading.Event()
    while not context.cancelled:
        pause.wait(0.001)
    note.write_text("put away")
    return "put away"


@tool(run_in="process")
def deaf(pipe: Path, context: Context, answers: bool = False, detached: bool = False) -> str:
    """Hold a pipe open, here and in a child of ours, and do not listen."""
    held = os.open(pipe, os.O_WRONLY)
    if detached:
        threading.Thread(target=threading.Event().wait, args=(LONG,)).start()
    else:
        subprocess.Popen(["sleep", str(LONG)], pass_fds=(held,), stdout=subprocess.DEVNULL)
    context.progress(1)
    if not answers:
        threading.Event().wait(LONG)
    return "answered"


def plain() -> None:
    """Stand where no tool is."""


hidden = tool(run_in="process")(plain)


@dataclass
class Letter:
    """A letter that waits."""

    to: str
    since: date


@tool(run_in="process")
def send(to: str) -> str | InputRequest:
    """Send a letter, if a person says so."""
    return signed.ask(f"Send it to {to}?", Letter(to, date(2026, 1, 2)))


@send.step
def signed(state: Letter, answer: str, context: Context) -> str | InputRequest:
    """Ask once more, and send."""
    if answer == "again":
        return signed.ask("Really?", Letter(state.to, date(2026, 1, 3)))
    return f"{answer} to {state.to} on {state.since.day} in leg {context.leg} by {os.getpid()}"
