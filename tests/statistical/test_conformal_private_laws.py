"""Simulated federations cover at least as much as the laws with privacy noise promise, and no less than the level.

Each federation draws scores with a known distribution, and noise or choices by the mechanism itself, so that the
coverage U of its threshold is known. By the Dvoretzky-Kiefer-Wolfowitz inequality with Massart's constant, the
empirical distribution of R values of U is nowhere more than sqrt(log(1/δ)/(2R)) above that of U, but with probability
δ; their mean is compared with the level by a normal quantile for the same δ. A right law fails one of the tests with a
probability of about ERROR, were the seeds not fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest
from scipy.special import ndtri

from fedassay.estimation.coverage import (
    ChoiceLaw,
    CoverageLaw,
    NoiseTail,
    PooledLaw,
    best_choice,
    best_pair,
    pooled_margin,
    published_choice,
)
from private_choices import chosen, losses, published_losses

FEDERATIONS = 4_000
ERROR = 1e-6
TESTS = 60
"""More than there are comparisons below."""

DISTANCE = math.sqrt(math.log(TESTS / ERROR) / (2 * FEDERATIONS))
DEVIATIONS = float(-ndtri(ERROR / TESTS))
LEVEL = 0.9


def margin_of_error(sample: np.ndarray) -> float:
    return DEVIATIONS * float(sample.std()) / math.sqrt(len(sample))


def shortfall(law: ChoiceLaw | PooledLaw, coverage: np.ndarray) -> float:
    """How much more often the coverage is at most t than the law allows, for the worst t."""
    values, counts = np.unique(coverage, return_counts=True)
    claimed = np.array([law.cdf(float(t)) for t in values])
    return float((np.cumsum(counts) / len(coverage) - claimed).max())


# --- private choices ------------------------------------------------------------------------------------

CANDIDATES = 40
Distribution = tuple[float, ...]
DISTRIBUTIONS: dict[str, Distribution] = {
    "continuous": (1 / CANDIDATES,) * CANDIDATES,
    "in the lower half": (2 / CANDIDATES,) * (CANDIDATES // 2) + (0.0,) * (CANDIDATES // 2),
    "three values": tuple([0.5, 0.3] + [0.0] * (CANDIDATES - 3) + [0.2]),
    "two values, to the disadvantage": tuple([0.89] + [0.0] * (CANDIDATES - 2) + [0.11]),
}
"""How likely a score is to be in each bin; only that matters, as the set holds all of the bin that was chosen."""

CHOICES = {
    "ours": best_choice(10, 60, LEVEL, epsilon=2.0, candidates=CANDIDATES),
    "ours, much noise": best_choice(20, 40, LEVEL, epsilon=1.0, candidates=CANDIDATES),
    "confident": best_choice(10, 60, LEVEL, epsilon=4.0, candidates=CANDIDATES, confidence=0.9),
    "one client": best_choice(1, 60, LEVEL, epsilon=2.0, candidates=CANDIDATES),
    "one row each": best_choice(60, 1, LEVEL, epsilon=12.0, candidates=CANDIDATES),
}


def coverages(
    law: ChoiceLaw, shares: Distribution, eta: float, slopes: tuple[int, int], seed: int
) -> np.ndarray:
    """U of each federation: every client chooses, the server takes the k-th smallest."""
    rng = np.random.default_rng(seed)
    counts = np.cumsum(rng.multinomial(law.rows, shares, (FEDERATIONS, law.clients)), axis=-1)
    choices = chosen(losses(counts, law.target, *slopes), eta, rng)
    threshold = np.sort(choices, axis=1)[:, law.server_rank - 1]
    return np.minimum(1.0, np.cumsum(shares))[threshold]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("name", CHOICES)
def test_private_choices_cover_what_is_promised(name: str, distribution: str) -> None:
    choice = CHOICES[name]
    eta = choice.law.rate / choice.below
    sample = coverages(choice.law, DISTRIBUTIONS[distribution], eta, (choice.below, choice.above), 0)
    assert shortfall(choice.law, sample) < DISTANCE
    assert sample.mean() > LEVEL - margin_of_error(sample)


def adversarial(law: ChoiceLaw, part: float, seed: int, slopes: tuple[int, int] = (1, 1)) -> np.ndarray:
    """Coverage where a part of the scores is in the first bin and the rest in the last: the law is nearly reached."""
    shares = (part, *(0.0,) * (law.candidates - 2), 1 - part)
    return coverages(law, shares, law.rate, slopes, seed)


def test_the_law_is_reached_and_twice_the_rate_is_rejected() -> None:
    law = ChoiceLaw(clients=1, rows=60, target=58, server_rank=1, candidates=40, rate=1.0)
    sample = adversarial(law, 0.85, 1)
    assert abs((sample <= 0.85).mean() - law.cdf(0.85)) < DISTANCE
    wrong = ChoiceLaw(clients=1, rows=60, target=58, server_rank=1, candidates=40, rate=2.0)
    assert shortfall(wrong, sample) > 2 * DISTANCE


def test_a_target_without_correction_is_rejected() -> None:
    """The pair that would do without privacy."""
    pair = best_pair(10, 60, LEVEL)
    law = ChoiceLaw(
        clients=10, rows=60, target=pair.local_rank, server_rank=pair.server_rank, candidates=40, rate=0.5
    )
    sample = adversarial(law, 0.85, 2)
    assert sample.mean() < LEVEL - 2 * margin_of_error(sample)
    claimed = CoverageLaw(clients=10, rows=60, local_rank=pair.local_rank, server_rank=pair.server_rank)
    values, counts = np.unique(sample, return_counts=True)
    excess = np.cumsum(counts) / len(sample) - np.array([claimed.cdf(float(t)) for t in values])
    assert excess.max() > 2 * DISTANCE


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_published_choice_covers_what_our_law_says(distribution: str) -> None:
    found = published_choice(10, 60, LEVEL, epsilon=5.0, candidates=CANDIDATES)
    rng, shares = np.random.default_rng(3), DISTRIBUTIONS[distribution]
    counts = np.cumsum(rng.multinomial(60, shares, (FEDERATIONS, 10)), axis=-1)
    choices = chosen(published_losses(counts, found.target / 60), 2.5, rng)
    sample = np.minimum(1.0, np.cumsum(shares))[np.sort(choices, axis=1)[:, found.server_rank - 1]]
    assert shortfall(found.law, sample) < DISTANCE
    assert sample.mean() > LEVEL - margin_of_error(sample)


# --- noisy counts ---------------------------------------------------------------------------------------

ROWS, POINTS = 500, 128
MIXED = np.where(np.tri(POINTS, dtype=bool), 1 - LEVEL, -LEVEL)[:-1]
"""Of the count of each bin in T_i, for the points that are not the last."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Discrete Laplace noise in each bin, so that T_i adds it up, or in each T_i itself."""

    in_bins: bool
    scale: float

    @cached_property
    def tail(self) -> NoiseTail:
        one = 0.5 / math.sinh(0.5 / self.scale) ** 2
        variances = one * (MIXED**2).sum(axis=1) if self.in_bins else np.array([one])
        return NoiseTail(
            law="discrete-laplace",
            scale=self.scale,
            variance=float(variances.max()),
            reach=LEVEL if self.in_bins else 1.0,
            least_variance=float(variances.min()),
        )

    def noisy(self, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """All T_i but the last, for each row of counts."""
        # The difference of two geometric draws is a discrete Laplace one.
        p = 1 - math.exp(-1 / self.scale)
        shape = counts.shape if self.in_bins else (len(counts), POINTS - 1)
        noise = rng.geometric(p, shape) - rng.geometric(p, shape)
        return (counts + noise) @ MIXED.T if self.in_bins else counts @ MIXED.T + noise


KINDS = {"in bins": Counts(in_bins=True, scale=1.5), "in points": Counts(in_bins=False, scale=12.0)}
SHARES = {
    "continuous": np.full(POINTS, 1 / POINTS),
    "in a few bins": np.concatenate([np.full(8, 0.11), np.zeros(POINTS - 9), [0.12]]),
    "two values, to the disadvantage": np.concatenate([np.zeros(POINTS - 2), [0.885, 0.115]]),
    "late": np.concatenate([np.zeros(POINTS - 8), np.full(8, 1 / 8)]),
}


def last(below: np.ndarray) -> np.ndarray:
    """The point after the last one that is below the margin."""
    points = below.shape[1]
    return np.where(below.any(axis=1), points - np.argmax(below[:, ::-1], axis=1), 0)


def first(below: np.ndarray) -> np.ndarray:
    """The first point that is not below it: what is usually done."""
    return np.where(below.all(axis=1), below.shape[1], np.argmin(below, axis=1))


def pooled_coverages(
    kind: Counts, shares: np.ndarray, margin: float, rule: Callable[[np.ndarray], np.ndarray], seed: int
) -> np.ndarray:
    rng = np.random.default_rng(seed)
    noisy = kind.noisy(rng.multinomial(ROWS, shares, FEDERATIONS), rng)
    return np.minimum(1.0, np.cumsum(shares))[rule(noisy < margin - 1e-9)]


@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize("kind", KINDS)
def test_noisy_counts_cover_what_is_promised(kind: str, name: str) -> None:
    tail = KINDS[kind].tail
    margin = pooled_margin(LEVEL, tail, ROWS)
    law = PooledLaw(rows=ROWS, level=LEVEL, margin=margin, tail=tail)
    sample = pooled_coverages(KINDS[kind], SHARES[name], margin, last, 0)
    assert law.mean >= LEVEL
    assert shortfall(law, sample) < DISTANCE
    assert sample.mean() > LEVEL - margin_of_error(sample)


@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize("kind", KINDS)
def test_noisy_counts_cover_with_confidence(kind: str, name: str) -> None:
    margin = pooled_margin(LEVEL, KINDS[kind].tail, ROWS, confidence=0.9, most_rows=ROWS)
    sample = pooled_coverages(KINDS[kind], SHARES[name], margin, last, 1)
    assert (sample >= LEVEL).mean() > 0.9 - DISTANCE


def test_the_first_crossing_without_a_margin_is_rejected() -> None:
    sample = pooled_coverages(KINDS["in points"], SHARES["continuous"], LEVEL, first, 2)
    assert sample.mean() < LEVEL - 2 * margin_of_error(sample)
    law = PooledLaw(rows=ROWS, level=LEVEL, margin=LEVEL, tail=KINDS["in points"].tail)
    assert shortfall(law, sample) > 2 * DISTANCE


@pytest.mark.parametrize(("kind", "at"), [("in bins", 0), ("in points", POINTS - 2)])
def test_a_law_without_noise_or_with_a_quarter_of_it_is_rejected(kind: str, at: int) -> None:
    """Rows on both sides of one point only, whose noise has the largest variance: the law is nearly reached."""
    tail, shares = KINDS[kind].tail, np.zeros(POINTS)
    shares[at : at + 2] = 0.86, 0.14
    sample = pooled_coverages(KINDS[kind], shares, LEVEL, last, 3)
    quarter = NoiseTail(law=tail.law, scale=tail.scale / 4, variance=tail.variance / 16, reach=tail.reach)
    for wrong in (NoiseTail(law="none"), quarter):
        law = PooledLaw(rows=ROWS, level=LEVEL, margin=LEVEL, tail=wrong)
        assert shortfall(law, sample) > DISTANCE
    assert shortfall(PooledLaw(rows=ROWS, level=LEVEL, margin=LEVEL, tail=tail), sample) < DISTANCE


@pytest.mark.parametrize("kind", KINDS)
def test_clients_that_differ_are_covered_on_average(kind: str) -> None:
    """Partial exchangeability: rows of a client are alike, and a new row is client k's as often as Lu says."""
    rng, sizes = np.random.default_rng(4), np.array([300, 150, 50])
    shares = np.zeros((3, POINTS))
    shares[0, :20], shares[1, 40:80], shares[2, 100:] = 1 / 20, 1 / 40, 1 / 28
    tail = KINDS[kind].tail
    margin = pooled_margin(LEVEL, tail, ROWS, test_points=3)
    counts = sum(rng.multinomial(n, p, FEDERATIONS) for n, p in zip(sizes, shares, strict=True))
    threshold = last(KINDS[kind].noisy(np.asarray(counts), rng) < margin - 1e-9)
    each = np.minimum(1.0, np.cumsum(shares, axis=1))[:, threshold]
    sample = (sizes + 1) @ each / (sizes.sum() + 3)
    law = PooledLaw(rows=ROWS, level=LEVEL, margin=margin, tail=tail, test_points=3)
    assert law.mean >= LEVEL
    assert sample.mean() > law.mean - margin_of_error(sample)
