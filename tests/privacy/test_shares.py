"""Shares of noise: bounds, refusals, seeds and 64-bit proofs. Their laws are tested in tests/statistical."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.errors import UsageError
from fedassay.privacy import noise_shares, poisson, samplers
from fedassay.privacy import samplers as coins
from fedassay.privacy.noise_shares import largest_polya, largest_skellam, polya, skellam, skellam_scale
from fedassay.privacy.randomness import SimulatedRandomness


def share(scale: Fraction, parts: Fraction, count: int = 50, seed: int = 1) -> np.ndarray:  # type: ignore[type-arg]
    return polya(
        count,
        numerator=scale.numerator,
        denominator=scale.denominator,
        parts=parts,
        randomness=SimulatedRandomness(seed),
    )


@settings(max_examples=60)
@given(
    st.builds(Fraction, st.integers(1, 2**45), st.integers(1, 2**45)),
    st.fractions(min_value=Fraction(1, 10**9), max_value=20),
)
def test_every_share_stays_within_its_bound(scale: Fraction, parts: Fraction) -> None:
    drawn = share(scale, parts)
    assert drawn.dtype == np.int64
    assert np.abs(drawn).max() < largest_polya(scale, parts)
    assert largest_polya(scale, parts) <= math.ceil(parts) * largest_polya(scale)


@settings(max_examples=60)
@given(st.fractions(min_value=Fraction(1, 2**80), max_value=2**90), st.fractions(min_value=0, max_value=30))
def test_every_skellam_draw_stays_within_its_bound(variance: Fraction, parts: Fraction) -> None:
    drawn = skellam(50, variance=variance, randomness=SimulatedRandomness(2))
    assert drawn.dtype == np.int64
    assert np.abs(drawn).max() < largest_skellam(variance) < 2**57
    assert largest_skellam(variance * parts) <= max(1, math.ceil(parts)) * largest_skellam(variance)


@pytest.mark.parametrize("count", [0, 1, 3, 100_000])
def test_as_many_as_asked_for_and_the_same_for_the_same_seed(count: int) -> None:
    for parts in (Fraction(1, 3), Fraction(1), Fraction(7, 3)):
        drawn = share(Fraction(5, 2), parts, count)
        assert drawn.shape == (count,)
        assert (drawn == share(Fraction(5, 2), parts, count)).all()
        assert count < 3 or (drawn != share(Fraction(5, 2), parts, count, seed=2)).any()
    for variance in (Fraction(7, 3), Fraction(10**6)):
        one, same = (skellam(count, variance=variance, randomness=SimulatedRandomness(4)) for _ in range(2))
        assert one.shape == (count,)
        assert (one == same).all()


def test_one_part_is_the_discrete_laplace_sampler() -> None:
    ours = share(Fraction(5, 2), Fraction(1), 1000)
    theirs = samplers.discrete_laplace(1000, numerator=5, denominator=2, randomness=SimulatedRandomness(1))
    assert (ours == theirs).all()


def test_draws_beyond_the_bound_are_drawn_again() -> None:
    drawn = [np.array([1, -9, 3, 8]), np.array([8, 2]), np.array([-7])]
    assert noise_shares._within(8, 4, lambda size: drawn.pop(0)).tolist() == [1, -7, 3, 2]


@pytest.mark.parametrize("parts", [Fraction(0), Fraction(-1, 2)])
def test_no_part_is_not_a_share(parts: Fraction) -> None:
    with pytest.raises(UsageError, match="parts"):
        share(Fraction(1), parts)


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), Fraction(2**90 + 1)])
def test_variances_that_cannot_be_drawn_are_refused(variance: Fraction) -> None:
    with pytest.raises(UsageError, match="variance"):
        skellam(1, variance=variance, randomness=SimulatedRandomness(1))


def test_a_scale_whose_shares_could_wrap_is_refused() -> None:
    assert np.abs(share(Fraction(2**50), Fraction(2))).max() > 2**40
    for scale, parts in ((Fraction(2**51), Fraction(3, 2)), (Fraction(2**50), Fraction(5, 2))):
        with pytest.raises(UsageError, match="noise scale"):
            share(scale, parts)
    with pytest.raises(UsageError, match="noise scale"):
        polya(1, numerator=0, denominator=1, parts=Fraction(1), randomness=SimulatedRandomness(1))


@given(st.fractions(min_value=Fraction(1, 2**50), max_value=2**40))
def test_skellam_scales_are_rounded_up_and_their_squares_are_floats(wanted: Fraction) -> None:
    scale = skellam_scale(wanted)
    assert wanted <= scale <= max(wanted, noise_shares.SMALLEST_SKELLAM) * (1 + Fraction(1, 2**25))
    assert Fraction(float(scale) ** 2) == scale**2


@pytest.mark.parametrize("j", [0, 1, 2, 5, 30, 60])
def test_a_coin_within_a_block_has_its_probability(j: int) -> None:
    """At the first, middle and last size of a block: heads with probability 2^j/k, 1 at the first."""
    n = 40_000
    for k in {2**j, 2**j + 2**j // 2, 2 ** (j + 1) - 1}:
        heads = noise_shares._kept_in_block(
            np.full(n, k, dtype=np.uint64), np.full(n, j, dtype=np.uint64), SimulatedRandomness(5, str(k))
        ).sum()
        p = 2**j / k
        assert abs(heads - n * p) <= 5 * math.sqrt(n * p * (1 - p))


@pytest.mark.parametrize(
    ("k", "scale"), [(1, Fraction(1, 2)), (7, Fraction(5, 2)), (10**12, Fraction(10**12))]
)
def test_an_exponential_coin_has_its_probability(k: int, scale: Fraction) -> None:
    n = 200_000
    heads = noise_shares._exponential(
        np.full(n, k, dtype=np.uint64), scale.numerator, scale.denominator, SimulatedRandomness(6)
    ).sum()
    p = math.exp(-k / scale)
    assert abs(heads - n * p) < 5 * math.sqrt(n * p * (1 - p))


def test_the_proofs_about_64_bits_and_tails() -> None:
    t, s = 2**52, 2**52 - 1
    for numerator, denominator in ((2**51, 1), (t, s), (1, 2**52), (t, 3)):
        reach = -(-noise_shares._RUN * numerator // denominator)
        blocks = max(1, (reach - 1).bit_length())
        assert 2**blocks >= reach  # nothing below 1024 b is left out
        assert blocks <= 62  # shifts by 63 - j
        assert (2**blocks - 1) * denominator < 2**64  # k·s
    assert coins.LONGEST_RUN >= noise_shares._RUN
    assert 2 * math.exp(-700) * 1e4 < 1e-299  # the scale of what follows
    assert noise_shares._REACH > 700  # exp(-2^11) < 1e-300
    for sigma in (0.0, 0.1, 1.0, 10.0, 1e6, 1e12):
        t_ = float(largest_skellam(Fraction(sigma) ** 2))
        assert t_ * t_ / (2 * (sigma * sigma + t_ / 3)) > 3000
    assert largest_polya(Fraction(2**51)) <= samplers.LARGEST_DRAW
    assert noise_shares._EVENTS >= 2 * poisson.SMALLEST_CENTRED
