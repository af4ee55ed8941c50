"""Admission: which calls a contract lets in, and what it says of the others."""

import gc
from contextlib import suppress
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ferrule import (
    Context,
    Executor,
    ForeignInvocation,
    InvalidCall,
    Limits,
    Rejected,
    Result,
    ToolCall,
    bind,
    digest,
)
from probe import Probe, call, of, open_to, refusal
from support import echo

MARKER = "sk-secret-4711"

# ---- admission -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", ['{"text": "abc"', '{"text": "a", "text": "b"}', '{"text": 1}']
)
def test_what_was_read_of_a_refused_text_is_not_kept(arguments: str) -> None:
    """JSON-3, ADM-2: a refusal is in no circle; a megabyte goes at once, uncollected."""
    contract = bind(Probe(of(**LIMITED))).contract
    with suppress(InvalidCall):  # What a first refusal makes and keeps is no part of it.
        contract.admit(call(arguments))
    gc.collect()
    gc.disable()
    try:
        with suppress(InvalidCall):
            contract.admit(call(arguments))
        assert gc.collect() == 0
    finally:
        gc.enable()


LIMITED = {"text": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^a"}}


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        ("{", "invalid_json", "position"),
        ('{"text": "abc", "te', "invalid_json", "position"),
        ("{} {}", "invalid_json", "position"),
        ("nul", "invalid_json", "position"),
        ("{'text': 'abc'}", "invalid_json", "position"),
        ('{"text": "abc",}', "invalid_json", "position"),
        ('{"text": "abc", "text": "abd"}', "invalid_json", "repeated"),
        ('{"n": NaN}', "invalid_json", "NaN"),
        ('{"n": 1e999}', "invalid_json", "double"),
        ('{"text": "\\ud800"}', "invalid_json", "surrogate"),
        ("\ufeff{}", "invalid_json", "byte order mark"),
        ("null", "invalid_arguments", "object"),
        ("[]", "invalid_arguments", "object"),
        ('"x"', "invalid_arguments", "object"),
        ('"{}"', "invalid_arguments", "object"),
        ("5", "invalid_arguments", "object"),
        ('{"text": "a"}', "invalid_arguments", "text"),
        ('{"text": "abcdef"}', "invalid_arguments", "text"),
        ('{"text": "bc"}', "invalid_arguments", "text"),
        ('{"text": null}', "invalid_arguments", "text"),
        ('{"texts": "abc"}', "invalid_arguments", "text"),
    ],
)
def test_a_call_that_breaks_a_rule_is_refused_with_its_kind_and_runs_nothing(
    arguments: str, kind: str, said: str
) -> None:
    """Scope 9-12, 20, 26, 27, 53, 54; agenttool 41; ADM-2, JSON-1."""
    tool = Probe(of(**LIMITED))

    error = refusal(bind(tool).contract, arguments)

    assert error.kind == kind
    assert said in str(error)
    assert str(error).startswith(f"{kind.replace('_', ' ')}: ")
    assert len(str(error).encode()) <= 1024
    assert tool.read["call"] == 0


@pytest.mark.parametrize("arguments", ['{"text": "ab"}', '{"text": "abcde"}', "{}"])
def test_boundary_values_are_let_in(arguments: str) -> None:
    """Scope 54: the shortest and the longest that the schema takes."""
    assert bind(Probe(of(**LIMITED))).contract.admit(call(arguments)).text == arguments


@pytest.mark.parametrize("name", ["", "Probe", "probe ", "prob", "probe2", "functions.probe"])
def test_a_call_to_another_name_is_refused(name: str) -> None:
    """Scope 7, 8; ADM-2: the name is compared first, and exactly."""
    error = refusal(bind(Probe(of())).contract, "{", name)

    assert error.kind == "unknown_tool"


def test_every_problem_is_named_with_its_path_and_rule() -> None:
    """ADM-2: the model can mend all of them at once; an unknown name brings the near one."""
    schema = of(path={"type": "string"}, count={"type": "integer", "minimum": 1})
    error = refusal(bind(Probe(schema)).contract, '{"pth": "x", "count": 0, "path": 1}')

    assert {(problem.path, problem.rule) for problem in error.problems} == {
        ("", "additionalProperties"),
        ("count", "minimum"),
        ("path", "type"),
    }
    assert [problem.hint for problem in error.problems if not problem.path] == ["path"]


@pytest.mark.parametrize(
    "arguments",
    [
        f'{{"text": "{MARKER}"}}',
        f'{{"text": {{"{MARKER}": 1}}}}',
        f'{{"text": "abc" "{MARKER}"',
        f'{{"text": "abc", "n": {MARKER}}}',
        f'"{MARKER}"',
        f"{MARKER}",
    ],
)
def test_a_refusal_never_repeats_a_value(arguments: str) -> None:
    """JSON-6: what did not pass is not echoed, in the text nor in a problem."""
    error = refusal(bind(Probe(of(**LIMITED))).contract, arguments)

    assert MARKER not in str(error)
    assert not any(MARKER in repr(problem) for problem in error.problems)


def test_a_refusal_of_very_much_is_at_most_one_kilobyte() -> None:
    """JSON-6: many problems are cut, and the sentence says how many were left out."""
    many = ", ".join(f'"unknown_{index}_é{"x" * 90}": 1' for index in range(500))
    error = refusal(bind(Probe(of())).contract, f"{{{many}}}")

    assert len(str(error).encode()) <= 1024
    assert "more" in str(error)


@pytest.mark.parametrize(
    "blank", ["", " ", "\t\r\n", "\u2003", "\u00a0\u3000", "\u2028", "\x85", "\v\f"]
)
def test_blank_arguments_are_an_empty_object(blank: str) -> None:
    """Scope 15, 16; JSON-5: empty or Unicode white space is `{}`, for the tool too."""
    invocation = bind(Probe(of(a={"type": "integer"}))).contract.admit(call(blank))

    assert invocation.text == "{}"
    assert invocation.arguments == {}
    assert invocation.call.arguments == blank


@pytest.mark.parametrize("text", ["\u200b", "\ufeff", "\x00", "\x1c", "\u2060"])
def test_what_is_no_white_space_is_no_blank(text: str) -> None:
    """JSON-5: an invisible character or a separator of files is not white space."""
    assert refusal(bind(Probe(of())).contract, text).kind == "invalid_json"


def test_a_blank_call_that_lacks_an_argument_is_told_which() -> None:
    """JSON-5, AR-02: the missing name is the problem, not the JSON."""
    schema = of(path={"type": "string"}) | {"required": ["path"]}
    error = refusal(bind(Probe(schema)).contract, "  ")

    assert error.kind == "invalid_arguments"
    assert "path" in str(error)


@pytest.mark.anyio
async def test_the_tool_sees_the_arguments_byte_for_byte() -> None:
    """Scope 14, 21; JSON-5: white space, order and escapes are as they were written; one run."""
    text = ' { "b" :\t1.0 , "a":"\\u00e9é" ,\n"c": 1e2 }\r\n'
    tool = Probe(open_to())
    binding = bind(tool)

    result = await binding.call(binding.contract.admit(call(text)))

    assert isinstance(result, Result)
    assert result.text == text
    assert tool.read["call"] == 1


def test_arguments_are_detached_each_time() -> None:
    """Scope 13; ADM-4: changing one reading leaves the next, the digest and the tool's alone."""
    invocation = bind(Probe(open_to())).contract.admit(call('{"a": {"b": [1]}}'))
    before = invocation.digest

    first = invocation.arguments
    first["a"] = MARKER
    cast("dict[str, list[int]]", invocation.arguments["a"])["b"].append(2)

    assert invocation.arguments == {"a": {"b": [1]}}
    assert invocation.digest == before


def test_the_digest_is_that_of_the_canonical_form() -> None:
    """JSON-4, ADM-4: white space, order and spelling do not matter; every value does."""
    contract = bind(Probe(open_to())).contract
    one = contract.admit(call('{"a": 1.0, "b": "\\u00e9"}'))
    other = contract.admit(call(' {"b":"é","a":1}'))

    assert one.digest == other.digest == digest({"a": 1, "b": "é"})
    assert one.digest != contract.admit(call('{"a": 2, "b": "é"}')).digest


@pytest.mark.anyio
async def test_an_invocation_runs_on_the_binding_of_its_own_contract_alone() -> None:
    """Scope 17; ADM-4: identity decides, however equal the other contract is."""
    tool = Probe(of())
    one, other = bind(tool), bind(tool)
    invocation = one.contract.admit(call("{}"))

    with pytest.raises(ForeignInvocation, match="no invocation of tool"):
        await other.call(invocation)
    with pytest.raises(ForeignInvocation, match="no invocation of tool"):
        await other.authorize(invocation, Context.of(invocation.call))

    assert tool.read["call"] == 0
    assert one.contract.fingerprint == other.contract.fingerprint


# ---- numbers and limits --------------------------------------------------------------------------

WIDE = 2**64 + 12


def test_an_integer_outside_64_bits_is_refused_with_its_path() -> None:
    """JSON-2: read exactly, and refused where no schema lists it."""
    contract = bind(Probe(open_to())).contract
    error = refusal(contract, f'{{"a": {{"ids": [1, {WIDE}]}}}}')

    assert error.kind == "invalid_arguments"
    assert "a.ids[1]" in error.problems[0].path
    assert str(WIDE) not in str(error)


@pytest.mark.parametrize("number", [-(2**63), 2**63, 2**64 - 1, 2**53 + 1, 0, -1])
def test_integers_within_64_bits_are_exact(number: int) -> None:
    """JSON-2: from -2^63 to 2^64-1, digit by digit."""
    contract = bind(Probe(of(a={"type": "integer"}))).contract

    assert contract.admit(call(f'{{"a": {number}}}')).arguments == {"a": number}


@pytest.mark.parametrize(
    "schema",
    [
        of(a={"const": WIDE}),
        of(a={"enum": ["x", WIDE]}),
        of(a={"enum": [{"id": [WIDE]}]}),
        of(a={"$ref": "#/$defs/id"}) | {"$defs": {"id": {"anyOf": [{"const": WIDE}]}}},
    ],
)
def test_a_wide_integer_that_the_schema_lists_is_let_in(schema: dict[str, object]) -> None:
    """JSON-2, scope 119, 124: the very integer, exactly, and no neighbour of it."""
    contract = bind(Probe(schema)).contract
    text = '{"a": {"id": [%d]}}' if "id" in str(schema.get("properties")) else '{"a": %d}'
    text = '{"a": %d}' if "$defs" in schema else text

    assert str(WIDE) in str(contract.admit(call(text % WIDE)).arguments)
    assert refusal(contract, text % (WIDE + 1)).kind == "invalid_arguments"


@pytest.mark.parametrize(
    "schema",
    [
        of(enum={"type": "integer", "maximum": WIDE}),
        of(const={"type": "integer", "minimum": -WIDE, "maximum": WIDE}),
    ],
)
def test_a_limit_below_a_property_named_enum_lists_nothing(schema: dict[str, object]) -> None:
    """JSON-2: `enum` as the name of an argument is no list of values."""
    name = next(iter(cast("dict[str, object]", schema["properties"])))

    assert refusal(bind(Probe(schema)).contract, f'{{"{name}": {WIDE}}}').problems[0].rule


@pytest.mark.parametrize(
    ("text", "admitted"),
    [
        ("2", True),
        ("2.0", True),
        ("-0.0", True),
        ("1e2", True),
        (f"{2**53}.0", True),
        ("2.5", False),
        (f"{2**53 + 2}.0", False),
        ("1e300", False),
        ("true", False),
        ('"2"', False),
        ("1e999", False),
    ],
)
def test_a_whole_float_is_an_integer_up_to_two_to_the_53(text: str, admitted: bool) -> None:
    """JSON-2, AR-08, scope 62, 63: as JSON Schema says, as far as a double tells integers apart."""
    contract = bind(Probe(of(a={"type": "integer"}))).contract

    if admitted:
        assert contract.admit(call(f'{{"a": {text}}}')).text
    else:
        assert refusal(contract, f'{{"a": {text}}}').problems


@pytest.mark.parametrize(
    ("limits", "arguments", "larger"),
    [
        (Limits(argument_bytes=10), '{"a":"é"}', '{"a":"éé"}'),
        (Limits(depth=3), '{"a":[[]]}', '{"a":[[[]]]}'),
        (Limits(nodes=3), '{"a":[1]}', '{"a":[1,2]}'),
    ],
)
def test_each_limit_takes_what_is_at_it_and_refuses_what_is_over(
    limits: Limits, arguments: str, larger: str
) -> None:
    """JSON-3: in bytes of UTF-8, levels and values; a breach is `too_large`."""
    contract = bind(Probe(open_to()), limits=limits).contract

    assert contract.admit(call(arguments)).text == arguments
    assert refusal(contract, larger).kind == "too_large"


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a":"' + "x" * 10_000_000 + '"}',
        '{"a":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"a":' + "[" * 100_000,
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"a":' + "1" * 100_000 + "}",
        '{"a":[' + "1," * 200_000 + "1]}",
    ],
    ids=[
        "10 MB",
        "deep",
        "deep and broken off",
        "deep list",
        "deep objects",
        "long number",
        "wide",
    ],
)
def test_arguments_that_are_too_much_are_refused_and_nothing_else_comes_out(arguments: str) -> None:
    """JSON-3, AR-11: never `RecursionError`, `MemoryError` or a library's own error."""
    error = refusal(bind(Probe(open_to())).contract, arguments)

    assert error.kind in {"too_large", "invalid_json", "invalid_arguments"}
    assert len(str(error).encode()) <= 1024


JSON_PIECES = st.text(alphabet='{}[]":,\\u0123deE+-. \t\ntruefalsn\ud800é', max_size=40)


@given(st.one_of(JSON_PIECES, st.text(max_size=30)))
@example('{"a": 1e400}')
@example('{"a": ' + "9" * 5000 + "}")
@example('{"\\u0061": 1, "a": 2}')
def test_admission_lets_in_or_says_no_whatever_the_text_is(text: str) -> None:
    """ADM-2, ADM-5: an `Invocation` or an `InvalidCall`; no other exception exists."""
    contract = bind(Probe(open_to(a={"type": "integer"}))).contract
    said = ""
    try:
        contract.admit(call(text.encode("utf-8", "replace").decode()))
    except InvalidCall as error:
        said = str(error)

    assert len(said.encode()) <= 1024


@pytest.mark.anyio
@pytest.mark.parametrize(
    "arguments",
    ['{"text": "' + "x" * 10_000_000 + '"}', "[" * 100_000, '{"a":' * 100_000],
    ids=["10 MB", "a list 100,000 deep", "objects 100,000 deep"],
)
async def test_a_call_that_is_too_much_is_refused_and_the_others_run(arguments: str) -> None:
    """JSON-3, ADM-5: in the turn's order, one outcome each."""
    turn = [
        ToolCall(id="c1", name="echo", arguments='{"n": 1}'),
        ToolCall(id="c2", name="echo", arguments=arguments),
        ToolCall(id="c3", name="echo", arguments='{"n": 3}'),
    ]

    outcomes = await Executor([echo()]).run(turn)

    assert [outcome.text for outcome in (outcomes[0], outcomes[2])] == ['{"n":1}', '{"n":3}']
    assert isinstance(outcomes[1], Rejected)
    assert outcomes[1].kind == "too_large"
    assert len(outcomes[1].text.encode()) <= 1100
