"""
What providers write and read: one module each, with one `Wire`.

```python
from ferrule.wire.openresponses import Wire

wire = Wire(tools)
request["tools"] = wire.tools
calls = wire.calls(response)
request["input"] += wire.reply(response, await executor.run(calls))
```

`Loss` names what a provider's format could not say.
"""

from ferrule.wire._losses import Loss

__all__ = ("Loss",)
