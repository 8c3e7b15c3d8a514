"""A private choice has exactly the law of the exponential mechanism, and costs what its losses can move."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.privacy.accounting import CHOICE, calibrate, calibrate_choice, event, spent
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.privacy.samplers import choose
from fedassay.protocol.vocabulary import Budget, Sensitivity


def probabilities(losses: np.ndarray, scale: float) -> np.ndarray:
    weights = np.exp(-(losses - losses.min()) / scale)
    return weights / weights.sum()


def drawn(losses: np.ndarray, scale: Fraction, times: int, seed: int = 1) -> np.ndarray:
    randomness = SimulatedRandomness(seed)
    choices = [choose(losses, scale=scale, randomness=randomness) for _ in range(times)]
    return np.bincount(choices, minlength=len(losses))


LOSSES = np.array([7, 5, 3, 4, 9, 5])


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(7, 3), Fraction(40)])
def test_choices_have_the_stated_law(scale: Fraction) -> None:
    """A test at level 1e-6; with half the scale, or twice, it rejects."""
    counts, times = drawn(LOSSES, scale, 4000), 4000

    def p_value(claimed: Fraction) -> float:
        expected = times * probabilities(LOSSES, float(claimed))
        likely = expected >= 5
        pooled = [np.append(part[likely], part[~likely].sum()) for part in (counts, expected)]
        seen, wanted = (part[:-1] if (expected >= 5).all() else part for part in pooled)
        return float(chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue)

    assert p_value(scale) > 1e-6
    if scale < 10:
        assert p_value(2 * scale) < 1e-6
        assert p_value(scale / 2) < 1e-6


@settings(max_examples=50)
@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=30), st.integers(-(2**40), 2**40))
def test_only_differences_of_losses_matter(losses: list[int], shift: int) -> None:
    first, second = np.array(losses), np.array(losses) + shift
    seeds = SimulatedRandomness(3), SimulatedRandomness(3)
    scale = Fraction(2**39 + 1, 2**37)
    assert choose(first, scale=scale, randomness=seeds[0]) == choose(second, scale=scale, randomness=seeds[1])


def test_a_hopeless_candidate_is_never_chosen_and_costs_no_time() -> None:
    losses = np.array([0] + [2**62] * 1000)
    assert drawn(losses, Fraction(1, 64), 50).tolist()[0] == 50


def test_nothing_to_choose_is_refused() -> None:
    for losses in (np.empty(0, dtype=np.int64), np.array([0.5])):
        with pytest.raises(UsageError, match="choice"):
            choose(losses, scale=Fraction(1), randomness=SimulatedRandomness(1))


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_a_choice_is_charged_for_the_range_of_its_losses(delta: float, share: float) -> None:
    budget = Budget(epsilon=2.0, delta=delta)
    noise = calibrate_choice(budget, 3.0, share)
    assert noise.law == CHOICE
    charged = spent([event(noise, Sensitivity(l1=3.0, l2=3.0))], 0.0)
    assert charged == pytest.approx(3.0 / noise.scale)
    if delta == 0:
        assert charged == pytest.approx(share * 2.0, rel=1e-6)
        assert charged <= share * 2.0
    releases = [event(noise, Sensitivity(l1=3.0, l2=3.0))] * round(1 / share)
    assert spent(releases, delta) <= 2.0


def test_a_choice_shares_a_budget_with_noise() -> None:
    budget, moved = Budget(epsilon=1.0, delta=1e-6), Sensitivity(l1=40.0, l2=5.0)
    releases = [
        event(calibrate_choice(budget, 2.0, 0.5), Sensitivity(l1=2.0, l2=2.0)),
        event(calibrate(budget, moved, 0.5), moved),
    ]
    assert spent(releases, 1e-6) <= 1.0


def test_losses_without_a_bound_are_refused() -> None:
    with pytest.raises(UnsupportedQuery, match="no bound"):
        calibrate_choice(Budget(epsilon=1.0), float("inf"))
