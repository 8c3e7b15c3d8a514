"""FedCP²-QQ as it was published: a correction of the rank by a union bound over clients, and a parameter γ.

A pair (ℓ, k) that covers (1-α)/(1-γα) without privacy is taken, and clients are asked for the rank ℓ + ℓ_cor, where

    ℓ_cor = ⌈(2/ε)·log(B/(1 - (1-γα)^{1/m}))⌉,

so that all of them choose at least their ℓ-th smallest score with probability 1-γα. γ comes from a search over a grid,
which looks at public numbers only: the smallest M(ℓ + ℓ_cor, k). The line of Algorithm 3 that is garbled in print reads
q = max((ℓ + ℓ_cor)/n, 1/2). If the rank does not fit (Lemma C.4 needs q < 1), we try the other pairs that cover enough
before giving up; the paper does not state what to do.

Reference: Humbert, Le Bars, Bellet and Arlot, 2023, Section 4, Algorithms 2 and 3, Theorem 4.1, Appendix C.4.
`best_choice` is what we propose instead; docs/explanation/private-conformal.md compares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fedassay.errors import DataError, UsageError
from fedassay.estimation.coverage.choice import ChoiceLaw, enough_epsilon, enough_rows, would_do
from fedassay.estimation.coverage.law import largest_miss, mirrored_moments
from fedassay.estimation.coverage.pairs import _Search, best_of, best_pair, check_request, scores_needed, told

GAMMAS = tuple(np.geomspace(0.001, 0.9, 40).round(4).tolist())
"""Grid that γ comes from."""


@dataclass(frozen=True, kw_only=True)
class PublishedChoice:
    """Choice that clients are to make and rank that the server is to take, by the published rule.

    Parameters
    ----------
    local_rank, server_rank : (ℓ, k), which would cover (1-α)/(1-γα) without privacy.
    gamma : γ.
    correction : ℓ_cor.
    target : ℓ + ℓ_cor, which clients aim at; at least n/2. Target/n is the quantile q of Algorithm 2, whose losses,
        times 1-q, are 1 per rank below the target and (1-q)/q per rank above, with η = ε/2.
    law : the true guarantee, by our analysis of the same mechanism; its mean is never less than the level.
    """

    local_rank: int
    server_rank: int
    gamma: float
    correction: int
    target: int
    law: ChoiceLaw

    @property
    def pair(self) -> tuple[int, int]:
        """Pair (ℓ, k)."""
        return self.local_rank, self.server_rank


def correction_of(gamma: float, *, clients: int, level: float, epsilon: float, candidates: int) -> int:
    """Return ℓ_cor of the paper's Eq. 10, rounded up.

    Examples
    --------
    >>> correction_of(0.5, clients=20, level=0.9, epsilon=2.0, candidates=100)
    11
    """
    missed = -math.expm1(math.log1p(-gamma * (1 - level)) / clients)
    return math.ceil(2 / epsilon * math.log(candidates / missed))


@lru_cache(maxsize=64)
def published_choice(
    clients: int, rows: int, level: float, *, epsilon: float, candidates: int
) -> PublishedChoice:
    """Find the published choice.

    Guarantee: P(the new row is covered) >= M(ℓ, k)·(1-γα) >= level (Theorem 4.1), for any distribution of the scores.

    Raises `DataError` if no pair fits, with the rows that would be enough at this ε, and the ε that would be enough
    with these rows.

    Examples
    --------
    >>> found = published_choice(10, 100, 0.9, epsilon=5.0, candidates=100)
    >>> found.pair, found.correction, found.target, round(found.law.mean, 4)
    ((88, 9), 5, 93, 0.9363)
    """
    check_request(level, rule="paper", confidence=None)
    if clients < 1 or rows < 1 or candidates < 2 or not epsilon > 0:
        raise UsageError(
            f"published choice: got {clients} clients with {rows} rows, {candidates} candidates and ε = {epsilon:.3g}, "
            "expected at least one client and row, two candidates, and an ε above 0."
        )
    ask = _Ask(m=clients, n=rows, level=level, epsilon=epsilon, candidates=candidates)
    found = ask.least(ask.papers_pairs()) or ask.least(ask.other_pairs())
    if not found:
        raise DataError(_refusal(ask))
    ell, k, gamma, correction = found
    target = max(ell + correction, -(-rows // 2))
    law = ChoiceLaw(
        clients=clients, rows=rows, target=target, server_rank=k, candidates=candidates, rate=epsilon / 2
    )
    return PublishedChoice(
        local_rank=ell, server_rank=k, gamma=gamma, correction=correction, target=target, law=law
    )


_Found = tuple[int, int, float, int]
"""ℓ, k, γ and ℓ_cor."""


@dataclass(frozen=True, kw_only=True)
class _Ask:
    """Request for the published choice; finds which pairs fit: ℓ + ℓ_cor < n."""

    m: int
    n: int
    level: float
    epsilon: float
    candidates: int

    def papers_pairs(self) -> Iterator[_Found]:
        """Yield for each γ the pair with the smallest M, if it fits."""
        for gamma, level, correction in self._gammas():
            pair = best_pair(self.m, self.n, level, rule="paper")
            if pair.local_rank + correction < self.n:
                yield *pair.pair, gamma, correction

    def other_pairs(self) -> Iterator[_Found]:
        """Yield all pairs that fit, cover enough and cannot be lowered, for each γ."""
        for gamma, level, correction in self._gammas():
            ell, k = _Search(m=self.m, n=self.n, level=level, confidence=None).corners()
            fits = ell + correction < self.n
            for pair in zip(ell[fits].tolist(), k[fits].tolist(), strict=True):
                yield *pair, gamma, correction

    def least(self, pairs: Iterable[_Found]) -> _Found | None:
        """Return the pair with the smallest compensation M(ℓ + ℓ_cor, k)."""
        found = list(pairs)
        if not found:
            return None
        ell, k, _, correction = (np.array(x) for x in zip(*found, strict=True))
        moments = mirrored_moments(self.m, self.n, ell + correction, k)
        return found[best_of(moments.mean, moments.variance, self.level, "paper")]

    def possible(self) -> bool:
        """Return whether any pair fits: the largest ranks that may, n-1-ℓ_cor and m, cover the most."""
        asked = [
            (self.n - 1 - correction, level)
            for _, level, correction in self._gammas()
            if correction < self.n - 1
        ]
        if not asked:
            return False
        ell, level = (np.array(x) for x in zip(*asked, strict=True))
        miss = mirrored_moments(self.m, self.n, ell, self.m).mean
        return any(miss <= [largest_miss(x) for x in level])

    def _gammas(self) -> list[tuple[float, float, int]]:
        """Return γ, (1-α)/(1-γα) and ℓ_cor, where there are rows enough for that level."""
        found = []
        for gamma in GAMMAS:
            level = self.level / (1 - gamma * (1 - self.level))
            correction = correction_of(
                gamma, clients=self.m, level=self.level, epsilon=self.epsilon, candidates=self.candidates
            )
            if correction < self.n and self.m * self.n >= scores_needed(level):
                found.append((gamma, level, correction))
        return found


def _refusal(ask: _Ask) -> str:
    enough = would_do(
        enough_rows(lambda n: replace(ask, n=n).possible(), ask.n),
        enough_epsilon(lambda value: replace(ask, epsilon=value).possible(), ask.epsilon),
    )
    return (
        f"{told(ask.level, None)} by the published rule at ε = {ask.epsilon:.3g}: got {ask.m} clients with {ask.n} "
        f"rows each and {ask.candidates} candidates, {enough}; add rows, raise ε, or use qq, which needs fewer."
    )
