"""Simultaneous bands for the two score distributions, from which the bands of curves are made.

Sampling: the Dvoretzky-Kiefer-Wolfowitz inequality with Massart's constant, valid for every distribution and
sample size. Noise: a Chernoff bound with a union over all edges; Laplace noise has exponential tails, so a
normal quantile would be too small that far out. Most of the allowed error goes to sampling, because the noise
bound depends on its share only through a logarithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from fedassay.tasks.evaluation.evidence import Evidence, Floats
from fedassay.tasks.evaluation.intervals import z_value

_NOISE_SHARE = 0.1
"""The part of the allowed error that the noise may use."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RateBand:
    """The share of a class at or above each edge, non-increasing, and a half-width for all edges at once."""

    rates: Floats
    half_width: float

    @property
    def lower(self) -> Floats:
        """The lower ends."""
        return np.maximum(self.rates - self.half_width, 0.0)

    @property
    def upper(self) -> Floats:
        """The upper ends."""
        return np.minimum(self.rates + self.half_width, 1.0)


def rate_band(evidence: Evidence, below: Floats, *, error: float) -> RateBand:
    """The band of one class, from its counts below each edge; true at all edges at once but for `error`.

    Under noise the rates are the isotonic regression of the estimates, which moves no point further from a
    monotone truth than the worst point was before, so that one half-width serves all.
    """
    total = float(below[-1])
    rates = 1 - below / total
    if evidence.exact:
        return RateBand(rates=rates, half_width=dkw_half_width(total, error))
    fit = evidence.fit
    fewest = max(1.0, total - z_value(1 - error) * math.sqrt(fit.total_variance))
    above = fit.total_variance - 2 * fit.prefix_total_covariances + fit.prefix_variances
    joint = fit.total_variance - fit.prefix_total_covariances
    # The noise of (rows above the edge)/(all rows): the first minus the rate times the second, over the
    # total.
    variance = float((above - 2 * rates * joint + rates**2 * fit.total_variance).max())
    scale = 0.0 if evidence.noise.law == "discrete-gaussian" else evidence.noise.scale
    noise = noise_half_width(variance, scale, points=len(below) - 2, error=_NOISE_SHARE * error) / total
    half_width = dkw_half_width(fewest, (1 - _NOISE_SHARE) * error) + noise
    monotone = np.asarray(isotonic_regression(rates, increasing=False).x)
    return RateBand(rates=np.clip(monotone, 0.0, 1.0), half_width=half_width)


def dkw_half_width(rows: float, error: float) -> float:
    """sqrt(log(2/error)/(2 rows)): no empirical distribution strays further (Massart 1990).

    Examples
    --------
    >>> round(dkw_half_width(100, 0.05), 4)
    0.1358
    """
    return math.sqrt(math.log(2 / error) / (2 * rows))


def noise_half_width(variance: float, scale: float, *, points: int, error: float) -> float:
    """A bound on the largest of `points` noisy sums, each with at most this variance.

    A sum Σ a_i X_i of independent Laplace variables of scale b, |a_i| <= 1, has a cumulant generating
    function of at most (v/2) t²/(1 - b²t²), v its variance; the same holds for discrete Laplace variables,
    whose generating function is smaller. Hence P(|sum| > u) <= 2 exp((v/2) t²/(1 - b²t²) - u t) for each t <
    1/b, and with t chosen best

        u = min_t (log(2·points/error) + (v/2) t²/(1 - b²t²))/t.

    `scale` 0 is the Gaussian case, u = sqrt(2 v log(2·points/error)).

    Examples
    --------
    >>> round(noise_half_width(1.0, 0.0, points=1, error=0.05), 3)
    2.716
    >>> round(noise_half_width(150.0, 3.0, points=1023, error=0.05), 1)
    76.5
    """
    x = math.log(2 * points / error)
    largest = 20 / math.sqrt(variance) if scale == 0 else (1 - 1e-9) / scale
    t = np.linspace(0, largest, 4001)[1:-1]
    return float(((x + variance / 2 * t**2 / (1 - (scale * t) ** 2)) / t).min())
