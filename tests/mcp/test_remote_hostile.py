"""Servers that misbehave: what they do is bounded and named, and everything else goes on."""

import json
import os
import sys
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import pytest

from ferrule import (
    Accepted,
    Completed,
    Context,
    Declined,
    Executor,
    Image,
    Outcome,
    Progress,
    Question,
    Registry,
    Rejected,
    Result,
    Text,
    ToolCall,
    TraitFields,
    Traits,
    Unknown,
)
from ferrule.mcp import Command, Remote, connect
from ferrule.mcp import _listing as listing
from ferrule.mcp import _session as session

pytestmark = pytest.mark.anyio

FAKE = str(Path(__file__).with_name("fake.py"))


class Options(TypedDict, total=False):
    """What `connect` is given beside the target."""

    prefix: str
    rename: dict[str, str]
    traits: dict[str, TraitFields | Traits]


def fake(*modes: str, **options: Unpack[Options]) -> Remote:
    """Return a server that misbehaves, not yet connected."""
    return connect(Command((sys.executable, FAKE, *modes), era="legacy"), **options)


async def run(registry: Registry, *names: str) -> list[Outcome]:
    """Run calls one after another, as each is a misdeed of one server."""
    executor = Executor(registry, sequential=True)
    return await executor.run([ToolCall.of(name) for name in names])


# ---- lists ---------------------------------------------------------------------------------------


async def test_every_page_is_read_and_an_empty_cursor_is_one() -> None:
    """MC-07: a cursor is opaque; the empty one is passed on once."""
    async with fake("pages") as remote:
        assert [tool.definition.name for tool in remote.tools] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("same-cursor", "repeats a cursor"),
        ("two-cursors", "repeats a cursor"),
        ("empty-cursor", "repeats a cursor"),
        ("for-ever", "more than 1000 pages"),
        ("many", "more than 10000 tools"),
        ("no-list", "is no list"),
        ("die-list", "ended with 4"),
    ],
)
async def test_a_list_that_is_none_is_an_error_that_says_why(mode: str, said: str) -> None:
    """MC-07: bounded, and named."""
    with pytest.raises(Exception, match=said):
        await fake(mode).__aenter__()


async def test_a_list_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """MC-07: a time limit covers the whole traversal."""
    monkeypatch.setattr(listing, "SECONDS", 0.3)
    with pytest.raises(Exception, match=r"took longer than 0\.3 s"):
        await fake("silent-list").__aenter__()


async def test_a_bad_tool_is_in_quarantine_by_name_and_costs_no_other() -> None:
    """MC-01, MC-02, MC-05, SE-07, claude-code#88049: the reasons; nothing is fetched."""
    async with fake("odd") as remote:
        reasons = {bad.name: bad.reason for bad in remote.quarantined}
        usable = {tool.definition.name: tool.definition.input_schema for tool in remote.tools}

        assert list(usable) == ["fine", "nothing", "null", "untyped", "bool", "hints"]
        assert usable["nothing"] == {"type": "object", "properties": {}, "required": []}
        assert usable["untyped"]["type"] == "object"
        assert all(0 < len(reason) <= 400 for reason in reasons.values())
        for name, part in EXPECTED.items():
            assert part in reasons[name], (name, reasons[name])
        assert len(remote.quarantined) == len(EXPECTED) + 1


EXPECTED = {
    "no type": "name",
    "tools[2]": "no name",
    "boolean": "no object",
    "list": '"type": "object"',
    "required": "required",
    "properties": "properties",
    "fine": "twice",
    "far": "ref",
    "file": "ref",
    "dynamic": "ref",
    "round": "ref",
    "out": "type",
    "text": "description",
    "task": "task",
    "tools[20]": "no name",
}


async def test_a_name_that_no_tool_may_have_is_renamed() -> None:
    """DEF-1, AT-88: renaming is the way out; a prefix stands before the others."""
    async with fake("odd", prefix="x", rename={"no type": "typed"}) as remote:
        names = [tool.definition.name for tool in remote.tools]
        async with Registry(remote.tools) as registry:
            [outcome] = await run(registry, "typed")

        assert names[:2] == ["x__fine", "typed"]
        assert outcome.text == "no type"


async def test_hints_are_three_valued_and_what_the_host_says_stands_above() -> None:
    """AT-101, AUT-3, AT-88: unstated is not false; nonsense is unstated."""
    said: dict[str, TraitFields | Traits] = {
        "hints": {"read_only": True, "uses": "disk"},
        "x__fine": {"sequential": True},
    }
    async with fake("odd", prefix="x", traits=said) as remote:
        traits = {tool.definition.name: tool.traits for tool in remote.tools}

        assert traits["x__hints"].hints == {"readOnlyHint": True, "destructiveHint": False}
        assert traits["x__hints"].uses == ("disk",)
        assert traits["x__fine"].hints == {}
        assert traits["x__fine"].sequential


# ---- answers -------------------------------------------------------------------------------------


async def test_what_cannot_be_used_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """MC-07: by its name, its server and the reason; a listing that says the same tells nothing."""
    async with fake("odd") as remote:
        told = [one.getMessage() for one in caplog.records]
        await remote.refresh()

    assert len(told) == len(remote.quarantined) == len(caplog.records)
    assert told[0].startswith(f"`no type` of mcp:{sys.executable}")
    assert told[0].endswith('"no type" is not; give it another with `rename`')


async def test_lines_that_are_no_messages_are_told_a_few_times(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """MS-05: a program that is no server, or talks without end, fills nobody's log."""
    async with fake("pages", "chatter") as remote:
        assert len(remote.tools) == 3

    assert len(caplog.records) == 10
    assert caplog.records[-1].getMessage().endswith("further ones are not told")


async def test_an_answer_that_can_be_read_is_read() -> None:
    """MC-11, AT-100: no content, a kind that nobody knows, what lacks a type, null."""
    names = ["nocontent", "empty", "video", "extra", "nomime", "nullerror", "noise", "twice"]
    async with Registry([fake()]) as registry:
        outcomes = await run(registry, *names, "flood", "nothing")

    results = [o.result for o in outcomes if isinstance(o, Completed)]
    assert len(results) == len(outcomes)
    assert results[0] == Result(structured_content={"a": 1})
    assert results[2].content == (Text('{"type": "video", "data": "x"}'),)
    assert results[4].content == (Image(data=b"hi", mime_type="application/octet-stream"),)
    assert [o.text for o in outcomes[5:]] == ["t", "", "", "through", ""]


async def test_an_answer_that_is_nonsense_is_that_calls_error() -> None:
    """MC-11, FAIL-6: what could be read is its evidence; the connection goes on."""
    names = ["base64", "neither", "nolist", "notext", "noblock", "maybe", "number", "array"]
    async with Registry([fake()]) as registry:
        outcomes = await run(registry, *names, "custom", "unnamed", "extra")

    reasons = [o.reason for o in outcomes if isinstance(o, Unknown)]
    assert reasons == ["bad_result"] * 6 + ["raised"] * 4
    assert outcomes[-1].text == "t"
    first = outcomes[0]
    assert isinstance(first, Unknown)
    assert first.evidence == Result((Text("seen"),))
    assert all("secret" not in outcome.text for outcome in outcomes)


@pytest.mark.parametrize("name", ["die", "half", "deaf", "long"])
async def test_a_server_that_is_lost_in_a_call_ends_that_call_and_is_started_again(
    name: str,
) -> None:
    """MC-08, MC-11, CA-05: what may have run is unknown, and is not sent twice."""
    async with Registry([fake()]) as registry:
        lost, after = await run(registry, name, "extra")

    assert isinstance(lost, Unknown)
    assert lost.reason == "raised"
    assert after.text == "t"


async def test_progress_that_is_none_is_dropped() -> None:
    """EXE-8: not a number, not finite, backwards, of a call that nobody knows."""
    seen: list[Progress] = []
    async with fake() as remote, Registry(remote.tools) as registry:
        binding = registry.resolve("progress")
        assert binding is not None
        call = ToolCall.of("progress")
        context = Context.of(call, on_progress=lambda _, progress: seen.append(progress))
        await binding.call(binding.contract.admit(call), context)

    assert [update.progress for update in seen] == [5, 6]
    assert {(update.total, update.message) for update in seen} == {(None, None)}


async def test_a_question_after_the_end_is_for_nobody() -> None:
    """AT-138: it is cancelled, unasked; nobody else is asked in its place."""
    asked: list[Question] = []

    async def asker(_: Context, question: Question) -> Accepted[Any] | Declined:
        asked.append(question)
        return Accepted({})

    async with Registry([remote := fake()]) as registry:
        executor = Executor(registry, asker=asker, sequential=True)
        await executor.run([ToolCall.of("late")])
        await remote.refresh()  # Answered after the question was, as one stream carries both.
        outcomes = await executor.run([ToolCall.of("heard"), ToolCall.of("ask")])

    assert json.loads(outcomes[0].text) == ["cancel"]
    assert outcomes[1].text == "accept"
    assert [question.message for question in asked] == ["Well?"]


async def test_two_calls_in_flight_and_nobody_knows_whose_question_it_is() -> None:
    """AT-133: over stdio before 2026-07-28 both hear that nobody chose."""
    asked: list[Question] = []

    async def asker(_: Context, question: Question) -> Accepted[Any] | Declined:
        asked.append(question)
        return Accepted({})

    async with Registry([fake()]) as registry:
        executor = Executor(registry, asker=asker)
        calls = [ToolCall.of("hang"), ToolCall.of("ask")]
        async with executor.batch(calls) as batch:
            async for event in batch:
                if type(event).__name__ == "Finished":
                    break
        outcomes = batch.outcomes

    assert outcomes[1].text == "cancel"
    assert asked == []


# ---- starting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_server_that_does_not_start_says_why(
    monkeypatch: pytest.MonkeyPatch, era: Literal["auto", "legacy"]
) -> None:
    """MC-08, SE-17: its code, what it wrote, and which variable it may have missed."""
    monkeypatch.setenv("LAB_SECRET_NAME", "XYZ")
    remote = connect(Command((sys.executable, FAKE, "die-start"), era=era))
    with pytest.raises(Exception, match="ended with 7") as caught:
        await remote.__aenter__()

    assert "it wrote: cannot start: LAB_SECRET_NAME is not set" in str(caught.value)
    assert "it names LAB_SECRET_NAME, set here and not passed on" in str(caught.value)
    assert "XYZ" not in str(caught.value)


async def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """MC-08: after a time, by name."""
    monkeypatch.setattr(session, "DIAL_SECONDS", 0.5)
    with pytest.raises(Exception, match=r"did not answer within 0\.5 s"):
        await fake("silent-start").__aenter__()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ((sys.executable, FAKE, "nonsense-start"), "protocolVersion"),
        (("/nowhere/at/all",), "/nowhere/at/all"),
        ((sys.executable, "-c", "print('hello')"), "ended with 0"),
    ],
)
async def test_what_is_no_server_is_named(command: tuple[str, ...], said: str) -> None:
    """MC-08: a handshake of nonsense, a program that is not there, one that says something else."""
    with pytest.raises(Exception, match=said):
        await connect(Command(command, era="legacy")).__aenter__()


async def test_a_child_sees_a_small_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """SE-17: the few names, what is inherited by name, what is given; no key of ours."""
    monkeypatch.setenv("API_KEY", "XYZ")
    monkeypatch.setenv("VIRTUAL_ENV", "/venv")
    show = "import os, sys; sys.stderr.write(','.join(sorted(os.environ))); sys.exit(1)"
    for env in ((), ["VIRTUAL_ENV"], {"TOKEN": "t"}):
        remote = connect([sys.executable, "-c", show], env=env)
        with pytest.raises(Exception, match="it wrote") as caught:
            await remote.__aenter__()
        names = str(caught.value).partition("it wrote: ")[2].partition(";")[0].split(",")

        assert "PATH" in names
        assert "API_KEY" not in names
        assert ("VIRTUAL_ENV" in names) == (env == ["VIRTUAL_ENV"])
        assert ("TOKEN" in names) == isinstance(env, dict)
        assert set(names) <= {*os.environ, "TOKEN"}


async def test_an_unknown_tool_of_ours_is_never_sent() -> None:
    """ADM-5: what is in quarantine is no tool."""
    async with Registry([fake("odd")]) as registry:
        [outcome] = await run(registry, "far")

    assert isinstance(outcome, Rejected)
    assert outcome.kind == "unknown_tool"
