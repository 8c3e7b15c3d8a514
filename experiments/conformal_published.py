"""FedCP²-QQ exactly as published (Algorithms 2 and 3 of the paper), and our choices in the same form, to be simulated.

The library's ``qq-paper`` has the published ranks, rounded up, but spends ε by the range of losses; the paper spends it
by their sensitivity, which gives less accuracy for the same ε. To show what was published, it is written here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.common import Floats
from fedassay.errors import DataError
from fedassay.estimation.coverage import CoverageLaw, best_pair
from fedassay.estimation.coverage.best_choice import best_choice

PRIVATE_PUBLISHED, PRIVATE_OURS = "as published", "ours"
GAMMAS = tuple(np.geomspace(0.001, 0.99, 120).tolist())
"""The grid of γ; the paper does not give its own."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Choosing(ABC):
    """What clients with so many `rows` each choose, and the server takes: the choice of candidate b has a weight."""

    target: float
    server_rank: int
    rows: int

    def aimed(self, clients: int) -> float:
        """M at the ranks that are aimed at: the coverage if no choice lost or won a rank."""
        law = CoverageLaw(
            clients=clients,
            rows=self.rows,
            local_rank=math.ceil(self.target),
            server_rank=self.server_rank,
        )
        return law.mean

    @abstractmethod
    def log_weights(self, before: Ints, up_to: Ints) -> Floats:
        """From the number of scores below each candidate, and up to it."""

    def chosen(self, counts: Ints, rng: np.random.Generator) -> Ints:
        """The number of the candidate that each client (a row of `counts`, its scores per candidate) chooses."""
        up_to = np.cumsum(counts, axis=1)
        weights = self.log_weights(up_to - counts, up_to)
        # The largest of weights with Gumbel noise is drawn with probability exp(weight), scaled to one.
        return np.asarray(np.argmax(weights + rng.gumbel(size=weights.shape), axis=1))


@dataclass(frozen=True, kw_only=True)
class Published(Choosing):
    """Algorithm 2: w = max(#{S < e}/q, #{S > e}/(1-q)), and P(e) ∝ exp(-εw/(2Δ)) with Δ = 1/(1-q) for q >= 1/2."""

    epsilon: float

    @property
    def q(self) -> float:
        """Algorithm 3, with the misprint of its line corrected."""
        return max(self.target / self.rows, 0.5)

    def log_weights(self, before: Ints, up_to: Ints) -> Floats:
        """-εw/(2Δ)."""
        found: Floats = -self.epsilon / 2 * np.maximum(before * (1 - self.q) / self.q, self.rows - up_to)
        return found


@dataclass(frozen=True, kw_only=True)
class Ours(Choosing):
    """As `fedassay.summaries.local_quantiles` has it: η·below for each rank missing, η·above for each one too many."""

    below: float
    above: float

    def log_weights(self, before: Ints, up_to: Ints) -> Floats:
        """-η·loss."""
        found: Floats = -self.below * np.maximum(0, self.target - up_to) - self.above * np.maximum(
            0, before - self.target + 1
        )
        return found


@lru_cache(maxsize=4096)
def published_choosing(
    clients: int, rows: int, level: float, *, epsilon: float, candidates: int
) -> Published | None:
    """Algorithm 3 with the γ of the smallest M(ℓ_γ + ℓ_cor, k_γ); None if ℓ_γ + ℓ_cor is below n for no γ.

    ℓ_cor is not rounded, as in the paper: Algorithm 2 takes any q. (The library rounds up.)
    """
    found = []
    for gamma in GAMMAS:
        missed = gamma * (1 - level)
        pair = _papers_pair(clients, rows, level / (1 - missed))
        correction = 2 / epsilon * math.log(candidates / -math.expm1(math.log1p(-missed) / clients))
        if pair is None or pair[0] + correction >= rows:
            continue
        choosing = Published(target=pair[0] + correction, server_rank=pair[1], rows=rows, epsilon=epsilon)
        found.append((choosing.aimed(clients), choosing))
    return min(found, key=lambda one: (one[0], one[1].target))[1] if found else None


@lru_cache(maxsize=1 << 16)
def _papers_pair(clients: int, rows: int, level: float) -> tuple[int, int] | None:
    try:
        return best_pair(clients, rows, level, rule="paper").pair
    except DataError:
        return None


@lru_cache(maxsize=4096)
def best_choosing(clients: int, rows: int, level: float, *, epsilon: float, candidates: int) -> Ours | None:
    """Ours; None if nothing gives the level."""
    try:
        found = best_choice(clients, rows, level, epsilon=epsilon, candidates=candidates)
    except DataError:
        return None
    eta = epsilon / (found.below + found.above)
    return Ours(
        target=found.target,
        server_rank=found.server_rank,
        rows=rows,
        below=eta * found.below,
        above=eta * found.above,
    )


def uniform_counts(clients: int, rows: int, candidates: int, rng: np.random.Generator) -> Ints:
    """For each client, how many of its scores are up to each candidate b/B and above the one before."""
    return rng.multinomial(rows, np.full(candidates, 1 / candidates), size=clients)


def counts_of(scores: Floats, clients: int, candidates: Floats) -> Ints:
    """The same for real scores, which are dealt to clients in their order; none is above the last candidate."""
    places = np.searchsorted(candidates, scores).reshape(clients, -1)
    return np.stack([np.bincount(place, minlength=len(candidates)) for place in places])


def fedcp2(
    scores: Floats, clients: int, *, level: float, epsilon: float, bins: int, rng: np.random.Generator
) -> tuple[float, dict[str, Any]]:
    """The threshold of FedCP²-QQ as in Appendix B.2: candidates b·S_max/B, S_max the largest score (not private).

    Negative scores count as the first candidate. If no γ works, the set holds everything.
    """
    choosing = published_choosing(clients, len(scores) // clients, level, epsilon=epsilon, candidates=bins)
    if choosing is None:
        return np.inf, {}
    candidates = np.linspace(0.0, scores.max(), bins + 1)[1:]
    chosen = choosing.chosen(counts_of(scores, clients, candidates), rng)
    details = {"target": choosing.target, "server_rank": choosing.server_rank}
    return float(candidates[np.sort(chosen)[choosing.server_rank - 1]]), details
