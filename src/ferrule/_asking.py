"""
Other people's plain functions, called so that they never hold the loop.

A hook, a provider or a trait function may be plain or async, may take its time, raise, or never
end. A plain one runs in a thread; one that is given up goes on there, and what it says is not
heard any more.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar, cast

import anyio
import anyio.to_thread

from ferrule._contain import Broke, Threw, carry, contain, contain_async
from ferrule.errors import FerruleError

T = TypeVar("T")


def is_async(function: object) -> bool:
    """Return whether calling `function` gives an awaitable: partials and objects looked through."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.iscoroutinefunction(function):
        return True
    if inspect.isroutine(function) or not callable(function):
        return False
    return inspect.iscoroutinefunction(type(function).__call__)


async def called(function: Callable[..., object], *arguments: object) -> object:
    """
    Return what a function gives: an async one is awaited here, a plain one runs in a thread.

    What it raises is raised here, whatever it is.
    """
    if is_async(function):
        return await cast("Awaitable[object]", function(*arguments))
    done: object
    (done,) = await anyio.to_thread.run_sync(
        _carried, functools.partial(function, *arguments), abandon_on_cancel=True
    )
    if isinstance(done, Threw):
        raise done.error
    if inspect.isawaitable(done):  # As of a lambda that calls an async function.
        return await cast("Awaitable[object]", done)
    return done


def _carried(function: Callable[[], object]) -> tuple[object]:
    """Carry what a thread gives in a tuple: trio takes a coroutine for a mistake of ours."""
    return (carry(function),)


async def in_time(seconds: float, answer: Awaitable[T]) -> T | Broke:
    """Await what other people's code gives; that it broke or took too long is an answer too."""
    with anyio.move_on_after(seconds):
        return await contain_async(answer)
    return Broke(FerruleError(f"it did not answer within {seconds:g} s"))


class Asking(Generic[T]):
    """
    Plain functions, all asked in one thread hop, each within its time.

    Whether one is stuck is looked at every `seconds`: it is given up when none was answered since.
    So each has its own time, between once and twice as long, and no clock is read.
    """

    __slots__ = ("_answers", "_interrupt", "_questions", "_seconds", "_turn")

    def __init__(self, questions: Sequence[Callable[[], T]], seconds: float) -> None:
        self._questions = questions
        self._seconds = seconds
        self._answers: list[T | Broke] = []
        self._interrupt: BaseException | None = None
        self._turn = 0

    async def answers(self) -> list[T | Broke]:
        """Return what each gave, or how it broke, in order; an interrupt is raised as itself."""
        while len(self._answers) < len(self._questions):
            await self._ask_on()
            if self._interrupt is not None:
                raise self._interrupt
        return self._answers

    async def _ask_on(self) -> None:
        """Ask from where we are until all are asked or one takes too long."""
        self._turn += 1
        done = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(self._in_thread, self._turn, done)
            while not done.is_set():
                before = len(self._answers)
                with anyio.move_on_after(self._seconds):
                    await done.wait()
                if not done.is_set() and len(self._answers) == before:
                    self._turn += 1  # The stuck thread, should it go on, asks nothing more.
                    late = FerruleError(f"it did not answer within {self._seconds:g} s")
                    self._answers.append(Broke(late))
                    group.cancel_scope.cancel()
                    return

    async def _in_thread(self, turn: int, done: "anyio.Event") -> None:
        await anyio.to_thread.run_sync(self._ask_all, turn, abandon_on_cancel=True)
        done.set()

    def _ask_all(self, turn: int) -> None:
        done = carry(functools.partial(self._ask_each, turn))
        if isinstance(done, Threw):
            self._interrupt = done.error  # A task group would put it into a group.

    def _ask_each(self, turn: int) -> None:
        questions, answers = self._questions, self._answers
        while self._turn == turn and len(answers) < len(questions):
            answer = contain(questions[len(answers)])
            if self._turn == turn:
                answers.append(answer)
