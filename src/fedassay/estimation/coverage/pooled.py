"""How well a quantile of all rows together covers, if it is read off counts with noise.

At each of some public points i one knows a noisy T_i = C_i - (1-α)N, C_i the rows up to the point and N all rows. The
threshold is the point after the *last* one whose noisy T_i is below the margin t0; the last point of all means +∞. If
the threshold is below the ℓ-th smallest score, then noise has lifted one given point, the last with fewer than ℓ rows:
from at most ℓ-1-(1-α)N to t0 or more. So no bound over all points at once is needed, and

    P(at least ℓ rows are up to the threshold) >= P(L' >= ℓ) := 1 - above(t0 + (1-α)N - ℓ + 1),   ℓ = 1..N+1,

with L' independent of the scores: the coverage is at least that of a Beta(L', N+1-L') variable.

Where clients randomise their answers (`unary`), noise and rows are one sum, and P(U < u) <= above(t0 - N(u-(1-α))).

Reference: docs/explanation/private-conformal.md, with proofs. Partial exchangeability: Lu, Yu, Karimireddy, Jordan and
Raskar, "Federated Conformal Predictors for Distributed Uncertainty Quantification", 2023.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc

from fedassay.errors import UsageError
from fedassay.estimation.coverage.noise_tail import Floats, NoiseTail
from fedassay.estimation.coverage.panels import Ints

ROUNDING = 1e-9
"""A noisy T_i counts as below t0 if it is so by more than this: (1-α)N is rounded, and that must not cost a rank."""

MOST_RANKS = 4000
"""So many ranks are looked at one by one; if noise spreads over more, neighbours are taken together."""


@dataclass(frozen=True, kw_only=True)
class PooledLaw:
    """A lower bound of the law of the coverage U of the threshold after the last point below the margin.

    Guarantee: for exchangeable scores of all rows and the new one, P(the new row is covered) >= `mean`; if they are
    independent with one distribution, continuous or not, U is stochastically at least as large as this law. The set
    holds what equals the threshold.

    Parameters
    ----------
    rows : N.
    level : 1-α, as in T_i.
    margin : t0.
    tail : the noise of a point. For `unary`, rows are independent draws of which each client has at most one.
    test_points : K, for rows that are exchangeable within each of K clients only, and a new row that is one of client
        k with probability (n_k + 1)/(N + K); the mean is then what is guaranteed, and nothing else.

    Examples
    --------
    >>> law = PooledLaw(rows=99, level=0.9, margin=0.9, tail=NoiseTail(law="none"))
    >>> round(law.mean, 12), round(law.probability_at_least(0.9), 4)
    (0.9, 0.5355)
    """

    rows: int
    level: float
    margin: float
    tail: NoiseTail
    test_points: int = 1

    def __post_init__(self) -> None:
        if self.rows < 1 or not 0 < self.level < 1 or self.test_points < 1:
            raise UsageError(
                f"pooled law: got {self.rows} rows, level {self.level:g} and {self.test_points} test points, expected "
                "at least one row and test point, and a level between 0 and 1."
            )

    @property
    def _middle(self) -> float:
        """t0 + (1-α)N, less what rounding can make of it."""
        return self.margin + self.level * self.rows - 2 * ROUNDING

    @cached_property
    def _ranks(self) -> tuple[Ints, Floats]:
        """Ranks ℓ, and P(L' = ℓ); what is left out below has rank 0, and no rank is above N+1."""
        middle = self._middle + 1
        reach = self.tail.furthest + 2
        first = min(self.rows + 1, max(1, math.floor(middle - reach)))
        last = min(self.rows + 1, max(1, math.ceil(middle + reach)))
        ranks = np.arange(first, last + 1)
        at_least = 1 - self.tail.above(middle - ranks)
        weights = at_least - np.append(at_least[1:], 0.0)
        return np.append(0, ranks), np.append(1 - at_least[0], weights)

    @cached_property
    def _few_ranks(self) -> tuple[Ints, Floats]:
        """The same with at most `MOST_RANKS` of them, by counting a rank as the lowest of its group."""
        ranks, weights = self._ranks
        group = -(-len(ranks) // MOST_RANKS)
        starts = np.arange(0, len(ranks), group)
        return ranks[starts], np.add.reduceat(weights, starts)

    @cached_property
    def miss(self) -> float:
        """1 - mean."""
        if not self.tail.symmetric:
            return self._reported(1)
        ranks, weights = self._ranks
        missed = np.where(ranks > self.rows, 0, self.rows + self.test_points - ranks)
        return float(missed @ weights) / (self.rows + self.test_points)

    @property
    def mean(self) -> float:
        """At least this part of new rows is covered."""
        return 1 - self.miss

    @cached_property
    def variance(self) -> float:
        """That of the law, which is not a bound of Var U."""
        self._only_if_conditional()
        if not self.tail.symmetric:
            return max(0.0, self._reported(2) - self.miss**2)
        ranks, weights = self._ranks
        left = self.rows + 1 - ranks
        square = float((left * (left + 1.0)) @ weights) / ((self.rows + 1) * (self.rows + 2))
        return max(0.0, square - self.miss**2)

    @property
    def standard_deviation(self) -> float:
        """The root of `variance`."""
        return math.sqrt(self.variance)

    def cdf(self, t: float) -> float:
        """P(U <= t) is at most this."""
        self._only_if_conditional()
        if t >= 1:
            return 1.0
        t = max(0.0, t)
        if not self.tail.symmetric:
            return float(self.tail.above(self._middle - self.rows * t))
        ranks, weights = self._few_ranks
        inside = (ranks > 0) & (ranks <= self.rows)
        some = float(betainc(ranks[inside], self.rows + 1 - ranks[inside], t) @ weights[inside])
        return min(1.0, some + float(weights[ranks == 0].sum()))

    def probability_at_least(self, level: float) -> float:
        """P(U >= level) is at least this: the training-conditional guarantee."""
        self._only_if_conditional()
        return 1.0 if level <= 0 else float(level <= 1) * (1 - self.cdf(min(level, math.nextafter(1, 0))))

    def quantile(self, p: float) -> float:
        """At least this is reached with probability 1 - p."""
        if not 0 <= p <= 1:
            raise UsageError(f"probability: got {p:g}, expected a number from 0 to 1.")
        if p <= self.cdf(0.0):
            return 0.0
        last = math.nextafter(1, 0)
        if p >= self.cdf(last):
            return 1.0
        if not self.tail.symmetric:
            return max(0.0, self.level + (self.margin - self.tail.reach_of(p)) / self.rows)
        return float(brentq(lambda s: self.cdf(s) - p, 0.0, last, xtol=1e-15, rtol=1e-14))

    def _reported(self, power: int) -> float:
        """E(1-U)^power of the law with reports: the integral of power·(1-u)^(power-1)·P(U <= u) over u."""
        N, middle = self.rows, self._middle
        if power == 1:
            return min(1.0, (self.tail.integral(middle - N) - self.tail.integral(middle)) / N)
        # The bound is 1 from u = middle/N on; below, one cell for each of its knots.
        first = min(1.0, max(0.0, middle / N))
        x = np.linspace(max(0.0, middle - N), min(middle, self.tail.furthest), 20_001)
        x = (x[1:] + x[:-1]) / 2
        rest = 2 * (1 - (middle - x) / N) * self.tail.above(x)
        width = max(0.0, min(middle, self.tail.furthest) - max(0.0, middle - N))
        return (1 - first) ** 2 + float(rest.mean()) * width / N

    def _only_if_conditional(self) -> None:
        if self.test_points > 1:
            raise UsageError(
                f"coverage law: got {self.test_points} clients whose rows are exchangeable within a client only, "
                "expected 1; only the mean is guaranteed then."
            )
