"""Rows that are already in memory: mappings of arrays, pandas and polars frames, Arrow tables.

pandas and polars are recognised without being imported: a frame can only exist if its package does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedassay.data.numbers import values_per_row
from fedassay.data.tables import Table, Unreadable, batch_rows, reading
from fedassay.errors import DataError

_NOT_A_COLUMN = (str, bytes, bytearray, Mapping, set, frozenset)


@dataclass(frozen=True, kw_only=True)
class FrameTable(Table):
    """Columns in memory. `column` finds the one at a position of `names`."""

    column: Callable[[int], Any]

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """See `Table.batches`."""
        arrays = {name: self._arrow(name) for name in columns}
        lengths = {name: len(array) for name, array in arrays.items()}
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
            raise DataError(
                f"{self.label}: got columns of different lengths ({found}), expected one entry per row; "
                "give columns of equal length."
            )
        rows = batch_rows(sum(values_per_row(array) for array in arrays.values()))
        yield from pa.table(arrays).to_batches(max_chunksize=rows)

    def _arrow(self, name: str) -> Any:
        what = f"{self.label}, column {name!r}"
        with reading(what, fix="give a list, an array or a series"):
            return to_arrow(self.column(self.names.index(name)))


def frame_table(data: Any) -> FrameTable | None:
    """The table in `data`, or None if it is nothing that holds columns."""
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
    """One column as an Arrow array; values that Arrow cannot put under one type become text.

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
