"""
Which commands may run: rules that an argument list matches whole, word by word.

Theory. No shell reads a command here, so there is no syntax to be fooled by: the words are what the
program gets. A rule names each of them. What a rule leaves open is never an option, since options
are how a harmless command is made to do something else (`git -c core.pager=…`, `find -exec`), and
never a text in which something hides. Whatever no rule matches is asked about or refused.
"""

import enum
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, cast

from ferrule import Allow, Ask, Authorization, Deny, InvalidValue
from ferrule.helpers._visible import spelt

_SHOWN = 4000
"""Characters of a command that a person can be asked to read."""


class Placeholder(enum.Enum):
    """What stands in a `CommandRule` for words that the rule does not name; none is an option."""

    ANY = "ANY"
    REST = "REST"

    def __repr__(self) -> str:
        return self.value


ANY: Final = Placeholder.ANY
"""One word that is no option: it is not empty, and does not begin with `-`."""

REST: Final = Placeholder.REST
"""Any number of such words, also none; it stands last."""

Word: TypeAlias = str | Placeholder
"""What a rule says of one word of a command."""


class CommandRule:
    """
    A command that may run: `CommandRule("git", "log", ANY)` allows `git log main`.

    The executable is matched as it is written: `git` is the one that PATH leads to, and no path to
    it matches; a rule for a path names that path. Text matches exactly itself.

    Attributes:
        words: The executable, then what may follow it, all of it.
    """

    __slots__ = ("words",)

    words: tuple[Word, ...]

    def __init__(self, executable: str, *arguments: Word) -> None:
        """
        Make a rule.

        Raises:
            InvalidValue: it could never match.
        """
        known = isinstance(executable, str) and executable
        if not known or (" " in executable and "/" not in executable):
            raise InvalidValue(
                "a rule begins with the name of an executable alone, and each argument is a word "
                'of its own: CommandRule("git", "status")'
            )
        if REST in arguments[:-1]:
            raise InvalidValue("REST stands last in a rule; nothing can follow it")
        if not all(isinstance(word, str | Placeholder) for word in arguments):
            raise InvalidValue("a rule is made of texts, ANY and REST")
        object.__setattr__(self, "words", (executable, *arguments))

    def __setattr__(self, name: str, _: object) -> None:
        raise AttributeError(f"a rule does not change ({name}); make a new one")

    def __eq__(self, other: object) -> bool:
        return self.words == other.words if isinstance(other, CommandRule) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.words)

    def __repr__(self) -> str:
        return f"CommandRule({', '.join(map(repr, self.words))})"

    def matches(self, argv: Sequence[str]) -> bool:
        """Return whether the rule names all of `argv`, and nothing that is not there."""
        words, rest = self.words, self.words[-1] is REST
        if rest:
            words = words[:-1]
        if len(argv) < len(words) or (len(argv) > len(words) and not rest):
            return False
        named = all(_matches(word, given) for word, given in zip(words, argv, strict=False))
        return named and all(_matches(ANY, given) for given in argv[len(words) :])


def _matches(word: Word, given: str) -> bool:
    if isinstance(word, str):
        return given == word
    return bool(given) and not given.startswith("-") and spelt(given) == given


def commands(
    rules: Iterable[CommandRule], *, argument: str = "command"
) -> Callable[[Authorization], Allow | Ask | Deny]:
    """
    Return an authorizer that allows the commands of `rules` and has a person asked about others.

    It judges the arguments that the tool will get. The person sees the whole command, quoted word
    by word, with everything invisible written out; a command too long for that is denied.

    Args:
        rules: What may run without a question.
        argument: The tool's parameter that holds the command as a list of texts.
    """
    known = tuple(rules)

    def judge(asked: Authorization) -> Allow | Ask | Deny:
        argv = words_of(asked.arguments.get(argument))
        if argv is None:
            raise InvalidValue(
                f'`commands` judges the argument "{argument}", which this tool has not as a list '
                "of texts; name the one that holds the command: commands(rules, argument=…)"
            )
        if any(rule.matches(argv) for rule in known):
            return Allow()
        shown = spelt(shlex.join(argv))
        if len(shown) > _SHOWN:
            return Deny("The command is too long for a person to judge; put it into a file.")
        return Ask(f"May this command run?\n{shown}")

    return judge


def words_of(value: object) -> list[str] | None:
    """Return a command as the list of its words, or `None` if it is none."""
    if not isinstance(value, list | tuple):
        return None
    given = cast("Sequence[object]", value)
    words = [word for word in given if isinstance(word, str)]
    return words if len(words) == len(given) else None
