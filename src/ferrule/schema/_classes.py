"""
The members of a class, whoever defined it: the standard library, attrs, msgspec or pydantic.

None of the optional packages is imported: what is read is what their documentation gives every
class of theirs (`__attrs_attrs__`, `model_fields`, ...).
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from typing import Annotated, Any, NotRequired, Required, get_origin

import msgspec
from typing_extensions import ReadOnly

from ferrule.schema._annotations import (
    Scope,
    bindings,
    class_scope,
    evaluate,
    has_text,
    means_the_same_elsewhere,
    own_annotations,
    substitute,
)
from ferrule.schema._shape import Family


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """
    One member of a class that a value of it is made from.

    Attributes:
        name: Its name in JSON.
        argument: Its name as an argument of the class.
        hint: Its type, with names resolved, qualifiers taken off and `Annotated` kept.
        required: Whether a value cannot be made without it.
        default: What it is when left out; `UNSET` when that is not a plain value.
        factory: What makes its default.
        description: Text for the model.
    """

    name: str
    argument: str
    hint: Any
    required: bool = True
    default: object = msgspec.UNSET
    factory: Callable[[], object] | None = None
    description: str = ""


class Members(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a class is made from.

    Attributes:
        family: Who defined how.
        members: Its members in declaration order.
        plain: msgspec makes it as its author meant.
        foreign: Only pydantic can make it.
        listed: In JSON it is an array.
        extra: Type of what else it takes; `UNSET` when nothing.
        tag: Name and value that tell it apart.
    """

    family: Family
    members: tuple[Member, ...]
    plain: bool = True
    foreign: bool = False
    listed: bool = False
    extra: object = msgspec.UNSET
    tag: tuple[str, str | int] | None = None


def family_of(cls: Any) -> Family | None:  # noqa: ANN401  # any class
    """Return who defined how `cls` is made, or None for any other class."""
    if hasattr(cls, "__pydantic_core_schema__") or hasattr(cls, "__pydantic_fields__"):
        return "pydantic"
    if issubclass(cls, msgspec.Struct):
        return "struct"
    if dataclasses.is_dataclass(cls):
        return "dataclass"
    if hasattr(cls, "__attrs_attrs__"):
        return "attrs"
    if hasattr(cls, "__total__") and issubclass(cls, dict):
        return "typeddict"
    if hasattr(cls, "_fields") and issubclass(cls, tuple):
        return "namedtuple"
    return None


def members_of(hint: Any, cls: type, family: Family, *, where: str) -> Members:  # noqa: ANN401  # a hint
    """
    Return the members of `cls`, with the type arguments that `hint` gives it.

    Raises:
        DeclarationError: a name in one of its annotations is not known.
    """
    if family == "pydantic":
        return _of_pydantic(cls)
    hints = _Hints(hint, cls, where)
    return _READERS[family](cls, hints)


class _Hints:
    """The resolved annotations of a class and its ancestors."""

    def __init__(self, hint: object, cls: type, where: str) -> None:
        self.cls = cls
        self.where = where
        self.plain = True
        self._bindings = bindings(hint)
        self._found: dict[str, tuple[object, type]] = {}
        for ancestor in reversed(cls.__mro__):
            for name, annotation in own_annotations(ancestor).items():
                self._found[name] = (annotation, ancestor)
        self._scopes: dict[type, Scope] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def names(self) -> Iterator[str]:
        return iter(self._found)

    def of(self, name: str) -> Any:  # noqa: ANN401  # a hint
        """Return the type of a member; one without a type takes anything."""
        if name not in self._found:
            return Any
        annotation, owner = self._found[name]
        hint = self._evaluated(annotation, owner, name) if has_text(annotation) else annotation
        return substitute(hint, self._bound_in(owner)) if self._bindings else hint

    def _evaluated(self, annotation: object, owner: type, name: str) -> object:
        scope = self._scopes.get(owner)
        if scope is None:
            scope = self._scopes[owner] = class_scope(owner)
        where = f"{self.where}: field `{name}` of `{self.cls.__name__}`"
        hint = evaluate(annotation, scope, where=where)
        if scope.local and not means_the_same_elsewhere(annotation, hint, owner):
            self.plain = False
        return hint

    def _bound_in(self, owner: type) -> Mapping[object, object]:
        if owner is self.cls and len(self._bindings) > 1:
            # A TypedDict copies the annotations of its bases, which its ancestry does not show.
            merged: dict[object, object] = {}
            for binding in reversed(self._bindings.values()):
                merged.update(binding)
            return merged
        return self._bindings.get(owner, {})


def _of_dataclass(cls: type, hints: _Hints) -> Members:
    declared: dict[str, dataclasses.Field[Any]] = vars_of_dataclass(cls)
    real = {field.name for field in dataclasses.fields(cls)}
    plain = True
    members: list[Member] = []
    arguments: Mapping[str, object] | None = None
    for name, field in declared.items():
        hint = hints.of(name) if name in real else None
        if name not in real:
            arguments = signature(cls).parameters if arguments is None else arguments
            if name not in arguments:  # a class variable
                continue
            hint = hints.of(name).type
            plain = False
        if not field.init:
            plain = False
            continue
        members.append(_dataclass_member(field, hint))
    return Members(family="dataclass", members=tuple(members), plain=plain and hints.plain)


def vars_of_dataclass(cls: Any) -> dict[str, dataclasses.Field[Any]]:  # noqa: ANN401  # any dataclass
    """Return all fields of a dataclass by name: also those only `__init__` knows."""
    fields: dict[str, dataclasses.Field[Any]] = cls.__dataclass_fields__
    return fields


def _dataclass_member(field: "dataclasses.Field[Any]", hint: object) -> Member:
    missing = dataclasses.MISSING
    factory: Any = field.default_factory
    made = factory is not missing
    return Member(
        name=field.name,
        argument=field.name,
        hint=hint,
        required=field.default is missing and not made,
        default=msgspec.UNSET if field.default is missing else field.default,
        factory=factory if made else None,
        description=getattr(field, "doc", None) or "",
    )


def _of_attrs(cls: Any, hints: _Hints) -> Members:  # noqa: ANN401  # a class of an optional package
    plain = True
    members: list[Member] = []
    for attribute in cls.__attrs_attrs__:
        if not attribute.init or attribute.converter is not None:
            plain = False  # msgspec sets what it reads, and asks no converter
        if not attribute.init:
            continue
        known = attribute.name in hints or not isinstance(attribute.type, type)
        factory = getattr(attribute.default, "factory", None)
        required = getattr(attribute.default, "name", "") == "NOTHING"
        members.append(
            Member(
                name=attribute.name,
                argument=attribute.alias or attribute.name,
                hint=hints.of(attribute.name) if known else attribute.type,
                required=required,
                default=msgspec.UNSET if required or factory else attribute.default,
                factory=factory,
            )
        )
    return Members(family="attrs", members=tuple(members), plain=plain and hints.plain)


def _of_namedtuple(cls: Any, hints: _Hints) -> Members:  # noqa: ANN401  # any named tuple
    defaults: Mapping[str, object] = cls._field_defaults
    members = tuple(
        Member(
            name=name,
            argument=name,
            hint=hints.of(name),
            required=name not in defaults,
            default=defaults.get(name, msgspec.UNSET),
        )
        for name in cls._fields
    )
    return Members(family="namedtuple", members=members, plain=hints.plain, listed=True)


def _of_typeddict(cls: Any, hints: _Hints) -> Members:  # noqa: ANN401  # any TypedDict
    members: list[Member] = []
    for name in hints.names():
        hint, required = _qualified(hints.of(name), required=name in cls.__required_keys__)
        members.append(Member(name=name, argument=name, hint=hint, required=required))
    return Members(family="typeddict", members=tuple(members), plain=hints.plain)


def _qualified(hint: Any, *, required: bool) -> tuple[Any, bool]:  # noqa: ANN401  # a hint
    """
    Take `Required`, `NotRequired` and `ReadOnly` off, wherever they stand around a type.

    What the annotation says counts, and not `__required_keys__`: that one does not see into
    annotations that are kept as text.
    """
    origin = get_origin(hint)
    if origin is Annotated:
        inner, required = _qualified(hint.__origin__, required=required)
        return (Annotated[(inner, *hint.__metadata__)], required)
    if origin in {Required, NotRequired, ReadOnly}:
        kept = required if origin is ReadOnly else origin is Required
        return _qualified(hint.__args__[0], required=kept)
    return hint, required


def _of_struct(cls: Any, hints: _Hints) -> Members:  # noqa: ANN401  # any struct
    config = cls.__struct_config__
    names: tuple[str, ...] = cls.__struct_fields__
    defaults = (msgspec.NODEFAULT,) * (len(names) - len(cls.__struct_defaults__))
    defaults += cls.__struct_defaults__
    members = tuple(
        _struct_member(name, encoded, default, hints.of(name))
        for name, encoded, default in zip(
            names, cls.__struct_encode_fields__, defaults, strict=True
        )
    )
    tag = None if config.tag is None else (config.tag_field, config.tag)
    return Members(
        family="struct", members=members, plain=hints.plain, listed=config.array_like, tag=tag
    )


def _struct_member(name: str, encoded: str, default: object, hint: object) -> Member:
    # msgspec wraps a factory in a class of its own, which has no public name.
    factory = getattr(default, "factory", None) if type(default).__name__ == "Factory" else None
    plain = default is not msgspec.NODEFAULT and factory is None
    return Member(
        name=encoded,
        argument=name,
        hint=hint,
        required=default is msgspec.NODEFAULT,
        default=default if plain else msgspec.UNSET,
        factory=factory,
    )


def _of_pydantic(cls: Any) -> Members:  # noqa: ANN401  # a class of an optional package
    if not getattr(cls, "__pydantic_complete__", True):
        cls.model_rebuild(raise_errors=False, _types_namespace=class_scope(cls).locals)
    members = tuple(
        Member(
            name=_pydantic_name(cls, name, field),
            argument=name,
            hint=Annotated[field.annotation, field],
            required=field.is_required(),
            default=msgspec.UNSET if field.is_required() else field.default,
            factory=field.default_factory,
        )
        for name, field in cls.__pydantic_fields__.items()
        if getattr(field, "init", None) is not False
    )
    extra: object = Any if _configuration(cls).get("extra") == "allow" else msgspec.UNSET
    return Members(family="pydantic", members=members, plain=False, foreign=True, extra=extra)


def _configuration(cls: object) -> Mapping[str, object]:
    """Return the configuration of a pydantic model or dataclass."""
    empty: Mapping[str, object] = {}
    return getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None) or empty


def _pydantic_name(cls: Any, name: str, field: Any) -> str:  # noqa: ANN401  # optional package
    """Return the name that a field has in JSON: its alias, unless the model goes by names."""
    if _configuration(cls).get("validate_by_alias") is False:
        return name
    alias = field.validation_alias or field.alias or name
    if isinstance(alias, str):
        return alias
    choices = [choice for choice in getattr(alias, "choices", ()) if isinstance(choice, str)]
    return choices[0] if choices else name


_READERS: dict[str, Callable[[Any, _Hints], Members]] = {
    "dataclass": _of_dataclass,
    "attrs": _of_attrs,
    "namedtuple": _of_namedtuple,
    "typeddict": _of_typeddict,
    "struct": _of_struct,
}
