"""How well a quantile of quantiles covers where each client chooses its quantile with differential privacy.

Each of m clients has n scores and chooses one of B public candidates, the last of which is +∞, by the exponential
mechanism: losses grow by `below` with each rank that a candidate falls short of the t-th smallest score, and by `above`
with each rank beyond it, and η = ε/(below + above). The server takes the k-th smallest of what it got. Then

    G(s) = P(Bin(n, s) + D >= t),     P(D >= d) = (B-1)e^(-rd)/(1 + (B-1)e^(-rd)) for d >= 1,    r = η·below
    F(s) = P(Bin(m, G(s)) >= k)

bounds the law of the coverage U from above, whatever the scores' distribution is: D is the number of ranks that a
choice may lose. Neither a union bound over clients nor a parameter γ is needed. For ε → ∞ this is `CoverageLaw`.

Reference: docs/explanation/private-conformal.md. Symbols are those of `law.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc, betaincc

from fedassay.errors import UsageError
from fedassay.estimation.coverage.chosen import Floats, Ints, cdf_after_loss
from fedassay.estimation.coverage.law import FromMoments
from fedassay.estimation.coverage.panels import mean_and_variance


@dataclass(frozen=True, kw_only=True)
class ChoiceLaw(FromMoments):
    """A lower bound of the law of the coverage U, if m clients choose their t-th smallest of n scores privately.

    Guarantee: for independent scores with one distribution, continuous or not, U is stochastically at least as large
    as a variable with this law, provided that the set holds what equals the threshold. All numbers are within 1e-10,
    for up to 10^5 rows.

    Assumption: a choice whose losses grow by η·below = `rate` with each rank below the target, among `candidates` of
    which one is +∞; a client that has fewer than n scores fills up with +∞ (which only raises U).

    Edge cases: `rate` may be infinite, which is `CoverageLaw`. One client and one row are allowed.

    Examples
    --------
    >>> law = ChoiceLaw(clients=10, rows=100, target=96, server_rank=5, candidates=100, rate=1.0)
    >>> round(law.mean, 4), round(law.standard_deviation, 4), round(law.probability_at_least(0.9), 3)
    (0.9084, 0.0132, 0.746)
    >>> exact = ChoiceLaw(clients=10, rows=100, target=92, server_rank=4, candidates=100, rate=np.inf)
    >>> round(exact.mean, 4)
    0.9023
    """

    clients: int
    rows: int
    target: int
    server_rank: int
    candidates: int
    rate: float

    def __post_init__(self) -> None:
        for what, rank, among in (
            ("target rank", self.target, self.rows),
            ("server rank", self.server_rank, self.clients),
        ):
            if among < 1 or not 1 <= rank <= among:
                raise UsageError(
                    f"{what}: got {rank} of {among}, expected a number from 1 to {max(1, among)}."
                )
        if self.candidates < 2 or not self.rate > 0:
            raise UsageError(
                f"private choice: got {self.candidates} candidates and a rate of {self.rate:.3g}, expected at least "
                "two and a rate above 0."
            )

    @property
    def pair(self) -> tuple[int, int]:
        """(t, k)."""
        return self.target, self.server_rank

    @cached_property
    def _mirrored(self) -> tuple[float, float]:
        t, k = np.array([self.target]), np.array([self.server_rank])
        miss, variance = lowest_moments(self.clients, self.rows, t, k, self.candidates, self.rate)
        return float(miss[0]), float(variance[0])

    def cdf(self, t: float) -> float:
        """F(t): P(U <= t) is at most this."""
        return 1.0 if t >= 1 else float(betainc(self.server_rank, self._other_end, self._client(t)))

    def probability_at_least(self, level: float) -> float:
        """P(U >= level) is at least this: the training-conditional guarantee."""
        if level <= 0:
            return 1.0
        if level >= 1:
            return 0.0
        return float(betaincc(self.server_rank, self._other_end, self._client(level)))

    def quantile(self, p: float) -> float:
        """F^{-1}(p): at least this is reached with probability 1 - p. Zero where the law has its atom."""
        if not 0 <= p <= 1:
            raise UsageError(f"probability: got {p:g}, expected a number from 0 to 1.")
        if p <= self.cdf(0.0):
            return 0.0
        if p == 1:
            return 1.0
        return float(brentq(lambda s: self.cdf(s) - p, 0.0, 1.0, xtol=1e-15, rtol=1e-14))

    @property
    def _other_end(self) -> int:
        return self.clients - self.server_rank + 1

    def _client(self, s: float) -> float:
        at = np.array([min(1.0, max(0.0, s))])
        return float(cdf_after_loss(at, self.rows, np.array([self.target]), self.candidates, self.rate)[0])


def lowest_moments(
    clients: int, rows: int, targets: Ints, server_ranks: Ints, candidates: int, rate: float
) -> tuple[Floats, Floats]:
    """The largest miscoverage, and its variance, for vectors of pairs (t, k)."""
    k = server_ranks

    def cdf(s: Floats, i: Ints) -> Floats:
        found: Floats = betainc(
            k[i], clients - k[i] + 1, cdf_after_loss(s, rows, targets[i], candidates, rate)
        )
        return found

    return mean_and_variance(cdf, len(k))
