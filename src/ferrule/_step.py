"""What happens with an answer: a typed step that a tool asks for (CONTRACT SUS-2)."""

from collections.abc import Callable
from typing import Generic, TypeVar

from ferrule._contain import Broke, contain
from ferrule._plain import plain
from ferrule._requests import InputRequest
from ferrule._tool import Context
from ferrule.errors import DeclarationError, InvalidValue
from ferrule.schema import compile as compile_schema
from ferrule.schema._generate import generate
from ferrule.schema._reflect import reflect
from ferrule.schema._shape import Parameter, holds_secret, roots_in

S = TypeVar("S")
A = TypeVar("A")
R = TypeVar("R")


class Step(Generic[S, A, R]):
    """
    One step of a tool: declared once, asked for with a state, called with that state and an answer.

    Made by `tool.step` on a function `(state, answer)` or `(state, answer, context)`. The types of
    state and answer are the ones of the first two parameters.

    Attributes:
        name: The function's name; what a request's state is filed under.
        state_schema: JSON Schema of the state.
        answer_schema: JSON Schema of the answer: what a person is asked for.
    """

    def __init__(self, function: Callable[..., R], tool: str) -> None:
        self.function = function
        self.tool = tool
        signature = reflect(function)
        self.name = signature.name
        state, answer = _two(signature.parameters, f"step `{self.name}` of tool `{tool}`")
        if holds_secret(state.shape):
            raise DeclarationError(
                f"the state of step `{self.name}` is kept as JSON, and a Secret never is; keep "
                "what leads to it"
            )
        if roots_in(state.shape) or roots_in(answer.shape) or state.within or answer.within:
            raise DeclarationError(
                f"nobody gives step `{self.name}` a root; say `Within` of a parameter of the tool"
            )
        self.takes_context = any(hidden.marker is Context for hidden in signature.hidden)
        self._state, self._answer = state.hint, answer.hint
        self.state_schema = generate(state.shape)
        self.answer_schema = generate(answer.shape)
        self._state_validator = compile_schema(self.state_schema)

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
            raise InvalidValue(f"the state for {self!r} has no JSON form: {kept.error}")
        problems = "; ".join(map(str, self._state_validator.problems(kept)))
        if problems:
            raise InvalidValue(f"the state for {self!r} is not what it takes: {problems}")
        return InputRequest(
            message,
            schema=self.answer_schema,
            state={"step": self.name, "state": kept},
            expires_in=expires_in,
        )


def _two(parameters: tuple[Parameter, ...], where: str) -> tuple[Parameter, Parameter]:
    match [one for one in parameters if one.kind.startswith("positional")]:
        case [state, answer] if parameters == (state, answer):
            return state, answer
        case _:
            raise DeclarationError(
                f"{where} takes a state and an answer, and the context if it likes: "
                "(state: Draft, answer: bool, context: Context)"
            )
