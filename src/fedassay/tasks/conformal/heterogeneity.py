"""How much clients differ, and what that can cost: Proposition 3.4 of the paper, estimated.

A threshold q that was found under the assumption of one distribution covers a share c_j of client j's rows. If clients
have distributions of their own, the number of clients whose local quantile lies below a new score is no longer binomial
but Poisson-binomial, and the marginal coverage can be lower than promised by at most

    E d_TV(PoissonBinomial(p_1, .., p_m), Binomial(m, p)),    p_j = P(the local quantile of client j <= S | S).

Ehm (1991) bounds the distance for p the mean of the p_j:

    d_TV <= (1 - p^{m+1} - (1-p)^{m+1}) / ((m+1) p (1-p)) · Σ (p_j - p)².

What is not known is how far apart the clients' distributions are. It is estimated from how many held-out rows of each
client the threshold covers: the variance between clients that is more than chance, and from it each client's deviation,
shrunk towards zero by as much as it may be chance. The deviation is taken to be the same at all thresholds close by.
The bound is therefore an estimate, not a guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betainccinv, betaincinv, chdtrc, ndtri

Floats = NDArray[np.float64]

FEWEST_CLIENTS = 2
ALARM = 0.01
"""A warning is given if chance alone would make clients differ so much with less than this probability."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)
_TAIL = 1e-12


@dataclass(frozen=True, kw_only=True)
class CoverageSums:
    """What is needed of the clients: their number, held-out rows n, covered rows c, and Σc²/n."""

    clients: int
    rows: float
    covered: float
    squares: float

    @classmethod
    def of(cls, rows: Sequence[int], covered: Sequence[int]) -> CoverageSums:
        """From the counts of each client; those without held-out rows say nothing.

        Examples
        --------
        >>> CoverageSums.of([10, 20, 0], [5, 20, 0])
        CoverageSums(clients=2, rows=30.0, covered=25.0, squares=22.5)
        """
        pairs = [(n, c) for n, c in zip(rows, covered, strict=True) if n > 0]
        return cls(
            clients=len(pairs),
            rows=float(sum(n for n, _ in pairs)),
            covered=float(sum(c for _, c in pairs)),
            squares=math.fsum(c * c / n for n, c in pairs),
        )


@dataclass(frozen=True, kw_only=True)
class Differences:
    """How much the clients' coverage differs beyond chance.

    `statistic` is Pearson's, of a table of covered and missed rows by client; `between` the standard deviation between
    clients that is left when chance is taken off (0 if none is), by moments.
    """

    statistic: float
    degrees: int
    p_value: float
    coverage: float
    between: float

    @classmethod
    def of(cls, sums: CoverageSums) -> Differences | None:
        """None if there are too few clients, or if all or none of the rows are covered.

        Examples
        --------
        >>> alike = Differences.of(CoverageSums.of([100] * 4, [90, 90, 90, 90]))
        >>> alike.statistic, alike.between, alike.p_value
        (0.0, 0.0, 1.0)
        >>> apart = Differences.of(CoverageSums.of([100] * 4, [99, 99, 99, 63]))
        >>> round(apart.statistic, 1), round(apart.between, 3), apart.p_value < 1e-10
        (108.0, 0.177, True)
        """
        if sums.clients < FEWEST_CLIENTS or not 0 < sums.covered < sums.rows:
            return None
        coverage = sums.covered / sums.rows
        chance = coverage * (1 - coverage)
        degrees = sums.clients - 1
        statistic = max(0.0, (sums.squares - coverage * sums.covered) / chance)
        # E Σ n(c/n - c̄)² is about (m-1)·chance plus the variance between clients times the rows but one client's share.
        room = sums.rows * (1 - 1 / sums.clients)
        between = math.sqrt(max(0.0, (statistic - degrees) * chance / room))
        return cls(
            statistic=statistic,
            degrees=degrees,
            p_value=float(chdtrc(degrees, statistic)),
            coverage=coverage,
            between=between,
        )

    def shrunk(self, rows: Sequence[int], covered: Sequence[int]) -> Floats:
        """Each client's deviation from the common coverage, less what may be chance."""
        n = np.maximum(np.asarray(rows, dtype=float), 1e-9)
        raw = np.asarray(covered, dtype=float) / n - self.coverage
        chance = self.coverage * (1 - self.coverage) / n
        weight = self.between**2 / (self.between**2 + chance)
        return np.asarray(np.where(np.asarray(rows) > 0, raw * weight, 0.0))

    def spread_evenly(self, clients: int) -> Floats:
        """Deviations of clients that nobody has seen: normal quantiles with this standard deviation."""
        return np.asarray(self.between * ndtri((np.arange(clients) + 0.5) / clients))


def loss_bound(rows: Sequence[int], local_ranks: Sequence[int], deviations: Floats) -> float:
    """Ehm's bound of what these deviations can take off the marginal coverage, on average over the new score.

    Clients that send no score (their rank is above their rows) have no say.

    Examples
    --------
    >>> round(loss_bound([100] * 10, [92] * 10, np.zeros(10)), 12)
    0.0
    >>> round(loss_bound([100] * 10, [92] * 10, np.linspace(-0.02, 0.02, 10)), 4)
    0.0074
    """
    n, ell = np.asarray(rows, dtype=float), np.asarray(local_ranks, dtype=float)
    sends = ell <= n
    n, ell, deviations = n[sends], ell[sends], np.asarray(deviations)[sends]
    m = len(n)
    if m < FEWEST_CLIENTS:
        return 0.0
    # Of scores with the rank u on average; outside these ends the p_j are all 0 or all 1, to rounding.
    low = float((betaincinv(ell, n - ell + 1, _TAIL) - deviations).min())
    high = float((betainccinv(ell, n - ell + 1, _TAIL) - deviations).max())
    low, high = max(0.0, low), min(1.0, high)
    u, weights = low + (high - low) * (_NODES[:, None] + 1) / 2, (high - low) * _WEIGHTS / 2
    p = betainc(ell, n - ell + 1, np.clip(u + deviations, 0.0, 1.0))
    mean = p.mean(axis=1)
    square = ((p - mean[:, None]) ** 2).sum(axis=1)
    spread = mean * (1 - mean)
    inner = spread > 1e-12
    factor = (1 - mean[inner] ** (m + 1) - (1 - mean[inner]) ** (m + 1)) / ((m + 1) * spread[inner])
    return float(np.minimum(1.0, factor * square[inner]) @ weights[inner])


def described(found: Differences | None, *, bound: float | None, level: float) -> dict[str, Any] | None:
    """What is known about the differences, as JSON, with a sentence and whether it is a warning."""
    if found is None:
        return None
    alarming = found.p_value < ALARM
    text = (
        f"Between clients the coverage differs by a standard deviation of {found.between:.3f} beyond chance (p = "
        f"{found.p_value:.2g})."
    )
    if alarming:
        text += (
            f" Clients differ so much that the promise of {level:g} holds on average over all of them, and not for "
            "each: look at single clients, or find a threshold for each of them (--method local) or each group "
            "(--conditional)."
        )
    if bound is not None:
        text += (
            f" It may take up to about {bound:.3f} off the marginal coverage (Proposition 3.4, estimated)."
        )
    return {
        "statistic": found.statistic,
        "degrees": found.degrees,
        "p_value": found.p_value,
        "between_sd": found.between,
        "loss_bound": bound,
        "alarming": alarming,
        "text": text,
    }
