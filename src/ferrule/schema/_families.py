"""
Who converts what: msgspec natively, pydantic what only pydantic can.

msgspec reads everything that has one form in JSON for each part of a union. A parameter whose type
holds a pydantic model, or a union that msgspec cannot tell apart (two dataclasses, two kinds of
lists), goes to pydantic as a whole. pydantic is loaded when such a type appears, and not before.
"""

import contextlib
import copy
import importlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Optional, Protocol, cast

import msgspec

from ferrule._hidden import placing
from ferrule._near import shown
from ferrule.errors import DeclarationError, InvalidCall, Problem
from ferrule.schema._native import (
    BUILTIN,
    Natives,
    Survey,
    convert,
    stand_in,
    struct,
    survey,
    whole,
)
from ferrule.schema._refusal import refusal
from ferrule.schema._shape import (
    Anything,
    Array,
    Choice,
    HiddenParameter,
    Map,
    Parameter,
    Scalar,
    Shape,
    Signature,
    Union,
    nodes,
    roots_in,
)
from ferrule.schema._types import shape_of

MUTABLE = (list, dict, set, bytearray, deque)
CLASSES = ("__dataclass_fields__", "__attrs_attrs__", "__struct_fields__", "__pydantic_fields__")
REST = "**"
"""Key under which further arguments stand while a call is converted; no parameter is called so."""


class Pydantic(Protocol):
    """What is needed of `ferrule.schema._pydantic`."""

    def reader(self, hint: object, name: str, roots: frozenset[str]) -> Callable[[object], object]:
        """Return what makes a value of `hint` from what was read from JSON."""
        ...

    def schema(self, hint: object) -> dict[str, object]:
        """Return the JSON Schema of a type that only pydantic knows."""
        ...


def pydantic(where: str) -> Pydantic:
    """
    Return pydantic's side, loading pydantic if need be.

    Raises:
        DeclarationError: pydantic is not installed.
    """
    try:
        return cast("Pydantic", importlib.import_module("ferrule.schema._pydantic"))
    except ModuleNotFoundError as error:
        raise DeclarationError(
            f"{where}: its type needs pydantic, which is not here; "
            "pip install 'ferrule[pydantic]', or use a type that JSON can tell apart"
        ) from error


def foreign_schema(hint: object) -> dict[str, object]:
    """Return the schema of a type that only pydantic knows."""
    return pydantic(f"`{getattr(hint, '__name__', hint)}`").schema(hint)


def foreign_reader(shape: Shape) -> Callable[[object], object]:
    """Return what makes values of a type inside one of msgspec's."""
    where = f"`{getattr(shape.hint, '__name__', shape.hint)}`"
    return pydantic(where).reader(shape.hint, "", roots_in(shape))


class Reader:
    """Makes typed values of one type from what was read from JSON; holds no function of a tool."""

    __slots__ = ("_columns", "_kind", "_natives")

    def __init__(self, hint: object, *, where: str) -> None:
        self._natives = Natives(foreign_reader)
        column = _column("", hint, shape_of(hint, where=where), self._natives, where)
        self._columns = (column,)
        self._kind = struct("Value", [""], [column.kind], [msgspec.NODEFAULT])

    def __call__(self, value: object) -> object:
        """
        Return `value` as its declared type.

        Raises:
            InvalidCall: it is none; each problem has its path.
        """
        arguments = {"": value}
        try:
            done = convert(arguments, self._kind)
        except (msgspec.ValidationError, InvalidCall):
            done = _second_look(arguments, self._kind, self._columns, self._natives)
        return msgspec.structs.astuple(done)[0]


def convert_to(hint: object, *, where: str = "the type") -> Reader:
    """
    Return what makes values of `hint`, for answers, states and `decode`.

    Bounds that JSON Schema can speak of are the schema's to enforce, and are not looked at again.

    Raises:
        DeclarationError: the type has no JSON form.
    """
    return Reader(hint, where=where)


def converter(signature: Signature, *, closed: bool = True) -> "Converter":
    """
    Return what turns arguments that a schema has let in into typed ones.

    Args:
        signature: What `reflect` returned.
        closed: Whether a name that the function does not take is refused, or passed over.

    Raises:
        DeclarationError: a parameter's type cannot be made from JSON.
    """
    made = Converter(signature, closed=closed)
    return RootedConverter(signature, closed=closed) if any(made.roots) else made


class Converter:
    """
    Turns arguments into typed ones, and those into the call of a function it does not hold.

    Immutable, and safe for concurrent use.
    """

    __slots__ = (
        "_columns",
        "_hidden",
        "_keywords",
        "_kind",
        "_natives",
        "_open",
        "_positional",
        "_quick",
        "_reserved",
        "_simple",
        "_variadic",
        "quick",
        "roots",
    )

    quick: type[msgspec.Struct] | None
    """
    The type to which msgspec converts strictly just what the generated schema takes, so that
    nobody need ask the schema as well; `None` where it does not.
    """
    roots: tuple[frozenset[str], ...]
    """For each visible parameter, the roots that paths inside its type stay below."""

    def __init__(self, signature: Signature, *, closed: bool) -> None:
        parameters = signature.parameters
        self._natives = Natives(foreign_reader)
        self._columns = tuple(_column_of(p, self._natives, signature.name) for p in parameters)
        self.roots = tuple(column.survey.roots for column in self._columns)
        names = [column.name for column in self._columns]
        kinds = [column.kind for column in self._columns]
        defaults = [_default(p, signature.name) for p in parameters]
        self._kind = struct("Arguments", names, kinds, defaults, closed=closed)
        self._quick = _quick(self._kind, self._columns)
        self._open = frozenset(names) if REST in names else None
        exact = closed and self._open is None and all(map(_is_exact, self._columns))
        self.quick = self._kind if exact else None
        self._reserved = signature.reserved
        self._hidden = signature.hidden
        positional = [p for p in parameters if p.kind.startswith("positional")]
        self._positional = len(positional)
        self._variadic = any(p.kind == "var_positional" for p in parameters)
        self._keywords = [p.name for p in parameters if p.kind == "keyword_only"]
        self._simple = len(positional) == len(parameters) and not signature.hidden

    def __call__(self, arguments: dict[str, object]) -> msgspec.Struct:
        """
        Return the typed value: a frozen struct with one field for each visible parameter.

        Raises:
            InvalidCall: a value that only its type can refuse; each problem has its path.
        """
        if self._open is not None:
            arguments = self._gathered(arguments, self._open)
        try:
            done = self._quick(arguments)
        except (msgspec.ValidationError, InvalidCall):
            return _second_look(arguments, self._kind, self._columns, self._natives)
        return done

    def call_parts(
        self, value: msgspec.Struct, hidden: Mapping[str, object] | None = None
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """
        Return the positional and the keyword arguments of the call.

        Args:
            value: What calling this converter gave.
            hidden: Values of hidden parameters by name; one that is not in it has its default.
        """
        parts = msgspec.structs.astuple(value)
        if self._simple:
            return parts, {}
        given = list(parts[: self._positional])
        after = self._positional + self._variadic
        keywords = dict(zip(self._keywords, parts[after:], strict=False))
        for index, parameter in enumerate(self._positional_hidden()):
            given.insert(parameter.position + index, _hidden_value(parameter, hidden))
        for parameter in self._hidden:
            if parameter.kind == "keyword_only":
                keywords[parameter.name] = _hidden_value(parameter, hidden)
        if self._variadic:
            given.extend(cast("tuple[object, ...]", parts[self._positional]))
        if self._open is not None:
            keywords.update(cast("dict[str, object]", parts[-1]))
        return tuple(given), keywords

    def _positional_hidden(self) -> list[HiddenParameter]:
        return [parameter for parameter in self._hidden if parameter.kind != "keyword_only"]

    def _gathered(self, arguments: dict[str, object], names: frozenset[str]) -> dict[str, object]:
        """Move further arguments into one map; a name that is not the model's is unknown."""
        known: dict[str, object] = {}
        rest: dict[str, object] = {}
        for name, value in arguments.items():
            (known if name in names and name != REST else rest)[name] = value
        taken = sorted(self._reserved & rest.keys())
        if taken:
            raise InvalidCall("invalid_arguments", [unknown(name) for name in taken])
        known[REST] = rest
        return known


class RootedConverter(Converter):
    """Turns the arguments of a tool in whose types there are paths below a root."""

    __slots__ = ()

    def __call__(self, arguments: dict[str, object]) -> msgspec.Struct:
        """Return the typed value with its paths as written: where they lead is asked later."""
        with placing(None):
            return super().__call__(arguments)

    def placed(self, arguments: dict[str, object], roots: Mapping[str, Path]) -> msgspec.Struct:
        """
        Return the typed value with its paths below their roots.

        Raises:
            InvalidCall: a path leaves its root.
        """
        with placing(roots):
            return super().__call__(arguments)


class _Column(msgspec.Struct, frozen=True):
    """One argument: its name in JSON, its shape, and what makes its value."""

    name: str
    shape: Shape
    kind: Any
    survey: Survey
    reader: Callable[[object], object] | None = None


def _column_of(parameter: Parameter, natives: Natives, function: str) -> _Column:
    name, hint, shape = parameter.name, parameter.hint, parameter.shape
    if parameter.within is not None:
        hint = shape.hint
    if parameter.kind == "var_positional":
        hint = tuple[hint, ...]  # type: ignore[valid-type]  # made at run time
        shape = Array(hint=hint, container=tuple, items=shape)
    elif parameter.kind == "var_keyword":
        name, hint = REST, dict[str, hint]  # type: ignore[valid-type]  # made at run time
        shape = Map(hint=hint, key=Scalar(hint=str, type="string"), values=shape)
    elif parameter.default is None:
        hint = Optional[hint]  # noqa: UP045  # made at run time
    return _column(name, hint, shape, natives, f"parameter `{parameter.name}` of `{function}`")


def _column(name: str, hint: object, shape: Shape, natives: Natives, where: str) -> _Column:
    """Decide who makes a value: msgspec if it can, pydantic if only it can."""
    found = survey(shape)
    if found.plain and not found.divided:
        return _Column(name, shape, shape.hint, found)

    def by_msgspec() -> _Column:
        return _Column(name, shape, natives.checked_type_of(shape), found)

    def by_pydantic() -> _Column:
        reader = pydantic(where).reader(hint, "" if name == REST else name, found.roots)
        return _Column(name, shape, stand_in(name, reader), found, reader)

    # With a model in it, pydantic is the faster one to make all of it, if it knows all of it.
    first, second = (by_pydantic, by_msgspec) if found.foreign else (by_msgspec, by_pydantic)
    with contextlib.suppress(TypeError):
        return first()
    try:
        return second()
    except TypeError as error:
        raise DeclarationError(
            f"{where}: neither msgspec nor pydantic can make its type ({error}); keep pydantic "
            "models apart from attrs classes and structs, or use a type that JSON can tell apart"
        ) from error


def _quick(
    kind: type[msgspec.Struct], columns: Sequence[_Column]
) -> Callable[[object], msgspec.Struct]:
    """
    Return the conversion that every call runs: with no more of msgspec's options than are needed.

    Each option makes it slower, keys that are no strings three times. What is refused for want of
    one is converted again by `_second_look`, with all of them.
    """
    surveys = [column.survey for column in columns if column.reader is None]
    if len(surveys) < len(columns) or not all(found.plain and found.builtin for found in surveys):
        return partial(convert, kind=kind)
    if any(found.keyed for found in surveys):
        return partial(msgspec.convert, type=kind, str_keys=True)
    return partial(msgspec.convert, type=kind)


def _is_exact(column: _Column) -> bool:
    """Say whether msgspec takes exactly the values that the column's schema takes, or fewer."""
    return column.reader is None and all(map(_is_exact_itself, nodes(column.shape)))


def _is_exact_itself(node: Shape) -> bool:
    if node.keywords or node.checks or node.foreign or not node.plain:
        return False
    match node:
        case Scalar(hint=hint, format=text_form):
            return hint in BUILTIN - {bytes} and not text_form
        case Array(container=container, prefix=prefix):
            return container is list and not prefix
        case Map(key=key):
            return key.hint is str
        case Choice(values=values):
            return all(type(value) is str for value in values)
        case _:
            return isinstance(node, Anything | Union)


def _default(parameter: Parameter, function: str) -> object:
    """Return what a parameter is when left out: for each call its own, if it can change."""
    default = parameter.default
    if parameter.required or parameter.kind == "var_keyword":
        return msgspec.NODEFAULT
    if parameter.kind == "var_positional":
        return ()
    if not _can_change(default):
        return default
    try:
        copy.deepcopy(default)
    except (TypeError, copy.Error) as error:
        raise DeclarationError(
            f"parameter `{parameter.name}` of `{function}`: its default cannot be copied for "
            f"each call ({error}); use None, and make it in the function"
        ) from error
    return msgspec.field(default_factory=partial(copy.deepcopy, default))


def _can_change(value: object) -> bool:
    if type(value) in BUILTIN:
        return False
    return isinstance(value, MUTABLE) or any(hasattr(value, name) for name in CLASSES)


def _hidden_value(parameter: HiddenParameter, hidden: Mapping[str, object] | None) -> object:
    if hidden is not None and parameter.name in hidden:
        return hidden[parameter.name]
    if parameter.default is msgspec.UNSET:
        raise LookupError(f"nobody gave the hidden parameter `{parameter.name}`")
    return parameter.default


def _second_look(
    arguments: dict[str, object],
    kind: type[msgspec.Struct],
    columns: Sequence[_Column],
    natives: Natives,
) -> msgspec.Struct:
    """Convert again with whole floats as integers; explain it if that is refused too."""
    exact = {name: whole(value) for name, value in arguments.items()}
    try:
        done: msgspec.Struct = convert(exact, kind)
    except (msgspec.ValidationError, InvalidCall):
        problems: list[Problem] = []
        for column in columns:
            if column.name in exact:
                problems.extend(_problems(column, exact[column.name], natives))
        raise InvalidCall("invalid_arguments", problems or [MISFIT]) from None
    return done


MISFIT = Problem(path="", rule="type", expected="expected arguments that fit the schema")


def _problems(column: _Column, value: object, natives: Natives) -> Sequence[Problem]:
    try:
        convert({"": value}, struct("Value", [""], [column.kind], [msgspec.NODEFAULT]))
    except InvalidCall as error:
        return error.problems
    except msgspec.ValidationError:
        steps = () if column.name in {"", REST} else (column.name,)
        return refusal(column.shape, value, natives, steps)
    return ()


def unknown(name: str) -> Problem:
    """Return the problem of an argument that the tool does not have."""
    return Problem(
        path="",
        rule="additionalProperties",
        expected=f"`{shown(name)}` is no argument of this tool",
    )
