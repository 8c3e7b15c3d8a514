"""Coverage of a quantile of quantiles where each client chooses its quantile with differential privacy.

Each of m clients has n scores and chooses one of B public candidates, the last of which is +∞, by the exponential
mechanism: losses grow by `below` with each rank that a candidate falls short of the t-th smallest score, and by `above`
with each rank beyond it, and η = ε/(below + above). The server takes the k-th smallest of what it got. Then

    G(s) = P(Bin(n, s) + D >= t),     P(D >= d) = (B-1)e^(-rd)/(1 + (B-1)e^(-rd)) for d >= 1,    r = η·below
    F(s) = P(Bin(m, G(s)) >= k)

bounds the law of the coverage U from above, whatever the scores' distribution is: D is the number of ranks that a
choice may lose. Neither a union bound over clients nor a parameter γ is needed. For ε → ∞ this is `CoverageLaw`.

Reference: docs/explanation/private-conformal.md. Symbols are those of `law.py`.

The law of what a client's private choice covers: a binomial number of scores, and ranks that the choice may lose.

A client chooses candidate b with a probability proportional to exp(-η·loss) (`summaries`: losses `below` and `above`
per rank away from the target t). Whatever its scores are,

    P(at least ℓ of its scores are up to the chosen candidate) >= 1/(1 + (B-1)·exp(-η·below·(t-ℓ+1))),    ℓ <= t,

so the choice covers at least the (t-D)-th smallest score, with a number D of lost ranks that is independent of the
scores and has this law. In the same way, no more than E ranks are won, up to the width of one candidate, with
P(E >= e) <= (B-1)·exp(-η·above·e)/(1 + (B-1)·exp(-η·above·e)).

Reference: docs/explanation/private-conformal.md, which has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import betainc, betaincc, expit, gammaln, xlog1py, xlogy

from fedassay.errors import UsageError
from fedassay.estimation.coverage.law import (
    CoverageOfThreshold,
    check_rank,
    mean_and_variance,
    smallest_enough,
    window,
)
from fedassay.protocol.arrays import AnyFloats, Ints

# --- requests without a valid choice ------------------------------------------------------------------------


def enough_rows(possible: Callable[[int], bool], rows: int) -> int:
    """Return the fewest rows that are enough, if `rows` are not; more must not be worse.

    Examples
    --------
    >>> enough_rows(lambda n: n >= 137, 100)
    137
    """
    return smallest_enough(
        possible, rows, 2 * rows, middle=lambda low, high: (low + high) // 2, width=lambda high: 1
    )


def enough_epsilon(possible: Callable[[float], bool], epsilon: float) -> float | None:
    """Return an ε of three digits that is enough, if `epsilon` is not; None if none is.

    Examples
    --------
    >>> enough_epsilon(lambda value: value >= math.pi, 1.0), enough_epsilon(lambda value: False, 1.0)
    (3.15, None)
    """
    if not possible(math.inf):
        return None
    high = smallest_enough(
        possible,
        epsilon,
        2 * epsilon,
        middle=lambda low, high: math.sqrt(low * high),
        width=lambda high: high * (1 - 1 / 1.001),
    )
    unit = 10.0 ** (math.floor(math.log10(high)) - 2)
    rounded = round(math.ceil(high / unit) * unit, 12)
    return rounded if possible(rounded) else rounded + unit


def would_do(rows: int, epsilon: float | None) -> str:
    """Describe in words the rows and the ε that would be enough.

    Examples
    --------
    >>> would_do(137, 3.15)
    'expected at least 137 rows each at this ε, or ε = 3.15 with these rows'
    """
    either = f"expected at least {rows} rows each at this ε"
    return either if epsilon is None else f"{either}, or ε = {epsilon:.3g} with these rows"


# --- the law of one client's coverage -----------------------------------------------------------------------


_AT_ONCE = 1 << 21
"""Number of probabilities in memory at a time."""


def lost_at_least(d: ArrayLike, candidates: int, rate: float) -> AnyFloats:
    """Return P(D >= d) = (B-1)e^(-rd)/(1 + (B-1)e^(-rd)) for d >= 1, and 1 below; r is `rate`.

    D is about log(B-1)/r, give or take a logistic variable of scale 1/r.

    Examples
    --------
    >>> lost_at_least([0, 1, 5, 10], 100, 1.0).round(4)
    array([1.    , 0.9733, 0.4001, 0.0045])
    """
    d = np.asarray(d, dtype=np.float64)
    if rate == math.inf:
        return np.where(d <= 0, 1.0, 0.0)
    return np.where(d <= 0, 1.0, expit(math.log(candidates - 1) - rate * np.maximum(d, 0)))


def kept_at_most(d: ArrayLike, candidates: int, rate: float) -> AnyFloats:
    """Return P(D <= d) = 1 - P(D >= d+1), accurate relative to itself.

    Examples
    --------
    >>> kept_at_most([-1, 0, 4, 9], 100, 1.0).round(4)
    array([0.    , 0.0267, 0.5999, 0.9955])
    """
    d = np.asarray(d, dtype=np.float64)
    if rate == math.inf:
        return np.where(d < 0, 0.0, 1.0)
    return np.where(d < 0, 0.0, expit(rate * (np.maximum(d, 0) + 1) - math.log(candidates - 1)))


def cdf_after_loss(s: AnyFloats, rows: int, targets: Ints, candidates: int, rate: float) -> AnyFloats:
    """Return G(s) = P(Bin(n, s) + D >= t) for each s and its t: the law of one client's coverage, at its smallest."""
    return _mixed(s, rows, lambda c, i: lost_at_least(targets[i, None] - c, candidates, rate))


def cdf_after_gain(s: AnyFloats, rows: int, targets: Ints, candidates: int, rate: float) -> AnyFloats:
    """Return P(Bin(n, s) - E >= t): the law of the coverage at its largest, but for the width of a candidate.

    The (t+E)-th smallest score, which is +∞ for t + E > n.
    """
    return _mixed(s, rows, lambda c, i: kept_at_most(c - targets[i, None], candidates, rate))


def _mixed(s: AnyFloats, rows: int, weight: Callable[[Ints, Ints], AnyFloats]) -> AnyFloats:
    """Return E weight(Bin(n, s), i) for each s_i: all but `LEFT_OUT` of the law lies in a window, scaled up to 1."""
    start, end = window(rows * s, rows * s * (1 - s), rows)
    length = int((end - start).max(initial=0)) + 1
    start = np.minimum(start, rows + 1 - length)
    found = np.empty(len(s))
    step = max(1, _AT_ONCE // length)
    for first in range(0, len(s), step):
        i = np.arange(first, min(len(s), first + step))
        c = start[i, None] + np.arange(length)
        p = binomial(s[i, None], c, rows)
        found[i] = (p * weight(c, i)).sum(axis=1) / p.sum(axis=1)
    return found.clip(0, 1)


def binomial(s: AnyFloats, c: Ints, rows: int) -> AnyFloats:
    """Return P(Bin(n, s) = c), within 1e-11 of itself for n up to 10^5; a common factor is off by most of that."""
    p: AnyFloats = np.exp(_log_binomial(rows)[c] + xlogy(c, s) + xlog1py(rows - c, -s))
    return p


@lru_cache(maxsize=8)
def _log_binomial(rows: int) -> AnyFloats:
    """Return the logarithm of n over c, for c = 0..n."""
    c = np.arange(rows + 1.0)
    table: AnyFloats = gammaln(rows + 1.0) - gammaln(c + 1) - gammaln(rows - c + 1)
    table.flags.writeable = False
    return table


# --- the law of the coverage --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ChoiceLaw(CoverageOfThreshold):
    """Lower bound of the law of the coverage U, if m clients choose their t-th smallest of n scores privately.

    Guarantee: let scores be independent with one distribution, continuous or not, and let the set hold what equals the
    threshold. Then U is stochastically at least as large as a variable with this law. All numbers are within 1e-10, for
    up to 10^5 rows.

    Assumption: a choice among `candidates`, of which one is +∞, whose losses grow by η·below = `rate` with each rank
    below the target. A client that has fewer than n scores fills up with +∞ (which only raises U).

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
        check_rank("target rank", self.target, self.rows)
        check_rank("server rank", self.server_rank, self.clients)
        if self.candidates < 2 or not self.rate > 0:
            raise UsageError(
                f"private choice: got {self.candidates} candidates and a rate of {self.rate:.3g}, expected at least "
                "two and a rate above 0."
            )

    @property
    def pair(self) -> tuple[int, int]:
        """Pair (t, k)."""
        return self.target, self.server_rank

    @cached_property
    def _mirrored(self) -> tuple[float, float]:
        t, k = np.array([self.target]), np.array([self.server_rank])
        miss, variance = lowest_moments(self.clients, self.rows, t, k, self.candidates, self.rate)
        return float(miss[0]), float(variance[0])

    def cdf(self, t: float) -> float:
        """Return F(t): P(U <= t) is at most this."""
        return 1.0 if t >= 1 else float(betainc(self.server_rank, self._other_end, self._client(t)))

    def probability_at_least(self, level: float) -> float:
        """Return a lower bound of P(U >= level): the training-conditional guarantee."""
        if level <= 0:
            return 1.0
        if level >= 1:
            return 0.0
        return float(betaincc(self.server_rank, self._other_end, self._client(level)))

    def _quantile(self, p: float) -> float:
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
) -> tuple[AnyFloats, AnyFloats]:
    """Return the largest miscoverage, and its variance, for vectors of pairs (t, k)."""
    k = server_ranks

    def cdf(s: AnyFloats, i: Ints) -> AnyFloats:
        found: AnyFloats = betainc(
            k[i], clients - k[i] + 1, cdf_after_loss(s, rows, targets[i], candidates, rate)
        )
        return found

    return mean_and_variance(cdf, len(k))
