"""
Nothing but `admit` and `authorize` makes an `Invocation` or a `Permit` that a binding will run.

Each row is one way to make a value without them, by what Python and msgspec offer everyone. A way
may refuse by itself, or give something; what it gives must not run with other arguments.
"""

import copy
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import TypeVar, cast

import msgspec
import pytest

from ferrule import (
    Binding,
    Context,
    Definition,
    ForeignInvocation,
    InvalidCall,
    Invocation,
    Permit,
    RawTool,
    ToolCall,
    bind,
)
from support import permitted

T = TypeVar("T")

pytestmark = pytest.mark.anyio

HARMLESS = ToolCall.of("wipe", {"path": "/tmp/a"}, id="c1")
EVIL_TEXT = '{"path":"/"}'
EVIL_CALL = ToolCall(id="c1", name="wipe", arguments=EVIL_TEXT)
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "pattern": "^/tmp/"}},
    "required": ["path"],
}

Forge = Callable[[Binding, Invocation], object]
ForgePermit = Callable[[Permit], object]


class Wiped:
    """A binding of a tool that must not run, and what it ran with all the same."""

    def __init__(self) -> None:
        self.paths: list[object] = []
        self.binding = bind(RawTool(Definition("wipe", input_schema=SCHEMA), self._wipe))

    async def _wipe(self, arguments: dict[str, object], _: Context) -> None:
        self.paths.append(arguments["path"])

    def admitted(self) -> Invocation:
        """Return an invocation that was made as it should be."""
        return self.binding.contract.admit(HARMLESS)


def forged_parts(binding: Binding) -> tuple[object, ...]:
    """Return what an invocation of the evil call would hold."""
    return (binding.contract, EVIL_CALL, EVIL_TEXT, {"path": "/"})


def lookalike(binding: Binding, _: Invocation) -> object:
    """Return an object with every attribute that an invocation has."""
    return SimpleNamespace(
        call=EVIL_CALL,
        text=EVIL_TEXT,
        value={"path": "/"},
        arguments={"path": "/"},
        digest="sha256:00",
        continuation=None,
    )


class Heir(Invocation):
    """An invocation that says something else of its arguments."""

    __slots__ = ()

    @property
    def arguments(self) -> dict[str, object]:
        """Lie."""
        return {"path": "/"}


def changed(thing: object, **fields: object) -> object:
    """Return what msgspec makes of a value with other fields."""
    return msgspec.structs.replace(cast("msgspec.Struct", thing), **fields)


def built(kind: type[object], form: object) -> object:
    """Call a class that msgspec does not know, as its hooks often do."""
    return cast("Callable[[object], object]", kind)(form)


def converted(form: object, cls: type[T]) -> T:
    """Return what msgspec makes of a value from elsewhere."""
    return msgspec.convert(form, cls, dec_hook=built, from_attributes=True)


def unset(cls: type[object]) -> object:
    """Return an object of a class on which `__init__` never ran."""
    return cls.__new__(cls)


def with_attribute(thing: object, name: str, value: object) -> object:
    """Return a value after one attribute of it was set."""
    setattr(thing, name, value)
    return thing


FORGERIES: dict[str, Forge] = {
    "constructor": lambda b, _: Invocation(*forged_parts(b)),
    "constructor from parts": lambda b, _: Invocation(forged_parts(b)),
    "constructor by keyword": lambda b, _: Invocation(contract=b.contract, call=EVIL_CALL),
    "type.__call__": lambda b, _: type.__call__(Invocation, forged_parts(b)),
    "StructMeta.__call__": lambda b, _: msgspec.StructMeta.__call__(Invocation, forged_parts(b)),
    "object.__new__": lambda _, __: object.__new__(Invocation),
    "Invocation.__new__": lambda _, __: unset(Invocation),
    "heir": lambda b, _: Heir(forged_parts(b)),
    "heir made by its base": lambda b, _: tuple.__new__(Heir, forged_parts(b)),
    "its parts": lambda b, _: forged_parts(b),
    "its parts, joined": lambda b, i: (*tuple(i)[:1], *forged_parts(b)[1:]),
    "pickle": lambda _, i: pickle.loads(pickle.dumps(i)),
    "old pickle": lambda _, i: pickle.loads(pickle.dumps(i, protocol=0)),
    "reduce": lambda _, i: i.__reduce_ex__(2),
    "convert of a list": lambda b, _: converted(list(forged_parts(b)), Invocation),
    "convert of a tuple": lambda b, _: converted(forged_parts(b), Invocation),
    "convert of an object": lambda _, __: converted({"call": EVIL_CALL, "text": "{}"}, Invocation),
    "convert of a lookalike": lambda b, i: converted(lookalike(b, i), Invocation),
    "convert of itself": lambda _, i: converted([i], list[Heir])[0],
    "decode": lambda _, __: msgspec.json.decode(b"[null,null,null,null]", type=Invocation),
    "structs.replace": lambda _, i: changed(i, text=EVIL_TEXT),
    "setattr": lambda _, i: with_attribute(i, "text", EVIL_TEXT),
    "setattr of its method": lambda b, i: with_attribute(i, "arguments", {"path": "/"}),
    "object.__setattr__": lambda _, i: object.__setattr__(i, "text", EVIL_TEXT),
    "lookalike": lookalike,
    "the call": lambda _, __: EVIL_CALL,
    "nothing": lambda _, __: None,
}


@pytest.mark.parametrize("way", FORGERIES)
async def test_no_other_way_makes_an_invocation_that_runs(way: str) -> None:
    """ADM-4, STYLE 12: refused when it is made, or when it is to run."""
    wiped = Wiped()
    binding = wiped.binding
    try:
        forged = FORGERIES[way](binding, wiped.admitted())
    except (TypeError, AttributeError, msgspec.ValidationError):
        forged = None

    with pytest.raises(ForeignInvocation):
        await binding.authorize(cast("Invocation", forged), Context.of(HARMLESS))
    with pytest.raises(ForeignInvocation):
        await binding.call(cast("Invocation", forged))

    assert wiped.paths == []


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
async def test_a_copy_of_an_invocation_is_the_same_admitted_call(
    copied: Callable[[Invocation], Invocation],
) -> None:
    """ADM-4: a copy says nothing that was not admitted, and says it unchanged."""
    wiped = Wiped()
    invocation = copied(wiped.admitted())

    assert (invocation.call, invocation.arguments) == (HARMLESS, {"path": "/tmp/a"})
    await wiped.binding.call(invocation)
    assert wiped.paths == ["/tmp/a"]


async def test_what_an_invocation_shows_cannot_be_turned_against_it() -> None:
    """ADM-4: neither its plain arguments nor the arguments that were given change what runs."""
    wiped = Wiped()
    invocation = wiped.admitted()
    invocation.arguments["path"] = "/"
    cast("dict[str, object]", invocation.value)["path"] = "/"

    await wiped.binding.call(invocation)

    assert wiped.paths == ["/tmp/a"]


async def test_an_invocation_of_an_equal_contract_is_foreign() -> None:
    """ADM-4, scope 17: made by another binding of the same tool, by admission itself."""
    wiped = Wiped()
    other = bind(wiped.binding.tool)

    with pytest.raises(ForeignInvocation, match="admit the call with this binding's contract"):
        await wiped.binding.call(other.contract.admit(HARMLESS))

    assert wiped.paths == []


async def test_admission_itself_refuses_the_evil_call() -> None:
    """ADM-2: what the rows above try to smuggle past the schema does not pass it."""
    with pytest.raises(InvalidCall, match="path"):
        Wiped().binding.contract.admit(EVIL_CALL)


# ---- permits -------------------------------------------------------------------------------------

PERMITS: dict[str, ForgePermit] = {
    "constructor": lambda p: Permit(*p),
    "constructor from parts": lambda p: Permit(tuple(p)),
    "type.__call__": lambda p: type.__call__(Permit, tuple(p)),
    "StructMeta.__call__": lambda p: msgspec.StructMeta.__call__(Permit, tuple(p)),
    "object.__new__": lambda _: object.__new__(Permit),
    "Permit.__new__": lambda _: unset(Permit),
    "its parts": tuple,
    "pickle": lambda p: pickle.loads(pickle.dumps(p)),
    "convert of a tuple": lambda p: converted(tuple(p), Permit),
    "convert of a list": lambda p: converted(list(p), Permit),
    "structs.replace": lambda p: changed(p, leg=1),
    "setattr": lambda p: with_attribute(p, "leg", 1),
    "lookalike": lambda p: SimpleNamespace(binding=p[0], invocation=p[1], leg=p[2]),
    "true": lambda _: True,
}


@pytest.mark.parametrize("way", PERMITS)
async def test_no_other_way_makes_a_permit_that_is_taken(way: str) -> None:
    """AUT-6: even one that says word by word what a genuine one says."""
    wiped = Wiped()
    invocation = wiped.admitted()
    context = Context.of(invocation.call)
    genuine = await permitted(wiped.binding, invocation, context)
    try:
        forged = PERMITS[way](genuine)
    except (TypeError, AttributeError, msgspec.ValidationError):
        forged = ()

    with pytest.raises(ForeignInvocation, match="permit is not for this leg"):
        await wiped.binding.call(invocation, context, cast("Permit", forged))

    assert wiped.paths == []


@pytest.mark.parametrize("other", ["leg", "invocation", "binding"])
async def test_a_permit_serves_its_leg_of_its_invocation_alone(other: str) -> None:
    """AUT-6: another leg, another invocation of the same call, another binding."""
    wiped = Wiped()
    binding, invocation = wiped.binding, wiped.admitted()
    context = Context.of(invocation.call)
    permit = await permitted(binding, invocation, context)
    match other:
        case "leg":
            context = Context.of(invocation.call, number=2)
        case "invocation":
            invocation = wiped.admitted()
        case _:
            binding = bind(binding.tool)
            invocation = binding.contract.admit(HARMLESS)

    with pytest.raises(ForeignInvocation):
        await binding.call(invocation, context, permit)

    assert wiped.paths == []


async def test_a_genuine_permit_is_taken() -> None:
    """AUT-6: so the refusals above are not for want of a way in."""
    wiped = Wiped()
    invocation = wiped.admitted()
    context = Context.of(invocation.call)

    permit = await permitted(wiped.binding, invocation, context)
    await wiped.binding.call(invocation, context, permit)

    assert wiped.paths == ["/tmp/a"]
