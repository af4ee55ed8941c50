"""A value that is used and never shown: `Secret`."""

import hmac
import secrets
from collections.abc import Callable
from typing import Any, Final, Generic, NoReturn, TypeVar, cast, final, get_args

T = TypeVar("T")

_SALT: Final = secrets.token_bytes(16)
"""Of this process alone: a hash that got out tells nothing of a short secret."""

STARS: Final = "Secret(***)"
"""How every secret looks, whatever it holds."""


@final
class Secret(Generic[T]):
    """
    A value that is used and never shown: `Secret("hunter2")`, and `.reveal()` where it is used.

    It looks the same in every text, has no form in JSON and cannot be pickled, so that it gets into
    no record, result, log or error; each of them is refused with a sentence. A copy is the secret
    itself. Two secrets of the same text or bytes are equal, found out in a time that says nothing;
    a secret equals nothing else.

    As a parameter that a model gives, `password: Secret[str]` has the schema of `str`. What the
    model wrote is in the call itself, as it was written.
    """

    __slots__ = ("__reveal", "__weakref__")

    __reveal: Callable[[], T]

    def __init__(self, value: T, /) -> None:
        # In a closure: who lists what an object has, as loggers do, finds a function.
        object.__setattr__(self, "_Secret__reveal", lambda: value)

    def reveal(self) -> T:
        """Return the value; the one place to look for when asking where it goes."""
        return self.__reveal()

    def __repr__(self) -> str:
        return STARS

    def __format__(self, _: str) -> str:
        return STARS

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        ours: object = self.__reveal()
        theirs = cast("Secret[object]", other).reveal()
        if isinstance(ours, str) and isinstance(theirs, str):
            return hmac.compare_digest(_bytes(ours), _bytes(theirs))
        if isinstance(ours, bytes) and isinstance(theirs, bytes):
            return hmac.compare_digest(ours, theirs)
        return bool(ours == theirs)

    def __hash__(self) -> int:
        return hash((_SALT, self.__reveal()))

    def __setattr__(self, name: str, _: object) -> NoReturn:
        raise AttributeError(f"a Secret does not change ({name}); make a new one")

    def __copy__(self) -> "Secret[T]":
        return self

    def __deepcopy__(self, _: object) -> "Secret[T]":
        return self

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("a Secret cannot be pickled; where it must travel, say so by `.reveal()`")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> dict[str, Any]:  # noqa: ANN401  # as pydantic calls it
        """Tell pydantic to make what is inside, and then a secret of it."""
        inner = handler.generate_schema(*(get_args(source) or (Any,)))
        function = {"type": "no-info", "function": cls}
        as_it_is = {"type": "any"}  # so that a model that is dumped holds the secret itself
        return {
            "type": "function-after",
            "function": function,
            "schema": inner,
            "serialization": as_it_is,
        }


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
