"""Columns of a site's rows: there, and within the bounds from which sensitivities are derived."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.errors import DataError
from fedassay.protocol.vocabulary import Batch


def column(batch: Batch, role: str) -> NDArray[Any]:
    """The column in this role, or an error that says what a site has to add.

    Examples
    --------
    >>> column({"group": [1]}, "versus")
    Traceback (most recent call last):
    fedassay.errors.DataError: columns: got none in the role 'versus', expected one; name it with the others.
    """
    if role not in batch:
        raise DataError(f"columns: got none in the role {role!r}, expected one; name it with the others.")
    return batch[role]


def checked_scores(values: ArrayLike) -> NDArray[np.float64]:
    """The values as numbers, or an error if one is NaN or outside [0, 1].

    Examples
    --------
    >>> checked_scores([0.5, float("nan")])
    Traceback (most recent call last):
    fedassay.errors.DataError: scores: got a value that is NaN or outside [0, 1], expected probabilities.
    """
    scores = np.asarray(values, dtype=np.float64)
    # Written so that NaN fails: every comparison with NaN is false.
    if scores.size and not (scores.min() >= 0 and scores.max() <= 1):
        raise DataError("scores: got a value that is NaN or outside [0, 1], expected probabilities.")
    return scores


def checked_labels(values: ArrayLike) -> NDArray[Any]:
    """The values as an array, or an error if one is neither 0 nor 1.

    Examples
    --------
    >>> checked_labels([0, 2])
    Traceback (most recent call last):
    fedassay.errors.DataError: labels: got a value other than 0 and 1, expected binary labels.
    """
    labels = np.asarray(values)
    if labels.dtype.kind not in "iub" or (labels.size and not (labels.min() >= 0 and labels.max() <= 1)):
        raise DataError("labels: got a value other than 0 and 1, expected binary labels.")
    return labels
