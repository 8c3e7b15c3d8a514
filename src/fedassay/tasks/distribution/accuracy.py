"""How large errors will be, before any data: for choosing a mechanism, for refusing, and for planning."""

from __future__ import annotations

import math

import numpy as np

from fedassay.errors import UsageError
from fedassay.estimation.bands import NOISE_SHARE, half_width_of, report_half_width
from fedassay.estimation.least_squares import LeastSquares
from fedassay.estimation.metric import LEVEL
from fedassay.estimation.widths import mean_prefix_variance
from fedassay.protocol import Noise
from fedassay.summaries.values import ValueSummary
from fedassay.tasks.distribution.curve import Curve, curve_of


def mean_variance(summary: ValueSummary, noise: Noise) -> float:
    """The noise variance of the number of rows (of one class) up to a point, averaged over the points; exact.

    Where each client reports on one level, for rows that are spread evenly.

    Examples
    --------
    >>> from fedassay.summaries.value_path import ValuePath
    >>> path = ValuePath(lower=0, upper=1, points=1024)
    >>> mean_variance(path, Noise(law="discrete-laplace", scale=6.0, variance=72.0))  # 6 nodes hide a row
    792.0
    """
    fit = summary.leaf_covariance(noise)
    if isinstance(fit, LeastSquares):
        return mean_prefix_variance(fit)
    return float(fit.prefix_variances[1:].mean())


def expected_curve(summary: ValueSummary, noise: Noise, *, rows: float) -> Curve:
    """The curve one expects of rows that are spread evenly over the leaves, all classes together."""
    if not rows > 0:
        raise UsageError(f"expected rows: got {rows:g}, expected a number above 0.")
    sums = rows * np.arange(summary.points + 1) / summary.points
    return curve_of(summary.grid, sums, summary.leaf_covariance(noise), noise, times=summary.classes)


def noise_half_width(summary: ValueSummary, noise: Noise, *, rows: float, level: float = LEVEL) -> float:
    """The most that noise will add to the half-width of the simultaneous band of all rows.

    Guarantee: no release with this noise and at least so many (noisy) rows has a band of which more is due to noise,
    whatever the values are. Where each client reports on one level that is so for rows that are spread evenly.

    Examples
    --------
    >>> from fedassay.summaries.value_tree import ValueTree
    >>> tree = ValueTree(lower=0, upper=1, points=1024, widths=(1, 16, 256))
    >>> noise = Noise(law="discrete-laplace", scale=3.0, variance=17.8)
    >>> round(noise_half_width(tree, noise, rows=10_000), 4)
    0.0094
    """
    if noise.variance == 0:
        return 0.0
    curve = expected_curve(summary, noise, rows=rows)
    # The variance of F_r - s·F_N is convex in the share s, so that it is largest at 0 or 1.
    variance = float(max(curve.law.below.max(), curve.law.above.max()))
    if curve.reports is not None:
        return report_half_width(noise, variance, summary.points, 1 - level) / rows
    error = NOISE_SHARE * (1 - level)
    return half_width_of(noise, variance, points=summary.points, error=error, reach=curve.reach) / rows


def quantile_errors(
    summary: ValueSummary, noise: Noise, *, quantile: float, rows: float, density: float
) -> tuple[float, float]:
    """The standard errors of a quantile that sampling and noise will cause, in units of the values.

    Parameters
    ----------
    quantile : which one, between 0 and 1.
    rows : how many there will be.
    density : of the values at the quantile, per unit; 1/(upper - lower) for values that are spread evenly.

    Both are errors of the distribution function at the quantile, divided by the density (Bahadur 1966). The width of
    a leaf comes on top.

    Examples
    --------
    >>> from fedassay.protocol import NO_NOISE
    >>> from fedassay.summaries.value_tree import ValueTree
    >>> tree = ValueTree(lower=0, upper=100, points=1024)
    >>> quantile_errors(tree, NO_NOISE, quantile=0.5, rows=10_000, density=0.01)
    (0.5, 0.0)
    """
    if not 0 < quantile < 1 or not density > 0:
        raise UsageError(
            f"quantile: got {quantile:g} at density {density:g}, expected one between 0 and 1, and a density above 0."
        )
    curve = expected_curve(summary, noise, rows=rows)
    place = min(summary.points - 1, math.ceil(quantile * summary.points) - 1)
    sampling = math.sqrt(quantile * (1 - quantile) / rows)
    privacy = math.sqrt(float(curve.share_variances(quantile)[place])) if noise.variance else 0.0
    return sampling / density, privacy / density
