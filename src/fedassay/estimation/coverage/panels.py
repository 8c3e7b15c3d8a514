"""Mean and variance of variables in [0, 1] from their distribution functions, on panels that are halved until smooth.

For clients that choose at random the law of the coverage is a mixture, wider than the quantile it belongs to and with
long tails, so that no fixed set of nodes fits all of them. A panel has 32 Gauss-Legendre nodes; it is done when the
last four of its 32 Legendre coefficients are below `SMOOTH`, since those that the rule misses, from the 64th on, are
about the square of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

_NODES, _WEIGHTS = legendre.leggauss(32)
_LAST = (2 * np.arange(28, 32) + 1) / 2 * legendre.legvander(_NODES, 31)[:, 28:] * _WEIGHTS[:, None]
"""The last four Legendre coefficients of a function on a panel, from its values at the nodes."""

SMOOTH = 1e-8
"""How small they have to be."""


def mean_and_variance(cdf: Callable[[Floats, Ints], Floats], count: int) -> tuple[Floats, Floats]:
    """Of 1-U for each of `count` laws of U, within 1e-11; `cdf(s, i)` is P(U_i <= s) of the i-th law at points s.

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
        s = start[:, None] + width[:, None] * (_NODES + 1) / 2
        F = cdf(s.ravel(), np.repeat(of, len(_NODES))).reshape(s.shape)
        done = (np.abs(F @ _LAST).max(axis=1) < SMOOTH) | (width < 1e-12)
        weights = F[done] * _WEIGHTS * (width[done, None] / 2)
        np.add.at(first, of[done], weights.sum(axis=1))
        np.add.at(second, of[done], 2 * ((1 - s[done]) * weights).sum(axis=1))
        half = width[~done] / 2
        start = np.concatenate([start[~done], start[~done] + half])
        of, width = np.tile(of[~done], 2), np.tile(half, 2)
    return first, np.maximum(0, second - first**2)
