"""What a provider's format could not say."""

import msgspec


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """
    Something that was meant to be said and could not be, or not in the same way.

    Attributes:
        path: Where, as in `tools.read_file.title` or `outputs[2].content[0]`.
        what: What happened to it, as a sentence.
    """

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"
