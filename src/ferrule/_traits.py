"""What a harness reads of a tool and a model never does: one frozen value, all defaulted."""

from collections.abc import Callable, Iterable
from typing import ClassVar, Literal, TypeAlias, TypedDict, cast

import msgspec

from ferrule._value import Value, is_span
from ferrule.errors import InvalidValue

Arguments: TypeAlias = dict[str, object]
"""Validated arguments as plain JSON values, detached: what a trait function is given."""

Replay: TypeAlias = Literal["unknown", "safe", "keyed", "until_effect"]
"""
What running a call a second time would do.

`safe`: nothing that the first run did not do; `keyed`: nothing, as long as the idempotency key is
the same; `unknown`: nobody has said. Hints never stand in for it.
"""


class Shared(Value, frozen=True):
    """State that many calls may read side by side, as long as none has it for itself."""

    state: str


Use: TypeAlias = str | Shared
"""State that a call works on: a name alone means the call has it for itself."""

Uses: TypeAlias = Use | Iterable[Use]

Confinement: TypeAlias = str | None
"""The name of what confines a call, as in `container:build`; `None` is unconfined."""


class Leniency(Value, frozen=True, kw_only=True, omit_defaults=True):
    """
    Which mistakes of a model are repaired before a call is refused for them; none, by default.

    A repair is tried only when the arguments as written are refused, is made only where the
    declared type does not accept the value, and is recorded on the invocation under its name.
    Nothing is guessed: what could have been meant in two ways stays refused.

    Attributes:
        double_encoded: The whole text is a JSON string that holds the object: one layer comes off.
        json_in_string: A text with the JSON of a declared list or object is read, once.
        numbers_in_string: A text that is a number of JSON becomes a declared number or integer.
        booleans_in_string: `"true"` and `"false"`, and no other text, become a declared boolean.
        null_is_default: A null goes away where a member may be left out and may not be null.
        broken_json: A text that is no JSON is written anew if it stays the same in all it says,
            as with single quotes, `True`, or a comma too many. Needs `ferrule[repair]`.
    """

    double_encoded: bool = False
    json_in_string: bool = False
    numbers_in_string: bool = False
    booleans_in_string: bool = False
    null_is_default: bool = False
    broken_json: bool = False

    COMMON: ClassVar["Leniency"]
    """All but `broken_json`."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not isinstance(getattr(self, name), bool):
                raise InvalidValue(f"{name} of a Leniency is True or False")


Leniency.COMMON = Leniency(
    double_encoded=True,
    json_in_string=True,
    numbers_in_string=True,
    booleans_in_string=True,
    null_is_default=True,
)


class TraitFields(TypedDict, total=False):
    """The fields of `Traits`, as keyword arguments of `@tool`."""

    read_only: bool | None
    destructive: bool | None
    idempotent: bool | None
    open_world: bool | None
    sequential: bool
    uses: Uses | Callable[[Arguments], Uses | None] | None
    confinement: Confinement | Callable[[Arguments], Confinement]
    replay: Replay | Callable[[Arguments], Replay]
    timeout: float | None
    leniency: Leniency
    failures: tuple[type[Exception], ...]


class Traits(Value, frozen=True, kw_only=True):
    """
    What a harness may know of a tool.

    Attributes:
        read_only: It changes nothing. A hint in MCP's sense, as the next three are: `None` is
            unstated, which is not false, and no hint ever grants anything.
        destructive: It may delete or overwrite.
        idempotent: Calling it again with the same arguments changes nothing more.
        open_world: It reaches beyond this machine or system.
        sequential: A batch with a call to it runs in the model's order, one at a time.
        uses: Named state that a call works on, or a function of the arguments that says which.
            Calls of a batch that conflict run in the model's order.
        confinement: What confines a call, as the tool reports it, or a function of the arguments
            that says so; Ferrule confines nothing itself.
        replay: What a second run would do, or a function of the arguments that says so.
        timeout: Seconds that a call may take from its dispatch; then it is reported as unknown, at
            once, and told to stop. `None` is no limit.
        leniency: Which mistakes in its arguments are repaired.
        failures: Exceptions whose own message a model may read: definite failures (FAIL-4).
    """

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    sequential: bool = False
    uses: Uses | Callable[[Arguments], Uses | None] | None = None
    confinement: Confinement | Callable[[Arguments], Confinement] = None
    replay: Replay | Callable[[Arguments], Replay] = "unknown"
    timeout: float | None = None
    leniency: Leniency = Leniency()
    failures: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        for hint in ("read_only", "destructive", "idempotent", "open_world"):
            if not isinstance(getattr(self, hint), bool | None):
                raise InvalidValue(f"{hint} is True, False or None (unstated)")
        if not isinstance(self.sequential, bool):
            raise InvalidValue("sequential is True or False")
        if not callable(self.uses):
            msgspec.structs.force_setattr(self, "uses", uses_of(self.uses) or None)
        if not callable(self.confinement):
            confinement_of(self.confinement)
        if not callable(self.replay):
            replay_of(self.replay)
        limit = self.timeout
        if limit is not None and (isinstance(limit, bool) or not is_span(limit)):
            raise InvalidValue("timeout is seconds, more than 0, or None for no limit")
        if not isinstance(self.leniency, Leniency):
            raise InvalidValue("leniency is a Leniency, as in Leniency.COMMON")
        if not isinstance(self.failures, tuple) or not all(map(_is_exception, self.failures)):
            raise InvalidValue("failures is a tuple of exception types, as in (FileNotFoundError,)")

    @property
    def is_settled(self) -> bool:
        """Whether they are the same for every call: no trait is a function of the arguments."""
        return not any(callable(getattr(self, field)) for field in _COMPUTED)

    def settled(self, arguments: Callable[[], Arguments]) -> "Traits":
        """
        Return the traits of one call: each function is replaced by what it says of the arguments.

        Args:
            arguments: Gives them, detached, to each function anew.

        Raises:
            InvalidValue: a function answered nonsense.
            Exception: what a function raised.
        """
        asked = {field: getattr(self, field) for field in _COMPUTED}
        answers = {f: ask(arguments()) for f, ask in asked.items() if callable(ask)}
        settled = msgspec.structs.replace(self, **answers) if answers else self
        if not settled.is_settled:
            raise InvalidValue("a trait function gives a value, not another function")
        return settled

    @property
    def hints(self) -> dict[str, bool]:
        """The hints that are stated, by MCP's names."""
        named = (
            ("readOnlyHint", self.read_only),
            ("destructiveHint", self.destructive),
            ("idempotentHint", self.idempotent),
            ("openWorldHint", self.open_world),
        )
        return {name: value for name, value in named if value is not None}

    def to_json(self) -> dict[str, object]:
        """
        Return the traits as plain JSON.

        Raises:
            InvalidValue: a trait is a function or an exception type, which JSON cannot carry.
        """
        for field in _COMPUTED:
            if callable(getattr(self, field)):
                raise InvalidValue(f"{field} is a function here, and JSON cannot carry it")
        if self.failures:
            raise InvalidValue("failures are exception types, and JSON cannot carry them")
        written: dict[str, object] = {
            name: value
            for name in ("read_only", "destructive", "idempotent", "open_world")
            if (value := getattr(self, name)) is not None
        }
        if self.sequential:
            written["sequential"] = True
        if self.uses is not None:
            written["uses"] = [
                use if isinstance(use, str) else use.to_json() for use in uses_of(self.uses)
            ]
        if self.confinement is not None:
            written["confinement"] = self.confinement
        if self.replay != "unknown":
            written["replay"] = self.replay
        if self.timeout is not None:
            written["timeout"] = self.timeout
        if self.leniency != Leniency():
            written["leniency"] = self.leniency.to_json()
        return written

    @classmethod
    def from_json(cls, value: object) -> "Traits":
        """
        Return the traits that `to_json` wrote.

        Raises:
            InvalidValue: `value` is not what `to_json` writes.
        """
        read = _WrittenTraits.from_json(value)
        return cls(**{name: getattr(read, name) for name in read.__struct_fields__})


class _WrittenTraits(Value, frozen=True, kw_only=True):
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    sequential: bool = False
    uses: tuple[str | Shared, ...] | None = None
    confinement: Confinement = None
    replay: Replay = "unknown"
    timeout: float | None = None
    leniency: Leniency = Leniency()


def uses_of(value: object) -> tuple[Use, ...]:
    """
    Return what a tool said it uses as a tuple, without repeats.

    Raises:
        InvalidValue: it is nonsense: not names and not `Shared`.
    """
    if value is None:
        return ()
    if type(value) is str and value:  # What most functions say.
        return (value,)
    several = (value,) if isinstance(value, str | Shared) else value
    if not isinstance(several, Iterable):
        raise InvalidValue(_NONSENSE)
    uses: dict[Use, None] = {}
    for use in cast("Iterable[object]", several):
        if not isinstance(use, str | Shared) or not (use if isinstance(use, str) else use.state):
            raise InvalidValue(_NONSENSE)
        uses[use] = None
    return tuple(uses)


_NONSENSE = 'uses is a name, Shared("name"), several of these, or a function that gives them'


def replay_of(value: object) -> Replay:
    """
    Return what a tool said of its replay.

    Raises:
        InvalidValue: it is none of the four words.
    """
    for replay in _REPLAYS:
        if value == replay:
            return replay
    raise InvalidValue(
        'replay is "unknown", "safe", "keyed" or "until_effect", or a function giving one'
    )


_REPLAYS: tuple[Replay, ...] = ("unknown", "safe", "keyed", "until_effect")


def confinement_of(value: object) -> Confinement:
    """
    Return what a tool said of its confinement.

    Raises:
        InvalidValue: it is neither a name nor `None`.
    """
    if value is None or (isinstance(value, str) and value):
        return value
    raise InvalidValue(
        "confinement is the name of what confines the call, None, or a function giving one"
    )


_COMPUTED = ("uses", "confinement", "replay")
"""The traits that may be functions of the arguments."""


def _is_exception(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Exception)
