"""Parts for tools and for hosts."""

from ferrule.helpers._visible import HIDDEN, one_line, visible

__all__ = ("HIDDEN", "one_line", "visible")
