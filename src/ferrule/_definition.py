"""What a model reads of a tool: a name, a description and schemas. Nothing else."""

import copy
import math
import re
from collections.abc import Mapping
from typing import Self, cast

import msgspec

from ferrule._contain import Broke, contain, message_of
from ferrule._ijson import digest
from ferrule._near import shown
from ferrule._plain import detached, is_mapping
from ferrule._value import Value, unicode
from ferrule.errors import InvalidDefinition, InvalidValue

_NAME = re.compile(r"[A-Za-z0-9_\-./]{1,128}", re.ASCII)


def no_arguments() -> dict[str, object]:
    """Return the schema of a tool that says nothing of its arguments (CONTRACT DEF-2)."""
    return {"type": "object", "properties": {}, "required": []}


class Definition(Value, frozen=True):
    """
    What a model reads of a tool.

    The schemas are copied in; where a definition is read from a tool, a contract or a registry,
    it is a copy that nobody else holds.

    Attributes:
        name: 1 to 128 of `A-Z a-z 0-9 _ - . /`.
        description: What the tool does and when to use it.
        input_schema: JSON Schema of the arguments; its root says `"type": "object"`.
        output_schema: JSON Schema of the structured content, or `None`.
        title: A name for people, or `None`.
        strict: The provider is asked to follow the schema to the letter.
    """

    name: str
    description: str = ""
    input_schema: Mapping[str, object] = msgspec.field(default_factory=no_arguments)
    output_schema: Mapping[str, object] | None = None
    title: str | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InvalidDefinition(
                "the name of a tool is 1 to 128 of A-Z a-z 0-9 _ - . / "
                f"and {clipped(self.name)} is not; give it another with `name=`"
            )
        try:
            unicode(self.description, what=f"the description of tool `{self.name}`")
            if self.title is not None:
                unicode(self.title, what=f"the title of tool `{self.name}`")
        except InvalidValue as error:
            raise InvalidDefinition(str(error)) from None
        for field in ("input_schema", "output_schema"):
            schema = getattr(self, field)
            if schema is None and field == "output_schema":
                continue
            msgspec.structs.force_setattr(self, field, self._object_schema(field, schema))

    def _object_schema(self, field: str, schema: object) -> dict[str, object]:
        if not is_mapping(schema):
            raise InvalidDefinition(
                f"the {field} of tool `{self.name}` is a JSON Schema object, "
                f"not {type(schema).__name__}"
            )
        if field == "input_schema" and schema.get("type") != "object":
            raise InvalidDefinition(
                f'the root of the input_schema of tool `{self.name}` says `"type": "object"`'
            )
        document: dict[object, object] = dict(schema)
        copied = contain(_copied_object, document)
        if isinstance(copied, Broke):
            deep = isinstance(copied.error, RecursionError)  # Worded by us: Pythons differ.
            why = "nested too deep, or inside itself" if deep else message_of(copied.error)
            raise InvalidDefinition(f"the {field} of tool `{self.name}` is not JSON: {why}")
        return copied

    @property
    def digest(self) -> str:
        """The identity of what a model reads, the same in every implementation (DEF-3)."""
        return digest(self.canonical)

    @property
    def canonical(self) -> dict[str, object]:
        """The definition in the form whose digest is taken: exactly the members of DEF-3."""
        written: dict[str, object] = {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": self.input_schema,
        }
        return written | ({"strict": True} if self.strict else {})

    def copy(self) -> Self:
        """Return a definition that shares nothing with this one."""
        made = copy.copy(self)
        for field in ("input_schema", "output_schema"):
            msgspec.structs.force_setattr(made, field, detached(getattr(self, field)))
        return made

    def to_json(self) -> dict[str, object]:
        """Return the definition as plain JSON, detached; what is at its default is left out."""
        written: dict[str, object] = {"name": self.name}
        if self.description:
            written["description"] = self.description
        written["input_schema"] = detached(self.input_schema)
        if self.output_schema is not None:
            written["output_schema"] = detached(self.output_schema)
        if self.title is not None:
            written["title"] = self.title
        return written | ({"strict": True} if self.strict else {})


def _copied(document: object) -> object:
    """
    Return a detached copy of plain JSON values, which have a canonical form and so a digest.

    Raises:
        TypeError, ValueError: something in it is not JSON.
    """
    kind = type(document)
    if kind is str:
        cast("str", document).encode()
    elif kind is dict:
        return _copied_object(cast("dict[object, object]", document))
    elif kind is list or kind is tuple:
        return [_copied(part) for part in cast("list[object]", document)]
    elif kind is float and not math.isfinite(cast("float", document)):
        raise ValueError("a number is not finite")
    elif kind is int and abs(cast("int", document)) >= _NOT_FINITE:
        raise ValueError("a number is beyond the range of a double")
    elif document is not None and kind not in {int, bool, float}:
        raise TypeError(f"{kind.__name__} is no JSON value")
    return document


_NOT_FINITE = 2**1024 - 2**970
"""The least integer that rounds to infinity as a double, and so has no canonical form."""


def _copied_object(document: dict[object, object]) -> dict[str, object]:
    done: dict[str, object] = {}
    for name, part in document.items():
        if type(name) is not str:
            raise TypeError("the names of an object are strings")
        name.encode()
        done[name] = _copied(part)
    return done


def fingerprint(definition: Definition, *, origin: str, hints: Mapping[str, bool]) -> str:
    """Return the identity that approvals and locks use: all that a person relied on (DEF-3)."""
    return digest(
        {
            "definition": definition.canonical,
            "origin": origin,
            "title": definition.title,
            "output_schema": definition.output_schema,
            "hints": dict(hints),
        }
    )


def clipped(name: object) -> str:
    """Return `name` as it may stand in a sentence: short, with control characters escaped."""
    if not isinstance(name, str):
        return type(name).__name__
    return f'"{shown(name)}"'
