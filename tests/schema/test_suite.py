"""
The public JSON Schema test suite, through our own compile step (CONTRACT SCH-1).

Every group of draft 2020-12 and draft-07, the required ones and `optional/format`, is compiled and
asked. What may differ stands in the tables below, each with its reason, and nothing else may.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from ferrule.errors import InvalidSchema
from ferrule.schema import compile

TESTS = Path(__file__).parents[1] / "corpus" / "json-schema-test-suite" / "tests"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"

OTHER_DOCUMENTS = {
    "draft2020-12/defs.json": {"validate definition against metaschema"},
    "draft2020-12/dynamicRef.json": {
        "strict-tree schema, guards against misspelled properties",
        "tests for implementation dynamic anchor and reference link",
        "$ref and $dynamicAnchor are independent of order - $defs first",
        "$ref and $dynamicAnchor are independent of order - $ref first",
        "$ref to $dynamicRef finds detached $dynamicAnchor",
    },
    "draft2020-12/ref.json": {"remote ref, containing refs itself"},
    "draft2020-12/refRemote.json": {"*"},
    "draft7/definitions.json": {"validate definition against metaschema"},
    "draft7/ref.json": {"remote ref, containing refs itself"},
    "draft7/refRemote.json": {"*"},
}
"""Groups whose schema refers to another document: refused, since nothing is ever fetched."""

OTHER_DIALECTS = {
    "draft2020-12/vocabulary.json": {
        "schema that uses custom metaschema with with no validation vocabulary",
        "ignore unrecognized optional vocabulary",
    },
}
"""Groups written in a dialect of their own, whose meta-schema is another document: refused."""

FORMAT_IS_ASSERTED = "draft2020-12/format.json"
"""There the suite takes `format` for a comment; Ferrule asserts it in every draft."""

WORDED_AS_A_WHOLE = {"draft2020-12/dynamicRef.json"}
"""Where a reference depends on the way to it, a refusal may be worded for the whole value."""


class Group(msgspec.Struct, frozen=True):
    """One schema of the suite with its values."""

    file: str
    description: str
    schema: dict[str, object] | bool
    tests: tuple[Mapping[str, object], ...]

    def stands_in(self, table: Mapping[str, set[str]]) -> bool:
        """Say whether a table of exceptions names this group."""
        return not {self.description, "*"}.isdisjoint(table.get(self.file, ()))


def groups() -> Iterator[Group]:
    """Read the suite."""
    for draft in ("draft2020-12", "draft7"):
        folder = TESTS / draft
        for path in sorted((*folder.glob("*.json"), *(folder / "optional/format").glob("*.json"))):
            for group in json.loads(path.read_text(encoding="utf-8")):
                schema = group["schema"]
                if draft == "draft7" and isinstance(schema, dict):
                    schema = {"$schema": DRAFT_7} | schema
                tests = tuple(group["tests"])
                yield Group(f"{draft}/{path.name}", group["description"], schema, tests)


ALL = tuple(groups())
FILES = sorted({group.file for group in ALL})


def compilable(file: str) -> Iterator[Group]:
    """Find the groups of a file that are no exception."""
    for group in ALL:
        excepted = group.stands_in(OTHER_DOCUMENTS) or group.stands_in(OTHER_DIALECTS)
        if group.file == file and not excepted:
            yield group


def test_the_suite_is_there_whole() -> None:
    """SCH-1: the copy holds both drafts with their formats, so that nothing passes by absence."""
    assert len(FILES) == 123
    assert sum(len(group.tests) for group in ALL) == 3666


@pytest.mark.parametrize("file", FILES)
def test_a_value_is_valid_exactly_when_the_suite_says_so(file: str) -> None:
    """SCH-1: every group of the suite, but for what `format` asserts in `format.json`."""
    differing = [
        f"{group.description}: {case['description']}"
        for group in compilable(file)
        for case in group.tests
        if compile(group.schema).is_valid(case["data"]) is not case["valid"]
    ]
    if file == FORMAT_IS_ASSERTED:
        assert differing
        assert all("is only an annotation by default" in case for case in differing)
    else:
        assert differing == []


@pytest.mark.parametrize("file", FILES)
def test_every_refusal_names_a_problem_and_only_a_refusal_does(file: str) -> None:
    """ADM-2: problems and `is_valid` agree, and the problem is more than "something is wrong"."""
    for group in compilable(file):
        validator = compile(group.schema)
        for case in group.tests:
            problems = validator.problems(case["data"])
            assert bool(problems) is not validator.is_valid(case["data"])
            if file not in WORDED_AS_A_WHOLE:
                assert not any(problem.rule == "schema" for problem in problems), case


@pytest.mark.parametrize(
    "group",
    [group for group in ALL if group.stands_in(OTHER_DOCUMENTS)],
    ids=lambda group: f"{group.file}: {group.description}",
)
def test_a_schema_that_refers_to_another_document_is_refused(group: Group) -> None:
    """SCH-1: nothing is fetched, so what would have to be is refused by name."""
    with pytest.raises(InvalidSchema, match="leaves the document, and nothing is fetched"):
        compile(group.schema)


@pytest.mark.parametrize(
    "group",
    [group for group in ALL if group.stands_in(OTHER_DIALECTS)],
    ids=lambda group: group.description,
)
def test_a_schema_of_a_dialect_of_its_own_is_refused(group: Group) -> None:
    """SCH-1: an unknown `$schema` is refused with the dialects that are supported."""
    with pytest.raises(InvalidSchema, match="supported are draft-04"):
        compile(group.schema)
