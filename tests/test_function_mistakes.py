"""A tool that cannot work fails when it is declared, with what to write instead."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from ferrule import (
    Context,
    DeclarationError,
    Definition,
    RawTool,
    tool,
)


class Counter:
    """A class with a method."""

    def add(self, n: int) -> int:
        """Add."""
        return n


def untyped(path) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001  # that is the mistake
    """Lack a type."""
    return f"{path}"


def untyped_rest(*paths) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN002  # that is the mistake
    """Lack a type."""
    return f"{paths}"


def generator(n: int) -> object:
    """Yield."""
    yield n


async def async_generator(n: int) -> object:
    """Yield."""
    yield n


def formless(job: Callable[[int], int]) -> int:
    """Take what JSON has no form for."""
    return job(1)


def formless_inside(jobs: Mapping[str, list[complex]]) -> int:
    """Take what JSON has no form for, deep inside."""
    return len(jobs)


def two_contexts(one: Context, other: Context) -> str:
    """Take two."""
    return f"{one}{other}"


def not_there(path: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821  # that is the mistake
    """Name a type that nobody knows."""
    return f"{path}"


def fine(n: int) -> int:
    """Work."""
    return n


async def fine_later(n: int) -> int:
    """Work, later."""
    return n


def of(function: object, **options: object) -> Callable[[], object]:
    """Return what declares a tool of anything."""
    return lambda: (
        cast("Any", tool)(**options)(function) if options else cast("Any", tool)(function)
    )


MISTAKES: dict[str, tuple[Callable[[], object], list[str]]] = {
    "no type": (of(untyped), ["`path` of `untyped` has no type", "as in `path: str`"]),
    "no type of the rest": (of(untyped_rest), ["`paths` of `untyped_rest` has no type"]),
    "a generator": (of(generator), ["`generator` is a generator", "return a list"]),
    "an async generator": (of(async_generator), ["`async_generator` is a generator"]),
    "a lambda": (of(lambda: 1), ["a lambda has no name", "tool(name=...)"]),
    "a name by position": (of("read_file"), ['write @tool(name="read_file")']),
    "no function": (of(5), ["@tool goes above a function, not int"]),
    "a method without its object": (of(Counter.add), ["`add` is a method without its object"]),
    "a class": (of(Counter), ["`Counter` is a class"]),
    "no JSON form": (of(formless), ["`job` of `formless`", "has no form in JSON"]),
    "no JSON form inside": (of(formless_inside), ["`jobs` of `formless_inside`", "complex"]),
    "two contexts": (of(two_contexts), ["`other` of `two_contexts`", "`Context`"]),
    "an unknown type": (of(not_there), ["`path` of `not_there`", "`Nowhere`"]),
    "a misspelt trait": (of(fine, read_onyl=True), ["no keyword `read_onyl`", "read_only?"]),
    "an unknown keyword": (of(fine, name="f", colour=1), ["`f` has no keyword `colour`"]),
    "a wrong trait": (of(fine, replay="never"), ['replay is "unknown", "safe", "keyed"']),
    "a wrong hint": (of(fine, name="f", read_only="yes"), ["tool `f`", "read_only is True"]),
    "an async function in a thread": (of(fine_later, run_in="thread"), ["`fine_later` is async"]),
    "nowhere to run": (of(fine, run_in="threads"), ["run_in of `fine` is"]),
    "a bad name": (of(fine, name="bad name"), ["the name of a tool is 1 to 128 of", '"bad name"']),
    "an invisible name": (of(fine, name="fi\u200bne"), ["the name of a tool is", "\\u200b"]),
    "no name": (of(fine, name=""), ["the name of a tool is 1 to 128 of"]),
    "a schema of no object": (
        of(fine, input_schema={"type": "array"}), ["input_schema of tool `fine`"],
    ),
    "an async rule": (of(fine, validate=fine_later), ["validate of tool `fine` is a plain"]),
    "a rule that is none": (of(fine, validate="even"), ["validate of tool `fine`"]),
    "a close that is none": (of(fine, close=5), ["close of tool `fine` is a function"]),
    "a raw tool of nothing": (
        lambda: RawTool(Definition("raw"), cast("Any", None)), ["tool `raw`", "cannot be called"],
    ),
    "a raw tool with an async rule": (
        lambda: RawTool(Definition("raw"), lambda _, __: None, validate=cast("Any", fine_later)),
        ["validate of tool `raw`"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_cannot_work_fails_when_it_is_declared(mistake: str) -> None:
    """FN-1, scope 50, agenttool 50: naming function and parameter, and what to write instead."""
    declare, said = MISTAKES[mistake]

    with pytest.raises(DeclarationError) as caught:
        declare()

    assert all(part in str(caught.value) for part in said), str(caught.value)
    assert str(caught.value).isprintable()
