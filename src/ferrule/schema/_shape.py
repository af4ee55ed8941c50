"""
The shape of a Python type: one frozen tree that schema, conversion and explanation read.

Reflecting happens once, in `_reflect`. Whoever comes after walks this tree and never looks at
annotations again. A type that contains itself is a `Recursive` node: the tree's only way back,
held by a `Cycle` that is compared by identity so that comparing two trees ends.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from ferrule._hidden import Within
from ferrule._secret import Secret

JsonType = Literal["string", "integer", "number", "boolean", "null"]
Family = Literal["dataclass", "typeddict", "namedtuple", "attrs", "struct", "pydantic"]
Kind = Literal[
    "positional_only",
    "positional_or_keyword",
    "var_positional",
    "keyword_only",
    "var_keyword",
]


class Check(msgspec.Struct, frozen=True):
    """
    A constraint that JSON Schema cannot speak, asked of the finished Python value.

    Attributes:
        expected: What would have been accepted, as a phrase.
        accepts: Whether a value is accepted.
    """

    expected: str
    accepts: Callable[[object], bool]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """
    What every shape has.

    Attributes:
        hint: The declared type, with names resolved and without its outer `Annotated`.
        description: Text for the model.
        keywords: Members that constraints and metadata add to the schema.
        checks: Constraints for the finished value.
        finish: Makes of the value what the function gets: a `Secret`, or a path `Within` a root.
        foreign: Only pydantic can make this value.
        plain: msgspec reads `hint` itself as this shape says.
    """

    hint: object
    description: str = ""
    keywords: tuple[tuple[str, object], ...] = ()
    checks: tuple[Check, ...] = ()
    finish: Callable[[Any], object] | None = None
    foreign: bool = False
    plain: bool = True


class Anything(Node, frozen=True, kw_only=True):
    """Any JSON value."""


class Scalar(Node, frozen=True, kw_only=True):
    """
    A single value, in text form where JSON has no form of its own.

    Attributes:
        type: Its JSON type.
        format: The `format` of its text form.
        measured: Length and pattern of the value are those of its text.
    """

    type: JsonType
    format: str = ""
    measured: bool = True


class Choice(Node, frozen=True, kw_only=True):
    """One of a few values: `members` are what the function gets for the JSON `values`."""

    values: tuple[object, ...]
    members: tuple[object, ...]


class Array(Node, frozen=True, kw_only=True):
    """
    A JSON array.

    Attributes:
        container: What the array becomes: `list`, `tuple`, `set`, `frozenset`, or a class.
        items: Shape of every item after `prefix`; None when there may be none.
        prefix: Shapes of the first items.
        least: How many of `prefix` must be there.
    """

    container: type
    items: "Shape | None"
    prefix: tuple["Shape", ...] = ()
    least: int = 0


class Map(Node, frozen=True, kw_only=True):
    """A JSON object with any names."""

    key: "Shape"
    values: "Shape"


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """
    One property of an object.

    Attributes:
        name: Its name in JSON.
        argument: Its name for the class that is built.
        shape: What it may be.
        required: Whether it must be there.
        default: Its value when left out, if it is a plain one.
    """

    name: str
    argument: str
    shape: "Shape"
    required: bool = True
    default: object = msgspec.UNSET


class Object(Node, frozen=True, kw_only=True):
    """
    A JSON object with known names.

    Attributes:
        cls: The class, without type arguments.
        family: Who defined how such a class is built.
        fields: Its properties, in declaration order.
        extra: Shape of other properties, for a class that asks for them.
        tag: Name and value of the property that tells tagged structs apart.
    """

    cls: type
    family: Family
    fields: tuple[Field, ...]
    extra: "Shape | None" = None
    tag: tuple[str, str | int] | None = None


class Union(Node, frozen=True, kw_only=True):
    """
    One of several shapes.

    Attributes:
        members: The shapes, in declaration order.
        tag: Name of the property that tells them apart, or empty.
    """

    members: tuple["Shape", ...]
    tag: str = ""


class Supplied(Node, frozen=True, kw_only=True):
    """A class that brings its own JSON Schema; `inner` is how its values are made, if known."""

    schema: dict[str, object]
    inner: "Shape | None" = None


class Foreign(Node, frozen=True, kw_only=True):
    """A type that only pydantic knows, schema and all."""


class Cycle:
    """
    The place in the tree where a type that contains itself is written out.

    Its `target` is there once the walk that found the cycle has ended.
    """

    __slots__ = ("name", "target", "used")

    target: "Shape"

    def __init__(self, name: str) -> None:
        self.name = name
        self.used = False


class Recursive(Node, frozen=True, kw_only=True):
    """A type that contains itself, by name."""

    cycle: Cycle


Shape: TypeAlias = (
    Anything | Scalar | Choice | Array | Map | Object | Union | Supplied | Foreign | Recursive
)


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """
    A parameter that the model gives.

    Attributes:
        name: Its name, in the function and in the schema.
        kind: How the function takes it.
        hint: The declared type, with names resolved and `Annotated` kept.
        shape: What the model may send; for `*args` and `**kwargs` the shape of one value.
        required: Whether the model must send it.
        default: What it is when left out; `UNSET` when required.
        description: Text for the model.
        within: The root that its path must stay below.
    """

    name: str
    kind: Kind
    hint: object
    shape: Shape
    required: bool
    default: object
    description: str
    within: object = None


class HiddenParameter(msgspec.Struct, frozen=True, kw_only=True):
    """
    A parameter that the harness gives.

    Attributes:
        name: Its name in the function.
        kind: How the function takes it.
        hint: The declared type, with names resolved and `Annotated` kept.
        marker: The subclass of `Hidden`, or the `Inject`.
        default: What it is when the harness has nothing; `UNSET` when it must have.
        position: How many visible parameters the function takes before it.
    """

    name: str
    kind: Kind
    hint: object
    marker: object
    default: object
    position: int


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """
    What is known about a function, once.

    Attributes:
        name: The tool's name.
        parameters: What the model gives, in declaration order.
        hidden: What the harness gives.
        returns: The declared return type with names resolved; `UNSET` when there is none.
        description: The docstring without its sections.
        reserved: Names that `**kwargs` must not take: hidden or already bound.
        unknown: Names that the docstring describes and the function does not have.
    """

    name: str
    parameters: tuple[Parameter, ...]
    hidden: tuple[HiddenParameter, ...]
    returns: object
    description: str
    reserved: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()


def children(shape: Shape) -> Sequence[Shape]:
    """Return the shapes directly below `shape`; a recursive one has none."""
    match shape:
        case Object(fields=fields, extra=extra):
            below = [field.shape for field in fields]
            return below if extra is None else [*below, extra]
        case Array(items=items, prefix=prefix):
            return prefix if items is None else (*prefix, items)
        case Map(key=key, values=values):
            return (key, values)
        case Union(members=members):
            return members
        case Supplied(inner=inner) if inner is not None:
            return (inner,)
        case _:
            return ()


def nodes(shape: Shape) -> list[Shape]:
    """Return `shape` and everything below it, each cycle once."""
    seen: set[Cycle] = set()
    found: list[Shape] = [shape]
    for node in found:  # it grows on the way
        if isinstance(node, Scalar):
            continue
        if not isinstance(node, Recursive):
            found.extend(children(node))
        elif node.cycle not in seen:
            seen.add(node.cycle)
            found.append(node.cycle.target)
    return found


def roots_in(shape: Shape) -> frozenset[str]:
    """Return the names of the roots that paths in a tree must stay below."""
    return frozenset(part.finish.root for part in nodes(shape) if isinstance(part.finish, Within))


def holds_secret(shape: Shape) -> bool:
    """Say whether something in a tree becomes a `Secret`."""
    return any(part.finish is Secret for part in nodes(shape))
