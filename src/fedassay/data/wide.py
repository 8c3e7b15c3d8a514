"""Columns that hold several numbers a row: the scores of all classes, and the features of a regression.

They come as a column of lists (what a two-dimensional array becomes, too), as numbered columns, or features as several
columns that the user names (``age,bmi,sex``). Whatever they come as, rows are never looked at one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedassay.data.findings import FOR_GAPS, ColumnTally, Finding, Severity, error, value_at, warning
from fedassay.data.lists import (
    FEWEST_CLASSES,
    MISSING,
    ONE_LOGIT,
    Bad,
    Matrix,
    WideReader,
    Width,
    first_length,
    lengths_of,
    matrix_of,
)
from fedassay.data.numbers import Numbers, is_list, is_text, plain, to_numbers, to_truth
from fedassay.errors import UsageError

# --- the scores of all classes ------------------------------------------------------------------------------

SUM_TOLERANCE = 1e-3
"""Largest difference between the sum of a row's probabilities and 1."""

EXPECTED_LOGITS = "finite numbers in every row, one for each class"
FIX_LOGITS = "remove or repair these rows (a probability of 0 has no logarithm: give a tiny one instead)"


def looks_like_probabilities(logits: NDArray[Any]) -> bool:
    """Return whether every row is made of numbers from 0 that sum to 1: probabilities, most likely, not logits.

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
    """Return the warning for a table whose column (or columns) of this name `looks_like_probabilities`."""
    return warning(
        what=f"{label}, column {name!r} (logits)",
        got="numbers from 0 that sum to 1 in every row, probabilities by their looks",
        expected="logits",
        fix="give the logarithms of the probabilities, which are logits of the same model",
    )


def probabilities_error(label: str, name: str) -> Finding:
    """Return the error where no logits are used: of probabilities taken for logits, every metric would be wrong."""
    return replace(probabilities_warning(label, name), severity=Severity.ERROR)


def to_matrix(array: Any) -> tuple[Matrix, Bad]:
    """Convert a column of lists to rows and classes, and mark the rows that cannot be used.

    Those that are not as long as the first one or not finite cannot, and none if that one is too short.

    Examples
    --------
    >>> values, bad = to_matrix(pa.array([[0.5, 1.0], [2.0], [3.0, None]]))
    >>> values.shape, bad.tolist()
    ((3, 2), [False, True, True])
    """
    values, good = _of_one_length(array, to_numbers)
    return values, ~good | (values.shape[1] < FEWEST_CLASSES)


def _of_one_length(array: Any, numbers: Callable[[Any], Numbers]) -> tuple[Matrix, Bad]:
    """Return the rows of a column of lists, and which of them are finite and as long as the first one."""
    lengths = lengths_of(array)
    width = first_length(lengths) or 0
    values = matrix_of(array, lengths, width, numbers=numbers)
    return values, np.isfinite(values).all(axis=1) & (lengths == width)


class LogitsReader(WideReader):
    """Reader of logits: `columns` is the one column of lists, or all numbered columns."""

    each = ("class", "classes")
    fixes = ("repair or remove these rows", FIX_LOGITS)

    def __init__(self, *, label: str, name: str, columns: tuple[str, ...], agreed: Width | None) -> None:
        what = f"{label}, column {name!r} (logits)"
        if len(columns) > 1:
            what = f"{label}, columns {columns[0]!r} to {columns[-1]!r} (logits)"
        super().__init__(label=label, what=what, agreed=agreed)
        self._columns = columns
        self._no_list: str | None = None

    @property
    def width(self) -> Width | None:
        """Width that all tables have; None if it is not known yet."""
        if self._agreed is not None:
            return self._agreed
        if self._own is None or self._own[0] < FEWEST_CLASSES:
            return None
        return Width(numbers=self._own[0], where=self._label)

    def read(self, raw: Sequence[Any]) -> tuple[Matrix, Bad]:
        """Return the next rows, contiguous, and which of them cannot be used."""
        if len(raw) > 1:
            values = np.empty((len(raw[0]), len(raw)))
            for place, array in enumerate(raw):
                values[:, place] = to_numbers(array)
            lengths = np.full(len(values), len(raw), dtype=np.int64)
        else:
            if not is_list(plain(raw[0])) and not pa.types.is_null(raw[0].type):
                self._no_list = self._no_list or f"{raw[0].type}, such as {value_at(raw[0], 0)}"
            values, lengths = self._lists(raw[0])
        bad = self._judged(values, lengths, lambda row: self._entry(raw, values, row))
        self._rows += len(values)
        return values, bad | (len(self._about_the_table()) > 0)

    def _entry(self, raw: Sequence[Any], values: Matrix, row: int) -> str:
        """Return the first value of a row that is not a finite number, and where it is."""
        if len(raw) == 1 and lengths_of(raw[0].slice(row, 1))[0] == MISSING:
            return value_at(raw[0], row)
        place = int(np.argmax(~np.isfinite(values[row])))
        if len(raw) == 1:
            return f"{value_at(plain(raw[0])[row].values, place)} in place {place}"
        return f"{value_at(raw[place], row)} in column {self._columns[place]!r}"

    def findings(self) -> list[Finding]:
        """See `WideReader`."""
        return super().findings() if self._no_list is None else self._about_the_table()

    def _about_the_table(self) -> list[Finding]:
        if self._no_list is not None:
            got = f"single values ({self._no_list})"
            expected = "a list of numbers in every row, one for each class"
            fix = "give a column of lists, or what the names of numbered columns (logit_0, logit_1, ..) begin with"
            return [error(what=self._what, got=got, expected=expected, fix=fix)]
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
            return [error(what=self._what, got=f"{classes} logits in a row", expected=expected, fix=fix)]
        return []


# --- the features of a regression ---------------------------------------------------------------------------

MOST_FEATURES = 256
"""Largest number of features: every round of a fit sends the square of it."""

EXPECTED_FEATURES = "a finite number in every row"
FIX_FEATURES = "remove or repair these rows"
_CATEGORIES = "make 0/1 columns for categories"
_LIST_ALONE = "name a column of lists alone, or give each feature a column of its own"


def split_names(names: str) -> tuple[str, ...]:
    """Return the columns that the user names, separated by commas; blanks around them do not count.

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
    """Return the names of the entries of a column of lists.

    Examples
    --------
    >>> list_names("x", 2)
    ('x[0]', 'x[1]')
    """
    return tuple(f"{name}[{place}]" for place in range(width))


def to_features(array: Any) -> tuple[Matrix, Bad]:
    """Convert a column of numbers or of lists to rows and features, and mark the rows that cannot be used.

    Truth values are 0 and 1. Rows that are not finite or not as long as the first one cannot be used.

    Examples
    --------
    >>> values, bad = to_features(pa.array([True, None, False]))
    >>> values.shape, bad.tolist()
    ((3, 1), [False, True, False])
    """
    if not is_list(plain(array)):
        values = to_truth(array)[:, None]
        return values, ~np.isfinite(values[:, 0])
    values, good = _of_one_length(array, to_truth)
    return values, ~(good & (1 <= values.shape[1] <= MOST_FEATURES))


class FeaturesReader(WideReader):
    """Reader of features: the user names several columns, or one of lists, or the stem of numbered ones.

    `names` is what the user named, `columns` what the table has of it: some of several names, the one column, or all
    numbered columns. A column that is missing makes all rows unusable.
    """

    each = ("feature", "features")
    fixes = (FIX_FEATURES, FIX_FEATURES)
    numbers = staticmethod(to_truth)

    def __init__(
        self, *, label: str, names: tuple[str, ...], columns: tuple[str, ...], agreed: Width | None
    ) -> None:
        super().__init__(label=label, what=f"{label}, column {names[0]!r} (features)", agreed=agreed)
        self._names, self._columns = names, columns
        self._numbered = len(names) == 1 and columns != names
        self._tallies = tuple(
            ColumnTally(
                what=f"{label}, column {name!r} (feature)",
                expected=EXPECTED_FEATURES,
                fix=FIX_FEATURES,
                for_gaps=FOR_GAPS,
            )
            for name in columns
        )

    @property
    def width(self) -> Width | None:
        """Width that all tables have; None if it is not known yet, or if the names themselves say it."""
        if len(self._names) > 1 or self._agreed is not None:
            return self._agreed
        if self._own is None or self._about_the_table():
            return None
        columns = self._columns if self._numbered else ()
        return Width(numbers=self._own[0], where=self._label, columns=columns)

    def read(self, raw: Sequence[Any]) -> tuple[Matrix, Bad]:
        """Return the next rows, contiguous, and which of them cannot be used."""
        if self._columns == self._names and len(raw) == 1 and is_list(plain(raw[0])):
            values, lengths = self._lists(raw[0])
            bad = self._judged(values, lengths, lambda row: self._entry(raw[0], values, lengths, row))
        else:
            values, bad = self._read_columns(raw)
        self._rows += len(values)
        return values, bad | (len(self._about_the_table()) > 0)

    def _read_columns(self, raw: Sequence[Any]) -> tuple[Matrix, Bad]:
        """Read one number in each of the columns."""
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

    def _entry(self, array: Any, values: Matrix, lengths: NDArray[np.int64], row: int) -> str:
        """Return the first value of a list that is not a finite number, and which one it is."""
        if lengths[row] == MISSING:
            return value_at(array, row)
        place = int(np.argmax(~np.isfinite(values[row])))
        return f"{value_at(plain(array)[row].values, place)} in {self._names[0]}[{place}]"

    def findings(self) -> list[Finding]:
        """See `WideReader`."""
        bad = [tally.finding() for tally in self._tallies]
        return super().findings() + [finding for finding in bad if finding is not None]

    def _about_the_table(self) -> list[Finding]:
        if self._own is None or len(self._names) > 1:
            return []
        width, row = self._own
        if not 1 <= width <= MOST_FEATURES:
            fix = "give a column for each feature" if width == 0 else "leave some out"
            expected = f"1 to {MOST_FEATURES}, one for each feature"
            return [error(what=self._what, got=f"{width} numbers in row {row}", expected=expected, fix=fix)]
        agreed, fix = (
            self._agreed,
            "export the same features, in the same order and with the same names, everywhere",
        )
        if agreed is not None and width != agreed.numbers:
            got, expected = f"{width} feature{'s' * (width != 1)} in a row", str(agreed.numbers)
        elif agreed is not None and self._numbered and agreed.columns not in ((), self._columns):
            got, expected = (f"{c[0]!r} to {c[-1]!r}" for c in (self._columns, agreed.columns))
        else:
            return []
        return [error(what=self._what, got=got, expected=f"{expected} as in {agreed.where}", fix=fix)]


def _advice(array: Any, numbers: Numbers, row: int) -> str:
    """Return the fix for a value that is no finite number."""
    if is_list(plain(array)):
        return _LIST_ALONE
    word = is_text(plain(array)) and np.isnan(numbers[row]) and array[row].is_valid
    return _CATEGORIES if word else FIX_FEATURES
