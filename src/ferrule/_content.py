"""What a tool gives back: content for a model, structured content, and details for the host."""

import base64
from collections.abc import Iterable, Mapping
from typing import Self, TypeAlias, TypeVar, cast

import msgspec
from msgspec import UNSET

from ferrule._contain import Broke, contain
from ferrule._ijson import Limits, read_json
from ferrule._plain import is_sequence, json_text, plain
from ferrule._value import Value, refusal, type_name, unicode
from ferrule.errors import InvalidResult, InvalidValue

W = TypeVar("W", bound="Written")


class Text(Value, frozen=True, tag="text", tag_field="type"):
    """Text that a model reads."""

    text: str

    def __post_init__(self) -> None:
        text = self.text
        if type(text) is not str or not text.isascii():
            unicode(text, what="the text of a Text")


class _Media(Value, frozen=True, kw_only=True):
    """Bytes that travel with the value, or an address where they are: exactly one of the two."""

    data: bytes | None = None
    url: str | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        if (self.data is None) == (self.url is None):
            raise InvalidValue(f"{name} has either data or a url; give exactly one of them")
        if self.data is not None and not isinstance(self.data, bytes):
            raise InvalidValue(f"the data of {name} is bytes, not {type(self.data).__name__}")
        for field in self.__struct_fields__:
            text = getattr(self, field)
            if field != "data" and text is not None:
                unicode(text, what=f"the {field} of {name}")
        if self.data is not None and getattr(self, "mime_type", None) is None:
            raise InvalidValue(f"{name} with data says its mime_type, as in 'image/png'")

    @property
    def data_url(self) -> str:
        """The address, or the bytes as a `data:` URL."""
        if self.data is None:
            return self.url or ""
        kind = getattr(self, "mime_type", None)
        return f"data:{kind};base64,{base64.b64encode(self.data).decode()}"


class Image(_Media, frozen=True, kw_only=True, tag="image", tag_field="type"):
    """A picture: bytes with their `mime_type`, or an address."""

    mime_type: str | None = None


class Audio(_Media, frozen=True, kw_only=True, tag="audio", tag_field="type"):
    """Sound: bytes with their `mime_type`, or an address."""

    mime_type: str | None = None


class File(_Media, frozen=True, kw_only=True, tag="file", tag_field="type"):
    """A file: bytes with their `mime_type`, or an address; `name` is what a person calls it."""

    name: str | None = None
    mime_type: str | None = None


class _LinkFacts(Value, frozen=True, kw_only=True):
    name: str | None = None
    mime_type: str | None = None
    description: str | None = None


class Link(_LinkFacts, frozen=True, tag="link", tag_field="type"):
    """An address that a model may follow; nothing is fetched."""

    url: str

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            text = getattr(self, field)
            if text is not None or field == "url":
                unicode(text, what=f"the {field} of a Link")


Content: TypeAlias = Text | Image | Audio | File | Link
"""One block of what a model reads."""

CONTENT = (Text, Image, Audio, File, Link)


class RawJSON(Value, frozen=True):
    """A JSON document that is passed on byte for byte (CONTRACT DEF-5)."""

    text: str

    def __post_init__(self) -> None:
        unicode(self.text, what="the text of a RawJSON")
        self.read()

    def read(self) -> object:
        """Return the value of the document, a new one each time."""
        return read_json(self.text, limits=_OWN)


# What our own process made is bounded by what it may return, not by what a model may send.
_OWN = Limits(argument_bytes=Limits().output_bytes, nodes=10_000_000)


class Record(Value, frozen=True):
    """
    Something a host keeps and a model never reads: JSON data under a namespace.

    The namespace is `owner:kind`, as in `shell:process-group`.
    """

    namespace: str
    data: object = None

    def __post_init__(self) -> None:
        owner, colon, kind = unicode(self.namespace, what="the namespace of a Record").partition(
            ":"
        )
        if not (owner and colon and kind):
            raise InvalidValue("the namespace of a Record is `owner:kind`, as in `shell:process`")
        # Kept exactly and detached: what is recorded cannot change after it was recorded.
        msgspec.structs.force_setattr(self, "data", plain(self.data))


def record_of(details: object) -> Record | None:
    """Return what a host records of the `details` of a result or failure: a `Record` as it is."""
    return details if isinstance(details, Record) else None


class _ResultFacts(Value, frozen=True, kw_only=True):
    structured_content: object = UNSET
    details: object = None
    terminate: bool = False


class Result(_ResultFacts, frozen=True):
    """
    What a call gave.

    Attributes:
        content: Blocks that a model reads, in order.
        structured_content: A JSON value, or `RawJSON`, for consumers that read structure; a model
            reads it as JSON text where there is no content. `UNSET` when there is none.
        details: For the host alone; a `Record` is recorded when the call ends.
        terminate: The tool asks that the agent loop stop.
    """

    content: tuple[Content, ...] = ()

    def __post_init__(self) -> None:
        content = self.content
        if type(content) is tuple and len(content) == 1 and type(content[0]) is Text:
            if self.structured_content is UNSET:
                return  # What nearly every result is.
        elif type(content) is not tuple:
            content = blocks(content)
            msgspec.structs.force_setattr(self, "content", content)
        for block in content:
            if type(block) is not Text and not isinstance(block, CONTENT):
                raise InvalidValue(f"content is made of blocks, not of {type(block).__name__}")
        structured = self.structured_content
        if structured is not UNSET and not isinstance(structured, RawJSON):
            # Detached and checked here, so that no result holds what JSON cannot say.
            msgspec.structs.force_setattr(self, "structured_content", plain(structured))

    @classmethod
    def of(cls, value: object) -> Self:
        """
        Return `value` as a result, as if a tool had returned it (CONTRACT FN-6).

        Raises:
            InvalidResult: the value has no JSON form.
        """
        try:
            if isinstance(value, cls):
                return value
            content = _content_of(value)
        except InvalidValue as error:
            raise InvalidResult(str(error)) from None
        return cls(structured_content=value) if content is None else cls(content)

    @property
    def text(self) -> str:
        """
        What a model reads as text: the text blocks joined, or the structured content as JSON.

        Pictures, sound and files are not in it; a wire carries them beside it.
        """
        if self.content or self.structured_content is UNSET:
            return "".join(block.text for block in self.content if isinstance(block, Text))
        if isinstance(self.structured_content, RawJSON):
            return self.structured_content.text
        return json_text(self.structured_content)

    def to_json(self) -> dict[str, object]:
        """Return the result as plain JSON; details travel when they are JSON or a `Record`."""
        written: dict[str, object] = {"content": [block.to_json() for block in self.content]}
        if isinstance(self.structured_content, RawJSON):
            written["raw_json"] = self.structured_content.text
        elif self.structured_content is not UNSET:
            written["structured_content"] = plain(self.structured_content)
        write_details(written, self.details)
        if self.terminate:
            written["terminate"] = True
        return written

    @classmethod
    def from_json(cls, value: object) -> Self:
        """
        Return the result that `to_json` wrote.

        Raises:
            InvalidValue: `value` is not what `to_json` writes.
        """
        read = read_written(value, _WrittenResult, "Result")
        structured = read.structured_content
        if read.raw_json is not None:
            if structured is not UNSET:
                raise InvalidValue("this is no Result: it has raw_json and structured_content")
            structured = RawJSON(read.raw_json)
        return cls(
            read.content,
            structured_content=structured,
            details=read.all_details,
            terminate=read.terminate,
        )


class Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The members that a result and a failure share in JSON."""

    content: tuple[Content, ...] = ()
    details: object = None
    record: Record | None = None
    terminate: bool = False

    @property
    def all_details(self) -> object:
        """The details as they were before they were written."""
        if self.record is None:
            return self.details
        if self.details is not None:
            raise InvalidValue("details are either a record or JSON, not both")
        return self.record


class _WrittenResult(Written, frozen=True, kw_only=True):
    structured_content: object = UNSET
    raw_json: str | None = None


def write_details(written: dict[str, object], details: object) -> None:
    """Add `details` to `written` if they can travel: JSON values and a `Record` can."""
    if isinstance(details, Record):
        written["record"] = details.to_json()
    elif isinstance(details, _JSON):
        done = contain(plain, cast("object", details))
        if not isinstance(done, Broke):
            written["details"] = done


_JSON = (dict, list, str, int, float, bool)


def read_written(value: object, shape: type[W], name: str) -> W:
    """Return `value` in the given written shape; `name` is what the sentence calls it."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise InvalidValue(refusal(name, error)) from None


def _content_of(value: object) -> tuple[Content, ...] | None:
    """Return what a tool returned as content, or `None` if it is structured content."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (Text(str.__str__(value)),) if value else ()
    if isinstance(value, CONTENT):
        return (value,)
    if is_sequence(value) and value and isinstance(value[0], CONTENT):
        return blocks(cast("Iterable[Content]", value))
    return None


def blocks(content: str | Content | Iterable[Content]) -> tuple[Content, ...]:
    """
    Return `content` as a tuple of blocks; a string is one text, an empty string is none.

    Raises:
        InvalidValue: something in it is no block.
    """
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if isinstance(content, CONTENT):
        return (content,)
    if isinstance(content, Iterable) and not isinstance(content, Mapping | bytes):
        parts = tuple(content)
        for part in parts:
            if not isinstance(part, CONTENT):
                raise InvalidValue(f"content is made of blocks, not of {type(part).__name__}")
        return parts
    kind = type_name(cast("object", content))
    raise InvalidValue(f"content is text, a block or a list of blocks, not {kind}")


def is_larger(result: Result, limit: int) -> bool:
    """Return whether a result's texts, bytes and structured content are more than `limit` bytes."""
    content, structured = result.content, result.structured_content
    total = 0
    for block in content:
        if isinstance(block, Text):
            total += _bytes_of(block.text)
        elif not isinstance(block, Link) and block.data is not None:
            total += len(block.data)
    if isinstance(structured, RawJSON):
        total += _bytes_of(structured.text)
    elif structured is not UNSET:
        total += len(msgspec.json.encode(structured))  # orjson would take ten times the memory
    return total > limit


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
