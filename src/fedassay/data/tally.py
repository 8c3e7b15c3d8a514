"""The bad values of a column, counted while it streams past."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedassay.data.findings import Finding, error, value_at
from fedassay.data.numbers import is_missing, plain

MOST_VALUES_LISTED = 5

FOR_GAPS = 'leave rows with a missing value out and count them (`missing="report"`, in simulations)'
"""What else can be done about a value that is missing, where its row can be left out."""


class ColumnTally:
    """The unacceptable values of one column so far: how many, and enough of them for a clear error."""

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
        """Whether nothing bad has come yet."""
        return self._first is None

    def finding(self) -> Finding | None:
        """The error to report, if there is one."""
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
