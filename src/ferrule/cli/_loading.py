"""
From TOOLS on the command line to an open registry.

TOOLS is `module:name` or `path.py:name`; the name may be left out. What it names is a tool, a list
of tools, a registry, or a function that gives one of these: plain, async, or an async context
manager. Without a name it is what the module calls `registry` or `tools`, and if there is neither,
every tool at the module's top level.

What is nothing of Python's is an MCP server, or a file of several: see `_outside`, which takes a
second to load and so is loaded when such a thing is named.
"""

import importlib.util
import inspect
import re
import shlex
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from difflib import get_close_matches
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TypeGuard, cast

from ferrule import Registry, Source, Tool
from ferrule.cli._blame import TheirCode
from ferrule.cli._refused import Refused
from ferrule.helpers import one_line

_FORMS = (
    "TOOLS is a file, `path.py` or `path.py:name`, a module, `module:name`, or an MCP server: its "
    "command in quotes, its URL, or an mcp.json"
)
_TARGET = re.compile(r"(?P<where>.+\.py|[^\W\d]\w*(\.\w+)*)(:(?P<name>[^\W\d]\w*(\.\w+)*))?")
_NAMES = ("registry", "tools")
_STEPS = 8
"""How often what was given may give something else: a function, its awaitable, its manager, …"""


def load(target: str) -> object:
    """
    Import what TOOLS names and return it, not opened yet.

    The folder of a file, or the working directory for a module, stays importable: tools may import
    their neighbours when they are called.

    A server is not connected to before what is returned is opened.

    Raises:
        Refused: there is no such thing, or its code raised.
    """
    if _is_outside(target):
        return importlib.import_module("ferrule.cli._outside").servers(target)
    where, name = _parted(target)
    with TheirCode(f"cannot load {target}"):
        module = _from_file(Path(where)) if where.endswith(".py") else _from_name(where)
        return _named(module, name, target) if name else _offered(module, target)


@asynccontextmanager
async def opened(value: object, target: str) -> AsyncGenerator[Registry]:
    """
    Make a registry of what `load` gave, and keep it open while the block runs.

    A registry that comes out of an async context manager is that manager's to open and close.

    Raises:
        Refused: it gives no tools, or other people's code raised while opening or closing.
    """
    async with AsyncExitStack() as opening:
        with TheirCode(f"cannot load {target}"):
            registry = await _registry(value, opening, target)
        if not len(registry):
            raise _without_tools(target)
        stack = opening.pop_all()
    try:
        yield registry
    finally:
        with TheirCode(f"{target} did not close", code=1):
            await stack.aclose()


def no_such_tool(name: str, registry: Registry, target: str) -> Refused:
    """Return what to say of a name that no tool of `target` has."""
    close = get_close_matches(name, registry.names, n=1)
    shows = shlex.join(["ferrule", "list", target])
    hint = f"did you mean `{close[0]}`?" if close else f"`{shows}` shows all"
    return Refused(f"there is no tool `{one_line(name, 100)}`; {hint}")


# ---- finding -------------------------------------------------------------------------------------


def _is_outside(target: str) -> bool:
    """
    Return whether TOOLS is a server or a file of servers, and nothing of Python's.

    A word that could be either is a module if there is one, else a program.
    """
    if target.startswith(("http://", "https://")) or target.endswith(".json"):
        return True
    found, words = _TARGET.fullmatch(target), target.split()
    if found is None:
        return len(words) > 1 or (len(words) == 1 and _is_program(words[0]))
    if found["where"].endswith(".py"):
        return len(words) > 1 and not Path(found["where"]).is_file()
    return found["name"] is None and _is_program(target) and not _is_module(target)


def _is_program(word: str) -> bool:
    return shutil.which(word) is not None


def _is_module(name: str) -> bool:
    first = name.partition(".")[0]
    if first in sys.modules or first in sys.builtin_module_names:
        return True
    spec = PathFinder.find_spec(first, [str(Path.cwd()), *sys.path])
    return spec is not None and spec.origin is not None  # Else it is any folder of that name.


def _parted(target: str) -> tuple[str, str]:
    """Return file or module, and the name in it or an empty text."""
    found = _TARGET.fullmatch(target)
    if found is None:
        raise Refused(f"`{target}` is not understood; {_FORMS}")
    return found["where"], found["name"] or ""


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise Refused(f"there is no file `{path}`; {_FORMS}")
    path = path.resolve()
    _make_importable(path.parent)
    name = path.stem
    # A file may be called `json.py`: it gets a name that takes nothing from anybody.
    if not name.isidentifier() or name in sys.modules:
        name = "ferrule_tools"
    return _executed(importlib.util.spec_from_file_location(name, path), str(path))


def _from_name(name: str) -> ModuleType:
    _make_importable(Path.cwd())
    if name in sys.modules:
        return sys.modules[name]
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if not name.startswith(f"{error.name}."):  # Its package is there and cannot be imported.
            raise
        spec = None
    return _executed(spec, name)


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _executed(spec: ModuleSpec | None, name: str) -> ModuleType:
    if spec is None or spec.loader is None:
        raise Refused(f"there is no module `{name}`; {_FORMS}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Dataclasses and pickles look for their module there.
    spec.loader.exec_module(module)
    return module


def _named(module: ModuleType, name: str, target: str) -> object:
    value: object = module
    for part in name.split("."):
        if not hasattr(value, part):
            close = get_close_matches(part, dir(value), n=1)
            hint = f"did you mean `{close[0]}`?" if close else "check the name after the colon"
            raise Refused(f"`{target}`: there is no `{part}`; {hint}")
        value = getattr(value, part)
    return value


def _offered(module: ModuleType, target: str) -> object:
    """Return what a module offers where no name is given."""
    names = vars(module)
    for name in _NAMES:
        if name in names and not isinstance(names[name], ModuleType):
            return names[name]
    public = [value for name, value in names.items() if not name.startswith("_")]
    tools = {id(value): value for value in public if _is_tool(value)}
    if not tools:
        raise _without_tools(target)
    return list(tools.values())


def _without_tools(target: str) -> Refused:
    return Refused(
        f"{target} defines no tool; write `@tool` above a function, or name what gives tools, "
        f"as in `{target.partition(':')[0]}:name`"
    )


# ---- opening -------------------------------------------------------------------------------------


async def _registry(value: object, stack: AsyncExitStack, target: str) -> Registry:
    """Follow what gives tools until there is a registry; `stack` closes what was opened."""
    for _ in range(_STEPS):
        if isinstance(value, Registry):
            return await stack.enter_async_context(value)
        if _is_tool(value) or _is_source(value):
            value = Registry([value])
        elif isinstance(value, AbstractAsyncContextManager):
            value = await stack.enter_async_context(
                cast("AbstractAsyncContextManager[object]", value)
            )
            if isinstance(value, Registry):
                return value
        elif inspect.isawaitable(value):
            value = await value
        elif callable(value):
            value = _called(value)
        elif _is_list(value):
            value = Registry(value)
        else:
            break
    raise Refused(
        f"{target} gives {type(value).__name__}; give a tool, a list of tools, a registry, or a "
        "function that gives one: plain, async, or under `@asynccontextmanager`"
    )


def _is_tool(value: object) -> TypeGuard[Tool]:
    """Return whether a value is a tool; a class of tools is none, and neither is a mock."""
    kind = type(value)
    called = callable(getattr(kind, "call", None))
    return called and not isinstance(value, type) and isinstance(value, Tool)


def _is_source(value: object) -> TypeGuard[Source]:
    return isinstance(value, Source) and not isinstance(value, type)


def _is_list(value: object) -> TypeGuard[Iterable[Tool | Source]]:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def _called(function: Callable[[], object]) -> object:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # Some built-in functions have none.
        parameters = []
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(one.default is one.empty and one.kind not in several for one in parameters):
        name = getattr(function, "__name__", type(function).__name__)
        raise Refused(f"`{name}` takes arguments, so it gives no tools; write `@tool` above it")
    return function()
