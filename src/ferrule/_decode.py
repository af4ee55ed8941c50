"""A plain JSON value as a value of a type, enforced as a parameter of that type would be."""

from typing import TypeVar, cast

from ferrule.errors import InvalidCall
from ferrule.schema import Validator
from ferrule.schema import compile as compile_schema
from ferrule.schema._families import convert_to
from ferrule.schema._generate import generate
from ferrule.schema._types import shape_of

T = TypeVar("T")


def schema_of(kind: object, *, where: str) -> dict[str, object]:
    """
    Return the JSON Schema of a type in closed form.

    Raises:
        DeclarationError: the type has no JSON form; the sentence begins with `where`.
    """
    return generate(shape_of(kind, where=where))


def decode(arguments: object, kind: type[T]) -> T:
    """
    Return plain JSON values as a value of `kind`: what a raw tool does with its arguments.

    Whatever `@tool` takes for a parameter is taken here, and enforced alike.

    Raises:
        InvalidCall: they are not; with every problem and its path.
        DeclarationError: the type has no JSON form.
    """
    schema: Validator = compile_schema(schema_of(kind, where="the type"))
    problems = schema.problems(arguments)
    if problems:
        raise InvalidCall("invalid_arguments", problems)
    return cast("T", convert_to(kind)(arguments))
