"""P5 and P15: strict reading against bare `orjson.loads`, and digests against `rfc8785`."""

import hashlib
import json
from collections.abc import Iterator
from functools import partial

import orjson
import rfc8785
from _measure import Row, ratio

from ferrule import digest, read_json

ARGUMENTS = {"path": "src/main.py", "line": 12, "recursive": True, "max": 4096}
RECORD = {
    "id": 12345,
    "name": "alpha beta",
    "tags": ["x", "y", "z"],
    "score": 1.25,
    "note": {"none": None, "ok": True, "text": "a longer text, with: punctuation (and so on)"},
}
WIDE = 10**30
"""An integer that sends a text to the exact path."""


def spaced(value: object) -> str:
    """Return JSON with the spaces that most models put in."""
    return json.dumps(value)


def compact(value: object) -> str:
    """Return JSON without a space."""
    return json.dumps(value, separators=(",", ":"))


def records(size: int) -> dict[str, object]:
    """Return arguments of about `size` bytes, if compact."""
    return {"title": "records", "items": [RECORD] * (size // len(compact(RECORD)))}


def ordinary() -> Iterator[tuple[str, str, float]]:
    """Yield what models write, with its goal."""
    yield "66 B", spaced(ARGUMENTS), 4
    yield "66 B without spaces", compact(ARGUMENTS), 4
    yield "4 KB", spaced(records(3600)), 2.2
    yield "4 KB without spaces", compact(records(4000)), 2.2
    yield "1 MB", spaced(records(900_000)), 2.5
    yield "1 MB without spaces", compact(records(1_000_000)), 2.5


def worst() -> Iterator[tuple[str, str]]:
    """Yield the texts that cost most, within limits: each was looked for."""
    yield "66 B, exact path", spaced({**ARGUMENTS, "max": WIDE})
    yield "4 KB, exact path", spaced([records(3600), WIDE])
    yield "1 MB, exact path", spaced([records(900_000), WIDE])
    yield "empty objects, exact path", spaced([*([{}] * 50_000), WIDE])
    yield "large floats, exact path", spaced([*([1.5e300] * 50_000), WIDE])
    yield "escaped pairs, exact path", spaced([*(["\U0001f600"] * 50_000), WIDE])
    yield "JSON in a string", spaced({"path": "data.json", "content": compact([RECORD] * 5000)})
    yield "127 levels, 700 times", compact([json.loads("[" * 127 + "]" * 127)] * 700)
    yield "Chinese", json.dumps("漢字、。" * 80_000, ensure_ascii=False)


def schema() -> dict[str, object]:
    """Return a JSON Schema of about 4 KB."""
    word = {"type": "string", "description": "A sentence: what it is for.", "enum": ["a", "b"]}
    number = {"type": ["integer", "null"], "minimum": 0, "maximum": 1e9, "default": None}
    properties = {f"field_{index}": (number, word)[index % 2] for index in range(44)}
    return {"type": "object", "properties": properties, "required": list(properties)}


def reading(what: str, text: str, goal: float) -> Row:
    """Measure the reading of one text."""
    figure = ratio(partial(read_json, text), partial(orjson.loads, text))
    return Row(id="P5", what=f"read_json, {what}", ratio=figure, goal=goal)


def growth() -> Row:
    """Measure what a byte costs on the exact path when there are eight times as many."""
    small, large = (spaced([*([RECORD] * count), WIDE]) for count in (500, 4000))
    figure = ratio(partial(read_json, large), partial(read_json, small))
    figure *= len(small) / len(large)
    return Row(id="P5", what="a byte of eight times as many, exact path", ratio=figure, goal=1.5)


def digesting() -> Row:
    """Measure the digest of a schema."""
    document = schema()
    floor = partial(lambda value: hashlib.sha256(rfc8785.dumps(value)).hexdigest(), document)
    assert digest(document) == f"sha256:{floor()}"
    figure = ratio(partial(digest, document), floor)
    what = f"digest of a schema of {len(compact(document)):,} B, against rfc8785"
    return Row(id="P15", what=what, ratio=figure, goal=0.5)


def rows() -> list[Row]:
    """Measure the rows."""
    return [
        *(reading(what, text, goal) for what, text, goal in ordinary()),
        *(reading(f"worst cases: {what}", text, 14) for what, text in worst()),
        growth(),
        digesting(),
    ]


if __name__ == "__main__":
    print(*rows(), sep="\n")
