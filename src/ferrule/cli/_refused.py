"""How a command says that it will not run: one sentence, exit 2."""

from typing import IO

import click

from ferrule.helpers import one_line

USAGE = 2
"""Exit code: the command line was not understood."""

INTERRUPTED = 130
"""Exit code: the person stopped it."""

_LONGEST = 1000


class Refused(click.ClickException):
    """
    The command cannot do what it was asked; the message is one sentence.

    Args:
        message: What is wrong, and what would put it right.
        code: What the process ends with.
    """

    def __init__(self, message: str, code: int = USAGE) -> None:
        super().__init__(message)
        self.code = code

    def show(self, file: IO[str] | None = None) -> None:
        """Write the sentence to standard error, or to `file`."""
        click.echo(f"ferrule: {one_line(self.message, _LONGEST)}", file=file, err=True)
