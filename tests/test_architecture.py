"""
The house stands as ARCHITECTURE.md says: this file reads the source and refuses what may never be.

A room is a file or a package right under `src/ferrule`. Its floor is its row in `HOUSE`; the files
of a package have an order of their own. Imports point down, never sideways. A new file gets a place
here; whoever wants to widen an exception (`LATE`, `BROAD`) changes ARCHITECTURE.md first.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "ferrule"

HOUSE: tuple[tuple[str, ...], ...] = (
    ("_backend", "_blocking", "_contain", "_cut", "_near", "_secret", "errors"),
    ("_asking", "_ijson", "_mend", "_plain", "_value"),
    ("_content", "_hidden", "_traits"),
    ("_calls", "_failure"),
    ("schema",),
    ("_decisions", "_decode", "_definition", "_leniency", "_requests"),
    ("_contract", "_diff", "_outcome", "_returns", "_seal"),
    ("_context",),
    ("_tool",),
    ("_dedicated", "_process", "_step", "_wrapper"),
    ("_function", "_guard"),
    ("_binding", "_schedule"),
    ("_child", "_registry"),
    ("_events", "_jobs"),
    ("_crew",),
    ("_harness",),
    ("_batch",),
    ("_executor",),
    ("__init__",),
    ("helpers", "states"),
    ("lock", "ports"),
    (
        *("adapters", "mcp", "policies"),
        *("runtime", "telemetry", "temporal", "testing", "wire"),
    ),
    ("web",),
    ("cli",),
    ("__main__",),
)
DOOR = HOUSE.index(("__init__",))
"""The floor of `ferrule/__init__.py`."""

PUBLIC = {"ferrule", "ferrule.errors", "ferrule.ports", "ferrule.schema", "ferrule.states"}
"""What a file above the door may import of what stands below it or on it (rule 2)."""

INSIDE: dict[str, tuple[tuple[str, ...], ...]] = {
    "schema": (
        ("_annotations", "_docstring", "_document", "_sections", "_shape"),
        ("_classes", "_constraints", "_defaults", "_limits", "_native", "_words"),
        ("_engine", "_foreign", "_refusal", "_restore", "_types", "_unions"),
        ("_plan",),
        ("_explain", "_families", "_pydantic", "_reflect", "_shapes"),
        ("_compile", "_generate", "_lenient", "_strict"),
        ("__init__",),
    ),
    "lock": (
        ("_drift", "_following"),
        ("_file",),
        ("_lock",),
        ("__init__",),
    ),
    "helpers": (
        ("_groups", "_opening", "_printed", "_visible"),
        ("_rules",),
        ("_commands",),
        ("__init__",),
    ),
    "policies": (
        ("_invalid", "_paths", "_patterns", "_stated"),
        ("_conditions", "_hints"),
        ("_rule",),
        ("_reach",),
        ("_reading", "_warnings"),
        ("_rules",),
        ("cedar",),
        ("__init__",),
    ),
    "cli": (
        ("_signals",),
        ("_board", "_refused"),
        ("_bars", "_blame", "_group", "_lines", "_outside", "_schemas", "_streams", "_turn"),
        ("_changes", "_display", "_flags", "_joined", "_journal", "_loading", "_tables"),
        ("_answers", "_endings", "_usage"),
        ("_durable",),
        ("_answer", "_diff", "_history", "_list", "_lock", "_policy"),
        ("_call", "_resolve", "_run", "_serve", "_unknown", "_waits", "_withdraw"),
        ("_app",),
        ("__init__",),
    ),
    "mcp": (
        (
            *("_forms", "_http", "_memory", "_meta", "_outside", "_proxies", "_security"),
            "_shapes",
        ),
        ("_from_mcp", "_soft", "_stdio", "_tickets", "_to_mcp", "_tokens", "_who"),
        ("_asking", "_listing", "_oauth", "_request"),
        ("_answers", "_lives", "_targets"),
        ("_calls", "_file", "_wiring"),
        ("_connection", "_durable"),
        ("_long", "_session"),
        ("_following", "_server"),
        ("_peer",),
        ("_remote",),
        ("__init__",),
    ),
    "runtime": (
        ("_file", "_text"),
        ("_store",),
        ("_calls", "_owners"),
        ("_batches", "_waits"),
        ("_history", "_host"),
        ("_drive", "_inbox"),
        ("sqlite",),
        ("__init__",),
    ),
    "testing": (
        ("_foreign", "_recorder", "_samples", "_script"),
        ("_context", "_wrong"),
        ("_calling", "_check"),
        ("__init__",),
    ),
}
"""Packages whose every file is listed. In the others: `_x`, then `x`, then `__init__`."""

LATE = {
    "schema._docstring": "ferrule.schema._sections",
    "schema._families": "ferrule.schema.",
    "_context": "ferrule._blocking",
    "_dedicated": "ferrule._blocking",
    "_leniency": "ferrule._mend",
    "cli._app": "ferrule.cli.",
    "cli._loading": "ferrule.cli._outside",
}
"""Who may import late, and how the constant name begins that it may import (rule 8)."""

THEIRS = {"_child"}
"""Who may import what is not ours by a name that it is given: the module of a tool (rule 8)."""

BROAD = {
    # `_binding` looks at what a tool raised and lets it go; `_outside` holds servers; `_calls`
    # stands before MCP's SDK, which tells clients what is raised.
    "Exception": {"_binding", "_contain", "mcp._calls", "mcp._outside"},
    "BaseException": {"_batch", "_contain"},  # `carry` is the executor's half in a thread
    "everything": set[str](),
}
"""Where a handler that catches so much may stand (rule 7)."""

SANS_IO = {"_schedule"}
"""Rooms that decide and never act (rule 4): nothing that waits, runs, reads or writes."""
ACTING = {"anyio", "asyncio", "io", "os", "pathlib", "socket", "subprocess", "threading", "time"}

EXTRAS = {
    "pydantic": "pydantic",
    "pydantic_core": "pydantic",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "temporalio": "temporal",
    "jinja2": "web",
    "starlette": "web",
    "uvicorn": "web",
    "click": "cli",
    "rich": "cli",
    "fastmcp": "adapters (fastmcp)",
    "langchain_core": "adapters (langchain)",
    "langgraph": "adapters (langchain)",
    "agents": "adapters (openai_agents)",
    "pydantic_ai": "adapters (pydantic_ai)",
    "cedarpy": "cedar",
    "opentelemetry": "otel",
    "json_repair": "repair",
    "matplotlib": "examples",
}
"""Every library that may be missing, with the extra that brings it."""


# ---- reading the house ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Import:
    """One imported name: `from a import b` imports `a.b`."""

    node: ast.Import | ast.ImportFrom
    name: str

    @property
    def library(self) -> str:
        """The first part of the name."""
        return self.name.partition(".")[0]


class Module:
    """One file of Ferrule: its name below `ferrule.`, its syntax tree and its imports."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.room, _, inner = name.partition(".")
        self.place = place(self.room, inner or "__init__")
        self.tree = ast.parse(source)
        self.imports = [found for node in ast.walk(self.tree) for found in imports(node)]


def imports(node: ast.AST) -> Iterator[Import]:
    """What one statement imports."""
    if isinstance(node, ast.Import):
        yield from (Import(node, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (Import(node, f"{node.module or ''}.{alias.name}") for alias in node.names)


def place(room: str, inner: str) -> tuple[int, int] | None:
    """Return the floor of a room and the step of a file inside it, or None if it has no place."""
    floor = next((level for level, rooms in enumerate(HOUSE) if room in rooms), None)
    step = 0 if inner.startswith("_") else 1
    if room in INSIDE:
        found = (level for level, files in enumerate(INSIDE[room]) if inner in files)
        step = next(found, -1)
    elif inner == "__init__":
        step = 2
    return None if floor is None or step < 0 else (floor, step)


def file_of(name: str) -> str | None:
    """Return the file of Ferrule that an imported name comes from, or None if it is another's."""
    library, _, rest = name.partition(".")
    if library != "ferrule":
        return None
    room, _, inner = rest.partition(".")
    part = inner.partition(".")[0]
    if f"{room}.{part}" in FILES or any(part in files for files in INSIDE.get(room, ())):
        return f"{room}.{part}"
    if room in INSIDE or f"{room}.__init__" in FILES:
        return f"{room}.__init__"
    return room if any(room in rooms for rooms in HOUSE) else "__init__"


FILES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in SOURCE.rglob("*.py")
}
MODULES = [Module(name, path.read_text(encoding="utf-8")) for name, path in sorted(FILES.items())]


# ---- what may never be: each check yields one sentence per offence -------------------------------


def homeless(module: Module) -> Iterator[str]:
    """Refuse a file without a floor."""
    if module.place is None:
        yield "it has no floor: give it a row in HOUSE or INSIDE"


def upward(module: Module) -> Iterator[str]:
    """Refuse an import that does not point down (rule 1)."""
    for found in module.imports:
        file = file_of(found.name)
        room, _, inner = (file or "").partition(".")
        there = place(room, inner or "__init__") if file else None
        if there is None or module.place is None:
            continue
        (floor, step), (own_floor, own_step) = there, module.place
        if floor >= own_floor and not (room == module.room and step < own_step):
            yield f"line {found.node.lineno} imports {found.name} from floor {floor} on {own_floor}"


def misplaced(module: Module) -> Iterator[str]:
    """Refuse an import that is relative, late, conditional, or hidden from the program (rule 1)."""
    for found in module.imports:
        if isinstance(found.node, ast.ImportFrom) and found.node.level:
            yield f"line {found.node.lineno} imports {found.name} relatively"
        if found.node not in module.tree.body:
            yield f"line {found.node.lineno} imports {found.name} below the top of the file"
        if found.name.endswith(".TYPE_CHECKING"):
            yield f"line {found.node.lineno} asks for TYPE_CHECKING"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and node.attr == "TYPE_CHECKING":
            yield f"line {node.lineno} asks for TYPE_CHECKING"


def late(module: Module) -> Iterator[str]:
    """Refuse an import by name, but for a constant of ours where `LATE` says (rule 8)."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith(LATE_CALLS):
            continue
        match node.args:
            case [ast.Constant(value=str(name))] if name.startswith(LATE.get(module.name, "\0")):
                pass
            case [value] if module.name in THEIRS and not isinstance(value, ast.Constant):
                pass
            case _:
                yield f"line {node.lineno} imports late: {ast.unparse(node)}"


LATE_CALLS = ("__import__", "import_module", "resolve_name")


def unlocked(module: Module) -> Iterator[str]:
    """Refuse, above the door, the import of a name that users are not given (rule 2)."""
    if module.place is None or module.place[0] <= DOOR:
        return
    for found in module.imports:
        room = (file_of(found.name) or "").partition(".")[0]
        if not room or room == module.room:  # of others; or a sibling, which `upward` judges
            continue
        above = any(room in rooms for rooms in HOUSE[DOOR + 1 :])
        door = "ferrule" if room == "__init__" else f"ferrule.{room}"
        private = any(part.startswith("_") for part in found.name.split("."))
        if private or not (above or door in PUBLIC):
            yield f"line {found.node.lineno} imports {found.name}, which is private"


def crowded(module: Module) -> Iterator[str]:
    """Refuse a file that needs more than one extra (rule 5)."""
    extras = {EXTRAS[found.library] for found in module.imports if found.library in EXTRAS}
    if len(extras) > 1:
        yield f"it needs {', '.join(sorted(extras))}"


def acting(module: Module) -> Iterator[str]:
    """Refuse a room that only decides and yet imports something that acts (rule 4)."""
    if module.name in SANS_IO:
        acts = (found for found in module.imports if found.library in ACTING)
        yield from (f"line {found.node.lineno} imports {found.name}" for found in acts)


def greedy(module: Module) -> Iterator[str]:
    """Refuse a handler that catches everything where it may not stand (rule 7)."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler):
            types = [node.type] if node.type else []
            bare = [] if types else ["everything"]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            types, bare = node.args, []
        else:
            continue
        names = [ast.unparse(name) for kind in types for name in getattr(kind, "elts", [kind])]
        for name in [*names, *bare]:
            if module.name not in BROAD.get(name, {module.name}):
                yield f"line {node.lineno} catches {name}"


def reached(start: str, modules: dict[str, Module]) -> set[str]:
    """Return every file that runs when `start` is imported, late imports aside."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name in seen or name not in modules:
            continue
        seen.add(name)
        waiting.append(f"{modules[name].room}.__init__")  # a package runs before its files
        waiting.extend(file for found in modules[name].imports if (file := file_of(found.name)))
    return seen


# ---- the tests -----------------------------------------------------------------------------------


def holds(check: Callable[[Module], Iterator[str]]) -> None:
    """Fail with all that `check` says of any file."""
    offences = [f"{module.name}: {sentence}" for module in MODULES for sentence in check(module)]
    assert not offences, "\n".join(["", *offences])


def test_every_file_has_a_floor() -> None:
    """ARCHITECTURE, the rooms: a file that no table names is refused."""
    holds(homeless)


def test_imports_point_strictly_down() -> None:
    """ARCHITECTURE rule 1: a room knows the rooms below it and nobody else."""
    holds(upward)


def test_imports_are_absolute_and_at_the_top() -> None:
    """ARCHITECTURE rule 1: no import in a function, in an `if` or `try`, or for checkers alone."""
    holds(misplaced)


def test_late_imports_stand_in_three_files_alone() -> None:
    """ARCHITECTURE rule 8: `import_module` with a constant name of ours, where `LATE` says."""
    holds(late)


def test_above_the_door_only_public_names_are_imported() -> None:
    """ARCHITECTURE rule 2: our own adapters are the first users of the API."""
    holds(unlocked)


def test_one_file_needs_one_extra_at_most() -> None:
    """ARCHITECTURE rule 5: so that a missing extra takes away what needs it and nothing else."""
    holds(crowded)


def test_no_optional_library_is_reached_from_the_door() -> None:
    """ARCHITECTURE rules 3 and 5: no file that runs at `import ferrule` imports one."""
    modules = {module.name: module for module in MODULES}
    door = sorted(reached("__init__", modules))
    needs = [(name, found.name) for name in door for found in modules[name].imports]
    assert [(name, found) for name, found in needs if found.partition(".")[0] in EXTRAS] == []


def test_the_rooms_that_decide_do_not_act() -> None:
    """ARCHITECTURE rule 4: the schedule schedules traits, not code, and does no I/O."""
    holds(acting)


def test_broad_handlers_stand_where_the_rule_says() -> None:
    """ARCHITECTURE rule 7: one around the tool, one around foreign code, none bare."""
    holds(greedy)


BAD = [
    (homeless, "_attic", ""),
    (homeless, "schema._attic", ""),
    (upward, "errors", "from ferrule._contain import contain"),
    (upward, "_traits", "from ferrule._content import Text"),
    (upward, "_value", "import ferrule._executor"),
    (upward, "_value", "from ferrule import _executor"),
    (upward, "_value", "from ferrule import Executor"),
    (upward, "_content", "from ferrule.schema import compile"),
    (upward, "wire.anthropic", "from ferrule.cli import main"),
    (upward, "wire.anthropic", "from ferrule.mcp import connect"),
    (upward, "schema._reflect", "from ferrule.schema import schema_for"),
    (misplaced, "_value", "from . import errors"),
    (misplaced, "_value", "def f():\n    import json"),
    (misplaced, "_value", "try:\n    import mcp\nexcept ImportError:\n    mcp = None"),
    (misplaced, "_value", "from typing import TYPE_CHECKING"),
    (misplaced, "_value", "import typing\nif typing.TYPE_CHECKING:\n    pass"),
    (late, "_value", "import importlib\nimportlib.import_module('ferrule.errors')"),
    (late, "_value", "__import__('json')"),
    (late, "cli._app", "from importlib import import_module\nimport_module(name)"),
    (late, "cli._app", "from importlib import import_module\nimport_module('rich.table')"),
    (late, "_child", "import pkgutil\npkgutil.resolve_name('ferrule.errors')"),
    (unlocked, "wire.anthropic", "from ferrule._invocation import Invocation"),
    (unlocked, "wire.anthropic", "from ferrule._executor import Executor"),
    (unlocked, "wire.anthropic", "from ferrule import _executor"),
    (unlocked, "wire.anthropic", "from ferrule.schema._reflect import Shape"),
    (unlocked, "cli._run", "from ferrule.wire._names import name"),
    (crowded, "cli._web", "import click\nimport starlette"),
    (acting, "_schedule", "from anyio import Event"),
    (greedy, "_value", "try:\n    pass\nexcept:\n    pass"),
    (greedy, "_value", "try:\n    pass\nexcept (OSError, Exception):\n    pass"),
    (greedy, "_registry", "try:\n    pass\nexcept BaseException:\n    pass"),
    (greedy, "_executor", "import contextlib\nwith contextlib.suppress(Exception):\n    pass"),
]


@pytest.mark.parametrize(("check", "name", "source"), BAD)
def test_each_check_refuses_what_it_is_for(
    check: Callable[[Module], Iterator[str]], name: str, source: str
) -> None:
    """STYLE rule 28: a check that cannot fail holds nothing."""
    assert list(check(Module(name, source))) != []


GOOD = [
    (upward, "_executor", "import json\nfrom ferrule._schedule import Schedule"),
    (upward, "schema.__init__", "from ferrule.schema._compile import compile"),
    (upward, "cli._app", "from ferrule.wire.openresponses import Wire"),
    (late, "cli._app", "from importlib import import_module\nimport_module('ferrule.cli._run')"),
    (late, "_child", "import pkgutil\npkgutil.resolve_name(order.name)"),
    (unlocked, "cli._run", "from ferrule import Executor\nfrom ferrule.wire.openai import Wire"),
    (crowded, "cli._run", "import click\nfrom rich.table import Table"),
    (greedy, "_batch", "try:\n    pass\nexcept BaseException:\n    pass"),
]


@pytest.mark.parametrize(("check", "name", "source"), GOOD)
def test_each_check_lets_pass_what_is_right(
    check: Callable[[Module], Iterator[str]], name: str, source: str
) -> None:
    """STYLE rule 28: a check that always fails holds nothing either."""
    assert list(check(Module(name, source))) == []


def test_reaching_follows_imports_and_packages() -> None:
    """ARCHITECTURE rule 3: what runs at an import is more than what is named in the file."""
    modules = {
        "__init__": Module("__init__", "from ferrule.schema._reflect import Shape"),
        "schema.__init__": Module("schema.__init__", "from ferrule._value import Value"),
        "schema._reflect": Module("schema._reflect", "import msgspec"),
        "_value": Module("_value", ""),
        "_content": Module("_content", ""),
    }
    assert reached("__init__", modules) == set(modules) - {"_content"}
