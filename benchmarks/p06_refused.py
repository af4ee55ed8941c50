"""P6: refusing bad arguments, with all that a model reads of it, against a call that does not."""

import json
from collections.abc import Awaitable, Callable, Iterator

import orjson
import p01_one_call
import p02_nested
from _measure import Loop, Row, Work, ratio

from ferrule import Contract, ToolCall, bind, tool
from ferrule.errors import InvalidCall

GROWTH = 1.5
"""What a byte may cost more in a large text than in 4 KB: what is linear stays below."""

FEW, SOME, MANY = 13, 180, 2860
"""Lines of cells that make 4 KB, 64 KB and 1 MB, within the limits with all mistakes."""


def small() -> Iterator[tuple[str, str, str]]:
    """Yield mistakes in 66 bytes, and a part of the answer to each."""
    text = p01_one_call.TEXT
    yield "a wrong type", text.replace("4096", '"64"'), "max_bytes: expected integer"
    yield "an unknown name", text.replace("_bytes", "_byte"), "(did you mean max_bytes?)"
    yield "a missing name", f"{{{text[31:]}{' ' * 30}", 'property "path"'
    yield "a text cut off", text[:-1], "invalid json"
    yield "a repeated name", text.replace("encoding", "path"), "path: a member name is repeated"
    yield "no number", text.replace("4096", "-NaN"), "invalid json"
    yield "2 MB, too large", text * 31_000, "too large"


def twelve_problems() -> str:
    """Return 66 bytes with as many mistakes as can be: eleven unknown names and a missing one."""
    return json.dumps(dict.fromkeys("abcdefghijk", 7), separators=(",", ":"))


def large(lines: int) -> Iterator[tuple[str, str, str]]:
    """Yield mistakes in a text with so many lines, and a part of the answer to each."""
    text = p02_nested.text(lines)
    place, last = f"lines[{lines - 1}]", f'"number": {lines - 1}'
    yield "a wrong type", text.replace(last, '"number": "1"'), f"{place}.number: expected integer"
    yield "an unknown name", text.replace(last, last + ', "cell": 1'), "(did you mean cells?)"
    yield "a missing name", text.replace(last + ", ", ""), f"{place}: missing"
    yield "two mistakes a cell", text.replace('"note": "', '"notes": "'), "more"
    yield "a text cut off", text[:-1], "invalid json"
    yield "a repeated name", text.replace(last, f"{last}, {last}"), f"{place}.number: a member"
    yield "a number of 40 digits", text.replace(last, f'"number": {10**40}'), "64 bits"


def refusing(contract: Contract, arguments: str, answer: str, times: int = 1) -> Work:
    """Return what refuses such a call so often; what it says of it must hold `answer`."""
    call = ToolCall(id="call_1", name=contract.name, arguments=arguments)

    def refuse() -> str:
        said = ""
        for _ in range(times):
            try:
                contract.admit(call)
            except InvalidCall as error:
                said = str(error)
        return said

    assert answer in refuse(), refuse()
    return refuse


def calling(function: Callable[..., Awaitable[str]], text: str, times: int, loop: Loop) -> Work:
    """Return the floor: what calls with the right arguments so often, and checks nothing."""

    async def call() -> None:
        for _ in range(times):
            await function(**orjson.loads(text))

    return loop.runs(call)


def of_66_bytes(loop: Loop) -> Iterator[Row]:
    """Measure refusals of 66 bytes against a call of the right 66 bytes."""
    contract, times = bind(tool(p01_one_call.read_file)).contract, 500
    floor = calling(p01_one_call.read_file, p01_one_call.TEXT, times, loop)
    for what, text, answer in small():
        figure = ratio(refusing(contract, text, answer, times), floor)
        yield Row(id="P6", what=f"refused, 66 B: {what}", ratio=figure, goal=40)
    every = ratio(refusing(contract, twelve_problems(), 'property "k"', times), floor)
    what = "refused, 66 B: each of twelve problems"
    yield Row(id="P6", what=what, ratio=every / 12, goal=10)


def of_4_kilobytes(loop: Loop) -> Iterator[Row]:
    """Measure refusals of 4 KB against a call of the right 4 KB."""
    contract, times = bind(tool(p02_nested.save)).contract, 20
    floor = calling(p02_nested.save, p02_nested.text(FEW), times, loop)
    for what, text, answer in large(FEW):
        figure = ratio(refusing(contract, text, answer, times), floor)
        yield Row(id="P6", what=f"refused, 4 KB: {what}", ratio=figure, goal=40)


def of_more() -> Iterator[Row]:
    """Measure what a byte of a large refused text costs against one of 4 KB."""
    contract = bind(tool(p02_nested.save)).contract
    for size, lines in (("64 KB", SOME), ("1 MB", MANY)):
        for (what, base, answer), (_, text, same) in zip(large(FEW), large(lines), strict=True):
            figure = ratio(refusing(contract, text, same), refusing(contract, base, answer))
            told = f"refused, a byte of {size} against one of 4 KB: {what}"
            yield Row(id="P6", what=told, ratio=figure * len(base) / len(text), goal=GROWTH)


def rows() -> list[Row]:
    """Measure the rows."""
    with Loop() as loop:
        return [*of_66_bytes(loop), *of_4_kilobytes(loop), *of_more()]


if __name__ == "__main__":
    print(*rows(), sep="\n")
