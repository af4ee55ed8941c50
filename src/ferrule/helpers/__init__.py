"""
Parts for tools and for hosts.

```python
from ferrule.helpers import ANY, CommandRule, Secret, commands, run_command

rules = [CommandRule("git", "status"), CommandRule("git", "log", ANY)]
registry = Registry([git], inject={"token": Secret(token)}).guarded(commands(rules))
```
"""

from ferrule import Secret
from ferrule.helpers._commands import ENVIRONMENT, CommandLimits, Variables, run_command
from ferrule.helpers._groups import reap
from ferrule.helpers._opening import BinaryMode, TextMode, open_within
from ferrule.helpers._rules import ANY, REST, CommandRule, Placeholder, Word, commands
from ferrule.helpers._visible import HIDDEN, one_line, visible

__all__ = (
    "ANY",
    "ENVIRONMENT",
    "HIDDEN",
    "REST",
    "BinaryMode",
    "CommandLimits",
    "CommandRule",
    "Placeholder",
    "Secret",
    "TextMode",
    "Variables",
    "Word",
    "commands",
    "one_line",
    "open_within",
    "reap",
    "run_command",
    "visible",
)
