"""A fitted calibrator of a binary classifier: from scores to calibrated probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.artefacts.stored_calibrator import SCORES, StoredCalibrator
from fedassay.errors import DataError, UsageError
from fedassay.summaries.maps import MAPS, Map, map_from_json
from fedassay.tasks.calibration.methods import FITS

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Calibrator(StoredCalibrator[Map]):
    """A map from scores to calibrated probabilities, and where it comes from.

    Parameters
    ----------
    map : the function.
    method, parameters : how it was fitted, and the numbers that describe it.
    columns : the column that played each role when it was fitted, such as ``{"score": "p", "label": "y"}``.
    recommended, reason : whether it was better than the model on held-out rows, beyond its interval; None if
        nobody looked.
    privacy : the `privacy` part of the result that it comes from; None if it was fitted to pooled rows.

    Guarantee: `save` and `load` keep every number bit for bit; loading executes nothing from the file.

    Examples
    --------
    >>> from fedassay.summaries.maps import Sigmoid
    >>> calibrator = Calibrator(map=Sigmoid(a=0.5, b=0.5, c=0.0), method="platt")
    >>> calibrator.predict([0.2, 0.5, 0.8]).round(3)
    array([0.333, 0.5  , 0.667])
    >>> calibrator.predict_proba([0.2]).round(3)
    array([[0.667, 0.333]])
    """

    artefact: ClassVar[str] = SCORES
    kinds: ClassVar[Mapping[str, Any]] = MAPS
    read_map: ClassVar[Callable[[object], Any]] = staticmethod(map_from_json)
    roles: ClassVar[tuple[str, ...]] = ("score", "label", "client")

    def __post_init__(self) -> None:
        if self.method not in FITS:
            raise UsageError(f"got method {self.method!r}, expected one of {', '.join(FITS)}.")

    # --- use -----------------------------------------------------------------------------------------------

    def predict(self, scores: ArrayLike) -> Floats:
        """The calibrated probability of the positive class for each score.

        Parameters
        ----------
        scores : the model's probabilities in [0, 1], one per row, or with two columns: those of the negative
            and of the positive class.
        """
        return self.map(checked_scores(scores))

    def predict_proba(self, scores: ArrayLike) -> Floats:
        """The calibrated probabilities of the negative and of the positive class: one row per score."""
        positive = self.predict(scores)
        return np.stack([1 - positive, positive], axis=1)


def checked_scores(scores: ArrayLike) -> Floats:
    """Scores as one double per row, or a `DataError` that names the first row that cannot be used.

    Examples
    --------
    >>> checked_scores([[0.9, 0.1], [0.4, 0.6]])
    array([0.1, 0.6])
    """
    try:
        values = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError("scores: got something that is not numbers, expected probabilities.") from error
    if values.ndim == 2 and values.shape[1] == 2:
        apart = np.flatnonzero(~(np.abs(values.sum(axis=1) - 1) <= 1e-6))
        if apart.size:
            row = int(apart[0])
            raise DataError(
                f"scores: row {row} holds {values[row].tolist()}, expected the probabilities of two classes, "
                "which add up to 1."
            )
        values = values[:, 1]
    elif values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise DataError(
            f"scores: got an array of shape {values.shape}, expected one probability per row or two columns."
        )
    bad = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if bad.size:
        row = int(bad[0])
        raise DataError(f"scores: got {values[row]} in row {row}, expected a number in [0, 1].")
    return values
