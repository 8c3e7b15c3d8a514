"""A grid whose points are close together where the rows are, from a first, coarse look."""

from __future__ import annotations

import numpy as np

from fedassay.estimation.metric import Undefined
from fedassay.tasks.distribution.curve import Curve

FIRST_SHARE = 0.3
"""The part of the budget for the first look; the release itself gets the rest."""

FIRST_POINTS = 1 << 8
"""The points of the first look."""

_EVEN = 0.1
"""The part of the points that is spread evenly, so that no stretch of the range is left without."""


def quantile_points(curve: Curve, count: int) -> tuple[float, ...]:
    """At most `count` increasing points within the range of a curve, so that few rows lie between two; the last is
    the upper end.

    The curve is made monotone and read as a line between its points; one row in ten is taken to be spread evenly. If
    there are too few rows to say anything, all are.

    Guarantee: between two neighbouring points there is at most a share 1/(0.9·count) of the rows that the first look
    saw, as far as they are spread evenly within its leaves.
    """
    grid = curve.grid
    x = np.concatenate([[grid.lower], grid.thresholds])
    even = (x - grid.lower) / (grid.upper - grid.lower)
    try:
        mixed = (1 - _EVEN) * np.concatenate([[0.0], curve.monotone]) + _EVEN * even
    except Undefined:
        mixed = even
    inner = np.interp(np.arange(1, count) / count, mixed, x)
    return (*np.unique(inner[(inner > grid.lower) & (inner < grid.upper)]).tolist(), grid.upper)
