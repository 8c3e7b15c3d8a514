"""Coverage of a quantile of quantiles, before any score is seen: clients with equally many rows.

Each of m clients sends the ℓ-th smallest of its n scores, and the server takes the k-th smallest of these as the
threshold. The set holds every value whose score is at most the threshold. Given the calibration rows, a new row is
covered with probability U, which is random because those rows are. For independent scores with one continuous
distribution

    G(t) = P(Bin(n, t) >= ℓ)    = I_t(ℓ, n-ℓ+1)         law of the coverage of one client's quantile
    F(t) = P(Bin(m, G(t)) >= k) = I_{G(t)}(k, m-k+1)    law of U

whatever that distribution is. The mean of U is the marginal coverage M: one integral in place of the m-fold sums of
the paper's Eq. 5. Where scores have ties, U is stochastically at least as large.

=====================  ======  =====================================================================
in signatures          symbol  meaning
=====================  ======  =====================================================================
`clients`              m       how many clients
`rows`                 n       how many scores each of them has
`local_rank`           ℓ       which of its scores a client sends, 1 the smallest
`server_rank`          k       which of the clients' values the server takes, 1 the smallest
`level`                1 - α   the coverage that is wanted
=====================  ======  =====================================================================

Reference ("the paper"): Humbert, Le Bars, Bellet and Arlot, One-Shot Federated Conformal Prediction, 2023.
Accuracy and proofs: docs/explanation/conformal-coverage.md.

Mean and variance of variables in [0, 1] from their distribution functions, on panels that are halved until smooth.

For clients that choose at random the law of the coverage is a mixture. It is wider than the quantile it belongs to and
has long tails, so that no fixed set of nodes fits all of them. A panel has 32 Gauss-Legendre nodes. It is done when the
last four of its 32 Legendre coefficients are below `SMOOTH`: those that the rule misses, from the 64th on, are about
the square of that.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincc, betainccinv, betaincinv, betaln, xlogy

from fedassay.errors import UsageError
from fedassay.protocol.arrays import AnyFloats, Ints

# --- mean and variance of variables in [0, 1] ---------------------------------------------------------------


PANEL_NODES, PANEL_WEIGHTS = legendre.leggauss(32)
LAST_COEFFICIENTS = (
    (2 * np.arange(28, 32) + 1) / 2 * legendre.legvander(PANEL_NODES, 31)[:, 28:] * PANEL_WEIGHTS[:, None]
)
"""Last four Legendre coefficients of a function on a panel, from its values at the nodes."""

SMOOTH = 1e-8
"""Largest absolute value of these coefficients on a panel that is smooth."""


def mean_and_variance(cdf: Callable[[AnyFloats, Ints], AnyFloats], count: int) -> tuple[AnyFloats, AnyFloats]:
    """Return mean and variance of 1-U for each of `count` laws of U, within 1e-11; `cdf(s, i)` is P(U_i <= s) of the
    i-th law at points s.

    E(1-U) = ∫ F(s) ds and E(1-U)² = 2 ∫ (1-s) F(s) ds. An atom at U = 0 is allowed, and so is one at U = 1.

    Examples
    --------
    >>> mean, variance = mean_and_variance(lambda s, i: s ** (i + 1.0), 2)
    >>> mean.round(12), variance.round(12)
    (array([0.5       , 0.33333333]), array([0.08333333, 0.05555556]))
    """
    first, second = np.zeros(count), np.zeros(count)
    of = np.repeat(np.arange(count), 4)
    start, width = np.tile([0.0, 0.25, 0.5, 0.75], count), np.full(4 * count, 0.25)
    while len(of):
        s = start[:, None] + width[:, None] * (PANEL_NODES + 1) / 2
        F = cdf(s.ravel(), np.repeat(of, len(PANEL_NODES))).reshape(s.shape)
        done = (np.abs(F @ LAST_COEFFICIENTS).max(axis=1) < SMOOTH) | (width < 1e-12)
        weights = F[done] * PANEL_WEIGHTS * (width[done, None] / 2)
        np.add.at(first, of[done], weights.sum(axis=1))
        np.add.at(second, of[done], 2 * ((1 - s[done]) * weights).sum(axis=1))
        half = width[~done] / 2
        start = np.concatenate([start[~done], start[~done] + half])
        of, width = np.tile(of[~done], 2), np.tile(half, 2)
    return first, np.maximum(0, second - first**2)


# --- constants of the coverage laws -------------------------------------------------------------------------

LEFT_OUT = 1e-17
"""Part of the law of a sum of coins that is left out."""

TAIL = 1e-17
"""Probability that is left out at either end of an integral."""

TIE = 1e-12
"""Part of α by which a larger miscoverage counts as α, so that rounding costs no rank where M is 1-α exactly."""

_NODES, _WEIGHTS = (PANEL_NODES + 1) / 2, PANEL_WEIGHTS / 2  # for an interval of length one


# --- levels and ranks -----------------------------------------------------------------------------------


def check_rank(what: str, rank: int, among: int) -> None:
    """Raise if a rank does not exist among this many numbers."""
    if among < 1 or not 1 <= rank <= among:
        raise UsageError(f"{what}: got {rank} of {among}, expected a number from 1 to {max(1, among)}.")


def checked_level(level: float, *, what: str = "level") -> float:
    """Return the level itself, if it is valid."""
    if not 0 < level < 1:
        raise UsageError(f"{what}: got {level:g}, expected a number strictly between 0 and 1, such as 0.9.")
    return float(level)


def largest_miss(level: float) -> float:
    """Return the miscoverage up to which a level counts as reached: α, `TIE` of it, and the rounding of 1 - level."""
    return (1 - level) * (1 + TIE) + 2.0**-53


def split_rank(rows: int, level: float) -> int:
    """Return ⌈(1-α)(n+1)⌉, the rank of split conformal prediction; more than `rows` means that they are too few.

    Examples
    --------
    >>> split_rank(100, 0.9), split_rank(9, 0.9), split_rank(8, 0.9)
    (91, 9, 9)
    """
    return rows + 1 - math.floor((rows + 1) * largest_miss(level))


def split_rows(level: float) -> int:
    """Return the fewest rows for which the rank of split conformal prediction exists.

    Examples
    --------
    >>> split_rows(0.9), split_rows(0.5)
    (9, 1)
    """
    return max(1, math.ceil(1 / largest_miss(level)) - 1)


def window(mean: AnyFloats, variance: AnyFloats, most: int) -> tuple[Ints, Ints]:
    """Return the first and the last number from 0 to `most` that sums of independent coins have, but for `LEFT_OUT`.

    Bernstein's inequality, for a sum with this mean and this variance.
    """
    weight = math.log(2 / LEFT_OUT)
    reach = weight / 3 + np.sqrt(weight**2 / 9 + 2 * weight * variance)
    start = np.maximum(0, np.floor(mean - reach)).astype(np.int64)
    return start, np.minimum(most, np.ceil(mean + reach)).astype(np.int64)


N = TypeVar("N", int, float)


def smallest_enough(
    enough: Callable[[N], bool], low: N, high: N, *, middle: Callable[[N, N], N], width: Callable[[N], N]
) -> N:
    """Find about the smallest number that is enough, above `low`, which is not; more must not be worse.

    `high` is doubled until it is enough, and the interval halved at its `middle` until it is no wider than `width` of
    its upper end.

    Examples
    --------
    >>> smallest_enough(lambda n: n >= 137, 100, 200, middle=lambda a, b: (a + b) // 2, width=lambda high: 1)
    137
    """
    while not enough(high):
        low, high = high, 2 * high
    while high - low > width(high):
        at = middle(low, high)
        low, high = (low, at) if enough(at) else (at, high)
    return high


# --- integrals ------------------------------------------------------------------------------------------


class CoverageMoments(NamedTuple):
    """Mean and variance of U for vectors of pairs, and M(ℓ, k+1) - M(ℓ, k), which is a guide only (1e-8)."""

    mean: AnyFloats
    variance: AnyFloats
    step: AnyFloats


def moments(clients: int, rows: int, local_rank: ArrayLike, server_rank: ArrayLike) -> CoverageMoments:
    """Integrate F: the mean within 1e-12 and the variance within 1e-11, both relative to themselves.

    With c near the median, M = c - ∫_lo^c F + ∫_c^hi (1-F) and E(U-c)² = 2∫_lo^c (c-t)F + 2∫_c^hi (t-c)(1-F), where
    nothing is larger than the result: no cancellation. 32 Gauss-Legendre nodes on each side are enough because U is
    log-concave. For the same reason the tails beyond lo and hi are less than `TAIL` times the mean.

    A mean next to 1 does not resolve its distance from 1; `mirrored_moments` can.
    """
    m, n = clients, rows
    ranks = np.broadcast_arrays(np.atleast_1d(local_rank), np.atleast_1d(server_rank))
    ell, k = (rank.astype(float)[:, None] for rank in ranks)
    lo, c, hi = _ends(m, n, ell, k)
    t = np.concatenate([c - (c - lo) * _NODES, c + (hi - c) * _NODES], axis=1)
    width = np.concatenate([(c - lo) * _WEIGHTS, (hi - c) * _WEIGHTS], axis=1)
    G, H = _sides(ell, n - ell + 1, t)
    F, S = _sides_within(k, m - k + 1, G, H)
    below = t < c
    beyond = width * np.where(below, F, S)
    mean = c[:, 0] + np.where(below, -beyond, beyond).sum(axis=1)
    variance = 2 * (np.abs(t - c) * beyond).sum(axis=1) - (mean - c[:, 0]) ** 2
    between = np.exp(xlogy(k, G) + xlogy(m - k, H) - betaln(k + 1, m - k + 1)) / (m + 1)  # P(Bin(m, G) = k)
    return CoverageMoments(mean, variance, (width * between).sum(axis=1))


def mirrored_moments(
    clients: int, rows: int, local_rank: ArrayLike, server_rank: ArrayLike
) -> CoverageMoments:
    """Return the moments of the miscoverage 1-U; its `step` is M(ℓ, k) - M(ℓ, k-1).

    1-U has the law of U for the ranks counted from the other end, since one minus a uniform score is uniform:
    1 - M(ℓ, k) = M(n+1-ℓ, m+1-k).
    """
    return moments(clients, rows, rows + 1 - np.asarray(local_rank), clients + 1 - np.asarray(server_rank))


def _sides(a: AnyFloats, b: AnyFloats, x: AnyFloats) -> tuple[AnyFloats, AnyFloats]:
    """Return I_x(a, b) and 1 - I_x(a, b), each accurate relative to itself where it is the smaller."""
    lower: AnyFloats = betainc(a, b, x)
    upper = 1 - lower
    late = lower > 0.5
    a, b = np.broadcast_to(a, x.shape), np.broadcast_to(b, x.shape)
    # The complement takes several times as long, and is needed where 1-x has not enough digits of x.
    far, near = late & (x > 1e-3), late & (x <= 1e-3)
    upper[far] = betainc(b[far], a[far], 1 - x[far])
    upper[near] = betaincc(a[near], b[near], x[near])
    return lower, upper


def _sides_within(a: AnyFloats, b: AnyFloats, x: AnyFloats, y: AnyFloats) -> tuple[AnyFloats, AnyFloats]:
    """Return both sides for x = 1 - y, from the smaller of x and y, accurate to rounding and not relative to itself."""
    flip = x > 0.5
    found: AnyFloats = betainc(np.where(flip, b, a), np.where(flip, a, b), np.where(flip, y, x))
    return np.where(flip, 1 - found, found), np.where(flip, found, 1 - found)


def _ends(m: int, n: int, ell: AnyFloats, k: AnyFloats) -> tuple[AnyFloats, AnyFloats, AnyFloats]:
    """Return the `TAIL` quantiles of U, and between them the client's quantile at k/(m+1)."""
    q = m - k + 1
    lo = _client_quantile(n, ell, betaincinv(k, q, TAIL), betainccinv(q, k, TAIL))
    hi = _client_quantile(n, ell, betainccinv(k, q, TAIL), betaincinv(q, k, TAIL))
    return lo, _client_quantile(n, ell, k / (m + 1), q / (m + 1)), hi


def _client_quantile(n: int, ell: AnyFloats | NDArray[np.int64], v: AnyFloats, w: AnyFloats) -> AnyFloats:
    """Return G^{-1}(v) for v = 1 - w, from the smaller of both."""
    below = betaincinv(ell, n - ell + 1, np.minimum(v, 0.5))
    above = betainccinv(ell, n - ell + 1, np.minimum(w, 0.5))
    return np.where(v <= 0.5, below, above)


# --- the law --------------------------------------------------------------------------------------------


class CoverageOfThreshold(ABC):
    """Law of the coverage U, given the calibration rows, or a law that lies below it."""

    @property
    @abstractmethod
    def _mirrored(self) -> tuple[float, float]:
        """Mean and variance of the miscoverage 1 - U, or of a bound of it, accurate relative to themselves."""

    @abstractmethod
    def cdf(self, t: float) -> float:
        """Return P(U <= t), or an upper bound of it."""

    @abstractmethod
    def probability_at_least(self, level: float) -> float:
        """Return P(U >= level), or a lower bound of it: the training-conditional guarantee."""

    @abstractmethod
    def _quantile(self, p: float) -> float: ...

    def quantile(self, p: float) -> float:
        """Return the coverage reached with probability 1 - p, the inverse of `cdf`; zero where the law has an atom."""
        if not 0 <= p <= 1:
            raise UsageError(f"probability: got {p:g}, expected a number from 0 to 1.")
        return self._quantile(p)

    @property
    def miss(self) -> float:
        """Marginal miscoverage, 1 - M: no more than this part of new rows is missed."""
        return self._mirrored[0]

    @property
    def mean(self) -> float:
        """Marginal coverage, M: at least this part of new rows is covered."""
        return 1 - self.miss

    @property
    def variance(self) -> float:
        """Variance of U, or of the bound: the dependence of the coverage on the calibration rows at hand."""
        return self._mirrored[1]

    @property
    def standard_deviation(self) -> float:
        """Standard deviation, the root of `variance`."""
        return math.sqrt(self.variance)


@dataclass(frozen=True, kw_only=True)
class CoverageLaw(CoverageOfThreshold):
    """Law of the coverage U of FedCP-QQ with the pair (ℓ, k), for m clients with n rows each.

    Guarantee: exact for independent scores with one continuous distribution; with ties U is at least as large
    (stochastically), if the set holds what equals the threshold (the paper's Theorem 3.2). `mean` and
    `standard_deviation` are within 1e-12, `mean` and `miss` relative to themselves too, for up to 10^5 clients and
    10^6 rows each. m = 1 is split conformal prediction, and so is n = 1 (the server holds all scores).

    Assumption: rows of all clients, and the rows to be predicted, come from one distribution.

    Examples
    --------
    >>> law = CoverageLaw(clients=10, rows=100, local_rank=92, server_rank=4)
    >>> round(law.mean, 4), round(law.standard_deviation, 4), round(law.probability_at_least(0.9), 3)
    (0.9023, 0.012, 0.593)
    >>> split = CoverageLaw(clients=1, rows=99, local_rank=90, server_rank=1)
    >>> round(split.mean, 12)
    0.9
    """

    clients: int
    rows: int
    local_rank: int
    server_rank: int

    def __post_init__(self) -> None:
        check_rank("local rank", self.local_rank, self.rows)
        check_rank("server rank", self.server_rank, self.clients)

    @property
    def pair(self) -> tuple[int, int]:
        """Pair (ℓ, k)."""
        return self.local_rank, self.server_rank

    @cached_property
    def _mirrored(self) -> tuple[float, float]:
        found = mirrored_moments(self.clients, self.rows, *self.pair)
        return float(found.mean[0]), float(found.variance[0])

    @cached_property
    def mean(self) -> float:
        """Marginal coverage, M, accurate relative to itself (Eq. 5 of the paper)."""
        if self.miss < 0.5:
            return 1 - self.miss
        return float(moments(self.clients, self.rows, *self.pair).mean[0])

    def cdf(self, t: float) -> float:
        """Return F(t) = P(U <= t), accurate relative to itself in the lower tail."""
        return self._tail(t, upper=False)

    def probability_at_least(self, level: float) -> float:
        """Return P(U >= level): the training-conditional guarantee, exact, with relative accuracy however small."""
        return self._tail(level, upper=True)

    def _quantile(self, p: float) -> float:
        k, q = self.server_rank, self.clients - self.server_rank + 1
        v, w = betaincinv([k], [q], [p]), betainccinv([q], [k], [p])
        return float(_client_quantile(self.rows, np.array([self.local_rank]), v, w)[0])

    def theorem_3_3_floor(self, confidence: float) -> float:
        """Return the coverage that the paper's Theorem 3.3 promises with this confidence, at least one half.

        At least ℓk of all mn scores are at most the threshold, and the Dvoretzky-Kiefer-Wolfowitz inequality (with
        Massart's constant) bounds how far an empirical distribution is from its own:
        P(U >= ℓk/(mn) - sqrt(log(1/δ)/(2mn))) >= 1-δ. `quantile(1 - confidence)` is exact and never less. Zero where
        the theorem promises nothing.

        Examples
        --------
        >>> law = CoverageLaw(clients=10, rows=100, local_rank=92, server_rank=4)
        >>> round(law.theorem_3_3_floor(0.9), 3), round(law.quantile(0.1), 3)
        (0.334, 0.887)
        """
        if not 0.5 <= confidence < 1:
            raise UsageError(
                f"confidence: got {confidence:g}, expected a number from 0.5 to below 1 (Theorem 3.3)."
            )
        scores = self.clients * self.rows
        margin = math.sqrt(-math.log1p(-confidence) / (2 * scores))
        return max(0.0, self.local_rank * self.server_rank / scores - margin)

    def _tail(self, t: float, *, upper: bool) -> float:
        ell, k = self.pair
        a, b, q = ell, self.rows - ell + 1, self.clients - k + 1
        t = min(1.0, max(0.0, t))
        G = betainc(a, b, t)
        if G <= 0.5:
            return float((betaincc if upper else betainc)(k, q, G))
        return float((betainc if upper else betaincc)(q, k, betaincc(a, b, t)))
