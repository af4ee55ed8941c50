"""What a tool gives back: blocks, results, raw JSON and records, as values and as JSON."""

import dataclasses
import enum
import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple, TypedDict, cast
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import (
    Audio,
    Content,
    File,
    Image,
    InvalidResult,
    InvalidValue,
    Link,
    RawJSON,
    Record,
    Result,
    Text,
    read_json,
)

PICTURE = Image(data=b"\x89PNG\xff", mime_type="image/png")
BLOCKS: list[Content] = [
    Text("value-é-値"),
    PICTURE,
    Image(url="https://example.com/a.png"),
    Audio(data=b"", mime_type="audio/wav"),
    File(data=b"a", name="a.txt", mime_type="text/plain"),
    File(url="file:///a.txt", name="a.txt"),
    Link("https://example.com", name="n", mime_type="text/html", description="d"),
]


# ---- blocks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: type(block).__name__)
def test_every_block_is_content_and_survives_a_round_trip(block: Content) -> None:
    """Scope 107, 114, 117; DEF-4: bytes travel as base64, and no kind is lost."""
    assert type(block).from_json(block.to_json()) == block
    assert Result.from_json(Result((block,)).to_json()) == Result((block,))
    assert Result.of(block) == Result.of([block]) == Result((block,))


@pytest.mark.parametrize(
    "make",
    [
        Image,
        lambda: Image(data=b"a", url="https://example.com", mime_type="image/png"),
        lambda: Image(data=b"a"),
        lambda: Image(data=cast("bytes", "aGk="), mime_type="image/png"),
        lambda: Image(data=cast("bytes", bytearray(b"a")), mime_type="image/png"),
        lambda: Audio(url=cast("str", 5)),
        lambda: File(url="a", name="\ud800"),
        lambda: File(data=b"a", name="a.txt"),
        lambda: Text(cast("str", 5)),
        lambda: Text("\ud800"),
        lambda: Link(cast("str", None)),
        lambda: Link("a", description="\udfff"),
    ],
)
def test_a_block_that_cannot_be_is_refused_when_it_is_made(make: Callable[[], Content]) -> None:
    """Scope 117, FAIL-5: a lone surrogate has no UTF-8; bytes say what they are."""
    with pytest.raises(InvalidValue):
        make()


def test_a_block_as_a_data_url() -> None:
    """Agenttool 42: bytes beside an address, as wires want them."""
    assert PICTURE.data_url == "data:image/png;base64,iVBOR/8="
    assert Image(url="https://example.com/a.png").data_url == "https://example.com/a.png"


@pytest.mark.parametrize(
    "form",
    [
        {"type": "tool_call", "id": "c1", "name": "a", "arguments": "{}"},
        {"type": "text", "text": 5},
        {"type": "text", "text": "a", "more": 1},
        {"type": "image"},
        {"type": "image", "data": "!", "mime_type": "image/png"},
        {"text": "a"},
        "a",
        None,
    ],
)
def test_content_is_made_of_blocks_alone(form: object) -> None:
    """Scope 115, DEF-4: a call inside a result's content is no block."""
    with pytest.raises(InvalidValue):
        Result.from_json({"content": [{"type": "text", "text": "fine"}, form]})


@pytest.mark.parametrize("content", [[5], [None], "text", [b"a"], {"a": 1}, 5, [["a"]], [Text]])
def test_content_that_is_no_block_is_refused(content: object) -> None:
    """Scope 115: when the result is made."""
    if content == "text":
        assert Result(cast("tuple[Content, ...]", content)) == Result((Text("text"),))
        return
    with pytest.raises(InvalidValue, match="content is"):
        Result(cast("tuple[Content, ...]", content))


# ---- results -------------------------------------------------------------------------------------


class Colour(enum.Enum):
    """An enum by value."""

    RED = "red"


class Point(NamedTuple):
    """A tuple with names."""

    x: int
    y: float


class Row(TypedDict):
    """A typed dictionary."""

    name: str


@dataclasses.dataclass
class Stat:
    """A dataclass in which nothing is left out."""

    size: int
    when: datetime


@attrs.define
class Attrs:
    """An attrs class."""

    a: int


class Struct(msgspec.Struct):
    """A struct, renamed."""

    inner: int = msgspec.field(name="outer")


class Model(pydantic.BaseModel):
    """A pydantic model with an alias."""

    inner: int = pydantic.Field(serialization_alias="outer", default=1)
    when: date = date(2026, 1, 2)


class Name(str):
    """A string of a library, as path and enum classes make them."""

    __slots__ = ()


class Count(int):
    """An integer of a library."""


class Ratio(float):
    """A float of a library, as numpy's `float64` is."""


def numbers() -> Iterator[int]:
    """Yield, where a list belongs."""
    yield 1


STAT = {"size": 1, "when": "2026-01-02T00:00:00Z"}
STRUCTURED: dict[str, tuple[object, object]] = {
    "integer": (5, 5),
    "wide integer": (2**70, 2**70),
    "negative": (-(2**64), -(2**64)),
    "float": (1.5, 1.5),
    "bool": (True, True),
    "list": ([1, [2.0]], [1, [2.0]]),
    "empty list": ([], []),
    "tuple": ((1, "a"), [1, "a"]),
    "empty dict": ({}, {}),
    "sorted": ({"b": 1, "a": {"d": 1, "c": 2}}, {"a": {"c": 2, "d": 1}, "b": 1}),
    "mapping": (MappingProxyType({"b": 1, "a": 2}), {"a": 2, "b": 1}),
    "integer keys": ({1: "a"}, {"1": "a"}),
    "set": ({3, 1, 2}, [1, 2, 3]),
    "frozenset": (frozenset("ba"), ["a", "b"]),
    "enum": ([Colour.RED], ["red"]),
    "named tuple": (Point(1, 2.5), [1, 2.5]),
    "typed dict": (Row(name="a"), {"name": "a"}),
    "dataclass": (Stat(1, datetime(2026, 1, 2, tzinfo=UTC)), STAT),
    "attrs": (Attrs(1), {"a": 1}),
    "struct": (Struct(1), {"outer": 1}),
    "pydantic": ([Model()], [{"outer": 1, "when": "2026-01-02"}]),
    "date": ([date(2026, 1, 2), time(3, 4)], ["2026-01-02", "03:04:00"]),
    "duration": ([timedelta(seconds=1.5)], ["PT1.5S"]),
    "decimal": ([Decimal("0.10")], ["0.10"]),
    "uuid": ([UUID(int=1)], ["00000000-0000-0000-0000-000000000001"]),
    "path": ([PurePosixPath("/a/b")], ["/a/b"]),
    "bytes": (b"\xff", "/w=="),
    "library string": ({"a": Name("b")}, {"a": "b"}),
    "library integer": ([Count(3)], [3]),
    "library float": (Ratio(2.5), 2.5),
    "unicode": ({"é": "値😀"}, {"é": "値😀"}),
}


@pytest.mark.parametrize("name", STRUCTURED)
def test_every_other_value_is_structured_content_with_one_form(name: str) -> None:
    """FN-6, EX-10, DEF-5, scope 48, 56, 111: sorted, finite, exact; the model reads it as JSON."""
    value, form = STRUCTURED[name]

    result = Result.of(value)

    assert result.content == ()
    assert result.structured_content == form
    assert read_json(result.text) == form
    assert Result.from_json(result.to_json()) == result
    assert result == Result(structured_content=value)


def test_an_exact_form_is_also_of_the_exact_type() -> None:
    """DEF-5: 2.0 stays a float, 2 an integer, and a subclass becomes what it is one of."""
    given_back = cast(
        "list[object]", Result.of([2, 2.0, Name("a"), Count(1), True]).structured_content
    )

    assert [type(item) for item in given_back] == [int, float, str, int, bool]


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (None, ()),
        ("", ()),
        ("5", (Text("5"),)),
        (Name("defined"), (Text("defined"),)),
        (PICTURE, (PICTURE,)),
        ([PICTURE, Text("a")], (PICTURE, Text("a"))),
        ((Text("a"),), (Text("a"),)),
    ],
)
def test_text_content_and_nothing_stay_what_they_are(
    value: object, content: tuple[Content, ...]
) -> None:
    """FN-6, scope 55, 58, 113, 118; agenttool 42: a string verbatim, nothing is empty."""
    result = Result.of(value)

    assert result == Result(content)
    assert result.structured_content is msgspec.UNSET
    assert result.text == "".join(part.text for part in content if isinstance(part, Text))


def test_a_result_is_given_on_as_it_is() -> None:
    """FN-6, agenttool 42: details and termination too."""
    result = Result((Text("a"),), details=object(), terminate=True)

    assert Result.of(result) is result


def test_with_both_the_model_reads_the_content() -> None:
    """FN-6: structured content goes beside it where a wire can carry it; pictures are no text."""
    both = Result((Text("a"), PICTURE, Text("b")), structured_content={"n": 1})

    assert both.text == "ab"
    assert Result((PICTURE,), structured_content=1).text == ""
    assert Result(structured_content=None).text == "null"
    assert Result.from_json(both.to_json()) == both


class Silent:
    """An object whose text breaks, as a key or as a value."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def inside_itself() -> list[object]:
    """Return a list that holds itself."""
    around: list[object] = []
    around.append(around)
    return around


def very_deep() -> object:
    """Return a value of more levels than Python's stack."""
    value: object = 1
    for _ in range(50_000):
        value = [value]
    return value


class Broken(pydantic.BaseModel):
    """A model that breaks while it is written."""

    a: int = 1

    @pydantic.field_serializer("a")
    def write(self, _: int) -> int:
        """Break."""
        raise RuntimeError("private")


FORMLESS: dict[str, tuple[object, str]] = {
    "NaN": ([{"mean": math.nan}], "$[0].mean"),
    "infinity": ({"max": math.inf}, "$.max"),
    "NaN alone": (math.nan, "$"),
    "NaN of a library": ([Ratio("nan")], "$[0]"),
    "object": ({"t": 1, "o": object()}, "$.o"),
    "class": ([int], "$[0]"),
    "generator": (numbers(), "$"),
    "complex": ({"z": 1j}, "$.z"),
    "exception": (ValueError("a"), "$"),
    "ellipsis": ([1, ...], "$[1]"),
    "surrogate": ({"a": ["\ud800"]}, "$.a[0]"),
    "surrogate name": ({"\ud800": 1}, "$"),
    "tuple keys": ({(1, 2): 1}, "$"),
    "unorderable set": ({1, "a"}, "$"),
    "too many digits": (10**5000, "$"),
    "inside itself": (inside_itself(), "$"),
    "very deep": (very_deep(), "$"),
    "broken text": ([Silent()], "$[0]"),
    "broken name": ({Silent(): 1}, "$"),
    "broken model": (Broken(), "$"),
    "NaN in a model": (Stat(cast("int", math.nan), datetime.now(UTC)), "$"),
}


@pytest.mark.parametrize("name", FORMLESS)
@pytest.mark.parametrize("how", ["of", "made"])
def test_a_value_without_a_json_form_is_refused_with_its_place(name: str, how: str) -> None:
    """FN-6, EX-10, EX-12, scope 60: never a silent text, never `NaN`, never another error."""
    value, place = FORMLESS[name]

    with pytest.raises(InvalidResult) as caught:
        Result.of(value) if how == "of" else Result(structured_content=value)

    assert str(caught.value).startswith(f"the value at {place}")
    assert len(str(caught.value)) < 3000


@pytest.mark.parametrize("value", ["\ud800", Name("a\udc00"), [Text("a"), 5]])
def test_text_that_has_no_utf8_is_a_result_that_cannot_be(value: object) -> None:
    """Scope 68, 117; WIRE-2: refused as a result, since the tool did run."""
    with pytest.raises(InvalidResult):
        Result.of(value)


def test_a_result_shares_nothing_with_what_was_returned() -> None:
    """DEF-4: changing the returned object afterwards changes no result."""
    given_back: dict[str, object] = {"a": [1]}
    made, of, read = (
        Result(structured_content=given_back),
        Result.of(given_back),
        Result.from_json({"structured_content": given_back}),
    )
    given_back["a"] = "changed"

    assert made.structured_content == of.structured_content == read.structured_content == {"a": [1]}


@pytest.mark.parametrize(
    ("details", "travels"),
    [
        ({"a": [1, 2.5, None, "é"]}, True),
        ("text", True),
        (5, True),
        (Record("shell:process", data={"pid": 1}), True),
        (object(), False),
        (ValueError("private"), False),
        ({"a": object()}, False),
        ({"a": math.nan}, False),
        ((1, 2), False),
    ],
)
def test_details_travel_when_they_are_json_or_a_record(details: object, travels: bool) -> None:
    """DEF-4, scope 84: other details stay in the process, and the result travels without them."""
    result = Result((Text("a"),), details=details, terminate=True)
    back = Result.from_json(result.to_json())

    assert result.details is details
    assert back.details == (details if travels else None)
    assert (back.text, back.terminate) == ("a", True)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[object] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), FINITE, TEXT),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
CONTENT = st.lists(st.sampled_from(BLOCKS), max_size=3).map(tuple)


@given(CONTENT, JSON | st.just(msgspec.UNSET), JSON, st.booleans())
def test_any_result_survives_a_round_trip(
    content: tuple[Content, ...], structured: object, details: object, terminate: bool
) -> None:
    """DEF-4, DEF-5, scope 107, 111: `null` is kept apart from nothing."""
    result = Result(content, structured_content=structured, details=details, terminate=terminate)
    back = Result.from_json(result.to_json())

    assert back == result
    assert back.text == result.text


@pytest.mark.parametrize(
    "form",
    [
        None,
        [],
        "text",
        {"content": "text"},
        {"content": None},
        {"text": "a"},
        {"terminate": "yes"},
        {"terminate": 1},
        {"raw_json": "{"},
        {"raw_json": "1", "structured_content": 1},
        {"record": {"namespace": "a"}},
        {"record": {"namespace": "a:b"}, "details": 1},
        {"structured_content": object()},
        {"structured_content": math.nan},
        {"isError": False},
    ],
)
def test_what_is_no_result_is_refused_whole(form: object) -> None:
    """DEF-4, scope 116: unknown members, wrong types, two spellings of one thing."""
    with pytest.raises(InvalidValue):
        Result.from_json(form)


# ---- raw JSON ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["null", ' {"b": 1.0, "a":\t9007199254740993 }\n', '"\\u00e9"', "1.234567890123456789", "[]"],
)
def test_raw_json_is_given_on_byte_for_byte(text: str) -> None:
    """DEF-5, scope 57, 111."""
    result = Result.of(RawJSON(text))

    assert result.text == text
    assert result.structured_content == RawJSON(text)
    assert Result.from_json(result.to_json()) == result


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "{",
        "nul",
        "NaN",
        '{"a":1,"a":2}',
        "1e999",
        '"\\ud800"',
        "{} {}",
        "\ufeff1",
        5,
        None,
    ],
)
def test_raw_json_that_is_no_json_is_refused(text: object) -> None:
    """Scope 112, JSON-1: read once by the one reader."""
    with pytest.raises(InvalidValue):
        RawJSON(cast("str", text))


def test_raw_json_may_be_as_large_as_a_result() -> None:
    """JSON-3: bounded by what may be returned, not by what a model may send."""
    assert RawJSON("[" + "1," * 600_000 + "1]").read() == [1] * 600_001


# ---- records -------------------------------------------------------------------------------------


def test_a_record_keeps_its_data_as_it_was() -> None:
    """REC-1, AT-83: detached, exact, and back again from JSON."""
    data = {"pid": 2**60, "argv": ["a", "é"]}
    record = Record("shell:process-group", data=data)
    data["argv"] = []

    assert record.data == {"pid": 2**60, "argv": ["a", "é"]}
    assert Record.from_json(record.to_json()) == record


@pytest.mark.parametrize("namespace", ["", "shell", ":kind", "shell:", "\ud800:a", 5, None])
def test_a_record_has_an_owner_and_a_kind(namespace: object) -> None:
    """REC-1, AT-84: an empty namespace names nobody."""
    with pytest.raises(InvalidValue, match="namespace of a Record"):
        Record(cast("str", namespace))


@pytest.mark.parametrize("data", [object(), math.nan, {"a": {1, "a"}}])
def test_a_record_is_json(data: object) -> None:
    """REC-1, AT-84: what cannot be written is no record."""
    with pytest.raises(InvalidValue, match="has no JSON form"):
        Record("a:b", data=data)
