"""A policy that cannot be: everything that is wrong with it, at once."""

from collections.abc import Sequence

from ferrule import InvalidValue

_BYTES = 1000
"""Of the sentence; with UTF-8's expansion it stays under a kilobyte (CONTRACT JSON-6)."""


class InvalidPolicy(InvalidValue):
    """
    A policy cannot be read, or part of it can never take effect.

    Attributes:
        problems: One sentence for each fault: where it stands, and what would fix it.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(*problems)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        text = ""
        for index, problem in enumerate(self.problems):
            longer = f"{text}; {problem}" if text else problem
            rest = f"; and {len(self.problems) - index} more"
            if len(f"{longer}{rest}".encode()) > _BYTES and text:
                return text + rest
            text = longer
        return (
            text if len(text.encode()) <= _BYTES else text.encode()[:_BYTES].decode(errors="ignore")
        )
