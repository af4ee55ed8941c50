"""
From types to schemas, from schemas to validators, and to the form that providers enforce.

```python
from ferrule.schema import compile, schema_for, to_strict

def seek(text: str, limit: int = 10) -> None: ...

schema = schema_for(seek)
assert compile(schema).problems({"text": 1})[0].path == "text"
assert to_strict(schema).schema["required"] == ["text", "limit"]
```
"""

from ferrule.schema._compile import Validator, compile
from ferrule.schema._generate import schema_for
from ferrule.schema._limits import PROVIDERS, Finding, ProviderLimits, findings
from ferrule.schema._restore import Restore
from ferrule.schema._shapes import Dropped
from ferrule.schema._strict import Converted, NotStrict, to_strict

__all__ = (
    "PROVIDERS",
    "Converted",
    "Dropped",
    "Finding",
    "NotStrict",
    "ProviderLimits",
    "Restore",
    "Validator",
    "compile",
    "findings",
    "schema_for",
    "to_strict",
)
