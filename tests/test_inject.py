"""What a harness gives a tool's parameters, and never a model."""

import threading
from pathlib import Path
from typing import Annotated

import anyio
import pytest

from ferrule import (
    Completed,
    Context,
    Executor,
    Inject,
    InvalidTool,
    Registry,
    Rejected,
    ToolCall,
    Within,
    bind,
    tool,
)

pytestmark = pytest.mark.anyio


@tool
async def fetch(
    context: Context, tenant: Annotated[str, Inject("tenant")], q: str, *, times: int = 1
) -> str:
    """Fetch for a tenant."""
    return f"{context.call_id} {tenant} {q * times}"


@tool
async def read(path: Annotated[Path, Within("workspace")]) -> str:
    """Read below the workspace."""
    return str(path)


def test_hidden_parameters_are_in_no_schema() -> None:
    """FN-5, SG-10: neither the context nor what is injected is the model's to give."""
    assert list(fetch.definition.input_schema["properties"]) == ["q", "times"]  # type: ignore[call-overload]  # a dict
    assert fetch.definition.input_schema["required"] == ["q"]
    assert read.definition.input_schema["properties"] == {"path": {"type": "string"}}


async def test_the_registry_gives_a_value_or_what_a_function_of_the_context_gives() -> None:
    """FN-5: a plain value, a plain function in a thread, an async one."""
    loop = threading.get_ident()
    seen = []

    def plain(context: Context) -> str:
        seen.append(threading.get_ident() != loop)
        return f"plain-{context.call_id}"

    async def in_loop(context: Context) -> str:
        return f"loop-{context.call_id}"

    texts = []
    for tenant in ("value", plain, in_loop):
        executor = Executor(Registry([fetch], inject={"tenant": tenant}))
        texts.append((await executor.run([ToolCall.of("fetch", {"q": "x"}, id="c")]))[0].text)

    assert texts == ["c value x", "c plain-c x", "c loop-c x"]
    assert seen == [True]


async def test_a_model_that_sends_an_injected_name_is_refused_as_for_any_unknown_name() -> None:
    """FN-5, peers A16: nothing is overwritten and nothing runs."""
    executor = Executor(Registry([fetch], inject={"tenant": "mine"}))
    outcomes = await executor.run([ToolCall.of("fetch", {"q": "x", "tenant": "theirs"})])

    assert isinstance(outcomes[0], Rejected)
    assert 'unexpected property "tenant"' in outcomes[0].text


def test_a_name_that_the_registry_lacks_is_an_invalid_tool() -> None:
    """FN-5: said when registered, with what to write."""
    with pytest.raises(InvalidTool, match=r'inject=\{"tenant": \.\.\.\}'):
        Registry([fetch])
    with pytest.raises(InvalidTool, match="workspace"):
        Registry([read])


async def test_a_parameter_with_a_default_may_be_missing_from_the_registry() -> None:
    """FN-5: a hidden parameter's default is what it is when the harness has nothing."""

    @tool
    async def ping(who: Annotated[str, Inject("who")] = "nobody") -> str:
        """Say who."""
        return who

    assert (await Executor([ping]).run([ToolCall.of("ping")]))[0].text == "nobody"
    known = Executor(Registry([ping], inject={"who": "ann"}))
    assert (await known.run([ToolCall.of("ping")]))[0].text == "ann"


async def test_a_provider_that_raises_or_never_ends_makes_its_call_unavailable() -> None:
    """FAIL-6: the tool did not run, its siblings did, and no private text is shown."""

    def broken(_: Context) -> str:
        raise RuntimeError("private")

    async def endless(_: Context) -> str:
        await anyio.sleep_forever()
        return ""

    @tool
    async def ping() -> str:
        """Answer."""
        return "pong"

    for provider in (broken, endless):
        executor = Executor(Registry([fetch, ping], inject={"tenant": provider}), hook_timeout=0.05)
        outcomes = await executor.run([ToolCall.of("fetch", {"q": "x"}), ToolCall.of("ping")])
        assert isinstance(outcomes[0], Rejected)
        assert outcomes[0].kind == "unavailable"
        assert "private" not in outcomes[0].text
        assert isinstance(outcomes[1], Completed)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Return a root with a neighbour whose name begins alike, and links that lead out of it."""
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (tmp_path / "root-secret").mkdir()
    (tmp_path / "root-secret" / "key").write_text("secret")
    (root / "out").symlink_to(tmp_path / "root-secret")
    (root / "in").symlink_to(root / "inner")
    (root / "loop").symlink_to(root / "loop")
    return root


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("a.txt", "a.txt"),
        ("inner/../b.txt", "b.txt"),
        ("new/deep/c.txt", "new/deep/c.txt"),
        ("in/d.txt", "inner/d.txt"),
        (".", "."),
    ],
)
async def test_a_path_below_its_root_arrives_absolute_and_without_links(
    workspace: Path, path: str, leads_to: str
) -> None:
    """FN-5 `Within`: also one whose end does not exist yet."""
    executor = Executor(Registry([read], inject={"workspace": workspace}))
    outcomes = await executor.run([ToolCall.of("read", {"path": path})])

    assert outcomes[0].text == str((workspace / leads_to).resolve())


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../root-secret/key",
        "/etc/passwd",
        "out/key",
        "out/../../x",
        "inner/../../y",
        "loop/z",
    ],
)
async def test_a_path_that_leaves_its_root_is_refused_before_the_tool(
    workspace: Path, path: str
) -> None:
    """FN-5 `Within`: parents, absolute paths, links, loops and equal prefixes."""
    executor = Executor(Registry([read], inject={"workspace": workspace}))
    outcomes = await executor.run([ToolCall.of("read", {"path": path})])

    assert isinstance(outcomes[0], Rejected)
    assert outcomes[0].kind == "invalid_arguments"
    assert 'path: expected a path inside the root "workspace"' in outcomes[0].text


async def test_a_binding_called_directly_asks_for_what_its_tool_is_given() -> None:
    """EXE-13: a loop of one's own needs no executor for it."""
    binding = bind(fetch)
    call = ToolCall.of("fetch", {"q": "x"}, id="c")
    context = Context.of(call, inject={"tenant": "mine"})
    result = await binding.call(binding.contract.admit(call), context)

    assert getattr(result, "text", "") == "c mine x"
