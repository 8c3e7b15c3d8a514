"""Noise laws by name: what can be drawn whole, what in shares, and how large a share can be."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedassay.errors import UsageError
from fedassay.privacy import laws, noise_shares
from fedassay.privacy.accounting import (
    CHOICE,
    GAUSSIAN,
    LAPLACE,
    SKELLAM,
    UNARY,
    check_law,
    draw,
    draw_parts,
    largest_share,
    noise_of,
)
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import NO_NOISE


@settings(max_examples=60)
@given(
    st.sampled_from([LAPLACE, SKELLAM]),
    st.floats(2.0**-25, 2.0**39),
    st.fractions(min_value=Fraction(1, 10**7), max_value=12),
)
def test_parts_stay_within_as_many_largest_shares(law: str, scale: float, parts: Fraction) -> None:
    noise = noise_of(law, Fraction(np.float32(scale).item()))
    drawn = draw_parts(noise, 100, parts, SimulatedRandomness(1))
    assert np.abs(drawn).max() < math.ceil(parts) * largest_share(noise)
    assert largest_share(noise) <= 2**12 * (1 + noise.scale)


@pytest.mark.parametrize("law", [LAPLACE, SKELLAM])
def test_one_part_is_the_whole(law: str) -> None:
    noise = noise_of(law, Fraction(7, 2))
    assert (
        draw(noise, 500, SimulatedRandomness(1))
        == draw_parts(noise, 500, Fraction(1), SimulatedRandomness(1))
    ).all()


def test_shares_of_skellam_noise_have_their_part_of_the_exact_variance() -> None:
    seen = []
    noise = noise_of(SKELLAM, Fraction(5, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_shares, "skellam", lambda count, *, variance, randomness: seen.append(variance))
        draw_parts(noise, 1, Fraction(2, 7), SimulatedRandomness(1))
    assert seen == [Fraction(2, 7) * Fraction(noise.scale) ** 2]


@pytest.mark.parametrize("law", [GAUSSIAN, UNARY, CHOICE])
def test_other_laws_have_no_shares(law: str) -> None:
    noise = noise_of(law, Fraction(3))
    with pytest.raises(UsageError, match="no shares"):
        draw_parts(noise, 1, Fraction(1, 2), SimulatedRandomness(1))
    with pytest.raises(UsageError, match="no shares"):
        largest_share(noise)


def test_randomised_answers_are_not_added() -> None:
    with pytest.raises(UsageError, match="randomised"):
        draw(noise_of(UNARY, Fraction(1)), 1, SimulatedRandomness(1))


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0, 1000.0])
def test_the_variance_of_randomised_answers(epsilon: float) -> None:
    """One client's estimate (bit - q)/(1/2 - q) of a zero, where P(bit = 1) = q = 1/(e^ε + 1)."""
    scale = Fraction(1 / epsilon)
    q = math.exp(-epsilon) / (1 + math.exp(-epsilon))
    expected = q * (1 - q) / (0.5 - q) ** 2
    assert noise_of(UNARY, scale).variance == pytest.approx(expected, rel=1e-12, abs=1e-300)


def test_nothing_is_drawn_without_noise() -> None:
    assert not draw_parts(NO_NOISE, 4, Fraction(1, 3), SimulatedRandomness(1)).any()
    assert largest_share(NO_NOISE) == 1  # |share| < 1


def test_each_law_has_its_largest_scale() -> None:
    for law in (LAPLACE, GAUSSIAN, UNARY, CHOICE):
        check_law(law, 2.0**52)
    check_law(SKELLAM, 2.0**40)
    with pytest.raises(UsageError, match="2\\^40"):
        check_law(SKELLAM, 2.0**41)
    with pytest.raises(UsageError, match="expected none, discrete-laplace"):
        check_law("laplace", 1.0)
    assert set(laws._LARGEST) == {LAPLACE, GAUSSIAN, SKELLAM, UNARY, CHOICE}
