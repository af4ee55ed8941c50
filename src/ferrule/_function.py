"""From a typed Python function to a tool: `@tool`."""

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Unpack,
    cast,
    overload,
)

import msgspec

from ferrule._asking import is_async
from ferrule._content import Result
from ferrule._context import Context, awaited, in_thread
from ferrule._contract import Decode, Invocation, Resume
from ferrule._dedicated import Dedicated
from ferrule._definition import Definition
from ferrule._hidden import Inject, Within
from ferrule._ijson import canonical
from ferrule._near import near
from ferrule._process import Elsewhere
from ferrule._requests import Continuation, InputRequest
from ferrule._returns import returned_schema
from ferrule._step import Step, Steps
from ferrule._tool import (
    Close,
    Declared,
    Rules,
    Tool,
    Validate,
    check_parts,
    given,
)
from ferrule._traits import TraitFields, Traits
from ferrule._wrapper import layers
from ferrule.errors import DeclarationError, InvalidTool, InvalidValue
from ferrule.schema import NotStrict, Restore, to_strict
from ferrule.schema._families import RootedConverter, converter
from ferrule.schema._generate import Form, generate
from ferrule.schema._reflect import reflect
from ferrule.schema._shape import Signature

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
A = TypeVar("A")
T = TypeVar("T")

# What the converter makes is a struct; saying so to a checker at each call would cost as much.
_parts = cast("Callable[[object], tuple[object, ...]]", msgspec.structs.astuple)

RunIn: TypeAlias = Literal["auto", "loop", "thread", "dedicated", "process"]
"""
Where a function runs: `auto` is the loop for an async function, a worker thread for a plain one.

`dedicated` is one thread of the tool's own, for its calls one after the other; `process` is a
process for each call, which can be killed.
"""


class _OwnSignature:
    """The signature of a tool's function, for who looks at the tool; only then is it made."""

    def __get__(self, tool: "FunctionTool[..., Any] | None", _: object) -> inspect.Signature:
        if tool is None:
            raise AttributeError("__signature__")  # The class has its own, from `__init__`.
        return inspect.signature(tool.function)


class FunctionTool(Declared, Generic[P, R]):
    """
    A tool made from a function by `tool`; still callable as the function, with its static type.

    A bad declaration raises when it is made; a bad call never reaches the function.
    """

    def __init__(
        self,
        function: Callable[P, R],
        signature: Signature,
        definition: Definition,
        declared: "Declaration",
        restore: Restore | None,
    ) -> None:
        super().__init__(definition, declared.traits, declared.close)
        functools.update_wrapper(self, function)
        self.steps: dict[str, Step[Any, Any, Any]] = {}
        self._readable = Steps(definition.name)
        self._run_in = declared.run_in
        self._is_bound = False
        self._function = function
        self._run: Callable[..., Any] = function
        self._signature = signature
        self._where = declared.where(function, signature)
        self._is_async = is_async(function)
        self._generated = declared.input_schema is None
        self._validate = declared.validate
        self._restore = restore
        self._convert = converter(signature, closed=declared.form != "open")
        # Async, and every parameter takes its argument by position.
        self._direct = (
            self._is_async
            and not signature.hidden
            and all(
                parameter.kind in {"positional_only", "positional_or_keyword"}
                and parameter.within is None
                for parameter in signature.parameters
            )
            and not isinstance(self._convert, RootedConverter)
        )
        # The visible parameters whose paths have a root: position and name, and the root of those
        # that are a path; in the others, paths are somewhere inside.
        self._rooted = [
            (index, parameter.name, parameter.within)
            for index, parameter in enumerate(signature.parameters)
            if parameter.within is not None or self._convert.roots[index]
        ]
        self._roots = {within.root for _, _, within in self._rooted if isinstance(within, Within)}
        self._roots.update(*self._convert.roots)
        self._contexts = tuple(
            parameter.name for parameter in signature.hidden if parameter.marker is Context
        )

    __signature__ = _OwnSignature()

    @property
    def function(self) -> Callable[P, R]:
        """The function itself."""
        return self._function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, as if it had not been decorated."""
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self._definition.name!r}>"

    def validator(self) -> Decode | None:
        """
        Return the typed decoding and the author's rule; it holds no function of the tool.

        Raises:
            InvalidTool: the tool runs in a process, which could not find it.
        """
        if isinstance(self._where, Elsewhere):
            self._check_found(self._where)
        if self._validate is not None or self._restore is not None:
            return Rules(self._convert, self._validate, self._restore)
        # The conversion knows the generated schema; another one must be asked itself.
        return self._convert if self._generated else self._convert.__call__

    def resumer(self) -> Resume:
        """Return what knows whether a step can go on with an answer; it holds no function."""
        self._is_bound = True
        return self._readable

    def _check_found(self, where: Elsewhere) -> None:
        """Refuse a tool that stands elsewhere than where a process will look for it."""
        found = layers(cast("Tool", where.found))
        if all(layer is not self for layer in found):
            raise InvalidTool(
                f"`{self._definition.name}` runs in a process, which finds it by module and name, "
                f"and `{where}` is not this tool; write @tool above the function"
            )

    async def call(self, invocation: Invocation, context: Context, /) -> Result | InputRequest:
        """Run the function with the typed arguments, or the step that goes on with an answer."""
        if self._direct and invocation[5] is None:
            # What most tools are. The value is taken by its place, as its name costs as much as a
            # small tool.
            return given(await self._run(*_parts(invocation[3])))
        if isinstance(self._where, Elsewhere):
            return await self._where.run(invocation, context)
        bound, in_loop = self._bound(invocation, context)
        if in_loop:
            return given(await awaited(bound()))
        if isinstance(self._where, Dedicated):
            return given(await awaited(await self._where.run(context, bound)))
        return given(await awaited(await in_thread(context, bound)))

    def run_here(self, invocation: Invocation, context: Context) -> Result | InputRequest:
        """Run a plain function where we are, wherever it was meant to run."""
        return given(self._bound(invocation, context)[0]())

    def _bound(
        self, invocation: Invocation, context: Context
    ) -> tuple[functools.partial[Any], bool]:
        """Return what runs, with its typed arguments, and whether that is in the loop."""
        continuation = invocation[5]
        if continuation is not None:
            return self._step_bound(continuation, context)
        hidden = {**dict.fromkeys(self._contexts, context), **context.given}
        value = cast("msgspec.Struct", invocation.value)
        if self._rooted:
            found = {_field(value, index): hidden[name] for index, name, _ in self._rooted}
            value = msgspec.structs.replace(value, **found)
        parts, keywords = self._convert.call_parts(value, hidden)
        return functools.partial(self._run, *parts, **keywords), self._where == "loop"

    def _step_bound(
        self, continuation: Continuation, context: Context
    ) -> tuple[functools.partial[Any], bool]:
        """Return the step that goes on, and whether it does so in the loop."""
        step = self.steps[self._readable.name_of(continuation)]
        parts, keywords = step.parts(continuation, context)
        in_loop = step.is_async or self._run_in == "loop"
        return functools.partial(step.function, *parts, **keywords), in_loop

    async def aclose(self) -> None:
        """Release what the tool owns, once: a thread of its own calls `close` and ends."""
        if not isinstance(self._where, Dedicated):
            await super().aclose()
            return
        close, self._close = self._close, None
        await self._where.aclose(close)

    @property
    def injected(self) -> frozenset[str]:
        """The names that it takes of a registry's `inject`."""
        hidden = (parameter.marker for parameter in self._signature.hidden)
        injected = {marker.name for marker in hidden if isinstance(marker, Inject)}
        injected.update(m.name for step in self.steps.values() for m in step.injected.values())
        return frozenset(injected | self._roots)

    @property
    def optional(self) -> frozenset[str]:
        """Those of them that may be missing, as all their parameters have a default."""
        required = {
            parameter.marker.name
            for parameter in self._signature.hidden
            if isinstance(parameter.marker, Inject) and parameter.default is msgspec.UNSET
        }
        required.update(*(step.required for step in self.steps.values()))
        return self.injected - required - self._roots

    def prepare(self, invocation: Invocation, injected: Mapping[str, object]) -> dict[str, object]:
        """
        Return what hidden parameters get, and where the paths that have a root lead.

        Raises:
            InvalidCall: a path leaves its root.
        """
        continuation = invocation[5]
        if continuation is not None:
            taken = self.steps[self._readable.name_of(continuation)].injected.items()
            return {name: injected[m.name] for name, m in taken if m.name in injected}
        given = {
            parameter.name: injected[parameter.marker.name]
            for parameter in self._signature.hidden
            if isinstance(parameter.marker, Inject) and parameter.marker.name in injected
        }
        if self._rooted:
            given.update(self._placed(invocation, injected))
        return given

    def _placed(self, invocation: Invocation, injected: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments whose paths have a root, with these paths below it."""
        roots = {name: Path(cast("str", injected[name])) for name in self._roots}
        value = cast("msgspec.Struct", invocation.value)
        if isinstance(self._convert, RootedConverter):
            # Made anew, as only the conversion knows which member of a union a text became.
            value = self._convert.placed(invocation.arguments, roots)
        placed: dict[str, object] = {}
        for index, name, within in self._rooted:
            part = getattr(value, _field(value, index))
            if isinstance(within, Within) and part is not None:
                part = within.resolve(part, roots[within.root], parameter=name)
            placed[name] = part
        return placed

    def step(self, function: Callable[Concatenate[S, A, ...], T], /) -> Step[S, A, T]:
        """
        Declare what happens with an answer: `@refund.step` above `(state, answer, context)`.

        A step runs where the tool's `run_in` says; under `auto`, as with the tool's own function,
        that is the loop for an async one and a worker thread for a plain one. What it returns is
        what the tool returns: it may ask once more. Its name is in every request that waits for
        it: a renamed step strands those.

        Raises:
            DeclarationError: the function does not take a state and an answer, its name is taken
                by another step, it cannot run where the tool runs, or it gives something else than
                the tool promises.
        """
        made: Step[S, A, T] = Step(function, self._definition.name)
        self._check_step(made)
        self.steps[made.name] = made
        self._readable.add(made.name, made.reading)
        return made

    def _check_step(self, step: Step[Any, Any, Any]) -> None:
        """Refuse a step that could not go on when it is answered."""
        name = self._definition.name
        if step.name in self.steps:
            raise DeclarationError(f"tool `{name}` has two steps named `{step.name}`; rename one")
        if step.is_async and self._run_in not in {"auto", "loop"}:
            raise DeclarationError(
                f"step `{step.name}` is async and runs in the loop; make it a plain `def`, or "
                f'leave out run_in="{self._run_in}" of tool `{name}`'
            )
        if isinstance(self._where, Elsewhere):
            self._where.check_step(step.name, step.function, takes_more=bool(step.injected))
        if self._is_bound and step.injected:
            raise DeclarationError(
                f"step `{step.name}` takes what a harness injects, and tool `{name}` was "
                "registered before; declare every step first"
            )
        if self._definition.output_schema is not None and step.is_unstructured:
            raise DeclarationError(
                f"step `{step.name}` returns no structured content, and the output_schema of tool "
                f"`{name}` promises it; return the type that the tool returns"
            )


def _field(value: msgspec.Struct, index: int) -> str:
    """Return the attribute under which a struct of arguments keeps its parameter `index`."""
    return value.__struct_fields__[index]


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    form: Form = "closed",
    run_in: RunIn = "auto",
    input_schema: Mapping[str, object] | None = None,
    validate: Validate | None = None,
    close: Close | None = None,
    **traits: Unpack[TraitFields],
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(  # noqa: PLR0913  # each by keyword, as a decorator's options are
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    form: Form = "closed",
    run_in: RunIn = "auto",
    input_schema: Mapping[str, object] | None = None,
    validate: Validate | None = None,
    close: Close | None = None,
    **traits: Unpack[TraitFields],
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """
    Make a tool of a typed function: `@tool`, or `@tool(read_only=True)`.

    The function keeps its static type and can still be called as it is. Name and text come from
    the function and its docstring. Takes functions, bound methods, partials and callable objects;
    a method of a class is `tool(K.method)` on an instance.

    Args:
        function: The function.
        name: The tool's name; the function's own if left out.
        title: A name for people.
        description: What a model reads; the docstring without its sections if left out.
        form: `"open"` passes over names that the function does not take, `"strict"` is the form
            that providers follow to the letter; see CONTRACT SCH-4.
        run_in: Where it runs; see `RunIn`.
        input_schema: Replaces the generated schema, and is enforced.
        validate: A rule beyond the schema; gives the sentence that refuses, or `None`.
        close: Releases what the tool owns; called once, when its registry is closed.
        **traits: The fields of `Traits`.

    Raises:
        DeclarationError: the function cannot work as a tool; names function and parameter, and
            what to write instead.
    """
    declared = Declaration(
        name,
        title,
        description,
        form,
        run_in,
        input_schema,
        validate,
        close,
        _traits(traits, name),
    )
    if function is None:
        return declared.tool
    return declared.tool(function)


class Declaration(msgspec.Struct, frozen=True):
    """What stands between the brackets of `@tool(...)`."""

    name: str | None
    title: str | None
    description: str | None
    form: Form
    run_in: RunIn
    input_schema: Mapping[str, object] | None
    validate: Validate | None
    close: Close | None
    traits: Traits

    def tool(self, function: Callable[P, R]) -> FunctionTool[P, R]:
        """Return the tool of `function`."""
        if isinstance(function, str):
            raise DeclarationError(f'write @tool(name="{function}"): a name is given by keyword')
        if not callable(function):
            raise DeclarationError(f"@tool goes above a function, not {type(function).__name__}")
        signature = reflect(function, name=self.name)
        check_parts(signature.name, self.validate, self.close)
        schema, restore = self._schema(signature)
        definition = Definition(
            signature.name,
            description=signature.description if self.description is None else self.description,
            input_schema=schema,
            output_schema=returned_schema(signature.returns, signature.name),
            title=self.title,
            strict=self.form == "strict",
        )
        return FunctionTool(function, signature, definition, self, restore)

    def _schema(self, signature: Signature) -> tuple[dict[str, object], Restore | None]:
        """Return what is sent, and the way back where it is the strict form."""
        if self.form not in {"closed", "open", "strict"}:
            raise DeclarationError(
                f'the form of `{signature.name}` is "closed", "open" or "strict"'
            )
        supplied = None if self.input_schema is None else dict(self.input_schema)
        if self.form != "strict":
            form = self.form
            return (generate(signature, form=form) if supplied is None else supplied), None
        converted = to_strict(generate(signature) if supplied is None else supplied)
        if isinstance(converted, NotStrict):
            raise InvalidTool(f"`{signature.name}` has no strict form: {converted}")
        if supplied is not None and canonical(converted.schema) != canonical(supplied):
            raise InvalidTool(
                f"the input_schema of `{signature.name}` is not in strict form; "
                "give what `ferrule.schema.to_strict` makes of it"
            )
        return converted.schema, converted.restore

    def where(
        self, function: Callable[..., object], signature: Signature
    ) -> Literal["loop", "thread"] | Dedicated | Elsewhere:
        """Return where the function runs, and what it needs to run there."""
        name, asynchronous = signature.name, is_async(function)
        match self.run_in:
            case "auto":
                return "loop" if asynchronous else "thread"
            case "loop":
                return "loop"
            case "thread" | "dedicated" | "process" if asynchronous:
                raise DeclarationError(
                    f"`{name}` is async and runs in the loop; make it a plain `def`, "
                    f'or leave out run_in="{self.run_in}"'
                )
            case "thread":
                return "thread"
            case "dedicated":
                return Dedicated(name)
            case "process":
                _check_alone(signature)
                return Elsewhere(function, name)
        raise DeclarationError(
            f'run_in of `{name}` is "auto", "loop", "thread", "dedicated" or "process"'
        )


def _check_alone(signature: Signature) -> None:
    """Refuse parameters that a harness gives, where the function runs in another process."""
    named = [p.name for p in signature.hidden if p.marker is not Context]
    named += [p.name for p in signature.parameters if p.within is not None]
    if named:
        raise DeclarationError(
            f"`{signature.name}` runs in a process, where no harness gives its parameter "
            f'`{named[0]}`; write run_in="thread", or take a plain value'
        )


_UNSTATED = Traits()


def _traits(fields: TraitFields, name: str | None) -> Traits:
    if not fields:  # As of most tools.
        return _UNSTATED
    of = f" of tool `{name}`" if name else ""
    unknown = sorted(set(fields) - set(Traits.__struct_fields__))
    if unknown:
        hint = near(unknown[0], Traits.__struct_fields__)
        meant = f"; did you mean {hint[0]}?" if hint else ""
        raise DeclarationError(f"@tool{of} has no keyword `{unknown[0]}`{meant}")
    try:
        return Traits(**fields)
    except InvalidValue as error:
        raise DeclarationError(f"the traits{of}: {error}") from error
