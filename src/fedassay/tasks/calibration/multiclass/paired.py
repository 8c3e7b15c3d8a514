"""By how much a map changes losses and accuracy on the same rows, with intervals: after less before."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fedassay.estimation.evidence import enough
from fedassay.estimation.intervals import Estimate, unbounded, z_value
from fedassay.estimation.metric import LEVEL, Metric, Undefined, estimator
from fedassay.protocol import Noise
from fedassay.summaries.multiclass.class_statistics import LARGEST_BRIER, LARGEST_LOSS, Part
from fedassay.summaries.multiclass.map_changes import Change, ChangeTotals

ROUNDING = 1e-9
"""A mean change below it is what floating point leaves of two ways to compute the same."""

ORDER_KEPT = "the order of classes does not change"


@dataclass(frozen=True, kw_only=True, eq=False)
class Paired:
    """Totals of changes over held-out rows, exact or noisy."""

    totals: ChangeTotals
    noise: Noise

    @property
    def rows(self) -> float:
        """How many rows there are."""
        return float(self.totals.rows.value)

    @property
    def wrong(self) -> float:
        """How many of them the model itself has wrong."""
        return float(self.totals.wrong.value)

    def variance(self, part: Part) -> float:
        """The privacy variance of a total."""
        return part.factor * self.noise.variance

    def require_rows(self) -> float:
        """n, if it can carry a mean and its variance."""
        n = enough("held-out rows", self.rows, self.variance(self.totals.rows))
        if n < 2:
            raise Undefined("there are fewer than 2 held-out rows")
        return n

    def mean(self, change: Change) -> Estimate:
        """The mean change of a row. Squares were rounded toward zero: the variance makes up for it."""
        n = self.require_rows()
        v = float(change.first.value) / n
        square = float(change.second.value) / n + change.second.resolution
        return Estimate(
            value=v,
            sampling_variance=(square - v * v) / (n - 1),
            privacy_variance=(self.variance(change.first) + v * v * self.variance(self.totals.rows)) / n**2,
            discretisation=max(ROUNDING, change.first.resolution),
        )

    def skewness(self, change: Change) -> float:
        """γ of the changes of single rows; 0 if cubes were not asked for or are too small to be told from rounding."""
        n = self.rows
        scale = math.pow(self.mean(change).sampling_variance * (n - 1), 1.5)
        if change.third is None or change.third.resolution > 0.1 * scale:
            return 0.0
        v, square, cube = (float(part.value) / n for part in (change.first, change.second, change.third))
        return (cube - 3 * v * square + 2 * v**3) / scale


@estimator
def log_loss_change(paired: Paired, *, level: float = LEVEL) -> Metric:
    """Of the mean log loss; below 0 if the map helps."""
    return _loss_change(paired, "loss", LARGEST_LOSS, level)


@estimator
def brier_score_change(paired: Paired, *, level: float = LEVEL) -> Metric:
    """Of the Brier score; below 0 if the map helps."""
    return _loss_change(paired, "brier", LARGEST_BRIER, level)


def _loss_change(paired: Paired, name: str, largest: float, level: float) -> Metric:
    """The mean over rows; ``bound`` is in the details if changes of single rows were cut at it."""
    change = paired.totals.changes[name]
    estimate, details = paired.mean(change), {} if change.bound >= largest else {"bound": change.bound}
    if paired.noise.variance > 0:
        return replace(unbounded(estimate, level=level), details=details)
    low, high = skewed_interval(estimate, paired.skewness(change), paired.rows, level=level)
    ends = (low - estimate.discretisation, high + estimate.discretisation)
    return replace(estimate.metric(estimate.value, ends, level=level), details=details)


def skewed_interval(estimate: Estimate, skewness: float, rows: float, *, level: float) -> tuple[float, float]:
    """The interval of a mean of skewed numbers, without noise.

    Most rows change a little, the few that the model has wrong change a lot, and the other way: with the normal
    interval, a calibrator that is no better would be called better far more often than it says. Measured, where it
    should be 2.5 %: 14 % with 7 wrong rows of 50 and 7 % with 27 of 200; with this interval 8 % and 3 %.

    t is Studentised; g(t) = t + a t²/3 + a² t³/27 + a/6 with a = γ/√n is normal up to terms of order 1/n and has the
    inverse 3((1 + a(x - a/6))^{1/3} - 1)/a.

    Reference: Hall, On the Removal of Skewness by Transformation, J. R. Statist. Soc. B 54, 1992.

    Examples
    --------
    >>> even = Estimate(value=0.0, sampling_variance=1.0, privacy_variance=0.0)
    >>> low, high = skewed_interval(even, 3.0, 100, level=0.95)
    >>> round(low, 2), round(high, 2)
    (-1.63, 2.65)
    """
    z, a = z_value(level), skewness / math.sqrt(rows)

    def inverse(x: float) -> float:
        return x if abs(a) < 1e-9 else 3 * (math.cbrt(1 + a * (x - a / 6)) - 1) / a

    low, high = (estimate.value - estimate.standard_error * inverse(x) for x in (z, -z))
    # Where skewness is extreme the interval can leave its own estimate out.
    return min(low, estimate.value), max(high, estimate.value)


@estimator
def accuracy_change(paired: Paired, *, level: float = LEVEL) -> Metric:
    """Of the share of rows that are right: exactly 0 where the map keeps the order of classes.

    The interval adds half a row to each of the four pairs of right and wrong, so that it has some width where no row
    has changed. Reference: Agresti and Min, Simple Improved Confidence Intervals for Comparing Matched Proportions,
    Statistics in Medicine 24, 2005.
    """
    change = paired.totals.changes.get("correct")
    if change is None:
        nothing = Estimate(value=0.0, sampling_variance=0.0, privacy_variance=0.0)
        return replace(nothing.metric(0.0, (0.0, 0.0), level=level), details={"note": ORDER_KEPT})
    n, plain = paired.require_rows(), paired.mean(change)
    m, won, changed = n + 2, float(change.first.value), max(0.0, float(change.second.value))
    estimate = replace(
        plain, sampling_variance=(changed + 1 - won**2 / m) / m**2, discretisation=change.first.resolution
    )
    half = z_value(level) * estimate.standard_error + estimate.discretisation
    low, high = min(won / m - half, plain.value), max(won / m + half, plain.value)
    value = min(1.0, max(-1.0, plain.value))
    return estimate.metric(value, (max(-1.0, low), min(1.0, high)), level=level)
