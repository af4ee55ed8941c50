"""
What ten servers of others list, as they are published.

Starting one takes up to a second, so that each is started on each loop once.
"""

import json
from pathlib import Path

import pytest

from ferrule import Executor, Registry, Rejected, ToolCall
from ferrule.mcp import Remote, connect
from real_servers import REAL, called, command, installed, pinned, sent

pytestmark = pytest.mark.anyio


def digests(remote: Remote) -> dict[str, str]:
    """Return what is offered, each with the digest of its definition."""
    return {tool.definition.name: tool.definition.digest for tool in remote.tools}


@pytest.mark.parametrize(("name", "anyio_backend"), [(name, "asyncio") for name in REAL])
async def test_a_server_lists_what_it_has(name: str, folder: Path) -> None:
    """MCP-1, MC-07, AT-87: names, what is in quarantine and why; the same digests each time."""
    real = REAL[name]
    one = connect(command(name, folder, log="one"))
    other = connect(command(name, folder, log="other"))
    async with Registry([one]), other:
        await one.settled()
        first, tools = digests(one), one.tools
        await one.refresh()

        assert sorted(first) == sorted(real.tools.split())
        assert [bad.name for bad in one.quarantined] == real.tasks.split()
        assert all("as a task" in bad.reason for bad in one.quarantined)
        assert one.server_info is not None
        assert all(same is before for same, before in zip(one.tools, tools, strict=True))
        assert digests(other) == first
    methods = [message.get("method") for message in sent(folder, "one")]
    assert ("initialize" in methods) is not real.modern
    assert methods.count("tools/list") >= 2


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_one_file_names_all_ten(folder: Path, tmp_path: Path) -> None:
    """MCP-1, ADM-2, AT-90: side by side; what a schema refuses is not sent to its server."""
    entries = {}
    for name in REAL:
        start = command(name, folder, log=name)
        words = {"command": start.argv[0], "args": start.argv[1:]}
        entries[name] = {**words, "env": start.env, "cwd": str(folder)}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": entries}))
    remote = connect(file, prefix="{server}")
    async with Registry([remote]) as registry:
        await remote.settled()
        listed = {f"{name}__{tool}" for name, real in REAL.items() for tool in real.tools.split()}
        executor = Executor(registry)
        wrong = await executor.run(
            [ToolCall.of(f"{name}__{real.wrong[0]}", real.wrong[1]) for name, real in REAL.items()]
        )
        unknown = await executor.run(
            [
                ToolCall.of("everything__simulate-research-query", {"topic": "tools"}),
                ToolCall.of("git__git_push", {"repo_path": "."}),
                ToolCall.of("echo", {"message": "without its prefix"}),
            ]
        )
        right = await executor.run(
            [
                ToolCall.of("everything__echo", {"message": "hello"}),
                ToolCall.of("sequential-thinking__sequentialthinking", _THOUGHT),
            ]
        )

        assert remote.failed == {}
        assert set(registry.names) == listed
        assert len(listed) == 104
        assert [(bad.origin, bad.name) for bad in remote.quarantined] == [
            ("mcp:everything", "simulate-research-query")
        ]
    refused = [outcome for outcome in (*wrong, *unknown) if isinstance(outcome, Rejected)]
    assert [outcome.kind for outcome in refused] == [
        *["invalid_arguments"] * 10,
        *["unknown_tool"] * 3,
    ]
    assert right[0].text == "Echo: hello"
    assert json.loads(right[1].text)["thoughtHistoryLength"] == 1
    received = {name: called(folder, name) for name in REAL}
    asked = {"everything": ["echo"], "sequential-thinking": ["sequentialthinking"]}
    assert received == {name: asked.get(name, []) for name in REAL}


_THOUGHT = {"thought": "x", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}


def test_what_is_installed_is_what_is_pinned() -> None:
    """STYLE 29: no version is left to luck."""
    assert installed() == pinned()
    assert len(REAL) == 10
