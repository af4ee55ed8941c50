"""What came over a wire and nobody has looked at yet: is it an object, a list, a text?"""

from typing import Any, TypeAlias

from typing_extensions import TypeIs

Wire: TypeAlias = dict[str, Any]
"""An object as it came: read, and not looked at yet."""

TASKS = "io.modelcontextprotocol/tasks"
"""The extension that lets a server answer a call with a task, which the client comes back for."""


def is_object(value: object) -> TypeIs[Wire]:
    """Say whether it is an object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeIs[list[Any]]:
    """Say whether it is a list."""
    return isinstance(value, list)


def object_of(value: object) -> Wire:
    """Return it if it is an object, and else one without members."""
    return value if is_object(value) else {}


def list_of(value: object) -> list[Any]:
    """Return it if it is a list, and else an empty one."""
    return value if is_list(value) else []


def is_number(value: object) -> TypeIs[int | float]:
    """Say whether it is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)
