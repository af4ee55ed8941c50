"""What a model proposed: untrusted, kept as written, never run."""

import secrets
from typing import Self

from ferrule._plain import json_text, plain
from ferrule._value import Value, unicode


class ToolCall(Value, frozen=True, kw_only=True):
    """
    One call as a model wrote it.

    Attributes:
        id: What the provider pairs the output with; an executor gives an empty one a new id.
        name: The tool's name as written; it may be of no tool.
        arguments: JSON text as written; it may be broken.
    """

    id: str
    name: str
    arguments: str = ""

    def __post_init__(self) -> None:
        plain_text = self.id.__class__ is self.name.__class__ is self.arguments.__class__ is str
        if plain_text and self.id.isascii() and self.name.isascii() and self.arguments.isascii():
            return  # One is made for each call, and nearly all are so.
        for field in self.__struct_fields__:
            unicode(getattr(self, field), what=f"the {field} of a ToolCall")

    @classmethod
    def of(cls, name: str, arguments: object = None, *, id: str | None = None) -> Self:
        """
        Return a call made in code: writes the JSON and makes an id.

        Raises:
            InvalidResult: the arguments have no JSON form.
        """
        text = "" if arguments is None else json_text(plain(arguments))
        return cls(id=new_call_id() if id is None else id, name=name, arguments=text)


def new_call_id() -> str:
    """Return a call id that no other call has."""
    return f"call_{secrets.token_hex(12)}"
