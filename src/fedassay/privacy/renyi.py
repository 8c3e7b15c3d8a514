"""Rényi divergences of the two noise laws, and what they mean in (epsilon, delta). Pure formulas.

Notation: α > 1 the order, D_α the Rényi divergence, ρ the parameter of zero-concentrated differential
privacy (zCDP: D_α ≤ ρα for all α), b and σ the scales, k the L1 sensitivity.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

Reals = NDArray[np.float64]

_LOWEST, _HIGHEST = -7.0, 80.0
"""The orders looked at: log(α - 1) in this range. Every order gives a valid bound; more only tighten it."""

_ROUNDING = 2.0**-48


def laplace_divergence(orders: Reals, *, scale: float, sensitivity: float) -> Reals:
    """D_α of discrete Laplace noise on an integer vector that one unit moves by at most k in L1.

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
    divergence: Reals = np.minimum(both / (orders - 1), epsilon)
    return divergence


@lru_cache(maxsize=256)
def rho_of(epsilon: float, delta: float) -> float:
    """The largest ρ that we can show to give (epsilon, delta), for delta > 0.

    Canonne, Kamath, Steinke (2020), Proposition 12 and Corollary 13: ρ-zCDP gives (epsilon, delta) if, for
    some α > 1, epsilon ≥ αρ + log(1 - 1/α) - log(αδ)/(α-1). We solve for ρ and take the best order: since any
    order is valid, an inexact search costs accuracy, never privacy.

    Examples
    --------
    >>> round(rho_of(1.0, 1e-6), 5)
    0.02436
    """
    return -_smallest(lambda orders: -(epsilon - _conversion(orders, delta)) / orders)


def epsilon_of(divergence: Callable[[Reals], Reals], delta: float) -> float:
    """The smallest epsilon that D_α ≤ `divergence(α)` for all α gives at delta > 0 (as in `rho_of`).

    Examples
    --------
    >>> round(epsilon_of(lambda orders: 0.02436 * orders, 1e-6), 3)
    1.0
    """
    return max(0.0, _smallest(lambda orders: divergence(orders) + _conversion(orders, delta)))


def _conversion(orders: Reals, delta: float) -> Reals:
    # log(1 - 1/α) - log(αδ)/(α-1)
    result: Reals = np.log1p(-1 / orders) - (np.log(orders) + np.log(delta)) / (orders - 1)
    return result


def _smallest(bound: Callable[[Reals], Reals]) -> float:
    """The smallest value of the bound over the orders: a grid, then a search around its best point."""
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
