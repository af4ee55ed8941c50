"""
Other people's tools over MCP, and ours for others (`pip install 'ferrule[mcp]'`).

```python
from ferrule import Executor, Registry
from ferrule.mcp import connect

async with Registry([connect("mcp-server-git --repository .", prefix="git")]) as registry:
    outcomes = await Executor(registry).run(calls)
```
"""

from ferrule.mcp._listing import Quarantined
from ferrule.mcp._remote import Remote, connect
from ferrule.mcp._targets import Address, Command, InProcess

__all__ = ("Address", "Command", "InProcess", "Quarantined", "Remote", "connect")
