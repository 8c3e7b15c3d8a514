"""The law of the coverage with noisy counts, and the margin: closed forms, all numbers of rows, and no noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betainc

from fedassay.errors import DataError, UsageError
from fedassay.estimation.coverage import CoverageLaw, NoiseTail, PooledLaw, fewest_rows, pooled_margin
from fedassay.estimation.coverage.law import split_rank

NONE = NoiseTail(law="none")
TAILS = {
    "Gaussian": NoiseTail(law="discrete-gaussian", scale=4.0, variance=60.0, least_variance=40.0),
    "Laplace": NoiseTail(law="discrete-laplace", scale=3.0, variance=70.0, reach=0.8),
    "little": NoiseTail(law="discrete-laplace", scale=0.3, variance=0.3),
    "much": NoiseTail(law="skellam", scale=30.0, variance=9000.0, least_variance=2000.0),
    "reports": NoiseTail(law="unary", variance=200.0, reach=3.0),
}


def at_least(law: PooledLaw, ell: int) -> float:
    """P(L' >= ℓ) as the page has it."""
    x = law.margin + law.level * law.rows - ell + 1
    return 1 - float(law.tail.above(x - 1e-8))


# --- no noise -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 2 / 3])
def test_no_noise_is_split_conformal_prediction(level: float) -> None:
    margin = pooled_margin(level, NONE, 1)
    for n in (1, 9, 19, 20, 99, 100, 999, 12_345):
        law, rank = PooledLaw(rows=n, level=level, margin=margin, tail=NONE), split_rank(n, level)
        assert law.mean == pytest.approx(rank / (n + 1), abs=1e-12)
        if rank <= n:
            exact = CoverageLaw(clients=1, rows=n, local_rank=rank, server_rank=1)
            assert law.variance == pytest.approx(exact.variance, abs=1e-12)
            assert law.cdf(level) == pytest.approx(exact.cdf(level), abs=1e-12)
            assert law.quantile(0.1) == pytest.approx(exact.quantile(0.1), abs=1e-12)
        else:
            assert (law.mean, law.quantile(0.1), law.probability_at_least(0.999)) == (1, 1, 1)


@pytest.mark.parametrize("clients", [1, 3, 10])
def test_partial_exchangeability_has_the_published_rank(clients: int) -> None:
    """⌈(1-α)(N+K)⌉, and the trivial set where that is more than N."""
    margin = pooled_margin(0.9, NONE, 1, test_points=clients)
    for n in (5, 20, 100, 101, 987):
        rank = n + clients - math.floor((n + clients) * (0.1 + 1e-15))
        law = PooledLaw(rows=n, level=0.9, margin=margin, tail=NONE, test_points=clients)
        assert law.mean == pytest.approx(1.0 if rank > n else rank / (n + clients), abs=1e-12)


# --- the law --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Gaussian", "Laplace", "little", "much"])
@pytest.mark.parametrize("rows", [3, 60, 400])
def test_the_law_is_a_mixture_of_betas(name: str, rows: int) -> None:
    law = PooledLaw(rows=rows, level=0.8, margin=3.0, tail=TAILS[name])
    reached = np.array([at_least(law, ell) for ell in range(1, rows + 2)])
    weights = np.append(-np.diff(reached), reached[-1])
    assert law.mean == pytest.approx(reached.sum() / (rows + 1), abs=1e-6)
    ranks = np.arange(1, rows + 1)
    for t in (0.2, 0.8, 0.95):
        expected = 1 - reached[0] + betainc(ranks, rows + 1 - ranks, t) @ weights[:-1]
        assert law.cdf(t) == pytest.approx(expected, abs=1e-6)
        assert law.probability_at_least(t) == pytest.approx(1 - expected, abs=1e-6)
    missed = quad(law.cdf, 0, 1 - 1e-12, limit=200)[0]
    square = quad(lambda t: 2 * (1 - t) * law.cdf(t), 0, 1 - 1e-12, limit=200)[0]
    assert law.miss == pytest.approx(missed, abs=1e-6)
    assert law.variance == pytest.approx(square - missed**2, abs=1e-6)
    assert law.cdf(law.quantile(0.6)) == pytest.approx(0.6, abs=1e-9) or law.quantile(0.6) in (0, 1)


def test_the_law_with_reports() -> None:
    law = PooledLaw(rows=500, level=0.9, margin=20.0, tail=TAILS["reports"])
    assert law.cdf(0.85) == pytest.approx(float(TAILS["reports"].above(20 + 500 * 0.05)), abs=1e-3)
    grid = np.linspace(0, 1, 200_001)
    F = np.array([float(x) for x in TAILS["reports"].above(20 - 500 * (grid - 0.9))])
    assert law.miss == pytest.approx(F.mean(), abs=1e-4)
    assert law.variance == pytest.approx(2 * ((1 - grid) * F).mean() - F.mean() ** 2, abs=1e-4)
    assert law.cdf(law.quantile(0.2)) <= 0.2 + 0.01


def test_many_ranks_are_taken_together_on_the_safe_side() -> None:
    tail = NoiseTail(law="skellam", scale=2000.0, variance=4e6, least_variance=2e6)
    law = PooledLaw(rows=10**6, level=0.9, margin=500.0, tail=tail)
    ranks, weights = law._ranks
    inside = (ranks > 0) & (ranks <= law.rows)
    fine = float(betainc(ranks[inside], law.rows + 1 - ranks[inside], 0.9) @ weights[inside])
    assert fine <= law.cdf(0.9) <= fine + 0.01


# --- the margin -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("test_points", [1, 7])
@pytest.mark.parametrize("fewest", [1, 40, 1000])
@pytest.mark.parametrize("name", TAILS)
def test_the_margin_is_enough_for_all_numbers_of_rows(name: str, fewest: int, test_points: int) -> None:
    tail = TAILS[name]
    for level in (0.9, 0.75):
        margin = pooled_margin(level, tail, fewest, test_points=test_points)
        for n in (*range(fewest, fewest + 25), *np.geomspace(fewest, 50_000, 20).astype(int).tolist()):
            law = PooledLaw(rows=n, level=level, margin=margin, tail=tail, test_points=test_points)
            assert law.mean >= level - 1e-12


@pytest.mark.parametrize("name", TAILS)
def test_less_would_not_be_enough(name: str) -> None:
    """By a tenth of a standard deviation and half a row, for some number of rows."""
    tail, fewest = TAILS[name], 2000
    margin = pooled_margin(0.9, tail, fewest) - 0.1 * math.sqrt(tail.variance) - 0.5
    laws = [PooledLaw(rows=n, level=0.9, margin=margin, tail=tail) for n in range(fewest, fewest + 20)]
    assert min(law.mean for law in laws) < 0.9


def test_noise_costs_little_where_variances_are_alike() -> None:
    """A bound over Chernoff's inequality would take 0.89 standard deviations, 17.8 rows."""
    alike = NoiseTail(law="discrete-gaussian", scale=10.0, variance=400.0, least_variance=400.0)
    unknown = NoiseTail(law="discrete-gaussian", scale=10.0, variance=400.0)
    assert pooled_margin(0.9, alike, 2000) < 2
    assert pooled_margin(0.9, unknown, 2000) < 10


@pytest.mark.parametrize("name", TAILS)
def test_the_margin_does_not_grow_with_the_fewest_rows(name: str) -> None:
    margins = [pooled_margin(0.9, TAILS[name], n) for n in (20, 200, 2000, 20_000)]
    assert margins == sorted(margins, reverse=True)


@pytest.mark.parametrize("name", TAILS)
def test_the_margin_for_a_confidence(name: str) -> None:
    margin = pooled_margin(0.9, TAILS[name], 500, confidence=0.9, most_rows=540)
    laws = [PooledLaw(rows=n, level=0.9, margin=margin, tail=TAILS[name]) for n in range(500, 541, 4)]
    assert min(law.probability_at_least(0.9) for law in laws) >= 0.9 - 1e-9
    assert min(law.mean for law in laws) >= 0.9
    assert max(law.probability_at_least(0.9) for law in laws) < 0.93
    wider = pooled_margin(0.9, TAILS[name], 480, confidence=0.9, most_rows=600)
    assert wider >= margin - 0.1


def test_the_fewest_rows() -> None:
    tail = TAILS["Laplace"]
    assert fewest_rows(1000.0, tail, 1e-6) == math.floor(1000 - tail.reach_of(1e-6)) + 1
    assert fewest_rows(1000.0, tail, 1e-3) > fewest_rows(1000.0, tail, 1e-6)
    assert fewest_rows(5.0, tail) < 1


def test_bad_requests_are_refused() -> None:
    with pytest.raises(DataError, match="add rows"):
        pooled_margin(0.9, NONE, 0)
    with pytest.raises(UsageError, match="level"):
        pooled_margin(1.0, NONE, 10)
    with pytest.raises(UsageError, match="most"):
        pooled_margin(0.9, NONE, 10, confidence=0.9)
    with pytest.raises(UsageError, match="within a client"):
        pooled_margin(0.9, NONE, 10, confidence=0.9, most_rows=20, test_points=3)
    with pytest.raises(UsageError, match="pooled law"):
        PooledLaw(rows=0, level=0.9, margin=1.0, tail=NONE)
    partial = PooledLaw(rows=10, level=0.9, margin=1.0, tail=NONE, test_points=2)
    with pytest.raises(UsageError, match="only the mean"):
        partial.cdf(0.5)
    with pytest.raises(UsageError, match="from 0 to 1"):
        PooledLaw(rows=10, level=0.9, margin=1.0, tail=NONE).quantile(2.0)
