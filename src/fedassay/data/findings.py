"""Findings about data: what is wrong, or worth knowing, in one sentence each."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedassay.data.numbers import is_missing, plain
from fedassay.errors import DataError

SHOWN = 40
"""Largest number of characters of a bad value that an error shows."""


_SENTENCE = re.compile(
    r"(?P<what>.*?): got (?P<got>.*), expected (?P<expected>[^;]*?)(; (?P<fix>.*?))?\.?", re.DOTALL
)


class Severity(StrEnum):
    """Severity of a finding: it stops the run, deserves a look, or is only good to know."""

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
        """Return the parts of an error that was raised in the usual form.

        Examples
        --------
        >>> Finding.of_sentence("label: got 2, expected 0 or 1; recode it.").expected
        '0 or 1'
        """
        parts = _SENTENCE.fullmatch(sentence)
        if parts is None:
            return error(what="data", got=sentence, expected="readable rows", fix="see above")
        what, got, expected, fix = parts["what"], parts["got"], parts["expected"], parts["fix"] or ""
        return error(what=what, got=got, expected=expected, fix=fix)

    def sentence(self) -> str:
        """Join the parts to a sentence: what, got, expected, fix."""
        fix = f"; {self.fix}" if self.fix else ""
        end = "" if fix.endswith("?") else "."
        return f"{self.what}: got {self.got}, expected {self.expected}{fix}{end}"

    def to_dict(self) -> dict[str, str]:
        """Return the parts, as plain strings."""
        return {name: str(value) for name, value in asdict(self).items()}


error = partial(Finding, severity=Severity.ERROR)
"""A finding that stops the run."""

warning = partial(Finding, severity=Severity.WARNING)
"""A finding that deserves a look."""

note = partial(Finding, severity=Severity.NOTE)
"""A finding that is good to know."""


def raise_first(findings: list[Finding]) -> None:
    """Raise the first finding, if there is one, as the one sentence that the user sees."""
    if findings:
        raise DataError(findings[0].sentence())


def listed(names: list[str], *, most: int) -> str:
    """Return up to `most` of the names, quoted, and how many more there are.

    Examples
    --------
    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def shown(value: object) -> str:
    """Return a value from the data, short enough for a sentence.

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
    """Return the value in a row of an Arrow array, short enough for a sentence."""
    try:
        return shown(raw[row].as_py())
    except Exception:  # a value that Python cannot represent, such as the year 300000
        return str(raw.type)


# --- the bad values of a column -----------------------------------------------------------------------------


MOST_VALUES_LISTED = 5

FOR_GAPS = 'leave rows with a missing value out and count them (`missing="report"`, in simulations)'
"""Alternative fix for a missing value, where its row can be left out."""


class ColumnTally:
    """Unacceptable values of one column so far: their number, and enough of them for a clear error."""

    def __init__(
        self, *, what: str, expected: str, fix: str, lists_values: bool = False, for_gaps: str = ""
    ) -> None:
        self._what, self._expected, self._fix, self._lists_values = what, expected, fix, lists_values
        self._for_gaps, self._has_gaps = for_gaps, False
        self._rows = self._count = 0
        self._first: tuple[int, str] | None = None
        self._values: dict[str, None] = {}

    def expect(self, expected: str) -> None:
        """Say from now on what exactly is expected."""
        self._expected = expected

    def advise(self, fix: str) -> None:
        """Say from now on how to repair it."""
        self._fix = fix

    def add(self, raw: Any, bad: NDArray[np.bool_]) -> None:
        """Take account of the next rows."""
        if bad.any():
            row = int(np.argmax(bad))
            self._count += int(np.count_nonzero(bad))
            self._first = self._first or (self._rows + row, value_at(raw, row))
            self._has_gaps = self._has_gaps or bool((is_missing(raw) & bad).any())
            if self._lists_values and len(self._values) <= MOST_VALUES_LISTED:
                self._values.update(dict.fromkeys(_some_values(raw)))
        self._rows += len(raw)

    @property
    def clean(self) -> bool:
        """True if nothing bad has come yet."""
        return self._first is None

    def finding(self) -> Finding | None:
        """Return the error to report, if there is one."""
        if self._first is None:
            return None
        row, value = self._first
        values = "1 bad value" if self._count == 1 else f"{self._count} bad values"
        got = f"{values} in {self._rows} rows, the first in row {row} (counting from 0): {value}"
        if self._lists_values:
            listed = list(self._values)[:MOST_VALUES_LISTED]
            more = " and others" if len(self._values) > MOST_VALUES_LISTED else ""
            got += f" (values found: {', '.join(listed)}{more})"
        fix = f"{self._fix}, or {self._for_gaps}" if self._has_gaps and self._for_gaps else self._fix
        return error(what=self._what, got=got, expected=self._expected, fix=fix)


def _some_values(raw: Any) -> list[str]:
    try:
        distinct = pc.unique(plain(raw))
    except Exception:  # nested values have no order and no hash
        distinct = raw.slice(0, MOST_VALUES_LISTED + 1)
    return [value_at(distinct, row) for row in range(min(len(distinct), MOST_VALUES_LISTED + 1))]
