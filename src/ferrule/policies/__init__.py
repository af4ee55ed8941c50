"""
Policies that are ready to use: rules in a file, and any policy made stricter by hints.

```python
from ferrule import Registry
from ferrule.policies import Rules, by_hints

registry = Registry(tools).guarded(by_hints(Rules.read("policy.toml")))
```

`ferrule.policies.cedar` has another one, for Cedar's language.
"""

from ferrule.policies._hints import Risk, by_hints
from ferrule.policies._invalid import InvalidPolicy
from ferrule.policies._rules import Outlook, Rules

__all__ = ("InvalidPolicy", "Outlook", "Risk", "Rules", "by_hints")
