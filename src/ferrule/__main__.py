"""`python -m ferrule` is the command line."""

from ferrule.cli import main

__all__ = ()

main()
