"""
The boundary: a call goes in untrusted, an `Invocation` comes out or nothing does.

Theory. Only `Contract.admit` makes an `Invocation`. The class's metaclass refuses every other
call of it; pickling is refused; and since `msgspec.convert` and `msgspec.structs.replace` do not
ask a metaclass, all that an invocation says stands in one private field whose class neither can
build. `Binding` looks at nothing else.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec
from msgspec import UNSET

from ferrule._calls import ToolCall
from ferrule._contain import Broke, contain
from ferrule._content import RawJSON, Result, Text, is_larger
from ferrule._definition import Definition, fingerprint
from ferrule._ijson import Limits, blank, digest, read, wide_integers
from ferrule._leniency import mender
from ferrule._plain import is_mapping, is_sequence
from ferrule._requests import Continuation, InputRequest, Posed
from ferrule._traits import Leniency
from ferrule._value import Sealed, Value
from ferrule.errors import (
    CallKind,
    InvalidCall,
    InvalidJSON,
    InvalidResult,
    InvalidSchema,
    InvalidValue,
    Problem,
    ValidatorCrash,
    clip,
)
from ferrule.schema import Restore, Validator
from ferrule.schema import compile as compile_schema

Decode = Callable[[dict[str, object]], object]
"""
A tool's own validator: gives the typed value or raises `InvalidCall`.

One with an attribute `quick` that is not `None` promises that what `msgspec.convert` makes of it, a
type, is the typed value of arguments that the schema accepts, and that no code of the tool runs
meanwhile: the schema, which was made of that type, then need not be asked. What the conversion
refuses is judged by the schema and the validator as if there were none.

One with an attribute `restore` that is not `None` belongs to a schema in strict form: the nulls
that stand for "left out" are taken away after the schema and before the validator (CONTRACT SCH-4).
"""


Resume = Callable[[Continuation], object]
"""What a tool says of an answer before it goes on with it: returns, or raises to refuse it."""


class Repair(Value, frozen=True):
    """
    Something that was changed in the arguments before the tool got them.

    Attributes:
        name: Which repair, as in `strict_null`.
        path: Where in the arguments.
    """

    name: str
    path: str = ""


class Invocation(
    Sealed,
    tuple["Contract", ToolCall, str, object, tuple[Repair, ...], Continuation | None],
):
    """
    A call that one exact contract has let in; made by `Contract.admit` alone.

    It runs only on the binding of that contract (CONTRACT ADM-4). That it is a tuple is nobody's
    business: one is made for each call, and nothing else that cannot change is as cheap. Its text
    is the one that the arguments are read from again: that of the call, or that of its repair.
    """

    __slots__ = ()

    @property
    def call(self) -> ToolCall:
        """The call as the model wrote it."""
        return self[1]

    @property
    def text(self) -> str:
        """The arguments byte for byte as written; `{}` where they were blank."""
        # What was repaired was not blank: `{}` holds nothing that could be.
        return self[1].arguments if self[4] else self[2]

    @property
    def value(self) -> object:
        """What the tool's validator made of the arguments, or the plain arguments."""
        return self[3]

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """What was changed in the arguments before the tool got them."""
        return self[4]

    @property
    def continuation(self) -> Continuation | None:
        """The answer with which the tool goes on, and its state; `None` always is a new call."""
        return self[5]

    @property
    def arguments(self) -> dict[str, object]:
        """The validated arguments as plain JSON values, a new copy each time; with repairs."""
        return self[0].read_again(self[2])

    @property
    def digest(self) -> str:
        """The canonical digest of the arguments: what an approval is bound to."""
        return digest(self.arguments)

    def __repr__(self) -> str:
        return f"<Invocation of {self[0].name!r} by call {self[1].id!r}>"


# `tuple`'s own maker: what a sealed class refuses, and only the room that may make one calls.
_new: Callable[[type[Invocation], tuple[object, ...]], Invocation] = vars(tuple)["__new__"]


class Contract:
    """
    A definition frozen with its compiled validators; holds nothing that can run a tool.

    Safe for concurrent use, and keeps no tool alive.
    """

    __slots__ = (
        "__weakref__",
        "_argument_bytes",
        "_decode",
        "_definition",
        "_fingerprint",
        "_hints",
        "_is_valid",
        "_listed",
        "_mender",
        "_output",
        "_quick",
        "_restore",
        "_resume",
        "_short",
        "_validator",
        "limits",
        "name",
        "origin",
    )

    def __init__(
        self,
        definition: Definition,
        *,
        decode: Decode | None = None,
        resume: Resume | None = None,
        hints: Mapping[str, bool] | None = None,
        leniency: Leniency = Leniency(),
        origin: str = "local",
        limits: Limits = Limits(),
    ) -> None:
        """
        Freeze `definition` and compile its schemas.

        Raises:
            InvalidTool: a schema does not compile or breaks a budget, or a repair needs a package
                that is not here.
        """
        self._definition = definition.copy()
        self._quick: type[object] | None = getattr(decode, "quick", None)
        # Made of a type, it compiles; and it may be that nobody ever asks it.
        later = self._quick is not None
        self._validator = _compiled(definition, "input_schema", limits, later=later)
        self._is_valid = self._validator.is_valid
        self._output = (
            None
            if definition.output_schema is None
            else _compiled(definition, "output_schema", limits)
        )
        self._decode = decode
        self._resume = resume
        self._restore: Restore | None = getattr(decode, "restore", None)
        self._mender = mender(leniency, definition.name, self._definition.input_schema, limits)
        self._hints = dict(hints or {})
        self._fingerprint: str | None = None
        # Characters of a text that is small enough, whatever they are, if a text alone is enough.
        self._short = -1 if self._output else limits.output_bytes // 4
        self._argument_bytes = limits.argument_bytes
        self._listed: frozenset[int] | None = None
        self.name = definition.name
        self.origin = origin
        self.limits = limits

    @property
    def definition(self) -> Definition:
        """The frozen definition, a new copy each time."""
        return self._definition.copy()

    @property
    def fingerprint(self) -> str:
        """The identity that approvals and locks use (CONTRACT DEF-3)."""
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self._definition, origin=self.origin, hints=self._hints)
        return self._fingerprint

    def admit(self, call: ToolCall, continuation: Continuation | None = None) -> Invocation:
        """
        Let `call` in, or say everything that is wrong with it.

        Checks in this order: the name, the text as an I-JSON object within limits, the schema, the
        tool's own decoding and validator. What text or schema refuse is repaired before, as far as
        the tool's leniency goes. Runs no tool and asks no policy.

        A continuation goes with the call that asked, with the same arguments, of the tool as it
        was, and with no other; and the tool says whether it can go on with it (CONTRACT SUS-2).

        Args:
            call: The call as the model wrote it.
            continuation: The answer to what the call asked; `None` always is a new call.

        Raises:
            InvalidCall: with a kind and all problems found; `ValidatorCrash` when the tool's own
                validator broke; `"unavailable"` when the tool cannot go on with the continuation.
        """
        if continuation is not None:
            return self._resumed(self.admit(call), continuation)
        if call.name != self.name:
            raise _refused("unknown_tool", "name", f'this is the contract of "{self.name}"')
        text = call.arguments
        if not text or (text[0] != "{" and blank(text)):
            text = "{}"
        repairs: tuple[Repair, ...] = ()
        try:
            arguments = self._read(text)
        except InvalidCall as refusal:
            # Raised again here: a frame that held it would keep all that was read until it is
            # collected.
            if (respelt := self._respelt(text, refusal.kind)) is None:
                raise
            text, arguments, repairs = respelt
        if self._quick is not None:
            try:
                value = msgspec.convert(arguments, self._quick)
            except msgspec.ValidationError:
                pass
            else:
                return _new(Invocation, (self, call, text, value, repairs, None))
        if not self._is_valid(arguments):
            text, arguments, made = self._repaired(arguments)
            repairs += made
        value, made = self._typed(arguments)
        return _new(Invocation, (self, call, text, value, repairs + made, None))

    def check_result(self, result: Result) -> None:
        """
        Check a result's size, and its structured content against the output schema.

        Raises:
            InvalidResult: it is over `output_bytes`, or breaks the schema; says where.
        """
        content, structured = result.content, result.structured_content
        if (
            len(content) == 1
            and type(content[0]) is Text
            and len(content[0].text) <= self._short
            and structured is UNSET
        ):
            return  # What nearly every result is.
        limit = self.limits.output_bytes
        if is_larger(result, limit):
            raise InvalidResult(f"the result is larger than output_bytes allows ({limit})")
        if self._output is None:
            return
        if structured is UNSET:
            raise InvalidResult("the output_schema promises structured content, and there is none")
        if isinstance(structured, RawJSON):
            structured = structured.read()
        if not self._output.is_valid(structured):
            problems = "; ".join(map(str, self._output.problems(structured)))
            raise InvalidResult(
                clip(f"the structured content breaks the output_schema: {problems}")
            )

    def check_request(self, request: InputRequest) -> None:
        """
        Check the size of each part of what a tool asks.

        Raises:
            InvalidResult: one is over `request_bytes`; says which.
        """
        if name := request.larger_part(self.limits.request_bytes):
            raise InvalidResult(f"the {name} of the request is larger than request_bytes allows")

    def _resumed(self, first: Invocation, continuation: Continuation) -> Invocation:
        """Return an invocation that goes on with an answer, if it is of this very call."""
        if type(continuation) is not Continuation:
            raise InvalidValue("a continuation is what `request.continuation(answer)` returns")
        if continuation.is_larger(self.limits.request_bytes):
            raise _refused("too_large", "request_bytes", "the answer is larger than allowed")
        posed = continuation.request.posed
        if posed is not None and (stray := self._stray(first, posed)):
            raise _unresumed("", "identity", stray)
        if self._resume is not None:
            done = contain(self._resume, continuation)
            if type(done) is Broke:
                if isinstance(done.error, InvalidCall):
                    raise done.error
                raise _unresumed("", "state", "the tool cannot read it") from done.error
        return _new(Invocation, (*first[:5], continuation))

    def _stray(self, first: Invocation, posed: Posed) -> str:
        """Say why what answers one call does not belong to this one; nothing if it does."""
        if posed.call_id != first[1].id:
            return "it answers what another call asked"
        if posed.fingerprint != self.fingerprint:
            return "it answers what another tool asked, or this one before it was changed"
        if posed.digest != first.digest:
            return "the arguments are not those with which the call asked"
        return ""

    def read_again(self, text: str) -> dict[str, object]:
        """Return the arguments of an invocation's text once more, detached and restored."""
        arguments = self._read(text)
        return arguments if self._restore is None else self._restore(arguments)

    def _typed(self, arguments: dict[str, object]) -> tuple[object, tuple[Repair, ...]]:
        """Return the typed value and what was left out of it, or raise what the validator said."""
        made: tuple[Repair, ...] = ()
        if self._restore is not None:
            made = _made(("strict_null", path) for path in self._restore.left_out(arguments))
            arguments = self._restore(arguments)
        if self._decode is None:
            return arguments, made
        value = contain(self._decode, arguments)
        if type(value) is Broke:
            if isinstance(value.error, InvalidCall):
                raise value.error
            raise ValidatorCrash from value.error
        return value, made

    def _respelt(
        self, text: str, kind: CallKind
    ) -> tuple[str, dict[str, object], tuple[Repair, ...]] | None:
        """Return another text of the same arguments, what it says and the repair, if it has one."""
        found = None if self._mender is None else self._mender.text(text, kind)
        if found is None:
            return None
        name, respelt = found
        try:
            return respelt, self._read(respelt), (Repair(name),)
        except InvalidCall:
            return None

    def _repaired(
        self, arguments: dict[str, object]
    ) -> tuple[str, dict[str, object], tuple[Repair, ...]]:
        """
        Return a text that the schema accepts, what it says and the repairs, or refuse.

        The problems told are those that repairs have left: what is repaired anyway is nothing that
        a model has to mend, and would only hide behind "got string" what is wrong with the number.
        """
        found = None if self._mender is None else self._mender.arguments(arguments)
        if found is not None:
            # Through the reader once more, so that limits and integers are judged as if written so.
            text, repairs = found
            arguments = self._read(text)
            if self._is_valid(arguments):
                return text, arguments, _made(repairs)
        raise InvalidCall("invalid_arguments", self._validator.problems(arguments))

    def _read(self, text: str) -> dict[str, object]:
        value: Any
        try:
            value, wide = read(text, limit=self._argument_bytes, limits=self.limits)
        except InvalidJSON as error:
            problem = Problem(path=_inside(error.path), rule="json", expected=_place(error))
            raise InvalidCall(error.kind, (problem,)) from None
        if type(value) is not dict:
            raise _refused("invalid_arguments", "type", "expected a JSON object")
        arguments: dict[str, object] = value  # pyright: ignore[reportUnknownVariableType]  # JSON
        if wide:
            self._refuse_wide(arguments)
        return arguments

    def _refuse_wide(self, value: object) -> None:
        """Refuse integers outside 64 bits that the schema does not list (CONTRACT JSON-2)."""
        if self._listed is None:
            self._listed = frozenset(_listed_integers(self._definition.input_schema))
        found = (
            Problem(
                path=_inside(path), rule="integer", expected="expected an integer within 64 bits"
            )
            for path, integer in wide_integers(value)
            if integer not in self._listed
        )
        if problems := tuple(islice(found, _MOST_PROBLEMS)):
            raise InvalidCall("invalid_arguments", problems)


def _made(found: Iterable[tuple[str, str]]) -> tuple[Repair, ...]:
    return tuple(Repair(name, path) for name, path in found)


def _refused(kind: CallKind, rule: str, expected: str) -> InvalidCall:
    return InvalidCall(kind, (Problem(path="", rule=rule, expected=expected),))


def _unresumed(path: str, rule: str, why: str) -> InvalidCall:
    return InvalidCall("unavailable", (Problem(path=path, rule=rule, expected=why),))


def _inside(path: str) -> str:
    """Return a document's path as one inside the arguments: `$.a[0]` as `a[0]`."""
    return path.removeprefix("$").removeprefix(".")


def _place(error: InvalidJSON) -> str:
    at = f" at position {error.position}" if error.position is not None else ""
    return f"{error.rule}{at}"


def _compiled(
    definition: Definition, field: str, limits: Limits, *, later: bool = False
) -> Validator:
    try:
        return compile_schema(getattr(definition, field), limits=limits, later=later)
    except InvalidSchema as error:
        raise InvalidSchema(f"the {field} of tool `{definition.name}`: {error}") from error


def _listed_integers(schema: object) -> Iterator[int]:
    """Yield the integers that stand in some `const` or `enum` of a schema."""
    todo: list[tuple[object, str]] = [(schema, "schema")]
    while todo:
        node, place = todo.pop()
        if is_mapping(node):
            todo.extend((item, _place_below(place, key)) for key, item in node.items())
        elif is_sequence(node):
            todo.extend((item, place) for item in node)
        elif place == "listed" and isinstance(node, int):
            yield node


def _place_below(place: str, key: object) -> str:
    """Return what stands under `key`; below `properties` a key is a name, not a keyword."""
    if place == "listed":
        return place
    if place == "schema" and key in {"const", "enum"}:
        return "listed"
    return "names" if place == "schema" and key in _NAMING else "schema"


_MOST_PROBLEMS = 20
"""Problems that one refusal names, as `Validator.problems` does."""

_NAMING = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
