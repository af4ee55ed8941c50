"""
From a Python signature to data, once.

What is the model's, what is the harness's, and what cannot work at all. Each parameter is looked at
alone, so that a name that is not known in one never hides what another one says.
"""

import inspect
import logging
import pathlib
import typing
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, cast, get_args, get_origin

import msgspec

from ferrule._hidden import Hidden, Inject, Within
from ferrule.errors import DeclarationError
from ferrule.schema._annotations import Scope, evaluate, function_scope, signature_of
from ferrule.schema._constraints import facts_of, is_field
from ferrule.schema._docstring import Text, read
from ferrule.schema._shape import HiddenParameter, Kind, Parameter, Signature
from ferrule.schema._types import (
    NONE,
    NULL,
    UNIONS,
    Walk,
    accepts_null,
    bare,
    either,
    only_marker,
)

logger = logging.getLogger("ferrule")


def reflect(function: Callable[..., object], *, name: str | None = None) -> Signature:
    """
    Return what a function takes, gives and says, with every type resolved.

    Args:
        function: A function, bound method, `functools.partial` or callable object.
        name: The tool's name; the function's own if left out.

    Raises:
        DeclarationError: a model could not call it, and why, and what to write instead.
    """
    subject = _Subject(function, name)
    walk = Walk(rooted=True)
    visible: list[Parameter] = []
    hidden: list[HiddenParameter] = []
    for parameter in subject.parameters:
        hint = subject.hint_of(parameter)
        marker = _marker(hint)
        if marker is None or isinstance(marker, Within):
            visible.append(_visible(parameter, hint, marker, walk, subject))
        else:
            hidden.append(_hidden(parameter, hint, marker, visible, hidden, subject))
    unknown = subject.unknown_names()
    if unknown:
        names = ", ".join(unknown)
        logger.warning(
            "the docstring of %s describes what it does not have: %s", subject.name, names
        )
    return Signature(
        name=subject.name,
        parameters=tuple(visible),
        hidden=tuple(hidden),
        returns=subject.returns(),
        description=subject.text.description,
        reserved=frozenset(subject.bound | {parameter.name for parameter in hidden}),
        unknown=unknown,
    )


class _Subject:
    """A function that is to be a tool: what is called, and whose text and scope it has."""

    def __init__(self, function: Callable[..., object], name: str | None) -> None:
        plain, self.bound = _unpartial(function)
        _refuse_what_is_no_function(plain)
        described = plain
        if not inspect.isroutine(plain) and not hasattr(plain, "__wrapped__"):
            described = type(plain).__call__
        self.inner = inspect.unwrap(getattr(described, "__func__", described))
        self.name = _function_name(plain) if name is None else name
        self.text: Text = read(described.__doc__ or plain.__doc__)
        if inspect.isgeneratorfunction(self.inner) or inspect.isasyncgenfunction(self.inner):
            raise DeclarationError(
                f"`{self.name}` is a generator, and a tool gives one result; return a list, or "
                "report along the way with `context.progress(...)`"
            )
        try:
            self.signature = signature_of(function)
        except (ValueError, TypeError) as error:
            raise DeclarationError(
                f"the parameters of `{self.name}` cannot be seen ({error}); wrap it in a `def` "
                "with types"
            ) from error
        self._scope: Scope | None = None

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """What is still open: without what a `partial` has bound."""
        everything = self.signature.parameters.values()
        return [parameter for parameter in everything if parameter.name not in self.bound]

    def hint_of(self, parameter: inspect.Parameter) -> Any:  # noqa: ANN401  # a hint
        where = self.where(parameter.name)
        if parameter.annotation is parameter.empty:
            raise DeclarationError(self._untyped(parameter, where))
        return evaluate(parameter.annotation, self.scope, where=where)

    @property
    def scope(self) -> Scope:
        if self._scope is None:
            self._scope = function_scope(self.inner)
        return self._scope

    def where(self, parameter: str) -> str:
        return f"parameter `{parameter}` of `{self.name}`"

    def returns(self) -> object:
        annotation = self.signature.return_annotation
        if annotation is inspect.Signature.empty:
            return msgspec.UNSET
        return evaluate(annotation, self.scope, where=f"the return type of `{self.name}`")

    def unknown_names(self) -> tuple[str, ...]:
        """Return what only the docstring knows; somebody renamed a parameter there or here."""
        if not self.text.parameters:
            return ()
        code = getattr(self.inner, "__code__", None)
        known = (
            self.bound | self.signature.parameters.keys() | set(code.co_varnames if code else ())
        )
        return tuple(name for name in self.text.parameters if name not in known)

    def _untyped(self, parameter: inspect.Parameter, where: str) -> str:
        first = next(iter(self.signature.parameters.values())) is parameter
        if first and parameter.name in {"self", "cls"}:
            return (
                f"`{self.name}` is a method without its object; make the tool from the bound "
                f"method: `tool(obj.{self.name})`, or `tool(Class.{self.name})` of a class method"
            )
        return (
            f"{where} has no type; write one, as in `{parameter.name}: str` "
            f"(or `{parameter.name}: Any`)"
        )


def _unpartial(function: object) -> tuple[Any, set[str]]:
    """Return what a `partial` is of, and the names that it has bound by keyword."""
    bound: set[str] = set()
    while isinstance(function, partial):
        bound |= function.keywords.keys()
        function = function.func
    return function, bound


def _refuse_what_is_no_function(subject: object) -> None:
    if isinstance(subject, str):
        raise DeclarationError(f"tool() got the text {subject!r}; write `@tool(name={subject!r})`")
    if isinstance(subject, classmethod):
        name = inspect.unwrap(cast("Callable[..., object]", subject)).__name__
        raise DeclarationError(
            f"`{name}` is a class method that is not bound yet; below the class write "
            f"`tool(Class.{name})`"
        )
    if isinstance(subject, type):
        raise DeclarationError(
            f"`{subject.__name__}` is a class; write a function that makes one, or decorate one "
            "of its methods when it is bound: `tool(obj.method)`"
        )
    if not callable(subject):
        kind = type(subject).__name__
        raise DeclarationError(f"a tool is made from a function, and this is a {kind}")


def _function_name(subject: object) -> str:
    name: str = getattr(subject, "__name__", type(subject).__name__)
    if name == "<lambda>":
        raise DeclarationError(
            "a lambda has no name; write a `def`, or give one: `tool(name=...)(lambda ...)`"
        )
    return name


KINDS: dict[object, Kind] = {
    inspect.Parameter.POSITIONAL_ONLY: "positional_only",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional_or_keyword",
    inspect.Parameter.VAR_POSITIONAL: "var_positional",
    inspect.Parameter.KEYWORD_ONLY: "keyword_only",
    inspect.Parameter.VAR_KEYWORD: "var_keyword",
}
VARIADIC: set[Kind] = {"var_positional", "var_keyword"}


def _marker(hint: Any) -> Any:  # noqa: ANN401  # a subclass of Hidden, an Inject, a Within, or None
    """Return what hides a parameter, also when it may be None."""
    if type(hint) is type and not issubclass(hint, Hidden):  # What most hints are.
        return None
    if get_origin(hint) in UNIONS:
        parts = [part for part in get_args(hint) if part is not NONE]
        return _marker(parts[0]) if len(parts) == 1 else None
    inner, metadata = bare(hint)
    for item in metadata:
        if isinstance(item, Inject | Within):
            return item
    cls = get_origin(inner) or inner
    if isinstance(cls, type) and issubclass(cls, Hidden):
        return cls
    return None if inner is hint or isinstance(inner, type) else _marker(inner)


def _visible(
    parameter: inspect.Parameter,
    hint: Any,  # noqa: ANN401  # a hint
    within: Within | None,
    walk: Walk,
    subject: _Subject,
) -> Parameter:
    where = subject.where(parameter.name)
    kind = KINDS[parameter.kind]
    if kind in VARIADIC:  # each of its values has the type
        within = None
    default = msgspec.UNSET if parameter.default is parameter.empty else parameter.default
    if is_field(default):  # `n: int = Field(5, ge=1)`
        facts = facts_of([default])
        hint = Annotated[hint, default]
        default = facts.default if facts.factory is None else facts.factory()
    inner = hint if within is None else _without_within(hint, where)
    shape = walk.shape(inner, where)
    if default is None and not accepts_null(shape):
        shape = either(typing.Optional[inner], [shape, NULL])  # noqa: UP045  # at run time
    walk.refuse_unplaced(shape, msgspec.UNSET if within else default, where)
    return Parameter(
        name=parameter.name,
        kind=kind,
        hint=hint,
        shape=shape,
        required=default is msgspec.UNSET and kind not in VARIADIC,
        default=default,
        description=shape.description or subject.text.parameters.get(parameter.name, ""),
        within=within,
    )


def _without_within(hint: Any, where: str) -> Any:  # noqa: ANN401  # a hint
    """Return the type of a path that must stay below a root, which has to be a path."""
    if get_origin(hint) in UNIONS:
        (inner,) = (part for part in get_args(hint) if part is not NONE)
        return typing.Optional[_without_within(inner, where)]  # noqa: UP045  # made at run time
    inner, metadata = bare(hint)
    if not (isinstance(inner, type) and issubclass(inner, pathlib.PurePath)):
        raise DeclarationError(f"{where}: only a path can stay within a root; declare it as `Path`")
    only_marker([item for item in metadata if isinstance(item, Inject | Within)], where)
    rest = tuple(item for item in metadata if not isinstance(item, Within))
    return Annotated[(inner, *rest)] if rest else inner


def _hidden(
    parameter: inspect.Parameter,
    hint: object,
    marker: object,
    visible: list[Parameter],
    before: list[HiddenParameter],
    subject: _Subject,
) -> HiddenParameter:
    where = subject.where(parameter.name)
    kind = KINDS[parameter.kind]
    if kind in VARIADIC:
        raise DeclarationError(f"{where}: a variadic parameter cannot be hidden; name it alone")
    if isinstance(marker, type) and any(other.marker is marker for other in before):
        raise DeclarationError(f"{where}: a second `{marker.__name__}`; one is enough")
    return HiddenParameter(
        name=parameter.name,
        kind=kind,
        hint=hint,
        marker=marker,
        default=msgspec.UNSET if parameter.default is parameter.empty else parameter.default,
        position=sum(other.kind not in {"keyword_only", "var_keyword"} for other in visible),
    )
