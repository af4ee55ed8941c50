"""
What was approved of other people's tools, in a file: a changed definition is refused until then.

```python
from ferrule import Executor, Registry
from ferrule.lock import LockFile
from ferrule.mcp import connect

registry = Registry([connect("mcp-server-git --repository .")])
LockFile.of(registry).write("ferrule.lock")                    # once, to be reviewed and committed

executor = Executor(LockFile.read("ferrule.lock").applied(registry))
```
"""

from ferrule.lock._drift import Drift, LockedTool, ToolChanged
from ferrule.lock._file import InvalidLock
from ferrule.lock._lock import LockedRegistry, LockFile

__all__ = ("Drift", "InvalidLock", "LockFile", "LockedRegistry", "LockedTool", "ToolChanged")
