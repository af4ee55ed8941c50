"""
Ten MCP servers of others, as they are published: how each is started, and what it lists.

`make servers` installs them into `.mcp/servers`, with the versions of `tests/mcp/real`. Each runs
behind a `tee`, so that a test can see what it was sent and not only what it says of it.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from conformance.outside import ROOT, environment
from conftest import require_or_skip
from ferrule.mcp import Command

Era = Literal["auto", "legacy"]
SERVERS = ROOT / ".mcp" / "servers"
HERE = ROOT / "tests" / "mcp" / "real"


class Real(msgspec.Struct, frozen=True, kw_only=True):
    """
    One server.

    Attributes:
        program: What is started, with its arguments; FOLDER stands for a folder of the test's own.
        tools: The names that it lists and that can be used.
        wrong: A call whose arguments its own schema refuses.
        env: Variables that it needs.
        modern: Whether it speaks the revision without a handshake.
        tasks: Names that it lists, and that can only be called as tasks.
        package: What it is called where it is published, if not so.
    """

    program: tuple[str, ...]
    tools: str
    wrong: tuple[str, dict[str, Any]]
    env: Mapping[str, str] = {}
    modern: bool = False
    tasks: str = ""
    package: str = ""


GIT = {
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.com",
    "GIT_AUTHOR_DATE": "1767323045 +0000",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.com",
    "GIT_COMMITTER_DATE": "1767323045 +0000",
}
"""Who commits and when, so that what is committed has the same name everywhere."""

REAL = {
    "context7": Real(
        program=("context7-mcp",),
        package="@upstash/context7-mcp",
        modern=True,
        tools="query-docs resolve-library-id",
        wrong=("query-docs", {"libraryId": 5, "query": "x"}),
    ),
    "everything": Real(
        program=("mcp-server-everything",),
        package="@modelcontextprotocol/server-everything",
        tools="""
            echo get-annotated-message get-env get-resource-links get-resource-reference
            get-structured-content get-sum get-tiny-image gzip-file-as-resource
            toggle-simulated-logging toggle-subscriber-updates trigger-elicitation-request
            trigger-long-running-operation trigger-url-elicitation
        """,
        tasks="simulate-research-query",
        wrong=("get-sum", {"a": "1", "b": 2}),
    ),
    "fetch": Real(
        program=("mcp-server-fetch", "--allow-private-ips"),
        modern=True,
        tools="fetch",
        wrong=("fetch", {"url": "nonsense"}),
    ),
    "filesystem": Real(
        program=("mcp-server-filesystem", "FOLDER"),
        package="@modelcontextprotocol/server-filesystem",
        tools="""
            create_directory directory_tree edit_file get_file_info list_allowed_directories
            list_directory list_directory_with_sizes move_file read_file read_media_file
            read_multiple_files read_text_file search_files write_file
        """,
        wrong=("edit_file", {"path": "a", "edits": [{"oldText": "x"}]}),
    ),
    "git": Real(
        program=("mcp-server-git", "--repository", "FOLDER"),
        modern=True,
        env=GIT,
        tools="""
            git_add git_branch git_checkout git_commit git_create_branch git_diff git_diff_staged
            git_diff_unstaged git_log git_reset git_show git_status
        """,
        wrong=("git_log", {"repo_path": ".", "max_count": "many"}),
    ),
    "memory": Real(
        program=("mcp-server-memory",),
        package="@modelcontextprotocol/server-memory",
        env={"MEMORY_FILE_PATH": "FOLDER/memory.jsonl"},
        tools="""
            add_observations create_entities create_relations delete_entities delete_observations
            delete_relations open_nodes read_graph search_nodes
        """,
        wrong=("create_entities", {"entities": [{"name": "Ann"}]}),
    ),
    "notion": Real(
        program=("notion-mcp-server",),
        package="@notionhq/notion-mcp-server",
        env={"NOTION_TOKEN": "none"},
        tools="""
            API-create-a-comment API-create-a-data-source API-delete-a-block API-get-block-children
            API-get-self API-get-user API-get-users API-list-data-source-templates API-move-page
            API-patch-block-children API-patch-page API-post-page API-post-search
            API-query-data-source API-retrieve-a-block API-retrieve-a-comment
            API-retrieve-a-data-source API-retrieve-a-database API-retrieve-a-page
            API-retrieve-a-page-property API-retrieve-page-markdown API-update-a-block
            API-update-a-data-source API-update-page-markdown
        """,
        wrong=("API-get-user", {}),
    ),
    "playwright": Real(
        program=("playwright-mcp",),
        package="@playwright/mcp",
        tools="""
            browser_click browser_close browser_console_messages browser_drag browser_drop
            browser_emulate_media browser_evaluate browser_file_upload browser_fill_form
            browser_find browser_handle_dialog browser_hover browser_navigate browser_navigate_back
            browser_network_request browser_network_requests browser_press_key browser_resize
            browser_run_code_unsafe browser_select_option browser_snapshot browser_tabs
            browser_take_screenshot browser_type browser_wait_for
        """,
        wrong=("browser_navigate", {"url": 5}),
    ),
    "sequential-thinking": Real(
        program=("mcp-server-sequential-thinking",),
        package="@modelcontextprotocol/server-sequential-thinking",
        tools="sequentialthinking",
        wrong=("sequentialthinking", {"thought": "x"}),
    ),
    "time": Real(
        program=("mcp-server-time", "--local-timezone", "UTC"),
        modern=True,
        tools="convert_time get_current_time",
        wrong=("convert_time", {"source_timezone": "UTC", "time": "12:30"}),
    ),
}


def _program(name: str) -> Path:
    """Return where a program is installed."""
    found = [
        place
        for folder in ("node_modules/.bin", "venv/bin")
        if (place := SERVERS / folder / name).exists()
    ]
    require_or_skip(found, f"{name} (`make servers` installs it, with npm and pip)")
    return found[0]


def variables(name: str, folder: Path) -> dict[str, str]:
    """Return the environment that a server gets: a home of its own, and our choice of node."""
    of_ours = {"HOME": str(folder), "PATH": environment()["PATH"]}
    return of_ours | {n: _filled(value, folder) for n, value in REAL[name].env.items()}


def argv(name: str, folder: Path) -> list[str]:
    """Return what starts a server."""
    program, *arguments = REAL[name].program
    return [str(_program(program)), *(_filled(word, folder) for word in arguments)]


def command(
    name: str, folder: Path, *, log: str = "sent", era: Era = "auto", env: Mapping[str, str] = {}
) -> Command:
    """Return what connects to a server; what it is sent is written down beside the folder."""
    script = ("sh", "-c", 'tee "$0" | "$@"', str(_log(folder, log)))
    given = variables(name, folder) | dict(env)
    return Command((*script, *argv(name, folder)), env=given, cwd=folder, era=era)


def sent(folder: Path, log: str = "sent") -> list[dict[str, Any]]:
    """Return every message that a server got, once the connection to it is closed."""
    return [json.loads(line) for line in _log(folder, log).read_text().splitlines()]


def called(folder: Path, log: str = "sent") -> list[str]:
    """Return the tools that a server was asked to call, in order."""
    messages = sent(folder, log)
    return [one["params"]["name"] for one in messages if one.get("method") == "tools/call"]


def pinned() -> dict[str, str]:
    """Return the version of each server that is to be installed."""
    packages = json.loads((HERE / "package.json").read_text())["dependencies"]
    wheels = dict(line.split("==") for line in (HERE / "requirements.txt").read_text().splitlines())
    return {
        name: packages.get(real.package) or wheels[f"mcp-server-{name}"]
        for name, real in REAL.items()
    }


def installed() -> dict[str, str]:
    """Return the version of each server that is there."""
    return {name: _installed(name, real.package) for name, real in REAL.items()}


def _installed(name: str, package: str) -> str:
    _program(REAL[name].program[0])
    if package:
        return str(
            json.loads((SERVERS / "node_modules" / package / "package.json").read_text())["version"]
        )
    [found] = SERVERS.glob(f"venv/lib/*/site-packages/mcp_server_{name}-*.dist-info")
    return found.name.removesuffix(".dist-info").rpartition("-")[2]


def _log(folder: Path, log: str) -> Path:
    return folder.with_name(f"{folder.name}.{log}")


def _filled(text: str, folder: Path) -> str:
    return text.replace("FOLDER", os.fspath(folder))
