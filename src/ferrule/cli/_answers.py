"""From what a person types to an answer, and from a question to what is to be typed."""

import json
from collections.abc import Mapping
from typing import cast

from ferrule import FerruleError, read_json
from ferrule.cli._journal import REFUSED, typed
from ferrule.cli._refused import Refused
from ferrule.helpers import one_line
from ferrule.ports import Wait

_KINDS = {
    "boolean": ("yes or no", "yes"),
    "string": ("a text", "TEXT"),
    "integer": ("a whole number", "NUMBER"),
    "number": ("a number", "NUMBER"),
}
"""Types of which a schema says nothing more: how that is said, and what a person types."""

_WORDS = {"yes": True, "no": False}


def content_of(text: str, wait: Wait) -> object:
    """
    Return the answer that `text` is to a question.

    `yes` and `no` answer a question for a boolean, a word that is no JSON one for a string. All
    else is JSON, so that what is written is what is meant: `5` is a number and never a text.

    Raises:
        Refused: it is no JSON.
    """
    kind = _kind(wait)
    if kind == "boolean" and text.strip().lower() in _WORDS:
        return _WORDS[text.strip().lower()]
    try:
        return read_json(text)
    except FerruleError as error:
        if kind == "string" and not text.lstrip().startswith('"'):
            return text
        sentence = f"the answer is no JSON ({error}); this question takes {takes(wait)}"
        raise Refused(sentence, REFUSED) from None


def takes(wait: Wait) -> str:
    """Return what answers a question, in a line."""
    kind, choices = _kind(wait), _choices(wait)
    if choices and wait.schema == {"type": kind, "enum": choices}:
        return one_line(" or ".join(json.dumps(one, ensure_ascii=False) for one in choices))
    is_plain = kind in _KINDS and wait.schema == {"type": kind}
    return _KINDS[kind][0] if is_plain else schema_line(wait)


def schema_line(wait: Wait) -> str:
    """Return the schema of the answer in one line."""
    return one_line(json.dumps(wait.schema, ensure_ascii=False))


def how_to_answer(wait: Wait, name: str, path: str) -> str:
    """
    Return the command that answers a question.

    Args:
        wait: The question.
        name: The beginning of its id that is to be typed.
        path: The journal, as it was named.
    """
    command = typed("answer", name, _example(wait), "--journal", path)
    return f"{command}   (or no)" if _kind(wait) == "boolean" else command


def shown(answer: object) -> str:
    """Return an answer in one line."""
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    return one_line(json.dumps(answer, ensure_ascii=False))


def _kind(wait: Wait) -> str:
    """Return the one type that an answer has, or nothing."""
    kind = wait.schema.get("type") if isinstance(wait.schema, Mapping) else None
    return kind if isinstance(kind, str) else ""


def _choices(wait: Wait) -> list[object]:
    """Return the values of which an answer is one, or none where it may be others."""
    choices = wait.schema.get("enum") if isinstance(wait.schema, Mapping) else None
    return cast("list[object]", choices) if isinstance(choices, list) else []


def _example(wait: Wait) -> str:
    choices = _choices(wait)
    if choices:
        return json.dumps(choices[0], ensure_ascii=False)
    return _KINDS.get(_kind(wait), ("", "JSON"))[1]
