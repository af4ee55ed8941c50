"""Their tools, content and results as ours. What cannot be is said by name, never guessed."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from msgspec import UNSET

from ferrule import (
    Audio,
    CallError,
    Content,
    Definition,
    Failure,
    FerruleError,
    File,
    Image,
    InvalidResult,
    InvalidTool,
    InvalidValue,
    Link,
    Record,
    Result,
    Text,
    TraitFields,
    Traits,
    read_json,
)
from ferrule.helpers import one_line
from ferrule.mcp._meta import RECORD, UNKNOWN
from ferrule.mcp._shapes import Wire, is_list, is_object, object_of

_RESERVED = "io.modelcontextprotocol/"
_OCTETS = "application/octet-stream"


def definition_of(tool: Wire, *, name: str) -> Definition:
    """
    Return a remote tool's definition under a name of ours.

    Raises:
        InvalidTool: something in it cannot be; the sentence says what.
    """
    title = _line(tool, "title")
    if title is None:
        title = _line(object_of(tool.get("annotations")), "title")
    output = tool.get("outputSchema")
    if output is not None and not is_object(output):
        raise InvalidTool("its outputSchema is no object")
    if object_of(tool.get("execution")).get("taskSupport") == "required":
        raise InvalidTool("it can only be called as a task, which this client does not speak")
    return Definition(
        name,
        _line(tool, "description") or "",
        input_schema=_input_schema(tool),
        output_schema=output,
        title=title,
    )


def _input_schema(tool: Wire) -> Wire:
    """Return the schema of the arguments; where nothing is said of them, that is an object."""
    schema = tool.get("inputSchema")
    if schema is None or schema == {}:
        return {"type": "object", "properties": {}, "required": []}
    if not is_object(schema):
        raise InvalidTool("its inputSchema is no object")
    # Arguments are an object in any case, so that saying it takes nothing away.
    return schema if "type" in schema else {"type": "object", **schema}


def traits_of(tool: Wire, given: TraitFields | Traits | None, timeout: float | None) -> Traits:
    """
    Return what is known of a remote tool: its hints, where it states them, and what the host says.

    Raises:
        InvalidValue: what the host says cannot be.
    """
    hints = object_of(tool.get("annotations"))
    stated: dict[str, Any] = {
        ours: hints[theirs] for ours, theirs in _HINTS if isinstance(hints.get(theirs), bool)
    }
    if timeout is not None:
        stated["timeout"] = timeout
    if isinstance(given, Traits):
        plain = Traits()
        names = given.__struct_fields__
        stated |= {n: getattr(given, n) for n in names if getattr(given, n) != getattr(plain, n)}
    elif given is not None:
        stated |= cast("Wire", given)
    return Traits(**stated)


_HINTS = (
    ("read_only", "readOnlyHint"),
    ("destructive", "destructiveHint"),
    ("idempotent", "idempotentHint"),
    ("open_world", "openWorldHint"),
)


def result_of(answer: Wire) -> Result:
    """
    Return what a call gave.

    Raises:
        Failure: the server says that the call failed.
        CallError: the server says that nobody knows what the call has done.
        InvalidResult: something in the answer is nonsense; what could be read is its evidence.
    """
    content, odd = _blocks(answer.get("content"))
    details = _details(answer)
    is_error = answer.get("isError")
    if is_error is not None and not isinstance(is_error, bool):
        odd.append("its isError is neither true nor false")
    if is_error is True and not odd:
        if UNKNOWN in object_of(answer.get("_meta")):
            said = Result(content, details=details)
            raise CallError(said) from FerruleError(f"the server said: {one_line(said.text, 300)}")
        raise Failure(content or "tool call failed", details=details)
    result = Result(
        content, structured_content=answer.get("structuredContent", UNSET), details=details
    )
    if odd:
        raise InvalidResult(f"the answer of the server: {'; '.join(odd[:5])}") from CallError(
            result
        )
    return result


def _blocks(given: object) -> tuple[tuple[Content, ...], list[str]]:
    """Return the blocks that can be read, and what is wrong with the others."""
    if given is None:
        return (), []
    if not is_list(given):
        return (), ["its content is no list"]
    read: list[Content] = []
    odd: list[str] = []
    for index, block in enumerate(given):
        try:
            read.append(_block(_wire(block)))
        except (InvalidValue, binascii.Error) as error:
            odd.append(f"content[{index}]: {error}")
    if len(read) > 1 and all(isinstance(block, Text) for block in read):
        return (Text("\n".join(cast("Text", block).text for block in read)),), odd
    return tuple(read), odd


def _block(block: Wire) -> Content:
    match block.get("type"):
        case "text":
            return Text(_said(block, "text"))
        case "image":
            return Image(data=_bytes(block, "data"), mime_type=_mime(block))
        case "audio":
            return Audio(data=_bytes(block, "data"), mime_type=_mime(block))
        case "resource":
            return _resource(_wire(block.get("resource")))
        case "resource_link":
            return Link(
                _said(block, "uri"),
                name=_line(block, "name"),
                mime_type=_line(block, "mimeType"),
                description=_line(block, "description"),
            )
        case _:
            return Text(json.dumps(block, ensure_ascii=False))


def _resource(resource: Wire) -> Content:
    if isinstance(resource.get("text"), str):
        return Text(resource["text"])
    if "blob" in resource:
        name = _line(resource, "uri")
        return File(data=_bytes(resource, "blob"), name=name, mime_type=_mime(resource))
    raise InvalidValue("a resource has neither a text nor a blob")


def _mime(block: Wire) -> str:
    return _line(block, "mimeType") or _OCTETS


def _bytes(block: Wire, field: str) -> bytes:
    return base64.b64decode("".join(_said(block, field).split()), validate=True)


def _said(block: Wire, field: str) -> str:
    value = block.get(field)
    if not isinstance(value, str):
        raise InvalidValue(f"its {field} is no text")
    return value


def _line(fields: Mapping[str, object], field: str) -> str | None:
    value = fields.get(field)
    if value is not None and not isinstance(value, str):
        raise InvalidTool(f"its {field} is no text")
    return value


def _wire(value: object) -> Wire:
    if not is_object(value):
        raise InvalidValue("it is no object")
    return value


def _details(answer: Wire) -> object:
    """Return the record that came with an answer, or what else its `_meta` says, for the host."""
    meta = {k: v for k, v in object_of(answer.get("_meta")).items() if not k.startswith(_RESERVED)}
    record = _record(meta.get(RECORD))
    if record is not None:
        return record
    return {"_meta": meta} if meta else None


def _record(given: object) -> Record | None:
    """Return a record of ours that came over the wire; what is none stays in the `_meta`."""
    fields = object_of(given)
    namespace, data = fields.get("namespace"), fields.get("data")
    if not isinstance(namespace, str) or not isinstance(data, str):
        return None
    try:
        return Record(namespace, data=read_json(data))
    except InvalidValue:
        return None


def checked(result: Result, check: Callable[[Result], None]) -> Result:
    """
    Return a result that its tool's output schema accepts.

    Raises:
        InvalidResult: it does not, or is too large; the result is kept as its evidence.
    """
    try:
        check(result)
    except InvalidResult as error:
        raise InvalidResult(str(error)) from CallError(result)
    return result
