"""Rényi divergences against sums over the exact probabilities, and conversions against dp-accounting."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from hypothesis import given
from hypothesis import strategies as st

from fedassay.privacy.renyi import epsilon_of, laplace_divergence, rho_of

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


def test_nothing_spent_is_epsilon_zero() -> None:
    assert epsilon_of(np.zeros_like, 1e-6) == 0.0
