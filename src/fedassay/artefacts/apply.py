"""Apply an artefact to somebody's rows: read in batches, write Parquet, with the new columns last."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from fedassay.artefacts.calibrator import Calibrator
from fedassay.artefacts.reading import Read, read
from fedassay.data.findings import raise_first
from fedassay.data.schema import Columns
from fedassay.data.sources import Folder, open_source
from fedassay.data.tables import NoRows, Table
from fedassay.errors import DataError, UsageError

COLUMN = "calibrated"

Make = Callable[[Read], dict[str, Any]]
"""The new columns of some rows, as Arrow arrays by name."""


def apply_calibrator(
    calibrator: Calibrator,
    data: Any,
    out: str | os.PathLike[str],
    *,
    score: str | None = None,
    column: str = COLUMN,
    overwrite: bool = False,
) -> int:
    """Write all columns of `data` and the calibrated probability to a Parquet file; returns the rows.

    Parameters
    ----------
    data : whatever the other functions read. Files are streamed, so they may be larger than memory. Columns of
        a CSV file stay text, but for the score. Of a folder, all files must have the same columns; a column
        ``client`` with the file's name is put first, unless they have one.
    out : a `.parquet` file. It is complete or it is not there.
    score : the column with the model's scores; by default the one of the rows that the calibrator was fitted to.
    column : the name of the new column.
    overwrite : whether `out` may exist.

    Raises
    ------
    UsageError
        If `out` exists or has another suffix, or the score column is not known.
    DataError
        If the data have no such column, already have the new one, or hold a score that is not in [0, 1].
    """
    name = score if score is not None else calibrator.columns.get("score")
    if name is None:
        raise UsageError("score: the calibrator does not say which column it was fitted to; give --score.")

    def calibrated(rows: Read) -> dict[str, Any]:
        return {column: pa.array(calibrator.map(rows.chunk.columns["score"]))}

    return write_applied(
        data, out, Columns(names={"score": name}), calibrated, new=(column,), overwrite=overwrite
    )


def write_applied(
    data: Any,
    out: str | os.PathLike[str],
    columns: Columns,
    make: Make,
    *,
    new: Sequence[str],
    overwrite: bool,
) -> int:
    """Write all columns of `data` and those that `make` computes from `columns`, called `new`; returns the rows.

    Guarantee: `out` is complete or it is not there, and was not there before unless `overwrite`.
    """
    target = _checked_target(Path(out), overwrite=overwrite)
    source = open_source(data)
    sites = tuple(source.sites.items()) if isinstance(source, Folder) else ((None, source),)
    tables = tuple((site, table) for site, table in sites if not isinstance(table, NoRows))
    _check_columns([table for _, table in tables], columns, new)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        rows = _write(partial, (some.with_columns(make(some)) for some in read(tables, columns)))
        if rows == 0:
            raise DataError(f"{source.label}: got no rows, expected at least one; export the data again.")
        partial.replace(target)
    except OSError as error:
        raise UsageError(f"{target}: cannot be written ({error.strerror}); give another file.") from error
    finally:
        partial.unlink(missing_ok=True)
    return rows


def _checked_target(target: Path, *, overwrite: bool) -> Path:
    if target.suffix.lower() != ".parquet":
        raise UsageError(f"{target}: got the suffix {target.suffix!r}, expected .parquet.")
    if not target.absolute().parent.is_dir():
        raise UsageError(f"{target}: its folder does not exist; create it or give another file.")
    if target.exists() and not overwrite:
        raise UsageError(f"{target}: it exists; give another file, or --force to replace it.")
    return target


def _check_columns(tables: list[Table], columns: Columns, new: Sequence[str]) -> None:
    for table in tables:
        raise_first(list(columns.missing_from(table.names, where=table.label).values()))
        for column in new:
            if column in table.names:
                raise DataError(
                    f"{table.label}: it already has a column {column!r}; give the new one another name with --column."
                )
        twice = sorted({one for one in table.names if table.names.count(one) > 1})
        if twice:
            raise DataError(f"{table.label}: got two columns {twice[0]!r}, expected different names.")
        if table.names != tables[0].names:
            raise DataError(
                f"{table.label}: its columns are not those of {tables[0].label}; expected the same in every file."
            )


def _write(path: Path, batches: Iterator[Any]) -> int:
    """Write the batches under the schema of the first; the number of rows."""
    rows, writer = 0, None
    try:
        for batch in batches:
            if writer is None:
                writer = parquet.ParquetWriter(path, batch.schema)
            try:
                # As a table: each batch is a row group, and none is kept in memory.
                writer.write_table(pa.Table.from_batches([batch.cast(writer.schema)]))
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
                raise DataError(
                    f"data: the types of the columns change between files ({str(error).splitlines()[0][:100]}), "
                    "expected the same in every file."
                ) from error
            rows += len(batch)
    finally:
        if writer is not None:
            writer.close()
    return rows
