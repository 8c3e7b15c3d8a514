"""Rényi divergences against sums over the exact probabilities, and conversions against dp-accounting."""

from __future__ import annotations

import math
from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from hypothesis import given
from hypothesis import strategies as st

from fedassay.privacy.renyi import (
    epsilon_of,
    laplace_divergence,
    laplace_scale_of,
    order_of,
    rho_of,
    skellam_divergence,
    skellam_variance_of,
)
from skellam_law import log_probabilities

ORDERS = np.array([1.001, 1.1, 1.5, 2.0, 3.0, 10.0, 64.0])


def divergence_by_summation(order: float, scale: float, shift: int) -> float:
    x = np.arange(-int(60 * scale) - 60, int(60 * scale) + 60 + shift)
    log_norm = math.log(math.tanh(1 / (2 * scale)))
    log_p, log_q = log_norm - np.abs(x) / scale, log_norm - np.abs(x - shift) / scale
    return float(np.logaddexp.reduce(order * log_p + (1 - order) * log_q)) / (order - 1)


@pytest.mark.parametrize("scale", [0.2, 1.0, 3.7, 25.0])
@pytest.mark.parametrize("shift", [1, 2, 9])
def test_the_divergence_is_that_of_the_law(scale: float, shift: int) -> None:
    ours = laplace_divergence(ORDERS, scale=scale, sensitivity=shift)
    for order, value in zip(ORDERS, ours, strict=True):
        assert value == pytest.approx(divergence_by_summation(order, scale, shift), rel=1e-6, abs=1e-11)


@given(st.floats(0.1, 1e4), st.integers(1, 50), st.integers(1, 50))
def test_splitting_a_shift_over_coordinates_only_lowers_it(scale: float, one: int, other: int) -> None:
    whole = laplace_divergence(ORDERS, scale=scale, sensitivity=one + other)
    parts = laplace_divergence(ORDERS, scale=scale, sensitivity=one) + laplace_divergence(
        ORDERS, scale=scale, sensitivity=other
    )
    assert (whole >= parts * (1 - 1e-9) - 1e-12).all()


@given(st.floats(0.02, 1e15), st.integers(1, 2**50))
def test_the_divergence_is_finite_and_at_most_the_pure_epsilon(scale: float, shift: int) -> None:
    orders = 1 + np.exp(np.linspace(-7, 80, 50))
    values = laplace_divergence(orders, scale=scale, sensitivity=shift)
    assert np.isfinite(values).all()
    assert (values <= shift / scale).all()
    assert (values <= orders * (shift / scale) ** 2 / 2 * (1 + 1e-6) + 1e-11).all()  # Bun and Steinke, 1.4


def test_continuous_laplace_would_understate_discrete_laplace() -> None:
    """Why `event` does not use dp-accounting's LaplaceDpEvent."""
    accountant = rdp.RdpAccountant(orders=list(ORDERS))
    accountant.compose(dp_accounting.LaplaceDpEvent(1.0))
    assert (laplace_divergence(ORDERS, scale=1.0, sensitivity=1) > accountant.rdp * 1.005).all()


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
def test_rho_and_epsilon_are_inverse_and_agree_with_dp_accounting(epsilon: float, delta: float) -> None:
    rho = rho_of(epsilon, delta)
    assert epsilon_of(lambda orders: rho * orders, delta) == pytest.approx(epsilon, rel=1e-7)
    accountant = rdp.RdpAccountant(orders=list(1 + np.geomspace(1e-2, 1e7, 4000)))
    accountant.compose(dp_accounting.ZCDpEvent(rho))
    assert accountant.get_epsilon(delta) == pytest.approx(epsilon, rel=1e-4)  # its grid of orders
    # Converting can only lose: continuous Gaussian noise of this ρ needs no more than this epsilon.
    assert dp_accounting.get_epsilon_gaussian(math.sqrt(1 / (2 * rho)), delta) <= epsilon * (1 + 1e-9)


def skellam_by_summation(order: float, variance: float, shift: int) -> float:
    """D_α of Skellam noise moved by `shift`, summed over its probabilities; the tails left out do not count."""
    reach = int(2 * order * shift + 60 * math.sqrt(variance)) + 100
    p = log_probabilities(variance, reach)
    here, there = p[shift:], p[: p.size - shift]
    terms = np.array([order * here + (1 - order) * there, order * there + (1 - order) * here])
    assert (terms[:, [0, -1]] < terms.max() - 35).all()
    return float(np.logaddexp.reduce(terms, axis=1).max()) / (order - 1)


VARIANCES = [0.05, 0.5, 1.0, 3.0, 10.0, 41.0, 200.0, 3000.0]
SKELLAM_ORDERS = [1.2, 2.0, 2.5, 3.0, 5.0, 9.0, 22.0, 40.0, 100.0]


def skellam_bound(order: float, variance: float, *shifts: int) -> float:
    l1, l2_squared = sum(shifts), sum(s * s for s in shifts)
    return float(skellam_divergence(np.array([order]), variance=variance, l1=l1, l2_squared=l2_squared)[0])


@pytest.mark.parametrize("variance", VARIANCES)
def test_the_bound_for_skellam_noise_holds(variance: float) -> None:
    """In one coordinate, and in two that share the shift; and it is tight where there is noise enough."""
    tightest = 0.0
    for order in SKELLAM_ORDERS:
        exact = {shift: skellam_by_summation(order, variance, shift) for shift in (1, 2, 3, 7, 12)}
        for one, divergence in exact.items():
            bound = skellam_bound(order, variance, one)
            assert divergence <= bound
            tightest = max(tightest, divergence / bound)
            for other, second in exact.items():
                assert divergence + second <= skellam_bound(order, variance, one, other)
    assert tightest > (0.97 if variance >= 200 else 0.02)


def test_a_smaller_bound_would_not_hold() -> None:
    """The check above can fail: with 1 % more variance in the bound than in the noise it does."""
    assert skellam_by_summation(5.0, 3000.0, 3) > skellam_bound(5.0, 1.01 * 3000.0, 3)


@given(
    st.sampled_from([2, 3, 22, 300, 2**20]),
    st.integers(1, 10**6),
    st.integers(1, 10**6),
    st.floats(1e-6, 1e6),
)
def test_the_variance_for_a_divergence_is_the_smallest(
    order: int, l1: int, l2: int, divergence: float
) -> None:
    variance = skellam_variance_of(Fraction(divergence), order=order, l1=l1, l2_squared=l2)
    at = [
        float(
            skellam_divergence(
                np.array([float(order)]), variance=float(variance) * factor, l1=l1, l2_squared=l2
            )[0]
        )
        for factor in (1 + 1e-9, 1 - 1e-6)
    ]
    assert at[0] <= divergence < at[1]


@given(st.sampled_from([2, 3, 22, 300, 2**20]), st.integers(1, 10**6), st.floats(1e-6, 10.0))
def test_the_laplace_scale_for_a_divergence_is_nearly_the_smallest(
    order: int, sensitivity: int, divergence: float
) -> None:
    scale = laplace_scale_of(divergence, order=order, sensitivity=sensitivity)
    at = [
        float(laplace_divergence(np.array([float(order)]), scale=scale * f, sensitivity=sensitivity)[0])
        for f in (1.0, 0.999)
    ]
    assert at[0] <= divergence
    assert at[1] > divergence or scale <= 2.0**-5


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
def test_one_whole_order_loses_little(epsilon: float, delta: float) -> None:
    order, divergence = order_of(epsilon, delta)
    assert order >= 2
    assert epsilon_of(lambda orders: np.where(orders <= order, divergence, 1e9), delta) == pytest.approx(
        epsilon, rel=1e-9
    )
    assert divergence / order <= rho_of(epsilon, delta) * (1 + 1e-12)
    assert divergence / order >= (0.998 if epsilon <= 1 else 0.8) * rho_of(epsilon, delta)


def test_orders_between_whole_ones_get_the_next_bound() -> None:
    orders = np.array([1.0001, 1.5, 2.0, 2.0001, 3.0, 1e20])
    values = skellam_divergence(orders, variance=30.0, l1=2, l2_squared=2)
    assert values[0] == values[1] == values[2] < values[3] == values[4] < values[5] < np.inf


def test_nothing_spent_is_epsilon_zero() -> None:
    assert epsilon_of(np.zeros_like, 1e-6) == 0.0
