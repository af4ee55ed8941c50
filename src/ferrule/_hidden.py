"""
The parameters that are not the model's: what the reflector leaves out of a schema.

A harness gives them at call time. `Hidden` marks a class whose values are always hidden (the
context of a call is one), `Inject` marks one parameter, and `Within` marks a path that the model
does give, but only below a root that the harness gives.
"""

import contextlib
from collections.abc import Generator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

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

    The model sees a string. The function gets an absolute path without links in it, at any depth of
    its parameters' types: `list[Annotated[Path, Within("workspace")]]`, or a field of a dataclass.

    What was checked may change before it is used: who can write below the root may put a link where
    a directory was. Where that matters, open the path with `ferrule.helpers.open_within`, which
    follows no link on the way.

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

    def __call__(self, path: Path) -> Path:
        """
        Return where a path inside another type leads, as soon as its root is known.

        Raises:
            ValueError: it leaves the root.
        """
        roots = _roots.get()
        if roots is None:
            return path
        try:
            return self.resolve(path, roots[self.root], parameter="")
        except InvalidCall as error:
            raise ValueError(error.problems[0].expected) from error

    def __get_pydantic_core_schema__(self, source: object, handler: Any) -> dict[str, Any]:  # noqa: ANN401  # as pydantic calls it
        """Tell pydantic to ask where a path in one of its models leads."""
        function = {"type": "no-info", "function": self}
        return {"type": "function-after", "function": function, "schema": handler(source)}


_roots: ContextVar[Mapping[str, Path] | None] = ContextVar("ferrule_roots", default=None)


@contextlib.contextmanager
def placing(roots: Mapping[str, Path] | None) -> Generator[None]:
    """Have the paths that are made in this block stay below their roots; `None` leaves them."""
    token = _roots.set(roots)
    try:
        yield
    finally:
        _roots.reset(token)
