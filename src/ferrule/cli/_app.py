"""
Where `ferrule` begins: the commands by name, each loaded when it is called.

What a command needs takes longer to load than most commands take to run. So a command is a file
that is imported when it is named, and `ferrule --help` knows the sentences of this table alone.
"""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import NoReturn

COMMANDS: Mapping[str, tuple[str, Callable[[], ModuleType]]] = {
    "answer": (
        "Answer a question that a call waits with.",
        lambda: importlib.import_module("ferrule.cli._answer"),
    ),
    "diff": (
        "Say what changed between two sets of tools.",
        lambda: importlib.import_module("ferrule.cli._diff"),
    ),
    "history": (
        "Tell what happened to the calls of a journal.",
        lambda: importlib.import_module("ferrule.cli._history"),
    ),
    "list": (
        "Show the tools that a file or module offers.",
        lambda: importlib.import_module("ferrule.cli._list"),
    ),
    "lock": (
        "Lock tools as they are, or say what changed since.",
        lambda: importlib.import_module("ferrule.cli._lock"),
    ),
    "policy": (
        "Say what a policy decides about each tool.",
        lambda: importlib.import_module("ferrule.cli._policy"),
    ),
    "resolve": (
        "Say how an unknown call ended, or have it run again.",
        lambda: importlib.import_module("ferrule.cli._resolve"),
    ),
    "run": (
        "Run the calls of a model's response as one batch.",
        lambda: importlib.import_module("ferrule.cli._run"),
    ),
    "serve": (
        "Serve tools to clients of MCP.",
        lambda: importlib.import_module("ferrule.cli._serve"),
    ),
    "unknown": (
        "List the calls of which nobody knows how they ended.",
        lambda: importlib.import_module("ferrule.cli._unknown"),
    ),
    "waits": (
        "List the questions that wait for a person.",
        lambda: importlib.import_module("ferrule.cli._waits"),
    ),
    "withdraw": (
        "Take a question back; its call has failed.",
        lambda: importlib.import_module("ferrule.cli._withdraw"),
    ),
}
"""What each command does, and how its file is loaded."""

NEEDED = frozenset({"click", "rich"})
"""The libraries of the extra `cli`."""

USAGE = 2


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """
    Run the command line and end the process with its exit code.

    Args:
        arguments: What follows `ferrule`; by default what the process was given.
    """
    try:
        group = importlib.import_module("ferrule.cli._group")
        code: int = group.run(COMMANDS, arguments)
    except ModuleNotFoundError as error:
        if error.name == "mcp":  # `ferrule serve` says what it needs itself.
            sys.stderr.write(f"ferrule: {error}\n")
        elif error.name is not None and error.name.partition(".")[0] in NEEDED:
            sys.stderr.write("ferrule: the command line needs more: pip install 'ferrule[cli]'\n")
        else:
            raise
        code = USAGE
    sys.exit(code)
