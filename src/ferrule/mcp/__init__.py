"""
Tools over MCP, both ways.

```python
from ferrule.mcp import Server

await Server([add, refund]).stdio()         # or an app: uvicorn.run(Server(tools).asgi())
```
"""

from importlib.util import find_spec

if find_spec("mcp") is None:
    raise ModuleNotFoundError("MCP needs more: pip install 'ferrule[mcp]'", name="mcp")

from ferrule.mcp._server import RuntimeFrom, Server
from ferrule.mcp._who import Session

__all__ = ("RuntimeFrom", "Server", "Session")
