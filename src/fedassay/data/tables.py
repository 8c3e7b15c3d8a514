"""What a table of rows is to us, and how errors while reading one are told.

A table can be read any number of times, column by column as needed, in batches: it may be larger than memory.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fedassay.errors import DataError, FedassayError

BATCH_ROWS = 2**17
"""The most rows in a batch: large enough to be fast, small enough for the cache of a core."""

BATCH_VALUES = 2**21
"""The most numbers in a batch, about: rows with a logit for each of many classes come in smaller batches."""


def batch_rows(width: int) -> int:
    """How many rows of so many numbers make a batch.

    Examples
    --------
    >>> batch_rows(1), batch_rows(1000), batch_rows(10**9)
    (131072, 2097, 1)
    """
    return max(1, min(BATCH_ROWS, BATCH_VALUES // max(1, width)))


@dataclass(frozen=True, kw_only=True)
class Table(ABC):
    """Rows with named columns. `label` is how errors call it; `names` may hold a name twice."""

    label: str
    names: tuple[str, ...]

    @abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """The named columns as `pyarrow.RecordBatch` objects, in the order of the rows.

        Each name must stand exactly once in `names`. Raises `DataError` where the table turns out to be
        unreadable.
        """

    def line_of(self, row: int) -> int | None:
        """The line of a text file in which a row begins, counted from 1 as editors do; None if there are no lines.

        May read the file once more: it is for errors.
        """
        return None


@dataclass(frozen=True, kw_only=True)
class NoRows(Table):
    """A file of zero bytes in a folder of sites: a site that had nothing to export."""

    names: tuple[str, ...] = ()

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Nothing."""
        return iter(())


class Unreadable(Exception):
    """What a reader of ours has found, for the sentence of `reading`."""


@contextmanager
def reading(label: str, *, fix: str) -> Iterator[None]:
    """Turn whatever a reader raises on a broken file into one sentence.

    Deliberately broad: readers raise dozens of types on damaged bytes. Only calls of readers belong inside.
    """
    try:
        yield
    except (FedassayError, MemoryError):
        raise
    except Exception as cause:
        raise DataError(f"{label}: got {_what_is_wrong(cause)}, expected rows; {fix}.") from cause


def _what_is_wrong(cause: Exception) -> str:
    """What a reader has found, in our words: its own may repeat a row."""
    if isinstance(cause, UnicodeDecodeError):
        return "bytes that are no text in UTF-8"
    columns = re.search(r"Expected (\d+) columns, got (\d+)", str(cause))
    if columns:
        return f"a row with {columns[2]} column{'s' * (columns[2] != '1')} under a header with {columns[1]}"
    if "magic bytes" in str(cause):
        return "a file that is not Parquet, or not all of one"
    if isinstance(cause, Unreadable):
        return f"something unreadable ({cause})"
    return "something unreadable"
