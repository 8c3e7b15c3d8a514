"""What is wrong, or worth knowing, about somebody's data: one sentence each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fedassay.errors import DataError

SHOWN = 40
"""The most characters of a bad value that an error shows."""


_SENTENCE = re.compile(
    r"(?P<what>.*?): got (?P<got>.*), expected (?P<expected>[^;]*?)(; (?P<fix>.*?))?\.?", re.DOTALL
)


class Severity(StrEnum):
    """Whether a finding stops the run, deserves a look, or is only good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One sentence about the data, in its four parts.

    Examples
    --------
    >>> Finding(severity=Severity.ERROR, what="label", got="2", expected="0 or 1", fix="recode it").sentence()
    'label: got 2, expected 0 or 1; recode it.'
    """

    severity: Severity
    what: str
    got: str
    expected: str
    fix: str

    @classmethod
    def of_sentence(cls, sentence: str) -> Finding:
        """The parts of an error that was raised in the usual form.

        Examples
        --------
        >>> Finding.of_sentence("label: got 2, expected 0 or 1; recode it.").expected
        '0 or 1'
        """
        parts = _SENTENCE.fullmatch(sentence)
        if parts is None:
            return error(what="data", got=sentence, expected="readable rows", fix="see above")
        return error(**{name: text or "" for name, text in parts.groupdict().items()})

    def sentence(self) -> str:
        """What, got, expected, fix."""
        fix = f"; {self.fix}" if self.fix else ""
        end = "" if fix.endswith("?") else "."
        return f"{self.what}: got {self.got}, expected {self.expected}{fix}{end}"

    def to_dict(self) -> dict[str, str]:
        """The parts, as plain strings."""
        return {
            "severity": str(self.severity),
            "what": self.what,
            "got": self.got,
            "expected": self.expected,
            "fix": self.fix,
        }


def error(*, what: str, got: str, expected: str, fix: str) -> Finding:
    """A finding that stops the run."""
    return Finding(severity=Severity.ERROR, what=what, got=got, expected=expected, fix=fix)


def warning(*, what: str, got: str, expected: str, fix: str) -> Finding:
    """A finding that deserves a look."""
    return Finding(severity=Severity.WARNING, what=what, got=got, expected=expected, fix=fix)


def note(*, what: str, got: str, expected: str, fix: str) -> Finding:
    """A finding that is good to know."""
    return Finding(severity=Severity.NOTE, what=what, got=got, expected=expected, fix=fix)


def raise_first(findings: list[Finding]) -> None:
    """Raise the first finding, if there is one, as the one sentence that the user sees."""
    if findings:
        raise DataError(findings[0].sentence())


def listed(names: list[str], *, most: int) -> str:
    """Up to `most` of the names, quoted, and how many more there are.

    Examples
    --------
    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def shown(value: object) -> str:
    """A value from the data, short enough for a sentence.

    Examples
    --------
    >>> shown(None), shown("no"), shown(7.5)
    ('a missing value', "'no'", '7.5')
    """
    if value is None:
        return "a missing value"
    text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def value_at(raw: Any, row: int) -> str:
    """What stands in a row of an Arrow array, short enough for a sentence."""
    try:
        return shown(raw[row].as_py())
    except Exception:  # a value that Python cannot represent, such as the year 300000
        return str(raw.type)
