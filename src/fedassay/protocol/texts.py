"""Text that strangers wrote: bounded where it arrives, and harmless where it is shown.

A study's name, a task's label or a reason can hold escape codes that redraw a screen, line breaks that forge a line of
a log, or formulas that a spreadsheet executes. Whatever shows such text uses a function of this module.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any

from fedassay.errors import ProtocolError

LONGEST_NAME = 200
"""Characters of the name of a study, a task or a party in a message."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def require_name(value: str, role: str) -> str:
    """The name, if it is short and printable.

    Raises
    ------
    ProtocolError
        Which does not repeat it.

    Examples
    --------
    >>> require_name("spring study", "study")
    'spring study'
    """
    if len(value) > LONGEST_NAME or not value.isprintable():
        raise ProtocolError(
            f"request: its {role} is longer than {LONGEST_NAME} characters, or holds characters that cannot be "
            "printed; choose another name."
        )
    return value


def visible(text: object) -> str:
    r"""The text in one line, with everything unprintable spelt out.

    Examples
    --------
    >>> print(visible("safe \x1b[2J"))
    safe \x1b[2J
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def printable(text: object) -> str:
    r"""The text for a terminal of Rich: every line visible, and nothing in it is markup.

    Examples
    --------
    >>> print(printable("[bold] \x1b[2J"))
    \[bold] \x1b[2J
    """
    from rich.markup import escape

    return escape("\n".join(map(visible, str(text).split("\n"))))


def spreadsheet_cell(value: Any) -> Any:
    """A value for a CSV file: text that a spreadsheet would execute begins with an apostrophe.

    Examples
    --------
    >>> spreadsheet_cell("=1+1"), spreadsheet_cell(-1)
    ("'=1+1", -1)
    """
    return f"'{visible(value)}" if isinstance(value, str) and value.startswith(_FORMULA) else value


class SafeLogger:
    """Logs one visible line for each message, and visible lines for a traceback."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def warning(self, message: str, *values: object) -> None:
        """Log a warning."""
        self._logger.warning("%s", visible(message % values))

    def failure(self, message: str, *values: object) -> None:
        """Log a warning with the traceback of the error that is being handled."""
        lines = traceback.format_exc().rstrip().split("\n")
        self._logger.warning("%s", "\n".join([visible(message % values), *map(visible, lines)]))
