"""Apply an artefact to rows: read them in batches, write Parquet or CSV, with the new columns last."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from fedassay.artefacts.reading import Read, number_types, read
from fedassay.artefacts.stored_calibrator import Calibrator, ClassCalibrator, most_probable
from fedassay.data.findings import raise_first
from fedassay.data.numbers import is_list, plain
from fedassay.data.schema import LOGITS, Columns
from fedassay.data.sources import Folder, not_read, open_source
from fedassay.data.tables import NoRows, Table
from fedassay.data.wide import looks_like_probabilities, probabilities_error
from fedassay.errors import DataError, UsageError
from fedassay.protocol.files import replacement

# --- batches of rows as a Parquet or CSV file that is complete or not there ---------------------------------

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
    """Write all batches with the column types of the first, and return the number of rows.

    Raises `DataError` if there are none: then, and after any other error, the file is as it was before.
    """
    csv, rows, writer = _is_csv(target), 0, None
    with replacement(target) as partial:
        try:
            for batch in map(_flat, batches) if csv else batches:
                if writer is None:
                    schema = batch.schema
                    writer = (arrow_csv.CSVWriter if csv else parquet.ParquetWriter)(partial, schema)
                # As a table: each batch is a row group, and none is kept in memory.
                writer.write_table(pa.Table.from_batches([_alike(batch, schema)]))
                rows += len(batch)
        finally:
            if writer is not None:
                writer.close()
        if rows == 0:
            raise DataError(f"{label}: got no rows, expected at least one; export the data again.")
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
    """Convert lists to text, because a field of a CSV file cannot hold a list."""
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
    """Join the entries of each list with blanks; a missing entry is empty, a missing list stays missing.

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


# --- apply an artefact to rows -----------------------------------------------------------------------------

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
    """Write all columns of `data` and the calibrated probability to a file; return the number of rows.

    Parameters
    ----------
    data : any data that the other functions read. Files are streamed, so they may be larger than memory. Columns of
        a CSV file that hold only numbers are numbers in a Parquet file (`number_types`: it is read twice). Of a folder,
        all files must have the same columns, and there must be no other files; a column ``client`` with the file's name
        is put first, unless they have one.
    out : a `.parquet` or `.csv` file. It is complete or it is not there. In CSV, lists are text: ``0 2 3``.
    score : the column with the model's scores; by default the one of the rows that the calibrator was fitted to.
    column : the name of the new column.
    overwrite : True if an existing file `out` may be replaced.

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
    """Write all columns of `data` and those called `new`, which `make` computes; return the number of rows.

    `make` computes them from `columns`.

    Guarantee: `out` is complete or it is not there, and was not there before unless `overwrite`. With
    `file_is_client`, the files of a folder may lack the column of the client: each file is then a client. `at_end` is
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


# --- apply a calibrator of logits to rows ------------------------------------------------------------------

PROBABILITIES, PROBABILITY, PREDICTED = "probabilities", "probability", "predicted_class"


def apply_class_calibrator(
    calibrator: ClassCalibrator,
    data: Any,
    out: str | os.PathLike[str],
    *,
    logits: str | None = None,
    column: str | None = None,
    overwrite: bool = False,
) -> int:
    """Write all columns of `data`, the calibrated probabilities and the most probable class to a file.

    Returns the number of rows.

    In a Parquet file the probabilities of a row are a list, ``probabilities``; in a CSV file each class has a column,
    ``probability_0`` and so on. The number of the most probable class is ``predicted_class``. Labels are not needed.

    Parameters
    ----------
    data, out, overwrite : as for `apply_calibrator`.
    logits : the column with the logits (lists, or a two-dimensional array of an `.npz` file), or the beginning of the
        names of numbered columns; by default that of the rows that the calibrator was fitted to.
    column : gives the new columns other names: ``NAME`` or ``NAME_0`` and so on, and ``NAME_class``.

    Raises
    ------
    UsageError
        If `out` exists or has another suffix, or the column of the logits is not known.
    DataError
        If the data have no such column, already have a new one, or hold unusable values: logits of another number
        of classes, say, one that is not finite, or probabilities in every row (`looks_like_probabilities`).
    """
    name = logits if logits is not None else calibrator.columns.get(LOGITS)
    if name is None:
        raise UsageError("logits: the calibrator does not say which column it was fitted to; give --logits.")
    new, looks = new_columns(calibrator, out, column), ProbabilityLook()

    def calibrated(rows: Read) -> dict[str, Any]:
        p = calibrator.proba_of(rows)
        looks.add(rows)
        top = most_probable(calibrator.map, rows.chunk.columns[LOGITS], p).astype(np.int32)
        found = [pa.array(values) for values in p.T] if _is_csv(out) else [_lists(p)]
        return dict(zip(new, [*found, pa.array(top)], strict=True))

    def refuse_probabilities() -> None:
        """Refuse probabilities: a calibrator of logits says nothing true about them."""
        if looks.where is not None:
            raise_first([probabilities_error(*looks.where)])

    columns = Columns(names={LOGITS: name})
    return write_applied(
        data, out, columns, calibrated, new=new, overwrite=overwrite, at_end=refuse_probabilities
    )


def new_columns(
    calibrator: ClassCalibrator, out: str | os.PathLike[str], column: str | None = None
) -> tuple[str, ...]:
    """Return the names of the columns that `apply_class_calibrator` adds.

    Examples
    --------
    >>> from fedassay.summaries.multiclass.maps import Temperature
    >>> calibrator = ClassCalibrator(map=Temperature(inverse_temperature=1.0, classes=2), method="temperature")
    >>> new_columns(calibrator, "out.parquet"), new_columns(calibrator, "out.csv", "q")
    (('probabilities', 'predicted_class'), ('q_0', 'q_1', 'q_class'))
    """
    last = PREDICTED if column is None else f"{column}_class"
    if not _is_csv(out):
        return (PROBABILITIES if column is None else column, last)
    beginning = PROBABILITY if column is None else column
    return (*(f"{beginning}_{k}" for k in range(calibrator.classes)), last)


class ProbabilityLook:
    """Check of logits that look like probabilities; `where` names the first table and column if all so far do."""

    def __init__(self) -> None:
        self.where: tuple[str, str] | None = None
        self._so_far = True

    def add(self, rows: Read) -> None:
        """Check more rows."""
        if self._so_far:
            self.where = self.where or (rows.table.label, rows.columns.names[LOGITS])
            self._so_far = looks_like_probabilities(rows.chunk.columns[LOGITS])
            self.where = self.where if self._so_far else None


def _is_csv(out: str | os.PathLike[str]) -> bool:
    return Path(out).suffix.lower() == CSV


def _lists(p: NDArray[np.float64]) -> Any:
    """Return a list for each row."""
    offsets = np.arange(len(p) + 1, dtype=np.int32) * np.int32(p.shape[1])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(p.reshape(-1)))
