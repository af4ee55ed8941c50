"""
The one door to the validating engine: a schema document in, a compiled validator out.

The engine is safe to hand a hostile schema only in the way it is called here: `offline`, so that
nothing is fetched; with the regular-expression engine that runs in linear time, and another one
under a step limit for the patterns only that one can take; and after `_foreign` has counted what
it would walk.
"""

import secrets
from collections.abc import Iterable
from typing import Protocol, cast
from urllib.parse import quote

import jsonschema_rs
import msgspec

from ferrule._near import near, shown
from ferrule.errors import InvalidSchema, ValidatorCrash
from ferrule.schema._document import Document, Draft, Node, named_nodes
from ferrule.schema._words import has_type

_BACKTRACKS = 10_000
"""Steps that a pattern with look-around may take on one text: a third of a millisecond."""

_PATTERN_BYTES = 8 << 20
_LEAST_PATTERN_BYTES = 16 << 10
"""What the patterns of one document may take once compiled, and what each may take at least."""

_CLASSES = {
    Draft.DRAFT_4: jsonschema_rs.Draft4Validator,
    Draft.DRAFT_6: jsonschema_rs.Draft6Validator,
    Draft.DRAFT_7: jsonschema_rs.Draft7Validator,
    Draft.DRAFT_2019_09: jsonschema_rs.Draft201909Validator,
    Draft.DRAFT_2020_12: jsonschema_rs.Draft202012Validator,
}
_NUMBERS = {
    Draft.DRAFT_4: jsonschema_rs.Draft4,
    Draft.DRAFT_6: jsonschema_rs.Draft6,
    Draft.DRAFT_7: jsonschema_rs.Draft7,
    Draft.DRAFT_2019_09: jsonschema_rs.Draft201909,
    Draft.DRAFT_2020_12: jsonschema_rs.Draft202012,
}


class Engine(Protocol):
    """What a compiled schema answers."""

    def is_valid(self, instance: object, /) -> bool:
        """Say whether the schema accepts a JSON value."""
        ...

    def validate(self, instance: object, /) -> None:
        """Raise the first error of a JSON value."""
        ...


class _ExactType:
    """`type`, checked here: an integer's place takes a float as far as floats are exact."""

    def __init__(
        self, _parent: dict[str, object], argument: object, _path: list[str | int]
    ) -> None:
        self._types = argument

    def validate(self, instance: object) -> None:
        """Raise `ValueError` for a value of another type."""
        if not has_type(instance, self._types):
            raise ValueError("type")


class Builder(msgspec.Struct, frozen=True):
    """
    How the parts of one document are compiled.

    Attributes:
        draft: Its dialect.
        backtracks: One of its patterns only runs on the engine that backtracks, under a limit.
        exact: `type` is checked by us, which costs a call into Python for each.
        pattern_bytes: What one pattern may take, compiled.
    """

    draft: Draft
    backtracks: bool = False
    exact: bool = False
    pattern_bytes: int = _PATTERN_BYTES

    def build(self, schema: Node, registry: jsonschema_rs.Registry | None = None) -> Engine:
        """
        Compile `schema`; formats are asserted in every dialect, and nothing is fetched or opened.

        Raises:
            jsonschema_rs.ValidationError: the schema breaks its dialect, as the engine says it.
        """
        engine = _CLASSES[self.draft](
            schema,
            validate_formats=True,
            pattern_options=self._patterns(),
            keywords=_EXACT if self.exact else None,
            registry=registry,
            offline=True,
        )
        return cast("Engine", engine)

    def _patterns(self) -> jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions:
        size = self.pattern_bytes
        if self.backtracks:
            return jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS, size_limit=size)
        return jsonschema_rs.RegexOptions(size_limit=size)

    def registry(self, root: Node) -> jsonschema_rs.Registry:
        """Return what `part` needs to find the rest of a document."""
        return jsonschema_rs.Registry([(_ADDRESS, root)], draft=_NUMBERS[self.draft])

    def part(self, pointer: str, registry: jsonschema_rs.Registry) -> Engine:
        """Compile the subschema that stands at `pointer` in the document of `registry`."""
        return self.build(_reference(pointer), registry)

    def union(
        self, keyword: str, pointers: Iterable[str], registry: jsonschema_rs.Registry
    ) -> Engine:
        """Compile `anyOf` or `oneOf` of the subschemas that stand at `pointers`."""
        return self.build({keyword: [_reference(pointer) for pointer in pointers]}, registry)


def _reference(pointer: str) -> Node:
    return {"$ref": f"{_ADDRESS}#{quote(pointer, safe=_SAFE)}"}


# With a root and a path, so that a relative `$id` of the document's root resolves against it; and
# of a name that no schema can know, so that none gives it to a part of its own.
_ADDRESS = f"json-schema:///{secrets.token_hex(8)}"
_EXACT = cast("dict[str, type[jsonschema_rs.KeywordValidator]]", {"type": _ExactType})
_SAFE = "/~!$&'()*+,;=:@?"


def compiled(document: Document) -> tuple[Engine, Builder]:
    """
    Compile a document, and say how its parts are to be compiled.

    Raises:
        InvalidSchema: the document breaks the rules of its dialect; says where and how.
    """
    linear = Builder(document.draft, pattern_bytes=_share(document))
    try:
        return linear.build(document.root), linear
    except jsonschema_rs.ValidationError as error:
        if error.kind.name != "format":
            raise _invalid(document, error) from None
    backtracking = msgspec.structs.replace(linear, backtracks=True)
    try:
        return backtracking.build(document.root), backtracking
    except jsonschema_rs.ValidationError as error:
        raise _invalid(document, error) from None


def _share(document: Document) -> int:
    """Return what each pattern of a document may take once compiled."""
    count = sum(
        ("pattern" in node) + len(named_nodes(node.get("patternProperties")))
        for node in document.nodes
        if "pattern" in node or "patternProperties" in node
    )
    return max(_PATTERN_BYTES // max(count, 1), _LEAST_PATTERN_BYTES)


def judged(engine: Engine, value: object) -> bool:
    """
    Say whether `engine` accepts `value`.

    Raises:
        ValidatorCrash: a pattern ran into its step limit, so it cannot say.
    """
    try:
        engine.validate(value)
    except jsonschema_rs.ValidationError as error:
        if isinstance(error.kind, _GIVING_UP):
            # The engine's own error repeats the whole value, and a cause gets into logs.
            raise ValidatorCrash from ValueError(error.message)
        return False
    return True


_GIVING_UP = (
    jsonschema_rs.ValidationErrorKind.BacktrackLimitExceeded,
    jsonschema_rs.ValidationErrorKind.RegexEngineFailure,
)


# ---- what is wrong with a schema, as a sentence --------------------------------------------------

_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")


def _invalid(document: Document, error: jsonschema_rs.ValidationError) -> InvalidSchema:
    place = "/" + "/".join(map(str, error.instance_path)) if error.instance_path else ""
    at = f"at {shown(place, 200)}: " if place else ""
    return InvalidSchema(at + _fault(document, error))


def _fault(document: Document, error: jsonschema_rs.ValidationError) -> str:
    last = error.instance_path[-1] if error.instance_path else ""
    match error.kind:
        case jsonschema_rs.ValidationErrorKind.Type(types):
            return f"`{shown(str(last))}` is {' or '.join(types)} in a JSON Schema; write one"
        case jsonschema_rs.ValidationErrorKind.Format("regex"):
            return "the pattern is not a regular expression that can be compiled; simplify it"
        case jsonschema_rs.ValidationErrorKind.Referencing():
            return "a reference cannot be resolved; refer to a schema inside the document"
        case _ if last == "type":
            return f"{_misspelt(error.instance)} is not a JSON Schema type; use one of {_list()}"
        case kind:
            return (
                f'`{shown(str(last))}` breaks the rule "{kind.name}" of dialect '
                f"{_DIALECT_NAMES[document.draft]}; see what that keyword takes"
            )


def _misspelt(value: object) -> str:
    said = f'"{shown(value)}"' if isinstance(value, str) else "this"
    close = near(value, _TYPES, 1) if isinstance(value, str) else []
    return f"{said} (did you mean {close[0]}?)" if close else said


def _list() -> str:
    return ", ".join(_TYPES)


_DIALECT_NAMES = {
    Draft.DRAFT_4: "draft-04",
    Draft.DRAFT_6: "draft-06",
    Draft.DRAFT_7: "draft-07",
    Draft.DRAFT_2019_09: "2019-09",
    Draft.DRAFT_2020_12: "2020-12",
}
