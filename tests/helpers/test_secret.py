"""A value that is used and never shown."""

import copy
import json
import logging
import pickle
import pprint
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

import msgspec
import orjson
import pytest
from pydantic import BaseModel, TypeAdapter

import ferrule
from ferrule import (
    Completed,
    Context,
    DeclarationError,
    Executor,
    Failure,
    Inject,
    InputRequest,
    InvalidResult,
    Invocation,
    Record,
    Registry,
    Rejected,
    Result,
    Text,
    ToolCall,
    Unknown,
    bind,
    canonical,
    decode,
    digest,
    tool,
)
from ferrule.helpers import Secret
from ferrule.schema import schema_for
from ferrule.testing import MemoryRecorder

PLANTED = "planted-XYZ"
SECRET = Secret(PLANTED)


@dataclass(frozen=True)
class Login:
    """A class with a secret in it."""

    password: Secret[str]
    user: str = "u"


@dataclass(frozen=True)
class Pin:
    """Another class for a union."""

    pin: Secret[int]


class Struct(msgspec.Struct, frozen=True):
    """A struct with a secret in it."""

    password: Secret[str]


class Model(BaseModel):
    """A pydantic model with a secret in it."""

    password: Secret[str]


SHOWN: list[Callable[[Any], str]] = [
    str,
    repr,
    ascii,
    "{}".format,
    "{0!r:>40}".format,
    lambda value: f"{value} {value!r}",
    lambda value: "%s %r" % (value, value),  # noqa: UP031  # as loggers do
    pprint.pformat,
    lambda value: str(logging.makeLogRecord({"msg": "%s", "args": (value,)}).getMessage()),
]


HOLDERS = [SECRET, [SECRET], {"k": SECRET}, Login(SECRET), Struct(SECRET), Model(password=PLANTED)]  # type: ignore[arg-type]  # pydantic makes the secret


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: type(holder).__name__)
@pytest.mark.parametrize("show", SHOWN)
def test_no_text_shows_a_secret(holder: object, show: Callable[[object], str]) -> None:
    """SE-10: in none of the ways in which a value gets into a text."""
    assert PLANTED not in show(holder)


def test_who_lists_what_a_secret_has_finds_no_value() -> None:
    """SE-10: as reporters of errors do; a width or a precision shows no more either."""
    names = [name for name in dir(SECRET) if name != "__abstractmethods__"]
    assert PLANTED not in str([(name, getattr(SECRET, name)) for name in names])
    assert f"{SECRET:>40} {SECRET:s}" == "Secret(***) Secret(***)"


def test_the_door_and_the_helpers_give_the_same_secret() -> None:
    """API: `ferrule.helpers.Secret`; rule 2 has the door know it too."""
    assert ferrule.Secret is Secret
    assert SECRET.reveal() == PLANTED
    assert str(SECRET) == "Secret(***)"


def test_a_secret_equals_another_of_the_same_value_alone() -> None:
    """SE-10: text and bytes are compared in constant time, and no text equals a secret."""
    assert Secret(PLANTED) == SECRET
    assert Secret("other") != SECRET
    assert PLANTED != SECRET
    assert Secret(PLANTED.encode()) != SECRET
    assert Secret(b"text a") != Secret("a")
    assert Secret(b"a") == Secret(b"a")
    assert Secret({"a": 1}) == Secret({"a": 1})
    assert Secret("ä\ud800") == Secret("ä\ud800")
    assert {SECRET, Secret(PLANTED)} == {SECRET}
    assert hash(SECRET) != hash(PLANTED)
    assert hash(Secret(5)) != hash(5)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Secret([]))


def test_a_secret_does_not_change_and_a_copy_is_itself() -> None:
    """STYLE 11: also inside another value."""
    with pytest.raises(AttributeError, match="does not change"):
        SECRET.value = "x"
    assert copy.copy(SECRET) is SECRET
    assert copy.deepcopy([SECRET])[0] is SECRET
    assert asdict(Login(SECRET))["password"] is SECRET
    assert replace(Login(SECRET), user="v").password is SECRET
    assert Model(password=PLANTED).model_dump()["password"] == SECRET  # type: ignore[arg-type]  # as above
    assert not hasattr(SECRET, "__dict__")


ENCODERS: list[Callable[[Any], object]] = [
    pickle.dumps,
    json.dumps,
    lambda value: json.dumps(value, default=vars),
    orjson.dumps,
    msgspec.json.encode,
    msgspec.to_builtins,
    TypeAdapter(Any).dump_json,
    vars,
    canonical,
    digest,
    lambda value: Record("a:b", data={"k": [value]}),
    Result.of,
    lambda value: Result.of({"k": [value]}),
    lambda value: Result(structured_content=value),
    lambda value: ToolCall.of("f", {"k": value}),
    Text,
    Failure,
    lambda value: InputRequest("m", schema={}, state={"k": value}),
]


@pytest.mark.parametrize("encode", ENCODERS)
def test_nothing_writes_a_secret(encode: Callable[[object], object]) -> None:
    """SE-10: refused by each with a sentence that does not have it."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  # each has its own
        encode(SECRET)
    assert PLANTED not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("holder", [SECRET, {"a": {"password": SECRET}}, Login(SECRET)])
def test_what_would_write_a_secret_says_what_to_write_instead(holder: object) -> None:
    """STYLE 24: where it is, and that `.reveal()` is how it would be known."""
    for write in (Result.of, lambda value: ToolCall.of("f", value)):
        with pytest.raises(InvalidResult, match=r"is a Secret, .*`\.reveal\(\)`") as caught:
            write(holder)
        assert "password" in str(caught.value) or holder is SECRET
    with pytest.raises(TypeError, match=r"say so by `\.reveal\(\)`"):
        pickle.dumps(holder)


# ---- as a parameter ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "plain"),
    [
        (Secret[str], str),
        (Secret[int], int),
        (Secret[str] | None, str | None),
        (list[Secret[str]], list[str]),
        (dict[str, Secret[str]], dict[str, str]),
        (
            Secret[Annotated[str, msgspec.Meta(min_length=3)]],
            Annotated[str, msgspec.Meta(min_length=3)],
        ),
        (Secret[Literal["a", "b"]], Literal["a", "b"]),
        (Secret[dict[str, int]], dict[str, int]),
        (Secret[str | int] | None, str | int | None),
    ],
    ids=str,
)
def test_a_secret_has_the_schema_of_what_it_holds(hint: object, plain: object) -> None:
    """SE-10, FN-2: at every depth."""
    assert schema_for(hint) == schema_for(plain)


def taking(hint: object, seen: list[object]) -> Any:  # noqa: ANN401  # a tool whose types are made here
    """Return a tool with one parameter of a type."""

    async def login(x: object) -> str:
        seen.append(x)
        return f"{x}"

    login.__annotations__ = {"x": hint, "return": str}
    return tool(login)


ARRIVES: list[tuple[Any, object, object]] = [
    (Secret[str], PLANTED, SECRET),
    (Secret[int], 5, Secret(5)),
    (Secret[str] | None, PLANTED, SECRET),
    (Secret[str] | None, None, None),
    (Secret[str] | int, PLANTED, SECRET),
    (Secret[str | int] | None, PLANTED, SECRET),
    (Secret[Any] | None, PLANTED, SECRET),
    (list[Secret[str]], [PLANTED], [SECRET]),
    (set[Secret[str]], [PLANTED], {SECRET}),
    (dict[str, Secret[str]], {"a": PLANTED}, {"a": SECRET}),
    (Login, {"password": PLANTED}, Login(SECRET)),
    (Struct, {"password": PLANTED}, Struct(SECRET)),
    (Model, {"password": PLANTED}, Model(password=PLANTED)),  # type: ignore[arg-type]  # as above
    (list[Model], [{"password": PLANTED}], [Model(password=PLANTED)]),  # type: ignore[arg-type]  # as above
    (Login | Pin, {"password": PLANTED, "user": "v"}, Login(SECRET, "v")),
    (Secret[Login], {"password": PLANTED}, Secret(Login(SECRET))),
    (Secret[Model], {"password": PLANTED}, Secret(Model(password=PLANTED))),  # type: ignore[arg-type]  # as above
]


@pytest.mark.parametrize(("hint", "given", "arrives"), ARRIVES, ids=str)
def test_what_a_model_gives_arrives_as_a_secret(
    hint: object, given: object, arrives: object
) -> None:
    """SE-10: at every depth, made by msgspec or by pydantic."""
    seen: list[object] = []
    call = ToolCall.of("login", {"x": given})
    outcome = Executor([taking(hint, seen)]).run_sync([call])[0]
    assert isinstance(outcome, Completed), outcome.text
    assert seen == [arrives]
    assert PLANTED not in outcome.text


@pytest.mark.parametrize(
    "given", [[PLANTED], {PLANTED: PLANTED}, {"password": [PLANTED]}, {"pass": PLANTED}, PLANTED]
)
@pytest.mark.parametrize(
    "hint",
    [Secret[int], Secret[Literal["a"]], Login, Model, Struct, Secret[Model], list[Secret[int]]],
    ids=str,
)
def test_a_refusal_never_has_what_was_given_for_a_secret(hint: object, given: object) -> None:
    """SE-10, JSON-6: whatever is wrong with it; names that are not known are not secret."""
    given = {"password": 5, "x": given} if given == {PLANTED: PLANTED} else given
    outcome = Executor([taking(hint, [])]).run_sync([ToolCall.of("login", {"x": given})])[0]
    assert isinstance(outcome, Rejected)
    assert PLANTED not in outcome.text
    assert len(outcome.text) <= 1024


def test_an_invocation_shows_no_secret() -> None:
    """SE-10: what the validator made of the arguments is in reports of errors."""
    binding = bind(taking(Secret[str], []))
    invocation = binding.contract.admit(ToolCall.of("login", {"x": PLANTED}))
    assert isinstance(invocation, Invocation)
    assert PLANTED not in f"{invocation!r} {invocation.value!r}"
    assert invocation.arguments == {"x": PLANTED}, "a policy judges what the model gave"


def test_a_harness_gives_a_secret() -> None:
    """FN-5: hidden, as any value that is injected."""

    @tool
    async def push(token: Annotated[Secret[str], Inject("token")], branch: str) -> str:
        """Push."""
        return f"{branch} {token} {len(token.reveal())}"

    assert list(push.definition.input_schema["properties"]) == ["branch"]  # type: ignore[call-overload]  # a dict
    registry = Registry([push], inject={"token": SECRET})
    outcome = Executor(registry).run_sync([ToolCall.of("push", {"branch": "main"})])[0]
    assert outcome.text == f"main Secret(***) {len(PLANTED)}"


def test_a_default_is_in_no_schema() -> None:
    """SE-10: it would be read by the model."""

    def login(password: Secret[str] = SECRET, other: Secret[str] | None = None) -> str:
        """Log in."""
        return f"{password.reveal() == PLANTED} {other}"

    made = tool(login)
    assert PLANTED not in json.dumps(made.definition.to_json())
    assert Executor([made]).run_sync([ToolCall.of("login")])[0].text == "True None"


def test_decode_and_an_answer_take_secrets() -> None:
    """FN-2: a person may be asked for one; a state is kept, and never has one."""
    assert decode(PLANTED, Secret[str]) == SECRET

    @tool
    def login(user: str) -> str:
        """Log in."""
        return user

    @login.step
    def answered(state: str, answer: Secret[str]) -> str:
        """Go on."""
        return f"{state} {answer}"

    assert answered.answer_schema == {"type": "string"}
    with pytest.raises(DeclarationError, match="is kept as JSON, and a Secret never is"):

        @login.step
        def kept(state: Login, answer: bool) -> str:
            """Go on."""
            return f"{state} {answer}"


@pytest.mark.parametrize("hint", [Secret[str], list[Secret[str]], Login, Secret[str] | int, Model])
def test_a_tool_that_would_return_a_secret_is_refused(hint: object) -> None:
    """FN-1: at declaration, since it could never give a result."""

    def login() -> object:
        """Log in."""

    login.__annotations__["return"] = hint
    with pytest.raises(DeclarationError, match="what `login` returns: a Secret is never shown"):
        tool(login)


@pytest.mark.parametrize(
    ("hint", "sentence"),
    [
        (Secret, r"as in `Secret\[str\]`"),
        (Secret[Secret[str]], "not a secret"),
        (Secret[str] | str, "one value could be either"),
        (Secret[int] | str | int, "one value could be either"),
        (Secret[str] | Literal["a"], "one value could be either"),
        (Secret[Any] | str, "one value could be either"),
        (Secret[Literal["a"]] | str, "one value could be either"),
        (Secret[int | str] | float, "one value could be either"),
        (Secret[Login] | Pin, "one value could be either"),
        (Secret[list[str]] | list[int] | None, "one value could be either"),
        (dict[Secret[str], int], "the keys of an object"),
    ],
    ids=str,
)
def test_a_secret_that_could_be_none_is_refused_at_declaration(hint: object, sentence: str) -> None:
    """FN-1: what is declared a secret never arrives as a bare value."""
    with pytest.raises(DeclarationError, match=sentence):
        taking(hint, [])


async def leak_by_result(context: Context) -> object:
    """Return it in a structure."""
    return {"token": SECRET}


async def leak_by_record(context: Context) -> object:
    """Record it."""
    await context.record("login:token", {"token": SECRET})
    return "done"


async def leak_by_error(context: Context) -> object:
    """Raise an error about it."""
    raise RuntimeError("login failed", SECRET) from KeyError(SECRET)


@pytest.mark.parametrize("leak", [leak_by_result, leak_by_record, leak_by_error])
def test_a_tool_that_lets_a_secret_out_fails_and_nobody_reads_it(
    leak: Callable[[Context], object], caplog: pytest.LogCaptureFixture
) -> None:
    """SE-10, FAIL-5: neither the model nor a record nor the operator's log has it."""
    recorder = MemoryRecorder()
    call = ToolCall.of(leak.__name__)
    leak.__annotations__["return"] = Any
    outcome = Executor([tool(leak)], recorder=recorder).run_sync([call])[0]
    assert isinstance(outcome, Unknown)
    assert PLANTED not in f"{outcome.text} {outcome!r} {outcome.to_json()} {recorder.records}"
    assert PLANTED not in caplog.text
    assert "Secret" in caplog.text, "the operator finds what it was about"
