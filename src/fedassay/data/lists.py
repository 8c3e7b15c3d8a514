"""Columns of lists as rows of numbers, and the defects of rows that differ from the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedassay.data.findings import Finding, error
from fedassay.data.numbers import Numbers, is_list, plain, to_numbers

Matrix = NDArray[np.float64]
Bad = NDArray[np.bool_]

MISSING = -1
"""Length of a list that is missing."""

_SMALL = 2**24


def lengths_of(array: Any) -> NDArray[np.int64]:
    """Return the number of entries of each row, -1 where there is no list."""
    array = plain(array)
    if not is_list(array):
        return np.full(len(array), MISSING, dtype=np.int64)
    lengths: NDArray[np.int64] = pc.fill_null(
        pc.cast(pc.list_value_length(array), pa.int64()), MISSING
    ).to_numpy()
    return lengths


def first_length(lengths: NDArray[np.int64]) -> int | None:
    """Return the length of the first list; None if there is none."""
    there = lengths != MISSING
    return int(lengths[np.argmax(there)]) if there.any() else None


def matrix_of(
    array: Any, lengths: NDArray[np.int64], width: int, *, numbers: Callable[[Any], Numbers] = to_numbers
) -> Matrix:
    """Return the rows of this length; the others are NaN.

    The result has no columns if it would be much larger than the lists.

    `numbers` says what an entry counts as.
    """
    shape, fits = (len(lengths), width), lengths == width
    there = int(np.maximum(lengths, 0).sum())
    if len(lengths) * width > max(_SMALL, 2 * there):
        return np.empty((len(lengths), 0))
    if not fits.any():
        return np.full(shape, np.nan)
    # Only the entries of rows that are there, in the order of the rows.
    entries = numbers(plain(array).flatten())
    if fits.all():
        return entries.reshape(shape)
    values = np.full(shape, np.nan)
    values[fits] = entries[np.repeat(fits, np.maximum(lengths, 0))].reshape(np.count_nonzero(fits), width)
    return values


# --- one role in several columns ----------------------------------------------------------------------------

_TAIL = re.compile(r"(?P<stem>.*?)(?P<digits>[0-9]{1,9})", re.DOTALL)

FEWEST_CLASSES = 2
ONE_LOGIT = "export one logit for each class (the single logit z of a binary model is the pair 0, z)"
"""Fix where there is a single logit."""


@dataclass(frozen=True, kw_only=True)
class _Numbered:
    name: str
    stem: str
    digits: str

    @property
    def number(self) -> int:
        return int(self.digits)


def numbered_columns(beginning: str, existing: Sequence[str]) -> tuple[str, ...]:
    """Return the columns called `beginning`, perhaps an underscore, and a number, in the order of the numbers.

    Examples
    --------
    >>> numbered_columns("logit", ["logit_10", "logit_9", "y", "logits"])
    ('logit_9', 'logit_10')
    """
    return tuple(column.name for column in _found(beginning, existing))


def beginnings(existing: Sequence[str]) -> tuple[str, ...]:
    """Return the beginnings of the names of at least two numbered columns, without the underscore.

    Examples
    --------
    >>> beginnings(["logit_0", "logit_1", "y", "x7", "12"])
    ('logit',)
    """
    matches = (_TAIL.fullmatch(name) for name in existing)
    found = Counter(match["stem"].removesuffix("_") for match in matches if match is not None)
    return tuple(stem for stem, columns in found.items() if stem and columns >= FEWEST_CLASSES)


def _found(beginning: str, existing: Sequence[str]) -> list[_Numbered]:
    stems = (beginning, beginning + "_")
    matches = ((name, _TAIL.fullmatch(name)) for name in existing if name.startswith(beginning))
    found = [_Numbered(name=name, **match.groupdict()) for name, match in matches if match is not None]
    return sorted((one for one in found if one.stem in stems), key=lambda one: one.number)


def numbering_problem(
    beginning: str,
    existing: Sequence[str],
    *,
    what: str,
    one: str = "logit",
    each: str = "class",
    fewest: int = FEWEST_CLASSES,
) -> Finding | None:
    """Return why these numbered columns cannot be used: a gap, a number twice, too few. None if they can.

    `one` names the content of a column, `each` the thing that has one column.

    Examples
    --------
    >>> print(numbering_problem("z", ["z1", "z2", "z4"], what="columns 'z'").sentence())
    columns 'z': got 'z4' but no 'z3', expected numbers without a gap from 0 or 1; add it, or rename what is no logit.
    """
    columns = _found(beginning, existing)
    numbers = [column.number for column in columns]
    names = [column.name for column in columns]
    for i in range(1, len(columns)):
        if numbers[i] == numbers[i - 1]:
            return error(
                what=what,
                got=f"{names[i - 1]!r} and {names[i]!r} with one number",
                expected=f"one column for each {each}",
                fix="rename or remove one of them",
            )
    start = min(numbers[0], 1)
    for place, column in enumerate(columns, start):
        if column.number != place:
            missing = column.stem + str(place).zfill(len(columns[0].digits))
            return error(
                what=what,
                got=f"{column.name!r} but no {missing!r}",
                expected="numbers without a gap from 0 or 1",
                fix=f"add it, or rename what is no {one}",
            )
    if len(columns) < fewest:
        return error(
            what=what,
            got=f"{names[0]!r} alone",
            expected=f"at least {fewest} columns, one for each {each}",
            fix=ONE_LOGIT,
        )
    return None


# --- what makes some rows unlike the others -----------------------------------------------------------------


class Width(NamedTuple):
    """Number of values that each row holds (logits, features), and the table that says so.

    `columns` are that table's columns, where they are numbered and their names matter.
    """

    numbers: int
    where: str
    columns: tuple[str, ...] = ()


class BadRows:
    """Number of rows with one defect, and the first of them."""

    def __init__(self) -> None:
        self.count, self.row, self.value = 0, 0, ""

    def add(self, start: int, bad: Bad, describe: Callable[[int], str]) -> None:
        """Take account of rows from number `start`; `describe` gives the content of one of them."""
        if bad.any():
            first = int(np.argmax(bad))
            if not self.count:
                self.row, self.value = start + first, describe(first)
            self.count += int(np.count_nonzero(bad))

    def sentence(self, defect: str, rows: int, value: str) -> str:
        """Return a sentence with the number of these rows out of all `rows`, and the first."""
        these = "1 row" if self.count == 1 else f"{self.count} rows"
        return f"{these} {defect} in {rows} rows, the first in row {self.row} (counting from 0): {value}"


class WideReader:
    """Reader that turns the columns of a table with several numbers a row into one array, batch by batch.

    It keeps what was wrong with them. The first row that has numbers says how many there are.

    Parameters
    ----------
    label, what : how errors call the table, and its columns.
    agreed : the width of the other tables, if it is known and matters.
    """

    each: tuple[str, str]
    """Names of the thing that a row holds a number for, in the singular and the plural."""
    fixes: tuple[str, str]
    """Fixes for rows of another length, and for values that are no finite numbers."""
    numbers: Callable[[Any], Numbers] = staticmethod(to_numbers)
    """Function from the entries of a list to numbers."""

    def __init__(self, *, label: str, what: str, agreed: Width | None) -> None:
        self._label, self._what, self._agreed = label, what, agreed
        self._rows = 0
        self._own: tuple[int, int] | None = None  # the width, and the row that says so
        self._other_length, self._not_finite = BadRows(), BadRows()

    def _lists(self, array: Any) -> tuple[Matrix, NDArray[np.int64]]:
        """Return the rows of a column of lists, as wide as the first one, and the length of each."""
        lengths = lengths_of(array)
        width = first_length(lengths) if self._own is None else self._own[0]
        return matrix_of(array, lengths, width or 0, numbers=type(self).numbers), lengths

    def _judged(self, values: Matrix, lengths: NDArray[np.int64], entry: Callable[[int], str]) -> Bad:
        """Mark the rows that cannot be used; `entry` gives the content of one that is not finite."""
        there = lengths != MISSING
        if self._own is None and there.any():
            row = int(np.argmax(there))
            self._own = int(lengths[row]), self._rows + row
        width = 0 if self._own is None else self._own[0]
        short = there & (lengths != width)
        wrong = (~np.isfinite(values).all(axis=1) | ~there) & ~short
        self._other_length.add(self._rows, short, lambda row: str(int(lengths[row])))
        self._not_finite.add(self._rows, wrong, entry)
        return np.asarray(short | wrong | (values.shape[1] != width))

    def findings(self) -> list[Finding]:
        """Return everything found so far that makes these columns unusable."""
        found = self._about_the_table()
        if self._own is not None and self._other_length.count:
            width, row = self._own
            had = f"{self._other_length.value} where row {row} has {width}"
            got = self._other_length.sentence("of another length", self._rows, had)
            expected = f"as many numbers in every row as there are {self.each[1]}"
            found.append(error(what=self._what, got=got, expected=expected, fix=self.fixes[0]))
        if self._not_finite.count:
            got = self._not_finite.sentence("with a bad value", self._rows, self._not_finite.value)
            expected = f"finite numbers in every row, one for each {self.each[0]}"
            found.append(error(what=self._what, got=got, expected=expected, fix=self.fixes[1]))
        return found

    def _about_the_table(self) -> list[Finding]:
        """Return the findings that make all rows unusable."""
        raise NotImplementedError
