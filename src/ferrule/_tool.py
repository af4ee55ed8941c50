"""What can be called: `Tool`, and `RawTool` for a schema from elsewhere."""

import copy
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias, cast, runtime_checkable

from ferrule._asking import is_async
from ferrule._content import Result, Text
from ferrule._context import Context, awaited, in_thread
from ferrule._contract import Decode, Invocation, Resume
from ferrule._definition import Definition
from ferrule._requests import Continuation, InputRequest
from ferrule._traits import Traits
from ferrule.errors import InvalidCall, InvalidResult, InvalidTool, Problem
from ferrule.schema import Restore


@runtime_checkable
class Tool(Protocol):
    """
    Something that a model may call.

    It obeys cancellation and keeps neither invocation nor arguments. A tool that asked finds the
    answer, when it is started again, in `invocation.continuation`; that is `None` in a new call.

    Three more methods are looked for and may be missing: `validator()`, asked once when bound,
    gives a function that turns the validated arguments into the value that `call` finds in
    `invocation.value`, and raises `InvalidCall` to refuse them; `resumer()`, likewise, gives a
    function that looks at a continuation before the tool is started again with it, and raises
    `InvalidCall("unavailable", …)` to refuse it; `aclose()` releases what the tool owns beyond one
    call.
    """

    @property
    def definition(self) -> Definition:
        """What a model reads; a copy that nobody else holds."""
        ...

    @property
    def traits(self) -> Traits:
        """What a harness reads."""
        ...

    async def call(self, invocation: Invocation, context: Context, /) -> Result | InputRequest:
        """Run one admitted call."""
        ...


@runtime_checkable
class Validating(Protocol):
    """A tool with admission rules of its own."""

    def validator(self) -> Decode | None:
        """Return the rules, holding neither the tool nor what it owns."""
        ...


@runtime_checkable
class Resuming(Protocol):
    """A tool that says whether it can go on with an answer, before it is started again."""

    def resumer(self) -> Resume | None:
        """Return what looks at a continuation, holding neither the tool nor what it owns."""
        ...


@runtime_checkable
class Closing(Protocol):
    """A tool that owns something beyond one call."""

    async def aclose(self) -> None:
        """Release it; a second time does nothing."""
        ...


@runtime_checkable
class Preparing(Protocol):
    """A tool with parameters that a harness gives (CONTRACT FN-5)."""

    @property
    def injected(self) -> frozenset[str]:
        """The names that it takes of a registry's `inject`."""
        ...

    @property
    def optional(self) -> frozenset[str]:
        """Those of them that may be missing there."""
        ...

    def prepare(self, invocation: Invocation, injected: Mapping[str, object]) -> dict[str, object]:
        """
        Return what its parameters get, by name, before anything runs.

        Raises:
            InvalidCall: what the model gave does not go with what the harness gives.
        """
        ...


Validate: TypeAlias = Callable[[dict[str, object]], str | None]
"""A rule beyond the schema: gets detached plain arguments, gives the sentence that refuses."""

Close: TypeAlias = Callable[[], Awaitable[None] | None]


class Rules:
    """
    What a declared tool checks beyond its schema: the author's `validate`, then the decoding.

    `restore` is the way back from a schema in strict form; see `Decode`.
    """

    __slots__ = ("_decode", "_validate", "restore")

    def __init__(
        self,
        decode: Decode | None,
        validate: Validate | None,
        restore: Restore | None = None,
    ) -> None:
        self._decode = decode
        self._validate = validate
        self.restore = restore

    def __call__(self, arguments: dict[str, object]) -> object:
        """Return the typed value, or raise `InvalidCall`."""
        if self._validate is not None:
            sentence = self._validate(copy.deepcopy(arguments))
            if sentence is not None:
                if not isinstance(sentence, str) or not sentence:
                    raise TypeError("validate gives the sentence that refuses, or None")
                problem = Problem(path="", rule="validate", expected=sentence)
                raise InvalidCall("invalid_arguments", (problem,))
        return arguments if self._decode is None else self._decode(arguments)


class Described:
    """What every tool of ours is: a definition and traits, kept as they were when it was made."""

    def __init__(self, definition: Definition, traits: Traits) -> None:
        self._definition = definition
        self._traits = traits

    @property
    def definition(self) -> Definition:
        """What a model reads; a copy that nobody else holds."""
        return self._definition.copy()

    @property
    def traits(self) -> Traits:
        """What a harness reads."""
        return self._traits


class Declared(Described):
    """A tool that an author declared, and what it owns until it is closed."""

    def __init__(self, definition: Definition, traits: Traits, close: Close | None) -> None:
        super().__init__(definition, traits)
        self._close = close

    async def aclose(self) -> None:
        """Release what the tool owns, once."""
        close, self._close = self._close, None
        await close_with(close)


class RawTool(Declared):
    """
    A tool made from a definition: its schema comes from elsewhere and is enforced all the same.

    Args:
        definition: What a model reads.
        function: `function(arguments, context)`, plain or async: a plain one runs in a worker
            thread. It gets detached plain arguments, and may return what a `@tool` may.
        traits: What a harness reads.
        validate: A rule beyond the schema.
        close: Releases what the tool owns; called once, when its registry is closed.
        resume: `resume(arguments, context, continuation)`, plain or async: runs in the place of
            `function` when a person has answered what it, or `resume` itself, asked.

    Raises:
        InvalidTool: the function cannot be called with arguments and a context.
    """

    def __init__(
        self,
        definition: Definition,
        function: Callable[[dict[str, object], Context], object],
        *,
        traits: Traits = Traits(),
        validate: Validate | None = None,
        close: Close | None = None,
        resume: Callable[[dict[str, object], Context, Continuation], object] | None = None,
    ) -> None:
        if not callable(function):
            raise InvalidTool(
                f"the function of tool `{definition.name}` takes (arguments, context); "
                f"{type(function).__name__} cannot be called"
            )
        if resume is not None and not callable(resume):
            raise InvalidTool(
                f"resume of tool `{definition.name}` takes (arguments, context, continuation); "
                f"{type(resume).__name__} cannot be called"
            )
        check_parts(definition.name, validate, close)
        super().__init__(definition.copy(), traits, close)
        self._function = function
        self._validate = validate
        self._resume = resume

    def __repr__(self) -> str:
        return f"RawTool({self._definition.name!r})"

    def validator(self) -> Decode | None:
        """Return the rule beyond the schema, if there is one."""
        return None if self._validate is None else Rules(None, self._validate)

    def resumer(self) -> Resume | None:
        """Return what refuses every answer, if there is no function that goes on with one."""
        return None if self._resume is not None else NoResume(self._definition.name)

    async def call(self, invocation: Invocation, context: Context, /) -> Result | InputRequest:
        """Run the function with detached arguments, or go on with an answer."""
        arguments, continuation = invocation.arguments, invocation.continuation
        bound: functools.partial[object]
        if continuation is None or self._resume is None:
            bound = functools.partial(self._function, arguments, context)
        else:
            bound = functools.partial(self._resume, arguments, context, continuation)
        if is_async(bound):
            return given(await cast("Awaitable[object]", bound()))
        return given(await awaited(await in_thread(context, bound)))


class NoResume:
    """What a tool says of an answer that it cannot go on with, whatever the answer is."""

    __slots__ = ("_tool",)

    def __init__(self, tool: str) -> None:
        self._tool = tool

    def __call__(self, _: Continuation) -> None:
        """Refuse it."""
        expected = f"tool `{self._tool}` has nothing that goes on with an answer"
        raise InvalidCall("unavailable", (Problem(path="", rule="step", expected=expected),))


def check_parts(name: str, validate: object, close: object) -> None:
    """
    Refuse a `validate` or a `close` that cannot be called as it will be.

    Raises:
        InvalidTool: says what each of them is.
    """
    if validate is not None and (not callable(validate) or is_async(validate)):
        raise InvalidTool(
            f"validate of tool `{name}` is a plain function of the arguments; it returns the "
            "sentence that refuses, or None"
        )
    if close is not None and not callable(close):
        raise InvalidTool(f"close of tool `{name}` is a function without arguments")


async def close_with(close: Close | None) -> None:
    """Call an author's close function, plain or async."""
    done = close() if close is not None else None
    if inspect.isawaitable(done):
        await done


def given(value: object) -> Result | InputRequest:
    """Return what a function returned as what a tool gives (CONTRACT FN-6)."""
    if type(value) is str and value and value.isascii():  # What nearly every tool returns.
        return Result((Text(value),))
    if isinstance(value, InputRequest):
        return value
    if _is_both(value):
        raise InvalidResult("a tool gives a result or a question, not both")
    return Result.of(value)


def _is_both(value: object) -> bool:
    parts = cast("tuple[object, ...]", value) if isinstance(value, tuple) else ()
    return any(isinstance(part, InputRequest) for part in parts)
