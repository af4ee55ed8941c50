"""A model's response from a file or from standard input, read strictly and told apart by format."""

import sys
from pathlib import Path
from typing import cast

from ferrule import InvalidJSON, InvalidValue, Limits, read_json
from ferrule.cli._refused import Refused
from ferrule.wire.openresponses import Wire

FORMATS = {"openresponses": Wire}
"""The wire of each format that a response may have."""

AUTO = "auto"

# A turn may be of any size: what bounds a call are the limits of its registry, and a call that
# breaks them is refused alone. Arguments are text in the turn, so their depth is not the turn's.
_ANY_SIZE = Limits(argument_bytes=1 << 40, nodes=1 << 40, depth=512)


def read_turn(source: str, form: str) -> tuple[dict[str, object], str]:
    """
    Read the response in the file `source`, or on standard input for `-`; say its format.

    Args:
        source: A path or `-`.
        form: A format of `FORMATS`, or `auto`.

    Raises:
        Refused: it cannot be read, is no JSON, is no response, or is empty.
    """
    name = "standard input" if source == "-" else source
    document = _document(_bytes(source, name), name)
    response = cast("dict[str, object]", document) if isinstance(document, dict) else {}
    known = form if form != AUTO else _recognised(response)
    if known is None:
        formats = ", ".join(FORMATS)
        raise Refused(f"{name} is no response of a model: an object with an `output` ({formats})")
    try:
        FORMATS[known](()).calls(response)
    except InvalidValue as error:
        raise Refused(f"{name}: {error}") from None
    if not response.get("output"):
        raise Refused(f"{name} is empty: there is nothing in its `output`")
    return response, known


def _recognised(response: dict[str, object]) -> str | None:
    """Return the format whose mark a document bears."""
    return "openresponses" if isinstance(response.get("output"), list) else None


def _bytes(source: str, name: str) -> bytes:
    try:
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise Refused(f"cannot read {name}: {error.strerror or error}") from None
    if not data.strip():
        raise Refused(f"{name} is empty; give a model's response as JSON")
    return data


def _document(data: bytes, name: str) -> object:
    try:
        return read_json(data, limits=_ANY_SIZE)
    except InvalidJSON as error:
        raise Refused(f"{name} is {_refusal(error, data)}") from None


def _refusal(error: InvalidJSON, data: bytes) -> str:
    """Return what is wrong, with line and column where the reader gave a position."""
    if error.position is None:
        return str(error)
    before = data.decode(errors="replace")[: error.position]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    within = f" in {error.path}" if error.path else ""
    return f"not valid JSON at line {line}, column {column}{within}: {error.rule}"
