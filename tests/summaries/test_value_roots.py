"""The square root of summation: exact in whole numbers, undone by `sums`, and hardly worse for being rounded."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.protocol.vocabulary import Protection
from fedassay.summaries.distribution.roots import _LIMB, ValueRoots, _convolved

seeds = st.integers(0, 2**32 - 1)


def roots_of(points: int) -> ValueRoots:
    return ValueRoots(lower=0, upper=1, points=points)


@given(st.integers(1, 8), seeds, st.sampled_from([0, 12, 32, 45]))
def test_roots_are_exact_whole_numbers(height: int, seed: int, bits: int) -> None:
    roots = roots_of(1 << height)
    counts = np.random.default_rng(seed).integers(0, (1 << bits) + 1, roots.points)
    series = [int(c) for c in roots.of_counts(np.eye(1, roots.points, dtype=np.int64)[0])]
    exact = [sum(series[i - j] * int(counts[j]) for j in range(i + 1)) for i in range(roots.points)]
    assert roots.of_counts(counts).tolist() == exact
    assert roots.of_counts(-counts).tolist() == [-one for one in exact]


def test_the_series_is_the_rounded_square_root() -> None:
    roots = roots_of(512)
    series = roots.of_counts(np.eye(1, 512, dtype=np.int64)[0])
    exact = [Fraction(roots.scale * comb(2 * k, k), 4**k) for k in range(512)]
    assert all(abs(int(c) - e) <= Fraction(1, 2) for c, e in zip(series, exact, strict=True))


@pytest.mark.parametrize("height", range(1, 13))
def test_sums_invert_roots(height: int) -> None:
    roots = roots_of(1 << height)
    for bits in (1, 16, 32):
        counts = np.random.default_rng(bits).integers(0, 1 << bits, (2, roots.points), endpoint=True)
        sums = np.cumsum(counts, axis=-1)
        assert np.abs(roots.sums(roots.of_counts(counts)) - sums).max() <= 1e-9 * max(1, sums.max())


def test_sums_invert_the_largest_roots() -> None:
    roots = roots_of(1 << 20)
    counts = np.random.default_rng(20).integers(0, 1 << 32, roots.points, endpoint=True)
    total = roots.of_counts(counts)
    sums = np.cumsum(counts)
    assert np.abs(roots.sums(total) - sums).max() <= 1e-9 * sums.max()
    series = roots.of_counts(np.eye(1, roots.points, dtype=np.int64)[0]).tolist()
    whole = counts.tolist()
    for place in (4_321, 222_222, roots.points - 1):
        assert int(total[place]) == sum(series[place - j] * whole[j] for j in range(place + 1))


@pytest.mark.parametrize("worst", [True, False])
def test_rounding_the_largest_transforms_is_far_from_a_mistake(worst: bool) -> None:
    """The pieces are so short that errors stay below a hundredth, where a half would be rounded wrongly."""
    roots = roots_of(1 << 20)
    series = roots.of_counts(np.eye(1, roots.points, dtype=np.int64)[0])
    most = (1 << _LIMB) - 1
    piece = np.full(roots.points, most) if worst else np.random.default_rng(3).integers(0, most, roots.points)
    product = _convolved(piece.astype(np.float64), series)
    assert np.abs(product - np.rint(product)).max() < 0.01


def test_a_lost_unit_is_noticed() -> None:
    """The comparison above is sharp: one unit of a root that gets lost shows in the sums."""
    roots = roots_of(256)
    counts = np.random.default_rng(2).integers(0, 1000, 256)
    total = roots.of_counts(counts)
    total[100] -= 1
    assert np.abs(roots.sums(total) - np.cumsum(counts)).max() > 1e-9 * counts.sum()


def mean_variance(roots: ValueRoots) -> float:
    """Of sums up to a point, in units of the noise on counts that a row would need alone, squared (L2)."""
    return float(np.cumsum(roots.response**2).mean()) * roots.sensitivity(Protection()).l2 ** 2


@pytest.mark.parametrize(("height", "most"), [*((h, 1.01) for h in range(1, 17)), (19, 1.08), (20, 1.06)])
def test_rounding_costs_little(height: int, most: float) -> None:
    points = 1 << height
    k = np.arange(1, points)
    root = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    unrounded = float(np.cumsum(root**2).mean() * (root**2).sum())
    assert mean_variance(roots_of(points)) <= most * unrounded


def test_the_mean_variance_at_1024_points_is_the_stated_one() -> None:
    assert mean_variance(roots_of(1024)) == pytest.approx(9.67, abs=0.03)
