"""Coverage of a quantile of all rows together, if it is read off counts with noise.

At each of some public points i, a noisy T_i = C_i - (1-α)N is known, C_i the rows up to the point and N all rows. The
threshold is the point after the *last* one whose noisy T_i is below the margin t0; the last point of all means +∞. If
the threshold is below the ℓ-th smallest score, then noise has lifted one given point, the last with fewer than ℓ rows:
from at most ℓ-1-(1-α)N to t0 or more. So no bound over all points at once is needed, and

    P(at least ℓ rows are up to the threshold) >= P(L' >= ℓ) := 1 - above(t0 + (1-α)N - ℓ + 1),   ℓ = 1..N+1,

with L' independent of the scores: the coverage is at least that of a Beta(L', N+1-L') variable.

Where clients randomise their answers (`unary`), noise and rows are one sum, and P(U < u) <= above(t0 - N(u-(1-α))).

Reference: docs/explanation/private-conformal.md, with proofs. Partial exchangeability: Lu, Yu, Karimireddy, Jordan and
Raskar, "Federated Conformal Predictors for Distributed Uncertainty Quantification", 2023.

The margin that makes a quantile of noisy counts cover enough, whatever the number of rows turns out to be.

Let y = t0 + (1-α)N and f = y - ⌈y⌉ + 1, a number in (0, 1]. As long as t0 <= αN, the bound of `pooled.py` is met if

    t0 >= (1-α)K + f - 1 + Σ_{i>=0} above(f+i) - Σ_{i>=1} (1 - above(f-i)),

the second sum over ranks up to N+1. N enters through f, and through how far the second sum goes: with the largest
right-hand side over f, and the fewest rows, t0 is enough for all numbers of rows from there on. Fewer than t0/α rows
are a matter of their own: there the sum of the bound is looked at directly, for ranges of N. Without noise t0 = (1-α)K
is split conformal prediction, ⌈(1-α)(N+K)⌉. Proofs: docs/explanation/private-conformal.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc

from fedassay.errors import DataError, UsageError
from fedassay.estimation.coverage.law import CoverageOfThreshold, checked_level, largest_miss, smallest_enough
from fedassay.estimation.coverage.noise_tail import NoiseTail
from fedassay.protocol.arrays import AnyFloats, Ints

ROUNDING = 1e-9
"""Least distance of a noisy T_i that counts as below t0: (1-α)N is rounded, and that must not cost a rank."""

MOST_RANKS = 4000
"""Number of ranks that are treated singly; if noise spreads over more, neighbours are taken together."""


@dataclass(frozen=True, kw_only=True)
class PooledLaw(CoverageOfThreshold):
    """Lower bound of the law of the coverage U of the threshold after the last point below the margin.

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
        """Middle of the law, t0 + (1-α)N, less what rounding can make of it."""
        return self.margin + self.level * self.rows - 2 * ROUNDING

    @cached_property
    def _ranks(self) -> tuple[Ints, AnyFloats]:
        """Ranks ℓ, and P(L' = ℓ); the part left out below has rank 0, and no rank is above N+1."""
        middle = self._middle + 1
        reach = self.tail.furthest + 2
        first = min(self.rows + 1, max(1, math.floor(middle - reach)))
        last = min(self.rows + 1, max(1, math.ceil(middle + reach)))
        ranks = np.arange(first, last + 1)
        at_least = 1 - self.tail.above(middle - ranks)
        weights = at_least - np.append(at_least[1:], 0.0)
        return np.append(0, ranks), np.append(1 - at_least[0], weights)

    @cached_property
    def _few_ranks(self) -> tuple[Ints, AnyFloats]:
        """Ranks and probabilities, at most `MOST_RANKS` of them, by counting a rank as the lowest of its group."""
        ranks, weights = self._ranks
        group = -(-len(ranks) // MOST_RANKS)
        starts = np.arange(0, len(ranks), group)
        return ranks[starts], np.add.reduceat(weights, starts)

    @cached_property
    def _mirrored(self) -> tuple[float, float]:
        if not self.tail.symmetric:
            miss = self._reported(1)
            return miss, max(0.0, self._reported(2) - miss**2)
        ranks, weights = self._ranks
        missed = np.where(ranks > self.rows, 0, self.rows + self.test_points - ranks)
        miss = float(missed @ weights) / (self.rows + self.test_points)
        left = self.rows + 1 - ranks
        square = float((left * (left + 1.0)) @ weights) / ((self.rows + 1) * (self.rows + 2))
        return miss, max(0.0, square - miss**2)

    @property
    def variance(self) -> float:
        """Variance of the law, which is not a bound of Var U."""
        self._only_if_conditional()
        return super().variance

    def cdf(self, t: float) -> float:
        """Return an upper bound of P(U <= t)."""
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
        """Return a lower bound of P(U >= level): the training-conditional guarantee."""
        self._only_if_conditional()
        return 1.0 if level <= 0 else float(level <= 1) * (1 - self.cdf(min(level, math.nextafter(1, 0))))

    def _quantile(self, p: float) -> float:
        if p <= self.cdf(0.0):
            return 0.0
        last = math.nextafter(1, 0)
        if p >= self.cdf(last):
            return 1.0
        if not self.tail.symmetric:
            return max(0.0, self.level + (self.margin - self.tail.reach_of(p)) / self.rows)
        return float(brentq(lambda s: self.cdf(s) - p, 0.0, last, xtol=1e-15, rtol=1e-14))

    def _reported(self, power: int) -> float:
        """Return E(1-U)^power of the law with reports: the integral of power·(1-u)^(power-1)·P(U <= u) over u."""
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


# --- the margin ---------------------------------------------------------------------------------------------

SPARE = 1e-8
"""Allowance for rounding (`ROUNDING`), and for the terms of the first sum that are left out, each below 1e-16."""


def fewest_rows(noisy_total: float, tail: NoiseTail, probability: float = 1e-6) -> int:
    """Return a lower bound of the number of rows, which fails with this probability, to be added to what is missed.

    `tail` is that of the total's noise. Guarantee: P(N < the result) <= probability; the result may be zero or less,
    when nothing is known.

    Examples
    --------
    >>> tail = NoiseTail(law="discrete-laplace", scale=1.0, variance=1.841, reach=1.0)
    >>> fewest_rows(1000.4, tail), fewest_rows(1000.0, NoiseTail(law="none"))
    (984, 1000)
    """
    if tail.exact:
        return math.ceil(noisy_total - 1e-9)
    # N = total - Z, and Z < reach but with this probability; a whole number above a bound is at least the next one.
    return math.floor(noisy_total - tail.reach_of(probability)) + 1


def pooled_margin(
    level: float,
    tail: NoiseTail,
    fewest_rows: int,
    *,
    test_points: int = 1,
    confidence: float | None = None,
    most_rows: int | None = None,
) -> float:
    """Return t0, for which the threshold after the last point with a noisy T_i below t0 covers enough.

    Guarantee: P(the new row is covered) >= level for every number of rows from `fewest_rows` on. With `confidence` also
    P(U >= level) >= confidence for every number of rows from `fewest_rows` to `most_rows`, which is then needed. Both
    may come from the same release, if they are right but with a small probability, which is added to what is missed:
    all margins that may then result are enough, and a larger one never lowers the threshold.

    Edge cases: no noise gives (1-α)·test_points, split conformal prediction; for `unary` noise
    and enough rows, t0 does not depend on their number.

    Examples
    --------
    >>> pooled_margin(0.9, NoiseTail(law="none"), 100)
    0.9
    >>> tail = NoiseTail(law="discrete-gaussian", scale=10.0, variance=400.0, reach=1.0, least_variance=300.0)
    >>> round(pooled_margin(0.9, tail, 1000), 2)
    2.75
    """
    checked_level(level)
    if test_points < 1 or fewest_rows < 1:
        raise DataError(
            f"pooled quantile: got at least {fewest_rows} rows and {test_points} test points, expected at least one of "
            "both; add rows, or allow a larger ε."
        )
    if confidence is None:
        return _marginal(level, tail, fewest_rows, test_points)
    checked_level(confidence, what="confidence")
    if test_points > 1:
        raise UsageError(
            f"confidence: got {test_points} clients whose rows are exchangeable within a client only, expected 1; only "
            "the mean is guaranteed then."
        )
    if most_rows is None or most_rows < fewest_rows:
        raise UsageError(
            f"confidence: got at most {most_rows} rows, expected a number from {fewest_rows} up; the margin grows with "
            "the rows."
        )
    start = _marginal(level, tail, fewest_rows, test_points)
    return max(start, _conditional(level, tail, fewest_rows, most_rows, confidence, start))


def _marginal(level: float, tail: NoiseTail, fewest: int, test_points: int) -> float:
    if tail.exact:
        return level * test_points
    if not tail.symmetric:
        return _with_reports(level, tail, fewest)
    margin = _largest(level, tail, fewest, test_points)
    ranges = _ranges(fewest, math.ceil(margin / (1 - level)), math.sqrt(tail.variance) / (50 * (1 - level)))

    def enough(t0: float) -> bool:
        return all(_missed(level, tail, t0, *ends, test_points) <= 1 - level for ends in ranges)

    return _smallest(enough, margin, math.sqrt(tail.variance) / 500)


def _largest(level: float, tail: NoiseTail, fewest: int, test_points: int) -> float:
    """Return the largest right-hand side over f, of which each cell (low, high] is bounded at its ends."""
    end = math.ceil(tail.furthest) + 1
    cells = 64 if tail.variance < 1e4 else 8
    low = np.arange(cells) / cells
    low[0] = math.ulp(0.0)  # f is above 0, and so is x
    first = _sums(tail, low, np.arange(end + 1)) + (np.arange(cells) + 1) / cells - 1
    most = float(first.max()) + level * test_points + SPARE
    # The ranks of the second sum go to N+1: f - i >= t0 - αN, and t0 is at most what it would be without that sum.
    count = max(0, min(end, math.floor((1 - level) * fewest - most) - 1))
    second = count - _sums(tail, low, -np.arange(1, count + 1))
    return float((first - second).max()) + level * test_points + SPARE


def _sums(tail: NoiseTail, starts: AnyFloats, steps: Ints) -> AnyFloats:
    """Return Σ above(start + step) over the steps, for each start."""
    return np.array([float(tail.above(start + steps).sum()) for start in starts])


def _missed(level: float, tail: NoiseTail, margin: float, fewest: int, most: int, test_points: int) -> float:
    """Bound what is missed for all numbers of rows in a range.

    Counted from rank N+1 down, what is missed is the mean of K times above(t0-αN) and above(t0-αN+i), i = 1..N. Each is
    largest for the most rows. As they fall with i, their mean is largest for the fewest.
    """
    end = min(fewest, math.ceil(tail.furthest) + math.ceil(max(0.0, (1 - level) * most - margin)) + 1)
    terms = tail.above(margin - (1 - level) * most + np.arange(end + 1))
    return float(test_points * terms[0] + terms[1:].sum() + SPARE) / (fewest + test_points)


def _with_reports(level: float, tail: NoiseTail, fewest: int) -> float:
    """Return the margin where noise and rows are one sum: ∫ above over x from t0-αN up must not exceed αN.

    For t0 <= αN that is t0 >= ∫ above over x > 0, and for smaller N the difference of both sides falls with N.
    """
    room = (1 - level) * fewest
    margin = tail.integral(0.0) + SPARE
    return _smallest(lambda t0: t0 <= room or tail.integral(t0 - room) <= room, margin, margin / 1000)


def _conditional(
    level: float, tail: NoiseTail, fewest: int, most: int, confidence: float, start: float
) -> float:
    """Return the margin with P(U < level) <= 1 - confidence for all these numbers of rows."""
    allowed = largest_miss(confidence)
    if not tail.symmetric:
        return tail.reach_of(1 - confidence) + SPARE
    deviation = math.sqrt(level * (1 - level) * most + tail.variance)
    ranges = _ranges(fewest, most, deviation / 20)

    def enough(t0: float) -> bool:
        return all(_worst(level, tail, t0, *ends) <= allowed for ends in ranges)

    return _smallest(enough, start, deviation / 500)


def _worst(level: float, tail: NoiseTail, margin: float, fewest: int, most: int) -> float:
    """Bound P(U < level) for all numbers of rows in a range.

    The rank L' is at least that of the fewest rows, and Beta(ℓ, b) falls with b = N+1-ℓ: the most rows.
    """
    law = PooledLaw(rows=most, level=level, margin=margin - level * (most - fewest), tail=tail)
    return law.cdf(level)


def _ranges(fewest: int, most: int, width: float) -> list[tuple[int, int]]:
    """Return ranges of about this width that cover all numbers from `fewest` to `most`, 64 at most."""
    if most < fewest:
        return []
    count = min(64, math.ceil((most - fewest + 1) / max(1.0, width)))
    edges = np.unique(np.linspace(fewest, most + 1, count + 1).round().astype(np.int64)).tolist()
    return [(a, b - 1) for a, b in pairwise(edges)]


def _smallest(enough: Callable[[float], bool], start: float, precision: float) -> float:
    """Find the smallest number from `start` on that is enough, up to this precision; more must not be worse."""
    if enough(start):
        return start
    return smallest_enough(
        enough,
        start,
        2 * start + precision,
        middle=lambda low, high: (low + high) / 2,
        width=lambda high: precision,
    )
