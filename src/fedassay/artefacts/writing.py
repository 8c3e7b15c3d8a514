"""Batches of rows as a Parquet or CSV file that is complete or not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

from fedassay.data.numbers import is_list, plain
from fedassay.errors import DataError, UsageError
from fedassay.files import replacement

PARQUET, CSV = ".parquet", ".csv"

_NO_FIT = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError)


def checked_target(target: Path, *, overwrite: bool) -> Path:
    """Refuse a file that cannot be written, or exists and may not be replaced."""
    if target.suffix.lower() not in (PARQUET, CSV):
        raise UsageError(f"{target}: got the suffix {target.suffix!r}, expected {PARQUET} or {CSV}.")
    if not target.absolute().parent.is_dir():
        raise UsageError(f"{target}: its folder does not exist; create it or give another file.")
    if target.exists() and not overwrite:
        raise UsageError(f"{target}: it exists; give another file, or --force to replace it.")
    return target


def write_batches(target: Path, batches: Iterator[Any], *, label: str) -> int:
    """Write all batches under the types of the first; the number of rows.

    Raises `DataError` if there are none: then, and after any other error, the file is as it was before.
    """
    write = _write_csv if target.suffix.lower() == CSV else _write_parquet
    with replacement(target) as partial:
        rows = write(partial, batches)
        if rows == 0:
            raise DataError(f"{label}: got no rows, expected at least one; export the data again.")
    return rows


def _write_parquet(path: Path, batches: Iterator[Any]) -> int:
    rows, writer = 0, None
    try:
        for batch in batches:
            if writer is None:
                writer = parquet.ParquetWriter(path, batch.schema)
            # As a table: each batch is a row group, and none is kept in memory.
            writer.write_table(pa.Table.from_batches([_alike(batch, writer.schema)]))
            rows += len(batch)
    finally:
        if writer is not None:
            writer.close()
    return rows


def _write_csv(path: Path, batches: Iterator[Any]) -> int:
    rows, writer = 0, None
    try:
        for batch in (_flat(batch) for batch in batches):
            if writer is None:
                writer, schema = arrow_csv.CSVWriter(path, batch.schema), batch.schema
            writer.write_batch(_alike(batch, schema))
            rows += len(batch)
    finally:
        if writer is not None:
            writer.close()
    return rows


def _alike(batch: Any, schema: Any) -> Any:
    try:
        return batch.cast(schema)
    except _NO_FIT as error:
        raise DataError(
            f"data: the types of the columns change between files ({str(error).splitlines()[0][:100]}), "
            "expected the same in every file."
        ) from error


def _flat(batch: Any) -> Any:
    """Lists as text, because a field of a CSV file is no list."""
    columns = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        try:
            found = plain(array)
            columns[name] = joined(found) if is_list(found) else found
            if pa.types.is_nested(columns[name].type):
                raise pa.ArrowNotImplementedError(str(found.type))
        except _NO_FIT as error:
            raise DataError(
                f"data, column {name!r}: got {str(array.type)[:100]}, expected single values or lists of them; write "
                f"a {PARQUET} file instead."
            ) from error
    return pa.RecordBatch.from_pydict(columns)


def joined(lists: Any) -> Any:
    """The entries of each list as text, with blanks between them; a missing entry is empty, a missing list missing.

    Examples
    --------
    >>> joined(pa.array([[0, 2, 3], [], None])).to_pylist()
    ['0 2 3', '', None]
    """
    entries = pc.fill_null(pc.cast(plain(lists.flatten()), pa.string()), "")
    lengths = pc.fill_null(pc.cast(pc.list_value_length(lists), pa.int64()), 0).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    text = pc.binary_join(pa.ListArray.from_arrays(offsets, entries), " ")
    return pc.if_else(lists.is_valid(), text, pa.scalar(None, text.type))
