"""The text of a docstring: what the function does, and what each of its parameters is."""

import importlib
import inspect
import re
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias, cast

import msgspec

SECTIONS = {
    "NUMPYDOC": re.compile(r"^[A-Z][A-Za-z ]+\n-{3,}\s*$", re.MULTILINE),
    "GOOGLE": re.compile(
        r"^(Args|Arguments|Parameters|Params|Attributes|Keyword Args|Keyword Arguments|Returns|"
        r"Yields|Raises|Except|Exceptions|Example|Examples):[ \t]*$",
        re.MULTILINE,
    ),
    "REST": re.compile(
        r"^:(param|parameter|arg|argument|attribute|key|keyword|type|returns?|rtype|yields?|raises?)\b",
        re.MULTILINE,
    ),
}
"""How each style says that the text ends and the sections begin. One look here is cheaper than four
attempts to parse, and a docstring without sections is not parsed at all."""


TITLED = {"NUMPYDOC", "GOOGLE"}
OF_PARAMETERS = re.compile(
    r"(Args|Arguments|Parameters|Params|Attributes|Keyword Args|Keyword Arguments|"
    r"Other Parameters|Keyword Parameters)\b"
)


Sections: TypeAlias = Callable[[str, str], dict[str, str]]
"""What `_sections.parameters` is."""


class Text(msgspec.Struct, frozen=True):
    """
    What a docstring says.

    Attributes:
        description: Everything before the first section.
        parameters: The whole text of each parameter, also of `*args` and `**kwargs`, by name.
    """

    description: str = ""
    parameters: dict[str, str] = {}


def read(docstring: str | None) -> Text:
    """Return the text of a docstring in Google, NumPy or Sphinx style, or in none."""
    if not docstring:
        return Text()
    if "\n" not in docstring:
        return Text(docstring.strip())
    text = inspect.cleandoc(docstring)
    for style, section in SECTIONS.items():
        if begin := section.search(text):
            return Text(text[: begin.start()].strip(), _parameters(text, style, section))
    return Text(text.strip())


def _parameters(text: str, style: str, section: re.Pattern[str]) -> dict[str, str]:
    if style in TITLED:
        begins = [match.start() for match in section.finditer(text)]
        parts = [text[begin:end] for begin, end in pairwise([*begins, len(text)])]
        # The others are not asked for, and one that is badly formed cannot spoil these.
        # The first line is left empty: a docstring's first line has no say in its indentation.
        text = "\n" + "\n".join(part for part in parts if OF_PARAMETERS.match(part))
    sections = importlib.import_module("ferrule.schema._sections")
    return cast("Sections", sections.parameters)(text, style)
