"""
From a Python type to its shape.

The theory. A hint is looked at in three steps, the same at every depth:

1. *Take off* what is around the type: `Annotated`, `NewType`, aliases, qualifiers. What stands
   beside the type there becomes `Facts`, and refines the shape when the type is known.
2. *Name* the type. One table says what each plain type is in JSON, one function each does the
   generic ones, and a class is asked who defined it.
3. *Refuse* everything else, by name. A type that got here without a form in JSON would be found
   out by a model, in a call.

The walk is our own, over the resolved hints, because the order of `Literal` values and of a
`TypedDict` is the author's, because `annotated_types` must reach schema and enforcement, and
because an unknown class must be refused: `msgspec.inspect` keeps none of the three.

Cycles: a class on the way down is on `self._open`. Meeting it again ends the walk with a
`Recursive` node, and marks its `Cycle` as used; the class is then written out once, under its name.
"""

import collections.abc
import copy
import datetime as dt
import decimal
import enum
import inspect
import pathlib
import sys
import types
import typing
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec
import typing_extensions

from ferrule._hidden import Hidden, Within
from ferrule._plain import is_object
from ferrule._secret import Secret
from ferrule.errors import DeclarationError
from ferrule.schema._annotations import evaluate, module_scope, substitute
from ferrule.schema._classes import Member, Members, family_of, members_of
from ferrule.schema._constraints import facts_of, refine
from ferrule.schema._defaults import TYPES
from ferrule.schema._docstring import read
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
    roots_in,
)

NONE = type(None)
NULL = Scalar(hint=NONE, type="null")

BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
"""With padding, and with no bits that mean nothing: not every decoder takes those."""
DECIMAL = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?$"
DURATION = "^P(?:[0-9]{1,8}D)?(?:T(?:[0-9]{1,6}H)?(?:[0-9]{1,7}M)?(?:[0-9]{1,7}S)?)?$"
"""What the decoder adds to `format`: nobody knows how long a month is, and a number has an end."""


def _text(hint: type, format: str = "", **keywords: object) -> Scalar:
    return Scalar(
        hint=hint,
        type="string",
        format=format,
        measured=False,
        keywords=tuple(keywords.items()),
    )


SCALARS: dict[object, Shape] = {
    bool: Scalar(hint=bool, type="boolean"),
    int: Scalar(hint=int, type="integer"),
    float: Scalar(hint=float, type="number"),
    str: Scalar(hint=str, type="string"),
    None: NULL,
    NONE: NULL,
    typing.LiteralString: Scalar(hint=str, type="string", plain=False),
    typing_extensions.LiteralString: Scalar(hint=str, type="string", plain=False),
    Any: Anything(hint=Any),
    typing_extensions.Any: Anything(hint=Any),
    object: Anything(hint=object),
    dt.datetime: _text(dt.datetime, "date-time"),
    dt.date: _text(dt.date, "date"),
    dt.time: _text(dt.time, "time"),
    dt.timedelta: _text(dt.timedelta, "duration", pattern=DURATION),
    uuid.UUID: _text(uuid.UUID, "uuid"),
    decimal.Decimal: _text(decimal.Decimal, pattern=DECIMAL),
    bytes: _text(bytes, contentEncoding="base64", pattern=BASE64),
    bytearray: _text(bytearray, contentEncoding="base64", pattern=BASE64),
}
"""What each plain type is in JSON."""

CONTAINERS: dict[object, type] = {
    list: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    set: set,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
    frozenset: frozenset,
}
"""What the function gets where a type of arrays is declared."""

MAPPINGS: set[object] = {dict, collections.abc.Mapping, collections.abc.MutableMapping}

HASHABLE = Union(
    hint=Any,
    members=(SCALARS[str], SCALARS[float], SCALARS[bool], NULL),
)
"""What a bare `set` may hold."""


def shape_of(hint: object, *, where: str) -> Shape:
    """
    Return the shape of a type, with every name in it resolved.

    Args:
        hint: The type.
        where: What declares it, for the sentence of a refusal: "parameter `x` of `f`".

    Raises:
        DeclarationError: it has no JSON form, or a name in it is not known.
    """
    return Walk().shape(hint, where)


class Walk:
    """
    One walk over the types of one declaration.

    Args:
        rooted: Whether somebody gives the roots that paths in it stay below.
    """

    def __init__(self, *, rooted: bool = False) -> None:
        self._rooted = rooted
        self._has_roots = False
        self._given: list[tuple[Shape, object, str]] = []
        self._open: dict[object, Cycle] = {}
        self._done: dict[object, Shape] = {}

    def shape(self, hint: Any, where: str) -> Shape:  # noqa: ANN401  # a hint
        """Return the shape of `hint`."""
        if isinstance(hint, type) and hint in SCALARS:
            return SCALARS[hint]
        inner, metadata = bare(hint)
        shape = self._named(inner, where)
        if not metadata:
            return shape
        facts = facts_of(metadata)
        shape = refine(shape, facts, where=where)
        if facts.markers:
            shape = self._marked(shape, facts.markers, where)
        # What pydantic alone can do stands beside the type, so pydantic needs that too.
        return msgspec.structs.replace(shape, hint=hint) if facts.foreign else shape

    def refuse_unplaced(self, shape: Shape, default: object, where: str) -> None:
        """
        Refuse defaults whose paths nobody would put below their root: of a parameter, and inside.

        Raises:
            DeclarationError: one holds something, and a path inside its type has a root.
        """
        if not self._has_roots:
            return
        for given, value, place in [*self._given, (shape, default, where)]:
            if not _is_empty(value) and roots_in(given):
                raise DeclarationError(
                    f"{place}: a default inside a type is not put below the root; use None or an "
                    "empty list, and choose the path in the function"
                )
        self._given.clear()

    def _marked(self, shape: Shape, markers: list[object], where: str) -> Shape:
        """Return the shape of a path inside a type that must stay below a root."""
        marker = only_marker(markers, where)
        if not (isinstance(marker, Within) and self._rooted):
            raise DeclarationError(
                f"{where}: `{type(marker).__name__}` stands inside a type; it can only be "
                "said of a parameter as a whole"
            )
        hint = shape.hint
        if shape.finish or not (isinstance(hint, type) and issubclass(hint, pathlib.PurePath)):
            raise DeclarationError(
                f"{where}: only a path can stay within a root; declare it as `Path`"
            )
        self._has_roots = True
        return msgspec.structs.replace(shape, finish=marker, plain=False)

    def _named(self, hint: Any, where: str) -> Shape:  # noqa: ANN401  # a hint
        origin = get_origin(hint)
        if origin is Literal:
            return _literal(hint, where)
        if origin in UNIONS:
            return self._union(hint, where)
        if isinstance(hint, TypeVar):
            return self._variable(hint, where)
        if isinstance(hint, ALIASES) or isinstance(origin, ALIASES):
            return self._named_once(hint, partial(self._alias, hint, where))
        if not isinstance(origin or hint, collections.abc.Hashable):
            raise _refused(hint, where)
        if origin is None and hint in SCALARS:
            return SCALARS[hint]
        if hint is typing.Self or hint is typing_extensions.Self:
            return self._itself(where)
        return self._generic(hint, origin or hint, where)

    def _generic(self, hint: Any, origin: Any, where: str) -> Shape:  # noqa: ANN401  # a hint
        if origin is tuple:
            return self._tuple(hint, where)
        if origin in CONTAINERS:
            return self._array(hint, CONTAINERS[origin], where)
        if origin in MAPPINGS:
            return self._map(hint, where)
        if not isinstance(origin, type):
            raise _refused(hint, where)
        if origin is Secret:
            return self._secret(hint, where)
        if issubclass(origin, Hidden):
            raise DeclarationError(
                f"{where}: `{origin.__name__}` is given by the harness and cannot stand inside "
                "another type; make it a parameter of its own"
            )
        if issubclass(origin, enum.Enum):
            return _enumeration(origin, where)
        if issubclass(origin, pathlib.PurePath):
            return Scalar(hint=origin, type="string")
        return self._named_once(hint, partial(self._class, hint, origin, where))

    # ---- arrays and maps

    def _array(self, hint: object, container: type, where: str) -> Shape:
        arguments = get_args(hint)
        unique = container in {set, frozenset}
        if arguments:
            items = self.shape(arguments[0], where)
        else:
            items = HASHABLE if unique else SCALARS[Any]
        if unique and not _hashable(items):
            raise DeclarationError(
                f"{where}: the items of a {container.__name__} must be hashable, and these are "
                "not; use a list"
            )
        plain = get_origin(hint) is not collections.abc.Iterable
        keywords = (("uniqueItems", True),) if unique else ()
        return Array(hint=hint, container=container, items=items, keywords=keywords, plain=plain)

    def _tuple(self, hint: object, where: str) -> Shape:
        arguments = get_args(hint)
        if hint is tuple or (len(arguments) == 2 and arguments[1] is ...):  # noqa: PLR2004  # X, ...
            items = self.shape(arguments[0] if arguments else Any, where)
            return Array(hint=hint, container=tuple, items=items)
        prefix = tuple(self.shape(argument, where) for argument in arguments)
        return Array(hint=hint, container=tuple, items=None, prefix=prefix, least=len(prefix))

    def _map(self, hint: object, where: str) -> Shape:
        key, values = get_args(hint) or (str, Any)
        names = self.shape(key, where)
        if not _is_name(names):
            raise DeclarationError(
                f"{where}: the keys of an object in JSON are strings; declare the keys as `str`, "
                "or as a `Literal` or an `Enum` of strings"
            )
        return Map(hint=hint, key=names, values=self.shape(values, where))

    def _secret(self, hint: object, where: str) -> Shape:
        """Return the shape of what a secret holds; the function gets the secret."""
        inside = get_args(hint)
        if not inside:
            raise DeclarationError(f"{where}: say what the secret holds, as in `Secret[str]`")
        shape = self.shape(inside[0], where)
        if shape.finish is not None:
            raise DeclarationError(f"{where}: a secret holds a plain value, not a secret or a root")
        return msgspec.structs.replace(shape, finish=Secret, plain=False)

    # ---- unions, variables, aliases

    def _union(self, hint: object, where: str) -> Shape:
        parts = [part for part in get_args(hint) if part is not msgspec.UnsetType]
        members: list[Shape] = []
        for part in parts:
            shape = self.shape(part, where)
            nested = isinstance(shape, Union) and not shape.tag and _says_nothing(shape)
            members.extend(shape.members if isinstance(shape, Union) and nested else [shape])
        _refuse_doubt(members, where)
        return either(hint, members)

    def _variable(self, variable: Any, where: str) -> Shape:  # noqa: ANN401  # PEP 696 is not in 3.11
        if getattr(variable, "has_default", bool)():
            shape = self.shape(variable.__default__, where)
        elif variable.__constraints__:
            shape = either(variable, [self.shape(c, where) for c in variable.__constraints__])
        else:
            bound = variable.__bound__
            shape = SCALARS[Any] if bound is None else self.shape(bound, where)
        return msgspec.structs.replace(shape, plain=False)

    def _alias(self, hint: Any, where: str) -> Shape:  # noqa: ANN401  # a hint
        origin = get_origin(hint)
        value = hint.__value__
        if origin is not None:
            pairs = zip(origin.__type_params__, get_args(hint), strict=True)
            value = substitute(origin.__value__, dict(pairs))
        scope = module_scope((origin or hint).__module__)
        shape = self.shape(evaluate(value, scope, where=where), where)
        return msgspec.structs.replace(shape, plain=False)

    def _itself(self, where: str) -> Shape:
        """Return the class around a `Self`."""
        around = [key for key in self._open if isinstance(get_origin(key) or key, type)]
        if not around:
            raise DeclarationError(f"{where}: `Self` stands outside a class; write the class")
        cycle = self._open[around[-1]]
        cycle.used = True
        return Recursive(hint=around[-1], cycle=cycle, plain=False)

    def _named_once(self, hint: object, walk: Callable[[], Shape]) -> Shape:
        """Walk a type that has a name, which may contain itself."""
        key = hint if _has_hash(hint) else id(hint)
        if key in self._done:
            return self._done[key]
        if cycle := self._open.get(key):
            cycle.used = True
            return Recursive(hint=hint, cycle=cycle)
        cycle = self._open[key] = Cycle(_name_of(hint))
        try:
            shape = walk()
        finally:
            del self._open[key]
        if cycle.used:
            cycle.target = shape
            shape = Recursive(hint=hint, cycle=cycle)
        self._done[key] = shape
        return shape

    # ---- classes

    def _class(self, hint: object, cls: type, where: str) -> Shape:
        family = family_of(cls)
        supplied = getattr(cls, "json_schema", None)
        if inspect.ismethod(supplied) and supplied.__self__ is cls:
            inner = None if family is None else self._members(hint, cls, where)
            return Supplied(hint=hint, schema=_supplied(supplied(), cls, where), inner=inner)
        if family is not None:
            return self._members(hint, cls, where)
        if hasattr(cls, "__get_pydantic_core_schema__"):
            return Foreign(hint=hint, foreign=True)
        raise _refused(hint, where)

    def _members(self, hint: object, cls: Any, where: str) -> Shape:  # noqa: ANN401  # any class
        family = family_of(cls)
        assert family is not None  # noqa: S101  # the callers looked
        if family == "pydantic" and getattr(cls, "__pydantic_root_model__", False):
            root = cls.__pydantic_fields__["root"]
            inner = self.shape(Annotated[root.annotation, root], where)
            return msgspec.structs.replace(inner, hint=hint, foreign=True)
        members = members_of(hint, cls, family, where=where)
        texts = _class_texts(cls)
        fields = tuple(self._field(member, texts, cls, where) for member in members.members)
        if members.listed:
            return _listed(hint, cls, members, fields)
        extra = members.extra
        return Object(
            hint=hint,
            cls=cls,
            family=family,
            fields=fields,
            plain=members.plain,
            foreign=members.foreign,
            extra=None if extra is msgspec.UNSET else self.shape(extra, where),
            tag=members.tag,
        )

    def _field(self, member: Member, texts: dict[str, str], cls: type, where: str) -> Field:
        where = f"{where}: field `{member.name}` of `{cls.__name__}`"
        shape = self.shape(member.hint, where)
        text = shape.description or member.description or texts.get(member.argument, "")
        default = member.default
        if member.factory is not None and member.factory in EMPTY:
            default = member.factory()
        elif self._rooted and not member.required:
            self._given.append((shape, member.factory or default, where))
        return Field(
            name=member.name,
            argument=member.argument,
            shape=msgspec.structs.replace(shape, description=text) if text else shape,
            required=member.required,
            default=default,
        )


def only_marker(markers: list[object], where: str) -> object:
    """
    Return the one marker that stands beside a type.

    Raises:
        DeclarationError: there are two, and only one could hold.
    """
    if len(markers) > 1:
        raise DeclarationError(f"{where}: two markers stand beside its type; keep one")
    return markers[0]


def _is_empty(default: object) -> bool:
    """Whether there is no path in a default, whatever it is for."""
    if default is None or default is msgspec.UNSET:
        return True
    return isinstance(default, collections.abc.Sized) and not default


UNIONS = {typing.Union, types.UnionType}
ALIASES: tuple[type, ...] = (typing_extensions.TypeAliasType,)
if sys.version_info >= (3, 12):  # pragma: no cover  # the same class on some versions
    ALIASES = (typing.TypeAliasType, typing_extensions.TypeAliasType)
ANYTHING = frozenset({*TYPES.values(), "array", "object"})
EMPTY: set[object] = {list, dict, set, frozenset, tuple}
"""Factories whose product is known without calling them for it."""


def _refused(hint: object, where: str) -> DeclarationError:
    return DeclarationError(
        f"{where}: `{_name_of(hint)}` has no form in JSON; use a plain type, a dataclass or a "
        "TypedDict, give the class a class method `json_schema()`, or let the harness give the "
        'value: `Annotated[..., Inject("name")]`'
    )


def _name_of(hint: object) -> str:
    """Return the name of a type as a reader of the schema should see it."""
    name: str = getattr(get_origin(hint) or hint, "__name__", None) or str(hint)
    arguments = get_args(hint)
    return f"{name}[{', '.join(map(_name_of, arguments))}]" if arguments else name


def bare(hint: Any) -> tuple[Any, tuple[object, ...]]:  # noqa: ANN401  # a hint
    """Take off what is around a type; what stands nearer to the type comes first."""
    metadata: tuple[object, ...] = ()
    while not isinstance(hint, type):
        if get_origin(hint) is Annotated:
            metadata = (*hint.__metadata__, *metadata)
            hint = hint.__origin__
        elif get_origin(hint) is Final:
            hint = hint.__args__[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        else:
            break
    return hint, metadata


def _has_hash(hint: object) -> bool:
    """Whether a hint can be looked up; metadata inside it may not be hashable."""
    try:
        hash(hint)
    except TypeError:
        return False
    return True


def _literal(hint: object, where: str) -> Shape:
    members = get_args(hint)
    values = tuple(_json_value(member, where) for member in members)
    plain = all(value is member for value, member in zip(values, members, strict=True))
    return Choice(hint=hint, values=values, members=members, plain=plain)


def _enumeration(cls: "type[enum.Enum]", where: str) -> Shape:
    members = tuple(cls)
    if not members:
        raise DeclarationError(f"{where}: the enum `{cls.__name__}` has no members; give it some")
    values = tuple(_json_value(member, where) for member in members)
    kinds = {type(value) for value in values}
    return Choice(hint=cls, values=values, members=members, plain=kinds in ({str}, {int}))


def _json_value(member: object, where: str) -> object:
    """Return a member of a `Literal` or an `Enum` as JSON has it: an enum's by its value."""
    value = member.value if isinstance(member, enum.Enum) else member
    for kind in (bool, str, int, float):
        if isinstance(value, kind):
            return value if type(value) is kind else kind(value)
    if value is None:
        return None
    raise DeclarationError(
        f"{where}: {member!r} has no form in JSON; use strings, numbers, booleans or None"
    )


def either(hint: object, members: Iterable[Shape]) -> Shape:
    """Return the union of some shapes, simplified where nothing is lost."""
    different: list[Shape] = []
    for member in members:
        if member not in different:
            different.append(member)
    if any(isinstance(m, Anything) and not m.foreign and _says_nothing(m) for m in different):
        return Anything(hint=hint, plain=False)
    if len(different) == 1:
        return different[0]
    return Union(hint=hint, members=tuple(different))


def _refuse_doubt(members: list[Shape], where: str) -> None:
    """Refuse a union in which a value may or may not be a secret, or below a root."""
    for index, member in enumerate(members):
        if member.finish is not None:
            others = [_kinds(other) for other in (*members[:index], *members[index + 1 :])]
            if any((_kinds(member) & kinds) - {"null"} for kinds in others):
                raise DeclarationError(
                    f"{where}: one value could be either of two members of a union, and one of "
                    "them is a Secret or has a root; keep one of the two"
                )


def _kinds(shape: Shape) -> frozenset[str]:
    """Return the JSON types of the values that a shape may take."""
    match shape:
        case Scalar(type="number"):
            return frozenset({"number", "integer"})
        case Scalar(type=kind):
            return frozenset({kind})
        case Choice(values=values):
            return frozenset(TYPES[type(value)] for value in values)
        case Array():
            return frozenset({"array"})
        case Map() | Object():
            return frozenset({"object"})
        case Union(members=members):
            return frozenset[str]().union(*map(_kinds, members))
        case _:
            return ANYTHING


def _says_nothing(shape: Shape) -> bool:
    """Whether a shape can be taken apart, or taken in by another, and nothing is lost."""
    return not (shape.description or shape.checks or shape.finish)


def _is_name(shape: Shape) -> bool:
    """Whether a shape may be the names of an object."""
    if shape.finish is not None:
        return False
    if isinstance(shape, Choice):
        return all(isinstance(value, str) for value in shape.values)
    return isinstance(shape, Scalar) and shape.hint is str


def _hashable(shape: Shape) -> bool:
    match shape:
        case Scalar(hint=hint):
            return hint is not bytearray
        case Choice():
            return True
        case Array(container=container, items=items, prefix=prefix):
            parts = prefix if items is None else (*prefix, items)
            frozen = issubclass(container, tuple | frozenset)
            return frozen and all(_hashable(part) for part in parts)
        case Union(members=members):
            return all(_hashable(member) for member in members)
        case Object(cls=cls) | Supplied(hint=type() as cls):
            return cls.__hash__ is not None  # a class that cannot be hashed says None
        case _:
            return False


def _supplied(schema: object, cls: type, where: str) -> dict[str, object]:
    """Return a detached copy of the schema that a class brings."""
    if not is_object(schema):
        raise DeclarationError(
            f"{where}: `{cls.__name__}.json_schema()` must return a dict that is a JSON Schema"
        )
    return copy.deepcopy(schema)


def _class_texts(cls: type) -> dict[str, str]:
    """Return what the docstrings of a class and its ancestors say of its members."""
    texts: dict[str, str] = {}
    for ancestor in reversed(cls.__mro__):
        written = ancestor.__dict__.get("__doc__")
        if isinstance(written, str) and "\n" in written and ancestor.__module__ != "builtins":
            texts.update(read(written).parameters)
    return texts


def _listed(hint: object, cls: type, members: Members, fields: tuple[Field, ...]) -> Shape:
    """Return the shape of a class that is an array in JSON."""
    prefix = tuple(field.shape for field in fields)
    least = sum(field.required for field in fields)
    if members.tag is not None:
        tag = members.tag[1]
        prefix = (Choice(hint=Literal[tag], values=(tag,), members=(tag,)), *prefix)
        least += 1
    return Array(
        hint=hint, container=cls, items=None, prefix=prefix, least=least, plain=members.plain
    )


def accepts_null(shape: Shape) -> bool:
    """Whether None is among what the type declares."""
    match shape:
        case Anything():
            return True
        case Scalar(type=kind):
            return kind == "null"
        case Choice(members=members):
            return any(member is None for member in members)
        case Union(members=members):
            return any(accepts_null(member) for member in members)
        case Recursive(cycle=cycle):
            return accepts_null(cycle.target)
        case _:
            return False
