"""Every transport in both eras: what a tool gives arrives, and what we do reaches the server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypedDict, Unpack

import anyio
import pytest

from ferrule import (
    Accepted,
    Audio,
    Completed,
    Context,
    Declined,
    Executor,
    Failed,
    File,
    Image,
    Link,
    Outcome,
    Progress,
    Question,
    Record,
    Registry,
    Rejected,
    Result,
    Text,
    ToolCall,
    Unknown,
)
from ferrule.mcp import Remote, connect
from mcp_lab import BYTES, FORM

# The SDK leaves generators of its HTTP client to the garbage collector, which trio warns of.
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:Async generator")]


class Options(TypedDict, total=False):
    """What `connect` is given beside the target."""

    grace: float
    timeout: float


@asynccontextmanager
async def connected(
    target: object, **options: Unpack[Options]
) -> AsyncIterator[tuple[Remote, Registry]]:
    """Connect, and register what is offered."""
    remote = connect(target, **options)
    async with Registry([remote]) as registry:
        yield remote, registry


async def run(registry: Registry, name: str, /, **arguments: object) -> Outcome:
    """Run one call."""
    [outcome] = await Executor(registry).run([ToolCall.of(name, arguments)])
    return outcome


async def events(registry: Registry) -> list[str]:
    """Ask the server what happened to it."""
    outcome = await run(registry, "events")
    assert isinstance(outcome, Completed)
    content: Any = outcome.result.structured_content
    return list(content["events"])


async def has_event(registry: Registry, event: str) -> bool:
    """Wait until the server has noted something, at most for a few seconds."""
    with anyio.move_on_after(10):
        while event not in await events(registry):  # noqa: ASYNC110  # it is another process
            await anyio.sleep(0.01)
        return True
    return False


async def test_every_tool_of_every_page_is_listed_and_called(target: object) -> None:
    """MC-07, AT-87, MCP-1: description, schema and title as they were; a call gives its result."""
    async with connected(target) as (remote, registry):
        definition = {d.name: d for d in registry.definitions()}["add"]
        outcome = await run(registry, "add", a=1, b=2**60)

        assert len(remote.tools) > 15
        assert remote.quarantined == ()
        assert (definition.title, definition.description) == ("Adder", "Add two integers.")
        assert definition.input_schema["additionalProperties"] is False
        assert outcome == Completed(
            Result(
                (Text(str(1 + 2**60)),),
                structured_content={"sum": 1 + 2**60},
                details={"_meta": {"lab.example/trace": "t1"}},
            )
        )


async def test_arguments_are_checked_here_before_they_are_sent(target: object) -> None:
    """ADM-2, AT-90: a wrong argument never reaches the server; null does, and every digit."""
    async with connected(target) as (_, registry):
        before = len(await events(registry))
        refused = await run(registry, "add", a="x", c=1)
        sent: dict[str, Any] = {"none": None, "list": [None, {"deep": None}], "big": 2**63}
        echoed = await run(registry, "echo", **sent)

        assert isinstance(refused, Rejected)
        assert refused.kind == "invalid_arguments"
        assert (await events(registry))[before:].count("call add") == 0
        assert isinstance(echoed, Completed)
        content: Any = echoed.result.structured_content
        assert content["arguments"] == sent


async def test_every_kind_of_content_arrives_as_ours(target: object) -> None:
    """AT-90, AT-99, AT-100: each kind stays what it is; texts alone are one text."""
    async with connected(target) as (_, registry):
        kinds, lines = await run(registry, "kinds"), await run(registry, "lines")

        assert isinstance(kinds, Completed)
        assert kinds.result.content == (
            Text("t"),
            Image(data=BYTES, mime_type="image/png"),
            Audio(data=BYTES, mime_type="audio/wav"),
            Text("hello"),
            File(data=BYTES, name="lab://b.pdf", mime_type="application/pdf"),
            Link("file:///x.rs", name="x.rs", mime_type="text/x-rust"),
        )
        assert lines.text == "one\ntwo"


async def test_an_error_of_a_tool_is_a_failure_with_its_text_alone(target: object) -> None:
    """AT-90, AT-100, FAIL-6: `isError` is a failure; what is refused did not run."""
    async with connected(target) as (_, registry):
        texts = [(await run(registry, name)).text for name in ("fail", "silent", "refuse")]
        outcome = await run(registry, "fail")

        assert isinstance(outcome, Failed)
        assert texts == [
            "Error: the file is locked",
            "Error: tool call failed",
            "Error: the server did not run the call: no such row",
        ]


async def test_a_crash_at_the_server_may_have_had_an_effect_and_leaks_nothing(
    target: object,
) -> None:
    """FAIL-4, FAIL-6, SE-10: nobody knows what it did; the model reads a reference."""
    async with connected(target) as (_, registry):
        outcome = await run(registry, "boom")

        assert isinstance(outcome, Unknown)
        assert outcome.reason == "raised"
        assert "secret" not in outcome.text


async def test_a_result_that_breaks_its_schema_is_kept_as_evidence(target: object) -> None:
    """FAIL-6, python-sdk#2626: nothing is thrown away; and the next call works."""
    async with connected(target) as (_, registry):
        outcome = await run(registry, "mismatch")
        after = await run(registry, "add", a=1, b=1)

        assert isinstance(outcome, Unknown)
        assert outcome.reason == "bad_result"
        assert outcome.evidence == Result((Text("kept"),), structured_content={"n": "none"})
        assert after.text == "2"


async def test_structured_content_that_is_no_object(target: object, era: str) -> None:
    """MCP-1: any JSON from 2026-07-28 on; before, a server of the SDK cannot even say it."""
    async with connected(target) as (_, registry):
        outcome = await run(registry, "scalar")

        if era == "legacy":
            assert isinstance(outcome, Unknown)
        else:
            assert isinstance(outcome, Completed)
            assert outcome.result.structured_content == [5, 2**53 + 1, 0.5]
            assert outcome.text == "five"


async def test_progress_arrives_in_order_and_before_the_result(target: object) -> None:
    """AT-91, EXE-8: each number and message, none after the end."""
    seen: list[Progress] = []
    async with connected(target) as (_, registry):
        binding = registry.resolve("steps")
        assert binding is not None
        call = ToolCall.of("steps")
        context = Context.of(call, on_progress=lambda _, progress: seen.append(progress))
        result = await binding.call(binding.contract.admit(call), context)

        assert isinstance(result, Result)
        assert result.text == "done"
        assert seen == [
            Progress(progress=10 * step, total=30, message=f"step {step}") for step in (1, 2, 3)
        ]


@pytest.mark.parametrize("name", ["wait", "wait_thread"])
async def test_a_cancelled_call_is_cancelled_at_the_server(target: object, name: str) -> None:
    """CLO-2, CA-01, AT-139: we return at once, and the server hears of it."""
    async with connected(target) as (_, registry):
        async with Executor(registry).batch([ToolCall.of(name)]) as batch:
            await anext(aiter(batch))
            assert await has_event(registry, f"call {name}")
        [outcome] = batch.outcomes

        assert isinstance(outcome, Unknown)
        assert outcome.reason == "cancelled"
        assert await has_event(registry, f"cancelled {name}")


async def test_a_call_that_takes_too_long_is_cancelled_at_the_server(target: object) -> None:
    """EXE-7, PR-04: reported at its limit; the server stops."""
    async with connected(target, timeout=0.2) as (_, registry):
        outcome = await run(registry, "wait")

        assert isinstance(outcome, Unknown)
        assert outcome.reason == "timed_out"
        assert await has_event(registry, "cancelled wait")


async def test_a_question_is_put_to_whoever_the_call_may_ask(target: object) -> None:
    """ASK-1, AT-130, AT-134: message and form as they were; what is left out has its default."""
    asked: list[tuple[str, Question]] = []

    async def asker(context: Context, question: Question) -> Accepted[Any] | Declined:
        asked.append((context.call_id, question))
        return Accepted({"name": "Ada"})

    async with connected(target) as (_, registry):
        [outcome] = await Executor(registry, asker=asker).run([ToolCall.of("ask", id="c1")])

        assert outcome.text == "accept [('name', 'Ada'), ('times', 3)]"
        assert asked == [("c1", Question("Who is it?", schema=FORM))]


async def test_a_question_with_an_address(target: object) -> None:
    """AT-136: nobody fills in a form; that they went is the answer."""
    asked: list[Question] = []

    async def asker(_: Context, question: Question) -> Accepted[Any] | Declined:
        asked.append(question)
        return Accepted(None)

    async with connected(target) as (_, registry):
        [outcome] = await Executor(registry, asker=asker).run([ToolCall.of("ask_url")])

        assert outcome.text == "accept"
        assert asked == [Question("Pay", url="https://example.com/pay")]


@pytest.mark.parametrize("action", ["decline", "cancel", "nobody"])
async def test_a_question_that_nobody_answers(target: object, action: str) -> None:
    """ASK-1, AT-131: a no is a no; without an asker the server hears that nobody chose."""

    async def asker(_: Context, __: Question) -> Accepted[Any] | Declined:
        return Declined("decline" if action == "decline" else "cancel")

    async with connected(target) as (_, registry):
        executor = Executor(registry, asker=None if action == "nobody" else asker)
        [outcome] = await executor.run([ToolCall.of("ask")])

        assert outcome.text == f"{'cancel' if action == 'nobody' else action} []"


async def test_a_tool_that_brings_another_returns_when_it_is_there(target: object) -> None:
    """AT-92, AT-95, REG-1: the registry has it when the call is over, in both eras."""
    async with connected(target, grace=5.0) as (remote, registry):
        before = set(registry.names)
        outcome = await run(registry, "grow")
        await remote.settled()
        [new] = set(registry.names) - before

        assert outcome.text == "grown"
        assert (await run(registry, new)).text == "new"


@pytest.mark.parametrize("failing", [False, True])
async def test_a_record_comes_back_as_it_was(target: object, failing: bool) -> None:
    """REC-1, AT-102: on success and on failure, every digit; the recorder has it."""
    kept: list[Record] = []

    async def recorder(_: Context, record: Record) -> None:
        kept.append(record)

    async with connected(target) as (_, registry):
        call = ToolCall.of("record", {"fail": failing})
        [outcome] = await Executor(registry, recorder=recorder).run([call])

        assert outcome.is_error is failing
        assert kept == [Record("lab:row", data={"b": 2**53 + 1, "a": [1, 2.5]})]


async def test_who_the_server_is(target: object) -> None:
    """AT-103: name, version and instructions, from either handshake."""
    async with connected(target) as (remote, _):
        assert remote.server_info == {"name": "lab", "version": "1.2"}
        assert remote.instructions == "Use it wisely."
