"""Where the mean curve of the log loss is lowest, from a noisy sum of curves: a cubic with a prior.

The prior says how the curves of networks look, and that the model is best left as it is: where noise says more than
rows, nothing happens.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedassay.summaries.multiclass.loss_curves import Curves

Floats = NDArray[np.float64]

STEP = math.log(2) / 4
POINTS = 9
LOWEST = -13 * math.log(2) / 8
"""Nine points, log s from -1.13 to 0.26. Narrow, because noise is for the whole curve: models that are calibrated after
the fact are mostly too sure of themselves, with s between 0.4 and 1."""

PRIOR_MEAN = np.array([0.0, 2.0, -1.0])
PRIOR_SD = np.array([1.5, 0.5, 0.5])
"""Of the coefficients of t, t², t³ in the mean curve, in units of its norm per point. The mean is lowest at t = 0."""

MISFIT = 0.03
"""What a cubic does not describe of a mean curve, as a standard deviation per point."""

STANDS_OUT = 1.0
"""The gain that a temperature promises must be one standard deviation of it; else there is none."""


_ROUNDING = 1e-9

BEYOND = "the best temperature is beyond the grid"
"""The reason of a fit that ends where its grid does."""


def grid_from(lowest: float = LOWEST) -> tuple[float, ...]:
    """The inverse temperatures of a curve under noise, rising from this log s."""
    return tuple(math.exp(lowest + STEP * place) for place in range(POINTS))


def grid_around(t: float) -> tuple[float, ...]:
    """The same, with this log s in the middle."""
    return grid_from(t - POINTS // 2 * STEP)


def lowest_point(curves: Curves, deviation: float, *, around: float = 0.0) -> float:
    """Log s where the mean curve is lowest, within the grid; `around` where noise leaves nothing to see.

    Parameters
    ----------
    deviation : of the noise in each of `curves.losses`.
    around : where the curve is expected to be lowest.

    The curve itself says how long it is: clients that have few rows, or disagree, add up to less than their number. As
    noise makes it longer, it is believed only by the part of its squared length that noise does not explain (the
    positive part, as in James and Stein, 1961).
    """
    points = len(curves.grid)
    heights = curves.losses - curves.losses.mean()
    size = float(np.linalg.norm(heights))
    if size <= math.sqrt(points - 1) * deviation:
        return around
    believed = 1 - (points - 1) * (deviation / size) ** 2
    scale = math.sqrt(points) / size
    t = np.log(curves.grid) - around
    b, spread = _cubic(t, scale * heights, scale * deviation)
    b = PRIOR_MEAN + believed * (b - PRIOR_MEAN)
    fine = np.linspace(t[0], t[-1], 801)
    best = float(fine[int(np.argmin(b[0] * fine + b[1] * fine**2 + b[2] * fine**3))])
    powers = np.array([best, best**2, best**3])
    gain, unsure = -float(b @ powers), math.sqrt(max(0.0, float(powers @ spread @ powers)))
    return around + (best if gain > STANDS_OUT * unsure else 0.0)


def beyond(curves: Curves, t: float) -> str:
    """`BEYOND` if this lowest point is an end of the grid, up to rounding; else empty."""
    ends = np.log(curves.grid[[0, -1]])
    return BEYOND if float(np.abs(ends - t).min()) < _ROUNDING else ""


def _cubic(t: Floats, heights: Floats, deviation: float) -> tuple[Floats, Floats]:
    """The posterior mean of the coefficients, and their covariance. Only the shape of a curve counts, not its level."""
    powers = np.stack([t, t**2, t**3], axis=1)
    design, prior = powers - powers.mean(axis=0), np.diag(PRIOR_SD**2)
    v = design @ prior @ design.T + (deviation**2 + MISFIT**2) * np.eye(len(t))
    gain = np.linalg.solve(v, design @ prior).T
    return PRIOR_MEAN + gain @ (heights - design @ PRIOR_MEAN), prior - gain @ design @ prior
