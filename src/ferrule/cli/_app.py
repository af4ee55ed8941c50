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
    "diff": (
        "Say what changed between two sets of tools.",
        lambda: importlib.import_module("ferrule.cli._diff"),
    ),
    "list": (
        "Show the tools that a file or module offers.",
        lambda: importlib.import_module("ferrule.cli._list"),
    ),
    "policy": (
        "Say what a policy decides about each tool.",
        lambda: importlib.import_module("ferrule.cli._policy"),
    ),
    "run": (
        "Run the calls of a model's response as one batch.",
        lambda: importlib.import_module("ferrule.cli._run"),
    ),
    "serve": (
        "Serve tools to clients of MCP.",
        lambda: importlib.import_module("ferrule.cli._serve"),
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
