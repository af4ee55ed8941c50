"""The JSON reader and the canonical form on other people's collections, kept in tests/corpus."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrule._ijson import Limits, canonical, digest, read_json
from ferrule.errors import InvalidJSON
from fuzz_ijson import is_fast

CORPUS = Path(__file__).parent / "corpus"
PARSING = CORPUS / "jsontestsuite" / "test_parsing"
JCS = CORPUS / "jcs" / "testdata"
ANSWERS = CORPUS / "bfcl" / "possible_answer"

FORBIDDEN_BY_I_JSON = {
    "y_object_duplicated_key.json": "a member name is repeated",
    "y_object_duplicated_key_and_value.json": "a member name is repeated",
    "y_string_escaped_noncharacter.json": "a noncharacter",
    "y_string_last_surrogates_1_and_2.json": "a noncharacter",
    "y_string_nonCharacterInUTF-8_U+10FFFF.json": "a noncharacter",
    "y_string_nonCharacterInUTF-8_U+FFFF.json": "a noncharacter",
    "y_string_unicode_U+10FFFE_nonchar.json": "a noncharacter",
    "y_string_unicode_U+1FFFE_nonchar.json": "a noncharacter",
    "y_string_unicode_U+FDD0_nonchar.json": "a noncharacter",
    "y_string_unicode_U+FFFE_nonchar.json": "a noncharacter",
}
"""Texts that RFC 8259 allows and RFC 7493, sections 2.1 and 2.3, does not."""

TOO_GREAT = "a number is beyond the range of a double"
ALONE = "a surrogate without its pair"
NOT_UTF8 = "the bytes are not UTF-8"

# RFC 8259 leaves these open. A number that rounds to zero is finite, so it is read (JSON-1 asks
# for no more); an integer is read whatever its size, and admission looks at it later (JSON-2).
LEFT_OPEN: dict[str, object] = {
    "i_number_double_huge_neg_exp.json": [0.0],
    "i_number_huge_exp.json": TOO_GREAT,
    "i_number_neg_int_huge_exp.json": TOO_GREAT,
    "i_number_pos_double_huge_exp.json": TOO_GREAT,
    "i_number_real_neg_overflow.json": TOO_GREAT,
    "i_number_real_pos_overflow.json": TOO_GREAT,
    "i_number_real_underflow.json": [0.0],
    "i_number_too_big_neg_int.json": [-123123123123123123123123123123],
    "i_number_too_big_pos_int.json": [100000000000000000000],
    "i_number_very_big_negative_int.json": [-237462374673276894279832749832423479823246327846],
    "i_object_key_lone_2nd_surrogate.json": "a member name holds a surrogate without its pair",
    "i_string_1st_surrogate_but_2nd_missing.json": ALONE,
    "i_string_1st_valid_surrogate_2nd_invalid.json": ALONE,
    "i_string_UTF-16LE_with_BOM.json": NOT_UTF8,
    "i_string_UTF-8_invalid_sequence.json": NOT_UTF8,
    "i_string_UTF8_surrogate_U+D800.json": NOT_UTF8,
    "i_string_incomplete_surrogate_and_escape_valid.json": ALONE,
    "i_string_incomplete_surrogate_pair.json": ALONE,
    "i_string_incomplete_surrogates_escape_valid.json": ALONE,
    "i_string_invalid_lonely_surrogate.json": ALONE,
    "i_string_invalid_surrogate.json": ALONE,
    "i_string_invalid_utf-8.json": NOT_UTF8,
    "i_string_inverted_surrogates_U+1D11E.json": ALONE,
    "i_string_iso_latin_1.json": NOT_UTF8,
    "i_string_lone_second_surrogate.json": ALONE,
    "i_string_lone_utf8_continuation_byte.json": NOT_UTF8,
    "i_string_not_in_unicode_range.json": NOT_UTF8,
    "i_string_overlong_sequence_2_bytes.json": NOT_UTF8,
    "i_string_overlong_sequence_6_bytes.json": NOT_UTF8,
    "i_string_overlong_sequence_6_bytes_null.json": NOT_UTF8,
    "i_string_truncated-utf-8.json": NOT_UTF8,
    "i_string_utf16BE_no_BOM.json": NOT_UTF8,
    "i_string_utf16LE_no_BOM.json": NOT_UTF8,
    "i_structure_500_nested_arrays.json": "more than 128 levels of nesting",
    "i_structure_UTF-8_BOM_empty_object.json": "a byte order mark is not JSON",
}
"""What becomes of each: the value that is read, or the rule that refuses it."""


def parsing(first: str) -> list[Path]:
    """Return the texts of the suite whose names begin with a letter."""
    found = sorted(PARSING.glob(f"{first}_*.json"))
    assert found
    return found


def name_of(value: object) -> str:
    """Name a parametrised case by its file."""
    return value.name if isinstance(value, Path) else repr(value)


def decision(text: bytes) -> object:
    """Return the value of a text, or the rule that refuses it."""
    try:
        return read_json(text)
    except InvalidJSON as error:
        return error.rule


@pytest.mark.parametrize("path", parsing("y"), ids=name_of)
def test_a_valid_text_is_read_unless_i_json_forbids_it(path: Path) -> None:
    """JSON-1: RFC 8259 texts are read; ten of the suite break RFC 7493 and say which rule."""
    text = path.read_bytes()
    expected = FORBIDDEN_BY_I_JSON.get(path.name) or json.loads(text)
    assert repr(decision(text)) == repr(expected)


@pytest.mark.parametrize("path", parsing("n"), ids=name_of)
def test_a_broken_text_is_refused_in_both_forms(path: Path) -> None:
    """JSON-1: no text of the suite that breaks the grammar is read, as bytes or as characters."""
    text = path.read_bytes()
    with pytest.raises(InvalidJSON):
        read_json(text)
    with pytest.raises(InvalidJSON):
        read_json(text.decode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("path", parsing("i"), ids=name_of)
def test_a_text_that_the_standard_leaves_open_is_decided(path: Path) -> None:
    """JSON-1, JSON-2, JSON-3: every text that parsers may choose on has one answer here."""
    assert repr(decision(path.read_bytes())) == repr(LEFT_OPEN[path.name])


def test_the_tables_name_only_texts_that_exist() -> None:
    """JSON-1: an exception that no text needs any more is taken off the list."""
    assert FORBIDDEN_BY_I_JSON.keys() <= {path.name for path in parsing("y")}
    assert LEFT_OPEN.keys() == {path.name for path in parsing("i")}


@pytest.mark.parametrize("path", sorted((JCS / "input").iterdir()), ids=name_of)
def test_the_canonical_bytes_are_those_of_rfc_8785(path: Path) -> None:
    """JSON-4: the vectors of the RFC's author, byte for byte, and stable when read again."""
    written = canonical(read_json(path.read_bytes()))
    assert written == (JCS / "output" / path.name).read_bytes()
    assert written.hex(" ").split() == (JCS / "outhex" / f"{path.stem}.txt").read_text().split()
    assert canonical(read_json(written)) == written
    assert digest(read_json(written)) == digest(read_json(path.read_bytes()))


def argument_texts() -> Iterator[str]:
    """Yield the arguments of every call that the benchmark's answers hold, as JSON texts."""
    for path in sorted(ANSWERS.glob("*.json")):
        for line in path.read_text().splitlines():
            for call in json.loads(line)["ground_truth"]:
                for arguments in call.values():
                    yield json.dumps(first_choices(arguments), ensure_ascii=False)


def first_choices(arguments: dict[str, list[object]]) -> dict[str, object]:
    """Take the first of the values allowed for each argument; an empty one means left out."""
    taken = {name: choices[0] for name, choices in arguments.items() if choices}
    return {name: plain(choice) for name, choice in taken.items() if choice not in ("", [])}


def plain(choice: object) -> object:
    """Take the first choices inside a choice that is an object."""
    if isinstance(choice, list):
        return [plain(item) for item in choice]
    if isinstance(choice, dict) and all(isinstance(item, list) for item in choice.values()):
        return first_choices(choice)
    return choice


def test_real_arguments_take_the_fast_path() -> None:
    """JSON-1, PERFORMANCE P5: of a public benchmark's argument texts at least 99 % are fast."""
    seen = list(argument_texts())
    fast = sum(is_fast(text) for text in seen)
    assert len(seen) > 1500
    assert fast >= 0.99 * len(seen), f"{fast} of {len(seen)}"
    for text in seen:
        assert read_json(text, limits=Limits()) == json.loads(text)
