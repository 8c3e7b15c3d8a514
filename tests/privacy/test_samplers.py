"""The exact samplers: arithmetic, bounds and refusals. Their laws are tested in tests/statistical."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.errors import UsageError
from fedassay.privacy import samplers
from fedassay.privacy import samplers as coins
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.privacy.samplers import discrete_gaussian, discrete_laplace, gaussian_scale, laplace_scale


@pytest.mark.parametrize(
    ("s", "shift"), [(2**20 + 12345, 0), (2**20 + 12345, 1), (2**20 + 12345, 32), (8, 7)]
)
def test_the_parts_of_a_large_square_make_the_whole(s: int, shift: int) -> None:
    """exp(-f²/2n²) for f near n/2, n, 3n/2, 2n, where n = s·2^shift and all low bits of f are set.

    A small s, which real scales never have with a shift, makes the parts that low bits play visible: without
    the second coin P(heads) is off by up to 17 %, without the third by 0.7 %, here 5 standard deviations.
    """
    n, count = s << shift, 1_000_000
    for times in (0.5, 1.0, 1.5, 2.0):
        f = int(times * n) - 1
        flags = samplers._bernoulli_half_square(
            np.full(count, f, dtype=np.uint64), s, shift, SimulatedRandomness(4, str(times))
        )
        p = math.exp(-((f / n) ** 2) / 2)
        assert abs(flags.sum() - count * p) < 4.5 * math.sqrt(count * p * (1 - p))


@given(st.fractions(min_value=Fraction(1, 2**60), max_value=2**52))
def test_scales_are_rounded_up_and_hardly(wanted: Fraction) -> None:
    for rounded, smallest, excess in (
        (laplace_scale(wanted), samplers.SMALLEST_LAPLACE, Fraction(1, 2**39)),
        (gaussian_scale(wanted), samplers.SMALLEST_GAUSSIAN, Fraction(1, 10**6)),
    ):
        assert rounded >= wanted
        assert rounded <= max(wanted, smallest) * (1 + excess)
        assert Fraction(float(rounded)) == rounded


@given(st.fractions(min_value=Fraction(1, 2**60), max_value=2**52))
def test_every_rounded_scale_can_be_drawn(wanted: Fraction) -> None:
    source = SimulatedRandomness(1)
    for sampler, rounding in ((discrete_laplace, laplace_scale), (discrete_gaussian, gaussian_scale)):
        scale = rounding(wanted)
        drawn = sampler(3, numerator=scale.numerator, denominator=scale.denominator, randomness=source)
        assert drawn.dtype == np.int64
        assert np.abs(drawn).max() < 100 * scale + 1


@pytest.mark.parametrize("wanted", [Fraction(0), Fraction(-1), Fraction(2**52 + 1), Fraction(10**40)])
def test_scales_that_cannot_be_drawn_are_refused(wanted: Fraction) -> None:
    for rounding in (laplace_scale, gaussian_scale):
        with pytest.raises(UsageError, match="the noise would have a scale of"):
            rounding(wanted)


@pytest.mark.parametrize(
    ("numerator", "denominator"),
    [(0, 1), (1, 0), (-1, 2), (2**52 + 1, 1), (1, 2**52 + 1), (1.5, 1), (10**30, 7)],
)
def test_ratios_beyond_64_bits_are_refused(numerator: int, denominator: int) -> None:
    for sampler in (discrete_laplace, discrete_gaussian):
        with pytest.raises(UsageError, match="noise scale"):
            sampler(1, numerator=numerator, denominator=denominator, randomness=SimulatedRandomness(1))


@pytest.mark.parametrize(("numerator", "denominator"), [(2**21 + 1, 1), (2**21 + 1, 2), (1, 2**25 + 1)])
def test_a_gaussian_whose_squares_do_not_fit_is_refused(numerator: int, denominator: int) -> None:
    with pytest.raises(UsageError, match="gaussian_scale"):
        discrete_gaussian(1, numerator=numerator, denominator=denominator, randomness=SimulatedRandomness(1))


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
@pytest.mark.parametrize("count", [0, 1, 2, 100, 70_000])
def test_as_many_draws_as_asked_for(sampler: object, count: int) -> None:
    assert callable(sampler)
    drawn = sampler(count, numerator=3, denominator=2, randomness=SimulatedRandomness(1))
    assert drawn.shape == (count,)
    assert drawn.dtype == np.int64


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
def test_the_largest_scale_stays_within_its_bound(sampler: object) -> None:
    assert callable(sampler)
    drawn = sampler(50_000, numerator=2**52, denominator=1, randomness=SimulatedRandomness(3))
    assert np.abs(drawn).max() < samplers.LARGEST_DRAW
    assert np.abs(drawn).mean() > 2**51
    assert (drawn < 0).any()
    assert (drawn > 0).any()
    assert np.unique(drawn % 1024).size == 1024  # low bits are noise too


def test_the_proofs_about_64_bits() -> None:
    largest = int(samplers.LARGEST_SCALE)
    assert largest * coins.LONGEST_COIN < 2**64  # Algorithm 1 on a ratio with this denominator
    assert largest * coins.LONGEST_RUN <= samplers.LARGEST_DRAW  # U + tV < t·(V + 1)
    s = 2**samplers._GAUSSIAN_BITS - 1
    assert (samplers._WIDEST * s) ** 2 < 2**63  # c²
    assert 2 * s * s * coins.LONGEST_COIN < 2**64
    assert (samplers._WIDEST + 1) * largest < 2**63  # |Y|·d
    assert samplers._WIDEST * 2**20 < (2**20) ** 2  # c < s² where low bits exist


def test_the_smallest_scales_are_as_good_as_silent() -> None:
    laplace, gaussian = float(samplers.SMALLEST_LAPLACE), float(samplers.SMALLEST_GAUSSIAN)
    assert 2 * math.exp(-1 / laplace) < 4e-28
    assert 2 * math.exp(-1 / (2 * gaussian**2)) < 6e-56
