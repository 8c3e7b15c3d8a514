"""Directions: downhill, within bounds, the minimum of a quadratic function in one step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from fedassay.tasks.calibration.multiclass.directions import Hessians, Pairs, ScaleStep

RIDGE, LEAST, MOST = 1e-3, -1.0, 2.0
NUMBERS = st.floats(-5, 5, allow_subnormal=False)


def bowl(seed: int, size: int = 5) -> np.ndarray:
    root = np.random.default_rng(seed).normal(size=(size, size))
    return root @ root.T + RIDGE * np.eye(size)


@given(
    arrays(np.float64, 5, elements=NUMBERS),
    arrays(np.float64, 5, elements=st.floats(LEAST, MOST)),
    st.integers(0, 9),
)
def test_newton_finds_the_minimum_of_a_quadratic_within_bounds(
    gradient: np.ndarray, theta: np.ndarray, seed: int
) -> None:
    H = bowl(seed)
    found = Hessians(least=LEAST, most=MOST, ridge=RIDGE).direction(theta, gradient, H)
    reached = theta + found.step
    assert ((reached >= LEAST - 1e-12) & (reached <= MOST + 1e-12)).all()
    # Conditions for a minimum of a convex function in a box: free parameters have no slope, held ones push outwards.
    slope = gradient + H @ found.step
    held_low, held_high = reached <= LEAST + 1e-9, reached >= MOST - 1e-9
    scale = 1e-7 * (1 + np.abs(gradient).max() + np.abs(H).max())
    assert (np.abs(slope[~held_low & ~held_high]) <= scale).all()
    assert (slope[held_low] >= -scale).all()
    assert (slope[held_high] <= scale).all()
    predicted = -(gradient @ found.step + found.step @ H @ found.step / 2)
    assert found.decrease == pytest.approx(predicted, abs=1e-9)


def test_at_the_minimum_nothing_is_left() -> None:
    theta = np.zeros(5)
    for curvature in (
        Hessians(least=LEAST, most=MOST, ridge=RIDGE),
        Pairs(least=LEAST, most=MOST, ridge=RIDGE),
    ):
        found = curvature.direction(theta, np.zeros(5), bowl(0))
        assert (found.decrease, np.abs(found.step).max()) == (0.0, 0.0)


def test_curvature_that_rounding_hides_makes_no_giant_step() -> None:
    """A Hessian of 1e12 in one direction, and a gradient that is wrong by its rounding in the other."""
    direction = np.array([0.6, 0.8])
    H = 1e12 * np.outer(direction, direction) + 1e-6 * np.eye(2)
    gradient = 1e12 * direction * (1 + 1e-16) + 1e-4 * np.array([-0.8, 0.6])
    found = Hessians(least=-1e6, most=1e6, ridge=1e-6).direction(np.zeros(2), gradient, H)
    assert found.step == pytest.approx(-direction, abs=0.1)
    assert found.decrease > 0


@pytest.mark.parametrize("seed", range(5))
def test_pairs_lead_to_the_minimum_within_bounds(seed: int) -> None:
    H, g = bowl(seed), 3 * np.random.default_rng(seed + 100).normal(size=5)
    expected = minimize(
        lambda x: (g @ x + x @ H @ x / 2, g + H @ x),
        np.zeros(5),
        jac=True,
        method="L-BFGS-B",
        bounds=[(LEAST, MOST)] * 5,
        options={"ftol": 0.0, "gtol": 1e-12},
    )
    curvature, theta, bounds = Pairs(least=LEAST, most=MOST, ridge=RIDGE), np.zeros(5), []
    for _ in range(300):
        gradient = g + H @ theta
        found = curvature.direction(theta, gradient, None)
        # An upper bound on how far the function is above its minimum, at each point.
        above = g @ theta + theta @ H @ theta / 2 - expected.fun
        assert above <= found.decrease + 1e-12
        bounds.append(found.decrease)
        if found.decrease <= 1e-12:
            break
        assert gradient @ found.step < 0
        size = min(1.0, -float(gradient @ found.step) / float(found.step @ H @ found.step))
        step = size * found.step
        curvature = curvature.learned(step, H @ step, None)
        theta = np.clip(theta + step, LEAST, MOST)
    assert bounds[-1] <= 1e-12
    assert theta == pytest.approx(expected.x, abs=1e-5)


def test_pairs_that_no_convex_function_has_are_left_out() -> None:
    curvature = Pairs(least=LEAST, most=MOST, ridge=RIDGE)
    assert curvature.learned(np.ones(2), -np.ones(2), None).steps == ()
    assert len(curvature.learned(np.ones(2), np.ones(2), None).steps) == 1


def test_a_scale_is_divided_and_then_interpolated() -> None:
    scale = ScaleStep(least=-100.0, most=100.0, ridge=RIDGE)
    # Newton's step from 1 leads to -9; the one in the logarithm to exp(-10/11).
    far = scale.direction(np.array([1.0]), np.array([10.0]), np.array([[1.0]]))
    assert 1 + far.first * far.step[0] == pytest.approx(np.exp(-10 / 11))
    # From below, and where a scale may be on its way through 0, the step is Newton's.
    assert scale.direction(np.array([1.0]), np.array([-2.0]), np.array([[1.0]])).first == 1.0
    assert scale.direction(np.array([0.05]), np.array([0.1]), np.array([[1.0]])).first == 1.0

    # s = 0.7 + 0.5 g + 0.1 g² + 0.05 g³ is found exactly from two points.
    def at(g: float) -> tuple[float, float]:
        return 0.7 + 0.5 * g + 0.1 * g**2 + 0.05 * g**3, 1 / (0.5 + 0.2 * g + 0.15 * g**2)

    (s0, h0), (s1, h1) = at(0.8), at(0.3)
    learned = scale.learned(np.array([s1 - s0]), np.array([0.3 - 0.8]), np.array([[h0]]))
    found = learned.direction(np.array([s1]), np.array([0.3]), np.array([[h1]]))
    assert s1 + found.first * found.step[0] == pytest.approx(0.7, abs=1e-14)
