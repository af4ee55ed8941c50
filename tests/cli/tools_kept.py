"""Tools for calls that are kept: each notes in `begun.log` that it began; gates hold some back."""

import os
from typing import Literal

import anyio

from ferrule import (
    Ask,
    Authorization,
    Context,
    Decision,
    InputRequest,
    Registry,
    Result,
    Tool,
    tool,
)
from ferrule.helpers import run_command


def note(line: str) -> None:
    """Write that a tool began, so that a kill loses nothing of it."""
    descriptor = os.open("begun.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


async def passed(gate: str, context: Context) -> str:
    """Wait until a file is there."""
    note(f"{context.tool} {context.idempotency_key}")
    context.progress(message=f"at {gate}")
    while not await anyio.Path(gate).exists():  # noqa: ASYNC110  # another process opens it
        await anyio.sleep(0.01)
    return f"{context.tool} passed {gate}"


@tool
async def refund(order: str, amount: int) -> str:
    """Pay an amount back; a person is asked above 100."""
    note(f"refund {order}")
    return f"refunded {amount} for {order}"


@tool(replay="safe")
async def safely(gate: str, context: Context) -> str:
    """Wait at a gate; a second run does no harm."""
    return await passed(gate, context)


@tool(replay="keyed")
async def keyed(gate: str, context: Context) -> str:
    """Wait at a gate; a second run has the same key."""
    return await passed(gate, context)


@tool(uses="till")
async def once(gate: str, context: Context) -> str:
    """Wait at a gate; nobody knows what a second run would do."""
    await context.record("shop:paying", {"gate": gate, "to": "\x1b[31mred"})
    return await passed(gate, context)


@tool(uses="till")
async def after(order: str) -> str:
    """Begin when what was called before with the till has ended."""
    note("after")
    return f"counted {order}"


@tool
async def commands(context: Context) -> Result:
    """Run a program that does not end by itself."""
    script = "exec 9>alive; echo begun; exec sleep 1000"
    return await run_command(["sh", "-c", script], cwd=".", context=context)


@tool
async def breaks() -> str:
    """Fail, and nobody knows what happened."""
    raise ValueError("a private sentence")


@tool
async def interrupts() -> str:
    """Raise what ends a program."""
    raise KeyboardInterrupt


@tool
async def chooses(what: Literal["word", "colour", "sum", "person"]) -> str | InputRequest:
    """Ask for something, and say what it was."""
    if what == "word":
        return worded.ask("Which word?\u202e", "a secret state")
    if what == "colour":
        return coloured.ask("Which colour?", "a secret state")
    if what == "sum":
        return summed.ask("How much?", "a secret state")
    return named.ask("Who?", "a secret state")


@chooses.step
async def worded(state: str, answer: str) -> str:
    """Take a text."""
    return f"the word is {answer}"


@chooses.step
async def coloured(state: str, answer: Literal["red", "blue"]) -> str:
    """Take one of two."""
    return f"the colour is {answer}"


@chooses.step
async def summed(state: str, answer: int) -> str:
    """Take a number."""
    return f"the sum is {answer}"


@chooses.step
async def named(state: str, answer: dict[str, str]) -> str:
    """Take an object."""
    return f"the person is {answer['name']}"


def policy(call: Authorization) -> Decision:
    """Ask a person about large amounts."""
    amount = call.arguments.get("amount", 0)
    if isinstance(amount, int) and amount > 100:
        return Ask(f"Refund {amount} for {call.arguments['order']}?")
    return True


tools: list[Tool] = [refund, safely, keyed, once, after, commands, breaks, interrupts, chooses]
registry = Registry(tools).guarded(policy)
