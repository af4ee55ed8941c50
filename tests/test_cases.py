"""
Faults that people reported of comparable projects, retold: each test is named by its case.

Where the contract decides otherwise than a case asked, the test says so.
"""

import dataclasses
import json
import math

import pytest

from ferrule import Completed, Executor, Outcome, Rejected, ToolCall, Unknown, bind, tool

pytestmark = pytest.mark.anyio


def kinds(outcomes: list[Outcome]) -> list[str]:
    """Return for each call its text, or the kind of its refusal."""
    return [
        f"<{outcome.kind}>" if isinstance(outcome, Rejected) else outcome.text
        for outcome in outcomes
    ]


@pytest.mark.parametrize(
    "broken",
    [
        '{"path": "/srv/a", "for',
        '{"path": "/srv/a", "force": tr',
        "{",
        '{"path"',
        '"',
        "{}}",
        "[{}",
    ],
)
async def test_ar_01_broken_arguments_never_become_the_defaults(broken: str) -> None:
    """AR-01, openai/openai-agents-js#887: refused with a position; the siblings run."""
    wiped: list[tuple[str, bool]] = []

    @tool
    async def wipe(path: str = "/", force: bool = False) -> str:
        wiped.append((path, force))
        return f"wiped {path}"

    outcomes = await Executor([wipe]).run(
        [
            ToolCall.of("wipe", {"path": "/tmp/a"}),
            ToolCall(id="c2", name="wipe", arguments=broken),
            ToolCall.of("wipe", {"path": "/tmp/b"}),
        ]
    )

    assert kinds(outcomes) == ["wiped /tmp/a", "<invalid_json>", "wiped /tmp/b"]
    assert "at position " in outcomes[1].text
    assert sorted(wiped) == [("/tmp/a", False), ("/tmp/b", False)]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [("", None), ("   ", None), ("\u2003\n", None), ("{}", None), ("null", "<invalid_arguments>")],
)
async def test_ar_02_blank_arguments_are_none(arguments: str, kind: str | None) -> None:
    """AR-02, microsoft/autogen#5667: for a tool without parameters; `null` is refused (JSON-5)."""

    @tool
    async def ping() -> str:
        return "pong"

    @tool
    async def greet(name: str) -> str:
        return f"hello {name}"

    outcomes = await Executor([ping, greet]).run(
        [
            ToolCall(id="c1", name="ping", arguments=arguments),
            ToolCall(id="c2", name="greet", arguments=arguments),
        ]
    )

    assert kinds(outcomes) == [kind or "pong", "<invalid_arguments>"]
    assert ("name" in outcomes[1].text) == (kind is None)


def test_ar_02_the_normalisation_is_seen() -> None:
    """AR-02: the call keeps what was written; the invocation says what it was read as."""

    @tool
    def ping() -> str:
        return "pong"

    call = ToolCall(id="c1", name="ping", arguments=" \n")
    invocation = bind(ping).contract.admit(call)

    assert (invocation.call.arguments, invocation.text) == (" \n", "{}")


@dataclasses.dataclass
class Window:
    """A nested object."""

    start_row: int
    row_count: int = 10


async def test_ar_09_misspelt_names_are_refused_with_the_near_one() -> None:
    """AR-09, modelcontextprotocol/python-sdk#3067: both names are told, nested ones too."""
    ran: list[object] = []

    @tool
    async def log_rows(hours_back: int = 24, limit: int = 100, window: Window | None = None) -> str:
        ran.append((hours_back, limit, window))
        return "rows"

    flat, nested, right = await Executor([log_rows]).run(
        [
            ToolCall.of("log_rows", {"hours": 1, "status_filter": "failed"}),
            ToolCall.of("log_rows", {"window": {"startrow": 1, "start_row": 2}}),
            ToolCall.of("log_rows", {"window": {"start_row": 2}}),
        ]
    )

    assert kinds([flat, nested, right]) == ["<invalid_arguments>"] * 2 + ["rows"]
    assert all(word in flat.text for word in ("hours", "status_filter", "hours_back", "limit"))
    assert all(word in nested.text for word in ("window", "startrow", "did you mean start_row?"))
    assert ran == [(24, 100, Window(2))]


def test_ar_09_the_schema_says_that_it_is_closed() -> None:
    """AR-09, SCH-4: both sides agree, at every depth; a map is open because its author says so."""

    @tool
    def log_rows(window: Window, labels: dict[str, int]) -> str:
        return f"{window}{labels}"

    schema = json.loads(json.dumps(log_rows.definition.input_schema))

    assert schema["additionalProperties"] is False
    assert schema["properties"]["window"]["additionalProperties"] is False
    assert schema["properties"]["labels"]["additionalProperties"] == {"type": "integer"}


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ('{"amount": NaN}', "<invalid_json>"),
        ('{"amount": Infinity}', "<invalid_json>"),
        ('{"amount": -Infinity}', "<invalid_json>"),
        ('{"amount": 1e999}', "<invalid_json>"),
        ('{"amount": -1e999}', "<invalid_json>"),
        (f'{{"amount": {"9" * 6_000}}}', "<invalid_json>"),
        ('{"amount": 1, "n": 1e400}', "<invalid_json>"),
        (f'{{"amount": 1, "n": {"9" * 6_000}}}', "<invalid_json>"),
        (f'{{"amount": 1, "n": {"9" * 300}}}', "<invalid_arguments>"),
        (f'{{"amount": 1, "note": [{{"a": {"9" * 6_000}}}]}}', "<invalid_json>"),
        ('{"amount": "NaN"}', "<invalid_arguments>"),
        ('{"amount": "Infinity"}', "<invalid_arguments>"),
        ('{"amount": 1.7976931348623157e308}', "paid"),
    ],
)
async def test_ar_11_no_number_that_is_not_finite_reaches_a_tool(arguments: str, kind: str) -> None:
    """AR-11, strands-agents/evals#380; JSON-1, JSON-2: refused, and no other error escapes."""
    paid: list[float] = []

    @tool
    async def pay(amount: float, n: int = 0, note: list[object] | None = None) -> str:
        paid.append(amount)
        return "paid"

    texts = ['{"amount": 1}', arguments, '{"amount": 2.5}']
    outcomes = await Executor([pay]).run(
        [ToolCall(id=f"c{at}", name="pay", arguments=text) for at, text in enumerate(texts)]
    )

    assert kinds(outcomes) == ["paid", kind, "paid"]
    assert all(math.isfinite(amount) for amount in paid)
    assert len(paid) == (3 if kind == "paid" else 2)
    assert len(outcomes[1].text) < 200


async def test_ex_01_one_failing_call_leaves_its_siblings() -> None:
    """EX-01, openai/openai-agents-python#2584: four outcomes in call order; nothing raises."""

    @tool
    async def ok(i: int) -> int:
        return i

    @tool
    async def bad() -> None:
        raise ValueError("nope")

    outcomes = await Executor([ok, bad]).run(
        [
            ToolCall.of("ok", {"i": 1}),
            ToolCall.of("bad"),
            ToolCall.of("ok", {"i": 2}),
            ToolCall.of("ok", {"i": 3}),
        ]
    )

    assert [type(outcome) for outcome in outcomes] == [Completed, Unknown, Completed, Completed]
    assert [outcomes[index].text for index in (0, 2, 3)] == ["1", "2", "3"]
    assert "nope" not in outcomes[1].text


async def test_ex_08_a_made_up_name_is_told_the_nearest_and_runs_nothing() -> None:
    """EX-08, openai/openai-agents-python#3459: only the exact name runs, never a likeness."""
    ran: list[str] = []

    @tool
    async def get_sites() -> str:
        ran.append("get_sites")
        return "sites"

    @tool
    async def get_tools() -> str:
        ran.append("get_tools")
        return "tools"

    made_up = ["list_sites", "functions.get_sites", "get_sites<|channel|>json", "GET_SITES"]
    outcomes = await Executor([get_sites, get_tools]).run(
        [ToolCall.of(name) for name in [*made_up, "get_sites"]]
    )

    assert kinds(outcomes) == ["<unknown_tool>"] * 4 + ["sites"]
    assert all('"get_sites"' in outcome.text for outcome in outcomes[:4])
    assert all(len(outcome.text) < 300 for outcome in outcomes)
    assert ran == ["get_sites"]
