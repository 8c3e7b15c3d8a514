"""The best pair: against all pairs in exact arithmetic, and the theorem that most of them need not be looked at."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import betainc

from conformal_oracles import exact_cdf, exact_moments
from fedassay.errors import DataError, UsageError
from fedassay.estimation.coverage import CoverageLaw, Rule, best_pair, scores_needed
from fedassay.estimation.coverage.law import largest_miss, mirrored_moments
from fedassay.estimation.coverage.pairs import smallest

RULES: tuple[Rule, ...] = ("spread", "paper")
FEDERATIONS = [(1, 1), (1, 19), (2, 9), (3, 3), (4, 12), (5, 7), (7, 10), (8, 2), (12, 3), (19, 1)]


def exact_table(m: int, n: int) -> dict[tuple[int, int], tuple[Fraction, Fraction]]:
    """Mean and variance of all pairs."""
    found = {}
    for ell in range(1, n + 1):
        for k, both in enumerate(exact_moments((n,) * m, (ell,) * m), start=1):
            found[ell, k] = both
    return found


def criterion(mean: Fraction, variance: Fraction, level: Fraction, rule: Rule) -> Fraction:
    return mean if rule == "paper" else (mean - level) ** 2 + variance


@pytest.mark.parametrize(("m", "n"), FEDERATIONS)
def test_no_valid_pair_is_better(m: int, n: int) -> None:
    """Ten federations, ten levels, two rules: 200 searches against all pairs in exact arithmetic."""
    rng = np.random.default_rng(100 * m + n)
    table = exact_table(m, n)
    ties = [
        Fraction(i, n + 1) for i in range(1, n + 1)
    ]  # M is such a fraction for m = 1 (and j/(m+1) for n = 1)
    levels = [
        *(Fraction(x) for x in rng.uniform(0.02, 0.98, 6)),
        *(Fraction(9, 10), Fraction(1, 2), ties[-1], ties[0]),
    ]
    for level in levels:
        valid = {pair: both for pair, both in table.items() if both[0] >= level}
        for rule in RULES:
            if not valid:
                with pytest.raises(DataError, match=f"expected at least {scores_needed(float(level))} rows"):
                    best_pair(m, n, float(level), rule=rule)
                continue
            best = min(criterion(*both, level, rule) for both in valid.values())
            found = best_pair(m, n, float(level), rule=rule)
            assert found.pair in valid
            assert float(criterion(*table[found.pair], level, rule)) == pytest.approx(float(best), rel=1e-8)


@pytest.mark.parametrize(("m", "n"), FEDERATIONS)
def test_no_pair_with_the_training_conditional_guarantee_is_better(m: int, n: int) -> None:
    rng = np.random.default_rng(100 * m + n)
    table = exact_table(m, n)
    for exact in (Fraction(9, 10), Fraction(rng.uniform(0.3, 0.9))):
        level = float(exact)
        for confidence in (0.9, float(rng.uniform(0.1, 0.6))):
            allowed = Fraction(largest_miss(confidence))
            valid = [
                (ell, k)
                for (ell, k), (mean, _) in table.items()
                if mean >= exact and exact_cdf([n] * m, [ell] * m, k, exact) <= allowed
            ]
            assert bool(valid) == (m * n >= scores_needed(level, confidence=confidence))
            if not valid:
                continue
            for rule in RULES:
                found = best_pair(m, n, level, rule=rule, confidence=confidence)
                best = min(criterion(*table[pair], exact, rule) for pair in valid)
                assert found.pair in valid
                assert float(criterion(*table[found.pair], exact, rule)) == pytest.approx(
                    float(best), rel=1e-8
                )
                assert found.probability_at_least(level) >= confidence - 1e-12
                assert found.mean >= level - 1e-12


@pytest.mark.parametrize("seed", range(50))
def test_no_valid_pair_is_better_in_larger_federations(seed: int) -> None:
    """The same with the library's own integrals, 400 searches."""
    rng = np.random.default_rng(seed)
    m, n = int(rng.integers(1, rng.choice([4, 60]))), int(rng.integers(1, rng.choice([4, 120])))
    ell, k = (x.ravel() for x in np.meshgrid(np.arange(1, n + 1), np.arange(1, m + 1), indexing="ij"))
    miss, variance, _ = mirrored_moments(m, n, ell, k)
    for _ in range(2):
        level = float(
            rng.choice([rng.uniform(0.01, 0.99), rng.choice([0.5, 0.9]), 1 - 10 ** rng.uniform(-3, -1)])
        )
        for confidence in (None, float(rng.uniform(0.05, 0.99))):
            valid = miss <= largest_miss(level)
            if confidence is not None:
                valid &= betainc(k, m - k + 1, betainc(ell, n - ell + 1, level)) <= largest_miss(confidence)
            for rule in RULES:
                if not valid.any():
                    with pytest.raises(DataError):
                        best_pair(m, n, level, rule=rule, confidence=confidence)
                    continue
                found = best_pair(m, n, level, rule=rule, confidence=confidence)
                values = 1 - level - miss if rule == "paper" else (1 - level - miss) ** 2 + variance
                mine = (ell == found.local_rank) & (k == found.server_rank)
                assert valid[mine]
                assert values[mine] <= values[valid].min() + 2e-9 * abs(values[valid].min()) + 1e-12 * (
                    1 - level
                )


@pytest.mark.parametrize(("m", "n"), FEDERATIONS)
def test_raising_a_rank_never_helps(m: int, n: int) -> None:
    """The theorem behind the search, in exact arithmetic.

    If M >= 1-α then E(U - (1-α))² does not fall when a rank is raised. It is enough to see that for α = 1-M, since a
    smaller 1-α adds twice the difference times the step of M: Var U' + (M' - M)² >= Var U.
    """
    table = exact_table(m, n)
    for (ell, k), (mean, variance) in table.items():
        for raised in ((ell + 1, k), (ell, k + 1)):
            if raised in table:
                assert table[raised][1] + (table[raised][0] - mean) ** 2 >= variance


def test_raising_a_rank_may_help_where_clients_are_not_alike() -> None:
    """The theorem needs equal clients, which is why `best_server_rank` looks further: here it fails."""
    _, (mean, variance), (raised_mean, raised_variance) = exact_moments((30, 5, 5), (30, 5, 5))
    assert raised_variance + (raised_mean - mean) ** 2 < variance


def test_the_spread_that_was_promised() -> None:
    ours, papers = best_pair(10, 100, 0.9), best_pair(10, 100, 0.9, rule="paper")
    assert ours.standard_deviation <= 0.0121
    assert ours.mean <= 0.903
    assert papers.pair == (95, 1)
    assert papers.standard_deviation == pytest.approx(0.0192, abs=1e-4)
    assert 0.9 <= papers.mean <= ours.mean


@pytest.mark.parametrize("count", [9, 19, 99, 999, 10**6 - 1])
@pytest.mark.parametrize("percent", [1, 10, 50, 90])
def test_exact_ties_count_as_valid(count: int, percent: int) -> None:
    level, rank = percent / 100, -(-percent * (count + 1) // 100)
    for rule in RULES:
        assert best_pair(1, count, level, rule=rule).pair == (rank, 1)
        assert best_pair(count, 1, level, rule=rule).pair == (1, rank)
        assert best_pair(1, count, 1 - (1 - level), rule=rule).pair == (rank, 1)


@pytest.mark.parametrize("confidence", [None, 0.5, 0.95])
@pytest.mark.parametrize("level", [0.05, 0.5, 0.9, 0.99, 0.999])
def test_the_rows_that_are_needed_are_enough_and_no_more(level: float, confidence: float | None) -> None:
    needed = scores_needed(level, confidence=confidence)
    for m, n in ((1, needed), (needed, 1)):
        assert best_pair(m, n, level, confidence=confidence).pair == (n, m)
    if needed > 1:
        with pytest.raises(DataError, match=f"expected at least {needed} rows in all"):
            best_pair(1, needed - 1, level, confidence=confidence)


@pytest.mark.parametrize(
    ("m", "n"), [(1000, 1000), (100, 10**6), (10**5, 10), (10**5, 1000), (3, 10**6), (10**6, 1), (1, 10**6)]
)
def test_large_federations_are_searched(m: int, n: int) -> None:
    for confidence in (None, 0.9):
        ours = best_pair(m, n, 0.9, confidence=confidence)
        assert ours.mean >= 0.9
        assert confidence is None or ours.probability_at_least(0.9) >= confidence
        error = math.hypot(ours.mean - 0.9, ours.standard_deviation)
        pooled = math.sqrt(0.09 / (m * n))
        assert error < (1.5 if confidence is None else 2.5) * pooled
        for ell, k in ((ours.local_rank - 1, ours.server_rank), (ours.local_rank, ours.server_rank - 1)):
            if ell >= 1 and k >= 1:  # corners: neither rank can be lowered
                lower = CoverageLaw(clients=m, rows=n, local_rank=ell, server_rank=k)
                enough = (
                    lower.mean >= 0.9 if confidence is None else lower.probability_at_least(0.9) >= confidence
                )
                assert not enough


@pytest.mark.parametrize("seed", range(10))
def test_smallest_finds_thresholds_from_any_guess(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low, high = np.zeros(50, dtype=np.int64), rng.integers(1, 1000, 50)
    threshold = rng.integers(1, high + 1)
    asked = 0

    def test(x: np.ndarray, i: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal asked
        asked += 1
        assert ((low[i] < x) & (x < high[i])).all()
        return x >= threshold[i], (x - 1 < threshold[i]) & (rng.random(len(x)) < 0.5)

    assert (smallest(test, low, high, rng.integers(-5, 1005, 50)) == threshold).all()
    assert asked < 40
    asked = 0
    assert (smallest(test, low, high, threshold) == threshold).all()
    assert asked <= 2
    assert (low == 0).all()


def test_what_cannot_be_asked_for_is_refused() -> None:
    for level in (0.0, 1.0, -0.1, math.nan, math.inf):
        with pytest.raises(UsageError, match="level: got"):
            best_pair(10, 100, level)
        with pytest.raises(UsageError, match="confidence: got"):
            best_pair(10, 100, 0.9, confidence=level)
    with pytest.raises(UsageError, match="rule: got 'best'"):
        best_pair(10, 100, 0.9, rule="best")  # type: ignore[arg-type]
    for m, n in ((0, 5), (5, 0)):
        with pytest.raises(UsageError, match="expected at least one of both"):
            best_pair(m, n, 0.9)
