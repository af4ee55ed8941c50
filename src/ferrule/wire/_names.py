"""Tool names as a provider takes them: one to one, and back."""

import hashlib
import re
from collections.abc import Iterable
from itertools import count

_DIGEST = 8
"""Characters of the digest at the end of a changed name."""


class Names:
    """
    Some tools' names as a provider takes them, one to one (CONTRACT WIRE-1).

    A name that the provider takes is itself. Any other keeps the characters that it may keep and
    ends in a short digest of the whole, so that two of them differ wherever the names do. What a
    name becomes does not depend on the order of the names, nor on the other names, but in the one
    case in a billion that two would become the same.

    Args:
        names: The names of the tools.
        allowed: The characters that the provider takes, as inside `[…]` of a pattern.
        longest: The most characters it takes.
    """

    __slots__ = ("_inward", "_outward")

    def __init__(self, names: Iterable[str], *, allowed: str, longest: int) -> None:
        legal = re.compile(f"[{allowed}]{{1,{longest}}}")
        others = re.compile(f"[^{allowed}]")
        known = sorted(set(names))
        self._outward = {name: name for name in known if legal.fullmatch(name)}
        self._inward = dict(self._outward)
        for name in known:
            if name not in self._outward:
                stem = others.sub("_", name)[: longest - _DIGEST - 1]
                sent = next(made for made in _made(name, stem) if made not in self._inward)
                self._outward[name], self._inward[sent] = sent, name

    def outward(self, name: str) -> str:
        """Return a tool's name as it is sent."""
        return self._outward[name]

    def inward(self, name: str) -> str:
        """Return the tool's name that a model meant; a name that was not sent stays as it is."""
        return self._inward.get(name, name)


def _made(name: str, stem: str) -> Iterable[str]:
    """Yield the names that may be sent for `name`: the first, and more should it be taken."""
    for attempt in count():
        salted = f"{name}#{attempt}" if attempt else name
        yield f"{stem}_{hashlib.sha256(salted.encode()).hexdigest()[:_DIGEST]}"
