"""Whether a tool keeps the contract: what a registry, a guard and a wrapper rely on."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TypeVar, cast, runtime_checkable

import anyio
import anyio.lowlevel
import msgspec

from ferrule import (
    Binding,
    InvalidCall,
    Invocation,
    Tool,
    ToolCall,
    Traits,
    ValidatorCrash,
    Wrapper,
    bind,
    capability,
    unwrap,
)
from ferrule.errors import DeclarationError, FerruleError, InvalidSchema
from ferrule.schema import NotStrict, to_strict
from ferrule.schema import compile as compile_schema
from ferrule.testing._foreign import Broken, Given, asked, asked_in_thread
from ferrule.testing._samples import NoSample, is_array, is_object, made_from
from ferrule.testing._wrong import Wrong, wrong_arguments, wrong_texts

T = TypeVar("T")


class Finding(msgspec.Struct, frozen=True):
    """
    Something that was found of a tool.

    Attributes:
        check: Which check found it: one of "binding", "definition", "schema", "samples",
            "defaults", "calls", "traits", "wrapping", "closing".
        message: What it is, in a sentence.
    """

    check: str
    message: str

    def __str__(self) -> str:
        return f"{self.check}: {self.message}"


class BrokenTool(AssertionError):
    """
    A tool breaks the contract; the text has all that was found, one a line.

    Attributes:
        faults: What breaks the contract.
        findings: What is worth knowing and breaks nothing.
    """

    def __init__(self, faults: tuple[Finding, ...], findings: tuple[Finding, ...] = ()) -> None:
        super().__init__(faults, findings)
        self.faults = faults
        self.findings = findings

    def __str__(self) -> str:
        return "the tool breaks the contract\n" + "\n".join(map(str, self.faults))


def check_tool(
    tool: Tool,
    *,
    samples: Iterable[Mapping[str, object]] = (),
    close: bool = True,
    patience: float = 10.0,
) -> tuple[Finding, ...]:
    """
    Check that a tool keeps the contract; the tool itself is never run.

    Definition and traits read the same each time and are nobody else's; the schema compiles, and
    its defaults and examples are of it; calls that are wrong in one way each are refused; trait
    functions answer; a wrapper around the tool reads the same; closing twice does nothing more than
    closing once. Arguments to try are made from the schema.

    Returns what is worth knowing and breaks nothing, as that the schema has no strict form, or that
    no sample could be made; most often nothing.

    Args:
        tool: A tool, wrapped or not.
        samples: Arguments that the tool lets in, for one whose own rules no made ones satisfy.
        close: Whether to close the tool, which another test may still need.
        patience: Seconds that each property and function of the tool may take.

    Raises:
        BrokenTool: an `AssertionError` that has everything that is wrong.
        FerruleError: an event loop runs in this thread.
    """
    if _loop_runs():
        raise FerruleError("an event loop runs here: call check_tool from a plain `def` test")
    try:
        binding = bind(tool)
    except DeclarationError as error:
        raise BrokenTool((Finding("binding", str(error)),)) from error
    subject = _Subject(tool, binding, list(samples), patience)
    anyio.run(subject.check, close)
    if subject.faults:
        raise BrokenTool(tuple(subject.faults), tuple(subject.findings))
    return tuple(subject.findings)


def _loop_runs() -> bool:
    try:
        anyio.lowlevel.current_token()
    except RuntimeError:
        return False
    return True


@runtime_checkable
class _Closing(Protocol):
    async def aclose(self) -> None: ...


class _Subject:
    """A tool that is being checked, and what was found of it."""

    def __init__(
        self,
        tool: Tool,
        binding: Binding,
        given: list[Mapping[str, object]],
        patience: float,
    ) -> None:
        self.faults: list[Finding] = []
        self.findings: list[Finding] = []
        self._tool = tool
        self._binding = binding
        self._definition = binding.contract.definition
        self._schema = self._definition.input_schema
        self._given = given
        self._patience = patience
        self._accepts = compile_schema(self._schema)
        self._admitted: list[Invocation] = []

    async def check(self, close: bool) -> None:  # noqa: FBT001  # anyio.run passes by position
        """Make every check."""
        await self._check_definition()
        self._check_strict_form()
        self._check_samples()
        self._check_values()
        self._check_calls()
        await self._check_traits()
        await self._check_wrapping()
        if close:
            await self._check_closing()

    def _fault(self, check: str, message: str) -> None:
        self.faults.append(Finding(check, message))

    def _note(self, check: str, message: str) -> None:
        self.findings.append(Finding(check, message))

    # ---- what it says of itself ----------------------------------------------------------------

    async def _check_definition(self) -> None:
        """Read the definition again, change what was read, and read once more."""
        first = await self._read(lambda: self._tool.definition, "definition")
        second = await self._read(lambda: self._tool.definition, "definition")
        if first is None or second is None:
            return
        before = second.to_json()
        if not first.to_json() == before == self._definition.to_json():
            self._fault(
                "definition", "it reads differently each time, so that its digest does not stay"
            )
            return
        with _marked([first.input_schema, first.output_schema]):
            third = await self._read(lambda: self._tool.definition, "definition")
            shared = third is not None and third.to_json() != before
        if shared:
            self._fault(
                "definition",
                "who changes what was read changes the tool; give a copy: definition.copy()",
            )

    async def _read(self, fact: Callable[[], T], check: str) -> T | None:
        found = await asked_in_thread(fact, self._patience)
        if isinstance(found, Given):
            return found.answer
        self._fault(check, f"it cannot be read a second time: {found}")
        return None

    def _check_strict_form(self) -> None:
        found = to_strict(self._schema)
        if isinstance(found, NotStrict):
            self._note("schema", f"it has no strict form: {found}")

    # ---- what it lets in -----------------------------------------------------------------------

    def _check_samples(self) -> None:
        """Find arguments that the tool lets in: those that were given, and those made."""
        for place, sample in enumerate(self._given):
            refusal = self._refusal(sample, f"samples[{place}]")
            if refusal is not None:
                self._fault("samples", f"samples[{place}] is refused: {refusal}")
        reasons: list[object] = []
        for made in made_from(self._schema):
            if isinstance(made, NoSample):
                reasons.append(made)
            elif (refusal := self._refusal(made, "sample arguments")) is not None:
                reasons.append(refusal)
        if not self._admitted:
            reason = reasons[0] if reasons else "its schema is of no object"
            give = "give some: check_tool(tool, samples=[{…}])"
            self._note("samples", f"no sample arguments could be made: {reason}; {give}")

    def _refusal(self, sample: Mapping[str, object], what: str) -> InvalidCall | None:
        """Keep a sample that the tool lets in, or return why it does not."""
        name = self._definition.name
        try:
            self._admitted.append(self._binding.contract.admit(ToolCall.of(name, sample)))
        except ValidatorCrash as crash:
            self._fault("calls", f"its validator broke on {what}: {Broken(crash.__cause__)}")
        except InvalidCall as refusal:
            return refusal
        return None

    def _check_values(self) -> None:
        """Put every default and example of the schema to the part of it that names them."""
        for path, node in _nodes(self._schema, ""):
            examples = node.get("examples")
            named = [("default", node["default"])] if "default" in node else []
            named += [("example", value) for value in examples] if is_array(examples) else []
            if not named:
                continue
            part = {word: self._schema[word] for word in _SHARED if word in self._schema}
            try:
                accepts = compile_schema({**part, **node})
            except InvalidSchema:
                where = path or "the arguments"
                self._note("defaults", f"those of {where} cannot be checked apart from the schema")
                continue
            for what, value in named:
                for problem in accepts.problems(value):
                    self._fault(
                        "defaults", f"{path or 'the arguments'}: the {what} is refused: {problem}"
                    )

    def _check_calls(self) -> None:
        """Have each wrong call refused."""
        sample = self._admitted[-1].arguments if self._admitted else {}
        wrong = [*wrong_texts(sample)]
        if self._admitted:
            wrong += wrong_arguments(sample, self._schema, self._accepts)
        for one in wrong:
            if self._lets_in(one):
                self._fault("calls", f"a call with {one.what} is let in")

    def _lets_in(self, wrong: Wrong) -> bool:
        call = ToolCall(id="wrong", name=self._definition.name, arguments=wrong.text)
        try:
            self._binding.contract.admit(call)
        except InvalidCall:
            return False
        return True

    # ---- what a harness relies on --------------------------------------------------------------

    async def _check_traits(self) -> None:
        """Read the traits again, and ask its trait functions about each sample, twice."""
        again = await self._read(lambda: self._tool.traits, "traits")
        traits = self._binding.traits
        if again is not None and _stated(again) != _stated(traits):
            self._fault("traits", "they read differently each time")
        if traits.is_settled:
            return
        if not self._admitted:
            self._note(
                "traits", "its trait functions were not asked: there are no sample arguments"
            )
        for invocation in self._admitted:
            await self._ask_traits(traits, invocation)

    async def _ask_traits(self, traits: Traits, invocation: Invocation) -> None:
        def ask() -> Traits:
            return traits.settled(lambda: invocation.arguments)

        answers = [await asked_in_thread(ask, self._patience) for _ in range(2)]
        broken = next((answer for answer in answers if isinstance(answer, Broken)), None)
        if broken is not None:
            names = sorted(invocation.arguments)
            where = f"sample arguments with {', '.join(names)}" if names else "no arguments"
            self._fault("traits", f"a trait function broke on {where}: {broken}")
        elif answers[0] != answers[1]:
            self._fault("traits", "a trait function answers differently for the same arguments")

    async def _check_wrapping(self) -> None:
        """Put a wrapper around it, which must read the same and let in the same."""
        inner = unwrap(self._tool)
        if inner is not None and callable(self._tool):
            self._fault("wrapping", "a wrapper is not callable as a function; take `__call__` away")
        hidden = [] if inner is None else _differing(inner.traits, self._binding.traits)
        if hidden:
            self._note("wrapping", f"it shows other traits than what it wraps: {', '.join(hidden)}")
        again = await asked_in_thread(lambda: bind(Wrapper(self._tool)), self._patience)
        if isinstance(again, Broken):
            self._fault("wrapping", f"it cannot be bound a second time: {again}")
            return
        wrapped = again.answer
        if wrapped.contract.fingerprint != self._binding.contract.fingerprint:
            self._fault("wrapping", "a wrapper around it has another fingerprint")
        for invocation in self._admitted:
            try:
                wrapped.contract.admit(invocation.call)
            except InvalidCall as error:
                self._fault("wrapping", f"a wrapper around it refuses a sample: {error}")

    async def _check_closing(self) -> None:
        owner = capability(self._tool, _Closing)
        if owner is None:
            return
        closed = await asked(owner.aclose, self._patience)
        if isinstance(closed, Broken):
            self._fault("closing", f"it does not close: {closed}")
            return
        again = await asked(owner.aclose, self._patience)
        if isinstance(again, Broken):
            self._fault("closing", f"closing it a second time breaks: {again}")


# ---- reading schemas and traits ------------------------------------------------------------------

_MARK = "x-ferrule-check"


@contextmanager
def _marked(document: object) -> Generator[None]:
    """Change every object of a document for a while."""
    objects = [node for node in _objects(document) if isinstance(node, dict)]
    for node in objects:
        node[_MARK] = True
    try:
        yield
    finally:
        for node in objects:
            node.pop(_MARK, None)


def _objects(value: object) -> Iterator[Mapping[str, object]]:
    if is_object(value):
        yield value
    for part in value.values() if is_object(value) else value if is_array(value) else ():
        yield from _objects(part)


_SHARED = ("$schema", "$defs", "definitions")
"""What a part of a schema takes along, so that its references still lead somewhere."""

_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SINGLE = ("items", "additionalProperties", "contains", "propertyNames", "if", "then", "else")
_SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems", "items")


def _nodes(schema: object, path: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the schemas of a document, each with where it speaks of; values are no schemas."""
    if not is_object(schema):
        return
    yield path, schema
    for word in _NAMED:
        parts = schema.get(word)
        for name, part in parts.items() if is_object(parts) else ():
            yield from _nodes(part, f"{path}.{name}" if path else name)
    for word in _SINGLE:
        yield from _nodes(schema.get(word), f"{path}[]" if word == "items" else path)
    for word in _SEVERAL:
        parts = schema.get(word)
        for part in parts if is_array(parts) else ():
            yield from _nodes(part, path)


def _stated(traits: Traits) -> dict[str, object]:
    """Return traits by name; of a function only that it is one, as it may be made anew."""
    stated = {name: cast("object", getattr(traits, name)) for name in traits.__struct_fields__}
    return {name: "a function" if callable(value) else value for name, value in stated.items()}


def _differing(one: Traits, other: Traits) -> list[str]:
    stated = _stated(other)
    return [name for name, value in _stated(one).items() if value != stated[name]]
