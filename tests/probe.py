"""A hand-written tool that tells what was asked of it, and what a boundary says of calls."""

from collections.abc import Callable
from typing import cast

import pytest

from ferrule import (
    Context,
    Contract,
    Definition,
    InputRequest,
    InvalidCall,
    Invocation,
    Result,
    ToolCall,
    Traits,
)


class Probe:
    """A hand-written tool that counts how often each part of it is asked for."""

    def __init__(self, schema: dict[str, object], validator: object = None) -> None:
        self.name = "probe"
        self.schema = schema
        self.decode = validator
        self.read = {"definition": 0, "traits": 0, "validator": 0, "call": 0}

    @property
    def definition(self) -> Definition:
        """Count and answer."""
        self.read["definition"] += 1
        return Definition(self.name, input_schema=self.schema)

    @property
    def traits(self) -> Traits:
        """Count and answer."""
        self.read["traits"] += 1
        return Traits()

    def validator(self) -> Callable[[dict[str, object]], object] | None:
        """Count and answer."""
        self.read["validator"] += 1
        return cast("Callable[[dict[str, object]], object] | None", self.decode)

    async def call(self, invocation: Invocation, _: Context, /) -> Result | InputRequest:
        """Count and give the text back as it was written."""
        self.read["call"] += 1
        return Result.of(invocation.text)


def of(**properties: object) -> dict[str, object]:
    """Return a closed schema in which every one of `properties` may be left out."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def open_to(**properties: object) -> dict[str, object]:
    """Return a schema that takes other names too."""
    return {"type": "object", "properties": properties}


def call(arguments: str, name: str = "probe") -> ToolCall:
    """Return a call as a model may write it."""
    return ToolCall(id="c1", name=name, arguments=arguments)


def refusal(contract: Contract, arguments: str, name: str = "probe") -> InvalidCall:
    """Return why a call is not let in."""
    with pytest.raises(InvalidCall) as caught:
        contract.admit(call(arguments, name))
    return caught.value
