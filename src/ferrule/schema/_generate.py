"""
From a shape to a JSON Schema, in one of three forms (CONTRACT SCH-4, SCH-5).

A schema is written top down, and every place in it has its JSON Pointer: a schema that a class
supplies has its references moved to where it comes to stand, and a refusal can say where.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias, assert_never, get_origin

import msgspec

from ferrule._plain import is_array, is_object
from ferrule.errors import DeclarationError
from ferrule.schema._defaults import TYPES, json_default
from ferrule.schema._families import foreign_schema
from ferrule.schema._reflect import reflect
from ferrule.schema._shape import (
    Anything,
    Array,
    Choice,
    Cycle,
    Field,
    Foreign,
    Map,
    Object,
    Parameter,
    Recursive,
    Scalar,
    Shape,
    Signature,
    Supplied,
    Union,
)
from ferrule.schema._types import accepts_null, shape_of

Form: TypeAlias = Literal["closed", "open", "strict"]
Schema: TypeAlias = dict[str, object]

ORDER = (
    "type",
    "description",
    "format",
    "enum",
    "properties",
    "required",
    "items",
    "additionalProperties",
)
COMPOSED = {"$ref", "anyOf", "oneOf", "allOf", "not", "const", "if"}
"""Keywords beside which `null` cannot simply be one more type."""


class NotStrictError(DeclarationError):
    """
    A type has no strict form.

    Attributes:
        path: Where in the arguments, as in `rows[].labels`; empty for the arguments themselves.
        reason: What the strict form cannot say there, and what would help.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"no strict form at {self.path or 'the root'}: {self.reason}"


class Place(msgspec.Struct, frozen=True):
    """
    Where a schema comes to stand: what it is called is put together only when somebody asks.

    Attributes:
        above: The place around it.
        steps: Steps of a JSON Pointer from there.
        word: What a path in the arguments adds there.
    """

    above: "Place | None" = None
    steps: tuple[str | int, ...] = ()
    word: str = ""

    def down(self, *steps: str | int, word: str = "") -> "Place":
        """Return a place below this one."""
        return Place(self, steps, word)

    @property
    def pointer(self) -> str:
        """The JSON Pointer in the document."""
        around = "" if self.above is None else self.above.pointer
        return around + "".join(f"/{_escaped(str(step))}" for step in self.steps)

    @property
    def words(self) -> str:
        """The path in the arguments, for people."""
        around = "" if self.above is None else self.above.words
        return (around + self.word).removeprefix(".")


def generate(
    subject: Signature | Shape, *, form: Form = "closed", widen_optional: bool = True
) -> Schema:
    """
    Return the JSON Schema of a function's arguments, or of a type.

    The same subject gives the same bytes each time. What is returned is the caller's own.

    Args:
        subject: What `reflect` or `shape_of` returned.
        form: Which of the three forms of CONTRACT SCH-4.
        widen_optional: In the strict form, let null stand for "left out".

    Raises:
        NotStrictError: the strict form cannot say some part of it.
    """
    writer = _Writer(form, widen_optional=widen_optional)
    if isinstance(subject, Signature):
        schema = writer.arguments(subject)
    elif isinstance(subject, Recursive):
        # A root must show its own type, so it is written out once more than in its `$defs`.
        schema = writer.schema(subject.cycle.target, Place())
    else:
        schema = writer.schema(subject, Place())
    definitions = writer.definitions()
    return _ordered({**schema, "$defs": definitions}) if definitions else schema


def schema_for(subject: object, *, form: Form = "closed", widen_optional: bool = True) -> Schema:
    """
    Return the JSON Schema of a type, or of a function's arguments.

    Args:
        subject: A type, or a function, bound method, partial or callable object.
        form: Which of the three forms of CONTRACT SCH-4.
        widen_optional: In the strict form, let null stand for "left out".

    Raises:
        DeclarationError: it has no JSON form, or no strict one; says where and what to write.
    """
    if callable(subject) and not isinstance(subject, type) and get_origin(subject) is None:
        shape: Signature | Shape = reflect(subject)
    else:
        shape = shape_of(subject, where="the type")
    return generate(shape, form=form, widen_optional=widen_optional)


class _Writer:
    """Writes one document."""

    def __init__(self, form: Form, *, widen_optional: bool) -> None:
        self._form = form
        self._widen = widen_optional and form == "strict"
        self._names: dict[Cycle, str] = {}
        self._met: dict[Cycle, str] = {}

    def arguments(self, signature: Signature) -> Schema:
        """Return the schema of a function's arguments."""
        fields: list[Field] = []
        extra: Shape | None = None
        for parameter in signature.parameters:
            if parameter.kind == "var_keyword":
                extra = parameter.shape
            else:
                fields.append(_as_field(parameter))
        return self._object(fields, extra, Place())

    def definitions(self) -> Schema:
        """Return what the references of the document point to, and what those point to."""
        written: Schema = {}
        while len(written) < len(self._names):
            for cycle, name in list(self._names.items()):
                if name not in written:
                    place = Place(None, ("$defs", name), self._met[cycle])
                    written[name] = self.schema(cycle.target, place)
        return written

    def schema(self, shape: Shape, place: Place) -> Schema:
        """Return the schema of one shape that comes to stand at `place`."""
        written = self._bare(shape, place)
        if isinstance(shape, Supplied) or not (shape.description or shape.keywords):
            return written
        if self._form == "strict" and "$ref" in written:
            written = _any_of([written])
        written.update(dict(shape.keywords))
        if shape.description:
            written["description"] = shape.description
        return _ordered(written)

    def _bare(self, shape: Shape, place: Place) -> Schema:
        match shape:
            case Array():
                return self._array(shape, place)
            case Map():
                return self._map(shape, place)
            case Object(fields=fields, extra=extra, tag=tag):
                return self._object(fields, extra, place, tag)
            case Union():
                return self._union(shape, place)
            case Recursive(cycle=cycle):
                if cycle not in self._met:
                    self._met[cycle] = place.words
                return {"$ref": f"#/$defs/{_escaped(self._name(cycle))}"}
            case _:
                return _leaf(shape, place)

    def _array(self, shape: Array, place: Place) -> Schema:
        written: Schema = {"type": "array"}
        prefix = [
            self.schema(part, place.down("prefixItems", index, word=f"[{index}]"))
            for index, part in enumerate(shape.prefix)
        ]
        if shape.items is not None:
            written["items"] = self.schema(shape.items, place.down("items", word="[]"))
        elif prefix and all(part == prefix[0] for part in prefix):
            written["items"] = self.schema(shape.prefix[0], place.down("items", word="[]"))
        elif prefix:
            written["prefixItems"] = prefix
        if shape.items is None:
            written |= {"minItems": shape.least, "maxItems": len(prefix)}
        return written if shape.items is not None else _ordered(written)

    def _map(self, shape: Map, place: Place) -> Schema:
        if self._form == "strict":
            raise _no_strict(place, "the strict form has no objects with free names")
        values = self.schema(shape.values, place.down("additionalProperties"))
        written: Schema = {"type": "object", "additionalProperties": values}
        names = self.schema(shape.key, place.down("propertyNames"))
        if len(names) > 1:  # more than that they are strings
            written["propertyNames"] = names
        return written

    def _object(
        self,
        fields: Iterable[Field],
        extra: Shape | None,
        place: Place,
        tag: tuple[str, str | int] | None = None,
    ) -> Schema:
        properties: Schema = {}
        required: list[str] = []
        if tag is not None:
            properties[tag[0]] = _choice((tag[1],))
            required.append(tag[0])
        for field in fields:
            properties[field.name] = self._property(field, place)
            if field.required or self._form == "strict":
                required.append(field.name)
        written: Schema = {"type": "object", "properties": properties, "required": required}
        if extra is not None:
            if self._form == "strict":
                raise _no_strict(place, "the strict form has no objects with further names")
            written["additionalProperties"] = self.schema(extra, place.down("additionalProperties"))
        elif self._form != "open":
            written["additionalProperties"] = False
        return written

    def _property(self, field: Field, place: Place) -> Schema:
        shape = field.shape
        inside = place.down("properties", field.name, word=f".{field.name}")
        if self._widen and not field.required and not accepts_null(shape):
            nothing = Scalar(hint=None, type="null")
            inner = msgspec.structs.replace(shape, description="")
            shape = Union(hint=None, members=(inner, nothing), description=shape.description)
        written = self.schema(shape, inside)
        default = json_default(shape, field.default)
        if default is msgspec.UNSET or self._form == "strict":
            return written
        return _ordered({**written, "default": default})

    def _union(self, shape: Union, place: Place) -> Schema:
        flat = tuple(_flat(shape.members))
        members = [member for member in flat if not _is_null(member)]
        if len(members) == 1 and not isinstance(members[0], Supplied | Foreign | Recursive):
            return _nullable(self.schema(members[0], place))
        disjoint = bool(shape.tag) or all(
            isinstance(member, Object) and member.tag is not None for member in members
        )
        keyword = "oneOf" if disjoint and self._form != "strict" else "anyOf"
        branches = [
            self.schema(member, place.down(keyword, index))
            for index, member in enumerate([*members, *filter(_is_null, flat)])
        ]
        different = [part for index, part in enumerate(branches) if part not in branches[:index]]
        return different[0] if len(different) == 1 else {keyword: different}

    def _name(self, cycle: Cycle) -> str:
        """Return the name of a recursive type, its own for each of several with one name."""
        if cycle not in self._names:
            plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", cycle.name).strip("_") or "Type"
            name, number = plain, 1
            while name in self._names.values():
                number += 1
                name = f"{plain}_{number}"
            self._names[cycle] = name
        return self._names[cycle]


def _as_field(parameter: Parameter) -> Field:
    """Return a parameter as the property that it is."""
    shape = parameter.shape
    if parameter.kind == "var_positional":
        shape = Array(hint=list, container=list, items=shape)
    if parameter.description:
        shape = msgspec.structs.replace(shape, description=parameter.description)
    return Field(
        name=parameter.name,
        argument=parameter.name,
        shape=shape,
        required=parameter.required,
        default=parameter.default,
    )


def _flat(members: Iterable[Shape]) -> Iterable[Shape]:
    """Yield the members of a union, and of a union inside it that says nothing of its own."""
    for member in members:
        if isinstance(member, Union) and not (member.tag or member.description or member.keywords):
            yield from _flat(member.members)
        else:
            yield member


def _is_null(shape: Shape) -> bool:
    return isinstance(shape, Scalar) and shape.type == "null"


def _leaf(shape: Anything | Scalar | Choice | Supplied | Foreign, place: Place) -> Schema:
    match shape:
        case Anything():
            return {}
        case Scalar(type=kind, format=format):
            return {"type": kind, "format": format} if format else {"type": kind}
        case Choice(values=values):
            return _choice(values)
        case Supplied(schema=schema):
            return _moved(schema, place.pointer)
        case Foreign():
            return _moved(foreign_schema(shape.hint), place.pointer)
        case _:
            assert_never(shape)


def _choice(values: tuple[object, ...]) -> Schema:
    """Return the schema of a few values, null last."""
    ordered = sorted(values, key=lambda value: value is None)
    kinds = list(dict.fromkeys(TYPES[type(value)] for value in ordered))
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": ordered}


def _any_of(branches: list[Schema]) -> Schema:
    return {"anyOf": branches}


def _nullable(schema: Schema) -> Schema:
    """Return `schema` with null let in, as one more type where that says the same."""
    if "type" not in schema and not COMPOSED & schema.keys():
        return schema  # it takes anything already
    if "type" in schema and not COMPOSED & schema.keys():
        kinds, values = schema["type"], schema.get("enum")
        several = kinds if is_array(kinds) else [kinds]
        if "null" in several:
            return schema
        widened = {**schema, "type": [*several, "null"]}
        if is_array(values):
            widened["enum"] = [*values, None]
        return widened
    kept = {name: schema[name] for name in ("description",) if name in schema}
    inner = {name: part for name, part in schema.items() if name not in kept}
    null: Schema = {"type": "null"}
    branches = inner.get("anyOf")
    if is_array(branches) and len(inner) == 1:
        return _ordered({**kept, "anyOf": [*branches, null]})
    return _ordered({**kept, "anyOf": [inner, null]})


def _ordered(schema: Mapping[str, object]) -> Schema:
    """Return the members of a schema object in the order of CONTRACT SCH-5."""
    ordered = {name: schema[name] for name in ORDER if name in schema}
    for name in sorted(schema.keys() - ordered.keys()):
        ordered[name] = schema[name]
    return ordered


def _no_strict(place: Place, reason: str) -> NotStrictError:
    hint = "declare a class with the names that may come, or use another form"
    return NotStrictError(place.words, f"{reason}; {hint}")


def _escaped(name: str) -> str:
    """Return a name as one step of a JSON Pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _moved(schema: Schema, path: str) -> Schema:
    """Return a copy of a whole document that stands at `path` of another one from now on."""
    return {name: _moved_part(name, part, path) for name, part in schema.items()}


def _moved_part(name: str, part: object, path: str) -> object:
    if name == "$ref" and isinstance(part, str) and (part == "#" or part[:2] == "#/"):
        return f"#{path}{part[1:]}"
    return _with_references(part, path)


def _with_references(value: object, path: str) -> object:
    if is_object(value):
        return _moved(value, path)
    if is_array(value):
        return [_with_references(part, path) for part in value]
    return value
