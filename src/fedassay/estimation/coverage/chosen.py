"""The law of what a client's private choice covers: a binomial number of scores, and ranks that the choice may lose.

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
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, gammaln, xlog1py, xlogy

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

LEFT_OUT = 1e-17
"""The part of a binomial law that is left out; the rest is scaled up to one."""

_AT_ONCE = 1 << 21
"""Probabilities in memory at a time."""


def lost_at_least(d: ArrayLike, candidates: int, rate: float) -> Floats:
    """P(D >= d) = (B-1)e^(-rd)/(1 + (B-1)e^(-rd)) for d >= 1, and 1 below; r is `rate`.

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


def kept_at_most(d: ArrayLike, candidates: int, rate: float) -> Floats:
    """P(D <= d) = 1 - P(D >= d+1), accurate relative to itself.

    Examples
    --------
    >>> kept_at_most([-1, 0, 4, 9], 100, 1.0).round(4)
    array([0.    , 0.0267, 0.5999, 0.9955])
    """
    d = np.asarray(d, dtype=np.float64)
    if rate == math.inf:
        return np.where(d < 0, 0.0, 1.0)
    return np.where(d < 0, 0.0, expit(rate * (np.maximum(d, 0) + 1) - math.log(candidates - 1)))


def cdf_after_loss(s: Floats, rows: int, targets: Ints, candidates: int, rate: float) -> Floats:
    """G(s) = P(Bin(n, s) + D >= t) for each s and its t: the law of the coverage of one client, at its smallest."""
    return _mixed(s, rows, lambda c, i: lost_at_least(targets[i, None] - c, candidates, rate))


def cdf_after_gain(s: Floats, rows: int, targets: Ints, candidates: int, rate: float) -> Floats:
    """P(Bin(n, s) - E >= t): the law of the coverage at its largest, but for the width of a candidate.

    The (t+E)-th smallest score, which is +∞ for t + E > n.
    """
    return _mixed(s, rows, lambda c, i: kept_at_most(c - targets[i, None], candidates, rate))


def _mixed(s: Floats, rows: int, weight: Callable[[Ints, Ints], Floats]) -> Floats:
    """E weight(Bin(n, s), i) for each s_i: all but `LEFT_OUT` of the law lies in a window (Bernstein's inequality)."""
    reach = math.log(2 / LEFT_OUT)
    half = reach / 3 + np.sqrt(reach**2 / 9 + 2 * reach * rows * s * (1 - s))
    start = np.maximum(0, np.floor(rows * s - half)).astype(np.int64)
    end = np.minimum(rows, np.ceil(rows * s + half)).astype(np.int64)
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


def binomial(s: Floats, c: Ints, rows: int) -> Floats:
    """P(Bin(n, s) = c), within 1e-11 of itself for n up to 10^5; a common factor is off by most of that."""
    p: Floats = np.exp(_log_binomial(rows)[c] + xlogy(c, s) + xlog1py(rows - c, -s))
    return p


@lru_cache(maxsize=8)
def _log_binomial(rows: int) -> Floats:
    """The logarithm of n over c, for c = 0..n."""
    c = np.arange(rows + 1.0)
    table: Floats = gammaln(rows + 1.0) - gammaln(c + 1) - gammaln(rows - c + 1)
    table.flags.writeable = False
    return table
