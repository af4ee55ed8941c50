"""
The doors are what their `__all__` says: sorted, complete, importable, and every name explained.

The order is the linter's (RUF022): constants, classes, then the rest.
"""

import ast
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).parents[1] / "src"


def public_modules() -> list[str]:
    """Return the name of every module that users may import: no part of it begins with `_`."""
    files = (path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
    parts = (file.with_suffix("").parts for file in files)
    names = (tuple(part for part in name if part != "__init__") for name in parts)
    return sorted(".".join(name) for name in names if not any(p.startswith("_") for p in name))


def order(name: str) -> tuple[int, str]:
    """Where a name stands in a sorted `__all__`."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def written(module: ModuleType) -> set[str]:
    """
    Return the public names that belong to a module.

    Of a package, what its `__init__` imports or defines. Of a file, the classes it defines: its
    functions and constants may serve other rooms without being for users.
    """
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    names = (name for node in tree.body for name in bound(node, package=is_package(module)))
    return {name for name in names if not name.startswith("_")}


def is_package(module: ModuleType) -> bool:
    """Whether a module has files of its own below it."""
    return hasattr(module, "__path__")


def bound(node: ast.stmt, *, package: bool) -> Iterable[str]:
    """Return the names that one statement at the top of a file adds to the door."""
    match node:
        case ast.ClassDef(name=name):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if package:
            return [name]
        case ast.ImportFrom(module=str(source), names=names) if package:
            ours = source.split(".")[0] == "ferrule"
            return [alias.asname or alias.name for alias in names if ours]
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name] if package else []
        case _:
            return []


@pytest.fixture(params=public_modules())
def module(request: pytest.FixtureRequest, require: Callable[..., None]) -> ModuleType:
    """Every public module of Ferrule whose libraries are installed."""
    name = str(request.param)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        library = error.name or ""
        require(library.startswith("ferrule"), f"{name} needs {library}")
        raise


def test_all_is_there_and_sorted(module: ModuleType) -> None:
    """STYLE rule 1: one sorted `__all__`, each name once."""
    names = list(module.__all__)
    assert names == sorted(set(names), key=order)


def test_all_is_what_is_there(module: ModuleType) -> None:
    """STYLE rule 1: nothing public is left out of `__all__`."""
    assert written(module) <= set(module.__all__)


def test_all_names_nothing_else(module: ModuleType) -> None:
    """STYLE rules 1 and 2: each name exists, and none is private."""
    missing = [name for name in module.__all__ if not hasattr(module, name)]
    assert (missing, [name for name in module.__all__ if name.startswith("_")]) == ([], [])


def test_every_public_name_is_explained(module: ModuleType) -> None:
    """STYLE rule 25: each class and function behind a door has a docstring of its own."""
    unexplained = [name for name in module.__all__ if not explained(getattr(module, name))]
    assert unexplained == []


def explained(thing: object) -> bool:
    """Whether a thing has its docstring, not its parent's; an alias or a constant has no place."""
    if inspect.isclass(thing):
        return bool(vars(thing).get("__doc__"))
    return bool(thing.__doc__) or not inspect.isfunction(thing)


def test_the_door_is_a_map() -> None:
    """STYLE rule 1: a docstring with an example, explicit imports, `__all__`, nothing else."""
    tree = ast.parse((SOURCE / "ferrule" / "__init__.py").read_text(encoding="utf-8"))
    kinds = {type(node) for node in tree.body[1:-1]}
    assert (ast.get_docstring(tree) or "").count("    ") >= 1
    assert kinds <= {ast.ImportFrom}
    assert ast.unparse(tree.body[-1]).startswith("__all__")
