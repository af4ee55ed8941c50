"""`@tool` keeps a function's parameters and return type, and matches are exhaustive."""

from typing import assert_never, assert_type

from ferrule import (
    Batch,
    Cancelled,
    Completed,
    Event,
    Executor,
    Failed,
    Finished,
    FunctionTool,
    Outcome,
    Progressed,
    Rejected,
    Started,
    Suspended,
    ToolCall,
    Unknown,
    tool,
)


@tool
async def add(a: int, b: int = 2) -> int:
    """Add two integers."""
    return a + b


@tool(name="say", read_only=True, replay="safe", failures=(OSError,))
def shout(text: str, *, times: int = 1) -> str:
    """Say it louder."""
    return text.upper() * times


assert_type(shout("a", times=2), str)
shout(1)  # error: arg-type | reportArgumentType
shout("a", 2)  # error: call-arg | reportCallIssue | misc | Too many
shout("a", loud=True)  # error: call-arg | reportCallIssue


async def awaits_what_the_function_gives() -> None:
    """Await the coroutine that the decorated function returns."""
    assert_type(await add(1, b=3), int)
    await add("1")  # error: arg-type | reportArgumentType


@tool(read_onyl=True)  # error: call-overload | call-arg | reportCallIssue
def misspelt(a: int) -> int:
    """Never made."""
    return a


def as_a_tool(one: FunctionTool[..., object]) -> Executor:
    """Take any tool that was made of a function."""
    return Executor([one, add, shout])


def reads_every_ending(outcome: Outcome) -> str:
    """Name each of the six endings; leaving one out would not type-check."""
    match outcome:
        case Completed(result):
            return result.text
        case Failed(failure):
            return str(failure)
        case Rejected(kind):
            return kind
        case Suspended(request):
            return request.message
        case Cancelled() | Unknown():
            return outcome.reason
        case _:
            assert_never(outcome)


def reads_every_event(event: Event) -> int:
    """Name each of the three events."""
    match event:
        case Started() | Progressed():
            return event.index
        case Finished():
            return len(event.outcome.text)
        case _:
            assert_never(event)


async def runs(executor: Executor) -> None:
    """Run a batch both ways."""
    calls = [ToolCall.of("add", {"a": 1})]
    assert_type(await executor.run(calls), list[Outcome])
    async with executor.batch(calls) as batch:
        assert_type(batch, Batch)
        async for event in batch:
            assert_type(event, Event)
