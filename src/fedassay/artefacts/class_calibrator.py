"""A fitted calibrator of a model with several classes: from logits to calibrated probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.artefacts.conformal_classes import check_width, warn_of_probabilities
from fedassay.artefacts.reading import Read, read_arrays
from fedassay.artefacts.stored_calibrator import CLASSES, StoredCalibrator
from fedassay.errors import UsageError
from fedassay.summaries.multiclass.logit_map import LogitMap
from fedassay.summaries.multiclass.maps import LOGIT_MAPS, logit_map_from_json

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ClassCalibrator(StoredCalibrator[LogitMap]):
    """A map from logits to calibrated probabilities, and where it comes from.

    Parameters
    ----------
    map : the function.
    method, solver, parameters : how it was fitted, and the numbers that describe it.
    columns : the column that played each role when it was fitted, such as ``{"logits": "z", "label": "y"}``.
    recommended, reason : whether it was better than the model on held-out rows, beyond its interval, without losing
        accuracy; None if nobody looked.
    privacy : the `privacy` part of the result that it comes from; None if it was fitted to pooled rows.

    Guarantee: every row of logits gets probabilities that add up to one; a map that keeps the order of the classes
    (`keeps_order`) never changes which class is predicted. `save` and `load` keep every number bit for bit; loading
    executes nothing from the file.

    Examples
    --------
    >>> from fedassay.summaries.multiclass.maps import Temperature
    >>> calibrator = ClassCalibrator(map=Temperature(inverse_temperature=2.0, classes=3), method="temperature")
    >>> logits = np.log([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])
    >>> calibrator.predict_proba(logits).round(3)
    array([[0.667, 0.167, 0.167],
           [0.015, 0.015, 0.97 ]])
    >>> calibrator.predict(logits)
    array([0, 2])
    """

    artefact: ClassVar[str] = CLASSES
    kinds: ClassVar[Mapping[str, Any]] = LOGIT_MAPS
    read_map: ClassVar[Callable[[object], Any]] = staticmethod(logit_map_from_json)
    roles: ClassVar[tuple[str, ...]] = ("logits", "label", "client")
    more: ClassVar[tuple[str, ...]] = ("solver",)

    solver: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.map, LogitMap):
            raise UsageError(f"map: got a {type(self.map).__name__}, expected a map of logits.")

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return self.map.width

    # --- use -------------------------------------------------------------------------------------------------

    def predict_proba(self, logits: ArrayLike) -> Floats:
        """The calibrated probabilities of all classes: n x c, each row adds up to one.

        Parameters
        ----------
        logits : n x c, of the same classes in the same order as in the calibration: an array, a frame, or a column of
            lists. A `UserWarning` is given if they look like probabilities.

        Raises `DataError` for another number of classes, and names the first row that holds something else than finite
        numbers.
        """
        rows = read_arrays("predict_proba", {"logits": logits}, ("logits",))
        found = [self.proba_of(one) for one in rows]
        warn_of_probabilities(rows)
        return np.concatenate([np.empty((0, self.classes)), *found])

    def predict(self, logits: ArrayLike) -> Ints:
        """The most probable class of each row, as its number; of equally probable ones the first."""
        rows = read_arrays("predict", {"logits": logits}, ("logits",))
        found = [most_probable(self.map, one.chunk.columns["logits"], self.proba_of(one)) for one in rows]
        warn_of_probabilities(rows)
        return np.concatenate([np.empty(0, dtype=np.int64), *found])

    def proba_of(self, rows: Read) -> Floats:
        """As `predict_proba`, of rows that have been read."""
        check_width(rows, self.classes)
        return self.map.predict_proba(rows.chunk.columns["logits"])


def most_probable(found: LogitMap, logits: ArrayLike, probabilities: Floats) -> Ints:
    """The most probable class of each row.

    If the map keeps the order of the classes, that is the class of the largest logit, also where floating point cannot
    tell the probabilities of two classes apart: no prediction changes by rounding.

    Examples
    --------
    >>> from fedassay.summaries.multiclass.maps import Temperature
    >>> flat = Temperature(inverse_temperature=1e-6, classes=2)
    >>> z = np.array([[0.0, 1e-12]])
    >>> flat.predict_proba(z)
    array([[0.5, 0.5]])
    >>> most_probable(flat, z, flat.predict_proba(z))
    array([1])
    """
    by = np.asarray(logits) if found.keeps_order else probabilities
    return np.asarray(by.argmax(axis=1), dtype=np.int64)
