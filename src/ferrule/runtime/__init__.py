"""
Calls that outlive their process, on one machine: kept in a file of SQLite.

```python
async with SqliteRuntime([refund], "calls.db") as runtime:
    batch = await runtime.submit(calls, batch_id="turn-7")
    outcomes = await batch.settled()
```

Anywhere else, and without the tools, people answer through `SqliteInbox("calls.db")`.
"""

from ferrule.runtime._inbox import SqliteInbox
from ferrule.runtime.sqlite import Reaper, SqliteBatch, SqliteRuntime

__all__ = ("Reaper", "SqliteBatch", "SqliteInbox", "SqliteRuntime")
