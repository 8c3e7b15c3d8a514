"""How much clients differ: against scipy, against brute force, and by simulation."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.special import betainc, chdtrc
from scipy.stats import binom, chi2_contingency

import fedassay
from fedassay.tasks.conformal.heterogeneity import (
    Differences,
    HeterogeneitySums,
    _chance,
    described,
    loss_bound,
)

ROWS, COVERED = [120, 80, 40, 25, 0], [110, 70, 40, 20, 0]


def test_the_statistic_is_pearsons() -> None:
    found = Differences.of(HeterogeneitySums.of(ROWS, COVERED))
    assert found is not None
    table = np.array([[c, n - c] for n, c in zip(ROWS, COVERED, strict=True) if n])
    statistic, p_value, degrees, _ = chi2_contingency(table, correction=False)
    assert found.statistic == pytest.approx(statistic)
    assert found.p_value == pytest.approx(
        p_value, rel=0.3
    )  # of a gamma law with the moments of this very table
    assert found.degrees == degrees


@pytest.mark.parametrize(
    ("rows", "level"),
    [
        ([1000] + [3] * 50, 0.99),
        ([5000] + [1] * 20, 0.95),
        ([78, 54, 30, 20, 10, 5, 3, 1], 0.9),
        ([100] * 10, 0.9),
    ],
)
def test_alarms_are_as_rare_as_they_should_be(rows: list[int], level: float) -> None:
    """Mean and variance of the statistic given the margins (4 standard errors); 1 % of alarms, at most 1.7 % of 4,000.

    That has a probability below 1e-4. A chi-squared law alarms in up to a quarter of all cases.
    """
    rng, n = np.random.default_rng(0), np.array(rows)
    covered = rng.multivariate_hypergeometric(n, round(n.sum() * level), size=4000)
    found = [Differences.of(HeterogeneitySums.of(rows, one.tolist())) for one in covered]
    statistics = np.array([one.statistic for one in found if one is not None])
    mean, variance = _chance(HeterogeneitySums.of(rows, covered[0].tolist()))
    assert abs(statistics.mean() - mean) < 4 * statistics.std() / np.sqrt(4000)
    assert statistics.var() == pytest.approx(variance, rel=0.25)
    assert np.mean([one.p_value < 0.01 for one in found if one is not None]) < 0.017
    if min(rows) < 5:
        assert np.mean(chdtrc(len(rows) - 1, statistics) < 0.01) > 0.018


def test_variance_between_clients_is_right_where_rows_are_unequal() -> None:
    """A standard deviation of 0.05; taking clients for equally large gives a fifth of the variance."""
    rng, n = np.random.default_rng(0), np.array([10000] + [50] * 20)
    found = []
    for _ in range(400):
        covered = rng.binomial(n, np.clip(rng.normal(0.8, 0.05, len(n)), 0, 1))
        one = Differences.of(HeterogeneitySums.of(n.tolist(), covered.tolist()))
        assert one is not None
        found.append(one.between**2)
    assert np.mean(found) == pytest.approx(0.0025, rel=0.25)


@pytest.mark.parametrize(
    ("rows", "covered"), [([10], [9]), ([10, 10], [10, 10]), ([10, 10], [0, 0]), ([0, 0], [0, 0]), ([], [])]
)
def test_where_nothing_can_be_said(rows: list[int], covered: list[int]) -> None:
    assert Differences.of(HeterogeneitySums.of(rows, covered)) is None
    assert described(None, bound=None, level=0.9, method="qq") is None


@pytest.mark.parametrize(
    ("covered", "says"),
    [
        ((91, 86, 94, 87), "No difference between clients beyond chance was shown (p = 0.2"),
        ((97, 86, 94, 87), "Between clients the coverage differs by a standard deviation of about 0.0"),
        ((99, 99, 99, 63), "Clients differ so much"),
    ],
)
def test_words_depend_on_how_likely_chance_would_do_it(covered: tuple[int, ...], says: str) -> None:
    found = Differences.of(HeterogeneitySums.of([100] * 4, covered))
    assert found is not None
    assert found.between > 0
    told = described(found, bound=0.0123, level=0.9, method="qq")
    assert told is not None
    assert says in told["text"]
    assert ("0.012 off" in told["text"]) == (found.p_value < 0.05)
    assert told["alarming"] == (found.p_value < 0.01)


def test_variance_between_clients_is_estimated_and_shrunk() -> None:
    """Moments are right on average over 400 federations, within four standard errors."""
    rng, squares, raw = np.random.default_rng(0), [], []
    rows = np.full(40, 60)
    for _ in range(400):
        share = np.clip(0.9 + 0.05 * rng.standard_normal(40), 0, 1)
        covered = rng.binomial(rows, share)
        found = Differences.of(HeterogeneitySums.of(rows.tolist(), covered.tolist()))
        assert found is not None
        squares.append(found.between**2)
        shrunk = found.shrunk(rows.tolist(), covered.tolist())
        raw.append(np.mean((shrunk - (share - share.mean())) ** 2))
        assert (np.abs(shrunk) <= np.abs(covered / rows - found.coverage) + 1e-12).all()
    true = np.var(np.clip(0.9 + 0.05 * np.random.default_rng(1).standard_normal(10**6), 0, 1))
    assert abs(np.mean(squares) - true) < 4 * np.std(squares) / 20
    assert np.mean(raw) < 0.9 * 0.09 / 60  # closer to the truth than what is merely observed
    spread = Differences(statistic=1.0, degrees=1, p_value=0.5, coverage=0.9, between=0.05).spread_evenly(
        1000
    )
    assert (spread.mean(), spread.std()) == (pytest.approx(0, abs=1e-12), pytest.approx(0.05, rel=0.01))


def total_variation(p: np.ndarray) -> float:
    """Between a Poisson-binomial and the binomial with the same mean, by enumeration."""
    m, law = len(p), np.zeros(len(p) + 1)
    for bits in product((0, 1), repeat=m):
        law[sum(bits)] += np.prod(np.where(bits, p, 1 - p))
    return float(np.abs(law - binom.pmf(np.arange(m + 1), m, p.mean())).sum() / 2)


@pytest.mark.parametrize("spread", [0.01, 0.05, 0.15])
def test_the_bound_is_above_the_distance_that_it_bounds(spread: float) -> None:
    """E d_TV over the score of a new row, by enumeration; Ehm's bound is never below and at most three times that."""
    rows, ranks, deviations = [30] * 6, [28] * 6, np.linspace(-spread, spread, 6)
    u = (np.arange(2000) + 0.5) / 2000
    exact = np.mean([total_variation(betainc(28, 3, np.clip(x + deviations, 0, 1))) for x in u])
    bound = loss_bound(rows, ranks, deviations)
    assert exact <= bound <= 3 * exact + 1e-6


def test_edge_cases_of_the_bound() -> None:
    assert loss_bound([5, 5], [6, 6], np.array([0.1, -0.1])) == 0.0  # nobody sends a score
    assert loss_bound([50] * 4, [46] * 4, np.zeros(4)) == pytest.approx(0.0, abs=1e-12)
    assert 0.0 <= loss_bound([50] * 4, [46] * 4, np.array([-1.0, 1.0, -1.0, 1.0])) <= 1.0


# --- in a run -------------------------------------------------------------------------------------------


def rows_of(spreads: list[float], seed: int, rows: int = 150) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    scores = [spread * np.abs(rng.normal(size=rows)) for spread in spreads]
    return {"site": np.repeat(np.arange(len(spreads)), rows), "s": np.concatenate(scores)}


def run_of(spreads: list[float], trust: Any, seed: int = 0) -> fedassay.Result:
    simulation = fedassay.Simulation(seed=seed, mode="auto" if trust.name == "plain" else "aggregate")
    return fedassay.conformal(
        rows_of(spreads, seed),
        client="site",
        conformity="s",
        score_range=(0, 12),
        method="qq",
        holdout=0.4,
        privacy=trust,
        simulation=simulation,
    )


@pytest.mark.parametrize("trust", [fedassay.Plain(), fedassay.SecureSum()], ids=lambda trust: trust.name)
def test_clients_that_differ_are_a_warning_and_others_are_not(trust: Any) -> None:
    apart = run_of([0.5, 0.5, 1.0, 1.0, 1.0, 3.0], trust)
    assert apart["heterogeneity"]["alarming"]
    assert apart["heterogeneity"]["p_value"] < 1e-6
    assert apart["heterogeneity"]["between_sd"] > 0.05
    assert apart["heterogeneity"]["loss_bound"] > 0.01
    assert any("Clients differ so much" in warning for warning in apart.warnings)
    alike = run_of([1.0] * 6, trust)
    assert not alike["heterogeneity"]["alarming"]
    assert not any("differ" in warning for warning in alike.warnings)


def test_chance_alone_rarely_alarms() -> None:
    """1 % of alarms; five or more of 60 have a probability below 1e-3."""
    alarms = sum(run_of([1.0] * 6, fedassay.Plain(), seed)["heterogeneity"]["alarming"] for seed in range(60))
    assert alarms < 5


def test_sums_tell_the_same_as_single_clients() -> None:
    spreads = [0.5, 0.8, 1.0, 1.0, 1.0, 2.0]
    one, other = (
        run_of(spreads, trust)["heterogeneity"] for trust in (fedassay.Plain(), fedassay.SecureSum())
    )
    for key in ("statistic", "p_value", "between_sd"):
        assert one[key] == pytest.approx(other[key], rel=0.2)
    assert one["degrees"] == other["degrees"]
