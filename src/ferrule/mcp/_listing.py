"""
What a server lists: every page, bounded; and of each tool whether it can be used, and why not.

One bad tool costs itself and no other: it is put in quarantine, under its name, with the reason.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping

import anyio
import msgspec
from mcp.shared.inbound import find_invalid_x_mcp_header

from ferrule import (
    Binding,
    Context,
    Continuation,
    DeclarationError,
    Definition,
    FerruleError,
    InputRequest,
    InvalidCall,
    InvalidDefinition,
    InvalidTool,
    InvalidValue,
    Invocation,
    Problem,
    Result,
    TraitFields,
    Traits,
    bind,
)
from ferrule.helpers import one_line
from ferrule.mcp._from_mcp import definition_of, traits_of
from ferrule.mcp._shapes import Wire, is_list, is_object, object_of

PAGES, TOOLS, SECONDS = 1_000, 10_000, 60.0
"""Where a listing is taken for one that does not end."""

Page = Callable[[str | None], Awaitable[Wire]]
Run = Callable[["Offered", dict[str, object], Context], Awaitable[Result]]


class Unlisted(FerruleError):
    """A server's tools cannot be had; the sentence says why."""


class _QuarantinedFacts(msgspec.Struct, frozen=True, kw_only=True):
    origin: str
    reason: str


class Quarantined(_QuarantinedFacts, frozen=True):
    """
    A tool that a server lists and that cannot be used.

    Attributes:
        name: As the server has it; `tools[3]` where it has none.
        origin: Which server.
        reason: What is wrong with it, for people.
    """

    name: str


class RemoteTool:
    """
    A tool that runs at a server.

    Attributes:
        offered: What is known of it; set once, when it is made.
    """

    offered: "Offered"

    def __init__(self, definition: Definition, traits: Traits, run: Run) -> None:
        self._definition = definition
        self._traits = traits
        self._run = run

    def __repr__(self) -> str:
        return f"<RemoteTool {self._definition.name!r}>"

    @property
    def definition(self) -> Definition:
        """What a model reads; a copy that nobody else holds."""
        return self._definition.copy()

    @property
    def traits(self) -> Traits:
        """What a harness reads."""
        return self._traits

    def resumer(self) -> Callable[[Continuation], None]:
        """Return what refuses every answer: a remote tool asks while it runs."""
        return _no_answers

    async def call(self, invocation: Invocation, context: Context, /) -> Result | InputRequest:
        """Run one admitted call at the server."""
        return await self._run(self.offered, invocation.arguments, context)


def _no_answers(_: Continuation) -> None:
    expected = "a remote tool has nothing that goes on with an answer"
    raise InvalidCall("unavailable", (Problem(path="", rule="step", expected=expected),))


class Offered(msgspec.Struct, frozen=True, eq=False):
    """
    A tool that a server lists and that can be used.

    Attributes:
        name: What its server calls it.
        told: Its definition as it came, to see whether another listing says the same.
        tool: The tool as a registry takes it.
        binding: The same, bound for itself: what its results are checked with.
    """

    name: str
    told: Wire
    tool: RemoteTool
    binding: Binding


class Snapshot(msgspec.Struct, frozen=True):
    """One listing, sorted out."""

    offered: Mapping[str, Offered] = {}
    quarantined: tuple[Quarantined, ...] = ()


class Naming(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a server's tools are called here, and what the host says of them.

    Attributes:
        server: The server's name in its file, or nothing.
        origin: Where its tools come from.
        prefix: What stands before each name, or nothing.
        rename: Names of ours by theirs, also as `server/name`.
        traits: What the host says, by either name.
        timeout: Seconds a call may take, unless the host says otherwise of the tool.
        tasks: Whether a call may be answered with a task.
    """

    origin: str
    server: str = ""
    prefix: str | None = None
    rename: Mapping[str, str] = {}
    traits: Mapping[str, TraitFields | Traits] = {}
    timeout: float | None = None
    tasks: bool = False

    def ours(self, name: str) -> str:
        """Return what a tool is called here."""
        renamed = self.rename.get(f"{self.server}/{name}", self.rename.get(name))
        if renamed is not None:
            return renamed
        prefix = None if self.prefix is None else self.prefix.replace("{server}", self.server)
        return f"{prefix}__{name}" if prefix else name

    def said_of(self, name: str) -> TraitFields | Traits | None:
        """Return what the host says of a tool, under whichever of its names."""
        for spelling in (self.ours(name), f"{self.server}/{name}", name):
            if spelling in self.traits:
                return self.traits[spelling]
        return None


async def listed(page: Page) -> list[object]:
    """
    Return every tool that a server lists, page for page.

    Raises:
        Unlisted: it does not come to an end, or is no listing.
    """
    found: list[object] = []
    cursor: str | None = None
    seen: set[str] = set()
    with anyio.move_on_after(SECONDS):
        for _ in range(PAGES):
            answer = await page(cursor)
            tools, cursor = answer.get("tools"), answer.get("nextCursor")
            if not is_list(tools):
                raise Unlisted("its list of tools is no list")
            found += tools
            if cursor is None:
                return found
            if not isinstance(cursor, str):
                raise Unlisted("the cursor of its list is no text")
            if cursor in seen:
                raise Unlisted("its list repeats a cursor, and so has no end")
            if len(found) > TOOLS:
                raise Unlisted(f"it lists more than {TOOLS} tools")
            seen.add(cursor)
        raise Unlisted(f"its list has more than {PAGES} pages")
    raise Unlisted(f"its list took longer than {SECONDS:g} s")


def sorted_out(
    found: list[object], naming: Naming, run: Run, *, before: Snapshot, modern: bool
) -> Snapshot:
    """
    Return what of a listing can be used, and what cannot with the reason.

    A tool that is listed as it was `before` stays the very same.
    """
    offered: dict[str, Offered] = {}
    bad: list[Quarantined] = []
    taken: dict[str, str] = {}
    for index, told in enumerate(found):
        name = _name(told) or f"tools[{index}]"
        try:
            one = _offered(told, name, naming, run, before=before, modern=modern)
            _check_single(one, offered, taken)
        except (DeclarationError, InvalidValue) as error:
            reason = one_line(str(error), 400)
            bad.append(Quarantined(one_line(name, 128), origin=naming.origin, reason=reason))
        else:
            offered[name] = one
            taken[one.tool.definition.name] = name
    return Snapshot(offered, tuple(bad))


def _check_single(one: Offered, offered: Mapping[str, Offered], taken: Mapping[str, str]) -> None:
    """Refuse a second tool of one name: which of the two a call reaches would be luck."""
    if one.name in offered:
        raise InvalidTool("it is listed twice; the first one stands")
    other = taken.get(one.tool.definition.name)
    if other is not None:
        raise InvalidTool(
            f"`{one_line(other, 100)}` is called so already; give one another name with `rename`"
        )


def _offered(
    told: object, name: str, naming: Naming, run: Run, *, before: Snapshot, modern: bool
) -> Offered:
    if not is_object(told) or not _name(told):
        raise InvalidTool("it has no name")
    if (same := before.offered.get(name)) is not None and same.told == told:
        return same
    _check_name(naming.ours(name))
    if reason := _task_fault(told, modern=modern, taken=naming.tasks):
        raise InvalidTool(reason)
    definition = definition_of(told, name=naming.ours(name))
    if modern and (reason := _header_fault(told)):
        raise InvalidTool(reason)
    traits = traits_of(told, naming.said_of(name), naming.timeout)
    tool = RemoteTool(definition, traits, run)
    tool.offered = Offered(name, told, tool, bind(tool, origin=naming.origin))
    return tool.offered


def _check_name(name: str) -> None:
    """Refuse a name that no tool may have; here it is not the server's to give another."""
    try:
        Definition(name)
    except InvalidDefinition as error:
        what = str(error).rpartition(";")[0]
        raise InvalidTool(f"{what}; give it another with `rename`") from None


def _task_fault(wire: Wire, *, modern: bool, taken: bool) -> str | None:
    """Say why a tool cannot be called whose calls can only be tasks."""
    if object_of(wire.get("execution")).get("taskSupport") != "required" or (modern and taken):
        return None
    said = "it can only be called as a task"
    return f"{said}: say `tasks=True`" if modern else f"{said} of 2025-11-25, not spoken here"


def _header_fault(wire: Wire) -> str | None:
    """Say what is wrong with the headers that a tool wants of its arguments."""
    schema = wire.get("inputSchema")
    if not is_object(schema):
        return None
    reason = find_invalid_x_mcp_header(schema)
    return None if reason is None else f"its x-mcp-header: {reason}"


def _name(told: object) -> str | None:
    name = told.get("name") if is_object(told) else None
    return name if isinstance(name, str) and name else None


def usable(found: list[object]) -> Iterator[Wire]:
    """Yield what of a listing has a name and a schema that is an object."""
    for told in found:
        if is_object(told) and _name(told) and is_object(told.get("inputSchema")):
            yield told
