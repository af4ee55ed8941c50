"""
A program: every schema and value made to hurt, under a limit of CPU and memory.

It is run by `test_compile.py` in a process of its own, since what it proves is that the process
lives. It prints "done" when each case was refused, or answered.
"""

import contextlib
import resource
from collections.abc import Callable, Iterator

from ferrule.errors import InvalidSchema, ValidatorCrash
from ferrule.schema import compile

SECONDS = 20
MEMORY = 2 << 30

Case = tuple[dict[str, object], list[object]]


def around(levels: int, value: object, wrap: Callable[[object], object]) -> object:
    """Wrap a value again and again."""
    for _ in range(levels):
        value = wrap(value)
    return value


def shared(levels: int) -> dict[str, object]:
    """Return a few Python objects that stand in billions of places."""
    schema: dict[str, object] = {"type": "string"}
    for _ in range(levels):
        schema = {"anyOf": [schema, schema]}
    return schema


def chain(length: int) -> dict[str, object]:
    """Return a schema of references that lead from one to the next."""
    definitions: dict[str, object] = {f"A{i}": {"$ref": f"#/$defs/A{i + 1}"} for i in range(length)}
    definitions[f"A{length}"] = {"type": "integer"}
    return {"$ref": "#/$defs/A0", "$defs": definitions}


def structures() -> Iterator[Case]:
    """Find schemas whose shape is the attack."""
    yield {"not": around(10_000, {}, lambda value: {"properties": {"a": value}})}, [{}]
    yield {"properties": {f"p{i}": {"type": "string"} for i in range(100_000)}}, [{}]
    wide: dict[str, object] = {f"p{i}": {} for i in range(40_000)}
    unknown: object = {f"q{i}": 1 for i in range(40_000)}
    yield {"properties": wide, "additionalProperties": False}, [unknown]
    yield shared(60), ["x"]
    yield chain(9_000), ["a"]
    yield chain(1_500), ["a"]
    tree: dict[str, object] = {"type": "array", "items": {"$ref": "#/$defs/tree"}}
    ambiguous = {"anyOf": [tree, tree | {"minItems": 1}, {"type": "string"}]}
    nested = around(100, 1, lambda value: [value])
    yield {"$ref": "#/$defs/tree", "$defs": {"tree": ambiguous}}, [nested, [nested] * 500]
    tagged = [{"properties": {"k": {"const": i}}, "required": ["k"]} for i in range(5_000)]
    yield {"anyOf": tagged}, [{}]


def patterns() -> Iterator[Case]:
    """Find patterns that are slow to run or to compile."""
    yield {"pattern": "^(a+)+$"}, ["a" * 500_000 + "b"]
    yield {"items": {"pattern": "^(a|aa)+(?=x)$"}}, [["a" * 15] * 30_000]
    many: dict[str, object] = {f"^a{i}$": {"type": "null"} for i in range(2_000)}
    names: dict[str, object] = {f"k{i}": 1 for i in range(20_000)}
    yield {"patternProperties": many}, [names | {"a1": 1}]
    large: dict[str, object] = {r"((a{1,100}){1,100}){1,100}": {}, r"(\p{L}{1,1000}\d?){1,50}": {}}
    yield {"patternProperties": large}, [{}]


def values() -> Iterator[Case]:
    """Find values that are dear to refuse."""
    yield {"required": [f"r{i}" for i in range(1_000)]}, [{"a": ["x" * 10] * 90_000}]
    yield {"items": {"type": "integer"}}, [["x"] * 90_000]
    names = [str(i) for i in range(30_000)]
    yield {"items": {"enum": names}}, [["0"] * 50_000 + ["x"]]
    yield {"items": {"enum": [{"a": i} for i in range(30_000)]}}, [[{"a": 29_999}] * 20_000]
    yield {"uniqueItems": True}, [[[i] for i in range(40_000)] + [[1]]]
    yield {"type": "integer"}, [1e300] * 1_000


def attack() -> list[str]:
    """Compile and ask everything; return the sentences of what was refused."""
    refusals: list[str] = []
    for schema, offered in (*structures(), *patterns(), *values()):
        try:
            validator = compile(schema)
        except InvalidSchema as error:
            refusals.append(str(error))
            continue
        for value in offered:
            with contextlib.suppress(ValidatorCrash):
                assert len(validator.problems(value)) <= 20
    return refusals


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    assert all(len(refusal) < 400 for refusal in attack())
    print("done")  # noqa: T201  # what the test waits for
