"""The features of each row, as one array of rows and features.

The user names them as several columns (``age,bmi,sex``), or, with a single name, as a column of lists (what a
two-dimensional array becomes, too) or by what the names of numbered columns begin with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.findings import Finding, error, value_at
from fedassay.data.lists import MISSING, Bad, BadRows, Matrix, Width, first_length, lengths_of, matrix_of
from fedassay.data.numbers import is_list, is_text, plain, to_truth
from fedassay.data.tally import FOR_GAPS, ColumnTally
from fedassay.errors import UsageError

MOST_FEATURES = 256
"""Every round of a fit sends the square of it."""

EXPECTED = "a finite number in every row"
FIX = "remove or repair these rows"
_CATEGORIES = "make 0/1 columns for categories"
_LIST_ALONE = "name a column of lists alone, or give each feature a column of its own"


def split_names(names: str) -> tuple[str, ...]:
    """The columns that the user names, separated by commas; blanks around them do not count.

    Raises `UsageError` for an empty name, a name that stands twice, and more names than a regression may have.

    Examples
    --------
    >>> split_names("age, bmi,sex")
    ('age', 'bmi', 'sex')
    """
    found = tuple(name.strip() for name in names.split(","))
    if not all(found):
        raise UsageError(
            f"features: got an empty name in {names[:80]!r}, expected names of columns separated by commas; "
            "remove the comma that is too many."
        )
    for place, name in enumerate(found):
        if name in found[:place]:
            raise UsageError(f"features: got {name!r} twice, expected each column once; name it once.")
    if len(found) > MOST_FEATURES:
        raise UsageError(
            f"features: got {len(found)} columns, expected at most {MOST_FEATURES}; leave some out."
        )
    return found


def list_names(name: str, width: int) -> tuple[str, ...]:
    """What the entries of a column of lists are called.

    Examples
    --------
    >>> list_names("x", 2)
    ('x[0]', 'x[1]')
    """
    return tuple(f"{name}[{place}]" for place in range(width))


def to_features(array: Any) -> tuple[Matrix, Bad]:
    """A column of numbers or of lists as rows and features, and which rows cannot be used.

    Truth values are 0 and 1. Rows that are not finite or not as long as the first one cannot be used.

    Examples
    --------
    >>> import pyarrow as pa
    >>> values, bad = to_features(pa.array([True, None, False]))
    >>> values.shape, bad.tolist()
    ((3, 1), [False, True, False])
    """
    if not is_list(plain(array)):
        values = to_truth(array)[:, None]
        return values, ~np.isfinite(values[:, 0])
    lengths = lengths_of(array)
    width = first_length(lengths) or 0
    values = matrix_of(array, lengths, width, numbers=to_truth)
    good = np.isfinite(values).all(axis=1) & (lengths == width) & (1 <= values.shape[1] <= MOST_FEATURES)
    return values, ~good


class FeaturesReader:
    """Turns the features of one table into arrays, batch by batch, and keeps what was wrong with each column.

    `names` is what the user named, `columns` what the table has of it: some of several names, the one column, or all
    numbered columns. A column that is missing makes all rows unusable. `agreed` is the width of the other tables, if
    it is known and matters.
    """

    def __init__(
        self, *, label: str, names: tuple[str, ...], columns: tuple[str, ...], agreed: Width | None
    ) -> None:
        self._label, self._names, self._columns, self._agreed = label, names, columns, agreed
        self._what = f"{label}, column {names[0]!r} (features)"
        self._numbered = len(names) == 1 and columns != names
        self._tallies = tuple(
            ColumnTally(
                what=f"{label}, column {name!r} (feature)", expected=EXPECTED, fix=FIX, for_gaps=FOR_GAPS
            )
            for name in columns
        )
        self._rows = 0
        self._own: tuple[int, int] | None = None  # the width, and the row that says so
        self._other_length, self._not_finite = BadRows(), BadRows()

    @property
    def width(self) -> Width | None:
        """The width that all tables have; None if nobody knows yet, or the names themselves say it."""
        if len(self._names) > 1 or self._agreed is not None:
            return self._agreed
        if self._own is None or self._about_the_table():
            return None
        columns = self._columns if self._numbered else ()
        return Width(numbers=self._own[0], where=self._label, columns=columns)

    def read(self, raw: Sequence[Any]) -> tuple[Matrix, Bad]:
        """The next rows, contiguous, and which of them cannot be used."""
        lists = self._columns == self._names and len(raw) == 1 and is_list(plain(raw[0]))
        values, bad = self._read_lists(raw[0]) if lists else self._read_columns(raw)
        self._rows += len(values)
        return values, bad | (len(self._about_the_table()) > 0)

    def _read_columns(self, raw: Sequence[Any]) -> tuple[Matrix, Bad]:
        """One number in each of the columns."""
        wanted = self._columns if self._numbered else self._names
        values = np.full((len(raw[0]), len(wanted)), np.nan)
        for name, array, tally in zip(self._columns, raw, self._tallies, strict=True):
            numbers = to_truth(array)
            bad = ~np.isfinite(numbers)
            if tally.clean and bad.any():
                tally.advise(_advice(array, numbers, int(np.argmax(bad))))
            tally.add(array, bad)
            values[:, wanted.index(name)] = numbers
        self._own = self._own or (len(wanted), 0)
        # A database may answer with lists first and single numbers later.
        short = np.full(len(values), self._own[0] != len(wanted))
        self._other_length.add(self._rows, short, lambda _: str(len(wanted)))
        return values, short | ~np.isfinite(values).all(axis=1)

    def _read_lists(self, array: Any) -> tuple[Matrix, Bad]:
        """All numbers of a row in one list."""
        lengths = lengths_of(array)
        there = lengths != MISSING
        if self._own is None and there.any():
            row = int(np.argmax(there))
            self._own = int(lengths[row]), self._rows + row
        width = 0 if self._own is None else self._own[0]
        values = matrix_of(array, lengths, width, numbers=to_truth)
        short = there & (lengths != width)
        wrong = (~np.isfinite(values).all(axis=1) | ~there) & ~short
        self._other_length.add(self._rows, short, lambda row: str(int(lengths[row])))
        self._not_finite.add(self._rows, wrong, lambda row: self._entry(array, values, lengths, row))
        return values, short | wrong | (values.shape[1] != width)

    def _entry(self, array: Any, values: Matrix, lengths: NDArray[np.int64], row: int) -> str:
        """The first value of a list that is not a finite number, and which one it is."""
        if lengths[row] == MISSING:
            return value_at(array, row)
        place = int(np.argmax(~np.isfinite(values[row])))
        return f"{value_at(plain(array)[row].values, place)} in {self._names[0]}[{place}]"

    def findings(self) -> list[Finding]:
        """Everything found so far that makes the features unusable."""
        found = self._about_the_table()
        if self._own is not None and self._other_length.count:
            width, row = self._own
            had = f"{self._other_length.value} where row {row} has {width}"
            got = self._other_length.sentence("of another length", self._rows, had)
            expected = "as many numbers in every row as there are features"
            found.append(error(what=self._what, got=got, expected=expected, fix=FIX))
        if self._not_finite.count:
            got = self._not_finite.sentence("with a bad value", self._rows, self._not_finite.value)
            expected = "finite numbers in every row, one for each feature"
            found.append(error(what=self._what, got=got, expected=expected, fix=FIX))
        bad = [tally.finding() for tally in self._tallies]
        return found + [finding for finding in bad if finding is not None]

    def _about_the_table(self) -> list[Finding]:
        """What makes all rows unusable."""
        if self._own is None or len(self._names) > 1:
            return []
        width, row = self._own
        if not 1 <= width <= MOST_FEATURES:
            got = f"{width} numbers in row {row}"
            fix = "give a column for each feature" if width == 0 else "leave some out"
            expected = f"1 to {MOST_FEATURES}, one for each feature"
            return [error(what=self._what, got=got, expected=expected, fix=fix)]
        agreed = self._agreed
        if agreed is not None and width != agreed.numbers:
            got = f"{width} feature{'s' * (width != 1)} in a row"
            return [self._unlike(got, f"{agreed.numbers} as in {agreed.where}")]
        if agreed is not None and self._numbered and agreed.columns not in ((), self._columns):
            got, expected = (f"{c[0]!r} to {c[-1]!r}" for c in (self._columns, agreed.columns))
            return [self._unlike(got, f"{expected} as in {agreed.where}")]
        return []

    def _unlike(self, got: str, expected: str) -> Finding:
        fix = "export the same features, in the same order and with the same names, everywhere"
        return error(what=self._what, got=got, expected=expected, fix=fix)


def _advice(array: Any, numbers: NDArray[np.float64], row: int) -> str:
    """What to do about a value that is no finite number."""
    if is_list(plain(array)):
        return _LIST_ALONE
    word = is_text(plain(array)) and np.isnan(numbers[row]) and array[row].is_valid
    return _CATEGORIES if word else FIX
