"""Apply a calibrator of logits to somebody's rows: calibrated probabilities of all classes, and the most probable."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedassay.artefacts.apply import write_applied
from fedassay.artefacts.class_calibrator import ClassCalibrator, most_probable
from fedassay.artefacts.reading import Read
from fedassay.artefacts.writing import CSV
from fedassay.data.findings import raise_first
from fedassay.data.logits import looks_like_probabilities, probabilities_error
from fedassay.data.schema import LOGITS, Columns
from fedassay.errors import UsageError

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
    """Write all columns of `data`, the calibrated probabilities and the most probable class to a file; the rows.

    In a Parquet file the probabilities of a row are a list, ``probabilities``; in a CSV file each class has a column,
    ``probability_0`` and so on. The number of the most probable class is ``predicted_class``. Labels are not needed.

    Parameters
    ----------
    data, out, overwrite : as for `apply_calibrator`.
    logits : the column with the logits (lists, or a two-dimensional array of an `.npz` file), or what the names of
        numbered columns begin with; by default that of the rows that the calibrator was fitted to.
    column : gives the new columns other names: ``NAME`` or ``NAME_0`` and so on, and ``NAME_class``.

    Raises
    ------
    UsageError
        If `out` exists or has another suffix, or the column of the logits is not known.
    DataError
        If the data have no such column, already have a new one, or hold what cannot be used: logits of another number
        of classes, say, one that is not finite, or probabilities in every row (`looks_like_probabilities`).
    """
    name = logits if logits is not None else calibrator.columns.get(LOGITS)
    if name is None:
        raise UsageError("logits: the calibrator does not say which column it was fitted to; give --logits.")
    new, looks = new_columns(calibrator, out, column), _Looks()

    def calibrated(rows: Read) -> dict[str, Any]:
        p = calibrator.proba_of(rows)
        looks.add(rows)
        top = most_probable(calibrator.map, rows.chunk.columns[LOGITS], p).astype(np.int32)
        found = [pa.array(values) for values in p.T] if _is_csv(out) else [_lists(p)]
        return dict(zip(new, [*found, pa.array(top)], strict=True))

    columns = Columns(names={LOGITS: name})
    return write_applied(data, out, columns, calibrated, new=new, overwrite=overwrite, at_end=looks.refuse)


def new_columns(
    calibrator: ClassCalibrator, out: str | os.PathLike[str], column: str | None = None
) -> tuple[str, ...]:
    """What `apply_class_calibrator` calls the columns that it adds.

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


class _Looks:
    """Whether all logits so far look like probabilities."""

    def __init__(self) -> None:
        self._where: tuple[str, str] | None = None  # the first table and its column
        self._probabilities = True

    def add(self, rows: Read) -> None:
        self._where = self._where or (rows.table.label, rows.columns.names[LOGITS])
        self._probabilities = self._probabilities and looks_like_probabilities(rows.chunk.columns[LOGITS])

    def refuse(self) -> None:
        """A calibrator of logits says nothing true about probabilities."""
        if self._where is not None and self._probabilities:
            raise_first([probabilities_error(*self._where)])


def _is_csv(out: str | os.PathLike[str]) -> bool:
    return Path(out).suffix.lower() == CSV


def _lists(p: NDArray[np.float64]) -> Any:
    """A list for each row."""
    offsets = np.arange(len(p) + 1, dtype=np.int32) * np.int32(p.shape[1])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(p.reshape(-1)))
