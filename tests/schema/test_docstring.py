"""The text of a docstring reaches the function and each of its parameters, whole."""

import dataclasses
import logging
from typing import Any

import pytest

from ferrule.schema._docstring import read
from ferrule.schema._generate import generate
from ferrule.schema._reflect import reflect

GOOGLE = """Find things.

  Looks twice.

  Args:
      mode: One of:
          - "fast": quick pass
          - "deep": full pass (note: slow)
      limit (int, optional): Upper bound, e.g. 3: three.

  Returns:
      mode: not a parameter text
  """
NUMPY = """Find things.

  Looks twice.

  Parameters
  ----------
  mode : str
      One of:
      - "fast": quick pass
      - "deep": full pass (note: slow)
  limit : int, optional
      Upper bound, e.g. 3: three.

  Returns
  -------
  mode : str
      not a parameter text
  """
SPHINX = """Find things.

  Looks twice.

  :param mode: One of:
      - "fast": quick pass
      - "deep": full pass (note: slow)
  :type mode: str
  :param int limit: Upper bound, e.g. 3: three.
  :returns: mode: not a parameter text
  """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_sg_05_three_styles_say_the_same_whole_text(text: str) -> None:
    """SG-05: all lines, inner colons, and no Returns section read as a parameter."""

    def seek(mode: str, limit: int = 3) -> None: ...

    seek.__doc__ = text
    signature = reflect(seek)
    properties: Any = generate(signature)["properties"]
    assert signature.description == "Find things.\n\nLooks twice."
    assert properties["mode"]["description"] == (
        'One of:\n- "fast": quick pass\n- "deep": full pass (note: slow)'
    )
    assert properties["limit"]["description"] == "Upper bound, e.g. 3: three."


def test_sg_05_a_name_only_the_docstring_knows_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SG-05: a stale docstring is reported and breaks nothing."""

    def seek(mode: str) -> None:
        """
        Find things.

        Args:
            mode: How.
            modus: How, before somebody renamed it.
        """

    with caplog.at_level(logging.WARNING, logger="ferrule"):
        signature = reflect(seek)
    assert signature.unknown == ("modus",)
    assert "modus" in caplog.text
    assert "seek" in caplog.text


def test_a_docstring_without_sections_is_the_description() -> None:
    """FN-3, section 4: the text as it is, without its indentation."""
    assert read("Read a file.").description == "Read a file."
    assert read("Read.\n\n    Body.\n      More.\n    ").description == "Read.\n\nBody.\n  More."
    assert read(None).description == ""


def test_a_section_that_is_badly_formed_leaves_the_rest() -> None:
    """SG-05: a Raises section without a colon takes no parameter text away."""
    text = read("Do.\n\nArgs:\n    x: The x.\n\nRaises:\n    when it rains\n")
    assert text.parameters == {"x": "The x."}


def test_a_parameter_section_that_cannot_be_read_is_no_error() -> None:
    """FN-1: bad prose is not a bad declaration."""
    assert read("Do.\n\nArgs:\n    nothing here is a parameter\n").parameters == {}
    assert read("Do.\n\nArgs:\n").description == "Do."


def test_variadic_parameters_have_their_text() -> None:
    """FN-3: stars in a docstring are not part of the name."""
    google = read("Do.\n\nArgs:\n    *rest: More.\n    **labels: Names.\n")
    sphinx = read("Do.\n\n:param \\*rest: More.\n:param \\*\\*labels: Names.\n")
    assert google.parameters == sphinx.parameters == {"rest": "More.", "labels": "Names."}


def test_numpy_parameters_that_share_a_line_share_the_text() -> None:
    """SG-05: `a, b : int` describes both."""
    text = read("Do.\n\nParameters\n----------\na, b : int\n    Both.\n")
    assert text.parameters == {"a": "Both.", "b": "Both."}


def test_the_docstring_of_a_class_describes_its_fields() -> None:
    """FN-2: `Attributes:` of a nested class is the text of its properties; its prose is not."""

    @dataclasses.dataclass
    class Edit:
        """
        For developers only.

        Attributes:
            old: What stands there.
        """

        old: str
        new: str = ""

    def apply(edit: Edit) -> None: ...

    properties: Any = generate(reflect(apply))["properties"]
    assert properties["edit"]["properties"]["old"]["description"] == "What stands there."
    assert "description" not in properties["edit"]
    assert "description" not in properties["edit"]["properties"]["new"]
