"""Apply an artefact to somebody's rows: read in batches, write Parquet, with one column more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from fedassay.artefacts.calibrator import Calibrator
from fedassay.data.findings import raise_first
from fedassay.data.numbers import is_text
from fedassay.data.scan import Tally
from fedassay.data.schema import CLIENT, ROLES, Columns
from fedassay.data.sources import Folder, open_source
from fedassay.data.tables import NoRows, Table
from fedassay.errors import DataError, UsageError

COLUMN = "calibrated"

Tables = tuple[tuple[str | None, Table], ...]
"""Tables, each with the name of its site if it is one file of a folder."""


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
    target = _checked_target(Path(out), overwrite=overwrite)
    name = score if score is not None else calibrator.columns.get("score")
    if name is None:
        raise UsageError("score: the calibrator does not say which column it was fitted to; give --score.")
    source = open_source(data)
    sites: Tables = tuple(source.sites.items()) if isinstance(source, Folder) else ((None, source),)
    tables = tuple((site, table) for site, table in sites if not isinstance(table, NoRows))
    _check_columns([table for _, table in tables], name, column)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        rows = _write(partial, _calibrated(tables, calibrator, name, column))
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


def _check_columns(tables: list[Table], score: str, column: str) -> None:
    for table in tables:
        raise_first(
            list(Columns(names={"score": score}).missing_from(table.names, where=table.label).values())
        )
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


def _calibrated(tables: Tables, calibrator: Calibrator, score: str, column: str) -> Iterator[Any]:
    """The batches of all tables, each with the new column."""
    role = ROLES["score"]
    for site, table in tables:
        tally = Tally(what=f"{table.label}, column {score!r} (score)", expected=role.expected, fix=role.fix)
        for batch in table.batches(table.names):
            raw = batch.column(table.names.index(score))
            values, bad = role.convert(raw)
            tally.add(raw, bad)
            raise_first([finding for finding in (tally.finding(),) if finding is not None])
            columns = dict(zip(table.names, batch.columns, strict=True))
            if is_text(raw):  # CSV files are read as text; a number that was checked may be one
                columns[score] = pa.array(values)
            named = (
                {} if site is None or CLIENT in columns else {CLIENT: pa.repeat(pa.scalar(site), len(batch))}
            )
            yield pa.RecordBatch.from_pydict({**named, **columns, column: pa.array(calibrator.map(values))})


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
