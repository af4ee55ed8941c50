"""
Open Responses: tools for a request, calls from a response, outputs for the next request.

The format has no member for an error, for structured content or for sound. An error is text that
begins with `Error: `, structured content is JSON text where there is no other content, and sound
travels as a file. What is lost on the way is listed in `Wire.losses`.

Shapes: the OpenAPI document of github.com/openresponses/openresponses, version 2026-04-24.
"""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias, assert_never, cast, runtime_checkable

from msgspec import UNSET

from ferrule import (
    Audio,
    Completed,
    Content,
    Definition,
    Failed,
    File,
    Image,
    InvalidValue,
    Link,
    Outcome,
    Registry,
    Source,
    Suspended,
    Text,
    Tool,
    ToolCall,
    cut_json,
    cut_text,
)
from ferrule.wire._losses import Loss
from ferrule.wire._names import Names
from ferrule.wire._texts import clean

__all__ = ("Wire",)

Item: TypeAlias = dict[str, object]
"""One item of a response or a request, or a part of one, as plain JSON."""

_NAME_CHARACTERS = "A-Za-z0-9_-"
_LONGEST_NAME = 64
_LONGEST_CALL_ID = 64
_LONGEST_TEXT = 10_485_760
_LONGEST_IMAGE = 20_971_520
_LONGEST_FILE = 33_554_432
_LONGEST_ENDING = 8

_CUT_OFF_STATUS = ("incomplete", "in_progress")
"""A tuple: a status may be anything, and what has no hash cannot be looked for in a set."""

_CUT_OFF = "{"
"""Arguments of a call that the model did not come to write: no JSON, so the call is refused."""


class Wire:
    """
    Says a registry's tools in Open Responses, reads a model's calls, and says how they ended.

    Takes plain dicts or the objects of an SDK and gives plain dicts. What it gives is strict JSON.

    Args:
        tools: A registry, or tools to make one from. It need not be open; a change to a registry
            shows at once.
    """

    def __init__(self, tools: Registry | Iterable[Tool | Source]) -> None:
        self._registry = tools if isinstance(tools, Registry) else Registry(tools)
        self._rendered: tuple[Loss, ...] = ()

    @property
    def tools(self) -> list[Item]:
        """The `tools` of a request, sorted by name."""
        names = self._names()
        return [_tool(one, names.outward(one.name)) for one in self._registry.definitions()]

    @property
    def losses(self) -> tuple[Loss, ...]:
        """
        What could not be said: of the tools, and of the outputs that were rendered last.

        Hints are not among them: they are for harnesses and no model ever reads them.
        """
        definitions = self._registry.definitions()
        return (*(loss for one in definitions for loss in _tool_losses(one)), *self._rendered)

    def calls(self, response: object) -> list[ToolCall]:
        """
        Return the function calls of a response, in order, under the tools' own names.

        A name that was not sent stays as the model wrote it, and so do the arguments. A call that
        was cut off before its arguments came is given arguments that no tool admits: the empty
        text would mean "no arguments" and run it.

        Raises:
            InvalidValue: `response` is no response; the sentence says where.
        """
        names = self._names()
        found = _items(response)
        return [_call(one, path, names) for path, one in found if one["type"] == "function_call"]

    def outputs(self, calls: Sequence[ToolCall], outcomes: Sequence[Outcome]) -> list[Item]:
        """
        Return one `function_call_output` item for each call, in the calls' order.

        Raises:
            InvalidValue: a call waits for an answer, or there is not one outcome for each call;
                nothing was rendered.
        """
        if len(calls) != len(outcomes):
            raise InvalidValue(
                f"there are {len(calls)} calls and {len(outcomes)} outcomes; "
                "give the outcome of every call, in the calls' order"
            )
        _refuse_waiting(calls, outcomes)
        room = min(self._registry.limits.model_bytes, _LONGEST_TEXT)
        items: list[Item] = []
        losses: list[Loss] = []
        for index, (call, outcome) in enumerate(zip(calls, outcomes, strict=True)):
            output = _Output(f"outputs[{index}]", room)
            items.append(
                {
                    "type": "function_call_output",
                    "call_id": call.id,
                    "output": output.of(outcome),
                }
            )
            losses += output.losses
        self._rendered = tuple(losses)
        return items

    def reply(self, response: object, outcomes: Sequence[Outcome]) -> list[Item]:
        """
        Return the items that continue the conversation: the response's own, then the outputs.

        Raises:
            InvalidValue: as `calls` and `outputs` do.
        """
        own = [item for _, item in _items(response)]
        return own + self.outputs(self.calls(response), outcomes)

    def _names(self) -> Names:
        names = self._registry.names
        return Names(names, allowed=_NAME_CHARACTERS, longest=_LONGEST_NAME)


# ---- tools ---------------------------------------------------------------------------------------


def _tool(definition: Definition, name: str) -> Item:
    return {
        "type": "function",
        "name": name,
        "description": clean(definition.description),
        "parameters": definition.input_schema,
        "strict": definition.strict,  # Said even when false: left out, it means true to some.
    }


def _tool_losses(definition: Definition) -> Iterator[Loss]:
    path = f"tools.{definition.name}"
    if definition.title is not None:
        yield Loss(path=f"{path}.title", what="a tool has no title here; the model does not see it")
    if definition.output_schema is not None:
        what = "a tool has no output schema here; the model does not see it"
        yield Loss(path=f"{path}.output_schema", what=what)


# ---- calls ---------------------------------------------------------------------------------------


@runtime_checkable
class _Model(Protocol):
    """An object of an SDK that is made with pydantic."""

    def model_dump(
        self, *, mode: str, by_alias: bool, exclude_none: bool, warnings: bool
    ) -> dict[str, object]: ...


def _items(response: object) -> list[tuple[str, Item]]:
    """Return the output items of a response as plain dicts, each with its path."""
    if isinstance(response, Mapping):
        output = cast("Mapping[str, object]", response).get("output")
    else:
        output = getattr(response, "output", None)
    if not isinstance(output, list | tuple):
        raise InvalidValue("this is no response: it has no `output`, a list of items")
    items = enumerate(cast("Sequence[object]", output))
    return [(path := f"output[{index}]", _item(one, path)) for index, one in items]


def _item(one: object, path: str) -> Item:
    if isinstance(one, Mapping):
        item = dict(cast("Mapping[str, object]", one))
    elif isinstance(one, _Model):
        # Members without a value are left out: providers refuse some of them when they are null.
        item = one.model_dump(mode="json", by_alias=True, exclude_none=True, warnings=False)
    else:
        item = dict(getattr(one, "__dict__", {}))
    if not isinstance(item.get("type"), str):
        raise InvalidValue(f"this is no response: {path} has no `type`")
    return item


def _call(item: Item, path: str, names: Names) -> ToolCall:
    call_id, name, arguments = (item.get(key) for key in ("call_id", "name", "arguments"))
    if not isinstance(call_id, str) or not _is_call_id(call_id):
        wanted = f"a string of 1 to {_LONGEST_CALL_ID} characters, to pair its output with"
        raise InvalidValue(f"this is no response: {path}.call_id is not {wanted}")
    if not isinstance(name, str):
        raise InvalidValue(f"this is no response: {path}.name is not a string")
    if arguments is not None and not isinstance(arguments, str):
        raise InvalidValue(f"this is no response: {path}.arguments is not a string of JSON")
    text = arguments or ""
    if not text.strip() and item.get("status") in _CUT_OFF_STATUS:
        text = _CUT_OFF
    return ToolCall(id=call_id, name=names.inward(_escaped(name)), arguments=_escaped(text))


def _is_call_id(text: str) -> bool:
    """Return whether an output can bear this call id, character by character."""
    return 1 <= len(text) <= _LONGEST_CALL_ID and clean(_escaped(text)) == text


def _escaped(text: str) -> str:
    """
    Return `text` with each lone surrogate as the escape that JSON has for it.

    UTF-8 cannot carry it. The escape means the same, and no JSON reader of ours takes it: that
    call is refused, and its siblings are not.
    """
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


# ---- outputs -------------------------------------------------------------------------------------


def _refuse_waiting(calls: Sequence[ToolCall], outcomes: Sequence[Outcome]) -> None:
    waiting = [
        f"{call.id!r} of {call.name!r}"
        for call, outcome in zip(calls, outcomes, strict=True)
        if isinstance(outcome, Suspended)
    ]
    if waiting:
        raise InvalidValue(
            f"nothing is rendered while a call waits for an answer: {', '.join(waiting)}"
        )


class _Output:
    """
    Renders how one call ended.

    Attributes:
        losses: What could not be said of it.
    """

    __slots__ = ("_path", "_room", "losses")

    def __init__(self, path: str, room: int) -> None:
        self.losses: list[Loss] = []
        self._path = path
        self._room = room  # Bytes of text that may still be shown.

    def of(self, outcome: Outcome) -> str | list[Item]:
        """Return the `output` of the item: text, or parts where text alone does not say it."""
        content = _content(outcome)
        if isinstance(outcome, Completed) and outcome.result.structured_content is not UNSET:
            if not content:
                return self._json(outcome.text)
            self._lose("structured_content", "the content beside it is said, and it is not")
        if all(isinstance(block, Text) for block in content):
            return self._text(outcome.text, "content")
        return list(self._parts(outcome, content))

    def _parts(self, outcome: Outcome, content: tuple[Content, ...]) -> Iterator[Item]:
        if outcome.is_error:
            # The outcome's own text says that it is an error; the rest stands beside it.
            yield _input_text(self._text(outcome.text, "content"))
        for index, block in enumerate(content):
            if not (outcome.is_error and isinstance(block, Text)):
                yield self._part(block, f"content[{index}]")

    def _part(self, block: Content, path: str) -> Item:
        match block:
            case Text(text=text):
                return _input_text(self._text(text, path))
            case Image():
                return self._image(block, path)
            case Audio():
                self._lose(path, "sound is sent as a file")
                return self._file(block, "audio", path)
            case File(name=name):
                return self._file(block, name or "file", path)
            case Link():
                # As text: an address in a part of its own would be fetched by the provider.
                return _input_text(self._text(_link_text(block), path))
            case _:
                assert_never(block)

    def _image(self, image: Image, path: str) -> Item:
        url = image.data_url
        if len(url) > _LONGEST_IMAGE:
            return self._left_out(path, "a picture", len(url), _LONGEST_IMAGE)
        return {"type": "input_image", "image_url": clean(url)}

    def _file(self, file: File | Audio, name: str, path: str) -> Item:
        if file.data is None:
            item: Item = {"type": "input_file", "file_url": clean(file.url or "")}
            return item | (
                {"filename": clean(name)} if isinstance(file, File) and file.name else {}
            )
        encoded = base64.b64encode(file.data).decode()
        if len(encoded) > _LONGEST_FILE:
            return self._left_out(path, f"the file {name}", len(encoded), _LONGEST_FILE)
        if isinstance(file, File):
            self._lose(f"{path}.mime_type", "the type of a file is told by its name alone")
        whole = name if "." in name else f"{name}.{_ending(file.mime_type or '')}"
        return {"type": "input_file", "filename": clean(whole), "file_data": encoded}

    def _left_out(self, path: str, what: str, size: int, limit: int) -> Item:
        self._lose(path, f"left out: {size} characters, and {limit} is the most")
        return _input_text(self._text(f"[{what} is left out: it is too large to be sent]", path))

    def _text(self, text: str, path: str) -> str:
        return self._bounded(clean(text), cut_text, path)

    def _json(self, text: str) -> str:
        return self._bounded(clean(text), cut_json, "structured_content")

    def _bounded(self, text: str, cut: Callable[[str, int], str], path: str) -> str:
        shown = cut(text, self._room)
        self._room = max(self._room - len(shown.encode()), 0)
        if shown is not text:
            self._lose(path, "cut: the model reads its beginning alone")
        return shown

    def _lose(self, path: str, what: str) -> None:
        self.losses.append(Loss(path=f"{self._path}.{path}", what=what))


def _content(outcome: Outcome) -> tuple[Content, ...]:
    """Return what a tool said as content; what the boundary says of a call is text alone."""
    match outcome:
        case Completed(result=result):
            return result.content
        case Failed(failure=failure):
            return failure.content
        case _:
            return ()


def _input_text(text: str) -> Item:
    return {"type": "input_text", "text": text}


def _link_text(link: Link) -> str:
    """Return a link as a line: `name: url (type), description`, without what it does not have."""
    name = f"{link.name}: " if link.name else ""
    kind = f" ({link.mime_type})" if link.mime_type else ""
    description = f", {link.description}" if link.description else ""
    return f"{name}{link.url}{kind}{description}"


def _ending(mime_type: str) -> str:
    """Return what the name of a file of this type ends in."""
    kind = mime_type.lower().rpartition("/")[2].removeprefix("x-")
    known = {"mpeg": "mp3", "plain": "txt", "markdown": "md", "javascript": "js"}.get(kind, kind)
    return known if known.isalnum() and known.isascii() and len(known) <= _LONGEST_ENDING else "bin"
