"""
Other people's tools over MCP, and ours for others (`pip install 'ferrule[mcp]'`).

```python
from ferrule import Executor, Registry
from ferrule.mcp import Server, connect

async with Registry([connect("mcp-server-git --repository .", prefix="git")]) as registry:
    outcomes = await Executor(registry).run(calls)

await Server([add, refund]).stdio()         # or an app: uvicorn.run(Server(tools).asgi())
```
"""

from importlib.util import find_spec

if find_spec("mcp") is None:
    raise ModuleNotFoundError("MCP needs more: pip install 'ferrule[mcp]'", name="mcp")

from ferrule.mcp._listing import Quarantined
from ferrule.mcp._long import Tasks
from ferrule.mcp._oauth import SignIn
from ferrule.mcp._remote import Remote, connect
from ferrule.mcp._server import RuntimeFrom, Server
from ferrule.mcp._targets import Address, Command, InProcess
from ferrule.mcp._tokens import Grant, KeyringTokens, TokenFile, Tokens
from ferrule.mcp._who import Session

__all__ = (
    "Address",
    "Command",
    "Grant",
    "InProcess",
    "KeyringTokens",
    "Quarantined",
    "Remote",
    "RuntimeFrom",
    "Server",
    "Session",
    "SignIn",
    "Tasks",
    "TokenFile",
    "Tokens",
    "connect",
)
