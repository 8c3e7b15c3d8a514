"""Which target, server rank and slopes: validity, against all choices, and what is said where nothing is valid."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.special import betainc

from fedassay.errors import DataError, UsageError
from fedassay.estimation.coverage import ChoiceLaw, CoverageLaw, best_choice, best_pair, published_choice
from fedassay.estimation.coverage.best_choice import SLOPES
from fedassay.estimation.coverage.choice import cdf_after_gain
from fedassay.estimation.coverage.law import mean_and_variance
from fedassay.estimation.coverage.published_choice import correction_of

SETTINGS = [(10, 100, 1.0), (10, 100, 5.0), (20, 110, 2.0), (50, 20, 5.0), (5, 500, 1.0), (1, 200, 2.0)]


def criterion(m: int, n: int, t: int, k: int, candidates: int, rate: float, level: float) -> float:
    def cdf(s: np.ndarray, i: np.ndarray) -> np.ndarray:
        return betainc(k, m - k + 1, cdf_after_gain(s, n, np.full(len(s), t), candidates, rate))

    miss, variance = mean_and_variance(cdf, 1)
    return float((1 - level - miss[0]) ** 2 + variance[0])


@pytest.mark.parametrize(("m", "n", "epsilon"), SETTINGS)
@pytest.mark.parametrize("confidence", [None, 0.9])
def test_what_is_found_is_valid_and_cannot_be_lowered(
    m: int, n: int, epsilon: float, confidence: float | None
) -> None:
    found = best_choice(m, n, 0.9, epsilon=epsilon, candidates=100, confidence=confidence)
    assert (found.below, found.above) in SLOPES
    assert found.law.pair == (found.target, found.server_rank)
    assert found.law.rate == pytest.approx(epsilon * found.below / (found.below + found.above))
    assert found.law.mean >= 0.9 - 1e-10
    assert confidence is None or found.law.probability_at_least(0.9) >= confidence - 1e-10
    lower = ChoiceLaw(**{**vars_of(found.law), "target": found.target - 1})
    valid = lower.mean >= 0.9 and (confidence is None or lower.probability_at_least(0.9) >= confidence)
    assert not valid


def vars_of(law: ChoiceLaw) -> dict[str, float]:
    names = ("clients", "rows", "target", "server_rank", "candidates", "rate")
    return {name: getattr(law, name) for name in names}


@pytest.mark.parametrize(("m", "n", "epsilon"), [(1, 40, 3.0), (4, 30, 2.0), (6, 25, 4.0), (12, 12, 8.0)])
def test_no_choice_is_much_better(m: int, n: int, epsilon: float) -> None:
    """All slopes, server ranks and targets: the criterion is within a hundredth of the best."""
    best, candidates = np.inf, 20
    for (below, above), k in ((x, k) for x in SLOPES for k in range(1, m + 1)):
        eta = epsilon / (below + above)
        for t in range(1, n + 1):
            law = ChoiceLaw(
                clients=m, rows=n, target=t, server_rank=k, candidates=candidates, rate=eta * below
            )
            if law.mean >= 0.8:
                best = min(best, criterion(m, n, t, k, candidates, eta * above, 0.8))
                break
    found = best_choice(m, n, 0.8, epsilon=epsilon, candidates=candidates)
    rate = epsilon * found.above / (found.below + found.above)
    ours = criterion(m, n, found.target, found.server_rank, candidates, rate, 0.8)
    assert best * (1 - 1e-8) <= ours <= 1.01 * best


def test_without_privacy_it_is_the_best_pair() -> None:
    for m, n in ((10, 100), (5, 200), (1, 99), (60, 1)):
        found = best_choice(m, n, 0.9, epsilon=1e6, candidates=50)
        pair = best_pair(m, n, 0.9)
        exact = CoverageLaw(clients=m, rows=n, local_rank=found.target, server_rank=found.server_rank)
        spread = (exact.mean - 0.9) ** 2 + exact.variance
        assert spread <= 1.05 * ((pair.mean - 0.9) ** 2 + pair.variance)


def test_few_candidates_rows_and_clients() -> None:
    assert best_choice(1, 60, 0.9, epsilon=2.0, candidates=2).law.mean >= 0.9
    assert best_choice(40, 1, 0.5, epsilon=6.0, candidates=3).law.mean >= 0.5
    assert best_choice(1, 1, 0.3, epsilon=5.0, candidates=2).target == 1


def named(message: str) -> tuple[int, float | None]:
    rows = re.search(r"at least (\d+) rows each", message)
    strength = re.search(r"or ε = ([0-9.e+]+) with these rows", message)
    assert rows is not None
    return int(rows[1]), None if strength is None else float(strength[1])


@pytest.mark.parametrize("search", [best_choice, published_choice])
@pytest.mark.parametrize(("m", "n", "epsilon"), [(10, 12, 1.0), (5, 15, 0.5), (2, 30, 0.3)])
def test_where_nothing_is_valid_what_would_do_is_named(search, m: int, n: int, epsilon: float) -> None:
    with pytest.raises(DataError) as error:
        search(m, n, 0.9, epsilon=epsilon, candidates=100)
    rows, strength = named(str(error.value))
    assert search(m, rows, 0.9, epsilon=epsilon, candidates=100).law.mean >= 0.9 - 1e-10
    with pytest.raises(DataError):
        search(m, rows - 1, 0.9, epsilon=epsilon, candidates=100)
    assert strength is not None
    assert search(m, n, 0.9, epsilon=strength, candidates=100).law.mean >= 0.9 - 1e-10
    with pytest.raises(DataError):
        search(m, n, 0.9, epsilon=0.98 * strength, candidates=100)


def test_where_no_epsilon_would_do_none_is_named() -> None:
    with pytest.raises(DataError) as error:
        best_choice(2, 4, 0.9, epsilon=1.0, candidates=10)
    assert named(str(error.value))[1] is None


def test_bad_requests_are_refused() -> None:
    for search in (best_choice, published_choice):
        for bad in (
            {"level": 1.0},
            {"epsilon": 0.0},
            {"epsilon": -1.0},
            {"candidates": 1},
            {"clients": 0},
            {"rows": 0},
        ):
            asked = {"clients": 10, "rows": 100, "level": 0.9, "epsilon": 5.0, "candidates": 50} | bad
            with pytest.raises(UsageError):
                search(**asked)
    with pytest.raises(UsageError):
        best_choice(10, 100, 0.9, epsilon=5.0, candidates=50, confidence=1.0)


# --- as published ---------------------------------------------------------------------------------------


def test_the_published_correction() -> None:
    """Eq. 10 by hand: m = 1, γα = 0.05, B = 100, ε = 2: log(100/0.05) = 7.6."""
    assert correction_of(0.5, clients=1, level=0.9, epsilon=2.0, candidates=100) == 8
    assert correction_of(0.5, clients=1, level=0.9, epsilon=1.0, candidates=100) == 16


@pytest.mark.parametrize(
    ("m", "n", "epsilon"), [(10, 100, 5.0), (20, 110, 2.0), (5, 500, 1.0), (50, 20, 10.0)]
)
def test_the_published_choice_is_what_the_paper_says(m: int, n: int, epsilon: float) -> None:
    found = published_choice(m, n, 0.9, epsilon=epsilon, candidates=100)
    level = 0.9 / (1 - 0.1 * found.gamma)
    pair = CoverageLaw(clients=m, rows=n, local_rank=found.local_rank, server_rank=found.server_rank)
    assert pair.mean >= level - 1e-12
    assert found.correction == correction_of(
        found.gamma, clients=m, level=0.9, epsilon=epsilon, candidates=100
    )
    assert found.target == found.local_rank + found.correction < n
    papers = best_pair(m, n, level, rule="paper")
    if papers.local_rank + found.correction < n:
        assert found.pair == papers.pair
    # Our analysis of the same mechanism never guarantees less than the paper's.
    assert found.law.mean >= pair.mean * (1 - 0.1 * found.gamma) - 1e-10
    assert found.law.mean >= best_choice(m, n, 0.9, epsilon=epsilon, candidates=100).law.mean


def test_pairs_that_the_paper_does_not_take_are_tried_before_giving_up() -> None:
    found = published_choice(20, 110, 0.9, epsilon=2.0, candidates=100)
    assert found.pair == (94, 20)
    late = published_choice(50, 20, 0.9, epsilon=10.0, candidates=100)
    level = 0.9 / (1 - 0.1 * late.gamma)
    assert late.pair != best_pair(50, 20, level, rule="paper").pair
    assert late.target < 20


def test_few_clients_below_the_median_aim_at_the_median() -> None:
    found = published_choice(5, 2000, 0.3, epsilon=5.0, candidates=10)
    assert found.target == 1000
