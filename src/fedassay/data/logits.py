"""The scores of all classes of each row, as one array of rows and classes.

They come as a column of lists (what a two-dimensional array becomes, too) or as numbered columns. Whatever
they come as, rows are never looked at one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedassay.data.findings import Finding, Severity, error, value_at, warning
from fedassay.data.lists import (
    FEWEST_CLASSES,
    MISSING,
    ONE_LOGIT,
    Bad,
    BadRows,
    Matrix,
    first_length,
    lengths_of,
    matrix_of,
)
from fedassay.data.lists import Width as Width
from fedassay.data.numbers import is_list, plain, to_numbers

SUM_TOLERANCE = 1e-3
"""How far the probabilities of a row may sum to something else than one."""

EXPECTED = "finite numbers in every row, one for each class"
FIX = "remove or repair these rows (a probability of 0 has no logarithm: give a tiny one instead)"


def looks_like_probabilities(logits: NDArray[Any]) -> bool:
    """Whether every row is made of numbers from 0 that sum to one: probabilities, most likely, not logits.

    No rows look like nothing.

    Examples
    --------
    >>> looks_like_probabilities(np.array([[0.2, 0.8], [1.0, 0.0]]))
    True
    >>> looks_like_probabilities(np.log([[0.2, 0.8]]))
    False
    """
    if not len(logits) or not (logits >= 0).all():
        return False
    return bool((np.abs(logits.sum(axis=1) - 1.0) <= SUM_TOLERANCE).all())


def probabilities_warning(label: str, name: str) -> Finding:
    """What to say about a table if its column (or columns) of this name `looks_like_probabilities`."""
    return warning(
        what=f"{label}, column {name!r} (logits)",
        got="numbers from 0 that sum to 1 in every row, probabilities by their looks",
        expected="logits",
        fix="give the logarithms of the probabilities, which are logits of the same model",
    )


def probabilities_error(label: str, name: str) -> Finding:
    """The same where they are not used: of probabilities taken for logits, every metric would be wrong."""
    return replace(probabilities_warning(label, name), severity=Severity.ERROR)


def to_matrix(array: Any) -> tuple[Matrix, Bad]:
    """A column of lists as rows and classes, and which rows cannot be used.

    Those that are not as long as the first one or not finite cannot, and none if that one is too short.

    Examples
    --------
    >>> values, bad = to_matrix(pa.array([[0.5, 1.0], [2.0], [3.0, None]]))
    >>> values.shape, bad.tolist()
    ((3, 2), [False, True, True])
    """
    lengths = lengths_of(array)
    width = first_length(lengths) or 0
    values = matrix_of(array, lengths, width)
    good = np.isfinite(values).all(axis=1) & (lengths == width)
    return values, ~good | (values.shape[1] < FEWEST_CLASSES)


class LogitsReader:
    """Turns the logits of one table into arrays, batch by batch, and keeps what was wrong with them.

    `columns` is the one column of lists, or all numbered columns. `agreed` is the width of the other tables, if
    it is known.
    """

    def __init__(self, *, label: str, name: str, columns: tuple[str, ...], agreed: Width | None) -> None:
        self._label, self._columns, self._agreed = label, columns, agreed
        self._what = f"{label}, column {name!r} (logits)"
        if len(columns) > 1:
            self._what = f"{label}, columns {columns[0]!r} to {columns[-1]!r} (logits)"
        self._rows = 0
        self._own: tuple[int, int] | None = None  # the width, and the row that says so
        self._no_list: str | None = None
        self._other_length, self._not_finite = BadRows(), BadRows()

    @property
    def width(self) -> Width | None:
        """The width that all tables have; None if nobody knows yet."""
        if self._agreed is not None:
            return self._agreed
        if self._own is None or self._own[0] < FEWEST_CLASSES:
            return None
        return Width(numbers=self._own[0], where=self._label)

    def read(self, raw: Sequence[Any]) -> tuple[Matrix, Bad]:
        """The next rows, contiguous, and which of them cannot be used."""
        if len(raw) > 1:
            values = np.empty((len(raw[0]), len(raw)))
            for place, array in enumerate(raw):
                values[:, place] = to_numbers(array)
            lengths = np.full(len(values), len(raw), dtype=np.int64)
        else:
            values, lengths = self._lists(raw[0])
        self._own = self._own or self._first(lengths)
        width = 0 if self._own is None else self._own[0]
        short = (lengths != MISSING) & (lengths != width)
        wrong = (~np.isfinite(values).all(axis=1) | (lengths == MISSING)) & ~short
        self._other_length.add(self._rows, short, lambda row: str(int(lengths[row])))
        self._not_finite.add(self._rows, wrong, lambda row: self._entry(raw, values, row))
        self._rows += len(values)
        unusable = len(self._about_the_table()) > 0 or values.shape[1] != width
        return values, short | wrong | unusable

    def _lists(self, array: Any) -> tuple[Matrix, NDArray[np.int64]]:
        if not is_list(plain(array)) and not pa.types.is_null(array.type):
            self._no_list = self._no_list or f"{array.type}, such as {value_at(array, 0)}"
        lengths = lengths_of(array)
        width = first_length(lengths) if self._own is None else self._own[0]
        return matrix_of(array, lengths, width or 0), lengths

    def _first(self, lengths: NDArray[np.int64]) -> tuple[int, int] | None:
        there = lengths != MISSING
        row = int(np.argmax(there))
        return (int(lengths[row]), self._rows + row) if there.any() else None

    def _entry(self, raw: Sequence[Any], values: Matrix, row: int) -> str:
        """The first value of a row that is not a finite number, and where it is."""
        if len(raw) == 1 and lengths_of(raw[0].slice(row, 1))[0] == MISSING:
            return value_at(raw[0], row)
        place = int(np.argmax(~np.isfinite(values[row])))
        if len(raw) == 1:
            return f"{value_at(plain(raw[0])[row].values, place)} in place {place}"
        return f"{value_at(raw[place], row)} in column {self._columns[place]!r}"

    def findings(self) -> list[Finding]:
        """Everything found so far that makes the logits unusable."""
        found = self._about_the_table()
        if self._no_list is not None:
            return found
        if self._own is not None and self._other_length.count:
            width, row = self._own
            had = f"{self._other_length.value} where row {row} has {width}"
            got = self._other_length.sentence("of another length", self._rows, had)
            expected = "as many numbers in every row as there are classes"
            fix = "repair or remove these rows"
            found.append(error(what=self._what, got=got, expected=expected, fix=fix))
        if self._not_finite.count:
            got = self._not_finite.sentence("with a bad value", self._rows, self._not_finite.value)
            found.append(error(what=self._what, got=got, expected=EXPECTED, fix=FIX))
        return found

    def _about_the_table(self) -> list[Finding]:
        """What makes all rows unusable."""
        if self._no_list is not None:
            return [
                error(
                    what=self._what,
                    got=f"single values ({self._no_list})",
                    expected="a list of numbers in every row, one for each class",
                    fix="give a column of lists, or what the names of numbered columns (logit_0, logit_1, ..) "
                    "begin with",
                )
            ]
        if self._own is None:
            return []
        classes = self._own[0]
        if classes < FEWEST_CLASSES:
            got = f"{classes} number{'s' * (classes != 1)} in row {self._own[1]}"
            expected = f"at least {FEWEST_CLASSES}, one for each class"
            return [error(what=self._what, got=got, expected=expected, fix=ONE_LOGIT)]
        if self._agreed is not None and classes != self._agreed.numbers:
            expected = f"{self._agreed.numbers} as in {self._agreed.where}"
            fix = "export the logits of the same classes, in the same order, everywhere"
            got = f"{classes} logits in a row"
            return [error(what=self._what, got=got, expected=expected, fix=fix)]
        return []
