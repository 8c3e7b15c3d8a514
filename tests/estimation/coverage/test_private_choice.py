"""The law of the coverage with private choices: what a choice may lose, and integrals against other ways to them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import betainc, expit

from fedassay.errors import UsageError
from fedassay.estimation.coverage import ChoiceLaw, CoverageLaw
from fedassay.estimation.coverage.choice import cdf_after_gain, kept_at_most, lost_at_least
from fedassay.estimation.coverage.law import mean_and_variance
from private_choices import chances, losses, published_losses

CLOSE = 1e-10


def law(m: int, n: int, t: int, k: int, candidates: int = 100, rate: float = 1.0) -> ChoiceLaw:
    return ChoiceLaw(clients=m, rows=n, target=t, server_rank=k, candidates=candidates, rate=rate)


def kept(ell: int, t: int, candidates: int, rate: float) -> float:
    """Π(ℓ), the bound of P(at least ℓ scores are up to the choice), as the page has it."""
    return 0.0 if ell > t else 1 / (1 + (candidates - 1) * math.exp(-rate * (t - ell + 1)))


def mixture(found: ChoiceLaw) -> np.ndarray:
    """P(L' = ℓ) for ℓ = 0..t."""
    at_least = [kept(ell, found.target, found.candidates, found.rate) for ell in range(1, found.target + 1)]
    return -np.diff([1.0, *at_least, 0.0])


def cdf_by_betas(found: ChoiceLaw, s: float) -> float:
    ranks, weights = np.arange(1, found.target + 1), mixture(found)
    client = weights[0] + betainc(ranks, found.rows - ranks + 1, s) @ weights[1:]
    k = found.server_rank
    return float(betainc(k, found.clients - k + 1, min(1.0, client)))


# --- what a choice may lose -----------------------------------------------------------------------------

COUNTS = st.lists(st.integers(0, 12), min_size=2, max_size=9).filter(lambda x: sum(x) > 0)


@given(COUNTS, st.data(), st.sampled_from([(1, 1), (4, 1), (1, 2)]), st.floats(0.05, 6))
@settings(max_examples=100, deadline=None)
def test_no_scores_lose_or_win_more(
    bins: list[int], data: st.DataObject, slopes: tuple[int, int], epsilon: float
) -> None:
    counts, (below, above) = np.cumsum(bins), slopes
    n, candidates, eta = int(counts[-1]), len(bins), epsilon / sum(slopes)
    t = data.draw(st.integers(1, n))
    chance = chances(losses(counts, t, below, above), eta)
    before = np.append(0, counts[:-1])
    for ell in range(1, t + 1):
        assert chance[counts >= ell].sum() >= kept(ell, t, candidates, eta * below) - 1e-12
        assert kept(ell, t, candidates, eta * below) == pytest.approx(
            1 - float(lost_at_least(t - ell + 1, candidates, eta * below)), abs=1e-12
        )
    for won in range(1, n + 2 - t):
        assert (
            chance[before >= t + won - 1].sum() <= float(lost_at_least(won, candidates, eta * above)) + 1e-12
        )


@pytest.mark.parametrize("ell", [1, 5, 9, 10])
def test_some_scores_lose_as_much(ell: int) -> None:
    """ℓ-1 scores in the first bin, the others in the last."""
    candidates, t, n, eta = 7, 10, 12, 0.4
    counts = np.array([ell - 1] * (candidates - 1) + [n])
    chance = chances(losses(counts, t, 2, 1), eta)
    assert chance[counts >= ell].sum() == pytest.approx(kept(ell, t, candidates, 2 * eta), abs=1e-14)


@pytest.mark.parametrize("slopes", [(1, 1), (1, 2), (4, 1)])
@pytest.mark.parametrize("t", [1, 2, 3])
def test_one_row_changes_no_probability_by_more_than_epsilon(t: int, slopes: tuple[int, int]) -> None:
    """All sets of three scores in four bins, and all that differ in one of them; a smaller η would not be needed."""
    epsilon, largest = 1.3, 0.0
    sets = list(itertools.combinations_with_replacement(range(4), 3))
    logs = {}
    for scores in sets:
        counts = np.searchsorted(scores, range(4), side="right")
        logs[scores] = np.log(chances(losses(counts, t, *slopes), epsilon / sum(slopes)))
    for scores in sets:
        for i, other in itertools.product(range(3), range(4)):
            neighbour = tuple(sorted((*scores[:i], other, *scores[i + 1 :])))
            largest = max(largest, float(np.abs(logs[scores] - logs[neighbour]).max()))
    assert 0.5 * epsilon < largest <= epsilon + 1e-12


def test_the_published_mechanism_loses_no_more_either() -> None:
    """With q = t/n and η = ε/2, whatever the scores are: the same bound with the rate ε/2."""
    rng, epsilon = np.random.default_rng(0), 1.0
    for _ in range(300):
        n, candidates = int(rng.integers(4, 40)), int(rng.integers(2, 12))
        counts = np.cumsum(rng.multinomial(n, rng.dirichlet(np.full(candidates, 0.3))))
        t = int(rng.integers((n + 1) // 2, n))
        chance = chances(published_losses(counts, t / n), epsilon / 2)
        for ell in range(1, t + 1):
            assert chance[counts >= ell].sum() >= kept(ell, t, candidates, epsilon / 2) - 1e-12


@given(st.integers(2, 10**6), st.floats(1e-3, 40))
def test_what_is_lost_and_what_is_kept_add_up(candidates: int, rate: float) -> None:
    d = np.arange(-2, 60)
    at_least, at_most = lost_at_least(d, candidates, rate), kept_at_most(d, candidates, rate)
    assert (np.diff(at_least) <= 0).all()
    assert (np.diff(at_most) >= 0).all()
    assert np.allclose(at_least[1:] + at_most[:-1], 1, atol=1e-12)
    assert at_least[2] == 1
    assert at_most[1] == 0


# --- the law --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "t", "candidates", "rate"),
    [(1, 1, 2, 0.5), (20, 15, 2, 0.1), (100, 97, 100, 1.0), (1000, 905, 50, 0.5), (1000, 20, 100, 0.2)],
)
def test_one_client_has_a_closed_form(n: int, t: int, candidates: int, rate: float) -> None:
    found = law(1, n, t, 1, candidates, rate)
    ranks, weights = np.arange(t + 1), mixture(found)
    mean = float(ranks @ weights) / (n + 1)
    square = float((ranks * (ranks + 1)) @ weights) / ((n + 1) * (n + 2))
    assert found.mean == pytest.approx(mean, abs=CLOSE)
    assert found.variance == pytest.approx(square - mean**2, abs=CLOSE)


@pytest.mark.parametrize(
    "setting",
    [
        (5, 1, 1, 4, 2, 0.7),
        (10, 100, 96, 5, 100, 1.0),
        (10, 100, 96, 5, 100, 0.1),
        (50, 20, 19, 40, 100, 2.0),
        (20, 1000, 905, 12, 30, 0.25),
        (3, 30, 2, 1, 10, 1.0),
        (200, 50, 47, 60, 1000, 3.0),
    ],
    ids=str,
)
def test_integrals_and_probabilities_against_sums_of_betas(setting: tuple[int, ...]) -> None:
    found = law(*setting)
    missed = quad(lambda s: cdf_by_betas(found, s), 0, 1, epsabs=1e-13, limit=500, points=[0.5, 0.8, 0.9])[0]
    square = quad(
        lambda s: 2 * (1 - s) * cdf_by_betas(found, s), 0, 1, epsabs=1e-13, limit=500, points=[0.5, 0.8, 0.9]
    )[0]
    assert found.miss == pytest.approx(missed, abs=CLOSE)
    assert found.variance == pytest.approx(square - missed**2, abs=CLOSE)
    for s in (0.0, 0.3, 0.85, 0.95, 1.0):
        assert found.cdf(s) == pytest.approx(cdf_by_betas(found, s), abs=CLOSE)
        assert found.probability_at_least(s) == pytest.approx(
            1 - cdf_by_betas(found, s) if s else 1.0, abs=CLOSE
        )
    for p in (0.01, 0.5, 0.99):
        at = found.quantile(p)
        assert found.cdf(at) == pytest.approx(p, abs=1e-9) or (at == 0 and found.cdf(0.0) >= p)


@pytest.mark.parametrize("setting", [(1, 10**5, 90_050, 1), (50, 10**4, 9020, 30)])
def test_many_rows(setting: tuple[int, int, int, int]) -> None:
    found = law(*setting, 100, 0.5)
    for s in (0.895, 0.9, 0.901):
        assert found.cdf(s) == pytest.approx(cdf_by_betas(found, s), abs=CLOSE)
    middle = found.quantile(0.5)
    assert found.mean == pytest.approx(middle, abs=3 * found.standard_deviation)


@pytest.mark.parametrize("rate", [math.inf, 2000.0])
@pytest.mark.parametrize("setting", [(1, 1, 1, 1), (10, 100, 92, 4), (50, 20, 18, 35), (100, 1000, 905, 40)])
def test_without_privacy_it_is_the_exact_law(setting: tuple[int, int, int, int], rate: float) -> None:
    m, n, t, k = setting
    exact = CoverageLaw(clients=m, rows=n, local_rank=t, server_rank=k)
    found = law(m, n, t, k, 100, rate)
    assert found.mean == pytest.approx(exact.mean, abs=CLOSE)
    assert found.standard_deviation == pytest.approx(exact.standard_deviation, abs=1e-9)
    for p in (0.1, 0.9):
        assert found.quantile(p) == pytest.approx(exact.quantile(p), abs=1e-9)
        assert found.probability_at_least(exact.quantile(p)) == pytest.approx(1 - p, abs=1e-9)


def test_more_of_anything_covers_more() -> None:
    at = {"m": 10, "n": 60, "t": 50, "k": 5, "candidates": 20, "rate": 0.5}
    start = law(**at)  # type: ignore[arg-type]
    for change in ({"t": 51}, {"k": 6}, {"rate": 0.6}, {"candidates": 10}):
        assert law(**(at | change)).mean > start.mean + 1e-4  # type: ignore[arg-type]
    assert law(**(at | {"n": 61})).mean < start.mean  # type: ignore[arg-type]


def test_the_law_has_an_atom_where_everything_may_be_lost() -> None:
    found = law(1, 3, 2, 1, 100, 0.5)
    nothing = 1 - kept(1, 2, 100, 0.5)
    assert found.cdf(0.0) == pytest.approx(nothing, abs=1e-12)
    assert found.quantile(nothing / 2) == 0
    assert (found.quantile(1.0), found.cdf(1.0), found.probability_at_least(0.0)) == (1, 1, 1)


def test_the_upper_law_is_the_mirror_of_the_lower_one() -> None:
    """Counting from the other end: P(Bin(n, s) - E >= t) = 1 - P(Bin(n, 1-s) + E >= n + 1 - t)."""
    s, t = np.linspace(0, 1, 21), np.full(21, 44)
    up = cdf_after_gain(s, 50, t, 30, 0.4)
    lower = [law(1, 50, 7, 1, 30, 0.4).cdf(1 - x) if x > 0 else 1.0 for x in s]
    assert np.allclose(up, 1 - np.array(lower), atol=CLOSE)


def test_what_is_no_law_is_refused() -> None:
    for bad, word in (
        ((10, 100, 0, 5), "target rank"),
        ((10, 100, 101, 5), "target rank"),
        ((10, 100, 90, 11), "server rank"),
        ((0, 100, 90, 1), "server rank"),
        ((10, 100, 90, 5, 1), "candidates"),
        ((10, 100, 90, 5, 100, 0.0), "rate"),
        ((10, 100, 90, 5, 100, math.nan), "rate"),
    ):
        with pytest.raises(UsageError, match=word):
            law(*bad)
    for p in (-0.1, 1.1, math.nan):
        with pytest.raises(UsageError, match="from 0 to 1"):
            law(10, 100, 90, 5).quantile(p)


def test_integrals_of_laws_with_atoms_and_steep_parts() -> None:
    def cdf(s: np.ndarray, i: np.ndarray) -> np.ndarray:
        steep = expit((s - 0.9) * 1e4)
        return np.choose(i, [np.full_like(s, 0.25), betainc(3.0, 2.0, s), steep])

    mean, variance = mean_and_variance(cdf, 3)
    assert mean[:2] == pytest.approx([0.25, 0.4], abs=1e-12)
    assert variance[:2] == pytest.approx([0.25 * 0.75, 0.04], abs=1e-12)
    assert mean[2] == pytest.approx(0.1, abs=1e-10)
    assert variance[2] == pytest.approx(math.pi**2 / 3 * 1e-8, abs=1e-11)
