"""Intervals from estimates with their variances.

Every interval has the same three parts: sampling variance and privacy variance add, the bound on the binning
error is added linearly at both ends. Rows are assumed independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from scipy.special import betaincinv, ndtri

from fedassay.errors import UsageError
from fedassay.estimation.metric import Metric, Undefined

_LARGEST_RELATIVE_ERROR = 5.0
"""Largest relative standard error of a ratio that is meaningful."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Value, the two variances of its error, a bound on its binning error, and a bias to be removed.

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
        """Standard error, sampling and privacy together."""
        return math.sqrt(self.sampling_variance + self.privacy_variance)

    def metric(self, value: float, interval: tuple[float, float], *, level: float) -> Metric:
        """Return the metric with this interval."""
        return Metric(
            value=value,
            interval=interval,
            level=level,
            sampling=math.sqrt(self.sampling_variance),
            privacy=math.sqrt(self.privacy_variance),
            discretisation=self.discretisation,
        )


def z_value(level: float) -> float:
    """Return the two-sided standard normal quantile.

    Examples
    --------
    >>> round(z_value(0.95), 3)
    1.96
    """
    if not 0 < level < 1:
        raise UsageError(f"level: got {level}, expected a number between 0 and 1, such as 0.95.")
    return float(ndtri((1 + level) / 2))


def score_interval(estimate: Estimate, *, size: float, level: float) -> tuple[float, float]:
    """Compute Wilson's interval for a quantity in [0, 1], extended by a privacy variance and a binning bound.

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
    """Return the ends of `score_interval` before they are cut: under noise they may lie outside [0, 1]."""
    z, tau, v = z_value(level), math.sqrt(estimate.privacy_variance), estimate.value - estimate.bias
    informative = 0 < v < 1 and estimate.sampling_variance > 0
    m = v * (1 - v) / estimate.sampling_variance if informative else size
    leading = 1 + z**2 / m
    centre = (v + z**2 / (2 * m)) / leading
    half = math.sqrt(max(0.0, centre**2 - (v * v - (z * tau) ** 2) / leading))
    return centre - half, centre + half


def combined(*terms: tuple[float, Estimate, float], correlation: float, level: float) -> tuple[float, float]:
    """Return how far the ends of an interval for w₁θ₁ + w₂θ₂ are below and above its estimate (MOVER).

    A term is a weight, an estimate and its `size`; `correlation` is that of both errors. Each distance is put together
    from Wilson's intervals for each θ, so that it is honest where one θ is near 0 or 1 and its variance says nothing.
    Reference: Zou and Donner (2008).

    Examples
    --------
    >>> perfect = Estimate(value=1.0, sampling_variance=0.0, privacy_variance=0.0)
    >>> below, above = combined((0.5, perfect, 10), (0.5, perfect, 10), correlation=0.0, level=0.95)
    >>> round(below, 4), above
    (0.1962, 0.0)
    """
    below, above, sign = list[float](), list[float](), 1.0
    for weight, estimate, size in terms:
        low, high = score_roots(estimate, size=size, level=level)
        down, up = max(0.0, estimate.value - low), max(0.0, high - estimate.value)
        below.append(abs(weight) * (down if weight > 0 else up))
        above.append(abs(weight) * (up if weight > 0 else down))
        sign = math.copysign(sign, sign * weight)

    def reach(one: float, two: float) -> float:
        return math.sqrt(max(0.0, one**2 + two**2 + 2 * sign * correlation * one * two))

    return reach(*below), reach(*above)


def quotient(
    upper: tuple[Estimate, float], lower: tuple[Estimate, float], *, correlation: float, level: float
) -> tuple[float, float]:
    """Compute an interval for θ₁/θ₂, two shares, from Wilson's for each (MOVER-R).

    The ends are the φ at which the interval of `combined` for θ₁ - φ θ₂ has an end at 0: roots of a quadratic equation.
    It needs no logarithm, so that it is honest where θ₁ is 0 or a share is near 1. Both shares come with their `size`.
    Reference: Donner and Zou (2012).

    Edge case: without a quotient where the interval of θ₂ reaches 0.

    Examples
    --------
    >>> half, tenth = (Estimate(value=v, sampling_variance=v * (1 - v) / 100, privacy_variance=0.0) for v in (0.5, 0.1))
    >>> low, high = quotient((half, 100), (tenth, 100), correlation=0.0, level=0.95)
    >>> round(low, 2), round(high, 2)
    (2.74, 9.25)
    """
    (one, l1, u1), (two, l2, u2) = (
        (max(0.0, estimate.value), *score_roots(estimate, size=size, level=level))
        for estimate, size in (upper, lower)
    )
    l1, u1 = max(0.0, l1), max(one, u1)
    if l2 <= 0:
        raise Undefined(
            f"not enough evidence: the share below it is {two:.2g}, and its interval begins at {max(0.0, l2):.2g}"
        )

    def equation(limit: float, other: float) -> tuple[float, float, float]:
        """Return the coefficients of a φ² - 2 b φ + c = 0: a, b plus the root of the discriminant, c."""
        a, c = other * (2 * two - other), limit * (2 * one - limit)
        b = one * two - correlation * (one - limit) * (two - other)
        return a, b + math.sqrt(max(0.0, b * b - a * c)), c

    _, below, c = equation(l1, u2)
    a, above, _ = equation(u1, l2)
    return c / below if l1 > 0 else 0.0, above / a


def share_interval(
    share: float, rows: float, privacy_variance: float, *, level: float
) -> tuple[float, float]:
    """Compute an interval for a share of rows that holds at every size: Clopper and Pearson's, widened for the noise.

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
    """Return a metric with values in [0, 1]; a noisy estimate outside is moved to the nearer end."""
    interval = score_interval(estimate, size=size, level=level)
    return estimate.metric(min(1.0, max(0.0, estimate.value)), interval, level=level)


def within(estimate: Estimate, *, ends: tuple[float, float], size: float, level: float) -> Metric:
    """Return a metric with values between other ends than 0 and 1: the interval of `bounded`, stretched.

    Examples
    --------
    >>> perfect = Estimate(value=1.0, sampling_variance=0.0, privacy_variance=0.0)
    >>> low, high = within(perfect, ends=(-1.0, 1.0), size=10, level=0.95).interval
    >>> round(low, 4), high
    (0.4449, 1.0)
    """
    least, width = ends[0], ends[1] - ends[0]
    share = Estimate(
        value=(estimate.value - least) / width,
        sampling_variance=estimate.sampling_variance / width**2,
        privacy_variance=estimate.privacy_variance / width**2,
        discretisation=estimate.discretisation / width,
        bias=estimate.bias / width,
    )
    low, high = (least + width * end for end in score_interval(share, size=size, level=level))
    value = min(ends[1], max(least, estimate.value))
    return estimate.metric(value, (min(low, value), max(high, value)), level=level)


def unbounded(estimate: Estimate, *, level: float, lowest: float = -math.inf) -> Metric:
    """Return a metric with the normal interval, cut at the `lowest` possible value."""
    half = z_value(level) * estimate.standard_error + estimate.discretisation
    interval = max(lowest, estimate.value - half), estimate.value + half
    return estimate.metric(max(lowest, estimate.value), interval, level=level)


def positive(estimate: Estimate, *, level: float) -> Metric:
    """Return a metric above zero, with an interval that is symmetric on the logarithmic scale.

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
