"""Apply an artefact to somebody's rows: read in batches, write Parquet or CSV, with the new columns last."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedassay.artefacts.calibrator import Calibrator
from fedassay.artefacts.reading import Read, read
from fedassay.artefacts.text_columns import number_types
from fedassay.artefacts.writing import PARQUET, checked_target, write_batches
from fedassay.data.findings import raise_first
from fedassay.data.schema import Columns
from fedassay.data.sources import Folder, not_read, open_source
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
    """Write all columns of `data` and the calibrated probability to a file; returns the rows.

    Parameters
    ----------
    data : whatever the other functions read. Files are streamed, so they may be larger than memory. Columns of
        a CSV file that hold only numbers are numbers in a Parquet file (`number_types`: it is read twice). Of a folder,
        all files must have the same columns, and there must be nothing else; a column ``client`` with the file's name
        is put first, unless they have one.
    out : a `.parquet` or `.csv` file. It is complete or it is not there. In CSV, lists are text: ``0 2 3``.
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
    file_is_client: bool = False,
    at_end: Callable[[], None] = lambda: None,
) -> int:
    """Write all columns of `data` and those that `make` computes from `columns`, called `new`; returns the rows.

    Guarantee: `out` is complete or it is not there, and was not there before unless `overwrite`. With
    `file_is_client`, the files of a folder may lack the column of the client: then each of them is one. `at_end` is
    called when all rows have been seen; if it raises, nothing is written.
    """
    target = checked_target(Path(out), overwrite=overwrite)
    source = open_source(data)
    _refuse_among_sites(data, target)
    raise_first(not_read(source))  # no site may be missing in what is written
    sites = tuple(source.sites.items()) if isinstance(source, Folder) else ((None, source),)
    tables = tuple((site, table) for site, table in sites if not isinstance(table, NoRows))
    unnamed = not any(columns.client in table.names for _, table in tables)
    if file_is_client and unnamed and isinstance(source, Folder):
        columns = replace(columns, client=None)
    _check_columns([table for _, table in tables], columns, new)
    types = number_types([table for _, table in tables]) if target.suffix.lower() == PARQUET else None

    def batches() -> Iterator[Any]:
        for some in read(tables, columns):
            yield some.with_columns(make(some), types)
        at_end()

    return write_batches(target, batches(), label=source.label)


def _refuse_among_sites(data: Any, target: Path) -> None:
    """Refuse to write into the folder of the data: each file there counts as a site."""
    if isinstance(data, str | os.PathLike) and target.absolute().parent.resolve() == Path(data).resolve():
        raise UsageError(
            f"{target}: its folder holds the data, where each file is a site; give another folder."
        )


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
