"""
What stands beside a type in `Annotated`: text, bounds, and whose they are.

`annotated_types`, `msgspec.Meta`, `pydantic.Field` and `typing_extensions.Doc` are read by the
attributes that their documentation names, so that none of those packages must be there. Metadata of
any other package is not for us, as `typing` asks, and is left alone.

A bound becomes a keyword of the schema where JSON Schema can speak of it, and a `Check` of the
finished value where it cannot: nobody can say in JSON Schema that a date is before another.
"""

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from ferrule._hidden import Inject, Within
from ferrule._plain import is_object
from ferrule.errors import DeclarationError
from ferrule.schema._shape import Array, Check, Map, Scalar, Shape, Union

NUMBERS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
TEXTS = {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}
ARRAYS = {"min_length": "minItems", "max_length": "maxItems"}
MAPS = {"min_length": "minProperties", "max_length": "maxProperties"}
BOUNDS = (*NUMBERS, *TEXTS)

COMPARED: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "ge": (operator.ge, "at least {}"),
    "gt": (operator.gt, "more than {}"),
    "le": (operator.le, "at most {}"),
    "lt": (operator.lt, "less than {}"),
    "multiple_of": (lambda value, step: not value % step, "a multiple of {}"),
    "min_length": (lambda value, length: len(value) >= length, "at least {} long"),
    "max_length": (lambda value, length: len(value) <= length, "at most {} long"),
}
NARROWER: dict[str, Callable[..., Any]] = {
    "minimum": max,
    "exclusiveMinimum": max,
    "minLength": max,
    "minItems": max,
    "minProperties": max,
    "maximum": min,
    "exclusiveMaximum": min,
    "maxLength": min,
    "maxItems": min,
    "maxProperties": min,
}

BUILTIN: set[object] = {str, int, float}
READ_HERE = {"annotated_types", "msgspec", "pydantic", "typing", "typing_extensions"}
SAID_ANYWAY = {"Strict", "FailFast", "AllowInfNan"}
"""Names of pydantic's metadata that say what holds here for every value."""
GENERAL_SAID_ANYWAY = {"pattern", "strict", "allow_inf_nan", "union_mode"}


class Facts(msgspec.Struct, kw_only=True):
    """Everything that the metadata of one annotation says."""

    description: str = ""
    keywords: dict[str, object] = {}
    bounds: list[tuple[str, object]] = []
    predicates: list[Check] = []
    discriminator: str = ""
    foreign: bool = False
    default: object = msgspec.UNSET
    factory: Callable[[], object] | None = None
    markers: list[object] = []


def facts_of(metadata: Iterable[object]) -> Facts:
    """Return what the items of an `Annotated` say, a later one after an earlier one."""
    facts = Facts()
    for item in metadata:
        _read(item, facts)
    return facts


def _read(item: Any, facts: Facts) -> None:  # noqa: ANN401  # metadata may be anything
    root = type(item).__module__.partition(".")[0]
    if isinstance(item, Inject | Within):
        facts.markers.append(item)
    elif root not in READ_HERE:
        return
    elif is_field(item):
        _read_field(item, facts)
    elif isinstance(item, Iterable):  # a group: `Interval`, `Len`
        for part in _group(item):
            _read(part, facts)
    else:
        _read_text(item, facts)
        _read_bounds(item, facts)
        _read_foreign(item, root, facts)


def _group(item: Any) -> Iterator[object]:  # noqa: ANN401  # iterable, as the caller saw
    yield from item


def is_field(item: object) -> bool:
    """Whether `item` is what `pydantic.Field(...)` returns."""
    return type(item).__name__ == "FieldInfo" and type(item).__module__ == "pydantic.fields"


def _read_field(item: Any, facts: Facts) -> None:  # noqa: ANN401  # a class of an optional package
    for part in item.metadata:
        _read(part, facts)
    _read_text(item, facts)
    if isinstance(item.discriminator, str):
        facts.discriminator = item.discriminator
    elif item.discriminator is not None:
        facts.foreign = True
    if item.default_factory is not None:
        facts.factory = item.default_factory
        facts.default = msgspec.UNSET
    elif not item.is_required():
        facts.default = item.default


def _read_text(item: object, facts: Facts) -> None:
    text = getattr(item, "description", None) or getattr(item, "documentation", None)
    if isinstance(text, str):
        facts.description = text
    title = getattr(item, "title", None)
    if isinstance(title, str):
        facts.keywords["title"] = title
    examples = getattr(item, "examples", None)
    if examples:
        facts.keywords["examples"] = list(examples)
    for name in ("extra_json_schema", "json_schema_extra"):
        extra: object = getattr(item, name, None)
        if is_object(extra):
            facts.keywords.update(extra)


def _read_bounds(item: object, facts: Facts) -> None:
    for name in BOUNDS:
        bound = getattr(item, name, None)
        if bound is not None:
            facts.bounds.append((name, bound))
    zone = getattr(item, "tz", ...)
    said = zone is not None or type(item).__name__ == "Timezone"  # a `Meta` says None for nothing
    if said and zone is not True and zone is not ...:
        facts.bounds.append(("tz", zone))  # a date-time has a zone, and it may be any
    predicate: Callable[[object], bool] | None = getattr(item, "func", None)
    if type(item).__module__ == "annotated_types" and predicate is not None:
        expected = f"a value that `{getattr(predicate, '__name__', 'its predicate')}` accepts"
        facts.predicates.append(Check(expected, predicate))


def _read_foreign(item: object, root: str, facts: Facts) -> None:
    """Note metadata that only pydantic can do: validators, number of digits, transformations."""
    if root != "pydantic" or type(item).__name__ in SAID_ANYWAY:
        return
    if type(item).__name__.endswith("GeneralMetadata"):
        facts.foreign |= not GENERAL_SAID_ANYWAY.issuperset(vars(item))
    else:
        facts.foreign = True


def refine(shape: Shape, facts: Facts, *, where: str) -> Shape:
    """
    Return `shape` with everything that `facts` say of it.

    Raises:
        DeclarationError: a bound that means nothing for this type.
    """
    for name, bound in facts.bounds:
        shape = _bounded(shape, name, bound, where=where)
    changes: dict[str, object] = {}
    if facts.description:
        changes["description"] = facts.description
    if facts.keywords:
        changes["keywords"] = tuple({**dict(shape.keywords), **facts.keywords}.items())
    if facts.predicates:
        changes["checks"] = (*shape.checks, *facts.predicates)
    if facts.foreign:
        changes["foreign"] = True
    if facts.discriminator and isinstance(shape, Union):
        changes["tag"] = facts.discriminator
        changes["foreign"] = True
    return msgspec.structs.replace(shape, **changes) if changes else shape


def _bounded(shape: Shape, name: str, bound: object, *, where: str) -> Shape:
    if isinstance(shape, Union):
        return _bounded_union(shape, name, bound, where=where)
    keyword = _keyword(shape, name)
    if keyword:
        return _with_keyword(shape, keyword, bound, where=where)
    if _compares(shape, name):
        compare, phrase = COMPARED[name]
        check = Check(phrase.format(bound), lambda value: compare(value, bound))
        return msgspec.structs.replace(shape, checks=(*shape.checks, check))
    kind = getattr(shape.hint, "__name__", str(shape.hint))
    raise DeclarationError(
        f"{where}: the constraint `{name}` means nothing for {kind}; take it away, or put it on "
        "the part of the type that it is about"
    )


def _bounded_union(shape: Union, name: str, bound: object, *, where: str) -> Shape:
    """Bound the members that can be bounded; at least one must."""
    able = [_keyword(member, name) or _compares(member, name) for member in shape.members]
    if not any(able):
        return _bounded(shape.members[0], name, bound, where=where)
    members = tuple(
        _bounded(member, name, bound, where=where) if can else member
        for member, can in zip(shape.members, able, strict=True)
    )
    return msgspec.structs.replace(shape, members=members)


def _keyword(shape: Shape, name: str) -> str | None:
    """Return the keyword that says `name` of a shape, if there is one."""
    match shape:
        case Scalar(type="integer" | "number"):
            return NUMBERS.get(name)
        case Scalar(type="string", format="", measured=True):
            return TEXTS.get(name)
        case Array(prefix=()):
            return ARRAYS.get(name)
        case Map():
            return MAPS.get(name)
        case _:
            return None


def _compares(shape: Shape, name: str) -> bool:
    """Whether the finished value of a text form can be compared."""
    if not isinstance(shape, Scalar) or shape.type != "string" or shape.measured:
        return False
    lengths = name in {"min_length", "max_length"}
    return name in COMPARED and lengths == (shape.hint is bytes or shape.hint is bytearray)


def _with_keyword(shape: Shape, keyword: str, bound: object, *, where: str) -> Shape:
    if isinstance(bound, float) and math.isinf(bound):
        return shape
    keywords = dict(shape.keywords)
    before = keywords.get(keyword, bound)
    if before != bound:
        if keyword not in NARROWER:
            raise DeclarationError(f"{where}: two different values for `{keyword}`; keep one")
        bound = NARROWER[keyword](before, bound)
    keywords[keyword] = _json_bound(bound, keyword, where=where)
    # msgspec refuses a `Meta` about the text of a path; it must not see the declared type then.
    plain = shape.plain and not (isinstance(shape, Scalar) and shape.hint not in BUILTIN)
    return msgspec.structs.replace(shape, keywords=tuple(keywords.items()), plain=plain)


def _json_bound(bound: object, keyword: str, *, where: str) -> object:
    """Return a bound as JSON has it: patterns as text, numbers as they are."""
    if keyword == "pattern":
        bound = getattr(bound, "pattern", bound)  # of a compiled one
    kind = str if keyword == "pattern" else int | float
    if isinstance(bound, kind) and not isinstance(bound, bool):
        return bound
    words = "a text" if keyword == "pattern" else "a number"
    raise DeclarationError(f"{where}: `{keyword}` must be {words} that JSON can say")
