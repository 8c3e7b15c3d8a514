"""Rényi divergences of the noise laws, and their conversion to (epsilon, delta). Pure formulas.

Notation: α > 1 the order, D_α the Rényi divergence, ρ the parameter of zero-concentrated differential
privacy (zCDP: D_α ≤ ρα for all α), b and σ the scales, k the L1 sensitivity; μ the variance of Skellam noise,
Δ₁ and Δ₂ the L1 and L2 sensitivities.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np

from fedassay.protocol.arrays import Floats

_LOWEST, _HIGHEST = -7.0, 80.0
"""Range of log(α - 1) for the orders considered. Every order gives a valid bound; more only tighten it."""

_WHOLE = np.unique(np.round(np.concatenate([np.arange(2, 129), 2 ** np.arange(7, 52, 1 / 16)])))
"""Whole orders considered: all up to 128, then 16 for each doubling, all whole as floats."""

FEW = np.concatenate([np.arange(2.0, 129.0), 2.0 ** np.arange(8, 52)])
"""A few of the whole orders, for sums that are kept while releases are added."""

_ROUNDING = 2.0**-48
_SMALLEST_SCALE = 2.0**-6


def laplace_divergence(orders: Floats, *, scale: float, sensitivity: float) -> Floats:
    """Compute D_α of discrete Laplace noise on an integer vector that one unit moves by at most k in L1.

    With a = exp(-1/b) and r = a^(2α-1), summing over x < 0, 0..k and x > k gives for one coordinate

        exp((α-1) D_α) = A·a^(-(α-1)k) + B·a^(αk),   B = (a - r)/((1 + a)(1 - r)),   A = 1 - B.

    Guarantee: an upper bound for vectors. The right-hand side is log-convex in k and equals 1 at k = 0, so
    D_α is superadditive in k: splitting the same L1 distance over several coordinates only lowers it.

    Discrete noise is *not* covered by the formula of continuous Laplace noise: at b = k = 1 its D_2 is 0.735,
    that of the continuous law 0.619.

    Examples
    --------
    >>> laplace_divergence(np.array([2.0]), scale=1.0, sensitivity=1).round(3)
    array([0.735])
    """
    epsilon = sensitivity / scale
    a, r = np.exp(-1 / scale), np.exp(-(2 * orders - 1) / scale)
    one_minus_r = -np.expm1(-(2 * orders - 1) / scale)
    log_b = np.log(a * -np.expm1(-2 * (orders - 1) / scale) / ((1 + a) * one_minus_r))
    log_a = np.log((1 + r * -np.expm1(-1 / scale) / one_minus_r) / (1 + a))
    # log(A·exp((α-1)ε) + B·exp(-αε)) in log space, so that large α·ε cannot overflow; then a little more than
    # rounding can have taken away, so that many tiny divergences cannot add up to less than they are.
    both = np.logaddexp(log_a + (orders - 1) * epsilon, log_b - orders * epsilon)
    both = np.maximum(both, 0) * (1 + _ROUNDING) + _ROUNDING
    divergence: Floats = np.minimum(both / (orders - 1), epsilon)
    return divergence


@lru_cache(maxsize=1024)
def laplace_scale_of(divergence: float, *, order: float, sensitivity: int) -> float:
    """Return a scale at which discrete Laplace noise has at most this D_α: nearly the smallest, down to 1/64.

    Guarantee: the scale that is returned has been checked. The search starts where D_α ≤ k/b or
    D_α ≤ α(k/b)²/2 (Bun, Steinke 2016, Proposition 1.4) already gives it, and only keeps scales that pass.

    Examples
    --------
    >>> round(laplace_scale_of(0.735, order=2, sensitivity=1), 3)
    1.0
    """
    largest = sensitivity / max(divergence, math.sqrt(2 * divergence / order))
    smallest = largest / 2
    while smallest > _SMALLEST_SCALE and _laplace_passes(smallest, divergence, order, sensitivity):
        largest, smallest = smallest, smallest / 2
    if smallest <= _SMALLEST_SCALE:
        return largest
    for _ in range(40):
        middle = (smallest + largest) / 2
        if _laplace_passes(middle, divergence, order, sensitivity):
            largest = middle
        else:
            smallest = middle
    return largest


def _laplace_passes(scale: float, divergence: float, order: float, sensitivity: int) -> bool:
    reached = laplace_divergence(np.array([order], dtype=np.float64), scale=scale, sensitivity=sensitivity)
    return bool(reached[0] <= divergence)


def skellam_divergence(orders: Floats, *, variance: float, l1: int, l2_squared: int) -> Floats:
    """Return an upper bound of D_α of Skellam noise on an integer vector that one unit moves by Δ₁ and Δ₂.

    Agarwal, Kairouz, Liu, "The Skellam Mechanism for Differentially Private Federated Learning" (2021,
    arXiv:2110.04995), Corollary 3.6, for whole orders α ≥ 2:

        D_α ≤ αΔ₂²/2μ + min(((2α-1)Δ₂² + 6Δ₁)/4μ², 3Δ₁/2μ).

    Other orders get the bound of the next whole one: D_α does not decrease in α.

    Examples
    --------
    >>> skellam_divergence(np.array([1.5, 2.0]), variance=100.0, l1=1, l2_squared=1)
    array([0.010225, 0.010225])
    """
    whole = np.maximum(np.ceil(orders), 2)
    squares = ((2 * whole - 1) * l2_squared + 6 * l1) / (4 * variance * variance)
    bound = whole * l2_squared / (2 * variance) + np.minimum(squares, 3 * l1 / (2 * variance))
    divergence: Floats = bound * (1 + _ROUNDING)
    return divergence


def skellam_variance_of(divergence: Fraction, *, order: int, l1: int, l2_squared: int) -> Fraction:
    """Return the smallest μ at which the bound of `skellam_divergence` gives at most this D_α, but for rounding.

    Either half of the minimum may serve. With the second one μ = (αΔ₂² + 3Δ₁)/2D; with the first one the larger
    root of Dμ² - (αΔ₂²/2)μ - ((2α-1)Δ₂² + 6Δ₁)/4 (here to 60 bits).

    Examples
    --------
    >>> round(float(skellam_variance_of(Fraction("0.010225"), order=2, l1=1, l2_squared=1)), 9)
    100.0
    """
    second = (order * l2_squared + 3 * l1) / (2 * divergence)
    half = Fraction(order * l2_squared, 4)
    first = (half + root(half * half + divergence * ((2 * order - 1) * l2_squared + 6 * l1) / 4)) / divergence
    return min(first, second)


def root(square: Fraction) -> Fraction:
    """Return √square to 60 bits, rounded down.

    Examples
    --------
    >>> root(Fraction(9, 4))
    Fraction(3, 2)
    """
    places = 60 + max(0, square.denominator.bit_length() - square.numerator.bit_length())
    return Fraction(math.isqrt(math.floor(square * 4**places)), 2**places)


@lru_cache(maxsize=256)
def order_of(epsilon: float, delta: float) -> tuple[int, float]:
    """Return a whole order α for a budget, and the largest D_α that gives (epsilon, delta), for delta > 0.

    D_α ≤ epsilon - log(1 - 1/α) + log(αδ)/(α-1) gives (epsilon, delta) (see `rho_of`), for each α. This is the
    order with the largest D_α/α: the best one for noise whose D_α grows like α, as that of Gaussian and
    (nearly) of Skellam noise does.

    Examples
    --------
    >>> order, divergence = order_of(1.0, 1e-6)
    >>> order, round(divergence / order, 5)
    (22, 0.02436)
    """
    allowed = epsilon - _conversion(_WHOLE, delta)
    best = int(np.argmax(allowed / _WHOLE))
    return int(_WHOLE[best]), float(allowed[best])


@lru_cache(maxsize=256)
def rho_of(epsilon: float, delta: float) -> float:
    """Return the largest ρ that we can show to give (epsilon, delta), for delta > 0.

    Canonne, Kamath, Steinke (2020), Proposition 12 and Corollary 13: ρ-zCDP gives (epsilon, delta) if, for
    some α > 1, epsilon ≥ αρ + log(1 - 1/α) - log(αδ)/(α-1). We solve for ρ and take the best order: since any
    order is valid, an inexact search costs accuracy, never privacy.

    Examples
    --------
    >>> round(rho_of(1.0, 1e-6), 5)
    0.02436
    """
    return -_smallest(lambda orders: -(epsilon - _conversion(orders, delta)) / orders)


def epsilon_of(divergence: Callable[[Floats], Floats], delta: float) -> float:
    """Return the smallest epsilon that D_α ≤ `divergence(α)` for all α gives at delta > 0 (as in `rho_of`).

    Examples
    --------
    >>> round(epsilon_of(lambda orders: 0.02436 * orders, 1e-6), 3)
    1.0
    """

    def bound(orders: Floats) -> Floats:
        return divergence(orders) + _conversion(orders, delta)

    # Where the bound holds for whole orders only, the best one is hardly ever among the others.
    return max(0.0, min(_smallest(bound), float(bound(_WHOLE).min())))


def epsilon_at_few(divergence: Floats, delta: float) -> float:
    """Return an epsilon that D_α at the orders `FEW` give at delta > 0: not below `epsilon_of`, but for rounding.

    Examples
    --------
    >>> round(epsilon_at_few(0.02436 * FEW, 1e-6), 3)
    1.0
    """
    return max(0.0, float((divergence + _conversion(FEW, delta)).min()))


def _conversion(orders: Floats, delta: float) -> Floats:
    # log(1 - 1/α) - log(αδ)/(α-1)
    result: Floats = np.log1p(-1 / orders) - (np.log(orders) + np.log(delta)) / (orders - 1)
    return result


def _smallest(bound: Callable[[Floats], Floats]) -> float:
    """Return the smallest value of the bound over the orders: a grid, then a search around its best point."""
    from scipy.optimize import minimize_scalar  # late: each message between machines starts a process

    grid = np.linspace(_LOWEST, _HIGHEST, 871)
    values = bound(1 + np.exp(grid))
    best = int(np.argmin(values))
    around = (grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)])
    refined = minimize_scalar(
        lambda u: float(bound(np.array([1 + np.exp(u)]))[0]),
        bounds=around,
        method="bounded",
        options={"xatol": 1e-9},
    )
    return float(min(refined.fun, values[best]))
