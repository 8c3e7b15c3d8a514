"""Lower bounds of epsilon: valid at their confidence, close to the truth, and zero where nothing can be said."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fedassay.audit.bound import clopper_pearson_high, clopper_pearson_low, lower_bound
from fedassay.errors import UsageError


def answers(epsilon: float, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Randomised response of a truth that is 0 in one world and 1 in the other: the worst epsilon-DP mechanism."""
    lie = 1 / (1 + math.exp(epsilon))
    return tuple(np.where(rng.random(count) < lie, 1.0 - truth, truth) for truth in (0.0, 1.0))


@pytest.mark.parametrize(("hits", "samples"), [(0, 50), (1, 50), (17, 50), (50, 50)])
def test_clopper_and_pearson(hits: int, samples: int) -> None:
    interval = stats.binomtest(hits, samples).proportion_ci(confidence_level=0.9, method="exact")
    assert clopper_pearson_low(hits, samples, 0.05) == pytest.approx(interval.low)
    assert clopper_pearson_high(hits, samples, 0.05) == pytest.approx(interval.high)


def test_bounds_are_wrong_as_rarely_as_they_say() -> None:
    """At 80 %: 600 audits of a mechanism at its very epsilon; more than 152 wrong ones have probability 1e-3."""
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(600):
        first, second = answers(1.0, 400, rng)
        wrong += lower_bound({"x": first}, {"x": second}, delta=0.0, confidence=0.8).epsilon > 1.0
    assert stats.binom.sf(152, 600, 0.2) < 1e-3
    assert wrong <= 152
    assert wrong > 0  # so that the bound is not just far away


def test_a_larger_epsilon_is_found() -> None:
    """Claimed 1, true 2: with these 2,000 runs of each world (seed fixed)."""
    first, second = answers(2.0, 2_000, np.random.default_rng(2))
    bound = lower_bound({"x": first}, {"x": second}, delta=0.0, confidence=0.999)
    assert 1.5 < bound.epsilon < 2.0


def test_delta_is_taken_off() -> None:
    """An event of probability 0.3 that the other world never has costs delta, and no epsilon."""
    rng = np.random.default_rng(3)
    first, second = (rng.random(4_000) < 0.3).astype(float), np.zeros(4_000)
    at = {
        delta: lower_bound({"x": first}, {"x": second}, delta=delta, confidence=0.99) for delta in (0.0, 0.35)
    }
    assert at[0.0].epsilon > 3
    assert at[0.35].epsilon == 0


def test_either_world_and_either_direction() -> None:
    rng = np.random.default_rng(4)
    first, second = rng.laplace(0, 1, 4_000), rng.laplace(1, 1, 4_000)
    found = [
        lower_bound({"x": sign * one}, {"x": sign * other}, delta=0.0, confidence=0.99)
        for sign in (1, -1)
        for one, other in ((first, second), (second, first))
    ]
    assert all(0.6 < bound.epsilon < 1 for bound in found)
    assert {bound.event.upwards for bound in found} == {True, False}


def test_the_best_score_is_chosen_and_nan_is_no_event() -> None:
    rng = np.random.default_rng(5)
    useless = [rng.normal(size=2_000) for _ in range(2)]
    unknown = np.full(2_000, np.nan)
    first, second = answers(3.0, 2_000, rng)
    worlds = [{"a": useless[0], "b": unknown, "c": first}, {"a": useless[1], "b": unknown, "c": second}]
    bound = lower_bound(*worlds, delta=0.0, confidence=0.99)
    assert bound.event.score == "c"
    assert bound.epsilon > 2
    assert lower_bound({"b": unknown}, {"b": unknown}, delta=0.0, confidence=0.99).epsilon == 0


def test_the_choice_sees_only_the_first_half() -> None:
    """Differences in the first half alone are no evidence."""
    first = np.concatenate([np.ones(500), np.zeros(500)])
    bound = lower_bound({"x": first}, {"x": np.zeros(1_000)}, delta=0.0, confidence=0.99)
    assert bound.epsilon == 0
    assert bound.samples == (500, 500)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"confidence": 1.0}, "confidence: got 1, expected a number from 0.5 to below 1."),
        ({"delta": 1.0}, r"delta: got 1, expected a number in \[0, 1\)."),
        ({"first": {"y": np.zeros(200)}}, "scores: expected the same ones for both worlds"),
        ({"first": {"x": np.zeros(99)}}, "samples: got 99, expected at least 100 of each world."),
    ],
)
def test_errors(change: dict[str, object], sentence: str) -> None:
    given = {
        "first": {"x": np.zeros(200)},
        "second": {"x": np.zeros(200)},
        "delta": 0.0,
        "confidence": 0.9,
        **change,
    }
    first, second = given.pop("first"), given.pop("second")
    with pytest.raises(UsageError, match=sentence):
        lower_bound(first, second, **given)
