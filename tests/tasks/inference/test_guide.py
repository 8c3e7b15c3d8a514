"""Damped steps between blocks of rounds: how far they go, when they are taken back, and that they never stay stuck."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.tasks.inference.path import DAMPING, LEAST, LONGEST, Guide
from fedassay.tasks.inference.sums import Sums

P = 2
FLAT = np.diag([1.0, 0.25])
SPREAD = np.diag([1.0, 0.25])


def block(start: tuple[float, float], gradient: tuple[float, float], rounds: int = 4) -> Sums:
    none = Sums.none(np.zeros(P))
    count = np.array(rounds)
    return Sums(
        rounds=count,
        compared=count,
        starts=rounds * np.array(start),
        gradients=rounds * np.array(gradient),
        hessians=rounds * FLAT,
        products=none.products,
        changes=none.changes,
    )


def test_without_chance_the_first_step_is_a_damped_newton_step() -> None:
    guide = Guide.begin(block((1.0, 1.0), (0.5, -0.25)), np.zeros((P, P)))
    step = np.linalg.solve((1 + DAMPING) * FLAT, [0.5, -0.25])
    np.testing.assert_allclose(guide.target, np.array([1.0, 1.0]) - step, rtol=1e-5)


def test_no_step_is_longer_than_allowed() -> None:
    far = Guide.begin(block((0.0, 0.0), (50.0, 50.0)), np.zeros((P, P))).target
    assert np.sqrt(far @ FLAT @ far) == pytest.approx(LONGEST, rel=1e-5)


def test_what_chance_explains_is_not_walked() -> None:
    """Of four rounds with this spread, a gradient has a squared length of tr(H⁻¹V)/4 = 1/2 on average."""
    still = Guide.begin(block((1.0, 1.0), (0.3, 0.1)), SPREAD)
    np.testing.assert_allclose(still.target, [1.0, 1.0])
    moved = Guide.begin(block((1.0, 1.0), (2.0, 1.0)), SPREAD)
    assert np.abs(moved.target - 1.0).max() > 0.5


def test_a_worse_block_is_taken_back_and_the_next_step_is_shorter() -> None:
    first = Guide.begin(block((1.0, 1.0), (0.5, 0.25)), np.zeros((P, P)))
    after = first.after(block((0.5, 0.0), (2.0, 2.0)), np.zeros((P, P)))
    np.testing.assert_array_equal(after.start, first.start)
    np.testing.assert_array_equal(after.gradient, first.gradient)
    assert after.damping == 10 * DAMPING
    shorter = np.linalg.norm(after.target - first.start)
    assert shorter < 0.6 * np.linalg.norm(first.target - first.start)


def test_better_blocks_make_steps_longer_up_to_a_bound() -> None:
    guide = Guide.begin(block((1.0, 1.0), (0.5, 0.25)), np.zeros((P, P)))
    for size in (0.4, 0.2, 0.1, 0.05):
        guide = guide.after(block((1.0, 1.0), (size, size / 2)), np.zeros((P, P)))
    assert guide.damping == LEAST


def test_a_block_with_a_small_gradient_by_chance_does_not_stay_the_best_for_ever() -> None:
    """The block after one that was taken back is believed, and the next are compared with it."""
    none = np.zeros((P, P))
    guide = Guide.begin(block((3.0, -2.5), (0.01, 0.0), rounds=4), none)
    guide = guide.after(block((3.0, -2.5), (0.4, -0.2), rounds=6), none)
    assert guide.back
    assert guide.damping == 10 * DAMPING
    guide = guide.after(block((3.0, -2.5), (0.4, -0.2), rounds=8), none)
    np.testing.assert_allclose(guide.gradient, [0.4, -0.2])
    for rounds in (12, 16, 24):
        guide = guide.after(block((3.0, -2.5), (0.4, -0.2), rounds=rounds), none)
        assert not guide.back
    assert guide.damping < DAMPING


def test_damping_falls_again_after_whatever_was_taken_back() -> None:
    guide, most = Guide.begin(block((1.0, 1.0), (0.1, 0.0)), np.zeros((P, P))), 0.0
    for size in range(1, 20):
        guide = guide.after(block((0.5, 0.5), (5.0**size, 0.0)), np.zeros((P, P)))
        most = max(most, float(guide.damping[0]))
    assert most < 1e6  # a factor of 10/3 for every two blocks, and not of 100


def test_a_guide_is_kept_to_the_last_bit() -> None:
    guide = Guide.begin(block((1.0, 1.0), (0.5, 0.25)), SPREAD)
    again = Guide.from_json(guide.to_json())
    np.testing.assert_array_equal(again.target, guide.target)
