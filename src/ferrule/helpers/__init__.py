"""Parts for tools and for hosts."""

from ferrule import Secret
from ferrule.helpers._commands import ENVIRONMENT, CommandLimits, Variables, run_command
from ferrule.helpers._rules import ANY, REST, Asked, CommandRule, Placeholder, Word, commands
from ferrule.helpers._visible import HIDDEN, one_line, visible

__all__ = (
    "ANY",
    "ENVIRONMENT",
    "HIDDEN",
    "REST",
    "Asked",
    "CommandLimits",
    "CommandRule",
    "Placeholder",
    "Secret",
    "Variables",
    "Word",
    "commands",
    "one_line",
    "run_command",
    "visible",
)
