"""
Ours as MCP says it: definitions, content and endings, in both eras of the protocol.

The handshake era (up to 2025-11-25) knows structured content that is an object, and nothing else;
from 2026-07-28 on it may be any JSON. What the earlier era cannot carry is left out there, schema
and value alike: the text beside it says the same.
"""

import base64
import binascii
import json
from typing import cast
from urllib.parse import quote, unquote_to_bytes

from mcp import types
from msgspec import UNSET

from ferrule import (
    Audio,
    Binding,
    Completed,
    Content,
    Failed,
    File,
    Image,
    Link,
    Outcome,
    RawJSON,
    Record,
    Result,
    Text,
    Unknown,
    record_of,
)
from ferrule.mcp._meta import RECORD, UNKNOWN

_UNNAMED = "application/octet-stream"


def tool_of(binding: Binding, *, modern: bool) -> types.Tool:
    """Return a tool as a listing has it; what is not stated is left out, never null."""
    definition, hints = binding.contract.definition, binding.traits.hints
    output = definition.output_schema
    if not modern and output is not None and output.get("type") != "object":
        output = None
    title = definition.title
    stated = types.ToolAnnotations.model_validate({"title": title, **hints}) if hints else None
    return types.Tool(
        name=definition.name,
        title=title,
        description=definition.description or None,
        input_schema=dict(definition.input_schema),
        output_schema=None if output is None else dict(output),
        annotations=stated,
    )


def result_of(outcome: Outcome, *, modern: bool, limit: int) -> types.CallToolResult:
    """Return how a call ended; the text is what a model reads, without our `Error: `."""
    match outcome:
        case Completed(result=result):
            return types.CallToolResult(
                content=_blocks(result.content, outcome.reading(limit), limit),
                structured_content=_structured(result, modern=modern),
                _meta=_meta(record_of(result.details)),
            )
        case Failed(failure=failure):
            return types.CallToolResult(
                content=_blocks(failure.content, _public(outcome, limit), limit),
                is_error=True,
                _meta=_meta(record_of(failure.details)),
            )
        case Unknown(reason=reason):
            return error_of(_public(outcome, limit), {UNKNOWN: reason})
        case _:
            return error_of(_public(outcome, limit))


def error_of(text: str, meta: dict[str, object] | None = None) -> types.CallToolResult:
    """Return a call that ended with an error that the model reads."""
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True, _meta=meta)


def _public(outcome: Outcome, limit: int) -> str:
    return outcome.reading(limit).removeprefix("Error: ")


def _structured(result: Result, *, modern: bool) -> object:
    structured = result.structured_content
    if isinstance(structured, RawJSON):
        structured = structured.read()
    if modern:
        # SDK 2.3 leaves `None` out of what it writes: a null is said by the text alone.
        return None if structured is UNSET else structured
    return cast("object", structured) if isinstance(structured, dict) else None


def _meta(record: Record | None) -> dict[str, object] | None:
    if record is None:
        return None
    data = json.dumps(record.data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return {RECORD: {"namespace": record.namespace, "data": data}}


# ---- content -------------------------------------------------------------------------------------


def _blocks(content: tuple[Content, ...], text: str, limit: int) -> list[types.ContentBlock]:
    """
    Return blocks for a model; `text` is what it reads of them in words, cut already.

    Texts that were cut together become one, where the first of them stood. Where there is no block,
    as beside structured content, the text is the one block.
    """
    texts = [block.text for block in content if isinstance(block, Text)]
    whole = sum(len(one.encode()) for one in texts) <= limit
    made: list[types.ContentBlock] = []
    for block in content:
        if not isinstance(block, Text):
            made.append(_block(block))
        elif whole:
            made.append(types.TextContent(text=block.text))
        elif texts:
            made.append(types.TextContent(text=text))
            texts.clear()
    return made or [types.TextContent(text=text)]


def _block(block: Content) -> types.ContentBlock:
    match block:
        case Text(text=text):
            return types.TextContent(text=text)
        case Image() | Audio():
            return _media(block)
        case File():
            return _file(block)
        case Link(url=url, name=name, mime_type=mime_type, description=description):
            return types.ResourceLink(
                uri=url, name=name or _named(url), mime_type=mime_type, description=description
            )


def _media(block: Image | Audio) -> types.ContentBlock:
    data, mime_type = _data(block.data, block.url, block.mime_type)
    kind = "image" if isinstance(block, Image) else "audio"
    if data is None:
        return types.ResourceLink(uri=block.url or "", name=kind, mime_type=block.mime_type)
    if isinstance(block, Image):
        return types.ImageContent(data=data, mime_type=mime_type)
    return types.AudioContent(data=data, mime_type=mime_type)


def _file(block: File) -> types.ContentBlock:
    data, mime_type = _data(block.data, block.url, block.mime_type)
    if data is None:
        url = block.url or ""
        return types.ResourceLink(
            uri=url, name=block.name or _named(url), mime_type=block.mime_type
        )
    uri = f"file:///{quote((block.name or 'file').lstrip('/'))}"
    resource = types.BlobResourceContents(uri=uri, blob=data, mime_type=mime_type)
    return types.EmbeddedResource(resource=resource)


def _data(data: bytes | None, url: str | None, mime_type: str | None) -> tuple[str | None, str]:
    """Return the bytes as base64 and what they are; no bytes where only an address is known."""
    if data is not None:
        return base64.b64encode(data).decode(), mime_type or _UNNAMED
    head, comma, body = (url or "").partition(",")
    if not comma or not head.startswith("data:"):
        return None, ""
    said, _, coding = head.removeprefix("data:").partition(";base64")
    raw = unquote_to_bytes(body)
    if head.endswith(";base64") and not coding:
        try:
            raw = base64.b64decode(raw, validate=True)
        except (binascii.Error, ValueError):
            return None, ""
    return base64.b64encode(raw).decode(), mime_type or said or _UNNAMED


def _named(url: str) -> str:
    """Return what a person may call the thing at an address: MCP wants a name for each link."""
    return url.rstrip("/").rpartition("/")[2] or url
