"""
What an annotation means: names that are written as text become the types they name.

Python keeps text for every annotation of a module with `from __future__ import annotations`, and
looks names up in the module alone. A type that is local to a function is not there. It is found
here in what the definition closes over, and in the functions and class bodies around it that still
run, which they do while a decorator is applied. When the function around has returned and nothing
closed over the type, the name is gone from Python itself and the declaration is refused.
"""

import dataclasses
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, ForwardRef, Literal, TypeVar, get_type_hints

from typing_extensions import Format, get_annotations

from ferrule.errors import DeclarationError

LOCAL = "<locals>"

Names = dict[str, Any]  # what stands behind a name may be anything, and `get_type_hints` says so


class Scope:
    """
    The names that the annotations of one function or class may use.

    They are looked for when an annotation first needs one. Looking at the variables of a running
    function makes it keep them until it ends, so it is not done for nothing.
    """

    __slots__ = ("_inner", "_locals", "_outer", "globals", "local")

    def __init__(
        self, names: Names, outer: Callable[[], Names], inner: Callable[[], Names]
    ) -> None:
        self.globals = names
        self.local = False
        self._outer = outer
        self._inner = inner
        self._locals: Names | None = None

    @property
    def locals(self) -> Names:
        """The names around and inside the definition; `local` is known once they are."""
        if self._locals is None:
            outer = self._outer()
            self.local = bool(outer)
            self._locals = {**outer, **self._inner()}
        return self._locals


def module_scope(module: str) -> Scope:
    """Return the scope of what stands in a module itself."""
    return Scope(vars(sys.modules[module]), dict, dict)


def function_scope(function: Callable[..., object]) -> Scope:
    """Return the scope of a plain function, as it is once all decorators are taken off."""
    names: Names = getattr(function, "__globals__", {})
    return Scope(names, lambda: _around_function(function, names), lambda: _parameters_of(function))


def _around_function(function: Callable[..., object], names: Names) -> Names:
    outer = _around(getattr(function, "__qualname__", ""), names)
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None) or ()
    for name, cell in zip(code.co_freevars if code else (), cells, strict=False):
        try:
            outer[name] = cell.cell_contents
        except ValueError:  # the variable is not assigned yet
            continue
    return outer


def class_scope(cls: type) -> Scope:
    """Return the scope of the annotations in the body of `cls`."""
    module = sys.modules.get(cls.__module__)
    names: Names = vars(module) if module else {}
    return Scope(
        names,
        lambda: _around_class(cls, names),
        lambda: {**vars(cls), **_parameters_of(cls)},
    )


def _around_class(cls: type, names: Names) -> Names:
    outer = _around(cls.__qualname__, names)
    if LOCAL in cls.__qualname__:
        outer.setdefault(cls.__name__, cls)
    return outer


def _parameters_of(owner: object) -> Names:
    """Return the type parameters that the syntax of PEP 695 declares for `owner`."""
    parameters: tuple[TypeVar, ...] = getattr(owner, "__type_params__", ())
    return {parameter.__name__: parameter for parameter in parameters}


def _around(qualname: str, names: Names) -> Names:
    """Return the names of the classes and running functions around a definition, inner last."""
    parts = qualname.split(".")[:-1]
    if not parts:
        return {}
    places = [".".join(parts[: end + 1]) for end, part in enumerate(parts) if part != LOCAL]
    running: dict[str, Mapping[str, object]] = {}
    frame: types.FrameType | None = sys._getframe()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the only way
    while frame is not None:
        place = frame.f_code.co_qualname
        if place in places and place not in running and frame.f_globals is names:
            running[place] = frame.f_locals
        frame = frame.f_back
    found: Names = {}
    for place in places:
        found.update(running.get(place) or _class_names(place, names))
    return found


def _class_names(place: str, names: Names) -> Mapping[str, object]:
    """Return the names in the body of a class of the module, or nothing."""
    owner: object = None
    scope: Mapping[str, object] = names
    for part in place.split("."):
        owner = scope.get(part)
        if not isinstance(owner, type):
            return {}
        scope = vars(owner)
    return scope


def evaluate(annotation: object, scope: Scope, *, where: str) -> Any:  # noqa: ANN401  # a hint
    """
    Return what `annotation` means, `Annotated` and qualifiers kept.

    Raises:
        DeclarationError: a name in it is not there, or it is no annotation at all.
    """
    if not has_text(annotation):
        return annotation
    try:
        return _resolve(annotation, scope.globals, scope.locals)
    except NameError as error:
        name = error.name or str(error)
        raise DeclarationError(
            f"{where}: the name `{name}` in its annotation is not known here; "
            "import it at run time (not only for type checkers), or define it before the tool "
            "in a scope that is still open when the tool is declared"
        ) from error
    except (TypeError, SyntaxError, AttributeError, ValueError) as error:
        raise DeclarationError(
            f"{where}: its annotation is not a type ({error}); write the type itself"
        ) from error


def _resolve(annotation: object, names: Names, inner: Names) -> Any:  # noqa: ANN401  # a hint
    if isinstance(annotation, str):
        # As in a class body, where `Final` and `ClassVar` may stand too.
        annotation = ForwardRef(annotation, is_argument=False, is_class=True)
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    # A mapping of its own for the locals: otherwise typing keeps what it once found in the text.
    return get_type_hints(holder, names, dict(inner), include_extras=True)["it"]


def has_text(annotation: object) -> bool:
    """Whether a name is still written as text somewhere in an annotation."""
    if isinstance(annotation, str | ForwardRef):
        return True
    arguments = getattr(annotation, "__args__", None)
    if not arguments or getattr(annotation, "__origin__", None) is Literal:  # its texts are values
        return False
    return any(map(has_text, arguments))


def means_the_same_elsewhere(annotation: object, hint: object, cls: type) -> bool:
    """Whether `annotation` of `cls` gives `hint` too when only its module is looked at."""
    module = sys.modules.get(cls.__module__)
    try:
        found = _resolve(annotation, vars(module) if module else {}, dict(vars(cls)))
    except (NameError, TypeError):
        return False
    return bool(found == hint)


def own_annotations(owner: Any) -> Mapping[str, object]:  # noqa: ANN401  # as inspect says
    """Return the annotations that a class itself has; what is not known stays text."""
    return get_annotations(owner, format=Format.FORWARDREF)


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """Return the signature of a function; what is not known stays text."""
    if sys.version_info >= (3, 14):  # pragma: no cover  # annotations are computed when asked for
        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def bindings(hint: object) -> dict[type, dict[object, object]]:
    """Return, for each generic class in the ancestry of `hint`, its variables and their types."""
    found: dict[type, dict[object, object]] = {}
    if isinstance(hint, type) and not hasattr(hint, "__orig_bases__"):
        return found
    waiting: list[tuple[object, Mapping[object, object]]] = [(hint, {})]
    while waiting:
        current, outer = waiting.pop()
        origin = getattr(current, "__origin__", current)
        arguments = getattr(current, "__args__", ()) if origin is not current else ()
        variables = getattr(origin, "__parameters__", ())
        if not isinstance(origin, type) or origin in found:
            continue
        inner: dict[object, object] = {
            variable: substitute(argument, outer)
            for variable, argument in zip(variables, arguments, strict=False)
        }
        found[origin] = inner
        bases = vars(origin).get("__orig_bases__", origin.__bases__)
        waiting.extend((base, inner) for base in bases)
    return found


def substitute(hint: Any, binding: Mapping[object, object]) -> Any:  # noqa: ANN401  # a hint
    """Return `hint` with the type variables in it replaced by what they are bound to."""
    if isinstance(hint, TypeVar):
        return binding.get(hint, hint)
    variables = getattr(hint, "__parameters__", ())
    if type(hint) is dataclasses.InitVar:
        whole: Any = hint  # pyright: ignore[reportUnknownVariableType]  # it has no more type
        return dataclasses.InitVar(substitute(whole.type, binding))
    if not binding or not variables or isinstance(hint, type):
        return hint
    return hint[tuple(binding.get(variable, variable) for variable in variables)]
