"""Paths that must stay below a root, attacked (CONTRACT FN-5)."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired, TypeAlias, TypedDict

import attrs
import msgspec
import pytest
from pydantic import BaseModel, RootModel
from typing_extensions import TypeAliasType

from ferrule import (
    Completed,
    Context,
    DeclarationError,
    Executor,
    InputRequest,
    InvalidTool,
    Outcome,
    Registry,
    Rejected,
    ToolCall,
    Within,
    decode,
    tool,
)

Inside: TypeAlias = Annotated[Path, Within("share")]


@pytest.fixture
def share(tmp_path: Path) -> Path:
    """Return the root `share`, with what an attacker may find or put there and beside it."""
    root = tmp_path / "srv" / "share"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "srv" / "share-evil").mkdir()
    (tmp_path / "srv" / "share-evil" / "f").write_text("secret")
    (root / "link").symlink_to(tmp_path / "srv" / "share-evil")
    (root / "chain").symlink_to("link")
    (root / "file-link").symlink_to(tmp_path / "srv" / "share-evil" / "f")
    (root / "dangling").symlink_to(tmp_path / "srv" / "not-there-yet")
    (root / "up").symlink_to("..")
    (root / "loop").symlink_to("loop")
    (root / "here").symlink_to("there")
    (root / "there").symlink_to("here")
    (root / "inner").symlink_to("sub")
    return root


def outcome_of_path(root: Path, path: str) -> Outcome:
    """Run a tool that says where a path leads."""

    @tool
    async def look(path: Inside) -> str:
        """Say where it leads."""
        return str(path)

    executor = Executor(Registry([look], inject={"share": root}))
    return (executor.run_sync([ToolCall.of("look", {"path": path})]))[0]


ATTACKS = [
    *("../x", "..", "sub/../..", "sub/../../x", "newdir/../../x", "./../x", "sub/./../../x"),
    *("../share-evil/f", "{srv}/share-evil/f", "{srv}/share/../share-evil/f", "{srv}"),
    *("/etc/passwd", "/", "//etc/passwd", "/proc/self/root/etc/passwd", "/dev/stdin"),
    *(
        "link",
        "link/f",
        "link/new.txt",
        "link/new/deep.txt",
        "chain/f",
        "file-link",
        "sub/../link/f",
    ),
    *("dangling", "dangling/x", "up", "up/share-evil/f", "up/x", "inner/../../x"),
    *("loop", "loop/x", "here", "there/x", "sub/../loop"),
    *("a\0b", "\0", "sub/\0/../../x", "x" * 300, "x/" * 5000, "../" * 3000),
]


@pytest.mark.parametrize("path", ATTACKS, ids=lambda path: ascii(path)[:30])
def test_se_13_a_path_that_leaves_its_root_never_reaches_the_tool(share: Path, path: str) -> None:
    """SE-13, FN-5: parents, links, absent targets, equal prefixes, loops, nulls, too long ones."""
    outcome = outcome_of_path(share, path.format(srv=share.parent))
    assert isinstance(outcome, Rejected)
    assert outcome.kind == "invalid_arguments"
    assert outcome.text == 'Error: invalid arguments: path: expected a path inside the root "share"'


HARMLESS = [
    ("a.txt", "a.txt"),
    (".", "."),
    ("", "."),
    ("new/deep/c.txt", "new/deep/c.txt"),
    ("sub/../b.txt", "b.txt"),
    ("inner/d.txt", "sub/d.txt"),
    ("link/../x", None),
    ("~/.ssh/id", "~/.ssh/id"),
    ("~root/x", "~root/x"),
    ("$HOME/x", "$HOME/x"),
    ("%2e%2e/x", "%2e%2e/x"),
    ("C:..\\x", "C:..\\x"),
    ("..\\..\\x", "..\\..\\x"),
    ("\\\\host\\x", "\\\\host\\x"),
    ("．．/x", "．．/x"),  # noqa: RUF001  # full-width stops
    ("․․/x", "․․/x"),  # noqa: RUF001  # one-dot leaders
    ("..∕x", "..∕x"),  # noqa: RUF001  # a division slash
    (".gıt/config", ".gıt/config"),  # noqa: RUF001  # an i without its dot
    ("...", "..."),
    ("{share}/a.txt", "a.txt"),
]


@pytest.mark.parametrize(("path", "leads_to"), HARMLESS, ids=lambda path: ascii(path)[:30])
def test_se_13_a_path_is_taken_as_it_is_written(
    share: Path, path: str, leads_to: str | None
) -> None:
    """SE-13: no shell, no user, no other system and no look-alike is seen in it."""
    outcome = outcome_of_path(share, path.format(share=share))
    if leads_to is None:  # a link is followed first, and its parent is outside
        assert isinstance(outcome, Rejected)
        return
    assert isinstance(outcome, Completed)
    assert Path(outcome.text) == share.resolve() / leads_to
    assert Path(outcome.text).resolve() == Path(outcome.text), "absolute, and without links"


def test_se_13_a_root_may_be_a_link_itself(share: Path, tmp_path: Path) -> None:
    """SE-13: both sides are resolved; what is compared is where they are."""
    (tmp_path / "alias").symlink_to(share)
    outcome = outcome_of_path(tmp_path / "alias", "a.txt")
    assert outcome.text == str(share.resolve() / "a.txt")
    assert isinstance(outcome_of_path(tmp_path / "alias", "../share-evil/f"), Rejected)
    assert isinstance(outcome_of_path(tmp_path / "alias", f"{share}/a.txt"), Completed)


def test_se_13_below_the_root_of_everything_every_path_is_inside(share: Path) -> None:
    """SE-13: a root that is `/` or relative to where we are is a root too."""
    assert (outcome_of_path(Path("/"), "../../etc")).text == str(Path("/etc").resolve())
    assert isinstance(outcome_of_path(Path(os.path.relpath(share)), "a.txt"), Completed)
    assert isinstance(outcome_of_path(Path(os.path.relpath(share)), ".."), Rejected)


# ---- inside other types --------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A class that contains itself."""

    source: Inside
    parts: "list[Job]" = field(default_factory=list)


@dataclass
class Note:
    """Another class for a union."""

    title: str


class Copy(msgspec.Struct):
    """A struct."""

    to: Inside


class Model(BaseModel):
    """A pydantic model."""

    path: Inside
    more: dict[str, list[Inside]] = {}


class Many(RootModel[list[Inside]]):
    """A model that is a list in JSON."""


class One(RootModel[Inside]):
    """A model that is a text in JSON."""


class Settings(TypedDict):
    """A typed dictionary."""

    log: NotRequired[Inside]


class Pair(NamedTuple):
    """A class that is an array in JSON."""

    path: Inside
    times: int = 1


@attrs.define
class Old:
    """A class of attrs."""

    path: Inside


Named = TypeAliasType("Named", Inside)

DEEP: list[tuple[Any, object, object, str]] = [
    (list[Inside], ["a"], ["a", "../b"], "x[1]"),
    (dict[str, Inside], {"k": "a"}, {"k": ".."}, "x.k"),
    (Mapping[str, list[Inside]], {"k": ["a"]}, {"k": ["a", "link/f"]}, "x.k[1]"),
    (tuple[Inside, int], ["a", 1], ["..", 1], "x[0]"),
    (set[Inside], ["a"], ["loop"], "x[0]"),
    (list[Inside] | None, ["a"], [".."], "x[0]"),
    (Named, "a", "..", "x"),
    (list[Named], ["a"], [".."], "x[0]"),
    (Inside | int, "a", "..", "x"),
    (Job, {"source": "a"}, {"source": ".."}, "x.source"),
    (
        Job,
        {"source": "a", "parts": [{"source": "b"}]},
        {"source": "a", "parts": [{"source": "a"}, {"source": "/etc/passwd"}]},
        "x.parts[1].source",
    ),
    (Job | Note, {"source": "a"}, {"source": ".."}, "x.source"),
    (Copy, {"to": "a"}, {"to": "a\0b"}, "x.to"),
    (Model, {"path": "a", "more": {"k": ["b"]}}, {"path": "a", "more": {"k": [".."]}}, "x.more.k"),
    (list[Model], [{"path": "a"}], [{"path": ".."}], "x[0].path"),
    (Many, ["a"], [".."], "x[0]"),
    (One, "a", "..", "x"),
    (Settings, {"log": "a"}, {"log": ".."}, "x.log"),
    (Pair, ["a"], ["..", 2], "x[0]"),
    (Old, {"path": "a"}, {"path": ".."}, "x.path"),
]


def taking(hint: object) -> Any:  # noqa: ANN401  # a tool whose types are made here
    """Return a tool with one parameter of a type."""

    async def look(x: object) -> str:
        return repr(x)

    look.__annotations__ = {"x": hint, "return": str}
    return tool(look)


@pytest.mark.parametrize(("hint", "good", "bad", "place"), DEEP, ids=lambda part: ascii(part)[:40])
def test_se_13_paths_at_any_depth_stay_below_their_root(
    share: Path, hint: object, good: object, bad: object, place: str
) -> None:
    """SE-13, FN-5: in lists, mappings, classes of every family, unions; each problem has a path."""
    executor = Executor(Registry([taking(hint)], inject={"share": share}))
    first, second = executor.run_sync(
        [ToolCall.of("look", {"x": good}), ToolCall.of("look", {"x": bad})]
    )
    assert isinstance(first, Completed)
    assert f"Path('{share.resolve()}/a')" in first.text, "absolute, as the declared type"
    assert isinstance(second, Rejected)
    assert place in second.text
    assert 'expected a path inside the root "share"' in second.text


def test_se_13_variadic_parameters_have_roots_too(share: Path) -> None:
    """SE-13, FN-3: each value of `*args` and `**kwargs`; hidden ones stand beside them."""

    @tool(form="open")
    async def look(context: Context, *paths: Inside, **others: Inside) -> str:
        """Say where they lead."""
        return f"{context.call_id} {[*paths, *others.values()]}"

    executor = Executor(Registry([look], inject={"share": share}))
    texts = [
        outcome.text
        for outcome in executor.run_sync(
            [
                ToolCall.of("look", {"paths": ["a"], "b": "b"}, id="1"),
                ToolCall.of("look", {"paths": ["a", ".."]}, id="2"),
                ToolCall.of("look", {"b": ".."}, id="3"),
            ]
        )
    ]
    root = share.resolve()
    assert texts == [
        f"1 {[root / 'a', root / 'b']}",
        'Error: invalid arguments: paths[1]: expected a path inside the root "share"',
        'Error: invalid arguments: b: expected a path inside the root "share"',
    ]


def test_se_13_two_roots_stay_apart_and_beside_a_path_of_its_own(
    share: Path, tmp_path: Path
) -> None:
    """SE-13: each path below its own root, also in strict form and with a plain function."""
    (tmp_path / "out").mkdir()

    @tool(form="strict")
    def copy(
        sources: list[Inside], target: Annotated[Path, Within("out")], log: Inside | None = None
    ) -> str:
        """Copy."""
        return str([*sources, target, log])

    with pytest.raises(InvalidTool, match="out"):
        Registry([copy], inject={"share": share})
    roots = {"share": str(share), "out": lambda context: tmp_path / "out"}
    executor = Executor(Registry([copy], inject=roots))
    both = [
        ToolCall.of("copy", {"sources": ["a"], "target": "b", "log": None}),
        ToolCall.of("copy", {"sources": ["a"], "target": "../share/b", "log": None}),
    ]
    done, refused = executor.run_sync(both)
    assert done.text == str([share.resolve() / "a", (tmp_path / "out").resolve() / "b", None])
    assert 'target: expected a path inside the root "out"' in refused.text


def test_a_root_inside_a_type_must_be_in_the_registry() -> None:
    """FN-5: said when registered, with what to write."""
    with pytest.raises(InvalidTool, match=r'inject=\{"share": \.\.\.\}'):
        Registry([taking(dict[str, list[Job]])])


class Hiding(BaseModel):
    """A model whose further members only pydantic knows."""

    model_config = {"extra": "allow"}
    __pydantic_extra__: dict[str, Inside]


class Elsewhere:
    """A class that has pydantic make a path."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: Any) -> object:  # noqa: ANN401  # as pydantic calls it
        """Return pydantic's schema of a path with a root."""
        return handler(Inside)


@dataclass
class Preset:
    """A class whose default nobody puts below the root."""

    path: Inside = Path("x")


@dataclass
class Made:
    """A class whose default is made, from a class that contains itself."""

    jobs: list[Job] = field(default_factory=lambda: [Job(Path("x"))])


class Listed(NamedTuple):
    """An array whose default nobody puts below the root."""

    path: Inside = Path("x")


@pytest.mark.parametrize(
    ("hint", "sentence"),
    [
        (Hiding, "only pydantic sees"),
        (Elsewhere, "only pydantic sees"),
        (list[Elsewhere], "only pydantic sees"),
        (Preset, "a default inside a type is not put below the root"),
        (list[Made], "a default inside a type is not put below the root"),
        (Listed, "a default inside a type is not put below the root"),
        (Inside | str, "one value could be either"),
        (Inside | Path, "one value could be either"),
        (list[str | Inside], "one value could be either"),
        (Inside | Annotated[Path, Within("other")], "one value could be either"),
        (dict[Inside, int], "the keys of an object"),
    ],
    ids=lambda part: ascii(part)[:40],
)
def test_se_13_a_root_that_would_not_hold_is_refused_at_declaration(
    hint: object, sentence: str
) -> None:
    """SE-13, FN-1: a root that is said is held, or there is no tool."""
    with pytest.raises(DeclarationError, match=sentence):
        taking(hint)


def test_se_13_a_default_of_a_parameter_with_paths_inside_is_empty() -> None:
    """SE-13, FN-4: of a path itself the default is put below the root."""

    def look(paths: list[Inside] = [Path("x")]) -> None:  # noqa: B006  # what the rule refuses
        """Look."""

    with pytest.raises(DeclarationError, match=r"`paths` of `look`: a default inside a type"):
        tool(look)

    @tool
    def fine(paths: list[Inside] = [], more: list[Inside] | None = None) -> None:  # noqa: B006  # copied per call
        """Look."""

    assert fine.injected == {"share"}


def test_the_default_of_a_path_is_put_below_the_root(share: Path) -> None:
    """FN-4: `None` stays what it is."""

    @tool
    async def look(path: Inside = Path("sub"), other: Inside | None = None) -> str:
        """Look."""
        return f"{path} {other}"

    executor = Executor(Registry([look], inject={"share": share}))
    assert (executor.run_sync([ToolCall.of("look")]))[0].text == f"{share.resolve() / 'sub'} None"


def test_nobody_gives_a_step_or_a_decoding_a_root() -> None:
    """FN-1: a root that nobody gives is no root."""

    @tool
    def save(name: str) -> InputRequest | str:
        """Save."""
        return name

    for hint in (list[Inside], Inside):

        def saved(state: object, answer: bool) -> str:
            """Go on."""
            return "saved"

        saved.__annotations__["state"] = hint
        with pytest.raises(DeclarationError, match="gives step `saved` a root"):
            save.step(saved)
    with pytest.raises(DeclarationError, match="`Within` stands inside a type"):
        decode(["a"], list[Inside])


def test_se_13_a_model_made_in_code_is_no_call_and_keeps_its_path() -> None:
    """SE-13: only what a model sends is put below a root."""
    assert Model(path=Path("x")).path == Path("x")
