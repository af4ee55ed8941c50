"""
Parts for testing tools and the loops that drive them.

```python
from ferrule import Executor
from ferrule.testing import MemoryRecorder

recorder = MemoryRecorder()
outcomes = Executor(tools, recorder=recorder).run_sync(calls)
assert recorder.records[0].namespace == "shell:process-group"
```
"""

from ferrule.testing._recorder import MemoryRecorder, Recorded

__all__ = ("MemoryRecorder", "Recorded")
