"""The command line: `ferrule`, or `python -m ferrule`."""

from ferrule.cli._app import main

__all__ = ("main",)
