"""
What happens with an answer: a typed step that a tool asks for (CONTRACT SUS-2).

Theory. A request that a step makes has in its state which step goes on, and that step's own state.
So a tool may have several steps, and a step may ask for itself or another one: each leg of a call
starts at exactly one of them. Before it starts, `Steps` reads the continuation: the admission of a
call knows nothing of the tool but that, and it holds no function of it.
"""

from collections.abc import Callable, Mapping
from typing import Generic, Literal, TypeVar

import msgspec

from ferrule._asking import is_async
from ferrule._contain import Broke, contain, message_of
from ferrule._content import RawJSON
from ferrule._context import Context
from ferrule._hidden import Inject
from ferrule._near import near, shown
from ferrule._plain import is_mapping, plain
from ferrule._requests import Continuation, InputRequest
from ferrule._returns import is_unstructured
from ferrule.errors import DeclarationError, InvalidCall, InvalidValue, Problem, clip
from ferrule.schema import compile as compile_schema
from ferrule.schema._families import converter
from ferrule.schema._generate import generate
from ferrule.schema._reflect import reflect
from ferrule.schema._shape import Parameter, Signature, holds_secret, roots_in

S = TypeVar("S")
A = TypeVar("A")
R = TypeVar("R")


class Step(Generic[S, A, R]):
    """
    One step of a tool: asked for with a state, and started with that state and the answer.

    Made by `tool.step` on a function `(state, answer)`, which may take the context and injected
    values too. The types of state and answer are those of the first two parameters.

    Attributes:
        name: The function's name; what a request's state is filed under.
        tool: The name of the tool.
        state_schema: JSON Schema of the state.
        answer_schema: JSON Schema of the answer: what a person is asked for.
    """

    def __init__(self, function: Callable[..., R], tool: str) -> None:
        self.function = function
        self.tool = tool
        self.is_async = is_async(function)
        signature = reflect(function)
        self.name = signature.name
        state, answer = _two(signature.parameters, f"step `{self.name}` of tool `{tool}`")
        self._refuse_parameters(state, answer)
        self.is_unstructured = is_unstructured(signature.returns)
        self.hidden = signature.hidden
        self._contexts = [h.name for h in signature.hidden if h.marker is Context]
        self.takes_context = bool(self._contexts)
        self.state_schema = generate(state.shape)
        self.answer_schema = generate(answer.shape)
        self._state_validator = compile_schema(self.state_schema)
        self.reading = Reading(signature, state, answer)

    def __repr__(self) -> str:
        return f"<step {self.name!r} of tool {self.tool!r}>"

    def ask(self, message: str, state: S, *, expires_in: float | None = None) -> InputRequest:
        """
        Return the request that suspends the call: what a tool returns to be asked.

        Args:
            message: What a person reads.
            state: What the step needs to go on; kept as JSON.
            expires_in: Seconds until nobody needs to answer any more.

        Raises:
            InvalidValue: the state is not what the step takes, or cannot be kept.
        """
        kept = contain(plain, state)
        if isinstance(kept, Broke):
            raise InvalidValue(f"the state for {self!r} has no JSON form: {message_of(kept.error)}")
        problems = "; ".join(map(str, self._state_validator.problems(kept)))
        if problems:
            raise InvalidValue(clip(f"the state for {self!r} is not what it takes: {problems}"))
        return InputRequest(
            message,
            schema=self.answer_schema,
            state={"step": self.name, "state": kept},
            expires_in=expires_in,
        )

    @property
    def injected(self) -> dict[str, Inject]:
        """What it takes of a registry's `inject`, by parameter."""
        return {h.name: h.marker for h in self.hidden if isinstance(h.marker, Inject)}

    @property
    def required(self) -> set[str]:
        """The names of these that have to be there."""
        missing = {h.name for h in self.hidden if h.default is msgspec.UNSET}
        return {marker.name for name, marker in self.injected.items() if name in missing}

    def parts(
        self, continuation: Continuation, context: Context
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """
        Return how the function is called to go on.

        Raises:
            InvalidCall: state or answer are not what the step takes.
        """
        hidden = {**dict.fromkeys(self._contexts, context), **context.given}
        return self.reading.parts(*_read(continuation), hidden)

    def _refuse_parameters(self, state: Parameter, answer: Parameter) -> None:
        if holds_secret(state.shape):
            raise DeclarationError(
                f"the state of step `{self.name}` is kept as JSON, and a Secret never is; keep "
                "what leads to it"
            )
        if roots_in(state.shape) or roots_in(answer.shape) or state.within or answer.within:
            raise DeclarationError(
                f"nobody gives step `{self.name}` a root; say `Within` of a parameter of the tool"
            )


class Reading:
    """Makes typed values of a state and an answer; holds no function of a tool."""

    __slots__ = ("_answer", "_convert", "_state", "_validator")

    def __init__(self, signature: Signature, state: Parameter, answer: Parameter) -> None:
        self._state, self._answer = state.name, answer.name
        self._validator = compile_schema(generate(signature))
        self._convert = converter(signature)

    def parts(
        self, state: object, answer: object, hidden: Mapping[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the arguments of the step's function; raises as `typed` does."""
        return self._convert.call_parts(self.typed(state, answer), hidden)

    def typed(self, state: object, answer: object) -> msgspec.Struct:
        """
        Return both as the types that were declared, in a struct.

        Raises:
            InvalidCall: they are not; each problem has its path, from the parameter on.
        """
        both = {self._state: state, self._answer: answer}
        problems = self._validator.problems(both)
        if problems:
            raise _unavailable(*problems)
        done = contain(self._convert, both)
        if not isinstance(done, Broke):
            return done
        if isinstance(done.error, InvalidCall):
            raise _unavailable(*done.error.problems)
        expected = "the types of state and answer refuse the values"
        raise _unavailable(_problem("type", expected)) from done.error


class Steps:
    """
    What the admission of a call knows of a tool's steps: whether one of them can go on.

    It is told of steps that are declared later, and holds no function of the tool.
    """

    __slots__ = ("_readings", "_tool")

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._readings: dict[str, Reading] = {}

    def add(self, name: str, reading: Reading) -> None:
        """Know one more step."""
        self._readings[name] = reading

    def __call__(self, continuation: Continuation) -> None:
        """
        Do nothing if a step can go on with this.

        Raises:
            InvalidCall: `"unavailable"`: none can; says why.
        """
        self._readings[self.name_of(continuation)].typed(*_read(continuation))

    def name_of(self, continuation: Continuation) -> str:
        """
        Return the name of the step that goes on with this.

        Raises:
            InvalidCall: `"unavailable"`: none can; says why.
        """
        name = _named(continuation)
        if name in self._readings:
            return name
        raise _unavailable(_problem("step", self._none(name), path="state.step"))

    def _none(self, name: str | None) -> str:
        if not self._readings:
            return f"tool `{self._tool}` has no step that goes on with an answer"
        if name is None:
            return f"the state is not one that a step of tool `{self._tool}` made"
        nearest = near(name, self._readings)
        meant = f"; there is `{nearest[0]}`" if nearest else ""
        return f"tool `{self._tool}` has no step {shown(name)}{meant}"


def _named(continuation: Continuation) -> str | None:
    """Return the name of the step that is to go on, or `None` if no step made the state."""
    state = continuation.state
    if is_mapping(state) and len(state) == len(_MEMBERS) and all(map(state.__contains__, _MEMBERS)):
        name = state["step"]
        return name if isinstance(name, str) else None
    return None


_MEMBERS = ("step", "state")


def _read(continuation: Continuation) -> tuple[object, object]:
    """Return the step's own state and the answer, as plain JSON values."""
    state, answer = continuation.state, continuation.answer
    own = state["state"] if is_mapping(state) else None
    return own, answer.read() if isinstance(answer, RawJSON) else answer


def _unavailable(*problems: Problem) -> InvalidCall:
    return InvalidCall("unavailable", problems)


def _problem(rule: Literal["step", "type"], expected: str, *, path: str = "") -> Problem:
    return Problem(path=path, rule=rule, expected=expected)


def _two(parameters: tuple[Parameter, ...], where: str) -> tuple[Parameter, Parameter]:
    match [one for one in parameters if one.kind.startswith("positional")]:
        case [state, answer] if parameters == (state, answer):
            return state, answer
        case _:
            raise DeclarationError(
                f"{where} takes a state and an answer, and the context if it likes: "
                "(state: Draft, answer: bool, context: Context)"
            )
