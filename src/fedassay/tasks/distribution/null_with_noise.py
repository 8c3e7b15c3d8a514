"""What a test statistic looks like if a model is right and there is noise: cumulants, and draws of a null."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc

from fedassay.protocol import Noise

Floats = NDArray[np.float64]

DRAWS = 4_999
"""Simulated statistics per p-value: none is below 1/5,000."""

_SEED = 20_250_101
"""A constant: the same release always gives the same p-value."""


def fourth_cumulant(noise: Noise) -> float:
    """κ_4 of the noise in a coordinate: what it has beyond a normal law of the same variance.

    Discrete Laplace noise is the difference of two geometric draws of variance v/2, κ_4 = v(1 + 3v); a Skellam draw has
    κ_4 = v. Cumulants of independent draws (`Noise.copies`) add up. Others count as normal: the discrete Gaussian,
    and sums over clients who randomise their bits.

    Examples
    --------
    >>> fourth_cumulant(Noise(law="discrete-laplace", scale=1.0, variance=2.0))
    14.0
    >>> fourth_cumulant(Noise(law="discrete-laplace", scale=1.0, variance=20.0, copies=10.0))
    140.0
    """
    if noise.law == "discrete-laplace":
        one = noise.variance / noise.copies
        return noise.copies * one * (1 + 3 * one)
    return noise.variance if noise.law == "skellam" else 0.0


def upper_tail(statistic: float, *, mean: float, variance: float) -> float:
    """P(T >= statistic) for a gamma law with this mean and variance.

    With variance = 2·mean it is the χ² law with `mean` degrees of freedom. For sums of squares whose terms have
    heavier tails than normal ones, it is closer than that: see docs/explanation/hosmer-lemeshow.md.

    Examples
    --------
    >>> round(upper_tail(18.307, mean=10, variance=20), 5), round(upper_tail(18.307, mean=10, variance=35), 3)
    (0.05, 0.093)
    """
    return float(gammaincc(mean**2 / variance, max(0.0, statistic) * mean / variance))


def noise_like(noise: Noise, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Draws of this law; whole numbers become real ones, which for a scale of many units makes no difference."""
    if noise.law == "discrete-laplace" and noise.copies == 1:
        return rng.laplace(0.0, noise.scale, shape)
    if noise.law == "discrete-laplace":
        return rng.gamma(noise.copies, noise.scale, shape) - rng.gamma(noise.copies, noise.scale, shape)
    return rng.normal(0.0, np.sqrt(noise.variance), shape)


def simulated_tail(statistic: float, draw: Callable[[np.random.Generator], Floats]) -> float:
    """The p-value of a statistic among draws of its null: (1 + those not below it)/(1 + all of them).

    `draw` gets a generator with a constant seed and returns statistics; NaN are those that are not defined, and left
    out.
    """
    drawn = draw(np.random.default_rng(_SEED))
    defined = drawn[~np.isnan(drawn)]
    return float((1 + np.count_nonzero(defined >= statistic)) / (1 + len(defined)))
