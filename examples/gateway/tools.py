"""A tool of our own, served beside those of other people's servers."""

from ferrule import tool


@tool(read_only=True, open_world=False)
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())
