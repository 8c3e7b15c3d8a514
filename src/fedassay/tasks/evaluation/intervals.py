"""From an estimate with its variances to an interval.

Every interval has the same three parts: sampling variance and privacy variance add, the bound on the binning
error is added linearly at both ends. Rows are assumed independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from scipy.special import betaincinv, ndtri

from fedassay.errors import UsageError
from fedassay.tasks.evaluation.metric import Metric, Undefined

_LARGEST_RELATIVE_ERROR = 5.0
"""A ratio with a larger relative standard error says nothing."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value, the two variances of its error, a bound on its binning error, and a bias to be removed.

    `bias` is the known excess of the value over the quantity it estimates. Values are reported as they are
    (they equal scikit-learn's); intervals are placed around the value without the bias.
    """

    value: float
    sampling_variance: float
    privacy_variance: float
    discretisation: float = 0.0
    bias: float = 0.0

    def __post_init__(self) -> None:
        # Variances are differences of sums: where they vanish, rounding can leave them just below zero.
        object.__setattr__(self, "sampling_variance", max(0.0, self.sampling_variance))
        object.__setattr__(self, "privacy_variance", max(0.0, self.privacy_variance))

    @property
    def standard_error(self) -> float:
        """The standard error, sampling and privacy together."""
        return math.sqrt(self.sampling_variance + self.privacy_variance)

    def metric(self, value: float, interval: tuple[float, float], *, level: float) -> Metric:
        """The metric with this interval."""
        return Metric(
            value=value,
            interval=interval,
            level=level,
            sampling=math.sqrt(self.sampling_variance),
            privacy=math.sqrt(self.privacy_variance),
            discretisation=self.discretisation,
        )


def z_value(level: float) -> float:
    """The two-sided standard normal quantile.

    Examples
    --------
    >>> round(z_value(0.95), 3)
    1.96
    """
    if not 0 < level < 1:
        raise UsageError(f"level: got {level}, expected a number between 0 and 1, such as 0.95.")
    return float(ndtri((1 + level) / 2))


def score_interval(estimate: Estimate, *, size: float, level: float) -> tuple[float, float]:
    """Wilson's interval for a quantity in [0, 1], extended by a privacy variance and a binning bound.

    It holds the values p with (p - v)² <= z² (p(1-p)/m + τ²): v the estimate, τ² the privacy variance, m the
    effective sample size v(1-v)/(sampling variance). At v = 0 or 1, where the variance says nothing, m is
    `size` (rows of the denominator), so that the interval never has zero width.

    With τ = 0 this is Wilson (1927) at sample size m; for large m it is the normal interval.

    Examples
    --------
    >>> perfect = Estimate(value=1.0, sampling_variance=0.0, privacy_variance=0.0)
    >>> low, high = score_interval(perfect, size=10, level=0.95)
    >>> round(low, 4), high
    (0.7225, 1.0)
    """
    # A noisy estimate outside [0, 1] only comes closer to the truth when it is moved to the nearer end.
    inside = replace(estimate, value=min(1.0, max(0.0, estimate.value - estimate.bias)), bias=0.0)
    low, high = score_roots(inside, size=size, level=level)
    reported = min(1.0, max(0.0, estimate.value))
    low, high = min(low, reported) - estimate.discretisation, max(high, reported) + estimate.discretisation
    return max(0.0, low), min(1.0, high)


def score_roots(estimate: Estimate, *, size: float, level: float) -> tuple[float, float]:
    """The ends of `score_interval` before they are cut: under noise they may lie outside [0, 1]."""
    z, tau, v = z_value(level), math.sqrt(estimate.privacy_variance), estimate.value - estimate.bias
    informative = 0 < v < 1 and estimate.sampling_variance > 0
    m = v * (1 - v) / estimate.sampling_variance if informative else size
    leading = 1 + z**2 / m
    centre = (v + z**2 / (2 * m)) / leading
    half = math.sqrt(max(0.0, centre**2 - (v * v - (z * tau) ** 2) / leading))
    return centre - half, centre + half


def share_interval(
    share: float, rows: float, privacy_variance: float, *, level: float
) -> tuple[float, float]:
    """An interval for a share of rows that holds at every size: Clopper and Pearson's, widened for the noise.

    Exact (never below its level) without noise, so that many can be combined into a simultaneous statement.
    The privacy error is added in quadrature to the distance of each end.

    Examples
    --------
    >>> low, high = share_interval(0.0, 10, 0.0, level=0.95)
    >>> low, round(high, 4)
    (0.0, 0.3085)
    """
    v, tail, noise = min(1.0, max(0.0, share)), (1 - level) / 2, z_value(level) * math.sqrt(privacy_variance)
    k = v * rows
    low = float(betaincinv(k, rows - k + 1, tail)) if k > 0 else 0.0
    high = float(betaincinv(k + 1, rows - k, 1 - tail)) if k < rows else 1.0
    return max(0.0, v - math.hypot(v - low, noise)), min(1.0, v + math.hypot(high - v, noise))


def bounded(estimate: Estimate, *, size: float, level: float) -> Metric:
    """A metric with values in [0, 1]; a noisy estimate outside is moved to the nearer end."""
    interval = score_interval(estimate, size=size, level=level)
    return estimate.metric(min(1.0, max(0.0, estimate.value)), interval, level=level)


def unbounded(estimate: Estimate, *, level: float, lowest: float = -math.inf) -> Metric:
    """A metric with the normal interval, cut at the `lowest` possible value."""
    half = z_value(level) * estimate.standard_error + estimate.discretisation
    interval = max(lowest, estimate.value - half), estimate.value + half
    return estimate.metric(max(lowest, estimate.value), interval, level=level)


def positive(estimate: Estimate, *, level: float) -> Metric:
    """A metric above zero, with an interval that is symmetric on the logarithmic scale.

    Edge case: an estimate that is not above zero, or far below its error, has no such interval.
    """
    if estimate.value <= 0 or estimate.standard_error > _LARGEST_RELATIVE_ERROR * estimate.value:
        raise Undefined(
            f"not enough evidence: the estimate {estimate.value:.3g} has standard error "
            f"{estimate.standard_error:.3g}"
        )
    factor = math.exp(z_value(level) * estimate.standard_error / estimate.value)
    low = estimate.value / factor - estimate.discretisation
    high = estimate.value * factor + estimate.discretisation
    return estimate.metric(estimate.value, (max(0.0, low), high), level=level)
