"""Apply a conformal predictor to rows: intervals as two columns, sets as lists of classes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedassay.artefacts.apply import ProbabilityLook, write_applied
from fedassay.artefacts.conformal import ConformalPredictor
from fedassay.artefacts.reading import Read
from fedassay.artefacts.thresholds import rows_of_parts, warnings_of
from fedassay.data.schema import CLIENT, LOGITS, Columns
from fedassay.data.wide import probabilities_warning
from fedassay.errors import UsageError

LOWER, UPPER, SET, SIZE = "lower", "upper", "prediction_set", "set_size"

OPTIONS: Mapping[str, str] = {
    **{role: f"--{role}" for role in ("prediction", "scale", "lower", "upper", LOGITS, "score", CLIENT)},
    "group": "--by",
}
"""Option of the command line that names the column in each role."""


@dataclass(frozen=True, kw_only=True)
class Applied:
    """Result of writing: the number of rows, the new columns, and warnings for their users."""

    rows: int
    columns: tuple[str, str]
    warnings: tuple[str, ...]


def apply_conformal(
    predictor: ConformalPredictor,
    data: Any,
    out: str | os.PathLike[str],
    *,
    columns: Mapping[str, str | None] | None = None,
    column: str | None = None,
    overwrite: bool = False,
) -> Applied:
    """Write all columns of `data` and the prediction intervals or sets to a Parquet or CSV file.

    Intervals are two columns of numbers, ``lower`` and ``upper``, both in the interval: -inf and inf where the
    threshold is infinite, null where the interval is empty (CQR). Sets are ``prediction_set``, a list of class numbers
    that can be empty (LAC, binary), and ``set_size``. Labels are not needed. Warnings are about
    thresholds that promise nothing, infinite thresholds of rows that are there, and probabilities in place of logits.

    Parameters
    ----------
    data, out, overwrite : as for `apply_calibrator`.
    columns : the column in each of the roles `predictor.inputs`; by default that of the calibration rows. The role
        client of a folder is the file, unless a column is named or the files have that of the calibration.
    column : gives the new columns other names: ``NAME_lower`` and ``NAME_upper``, or ``NAME`` and ``NAME_size``.

    Raises
    ------
    UsageError
        If `out` exists or has another suffix, a column is not known or not needed, or the score is one of the user's
        own, for which there are neither intervals nor sets.
    DataError
        If the data lack a column, already have a new one, or hold unusable values: logits of another number of
        classes, say, or a row of a group or client without a threshold.
    """
    predictor.check_use("predict_set" if predictor.gives_sets else "predict_interval")
    chosen = _columns(predictor, columns or {})
    new, seen = _names(predictor, column), _Seen(predictor)

    def predicted(rows: Read) -> dict[str, Any]:
        seen.add(rows)
        if predictor.gives_sets:
            found = _lists(predictor.sets_of(rows))
        else:
            ends = predictor.intervals_of(rows)
            found = [pa.array(end, mask=np.isnan(end)) for end in ends.T]
        return dict(zip(new, found, strict=True))

    unnamed = (columns or {}).get(CLIENT) is None
    rows = write_applied(data, out, chosen, predicted, new=new, overwrite=overwrite, file_is_client=unnamed)
    return Applied(rows=rows, columns=new, warnings=seen.warnings())


class _Seen:
    """Collector of warnings about the use of a predictor, from rows as they are read."""

    def __init__(self, predictor: ConformalPredictor) -> None:
        self._predictor = predictor
        infinite = any(one.infinite for one in predictor.thresholds.values())
        # Rows are not counted by class: each class is tried in every row.
        self._rows: Counter[str] | None = (
            Counter() if infinite and predictor.by in ("group", CLIENT) else None
        )
        self._look = ProbabilityLook()

    def add(self, rows: Read) -> None:
        if self._rows is not None:
            self._rows += rows_of_parts(self._predictor.by, self._predictor.thresholds, rows)
        if LOGITS in self._predictor.inputs:
            self._look.add(rows)

    def warnings(self) -> tuple[str, ...]:
        found = warnings_of(self._predictor.by, self._predictor.thresholds, self._rows)
        if self._look.where is not None:
            found += (probabilities_warning(*self._look.where).sentence(),)
        return found


def _names(predictor: ConformalPredictor, column: str | None) -> tuple[str, str]:
    if column is None:
        return (SET, SIZE) if predictor.gives_sets else (LOWER, UPPER)
    return (column, f"{column}_size") if predictor.gives_sets else (f"{column}_{LOWER}", f"{column}_{UPPER}")


def _lists(members: NDArray[np.bool_]) -> list[Any]:
    """Return the classes in each set, and their number."""
    sizes = np.count_nonzero(members, axis=1).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    classes = (np.flatnonzero(members) % members.shape[1]).astype(np.int32)
    return [pa.ListArray.from_arrays(pa.array(offsets), pa.array(classes)), pa.array(sizes)]


def _columns(predictor: ConformalPredictor, given: Mapping[str, str | None]) -> Columns:
    named = {role: name for role, name in given.items() if name is not None}
    for role in named:
        if role not in predictor.inputs:
            needed = ", ".join(OPTIONS[other] for other in predictor.inputs)
            raise UsageError(
                f"{OPTIONS.get(role, role)}: this artefact does not need it; leave it out (needed: {needed})."
            )
    found: dict[str, str] = {}
    for role in predictor.inputs:
        name = named.get(role, predictor.columns.get(role))
        if name is not None:
            found[role] = name
        elif role != CLIENT:  # in a folder, each file is a client
            raise UsageError(
                f"{role} column: the artefact does not say which one it is; give {OPTIONS[role]}."
            )
    client = found.pop(CLIENT, None)
    return Columns(names=found, client=client)
