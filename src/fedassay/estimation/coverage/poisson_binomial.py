"""P(S >= k) for a sum S of independent coins with different probabilities, for many such sums at once.

The characteristic function φ(ω) = Π_j (1 - p_j + p_j e^{iω}) at the L frequencies 2πj/L gives the law of S modulo L.
Two bounds make that short. All but `LEFT_OUT` of S lies within h of its mean, where h = λ/3 + sqrt(λ²/9 + 2λσ²) and
λ = log(2/LEFT_OUT) (Bernstein's inequality), so that L = 2h + 1 is enough. And |φ(ω)| <= exp(-2σ² sin²(ω/2)), since
|1 - p + p e^{iω}|² = 1 - 4p(1-p) sin²(ω/2), so that about 30 frequencies are enough, whatever the number of coins.

Error: `LEFT_OUT` for each of the two, and rounding of about 1e-16 times the root of the number of coins; absolute.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

LEFT_OUT = 1e-17
"""The probability outside the window, and the largest part of φ beyond the last frequency."""

_AT_ONCE = 1 << 22
"""Complex numbers in memory at a time."""


def upper_tails(p: Floats, counts: Ints, k: Ints) -> Floats:
    """P(S_i >= k) for each row i and each k, where S_i adds `counts[g]` coins of probability `p[i, g]`.

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


def _windows(mean: Floats, variance: Floats, coins: int) -> tuple[Ints, Ints]:
    """Where each window starts, and its length, an odd number so that frequencies come in conjugate pairs."""
    weight = math.log(2 / LEFT_OUT)
    reach = weight / 3 + np.sqrt(weight**2 / 9 + 2 * weight * variance)
    start = np.maximum(0, np.floor(mean - reach)).astype(np.int64)
    end = np.minimum(coins, np.ceil(mean + reach)).astype(np.int64)
    return start, (end - start + 1) | 1


def _frequencies(variance: Floats, length: Ints) -> Ints:
    """The last frequency at which |φ| can still be `LEFT_OUT`."""
    with np.errstate(divide="ignore"):
        sine = np.sqrt(np.minimum(1, -math.log(LEFT_OUT) / (2 * variance)))
    last: Ints = np.floor(length / np.pi * np.arcsin(sine)).astype(np.int64)
    return np.minimum(length // 2, last)


def _inverted(p: Floats, counts: Ints, rank: Ints, length: Ints, last: Ints, start: Ints) -> Floats:
    """Σ_{s >= rank} P(S = start + s), with the sum over s done in closed form for each frequency."""
    j = np.arange(1, int(last.max()) + 1)
    omega = 2 * np.pi * j / length[:, None]
    weight = np.where(
        j <= last[:, None], -_characteristic(p, counts, omega, start) / np.expm1(-1j * omega), 0
    )
    rank = np.clip(rank, 0, length[:, None])
    waves = np.expm1(-1j * omega[:, :, None] * rank[:, None, :])
    tails: Floats = (length[:, None] - rank + 2 * np.einsum("ij,ijk->ik", weight, waves).real) / length[
        :, None
    ]
    return tails.clip(0, 1)


def _characteristic(p: Floats, counts: Ints, omega: Floats, start: Ints) -> NDArray[np.complex128]:
    """φ(ω) e^{-iω start} at a row of frequencies for each row of probabilities.

    Two things keep the digits. A likely coin is one, less an unlikely coin: the ones are whole turns of ω, which are
    counted exactly. And the power of a coin that is repeated is taken in polar form with log1p, since the logarithm
    of a number next to 1 would lose as many digits as the count has.
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
