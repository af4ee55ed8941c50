"""
Who may start, and who waits for whom: decided from data, with no code of a tool and no I/O.

Theory
======

A batch is a list of calls in the model's order. Some of them work on named state:

    exclusive   "repo:main"          the call has the state for itself
    shared      Shared("repo:main")  many such calls may have the state at once

Two calls conflict when they name one state and at least one of them has it for itself. Calls that
conflict run in the model's order; all others may run side by side. So a call waits for earlier
calls only, nothing can wait in a circle, and the order is fixed before the first call starts,
never by luck (CONTRACT EXE-2, EXE-3).

Not every conflict needs an edge. For each state it is enough to remember the last call that had
it for itself and the shared ones since:

    a shared call waits for      the last exclusive one
    an exclusive call waits for  the shared ones since, or the last exclusive one if there are none

Everything earlier is reached through these. The number of edges is linear in the number of uses:
each shared call is waited for once by the next exclusive one.

A sequential batch is a chain: each call waits for the one before it.

| event     | what changes                                                        |
|-----------|---------------------------------------------------------------------|
| submitted | each call has a count of the calls it waits for; 0 is ready         |
| finish(i) | the count of each call that waits for i goes down; at 0 it is ready |

A call that was refused takes no part: it holds nothing and nobody waits for it.
"""

from collections.abc import Iterable, Sequence

from ferrule._traits import Shared, Use


class Schedule:
    """
    The order of one batch.

    Args:
        uses: For each call what it uses, or `None` for a call that takes no part.
        sequential: Whether the calls run one at a time, in order.
    """

    __slots__ = ("_followers", "_waiting", "after")

    after: tuple[tuple[int, ...], ...]
    """For each call, the calls that it waits for itself; what those wait for is not repeated."""

    def __init__(self, uses: Sequence[Iterable[Use] | None], *, sequential: bool = False) -> None:
        self._followers: dict[int, list[int]] = {}
        if not sequential and not any(uses):  # As nearly every batch is.
            self.after = ((),) * len(uses)
            self._waiting = [-1 if used is None else 0 for used in uses]
            return
        self.after = _chain(uses) if sequential else _conflicts(uses)
        self._waiting = [
            -1 if used is None else len(before)
            for used, before in zip(uses, self.after, strict=True)
        ]
        for call, before in enumerate(self.after):
            for earlier in before:
                self._followers.setdefault(earlier, []).append(call)

    def ready(self) -> list[int]:
        """Return the calls that wait for nobody, in order."""
        return [call for call, count in enumerate(self._waiting) if count == 0]

    def finish(self, call: int) -> list[int]:
        """Say that `call` has ended; return the calls that are ready because of it, in order."""
        followers = self._followers.pop(call, None)
        if followers is None:
            return []
        ready: list[int] = []
        for follower in followers:
            self._waiting[follower] -= 1
            if self._waiting[follower] == 0:
                ready.append(follower)
        return ready

    def waiting_for(self, calls: Iterable[int]) -> set[int]:
        """Return the calls that wait for one of `calls`, for one that does, and so on."""
        waiting: set[int] = set()
        todo = list(calls)
        while todo:
            new = [one for one in self._followers.get(todo.pop(), ()) if one not in waiting]
            waiting.update(new)
            todo += new
        return waiting


def _chain(uses: Sequence[Iterable[Use] | None]) -> tuple[tuple[int, ...], ...]:
    after: list[tuple[int, ...]] = []
    last: tuple[int, ...] = ()
    for call, used in enumerate(uses):
        after.append(() if used is None else last)
        if used is not None:
            last = (call,)
    return tuple(after)


class _State:
    """Who has one named state, as far as the batch was read."""

    __slots__ = ("exclusive", "shared")

    def __init__(self) -> None:
        self.exclusive: int | None = None
        self.shared: list[int] = []

    def take(self, call: int, *, shared: bool) -> list[int]:
        """Give the state to `call`; return the calls it waits for."""
        last = [] if self.exclusive is None else [self.exclusive]
        if shared:
            self.shared.append(call)
            return last
        before = self.shared or last
        self.exclusive, self.shared = call, []
        return before


def _conflicts(uses: Sequence[Iterable[Use] | None]) -> tuple[tuple[int, ...], ...]:
    states: dict[str, _State] = {}
    after: list[tuple[int, ...]] = []
    for call, used in enumerate(uses):
        if not used:
            after.append(())
            continue
        before: set[int] = set()
        for name, shared in _strongest(used):
            state = states.get(name)
            if state is None:
                state = states[name] = _State()
            before.update(state.take(call, shared=shared))
        after.append(tuple(sorted(before)) if before else ())
    return tuple(after)


def _strongest(used: Iterable[Use]) -> list[tuple[str, bool]]:
    """Return each state once: a call that names one both ways has it for itself."""
    shared: dict[str, bool] = {}
    for use in used:
        name, is_shared = (use.state, True) if isinstance(use, Shared) else (use, False)
        shared[name] = shared.get(name, True) and is_shared
    return list(shared.items())
