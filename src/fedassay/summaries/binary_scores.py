"""The conformity score of a binary classifier, and the prediction sets that belong to it.

With p the probability of 1, which is the model's score or what a calibrator makes of it:

    binary(1) = 1 - p
    binary(0) = p

that is, one minus the probability of the true class, as ``lac`` has it for several classes (Sadinle, Lei and Wasserman
2019). A set holds 0, 1, both or nothing.

Calibration and prediction both compute p and 1 - p here and nowhere else, so that a class is in a set *exactly* if its
score is at most the threshold. (On another machine, whose logarithm may round otherwise, a calibrated probability can
differ in its last digit.)
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.errors import DataError, UsageError
from fedassay.summaries.maps import Map, map_from_numbers

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

CLASSES = 2


def binary(scores: ArrayLike, labels: ArrayLike, parameters: tuple[float, ...] = ()) -> Floats:
    """One minus the probability of the true label.

    Parameters
    ----------
    scores : in [0, 1].
    labels : 0 or 1.
    parameters : a calibrator as `maps.numbers_of` writes it; none for scores as they are.

    Guarantee: every number is in [0, 1]. Edge case: a calibrator whose coefficients are too large for a number to come
    out gives 1, the largest score, for both labels.

    Examples
    --------
    >>> binary([0.25, 0.25], [1, 0])
    array([0.75, 0.25])
    """
    both, y = _scores(scores, parameters), np.asarray(labels)
    if (
        y.shape != (len(both),)
        or y.dtype.kind not in "iub"
        or (y.size and not (y.min() >= 0 and y.max() <= 1))
    ):
        raise DataError("label: got a value other than 0 and 1, expected binary labels, one for each score.")
    return np.asarray(np.where(y == 1, both[:, 1], both[:, 0]))


def binary_sets(scores: ArrayLike, threshold: ArrayLike, parameters: tuple[float, ...] = ()) -> Bools:
    """Which of 0 and 1 are in the prediction set of each row: those that score at most the threshold.

    Guarantee: a label is in the set of a row exactly if the score of that row with this label (`binary`) is at most the
    threshold, compared as computed. Edge cases: a set can be empty; +∞ as threshold means both.

    Parameters
    ----------
    threshold : a number, or one for each of 0 and 1 (an array of 2), or one per row (an array of n x 1).

    Examples
    --------
    >>> binary_sets([0.1, 0.5, 0.9], 0.5).tolist()
    [[True, False], [True, True], [False, True]]
    """
    both, limit = _scores(scores, parameters), np.asarray(threshold, dtype=np.float64)
    if limit.shape not in ((), (CLASSES,), (len(both), 1)) or np.isnan(limit).any():
        raise UsageError(
            f"threshold: got NaN, or an array of shape {limit.shape}, expected a number, one for each of 0 and 1, or "
            f"one per row (shape {(len(both), 1)})."
        )
    return np.asarray(both <= limit)


def _scores(scores: ArrayLike, parameters: tuple[float, ...]) -> Floats:
    """The scores of 0 and of 1, one row each: n x 2."""
    # Contiguous, because loops over strided numbers may round otherwise.
    s = np.ascontiguousarray(scores, dtype=np.float64)
    # Written so that NaN fails: every comparison with NaN is false.
    if s.ndim != 1 or (s.size and not (s.min() >= 0 and s.max() <= 1)):
        raise DataError("score: got a number that is NaN or outside [0, 1], expected probabilities.")
    calibrator = _calibrator(parameters)
    if calibrator is not None:
        with np.errstate(all="ignore"):
            s = calibrator(s)
    return np.where(np.isnan(s), 1.0, [s, 1 - s]).T


@lru_cache(maxsize=8)
def _calibrator(parameters: tuple[float, ...]) -> Map | None:
    return map_from_numbers(parameters)
