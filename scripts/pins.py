"""Print one `name==version` line per installed distribution but Ferrule, for constraints.txt."""

import re
from importlib.metadata import distributions


def pins() -> list[str]:
    """Return the lines, sorted, with names as the packaging standard normalizes them."""
    found = {re.sub(r"[-_.]+", "-", d.name).lower(): d.version for d in distributions()}
    return [f"{name}=={version}" for name, version in sorted(found.items()) if name != "ferrule"]


print("\n".join(pins()))
