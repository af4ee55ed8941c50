"""
The parameters that are not the model's: what the reflector leaves out of a schema.

A harness gives them at call time. `Hidden` marks a class whose values are always hidden (the
context of a call is one), `Inject` marks one parameter, and `Within` marks a path that the model
does give, but only below a root that the harness gives.
"""

import contextlib
from pathlib import Path

import msgspec

from ferrule.errors import InvalidCall, Problem


class Hidden:
    """Marks a class: a parameter annotated with a subclass is given by the harness."""

    __slots__ = ()


class Inject(msgspec.Struct, frozen=True):
    """
    Marks a parameter that the harness injects: `tenant: Annotated[str, Inject("tenant")]`.

    Attributes:
        name: Key in the registry's `inject` whose value the parameter gets.
    """

    name: str


class Within(msgspec.Struct, frozen=True):
    """
    Marks a path that must stay below a root: `path: Annotated[Path, Within("workspace")]`.

    The model sees a string. The function gets an absolute path without links in it.

    Attributes:
        root: Key in the registry's `inject` that gives the root.
    """

    root: str

    def resolve(self, path: Path, root: Path, *, parameter: str) -> Path:
        """
        Return where `path` leads below `root`, or raise `InvalidCall`.

        Links and parent steps are followed before the comparison, also in the part of a path
        that exists when its end does not.
        """
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # a loop of links, a null
            base = root.resolve()
            target = (base / path).resolve()
            # A link that is still there leads round in a circle; Python 3.13 raises no error.
            circular = any(part.is_symlink() for part in (target, *target.parents))
            if target.is_relative_to(base) and not circular:
                return target
        expected = f'expected a path inside the root "{self.root}"'
        problem = Problem(path=parameter, rule="within", expected=expected)
        raise InvalidCall("invalid_arguments", [problem])
