"""
Faults that people reported of comparable projects, and what their peers did when they were tried.

The AP cases are reports about suspension and approval; B6 to B11 are probes that were run against
other frameworks, whose results the docstrings tell. Where the contract decides otherwise than a
case asked, the test says so. AP-07 is not here: standing grants are the host's policy; that a yes
serves one call only is held in test_durable_waits.py.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ferrule import (
    Ask,
    Authorization,
    Context,
    Decision,
    Failed,
    InputRequest,
    Registry,
    Rejected,
    Suspended,
    Tool,
    ToolCall,
    tool,
)
from ferrule.errors import AnswerRefused, JournalError, WaitClosed
from ferrule.ports import Inbox
from ferrule.runtime import SqliteInbox
from ferrule.runtime._file import MIGRATIONS
from homes import Doors, Home, SqliteHome, ask, at_rest, call, only_wait, seen, settled
from support import raw

pytestmark = pytest.mark.anyio


def asker(log: list[str]) -> Tool:
    """Return a tool that asks what it was given to ask, and tells both."""

    @tool(name="ask")
    async def asks(what: str) -> InputRequest:
        log.append(f"ask {what}")
        return told.ask(f"What is {what}?", what)

    @asks.step
    async def told(state: str, answer: str) -> str:
        log.append(f"told {state}")
        return f"{state}={answer}"

    return asks


def noted(name: str, log: list[str], result: Callable[[dict[str, object]], object]) -> Tool:
    """Return a tool that notes each run with its arguments."""

    def function(arguments: dict[str, object], _: Context) -> object:
        log.append(f"{name} {json.dumps(arguments)}")
        return result(arguments)

    return raw(name, function)


def gated(*tools: Tool, names: tuple[str, ...]) -> Registry:
    """Return the tools; a person is asked about those of these names."""

    def policy(asked: Authorization) -> Decision:
        return ask("May it?") if asked.definition.name in names else True

    return Registry(tools).guarded(policy)


async def by_call(inbox: Inbox) -> dict[str, str]:
    """Return the waits by the ids of their calls."""
    return {wait.call.id: wait.id for wait in await inbox.waits()}


# ---- reports -----------------------------------------------------------------------------------


async def test_ap_01_each_question_of_a_batch_has_an_id_of_its_own(home: Home) -> None:
    """AP-01, langchain-ai/langgraph#6626: answers go to the call that asked, in whatever order."""
    log: list[str] = []
    calls = [call("ask", "c1", what="a"), call("ask", "c2", what="b"), call("ask", "c3", what="a")]
    async with home.runtime([asker(log)]) as runtime:
        await at_rest(await runtime.submit(calls, batch_id="t1"))
        before = await by_call(runtime.inbox)
    inbox = home.inbox()
    assert await by_call(inbox) == before
    assert len(set(before.values())) == 3

    async with home.runtime([asker(log)]) as later:
        (batch,) = await later.recover()
        for call_id, answer in (("c2", "bee"), ("c3", "second")):
            await inbox.answer(before[call_id], answer, by="ann")
            assert call_id not in await by_call(inbox)
        first, second, third = await at_rest(batch)
        assert isinstance(first, Suspended)
        assert (second.text, third.text) == ("b=bee", "a=second")
        for stale in (before["c2"], "c1", "t1/c1"):
            with pytest.raises(WaitClosed):
                await inbox.answer(stale, "x", by="ann")
        await inbox.answer(before["c1"], "first", by="ann")
        outcomes = await settled(batch)
    assert [outcome.text for outcome in outcomes] == ["a=first", "b=bee", "a=second"]
    assert log.count("ask a") == 2
    assert log.count("ask b") == 1


async def test_ap_02_all_questions_of_a_batch_are_there_and_what_ended_has_ended(
    home: Home,
) -> None:
    """AP-02, langchain-ai/langgraph#6624: two questions, two outcomes; nothing runs again."""
    log: list[str] = []

    def bad(_: dict[str, object]) -> object:
        raise FileNotFoundError("no such file")

    tools = [
        asker(log),
        noted("ok", log, lambda arguments: arguments["n"]),
        raw("bad", lambda arguments, _: bad(arguments), failures=(FileNotFoundError,)),
    ]
    async with home.runtime(tools) as runtime:
        batch = await runtime.submit(
            [
                call("ask", "c1", what="x"),
                call("ok", "c2", n=1),
                call("ask", "c3", what="y"),
                call("bad", "c4"),
            ],
            batch_id="t1",
        )
        before = await at_rest(batch)
        waits = await by_call(runtime.inbox)
        assert set(waits) == {"c1", "c3"}
        for call_id in ("c3", "c1"):
            await runtime.inbox.answer(waits[call_id], "yes", by="ann")
        after = await settled(batch)

    assert [outcome.text for outcome in after] == [
        *("x=yes", "1", "y=yes", "Error: no such file"),
    ]
    assert isinstance(after[3], Failed)
    assert [before[1].text, before[3].text] == [after[1].text, after[3].text]
    assert sorted(log) == ["ask x", "ask y", 'ok {"n": 1}', "told x", "told y"]


@pytest.mark.parametrize("decision", [None, "false", 0, 1, "yes", "true", [], {}])
async def test_ap_04_only_an_explicit_yes_runs_the_tool(home: Home, decision: object) -> None:
    """AP-04, pydantic/pydantic-ai#8060: nothing is truthy; what is no answer changes nothing."""
    log: list[str] = []
    tools = gated(noted("delete", log, lambda _: "deleted"), names=("delete",))
    async with home.runtime(tools) as runtime:
        batch = await runtime.submit([call("delete", "c1")], batch_id="t1")
        await at_rest(batch)
        wait = await only_wait(runtime.inbox)
        with pytest.raises(AnswerRefused):
            await runtime.inbox.answer(wait.id, decision, by="ann")
        with pytest.raises(WaitClosed):
            await runtime.inbox.answer("other", True, by="ann")
        (outcome,) = await at_rest(batch)
        assert isinstance(outcome, Suspended)
        assert await only_wait(runtime.inbox) == wait
        assert log == []


@pytest.mark.parametrize("change", ["arguments", "name", "default", "description"])
async def test_ap_06_a_yes_for_one_thing_runs_no_other(home: SqliteHome, change: str) -> None:
    """AP-06, extra-org/extra#139: whatever was changed since, nothing runs on it."""
    log: list[str] = []

    def tools(*, changed: bool) -> Registry:
        default = "b.txt" if changed and change == "default" else "a.txt"

        @tool(description="Erases." if changed and change == "description" else "Deletes.")
        async def delete(path: str, backup: str = default) -> str:
            log.append(f"{path} {backup}")
            return f"{path} deleted"

        return gated(delete, noted("erase", log, lambda _: "erased"), names=("delete", "erase"))

    async with home.runtime(tools(changed=False)) as runtime:
        await at_rest(await runtime.submit([call("delete", "c1", path="a.txt")], batch_id="t1"))
        wait = await only_wait(runtime.inbox)
    await home.inbox().answer(wait.id, True, by="ann")
    if change == "arguments":
        home.run("UPDATE calls SET arguments = ?", '{"path":"/etc/passwd"}')
    elif change == "name":
        home.run("UPDATE calls SET name = 'erase'")
    async with home.runtime(tools(changed=True)) as later:
        (batch,) = await later.recover()
        (outcome,) = await at_rest(batch)
        again = await only_wait(later.inbox)
    assert isinstance(outcome, Suspended)
    assert again.id != wait.id
    assert log == []


@pytest.mark.parametrize(
    "spelling",
    ['{"n":1,"path":"a"}', '{"path":"a","n":1}', ' { "path" : "\\u0061", "n" : 1.0 } '],
)
async def test_ap_06_spelling_alone_breaks_no_approval(home: SqliteHome, spelling: str) -> None:
    """AP-06: the digest is of the canonical form; order, blanks and 1.0 for 1 are the same."""
    ran: list[str] = []

    @tool
    async def delete(path: str, n: int) -> str:
        ran.append(f"{path} {n}")
        return "deleted"

    tools = gated(delete, names=("delete",))
    async with home.runtime(tools) as runtime:
        await at_rest(await runtime.submit([call("delete", "c1", path="a", n=1)], batch_id="t1"))
    await home.inbox().answer((await only_wait(home.inbox())).id, True, by="ann")
    home.run("UPDATE calls SET arguments = ?", spelling)
    async with home.runtime(tools) as later:
        (batch,) = await later.recover()
        assert [outcome.text for outcome in await settled(batch)] == ["deleted"]
    assert ran == ["a 1"]


async def test_ap_09_what_waits_survives_the_way_through_files_and_processes(
    home: SqliteHome, tmp_path: Path
) -> None:
    """
    AP-09, vercel/ai#16334: copied, opened elsewhere, answered, and it goes on.

    What is sealed for the way outside has a suite of its own (test_seal.py).
    """
    log: list[str] = []
    tools = gated(noted("pay", log, lambda _: "paid"), names=("pay",))
    there = SqliteHome(tmp_path / "elsewhere" / "copy.db")
    there.path.parent.mkdir()
    async with home.runtime(tools) as runtime:
        await at_rest(await runtime.submit([call("pay", "c1")], batch_id="t1"))
        wait = await only_wait(runtime.inbox)
    shutil.copy(home.path, there.path)

    assert await only_wait(there.inbox()) == wait
    await there.inbox().answer(wait.id, True, by="ann")
    async with there.runtime(tools) as later:
        batch = await later.submit([call("pay", "c1")], batch_id="t1")
        assert [outcome.text for outcome in await settled(batch)] == ["paid"]
    assert await only_wait(home.inbox()) == wait


async def test_ap_09_a_newer_state_is_refused_by_its_version(home: SqliteHome) -> None:
    """AP-09: not by a KeyError somewhere within; the file is as it was."""
    async with home.runtime([raw("work", lambda _, __: "done")]) as runtime:
        await settled(await runtime.submit([call("work", "c1")], batch_id="t1"))
    home.run(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    before = home.path.read_bytes()
    with pytest.raises(JournalError, match="newer Ferrule"):
        await SqliteInbox(home.path).waits()
    assert home.path.read_bytes() == before


@pytest.mark.parametrize(
    "arguments", ['{"path": ', '{"path": 1}', '{"path":"a","path":"/etc"}', "[]"]
)
async def test_ap_10_nobody_is_asked_about_invalid_arguments(home: Home, arguments: str) -> None:
    """AP-10, brightwave-inc/tidebreak#1129: no policy and no person sees what was not let in."""
    asked: list[Authorization] = []

    @tool
    async def delete(path: str) -> str:
        return f"{path} deleted"

    def policy(one: Authorization) -> Decision:
        asked.append(one)
        return ask("May it?")

    async with home.runtime(Registry([delete]).guarded(policy)) as runtime:
        made = ToolCall(id="c1", name="delete", arguments=arguments)
        (outcome,) = await settled(await runtime.submit([made], batch_id="t1"))
        assert await runtime.inbox.waits() == []
    assert isinstance(outcome, Rejected)
    assert asked == []


async def test_ap_10_policy_and_tool_suspend_in_the_same_way(home: Home) -> None:
    """AP-10: one kind of outcome. A validator of ours refuses or admits, and asks nobody."""
    log: list[str] = []

    def policy(one: Authorization) -> Decision:
        path = str(one.arguments.get("path"))
        return Ask(f"Touch {path}?") if path.startswith("/etc") else True

    tools = Registry([noted("touch", log, lambda _: "touched"), asker(log)]).guarded(policy)
    async with home.runtime(tools) as runtime:
        batch = await runtime.submit(
            [
                call("touch", "c1", path="/etc/x"),
                call("ask", "c2", what="b"),
                call("touch", "c3", path="/tmp/x"),
            ],
            batch_id="t1",
        )
        outcomes = await at_rest(batch)
        messages = [wait.message for wait in await runtime.inbox.waits()]
    assert [type(outcome) for outcome in outcomes[:2]] == [Suspended, Suspended]
    assert outcomes[2].text == "touched"
    assert sorted(messages) == ["Touch /etc/x?", "What is b?"]


async def test_ap_06_what_a_person_was_shown_is_nobodys_to_change(home: Home) -> None:
    """AP-06: a policy or a listener that changes the values it got changes nothing of the call."""
    ran: list[object] = []

    def policy(asked: Authorization) -> Decision:
        asked.arguments["path"] = "/etc/passwd"
        return ask("May it?")

    def delete(arguments: dict[str, object], _: Context) -> object:
        ran.append(arguments)
        return "deleted"

    async with home.runtime(Registry([raw("delete", delete)]).guarded(policy)) as runtime:
        batch = await runtime.submit([call("delete", "c1", path="a.txt")], batch_id="t1")
        await at_rest(batch)
        wait = await only_wait(runtime.inbox)
        if isinstance(wait.schema, dict):
            wait.schema["type"] = "string"
        await runtime.inbox.answer(wait.id, True, by="ann")
        await settled(batch)
    assert ran == [{"path": "a.txt"}]


# ---- what peers did ------------------------------------------------------------------------------


async def test_b6_a_finished_sibling_runs_once_whatever_is_answered(home: Home) -> None:
    """B6: langgraph charged three times for two answers, and ran each body again from the top."""
    log: list[str] = []
    tools = [noted("charge", log, lambda _: "charged"), asker(log)]
    async with home.runtime(tools) as runtime:
        batch = await runtime.submit(
            [call("charge", "c1"), call("ask", "c2", what="a"), call("ask", "c3", what="b")],
            batch_id="t1",
        )
        await at_rest(batch)
        waits = await by_call(runtime.inbox)
        assert set(waits) == {"c2", "c3"}  # Both at once, not one after the other.
        for call_id in ("c2", "c3"):
            await runtime.inbox.answer(waits[call_id], "yes", by="ann")
            await at_rest(batch)
        await settled(batch)
    assert sorted(log) == ["ask a", "ask b", "charge {}", "told a", "told b"]


async def test_b7_one_of_two_questions_is_answered_while_a_slow_call_runs(home: Home) -> None:
    """B7: strands did this, but ran the body of each `ask` again from its top."""
    log: list[str] = []
    doors = Doors()

    @tool
    async def slow() -> str:
        return await doors.pass_through("slow")

    async with home.runtime([slow, asker(log)]) as runtime:
        batch = await runtime.submit(
            [call("slow", "c1"), call("ask", "c2", what="a"), call("ask", "c3", what="b")],
            batch_id="t1",
        )
        await seen(batch, "suspend", "t1/c2")
        await seen(batch, "suspend", "t1/c3")
        waits = await by_call(runtime.inbox)
        await runtime.inbox.answer(waits["c3"], "yes", by="ann")
        await seen(batch, "complete", "t1/c3")
        assert await by_call(runtime.inbox) == {"c2": waits["c2"]}
        doors.open("slow")
        first, second, third = await at_rest(batch)
    assert (first.text, third.text) == ("slow done", "b=yes")
    assert isinstance(second, Suspended)
    assert doors.begun == ["slow"]
    assert sorted(log) == ["ask a", "ask b", "told b"]


async def test_b8_arguments_edited_in_the_store_are_asked_about_again(home: SqliteHome) -> None:
    """B8: pydantic-ai ran the edited arguments on the old yes; here nothing runs on it."""
    log: list[str] = []
    tools = gated(noted("send", log, lambda _: "sent"), names=("send",))
    async with home.runtime(tools) as runtime:
        await at_rest(await runtime.submit([call("send", "c1", to="A1")], batch_id="t1"))
        wait = await only_wait(runtime.inbox)
    home.run("UPDATE calls SET arguments = ?", '{"to":"A666"}')
    await home.inbox().answer(wait.id, True, by="ann")
    async with home.runtime(tools) as later:
        (batch,) = await later.recover()
        (outcome,) = await at_rest(batch)
        again = await only_wait(later.inbox)
    assert isinstance(outcome, Suspended)
    assert json.loads(again.call.arguments) == {"to": "A666"}  # What a person would now allow.
    assert log == []


async def test_b9_one_of_two_pending_calls_is_approved_alone(home: Home) -> None:
    """B9: pydantic-ai wanted all or nothing; agent-framework ran nothing before all answers."""
    log: list[str] = []
    tools = gated(
        noted("pay", log, lambda arguments: f"paid {arguments['n']}"),
        noted("look", log, lambda _: "looked"),
        names=("pay",),
    )
    async with home.runtime(tools) as runtime:
        batch = await runtime.submit(
            [call("pay", "c1", n=1), call("look", "c2"), call("pay", "c3", n=3)], batch_id="t1"
        )
        before = await at_rest(batch)
        assert before[1].text == "looked"
        waits = await by_call(runtime.inbox)
        await runtime.inbox.answer(waits["c3"], True, by="ann")
        first, _, third = await at_rest(batch)
        assert await by_call(runtime.inbox) == {"c1": waits["c1"]}
    assert isinstance(first, Suspended)
    assert third.text == "paid 3"
    assert sorted(log) == ["look {}", 'pay {"n": 3}']


async def test_b10_an_approval_is_used_once_however_often_it_is_given(home: Home) -> None:
    """B10: pydantic-ai and openai-agents executed a saved approval twice."""
    log: list[str] = []
    calls = [call("pay", "c1", n=1)]
    tools = gated(noted("pay", log, lambda _: "paid"), names=("pay",))
    async with home.runtime(tools) as runtime:
        await at_rest(await runtime.submit(calls, batch_id="t1"))
        wait = await only_wait(runtime.inbox)
    await home.inbox().answer(wait.id, True, by="ann", answer_id="a-1")
    for _ in range(2):
        assert not (await home.inbox().answer(wait.id, True, by="ann", answer_id="a-1")).first
        async with home.runtime(tools) as one, home.runtime(tools) as two:
            for runtime in (one, two):
                batch = await runtime.submit(calls, batch_id="t1")
                assert [outcome.text for outcome in await settled(batch)] == ["paid"]
    assert log == ['pay {"n": 1}']


async def test_b10_a_copy_of_the_journal_is_another_journal_with_the_same_keys(
    home: SqliteHome, tmp_path: Path
) -> None:
    """B10, DUR-3: who restores a backup runs again what ran since; the key is what protects."""
    keys: list[str] = []

    async def pay(_: dict[str, object], context: Context) -> object:
        keys.append(context.idempotency_key)
        return "paid"

    tools = gated(raw("pay", pay, replay="keyed"), names=("pay",))
    async with home.runtime(tools) as runtime:
        await at_rest(await runtime.submit([call("pay", "c1")], batch_id="t1"))
        wait = await only_wait(runtime.inbox)
    backup = SqliteHome(tmp_path / "backup.db")
    shutil.copy(home.path, backup.path)
    for one in (home, backup):
        await one.inbox().answer(wait.id, True, by="ann")
        async with one.runtime(tools) as later:
            (batch,) = await later.recover()
            await settled(batch)
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_b11_a_tool_that_was_redefined_is_asked_about_again(home: Home) -> None:
    """B11: pydantic-ai and openai-agents ran `5 BTC` on a yes to `5 USD`."""
    ran: list[str] = []

    def tools(currency: str) -> Registry:
        @tool
        async def send(amount: int, currency: str = currency) -> str:
            ran.append(f"{amount} {currency}")
            return f"sent {amount} {currency}"

        return gated(send, names=("send",))

    async with home.runtime(tools("USD")) as runtime:
        await at_rest(await runtime.submit([call("send", "c1", amount=5)], batch_id="t1"))
    await home.inbox().answer((await only_wait(home.inbox())).id, True, by="ann")
    async with home.runtime(tools("BTC")) as later:
        (batch,) = await later.recover()
        (outcome,) = await at_rest(batch)
        assert isinstance(outcome, Suspended)
        assert ran == []
        await later.inbox.answer((await only_wait(later.inbox)).id, True, by="bob")
        assert [one.text for one in await settled(batch)] == ["sent 5 BTC"]
