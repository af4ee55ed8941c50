"""
The types that msgspec reads, made from shapes.

Where msgspec reads a declared type as the shape says, it gets that type. Where it does not (a name
that only a running function knows, an `InitVar`, an enum of mixed values, a bound on a date) it
gets a *stand-in*: a class of ours whose values are made by a function of ours. msgspec calls `make`
for a stand-in, and takes what comes back for an instance of it.
"""

import pathlib
import typing
from collections.abc import Callable, Mapping
from typing import Any, NotRequired, Protocol

import msgspec
from typing_extensions import TypedDict

from ferrule._plain import is_array, is_object
from ferrule.errors import InvalidCall
from ferrule.schema._shape import (
    Anything,
    Array,
    Choice,
    Cycle,
    Field,
    Foreign,
    Map,
    Object,
    Recursive,
    Scalar,
    Shape,
    Supplied,
    Union,
    nodes,
    roots_in,
)

Make = Callable[[object], object]

WHOLE = 2.0**53
"""Up to here a double is one integer and no other."""


class StandIn(type):
    """The class of stand-ins: everything that `make` returns counts as an instance."""

    make: Make

    def __instancecheck__(cls, instance: object) -> bool:
        """Return True: nobody else makes values of a stand-in."""
        return True


def stand_in(name: str, make: Make) -> Any:  # noqa: ANN401  # a type made at run time
    """Return a type whose values msgspec has made by `make`."""
    return StandIn(name, (), {"make": staticmethod(make)})


def made(kind: Any, value: object) -> object:  # noqa: ANN401  # as msgspec says
    """Make a value of a type that msgspec does not know: a stand-in, or a path."""
    if type(kind) is StandIn:
        return kind.make(value)
    if isinstance(value, str) and issubclass(kind, pathlib.PurePath):
        return kind(value)
    raise TypeError(f"expected {kind.__name__}")


def convert(value: object, kind: Any) -> Any:  # noqa: ANN401  # a value of a type made at run time
    """
    Return `value`, which was read from JSON, as a value of `kind`.

    Raises:
        msgspec.ValidationError: it is none.
    """
    return msgspec.convert(value, kind, str_keys=True, dec_hook=made)


def whole(value: object) -> object:
    """Return a copy in which floats without a fraction are integers, as JSON Schema sees them."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= WHOLE else value
    if is_object(value):
        return {name: whole(part) for name, part in value.items()}
    if is_array(value):
        return [whole(part) for part in value]
    return value


def is_plain(shape: Shape) -> bool:
    """Whether msgspec reads the declared type as the shape says, all the way down."""
    return all(_plain_itself(node) for node in nodes(shape))


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """
    What there is in a tree, found in one walk over it.

    Attributes:
        plain: msgspec reads the declared type as the shape says.
        foreign: Something in it only pydantic can make.
        divided: There is a union that must be told apart.
        builtin: Every scalar is one of JSON's own, or of msgspec's.
        keyed: Some map has keys that are more than text.
        roots: Names of the roots that paths in it stay below.
    """

    plain: bool
    foreign: bool
    divided: bool
    builtin: bool
    keyed: bool
    roots: frozenset[str]


BUILTIN = {str, int, float, bool, bytes, None, type(None)}


def survey(shape: Shape) -> Survey:
    """Return what there is in a tree."""
    plain = builtin = True
    foreign = divided = keyed = False
    for part in nodes(shape):
        plain = plain and _plain_itself(part)
        foreign = foreign or part.foreign
        match part:
            case Scalar(hint=hint):
                builtin = builtin and hint in BUILTIN
            case Union(members=members):
                divided = divided or len(members) > 1 + _nullable(part)
            case Map(key=key):
                keyed = keyed or key.hint is not str
            case _:
                pass
    return Survey(
        plain=plain,
        foreign=foreign,
        divided=divided,
        builtin=builtin,
        keyed=keyed,
        roots=frozenset() if plain else roots_in(shape),
    )


def _nullable(union: Union) -> bool:
    return any(isinstance(member, Scalar) and member.type == "null" for member in union.members)


def _plain_itself(node: Shape) -> bool:
    if isinstance(node, Recursive):
        return isinstance(node.cycle.target, Object | Array)  # a class; an alias is read forever
    supplied = isinstance(node, Supplied | Foreign)
    return node.plain and not (node.foreign or node.checks or node.finish or supplied)


class Natives:
    """
    Makes the types of one declaration, each class once.

    What only somebody else can make is made by what `foreign` returns for its shape.
    """

    def __init__(self, foreign: Callable[[Shape], Make]) -> None:
        self._foreign = foreign
        self._cycles: dict[Cycle, Any] = {}
        self._unwritten: list[Cycle] = []
        self._written: dict[Cycle, Any] = {}

    def checked_type_of(self, shape: Shape) -> Any:  # noqa: ANN401  # a type made at run time
        """
        Return the type that msgspec shall read, and make sure that it can.

        Raises:
            TypeError: some union in it is not one that msgspec can tell apart.
        """
        kind = _checked(self.type_of(shape))
        while self._unwritten:
            cycle = self._unwritten.pop()
            self._written[cycle] = _checked(self.type_of(cycle.target))
        return kind

    def type_of(self, shape: Shape) -> Any:  # noqa: ANN401  # a type made at run time
        """Return the type that msgspec shall read for `shape`."""
        if is_plain(shape):
            return shape.hint
        if shape.checks or shape.finish:
            return self._finished(shape)
        if shape.foreign:
            return self._made_elsewhere(shape)
        return self._rebuilt(shape)

    def _rebuilt(self, shape: Shape) -> Any:  # noqa: ANN401  # a type made at run time
        match shape:
            case Array():
                return self._array(shape)
            case Map(key=key, values=values):
                return dict[self.type_of(key), self.type_of(values)]  # type: ignore[misc]  # at run time
            case Object():
                return self._object(shape)
            case Union(members=members):
                return typing.Union[tuple(map(self.type_of, members))]  # noqa: UP007  # at run time
            case Supplied():
                return self._supplied(shape)
            case Recursive(cycle=cycle):
                return self._recursive(cycle)
            case Choice():
                return _table(shape)
            case _:
                return Any if isinstance(shape, Anything) else shape.hint

    def _made_elsewhere(self, shape: Shape) -> Any:  # noqa: ANN401  # a type made at run time
        make = self._foreign(shape)

        def read(value: object) -> object:
            try:
                return make(value)
            except InvalidCall as error:
                raise ValueError("expected a valid value") from error  # msgspec knows this one

        return stand_in("Foreign", read)

    def _finished(self, shape: Shape) -> Any:  # noqa: ANN401  # a type made at run time
        begun = msgspec.structs.replace(shape, checks=(), finish=None)
        kind = _checked(self.type_of(begun))
        checks, finish = shape.checks, shape.finish

        def make(value: object) -> object:
            result = convert(value, kind)
            for check in checks:
                if not check.accepts(result):
                    raise ValueError(f"expected {check.expected}")
            return result if finish is None else finish(result)

        return stand_in("Finished", make)

    def _array(self, shape: Array) -> Any:  # noqa: ANN401  # a type made at run time
        prefix = tuple(self.type_of(part) for part in shape.prefix)
        container: Any = shape.container
        if shape.items is not None:
            items = self.type_of(shape.items)
            return tuple[items, ...] if container is tuple else container[items]  # type: ignore[valid-type]  # at run time
        if container is tuple:
            return tuple[prefix]  # type: ignore[valid-type]  # made at run time
        if issubclass(container, msgspec.Struct):
            raise TypeError(f"msgspec cannot read all parts of {container.__name__}")
        fields = [(f"p{index}", part, msgspec.UNSET) for index, part in enumerate(prefix)]
        parts = _checked(msgspec.defstruct("Parts", fields, array_like=True))
        return stand_in(container.__name__, lambda value: container(*_given(convert(value, parts))))

    def _object(self, shape: Object) -> Any:  # noqa: ANN401  # a type made at run time
        if shape.family == "typeddict":
            named: Any = TypedDict
            return named(
                shape.cls.__name__,
                {field.name: self._optional(field) for field in shape.fields},
            )
        cls = shape.cls
        parts = _checked(self.struct("Parts", shape.fields))
        names = tuple(field.argument for field in shape.fields)

        def make(value: object) -> object:
            given = zip(names, msgspec.structs.astuple(convert(value, parts)), strict=True)
            return cls(**{name: part for name, part in given if part is not msgspec.UNSET})

        return stand_in(cls.__name__, make)

    def _optional(self, field: Field) -> Any:  # noqa: ANN401  # a type made at run time
        kind = self.type_of(field.shape)
        return kind if field.required else NotRequired[kind]

    def struct(self, name: str, fields: "tuple[Field, ...]") -> type[msgspec.Struct]:
        """Return a frozen struct with one field for each of `fields`, `UNSET` when left out."""
        kinds = [self.type_of(field.shape) for field in fields]
        names = [field.name for field in fields]
        defaults: list[object] = [
            msgspec.NODEFAULT if field.required else msgspec.UNSET for field in fields
        ]
        return struct(name, names, kinds, defaults)

    def _supplied(self, shape: Supplied) -> Any:  # noqa: ANN401  # a type made at run time
        if shape.inner is not None:
            return self.type_of(shape.inner)
        cls = typing.cast("_Class", typing.get_origin(shape.hint) or shape.hint)
        return stand_in(
            cls.__name__, lambda value: cls(**value) if is_object(value) else cls(value)
        )

    def _recursive(self, cycle: Cycle) -> Any:  # noqa: ANN401  # a type made at run time
        if cycle not in self._cycles:
            written = self._written
            self._unwritten.append(cycle)
            self._cycles[cycle] = stand_in(cycle.name, lambda value: convert(value, written[cycle]))
        return self._cycles[cycle]


def _checked(kind: Any) -> Any:  # noqa: ANN401  # a type made at run time
    """Return `kind`, which msgspec can read; making a decoder is how it says that it cannot."""
    msgspec.json.Decoder(kind)
    return kind


class _Class(Protocol):
    """A class that makes its values from what its own schema lets in."""

    __name__: str

    def __call__(self, *args: object, **members: object) -> object:
        """Make a value."""
        ...


def struct(
    name: str,
    names: list[str],
    kinds: list[Any],
    defaults: list[object],
    *,
    closed: bool = False,
) -> type[msgspec.Struct]:
    """
    Return a frozen struct whose fields have any names in JSON; a closed one refuses others.

    Its attributes are `p0`, `p1`, ...: a parameter may be called `__struct_fields__`.
    """
    attributes = [f"p{index}" for index in range(len(names))]
    fields = [
        (attribute, kind) if default is msgspec.NODEFAULT else (attribute, kind, default)
        for attribute, kind, default in zip(attributes, kinds, defaults, strict=True)
    ]
    renamed = dict(zip(attributes, names, strict=True))
    return msgspec.defstruct(
        name, fields, rename=renamed, frozen=True, kw_only=True, forbid_unknown_fields=closed
    )


def _given(parts: msgspec.Struct) -> list[object]:
    return [part for part in msgspec.structs.astuple(parts) if part is not msgspec.UNSET]


def _table(shape: Choice) -> Any:  # noqa: ANN401  # a type made at run time
    members: Mapping[tuple[type, object], object] = {
        (type(value), value): member
        for value, member in zip(shape.values, shape.members, strict=True)
    }

    def make(value: object) -> object:
        try:
            return members[type(value), value]
        except (KeyError, TypeError):
            raise ValueError("expected one of the listed values") from None

    return stand_in("Choice", make)
