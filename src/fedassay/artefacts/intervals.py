"""The interval of all values that score at most a threshold, to the last bit.

The scores of regression are max(lower - y, y - upper) / scale, with lower = upper for a single prediction. Computed in
doubles, each difference is rounded, so that lower - t·scale and upper + t·scale, rounded again, can leave out a value
whose score is at most t. Where scores are tied (rounded measurements, say) such values are not rare, and coverage would
be lost. Rounding never reverses an order, so the values that score at most t are an interval of doubles: its ends are
found here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK = 1 << 14
"""Rows at a time, so that temporary arrays stay in the processor's cache."""

_NEAR = 4 * np.finfo(np.float64).eps
"""How far the end of an interval can be from where it is without rounding, relative to the largest number involved."""


def intervals(lower: ArrayLike, upper: ArrayLike, scale: ArrayLike, threshold: ArrayLike) -> Floats:
    """Lower and upper ends (n x 2) of the values y with max(lower - y, y - upper) / scale <= threshold.

    Guarantee: a finite double y is in the interval (ends included) exactly if its score, as `scores_of` computes it,
    is at most the threshold. Edge cases: nothing scores so little (a negative threshold of CQR): both ends are NaN; an
    infinite threshold: -inf and inf.

    Parameters
    ----------
    lower, upper : what the model predicts; the same for a single prediction. Finite.
    scale : above 0; 1 for scores without one.
    threshold : one, or one per row; +inf is allowed.

    Examples
    --------
    >>> intervals([1.0, 3.0], [2.0, 3.0], 1.0, 0.5)
    array([[0.5, 2.5],
           [2.5, 3.5]])
    >>> intervals([1.0, 3.0], [1.5, 3.0], 1.0, [-1.0, np.inf])
    array([[ nan,  nan],
           [-inf,  inf]])
    """
    unscaled = np.ndim(scale) == 0 and float(np.asarray(scale)) == 1.0
    a, b, s, t = np.broadcast_arrays(
        *(np.asarray(column, dtype=np.float64) for column in (lower, upper, scale, threshold))
    )
    ends = np.empty((a.size, 2))
    for start in range(0, a.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        by = None if unscaled else s[part]
        ends[part, 0] = -_largest(-a[part], by, t[part])
        ends[part, 1] = _largest(b[part], by, t[part])
    ends += 0.0  # no -0.0
    ends[ends[:, 0] > ends[:, 1]] = np.nan
    return ends


def _largest(anchor: Floats, scale: Floats | None, threshold: Floats) -> Floats:
    """The largest double y with (y - anchor) / scale <= threshold, both operations rounded; no scale is one of 1.

    Nearly always it is anchor + threshold·scale, rounded, or the double before it; the others are searched for.
    """
    with np.errstate(all="ignore"):  # an infinite threshold, or one end beyond all doubles
        about = _sum(anchor, threshold) if scale is None else anchor + threshold * scale
        found = np.where(_score(about, anchor, scale) <= threshold, about, _moved(about, -1))
        settled = _score(found, anchor, scale) <= threshold
        settled &= _score(_moved(found, 1), anchor, scale) > threshold
        if not settled.all():
            rest = np.flatnonzero(~settled)
            limit, by = threshold[rest], np.ones(rest.size) if scale is None else scale[rest]
            found[rest] = np.where(limit == np.inf, np.inf, _searched(anchor[rest], by, limit))
    return found


def _sum(anchor: Floats, threshold: Floats) -> Floats:
    """About the largest y for which y - anchor rounds to the threshold: half a unit of it more than the sum.

    With the error of the sum (Knuth's two-sum), because y can have finer digits than the threshold.
    """
    about = anchor + threshold
    added = about - anchor
    error = (anchor - (about - added)) + (threshold - added)
    return about + (error + np.spacing(threshold) / 2)


def _score(y: Floats, anchor: Floats, scale: Floats | None) -> Floats:
    """How `scores_of` computes it."""
    away = y - anchor
    return away if scale is None else away / scale


def _moved(values: Floats, steps: int) -> Floats:
    """The doubles above these for 1, below for -1. No numbers next to zero and infinity: then a search follows."""
    bits = values.view(np.int64)
    return np.asarray(bits + steps * ((bits >> 63) | 1)).view(np.float64)


def _searched(anchor: Floats, scale: Floats, threshold: Floats) -> Floats:
    """The same by bisection over the doubles."""
    size = threshold * scale
    about = anchor + size
    near = _NEAR * np.maximum(np.abs(anchor), np.abs(size)) + np.finfo(np.float64).tiny
    # `first` scores at most the threshold, `last` more: usually a few doubles apart.
    first, last = _order(about - near), _order(about + near)
    first = np.where(_fits(first, anchor, scale, threshold), first, _order(np.full_like(about, -np.inf)))
    last = np.where(_fits(last, anchor, scale, threshold), _order(np.full_like(about, np.inf)), last)
    open_ = np.flatnonzero((last > first + 1) & (threshold < np.inf))
    while open_.size:
        a, b = first[open_], last[open_]
        middle = (a >> 1) + (b >> 1) + (a & b & 1)  # their sum could be too large
        fits = _fits(middle, anchor[open_], scale[open_], threshold[open_])
        first[open_[fits]], last[open_[~fits]] = middle[fits], middle[~fits]
        open_ = open_[last[open_] > first[open_] + 1]
    return _double(first)


def _fits(place: Ints, anchor: Floats, scale: Floats, threshold: Floats) -> NDArray[np.bool_]:
    return np.asarray((_double(place) - anchor) / scale <= threshold)


def _order(values: Floats) -> Ints:
    """Whole numbers in the order of the doubles, without gaps: 0.0 is 0, the next double 1."""
    bits = np.asarray(values, dtype=np.float64).view(np.int64)
    return np.where(bits < 0, np.int64(np.iinfo(np.int64).min) - bits, bits)


def _double(places: Ints) -> Floats:
    """The doubles at these places."""
    bits = np.where(places < 0, np.int64(np.iinfo(np.int64).min) - places, places)
    return np.asarray(bits, dtype=np.int64).view(np.float64)
