"""Integrals over the law of the miscoverage, for clients with different numbers of rows.

With ranks counted from the other end (r_j = n_j+1-ℓ_j, s = m+1-k) the miscoverage W = 1-U is the s-th smallest of the
clients' own W_j ~ Beta(r_j, ℓ_j), so that P(W <= t) = P(S(t) >= s) with coins of probability I_t(r_j, ℓ_j). Small
numbers keep their digits that way. The law need not be log-concave, nor have one mode, so panels are halved until it is
smooth on them.

P(S >= k) for a sum S of independent coins with different probabilities, for many such sums at once.

The characteristic function φ(ω) = Π_j (1 - p_j + p_j e^{iω}) at the L frequencies 2πj/L gives the law of S modulo L.
Two bounds make that short. All but `LEFT_OUT` of S lies within h of its mean, where h = λ/3 + sqrt(λ²/9 + 2λσ²) and
λ = log(2/LEFT_OUT) (Bernstein's inequality), so that L = 2h + 1 is enough. And |φ(ω)| <= exp(-2σ² sin²(ω/2)), since
|1 - p + p e^{iω}|² = 1 - 4p(1-p) sin²(ω/2), so that about 30 frequencies are enough, whatever the number of coins.

Error: `LEFT_OUT` for each of the two, and rounding of about 1e-16 times the root of the number of coins; absolute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betainc, betaincinv, rel_entr

from fedassay.estimation.coverage.law import (
    LAST_COEFFICIENTS,
    LEFT_OUT,
    PANEL_NODES,
    PANEL_WEIGHTS,
    TAIL,
    window,
)
from fedassay.protocol.arrays import AnyFloats, Ints

# --- tails of sums of independent coins ---------------------------------------------------------------------


_AT_ONCE = 1 << 22
"""Number of complex numbers in memory at a time."""


def upper_tails(p: AnyFloats, counts: Ints, k: Ints) -> AnyFloats:
    """Return P(S_i >= k) for each row i and each k, where S_i adds `counts[g]` coins of probability `p[i, g]`.

    Examples
    --------
    >>> p, counts = np.array([[0.5, 0.25], [0.0, 1.0]]), np.array([2, 1])
    >>> upper_tails(p, counts, np.array([0, 1, 2, 3])).round(4) + 0.0
    array([[1.    , 0.8125, 0.375 , 0.0625],
           [1.    , 1.    , 0.    , 0.    ]])
    """
    mean, variance = p @ counts, (p * (1 - p)) @ counts
    start, length = _windows(mean, variance, int(counts.sum()))
    last = _frequencies(variance, length)
    rows = max(1, _AT_ONCE // ((int(last.max()) + 1) * max(p.shape[1], len(k))))
    found = []
    for i in range(0, len(p), rows):
        part = slice(i, i + rows)
        found.append(_inverted(p[part], counts, k - start[part, None], length[part], last[part], start[part]))
    return np.concatenate(found)


def _windows(mean: AnyFloats, variance: AnyFloats, coins: int) -> tuple[Ints, Ints]:
    """Return the start of each window, and its length, an odd number so that frequencies come in conjugate pairs."""
    start, end = window(mean, variance, coins)
    return start, (end - start + 1) | 1


def _frequencies(variance: AnyFloats, length: Ints) -> Ints:
    """Return the last frequency at which |φ| can still be `LEFT_OUT`."""
    with np.errstate(divide="ignore"):
        sine = np.sqrt(np.minimum(1, -math.log(LEFT_OUT) / (2 * variance)))
    last: Ints = np.floor(length / np.pi * np.arcsin(sine)).astype(np.int64)
    return np.minimum(length // 2, last)


def _inverted(p: AnyFloats, counts: Ints, rank: Ints, length: Ints, last: Ints, start: Ints) -> AnyFloats:
    """Return Σ_{s >= rank} P(S = start + s), with the sum over s done in closed form for each frequency."""
    j = np.arange(1, int(last.max()) + 1)
    omega = 2 * np.pi * j / length[:, None]
    weight = np.where(
        j <= last[:, None], -_characteristic(p, counts, omega, start) / np.expm1(-1j * omega), 0
    )
    rank = np.clip(rank, 0, length[:, None])
    waves = np.expm1(-1j * omega[:, :, None] * rank[:, None, :])
    tails: AnyFloats = (length[:, None] - rank + 2 * np.einsum("ij,ijk->ik", weight, waves).real) / length[
        :, None
    ]
    return tails.clip(0, 1)


def _characteristic(p: AnyFloats, counts: Ints, omega: AnyFloats, start: Ints) -> NDArray[np.complex128]:
    """Return φ(ω) e^{-iω start} at a row of frequencies for each row of probabilities.

    Two things keep the digits. A likely coin is one, less an unlikely coin: the ones are whole turns of ω, which are
    counted exactly. And the power of a coin that is repeated is taken in polar form with log1p: the logarithm of a
    number next to 1 would lose as many digits as the count has.
    """
    likely = p > 0.5
    q, sign = np.where(likely, 1 - p, p)[:, None, :], np.where(likely, -1.0, 1.0)[:, None, :]
    turns = (likely @ counts - start)[:, None]
    sine, half = np.sin(omega)[:, :, None], np.sin(omega / 2)[:, :, None]
    once = counts == 1
    single = np.prod(1 + q[..., once] * (1j * sine * sign[..., once] - 2 * half**2), axis=2)
    q, sign, counts = q[..., ~once], sign[..., ~once], counts[~once]
    size = np.log1p(-4 * q * (1 - q) * half**2) @ counts / 2
    angle = (sign * np.arctan2(q * sine, 1 - 2 * q * half**2)) @ counts
    phi: NDArray[np.complex128] = single * np.exp(size + 1j * (angle + omega * turns))
    return phi


# --- integrals over the law of the miscoverage --------------------------------------------------------------

_SMOOTH = 1e-9
"""Bound of the last coefficients of a smooth panel: those from the 64th on are then about its square."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Senders:
    """Groups of clients that send a score: `counts` clients have `rows` rows each and this `rank` from above."""

    rows: Ints
    ranks: Ints
    counts: Ints

    @classmethod
    def of(cls, rows: Sequence[int], local_ranks: Sequence[int]) -> Senders:
        """Group all clients whose rank exists."""
        both = np.array(
            [(n, n + 1 - ell) for n, ell in zip(rows, local_ranks, strict=True) if ell <= n], dtype=np.int64
        )
        groups, counts = np.unique(both.reshape(-1, 2), axis=0, return_counts=True)
        return cls(rows=groups[:, 0], ranks=groups[:, 1], counts=counts.astype(np.int64))

    @property
    def clients(self) -> int:
        """Number of clients that send a score."""
        return int(self.counts.sum())

    def tails(self, t: AnyFloats, s: Ints) -> AnyFloats:
        """Return P(W_(s) <= t) for each t and each s, to rounding."""
        p = betainc(self.ranks, self.rows - self.ranks + 1, t[:, None])
        return upper_tails(p, self.counts, s)

    def ends(self, s: Ints) -> tuple[float, float]:
        """Return bounds between which lies all but about `TAIL` of every W_(s).

        P(S >= s) <= exp(-m·KL(s/m | E S/m)) for E S <= s (Hoeffding 1963, Theorem 1), and S grows with t: what is
        left is to find where its mean is as small as that allows. The same for the clients that S does not count.
        """
        a, b, m = self.ranks, self.rows - self.ranks + 1, self.clients
        lo = self._crossing(a, b, _mean_for_tail(m, int(s.min())))
        return lo, 1 - self._crossing(b, a, _mean_for_tail(m, m + 1 - int(s.max())))

    def moments(self, s: Ints) -> tuple[AnyFloats, AnyFloats]:
        """Return mean and variance of W_(s) for each s, within 1e-12."""
        edges, levels, slopes = self._panels(s)
        middle, width = ((edges[1:] + edges[:-1]) / 2)[:, None], np.diff(edges)[:, None]
        # About an edge c next to the mean, as in `law.moments`: P(W > t) above it, P(W <= t) below.
        c = edges[np.abs(edges[:, None] - (edges[0] + levels.sum(axis=0))).argmin(axis=0)]
        above = middle > c
        beyond = np.where(above, levels, width - levels)
        shift = np.where(above, beyond, -beyond).sum(axis=0)
        square = 2 * (slopes + np.abs(middle - c) * beyond).sum(axis=0)
        return c + shift, np.maximum(0, square - shift**2)

    def _crossing(self, a: Ints, b: Ints, target: float) -> float:
        """Return the point where the sum of I_x(a, b) over clients is about `target`."""
        bounds = betaincinv(a, b, target / self.clients)
        low, high = float(bounds.min()), float(bounds.max())
        if high - low <= 1e-9 * high:
            return low

        def excess(x: float) -> float:
            return math.log(max(float(betainc(a, b, x) @ self.counts), 1e-300) / target)

        return float(brentq(excess, low, high, xtol=1e-18, rtol=1e-6))

    def _panels(self, s: Ints) -> tuple[AnyFloats, AnyFloats, AnyFloats]:
        """Return edges, and for each panel between them ∫P(W_(s) > t)dt and ∫(t - middle)P(W_(s) > t)dt."""
        lo, hi = self.ends(s)
        edges = np.linspace(lo, hi, 5)
        start, width = edges[:-1], np.diff(edges)
        starts, levels, slopes = [], [], []
        while len(start):
            t = start[:, None] + width[:, None] * (PANEL_NODES + 1) / 2
            upper = 1 - self.tails(t.ravel(), s).reshape(*t.shape, len(s))
            rough = np.abs(np.einsum("pik,ij->pjk", upper, LAST_COEFFICIENTS)).max(axis=(1, 2))
            done = (rough < _SMOOTH) | (width < 1e-15)
            half = (width / 2)[done, None]
            starts.append(start[done])
            levels.append(half * np.einsum("pik,i->pk", upper[done], PANEL_WEIGHTS))
            slopes.append(half**2 * np.einsum("pik,i->pk", upper[done], PANEL_WEIGHTS * PANEL_NODES))
            start, width = start[~done], width[~done] / 2
            start, width = np.concatenate([start, start + width]), np.concatenate([width, width])
        order = np.argsort(np.concatenate(starts))
        edges = np.append(np.concatenate(starts)[order], hi)
        return edges, np.concatenate(levels)[order], np.concatenate(slopes)[order]


def _mean_for_tail(coins: int, s: int) -> float:
    """Return the mean below s at which Hoeffding's bound of P(S >= s) is `TAIL`."""
    weight = -math.log(TAIL)
    return float(
        brentq(
            lambda mean: float(rel_entr(s, mean) + rel_entr(coins - s, coins - mean)) - weight,
            s * math.exp(-weight / s - 1),  # there the bound is smaller, since the second term is at least -s
            s,
        )
    )
