"""The JSON reader, its limits, the canonical form and the digest."""

import inspect
import json
import math
import sys
import tracemalloc
from collections.abc import Callable

import orjson
import pytest
import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ferrule import _ijson
from ferrule._ijson import (
    DEPTH_CEILING,
    Limits,
    blank,
    canonical,
    digest,
    read,
    read_json,
    wide_integers,
)
from ferrule.errors import InvalidJSON, InvalidValue
from fuzz_ijson import batches, difference, is_fast

WIDE = 10**30
"""An integer that only the exact path reads."""

NONCHARACTERS = [
    *range(0xFDD0, 0xFDF0),
    *(plane << 16 | last for plane in range(17) for last in (0xFFFE, 0xFFFF)),
]

RECORD = {
    "id": 12345,
    "name": "alpha beta",
    "tags": ["x", "y"],
    "score": 1.25,
    "ok": True,
    "nested": {"none": None, "text": "a longer text, with: punctuation [and] so on"},
}


def refusal(text: str | bytes, **limits: int) -> InvalidJSON:
    """Return the error that a text is refused with."""
    with pytest.raises(InvalidJSON) as caught:
        read_json(text, limits=Limits(**limits))
    return caught.value


def is_read(text: str | bytes, **limits: int) -> bool:
    """Say whether a text is read; if not, it must be a limit that refuses it."""
    error = error_of(text, **limits)
    assert error is None or error.kind == "too_large"
    return error is None


def error_of(text: str | bytes, **limits: int) -> InvalidJSON | None:
    """Return the error that a text is refused with, if it is."""
    try:
        read_json(text, limits=Limits(**limits))
    except InvalidJSON as error:
        return error
    return None


# Reading.


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null", None),
        (' {"a" : [1, 2.0, -0.0, true]}\r\n\t', {"a": [1, 2.0, -0.0, True]}),
        ("-0", 0),
        ("9007199254740993", 9007199254740993),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", 2**64),
        ("-9223372036854775809", -(2**63) - 1),
        ("1" * 308, int("1" * 308)),
        ("1e-400", 0.0),
        ("1e+30", 1e30),
        (r'"\ud83d\ude00 \u003a \u003A \u003b e+ \/"', "😀 : : ; e+ /"),
        ('"\ufeff\ufdcf\ufdf0\U0001fffd\u1ffe\u1fff\U00010000"',) * 2,
    ],
)
def test_a_document_is_read_exactly(text: str, value: object) -> None:
    """JSON-1, JSON-2: values are what the text says, integers of any size; bytes as characters."""
    expected = value if text[0] != '"' or value != text else text[1:-1]
    assert repr(read_json(text)) == repr(expected)
    assert repr(read_json(text.encode())) == repr(expected)


@pytest.mark.parametrize(
    ("text", "position", "path", "rule"),
    [
        ("", 0, "", "a value is expected"),
        ("[1, ]", 2, "", "a comma has nothing after it"),
        ('{"a":1,}', 6, "", "a comma has nothing after it"),
        ("[1,,2]", 3, "", "a value is expected"),
        ("[,]", 1, "", "a value is expected"),
        ("NULL", 0, "", "a value is expected"),
        ('{"a" 1}', 5, "", "a colon is expected"),
        ('{"a":1 "b":2}', 7, "", "a comma or a closing bracket is expected"),
        ("{a:1}", 1, "", "a member name in double quotes is expected"),
        ('["é', 1, "", "a string does not end"),
        ('["a\nb"]', 3, "", "a control character in a string is not escaped"),
        (r'["\x41"]', 2, "", "an escape is not one of JSON's"),
        ('{"a":1} {"b":2}', 8, "", "something follows the document"),
        ("\ufeff{}", 0, "", "a byte order mark is not JSON"),
        (b"\xef\xbb\xbf{}", 0, "", "a byte order mark is not JSON"),
        (b'["\xff"]', 2, "", "the bytes are not UTF-8"),
        ('"\ud800"', 1, "", "a surrogate without its pair"),
        ('"\ufffe"', 1, "", "a noncharacter"),
        ('{"a":[NaN]}', None, "$.a[0]", "NaN and Infinity are not JSON"),
        ("-Infinity", None, "$", "NaN and Infinity are not JSON"),
        ('{"a":{"b":1e999}}', None, "$.a.b", "a number is beyond the range of a double"),
        ("[-1e999]", None, "$[0]", "a number is beyond the range of a double"),
        (f"[{'9' * 309}]", None, "$[0]", "a number is beyond the range of a double"),
        (f"[-{'1' * 310}]", None, "$[0]", "a number is beyond the range of a double"),
        (f"[{'1' * 1_000_000}]", None, "$[0]", "a number is beyond the range of a double"),
        ('[{"a":1,"b":2,"a":3}]', None, "$[0].a", "a member name is repeated"),
        (r'{"a":1,"\u0061":2}', None, "$.a", "a member name is repeated"),
        (r'{"a":1,"a":"\u003a"}', None, "$.a", "a member name is repeated"),
        (r'{"a":1,"a":"\u003A"}', None, "$.a", "a member name is repeated"),
        (r'{"x":["\ud800"]}', None, "$.x[0]", "a surrogate without its pair"),
        (r'["\udc00\ud800"]', None, "$[0]", "a surrogate without its pair"),
        (r'{"x":["\ufffe"]}', None, "$.x[0]", "a noncharacter"),
        (r'{"\ud83d":1,"\ude00":2}', None, "$", "a member name holds a surrogate without its pair"),
        (r'{"a":{"\ufdd0":1}}', None, "$.a", "a member name holds a noncharacter"),
    ],
)
def test_a_refusal_names_position_or_path_and_rule(
    text: str | bytes, position: int | None, path: str, rule: str
) -> None:
    """JSON-1, JSON-6: each fault has its rule in words, and where it is."""
    error = refusal(text)
    assert (error.kind, error.position, error.path, error.rule) == (
        "invalid_json",
        position,
        path,
        rule,
    )


def test_every_noncharacter_is_refused_raw_and_escaped_in_strings_and_names() -> None:
    """JSON-1: all 66, on the fast path's way and the exact one; their neighbours are read."""
    for point in NONCHARACTERS:
        character = chr(point)
        raw = f'"{character}"'
        for string in (raw, json.dumps(character)):
            for text in (string, f'["é",{string},{WIDE}]', f"{{{string}:0}}"):
                assert "noncharacter" in refusal(text).rule
                assert "noncharacter" in refusal(text.encode()).rule
        for near in {point - 1, point + 1} - set(NONCHARACTERS) - {0x110000}:
            assert read_json(f'"{chr(near)}"') == chr(near)


def test_utf_16_is_refused() -> None:
    """JSON-1: with a byte order mark or without."""
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        refusal('{"a":1}'.encode(encoding))


def test_a_path_is_short_and_shows_what_is_invisible() -> None:
    """JSON-6: names of any length and kind fit in a path, and no control character is in it."""
    odd = refusal(r'{"a b":{"\u202e\n\u0000\"":[1e999]}}').path
    assert odd == r'$["a b"]["\u202e\n\x00""][0]'
    deep = refusal('{"' + "n" * 5000 + '":' + '{"longish":' * 100 + "1e999" + "}" * 101)
    assert len(deep.path.encode()) <= 300
    assert deep.path.startswith('$["nnn')
    assert ".longish.longish" in deep.path
    assert len(str(deep).encode()) <= 1024


@pytest.mark.parametrize(
    "text",
    [
        '{"key":"hunter2"',
        '{"key":"hunter2","key":"hunter2"}',
        r'["hunter2\ud800"]',
        r'["hunter2\q"]',
        '["hunter2\x00"]',
        '["hunter2\ufffe"]',
        '"hunter2" hunter2',
        "hunter2",
        '["hunter2",1e999]',
        b'["hunter2\xff"]',
        '["hunter2",' + "9" * 400 + "]",
    ],
)
def test_a_refusal_never_repeats_a_value(text: str | bytes) -> None:
    """JSON-6: what did not pass is not in the error, its cause or its context."""
    error: BaseException | None = refusal(text)
    while error is not None:
        assert "hunter2" not in f"{error} {error!r} {error.args}"
        assert "999" not in str(error)
        assert len(str(error).encode()) <= 1024
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@given(st.text() | st.binary())
@settings(max_examples=1000)
def test_nothing_but_invalid_json_comes_out(text: str | bytes) -> None:
    """JSON-3: no text makes the reader raise anything else."""
    error = error_of(text)
    assert error is None or len(str(error).encode()) <= 1024


@given(batches())
@settings(max_examples=200)
@example(['{"a":1,"a":"\\u003a"}', '{"a":1,"a":"\\u003A"}', '["\\u1fff",18446744073709551616]'])
def test_fast_path_exact_path_and_reference_agree(batch: list[str | bytes]) -> None:
    """JSON-1, JSON-2: one answer from all three, value or refusal (more in `make fuzz`)."""
    for text in batch:
        assert not difference(text)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def is_permitted(value: object) -> bool:
    """Say whether no string of a value holds a noncharacter."""
    text = json.dumps(value, ensure_ascii=False)
    return not any(ord(character) in NONCHARACTERS for character in text)


@given(values.filter(is_permitted), st.booleans(), st.sampled_from([None, 1]))
def test_what_is_written_is_read_back(value: object, ascii_only: bool, indent: int | None) -> None:
    """JSON-1: every value that JSON can say, however it is spelled and spaced."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert repr(read_json(text)) == repr(value)
    assert repr(read_json(text.encode())) == repr(value)


# Integers outside 64 bits.


def test_integers_outside_64_bits_are_announced_and_found() -> None:
    """JSON-2: admission need look for them only where the reader says so."""
    inside = json.dumps([2**64 - 1, -(2**63), 1.5])
    assert read(inside, limit=100, limits=Limits())[1] is False
    text = json.dumps({"ids": [2**64 - 1, 2**64], "x": {"y": -(2**63) - 1}, "float": 1e30})
    value, wide = read(text, limit=1000, limits=Limits())
    assert wide
    assert list(wide_integers(value)) == [("$.ids[1]", 2**64), ("$.x.y", -(2**63) - 1)]


def test_large_floats_stay_on_the_fast_path() -> None:
    """PERFORMANCE P5: `e+` alone is no reason for the exact path; a long integer is one."""
    assert is_fast('[1e+30, 1.7e300, "e+"]')
    assert not is_fast("[1e+30, 12345678901234567890123]")


# Limits.


@pytest.mark.parametrize("tail", ["", f",{WIDE}"], ids=["fast", "exact"])
def test_bytes_are_counted_in_utf_8(tail: str) -> None:
    """JSON-3: N bytes are read and N + 1 are not, as bytes and as characters of any width."""
    for filling in ("a", "é", "漢", "😀"):
        text = f'["{filling * 50}"{tail}]'
        size = len(text.encode())
        for form in (text, text.encode()):
            assert is_read(form, argument_bytes=size)
            assert refusal(form, argument_bytes=size - 1).rule == f"more than {size - 1} bytes"


def nested(levels: int, inside: str = "") -> str:
    """Return a text of so many levels, arrays and objects in turn."""
    pairs = [("[", "]") if level % 2 else ('{"k": ', "}") for level in range(levels)]
    pairs[-1] = ("[", "]")
    return "".join(p[0] for p in pairs) + inside + "".join(p[1] for p in reversed(pairs))


@pytest.mark.parametrize("depth", [1, 2, 7, 8, 9, 10, 128, DEPTH_CEILING])
@pytest.mark.parametrize("inside", ["", r'"[[[\"\\", "{{{"', f"{WIDE}", "[],[],{}"])
def test_depth_is_counted_in_containers(depth: int, inside: str) -> None:
    """JSON-3: N levels are read and N + 1 are not, fast and exact; brackets in strings are none."""
    own = int("[" in inside and '"' not in inside)
    if depth > own:
        assert is_read(nested(depth - own, inside), depth=depth)
    over = nested(depth + 1 - own, inside)
    assert refusal(over, depth=depth).rule == f"more than {depth} levels of nesting"
    beside = f"[{','.join([nested(depth + 1)] * 3)}]"
    assert not is_read(beside.encode(), depth=depth)


def test_depth_beyond_the_ceiling_means_the_ceiling() -> None:
    """JSON-3: a larger limit is no way to crash a parser."""
    assert Limits(depth=10**9).depth == DEPTH_CEILING
    for form in (nested(DEPTH_CEILING), nested(DEPTH_CEILING, str(WIDE))):
        assert is_read(form, depth=10**9)
    over = refusal(nested(DEPTH_CEILING + 1), depth=10**9)
    assert over.rule == f"more than {DEPTH_CEILING} levels of nesting"


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("1", 1),
        ("[]", 1),
        ("[ ]", 1),
        ("[1]", 2),
        ('{"a": 1, "b": "x"}', 3),
        ('[[], {}, [ ], { }, [0], ""]', 8),
        (r'["[],{},,,,[[[", "\"[1,2,3],", "\\", [[]]]', 6),
        ("[" + ",".join(["0"] * 99) + "]", 100),
        ("[" + ",".join(["{}"] * 99) + "]", 100),
        ('{"[],": [' + ",".join(['"[],{}"'] * 98) + "]}", 100),
    ],
)
@pytest.mark.parametrize("tail", ["", f"{WIDE}"], ids=["fast", "exact"])
def test_nodes_are_counted_in_values(text: str, nodes: int, tail: str) -> None:
    """JSON-3: N values are read and N + 1 are not; names and what is in strings are none."""
    if tail:
        text, nodes = f"[{text},{tail}]", nodes + 2
    assert is_read(text, nodes=nodes)
    if nodes > 1:
        assert refusal(text, nodes=nodes - 1).rule == f"more than {nodes - 1} values"


@given(values.filter(is_permitted))
def test_limits_count_what_is_there(value: object) -> None:
    """JSON-3: the counts at the speed of C are those of a plain walk through the value."""

    def count(item: object) -> tuple[int, int]:
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        counts = [count(child) for child in inner]
        depth = isinstance(item, dict | list) + max((c[0] for c in counts), default=0)
        return depth, 1 + sum(c[1] for c in counts)

    depth, nodes = count(value)
    text = json.dumps(value)
    assert is_read(text, depth=max(depth, 1), nodes=nodes)
    assert depth < 2 or not is_read(text, depth=depth - 1)
    assert nodes < 2 or not is_read(text, nodes=nodes - 1)


def test_a_text_that_breaks_off_is_broken_and_not_too_large() -> None:
    """JSON-3: brackets and commas in a string that never ends do not count."""
    assert refusal('{"code": "' + "[[[{," * 100_000).kind == "invalid_json"
    assert refusal('{"code": [' + "[], " * 300, depth=3).kind == "invalid_json"
    assert refusal("[[]]]" + "[" * 3, depth=3).kind == "invalid_json"
    assert refusal("[[]," * 300).rule == "more than 128 levels of nesting"


HOSTILE = {
    "deep": "[" * 100_000,
    "deep and closed": "[" * 100_000 + "]" * 100_000,
    "deep in objects": '{"a":' * 100_000,
    "deep with siblings": "[[]," * 100_000,
    "many numbers": "[" + "1," * 500_000 + "1]",
    "many objects": "[" + "{}," * 300_000 + "{}]",
    "10 MB": "[" + "1," * 5_000_000 + "1]",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_is_refused_before_it_takes_memory(text: str) -> None:
    """JSON-3: at most 8 bytes for each byte of the text, and 1 MiB."""
    assert refusal(text).kind == "too_large"
    assert refusal(text.encode()).kind == "too_large"
    assert peak(lambda: is_read(text)) <= 8 * len(text) + (1 << 20)


ORDINARY = {
    "records": json.dumps([RECORD] * 4000),
    "prose": json.dumps("words, and words: " * 40_000),
    "not Latin": json.dumps("漢字" * 100_000, ensure_ascii=False),
    "numbers": json.dumps([1.5] * 90_000),
    "wide": json.dumps([*([RECORD] * 4000), WIDE]),
    "repeated": json.dumps([RECORD] * 4000)[:-1] + ',{"a":1,"a":2}]',
    "infinite": json.dumps([RECORD] * 4000)[:-1] + ",1e999]",
    "long number": "9" * 900_000,
}


@pytest.mark.parametrize("text", ORDINARY.values(), ids=ORDINARY)
def test_reading_takes_little_more_memory_than_its_parts(text: str) -> None:
    """
    JSON-3: beside what orjson takes by itself, at most 8 bytes for each byte, and 1 MiB.

    By itself it takes twelve bytes for each byte of any text while it reads.
    """

    def bare() -> object:
        try:
            return orjson.dumps(orjson.loads(text))
        except orjson.JSONDecodeError:
            return None

    assert peak(lambda: error_of(text)) - peak(bare) <= 8 * len(text.encode()) + (1 << 20)


def peak(function: Callable[[], object]) -> int:
    """Return how many bytes a call holds at most at one time."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        function()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_a_full_stack_refuses_and_does_not_overflow() -> None:
    """JSON-3: called from deep inside a program, a text may be refused, but never crashes."""
    text = f"[{nested(100)},{WIDE}]"
    broken = f"[{nested(100)},]"
    assert is_read(text)
    kinds: set[str] = set()

    def dive(levels: int) -> None:
        if levels:
            dive(levels - 1)
            return
        for form in (text, broken):
            error = error_of(form)
            kinds.add(error.kind if error else "")

    limit = sys.getrecursionlimit()
    used = len(inspect.stack(0))
    try:
        sys.setrecursionlimit(used + 400)
        dive(330)
    finally:
        sys.setrecursionlimit(limit)
    assert kinds <= {"", "too_large", "invalid_json"}


def test_limits_have_the_defaults_of_the_contract_and_refuse_nonsense() -> None:
    """JSON-3: seven limits, each a whole number of at least 1."""
    assert Limits() == Limits(
        argument_bytes=1 << 20,
        depth=128,
        nodes=100_000,
        schema_bytes=1 << 20,
        request_bytes=1 << 20,
        output_bytes=8 << 20,
        model_bytes=256 << 10,
    )
    for nonsense in (0, -1, 1.5, True, "1"):
        with pytest.raises(InvalidValue, match=r"Limits\.nodes must be"):
            Limits(nodes=nonsense)  # type: ignore[arg-type]  # the point of the test


# The canonical form.

safe_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(
            st.text() | st.sampled_from(["\ue000", "\U00010000", "\uffee", "a"]), inner
        )
    ),
    max_leaves=30,
)


@given(safe_values)
@settings(max_examples=300)
def test_the_canonical_bytes_are_those_of_the_reference_package(value: object) -> None:
    """JSON-4: byte for byte, wherever the reference can write the value."""
    assert canonical(value) == rfc8785.dumps(value)  # type: ignore[arg-type]  # its type is narrower


@given(
    st.floats(allow_nan=False, allow_infinity=False) | st.integers(-330, 308).map(lambda e: 10.0**e)
)
@settings(max_examples=1000)
def test_floats_are_written_as_ecmascript_does(number: float) -> None:
    """JSON-4: shortest digits, the same exponents, and the same number when read again."""
    written = canonical(number)
    assert written == rfc8785.dumps(number)
    assert float(written) == number


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (2**53 + 1, "9007199254740993"),
        (-(2**70), "-1180591620717411303424"),
        (10**308, "1" + "0" * 308),
        (1.0, "1"),
        (-0.0, "0"),
        (1e21, "1e+21"),
        (123456789012345680000.0, "123456789012345680000"),
        (-1e16, "-10000000000000000"),
        (1e-6, "0.000001"),
        (-1.5e-6, "-0.0000015"),
        (1e-7, "1e-7"),
        (5e-324, "5e-324"),
        ({"b": (), "a": {}}, '{"a":{},"b":[]}'),
        ({"\uffee": 1, "😀": 2, "é": 3, "z": 4}, '{"z":4,"é":3,"😀":2,"\uffee":1}'),
        (
            '\x00\x1f\x7f\b\t\n\f\r"\\/é\u2028\ufffe',
            '"\\u0000\\u001f\x7f\\b\\t\\n\\f\\r\\"\\\\/é\u2028\ufffe"',
        ),
    ],
)
def test_the_canonical_form_has_one_spelling(value: object, written: str) -> None:
    """JSON-4: integers keep their digits, floats are shortest, names sort by UTF-16."""
    assert canonical(value) == written.encode()


class Text(str):
    """A kind of string."""

    __slots__ = ()


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, "$: a number is not finite as a double"),
        ({"a": [1, -math.inf]}, "$.a[1]: a number is not finite as a double"),
        ([10**309], "$[0]: a number is not finite as a double"),
        ([10**5000], "$[0]: a number is not finite as a double"),
        ({"a": {1: 2}}, "$.a: the names of an object's members must be strings"),
        ({"a": {"b": 0, None: 2}}, "$.a: the names of an object's members must be strings"),
        ({"a": ["\ud800"]}, "$.a[0]: a surrogate without its pair"),
        ({"a": {"\udfff": 1}}, "$.a: a surrogate without its pair"),
        ({"a": {"\udfff": 1, "\U00010000": 2}}, "$.a: a surrogate without its pair"),
        ([{1}], "$[0]: JSON has no form for the type set"),
        ([b""], "$[0]: JSON has no form for the type bytes"),
        ([Text("x")], "$[0]: JSON has no form for the type Text"),
        ((object(),), "$[0]: JSON has no form for the type object"),
        (CYCLE, "$: nested deeper than 512 levels"),
        ({"b": CYCLE, "a": [math.nan]}, "$.a[0]: a number is not finite as a double"),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_path(value: object, reason: str) -> None:
    """JSON-4: no value that another reader would take for a different one gets a digest."""
    for function in (canonical, digest):
        with pytest.raises(InvalidValue) as caught:
            function(value)
        assert str(caught.value) == reason
        assert not isinstance(caught.value, InvalidJSON)


def test_whatever_can_be_read_can_be_written() -> None:
    """JSON-4: the deepest value that is read is written, without recursion; one deeper is not."""
    value = read_json(nested(DEPTH_CEILING, "1"), limits=Limits(depth=DEPTH_CEILING))
    assert read_json(canonical(value), limits=Limits(depth=DEPTH_CEILING)) == value
    with pytest.raises(InvalidValue, match="nested deeper than 512 levels"):
        canonical([value])


@given(values.filter(is_permitted))
def test_the_canonical_form_is_stable(value: object) -> None:
    """JSON-4: read again and written again it is the same bytes."""
    written = canonical(value)
    assert canonical(read_json(written)) == written


def test_a_digest_is_the_hash_of_the_canonical_bytes() -> None:
    """JSON-4: in the form `sha256:` and 64 lower-case digits; order and spelling do not matter."""
    assert digest({}) == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert digest(read_json('{"b": 1.0, "a": "\\u00e9"}')) == digest({"a": "é", "b": 1})
    assert digest(2**60) != digest(2**60 + 1)


# Blank arguments.

WHITE_SPACE = [9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)]
WHITE_SPACE += [0x2028, 0x2029, 0x202F, 0x205F, 0x3000]


def test_blank_is_empty_or_unicode_white_space() -> None:
    """JSON-5: exactly the 25 characters that Unicode gives the property White_Space."""
    assert len(WHITE_SPACE) == 25
    assert [p for p in range(0x110000) if blank(chr(p))] == WHITE_SPACE
    assert blank("")
    assert blank(" \u00a0\n\u3000")
    assert not blank(" {} ")
    assert not blank("\u200b")


def test_both_paths_are_really_compared() -> None:
    """JSON-1: a text that only the exact path can read does go there."""
    assert is_fast('{"a":[1,2]}')
    for text in ('["\\u003a"]', f"[{WIDE}]", '{"a":1,"a":2}', "[", '"\\ufffe"'):
        assert not is_fast(text)
    assert _ijson._read_exactly('["\\u003a"]', vouched=False) == [":"]
