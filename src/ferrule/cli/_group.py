"""The group of commands as click sees it: loaded when named, misspelt ones answered."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from types import ModuleType

import click

from ferrule.cli._refused import INTERRUPTED, USAGE, Refused

_EPILOG = """
\b
Exit codes:
  0    done
  1    a tool failed or refused its arguments
  2    the command line was not understood
  3    an answer is needed
  4    an outcome is unknown
  130  interrupted
"""


class Commands(click.Group):
    """A group whose commands are imported when they are called."""

    def __init__(self, table: Mapping[str, tuple[str, Callable[[], ModuleType]]]) -> None:
        super().__init__(
            "ferrule",
            help="Run the tools of AI agents: the calls of a model, as one batch.",
            epilog=_EPILOG,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click gives it
        """Return the names, without loading anything."""
        return sorted(self._table)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002  # click gives it
        cmd_name: str,
    ) -> click.Command | None:
        """Load one command."""
        if cmd_name not in self._table:
            return None
        _, load = self._table[cmd_name]
        command: object = load().command
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was named; a misspelt one is answered with the nearest."""
        name = args[0]
        if name not in self._table and not name.startswith("-"):
            close = get_close_matches(name, self._table, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"there is {self._listed()}"
            ctx.fail(f"there is no command `{name}`; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands from what is known without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._table[name][0]) for name in self.list_commands(ctx)])

    def _listed(self) -> str:
        *names, last = (f"`{name}`" for name in sorted(self._table))
        return f"{', '.join(names)} and {last}"


def run(
    table: Mapping[str, tuple[str, Callable[[], ModuleType]]], arguments: Sequence[str] | None
) -> int:
    """Run one command and return the exit code; what it refuses is on standard error by then."""
    group = click.version_option(package_name="ferrule", message="%(prog)s %(version)s")(
        Commands(table)
    )
    try:
        code: object = group.main(arguments, prog_name="ferrule", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.code if isinstance(error, Refused) else USAGE
    except click.Abort:
        click.echo("ferrule: interrupted", err=True)
        return INTERRUPTED
    return code if isinstance(code, int) else 0
