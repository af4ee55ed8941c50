"""
What the sections of a docstring say of each parameter.

Loaded by `_docstring` at the first docstring that has sections: with what it brings along, the
parser is a tenth of the door, and a program without such docstrings need not pay for it.
"""

from docstring_parser import DocstringStyle, ParseError, parse


def parameters(sections: str, style: str) -> dict[str, str]:
    """
    Return the whole text of each parameter, by name; nothing of what is badly formed.

    Args:
        sections: The sections that may tell of parameters.
        style: The name of a `DocstringStyle`.
    """
    try:
        parsed = parse(sections, DocstringStyle[style])
    except ParseError:  # Its sections say nothing then, and its first lines say all they did.
        return {}
    found: dict[str, str] = {}
    for parameter in parsed.params:
        for name in parameter.arg_name.split(","):
            found[name.strip().lstrip("\\*")] = (parameter.description or "").strip()
    return found
