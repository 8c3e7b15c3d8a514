"""Differences between clients and what they can cost: Proposition 3.4 of the paper, estimated.

A threshold q that was found under the assumption of one distribution covers a share c_j of client j's rows. If clients
have distributions of their own, the number of clients whose local quantile lies below a new score is no longer binomial
but Poisson-binomial, and the marginal coverage can be lower than promised by at most

    E d_TV(PoissonBinomial(p_1, .., p_m), Binomial(m, p)),    p_j = P(the local quantile of client j <= S | S).

Ehm (1991) bounds the distance for p the mean of the p_j:

    d_TV <= (1 - p^{m+1} - (1-p)^{m+1}) / ((m+1) p (1-p)) · Σ (p_j - p)².

The distance of the clients' distributions is not known. It is estimated from how many held-out rows of each
client the threshold covers: the variance between clients that is more than chance, and from it each client's deviation,
shrunk towards zero by as much as it may be chance. The deviation is taken to be the same at all thresholds close by.
The bound is therefore an estimate, not a guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.special import betainc, betainccinv, betaincinv, gammaincc, ndtri

from fedassay.protocol.arrays import Floats
from fedassay.summaries.coverage_counts import CoverageSums

FEWEST_CLIENTS = 2
QQ = ("qq", "qq-paper")
ALARM = 0.01
"""Probability that chance alone makes clients differ this much, below which a warning is given."""

SHOWN = 0.05
"""Probability that chance alone shows a difference, below which the difference is reported."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)
_TAIL = 1e-12


@dataclass(frozen=True, kw_only=True)
class HeterogeneitySums(CoverageSums):
    """Sums over clients, with Σn² and Σ1/n where single clients may be seen.

    Without these two sums, clients are taken to have equally many rows.
    """

    row_squares: float | None = None
    inverse_rows: float | None = None

    @classmethod
    def of(cls, rows: Sequence[int], covered: Sequence[int]) -> HeterogeneitySums:
        """Compute the sums from the counts of each client; clients without held-out rows are left out.

        Examples
        --------
        >>> HeterogeneitySums.of([10, 20, 0], [5, 20, 0])  # doctest: +ELLIPSIS
        HeterogeneitySums(sites=2, rows=30, covered=25, squares=Fraction(45, 2), row_squares=500.0, ...)
        """
        pairs = [(n, c) for n, c in zip(rows, covered, strict=True) if n > 0]
        return cls(
            sites=len(pairs),
            rows=sum(n for n, _ in pairs),
            covered=sum(c for _, c in pairs),
            squares=Fraction(math.fsum(c * c / n for n, c in pairs)),
            row_squares=float(sum(n * n for n, _ in pairs)),
            inverse_rows=math.fsum(1 / n for n, _ in pairs),
        )


@dataclass(frozen=True, kw_only=True)
class Differences:
    """Differences of the clients' coverage beyond chance.

    `statistic` is Pearson's, of a table of covered and missed rows by client. Its p-value is that of a gamma law with
    the statistic's own mean and variance, given the margins of the table: a chi-squared law would alarm far too often
    where some clients have few rows. `between` is the standard deviation between clients that is left when chance is
    taken off (0 if none is), by moments.
    """

    statistic: float
    degrees: int
    p_value: float
    coverage: float
    between: float

    @classmethod
    def of(cls, sums: HeterogeneitySums) -> Differences | None:
        """Compute the differences; None if there are too few clients, or if all or none of the rows are covered.

        Examples
        --------
        >>> alike = Differences.of(HeterogeneitySums.of([100] * 4, [90, 90, 90, 90]))
        >>> alike.statistic, alike.between, alike.p_value
        (0.0, 0.0, 1.0)
        >>> apart = Differences.of(HeterogeneitySums.of([100] * 4, [99, 99, 99, 63]))
        >>> round(apart.statistic, 1), round(apart.between, 3), apart.p_value < 1e-10
        (108.0, 0.177, True)
        """
        if sums.sites < FEWEST_CLIENTS or not 0 < sums.covered < sums.rows:
            return None
        coverage = sums.covered / sums.rows
        chance = coverage * (1 - coverage)
        degrees = sums.sites - 1
        statistic = max(0.0, (float(sums.squares) - coverage * sums.covered) / chance)
        mean, variance = _chance(sums)
        # E Σ n(c/n - c̄)² is what chance gives, and N - Σn²/N times the variance between clients.
        concentrated = sums.rows / sums.sites if sums.row_squares is None else sums.row_squares / sums.rows
        room = max(1.0, sums.rows - concentrated)
        between = math.sqrt(max(0.0, (statistic - mean) * chance / room))
        return cls(
            statistic=statistic,
            degrees=degrees,
            p_value=float(gammaincc(mean**2 / variance, statistic * mean / variance)),
            coverage=coverage,
            between=between,
        )

    def shrunk(self, rows: Sequence[int], covered: Sequence[int]) -> Floats:
        """Return each client's deviation from the common coverage, less what may be chance."""
        n = np.maximum(np.asarray(rows, dtype=float), 1e-9)
        raw = np.asarray(covered, dtype=float) / n - self.coverage
        chance = self.coverage * (1 - self.coverage) / n
        weight = self.between**2 / (self.between**2 + chance)
        return np.asarray(np.where(np.asarray(rows) > 0, raw * weight, 0.0))

    def spread_evenly(self, clients: int) -> Floats:
        """Return deviations of clients that are not seen: normal quantiles with this standard deviation."""
        return np.asarray(self.between * ndtri((np.arange(clients) + 0.5) / clients))


def _chance(sums: HeterogeneitySums) -> tuple[float, float]:
    """Return mean and variance of Pearson's statistic, given rows and covered rows of all, if clients are alike.

    Reference: Dawson, A simplified expression for the variance of the χ² function on a contingency table, 1954.
    """
    r, n = sums.sites, sums.rows
    mean = (r - 1) * n / (n - 1)
    if n <= 3:
        return mean, 2.0 * mean
    inverse = r * r / n if sums.inverse_rows is None else sums.inverse_rows
    sigma = (n * inverse - r * r) / (n - 2)
    tau = (n * (1 / sums.covered + 1 / (n - sums.covered)) - 4) / (n - 2)
    nu, mu = (r - 1) * (n - r) / (n - 1), (n - 2) / (n - 1)
    variance = 2 * n / (n - 3) * (nu - sigma) * (mu - tau) + n * n / (n - 1) * sigma * tau
    return mean, max(variance, 1e-9)


def loss_bound(rows: Sequence[int], local_ranks: Sequence[int], deviations: Floats) -> float:
    """Return Ehm's bound on the loss of marginal coverage by these deviations, on average over the new score.

    Clients that send no score (their rank is above their rows) do not count.

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


def described(
    found: Differences | None, *, bound: float | None, level: float, method: str
) -> dict[str, Any] | None:
    """Describe the differences as JSON, with a sentence and whether it is a warning.

    A quantile of quantiles promises nothing where clients differ, not even on average over them; the quantile of all
    scores nearly keeps its promise on average, and `weighted` does.
    """
    if found is None:
        return None
    alarming, differs = found.p_value < ALARM, found.p_value < SHOWN and found.between > 0
    text = f"No difference between clients beyond chance was shown (p = {found.p_value:.2g})."
    if differs:
        text = (
            f"Between clients the coverage differs by a standard deviation of about {found.between:.3f} beyond chance "
            f"(p = {found.p_value:.2g})."
        )
    if alarming and method in QQ:
        text += (
            f" Clients differ so much that a quantile of quantiles does not promise {level:g}, not even on average "
            "over them; use --method weighted, pooled, or local for a threshold of each client's own."
        )
    elif alarming:
        text += (
            f" Clients differ so much that {level:g} is for the average over them, and not for each; look at single "
            "clients, or find a threshold for each of them (--method local) or each group (--conditional)."
        )
    if bound is not None and differs:
        how = "Proposition 3.4, an estimate" if method in QQ else "the bound for partial exchangeability"
        text += f" It may take up to about {_shown(bound)} off the marginal coverage ({how})."
    return {
        "statistic": found.statistic,
        "degrees": found.degrees,
        "p_value": found.p_value,
        "between_sd": found.between,
        "loss_bound": bound,
        "alarming": alarming,
        "text": text,
    }


def _shown(number: float) -> str:
    return "0.001" if number < 0.001 else f"{number:.3f}"
