"""
The way back from the strict form: which nulls stand for "left out", and taking them away.

A plan has the shape of the strict schema. In a union the branch of a value is found by what every
strict object tells of itself: the names it lists are exactly the names it has.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from ferrule._near import path_of
from ferrule._plain import is_array, is_object
from ferrule.schema._document import Node, named_nodes, nodes_of
from ferrule.schema._words import has_type, same

Plan: TypeAlias = "Members | Items | Choice | Named | None"
"""What to do below a value; None where there is nothing to do."""


class Members(msgspec.Struct, frozen=True):
    """An object: the names whose null stands for "left out", and what is below the others."""

    left_out: frozenset[str]
    inner: Mapping[str, Plan]


class Items(msgspec.Struct, frozen=True):
    """An array: what is below its first items, and below the rest."""

    first: Sequence[Plan]
    rest: Plan


class Choice(msgspec.Struct, frozen=True):
    """A union: each branch as the strict schema has it, and what is below it."""

    branches: Sequence[tuple[Node, Plan]]


class Named(msgspec.Struct, frozen=True):
    """A definition, by its reference."""

    reference: str


class Restore(msgspec.Struct, frozen=True):
    """
    Takes from arguments in strict form the nulls that stand for "left out".

    Attributes:
        plan: What to do with the arguments.
        schemas: The strict schemas that references lead to.
        plans: What to do below each of them.
    """

    plan: Plan
    schemas: Mapping[str, dict[str, object]]
    plans: Mapping[str, Plan]

    def __call__(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments as the original schema means them; the input stays as it is."""
        back = _Back(self).below(self.plan, dict(arguments), ())
        return back if is_object(back) else dict(arguments)

    def left_out(self, arguments: Mapping[str, object]) -> tuple[str, ...]:
        """Return the paths of the nulls that are taken away, in the order of the arguments."""
        back = _Back(self)
        back.below(self.plan, dict(arguments), ())
        return tuple(back.paths)


class _Back:
    """One way back through one value."""

    def __init__(self, restore: Restore) -> None:
        self._restore = restore
        self.paths: list[str] = []

    def below(self, plan: Plan, value: object, steps: tuple[str | int, ...]) -> object:
        """Return `value` without the nulls that stand for "left out", and note their paths."""
        while isinstance(plan, (Named, Choice)):
            if isinstance(plan, Named):
                plan = self._restore.plans[plan.reference]
            else:
                plan = self._chosen(plan, value)
        if isinstance(plan, Members) and is_object(value):
            return self._object(plan, value, steps)
        if isinstance(plan, Items) and is_array(value):
            return [
                self.below(_nth(plan, index), item, (*steps, index))
                for index, item in enumerate(value)
            ]
        return value

    def _object(
        self, plan: Members, value: Mapping[str, object], steps: tuple[str | int, ...]
    ) -> dict[str, object]:
        kept: dict[str, object] = {}
        for name, item in value.items():
            if item is None and name in plan.left_out:
                self.paths.append(path_of((*steps, name)))
            else:
                kept[name] = self.below(plan.inner.get(name), item, (*steps, name))
        return kept

    def _chosen(self, choice: Choice, value: object) -> Plan:
        """Return the plan of the first branch that fits, or else of the one that fits best."""
        best: tuple[int, Plan] = (-1, None)
        for branch, plan in choice.branches:
            if self._fits(branch, value):
                return plan
            likeness = self._likeness(branch, value)
            if likeness > best[0]:
                best = (likeness, plan)
        return best[1]

    def _fits(self, node: Node, value: object, *, deep: bool = True) -> bool:
        """Say whether a value has the type of a branch, its names and its fixed values."""
        schema = self._followed(node)
        if "anyOf" in schema:
            return any(self._fits(one, value, deep=deep) for one in nodes_of(schema["anyOf"]))
        if "const" in schema and not same(schema["const"], value):
            return False
        choices = schema.get("enum")
        if is_array(choices) and not any(same(one, value) for one in choices):
            return False
        if not has_type(value, schema.get("type")):
            return False
        if not deep or not is_object(value):
            return True
        members = named_nodes(schema.get("properties"))
        return members.keys() == value.keys() and all(
            self._fits(members[name], item, deep=False) for name, item in value.items()
        )

    def _likeness(self, node: Node, value: object) -> int:
        members = named_nodes(self._followed(node).get("properties"))
        if not is_object(value) or not members:
            return 0
        right = sum(
            self._fits(members[name], value[name]) for name in members.keys() & value.keys()
        )
        return 1 + right

    def _followed(self, node: Node) -> dict[str, object]:
        """Return the schema at the end of references; in strict form none is true or false."""
        schema = {} if isinstance(node, bool) else node
        while isinstance(reference := schema.get("$ref"), str):
            schema = self._restore.schemas[reference]
        return schema


def _nth(plan: Items, index: int) -> Plan:
    return plan.first[index] if index < len(plan.first) else plan.rest
