"""Several registries as one: what TOOLS… offer together, now and after they change."""

import functools
import logging
from collections.abc import Callable, Sequence

from ferrule import DeclarationError, Guard, Registry, Tool
from ferrule.cli._refused import Refused
from ferrule.policies import Rules


def joined(parts: Sequence[Registry], rules: Rules | None = None) -> Registry:
    """
    Return one registry with the tools of all, behind the rules, now and after they change.

    Raises:
        Refused: two of them cannot be together.
    """
    if len(parts) == 1 and rules is None:
        return parts[0]
    inject = {name: value for part in parts for name, value in part.inject.items()}
    one = Registry(inject=inject, limits=parts[0].limits, grace=max(p.grace for p in parts))
    follow = functools.partial(_follow, one, parts, rules)
    try:
        follow()
    except DeclarationError as error:
        raise Refused(str(error)) from None
    for part in parts:
        part.when_changed(functools.partial(_follow_later, follow))
    return one


def _follow(one: Registry, parts: Sequence[Registry], rules: Rules | None) -> None:
    offered: dict[str, list[Tool]] = {_origin(one, name): [] for name in one.names}
    for part in parts:
        for name in part.names:
            binding = part.resolve(name)
            if binding is not None:
                tool = binding.tool if rules is None else Guard(binding.tool, rules)
                offered.setdefault(binding.contract.origin, []).append(tool)
    for origin, tools in offered.items():
        one.replace(origin, tools)


def _origin(registry: Registry, name: str) -> str:
    binding = registry.resolve(name)
    return registry.origin if binding is None else binding.contract.origin


def _follow_later(follow: Callable[[], None]) -> None:
    try:
        follow()
    except DeclarationError as error:
        logging.getLogger("ferrule").warning("tools changed; served are those before: %s", error)
