"""From two released distributions, of positives and of negatives, to a ROC curve and its area."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedassay.errors import UsageError
from fedassay.estimation import curves
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.ranking import roc_auc
from fedassay.tasks.distribution.curve import Floats


def ranking_results(evidence: Evidence, *, level: float) -> dict[str, Any]:
    """``roc_curve`` and ``roc_auc``, as in an evaluation; ``value > threshold`` predicts positive."""
    return {
        "roc_curve": curves.roc_curve(evidence, level=level),
        "roc_auc": roc_auc(evidence, level=level).to_json(),
    }


def area_between(fpr: ArrayLike, tpr: ArrayLike, other_fpr: ArrayLike, other_tpr: ArrayLike) -> float:
    """The area between two ROC curves, each a broken line from (0, 0) to (1, 1) that never turns back.

    Exact: ∫ |R(x) - S(x)| dx over all pieces on which both are linear, cut where they cross. It is zero only for equal
    curves, unlike the difference of two areas under curves.

    Examples
    --------
    >>> area_between([0, 0, 1], [0, 1, 1], [0, 1], [0, 1])  # perfect, and no better than chance
    0.5
    >>> area_between([0, 0.5, 1], [0, 0.25, 1], [0, 0.5, 1], [0, 0.75, 1])
    0.25
    """
    one, two = _checked_curve(fpr, tpr), _checked_curve(other_fpr, other_tpr)
    x = np.unique(np.concatenate([one[0], two[0]]))
    # At a vertical piece a curve leaves to the right from its upper end and arrives from the left at its lower end.
    left = _at(one, x[:-1], side="right") - _at(two, x[:-1], side="right")
    right = _at(one, x[1:], side="left") - _at(two, x[1:], side="left")
    size = np.abs(left) + np.abs(right)
    crossing = (left**2 + right**2) / np.where(size > 0, 2 * size, 1.0)
    heights = np.where(left * right >= 0, size / 2, crossing)
    return float((np.diff(x) * heights).sum())


def _checked_curve(fpr: ArrayLike, tpr: ArrayLike) -> tuple[Floats, Floats]:
    x, y = np.asarray(fpr, dtype=np.float64), np.asarray(tpr, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2 or not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise UsageError(
            "ROC curve: expected as many false as true positive rates, two at least, all finite."
        )
    if (np.diff(x) < 0).any() or (np.diff(y) < 0).any() or (x[0], y[0], x[-1], y[-1]) != (0, 0, 1, 1):
        raise UsageError("ROC curve: expected rates that never decrease, from (0, 0) to (1, 1).")
    return x, y


def _at(curve: tuple[Floats, Floats], x: Floats, *, side: str) -> Floats:
    """The curve's height just to one side of x."""
    xs, ys = curve
    if side == "right":  # the last corner at or before x, and the one after it
        start = np.searchsorted(xs, x, side="right") - 1
        end = np.minimum(start + 1, len(xs) - 1)
    else:
        end = np.searchsorted(xs, x, side="left")
        start = np.maximum(end - 1, 0)
    width = xs[end] - xs[start]
    share = np.where(width > 0, (x - xs[start]) / np.where(width > 0, width, 1.0), 0.0)
    flat = ys[start] if side == "right" else ys[end]
    return np.asarray(np.where(width > 0, ys[start] + share * (ys[end] - ys[start]), flat))
