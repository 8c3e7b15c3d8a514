"""The coverage of simulated federations has the law that is claimed, and at least as much where scores have ties.

Each federation draws scores, forms the threshold as clients and server would, and its coverage U is known because the
distribution of the scores is. By the Dvoretzky-Kiefer-Wolfowitz inequality with Massart's constant, the empirical
distribution of R values of U is nowhere further than sqrt(log(2/δ)/(2R)) from a right law, but with probability δ. A
right law fails one of the tests with a probability below ERROR, were the seeds not fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import ndtr

from fedassay.estimation.coverage import CoverageLaw, UnequalLaw, best_pair, best_ranks, split_ranks

FEDERATIONS = 4_000
ERROR = 1e-6
ROWS = (200, 100, 50, 20, 20, 5, 0)
LAWS: dict[str, CoverageLaw | UnequalLaw] = {
    "ours": best_pair(10, 100, 0.9),
    "the paper's": best_pair(10, 100, 0.9, rule="paper"),
    "confident": best_pair(30, 20, 0.8, confidence=0.9),
    "one row each": best_pair(60, 1, 0.9),
    "one client": best_pair(1, 60, 0.9),
    "unequal": UnequalLaw(rows=ROWS, local_ranks=split_ranks(ROWS, 0.9), server_rank=3),
    "unequal, shifted": best_ranks([9, 8, 8, 8, 8, 8, 7, 7, 7, 7], 0.9),
}
DISTANCE = math.sqrt(math.log(2 * 2 * len(LAWS) / ERROR) / (2 * FEDERATIONS))
"""For each law one test with continuous scores, and one with ties."""


def thresholds(law: CoverageLaw | UnequalLaw, draw: Callable[[tuple[int, int]], np.ndarray]) -> np.ndarray:
    """One per federation: each client's order statistic, +∞ where it has too few rows, and the server's of those."""
    if isinstance(law, CoverageLaw):
        rows, ranks = (law.rows,) * law.clients, (law.local_rank,) * law.clients
    else:
        rows, ranks = law.rows, law.local_ranks
    sent = [
        np.sort(draw((FEDERATIONS, n)), axis=1)[:, ell - 1] if ell <= n else np.full(FEDERATIONS, np.inf)
        for n, ell in zip(rows, ranks, strict=True)
    ]
    return np.sort(sent, axis=0)[law.server_rank - 1]


def coverages(law: CoverageLaw | UnequalLaw, seed: int) -> np.ndarray:
    return np.sort(ndtr(thresholds(law, np.random.default_rng(seed).standard_normal)))


def coverages_with_ties(law: CoverageLaw | UnequalLaw, seed: int, *, below: bool = False) -> np.ndarray:
    """Scores that are whole numbers from 0 to 7, equally likely; `below` leaves the threshold itself out of the set."""
    rng = np.random.default_rng(seed)
    found = thresholds(law, lambda shape: rng.integers(0, 8, shape).astype(float))
    return np.sort(np.minimum(1, (found + (0 if below else 1)) / 8))


def shortfall(law: CoverageLaw | UnequalLaw, sample: np.ndarray) -> float:
    """How much more often the coverage is at most t than the law says, for the worst t."""
    claimed = np.array([law.cdf(float(t)) for t in sample])
    return float((np.arange(1, len(sample) + 1) / len(sample) - claimed).max())


def distance(law: CoverageLaw | UnequalLaw, sample: np.ndarray) -> float:
    claimed = np.array([law.cdf(float(t)) for t in sample])
    return max(shortfall(law, sample), float((claimed - np.arange(len(sample)) / len(sample)).max()))


@pytest.mark.parametrize("name", LAWS)
def test_simulated_coverage_has_the_claimed_law(name: str) -> None:
    law = LAWS[name]
    assert distance(law, coverages(law, 0)) < DISTANCE


@pytest.mark.parametrize("name", LAWS)
def test_with_ties_coverage_is_at_least_that(name: str) -> None:
    law = LAWS[name]
    assert shortfall(law, coverages_with_ties(law, 1)) < DISTANCE


def test_a_wrong_law_is_rejected() -> None:
    sample = coverages(LAWS["ours"], 0)
    for ell, k in ((93, 4), (91, 4), (92, 5), (92, 3)):
        wrong = CoverageLaw(clients=10, rows=100, local_rank=ell, server_rank=k)
        assert distance(wrong, sample) > 2 * DISTANCE
    unequal = coverages(LAWS["unequal"], 0)
    for k in (2, 4):
        wrong_rank = UnequalLaw(rows=ROWS, local_ranks=split_ranks(ROWS, 0.9), server_rank=k)
        assert distance(wrong_rank, unequal) > 2 * DISTANCE
    average = CoverageLaw(
        clients=5, rows=78, local_rank=72, server_rank=3
    )  # the same rows, as if spread evenly
    assert distance(average, unequal) > 2 * DISTANCE


def test_a_set_without_the_threshold_is_rejected() -> None:
    law = LAWS["ours"]
    assert shortfall(law, coverages_with_ties(law, 1, below=True)) > 2 * DISTANCE
