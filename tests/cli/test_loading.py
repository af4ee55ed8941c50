"""TOOLS on the command line: what it may name, and how what is wrong with it is said."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from cli.command import Ferrule, WritesTurn
from ferrule.cli._loading import load, opened
from ferrule.cli._refused import Refused

MAKE = """
from contextlib import asynccontextmanager
from ferrule import Definition, RawTool, Registry

log = []

def named(name):
    return RawTool(Definition(name), lambda a, c: None, close=lambda: log.append("closed " + name))
"""
FIRST = MAKE.count("\n") + 1
"""The line on which the text of a test begins."""

FORMS = """
one = named("one")
_hidden = named("hidden")
two = named("two")
again = one
kind = RawTool
listed = (named("a"), named("b"))
registry_of_ours = Registry([named("c")])

def plain():
    return [named("d")]

async def later():
    return named("e")

@asynccontextmanager
async def managed():
    log.append("opened")
    async with Registry([named("f")]) as registry:
        yield registry
    log.append("left")

class Shelf:
    origin = "shelf"
    tools = [named("s")]

    async def __aenter__(self):
        log.append("opened")

    async def aclose(self):
        log.append("closed")

@asynccontextmanager
async def managed_source():
    async with Registry([Shelf()]) as registry:
        yield registry
    log.append("left")

@asynccontextmanager
async def managed_list():
    log.append("opened")
    yield [named("g")]
    log.append("left")

class Box:
    @staticmethod
    def inside():
        return later
"""


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Work in an empty folder, and put back what loading a module changes in this process."""
    path, modules = list(sys.path), set(sys.modules)
    monkeypatch.chdir(tmp_path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def written(text: str, name: str = "mytools.py") -> None:
    """Write a module with tools, or with what should have been some."""
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(MAKE + text, encoding="utf-8")


def names(target: str) -> list[str]:
    """Load and open what `target` names; return the names of the tools, in their order."""

    async def inside() -> list[str]:
        async with opened(load(target), target) as registry:
            return [tool.definition.name for tool in registry]

    return anyio.run(inside)


def refusal(target: str) -> str:
    """Return the sentence that refuses `target`."""
    with pytest.raises(Refused) as caught:
        names(target)
    return caught.value.message


OFFERS = [
    ("mytools.py:one", ["one"]),
    ("mytools:one", ["one"]),
    ("mytools.py:listed", ["a", "b"]),
    ("mytools.py:registry_of_ours", ["c"]),
    ("mytools.py:plain", ["d"]),
    ("mytools.py:later", ["e"]),
    ("mytools.py:managed", ["f"]),
    ("mytools.py:managed_list", ["g"]),
    ("mytools.py:managed_source", ["s"]),
    ("mytools.py:Shelf", ["s"]),
    ("mytools.py:Box.inside", ["e"]),
    ("mytools.py", ["one", "two"]),
    ("mytools", ["one", "two"]),
]


@pytest.mark.parametrize(("target", "tools"), OFFERS)
def test_tools_may_be_given_in_each_form(target: str, tools: list[str]) -> None:
    """API, TOOLS: a tool, an iterable, a registry, a function that gives one: three kinds."""
    written(FORMS)
    assert names(target) == tools


@pytest.mark.parametrize("name", ["tools", "registry"])
def test_a_module_may_say_itself_what_it_offers(name: str) -> None:
    """TOOLS without a name: what the module calls `registry` or `tools` goes before all else."""
    written(f'one = named("one")\nasync def {name}():\n    return [named("chosen")]')
    assert names("mytools.py") == ["chosen"]


def test_a_neighbour_that_is_called_tools_is_no_offer() -> None:
    """TOOLS without a name: a module `tools` that was imported offers nothing by its name."""
    written("", "tools.py")
    written('import tools\none = named("one")')
    assert names("mytools.py") == ["one"]


@pytest.mark.parametrize(
    ("target", "log"),
    [
        ("managed", ["opened", "closed f", "left"]),
        ("managed_list", ["opened", "closed g", "left"]),
        ("listed", ["closed a", "closed b"]),
    ],
)
def test_what_was_opened_is_closed(target: str, log: list[str]) -> None:
    """CLO-1: tools are closed once, inside the manager that gave them."""
    written(FORMS)
    names(f"mytools.py:{target}")
    assert sys.modules["mytools"].log == log


def test_the_folder_of_a_file_is_importable() -> None:
    """TOOLS: a file may import its neighbours, wherever the command is run."""
    written("", "sub/neighbour.py")
    written("import neighbour\ntools = neighbour.named('n')", "sub/mytools.py")
    assert names("sub/mytools.py") == ["n"]


def test_a_module_of_the_working_folder_is_found() -> None:
    """TOOLS: `module:name` works as for `python -m`, in a package too."""
    written("", "package/__init__.py")
    written("one = named('p')", "package/part.py")
    assert names("package.part:one") == ["p"]


def test_a_file_takes_no_other_modules_name() -> None:
    """TOOLS: a file called `json.py` takes nothing from the library of that name."""
    written('one = named("one")', "sub/json.py")
    before = sys.modules["json"]
    assert names("sub/json.py") == ["one"]
    assert sys.modules["json"] is before


def test_classes_in_a_file_know_their_module() -> None:
    """TOOLS: dataclasses and pickles look for the module of a class while it is made."""
    written(
        "import dataclasses\n@dataclasses.dataclass(slots=True)\nclass Point:\n"
        "    x: 'dataclasses.InitVar[int]'\none = named('one')"
    )
    assert names("mytools.py") == ["one"]


SENTENCES = [
    ("import nowhere", "mytools.py", f"No module named 'nowhere' (mytools.py, line {FIRST})"),
    ("def f(:", "mytools.py", f"SyntaxError: invalid syntax (mytools.py, line {FIRST})"),
    ("raise RuntimeError('two\\nlines')", "mytools.py", f"(mytools.py, line {FIRST})"),
    ("import sys; sys.exit(3)", "mytools.py", f"sys.exit(3) (mytools.py, line {FIRST})"),
    ("import json; json.loads('{')", "mytools.py", f"(mytools.py, line {FIRST})"),
    ("RawTool(Definition('a b'), print)", "mytools.py", f"(mytools.py, line {FIRST})"),
    ("raise BaseExceptionGroup('g', [KeyError('k')])", "mytools.py", "KeyError: 'k'"),
    ("", "mytools.py", "mytools.py defines no tool; write `@tool`"),
    ("tools = []", "mytools.py", "mytools.py defines no tool"),
    ("tools = [named('a'), named('a')]", "mytools.py", "named `a`"),
    ("tools = [print]", "mytools.py", "write `@tool` above it"),
    ("tools = 'text'", "mytools.py", "mytools.py gives str"),
    ("tools = {'a': named('a')}", "mytools.py", "mytools.py gives dict"),
    ("async def tools():\n    yield named('a')", "mytools.py", "under `@asynccontextmanager`"),
    ("def tools(path): ...", "mytools.py", "`tools` takes arguments"),
    ("def tools(): return tools", "mytools.py", "gives function"),
    (
        "def tools(): raise OSError('no disk')",
        "mytools.py",
        f"OSError: no disk (mytools.py, line {FIRST})",
    ),
    ("", "mytools.py:nmed", "there is no `nmed`; did you mean `named`?"),
    ("", "mytools.py:zzz", "there is no `zzz`; check the name"),
    ("", "other.py", "there is no file `other.py`"),
    ("", "nowhere:x", "there is no module `nowhere`"),
    ("", "nowhere.at.all", "there is no module `nowhere.at.all`"),
    ("", ".", "`.` is not understood"),
    ("", "no-such-program b", "there is no program `no-such-program` on the PATH"),
    ("", "no-such-program", "`no-such-program` is not understood"),
    ("", "python 'server.py", "the command `python 'server.py` cannot be read"),
    ("", "mytools.py:", "`mytools.py:` is not understood"),
    ("", "", "`` is not understood"),
]


@pytest.mark.parametrize(("text", "target", "says"), SENTENCES)
def test_what_gives_no_tools_is_refused_with_its_place(text: str, target: str, says: str) -> None:
    """Bad input: one sentence that names file and line and what to write instead."""
    written(text)
    assert says in refusal(target)


def test_an_import_that_fails_inside_a_package_names_the_line() -> None:
    """Bad input: a package that is there and does not load is not "no such module"."""
    written("import nowhere", "package/__init__.py")
    assert f"No module named 'nowhere' (package/__init__.py, line {FIRST})" in refusal(
        "package.part:x"
    )


def test_tools_that_do_not_close_are_said(ferrule: Ferrule) -> None:
    """CLO-1: the result stands, the sentence names the tool, and the exit code is not 0."""
    written("def fail(): raise OSError('stuck')\none = RawTool(Definition('a'), print, close=fail)")
    done = ferrule("list", "mytools.py", "--format", "json")
    assert (done.returncode, done.stdout[:1]) == (1, "[")
    assert done.stderr.startswith(
        "ferrule: mytools.py did not close: tool `a` did not close: stuck"
    )


def test_what_became_of_the_calls_weighs_more(ferrule: Ferrule, turn: WritesTurn) -> None:
    """CLO-1, API exit codes: 4 stays 4 although a tool did not close."""
    written(
        "def fail(*_): raise OSError('stuck')\none = RawTool(Definition('a'), fail, close=fail)\n"
    )
    done = ferrule("run", "mytools.py", turn("a"), "--json")
    assert (done.returncode, done.stdout[:2]) == (4, "[{")
    assert "did not close: stuck" in done.stderr


def test_a_refusal_is_one_sentence_without_a_traceback(ferrule: Ferrule) -> None:
    """Bad input, terminal: exit 2, nothing on standard output, nothing hidden in the sentence."""
    written("print('loading')\nraise RuntimeError('\\x1b[31mred\\nsecond line')")
    done = ferrule("run", "mytools.py", os.devnull)
    assert (done.returncode, done.stderr) == (
        2,
        f"ferrule: {os.devnull} is empty; give a model's response as JSON\n",
    )
    done = ferrule("list", "mytools.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "loading\nferrule: cannot load mytools.py: RuntimeError: ⟦U+001B⟧[31mred second line "
        f"(mytools.py, line {FIRST + 1})\n"
    )
