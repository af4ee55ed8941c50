"""
A registry that shows another one's tools as they are to be shown, now and after each change.

Theory. What is shown is made anew whenever the other registry tells of a change, in the thread that
made it. Two changes at once are put in one after the other by whoever came first: whoever comes
second only notes that there is more, and waits for nothing, since who makes a change may be waited
for by those who hear of it. What cannot be shown as it should is not shown at all: a tool of before
never stays in the place of one that could not be put there.

The other registry owns the tools. It is opened and closed with this one, and closes them once.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Self, TypeAlias

from ferrule import Binding, DeclarationError, DuplicateTool, Registry, Tool, Wrapper
from ferrule.helpers import one_line

logger = logging.getLogger("ferrule")

Wrap: TypeAlias = Callable[[Tool], Tool | None]


class Lent(Wrapper):
    """A tool that another registry owns and closes."""

    async def aclose(self) -> None:
        """Leave it open: that is its owner's business."""


class Following(Registry, ABC):
    """What another registry offers, each tool as `shown` has it."""

    def __init__(self, behind: Registry) -> None:
        self.behind = behind
        self._turn = threading.Lock()
        self._is_behind = False
        self._put: dict[str, Mapping[str, object]] = {}
        self._filled: frozenset[str] = frozenset()
        super().__init__(
            origin=behind.origin, inject=behind.inject, limits=behind.limits, grace=behind.grace
        )
        self._adopt()
        self._let_go = behind.when_changed(self.follow)
        self.follow()  # What changed between the two.

    @abstractmethod
    def shown(self, binding: Binding) -> Tool | None:
        """Return what stands in the place of a tool; `None` leaves it out."""

    def mark(self, binding: Binding) -> object:
        """Return what `shown` depends on: while it is equal, nothing is made anew."""
        return binding

    # ---- as any registry -------------------------------------------------------------------------

    def register(self, tools: Iterable[Tool], *, origin: str | None = None) -> None:
        """Add tools to the registry behind; what of them is shown is decided as ever."""
        if tools != []:  # As every registry begins, and the one behind has begun.
            self.behind.register(tools, origin=origin)

    def replace(self, origin: str, tools: Iterable[Tool]) -> None:
        """Put `tools` in the place of all that came from `origin`, in the registry behind."""
        self.behind.replace(origin, tools)

    def map(self, wrap: Wrap) -> Registry:
        """Return a registry of what `wrap` makes of each tool shown here, now and later."""
        return Mapped(self, wrap)

    async def __aenter__(self) -> Self:
        await self.behind.__aenter__()
        return self

    async def aclose(self) -> None:
        """
        Close the registry behind, and with it every tool and source; a second time does nothing.

        Raises:
            ExceptionGroup: what went wrong, naming the tools.
        """
        self._let_go()
        errors: list[Exception] = []
        for close in (super().aclose, self.behind.aclose):
            try:
                await close()
            except ExceptionGroup as group:
                errors += group.exceptions
        if errors:
            raise ExceptionGroup("some tools did not close", errors)

    # ---- following -------------------------------------------------------------------------------

    def follow(self) -> None:
        """Show what there is to show now."""
        self._is_behind = True
        # Said first, and looked at again after letting go: a change is either seen here or there.
        while self._is_behind and self._turn.acquire(blocking=False):
            try:
                self._is_behind = False
                self._adopt_or_say()
            finally:
                self._turn.release()

    def _adopt_or_say(self) -> None:
        try:
            self._adopt()
        except DeclarationError as error:
            logger.error(  # noqa: TRY400  # the sentence says it all
                "tools changed, and some cannot be offered any more: %s", error
            )

    def _adopt(self) -> None:
        """
        Put in the place of what is shown what there is now, origin for origin.

        Raises:
            DeclarationError: the first of what cannot be shown; the rest is.
        """
        offered = self._offered()
        changed = [o for o in {**self._put, **offered} if self._is_other(o, offered.get(o, {}))]
        errors: list[DeclarationError] = []
        crossed = [o for o in changed if not self._show(o, offered.get(o, {}), errors)]
        for origin in crossed:  # Names went from one of them to another: all have let go by now.
            if not self._show(origin, offered.get(origin, {}), errors):
                errors.append(
                    DuplicateTool(f"two have one name, one of them from `{one_line(origin)}`")
                )
        if errors:
            raise errors[0]

    def _offered(self) -> dict[str, dict[str, Binding]]:
        offered: dict[str, dict[str, Binding]] = {}
        for name in self.behind.names:
            binding = self.behind.resolve(name)
            if binding is not None:
                offered.setdefault(binding.contract.origin, {})[name] = binding
        return offered

    def _is_other(self, origin: str, bindings: Mapping[str, Binding]) -> bool:
        return self._marks(bindings) != self._put.get(origin, {})

    def _marks(self, bindings: Mapping[str, Binding]) -> dict[str, object]:
        return {name: self.mark(binding) for name, binding in bindings.items()}

    def _show(
        self, origin: str, bindings: Mapping[str, Binding], errors: list[DeclarationError]
    ) -> bool:
        """Show one origin's tools, or nothing of it; say whether no other had one of the names."""
        self._put.pop(origin, None)
        marks = self._marks(bindings)
        tools: list[Tool] = []
        try:
            tools = [tool for one in bindings.values() if (tool := self.shown(one)) is not None]
        except DeclarationError as error:
            errors.append(error)
        finally:  # Whatever somebody's code raised: nothing of before may stay.
            is_alone = self._put_in_place(origin, tools, errors)
        if is_alone:
            self._put[origin] = marks
        return is_alone

    def _put_in_place(self, origin: str, tools: list[Tool], errors: list[DeclarationError]) -> bool:
        if not tools and origin not in self._filled:
            return True  # Nobody need hear of it.
        self._filled = self._filled | {origin} if tools else self._filled - {origin}
        try:
            super().replace(origin, tools)
        except DeclarationError as error:
            super().replace(origin, [])
            if isinstance(error, DuplicateTool):
                return False
            errors.append(error)
        return True


class Mapped(Following):
    """What a function makes of each tool of a registry that follows another."""

    def __init__(self, behind: Following, wrap: Wrap) -> None:
        self._wrap = wrap
        super().__init__(behind)

    def shown(self, binding: Binding) -> Tool | None:
        """Return what the function makes of it."""
        return self._wrap(binding.tool)
