"""
Other people's tools over MCP, and ours for others (`pip install 'ferrule[mcp]'`).

```python
from ferrule import Executor, Registry
from ferrule.mcp import connect

async with Registry([connect("mcp-server-git --repository .", prefix="git")]) as registry:
    outcomes = await Executor(registry).run(calls)
```
"""

from importlib.util import find_spec

if find_spec("mcp") is None:
    raise ModuleNotFoundError("MCP needs more: pip install 'ferrule[mcp]'", name="mcp")

from ferrule.mcp._listing import Quarantined
from ferrule.mcp._oauth import SignIn
from ferrule.mcp._remote import Remote, connect
from ferrule.mcp._targets import Address, Command, InProcess
from ferrule.mcp._tokens import Grant, KeyringTokens, TokenFile, Tokens

__all__ = (
    "Address",
    "Command",
    "Grant",
    "InProcess",
    "KeyringTokens",
    "Quarantined",
    "Remote",
    "SignIn",
    "TokenFile",
    "Tokens",
    "connect",
)
