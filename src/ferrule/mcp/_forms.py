"""
A question as MCP asks it, and the answer as it comes back.

A form of MCP is a flat object of texts, numbers, yes or no, and choices. A question for one such
value is asked as a form with one field; what no form can say is asked for as JSON text. Either way
the answer is checked against the schema that was meant.
"""

import re
import secrets
from collections.abc import Mapping
from typing import TypeGuard, cast

import msgspec
from mcp import types

from ferrule import InvalidJSON, InvalidValue, read_json
from ferrule.schema import compile as compile_schema

Schema = Mapping[str, object] | bool

_FIELD = "answer"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PLAIN = {"string", "number", "integer", "boolean"}
_META = {
    "$schema",
    "title",
    "description",
    "type",
    "properties",
    "required",
    "additionalProperties",
}


class Form(msgspec.Struct, frozen=True):
    """
    One question on its way to a client.

    Attributes:
        message: What a person reads.
        schema: JSON Schema of the answer; `None` where a person only goes to `url`.
        url: Where the person goes, if there is such a place.
    """

    message: str
    schema: Schema | None = None
    url: str | None = None

    @property
    def name(self) -> str:
        """What the schema calls itself, if that is one word; empty if not."""
        title = self.schema.get("title") if isinstance(self.schema, Mapping) else None
        return title if isinstance(title, str) and _NAME.fullmatch(title) else ""

    @property
    def file(self) -> str:
        """What the question is filed under where it is the only one."""
        return self.name or "question"

    def params(self) -> types.ElicitRequestFormParams | types.ElicitRequestURLParams:
        """Return the question as a client is asked it."""
        if self.url is not None:
            return types.ElicitRequestURLParams(
                message=self.message, url=self.url, elicitation_id=secrets.token_urlsafe(16)
            )
        return types.ElicitRequestFormParams(message=self.message, requested_schema=self._form())

    def _form(self) -> dict[str, object]:
        schema = self.schema
        if _is_form(schema):
            return dict(schema)
        if _is_field(schema):
            return _one_field(dict(schema))
        text = msgspec.json.encode(schema).decode()
        return _one_field({"type": "string", "description": f"JSON of this schema: {text}"})

    def read(self, content: Mapping[str, object] | None) -> object:
        """
        Return what a person answered.

        Raises:
            InvalidValue: it is not what was asked for.
        """
        if self.schema is None:
            return None
        answer: object = dict(content or {})
        if not _is_form(self.schema):
            answer = (content or {}).get(_FIELD)
            if not _is_field(self.schema):
                answer = _json(answer)
        problems = "; ".join(map(str, compile_schema(self.schema).problems(answer)))
        if problems:
            raise InvalidValue(f"the answer is not what was asked for: {problems}")
        return answer


def _one_field(schema: dict[str, object]) -> dict[str, object]:
    return {"type": "object", "properties": {_FIELD: schema}, "required": [_FIELD]}


def _json(text: object) -> object:
    if not isinstance(text, str):
        raise InvalidValue("the answer is JSON text")
    try:
        return read_json(text)
    except InvalidJSON as error:
        raise InvalidValue(f"the answer is not JSON: {error}") from None


def _is_form(schema: Schema | None) -> TypeGuard[Mapping[str, object]]:
    """Say whether a form of MCP can say the schema as it is."""
    members = _members(schema)
    if members is None or members.get("type") != "object" or members.keys() - _META:
        return False
    fields = _members(members.get("properties", {}))
    return fields is not None and all(map(_is_field, fields.values()))


def _is_field(schema: object) -> TypeGuard[Mapping[str, object]]:
    """Say whether a field of a form can be of the schema: one plain value, or several choices."""
    members = _members(schema)
    if members is None:
        return False
    kind = members.get("type")
    if kind == "array":
        items = _members(members.get("items"))
        return items is not None and bool(items.keys() & {"enum", "anyOf"})
    return isinstance(kind, str) and kind in _PLAIN and "$ref" not in members


def _members(value: object) -> Mapping[str, object] | None:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else None
