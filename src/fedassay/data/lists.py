"""Columns of lists as rows of numbers, and what makes some rows unlike the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedassay.data.numbers import Numbers, is_list, plain, to_numbers

Matrix = NDArray[np.float64]
Bad = NDArray[np.bool_]

MISSING = -1
"""The length of a list that is not there."""

_SMALL = 2**24


def lengths_of(array: Any) -> NDArray[np.int64]:
    """The number of entries of each row, -1 where there is no list."""
    array = plain(array)
    if not is_list(array):
        return np.full(len(array), MISSING, dtype=np.int64)
    lengths: NDArray[np.int64] = pc.fill_null(
        pc.cast(pc.list_value_length(array), pa.int64()), MISSING
    ).to_numpy()
    return lengths


def first_length(lengths: NDArray[np.int64]) -> int | None:
    """The length of the first list; None if there is none."""
    there = lengths != MISSING
    return int(lengths[np.argmax(there)]) if there.any() else None


def matrix_of(
    array: Any,
    lengths: NDArray[np.int64],
    width: int,
    *,
    numbers: Callable[[Any], Numbers] = to_numbers,
) -> Matrix:
    """The rows of this length; the others are NaN. Without columns if it would be much larger than the lists.

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


@dataclass(frozen=True, kw_only=True)
class Width:
    """How many numbers each row holds (logits, features), and which table says so.

    `columns` are that table's columns, where they are numbered and their names matter.
    """

    numbers: int
    where: str
    columns: tuple[str, ...] = ()


class BadRows:
    """How many rows have one defect, and the first of them."""

    def __init__(self) -> None:
        self.count, self.row, self.value = 0, 0, ""

    def add(self, start: int, bad: Bad, describe: Callable[[int], str]) -> None:
        """Take account of rows from number `start`; `describe` tells what is in one of them."""
        if bad.any():
            first = int(np.argmax(bad))
            if not self.count:
                self.row, self.value = start + first, describe(first)
            self.count += int(np.count_nonzero(bad))

    def sentence(self, defect: str, rows: int, value: str) -> str:
        """How many of so many rows, and the first."""
        these = "1 row" if self.count == 1 else f"{self.count} rows"
        return f"{these} {defect} in {rows} rows, the first in row {self.row} (counting from 0): {value}"
