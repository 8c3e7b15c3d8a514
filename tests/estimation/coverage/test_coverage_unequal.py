"""The law of the coverage for different numbers of rows: unequal coins, exact polynomials, and the choice of k."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import betainc
from scipy.stats import binom

from conformal_oracles import as_the_paper_writes_it, exact_cdf, exact_moments
from fedassay.errors import DataError, UsageError
from fedassay.estimation.coverage import (
    CoverageLaw,
    Rule,
    UnequalLaw,
    best_pair,
    best_ranks,
    best_server_rank,
    scores_needed,
    split_ranks,
)
from fedassay.estimation.coverage.law import largest_miss, split_rows
from fedassay.estimation.coverage.senders import Senders, upper_tails
from fedassay.estimation.coverage.unequal import SHIFTS, shifted_ranks
from stated import Verify

EXACT = 1e-12


def law(rows: tuple[int, ...], ranks: tuple[int, ...], k: int) -> UnequalLaw:
    return UnequalLaw(rows=rows, local_ranks=ranks, server_rank=k)


def error_of(found: UnequalLaw, level: float) -> float:
    return math.hypot(1 - level - found.miss, found.standard_deviation)


# --- sums of coins --------------------------------------------------------------------------------------


def coin_by_coin(p: np.ndarray) -> np.ndarray:
    """P(S >= k) for k = 0..m, adding one coin at a time in extended precision; only positive terms."""
    law_of_sum = np.ones(1, dtype=np.longdouble)
    for x in p.astype(np.longdouble):
        law_of_sum = np.append(law_of_sum * (1 - x), 0) + np.append(0, law_of_sum * x)
    return np.cumsum(law_of_sum[::-1])[::-1].astype(float)


@pytest.mark.parametrize("shape", [(1, 1), (0.1, 0.1), (1, 20), (20, 1), (0.01, 0.01), (50, 50)], ids=str)
@pytest.mark.parametrize("coins", [1, 2, 7, 60, 900])
def test_tails_of_unequal_coins(coins: int, shape: tuple[float, float]) -> None:
    p = np.random.default_rng(coins).beta(*shape, (3, coins))
    found = upper_tails(p, np.ones(coins, dtype=np.int64), np.arange(coins + 2))
    for row, expected in zip(found, p, strict=True):
        assert np.allclose(row, np.append(coin_by_coin(expected), 0), rtol=0, atol=2e-14)


@pytest.mark.parametrize("coins", [1, 2, 50, 3000, 10**5])
def test_tails_of_repeated_coins(coins: int) -> None:
    p = np.array([[0.0], [1e-9], [0.3], [0.5], [1 - 1e-6], [1.0]])
    k = np.unique(np.linspace(0, coins + 1, 300).astype(np.int64))
    found = upper_tails(p, np.array([coins]), k)
    assert np.allclose(found, binom.sf(k - 1, coins, p), rtol=0, atol=5e-14)


def test_groups_of_coins_and_single_coins_are_the_same() -> None:
    rng = np.random.default_rng(0)
    p, counts = rng.random((4, 5)), np.array([1, 30, 2, 7, 1])
    k = np.arange(counts.sum() + 1)
    single = upper_tails(np.repeat(p, counts, axis=1), np.ones(counts.sum(), dtype=np.int64), k)
    assert np.allclose(upper_tails(p, counts, k), single, rtol=0, atol=1e-14)


def test_memory_is_used_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    p, counts, k = rng.random((17, 40)), np.ones(40, dtype=np.int64), np.arange(41)
    whole = upper_tails(p, counts, k)
    monkeypatch.setattr("fedassay.estimation.coverage.senders._AT_ONCE", 5000)
    assert (upper_tails(p, counts, k) == whole).all()


# --- the law --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [(3,), (1, 4), (4, 1, 2), (2, 3, 1, 1)])
def test_the_mean_is_the_papers_sum(rows: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(rows))
    for _ in range(3):
        ranks = tuple(int(rng.integers(1, n + 1)) for n in rows)
        for k in range(1, len(rows) + 1):
            expected = as_the_paper_writes_it(rows, ranks, k)
            assert exact_moments(rows, ranks)[k - 1][0] == expected
            assert law(rows, ranks, k).mean == pytest.approx(float(expected), abs=1e-14)


@pytest.mark.parametrize("seed", range(12))
def test_mean_variance_and_probabilities_are_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = tuple(int(10 ** rng.uniform(0, 1.7)) for _ in range(int(rng.integers(1, 8))))
    ranks = tuple(int(rng.integers(1, n + 1)) for n in rows)
    for k, (mean, variance) in enumerate(exact_moments(rows, ranks), start=1):
        found = law(rows, ranks, k)
        assert found.mean == pytest.approx(float(mean), abs=1e-13)
        assert found.miss == pytest.approx(float(1 - mean), rel=EXACT)
        assert found.standard_deviation == pytest.approx(math.sqrt(variance), abs=EXACT)
    k, t = len(rows) // 2 + 1, float(rng.uniform(0.1, 0.9))
    found, expected = law(rows, ranks, k), exact_cdf(rows, ranks, k, Fraction(t))
    assert found.cdf(t) == pytest.approx(float(expected), abs=1e-14)
    assert found.probability_at_least(t) == pytest.approx(float(1 - expected), abs=1e-14)
    for p in (1e-6, 0.1, 0.5, 0.99):
        assert found.cdf(found.quantile(p)) == pytest.approx(p, abs=1e-11)


@pytest.mark.parametrize(
    "setting",
    [
        (1, 1, 1, 1),
        (5, 10, 10, 1),
        (5, 10, 1, 5),
        (100, 20, 19, 40),
        (10, 10**6, 900_100, 5),
        (10**4, 1000, 900, 5265),
        (10**5, 10, 9, 73_611),
        (10**5, 10**6, 10**6, 1),
        (10**5, 10**6, 1, 10**5),
        (1, 10**6, 1, 1),
        (100, 1, 1, 91),
    ],
    ids=str,
)
def test_equal_clients_have_the_equal_law(setting: tuple[int, int, int, int]) -> None:
    m, n, ell, k = setting
    equal = CoverageLaw(clients=m, rows=n, local_rank=ell, server_rank=k)
    found = law((n,) * m, (ell,) * m, k)
    assert found.mean == pytest.approx(equal.mean, abs=EXACT)
    assert found.miss == pytest.approx(equal.miss, rel=1e-10)
    assert found.standard_deviation == pytest.approx(equal.standard_deviation, abs=EXACT)
    for p in (0.01, 0.5, 0.99):
        t = equal.quantile(p)
        assert found.quantile(p) == pytest.approx(t, abs=EXACT)
        assert found.probability_at_least(t) == pytest.approx(equal.probability_at_least(t), abs=1e-9)


def test_clients_of_very_different_sizes() -> None:
    """A law with narrow and wide parts: the smallest of a wide and a narrow one, in closed form.

    U is the smaller one of X ~ Beta(1, 1) and Y ~ Beta(ℓ, n+1-ℓ): E U = E(Y - Y²/2), E U² = E(Y² - 2Y³/3).
    """
    n, ell = 10**6, 900_000
    first = Fraction(ell, n + 1)
    second = first * Fraction(ell + 1, n + 2)
    third = second * Fraction(ell + 2, n + 3)
    mean = first - second / 2
    variance = second - 2 * third / 3 - mean**2
    found = law((1, n), (1, ell), 1)
    assert found.mean == pytest.approx(float(mean), abs=EXACT)
    assert found.variance == pytest.approx(float(variance), rel=EXACT)
    larger = law((1, n), (1, ell), 2)  # and the other one: the two add up to X + Y
    assert larger.mean == pytest.approx(float(first + Fraction(1, 2) - mean), abs=EXACT)


def test_a_hundred_different_clients() -> None:
    """Against a trapezoid rule over sums of coins in extended precision."""
    rows = tuple(int(n) for n in 10 ** np.random.default_rng(0).uniform(1, 4, 120))
    ranks, k = split_ranks(rows, 0.9), 56
    found = law(rows, ranks, k)
    senders = Senders.of(rows, ranks)
    lo, hi = senders.ends(np.array([senders.clients + 1 - k]))
    t, step = np.linspace(lo, hi, 401, retstep=True)
    n, r = np.repeat([senders.rows, senders.ranks], senders.counts, axis=1)
    above = np.array([1 - coin_by_coin(betainc(r, n + 1 - r, x))[len(n) + 1 - k] for x in t])
    # Flat ends make the rule exact, up to terms that vanish faster than any power of the step; t·P(W > t) has a slope
    # at the lower end, which costs the first term of Euler and Maclaurin's series.
    mean = lo + step * (above.sum() - 0.5)
    second = 2 * (step * ((t - lo) * above).sum() + step**2 / 12)
    assert found.miss == pytest.approx(mean, abs=EXACT)
    assert found.variance == pytest.approx(second - (mean - lo) ** 2, rel=1e-10)


def test_clients_with_too_few_rows_send_infinity_and_change_nothing() -> None:
    rows, ranks = (50, 20, 30), (46, 19, 28)
    for k in (1, 2, 3):
        without, with_them = law(rows, ranks, k), law((0, 50, 5, 20, 30), (1, 46, 6, 19, 28), k)
        assert with_them.infinite == (0, 2)
        assert not with_them.is_trivial
        assert with_them.mean == without.mean
        assert with_them.variance == without.variance
        assert with_them.cdf(0.9) == without.cdf(0.9)
    for k in (4, 5):
        trivial = law((0, 50, 5, 20, 30), (1, 46, 6, 19, 28), k)
        assert trivial.is_trivial
        assert (trivial.mean, trivial.miss, trivial.variance) == (1, 0, 0)
        assert (trivial.cdf(0.999), trivial.cdf(1.0)) == (0, 1)
        assert (trivial.probability_at_least(1.0), trivial.quantile(0.1)) == (1, 1)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.99])
def test_the_papers_ranks_need_so_many_rows(level: float) -> None:
    needed = split_rows(level)
    ranks = split_ranks([needed, needed - 1], level)
    assert ranks[0] <= needed
    assert ranks[1] > needed - 1


def test_what_is_no_law_is_refused() -> None:
    for rows, ranks, k, word in (
        ((), (), 1, "rows per client"),
        ((5, -1), (1, 1), 1, "rows per client"),
        ((5, 5), (1,), 1, "local ranks"),
        ((5, 5), (1, 0), 1, "local ranks"),
        ((5, 5), (1, 1), 0, "server rank"),
        ((5, 5), (1, 1), 3, "server rank"),
    ):
        with pytest.raises(UsageError, match=word):
            law(rows, ranks, k)
    for p in (-0.1, 1.1, math.nan):
        with pytest.raises(UsageError, match="from 0 to 1"):
            law((5, 5), (1, 1), 1).quantile(p)


# --- which ranks ----------------------------------------------------------------------------------------


def sizes(rng: np.random.Generator) -> tuple[int, ...]:
    m = int(rng.integers(1, 40))
    return tuple(int(n) for n in 10 ** rng.uniform(*rng.choice([(0.5, 1.2), (0.7, 3.5), (1.8, 2.1)]), m))


@pytest.mark.parametrize("seed", range(40))
def test_no_valid_server_rank_is_better(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, level = sizes(rng), float(rng.choice([0.9, 0.5, rng.uniform(0.05, 0.97)]))
    ranks = shifted_ranks(rows, level, float(rng.choice(SHIFTS)))
    count = sum(ell <= n for n, ell in zip(rows, ranks, strict=True))
    laws = [law(rows, ranks, k) for k in range(1, count + 1)]
    for confidence in (None, 0.9, float(rng.uniform(0.05, 0.6))):
        valid = [x for x in laws if x.miss <= largest_miss(level)]
        if confidence is not None:
            valid = [x for x in valid if 1 - x.probability_at_least(level) <= largest_miss(confidence)]
        rules: tuple[Rule, ...] = ("spread", "paper")
        for rule in rules:
            if not valid:
                with pytest.raises(DataError, match="too few for the local rank"):
                    best_server_rank(rows, ranks, level, rule=rule, confidence=confidence)
                continue
            found = best_server_rank(rows, ranks, level, rule=rule, confidence=confidence)
            if rule == "paper":
                assert found.server_rank == valid[0].server_rank
            else:
                assert found.server_rank in {x.server_rank for x in valid}
                assert error_of(found, level) == pytest.approx(
                    min(error_of(x, level) for x in valid), rel=1e-8
                )


def test_a_larger_server_rank_can_be_the_best_one() -> None:
    rows = ranks = (30, 5, 5)
    level = law(rows, ranks, 2).mean
    assert best_server_rank(rows, ranks, level, rule="paper").server_rank == 2
    assert best_server_rank(rows, ranks, level).server_rank == 3


@pytest.mark.parametrize("seed", range(20))
def test_shifted_ranks_are_valid_and_no_worse_than_the_papers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, level = sizes(rng), float(rng.choice([0.9, 0.8]))
    for confidence in (None, 0.9):
        if sum(rows) < scores_needed(level, confidence=confidence):
            with pytest.raises(DataError, match=f"at least {scores_needed(level, confidence=confidence)}"):
                best_ranks(rows, level, confidence=confidence)
            continue
        found = best_ranks(rows, level, confidence=confidence)
        assert found.mean >= level - EXACT
        assert confidence is None or found.probability_at_least(level) >= confidence - EXACT
        enough = {j for j, n in enumerate(rows) if n >= split_rows(level)}
        assert not enough & set(found.infinite)
        try:
            plain = best_server_rank(rows, split_ranks(rows, level), level, confidence=confidence)
        except DataError:
            continue
        assert error_of(found, level) <= error_of(plain, level) * (1 + 1e-8)


def test_a_shift_lets_small_clients_take_part() -> None:
    rows = tuple(int(n) for n in np.random.default_rng(0).integers(5, 12, 100))
    plain, found = best_ranks(rows, 0.9, rule="paper"), best_ranks(rows, 0.9)
    assert len(plain.infinite) == sum(n < split_rows(0.9) for n in rows) > 40
    assert found.infinite == ()
    assert error_of(found, 0.9) < 0.75 * error_of(plain, 0.9)


def test_equal_clients_get_the_best_pair() -> None:
    pair, found = best_pair(10, 100, 0.9), best_ranks([100] * 10, 0.9)
    assert found.local_ranks == (pair.local_rank,) * 10
    assert found.server_rank == pair.server_rank
    assert best_ranks([100] * 10, 0.9, rule="paper").local_ranks == (91,) * 10


def test_the_largest_of_all_scores_is_the_last_resort() -> None:
    found = best_ranks([5, 4, 0], 0.9)
    assert found.local_ranks[:2] == (5, 4)
    assert found.server_rank == 2
    assert found.infinite == (2,)
    assert found.mean == pytest.approx(0.9, abs=EXACT)


@pytest.mark.full
def test_ten_thousand_different_clients(verify: Verify) -> None:
    rng = np.random.default_rng(0)
    rows = tuple(int(n) for n in rng.integers(10, 100_000, 10_000))
    found = best_server_rank(rows, split_ranks(rows, 0.9), 0.9)
    lower = law(rows, found.local_ranks, found.server_rank - 1)
    assert lower.mean < 0.9 <= found.mean
    verify(
        "conformal coverage, 10,000 clients with different numbers of rows: the smallest valid k",
        f"{found.server_rank}",
    )
