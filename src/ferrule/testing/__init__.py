"""
Parts for testing tools and the loops that drive them.

```python
from ferrule.testing import call, check_tool

def test_my_tool_keeps_the_contract():
    check_tool(my_tool)

async def test_my_tool_asks_before_it_pays():
    outcome = await call(my_tool, {"amount": 500}, answers=[True])
    assert outcome.text == "500 paid"
```
"""

from ferrule.testing._calling import call
from ferrule.testing._check import BrokenTool, Finding, check_tool
from ferrule.testing._context import KeptContext, context
from ferrule.testing._recorder import MemoryRecorder, Recorded
from ferrule.testing._script import Answers, Decisions

__all__ = (
    "Answers",
    "BrokenTool",
    "Decisions",
    "Finding",
    "KeptContext",
    "MemoryRecorder",
    "Recorded",
    "call",
    "check_tool",
    "context",
)
