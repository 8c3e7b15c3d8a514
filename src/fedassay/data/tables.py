"""Tables of rows, read in batches from a file or from data frames, and the errors of reading one.

Tables of rows, and how errors while reading them are reported.

A table can be read any number of times, column by column as needed, in batches: it may be larger than memory.

Rows that are already in memory: mappings of arrays, pandas and polars frames, Arrow tables.

pandas and polars are recognised without being imported: a frame can only exist if its package does.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedassay.data.numbers import values_per_row
from fedassay.data.schema import CLIENT
from fedassay.errors import DataError, FedassayError
from fedassay.protocol.vocabulary import Batch, Rows

BATCH_ROWS = 2**17
"""Largest number of rows in a batch: large enough to be fast, small enough for the cache of a core."""

BATCH_VALUES = 2**21
"""Largest number of values in a batch, about: rows with many logits come in smaller batches."""


def batch_rows(width: int) -> int:
    """Return the number of rows of this width that make a batch.

    Examples
    --------
    >>> batch_rows(1), batch_rows(1000), batch_rows(10**9)
    (131072, 2097, 1)
    """
    return max(1, min(BATCH_ROWS, BATCH_VALUES // max(1, width)))


@dataclass(frozen=True, kw_only=True)
class Table(ABC):
    """Rows with named columns. `label` is its name in errors; `names` may hold a name twice."""

    label: str
    names: tuple[str, ...]

    @abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield the named columns as `pyarrow.RecordBatch` objects, in the order of the rows.

        Each name must stand exactly once in `names`. Raises `DataError` where the table turns out to be
        unreadable.
        """

    def require_equal(self, what: str, lengths: Mapping[str, int], *, verb: str) -> None:
        """Refuse columns (or what they are called here) of different lengths."""
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
            raise DataError(
                f"{self.label}: got {what} of different lengths ({found}), expected one entry per row; "
                f"{verb} {what} of equal length."
            )

    def line_of(self, row: int) -> int | None:
        """Return the line of a text file in which a row begins, counted from 1; None if there are no lines.

        May read the file once more: it is for errors.
        """
        return None


@dataclass(frozen=True, kw_only=True)
class NoRows(Table):
    """A file of zero bytes in a folder of sites: a site that had nothing to export."""

    names: tuple[str, ...] = ()

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield nothing."""
        return iter(())


class Unreadable(Exception):
    """Finding of a reader of this package, for the sentence of `reading`."""


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
    """Describe in our words what a reader has found: its own may repeat a row."""
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


# --- rows that can be read more than once -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ArrayRows:
    """Columns of equal length in memory, handed out in slices (views, not copies)."""

    columns: Mapping[str, NDArray[Any]] = field(repr=False)

    def batches(self) -> Iterator[Batch]:
        """See `protocol.Rows`."""
        length = batch_length(self.columns)
        step = batch_rows(
            max((int(np.prod(column.shape[1:])) for column in self.columns.values()), default=1)
        )
        for start in range(0, length, step):
            yield {name: column[start : start + step] for name, column in self.columns.items()}


@dataclass(frozen=True, kw_only=True)
class StreamedRows:
    """Rows that are read anew each time. `read` starts a pass."""

    read: Callable[[], Iterator[Batch]] = field(repr=False)

    def batches(self) -> Iterator[Batch]:
        """See `protocol.Rows`."""
        return self.read()


@dataclass(frozen=True, kw_only=True)
class DerivedRows:
    """Other rows, passed through `change`, which sees each pass from its first batch to its last."""

    rows: Rows = field(repr=False)
    change: Callable[[Iterator[Batch]], Iterator[Batch]] = field(repr=False)

    def batches(self) -> Iterator[Batch]:
        """See `protocol.Rows`."""
        return self.change(self.rows.batches())


@dataclass(frozen=True, kw_only=True)
class PooledRows:
    """The rows of all clients together.

    `batches` gives the columns alone. `by_client` adds, in a column ``client``, the position in `clients` of
    the client that each row belongs to, for uses that treat clients apart.
    """

    clients: Sequence[str] = field(repr=False)
    rows: Rows = field(repr=False)
    by_client: Rows = field(repr=False)

    def batches(self) -> Iterator[Batch]:
        """See `protocol.Rows`."""
        return self.rows.batches()

    def changed(self, change: Callable[[Iterator[Batch]], Iterator[Batch]]) -> PooledRows:
        """Return these rows passed through `change`, which sees the column ``client``."""
        by_client = DerivedRows(rows=self.by_client, change=change)
        rows = DerivedRows(rows=by_client, change=_without_clients)
        return PooledRows(clients=self.clients, rows=rows, by_client=by_client)


def _without_clients(batches: Iterator[Batch]) -> Iterator[Batch]:
    for batch in batches:
        yield {name: column for name, column in batch.items() if name != CLIENT}


def batch_length(batch: Batch) -> int:
    """Return the number of rows in a batch."""
    return len(next(iter(batch.values()))) if batch else 0


def kept(batch: Batch, keep: NDArray[np.bool_]) -> Batch:
    """Return the rows of the batch where `keep` is true."""
    return {name: column[keep] for name, column in batch.items()}


def count_rows(rows: Rows) -> int:
    """Count the rows by reading them."""
    return sum(batch_length(batch) for batch in rows.batches())


# --- rows that are already in memory ------------------------------------------------------------------------

_NOT_A_COLUMN = (str, bytes, bytearray, Mapping, set, frozenset)


@dataclass(frozen=True, kw_only=True)
class FrameTable(Table):
    """Columns in memory. `column` finds the one at a position of `names`."""

    column: Callable[[int], Any]

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """See `Table.batches`."""
        arrays = {name: self._arrow(name) for name in columns}
        self.require_equal("columns", {name: len(array) for name, array in arrays.items()}, verb="give")
        rows = batch_rows(sum(values_per_row(array) for array in arrays.values()))
        yield from pa.table(arrays).to_batches(max_chunksize=rows)

    def _arrow(self, name: str) -> Any:
        what = f"{self.label}, column {name!r}"
        with reading(what, fix="give a list, an array or a series"):
            return to_arrow(self.column(self.names.index(name)))


def frame_table(data: Any) -> FrameTable | None:
    """Return the table in `data`, or None if it is nothing that holds columns."""
    if isinstance(data, Mapping):
        values = list(data.values())
        return FrameTable(
            label="the mapping of columns", names=tuple(str(key) for key in data), column=values.__getitem__
        )
    if _is_a(data, "pandas", "DataFrame"):
        return FrameTable(
            label="the data frame",
            names=tuple(str(name) for name in data.columns),
            column=lambda position: data.iloc[:, position],
        )
    if _is_a(data, "polars", "DataFrame"):
        return FrameTable(label="the data frame", names=tuple(data.columns), column=data.to_series)
    if isinstance(data, pa.Table | pa.RecordBatch):
        return FrameTable(label="the Arrow table", names=tuple(data.schema.names), column=data.column)
    if hasattr(data, "__arrow_c_stream__"):
        # A stream can be read once only, our rows more than once: keep it.
        with reading("the Arrow stream", fix="give a table, or write the stream to a .parquet file first"):
            table = pa.table(data)
        return FrameTable(label="the Arrow stream", names=tuple(table.schema.names), column=table.column)
    return None


def _is_a(data: Any, package: str, name: str) -> bool:
    module = sys.modules.get(package)
    return module is not None and isinstance(data, getattr(module, name))


def to_arrow(values: Any) -> Any:
    """Convert one column to an Arrow array; values that Arrow cannot put under one type become text.

    Text keeps every value visible, so that the check of the column's role can say which row is wrong; of lists
    it is the entries that become text. A two-dimensional array becomes a column of lists. Raises `TypeError` for
    what is no column at all.

    Examples
    --------
    >>> to_arrow([0.5, "n/a", None]).to_pylist()
    ['0.5', 'n/a', None]
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, np.ndarray):
        return _from_numpy(values)
    if isinstance(values, _NOT_A_COLUMN) or not hasattr(values, "__len__"):
        raise Unreadable(f"a {type(values).__name__} is not one entry per row")
    if _is_a(values, "polars", "Series"):
        # Python objects would be exported as the bytes of their addresses.
        if str(values.dtype) == "Object":
            return _from_objects(values.to_list())
        return _or_text(lambda: pa.chunked_array(values), values)
    if _is_a(values, "pandas", "Series") and values.dtype != object:
        return _or_text(lambda: pa.array(values, from_pandas=True), values)
    if isinstance(values, list | tuple):
        return _from_objects(values)
    return _from_numpy(np.asarray(values))


def _from_objects(values: Sequence[Any]) -> Any:
    # Some mixtures of NumPy's scalars (a NaT without a unit and a float32) crash Arrow's type inference.
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    return _or_text(lambda: pa.array(plain, from_pandas=True), plain)


def _or_text(convert: Callable[[], Any], values: Any) -> Any:
    try:
        return convert()
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):
        several = [_is_several(value) for value in values]
        if any(several) and all(s or _text(value) is None for s, value in zip(several, values, strict=True)):
            lists = [list(map(_text, value)) if s else None for s, value in zip(several, values, strict=True)]
            return pa.array(lists, pa.large_list(pa.large_string()))
        return pa.array([_text(value) for value in values], pa.large_string())


def _is_several(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _text(value: Any) -> str | None:
    missing = value is None or type(value).__name__ in {"NAType", "NaTType"}
    if missing or (isinstance(value, float) and value != value):
        return None
    return str(value).encode("utf-8", "replace").decode()


def _from_numpy(values: NDArray[Any]) -> Any:
    if not 1 <= values.ndim <= 2:
        raise Unreadable(f"an array of {values.ndim} dimensions is not one entry per row")
    if values.ndim == 2 and values.shape[1] == 0:
        return pa.array([[]] * len(values), pa.list_(pa.float64()))
    if values.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(_from_numpy(values.reshape(-1)), values.shape[1])
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values)
        return _or_text(lambda: pa.array(values.data, mask=mask), values.tolist())
    if values.dtype == np.longdouble:
        values = values.astype(np.float64)
    if values.dtype.hasobject:
        return _from_objects(values.tolist())
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    return _or_text(lambda: pa.array(native), native)
