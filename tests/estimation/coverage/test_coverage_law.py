"""The law of the coverage for equally many rows: against sums in exact arithmetic, 34 digits, and closed forms."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from conformal_oracles import as_the_paper_writes_it, exact_cdf, exact_moments, precise_moments
from fedassay.errors import UsageError
from fedassay.estimation.coverage import CoverageLaw
from fedassay.estimation.coverage.law import mirrored_moments, moments, split_rank, split_rows
from stated import Verify

EXACT = 1e-12


def law(m: int, n: int, ell: int, k: int) -> CoverageLaw:
    return CoverageLaw(clients=m, rows=n, local_rank=ell, server_rank=k)


def relative(found: float, expected: Fraction | mp.mpf) -> float:
    if isinstance(expected, Fraction):
        return abs(float((Fraction(found) - expected) / expected))
    return abs(float((mp.mpf(found) - expected) / expected))


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 7), (2, 1), (2, 5), (3, 3), (4, 2), (5, 2), (6, 1)])
def test_the_mean_is_the_papers_sum(m: int, n: int) -> None:
    for ell in range(1, n + 1):
        for k in range(1, m + 1):
            expected = as_the_paper_writes_it([n] * m, [ell] * m, k)
            assert exact_moments((n,) * m, (ell,) * m)[k - 1][0] == expected
            assert law(m, n, ell, k).mean == pytest.approx(float(expected), abs=1e-15)


@pytest.mark.parametrize(("m", "n"), [(1, 40), (3, 12), (10, 20), (25, 4), (60, 1), (4, 50)])
def test_mean_and_variance_of_every_pair_are_exact(m: int, n: int) -> None:
    for ell in sorted({1, 2, n // 2, n - 1, n} & set(range(1, n + 1))):
        for k, (mean, variance) in enumerate(exact_moments((n,) * m, (ell,) * m), start=1):
            found = law(m, n, ell, k)
            assert relative(found.mean, mean) < 1e-13
            assert relative(found.miss, 1 - mean) < 1e-13
            assert relative(found.variance, variance) < 2e-11
            assert found.standard_deviation == pytest.approx(math.sqrt(variance), abs=EXACT)


LARGE = [
    (1000, 1000, 900, 528),
    (1000, 1000, 1000, 1),
    (1000, 1000, 1, 1000),
    (1000, 1000, 2, 999),
    (3, 10**6, 999_999, 1),
    (10**5, 10, 9, 73_611),
    (10**5, 10**4, 9_990, 20),
    (10**5, 10**6, 10**6, 1),
    (10**5, 10**6, 10**6, 10**5),
    (10**5, 10**6, 1, 10**5),
]


def against_34_digits(m: int, n: int, ell: int, k: int) -> tuple[float, float, float]:
    """Errors of M (absolute), of the smaller one of M and 1-M (relative) and of the standard deviation (absolute)."""
    if law(m, n, ell, k).mean > 0.5:
        ell, k = n + 1 - ell, m + 1 - k  # the oracle keeps its digits next to 0
    found = law(m, n, ell, k)
    lo, middle, hi = (found.quantile(p) for p in (1e-17, 0.5, 1 - 1e-15))
    edges = [max(0.0, lo - (middle - lo) / 4), middle, middle + 1.5 * (hi - middle)]
    edges = [edges[0], (edges[0] + middle) / 2, middle, (middle + edges[2]) / 2, min(1.0, edges[2])]
    mean, variance = precise_moments(m, n, ell, k, edges)
    mirror = law(m, n, n + 1 - ell, m + 1 - k)
    absolute = max(abs(found.mean - float(mean)), abs(mirror.mean - float(1 - mean)))
    spread = max(abs(x.standard_deviation - float(mp.sqrt(variance))) for x in (found, mirror))
    return absolute, max(relative(found.mean, mean), relative(mirror.miss, mean)), spread


SLOW = [(100, 10**6, 899_997, 51), (10**5, 10**6, 900_000, 50_085)]


@pytest.mark.parametrize(
    "setting", [*LARGE, *(pytest.param(x, marks=pytest.mark.full) for x in SLOW)], ids=str
)
def test_large_federations_against_34_digits(setting: tuple[int, int, int, int]) -> None:
    absolute, smaller, spread = against_34_digits(*setting)
    assert absolute < EXACT
    assert smaller < EXACT
    assert spread < EXACT


@pytest.mark.full
def test_three_hundred_random_federations_against_34_digits(verify: Verify) -> None:
    rng = np.random.default_rng(0)
    worst = np.zeros(3)
    for _ in range(300):
        m, n = int(10 ** rng.uniform(0, 5)), int(10 ** rng.uniform(0, 6))
        ell = int(rng.choice([1, min(2, n), n, rng.integers(1, n + 1), max(1, int(rng.beta(9, 1) * n))]))
        k = int(rng.choice([1, m, max(1, m - 1), rng.integers(1, m + 1)]))
        worst = np.maximum(worst, against_34_digits(m, n, ell, k))
    verify(
        "conformal coverage, 300 random (m <= 10^5, n <= 10^6, ℓ, k): M, its spread, and the smaller one of M "
        "and 1-M relative to itself, within 1e-12 of 34-digit arithmetic",
        f"{worst[0]:.0e}, {worst[2]:.0e}, {worst[1]:.0e}",
    )
    assert worst[0] < EXACT
    assert worst[1] < EXACT
    assert worst[2] < EXACT


@pytest.mark.parametrize("m", [1, 2, 10, 1000, 10**5])
@pytest.mark.parametrize("n", [1, 2, 10, 1000, 10**5, 10**6])
def test_closed_forms(m: int, n: int) -> None:
    scores = m * n
    top, bottom = law(m, n, n, m), law(m, n, 1, 1)
    assert top.mean == pytest.approx(scores / (scores + 1), abs=EXACT)
    assert bottom.mean == pytest.approx(1 / (scores + 1), abs=EXACT)
    assert top.miss == pytest.approx(1 / (scores + 1), rel=EXACT)
    assert bottom.mean == pytest.approx(1 / (scores + 1), rel=EXACT)
    variance = scores / ((scores + 1) ** 2 * (scores + 2))  # of the extreme one of mn uniform scores
    assert top.variance == pytest.approx(variance, rel=1e-10)
    assert bottom.variance == pytest.approx(variance, rel=1e-10)
    for k in {1, m // 3 + 1, m}:
        with mp.workdps(40):  # Proposition A.1, whose factors cancel all but 1/n of their digits
            share = mp.mpf(1) / n
            expected = mp.exp(
                mp.loggamma(k + share) - mp.loggamma(k) + mp.loggamma(m + 1) - mp.loggamma(m + 1 + share)
            )
            found = law(m, n, n, k)
            assert abs(found.mean - float(expected)) < EXACT
            assert relative(found.miss, 1 - expected) < EXACT


@pytest.mark.parametrize("count", [1, 5, 100, 10**5])
def test_one_client_and_one_row_each_are_split_conformal_prediction(count: int) -> None:
    for rank in {1, count // 2 + 1, count}:
        mean = rank / (count + 1)
        for found in (law(1, count, rank, 1), law(count, 1, 1, rank)):
            assert found.mean == pytest.approx(mean, abs=EXACT)
            assert found.variance == pytest.approx(mean * (1 - mean) / (count + 2), rel=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_counting_from_the_other_end_gives_the_miscoverage(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = int(rng.integers(1, 200)), int(rng.integers(1, 2000))
    ell, k = rng.integers(1, n + 1, 20), rng.integers(1, m + 1, 20)
    direct, mirrored = moments(m, n, ell, k), mirrored_moments(m, n, ell, k)
    assert np.allclose(direct.mean + mirrored.mean, 1, rtol=0, atol=1e-14)
    assert np.allclose(direct.variance, mirrored.variance, rtol=1e-10, atol=0)
    one = law(m, n, int(ell[0]), int(k[0]))
    other = law(m, n, n + 1 - one.local_rank, m + 1 - one.server_rank)
    assert other.mean == one.miss
    assert one.cdf(0.3) == pytest.approx(other.probability_at_least(0.7), rel=1e-9, abs=1e-300)


def test_steps_of_the_mean_guide_the_search() -> None:
    for m, n, ell, k in ((10, 100, 92, 4), (1000, 1000, 900, 528), (50, 3, 3, 40), (2, 10, 9, 1)):
        found = law(m, n, ell, k + 1).mean - law(m, n, ell, k).mean
        assert float(moments(m, n, ell, k).step[0]) == pytest.approx(found, rel=1e-7)
        assert float(mirrored_moments(m, n, ell, k + 1).step[0]) == pytest.approx(found, rel=1e-7)


def test_probabilities_are_exact_in_both_tails() -> None:
    m, n, ell, k = 6, 15, 13, 3
    found = law(m, n, ell, k)
    for t in (0.05, 0.3, 0.7, 0.9, 0.999):
        expected = exact_cdf([n] * m, [ell] * m, k, Fraction(t))
        assert relative(found.cdf(t), expected) < 1e-12
        assert relative(found.probability_at_least(t), 1 - expected) < 1e-12
    assert found.cdf(0.05) < 1e-30
    assert found.probability_at_least(0.999) < 1e-6
    assert (found.cdf(-1), found.cdf(0), found.cdf(1), found.cdf(2)) == (0, 0, 1, 1)
    assert (found.probability_at_least(0), found.probability_at_least(1.0)) == (1, 0)


@pytest.mark.parametrize(
    "setting",
    [(10, 100, 92, 4), (1, 1, 1, 1), (100, 10**6, 899_997, 51), (10**5, 10, 10, 1), (3, 5, 1, 3)],
    ids=str,
)
def test_quantiles_invert_the_law(setting: tuple[int, int, int, int]) -> None:
    found = law(*setting)
    for p in (1e-12, 1e-3, 0.1, 0.5, 0.9, 0.999):
        assert found.cdf(found.quantile(p)) == pytest.approx(p, rel=1e-7)
    assert (found.quantile(0), found.quantile(1)) == (0, 1)


@pytest.mark.parametrize("m", [1, 10**5])
@pytest.mark.parametrize("n", [1, 2, 10**6])
def test_nothing_underflows(m: int, n: int) -> None:
    for ell in {1, n // 2 + 1, n}:
        for k in {1, m // 2 + 1, m}:
            found = law(m, n, ell, k)
            assert 0 < found.mean < 1
            assert 0 < found.miss < 1
            assert found.mean + found.miss == pytest.approx(1, abs=EXACT)
            assert 0 < found.variance < 0.1
            assert 0 < found.quantile(1e-6) < found.quantile(0.5) < found.quantile(1 - 1e-6) <= 1
            assert found.probability_at_least(found.quantile(0.5)) == pytest.approx(0.5, abs=1e-6)


def test_the_published_failures_are_not_ours() -> None:
    # The published code returns NaN from n = 54 on at ℓ = n, and too much once mn is above 1074.
    assert law(20, 54, 54, 3).mean == pytest.approx(
        math.exp(math.lgamma(3 + 1 / 54) - math.lgamma(3) + math.lgamma(21) - math.lgamma(21 + 1 / 54)),
        abs=1e-12,
    )
    assert law(60, 100, 100, 60).mean == pytest.approx(6000 / 6001, abs=EXACT)


@pytest.mark.parametrize("seed", range(20))
def test_theorem_3_3_never_promises_more_than_the_law(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = int(rng.integers(1, 60)), int(rng.integers(1, 200))
    found = law(m, n, int(rng.integers(1, n + 1)), int(rng.integers(1, m + 1)))
    for confidence in (0.5, 0.9, 0.999):
        floor = found.theorem_3_3_floor(confidence)
        assert floor <= found.quantile(1 - confidence)
        assert found.probability_at_least(floor) >= confidence


def test_theorem_3_3_is_as_published() -> None:
    # ℓk >= (1-α)mn, so that P(α_P <= α + sqrt(log(1/δ)/(2mn))) >= 1-δ
    found = law(10, 100, 95, 10)
    assert found.theorem_3_3_floor(0.9) == pytest.approx(0.95 - math.sqrt(math.log(10) / 2000), abs=1e-15)
    assert law(10, 100, 2, 1).theorem_3_3_floor(0.9) == 0
    for confidence in (0.49, 1.0, math.nan):
        with pytest.raises(UsageError, match=r"from 0.5 to below 1"):
            found.theorem_3_3_floor(confidence)


def test_what_is_no_rank_is_refused() -> None:
    for m, n, ell, k in ((0, 1, 1, 1), (1, 0, 1, 1), (2, 5, 0, 1), (2, 5, 6, 1), (2, 5, 1, 3), (2, 5, 1, 0)):
        with pytest.raises(UsageError, match="rank: got"):
            law(m, n, ell, k)
    for p in (-0.1, 1.1, math.nan):
        with pytest.raises(UsageError, match="expected a number from 0 to 1"):
            law(2, 5, 1, 1).quantile(p)


def test_ranks_of_split_conformal_prediction_do_not_suffer_from_rounding() -> None:
    for percent in range(1, 100):
        for n in (1, 9, 19, 49, 99, 100, 199, 999, 10**6 - 1):
            level = percent / 100
            expected = -(-percent * (n + 1) // 100)
            assert split_rank(n, level) == expected
            assert split_rank(n, 1 - (1 - level)) == expected
        assert split_rank(split_rows(percent / 100), percent / 100) <= split_rows(percent / 100)
        assert split_rows(percent / 100) == max(1, -(-percent // (100 - percent)))
